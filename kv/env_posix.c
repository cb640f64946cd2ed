/*
 * Directories of files, by system calls.
 *
 * Two things the kernel does not do for us: it may transfer less than asked,
 * and it tells a failed write-back only once per descriptor (errseq), to
 * whichever call asks first. So syncs of a file are serialised, and the first
 * failure stays with the file for ever.
 */
#include "kv/env.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "kv/lock.h"

#define DIR_MODE 0700
#define FILE_MODE 0600
#define ZEROS_BYTES (64 << 10)

struct posix_dir {
	int fd;
};

struct posix_file {
	int fd;			/* -1: a shared lock where there is no lock file */

	struct kv_mutex mu;	/* held over everything that reports failed write-back */
	int sync_err;		/* first of those failures */
};

static struct posix_dir *to_dir(struct kv_env_dir *dir)
{
	return (struct posix_dir *)(void *)dir;
}

static struct posix_file *to_file(struct kv_env_file *file)
{
	return (struct posix_file *)(void *)file;
}

/* The call again until no signal interrupts it. */
#define RETRY(result, call)              \
	do                               \
		(result) = (call);       \
	while ((result) < 0 && errno == EINTR)

static int result_of(int result)
{
	return result < 0 ? -errno : 0;
}

/* --- directories --------------------------------------------------------------- */

/*
 * CRASH: a store that was just made is reached through the entry of its
 * directory. Where the parent may not be opened, the entry is the caller's care.
 */
