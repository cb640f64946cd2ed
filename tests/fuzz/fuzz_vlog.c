/* Segments: the scan from end to end, pointers, and reading by them. */
#include "tests/fuzz/fuzz.h"

#include "kv/checksum.h"
#include "kv/compress.h"
#include "kv/kv.h"
#include "kv/vlog.h"

#define NUMBER 9

static void fix_record(uint8_t *at, size_t left)
{
	struct kv_vlog_record r;
	size_t key_bytes, stored_bytes, skipped = offsetof(struct kv_vlog_record, seqno);

	memcpy(&r, at, sizeof(r));
	key_bytes = kv_le32_get(r.key_bytes);
	stored_bytes = kv_le32_get(r.stored_bytes);
	if (key_bytes > left - sizeof(r))
		return;
	if (stored_bytes <= left - sizeof(r) - key_bytes && r.value_checksum.b[0] != FUZZ_BROKEN)
		r.value_checksum = kv_le64(kv_checksum(kv_slice(at + sizeof(r) + key_bytes,
								stored_bytes), 0));
	if (r.checksum.b[0] != FUZZ_BROKEN)
		r.checksum = kv_le64(kv_checksum2(kv_slice((uint8_t *)&r + skipped,
							   sizeof(r) - skipped),
						  kv_slice(at + sizeof(r), key_bytes), NUMBER));
	memcpy(at, &r, sizeof(r));
}

/* As the scan goes: each record that looks like one gets its sums. */
static void fix_records(struct kv_buf *file)
{
	size_t at = sizeof(struct kv_file_header);

	while (at <= file->bytes && file->bytes - at >= sizeof(struct kv_vlog_record)) {
		struct kv_vlog_record r;
		size_t bytes;

		memcpy(&r, file->data + at, sizeof(r));
		if (kv_le32_get(r.magic) != KV_RECORD_MAGIC)
			return;
		fix_record(file->data + at, file->bytes - at);
		bytes = sizeof(r) + kv_le32_get(r.key_bytes) + (size_t)kv_le32_get(r.stored_bytes);
		at += (bytes + KV_RECORD_ALIGN - 1) / KV_RECORD_ALIGN * KV_RECORD_ALIGN;
	}
}

struct scan {
	struct fuzz_store *store;
	struct kv_env_file *file;
	uint64_t at;
};

/* Whole, and a part of it: the same bytes. */
static void read_value(struct scan *s, const struct kv_vptr *p)
{
	KV_AUTO(kv_buf_done) struct kv_buf whole = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf part = KV_BUF_INIT;
	struct kv_vptr q = *p;

	if (kv_vlog_read(&s->store->store, s->file, p, NULL, &whole)) {
		FUZZ_ASSERT(p->codec != KV_CODEC_NONE && !whole.bytes);
		return;
	}
	FUZZ_ASSERT(whole.bytes == p->raw_bytes);
	q.part_offset = p->raw_bytes / 3;
	q.part_bytes = (p->raw_bytes - q.part_offset) / 2;
	FUZZ_OK(kv_vlog_read(&s->store->store, s->file, &q, NULL, &part));
	FUZZ_ASSERT(kv_slice_eq(kv_buf_slice(&part),
				kv_slice(whole.data + q.part_offset, q.part_bytes)));
	FUZZ_ASSERT(kv_vptr_referenced_bytes(&q) <= kv_vptr_record_bytes(&q));
}

static int met(void *arg, const struct kv_vlog_entry *e)
{
	struct scan *s = arg;
	struct kv_vptr_disk d;
	struct kv_vptr p;

	FUZZ_ASSERT(e->offset == s->at && e->key.bytes == e->ptr.key_bytes);
	s->at += kv_vptr_record_bytes(&e->ptr);
	kv_vptr_encode(&e->ptr, &d);
	FUZZ_OK(kv_vptr_decode(kv_slice(&d, sizeof(d)), &p));
	if (e->value_error)
		FUZZ_ASSERT(kv_err_is(kv_vlog_check(&s->store->store, s->file, &p), KV_E_corrupt));
	else
		FUZZ_OK(kv_vlog_check(&s->store->store, s->file, &p));
	if (!e->value_error)
		read_value(s, &p);
	return 0;
}

