/*
 * The filesystem's core against a tree of plain structs: random operations, each with its
 * predicted result, random looks, and openings.
 *
 *	SEED=n OPS=n tests/sim/model_fs
 *
 * OPS are the operations of each of the rounds. These differ in how much the engine and the core keep in
 * memory, whether they have threads, and in the bits of a name's hash: with few, names collide
 * all the time. In the last round several threads work together in one tree, which
 * then must be sound.
 */
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>

#include "fsck/check.h"
#include "fs/core.h"
#include "kv/lock.h"
#include "tests/sim/env_sim.h"
#include "tests/sim/fsref.h"
#include "tests/sim/kvref.h"

#define STORE "store"
#define THREADS 4

static uint64_t seed, ops = 4000;

/*
 * ThreadSanitizer asks for this. It remembers the order of locks for ever, and directories move,
 * so that parent and child change places (fs/fs.h).
 */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "detect_deadlocks=0";
}

_Noreturn static void give_up(const char *text)
{
	fprintf(stderr, "model_fs: %s\nrepeat: SEED=%" PRIu64 " OPS=%" PRIu64 " tests/sim/model_fs\n",
		text, seed, ops);
	abort();
}

static void failed(void *arg, const char *text)
{
	(void)arg;
	give_up(text);
}

static void ok(int err, const char *what)
{
	char text[200];

	if (!err)
		return;
	snprintf(text, sizeof(text), "%s: %s", what, kv_err_text(err));
	give_up(text);
}

static void print_message(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "%s\n", text);
}

struct round {
	const char *name;
	bool tiny, threads;
	uint32_t hash_bits, inodes_cached_max;
};

static struct kv_options engine(const struct round *round, struct kv_env *env)
{
	struct kv_options o = {
		.env = env,
		.inline_work = !round->threads,
		.no_event_log = true,
		.msg = { print_message, NULL, getenv("VERBOSE") ? KV_MSG_DEBUG : KV_MSG_WARN },
	};

	if (round->tiny) {
		o.cache_bytes = 256 * KV_KIB;
		o.memtable_bytes = 64 * KV_KIB;
		o.table_bytes = 32 * KV_KIB;
		o.segment_bytes = 256 * KV_KIB;
		o.bulk_bytes_per_memtable = 512 * KV_KIB;
		o.level_base_bytes = 128 * KV_KIB;
		o.block_bytes = 512;
		o.medium_bytes = 256;
		o.bulk_bytes = 4096;
	}
	return o;
}

static struct fs *open_fs(const struct round *round, struct kv_env *env, struct fsref *ref)
{
	struct fs_options o = {
		.kv = engine(round, env),
		.commit_s = round->threads ? 1 : UINT32_MAX,
		.inodes_cached_max = round->inodes_cached_max,
		.now = ref ? fsref_now : NULL,
		.now_arg = ref,
	};
	struct fs *fs = NULL;

	ok(fs_open(STORE, &o, &fs), "open");
	if (ref) {
		ok(fs_reclaim_wait(fs), "reclaim");
		fsref_opened(ref, fs);
	}
	return fs;
}

static void check(struct kv_env *env)
{
	struct fsck_options o = { .env = env, .read_only = true, .thorough = true,
				  .msg = { print_message, NULL, KV_MSG_WARN } };
	struct fsck_result result;

	ok(fsck_run(STORE, &o, &result), "fsck");
	if (result.problems)
		give_up("fsck has found problems");
}

static struct kv_env *formatted(const struct round *round)
{
	struct fs_format_options o = { .hash_bits = round->hash_bits };
	struct kv_env *env = kv_env_sim_new(seed);

	KV_ASSERT(env);
	o.kv = engine(round, env);
	ok(fs_format(STORE, &o), "format");
	return env;
}

/* --- one after the other ---------------------------------------------------------------------- */

static void run_model(const struct round *round)
{
	struct kv_env *env = formatted(round);
	struct fsref *ref = fsref_new(seed, failed, NULL);
	uint64_t random = seed + 1;
	struct fs *fs = open_fs(round, env, ref);

	for (uint64_t i = 0; i < ops; i++) {
		uint32_t what = ref_below(&random, 1000);
		bool sync;

		fsref_draw(ref);
		ok(fsref_change(ref, false, &sync), "change");
		/* With a thread that frees them, deleted inodes are gone only after waiting. */
		if (round->threads && what < 200)
			ok(fs_reclaim_wait(fs), "reclaim");
		else if (what < 200)
			fsref_look(ref);
		else if (what < 204)
			ok(fs_sync(fs), "sync");
		else if (what < 206)
			ok(kv_flush(fs_kv(fs)), "flush");
		else if (what < 209) {
			ok(fs_reclaim_wait(fs), "reclaim");
			fsref_compare(ref);
		} else if (what < 212) {
			ok(fs_close(fs), "close");
			if (what == 211)
				check(env);
			fs = open_fs(round, env, ref);
		}
	}
	ok(fs_reclaim_wait(fs), "reclaim");
	fsref_compare(ref);
	ok(fs_close(fs), "close");
	check(env);
	fsref_free(ref);
	kv_env_sim_free(env);
	printf("%s: ok\n", round->name);
	fflush(stdout);
}

/* --- together ------------------------------------------------------------------------------------- */

struct worker {
	struct fs *fs;
	uint64_t random;
	fs_ino known[64];	/* once each, by us */
	int known_count;
	pthread_t thread;
};

static struct kv_slice small_name(struct worker *w, char *to)
{
	to[0] = (char)('a' + ref_below(&w->random, 6));
	return kv_slice(to, 1);
}

