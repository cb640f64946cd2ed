#include "kv/checksum.h"

/* For the state to lie on the stack: an allocation here could fail. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

/* Up to here gathering the parts costs less than setting up a streaming state. */
#define GATHER_BYTES_MAX 256

uint64_t kv_checksum(struct kv_slice s, uint64_t seed)
{
	return XXH3_64bits_withSeed(s.data, s.bytes, seed);
}

uint64_t kv_checksum2(struct kv_slice a, struct kv_slice b, uint64_t seed)
{
	struct iovec part = { .iov_base = (void *)(uintptr_t)b.data, .iov_len = b.bytes };

	return kv_checksum_iov(a, &part, 1, seed);
}

static uint64_t gather(struct kv_slice a, const struct iovec *iov, int iov_count, uint64_t seed)
{
	uint8_t all[GATHER_BYTES_MAX];
	size_t bytes = a.bytes;

	if (a.bytes)
		memcpy(all, a.data, a.bytes);
	for (int i = 0; i < iov_count; i++) {
		if (!iov[i].iov_len)
			continue;
		memcpy(all + bytes, iov[i].iov_base, iov[i].iov_len);
		bytes += iov[i].iov_len;
	}
	return XXH3_64bits_withSeed(all, bytes, seed);
}

uint64_t kv_checksum_iov(struct kv_slice a, const struct iovec *iov, int iov_count, uint64_t seed)
{
	XXH3_state_t state;
	size_t bytes = a.bytes;

	for (int i = 0; i < iov_count && bytes <= GATHER_BYTES_MAX; i++)
		bytes = iov[i].iov_len > GATHER_BYTES_MAX ? SIZE_MAX : bytes + iov[i].iov_len;
	if (bytes <= GATHER_BYTES_MAX)
		return gather(a, iov, iov_count, seed);

	/* None of these fails: the state and the input are there. */
	XXH3_INITSTATE(&state);
	(void)XXH3_64bits_reset_withSeed(&state, seed);
	if (a.bytes)
		(void)XXH3_64bits_update(&state, a.data, a.bytes);
	for (int i = 0; i < iov_count; i++)
		if (iov[i].iov_len)
			(void)XXH3_64bits_update(&state, iov[i].iov_base, iov[i].iov_len);
	return XXH3_64bits_digest(&state);
}
