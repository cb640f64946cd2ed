#include <pthread.h>
#include <stdatomic.h>

#include "kv/db.h"
#include "tests/unit/db_fixture.h"

/* --- batches ----------------------------------------------------------------------------------- */

UNIT(operations_of_a_batch_take_effect_in_order)
{
	struct kv_batch *b = kv_batch_new();
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	kv_batch_put(b, kv_slice_str("a"), kv_slice_str("1"), KV_HINT_NONE);
	kv_batch_delete(b, kv_slice_str("a"));
	kv_batch_put(b, kv_slice_str("b"), kv_slice_str("1"), KV_HINT_NONE);
	kv_batch_delete_range(b, kv_slice_str("a"), kv_slice_str("z"));
	kv_batch_put(b, kv_slice_str("c"), kv_slice_str("1"), KV_HINT_NONE);
	kv_batch_put(b, kv_slice_str("c"), kv_slice_str("2"), KV_HINT_NONE);
	for (int i = 0; i < 2; i++) {
		ck_ok(kv_write(f.db, b, i));
		dbfix_expect(&f, "a", NULL);
		dbfix_expect(&f, "b", NULL);
		dbfix_expect(&f, "c", "2");
	}
	kv_batch_free(b);
	dbfix_reopen(&f);
	dbfix_expect(&f, "b", NULL);
	dbfix_expect(&f, "c", "2");
	dbfix_done(&f);
}
UNIT_END

UNIT(an_empty_batch_with_sync_is_a_sync)
{
	struct kv_batch *b = kv_batch_new();
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	ck_ok(kv_write(f.db, b, true));
	dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
	dbfix_open(&f);
	dbfix_expect(&f, "a", "1");
	kv_batch_free(b);
	dbfix_done(&f);
}
UNIT_END

UNIT(a_batch_that_is_broken_changes_nothing)
{
	static const uint8_t key[KV_KEY_BYTES_MAX + 1];
	struct kv_batch *b = kv_batch_new();
	struct kv_stats before, after;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	kv_stats(f.db, &before);
	kv_batch_put(b, kv_slice_str("a"), kv_slice_str("1"), KV_HINT_NONE);
	kv_batch_put(b, kv_slice(key, sizeof(key)), kv_slice_str("1"), KV_HINT_NONE);
	ck_assert_int_eq(kv_write(f.db, b, false), KV_E_too_big);
	kv_batch_reset(b);
	kv_batch_put(b, kv_slice_str("a"), kv_slice_str("1"), KV_HINT_NONE);
	kv_batch_put_part(b, kv_slice_str("b"), kv_slice_str("nothing"), 0, 1);
	ck_assert_int_eq(kv_write(f.db, b, false), KV_E_not_found);
	kv_stats(f.db, &after);
	ck_assert_uint_eq(before.seqno, after.seqno);
	dbfix_expect(&f, "a", NULL);
	kv_batch_free(b);
	dbfix_done(&f);
}
UNIT_END

/* A bulk value is borrowed, and written to the segment as it is. */
UNIT(bulk_values_are_written_once)
{
	static uint8_t value[100000];
	struct kv_batch *b = kv_batch_new();
	struct kv_stats s;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	dbfix_fill(value, sizeof(value), 1);
	kv_batch_put_ref(b, kv_slice_str("a"), kv_slice(value, sizeof(value)),
			 KV_HINT_INCOMPRESSIBLE);
	ck_ok(kv_write(f.db, b, false));
	kv_batch_free(b);
	kv_stats(f.db, &s);
	ck_assert_uint_ge(s.vlog_bytes, sizeof(value));
	ck_assert_uint_lt(s.vlog_bytes, sizeof(value) + 100);
	ck_assert_uint_lt(s.journal_bytes, 1000);
	ck_assert_uint_lt(s.memtable_bytes, 20000);
	dbfix_expect_bytes(&f, NULL, "a", value, sizeof(value));
	ck_ok(kv_flush(f.db));
	kv_stats(f.db, &s);
	ck_assert_uint_lt(s.vlog_bytes, sizeof(value) + 100);
	ck_assert_uint_lt(s.flush_bytes, 2000);
	dbfix_expect_bytes(&f, NULL, "a", value, sizeof(value));
	dbfix_done(&f);
}
UNIT_END

