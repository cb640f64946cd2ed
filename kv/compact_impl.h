/*
 * What the files of a compaction share: the job, from its choice to the end.
 *
 *	compact.c		chooses, in the background
 *	compact_hand.c		chooses, by hand
 *	compact_job.c		claims, runs, installs, tells
 *	compact_input.c		which tables are read, and which range tombstones go on
 *	compact_cut.c		into parts that are merged at the same time
 *	compact_cursor.c	the inputs as one cursor
 *	compact_merge.c		merging a part, and its outputs
 */
#ifndef KV_COMPACT_IMPL_H
#define KV_COMPACT_IMPL_H

#include "kv/arena.h"
#include "kv/compact.h"
#include "kv/db.h"

struct kv_job {
	struct kv_db *db;
	struct kv_version *version;	/* that the choice was made from */
	struct kv_pick pick;

	kv_seqno *snapshots;		/* ascending, the present last */
	size_t snapshot_count;
	struct kv_rangedels *rangedels;	/* of all inputs */
	struct kv_rangedel *kept;	/* those of them that go to the outputs */
	size_t kept_count;

	struct kv_table **read;		/* inputs, without those that a tombstone hides as a whole */
	size_t read_upper, read_lower;

	struct kv_job_part *parts;
	size_t part_count;
	struct kv_arena keys;		/* where parts begin */
	struct kv_edit edit;
	bool claimed;
	bool rebuilds;			/* inputs overlap in any way, and may have the same entries (repair.c) */
	_Atomic bool stopped;		/* given up: the store is being closed, or a part has failed */
};

/* The inputs' entries with user keys in [begin, end), by one thread. */
struct kv_job_part {
	struct kv_job *job;		/* shared by all: nothing there changes meanwhile, but `stopped` */
	struct kv_slice begin, end;	/* data NULL: from the first, to the last */
	uint64_t entries;		/* seen so far */
	size_t kept_at;			/* range tombstones before it lie before the current output */

	struct kv_buf last;		/* internal key of the entry before */
	size_t last_stripe;

	struct kv_sst_build *build;	/* current output; NULL before its first entry */
	struct kv_buf output_begin;	/* user key that the current output begins at */
	bool output_begins;		/* false: the first one, there is no such key */
	size_t grandparent;		/* index in the level below the output level */
	uint64_t grandparent_bytes;	/* that the current output overlaps */
	struct kv_edit outputs;		/* adds them */
};

/* Range tombstones; whose bytes belong to others. */
struct kv_job_rangedels {
	struct kv_rangedel *at;
	size_t count, count_max;
};

static inline size_t kv_job_input_count(const struct kv_job *j)
{
	return j->pick.upper_count + j->pick.lower_count;
}

/* --- compact_job.c ---------------------------------------------------------------------------- */

/* The tables of j->pick belong to the job from here on. */
void kv_job_claim_locked(struct kv_db *db, struct kv_job *j) KV_REQUIRES(&db->mu);
/* Does it all, up to the edit. After a failure nothing has changed, or the store is poisoned. */
int kv_job_run(struct kv_job *j) KV_NODISCARD;
/* Lets go of the tables, and of all that the job has. */
void kv_job_done(struct kv_job *j);
struct kv_pick_options kv_job_pick_options_locked(struct kv_db *db) KV_REQUIRES(&db->mu);

/* --- compact_input.c -------------------------------------------------------------------------- */

/* Index of the oldest snapshot that sees it. */
size_t kv_job_stripe(const struct kv_job *j, kv_seqno seqno);
kv_seqno kv_job_stripe_end(const struct kv_job *j, size_t stripe);
int kv_job_rangedel_push(struct kv_job_rangedels *a, struct kv_rangedel r) KV_NODISCARD;
/* Sets snapshots, rangedels, kept and read. */
int kv_job_inputs(struct kv_job *j) KV_NODISCARD;

/* --- compact_cut.c ---------------------------------------------------------------------------- */

/*
 * Cuts what is to be read into at most so many parts of about the same size, none smaller than a
 * table. A key with all its entries is in one part.
 */
int kv_job_cut(struct kv_job *j, size_t count_max) KV_NODISCARD;

/* --- compact_cursor.c ------------------------------------------------------------------------- */

/* Over all that is read, newest first for each user key; forward only. NULL when out of memory. */
struct kv_cursor *kv_job_cursor(struct kv_job *j);

/* --- compact_merge.c -------------------------------------------------------------------------- */

/* Writes the outputs: they are in the parts' edits, also after a failure. */
int kv_job_merge(struct kv_job *j) KV_NODISCARD;

#endif
