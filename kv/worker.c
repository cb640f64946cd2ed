/*
 * Who does the work in the background. Two threads: one flushes, seals,
 * deletes and prepares, which is short and what writers may wait for; the
 * other one compacts and collects. With inline_work there are none, and the same
 * steps are done by the caller.
 *
 * work_seq changes whenever there may be something new. A thread that went through
 * all its steps and found nothing sleeps until it has changed.
 */
#include "kv/db.h"

#include <signal.h>

#define RETRY_NS ((uint64_t)1000000000)		/* after a failure that can pass */
#define IDLE_NS ((uint64_t)1000000000)		/* so long without work: leave a mark, look again */
#define QUIET_NS ((uint64_t)2000000000)		/* so long without a write it is quiet */
#define QUIET_FLUSH_NS ((uint64_t)60000000000)	/* between flushes for that reason */

/* --- steps ---------------------------------------------------------------------------------------- */

static bool flush_wanted(struct kv_db *db)
{
	bool wanted;

	kv_mutex_lock(&db->mu);
	wanted = db->imm_count && !db->flush_running;
	kv_mutex_unlock(&db->mu);
	return wanted;
}

/* What can pass is left for the next time; anything else is final. */
static void poison_unless_passes(struct kv_db *db, int err)
{
	if (err && !kv_err_passes(err))
		(void)kv_poison(db, err); /* kept in db->error */
}

/* *out_failed: something failed that is to be tried again. True: did something. */
static bool flush_steps(struct kv_db *db, bool *out_failed)
{
	bool did_seal = false, did_prepare = false, did_flush = false, did_delete;
	int prepare_err, err;

	/*
	 * First, since a writer would have to do it by itself before a flush is over. A failure
	 * shows again, where a writer needs what isn't prepared.
	 */
	prepare_err = kv_live_prepare(db, &did_prepare);
	poison_unless_passes(db, prepare_err);
	if (flush_wanted(db)) {
		err = kv_flush_one(db); /* poisons and reports by itself */
		*out_failed |= err != 0;
		did_flush = !err;
	}
	err = kv_live_segment_seal_one(db, &did_seal);
	*out_failed |= err != 0;
	poison_unless_passes(db, err);
	did_delete = kv_obsolete_delete(db);
	return did_flush || did_seal || (did_prepare && !prepare_err) || did_delete;
}

static void compact_result(struct kv_db *db, int err)
{
	bool report;

	poison_unless_passes(db, err);
	kv_mutex_lock(&db->mu);
	report = kv_err_passes(err) && !db->compact_error;
	db->compact_error = kv_err_passes(err) ? err : 0;
	db->compact_failures += !!err;
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);
	if (report)
		kv_msg(&db->store.msg, KV_MSG_WARN,
		       "%s: cannot compact: %s; it is tried again", db->store.path,
		       kv_err_text(err));
}

/* Has nothing been written for a while? */
static void look_quiet(struct kv_db *db)
{
	uint64_t now = db->store.env->ops->monotonic_ns(db->store.env);
	kv_seqno seqno = atomic_load_explicit(&db->seqno_published, memory_order_acquire);

	if (!db->quiet_since_ns || seqno != db->quiet_seqno) {
		db->quiet_seqno = seqno;
		db->quiet_since_ns = now;
	}
	db->quiet = now - db->quiet_since_ns >= QUIET_NS;
}

static int quiet_flush_locked(struct kv_db *db, bool *out_did) KV_REQUIRES(&db->commit_mu)
{
	uint64_t now = db->store.env->ops->monotonic_ns(db->store.env);
	bool flushing;

	if (db->quiet_flush_ns && now - db->quiet_flush_ns < QUIET_FLUSH_NS)
		return 0;
	kv_mutex_lock(&db->mu);
	flushing = db->imm_count;
	kv_mutex_unlock(&db->mu);
	if (flushing || !kv_memtable_frees_much(db, db->mem))
		return 0;
	db->quiet_flush_ns = now;
	*out_did = true;
	return kv_memtable_switch(db);
}

/*
 * Space that deletes have freed comes back although nothing is written any more: what they
 * hide is garbage only when they have met it in a compaction. The thread that flushes must not come
 * here, either: who holds commit_mu may be waiting for it.
 */
static int quiet_steps(struct kv_db *db, bool *out_did)
{
	int err;

	kv_mutex_lock(&db->commit_mu);
	err = quiet_flush_locked(db, out_did);
	if (!err && !*out_did)
		*out_did = kv_gc_close_segments(db);
	kv_mutex_unlock(&db->commit_mu);
	return err;
}

/* With nothing to do, and nothing that comes with time, the thread sleeps until it is told. */
static void settle(struct kv_db *db, bool did)
{
	kv_mutex_lock(&db->mu);
	db->settled = !did && db->quiet && !db->gc_error;
	kv_mutex_unlock(&db->mu);
}

static bool compact_steps(struct kv_db *db, bool *out_failed)
{
	bool did = false, did_gc = false, did_quiet = false;
	int err;

	if (!db->options.inline_work)
		look_quiet(db);
	err = kv_compact_one(db, &did);
	if (!err)
		err = kv_gc_one(db, &did_gc);
	if (!err && !did && !did_gc && db->quiet)
		err = quiet_steps(db, &did_quiet);
	compact_result(db, err);
	settle(db, err || did || did_gc || did_quiet);
	*out_failed |= err != 0;
	return !err && (did || did_gc || did_quiet);
}

/* --- threads --------------------------------------------------------------------------------------- */

typedef bool steps_fn(struct kv_db *db, bool *out_failed);

