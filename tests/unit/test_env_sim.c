#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "kv/errcode.h"
#include "tests/sim/env_sim.h"
#include "tests/unit/unit.h"

#define ROOT "/disk"

static struct kv_env *env;
static const struct kv_env_ops *ops;
static struct kv_env_dir *dir;
static uint64_t rng;

static uint64_t roll(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static void seed_rolls(void)
{
	const char *seed = getenv("SEED");

	rng = seed ? strtoull(seed, NULL, 0) : (uint64_t)(uintptr_t)&seed ^ (uint64_t)getpid() << 32;
	rng |= 1;
	printf("SEED=%" PRIu64 "\n", rng);
}

static void enter(struct kv_env *e)
{
	env = e;
	ops = e->ops;
	ck_ok(ops->dir_open(env, ROOT, true, &dir));
}

static void leave(void)
{
	ops->dir_close(dir);
	kv_env_sim_free(env);
}

static void crash(enum kv_sim_crash how, uint64_t seed)
{
	kv_env_sim_crash(env, how, seed);
	ops->dir_close(dir);
	ck_ok(ops->dir_open(env, ROOT, false, &dir));
}

static struct kv_env_file *open_file(const char *name, enum kv_env_mode mode)
{
	struct kv_env_file *f = NULL;

	ck_ok(ops->open(dir, name, mode, &f));
	return f;
}

static bool exists(const char *name)
{
	struct kv_env_file *f = NULL;
	int err = ops->open(dir, name, KV_ENV_READ, &f);

	ck_assert(!err || err == -ENOENT);
	if (!err)
		ops->close(f);
	return !err;
}

/* Content as a string, "-" when there is no such file. */
static const char *content(const char *name)
{
	static char text[4][4096];
	static unsigned turn;
	char *to = text[turn++ % 4];
	struct kv_env_file *f;
	size_t n;

	if (!exists(name))
		return "-";
	f = open_file(name, KV_ENV_READ);
	ck_ok(ops->pread(f, to, sizeof(text[0]) - 1, 0, &n));
	to[n] = 0;
	ops->close(f);
	return to;
}

static void put(const char *name, enum kv_env_mode mode, const char *text, bool sync)
{
	struct kv_env_file *f = open_file(name, mode);

	ck_ok(kv_env_write(env, f, kv_slice_str(text), 0));
	if (sync)
		ck_ok(ops->sync(f));
	ops->close(f);
}

UNIT(it_is_an_env)
{
	struct kv_env_dir *other;
	struct kv_env_file *f;
	uint64_t bytes = 0, all, unused;
	char got[16];
	size_t n;

	enter(kv_env_sim_new(1));
	ck_assert_int_eq(ops->dir_open(env, "/none", false, &other), -ENOENT);
	ck_assert_int_eq(ops->open(dir, "a", KV_ENV_READ, &f), -ENOENT);
	put("a", KV_ENV_CREATE, "hello", false);
	ck_assert_int_eq(ops->open(dir, "a", KV_ENV_CREATE, &f), -EEXIST);
	ck_assert_str_eq(content("a"), "hello");
	f = open_file("a", KV_ENV_READ);
	ck_assert_int_eq(kv_env_write(env, f, kv_slice_str("x"), 0), -EBADF);
	ck_ok(ops->pread(f, got, 10, 3, &n));
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(kv_env_read_exact(env, f, got, 6, 0), KV_E_short_file);
	ops->close(f);
	f = open_file("a", KV_ENV_WRITE);
	ck_ok(kv_env_write(env, f, kv_slice_str("!"), 100000));
	ck_ok(ops->size(f, &bytes));
	ck_assert_uint_eq(bytes, 100001);
	ck_ok(kv_env_read_exact(env, f, got, 6, 99995));
	ck_assert_mem_eq(got, "\0\0\0\0\0!", 6);
	ck_ok(ops->truncate(f, 3));
	ck_ok(ops->truncate(f, 6));
	ck_ok(kv_env_read_exact(env, f, got, 6, 0));
	ck_assert_mem_eq(got, "hel\0\0\0", 6);
	ck_ok(ops->allocate(f, 0, 10000, true));
	ck_ok(ops->allocate(f, 0, 20000, false));
	ck_ok(ops->size(f, &bytes));
	ck_assert_uint_eq(bytes, 10000);
	ck_ok(ops->writeback(f, 0, 10000, true));
	ops->advise(f, 0, 10000, true);
	ops->close(f);
	ck_ok(ops->dir_open(env, "/other", true, &other));
	ck_ok(ops->link(dir, "a", other, "b"));
	ck_assert_int_eq(ops->link(dir, "a", other, "b"), -EEXIST);
	ck_ok(ops->rename(dir, "a", "c"));
	ck_assert_int_eq(ops->rename(dir, "a", "c"), -ENOENT);
	ck_ok(ops->unlink(dir, "c"));
	ck_assert_int_eq(ops->unlink(dir, "c"), -ENOENT);
	ck_ok(ops->open(other, "b", KV_ENV_READ, &f));
	ops->close(f);
	ck_ok(ops->space(dir, &all, &unused));
	ck_assert_uint_lt(unused, all);
	ck_assert_int_lt(ops->open(dir, "a/b", KV_ENV_CREATE, &f), 0);
	ops->dir_close(other);
	leave();
}
UNIT_END

UNIT(unsynced_data_is_dropped_synced_is_kept)
{
	struct kv_env_file *f;
	uint64_t bytes = 0;

	enter(kv_env_sim_new(1));
	put("a", KV_ENV_CREATE, "old content", true);
	ck_ok(ops->dir_sync(dir));
	put("a", KV_ENV_WRITE, "new", false);
	ck_assert_str_eq(content("a"), "new content");
	ck_ok(kv_env_sim_unsynced(env, ROOT, "a", &bytes));
	ck_assert_uint_eq(bytes, KV_SIM_SECTOR_BYTES);
	crash(KV_SIM_DROP_ALL, 0);
	ck_assert_str_eq(content("a"), "old content");

	put("a", KV_ENV_WRITE, "new", false);
	crash(KV_SIM_KEEP_ALL, 0);
	ck_assert_str_eq(content("a"), "new content");

	f = open_file("a", KV_ENV_WRITE);
	ck_ok(ops->truncate(f, 3));
	ops->close(f);
	crash(KV_SIM_DROP_ALL, 0);
	ck_assert_str_eq(content("a"), "new content");
	leave();
}
UNIT_END

/* Each seed is one outcome; over many, each outcome is seen. */
UNIT(random_crashes_reach_every_outcome)
{
	struct kv_env *disk;
	int seen[2][2][2] = { { { 0 } } };

	enter(kv_env_sim_new(1));
	put("a", KV_ENV_CREATE, "a", true);
	ck_ok(ops->dir_sync(dir));
	{
		struct kv_env_file *f = open_file("a", KV_ENV_WRITE);

		ck_ok(ops->truncate(f, 3 * KV_SIM_SECTOR_BYTES));
		ck_ok(ops->sync(f));
		for (uint64_t i = 0; i < 3; i++)
			ck_ok(kv_env_write(env, f, kv_slice_str("Z"), i * KV_SIM_SECTOR_BYTES));
		ops->close(f);
	}
	ops->dir_close(dir);
	disk = env;
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct kv_env_file *f;
		char c[3];

		enter(kv_env_sim_clone(disk));
		crash(KV_SIM_RANDOM, seed);
		f = open_file("a", KV_ENV_READ);
		for (uint64_t i = 0; i < 3; i++)
			ck_ok(kv_env_read_exact(env, f, &c[i], 1, i * KV_SIM_SECTOR_BYTES));
		ops->close(f);
		ck_assert(c[0] == 'a' || c[0] == 'Z');
		ck_assert(c[1] == 0 || c[1] == 'Z');
		ck_assert(c[2] == 0 || c[2] == 'Z');
		seen[c[0] == 'Z'][c[1] == 'Z'][c[2] == 'Z']++;
		leave();
	}
	for (int i = 0; i < 8; i++)
		ck_assert_int_gt(seen[i & 1][i >> 1 & 1][i >> 2 & 1], 0);
	kv_env_sim_free(disk);
}
UNIT_END

