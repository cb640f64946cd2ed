/* The reading half of the value log: by pointer, and from end to end. */
#include "kv/vlog.h"

#include <stdlib.h>

#include "kv/assert.h"
#include "kv/checksum.h"
#include "kv/compress.h"
#include "kv/kv.h"

#define SCAN_BYTES (256 * KV_KIB)	/* read at once by a scan */
#define SEGMENT_BYTES_MAX ((uint64_t)1 << 48) /* no offset is larger: sums cannot wrap */

/* --- pointers --------------------------------------------------------------------------------- */

static bool vptr_is_valid(const struct kv_vptr *p)
{
	if (!p->segment_no || p->offset < sizeof(struct kv_file_header) ||
	    p->offset % KV_RECORD_ALIGN || p->offset > SEGMENT_BYTES_MAX)
		return false;
	if (p->stored_bytes > KV_VALUE_BYTES_MAX || p->raw_bytes > KV_VALUE_BYTES_MAX ||
	    p->key_bytes > KV_KEY_BYTES_MAX)
		return false;
	if (p->part_offset > p->raw_bytes || p->part_bytes > p->raw_bytes - p->part_offset)
		return false;
	if (p->codec == KV_CODEC_NONE)
		return p->stored_bytes == p->raw_bytes;
	return p->codec < KV_CODEC_END;
}

int kv_vptr_decode(struct kv_slice s, struct kv_vptr *out)
{
	static const uint8_t zeros[sizeof(((struct kv_vptr_disk *)0)->reserved)];
	struct kv_vptr_disk d;
	struct kv_vptr p;

	if (s.bytes != sizeof(d))
		return KV_E_bad_record;
	memcpy(&d, s.data, sizeof(d));
	p = (struct kv_vptr){
		.segment_no = kv_le64_get(d.segment_no),
		.offset = kv_le64_get(d.offset),
		.value_checksum = kv_le64_get(d.value_checksum),
		.stored_bytes = kv_le32_get(d.stored_bytes),
		.raw_bytes = kv_le32_get(d.raw_bytes),
		.part_offset = kv_le32_get(d.part_offset),
		.part_bytes = kv_le32_get(d.part_bytes),
		.key_bytes = kv_le16_get(d.key_bytes),
		.codec = d.codec,
	};
	if (memcmp(d.reserved, zeros, sizeof(zeros)) || !vptr_is_valid(&p))
		return KV_E_bad_record;
	*out = p;
	return 0;
}

uint64_t kv_vptr_record_bytes(const struct kv_vptr *p)
{
	uint64_t bytes = sizeof(struct kv_vlog_record) + p->key_bytes + p->stored_bytes;

	return (bytes + KV_RECORD_ALIGN - 1) / KV_RECORD_ALIGN * KV_RECORD_ALIGN;
}

uint64_t kv_vptr_referenced_bytes(const struct kv_vptr *p)
{
	uint64_t bytes = kv_vptr_record_bytes(p);

	if (p->part_bytes >= p->raw_bytes)
		return bytes;
	/* An empty part counts for a byte: what is pointed to must never look unreferenced. */
	return KV_MAX((bytes * p->part_bytes + p->raw_bytes - 1) / p->raw_bytes, (uint64_t)1);
}

/* --- reading ahead ------------------------------------------------------------------------------ */

#define AHEAD_BYTES_MIN (8 * KV_KIB)
#define AHEAD_BYTES_MAX (64 * KV_KIB)
#define AHEAD_VALUE_MAX (16 * KV_KIB)	/* longer ones gain little, and would be copied */

void kv_vlog_ahead_done(struct kv_vlog_ahead *a)
{
	for (size_t i = 0; i < KV_ARRAY_LEN(a->windows); i++)
		kv_buf_done(&a->windows[i].bytes);
}

static bool window_has(const struct kv_vlog_window *w, uint64_t offset, size_t bytes)
{
	return offset >= w->offset && bytes <= w->bytes.bytes &&
	       offset - w->offset <= w->bytes.bytes - bytes;
}

/* Does the offset go on, not too far on, where the window was read last? */
static bool window_leads_to(const struct kv_vlog_window *w, kv_fileno segment_no, uint64_t offset)
{
	return w->segment_no == segment_no && offset >= w->end &&
	       offset - w->end <= AHEAD_BYTES_MAX;
}

