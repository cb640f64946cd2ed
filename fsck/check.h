/*
 * The check of a filesystem as a library: what fsck.kvfs and the tests call.
 *
 * Nothing is written before everything has been read and found right; what is
 * written then is what every mount does too (recover the store after a crash, free what
 * was deleted while open). Unless it is asked for repair, which comes first: a store is made of what
 * is left of its files (kv/repair.h), if they are damaged.
 */
#ifndef FSCK_CHECK_H
#define FSCK_CHECK_H

#include "fsck/problem.h"

struct fsck_options {
	struct kv_env *env;		/* NULL: kv_env_posix() */
	bool read_only;			/* write nothing at all */
	bool thorough;			/* read every byte of the store's files */
	bool repair;			/* not with read_only */
	uint32_t repeat_max;		/* sentences of one kind that are said [100] */
	uint32_t nodes_max;		/* inodes whose links are counted at a time, 32 bytes each [4 Mi] */
	/* Sentences: what is wrong at KV_MSG_WARN, why it cannot be checked at KV_MSG_ERROR. */
	struct kv_msg msg;
	/* What is done now, how far it is; may be NULL. False: stop, with -ECANCELED. */
	bool (*progress)(void *arg, const char *step, uint64_t done, uint64_t all);
	void *arg;
};

struct fsck_result {
	uint64_t inodes, files, dirs, symlinks, others;
	uint64_t orphans;		/* of the inodes: deleted, not freed yet */
	uint64_t extents, bytes, names, xattrs;
	uint64_t problems;
	uint64_t orphans_freed;
	bool repaired;			/* the store's files */
	uint64_t losses;		/* things lost by that, each told */
	uint64_t count[FSCK_PROBLEM_NUMBER_MAX + 1]; /* by the number of the problem */
};

/*
 * 0: it could be looked at, and *out says what was found. Else why it could not: KV_E_locked
 * (mounted), KV_E_not_a_store, KV_E_newer_format, -ENOENT, -ECANCELED, ...; with a sentence said, and
 * *out as far as it came. KV_E_corrupt is never returned: that is a problem found.
 */
int fsck_run(const char *dir, const struct fsck_options *options, struct fsck_result *out)
	KV_NODISCARD;

/* Exit codes of fsck(8). */
enum fsck_exit {
	FSCK_EXIT_OK = 0,
	FSCK_EXIT_CORRECTED = 1,
	FSCK_EXIT_UNCORRECTED = 4,
	FSCK_EXIT_OPERATIONAL = 8,
	FSCK_EXIT_USAGE = 16,
	FSCK_EXIT_CANCELED = 32,
	FSCK_EXIT_LIBRARY = 128,	/* kept by fsck(8); not ours to return */
};
enum fsck_exit fsck_exit_code(int err, const struct fsck_result *r);

#endif
