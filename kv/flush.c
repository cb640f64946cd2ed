/*
 * From a memtable to a table of level 0. Whatever a snapshot or the present can
 * see is kept; deletes are kept too, since older tables may have what they
 * hide. Medium values leave for the value log here, in the order of their keys; pointers to
 * bulk values move as they are.
 *
 * CRASH: the table, every segment that the memtable's pointers lie in, the
 * medium values, and the table's name are durable before the edit that names the table (K5).
 * The same edit drops the journal, so that there is no moment in which neither or only
 * half of the memtable counts. Stop before it: the table has no name in the manifest, and
 * the journal is replayed again.
 */
#include <inttypes.h>

#include "kv/separate.h"

/* --- what can be seen ------------------------------------------------------------------------- */

/* The oldest state that must stay readable and has the operation; n when it is newer than all. */
static size_t stripe(const kv_seqno *snapshots, size_t n, kv_seqno seqno)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (snapshots[mid] < seqno)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct flush {
	struct kv_db *db;
	struct kv_memtable *m;
	struct kv_rangedels *rangedels;
	const kv_seqno *snapshots;
	size_t snapshot_count;
	struct kv_separator *separator;
	struct kv_cursor *cursor;
	struct kv_sst_build *build;

	struct kv_buf last_key;			/* user key of the entry before */
	bool has_last;
	size_t last_stripe;
	uint64_t seen;				/* entries of the memtable */
};

static void flush_done(struct flush *f)
{
	kv_separator_free(f->separator);
	kv_cursor_free(f->cursor);
	kv_sst_build_free(f->build);
	if (f->rangedels)
		kv_rangedels_unref(f->rangedels);
	kv_buf_done(&f->last_key);
}

/* Nobody can see the entry: a newer one of its key, or a tombstone, hides it from all who would. */
static int is_hidden(struct flush *f, struct kv_slice ikey, bool *out)
{
	struct kv_slice user = kv_ikey_user(ikey);
	kv_seqno seqno = kv_ikey_seqno(ikey);
	size_t s = stripe(f->snapshots, f->snapshot_count, seqno);

	KV_ASSERT(s < f->snapshot_count);
	if (f->has_last && kv_slice_eq(kv_buf_slice(&f->last_key), user)) {
		*out = f->last_stripe == s;
	} else {
		KV_TRY(kv_buf_assign(&f->last_key, user));
		f->has_last = true;
		*out = false;
	}
	f->last_stripe = s;
	if (!*out)
		*out = kv_rangedels_covering(f->rangedels, user, f->snapshots[s]) > seqno;
	return 0;
}

/* --- the table ---------------------------------------------------------------------------------- */

static int add_entries(struct flush *f)
{
	struct kv_cursor *c = f->cursor;

	for (c->ops->seek_first(c); c->ops->valid(c); c->ops->next(c)) {
		struct kv_slice ikey = c->ops->key(c), value = c->ops->value(c);
		bool hidden;

		f->seen++;
		KV_TRY(is_hidden(f, ikey, &hidden));
		/* The memtable keeps the bytes. */
		if (!hidden)
			KV_TRY(kv_separator_add(f->separator, f->build, ikey, value));
	}
	KV_TRY(c->ops->error(c));
	return kv_separator_flush(f->separator, f->build);
}

/* Of tombstones with the same bounds, the older ones that no snapshot tells apart are left out. */
static int add_rangedels(struct flush *f)
{
	const struct kv_rangedel *before = NULL;

	for (uint32_t i = 0; f->rangedels && i < f->rangedels->count; i++) {
		const struct kv_rangedel *r = &f->rangedels->at[i];

		if (before && kv_slice_eq(before->begin, r->begin) &&
		    stripe(f->snapshots, f->snapshot_count, before->seqno) ==
			    stripe(f->snapshots, f->snapshot_count, r->seqno))
			continue;
		KV_TRY(kv_sst_build_add_rangedel(f->build, r));
		before = r;
	}
	return 0;
}

