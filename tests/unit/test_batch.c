#include "kv/batch.h"
#include "tests/unit/unit.h"

static struct kv_slice str(const char *s)
{
	return kv_slice_str(s);
}

static void free_batch(struct kv_batch **b)
{
	kv_batch_free(*b);
}

#define BATCH(b) KV_AUTO(free_batch) struct kv_batch *b = kv_batch_new()

UNIT(operations_are_kept_in_order)
{
	char key[] = "k1", value[] = "v1", ref[] = "by reference";

	BATCH(b);
	ck_assert_ptr_nonnull(b);
	ck_assert(kv_batch_is_empty(b));
	kv_batch_put(b, str(key), str(value), KV_HINT_INCOMPRESSIBLE);
	kv_batch_put_ref(b, str("k2"), str(ref), KV_HINT_NONE);
	kv_batch_delete(b, str("k3"));
	kv_batch_delete_range(b, str("k4"), str("k5"));
	kv_batch_put_part(b, str("k6"), str("from"), 7, 100);
	kv_batch_add(b, str("k8"), -9);
	kv_batch_put(b, str("k9"), kv_slice(NULL, 0), KV_HINT_NONE);
	memset(key, 'x', 2);
	memset(value, 'x', 2);
	memcpy(ref, "BY", 2);

	ck_assert_int_eq(b->error, 0);
	ck_assert(!kv_batch_is_empty(b));
	ck_assert_uint_eq(b->count, 7);
	ck_assert_int_eq(b->ops[0].ask, KV_ASK_PUT);
	ck_assert_int_eq(b->ops[0].hint, KV_HINT_INCOMPRESSIBLE);
	ck_assert(kv_slice_eq(b->ops[0].key, str("k1")));
	ck_assert(kv_slice_eq(b->ops[0].value, str("v1")));
	ck_assert(kv_slice_eq(b->ops[1].value, str("BY reference")));
	ck_assert_int_eq(b->ops[2].ask, KV_ASK_DELETE);
	ck_assert_int_eq(b->ops[3].ask, KV_ASK_DELETE_RANGE);
	ck_assert(kv_slice_eq(b->ops[3].key, str("k4")));
	ck_assert(kv_slice_eq(b->ops[3].value, str("k5")));
	ck_assert_int_eq(b->ops[4].ask, KV_ASK_PUT_PART);
	ck_assert(kv_slice_eq(b->ops[4].value, str("from")));
	ck_assert_uint_eq(b->ops[4].part_offset, 7);
	ck_assert_uint_eq(b->ops[4].part_bytes, 100);
	ck_assert_int_eq(b->ops[5].ask, KV_ASK_ADD);
	ck_assert_int_eq(b->ops[5].delta, -9);
	ck_assert_uint_eq(b->ops[6].value.bytes, 0);
	ck_assert_uint_eq(kv_batch_bytes(b), 7 * 2 + 2 + 12 + 0 + 2 + 100 + 8 + 0);

	kv_batch_reset(b);
	ck_assert(kv_batch_is_empty(b));
	ck_assert_uint_eq(kv_batch_bytes(b), 0);
}
UNIT_END

UNIT(empty_ranges_are_left_out)
{
	BATCH(b);
	kv_batch_delete_range(b, str("b"), str("b"));
	kv_batch_delete_range(b, str("b"), str("a"));
	kv_batch_delete_range(b, str("b"), str(""));
	ck_assert(kv_batch_is_empty(b));
}
UNIT_END

