/*
 * Names: finding, making, linking, removing; rename has a file of its own. A function that
 * changes a directory holds its lock from the first look to the end of the commit.
 */
#include "fs/namei.h"

#include <dirent.h>

#include "fs/dirent.h"
#include "fs/orphan.h"
#include "fs/perm.h"

/* --- lookup, forget ----------------------------------------------------------------------- */

void fs_forget(struct fs *fs, fs_ino ino, uint64_t times)
{
	if (!fs_known_sub(fs, ino, times))
		fs_orphan_consider(fs, ino);
}

/*
 * Makes the inode known once more and copies its attributes; -ENOENT, and not known, when
 * it is gone.
 *
 * An unlink may take the last name away at any moment, also between the caller's look at
 * the name and this. So the count comes first, and the look at `gone` after. The reclaimer
 * (fs_inode_condemn) does both its steps, looking at the count and setting `gone`, under attr_mu, which our
 * look takes too. If it was there before us, we find the inode gone, and take the count back;
 * if we were first, it finds the count, and lets the inode live until that is forgotten.
 */
static int know(struct fs *fs, fs_ino ino, struct fs_attr *out)
{
	struct fs_inode *i = NULL;
	int err;

	KV_TRY(fs_known_add(fs, ino));
	err = fs_inode_get(fs, ino, &i);
	if (!err)
		err = fs_inode_attr(i, out);
	fs_inode_put(fs, i);
	if (err)
		fs_forget(fs, ino, 1);
	return err;
}

/* Is it a directory at all? What a name that was not found means hangs on that. */
static int check_dir(struct fs *fs, fs_ino dir, struct fs_attr *out)
{
	struct fs_inode *d;
	int err;

	KV_TRY(fs_inode_get(fs, dir, &d));
	err = fs_inode_attr(d, out);
	fs_inode_put(fs, d);
	if (err)
		return err;
	return S_ISDIR(out->mode) ? 0 : -ENOTDIR;
}

static int lookup_dots(struct fs *fs, fs_ino dir, bool up, struct fs_attr *out)
{
	struct fs_attr a;

	KV_TRY(check_dir(fs, dir, &a));
	return know(fs, up ? a.parent : dir, out);
}

int fs_lookup(struct fs *fs, fs_ino dir, struct kv_slice name, struct fs_attr *out)
{
	fs_ino missing = 0;

	KV_TRY(fs_name_check(name));
	if (fs_name_is_dots(name))
		return lookup_dots(fs, dir, name.bytes == 2, out);
	for (;;) {
		struct fs_dirent_found found;
		int err = fs_dirent_find(fs, dir, name, &found);

		if (err == -ENOENT) {
			struct fs_attr a;

			KV_TRY(check_dir(fs, dir, &a));
		}
		if (err)
			return err;
		/* Numbers are not used twice: a name that still leads nowhere never led anywhere. */
		if (found.ino == missing)
			return fs_damaged(fs, "directory %llu names inode %llu, which does not exist",
					  (unsigned long long)dir, (unsigned long long)missing);
		err = know(fs, found.ino, out);
		if (err != -ENOENT)
			return err;
		missing = found.ino;
	}
}

int fs_readlink(struct fs *fs, fs_ino ino, struct kv_buf *out)
{
	struct fs_inode *i;
	struct fs_attr a;
	int err;

	KV_TRY(fs_inode_get(fs, ino, &i));
	err = fs_inode_attr(i, &a);
	if (!err && !S_ISLNK(a.mode))
		err = -EINVAL;
	/* A target is never changed, so it needs no lock. */
	if (!err)
		err = kv_buf_assign(out, kv_buf_slice(&i->inline_bytes));
	fs_inode_put(fs, i);
	return err;
}

/* --- directories that change ------------------------------------------------------------------ */

bool fs_name_is_dots(struct kv_slice name)
{
	return kv_slice_eq(name, kv_slice(".", 1)) || kv_slice_eq(name, kv_slice("..", 2));
}

