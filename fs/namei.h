/*
 * What namei.c and rename.c share about directories that change. Functions that lock
 * also hold a reference; fs_inode_unlock() takes back both.
 */
#ifndef FS_NAMEI_H
#define FS_NAMEI_H

#include "fs/tx.h"

bool fs_name_is_dots(struct kv_slice name);
/* fs_name_check(), and dots_err for "." and "..", which cannot be made or removed. */
int fs_name_check_change(struct kv_slice name, int dots_err) KV_NODISCARD;

/* -EROFS, -ENOENT, -ENOTDIR. */
int fs_dir_lock(struct fs *fs, fs_ino dir, struct fs_inode **out) KV_NODISCARD;
/* An inode that the (locked) directory names: it must be there. */
int fs_named_lock(struct fs *fs, fs_ino dir, fs_ino ino, struct fs_inode **out) KV_NODISCARD;
void fs_inode_unlock(struct fs *fs, struct fs_inode *i);

/* Attributes as staged so far of a directory that names can be put in; -ENOTDIR, -ENOENT (removed). */
int fs_dir_attr(struct fs_tx *tx, struct fs_inode *dir, struct fs_attr *out) KV_NODISCARD;
/* One name more (entries 1), less (-1) or changed (0), and so many subdirectories; times. -EMLINK, -EUCLEAN. */
int fs_dir_count(struct fs_tx *tx, struct fs_attr *dir, int entries, size_t name_bytes,
		 int subdirs, struct timespec now) KV_NODISCARD;

/*
 * Numbers and stages a new inode, locked; *out is set as soon as it exists. Afterwards, with
 * the result of the whole change: fs_make_end(), which takes NULL.
 */
int fs_make_inode(struct fs_tx *tx, struct fs_attr *attr, struct kv_slice inline_bytes,
		  struct fs_inode **out) KV_NODISCARD;
void fs_make_end(struct fs *fs, struct fs_inode *i, int err);

/* Stages one link less of an inode that is locked. A directory must be empty: -ENOTEMPTY. */
int fs_unlink_inode(struct fs_tx *tx, struct fs_inode *i, struct timespec now) KV_NODISCARD;

#endif
