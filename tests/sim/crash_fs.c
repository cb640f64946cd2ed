/*
 * The power is cut before every single change that the filesystem makes to its disk, and
 * each time what is left must be a tree that existed: after a prefix of the operations, with all that
 * were synced, and sound in every count.
 *
 *	SEED=n ROUNDS=n POINT=n tests/sim/crash_fs
 *
 * As in crash_kv.c, the disk calls us before each change, is copied, and the copy crashes in several ways. The
 * tree that is found is compared, as a text, with what the reference was after each
 * operation; fsck looks at it before and after orphans are freed. Then the workload
 * runs again, several times, with a disk that dies at some change.
 *
 * POINT looks at one change only, as the line that a failure prints says.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fsck/check.h"
#include "fs/core.h"
#include "tests/sim/env_sim.h"
#include "tests/sim/fsref.h"
#include "tests/sim/kvref.h"

#define STORE "store"
#define DEATHS 40		/* runs with a dying disk, about, each round */
#define FSCK_EVERY 4		/* crashes that fsck looks at */
#define USE_EVERY 9		/* crashes after which the filesystem is used on */
#define OPS_MIN 40
#define OPS_MAX 90

struct run {
	uint64_t seed;
	uint32_t hash_bits;
	struct kv_env *env;
	struct fsref *ref;
	struct fs *fs;
	uint64_t random;
	struct kv_buf states[OPS_MAX + 1]; /* dumps; states[i]: after i operations */
	uint64_t begun, done, synced;
	bool dying;

	uint64_t point;			/* changes so far */
	uint64_t images;		/* looked at */
};

static uint64_t seed;
static uint64_t only_point = UINT64_MAX;
static const struct run *running;
static const char *crash_text = "";

_Noreturn static void die(int line, const char *what, const char *fmt, ...) KV_PRINTF(3, 4);

static void die(int line, const char *what, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "crash_fs.c:%d: %s: ", line, what);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nat change %" PRIu64 "%s: %" PRIu64 " operations begun, %" PRIu64
		" done, %" PRIu64 " durable", running->point, crash_text, running->begun,
		running->done, running->synced);
	fprintf(stderr, "\nrepeat: SEED=%" PRIu64 " ROUNDS=1 POINT=%" PRIu64
		" tests/sim/crash_fs\n", running->seed, running->point);
	abort();
}

#define CHECK(c, ...)                                          \
	do {                                                   \
		if (!(c))                                      \
			die(__LINE__, #c, " " __VA_ARGS__);    \
	} while (0)
#define CHECK_OK(expr)                                                          \
	do {                                                                    \
		int check_err_ = (expr);                                        \
		if (check_err_)                                                 \
			die(__LINE__, #expr, "%s", kv_err_text(check_err_));    \
	} while (0)

static void failed(void *arg, const char *text)
{
	(void)arg;
	die(__LINE__, "reference", "%s", text);
}

static void print_message(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "%s\n", text);
}

static struct kv_options engine(struct kv_env *env)
{
	return (struct kv_options){
		.env = env,
		.msg = { getenv("VERBOSE") ? print_message : NULL, NULL, KV_MSG_DEBUG },
		.inline_work = true,
		.no_event_log = true,
		.cache_bytes = 64 * KV_KIB,
		.memtable_bytes = 16 * KV_KIB,
		.bulk_bytes_per_memtable = 256 * KV_KIB,
		.segment_bytes = 128 * KV_KIB,
		.table_bytes = 8 * KV_KIB,
		.level_base_bytes = 32 * KV_KIB,
		.block_bytes = 512,
		.medium_bytes = 256,
		.bulk_bytes = 4096,
	};
}

static int open_fs(struct kv_env *env, struct fsref *ref, struct fs **out)
{
	struct fs_options o = {
		.kv = engine(env),
		.commit_s = UINT32_MAX,
		.inodes_cached_max = 16,
		.now = ref ? fsref_now : NULL,
		.now_arg = ref,
	};

	return fs_open(STORE, &o, out);
}

static int format(struct kv_env *env, uint32_t hash_bits)
{
	struct fs_format_options o = { .kv = engine(env), .hash_bits = hash_bits };

	return fs_format(STORE, &o);
}

/* --- looking at what a crash has left ------------------------------------------------------------ */

static void fsck(struct kv_env *env)
{
	struct fsck_options o = { .env = env, .read_only = true,
				  .msg = { print_message, NULL, KV_MSG_WARN } };
	struct fsck_result result;

	CHECK_OK(fsck_run(STORE, &o, &result));
	CHECK(!result.problems);
}

/* Which of the states that it may be is it? */
static void check_tree(const struct run *r, struct fs *fs)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;

	CHECK_OK(fsref_dump_fs(fs, &got));
	for (uint64_t n = r->synced; n <= r->begun; n++)
		if (kv_slice_eq(kv_buf_slice(&r->states[n]), kv_buf_slice(&got)))
			return;
	for (uint64_t n = 0; n < r->synced; n++)
		if (kv_slice_eq(kv_buf_slice(&r->states[n]), kv_buf_slice(&got)))
			die(__LINE__, "synced operations are lost", "only %" PRIu64 " are there", n);
	fprintf(stderr, "to what it should be before the last operation:\n");
	fsref_print_difference(&r->states[r->done], &got);
	fprintf(stderr, "and to after it:\n");
	fsref_print_difference(&r->states[r->begun], &got);
	die(__LINE__, "a tree that never was", "-");
}

