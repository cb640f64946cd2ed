/*
 * Merging the chosen tables, part by part, into new ones of the output level, without what
 * nobody can see any more.
 *
 * What may go is judged by stripes. The seqnos of the snapshots cut time into
 * stripes, and two entries in one stripe can't be told apart by any reader: the older
 * is dropped. A tombstone of the lowest stripe is dropped when no deeper level has
 * anything that it could hide; what it hides in the inputs is dropped with it.
 */
#include "kv/compact_impl.h"

#include <inttypes.h>
#include <stdlib.h>

#include "kv/pool.h"

/* --- outputs ------------------------------------------------------------------------------ */

static int output_open(struct kv_job_part *p)
{
	return kv_table_build_new(p->job->db, kv_fileno_take(p->job->db),
				  p->job->pick.output_level, &p->build);
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
static int output_add_rangedels(struct kv_job_part *p, struct kv_slice end)
{
	struct kv_slice begin = kv_buf_slice(&p->output_begin);
	struct kv_job_rangedels in = { 0 };
	int err = 0;

	while (p->kept_at < p->job->kept_count && p->output_begins &&
	       kv_slice_cmp(p->job->kept[p->kept_at].end, begin) <= 0)
		p->kept_at++;
	for (size_t i = p->kept_at; !err && i < p->job->kept_count; i++) {
		struct kv_rangedel r = p->job->kept[i];

		if (end.data && kv_slice_cmp(r.begin, end) >= 0)
			break;
		if (p->output_begins && kv_slice_cmp(r.begin, begin) < 0)
			r.begin = begin;
		if (end.data && kv_slice_cmp(r.end, end) > 0)
			r.end = end;
		if (kv_slice_cmp(r.begin, r.end) < 0)
			err = kv_job_rangedel_push(&in, r);
	}
	if (!err && in.count && !p->build)
		err = output_open(p);
	if (in.count)
		qsort(in.at, in.count, sizeof(*in.at), rangedel_cmp);
	for (size_t i = 0; !err && i < in.count; i++)
		err = kv_sst_build_add_rangedel(p->build, &in.at[i]);
	free(in.at);
	return err;
}

/* Finishes the current output; the next one begins at the user key `end` (data NULL: none does). */
static int output_finish(struct kv_job_part *p, struct kv_slice end)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta meta = { 0 };

	KV_TRY(output_add_rangedels(p, end));
	if (end.data) {
		KV_TRY(kv_buf_assign(&p->output_begin, end));
		p->output_begins = true;
	}
	p->grandparent_bytes = 0;
	if (!p->build)
		return 0;
	KV_TRY(kv_sst_build_finish(p->build, &meta));
	kv_sst_build_free(p->build);
	p->build = NULL;
	kv_count(&p->job->db->counters.compact_write_bytes, meta.file_bytes);
	KV_TRY(kv_edit_add_table(&p->outputs, p->job->pick.output_level, &meta));
	kv_mutex_lock(&p->job->db->mu);
	if (p->job->db->stop)
		atomic_store(&p->job->stopped, true);
	kv_mutex_unlock(&p->job->db->mu);
	return 0;
}

/*
 * Is the current output to end before this user key? When it is large enough, or would overlap so
 * much of the level below that its own compaction became a large one.
 */
static bool output_is_full(struct kv_job_part *p, struct kv_slice user_key)
{
	uint64_t table_bytes = p->job->db->options.table_bytes;
	const struct kv_level *l;

	if (p->job->pick.output_level + 1 < KV_LEVELS) {
		l = &p->job->version->levels[p->job->pick.output_level + 1];
		while (p->grandparent < l->count &&
		       kv_slice_cmp(kv_table_span(l->tables[p->grandparent]).end, user_key) < 0) {
			if (p->build)
				p->grandparent_bytes +=
					l->tables[p->grandparent]->meta.file_bytes;
			p->grandparent++;
		}
	}
	return p->build && (kv_sst_build_bytes(p->build) >= table_bytes ||
			    p->grandparent_bytes > KV_GRANDPARENT_FACTOR * table_bytes);
}

/* --- merging ------------------------------------------------------------------------------ */

/* Can nobody see the entry, or tell that it is gone? */
static bool is_droppable(struct kv_job_part *p, struct kv_slice ikey, bool same_user_key)
{
	struct kv_slice user_key = kv_ikey_user(ikey);
	kv_seqno seqno = kv_ikey_seqno(ikey);
	size_t stripe = kv_job_stripe(p->job, seqno);
	bool shadowed = same_user_key && stripe == p->last_stripe;

	p->last_stripe = stripe;
	if (shadowed)
		return true;
	if (p->job->rangedels &&
	    kv_rangedels_covering(p->job->rangedels, user_key,
				  kv_job_stripe_end(p->job, stripe)) > seqno)
		return true;
	/*
	 * Older entries of the key in the inputs lie in the lowest stripe as
	 * well, and go too. Above the output level everything is newer.
	 */
	return kv_ikey_kind(ikey) == KV_KIND_DELETE && !stripe &&
	       !kv_version_deeper_overlaps(p->job->version, p->job->pick.output_level,
					   (struct kv_span){ user_key, user_key, false });
}

