/*
 * The filesystem without FUSE: what the mount daemon, mkfs.kvfs -d, fsck.kvfs and
 * the tests call. One call is one request is one atomic batch: after a crash it
 * has happened or not, in the order of the calls, and all that was synced has.
 *
 * Results are 0 or negative: a POSIX errno (-ENOENT, -EEXIST, ...), or a code
 * of the engine (kv/errcode.h; kv_err_errno() makes an errno of any). -EUCLEAN: the store holds
 * something that cannot be, which was reported to the message sink.
 *
 * All functions may be called by any number of threads at once.
 *
 * Permissions are not checked: under FUSE the kernel does (default_permissions).
 * What only a filesystem can do is done here: set-group-id directories, clearing of set-id
 * bits, times, link counts, limits, types.
 *
 * Lookup counts. Every function that returns the attributes of an inode found or
 * made by name (fs_lookup, fs_mknod, fs_mkdir, fs_symlink, fs_link, and fs_readdir
 * with attributes) makes the caller know that inode once more. fs_forget() takes that back. An
 * inode that no directory names lives as long as it is known (or open).
 */
#ifndef FS_CORE_H
#define FS_CORE_H

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "fs/format.h"
#include "kv/kv.h"

struct fs;

/* --- formatting, opening, closing ---------------------------------------------------- */

struct fs_format_options {
	struct kv_options kv;		/* env, msg; create is set */
	const char *label;		/* NULL: none */
	const uint8_t *uuid;		/* NULL: drawn at random */
	uint32_t hash_bits;		/* 0: FS_HASH_BITS */
	uint32_t root_mode;		/* 0: 0755 */
	uint32_t root_uid, root_gid;
};

/* Makes a store with an empty filesystem in an empty or new directory: durable on return. */
int fs_format(const char *dir, const struct fs_format_options *options) KV_NODISCARD;

struct fs_options {
	struct kv_options kv;		/* env, msg, cache sizes, read_only, inline_work */
	uint32_t commit_s;		/* all changes are durable after as many seconds [5]; UINT32_MAX: never by itself */
	uint32_t inodes_cached_max;	/* attributes kept of inodes not in use [65536] */
	bool relatime;			/* reads change atime by the rules of relatime; else never */
	/* Time of day for tests that compare; NULL: the clock. */
	void (*now)(void *arg, struct timespec *out);
	void *now_arg;
};

/*
 * Opens the filesystem in the store; recovers after a crash, and clears the
 * orphans of the last session in the background. Errors as of kv_open(); KV_E_not_a_store for a
 * kv store that holds no filesystem.
 */
int fs_open(const char *dir, const struct fs_options *options, struct fs **out_fs) KV_NODISCARD;
/* Ends the session: everything is durable; what was known is forgotten. Frees fs also on error. */
int fs_close(struct fs *fs);

/* The engine beneath, for statistics and fsck. */
struct kv_db *fs_kv(struct fs *fs);

struct fs_identity {
	uint8_t uuid[16];
	char label[FS_LABEL_BYTES_MAX + 1];
};
void fs_identity(struct fs *fs, struct fs_identity *out);

/* --- attributes ------------------------------------------------------------------------ */

struct fs_attr {
	fs_ino ino;
	uint32_t mode, nlink, uid, gid;
	uint64_t size, bytes, extents, entries;
	fs_ino parent;
	uint64_t rdev;
	uint32_t flags, generation;
	struct timespec atime, mtime, ctime, btime;
};

/* Who asks: owner of what is made; and whose set-id bits may stay. */
struct fs_caller {
	uint32_t uid, gid;
	/* Is the caller in the group, or privileged? NULL: yes. For chmod and set-group-id. */
	bool (*in_group)(void *arg, uint32_t gid);
	void *arg;
};

int fs_getattr(struct fs *fs, fs_ino ino, struct fs_attr *out) KV_NODISCARD;

enum fs_set {
	FS_SET_MODE = 1 << 0,
	FS_SET_UID = 1 << 1,
	FS_SET_GID = 1 << 2,
	FS_SET_SIZE = 1 << 3,
	FS_SET_ATIME = 1 << 4,
	FS_SET_MTIME = 1 << 5,
	FS_SET_ATIME_NOW = 1 << 6,
	FS_SET_MTIME_NOW = 1 << 7,
	FS_SET_CTIME = 1 << 8,		/* else ctime becomes now */
	FS_SET_KILL_PRIV = 1 << 9,	/* clear set-id bits and capabilities, as a write does */
};

/* Fields of `in` that `set` names. A chown clears set-id bits as chown(2) says. */
int fs_setattr(struct fs *fs, fs_ino ino, const struct fs_attr *in, uint32_t set,
	       const struct fs_caller *caller, struct fs_attr *out) KV_NODISCARD;

int fs_statfs(struct fs *fs, struct statvfs *out) KV_NODISCARD;

/* --- names --------------------------------------------------------------------------------- */

/* "." and ".." work on directories. -ENOENT, -ENOTDIR, -ENAMETOOLONG. */
int fs_lookup(struct fs *fs, fs_ino dir, struct kv_slice name, struct fs_attr *out) KV_NODISCARD;
void fs_forget(struct fs *fs, fs_ino ino, uint64_t times);

/* Any type but directory and symbolic link (a regular file for create(2)). mode: type and permissions, umask applied. */
int fs_mknod(struct fs *fs, fs_ino dir, struct kv_slice name, uint32_t mode, uint64_t rdev,
	     const struct fs_caller *caller, struct fs_attr *out) KV_NODISCARD;
