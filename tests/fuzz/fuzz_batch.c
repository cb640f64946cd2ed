/* Operations of batches, as the journal holds them. */
#include "tests/fuzz/fuzz.h"

#include "kv/batch.h"

static void check_op(const struct kv_op *op, size_t taken_bytes)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct kv_slice s;
	struct kv_op again;

	FUZZ_ASSERT(op->kind <= KV_KIND_MAX);
	FUZZ_ASSERT(op->key.bytes <= KV_KEY_BYTES_MAX && op->value.bytes <= KV_VALUE_BYTES_MAX);
	FUZZ_OK(kv_op_append(&b, op->kind, op->key, op->value));
	FUZZ_ASSERT(b.bytes <= taken_bytes);
	s = kv_buf_slice(&b);
	FUZZ_ASSERT(kv_op_take(&s, &again) && !s.bytes && again.kind == op->kind &&
		    kv_slice_eq(again.key, op->key) && kv_slice_eq(again.value, op->value));
}

static void run(struct kv_slice input)
{
	struct kv_slice left = input;
	struct kv_op op;

	while (kv_op_take(&left, &op)) {
		FUZZ_ASSERT(left.bytes < input.bytes);
		check_op(&op, input.bytes - left.bytes);
		input = left;
	}
	FUZZ_ASSERT(left.bytes == input.bytes && left.data == input.data);
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	uint8_t pointer[sizeof(struct kv_vptr_disk)] = { 1 };

	FUZZ_OK(kv_op_append(&b, KV_KIND_PUT, kv_slice_str("key"), kv_slice_str("value")));
	FUZZ_OK(kv_op_append(&b, KV_KIND_DELETE, kv_slice_str("key"), kv_slice(NULL, 0)));
	emit(arg, kv_buf_slice(&b));
	FUZZ_OK(kv_op_append(&b, KV_KIND_PUT_PTR, kv_slice_str("k"),
			     kv_slice(pointer, sizeof(pointer))));
	FUZZ_OK(kv_op_append(&b, KV_KIND_DELETE_RANGE, kv_slice_str("a"), kv_slice_str("b")));
	emit(arg, kv_buf_slice(&b));
}

const struct fuzz_target fuzz_batch = { "batch", run, seeds };
