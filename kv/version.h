/*
 * The immutable, reference-counted set of files: which tables lie on which
 * level, and which segments there are, with what tables refer to in each. And the
 * named snapshots, since what they see is part of the state that these files hold.
 * Level 0 is ordered newest first and its tables may overlap; the tables of
 * a deeper level are ordered by key and never do.
 */
#ifndef KV_VERSION_H
#define KV_VERSION_H

#include "kv/edit.h"
#include "kv/filecache.h"
#include "kv/lock.h"
#include "kv/snapset.h"

/*
 * What becomes of a file that an installed edit has deleted, once the last
 * version that has it is gone: called once, from whatever thread let go of it.
 */
struct kv_obsolete_sink {
	void (*fn)(void *arg, enum kv_file_kind kind, kv_fileno number);
	void *arg;
};

/* Shared by all versions that have the table; counted. */
struct kv_table {
	_Atomic uint32_t refs;
	_Atomic bool obsolete;		/* an installed edit has deleted it */
	const struct kv_obsolete_sink *sink;
	struct kv_sst_meta meta;
	bool busy;			/* input of a running compaction or collection; under db->mu */
};

/* Shared by all versions that have the segment; counted. */
struct kv_segment {
	_Atomic uint32_t refs;
	_Atomic bool obsolete;
	const struct kv_obsolete_sink *sink;
	kv_fileno number;
};

struct kv_version_segment {
	struct kv_segment *segment;
	kv_fileno number;
	uint64_t bytes;			/* when sealed */
	uint64_t referenced_bytes;	/* sum over the tables of this version */
	uint64_t table_count;		/* tables of this version that refer to it */
	bool sealed;
};

struct kv_level {
	struct kv_table **tables;
	size_t count;
	uint64_t bytes;
};

struct kv_version {
	_Atomic uint32_t refs;
	struct kv_level levels[KV_LEVELS];
	struct kv_version_segment *segments;	/* sorted by number */
	size_t segment_count;
	struct kv_snapset *snapshots;	/* the named ones; NULL: none */

	struct kv_mutex level_rangedels_mu;	/* made when first asked for */
	struct kv_rangedels *level_rangedels[KV_LEVELS];
	bool level_rangedels_made[KV_LEVELS];
};

struct kv_version *kv_version_ref(struct kv_version *v);
void kv_version_unref(struct kv_version *v);

/*
 * base with the edit applied (base NULL: nothing). KV_E_bad_record when the
 * result would break what is said above, when something deleted is not there,
 * something added is, or a table refers to a segment that is not registered: an
 * edit is checked before it is written and after it was read.
 */
int kv_version_apply(const struct kv_version *base, const struct kv_edit *edit,
		     const struct kv_obsolete_sink *sink, struct kv_version **out)
	KV_NODISCARD;
/*
 * The edit is durable and its result is the current version: what the edit deletes becomes
 * obsolete, and goes to the sink when the last version that has it is unreferenced.
 */
void kv_version_retire(const struct kv_version *before, const struct kv_edit *edit);
/* The whole of it as an edit (tables, segments, snapshots; the caller adds the numbers). */
int kv_version_to_edit(const struct kv_version *v, struct kv_edit *out) KV_NODISCARD;

/*
 * Index of the first table of a level (not 0) whose largest key is at or after
 * the user key; count when none.
 */
size_t kv_level_find(const struct kv_level *l, struct kv_slice user_key);
/* Do any tables of the level overlap the user keys [begin, end]? data NULL: unbounded. */
bool kv_level_overlaps(const struct kv_level *l, int level, struct kv_slice begin,
		       struct kv_slice end);
struct kv_version_segment *kv_version_segment(const struct kv_version *v, kv_fileno number);

/*
 * Range tombstones of all tables of a level (not 0; there each table has its
 * own) in one; belongs to the version; *out NULL when none.
 */
int kv_version_level_rangedels(struct kv_version *v, int level, struct kv_filecache *fc,
			       struct kv_rangedels **out) KV_NODISCARD;

/*
 * As kv_memtable_get(), over all levels, newest first; stops at the first table
 * that has a point entry of the key, or a range tombstone that covers it: all
 * further ones are older. *out_pin, which was none, keeps
 * out->value: the caller lets it go.
 */
int kv_version_get(const struct kv_version *v, struct kv_filecache *fc, struct kv_slice user_key,
		   kv_seqno snapshot, struct kv_found *out, kv_seqno *out_covered,
		   struct kv_sst_pin *out_pin) KV_NODISCARD;
/* The same, in tables that have something newer than since. What it finds may be older still. */
int kv_version_get_since(const struct kv_version *v, struct kv_filecache *fc,
			 struct kv_slice user_key, kv_seqno since, kv_seqno snapshot,
			 struct kv_found *out, kv_seqno *out_covered, struct kv_sst_pin *out_pin)
	KV_NODISCARD;

#endif