/* --- parts of values ------------------------------------------------------------------------------ */

/* Of an inline, a medium and a bulk value, in memory and from tables. */
UNIT(parts_are_what_they_were_cut_from)
{
	static const size_t sizes[] = { 100, 1000, 10000 };
	static uint8_t value[10000];
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (size_t i = 0; i < KV_ARRAY_LEN(sizes); i++) {
		uint32_t n = (uint32_t)sizes[i];

		for (int flushed = 0; flushed < 2; flushed++) {
			dbfix_fill(value, n, i + 1);
			ck_ok(dbfix_put_bytes(&f, "from", value, n, false));
			if (flushed)
				ck_ok(kv_flush(f.db));
			ck_ok(dbfix_put_part(&f, "whole", "from", 0, n));
			ck_ok(dbfix_put_part(&f, "half", "from", n / 2, n - n / 2));
			ck_ok(dbfix_put_part(&f, "few", "from", 7, 3));
			ck_ok(dbfix_put_part(&f, "none", "from", n, 0));
			ck_ok(dbfix_put_part(&f, "quarter", "half", 0, n / 4));
			ck_assert_int_eq(dbfix_put_part(&f, "x", "from", n - 1, 2), -EINVAL);
			ck_assert_int_eq(dbfix_put_part(&f, "x", "from", UINT32_MAX, 2), -EINVAL);
			ck_assert_int_eq(dbfix_put_part(&f, "x", "from", 2, 20000), -EINVAL);
			ck_ok(dbfix_delete(&f, "from"));
			for (int round = 0; round < 3; round++) {
				dbfix_expect(&f, "from", NULL);
				dbfix_expect(&f, "x", NULL);
				dbfix_expect_bytes(&f, NULL, "whole", value, n);
				dbfix_expect_bytes(&f, NULL, "half", value + n / 2, n - n / 2);
				dbfix_expect_bytes(&f, NULL, "few", value + 7, 3);
				dbfix_expect_bytes(&f, NULL, "none", value, 0);
				dbfix_expect_bytes(&f, NULL, "quarter", value + n / 2, n / 4);
				if (round == 0)
					ck_ok(kv_flush(f.db));
				else
					dbfix_reopen(&f);
			}
		}
	}
	dbfix_done(&f);
}
UNIT_END

UNIT(a_clone_costs_no_space)
{
	static uint8_t value[50000];
	struct kv_stats before, after;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	dbfix_fill(value, sizeof(value), 1);
	ck_ok(dbfix_put_bytes(&f, "a", value, sizeof(value), false));
	kv_stats(f.db, &before);
	ck_ok(dbfix_put_part(&f, "b", "a", 0, sizeof(value)));
	ck_ok(dbfix_put_part(&f, "c", "b", 20000, 20000));
	kv_stats(f.db, &after);
	ck_assert_uint_eq(before.vlog_bytes, after.vlog_bytes);
	/* A small rest is copied: it would pin the whole. */
	ck_ok(dbfix_put_part(&f, "d", "a", 0, 3000));
	kv_stats(f.db, &after);
	ck_assert_uint_gt(after.vlog_bytes, before.vlog_bytes + 3000);
	/* The last reference keeps the value. */
	ck_ok(dbfix_delete(&f, "a"));
	ck_ok(dbfix_delete(&f, "b"));
	ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	ck_ok(kv_wait_idle(f.db));
	dbfix_expect_bytes(&f, NULL, "c", value + 20000, 20000);
	dbfix_expect_bytes(&f, NULL, "d", value, 3000);
	dbfix_done(&f);
}
UNIT_END

/* --- counters ------------------------------------------------------------------------------------------ */

