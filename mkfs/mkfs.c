#include "mkfs/mkfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "fs/mounts.h"
#include "kv/filename.h"
#include "mkfs/fill.h"

#define ASIDE_PREFIX ".mkfs-"

struct target {
	const struct mkfs_options *options;
	const char *path;
	int fd;
	int lock_fd;			/* -1: no store was there */
	bool made;			/* the directory is ours: it goes when we fail */
	bool has_root;			/* there is a CURRENT */
	bool has_remains;		/* files named as a store's, or left by a killed mkfs */
	char other[NAME_MAX + 1];	/* some other file, or empty */
	char aside[sizeof(ASIDE_PREFIX) + 24];
};

static const struct kv_msg *msg_of(struct target *t)
{
	return &t->options->msg;
}

static int failed(struct target *t, const char *doing)
{
	int err = -errno;

	return kv_fail(msg_of(t), err, "%s: %s: %s", t->path, doing, strerror(-err));
}

static bool is_aside(const char *name)
{
	return !strncmp(name, ASIDE_PREFIX, strlen(ASIDE_PREFIX));
}

/* A file that a store consists of; CURRENT is not asked for here. */
static bool is_store_file(const char *name)
{
	enum kv_file_kind kind;
	kv_fileno number;

	return kv_filename_parse(name, &kind, &number) || !strcmp(name, KV_NAME_ROOT_NEW) ||
	       !strcmp(name, KV_NAME_LOCK) || !strcmp(name, KV_NAME_LOG) ||
	       !strcmp(name, KV_NAME_LOG_OLD);
}

typedef int name_fn(struct target *t, const char *name);