/* The window of the run that the value belongs to; else the one that was used longest ago, emptied. */
static struct kv_vlog_window *window_of(struct kv_vlog_ahead *a, kv_fileno segment_no,
					uint64_t offset)
{
	struct kv_vlog_window *oldest = &a->windows[0];

	for (size_t i = 0; i < KV_ARRAY_LEN(a->windows); i++) {
		struct kv_vlog_window *w = &a->windows[i];

		if (window_leads_to(w, segment_no, offset))
			return w;
		if (w->used < oldest->used)
			oldest = w;
	}
	oldest->segment_no = segment_no;
	oldest->ahead_bytes = 0;
	oldest->offset = oldest->end = offset;
	kv_buf_reset(&oldest->bytes);
	return oldest;
}

/* Reads from there on: nothing extra at the first value of a run, then twice as much each time. */
static void window_fill(struct kv_vlog_window *w, struct kv_env *env, struct kv_env_file *segment,
			uint64_t offset)
{
	w->offset = offset;
	kv_buf_reset(&w->bytes);
	if (!w->ahead_bytes) {
		w->ahead_bytes = AHEAD_BYTES_MIN;
		return;
	}
	if (kv_buf_reserve(&w->bytes, AHEAD_BYTES_MAX) ||
	    env->ops->pread(segment, w->bytes.data, w->ahead_bytes, offset, &w->bytes.bytes))
		kv_buf_reset(&w->bytes);
	w->ahead_bytes = KV_MIN(2 * w->ahead_bytes, (size_t)AHEAD_BYTES_MAX);
}

/*
 * The bytes out of a window, which is read anew when they lie ahead of it. False when it doesn't
 * pay, or cannot be done: they are to be read alone. They stay until the next call.
 */
static bool ahead_read(struct kv_vlog_ahead *a, struct kv_env *env, struct kv_env_file *segment,
		       kv_fileno segment_no, uint64_t offset, size_t bytes, struct kv_slice *out)
{
	struct kv_vlog_window *w;

	if (bytes > AHEAD_VALUE_MAX)
		return false;
	w = window_of(a, segment_no, offset);
	w->used = ++a->clock;
	if (!window_has(w, offset, bytes))
		window_fill(w, env, segment, offset);
	w->end = offset + bytes;
	if (!window_has(w, offset, bytes))
		return false;
	*out = kv_slice(w->bytes.data + (offset - w->offset), bytes);
	return true;
}

/* --- by pointer ------------------------------------------------------------------------------- */

static int value_unpack(const struct kv_vptr *p, const uint8_t *stored, uint8_t *to)
{
	struct kv_slice s = kv_slice(stored, p->stored_bytes);

	if (kv_checksum(s, 0) != p->value_checksum)
		return KV_E_bad_sum;
	return stored == to ? 0 : kv_decompress((enum kv_codec)p->codec, s, to, p->raw_bytes);
}

/*
 * Reads what is stored, verifies it, and leaves the whole raw value at `to`. scratch: stored_bytes
 * of room, used when the value is compressed.
 */
static int value_read(struct kv_env *env, struct kv_env_file *segment, const struct kv_vptr *p,
		      struct kv_vlog_ahead *ahead, uint8_t *to, uint8_t *scratch)
{
	uint64_t offset = p->offset + sizeof(struct kv_vlog_record) + p->key_bytes;
	uint8_t *stored = p->codec == KV_CODEC_NONE ? to : scratch;
	struct kv_slice s;

	/* What is wrong in a window may be right in the file: then that counts. */
	if (ahead && ahead_read(ahead, env, segment, p->segment_no, offset, p->stored_bytes, &s) &&
	    !value_unpack(p, s.data, to))
		return 0;
	KV_TRY(kv_env_read_exact(env, segment, stored, p->stored_bytes, offset));
	return value_unpack(p, stored, to);
}

int kv_vlog_read(struct kv_store *s, struct kv_env_file *segment, const struct kv_vptr *p,
		 struct kv_vlog_ahead *ahead, struct kv_buf *out)
{
	size_t scratch_bytes = p->codec == KV_CODEC_NONE ? 0 : p->stored_bytes;
	uint8_t *to;
	int err;