static void run_pointer(struct scan *s, struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct kv_vptr_disk d;
	struct kv_vptr p;

	if (kv_vptr_decode(input, &p))
		return;
	kv_vptr_encode(&p, &d);
	FUZZ_ASSERT(kv_slice_eq(kv_slice(&d, sizeof(d)), input));
	FUZZ_ASSERT(kv_vptr_referenced_bytes(&p) <= kv_vptr_record_bytes(&p));
	if (!kv_vlog_read(&s->store->store, s->file, &p, NULL, &value))
		FUZZ_ASSERT(value.bytes == p.part_bytes);
	/* Where a whole record says the same as the pointer, the value can be read. */
	p.part_offset = 0;
	p.part_bytes = p.raw_bytes;
	kv_buf_reset(&value);
	if (!kv_vlog_check(&s->store->store, s->file, &p) && p.codec == KV_CODEC_NONE)
		FUZZ_OK(kv_vlog_read(&s->store->store, s->file, &p, NULL, &value));
}

static void run(struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf file = KV_BUF_INIT;
	struct kv_slice pointer = fuzz_take_slice(&input, sizeof(struct kv_vptr_disk));
	struct scan scan = { .at = sizeof(struct kv_file_header) };
	struct fuzz_store s;
	uint64_t end;

	fuzz_file_make(&file, KV_FILE_SEGMENT, NUMBER, input);
	fix_records(&file);
	fuzz_store_init(&s, kv_buf_slice(&file));
	scan.store = &s;
	scan.file = fuzz_store_file(&s);
	FUZZ_OK(kv_vlog_scan(&s.store, scan.file, NUMBER, met, &scan, &end));
	FUZZ_ASSERT(end == scan.at);
	run_pointer(&scan, pointer);
	s.env.ops->close(scan.file);
}

static void put(struct kv_segment_writer *w, const char *key, struct kv_slice raw,
		struct kv_vptr *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	enum kv_codec codec = kv_compress(raw.bytes % 2 ? KV_CODEC_LZ4 : KV_CODEC_ZSTD, raw, &b);
	struct kv_segment_put p = {
		.key = kv_slice_str(key), .seqno = 4,
		.stored = codec == KV_CODEC_NONE ? raw : kv_buf_slice(&b),
		.raw_bytes = (uint32_t)raw.bytes, .codec = codec,
	};

	p.value_checksum = kv_checksum(p.stored, 0);
	FUZZ_OK(kv_segment_append(w, &p, 1, out));
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf input = KV_BUF_INIT;
	static const uint8_t zeros[3000];
	struct kv_segment_writer *w;
	struct kv_vptr_disk disk;
	struct kv_vptr p;
	struct fuzz_disk d;

	fuzz_disk_init(&d);
	FUZZ_OK(kv_segment_create(&d.store, NUMBER, 4096, &w));
	put(w, "plain", kv_slice_str("a value that does not compress"), &p);
	put(w, "zeros", kv_slice(zeros, sizeof(zeros)), &p);
	put(w, "empty", kv_slice(NULL, 0), &p);
	FUZZ_OK(kv_segment_seal(w));
	kv_segment_writer_free(w);
	fuzz_disk_load(&d, KV_FILE_SEGMENT, NUMBER, &b);
	kv_vptr_encode(&p, &disk);
	FUZZ_OK(kv_buf_append(&input, &disk, sizeof(disk)));
	FUZZ_OK(kv_buf_append_slice(&input, kv_buf_slice(&b)));
	emit(arg, kv_buf_slice(&input));
	fuzz_disk_done(&d);
}

const struct fuzz_target fuzz_vlog = { "vlog", run, seeds };
