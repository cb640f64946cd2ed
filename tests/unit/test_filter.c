#include "kv/filter.h"
#include "tests/unit/tmpstore.h"

static uint64_t hash_of(uint64_t n)
{
	uint8_t key[8];

	kv_be64_put(key, n);
	return kv_filter_hash(kv_slice(key, sizeof(key)));
}

static void build(struct kv_buf *out, size_t n, uint32_t bits_per_key)
{
	uint64_t *hashes = malloc((n + 1) * sizeof(*hashes));

	for (size_t i = 0; i < n; i++)
		hashes[i] = hash_of(i);
	ck_ok(kv_filter_build(hashes, n, bits_per_key, out));
	free(hashes);
}

static double false_positives(size_t n, uint32_t bits_per_key)
{
	KV_AUTO(kv_buf_done) struct kv_buf f = KV_BUF_INIT;
	size_t hits = 0;

	build(&f, n, bits_per_key);
	for (size_t i = 0; i < 100000; i++)
		hits += kv_filter_may_contain(kv_buf_slice(&f), hash_of(1000000000 + i));
	return (double)hits / 100000;
}

UNIT(keys_are_never_missed)
{
	static const size_t sizes[] = { 1, 2, 50, 51, 52, 1000, 30000 };

	for (size_t s = 0; s < KV_ARRAY_LEN(sizes); s++)
		for (uint32_t bits = 1; bits <= 30; bits += 3) {
			KV_AUTO(kv_buf_done) struct kv_buf f = KV_BUF_INIT;

			build(&f, sizes[s], bits);
			for (size_t i = 0; i < sizes[s]; i++)
				ck_assert(kv_filter_may_contain(kv_buf_slice(&f), hash_of(i)));
		}
}
UNIT_END

UNIT(other_keys_mostly_are)
{
	ck_assert_double_lt(false_positives(1000, 10), 0.02);
	ck_assert_double_lt(false_positives(100000, 10), 0.016);
	ck_assert_double_lt(false_positives(100000, 16), 0.003);
	ck_assert_double_lt(false_positives(100000, 5), 0.15);
}
UNIT_END

UNIT(it_is_appended_and_sized_as_asked)
{
	KV_AUTO(kv_buf_done) struct kv_buf f = KV_BUF_INIT;

	ck_ok(kv_buf_append(&f, "abc", 3));
	build(&f, 512, 10);
	ck_assert_uint_eq(f.bytes, 3 + 10 * 64 + 8);
	ck_assert_mem_eq(f.data, "abc", 3);
	kv_buf_reset(&f);
	build(&f, 0, 10);
	ck_assert_uint_eq(f.bytes, 64 + 8);
	ck_assert(!kv_filter_may_contain(kv_buf_slice(&f), hash_of(1)));
}
UNIT_END

UNIT(malformed_ones_say_true)
{
	KV_AUTO(kv_buf_done) struct kv_buf f = KV_BUF_INIT;
	uint64_t other = 1000;

	build(&f, 100, 10);
	while (kv_filter_may_contain(kv_buf_slice(&f), hash_of(other)))
		other++;
	for (size_t cut = 0; cut < f.bytes; cut++) {
		uint8_t *copy = malloc(cut + 1);

		memcpy(copy, f.data, cut);
		ck_assert(kv_filter_may_contain(kv_slice(copy, cut), hash_of(other)));
		free(copy);
	}
	/* All of the trailer: every value of every byte is harmless. */
	for (size_t i = f.bytes - 8; i < f.bytes; i++) {
		uint8_t was = f.data[i];

		for (int v = 0; v < 256; v++) {
			f.data[i] = (uint8_t)v;
			if (i != f.bytes - 4 && v != was)
				ck_assert(kv_filter_may_contain(kv_buf_slice(&f), hash_of(other)));
			else
				(void)kv_filter_may_contain(kv_buf_slice(&f), hash_of(other));
		}
		f.data[i] = 255;
		ck_assert(kv_filter_may_contain(kv_buf_slice(&f), hash_of(other)));
		f.data[i] = was;
	}
}
UNIT_END

UNIT_MAIN("filter", keys_are_never_missed, other_keys_mostly_are,
	  it_is_appended_and_sized_as_asked, malformed_ones_say_true)
