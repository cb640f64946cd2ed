/* Named snapshots, and stores that are opened only to be read. */
#include "kv/edit.h"
#include "kv/store.h"
#include "kv/verify.h"
#include "tests/unit/db_fixture.h"

static const struct kv_slice none = { NULL, 0 };

static char name_buf[KV_SNAPSHOT_NAME_BYTES_MAX + 8];

static const char *long_name(size_t bytes)
{
	memset(name_buf, 'n', bytes);
	name_buf[bytes] = 0;
	return name_buf;
}

static void expect_at(struct dbfix *f, const char *snapshot, const char *key, const char *value)
{
	struct kv_snapshot *s;

	ck_ok(kv_snapshot_open(f->db, snapshot, &s));
	dbfix_expect_bytes(f, s, key, value, value ? strlen(value) : 0);
	kv_snapshot_free(f->db, s);
}

/* Every key of a few gets a value of every size, told apart by the round. */
static void write_round(struct dbfix *f, unsigned round)
{
	static const size_t sizes[] = { 3, 100, 300, 1500, 2500, 9000 };
	static uint8_t value[9000];
	char key[16];

	for (unsigned i = 0; i < 60; i++) {
		size_t bytes = sizes[(i + round) % KV_ARRAY_LEN(sizes)];

		snprintf(key, sizeof(key), "k%02u", i);
		dbfix_fill(value, bytes, round * 1000 + i);
		if ((i + round) % 7)
			ck_ok(dbfix_put_bytes(f, key, value, bytes, false));
		else if ((i + round) % 2)
			ck_ok(dbfix_delete(f, key));
		else
			ck_ok(dbfix_delete_range(f, key, "k59"));
	}
}

/* A sum over all keys and values that are seen, each way. */
static uint64_t see(struct kv_db *db, const struct kv_snapshot *s)
{
	struct kv_iter_options o = { .snap = s };
	uint64_t forward = 0, backward = 0;
	struct kv_iter *it;

	ck_ok(kv_iter_new(db, &o, &it));
	for (int pass = 0; pass < 2; pass++) {
		uint64_t *sum = pass ? &backward : &forward;

		if (pass)
			kv_iter_seek_last(it);
		else
			kv_iter_seek_first(it);
		while (kv_iter_valid(it)) {
			struct kv_slice v;
			uint64_t h = 14695981039346656037u;

			ck_ok(kv_iter_value(it, &v));
			for (size_t i = 0; i < kv_iter_key(it).bytes; i++)
				h = (h ^ ((const uint8_t *)kv_iter_key(it).data)[i]) * 1099511628211u;
			for (size_t i = 0; i < v.bytes; i++)
				h = (h ^ ((const uint8_t *)v.data)[i]) * 1099511628211u;
			*sum += h;
			if (pass)
				kv_iter_prev(it);
			else
				kv_iter_next(it);
		}
		ck_ok(kv_iter_error(it));
	}
	kv_iter_free(it);
	ck_assert_uint_eq(forward, backward);
	return forward;
}

static uint64_t see_named(struct kv_db *db, const char *name)
{
	struct kv_snapshot *s;
	uint64_t sum;

	ck_ok(kv_snapshot_open(db, name, &s));
	sum = see(db, s);
	kv_snapshot_free(db, s);
	return sum;
}

static void problem(void *arg, const char *file, const char *text)
{
	(void)arg;
	printf("verify: %s: %s\n", file ? file : "-", text);
}

static void verify(struct dbfix *f, uint64_t expected)
{
	struct kv_verify_options o = { .env = f->env, .problem = problem };
	uint64_t problems;

	ck_ok(kv_verify("store", &o, &problems));
	ck_assert_uint_eq(problems, expected);
}

static uint64_t root_features(struct dbfix *f)
{
	struct kv_store s = { .env = f->env, .path = "store" };
	struct kv_root root;

	ck_ok(f->env->ops->dir_open(f->env, "store", false, &s.dir));
	ck_ok(kv_root_read(&s, &root));
	f->env->ops->dir_close(s.dir);
	return kv_le64_get(root.features_required);
}

/* --- named snapshots ---------------------------------------------------------------------- */

