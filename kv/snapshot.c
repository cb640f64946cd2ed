/*
 * Snapshots: a seqno that stays readable. Those that are given out live in a list, named
 * ones in the version, and so in the manifest.
 *
 * CRASH: a named snapshot is made in this order: its seqno is held by a snapshot that is
 * not named, so nothing that it sees goes; everything up to the seqno is synced; then an edit
 * names it. Stop before the edit: it was never there. Stop behind it: recovery
 * finds all that it sees, and takes less for damage. Dropping is one edit, and only when that
 * is durable does anything that it has kept go.
 */
#include "kv/db.h"

/* --- given out ------------------------------------------------------------------------------ */

/*
 * seqno_published is read under mu, here and in kv_snapshot_seqnos(): so a
 * compaction either knows the snapshot, or has a present that is not later.
 */
struct kv_snapshot *kv_snapshot_new(struct kv_db *db)
{
	struct kv_snapshot *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	kv_mutex_lock(&db->mu);
	s->seqno = atomic_load_explicit(&db->seqno_published, memory_order_acquire);
	kv_list_push_back(&db->snapshots, &s->link);
	kv_mutex_unlock(&db->mu);
	return s;
}

void kv_snapshot_free(struct kv_db *db, struct kv_snapshot *s)
{
	if (!s)
		return;
	kv_mutex_lock(&db->mu);
	kv_list_remove(&s->link);
	/* What it has kept may be compacted away now. */
	kv_work_want_locked(db);
	kv_mutex_unlock(&db->mu);
	free(s);
}

/* --- what must stay ------------------------------------------------------------------------- */

/* How many seqnos there are at the most, the present among them. */
static size_t seqno_count_locked(struct kv_db *db) KV_REQUIRES(&db->mu)
{
	const struct kv_snapset *named = db->version->snapshots;
	size_t n = 1 + (named ? named->count : 0);

	kv_list_for_each(l, &db->snapshots)
		n++;
	return n;
}

static void add_seqno(kv_seqno *seqnos, size_t *n, kv_seqno s)
{
	if (!*n || seqnos[*n - 1] != s)
		seqnos[(*n)++] = s;
}

/* Both kinds are in order, so they are merged. */
static size_t fill_seqnos_locked(struct kv_db *db, kv_seqno *seqnos) KV_REQUIRES(&db->mu)
{
	const struct kv_snapset *named = db->version->snapshots;
	size_t n = 0, i = 0, count = named ? named->count : 0;

	KV_ASSERT(seqnos); /* there is always the present */
	kv_list_for_each(l, &db->snapshots) {
		kv_seqno s = kv_container_of(l, struct kv_snapshot, link)->seqno;

		for (; i < count && named->at[i].seqno <= s; i++)
			add_seqno(seqnos, &n, named->at[i].seqno);
		add_seqno(seqnos, &n, s);
	}
	for (; i < count; i++)
		add_seqno(seqnos, &n, named->at[i].seqno);
	add_seqno(seqnos, &n, atomic_load_explicit(&db->seqno_published, memory_order_acquire));
	return n;
}

int kv_snapshot_seqnos(struct kv_db *db, kv_seqno **out, size_t *out_count)
{
	kv_seqno *seqnos = NULL;
	size_t room = 0;

	kv_mutex_lock(&db->mu);
	/* Memory is taken without the lock, so look again whether it suffices. */
	while (room < seqno_count_locked(db)) {
		room = seqno_count_locked(db) + 8;
		kv_mutex_unlock(&db->mu);
		free(seqnos);
		seqnos = malloc(room * sizeof(*seqnos));
		if (!seqnos)
			return -ENOMEM;
		kv_mutex_lock(&db->mu);
	}
	*out_count = fill_seqnos_locked(db, seqnos);
	kv_mutex_unlock(&db->mu);
	*out = seqnos;
	return 0;
}

kv_seqno kv_snapshot_oldest_locked(struct kv_db *db)
{
	const struct kv_snapset *named = db->version->snapshots;
	kv_seqno oldest = atomic_load_explicit(&db->seqno_published, memory_order_acquire);

	if (!kv_list_empty(&db->snapshots))
		oldest = kv_container_of(db->snapshots.next, struct kv_snapshot, link)->seqno;
	return named ? KV_MIN(oldest, named->at[0].seqno) : oldest;
}

/* --- named ---------------------------------------------------------------------------------- */

