#include "kv/repair.h"
#include "kv/verify.h"
#include "tests/unit/db_fixture.h"

#define KEYS 300
#define GENERATIONS 4

/* --- a store, and what was ever in it ------------------------------------------------------- */

static const char *key_of(int i)
{
	static char key[16];

	snprintf(key, sizeof(key), "k%04d", i);
	return key;
}

static size_t bytes_of(int i)
{
	static const size_t bytes[] = { 40, 400, 3000, 10, 700 };

	return bytes[i % 5];
}

static void value_of(uint8_t *to, int i, int generation)
{
	dbfix_fill(to, bytes_of(i), (uint64_t)i * GENERATIONS + (uint64_t)generation + 1);
}

static void put(struct dbfix *f, int from, int to, int generation)
{
	uint8_t value[3000];

	for (int i = from; i < to; i++) {
		value_of(value, i, generation);
		ck_ok(dbfix_put_bytes(f, key_of(i), value, bytes_of(i), false));
	}
}

/* The present generation of a key; -1: deleted. */
static int generation_of(int i)
{
	return i < 80 ? 1 : i < 140 ? -1 : i < 180 ? 2 : i < 200 ? 3 : 0;
}

/*
 * Tables on several levels, tombstones of both kinds, segments, and a journal that is needed; as a
 * process leaves them that is killed.
 */
static struct kv_env *make_store(uint64_t seed)
{
	struct kv_env *killed;
	struct dbfix f;

	dbfix_init(&f, seed);
	f.options.table_bytes = 4 * KV_KIB;
	dbfix_open(&f);
	put(&f, 0, KEYS, 0);
	ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	put(&f, 0, 80, 1);
	for (int i = 80; i < 110; i++)
		ck_ok(dbfix_delete(&f, key_of(i)));
	ck_ok(kv_flush(f.db));
	ck_ok(dbfix_delete_range(&f, "k0110", "k0140"));
	put(&f, 140, 180, 2);
	ck_ok(kv_flush(f.db));
	ck_ok(kv_wait_idle(f.db));
	put(&f, 180, 200, 3);
	ck_ok(kv_sync(f.db));
	ck_ok(dbfix_put(&f, "zz", "last", true));
	killed = kv_env_sim_clone(f.env);
	dbfix_done(&f);
	return killed;
}

/* --- looking at it -------------------------------------------------------------------------- */

static int repair(struct kv_env *env, bool read_only, struct kv_repair_report *out)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	kv_env_sim_free(f.env);
	f.options.env = env;
	f.options.read_only = read_only;
	f.options.create = false;
	return kv_repair("store", &f.options, out);
}

static void repair_ok(struct kv_env *env, struct kv_repair_report *out)
{
	struct kv_repair_report again;

	ck_ok(repair(env, false, out));
	ck_ok(repair(env, false, &again));

	ck_assert_msg(!again.damaged, "a second run finds damage: %" PRIu64 " losses, %" PRIu64
		      " headers, %" PRIu64 " foreign, %" PRIu64 " journals, rebuilt %d", again.losses,
		      again.headers_mended, again.files_foreign, again.journals_damaged,
		      again.rebuilt);
}

static void open_env(struct dbfix *f, struct kv_env *env)
{
	dbfix_init(f, 1);
	kv_env_sim_free(f->env);
	f->env = f->options.env = env;
	f->options.create = false;
	dbfix_open(f);
}

static bool is_generation(const struct kv_buf *got, int i, int generation)
{
	uint8_t value[3000];

	value_of(value, i, generation);
	return got->bytes == bytes_of(i) && !memcmp(got->data, value, got->bytes);
}

/*
 * No value that was never written; with older, fewer keys than all may be wrong: as they were before, or
 * not there. Returns how many are.
 */
static int look(struct dbfix *f, bool older)
{
	int wrong = 0;

	for (int i = 0; i < KEYS; i++) {
		KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
		int err = kv_get(f->db, NULL, kv_slice_str(key_of(i)), &got), present = generation_of(i);
		bool known = false;

		if (kv_err_is(err, KV_E_corrupt)) {
			wrong++;
			continue;
		}
		ck_assert(!err || err == KV_E_not_found);
		if (err ? present < 0 : present >= 0 && is_generation(&got, i, present))
			continue;
		wrong++;
		ck_assert_msg(older, "%s is wrong: %s, %zu bytes", key_of(i), kv_err_text(err), got.bytes);
		for (int g = 0; g < GENERATIONS && !err; g++)
			known |= is_generation(&got, i, g);
		ck_assert(err || known);
	}
	return wrong;
}