static int merge_entry(struct kv_job_part *p, struct kv_slice ikey, struct kv_slice value)
{
	struct kv_slice last = kv_buf_slice(&p->last);
	int order = last.bytes && kv_ikey_is_valid(ikey) ? kv_ikey_cmp(last, ikey) : -1;
	bool same;

	if (!order && p->job->rebuilds) {
		p->entries++;
		return 0;
	}
	if (!kv_ikey_is_valid(ikey) || kv_ikey_kind(ikey) == KV_KIND_DELETE_RANGE || order >= 0)
		return kv_fail(&p->job->db->store.msg, KV_E_bad_record,
			       "compaction of level %d: keys are malformed or out of order",
			       p->job->pick.level);
	same = last.bytes && kv_slice_eq(kv_ikey_user(last), kv_ikey_user(ikey));
	p->entries++;
	KV_TRY(kv_buf_assign(&p->last, ikey));
	if (is_droppable(p, ikey, same))
		return 0;
	/* All entries of a user key stay in one table. */
	if (!same && output_is_full(p, kv_ikey_user(ikey)))
		KV_TRY(output_finish(p, kv_ikey_user(ikey)));
	if (!p->build)
		KV_TRY(output_open(p));
	return kv_sst_build_add(p->build, ikey, value);
}

static bool is_stopped(const struct kv_job *j)
{
	return atomic_load_explicit(&j->stopped, memory_order_relaxed);
}

static int merge_entries(struct kv_job_part *p, struct kv_cursor *c)
{
	KV_AUTO(kv_buf_done) struct kv_buf begin = KV_BUF_INIT;

	if (p->begin.data) {
		KV_TRY(kv_ikey_make(&begin, p->begin, KV_SEQNO_MAX, KV_KIND_MAX));
		c->ops->seek(c, kv_buf_slice(&begin));
	} else {
		c->ops->seek_first(c);
	}
	for (; c->ops->valid(c) && !is_stopped(p->job); c->ops->next(c)) {
		struct kv_slice ikey = c->ops->key(c);

		if (p->end.data && kv_ikey_is_valid(ikey) &&
		    kv_slice_cmp(kv_ikey_user(ikey), p->end) >= 0)
			break;
		KV_TRY(merge_entry(p, ikey, c->ops->value(c)));
	}
	KV_TRY(c->ops->error(c));
	return is_stopped(p->job) ? 0 : output_finish(p, p->end);
}

/* The outputs begin where the part does, also with the range tombstones that are cut there. */
static int begin_part(struct kv_job_part *p)
{
	p->output_begins = p->begin.data;
	return p->output_begins ? kv_buf_assign(&p->output_begin, p->begin) : 0;
}

static int merge_part(void *arg, size_t item)
{
	struct kv_job *j = arg;
	struct kv_job_part *p = &j->parts[item];
	struct kv_cursor *c = kv_job_cursor(j);
	int err = c ? begin_part(p) : -ENOMEM;

	if (!err)
		err = merge_entries(p, c);
	kv_cursor_free(c);
	if (err)
		atomic_store(&j->stopped, true); /* the others need not go on */
	return err;
}

/* --- all parts ---------------------------------------------------------------------------- */

/* Whatever a broken cursor left out would be lost for good: better not to compact. */
static int check_entries(const struct kv_job *j)
{
	uint64_t expected = 0, entries = 0;

	for (size_t i = 0; i < j->read_upper + j->read_lower; i++)
		expected += j->read[i]->meta.entries;
	for (size_t i = 0; i < j->part_count; i++)
		entries += j->parts[i].entries;
	if (entries == expected)
		return 0;
	return kv_fail(&j->db->store.msg, KV_E_bad_record, "compaction of level %d: read %" PRIu64
		       " entries, the tables have %" PRIu64, j->pick.level, entries, expected);
}

/* As many threads as others leave over; one always is. */
static size_t take_threads(struct kv_db *db)
{
	size_t n;

	kv_mutex_lock(&db->mu);
	n = db->options.compact_threads > db->compact_threads_taken ?
		    db->options.compact_threads - db->compact_threads_taken : 1;
	db->compact_threads_taken += n;
	kv_mutex_unlock(&db->mu);
	return n;
}

static void give_threads(struct kv_db *db, size_t n)
{
	kv_mutex_lock(&db->mu);
	db->compact_threads_taken -= n;
	kv_mutex_unlock(&db->mu);
}

int kv_job_merge(struct kv_job *j)
{
	size_t threads = take_threads(j->db), used = threads;
	int err = kv_job_inputs(j);

	if (!err)
		err = kv_job_cut(j, threads);
	if (!err) {
		used = j->part_count;
		give_threads(j->db, threads - used);
		err = kv_parallel(j->db->compact_pool, j->part_count, merge_part, j);
	}
	give_threads(j->db, used);
	if (err || is_stopped(j))
		return err;
	return check_entries(j);
}
