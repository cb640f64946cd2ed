/*
 * Numbers as bytes. Structs on disk are made of le16, le32 and le64, which
 * have no alignment and cannot be used without a get; keys are made of
 * big-endian numbers, so that memcmp orders them; varints are LEB128.
 * Readers are bounds-checked: bytes from a disk may be anything.
 */
#ifndef KV_CODING_H
#define KV_CODING_H

#include <endian.h>

#include "kv/buf.h"

typedef struct { uint8_t b[2]; } le16;
typedef struct { uint8_t b[4]; } le32;
typedef struct { uint8_t b[8]; } le64;

static inline uint16_t kv_le16_get(le16 v)
{
	uint16_t n;

	memcpy(&n, v.b, sizeof(n));
	return le16toh(n);
}

static inline le16 kv_le16(uint16_t n)
{
	le16 v;

	n = htole16(n);
	memcpy(v.b, &n, sizeof(n));
	return v;
}

static inline uint32_t kv_le32_get(le32 v)
{
	uint32_t n;

	memcpy(&n, v.b, sizeof(n));
	return le32toh(n);
}

static inline le32 kv_le32(uint32_t n)
{
	le32 v;

	n = htole32(n);
	memcpy(v.b, &n, sizeof(n));
	return v;
}

static inline uint64_t kv_le64_get(le64 v)
{
	uint64_t n;

	memcpy(&n, v.b, sizeof(n));
	return le64toh(n);
}

static inline le64 kv_le64(uint64_t n)
{
	le64 v;

	n = htole64(n);
	memcpy(v.b, &n, sizeof(n));
	return v;
}

static inline void kv_be64_put(void *at, uint64_t n)
{
	n = htobe64(n);
	memcpy(at, &n, sizeof(n));
}

static inline uint64_t kv_be64_get(const void *at)
{
	uint64_t n;

	memcpy(&n, at, sizeof(n));
	return be64toh(n);
}

#define KV_VARINT_BYTES_MAX 10

/* Writes at most KV_VARINT_BYTES_MAX bytes; returns how many. */
size_t kv_varint_put(void *at, uint64_t n);
size_t kv_varint_bytes(uint64_t n);

/* kv_take_varint() for any length. */
bool kv_take_long_varint(struct kv_slice *s, uint64_t *out);

/* Each takes from the front of *s; false, with *s untouched, when it isn't there whole. */
static inline bool kv_take_varint(struct kv_slice *s, uint64_t *out)
{
	const uint8_t *p = s->data;

	if (s->bytes >= 1 && p[0] < 0x80) {
		*out = p[0];
		*s = kv_slice(p + 1, s->bytes - 1);
		return true;
	}
	if (s->bytes >= 2 && p[1] < 0x80) {
		*out = (uint64_t)(p[0] & 0x7f) | (uint64_t)p[1] << 7;
		*s = kv_slice(p + 2, s->bytes - 2);
		return true;
	}
	return kv_take_long_varint(s, out);
}

bool kv_take_bytes(struct kv_slice *s, size_t bytes, struct kv_slice *out);
/* A varint length, then as many bytes. */
bool kv_take_prefixed(struct kv_slice *s, struct kv_slice *out);

int kv_buf_append_varint(struct kv_buf *b, uint64_t n) KV_NODISCARD;
int kv_buf_append_prefixed(struct kv_buf *b, struct kv_slice s) KV_NODISCARD;

#endif
