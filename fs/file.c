/* Contents of regular files: read, write, allocate, seek, copy. */
#include <inttypes.h>
#include <linux/falloc.h>
#include <unistd.h>

#include "fs/extent.h"
#include "fs/perm.h"

/*
 * One call of fs_copy_range() does no more than this, so that its batch stays small: parts count in
 * it (KV_BATCH_BYTES_MAX) as if they were copied, which they are where they can't be shared.
 */
#define FS_COPY_BYTES_MAX ((uint64_t)16 << 20)

/* Files whose bytes lie in the attributes are kept for a later version, that would set a feature. */
static int check_regular(struct fs *fs, const struct fs_attr *attr)
{
	if (S_ISDIR(attr->mode))
		return -EISDIR;
	if (!S_ISREG(attr->mode))
		return -EINVAL;
	if (attr->flags & FS_ATTR_INLINE)
		return fs_damaged(fs, "inode %" PRIu64 ": a regular file with inline bytes", attr->ino);
	return 0;
}

static int check_range(uint64_t offset, uint64_t bytes)
{
	return offset > FS_FILE_BYTES_MAX || bytes > FS_FILE_BYTES_MAX - offset ? -EFBIG : 0;
}

static void stamp(struct fs *fs, struct fs_attr *attr)
{
	attr->mtime = attr->ctime = fs_now(fs);
}

/* --- reading ------------------------------------------------------------------------------ */

static bool is_later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

/* relatime: not since the last change, or not for a day. */
static bool atime_is_due(const struct fs_attr *attr, struct timespec now)
{
	const time_t day_s = 24 * 3600;

	return !is_later(attr->atime, attr->mtime) || !is_later(attr->atime, attr->ctime) ||
	       now.tv_sec - attr->atime.tv_sec >= day_s;
}

static int atime_update_locked(struct fs *fs, struct fs_inode *inode, struct timespec now)
{
	KV_AUTO(fs_tx_done) struct fs_tx tx;
	struct fs_attr attr;

	fs_tx_begin(&tx, fs);
	KV_TRY(fs_tx_attr_get(&tx, inode, &attr));
	if (!atime_is_due(&attr, now))
		return 0;
	attr.atime = now;
	fs_tx_attr(&tx, inode, &attr);
	return fs_tx_commit(&tx, false);
}

/* The one case in which a read takes inode->mu: once a day, or after each change, with relatime. */
static void atime_update(struct fs *fs, struct fs_inode *inode, const struct fs_attr *attr)
{
	struct timespec now;

	if (!fs->options.relatime || fs->read_only)
		return;
	now = fs_now(fs);
	if (!atime_is_due(attr, now))
		return;
	kv_mutex_lock(&inode->mu);
	/* What was read has been read, whether its time can be stored or not. */
	(void)atime_update_locked(fs, inode, now);
	kv_mutex_unlock(&inode->mu);
}

static int read_inode(struct fs *fs, struct fs_inode *inode, void *to, size_t bytes,
		      uint64_t offset, size_t *out_bytes)
{
	struct fs_attr attr;
	int err = KV_E_not_found;

	KV_TRY(fs_inode_attr(inode, &attr));
	KV_TRY(check_regular(fs, &attr));
	if (offset >= attr.size || !bytes) {
		*out_bytes = 0;
		return 0;
	}
	bytes = KV_MIN((uint64_t)bytes, attr.size - offset);
	if (attr.extents == 1 && offset + bytes <= FS_EXTENT_BYTES_MAX)
		err = fs_extent_read_first(fs, inode->ino, to, bytes, offset);
	if (kv_err_is(err, KV_E_not_found))
		err = fs_extent_read(fs, inode->ino, to, bytes, offset);
	if (err)
		return err;
	atime_update(fs, inode, &attr);
	*out_bytes = bytes;
	return 0;
}

int fs_read(struct fs *fs, fs_ino ino, void *to, size_t bytes, uint64_t offset, size_t *out_bytes)
{
	struct fs_inode *inode;
	int err;

	KV_TRY(fs_inode_get(fs, ino, &inode));
	err = read_inode(fs, inode, to, bytes, offset, out_bytes);
	fs_inode_put(fs, inode);
	return err;
}

