/*
 * Doing a compaction: merging the chosen tables into new ones of the output
 * level, without what nobody can see any more.
 *
 * What may go is judged by stripes. The seqnos of the snapshots cut time into
 * stripes, and two entries in one stripe can't be told apart by any reader: the older
 * is dropped. A tombstone of the lowest stripe is dropped when no deeper level has
 * anything that it could hide; what it hides in the inputs is dropped with it.
 *
 * Nothing here changes what a reader sees; so whenever something goes wrong before the
 * edit, the outputs are removed and everything is as it was.
 */
#include "kv/compact.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "kv/cursor_merge.h"
#include "kv/db.h"


/* --- the inputs of one level, one behind the other ---------------------------------------- */

struct run_cursor {
	struct kv_cursor cursor;
	struct kv_filecache *files;
	struct kv_table *const *tables;
	size_t count, at;
	struct kv_filecache_entry *pin;
	struct kv_cursor *table;	/* over tables[at]; NULL at the end */
	int error;
};

static struct run_cursor *run_of(const struct kv_cursor *c)
{
	return kv_container_of(c, struct run_cursor, cursor);
}

static void run_close_table(struct run_cursor *r)
{
	kv_cursor_free(r->table);
	r->table = NULL;
	if (r->pin)
		kv_filecache_unpin(r->files, r->pin);
	r->pin = NULL;
}

static void run_free(struct kv_cursor *c)
{
	run_close_table(run_of(c));
	free(run_of(c));
}

/* Opens tables until one has an entry. */
static void run_settle(struct run_cursor *r)
{
	struct kv_sst *sst;

	while (!r->error) {
		if (r->table && r->table->ops->valid(r->table))
			return;
		if (r->table) {
			r->error = r->table->ops->error(r->table);
			run_close_table(r);
			r->at++;
			continue;
		}
		if (r->at == r->count)
			return;
		r->error = kv_filecache_table(r->files, r->tables[r->at]->meta.number,
					      r->tables[r->at]->meta.file_bytes, &r->pin, &sst);
		if (r->error)
			return;
		r->table = kv_sst_cursor(sst, false, true);
		if (!r->table) {
			r->error = -ENOMEM;
			return;
		}
		r->table->ops->seek_first(r->table);
	}
}

static void run_seek_first(struct kv_cursor *c)
{
	struct run_cursor *r = run_of(c);

	run_close_table(r);
	r->error = 0;
	r->at = 0;
	run_settle(r);
}

static void run_next(struct kv_cursor *c)
{
	struct run_cursor *r = run_of(c);

	r->table->ops->next(r->table);
	run_settle(r);
}

static bool run_valid(const struct kv_cursor *c)
{
	return !run_of(c)->error && run_of(c)->table;
}

static int run_error(const struct kv_cursor *c)
{
	return run_of(c)->error;
}

static struct kv_slice run_key(const struct kv_cursor *c)
{
	return run_of(c)->table->ops->key(run_of(c)->table);
}

static struct kv_slice run_value(const struct kv_cursor *c)
{
	return run_of(c)->table->ops->value(run_of(c)->table);
}

/* A compaction reads everything, from the front. */
static void run_no_backward(struct kv_cursor *c)
{
	(void)c;
	KV_ASSERT(!"a compaction goes forward only");
}

static void run_no_seek(struct kv_cursor *c, struct kv_slice ikey)
{
	(void)ikey;
	run_no_backward(c);
}

static const struct kv_cursor_ops run_ops = {
	.free = run_free,
	.seek_first = run_seek_first,
	.seek_last = run_no_backward,
	.seek = run_no_seek,
	.seek_prev = run_no_seek,
	.next = run_next,
	.prev = run_no_backward,
	.valid = run_valid,
	.error = run_error,
	.key = run_key,
	.value = run_value,
};

static struct kv_cursor *run_cursor(struct kv_filecache *files, struct kv_table *const *tables,
				    size_t count)
{
	struct run_cursor *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->cursor.ops = &run_ops;
	r->files = files;
	r->tables = tables;
	r->count = count;
	return &r->cursor;
}

/* --- a compaction ------------------------------------------------------------------------- */

struct job {
	struct kv_db *db;
	struct kv_version *version;	/* that the choice was made from */
	struct kv_pick pick;

