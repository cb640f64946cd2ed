#include <pthread.h>
#include <stdatomic.h>

#include "kv/env.h"
#include "kv/filename.h"
#include "kv/verify.h"
#include "tests/unit/db_fixture.h"

static struct dbfix f;

static void problem(void *arg, const char *file, const char *text)
{
	(void)arg;
	fprintf(stderr, "verify: %s: %s\n", file ? file : "-", text);
}

static void verify(void)
{
	struct kv_verify_options o = { .env = f.env, .problem = problem };
	uint64_t problems = 0;

	ck_ok(kv_verify("store", &o, &problems));
	ck_assert_uint_eq(problems, 0);
}

static void setup(void)
{
	dbfix_init(&f, dbfix_seed(1));
	dbfix_open(&f);
}

/* Closes, and sees whether the store is whole. */
static void teardown(void)
{
	dbfix_close(&f);
	verify();
	dbfix_done(&f);
}

/* Small ones, medium ones and large ones. */
static size_t value_bytes(uint64_t n)
{
	return n % 7 == 0 ? 3000 + n % 2000 : n % 3 == 0 ? 300 + n % 100 : n % 40;
}

static void key_of(char *to, size_t bytes, uint64_t n)
{
	snprintf(to, bytes, "k%06" PRIu64, n);
}

static int try_put(struct kv_ingest *in, uint64_t n, uint64_t salt)
{
	uint8_t value[8192];
	char key[16];

	key_of(key, sizeof(key), n);
	dbfix_fill(value, value_bytes(n), n + salt);
	return kv_ingest_put(in, kv_slice_str(key), kv_slice(value, value_bytes(n)),
			     KV_HINT_NONE);
}

static struct kv_ingest *ingest_of(uint64_t begin, uint64_t end, uint64_t step, uint64_t salt)
{
	struct kv_ingest *in;

	ck_ok(kv_ingest_new(f.db, &in));
	for (uint64_t n = begin; n < end; n += step)
		ck_ok(try_put(in, n, salt));
	return in;
}

static void ingest(uint64_t begin, uint64_t end, uint64_t step, uint64_t salt)
{
	struct kv_ingest *in = ingest_of(begin, end, step, salt);

	ck_ok(kv_ingest_commit(in));
	kv_ingest_free(in);
}

static void expect(const struct kv_snapshot *s, uint64_t n, uint64_t salt)
{
	uint8_t value[8192];
	char key[16];

	key_of(key, sizeof(key), n);
	dbfix_fill(value, value_bytes(n), n + salt);
	dbfix_expect_bytes(&f, s, key, value, value_bytes(n));
}

static void expect_none(const struct kv_snapshot *s, uint64_t n)
{
	char key[16];

	key_of(key, sizeof(key), n);
	dbfix_expect_bytes(&f, s, key, NULL, 0);
}

static void put(uint64_t n, uint64_t salt)
{
	uint8_t value[8192];
	char key[16];

	key_of(key, sizeof(key), n);
	dbfix_fill(value, value_bytes(n), n + salt);
	ck_ok(dbfix_put_bytes(&f, key, value, value_bytes(n), false));
}

static struct kv_stats stats(void)
{
	struct kv_stats s;

	kv_stats(f.db, &s);
	return s;
}

UNIT(all_is_there_and_on_the_deepest_level)
{
	struct kv_iter *it;
	uint64_t n = 0;

	setup();
	ingest(0, 2000, 1, 5);
	ck_assert_uint_eq(stats().table_count[KV_LEVELS - 1], stats().table_count[6]);
	ck_assert_uint_gt(stats().table_count[KV_LEVELS - 1], 3);
	for (int i = 0; i < KV_LEVELS - 1; i++)
		ck_assert_uint_eq(stats().table_count[i], 0);
	ck_assert_uint_eq(stats().journal_bytes, 0);
	ck_assert_uint_gt(stats().segment_count, 2);
	for (int twice = 0; twice < 2; twice++) {
		for (uint64_t i = 0; i < 2000; i += 13)
			expect(NULL, i, 5);
		dbfix_reopen(&f);
	}
	ck_ok(kv_iter_new(f.db, NULL, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it); kv_iter_next(it))
		n++;
	ck_ok(kv_iter_error(it));
	kv_iter_free(it);
	ck_assert_uint_eq(n, 2000);
	teardown();
}
UNIT_END

