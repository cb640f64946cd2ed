#include "kv/checksum.h"
#include "kv/db.h"
#include "kv/verify.h"
#include "tests/unit/db_fixture.h"

/* --- creating and opening ------------------------------------------------------------------- */

UNIT(creation_is_asked_for)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	f.options.create = false;
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), -ENOENT);
	f.options.create = true;
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	dbfix_close(&f);

	f.options.error_if_exists = true;
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_exists);
	f.options.error_if_exists = f.options.create = false;
	dbfix_open(&f);
	dbfix_expect(&f, "a", "1");
	dbfix_done(&f);
}
UNIT_END

static void make_file(struct kv_env *env, const char *name, struct kv_slice content)
{
	struct kv_env_dir *dir;
	struct kv_env_file *file;

	ck_ok(env->ops->dir_open(env, "store", true, &dir));
	ck_ok(env->ops->open(dir, name, KV_ENV_CREATE, &file));
	ck_ok(kv_env_write(env, file, content, 0));
	env->ops->close(file);
	env->ops->dir_close(dir);
}

UNIT(a_directory_of_something_else_is_left_alone)
{
	struct dbfix f;
	uint64_t ops;

	dbfix_init(&f, 1);
	make_file(f.env, "thesis.tex", kv_slice_str("important"));
	ops = kv_env_sim_ops(f.env);
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_not_a_store);
	f.options.create = false;
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_not_a_store);
	ck_assert_uint_eq(kv_env_sim_ops(f.env), ops);
	ck_assert_uint_ge(f.errors, 2);
	dbfix_done(&f);
}
UNIT_END

UNIT(a_store_without_its_root_is_not_overwritten)
{
	struct dbfix f;
	struct kv_env_dir *dir;
	uint64_t ops;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", true));
	dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
	ck_ok(f.env->ops->dir_open(f.env, "store", false, &dir));
	ck_ok(f.env->ops->unlink(dir, KV_NAME_ROOT));
	f.env->ops->dir_close(dir);
	ops = kv_env_sim_ops(f.env);
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_not_a_store);
	ck_assert_uint_eq(kv_env_sim_ops(f.env), ops);
	dbfix_done(&f);
}
UNIT_END

UNIT(creation_may_be_cut_off_anywhere)
{
	for (uint64_t n = 0; n < 1000; n++) {
		struct dbfix f;
		bool stopped;
		int err;

		dbfix_init(&f, n);
		kv_env_sim_stop_after(f.env, n, true);
		err = kv_open("store", &f.options, &f.db);
		stopped = kv_env_sim_stopped(f.env);
		ck_assert(stopped || !err);
		dbfix_crash(&f, KV_SIM_RANDOM, n);
		dbfix_open(&f);
		ck_ok(dbfix_put(&f, "a", "1", false));
		dbfix_reopen(&f);
		dbfix_expect(&f, "a", "1");
		dbfix_done(&f);
		if (!stopped)
			return;
	}
	ck_abort_msg("creation does not come to an end");
}
UNIT_END

UNIT(options_are_checked)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	f.options.memtable_bytes = 1;
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_bad_option);
	f.options.memtable_bytes = 0;
	f.options.level0_tables_slow = 30;
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_bad_option);
	f.options.level0_tables_slow = 0;
	f.options.read_only = true;
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_bad_option);
	ck_assert_uint_eq(f.errors, 3);
	ck_assert_uint_eq(kv_env_sim_ops(f.env), 0);
	dbfix_done(&f);
}
UNIT_END

UNIT(one_writer_or_many_readers)
{
	struct dbfix f;
	struct kv_db *a, *b;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_assert_int_eq(kv_open("store", &f.options, &a), KV_E_locked);
	f.options.create = false;
	f.options.read_only = true;
	ck_assert_int_eq(kv_open("store", &f.options, &a), KV_E_locked);
	dbfix_close(&f);
	ck_ok(kv_open("store", &f.options, &a));
	ck_ok(kv_open("store", &f.options, &b));
	f.options.read_only = false;
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_locked);
	ck_ok(kv_close(a));
	ck_ok(kv_close(b));
	dbfix_open(&f);
	dbfix_done(&f);
}
UNIT_END

UNIT(features_for_writing_are_respected)
{
	struct dbfix f;
	struct kv_env_dir *dir;
	struct kv_env_file *file;
	struct kv_root root;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	dbfix_close(&f);
	ck_ok(f.env->ops->dir_open(f.env, "store", false, &dir));
	ck_ok(f.env->ops->open(dir, KV_NAME_ROOT, KV_ENV_WRITE, &file));
	ck_ok(kv_env_read_exact(f.env, file, &root, sizeof(root), 0));
	root.features_write = kv_le64((uint64_t)1 << 63);
	root.checksum = kv_le64(kv_checksum(kv_slice((uint8_t *)&root + 16, sizeof(root) - 16), 0));
	ck_ok(kv_env_write(f.env, file, kv_slice(&root, sizeof(root)), 0));
	f.env->ops->close(file);
	f.env->ops->dir_close(dir);

	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_newer_format);
	f.options.create = false;
	f.options.read_only = true;
	dbfix_open(&f);
	dbfix_done(&f);
}
UNIT_END

