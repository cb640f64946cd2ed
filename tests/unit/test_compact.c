#include <pthread.h>
#include <stdatomic.h>

#include "kv/compact_impl.h"
#include "kv/verify.h"
#include "tests/unit/db_fixture.h"

static const struct kv_slice none = { NULL, 0 };

/* Two at a time. */
static const char *key_of(int i)
{
	static char keys[2][16];
	static int next;
	char *key = keys[next++ % 2];

	snprintf(key, sizeof(keys[0]), "k%04d", i);
	return key;
}

/* The n-th value of a key, and keys [from, to) set to it. */
static void fill(struct dbfix *f, int from, int to, uint64_t n, size_t bytes)
{
	uint8_t value[8192];

	ck_assert_uint_le(bytes, sizeof(value));
	for (int i = from; i < to; i++) {
		dbfix_fill(value, bytes, n * 100000 + (uint64_t)i);
		ck_ok(dbfix_put_bytes(f, key_of(i), value, bytes, false));
	}
}

static void expect(struct dbfix *f, const struct kv_snapshot *snap, int from, int to, uint64_t n,
		   size_t bytes)
{
	uint8_t value[8192];

	for (int i = from; i < to; i++) {
		dbfix_fill(value, bytes, n * 100000 + (uint64_t)i);
		dbfix_expect_bytes(f, snap, key_of(i), value, bytes);
	}
}

static void expect_none(struct dbfix *f, int from, int to)
{
	for (int i = from; i < to; i++)
		dbfix_expect(f, key_of(i), NULL);
}

static struct kv_stats stats(struct dbfix *f)
{
	struct kv_stats s;

	kv_stats(f->db, &s);
	return s;
}

static uint64_t tables(struct dbfix *f)
{
	struct kv_stats s = stats(f);
	uint64_t n = 0;

	for (int i = 0; i < KV_LEVELS; i++)
		n += s.table_count[i];
	return n;
}

static void compact(struct dbfix *f)
{
	ck_ok(kv_compact(f->db, none, none));
	ck_ok(kv_wait_idle(f->db));
}

static int count_file(void *arg, const char *name)
{
	size_t bytes = strlen(name);
	uint64_t *n = arg;

	if (bytes > 4 && !strcmp(name + bytes - 4, ".sst"))
		++*n;
	return 0;
}

/* Files of tables in the directory. */
static uint64_t table_files(struct dbfix *f)
{
	struct kv_env_dir *dir;
	uint64_t n = 0;

	ck_ok(f->env->ops->dir_open(f->env, "store", false, &dir));
	ck_ok(f->env->ops->dir_list(dir, count_file, &n));
	f->env->ops->dir_close(dir);
	return n;
}

/* Small tables: most compactions have several parts. */
static void setup(struct dbfix *f)
{
	dbfix_init(f, 1);
	f->options.compact_threads = 4;
	dbfix_open(f);
}

/* --- what may go, and what may not ----------------------------------------------------------- */

UNIT(deleting_all_leaves_nothing)
{
	struct dbfix f;

	setup(&f);
	fill(&f, 0, 1000, 1, 200);
	compact(&f);
	ck_assert_uint_gt(tables(&f), 1);
	for (int i = 0; i < 1000; i++)
		ck_ok(dbfix_delete(&f, key_of(i)));
	compact(&f);
	ck_assert_uint_eq(tables(&f), 0);
	ck_assert_uint_eq(table_files(&f), 0);
	dbfix_done(&f);
}
UNIT_END

UNIT(overwritten_versions_go)
{
	uint64_t bytes, n;
	struct dbfix f;

	setup(&f);
	fill(&f, 0, 300, 1, 200);
	compact(&f);
	n = tables(&f);
	bytes = stats(&f).disk_bytes;
	for (uint64_t i = 2; i < 10; i++)
		fill(&f, 0, 300, i, 200);
	compact(&f);
	ck_assert_uint_le(tables(&f), n + 1);
	ck_assert_uint_lt(stats(&f).disk_bytes, bytes + bytes / 4);
	expect(&f, NULL, 0, 300, 9, 200);
	dbfix_done(&f);
}
UNIT_END