UNIT(unsynced_names_are_dropped)
{
	bool durable = true;

	enter(kv_env_sim_new(1));
	put("a", KV_ENV_CREATE, "a", true);
	ck_ok(kv_env_sim_name_durable(env, ROOT, "a", &durable));
	ck_assert(!durable);
	crash(KV_SIM_DROP_ALL, 0);	/* a synced file without its entry */
	ck_assert(!exists("a"));

	put("a", KV_ENV_CREATE, "a", true);
	ck_ok(ops->dir_sync(dir));
	ck_ok(kv_env_sim_name_durable(env, ROOT, "a", &durable));
	ck_assert(durable);
	ck_ok(ops->rename(dir, "a", "b"));
	ck_assert(!exists("a"));
	crash(KV_SIM_DROP_ALL, 0);
	ck_assert(exists("a"));
	ck_assert(!exists("b"));
	ck_ok(ops->unlink(dir, "a"));
	crash(KV_SIM_DROP_ALL, 0);
	ck_assert_str_eq(content("a"), "a");
	ck_ok(ops->unlink(dir, "a"));
	crash(KV_SIM_KEEP_ALL, 0);
	ck_assert(!exists("a"));
	leave();
}
UNIT_END

/* The usual way to replace a file: one of both contents, whole, whatever happens. */
UNIT(rename_is_atomic)
{
	struct kv_env *disk;
	int olds = 0, news = 0, both = 0;

	enter(kv_env_sim_new(1));
	put("a", KV_ENV_CREATE, "old", true);
	ck_ok(ops->dir_sync(dir));
	put("a.new", KV_ENV_CREATE, "new", true);
	ck_ok(ops->rename(dir, "a.new", "a"));
	ops->dir_close(dir);
	disk = env;
	for (uint64_t seed = 0; seed < 100; seed++) {
		enter(kv_env_sim_clone(disk));
		crash(KV_SIM_RANDOM, seed);
		if (!strcmp(content("a"), "old")) {
			olds++;
			both += exists("a.new");
		} else {
			ck_assert_str_eq(content("a"), "new");
			ck_assert(!exists("a.new"));
			news++;
		}
		leave();
	}
	ck_assert_int_gt(olds, both);
	ck_assert_int_gt(both, 0);
	ck_assert_int_gt(news, 0);
	enter(disk);
	ck_ok(ops->dir_sync(dir));
	crash(KV_SIM_DROP_ALL, 0);
	ck_assert_str_eq(content("a"), "new");
	leave();
}
UNIT_END

