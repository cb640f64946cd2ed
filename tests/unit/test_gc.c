#include "kv/db.h"
#include "tests/unit/db_fixture.h"

/* --- helpers ------------------------------------------------------------------------------------ */

#define KEYS 120

static uint8_t value[64 * KV_KIB], expected[64 * KV_KIB];

/* Stays until the next but one call. */
static struct kv_slice key_of(uint32_t key)
{
	static char s[2][16];
	static unsigned next;

	next = !next;
	snprintf(s[next], sizeof(s[next]), "key%05u", key);
	return kv_slice_str(s[next]);
}

/* Medium and bulk ones; not all of one size in each round. */
static size_t size_of(uint32_t key, uint32_t round)
{
	return (key % 3 ? 400 : 4000) + (key * 7 + round * 31) % 300;
}

static void put(struct dbfix *f, uint32_t key, uint32_t round)
{
	dbfix_fill(value, size_of(key, round), key * 1000 + round);
	ck_ok(dbfix_put_bytes(f, key_of(key).data, value, size_of(key, round), false));
}

static void expect(struct dbfix *f, const struct kv_snapshot *snap, uint32_t key, uint32_t round)
{
	dbfix_fill(expected, size_of(key, round), key * 1000 + round);
	dbfix_expect_bytes(f, snap, key_of(key).data, expected, size_of(key, round));
}

static void put_all(struct dbfix *f, uint32_t round)
{
	for (uint32_t i = 0; i < KEYS; i++)
		put(f, i * 47 % KEYS, round);
}

static void expect_all(struct dbfix *f, const struct kv_snapshot *snap, uint32_t round)
{
	for (uint32_t i = 0; i < KEYS; i++)
		expect(f, snap, i, round);
}

static uint64_t live_bytes(uint32_t round)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < KEYS; i++)
		bytes += size_of(i, round);
	return bytes;
}

static struct kv_stats stats(struct dbfix *f)
{
	struct kv_stats s;

	kv_stats(f->db, &s);
	return s;
}

static void compact_all(struct dbfix *f)
{
	const struct kv_slice none = { NULL, 0 };

	ck_ok(kv_compact(f->db, none, none));
	ck_ok(kv_wait_idle(f->db));
}

static void init(struct dbfix *f, uint64_t seed)
{
	dbfix_init(f, seed);
	f->options.segment_bytes = 32 * KV_KIB;
	f->options.memtable_bytes = 32 * KV_KIB;
}

static void check_bound(struct dbfix *f, uint32_t round)
{
	struct kv_stats s = stats(f);

	ck_assert_msg(s.disk_bytes * 2 <= live_bytes(round) * 3,
		      "%" PRIu64 " bytes (%" PRIu64 " in segments, %" PRIu64 " referenced) for %" PRIu64,
		      s.disk_bytes, s.segment_bytes, s.segment_bytes_live, live_bytes(round));
}

/* Four of five keys are deleted: all segments keep something. */
static void thin_out(struct dbfix *f)
{
	for (uint32_t i = 0; i < KEYS; i++)
		if (i % 5)
			ck_ok(dbfix_delete(f, key_of(i).data));
}

static void expect_thin(struct dbfix *f, uint32_t round)
{
	for (uint32_t i = 0; i < KEYS; i++) {
		if (i % 5)
			dbfix_expect_bytes(f, NULL, key_of(i).data, NULL, 0);
		else
			expect(f, NULL, i, round);
	}
}

static void check_thin(struct dbfix *f, uint32_t round)
{
	ck_assert_uint_le(stats(f).segment_bytes, live_bytes(round) * 2 / 5);
}

/* --- space ----------------------------------------------------------------------------------------- */

static void overwrite(bool inline_work)
{
	struct dbfix f;

	init(&f, 1);
	f.options.inline_work = inline_work;
	dbfix_open(&f);
	for (uint32_t round = 1; round <= 5; round++)
		put_all(&f, round);
	compact_all(&f);
	expect_all(&f, NULL, 5);
	check_bound(&f, 5);
	ck_assert_uint_gt(stats(&f).gc_runs, 0);
	dbfix_reopen(&f);
	expect_all(&f, NULL, 5);
	ck_assert_uint_eq(f.errors, 0);
	dbfix_done(&f);
}

UNIT(overwritten_values_give_their_space_back)
{
	overwrite(true);
}
UNIT_END

UNIT(and_with_threads)
{
	overwrite(false);
}
UNIT_END

