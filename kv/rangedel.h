/*
 * Range tombstones of one source (a memtable, a table, a compaction), cut into
 * fragments that do not overlap: immutable, sorted, reference-counted, so that
 * "what covers this key" is one binary search.
 */
#ifndef KV_RANGEDEL_H
#define KV_RANGEDEL_H

#include "kv/ikey.h"

struct kv_rangedel {
	struct kv_slice begin, end;	/* user keys, [begin, end) */
	kv_seqno seqno;
};

/* A fragment; several with the same bounds follow each other, newest first. */
struct kv_rangedels {
	_Atomic uint32_t refs;
	uint32_t count;
	size_t memory_bytes;		/* all of it, with this header */
	struct kv_rangedel at[];	/* sorted by (begin, seqno descending); the bytes of the keys follow */
};

/*
 * Cuts the n tombstones at each other's bounds and sorts them; neighbours with the
 * same seqnos become one. Copies the keys. Empty ranges are left out. *out has
 * one reference; NULL when there is nothing.
 *
 * The result is as large as the sum over all bounds of the tombstones that
 * cover them: nested ranges cost their depth.
 */
int kv_rangedels_new(const struct kv_rangedel *in, size_t n, struct kv_rangedels **out)
	KV_NODISCARD;
struct kv_rangedels *kv_rangedels_ref(struct kv_rangedels *r);
void kv_rangedels_unref(struct kv_rangedels *r);

/* Seqno of the newest tombstone at or below `snapshot` that covers the key; 0 when none. r may be NULL. */
kv_seqno kv_rangedels_covering(const struct kv_rangedels *r, struct kv_slice user_key,
			       kv_seqno snapshot);
/*
 * The same, and the span around the key in which this answer holds: bounds and
 * seqno of the fragment; or, with seqno 0, of a gap between fragments or a
 * fragment that is too new. A bound with data NULL is none. (Bytes stay while
 * the caller holds a reference.)
 */
kv_seqno kv_rangedels_cover(const struct kv_rangedels *r, struct kv_slice user_key,
			    kv_seqno snapshot, struct kv_rangedel *out_span);

#endif
