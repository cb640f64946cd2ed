/*
 * Cursors made of cursors: a level of tables in a row; and several sources
 * merged, with their range tombstones applied.
 */
#ifndef KV_CURSOR_MERGE_H
#define KV_CURSOR_MERGE_H

#include "kv/version.h"

/*
 * The point entries of a level (not 0) whose tables don't overlap; one of them is open at a
 * time. Holds a reference to the version. NULL when out of memory.
 */
struct kv_cursor *kv_level_cursor(struct kv_version *v, int level, struct kv_filecache *fc,
				  bool fill_cache, bool sequential);

struct kv_merge_source {
	struct kv_cursor *cursor;	/* taken over */
	struct kv_rangedels *rangedels;	/* may be NULL; a reference is taken over */
};

/*
 * All entries of the sources in internal-key order. Sources are given newest
 * first: for one user key, everything in an earlier source is newer than in a later one.
 *
 * With apply_below > 0, entries that a range tombstone with seqno <= apply_below
 * covers are left out, and a source is not walked through what a newer source
 * covers but sought beyond it. With 0 (compaction) nothing is left out.
 *
 * Takes the cursors and references over, also on failure (NULL: out of memory). A
 * source whose cursor is NULL, since making it ran out of memory, is such a failure.
 */
struct kv_cursor *kv_merge_cursor(struct kv_merge_source *sources, size_t n,
				  kv_seqno apply_below);

#endif