/* --- what was written is read --------------------------------------------------------------- */

UNIT(newest_wins_wherever_it_lies)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "old", false));
	ck_ok(dbfix_put(&f, "b", "old", false));
	ck_ok(dbfix_put(&f, "c", "old", false));
	ck_ok(kv_flush(f.db));
	ck_ok(dbfix_put(&f, "a", "new", false));
	ck_ok(dbfix_delete(&f, "b"));
	for (int round = 0; round < 4; round++) {
		dbfix_expect(&f, "a", "new");
		dbfix_expect(&f, "b", NULL);
		dbfix_expect(&f, "c", "old");
		dbfix_expect(&f, "d", NULL);
		ck_assert_int_eq(kv_exists(f.db, NULL, kv_slice_str("a")), 0);
		ck_assert_int_eq(kv_exists(f.db, NULL, kv_slice_str("b")), KV_E_not_found);
		if (round == 1)
			ck_ok(kv_flush(f.db));
		else
			dbfix_reopen(&f);
	}
	dbfix_done(&f);
}
UNIT_END

UNIT(range_deletes_hide_what_is_older)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	ck_ok(dbfix_put(&f, "b", "1", false));
	ck_ok(kv_flush(f.db));
	ck_ok(dbfix_put(&f, "c", "1", false));
	ck_ok(dbfix_put(&f, "d", "1", false));
	ck_ok(dbfix_delete_range(&f, "b", "d"));
	ck_ok(dbfix_put(&f, "bb", "2", false));
	for (int round = 0; round < 3; round++) {
		dbfix_expect(&f, "a", "1");
		dbfix_expect(&f, "b", NULL);
		dbfix_expect(&f, "bb", "2");
		dbfix_expect(&f, "c", NULL);
		dbfix_expect(&f, "d", "1");
		if (round)
			dbfix_reopen(&f);
		else
			ck_ok(kv_flush(f.db));
	}
	dbfix_done(&f);
}
UNIT_END

UNIT(snapshots_stay_through_flushes)
{
	struct dbfix f;
	struct kv_snapshot *s[3];

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (int i = 0; i < 3; i++) {
		char value[2] = { (char)('0' + i), 0 };

		ck_ok(dbfix_put(&f, "a", "between", false));
		ck_ok(dbfix_put(&f, "a", value, false));
		if (i == 1)
			ck_ok(dbfix_delete_range(&f, "x", "y"));
		else
			ck_ok(dbfix_put(&f, "x", value, false));
		s[i] = kv_snapshot_new(f.db);
		ck_assert_ptr_nonnull(s[i]);
	}
	ck_ok(dbfix_delete(&f, "a"));
	ck_ok(dbfix_delete_range(&f, "x", "z"));
	for (int round = 0; round < 3; round++) {
		dbfix_expect_bytes(&f, s[0], "a", "0", 1);
		dbfix_expect_bytes(&f, s[1], "a", "1", 1);
		dbfix_expect_bytes(&f, s[2], "a", "2", 1);
		dbfix_expect(&f, "a", NULL);
		dbfix_expect_bytes(&f, s[0], "x", "0", 1);
		dbfix_expect_bytes(&f, s[1], "x", NULL, 0);
		dbfix_expect_bytes(&f, s[2], "x", "2", 1);
		dbfix_expect(&f, "x", NULL);
		ck_ok(kv_flush(f.db));
		if (round)
			ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	}
	for (int i = 0; i < 3; i++)
		kv_snapshot_free(f.db, s[i]);
	dbfix_done(&f);
}
UNIT_END