/* A name that is used again cannot make what had it before vanish. */
UNIT(a_file_renamed_away_is_never_lost)
{
	struct kv_env *disk;

	enter(kv_env_sim_new(1));
	put("a", KV_ENV_CREATE, "first", true);
	ck_ok(ops->dir_sync(dir));
	ck_ok(ops->rename(dir, "a", "b"));
	put("a", KV_ENV_CREATE, "second", true);
	ops->dir_close(dir);
	disk = env;
	for (uint64_t seed = 0; seed < 100; seed++) {
		enter(kv_env_sim_clone(disk));
		crash(KV_SIM_RANDOM, seed);
		ck_assert_int_eq(!strcmp(content("a"), "first") + !strcmp(content("b"), "first"), 1);
		leave();
	}
	kv_env_sim_free(disk);
}
UNIT_END

UNIT(handles_and_locks_die_in_a_crash)
{
	struct kv_env_file *f, *lock, *lock2;
	struct kv_env_dir *old_dir;
	char c;
	size_t n;

	enter(kv_env_sim_new(1));
	put("a", KV_ENV_CREATE, "a", true);
	ck_ok(ops->lock(dir, "LOCK", false, &lock));
	ck_assert_int_eq(ops->lock(dir, "LOCK", true, &lock2), -EBUSY);
	ck_ok(ops->dir_sync(dir));
	f = open_file("a", KV_ENV_WRITE);
	old_dir = dir;
	kv_env_sim_crash(env, KV_SIM_DROP_ALL, 0);
	ck_ok(ops->dir_open(env, ROOT, false, &dir));
	ck_assert_int_eq(ops->pread(f, &c, 1, 0, &n), -EIO);
	ck_assert_int_eq(kv_env_write(env, f, kv_slice_str("x"), 0), -EIO);
	ck_assert_int_eq(ops->sync(f), -EIO);
	ck_assert_int_eq(ops->dir_sync(old_dir), -EIO);
	ck_ok(ops->lock(dir, "LOCK", true, &lock2));
	ops->close(lock);	/* does not take the new one away */
	ck_assert_int_eq(ops->lock(dir, "LOCK", false, &lock), -EBUSY);
	ck_ok(ops->lock(dir, "LOCK", true, &lock));
	ops->close(lock);
	ops->close(lock2);
	ck_ok(ops->lock(dir, "LOCK", false, &lock));
	ops->close(lock);
	ops->close(f);
	ops->dir_close(old_dir);
	ck_assert_str_eq(content("a"), "a");
	leave();
}
UNIT_END