UNIT(a_name_keeps_what_was_there)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "one", false));
	ck_ok(kv_snapshot_create(f.db, "first"));
	ck_ok(dbfix_put(&f, "a", "two", false));
	ck_ok(dbfix_put(&f, "b", "new", false));
	ck_ok(kv_snapshot_create(f.db, "second"));
	ck_ok(dbfix_delete_range(&f, "a", "z"));
	for (int round = 0; round < 4; round++) {
		expect_at(&f, "first", "a", "one");
		expect_at(&f, "first", "b", NULL);
		expect_at(&f, "second", "a", "two");
		expect_at(&f, "second", "b", "new");
		dbfix_expect(&f, "a", NULL);
		if (round == 0)
			ck_ok(kv_flush(f.db));
		else if (round == 1)
			ck_ok(kv_compact(f.db, none, none));
		else
			dbfix_reopen(&f);
	}
	ck_ok(kv_snapshot_drop(f.db, "first"));
	expect_at(&f, "second", "a", "two");
	dbfix_close(&f);
	verify(&f, 0);
	dbfix_done(&f);
}
UNIT_END

UNIT(they_are_listed_by_age)
{
	struct kv_snapshot_info *infos;
	struct kv_stats stats;
	struct dbfix f;
	size_t n;

	dbfix_init(&f, 2);
	dbfix_open(&f);
	ck_ok(kv_snapshot_list(f.db, &infos, &n));
	ck_assert(!infos && !n);
	ck_ok(kv_snapshot_create(f.db, "zero"));
	ck_ok(dbfix_put(&f, "a", "1", false));
	ck_ok(kv_snapshot_create(f.db, "y"));
	ck_ok(kv_snapshot_create(f.db, "x"));
	ck_ok(dbfix_put(&f, "a", "2", false));
	ck_ok(kv_snapshot_create(f.db, "\xff / \n"));
	for (int round = 0; round < 2; round++) {
		static const char *const names[] = { "zero", "y", "x", "\xff / \n" };
		static const uint64_t seqnos[] = { 0, 1, 1, 2 };

		ck_ok(kv_snapshot_list(f.db, &infos, &n));
		ck_assert_uint_eq(n, 4);
		for (size_t i = 0; i < n; i++) {
			ck_assert_str_eq(infos[i].name, names[i]);
			ck_assert_uint_eq(infos[i].seqno, seqnos[i]);
			ck_assert_uint_ge(infos[i].made_ns, (uint64_t)1000000000 * 1000000000);
			ck_assert(!i || infos[i].made_ns > infos[i - 1].made_ns);
		}
		free(infos);
		kv_stats(f.db, &stats);
		ck_assert_uint_eq(stats.named_snapshots, 4);
		ck_assert_uint_eq(stats.snapshots, 0);
		dbfix_reopen(&f);
	}
	expect_at(&f, "zero", "a", NULL);
	dbfix_done(&f);
}
UNIT_END

UNIT(mistakes_have_their_own_errors)
{
	struct kv_snapshot *s;
	struct dbfix f;
	uint64_t before;

	dbfix_init(&f, 3);
	dbfix_open(&f);
	ck_ok(kv_snapshot_create(f.db, "a"));
	before = kv_env_sim_ops(f.env);
	ck_assert_int_eq(kv_snapshot_create(f.db, "a"), KV_E_snapshot_exists);
	ck_assert_int_eq(kv_snapshot_create(f.db, ""), KV_E_bad_name);
	ck_assert_int_eq(kv_snapshot_create(f.db, long_name(KV_SNAPSHOT_NAME_BYTES_MAX + 1)),
			 KV_E_bad_name);
	ck_assert_int_eq(kv_snapshot_drop(f.db, ""), KV_E_bad_name);
	ck_assert_int_eq(kv_snapshot_drop(f.db, "b"), KV_E_no_snapshot);
	ck_assert_int_eq(kv_snapshot_open(f.db, "b", &s), KV_E_no_snapshot);
	ck_assert_int_eq(kv_snapshot_open(f.db, "", &s), KV_E_bad_name);
	ck_assert_uint_eq(kv_env_sim_ops(f.env), before);
	ck_assert_int_eq(kv_err_errno(KV_E_snapshot_exists), EEXIST);
	ck_assert_int_eq(kv_err_errno(KV_E_no_snapshot), ENOENT);
	ck_ok(kv_snapshot_create(f.db, long_name(KV_SNAPSHOT_NAME_BYTES_MAX)));
	dbfix_reopen(&f);
	ck_ok(kv_snapshot_drop(f.db, long_name(KV_SNAPSHOT_NAME_BYTES_MAX)));
	dbfix_done(&f);
}
UNIT_END

