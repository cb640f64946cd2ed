/* What is mounted where, from /proc/self/mountinfo. Never touches the mounts themselves. */
#ifndef FS_MOUNTS_H
#define FS_MOUNTS_H

#include "kv/buf.h"

#define FS_MOUNT_TYPE "fuse.kvfs"

struct fs_mounts_entry {
	const char *mountpoint, *type, *source;	/* unescaped; stay for the call */
	unsigned major, minor;			/* of the device */
};

typedef bool fs_mounts_fn(void *arg, const struct fs_mounts_entry *e);
/* Calls fn for each mount, oldest first, until it returns false. -errno when there is no such list. */
int fs_mounts_each(fs_mounts_fn *fn, void *arg);

/* The newest kvfs mount of a store (absolute path): its mount point, or false. */
bool fs_mounts_of_store(const char *store, struct kv_buf *out_mountpoint);
/* The newest mount on a mount point (absolute path), of any type: source, type and device. */
bool fs_mounts_at(const char *mountpoint, struct kv_buf *out_source, struct kv_buf *out_type,
		  unsigned *out_major, unsigned *out_minor);

/*
 * Unmounts: with umount2(2), or through fusermount3 where that is not permitted. lazy: detaches
 * it from the tree though it is busy. -errno; -EBUSY for any refusal of fusermount3.
 */
int fs_unmount(const char *mountpoint, bool lazy, bool force) KV_NODISCARD;

/*
 * Waits until nobody has the store open (a daemon syncs and closes it after its unmount has
 * returned), at most so long; 0: only looks. 0 also when the store can't be seen from here; -EBUSY.
 */
int fs_store_wait(const char *store, unsigned seconds) KV_NODISCARD;

#endif
