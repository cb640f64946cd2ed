/* Writers are slowed down, or wait, while flush and compaction lag behind. */
#include "kv/write.h"

/*
 * A writer is slowed down in proportion to what it adds to the memtable and to how
 * far level 0 has grown from the slow mark to the limit: from about 64 MiB/s down to
 * 1 MiB/s. Times too short to sleep are run up first.
 */
#define DELAY_NS_PER_BYTE_MIN 16
#define DELAY_NS_PER_BYTE_MAX 1000
#define DELAY_NS_STEP 1000000
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

static void sleep_ns(struct kv_db *db, uint64_t ns)
{
	struct kv_env *env = db->store.env;
	uint64_t now = env->ops->monotonic_ns(env), end = now + ns;

	kv_mutex_lock(&db->mu);
	/* Work that gets done wakes it before its time. The clock may be a test's, and stand still. */
	while (now < end && !atomic_load(&db->poisoned) &&
	       kv_cond_wait_for(&db->done_cond, &db->mu, end - now))
		now = env->ops->monotonic_ns(env);
	kv_mutex_unlock(&db->mu);
}

static void slow_down(struct kv_db *db, const struct kv_batch *b, uint32_t level0)
{
	uint32_t slow = db->options.level0_tables_slow, max = db->options.level0_tables_max;
	uint64_t per_byte = DELAY_NS_PER_BYTE_MIN;
	uint64_t ns;

	if (level0 > slow)
		per_byte += (uint64_t)(DELAY_NS_PER_BYTE_MAX - DELAY_NS_PER_BYTE_MIN) *
			    KV_MIN(level0 - slow, max - slow) / (max - slow);
	ns = memtable_cost(db, b) * per_byte;
	ns += atomic_fetch_add_explicit(&db->delay_ns, ns, memory_order_relaxed);
	if (ns < DELAY_NS_STEP)
		return;
	ns = atomic_exchange_explicit(&db->delay_ns, 0, memory_order_relaxed);
	if (!ns)
		return;
	sleep_ns(db, ns);
	kv_count(&db->counters.delayed_writes, 1);
	kv_count(&db->counters.delay_us, ns / 1000);
}

/* Level 0 is at its limit: waits until a compaction has made room. */
static int wait_for_compaction(struct kv_db *db)
{
	struct kv_env *env = db->store.env;
	uint64_t start = env->ops->monotonic_ns(env), failures;
	int err = 0;

	kv_count(&db->counters.stopped_writes, 1);
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
	kv_count(&db->counters.stop_us, (env->ops->monotonic_ns(env) - start) / 1000);
	return err;
}

/* Batches that only delete are let through, down to the memtable's own limit. */
int kv_pressure(struct kv_db *db, const struct kv_batch *b)
{
	uint32_t level0 = atomic_load_explicit(&db->level0_count, memory_order_relaxed);
	bool imm_full = atomic_load_explicit(&db->imm_full, memory_order_relaxed);

	if (db->options.inline_work || (level0 < db->options.level0_tables_slow && !imm_full) ||
	    only_deletes(b))
		return 0;
	if (level0 >= db->options.level0_tables_max)
		return wait_for_compaction(db);
	slow_down(db, b, level0);
	return 0;
}
