#include <pthread.h>

#include "kv/compress.h"
#include "kv/errcode.h"
#include "tests/unit/unit.h"

static void fill_text(uint8_t *to, size_t bytes)
{
	static const char text[] = "the next reader understands it; ";

	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)(text[i % (sizeof(text) - 1)] + (i / 997) % 3);
}

static const enum kv_codec codecs[] = { KV_CODEC_ZSTD, KV_CODEC_LZ4 };

static void fill_noise(uint8_t *to, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		to[i] = (uint8_t)(seed >> 33);
	}
}

static void round_trip(enum kv_codec codec)
{
	static const size_t sizes[] = { 64, 100, 4096, 8192, 8193, 65536, 1 << 20 };

	for (size_t i = 0; i < KV_ARRAY_LEN(sizes); i++) {
		KV_AUTO(kv_buf_done) struct kv_buf out = KV_BUF_INIT;
		uint8_t *raw = malloc(sizes[i]), *back = malloc(sizes[i]);

		fill_text(raw, sizes[i]);
		ck_ok(kv_buf_append(&out, "abc", 3));
		if (kv_compress(codec, kv_slice(raw, sizes[i]), &out) == codec) {
			ck_assert_uint_le(out.bytes - 3, sizes[i] - sizes[i] / 8);
			ck_ok(kv_decompress(codec, kv_slice(out.data + 3, out.bytes - 3),
					    back, sizes[i]));
			ck_assert_mem_eq(raw, back, sizes[i]);
		} else {
			ck_assert_uint_lt(sizes[i], 4096);
		}
		ck_assert_mem_eq(out.data, "abc", 3);
		free(raw);
		free(back);
	}
}

UNIT(text_round_trips_and_is_appended)
{
	for (size_t i = 0; i < KV_ARRAY_LEN(codecs); i++)
		round_trip(codecs[i]);
}
UNIT_END

static void leave_noise_alone(enum kv_codec codec)
{
	static const size_t sizes[] = { 0, 1, 63, 64, 4096, 8192, 100000 };
	KV_AUTO(kv_buf_done) struct kv_buf out = KV_BUF_INIT;
	uint8_t *raw = malloc(100000);

	fill_noise(raw, 100000, 4711);
	for (size_t i = 0; i < KV_ARRAY_LEN(sizes); i++) {
		ck_assert_int_eq(kv_compress(codec, kv_slice(raw, sizes[i]), &out), KV_CODEC_NONE);
		ck_assert_uint_eq(out.bytes, 0);
	}
	free(raw);
}

UNIT(noise_is_left_alone)
{
	for (size_t i = 0; i < KV_ARRAY_LEN(codecs); i++)
		leave_noise_alone(codecs[i]);
}
UNIT_END

UNIT(uncompressed_is_copied)
{
	uint8_t to[3] = { 0 };

	ck_ok(kv_decompress(KV_CODEC_NONE, kv_slice_str("abc"), to, 3));
	ck_assert_mem_eq(to, "abc", 3);
	ck_assert_int_eq(kv_decompress(KV_CODEC_NONE, kv_slice_str("ab"), to, 3),
			 KV_E_bad_compression);
	ck_ok(kv_decompress(KV_CODEC_NONE, kv_slice(NULL, 0), NULL, 0));
}
UNIT_END

static void damage_all(enum kv_codec codec)
{
	KV_AUTO(kv_buf_done) struct kv_buf out = KV_BUF_INIT;
	uint8_t raw[2000], back[2000];
	unsigned refused = 0;

	fill_text(raw, sizeof(raw));
	ck_assert_int_eq(kv_compress(codec, kv_slice(raw, sizeof(raw)), &out), codec);
	for (size_t i = 0; i < out.bytes; i++)
		for (int bit = 0; bit < 8; bit++) {
			out.data[i] ^= (uint8_t)(1 << bit);
			refused += kv_decompress(codec, kv_buf_slice(&out), back,
						 sizeof(back)) == KV_E_bad_compression;
			out.data[i] ^= (uint8_t)(1 << bit);
		}
	ck_assert_uint_gt(refused, 0);
	for (size_t cut = 0; cut < out.bytes; cut++)
		ck_assert_int_eq(kv_decompress(codec, kv_slice(out.data, cut), back,
					       sizeof(back)), KV_E_bad_compression);
}

UNIT(damage_is_an_error_or_harmless)
{
	for (size_t i = 0; i < KV_ARRAY_LEN(codecs); i++)
		damage_all(codecs[i]);
}
UNIT_END

