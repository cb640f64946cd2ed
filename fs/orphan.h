/*
 * Inodes that no directory names: a key says so as long as they exist, and a
 * background thread frees them once nobody knows them.
 */
#ifndef FS_ORPHAN_H
#define FS_ORPHAN_H

#include "fs/tx.h"

/* Stages that the inode (nlink 0 now) is an orphan; or is none any more (linkat of O_TMPFILE). */
void fs_orphan_add(struct fs_tx *tx, fs_ino ino);
void fs_orphan_remove(struct fs_tx *tx, fs_ino ino);
/* After the commit, or when its lookup count fell to 0: frees it soon, if it is an orphan and not known. */
void fs_orphan_consider(struct fs *fs, fs_ino ino);
/* At opening: all orphans of the last session. Starts the thread (none with inline_work: work is done at once). */
int fs_reclaim_start(struct fs *fs) KV_NODISCARD;
void fs_reclaim_stop(struct fs *fs);

#endif