UNIT(each_snapshot_keeps_what_it_sees)
{
	struct kv_snapshot *snaps[4];
	struct dbfix f;

	setup(&f);
	for (uint64_t i = 0; i < 4; i++) {
		fill(&f, 0, 100, i, 150);
		snaps[i] = kv_snapshot_new(f.db);
	}
	ck_ok(dbfix_delete_range(&f, key_of(0), "l"));
	for (int round = 0; round < 3; round++) {
		compact(&f);
		for (uint64_t i = 0; i < 4; i++)
			expect(&f, snaps[i], 0, 100, i, 150);
		expect_none(&f, 0, 100);
	}
	for (int i = 0; i < 4; i++)
		kv_snapshot_free(f.db, snaps[i]);
	compact(&f);
	ck_assert_uint_eq(tables(&f), 0);
	dbfix_done(&f);
}
UNIT_END

/*
 * A table with entries before and after the snapshot: the tombstone hides all of them from
 * the present, but not from the snapshot. It must be read.
 */
UNIT(a_table_hidden_from_some_only_is_not_dropped)
{
	struct kv_snapshot *snap;
	struct dbfix f;

	setup(&f);
	fill(&f, 0, 60, 1, 50);
	snap = kv_snapshot_new(f.db);
	fill(&f, 60, 90, 1, 50);
	compact(&f);
	ck_ok(dbfix_delete_range(&f, key_of(0), "l"));
	compact(&f);
	compact(&f);
	expect(&f, snap, 0, 60, 1, 50);
	expect_none(&f, 0, 90);
	kv_snapshot_free(f.db, snap);
	dbfix_done(&f);
}
UNIT_END

UNIT(hidden_tables_are_dropped_unread)
{
	uint64_t read, bytes = 0;
	struct kv_stats s;
	struct dbfix f;

	setup(&f);
	fill(&f, 0, 2000, 1, 200);
	compact(&f);
	s = stats(&f);
	for (int i = 0; i < KV_LEVELS; i++)
		bytes += s.table_bytes[i];
	read = s.compact_read_bytes;
	ck_ok(dbfix_delete_range(&f, key_of(100), key_of(1900)));
	/* Nothing asks for a compaction: that a tombstone hides whole tables is reason enough. */
	ck_ok(kv_flush(f.db));
	ck_ok(kv_wait_idle(f.db));
	s = stats(&f);
	ck_assert_uint_lt(s.compact_read_bytes - read, bytes / 3);
	ck_assert_uint_lt(tables(&f), 8);
	expect(&f, NULL, 0, 100, 1, 200);
	expect_none(&f, 100, 1900);
	expect(&f, NULL, 1900, 2000, 1, 200);
	dbfix_done(&f);
}
UNIT_END

UNIT(a_delete_outlives_what_it_hides)
{
	struct dbfix f;

	setup(&f);
	fill(&f, 0, 500, 1, 200);
	compact(&f);
	/* Down to different levels, by ranges. */
	for (int i = 0; i < 500; i += 5)
		ck_ok(dbfix_delete(&f, key_of(i)));
	ck_ok(dbfix_delete_range(&f, key_of(250), key_of(300)));
	ck_ok(kv_flush(f.db));
	ck_ok(kv_compact(f.db, kv_slice_str("k0200"), kv_slice_str("k0260")));
	fill(&f, 255, 256, 2, 200);
	ck_ok(kv_flush(f.db));
	dbfix_reopen(&f);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 500; i++)
			if (i == 255)
				expect(&f, NULL, i, i + 1, 2, 200);
			else if (i % 5 == 0 || (i >= 250 && i < 300))
				expect_none(&f, i, i + 1);
			else
				expect(&f, NULL, i, i + 1, 1, 200);
		compact(&f);
	}
	dbfix_done(&f);
}
UNIT_END

static void verify(struct dbfix *f)
{
	const struct kv_verify_options o = { .env = f->env };
	uint64_t problems;

	dbfix_close(f);
	ck_ok(kv_verify("store", &o, &problems));
	ck_assert_uint_eq(problems, 0);
	dbfix_open(f);
}

/* --- parts ----------------------------------------------------------------------------------- */

