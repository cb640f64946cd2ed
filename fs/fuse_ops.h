/*
 * The FUSE front: a request comes in, one call of the core, a reply goes out.
 * No logic of its own; the only place where an error code becomes an errno.
 */
#ifndef FS_FUSE_OPS_H
#define FS_FUSE_OPS_H

#define FUSE_USE_VERSION 35
#include <fuse_lowlevel.h>

#include "fs/core.h"

/* What a request finds in fuse_req_userdata(). */
struct fs_front {
	struct fs *fs;
	bool writeback;			/* the kernel may cache writes */
	/* Set by the init request. */
	bool no_open, no_opendir;	/* the kernel need not be asked: "no such operation" means yes, for ever */
	/* Called when the kernel has been answered: the mount works. */
	void (*mounted)(struct fs_front *front);
	void *mounted_arg;
};

extern const struct fuse_lowlevel_ops fs_fuse_ops;

/* --- shared by the fuse_*.c ------------------------------------------------------------ */

/*
 * How long the kernel may believe what it was told, in seconds. The daemon is the only
 * writer of its store, so that nothing changes behind the kernel's back.
 */
#define FS_FUSE_VALID_S (365.0 * 24 * 3600)

static inline struct fs_front *fs_front(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static inline struct fs *fs_of(fuse_req_t req)
{
	return fs_front(req)->fs;
}

void fs_reply_err(fuse_req_t req, int err);
void fs_stat_of(const struct fs_attr *a, struct stat *out);
void fs_entry_of(const struct fs_attr *a, struct fuse_entry_param *out);
/* Replies with the attributes of an inode that was just made known; unknows it if the kernel doesn't take it. */
void fs_reply_entry(fuse_req_t req, int err, const struct fs_attr *a);

/* The caller of a request, for the core. */
struct fs_fuse_caller {
	struct fs_caller caller;
	fuse_req_t req;
};
const struct fs_caller *fs_caller_of(fuse_req_t req, struct fs_fuse_caller *out);

/* A buffer of the calling thread, kept between requests; NULL when out of memory. */
void *fs_thread_buffer(size_t bytes);

/* fuse_node.c */
void fs_fuse_init(void *userdata, struct fuse_conn_info *conn);
void fs_fuse_lookup(fuse_req_t req, fuse_ino_t dir, const char *name);
void fs_fuse_forget(fuse_req_t req, fuse_ino_t ino, uint64_t times);
void fs_fuse_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *forgets);
void fs_fuse_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_fuse_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
		     struct fuse_file_info *fi);
void fs_fuse_readlink(fuse_req_t req, fuse_ino_t ino);
void fs_fuse_statfs(fuse_req_t req, fuse_ino_t ino);
void fs_fuse_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
		   struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_bytes,
		   size_t out_bytes);
/* fuse_name.c */
void fs_fuse_mknod(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, dev_t rdev);
void fs_fuse_mkdir(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode);
void fs_fuse_symlink(fuse_req_t req, const char *target, fuse_ino_t dir, const char *name);
void fs_fuse_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t dir, const char *name);
void fs_fuse_unlink(fuse_req_t req, fuse_ino_t dir, const char *name);
void fs_fuse_rmdir(fuse_req_t req, fuse_ino_t dir, const char *name);
void fs_fuse_rename(fuse_req_t req, fuse_ino_t from_dir, const char *from, fuse_ino_t to_dir,
		    const char *to, unsigned int flags);
void fs_fuse_create(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode,
		    struct fuse_file_info *fi);
void fs_fuse_tmpfile(fuse_req_t req, fuse_ino_t dir, mode_t mode, struct fuse_file_info *fi);
void fs_fuse_opendir(fuse_req_t req, fuse_ino_t dir, struct fuse_file_info *fi);
void fs_fuse_readdir(fuse_req_t req, fuse_ino_t dir, size_t bytes, off_t cookie,
		     struct fuse_file_info *fi);
void fs_fuse_readdirplus(fuse_req_t req, fuse_ino_t dir, size_t bytes, off_t cookie,
			 struct fuse_file_info *fi);
/* fuse_io.c */
void fs_fuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_fuse_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
		  struct fuse_file_info *fi);
void fs_fuse_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *from, off_t offset,
		       struct fuse_file_info *fi);
void fs_fuse_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void fs_fuse_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t bytes,
		       struct fuse_file_info *fi);
void fs_fuse_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
		   struct fuse_file_info *fi);
void fs_fuse_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset,
			     struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_offset,
			     struct fuse_file_info *to_fi, size_t bytes, int flags);
/* fuse_xattr.c */
void fs_fuse_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t bytes);
void fs_fuse_listxattr(fuse_req_t req, fuse_ino_t ino, size_t bytes);
void fs_fuse_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		      size_t bytes, int flags);
void fs_fuse_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
