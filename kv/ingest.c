/*
 * A sorted run is taken in: its keys go to tables, its larger values to segments of their own, and one
 * edit puts all of it into the store.
 *
 * Its operations are to be newer than everything at the moment of the commit, but are written
 * long before. So they get numbers that lie far ahead, SEQNO_AHEAD beyond the present; until the commit no
 * batch, and no snapshot, can reach those. The commit makes them the present, and numbers go on
 * from there. All entries of a table have the same number, and each table its own.
 *
 * The commit stops the writers, flushes what is in memory, and finds for each table the deepest level
 * where it goes in between: nothing that it overlaps may lie at that level or above (K13). A running
 * compaction counts with all that lies between its inputs, where it may write to; and none is chosen until
 * the tables are in. The numbers are published last: so who reads sees all or nothing.
 *
 * CRASH: tables, segments and their names are durable before the edit (K5); segments were registered
 * when they were made (K4). Stop before the edit: tables that nothing names, which the
 * next opening deletes, and segments that nothing refers to, which are dropped. Stop behind it: all
 * is there. The edit makes the last number that of the run, while the present journal knows a smaller one;
 * it is empty then, since the memtable is (recover.c).
 */
#include <inttypes.h>

#include "kv/arena.h"
#include "kv/compact.h"
#include "kv/compress.h"
#include "kv/separate.h"

#define SEQNO_AHEAD ((kv_seqno)1 << 30)
/* The other half is for batches. */
#define SEQNO_MAX (KV_SEQNO_MAX / 2)
/* What names its tables must fit in one edit, and stay small beside all others. */
#define EDIT_BYTES_MAX (KV_CHUNK_PAYLOAD_MAX / 4)

struct kv_ingest {
	struct kv_db *db;
	kv_seqno seqno;			/* of the table that is being written */
	int error;			/* kept: nothing is taken any more */
	struct kv_space_look space;
	uint64_t entries;

	struct kv_arena arena;		/* what the separator holds back */
	struct kv_buf ikey;		/* of the entry before */
	struct kv_separator *separator;
	struct kv_sst_build *build;	/* NULL before its first entry */
	struct kv_live_segment *segment;
	struct kv_link full;
	struct kv_edit edit;		/* the tables that are finished */
	uint64_t edit_bytes;

	kv_fileno *segments;		/* under db->mu: left, and maybe sealed already; ascending */
	size_t segment_count, segment_count_max;
};

/* --- beginning and ending ---------------------------------------------------------------- */

/* Nobody else takes numbers that far ahead, since there is only one. */
static int take_turn(struct kv_ingest *in)
{
	struct kv_db *db = in->db;
	int err = 0;

	kv_mutex_lock(&db->commit_mu);
	in->seqno = db->seqno_last + SEQNO_AHEAD;
	kv_mutex_lock(&db->mu);
	if (db->ingest)
		err = -EBUSY;
	else if (in->seqno > SEQNO_MAX)
		err = -EOVERFLOW;
	else
		db->ingest = in;
	kv_mutex_unlock(&db->mu);
	kv_mutex_unlock(&db->commit_mu);
	return err;
}

static void give_turn(struct kv_ingest *in)
{
	struct kv_db *db = in->db;

	kv_mutex_lock(&db->mu);
	if (db->ingest == in)
		db->ingest = NULL;
	/* Segments may have become garbage by this. */
	kv_work_want_locked(db);
	kv_mutex_unlock(&db->mu);
}

static int ingest_init(struct kv_ingest *in)
{
	const struct kv_options *o = &in->db->options;

	kv_list_init(&in->full);
	kv_arena_init(&in->arena);
	/* Files take their space in steps, and writers may fill what they see left meanwhile. */
	in->space.low = true;	/* looks at once */
	in->space.margin = kv_allocate_bytes(o->segment_bytes) + o->memtable_bytes / 8;
	in->separator = kv_separator_new(in->db, &in->segment, &in->full, true);
	return in->separator ? take_turn(in) : -ENOMEM;
}

int kv_ingest_new(struct kv_db *db, struct kv_ingest **out_ingest)
{
	struct kv_ingest *in;
	int err;

	if (db->options.read_only)
		return KV_E_read_only;
	if (atomic_load_explicit(&db->poisoned, memory_order_acquire))
		return KV_E_poisoned;
	in = calloc(1, sizeof(*in));
	if (!in)
		return -ENOMEM;
	in->db = db;
	err = ingest_init(in);
	if (err) {
		kv_ingest_free(in);
		return err;
	}
	*out_ingest = in;
	return 0;
}

