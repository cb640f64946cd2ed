#include "mkfs/fill.h"

#include <fcntl.h>
#include <fts.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)1 << 20)

/* An inode of the source with several names, and what it has become. */
struct linked {
	dev_t dev;
	ino_t ino;
	fs_ino to;
};

/* Who copies: in every group, so that no bit of a mode is taken away. */
static const struct fs_caller privileged;

struct fill {
	struct fs *fs;
	const struct kv_msg *msg;
	void *links;			/* tree of struct linked, tsearch(3) */
	uint8_t *buffer;		/* COPY_BYTES */
	struct kv_buf names, value;	/* of extended attributes */
	bool left_out;			/* an attribute that a mount would not offer has been met */
};

static int failed(struct fill *f, const FTSENT *e, const char *doing, int err)
{
	return kv_fail(f->msg, err, "%s: %s: %s", e->fts_path, doing, kv_err_text(err));
}

static int linked_cmp(const void *a, const void *b)
{
	const struct linked *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

/* --- content -------------------------------------------------------------------------- */

static int copy_range(struct fill *f, int fd, fs_ino to, off_t at, off_t end)
{
	while (at < end) {
		size_t want = (size_t)KV_MIN((off_t)COPY_BYTES, end - at);
		ssize_t n = pread(fd, f->buffer, want, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;	/* it has become shorter meanwhile */
		KV_TRY(fs_write(f->fs, to, f->buffer, (size_t)n, (uint64_t)at, 0));
		at += n;
	}
	return 0;
}

static int copy_data(struct fill *f, const FTSENT *e, fs_ino to)
{
	const struct stat *st = e->fts_statp;
	struct fs_attr size = { .size = (uint64_t)st->st_size }, out;
	off_t data = 0, hole;
	int fd = open(e->fts_accpath, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	while (!err && data < st->st_size) {
		data = lseek(fd, data, SEEK_DATA);
		if (data < 0) {
			/* ENXIO: nothing but a hole is left. */
			err = errno == ENXIO ? 0 : -errno;
			break;
		}
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0) {
			err = -errno;
			break;
		}
		err = copy_range(f, fd, to, data, KV_MIN(hole, st->st_size));
		data = hole;
	}
	close(fd);
	if (err)
		return err;
	return fs_setattr(f->fs, to, &size, FS_SET_SIZE, &privileged, &out);
}

/* --- attributes ------------------------------------------------------------------------ */

static int copy_xattr(struct fill *f, const FTSENT *e, fs_ino to, const char *name)
{
	ssize_t n;

	/* ACLs, and attributes of other filesystems. */
	if (!strncmp(name, "system.", strlen("system."))) {
		if (!f->left_out)
			kv_msg(f->msg, KV_MSG_WARN, "%s: leaving out %s, and all others like it",
			       e->fts_path, name);
		f->left_out = true;
		return 0;
	}
	kv_buf_reset(&f->value);
	KV_TRY(kv_buf_reserve(&f->value, FS_XATTR_BYTES_MAX));
	n = lgetxattr(e->fts_accpath, name, f->value.data, FS_XATTR_BYTES_MAX);
	if (n < 0)
		return errno == ENODATA ? 0 : -errno;
	return fs_setxattr(f->fs, to, kv_slice_str(name), kv_slice(f->value.data, (size_t)n), 0);
}

static int copy_xattrs(struct fill *f, const FTSENT *e, fs_ino to)
{
	ssize_t n = llistxattr(e->fts_accpath, NULL, 0);

	if (n > 0) {
		kv_buf_reset(&f->names);
		KV_TRY(kv_buf_reserve(&f->names, (size_t)n));
		n = llistxattr(e->fts_accpath, (char *)f->names.data, (size_t)n);
	}
	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (size_t at = 0; at < (size_t)n;) {
		const char *name = (const char *)f->names.data + at;
		int err = copy_xattr(f, e, to, name);

		if (err)
			return failed(f, e, name, err);
		at += strlen(name) + 1;
	}
	return 0;
}

/* Last, since all that came before moves the times; and mode after owner, which clears bits of it. */
static int copy_attr(struct fill *f, const FTSENT *e, fs_ino to)
{
	const struct stat *st = e->fts_statp;
	const struct fs_attr in = {
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.atime = st->st_atim,
		.mtime = st->st_mtim,
		.ctime = st->st_ctim,
	};
	struct fs_attr out;

	KV_TRY(fs_setattr(f->fs, to, &in, FS_SET_UID | FS_SET_GID, &privileged, &out));
	return fs_setattr(f->fs, to, &in,
			  FS_SET_ATIME | FS_SET_MTIME | FS_SET_CTIME |
				  (S_ISLNK(st->st_mode) ? 0 : FS_SET_MODE),
			  &privileged, &out);
}

/* --- one entry -------------------------------------------------------------------------- */

static int make_symlink(struct fill *f, const FTSENT *e, fs_ino dir, struct kv_slice name,
			const struct fs_caller *caller, struct fs_attr *out)
{
	ssize_t n = readlink(e->fts_accpath, (char *)f->buffer, COPY_BYTES);

	if (n < 0)
		return -errno;
	return fs_symlink(f->fs, dir, name, kv_slice(f->buffer, (size_t)n), caller, out);
}

static int make(struct fill *f, const FTSENT *e, fs_ino dir, struct kv_slice name,
		struct fs_attr *out)
{
	const struct stat *st = e->fts_statp;
	const struct fs_caller caller = { .uid = st->st_uid, .gid = st->st_gid };

	if (S_ISDIR(st->st_mode))
		return fs_mkdir(f->fs, dir, name, st->st_mode & 07777, &caller, out);
	if (S_ISLNK(st->st_mode))
		return make_symlink(f, e, dir, name, &caller, out);
	KV_TRY(fs_mknod(f->fs, dir, name, st->st_mode, st->st_rdev, &caller, out));
	return S_ISREG(st->st_mode) ? copy_data(f, e, out->ino) : 0;
}

/* *out_done: the entry was one more name of an inode that is there already. */
static int link_known(struct fill *f, const FTSENT *e, fs_ino dir, struct kv_slice name,
		      bool *out_done)
{
	const struct linked key = { .dev = e->fts_statp->st_dev, .ino = e->fts_statp->st_ino };
	void *found = tfind(&key, &f->links, linked_cmp);
	struct fs_attr a;

	*out_done = found;
	if (!found)
		return 0;
	KV_TRY(fs_link(f->fs, (*(struct linked **)found)->to, dir, name, &a));
	fs_forget(f->fs, a.ino, 1);
	return 0;
}

static int remember_link(struct fill *f, const FTSENT *e, fs_ino to)
{
	struct linked *l = malloc(sizeof(*l));

	if (!l)
		return -ENOMEM;
	*l = (struct linked){ e->fts_statp->st_dev, e->fts_statp->st_ino, to };
	if (!tsearch(l, &f->links, linked_cmp)) {
		free(l);
		return -ENOMEM;
	}
	return 0;
}

static int enter(struct fill *f, FTSENT *e)
{
	fs_ino dir = (fs_ino)e->fts_parent->fts_number;
	struct kv_slice name = kv_slice(e->fts_name, e->fts_namelen);
	bool is_dir = S_ISDIR(e->fts_statp->st_mode);
	bool may_be_linked = !is_dir && e->fts_statp->st_nlink > 1, done = false;
	struct fs_attr a = { 0 };

	if (may_be_linked)
		KV_TRY(link_known(f, e, dir, name, &done));
	if (done)
		return 0;
	KV_TRY(make(f, e, dir, name, &a));
	fs_forget(f->fs, a.ino, 1);
	e->fts_number = (long)a.ino;
	if (may_be_linked)
		KV_TRY(remember_link(f, e, a.ino));
	/* A directory's attributes come when it is full. */
	if (is_dir)
		return 0;
	KV_TRY(copy_xattrs(f, e, a.ino));
	return copy_attr(f, e, a.ino);
}

static int visit(struct fill *f, FTSENT *e)
{
	switch (e->fts_info) {
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return failed(f, e, "reading the source", -e->fts_errno);
	case FTS_DC:
		return failed(f, e, "a directory contains itself", -ELOOP);
	case FTS_DP:
		KV_TRY(copy_xattrs(f, e, (fs_ino)e->fts_number));
		return copy_attr(f, e, (fs_ino)e->fts_number);
	default:
		if (e->fts_level == FTS_ROOTLEVEL) {
			if (!S_ISDIR(e->fts_statp->st_mode))
				return failed(f, e, "the source", -ENOTDIR);
			e->fts_number = (long)FS_INO_ROOT;
			return 0;
		}
		return enter(f, e);
	}
}

int mkfs_fill(struct fs *fs, const char *source, const struct kv_msg *msg)
{
	struct fill f = { .fs = fs, .msg = msg };
	char *roots[] = { (char *)source, NULL };
	FTS *fts = fts_open(roots, FTS_PHYSICAL, NULL);
	FTSENT *e;
	int err = 0;

	f.buffer = malloc(COPY_BYTES);
	if (!fts || !f.buffer)
		err = -ENOMEM;
	while (!err && (errno = 0, e = fts_read(fts))) {
		err = visit(&f, e);
		if (err && !kv_err_is(err, KV_E_corrupt))
			(void)failed(&f, e, "copying", err);
	}
	if (!err && errno)
		err = kv_fail(msg, -errno, "%s: %s", source, strerror(errno));
	if (fts)
		fts_close(fts);
	tdestroy(f.links, free);
	free(f.buffer);
	kv_buf_done(&f.names);
	kv_buf_done(&f.value);
	return err;
}
