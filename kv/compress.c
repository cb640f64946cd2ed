#include "kv/compress.h"

#include <limits.h>
#include <lz4.h>
#include <pthread.h>
#include <stdlib.h>
#include <zstd.h>

#include "kv/assert.h"
#include "kv/errcode.h"
#include "kv/kv.h"

#define COMPRESS_LEVEL 1
#define COMPRESS_BYTES_MIN 64		/* below, a frame's own bytes eat what is saved */
#define SAMPLE_FROM_BYTES (8 * KV_KIB)	/* from here on a sample is tried first */
#define SAMPLE_BYTES (4 * KV_KIB)

/* Making a context costs more than compressing a block, so each thread keeps its own. */
struct contexts {
	ZSTD_CCtx *compress;
	ZSTD_DCtx *decompress;
};

static pthread_once_t contexts_once = PTHREAD_ONCE_INIT;
static pthread_key_t contexts_key;
static bool contexts_have_key;

static void contexts_free(void *arg)
{
	struct contexts *c = arg;

	ZSTD_freeCCtx(c->compress);
	ZSTD_freeDCtx(c->decompress);
	free(c);
}

/*
 * The main thread ends by exit(), which runs no destructors of keys. Its contexts are
 * freed here, so that a leak checker has nothing to say; only when this thread made any.
 */
static void contexts_free_at_exit(void)
{
	struct contexts *c = pthread_getspecific(contexts_key);

	if (c && pthread_setspecific(contexts_key, NULL) == 0)
		contexts_free(c);
}

static void contexts_make_key(void)
{
	contexts_have_key = pthread_key_create(&contexts_key, contexts_free) == 0;
	if (contexts_have_key)
		(void)atexit(contexts_free_at_exit); /* without it nothing but a report is lost */
}

/* NULL when out of memory (or of keys). */
static struct contexts *contexts_get(void)
{
	struct contexts *c;

	if (pthread_once(&contexts_once, contexts_make_key) || !contexts_have_key)
		return NULL;
	c = pthread_getspecific(contexts_key);
	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (c && pthread_setspecific(contexts_key, c)) {
		free(c);
		return NULL;
	}
	return c;
}

static ZSTD_CCtx *compress_context(void)
{
	struct contexts *c = contexts_get();

	if (c && !c->compress)
		c->compress = ZSTD_createCCtx();
	return c ? c->compress : NULL;
}

static ZSTD_DCtx *decompress_context(void)
{
	struct contexts *c = contexts_get();

	if (c && !c->decompress)
		c->decompress = ZSTD_createDCtx();
	return c ? c->decompress : NULL;
}

/*
 * A sample from the middle, away from headers. It may save little where the whole saves enough
 * (repeats that lie further apart), so the bar is low: a thirty-second.
 */
static bool sample_compresses(ZSTD_CCtx *cctx, struct kv_slice raw)
{
	uint8_t to[SAMPLE_BYTES - SAMPLE_BYTES / 32];
	const uint8_t *middle = (const uint8_t *)raw.data + (raw.bytes - SAMPLE_BYTES) / 2;

	return !ZSTD_isError(ZSTD_compressCCtx(cctx, to, sizeof(to), middle, SAMPLE_BYTES,
					       COMPRESS_LEVEL));
}

/* Both return the bytes written, 0 for failure: also as soon as they would be more than bytes_max. */

static size_t compress_zstd(struct kv_slice raw, void *to, size_t bytes_max)
{
	ZSTD_CCtx *cctx = compress_context();
	size_t bytes;

	if (!cctx || (raw.bytes > SAMPLE_FROM_BYTES && !sample_compresses(cctx, raw)))
		return 0;
	bytes = ZSTD_compressCCtx(cctx, to, bytes_max, raw.data, raw.bytes, COMPRESS_LEVEL);
	return ZSTD_isError(bytes) ? 0 : bytes;
}

/* Goes fast over what does not compress, so it needs no sample. */
static size_t compress_lz4(struct kv_slice raw, void *to, size_t bytes_max)
{
	int bytes;

	if (raw.bytes > LZ4_MAX_INPUT_SIZE)
		return 0;
	bytes = LZ4_compress_default(raw.data, to, (int)raw.bytes, (int)bytes_max);
	return bytes > 0 ? (size_t)bytes : 0;
}

