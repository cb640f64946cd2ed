/*
 * The heads of a block. Behind the block's bytes lie, aligned for them, a uint32_t for each restart,
 * then the prefix, then the tail that tells where all of this is.
 */
#include <stdlib.h>

#include "kv/block.h"
#include "kv/errcode.h"

#define CACHE_LINE 64
#define END_LINES 5		/* that the restarts and heads of a usual block take */

struct tail {
	uint32_t block_bytes, prefix_bytes, count, only_restarts;
};

/* The four bytes of the key at the offset, zeros behind its end: a larger key has no smaller head. */
static uint32_t head_at(struct kv_slice key, size_t offset)
{
	const uint8_t *p = (const uint8_t *)key.data + offset;
	size_t n = key.bytes - offset;

	if (n >= 4)
		return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
	return (n > 0 ? (uint32_t)p[0] << 24 : 0) | (n > 1 ? (uint32_t)p[1] << 16 : 0) |
	       (n > 2 ? (uint32_t)p[2] << 8 : 0);
}

static size_t common_bytes(struct kv_slice a, struct kv_slice b)
{
	const uint8_t *x = a.data, *y = b.data;
	size_t n = KV_MIN(a.bytes, b.bytes), i = 0;

	while (i < n && x[i] == y[i])
		i++;
	return i;
}

/* What all restarts begin with, if they ascend: then it is what the first and the last do. */
static bool find_prefix(const struct kv_block_cursor *c, struct kv_slice *out)
{
	struct kv_slice first, last;

	if (!c->restart_count || !kv_block_restart_key(c, 0, &first) ||
	    !kv_block_restart_key(c, c->restart_count - 1, &last))
		return false;
	*out = kv_slice(first.data, common_bytes(first, last));
	return true;
}

/* False when a restart is malformed or does not ascend: a search must meet that by itself. */
static bool make_heads(const struct kv_block_cursor *c, struct kv_slice prefix, uint32_t *heads)
{
	struct kv_slice key;

	for (uint32_t i = 0; i < c->restart_count; i++) {
		if (!kv_block_restart_key(c, i, &key) || key.bytes < prefix.bytes ||
		    memcmp(key.data, prefix.data, prefix.bytes) != 0)
			return false;
		heads[i] = head_at(key, prefix.bytes);
		if (i && heads[i] < heads[i - 1])
			return false;
	}
	return true;
}

/* Where the heads begin. */
static size_t heads_offset(size_t block_bytes)
{
	return (block_bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t) * sizeof(uint32_t);
}

int kv_block_add_heads(uint8_t **data, size_t *bytes)
{
	struct kv_block plain = kv_block_plain(kv_slice(*data, *bytes));
	struct tail tail = { .block_bytes = (uint32_t)*bytes };
	struct kv_slice prefix = { NULL, 0 };
	struct kv_block_cursor c;
	size_t at;
	uint8_t *p;

	if (*bytes > UINT32_MAX)
		return KV_E_too_big;
	if (!kv_block_cursor_set(&c, &plain) && find_prefix(&c, &prefix))
		tail.count = c.restart_count;
	at = heads_offset(*bytes);
	p = realloc(*data, at + tail.count * sizeof(uint32_t) + prefix.bytes + sizeof(tail));
	if (!p)
		return -ENOMEM;
	*data = p;
	if (tail.count) {
		c.block.bytes.data = p; /* it may have moved */
		if (!find_prefix(&c, &prefix) ||
		    !make_heads(&c, prefix, (uint32_t *)(void *)(p + at)))
			tail.count = 0;
	}
	if (tail.count) {
		tail.only_restarts = kv_block_has_only_restarts(&c);
		at += tail.count * sizeof(uint32_t);
		memcpy(p + at, prefix.data, prefix.bytes);
		tail.prefix_bytes = (uint32_t)prefix.bytes;
		at += prefix.bytes;
	}
	memcpy(p + at, &tail, sizeof(tail));
	*bytes = at + sizeof(tail);
	return 0;
}

struct kv_block kv_block_with_heads(struct kv_slice data)
{
	const uint8_t *p = data.data, *end = p + data.bytes - sizeof(struct tail);
	struct tail tail;

	/* A search needs all of these; one after the other each would be waited for. */
	for (size_t i = CACHE_LINE; i <= END_LINES * CACHE_LINE && i < data.bytes; i += CACHE_LINE)
		__builtin_prefetch(end - i);
	memcpy(&tail, end, sizeof(tail));
	if (!tail.count)
		return kv_block_plain(kv_slice(p, tail.block_bytes));
	return (struct kv_block){
		.bytes = kv_slice(p, tail.block_bytes),
		.prefix = kv_slice(end - tail.prefix_bytes, tail.prefix_bytes),
		.heads = (const uint32_t *)(const void *)(p + heads_offset(tail.block_bytes)),
		.only_restarts = tail.only_restarts,
	};
}

/* How many of the heads are below. No branch depends on what is compared: half would be mispredicted. */
static uint32_t count_below(const uint32_t *heads, uint32_t count, uint32_t below)
{
	const uint32_t *base = heads;
	uint32_t half;

	while (count > 1) {
		half = count / 2;
		base += base[half - 1] < below ? half : 0;
		count -= half;
	}
	return (uint32_t)(base - heads) + (count && *base < below);
}

void kv_block_narrow(const struct kv_block *b, struct kv_slice user_key, uint32_t restart_count,
		     uint32_t *low, uint32_t *high)
{
	size_t n = KV_MIN(user_key.bytes, b->prefix.bytes);
	uint32_t head;
	int c;

	if (!b->heads)
		return;
	c = n ? memcmp(user_key.data, b->prefix.data, n) : 0;
	if (c || user_key.bytes < b->prefix.bytes) { /* before all of them, or behind */
		*low = *high = c > 0 ? restart_count : 0;
		return;
	}
	head = head_at(user_key, b->prefix.bytes);
	*low = *high = count_below(b->heads, restart_count, head);
	while (*high < restart_count && b->heads[*high] == head) /* seldom more than one */
		++*high;
}
