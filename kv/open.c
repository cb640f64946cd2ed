/*
 * Creating, opening and closing a store.
 *
 * CRASH: opening for writing changes the store in one step. Before it, whatever
 * was replayed has become tables, the segments that it points into are synced,
 * and a new journal and a new manifest are durable; the step is the root's
 * pointing to that manifest (K6). Stop before it: the next opening finds the
 * store as it was, and some files that nothing names. Stop behind it: it finds
 * the result, and some files that nothing names any more. A torn tail is never
 * appended to, since nothing old is. Creating is the same with nothing to begin
 * with: a directory is a store from the moment it has a root.
 */
#include "kv/open.h"

#include <inttypes.h>

#include "kv/pool.h"
#include "kv/recover.h"

#define OPEN_FILES_MAX 512	/* tables and segments that are kept open unused */
/* Files that nothing names are deleted at once up to a burst, and then at this rate. */
#define DELETE_BYTES_PER_SECOND (1 * KV_GIB)
#define DELETE_BURST_BYTES (1 * KV_GIB)

/* --- the struct --------------------------------------------------------------------------------- */

static void locks_init(struct kv_db *db)
{
	kv_mutex_init(&db->names_mu);
	kv_mutex_init(&db->inline_mu);
	kv_mutex_init(&db->commit_mu);
	kv_mutex_init(&db->queue_mu);
	kv_mutex_init(&db->sync_mu);
	kv_cond_init(&db->sync_cond);
	kv_rwlock_init(&db->parts_lock);
	kv_mutex_init(&db->install_mu);
	kv_mutex_init(&db->mu);
	kv_cond_init(&db->work_cond);
	kv_cond_init(&db->done_cond);
	kv_mutex_init(&db->obsolete_mu);
	kv_list_init(&db->queue);
	kv_list_init(&db->durable_queue);
	kv_list_init(&db->flush_full);
	kv_list_init(&db->snapshots);
	kv_list_init(&db->journals);
	kv_list_init(&db->segments);
	kv_list_init(&db->obsolete);
}

static void locks_done(struct kv_db *db)
{
	kv_mutex_done(&db->names_mu);
	kv_mutex_done(&db->inline_mu);
	kv_mutex_done(&db->commit_mu);
	kv_mutex_done(&db->queue_mu);
	kv_mutex_done(&db->sync_mu);
	kv_cond_done(&db->sync_cond);
	kv_rwlock_done(&db->parts_lock);
	kv_mutex_done(&db->install_mu);
	kv_mutex_done(&db->mu);
	kv_cond_done(&db->work_cond);
	kv_cond_done(&db->done_cond);
	kv_mutex_done(&db->obsolete_mu);
}

/* What is being written: just let go of. */
static void live_done(struct kv_db *db)
{
	kv_list_for_each_safe(l, &db->flush_full)
		kv_live_segment_unref(kv_container_of(l, struct kv_live_segment, flush_link));
	kv_live_segment_unref(db->segment);
	kv_live_segment_unref(db->flush_segment);
	kv_live_segment_unref(db->segment_next);
	kv_list_for_each_safe(l, &db->segments)
		kv_live_segment_unref(kv_container_of(l, struct kv_live_segment, link));
	kv_live_journal_unref(db, db->journal_next);
	kv_list_for_each_safe(l, &db->journals)
		kv_live_journal_unref(db, kv_container_of(l, struct kv_live_journal, link));
}

static void memory_done(struct kv_db *db)
{
	kv_readstate_unref((struct kv_readstate *)(uintptr_t)atomic_load(&db->readstate));
	kv_memtable_unref(db->mem);
	for (uint32_t i = 0; i < db->imm_count; i++)
		kv_memtable_unref(db->imm[i]);
	kv_counter_cache_free(db->counter_cache);
	for (int i = 0; i < KV_LEVELS; i++)
		kv_buf_done(&db->compact_pointer[i]);
	free(db->dying);
	free(db->gc_skip);
	kv_version_unref(db->version);
	if (db->cache)
		kv_cache_charge(db->cache, -(int64_t)db->version_charged);
}

