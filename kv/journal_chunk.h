/* What writing and reading of journals share: how a chunk lies in its file. */
#ifndef KV_JOURNAL_CHUNK_H
#define KV_JOURNAL_CHUNK_H

#include "kv/checksum.h"
#include "kv/store.h"

/* With its header and the zeros behind; payload_bytes is at most KV_CHUNK_PAYLOAD_MAX. */
static inline uint64_t kv_chunk_bytes(uint64_t payload_bytes)
{
	uint64_t bytes = sizeof(struct kv_chunk_header) + payload_bytes;

	return (bytes + KV_CHUNK_ALIGN - 1) / KV_CHUNK_ALIGN * KV_CHUNK_ALIGN;
}

/* What the checksum is of, when payload_bytes lie right behind the header. */
static inline struct kv_slice kv_chunk_summed(const struct kv_chunk_header *h,
					      size_t payload_bytes)
{
	size_t skipped = offsetof(struct kv_chunk_header, promised);

	return kv_slice((const uint8_t *)h + skipped, sizeof(*h) - skipped + payload_bytes);
}

/*
 * Payloads hold what users wrote, who may know the format and guess a number,
 * but not the store's id: nobody can plant bytes that pass for a chunk.
 */
static inline uint64_t kv_chunk_seed(const struct kv_store *s, kv_fileno number)
{
	return kv_checksum(kv_slice(s->store_id, sizeof(s->store_id)), number);
}

#endif