/* Sleeps until there may be work; false when the thread has to end. */
static bool wait_for_work(struct kv_db *db, size_t which, uint64_t seen, bool failed)
{
	bool compacts = which != 0, marked = compacts, stop;

	kv_mutex_lock(&db->mu);
	db->idle_seq[which] = seen;
	kv_cond_broadcast(&db->done_cond);
	while (!db->stop && db->work_seq == seen) {
		if (!compacts && db->delete_wait_ns && !atomic_load(&db->poisoned)) {
			if (!kv_cond_wait_for(&db->work_cond, &db->mu,
					      KV_MIN(db->delete_wait_ns, RETRY_NS)))
				break;
		} else if (failed) {
			if (!kv_cond_wait_for(&db->work_cond, &db->mu, RETRY_NS))
				break;
		} else if (compacts && !db->settled) {
			if (!kv_cond_wait_for(&db->work_cond, &db->mu, IDLE_NS))
				break;
		} else if (marked) {
			kv_cond_wait(&db->work_cond, &db->mu);
		} else if (!kv_cond_wait_for(&db->work_cond, &db->mu, IDLE_NS)) {
			kv_mutex_unlock(&db->mu);
			kv_sync_mark(db);
			kv_mutex_lock(&db->mu);
			marked = true;
		}
	}
	stop = db->stop;
	kv_mutex_unlock(&db->mu);
	return !stop;
}

static void work(struct kv_db *db, size_t which, steps_fn *steps)
{
	uint64_t seen;
	bool failed, did;

	do {
		failed = false;
		do {
			kv_mutex_lock(&db->mu);
			seen = db->work_seq;
			did = db->stop;
			kv_mutex_unlock(&db->mu);
			if (did)
				return;
			if (!atomic_load_explicit(&db->poisoned, memory_order_acquire))
				did = steps(db, &failed);
		} while (did && !failed);
	} while (wait_for_work(db, which, seen, failed));
}

static void *flush_thread(void *arg)
{
	work(arg, 0, flush_steps);
	return NULL;
}

static void *compact_thread(void *arg)
{
	work(arg, 1, compact_steps);
	return NULL;
}

int kv_workers_start(struct kv_db *db)
{
	static void *(*const bodies[KV_WORKERS])(void *) = { flush_thread, compact_thread };
	sigset_t all, before;
	int err = 0;

	if (db->options.inline_work || db->options.read_only)
		return 0;
	/* Signals are the program's business, in a thread of the program. */
	sigfillset(&all);
	KV_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	while (db->thread_count < KV_WORKERS && !err) {
		err = pthread_create(&db->threads[db->thread_count], NULL,
				     bodies[db->thread_count], db);
		if (!err)
			db->thread_count++;
	}
	KV_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	if (!err)
		return 0;
	kv_workers_stop(db);
	return -err;
}

void kv_workers_stop(struct kv_db *db)
{
	kv_mutex_lock(&db->mu);
	db->stop = true;
	kv_cond_broadcast(&db->work_cond);
	kv_mutex_unlock(&db->mu);
	while (db->thread_count)
		KV_ASSERT(pthread_join(db->threads[--db->thread_count], NULL) == 0);
}

/* --- telling them ----------------------------------------------------------------------------------- */

void kv_work_want_locked(struct kv_db *db)
{
	db->work_seq++;
	atomic_store(&db->work_wanted, true);
	kv_cond_broadcast(&db->work_cond);
}

void kv_work_want(struct kv_db *db)
{
	kv_mutex_lock(&db->mu);
	kv_work_want_locked(db);
	kv_mutex_unlock(&db->mu);
}

/* Until nothing is left to do. The steps themselves want more work when they did some. */
static void work_inline(struct kv_db *db)
{
	bool failed = false, did = true;

	kv_mutex_lock(&db->inline_mu);
	atomic_store(&db->work_wanted, false);
	while (did && !failed && !atomic_load_explicit(&db->poisoned, memory_order_acquire)) {
		did = flush_steps(db, &failed);
		did |= compact_steps(db, &failed);
	}
	kv_mutex_unlock(&db->inline_mu);
}

void kv_work_schedule(struct kv_db *db)
{
	if (db->options.read_only)
		return;
	if (!db->options.inline_work)
		kv_work_want(db);
	else if (atomic_load(&db->work_wanted))
		work_inline(db);
}

static bool is_idle_locked(struct kv_db *db) KV_REQUIRES(&db->mu)
{
	for (size_t i = 0; i < KV_WORKERS; i++)
		if (db->idle_seq[i] != db->work_seq)
			return false;
	return true;
}

int kv_wait_idle(struct kv_db *db)
{
	int err = 0;

	if (db->options.read_only)
		return 0;
	kv_mutex_lock(&db->mu);
	db->gc_retry_ns = 0;
	kv_mutex_unlock(&db->mu);
	if (db->options.inline_work) {
		kv_work_want(db);
		kv_work_schedule(db);
	}
	kv_mutex_lock(&db->mu);
	if (!db->options.inline_work) {
		kv_work_want_locked(db);
		while (!is_idle_locked(db) && !atomic_load(&db->poisoned))
			kv_cond_wait(&db->done_cond, &db->mu);
	}
	if (atomic_load(&db->poisoned))
		err = KV_E_poisoned;
	else if (db->flush_error)
		err = db->flush_error;
	else
		err = db->compact_error ? db->compact_error : db->gc_error;
	kv_mutex_unlock(&db->mu);
	/* What waits for its time to be deleted is work, too. */
	if (err != KV_E_poisoned)
		(void)kv_obsolete_delete_all(db);
	return err;
}