UNIT(nothing_is_there_without_a_commit)
{
	struct kv_ingest *in;

	setup();
	put(3, 1);
	in = ingest_of(0, 1000, 1, 5);
	expect(NULL, 3, 1);
	expect_none(NULL, 4);
	ck_assert_int_eq(kv_ingest_new(f.db, &in), -EBUSY);
	kv_ingest_free(in);
	expect(NULL, 3, 1);
	expect_none(NULL, 4);
	ck_ok(kv_wait_idle(f.db));
	ck_assert_uint_eq(stats().segment_bytes, 0);
	/* And the next one may begin. */
	ingest(0, 10, 1, 6);
	expect(NULL, 3, 6);
	teardown();
}
UNIT_END

UNIT(an_empty_one_changes_nothing)
{
	struct kv_ingest *in;
	uint64_t seqno;

	setup();
	put(3, 1);
	seqno = stats().seqno;
	ck_ok(kv_ingest_new(f.db, &in));
	ck_ok(kv_ingest_commit(in));
	ck_assert_int_eq(kv_ingest_commit(in), -EINVAL);
	kv_ingest_free(in);
	ck_assert_uint_eq(stats().seqno, seqno);
	teardown();
}
UNIT_END

UNIT(keys_must_ascend)
{
	static const uint8_t big[KV_KEY_BYTES_MAX + 1];
	struct kv_slice v = kv_slice_str("v");
	struct kv_ingest *in;

	setup();
	ck_ok(kv_ingest_new(f.db, &in));
	ck_assert_int_eq(kv_ingest_put(in, kv_slice("", 0), v, KV_HINT_NONE), -EINVAL);
	ck_ok(kv_ingest_put(in, kv_slice_str("b"), v, KV_HINT_NONE));
	ck_assert_int_eq(kv_ingest_put(in, kv_slice_str("b"), v, KV_HINT_NONE), -EINVAL);
	ck_assert_int_eq(kv_ingest_put(in, kv_slice_str("a"), v, KV_HINT_NONE), -EINVAL);
	ck_assert_int_eq(kv_ingest_put(in, kv_slice(big, sizeof(big)), v, KV_HINT_NONE),
			 KV_E_too_big);
	ck_ok(kv_ingest_put(in, kv_slice_str("bb"), v, KV_HINT_NONE));
	ck_ok(kv_ingest_commit(in));
	ck_assert_int_eq(kv_ingest_put(in, kv_slice_str("c"), v, KV_HINT_NONE), -EINVAL);
	kv_ingest_free(in);
	dbfix_expect(&f, "b", "v");
	dbfix_expect(&f, "bb", "v");
	dbfix_expect(&f, "a", NULL);
	dbfix_expect(&f, "c", NULL);
	teardown();
}
UNIT_END

UNIT(it_is_newer_than_all_before_the_commit_and_older_than_all_after)
{
	struct kv_snapshot *before, *during, *after;
	struct kv_ingest *in;

	setup();
	for (uint64_t n = 0; n < 400; n++)
		put(n, 1);
	before = kv_snapshot_new(f.db);
	in = ingest_of(0, 300, 2, 5);
	for (uint64_t n = 0; n < 100; n++)	/* newer than the writing of it, not than the commit */
		put(n, 2);
	ck_ok(dbfix_delete_range(&f, "k000100", "k000200"));
	during = kv_snapshot_new(f.db);
	ck_ok(kv_ingest_commit(in));
	kv_ingest_free(in);
	after = kv_snapshot_new(f.db);
	for (uint64_t n = 0; n < 20; n++)
		put(n, 3);
	for (int pass = 0; pass < 2; pass++) {
		for (uint64_t n = 0; n < 400; n++) {
			expect(before, n, 1);
			if (n >= 100 && n < 200)
				expect_none(during, n);
			else
				expect(during, n, n < 100 ? 2 : 1);
			if (n % 2 == 0 && n < 300)
				expect(after, n, 5);
			else if (n >= 100 && n < 200)
				expect_none(after, n);
			else
				expect(after, n, n < 100 ? 2 : 1);
			if (n < 20)
				expect(NULL, n, 3);
		}
		ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	}
	kv_snapshot_free(f.db, before);
	kv_snapshot_free(f.db, during);
	kv_snapshot_free(f.db, after);
	dbfix_reopen(&f);
	expect(NULL, 10, 3);
	expect(NULL, 20, 5);
	expect(NULL, 21, 2);
	expect_none(NULL, 101);
	expect(NULL, 102, 5);
	teardown();
}
UNIT_END

