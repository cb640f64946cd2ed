/*
 * Tables. What opens may still be damaged behind: errors then, no more. But a table that
 * kv_sst_check() finds nothing wrong with must answer every question right.
 */
#include "tests/fuzz/fuzz.h"

#include "kv/sst_impl.h"

#define NUMBER 12
#define RAW_BYTES_MAX (1u << 20)	/* of a block here: memory is not what is looked for */

/* --- checksums -------------------------------------------------------------------------- */

static bool inside(const struct kv_buf *file, struct kv_block_handle h)
{
	return h.offset <= file->bytes && h.stored_bytes <= file->bytes - h.offset &&
	       file->bytes - h.offset - h.stored_bytes >= sizeof(struct kv_block_trailer);
}

static void fix_block(struct kv_buf *file, struct kv_block_handle h)
{
	struct kv_block_trailer t;
	uint8_t *at;

	if (!h.stored_bytes || !inside(file, h))
		return;
	at = file->data + h.offset + h.stored_bytes;
	memcpy(&t, at, sizeof(t));
	if (kv_le32_get(t.raw_bytes) > RAW_BYTES_MAX)
		t.raw_bytes = kv_le32(RAW_BYTES_MAX);
	if (t.checksum.b[0] != FUZZ_BROKEN)
		t.checksum = kv_le64(kv_block_sum(NUMBER, h.offset,
						  kv_slice(file->data + h.offset, h.stored_bytes),
						  &t));
	memcpy(at, &t, sizeof(t));
}

/* The blocks that an index names, if it is not compressed. */
static void fix_data_blocks(struct kv_buf *file, struct kv_block_handle index)
{
	KV_AUTO(kv_block_cursor_done) struct kv_block_cursor c;
	KV_AUTO(kv_buf_done) struct kv_buf copy = KV_BUF_INIT;
	struct kv_block block;

	kv_block_cursor_init(&c);
	if (!inside(file, index))
		return;
	FUZZ_OK(kv_buf_append(&copy, file->data + index.offset, index.stored_bytes));
	block = kv_block_plain(kv_buf_slice(&copy));
	if (kv_block_cursor_set(&c, &block))
		return;
	for (c.cursor.ops->seek_first(&c.cursor); c.valid; c.cursor.ops->next(&c.cursor)) {
		struct kv_block_handle_disk d;

		if (c.value.bytes != sizeof(d))
			continue;
		memcpy(&d, c.value.data, sizeof(d));
		fix_block(file, kv_block_handle_decode(d));
	}
}

static void fix(struct kv_buf *file)
{
	struct kv_table_footer f;
	uint8_t *at = file->data + file->bytes - sizeof(f);

	memcpy(&f, at, sizeof(f));
	fix_data_blocks(file, kv_block_handle_decode(f.index));
	fix_block(file, kv_block_handle_decode(f.filter));
	fix_block(file, kv_block_handle_decode(f.range_deletes));
	fix_block(file, kv_block_handle_decode(f.properties));
	fix_block(file, kv_block_handle_decode(f.index));
	memcpy(&f, at, sizeof(f));
	memcpy(f.magic, KV_TABLE_MAGIC, sizeof(f.magic));
	f.number = kv_le64(NUMBER);
	if (f.checksum.b[0] != FUZZ_BROKEN)
		f.checksum = kv_le64(kv_table_footer_sum(&f));
	memcpy(at, &f, sizeof(f));
}

/* --- questions ---------------------------------------------------------------------------- */

static void get(struct kv_sst *t, struct kv_slice ikey, bool good)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	struct kv_found found = { .found = false };
	kv_seqno covered = 0;
	int err = kv_sst_get(t, kv_ikey_user(ikey), kv_ikey_seqno(ikey), &found, &covered, &pin);

	if (good)
		FUZZ_ASSERT(!err && found.found && found.seqno == kv_ikey_seqno(ikey));
}