UNIT(what_is_left_moves_together)
{
	struct dbfix f;

	init(&f, 1);
	dbfix_open(&f);
	put_all(&f, 1);
	thin_out(&f);
	compact_all(&f);
	dbfix_reopen(&f);
	compact_all(&f);
	check_thin(&f, 1);
	expect_thin(&f, 1);
	dbfix_done(&f);
}
UNIT_END

/* What isn't worth a collection by itself goes when everything is compacted. */
UNIT(little_garbage_goes_when_it_is_asked_for)
{
	struct dbfix f;
	uint64_t runs;

	init(&f, 1);
	dbfix_open(&f);
	put_all(&f, 1);
	compact_all(&f);
	runs = stats(&f).gc_runs;
	for (uint32_t i = 0; i < KEYS; i += 12)
		put(&f, i, 2);
	ck_ok(kv_compact(f.db, kv_slice_str("a"), kv_slice_str("z")));
	ck_ok(kv_wait_idle(f.db));
	ck_assert_uint_eq(stats(&f).gc_runs, runs);
	compact_all(&f);
	ck_assert_uint_gt(stats(&f).gc_runs, runs);
	dbfix_reopen(&f); /* seals the segments that were written to */
	compact_all(&f);
	for (uint32_t i = 0; i < KEYS; i++)
		expect(&f, NULL, i, i % 12 ? 1 : 2);
	ck_assert_msg(stats(&f).segment_bytes * 20 <= stats(&f).segment_bytes_live * 21,
		      "%" PRIu64 " bytes in segments, %" PRIu64 " referenced",
		      stats(&f).segment_bytes, stats(&f).segment_bytes_live);
	dbfix_done(&f);
}
UNIT_END

/* --- shared and cut values ------------------------------------------------------------------------- */

#define SHARED_BYTES 20000

/* A value with others around it, which are deleted again. */
static void put_shared(struct dbfix *f)
{
	init(f, 1);
	f->options.segment_bytes = 256 * KV_KIB;
	f->options.bulk_bytes_per_memtable = KV_MIB;
	dbfix_open(f);
	dbfix_fill(value, sizeof(value), 1);
	ck_ok(dbfix_put_bytes(f, "garbage1", value, sizeof(value), false));
	dbfix_fill(value, sizeof(value), 2);
	ck_ok(dbfix_put_bytes(f, "whole", value, SHARED_BYTES, false));
}

static void drop_garbage(struct dbfix *f)
{
	dbfix_fill(value, sizeof(value), 3);
	ck_ok(dbfix_put_bytes(f, "garbage2", value, sizeof(value), false));
	ck_ok(dbfix_delete(f, "garbage1"));
	ck_ok(dbfix_delete(f, "garbage2"));
	dbfix_reopen(f);	/* seals */
	compact_all(f);
}

UNIT(shared_values_stay_shared)
{
	struct kv_stats s;
	struct dbfix f;

	put_shared(&f);
	dbfix_fill(expected, sizeof(expected), 2);
	ck_ok(dbfix_put_part(&f, "a", "whole", 0, 10000));
	ck_ok(dbfix_put_part(&f, "b", "whole", 5000, 15000));
	ck_ok(dbfix_put_part(&f, "c", "whole", 0, SHARED_BYTES));
	drop_garbage(&f);
	s = stats(&f);
	ck_assert_uint_gt(s.gc_runs, 0);
	ck_assert_uint_lt(s.gc_copied_bytes, SHARED_BYTES + 200);
	ck_assert_uint_lt(s.segment_bytes, SHARED_BYTES + 400);
	dbfix_expect_bytes(&f, NULL, "whole", expected, SHARED_BYTES);
	dbfix_expect_bytes(&f, NULL, "a", expected, 10000);
	dbfix_expect_bytes(&f, NULL, "b", expected + 5000, 15000);
	dbfix_expect_bytes(&f, NULL, "c", expected, SHARED_BYTES);
	dbfix_done(&f);
}
UNIT_END

