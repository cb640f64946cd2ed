/*
 * Open tables and segments, by number: opened on first use, kept while in use, and after that
 * as long as there are not too many of them. To get one that is open takes no lock.
 * What they take in memory is charged to the cache of blocks.
 */
#ifndef KV_FILECACHE_H
#define KV_FILECACHE_H

#include "kv/sst.h"

struct kv_filecache;
struct kv_filecache_entry;

/* files_max: as many are kept open; more while they are in use. */
struct kv_filecache *kv_filecache_new(struct kv_store *s, struct kv_cache *cache,
				      const struct kv_sst_counters *counters,
				      uint32_t files_max);
void kv_filecache_free(struct kv_filecache *fc);

/* Pins the entry; release it with kv_filecache_unpin(). */
int kv_filecache_table(struct kv_filecache *fc, kv_fileno number, uint64_t file_bytes,
		       struct kv_filecache_entry **out_pin, struct kv_sst **out) KV_NODISCARD;
int kv_filecache_segment(struct kv_filecache *fc, kv_fileno number,
			 struct kv_filecache_entry **out_pin, struct kv_env_file **out)
	KV_NODISCARD;
void kv_filecache_unpin(struct kv_filecache *fc, struct kv_filecache_entry *e);
/* The cache that its tables read through: what kv_sst_get() pinned is unpinned there. */
struct kv_cache *kv_filecache_cache(const struct kv_filecache *fc);
/* The file is going to be deleted: closes it as soon as nobody uses it, and drops its blocks. */
void kv_filecache_drop(struct kv_filecache *fc, kv_fileno number);

#endif