/*
 * The edit is emptied when it has happened, or may have. What is still in it is
 * named nowhere: what can't be removed now is removed by the next opening.
 */
static void remove_tables(struct kv_ingest *in)
{
	for (size_t i = 0; i < in->edit.add_count; i++)
		(void)kv_store_unlink(&in->db->store, KV_FILE_TABLE, in->edit.adds[i].meta.number);
}

/* Whether tables refer to them, or nothing does. */
static void finish_segments(struct kv_ingest *in)
{
	while (!kv_list_empty(&in->full)) {
		struct kv_live_segment *s = kv_container_of(in->full.next, struct kv_live_segment,
							    flush_link);

		kv_list_remove(&s->flush_link);
		kv_live_segment_finish(in->db, s);
	}
	kv_live_segment_finish(in->db, in->segment);
	in->segment = NULL;
}

void kv_ingest_free(struct kv_ingest *in)
{
	struct kv_db *db;

	if (!in)
		return;
	db = in->db;
	kv_sst_build_free(in->build);
	remove_tables(in);
	finish_segments(in);
	give_turn(in);
	kv_separator_free(in->separator);
	kv_arena_done(&in->arena);
	kv_buf_done(&in->ikey);
	kv_edit_done(&in->edit);
	free(in->segments);
	free(in);
	kv_work_schedule(db);
}

/* --- segments that were left ----------------------------------------------------------------- */

bool kv_ingest_needs_locked(struct kv_db *db, kv_fileno segment_no)
{
	const struct kv_ingest *in = db->ingest;
	size_t low = 0, high = in ? in->segment_count : 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (in->segments[mid] == segment_no)
			return true;
		if (in->segments[mid] < segment_no)
			low = mid + 1;
		else
			high = mid;
	}
	return false;
}

static int note_segment_locked(struct kv_ingest *in, kv_fileno number)
	KV_REQUIRES(&in->db->mu)
{
	if (in->segment_count == in->segment_count_max) {
		size_t max = in->segment_count_max ? 2 * in->segment_count_max : 16;
		kv_fileno *at = realloc(in->segments, max * sizeof(*at));

		if (!at)
			return -ENOMEM;
		in->segments = at;
		in->segment_count_max = max;
	}
	in->segments[in->segment_count++] = number;
	return 0;
}

static int sync_segment(struct kv_ingest *in, struct kv_live_segment *s)
{
	int err = kv_segment_sync(s->writer);

	return err ? kv_poison(in->db, err) : 0;
}

/* Full segments are not kept open until the commit: only that they are needed is kept in mind. */
static int leave_full(struct kv_ingest *in)
{
	struct kv_db *db = in->db;
	bool any = !kv_list_empty(&in->full);

	while (!kv_list_empty(&in->full)) {
		struct kv_live_segment *s = kv_container_of(in->full.next, struct kv_live_segment,
							    flush_link);
		int err;

		KV_TRY(sync_segment(in, s));
		kv_mutex_lock(&in->db->mu);
		err = note_segment_locked(in, s->number);
		kv_mutex_unlock(&in->db->mu);
		if (err)
			return err;
		kv_list_remove(&s->flush_link);
		kv_live_segment_finish(db, s);
	}
	if (any && db->options.inline_work)
		kv_work_schedule(db);
	return 0;
}

/* --- tables ---------------------------------------------------------------------------------- */

static int finish_table(struct kv_ingest *in)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta meta = { 0 };
	int err;

	if (!in->build)
		return 0;
	KV_TRY(kv_separator_flush(in->separator, in->build));
	kv_arena_reset(&in->arena);
	KV_TRY(leave_full(in));
	KV_TRY(kv_sst_build_finish(in->build, &meta));
	err = kv_edit_add_table(&in->edit, 0, &meta);
	if (err) {
		(void)kv_store_unlink(&in->db->store, KV_FILE_TABLE, meta.number);
		return err;
	}
	kv_sst_build_free(in->build);
	in->build = NULL;
	in->seqno++;
	in->edit_bytes += 128 + meta.smallest.bytes + meta.largest.bytes +
			  meta.ref_count * sizeof(*meta.refs);
	kv_count(&in->db->counters.ingest_bytes, meta.file_bytes);
	return in->edit_bytes > EDIT_BYTES_MAX ? KV_E_too_big : 0;
}