int fs_mkdir(struct fs *fs, fs_ino dir, struct kv_slice name, uint32_t mode,
	     const struct fs_caller *caller, struct fs_attr *out) KV_NODISCARD;
int fs_symlink(struct fs *fs, fs_ino dir, struct kv_slice name, struct kv_slice target,
	       const struct fs_caller *caller, struct fs_attr *out) KV_NODISCARD;
/* A regular file without a name (O_TMPFILE); fs_link() can give it one. */
int fs_tmpfile(struct fs *fs, fs_ino dir, uint32_t mode, const struct fs_caller *caller,
	       struct fs_attr *out) KV_NODISCARD;
int fs_link(struct fs *fs, fs_ino ino, fs_ino dir, struct kv_slice name, struct fs_attr *out)
	KV_NODISCARD;
int fs_unlink(struct fs *fs, fs_ino dir, struct kv_slice name) KV_NODISCARD;
int fs_rmdir(struct fs *fs, fs_ino dir, struct kv_slice name) KV_NODISCARD;

/* flags: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT of linux/fs.h. */
int fs_rename(struct fs *fs, fs_ino from_dir, struct kv_slice from, fs_ino to_dir,
	      struct kv_slice to, uint32_t flags) KV_NODISCARD;

int fs_readlink(struct fs *fs, fs_ino ino, struct kv_buf *out) KV_NODISCARD;

/* --- directories ---------------------------------------------------------------------------- */

struct fs_dirent {
	fs_ino ino;
	uint8_t type;			/* DT_* */
	struct kv_slice name;		/* borrowed for the call */
	uint64_t cookie;		/* where the next entry begins: give it to the next fs_readdir() */
	/*
	 * With attributes asked for: then the inode is known once more if the entry is taken.
	 * NULL for "." and "..", and for an inode whose attributes cannot be read.
	 */
	const struct fs_attr *attr;
};

/* Takes the entry, or says no: the buffer is full (nothing counts as known then). */
typedef bool fs_readdir_fn(void *arg, const struct fs_dirent *e);

/*
 * Entries from cookie (0: the start) on, "." and ".." first, until fn says no or the end is
 * reached. Each name that is there all the time is seen once, whatever else comes and goes.
 */
int fs_readdir(struct fs *fs, fs_ino dir, uint64_t cookie, bool with_attr, fs_readdir_fn *fn,
	       void *arg) KV_NODISCARD;

/* --- file data -------------------------------------------------------------------------------- */

/* Fills `to`, up to the end of the file; holes are zeros. *out_bytes is less only at the end. */
int fs_read(struct fs *fs, fs_ino ino, void *to, size_t bytes, uint64_t offset,
	    size_t *out_bytes) KV_NODISCARD;

enum fs_write_flag {
	FS_WRITE_KEEP_TIMES = 1,	/* the kernel's cache owns them */
	FS_WRITE_KILL_PRIV = 2,
	FS_WRITE_SYNC = 4,		/* durable on return */
};
/* All or nothing for up to FS_WRITE_BYTES_MAX; -EFBIG, KV_E_no_space. */
#define FS_WRITE_BYTES_MAX ((size_t)8 << 20)
int fs_write(struct fs *fs, fs_ino ino, const void *from, size_t bytes, uint64_t offset,
	     uint32_t flags) KV_NODISCARD;

/* mode: FALLOC_FL_* of linux/falloc.h; 0, KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE; else -EOPNOTSUPP. */
int fs_fallocate(struct fs *fs, fs_ino ino, int mode, uint64_t offset, uint64_t bytes) KV_NODISCARD;
/* whence: SEEK_DATA or SEEK_HOLE. */
int fs_lseek(struct fs *fs, fs_ino ino, uint64_t offset, int whence, uint64_t *out) KV_NODISCARD;
/* Shares what is large, copies the rest. Ranges of one file must not overlap (-EINVAL). *out_bytes may be less than asked. */
int fs_copy_range(struct fs *fs, fs_ino from, uint64_t from_offset, fs_ino to,
		  uint64_t to_offset, uint64_t bytes, uint64_t *out_bytes) KV_NODISCARD;

/* Everything done before is durable on return (whatever the inode: one order). */
int fs_sync(struct fs *fs) KV_NODISCARD;

/* --- extended attributes ----------------------------------------------------------------------- */

/* -ENODATA. flags: XATTR_CREATE, XATTR_REPLACE of sys/xattr.h. */
int fs_getxattr(struct fs *fs, fs_ino ino, struct kv_slice name, struct kv_buf *out) KV_NODISCARD;
int fs_setxattr(struct fs *fs, fs_ino ino, struct kv_slice name, struct kv_slice value, int flags)
	KV_NODISCARD;
int fs_removexattr(struct fs *fs, fs_ino ino, struct kv_slice name) KV_NODISCARD;
/* Names, each with a 0 byte behind it. */
int fs_listxattr(struct fs *fs, fs_ino ino, struct kv_buf *out) KV_NODISCARD;

/* --- statistics ----------------------------------------------------------------------------------- */

struct fs_stats {
	uint64_t inodes, bytes_used;	/* as in the store */
	uint64_t inodes_known;		/* by the caller */
	uint64_t inodes_cached;
	uint64_t orphans_waiting;	/* forgotten, not yet freed */
};
void fs_stats(struct fs *fs, struct fs_stats *out);
/* Returns when every forgotten orphan has been freed (or with the error why not). */
int fs_reclaim_wait(struct fs *fs) KV_NODISCARD;

#endif