static void note_problem(void *arg, const char *file, const char *text)
{
	(void)arg;
	fprintf(stderr, "verify: %s: %s\n", file ? file : "-", text);
}

static uint64_t problems(struct kv_env *env)
{
	const struct kv_verify_options o = { .env = env, .problem = note_problem };
	uint64_t n;

	ck_ok(kv_verify("store", &o, &n));
	return n;
}

/* Opens it, looks, closes it, and has everything verified if nothing is lost. Frees the env. */
static int look_and_free(struct kv_env *env, bool older)
{
	struct dbfix f;
	int wrong;

	open_env(&f, env);
	wrong = look(&f, older);
	ck_ok(dbfix_put(&f, "k9999", "new", true));
	dbfix_expect(&f, "k9999", "new");
	dbfix_close(&f);
	/* Else a record may be damaged of which only the value is needed. */
	if (!older)
		ck_assert_uint_eq(problems(env), 0);
	dbfix_open(&f);
	ck_assert_int_eq(look(&f, older), wrong);
	dbfix_done(&f);
	return wrong;
}

/* --- damaging it ---------------------------------------------------------------------------- */

struct files {
	const char *suffix;
	char names[64][64];
	size_t count;
};

static int note_name(void *arg, const char *name)
{
	struct files *f = arg;
	size_t n = strlen(name), m = strlen(f->suffix);

	if (n >= m && !strcmp(name + n - m, f->suffix) && f->count < 64)
		snprintf(f->names[f->count++], sizeof(f->names[0]), "%s", name);
	return 0;
}

static struct files list(struct kv_env *env, const char *suffix)
{
	struct files f = { .suffix = suffix };
	struct kv_env_dir *dir;

	ck_ok(env->ops->dir_open(env, "store", false, &dir));
	ck_ok(env->ops->dir_list(dir, note_name, &f));
	env->ops->dir_close(dir);
	return f;
}

static void remove_file(struct kv_env *env, const char *name)
{
	struct kv_env_dir *dir;

	ck_ok(env->ops->dir_open(env, "store", false, &dir));
	ck_ok(env->ops->unlink(dir, name));
	ck_ok(env->ops->dir_sync(dir));
	env->ops->dir_close(dir);
}

static uint64_t size_of(struct kv_env *env, const char *name)
{
	struct kv_env_file *file;
	struct kv_env_dir *dir;
	uint64_t bytes;

	ck_ok(env->ops->dir_open(env, "store", false, &dir));
	ck_ok(env->ops->open(dir, name, KV_ENV_READ, &file));
	ck_ok(env->ops->size(file, &bytes));
	env->ops->close(file);
	env->ops->dir_close(dir);
	return bytes;
}

static void truncate_file(struct kv_env *env, const char *name, uint64_t bytes)
{
	struct kv_env_file *file;
	struct kv_env_dir *dir;

	ck_ok(env->ops->dir_open(env, "store", false, &dir));
	ck_ok(env->ops->open(dir, name, KV_ENV_WRITE, &file));
	ck_ok(env->ops->truncate(file, bytes));
	ck_ok(env->ops->sync(file));
	env->ops->close(file);
	env->ops->dir_close(dir);
}

/* --- what is whole -------------------------------------------------------------------------- */

UNIT(a_whole_store_is_left_alone)
{
	struct kv_env *env = make_store(1);
	struct kv_repair_report r;
	uint64_t ops = kv_env_sim_ops(env);

	ck_ok(repair(env, false, &r));
	ck_assert(!r.damaged && !r.rebuilt);
	ck_assert_uint_eq(r.losses, 0);
	ck_assert_uint_gt(r.tables_kept, 3);
	ck_assert_uint_eq(kv_env_sim_ops(env), ops);
	ck_assert_int_eq(look_and_free(env, false), 0);
}
UNIT_END

UNIT(what_is_no_store_or_in_use_is_refused)
{
	struct kv_env *env = kv_env_sim_new(1), *store = make_store(1);
	struct kv_repair_report r;
	struct kv_env_dir *dir;
	struct dbfix f;

	ck_assert_int_ne(repair(env, false, &r), 0);
	ck_ok(env->ops->dir_open(env, "store", true, &dir));
	env->ops->dir_close(dir);
	ck_assert_int_eq(repair(env, false, &r), KV_E_not_a_store);
	kv_env_sim_free(env);
	open_env(&f, store);
	ck_assert_int_eq(repair(store, false, &r), KV_E_locked);
	dbfix_done(&f);
}
UNIT_END

