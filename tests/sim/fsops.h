/*
 * A small tree, and a table of changes to it, each by a name of its own: what the enumeration of
 * crashes and the plans of failures choose from. All is a function of the table: the same changes in the
 * same order make the same tree, to the byte and to the second.
 *
 *	/a	3000 bytes, with an extended attribute
 *	/b	140000 bytes, so in two windows
 *	/d/	a directory
 *	/d/a	100 bytes
 *
 * /c, /e, /s and /d/c are not there.
 */
#ifndef TESTS_FSOPS_H
#define TESTS_FSOPS_H

#include <time.h>

#include "fs/core.h"

struct fsop {
	const char *name;
	enum {
		FSOP_CREATE, FSOP_MKFIFO, FSOP_TMPFILE, FSOP_MKDIR, FSOP_SYMLINK, FSOP_LINK, FSOP_UNLINK,
		FSOP_UNLINK_OPEN, FSOP_RMDIR, FSOP_RENAME, FSOP_WRITE, FSOP_WRITE_SYNC, FSOP_APPEND,
		FSOP_TRUNCATE, FSOP_ALLOCATE, FSOP_COPY, FSOP_CHMOD, FSOP_SETXATTR, FSOP_REMOVEXATTR,
		FSOP_SYNC, FSOP_FLUSH,
		FSOP_REOPEN,	/* closed and opened again */
		FSOP_KILL,	/* the process is killed, and another one opens */
	} kind;
	const char *path, *to;	/* without the first slash */
	uint64_t offset, bytes;
	uint32_t flags;
};

extern const struct fsop fsops[];
extern const size_t fsop_count;

/* NULL: no such name. */
const struct fsop *fsop_find(struct kv_slice name);
/* Everything before is durable when it has succeeded. */
bool fsop_is_durable(const struct fsop *op);
/*
 * The result is an errno or a code of the engine. FSOP_REOPEN and FSOP_KILL are the caller's. Inodes
 * are forgotten, but for what FSOP_UNLINK_OPEN has removed.
 */
int fsop_do(struct fs *fs, const struct fsop *op) KV_NODISCARD;
/* Would a good program get this error, in some tree? Then nothing has changed. */
bool fsop_is_refusal(int err);

/* How the store is cut up: the one keeps all in its journal, the other flushes all the time. */
enum fsop_layout { FSOP_ROOMY, FSOP_TIGHT, FSOP_LAYOUTS };

/* now: what the clock of the filesystem shows, in seconds. */
int fsop_open(struct kv_env *env, enum fsop_layout layout, time_t *now, struct fs **out) KV_NODISCARD;
/* A disk with the tree above in "store", closed. *now is when it was made. */
struct kv_env *fsop_disk(uint64_t seed, enum fsop_layout layout, time_t *now);
/* The content that the name of a change writes. */
void fsop_fill(const char *name, uint8_t *to, size_t bytes);

#endif