/* Copies the value, compressed if it goes to a segment. */
static int keep_value(struct kv_ingest *in, struct kv_slice value, enum kv_hint hint,
		      struct kv_slice *out, enum kv_kind *out_kind)
{
	const struct kv_options *o = &in->db->options;
	uint8_t *at = kv_arena_alloc(&in->arena, value.bytes);
	size_t packed = 0;

	if (!at)
		return -ENOMEM;
	if (value.bytes >= o->medium_bytes && !o->no_compression && hint != KV_HINT_INCOMPRESSIBLE)
		packed = kv_packed_make(KV_CODEC_LZ4, value, at);
	if (!packed && value.bytes)
		memcpy(at, value.data, value.bytes);
	*out = kv_slice(at, packed ? packed : value.bytes);
	*out_kind = packed ? KV_KIND_PUT_PACKED : KV_KIND_PUT;
	return 0;
}

static int put(struct kv_ingest *in, struct kv_slice key, struct kv_slice value, enum kv_hint hint)
{
	struct kv_slice kept, kept_key;
	enum kv_kind kind;
	uint8_t *at;

	if (kv_space_is_low(in->db, &in->space, key.bytes + value.bytes))
		return KV_E_no_space;
	if (!in->build)
		KV_TRY(kv_table_build_new(in->db, kv_fileno_take(in->db), KV_LEVELS - 1,
					  &in->build));
	KV_TRY(keep_value(in, value, hint, &kept, &kind));
	KV_TRY(kv_ikey_make(&in->ikey, key, in->seqno, kind));
	at = kv_arena_alloc(&in->arena, in->ikey.bytes);
	if (!at)
		return -ENOMEM;
	memcpy(at, in->ikey.data, in->ikey.bytes);
	kept_key = kv_slice(at, in->ikey.bytes);
	KV_TRY(kv_separator_add(in->separator, in->build, kept_key, kept));
	in->entries++;
	if (!kv_separator_holds(in->separator)) {
		kv_arena_reset(&in->arena);
		KV_TRY(leave_full(in));
	}
	if (kv_sst_build_bytes(in->build) + kv_separator_bytes(in->separator) >=
	    in->db->options.table_bytes)
		return finish_table(in);
	return 0;
}

int kv_ingest_put(struct kv_ingest *in, struct kv_slice key, struct kv_slice value,
		  enum kv_hint hint)
{
	if (in->error)
		return in->error;
	if (key.bytes > KV_KEY_BYTES_MAX || value.bytes > KV_VALUE_BYTES_MAX)
		return KV_E_too_big;
	if (!key.bytes || (in->entries && kv_slice_cmp(kv_ikey_user(kv_buf_slice(&in->ikey)),
						       key) >= 0))
		return -EINVAL;
	if (atomic_load_explicit(&in->db->poisoned, memory_order_acquire))
		return KV_E_poisoned;
	in->error = kv_err_space(put(in, key, value, hint));
	return in->error;
}

/* --- the commit ------------------------------------------------------------------------------ */

/* Tables, segments and their names are durable on return. */
static int finish_files(struct kv_ingest *in)
{
	int err;

	KV_TRY(finish_table(in));
	KV_TRY(leave_full(in));
	if (in->segment)
		KV_TRY(sync_segment(in, in->segment));
	err = in->db->store.env->ops->dir_sync(in->db->store.dir);
	return err ? kv_poison(in->db, err) : 0;
}

/* Adds to the span what lies around the busy tables of the level. */
static void join_busy(const struct kv_level *l, struct kv_span *span, bool *any)
{
	for (size_t i = 0; i < l->count; i++) {
		if (!l->tables[i]->busy)
			continue;
		*span = *any ? kv_span_join(*span, kv_table_span(l->tables[i])) :
			       kv_table_span(l->tables[i]);
		*any = true;
	}
}

/* May a running compaction write to the span, on this level? Its inputs lie there, or above. */
static bool is_at_work_locked(struct kv_db *db, int level, struct kv_span s) KV_REQUIRES(&db->mu)
{
	const struct kv_version *v = db->version;
	struct kv_span span = { 0 };
	bool any = false;

	join_busy(&v->levels[level - 1], &span, &any);
	join_busy(&v->levels[level], &span, &any);
	return any && kv_span_overlaps(span, s);
}