void kv_db_free(struct kv_db *db)
{
	struct kv_env *env = db->options.env;

	KV_ASSERT(kv_list_empty(&db->snapshots));
	KV_ASSERT(!db->ingest);
	live_done(db);
	memory_done(db);
	kv_manifest_free(db->manifest);
	if (db->files)
		kv_filecache_free(db->files);
	if (db->cache)
		kv_cache_free(db->cache);
	/* The version may have let go of files: too late, the next opening deletes them. */
	kv_list_for_each_safe(l, &db->obsolete)
		free(kv_container_of(l, struct kv_obsolete, link));
	kv_eventlog_close(db->log);
	if (db->lock)
		env->ops->close(db->lock);
	if (db->store.dir)
		env->ops->dir_close(db->store.dir);
	free((char *)(uintptr_t)db->store.path);
	kv_pool_free(db->pool);
	kv_pool_free(db->compact_pool);
	locks_done(db);
	free(db);
}

/* What goes wrong is an event as well. */
static void note_message(void *arg, enum kv_msg_level level, const char *text)
{
	const struct kv_db *db = arg;
	const struct kv_msg *m = &db->options.msg;

	if (level <= KV_MSG_WARN)
		kv_event(db->log, level == KV_MSG_ERROR ? "error" : "warning", "text=\"%s\"", text);
	if (m->fn && level <= m->level_max)
		m->fn(m->arg, level, text);
}

static bool pools_new(struct kv_db *db)
{
	if (db->options.inline_work || db->options.read_only)
		return true;
	db->pool = kv_pool_new(kv_pool_threads());
	db->compact_pool = kv_pool_new(db->options.compact_threads - 1);
	return db->pool && db->compact_pool;
}

int kv_db_new(const char *dir, const struct kv_options *options, struct kv_db **out)
{
	struct kv_options filled;
	struct kv_db *db;

	KV_TRY(kv_options_fill(options, &filled));
	db = calloc(1, sizeof(*db));
	if (!db)
		return -ENOMEM;
	locks_init(db);
	db->options = filled;
	db->store.env = filled.env;
	db->store.msg = (struct kv_msg){ note_message, db, KV_MAX(filled.msg.level_max, KV_MSG_WARN) };
	db->store.path = strdup(dir);
	db->sst_counters = (struct kv_sst_counters){
		.filter_skips = &db->counters.filter_skips,
		.cache_hits = &db->counters.cache_hits,
		.cache_misses = &db->counters.cache_misses,
	};
	db->obsolete_sink = (struct kv_obsolete_sink){ kv_obsolete_add, db };
	db->delete_pace = (struct kv_pace){ DELETE_BYTES_PER_SECOND, DELETE_BURST_BYTES, 0 };
	db->cache = kv_cache_new(filled.cache_bytes);
	if (db->cache)
		db->files = kv_filecache_new(&db->store, db->cache, &db->sst_counters,
					     OPEN_FILES_MAX);
	if (!db->store.path || !db->files || !pools_new(db)) {
		kv_db_free(db);
		return -ENOMEM;
	}
	*out = db;
	return 0;
}

/* --- what is there -------------------------------------------------------------------------------- */

static int fail(struct kv_db *db, int err, const char *what)
{
	return kv_fail(&db->store.msg, err, "%s: %s", db->store.path, what);
}

int kv_db_lock(struct kv_db *db)
{
	int err = db->store.env->ops->lock(db->store.dir, KV_NAME_LOCK, db->options.read_only,
					   &db->lock);

	if (err == -EBUSY)
		return fail(db, KV_E_locked, "in use by another process");
	if (err)
		return kv_fail(&db->store.msg, err, "%s: cannot be locked: %s", db->store.path,
			       kv_err_text(err));
	return 0;
}

/* A directory that isn't ours is refused before anything is made in it. */
static int check_kind(struct kv_db *db, const struct kv_dir_files *files)
{
	if (files->has_root)
		return db->options.error_if_exists ? fail(db, KV_E_exists, "there is a store already") :
						     0;
	if (files->foreign[0])
		return kv_fail(&db->store.msg, KV_E_not_a_store,
			       "%s: not a kv store, and not empty: it holds %s", db->store.path,
			       files->foreign);
	if (!db->options.create)
		return fail(db, KV_E_not_a_store, "not a store: it has no file " KV_NAME_ROOT);
	return 0;
}

