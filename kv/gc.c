/*
 * Garbage in the value log. How much a version's tables refer to in each
 * segment is exact (struct kv_version_segment), so nothing is searched for.
 *
 * Garbage of a sealed segment is its size less what tables refer to in it. When there is much,
 * a collection (gc_move.c) copies what is alive in the worst segments to a new one, and writes all tables
 * anew that refer to them. Values that only a memtable hides still count as alive, and
 * what several keys share counts more than once: so garbage may be underestimated, never
 * overestimated. A segment that a memtable refers to is left until that is flushed, since a memtable's
 * pointers can't be changed.
 *
 * A batch may copy a pointer into a victim (put_part) while the collection runs. Then a memtable
 * refers to it, and the segment stays, with the little that is left in it, until a later collection.
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
#include "kv/gc.h"

#include <inttypes.h>
#include <stdlib.h>

#define GARBAGE_PERCENT 50		/* a segment with so much of it is collected */
#define STORE_GARBAGE_PERCENT 25	/* and with so much in all segments together ... */
#define STORE_SEGMENT_PERCENT 20	/* ... the worst from here on */
#define ASKED_PERCENT 3			/* and whatever the others have: once, when the caller compacts all */
#define GARBAGE_BYTES_MIN (64 * KV_KIB)	/* of a segment; less isn't worth the files */
#define LIVE_BYTES_MAX (128 * KV_MIB)	/* copied by one run, about; a single segment always may be */
#define SKIP_PERCENT 10			/* one that was left alone is tried again with so much less alive */

#define BACKOFF_NS_MIN ((uint64_t)1000000000)
#define BACKOFF_NS_MAX ((uint64_t)60000000000)

/* --- dropping ------------------------------------------------------------------------------- */

static bool in_memtable_locked(struct kv_db *db, kv_fileno number) KV_REQUIRES(&db->mu)
{
	if (kv_memtable_refers(db->mem, number))
		return true;
	for (uint32_t i = 0; i < db->imm_count; i++)
		if (kv_memtable_refers(db->imm[i], number))
			return true;
	return false;
}

/* Does anything that isn't in a table yet need the segment? */
static bool is_needed_locked(struct kv_db *db, kv_fileno number) KV_REQUIRES(&db->mu)
{
	if (in_memtable_locked(db, number) || kv_ingest_needs_locked(db, number))
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
	kv_event(db->log, "drop", "segments=%zu first=%" PRIu64, edit.segment_delete_count,
		 edit.segment_deletes[0].number);
	kv_msg(&db->store.msg, KV_MSG_INFO, "dropped %zu segments of the value log",
	       edit.segment_delete_count);
	*out_did = true;
	return 0;
}

/* --- choosing ------------------------------------------------------------------------------- */

/*
 * A segment that a run could not empty: a value in it is damaged, or the copy
 * would not have been smaller. Not tried again before much less in it is alive.
 */
struct kv_gc_skip {
	kv_fileno number;
	uint64_t referenced_bytes;	/* back then */
};

struct candidate {
	const struct kv_version_segment *s;
	uint64_t garbage;
};

static uint64_t garbage_bytes(const struct kv_version_segment *s)
{
	uint64_t used = s->referenced_bytes + sizeof(struct kv_file_header);

	return s->bytes > used ? s->bytes - used : 0;
}

/* At least so many percent? */
static bool is_part(uint64_t part, uint64_t whole, uint32_t percent)
{
	return part >= whole / 100 * percent + whole % 100 * percent / 100;
}

static bool is_skipped(const struct kv_db *db, const struct kv_version_segment *s)
{
	for (size_t i = 0; i < db->gc_skip_count; i++)
		if (db->gc_skip[i].number == s->number)
			return s->referenced_bytes + s->bytes / 100 * SKIP_PERCENT >=
			       db->gc_skip[i].referenced_bytes;
	return false;
}

static uint64_t garbage_bytes_min(const struct kv_db *db)
{
	return KV_MIN(GARBAGE_BYTES_MIN, db->options.segment_bytes / 8);
}

