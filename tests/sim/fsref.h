/*
 * What a filesystem ought to hold: a tree of plain structs; and random operations
 * that change both it and the filesystem, predict the result, and compare. Every operation
 * happens at a time of its own, so that also all times are predicted.
 *
 * A dump is a text of the whole tree, one line a name, sorted: two trees are equal when
 * their dumps are. An inode goes by its time of birth there, since no two have the same.
 *
 * One thread. Failures of the test itself end the program.
 */
#ifndef TESTS_FSREF_H
#define TESTS_FSREF_H

#include <time.h>

#include "fs/core.h"

struct fsref;

/* What is wrong, in one line, is told to `fail`, which does not return. */
typedef void fsref_fail_fn(void *arg, const char *text);

struct fsref *fsref_new(uint64_t seed, fsref_fail_fn *fail, void *arg);
void fsref_free(struct fsref *r);

/* The clock for struct fs_options; arg is the struct fsref. */
void fsref_now(void *arg, struct timespec *out);
/* A filesystem was opened: the inodes of its last session are forgotten, and unnamed ones are gone. */
void fsref_opened(struct fsref *r, struct fs *fs);

/*
 * A change is drawn, and done to the reference only; then, by fsref_change(), to the filesystem,
 * whose result must be the predicted one. In between, fsref_dump() says what it will be. If the filesystem
 * is broken on purpose, unexpected errors are returned. *out_sync: it was a durable write.
 */
void fsref_draw(struct fsref *r);
int fsref_change(struct fsref *r, bool broken, bool *out_sync);
/* A random look at something; it must be as in the reference. */
void fsref_look(struct fsref *r);
/* Everything. */
void fsref_compare(struct fsref *r);

void fsref_dump(struct fsref *r, struct kv_buf *out);
/* The first error; then *out is of no use. */
int fsref_dump_fs(struct fs *fs, struct kv_buf *out) KV_NODISCARD;
/* Prints the first lines in which two dumps differ. */
void fsref_print_difference(const struct kv_buf *want, const struct kv_buf *got);

#endif
