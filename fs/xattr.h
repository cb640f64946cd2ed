/*
 * Extended attributes: one XATTR record each. Flags in the inode's attributes say what
 * there can be (FS_ATTR_XATTRS, _ACL, _CAPS), so that nobody looks in vain. fs_getxattr() and
 * its like (fs/core.h) are here too.
 *
 * The caller of what stages something holds inode->mu, and stages *attr.
 */
#ifndef FS_XATTR_H
#define FS_XATTR_H

#include "fs/tx.h"

/* Names of one inode, each with its 0 byte, together: what listxattr(2) can return. */
#define FS_XATTR_LIST_BYTES_MAX 65536

/*
 * What a write, a truncate and a change of the owner do to a regular file: stages the removal
 * of security.capability, and clears set-user-id, and set-group-id if the group may execute.
 */
int fs_xattr_kill_priv(struct fs_tx *tx, struct fs_inode *inode, struct fs_attr *attr)
	KV_NODISCARD;
/* Stages the removal of all that the inode has; attr: of the inode that is being deleted. */
int fs_xattr_delete_all(struct fs_tx *tx, const struct fs_attr *attr) KV_NODISCARD;

#endif