/* Calls fn for every name in the directory (relative to t->fd). */
static int each_name(struct target *t, const char *dir, name_fn *fn)
{
	int fd = openat(t->fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		err = failed(t, "reading the directory");
		if (fd >= 0)
			close(fd);
		return err;
	}
	while (!err && (errno = 0, e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			err = fn(t, e->d_name);
	if (!err && errno)
		err = failed(t, "reading the directory");
	closedir(d);
	return err;
}

/* --- what is there ------------------------------------------------------------------- */

static int look_at(struct target *t, const char *name)
{
	if (!strcmp(name, KV_NAME_ROOT))
		t->has_root = true;
	else if (is_store_file(name) || is_aside(name))
		t->has_remains = true;
	else if (strcmp(name, "lost+found"))	/* of a fresh host filesystem: empty, and no data */
		snprintf(t->other, sizeof(t->other), "%s", name);
	return 0;
}

/* Nobody may be using the old store; the lock is held until we are done. */
static int lock_old(struct target *t)
{
	char real[PATH_MAX];
	KV_AUTO(kv_buf_done) struct kv_buf where = KV_BUF_INIT;

	t->lock_fd = openat(t->fd, KV_NAME_LOCK, O_RDWR | O_CLOEXEC);
	if (t->lock_fd < 0)
		return errno == ENOENT ? 0 : failed(t, "opening " KV_NAME_LOCK);
	if (flock(t->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (realpath(t->path, real) && fs_mounts_of_store(real, &where))
		return kv_fail(msg_of(t), KV_E_locked,
			       "%s is mounted on %s; unmount it first", t->path,
			       (const char *)where.data);
	return kv_fail(msg_of(t), KV_E_locked, "%s is a kvfs store in use by another process",
		       t->path);
}

static int check_target(struct target *t)
{
	KV_TRY(each_name(t, ".", look_at));
	KV_TRY(lock_old(t));
	if (t->options->force)
		return 0;
	if (t->has_root)
		return kv_fail(msg_of(t), -EEXIST,
			       "%s holds a kvfs store; -f replaces it, and all that is in it is lost",
			       t->path);
	if (t->has_remains)
		return kv_fail(msg_of(t), -EEXIST,
			       "%s holds files of a kvfs store without its " KV_NAME_ROOT
			       "; -f replaces them", t->path);
	if (*t->other)
		return kv_fail(msg_of(t), -EEXIST,
			       "%s is not empty (there is \"%s\"); choose an empty directory, or -f "
			       "to put the store beside what is there", t->path, t->other);
	return 0;
}

/* A source that holds the store would be copied into itself. */
static int check_source(struct target *t)
{
	char source[PATH_MAX], store[PATH_MAX];
	size_t n;

	if (!t->options->source)
		return 0;
	if (!realpath(t->options->source, source))
		return kv_fail(msg_of(t), -errno, "%s: %s", t->options->source, strerror(errno));
	if (!realpath(t->path, store))
		return failed(t, "finding its full path");
	n = strlen(source);
	if (strncmp(store, source, n) || (store[n] && store[n] != '/' && n > 1))
		return 0;
	return kv_fail(msg_of(t), -EINVAL,
		       "%s lies in %s and would be copied into itself; choose a place outside of it",
		       t->path, t->options->source);
}

static int open_target(struct target *t)
{
	if (mkdir(t->path, 0700) == 0)
		t->made = true;
	else if (errno != EEXIST)
		return failed(t, "making the directory");
	t->fd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return t->fd < 0 ? failed(t, "opening the directory") : 0;
}

/* --- making it aside, moving it in ------------------------------------------------------ */

static int unlink_aside_file(struct target *t, const char *name)
{
	char path[sizeof(t->aside) + NAME_MAX + 1];

	snprintf(path, sizeof(path), "%s/%s", t->aside, name);
	return unlinkat(t->fd, path, 0) ? failed(t, "removing what was made") : 0;
}

static int remove_aside(struct target *t)
{
	KV_TRY(each_name(t, t->aside, unlink_aside_file));
	return unlinkat(t->fd, t->aside, AT_REMOVEDIR) ? failed(t, "removing what was made") : 0;
}

static int remove_left_aside(struct target *t, const char *name)
{
	if (!is_aside(name))
		return 0;
	snprintf(t->aside, sizeof(t->aside), "%s", name);
	return remove_aside(t);
}

static int make_aside(struct target *t)
{
	unsigned n = (unsigned)getpid();

	for (int tries = 0; tries < 100; tries++, n++) {
		snprintf(t->aside, sizeof(t->aside), ASIDE_PREFIX "%u", n);
		if (mkdirat(t->fd, t->aside, 0700) == 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	*t->aside = 0;
	return failed(t, "making a directory within");
}

/* Without room beside what is kept back, all that could be written is refused. */
static void warn_of_little_space(struct target *t, struct fs *fs)
{
	struct statvfs s;

	if (!fs_statfs(fs, &s) && !s.f_bavail)
		kv_msg(msg_of(t), KV_MSG_WARN,
		       "%s: the disk has less space left than the store keeps back for deleting, so "
		       "nothing can be written until there is more; see kvfs(8)", t->path);
}

static int make_store(struct target *t, const char *path)
{
	const struct mkfs_options *o = t->options;
	struct fs_format_options format = {
		.kv = { .msg = o->msg },
		.label = o->label,
		.uuid = o->uuid,
		.root_mode = o->root_mode,
		.root_uid = o->root_uid,
		.root_gid = o->root_gid,
	};
	struct fs_options options = { .kv = { .msg = o->msg }, .commit_s = UINT32_MAX };
	struct fs *fs;
	int err, close_err;

	KV_TRY(fs_format(path, &format));
	KV_TRY(fs_open(path, &options, &fs));
	warn_of_little_space(t, fs);
	err = o->source ? mkfs_fill(fs, o->source, &o->msg) : 0;
	close_err = fs_close(fs);
	if (!err && close_err)
		err = kv_fail(&o->msg, close_err, "%s: %s", t->path, kv_err_text(close_err));
	return err;
}

static int unlink_old(struct target *t, const char *name)
{
	if (!is_store_file(name) || !strcmp(name, KV_NAME_LOCK))
		return 0;
	return unlinkat(t->fd, name, 0) ? failed(t, "removing the old store") : 0;
}

static int move_in_named(struct target *t, const char *name)
{
	char path[sizeof(t->aside) + NAME_MAX + 1];

	snprintf(path, sizeof(path), "%s/%s", t->aside, name);
	return renameat(t->fd, path, t->fd, name) ? failed(t, "moving the new store in") : 0;
}

/* The lock stays the old store's, which we hold. */
static int move_in(struct target *t, const char *name)
{
	if (!strcmp(name, KV_NAME_ROOT))
		return 0;
	if (!strcmp(name, KV_NAME_LOCK) && t->lock_fd >= 0)
		return unlink_aside_file(t, name);
	return move_in_named(t, name);
}

static int sync_target(struct target *t)
{
	return fsync(t->fd) ? failed(t, "syncing the directory") : 0;
}

/*
 * CRASH: the old CURRENT goes first and the new one comes last, each durable before
 * the next step: at no moment does a CURRENT lie beside files that are not its own.
 */
static int replace(struct target *t)
{
	if (t->has_root) {
		if (unlinkat(t->fd, KV_NAME_ROOT, 0))
			return failed(t, "removing the old store");
		KV_TRY(sync_target(t));
	}
	KV_TRY(each_name(t, ".", unlink_old));
	KV_TRY(each_name(t, t->aside, move_in));
	KV_TRY(sync_target(t));
	KV_TRY(move_in_named(t, KV_NAME_ROOT));
	if (unlinkat(t->fd, t->aside, AT_REMOVEDIR))
		return failed(t, "removing the directory within");
	*t->aside = 0;
	return sync_target(t);
}

static int format_target(struct target *t)
{
	char path[PATH_MAX];

	KV_TRY(open_target(t));
	KV_TRY(check_source(t));
	KV_TRY(check_target(t));
	if (t->has_remains) {
		KV_TRY(each_name(t, ".", remove_left_aside));
		*t->aside = 0;
	}
	KV_TRY(make_aside(t));
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", t->path, t->aside) >= sizeof(path))
		return kv_fail(msg_of(t), -ENAMETOOLONG, "%s: the name is too long", t->path);
	KV_TRY(make_store(t, path));
	return replace(t);
}

int mkfs_format(const char *dir, const struct mkfs_options *options)
{
	struct target t = { .options = options, .path = dir, .fd = -1, .lock_fd = -1 };
	int err = format_target(&t);

	/* What was made aside goes; a failure of that has been reported, and changes nothing. */
	if (err && *t.aside)
		(void)!remove_aside(&t);
	if (t.lock_fd >= 0)
		close(t.lock_fd);
	if (t.fd >= 0)
		close(t.fd);
	if (err && t.made)
		(void)rmdir(dir);
	return err;
}
