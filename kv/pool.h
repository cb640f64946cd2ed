/*
 * Helper threads for work that one caller can split: values to compress, to sum, to
 * decompress, parts of a compaction to merge. The caller always takes part, so everything also works without
 * any helper: with none configured, all of them busy, or none to be had.
 */
#ifndef KV_POOL_H
#define KV_POOL_H

#include "kv/base.h"

struct kv_pool;

/* How many helpers are of use here: one for each other core, at most 3. */
uint32_t kv_pool_threads(void);

/* At most 7. The threads are started when they are first needed. NULL when out of memory. */
struct kv_pool *kv_pool_new(uint32_t threads);
/* Nobody may be in kv_parallel(). NULL is allowed. */
void kv_pool_free(struct kv_pool *p);

/* Works on one of the items; several run at the same time, each item once. */
typedef int kv_parallel_fn(void *arg, size_t item);

/*
 * Calls fn for the items from 0 to count - 1, begun in this order, and returns when all
 * calls have returned. When some fail, no further ones are begun, and the error is that of the
 * first item that fails: the same as without helpers.
 *
 * Handing over costs some 20 us: items should be worth it together. p may be NULL:
 * no helpers. Any number of threads may call it at once, with no lock held that fn takes.
 */
int kv_parallel(struct kv_pool *p, size_t count, kv_parallel_fn *fn, void *arg) KV_NODISCARD;

#endif
