/* The codecs behind two small calls. Contexts are kept per thread. */
#ifndef KV_COMPRESS_H
#define KV_COMPRESS_H

#include "kv/buf.h"
#include "kv/format.h"

/*
 * Appends the compressed bytes to out and returns codec when that saves at
 * least an eighth; else leaves out as it was and returns KV_CODEC_NONE. Gives up
 * early on what does not compress. With KV_CODEC_NONE does nothing.
 */
enum kv_codec kv_compress(enum kv_codec codec, struct kv_slice raw, struct kv_buf *out);
/*
 * The same, to where kv_compressed_max(raw.bytes) bytes are free. Sets *out_bytes unless it
 * returns KV_CODEC_NONE.
 */
enum kv_codec kv_compress_to(enum kv_codec codec, struct kv_slice raw, void *to,
			     size_t *out_bytes);

static inline size_t kv_compressed_max(size_t raw_bytes)
{
	return raw_bytes - raw_bytes / 8;
}

/*
 * Writes exactly raw_bytes to `to`. KV_E_bad_compression when stored is not
 * that, or the codec is unknown. For KV_CODEC_NONE, copies.
 */
int kv_decompress(enum kv_codec codec, struct kv_slice stored, void *to, size_t raw_bytes)
	KV_NODISCARD;

/* What the value of an entry of kind PUT_PACKED is. */
struct kv_packed {
	enum kv_codec codec;
	uint32_t raw_bytes;
	struct kv_slice stored;		/* in the value */
};

/* KV_E_bad_record when it is malformed. */
int kv_packed_decode(struct kv_slice value, struct kv_packed *out) KV_NODISCARD;
/* Appends the raw value to out. KV_E_bad_record, KV_E_bad_compression. */
int kv_packed_unpack(struct kv_slice value, struct kv_buf *out) KV_NODISCARD;
/*
 * Makes such a value of raw, at `to`, where raw.bytes are free. Returns its bytes, or 0 when
 * raw is better left as it is.
 */
size_t kv_packed_make(enum kv_codec codec, struct kv_slice raw, void *to);

#endif