/* Values of every class, in and out of memory. */
UNIT(values_of_all_sizes_come_back)
{
	static const size_t sizes[] = { 0, 1, 255, 256, 257, 2047, 2048, 2049, 70000 };
	static uint8_t value[70000], zeros[70000];
	struct kv_stats stats;
	struct dbfix f;
	char key[16];

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (size_t i = 0; i < KV_ARRAY_LEN(sizes); i++) {
		dbfix_fill(value, sizes[i], i);
		snprintf(key, sizeof(key), "r%zu", i);
		ck_ok(dbfix_put_bytes(&f, key, value, sizes[i], false));
		snprintf(key, sizeof(key), "z%zu", i);
		ck_ok(dbfix_put_bytes(&f, key, zeros, sizes[i], false));
	}
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < KV_ARRAY_LEN(sizes); i++) {
			dbfix_fill(value, sizes[i], i);
			snprintf(key, sizeof(key), "r%zu", i);
			dbfix_expect_bytes(&f, NULL, key, value, sizes[i]);
			snprintf(key, sizeof(key), "z%zu", i);
			dbfix_expect_bytes(&f, NULL, key, zeros, sizes[i]);
		}
		if (round)
			dbfix_reopen(&f);
		else
			ck_ok(kv_flush(f.db));
	}
	kv_stats(f.db, &stats);
	ck_assert_uint_gt(stats.segment_count, 0);
	ck_assert_uint_gt(stats.segment_bytes_live, 70000);
	ck_assert_uint_lt(stats.segment_bytes_live, 90000);
	dbfix_done(&f);
}
UNIT_END

UNIT(a_failed_get_leaves_the_buffer)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "value", false));
	ck_ok(kv_buf_append(&b, "before", 6));
	ck_assert_int_eq(kv_get(f.db, NULL, kv_slice_str("b"), &b), KV_E_not_found);
	ck_assert(kv_slice_eq(kv_buf_slice(&b), kv_slice_str("before")));
	ck_ok(kv_get(f.db, NULL, kv_slice_str("a"), &b));
	ck_assert(kv_slice_eq(kv_buf_slice(&b), kv_slice_str("value")));
	dbfix_done(&f);
}
UNIT_END

/* --- crashes ---------------------------------------------------------------------------------- */

#define KEYS 9
#define BIG_BYTES 3000

/*
 * Batch number i (from 1) puts i under "n" and under one of a few keys, now and then with
 * a large value, and deletes another: the state after any number of batches can be told.
 */
static int write_numbered(struct dbfix *f, uint32_t i, bool sync)
{
	struct kv_batch *b = kv_batch_new();
	uint8_t value[BIG_BYTES];
	size_t bytes = i % 3 == 0 ? BIG_BYTES : i % 3 == 1 ? 400 : 20;
	char key[8], dead[8];
	int err;

	dbfix_fill(value, bytes, i);
	snprintf(key, sizeof(key), "k%u", i % KEYS);
	snprintf(dead, sizeof(dead), "k%u", (i + 4) % KEYS);
	kv_batch_put(b, kv_slice_str(key), kv_slice(value, bytes), KV_HINT_NONE);
	if (i % 5 == 0)
		kv_batch_delete(b, kv_slice_str(dead));
	kv_batch_put(b, kv_slice_str("n"), kv_slice(&i, sizeof(i)), KV_HINT_NONE);
	err = kv_write(f->db, b, sync);
	kv_batch_free(b);
	return err;
}

/* The state is that after some number of batches, at least min; returns it. */
static uint32_t check_numbered(struct dbfix *f, uint32_t min, uint32_t max)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	uint32_t last[KEYS] = { 0 }, n = 0;
	uint8_t value[BIG_BYTES];
	int err = kv_get(f->db, NULL, kv_slice_str("n"), &b);

	if (err != KV_E_not_found) {
		ck_ok(err);
		ck_assert_uint_eq(b.bytes, sizeof(n));
		memcpy(&n, b.data, sizeof(n));
	}
	ck_assert_uint_ge(n, min);
	ck_assert_uint_le(n, max);
	for (uint32_t i = 1; i <= n; i++) {
		last[i % KEYS] = i;
		if (i % 5 == 0)
			last[(i + 4) % KEYS] = 0;
	}
	for (uint32_t k = 0; k < KEYS; k++) {
		uint32_t i = last[k];
		size_t bytes = i % 3 == 0 ? BIG_BYTES : i % 3 == 1 ? 400 : 20;
		char key[8];

		snprintf(key, sizeof(key), "k%u", k);
		dbfix_fill(value, bytes, i);
		dbfix_expect_bytes(f, NULL, key, i ? value : NULL, bytes);
	}
	return n;
}

UNIT(what_was_synced_survives)
{
	struct dbfix f;
	uint32_t n = 0;

	dbfix_init(&f, 1);
	for (int round = 0; round < 4; round++) {
		dbfix_open(&f);
		for (int i = 0; i < 30; i++)
			ck_ok(write_numbered(&f, ++n, i % 7 == 0));
		if (round == 2)
			ck_ok(kv_sync(f.db));
		else
			ck_ok(write_numbered(&f, ++n, true));
		dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
		dbfix_open(&f);
		ck_assert_uint_eq(check_numbered(&f, n, n), n);
		dbfix_close(&f);
	}
	dbfix_done(&f);
}
UNIT_END

