#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "kv/checksum.h"
#include "kv/compress.h"
#include "kv/kv.h"
#include "kv/vlog.h"
#include "tests/unit/tmpstore.h"

#define NUMBER 7
#define HEADER_BYTES sizeof(struct kv_file_header)

static struct kv_segment_put put_plain(struct kv_slice key, struct kv_slice value)
{
	return (struct kv_segment_put){
		.key = key,
		.seqno = 5,
		.stored = value,
		.raw_bytes = (uint32_t)value.bytes,
		.codec = KV_CODEC_NONE,
		.value_checksum = kv_checksum(value, 0),
	};
}

static struct kv_env_file *open_segment(struct tmpstore *t)
{
	struct kv_env_file *f;

	ck_ok(kv_store_open_file(&t->store, KV_FILE_SEGMENT, NUMBER, &f));
	return f;
}

static void append_ok(struct kv_segment_writer *w, struct kv_slice value, struct kv_vptr *out)
{
	struct kv_segment_put put = put_plain(kv_slice_str("key"), value);

	ck_ok(kv_segment_append(w, &put, 1, out));
}

UNIT(pointers_round_trip)
{
	struct kv_vptr p = { .segment_no = 3, .offset = 64, .value_checksum = 0x1122334455667788,
			     .stored_bytes = 100, .raw_bytes = 1000, .part_offset = 10,
			     .part_bytes = 990, .key_bytes = 17, .codec = KV_CODEC_ZSTD };
	struct kv_vptr_disk d;
	struct kv_vptr q;

	kv_vptr_encode(&p, &d);
	memset(&q, 0xff, sizeof(q));
	ck_ok(kv_vptr_decode(kv_slice(&d, sizeof(d)), &q));
	ck_assert_uint_eq(q.segment_no, p.segment_no);
	ck_assert_uint_eq(q.offset, p.offset);
	ck_assert_uint_eq(q.value_checksum, p.value_checksum);
	ck_assert_uint_eq(q.stored_bytes, p.stored_bytes);
	ck_assert_uint_eq(q.raw_bytes, p.raw_bytes);
	ck_assert_uint_eq(q.part_offset, p.part_offset);
	ck_assert_uint_eq(q.part_bytes, p.part_bytes);
	ck_assert_uint_eq(q.key_bytes, p.key_bytes);
	ck_assert_uint_eq(q.codec, p.codec);
}
UNIT_END

static int decode_changed(void (*change)(struct kv_vptr *p))
{
	struct kv_vptr p = { .segment_no = 3, .offset = 64, .stored_bytes = 100, .raw_bytes = 100,
			     .part_bytes = 100, .key_bytes = 17, .codec = KV_CODEC_NONE };
	struct kv_vptr_disk d;
	struct kv_vptr q;

	change(&p);
	kv_vptr_encode(&p, &d);
	return kv_vptr_decode(kv_slice(&d, sizeof(d)), &q);
}

static void change_nothing(struct kv_vptr *p) { (void)p; }
static void change_segment(struct kv_vptr *p) { p->segment_no = 0; }
static void change_offset(struct kv_vptr *p) { p->offset = 56; }
static void change_alignment(struct kv_vptr *p) { p->offset = 65; }
static void change_far(struct kv_vptr *p) { p->offset = UINT64_MAX - 7; }
static void change_part(struct kv_vptr *p) { p->part_offset = 1; }
static void change_wrap(struct kv_vptr *p) { p->part_offset = UINT32_MAX; p->part_bytes = 2; }
static void change_codec(struct kv_vptr *p) { p->codec = 9; }
static void change_stored(struct kv_vptr *p) { p->stored_bytes = 99; }
static void change_big(struct kv_vptr *p) { p->stored_bytes = p->raw_bytes = KV_VALUE_BYTES_MAX + 1; }
static void change_key(struct kv_vptr *p) { p->key_bytes = KV_KEY_BYTES_MAX + 1; }