/* --- files that are gone ---------------------------------------------------------------------- */

UNIT(without_its_root_the_manifest_is_found)
{
	struct kv_env *env = make_store(1);
	struct kv_repair_report r;

	remove_file(env, "CURRENT");
	repair_ok(env, &r);
	ck_assert(r.damaged && !r.rebuilt);
	ck_assert_uint_eq(r.losses, 0);
	ck_assert_int_eq(look_and_free(env, false), 0);
}
UNIT_END

UNIT(without_its_manifest_it_is_rebuilt)
{
	for (int with_root = 0; with_root < 2; with_root++) {
		struct kv_env *env = make_store(1);
		struct files manifests = list(env, ".manifest");
		struct kv_repair_report r;

		ck_assert_uint_ge(manifests.count, 1);
		for (size_t i = 0; i < manifests.count; i++)
			remove_file(env, manifests.names[i]);
		if (!with_root)
			remove_file(env, "CURRENT");
		repair_ok(env, &r);
		ck_assert(r.rebuilt && r.may_resurrect);
		ck_assert_int_eq(look_and_free(env, false), 0);
	}
}
UNIT_END

UNIT(a_missing_table_is_told_and_the_rest_kept)
{
	struct kv_env *env = make_store(1);
	struct files tables = list(env, ".sst");

	for (size_t i = 0; i < tables.count; i++) {
		struct kv_env *copy = kv_env_sim_clone(env);
		struct kv_repair_report r;

		remove_file(copy, tables.names[i]);
		repair_ok(copy, &r);
		ck_assert_uint_eq(r.tables_missing, 1);
		ck_assert_uint_ge(r.losses, 1);
		ck_assert_int_gt(look_and_free(copy, true), 0);
	}
	kv_env_sim_free(env);
}
UNIT_END

UNIT(values_of_a_missing_segment_are_errors)
{
	struct kv_env *env = make_store(1);
	struct files segments = list(env, ".vlog");

	ck_assert_uint_ge(segments.count, 2);
	for (size_t i = 0; i < segments.count; i++)
		for (int half = 0; half < 2; half++) {
			struct kv_env *copy = kv_env_sim_clone(env);
			struct kv_repair_report r;
			struct dbfix f;

			if (half)
				truncate_file(copy, segments.names[i],
					      size_of(copy, segments.names[i]) / 2);
			else
				remove_file(copy, segments.names[i]);
			if (!half)
				repair_ok(copy, &r);
			else
				ck_ok(repair(copy, false, &r));
			if (!half)
				ck_assert_uint_eq(r.segments_missing, 1);
			open_env(&f, copy);
			/* No older value is taken for the present one. */
			for (int k = 0; k < KEYS; k++) {
				KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
				int err = kv_get(f.db, NULL, kv_slice_str(key_of(k)), &got);

				if (kv_err_is(err, KV_E_corrupt))
					continue;
				if (generation_of(k) < 0)
					ck_assert_int_eq(err, KV_E_not_found);
				else
					ck_assert(!err && is_generation(&got, k, generation_of(k)));
			}
			dbfix_done(&f);
		}
	kv_env_sim_free(env);
}
UNIT_END

/* --- bytes that are damaged ------------------------------------------------------------------- */

/* Flips a byte in each place that is a step from the last, in each file with the suffix. */
static uint64_t flip_all(const char *suffix, uint64_t step, bool harmless)
{
	struct kv_env *env = make_store(1);
	struct files files = list(env, suffix);
	uint64_t damaged = 0;

	ck_assert_uint_ge(files.count, 1);
	for (size_t i = 0; i < files.count; i++)
		for (uint64_t at = 9; at < size_of(env, files.names[i]) && at < 40000; at += step) {
			struct kv_env *copy = kv_env_sim_clone(env);
			struct kv_repair_report r;
			int wrong;

			ck_ok(kv_env_sim_flip(copy, "store", files.names[i], at, 0x10));
			repair_ok(copy, &r);
			wrong = look_and_free(copy, !harmless);
			ck_assert_msg(!wrong || r.losses, "%s: byte %" PRIu64 ": %d keys are wrong, and nobody "
				      "was told", files.names[i], at, wrong);
			damaged += r.damaged;
		}
	kv_env_sim_free(env);
	return damaged;
}