static bool is_candidate_locked(struct kv_db *db, const struct kv_version_segment *s)
	KV_REQUIRES(&db->mu)
{
	uint64_t garbage = garbage_bytes(s);

	if (!s->sealed || !s->table_count || is_skipped(db, s))
		return false;
	return db->gc_asked ? garbage && is_part(garbage, s->bytes, ASKED_PERCENT) :
			      garbage >= garbage_bytes_min(db) &&
				      is_part(garbage, s->bytes, STORE_SEGMENT_PERCENT);
}

/* Most garbage first, in proportion. */
static int cmp_candidates(const void *pa, const void *pb)
{
	const struct candidate *a = pa, *b = pb;
	double x = (double)a->garbage / (double)a->s->bytes;
	double y = (double)b->garbage / (double)b->s->bytes;

	if (x != y)
		return x > y ? -1 : 1;
	return (a->s->number > b->s->number) - (a->s->number < b->s->number);
}

/* All segments that may be collected now, sorted; none when there is too little garbage to begin. */
static size_t find_candidates_locked(struct kv_db *db, struct candidate *out)
	KV_REQUIRES(&db->mu)
{
	const struct kv_version *v = db->version;
	uint64_t bytes = 0, garbage = 0;
	uint32_t percent = GARBAGE_PERCENT;
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < v->segment_count; i++) {
		const struct kv_version_segment *s = &v->segments[i];
		bool candidate = is_candidate_locked(db, s);

		/* What memtables refer to in it isn't in the sum, so there is no saying how much is garbage. */
		if (!s->sealed || !s->table_count || (candidate && is_needed_locked(db, s->number)))
			continue;
		bytes += s->bytes;
		garbage += garbage_bytes(s);
		if (candidate)
			out[n++] = (struct candidate){ s, garbage_bytes(s) };
	}
	if (db->gc_asked || is_part(garbage, bytes, STORE_GARBAGE_PERCENT))
		percent = 0; /* all that are candidates */
	for (size_t i = 0; i < n; i++)
		if (is_part(out[i].garbage, out[i].s->bytes, percent))
			out[kept++] = out[i];
	if (kept)
		qsort(out, kept, sizeof(*out), cmp_candidates);
	return kept;
}

static bool refers(const struct kv_table *t, kv_fileno segment_no)
{
	size_t low = 0, high = t->meta.ref_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (t->meta.refs[mid].segment_no < segment_no)
			low = mid + 1;
		else
			high = mid;
	}
	return low < t->meta.ref_count && t->meta.refs[low].segment_no == segment_no;
}

static bool refers_to_any(const struct kv_table *t, const kv_fileno *segments, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (refers(t, segments[i]))
			return true;
	return false;
}

/* Is one of its tables an input of a compaction? */
static bool is_busy_locked(struct kv_db *db, kv_fileno segment_no) KV_REQUIRES(&db->mu)
{
	for (int level = 0; level < KV_LEVELS; level++) {
		const struct kv_level *l = &db->version->levels[level];

		for (size_t i = 0; i < l->count; i++)
			if (l->tables[i]->busy && refers(l->tables[i], segment_no))
				return true;
	}
	return false;
}

static void choose_victims_locked(struct kv_gc_run *r, const struct candidate *c, size_t n)
	KV_REQUIRES(&r->db->mu)
{
	/* When space is short, as little as possible is needed before some is gained. */
	size_t max = r->db->gc_error ? 1 : KV_GC_VICTIMS_MAX;

	for (size_t i = 0; i < n && r->victim_count < max; i++) {
		uint64_t live = c[i].s->referenced_bytes;

		if (r->victim_count && r->live_bytes + live > LIVE_BYTES_MAX)
			continue;
		if (is_busy_locked(r->db, c[i].s->number))
			continue;
		r->victims[r->victim_count++] = c[i].s->number;
		r->victim_bytes += c[i].s->bytes;
		r->live_bytes += live;
	}
}

static int cmp_gc_tables(const void *pa, const void *pb)
{
	const struct kv_gc_table *a = pa, *b = pb;
	int c = kv_ikey_cmp(kv_buf_slice(&a->table->meta.smallest),
			    kv_buf_slice(&b->table->meta.smallest));

	return c ? c : (a->level > b->level) - (a->level < b->level);
}

