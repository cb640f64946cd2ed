/*
 * Moving what is alive out of a few segments.
 *
 * Twice through the claimed tables. First every pointer into a victim is gathered,
 * and pointers to bytes of one record that touch become one piece. Then each piece is copied, once,
 * however many refer to it; so values that were shared stay shared. A whole value
 * is copied as it is stored; what is left of a cut one is compressed anew. The copies lie in the order
 * in which the tables were read, that is by key, table by table. Then every table is written again:
 * the same keys, numbers and tombstones, with the pointers replaced.
 *
 * So a new table takes exactly the place of the old one. On a deeper level its
 * bounds are the same, and it lies in no gap that a compaction could write to, since a
 * compaction that would have to take the old one found it busy. On level 0
 * tables are ordered by seqno_max, which is the same too; no two of them have the same one, since
 * each has the operations of one memtable, or a number of its own from an ingest. (That they are the
 * same is checked, not believed.)
 *
 * CRASH: copies are synced, and the tables and their names, before the edit (K5). The segments that are
 * copied to were registered before (K4). Stop before the edit: tables that nothing names, and segments that
 * nothing refers to; both go. Stop behind it: the victims are unreferenced, and are dropped later.
 */
#include "kv/gc.h"

#include <inttypes.h>
#include <stdlib.h>

#include "kv/checksum.h"
#include "kv/compress.h"

#define WINDOW_BYTES KV_MIB		/* copies are written together */
#define WINDOW_VALUES 256
#define COPY_PERCENT_MAX 90		/* of the victims' size; else it isn't worth it */

/* A failure to write that can't pass is final, here as everywhere (K9). */
static int written(struct kv_gc_run *r, int err)
{
	err = kv_err_space(err);
	return !err || kv_err_passes(err) || err == KV_E_poisoned ? err : kv_poison(r->db, err);
}

/* Damage is told from failures that may pass: there the victim is left alone. */
static int not_read(struct kv_gc_run *r, int err, kv_fileno segment_no)
{
	if (!kv_err_is(err, KV_E_corrupt))
		return err;
	r->damaged = true;
	r->damaged_no = segment_no;
	return err;
}

static bool is_stopped(struct kv_gc_run *r)
{
	kv_mutex_lock(&r->db->mu);
	r->stopped = r->db->stop;
	kv_mutex_unlock(&r->db->mu);
	return r->stopped;
}

static bool is_victim(const struct kv_gc_run *r, kv_fileno segment_no)
{
	for (size_t i = 0; i < r->victim_count; i++)
		if (r->victims[i] == segment_no)
			return true;
	return false;
}

/* --- reading the tables --------------------------------------------------------------------- */

typedef int entry_fn(struct kv_gc_run *r, void *arg, struct kv_slice ikey, struct kv_slice value);

static int fail_table(struct kv_gc_run *r, const struct kv_table *t, const char *what)
{
	return kv_fail(&r->db->store.msg, not_read(r, KV_E_bad_record, 0), "%s/%s: %s",
		       r->db->store.path, kv_filename(KV_FILE_TABLE, t->meta.number).s, what);
}

static int walk(struct kv_gc_run *r, const struct kv_table *t, struct kv_cursor *c, entry_fn *fn,
		void *arg)
{
	uint64_t entries = 0;
	int err;

	for (c->ops->seek_first(c); c->ops->valid(c); c->ops->next(c), entries++)
		KV_TRY(fn(r, arg, c->ops->key(c), c->ops->value(c)));
	err = c->ops->error(c);
	if (err)
		return not_read(r, err, 0);
	/* What a broken cursor left out would be lost. */
	return entries == t->meta.entries ? 0 : fail_table(r, t, "it lacks entries");
}

/* Calls fn for each point entry, then once more for the table's range tombstones if rangedels isn't NULL. */
static int each_entry(struct kv_gc_run *r, const struct kv_table *t, entry_fn *fn, void *arg,
		      int (*rangedels)(void *arg, const struct kv_rangedels *ranges))
{
	struct kv_filecache_entry *pin;
	struct kv_cursor *c;
	struct kv_sst *sst;
	int err = kv_filecache_table(r->db->files, t->meta.number, t->meta.file_bytes, &pin, &sst);

	if (err)
		return not_read(r, err, 0);
	c = kv_sst_cursor(sst, false, true);
	err = c ? walk(r, t, c, fn, arg) : -ENOMEM;
	kv_cursor_free(c);
	if (!err && rangedels && kv_sst_rangedels(sst))
		err = rangedels(arg, kv_sst_rangedels(sst));
	kv_filecache_unpin(r->db->files, pin);
	return err;
}

