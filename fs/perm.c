#include "fs/perm.h"

#define CAPS_NAME "security.capability"

bool fs_caller_in_group(const struct fs_caller *caller, uint32_t gid)
{
	if (!caller || !caller->in_group)
		return true;
	return caller->in_group(caller->arg, gid);
}

/* S_ISGID without S_IXGRP marked mandatory locking once, and still means no privilege. */
uint32_t fs_mode_without_set_id(uint32_t mode)
{
	mode &= ~(uint32_t)S_ISUID;
	if (mode & S_IXGRP)
		mode &= ~(uint32_t)S_ISGID;
	return mode;
}

int fs_kill_priv(struct fs_tx *tx, fs_ino ino, struct fs_attr *attr)
{
	struct fs_key key;
	int err;

	if (!S_ISDIR(attr->mode))
		attr->mode = fs_mode_without_set_id(attr->mode);
	if (!(attr->flags & FS_ATTR_CAPS))
		return 0;
	key = fs_key_xattr(ino, kv_slice_str(CAPS_NAME));
	err = kv_exists(tx->fs->kv, NULL, fs_key_slice(&key));
	if (!err)
		fs_tx_delete(tx, &key);
	else if (err != KV_E_not_found)
		return err;
	attr->flags &= ~(uint32_t)FS_ATTR_CAPS;
	return 0;
}