UNIT(pointers_that_make_no_sense_are_refused)
{
	static void (*const changes[])(struct kv_vptr *) = {
		change_segment, change_offset, change_alignment, change_far, change_part,
		change_wrap, change_codec, change_stored, change_big, change_key,
	};
	struct kv_vptr_disk d = { .reserved = { 1 } };
	struct kv_vptr q;

	ck_ok(decode_changed(change_nothing));
	for (size_t i = 0; i < KV_ARRAY_LEN(changes); i++)
		ck_assert_int_eq(decode_changed(changes[i]), KV_E_bad_record);
	ck_assert_int_eq(kv_vptr_decode(kv_slice(&d, sizeof(d)), &q), KV_E_bad_record);
	ck_assert_int_eq(kv_vptr_decode(kv_slice(&d, sizeof(d) - 1), &q), KV_E_bad_record);
	ck_assert_int_eq(kv_vptr_decode(kv_slice(NULL, 0), &q), KV_E_bad_record);
}
UNIT_END

UNIT(parts_count_their_share)
{
	struct kv_vptr p = { .segment_no = 3, .offset = 64, .stored_bytes = 949, .raw_bytes = 4000,
			     .part_bytes = 4000, .key_bytes = 3, .codec = KV_CODEC_ZSTD };

	ck_assert_uint_eq(kv_vptr_record_bytes(&p), 1000);
	ck_assert_uint_eq(kv_vptr_referenced_bytes(&p), 1000);
	p.part_bytes = 1000;
	ck_assert_uint_eq(kv_vptr_referenced_bytes(&p), 250);
	p.part_bytes = 1;
	ck_assert_uint_eq(kv_vptr_referenced_bytes(&p), 1);
	p.part_bytes = 0;
	ck_assert_uint_eq(kv_vptr_referenced_bytes(&p), 1);
	p.stored_bytes = 950;
	ck_assert_uint_eq(kv_vptr_record_bytes(&p), 1008);
}
UNIT_END

/* More records than one write can hold, of all sizes; some compressed. */
struct many {
	struct kv_segment_put puts[1500];
	struct kv_vptr ptrs[1500];
	struct kv_buf raws[1500], packed[1500];
	char keys[1500][16];
	size_t seen;
};

static void many_make(struct many *m, uint64_t *random)
{
	for (size_t i = 0; i < KV_ARRAY_LEN(m->puts); i++) {
		size_t bytes = i % 50 ? tmpstore_random(random) % 300 : i * 20;
		uint8_t *raw;

		ck_ok(kv_buf_reserve(&m->raws[i], bytes + 1));
		raw = kv_buf_grow(&m->raws[i], bytes);
		if (i % 3)
			memset(raw, (int)i, bytes);
		else
			tmpstore_random_bytes(random, raw, bytes);
		snprintf(m->keys[i], sizeof(m->keys[i]), "%.*s%zu", (int)(i % 9), "abcdefghi", i);
		m->puts[i] = put_plain(kv_slice_str(m->keys[i]), kv_buf_slice(&m->raws[i]));
		m->puts[i].seqno = i + 1;
		if (kv_compress(KV_CODEC_ZSTD, kv_buf_slice(&m->raws[i]), &m->packed[i]) ==
		    KV_CODEC_ZSTD) {
			m->puts[i].stored = kv_buf_slice(&m->packed[i]);
			m->puts[i].codec = KV_CODEC_ZSTD;
			m->puts[i].value_checksum = kv_checksum(m->puts[i].stored, 0);
		}
	}
}

static int many_entry(void *arg, const struct kv_vlog_entry *e)
{
	struct many *m = arg;
	size_t i = m->seen++;

	ck_assert_uint_lt(i, KV_ARRAY_LEN(m->puts));
	ck_assert_uint_eq(e->offset, m->ptrs[i].offset);
	ck_assert_uint_eq(e->seqno, i + 1);
	ck_assert(kv_slice_eq(e->key, m->puts[i].key));
	ck_assert_int_eq(e->value_error, 0);
	ck_assert_uint_eq(e->ptr.value_checksum, m->ptrs[i].value_checksum);
	ck_assert_uint_eq(e->ptr.part_bytes, m->ptrs[i].raw_bytes);
	return 0;
}

