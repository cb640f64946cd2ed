/*
 * Internal keys: the user's key, then 8 bytes {seqno << 8 | kind} little-endian.
 * The one ordering of the engine: by user key ascending, then by seqno and
 * kind descending, so that a forward seek meets the newest version first.
 */
#ifndef KV_IKEY_H
#define KV_IKEY_H

#include "kv/format.h"

#define KV_IKEY_TRAILER_BYTES 8

static inline uint64_t kv_ikey_pack(kv_seqno seqno, enum kv_kind kind)
{
	return seqno << 8 | (uint64_t)kind;
}

/* The slice must hold at least the trailer: check with kv_ikey_is_valid() what a disk gave. */
static inline struct kv_slice kv_ikey_user(struct kv_slice ikey)
{
	return kv_slice(ikey.data, ikey.bytes - KV_IKEY_TRAILER_BYTES);
}

static inline uint64_t kv_ikey_trailer(struct kv_slice ikey)
{
	le64 t;

	memcpy(&t, (const uint8_t *)ikey.data + ikey.bytes - sizeof(t), sizeof(t));
	return kv_le64_get(t);
}

static inline kv_seqno kv_ikey_seqno(struct kv_slice ikey)
{
	return kv_ikey_trailer(ikey) >> 8;
}

static inline enum kv_kind kv_ikey_kind(struct kv_slice ikey)
{
	return (enum kv_kind)(kv_ikey_trailer(ikey) & 0xff);
}

static inline bool kv_ikey_is_valid(struct kv_slice ikey)
{
	return ikey.bytes >= KV_IKEY_TRAILER_BYTES && kv_ikey_kind(ikey) <= KV_KIND_MAX;
}

static inline int kv_ikey_cmp(struct kv_slice a, struct kv_slice b)
{
	int c = kv_slice_cmp(kv_ikey_user(a), kv_ikey_user(b));
	uint64_t ta, tb;

	if (c)
		return c;
	ta = kv_ikey_trailer(a);
	tb = kv_ikey_trailer(b);
	return (ta < tb) - (ta > tb);
}

/* *out becomes the internal key. To seek to what snapshot s sees of a key: (key, s, KV_KIND_MAX). */
int kv_ikey_make(struct kv_buf *out, struct kv_slice user_key, kv_seqno seqno,
		 enum kv_kind kind) KV_NODISCARD;

#endif