/* May the set of names be changed, and what is there of this one? */
static int check_change(struct kv_db *db, const char *name, bool *out_exists, size_t *out_count)
{
	const struct kv_snapset *named;

	if (!kv_snapshot_name_is_good(name))
		return KV_E_bad_name;
	if (atomic_load_explicit(&db->poisoned, memory_order_acquire))
		return KV_E_poisoned;
	kv_mutex_lock(&db->mu);
	named = db->version->snapshots;
	*out_exists = kv_snapset_find(named, name) != NULL;
	*out_count = named ? named->count : 0;
	kv_mutex_unlock(&db->mu);
	return 0;
}

static int install_name(struct kv_db *db, const char *name, kv_seqno seqno)
{
	KV_AUTO(kv_edit_done) struct kv_edit edit = { 0 };
	struct kv_snapshot_info info = {
		.seqno = seqno,
		.made_ns = db->store.env->ops->realtime_ns(db->store.env),
	};

	memcpy(info.name, name, strlen(name) + 1);
	KV_TRY(kv_edit_add_snapshot(&edit, &info));
	return kv_install(db, &edit);
}

static int create_locked(struct kv_db *db, const char *name) KV_REQUIRES(&db->names_mu)
{
	struct kv_snapshot *now;
	size_t count;
	bool exists;
	int err;

	KV_TRY(check_change(db, name, &exists, &count));
	if (exists)
		return KV_E_snapshot_exists;
	if (count >= KV_SNAPSHOTS_MAX)
		return KV_E_too_many_snapshots;
	now = kv_snapshot_new(db);
	if (!now)
		return -ENOMEM;
	err = kv_sync_to(db, now->seqno);
	if (!err)
		err = install_name(db, name, now->seqno);
	kv_snapshot_free(db, now);
	return err;
}

static int drop_locked(struct kv_db *db, const char *name) KV_REQUIRES(&db->names_mu)
{
	KV_AUTO(kv_edit_done) struct kv_edit edit = { 0 };
	size_t count;
	bool exists;

	KV_TRY(check_change(db, name, &exists, &count));
	if (!exists)
		return KV_E_no_snapshot;
	KV_TRY(kv_edit_delete_snapshot(&edit, name));
	return kv_install(db, &edit);
}

int kv_snapshot_create(struct kv_db *db, const char *name)
{
	int err;

	if (db->options.read_only)
		return KV_E_read_only;
	kv_mutex_lock(&db->names_mu);
	err = create_locked(db, name);
	kv_mutex_unlock(&db->names_mu);
	kv_work_schedule(db);
	return err;
}

int kv_snapshot_drop(struct kv_db *db, const char *name)
{
	int err;

	if (db->options.read_only)
		return KV_E_read_only;
	kv_mutex_lock(&db->names_mu);
	err = drop_locked(db, name);
	kv_mutex_unlock(&db->names_mu);
	kv_work_schedule(db);
	return err;
}

/* Where the list goes on being in order. */
static void insert_locked(struct kv_db *db, struct kv_snapshot *s) KV_REQUIRES(&db->mu)
{
	struct kv_link *at = &db->snapshots;

	while (at->prev != &db->snapshots &&
	       kv_container_of(at->prev, struct kv_snapshot, link)->seqno > s->seqno)
		at = at->prev;
	kv_list_insert_before(at, &s->link);
}

int kv_snapshot_open(struct kv_db *db, const char *name, struct kv_snapshot **out_snap)
{
	const struct kv_snapshot_info *info;
	struct kv_snapshot *s;

	if (!kv_snapshot_name_is_good(name))
		return KV_E_bad_name;
	s = malloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	kv_mutex_lock(&db->mu);
	info = kv_snapset_find(db->version->snapshots, name);
	if (info) {
		s->seqno = info->seqno;
		insert_locked(db, s);
	}
	kv_mutex_unlock(&db->mu);
	if (!info) {
		free(s);
		return KV_E_no_snapshot;
	}
	*out_snap = s;
	return 0;
}

int kv_snapshot_list(struct kv_db *db, struct kv_snapshot_info **out_infos, size_t *out_count)
{
	struct kv_snapshot_info *infos = NULL;
	struct kv_snapset *named;
	size_t count = 0;

	kv_mutex_lock(&db->mu);
	named = kv_snapset_ref(db->version->snapshots);
	kv_mutex_unlock(&db->mu);
	if (named) {
		count = named->count;
		infos = malloc(count * sizeof(*infos));
		if (infos)
			memcpy(infos, named->at, count * sizeof(*infos));
	}
	kv_snapset_unref(named);
	if (count && !infos)
		return -ENOMEM;
	*out_infos = infos;
	*out_count = count;
	return 0;
}
