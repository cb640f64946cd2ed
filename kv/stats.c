/* What the store says of itself. */
#include "kv/db.h"

static uint64_t memtables_bytes(const struct kv_readstate *rs)
{
	uint64_t bytes = kv_memtable_bytes(rs->mem);

	for (uint32_t i = 0; i < rs->imm_count; i++)
		bytes += kv_memtable_bytes(rs->imm[i]);
	return bytes;
}

static void version_stats(const struct kv_version *v, struct kv_stats *s)
{
	for (int i = 0; i < KV_LEVELS; i++) {
		s->table_count[i] = v->levels[i].count;
		s->table_bytes[i] = v->levels[i].bytes;
		s->disk_bytes += v->levels[i].bytes;
	}
	s->segment_count = v->segment_count;
	for (size_t i = 0; i < v->segment_count; i++) {
		if (v->segments[i].sealed)
			s->segment_bytes += v->segments[i].bytes;
		s->segment_bytes_live += v->segments[i].referenced_bytes;
	}
	s->named_snapshots = v->snapshots ? v->snapshots->count : 0;
}

/* Of files that are being written. */
static void live_stats(struct kv_db *db, struct kv_stats *s)
{
	kv_mutex_lock(&db->mu);
	kv_list_for_each(l, &db->segments)
		s->segment_bytes += kv_segment_bytes(
			kv_container_of(l, struct kv_live_segment, link)->writer);
	kv_list_for_each(l, &db->journals)
		s->disk_bytes += kv_journal_bytes(
			kv_container_of(l, struct kv_live_journal, link)->journal);
	kv_list_for_each(l, &db->snapshots)
		s->snapshots++;
	kv_mutex_unlock(&db->mu);
}

void kv_stats(struct kv_db *db, struct kv_stats *out_stats)
{
	struct kv_readstate *rs = kv_readstate_ref(db);
	struct kv_stats s = {
		.seqno = atomic_load(&db->seqno_published),
		.memtable_bytes = memtables_bytes(rs),
		.cache_bytes = kv_cache_bytes(db->cache),
		.memory_bytes = kv_cache_bytes(db->cache) + kv_cache_charged(db->cache),
	};

	version_stats(rs->version, &s);
	kv_readstate_unref(rs);
	live_stats(db, &s);
	kv_mutex_lock(&db->install_mu);
	if (db->manifest)
		s.disk_bytes += kv_manifest_bytes(db->manifest);
	kv_mutex_unlock(&db->install_mu);
	s.disk_bytes += s.segment_bytes;
#define X(name, text) s.name = atomic_load_explicit(&db->counters.name, memory_order_relaxed);
	KV_COUNTERS(X)
#undef X
	*out_stats = s;
}

void kv_latency(struct kv_db *db, enum kv_latency_kind kind, struct kv_latency *out_latency)
{
	struct kv_histogram_view v;

	KV_ASSERT(kind < KV_LATENCY_KINDS);
	kv_histogram_read(&db->latencies[kind], &v);
	*out_latency = (struct kv_latency){
		.count = v.count,
		.mean_ns = v.count ? v.sum / v.count : 0,
		.p50_ns = kv_histogram_quantile(&v, 500000),
		.p90_ns = kv_histogram_quantile(&v, 900000),
		.p99_ns = kv_histogram_quantile(&v, 990000),
		.p999_ns = kv_histogram_quantile(&v, 999000),
		.max_ns = v.max,
	};
}