/* Ten mutating calls: each can be the one where the machine dies. */
static int workload(void)
{
	struct kv_env_file *f;
	int err;

	KV_TRY(ops->open(dir, "n", KV_ENV_CREATE, &f));
	err = kv_env_write(env, f, kv_slice_str("0123456789"), 0);
	err = err ? err : ops->allocate(f, 0, 100, false);
	err = err ? err : ops->truncate(f, 5);
	err = err ? err : ops->sync(f);
	ops->close(f);
	KV_TRY(err);
	KV_TRY(ops->rename(dir, "n", "m"));
	KV_TRY(ops->link(dir, "m", dir, "l"));
	KV_TRY(ops->dir_sync(dir));
	KV_TRY(ops->unlink(dir, "m"));
	return ops->dir_sync(dir);
}

UNIT(every_mutating_call_can_be_the_last)
{
	uint64_t n;

	for (n = 0;; n++) {
		uint64_t before;
		bool stopped;
		int err;

		enter(kv_env_sim_new(n));
		before = kv_env_sim_ops(env);
		kv_env_sim_stop_after(env, n, true);
		err = workload();
		stopped = kv_env_sim_stopped(env);
		ck_assert_int_eq(err, stopped ? -EIO : 0);
		if (stopped) {
			ck_assert_uint_eq(kv_env_sim_ops(env) - before, n + 1);
			ck_assert_int_eq(ops->unlink(dir, "n"), -EIO);
		}
		crash(KV_SIM_KEEP_ALL, 0);
		ck_assert(exists("n") == (n >= 1 && n <= 5));
		ck_assert(exists("m") == (n >= 6 && n <= 8));
		ck_assert(exists("l") == (n >= 7));
		if (n == 1)
			ck_assert_uint_le(strlen(content("n")), 10);
		leave();
		if (!stopped)
			break;
	}
	ck_assert_uint_eq(n, 10);
}
UNIT_END

UNIT(a_stopped_write_is_torn_only_when_asked)
{
	unsigned lengths = 0;

	for (uint64_t seed = 0; seed < 200; seed++) {
		bool torn = seed >= 100;

		enter(kv_env_sim_new(seed));
		kv_env_sim_stop_after(env, 1, torn);
		{
			struct kv_env_file *f = open_file("a", KV_ENV_CREATE);

			ck_assert_int_eq(kv_env_write(env, f, kv_slice_str("abc"), 0), -EIO);
			ops->close(f);
		}
		crash(KV_SIM_KEEP_ALL, 0);
		ck_assert(!strncmp(content("a"), "abc", strlen(content("a"))));
		if (torn)
			lengths |= 1u << strlen(content("a"));
		else
			ck_assert_str_eq(content("a"), "");
		leave();
	}
	ck_assert_uint_eq(lengths, 0xf);
}
UNIT_END

UNIT(faults_hit_what_they_are_planned_for)
{
	static const struct kv_sim_fault once = { KV_SIM_SYNC, ".b", 1, -EIO, false };
	static const struct kv_sim_fault ever = { KV_SIM_READ | KV_SIM_UNLINK, NULL, 0, -EACCES, true };
	static const struct kv_sim_fault name = { KV_SIM_RENAME, "to", 0, -EPERM, false };
	struct kv_env_file *a, *b;
	char c;

	enter(kv_env_sim_new(1));
	a = open_file("x.a", KV_ENV_CREATE);
	b = open_file("x.b", KV_ENV_CREATE);
	kv_env_sim_fail(env, &once);
	ck_ok(ops->sync(a));
	ck_ok(ops->sync(b));
	ck_ok(ops->sync(a));
	ck_assert_int_eq(ops->sync(b), -EIO);
	ck_ok(ops->sync(b));
	ck_assert_uint_eq(kv_env_sim_faults_hit(env), 1);
	kv_env_sim_fail(env, &ever);
	kv_env_sim_fail(env, &name);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(kv_env_read_exact(env, a, &c, 1, 0), -EACCES);
		ck_assert_int_eq(ops->unlink(dir, "x.a"), -EACCES);
	}
	ck_assert_int_eq(ops->rename(dir, "x.a", "to"), -EPERM);
	ck_ok(ops->rename(dir, "x.a", "to"));
	kv_env_sim_heal(env);
	ck_ok(ops->unlink(dir, "to"));
	ck_assert_uint_eq(kv_env_sim_faults_hit(env), 8);
	ops->close(a);
	ops->close(b);
	leave();
}
UNIT_END

