/*
 * What changes of owner, mode and content do to set-id bits and capabilities.
 */
#ifndef FS_PERM_H
#define FS_PERM_H

#include "fs/tx.h"

/* Is the caller in the group, or privileged? NULL is everybody's friend. */
bool fs_caller_in_group(const struct fs_caller *caller, uint32_t gid);
/* The mode without set-id bits, as after a write: S_ISGID only goes where the group may execute. */
uint32_t fs_mode_without_set_id(uint32_t mode);
/* Stages that a file loses its set-id bits and capabilities (FS_SET_KILL_PRIV, FS_WRITE_KILL_PRIV). */
int fs_kill_priv(struct fs_tx *tx, fs_ino ino, struct fs_attr *attr) KV_NODISCARD;

#endif
