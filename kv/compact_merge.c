/*
 * Merging the chosen tables into new ones of the output level, without what
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

/* --- outputs ------------------------------------------------------------------------------ */

static int output_open(struct kv_job *j)
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
static int output_add_rangedels(struct kv_job *j, struct kv_slice end)
{
	struct kv_slice begin = kv_buf_slice(&j->output_begin);
	struct kv_job_rangedels in = { 0 };
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
			err = kv_job_rangedel_push(&in, r);
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
static int output_finish(struct kv_job *j, struct kv_slice end)
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
static bool output_is_full(struct kv_job *j, struct kv_slice user_key)
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
static bool is_droppable(struct kv_job *j, struct kv_slice ikey, bool same_user_key)
{
	struct kv_slice user_key = kv_ikey_user(ikey);
	kv_seqno seqno = kv_ikey_seqno(ikey);
	size_t stripe = kv_job_stripe(j, seqno);
	bool shadowed = same_user_key && stripe == j->last_stripe;

	j->last_stripe = stripe;
	if (shadowed)
		return true;
	if (j->rangedels &&
	    kv_rangedels_covering(j->rangedels, user_key, kv_job_stripe_end(j, stripe)) > seqno)
		return true;
	/*
	 * Older entries of the key in the inputs lie in the lowest stripe as
	 * well, and go too. Above the output level everything is newer.
	 */
	return kv_ikey_kind(ikey) == KV_KIND_DELETE && !stripe &&
	       !kv_version_deeper_overlaps(j->version, j->pick.output_level,
					   (struct kv_span){ user_key, user_key, false });
}

static int merge_entry(struct kv_job *j, struct kv_slice ikey, struct kv_slice value)
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

static int merge_all(struct kv_job *j, struct kv_cursor *c)
{
	for (c->ops->seek_first(c); c->ops->valid(c) && !j->stopped; c->ops->next(c))
		KV_TRY(merge_entry(j, c->ops->key(c), c->ops->value(c)));
	return c->ops->error(c);
}

int kv_job_merge(struct kv_job *j)
{
	uint64_t expected = 0;
	struct kv_cursor *c;
	int err;

	KV_TRY(kv_job_inputs(j));
	for (size_t i = 0; i < j->read_upper + j->read_lower; i++)
		expected += j->read[i]->meta.entries;
	c = kv_job_cursor(j);
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
