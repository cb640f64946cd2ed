#include "kv/batch.h"

#include <stdlib.h>

#include "kv/assert.h"
#include "kv/compress.h"

struct kv_batch *kv_batch_new(void)
{
	struct kv_batch *b = calloc(1, sizeof(*b));

	if (b)
		kv_arena_init(&b->arena);
	return b;
}

void kv_batch_free(struct kv_batch *b)
{
	if (!b)
		return;
	kv_arena_done(&b->arena);
	kv_buf_done(&b->encoded);
	free(b->ops);
	free(b);
}

void kv_batch_reset(struct kv_batch *b)
{
	b->error = 0;
	b->use_reserve = false;
	b->user_bytes = 0;
	b->count = 0;
	kv_arena_reset(&b->arena);
	kv_buf_reset(&b->encoded);
}

void kv_batch_use_reserve(struct kv_batch *b)
{
	b->use_reserve = true;
}

/* One that failed is not empty: whoever skips empty batches would not learn of it. */
bool kv_batch_is_empty(const struct kv_batch *b)
{
	return !b->count && !b->error;
}

uint64_t kv_batch_bytes(const struct kv_batch *b)
{
	return b->user_bytes;
}

/* --- building ------------------------------------------------------------------------ */

static int check_key(struct kv_slice key)
{
	if (!key.bytes)
		return -EINVAL;
	return key.bytes > KV_KEY_BYTES_MAX ? KV_E_too_big : 0;
}

static int reserve_op(struct kv_batch *b)
{
	uint32_t max = b->count_max ? b->count_max * 2 : 8;
	struct kv_batch_op *ops;

	if (b->count < b->count_max)
		return 0;
	if (b->count >= KV_BATCH_OPS_MAX)
		return KV_E_too_big;
	ops = realloc(b->ops, max * sizeof(*ops));
	if (!ops)
		return -ENOMEM;
	b->ops = ops;
	b->count_max = max;
	return 0;
}

static int copy_bytes(struct kv_batch *b, struct kv_slice *s)
{
	void *to = kv_arena_alloc(&b->arena, s->bytes);

	if (!to)
		return -ENOMEM;
	if (s->bytes)
		memcpy(to, s->data, s->bytes);
	s->data = to;
	return 0;
}

/* The key is copied, the value if copy_value; value_bytes counts, whatever value is. */
static int add_op(struct kv_batch *b, struct kv_batch_op op, size_t value_bytes, bool copy_value)
{
	uint64_t bytes = (uint64_t)op.key.bytes + value_bytes;

	KV_TRY(check_key(op.key));
	if (value_bytes > KV_VALUE_BYTES_MAX || bytes > KV_BATCH_BYTES_MAX - b->user_bytes)
		return KV_E_too_big;
	KV_TRY(reserve_op(b));
	KV_TRY(copy_bytes(b, &op.key));
	if (copy_value)
		KV_TRY(copy_bytes(b, &op.value));
	b->ops[b->count++] = op;
	b->user_bytes += bytes;
	return 0;
}

void kv_batch_put(struct kv_batch *b, struct kv_slice key, struct kv_slice value, enum kv_hint hint)
{
	struct kv_batch_op op = { .ask = KV_ASK_PUT, .hint = hint, .key = key, .value = value };

	if (!b->error)
		b->error = add_op(b, op, value.bytes, true);
}

void kv_batch_put_ref(struct kv_batch *b, struct kv_slice key, struct kv_slice value,
		      enum kv_hint hint)
{
	struct kv_batch_op op = { .ask = KV_ASK_PUT, .hint = hint, .key = key, .value = value };

	if (!b->error)
		b->error = add_op(b, op, value.bytes, false);
}

void kv_batch_delete(struct kv_batch *b, struct kv_slice key)
{
	struct kv_batch_op op = { .ask = KV_ASK_DELETE, .key = key };

	if (!b->error)
		b->error = add_op(b, op, 0, false);
}