UNIT(a_damaged_manifest_loses_nothing)
{
	ck_assert_uint_gt(flip_all(".manifest", 37, true), 5);
}
UNIT_END

UNIT(damaged_tables_lose_little)
{
	ck_assert_uint_gt(flip_all(".sst", 331, false), 20);
}
UNIT_END

UNIT(damaged_journals_lose_little)
{
	ck_assert_uint_gt(flip_all(".journal", 411, false), 5);
}
UNIT_END

UNIT(a_damaged_root_loses_nothing)
{
	for (uint64_t at = 0; at < 128; at += 5) {
		struct kv_env *env = make_store(1);
		struct kv_repair_report r;
		int err;

		ck_ok(kv_env_sim_flip(env, "store", "CURRENT", at, 0x10));
		err = repair(env, false, &r);
		ck_ok(err);
		ck_assert(r.damaged && !r.rebuilt);
		ck_assert_int_eq(look_and_free(env, false), 0);
	}
}
UNIT_END

UNIT(damaged_headers_are_mended)
{
	static const char *const suffixes[] = { ".sst", ".vlog" };

	for (size_t s = 0; s < 2; s++) {
		struct kv_env *env = make_store(1);
		struct files files = list(env, suffixes[s]);
		struct kv_repair_report r;

		for (size_t i = 0; i < files.count; i++)
			ck_ok(kv_env_sim_flip(env, "store", files.names[i], 20, 0x01));
		repair_ok(env, &r);
		ck_assert_uint_eq(r.headers_mended, files.count);
		ck_assert_uint_eq(r.losses, 0);
		ck_assert_int_eq(look_and_free(env, false), 0);
	}
}
UNIT_END

/* --- files of others -------------------------------------------------------------------------- */

UNIT(files_of_another_store_are_put_aside)
{
	struct kv_env *env = make_store(1);
	struct files tables = list(env, ".sst");
	struct kv_env_dir *dir, *to;
	struct kv_repair_report r;
	struct dbfix f;

	/* Another one, beside it on the same disk. */
	dbfix_init(&f, 3);
	kv_env_sim_free(f.env);
	f.env = f.options.env = env;
	ck_ok(kv_open("other", &f.options, &f.db));
	put(&f, 0, 20, 2);
	ck_ok(kv_flush(f.db));
	dbfix_close(&f);
	ck_ok(env->ops->dir_open(env, "other", false, &dir));
	ck_ok(env->ops->dir_open(env, "store", false, &to));
	{
		struct files others = { .suffix = ".sst" };

		ck_ok(env->ops->dir_list(dir, note_name, &others));
		ck_assert_uint_ge(others.count, 1);
		ck_ok(env->ops->link(dir, others.names[0], to, "900000.sst"));
		ck_ok(env->ops->dir_sync(to));
	}
	env->ops->dir_close(dir);
	env->ops->dir_close(to);
	ck_assert_uint_ge(tables.count, 1);
	repair_ok(env, &r);
	ck_assert_uint_eq(r.files_foreign, 1);
	ck_assert_uint_eq(r.losses, 0);
	ck_assert_uint_eq(list(env, "900000.sst.lost").count, 1);
	ck_assert_int_eq(look_and_free(env, false), 0);
}
UNIT_END

/* --- when something goes wrong meanwhile -------------------------------------------------------- */

static void damage_for_crashes(struct kv_env *env, bool rebuild)
{
	struct files tables = list(env, ".sst"), manifests = list(env, ".manifest");

	ck_ok(kv_env_sim_flip(env, "store", tables.names[tables.count - 1], 300, 0x10));
	for (size_t i = 0; i < manifests.count && rebuild; i++)
		remove_file(env, manifests.names[i]);
}

UNIT(looking_only_writes_nothing)
{
	for (int rebuild = 0; rebuild < 2; rebuild++) {
		struct kv_env *env = make_store(1);
		struct kv_repair_report r, done;
		uint64_t ops;

		damage_for_crashes(env, rebuild);
		ops = kv_env_sim_ops(env);
		ck_ok(repair(env, true, &r));
		ck_assert_uint_eq(kv_env_sim_ops(env), ops);
		ck_assert(r.damaged && r.rebuilt == rebuild);
		ck_assert_uint_ge(r.losses, 1);
		repair_ok(env, &done);
		ck_assert_uint_eq(done.tables_salvaged, r.tables_salvaged);
		ck_assert_uint_eq(done.losses, r.losses);
		kv_env_sim_free(env);
	}
}
UNIT_END

