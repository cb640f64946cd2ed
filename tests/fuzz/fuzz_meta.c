/* What a table says of itself, and its range tombstones. */
#include "tests/fuzz/fuzz.h"

#include "kv/sst_impl.h"

#define RANGEDELS_MAX 64

static void run_meta(struct kv_slice input)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = { 0 };
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta again = { 0 };
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;

	if (kv_sst_meta_decode(input, &m))
		return;
	FUZZ_ASSERT(m.seqno_min <= m.seqno_max && m.seqno_max <= KV_SEQNO_MAX);
	FUZZ_ASSERT(kv_ikey_cmp(kv_buf_slice(&m.smallest), kv_buf_slice(&m.largest)) <= 0);
	FUZZ_OK(kv_sst_meta_encode(&m, &b));
	FUZZ_OK(kv_sst_meta_decode(kv_buf_slice(&b), &again));
	FUZZ_ASSERT(kv_sst_meta_eq(&m, &again));
}

/* What covers a key, asked of the fragments and of the tombstones as they were. */
static void check_cover(const struct kv_rangedels *all, const struct kv_rangedel *in, size_t n,
			struct kv_slice key)
{
	kv_seqno seqno = 0;

	for (size_t i = 0; i < n; i++)
		if (kv_slice_cmp(in[i].begin, key) <= 0 && kv_slice_cmp(key, in[i].end) < 0)
			seqno = KV_MAX(seqno, in[i].seqno);
	FUZZ_ASSERT(kv_rangedels_covering(all, key, KV_SEQNO_MAX) == seqno);
}

static void run_rangedels(struct kv_slice input)
{
	struct kv_rangedel in[RANGEDELS_MAX];
	struct kv_rangedels *all;
	size_t n = 0;

	while (n < RANGEDELS_MAX && kv_sst_take_rangedel(&input, &in[n])) {
		FUZZ_ASSERT(in[n].seqno <= KV_SEQNO_MAX);
		n++;
	}
	FUZZ_OK(kv_rangedels_new(in, n, &all));
	for (size_t i = 0; i < n; i++) {
		check_cover(all, in, n, in[i].begin);
		check_cover(all, in, n, in[i].end);
	}
	kv_rangedels_unref(all);
}

static void run(struct kv_slice input)
{
	if (fuzz_take(&input, 1) % 2)
		run_rangedels(input);
	else
		run_meta(input);
}

static void add_rangedel(struct kv_buf *b, const char *begin, const char *end, kv_seqno seqno)
{
	FUZZ_OK(kv_buf_append_prefixed(b, kv_slice_str(begin)));
	FUZZ_OK(kv_buf_append_prefixed(b, kv_slice_str(end)));
	FUZZ_OK(kv_buf_append_varint(b, seqno));
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = {
		.entries = 3, .deletes = 1, .raw_bytes = 100, .seqno_min = 1, .seqno_max = 30,
	};

	FUZZ_OK(kv_ikey_make(&m.smallest, kv_slice_str("a"), 30, KV_KIND_PUT));
	FUZZ_OK(kv_ikey_make(&m.largest, kv_slice_str("m"), 1, KV_KIND_PUT));
	m.refs = malloc(sizeof(*m.refs));
	FUZZ_ASSERT(m.refs);
	m.refs[m.ref_count++] = (struct kv_segment_ref){ 8, 77 };
	FUZZ_OK(kv_buf_append_byte(&b, 0));
	FUZZ_OK(kv_sst_meta_encode(&m, &b));
	emit(arg, kv_buf_slice(&b));
	kv_buf_reset(&b);
	FUZZ_OK(kv_buf_append_byte(&b, 1));
	add_rangedel(&b, "a", "f", 5);
	add_rangedel(&b, "b", "d", 7);
	add_rangedel(&b, "c", "k", 6);
	add_rangedel(&b, "x", "y", 1);
	emit(arg, kv_buf_slice(&b));
}

const struct fuzz_target fuzz_meta = { "meta", run, seeds };