static int find(struct kv_db *db, struct kv_dir_files *files)
{
	int err = db->store.env->ops->dir_open(db->store.env, db->store.path, db->options.create,
					       &db->store.dir);

	if (err)
		return kv_fail(&db->store.msg, err, "%s: cannot be opened: %s", db->store.path,
			       kv_err_text(err));
	KV_TRY(kv_dir_files_read(&db->store, files));
	KV_TRY(check_kind(db, files));
	KV_TRY(kv_db_lock(db));
	/* Again: only now nobody else changes it. */
	kv_dir_files_done(files);
	KV_TRY(kv_dir_files_read(&db->store, files));
	return check_kind(db, files);
}

/* --- creating ------------------------------------------------------------------------------------- */

/* Creation makes these numbers, and no others before there is a root. */
#define CREATION_FILENO_MAX 2

/* Has a journal that was made by creation anything in it? */
static int journal_is_used(struct kv_db *db, kv_fileno number, bool *out)
{
	struct kv_env *env = db->store.env;
	struct kv_env_file *file;
	uint8_t magic[4] = { 0 };
	size_t got;
	int err;

	KV_TRY(env->ops->open(db->store.dir, kv_filename(KV_FILE_JOURNAL, number).s, KV_ENV_READ,
			      &file));
	err = env->ops->pread(file, magic, sizeof(magic),
			      sizeof(struct kv_file_header) + sizeof(struct kv_chunk_header) +
				      sizeof(struct kv_journal_begin),
			      &got);
	env->ops->close(file);
	*out = !err && (magic[0] || magic[1] || magic[2] || magic[3]);
	return err;
}

/*
 * Without a root, files with our names are what a creation left that was cut
 * off, and are removed; or a store that has lost its root, which is not touched.
 */
static int remove_leftovers(struct kv_db *db, struct kv_dir_files *files)
{
	for (size_t i = 0; i < files->count; i++) {
		const struct kv_dir_file *f = &files->at[i];
		bool used = f->number > CREATION_FILENO_MAX ||
			    (f->kind != KV_FILE_JOURNAL && f->kind != KV_FILE_MANIFEST);

		if (!used && f->kind == KV_FILE_JOURNAL)
			KV_TRY(journal_is_used(db, f->number, &used));
		if (used)
			return fail(db, KV_E_not_a_store,
				    "it has no " KV_NAME_ROOT ", but files of a store; run fsck.kvfs");
	}
	for (size_t i = 0; i < files->count; i++)
		KV_TRY(kv_store_unlink(&db->store, files->at[i].kind, files->at[i].number));
	files->count = 0;
	files->number_max = 0;
	return 0;
}

static int begin_empty(struct kv_db *db, struct kv_dir_files *files)
{
	struct kv_edit nothing = { 0 };

	KV_TRY(remove_leftovers(db, files));
	KV_TRY(db->store.env->ops->random(db->store.env, db->store.store_id,
					  sizeof(db->store.store_id)));
	db->state.next_fileno = 1;
	KV_TRY(kv_version_apply(NULL, &nothing, &db->obsolete_sink, &db->version));
	db->mem = kv_memtable_new_charged(0, db->cache);
	return db->mem ? 0 : -ENOMEM;
}

/* --- loading -------------------------------------------------------------------------------------- */

static int check_features(struct kv_db *db, const struct kv_root *root)
{
	uint64_t unknown = kv_le64_get(root->features_write) & ~KV_FEATURES_WRITE_KNOWN;

	if (!unknown || db->options.read_only)
		return 0;
	return fail(db, KV_E_newer_format, "written by a newer version: it can be read, not changed");
}

static int fail_missing(struct kv_db *db, enum kv_file_kind kind, kv_fileno number)
{
	return kv_fail(&db->store.msg, KV_E_missing_file,
		       "%s/%s: missing, though the manifest names it; run fsck.kvfs",
		       db->store.path, kv_filename(kind, number).s);
}