UNIT(it_may_be_cut_off_anywhere)
{
	uint64_t seed = dbfix_seed(1);

	for (int rebuild = 0; rebuild < 2; rebuild++) {
		struct kv_env *env = make_store(1);
		struct kv_repair_report r;
		bool stopped = true;
		int wrong, n;

		damage_for_crashes(env, rebuild);
		{
			struct kv_env *copy = kv_env_sim_clone(env);

			repair_ok(copy, &r);
			wrong = look_and_free(copy, true);
		}
		for (n = 0; stopped; n++) {
			struct kv_env *copy = kv_env_sim_clone(env);

			kv_env_sim_stop_after(copy, (uint64_t)n, true);
			(void)!repair(copy, false, &r);
			stopped = kv_env_sim_stopped(copy);
			kv_env_sim_crash(copy, KV_SIM_RANDOM, seed + (uint64_t)n);
			repair_ok(copy, &r);
			ck_assert_int_eq(look_and_free(copy, true), wrong);
		}
		ck_assert_int_gt(n, 10);
		kv_env_sim_free(env);
	}
}
UNIT_END

/* A disk that can't be written, or has no space: an error, and the next repair does it. */
UNIT(a_failure_is_no_damage)
{
	static const int errs[] = { -EIO, -ENOSPC };

	for (size_t e = 0; e < 2; e++)
		for (int rebuild = 0; rebuild < 2; rebuild++) {
			struct kv_env *env = make_store(1);
			uint64_t after = 0;
			int err = -1;

			damage_for_crashes(env, rebuild);
			for (; err; after++) {
				const struct kv_sim_fault fault = { .ops = KV_SIM_MUTATING &
									   ~(unsigned)KV_SIM_UNLINK,
								    .after = after, .err = errs[e],
								    .forever = true };
				struct kv_env *copy = kv_env_sim_clone(env);
				struct kv_repair_report r;

				kv_env_sim_fail(copy, &fault);
				err = repair(copy, false, &r);
				ck_assert(!err || !kv_err_is(err, KV_E_corrupt));
				kv_env_sim_free(copy);
			}
			ck_assert_uint_gt(after, 5);
			kv_env_sim_free(env);
		}
}
UNIT_END

/* --- at random ---------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static void damage_once(struct kv_env *env, uint64_t *x)
{
	static const char *const suffixes[] = { ".sst", ".vlog", ".journal", ".manifest", "CURRENT" };
	struct files files = list(env, suffixes[next_random(x) % KV_ARRAY_LEN(suffixes)]);
	const char *name;
	uint64_t bytes, at;

	if (!files.count)
		return;
	name = files.names[next_random(x) % files.count];
	bytes = size_of(env, name);
	at = bytes ? next_random(x) % bytes : 0;
	switch (next_random(x) % 4) {
	case 0:
		remove_file(env, name);
		break;
	case 1:
		truncate_file(env, name, at);
		break;
	default:
		for (uint64_t i = at; i < bytes && i < at + next_random(x) % 600; i++)
			ck_ok(kv_env_sim_flip(env, "store", name, i, (uint8_t)(next_random(x) | 1)));
		break;
	}
}

UNIT(whatever_is_damaged_it_can_be_opened_again)
{
	uint64_t x = dbfix_seed(12345) | 1;
	struct kv_env *env = make_store(1);

	for (int round = 0; round < 60; round++) {
		struct kv_env *copy = kv_env_sim_clone(env);
		uint64_t n = 1 + next_random(&x) % 4;
		struct kv_repair_report r;

		while (n--)
			damage_once(copy, &x);
		if (list(copy, ".sst").count) {
			repair_ok(copy, &r);
			(void)look_and_free(copy, true);
		} else {
			kv_env_sim_free(copy);
		}
	}
	kv_env_sim_free(env);
}
UNIT_END

UNIT_MAIN("repair", a_whole_store_is_left_alone, what_is_no_store_or_in_use_is_refused,
	  without_its_root_the_manifest_is_found, without_its_manifest_it_is_rebuilt,
	  a_missing_table_is_told_and_the_rest_kept, values_of_a_missing_segment_are_errors,
	  a_damaged_manifest_loses_nothing, damaged_tables_lose_little, damaged_journals_lose_little,
	  a_damaged_root_loses_nothing, damaged_headers_are_mended, files_of_another_store_are_put_aside,
	  looking_only_writes_nothing, it_may_be_cut_off_anywhere, a_failure_is_no_damage,
	  whatever_is_damaged_it_can_be_opened_again)
