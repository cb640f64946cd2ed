/*
 * Sorted table: built once, in key order, then read often, never changed.
 *	file header | data blocks | range tombstones | filter | index | properties | footer
 * Each block has a trailer (format.h). Range tombstones: a sequence of
 * {prefixed begin, prefixed end, varint seqno}. Properties: varint number, prefixed value.
 */
#ifndef KV_SST_H
#define KV_SST_H

#include "kv/cache.h"
#include "kv/cursor.h"
#include "kv/memtable.h"
#include "kv/rangedel.h"
#include "kv/store.h"
#include "kv/vlog.h"

struct kv_segment_ref {
	kv_fileno segment_no;
	uint64_t bytes;			/* stored bytes that the table refers to there */
};

/* What a version knows about a table; also in its properties. */
struct kv_sst_meta {
	kv_fileno number;
	uint64_t file_bytes;
	uint64_t entries, deletes, range_deletes;
	uint64_t raw_bytes;		/* keys and inline values, before compression */
	kv_seqno seqno_min, seqno_max;
	/*
	 * Bounds of everything in it, internal keys. A range tombstone counts from
	 * (begin, its seqno) to (end, KV_SEQNO_MAX), which is before all entries of end itself.
	 */
	struct kv_buf smallest, largest;
	struct kv_segment_ref *refs;	/* sorted by segment */
	size_t ref_count;
};

void kv_sst_meta_done(struct kv_sst_meta *m);
int kv_sst_meta_copy(struct kv_sst_meta *to, const struct kv_sst_meta *from) KV_NODISCARD;
/* What it takes beside itself. */
uint64_t kv_sst_meta_memory_bytes(const struct kv_sst_meta *m);

/* --- building --------------------------------------------------------------------------------- */

struct kv_sst_options {
	uint32_t block_bytes;
	uint32_t filter_bits_per_key;	/* 0: no filter */
	enum kv_codec codec;		/* KV_CODEC_NONE: not compressed */
};

struct kv_sst_build;

int kv_sst_build_new(struct kv_store *s, kv_fileno number, const struct kv_sst_options *options,
		     struct kv_sst_build **out) KV_NODISCARD;
/* Removes the file if it was not finished. */
void kv_sst_build_free(struct kv_sst_build *b);
/* Internal keys strictly ascending (asserted). Counts references of PUT_PTR values by itself. */
int kv_sst_build_add(struct kv_sst_build *b, struct kv_slice ikey, struct kv_slice value)
	KV_NODISCARD;
/* In order of begin; any time before finish. */
int kv_sst_build_add_rangedel(struct kv_sst_build *b, const struct kv_rangedel *r) KV_NODISCARD;
/* Bytes written and pending: about what the file would have if finished now. */
uint64_t kv_sst_build_bytes(const struct kv_sst_build *b);
bool kv_sst_build_is_empty(const struct kv_sst_build *b);
/*
 * Finish the table and make its content durable. Its name becomes so by the
 * directory sync that the caller does before naming it in an edit (one for
 * several tables). *out_meta is set on success only; the caller owns it.
 */
int kv_sst_build_finish(struct kv_sst_build *b, struct kv_sst_meta *out_meta) KV_NODISCARD;

/* --- reading ------------------------------------------------------------------------------------ */

struct kv_sst;

/* A block in memory, to be let go by scope; all zero: none. It stays when the table is closed. */
struct kv_sst_pin {
	struct kv_cache *cache;
	struct kv_cache_entry *entry;
};

static inline void kv_sst_pin_done(struct kv_sst_pin *p)
{
	kv_cache_unpin(p->cache, p->entry);
	p->entry = NULL;
}

struct kv_sst_counters {
	_Atomic uint64_t *filter_skips, *cache_hits, *cache_misses;
};

/*
 * Opens and checks footer and properties; reads range tombstones. Index and filter
 * are read through the cache when needed. file_bytes: as the manifest says, else
 * KV_E_short_file. Takes the file over on success.
 */
int kv_sst_open(struct kv_store *s, struct kv_cache *cache, struct kv_env_file *file,
		kv_fileno number, uint64_t file_bytes, const struct kv_sst_counters *counters,
		struct kv_sst **out) KV_NODISCARD;
void kv_sst_close(struct kv_sst *t);

/* As kv_memtable_get(). *out_pin, which was none, keeps out->value: the caller lets it go. */
int kv_sst_get(struct kv_sst *t, struct kv_slice user_key, kv_seqno snapshot,
	       struct kv_found *out, kv_seqno *out_covered, struct kv_sst_pin *out_pin)
	KV_NODISCARD;
/* Point entries. The table must stay open. fill_cache: blocks read are kept; sequential: read ahead. */
struct kv_cursor *kv_sst_cursor(struct kv_sst *t, bool fill_cache, bool sequential);
/* What the open table takes, but for its blocks, which are in the cache. */
uint64_t kv_sst_memory_bytes(const struct kv_sst *t);
/*
 * Bytes of the table's blocks that lie before the key, to a block; the index is read through the
 * cache. With what kv_sst_data_bytes() says of all of them, that is a part of the table.
 */
int kv_sst_bytes_before(struct kv_sst *t, struct kv_slice user_key, uint64_t *out) KV_NODISCARD;
uint64_t kv_sst_data_bytes(const struct kv_sst *t);
/*
 * Calls fn with up to n user keys, ascending, between which about the same number of blocks lie; less
 * when the table is small. What fn returns ends it, if it isn't 0.
 */
int kv_sst_sample(struct kv_sst *t, size_t n, int (*fn)(void *arg, struct kv_slice user_key),
		  void *arg) KV_NODISCARD;
/* NULL when none; belongs to the table. */
struct kv_rangedels *kv_sst_rangedels(struct kv_sst *t);
/* The table's own properties; belongs to the table. */
const struct kv_sst_meta *kv_sst_meta(struct kv_sst *t);
/* Reads and checks every block, order and count; reports the first thing wrong. For verify. */
int kv_sst_check(struct kv_sst *t) KV_NODISCARD;

#endif
