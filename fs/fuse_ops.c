#include "config.h"

#include "fs/fuse_ops.h"

#include <pthread.h>
#include <stdlib.h>

#include "kv/assert.h"

/*
 * Not here on purpose, since libfuse answers "no such operation" then, which the kernel
 * takes for an everlasting yes: flush (every write is in the journal's file before
 * it is answered), access (the kernel checks permissions), release and releasedir (no
 * handle keeps anything: what is unlinked and open lives by its lookup count). Locks
 * are the kernel's own: there is one mount of a store.
 */
const struct fuse_lowlevel_ops fs_fuse_ops = {
	.init = fs_fuse_init,
	.lookup = fs_fuse_lookup,
	.forget = fs_fuse_forget,
	.forget_multi = fs_fuse_forget_multi,
	.getattr = fs_fuse_getattr,
	.setattr = fs_fuse_setattr,
	.readlink = fs_fuse_readlink,
	.statfs = fs_fuse_statfs,
	.ioctl = fs_fuse_ioctl,
	.mknod = fs_fuse_mknod,
	.mkdir = fs_fuse_mkdir,
	.symlink = fs_fuse_symlink,
	.link = fs_fuse_link,
	.unlink = fs_fuse_unlink,
	.rmdir = fs_fuse_rmdir,
	.rename = fs_fuse_rename,
	.create = fs_fuse_create,
#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_TMPFILE
	.tmpfile = fs_fuse_tmpfile,
#endif
	.opendir = fs_fuse_opendir,
	.readdir = fs_fuse_readdir,
	.readdirplus = fs_fuse_readdirplus,
	.fsyncdir = fs_fuse_fsync,
	.open = fs_fuse_open,
	.read = fs_fuse_read,
	.write_buf = fs_fuse_write_buf,
	.fsync = fs_fuse_fsync,
	.fallocate = fs_fuse_fallocate,
	.lseek = fs_fuse_lseek,
	.copy_file_range = fs_fuse_copy_file_range,
	.getxattr = fs_fuse_getxattr,
	.listxattr = fs_fuse_listxattr,
	.setxattr = fs_fuse_setxattr,
	.removexattr = fs_fuse_removexattr,
};

void fs_reply_err(fuse_req_t req, int err)
{
	/* The one failure of a reply is that nobody waits any more. */
	(void)fuse_reply_err(req, kv_err_errno(err));
}

void fs_stat_of(const struct fs_attr *a, struct stat *out)
{
	*out = (struct stat){
		.st_ino = a->ino,
		.st_mode = a->mode,
		.st_nlink = a->nlink,
		.st_uid = a->uid,
		.st_gid = a->gid,
		.st_rdev = a->rdev,
		.st_size = (off_t)a->size,
		.st_blksize = FS_BLOCK_BYTES,
		.st_blocks = (blkcnt_t)((a->bytes + 511) / 512),
		.st_atim = a->atime,
		.st_mtim = a->mtime,
		.st_ctim = a->ctime,
	};
}

void fs_entry_of(const struct fs_attr *a, struct fuse_entry_param *out)
{
	*out = (struct fuse_entry_param){
		.ino = a->ino,
		.generation = a->generation,
		.attr_timeout = FS_FUSE_VALID_S,
		.entry_timeout = FS_FUSE_VALID_S,
	};
	fs_stat_of(a, &out->attr);
}

void fs_reply_entry(fuse_req_t req, int err, const struct fs_attr *a)
{
	struct fuse_entry_param e;
	struct fs *fs = fs_of(req);

	if (err) {
		fs_reply_err(req, err);
		return;
	}
	fs_entry_of(a, &e);
	if (fuse_reply_entry(req, &e))
		fs_forget(fs, a->ino, 1);
}

static bool in_group(void *arg, uint32_t gid)
{
	fuse_req_t req = arg;
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	gid_t *list;
	bool found = false;
	int n;

	if (ctx->uid == 0 || ctx->gid == gid)
		return true;
	n = fuse_req_getgroups(req, 0, NULL);
	if (n <= 0)
		return false;
	list = calloc((size_t)n, sizeof(*list));
	if (!list)
		return false;
	/* The list may have grown in between; what fits is enough of an answer. */
	n = KV_MIN(n, fuse_req_getgroups(req, n, list));
	for (int i = 0; i < n && !found; i++)
		found = list[i] == gid;
	free(list);
	return found;
}

const struct fs_caller *fs_caller_of(fuse_req_t req, struct fs_fuse_caller *out)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	out->req = req;
	out->caller = (struct fs_caller){
		.uid = ctx->uid, .gid = ctx->gid, .in_group = in_group, .arg = req
	};
	return &out->caller;
}

static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;

struct thread_buffer {
	size_t bytes;
	_Alignas(64) uint8_t data[];
};

static void buffer_key_make(void)
{
	KV_ASSERT(pthread_key_create(&buffer_key, free) == 0);
}

void *fs_thread_buffer(size_t bytes)
{
	struct thread_buffer *b;

	KV_ASSERT(pthread_once(&buffer_once, buffer_key_make) == 0);
	b = pthread_getspecific(buffer_key);
	if (b && b->bytes >= bytes)
		return b->data;
	free(b);
	bytes = (bytes + 4095) & ~(size_t)4095;
	b = aligned_alloc(64, sizeof(*b) + bytes);
	if (b)
		b->bytes = bytes;
	if (pthread_setspecific(buffer_key, b) && b) {
		free(b);
		return NULL;
	}
	return b ? b->data : NULL;
}