int fs_name_check_change(struct kv_slice name, int dots_err)
{
	KV_TRY(fs_name_check(name));
	return fs_name_is_dots(name) ? dots_err : 0;
}

int fs_dir_attr(struct fs_tx *tx, struct fs_inode *dir, struct fs_attr *out)
{
	struct fs_attr a;

	KV_TRY(fs_tx_attr_get(tx, dir, &a));
	if (!S_ISDIR(a.mode))
		return -ENOTDIR;
	if (!a.nlink)
		return -ENOENT;	/* it has been removed */
	*out = a;
	return 0;
}

int fs_dir_lock(struct fs *fs, fs_ino dir, struct fs_inode **out) KV_NO_TSA
{
	struct fs_inode *d;
	struct fs_attr a;
	int err;

	if (fs->read_only)
		return -EROFS;
	KV_TRY(fs_inode_get(fs, dir, &d));
	/* The type never changes. Files may not be locked here: they come last in the order of locks. */
	err = fs_inode_attr(d, &a);
	if (!err && !S_ISDIR(a.mode))
		err = -ENOTDIR;
	if (err) {
		fs_inode_put(fs, d);
		return err;
	}
	kv_mutex_lock(&d->mu);
	*out = d;
	return 0;
}

void fs_inode_unlock(struct fs *fs, struct fs_inode *i) KV_NO_TSA
{
	kv_mutex_unlock(&i->mu);
	fs_inode_put(fs, i);
}

int fs_named_lock(struct fs *fs, fs_ino dir, fs_ino ino, struct fs_inode **out) KV_NO_TSA
{
	struct fs_inode *i;
	int err = fs_inode_get(fs, ino, &i);

	if (err == -ENOENT)
		return fs_damaged(fs, "directory %llu names inode %llu, which does not exist",
				  (unsigned long long)dir, (unsigned long long)ino);
	if (err)
		return err;
	kv_mutex_lock(&i->mu);
	*out = i;
	return 0;
}

int fs_dir_count(struct fs_tx *tx, struct fs_attr *dir, int entries, size_t name_bytes,
		 int subdirs, struct timespec now)
{
	if (entries < 0 && (!dir->entries || dir->size < name_bytes))
		return fs_damaged(tx->fs, "directory %llu has more names than it counts",
				  (unsigned long long)dir->ino);
	if (subdirs < 0 && dir->nlink <= 2)
		return fs_damaged(tx->fs, "directory %llu has more subdirectories than it counts",
				  (unsigned long long)dir->ino);
	if (subdirs > 0 && dir->nlink >= FS_LINKS_MAX)
		return -EMLINK;
	dir->entries += (uint64_t)(int64_t)entries;
	dir->size += (uint64_t)((int64_t)entries * (int64_t)name_bytes);
	dir->nlink += (uint32_t)subdirs;
	dir->mtime = dir->ctime = now;
	return 0;
}

/* --- making ------------------------------------------------------------------------------------- */

/* What a new inode in the directory begins with: group and set-group-id follow from where it is made. */
static void attr_begin(struct fs *fs, const struct fs_attr *dir, uint32_t mode, uint64_t rdev,
		       const struct fs_caller *caller, struct fs_attr *out)
{
	struct timespec now = fs_now(fs);
	uint32_t gid = caller ? caller->gid : 0;

	if (dir->mode & S_ISGID) {
		gid = dir->gid;
		if (S_ISDIR(mode))
			mode |= S_ISGID;
		else if (mode & S_IXGRP && !fs_caller_in_group(caller, gid))
			mode &= ~(uint32_t)S_ISGID;
	}
	*out = (struct fs_attr){
		.mode = mode,
		.nlink = S_ISDIR(mode) ? 2 : 1,
		.uid = caller ? caller->uid : 0,
		.gid = gid,
		.parent = dir->ino,
		.rdev = S_ISCHR(mode) || S_ISBLK(mode) ? rdev : 0,
		.atime = now, .mtime = now, .ctime = now, .btime = now,
	};
}

