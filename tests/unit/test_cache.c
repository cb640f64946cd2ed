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

UNIT(many_small_ones_fit)
{
	struct kv_cache *c = kv_cache_new(32 * KV_MIB);
	struct kv_cache_entry *pin = put(c, 100, 0, 16);

	for (uint64_t i = 0; i < 100000; i++)
		kv_cache_unpin(c, put(c, i % 10, i << 20, 16));
	for (uint64_t i = 0; i < 100000; i++)
		ck_assert(has(c, i % 10, i << 20));
	for (uint64_t file_no = 0; file_no < 10; file_no++) {
		kv_cache_drop_file(c, file_no);
		for (uint64_t i = 0; i < 100000; i += 97)
			ck_assert(has(c, i % 10, i << 20) == (i % 10 > file_no));
	}
	ck_assert(is_block(pin, 100, 0));
	kv_cache_unpin(c, pin);
	kv_cache_drop_file(c, 100);
	ck_assert_uint_eq(kv_cache_bytes(c), 0);
	kv_cache_free(c);
}
UNIT_END

UNIT(what_is_dropped_counts_as_long_as_it_is_pinned)
{
	struct kv_cache *c = kv_cache_new(KV_MIB);
	struct kv_cache_entry *a = put(c, 1, 2, 8192), *b;

	ck_assert_ptr_eq(kv_cache_get(c, key_of(1, 2)), a);
	kv_cache_drop_file(c, 1);
	ck_assert_uint_ge(kv_cache_bytes(c), 8192);
	b = put(c, 1, 2, 8192);
	ck_assert_ptr_ne(a, b);
	kv_cache_unpin(c, a);
	ck_assert_uint_ge(kv_cache_bytes(c), 2 * 8192);
	kv_cache_unpin(c, a);
	ck_assert_uint_lt(kv_cache_bytes(c), 2 * 8192);
	ck_assert(is_block(b, 1, 2));
	kv_cache_unpin(c, b);
	kv_cache_drop_file(c, 1);
	ck_assert_uint_eq(kv_cache_bytes(c), 0);
	kv_cache_free(c);
}
UNIT_END

UNIT(what_is_charged_goes_off_the_budget)
{
	static const uint64_t budgets[] = { 400 * KV_KIB, 40 * KV_MIB };

	for (size_t b = 0; b < KV_ARRAY_LEN(budgets); b++) {
		struct kv_cache *c = kv_cache_new(budgets[b]);
		struct kv_cache_entry *pin = put(c, 2, 0, 8192);
		uint64_t charged = 0, step = budgets[b] / 16;

		for (uint64_t i = 0; i < budgets[b] / 2048; i++)
			kv_cache_unpin(c, put(c, 1, i, 4096));
		ck_assert_uint_gt(kv_cache_bytes(c), budgets[b] / 4 * 3);
		for (; charged < budgets[b] / 4 * 3; charged += step) {
			kv_cache_charge(c, (int64_t)step);
			ck_assert_uint_eq(kv_cache_charged(c), charged + step);
			ck_assert_uint_le(kv_cache_bytes(c) + charged + step, budgets[b]);
		}
		/* More is charged than there is: a quarter stays for blocks. */
		kv_cache_charge(c, (int64_t)(2 * budgets[b]));
		for (uint64_t i = 0; i < budgets[b] / 2048; i++)
			kv_cache_unpin(c, put(c, 3, i, 4096));
		ck_assert_uint_le(kv_cache_bytes(c), budgets[b] / 4);
		ck_assert_uint_gt(kv_cache_bytes(c), budgets[b] / 8);
		ck_assert(is_block(pin, 2, 0));
		ck_assert(has(c, 2, 0));
		kv_cache_unpin(c, pin);

		kv_cache_charge(c, -(int64_t)(2 * budgets[b] + charged));
		ck_assert_uint_eq(kv_cache_charged(c), 0);
		for (uint64_t i = 0; i < budgets[b] / 2048; i++)
			kv_cache_unpin(c, put(c, 1, i, 4096));
		ck_assert_uint_gt(kv_cache_bytes(c), budgets[b] / 4 * 3);
		kv_cache_free(c);
	}
}
UNIT_END

/* --- threads ---------------------------------------------------------------------------------- */

#define FILES 4
#define PINS 8

/* How large a cache is, and what is in it. */
struct load {
	uint64_t budget, offsets;
	size_t bytes_min, bytes_max;
	int steps;
};

struct worker {
	struct kv_cache *c;
	const struct load *load;
	uint64_t random;
	bool ok;
};

/* From what a block says of itself: all of it. */
static uint8_t byte_of(uint64_t file_no, uint64_t offset)
{
	return (uint8_t)(file_no * 31 + offset);
}

