/* Requests about extended attributes. A size of 0 asks how long the answer would be. */
#include "config.h"

#include "fs/fuse_ops.h"

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
	int err = fs_getxattr(fs_of(req), ino, kv_slice_str(name), &value);

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
	fs_reply_err(req, fs_setxattr(fs_of(req), ino, kv_slice_str(name), kv_slice(value, bytes),
				      flags));
}

void fs_fuse_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	fs_reply_err(req, fs_removexattr(fs_of(req), ino, kv_slice_str(name)));
}
