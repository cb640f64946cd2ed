/*
 * Durability: one thread syncs for all that wait, and a failure is for ever.
 *
 * CRASH: kv_sync_to() returns only when every journal that holds one of the
 * batches, and every segment that one of them points into, is durable (K2). Journals
 * go from old to new: what a newer one promises, an older one has. Nothing is
 * promised (kv_journal_promise) before all of it is durable, and only as far as
 * the journals reached before the segments were synced: a group that is appended
 * beside may have its chunk in the sync and its values not. Stop anywhere: replay
 * believes pointers up to the promise, and verifies those beyond.
 */
#include "kv/db.h"

/* --- failure --------------------------------------------------------------------------------- */

bool kv_err_passes(int err)
{
	return kv_err_is(err, -ENOSPC) || err == -EDQUOT || err == -ENOMEM;
}

int kv_err_space(int err)
{
	return err == -ENOSPC || err == -EDQUOT ? KV_E_no_space : err;
}

int kv_poison(struct kv_db *db, int err)
{
	bool first;

	KV_ASSERT(err);
	kv_mutex_lock(&db->mu);
	first = !db->error && err != KV_E_poisoned;
	if (first)
		db->error = err;
	atomic_store_explicit(&db->poisoned, true, memory_order_release);
	kv_cond_broadcast(&db->work_cond);
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);

	kv_mutex_lock(&db->sync_mu);
	kv_cond_broadcast(&db->sync_cond);
	kv_mutex_unlock(&db->sync_mu);
	if (first)
		kv_msg(&db->store.msg, KV_MSG_ERROR,
		       "%s: %s; nothing more will be written until the store is opened again",
		       db->store.path, kv_err_text(err));
	return KV_E_poisoned;
}

/* --- syncing --------------------------------------------------------------------------------- */

/* The first segment that has not reached its target, referenced; NULL when there is none. */
static struct kv_live_segment *next_segment(struct kv_db *db)
{
	struct kv_live_segment *found = NULL;

	kv_mutex_lock(&db->mu);
	kv_list_for_each(l, &db->segments) {
		struct kv_live_segment *s = kv_container_of(l, struct kv_live_segment, link);

		if (kv_segment_synced(s->writer) < s->sync_target) {
			atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
			found = s;
			break;
		}
	}
	kv_mutex_unlock(&db->mu);
	return found;
}

/*
 * Targets only grow, and each caller raises them once: so two callers at the
 * same time help each other, and both come to an end beside any number of appends.
 */
static int sync_segments(struct kv_db *db)
{
	struct kv_live_segment *s;

	kv_mutex_lock(&db->mu);
	kv_list_for_each(l, &db->segments) {
		struct kv_live_segment *at = kv_container_of(l, struct kv_live_segment, link);

		if (at->apart)
			continue;
		at->sync_target = KV_MAX(at->sync_target, kv_segment_bytes(at->writer));
	}
	kv_mutex_unlock(&db->mu);
	while ((s = next_segment(db))) {
		int err = kv_segment_sync(s->writer);

		kv_live_segment_unref(s);
		KV_TRY(err);
	}
	return 0;
}

int kv_sync_segments(struct kv_db *db)
{
	int err = sync_segments(db);

	return err ? kv_poison(db, err) : 0;
}

static struct kv_live_journal *next_journal(struct kv_db *db)
{
	struct kv_live_journal *found = NULL;

	kv_mutex_lock(&db->mu);
	kv_list_for_each(l, &db->journals) {
		struct kv_live_journal *j = kv_container_of(l, struct kv_live_journal, link);

		if (kv_journal_synced(j->journal) < j->sync_target) {
			atomic_fetch_add_explicit(&j->refs, 1, memory_order_relaxed);
			found = j;
			break;
		}
	}
	kv_mutex_unlock(&db->mu);
	return found;
}

