/*
 * Writers are slowed down, and at last wait, while flush and compaction lag behind.
 *
 * The delay per byte of memtable grows with the debt, from nothing:
 *	flush		when all immutable memtables wait to be flushed: with the
 *			part of the next one that is filled, to twice the time that a
 *			flush takes per byte. So writers settle at the pace of flushes,
 *			with half a memtable of room, and do not stop
 *	level 0		with the square of how far it has grown from the slow mark
 *			to the limit, to 1 MiB/s. At the limit they wait
 * Nobody is slowed down while there is no debt. Batches that only delete never are: they
 * free space, and a full disk may be what holds the others up. Collection does
 * not come here.
 */
#include "kv/write.h"

#include <inttypes.h>

#define DELAY_NS_PER_KIB_MAX 1000000	/* of level 0 */
#define FLUSH_DELAY_PART 2
#define DELAY_NS_STEP 1000000		/* times too short to sleep are run up first */
#define OP_BYTES 64			/* what an operation costs beside its key and value */

static uint64_t memtable_cost(struct kv_db *db, const struct kv_batch *b)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < b->count; i++) {
		const struct kv_batch_op *op = &b->ops[i];

		bytes += OP_BYTES + op->key.bytes;
		if (op->ask == KV_ASK_PUT && op->value.bytes < db->options.bulk_bytes)
			bytes += op->value.bytes;
	}
	return bytes;
}

static bool only_deletes(const struct kv_batch *b)
{
	for (uint32_t i = 0; i < b->count; i++)
		if (b->ops[i].ask != KV_ASK_DELETE && b->ops[i].ask != KV_ASK_DELETE_RANGE)
			return false;
	return true;
}

static bool is_pressed(struct kv_db *db)
{
	return atomic_load_explicit(&db->imm_full, memory_order_relaxed) ||
	       atomic_load_explicit(&db->level0_count, memory_order_relaxed) >
		       db->options.level0_tables_slow;
}

static uint64_t flush_delay_locked(struct kv_db *db) KV_REQUIRES(&db->mu)
{
	uint64_t filled = KV_MIN(kv_memtable_bytes(db->mem), db->options.memtable_bytes);

	if (db->imm_count < KV_IMM_MAX)
		return 0;
	return (uint64_t)((double)(FLUSH_DELAY_PART * db->flush_ns_per_kib) * (double)filled /
			  (double)db->options.memtable_bytes);
}

static uint64_t level0_delay(struct kv_db *db)
{
	uint32_t slow = db->options.level0_tables_slow, max = db->options.level0_tables_max;
	uint64_t level0 = KV_MIN(atomic_load(&db->level0_count), max);

	if (level0 <= slow)
		return 0;
	return DELAY_NS_PER_KIB_MAX * (level0 - slow) * (level0 - slow) /
	       ((uint64_t)(max - slow) * (max - slow));
}

/* Between the first delay and the next batch that meets no debt, one line at each end. */
static void log_slow(struct kv_db *db, bool slowed)
{
	if (atomic_load_explicit(&db->slowed, memory_order_relaxed) == slowed ||
	    atomic_exchange(&db->slowed, slowed) == slowed)
		return;
	kv_event(db->log, slowed ? "slow_begin" : "slow_end", "level0=%" PRIu32
		 " memtables_full=%" PRIu32 " delayed_writes=%" PRIu64 " delay_us=%" PRIu64,
		 atomic_load(&db->level0_count), atomic_load(&db->imm_full),
		 atomic_load(&db->counters.delayed_writes), atomic_load(&db->counters.delay_us));
}

/*
 * Each batch books its time behind all that were booked before, so that the pace is the same
 * for one writer and for many. Returns how far away the end of it is.
 */
static uint64_t book(struct kv_db *db, uint64_t now, uint64_t ns)
{
	uint64_t until = atomic_load_explicit(&db->delay_until_ns, memory_order_relaxed), end;

	do {
		end = KV_MAX(until, now) + ns;
	} while (!atomic_compare_exchange_weak(&db->delay_until_ns, &until, end));
	return end - now;
}

static void slow_down(struct kv_db *db, const struct kv_batch *b)
{
	struct kv_env *env = db->store.env;
	uint64_t start = env->ops->monotonic_ns(env), now = start, per_kib, ns;

	kv_mutex_lock(&db->mu);
	per_kib = KV_MAX(flush_delay_locked(db), level0_delay(db));
	ns = per_kib ? book(db, start, memtable_cost(db, b) * per_kib / 1024) : 0;
	if (ns < DELAY_NS_STEP) {
		kv_mutex_unlock(&db->mu);
		return;
	}
	kv_mutex_unlock(&db->mu);
	log_slow(db, true);
	kv_mutex_lock(&db->mu);
	/* Work that gets done ends it before its time. The clock may be a test's, and stand still. */
	while (now - start < ns && is_pressed(db) && !atomic_load(&db->poisoned) &&
	       kv_cond_wait_for(&db->done_cond, &db->mu, ns - (now - start)))
		now = env->ops->monotonic_ns(env);
	kv_mutex_unlock(&db->mu);
	kv_count(&db->counters.delayed_writes, 1);
	kv_count(&db->counters.delay_us, (env->ops->monotonic_ns(env) - start) / 1000);
}

/* Level 0 is at its limit: waits until a compaction has made room. */
int kv_level0_wait(struct kv_db *db)
{
	struct kv_env *env = db->store.env;
	uint64_t start, failures, us;
	int err = 0;

	if (db->options.inline_work ||
	    atomic_load_explicit(&db->level0_count, memory_order_relaxed) <
		    db->options.level0_tables_max)
		return 0;
	start = env->ops->monotonic_ns(env);
	kv_count(&db->counters.stopped_writes, 1);
	kv_event(db->log, "stall_begin", "reason=level0 tables=%" PRIu32,
		 atomic_load(&db->level0_count));
	kv_mutex_lock(&db->mu);
	failures = db->compact_failures;
	kv_work_want_locked(db);
	while (!err && atomic_load(&db->level0_count) >= db->options.level0_tables_max) {
		if (atomic_load(&db->poisoned))
			err = KV_E_poisoned;
		else if (db->compact_failures != failures && db->compact_error)
			err = db->compact_error;
		else
			kv_cond_wait(&db->done_cond, &db->mu);
	}
	kv_mutex_unlock(&db->mu);
	us = (env->ops->monotonic_ns(env) - start) / 1000;
	kv_count(&db->counters.stop_us, us);
	kv_event(db->log, "stall_end", "reason=level0 us=%" PRIu64, us);
	return err;
}

int kv_pressure(struct kv_db *db, const struct kv_batch *b)
{
	if (db->options.inline_work)
		return 0;
	if (!is_pressed(db)) {
		log_slow(db, false);
		return 0;
	}
	if (only_deletes(b))
		return 0;
	if (atomic_load_explicit(&db->level0_count, memory_order_relaxed) >=
	    db->options.level0_tables_max)
		return kv_level0_wait(db);
	slow_down(db, b);
	return 0;
}