UNIT(there_are_not_too_many)
{
	struct dbfix f;
	char name[16];

	dbfix_init(&f, 4);
	dbfix_open(&f);
	for (unsigned i = 0; i < KV_SNAPSHOTS_MAX; i++) {
		snprintf(name, sizeof(name), "%u", i);
		ck_ok(kv_snapshot_create(f.db, name));
		if (i % 100 == 0)
			ck_ok(dbfix_put(&f, "a", name, false));
	}
	ck_assert_int_eq(kv_snapshot_create(f.db, "one more"), KV_E_too_many_snapshots);
	dbfix_reopen(&f);
	ck_assert_int_eq(kv_snapshot_create(f.db, "one more"), KV_E_too_many_snapshots);
	expect_at(&f, "1", "a", "0");
	expect_at(&f, "1023", "a", "1000");
	ck_ok(kv_snapshot_drop(f.db, "77"));
	ck_ok(kv_snapshot_create(f.db, "one more"));
	dbfix_done(&f);
}
UNIT_END

/* What an open one sees stays, though its name is gone; then it goes, too. */
UNIT(a_dropped_name_gives_back_its_space)
{
	static uint8_t value[60000];
	struct kv_snapshot *s;
	struct kv_stats stats;
	struct dbfix f;

	dbfix_init(&f, 5);
	dbfix_open(&f);
	dbfix_fill(value, sizeof(value), 1);
	ck_ok(dbfix_put_bytes(&f, "a", value, sizeof(value), false));
	ck_ok(kv_snapshot_create(f.db, "keep"));
	ck_ok(dbfix_delete(&f, "a"));
	ck_ok(kv_compact(f.db, none, none));
	ck_ok(kv_snapshot_open(f.db, "keep", &s));
	ck_ok(kv_snapshot_drop(f.db, "keep"));
	ck_ok(kv_compact(f.db, none, none));
	dbfix_expect_bytes(&f, s, "a", value, sizeof(value));
	kv_snapshot_free(f.db, s);
	ck_ok(kv_compact(f.db, none, none));
	ck_ok(kv_wait_idle(f.db));
	kv_stats(f.db, &stats);
	ck_assert_uint_eq(stats.segment_bytes_live, 0);
	for (int i = 0; i < KV_LEVELS; i++)
		ck_assert_uint_eq(stats.table_count[i], 0);
	dbfix_done(&f);
}
UNIT_END

/* An older one that is opened later takes its place before those that are there. */
UNIT(open_ones_stay_in_order)
{
	struct kv_snapshot *s[3];
	struct dbfix f;

	dbfix_init(&f, 6);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "0", false));
	ck_ok(kv_snapshot_create(f.db, "0"));
	ck_ok(dbfix_put(&f, "a", "1", false));
	ck_ok(kv_snapshot_create(f.db, "1"));
	ck_ok(dbfix_put(&f, "a", "2", false));
	s[2] = kv_snapshot_new(f.db);
	ck_assert_ptr_nonnull(s[2]);
	ck_ok(kv_snapshot_open(f.db, "0", &s[0]));
	ck_ok(kv_snapshot_open(f.db, "1", &s[1]));
	ck_ok(kv_snapshot_drop(f.db, "0"));
	ck_ok(kv_snapshot_drop(f.db, "1"));
	ck_ok(dbfix_put(&f, "a", "3", false));
	ck_ok(kv_compact(f.db, none, none));
	for (int i = 0; i < 3; i++) {
		char want[2] = { (char)('0' + i), 0 };

		dbfix_expect_bytes(&f, s[i], "a", want, 1);
		kv_snapshot_free(f.db, s[i]);
	}
	dbfix_expect(&f, "a", "3");
	dbfix_done(&f);
}
UNIT_END

UNIT(all_sizes_survive_flush_compaction_and_collection)
{
	uint64_t sums[6];
	struct dbfix f;
	char name[8];

	dbfix_init(&f, 7);
	dbfix_open(&f);
	for (unsigned round = 0; round < 6; round++) {
		write_round(&f, round);
		snprintf(name, sizeof(name), "r%u", round);
		ck_ok(kv_snapshot_create(f.db, name));
		sums[round] = see(f.db, NULL);
		if (round % 2)
			ck_ok(kv_compact(f.db, none, none));
		if (round % 3 == 0)
			dbfix_reopen(&f);
	}
	for (int pass = 0; pass < 3; pass++) {
		for (unsigned round = pass == 2; round < 6; round++) {
			snprintf(name, sizeof(name), "r%u", round);
			ck_assert_uint_eq(see_named(f.db, name), sums[round]);
		}
		write_round(&f, 100 + (unsigned)pass);
		ck_ok(kv_compact(f.db, none, none));
		ck_ok(kv_wait_idle(f.db));
		if (pass == 1)
			ck_ok(kv_snapshot_drop(f.db, "r0"));
	}
	dbfix_close(&f);
	verify(&f, 0);
	dbfix_done(&f);
}
UNIT_END

