/* Filling a new filesystem from a directory tree. */
#ifndef MKFS_FILL_H
#define MKFS_FILL_H

#include "fs/core.h"

/*
 * Copies all below the directory: owners, modes, times, hard and symbolic links, special
 * files, extended attributes, and holes as holes. The root takes over what the directory
 * has. Stops at the first failure, which is reported with its path.
 */
int mkfs_fill(struct fs *fs, const char *source, const struct kv_msg *msg) KV_NODISCARD;

#endif