void kv_batch_delete_range(struct kv_batch *b, struct kv_slice begin, struct kv_slice end)
{
	struct kv_batch_op op = { .ask = KV_ASK_DELETE_RANGE, .key = begin, .value = end };

	if (b->error)
		return;
	b->error = check_key(begin);
	/* An empty end makes an empty range, as does any other before begin: nothing to do. */
	if (!b->error && end.bytes)
		b->error = check_key(end);
	if (!b->error && kv_slice_cmp(begin, end) < 0)
		b->error = add_op(b, op, end.bytes, true);
}

void kv_batch_put_part(struct kv_batch *b, struct kv_slice key, struct kv_slice from_key,
		       uint32_t offset, uint32_t bytes)
{
	struct kv_batch_op op = {
		.ask = KV_ASK_PUT_PART,
		.key = key,
		.value = from_key,
		.part_offset = offset,
		.part_bytes = bytes,
	};
	/* What the operation may become: the bytes themselves, or a pointer to them. */
	size_t value_bytes = KV_MAX((size_t)bytes, sizeof(struct kv_vptr_disk));

	if (b->error)
		return;
	b->error = check_key(from_key);
	if (!b->error)
		b->error = add_op(b, op, value_bytes, true);
}

void kv_batch_add(struct kv_batch *b, struct kv_slice key, int64_t delta)
{
	struct kv_batch_op op = { .ask = KV_ASK_ADD, .key = key, .delta = delta };

	if (!b->error)
		b->error = add_op(b, op, sizeof(le64), false);
}

/* --- encoded operations ---------------------------------------------------------------- */

static bool op_is_valid(const struct kv_op *op)
{
	struct kv_packed packed;

	if (!op->key.bytes || op->key.bytes > KV_KEY_BYTES_MAX)
		return false;
	switch (op->kind) {
	case KV_KIND_DELETE:
		return !op->value.bytes;
	case KV_KIND_PUT:
		return op->value.bytes <= KV_VALUE_BYTES_MAX;
	case KV_KIND_PUT_PTR:
		return op->value.bytes == sizeof(struct kv_vptr_disk);
	case KV_KIND_PUT_PACKED:
		return !kv_packed_decode(op->value, &packed);
	case KV_KIND_DELETE_RANGE:
		return op->value.bytes && op->value.bytes <= KV_KEY_BYTES_MAX;
	}
	return false;
}

bool kv_op_take(struct kv_slice *ops, struct kv_op *out)
{
	struct kv_slice rest = *ops, kind;
	struct kv_op op;

	if (!kv_take_bytes(&rest, 1, &kind) || !kv_take_prefixed(&rest, &op.key) ||
	    !kv_take_prefixed(&rest, &op.value))
		return false;
	if (*(const uint8_t *)kind.data > KV_KIND_MAX)
		return false;
	op.kind = (enum kv_kind)*(const uint8_t *)kind.data;
	if (!op_is_valid(&op))
		return false;
	*ops = rest;
	*out = op;
	return true;
}

static uint8_t *put_prefixed(uint8_t *at, struct kv_slice s)
{
	at += kv_varint_put(at, s.bytes);
	if (s.bytes)
		memcpy(at, s.data, s.bytes);
	return at + s.bytes;
}

int kv_op_append(struct kv_buf *to, enum kv_kind kind, struct kv_slice key, struct kv_slice value)
{
	struct kv_op op = { kind, key, value };
	uint8_t *at;

	KV_ASSERT(op_is_valid(&op));
	at = kv_buf_grow(to, 1 + kv_varint_bytes(key.bytes) + key.bytes +
			     kv_varint_bytes(value.bytes) + value.bytes);
	if (!at)
		return -ENOMEM;
	*at++ = (uint8_t)kind;
	at = put_prefixed(at, key);
	put_prefixed(at, value);
	return 0;
}