static int open_sources(struct flush *f, kv_fileno number)
{
	KV_TRY(kv_memtable_rangedels(f->m, &f->rangedels));
	f->cursor = kv_memtable_cursor(f->m);
	if (!f->cursor)
		return -ENOMEM;
	return kv_table_build_new(f->db, number, 0, &f->build);
}

static int finish_table(struct flush *f, struct kv_edit *edit)
{
	struct kv_sst_meta meta;
	int err;

	if (kv_sst_build_is_empty(f->build))
		return 0;
	KV_TRY(kv_sst_build_finish(f->build, &meta));
	err = kv_edit_add_table(edit, 0, &meta);
	if (err)
		kv_obsolete_add(f->db, KV_FILE_TABLE, meta.number);
	kv_count(&f->db->counters.flush_bytes, meta.file_bytes);
	kv_event(f->db->log, "table", "table=%" PRIu64 " level=0 entries=%" PRIu64
		 " file_bytes=%" PRIu64, meta.number, meta.entries, meta.file_bytes);
	kv_msg(&f->db->store.msg, KV_MSG_INFO,
	       "%s: flushed %" PRIu64 " operations to table %" PRIu64 ", %" PRIu64 " bytes",
	       f->db->store.path, kv_memtable_count(f->m), meta.number, meta.file_bytes);
	kv_sst_meta_done(&meta);
	return err;
}

static int write_table(struct flush *f, struct kv_edit *edit)
{
	KV_TRY(open_sources(f, kv_fileno_take(f->db)));
	KV_TRY(add_entries(f));
	KV_TRY(add_rangedels(f));
	/* Memory may be damaged, too: whatever was put in must have come out. */
	if (f->seen + kv_memtable_rangedel_count(f->m) != kv_memtable_count(f->m))
		return kv_fail(&f->db->store.msg, KV_E_corrupt,
			       "%s: a memtable of %" PRIu64 " operations has %" PRIu64
			       " of them: the computer's memory may be bad",
			       f->db->store.path, kv_memtable_count(f->m),
			       f->seen + kv_memtable_rangedel_count(f->m));
	return finish_table(f, edit);
}

int kv_flush_table(struct kv_db *db, struct kv_memtable *m, const kv_seqno *snapshots,
		   size_t snapshot_count, struct kv_live_segment **segment,
		   struct kv_edit *edit)
{
	KV_AUTO(flush_done) struct flush f = {
		.db = db,
		.m = m,
		.snapshots = snapshots,
		.snapshot_count = snapshot_count,
		/* kv_flush_one() finishes the full ones, when the tables are installed. */
		.separator = kv_separator_new(db, segment, &db->flush_full, false),
	};

	return f.separator ? kv_err_space(write_table(&f, edit)) : -ENOMEM;
}

/* --- one flush ------------------------------------------------------------------------------------ */

/*
 * A flush that failed for want of space leaves values in a segment that nothing refers
 * to. It isn't tried again, and they don't get more, while there obviously is no space yet.
 */
static int check_space(struct kv_db *db, struct kv_memtable *m)
{
	uint64_t all, available;
	bool failed;

	kv_mutex_lock(&db->mu);
	failed = db->flush_error == KV_E_no_space;
	kv_mutex_unlock(&db->mu);
	if (!failed || db->store.env->ops->space(db->store.dir, &all, &available))
		return 0;
	return available < kv_memtable_bytes(m) ? KV_E_no_space : 0;
}

/* Journals that no memtable lives in any more; the caller lets go of what is returned. */
static void drop_journals(struct kv_db *db)
{
	struct kv_live_journal *j;

	do {
		j = NULL;
		kv_mutex_lock(&db->mu);
		if (!kv_list_empty(&db->journals)) {
			j = kv_container_of(db->journals.next, struct kv_live_journal, link);
			if (j->number < db->state.journal_min) {
				kv_list_remove(&j->link);
				j->obsolete = true;
			} else {
				j = NULL;
			}
		}
		kv_mutex_unlock(&db->mu);
		if (j)
			kv_live_journal_unref(db, j);
	} while (j);
}

