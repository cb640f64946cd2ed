/* Requests about extended attributes. A size of 0 asks how long the answer would be. */
#include "config.h"

#include "fs/fuse_ops.h"

#include <string.h>

/*
 * ACLs are not enforced yet: saying so makes cp(1) and others set the mode instead. To
 * take one and not heed it would be a lie about who may read a file.
 */
static bool is_offered(const char *name)
{
	return strncmp(name, "system.", strlen("system.")) != 0;
}

static void reply_probe(fuse_req_t req, int err, const struct kv_buf *value, size_t bytes)
{
	if (err)
		fs_reply_err(req, err);
	else if (!bytes)
		(void)fuse_reply_xattr(req, value->bytes);
	else if (value->bytes > bytes)
		fs_reply_err(req, -ERANGE);
	else
		(void)fuse_reply_buf(req, (const char *)value->data, value->bytes);
}

void fs_fuse_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t bytes)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	int err = is_offered(name) ? fs_getxattr(fs_of(req), ino, kv_slice_str(name), &value)
				   : -EOPNOTSUPP;

	reply_probe(req, err, &value, bytes);
}

void fs_fuse_listxattr(fuse_req_t req, fuse_ino_t ino, size_t bytes)
{
	KV_AUTO(kv_buf_done) struct kv_buf names = KV_BUF_INIT;
	int err = fs_listxattr(fs_of(req), ino, &names);

	reply_probe(req, err, &names, bytes);
}

void fs_fuse_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		      size_t bytes, int flags)
{
	fs_reply_err(req, is_offered(name) ? fs_setxattr(fs_of(req), ino, kv_slice_str(name),
							 kv_slice(value, bytes), flags)
					   : -EOPNOTSUPP);
}

void fs_fuse_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	fs_reply_err(req, is_offered(name) ? fs_removexattr(fs_of(req), ino, kv_slice_str(name))
					   : -EOPNOTSUPP);
}
