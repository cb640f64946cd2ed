/*
 * One collection of garbage: the values of a few segments that are still
 * referred to move to segments of their own, and the tables that refer to them are written anew.
 * gc.c decides what and when, gc_move.c does it.
 */
#ifndef KV_GC_H
#define KV_GC_H

#include "kv/db.h"

#define KV_GC_VICTIMS_MAX 4		/* segments of one run */

struct kv_gc_table {
	struct kv_table *table;
	int level;
};

/* Neighbouring bytes of one record that are referred to; all of it, as a rule. */
struct kv_gc_piece {
	struct kv_vptr from;		/* these bytes are its part */
	struct kv_vptr to;		/* their copy: a whole value */
	uint64_t order;			/* of the first reference to it that was met */
};

/* Belongs to one thread. */
struct kv_gc_run {
	struct kv_db *db;
	kv_fileno victims[KV_GC_VICTIMS_MAX];	/* ascending */
	size_t victim_count;
	uint64_t victim_bytes;		/* sizes of their files */
	uint64_t live_bytes;		/* what tables refer to in them */

	struct kv_version *version;	/* that the choice was made from */
	struct kv_gc_table *tables;	/* all that refer to a victim, by smallest key; claimed */
	size_t table_count;

	struct kv_gc_piece *pieces;	/* by segment, offset and part */
	size_t piece_count, piece_count_max;
	uint64_t refs;			/* met so far */

	struct kv_live_segment *segment; /* copied to; NULL before the first value */
	struct kv_link full;		/* those before it: struct kv_live_segment, flush_link */
	struct kv_edit edit;
	uint64_t copied_bytes;

	/* Why a run ended without a result, and without an error: */
	bool stopped;			/* the store is being closed */
	bool useless;			/* the copy would not be smaller */
	bool damaged;			/* something can't be read as it was written; has been reported */
	kv_fileno damaged_no;		/* the segment it lies in; 0: in a table */
};

/*
 * Does it all, up to the edit. On success nothing in the current version refers
 * to the victims any more (in a memtable there may be a new reference). Otherwise, or when
 * *out_did is false, nothing has changed: the outputs are removed, or are left as segments that nothing refers
 * to. KV_E_no_space, -ENOMEM and failures to read can pass; failures to write poison.
 */
int kv_gc_move(struct kv_gc_run *r, bool *out_did) KV_NODISCARD;

#endif
