/* XXH3, 64 bits, behind three small calls. */
#ifndef KV_CHECKSUM_H
#define KV_CHECKSUM_H

#include <sys/uio.h>

#include "kv/slice.h"

uint64_t kv_checksum(struct kv_slice s, uint64_t seed);
/* Of a and then b, as if they were one. */
uint64_t kv_checksum2(struct kv_slice a, struct kv_slice b, uint64_t seed);
/* Of a and then all parts, as if they were one. */
uint64_t kv_checksum_iov(struct kv_slice a, const struct iovec *iov, int iov_count,
			 uint64_t seed);

#endif
