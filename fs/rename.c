/*
 * Rename in all its forms. What it locks, in this order: rename_mu, if it moves between
 * directories or locks two subdirectories; the two directories; the inodes that move or go.
 *
 * Parents of directories change under rename_mu only, so a walk up the tree
 * holds true until it is released.
 */
#include <linux/fs.h>

#include "fs/dirent.h"
#include "fs/namei.h"
#include "fs/orphan.h"

#define DEPTH_MAX 1000000		/* of a walk to the root: more is a ring */
#define WANTS_RENAME_MU 1		/* of rename_once(): start again, holding it */

struct rename {
	struct fs *fs;
	fs_ino from_ino, to_ino;	/* the directories */
	struct kv_slice from, to;
	uint32_t flags;
	bool exclusive;			/* rename_mu is held */

	struct fs_inode *from_dir, *to_dir; /* locked */
	/* The child of one directory on the way down to the other; 0 when it is not above it. */
	fs_ino below_from, below_to;
	struct fs_inode *moved;
	struct fs_inode *other;		/* what `to` names before; NULL: nothing */
	struct fs_attr moved_attr, other_attr;
	struct fs_inode *whiteout;
	fs_ino replaced;		/* may be an orphan now */
};

static bool is_cross(const struct rename *r)
{
	return r->from_ino != r->to_ino;
}

/* *out: the ancestor's child on the way down to `ino`, or 0 when it isn't one. */
static int walk_up(struct fs *fs, fs_ino ino, fs_ino ancestor, fs_ino *out)
{
	for (uint32_t depth = 0; depth < DEPTH_MAX; depth++) {
		struct fs_inode *i;
		struct fs_attr a;
		int err;

		KV_TRY(fs_inode_get(fs, ino, &i));
		err = fs_inode_attr(i, &a);
		fs_inode_put(fs, i);
		if (err)
			return err;
		if (!S_ISDIR(a.mode))
			return -ENOTDIR;
		if (ino == FS_INO_ROOT || a.parent == ancestor) {
			*out = ino == FS_INO_ROOT ? 0 : ino;
			return 0;
		}
		ino = a.parent;
	}
	return fs_damaged(fs, "directory %llu is below itself", (unsigned long long)ino);
}

/* --- locks ------------------------------------------------------------------------------------- */

static int lock_dirs(struct rename *r)
{
	bool from_first;

	if (!is_cross(r)) {
		KV_TRY(fs_dir_lock(r->fs, r->from_ino, &r->from_dir));
		r->to_dir = r->from_dir;
		return 0;
	}
	KV_TRY(walk_up(r->fs, r->to_ino, r->from_ino, &r->below_from));
	KV_TRY(walk_up(r->fs, r->from_ino, r->to_ino, &r->below_to));
	from_first = r->below_from || (!r->below_to && r->from_ino < r->to_ino);
	if (from_first)
		KV_TRY(fs_dir_lock(r->fs, r->from_ino, &r->from_dir));
	KV_TRY(fs_dir_lock(r->fs, r->to_ino, &r->to_dir));
	if (!from_first)
		KV_TRY(fs_dir_lock(r->fs, r->from_ino, &r->from_dir));
	return 0;
}

static void unlock_dirs(struct rename *r)
{
	if (r->to_dir && r->to_dir != r->from_dir)
		fs_inode_unlock(r->fs, r->to_dir);
	if (r->from_dir)
		fs_inode_unlock(r->fs, r->from_dir);
}

static int named_get(struct fs *fs, fs_ino dir, const struct fs_dirent_found *found,
		     struct fs_inode **out, struct fs_attr *out_attr)
{
	struct fs_inode *i;
	int err = fs_inode_get(fs, found->ino, &i);

	if (!err) {
		*out = i;
		err = fs_inode_attr(i, out_attr);
	}
	if (err == -ENOENT)
		return fs_damaged(fs, "directory %llu names inode %llu, which does not exist",
				  (unsigned long long)dir, (unsigned long long)found->ino);
	if (!err && fs_type_of_mode(out_attr->mode) != found->type)
		return fs_damaged(fs, "directory %llu names inode %llu as one of another type",
				  (unsigned long long)dir, (unsigned long long)found->ino);
	return err;
}