int fs_make_inode(struct fs_tx *tx, struct fs_attr *attr, struct kv_slice inline_bytes,
		  struct fs_inode **out) KV_NO_TSA
{
	struct fs_inode *i;

	KV_TRY(fs_ino_take(tx->fs, &attr->ino));
	KV_TRY(fs_inode_new(tx->fs, attr, inline_bytes, &i));
	/*
	 * Readers find the name as soon as the batch is visible, a moment before the
	 * commit returns: until then they wait.
	 */
	kv_mutex_lock(&i->mu);
	fs_tx_attr_new(tx, i, attr);
	*out = i;
	return 0;
}

void fs_make_end(struct fs *fs, struct fs_inode *i, int err)
{
	if (!i)
		return;
	if (err)
		fs_inode_set_gone(i);
	fs_inode_unlock(fs, i);
}

/* Commits what makes an inode, which is known from before anybody can find it. */
static int commit_known(struct fs_tx *tx, fs_ino ino)
{
	int err;

	KV_TRY(fs_known_add(tx->fs, ino));
	err = fs_tx_commit(tx, false);
	if (err)
		(void)fs_known_sub(tx->fs, ino, 1);
	return err;
}

struct make {
	struct kv_slice name;
	uint32_t mode;
	uint64_t rdev;
	struct kv_slice target;		/* of a symbolic link */
	const struct fs_caller *caller;
};

static int make_staged(struct fs_tx *tx, struct fs_inode *d, const struct make *m,
		       struct fs_inode **out_inode, struct fs_attr *out)
{
	struct fs_dirent_found found;
	struct fs_attr dir, a;
	int err;

	KV_TRY(fs_dir_attr(tx, d, &dir));
	err = fs_dirent_find_staged(tx, d->ino, m->name, &found);
	if (err != -ENOENT)
		return err ? err : -EEXIST;
	attr_begin(tx->fs, &dir, m->mode, m->rdev, m->caller, &a);
	if (S_ISLNK(m->mode)) {
		a.size = m->target.bytes;
		a.flags |= FS_ATTR_INLINE;
	}
	KV_TRY(fs_dir_count(tx, &dir, 1, m->name.bytes, S_ISDIR(m->mode), a.ctime));
	KV_TRY(fs_make_inode(tx, &a, m->target, out_inode));
	KV_TRY(fs_dirent_insert(tx, d->ino, m->name, a.ino, fs_type_of_mode(a.mode)));
	fs_tx_attr(tx, d, &dir);
	KV_TRY(commit_known(tx, a.ino));
	*out = a;
	return 0;
}

static int make(struct fs *fs, fs_ino dir, const struct make *m, struct fs_attr *out)
{
	struct fs_inode *d, *i = NULL;
	struct fs_tx tx;
	int err;

	KV_TRY(fs_name_check_change(m->name, -EEXIST));
	KV_TRY(fs_dir_lock(fs, dir, &d));
	fs_tx_begin(&tx, fs);
	err = make_staged(&tx, d, m, &i, out);
	fs_tx_done(&tx);
	fs_make_end(fs, i, err);
	fs_inode_unlock(fs, d);
	return err;
}

int fs_mknod(struct fs *fs, fs_ino dir, struct kv_slice name, uint32_t mode, uint64_t rdev,
	     const struct fs_caller *caller, struct fs_attr *out)
{
	struct make m = { .name = name, .mode = mode & (S_IFMT | 07777), .rdev = rdev,
			  .caller = caller };

	if (!(m.mode & S_IFMT))
		m.mode |= S_IFREG;
	switch (fs_type_of_mode(m.mode)) {
	case DT_REG:
	case DT_CHR:
	case DT_BLK:
	case DT_FIFO:
	case DT_SOCK:
		return make(fs, dir, &m, out);
	default:
		return -EINVAL;
	}
}