/* What kernels do: the second sync succeeds, and the data is gone all the same. */
UNIT(a_failed_sync_loses_the_data)
{
	static const struct kv_sim_fault fault = { KV_SIM_SYNC, NULL, 0, -EIO, false };
	struct kv_env_file *f;
	uint64_t bytes = 77;

	enter(kv_env_sim_new(1));
	put("a", KV_ENV_CREATE, "old", true);
	ck_ok(ops->dir_sync(dir));
	f = open_file("a", KV_ENV_WRITE);
	ck_ok(kv_env_write(env, f, kv_slice_str("new"), 0));
	kv_env_sim_fail(env, &fault);
	ck_assert_int_eq(ops->sync(f), -EIO);
	ck_ok(ops->sync(f));
	ck_ok(kv_env_sim_unsynced(env, ROOT, "a", &bytes));
	ck_assert_uint_eq(bytes, 0);
	ck_assert_str_eq(content("a"), "new");
	ck_ok(kv_env_write(env, f, kv_slice_str("!"), 2 * KV_SIM_SECTOR_BYTES));
	ck_ok(ops->sync(f));
	ops->close(f);
	crash(KV_SIM_KEEP_ALL, 0);
	ck_assert_str_eq(content("a"), "old");
	f = open_file("a", KV_ENV_READ);
	ck_ok(ops->size(f, &bytes));
	ck_assert_uint_eq(bytes, 2 * KV_SIM_SECTOR_BYTES + 1);
	ops->close(f);
	leave();
}
UNIT_END

UNIT(a_disk_fills_up_and_gets_room_again)
{
	static uint8_t block[4096];
	struct kv_env_file *f, *g;
	uint64_t all, unused;

	enter(kv_env_sim_new(1));
	kv_env_sim_set_capacity(env, 4 * sizeof(block));
	f = open_file("a", KV_ENV_CREATE);
	for (uint64_t i = 0; i < 3; i++)
		ck_ok(kv_env_write(env, f, kv_slice(block, sizeof(block)), i * sizeof(block)));
	ck_ok(ops->allocate(f, 3 * sizeof(block), 1, false));
	ck_ok(ops->space(dir, &all, &unused));
	ck_assert_uint_eq(all, 4 * sizeof(block));
	ck_assert_uint_eq(unused, 0);
	g = open_file("b", KV_ENV_CREATE);
	ck_assert_int_eq(kv_env_write(env, g, kv_slice_str("x"), 0), -ENOSPC);
	ck_assert_int_eq(ops->allocate(g, 0, 1, false), -ENOSPC);
	ck_ok(kv_env_write(env, f, kv_slice(block, sizeof(block)), 0)); /* over what is there */
	ck_ok(kv_env_write(env, f, kv_slice_str("x"), 3 * sizeof(block))); /* allocated */
	ck_ok(ops->unlink(dir, "a"));
	ck_assert_int_eq(kv_env_write(env, g, kv_slice_str("x"), 0), -ENOSPC);
	ops->close(f);	/* now it is gone */
	ck_assert_uint_eq(kv_env_sim_used(env), 0);
	ck_ok(kv_env_write(env, g, kv_slice_str("x"), 0));
	ck_ok(ops->allocate(g, 0, 4 * sizeof(block), true));
	ck_ok(ops->truncate(g, 1));
	ck_assert_uint_eq(kv_env_sim_used(env), sizeof(block));
	ops->close(g);
	crash(KV_SIM_DROP_ALL, 0);
	ck_assert_uint_eq(kv_env_sim_used(env), 0);
	leave();
}
UNIT_END