/* Reading ahead gives the same, in whatever order: forward, two runs at once, backward, at random. */
static void read_ahead(struct many *m, struct tmpstore *t, struct kv_env_file *f, uint64_t *random)
{
	const size_t n = KV_ARRAY_LEN(m->puts);
	KV_AUTO(kv_buf_done) struct kv_buf out = KV_BUF_INIT;
	KV_AUTO(kv_vlog_ahead_done) struct kv_vlog_ahead ahead = { 0 };

	for (size_t k = 0; k < 4 * n; k++) {
		size_t i = k < n ? k : k < 2 * n ? (k % 2 ? k / 2 - n / 2 : n - 1 - (k - n) / 2) :
			   k < 3 * n ? 3 * n - 1 - k : tmpstore_random(random) % n;

		kv_buf_reset(&out);
		ck_ok(kv_vlog_read(&t->store, f, &m->ptrs[i], &ahead, &out));
		ck_assert(kv_slice_eq(kv_buf_slice(&out), kv_buf_slice(&m->raws[i])));
	}
	ck_assert_uint_gt(ahead.clock, 0);
}

UNIT(what_was_appended_is_read)
{
	uint64_t random = tmpstore_seed(1), end;
	KV_AUTO(kv_buf_done) struct kv_buf out = KV_BUF_INIT;
	struct many *m = calloc(1, sizeof(*m));
	const size_t n = KV_ARRAY_LEN(m->puts);
	struct kv_segment_writer *w;
	struct kv_env_file *f;
	struct tmpstore t;

	tmpstore_init(&t);
	many_make(m, &random);
	ck_ok(kv_segment_create(&t.store, NUMBER, 1 << 16, &w));
	ck_assert_uint_eq(kv_segment_number(w), NUMBER);
	ck_assert_uint_eq(kv_segment_bytes(w), HEADER_BYTES);
	ck_ok(kv_segment_append(w, m->puts, 7, m->ptrs));
	ck_ok(kv_segment_append(w, m->puts + 7, n - 7, m->ptrs + 7));
	f = open_segment(&t);
	for (size_t i = 0; i < n; i++) {
		struct kv_vptr p = m->ptrs[i];

		kv_buf_reset(&out);
		ck_ok(kv_buf_append(&out, "x", 1));
		ck_ok(kv_vlog_check(&t.store, f, &p));
		ck_ok(kv_vlog_read(&t.store, f, &p, NULL, &out));
		ck_assert_uint_eq(out.bytes, 1 + m->raws[i].bytes);
		ck_assert(kv_slice_eq(kv_slice(out.data + 1, out.bytes - 1),
				      kv_buf_slice(&m->raws[i])));
		p.part_offset = p.raw_bytes / 3;
		p.part_bytes = p.raw_bytes / 2;
		ck_ok(kv_vlog_read(&t.store, f, &p, NULL, &out));
		ck_assert(kv_slice_eq(kv_slice(out.data + 1 + p.raw_bytes, p.part_bytes),
				      kv_slice(m->raws[i].data + p.part_offset, p.part_bytes)));
	}
	read_ahead(m, &t, f, &random);
	ck_ok(kv_vlog_scan(&t.store, f, NUMBER, many_entry, m, &end));
	ck_assert_uint_eq(m->seen, n);
	ck_assert_uint_eq(end, kv_segment_bytes(w));
	ck_assert_uint_eq(t.message_count, 0);
	t.ops.close(f);
	kv_segment_writer_free(w);
	for (size_t i = 0; i < n; i++) {
		kv_buf_done(&m->raws[i]);
		kv_buf_done(&m->packed[i]);
	}
	free(m);
	tmpstore_done(&t);
}
UNIT_END