/* Of a value of which only parts are left, only these are copied: what overlaps, together. */
UNIT(cut_values_lose_the_rest)
{
	struct kv_stats s;
	struct dbfix f;

	put_shared(&f);
	dbfix_fill(expected, sizeof(expected), 2);
	ck_ok(dbfix_put_part(&f, "a", "whole", 100, 5000));
	ck_ok(dbfix_put_part(&f, "b", "whole", 3000, 5100));
	ck_ok(dbfix_put_part(&f, "c", "whole", 15000, 5000));
	ck_ok(dbfix_delete(&f, "whole"));
	drop_garbage(&f);
	s = stats(&f);
	ck_assert_uint_gt(s.gc_runs, 0);
	ck_assert_uint_lt(s.gc_copied_bytes, 8000 + 5000 + 300);
	dbfix_expect_bytes(&f, NULL, "whole", NULL, 0);
	for (int i = 0; i < 2; i++) {
		dbfix_expect_bytes(&f, NULL, "a", expected + 100, 5000);
		dbfix_expect_bytes(&f, NULL, "b", expected + 3000, 5100);
		dbfix_expect_bytes(&f, NULL, "c", expected + 15000, 5000);
		dbfix_reopen(&f);
	}
	dbfix_done(&f);
}
UNIT_END

/* Compressed ones too, and a part of a part. */
UNIT(cut_values_are_compressed_anew)
{
	struct dbfix f;

	put_shared(&f);
	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = (uint8_t)(i / 64);
	memcpy(expected, value, sizeof(value));
	ck_ok(dbfix_put_bytes(&f, "text", value, SHARED_BYTES, false));
	ck_ok(dbfix_put_part(&f, "a", "text", 1000, 15000));
	ck_ok(dbfix_delete(&f, "text"));
	ck_ok(dbfix_put_part(&f, "b", "a", 2000, 9000));
	ck_ok(dbfix_delete(&f, "a"));
	ck_ok(dbfix_delete(&f, "whole"));
	drop_garbage(&f);
	ck_assert_uint_gt(stats(&f).gc_runs, 0);
	ck_assert_uint_lt(stats(&f).gc_copied_bytes, 2000);
	dbfix_expect_bytes(&f, NULL, "b", expected + 3000, 9000);
	ck_ok(dbfix_put_part(&f, "c", "b", 10, 8000));
	dbfix_expect_bytes(&f, NULL, "c", expected + 3010, 8000);
	dbfix_done(&f);
}
UNIT_END

/* A reference that was made after the collection, or before and is in a memtable still. */
UNIT(references_in_memory_keep_their_segment)
{
	struct dbfix f;
	uint64_t runs;

	put_shared(&f);
	dbfix_fill(expected, sizeof(expected), 2);
	dbfix_fill(value, sizeof(value), 3);
	ck_ok(dbfix_put_bytes(&f, "garbage2", value, SHARED_BYTES, false));
	ck_ok(dbfix_delete(&f, "garbage1"));
	ck_ok(dbfix_delete(&f, "garbage2"));
	ck_ok(kv_flush(f.db));
	ck_ok(kv_wait_idle(f.db));
	runs = stats(&f).gc_runs;
	ck_ok(dbfix_put_part(&f, "a", "whole", 100, 8000));
	ck_ok(dbfix_delete(&f, "whole"));
	ck_ok(kv_wait_idle(f.db));
	ck_assert_uint_eq(stats(&f).gc_runs, runs);
	dbfix_expect_bytes(&f, NULL, "a", expected + 100, 8000);
	dbfix_crash(&f, KV_SIM_KEEP_ALL, 1);
	dbfix_open(&f);
	compact_all(&f);
	ck_assert_uint_lt(stats(&f).segment_bytes, 2 * SHARED_BYTES);
	dbfix_expect_bytes(&f, NULL, "a", expected + 100, 8000);
	dbfix_done(&f);
}
UNIT_END

/* --- what is seen ----------------------------------------------------------------------------------- */

UNIT(snapshots_and_iterators_keep_old_values)
{
	struct kv_snapshot *snap;
	struct kv_slice got;
	struct kv_iter *it;
	struct dbfix f;

	init(&f, 1);
	dbfix_open(&f);
	put_all(&f, 1);
	put_all(&f, 2);
	snap = kv_snapshot_new(f.db);
	ck_ok(kv_iter_new(f.db, NULL, &it));
	for (uint32_t round = 3; round <= 6; round++)
		put_all(&f, round);
	compact_all(&f);
	ck_assert_uint_gt(stats(&f).gc_runs, 0);
	expect_all(&f, snap, 2);
	expect_all(&f, NULL, 6);
	kv_iter_seek_first(it);
	for (uint32_t i = 0; i < KEYS; i++, kv_iter_next(it)) {
		ck_assert(kv_iter_valid(it));
		dbfix_fill(expected, size_of(i, 2), i * 1000 + 2);
		ck_ok(kv_iter_value(it, &got));
		ck_assert(kv_slice_eq(got, kv_slice(expected, size_of(i, 2))));
	}
	kv_iter_free(it);
	kv_snapshot_free(f.db, snap);
	compact_all(&f);
	expect_all(&f, NULL, 6);
	check_bound(&f, 6);
	dbfix_done(&f);
}
UNIT_END

