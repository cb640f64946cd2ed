#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kv/env.h"
#include "kv/errcode.h"
#include "tests/unit/unit.h"

static char path[64];
static struct kv_env *env;
static const struct kv_env_ops *ops;
static struct kv_env_dir *dir;

static void setup(void)
{
	snprintf(path, sizeof(path), "/tmp/kv-env-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(path));
	env = kv_env_posix();
	ops = env->ops;
	ck_ok(ops->dir_open(env, path, false, &dir));
}

static int remove_one(void *arg, const char *name)
{
	(void)arg;
	return ops->unlink(dir, name);
}

static void teardown(void)
{
	ck_ok(ops->dir_list(dir, remove_one, NULL));
	ops->dir_close(dir);
	ck_ok(rmdir(path));
}

static struct kv_env_file *open_file(const char *name, enum kv_env_mode mode)
{
	struct kv_env_file *f = NULL;

	ck_ok(ops->open(dir, name, mode, &f));
	return f;
}

static uint64_t size_of(struct kv_env_file *f)
{
	uint64_t bytes = 77;

	ck_ok(ops->size(f, &bytes));
	return bytes;
}

UNIT(directories_are_made_on_demand_only)
{
	struct kv_env_dir *d = NULL;
	char sub[80];

	setup();
	snprintf(sub, sizeof(sub), "%s/sub", path);
	ck_assert_int_eq(ops->dir_open(env, sub, false, &d), -ENOENT);
	ck_ok(ops->dir_open(env, sub, true, &d));
	ops->dir_close(d);
	ck_ok(ops->dir_open(env, sub, true, &d));
	ops->dir_close(d);
	ck_ok(ops->dir_remove(env, sub));
	ck_assert_int_eq(ops->dir_remove(env, sub), -ENOENT);
	ck_assert_int_eq(ops->dir_open(env, sub, false, &d), -ENOENT);
	ops->close(open_file("a", KV_ENV_CREATE));
	ck_assert_int_eq(ops->dir_remove(env, path), -ENOTEMPTY);
	snprintf(sub, sizeof(sub), "%s/sub/deeper", path);
	ck_assert_int_eq(ops->dir_open(env, sub, true, &d), -ENOENT);
	teardown();
}
UNIT_END

UNIT(modes_of_opening)
{
	struct kv_env_file *f = NULL;
	struct iovec iov = { (void *)(uintptr_t)"x", 1 };

	setup();
	ck_assert_int_eq(ops->open(dir, "a", KV_ENV_READ, &f), -ENOENT);
	ck_assert_int_eq(ops->open(dir, "a", KV_ENV_WRITE, &f), -ENOENT);
	ops->close(open_file("a", KV_ENV_CREATE));
	ck_assert_int_eq(ops->open(dir, "a", KV_ENV_CREATE, &f), -EEXIST);
	f = open_file("a", KV_ENV_WRITE);
	ck_ok(kv_env_write(env, f, kv_slice_str("hello"), 3));
	ck_assert_uint_eq(size_of(f), 8);
	ops->close(f);
	f = open_file("a", KV_ENV_READ);
	ck_assert_int_eq(ops->pwritev(f, &iov, 1, 0), -EBADF);
	ck_assert_uint_eq(size_of(f), 8);
	ops->close(f);
	teardown();
}
UNIT_END

/* More parts than one system call takes, empty ones among them. */
UNIT(many_parts_are_written_in_order)
{
	enum { PARTS = 3000 };
	static struct iovec iov[PARTS];
	static uint8_t want[PARTS * 7], got[PARTS * 7 + 5];
	size_t bytes = 0, n = 0;
	struct kv_env_file *f;

	setup();
	for (size_t i = 0; i < sizeof(want); i++)
		want[i] = (uint8_t)(i * 31 + i / 251);
	for (int i = 0; i < PARTS; i++) {
		iov[i] = (struct iovec){ want + bytes, (size_t)i % 8 };
		bytes += iov[i].iov_len;
	}
	f = open_file("a", KV_ENV_CREATE);
	ck_ok(ops->pwritev(f, iov, PARTS, 11));
	ck_assert_uint_eq(size_of(f), bytes + 11);
	ck_ok(ops->pread(f, got, sizeof(got), 11, &n));
	ck_assert_uint_eq(n, bytes);
	ck_assert_mem_eq(got, want, bytes);
	ck_ok(ops->pread(f, got, 11, 0, &n));
	for (int i = 0; i < 11; i++)
		ck_assert_uint_eq(got[i], 0);
	ops->close(f);
	teardown();
}
UNIT_END

UNIT(reads_are_short_at_the_end_only)
{
	char got[10];
	size_t n = 77;
	struct kv_env_file *f;

	setup();
	f = open_file("a", KV_ENV_CREATE);
	ck_ok(kv_env_write(env, f, kv_slice_str("0123456789"), 0));
	ck_ok(ops->pread(f, got, 10, 4, &n));
	ck_assert_uint_eq(n, 6);
	ck_ok(ops->pread(f, got, 10, 10, &n));
	ck_assert_uint_eq(n, 0);
	ck_ok(ops->pread(f, got, 10, 1000, &n));
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(ops->pread(f, got, 10, UINT64_MAX - 2, &n), -EINVAL);
	ck_ok(kv_env_read_exact(env, f, got, 10, 0));
	ck_assert_int_eq(kv_env_read_exact(env, f, got, 10, 1), KV_E_short_file);
	ck_assert_int_lt(kv_env_write(env, f, kv_slice_str("x"), UINT64_MAX - 2), 0);
	ops->close(f);
	teardown();
}
UNIT_END

UNIT(sync_and_hints_work)
{
	struct kv_env_file *f;

	setup();
	f = open_file("a", KV_ENV_CREATE);
	ck_ok(kv_env_write(env, f, kv_slice_str("0123456789"), 0));
	ck_ok(ops->writeback(f, 0, 10, false));
	ck_ok(ops->writeback(f, 0, 10, true));
	ck_ok(ops->writeback(f, 0, 0, true));
	ck_ok(ops->sync(f));
	ck_ok(ops->dir_sync(dir));
	ops->advise(f, 0, 10, true);
	ops->advise(f, 0, 10, false);
	ops->close(f);
	teardown();
}
UNIT_END

UNIT(allocate_extends_when_asked)
{
	uint8_t b[100];
	struct kv_env_file *f;

	setup();
	f = open_file("a", KV_ENV_CREATE);
	ck_ok(kv_env_write(env, f, kv_slice_str("abc"), 0));
	ck_ok(ops->allocate(f, 0, 1 << 20, false));
	ck_assert_uint_eq(size_of(f), 3);
	ck_ok(ops->allocate(f, 0, 1 << 20, true));
	ck_assert_uint_eq(size_of(f), 1 << 20);
	ck_ok(ops->allocate(f, 0, 100, true));
	ck_assert_uint_eq(size_of(f), 1 << 20);
	ck_ok(ops->allocate(f, 5, 0, true));
	ck_ok(kv_env_read_exact(env, f, b, 100, 0));
	ck_assert_mem_eq(b, "abc", 3);
	for (int i = 3; i < 100; i++)
		ck_assert_uint_eq(b[i], 0);
	ck_ok(ops->truncate(f, 2));
	ck_assert_uint_eq(size_of(f), 2);
	ck_assert_int_eq(ops->truncate(f, UINT64_MAX), -EFBIG);
	ops->close(f);
	teardown();
}
UNIT_END

static int count_names(void *arg, const char *name)
{
	(void)name;
	++*(int *)arg;
	return 0;
}

static int stop_at_once(void *arg, const char *name)
{
	(void)name;
	++*(int *)arg;
	return -EINTR;
}

UNIT(names_change_as_told)
{
	struct kv_env_file *f;
	char sub[80], got[3];
	struct kv_env_dir *d;
	int n = 0;

	setup();
	f = open_file("a", KV_ENV_CREATE);
	ck_ok(kv_env_write(env, f, kv_slice_str("aaa"), 0));
	ops->close(f);
	ops->close(open_file("b", KV_ENV_CREATE));
	ck_ok(ops->rename(dir, "a", "b"));
	ck_assert_int_eq(ops->rename(dir, "a", "b"), -ENOENT);
	ck_assert_int_eq(ops->unlink(dir, "a"), -ENOENT);
	snprintf(sub, sizeof(sub), "%s/sub", path);
	ck_ok(ops->dir_open(env, sub, true, &d));
	ck_ok(ops->link(dir, "b", d, "c"));
	ck_assert_int_eq(ops->link(dir, "b", d, "c"), -EEXIST);
	ck_ok(ops->dir_list(dir, count_names, &n));	/* not the directory */
	ck_assert_int_eq(n, 1);
	ck_ok(ops->unlink(dir, "b"));
	ck_ok(ops->open(d, "c", KV_ENV_READ, &f));
	ck_ok(kv_env_read_exact(env, f, got, 3, 0));
	ck_assert_mem_eq(got, "aaa", 3);
	ops->close(f);
	ck_ok(ops->unlink(d, "c"));
	ops->dir_close(d);
	ck_ok(rmdir(sub));
	teardown();
}
UNIT_END

UNIT(listing_stops_when_told_and_can_be_repeated)
{
	int n = 0;

	setup();
	ops->close(open_file("a", KV_ENV_CREATE));
	ops->close(open_file("b", KV_ENV_CREATE));
	ck_assert_int_eq(ops->dir_list(dir, stop_at_once, &n), -EINTR);
	ck_assert_int_eq(n, 1);
	for (int i = 1; i <= 2; i++) {
		n = 0;
		ck_ok(ops->dir_list(dir, count_names, &n));
		ck_assert_int_eq(n, 2);
	}
	teardown();
}
UNIT_END

UNIT(locks_exclude_also_this_process)
{
	struct kv_env_file *a = NULL, *b = NULL;

	setup();
	ck_ok(ops->lock(dir, "LOCK", false, &a));
	ck_assert_int_eq(ops->lock(dir, "LOCK", false, &b), -EBUSY);
	ck_assert_int_eq(ops->lock(dir, "LOCK", true, &b), -EBUSY);
	ops->close(a);
	ck_ok(ops->lock(dir, "LOCK", true, &a));
	ck_ok(ops->lock(dir, "LOCK", true, &b));
	ops->close(a);
	ck_assert_int_eq(ops->lock(dir, "LOCK", false, &a), -EBUSY);
	ops->close(b);
	ck_ok(ops->lock(dir, "LOCK", false, &a));
	ops->close(a);
	teardown();
}
UNIT_END

UNIT(a_lock_dies_with_its_process)
{
	struct kv_env_file *a = NULL;
	int to_child[2], to_parent[2], status;
	char c;
	pid_t pid;

	setup();
	ck_ok(pipe(to_child));
	ck_ok(pipe(to_parent));
	pid = fork();
	if (!pid) {
		if (ops->lock(dir, "LOCK", false, &a) || write(to_parent[1], "l", 1) != 1)
			_exit(1);
		if (read(to_child[0], &c, 1) != 1)
			_exit(2);
		_exit(0);
	}
	ck_assert_int_eq(read(to_parent[0], &c, 1), 1);
	ck_assert_int_eq(ops->lock(dir, "LOCK", false, &a), -EBUSY);
	ck_assert_int_eq(write(to_child[1], "x", 1), 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_ok(ops->lock(dir, "LOCK", false, &a));
	ops->close(a);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
	teardown();
}
UNIT_END

/* Rights stand in for the read-only medium; root has them all, so it steps down. */
UNIT(shared_locks_need_no_right_to_write)
{
	struct kv_env_file *lock;
	int status;
	pid_t pid;

	setup();
	for (int with_file = 0; with_file < 2; with_file++) {
		if (with_file) {
			ck_ok(ops->lock(dir, "LOCK", false, &lock));
			ops->close(lock);
		} else {
			/* A shared lock makes no file. */
			ck_ok(ops->lock(dir, "LOCK", true, &lock));
			ops->close(lock);
			ck_assert_int_eq(ops->unlink(dir, "LOCK"), -ENOENT);
		}
		ck_ok(chmod(path, 0555));
		pid = fork();
		if (!pid) {
			char file[80];

			snprintf(file, sizeof(file), "%s/LOCK", path);
			if (with_file && chmod(file, 0444))
				_exit(1);
			if (getuid() == 0 && setuid(65534))
				_exit(2);
			if (ops->lock(dir, "LOCK", false, &lock) != -EACCES)
				_exit(3);
			if (ops->lock(dir, "LOCK", true, &lock))
				_exit(4);
			ops->close(lock);
			_exit(0);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
		ck_ok(chmod(path, 0755));
	}
	teardown();
}
UNIT_END

UNIT(clock_random_and_space_tell_something)
{
	uint64_t all = 0, unused = 0, t;
	uint8_t a[32] = { 0 }, b[32] = { 0 };

	setup();
	t = ops->monotonic_ns(env);
	ck_assert_uint_le(t, ops->monotonic_ns(env));
	ops->sleep_ns(env, 1000);
	ck_assert_uint_le(t + 1000, ops->monotonic_ns(env));
	ck_assert_uint_gt(ops->realtime_ns(env), (uint64_t)1600000000 * 1000000000);
	ck_ok(ops->random(env, a, sizeof(a)));
	ck_ok(ops->random(env, b, sizeof(b)));
	ck_assert_mem_ne(a, b, sizeof(a));
	ck_ok(ops->space(dir, &all, &unused));
	ck_assert_uint_gt(all, 0);
	ck_assert_uint_le(unused, all);
	teardown();
}
UNIT_END

UNIT(descriptors_are_not_inherited)
{
	setup();
	ops->close(open_file("a", KV_ENV_CREATE));
	for (int fd = 3; fd < 64; fd++) {
		char link[64], target[128];
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, target, sizeof(target) - 1);
		if (n > 0 && !strncmp(target, path, strlen(path)))
			ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	}
	teardown();
}
UNIT_END

UNIT_MAIN("env_posix", directories_are_made_on_demand_only, modes_of_opening,
	  many_parts_are_written_in_order, reads_are_short_at_the_end_only, sync_and_hints_work,
	  allocate_extends_when_asked, names_change_as_told,
	  listing_stops_when_told_and_can_be_repeated, locks_exclude_also_this_process,
	  a_lock_dies_with_its_process, shared_locks_need_no_right_to_write,
	  clock_random_and_space_tell_something, descriptors_are_not_inherited)
