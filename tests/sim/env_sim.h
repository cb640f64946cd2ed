/*
 * A disk in memory, for tests: a struct kv_env which knows what was synced and
 * what was not, and which crashes, fills up, fails and rots on demand.
 *
 * The model. A file has a current content, that reads see, and a durable one.
 * A write changes the current content; sync makes the durable one equal to it.
 * Until then each sector of KV_SIM_SECTOR_BYTES, and the size, is unsynced: a
 * crash keeps it or drops it, each by itself. A sector is never torn, a
 * write is. A directory likewise has current and durable entries; making, renaming, linking and
 * unlinking are steps, unsynced until dir_sync, that a crash keeps or drops:
 * a step is whole (a rename never loses both names), and one that is dropped
 * takes with it the later steps about the same name. Syncing a file does not sync its
 * entry. Directories themselves are durable once made, and gone once removed.
 *
 * Everything is a function of the seeds and the calls. One mutex guards all;
 * clones share nothing that needs one, so each may have its own thread.
 */
#ifndef TESTS_SIM_ENV_SIM_H
#define TESTS_SIM_ENV_SIM_H

#include "kv/env.h"

#define KV_SIM_SECTOR_BYTES 512
#define KV_SIM_NAME_BYTES_MAX 64

/* An empty disk of unlimited capacity. The seed is for random(), and for how much of a failed write is done. */
struct kv_env *kv_env_sim_new(uint64_t seed);
/* All handles must be closed, those that a crash has killed, too. NULL is fine. */
void kv_env_sim_free(struct kv_env *env);
/*
 * The same disk once more, with its unsynced state, clock and capacity; without
 * open files, locks, faults, a stop or a hook. So a clone is what is found
 * when the process was killed now, and, after kv_env_sim_crash(), when the
 * machine was. Cheap: content is shared until written. The clone is the caller's.
 */
struct kv_env *kv_env_sim_clone(struct kv_env *env);

/* --- crashes ---------------------------------------------------------------------- */

enum kv_sim_crash {
	KV_SIM_DROP_ALL,	/* nothing unsynced survives */
	KV_SIM_KEEP_ALL,	/* all of it does */
	KV_SIM_RANDOM,		/* drawn for each file, sector and step */
};

/*
 * The power fails, and comes back: unsynced state is kept or dropped, what is
 * left is durable. All handles are dead (calls fail with -EIO; they must still
 * be closed), locks are gone, a stop is over; faults stay. The seed is for KV_SIM_RANDOM only.
 */
void kv_env_sim_crash(struct kv_env *env, enum kv_sim_crash how, uint64_t seed);

/*
 * Kinds of calls, as bits. Those of KV_SIM_MUTATING are counted, and can be
 * stopped at. lock is a CREATE when it makes its file, dir_open when it
 * makes the directory, and dir_remove is an UNLINK.
 */
enum kv_sim_op {
	KV_SIM_CREATE = 1 << 0,
	KV_SIM_WRITE = 1 << 1,
	KV_SIM_SYNC = 1 << 2,
	KV_SIM_DIR_SYNC = 1 << 3,
	KV_SIM_RENAME = 1 << 4,
	KV_SIM_UNLINK = 1 << 5,
	KV_SIM_LINK = 1 << 6,
	KV_SIM_ALLOCATE = 1 << 7,
	KV_SIM_TRUNCATE = 1 << 8,
	KV_SIM_MUTATING = (1 << 9) - 1,
	KV_SIM_OPEN = 1 << 9,	/* of an existing file */
	KV_SIM_READ = 1 << 10,
	KV_SIM_WRITEBACK = 1 << 11,
	KV_SIM_LIST = 1 << 12,
	KV_SIM_LOCK = 1 << 13,
	KV_SIM_SIZE = 1 << 14,	/* size and space */
};