UNIT(a_killed_process_loses_nothing)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (uint32_t i = 1; i <= 100; i++)
		ck_ok(write_numbered(&f, i, false));
	dbfix_crash(&f, KV_SIM_KEEP_ALL, 1);
	dbfix_open(&f);
	check_numbered(&f, 100, 100);
	dbfix_done(&f);
}
UNIT_END

#define CRASH_BATCHES 70

/* Stop at call n; what is found then is a prefix, with all that was promised. */
static bool crash_at(uint64_t n, enum kv_sim_crash how, uint64_t seed)
{
	struct dbfix f;
	uint32_t written = 0, promised = 0, found;
	bool stopped;

	dbfix_init(&f, seed);
	kv_env_sim_stop_after(f.env, n, true);
	if (!kv_open("store", &f.options, &f.db))
		while (written < CRASH_BATCHES) {
			bool sync = written % 6 == 5;

			written++;
			if (write_numbered(&f, written, sync))
				break;
			if (sync)
				promised = written;
			if (written % 32 == 0 && kv_flush(f.db))
				break;
			if (written % 32 == 0)
				promised = written;
		}
	stopped = kv_env_sim_stopped(f.env);
	dbfix_crash(&f, how, seed);
	dbfix_open(&f);
	found = check_numbered(&f, promised, written);
	/* And it goes on from there. */
	ck_ok(write_numbered(&f, found + 1, true));
	dbfix_crash(&f, KV_SIM_RANDOM, seed + 1);
	dbfix_open(&f);
	check_numbered(&f, found + 1, found + 1);
	dbfix_done(&f);
	return stopped;
}

UNIT(a_crash_anywhere_leaves_a_prefix)
{
	uint64_t seed = dbfix_seed(7), n = 0;

	while (crash_at(n, KV_SIM_RANDOM, seed + n))
		n++;
	ck_assert_uint_gt(n, 100);
	for (n = 0; crash_at(n, n % 2 ? KV_SIM_DROP_ALL : KV_SIM_KEEP_ALL, seed + n);)
		n += 3;
}
UNIT_END

/* A disk on which recovery has something to do, cut off at its n-th call, and at that of the next. */
static bool crash_recovery_at(uint64_t n, uint64_t seed)
{
	struct dbfix f;
	bool stopped;

	dbfix_init(&f, seed);
	dbfix_open(&f);
	for (uint32_t i = 1; i <= 40; i++)
		ck_ok(write_numbered(&f, i, i == 20));
	dbfix_crash(&f, KV_SIM_RANDOM, seed);
	kv_env_sim_stop_after(f.env, n, true);
	(void)!kv_open("store", &f.options, &f.db);
	stopped = kv_env_sim_stopped(f.env);
	dbfix_crash(&f, KV_SIM_RANDOM, seed + 1);
	kv_env_sim_stop_after(f.env, n / 2, true);
	(void)!kv_open("store", &f.options, &f.db);
	dbfix_crash(&f, KV_SIM_RANDOM, seed + 2);
	dbfix_open(&f);
	check_numbered(&f, 20, 40);
	dbfix_done(&f);
	return stopped;
}

UNIT(recovery_may_be_cut_off_anywhere)
{
	uint64_t seed = dbfix_seed(3), n = 0;

	while (crash_recovery_at(n, seed + n))
		n++;
	ck_assert_uint_gt(n, 10);
}
UNIT_END

UNIT(opening_again_and_again_leaves_no_files_behind)
{
	struct dbfix f;
	uint64_t used = 0;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (uint32_t i = 1; i <= 20; i++)
		ck_ok(write_numbered(&f, i, false));
	for (int i = 0; i < 10; i++) {
		dbfix_crash(&f, KV_SIM_KEEP_ALL, 1);
		dbfix_open(&f);
		check_numbered(&f, 20, 20);
		if (i == 4)
			used = kv_env_sim_used(f.env);
		if (i > 4)
			ck_assert_uint_eq(kv_env_sim_used(f.env), used);
	}
	dbfix_done(&f);
}
UNIT_END

/* --- read-only ----------------------------------------------------------------------------------- */

UNIT(reading_only_writes_nothing)
{
	struct dbfix f;
	uint64_t ops;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (uint32_t i = 1; i <= 90; i++)
		ck_ok(write_numbered(&f, i, false));
	dbfix_crash(&f, KV_SIM_KEEP_ALL, 1);
	f.options.create = false;
	f.options.read_only = true;
	ops = kv_env_sim_ops(f.env);
	for (int i = 0; i < 2; i++) {
		dbfix_open(&f);
		check_numbered(&f, 90, 90);
		ck_assert_int_eq(dbfix_put(&f, "a", "1", false), KV_E_read_only);
		ck_assert_int_eq(kv_flush(f.db), KV_E_read_only);
		ck_ok(kv_sync(f.db));
		ck_ok(kv_wait_idle(f.db));
		dbfix_close(&f);
	}
	ck_assert_uint_eq(kv_env_sim_ops(f.env), ops);
	f.options.read_only = false;
	dbfix_open(&f);
	check_numbered(&f, 90, 90);
	dbfix_done(&f);
}
UNIT_END