UNIT(counters_add_up)
{
	struct kv_batch *b = kv_batch_new();
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_add(&f, "n", 5));
	ck_ok(dbfix_add(&f, "n", -7));
	ck_assert_int_eq(dbfix_counter(&f, "n"), -2);
	ck_ok(kv_flush(f.db));
	ck_ok(dbfix_add(&f, "n", 1));
	ck_assert_int_eq(dbfix_counter(&f, "n"), -1);
	dbfix_reopen(&f);
	ck_ok(dbfix_add(&f, "n", 1));
	ck_assert_int_eq(dbfix_counter(&f, "n"), 0);
	kv_batch_add(b, kv_slice_str("n"), 10);
	kv_batch_add(b, kv_slice_str("m"), 1);
	kv_batch_add(b, kv_slice_str("n"), 20);
	ck_ok(kv_write(f.db, b, false));
	ck_ok(kv_write(f.db, b, false));
	ck_assert_int_eq(dbfix_counter(&f, "n"), 60);
	ck_assert_int_eq(dbfix_counter(&f, "m"), 2);
	kv_batch_free(b);
	dbfix_done(&f);
}
UNIT_END

UNIT(counters_follow_puts_and_deletes)
{
	struct kv_batch *b = kv_batch_new();
	le64 hundred = kv_le64(100);
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_add(&f, "n", 5));
	ck_ok(dbfix_put_bytes(&f, "n", &hundred, sizeof(hundred), false));
	ck_ok(dbfix_add(&f, "n", 5));
	ck_assert_int_eq(dbfix_counter(&f, "n"), 105);
	ck_ok(dbfix_delete(&f, "n"));
	ck_ok(dbfix_add(&f, "n", 5));
	ck_assert_int_eq(dbfix_counter(&f, "n"), 5);
	ck_ok(dbfix_delete_range(&f, "m", "o"));
	ck_ok(dbfix_add(&f, "n", 6));
	ck_assert_int_eq(dbfix_counter(&f, "n"), 6);
	/* All in one batch. */
	kv_batch_add(b, kv_slice_str("n"), 1);
	kv_batch_put(b, kv_slice_str("n"), kv_slice(&hundred, sizeof(hundred)), KV_HINT_NONE);
	kv_batch_add(b, kv_slice_str("n"), 1);
	kv_batch_add(b, kv_slice_str("n"), 1);
	ck_ok(kv_write(f.db, b, false));
	ck_assert_int_eq(dbfix_counter(&f, "n"), 102);
	kv_batch_reset(b);
	kv_batch_delete_range(b, kv_slice_str("a"), kv_slice_str("z"));
	kv_batch_add(b, kv_slice_str("n"), 3);
	ck_ok(kv_write(f.db, b, false));
	ck_assert_int_eq(dbfix_counter(&f, "n"), 3);
	ck_ok(dbfix_add(&f, "n", 1));
	ck_assert_int_eq(dbfix_counter(&f, "n"), 4);
	/* Something that is no counter fails its batch and no other. */
	ck_ok(dbfix_put(&f, "text", "abc", false));
	ck_assert_int_eq(dbfix_add(&f, "text", 1), -EINVAL);
	dbfix_expect(&f, "text", "abc");
	ck_ok(dbfix_add(&f, "n", 1));
	kv_batch_free(b);
	dbfix_done(&f);
}
UNIT_END

UNIT(more_counters_than_are_kept)
{
	struct dbfix f;
	char key[16];

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 600; i++) {
			snprintf(key, sizeof(key), "c%d", i);
			ck_ok(dbfix_add(&f, key, i));
		}
	for (int i = 0; i < 600; i++) {
		snprintf(key, sizeof(key), "c%d", i);
		ck_assert_int_eq(dbfix_counter(&f, key), 2 * i);
	}
	dbfix_done(&f);
}
UNIT_END

/* --- promises ------------------------------------------------------------------------------------------- */

/*
 * A chunk promises only what was synced with all its segments: of two batches
 * with bulk values that are appended after a sync, none is promised.
 */