/* A job that would read all tables of the level that has most of them. */
static void job_of_all(struct dbfix *f, struct kv_job *j)
{
	const struct kv_level *most;

	*j = (struct kv_job){ .db = f->db, .version = kv_version_ref(f->db->version) };
	most = &j->version->levels[1];
	for (int i = 2; i < KV_LEVELS; i++)
		if (j->version->levels[i].count > most->count)
			most = &j->version->levels[i];
	j->read = malloc(most->count * sizeof(struct kv_table *));
	ck_assert_ptr_nonnull(j->read);
	memcpy(j->read, most->tables, most->count * sizeof(struct kv_table *));
	j->read_lower = most->count;
	ck_assert_uint_gt(most->count, 8);
}

/* Which part a key is in: exactly one. */
static size_t part_of(const struct kv_job *j, const char *key)
{
	struct kv_slice k = kv_slice_str(key);
	size_t n = 0, found = 0;

	for (size_t i = 0; i < j->part_count; i++) {
		const struct kv_job_part *p = &j->parts[i];

		if ((!p->begin.data || kv_slice_cmp(p->begin, k) <= 0) &&
		    (!p->end.data || kv_slice_cmp(k, p->end) < 0)) {
			found = i;
			n++;
		}
	}
	ck_assert_uint_eq(n, 1);
	return found;
}

UNIT(parts_cover_all_keys_once_and_are_of_a_size)
{
	struct dbfix f;

	setup(&f);
	fill(&f, 0, 2000, 1, 200);
	compact(&f);
	for (size_t threads = 1; threads <= 8; threads++) {
		size_t keys[8] = { 0 };
		struct kv_job j;

		job_of_all(&f, &j);
		ck_ok(kv_job_cut(&j, threads));
		ck_assert_uint_eq(j.part_count, threads);
		ck_assert_ptr_null(j.parts[0].begin.data);
		ck_assert_ptr_null(j.parts[threads - 1].end.data);
		for (int i = 0; i < 2000; i++)
			keys[part_of(&j, key_of(i))]++;
		for (size_t i = 0; i < threads; i++) {
			ck_assert_uint_gt(keys[i], 2000 / threads / 2);
			ck_assert_uint_lt(keys[i], 2000 / threads * 2);
		}
		kv_job_done(&j);
	}
	dbfix_done(&f);
}
UNIT_END

UNIT(little_is_not_cut)
{
	struct kv_job j = { 0 };
	struct dbfix f;

	setup(&f);
	f.options.table_bytes = 16 * KV_MIB;
	dbfix_reopen(&f);
	fill(&f, 0, 200, 1, 200);
	compact(&f);
	j.db = f.db;
	j.version = kv_version_ref(f.db->version);
	j.read = malloc(sizeof(struct kv_table *));
	ck_assert_ptr_nonnull(j.read);
	for (int i = 1; i < KV_LEVELS; i++)
		if (j.version->levels[i].count)
			j.read[j.read_lower++] = j.version->levels[i].tables[0];
	ck_assert_uint_eq(j.read_lower, 1);
	ck_ok(kv_job_cut(&j, 4));
	ck_assert_uint_eq(j.part_count, 1);
	kv_job_done(&j);
	dbfix_done(&f);
}
UNIT_END

/* Range tombstones that begin, end and go on where parts are cut, under a snapshot that needs them. */
UNIT(parts_make_what_one_makes)
{
	struct kv_snapshot *snap;
	struct dbfix f;

	setup(&f);
	fill(&f, 0, 1500, 1, 200);
	compact(&f);
	ck_ok(dbfix_delete_range(&f, key_of(100), key_of(1400)));
	snap = kv_snapshot_new(f.db);
	fill(&f, 300, 600, 2, 150);
	ck_ok(dbfix_delete_range(&f, key_of(550), key_of(800)));
	fill(&f, 700, 710, 3, 100);
	for (uint32_t threads = 1; threads <= 5; threads += 2) {
		kv_snapshot_free(f.db, snap);
		f.options.compact_threads = threads;
		dbfix_reopen(&f);
		snap = kv_snapshot_new(f.db);
		compact(&f);
		expect(&f, NULL, 0, 100, 1, 200);
		expect_none(&f, 100, 300);
		expect(&f, NULL, 300, 550, 2, 150);
		expect_none(&f, 550, 700);
		expect(&f, NULL, 700, 710, 3, 100);
		expect_none(&f, 710, 1400);
		expect(&f, NULL, 1400, 1500, 1, 200);
		expect(&f, snap, 300, 550, 2, 150);
		fill(&f, 0, 100, 1, 200);
	}
	kv_snapshot_free(f.db, snap);
	verify(&f);
	dbfix_done(&f);
}
UNIT_END

