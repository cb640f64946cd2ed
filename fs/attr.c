/* getattr and setattr. */
#include "fs/extent.h"
#include "fs/perm.h"
#include "fs/tx.h"

#define NS_PER_S 1000000000

int fs_getattr(struct fs *fs, fs_ino ino, struct fs_attr *out)
{
	struct fs_inode *i;
	int err;

	KV_TRY(fs_inode_get(fs, ino, &i));
	err = fs_inode_attr(i, out);
	fs_inode_put(fs, i);
	return err;
}

static bool time_ok(const struct timespec *t)
{
	return t->tv_nsec >= 0 && t->tv_nsec < NS_PER_S;
}

static int check_times(const struct fs_attr *in, uint32_t set)
{
	if ((set & FS_SET_ATIME && !time_ok(&in->atime)) ||
	    (set & FS_SET_MTIME && !time_ok(&in->mtime)) ||
	    (set & FS_SET_CTIME && !time_ok(&in->ctime)))
		return -EINVAL;
	return 0;
}

/*
 * Holes read as zeros, so growing only needs the number. The same size is a change, too: who
 * empties an empty file wants its time, and the kernel leaves that to us.
 */
static int set_size(struct fs_tx *tx, struct fs_inode *i, struct fs_attr *a, uint64_t size,
		    struct timespec now)
{
	if (!S_ISREG(a->mode))
		return S_ISDIR(a->mode) ? -EISDIR : -EINVAL;
	if (size > FS_FILE_BYTES_MAX)
		return -EFBIG;
	if (size < a->size)
		KV_TRY(fs_extent_punch(tx, i, a, size, UINT64_MAX));
	a->size = size;
	a->mtime = now;
	return 0;
}

static void set_times(struct fs_attr *a, const struct fs_attr *in, uint32_t set,
		      struct timespec now)
{
	if (set & FS_SET_ATIME)
		a->atime = in->atime;
	if (set & FS_SET_ATIME_NOW)
		a->atime = now;
	if (set & FS_SET_MTIME)
		a->mtime = in->mtime;
	if (set & FS_SET_MTIME_NOW)
		a->mtime = now;
	a->ctime = set & FS_SET_CTIME ? in->ctime : now;
}

/* Owner, then mode: whether S_ISGID may be set hangs on the new group; and a mode that is given stays. */
static int set_owner_and_mode(struct fs_tx *tx, struct fs_attr *a, const struct fs_attr *in,
			      uint32_t set, const struct fs_caller *caller)
{
	bool chown = set & (FS_SET_UID | FS_SET_GID);

	if (set & FS_SET_UID)
		a->uid = in->uid;
	if (set & FS_SET_GID)
		a->gid = in->gid;
	if ((chown && !S_ISDIR(a->mode)) || set & FS_SET_KILL_PRIV)
		KV_TRY(fs_kill_priv(tx, a->ino, a));
	if (set & FS_SET_MODE) {
		a->mode = (a->mode & S_IFMT) | (in->mode & 07777);
		if (a->mode & S_ISGID && !fs_caller_in_group(caller, a->gid))
			a->mode &= ~(uint32_t)S_ISGID;
	}
	return 0;
}

static int setattr_staged(struct fs_tx *tx, struct fs_inode *i, const struct fs_attr *in,
			  uint32_t set, const struct fs_caller *caller, struct fs_attr *out)
{
	struct timespec now = fs_now(tx->fs);
	struct fs_attr a;

	KV_TRY(fs_tx_attr_get(tx, i, &a));
	if (set) {
		if (set & FS_SET_SIZE)
			KV_TRY(set_size(tx, i, &a, in->size, now));
		KV_TRY(set_owner_and_mode(tx, &a, in, set, caller));
		set_times(&a, in, set, now);
		fs_tx_attr(tx, i, &a);
		KV_TRY(fs_tx_commit(tx, false));
	}
	*out = a;
	return 0;
}

int fs_setattr(struct fs *fs, fs_ino ino, const struct fs_attr *in, uint32_t set,
	       const struct fs_caller *caller, struct fs_attr *out)
{
	struct fs_inode *i;
	struct fs_tx tx;
	int err;

	if (fs->read_only)
		return -EROFS;
	KV_TRY(check_times(in, set));
	KV_TRY(fs_inode_get(fs, ino, &i));
	kv_mutex_lock(&i->mu);
	fs_tx_begin(&tx, fs);
	err = setattr_staged(&tx, i, in, set, caller, out);
	fs_tx_done(&tx);
	kv_mutex_unlock(&i->mu);
	fs_inode_put(fs, i);
	return err;
}