static int check_files(struct kv_db *db, const struct kv_dir_files *files)
{
	const struct kv_version *v = db->version;

	for (int level = 0; level < KV_LEVELS; level++)
		for (size_t i = 0; i < v->levels[level].count; i++) {
			kv_fileno number = v->levels[level].tables[i]->meta.number;

			if (!kv_dir_files_has(files, KV_FILE_TABLE, number))
				return fail_missing(db, KV_FILE_TABLE, number);
		}
	for (size_t i = 0; i < v->segment_count; i++)
		if (!kv_dir_files_has(files, KV_FILE_SEGMENT, v->segments[i].number))
			return fail_missing(db, KV_FILE_SEGMENT, v->segments[i].number);
	return 0;
}

/* Not before the store is known to be one that may be changed. */
static void begin_log(struct kv_db *db)
{
	if (!db->options.read_only && !db->options.no_event_log)
		db->log = kv_eventlog_open(&db->store);
}

static int load(struct kv_db *db, const struct kv_dir_files *files, struct kv_edit *edit)
{
	struct kv_root root;

	KV_TRY(kv_root_read(&db->store, &root));
	KV_TRY(check_features(db, &root));
	begin_log(db);
	KV_TRY(kv_manifest_load(&db->store, kv_le64_get(root.manifest_no), &db->obsolete_sink,
				&db->version, &db->state));
	KV_TRY(check_files(db, files));
	if (files->number_max >= UINT64_MAX - KV_GIB)
		return fail(db, KV_E_bad_record, "there is a file with an absurd number");
	db->state.next_fileno = KV_MAX(db->state.next_fileno, files->number_max + 1);
	return kv_replay(db, files, edit);
}

/* --- segments that were being written ------------------------------------------------------------- */

static int ignore_entry(void *arg, const struct kv_vlog_entry *e)
{
	(void)arg;
	(void)e;
	return 0;
}

static int is_zero_from(struct kv_env *env, struct kv_env_file *file, uint64_t at, bool *out)
{
	uint8_t bytes[4096];
	size_t got;

	*out = true;
	do {
		KV_TRY(env->ops->pread(file, bytes, sizeof(bytes), at, &got));
		for (size_t i = 0; i < got && *out; i++)
			*out = !bytes[i];
		at += got;
	} while (got == sizeof(bytes) && *out);
	return 0;
}

/*
 * Where a segment ends that nobody goes on with. Zeros behind the last record are
 * cut off. If there is anything else behind it, it is a torn tail, or there is damage
 * within; both are left as they are: collection gets rid of the one, and readers report the other.
 */
static int settle_segment(struct kv_db *db, struct kv_env_file *file, kv_fileno number,
			  uint64_t *out_bytes)
{
	struct kv_env *env = db->store.env;
	uint64_t end, size;
	bool zeros;

	KV_TRY(env->ops->size(file, &size));
	/* The zeros that pad the last record may not have arrived with it; they belong to it. */
	size = (size + KV_RECORD_ALIGN - 1) / KV_RECORD_ALIGN * KV_RECORD_ALIGN;
	KV_TRY(kv_vlog_scan(&db->store, file, number, ignore_entry, NULL, &end));
	if (end < size) {
		KV_TRY(is_zero_from(env, file, end, &zeros));
		if (zeros)
			size = end;
	}
	KV_TRY(env->ops->truncate(file, size));
	*out_bytes = size;
	return env->ops->sync(file);
}

static int seal_segment(struct kv_db *db, kv_fileno number, struct kv_edit *edit)
{
	struct kv_filename name = kv_filename(KV_FILE_SEGMENT, number);
	struct kv_env *env = db->store.env;
	struct kv_env_file *file;
	uint64_t bytes;
	int err = env->ops->open(db->store.dir, name.s, KV_ENV_WRITE, &file);

	if (!err) {
		err = settle_segment(db, file, number, &bytes);
		env->ops->close(file);
	}
	if (err)
		return kv_fail(&db->store.msg, err, "%s/%s: cannot be sealed: %s", db->store.path,
			       name.s, kv_err_text(err));
	return kv_edit_seal_segment(edit, number, bytes);
}

/* All of them are synced by this, so what replay has taken from journals may go to tables. */
int kv_db_seal_segments(struct kv_db *db, struct kv_edit *edit)
{
	for (size_t i = 0; i < db->version->segment_count; i++)
		if (!db->version->segments[i].sealed)
			KV_TRY(seal_segment(db, db->version->segments[i].number, edit));
	return 0;
}

