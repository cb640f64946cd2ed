/*
 * Numbers as bytes. Structs on disk are made of le16, le32 and le64, which
 * have no alignment and cannot be used without a get; keys are made of
 * big-endian numbers, so that memcmp orders them; varints are LEB128.
 * Readers are bounds-checked: bytes from a disk may be anything.
 */
#ifndef KV_CODING_H
#define KV_CODING_H

#include "kv/buf.h"

typedef struct { uint8_t b[2]; } le16;
typedef struct { uint8_t b[4]; } le32;
typedef struct { uint8_t b[8]; } le64;

static inline uint16_t kv_le16_get(le16 v)
{
	return (uint16_t)(v.b[0] | v.b[1] << 8);
}

static inline le16 kv_le16(uint16_t n)
{
	return (le16){ { (uint8_t)n, (uint8_t)(n >> 8) } };
}

static inline uint32_t kv_le32_get(le32 v)
{
	return (uint32_t)v.b[0] | (uint32_t)v.b[1] << 8 | (uint32_t)v.b[2] << 16 |
	       (uint32_t)v.b[3] << 24;
}

static inline le32 kv_le32(uint32_t n)
{
	return (le32){ { (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24) } };
}

static inline uint64_t kv_le64_get(le64 v)
{
	uint64_t n = 0;

	for (int i = 7; i >= 0; i--)
		n = n << 8 | v.b[i];
	return n;
}

static inline le64 kv_le64(uint64_t n)
{
	le64 v;

	for (int i = 0; i < 8; i++, n >>= 8)
		v.b[i] = (uint8_t)n;
	return v;
}

static inline void kv_be64_put(void *at, uint64_t n)
{
	uint8_t *p = at;

	for (int i = 7; i >= 0; i--, n >>= 8)
		p[i] = (uint8_t)n;
}

static inline uint64_t kv_be64_get(const void *at)
{
	const uint8_t *p = at;
	uint64_t n = 0;

	for (int i = 0; i < 8; i++)
		n = n << 8 | p[i];
	return n;
}

#define KV_VARINT_BYTES_MAX 10

/* Writes at most KV_VARINT_BYTES_MAX bytes; returns how many. */
size_t kv_varint_put(void *at, uint64_t n);
size_t kv_varint_bytes(uint64_t n);

/* Each takes from the front of *s; false, with *s untouched, when it isn't there whole. */
bool kv_take_varint(struct kv_slice *s, uint64_t *out);
bool kv_take_bytes(struct kv_slice *s, size_t bytes, struct kv_slice *out);
/* A varint length, then as many bytes. */
bool kv_take_prefixed(struct kv_slice *s, struct kv_slice *out);

int kv_buf_append_varint(struct kv_buf *b, uint64_t n) KV_NODISCARD;
int kv_buf_append_prefixed(struct kv_buf *b, struct kv_slice s) KV_NODISCARD;

#endif
