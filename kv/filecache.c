/*
 * Open files. An entry is found by its number from the moment somebody starts to open the file:
 * who comes then waits for that entry, and nobody else does, since the mutex is not held while
 * a file is opened or closed.
 */
#include "kv/filecache.h"

#include <stdlib.h>

#include "kv/list.h"
#include "kv/lock.h"

#define BUCKETS 1024			/* a power of two; some thousand files at most */

enum entry_state {
	ENTRY_OPENING,
	ENTRY_OPEN,
	ENTRY_FAILED,
};

struct kv_filecache_entry {
	enum kv_file_kind kind;		/* constant */
	kv_fileno number;
	struct kv_sst *sst;		/* constant once open; one of the two */
	struct kv_env_file *file;

	struct kv_filecache_entry *chain; /* guarded by the cache's mutex, to the end */
	struct kv_link unused_link;	/* on the list of unused ones when refs is 0 */
	uint32_t refs;
	enum entry_state state;
	int error;			/* why it failed */
	bool dropped;
};

struct kv_filecache {
	struct kv_store *store;		/* set when made, constant after */
	struct kv_cache *cache;
	struct kv_sst_counters counters;
	uint32_t unused_max;

	struct kv_mutex mu;		/* guards all below */
	struct kv_cond opened;		/* some entry isn't OPENING any more */
	struct kv_filecache_entry *buckets[BUCKETS];
	struct kv_link unused;		/* front: longest unused */
	uint32_t unused_count;
};

struct kv_filecache *kv_filecache_new(struct kv_store *s, struct kv_cache *cache,
				      const struct kv_sst_counters *counters, uint32_t files_max)
{
	struct kv_filecache *fc = calloc(1, sizeof(*fc));

	if (!fc)
		return NULL;
	fc->store = s;
	fc->cache = cache;
	if (counters)
		fc->counters = *counters;
	fc->unused_max = files_max;
	kv_mutex_init(&fc->mu);
	kv_cond_init(&fc->opened);
	kv_list_init(&fc->unused);
	return fc;
}

/* --- entries ---------------------------------------------------------------------------------- */

static struct kv_filecache_entry **find_locked(struct kv_filecache *fc, enum kv_file_kind kind,
					       kv_fileno number) KV_REQUIRES(&fc->mu)
{
	struct kv_filecache_entry **at = &fc->buckets[number & (BUCKETS - 1)];

	while (*at && ((*at)->number != number || (*at)->kind != kind))
		at = &(*at)->chain;
	return at;
}

static void forget_locked(struct kv_filecache *fc, struct kv_filecache_entry *e)
	KV_REQUIRES(&fc->mu)
{
	struct kv_filecache_entry **at = find_locked(fc, e->kind, e->number);

	KV_ASSERT(*at == e);
	*at = e->chain;
}

static void ref_locked(struct kv_filecache *fc, struct kv_filecache_entry *e) KV_REQUIRES(&fc->mu)
{
	if (!e->refs++ && !kv_list_empty(&e->unused_link)) {
		kv_list_remove(&e->unused_link);
		fc->unused_count--;
	}
}

/* Nobody finds or has it any more. Without the mutex: closing may take its time. */
static void entry_free(struct kv_filecache *fc, struct kv_filecache_entry *e)
{
	if (!e)
		return;
	kv_sst_close(e->sst);
	if (e->file)
		fc->store->env->ops->close(e->file);
	/* Only now: as long as it was open, blocks could come in. */
	if (e->dropped && e->kind == KV_FILE_TABLE)
		kv_cache_drop_file(fc->cache, e->number);
	free(e);
}

/* Lets go of a reference. *out: an entry to free once the mutex is not held, or NULL. */
static void unref_locked(struct kv_filecache *fc, struct kv_filecache_entry *e,
			 struct kv_filecache_entry **out) KV_REQUIRES(&fc->mu)
{
	*out = NULL;
	KV_ASSERT(e->refs > 0);
	if (--e->refs)
		return;
	if (e->state == ENTRY_FAILED) { /* forgotten already */
		*out = e;
		return;
	}
	if (e->dropped) {
		forget_locked(fc, e);
		*out = e;
		return;
	}
	kv_list_push_back(&fc->unused, &e->unused_link);
	if (++fc->unused_count <= fc->unused_max)
		return;
	e = kv_container_of(fc->unused.next, struct kv_filecache_entry, unused_link);
	kv_list_remove(&e->unused_link);
	fc->unused_count--;
	forget_locked(fc, e);
	*out = e;
}

void kv_filecache_free(struct kv_filecache *fc)
{
	struct kv_filecache_entry *e;

	if (!fc)
		return;
	for (size_t i = 0; i < BUCKETS; i++)
		while ((e = fc->buckets[i]) != NULL) {
			KV_ASSERT(!e->refs);
			fc->buckets[i] = e->chain;
			entry_free(fc, e);
		}
	kv_cond_done(&fc->opened);
	kv_mutex_done(&fc->mu);
	free(fc);
}

