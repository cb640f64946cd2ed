/*
 * Owned, growing bytes. A buffer that was only KV_BUF_INIT'ed owns nothing;
 * kv_buf_done() may be called on any, also twice.
 */
#ifndef KV_BUF_H
#define KV_BUF_H

#include "kv/slice.h"

struct kv_buf {
	uint8_t *data;
	size_t bytes;		/* in use */
	size_t bytes_max;	/* allocated */
};

#define KV_BUF_INIT { NULL, 0, 0 }

/* Frees the memory; the buffer is KV_BUF_INIT again. */
void kv_buf_done(struct kv_buf *b);

/* Forgets the content, keeps the memory. */
static inline void kv_buf_reset(struct kv_buf *b)
{
	b->bytes = 0;
}

static inline struct kv_slice kv_buf_slice(const struct kv_buf *b)
{
	return kv_slice(b->data, b->bytes);
}

static inline void kv_buf_swap(struct kv_buf *a, struct kv_buf *b)
{
	struct kv_buf t = *a;

	*a = *b;
	*b = t;
}

/*
 * All return 0, or -ENOMEM with the buffer as it was. reserve makes room for
 * more bytes behind those in use; grow also takes them into use, uninitialised,
 * and returns where they begin (NULL when out of memory).
 */
int kv_buf_reserve(struct kv_buf *b, size_t more_bytes) KV_NODISCARD;
void *kv_buf_grow(struct kv_buf *b, size_t more_bytes) KV_NODISCARD;
int kv_buf_append(struct kv_buf *b, const void *data, size_t bytes) KV_NODISCARD;
int kv_buf_append_slice(struct kv_buf *b, struct kv_slice s) KV_NODISCARD;
int kv_buf_append_byte(struct kv_buf *b, uint8_t byte) KV_NODISCARD;
int kv_buf_assign(struct kv_buf *b, struct kv_slice s) KV_NODISCARD;

/* Appends text as printf would, and keeps a 0 byte behind it that is not counted. */
int kv_buf_printf(struct kv_buf *b, const char *fmt, ...) KV_PRINTF(2, 3) KV_NODISCARD;

#endif