/* The deepest level down to which the span overlaps nothing; 0 always takes it. */
static int place_locked(struct kv_db *db, struct kv_span s) KV_REQUIRES(&db->mu)
{
	const struct kv_version *v = db->version;
	size_t first;
	int level = 0;

	for (size_t i = 0; i < v->levels[0].count; i++)
		if (kv_span_overlaps(kv_table_span(v->levels[0].tables[i]), s))
			return 0;
	while (level + 1 < KV_LEVELS && !kv_level_span(&v->levels[level + 1], s, &first) &&
	       !is_at_work_locked(db, level + 1, s))
		level++;
	return level;
}

static void place_tables_locked(struct kv_ingest *in) KV_REQUIRES(&in->db->mu)
{
	for (size_t i = 0; i < in->edit.add_count; i++) {
		struct kv_edit_table *t = &in->edit.adds[i];

		t->level = place_locked(in->db, (struct kv_span){
			.begin = kv_ikey_user(kv_buf_slice(&t->meta.smallest)),
			.end = kv_ikey_user(kv_buf_slice(&t->meta.largest)),
		});
	}
}

/* The version has the tables; with their numbers published they are seen, all in one moment. */
static void publish(struct kv_ingest *in) KV_REQUIRES(&in->db->commit_mu)
{
	struct kv_db *db = in->db;

	db->seqno_last = in->edit.seqno;
	kv_counter_cache_free(db->counter_cache);
	db->counter_cache = NULL;
	atomic_store_explicit(&db->seqno_published, db->seqno_last, memory_order_release);
	kv_sync_advance(db, db->seqno_last);
}

static int install(struct kv_ingest *in) KV_REQUIRES(&in->db->commit_mu)
{
	struct kv_db *db = in->db;
	int err;

	if (db->seqno_last >= in->edit.adds[0].meta.seqno_min)
		return -EOVERFLOW;
	in->edit.has_seqno = true;
	in->edit.seqno = in->seqno - 1;	/* of the last table */
	kv_mutex_lock(&in->db->mu);
	/* Replay begins with the present journal, and it is empty. */
	KV_ASSERT(!db->imm_count && db->state.journal_min == db->journal->number);
	db->placing = true;
	place_tables_locked(in);
	kv_mutex_unlock(&in->db->mu);

	err = kv_install(db, &in->edit);
	if (!err)
		publish(in);
	kv_mutex_lock(&db->mu);
	db->placing = false;
	kv_work_want_locked(db);
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);
	return err;
}

/* What is in memory is older: it goes first, most of it while others may still write. */
static int flush_and_install(struct kv_ingest *in)
{
	int err;

	KV_TRY(kv_flush_memory(in->db));
	kv_mutex_lock(&in->db->commit_mu);
	err = kv_flush_memory_held(in->db);
	if (!err)
		err = install(in);
	kv_mutex_unlock(&in->db->commit_mu);
	return err;
}

static int commit(struct kv_ingest *in)
{
	if (atomic_load_explicit(&in->db->poisoned, memory_order_acquire))
		return KV_E_poisoned;
	KV_TRY(finish_files(in));
	if (!in->edit.add_count)
		return 0;
	KV_TRY(kv_level0_wait(in->db));
	return flush_and_install(in);
}

static void report(struct kv_ingest *in, uint64_t start_ns)
{
	struct kv_db *db = in->db;
	int level_min = KV_LEVELS - 1;

	kv_count(&db->counters.ingests, 1);
	for (size_t i = 0; i < in->edit.add_count; i++)
		level_min = KV_MIN(level_min, in->edit.adds[i].level);
	kv_event(db->log, "ingest", "keys=%" PRIu64 " tables=%zu segments=%zu level_min=%d seqno=%"
		 PRIu64 " us=%" PRIu64, in->entries, in->edit.add_count,
		 in->segment_count + !!in->segment, level_min, in->seqno - 1,
		 (kv_now_ns(db) - start_ns) / 1000);
	kv_msg(&db->store.msg, KV_MSG_INFO, "%s: took in %" PRIu64 " keys, in %zu tables",
	       db->store.path, in->entries, in->edit.add_count);
}

int kv_ingest_commit(struct kv_ingest *in)
{
	uint64_t start = kv_now_ns(in->db);

	if (in->error)
		return in->error;
	in->error = kv_err_space(commit(in));
	if (!in->error)
		report(in, start);
	/* With the store poisoned the edit may be durable nevertheless, and the tables must stay. */
	if (!in->error || in->error == KV_E_poisoned)
		kv_edit_done(&in->edit);
	if (in->error)
		return in->error;
	in->error = -EINVAL;	/* it is over */
	finish_segments(in);
	kv_work_schedule(in->db);
	return 0;
}
