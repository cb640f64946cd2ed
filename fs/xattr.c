/*
 * Extended attributes: one XATTR record each. Flags in the inode's attributes say what
 * there can be (FS_ATTR_XATTRS, _ACL, _CAPS), so that nobody looks in vain.
 */
#include <inttypes.h>
#include <sys/xattr.h>

#include "fs/tx.h"

/* Names of one inode, each with its 0 byte, together: what listxattr(2) can return. */
#define FS_XATTR_LIST_BYTES_MAX 65536

#define XATTR_CAPS_NAME "security.capability"
#define XATTR_ACL_ACCESS_NAME "system.posix_acl_access"
#define XATTR_ACL_DEFAULT_NAME "system.posix_acl_default"

/* --- names --------------------------------------------------------------------------- */

enum xattr_space {
	XATTR_USER,
	XATTR_TRUSTED,
	XATTR_SECURITY,
	XATTR_ACL,
};

static bool has_prefix(struct kv_slice name, const char *prefix)
{
	size_t n = strlen(prefix);

	return name.bytes >= n && !memcmp(name.data, prefix, n);
}

/* -ERANGE: too short or too long; -EINVAL: no name; -EOPNOTSUPP: of none of our namespaces. */
static int name_check(struct kv_slice name, enum xattr_space *out)
{
	static const struct {
		const char *prefix;
		enum xattr_space space;
	} spaces[] = {
		{ "user.", XATTR_USER },
		{ "trusted.", XATTR_TRUSTED },
		{ "security.", XATTR_SECURITY },
	};

	if (!name.bytes || name.bytes > FS_XATTR_NAME_BYTES_MAX)
		return -ERANGE;
	if (memchr(name.data, 0, name.bytes))
		return -EINVAL;
	if (kv_slice_eq(name, kv_slice_str(XATTR_ACL_ACCESS_NAME)) ||
	    kv_slice_eq(name, kv_slice_str(XATTR_ACL_DEFAULT_NAME))) {
		*out = XATTR_ACL;
		return 0;
	}
	for (size_t i = 0; i < KV_ARRAY_LEN(spaces); i++)
		if (has_prefix(name, spaces[i].prefix)) {
			*out = spaces[i].space;
			return name.bytes > strlen(spaces[i].prefix) ? 0 : -EINVAL;
		}
	return -EOPNOTSUPP;
}

/* The flags without which there is no attribute of the name. */
static uint32_t flags_of_name(struct kv_slice name, enum xattr_space space)
{
	if (space == XATTR_ACL)
		return FS_ATTR_XATTRS | FS_ATTR_ACL;
	if (kv_slice_eq(name, kv_slice_str(XATTR_CAPS_NAME)))
		return FS_ATTR_XATTRS | FS_ATTR_CAPS;
	return FS_ATTR_XATTRS;
}

/* user.* would let anybody who may write to a device or a socket store things there. */
static bool may_have(const struct fs_attr *attr, enum xattr_space space)
{
	return space != XATTR_USER || S_ISREG(attr->mode) || S_ISDIR(attr->mode);
}

/* --- looking at what there is --------------------------------------------------------- */

static void iter_freep(struct kv_iter **it)
{
	kv_iter_free(*it);
}

static int xattr_iter(struct fs *fs, fs_ino ino, struct kv_iter **out)
{
	struct fs_key lower = fs_key_begin(FS_KEY_XATTR, ino);
	struct fs_key upper = fs_key_begin(FS_KEY_XATTR, ino + 1);
	struct kv_iter_options o = { .lower = fs_key_slice(&lower), .upper = fs_key_slice(&upper) };
	struct kv_iter *it;

	KV_TRY(kv_iter_new(fs->kv, &o, &it));
	kv_iter_seek_first(it);
	*out = it;
	return 0;
}

static int xattr_at(struct fs *fs, struct kv_iter *it, fs_ino ino, struct kv_slice *out_name)
{
	struct fs_key_parts key;

	if (!fs_key_parse(kv_iter_key(it), &key) || key.kind != FS_KEY_XATTR || key.ino != ino ||
	    !key.name.bytes || key.name.bytes > FS_XATTR_NAME_BYTES_MAX)
		return fs_damaged(fs, "inode %" PRIu64 ": malformed key among its extended attributes",
				  ino);
	*out_name = key.name;
	return 0;
}

