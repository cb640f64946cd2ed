/*
 * Compaction by hand: kv_compact().
 */
#include "kv/compact_impl.h"

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
	KV_AUTO(kv_job_done) struct kv_job j = { .db = db };
	bool busy = true;
	int err = 0;

	kv_mutex_lock(&db->mu);
	while (!err && busy) {
		struct kv_pick_options o = kv_job_pick_options_locked(db);
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
		kv_job_claim_locked(db, &j);
	kv_mutex_unlock(&db->mu);

	*out_more = !err && j.pick.upper_count;
	if (!*out_more)
		return err;
	return kv_job_run(&j);
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
