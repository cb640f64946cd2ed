/*
 * A bounded rate of bytes, with what may be taken at once beyond it. It knows no clock and
 * never waits: the caller says what time it is, and does the waiting.
 */
#ifndef KV_PACE_H
#define KV_PACE_H

#include "kv/base.h"

/* The first two are the caller's to set; one thread at a time. */
struct kv_pace {
	uint64_t bytes_per_second;	/* 0: no bound */
	uint64_t burst_bytes;
	uint64_t paid_ns;		/* when all that was taken will be paid; 0: nothing was */
};

/* Takes so many bytes, whether they can be had by now or not. */
void kv_pace_take(struct kv_pace *p, uint64_t now_ns, uint64_t bytes);
/* How long to wait before more is taken; 0: not at all. */
uint64_t kv_pace_wait_ns(const struct kv_pace *p, uint64_t now_ns);

#endif
