#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "kv/cache.h"
#include "tests/unit/tmpstore.h"

static struct kv_cache_key key_of(uint64_t file_no, uint64_t offset)
{
	return (struct kv_cache_key){ file_no, offset };
}

/* A block that says whose it is. */
static struct kv_cache_entry *put(struct kv_cache *c, uint64_t file_no, uint64_t offset,
				  size_t bytes)
{
	uint64_t *data = malloc(bytes);

	ck_assert_uint_ge(bytes, 16);
	data[0] = file_no;
	data[1] = offset;
	return kv_cache_put(c, key_of(file_no, offset), data, bytes);
}

static bool is_block(const struct kv_cache_entry *e, uint64_t file_no, uint64_t offset)
{
	const uint64_t *data = kv_cache_entry_data(e).data;

	return data[0] == file_no && data[1] == offset;
}

static bool has(struct kv_cache *c, uint64_t file_no, uint64_t offset)
{
	struct kv_cache_entry *e = kv_cache_get(c, key_of(file_no, offset));

	if (!e)
		return false;
	ck_assert(is_block(e, file_no, offset));
	kv_cache_unpin(c, e);
	return true;
}

UNIT(what_was_put_is_found)
{
	struct kv_cache *c = kv_cache_new(64 * KV_MIB);

	for (uint64_t i = 0; i < 5000; i++)
		kv_cache_unpin(c, put(c, i % 7, i, 16 + i % 100));
	for (uint64_t i = 0; i < 5000; i++) {
		ck_assert(has(c, i % 7, i));
		ck_assert(!has(c, i % 7 + 1, i));
	}
	ck_assert_uint_gt(kv_cache_bytes(c), 5000 * 16);
	kv_cache_free(c);
}
UNIT_END

UNIT(the_first_one_stays)
{
	struct kv_cache *c = kv_cache_new(KV_MIB);
	struct kv_cache_entry *a = put(c, 1, 2, 100), *b = put(c, 1, 2, 200);
	uint64_t bytes = kv_cache_bytes(c);

	ck_assert_ptr_eq(a, b);
	ck_assert_uint_eq(kv_cache_entry_data(b).bytes, 100);
	kv_cache_unpin(c, a);
	kv_cache_unpin(c, b);
	ck_assert(has(c, 1, 2));
	ck_assert_uint_eq(kv_cache_bytes(c), bytes);
	kv_cache_free(c);
}
UNIT_END

UNIT(the_budget_holds)
{
	static const uint64_t budgets[] = { 100 * KV_KIB, KV_MIB, 5 * KV_MIB, 32 * KV_MIB };

	for (size_t b = 0; b < KV_ARRAY_LEN(budgets); b++) {
		struct kv_cache *c = kv_cache_new(budgets[b]);

		for (uint64_t i = 0; i < budgets[b] / 2048; i++) {
			kv_cache_unpin(c, put(c, 3, i, 8192));
			ck_assert_uint_le(kv_cache_bytes(c), budgets[b]);
			ck_assert(has(c, 3, i));
		}
		ck_assert_uint_gt(kv_cache_bytes(c), budgets[b] / 2);
		kv_cache_free(c);
	}
}
UNIT_END

UNIT(what_is_hit_outlives_a_scan)
{
	struct kv_cache *c = kv_cache_new(256 * KV_KIB);

	kv_cache_unpin(c, put(c, 1, 0, 8192));
	for (uint64_t i = 0; i < 1000; i++) {
		ck_assert(has(c, 1, 0));
		kv_cache_unpin(c, put(c, 2, i, 8192));
	}
	kv_cache_free(c);
}
UNIT_END

UNIT(pinned_entries_stay_and_may_exceed_the_budget)
{
	struct kv_cache *c = kv_cache_new(64 * KV_KIB);
	struct kv_cache_entry *pins[20];

	for (uint64_t i = 0; i < 20; i++)
		pins[i] = put(c, 1, i, 8192);
	ck_assert_uint_gt(kv_cache_bytes(c), 20 * 8192);
	for (uint64_t i = 0; i < 20; i++) {
		ck_assert(has(c, 1, i));
		ck_assert(is_block(pins[i], 1, i));
		kv_cache_unpin(c, pins[i]);
	}
	kv_cache_unpin(c, put(c, 1, 100, 8192));
	ck_assert_uint_le(kv_cache_bytes(c), 64 * KV_KIB);
	kv_cache_free(c);
}
UNIT_END

