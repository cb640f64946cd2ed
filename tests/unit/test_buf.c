#include "kv/buf.h"

#include <errno.h>

#include "tests/unit/unit.h"

UNIT(appends_keep_what_is_there)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;

	for (int i = 0; i < 1000; i++)
		ck_ok(kv_buf_append_byte(&b, (uint8_t)i));
	ck_assert_uint_eq(b.bytes, 1000);
	for (int i = 0; i < 1000; i++)
		ck_assert_uint_eq(b.data[i], (uint8_t)i);
}
UNIT_END

UNIT(impossible_sizes_fail_and_change_nothing)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;

	ck_ok(kv_buf_append_byte(&b, 7));
	ck_assert_int_eq(kv_buf_reserve(&b, SIZE_MAX), -ENOMEM);
	ck_assert_ptr_null(kv_buf_grow(&b, SIZE_MAX - 1));
	ck_assert_uint_eq(b.bytes, 1);
	ck_assert_uint_eq(b.data[0], 7);
}
UNIT_END

UNIT(printf_appends_text)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;

	ck_ok(kv_buf_printf(&b, "%d-", 12));
	ck_ok(kv_buf_printf(&b, "%s", "abc"));
	ck_assert_str_eq((char *)b.data, "12-abc");
	ck_assert_uint_eq(b.bytes, 6);
}
UNIT_END

UNIT_MAIN("buf", appends_keep_what_is_there, impossible_sizes_fail_and_change_nothing,
	  printf_appends_text)