/* The journal that was empty at the commit goes on, and is replayed. */
UNIT(a_crash_behind_the_commit_loses_nothing)
{
	setup();
	put(1, 1);
	ingest(0, 100, 1, 5);
	put(2, 7);
	ck_ok(kv_sync(f.db));
	dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
	verify();
	dbfix_open(&f);
	expect(NULL, 1, 5);
	expect(NULL, 2, 7);
	put(3, 8);
	ingest(50, 60, 1, 6);
	dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
	verify();
	dbfix_open(&f);
	expect(NULL, 3, 8);
	expect(NULL, 55, 6);
	expect(NULL, 99, 5);
	teardown();
}
UNIT_END

UNIT(iterators_and_counters_see_one_or_the_other)
{
	le64 hundred = kv_le64(100);
	struct kv_ingest *in;
	struct kv_iter *it;

	setup();
	ck_ok(dbfix_add(&f, "count", 7));
	ck_ok(kv_ingest_new(f.db, &in));
	ck_ok(kv_ingest_put(in, kv_slice_str("count"), kv_slice(&hundred, sizeof(hundred)),
			    KV_HINT_NONE));
	ck_ok(dbfix_add(&f, "count", 1));
	ck_ok(kv_iter_new(f.db, NULL, &it));
	ck_ok(kv_ingest_commit(in));
	kv_ingest_free(in);
	kv_iter_seek_first(it);
	ck_assert(kv_iter_valid(it));
	{
		struct kv_slice v;
		le64 n;

		ck_ok(kv_iter_value(it, &v));
		memcpy(&n, v.data, sizeof(n));
		ck_assert_uint_eq(kv_le64_get(n), 8);
	}
	kv_iter_free(it);
	ck_assert_int_eq(dbfix_counter(&f, "count"), 100);
	ck_ok(dbfix_add(&f, "count", 1));
	ck_assert_int_eq(dbfix_counter(&f, "count"), 101);
	teardown();
}
UNIT_END

UNIT(transactions_notice_it)
{
	struct kv_txn *meets, *other;
	struct kv_buf got = KV_BUF_INIT;

	setup();
	put(1, 1);
	put(500, 1);
	ck_ok(kv_txn_begin(f.db, &meets));
	ck_ok(kv_txn_begin(f.db, &other));
	ck_ok(kv_txn_get(meets, kv_slice_str("k000001"), &got));
	ck_ok(kv_txn_get(other, kv_slice_str("k000500"), &got));
	kv_txn_put(meets, kv_slice_str("x"), kv_slice_str("y"), KV_HINT_NONE);
	kv_txn_put(other, kv_slice_str("x"), kv_slice_str("z"), KV_HINT_NONE);
	ingest(0, 100, 1, 5);
	ck_assert_int_eq(kv_txn_commit(meets, false), KV_E_conflict);
	ck_ok(kv_txn_commit(other, false));
	kv_txn_free(meets);
	kv_txn_free(other);
	kv_buf_done(&got);
	dbfix_expect(&f, "x", "z");
	teardown();
}
UNIT_END

/* Named snapshots and checkpoints, made while a run is written, have nothing of it. */
UNIT(names_and_checkpoints_have_all_or_nothing)
{
	struct kv_snapshot *named;
	struct kv_ingest *in;

	setup();
	for (uint64_t n = 0; n < 100; n++)
		put(n, 1);
	in = ingest_of(0, 200, 2, 5);
	ck_ok(kv_snapshot_create(f.db, "during"));
	ck_ok(kv_checkpoint(f.db, "before"));
	ck_ok(kv_ingest_commit(in));
	kv_ingest_free(in);
	ck_ok(kv_checkpoint(f.db, "after"));
	put(2, 7);
	ck_ok(kv_sync(f.db));
	dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
	dbfix_open(&f);
	ck_ok(kv_snapshot_open(f.db, "during", &named));
	for (uint64_t n = 0; n < 100; n++)
		expect(named, n, 1);
	expect_none(named, 102);
	expect(NULL, 2, 7);
	expect(NULL, 4, 5);
	kv_snapshot_free(f.db, named);
	dbfix_close(&f);
	ck_ok(kv_open("before", &f.options, &f.db));
	expect(NULL, 4, 1);
	expect_none(NULL, 102);
	dbfix_close(&f);
	ck_ok(kv_open("after", &f.options, &f.db));
	expect(NULL, 4, 5);
	expect(NULL, 2, 5);
	expect(NULL, 3, 1);
	expect(NULL, 102, 5);
	teardown();
}
UNIT_END