/* With nothing but the journals of the time of the crash: replay must keep them apart, too. */
UNIT(replay_keeps_what_they_see)
{
	for (int memtable = 0; memtable < 2; memtable++) {
		uint64_t sums[4];
		struct dbfix f;
		char name[8];

		dbfix_init(&f, 8);
		f.options.memtable_bytes = 1 * KV_MIB;
		f.options.bulk_bytes_per_memtable = 16 * KV_MIB;
		dbfix_open(&f);
		for (unsigned round = 0; round < 4; round++) {
			write_round(&f, round);
			snprintf(name, sizeof(name), "r%u", round);
			ck_ok(kv_snapshot_create(f.db, name));
			sums[round] = see(f.db, NULL);
		}
		write_round(&f, 50);
		dbfix_crash(&f, KV_SIM_DROP_ALL, 0);
		verify(&f, 0);
		/* The journals are flushed in one piece, or in several while they are read. */
		f.options.memtable_bytes = memtable ? 4 * KV_KIB : 1 * KV_MIB;
		dbfix_open(&f);
		for (int pass = 0; pass < 2; pass++) {
			for (unsigned round = 0; round < 4; round++) {
				snprintf(name, sizeof(name), "r%u", round);
				ck_assert_uint_eq(see_named(f.db, name), sums[round]);
			}
			ck_ok(kv_compact(f.db, none, none));
		}
		dbfix_done(&f);
	}
}
UNIT_END

UNIT(creation_is_durable_with_all_before)
{
	for (int how = 0; how < 3; how++) {
		struct dbfix f;

		dbfix_init(&f, 9);
		dbfix_open(&f);
		ck_ok(dbfix_put(&f, "a", "old", false));
		ck_ok(kv_snapshot_create(f.db, "s"));
		ck_ok(dbfix_put(&f, "a", "new", false));
		ck_ok(kv_snapshot_create(f.db, "t"));
		ck_ok(kv_snapshot_create(f.db, "u"));
		ck_ok(kv_snapshot_drop(f.db, "s"));
		dbfix_crash(&f, (enum kv_sim_crash)how, 5);
		dbfix_open(&f);
		expect_at(&f, "t", "a", "new");
		ck_assert_int_eq(kv_snapshot_drop(f.db, "s"), KV_E_no_snapshot);
		ck_assert_int_eq(kv_snapshot_create(f.db, "u"), KV_E_snapshot_exists);
		dbfix_done(&f);
	}
}
UNIT_END

/* Less than a snapshot has seen is damage, not a torn tail. */
UNIT(a_shorter_store_than_it_has_seen_is_damaged)
{
	struct kv_env_dir *dir;
	struct kv_env_file *file;
	struct dbfix f;
	char journal[KV_NAME_BYTES_MAX] = "";
	uint64_t bytes;

	dbfix_init(&f, 10);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "old", false));
	ck_ok(kv_snapshot_create(f.db, "s"));
	dbfix_crash(&f, KV_SIM_KEEP_ALL, 0);
	ck_ok(f.env->ops->dir_open(f.env, "store", false, &dir));
	for (kv_fileno n = 1; n < 20 && !journal[0]; n++) {
		struct kv_filename name = kv_filename(KV_FILE_JOURNAL, n);

		if (f.env->ops->open(dir, name.s, KV_ENV_WRITE, &file))
			continue;
		snprintf(journal, sizeof(journal), "%s", name.s);
		/* The first chunk, which begins the journal, stays. */
		bytes = sizeof(struct kv_file_header) + sizeof(struct kv_chunk_header) +
			sizeof(struct kv_journal_begin);
		ck_ok(f.env->ops->truncate(file, bytes));
		ck_ok(f.env->ops->sync(file));
		f.env->ops->close(file);
	}
	f.env->ops->dir_close(dir);
	ck_assert(journal[0]);
	verify(&f, 1);
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_journal_damaged);
	f.db = NULL;
	ck_assert_uint_gt(f.errors, 0);
	dbfix_done(&f);
}
UNIT_END

