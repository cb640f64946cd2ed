/* Requests about the bytes of files. No handles: everything goes by the inode. */
#include "config.h"

#include "fs/fuse_ops.h"

#include <fcntl.h>

void fs_fuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	if (fs_front(req)->no_open) {
		fs_reply_err(req, -ENOSYS);
		return;
	}
	fi->keep_cache = 1;
	(void)fuse_reply_open(req, fi);
}

void fs_fuse_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
		  struct fuse_file_info *fi)
{
	void *to = fs_thread_buffer(bytes);
	size_t got = 0;
	int err = to ? fs_read(fs_of(req), ino, to, bytes, (uint64_t)offset, &got) : -ENOMEM;

	(void)fi;
	if (err)
		fs_reply_err(req, err);
	else
		(void)fuse_reply_buf(req, to, got);
}

void fs_fuse_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *from, off_t offset,
		       struct fuse_file_info *fi)
{
	size_t bytes = fuse_buf_size(from);
	uint32_t flags = 0;
	const void *data;
	int err;

	if (from->count == 1 && !(from->buf[0].flags & FUSE_BUF_IS_FD)) {
		data = from->buf[0].mem;
	} else {
		void *copy = fs_thread_buffer(bytes);
		struct fuse_bufvec to = FUSE_BUFVEC_INIT(bytes);
		ssize_t n;

		if (!copy) {
			fs_reply_err(req, -ENOMEM);
			return;
		}
		to.buf[0].mem = copy;
		n = fuse_buf_copy(&to, from, 0);
		if (n < 0 || (size_t)n != bytes) {
			fs_reply_err(req, n < 0 ? (int)n : -EIO);
			return;
		}
		data = copy;
	}
	/*
	 * With the writeback cache the kernel owns the times and sends them by
	 * setattr: what it writes out later must not move them again.
	 */
	if (fs_front(req)->writeback)
		flags |= FS_WRITE_KEEP_TIMES;
	if (fi->flags & (O_SYNC | O_DSYNC))
		flags |= FS_WRITE_SYNC;
	err = fs_write(fs_of(req), ino, data, bytes, (uint64_t)offset, flags);
	if (err)
		fs_reply_err(req, err);
	else
		(void)fuse_reply_write(req, bytes);
}

void fs_fuse_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)ino, (void)datasync, (void)fi;
	fs_reply_err(req, fs_sync(fs_of(req)));
}

void fs_fuse_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t bytes,
		       struct fuse_file_info *fi)
{
	(void)fi;
	fs_reply_err(req, fs_fallocate(fs_of(req), ino, mode, (uint64_t)offset, (uint64_t)bytes));
}

/*
 * The kernel asks without writing out what it has cached: what we would call a hole may be
 * data that has not come yet, and whoever copies the file would lose it. "No such operation"
 * makes the kernel answer for itself, from then on: all data up to the size.
 */
void fs_fuse_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
		   struct fuse_file_info *fi)
{
	uint64_t at;
	int err;

	(void)fi;
	if (fs_front(req)->writeback) {
		fs_reply_err(req, -ENOSYS);
		return;
	}
	err = offset < 0 ? -ENXIO : fs_lseek(fs_of(req), ino, (uint64_t)offset, whence, &at);
	if (err)
		fs_reply_err(req, err);
	else
		(void)fuse_reply_lseek(req, (off_t)at);
}

/* The reply has 32 bits. */
#define COPY_BYTES_MAX ((uint64_t)UINT32_MAX & ~(uint64_t)4095)

void fs_fuse_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset,
			     struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_offset,
			     struct fuse_file_info *to_fi, size_t bytes, int flags)
{
	uint64_t copied;
	int err;

	(void)from_fi, (void)to_fi;
	if (flags) {
		fs_reply_err(req, -EINVAL);
		return;
	}
	err = fs_copy_range(fs_of(req), from, (uint64_t)from_offset, to, (uint64_t)to_offset,
			    KV_MIN((uint64_t)bytes, COPY_BYTES_MAX), &copied);
	if (err)
		fs_reply_err(req, err);
	else
		(void)fuse_reply_write(req, copied);
}