static bool is_whole(const struct kv_cache_entry *e, uint64_t file_no, uint64_t offset)
{
	struct kv_slice s = kv_cache_entry_data(e);
	const uint8_t *data = s.data;

	return is_block(e, file_no, offset) && data[16] == byte_of(file_no, offset) &&
	       data[s.bytes - 1] == byte_of(file_no, offset);
}

static struct kv_cache_entry *put_whole(struct worker *w, uint64_t file_no, uint64_t offset)
{
	size_t bytes = w->load->bytes_min + offset % (w->load->bytes_max - w->load->bytes_min);
	uint64_t *data = malloc(bytes);

	memset(data, byte_of(file_no, offset), bytes);
	data[0] = file_no;
	data[1] = offset;
	return kv_cache_put(w->c, key_of(file_no, offset), data, bytes);
}

static struct kv_cache_entry *get_or_put(struct worker *w, uint64_t file_no, uint64_t offset)
{
	struct kv_cache_entry *e = kv_cache_get(w->c, key_of(file_no, offset));

	return e ? e : put_whole(w, file_no, offset);
}

static void *work(void *arg)
{
	struct kv_cache_entry *pins[PINS] = { NULL };
	struct worker *w = arg;
	uint64_t files[PINS] = { 0 }, offsets[PINS] = { 0 };
	int64_t charged = 0, to;

	for (int i = 0; w->ok && i < w->load->steps; i++) {
		uint64_t r = tmpstore_random(&w->random), at = r >> 40 & (PINS - 1);

		if ((r >> 50) % 500 == 0)
			kv_cache_drop_file(w->c, r % FILES);
		if ((r >> 50) % 500 == 1) {
			to = (int64_t)(w->load->budget / 4 * (r >> 33 & 1));
			kv_cache_charge(w->c, to - charged);
			charged = to;
		}
		if (pins[at])
			w->ok = is_whole(pins[at], files[at], offsets[at]);
		kv_cache_unpin(w->c, pins[at]);
		files[at] = r % FILES;
		/* Some more often than others. */
		offsets[at] = r / FILES % (r >> 62 ? w->load->offsets / 16 + 1 : w->load->offsets);
		pins[at] = get_or_put(w, files[at], offsets[at]);
		w->ok = w->ok && pins[at] && is_whole(pins[at], files[at], offsets[at]);
		if (r >> 48 & 1) {
			kv_cache_unpin(w->c, pins[at]);
			pins[at] = NULL;
		}
	}
	for (int i = 0; i < PINS; i++)
		kv_cache_unpin(w->c, pins[i]);
	kv_cache_charge(w->c, -charged);
	return NULL;
}

UNIT(threads_share_it)
{
	static const struct load loads[] = {
		{ 200 * KV_KIB, 200, 1000, 1200, 20000 },
		{ 20 * KV_KIB, 10, 17, 4000, 20000 },	/* nearly all is pinned */
		{ 4 * KV_MIB, 100000, 17, 40, 60000 },	/* grows */
		{ 9 * KV_MIB, 2000, 2000, 9000, 20000 },
	};
	uint64_t seed = tmpstore_seed(3);
	struct worker workers[4];
	pthread_t threads[4];

	for (size_t l = 0; l < KV_ARRAY_LEN(loads); l++) {
		struct kv_cache *c = kv_cache_new(loads[l].budget);

		for (int i = 0; i < 4; i++) {
			workers[i] = (struct worker){ c, &loads[l], seed + (uint64_t)i, true };
			ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
		}
		for (int i = 0; i < 4; i++) {
			ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
			ck_assert(workers[i].ok);
		}
		/* Who comes makes room, in its shard, for what was pinned as the others came. */
		for (uint64_t i = 0; i < 200; i++)
			kv_cache_unpin(c, put(c, 9, i, 100));
		ck_assert_uint_le(kv_cache_bytes(c), loads[l].budget);
		ck_assert_uint_eq(kv_cache_charged(c), 0);
		for (uint64_t file_no = 0; file_no < FILES; file_no++)
			kv_cache_drop_file(c, file_no);
		kv_cache_drop_file(c, 9);
		ck_assert_uint_eq(kv_cache_bytes(c), 0);
		kv_cache_free(c);
	}
}
UNIT_END

UNIT_MAIN("cache", what_was_put_is_found, the_first_one_stays, the_budget_holds,
	  what_is_hit_outlives_a_scan, pinned_entries_stay_and_may_exceed_the_budget,
	  an_entry_larger_than_the_budget_works, a_files_entries_are_dropped,
	  private_entries_are_not_found, many_small_ones_fit,
	  what_is_dropped_counts_as_long_as_it_is_pinned, what_is_charged_goes_off_the_budget,
	  threads_share_it)