UNIT(sealing_gives_back_space)
{
	struct tmpstore t;
	struct kv_segment_writer *w;
	struct kv_vptr p;
	char path[400];
	struct stat st;

	tmpstore_init(&t);
	ck_ok(kv_segment_create(&t.store, NUMBER, 4 * KV_MIB, &w));
	append_ok(w, kv_slice_str("hello"), &p);
	ck_assert_uint_eq(kv_segment_synced(w), HEADER_BYTES);
	ck_ok(kv_segment_seal(w));
	ck_assert_uint_eq(kv_segment_synced(w), kv_segment_bytes(w));
	snprintf(path, sizeof(path), "%s/%s", t.path, kv_filename(KV_FILE_SEGMENT, NUMBER).s);
	ck_ok(stat(path, &st));
	ck_assert_uint_eq((uint64_t)st.st_size, kv_segment_bytes(w));
	ck_assert_int_lt(st.st_blocks * 512, 1 << 20);
	kv_segment_writer_free(w);
	tmpstore_done(&t);
}
UNIT_END

UNIT(an_existing_segment_is_not_made_again)
{
	struct tmpstore t;
	struct kv_segment_writer *w, *other = NULL;
	struct kv_vptr p;

	tmpstore_init(&t);
	ck_ok(kv_segment_create(&t.store, NUMBER, 0, &w));
	append_ok(w, kv_slice_str("hello"), &p);
	kv_segment_writer_free(w);
	ck_assert_int_eq(kv_segment_create(&t.store, NUMBER, 0, &other), -EEXIST);
	ck_assert_ptr_null(other);
	t.ops.close(open_segment(&t));
	tmpstore_done(&t);
}
UNIT_END

/* --- damage ----------------------------------------------------------------------------------- */

#define DAMAGE_VALUES 3

struct damage {
	struct tmpstore t;
	struct kv_buf file;
	struct kv_vptr ptrs[DAMAGE_VALUES];
	struct kv_buf raws[DAMAGE_VALUES];
};

static void damage_init(struct damage *d)
{
	struct kv_segment_writer *w;
	KV_AUTO(kv_buf_done) struct kv_buf packed = KV_BUF_INIT;
	struct kv_segment_put puts[DAMAGE_VALUES];

	memset(d, 0, sizeof(*d));
	tmpstore_init(&d->t);
	for (int i = 0; i < DAMAGE_VALUES; i++) {
		ck_assert_ptr_nonnull(kv_buf_grow(&d->raws[i], 200 + (size_t)i));
		memset(d->raws[i].data, 'a' + i, d->raws[i].bytes);
		puts[i] = put_plain(kv_slice_str("some key"), kv_buf_slice(&d->raws[i]));
	}
	ck_assert_int_eq(kv_compress(KV_CODEC_ZSTD, kv_buf_slice(&d->raws[1]), &packed), KV_CODEC_ZSTD);
	puts[1].codec = KV_CODEC_ZSTD;
	puts[1].stored = kv_buf_slice(&packed);
	puts[1].value_checksum = kv_checksum(puts[1].stored, 0);
	ck_ok(kv_segment_create(&d->t.store, NUMBER, 0, &w));
	ck_ok(kv_segment_append(w, puts, DAMAGE_VALUES, d->ptrs));
	ck_ok(kv_segment_seal(w));
	kv_segment_writer_free(w);
	d->file = tmpstore_load(&d->t, kv_filename(KV_FILE_SEGMENT, NUMBER).s);
}

static void damage_done(struct damage *d)
{
	for (int i = 0; i < DAMAGE_VALUES; i++)
		kv_buf_done(&d->raws[i]);
	kv_buf_done(&d->file);
	tmpstore_done(&d->t);
}

static int damage_entry(void *arg, const struct kv_vlog_entry *e)
{
	const struct damage *d = arg;
	int i = 0;

	while (i < DAMAGE_VALUES && d->ptrs[i].offset != e->offset)
		i++;
	ck_assert_int_lt(i, DAMAGE_VALUES);
	ck_assert(kv_slice_eq(e->key, kv_slice_str("some key")));
	ck_assert_uint_eq(e->ptr.value_checksum, d->ptrs[i].value_checksum);
	ck_assert(e->value_error == 0 || e->value_error == KV_E_bad_sum);
	return 0;
}