/* The root asks for the feature while there may be names in the manifest, and not for longer. */
UNIT(older_programs_are_kept_out_while_there_are_some)
{
	struct dbfix f;

	dbfix_init(&f, 11);
	dbfix_open(&f);
	ck_assert_uint_eq(root_features(&f), 0);
	ck_ok(kv_snapshot_create(f.db, "s"));
	ck_assert_uint_eq(root_features(&f), KV_FEATURE_NAMED_SNAPSHOTS);
	ck_ok(kv_snapshot_create(f.db, "t"));
	dbfix_reopen(&f);
	ck_assert_uint_eq(root_features(&f), KV_FEATURE_NAMED_SNAPSHOTS);
	ck_ok(kv_snapshot_drop(f.db, "s"));
	ck_ok(kv_snapshot_drop(f.db, "t"));
	ck_assert_uint_eq(root_features(&f), KV_FEATURE_NAMED_SNAPSHOTS);
	ck_ok(kv_snapshot_create(f.db, "u"));
	ck_ok(kv_snapshot_drop(f.db, "u"));
	dbfix_reopen(&f);
	ck_assert_uint_eq(root_features(&f), 0);
	dbfix_done(&f);
}
UNIT_END

/* Whatever fails, nothing of it is there; or the store is read-only and says so. */
UNIT(failures_leave_no_half_snapshot)
{
	static const struct kv_sim_fault faults[] = {
		{ KV_SIM_CREATE, ".manifest", 0, -ENOSPC, true },
		{ KV_SIM_ALLOCATE, ".manifest", 0, -ENOSPC, true },
		{ KV_SIM_CREATE, "CURRENT.new", 0, -ENOSPC, true },
		{ KV_SIM_SYNC, ".manifest", 0, -EIO, false },
		{ KV_SIM_RENAME, "CURRENT", 0, -EIO, false },
		{ KV_SIM_SYNC, ".journal", 0, -EIO, false },
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(faults); i++) {
		bool harmless = faults[i].err == -ENOSPC;
		struct kv_snapshot *s;
		struct dbfix f;
		int err;

		dbfix_init(&f, 12);
		dbfix_open(&f);
		ck_ok(dbfix_put(&f, "a", "1", false));
		kv_env_sim_fail(f.env, &faults[i]);
		err = kv_snapshot_create(f.db, "s");
		ck_assert_uint_ge(kv_env_sim_faults_hit(f.env), 1);
		kv_env_sim_heal(f.env);
		ck_assert_msg(err == (harmless ? KV_E_no_space : KV_E_poisoned), "%zu: %s", i,
			      kv_err_text(err));
		ck_assert_int_eq(kv_snapshot_open(f.db, "s", &s), KV_E_no_snapshot);
		ck_assert_int_eq(kv_snapshot_create(f.db, "s"), harmless ? 0 : KV_E_poisoned);
		if (harmless)
			dbfix_close(&f);
		else
			dbfix_crash(&f, KV_SIM_KEEP_ALL, 0);
		dbfix_open(&f);
		if (harmless)
			expect_at(&f, "s", "a", "1");
		dbfix_done(&f);
	}
}
UNIT_END

/* --- read-only ---------------------------------------------------------------------------- */