int fs_lseek(struct fs *fs, fs_ino ino, uint64_t offset, int whence, uint64_t *out)
{
	struct fs_inode *inode;
	struct fs_attr attr;
	int err;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	KV_TRY(fs_inode_get(fs, ino, &inode));
	err = fs_inode_attr(inode, &attr);
	if (!err)
		err = check_regular(fs, &attr);
	if (!err)
		err = fs_extent_seek(fs, ino, offset, attr.size, whence == SEEK_HOLE, out);
	fs_inode_put(fs, inode);
	return err;
}

/* --- writing ----------------------------------------------------------------------------- */

static int write_locked(struct fs *fs, struct fs_inode *inode, const void *from, size_t bytes,
			uint64_t offset, uint32_t flags)
{
	KV_AUTO(fs_tx_done) struct fs_tx tx;
	struct fs_attr attr;

	fs_tx_begin(&tx, fs);
	KV_TRY(fs_tx_attr_get(&tx, inode, &attr));
	KV_TRY(check_regular(fs, &attr));
	if (!bytes)
		return 0;
	KV_TRY(fs_extent_write(&tx, inode, &attr, from, bytes, offset));
	attr.size = KV_MAX(attr.size, offset + bytes);
	if (!(flags & FS_WRITE_KEEP_TIMES))
		stamp(fs, &attr);
	if (flags & FS_WRITE_KILL_PRIV)
		KV_TRY(fs_kill_priv(&tx, inode->ino, &attr));
	fs_tx_attr(&tx, inode, &attr);
	return fs_tx_commit(&tx, flags & FS_WRITE_SYNC);
}

int fs_write(struct fs *fs, fs_ino ino, const void *from, size_t bytes, uint64_t offset,
	     uint32_t flags)
{
	struct fs_inode *inode;
	int err;

	if (bytes > FS_WRITE_BYTES_MAX)
		return -EINVAL;
	KV_TRY(check_range(offset, bytes));
	KV_TRY(fs_inode_get(fs, ino, &inode));
	kv_mutex_lock(&inode->mu);
	err = write_locked(fs, inode, from, bytes, offset, flags);
	kv_mutex_unlock(&inode->mu);
	fs_inode_put(fs, inode);
	return err;
}

int fs_sync(struct fs *fs)
{
	return fs->read_only ? 0 : kv_sync(fs->kv);
}

/* --- allocating ------------------------------------------------------------------------------ */

/*
 * Space cannot be set aside in a log: allocating makes the file longer, with a hole, and
 * only refuses what could not be written now for certain. A later write can
 * still fail with no space.
 */
static int check_space(struct fs *fs, const struct fs_attr *attr, uint64_t bytes)
{
	struct statvfs st;

	KV_TRY(fs_statfs(fs, &st));
	if (bytes > attr->bytes && (bytes - attr->bytes) / st.f_frsize > st.f_bavail)
		return -ENOSPC;
	return 0;
}

static int fallocate_locked(struct fs *fs, struct fs_inode *inode, int mode, uint64_t offset,
			    uint64_t bytes)
{
	KV_AUTO(fs_tx_done) struct fs_tx tx;
	bool punch = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);
	struct fs_attr attr;

	fs_tx_begin(&tx, fs);
	KV_TRY(fs_tx_attr_get(&tx, inode, &attr));
	if (!S_ISREG(attr.mode))
		return S_ISDIR(attr.mode) ? -EISDIR : -ENODEV;
	KV_TRY(check_regular(fs, &attr));
	if (punch)
		KV_TRY(fs_extent_punch(&tx, inode, &attr, offset, offset + bytes));
	else
		KV_TRY(check_space(fs, &attr, bytes));
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		attr.size = KV_MAX(attr.size, offset + bytes);
	stamp(fs, &attr);
	KV_TRY(fs_kill_priv(&tx, inode->ino, &attr));
	fs_tx_attr(&tx, inode, &attr);
	return fs_tx_commit(&tx, false);
}