/* Is it a pointer into a victim? Then *out is that. */
static int pointer_of(struct kv_gc_run *r, struct kv_slice ikey, struct kv_slice value,
		      struct kv_vptr *out, bool *out_is_one)
{
	*out_is_one = false;
	if (kv_ikey_kind(ikey) != KV_KIND_PUT_PTR)
		return 0;
	if (kv_vptr_decode(value, out))
		return kv_fail(&r->db->store.msg, not_read(r, KV_E_bad_record, 0),
			       "a table of %s holds a pointer into the value log that is malformed",
			       r->db->store.path);
	*out_is_one = is_victim(r, out->segment_no);
	return 0;
}

/* --- gathering ------------------------------------------------------------------------------ */

static int gather_entry(struct kv_gc_run *r, void *arg, struct kv_slice ikey,
			struct kv_slice value)
{
	struct kv_vptr p;
	bool is_one;

	(void)arg;
	KV_TRY(pointer_of(r, ikey, value, &p, &is_one));
	if (!is_one)
		return 0;
	if (r->piece_count == r->piece_count_max) {
		size_t max = r->piece_count_max ? 2 * r->piece_count_max : 1024;
		struct kv_gc_piece *pieces = realloc(r->pieces, max * sizeof(*pieces));

		if (!pieces)
			return -ENOMEM;
		r->pieces = pieces;
		r->piece_count_max = max;
	}
	r->pieces[r->piece_count++] = (struct kv_gc_piece){ .from = p, .order = r->refs++ };
	return 0;
}

