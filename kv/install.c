/*
 * Changing the set of files: an edit becomes durable, then its version becomes
 * the current one. And what becomes of files that nothing names any more.
 *
 * CRASH: the version that results is checked, and all memory is there, before the
 * edit is written; afterwards nothing can fail (K7). Files that an edit deletes
 * are deleted when it is durable and no reader has them any more.
 */
#include "kv/db.h"

/* When less than a sixteenth of the disk, or a GiB, may still be taken, files are deleted at once. */
#define SCARCE_PART 16
#define SCARCE_BYTES (1 * KV_GIB)

/* --- installing ------------------------------------------------------------------------------ */

static void state_apply_locked(struct kv_db *db, const struct kv_edit *edit)
	KV_REQUIRES(&db->mu)
{
	if (edit->has_journal_min)
		db->state.journal_min = edit->journal_min;
	if (edit->has_seqno)
		db->state.seqno = edit->seqno;
}

/* The oldest immutable memtable, whose content the new version has; the caller unrefs it. */
static struct kv_memtable *take_flushed_locked(struct kv_db *db) KV_REQUIRES(&db->mu)
{
	struct kv_memtable *m = db->imm[0];

	KV_ASSERT(db->imm_count);
	db->imm_count--;
	for (uint32_t i = 0; i < db->imm_count; i++) {
		db->imm[i] = db->imm[i + 1];
		db->imm_seqno[i] = db->imm_seqno[i + 1];
	}
	db->imm_flushed++;
	atomic_store(&db->imm_full, 0);
	return m;
}

void kv_version_charge(struct kv_db *db, const struct kv_version *v)
{
	uint64_t bytes = kv_version_memory_bytes(v);

	kv_cache_charge(db->cache, (int64_t)(bytes - db->version_charged));
	db->version_charged = bytes;
}

/* Puts the new version in place; returns what it replaces. */
static struct kv_version *switch_version(struct kv_db *db, const struct kv_edit *edit,
					 struct kv_version *v, struct kv_readstate *rs,
					 bool flushed)
{
	struct kv_memtable *m = NULL;
	struct kv_readstate *old_rs;
	struct kv_version *old;

	kv_mutex_lock(&db->mu);
	old = db->version;
	db->version = v;
	state_apply_locked(db, edit);
	if (flushed)
		m = take_flushed_locked(db);
	old_rs = kv_readstate_swap_locked(db, rs);
	atomic_store(&db->level0_count, (uint32_t)v->levels[0].count);
	kv_work_want_locked(db);
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);
	kv_readstate_unref(old_rs);
	kv_memtable_unref(m);
	return old;
}

/*
 * Puts a new manifest that begins with v in the place of the old one. After a failure but
 * KV_E_no_space and -ENOMEM it is open which of the two the root names.
 */
static int replace_manifest(struct kv_db *db, const struct kv_version *v)
	KV_REQUIRES(&db->install_mu)
{
	kv_fileno number = kv_fileno_take(db);
	struct kv_manifest_state state;
	struct kv_manifest *m;

	kv_mutex_lock(&db->mu);
	state = db->state;
	kv_mutex_unlock(&db->mu);
	KV_TRY(kv_manifest_create(&db->store, number, v, &state, &m));
	kv_obsolete_add(db, KV_FILE_MANIFEST, kv_manifest_number(db->manifest));
	kv_manifest_free(db->manifest);
	db->manifest = m;
	return 0;
}

/* A manifest that has grown is replaced. No space for it: the old one goes on. */
static int rotate_manifest(struct kv_db *db) KV_REQUIRES(&db->install_mu)
{
	int err;

	if (!kv_manifest_is_long(db->manifest))
		return 0;
	/* The version changes under install_mu only. */
	err = replace_manifest(db, db->version);
	if (!err || err == KV_E_no_space || err == -ENOMEM)
		return 0;
	return kv_poison(db, err);
}

/*
 * The edit, which leads to v, becomes durable. The first one that names a snapshot does so
 * with a new manifest, since no program that doesn't know these may open the store from then on: the
 * root's pointing to the manifest also gives the store the feature (K6).
 */
static int record(struct kv_db *db, const struct kv_edit *edit, const struct kv_version *v)
	KV_REQUIRES(&db->install_mu)
{
	if (!edit->snapshot_add_count ||
	    db->store.features_required & KV_FEATURE_NAMED_SNAPSHOTS)
		return kv_manifest_append(db->manifest, edit);
	/* The numbers that go into the new manifest are those of before. */
	KV_ASSERT(!edit->has_journal_min && !edit->has_seqno);
	return replace_manifest(db, v);
}

static int install_locked(struct kv_db *db, struct kv_edit *edit, bool flushed)
	KV_REQUIRES(&db->install_mu)
{
	struct kv_version *v, *old;
	struct kv_readstate *rs;
	int err;

	kv_mutex_lock(&db->mu);
	edit->has_next_fileno = true;
	edit->next_fileno = db->state.next_fileno;
	kv_mutex_unlock(&db->mu);
	err = kv_version_apply(db->version, edit, &db->obsolete_sink, &v);
	if (err)
		return err;
	rs = kv_readstate_new();
	err = rs ? record(db, edit, v) : -ENOMEM;
	if (err) {
		kv_readstate_unref(rs);
		kv_version_unref(v);
		return err;
	}
	kv_version_charge(db, v);
	old = switch_version(db, edit, v, rs, flushed);
	kv_version_retire(old, edit);
	kv_version_unref(old);
	return 0;
}