struct kv_cache *kv_filecache_cache(const struct kv_filecache *fc)
{
	return fc->cache;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int open_file(struct kv_filecache *fc, struct kv_filecache_entry *e, uint64_t file_bytes)
{
	struct kv_env_file *file;
	int err;

	KV_TRY(kv_store_open_file(fc->store, e->kind, e->number, &file));
	if (e->kind != KV_FILE_TABLE) {
		e->file = file;
		return 0;
	}
	err = kv_sst_open(fc->store, fc->cache, file, e->number, file_bytes, &fc->counters, &e->sst);
	if (err)
		fc->store->env->ops->close(file);
	return err;
}

/* A new entry, OPENING, with a reference. */
static struct kv_filecache_entry *insert_locked(struct kv_filecache *fc, enum kv_file_kind kind,
						kv_fileno number) KV_REQUIRES(&fc->mu)
{
	struct kv_filecache_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->kind = kind;
	e->number = number;
	e->refs = 1;
	kv_list_init(&e->unused_link);
	*find_locked(fc, kind, number) = e;
	return e;
}

/* Opens the file of an entry that was just inserted. The mutex is let go meanwhile. */
static int open_locked(struct kv_filecache *fc, struct kv_filecache_entry *e, uint64_t file_bytes)
	KV_REQUIRES(&fc->mu)
{
	int err;

	kv_mutex_unlock(&fc->mu);
	err = open_file(fc, e, file_bytes);
	kv_mutex_lock(&fc->mu);
	e->error = err;
	e->state = err ? ENTRY_FAILED : ENTRY_OPEN;
	if (err)
		forget_locked(fc, e); /* the next one tries again */
	kv_cond_broadcast(&fc->opened);
	return err;
}

static int get_locked(struct kv_filecache *fc, enum kv_file_kind kind, kv_fileno number,
		      uint64_t file_bytes, struct kv_filecache_entry **out_pin,
		      struct kv_filecache_entry **out_gone) KV_REQUIRES(&fc->mu)
{
	struct kv_filecache_entry *e = *find_locked(fc, kind, number);
	int err;

	*out_gone = NULL;
	if (!e) {
		e = insert_locked(fc, kind, number);
		if (!e)
			return -ENOMEM;
		err = open_locked(fc, e, file_bytes);
	} else {
		ref_locked(fc, e);
		while (e->state == ENTRY_OPENING)
			kv_cond_wait(&fc->opened, &fc->mu);
		err = e->error;
	}
	if (err)
		unref_locked(fc, e, out_gone);
	else
		*out_pin = e;
	return err;
}

static int get(struct kv_filecache *fc, enum kv_file_kind kind, kv_fileno number,
	       uint64_t file_bytes, struct kv_filecache_entry **out_pin)
{
	struct kv_filecache_entry *gone;
	int err;

	kv_mutex_lock(&fc->mu);
	err = get_locked(fc, kind, number, file_bytes, out_pin, &gone);
	kv_mutex_unlock(&fc->mu);
	entry_free(fc, gone);
	return err;
}

int kv_filecache_table(struct kv_filecache *fc, kv_fileno number, uint64_t file_bytes,
		       struct kv_filecache_entry **out_pin, struct kv_sst **out)
{
	KV_TRY(get(fc, KV_FILE_TABLE, number, file_bytes, out_pin));
	*out = (*out_pin)->sst;
	return 0;
}

int kv_filecache_segment(struct kv_filecache *fc, kv_fileno number,
			 struct kv_filecache_entry **out_pin, struct kv_env_file **out)
{
	KV_TRY(get(fc, KV_FILE_SEGMENT, number, 0, out_pin));
	*out = (*out_pin)->file;
	return 0;
}

void kv_filecache_unpin(struct kv_filecache *fc, struct kv_filecache_entry *e)
{
	struct kv_filecache_entry *gone;

	if (!e)
		return;
	kv_mutex_lock(&fc->mu);
	unref_locked(fc, e, &gone);
	kv_mutex_unlock(&fc->mu);
	entry_free(fc, gone);
}

/* --- dropping --------------------------------------------------------------------------------- */

/* False: it isn't open. */
static bool drop_open(struct kv_filecache *fc, enum kv_file_kind kind, kv_fileno number)
{
	struct kv_filecache_entry *e, *gone = NULL;
	bool was_open;

	kv_mutex_lock(&fc->mu);
	e = *find_locked(fc, kind, number);
	was_open = e != NULL;
	if (e) {
		/* One in use stays to be found: its file may have no name any more. */
		e->dropped = true;
		ref_locked(fc, e);
		unref_locked(fc, e, &gone);
	}
	kv_mutex_unlock(&fc->mu);
	entry_free(fc, gone);
	return was_open;
}

void kv_filecache_drop(struct kv_filecache *fc, kv_fileno number)
{
	if (drop_open(fc, KV_FILE_SEGMENT, number) || drop_open(fc, KV_FILE_TABLE, number))
		return;
	kv_cache_drop_file(fc->cache, number); /* blocks outlive the open file that read them */
}
