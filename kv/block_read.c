/*
 * A cursor over a block. Nothing in the block is trusted: each entry is checked to lie within
 * the entries, each key to be an internal key, and each step goes forward in the bytes, so that any
 * walk ends.
 */
#include "kv/assert.h"
#include "kv/block.h"
#include "kv/errcode.h"
#include "kv/kv.h"

static struct kv_block_cursor *to_block(struct kv_cursor *c)
{
	return kv_container_of(c, struct kv_block_cursor, cursor);
}

static const struct kv_block_cursor *to_block_const(const struct kv_cursor *c)
{
	return kv_container_of(c, const struct kv_block_cursor, cursor);
}

/* --- entries ---------------------------------------------------------------------------------- */

struct entry {
	size_t shared;
	struct kv_slice unshared, value;
	uint32_t end;
};

static const uint8_t *block_at(const struct kv_block_cursor *c, uint32_t offset)
{
	return (const uint8_t *)c->block.bytes.data + offset;
}

/* False when there is no whole entry at the offset. */
static bool entry_parse(const struct kv_block_cursor *c, uint32_t offset, struct entry *out)
{
	uint64_t shared, unshared_bytes, value_bytes;
	struct kv_slice s;

	if (offset >= c->restarts_offset)
		return false;
	s = kv_slice(block_at(c, offset), c->restarts_offset - offset);
	if (!kv_take_varint(&s, &shared) || !kv_take_varint(&s, &unshared_bytes) ||
	    !kv_take_varint(&s, &value_bytes))
		return false;
	if (shared > UINT32_MAX || unshared_bytes > s.bytes ||
	    value_bytes > s.bytes - unshared_bytes)
		return false;
	out->shared = (size_t)shared;
	out->unshared = kv_slice(s.data, (size_t)unshared_bytes);
	out->value = kv_slice((const uint8_t *)s.data + unshared_bytes, (size_t)value_bytes);
	out->end = (uint32_t)((const uint8_t *)out->value.data + value_bytes - block_at(c, 0));
	return true;
}

static void fail(struct kv_block_cursor *c, int err)
{
	c->valid = false;
	c->error = err;
}

/* To the entry at the offset; c->key must hold the key before it, or nothing at a restart. */
static void move_to(struct kv_block_cursor *c, uint32_t offset)
{
	struct entry e;
	int err;

	if (!entry_parse(c, offset, &e) || e.shared > c->key.bytes) {
		fail(c, KV_E_bad_record);
		return;
	}
	c->key.bytes = e.shared;
	err = kv_buf_append_slice(&c->key, e.unshared);
	if (err || !kv_ikey_is_valid(kv_buf_slice(&c->key))) {
		fail(c, err ? err : KV_E_bad_record);
		return;
	}
	c->value = e.value;
	c->at = offset;
	c->next = e.end;
	c->valid = true;
}

/* --- restarts --------------------------------------------------------------------------------- */

static uint32_t restart_offset(const struct kv_block_cursor *c, uint32_t i)
{
	le32 v;

	memcpy(&v, block_at(c, c->restarts_offset) + (size_t)i * sizeof(v), sizeof(v));
	return kv_le32_get(v);
}

static void move_to_restart(struct kv_block_cursor *c, uint32_t i)
{
	c->restart = i;
	kv_buf_reset(&c->key);
	move_to(c, restart_offset(c, i));
}

/* The entry at a restart, whose key is whole. */
static bool restart_entry(const struct kv_block_cursor *c, uint32_t i, struct entry *out)
{
	return entry_parse(c, restart_offset(c, i), out) && !out->shared &&
	       kv_ikey_is_valid(out->unshared);
}

/* Order of an internal key and one that is given in its two parts. */
static int cmp_parts(struct kv_slice ikey, struct kv_slice user_key, uint64_t trailer)
{
	int c = kv_slice_cmp(kv_ikey_user(ikey), user_key);
	uint64_t t;

	if (c)
		return c;
	t = kv_ikey_trailer(ikey);
	return (t < trailer) - (t > trailer);
}

