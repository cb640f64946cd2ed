/*
 * Sharded cache with pins, for blocks of tables: one budget of bytes for data
 * blocks, indexes and filters. CLOCK: a hit sets a bit, eviction sweeps.
 * Entries that are pinned stay. A get and an unpin take no lock.
 *
 * What others need of the same budget they charge: blocks get what that leaves.
 */
#ifndef KV_CACHE_H
#define KV_CACHE_H

#include "kv/slice.h"

struct kv_cache;
struct kv_cache_entry;

struct kv_cache_key {
	uint64_t file_no, offset;
};

struct kv_cache *kv_cache_new(uint64_t bytes_max);
/* No entry may be pinned. */
void kv_cache_free(struct kv_cache *c);

/* The entry, pinned, or NULL (which it rarely is for one that is there, while others are changed). */
struct kv_cache_entry *kv_cache_get(struct kv_cache *c, struct kv_cache_key key);
/*
 * Hands `data` (from malloc) over to the cache and returns its entry, pinned;
 * frees data and returns the other one when the key is there already. On out
 * of memory frees data and returns NULL.
 */
struct kv_cache_entry *kv_cache_put(struct kv_cache *c, struct kv_cache_key key, void *data,
				    size_t bytes);
/* An entry that no look-up finds: freed when unpinned. For reads that should not fill the cache. */
struct kv_cache_entry *kv_cache_private(struct kv_cache *c, void *data, size_t bytes);
void kv_cache_unpin(struct kv_cache *c, struct kv_cache_entry *e);
struct kv_slice kv_cache_entry_data(const struct kv_cache_entry *e);
/* Drops every entry of a file that has been deleted. */
void kv_cache_drop_file(struct kv_cache *c, uint64_t file_no);
/* Of entries that can be found, or that are dropped but pinned. */
uint64_t kv_cache_bytes(const struct kv_cache *c);

/*
 * Takes so many bytes of the budget for something else, or gives them back (negative). Blocks
 * make room at once, as far as they are not pinned, but may always take a quarter of the budget.
 * Whoever charges gives all back before the cache is freed.
 */
void kv_cache_charge(struct kv_cache *c, int64_t bytes);
uint64_t kv_cache_charged(const struct kv_cache *c);

#endif
