/* Filters: a malformed one says that anything may be there; a good one never denies what is. */
#include "tests/fuzz/fuzz.h"

#include "kv/filter.h"

static void run_malformed(struct kv_slice input)
{
	uint64_t hash = fuzz_take(&input, 8);
	bool may = kv_filter_may_contain(input, hash);

	if (input.bytes % 64 != 8)
		FUZZ_ASSERT(may);
	FUZZ_ASSERT(kv_filter_may_contain(input, hash) == may);
}

static void run_built(struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf filter = KV_BUF_INIT;
	uint32_t bits = 1 + (uint32_t)fuzz_take(&input, 1) % 40;
	uint64_t hashes[256];
	size_t n = 0;

	while (input.bytes && n < KV_ARRAY_LEN(hashes))
		hashes[n++] = kv_filter_hash(fuzz_take_slice(&input, 3));
	FUZZ_OK(kv_filter_build(hashes, n, bits, &filter));
	for (size_t i = 0; i < n; i++)
		FUZZ_ASSERT(kv_filter_may_contain(kv_buf_slice(&filter), hashes[i]));
}

static void run(struct kv_slice input)
{
	if (fuzz_take(&input, 1) % 2)
		run_built(input);
	else
		run_malformed(input);
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	static const uint8_t head[9] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	uint64_t hashes[40];

	for (size_t i = 0; i < KV_ARRAY_LEN(hashes); i++)
		hashes[i] = kv_filter_hash(kv_slice(&head[i % 9], 1));
	FUZZ_OK(kv_buf_append(&b, head, sizeof(head)));
	FUZZ_OK(kv_filter_build(hashes, KV_ARRAY_LEN(hashes), 10, &b));
	emit(arg, kv_buf_slice(&b));
	emit(arg, kv_slice_str("\1\12keys of three bytes each"));
}

const struct fuzz_target fuzz_filter = { "filter", run, seeds };