UNIT(a_promise_covers_journal_and_segments)
{
	static uint8_t value[5000];
	struct dbfix f;

	for (uint64_t seed = 0; seed < 50; seed++) {
		dbfix_init(&f, seed);
		dbfix_open(&f);
		dbfix_fill(value, sizeof(value), seed);
		ck_ok(dbfix_put_bytes(&f, "a", value, sizeof(value), true));
		ck_ok(dbfix_put_bytes(&f, "b", value, sizeof(value), false));
		ck_ok(dbfix_put_bytes(&f, "c", value, sizeof(value), false));
		dbfix_crash(&f, KV_SIM_RANDOM, seed);
		f.errors = 0; /* of closing what has crashed */
		dbfix_open(&f);
		dbfix_expect_bytes(&f, NULL, "a", value, sizeof(value));
		/* Either whole or not there, and nothing without what was before it. */
		if (!kv_exists(f.db, NULL, kv_slice_str("c")))
			dbfix_expect_bytes(&f, NULL, "b", value, sizeof(value));
		if (!kv_exists(f.db, NULL, kv_slice_str("b")))
			dbfix_expect_bytes(&f, NULL, "b", value, sizeof(value));
		ck_assert_uint_eq(f.errors, 0);
		dbfix_done(&f);
	}
}
UNIT_END

/* --- many threads --------------------------------------------------------------------------------------- */

#define THREADS 4
#define WRITES 400

struct thread {
	struct dbfix *f;
	unsigned number;
	int result;
	uint32_t written, synced;
	_Atomic bool *stop;
};

static void *run_threads(struct dbfix *f, void *(*fn)(void *), struct thread *t, unsigned n)
{
	pthread_t threads[16];

	for (unsigned i = 0; i < n; i++) {
		t[i].f = f;
		t[i].number = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, fn, &t[i]), 0);
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return NULL;
}

/* Each thread has keys of its own, and adds to a counter of all. */
static void *write_some(void *arg)
{
	struct thread *t = arg;
	uint8_t value[3000];

	for (uint32_t i = 1; i <= WRITES; i++) {
		struct kv_batch *b = kv_batch_new();
		size_t bytes = i % 10 == 0 ? sizeof(value) : i % 10 == 1 ? 500 : 30;
		bool sync = i % 16 == 0;
		char key[24];
		int err;

		dbfix_fill(value, bytes, t->number * 100000 + i);
		snprintf(key, sizeof(key), "t%u-%u", t->number, i % 50);
		kv_batch_put(b, kv_slice_str(key), kv_slice(value, bytes), KV_HINT_NONE);
		snprintf(key, sizeof(key), "n%u", t->number);
		kv_batch_put(b, kv_slice_str(key), kv_slice(&i, sizeof(i)), KV_HINT_NONE);
		kv_batch_add(b, kv_slice_str("sum"), 1);
		err = kv_write(t->f->db, b, sync);
		kv_batch_free(b);
		if (err) {
			t->result = err;
			break;
		}
		t->written = i;
		if (sync)
			t->synced = i;
	}
	return NULL;
}

static void check_thread(struct dbfix *f, const struct thread *t, uint32_t min)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	uint8_t value[3000];
	uint32_t n = 0;
	char key[24];
	int err;

	snprintf(key, sizeof(key), "n%u", t->number);
	err = kv_get(f->db, NULL, kv_slice_str(key), &b);
	ck_assert(!err || err == KV_E_not_found);
	if (!err)
		memcpy(&n, b.data, sizeof(n));
	ck_assert_uint_ge(n, min);
	for (uint32_t i = n > 50 ? n - 49 : 1; i <= n; i++) {
		size_t bytes = i % 10 == 0 ? sizeof(value) : i % 10 == 1 ? 500 : 30;

		dbfix_fill(value, bytes, t->number * 100000 + i);
		snprintf(key, sizeof(key), "t%u-%u", t->number, i % 50);
		dbfix_expect_bytes(f, NULL, key, value, bytes);
	}
}