/* Runs that lie side by side, in any order, all come to the deepest level. */
UNIT(runs_side_by_side_do_not_pile_up)
{
	setup();
	for (uint64_t i = 0; i < 10; i++)
		ingest(i * 7 % 10 * 100, i * 7 % 10 * 100 + 100, 1, 5);
	ck_assert_uint_eq(stats().table_count[0], 0);
	ck_assert_uint_eq(stats().ingests, 10);
	for (uint64_t n = 0; n < 1000; n++)
		expect(NULL, n, 5);
	teardown();
}
UNIT_END

/* Runs that overlap have to be compacted; the newest wins. */
UNIT(runs_that_overlap_pile_up_and_are_compacted)
{
	setup();
	for (uint64_t i = 0; i < 12; i++)
		ingest(i, 600, i + 1, i);
	ck_ok(kv_wait_idle(f.db));
	for (uint64_t n = 0; n < 600; n++)
		for (uint64_t i = 12; i-- > 0;)
			if (n >= i && (n - i) % (i + 1) == 0) {
				expect(NULL, n, i);
				break;
			}
	teardown();
}
UNIT_END

UNIT(hints_and_no_compression)
{
	uint8_t zeros[5000] = { 0 };
	struct kv_ingest *in;
	uint64_t bytes[2];

	setup();
	for (int i = 0; i < 2; i++) {
		ck_ok(kv_ingest_new(f.db, &in));
		ck_ok(kv_ingest_put(in, kv_slice_str(i ? "b" : "a"), kv_slice(zeros, sizeof(zeros)),
				    i ? KV_HINT_INCOMPRESSIBLE : KV_HINT_NONE));
		ck_ok(kv_ingest_commit(in));
		kv_ingest_free(in);
		bytes[i] = stats().vlog_bytes;
	}
	ck_assert_uint_lt(bytes[0], 1000);
	ck_assert_uint_gt(bytes[1] - bytes[0], sizeof(zeros));
	dbfix_expect_bytes(&f, NULL, "a", zeros, sizeof(zeros));
	dbfix_expect_bytes(&f, NULL, "b", zeros, sizeof(zeros));
	teardown();
}
UNIT_END

UNIT(read_only_and_poisoned)
{
	struct kv_ingest *in, *after;

	setup();
	in = ingest_of(0, 10, 1, 5);
	kv_env_sim_fail(f.env, &(struct kv_sim_fault){ .ops = KV_SIM_SYNC, .suffix = ".manifest",
						       .err = -EIO });
	ck_assert_int_eq(kv_ingest_commit(in), KV_E_poisoned);
	ck_assert_int_eq(try_put(in, 20, 5), KV_E_poisoned);
	kv_ingest_free(in);
	ck_assert_int_eq(kv_ingest_new(f.db, &after), KV_E_poisoned);
	ck_assert_int_ne(kv_close(f.db), 0);
	kv_env_sim_heal(f.env);
	f.options.create = false;
	f.options.read_only = true;
	dbfix_open(&f);
	ck_assert_int_eq(kv_ingest_new(f.db, &in), KV_E_read_only);
	teardown();
}
UNIT_END

/* Where writing fails, nothing has happened, and the store goes on. */
static void fails_at(enum kv_sim_op op, const char *suffix, uint64_t after, int err)
{
	struct kv_ingest *in;
	int got = 0;

	setup();
	put(1, 1);
	ck_ok(kv_ingest_new(f.db, &in));
	kv_env_sim_fail(f.env, &(struct kv_sim_fault){ .ops = op, .suffix = suffix, .err = err,
						       .after = after });
	for (uint64_t n = 0; n < 600 && !got; n++)
		got = try_put(in, n, 5);
	if (!got)
		got = kv_ingest_commit(in);
	ck_assert_msg(got, "%d %s %d", (int)op, suffix, (int)after);
	ck_assert_int_eq(kv_ingest_commit(in), got);
	kv_ingest_free(in);
	ck_assert_uint_eq(kv_env_sim_faults_hit(f.env), 1);
	ck_assert_int_eq(got, err == -ENOSPC ? KV_E_no_space : err);
	expect(NULL, 1, 1);
	expect_none(NULL, 2);
	put(2, 2);
	ingest(0, 600, 1, 6);
	expect(NULL, 2, 6);
	teardown();
}

