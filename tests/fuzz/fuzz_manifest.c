/* Loading a manifest; what it tells, written down anew, tells the same. */
#include "tests/fuzz/fuzz.h"

#include "kv/manifest.h"

#define NUMBER 5

/* All of the version as bytes, and the version that these make. */
static struct kv_version *turn(const struct kv_version *v, struct kv_buf *out)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	KV_AUTO(kv_edit_done) struct kv_edit decoded = { 0 };
	struct kv_version *next;

	FUZZ_OK(kv_version_to_edit(v, &e));
	FUZZ_OK(kv_edit_encode(&e, out));
	FUZZ_OK(kv_edit_decode(kv_buf_slice(out), &decoded));
	FUZZ_OK(kv_version_apply(NULL, &decoded, NULL, &next));
	return next;
}

static void run(struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf file = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf first = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf second = KV_BUF_INIT;
	struct kv_version *v, *next, *last;
	struct kv_manifest_state state;
	struct fuzz_store s;

	fuzz_file_make(&file, KV_FILE_MANIFEST, NUMBER, input);
	fuzz_fix_chunks(&file, NUMBER);
	fuzz_store_init(&s, kv_buf_slice(&file));
	if (kv_manifest_load(&s.store, NUMBER, NULL, &v, &state))
		return;
	FUZZ_ASSERT(state.next_fileno > NUMBER && state.seqno <= KV_SEQNO_MAX);
	next = turn(v, &first);
	last = turn(next, &second);
	FUZZ_ASSERT(kv_slice_eq(kv_buf_slice(&first), kv_buf_slice(&second)));
	kv_version_unref(v);
	kv_version_unref(next);
	kv_version_unref(last);
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_edit_done) struct kv_edit nothing = { 0 };
	KV_AUTO(kv_edit_done) struct kv_edit e = { .has_seqno = true, .seqno = 30 };
	KV_AUTO(kv_edit_done) struct kv_edit gone = { 0 };
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = {
		.number = 9, .file_bytes = 1000, .entries = 3, .deletes = 1, .raw_bytes = 100,
		.seqno_min = 1, .seqno_max = 30,
	};
	struct kv_manifest_state state = { .next_fileno = 6, .journal_min = 1 };
	struct kv_manifest *manifest;
	struct kv_version *v;
	struct fuzz_disk d;

	FUZZ_OK(kv_ikey_make(&m.smallest, kv_slice_str("a"), 30, KV_KIND_PUT));
	FUZZ_OK(kv_ikey_make(&m.largest, kv_slice_str("m"), 1, KV_KIND_PUT));
	m.refs = malloc(sizeof(*m.refs));
	FUZZ_ASSERT(m.refs);
	m.refs[m.ref_count++] = (struct kv_segment_ref){ 8, 77 };
	FUZZ_OK(kv_edit_add_segment(&e, 8));
	FUZZ_OK(kv_edit_add_table(&e, 2, &m));
	FUZZ_OK(kv_edit_add_snapshot(&e, &(struct kv_snapshot_info){ .name = "s", .seqno = 20 }));
	FUZZ_OK(kv_edit_seal_segment(&gone, 8, 500));
	FUZZ_OK(kv_edit_delete_table(&gone, 2, 9));
	FUZZ_OK(kv_edit_delete_snapshot(&gone, "s"));

	fuzz_disk_init(&d);
	FUZZ_OK(kv_version_apply(NULL, &nothing, NULL, &v));
	FUZZ_OK(kv_manifest_create(&d.store, NUMBER, v, &state, &manifest));
	d.store.features_required = KV_FEATURE_NAMED_SNAPSHOTS;
	FUZZ_OK(kv_manifest_append(manifest, &e));
	fuzz_disk_load(&d, KV_FILE_MANIFEST, NUMBER, &b);
	emit(arg, kv_buf_slice(&b));
	FUZZ_OK(kv_manifest_append(manifest, &gone));
	FUZZ_OK(kv_manifest_close(manifest));
	fuzz_disk_load(&d, KV_FILE_MANIFEST, NUMBER, &b);
	emit(arg, kv_buf_slice(&b));
	kv_version_unref(v);
	fuzz_disk_done(&d);
}

const struct fuzz_target fuzz_manifest = { "manifest", run, seeds };