	kv_seqno *snapshots;		/* ascending, the present last */
	size_t snapshot_count;
	struct kv_rangedels *rangedels;	/* of all inputs */
	struct kv_rangedel *kept;	/* those of them that go to the outputs */
	size_t kept_count, kept_at;	/* kept_at: those before lie before the current output */

	struct kv_table **read;		/* inputs, without those that a tombstone hides as a whole */
	size_t read_upper, read_lower;
	uint64_t entries;		/* seen so far */

	struct kv_buf last;		/* internal key of the entry before */
	size_t last_stripe;

	struct kv_sst_build *build;	/* current output; NULL before its first entry */
	struct kv_buf output_begin;	/* user key that the current output begins at */
	bool output_begins;		/* false: the first one, there is no such key */
	size_t grandparent;		/* index in the level below the output level */
	uint64_t grandparent_bytes;	/* that the current output overlaps */
	struct kv_edit edit;
	bool stopped;			/* given up, since the store is being closed */
};

static void job_done(struct job *j)
{
	struct kv_db *db = j->db;

	kv_mutex_lock(&db->mu);
	for (size_t i = 0; i < j->pick.upper_count + j->pick.lower_count; i++)
		j->pick.tables[i]->busy = false;
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);

	kv_sst_build_free(j->build);
	kv_edit_done(&j->edit);
	kv_buf_done(&j->last);
	kv_buf_done(&j->output_begin);
	free(j->read);
	free(j->kept);
	free(j->snapshots);
	kv_rangedels_unref(j->rangedels);
	kv_pick_done(&j->pick);
	if (j->version)
		kv_version_unref(j->version);
}

/* The tables of j->pick belong to the job from here on. */
static void job_claim_locked(struct kv_db *db, struct job *j) KV_REQUIRES(&db->mu)
{
	j->version = kv_version_ref(db->version);
	for (size_t i = 0; i < j->pick.upper_count + j->pick.lower_count; i++)
		j->pick.tables[i]->busy = true;
}

static size_t input_count(const struct job *j)
{
	return j->pick.upper_count + j->pick.lower_count;
}

static int input_level(const struct job *j, size_t i)
{
	return i < j->pick.upper_count ? j->pick.level : j->pick.output_level;
}

/* Index of the oldest snapshot that sees it. */
static size_t stripe_of(const struct job *j, kv_seqno seqno)
{
	size_t first = 0, end = j->snapshot_count;

	while (first < end) {
		size_t mid = first + (end - first) / 2;

		if (j->snapshots[mid] < seqno)
			first = mid + 1;
		else
			end = mid;
	}
	return first;
}

static kv_seqno stripe_end(const struct job *j, size_t stripe)
{
	return stripe < j->snapshot_count ? j->snapshots[stripe] : KV_SEQNO_MAX;
}

/* --- range tombstones --------------------------------------------------------------------- */

struct rangedel_array {
	struct kv_rangedel *at;
	size_t count, count_max;
};

static int rangedel_push(struct rangedel_array *a, struct kv_rangedel r)
{
	if (a->count == a->count_max) {
		size_t max = a->count_max ? 2 * a->count_max : 16;
		struct kv_rangedel *at = realloc(a->at, max * sizeof(*at));

		if (!at)
			return -ENOMEM;
		a->at = at;
		a->count_max = max;
	}
	a->at[a->count++] = r;
	return 0;
}

/* Gathers those of one table; the pin keeps their bytes until all are copied. */
static int gather_table(struct job *j, const struct kv_table *t, struct rangedel_array *all,
			struct kv_filecache_entry **out_pin)
{
	const struct kv_rangedels *r;
	struct kv_sst *sst;

	KV_TRY(kv_filecache_table(j->db->files, t->meta.number, t->meta.file_bytes, out_pin, &sst));
	r = kv_sst_rangedels(sst);
	for (uint32_t i = 0; r && i < r->count; i++)
		KV_TRY(rangedel_push(all, r->at[i]));
	return 0;
}