UNIT(no_space_for_a_table)
{
	fails_at(KV_SIM_CREATE, ".sst", 0, -ENOSPC);
	fails_at(KV_SIM_CREATE, ".sst", 2, -ENOSPC);
	fails_at(KV_SIM_WRITE, ".sst", 3, -ENOSPC);
	fails_at(KV_SIM_WRITE, ".sst", 3, -EIO);
	fails_at(KV_SIM_SYNC, ".sst", 1, -ENOSPC);
}
UNIT_END

UNIT(no_space_for_values)
{
	fails_at(KV_SIM_CREATE, ".vlog", 0, -ENOSPC);
	fails_at(KV_SIM_CREATE, ".vlog", 1, -ENOSPC);
	fails_at(KV_SIM_ALLOCATE, ".vlog", 0, -ENOSPC);
}
UNIT_END

UNIT(what_is_kept_back_is_not_taken)
{
	struct kv_ingest *in;
	uint64_t all, left;
	int err = 0;

	setup();
	kv_env_sim_set_capacity(f.env, 4 * KV_MIB);
	/* Steps of this size would not fit into what is kept back here. */
	in = ingest_of(0, 1, 1, 5);
	for (uint64_t n = 1; n < 100000 && !err; n++)
		err = try_put(in, n, 5);
	ck_assert_int_eq(err, KV_E_no_space);
	ck_assert_int_eq(kv_ingest_commit(in), KV_E_no_space);
	ck_ok(kv_space(f.db, &all, &left));
	kv_ingest_free(in);
	ck_ok(kv_wait_idle(f.db));
	kv_env_sim_set_capacity(f.env, UINT64_MAX);
	expect_none(NULL, 0);
	teardown();
}
UNIT_END

/* --- beside others --------------------------------------------------------------------------- */

static _Atomic bool stop;

static void *overwrite(void *arg)
{
	uint64_t n = 0;

	(void)arg;
	for (; !stop; n++)
		put(10000 + n % 500, n / 500);
	return NULL;
}

/* In every state, the keys of a run are all of it or all of the one before. */
static void *look(void *arg)
{
	(void)arg;
	while (!stop) {
		struct kv_snapshot *s = kv_snapshot_new(f.db);
		KV_AUTO(kv_buf_done) struct kv_buf first = KV_BUF_INIT;
		KV_AUTO(kv_buf_done) struct kv_buf last = KV_BUF_INIT;

		ck_assert_ptr_nonnull(s);
		ck_ok(kv_get(f.db, s, kv_slice_str("a"), &first));
		ck_ok(kv_get(f.db, s, kv_slice_str("z"), &last));
		ck_assert(kv_slice_eq(kv_buf_slice(&first), kv_buf_slice(&last)));
		kv_snapshot_free(f.db, s);
	}
	return NULL;
}

static void ingest_round(uint64_t round)
{
	struct kv_ingest *in;
	char value[32];

	snprintf(value, sizeof(value), "%" PRIu64, round);
	ck_ok(kv_ingest_new(f.db, &in));
	ck_ok(kv_ingest_put(in, kv_slice_str("a"), kv_slice_str(value), KV_HINT_NONE));
	for (uint64_t n = round % 10 * 100; n < round % 10 * 100 + 100; n++)
		ck_ok(try_put(in, n, round));
	ck_ok(kv_ingest_put(in, kv_slice_str("z"), kv_slice_str(value), KV_HINT_NONE));
	ck_ok(kv_ingest_commit(in));
	kv_ingest_free(in);
}

UNIT(beside_writers_readers_and_compactions)
{
	pthread_t threads[3];

	dbfix_init(&f, dbfix_seed(1));
	f.options.inline_work = false;
	f.options.no_event_log = false;
	dbfix_open(&f);
	ingest_round(0);
	stop = false;
	ck_ok(pthread_create(&threads[0], NULL, overwrite, NULL));
	ck_ok(pthread_create(&threads[1], NULL, look, NULL));
	ck_ok(pthread_create(&threads[2], NULL, look, NULL));
	for (uint64_t round = 1; round < 40; round++) {
		ingest_round(round);
		if (round % 10 == 5)
			ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	}
	stop = true;
	for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
		ck_ok(pthread_join(threads[i], NULL));
	for (uint64_t n = 0; n < 1000; n++)
		expect(NULL, n, 30 + n / 100);
	dbfix_expect(&f, "a", "39");
	teardown();
}
UNIT_END