/* --- damage ----------------------------------------------------------------------------------------- */

struct find_file {
	const char *suffix;
	char name[KV_SIM_NAME_BYTES_MAX];
};

static int find_suffix(void *arg, const char *name)
{
	struct find_file *f = arg;
	size_t n = strlen(name), m = strlen(f->suffix);

	if (n > m && !strcmp(name + n - m, f->suffix) && strcmp(name, f->name) > 0)
		snprintf(f->name, sizeof(f->name), "%s", name);
	return 0;
}

/* The last file with such a name. */
static struct find_file last_file(struct dbfix *f, const char *suffix)
{
	struct find_file found = { .suffix = suffix };
	struct kv_env_dir *dir;

	ck_ok(f->env->ops->dir_open(f->env, "store", false, &dir));
	ck_ok(f->env->ops->dir_list(dir, find_suffix, &found));
	f->env->ops->dir_close(dir);
	ck_assert_msg(found.name[0], "no %s", suffix);
	return found;
}

static void remove_file(struct dbfix *f, const char *name)
{
	struct kv_env_dir *dir;

	ck_ok(f->env->ops->dir_open(f->env, "store", false, &dir));
	ck_ok(f->env->ops->unlink(dir, name));
	f->env->ops->dir_close(dir);
}

UNIT(damage_before_a_promise_is_an_error)
{
	struct dbfix f;
	struct find_file j;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", true));
	ck_ok(dbfix_put(&f, "b", "1", true));
	ck_ok(dbfix_put(&f, "c", "1", true));
	j = last_file(&f, ".journal");
	dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
	/* In the first batch behind header and first chunk. */
	ck_ok(kv_env_sim_flip(f.env, "store", j.name, 64 + 72 + 41, 1));
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_journal_damaged);
	ck_ok(kv_env_sim_flip(f.env, "store", j.name, 64 + 72 + 41, 1));
	dbfix_open(&f);
	dbfix_expect(&f, "c", "1");
	dbfix_done(&f);
}
UNIT_END

UNIT(damage_to_what_was_never_promised_is_a_torn_tail)
{
	struct dbfix f;
	struct find_file j;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	ck_ok(dbfix_put(&f, "b", "1", false));
	j = last_file(&f, ".journal");
	dbfix_crash(&f, KV_SIM_KEEP_ALL, 1);
	ck_ok(kv_env_sim_flip(f.env, "store", j.name, 64 + 72 + 41, 1));
	dbfix_open(&f);
	dbfix_expect(&f, "a", NULL);
	dbfix_expect(&f, "b", NULL);
	dbfix_done(&f);
}
UNIT_END

/* A value that never arrived ends the replay, unless it was promised: then it is reported when read. */
UNIT(values_are_verified_behind_the_promise_only)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	static uint8_t value[5000];

	for (int promised = 0; promised < 2; promised++) {
		struct dbfix f;
		struct find_file s;

		dbfix_init(&f, 1);
		dbfix_fill(value, sizeof(value), 1);
		dbfix_open(&f);
		ck_ok(dbfix_put(&f, "a", "1", false));
		ck_ok(dbfix_put_bytes(&f, "b", value, sizeof(value), promised));
		ck_ok(dbfix_put(&f, "c", "1", promised));
		s = last_file(&f, ".vlog");
		dbfix_crash(&f, KV_SIM_KEEP_ALL, 1);
		ck_ok(kv_env_sim_flip(f.env, "store", s.name, 4000, 1));
		dbfix_open(&f);
		dbfix_expect(&f, "a", "1");
		if (promised) {
			dbfix_expect(&f, "c", "1");
			ck_assert_int_eq(kv_exists(f.db, NULL, kv_slice_str("b")), 0);
			ck_assert(kv_err_is(kv_get(f.db, NULL, kv_slice_str("b"), &b),
					    KV_E_corrupt));
		} else {
			dbfix_expect(&f, "b", NULL);
			dbfix_expect(&f, "c", NULL);
		}
		dbfix_done(&f);
	}
}
UNIT_END

static void no_problem(void *arg, const char *file, const char *text)
{
	(void)arg;
	ck_abort_msg("%s: %s", file ? file : "-", text);
}