static void learn(struct worker *w, fs_ino ino)
{
	if (w->known_count == (int)KV_ARRAY_LEN(w->known)) {
		int i = (int)ref_below(&w->random, KV_ARRAY_LEN(w->known));

		fs_forget(w->fs, w->known[i], 1);
		w->known[i] = w->known[--w->known_count];
	}
	w->known[w->known_count++] = ino;
}

static fs_ino any_known(struct worker *w)
{
	if (!w->known_count || ref_chance(&w->random, 15))
		return FS_INO_ROOT;
	return w->known[ref_below(&w->random, (uint64_t)w->known_count)];
}

/* What somebody else may bring about at any time. */
static void allowed(int err)
{
	switch (kv_err_errno(err)) {
	case 0: case ENOENT: case EEXIST: case ENOTDIR: case EISDIR: case ENOTEMPTY: case EINVAL:
	case EPERM: case ENOSPC:
		return;
	default:
		ok(err, "together");
	}
}

static bool take_entry(void *arg, const struct fs_dirent *e)
{
	struct worker *w = arg;

	if (ref_chance(&w->random, 10))
		return false;
	if (e->attr)
		learn(w, e->ino);
	return true;
}

static void work_step(struct worker *w)
{
	char a[1], b[1], data[5000];
	struct kv_slice name = small_name(w, a), other = small_name(w, b);
	fs_ino dir = any_known(w), to = any_known(w);
	static const uint32_t flags[] = { 0, 0, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT };
	struct fs_attr attr;
	size_t got;
	int err;

	memset(data, a[0], sizeof(data));
	switch (ref_below(&w->random, 14)) {
	case 0: case 1:
		err = fs_mknod(w->fs, dir, name, S_IFREG | 0644, 0, NULL, &attr);
		if (!err)
			learn(w, attr.ino);
		break;
	case 2: case 3:
		err = fs_mkdir(w->fs, dir, name, 0755, NULL, &attr);
		if (!err)
			learn(w, attr.ino);
		break;
	case 4:
		err = fs_link(w->fs, to, dir, name, &attr);
		if (!err)
			learn(w, attr.ino);
		break;
	case 5:
		err = fs_unlink(w->fs, dir, name);
		break;
	case 6:
		err = fs_rmdir(w->fs, dir, name);
		break;
	case 7: case 8: case 9:
		err = fs_rename(w->fs, dir, name, to, other,
				flags[ref_below(&w->random, KV_ARRAY_LEN(flags))]);
		break;
	case 10: case 11:
		err = fs_lookup(w->fs, dir, name, &attr);
		if (!err)
			learn(w, attr.ino);
		break;
	case 12:
		err = fs_readdir(w->fs, dir, ref_below(&w->random, 3), ref_chance(&w->random, 70),
				 take_entry, w);
		break;
	default:
		err = fs_write(w->fs, dir, data, ref_below(&w->random, sizeof(data)),
			       ref_below(&w->random, 10000), 0);
		allowed(err);
		err = fs_read(w->fs, dir, data, sizeof(data), 0, &got);
		break;
	}
	allowed(err);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (uint64_t i = 0; i < ops; i++)
		work_step(w);
	for (int i = 0; i < w->known_count; i++) {
		struct fs_attr attr;

		/* What is known is there, whatever all others have done. */
		ok(fs_getattr(w->fs, w->known[i], &attr), "a known inode");
		fs_forget(w->fs, w->known[i], 1);
	}
	return NULL;
}

static void run_together(const struct round *round)
{
	struct kv_env *env = formatted(round);
	struct fs *fs = open_fs(round, env, NULL);
	struct worker workers[THREADS];
	struct fs_stats s;

	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .fs = fs, .random = seed * THREADS + (uint64_t)i };
		ok(-pthread_create(&workers[i].thread, NULL, work, &workers[i]), "thread");
	}
	for (int i = 0; i < THREADS; i++)
		ok(-pthread_join(workers[i].thread, NULL), "join");
	ok(fs_reclaim_wait(fs), "reclaim");
	fs_stats(fs, &s);
	if (s.inodes_known || s.orphans_waiting)
		give_up("something is still known");
	ok(fs_close(fs), "close");
	check(env);
	kv_env_sim_free(env);
	printf("%s: ok\n", round->name);
	fflush(stdout);
}

int main(void)
{
	static const struct round rounds[] = {
		{ "plain", false, false, 0, 0 },
		{ "tiny", true, false, 0, 16 },
		{ "tiny, names collide", true, false, 2, 16 },
		{ "one hash", false, false, 1, 64 },
		{ "threads", true, true, 0, 64 },
	};
	static const struct round together[] = {
		{ "together", false, true, 0, 0 },
		{ "together, tiny, names collide", true, true, 2, 16 },
	};
	const char *s = getenv("SEED"), *n = getenv("OPS");
	struct kv_env *posix = kv_env_posix();

	if (s)
		seed = strtoull(s, NULL, 0);
	else if (posix->ops->random(posix, &seed, sizeof(seed)))
		return EXIT_FAILURE;
	ops = n ? strtoull(n, NULL, 0) : ops;
	printf("SEED=%" PRIu64 " OPS=%" PRIu64 "\n", seed, ops);
	fflush(stdout);
	for (size_t i = 0; i < KV_ARRAY_LEN(rounds); i++)
		run_model(&rounds[i]);
	for (size_t i = 0; i < KV_ARRAY_LEN(together); i++)
		run_together(&together[i]);
	return EXIT_SUCCESS;
}