/* Tables of level 0 that are written anew stay in their order, though their numbers don't. */
UNIT(level_0_keeps_its_order)
{
	struct kv_snapshot *snap[3];
	struct dbfix f;

	init(&f, 1);
	f.options.memtable_bytes = 256 * KV_KIB;
	dbfix_open(&f);
	for (uint32_t t = 0; t < 3; t++) {
		/* Bulk values that a memtable overwrites are garbage when it is flushed. */
		for (uint32_t i = 0; i < 20; i++) {
			put(&f, 3, t * 100 + i);
			put(&f, 6 + 3 * i, t);
		}
		/* So many that a tombstone is no reason for a compaction. */
		for (uint32_t i = 0; i < 400; i++) {
			char key[16];

			snprintf(key, sizeof(key), "small%05u", i);
			ck_ok(dbfix_put(&f, key, "value", false));
		}
		snap[t] = kv_snapshot_new(f.db);
		if (t == 2)
			ck_ok(dbfix_delete_range(&f, key_of(6).data, key_of(9).data));
		ck_ok(kv_flush(f.db));
	}
	ck_ok(kv_wait_idle(f.db));
	ck_assert_uint_gt(stats(&f).gc_runs, 0);
	ck_assert_uint_eq(stats(&f).compactions, 0);
	ck_assert_uint_eq(stats(&f).table_count[0], 3);
	for (uint32_t t = 0; t < 3; t++) {
		expect(&f, snap[t], 3, t * 100 + 19);
		expect(&f, snap[t], 6, t);
		expect(&f, snap[t], 9, t);
	}
	for (uint32_t t = 0; t < 3; t++)
		kv_snapshot_free(f.db, snap[t]);
	for (int i = 0; i < 3; i++) {
		expect(&f, NULL, 3, 219);
		dbfix_expect_bytes(&f, NULL, key_of(6).data, NULL, 0);
		expect(&f, NULL, 9, 2);
		dbfix_reopen(&f);
		if (i)
			compact_all(&f);
	}
	dbfix_done(&f);
}
UNIT_END

/* --- failures ---------------------------------------------------------------------------------------- */

/* Much garbage in sealed segments, but no work has been done for it yet. */
static void make_garbage(struct dbfix *f)
{
	init(f, 1);
	dbfix_open(f);
	put_all(f, 1);
	dbfix_reopen(f);
	thin_out(f);
	ck_ok(kv_sync(f->db));
	ck_assert_uint_eq(stats(f).gc_runs, 0);
}

static int try_compact(struct dbfix *f)
{
	const struct kv_slice none = { NULL, 0 };
	int err = kv_compact(f->db, none, none);

	return err ? err : kv_wait_idle(f->db);
}

UNIT(a_failure_to_read_is_reported_once_and_passes)
{
	const struct kv_sim_fault fault = { .ops = KV_SIM_READ, .suffix = ".vlog", .err = -EIO,
					    .forever = true };
	struct kv_stats s;
	unsigned errors;
	struct dbfix f;

	make_garbage(&f);
	kv_env_sim_fail(f.env, &fault);
	ck_assert_int_eq(try_compact(&f), -EIO);
	errors = f.errors;
	ck_assert_uint_gt(errors, 0);
	/* It isn't tried with each flush, but now and then. */
	for (uint32_t i = 0; i < 20; i++) {
		ck_ok(dbfix_put(&f, "small", "value", true));
		ck_ok(kv_flush(f.db));
	}
	ck_assert_uint_eq(f.errors, errors);
	kv_env_sim_heal(f.env);
	expect_thin(&f, 1);
	ck_ok(kv_wait_idle(f.db));
	s = stats(&f);
	ck_assert_uint_gt(s.gc_runs, 0);
	expect_thin(&f, 1);
	check_thin(&f, 1);
	dbfix_reopen(&f);
	expect_thin(&f, 1);
	dbfix_done(&f);
}
UNIT_END