static void mistake_lengths(enum kv_codec codec)
{
	KV_AUTO(kv_buf_done) struct kv_buf out = KV_BUF_INIT;
	uint8_t raw[2000], back[2001];

	fill_text(raw, sizeof(raw));
	ck_assert_int_eq(kv_compress(codec, kv_slice(raw, sizeof(raw)), &out), codec);
	ck_ok(kv_decompress(codec, kv_buf_slice(&out), back, 2000));
	ck_assert_int_eq(kv_decompress(codec, kv_buf_slice(&out), back, 1999),
			 KV_E_bad_compression);
	ck_assert_int_eq(kv_decompress(codec, kv_buf_slice(&out), back, 2001),
			 KV_E_bad_compression);
	ck_assert_int_eq(kv_decompress(KV_CODEC_END, kv_buf_slice(&out), back, 2000),
			 KV_E_bad_compression);
}

UNIT(the_length_must_be_exact)
{
	for (size_t i = 0; i < KV_ARRAY_LEN(codecs); i++)
		mistake_lengths(codecs[i]);
}
UNIT_END

/* A value that an entry holds compressed, and everything that is none. */
UNIT(packed_values)
{
	KV_AUTO(kv_buf_done) struct kv_buf out = KV_BUF_INIT;
	uint8_t raw[3000], packed[3000], noise[3000];
	struct kv_packed p;
	size_t bytes;

	fill_text(raw, sizeof(raw));
	fill_noise(noise, sizeof(noise), 4712);
	for (size_t i = 0; i < KV_ARRAY_LEN(codecs); i++) {
		bytes = kv_packed_make(codecs[i], kv_slice(raw, sizeof(raw)), packed);
		ck_assert_uint_gt(bytes, sizeof(struct kv_packed_disk));
		ck_assert_uint_lt(bytes, sizeof(raw));
		ck_ok(kv_packed_decode(kv_slice(packed, bytes), &p));
		ck_assert_int_eq(p.codec, codecs[i]);
		ck_assert_uint_eq(p.raw_bytes, sizeof(raw));
		kv_buf_reset(&out);
		ck_ok(kv_buf_append(&out, "abc", 3));
		ck_ok(kv_packed_unpack(kv_slice(packed, bytes), &out));
		ck_assert_uint_eq(out.bytes, 3 + sizeof(raw));
		ck_assert_mem_eq(out.data + 3, raw, sizeof(raw));

		ck_assert_int_eq(kv_packed_unpack(kv_slice(packed, bytes - 1), &out),
				 KV_E_bad_compression);
		for (size_t at = 0; at < sizeof(struct kv_packed_disk); at++) {
			packed[at] ^= 0x81;
			ck_assert(kv_err_is(kv_packed_unpack(kv_slice(packed, bytes), &out),
					    KV_E_corrupt));
			packed[at] ^= 0x81;
		}
		ck_assert_uint_eq(out.bytes, 3 + sizeof(raw));
	}
	ck_assert_int_eq(kv_packed_decode(kv_slice(packed, sizeof(struct kv_packed_disk)), &p),
			 KV_E_bad_record);
	ck_assert_uint_eq(kv_packed_make(KV_CODEC_LZ4, kv_slice(noise, sizeof(noise)), packed), 0);
	for (size_t small = 0; small < 80; small++) {
		bytes = kv_packed_make(KV_CODEC_LZ4, kv_slice(raw, small), packed);
		ck_assert_uint_lt(bytes, small + 1);
	}
}
UNIT_END

static void *compress_some(void *arg)
{
	KV_AUTO(kv_buf_done) struct kv_buf out = KV_BUF_INIT;
	uint8_t raw[5000], back[5000];

	fill_text(raw, sizeof(raw));
	for (int i = 0; i < 50; i++) {
		kv_buf_reset(&out);
		if (kv_compress(KV_CODEC_ZSTD, kv_slice(raw, sizeof(raw)), &out) != KV_CODEC_ZSTD ||
		    kv_decompress(KV_CODEC_ZSTD, kv_buf_slice(&out), back, sizeof(back)) ||
		    memcmp(raw, back, sizeof(raw)) != 0)
			*(bool *)arg = false;
	}
	return NULL;
}

UNIT(threads_have_contexts_of_their_own)
{
	pthread_t threads[4];
	bool ok[4];

	for (int i = 0; i < 4; i++) {
		ok[i] = true;
		ck_ok(pthread_create(&threads[i], NULL, compress_some, &ok[i]));
	}
	for (int i = 0; i < 4; i++) {
		ck_ok(pthread_join(threads[i], NULL));
		ck_assert(ok[i]);
	}
}
UNIT_END

UNIT_MAIN("compress", text_round_trips_and_is_appended, noise_is_left_alone,
	  uncompressed_is_copied, damage_is_an_error_or_harmless, the_length_must_be_exact,
	  packed_values, threads_have_contexts_of_their_own)
