/*
 * What the store says of itself, by name: a table of names, each with the function that gives the number,
 * or the text.
 */
#include <inttypes.h>

#include "kv/compact.h"
#include "kv/db.h"

/* --- numbers --------------------------------------------------------------------------------- */

/* What neither tables nor memtables refer to in the value log. */
static uint64_t garbage_bytes(struct kv_db *db, const struct kv_stats *s)
{
	struct kv_readstate *rs = kv_readstate_ref(db);
	uint64_t used = s->segment_bytes_live + kv_memtable_bulk_bytes(rs->mem);

	for (uint32_t i = 0; i < rs->imm_count; i++)
		used += kv_memtable_bulk_bytes(rs->imm[i]);
	kv_readstate_unref(rs);
	return s->segment_bytes > used ? s->segment_bytes - used : 0;
}

static uint64_t table_count(struct kv_db *db, const struct kv_stats *s)
{
	uint64_t n = 0;

	(void)db;
	for (int i = 0; i < KV_LEVELS; i++)
		n += s->table_count[i];
	return n;
}

static uint64_t table_bytes(struct kv_db *db, const struct kv_stats *s)
{
	uint64_t n = 0;

	(void)db;
	for (int i = 0; i < KV_LEVELS; i++)
		n += s->table_bytes[i];
	return n;
}

static uint64_t garbage_percent(struct kv_db *db, const struct kv_stats *s)
{
	return s->segment_bytes ? (uint64_t)(100.0 * (double)garbage_bytes(db, s) /
					     (double)s->segment_bytes) : 0;
}

static uint64_t debt(struct kv_db *db, const struct kv_stats *s)
{
	struct kv_readstate *rs = kv_readstate_ref(db);
	uint64_t bytes = kv_pick_debt(rs->version, db->options.level_base_bytes);

	(void)s;
	kv_readstate_unref(rs);
	return bytes;
}

/* Fields of the statistics that are numbers already. */
#define FIELDS(x)        \
	x(seqno)         \
	x(memtable_bytes) \
	x(cache_bytes)   \
	x(segment_count) \
	x(segment_bytes) \
	x(segment_bytes_live) \
	x(disk_bytes)    \
	x(snapshots)

#define X(name)                                                                \
	static uint64_t field_##name(struct kv_db *db, const struct kv_stats *s) \
	{                                                                      \
		(void)db;                                                      \
		return s->name;                                                \
	}
FIELDS(X)
#undef X

/* --- texts ----------------------------------------------------------------------------------- */

static int levels(struct kv_db *db, const struct kv_stats *s, struct kv_buf *out)
{
	(void)db;
	for (int i = 0; i < KV_LEVELS; i++)
		KV_TRY(kv_buf_printf(out, "level=%d tables=%" PRIu64 " bytes=%" PRIu64 "\n", i,
				     s->table_count[i], s->table_bytes[i]));
	return 0;
}

static int table_line(int level, const struct kv_sst_meta *m, struct kv_buf *out)
{
	uint64_t refs = 0;

	for (size_t i = 0; i < m->ref_count; i++)
		refs += m->refs[i].bytes;
	return kv_buf_printf(out, "table=%" PRIu64 " level=%d bytes=%" PRIu64 " entries=%" PRIu64
			     " deletes=%" PRIu64 " range_deletes=%" PRIu64 " segment_bytes=%" PRIu64
			     "\n", m->number, level, m->file_bytes, m->entries, m->deletes,
			     m->range_deletes, refs);
}

static int version_tables(const struct kv_version *v, struct kv_buf *out)
{
	for (int i = 0; i < KV_LEVELS; i++)
		for (size_t k = 0; k < v->levels[i].count; k++)
			KV_TRY(table_line(i, &v->levels[i].tables[k]->meta, out));
	return 0;
}

static int tables(struct kv_db *db, const struct kv_stats *s, struct kv_buf *out)
{
	struct kv_readstate *rs = kv_readstate_ref(db);
	int err = version_tables(rs->version, out);

	(void)s;
	kv_readstate_unref(rs);
	return err;
}

/* One that is being written has no size in the version. */
static uint64_t open_segment_bytes(struct kv_db *db, kv_fileno number)
{
	uint64_t bytes = 0;

	kv_mutex_lock(&db->mu);
	kv_list_for_each(l, &db->segments) {
		struct kv_live_segment *at = kv_container_of(l, struct kv_live_segment, link);

		if (at->number == number)
			bytes = kv_segment_bytes(at->writer);
	}
	kv_mutex_unlock(&db->mu);
	return bytes;
}

static int segment_line(struct kv_db *db, const struct kv_version_segment *s, struct kv_buf *out)
{
	uint64_t bytes = s->sealed ? s->bytes : open_segment_bytes(db, s->number);
	uint64_t used = s->referenced_bytes + sizeof(struct kv_file_header);
	uint64_t garbage = bytes > used ? bytes - used : 0;

	return kv_buf_printf(out, "segment=%" PRIu64 " sealed=%d bytes=%" PRIu64 " live=%" PRIu64
			     " tables=%" PRIu64 " garbage_percent=%.0f\n", s->number, s->sealed,
			     bytes, s->referenced_bytes, s->table_count,
			     bytes ? 100.0 * (double)garbage / (double)bytes : 0.0);
}