static int gather_rangedels(struct job *j)
{
	struct rangedel_array all = { 0 };
	struct kv_filecache_entry **pins = calloc(input_count(j), sizeof(struct kv_filecache_entry *));
	int err = pins ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < input_count(j); i++)
		if (j->pick.tables[i]->meta.range_deletes)
			err = gather_table(j, j->pick.tables[i], &all, &pins[i]);
	if (!err && all.count)
		err = kv_rangedels_new(all.at, all.count, &j->rangedels);
	for (size_t i = 0; pins && i < input_count(j); i++)
		if (pins[i])
			kv_filecache_unpin(j->db->files, pins[i]);
	free(pins);
	free(all.at);
	return err;
}

/*
 * The next fragment, joined with the one it was cut from: tombstones are cut
 * wherever tables and other tombstones end, and the pieces must not multiply.
 */
static int keep_rangedel(struct rangedel_array *kept, struct kv_rangedel r)
{
	for (size_t back = 1; back <= kept->count && back <= 8; back++) {
		struct kv_rangedel *k = &kept->at[kept->count - back];

		if (k->seqno == r.seqno && kv_slice_eq(k->end, r.begin)) {
			k->end = r.end;
			return 0;
		}
	}
	return rangedel_push(kept, r);
}

/* Which range tombstones go on: of those with the same bounds, the newest of each stripe. */
static int choose_rangedels(struct job *j)
{
	struct rangedel_array kept = { 0 };
	int err = 0;

	for (uint32_t i = 0; !err && j->rangedels && i < j->rangedels->count; i++) {
		const struct kv_rangedel *r = &j->rangedels->at[i];
		size_t stripe = stripe_of(j, r->seqno);

		if (i && kv_slice_eq(r[-1].begin, r->begin) && stripe_of(j, r[-1].seqno) == stripe)
			continue;
		if (!stripe && !kv_version_deeper_overlaps(
				       j->version, j->pick.output_level,
				       (struct kv_span){ r->begin, r->end, true }))
			continue;
		err = keep_rangedel(&kept, *r);
	}
	j->kept = kept.at;
	j->kept_count = kept.count;
	return err;
}

/*
 * Is everything in the table hidden by range tombstones, for everybody? Then it need not be
 * read. Only tombstones of the inputs count: what is in a table already, and durable.
 */
static bool is_hidden(const struct job *j, const struct kv_table *t)
{
	struct kv_span s = kv_table_span(t);
	size_t stripe = stripe_of(j, t->meta.seqno_max);
	struct kv_slice at = s.begin;
	struct kv_rangedel fragment;

	if (stripe_of(j, t->meta.seqno_min) != stripe)
		return false;
	while (kv_rangedels_cover(j->rangedels, at, stripe_end(j, stripe), &fragment) >
	       t->meta.seqno_max) {
		int c = kv_slice_cmp(fragment.end, s.end);

		if (c > 0 || (!c && s.end_open))
			return true;
		at = fragment.end;
	}
	return false;
}

static int choose_inputs(struct job *j)
{
	j->read = malloc(input_count(j) * sizeof(struct kv_table *));
	if (!j->read)
		return -ENOMEM;
	for (size_t i = 0; i < input_count(j); i++) {
		struct kv_table *t = j->pick.tables[i];

		if (j->rangedels && is_hidden(j, t))
			continue;
		j->read[j->read_upper + j->read_lower] = t;
		if (i < j->pick.upper_count)
			j->read_upper++;
		else
			j->read_lower++;
		kv_count(&j->db->counters.compact_read_bytes, t->meta.file_bytes);
	}
	return 0;
}

/* --- outputs ------------------------------------------------------------------------------ */

static int output_open(struct job *j)
{
	return kv_table_build_new(j->db, kv_fileno_take(j->db), j->pick.output_level, &j->build);
}

static int rangedel_cmp(const void *pa, const void *pb)
{
	const struct kv_rangedel *a = pa, *b = pb;
	int c = kv_slice_cmp(a->begin, b->begin);

	return c ? c : (a->seqno < b->seqno) - (a->seqno > b->seqno);
}

/*
 * The part of the kept range tombstones in [output_begin, end) goes into the current output
 * (end.data NULL: all the rest). Clipping them keeps the tables of a level apart: each table ends
 * before the key with which the next one begins.
 */