	KV_ASSERT(vptr_is_valid(p));
	/*
	 * The scratch lies behind the value in the same buffer, which callers use again and
	 * again. A byte more, so that there is one for an empty value too.
	 */
	KV_TRY(kv_buf_reserve(out, (size_t)p->raw_bytes + scratch_bytes + 1));
	to = out->data + out->bytes;
	err = value_read(s->env, segment, p, ahead, to, to + p->raw_bytes);
	if (err)
		return kv_fail(&s->msg, err, "%s/%s: the value of %u bytes at %llu cannot be read: %s",
			       s->path, kv_filename(KV_FILE_SEGMENT, p->segment_no).s,
			       p->stored_bytes, (unsigned long long)p->offset, kv_err_text(err));
	if (p->part_offset)
		memmove(to, to + p->part_offset, p->part_bytes);
	out->bytes += p->part_bytes;
	return 0;
}

/* --- records ---------------------------------------------------------------------------------- */

static bool record_is_plausible(const struct kv_vlog_record *r)
{
	uint32_t stored_bytes = kv_le32_get(r->stored_bytes), raw_bytes = kv_le32_get(r->raw_bytes);

	if (kv_le32_get(r->magic) != KV_RECORD_MAGIC || kv_le32_get(r->reserved) ||
	    kv_le32_get(r->key_bytes) > KV_KEY_BYTES_MAX || stored_bytes > KV_VALUE_BYTES_MAX ||
	    raw_bytes > KV_VALUE_BYTES_MAX)
		return false;
	if (kv_le32_get(r->codec) == KV_CODEC_NONE)
		return stored_bytes == raw_bytes;
	return kv_le32_get(r->codec) < KV_CODEC_END;
}

static bool record_sum_matches(const struct kv_vlog_record *r, struct kv_slice key,
			       kv_fileno number)
{
	struct kv_slice rest = kv_slice((const uint8_t *)r + offsetof(struct kv_vlog_record, seqno),
					sizeof(*r) - offsetof(struct kv_vlog_record, seqno));

	return kv_le64_get(r->checksum) == kv_checksum2(rest, key, number);
}

/* Of the whole value; r has been found plausible. */
static struct kv_vptr record_pointer(const struct kv_vlog_record *r, kv_fileno number,
				     uint64_t offset)
{
	return (struct kv_vptr){
		.segment_no = number,
		.offset = offset,
		.value_checksum = kv_le64_get(r->value_checksum),
		.stored_bytes = kv_le32_get(r->stored_bytes),
		.raw_bytes = kv_le32_get(r->raw_bytes),
		.part_bytes = kv_le32_get(r->raw_bytes),
		.key_bytes = (uint16_t)kv_le32_get(r->key_bytes),
		.codec = (uint8_t)kv_le32_get(r->codec),
	};
}

/* at: all bytes of the record that p points to. */
static int record_check(const uint8_t *at, const struct kv_vptr *p, kv_seqno *out_seqno)
{
	size_t head_bytes = sizeof(struct kv_vlog_record) + p->key_bytes;
	struct kv_vlog_record r;
	struct kv_vptr q;

	memcpy(&r, at, sizeof(r));
	if (!record_is_plausible(&r))
		return KV_E_bad_record;
	q = record_pointer(&r, p->segment_no, p->offset);
	if (q.key_bytes != p->key_bytes || q.stored_bytes != p->stored_bytes ||
	    q.raw_bytes != p->raw_bytes || q.codec != p->codec ||
	    q.value_checksum != p->value_checksum)
		return KV_E_bad_record;
	if (!record_sum_matches(&r, kv_slice(at + sizeof(r), p->key_bytes), p->segment_no) ||
	    kv_checksum(kv_slice(at + head_bytes, p->stored_bytes), 0) != p->value_checksum)
		return KV_E_bad_sum;
	*out_seqno = kv_le64_get(r.seqno);
	return 0;
}

int kv_vlog_read_record(struct kv_store *s, struct kv_env_file *segment, const struct kv_vptr *p,
			struct kv_buf *out, kv_seqno *out_seqno)
{
	size_t bytes = sizeof(struct kv_vlog_record) + p->key_bytes + p->stored_bytes;
	int err;