/* Directories first, then by number. Two are locked as directories only under rename_mu. */
static bool moved_goes_first(const struct rename *r)
{
	bool moved_is_dir = S_ISDIR(r->moved_attr.mode), other_is_dir = S_ISDIR(r->other_attr.mode);

	if (moved_is_dir != other_is_dir)
		return moved_is_dir;
	return r->moved->ino < r->other->ino;
}

static void lock_children(struct rename *r) KV_NO_TSA
{
	if (r->other && !moved_goes_first(r))
		kv_mutex_lock(&r->other->mu);
	kv_mutex_lock(&r->moved->mu);
	if (r->other && moved_goes_first(r))
		kv_mutex_lock(&r->other->mu);
}

static void unlock_children(struct rename *r) KV_NO_TSA
{
	if (r->other)
		kv_mutex_unlock(&r->other->mu);
	kv_mutex_unlock(&r->moved->mu);
}

/* --- the change ------------------------------------------------------------------------------------ */

/* What rename(2) refuses, by the kinds of the two inodes and where they are. */
static int check(const struct rename *r)
{
	bool moved_is_dir = S_ISDIR(r->moved_attr.mode), other_is_dir;

	if (moved_is_dir && r->moved->ino == r->below_from)
		return -EINVAL;
	if (!r->other)
		return 0;
	other_is_dir = S_ISDIR(r->other_attr.mode);
	if (other_is_dir && r->other->ino == r->below_to)
		return r->flags & RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
	if (r->flags & RENAME_EXCHANGE || moved_is_dir == other_is_dir)
		return 0;
	return moved_is_dir ? -ENOTDIR : -EISDIR;
}

/* Stages that the inode's name is in that directory now. */
static int stage_arrival(struct fs_tx *tx, struct fs_inode *i, fs_ino dir, struct timespec now)
{
	struct fs_attr a;

	KV_TRY(fs_tx_attr_get(tx, i, &a));
	a.parent = dir;
	a.ctime = now;
	fs_tx_attr(tx, i, &a);
	return 0;
}

/* Stages that so many names and subdirectories have come to a directory; it may be staged already. */
static int stage_dir(struct fs_tx *tx, struct fs_inode *d, int entries, struct kv_slice name,
		     int subdirs, struct timespec now)
{
	struct fs_attr a;

	KV_TRY(fs_dir_attr(tx, d, &a));
	KV_TRY(fs_dir_count(tx, &a, entries, name.bytes, subdirs, now));
	fs_tx_attr(tx, d, &a);
	return 0;
}

/* Leaves a character device 0/0 where the name was: what overlayfs takes for "deleted". */
static int stage_whiteout(struct rename *r, struct fs_tx *tx, struct timespec now)
{
	struct fs_attr a = {
		.mode = S_IFCHR,
		.nlink = 1,
		.uid = r->moved_attr.uid,
		.gid = r->moved_attr.gid,
		.parent = r->from_ino,
		.atime = now, .mtime = now, .ctime = now, .btime = now,
	};

	KV_TRY(fs_make_inode(tx, &a, kv_slice(NULL, 0), &r->whiteout));
	return fs_dirent_replace(tx, r->from_ino, r->from, a.ino, fs_type_of_mode(a.mode));
}

static int stage_move(struct rename *r, struct fs_tx *tx, struct timespec now)
{
	uint8_t type = fs_type_of_mode(r->moved_attr.mode);
	int is_dir = S_ISDIR(r->moved_attr.mode), other_is_dir = 0;
	int stays = !!(r->flags & RENAME_WHITEOUT);

	if (r->other) {
		other_is_dir = S_ISDIR(r->other_attr.mode);
		KV_TRY(fs_unlink_inode(tx, r->other, now));
		KV_TRY(fs_dirent_replace(tx, r->to_ino, r->to, r->moved->ino, type));
		r->replaced = r->other->ino;
	} else {
		KV_TRY(fs_dirent_insert(tx, r->to_ino, r->to, r->moved->ino, type));
	}
	if (stays)
		KV_TRY(stage_whiteout(r, tx, now));
	else
		KV_TRY(fs_dirent_remove(tx, r->from_ino, r->from));
	/* What goes first, so that a full directory can be replaced in. */
	KV_TRY(stage_dir(tx, r->to_dir, 0, r->to, -other_is_dir, now));
	KV_TRY(stage_dir(tx, r->from_dir, stays - 1, r->from, -is_dir, now));
	KV_TRY(stage_dir(tx, r->to_dir, r->other ? 0 : 1, r->to, is_dir, now));
	return stage_arrival(tx, r->moved, r->to_ino, now);
}