int fs_mkdir(struct fs *fs, fs_ino dir, struct kv_slice name, uint32_t mode,
	     const struct fs_caller *caller, struct fs_attr *out)
{
	struct make m = { .name = name, .mode = S_IFDIR | (mode & 07777), .caller = caller };

	return make(fs, dir, &m, out);
}

int fs_symlink(struct fs *fs, fs_ino dir, struct kv_slice name, struct kv_slice target,
	       const struct fs_caller *caller, struct fs_attr *out)
{
	struct make m = { .name = name, .mode = S_IFLNK | 0777, .target = target,
			  .caller = caller };

	if (!target.bytes)
		return -ENOENT;
	if (target.bytes > FS_TARGET_BYTES_MAX)
		return -ENAMETOOLONG;
	if (memchr(target.data, 0, target.bytes))
		return -EINVAL;
	return make(fs, dir, &m, out);
}

static int tmpfile_staged(struct fs_tx *tx, struct fs_inode *d, uint32_t mode,
			  const struct fs_caller *caller, struct fs_inode **out_inode,
			  struct fs_attr *out)
{
	struct fs_attr dir, a;

	KV_TRY(fs_dir_attr(tx, d, &dir));
	attr_begin(tx->fs, &dir, S_IFREG | (mode & 07777), 0, caller, &a);
	a.nlink = 0;
	KV_TRY(fs_make_inode(tx, &a, kv_slice(NULL, 0), out_inode));
	KV_TRY(commit_known(tx, a.ino));
	*out = a;
	return 0;
}

int fs_tmpfile(struct fs *fs, fs_ino dir, uint32_t mode, const struct fs_caller *caller,
	       struct fs_attr *out)
{
	struct fs_inode *d, *i = NULL;
	struct fs_tx tx;
	int err;

	KV_TRY(fs_dir_lock(fs, dir, &d));
	fs_tx_begin(&tx, fs);
	err = tmpfile_staged(&tx, d, mode, caller, &i, out);
	fs_tx_done(&tx);
	fs_make_end(fs, i, err);
	fs_inode_unlock(fs, d);
	return err;
}

/* --- linking --------------------------------------------------------------------------------------- */

static int link_staged(struct fs_tx *tx, struct fs_inode *i, struct fs_inode *d,
		       struct kv_slice name, struct fs_attr *out)
{
	struct fs_attr dir, a;

	KV_TRY(fs_dir_attr(tx, d, &dir));
	KV_TRY(fs_tx_attr_get(tx, i, &a));
	KV_TRY(fs_dirent_insert(tx, d->ino, name, i->ino, fs_type_of_mode(a.mode)));
	if (a.nlink >= FS_LINKS_MAX)
		return -EMLINK;
	if (!a.nlink++)
		a.parent = d->ino;
	a.ctime = fs_now(tx->fs);
	KV_TRY(fs_dir_count(tx, &dir, 1, name.bytes, 0, a.ctime));
	fs_tx_attr(tx, i, &a);
	fs_tx_attr(tx, d, &dir);
	KV_TRY(commit_known(tx, i->ino));
	*out = a;
	return 0;
}

static int link_locked(struct fs *fs, struct fs_inode *i, struct fs_inode *d,
		       struct kv_slice name, struct fs_attr *out)
{
	struct fs_tx tx;
	int err;

	kv_mutex_lock(&i->mu);
	fs_tx_begin(&tx, fs);
	err = link_staged(&tx, i, d, name, out);
	fs_tx_done(&tx);
	kv_mutex_unlock(&i->mu);
	return err;
}