UNIT(limits_are_errors_that_stay)
{
	static uint8_t zeros[KV_VALUE_BYTES_MAX + 1];

	BATCH(b);
	kv_batch_put(b, str(""), str("v"), KV_HINT_NONE);
	ck_assert_int_eq(b->error, -EINVAL);
	ck_assert(!kv_batch_is_empty(b));
	kv_batch_put(b, str("k"), str("v"), KV_HINT_NONE);
	ck_assert_int_eq(b->error, -EINVAL);
	ck_assert_uint_eq(b->count, 0);

	kv_batch_reset(b);
	kv_batch_delete(b, kv_slice(zeros, KV_KEY_BYTES_MAX));
	ck_assert_int_eq(b->error, 0);
	kv_batch_delete(b, kv_slice(zeros, KV_KEY_BYTES_MAX + 1));
	ck_assert_int_eq(b->error, KV_E_too_big);

	kv_batch_reset(b);
	kv_batch_delete_range(b, str("a"), kv_slice(zeros, KV_KEY_BYTES_MAX + 1));
	ck_assert_int_eq(b->error, KV_E_too_big);
	kv_batch_reset(b);
	kv_batch_put_part(b, str("a"), str(""), 0, 1);
	ck_assert_int_eq(b->error, -EINVAL);
	kv_batch_reset(b);
	kv_batch_put_part(b, str("a"), str("b"), 0, KV_VALUE_BYTES_MAX + 1);
	ck_assert_int_eq(b->error, KV_E_too_big);

	kv_batch_reset(b);
	kv_batch_put_ref(b, str("k"), kv_slice(zeros, KV_VALUE_BYTES_MAX + 1), KV_HINT_NONE);
	ck_assert_int_eq(b->error, KV_E_too_big);

	kv_batch_reset(b);
	for (int i = 0; i < 3; i++)
		kv_batch_put_ref(b, str("k"), kv_slice(zeros, KV_VALUE_BYTES_MAX), KV_HINT_NONE);
	kv_batch_put_ref(b, str("k"), kv_slice(zeros, KV_VALUE_BYTES_MAX - 4), KV_HINT_NONE);
	ck_assert_int_eq(b->error, 0);
	ck_assert_uint_eq(kv_batch_bytes(b), KV_BATCH_BYTES_MAX);
	kv_batch_delete(b, str("k"));
	ck_assert_int_eq(b->error, KV_E_too_big);
	ck_assert_uint_eq(b->count, 4);
}
UNIT_END

UNIT(count_is_limited)
{
	BATCH(b);
	for (uint32_t i = 0; i < KV_BATCH_OPS_MAX; i++)
		kv_batch_delete(b, str("k"));
	ck_assert_int_eq(b->error, 0);
	kv_batch_delete(b, str("k"));
	ck_assert_int_eq(b->error, KV_E_too_big);
	ck_assert_uint_eq(b->count, KV_BATCH_OPS_MAX);
}
UNIT_END

UNIT(reset_does_not_keep_a_huge_value)
{
	static uint8_t zeros[4 << 20];

	BATCH(b);
	kv_batch_put(b, str("small"), str("value"), KV_HINT_NONE);
	kv_batch_put(b, str("huge"), kv_slice(zeros, sizeof(zeros)), KV_HINT_NONE);
	ck_assert_uint_gt(b->arena.bytes, sizeof(zeros));
	kv_batch_reset(b);
	ck_assert_uint_gt(b->arena.bytes, 0);
	ck_assert_uint_lt(b->arena.bytes, 1 << 20);
}
UNIT_END

