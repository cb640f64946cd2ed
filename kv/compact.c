/*
 * Which compaction is run next in the background: by the picker (compact_pick.c), or for a range tombstone
 * that hides whole tables, which the picker can't know.
 */
#include "kv/compact_impl.h"

#include <stdlib.h>

/* --- choosing ----------------------------------------------------------------------------- */

/* Does the tombstone hide a whole table of a level below, from everybody? */
static bool hides_a_table(const struct kv_job *j, int level, const struct kv_rangedel *r)
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
			    kv_job_stripe(j, m->seqno_min) == kv_job_stripe(j, r->seqno))
				return true;
		}
	}
	return false;
}

static int table_hides(struct kv_job *j, int level, const struct kv_table *t, bool *out_hides)
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
static int find_hiding(struct kv_job *j, int *out_level, const struct kv_table **out)
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

static int choose_hiding(struct kv_job *j)
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
		o = kv_job_pick_options_locked(db);
		err = kv_pick_table(j->version, &o, level, t, &pick);
		if (!err && pick.upper_count) {
			kv_version_unref(j->version);
			j->pick = pick;
			pick = (struct kv_pick){ 0 };
			kv_job_claim_locked(db, j);
		}
	}
	kv_mutex_unlock(&db->mu);
	free(j->snapshots);
	j->snapshots = NULL;
	return err;
}

static int choose(struct kv_job *j)
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
	o = kv_job_pick_options_locked(db);
	o.quiet = db->quiet;
	err = kv_pick_auto(db->version, &o, &j->pick);
	if (!err && j->pick.upper_count)
		kv_job_claim_locked(db, j);
	kv_mutex_unlock(&db->mu);
	if (err || j->pick.upper_count)
		return err;
	return choose_hiding(j);
}

int kv_compact_one(struct kv_db *db, bool *out_did)
{
	KV_AUTO(kv_job_done) struct kv_job j = { .db = db };

	KV_TRY(choose(&j));
	if (!j.pick.upper_count) {
		*out_did = false;
		return 0;
	}
	KV_TRY(kv_job_run(&j));
	*out_did = !j.stopped;
	return 0;
}