int fs_fallocate(struct fs *fs, fs_ino ino, int mode, uint64_t offset, uint64_t bytes)
{
	struct fs_inode *inode;
	int err;

	switch (mode) {
	case 0:
	case FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (!bytes)
		return -EINVAL;
	KV_TRY(check_range(offset, bytes));
	KV_TRY(fs_inode_get(fs, ino, &inode));
	kv_mutex_lock(&inode->mu);
	err = fallocate_locked(fs, inode, mode, offset, bytes);
	kv_mutex_unlock(&inode->mu);
	fs_inode_put(fs, inode);
	return err;
}

/* --- copying ------------------------------------------------------------------------------------ */

struct copy {
	struct fs_inode *from, *to;
	uint64_t from_offset, to_offset, bytes;
};

/* Cuts the copy at the end of the source and at what one call does; 0 bytes: nothing to do. */
static int copy_clamp(struct copy *c, const struct fs_attr *from)
{
	uint64_t apart = c->from_offset < c->to_offset ? c->to_offset - c->from_offset
						       : c->from_offset - c->to_offset;

	c->bytes = c->from_offset < from->size ? KV_MIN(c->bytes, from->size - c->from_offset) : 0;
	if (!c->bytes)
		return 0;
	if (c->to_offset >= FS_FILE_BYTES_MAX)
		return -EFBIG;
	c->bytes = KV_MIN(c->bytes, FS_FILE_BYTES_MAX - c->to_offset);
	if (c->from == c->to && apart < c->bytes)
		return -EINVAL;
	c->bytes = KV_MIN(c->bytes, FS_COPY_BYTES_MAX);
	return 0;
}

static int copy_locked(struct fs *fs, struct copy *c, uint64_t *out_bytes)
{
	KV_AUTO(fs_tx_done) struct fs_tx tx;
	struct fs_attr from, attr;

	fs_tx_begin(&tx, fs);
	KV_TRY(fs_tx_attr_get(&tx, c->from, &from));
	KV_TRY(fs_tx_attr_get(&tx, c->to, &attr));
	KV_TRY(copy_clamp(c, &from));
	if (c->bytes) {
		KV_TRY(fs_extent_copy(&tx, c->from->ino, c->from_offset, c->to, &attr,
				      c->to_offset, c->bytes, &c->bytes));
		attr.size = KV_MAX(attr.size, c->to_offset + c->bytes);
		stamp(fs, &attr);
		KV_TRY(fs_kill_priv(&tx, c->to->ino, &attr));
		fs_tx_attr(&tx, c->to, &attr);
		KV_TRY(fs_tx_commit(&tx, false));
	}
	*out_bytes = c->bytes;
	return 0;
}

/* Types never change. Only files are locked in the order of their numbers, so this comes before. */
static int copy_check(struct fs *fs, const struct copy *c)
{
	struct fs_attr attr;

	KV_TRY(fs_inode_attr(c->from, &attr));
	KV_TRY(check_regular(fs, &attr));
	KV_TRY(fs_inode_attr(c->to, &attr));
	return check_regular(fs, &attr);
}

/* Takes both locks in the order of the numbers; the one inode's once. */
static int copy_inodes(struct fs *fs, struct copy *c, uint64_t *out_bytes) KV_NO_TSA
{
	struct fs_inode *first = c->from->ino < c->to->ino ? c->from : c->to;
	struct fs_inode *second = first == c->from ? c->to : c->from;
	int err;

	kv_mutex_lock(&first->mu);
	if (second != first)
		kv_mutex_lock(&second->mu);
	err = copy_locked(fs, c, out_bytes);
	if (second != first)
		kv_mutex_unlock(&second->mu);
	kv_mutex_unlock(&first->mu);
	return err;
}

int fs_copy_range(struct fs *fs, fs_ino from, uint64_t from_offset, fs_ino to, uint64_t to_offset,
		  uint64_t bytes, uint64_t *out_bytes)
{
	struct copy c = { .from_offset = from_offset, .to_offset = to_offset, .bytes = bytes };
	int err;

	KV_TRY(fs_inode_get(fs, from, &c.from));
	err = fs_inode_get(fs, to, &c.to);
	if (!err) {
		err = copy_check(fs, &c);
		if (!err)
			err = copy_inodes(fs, &c, out_bytes);
		fs_inode_put(fs, c.to);
	}
	fs_inode_put(fs, c.from);
	return err;
}