int fs_link(struct fs *fs, fs_ino ino, fs_ino dir, struct kv_slice name, struct fs_attr *out)
{
	struct fs_inode *d, *i;
	struct fs_attr a;
	int err;

	KV_TRY(fs_name_check_change(name, -EEXIST));
	KV_TRY(fs_dir_lock(fs, dir, &d));
	err = fs_inode_get(fs, ino, &i);
	if (!err) {
		/* The type never changes, so it may be looked at before the lock; else d might be i. */
		err = fs_inode_attr(i, &a);
		if (!err)
			err = S_ISDIR(a.mode) ? -EPERM : link_locked(fs, i, d, name, out);
		fs_inode_put(fs, i);
	}
	fs_inode_unlock(fs, d);
	return err;
}

/* --- removing ----------------------------------------------------------------------------------------- */

int fs_unlink_inode(struct fs_tx *tx, struct fs_inode *i, struct timespec now)
{
	struct fs_attr a;

	KV_TRY(fs_tx_attr_get(tx, i, &a));
	if (S_ISDIR(a.mode)) {
		if (a.entries)
			return -ENOTEMPTY;
		a.nlink = 0;
	} else if (a.nlink) {
		a.nlink--;
	} else {
		return fs_damaged(tx->fs, "inode %llu has a name, but no links",
				  (unsigned long long)i->ino);
	}
	a.ctime = now;
	fs_tx_attr(tx, i, &a);
	return 0;
}

static int remove_staged(struct fs_tx *tx, struct fs_inode *d, struct fs_inode *i,
			 struct kv_slice name, bool is_dir)
{
	struct timespec now = fs_now(tx->fs);
	struct fs_attr dir;

	KV_TRY(fs_dir_attr(tx, d, &dir));
	KV_TRY(fs_unlink_inode(tx, i, now));
	KV_TRY(fs_dirent_remove(tx, d->ino, name));
	KV_TRY(fs_dir_count(tx, &dir, -1, name.bytes, -is_dir, now));
	fs_tx_attr(tx, d, &dir);
	return fs_tx_commit(tx, false);
}

static int remove_locked(struct fs_tx *tx, struct fs_inode *d, struct kv_slice name, bool is_dir,
			 fs_ino *out_ino)
{
	struct fs_dirent_found found;
	struct fs_inode *i;
	struct fs_attr a;
	int err;

	KV_TRY(fs_dir_attr(tx, d, &a));
	KV_TRY(fs_dirent_find_staged(tx, d->ino, name, &found));
	if (is_dir != (found.type == DT_DIR))
		return is_dir ? -ENOTDIR : -EISDIR;
	KV_TRY(fs_named_lock(tx->fs, d->ino, found.ino, &i));
	err = fs_inode_attr(i, &a);
	if (!err && fs_type_of_mode(a.mode) != found.type)
		err = fs_damaged(tx->fs, "directory %llu names inode %llu as one of another type",
				 (unsigned long long)d->ino, (unsigned long long)i->ino);
	if (!err)
		err = remove_staged(tx, d, i, name, is_dir);
	fs_inode_unlock(tx->fs, i);
	*out_ino = found.ino;
	return err;
}

static int remove_name(struct fs *fs, fs_ino dir, struct kv_slice name, bool is_dir)
{
	struct fs_inode *d;
	struct fs_tx tx;
	fs_ino ino;
	int err;

	KV_TRY(fs_dir_lock(fs, dir, &d));
	fs_tx_begin(&tx, fs);
	err = remove_locked(&tx, d, name, is_dir, &ino);
	fs_tx_done(&tx);
	fs_inode_unlock(fs, d);
	if (!err)
		fs_orphan_consider(fs, ino);
	return err;
}

int fs_unlink(struct fs *fs, fs_ino dir, struct kv_slice name)
{
	KV_TRY(fs_name_check_change(name, -EISDIR));
	return remove_name(fs, dir, name, false);
}

int fs_rmdir(struct fs *fs, fs_ino dir, struct kv_slice name)
{
	KV_TRY(fs_name_check_change(name, name.bytes == 1 ? -EINVAL : -ENOTEMPTY));
	return remove_name(fs, dir, name, true);
}
