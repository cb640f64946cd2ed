#include "kv/pace.h"

#define SECOND_NS 1000000000

/* About 73 years at the most: so sums of it with a time do not overflow. */
static uint64_t cost_ns(const struct kv_pace *p, uint64_t bytes)
{
	unsigned __int128 ns = (unsigned __int128)bytes * SECOND_NS / p->bytes_per_second;

	return (uint64_t)KV_MIN(ns, UINT64_MAX / 8);
}

void kv_pace_take(struct kv_pace *p, uint64_t now_ns, uint64_t bytes)
{
	uint64_t from;

	if (!p->bytes_per_second)
		return;
	/* A time without use is forgotten; the burst is what may be in debt. */
	from = KV_MAX(p->paid_ns, now_ns);
	p->paid_ns = from > UINT64_MAX / 2 ? from : from + cost_ns(p, bytes);
}

uint64_t kv_pace_wait_ns(const struct kv_pace *p, uint64_t now_ns)
{
	uint64_t debt_ns = p->paid_ns > now_ns ? p->paid_ns - now_ns : 0, burst_ns;

	if (!debt_ns)
		return 0;
	burst_ns = cost_ns(p, p->burst_bytes);
	return debt_ns > burst_ns ? debt_ns - burst_ns : 0;
}