/* Every value is right or an error; returns how many were an error. */
static int damage_read(struct damage *d)
{
	struct kv_env_file *f;
	int errors = 0, err, checked;
	uint64_t end;

	ck_ok(d->t.ops.open(d->t.store.dir, kv_filename(KV_FILE_SEGMENT, NUMBER).s, KV_ENV_READ, &f));
	for (int i = 0; i < DAMAGE_VALUES; i++) {
		KV_AUTO(kv_buf_done) struct kv_buf out = KV_BUF_INIT;
		unsigned messages = d->t.message_count;

		checked = kv_vlog_check(&d->t.store, f, &d->ptrs[i]);
		ck_assert(!checked || kv_err_is(checked, KV_E_corrupt));
		ck_assert_uint_eq(d->t.message_count, messages);
		err = kv_vlog_read(&d->t.store, f, &d->ptrs[i], NULL, &out);
		if (err) {
			errors++;
			ck_assert(kv_err_is(err, KV_E_corrupt));
			ck_assert(checked != 0);
			ck_assert_uint_eq(out.bytes, 0);
			ck_assert_uint_eq(d->t.message_count, messages + 1);
			ck_assert_ptr_nonnull(strstr(d->t.message, "000007.vlog"));
		} else {
			ck_assert(kv_slice_eq(kv_buf_slice(&out), kv_buf_slice(&d->raws[i])));
		}
	}
	ck_ok(kv_vlog_scan(&d->t.store, f, NUMBER, damage_entry, d, &end));
	d->t.ops.close(f);
	return errors;
}

UNIT(flipped_bytes_are_noticed)
{
	struct damage d;
	int errors = 0;

	damage_init(&d);
	ck_assert_int_eq(damage_read(&d), 0);
	for (size_t i = HEADER_BYTES; i < d.file.bytes; i++) {
		d.file.data[i] ^= (uint8_t)(1 << i % 8);
		tmpstore_save(&d.t, kv_filename(KV_FILE_SEGMENT, NUMBER).s, kv_buf_slice(&d.file));
		errors += damage_read(&d);
		d.file.data[i] ^= (uint8_t)(1 << i % 8);
	}
	ck_assert_uint_eq((unsigned)errors, d.ptrs[0].stored_bytes + d.ptrs[1].stored_bytes +
						    d.ptrs[2].stored_bytes);
	damage_done(&d);
}
UNIT_END

UNIT(cut_files_are_noticed)
{
	struct damage d;

	damage_init(&d);
	for (size_t cut = 0; cut < d.file.bytes; cut++) {
		tmpstore_save(&d.t, kv_filename(KV_FILE_SEGMENT, NUMBER).s,
			      kv_slice(d.file.data, cut));
		/* All that is missing at the very end is padding. */
		ck_assert_int_gt(damage_read(&d) + (d.file.bytes - cut < KV_RECORD_ALIGN), 0);
	}
	damage_done(&d);
}
UNIT_END

UNIT(another_segments_bytes_are_not_a_record)
{
	struct damage d;
	struct kv_env_file *f;
	uint64_t end;

	damage_init(&d);
	f = open_segment(&d.t);
	ck_ok(kv_vlog_scan(&d.t.store, f, NUMBER + 1, damage_entry, &d, &end));
	ck_assert_uint_eq(end, HEADER_BYTES);
	d.ptrs[0].segment_no++;
	ck_assert_int_eq(kv_vlog_check(&d.t.store, f, &d.ptrs[0]), KV_E_bad_sum);
	d.t.ops.close(f);
	damage_done(&d);
}
UNIT_END

/* --- failures --------------------------------------------------------------------------------- */

static int fail_write(struct kv_env_file *f, struct iovec *iov, int iov_count, uint64_t offset)
{
	(void)f, (void)iov, (void)iov_count, (void)offset;
	return -EIO;
}

static int fail_sync(struct kv_env_file *f)
{
	(void)f;
	return -EIO;
}

static int fail_allocate(struct kv_env_file *f, uint64_t offset, uint64_t bytes, bool extend)
{
	(void)f, (void)offset, (void)bytes, (void)extend;
	return -ENOSPC;
}

static int fail_dir_sync(struct kv_env_dir *d)
{
	(void)d;
	return -EIO;
}

