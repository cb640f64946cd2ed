#include "kv/histogram.h"

#include "kv/assert.h"

#define SUB_BITS 4

_Static_assert(KV_HISTOGRAM_SUB == 1 << SUB_BITS, "buckets are found by shifting");

static size_t bucket_of(uint64_t value)
{
	int shift;

	if (value < KV_HISTOGRAM_SUB)
		return (size_t)value;
	if (value >> KV_HISTOGRAM_BITS)
		return KV_HISTOGRAM_BUCKETS - 1;
	shift = 63 - __builtin_clzll(value) - SUB_BITS;
	return (size_t)(shift << SUB_BITS) + (size_t)(value >> shift);
}

/* The largest number in it. */
static uint64_t bucket_end(size_t i)
{
	int shift = i < KV_HISTOGRAM_SUB ? 0 : (int)(i >> SUB_BITS) - 1;
	uint64_t first = (uint64_t)(i - ((size_t)shift << SUB_BITS)) << shift;

	return first + ((uint64_t)1 << shift) - 1;
}

void kv_histogram_add(struct kv_histogram *h, uint64_t value)
{
	uint64_t max = atomic_load_explicit(&h->max, memory_order_relaxed);

	atomic_fetch_add_explicit(&h->counts[bucket_of(value)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum, value, memory_order_relaxed);
	while (value > max &&
	       !atomic_compare_exchange_weak_explicit(&h->max, &max, value, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

void kv_histogram_read(struct kv_histogram *h, struct kv_histogram_view *out)
{
	out->count = 0;
	out->sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
	for (size_t i = 0; i < KV_HISTOGRAM_BUCKETS; i++) {
		out->counts[i] = atomic_load_explicit(&h->counts[i], memory_order_relaxed);
		out->count += out->counts[i];
	}
	out->max = atomic_load_explicit(&h->max, memory_order_relaxed);
}

uint64_t kv_histogram_quantile(const struct kv_histogram_view *v, uint32_t millionths)
{
	uint64_t rank, seen = 0;

	KV_ASSERT(millionths <= 1000000);
	/* Rounded up, and at least the first: computed in parts, so that it can't overflow. */
	rank = v->count / 1000000 * millionths +
	       (v->count % 1000000 * millionths + 999999) / 1000000;
	rank = KV_MAX(rank, (uint64_t)1);
	for (size_t i = 0; i < KV_HISTOGRAM_BUCKETS; i++) {
		seen += v->counts[i];
		if (seen < rank)
			continue;
		/* In the last bucket there may be anything. */
		return i == KV_HISTOGRAM_BUCKETS - 1 ? v->max : KV_MIN(bucket_end(i), v->max);
	}
	return 0;
}