	KV_ASSERT(vptr_is_valid(p));
	KV_TRY(kv_buf_reserve(out, bytes));
	err = kv_env_read_exact(s->env, segment, out->data + out->bytes, bytes, p->offset);
	if (!err)
		err = record_check(out->data + out->bytes, p, out_seqno);
	if (err)
		return err;
	out->bytes += bytes;
	return 0;
}

int kv_vlog_check(struct kv_store *s, struct kv_env_file *segment, const struct kv_vptr *p)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	kv_seqno seqno;

	return kv_vlog_read_record(s, segment, p, &b, &seqno);
}

/* --- from end to end -------------------------------------------------------------------------- */

/* A piece of the file in memory. */
struct window {
	struct kv_env *env;
	struct kv_env_file *file;
	struct kv_buf bytes;
	uint64_t offset;
};

/* *out: up to `bytes` at offset, less only at the end of the file. They stay until the next. */
static int window_get(struct window *w, uint64_t offset, size_t bytes, struct kv_slice *out)
{
	size_t want = KV_MAX(bytes, (size_t)SCAN_BYTES), got;

	if (offset < w->offset || offset + bytes > w->offset + w->bytes.bytes) {
		kv_buf_reset(&w->bytes);
		KV_TRY(kv_buf_reserve(&w->bytes, want));
		KV_TRY(w->env->ops->pread(w->file, w->bytes.data, want, offset, &got));
		w->bytes.bytes = got;
		w->offset = offset;
	}
	*out = kv_slice(w->bytes.data + (offset - w->offset),
			KV_MIN(bytes, w->bytes.bytes - (size_t)(offset - w->offset)));
	return 0;
}

static void window_done(struct window *w)
{
	kv_buf_done(&w->bytes);
}

/* *out_valid false: there is no record here. Else e->key stays until the window moves. */
static int scan_record(struct window *w, kv_fileno number, uint64_t offset,
		       struct kv_vlog_entry *out, bool *out_valid)
{
	struct kv_vlog_record r;
	struct kv_slice s;
	size_t head_bytes;

	*out_valid = false;
	KV_TRY(window_get(w, offset, sizeof(r), &s));
	if (s.bytes < sizeof(r))
		return 0;
	memcpy(&r, s.data, sizeof(r));
	if (!record_is_plausible(&r))
		return 0;
	head_bytes = sizeof(r) + kv_le32_get(r.key_bytes);
	/* The key first: only once its checksum matches is the length of the value believed. */
	KV_TRY(window_get(w, offset, head_bytes, &s));
	if (s.bytes < head_bytes ||
	    !record_sum_matches(&r, kv_slice((const uint8_t *)s.data + sizeof(r),
					     head_bytes - sizeof(r)), number))
		return 0;
	*out = (struct kv_vlog_entry){
		.offset = offset,
		.seqno = kv_le64_get(r.seqno),
		.ptr = record_pointer(&r, number, offset),
	};
	KV_TRY(window_get(w, offset, head_bytes + out->ptr.stored_bytes, &s));
	out->key = kv_slice((const uint8_t *)s.data + sizeof(r), head_bytes - sizeof(r));
	if (s.bytes < head_bytes + out->ptr.stored_bytes ||
	    kv_checksum(kv_slice((const uint8_t *)s.data + head_bytes, out->ptr.stored_bytes),
			0) != out->ptr.value_checksum)
		out->value_error = KV_E_bad_sum;
	*out_valid = true;
	return 0;
}

int kv_vlog_scan(struct kv_store *s, struct kv_env_file *segment, kv_fileno number,
		 kv_vlog_entry_fn *fn, void *arg, uint64_t *out_end)
{
	KV_AUTO(window_done) struct window w = { .env = s->env, .file = segment };
	uint64_t at = sizeof(struct kv_file_header);
	struct kv_vlog_entry e;
	bool valid;

	while (at <= SEGMENT_BYTES_MAX) {
		KV_TRY(scan_record(&w, number, at, &e, &valid));
		if (!valid)
			break;
		KV_TRY(fn(arg, &e));
		at += kv_vptr_record_bytes(&e.ptr);
	}
	*out_end = at;
	return 0;
}