UNIT(a_failed_write_poisons)
{
	struct tmpstore t;
	struct kv_segment_writer *w;
	struct kv_segment_put put = put_plain(kv_slice_str("k"), kv_slice_str("v"));
	struct kv_vptr p;
	uint64_t bytes;

	tmpstore_init(&t);
	ck_ok(kv_segment_create(&t.store, NUMBER, 0, &w));
	append_ok(w, kv_slice_str("hello"), &p);
	bytes = kv_segment_bytes(w);
	t.ops.pwritev = fail_write;
	ck_assert_int_eq(kv_segment_append(w, &put, 1, &p), -EIO);
	t.ops = *tmpstore_system();
	ck_assert_int_eq(kv_segment_append(w, &put, 1, &p), -EIO);
	ck_assert_int_eq(kv_segment_sync(w), -EIO);
	ck_assert_int_eq(kv_segment_reserve(w, 10), -EIO);
	ck_assert_int_eq(kv_segment_seal(w), -EIO);
	ck_assert_uint_eq(kv_segment_bytes(w), bytes);
	ck_assert_uint_eq(kv_segment_synced(w), HEADER_BYTES);
	ck_assert_uint_eq(t.message_count, 1);
	kv_segment_writer_free(w);
	tmpstore_done(&t);
}
UNIT_END

UNIT(a_failed_sync_is_not_tried_again)
{
	struct tmpstore t;
	struct kv_segment_writer *w;
	struct kv_vptr p;

	tmpstore_init(&t);
	ck_ok(kv_segment_create(&t.store, NUMBER, 0, &w));
	append_ok(w, kv_slice_str("hello"), &p);
	t.ops.sync = fail_sync;
	ck_assert_int_eq(kv_segment_sync(w), -EIO);
	t.ops = *tmpstore_system();
	ck_assert_int_eq(kv_segment_sync(w), -EIO);
	ck_assert_uint_eq(kv_segment_synced(w), HEADER_BYTES);
	kv_segment_writer_free(w);
	tmpstore_done(&t);
}
UNIT_END

UNIT(no_space_is_harmless_when_reserving)
{
	struct tmpstore t;
	struct kv_segment_writer *w;
	struct kv_vptr p;

	tmpstore_init(&t);
	ck_ok(kv_segment_create(&t.store, NUMBER, 4096, &w));
	t.ops.allocate = fail_allocate;
	ck_ok(kv_segment_reserve(w, 4000));
	ck_assert_int_eq(kv_segment_reserve(w, 5000), KV_E_no_space);
	append_ok(w, kv_slice_str("hello"), &p);
	t.ops = *tmpstore_system();
	ck_ok(kv_segment_reserve(w, 5000));
	ck_ok(kv_segment_reserve(w, 3 * KV_MIB));
	t.ops.allocate = fail_allocate;
	ck_ok(kv_segment_reserve(w, 3 * KV_MIB));
	ck_ok(kv_segment_sync(w));
	kv_segment_writer_free(w);
	tmpstore_done(&t);
}
UNIT_END

UNIT(a_segment_that_could_not_be_made_leaves_nothing)
{
	struct tmpstore t;
	struct kv_segment_writer *w = NULL;
	struct kv_env_file *f;

	tmpstore_init(&t);
	t.ops.allocate = fail_allocate;
	ck_assert_int_eq(kv_segment_create(&t.store, NUMBER, 4096, &w), KV_E_no_space);
	t.ops = *tmpstore_system();
	t.ops.dir_sync = fail_dir_sync;
	ck_assert_int_eq(kv_segment_create(&t.store, NUMBER, 4096, &w), -EIO);
	ck_assert_ptr_null(w);
	t.ops = *tmpstore_system();
	ck_assert_int_eq(t.ops.open(t.store.dir, kv_filename(KV_FILE_SEGMENT, NUMBER).s,
				    KV_ENV_READ, &f), -ENOENT);
	tmpstore_done(&t);
}
UNIT_END

/* --- dirty bytes, and syncs beside appends ---------------------------------------------------- */

static uint64_t started_end, waited_end;