UNIT(without_space_nothing_is_lost_and_it_is_tried_again)
{
	struct dbfix f;
	int err;

	make_garbage(&f);
	kv_env_sim_set_capacity(f.env, kv_env_sim_used(f.env));
	err = try_compact(&f);
	ck_assert_msg(!err || err == KV_E_no_space, "%s", kv_err_text(err));
	expect_thin(&f, 1);
	kv_env_sim_set_capacity(f.env, UINT64_MAX);
	compact_all(&f);
	check_thin(&f, 1);
	expect_thin(&f, 1);
	dbfix_reopen(&f);
	expect_thin(&f, 1);
	dbfix_done(&f);
}
UNIT_END

/* The n-th call of a kind fails, anywhere in a collection. */
static bool fail_at(unsigned ops, const char *suffix, uint64_t n, int err)
{
	const struct kv_sim_fault fault = { .ops = ops, .suffix = suffix, .after = n, .err = err };
	struct dbfix f;
	bool hit;

	make_garbage(&f);
	kv_env_sim_fail(f.env, &fault);
	(void)try_compact(&f); /* whatever it says: what counts is that nothing is lost */
	hit = kv_env_sim_faults_hit(f.env);
	kv_env_sim_heal(f.env);
	expect_thin(&f, 1);
	if (!hit)
		ck_assert_uint_gt(stats(&f).gc_runs, 0);
	dbfix_crash(&f, KV_SIM_DROP_ALL, n);
	dbfix_open(&f);
	expect_thin(&f, 1);
	compact_all(&f);
	expect_thin(&f, 1);
	check_thin(&f, 1);
	dbfix_done(&f);
	return hit;
}

static void fail_everywhere(unsigned ops, const char *suffix, int err)
{
	uint64_t n = 0;

	while (n < 400 && fail_at(ops, suffix, n, err))
		n += 1 + n / 8;
}

UNIT(every_failure_is_survived)
{
	static const struct {
		unsigned ops;
		const char *suffix;
	} kinds[] = {
		{ KV_SIM_READ, ".vlog" }, { KV_SIM_READ, ".sst" }, { KV_SIM_OPEN, NULL },
		{ KV_SIM_WRITE, ".vlog" }, { KV_SIM_WRITE, ".sst" }, { KV_SIM_WRITE, ".manifest" },
		{ KV_SIM_SYNC, ".vlog" }, { KV_SIM_SYNC, ".sst" }, { KV_SIM_SYNC, ".manifest" },
		{ KV_SIM_DIR_SYNC, NULL }, { KV_SIM_CREATE, NULL }, { KV_SIM_ALLOCATE, NULL },
		{ KV_SIM_UNLINK, NULL }, { KV_SIM_TRUNCATE, NULL },
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(kinds); i++) {
		fail_everywhere(kinds[i].ops, kinds[i].suffix, -EIO);
		fail_everywhere(kinds[i].ops, kinds[i].suffix, -ENOSPC);
	}
}
UNIT_END

UNIT(a_crash_anywhere_loses_nothing)
{
	uint64_t seed = dbfix_seed(1), n = 0;
	bool stopped = true;

	while (stopped) {
		struct dbfix f;

		make_garbage(&f);
		kv_env_sim_stop_after(f.env, n, true);
		(void)try_compact(&f); /* fails, as a rule: its disk has died */
		stopped = kv_env_sim_stopped(f.env);
		dbfix_crash(&f, n % 3 ? KV_SIM_RANDOM : KV_SIM_DROP_ALL, seed + n);
		dbfix_open(&f);
		expect_thin(&f, 1);
		compact_all(&f);
		expect_thin(&f, 1);
		check_thin(&f, 1);
		dbfix_done(&f);
		n += 1 + n / 40;
	}
	ck_assert_uint_gt(n, 50);
}
UNIT_END

struct find_vlog {
	char name[KV_SIM_NAME_BYTES_MAX];
};

static int find_vlog(void *arg, const char *name)
{
	struct find_vlog *f = arg;

	if (strstr(name, ".vlog") && (!f->name[0] || strcmp(name, f->name) < 0))
		snprintf(f->name, sizeof(f->name), "%s", name);
	return 0;
}

