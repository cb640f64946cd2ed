#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "kv/pool.h"
#include "tests/unit/unit.h"

#define ITEMS 1000

struct sums {
	_Atomic uint32_t calls[ITEMS];
	uint64_t results[ITEMS];
	size_t fails_from, fails_step;	/* 0: none fails */
};

static int square(void *arg, size_t item)
{
	struct sums *s = arg;

	atomic_fetch_add(&s->calls[item], 1);
	s->results[item] = (uint64_t)item * item;
	if (s->fails_step && item >= s->fails_from && (item - s->fails_from) % s->fails_step == 0)
		return -(int)item;
	return 0;
}

static void check_all(struct kv_pool *p, size_t count)
{
	struct sums *s = calloc(1, sizeof(*s));

	ck_ok(kv_parallel(p, count, square, s));
	for (size_t i = 0; i < ITEMS; i++) {
		ck_assert_uint_eq(atomic_load(&s->calls[i]), i < count);
		ck_assert_uint_eq(s->results[i], i < count ? i * i : 0);
	}
	free(s);
}

UNIT(each_item_is_done_once)
{
	static const size_t counts[] = { 0, 1, 2, 3, 7, 64, ITEMS };

	for (uint32_t threads = 0; threads <= 4; threads++) {
		struct kv_pool *p = kv_pool_new(threads);

		ck_assert_ptr_nonnull(p);
		for (size_t i = 0; i < KV_ARRAY_LEN(counts); i++)
			check_all(p, counts[i]);
		kv_pool_free(p);
	}
}
UNIT_END

UNIT(no_pool_works_too)
{
	check_all(NULL, 100);
	kv_pool_free(NULL);
}
UNIT_END

UNIT(the_first_failure_is_returned)
{
	struct kv_pool *p = kv_pool_new(3);

	for (size_t i = 1; i < 300; i++) {
		struct sums *s = calloc(1, sizeof(*s));

		s->fails_from = i;
		s->fails_step = 3;
		ck_assert_int_eq(kv_parallel(p, ITEMS, square, s), -(int)i);
		for (size_t k = 0; k < i; k++)
			ck_assert_uint_eq(atomic_load(&s->calls[k]), 1);
		free(s);
	}
	kv_pool_free(p);
}
UNIT_END

static void *call_often(void *arg)
{
	for (size_t i = 0; i < 200; i++)
		check_all(arg, 2 + i % 50);
	return NULL;
}

UNIT(many_call_at_once)
{
	struct kv_pool *p = kv_pool_new(2);
	pthread_t threads[4];

	for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, p), 0);
	for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	kv_pool_free(p);
}
UNIT_END

/* Both items must be begun before one can end: so a helper has taken part. */
struct meeting {
	pthread_barrier_t barrier;
};

static int meet(void *arg, size_t item)
{
	struct meeting *m = arg;

	(void)item;
	pthread_barrier_wait(&m->barrier);
	return 0;
}

UNIT(items_run_at_the_same_time)
{
	struct kv_pool *p = kv_pool_new(1);
	struct meeting m;

	ck_assert_int_eq(pthread_barrier_init(&m.barrier, NULL, 2), 0);
	ck_ok(kv_parallel(p, 2, meet, &m));
	ck_assert_int_eq(pthread_barrier_destroy(&m.barrier), 0);
	kv_pool_free(p);
}
UNIT_END

UNIT_MAIN("pool", each_item_is_done_once, no_pool_works_too, the_first_failure_is_returned,
	  many_call_at_once, items_run_at_the_same_time)
