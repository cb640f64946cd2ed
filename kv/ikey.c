#include "kv/ikey.h"

#include <errno.h>

#include "kv/assert.h"

int kv_ikey_make(struct kv_buf *out, struct kv_slice user_key, kv_seqno seqno, enum kv_kind kind)
{
	le64 trailer = kv_le64(kv_ikey_pack(seqno, kind));
	struct kv_buf empty = *out;
	uint8_t *at;

	KV_ASSERT(seqno <= KV_SEQNO_MAX);
	kv_buf_reset(&empty);
	KV_TRY(kv_buf_reserve(&empty, user_key.bytes + sizeof(trailer)));
	at = kv_buf_grow(&empty, user_key.bytes + sizeof(trailer));
	KV_ASSERT(at);
	if (user_key.bytes)
		memcpy(at, user_key.data, user_key.bytes);
	memcpy(at + user_key.bytes, &trailer, sizeof(trailer));
	*out = empty;
	return 0;
}