/* --- going on from there -------------------------------------------------------------------------- */

static int first_readstate(struct kv_db *db)
{
	struct kv_readstate *rs = kv_readstate_new(), *none;

	if (!rs)
		return -ENOMEM;
	kv_mutex_lock(&db->mu);
	none = kv_readstate_swap_locked(db, rs);
	atomic_store(&db->level0_count, (uint32_t)db->version->levels[0].count);
	kv_mutex_unlock(&db->mu);
	KV_ASSERT(!none);
	kv_version_charge(db, db->version);
	atomic_store(&db->seqno_published, db->seqno_last);
	db->seqno_synced = db->seqno_last;
	return 0;
}

/* The new journal, and an empty memtable that lives in it. */
int kv_db_begin_journal(struct kv_db *db)
{
	struct kv_journal_begin begin = { .seqno = kv_le64(db->seqno_last) };
	struct iovec iov = { &begin, sizeof(begin) };
	struct kv_memtable *mem;

	KV_TRY(kv_live_journal_new(db, &db->journal));
	kv_list_push_back(&db->journals, &db->journal->link);
	mem = kv_memtable_new_charged(db->journal->number, db->cache);
	if (!mem)
		return -ENOMEM;
	kv_memtable_unref(db->mem);
	db->mem = mem;
	KV_TRY(kv_journal_reserve(db->journal->journal, sizeof(begin)));
	return kv_journal_append(db->journal->journal, KV_CHUNK_BEGIN, db->seqno_last, 0, &iov, 1);
}

/* The one step. */
int kv_db_switch_root(struct kv_db *db, const struct kv_edit *edit)
{
	kv_fileno number = kv_fileno_take(db);
	struct kv_version *v;

	KV_TRY(kv_version_apply(db->version, edit, &db->obsolete_sink, &v));
	kv_version_unref(db->version);
	db->version = v;
	db->state.journal_min = db->journal->number;
	db->state.seqno = db->seqno_last;
	return kv_manifest_create(&db->store, number, v, &db->state, &db->manifest);
}

