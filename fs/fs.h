/*
 * struct fs and the order of its locks. For the files of the core only.
 *
 * Lock order:
 *	rename_mu		held by renames that move between directories
 *	inode->mu		of directories, parent before child; two directories of which neither is an
 *				ancestor of the other only under rename_mu
 *	inode->mu		of other inodes, in the order of their numbers
 *	reclaim_mu, ino_mu
 *	shards of icache
 *	inode->attr_mu
 *	shards of lookup counts: the last four are leaves of the above, held for a moment
 *
 * Parent and child mean the tree of the moment: it cannot change where somebody waits, since
 * who moves a directory holds its parent's lock. (A checker that remembers orders for ever, like
 * ThreadSanitizer's, sees cycles where directories have moved: TSAN_OPTIONS=detect_deadlocks=0.)
 *
 * inode->mu is held over the commit of a batch that changes the inode, and never taken
 * by fs_getattr, fs_lookup, fs_readdir, fs_read: they see the last committed attributes (attr_mu)
 * and the engine's own snapshots.
 */
#ifndef FS_FS_H
#define FS_FS_H

#include "fs/core.h"
#include "fs/icache.h"
#include "fs/record.h"
#include "kv/list.h"
#include "kv/lock.h"

#define FS_INO_RUN 1024		/* numbers taken from the store at a time */
#define FS_POINT_DELETES_MAX 64	/* an inode with more extents is deleted by a range */

struct fs {
	/* Set when opened, constant after. */
	struct kv_db *kv;
	struct kv_msg msg;
	struct fs_options options;
	struct fs_super super;
	char *path;
	bool read_only;

	struct fs_icache *icache;
	struct kv_mutex rename_mu;

	struct kv_mutex ino_mu;		/* the run of numbers being handed out */
	fs_ino ino_next, ino_end;

	struct kv_mutex reclaim_mu;	/* orphan.c and the commit thread; guards to the blank line */
	struct kv_cond reclaim_cond;	/* there is work, or stop */
	struct kv_cond reclaim_done;	/* the queue is empty, or it cannot be worked off */
	struct kv_cond commit_cond;	/* stop */
	struct fs_reclaim_queue *reclaim;
	bool stop;
	int reclaim_error;

	pthread_t reclaim_thread, commit_thread;
	bool reclaim_running, commit_running;

	_Atomic uint64_t changes;	/* batches committed; what the commit thread looks at */
	_Atomic uint64_t bytes_freed;	/* by them, since the last flush for that reason */
};

/* The time of day by options.now. */
struct timespec fs_now(const struct fs *fs);
/*
 * Short of space: frees what was deleted, and lets the engine notice. False when that gains nothing.
 * The caller holds no lock of an inode that may be an orphan.
 */
bool fs_space_regain(struct fs *fs);
/* A number that was never used before. */
int fs_ino_take(struct fs *fs, fs_ino *out) KV_NODISCARD;
/* Reports damage once, as a sentence, and returns -EUCLEAN. */
void fs_damaged_say(struct fs *fs, const char *fmt, ...) KV_PRINTF(2, 3);
#define fs_damaged(...) (fs_damaged_say(__VA_ARGS__), -EUCLEAN)

#endif
