/*
 * Compaction: choosing what to merge (compact_pick.c, pure functions of a
 * version) and doing it (compact_impl.h).
 *
 * Tables of one level are merged with all tables of the next level that they
 * overlap. So data moves down by one level at a time, and for every key the
 * upper level is always the newer one.
 *
 * Any number of compactions may run at once. Their inputs are disjoint (busy), and
 * so are the spans that they may write to: the inputs of a level below 0 are
 * neighbours, without a table left out between them; every table of the output level
 * within the span of the inputs is an input; only one compaction at a time takes
 * tables of level 0; and none writes to a gap between tables that another one rewrites.
 */
#ifndef KV_COMPACT_H
#define KV_COMPACT_H

#include "kv/version.h"

#define KV_LEVEL0_TABLES_COMPACT 4	/* level 0 is compacted from so many tables on */
#define KV_LEVEL_FACTOR 10		/* a level is so much larger than the one above */
#define KV_GRANDPARENT_FACTOR 10	/* a table overlaps that many of the level below at the most */
#define KV_COMPACT_TABLES_MAX 25	/* by hand: about so many tables' bytes at a time */

struct kv_pick_options {
	uint64_t level_base_bytes, table_bytes;
	bool quiet;			/* nothing else is to do: tombstones go down sooner */
	kv_seqno oldest_snapshot;	/* nobody reads an older state; tombstones up to here may go */
	struct kv_slice pointers[KV_LEVELS]; /* user keys: where the last compaction of a level ended */
};

/* What to merge. With upper_count 0 there is nothing to do. */
struct kv_pick {
	int level, output_level;	/* the same when tables are rewritten in place */
	bool move;			/* one table, which can go down as it is */
	struct kv_table **tables;	/* upper_count of level, then lower_count of output_level */
	size_t upper_count, lower_count;
};

void kv_pick_done(struct kv_pick *p);

/*
 * Chooses the compaction that is needed most: of the level that exceeds its
 * size by the largest factor, and there of the table that costs least for what it
 * brings; else of a table full of tombstones; else of one that may hide much in the
 * value log. Takes no busy table. The caller holds
 * what guards the busy flags. *out is all zero when there is nothing to do. -ENOMEM.
 */
int kv_pick_auto(const struct kv_version *v, const struct kv_pick_options *o,
		 struct kv_pick *out) KV_NODISCARD;

/* The table (of a level above the last) with what it has to be merged with, if it isn't busy. */
int kv_pick_table(const struct kv_version *v, const struct kv_pick_options *o, int level,
		  const struct kv_table *t, struct kv_pick *out) KV_NODISCARD;

/*
 * By hand: tables of the level that overlap the user keys [begin, end] (data NULL:
 * unbounded) and have a number below number_max, to go to output_level (level + 1, or
 * level itself to rewrite them in place). *out_busy: there are some, but one that would have to
 * take part is busy; wait, then ask again.
 */
int kv_pick_range(const struct kv_version *v, const struct kv_pick_options *o, int level,
		  int output_level, struct kv_slice begin, struct kv_slice end,
		  kv_fileno number_max, struct kv_pick *out, bool *out_busy) KV_NODISCARD;

/* Bytes of tables by which levels exceed their limits: what compactions will have to take down. */
uint64_t kv_pick_debt(const struct kv_version *v, uint64_t level_base_bytes);

/* --- spans of keys ------------------------------------------------------------------------ */

/* User keys from begin to end, end included unless end_open. */
struct kv_span {
	struct kv_slice begin, end;
	bool end_open;
};

/* The bytes belong to the table. A table that ends with a range tombstone ends before the key. */
struct kv_span kv_table_span(const struct kv_table *t);
bool kv_span_overlaps(struct kv_span a, struct kv_span b);
/* From the first key of both to the last. */
struct kv_span kv_span_join(struct kv_span a, struct kv_span b);
/* Tables of the level (not 0) that overlap: from *out_first on, returns how many. */
size_t kv_level_span(const struct kv_level *l, struct kv_span s, size_t *out_first);
/* Does any table of the levels below `level` overlap the span? */
bool kv_version_deeper_overlaps(const struct kv_version *v, int level, struct kv_span s);

#endif