static int claim_locked(struct kv_gc_run *r) KV_REQUIRES(&r->db->mu)
{
	const struct kv_version *v = r->db->version;
	size_t max = 0;

	for (int level = 0; level < KV_LEVELS; level++)
		max += v->levels[level].count;
	r->tables = malloc((max + 1) * sizeof(*r->tables));
	if (!r->tables)
		return -ENOMEM;
	for (int level = 0; level < KV_LEVELS; level++)
		for (size_t i = 0; i < v->levels[level].count; i++) {
			struct kv_table *t = v->levels[level].tables[i];

			if (refers_to_any(t, r->victims, r->victim_count))
				r->tables[r->table_count++] = (struct kv_gc_table){ t, level };
		}
	if (r->table_count)
		qsort(r->tables, r->table_count, sizeof(*r->tables), cmp_gc_tables);
	for (size_t i = 0; i < r->table_count; i++) {
		KV_ASSERT(!r->tables[i].table->busy);
		r->tables[i].table->busy = true;
	}
	r->version = kv_version_ref(r->db->version);
	r->db->gc_running = true;
	return 0;
}

static int choose_locked(struct kv_gc_run *r) KV_REQUIRES(&r->db->mu)
{
	struct kv_db *db = r->db;
	struct candidate *c;
	size_t n;

	/* Who compacts by hand goes by the numbers of tables, and would miss those written here. */
	if (db->compacting_by_hand || !db->version->segment_count)
		return 0;
	c = malloc(db->version->segment_count * sizeof(*c));
	if (!c)
		return -ENOMEM;
	n = find_candidates_locked(r->db, c);
	db->gc_asked = db->gc_asked && n;
	choose_victims_locked(r, c, n);
	free(c);
	return r->victim_count ? claim_locked(r) : 0;
}

/* --- collecting ----------------------------------------------------------------------------- */

static void run_done(struct kv_gc_run *r)
{
	struct kv_db *db = r->db;

	kv_mutex_lock(&db->mu);
	if (r->version) {
		for (size_t i = 0; i < r->table_count; i++)
			r->tables[i].table->busy = false;
		db->gc_running = false;
		kv_cond_broadcast(&db->done_cond);
	}
	kv_mutex_unlock(&db->mu);
	free(r->tables);
	if (r->version)
		kv_version_unref(r->version);
}

/* If memory is short it isn't remembered, and found out again. */
static void skip(struct kv_db *db, const struct kv_version *v, kv_fileno number)
{
	const struct kv_version_segment *s = kv_version_segment(v, number);
	struct kv_gc_skip *at = db->gc_skip;
	size_t kept = 0;

	/* Those that are gone need not be remembered any more. */
	for (size_t i = 0; i < db->gc_skip_count; i++)
		if (at[i].number != number && kv_version_segment(v, at[i].number))
			at[kept++] = at[i];
	db->gc_skip_count = kept;
	at = s ? realloc(at, (kept + 1) * sizeof(*at)) : NULL;
	if (!at)
		return;
	at[kept] = (struct kv_gc_skip){ number, s->referenced_bytes };
	db->gc_skip = at;
	db->gc_skip_count++;
}

static void skip_victims(struct kv_gc_run *r)
{
	for (size_t i = 0; i < r->victim_count; i++)
		if (!r->damaged || !r->damaged_no || r->victims[i] == r->damaged_no)
			skip(r->db, r->version, r->victims[i]);
}

/* Beforehand, since what is given up halfway has cost as much as what is done. */
static int check_space(struct kv_gc_run *r)
{
	uint64_t all, available, needed = r->live_bytes;

	for (size_t i = 0; i < r->table_count; i++)
		needed += r->tables[i].table->meta.file_bytes;
	if (r->db->store.env->ops->space(r->db->store.dir, &all, &available))
		return 0;
	return available < needed ? KV_E_no_space : 0;
}

static bool is_backing_off(struct kv_db *db)
{
	uint64_t now = db->store.env->ops->monotonic_ns(db->store.env);
	bool waits;

	kv_mutex_lock(&db->mu);
	waits = db->gc_error && now < db->gc_retry_ns;
	kv_mutex_unlock(&db->mu);
	return waits;
}

