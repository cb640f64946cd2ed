/*
 * Garbage in the value log. How much a version's tables refer to in each
 * segment is exact (struct kv_version_segment), so nothing is searched for.
 *
 * A segment that nothing refers to is dropped, by an edit of its own. "Nothing" is
 * decided under parts_lock and mu at once, and can't change afterwards:
 *
 * - Pointers live in tables and in memtables. On its way from a memtable to a table (flush) or
 *   from table to table (compaction) a pointer never is in neither: the place that it
 *   comes from and the one it goes to are exchanged in one step, under mu.
 * - A new value goes only to a segment that is not sealed, and those aren't looked at. It
 *   is sealed when every pointer into it is in a memtable or a table (live.c).
 * - A batch may copy a pointer (put_part). It holds parts_lock shared from before it takes its
 *   read state until the copy is in the memtable. So either it is done, and the memtable
 *   refers to the segment; or it begins afterwards, and meets a state in which no key has
 *   a pointer into the segment. db->dying is there so that the latter is checked, not believed.
 * - A pointer that only an older version has is still read: by the readers that hold that version,
 *   which has the segment too. The file goes when the last of them has let go.
 * - A journal that has the pointer isn't needed: it is, as long as its memtable isn't flushed.
 *
 * CRASH: tables that no longer refer to the segment became durable by edits that
 * precede this one in the manifest. Stop before the edit is durable: the segment is there
 * and is dropped again. Stop behind it: the file has no name in the manifest, and the next
 * opening removes it.
 */
#include <stdlib.h>

#include "kv/db.h"

/* Does anything that isn't in a table yet need the segment? */
static bool is_needed_locked(struct kv_db *db, kv_fileno number) KV_REQUIRES(&db->mu)
{
	if (kv_memtable_refers(db->mem, number))
		return true;
	for (uint32_t i = 0; i < db->imm_count; i++)
		if (kv_memtable_refers(db->imm[i], number))
			return true;
	kv_list_for_each(l, &db->segments)
		if (kv_container_of(l, struct kv_live_segment, link)->number == number)
			return true;
	return false;
}

static bool is_unreferenced(const struct kv_version_segment *s)
{
	return s->sealed && !s->table_count && !s->referenced_bytes;
}

/* A look without parts_lock: nobody is held up when there is nothing to do, which is the rule. */
static bool is_worth_it(struct kv_db *db)
{
	bool found = false;

	kv_mutex_lock(&db->mu);
	for (size_t i = 0; i < db->version->segment_count && !found; i++)
		found = is_unreferenced(&db->version->segments[i]) &&
			!is_needed_locked(db, db->version->segments[i].number);
	kv_mutex_unlock(&db->mu);
	return found;
}

/* Adds to the edit, and to db->dying, whatever is dead. The caller has parts_lock. */
static int condemn_locked(struct kv_db *db, struct kv_edit *edit) KV_REQUIRES(&db->mu)
{
	const struct kv_version *v = db->version;

	KV_ASSERT(!db->dying);
	for (size_t i = 0; i < v->segment_count; i++) {
		kv_fileno number = v->segments[i].number;

		if (is_unreferenced(&v->segments[i]) && !is_needed_locked(db, number))
			KV_TRY(kv_edit_delete_segment(edit, number));
	}
	if (!edit->segment_delete_count)
		return 0;
	db->dying = malloc(edit->segment_delete_count * sizeof(*db->dying));
	if (!db->dying)
		return -ENOMEM;
	for (size_t i = 0; i < edit->segment_delete_count; i++)
		db->dying[db->dying_count++] = edit->segment_deletes[i].number;
	return 0;
}

static int condemn(struct kv_db *db, struct kv_edit *edit)
{
	int err;

	kv_rwlock_write(&db->parts_lock);
	kv_mutex_lock(&db->mu);
	err = condemn_locked(db, edit);
	kv_mutex_unlock(&db->mu);
	kv_rwlock_unlock(&db->parts_lock);
	return err;
}

/* The edit has happened, or never will: either way no batch can meet such a pointer any more. */
static void release_dying(struct kv_db *db)
{
	kv_rwlock_write(&db->parts_lock);
	free(db->dying);
	db->dying = NULL;
	db->dying_count = 0;
	kv_rwlock_unlock(&db->parts_lock);
}

/* Drops all segments that nothing refers to: one edit, and the files go with their last reader. */
static int drop_dead(struct kv_db *db, bool *out_did)
{
	KV_AUTO(kv_edit_done) struct kv_edit edit = { 0 };
	int err;

	if (!is_worth_it(db))
		return 0;
	KV_TRY(condemn(db, &edit));
	if (!edit.segment_delete_count)
		return 0;
	err = kv_install(db, &edit);
	release_dying(db);
	if (err)
		return err;
	kv_count(&db->counters.segments_dropped, edit.segment_delete_count);
	kv_msg(&db->store.msg, KV_MSG_INFO, "dropped %zu segments of the value log",
	       edit.segment_delete_count);
	*out_did = true;
	return 0;
}

/*
 * The thread that flushes must not come here: a batch that holds parts_lock may be waiting
 * for a flush.
 */
int kv_gc_one(struct kv_db *db, bool *out_did)
{
	*out_did = false;
	return drop_dead(db, out_did);
}