static int output_add_rangedels(struct job *j, struct kv_slice end)
{
	struct kv_slice begin = kv_buf_slice(&j->output_begin);
	struct rangedel_array in = { 0 };
	int err = 0;

	while (j->kept_at < j->kept_count && j->output_begins &&
	       kv_slice_cmp(j->kept[j->kept_at].end, begin) <= 0)
		j->kept_at++;
	for (size_t i = j->kept_at; !err && i < j->kept_count; i++) {
		struct kv_rangedel r = j->kept[i];

		if (end.data && kv_slice_cmp(r.begin, end) >= 0)
			break;
		if (j->output_begins && kv_slice_cmp(r.begin, begin) < 0)
			r.begin = begin;
		if (end.data && kv_slice_cmp(r.end, end) > 0)
			r.end = end;
		if (kv_slice_cmp(r.begin, r.end) < 0)
			err = rangedel_push(&in, r);
	}
	if (!err && in.count && !j->build)
		err = output_open(j);
	if (in.count)
		qsort(in.at, in.count, sizeof(*in.at), rangedel_cmp);
	for (size_t i = 0; !err && i < in.count; i++)
		err = kv_sst_build_add_rangedel(j->build, &in.at[i]);
	free(in.at);
	return err;
}

/* Finishes the current output; the next one begins at the user key `end` (data NULL: none does). */
static int output_finish(struct job *j, struct kv_slice end)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta meta = { 0 };

	KV_TRY(output_add_rangedels(j, end));
	if (end.data) {
		KV_TRY(kv_buf_assign(&j->output_begin, end));
		j->output_begins = true;
	}
	j->grandparent_bytes = 0;
	if (!j->build)
		return 0;
	KV_TRY(kv_sst_build_finish(j->build, &meta));
	kv_sst_build_free(j->build);
	j->build = NULL;
	kv_count(&j->db->counters.compact_write_bytes, meta.file_bytes);
	KV_TRY(kv_edit_add_table(&j->edit, j->pick.output_level, &meta));
	kv_mutex_lock(&j->db->mu);
	j->stopped = j->db->stop;
	kv_mutex_unlock(&j->db->mu);
	return 0;
}

/*
 * Is the current output to end before this user key? When it is large enough, or would overlap so
 * much of the level below that its own compaction became a large one.
 */
static bool output_is_full(struct job *j, struct kv_slice user_key)
{
	uint64_t table_bytes = j->db->options.table_bytes;
	const struct kv_level *l;

	if (j->pick.output_level + 1 < KV_LEVELS) {
		l = &j->version->levels[j->pick.output_level + 1];
		while (j->grandparent < l->count &&
		       kv_slice_cmp(kv_table_span(l->tables[j->grandparent]).end, user_key) < 0) {
			if (j->build)
				j->grandparent_bytes +=
					l->tables[j->grandparent]->meta.file_bytes;
			j->grandparent++;
		}
	}
	return j->build && (kv_sst_build_bytes(j->build) >= table_bytes ||
			    j->grandparent_bytes > KV_GRANDPARENT_FACTOR * table_bytes);
}

/* --- merging ------------------------------------------------------------------------------ */

/* Can nobody see the entry, or tell that it is gone? */
static bool is_droppable(struct job *j, struct kv_slice ikey, bool same_user_key)
{
	struct kv_slice user_key = kv_ikey_user(ikey);
	kv_seqno seqno = kv_ikey_seqno(ikey);
	size_t stripe = stripe_of(j, seqno);
	bool shadowed = same_user_key && stripe == j->last_stripe;

	j->last_stripe = stripe;
	if (shadowed)
		return true;
	if (j->rangedels &&
	    kv_rangedels_covering(j->rangedels, user_key, stripe_end(j, stripe)) > seqno)
		return true;
	/*
	 * Older entries of the key in the inputs lie in the lowest stripe as
	 * well, and go too. Above the output level everything is newer.
	 */
	return kv_ikey_kind(ikey) == KV_KIND_DELETE && !stripe &&
	       !kv_version_deeper_overlaps(j->version, j->pick.output_level,
					   (struct kv_span){ user_key, user_key, false });
}