UNIT(an_entry_larger_than_the_budget_works)
{
	struct kv_cache *c = kv_cache_new(0);
	struct kv_cache_entry *e = put(c, 1, 2, 1 << 20);

	ck_assert(has(c, 1, 2));
	ck_assert(is_block(e, 1, 2));
	kv_cache_unpin(c, e);
	kv_cache_unpin(c, put(c, 1, 3, 16));
	ck_assert(!has(c, 1, 2));
	kv_cache_free(c);
}
UNIT_END

UNIT(a_files_entries_are_dropped)
{
	struct kv_cache *c = kv_cache_new(64 * KV_MIB);
	struct kv_cache_entry *pin = put(c, 1, 5000, 64);

	for (uint64_t i = 0; i < 1000; i++)
		kv_cache_unpin(c, put(c, i % 3, i, 64));
	kv_cache_drop_file(c, 1);
	for (uint64_t i = 0; i < 1000; i++)
		ck_assert(has(c, i % 3, i) == (i % 3 != 1));
	/* Who had it pinned still has it; a new one can take its place. */
	ck_assert(!has(c, 1, 5000));
	ck_assert(is_block(pin, 1, 5000));
	kv_cache_unpin(c, put(c, 1, 5000, 64));
	ck_assert(has(c, 1, 5000));
	kv_cache_unpin(c, pin);
	kv_cache_drop_file(c, 0);
	kv_cache_drop_file(c, 1);
	kv_cache_drop_file(c, 2);
	ck_assert_uint_eq(kv_cache_bytes(c), 0);
	kv_cache_free(c);
}
UNIT_END

UNIT(private_entries_are_not_found)
{
	struct kv_cache *c = kv_cache_new(KV_MIB);
	struct kv_cache_entry *e = kv_cache_private(c, calloc(1, 100), 100);

	ck_assert_uint_eq(kv_cache_entry_data(e).bytes, 100);
	ck_assert_ptr_null(kv_cache_get(c, key_of(0, 0)));
	ck_assert_uint_eq(kv_cache_bytes(c), 0);
	kv_cache_unpin(c, e);
	kv_cache_unpin(c, NULL);
	kv_cache_free(c);
}
UNIT_END

struct worker {
	struct kv_cache *c;
	uint64_t random;
	bool ok;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct kv_cache_entry *e, *kept = NULL;
	uint64_t kept_offset = 0;

	for (int i = 0; i < 20000; i++) {
		uint64_t r = tmpstore_random(&w->random), file_no = r % 4, offset = r / 4 % 200;

		if (r >> 60 == 0 && i % 50 == 0)
			kv_cache_drop_file(w->c, file_no);
		e = kv_cache_get(w->c, key_of(file_no, offset));
		if (!e)
			e = put(w->c, file_no, offset, 1000 + offset);
		w->ok = w->ok && e && is_block(e, file_no, offset);
		if (kept)
			w->ok = w->ok && is_block(kept, kept_offset / 1000, kept_offset % 1000);
		kv_cache_unpin(w->c, kept);
		kept = e;
		kept_offset = file_no * 1000 + offset;
	}
	kv_cache_unpin(w->c, kept);
	return NULL;
}

UNIT(threads_share_it)
{
	struct kv_cache *c = kv_cache_new(200 * KV_KIB);
	struct worker workers[4];
	pthread_t threads[4];
	uint64_t seed = tmpstore_seed(3);

	for (int i = 0; i < 4; i++) {
		workers[i] = (struct worker){ c, seed + (uint64_t)i, true };
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert(workers[i].ok);
	}
	kv_cache_unpin(c, put(c, 9, 9, 100));
	ck_assert_uint_le(kv_cache_bytes(c), 200 * KV_KIB);
	kv_cache_free(c);
}
UNIT_END

UNIT_MAIN("cache", what_was_put_is_found, the_first_one_stays, the_budget_holds,
	  what_is_hit_outlives_a_scan, pinned_entries_stay_and_may_exceed_the_budget,
	  an_entry_larger_than_the_budget_works, a_files_entries_are_dropped,
	  private_entries_are_not_found, threads_share_it)