static int make_edit(struct kv_db *db, struct kv_memtable *m, struct kv_edit *edit)
{
	kv_seqno *snapshots;
	size_t n;
	int err;

	if (!kv_memtable_count(m))
		return 0;
	KV_TRY(check_space(db, m));
	KV_TRY(kv_snapshot_seqnos(db, &snapshots, &n));
	err = kv_flush_table(db, m, snapshots, n, &db->flush_segment, edit);
	free(snapshots);
	KV_TRY(err);
	KV_TRY(kv_sync_segments(db));
	err = db->store.env->ops->dir_sync(db->store.dir);
	return err ? kv_poison(db, err) : 0;
}

static int flush_memtable(struct kv_db *db, struct kv_memtable *m, kv_seqno seqno,
			  kv_fileno journal_min)
{
	struct kv_edit edit = { 0 };
	int err = make_edit(db, m, &edit);

	edit.has_journal_min = edit.has_seqno = true;
	edit.journal_min = journal_min;
	edit.seqno = seqno;
	if (!err)
		err = kv_install_flush(db, &edit);
	if (err) {
		/* A table that is finished has no owner yet. */
		for (size_t i = 0; i < edit.add_count && kv_err_passes(err); i++)
			kv_obsolete_add(db, KV_FILE_TABLE, edit.adds[i].meta.number);
	}
	kv_edit_done(&edit);
	return err;
}

/* Segments that got full in the flush, whose pointers are in tables now, or nowhere. */
static void finish_full(struct kv_db *db)
{
	while (!kv_list_empty(&db->flush_full)) {
		struct kv_live_segment *s = kv_container_of(db->flush_full.next,
							    struct kv_live_segment, flush_link);

		kv_list_remove(&s->flush_link);
		kv_live_segment_finish(db, s);
	}
}

static int finish_flush(struct kv_db *db, kv_seqno seqno, uint64_t ns_per_kib, int err)
{
	bool report = false;

	finish_full(db);
	if (!err) {
		drop_journals(db);
		kv_sync_advance(db, seqno);
		kv_count(&db->counters.flushes, 1);
	} else if (!kv_err_passes(err)) {
		err = kv_poison(db, err);
	}
	kv_mutex_lock(&db->mu);
	db->flush_running = false;
	if (!err)
		db->flush_ns_per_kib = ns_per_kib;
	report = kv_err_passes(err) && !db->flush_error;
	db->flush_error = err == KV_E_poisoned ? 0 : err;
	db->flush_failures += !!err;
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);
	if (report)
		kv_msg(&db->store.msg, KV_MSG_ERROR,
		       "%s: newest data stays in memory and journal: %s; it is tried again",
		       db->store.path, kv_err_text(err));
	return err;
}

