/*
 * The newest data, in memory: point entries and range tombstones, plus what a
 * flush has to know (which segments its pointers lie in, which journal holds it).
 * Reference-counted; one writer at a time. Readers take no lock while there are no
 * range tombstones, and then one that nobody holds for long.
 */
#ifndef KV_MEMTABLE_H
#define KV_MEMTABLE_H

#include "kv/cache.h"
#include "kv/cursor.h"
#include "kv/rangedel.h"
#include "kv/skiplist.h"

struct kv_memtable;

/* What a look-up in one source found. */
struct kv_found {
	bool found;		/* else the fields below say nothing */
	enum kv_kind kind;	/* DELETE, PUT or PUT_PTR */
	kv_seqno seqno;
	struct kv_slice value;	/* owner: the source */
};

/* journal_no: the first journal that holds entries of it. One reference. NULL when out of memory. */
struct kv_memtable *kv_memtable_new(kv_fileno journal_no);
/* The same; its memory is charged to the cache, which has to outlive it. */
struct kv_memtable *kv_memtable_new_charged(kv_fileno journal_no, struct kv_cache *c);
struct kv_memtable *kv_memtable_ref(struct kv_memtable *m);
void kv_memtable_unref(struct kv_memtable *m);

/*
 * Adds one operation of any kind (for DELETE_RANGE: key is begin, value is end).
 * For PUT_PTR (value must be a struct kv_vptr_disk) remembers the segment and
 * adds the stored bytes to the bulk bytes.
 */
int kv_memtable_add(struct kv_memtable *m, kv_seqno seqno, enum kv_kind kind,
		    struct kv_slice key, struct kv_slice value) KV_NODISCARD;

/*
 * Newest point entry of the key at or below snapshot. Range tombstones are not
 * applied: *out_covered becomes the seqno of the newest one that covers the key
 * at or below snapshot, if larger than what is there.
 */
int kv_memtable_get(struct kv_memtable *m, struct kv_slice user_key, kv_seqno snapshot,
		    struct kv_found *out, kv_seqno *out_covered) KV_NODISCARD;

/*
 * Holds a reference to the memtable. NULL when out of memory. Point entries only. Keys and values
 * stay as long as the memtable, wherever the cursor moves.
 */
struct kv_cursor *kv_memtable_cursor(struct kv_memtable *m);
/* The tombstones added so far, fragmented; *out NULL when there are none; the caller unrefs it. */
int kv_memtable_rangedels(struct kv_memtable *m, struct kv_rangedels **out) KV_NODISCARD;

uint64_t kv_memtable_bytes(const struct kv_memtable *m);	/* memory */
uint64_t kv_memtable_bulk_bytes(const struct kv_memtable *m);	/* stored bytes its pointers refer to */
/* About how much of both belongs to [begin, end) (data NULL: from the first, to the last key). */
uint64_t kv_memtable_approximate_bytes(const struct kv_memtable *m, struct kv_slice begin,
				       struct kv_slice end);
uint64_t kv_memtable_count(const struct kv_memtable *m);	/* operations added */
uint64_t kv_memtable_delete_count(const struct kv_memtable *m);	/* of those, of single keys */
uint32_t kv_memtable_rangedel_count(const struct kv_memtable *m);
kv_fileno kv_memtable_journal_no(const struct kv_memtable *m);

/* Calls fn for each segment that a pointer in it refers to; the memtable must have no writer any more. */
typedef int kv_memtable_segment_fn(void *arg, kv_fileno segment_no);
int kv_memtable_each_segment(const struct kv_memtable *m, kv_memtable_segment_fn *fn, void *arg);
/* Is the segment among them? May be called beside the writer. */
bool kv_memtable_refers(const struct kv_memtable *m, kv_fileno segment_no);

#endif