static int version_segments(struct kv_db *db, const struct kv_version *v, struct kv_buf *out)
{
	for (size_t i = 0; i < v->segment_count; i++)
		KV_TRY(segment_line(db, &v->segments[i], out));
	return 0;
}

static int segments(struct kv_db *db, const struct kv_stats *s, struct kv_buf *out)
{
	struct kv_readstate *rs = kv_readstate_ref(db);
	int err = version_segments(db, rs->version, out);

	(void)s;
	kv_readstate_unref(rs);
	return err;
}

static int memtable_line(const char *what, const struct kv_memtable *m, struct kv_buf *out)
{
	return kv_buf_printf(out, "memtable=%s operations=%" PRIu64 " bytes=%" PRIu64
			     " segment_bytes=%" PRIu64 "\n", what, kv_memtable_count(m),
			     kv_memtable_bytes(m), kv_memtable_bulk_bytes(m));
}

static int readstate_memtables(const struct kv_readstate *rs, struct kv_buf *out)
{
	KV_TRY(memtable_line("active", rs->mem, out));
	for (uint32_t i = 0; i < rs->imm_count; i++)
		KV_TRY(memtable_line("waiting", rs->imm[i], out));
	return 0;
}

static int memtables(struct kv_db *db, const struct kv_stats *s, struct kv_buf *out)
{
	struct kv_readstate *rs = kv_readstate_ref(db);
	int err = readstate_memtables(rs, out);

	(void)s;
	kv_readstate_unref(rs);
	return err;
}

static int latencies(struct kv_db *db, const struct kv_stats *s, struct kv_buf *out)
{
	static const char *const names[] = {
#define X(name, one_of, text) #name,
		KV_LATENCIES(X)
#undef X
	};

	(void)s;
	for (int i = 0; i < KV_LATENCY_KINDS; i++) {
		struct kv_latency l;

		kv_latency(db, (enum kv_latency_kind)i, &l);
		KV_TRY(kv_buf_printf(out, "latency=%s timed=%" PRIu64 " mean_ns=%" PRIu64
				     " p50_ns=%" PRIu64 " p90_ns=%" PRIu64 " p99_ns=%" PRIu64
				     " p999_ns=%" PRIu64 " max_ns=%" PRIu64 "\n", names[i],
				     l.count, l.mean_ns, l.p50_ns, l.p90_ns, l.p99_ns, l.p999_ns,
				     l.max_ns));
	}
	return 0;
}

static int counters(struct kv_db *db, const struct kv_stats *s, struct kv_buf *out)
{
	(void)db;
#define X(name, text) KV_TRY(kv_buf_printf(out, #name "=%" PRIu64 "\n", s->name));
	KV_COUNTERS(X)
#undef X
	return 0;
}

/* --- names ----------------------------------------------------------------------------------- */

static int properties(struct kv_db *db, const struct kv_stats *s, struct kv_buf *out);

static const struct property {
	const char *name;
	uint64_t (*number)(struct kv_db *db, const struct kv_stats *s);
	int (*text)(struct kv_db *db, const struct kv_stats *s, struct kv_buf *out);
} all[] = {
	{ "properties", NULL, properties },
#define X(name) { #name, field_##name, NULL },
	FIELDS(X)
#undef X
	{ "table_count", table_count, NULL },
	{ "table_bytes", table_bytes, NULL },
	{ "garbage_bytes", garbage_bytes, NULL },
	{ "garbage_percent", garbage_percent, NULL },
	{ "compaction_debt_bytes", debt, NULL },
	{ "levels", NULL, levels },
	{ "tables", NULL, tables },
	{ "segments", NULL, segments },
	{ "memtables", NULL, memtables },
	{ "latencies", NULL, latencies },
	{ "counters", NULL, counters },
};

static int properties(struct kv_db *db, const struct kv_stats *s, struct kv_buf *out)
{
	(void)db, (void)s;
	for (size_t i = 0; i < KV_ARRAY_LEN(all); i++)
		KV_TRY(kv_buf_printf(out, "%s\n", all[i].name));
	return 0;
}

static const struct property *find(const char *name)
{
	for (size_t i = 0; i < KV_ARRAY_LEN(all); i++)
		if (!strcmp(all[i].name, name))
			return &all[i];
	return NULL;
}

int kv_property(struct kv_db *db, const char *name, struct kv_buf *out)
{
	const struct property *p = find(name);
	struct kv_stats s;

	if (!p)
		return KV_E_not_found;
	kv_stats(db, &s);
	if (p->number)
		return kv_buf_printf(out, "%" PRIu64 "\n", p->number(db, &s));
	return p->text(db, &s, out);
}

int kv_property_number(struct kv_db *db, const char *name, uint64_t *out_number)
{
	const struct property *p = find(name);
	struct kv_stats s;

	if (!p || !p->number)
		return KV_E_not_found;
	kv_stats(db, &s);
	*out_number = p->number(db, &s);
	return 0;
}
