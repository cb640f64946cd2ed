/*
 * What is kept back of the disk, so that a store that has filled it can still delete: room for
 * the two memtables that may wait to be flushed, and for the next journal. Only then do
 * tables learn what was deleted, and segments that nothing refers to go.
 *
 * Nothing is allocated for it: a writer that would take it is told that there is no
 * space. Others who write to the same disk can still fill it.
 */
#include "kv/db.h"

/* Between two looks at the disk, as many bytes may be written. */
static uint64_t look_bytes(const struct kv_db *db)
{
	return db->options.memtable_bytes / 8;
}

/*
 * Files take their space in steps: a journal, the segment of the writers and the one of flushes;
 * a segment that grows, by a MiB or as much as is left.
 */
static uint64_t reserve_bytes(const struct kv_db *db)
{
	return KV_IMM_MAX * db->options.memtable_bytes + look_bytes(db) +
	       kv_allocate_bytes(db->options.memtable_bytes) +
	       2 * KV_MAX(kv_allocate_bytes(db->options.segment_bytes), KV_MIB);
}

int kv_space(struct kv_db *db, uint64_t *out_bytes_all, uint64_t *out_bytes_free)
{
	uint64_t kept = reserve_bytes(db), all, bytes;

	KV_TRY(db->store.env->ops->space(db->store.dir, &all, &bytes));
	*out_bytes_all = all;
	*out_bytes_free = bytes > kept ? bytes - kept : 0;
	return 0;
}

bool kv_space_is_low(struct kv_db *db, struct kv_space_look *look, uint64_t bytes)
{
	uint64_t all, left;

	look->unlooked += bytes;
	if (look->unlooked < look_bytes(db) && !look->low)
		return false;
	/* A disk that does not tell is found full when it is. */
	look->low = !kv_space(db, &all, &left) && left < bytes + look->margin;
	look->unlooked = 0;
	return look->low;
}