/* The first segment keeps its garbage, since a value in it can't be read. The others don't. */
UNIT(damaged_values_are_left_alone)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
	struct find_vlog found = { "" };
	struct kv_env_dir *dir;
	uint32_t damaged = 0;
	unsigned errors;
	struct dbfix f;

	init(&f, 1);
	dbfix_open(&f);
	put_all(&f, 1);
	dbfix_reopen(&f);
	ck_ok(f.env->ops->dir_open(f.env, "store", false, &dir));
	ck_ok(f.env->ops->dir_list(dir, find_vlog, &found));
	f.env->ops->dir_close(dir);
	thin_out(&f);
	for (uint64_t at = 1000; !kv_env_sim_flip(f.env, "store", found.name, at, 1);)
		at += 300;
	compact_all(&f);
	errors = f.errors;
	ck_assert_uint_gt(errors, 0);
	ck_assert_uint_gt(stats(&f).gc_runs, 0);
	/* It has been given up: no more messages, and the store goes on. */
	ck_ok(dbfix_put(&f, "small", "value", true));
	ck_ok(kv_flush(f.db));
	ck_ok(kv_wait_idle(f.db));
	ck_assert_uint_eq(f.errors, errors);
	for (uint32_t i = 0; i < KEYS; i += 5) {
		int err = kv_get(f.db, NULL, key_of(i), &got);

		if (err)
			ck_assert(kv_err_is(err, KV_E_corrupt));
		else
			expect(&f, NULL, i, 1);
		damaged += !!err;
	}
	ck_assert_uint_gt(damaged, 0);
	ck_assert_uint_lt(damaged, KEYS / 5);
	dbfix_done(&f);
}
UNIT_END

/* --- when it is quiet --------------------------------------------------------------------------------- */

/* Deletes free space although nobody writes any more. */
static void quiet(bool range)
{
	struct kv_stats s;
	struct dbfix f;

	init(&f, 1);
	f.options.inline_work = false;
	f.options.memtable_bytes = 256 * KV_KIB;
	dbfix_open(&f);
	put_all(&f, 1);
	ck_ok(kv_flush(f.db));
	ck_ok(kv_wait_idle(f.db));
	if (range)
		ck_ok(dbfix_delete_range(&f, key_of(4).data, key_of(KEYS - 4).data));
	for (uint32_t i = 4; i < KEYS - 4 && !range; i++)
		ck_ok(dbfix_delete(&f, key_of(i).data));
	ck_ok(kv_wait_idle(f.db));
	ck_assert_uint_eq(stats(&f).flushes, 1);
	for (int i = 0; i < 3; i++) {
		kv_env_sim_advance(f.env, 3000000000u);
		ck_ok(kv_wait_idle(f.db));
	}
	s = stats(&f);
	ck_assert_uint_eq(s.flushes, 2);
	ck_assert_uint_lt(s.segment_bytes, live_bytes(1) / 4);
	for (uint32_t i = 0; i < 4; i++)
		expect(&f, NULL, i, 1);
	dbfix_done(&f);
}

UNIT(deletes_free_space_when_it_is_quiet)
{
	quiet(false);
}
UNIT_END

UNIT(range_deletes_do_too)
{
	quiet(true);
}
UNIT_END

/* A few deletes are not worth a flush, nor is anything when there was one a moment ago. */
UNIT(little_is_not_flushed)
{
	struct dbfix f;

	init(&f, 1);
	f.options.inline_work = false;
	dbfix_open(&f);
	for (int i = 0; i < 3; i++) {
		ck_ok(dbfix_put(&f, "a", "value", false));
		ck_ok(dbfix_delete(&f, "a"));
		ck_ok(kv_wait_idle(f.db));
		kv_env_sim_advance(f.env, 3000000000u);
		ck_ok(kv_wait_idle(f.db));
	}
	ck_assert_uint_eq(stats(&f).flushes, 0);
	for (int i = 0; i < 3; i++) {
		ck_ok(dbfix_delete_range(&f, "a", "b"));
		ck_ok(kv_wait_idle(f.db));
		kv_env_sim_advance(f.env, 3000000000u);
		ck_ok(kv_wait_idle(f.db));
		ck_ok(kv_wait_idle(f.db));
	}
	ck_assert_uint_eq(stats(&f).flushes, 1);
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("gc", overwritten_values_give_their_space_back, and_with_threads,
	  what_is_left_moves_together, little_garbage_goes_when_it_is_asked_for,
	  shared_values_stay_shared, cut_values_lose_the_rest, cut_values_are_compressed_anew, references_in_memory_keep_their_segment,
	  snapshots_and_iterators_keep_old_values, level_0_keeps_its_order,
	  a_failure_to_read_is_reported_once_and_passes,
	  without_space_nothing_is_lost_and_it_is_tried_again, every_failure_is_survived,
	  a_crash_anywhere_loses_nothing, damaged_values_are_left_alone,
	  deletes_free_space_when_it_is_quiet, range_deletes_do_too, little_is_not_flushed)
