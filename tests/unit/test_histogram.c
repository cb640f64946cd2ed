#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "kv/histogram.h"
#include "tests/unit/unit.h"

static struct kv_histogram h;
static struct kv_histogram_view v;

static uint64_t quantile(uint32_t millionths)
{
	kv_histogram_read(&h, &v);
	return kv_histogram_quantile(&v, millionths);
}

UNIT(an_empty_one_has_nothing)
{
	ck_assert_uint_eq(quantile(500000), 0);
	ck_assert_uint_eq(quantile(1000000), 0);
	ck_assert_uint_eq(v.count, 0);
	ck_assert_uint_eq(v.max, 0);
}
UNIT_END

/* One number alone: what is read is it, whatever the size. */
UNIT(one_number_is_exact)
{
	for (int bit = 0; bit < 64; bit++)
		for (int less = 0; less < 2; less++) {
			uint64_t value = ((uint64_t)1 << bit) - (uint64_t)less;

			h = (struct kv_histogram){ 0 };
			kv_histogram_add(&h, value);
			ck_assert_uint_eq(quantile(0), value);
			ck_assert_uint_eq(quantile(1000000), value);
			ck_assert_uint_eq(v.sum, value);
			ck_assert_uint_eq(v.max, value);
		}
}
UNIT_END

/* Beside a larger one it is at most a sixteenth too large, and never too small. */
UNIT(numbers_are_a_sixteenth_too_large_at_most)
{
	for (uint64_t value = 0; value < (uint64_t)1 << 39; value += 1 + value / 37) {
		uint64_t got;

		h = (struct kv_histogram){ 0 };
		kv_histogram_add(&h, value);
		kv_histogram_add(&h, (uint64_t)1 << 60);
		got = quantile(500000);
		ck_assert_msg(got >= value && got - value <= value / 16, "%" PRIu64 ": %" PRIu64,
			      value, got);
		ck_assert_uint_eq(quantile(500001), (uint64_t)1 << 60);
	}
}
UNIT_END

UNIT(quantiles_ascend)
{
	uint64_t before = 0;

	h = (struct kv_histogram){ 0 };
	for (uint64_t i = 1; i <= 100000; i++)
		kv_histogram_add(&h, i);
	for (uint32_t m = 0; m <= 1000000; m += 10000) {
		uint64_t got = quantile(m), exact = (uint64_t)m / 10;

		ck_assert_uint_ge(got, before);
		ck_assert_uint_ge(got, exact);
		ck_assert_uint_le(got, KV_MAX(exact, (uint64_t)1) * 17 / 16);
		before = got;
	}
	ck_assert_uint_eq(before, 100000);
	ck_assert_uint_eq(v.count, 100000);
	ck_assert_uint_eq(v.sum, (uint64_t)100000 * 100001 / 2);
}
UNIT_END

static void *add_many(void *arg)
{
	(void)arg;
	for (uint64_t i = 0; i < 20000; i++)
		kv_histogram_add(&h, i);
	return NULL;
}

UNIT(threads_lose_nothing)
{
	pthread_t threads[4];

	h = (struct kv_histogram){ 0 };
	for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
		ck_ok(pthread_create(&threads[i], NULL, add_many, NULL));
	(void)quantile(990000);
	for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
		ck_ok(pthread_join(threads[i], NULL));
	(void)quantile(990000);
	ck_assert_uint_eq(v.count, 80000);
	ck_assert_uint_eq(v.sum, (uint64_t)4 * 19999 * 20000 / 2);
	ck_assert_uint_eq(v.max, 19999);
}
UNIT_END

UNIT_MAIN("histogram", an_empty_one_has_nothing, one_number_is_exact,
	  numbers_are_a_sixteenth_too_large_at_most, quantiles_ascend, threads_lose_nothing)