/* It keeps what is done from now on. */
static void use_on(const struct run *r, struct kv_env *env)
{
	struct fs_attr a, again;
	struct fs *fs;

	CHECK_OK(open_fs(env, NULL, &fs));
	check_tree(r, fs);
	CHECK_OK(fs_mkdir(fs, FS_INO_ROOT, kv_slice_str("later"), 0755, NULL, &a));
	CHECK_OK(fs_sync(fs));
	kv_env_sim_crash(env, KV_SIM_DROP_ALL, 0);
	(void)fs_close(fs);	/* its disk is gone */
	CHECK_OK(open_fs(env, NULL, &fs));
	CHECK_OK(fs_lookup(fs, FS_INO_ROOT, kv_slice_str("later"), &again));
	CHECK(a.ino == again.ino);
	CHECK_OK(fs_rmdir(fs, FS_INO_ROOT, kv_slice_str("later")));
	CHECK_OK(fs_close(fs));
	fsck(env);
}

/* Takes the disk over. */
static void look(struct run *r, struct kv_env *image)
{
	bool check = r->images % FSCK_EVERY == 0, use = r->images % USE_EVERY == 0;
	struct fs *fs;

	r->images++;
	if (check)
		fsck(image);
	CHECK_OK(open_fs(image, NULL, &fs));
	check_tree(r, fs);
	CHECK_OK(fs_close(fs));
	if (check)
		fsck(image);
	if (use)
		use_on(r, image);
	kv_env_sim_free(image);
}

static void crash(struct run *r, struct kv_env *env, enum kv_sim_crash how)
{
	struct kv_env *image = kv_env_sim_clone(env);

	CHECK(image);
	crash_text = how == KV_SIM_DROP_ALL ? ", unsynced dropped" :
		     how == KV_SIM_KEEP_ALL ? ", unsynced kept" : ", unsynced at random";
	kv_env_sim_crash(image, how, r->seed ^ r->point);
	look(r, image);
	crash_text = "";
}

static void before_change(void *arg, struct kv_env *env, enum kv_sim_op op, const char *name)
{
	struct run *r = arg;

	(void)op;
	(void)name;
	if (only_point == UINT64_MAX || only_point == r->point) {
		crash(r, env, KV_SIM_DROP_ALL);
		crash(r, env, KV_SIM_KEEP_ALL);
		crash(r, env, KV_SIM_RANDOM);
	}
	r->point++;
}

/* --- the workload ------------------------------------------------------------------------------------ */

/* With a dying disk anything may fail, and the first failure ends the workload. */
static bool ok(const struct run *r, int err)
{
	if (err && !kv_env_sim_stopped(r->env))
		die(__LINE__, "the disk works", "%s", kv_err_text(err));
	return !err;
}

static bool step_reopen(struct run *r)
{
	struct fs *fs = r->fs;

	r->fs = NULL;
	if (!ok(r, fs_close(fs)))
		return false;
	r->synced = r->done;
	if (!ok(r, open_fs(r->env, r->ref, &r->fs)))
		return false;
	if (!kv_env_sim_stopped(r->env))
		fsref_opened(r->ref, r->fs);
	return !kv_env_sim_stopped(r->env);
}

static bool step_durable(struct run *r, int err)
{
	if (!ok(r, err))
		return false;
	r->synced = r->done;
	return true;
}

static bool step_change(struct run *r)
{
	bool sync;

	fsref_draw(r->ref);
	fsref_dump(r->ref, &r->states[r->begun + 1]);
	r->begun++;
	if (!ok(r, fsref_change(r->ref, r->dying, &sync)))
		return false;
	r->done = r->begun;
	if (sync)
		r->synced = r->done;
	return true;
}

static bool step(struct run *r)
{
	uint32_t what = ref_below(&r->random, 100);

	if (what < 12)
		return step_durable(r, fs_sync(r->fs));
	if (what < 14)
		return step_durable(r, kv_flush(fs_kv(r->fs)));
	if (what < 17)
		return step_reopen(r);
	return step_change(r);
}

