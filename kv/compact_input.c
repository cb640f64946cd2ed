/*
 * What a compaction reads, and which range tombstones go on: judged before anything is read,
 * for all of it at once.
 */
#include "kv/compact_impl.h"

#include <stdlib.h>

/* --- stripes -------------------------------------------------------------------------------- */

/* Index of the oldest snapshot that sees it. */
size_t kv_job_stripe(const struct kv_job *j, kv_seqno seqno)
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

kv_seqno kv_job_stripe_end(const struct kv_job *j, size_t stripe)
{
	return stripe < j->snapshot_count ? j->snapshots[stripe] : KV_SEQNO_MAX;
}

/* --- range tombstones --------------------------------------------------------------------- */

int kv_job_rangedel_push(struct kv_job_rangedels *a, struct kv_rangedel r)
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
static int gather_table(struct kv_job *j, const struct kv_table *t, struct kv_job_rangedels *all,
			struct kv_filecache_entry **out_pin)
{
	const struct kv_rangedels *r;
	struct kv_sst *sst;

	KV_TRY(kv_filecache_table(j->db->files, t->meta.number, t->meta.file_bytes, out_pin, &sst));
	r = kv_sst_rangedels(sst);
	for (uint32_t i = 0; r && i < r->count; i++)
		KV_TRY(kv_job_rangedel_push(all, r->at[i]));
	return 0;
}

static int gather_rangedels(struct kv_job *j)
{
	struct kv_job_rangedels all = { 0 };
	struct kv_filecache_entry **pins = calloc(kv_job_input_count(j), sizeof(struct kv_filecache_entry *));
	int err = pins ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < kv_job_input_count(j); i++)
		if (j->pick.tables[i]->meta.range_deletes)
			err = gather_table(j, j->pick.tables[i], &all, &pins[i]);
	if (!err && all.count)
		err = kv_rangedels_new(all.at, all.count, &j->rangedels);
	for (size_t i = 0; pins && i < kv_job_input_count(j); i++)
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
static int keep_rangedel(struct kv_job_rangedels *kept, struct kv_rangedel r)
{
	for (size_t back = 1; back <= kept->count && back <= 8; back++) {
		struct kv_rangedel *k = &kept->at[kept->count - back];

		if (k->seqno == r.seqno && kv_slice_eq(k->end, r.begin)) {
			k->end = r.end;
			return 0;
		}
	}
	return kv_job_rangedel_push(kept, r);
}

/* Which range tombstones go on: of those with the same bounds, the newest of each stripe. */
static int choose_rangedels(struct kv_job *j)
{
	struct kv_job_rangedels kept = { 0 };
	int err = 0;

	for (uint32_t i = 0; !err && j->rangedels && i < j->rangedels->count; i++) {
		const struct kv_rangedel *r = &j->rangedels->at[i];
		size_t stripe = kv_job_stripe(j, r->seqno);

		if (i && kv_slice_eq(r[-1].begin, r->begin) && kv_job_stripe(j, r[-1].seqno) == stripe)
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
static bool is_hidden(const struct kv_job *j, const struct kv_table *t)
{
	struct kv_span s = kv_table_span(t);
	size_t stripe = kv_job_stripe(j, t->meta.seqno_max);
	struct kv_slice at = s.begin;
	struct kv_rangedel fragment;

	if (kv_job_stripe(j, t->meta.seqno_min) != stripe)
		return false;
	while (kv_rangedels_cover(j->rangedels, at, kv_job_stripe_end(j, stripe), &fragment) >
	       t->meta.seqno_max) {
		int c = kv_slice_cmp(fragment.end, s.end);

		if (c > 0 || (!c && s.end_open))
			return true;
		at = fragment.end;
	}
	return false;
}

static int choose_inputs(struct kv_job *j)
{
	j->read = malloc(kv_job_input_count(j) * sizeof(struct kv_table *));
	if (!j->read)
		return -ENOMEM;
	for (size_t i = 0; i < kv_job_input_count(j); i++) {
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

int kv_job_inputs(struct kv_job *j)
{
	KV_TRY(kv_snapshot_seqnos(j->db, &j->snapshots, &j->snapshot_count));
	KV_TRY(gather_rangedels(j));
	KV_TRY(choose_rangedels(j));
	return choose_inputs(j);
}