/* A value arrived whole, the zeros that pad its record didn't: the segment is as long as the record is. */
UNIT(the_padding_of_the_last_value_may_be_missing)
{
	struct kv_verify_options vo = { .problem = no_problem };
	static uint8_t value[4097];
	struct kv_env_file *file;
	struct kv_env_dir *dir;
	struct find_file s;
	uint64_t problems;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_fill(value, sizeof(value), 1);
	dbfix_open(&f);
	ck_ok(dbfix_put_bytes(&f, "b", value, sizeof(value), false));
	s = last_file(&f, ".vlog");
	dbfix_crash(&f, KV_SIM_KEEP_ALL, 1);
	ck_ok(f.env->ops->dir_open(f.env, "store", false, &dir));
	ck_ok(f.env->ops->open(dir, s.name, KV_ENV_WRITE, &file));
	ck_ok(f.env->ops->truncate(file, sizeof(struct kv_file_header) +
				   sizeof(struct kv_vlog_record) + 1 + sizeof(value)));
	f.env->ops->close(file);
	f.env->ops->dir_close(dir);
	dbfix_open(&f);
	dbfix_expect_bytes(&f, NULL, "b", value, sizeof(value));
	dbfix_close(&f);
	vo.env = f.env;
	ck_ok(kv_verify("store", &vo, &problems));
	dbfix_done(&f);
}
UNIT_END

UNIT(missing_files_are_named)
{
	static const char *const suffixes[] = { ".journal", ".vlog", ".sst", ".manifest" };
	static uint8_t value[5000];

	for (size_t i = 0; i < KV_ARRAY_LEN(suffixes); i++) {
		struct dbfix f;

		dbfix_init(&f, 1);
		dbfix_open(&f);
		ck_ok(dbfix_put(&f, "a", "1", false));
		ck_ok(kv_flush(f.db));
		ck_ok(dbfix_put_bytes(&f, "b", value, sizeof(value), true));
		dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
		remove_file(&f, last_file(&f, suffixes[i]).name);
		ck_assert(kv_err_is(kv_open("store", &f.options, &f.db), KV_E_corrupt));
		ck_assert_uint_ge(f.errors, 1);
		dbfix_done(&f);
	}
}
UNIT_END

/* --- failures ------------------------------------------------------------------------------------------ */

static const struct kv_sim_fault journal_sync_fault = { .ops = KV_SIM_SYNC,
							  .suffix = ".journal",
							  .err = -EIO };

UNIT(a_failed_sync_is_final)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", true));
	kv_env_sim_fail(f.env, &journal_sync_fault);
	ck_assert_int_eq(dbfix_put(&f, "b", "1", true), KV_E_poisoned);
	ck_assert_uint_eq(kv_env_sim_faults_hit(f.env), 1);
	ck_assert_int_eq(dbfix_put(&f, "c", "1", false), KV_E_poisoned);
	ck_assert_int_eq(kv_sync(f.db), KV_E_poisoned);
	ck_assert_int_eq(kv_flush(f.db), KV_E_poisoned);
	ck_assert_int_eq(kv_wait_idle(f.db), KV_E_poisoned);
	dbfix_expect(&f, "a", "1");
	ck_assert_int_eq(kv_close(f.db), -EIO);
	f.db = NULL;
	kv_env_sim_crash(f.env, KV_SIM_RANDOM, 1);
	dbfix_open(&f);
	dbfix_expect(&f, "a", "1");
	dbfix_expect(&f, "b", NULL); /* the sync that failed has lost it */
	dbfix_expect(&f, "c", NULL);
	ck_ok(dbfix_put(&f, "c", "1", true));
	dbfix_done(&f);
}
UNIT_END

/* Fail the n-th call of a kind: nobody is told more than what is true after a crash. */
static bool fail_at(unsigned ops, const char *suffix, uint64_t n, bool forever, int err)
{
	struct kv_sim_fault fault = { .ops = ops, .suffix = suffix, .after = n, .err = err,
				      .forever = forever };
	uint32_t written = 0, promised = 0;
	struct dbfix f;
	bool hit;

	dbfix_init(&f, n);
	dbfix_open(&f);
	kv_env_sim_fail(f.env, &fault);
	while (written < 60) {
		bool sync = written % 6 == 5;

		if (write_numbered(&f, written + 1, sync))
			break;
		written++;
		if (sync)
			promised = written;
	}
	hit = kv_env_sim_faults_hit(f.env);
	kv_env_sim_heal(f.env);
	check_numbered(&f, written, written + 1);
	dbfix_crash(&f, KV_SIM_RANDOM, n);
	dbfix_open(&f);
	check_numbered(&f, promised, written + 1);
	dbfix_done(&f);
	return hit;
}

