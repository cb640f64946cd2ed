/*
 * Options of a mount, from the command line and from -o lists (fstab too).
 * The table in opts.c is what kvfs(8) and kvfs(5) describe.
 */
#ifndef FS_OPTS_H
#define FS_OPTS_H

#include "kv/buf.h"

struct fs_mount_opts {
	char *store, *mountpoint;	/* as given; owned */
	bool foreground, debug, single;
	bool help, version;
	bool read_only, remount;
	bool writeback;			/* [yes] */
	bool relatime;			/* [no] */
	bool allow_other, allow_other_set;
	bool suid, dev;			/* [yes for root] */
	bool suid_set, dev_set;
	uint64_t commit_s;		/* [5] */
	uint64_t cache_bytes;		/* [80 MiB] */
	uint64_t read_ahead_bytes;	/* [1 MiB]; as root only */
	struct kv_buf kernel;		/* what goes on to the kernel: noexec, context=... */
};

/*
 * helper: called as mount.kvfs by mount(8), where -f, -s, -v, -n and -t mean
 * something else. On failure returns -EINVAL and *out_why is one sentence. Call
 * done in any case.
 */
int fs_mount_opts_parse(struct fs_mount_opts *o, int argc, char **argv, bool helper,
			struct kv_buf *out_why) KV_NODISCARD;
void fs_mount_opts_done(struct fs_mount_opts *o);

#endif