UNIT(clones_do_not_see_each_other)
{
	struct kv_env *first;
	struct kv_env_file *f, *held;
	uint64_t used;

	enter(kv_env_sim_new(1));
	put("a", KV_ENV_CREATE, "one", true);
	ck_ok(ops->dir_sync(dir));
	put("b", KV_ENV_CREATE, "two", false);
	held = open_file("b", KV_ENV_WRITE);
	put("c", KV_ENV_CREATE, "held only by us", true);
	f = open_file("c", KV_ENV_READ);
	ck_ok(ops->unlink(dir, "c"));
	ck_ok(ops->dir_sync(dir));
	used = kv_env_sim_used(env);
	first = env;
	ops->dir_close(dir);

	enter(kv_env_sim_clone(first));
	ck_assert_uint_lt(kv_env_sim_used(env), used);
	ck_assert_str_eq(content("a"), "one");
	put("a", KV_ENV_WRITE, "ONE", true);
	ck_ok(ops->unlink(dir, "b"));
	ck_assert_str_eq(content("a"), "ONE");
	leave();

	enter(kv_env_sim_clone(first));
	ck_assert_str_eq(content("a"), "one");
	ck_assert_str_eq(content("b"), "two");
	crash(KV_SIM_DROP_ALL, 0);	/* the entry is durable, the content is not */
	ck_assert_str_eq(content("b"), "");
	leave();

	enter(first);
	ck_assert_str_eq(content("b"), "two");
	ops->close(held);
	ops->close(f);
	leave();
}
UNIT_END

UNIT(bits_flip_for_good)
{
	enter(kv_env_sim_new(1));
	put("a", KV_ENV_CREATE, "abc", true);
	ck_ok(ops->dir_sync(dir));
	put("a", KV_ENV_WRITE, "X", false);
	ck_ok(kv_env_sim_flip(env, ROOT, "a", 1, 0x20));
	ck_assert_str_eq(content("a"), "XBc");
	ck_assert_int_eq(kv_env_sim_flip(env, ROOT, "a", 3, 1), -EINVAL);
	ck_assert_int_eq(kv_env_sim_flip(env, ROOT, "b", 0, 1), -ENOENT);
	ck_assert_int_eq(kv_env_sim_flip(env, "/none", "a", 0, 1), -ENOENT);
	crash(KV_SIM_DROP_ALL, 0);
	ck_assert_str_eq(content("a"), "aBc");
	ck_ok(kv_env_sim_flip(env, ROOT, "a", 0, 0x20));
	crash(KV_SIM_DROP_ALL, 0);
	ck_assert_str_eq(content("a"), "ABc");
	leave();
}
UNIT_END

UNIT(clock_and_random_repeat)
{
	uint8_t a[16], b[16];
	uint64_t t;

	enter(kv_env_sim_new(7));
	ck_ok(ops->random(env, a, sizeof(a)));
	t = ops->monotonic_ns(env);
	ck_assert_uint_lt(t, ops->monotonic_ns(env));
	kv_env_sim_advance(env, 1000000);
	ck_assert_uint_gt(ops->monotonic_ns(env), t + 1000000);
	ops->sleep_ns(env, 5000000);
	ck_assert_uint_gt(ops->monotonic_ns(env), t + 6000000);
	leave();
	enter(kv_env_sim_new(7));
	ck_ok(ops->random(env, b, sizeof(b)));
	ck_assert_mem_eq(a, b, sizeof(a));
	ck_assert_uint_eq(ops->monotonic_ns(env), t);
	leave();
}
UNIT_END

static void clone_at(void *arg, struct kv_env *e, enum kv_sim_op op, const char *name)
{
	struct kv_env **clones = arg;

	ck_assert_ptr_nonnull(name);
	ck_assert(op & KV_SIM_MUTATING);
	while (*clones)
		clones++;
	*clones = kv_env_sim_clone(e);
}

UNIT(a_hook_can_clone_before_each_call)
{
	struct kv_env *clones[16] = { NULL };

	enter(kv_env_sim_new(1));
	kv_env_sim_hook(env, clone_at, clones);
	ck_ok(workload());
	kv_env_sim_hook(env, NULL, NULL);
	leave();
	for (int n = 0; n < 10; n++) {
		ck_assert_ptr_nonnull(clones[n]);
		enter(clones[n]);
		ck_assert(exists("n") == (n >= 1 && n <= 5));
		leave();
	}
	ck_assert_ptr_null(clones[10]);
}
UNIT_END

