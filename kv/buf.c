#include "kv/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void kv_buf_done(struct kv_buf *b)
{
	free(b->data);
	*b = (struct kv_buf)KV_BUF_INIT;
}

int kv_buf_reserve(struct kv_buf *b, size_t more_bytes)
{
	size_t want, max;
	uint8_t *data;

	if (__builtin_add_overflow(b->bytes, more_bytes, &want))
		return -ENOMEM;
	if (want <= b->bytes_max)
		return 0;
	max = KV_MAX(want, b->bytes_max + b->bytes_max / 2);
	max = KV_MAX(max, (size_t)64);
	data = realloc(b->data, max);
	if (!data)
		return -ENOMEM;
	b->data = data;
	b->bytes_max = max;
	return 0;
}

void *kv_buf_grow(struct kv_buf *b, size_t more_bytes)
{
	void *at;

	if (kv_buf_reserve(b, more_bytes))
		return NULL;
	at = b->data + b->bytes;
	b->bytes += more_bytes;
	return at;
}

int kv_buf_append(struct kv_buf *b, const void *data, size_t bytes)
{
	KV_TRY(kv_buf_reserve(b, bytes));
	if (bytes)
		memcpy(b->data + b->bytes, data, bytes);
	b->bytes += bytes;
	return 0;
}

int kv_buf_append_slice(struct kv_buf *b, struct kv_slice s)
{
	return kv_buf_append(b, s.data, s.bytes);
}

int kv_buf_append_byte(struct kv_buf *b, uint8_t byte)
{
	return kv_buf_append(b, &byte, 1);
}

int kv_buf_assign(struct kv_buf *b, struct kv_slice s)
{
	kv_buf_reset(b);
	return kv_buf_append_slice(b, s);
}

int kv_buf_printf(struct kv_buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	KV_TRY(kv_buf_reserve(b, (size_t)n + 1));
	va_start(ap, fmt);
	vsnprintf((char *)b->data + b->bytes, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->bytes += (size_t)n;
	return 0;
}