UNIT(every_failure_of_the_disk_is_survived)
{
	static const struct {
		unsigned ops;
		const char *suffix;
	} kinds[] = {
		{ KV_SIM_SYNC, ".journal" }, { KV_SIM_SYNC, ".vlog" }, { KV_SIM_SYNC, ".sst" },
		{ KV_SIM_SYNC, ".manifest" }, { KV_SIM_DIR_SYNC, NULL }, { KV_SIM_WRITE, ".journal" },
		{ KV_SIM_WRITE, ".vlog" }, { KV_SIM_WRITE, ".sst" }, { KV_SIM_WRITE, ".manifest" },
		{ KV_SIM_CREATE, NULL }, { KV_SIM_ALLOCATE, NULL }, { KV_SIM_UNLINK, NULL },
		{ KV_SIM_TRUNCATE, NULL }, { KV_SIM_READ, NULL }, { KV_SIM_OPEN, NULL },
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(kinds); i++) {
		uint64_t n = 0;

		while (n < 100 && fail_at(kinds[i].ops, kinds[i].suffix, n, n % 2, -EIO))
			n++;
		for (n = 0; n < 100 && fail_at(kinds[i].ops, kinds[i].suffix, n, n % 2, -ENOSPC);)
			n++;
	}
}
UNIT_END

UNIT(a_full_disk_harms_nothing_and_works_again)
{
	static uint8_t value[3000];
	struct dbfix f;
	uint32_t n = 0, before;
	int err = 0;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (; n < 40; n++)
		ck_ok(write_numbered(&f, n + 1, false));
	kv_env_sim_set_capacity(f.env, kv_env_sim_used(f.env) + 128 * KV_KIB);
	while (!(err = write_numbered(&f, n + 1, true)))
		ck_assert_uint_lt(++n, 100000);
	ck_assert_int_eq(err, KV_E_no_space);
	/* Again and again: nothing gets worse. */
	before = n;
	for (int i = 0; i < 50; i++) {
		err = write_numbered(&f, n + 1, true);
		if (!err)
			n++;
		else
			ck_assert_int_eq(err, KV_E_no_space);
	}
	ck_assert_uint_lt(n, before + 50);
	check_numbered(&f, n, n);
	kv_env_sim_set_capacity(f.env, UINT64_MAX);
	for (int i = 0; i < 100; i++)
		ck_ok(write_numbered(&f, ++n, true));
	ck_ok(kv_flush(f.db));
	ck_ok(kv_wait_idle(f.db));
	dbfix_fill(value, sizeof(value), 1);
	check_numbered(&f, n, n);
	dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
	dbfix_open(&f);
	check_numbered(&f, n, n);
	dbfix_done(&f);
}
UNIT_END

/* --- files that nothing names -------------------------------------------------------------------- */

#define OBSOLETE 6

static int count_obsolete(void *arg, const char *name)
{
	/* What the store makes after an opening has numbers behind them, but is no table. */
	*(uint32_t *)arg += !strncmp(name, "900", 3) && strstr(name, ".sst");
	return 0;
}

static uint32_t obsolete_left(struct dbfix *f)
{
	struct kv_env_dir *dir;
	uint32_t n = 0;

	ck_ok(f->env->ops->dir_open(f->env, "store", false, &dir));
	ck_ok(f->env->ops->dir_list(dir, count_obsolete, &n));
	f->env->ops->dir_close(dir);
	return n;
}

/* As if a compaction had left them; 1000 bytes each. */
static void make_obsolete(struct dbfix *f, bool tell)
{
	static const char content[1000];

	for (kv_fileno i = 0; i < OBSOLETE; i++) {
		make_file(f->env, kv_filename(KV_FILE_TABLE, 900000 + i).s,
			  kv_slice(content, sizeof(content)));
		if (tell)
			kv_obsolete_add(f->db, KV_FILE_TABLE, 900000 + i);
	}
}

/* What the thread does that flushes, without the thread: 1000 bytes a second, a burst of as many. */
UNIT(files_are_deleted_at_a_bounded_rate)
{
	static const uint64_t second_ns = 1000000000;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	f.db->options.inline_work = false;
	f.db->delete_pace = (struct kv_pace){ 1000, 1000, 0 };
	make_obsolete(&f, true);
	ck_assert(kv_obsolete_delete(f.db));
	ck_assert_uint_eq(obsolete_left(&f), OBSOLETE - 2);
	for (uint32_t left = OBSOLETE - 2; left > 1; left--) {
		ck_assert(!kv_obsolete_delete(f.db));
		ck_assert_uint_eq(obsolete_left(&f), left);
		ck_assert_uint_gt(f.db->delete_wait_ns, second_ns / 2);
		ck_assert_uint_le(f.db->delete_wait_ns, second_ns);
		kv_env_sim_advance(f.env, f.db->delete_wait_ns);
		ck_assert(kv_obsolete_delete(f.db));
		ck_assert_uint_eq(obsolete_left(&f), left - 1);
	}
	kv_env_sim_advance(f.env, second_ns);
	ck_assert(kv_obsolete_delete(f.db));
	ck_assert_uint_eq(obsolete_left(&f), 0);
	ck_assert_uint_eq(f.db->delete_wait_ns, 0);
	ck_assert(!kv_obsolete_delete(f.db));
	/* Nobody waits for space that is there. */
	make_obsolete(&f, true);
	kv_env_sim_set_capacity(f.env, kv_env_sim_used(f.env) + KV_MIB);
	ck_assert(kv_obsolete_delete(f.db));
	ck_assert_uint_eq(obsolete_left(&f), 0);
	f.db->options.inline_work = true;
	dbfix_done(&f);
}
UNIT_END