static int number_cmp(const void *a, const void *b)
{
	const kv_fileno *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The numbers of all files that the version names, sorted. */
static int named_files(const struct kv_version *v, kv_fileno **out, size_t *out_count)
{
	size_t n = v->segment_count, at = 0;
	kv_fileno *numbers;

	for (int level = 0; level < KV_LEVELS; level++)
		n += v->levels[level].count;
	numbers = malloc((n + 1) * sizeof(*numbers));
	if (!numbers)
		return -ENOMEM;
	for (int level = 0; level < KV_LEVELS; level++)
		for (size_t i = 0; i < v->levels[level].count; i++)
			numbers[at++] = v->levels[level].tables[i]->meta.number;
	for (size_t i = 0; i < v->segment_count; i++)
		numbers[at++] = v->segments[i].number;
	qsort(numbers, n, sizeof(*numbers), number_cmp);
	*out = numbers;
	*out_count = n;
	return 0;
}

/*
 * Deletes what was there before and nothing names now. Among those are journals and manifests,
 * but for the new ones, which were not there. If it fails, the next opening tries again.
 */
static int remove_unnamed(struct kv_db *db, const struct kv_dir_files *files)
{
	kv_fileno *named;
	size_t n;

	KV_TRY(named_files(db->version, &named, &n));
	for (size_t i = 0; i < files->count; i++) {
		const struct kv_dir_file *f = &files->at[i];
		bool may_be_named = f->kind == KV_FILE_TABLE || f->kind == KV_FILE_SEGMENT;

		if (may_be_named && bsearch(&f->number, named, n, sizeof(*named), number_cmp))
			continue;
		kv_obsolete_add(db, f->kind, f->number);
	}
	free(named);
	(void)kv_obsolete_delete(db);
	return 0;
}

static int go_on(struct kv_db *db, const struct kv_dir_files *files, struct kv_edit *edit)
{
	KV_TRY(kv_db_seal_segments(db, edit));
	if (kv_memtable_count(db->mem))
		KV_TRY(kv_replay_flush(db, edit));
	KV_TRY(kv_db_begin_journal(db));
	KV_TRY(kv_db_switch_root(db, edit));
	KV_TRY(remove_unnamed(db, files));
	KV_TRY(first_readstate(db));
	return kv_workers_start(db);
}

static int open_store(struct kv_db *db, struct kv_dir_files *files, struct kv_edit *edit)
{
	KV_TRY(find(db, files));
	if (files->has_root)
		KV_TRY(load(db, files, edit));
	else
		KV_TRY(begin_empty(db, files));
	if (db->options.read_only)
		return first_readstate(db);
	return go_on(db, files, edit);
}

static void log_opened(struct kv_db *db, bool existed, uint64_t start_ns)
{
	struct kv_stats s;

	if (!existed)
		begin_log(db);
	if (!db->log)
		return;
	kv_stats(db, &s);
	kv_event(db->log, existed ? "open" : "create", "seqno=%" PRIu64 " segments=%" PRIu64
		 " disk_bytes=%" PRIu64 " us=%" PRIu64, s.seqno, s.segment_count, s.disk_bytes,
		 (kv_now_ns(db) - start_ns) / 1000);
}

int kv_open(const char *dir, const struct kv_options *options, struct kv_db **out_db)
{
	struct kv_dir_files files = { 0 };
	struct kv_edit edit = { 0 };
	struct kv_db *db;
	uint64_t start;
	int err;

	KV_TRY(kv_db_new(dir, options, &db));
	start = kv_now_ns(db);
	err = open_store(db, &files, &edit);
	if (!err)
		log_opened(db, files.has_root, start);
	kv_dir_files_done(&files);
	kv_edit_done(&edit);
	if (err) {
		if (err == KV_E_poisoned)
			err = db->error;
		kv_db_free(db);
		return kv_err_space(err);
	}
	*out_db = db;
	return 0;
}

/* --- closing -------------------------------------------------------------------------------------- */

/* Without space, the memtables just stay in their journals. */
static int flush_all(struct kv_db *db)
{
	int err = 0;

	while (db->imm_count && !err)
		err = kv_flush_one(db);
	if (!err && kv_memtable_count(db->mem)) {
		kv_mutex_lock(&db->commit_mu);
		err = kv_memtable_switch(db);
		kv_mutex_unlock(&db->commit_mu);
		if (!err)
			err = kv_flush_one(db);
	}
	return kv_err_passes(err) ? 0 : err;
}

static int seal_all(struct kv_db *db)
{
	bool did = true;
	int err = 0;

	kv_live_segment_finish(db, db->segment);
	kv_live_segment_finish(db, db->flush_segment);
	kv_live_segment_finish(db, db->segment_next);
	db->segment = db->flush_segment = db->segment_next = NULL;
	while (did && !err)
		err = kv_live_segment_seal_one(db, &did);
	return kv_err_passes(err) ? 0 : err;
}

static int end_journal(struct kv_db *db)
{
	struct kv_journal *j = db->journal->journal;
	int err = kv_journal_append(j, KV_CHUNK_END, db->seqno_last, 0, NULL, 0);

	if (err)
		return err;
	kv_journal_trim(j);
	return kv_journal_sync(j);
}

static int shut_down(struct kv_db *db)
{
	struct kv_manifest *m;

	KV_TRY(flush_all(db));
	KV_TRY(seal_all(db));
	KV_TRY(kv_sync(db));
	KV_TRY(end_journal(db));
	if (db->journal_next)
		kv_obsolete_add(db, KV_FILE_JOURNAL, db->journal_next->number);
	(void)kv_obsolete_delete_all(db);
	m = db->manifest;
	db->manifest = NULL;
	return kv_manifest_close(m);
}

int kv_close(struct kv_db *db)
{
	uint64_t start;
	int err = 0;

	if (!db)
		return 0;
	start = kv_now_ns(db);
	kv_workers_stop(db);
	if (!db->options.read_only) {
		if (!atomic_load(&db->poisoned))
			err = shut_down(db);
		if (db->error)
			err = db->error;
	}
	kv_event(db->log, "close", "seqno=%" PRIu64 " us=%" PRIu64 " result=\"%s\"",
		 db->seqno_last, (kv_now_ns(db) - start) / 1000, err ? kv_err_text(err) : "good");
	kv_db_free(db);
	return err;
}
