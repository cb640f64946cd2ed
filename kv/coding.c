#include "kv/coding.h"

size_t kv_varint_put(void *at, uint64_t n)
{
	uint8_t *p = at;
	size_t i = 0;

	for (; n >= 0x80; n >>= 7)
		p[i++] = (uint8_t)(n | 0x80);
	p[i++] = (uint8_t)n;
	return i;
}

size_t kv_varint_bytes(uint64_t n)
{
	size_t i = 1;

	for (; n >= 0x80; n >>= 7)
		i++;
	return i;
}

bool kv_take_long_varint(struct kv_slice *s, uint64_t *out)
{
	const uint8_t *p = s->data;
	uint64_t n = 0;

	for (size_t i = 0; i < s->bytes && i < KV_VARINT_BYTES_MAX; i++) {
		/* The tenth byte holds the 64th bit and no more. */
		if (i == KV_VARINT_BYTES_MAX - 1 && p[i] > 1)
			return false;
		n |= (uint64_t)(p[i] & 0x7f) << (7 * i);
		if (!(p[i] & 0x80)) {
			*s = kv_slice(p + i + 1, s->bytes - i - 1);
			*out = n;
			return true;
		}
	}
	return false;
}

bool kv_take_bytes(struct kv_slice *s, size_t bytes, struct kv_slice *out)
{
	if (s->bytes < bytes)
		return false;
	*out = kv_slice(s->data, bytes);
	*s = kv_slice((const uint8_t *)s->data + bytes, s->bytes - bytes);
	return true;
}

bool kv_take_prefixed(struct kv_slice *s, struct kv_slice *out)
{
	struct kv_slice rest = *s;
	uint64_t bytes;

	if (!kv_take_varint(&rest, &bytes) || bytes > rest.bytes ||
	    !kv_take_bytes(&rest, (size_t)bytes, out))
		return false;
	*s = rest;
	return true;
}

int kv_buf_append_varint(struct kv_buf *b, uint64_t n)
{
	KV_TRY(kv_buf_reserve(b, KV_VARINT_BYTES_MAX));
	b->bytes += kv_varint_put(b->data + b->bytes, n);
	return 0;
}

int kv_buf_append_prefixed(struct kv_buf *b, struct kv_slice s)
{
	KV_TRY(kv_buf_reserve(b, KV_VARINT_BYTES_MAX + s.bytes));
	b->bytes += kv_varint_put(b->data + b->bytes, s.bytes);
	return kv_buf_append_slice(b, s);
}