static int merge_entry(struct job *j, struct kv_slice ikey, struct kv_slice value)
{
	struct kv_slice last = kv_buf_slice(&j->last);
	bool same;

	if (!kv_ikey_is_valid(ikey) || kv_ikey_kind(ikey) == KV_KIND_DELETE_RANGE ||
	    (last.bytes && kv_ikey_cmp(last, ikey) >= 0))
		return kv_fail(&j->db->store.msg, KV_E_bad_record,
			       "compaction of level %d: keys are malformed or out of order",
			       j->pick.level);
	same = last.bytes && kv_slice_eq(kv_ikey_user(last), kv_ikey_user(ikey));
	j->entries++;
	KV_TRY(kv_buf_assign(&j->last, ikey));
	if (is_droppable(j, ikey, same))
		return 0;
	/* All entries of a user key stay in one table. */
	if (!same && output_is_full(j, kv_ikey_user(ikey)))
		KV_TRY(output_finish(j, kv_ikey_user(ikey)));
	if (!j->build)
		KV_TRY(output_open(j));
	return kv_sst_build_add(j->build, ikey, value);
}

static int merge_all(struct job *j, struct kv_cursor *c)
{
	for (c->ops->seek_first(c); c->ops->valid(c) && !j->stopped; c->ops->next(c))
		KV_TRY(merge_entry(j, c->ops->key(c), c->ops->value(c)));
	return c->ops->error(c);
}

/* Sources newest first: tables of level 0 one by one; those of another level in a row. */
static struct kv_cursor *inputs_cursor(struct job *j)
{
	size_t n = 0, run = j->pick.level ? KV_MAX(j->read_upper, (size_t)1) : 1;
	struct kv_merge_source *sources;
	struct kv_cursor *c = NULL;
	bool whole = true;

	sources = calloc(j->read_upper + 2, sizeof(*sources));
	if (!sources)
		return NULL;
	for (size_t i = 0; i < j->read_upper; i += run) {
		sources[n].cursor = run_cursor(j->db->files, j->read + i, run);
		whole = whole && sources[n++].cursor;
	}
	if (j->read_lower) {
		sources[n].cursor = run_cursor(j->db->files, j->read + j->read_upper, j->read_lower);
		whole = whole && sources[n++].cursor;
	}
	if (whole)
		c = kv_merge_cursor(sources, n, 0);
	for (size_t i = 0; !whole && i < n; i++)
		kv_cursor_free(sources[i].cursor);
	free(sources);
	return c;
}

static int merge(struct job *j)
{
	uint64_t expected = 0;
	struct kv_cursor *c;
	int err;

	KV_TRY(kv_snapshot_seqnos(j->db, &j->snapshots, &j->snapshot_count));
	KV_TRY(gather_rangedels(j));
	KV_TRY(choose_rangedels(j));
	KV_TRY(choose_inputs(j));
	for (size_t i = 0; i < j->read_upper + j->read_lower; i++)
		expected += j->read[i]->meta.entries;
	c = inputs_cursor(j);
	if (!c)
		return -ENOMEM;
	err = merge_all(j, c);
	kv_cursor_free(c);
	if (err || j->stopped)
		return err;
	/* Whatever a broken cursor left out would be lost for good: better not to compact. */
	if (j->entries != expected)
		return kv_fail(&j->db->store.msg, KV_E_bad_record,
			       "compaction of level %d: read %" PRIu64 " entries, the tables have %"
			       PRIu64, j->pick.level, j->entries, expected);
	return output_finish(j, (struct kv_slice){ NULL, 0 });
}

/* --- telling ------------------------------------------------------------------------------ */

#define NUMBERS_BYTES 320		/* of a line of the event log */

/* Appends ",number"; what does not fit is left out. */
static void put_number(char *text, size_t *at, kv_fileno number)
{
	int n = snprintf(text + *at, NUMBERS_BYTES - *at, "%s%" PRIu64, *at ? "," : "", number);

	if (n > 0 && (size_t)n < NUMBERS_BYTES - *at)
		*at += (size_t)n;
	else
		text[*at] = 0;
}

