/*
 * About how much space a range of keys takes: what tables take in files, with what they refer to
 * in the value log, and the range's share of memtables. A table that lies within the range counts as a
 * whole, by what the version knows of it; of those at its ends, the index says which part.
 */
#include "kv/compact.h"
#include "kv/db.h"

static uint64_t table_bytes(const struct kv_sst_meta *m)
{
	uint64_t bytes = m->file_bytes;

	for (size_t i = 0; i < m->ref_count; i++)
		bytes += m->refs[i].bytes;
	return bytes;
}

static bool is_within(struct kv_span s, struct kv_slice begin, struct kv_slice end)
{
	int c = end.data ? kv_slice_cmp(s.end, end) : -1;

	return (!begin.data || kv_slice_cmp(begin, s.begin) <= 0) &&
	       (c < 0 || (!c && s.end_open));
}

/* The bytes of the table's blocks that belong to the range, of *out_all. */
static int part_of(struct kv_sst *sst, struct kv_slice begin, struct kv_slice end, uint64_t *out,
		   uint64_t *out_all)
{
	uint64_t from = 0, to = kv_sst_data_bytes(sst);

	*out_all = to;
	if (begin.data)
		KV_TRY(kv_sst_bytes_before(sst, begin, &from));
	if (end.data)
		KV_TRY(kv_sst_bytes_before(sst, end, &to));
	*out = to > from ? to - from : 0;
	return 0;
}

static int add_table(struct kv_db *db, const struct kv_table *t, struct kv_slice begin,
		     struct kv_slice end, uint64_t *bytes)
{
	struct kv_filecache_entry *pin;
	struct kv_sst *sst;
	uint64_t part, all;
	int err;

	if (is_within(kv_table_span(t), begin, end)) {
		*bytes += table_bytes(&t->meta);
		return 0;
	}
	KV_TRY(kv_filecache_table(db->files, t->meta.number, t->meta.file_bytes, &pin, &sst));
	err = part_of(sst, begin, end, &part, &all);
	kv_filecache_unpin(db->files, pin);
	if (!err && all)
		*bytes += (uint64_t)((double)table_bytes(&t->meta) * (double)part / (double)all);
	return err;
}

static int add_level(struct kv_db *db, const struct kv_level *l, int level, struct kv_slice begin,
		     struct kv_slice end, uint64_t *bytes)
{
	size_t i = level && begin.data ? kv_level_find(l, begin) : 0;

	for (; i < l->count; i++) {
		struct kv_span s = kv_table_span(l->tables[i]);

		if (end.data && kv_slice_cmp(s.begin, end) >= 0) {
			if (level)
				break;
			continue;
		}
		if (begin.data && kv_slice_cmp(s.end, begin) < 0)
			continue;
		KV_TRY(add_table(db, l->tables[i], begin, end, bytes));
	}
	return 0;
}

static int add_all(struct kv_db *db, const struct kv_readstate *rs, struct kv_slice begin,
		   struct kv_slice end, uint64_t *bytes)
{
	*bytes = kv_memtable_approximate_bytes(rs->mem, begin, end);
	for (uint32_t i = 0; i < rs->imm_count; i++)
		*bytes += kv_memtable_approximate_bytes(rs->imm[i], begin, end);
	for (int level = 0; level < KV_LEVELS; level++)
		KV_TRY(add_level(db, &rs->version->levels[level], level, begin, end, bytes));
	return 0;
}

int kv_approximate_bytes(struct kv_db *db, struct kv_slice begin, struct kv_slice end,
			 uint64_t *out_bytes)
{
	struct kv_readstate *rs;
	uint64_t bytes = 0;
	int err;

	if (begin.data && end.data && kv_slice_cmp(begin, end) >= 0) {
		*out_bytes = 0;
		return 0;
	}
	rs = kv_readstate_ref(db);
	err = add_all(db, rs, begin, end, &bytes);
	kv_readstate_unref(rs);
	if (!err)
		*out_bytes = bytes;
	return err;
}