static int install(struct kv_db *db, struct kv_edit *edit, bool flushed)
{
	int err;

	kv_mutex_lock(&db->install_mu);
	if (atomic_load_explicit(&db->poisoned, memory_order_acquire))
		err = KV_E_poisoned;
	else
		err = install_locked(db, edit, flushed);
	if (err)
		kv_event(db->log, "install_failed", "adds=%zu deletes=%zu error=\"%s\"",
			 edit->add_count, edit->delete_count, kv_err_text(err));
	/* Here the manifest tells its harmless failures from the others. */
	if (err && err != KV_E_no_space && err != -ENOMEM)
		err = kv_poison(db, err);
	if (!err)
		(void)rotate_manifest(db); /* poisons; the edit itself has happened */
	kv_mutex_unlock(&db->install_mu);
	return err;
}

int kv_install(struct kv_db *db, struct kv_edit *edit)
{
	return install(db, edit, false);
}

int kv_install_flush(struct kv_db *db, struct kv_edit *edit)
{
	return install(db, edit, true);
}

kv_fileno kv_fileno_take(struct kv_db *db)
{
	kv_fileno number;

	kv_mutex_lock(&db->mu);
	number = db->state.next_fileno++;
	kv_mutex_unlock(&db->mu);
	return number;
}

/* --- files that nothing names --------------------------------------------------------------- */

void kv_obsolete_add(void *arg, enum kv_file_kind kind, kv_fileno number)
{
	struct kv_db *db = arg;
	struct kv_obsolete *o = malloc(sizeof(*o));

	/* Without memory the file stays until the next opening. */
	if (!o)
		return;
	o->kind = kind;
	o->number = number;
	kv_mutex_lock(&db->obsolete_mu);
	kv_list_push_back(&db->obsolete, &o->link);
	kv_mutex_unlock(&db->obsolete_mu);
	kv_work_want(db);
}

static struct kv_obsolete *take_obsolete(struct kv_db *db)
{
	struct kv_obsolete *o = NULL;

	kv_mutex_lock(&db->obsolete_mu);
	if (!kv_list_empty(&db->obsolete)) {
		o = kv_container_of(db->obsolete.next, struct kv_obsolete, link);
		kv_list_remove(&o->link);
	}
	kv_mutex_unlock(&db->obsolete_mu);
	return o;
}

static bool has_obsolete(struct kv_db *db)
{
	bool has;

	kv_mutex_lock(&db->obsolete_mu);
	has = !kv_list_empty(&db->obsolete);
	kv_mutex_unlock(&db->obsolete_mu);
	return has;
}

static void delete_one(struct kv_db *db, struct kv_obsolete *o)
{
	int err;

	if (o->kind == KV_FILE_TABLE || o->kind == KV_FILE_SEGMENT)
		kv_filecache_drop(db->files, o->number);
	err = kv_store_unlink(&db->store, o->kind, o->number);
	if (err && err != -ENOENT)
		kv_msg(&db->store.msg, KV_MSG_WARN, "%s/%s: cannot be deleted: %s",
		       db->store.path, kv_filename(o->kind, o->number).s, kv_err_text(err));
	free(o);
}

bool kv_obsolete_delete_all(struct kv_db *db)
{
	struct kv_obsolete *o;
	bool did = false;

	for (; (o = take_obsolete(db)); did = true)
		delete_one(db, o);
	return did;
}

/* For the pace only: one that can't be told is small. */
static uint64_t obsolete_bytes(struct kv_db *db, const struct kv_obsolete *o)
{
	const struct kv_env_ops *ops = db->store.env->ops;
	struct kv_env_file *file;
	uint64_t bytes;
	int err;

	if (ops->open(db->store.dir, kv_filename(o->kind, o->number).s, KV_ENV_READ, &file))
		return 0;
	err = ops->size(file, &bytes);
	ops->close(file);
	return err ? 0 : bytes;
}

/* Somebody may need it soon. */
static bool space_is_scarce(struct kv_db *db)
{
	uint64_t all, left;

	return !kv_space(db, &all, &left) && left < KV_MAX(all / SCARCE_PART, SCARCE_BYTES);
}

/*
 * A filesystem that frees gigabytes in one go may keep all who write and sync waiting for its
 * own journal. Files are whole or gone: they can't be cut down step by step, since others may have
 * links to them (K11). So what a large range or a compaction has made obsolete goes
 * one file after the other, with time in between.
 */
bool kv_obsolete_delete(struct kv_db *db)
{
	struct kv_env *env = db->store.env;
	struct kv_obsolete *o;
	bool did = false;

	if (db->options.inline_work)
		return kv_obsolete_delete_all(db);
	db->delete_wait_ns = 0;
	while (has_obsolete(db)) {
		uint64_t ns = kv_pace_wait_ns(&db->delete_pace, env->ops->monotonic_ns(env));

		if (ns && !space_is_scarce(db)) {
			db->delete_wait_ns = ns;
			break;
		}
		o = take_obsolete(db);
		if (!o)
			break;
		kv_pace_take(&db->delete_pace, env->ops->monotonic_ns(env),
			     obsolete_bytes(db, o));
		delete_one(db, o);
		did = true;
	}
	return did;
}