static int watch_writeback(struct kv_env_file *f, uint64_t offset, uint64_t bytes, bool wait)
{
	uint64_t *end = wait ? &waited_end : &started_end;

	ck_assert_uint_le(offset, KV_MAX(*end, (uint64_t)HEADER_BYTES));
	*end = offset + bytes;
	return tmpstore_system()->writeback(f, offset, bytes, wait);
}

static int fail_writeback(struct kv_env_file *f, uint64_t offset, uint64_t bytes, bool wait)
{
	(void)f, (void)offset, (void)bytes;
	return wait ? -EIO : 0;
}

UNIT(dirty_bytes_are_bounded)
{
	const size_t bytes = KV_MIB / 2;
	uint8_t *value = calloc(1, bytes);
	struct kv_segment_writer *w;
	struct kv_segment_put put = put_plain(kv_slice_str("k"), kv_slice(value, bytes));
	struct kv_vptr p;
	struct tmpstore t;
	int i, err = 0;

	tmpstore_init(&t);
	ck_ok(kv_segment_create(&t.store, NUMBER, 0, &w));
	t.ops.writeback = watch_writeback;
	started_end = waited_end = 0;
	for (i = 0; i < 80; i++) {
		ck_ok(kv_segment_append(w, &put, 1, &p));
		ck_assert_uint_le(kv_segment_bytes(w), started_end + KV_MIB + bytes + 8192);
		ck_assert_uint_le(kv_segment_bytes(w), waited_end + 32 * KV_MIB + 8192);
	}
	ck_assert_uint_gt(waited_end, 0);
	t.ops.writeback = fail_writeback;
	for (i = 0; i < 80 && !err; i++)
		err = kv_segment_append(w, &put, 1, &p);
	ck_assert_int_eq(err, -EIO);
	ck_assert_int_eq(kv_segment_sync(w), -EIO);
	ck_assert_uint_eq(t.message_count, 1);
	kv_segment_writer_free(w);
	free(value);
	tmpstore_done(&t);
}
UNIT_END

struct beside {
	struct kv_segment_writer *w;
	atomic_bool stop;
	int err;
	uint64_t syncs;
};

static void *sync_beside(void *arg)
{
	struct beside *b = arg;
	uint64_t before;

	while (!b->err && !atomic_load(&b->stop)) {
		before = kv_segment_bytes(b->w);
		b->err = kv_segment_sync(b->w);
		if (!b->err && kv_segment_synced(b->w) < before)
			b->err = -ERANGE;
		b->syncs++;
	}
	return NULL;
}

UNIT(syncs_run_beside_appends)
{
	struct tmpstore t;
	struct beside b[2] = { 0 };
	struct kv_segment_writer *w;
	pthread_t threads[2];
	struct kv_vptr p;

	tmpstore_init(&t);
	ck_ok(kv_segment_create(&t.store, NUMBER, 1 << 20, &w));
	for (int i = 0; i < 2; i++) {
		b[i].w = w;
		ck_ok(pthread_create(&threads[i], NULL, sync_beside, &b[i]));
	}
	for (int i = 0; i < 500; i++)
		append_ok(w, kv_slice_str("some value that is neither long nor short"), &p);
	for (int i = 0; i < 2; i++) {
		atomic_store(&b[i].stop, true);
		ck_ok(pthread_join(threads[i], NULL));
		ck_ok(b[i].err);
	}
	ck_ok(kv_segment_sync(w));
	ck_assert_uint_eq(kv_segment_synced(w), kv_segment_bytes(w));
	kv_segment_writer_free(w);
	tmpstore_done(&t);
}
UNIT_END

UNIT_MAIN("vlog", pointers_round_trip, pointers_that_make_no_sense_are_refused,
	  parts_count_their_share, what_was_appended_is_read, sealing_gives_back_space,
	  an_existing_segment_is_not_made_again, flipped_bytes_are_noticed, cut_files_are_noticed,
	  another_segments_bytes_are_not_a_record, a_failed_write_poisons,
	  a_failed_sync_is_not_tried_again, no_space_is_harmless_when_reserving,
	  a_segment_that_could_not_be_made_leaves_nothing, dirty_bytes_are_bounded,
	  syncs_run_beside_appends)
