/*
 * Journals and segments that are being written. Both are prepared ahead by the
 * workers, so that a writer rarely waits for a file to be made.
 *
 * CRASH: a file is durable, with its name and its header, before anything is
 * appended to it; and a segment is registered in the manifest before the first
 * pointer into it is written anywhere (K4). Stop here: recovery finds a file
 * that nothing refers to, and deletes it or seals it empty.
 */
#include "kv/db.h"

/* Space that is taken ahead, in one piece. */
#define ALLOCATE_BYTES_MIN (64 * KV_KIB)
#define ALLOCATE_BYTES_MAX (4 * KV_MIB)

uint64_t kv_allocate_bytes(uint64_t file_bytes)
{
	return KV_MAX(KV_MIN(file_bytes / 4, ALLOCATE_BYTES_MAX), ALLOCATE_BYTES_MIN);
}

/* --- segments ------------------------------------------------------------------------------- */

void kv_live_segment_unref(struct kv_live_segment *s)
{
	if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	kv_segment_writer_free(s->writer);
	free(s);
}

static int register_segment(struct kv_db *db, kv_fileno number)
{
	struct kv_edit edit = { 0 };
	int err = kv_edit_add_segment(&edit, number);

	if (!err)
		err = kv_install(db, &edit);
	kv_edit_done(&edit);
	return err;
}

int kv_live_segment_new(struct kv_db *db, struct kv_live_segment **out)
{
	struct kv_live_segment *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	kv_list_init(&s->link);
	atomic_init(&s->refs, 2);
	s->number = kv_fileno_take(db);
	err = kv_segment_create(&db->store, s->number, kv_allocate_bytes(db->options.segment_bytes),
				&s->writer);
	if (err) {
		free(s);
		return kv_err_passes(err) ? kv_err_space(err) : kv_poison(db, err);
	}
	err = register_segment(db, s->number);
	if (err) {
		kv_segment_writer_free(s->writer);
		kv_obsolete_add(db, KV_FILE_SEGMENT, s->number);
		free(s);
		return err;
	}
	kv_mutex_lock(&db->mu);
	kv_list_push_back(&db->segments, &s->link);
	kv_mutex_unlock(&db->mu);
	*out = s;
	return 0;
}

void kv_live_segment_finish(struct kv_db *db, struct kv_live_segment *s)
{
	if (!s)
		return;
	kv_mutex_lock(&db->mu);
	s->full = true;
	kv_work_want_locked(db);
	kv_mutex_unlock(&db->mu);
	kv_live_segment_unref(s);
}

static int seal(struct kv_db *db, struct kv_live_segment *s)
{
	struct kv_edit edit = { 0 };
	int err = kv_segment_seal(s->writer);

	if (err)
		return kv_poison(db, err);
	err = kv_edit_seal_segment(&edit, s->number, kv_segment_bytes(s->writer));
	if (!err)
		err = kv_install(db, &edit);
	kv_edit_done(&edit);
	return err;
}

int kv_live_segment_seal_one(struct kv_db *db, bool *out_did)
{
	struct kv_live_segment *s = NULL;
	int err;

	*out_did = false;
	kv_mutex_lock(&db->mu);
	kv_list_for_each(l, &db->segments) {
		struct kv_live_segment *at = kv_container_of(l, struct kv_live_segment, link);

		if (at->full && !at->sealing) {
			s = at;
			break;
		}
	}
	if (!s) {
		kv_mutex_unlock(&db->mu);
		return 0;
	}
	s->sealing = true;
	kv_mutex_unlock(&db->mu);

	err = seal(db, s);
	kv_mutex_lock(&db->mu);
	s->sealing = false;
	if (!err)
		kv_list_remove(&s->link);
	kv_mutex_unlock(&db->mu);
	if (err)
		return err;
	kv_live_segment_unref(s);
	*out_did = true;
	return 0;
}

/* --- journals ------------------------------------------------------------------------------- */

/*
 * Who is the last one may be a syncer, for whom others wait: so the file is closed while it still has
 * a name, which costs nothing, and whoever deletes files frees its blocks.
 */
void kv_live_journal_unref(struct kv_db *db, struct kv_live_journal *j)
{
	if (!j || atomic_fetch_sub_explicit(&j->refs, 1, memory_order_acq_rel) != 1)
		return;
	kv_journal_free(j->journal);
	if (j->obsolete)
		kv_obsolete_add(db, KV_FILE_JOURNAL, j->number);
	free(j);
}

int kv_live_journal_new(struct kv_db *db, struct kv_live_journal **out)
{
	struct kv_live_journal *j = calloc(1, sizeof(*j));
	int err;

	if (!j)
		return -ENOMEM;
	kv_list_init(&j->link);
	atomic_init(&j->refs, 1);
	j->number = kv_fileno_take(db);
	err = kv_journal_create(&db->store, KV_FILE_JOURNAL, j->number,
				kv_allocate_bytes(db->options.memtable_bytes), &j->journal);
	if (err) {
		free(j);
		return kv_err_passes(err) ? kv_err_space(err) : kv_poison(db, err);
	}
	/*
	 * The header alone is synced first. So a journal whose header is not there
	 * was never written to, and one with anything behind its header is damaged.
	 */
	err = kv_journal_sync(j->journal);
	if (!err)
		err = db->store.env->ops->dir_sync(db->store.dir);
	if (err) {
		kv_live_journal_unref(db, j);
		return kv_poison(db, err);
	}
	*out = j;
	return 0;
}

/* --- preparing ------------------------------------------------------------------------------- */

static int prepare_journal(struct kv_db *db)
{
	struct kv_live_journal *j = NULL;
	int err = kv_live_journal_new(db, &j);

	kv_mutex_lock(&db->mu);
	db->preparing_journal = false;
	db->journal_wanted = false;
	if (!err)
		db->journal_next = j;
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);
	return err;
}

static int prepare_segment(struct kv_db *db)
{
	struct kv_live_segment *s = NULL;
	int err = kv_live_segment_new(db, &s);

	kv_mutex_lock(&db->mu);
	db->preparing_segment = false;
	db->segment_wanted = false;
	if (!err)
		db->segment_next = s;
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);
	return err;
}

int kv_live_prepare(struct kv_db *db, bool *out_did)
{
	bool journal, segment;
	int err = 0;

	kv_mutex_lock(&db->mu);
	journal = db->journal_wanted && !db->journal_next && !db->preparing_journal;
	segment = db->segment_wanted && !db->segment_next && !db->preparing_segment;
	db->preparing_journal |= journal;
	db->preparing_segment |= segment;
	kv_mutex_unlock(&db->mu);
	*out_did = journal || segment;
	if (journal)
		err = prepare_journal(db);
	if (segment) {
		int err2 = prepare_segment(db);

		err = err ? err : err2;
	}
	return err;
}