/* Is there one of the name? attr's flags may have the answer already. */
static int xattr_exists(struct fs *fs, const struct fs_attr *attr, struct kv_slice name,
			uint32_t flags, bool *out)
{
	struct fs_key key = fs_key_xattr(attr->ino, name);
	int err;

	*out = false;
	if ((attr->flags & flags) != flags)
		return 0;
	err = kv_exists(fs->kv, NULL, fs_key_slice(&key));
	if (err && !kv_err_is(err, KV_E_not_found))
		return err;
	*out = !err;
	return 0;
}

/* All names with their 0 bytes: how long are they together? Appends them to *list unless it is NULL. */
static int xattr_names(struct fs *fs, const struct fs_attr *attr, struct kv_buf *list,
		       size_t *out_bytes)
{
	KV_AUTO(iter_freep) struct kv_iter *it = NULL;
	struct kv_slice name;

	*out_bytes = 0;
	if (!(attr->flags & FS_ATTR_XATTRS))
		return 0;
	KV_TRY(xattr_iter(fs, attr->ino, &it));
	for (; kv_iter_valid(it); kv_iter_next(it)) {
		KV_TRY(xattr_at(fs, it, attr->ino, &name));
		*out_bytes += name.bytes + 1;
		if (!list)
			continue;
		KV_TRY(kv_buf_append_slice(list, name));
		KV_TRY(kv_buf_append_byte(list, 0));
	}
	return kv_iter_error(it);
}

/*
 * The flags that are right once the name is gone, from those before: looks at no
 * more than two keys, and at one ACL.
 */
static int flags_without(struct fs *fs, const struct fs_attr *attr, struct kv_slice name,
			 enum xattr_space space, uint32_t *out)
{
	KV_AUTO(iter_freep) struct kv_iter *it = NULL;
	uint32_t flags = attr->flags & ~(flags_of_name(name, space) & FS_ATTR_CAPS);
	bool access = kv_slice_eq(name, kv_slice_str(XATTR_ACL_ACCESS_NAME)), other, left = false;
	struct kv_slice found;

	if (space == XATTR_ACL) {
		const char *acl = access ? XATTR_ACL_DEFAULT_NAME : XATTR_ACL_ACCESS_NAME;

		KV_TRY(xattr_exists(fs, attr, kv_slice_str(acl), FS_ATTR_ACL, &other));
		if (!other)
			flags &= ~(uint32_t)FS_ATTR_ACL;
	}
	KV_TRY(xattr_iter(fs, attr->ino, &it));
	for (; kv_iter_valid(it) && !left; kv_iter_next(it)) {
		KV_TRY(xattr_at(fs, it, attr->ino, &found));
		left = !kv_slice_eq(found, name);
	}
	KV_TRY(kv_iter_error(it));
	*out = left ? flags : flags & ~(uint32_t)(FS_ATTR_XATTRS | FS_ATTR_ACL | FS_ATTR_CAPS);
	return 0;
}

/* --- what the caller of the core sees -------------------------------------------------------- */

static int attr_of(struct fs *fs, fs_ino ino, struct fs_attr *out)
{
	struct fs_inode *inode;
	int err;

	KV_TRY(fs_inode_get(fs, ino, &inode));
	err = fs_inode_attr(inode, out);
	fs_inode_put(fs, inode);
	return err;
}

int fs_getxattr(struct fs *fs, fs_ino ino, struct kv_slice name, struct kv_buf *out)
{
	enum xattr_space space;
	struct fs_attr attr;
	struct fs_key key;
	uint32_t flags;
	int err;

	KV_TRY(name_check(name, &space));
	KV_TRY(attr_of(fs, ino, &attr));
	flags = flags_of_name(name, space);
	if ((attr.flags & flags) != flags || !may_have(&attr, space))
		return -ENODATA;
	key = fs_key_xattr(ino, name);
	err = kv_get(fs->kv, NULL, fs_key_slice(&key), out);
	return kv_err_is(err, KV_E_not_found) ? -ENODATA : err;
}

