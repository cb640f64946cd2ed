/*
 * A histogram of numbers, by their size: exact up to 16, and from there 16 buckets for each power of
 * two, so that what is read from it is at most a sixteenth too large. Any number of threads add
 * to it without a lock; who reads beside them may miss the last ones.
 */
#ifndef KV_HISTOGRAM_H
#define KV_HISTOGRAM_H

#include <stdatomic.h>

#include "kv/base.h"

#define KV_HISTOGRAM_SUB 16		/* buckets for each power of two */
#define KV_HISTOGRAM_BITS 40		/* larger numbers share the last bucket: 2^40 ns are 18 minutes */
#define KV_HISTOGRAM_BUCKETS ((KV_HISTOGRAM_BITS - 3) * KV_HISTOGRAM_SUB)

/* All zero is an empty one. */
struct kv_histogram {
	_Atomic uint64_t counts[KV_HISTOGRAM_BUCKETS];
	_Atomic uint64_t sum, max;
};

void kv_histogram_add(struct kv_histogram *h, uint64_t value);

/* What it held at one time. */
struct kv_histogram_view {
	uint64_t counts[KV_HISTOGRAM_BUCKETS];
	uint64_t count, sum, max;
};

void kv_histogram_read(struct kv_histogram *h, struct kv_histogram_view *out);
/*
 * The number that so many millionths of all numbers don't exceed (500000: the median), or up to a
 * sixteenth more; never more than the largest. 0 when there are none.
 */
uint64_t kv_histogram_quantile(const struct kv_histogram_view *v, uint32_t millionths);

#endif