static int cmp_numbers(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int cmp_pieces(const void *pa, const void *pb)
{
	const struct kv_vptr *a = &((const struct kv_gc_piece *)pa)->from;
	const struct kv_vptr *b = &((const struct kv_gc_piece *)pb)->from;
	int c = cmp_numbers(a->segment_no, b->segment_no);

	if (!c)
		c = cmp_numbers(a->offset, b->offset);
	return c ? c : cmp_numbers(a->part_offset, b->part_offset);
}

static bool is_same_record(const struct kv_vptr *a, const struct kv_vptr *b)
{
	return a->segment_no == b->segment_no && a->offset == b->offset;
}

/* Pointers to one record must agree about it. */
static bool agrees(const struct kv_vptr *a, const struct kv_vptr *b)
{
	return a->value_checksum == b->value_checksum && a->stored_bytes == b->stored_bytes &&
	       a->raw_bytes == b->raw_bytes && a->key_bytes == b->key_bytes &&
	       a->codec == b->codec;
}

/* Parts of one record that overlap or touch become one. */
static int join_pieces(struct kv_gc_run *r)
{
	size_t n = 0;

	if (r->piece_count)
		qsort(r->pieces, r->piece_count, sizeof(*r->pieces), cmp_pieces);
	for (size_t i = 0; i < r->piece_count; i++) {
		struct kv_gc_piece *before = n ? &r->pieces[n - 1] : NULL;
		const struct kv_gc_piece *p = &r->pieces[i];
		uint32_t end = p->from.part_offset + p->from.part_bytes;

		if (!before || !is_same_record(&before->from, &p->from)) {
			r->pieces[n++] = *p;
			continue;
		}
		if (!agrees(&before->from, &p->from))
			return kv_fail(&r->db->store.msg,
				       not_read(r, KV_E_bad_record, p->from.segment_no),
				       "%s/%s: pointers to the value at %" PRIu64 " do not agree",
				       r->db->store.path,
				       kv_filename(KV_FILE_SEGMENT, p->from.segment_no).s,
				       p->from.offset);
		if (p->from.part_offset > before->from.part_offset + before->from.part_bytes) {
			r->pieces[n++] = *p;
			continue;
		}
		before->from.part_bytes =
			KV_MAX(before->from.part_bytes, end - before->from.part_offset);
		before->order = KV_MIN(before->order, p->order);
	}
	r->piece_count = n;
	return 0;
}

static int gather(struct kv_gc_run *r)
{
	for (size_t i = 0; i < r->table_count; i++) {
		if (is_stopped(r))
			return 0;
		KV_TRY(each_entry(r, r->tables[i].table, gather_entry, NULL, NULL));
	}
	return join_pieces(r);
}

/* --- copying -------------------------------------------------------------------------------- */

/* Values that are going to be written together. */
struct window {
	struct kv_buf bytes;		/* keys and values */
	struct kv_segment_put puts[WINDOW_VALUES];
	size_t key_at[WINDOW_VALUES];	/* of each in bytes; its value comes behind it */
	struct kv_gc_piece *pieces[WINDOW_VALUES];
	struct kv_vptr ptrs[WINDOW_VALUES];
	size_t count;
	struct kv_buf raw;		/* scratch */
};

static void window_free(struct window *w)
{
	if (!w)
		return;
	kv_buf_done(&w->bytes);
	kv_buf_done(&w->raw);
	free(w);
}

static uint64_t put_bytes(const struct kv_segment_put *p)
{
	uint64_t bytes = sizeof(struct kv_vlog_record) + p->key.bytes + p->stored.bytes;

	return (bytes + KV_RECORD_ALIGN - 1) / KV_RECORD_ALIGN * KV_RECORD_ALIGN;
}

/*
 * Room for so many bytes, in a segment that only this run writes to: what has survived lies
 * apart from what is new and may soon be overwritten. Syncs of batches pass it over.
 */
static int segment_room(struct kv_gc_run *r, uint64_t bytes)
{
	uint64_t used = r->segment ? kv_segment_bytes(r->segment->writer) : 0;

	if (r->segment && used + bytes > r->db->options.segment_bytes &&
	    used > sizeof(struct kv_file_header)) {
		kv_list_push_back(&r->full, &r->segment->flush_link);
		r->segment = NULL;
	}
	if (!r->segment) {
		KV_TRY(kv_live_segment_new(r->db, &r->segment));
		kv_mutex_lock(&r->db->mu);
		r->segment->apart = true;
		kv_mutex_unlock(&r->db->mu);
	}
	return written(r, kv_segment_reserve(r->segment->writer, bytes));
}

static int window_write(struct kv_gc_run *r, struct window *w)
{
	uint64_t bytes = 0;
	int err;

	for (size_t i = 0; i < w->count; i++) {
		struct kv_segment_put *p = &w->puts[i];

		p->key.data = w->bytes.data + w->key_at[i];
		p->stored.data = w->bytes.data + w->key_at[i] + p->key.bytes;
		p->value_checksum = kv_checksum(p->stored, 0);
		bytes += put_bytes(p);
	}
	if (!bytes)
		return 0;
	r->copied_bytes += bytes;
	r->useless = r->copied_bytes > r->victim_bytes / 100 * COPY_PERCENT_MAX;
	if (r->useless)
		return 0;
	KV_TRY(segment_room(r, bytes));
	err = kv_segment_append(r->segment->writer, w->puts, w->count, w->ptrs);
	if (err)
		return kv_poison(r->db, err); /* the segment can't be sealed any more */
	kv_count(&r->db->counters.vlog_bytes, bytes);
	for (size_t i = 0; i < w->count; i++)
		w->pieces[i]->to = w->ptrs[i];
	w->count = 0;
	kv_buf_reset(&w->bytes);
	return 0;
}

/* Puts the live part in the place of the whole value, which is the end of w->bytes. */
static int cut(struct kv_gc_run *r, struct window *w, const struct kv_vptr *p, size_t value_at,
	       struct kv_segment_put *put)
{
	struct kv_slice stored = kv_slice(w->bytes.data + value_at, p->stored_bytes), part;
	uint8_t *raw;

	kv_buf_reset(&w->raw);
	raw = kv_buf_grow(&w->raw, (size_t)p->raw_bytes + 1);
	if (!raw)
		return -ENOMEM;
	KV_TRY(kv_decompress((enum kv_codec)p->codec, stored, raw, p->raw_bytes));
	part = kv_slice(raw + p->part_offset, p->part_bytes);
	w->bytes.bytes = value_at;
	put->raw_bytes = p->part_bytes;
	put->codec = KV_CODEC_NONE;
	if (!r->db->options.no_compression)
		put->codec = kv_compress(KV_CODEC_LZ4, part, &w->bytes);
	if (put->codec == KV_CODEC_NONE)
		KV_TRY(kv_buf_append_slice(&w->bytes, part));
	put->stored.bytes = w->bytes.bytes - value_at;
	return 0;
}

static int read_value(struct kv_gc_run *r, struct window *w, const struct kv_vptr *p)
{
	struct kv_segment_put *put = &w->puts[w->count];
	size_t at = w->bytes.bytes, key_at = at + sizeof(struct kv_vlog_record);
	struct kv_filecache_entry *pin;
	struct kv_env_file *file;
	kv_seqno seqno;
	int err;

	KV_TRY(kv_filecache_segment(r->db->files, p->segment_no, &pin, &file));
	err = kv_vlog_read_record(&r->db->store, file, p, &w->bytes, &seqno);
	kv_filecache_unpin(r->db->files, pin);
	if (err)
		return err;
	*put = (struct kv_segment_put){
		.key.bytes = p->key_bytes,
		.seqno = seqno,
		.stored.bytes = p->stored_bytes,
		.raw_bytes = p->raw_bytes,
		.codec = (enum kv_codec)p->codec,
	};
	w->key_at[w->count] = key_at;
	if (p->part_bytes < p->raw_bytes)
		return cut(r, w, p, key_at + p->key_bytes, put);
	return 0;
}

static int copy_piece(struct kv_gc_run *r, struct window *w, struct kv_gc_piece *piece)
{
	const struct kv_vptr *p = &piece->from;
	int err = read_value(r, w, p);

	if (err)
		return kv_fail(&r->db->store.msg, not_read(r, err, p->segment_no),
			       "%s/%s: the value of %" PRIu32 " bytes at %" PRIu64
			       " cannot be moved: %s", r->db->store.path,
			       kv_filename(KV_FILE_SEGMENT, p->segment_no).s, p->stored_bytes,
			       p->offset, kv_err_text(err));
	w->pieces[w->count++] = piece;
	if (w->count < WINDOW_VALUES && w->bytes.bytes < WINDOW_BYTES)
		return 0;
	KV_TRY(window_write(r, w));
	(void)is_stopped(r); /* kept in the run */
	return 0;
}

static int cmp_order(const void *pa, const void *pb)
{
	const struct kv_gc_piece *a = *(struct kv_gc_piece *const *)pa;
	const struct kv_gc_piece *b = *(struct kv_gc_piece *const *)pb;

	return cmp_numbers(a->order, b->order);
}

static int copy_ordered(struct kv_gc_run *r, struct kv_gc_piece **ordered)
{
	struct window *w = calloc(1, sizeof(*w));
	int err = w ? 0 : -ENOMEM;

	for (size_t i = 0; i < r->piece_count; i++)
		ordered[i] = &r->pieces[i];
	qsort(ordered, r->piece_count, sizeof(struct kv_gc_piece *), cmp_order);
	for (size_t i = 0; i < r->piece_count && !err && !r->stopped && !r->useless; i++)
		err = copy_piece(r, w, ordered[i]);
	if (!err && !r->stopped && !r->useless)
		err = window_write(r, w);
	window_free(w);
	return err;
}

static int copy(struct kv_gc_run *r)
{
	struct kv_gc_piece **ordered;
	int err;

	if (!r->piece_count)
		return 0;
	ordered = malloc(r->piece_count * sizeof(struct kv_gc_piece *));
	if (!ordered)
		return -ENOMEM;
	err = copy_ordered(r, ordered);
	free(ordered);
	return err;
}

/* --- writing the tables --------------------------------------------------------------------- */

/* The piece that has the bytes; gathered from the same tables, so there is one. */
static const struct kv_gc_piece *find_piece(const struct kv_gc_run *r, const struct kv_vptr *p)
{
	const struct kv_gc_piece key = { .from = *p };
	size_t low = 0, high = r->piece_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (cmp_pieces(&r->pieces[mid], &key) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? &r->pieces[low - 1] : NULL;
}

static int moved_pointer(struct kv_gc_run *r, const struct kv_vptr *p, struct kv_vptr_disk *out)
{
	const struct kv_gc_piece *piece = find_piece(r, p);
	struct kv_vptr to;

	/* The table may have been read differently the second time: nothing is taken for granted. */
	if (!piece || !is_same_record(&piece->from, p) ||
	    p->part_offset + p->part_bytes > piece->from.part_offset + piece->from.part_bytes)
		return kv_fail(&r->db->store.msg, not_read(r, KV_E_bad_record, 0),
			       "%s: a pointer into the value log has changed while it was moved",
			       r->db->store.path);
	to = piece->to;
	to.part_offset = p->part_offset - piece->from.part_offset;
	to.part_bytes = p->part_bytes;
	kv_vptr_encode(&to, out);
	return 0;
}

static int rewrite_entry(struct kv_gc_run *r, void *arg, struct kv_slice ikey,
			 struct kv_slice value)
{
	struct kv_sst_build *build = arg;
	struct kv_vptr_disk disk;
	struct kv_vptr p;
	bool is_one;

	KV_TRY(pointer_of(r, ikey, value, &p, &is_one));
	if (is_one) {
		KV_TRY(moved_pointer(r, &p, &disk));
		value = kv_slice(&disk, sizeof(disk));
	}
	return written(r, kv_sst_build_add(build, ikey, value));
}

static int rewrite_rangedels(void *arg, const struct kv_rangedels *ranges)
{
	for (uint32_t i = 0; i < ranges->count; i++)
		KV_TRY(kv_sst_build_add_rangedel(arg, &ranges->at[i]));
	return 0;
}

/* Does the new table take the place of the old one, and refer to no victim? */
static bool is_replacement(const struct kv_gc_run *r, const struct kv_sst_meta *old,
			   const struct kv_sst_meta *new)
{
	for (size_t i = 0; i < new->ref_count; i++)
		if (is_victim(r, new->refs[i].segment_no))
			return false;
	return old->entries == new->entries && old->deletes == new->deletes &&
	       old->seqno_min == new->seqno_min && old->seqno_max == new->seqno_max &&
	       kv_slice_eq(kv_buf_slice(&old->smallest), kv_buf_slice(&new->smallest)) &&
	       kv_slice_eq(kv_buf_slice(&old->largest), kv_buf_slice(&new->largest));
}

static int finish_table(struct kv_gc_run *r, const struct kv_gc_table *t,
			struct kv_sst_build *build)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta meta = { 0 };
	int err;

	KV_TRY(written(r, kv_sst_build_finish(build, &meta)));
	kv_count(&r->db->counters.compact_write_bytes, meta.file_bytes);
	if (!is_replacement(r, &t->table->meta, &meta))
		err = fail_table(r, t->table, "written anew it is not the same");
	else
		err = kv_edit_add_table(&r->edit, t->level, &meta);
	if (err)
		(void)kv_store_unlink(&r->db->store, KV_FILE_TABLE, meta.number); /* unknown to all */
	else
		err = kv_edit_delete_table(&r->edit, t->level, t->table->meta.number);
	return err;
}

static int rewrite_table(struct kv_gc_run *r, const struct kv_gc_table *t)
{
	struct kv_sst_build *build;
	int err;

	kv_count(&r->db->counters.compact_read_bytes, t->table->meta.file_bytes);
	KV_TRY(written(r, kv_table_build_new(r->db, kv_fileno_take(r->db), t->level, &build)));
	err = each_entry(r, t->table, rewrite_entry, build, rewrite_rangedels);
	if (!err)
		err = finish_table(r, t, build);
	kv_sst_build_free(build);
	return err;
}

static int rewrite(struct kv_gc_run *r)
{
	for (size_t i = 0; i < r->table_count; i++) {
		if (is_stopped(r))
			return 0;
		KV_TRY(rewrite_table(r, &r->tables[i]));
	}
	return 0;
}

/* --- the whole ------------------------------------------------------------------------------ */

static int sync_all(struct kv_gc_run *r)
{
	kv_list_for_each(l, &r->full) {
		struct kv_live_segment *s = kv_container_of(l, struct kv_live_segment, flush_link);
		int err = kv_segment_sync(s->writer);

		if (err)
			return kv_poison(r->db, err);
	}
	if (r->segment) {
		int err = kv_segment_sync(r->segment->writer);

		if (err)
			return kv_poison(r->db, err);
	}
	return written(r, r->db->store.env->ops->dir_sync(r->db->store.dir));
}

/* All pointers into them are in installed tables, or nobody has one. */
static void finish_segments(struct kv_gc_run *r)
{
	while (!kv_list_empty(&r->full)) {
		struct kv_live_segment *s = kv_container_of(r->full.next, struct kv_live_segment,
							    flush_link);

		kv_list_remove(&s->flush_link);
		kv_live_segment_finish(r->db, s);
	}
	kv_live_segment_finish(r->db, r->segment);
	r->segment = NULL;
}

/* They are named nowhere: what can't be removed now is removed by the next opening. */
static void remove_tables(struct kv_gc_run *r)
{
	for (size_t i = 0; i < r->edit.add_count; i++)
		(void)kv_store_unlink(&r->db->store, KV_FILE_TABLE, r->edit.adds[i].meta.number);
}

static int install(struct kv_gc_run *r, bool *out_did)
{
	int err = sync_all(r);

	if (!err)
		err = kv_install(r->db, &r->edit);
	*out_did = !err;
	return err;
}

int kv_gc_move(struct kv_gc_run *r, bool *out_did)
{
	int err;

	*out_did = false;
	kv_list_init(&r->full);
	err = gather(r);
	if (!err && !r->stopped)
		err = copy(r);
	if (!err && !r->stopped && !r->useless)
		err = rewrite(r);
	if (!err && !r->stopped && !r->useless)
		err = install(r, out_did);
	/* With the store poisoned the edit may be durable nevertheless, and the tables must stay. */
	if (!*out_did && err != KV_E_poisoned)
		remove_tables(r);
	finish_segments(r);
	kv_edit_done(&r->edit);
	free(r->pieces);
	r->pieces = NULL;
	return err;
}