/* Whichever part it hits, nothing is left over, and nothing is lost. */
UNIT(a_part_that_fails_fails_all)
{
	struct dbfix f;
	uint64_t n, hits = 0;
	int err = -EIO;

	setup(&f);
	fill(&f, 0, 1000, 1, 200);
	compact(&f);
	n = table_files(&f);
	for (uint64_t after = 0; err; after++) {
		const struct kv_sim_fault fault = { .ops = KV_SIM_CREATE, .suffix = ".sst",
						    .err = -ENOSPC, .after = after };

		kv_env_sim_fail(f.env, &fault);
		err = kv_compact(f.db, none, none);
		if (!err)
			break;
		hits++;
		ck_assert_int_eq(err, KV_E_no_space);
		ck_assert_uint_eq(table_files(&f), n);
		expect(&f, NULL, 0, 1000, 1, 200);
	}
	ck_assert_uint_gt(hits, 8);
	verify(&f);
	expect(&f, NULL, 0, 1000, 1, 200);
	dbfix_done(&f);
}
UNIT_END

#define BESIDE_KEYS 400
#define BESIDE_ROUNDS 12

struct beside {
	struct dbfix *f;
	_Atomic bool stop;
	uint64_t scans;
};

/* All keys are of one generation, whenever one looks: each was written by one batch. */
static void *scan_beside(void *arg)
{
	struct beside *b = arg;

	while (!atomic_load(&b->stop) || !b->scans) {
		struct kv_snapshot *snap = kv_snapshot_new(b->f->db);
		KV_AUTO(kv_buf_done) struct kv_buf first = KV_BUF_INIT;

		ck_assert_ptr_nonnull(snap);
		ck_ok(kv_get(b->f->db, snap, kv_slice_str("k0000"), &first));
		for (int i = 1; i < BESIDE_KEYS; i++) {
			KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
			char key[16];

			snprintf(key, sizeof(key), "k%04d", i);
			ck_ok(kv_get(b->f->db, snap, kv_slice_str(key), &got));
			ck_assert(kv_slice_eq(kv_buf_slice(&got), kv_buf_slice(&first)));
		}
		kv_snapshot_free(b->f->db, snap);
		b->scans++;
	}
	return NULL;
}

static void write_generation(struct dbfix *f, uint64_t n)
{
	struct kv_batch *b = kv_batch_new();
	uint8_t value[300];

	ck_assert_ptr_nonnull(b);
	dbfix_fill(value, sizeof(value), n);
	if (n % 3 == 0)
		kv_batch_delete_range(b, kv_slice_str("k"), kv_slice_str("l"));
	for (int i = 0; i < BESIDE_KEYS; i++)
		kv_batch_put(b, kv_slice_str(key_of(i)), kv_slice(value, sizeof(value)),
			     KV_HINT_NONE);
	ck_ok(kv_write(f->db, b, false));
	kv_batch_free(b);
}

UNIT(parts_are_merged_beside_readers_and_writers)
{
	struct beside b = { .stop = false };
	pthread_t thread;
	struct dbfix f;

	dbfix_init(&f, 1);
	f.options.inline_work = false;
	f.options.compact_threads = 4;
	dbfix_open(&f);
	write_generation(&f, 0);
	b.f = &f;
	ck_ok(pthread_create(&thread, NULL, scan_beside, &b));
	for (uint64_t n = 1; n <= BESIDE_ROUNDS; n++) {
		write_generation(&f, n);
		if (n % 4 == 0)
			ck_ok(kv_compact(f.db, none, none));
	}
	atomic_store(&b.stop, true);
	ck_ok(pthread_join(thread, NULL));
	ck_assert_uint_gt(stats(&f).compactions, 2);
	ck_ok(kv_wait_idle(f.db));
	verify(&f);
	dbfix_done(&f);
}
UNIT_END