/* Index of the first restart at or after the key, or restart_count. False when one is malformed. */
static bool restart_find(const struct kv_block_cursor *c, struct kv_slice user_key,
			 uint64_t trailer, uint32_t *out)
{
	uint32_t low = 0, high = c->restart_count, middle;
	struct entry e;

	kv_block_narrow(&c->block, user_key, c->restart_count, &low, &high);
	while (low < high) {
		middle = low + (high - low) / 2;
		if (!restart_entry(c, middle, &e))
			return false;
		if (cmp_parts(e.unshared, user_key, trailer) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*out = low;
	return true;
}

/* Where to walk from, to get to the first entry at or after a key: what restart_find() gave of it. */
static uint32_t restart_to_walk_from(const struct kv_block_cursor *c, uint32_t found)
{
	/* Between two restarts there is nothing in a block that has only restarts. */
	return found && (!c->block.only_restarts || found == c->restart_count) ? found - 1 : found;
}

bool kv_block_restart_key(const struct kv_block_cursor *c, uint32_t i, struct kv_slice *out)
{
	struct entry e;

	if (!restart_entry(c, i, &e))
		return false;
	*out = kv_ikey_user(e.unshared);
	return true;
}

bool kv_block_has_only_restarts(const struct kv_block_cursor *c)
{
	uint32_t end = 0;
	struct entry e;

	for (uint32_t i = 0; i < c->restart_count; i++) {
		if (restart_offset(c, i) != end || !restart_entry(c, i, &e))
			return false;
		end = e.end;
	}
	return end == c->restarts_offset;
}

bool kv_block_restarts_are_good(const struct kv_block_cursor *c)
{
	struct entry e;
	uint32_t i = 0;

	for (uint32_t at = 0; at < c->restarts_offset; at = e.end) {
		if (!entry_parse(c, at, &e))
			return false;
		if (i < c->restart_count && restart_offset(c, i) == at) {
			if (e.shared)
				return false;
			i++;
		}
	}
	return i == c->restart_count;
}

/* --- moving ----------------------------------------------------------------------------------- */

/* Not valid, no error; true when there is something to move to. */
static bool start(struct kv_block_cursor *c)
{
	c->valid = false;
	c->error = 0;
	return c->restart_count > 0;
}

static void step(struct kv_block_cursor *c)
{
	if (c->next == c->restarts_offset) {
		c->valid = false;
		return;
	}
	move_to(c, c->next);
	while (c->valid && c->restart + 1 < c->restart_count &&
	       restart_offset(c, c->restart + 1) <= c->at)
		c->restart++;
}

/* From restart i to the entry that ends at `end`. */
static void walk_to_end(struct kv_block_cursor *c, uint32_t i, uint32_t end)
{
	move_to_restart(c, i);
	while (c->valid && c->next < end)
		step(c);
	if (c->valid && c->next != end)
		fail(c, KV_E_bad_record);
}

static void block_seek_first(struct kv_cursor *cursor)
{
	struct kv_block_cursor *c = to_block(cursor);

	if (start(c))
		move_to_restart(c, 0);
}

static void block_seek_last(struct kv_cursor *cursor)
{
	struct kv_block_cursor *c = to_block(cursor);

	if (start(c))
		walk_to_end(c, c->restart_count - 1, c->restarts_offset);
}

static void block_seek(struct kv_cursor *cursor, struct kv_slice ikey)
{
	struct kv_block_cursor *c = to_block(cursor);
	uint32_t i;

	if (!start(c))
		return;
	if (!restart_find(c, kv_ikey_user(ikey), kv_ikey_trailer(ikey), &i)) {
		fail(c, KV_E_bad_record);
		return;
	}
	move_to_restart(c, restart_to_walk_from(c, i));
	while (c->valid && kv_ikey_cmp(kv_buf_slice(&c->key), ikey) < 0)
		step(c);
}

static void block_next(struct kv_cursor *cursor)
{
	struct kv_block_cursor *c = to_block(cursor);

	KV_ASSERT(c->valid);
	step(c);
}

static void block_prev(struct kv_cursor *cursor)
{
	struct kv_block_cursor *c = to_block(cursor);
	uint32_t i = c->restart;

	KV_ASSERT(c->valid);
	if (!c->at) {
		c->valid = false;
		return;
	}
	/* The entry before a restart hangs on the restart before; damaged restarts may not ascend. */
	while (i && restart_offset(c, i) >= c->at)
		i--;
	walk_to_end(c, i, c->at);
}

static void block_seek_prev(struct kv_cursor *cursor, struct kv_slice ikey)
{
	struct kv_block_cursor *c = to_block(cursor);

	block_seek(cursor, ikey);
	if (c->error)
		return;
	if (!c->valid)
		block_seek_last(cursor);
	else if (kv_ikey_cmp(kv_buf_slice(&c->key), ikey) > 0)
		block_prev(cursor);
}

/* --- the cursor ------------------------------------------------------------------------------- */

static bool block_valid(const struct kv_cursor *cursor)
{
	return to_block_const(cursor)->valid;
}

static int block_error(const struct kv_cursor *cursor)
{
	return to_block_const(cursor)->error;
}

static struct kv_slice block_key(const struct kv_cursor *cursor)
{
	return kv_buf_slice(&to_block_const(cursor)->key);
}

static struct kv_slice block_value(const struct kv_cursor *cursor)
{
	return to_block_const(cursor)->value;
}

/* It is embedded: what it owns goes by kv_block_cursor_done(). */
static void block_free(struct kv_cursor *cursor)
{
	(void)cursor;
}

void kv_block_cursor_init(struct kv_block_cursor *c)
{
	static const struct kv_cursor_ops ops = {
		.free = block_free,
		.seek_first = block_seek_first,
		.seek_last = block_seek_last,
		.seek = block_seek,
		.seek_prev = block_seek_prev,
		.next = block_next,
		.prev = block_prev,
		.valid = block_valid,
		.error = block_error,
		.key = block_key,
		.value = block_value,
	};

	*c = (struct kv_block_cursor){ .cursor = { &ops } };
}

void kv_block_cursor_done(struct kv_block_cursor *c)
{
	kv_buf_done(&c->key);
}

int kv_block_cursor_set(struct kv_block_cursor *c, const struct kv_block *block)
{
	struct kv_slice s = block->bytes;
	uint32_t count, restarts_offset;
	le32 v;

	c->block = kv_block_plain(kv_slice(NULL, 0));
	c->restart_count = c->restarts_offset = 0;
	c->valid = false;
	c->error = KV_E_bad_record;
	if (s.bytes < sizeof(v) || s.bytes > UINT32_MAX)
		return KV_E_bad_record;
	memcpy(&v, (const uint8_t *)s.data + s.bytes - sizeof(v), sizeof(v));
	count = kv_le32_get(v);
	if (count > (s.bytes - sizeof(v)) / sizeof(v))
		return KV_E_bad_record;
	restarts_offset = (uint32_t)(s.bytes - sizeof(v) - (size_t)count * sizeof(v));
	/* Entries and restarts: neither is there without the other. */
	if ((count == 0) != (restarts_offset == 0))
		return KV_E_bad_record;
	c->block = *block;
	c->restart_count = count;
	c->restarts_offset = restarts_offset;
	if (count && restart_offset(c, 0)) {
		c->restart_count = c->restarts_offset = 0;
		return KV_E_bad_record;
	}
	c->error = 0;
	return 0;
}

/* --- looking up ----------------------------------------------------------------------------------- */

/* A key as it is put together entry by entry: in the block where it is whole there, else in bytes. */
struct key {
	struct kv_slice at;
	uint8_t bytes[KV_KEY_BYTES_MAX + KV_IKEY_TRAILER_BYTES];
};

static bool key_next(struct key *k, const struct entry *e)
{
	if (!e->shared) {
		k->at = e->unshared;
		return kv_ikey_is_valid(k->at);
	}
	if (e->shared > k->at.bytes || e->shared + e->unshared.bytes > sizeof(k->bytes))
		return false;
	if (k->at.data != k->bytes)
		memcpy(k->bytes, k->at.data, e->shared);
	if (e->unshared.bytes)
		memcpy(k->bytes + e->shared, e->unshared.data, e->unshared.bytes);
	k->at = kv_slice(k->bytes, e->shared + e->unshared.bytes);
	return kv_ikey_is_valid(k->at);
}

int kv_block_find(const struct kv_block *block, struct kv_slice user_key, uint64_t trailer,
		  struct kv_block_found *out)
{
	struct kv_block_cursor c;
	struct entry e;
	struct key key;
	uint32_t i, known;

	out->found = false;
	KV_TRY(kv_block_cursor_set(&c, block));
	if (!c.restart_count)
		return 0;
	if (!restart_find(&c, user_key, trailer, &i))
		return KV_E_bad_record;
	known = i < c.restart_count ? restart_offset(&c, i) : c.restarts_offset;
	key.at = kv_slice(NULL, 0);
	for (uint32_t at = restart_offset(&c, restart_to_walk_from(&c, i));
	     at != c.restarts_offset; at = e.end) {
		if (!entry_parse(&c, at, &e) || !key_next(&key, &e))
			return KV_E_bad_record;
		if (at != known && cmp_parts(key.at, user_key, trailer) < 0)
			continue;
		*out = (struct kv_block_found){
			.found = true,
			.same_user_key = kv_slice_eq(kv_ikey_user(key.at), user_key),
			.trailer = kv_ikey_trailer(key.at),
			.value = e.value,
		};
		return 0;
	}
	return 0;
}