static void log_done(const struct job *j, uint64_t start_ns)
{
	char inputs[NUMBERS_BYTES] = "", outputs[NUMBERS_BYTES] = "";
	uint64_t in_bytes = 0, out_bytes = 0;
	size_t in_at = 0, out_at = 0;

	for (size_t i = 0; i < input_count(j); i++) {
		put_number(inputs, &in_at, j->pick.tables[i]->meta.number);
		in_bytes += j->pick.tables[i]->meta.file_bytes;
	}
	for (size_t i = 0; i < j->edit.add_count; i++) {
		put_number(outputs, &out_at, j->edit.adds[i].meta.number);
		out_bytes += j->edit.adds[i].meta.file_bytes;
	}
	kv_event(j->db->log, j->pick.move ? "move" : "compact",
		 "level=%d output_level=%d input_tables=%zu+%zu input_bytes=%" PRIu64
		 " output_tables=%zu output_bytes=%" PRIu64 " us=%" PRIu64 " inputs=%s outputs=%s",
		 j->pick.level, j->pick.output_level, j->pick.upper_count, j->pick.lower_count,
		 in_bytes, j->edit.add_count, out_bytes, (kv_now_ns(j->db) - start_ns) / 1000,
		 inputs, outputs);
}

/* --- installing --------------------------------------------------------------------------- */

/* They are named nowhere: what can't be removed now is removed by the next opening. */
static void remove_outputs(struct job *j)
{
	for (size_t i = 0; i < j->edit.add_count; i++)
		(void)kv_store_unlink(&j->db->store, KV_FILE_TABLE, j->edit.adds[i].meta.number);
}

/* Makes the outputs' names durable, and completes the edit. */
static int job_finish(struct job *j)
{
	for (size_t i = 0; i < input_count(j); i++)
		KV_TRY(kv_edit_delete_table(&j->edit, input_level(j, i),
					    j->pick.tables[i]->meta.number));
	if (j->pick.move)
		return kv_edit_add_table(&j->edit, j->pick.output_level,
					 &j->pick.tables[0]->meta);
	/*
	 * CRASH: the outputs were synced when they were finished, and so are their names now;
	 * what they refer to in segments was durable before the inputs were. Stop before the edit:
	 * the outputs are unknown and removed. Stop behind it: the inputs are.
	 */
	return j->edit.add_count ? j->db->store.env->ops->dir_sync(j->db->store.dir) : 0;
}

/* The next compaction of the level begins behind this one; or in front, if memory is short. */
static void advance_pointer(struct job *j)
{
	struct kv_span s = kv_table_span(j->pick.tables[j->pick.upper_count - 1]);
	struct kv_buf *pointer = &j->db->compact_pointer[j->pick.level];

	kv_mutex_lock(&j->db->mu);
	if (kv_buf_assign(pointer, s.begin))
		kv_buf_reset(pointer);
	kv_mutex_unlock(&j->db->mu);
}

static int job_run(struct job *j)
{
	struct kv_db *db = j->db;
	uint64_t start = kv_now_ns(db);
	bool harmless = true;
	int err = 0;

	if (!j->pick.move)
		err = merge(j);
	if (!err && !j->stopped)
		err = job_finish(j);
	if (!err && !j->stopped) {
		err = kv_install(db, &j->edit);
		/* Else the edit may be durable nevertheless, and the outputs must stay. */
		harmless = kv_err_passes(err);
	}
	if (err || j->stopped) {
		if (harmless && !j->pick.move)
			remove_outputs(j);
		return kv_err_space(err);
	}
	advance_pointer(j);
	kv_count(&db->counters.compactions, 1);
	if (!j->pick.move)
		kv_latency_add(db, KV_LATENCY_compact, start);
	if (db->log)
		log_done(j, start);
	kv_msg(&db->store.msg, KV_MSG_INFO,
	       "%s %zu tables of level %d with %zu of level %d: %zu tables",
	       j->pick.move ? "moved" : "compacted", j->pick.upper_count, j->pick.level,
	       j->pick.lower_count, j->pick.output_level, j->edit.add_count);
	return 0;
}

/* --- choosing ----------------------------------------------------------------------------- */

static struct kv_pick_options pick_options_locked(struct kv_db *db) KV_REQUIRES(&db->mu)
{
	struct kv_pick_options o = {
		.level_base_bytes = db->options.level_base_bytes,
		.table_bytes = db->options.table_bytes,
		.oldest_snapshot = kv_snapshot_oldest_locked(db),
	};

	for (int i = 0; i < KV_LEVELS; i++)
		if (db->compact_pointer[i].bytes)
			o.pointers[i] = kv_buf_slice(&db->compact_pointer[i]);
	return o;
}

