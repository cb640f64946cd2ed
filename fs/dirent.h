/*
 * Names in a directory: DIRENT buckets under the keyed hash of the name. The
 * caller holds the directory's mu for what stages something, and counts entries in its attributes.
 */
#ifndef FS_DIRENT_H
#define FS_DIRENT_H

#include "fs/tx.h"

struct fs_dirent_found {
	fs_ino ino;
	uint8_t type;
};

/* -ENOENT. Takes no lock. */
int fs_dirent_find(struct fs *fs, fs_ino dir, struct kv_slice name, struct fs_dirent_found *out)
	KV_NODISCARD;
/* The same as the change has left it so far. */
int fs_dirent_find_staged(struct fs_tx *tx, fs_ino dir, struct kv_slice name,
			  struct fs_dirent_found *out) KV_NODISCARD;
/* Stages a new name. -EEXIST; -ENOSPC when the hash has no slot left. */
int fs_dirent_insert(struct fs_tx *tx, fs_ino dir, struct kv_slice name, fs_ino ino, uint8_t type)
	KV_NODISCARD;
/* Stages that the name, which is there, is another inode's now: same slot. */
int fs_dirent_replace(struct fs_tx *tx, fs_ino dir, struct kv_slice name, fs_ino ino, uint8_t type)
	KV_NODISCARD;
int fs_dirent_remove(struct fs_tx *tx, fs_ino dir, struct kv_slice name) KV_NODISCARD;

/* Checks a name from outside: -ENOENT (empty), -ENAMETOOLONG, -EINVAL ('/' or 0 in it). */
int fs_name_check(struct kv_slice name) KV_NODISCARD;

#endif
