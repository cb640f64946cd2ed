/*
 * Inodes that no directory names: a key says so as long as they exist (tx.c puts
 * and deletes it), and a background thread frees them once nobody knows them.
 */
#ifndef FS_ORPHAN_H
#define FS_ORPHAN_H

#include "fs/fs.h"

/*
 * After a commit that took the last name, or when a lookup count fell to 0: frees the inode soon,
 * if it is an orphan and not known. The caller holds no locks (the work may be done here).
 */
void fs_orphan_consider(struct fs *fs, fs_ino ino);
/* At opening: all orphans of the last session. Starts the thread (none with inline_work: work is done at once). */
int fs_reclaim_start(struct fs *fs) KV_NODISCARD;
void fs_reclaim_stop(struct fs *fs);
/* Inodes waiting to be freed. */
uint64_t fs_reclaim_waiting(struct fs *fs);

#endif
