#include "kv/pace.h"
#include "tests/unit/unit.h"

#define SECOND_NS ((uint64_t)1000000000)

UNIT(without_a_rate_nobody_waits)
{
	struct kv_pace p = { 0 };

	for (int i = 0; i < 10; i++) {
		kv_pace_take(&p, 1, UINT64_MAX);
		ck_assert_uint_eq(kv_pace_wait_ns(&p, 1), 0);
	}
}
UNIT_END

UNIT(what_was_taken_has_to_be_paid)
{
	struct kv_pace p = { .bytes_per_second = 1000 };
	uint64_t now = 5 * SECOND_NS;

	ck_assert_uint_eq(kv_pace_wait_ns(&p, now), 0);
	kv_pace_take(&p, now, 500);
	ck_assert_uint_eq(kv_pace_wait_ns(&p, now), SECOND_NS / 2);
	kv_pace_take(&p, now, 1000);
	ck_assert_uint_eq(kv_pace_wait_ns(&p, now), 3 * SECOND_NS / 2);
	now += SECOND_NS;
	ck_assert_uint_eq(kv_pace_wait_ns(&p, now), SECOND_NS / 2);
	/* What was not used is not saved up. */
	now += 100 * SECOND_NS;
	ck_assert_uint_eq(kv_pace_wait_ns(&p, now), 0);
	kv_pace_take(&p, now, 2000);
	ck_assert_uint_eq(kv_pace_wait_ns(&p, now), 2 * SECOND_NS);
}
UNIT_END

UNIT(a_burst_goes_at_once_and_comes_back_with_time)
{
	struct kv_pace p = { .bytes_per_second = 1000, .burst_bytes = 3000 };
	uint64_t now = 1;

	for (int round = 0; round < 2; round++) {
		kv_pace_take(&p, now, 3000);
		ck_assert_uint_eq(kv_pace_wait_ns(&p, now), 0);
		kv_pace_take(&p, now, 1000);
		ck_assert_uint_eq(kv_pace_wait_ns(&p, now), SECOND_NS);
		now += 2 * SECOND_NS;
		kv_pace_take(&p, now, 1000);
		ck_assert_uint_eq(kv_pace_wait_ns(&p, now), 0);
		now += 3 * SECOND_NS;
	}
}
UNIT_END

UNIT(over_time_the_rate_is_kept)
{
	struct kv_pace p = { .bytes_per_second = 12345, .burst_bytes = 7000 };
	uint64_t now = 0, taken = 0, n = 1;

	while (now < 1000 * SECOND_NS) {
		n = n * 6364136223846793005 + 1442695040888963407;
		kv_pace_take(&p, now, n >> 50);
		taken += n >> 50;
		now += kv_pace_wait_ns(&p, now);
		ck_assert_uint_eq(kv_pace_wait_ns(&p, now), 0);
	}
	ck_assert_uint_ge(taken, now / SECOND_NS * p.bytes_per_second);
	ck_assert_uint_le(taken, (now / SECOND_NS + 1) * p.bytes_per_second + p.burst_bytes);
}
UNIT_END

UNIT(large_numbers_do_not_wrap_around)
{
	struct kv_pace p = { .bytes_per_second = 1 };

	for (int i = 0; i < 20; i++) {
		kv_pace_take(&p, SECOND_NS, UINT64_MAX);
		ck_assert_uint_gt(kv_pace_wait_ns(&p, SECOND_NS), SECOND_NS);
	}
	p = (struct kv_pace){ .bytes_per_second = UINT64_MAX, .burst_bytes = UINT64_MAX };
	kv_pace_take(&p, SECOND_NS, UINT64_MAX);
	ck_assert_uint_eq(kv_pace_wait_ns(&p, SECOND_NS), 0);
}
UNIT_END

UNIT_MAIN("pace", without_a_rate_nobody_waits, what_was_taken_has_to_be_paid,
	  a_burst_goes_at_once_and_comes_back_with_time, over_time_the_rate_is_kept,
	  large_numbers_do_not_wrap_around)