static int sync_parent(int dir_fd)
{
	int fd, result;

	RETRY(fd, openat(dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? 0 : -errno;
	RETRY(result, fsync(fd));
	result = result_of(result);
	(void)close(fd);	/* nothing was written through it */
	return result;
}

static int posix_dir_open(struct kv_env *env, const char *path, bool create,
			  struct kv_env_dir **out_dir)
{
	bool made = false;
	struct posix_dir *d;
	int err = 0;

	(void)env;
	if (create) {
		made = mkdir(path, DIR_MODE) == 0;
		if (!made && errno != EEXIST)
			return -errno;
	}
	d = malloc(sizeof(*d));
	if (!d)
		return -ENOMEM;
	RETRY(d->fd, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (d->fd < 0)
		err = -errno;
	else if (made && (err = sync_parent(d->fd)) != 0)
		(void)close(d->fd);	/* the sync's error is the one to tell */
	if (err) {
		free(d);
		return err;
	}
	*out_dir = (struct kv_env_dir *)(void *)d;
	return 0;
}

static void posix_dir_close(struct kv_env_dir *dir)
{
	struct posix_dir *d = to_dir(dir);

	if (!d)
		return;
	(void)close(d->fd);	/* dir_sync is what reports failures */
	free(d);
}

static int posix_dir_remove(struct kv_env *env, const char *path)
{
	(void)env;
	return result_of(rmdir(path));
}

static void closedirp(DIR **stream)
{
	if (*stream)
		(void)closedir(*stream);	/* it was only read */
}

static int posix_dir_list(struct kv_env_dir *dir, kv_env_list_fn *fn, void *arg)
{
	KV_AUTO(closedirp) DIR *stream = NULL;
	struct dirent *e;
	int fd, err;

	/* A descriptor of its own, as the position in the directory belongs to it. */
	RETRY(fd, openat(to_dir(dir)->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0)
		return -errno;
	stream = fdopendir(fd);
	if (!stream) {
		err = -errno;
		(void)close(fd);	/* it was not even read */
		return err;
	}
	while (errno = 0, (e = readdir(stream)) != NULL) {
		if (e->d_type == DT_DIR || !strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		KV_TRY(fn(arg, e->d_name));
	}
	return -errno;
}

static int posix_dir_sync(struct kv_env_dir *dir)
{
	int result;

	RETRY(result, fsync(to_dir(dir)->fd));
	return result_of(result);
}

static int posix_rename(struct kv_env_dir *dir, const char *from, const char *to)
{
	int fd = to_dir(dir)->fd;

	return result_of(renameat(fd, from, fd, to));
}

static int posix_unlink(struct kv_env_dir *dir, const char *name)
{
	return result_of(unlinkat(to_dir(dir)->fd, name, 0));
}

static int posix_link(struct kv_env_dir *dir, const char *name, struct kv_env_dir *to_dir_,
		      const char *to_name)
{
	return result_of(linkat(to_dir(dir)->fd, name, to_dir(to_dir_)->fd, to_name, 0));
}

static int posix_space(struct kv_env_dir *dir, uint64_t *out_bytes_all, uint64_t *out_bytes_free)
{
	struct statvfs s;
	int result;

	RETRY(result, fstatvfs(to_dir(dir)->fd, &s));
	if (result < 0)
		return -errno;
	*out_bytes_all = (uint64_t)s.f_blocks * s.f_frsize;
	*out_bytes_free = (uint64_t)s.f_bavail * s.f_frsize;
	return 0;
}

/* --- opening, closing, locking ----------------------------------------------------- */

/* Takes the descriptor over, also when it fails. */
static int file_new(int fd, struct kv_env_file **out_file)
{
	struct posix_file *f = calloc(1, sizeof(*f));

	if (!f) {
		if (fd >= 0)
			(void)close(fd);	/* nothing was written through it */
		return -ENOMEM;
	}
	f->fd = fd;
	kv_mutex_init(&f->mu);
	*out_file = (struct kv_env_file *)(void *)f;
	return 0;
}

static int open_flags(enum kv_env_mode mode)
{
	switch (mode) {
	case KV_ENV_READ:
		return O_RDONLY;
	case KV_ENV_CREATE:
		return O_RDWR | O_CREAT | O_EXCL;
	case KV_ENV_WRITE:
		return O_RDWR;
	}
	kv_assert_failed("the mode is known", __FILE__, __LINE__);
}

static int posix_open(struct kv_env_dir *dir, const char *name, enum kv_env_mode mode,
		      struct kv_env_file **out_file)
{
	int fd;

	RETRY(fd, openat(to_dir(dir)->fd, name, open_flags(mode) | O_CLOEXEC, FILE_MODE));
	return fd < 0 ? -errno : file_new(fd, out_file);
}

static void posix_close(struct kv_env_file *file)
{
	struct posix_file *f = to_file(file);

	if (!f)
		return;
	if (f->fd >= 0)
		(void)close(f->fd);	/* what matters was synced, and sync reported it */
	kv_mutex_done(&f->mu);
	free(f);
}

/*
 * A reader writes nothing, not even a lock file. Where there is none, nobody has
 * the store open for writing, since a writer makes it first.
 */
static int open_lock(int dir_fd, const char *name, bool shared, int *out_fd)
{
	int fd;

	RETRY(fd, openat(dir_fd, name, (shared ? O_RDONLY : O_RDWR | O_CREAT) | O_CLOEXEC,
			 FILE_MODE));
	if (fd < 0 && !(shared && errno == ENOENT))
		return -errno;
	*out_fd = fd;
	return 0;
}

/* flock: it belongs to the open file, so it excludes this very process, too. */
static int posix_lock(struct kv_env_dir *dir, const char *name, bool shared,
		      struct kv_env_file **out_lock)
{
	int fd = -1, result, err;

	KV_TRY(open_lock(to_dir(dir)->fd, name, shared, &fd));
	if (fd >= 0) {
		RETRY(result, flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB));
		if (result < 0) {
			err = errno == EWOULDBLOCK ? -EBUSY : -errno;
			(void)close(fd);	/* nothing was written through it */
			return err;
		}
	}
	return file_new(fd, out_lock);
}

/* --- reading and writing -------------------------------------------------------------- */

/* True when the range has no end that a file could have. */
static bool too_far(uint64_t offset, uint64_t bytes)
{
	return offset > INT64_MAX || bytes > INT64_MAX - offset;
}

static int posix_pread(struct kv_env_file *file, void *to, size_t bytes, uint64_t offset,
		       size_t *out_bytes)
{
	int fd = to_file(file)->fd;
	size_t done = 0;
	ssize_t n;

	if (too_far(offset, bytes))
		return -EINVAL;
	while (done < bytes) {
		RETRY(n, pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done)));
		if (n < 0)
			return -errno;
		if (!n)
			break;
		done += (size_t)n;
	}
	*out_bytes = done;
	return 0;
}

/* Drops the first bytes, and with them all parts that are empty then. */
static void skip(struct iovec **iov, int *iov_count, size_t bytes)
{
	while (*iov_count && bytes >= (*iov)->iov_len) {
		bytes -= (*iov)->iov_len;
		++*iov;
		--*iov_count;
	}
	if (bytes) {
		(*iov)->iov_base = (char *)(*iov)->iov_base + bytes;
		(*iov)->iov_len -= bytes;
	}
}

static int posix_pwritev(struct kv_env_file *file, struct iovec *iov, int iov_count,
			 uint64_t offset)
{
	int fd = to_file(file)->fd;
	ssize_t n;

	for (skip(&iov, &iov_count, 0); iov_count; skip(&iov, &iov_count, (size_t)n)) {
		if (too_far(offset, 0))
			return -EFBIG;
		RETRY(n, pwritev(fd, iov, KV_MIN(iov_count, IOV_MAX), (off_t)offset));
		if (n < 0)
			return -errno;
		if (!n)
			return -EIO;	/* no progress, and no reason given */
		offset += (uint64_t)n;
	}
	return 0;
}

/* Keeps the first failure; returns it from then on. */
static int keep_err_locked(struct posix_file *f, int err) KV_REQUIRES(&f->mu)
{
	if (!f->sync_err)
		f->sync_err = err;
	return f->sync_err;
}

static int posix_sync(struct kv_env_file *file)
{
	struct posix_file *f = to_file(file);
	int result, err;

	kv_mutex_lock(&f->mu);
	err = f->sync_err;
	if (!err) {
		/* fdatasync covers the size; the times nobody needs. */
		RETRY(result, fdatasync(f->fd));
		err = keep_err_locked(f, result_of(result));
	}
	kv_mutex_unlock(&f->mu);
	return err;
}

static int sync_range(int fd, uint64_t offset, uint64_t bytes, unsigned flags)
{
	int result, err;

	RETRY(result, sync_file_range(fd, (off_t)offset, (off_t)bytes, flags));
	err = result_of(result);
	if (err == -ENOSYS || err == -EOPNOTSUPP || err == -EINVAL || err == -ESPIPE)
		err = 0;	/* a hint, and it isn't taken here */
	return err;
}

/* Waiting, unlike starting, takes the kernel's report of a failure away from the next sync. */
static int posix_writeback(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool wait)
{
	struct posix_file *f = to_file(file);
	int err;

	if (too_far(offset, bytes))
		return -EINVAL;
	if (!bytes)
		return 0;	/* to the kernel this would be the whole file */
	if (!wait)
		return sync_range(f->fd, offset, bytes, SYNC_FILE_RANGE_WRITE);
	kv_mutex_lock(&f->mu);
	err = keep_err_locked(f, sync_range(f->fd, offset, bytes,
					    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
						    SYNC_FILE_RANGE_WAIT_AFTER));
	kv_mutex_unlock(&f->mu);
	return err;
}

/* Growing a file makes a hole only; zeros that were written have their space. */
static int write_zeros(int fd, uint64_t offset, uint64_t end)
{
	static const char zeros[ZEROS_BYTES];
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	for (offset = KV_MAX(offset, (uint64_t)st.st_size); offset < end; offset += (uint64_t)n) {
		RETRY(n, pwrite(fd, zeros, KV_MIN(end - offset, sizeof(zeros)), (off_t)offset));
		if (n < 0)
			return -errno;
		if (!n)
			return -EIO;
	}
	return 0;
}

static int posix_allocate(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool extend)
{
	int fd = to_file(file)->fd, result;

	if (too_far(offset, bytes))
		return -EFBIG;
	if (!bytes)
		return 0;
	RETRY(result, fallocate(fd, extend ? 0 : FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes));
	if (result < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		return extend ? write_zeros(fd, offset, offset + bytes) : 0;
	return result_of(result);
}

static int posix_truncate(struct kv_env_file *file, uint64_t bytes)
{
	int result;

	if (too_far(bytes, 0))
		return -EFBIG;
	RETRY(result, ftruncate(to_file(file)->fd, (off_t)bytes));
	return result_of(result);
}

static int posix_size(struct kv_env_file *file, uint64_t *out_bytes)
{
	struct stat st;

	if (fstat(to_file(file)->fd, &st) < 0)
		return -errno;
	*out_bytes = (uint64_t)st.st_size;
	return 0;
}

static void posix_advise(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool will_need)
{
	if (!too_far(offset, bytes))
		(void)posix_fadvise(to_file(file)->fd, (off_t)offset, (off_t)bytes,
				    will_need ? POSIX_FADV_WILLNEED : POSIX_FADV_DONTNEED);
}

/* --- clock, random -------------------------------------------------------------------------- */

static uint64_t posix_monotonic_ns(struct kv_env *env)
{
	struct timespec t;

	(void)env;
	KV_ASSERT(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void posix_sleep_ns(struct kv_env *env, uint64_t ns)
{
	struct timespec t = {
		.tv_sec = (time_t)(ns / 1000000000),
		.tv_nsec = (long)(ns % 1000000000),
	};

	(void)env;
	/* A signal interrupts it; what is left is in t then. */
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

static uint64_t posix_realtime_ns(struct kv_env *env)
{
	struct timespec t;

	(void)env;
	KV_ASSERT(clock_gettime(CLOCK_REALTIME, &t) == 0);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int posix_random(struct kv_env *env, void *to, size_t bytes)
{
	size_t done = 0;
	ssize_t n;

	(void)env;
	while (done < bytes) {
		RETRY(n, getrandom((char *)to + done, bytes - done, 0));
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	return 0;
}

struct kv_env *kv_env_posix(void)
{
	static const struct kv_env_ops ops = {
		.dir_open = posix_dir_open,
		.dir_close = posix_dir_close,
		.dir_remove = posix_dir_remove,
		.dir_list = posix_dir_list,
		.dir_sync = posix_dir_sync,
		.rename = posix_rename,
		.unlink = posix_unlink,
		.link = posix_link,
		.lock = posix_lock,
		.space = posix_space,
		.open = posix_open,
		.close = posix_close,
		.pread = posix_pread,
		.pwritev = posix_pwritev,
		.sync = posix_sync,
		.writeback = posix_writeback,
		.allocate = posix_allocate,
		.truncate = posix_truncate,
		.size = posix_size,
		.advise = posix_advise,
		.monotonic_ns = posix_monotonic_ns,
		.sleep_ns = posix_sleep_ns,
		.realtime_ns = posix_realtime_ns,
		.random = posix_random,
	};
	static struct kv_env env = { .ops = &ops };

	return &env;
}
