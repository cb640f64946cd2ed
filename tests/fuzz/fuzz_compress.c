/* Decompression of anything into exactly as much as was said; and the way there and back. */
#include "tests/fuzz/fuzz.h"

#include "kv/compress.h"

/* Memory that ends where it says, so that a write behind it is seen. */
static uint8_t *exactly(size_t bytes)
{
	uint8_t *p = malloc(bytes ? bytes : 1);

	FUZZ_ASSERT(p);
	return p;
}

static void there_and_back(enum kv_codec how, struct kv_slice raw)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	enum kv_codec codec = kv_compress(how, raw, &b);
	uint8_t *to = exactly(raw.bytes);

	FUZZ_ASSERT(codec == how || codec == KV_CODEC_NONE);
	FUZZ_ASSERT(codec == KV_CODEC_NONE ? !b.bytes : b.bytes < raw.bytes);
	FUZZ_OK(kv_decompress(codec, codec == KV_CODEC_NONE ? raw : kv_buf_slice(&b), to,
			      raw.bytes));
	FUZZ_ASSERT(kv_slice_eq(kv_slice(to, raw.bytes), raw));
	free(to);
}

/* What an entry holds may be anything. */
static void unpack(struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf raw = KV_BUF_INIT;
	struct kv_packed p;
	int err = kv_packed_unpack(input, &raw);

	if (!err) {
		FUZZ_OK(kv_packed_decode(input, &p));
		FUZZ_ASSERT(raw.bytes == p.raw_bytes);
	} else {
		FUZZ_ASSERT(!raw.bytes);
	}
}

static void run(struct kv_slice input)
{
	enum kv_codec codec = (enum kv_codec)(fuzz_take(&input, 1) % 4);
	size_t raw_bytes = (size_t)fuzz_take(&input, 2);
	uint8_t *to = exactly(raw_bytes);

	if (!kv_decompress(codec, input, to, raw_bytes)) {
		FUZZ_ASSERT(codec < KV_CODEC_END);
		FUZZ_ASSERT(codec != KV_CODEC_NONE || raw_bytes == input.bytes);
		there_and_back(codec, kv_slice(to, raw_bytes));
	}
	free(to);
	unpack(input);
	there_and_back(codec == KV_CODEC_ZSTD ? KV_CODEC_ZSTD : KV_CODEC_LZ4, input);
}

static void seed(enum kv_codec codec, struct kv_slice text, fuzz_emit_fn *emit, void *arg)
{
	const uint8_t head[3] = { (uint8_t)codec, 0x00, 0x10 };
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;

	FUZZ_OK(kv_buf_append(&b, head, sizeof(head)));
	FUZZ_ASSERT(kv_compress(codec, text, &b) == codec);
	emit(arg, kv_buf_slice(&b));
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	char text[4096];

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = "words that come again and again, but not quite"[i * i % 45];
	seed(KV_CODEC_ZSTD, kv_slice(text, sizeof(text)), emit, arg);
	seed(KV_CODEC_LZ4, kv_slice(text, sizeof(text)), emit, arg);
	emit(arg, kv_slice("\0\5\0right", 8));
}

const struct fuzz_target fuzz_compress = { "compress", run, seeds };