/* A batch is there whole or not at all: the counter never lags behind what is seen before it. */
static void *read_some(void *arg)
{
	struct thread *t = arg;

	while (!atomic_load(t->stop)) {
		struct kv_snapshot *s = kv_snapshot_new(t->f->db);
		KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
		int64_t sum = 0, total = 0;
		uint32_t n;
		le64 v;

		for (unsigned i = 0; i < THREADS; i++) {
			char key[24];

			snprintf(key, sizeof(key), "n%u", i);
			kv_buf_reset(&b);
			if (!kv_get(t->f->db, s, kv_slice_str(key), &b)) {
				memcpy(&n, b.data, sizeof(n));
				total += n;
			}
		}
		kv_buf_reset(&b);
		if (!kv_get(t->f->db, s, kv_slice_str("sum"), &b)) {
			memcpy(&v, b.data, sizeof(v));
			sum = (int64_t)kv_le64_get(v);
		}
		if (sum != total)
			t->result = -1;
		t->written++;
		kv_snapshot_free(t->f->db, s);
	}
	return NULL;
}

struct both {
	struct dbfix *f;
	struct thread *readers;
};

static void *run_readers(void *arg)
{
	struct both *b = arg;

	return run_threads(b->f, read_some, b->readers, 2);
}

UNIT(writers_and_readers_at_once)
{
	struct thread writers[THREADS] = { 0 }, readers[2] = { 0 };
	_Atomic bool stop = false;
	struct dbfix f;
	struct both both = { &f, readers };
	struct kv_stats s;
	pthread_t reading;

	dbfix_init(&f, 1);
	f.options.inline_work = false;
	dbfix_open(&f);
	readers[0].stop = readers[1].stop = &stop;
	ck_assert_int_eq(pthread_create(&reading, NULL, run_readers, &both), 0);
	run_threads(&f, write_some, writers, THREADS);
	atomic_store(&stop, true);
	pthread_join(reading, NULL);
	ck_ok(readers[0].result);
	ck_ok(readers[1].result);
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < THREADS; i++) {
			ck_ok(writers[i].result);
			check_thread(&f, &writers[i], WRITES);
		}
		ck_assert_int_eq(dbfix_counter(&f, "sum"), THREADS * WRITES);
		if (round == 0)
			ck_ok(kv_wait_idle(f.db));
		else
			dbfix_reopen(&f);
	}
	kv_stats(f.db, &s);
	ck_assert_uint_ge(s.seqno, THREADS * WRITES * 3);
	dbfix_done(&f);
}
UNIT_END

/* The machine stops in the middle of it all. */
UNIT(a_crash_beside_many_writers)
{
	uint64_t seed = dbfix_seed(11);

	for (uint64_t round = 0; round < 20; round++) {
		struct thread writers[THREADS] = { 0 };
		struct dbfix f;

		dbfix_init(&f, seed + round);
		f.options.inline_work = false;
		dbfix_open(&f);
		kv_env_sim_stop_after(f.env, 50 + 37 * round, true);
		run_threads(&f, write_some, writers, THREADS);
		dbfix_crash(&f, KV_SIM_RANDOM, seed + round);
		dbfix_open(&f);
		for (unsigned i = 0; i < THREADS; i++)
			check_thread(&f, &writers[i], writers[i].synced);
		dbfix_done(&f);
	}
}
UNIT_END