/* A failure that can pass is reported once, and tried again less and less often. */
static void set_result(struct kv_db *db, int err)
{
	uint64_t now = db->store.env->ops->monotonic_ns(db->store.env);
	bool report;

	kv_mutex_lock(&db->mu);
	report = err && !db->gc_error;
	db->gc_error = err;
	if (!err)
		db->gc_backoff_ns = 0;
	else
		db->gc_backoff_ns = KV_MIN(KV_MAX(2 * db->gc_backoff_ns, BACKOFF_NS_MIN),
					   BACKOFF_NS_MAX);
	db->gc_retry_ns = now + db->gc_backoff_ns;
	kv_mutex_unlock(&db->mu);
	if (report)
		kv_msg(&db->store.msg, KV_MSG_WARN,
		       "%s: cannot collect garbage: %s; it is tried again", db->store.path,
		       kv_err_text(err));
}

static void report_run(const struct kv_gc_run *r, uint64_t start_ns)
{
	kv_event(r->db->log, "collect", "segments=%zu first=%" PRIu64 " bytes=%" PRIu64
		 " copied_bytes=%" PRIu64 " tables=%zu us=%" PRIu64, r->victim_count,
		 r->victims[0], r->victim_bytes, r->copied_bytes, r->table_count,
		 (kv_now_ns(r->db) - start_ns) / 1000);
	kv_count(&r->db->counters.gc_runs, 1);
	kv_count(&r->db->counters.gc_copied_bytes, r->copied_bytes);
	kv_msg(&r->db->store.msg, KV_MSG_INFO,
	       "%s: collected garbage in %zu segments of %" PRIu64 " bytes: copied %" PRIu64
	       ", wrote %zu tables anew", r->db->store.path, r->victim_count, r->victim_bytes,
	       r->copied_bytes, r->table_count);
}

/* *out_did: there may be more to do. A failure that can pass is not returned, but kept. */
static int collect(struct kv_db *db, bool *out_did)
{
	KV_AUTO(run_done) struct kv_gc_run r = { .db = db };
	uint64_t start = kv_now_ns(db);
	bool moved = false;
	int err;

	if (is_backing_off(db))
		return 0;
	kv_mutex_lock(&r.db->mu);
	err = choose_locked(&r);
	kv_mutex_unlock(&r.db->mu);
	if (!err && !r.victim_count) {
		set_result(db, 0);
		return 0;
	}
	if (!err)
		err = check_space(&r);
	if (!err)
		err = kv_gc_move(&r, &moved);
	if (err == KV_E_poisoned)
		return err;
	if (moved) {
		kv_latency_add(db, KV_LATENCY_collect, start);
		report_run(&r, start);
	}
	if (r.damaged || r.useless) {
		skip_victims(&r);
		err = 0;
	}
	set_result(db, err);
	*out_did = !err && !r.stopped;
	return 0;
}

/*
 * The thread that flushes must not come here: a batch that holds parts_lock may be waiting
 * for a flush.
 */
int kv_gc_one(struct kv_db *db, bool *out_did)
{
	*out_did = false;
	KV_TRY(drop_dead(db, out_did));
	return *out_did ? 0 : collect(db, out_did);
}

/* --- when it is quiet ----------------------------------------------------------------------- */

/* Much of what it holds is garbage, and no memtable refers to it. */
static bool is_rotten_locked(struct kv_db *db, const struct kv_live_segment *s)
	KV_REQUIRES(&db->mu)
{
	const struct kv_version_segment *v = kv_version_segment(db->version, s->number);
	uint64_t bytes = kv_segment_bytes(s->writer), used;

	if (!v || in_memtable_locked(db, s->number))
		return false;
	used = v->referenced_bytes + sizeof(struct kv_file_header);
	return bytes > used && bytes - used >= garbage_bytes_min(db) &&
	       is_part(bytes - used, bytes, STORE_SEGMENT_PERCENT);
}

bool kv_gc_close_segments(struct kv_db *db)
{
	struct kv_live_segment *bulk = NULL, *medium = NULL;

	kv_mutex_lock(&db->mu);
	if (db->segment && is_rotten_locked(db, db->segment)) {
		bulk = db->segment;
		db->segment = NULL;
	}
	if (!db->flush_running && db->flush_segment && is_rotten_locked(db, db->flush_segment)) {
		medium = db->flush_segment;
		db->flush_segment = NULL;
	}
	kv_mutex_unlock(&db->mu);
	kv_live_segment_finish(db, bulk);
	kv_live_segment_finish(db, medium);
	return bulk || medium;
}