/* Does the tombstone hide a whole table of a level below, from everybody? */
static bool hides_a_table(const struct job *j, int level, const struct kv_rangedel *r)
{
	struct kv_span s = { r->begin, r->end, true };

	for (int i = level + 1; i < KV_LEVELS; i++) {
		const struct kv_level *l = &j->version->levels[i];
		size_t first, n = kv_level_span(l, s, &first);

		for (size_t k = first; k < first + n; k++) {
			const struct kv_sst_meta *m = &l->tables[k]->meta;
			struct kv_span t = kv_table_span(l->tables[k]);
			int c = kv_slice_cmp(t.end, s.end);

			if (kv_slice_cmp(s.begin, t.begin) <= 0 && (c < 0 || (!c && t.end_open)) &&
			    m->seqno_max < r->seqno &&
			    stripe_of(j, m->seqno_min) == stripe_of(j, r->seqno))
				return true;
		}
	}
	return false;
}

static int table_hides(struct job *j, int level, const struct kv_table *t, bool *out_hides)
{
	struct kv_filecache_entry *pin;
	const struct kv_rangedels *r;
	struct kv_sst *sst;

	KV_TRY(kv_filecache_table(j->db->files, t->meta.number, t->meta.file_bytes, &pin, &sst));
	r = kv_sst_rangedels(sst);
	*out_hides = false;
	for (uint32_t i = 0; r && i < r->count && !*out_hides; i++)
		*out_hides = hides_a_table(j, level, &r->at[i]);
	kv_filecache_unpin(j->db->files, pin);
	return 0;
}

/*
 * A range tombstone that hides whole tables below (a large file was deleted): it goes
 * down although no level is too large, since that frees much and costs little, hidden
 * tables are not even read. Looks at the tables, so it holds no lock. *out NULL: none.
 */
static int find_hiding(struct job *j, int *out_level, const struct kv_table **out)
{
	bool hides;

	*out = NULL;
	for (int level = 0; level + 1 < KV_LEVELS; level++) {
		const struct kv_level *l = &j->version->levels[level];

		for (size_t i = 0; i < l->count; i++) {
			if (!l->tables[i]->meta.range_deletes)
				continue;
			KV_TRY(table_hides(j, level, l->tables[i], &hides));
			if (!hides)
				continue;
			*out_level = level;
			*out = l->tables[i];
			return 0;
		}
	}
	return 0;
}

static int choose_hiding(struct job *j)
{
	KV_AUTO(kv_pick_done) struct kv_pick pick = { 0 };
	struct kv_db *db = j->db;
	struct kv_pick_options o;
	const struct kv_table *t;
	int level, err = 0;

	kv_mutex_lock(&db->mu);
	j->version = kv_version_ref(db->version);
	kv_mutex_unlock(&db->mu);
	KV_TRY(kv_snapshot_seqnos(db, &j->snapshots, &j->snapshot_count));
	KV_TRY(find_hiding(j, &level, &t));

	kv_mutex_lock(&db->mu);
	/* Whoever installs another version looks again when it is done. */
	if (t && db->version == j->version && !db->placing) {
		o = pick_options_locked(db);
		err = kv_pick_table(j->version, &o, level, t, &pick);
		if (!err && pick.upper_count) {
			kv_version_unref(j->version);
			j->pick = pick;
			pick = (struct kv_pick){ 0 };
			job_claim_locked(db, j);
		}
	}
	kv_mutex_unlock(&db->mu);
	free(j->snapshots);
	j->snapshots = NULL;
	return err;
}

static int choose(struct job *j)
{
	struct kv_db *db = j->db;
	struct kv_pick_options o;
	int err;

	kv_mutex_lock(&db->mu);
	/* Who has got its place by then says that there is work. */
	if (db->placing) {
		kv_mutex_unlock(&db->mu);
		return 0;
	}
	o = pick_options_locked(db);
	o.quiet = db->quiet;
	err = kv_pick_auto(db->version, &o, &j->pick);
	if (!err && j->pick.upper_count)
		job_claim_locked(db, j);
	kv_mutex_unlock(&db->mu);
	if (err || j->pick.upper_count)
		return err;
	return choose_hiding(j);
}