/*
 * Against a plain model: after any crash each sector is as synced or as
 * written last, and so is the size but for what lies between.
 */
enum { MODEL_BYTES = 20000 };

struct model {
	uint8_t now[MODEL_BYTES], durable[MODEL_BYTES];
	uint64_t bytes, bytes_durable;
};

static void random_change(struct kv_env_file *f, struct model *m)
{
	static uint8_t data[MODEL_BYTES];
	uint64_t at = roll() % MODEL_BYTES, n = roll() % KV_MIN(MODEL_BYTES - at, (uint64_t)3000);

	switch (roll() % 8) {
	case 0:
		ck_ok(ops->truncate(f, at));
		memset(m->now + at, 0, MODEL_BYTES - at);
		m->bytes = at;
		break;
	case 1:
		ck_ok(ops->sync(f));
		memcpy(m->durable, m->now, MODEL_BYTES);
		m->bytes_durable = m->bytes;
		break;
	case 2:
		ck_ok(ops->allocate(f, at, n, true));
		m->bytes = n ? KV_MAX(m->bytes, at + n) : m->bytes;
		break;
	default:
		memset(data, (int)(roll() % 255 + 1), n);
		ck_ok(kv_env_write(env, f, kv_slice(data, n), at));
		memcpy(m->now + at, data, n);
		m->bytes = n ? KV_MAX(m->bytes, at + n) : m->bytes;
	}
}

static void check_crash(const struct model *m, enum kv_sim_crash how)
{
	static uint8_t got[MODEL_BYTES];
	struct kv_env_file *f;
	uint64_t bytes = 0;
	size_t n;

	crash(how, roll());
	f = open_file("a", KV_ENV_READ);
	ck_ok(ops->size(f, &bytes));
	memset(got, 0, sizeof(got));
	ck_ok(ops->pread(f, got, sizeof(got), 0, &n));
	ck_assert_uint_eq(n, bytes);
	ops->close(f);
	if (how != KV_SIM_RANDOM) {
		bool drop = how == KV_SIM_DROP_ALL;

		ck_assert_uint_eq(bytes, drop ? m->bytes_durable : m->bytes);
		ck_assert_mem_eq(got, drop ? m->durable : m->now, bytes);
		return;
	}
	ck_assert_uint_ge(bytes, KV_MIN(m->bytes, m->bytes_durable));
	ck_assert_uint_le(bytes, KV_MAX(m->bytes, m->bytes_durable));
	for (uint64_t at = 0; at < bytes; at += KV_SIM_SECTOR_BYTES) {
		size_t len = KV_MIN(bytes - at, (uint64_t)KV_SIM_SECTOR_BYTES);

		ck_assert(!memcmp(got + at, m->now + at, len) ||
			  !memcmp(got + at, m->durable + at, len));
	}
}

UNIT(crashes_agree_with_a_model)
{
	static struct model m;
	struct kv_env *disk;
	struct kv_env_dir *disk_dir;
	struct kv_env_file *f;

	seed_rolls();
	enter(kv_env_sim_new(roll()));
	f = open_file("a", KV_ENV_CREATE);
	ck_ok(ops->dir_sync(dir));
	for (int i = 0; i < 1500; i++) {
		random_change(f, &m);
		disk = env;
		disk_dir = dir;
		enter(kv_env_sim_clone(disk));
		check_crash(&m, roll() % 3);
		leave();
		env = disk;
		dir = disk_dir;
	}
	ops->close(f);
	leave();
}
UNIT_END

static void *write_much(void *arg)
{
	const char *name = arg;
	struct kv_env_file *f;

	for (int i = 0; i < 100; i++) {
		if (ops->open(dir, name, KV_ENV_CREATE, &f) ||
		    kv_env_write(env, f, kv_slice_str(name), (uint64_t)i * 1000) || ops->sync(f))
			return arg;
		ops->close(f);
		if (ops->dir_sync(dir) || ops->unlink(dir, name))
			return arg;
	}
	return NULL;
}