/* Forwards, with a get and a seek at each entry; then backwards: as many. */
static void walk(struct kv_sst *t, bool good)
{
	KV_AUTO(kv_buf_done) struct kv_buf last = KV_BUF_INIT;
	struct kv_cursor *c = kv_sst_cursor(t, true, good);
	struct kv_cursor *other = kv_sst_cursor(t, false, false);
	size_t n = 0, back = 0;

	FUZZ_ASSERT(c && other);
	for (c->ops->seek_first(c); c->ops->valid(c); c->ops->next(c)) {
		struct kv_slice key = c->ops->key(c);

		if (good && n++)
			FUZZ_ASSERT(kv_ikey_cmp(kv_buf_slice(&last), key) < 0);
		FUZZ_OK(kv_buf_assign(&last, key));
		get(t, key, good);
		other->ops->seek(other, key);
		if (good)
			FUZZ_ASSERT(other->ops->valid(other) &&
				    kv_slice_eq(other->ops->key(other), key) &&
				    kv_slice_eq(other->ops->value(other), c->ops->value(c)));
		other->ops->seek_prev(other, key);
		if (good)
			FUZZ_ASSERT(other->ops->valid(other) &&
				    kv_slice_eq(other->ops->key(other), key));
	}
	FUZZ_ASSERT(!good || !c->ops->error(c));
	for (c->ops->seek_last(c); c->ops->valid(c); c->ops->prev(c))
		back++;
	if (good)
		FUZZ_ASSERT(!c->ops->error(c) && back == n && n == kv_sst_meta(t)->entries);
	kv_cursor_free(c);
	kv_cursor_free(other);
}

static void run(struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf file = KV_BUF_INIT;
	struct kv_cache *cache;
	struct fuzz_store s;
	struct kv_env_file *f;
	struct kv_sst *t;

	if (input.bytes < sizeof(struct kv_table_footer))
		return;
	fuzz_file_make(&file, KV_FILE_TABLE, NUMBER, input);
	fix(&file);
	fuzz_store_init(&s, kv_buf_slice(&file));
	cache = kv_cache_new(KV_MIB);
	FUZZ_ASSERT(cache);
	f = fuzz_store_file(&s);
	if (kv_sst_open(&s.store, cache, f, NUMBER, file.bytes, NULL, &t)) {
		s.env.ops->close(f);
	} else {
		walk(t, !kv_sst_check(t));
		kv_sst_close(t);
	}
	kv_cache_free(cache);
}

/* --- seeds ---------------------------------------------------------------------------------- */

static void add(struct kv_sst_build *b, const char *key, kv_seqno seqno, enum kv_kind kind,
		struct kv_slice value)
{
	KV_AUTO(kv_buf_done) struct kv_buf ikey = KV_BUF_INIT;

	FUZZ_OK(kv_ikey_make(&ikey, kv_slice_str(key), seqno, kind));
	FUZZ_OK(kv_sst_build_add(b, kv_buf_slice(&ikey), value));
}

static void add_all(struct kv_sst_build *b)
{
	struct kv_vptr p = { .segment_no = 3, .offset = 64, .stored_bytes = 9, .raw_bytes = 9,
			     .part_bytes = 9, .key_bytes = 3 };
	struct kv_rangedel r = { kv_slice_str("b"), kv_slice_str("d"), 6 };
	struct kv_vptr_disk d;

	kv_vptr_encode(&p, &d);
	add(b, "apple", 5, KV_KIND_PUT, kv_slice_str("red red red red red red red red"));
	add(b, "apple", 3, KV_KIND_PUT, kv_slice_str("green"));
	add(b, "banana", 4, KV_KIND_DELETE, kv_slice(NULL, 0));
	add(b, "cherry", 9, KV_KIND_PUT_PTR, kv_slice(&d, sizeof(d)));
	add(b, "date", 1, KV_KIND_PUT, kv_slice(NULL, 0));
	FUZZ_OK(kv_sst_build_add_rangedel(b, &r));
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	static const struct kv_sst_options options[] = {
		{ .block_bytes = 4096, .filter_bits_per_key = 10, .codec = KV_CODEC_NONE },
		{ .block_bytes = 32, .filter_bits_per_key = 0, .codec = KV_CODEC_NONE },
		{ .block_bytes = 64, .filter_bits_per_key = 10, .codec = KV_CODEC_LZ4 },
	};
	KV_AUTO(kv_buf_done) struct kv_buf file = KV_BUF_INIT;
	struct kv_sst_meta meta;
	struct kv_sst_build *b;
	struct fuzz_disk d;

	for (size_t i = 0; i < KV_ARRAY_LEN(options); i++) {
		fuzz_disk_init(&d);
		FUZZ_OK(kv_sst_build_new(&d.store, NUMBER, &options[i], &b));
		add_all(b);
		FUZZ_OK(kv_sst_build_finish(b, &meta));
		kv_sst_build_free(b);
		kv_sst_meta_done(&meta);
		fuzz_disk_load(&d, KV_FILE_TABLE, NUMBER, &file);
		emit(arg, kv_buf_slice(&file));
		fuzz_disk_done(&d);
	}
}

const struct fuzz_target fuzz_sst = { "sst", run, seeds };