UNIT(closing_deletes_all_and_so_does_waiting)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	f.options.inline_work = false;
	dbfix_open(&f);
	ck_ok(kv_wait_idle(f.db));
	f.db->delete_pace = (struct kv_pace){ 1, 1, 0 };
	make_obsolete(&f, true);
	ck_ok(kv_wait_idle(f.db));
	ck_assert_uint_eq(obsolete_left(&f), 0);
	make_obsolete(&f, true);
	dbfix_close(&f);
	ck_assert_uint_eq(obsolete_left(&f), 0);
	/* What a kill left behind is found when it is opened. */
	make_obsolete(&f, false);
	dbfix_open(&f);
	ck_ok(kv_wait_idle(f.db));
	ck_assert_uint_eq(obsolete_left(&f), 0);
	dbfix_done(&f);
}
UNIT_END

/* Writes much, and then reads it. Returns what blocks have of the budget then. */
static uint64_t use_memory(struct dbfix *f, uint64_t budget)
{
	const uint8_t value[200] = { 1 };
	struct kv_stats s;
	char key[16];

	for (uint32_t i = 0; i < 12000; i++) {
		snprintf(key, sizeof(key), "%06" PRIu32, i * 7919 % 6000);
		if (i < 6000)
			ck_ok(dbfix_put_bytes(f, key, value, sizeof(value), false));
		else
			ck_ok(kv_exists(f->db, NULL, kv_slice_str(key)));
		kv_stats(f->db, &s);
		ck_assert_uint_ge(s.memory_bytes, s.memtable_bytes + s.cache_bytes);
		ck_assert_uint_le(s.memory_bytes, budget);
	}
	return s.cache_bytes;
}

UNIT(memtables_and_blocks_share_a_budget)
{
	uint64_t bytes;
	struct dbfix f;

	dbfix_init(&f, 31);
	f.options.cache_bytes = 512 * KV_KIB;
	f.options.memtable_bytes = 128 * KV_KIB;
	dbfix_open(&f);
	ck_assert_uint_gt(use_memory(&f, 512 * KV_KIB), 200 * KV_KIB);
	/* Memtables that would take all of it leave a quarter, and may take more. */
	dbfix_close(&f);
	f.options.cache_bytes = 64 * KV_KIB;
	f.options.memtable_bytes = 256 * KV_KIB;
	dbfix_open(&f);
	bytes = use_memory(&f, 3 * 256 * KV_KIB + 64 * KV_KIB);
	ck_assert_uint_gt(bytes, 8 * KV_KIB);
	ck_assert_uint_le(bytes, 64 * KV_KIB);
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("db", creation_is_asked_for, a_directory_of_something_else_is_left_alone,
	  a_store_without_its_root_is_not_overwritten, creation_may_be_cut_off_anywhere,
	  options_are_checked, one_writer_or_many_readers, features_for_writing_are_respected,
	  newest_wins_wherever_it_lies, range_deletes_hide_what_is_older,
	  snapshots_stay_through_flushes, values_of_all_sizes_come_back,
	  a_failed_get_leaves_the_buffer, what_was_synced_survives, a_killed_process_loses_nothing,
	  a_crash_anywhere_leaves_a_prefix, recovery_may_be_cut_off_anywhere,
	  opening_again_and_again_leaves_no_files_behind, reading_only_writes_nothing,
	  damage_before_a_promise_is_an_error, damage_to_what_was_never_promised_is_a_torn_tail,
	  values_are_verified_behind_the_promise_only,
	  the_padding_of_the_last_value_may_be_missing, missing_files_are_named,
	  a_failed_sync_is_final, every_failure_of_the_disk_is_survived,
	  a_full_disk_harms_nothing_and_works_again,
	  files_are_deleted_at_a_bounded_rate, closing_deletes_all_and_so_does_waiting,
	  memtables_and_blocks_share_a_budget)
