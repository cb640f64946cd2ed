/*
 * Offline check of the files of a store: every checksum, every order, every
 * reference. What fsck.kvfs runs before it looks at the filesystem.
 */
#ifndef KV_VERIFY_H
#define KV_VERIFY_H

#include "kv/kv.h"

struct kv_verify_options {
	struct kv_env *env;		/* NULL: kv_env_posix() */
	/* One call for each thing wrong: the file (may be NULL), what is wrong in one sentence. */
	void (*problem)(void *arg, const char *file, const char *text);
	/* Progress, in bytes; may be NULL. */
	void (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_all);
	/* Asked after each few MiB, and while it waits; may be NULL. True: it ends, with -ECANCELED. */
	bool (*cancelled)(void *arg);
	void *arg;
	/*
	 * Reads no more than these, on average; 0: as fast as it can. It waits when a
	 * value, or a table, has been looked at. With quick, little is read, and nothing waits.
	 */
	uint64_t bytes_per_second;
	bool quick;			/* manifest, sizes, footers; not every block and value */
};

/*
 * Reads the store without changing it (it takes the store's lock, shared, and
 * fails with KV_E_locked when it is open). Returns 0 when it could look at
 * everything, and how many problems it found; else why not.
 */
int kv_verify(const char *dir, const struct kv_verify_options *options,
	      uint64_t *out_problems) KV_NODISCARD;

#endif