/* Whoever waits for a sync that fails is told. */
UNIT(a_failed_sync_reaches_all_who_wait)
{
	struct kv_sim_fault fault = { .ops = KV_SIM_SYNC, .suffix = ".journal", .after = 5,
				      .err = -EIO };
	struct thread writers[THREADS] = { 0 };
	struct dbfix f;

	dbfix_init(&f, 1);
	f.options.inline_work = false;
	f.options.memtable_bytes = 16 * KV_MIB;
	dbfix_open(&f);
	kv_env_sim_fail(f.env, &fault);
	run_threads(&f, write_some, writers, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(writers[i].result, KV_E_poisoned);
	dbfix_crash(&f, KV_SIM_RANDOM, 1);
	dbfix_open(&f);
	for (unsigned i = 0; i < THREADS; i++)
		check_thread(&f, &writers[i], writers[i].synced);
	dbfix_done(&f);
}
UNIT_END

/* --- back-pressure -------------------------------------------------------------------------------------- */

UNIT(memory_is_bounded)
{
	uint8_t value[200];
	struct kv_stats s;
	struct dbfix f;
	char key[16];

	dbfix_init(&f, 1);
	f.options.inline_work = false;
	dbfix_open(&f);
	for (uint32_t i = 0; i < 5000; i++) {
		dbfix_fill(value, sizeof(value), i);
		snprintf(key, sizeof(key), "%08x", i * 2654435761u);
		ck_ok(dbfix_put_bytes(&f, key, value, sizeof(value), false));
		kv_stats(f.db, &s);
		ck_assert_uint_le(s.memtable_bytes, 8 * f.options.memtable_bytes);
	}
	ck_ok(kv_flush(f.db));
	ck_ok(kv_wait_idle(f.db));
	kv_stats(f.db, &s);
	ck_assert_uint_gt(s.flushes, 10);
	for (uint32_t i = 0; i < 5000; i += 7) {
		dbfix_fill(value, sizeof(value), i);
		snprintf(key, sizeof(key), "%08x", i * 2654435761u);
		dbfix_expect_bytes(&f, NULL, key, value, sizeof(value));
	}
	dbfix_done(&f);
}
UNIT_END

/* Writers don't hang on a full disk, and go on when there is room. */
UNIT(a_full_disk_stops_nobody_for_ever)
{
	uint8_t value[200];
	struct dbfix f;
	uint32_t n = 0;
	int err = 0;

	dbfix_init(&f, 1);
	f.options.inline_work = false;
	dbfix_open(&f);
	kv_env_sim_set_capacity(f.env, 600 * KV_KIB);
	while (!err && n < 100000) {
		char key[16];

		dbfix_fill(value, sizeof(value), n);
		snprintf(key, sizeof(key), "%u", n++);
		err = dbfix_put_bytes(&f, key, value, sizeof(value), true);
	}
	ck_assert_int_eq(err, KV_E_no_space);
	kv_env_sim_set_capacity(f.env, UINT64_MAX);
	ck_ok(dbfix_put(&f, "again", "1", true));
	for (uint32_t i = 0; i + 1 < n; i++) {
		char key[16];

		dbfix_fill(value, sizeof(value), i);
		snprintf(key, sizeof(key), "%u", i);
		dbfix_expect_bytes(&f, NULL, key, value, sizeof(value));
	}
	ck_ok(kv_wait_idle(f.db));
	dbfix_done(&f);
}
UNIT_END

/* Many range deletes switch the memtable, too: readers would look through them all. */
UNIT(range_deletes_do_not_pile_up)
{
	struct kv_stats s;
	struct dbfix f;
	char begin[16], end[16];

	dbfix_init(&f, 1);
	f.options.memtable_bytes = 16 * KV_MIB;
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "05000x", "1", false));
	for (int i = 0; i < 3000; i++) {
		snprintf(begin, sizeof(begin), "%05d", i);
		snprintf(end, sizeof(end), "%05d", i + 1);
		ck_ok(dbfix_delete_range(&f, begin, end));
	}
	kv_stats(f.db, &s);
	ck_assert_uint_ge(s.flushes, 2);
	dbfix_expect(&f, "05000x", "1");
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("write", operations_of_a_batch_take_effect_in_order, an_empty_batch_with_sync_is_a_sync,
	  a_batch_that_is_broken_changes_nothing, bulk_values_are_written_once,
	  parts_are_what_they_were_cut_from, a_clone_costs_no_space, counters_add_up,
	  counters_follow_puts_and_deletes, more_counters_than_are_kept,
	  a_promise_covers_journal_and_segments, writers_and_readers_at_once,
	  a_crash_beside_many_writers, a_failed_sync_reaches_all_who_wait, memory_is_bounded,
	  a_full_disk_stops_nobody_for_ever, range_deletes_do_not_pile_up)