UNIT(encoded_operations_round_trip)
{
	KV_AUTO(kv_buf_done) struct kv_buf buf = KV_BUF_INIT;
	static uint8_t big[70000];
	uint8_t ptr[sizeof(struct kv_vptr_disk)] = { 1, 2, 3 };
	const struct kv_op ops[] = {
		{ KV_KIND_PUT, str("k"), str("value") },
		{ KV_KIND_PUT, str("empty"), str("") },
		{ KV_KIND_DELETE, kv_slice(big, KV_KEY_BYTES_MAX), str("") },
		{ KV_KIND_PUT_PTR, str("ptr"), kv_slice(ptr, sizeof(ptr)) },
		{ KV_KIND_DELETE_RANGE, str("a"), str("b") },
		{ KV_KIND_PUT, str("big"), kv_slice(big, sizeof(big)) },
	};
	struct kv_op op;
	struct kv_slice s;

	for (size_t i = 0; i < KV_ARRAY_LEN(ops); i++)
		ck_ok(kv_op_append(&buf, ops[i].kind, ops[i].key, ops[i].value));
	s = kv_buf_slice(&buf);
	for (size_t i = 0; i < KV_ARRAY_LEN(ops); i++) {
		ck_assert(kv_op_take(&s, &op));
		ck_assert_int_eq(op.kind, ops[i].kind);
		ck_assert(kv_slice_eq(op.key, ops[i].key));
		ck_assert(kv_slice_eq(op.value, ops[i].value));
	}
	ck_assert_uint_eq(s.bytes, 0);
	ck_assert(!kv_op_take(&s, &op));
}
UNIT_END

static bool takes(struct kv_slice bytes)
{
	struct kv_slice s = bytes;
	struct kv_op op;
	bool taken = kv_op_take(&s, &op);

	if (!taken)
		ck_assert(s.data == bytes.data && s.bytes == bytes.bytes);
	return taken;
}

/* As kv_op_append(), of anything. */
static struct kv_slice forge(struct kv_buf *b, uint8_t kind, size_t key_bytes, size_t value_bytes)
{
	kv_buf_reset(b);
	ck_ok(kv_buf_append_byte(b, kind));
	ck_ok(kv_buf_append_varint(b, key_bytes));
	memset(kv_buf_grow(b, key_bytes), 'k', key_bytes);
	ck_ok(kv_buf_append_varint(b, value_bytes));
	memset(kv_buf_grow(b, value_bytes), 'v', value_bytes);
	return kv_buf_slice(b);
}

UNIT(malformed_operations_are_refused)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;

	ck_assert(takes(forge(&b, KV_KIND_PUT, 1, 1)));
	ck_assert(!takes(forge(&b, KV_KIND_MAX + 1, 1, 1)));
	ck_assert(!takes(forge(&b, 0xff, 1, 1)));
	ck_assert(!takes(forge(&b, KV_KIND_PUT, 0, 1)));
	ck_assert(takes(forge(&b, KV_KIND_PUT, KV_KEY_BYTES_MAX, 1)));
	ck_assert(!takes(forge(&b, KV_KIND_PUT, KV_KEY_BYTES_MAX + 1, 1)));
	ck_assert(takes(forge(&b, KV_KIND_PUT, 1, KV_VALUE_BYTES_MAX)));
	ck_assert(!takes(forge(&b, KV_KIND_PUT, 1, KV_VALUE_BYTES_MAX + 1)));
	ck_assert(takes(forge(&b, KV_KIND_DELETE, 1, 0)));
	ck_assert(!takes(forge(&b, KV_KIND_DELETE, 1, 1)));
	ck_assert(takes(forge(&b, KV_KIND_PUT_PTR, 1, 48)));
	ck_assert(!takes(forge(&b, KV_KIND_PUT_PTR, 1, 47)));
	ck_assert(!takes(forge(&b, KV_KIND_PUT_PTR, 1, 49)));
	ck_assert(!takes(forge(&b, KV_KIND_DELETE_RANGE, 1, 0)));
	ck_assert(!takes(forge(&b, KV_KIND_DELETE_RANGE, 1, KV_KEY_BYTES_MAX + 1)));

	forge(&b, KV_KIND_PUT, 300, 300);
	for (size_t cut = 0; cut < b.bytes; cut++)
		ck_assert(!takes(kv_slice(b.data, cut)));
}
UNIT_END

UNIT_MAIN("batch", operations_are_kept_in_order, empty_ranges_are_left_out,
	  limits_are_errors_that_stay, count_is_limited, reset_does_not_keep_a_huge_value,
	  encoded_operations_round_trip, malformed_operations_are_refused)
