/* Formatting, as a function that tests call, too. */
#ifndef MKFS_MKFS_H
#define MKFS_MKFS_H

#include "fs/core.h"

struct mkfs_options {
	struct kv_msg msg;
	bool force;			/* replace an old store; settle among other files */
	const char *label;		/* NULL: none */
	const uint8_t *uuid;		/* NULL: drawn */
	uint32_t root_mode, root_uid, root_gid;
	const char *source;		/* NULL, or the directory tree to fill it with */
};

/*
 * Makes a filesystem in the directory (made when it isn't there). The new store is made aside,
 * in a directory within, and moved to its place when it is complete: whatever
 * happens, there is the old state, or no store, or the new one whole.
 *
 * Failures are reported: -EEXIST for what needs force, KV_E_locked for a store in use.
 */
int mkfs_format(const char *dir, const struct mkfs_options *options) KV_NODISCARD;

#endif
