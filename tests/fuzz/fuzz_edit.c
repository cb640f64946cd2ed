/* Edits of the manifest: decoding, writing down again, and applying one upon the other. */
#include "tests/fuzz/fuzz.h"

#include "kv/version.h"

#define EDITS_MAX 64

static void check_tables(const struct kv_version *v)
{
	for (int i = 1; i < KV_LEVELS; i++) {
		const struct kv_level *l = &v->levels[i];

		for (size_t t = 1; t < l->count; t++)
			FUZZ_ASSERT(kv_ikey_cmp(kv_buf_slice(&l->tables[t - 1]->meta.largest),
						kv_buf_slice(&l->tables[t]->meta.smallest)) < 0);
	}
	for (size_t i = 1; i < v->segment_count; i++)
		FUZZ_ASSERT(v->segments[i - 1].number < v->segments[i].number);
}

static void check_snapshots(const struct kv_snapset *s)
{
	FUZZ_ASSERT(!s || (s->count && s->count <= KV_SNAPSHOTS_MAX));
	for (size_t i = 0; s && i < s->count; i++) {
		FUZZ_ASSERT(kv_snapshot_name_is_good(s->at[i].name));
		FUZZ_ASSERT(kv_snapset_find(s, s->at[i].name) == &s->at[i]);
		FUZZ_ASSERT(s->at[i].seqno <= KV_SEQNO_MAX);
		FUZZ_ASSERT(!i || s->at[i - 1].seqno <= s->at[i].seqno);
	}
}

/* *v becomes what the edit makes of it, if the edit is good. */
static void run_edit(struct kv_slice input, struct kv_version **v)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	KV_AUTO(kv_edit_done) struct kv_edit again = { 0 };
	KV_AUTO(kv_buf_done) struct kv_buf first = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf second = KV_BUF_INIT;
	struct kv_version *next;

	if (kv_edit_decode(input, &e))
		return;
	FUZZ_OK(kv_edit_encode(&e, &first));
	FUZZ_OK(kv_edit_decode(kv_buf_slice(&first), &again));
	FUZZ_OK(kv_edit_encode(&again, &second));
	FUZZ_ASSERT(kv_slice_eq(kv_buf_slice(&first), kv_buf_slice(&second)));
	if (kv_version_apply(*v, &e, NULL, &next))
		return;
	check_tables(next);
	check_snapshots(next->snapshots);
	kv_version_unref(*v);
	*v = next;
}

static void run(struct kv_slice input)
{
	struct kv_version *v = NULL;

	for (int i = 0; i < EDITS_MAX && input.bytes; i++) {
		size_t bytes = (size_t)fuzz_take(&input, 2);

		run_edit(fuzz_take_slice(&input, bytes), &v);
	}
	kv_version_unref(v);
}

static void add_edit(struct kv_buf *to, const struct kv_edit *e)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	le16 bytes;

	FUZZ_OK(kv_edit_encode(e, &b));
	bytes = kv_le16((uint16_t)b.bytes);
	FUZZ_OK(kv_buf_append(to, &bytes, sizeof(bytes)));
	FUZZ_OK(kv_buf_append_slice(to, kv_buf_slice(&b)));
}

static void add_table(struct kv_edit *e, int level, kv_fileno number, const char *from,
		      const char *to)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = {
		.number = number, .file_bytes = 1000 + number, .entries = 10, .deletes = 2,
		.raw_bytes = 500, .seqno_min = 3, .seqno_max = 20 + number,
	};

	FUZZ_OK(kv_ikey_make(&m.smallest, kv_slice_str(from), 20 + number, KV_KIND_PUT));
	FUZZ_OK(kv_ikey_make(&m.largest, kv_slice_str(to), 3, KV_KIND_DELETE));
	FUZZ_OK(kv_edit_add_table(e, level, &m));
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_edit_done) struct kv_edit all = {
		.is_snapshot = true, .has_next_fileno = true, .next_fileno = 30,
		.has_journal_min = true, .journal_min = 4, .has_seqno = true, .seqno = 100,
	};
	KV_AUTO(kv_edit_done) struct kv_edit change = { 0 };

	FUZZ_OK(kv_edit_add_segment(&all, 7));
	FUZZ_OK(kv_edit_add_segment(&all, 8));
	FUZZ_OK(kv_edit_seal_segment(&all, 7, 4096));
	FUZZ_OK(kv_edit_add_snapshot(&all, &(struct kv_snapshot_info){
		.name = "daily", .seqno = 60, .made_ns = 1700000000000000000 }));
	FUZZ_OK(kv_edit_add_snapshot(&all, &(struct kv_snapshot_info){
		.name = "hourly", .seqno = 40, .made_ns = 1700000000000000000 }));
	add_table(&all, 0, 10, "a", "z");
	add_table(&all, 1, 11, "b", "c");
	add_table(&all, 1, 12, "d", "x");
	add_edit(&b, &all);
	emit(arg, kv_buf_slice(&b));
	FUZZ_OK(kv_edit_delete_table(&change, 0, 10));
	FUZZ_OK(kv_edit_delete_table(&change, 1, 12));
	FUZZ_OK(kv_edit_delete_segment(&change, 7));
	FUZZ_OK(kv_edit_delete_snapshot(&change, "daily"));
	FUZZ_OK(kv_edit_add_snapshot(&change, &(struct kv_snapshot_info){
		.name = "weekly", .seqno = 100, .made_ns = 1800000000000000000 }));
	add_table(&change, 1, 13, "d", "z");
	add_edit(&b, &change);
	emit(arg, kv_buf_slice(&b));
}

const struct fuzz_target fuzz_edit = { "edit", run, seeds };
