#include "kv/coding.h"
#include "tests/unit/unit.h"

UNIT(fixed_numbers_round_trip)
{
	static const uint64_t n[] = { 0, 1, 0x80, 0x1234, 0xffff, 0x12345678, UINT32_MAX,
				      0x123456789abcdef0, UINT64_MAX };
	uint8_t be[8];

	for (size_t i = 0; i < KV_ARRAY_LEN(n); i++) {
		ck_assert_uint_eq(kv_le64_get(kv_le64(n[i])), n[i]);
		ck_assert_uint_eq(kv_le32_get(kv_le32((uint32_t)n[i])), (uint32_t)n[i]);
		ck_assert_uint_eq(kv_le16_get(kv_le16((uint16_t)n[i])), (uint16_t)n[i]);
		kv_be64_put(be, n[i]);
		ck_assert_uint_eq(kv_be64_get(be), n[i]);
	}
	ck_assert_uint_eq(kv_le32(0x11223344).b[0], 0x44);
	kv_be64_put(be, 0x1122334455667788);
	ck_assert_uint_eq(be[0], 0x11);
}
UNIT_END

UNIT(varints_round_trip_and_are_bounded)
{
	uint8_t b[KV_VARINT_BYTES_MAX];

	for (int bit = 0; bit < 64; bit++)
		for (int d = -1; d <= 1; d++) {
			uint64_t n = ((uint64_t)1 << bit) + (uint64_t)d, got = ~n;
			size_t bytes = kv_varint_put(b, n);
			struct kv_slice s = kv_slice(b, bytes);

			ck_assert_uint_eq(bytes, kv_varint_bytes(n));
			ck_assert(kv_take_varint(&s, &got));
			ck_assert_uint_eq(got, n);
			ck_assert_uint_eq(s.bytes, 0);
			for (size_t cut = 0; cut < bytes; cut++) {
				s = kv_slice(b, cut);
				ck_assert(!kv_take_varint(&s, &got));
				ck_assert_uint_eq(s.bytes, cut);
			}
		}
}
UNIT_END

UNIT(overlong_varints_are_refused)
{
	uint8_t b[11];
	uint64_t n;
	struct kv_slice s = kv_slice(b, sizeof(b));

	memset(b, 0x80, sizeof(b));
	ck_assert(!kv_take_varint(&s, &n));
	memset(b, 0xff, 9);
	b[9] = 2;
	ck_assert(!kv_take_varint(&s, &n));
}
UNIT_END

UNIT(prefixed_bytes_do_not_reach_outside)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct kv_slice s, got;

	ck_ok(kv_buf_append_prefixed(&b, kv_slice_str("hello")));
	s = kv_buf_slice(&b);
	ck_assert(kv_take_prefixed(&s, &got));
	ck_assert(kv_slice_eq(got, kv_slice_str("hello")));
	s = kv_slice(b.data, b.bytes - 1);
	ck_assert(!kv_take_prefixed(&s, &got));
	ck_assert_uint_eq(s.bytes, b.bytes - 1);
}
UNIT_END

UNIT_MAIN("coding", fixed_numbers_round_trip, varints_round_trip_and_are_bounded,
	  overlong_varints_are_refused, prefixed_bytes_do_not_reach_outside)