/* --- when something is wrong ------------------------------------------------------------------ */

UNIT(no_space_changes_nothing)
{
	uint64_t n;
	struct dbfix f;

	setup(&f);
	fill(&f, 0, 600, 1, 200);
	compact(&f);
	n = table_files(&f);
	kv_env_sim_set_capacity(f.env, kv_env_sim_used(f.env));
	ck_assert_int_eq(kv_compact(f.db, none, none), KV_E_no_space);
	ck_assert_uint_eq(table_files(&f), n);
	expect(&f, NULL, 0, 600, 1, 200);
	kv_env_sim_set_capacity(f.env, UINT64_MAX);
	compact(&f);
	expect(&f, NULL, 0, 600, 1, 200);
	dbfix_done(&f);
}
UNIT_END

/*
 * Syncing the manifest fails, so nobody knows whether the edit counts. Here it does: it is
 * in the file. The tables that it names must be there.
 */
UNIT(outputs_stay_when_the_edit_may_count)
{
	const struct kv_sim_fault fault = { .ops = KV_SIM_SYNC, .suffix = ".manifest",
					    .err = -EIO };
	struct kv_env *killed;
	struct dbfix f, g;
	uint64_t n;

	setup(&f);
	fill(&f, 0, 300, 1, 200);
	compact(&f);
	/* Written anew in place: a table that is only moved has no outputs. */
	kv_env_sim_fail(f.env, &fault);
	n = table_files(&f);
	ck_assert_int_eq(kv_compact(f.db, none, none), KV_E_poisoned);
	ck_assert_uint_gt(table_files(&f), n);
	ck_assert_uint_gt(kv_env_sim_faults_hit(f.env), 0);
	killed = kv_env_sim_clone(f.env);
	g = f;
	g.env = g.options.env = killed;
	g.db = NULL;
	dbfix_open(&g);
	expect(&g, NULL, 0, 300, 1, 200);
	dbfix_done(&g);
	ck_assert_int_ne(kv_close(f.db), 0);
	f.db = NULL;
	dbfix_done(&f);
}
UNIT_END

struct last_table {
	char name[64];
};

static int note_table(void *arg, const char *name)
{
	struct last_table *t = arg;
	size_t bytes = strlen(name);

	if (bytes > 4 && !strcmp(name + bytes - 4, ".sst"))
		snprintf(t->name, sizeof(t->name), "%s", name);
	return 0;
}

UNIT(damage_is_not_compacted_away)
{
	struct last_table t = { "" };
	struct kv_env_dir *dir;
	struct dbfix f;
	uint64_t n;
	int err;

	setup(&f);
	fill(&f, 0, 300, 1, 200);
	compact(&f);
	dbfix_close(&f);
	ck_ok(f.env->ops->dir_open(f.env, "store", false, &dir));
	ck_ok(f.env->ops->dir_list(dir, note_table, &t));
	f.env->ops->dir_close(dir);
	ck_ok(kv_env_sim_flip(f.env, "store", t.name, 200, 0x10));
	dbfix_open(&f);
	n = table_files(&f);
	err = kv_compact(f.db, none, none);
	ck_assert(kv_err_is(err, KV_E_corrupt));
	ck_assert_uint_eq(table_files(&f), n);
	ck_assert_uint_gt(f.errors, 0);
	dbfix_done(&f);
}
UNIT_END

/* --- segments ------------------------------------------------------------------------------------ */

static void setup_segments(struct dbfix *f)
{
	dbfix_init(f, 1);
	f->options.segment_bytes = 16 * KV_KIB;	/* many, and full before the memtable is */
	dbfix_open(f);
}

UNIT(a_segment_stays_while_a_memtable_needs_it)
{
	struct dbfix f;

	setup_segments(&f);
	fill(&f, 0, 20, 1, 4096);
	ck_ok(kv_wait_idle(f.db));
	ck_assert_uint_ge(stats(&f).segment_count, 5);
	ck_assert_uint_eq(tables(&f), 0);
	ck_assert_uint_eq(stats(&f).segments_dropped, 0);
	expect(&f, NULL, 0, 20, 1, 4096);
	compact(&f);
	expect(&f, NULL, 0, 20, 1, 4096);
	dbfix_done(&f);
}
UNIT_END

