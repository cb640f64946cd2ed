/* Building a block; block_read.c reads it. */
#include "kv/assert.h"
#include "kv/block.h"

/*
 * A search goes to a restart and then entry by entry, each in cache lines of its own if values are
 * long: so it goes over no more bytes than that.
 */
#define RESTART_BYTES 256

void kv_block_builder_init(struct kv_block_builder *b, uint32_t restart_interval)
{
	KV_ASSERT(restart_interval > 0);
	*b = (struct kv_block_builder){ .restart_interval = restart_interval };
}

void kv_block_builder_done(struct kv_block_builder *b)
{
	kv_buf_done(&b->bytes);
	kv_buf_done(&b->restarts);
	kv_buf_done(&b->last_key);
}

void kv_block_builder_reset(struct kv_block_builder *b)
{
	kv_buf_reset(&b->bytes);
	kv_buf_reset(&b->restarts);
	kv_buf_reset(&b->last_key);
	b->since_restart = 0;
	b->restart_at = 0;
	b->count = 0;
}

static size_t shared_bytes(struct kv_slice a, struct kv_slice b)
{
	const uint8_t *x = a.data, *y = b.data;
	size_t n = KV_MIN(a.bytes, b.bytes), i = 0;

	while (i < n && x[i] == y[i])
		i++;
	return i;
}

int kv_block_add(struct kv_block_builder *b, struct kv_slice ikey, struct kv_slice value)
{
	bool restart = !b->count || b->since_restart == b->restart_interval ||
		       b->bytes.bytes - b->restart_at >= RESTART_BYTES;
	size_t shared = restart ? 0 : shared_bytes(kv_buf_slice(&b->last_key), ikey);
	struct kv_slice unshared = kv_slice((const uint8_t *)ikey.data + shared,
					    ikey.bytes - shared);
	le32 at = kv_le32((uint32_t)b->bytes.bytes);

	/* All memory first: an entry is added whole or not at all. */
	KV_TRY(kv_buf_reserve(&b->bytes, 3 * KV_VARINT_BYTES_MAX + unshared.bytes + value.bytes));
	KV_TRY(kv_buf_reserve(&b->restarts, sizeof(at)));
	KV_TRY(kv_buf_assign(&b->last_key, ikey));
	KV_ASSERT(b->bytes.bytes <= UINT32_MAX);

	if (restart) {
		KV_TRY(kv_buf_append(&b->restarts, &at, sizeof(at)));
		b->since_restart = 0;
		b->restart_at = b->bytes.bytes;
	}
	KV_TRY(kv_buf_append_varint(&b->bytes, shared));
	KV_TRY(kv_buf_append_varint(&b->bytes, unshared.bytes));
	KV_TRY(kv_buf_append_varint(&b->bytes, value.bytes));
	KV_TRY(kv_buf_append_slice(&b->bytes, unshared));
	KV_TRY(kv_buf_append_slice(&b->bytes, value));
	b->since_restart++;
	b->count++;
	return 0;
}

size_t kv_block_builder_bytes(const struct kv_block_builder *b)
{
	return b->bytes.bytes + b->restarts.bytes + sizeof(le32);
}

int kv_block_finish(struct kv_block_builder *b, struct kv_slice *out)
{
	le32 count = kv_le32((uint32_t)(b->restarts.bytes / sizeof(le32)));

	KV_TRY(kv_buf_reserve(&b->bytes, b->restarts.bytes + sizeof(count)));
	KV_TRY(kv_buf_append_slice(&b->bytes, kv_buf_slice(&b->restarts)));
	KV_TRY(kv_buf_append(&b->bytes, &count, sizeof(count)));
	*out = kv_buf_slice(&b->bytes);
	return 0;
}