/* --- crashes --------------------------------------------------------------------------------- */

struct crash {
	uint64_t point;
	bool begun, done;
};

static int count_file(void *arg, const char *name)
{
	uint64_t *counts = arg;
	enum kv_file_kind kind;
	kv_fileno number;

	if (kv_filename_parse(name, &kind, &number)) {
		counts[0] += kind == KV_FILE_TABLE;
		counts[1] += kind == KV_FILE_SEGMENT;
	}
	return 0;
}

/* What was written of a run that is not there has gone. */
static void check_no_orphans(void)
{
	uint64_t counts[2] = { 0 }, tables = 0;
	struct kv_stats s = stats();
	struct kv_env_dir *dir;

	ck_ok(f.env->ops->dir_open(f.env, "store", false, &dir));
	ck_ok(f.env->ops->dir_list(dir, count_file, counts));
	f.env->ops->dir_close(dir);
	for (int i = 0; i < KV_LEVELS; i++)
		tables += s.table_count[i];
	ck_assert_uint_eq(counts[0], tables);
	ck_assert_uint_eq(counts[1], s.segment_count);
}

/* All of it or nothing; and all, once that was promised. */
static void look_at_crash(struct kv_env *env, const struct crash *c, enum kv_sim_crash how)
{
	struct kv_env *image = kv_env_sim_clone(env);
	struct dbfix real = f;
	bool there;

	kv_env_sim_crash(image, how, c->point);
	f.env = f.options.env = image;
	f.db = NULL;
	verify();
	dbfix_open(&f);
	there = kv_exists(f.db, NULL, kv_slice_str("k000299")) == 0;
	ck_assert(there ? c->begun : !c->done);
	for (uint64_t n = 0; n < 300; n += 7)
		if (there)
			expect(NULL, n, 5);
		else if (n < 50)
			expect(NULL, n, 1);
		else
			expect_none(NULL, n);
	put(1000, 1);
	ck_ok(kv_wait_idle(f.db));
	check_no_orphans();
	dbfix_reopen(&f);
	expect(NULL, 1000, 1);
	ck_ok(kv_close(f.db));
	verify();
	kv_env_sim_free(image);
	f = real;
}

static void before_change(void *arg, struct kv_env *env, enum kv_sim_op op, const char *name)
{
	struct crash *c = arg;

	(void)op;
	(void)name;
	kv_env_sim_hook(env, NULL, NULL);
	look_at_crash(env, c, KV_SIM_DROP_ALL);
	look_at_crash(env, c, KV_SIM_KEEP_ALL);
	look_at_crash(env, c, KV_SIM_RANDOM);
	c->point++;
	kv_env_sim_hook(env, before_change, c);
}

UNIT(a_crash_at_each_change_leaves_all_or_nothing)
{
	struct crash c = { 0 };
	struct kv_ingest *in;

	setup();
	for (uint64_t n = 0; n < 50; n++)
		put(n, 1);
	ck_ok(kv_sync(f.db));
	kv_env_sim_hook(f.env, before_change, &c);
	in = ingest_of(0, 300, 1, 5);
	c.begun = true;
	ck_ok(kv_ingest_commit(in));
	c.done = true;
	kv_ingest_free(in);
	ck_ok(dbfix_put(&f, "x", "y", true));
	kv_env_sim_hook(f.env, NULL, NULL);
	ck_assert_uint_gt(c.point, 30);
	teardown();
}
UNIT_END

UNIT_MAIN("ingest", all_is_there_and_on_the_deepest_level, nothing_is_there_without_a_commit,
	  an_empty_one_changes_nothing, keys_must_ascend,
	  it_is_newer_than_all_before_the_commit_and_older_than_all_after,
	  a_crash_behind_the_commit_loses_nothing, iterators_and_counters_see_one_or_the_other,
	  transactions_notice_it, names_and_checkpoints_have_all_or_nothing,
	  runs_side_by_side_do_not_pile_up, runs_that_overlap_pile_up_and_are_compacted,
	  hints_and_no_compression, read_only_and_poisoned, no_space_for_a_table,
	  no_space_for_values, what_is_kept_back_is_not_taken,
	  beside_writers_readers_and_compactions, a_crash_at_each_change_leaves_all_or_nothing)