int fs_listxattr(struct fs *fs, fs_ino ino, struct kv_buf *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf list = KV_BUF_INIT;
	struct fs_attr attr;
	size_t bytes;

	KV_TRY(attr_of(fs, ino, &attr));
	KV_TRY(xattr_names(fs, &attr, &list, &bytes));
	kv_buf_swap(out, &list);
	return 0;
}

/* May it be set, and does the list of names stay short enough to be returned? */
static int set_check(struct fs *fs, const struct fs_attr *attr, struct kv_slice name, bool there,
		     int flags)
{
	size_t bytes;

	if (there)
		return flags & XATTR_CREATE ? -EEXIST : 0;
	if (flags & XATTR_REPLACE)
		return -ENODATA;
	KV_TRY(xattr_names(fs, attr, NULL, &bytes));
	return bytes + name.bytes + 1 <= FS_XATTR_LIST_BYTES_MAX ? 0 : -ENOSPC;
}

static int set_locked(struct fs *fs, struct fs_inode *inode, struct kv_slice name,
		      enum xattr_space space, struct kv_slice value, int flags)
{
	KV_AUTO(fs_tx_done) struct fs_tx tx;
	struct fs_key key = fs_key_xattr(inode->ino, name);
	uint32_t needs = flags_of_name(name, space);
	struct fs_attr attr;
	bool there;

	fs_tx_begin(&tx, fs);
	KV_TRY(fs_tx_attr_get(&tx, inode, &attr));
	if (!may_have(&attr, space))
		return -EPERM;
	KV_TRY(xattr_exists(fs, &attr, name, needs, &there));
	KV_TRY(set_check(fs, &attr, name, there, flags));
	tx.has_data = true;
	fs_tx_put_ref(&tx, &key, value);
	attr.flags |= needs;
	attr.ctime = fs_now(fs);
	fs_tx_attr(&tx, inode, &attr);
	return fs_tx_commit(&tx, false);
}

int fs_setxattr(struct fs *fs, fs_ino ino, struct kv_slice name, struct kv_slice value, int flags)
{
	enum xattr_space space;
	struct fs_inode *inode;
	int err;

	KV_TRY(name_check(name, &space));
	if (value.bytes > FS_XATTR_BYTES_MAX)
		return -E2BIG;
	if (flags & ~(XATTR_CREATE | XATTR_REPLACE))
		return -EINVAL;
	KV_TRY(fs_inode_get(fs, ino, &inode));
	kv_mutex_lock(&inode->mu);
	err = set_locked(fs, inode, name, space, value, flags);
	kv_mutex_unlock(&inode->mu);
	fs_inode_put(fs, inode);
	return err;
}

static int remove_locked(struct fs *fs, struct fs_inode *inode, struct kv_slice name,
			 enum xattr_space space)
{
	KV_AUTO(fs_tx_done) struct fs_tx tx;
	struct fs_key key = fs_key_xattr(inode->ino, name);
	struct fs_attr attr;
	bool there;

	fs_tx_begin(&tx, fs);
	KV_TRY(fs_tx_attr_get(&tx, inode, &attr));
	if (!may_have(&attr, space))
		return -EPERM;
	KV_TRY(xattr_exists(fs, &attr, name, flags_of_name(name, space), &there));
	if (!there)
		return -ENODATA;
	KV_TRY(flags_without(fs, &attr, name, space, &attr.flags));
	fs_tx_delete(&tx, &key);
	attr.ctime = fs_now(fs);
	fs_tx_attr(&tx, inode, &attr);
	return fs_tx_commit(&tx, false);
}

int fs_removexattr(struct fs *fs, fs_ino ino, struct kv_slice name)
{
	enum xattr_space space;
	struct fs_inode *inode;
	int err;

	KV_TRY(name_check(name, &space));
	KV_TRY(fs_inode_get(fs, ino, &inode));
	kv_mutex_lock(&inode->mu);
	err = remove_locked(fs, inode, name, space);
	kv_mutex_unlock(&inode->mu);
	fs_inode_put(fs, inode);
	return err;
}
