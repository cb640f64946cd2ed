/*
 * The outside of a store: one directory of files, a clock. The only code that
 * touches the medium is behind this table, so that tests can put a simulated
 * disk in its place which forgets what was not synced, tears writes, flips
 * bits and fails on demand (tests/sim/env_sim.h).
 *
 * Names are file names without a slash. Errors are negated errno values
 * (-ENOSPC, -EIO, ...). An implementation hides short transfers and EINTR:
 * a call does all it was asked, or fails; after a failed write any part of the
 * range may have been written. All functions may be called by several threads.
 */
#ifndef KV_ENV_H
#define KV_ENV_H

#include <sys/uio.h>

#include "kv/slice.h"

struct kv_env_file;
struct kv_env_dir;

enum kv_env_mode {
	KV_ENV_READ,	/* an existing file, for reading */
	KV_ENV_CREATE,	/* a new file, -EEXIST when there is one; read and write */
	KV_ENV_WRITE,	/* an existing file, for reading and writing */
};

typedef int kv_env_list_fn(void *arg, const char *name);

struct kv_env {
	const struct kv_env_ops *ops;
};

struct kv_env_ops {
	/* Opens the directory; with create, makes it when it isn't there (not its parents). */
	int (*dir_open)(struct kv_env *env, const char *path, bool create,
			struct kv_env_dir **out_dir);
	void (*dir_close)(struct kv_env_dir *dir);
	/* Removes an empty directory that nobody has open; -ENOTEMPTY. What is left of it in a crash is open. */
	int (*dir_remove)(struct kv_env *env, const char *path);
	/* Calls fn for each file (not "." and ".."); stops at the first result that is not 0, and returns it. */
	int (*dir_list)(struct kv_env_dir *dir, kv_env_list_fn *fn, void *arg);
	/* Names made, renamed and removed before are durable on return. */
	int (*dir_sync)(struct kv_env_dir *dir);
	int (*rename)(struct kv_env_dir *dir, const char *from, const char *to);
	int (*unlink)(struct kv_env_dir *dir, const char *name);
	/*
	 * A second name, in another directory of the same env, for the same bytes; durable
	 * with a sync of that directory. -EEXIST; -EXDEV when that is on another filesystem.
	 */
	int (*link)(struct kv_env_dir *dir, const char *name, struct kv_env_dir *to_dir,
		    const char *to_name);
	/*
	 * Takes the exclusive lock of the directory, which dies with the process
	 * (it is an advisory lock on the file `name`, made when absent). -EBUSY when
	 * somebody has it, also of this process. A shared one excludes only
	 * exclusive ones, writes nothing, and is given when there is no such file.
	 */
	int (*lock)(struct kv_env_dir *dir, const char *name, bool shared,
		    struct kv_env_file **out_lock);
	int (*space)(struct kv_env_dir *dir, uint64_t *out_bytes_all, uint64_t *out_bytes_free);

	int (*open)(struct kv_env_dir *dir, const char *name, enum kv_env_mode mode,
		    struct kv_env_file **out_file);
	void (*close)(struct kv_env_file *file);
	/* Reads up to bytes; *out_bytes is less only at the end of the file. */
	int (*pread)(struct kv_env_file *file, void *to, size_t bytes, uint64_t offset,
		     size_t *out_bytes);
	/* Changes the elements of iov. */
	int (*pwritev)(struct kv_env_file *file, struct iovec *iov, int iov_count,
		       uint64_t offset);
	/*
	 * Content and size are durable on return. After a failure nothing is
	 * known, for ever: every later sync of this open file fails, too.
	 */
	int (*sync)(struct kv_env_file *file);
	/* Starts writing a range back; with wait, also waits for it. A hint for smoothness, never durability. */
	int (*writeback)(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool wait);
	/*
	 * Space for the range is there, and with extend the file is at least
	 * that long (zeros). With extend, nobody may write behind the end of the
	 * file meanwhile: where the system cannot allocate, zeros are written there.
	 */
	int (*allocate)(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool extend);
	int (*truncate)(struct kv_env_file *file, uint64_t bytes);
	int (*size)(struct kv_env_file *file, uint64_t *out_bytes);
	/* The range will (or won't) be read soon. */
	void (*advise)(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool will_need);

	uint64_t (*monotonic_ns)(struct kv_env *env);
	/* Returns when so much time has passed on that clock. */
	void (*sleep_ns)(struct kv_env *env, uint64_t ns);
	/* Since 1970, by a clock that people set. For people to read, nothing may rest on it. */
	uint64_t (*realtime_ns)(struct kv_env *env);
	int (*random)(struct kv_env *env, void *to, size_t bytes);
};

/* Directories of files, by system calls. One for the process, never freed. */
struct kv_env *kv_env_posix(void);

/* --- the same, easier to call -------------------------------------------------- */

int kv_env_write(struct kv_env *env, struct kv_env_file *file, struct kv_slice s,
		 uint64_t offset) KV_NODISCARD;
/* Fails with KV_E_short_file unless all bytes are there. */
int kv_env_read_exact(struct kv_env *env, struct kv_env_file *file, void *to, size_t bytes,
		      uint64_t offset) KV_NODISCARD;

#endif