int kv_compact_one(struct kv_db *db, bool *out_did)
{
	KV_AUTO(job_done) struct job j = { .db = db };

	KV_TRY(choose(&j));
	if (!j.pick.upper_count) {
		*out_did = false;
		return 0;
	}
	KV_TRY(job_run(&j));
	*out_did = !j.stopped;
	return 0;
}

/* --- by hand ------------------------------------------------------------------------------ */

/* The deepest level that has anything in the range; -1: none has. */
static int bottom_level(const struct kv_version *v, struct kv_slice begin, struct kv_slice end)
{
	for (int i = KV_LEVELS - 1; i >= 0; i--)
		if (kv_level_overlaps(&v->levels[i], i, begin, end))
			return i;
	return -1;
}

/*
 * One step of a level: chooses, waits for those that are at work on the same tables, and
 * merges. *out_more: there may be more of the level.
 */
static int compact_step(struct kv_db *db, int level, struct kv_slice begin, struct kv_slice end,
			kv_fileno level_max, kv_fileno bottom_max, bool *out_more)
{
	KV_AUTO(job_done) struct job j = { .db = db };
	bool busy = true;
	int err = 0;

	kv_mutex_lock(&db->mu);
	while (!err && busy) {
		struct kv_pick_options o = pick_options_locked(db);
		int bottom = bottom_level(db->version, begin, end);
		bool in_place = level == KV_LEVELS - 1 || (level && level == bottom);

		busy = db->placing;
		if (db->error)
			err = KV_E_poisoned;
		else if (!busy && level <= bottom)
			err = kv_pick_range(db->version, &o, level, in_place ? level : level + 1,
					    begin, end, in_place ? bottom_max : level_max,
					    &j.pick, &busy);
		if (!err && busy)
			kv_cond_wait(&db->done_cond, &db->mu);
	}
	if (!err && j.pick.upper_count)
		job_claim_locked(db, &j);
	kv_mutex_unlock(&db->mu);

	*out_more = !err && j.pick.upper_count;
	if (!*out_more)
		return err;
	return job_run(&j);
}

static kv_fileno next_fileno(struct kv_db *db)
{
	kv_fileno n;

	kv_mutex_lock(&db->mu);
	n = db->state.next_fileno;
	kv_mutex_unlock(&db->mu);
	return n;
}

/*
 * Level by level; tables on the deepest one that weren't written here are written anew in
 * place. Tables that others make meanwhile have larger numbers and are left alone, so
 * this ends, whatever the load.
 */
static int compact_levels(struct kv_db *db, struct kv_slice begin, struct kv_slice end)
{
	kv_fileno bottom_max = next_fileno(db);

	for (int level = 0; level < KV_LEVELS; level++) {
		kv_fileno level_max = next_fileno(db);
		bool more = true;

		while (more)
			KV_TRY(compact_step(db, level, begin, end, level_max, bottom_max, &more));
	}
	return 0;
}

/*
 * A collection writes tables anew, with larger numbers: they would be left alone. So one that is
 * running is waited for, and none begins.
 */
static void by_hand_begin(struct kv_db *db)
{
	kv_mutex_lock(&db->mu);
	db->compacting_by_hand++;
	while (db->gc_running)
		kv_cond_wait(&db->done_cond, &db->mu);
	kv_mutex_unlock(&db->mu);
}

static void by_hand_end(struct kv_db *db)
{
	kv_mutex_lock(&db->mu);
	db->compacting_by_hand--;
	/* There may be segments to collect now, or, after a failure, tables that were busy. */
	kv_work_want_locked(db);
	kv_mutex_unlock(&db->mu);
	kv_work_schedule(db);
}

int kv_compact(struct kv_db *db, struct kv_slice begin, struct kv_slice end)
{
	int err;

	if (db->options.read_only)
		return KV_E_read_only;
	KV_TRY(kv_flush(db));
	if (begin.data && end.data && kv_slice_cmp(begin, end) > 0)
		return 0;
	by_hand_begin(db);
	err = compact_levels(db, begin, end);
	by_hand_end(db);
	if (!err && !begin.data && !end.data) {
		kv_mutex_lock(&db->mu);
		db->gc_asked = true;
		kv_mutex_unlock(&db->mu);
		kv_work_schedule(db);
	}
	return err;
}