UNIT(segments_go_when_nothing_refers_to_them)
{
	struct dbfix f;
	uint64_t n;

	setup_segments(&f);
	fill(&f, 0, 40, 1, 4096);
	compact(&f);
	n = stats(&f).segment_count;
	ck_assert_uint_ge(n, 10);
	fill(&f, 0, 40, 2, 4096);
	compact(&f);
	ck_assert_uint_ge(stats(&f).segments_dropped, n - 1);
	ck_assert_uint_le(stats(&f).segment_count, n + 2);
	expect(&f, NULL, 0, 40, 2, 4096);
	dbfix_reopen(&f);
	expect(&f, NULL, 0, 40, 2, 4096);
	dbfix_done(&f);
}
UNIT_END

UNIT(a_part_keeps_its_segment)
{
	uint8_t value[4096];
	struct dbfix f;

	setup_segments(&f);
	fill(&f, 0, 40, 1, 4096);
	compact(&f);
	for (int round = 0; round < 2; round++) {
		ck_ok(dbfix_put_part(&f, "part", round ? "part" : key_of(20), 0, 4096));
		ck_ok(dbfix_delete_range(&f, key_of(0), "l"));
		ck_ok(kv_wait_idle(f.db));
		dbfix_fill(value, sizeof(value), 100020);
		dbfix_expect_bytes(&f, NULL, "part", value, sizeof(value));
		compact(&f);
		dbfix_expect_bytes(&f, NULL, "part", value, sizeof(value));
	}
	ck_assert_uint_gt(stats(&f).segments_dropped, 5);
	ck_assert_uint_le(stats(&f).segment_count, 3);
	dbfix_done(&f);
}
UNIT_END

UNIT(a_reader_keeps_a_dropped_segment)
{
	struct kv_slice value;
	struct kv_iter *it;
	uint8_t want[4096];
	struct dbfix f;
	int i = 0;

	setup_segments(&f);
	fill(&f, 0, 40, 1, sizeof(want));
	ck_ok(kv_flush(f.db));
	ck_ok(kv_iter_new(f.db, NULL, &it));
	ck_ok(dbfix_delete_range(&f, key_of(0), "l"));
	compact(&f);
	ck_assert_uint_gt(stats(&f).segments_dropped, 5);
	for (kv_iter_seek_first(it); kv_iter_valid(it); kv_iter_next(it), i++) {
		ck_ok(kv_iter_value(it, &value));
		dbfix_fill(want, sizeof(want), 100000 + (uint64_t)i);
		ck_assert(kv_slice_eq(value, kv_slice(want, sizeof(want))));
	}
	ck_ok(kv_iter_error(it));
	ck_assert_int_eq(i, 40);
	kv_iter_free(it);
	dbfix_done(&f);
}
UNIT_END

UNIT(read_only_refuses)
{
	struct dbfix f;

	setup(&f);
	dbfix_close(&f);
	f.options.read_only = true;
	f.options.create = false;
	dbfix_open(&f);
	ck_assert_int_eq(kv_compact(f.db, none, none), KV_E_read_only);
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("compact", deleting_all_leaves_nothing, overwritten_versions_go,
	  each_snapshot_keeps_what_it_sees, a_table_hidden_from_some_only_is_not_dropped,
	  hidden_tables_are_dropped_unread, a_delete_outlives_what_it_hides,
	  parts_cover_all_keys_once_and_are_of_a_size, little_is_not_cut, parts_make_what_one_makes,
	  a_part_that_fails_fails_all, parts_are_merged_beside_readers_and_writers,
	  no_space_changes_nothing,
	  outputs_stay_when_the_edit_may_count, damage_is_not_compacted_away,
	  a_segment_stays_while_a_memtable_needs_it, segments_go_when_nothing_refers_to_them,
	  a_part_keeps_its_segment, a_reader_keeps_a_dropped_segment, read_only_refuses)