enum kv_codec kv_compress_to(enum kv_codec codec, struct kv_slice raw, void *to,
			     size_t *out_bytes)
{
	size_t bytes_max = kv_compressed_max(raw.bytes), bytes;

	if (codec == KV_CODEC_NONE || raw.bytes < COMPRESS_BYTES_MIN)
		return KV_CODEC_NONE;
	bytes = codec == KV_CODEC_LZ4 ? compress_lz4(raw, to, bytes_max) :
					compress_zstd(raw, to, bytes_max);
	if (!bytes)
		return KV_CODEC_NONE;
	*out_bytes = bytes;
	return codec;
}

enum kv_codec kv_compress(enum kv_codec codec, struct kv_slice raw, struct kv_buf *out)
{
	size_t bytes;

	if (codec == KV_CODEC_NONE || raw.bytes < COMPRESS_BYTES_MIN ||
	    kv_buf_reserve(out, kv_compressed_max(raw.bytes)))
		return KV_CODEC_NONE;
	codec = kv_compress_to(codec, raw, out->data + out->bytes, &bytes);
	if (codec != KV_CODEC_NONE)
		out->bytes += bytes;
	return codec;
}

static int decompress_zstd(struct kv_slice stored, void *to, size_t raw_bytes)
{
	ZSTD_DCtx *dctx = decompress_context();
	size_t bytes;

	if (!dctx)
		return -ENOMEM;
	/* Writes raw_bytes at the most, whatever the frame says of itself. */
	bytes = ZSTD_decompressDCtx(dctx, to, raw_bytes, stored.data, stored.bytes);
	return ZSTD_isError(bytes) || bytes != raw_bytes ? KV_E_bad_compression : 0;
}

static int decompress_lz4(struct kv_slice stored, void *to, size_t raw_bytes)
{
	int bytes;

	if (stored.bytes > INT_MAX || raw_bytes > INT_MAX)
		return KV_E_bad_compression;
	bytes = LZ4_decompress_safe(stored.data, to, (int)stored.bytes, (int)raw_bytes);
	return bytes < 0 || (size_t)bytes != raw_bytes ? KV_E_bad_compression : 0;
}

int kv_decompress(enum kv_codec codec, struct kv_slice stored, void *to, size_t raw_bytes)
{
	switch (codec) {
	case KV_CODEC_NONE:
		if (stored.bytes != raw_bytes)
			return KV_E_bad_compression;
		if (raw_bytes)
			memcpy(to, stored.data, raw_bytes);
		return 0;
	case KV_CODEC_ZSTD:
		return decompress_zstd(stored, to, raw_bytes);
	case KV_CODEC_LZ4:
		return decompress_lz4(stored, to, raw_bytes);
	default:
		return KV_E_bad_compression;
	}
}

int kv_packed_decode(struct kv_slice value, struct kv_packed *out)
{
	static const uint8_t zeros[sizeof(((struct kv_packed_disk *)0)->reserved)];
	struct kv_packed_disk d;

	if (value.bytes <= sizeof(d))
		return KV_E_bad_record;
	memcpy(&d, value.data, sizeof(d));
	if (d.codec == KV_CODEC_NONE || d.codec >= KV_CODEC_END ||
	    memcmp(d.reserved, zeros, sizeof(zeros)) ||
	    kv_le32_get(d.raw_bytes) > KV_VALUE_BYTES_MAX)
		return KV_E_bad_record;
	*out = (struct kv_packed){
		.codec = (enum kv_codec)d.codec,
		.raw_bytes = kv_le32_get(d.raw_bytes),
		.stored = kv_slice((const uint8_t *)value.data + sizeof(d), value.bytes - sizeof(d)),
	};
	return 0;
}

int kv_packed_unpack(struct kv_slice value, struct kv_buf *out)
{
	struct kv_packed p;
	int err;

	KV_TRY(kv_packed_decode(value, &p));
	/* A byte more, so that there is one for an empty value too. */
	KV_TRY(kv_buf_reserve(out, (size_t)p.raw_bytes + 1));
	err = kv_decompress(p.codec, p.stored, out->data + out->bytes, p.raw_bytes);
	if (!err)
		out->bytes += p.raw_bytes;
	return err;
}

size_t kv_packed_make(enum kv_codec codec, struct kv_slice raw, void *to)
{
	struct kv_packed_disk d = { .raw_bytes = kv_le32((uint32_t)raw.bytes) };
	size_t bytes;

	if (raw.bytes <= sizeof(d) || kv_compressed_max(raw.bytes) > raw.bytes - sizeof(d))
		return 0;
	d.codec = (uint8_t)kv_compress_to(codec, raw, (uint8_t *)to + sizeof(d), &bytes);
	if (d.codec == KV_CODEC_NONE)
		return 0;
	memcpy(to, &d, sizeof(d));
	return sizeof(d) + bytes;
}
