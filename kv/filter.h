/*
 * Bloom filter, cache-local: all bits of a key lie in one line of 64 bytes.
 * Format: lines, then 8 bytes {le32 number of lines, u8 probes, 3 x 0}.
 */
#ifndef KV_FILTER_H
#define KV_FILTER_H

#include "kv/buf.h"

uint64_t kv_filter_hash(struct kv_slice user_key);
/* Appends the filter of n hashes (equal ones are fine). */
int kv_filter_build(const uint64_t *hashes, size_t n, uint32_t bits_per_key, struct kv_buf *out)
	KV_NODISCARD;
/* False: the key is not there. Malformed filters say true. */
bool kv_filter_may_contain(struct kv_slice filter, uint64_t hash);

#endif