/* What the leader has appended before is durable and promised on return. One caller at a time. */
static int sync_all(struct kv_db *db)
{
	struct kv_live_journal *j;

	kv_mutex_lock(&db->mu);
	kv_list_for_each(l, &db->journals) {
		struct kv_live_journal *at = kv_container_of(l, struct kv_live_journal, link);

		at->sync_target = kv_journal_bytes(at->journal);
	}
	kv_mutex_unlock(&db->mu);

	KV_TRY(sync_segments(db));
	while ((j = next_journal(db))) {
		int err = kv_journal_sync(j->journal);

		kv_live_journal_unref(db, j);
		kv_count(&db->counters.syncs, 1);
		KV_TRY(err);
	}

	kv_mutex_lock(&db->mu);
	kv_list_for_each(l, &db->journals) {
		struct kv_live_journal *at = kv_container_of(l, struct kv_live_journal, link);

		if (at->sync_target)
			kv_journal_promise(at->journal, at->sync_target);
	}
	kv_mutex_unlock(&db->mu);
	return 0;
}

/* Takes sync_mu and gives it back in between. */
static int be_syncer_locked(struct kv_db *db) KV_REQUIRES(&db->sync_mu)
{
	uint64_t start = kv_now_ns(db);
	kv_seqno target;
	int err;

	db->sync_running = true;
	kv_mutex_unlock(&db->sync_mu);
	/* What is published has been appended. */
	target = atomic_load_explicit(&db->seqno_published, memory_order_acquire);
	err = sync_all(db);
	if (err)
		err = kv_poison(db, err);
	else
		kv_latency_add(db, KV_LATENCY_sync, start);
	kv_mutex_lock(&db->sync_mu);
	db->sync_running = false;
	if (!err)
		db->seqno_synced = KV_MAX(db->seqno_synced, target);
	kv_cond_broadcast(&db->sync_cond);
	return err;
}

int kv_sync_to(struct kv_db *db, kv_seqno seqno)
{
	int err = 0;

	kv_mutex_lock(&db->sync_mu);
	while (db->seqno_synced < seqno && !err) {
		if (atomic_load_explicit(&db->poisoned, memory_order_acquire))
			err = KV_E_poisoned;
		else if (db->sync_running)
			kv_cond_wait(&db->sync_cond, &db->sync_mu);
		else
			err = be_syncer_locked(db);
	}
	kv_mutex_unlock(&db->sync_mu);
	return err;
}

void kv_sync_advance(struct kv_db *db, kv_seqno seqno)
{
	kv_mutex_lock(&db->sync_mu);
	db->seqno_synced = KV_MAX(db->seqno_synced, seqno);
	kv_cond_broadcast(&db->sync_cond);
	kv_mutex_unlock(&db->sync_mu);
}

int kv_sync(struct kv_db *db)
{
	if (db->options.read_only)
		return 0;
	if (atomic_load_explicit(&db->poisoned, memory_order_acquire))
		return KV_E_poisoned;
	return kv_sync_to(db, atomic_load_explicit(&db->seqno_published, memory_order_acquire));
}

/*
 * After a sync nothing in the journal says so until the next chunk comes. A mark
 * says it, so that damage to the last batches is told from a torn tail.
 */
void kv_sync_mark(struct kv_db *db)
{
	struct kv_journal *j;
	uint64_t bytes;

	/* Who holds it may be waiting for a flush, which is our thread's to do; and then it isn't idle. */
	if (!kv_mutex_trylock(&db->commit_mu))
		return;
	j = db->journal->journal;
	bytes = kv_journal_bytes(j);
	if (!atomic_load_explicit(&db->poisoned, memory_order_acquire) &&
	    bytes != db->marked_bytes && kv_journal_synced(j) == bytes &&
	    !kv_journal_reserve(j, 0)) {
		int err = kv_journal_append(j, KV_CHUNK_MARK, db->seqno_last, 0, NULL, 0);

		if (err)
			(void)kv_poison(db, err); /* kept in db->error */
		else
			db->marked_bytes = kv_journal_bytes(j);
	}
	kv_mutex_unlock(&db->commit_mu);
}