static void run_init(struct run *r, uint64_t run_seed)
{
	static const uint32_t hash_bits[] = { FS_HASH_BITS, 2, 1 };

	*r = (struct run){
		.seed = run_seed,
		.hash_bits = hash_bits[run_seed % KV_ARRAY_LEN(hash_bits)],
		.env = kv_env_sim_new(run_seed),
		.random = run_seed,
		.ref = fsref_new(run_seed + 1, failed, NULL),
	};
	CHECK(r->env);
	running = r;
	CHECK_OK(format(r->env, r->hash_bits));
}

static void workload(struct run *r)
{
	uint32_t ops = OPS_MIN + ref_below(&r->random, OPS_MAX - OPS_MIN);
	bool good = true;

	while (good && r->begun < ops)
		good = step(r);
	if (good && !r->dying)
		fsref_compare(r->ref);
	if (r->fs && ok(r, fs_close(r->fs)))
		r->synced = r->done;
	r->fs = NULL;
}

/* The first opening of a new filesystem can't be cut off here: there is no state 0 before it. */
static void first_open(struct run *r)
{
	CHECK_OK(open_fs(r->env, r->ref, &r->fs));
	fsref_opened(r->ref, r->fs);
	fsref_dump(r->ref, &r->states[0]);
}

static void run_done(struct run *r)
{
	for (int i = 0; i <= OPS_MAX; i++)
		kv_buf_done(&r->states[i]);
	fsref_free(r->ref);
	kv_env_sim_free(r->env);
}

static void run_dying(uint64_t run_seed, uint64_t at)
{
	struct kv_env *image;
	struct run r;

	run_init(&r, run_seed);
	r.point = at;
	r.dying = true;
	crash_text = ", while the disk died";
	first_open(&r);
	kv_env_sim_stop_after(r.env, at, true);
	workload(&r);
	kv_env_sim_crash(r.env, (enum kv_sim_crash)(at % 3), at);
	image = kv_env_sim_clone(r.env);
	CHECK(image);
	look(&r, image);
	crash_text = "";
	run_done(&r);
}

/* A filesystem that is being made is whole, or none. */
static void look_at_format(void *arg, struct kv_env *env, enum kv_sim_op op, const char *name)
{
	struct run *r = arg;
	struct kv_env *image = kv_env_sim_clone(env);
	struct fs *fs;
	int err;

	(void)op;
	(void)name;
	CHECK(image);
	crash_text = ", while it was made";
	kv_env_sim_crash(image, (enum kv_sim_crash)(r->point % 3), r->point);
	r->point++;
	err = open_fs(image, NULL, &fs);
	if (!err) {
		CHECK_OK(fs_close(fs));
		fsck(image);
	} else {
		CHECK(err == -ENOENT || err == KV_E_not_a_store, "%s", kv_err_text(err));
	}
	kv_env_sim_free(image);
	crash_text = "";
}

static void run_format(uint64_t run_seed)
{
	for (uint64_t turn = 0; turn < 3; turn++) {
		struct run r = { .seed = run_seed, .env = kv_env_sim_new(run_seed), .point = turn };

		running = &r;
		kv_env_sim_hook(r.env, look_at_format, &r);
		CHECK_OK(format(r.env, 0));
		kv_env_sim_free(r.env);
	}
}

static void run_round(uint64_t run_seed)
{
	uint64_t changes, every;
	struct run r;

	if (only_point == UINT64_MAX)
		run_format(run_seed);
	run_init(&r, run_seed);
	first_open(&r);
	kv_env_sim_hook(r.env, before_change, &r);
	workload(&r);
	changes = r.point;
	printf("seed %" PRIu64 ": %" PRIu64 " operations, %" PRIu64 " changes, %" PRIu64
	       " crashes\n", run_seed, r.done, changes, r.images);
	fflush(stdout);
	run_done(&r);

	every = 1 + changes / DEATHS;
	for (uint64_t at = only_point < changes ? only_point : run_seed % every; at < changes;
	     at += every) {
		run_dying(run_seed, at);
		if (only_point != UINT64_MAX)
			break;
	}
}

int main(void)
{
	const char *s = getenv("SEED"), *n = getenv("ROUNDS"), *p = getenv("POINT");
	uint64_t rounds = n ? strtoull(n, NULL, 0) : 1;
	struct kv_env *posix = kv_env_posix();

	if (s)
		seed = strtoull(s, NULL, 0);
	else if (posix->ops->random(posix, &seed, sizeof(seed)))
		return EXIT_FAILURE;
	if (p)
		only_point = strtoull(p, NULL, 0);
	printf("SEED=%" PRIu64 " ROUNDS=%" PRIu64 "\n", seed, rounds);
	fflush(stdout);
	for (uint64_t i = 0; i < rounds; i++)
		run_round(seed + i);
	printf("ok\n");
	return EXIT_SUCCESS;
}
