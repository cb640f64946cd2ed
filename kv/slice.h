/*
 * Borrowed bytes. A slice owns nothing; whoever hands one out says how long
 * the bytes stay.
 */
#ifndef KV_SLICE_H
#define KV_SLICE_H

#include <string.h>

#include "kv/base.h"

struct kv_slice {
	const void *data;
	size_t bytes;
};

static inline struct kv_slice kv_slice(const void *data, size_t bytes)
{
	return (struct kv_slice){ data, bytes };
}

static inline struct kv_slice kv_slice_str(const char *s)
{
	return (struct kv_slice){ s, strlen(s) };
}

/* memcmp order, a prefix before what it is a prefix of. */
static inline int kv_slice_cmp(struct kv_slice a, struct kv_slice b)
{
	size_t n = KV_MIN(a.bytes, b.bytes);
	int c = n ? memcmp(a.data, b.data, n) : 0;

	return c ? c : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static inline bool kv_slice_eq(struct kv_slice a, struct kv_slice b)
{
	return a.bytes == b.bytes && (!a.bytes || !memcmp(a.data, b.data, a.bytes));
}

#endif