/* Mutating calls so far, also failed ones. */
uint64_t kv_env_sim_ops(struct kv_env *env);
/*
 * The machine dies at a mutating call: `more` of them still work, the next is
 * not done, or, with torn and when it is a write, done in part; it and all
 * calls after it (but close) fail with -EIO until kv_env_sim_crash() or
 * kv_env_sim_heal(). A test tries every crash point so:
 *
 *	for (uint64_t n = 0;; n++) {
 *		env = kv_env_sim_new(seed);
 *		kv_env_sim_stop_after(env, n, true);
 *		workload(env);
 *		if (!kv_env_sim_stopped(env))
 *			break;
 *		kv_env_sim_crash(env, KV_SIM_RANDOM, seed + n);
 *		check(env);
 *		kv_env_sim_free(env);
 *	}
 */
void kv_env_sim_stop_after(struct kv_env *env, uint64_t more, bool torn);
bool kv_env_sim_stopped(struct kv_env *env);

/*
 * Called before each mutating call (and each lock and dir_open that may be one), without a lock,
 * by the thread that makes the call: it may clone the disk. name is of the file, the old one for
 * a rename, or the directory's path.
 */
typedef void kv_env_sim_hook_fn(void *arg, struct kv_env *env, enum kv_sim_op op,
				const char *name);
void kv_env_sim_hook(struct kv_env *env, kv_env_sim_hook_fn *fn, void *arg);

/* Not 0: the simulation itself is asking for memory. For tests in which other allocations fail. */
extern _Thread_local volatile unsigned kv_env_sim_allocates;

/* --- faults ------------------------------------------------------------------------- */

struct kv_sim_fault {
	unsigned ops;		/* bits of enum kv_sim_op */
	const char *suffix;	/* of the file's name (one of both, for a rename); NULL: any */
	uint64_t after;		/* so many matching calls still work */
	int err;		/* the negated errno that the next gets */
	bool forever;		/* and all behind it, too */
};

#define KV_SIM_FAULTS_MAX 16

/*
 * Plans a fault. The call that gets it has no effect, except: a write is done
 * in part; and a failed sync loses what was unsynced in the file: reads go on
 * seeing it, but no later sync makes it durable, and a crash drops it.
 */
void kv_env_sim_fail(struct kv_env *env, const struct kv_sim_fault *fault);
/*
 * From now on, and in clones, it is a failed assertion when anybody writes into a file that has
 * more than one name, or changes its length or its space.
 */
void kv_env_sim_guard_links(struct kv_env *env);
/* How many calls have failed so. */
uint64_t kv_env_sim_faults_hit(struct kv_env *env);
/* Forgets all faults and the stop. What was lost stays lost. */
void kv_env_sim_heal(struct kv_env *env);

/* In bytes of allocated blocks (4 KiB each); less than is used is allowed, UINT64_MAX is unlimited. */
void kv_env_sim_set_capacity(struct kv_env *env, uint64_t bytes);
uint64_t kv_env_sim_used(struct kv_env *env);

/* Flips the bits of mask in one byte of a file, current and durable. -ENOENT; -EINVAL behind its end. */
int kv_env_sim_flip(struct kv_env *env, const char *path, const char *name, uint64_t offset,
		    uint8_t mask);
/* Of all that somebody sees who opens the disk now: names, sizes, bytes. Equal disks have equal ones. */
uint64_t kv_env_sim_hash(struct kv_env *env);
/* How many bytes of a file are unsynced, in whole sectors; -ENOENT. */
int kv_env_sim_unsynced(struct kv_env *env, const char *path, const char *name,
			uint64_t *out_bytes);
/* Whether the name, as it is now, would survive any crash; -ENOENT. */
int kv_env_sim_name_durable(struct kv_env *env, const char *path, const char *name,
			    bool *out_durable);

/* The clock stands still but for this, for sleep_ns(), and for one microsecond at each look. */
void kv_env_sim_advance(struct kv_env *env, uint64_t ns);

#endif