static int stage_exchange(struct rename *r, struct fs_tx *tx, struct timespec now)
{
	int is_dir = S_ISDIR(r->moved_attr.mode), other_is_dir = S_ISDIR(r->other_attr.mode);

	KV_TRY(fs_dirent_replace(tx, r->from_ino, r->from, r->other->ino,
				 fs_type_of_mode(r->other_attr.mode)));
	KV_TRY(fs_dirent_replace(tx, r->to_ino, r->to, r->moved->ino,
				 fs_type_of_mode(r->moved_attr.mode)));
	KV_TRY(stage_dir(tx, r->from_dir, 0, r->from, other_is_dir - is_dir, now));
	KV_TRY(stage_dir(tx, r->to_dir, 0, r->to, is_dir - other_is_dir, now));
	KV_TRY(stage_arrival(tx, r->moved, r->to_ino, now));
	return stage_arrival(tx, r->other, r->from_ino, now);
}

static int rename_children(struct rename *r, struct fs_tx *tx)
{
	struct timespec now = fs_now(r->fs);
	int err;

	lock_children(r);
	err = r->flags & RENAME_EXCHANGE ? stage_exchange(r, tx, now) : stage_move(r, tx, now);
	if (!err)
		err = fs_tx_commit(tx, false);
	fs_make_end(r->fs, r->whiteout, err);
	r->whiteout = NULL;
	unlock_children(r);
	return err;
}

/* The directories are locked. */
static int rename_names(struct rename *r, struct fs_tx *tx)
{
	struct fs_dirent_found from, to;
	struct fs_attr a;
	int err;

	KV_TRY(fs_dir_attr(tx, r->from_dir, &a));
	KV_TRY(fs_dir_attr(tx, r->to_dir, &a));
	KV_TRY(fs_dirent_find_staged(tx, r->from_ino, r->from, &from));
	err = fs_dirent_find_staged(tx, r->to_ino, r->to, &to);
	if (err && err != -ENOENT)
		return err;
	if (!err && r->flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (err && r->flags & RENAME_EXCHANGE)
		return -ENOENT;
	if (!err && from.ino == to.ino)
		return 0;	/* two names of one inode: POSIX wants nothing done */
	KV_TRY(named_get(r->fs, r->from_ino, &from, &r->moved, &r->moved_attr));
	if (!err)
		KV_TRY(named_get(r->fs, r->to_ino, &to, &r->other, &r->other_attr));
	KV_TRY(check(r));
	if (!r->exclusive && r->other && S_ISDIR(r->moved_attr.mode) && S_ISDIR(r->other_attr.mode))
		return WANTS_RENAME_MU;
	return rename_children(r, tx);
}

/* Once, from a clean start. */
static int rename_once(struct rename r, fs_ino *out_replaced)
{
	struct fs_tx tx;
	int err;

	fs_tx_begin(&tx, r.fs);
	err = lock_dirs(&r);
	if (!err)
		err = rename_names(&r, &tx);
	fs_tx_done(&tx);
	fs_inode_put(r.fs, r.moved);
	fs_inode_put(r.fs, r.other);
	unlock_dirs(&r);
	if (!err)
		*out_replaced = r.replaced;
	return err;
}

int fs_rename(struct fs *fs, fs_ino from_dir, struct kv_slice from, fs_ino to_dir,
	      struct kv_slice to, uint32_t flags)
{
	struct rename r = { .fs = fs, .from_ino = from_dir, .to_ino = to_dir, .from = from,
			    .to = to, .flags = flags };
	fs_ino replaced = 0;
	int err;

	if (flags & ~(uint32_t)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) ||
	    (flags & RENAME_EXCHANGE && flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)))
		return -EINVAL;
	KV_TRY(fs_name_check_change(from, -EBUSY));
	KV_TRY(fs_name_check_change(to, -EBUSY));
	if (fs->read_only)
		return -EROFS;
	err = is_cross(&r) ? WANTS_RENAME_MU : rename_once(r, &replaced);
	if (err == WANTS_RENAME_MU) {
		r.exclusive = true;
		kv_mutex_lock(&fs->rename_mu);
		err = rename_once(r, &replaced);
		kv_mutex_unlock(&fs->rename_mu);
	}
	if (!err && replaced)
		fs_orphan_consider(fs, replaced);
	return err;
}