/* Whatever is called, the disk is told of no change, nor asked to open a file for one. */
UNIT(reading_only_writes_nothing)
{
	static const struct kv_sim_fault no_writes = {
		KV_SIM_MUTATING, NULL, 0, -EROFS, true,
	};

	for (int crashed = 0; crashed < 2; crashed++) {
		struct kv_snapshot *s;
		struct kv_stats stats;
		struct kv_db *other;
		struct dbfix f;
		uint64_t sum, named, ops;

		dbfix_init(&f, 13);
		dbfix_open(&f);
		write_round(&f, 1);
		ck_ok(kv_snapshot_create(f.db, "s"));
		named = see(f.db, NULL);
		write_round(&f, 2);
		ck_ok(kv_sync(f.db));
		sum = see(f.db, NULL);
		if (crashed)
			dbfix_crash(&f, KV_SIM_RANDOM, 3);
		else
			dbfix_close(&f);

		kv_env_sim_fail(f.env, &no_writes);
		ops = kv_env_sim_ops(f.env);
		f.options.read_only = true;
		f.options.create = false;
		f.options.memtable_bytes = 4 * KV_KIB;
		dbfix_open(&f);
		ck_assert_uint_eq(see(f.db, NULL), sum);
		ck_assert_uint_eq(see_named(f.db, "s"), named);
		s = kv_snapshot_new(f.db);
		ck_assert_uint_eq(see(f.db, s), sum);
		kv_snapshot_free(f.db, s);
		kv_stats(f.db, &stats);
		ck_assert_uint_eq(stats.named_snapshots, 1);
		verify(&f, 0);
		/* And a second reader beside. */
		ck_ok(kv_open("store", &f.options, &other));
		ck_assert_uint_eq(see(other, NULL), sum);
		ck_ok(kv_close(other));
		ck_assert_int_eq(dbfix_put(&f, "a", "b", true), KV_E_read_only);
		ck_assert_int_eq(kv_flush(f.db), KV_E_read_only);
		ck_assert_int_eq(kv_compact(f.db, none, none), KV_E_read_only);
		ck_assert_int_eq(kv_snapshot_create(f.db, "t"), KV_E_read_only);
		ck_assert_int_eq(kv_snapshot_drop(f.db, "s"), KV_E_read_only);
		ck_assert_int_eq(kv_checkpoint(f.db, "checkpoint"), KV_E_read_only);
		ck_ok(kv_sync(f.db));
		ck_ok(kv_wait_idle(f.db));
		dbfix_close(&f);
		ck_assert_uint_eq(kv_env_sim_ops(f.env), ops);
		ck_assert_uint_eq(kv_env_sim_faults_hit(f.env), 0);

		/* It was not harmed by being looked at. */
		kv_env_sim_heal(f.env);
		f.options.read_only = false;
		dbfix_open(&f);
		ck_assert_uint_eq(see(f.db, NULL), sum);
		dbfix_done(&f);
	}
}
UNIT_END

UNIT(readers_and_a_writer_exclude_each_other)
{
	struct kv_options o;
	struct kv_db *other;
	struct dbfix f;

	dbfix_init(&f, 14);
	o = f.options;
	o.create = false;
	o.read_only = true;
	dbfix_open(&f);
	ck_assert_int_eq(kv_open("store", &o, &other), KV_E_locked);
	dbfix_close(&f);
	ck_ok(kv_open("store", &o, &other));
	ck_assert_int_eq(kv_open("store", &f.options, &f.db), KV_E_locked);
	f.db = NULL;
	ck_ok(kv_close(other));
	dbfix_open(&f);
	dbfix_done(&f);
}
UNIT_END

/* A copy that has no lock file, or no store: nothing is made in it. */
UNIT(reading_only_needs_no_lock_file)
{
	struct kv_env_dir *dir;
	struct dbfix f;
	uint64_t ops;

	dbfix_init(&f, 15);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	dbfix_close(&f);
	ck_ok(f.env->ops->dir_open(f.env, "store", false, &dir));
	ck_ok(f.env->ops->unlink(dir, KV_NAME_LOCK));
	f.env->ops->dir_close(dir);
	ck_ok(f.env->ops->dir_open(f.env, "empty", true, &dir));
	f.env->ops->dir_close(dir);
	ops = kv_env_sim_ops(f.env);
	f.options.create = false;
	f.options.read_only = true;
	dbfix_open(&f);
	dbfix_expect(&f, "a", "1");
	dbfix_close(&f);
	ck_assert_int_eq(kv_open("empty", &f.options, &f.db), KV_E_not_a_store);
	ck_assert_int_eq(kv_open("nowhere", &f.options, &f.db), -ENOENT);
	f.options.create = true;
	ck_assert_int_eq(kv_open("nowhere", &f.options, &f.db), KV_E_bad_option);
	f.db = NULL;
	ck_assert_uint_eq(kv_env_sim_ops(f.env), ops);
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("snapshot", a_name_keeps_what_was_there, they_are_listed_by_age,
	  mistakes_have_their_own_errors, there_are_not_too_many,
	  a_dropped_name_gives_back_its_space, open_ones_stay_in_order,
	  all_sizes_survive_flush_compaction_and_collection, replay_keeps_what_they_see,
	  creation_is_durable_with_all_before, a_shorter_store_than_it_has_seen_is_damaged,
	  older_programs_are_kept_out_while_there_are_some, failures_leave_no_half_snapshot,
	  reading_only_writes_nothing, readers_and_a_writer_exclude_each_other,
	  reading_only_needs_no_lock_file)
