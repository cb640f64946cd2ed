#include "kv/errcode.h"
#include "tests/unit/unit.h"

UNIT(parents_are_ancestors)
{
	ck_assert(kv_err_is(KV_E_bad_sum, KV_E_bad_sum));
	ck_assert(kv_err_is(KV_E_bad_sum, KV_E_corrupt));
	ck_assert(kv_err_is(KV_E_bad_sum, -EIO));
	ck_assert(!kv_err_is(KV_E_corrupt, KV_E_bad_sum));
	ck_assert(!kv_err_is(0, KV_E_corrupt));
	ck_assert(!kv_err_is(-ENOENT, -EIO));
}
UNIT_END

UNIT(every_code_ends_in_an_errno)
{
#define X(number, parent, name, text)                            \
	ck_assert_int_gt(kv_err_errno(KV_E_##name), 0);          \
	ck_assert_int_lt(kv_err_errno(KV_E_##name), 4096);       \
	ck_assert_str_eq(kv_err_text(KV_E_##name), text);
	KV_ERRCODES(X)
#undef X
	ck_assert_int_eq(kv_err_errno(KV_E_no_space), ENOSPC);
	ck_assert_int_eq(kv_err_errno(-EPERM), EPERM);
	ck_assert_int_eq(kv_err_errno(0), 0);
}
UNIT_END

UNIT(unknown_codes_are_io_errors)
{
	ck_assert_int_eq(kv_err_errno(KV_ERR_BASE - 4000), EIO);
	ck_assert_ptr_nonnull(kv_err_text(KV_ERR_BASE - 4000));
}
UNIT_END

UNIT_MAIN("errcode", parents_are_ancestors, every_code_ends_in_an_errno,
	  unknown_codes_are_io_errors)
