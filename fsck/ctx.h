/* What the passes share. For fsck/ only. */
#ifndef FSCK_CTX_H
#define FSCK_CTX_H

#include "fsck/check.h"

/* Names looked at, in all, to tell the paths of what is wrong: after that there are numbers only. */
#define FSCK_PATH_BUDGET ((uint64_t)5000000)

struct fsck {
	const struct fsck_options *options;
	struct fsck_result *result;
	const char *dir;
	struct kv_db *kv;
	struct fs_super super;
	bool super_ok;
	bool damaged;			/* a scan broke off: sums prove nothing */
	uint64_t bytes_used, inodes, ino_next;	/* as on record; ino_next 0: not known */
	bool said;			/* why it failed */
	uint64_t path_budget;
	bool report;			/* scans report what they cannot read or know: by one pass, not by each */
};

/* After so many records the caller is told how far it is. */
#define FSCK_PROGRESS_STEP 4096

/* -ECANCELED when the caller wants to stop. */
int fsck_progress(struct fsck *c, const char *step, uint64_t done, uint64_t all) KV_NODISCARD;

/* --- scan.c: all keys of one kind, in order -------------------------------------------- */

struct fsck_scan {
	struct fsck *c;
	const char *what;		/* for messages */
	enum fs_key_kind kind;
	struct kv_iter *it;
	uint64_t seen;
	bool valid;
	struct fs_key_parts key;	/* when it is valid; name borrowed until it moves */
};

/*
 * From the inode on, positioned. Keys that mean nothing are skipped; where the store cannot be
 * read further is the end. (Both are reported if c->report is set.)
 */
int fsck_scan_open(struct fsck *c, enum fs_key_kind kind, fs_ino from, struct fsck_scan *out)
	KV_NODISCARD;
void fsck_scan_close(struct fsck_scan *s);
void fsck_scan_next(struct fsck_scan *s);
/* False: it cannot be read (reported likewise). */
bool fsck_scan_value(struct fsck_scan *s, struct kv_slice *out);

/* --- path.c ------------------------------------------------------------------------------ */

/* Appends "/a/b (inode 17)", or "inode 17" when no name can be found. */
int fsck_path_append(struct fsck *c, fs_ino ino, struct kv_buf *out) KV_NODISCARD;
/* Appends the name in quotes, with what isn't printable as \xNN. */
int fsck_name_append(struct kv_slice name, struct kv_buf *out) KV_NODISCARD;
/* What the attributes of the inode are; false: there are none, or they are damaged. */
bool fsck_attr_get(struct fsck *c, fs_ino ino, struct fs_attr *out);

/* --- the passes, in their order: 0, -ECANCELED, -ENOMEM -------------------------------------- */

/* Superblock, counters. */
int fsck_pass_super(struct fsck *c) KV_NODISCARD;
/* Keys that mean nothing: of none of our kinds, or of inodes that cannot be. */
void fsck_report_key(struct fsck *c, struct kv_slice key);
int fsck_pass_keys(struct fsck *c) KV_NODISCARD;
/* Each inode by itself: attributes, extents, extended attributes, names in it; then the sums. */
int fsck_pass_inodes(struct fsck *c) KV_NODISCARD;
/* What names name: existence, types, link counts, parents, loops. */
int fsck_pass_links(struct fsck *c) KV_NODISCARD;

#endif