UNIT(threads_may_share_it)
{
	static char names[4][2] = { "a", "b", "c", "d" };
	pthread_t threads[4];
	void *failed;

	enter(kv_env_sim_new(1));
	for (int i = 0; i < 4; i++)
		ck_ok(pthread_create(&threads[i], NULL, write_much, names[i]));
	for (int i = 0; i < 20; i++)
		kv_env_sim_free(kv_env_sim_clone(env));
	for (int i = 0; i < 4; i++) {
		ck_ok(pthread_join(threads[i], &failed));
		ck_assert_ptr_null(failed);
	}
	ck_assert_uint_eq(kv_env_sim_used(env), 0);
	leave();
}
UNIT_END

UNIT(links_are_names_of_their_own_in_a_crash)
{
	struct kv_env_dir *other;

	enter(kv_env_sim_new(1));
	ck_ok(ops->dir_open(env, "/other", true, &other));
	put("a", KV_ENV_CREATE, "shared", true);
	ck_ok(ops->dir_sync(dir));
	ck_ok(ops->link(dir, "a", other, "kept"));
	ck_ok(ops->dir_sync(other));
	ck_ok(ops->link(dir, "a", other, "lost"));
	ck_ok(ops->unlink(dir, "a"));
	ck_ok(ops->dir_sync(dir));
	ops->dir_close(other);
	crash(KV_SIM_DROP_ALL, 0);
	ck_assert_str_eq(content("a"), "-");
	ops->dir_close(dir);
	ck_ok(ops->dir_open(env, "/other", false, &dir));
	ck_assert_str_eq(content("kept"), "shared");
	ck_assert_str_eq(content("lost"), "-");
	leave();
}
UNIT_END

UNIT(an_empty_directory_can_be_removed)
{
	struct kv_env_dir *other;
	struct kv_env *copy;

	enter(kv_env_sim_new(1));
	ck_assert_int_eq(ops->dir_remove(env, "/other"), -ENOENT);
	ck_ok(ops->dir_open(env, "/other", true, &other));
	put("a", KV_ENV_CREATE, "a", true);
	ck_ok(ops->link(dir, "a", other, "b"));
	ck_ok(ops->dir_sync(other));
	ck_assert_int_eq(ops->dir_remove(env, "/other"), -ENOTEMPTY);
	ck_ok(ops->unlink(other, "b"));
	ops->dir_close(other);
	ck_ok(ops->dir_remove(env, "/other"));
	ck_assert_int_eq(ops->dir_open(env, "/other", false, &other), -ENOENT);
	copy = kv_env_sim_clone(env);
	kv_env_sim_crash(copy, KV_SIM_DROP_ALL, 0);
	ck_assert_int_eq(ops->dir_open(copy, "/other", false, &other), -ENOENT);
	kv_env_sim_free(copy);
	/* The next one of that name is empty. */
	ck_ok(ops->dir_open(env, "/other", true, &other));
	ops->dir_close(other);
	ck_ok(ops->dir_remove(env, "/other"));
	leave();
}
UNIT_END

UNIT(a_shared_lock_makes_no_file)
{
	struct kv_env_file *lock;
	uint64_t before;

	enter(kv_env_sim_new(1));
	before = kv_env_sim_ops(env);
	ck_ok(ops->lock(dir, "LOCK", true, &lock));
	ops->close(lock);
	ck_assert(!exists("LOCK"));
	ck_assert_uint_eq(kv_env_sim_ops(env), before);
	leave();
}
UNIT_END

UNIT_MAIN("env_sim", links_are_names_of_their_own_in_a_crash, an_empty_directory_can_be_removed,
	  a_shared_lock_makes_no_file, it_is_an_env, unsynced_data_is_dropped_synced_is_kept,
	  random_crashes_reach_every_outcome, unsynced_names_are_dropped, rename_is_atomic,
	  a_file_renamed_away_is_never_lost, handles_and_locks_die_in_a_crash,
	  every_mutating_call_can_be_the_last, a_stopped_write_is_torn_only_when_asked,
	  faults_hit_what_they_are_planned_for, a_failed_sync_loses_the_data,
	  a_disk_fills_up_and_gets_room_again, clones_do_not_see_each_other, bits_flip_for_good,
	  clock_and_random_repeat, a_hook_can_clone_before_each_call, crashes_agree_with_a_model,
	  threads_may_share_it)