int kv_flush_one(struct kv_db *db)
{
	struct kv_memtable *m;
	kv_fileno journal_min;
	uint64_t start, ns;
	kv_seqno seqno;
	int err;

	kv_mutex_lock(&db->mu);
	if (db->flush_running) {
		while (db->flush_running)
			kv_cond_wait(&db->done_cond, &db->mu);
		err = db->flush_error;
		kv_mutex_unlock(&db->mu);
		return err;
	}
	if (!db->imm_count) {
		kv_mutex_unlock(&db->mu);
		return 0;
	}
	db->flush_running = true;
	m = kv_memtable_ref(db->imm[0]);
	seqno = db->imm_seqno[0];
	journal_min = kv_memtable_journal_no(db->imm_count > 1 ? db->imm[1] : db->mem);
	kv_mutex_unlock(&db->mu);

	start = kv_now_ns(db);
	if (atomic_load_explicit(&db->poisoned, memory_order_acquire))
		err = KV_E_poisoned;
	else
		err = flush_memtable(db, m, seqno, journal_min);
	ns = kv_now_ns(db) - start;
	if (!err)
		kv_histogram_add(&db->latencies[KV_LATENCY_flush], ns);
	kv_event(db->log, "flush", "operations=%" PRIu64 " memtable_bytes=%" PRIu64
		 " seqno=%" PRIu64 " journal_min=%" PRIu64 " us=%" PRIu64 " result=\"%s\"",
		 kv_memtable_count(m), kv_memtable_bytes(m), seqno, journal_min, ns / 1000,
		 err ? kv_err_text(err) : "good");
	ns /= kv_memtable_bytes(m) / 1024 + 1;
	kv_memtable_unref(m);
	return finish_flush(db, seqno, ns, err);
}

/* --- asked for -------------------------------------------------------------------------------------- */

/* Waits until so many memtables have been flushed, or a flush has failed. */
static int wait_flushed(struct kv_db *db, uint64_t count)
{
	uint64_t failures;
	int err = 0;

	kv_mutex_lock(&db->mu);
	failures = db->flush_failures;
	kv_work_want_locked(db);
	while (db->imm_flushed < count && !err) {
		if (atomic_load(&db->poisoned)) {
			err = KV_E_poisoned;
		} else if (db->options.inline_work) {
			kv_mutex_unlock(&db->mu);
			err = kv_flush_one(db);
			kv_mutex_lock(&db->mu);
		} else if (db->flush_failures != failures && db->flush_error) {
			err = db->flush_error;
		} else {
			kv_cond_wait(&db->done_cond, &db->mu);
		}
	}
	kv_mutex_unlock(&db->mu);
	return err;
}

/* Makes the memtable immutable, if there is something in it. *out_count: to wait for. */
static int switch_if_any(struct kv_db *db, uint64_t *out_count) KV_REQUIRES(&db->commit_mu)
{
	int err = 0;

	for (;;) {
		uint64_t switched;
		uint32_t imm_count;

		kv_mutex_lock(&db->mu);
		switched = db->imm_switched;
		imm_count = db->imm_count;
		kv_mutex_unlock(&db->mu);
		*out_count = switched;
		if (err || !kv_memtable_count(db->mem))
			break;
		if (imm_count < KV_IMM_MAX) {
			err = kv_memtable_switch(db);
			*out_count = switched + 1;
			break;
		}
		err = wait_flushed(db, switched - imm_count + 1);
	}
	return err;
}

int kv_flush_memory(struct kv_db *db)
{
	uint64_t count;
	int err;

	kv_mutex_lock(&db->commit_mu);
	err = switch_if_any(db, &count);
	kv_mutex_unlock(&db->commit_mu);
	return err ? err : wait_flushed(db, count);
}

int kv_flush_memory_held(struct kv_db *db)
{
	uint64_t count;

	KV_TRY(switch_if_any(db, &count));
	return wait_flushed(db, count);
}

/* The segment of the writers ends, too: until it is sealed, nothing in it can be given back. */
static void end_segment(struct kv_db *db)
{
	kv_mutex_lock(&db->commit_mu);
	if (db->segment &&
	    kv_segment_bytes(db->segment->writer) > sizeof(struct kv_file_header)) {
		kv_live_segment_finish(db, db->segment);
		db->segment = NULL;
	}
	kv_mutex_unlock(&db->commit_mu);
}

int kv_flush(struct kv_db *db)
{
	if (db->options.read_only)
		return KV_E_read_only;
	if (atomic_load_explicit(&db->poisoned, memory_order_acquire))
		return KV_E_poisoned;
	end_segment(db);
	KV_TRY(kv_flush_memory(db));
	if (db->options.inline_work)
		kv_work_schedule(db);
	return 0;
}
