/*
 * What the files of the sorted table share: sst_build.c, sst_meta.c, sst_read.c,
 * sst_cursor.c, sst_check.c.
 */
#ifndef KV_SST_IMPL_H
#define KV_SST_IMPL_H

#include "kv/block.h"
#include "kv/sst.h"

#define KV_BLOCK_RAW_BYTES_MAX (1u << 30)	/* no block that says more of itself is believed */

/* A decoded struct kv_block_handle_disk; stored_bytes 0: no such block. */
struct kv_block_handle {
	uint64_t offset;
	uint32_t stored_bytes;
};

#define KV_TABLE_VERSION 1

/* The checksum that belongs in a footer. */
uint64_t kv_table_footer_sum(const struct kv_table_footer *f);

struct kv_block_handle_disk kv_block_handle_encode(struct kv_block_handle h);
struct kv_block_handle kv_block_handle_decode(struct kv_block_handle_disk d);
/* Where what follows the block begins. */
static inline uint64_t kv_block_end(struct kv_block_handle h)
{
	return h.offset + h.stored_bytes + sizeof(struct kv_block_trailer);
}
/* The checksum that belongs in the trailer of a block. */
uint64_t kv_block_sum(kv_fileno number, uint64_t offset, struct kv_slice stored,
		      const struct kv_block_trailer *trailer);

/*
 * Sums up what a table holds, in a meta that was all zero: for the builder, and for the
 * check of what it built. KV_E_bad_record when the value should be a pointer and is none.
 */
int kv_sst_meta_add(struct kv_sst_meta *m, struct kv_slice ikey, struct kv_slice value)
	KV_NODISCARD;
int kv_sst_meta_add_rangedel(struct kv_sst_meta *m, const struct kv_rangedel *r) KV_NODISCARD;
/* All but number and file_bytes, as the block of properties holds it. */
int kv_sst_meta_encode(const struct kv_sst_meta *m, struct kv_buf *out) KV_NODISCARD;
/*
 * KV_E_bad_record when something is missing or makes no sense. *out must be all zero;
 * done it also after a failure.
 */
int kv_sst_meta_decode(struct kv_slice s, struct kv_sst_meta *out) KV_NODISCARD;
bool kv_sst_meta_eq(const struct kv_sst_meta *a, const struct kv_sst_meta *b);

/* Takes the next range tombstone from the front of *s; false when malformed (or empty). */
bool kv_sst_take_rangedel(struct kv_slice *s, struct kv_rangedel *out);

struct kv_sst {
	struct kv_store *store;		/* all constant once open */
	struct kv_cache *cache;
	struct kv_env_file *file;
	kv_fileno number;
	uint64_t file_bytes;
	struct kv_sst_counters counters;
	struct kv_block_handle index, filter, range_deletes, properties;
	struct kv_sst_meta meta;
	struct kv_rangedels *rangedels;
};

/*
 * Pins a block of data or the index, reading it when it isn't in the cache; fill: it is kept
 * there. Failures are reported.
 */
int kv_sst_block(struct kv_sst *t, struct kv_block_handle h, bool fill, struct kv_sst_pin *out)
	KV_NODISCARD;
/* Pins the block if it is in the cache. */
bool kv_sst_block_cached(struct kv_sst *t, struct kv_block_handle h, struct kv_sst_pin *out)
	KV_NODISCARD;
/* What it has pinned. */
struct kv_block kv_sst_pin_block(const struct kv_sst_pin *p);
/* Any block from the file, whatever is in the cache, and nothing but its bytes. */
int kv_sst_block_anew(struct kv_sst *t, struct kv_block_handle h, struct kv_sst_pin *out)
	KV_NODISCARD;
/* The handle in an entry of the index; KV_E_bad_record when it lies outside of the file. */
int kv_sst_handle(const struct kv_sst *t, struct kv_slice value, struct kv_block_handle *out)
	KV_NODISCARD;
/* Reports an error in the block at h, and returns it. */
int kv_sst_fail(const struct kv_sst *t, int err, struct kv_block_handle h, const char *what);

#endif
