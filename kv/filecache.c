/*
 * Open files. An entry is found by its number from the moment somebody starts to open the file:
 * who comes then waits for that entry, and nobody else does, since the mutex is not held while
 * a file is opened or closed.
 *
 * A file that is open already is found, pinned and unpinned without the mutex, as a block is
 * (cache.c): entries are used again but never freed, and who has pinned one looks then whether
 * it is open and the right one. A chain may change under who walks it: he may miss what is
 * there, and looks again under the mutex.
 *
 * An entry without pins is closed, by a compare-and-exchange of its word under the mutex, when it
 * ENDS, or when too many are open: then the clock's hand goes round, as for blocks.
 */
#include "kv/filecache.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kv/list.h"
#include "kv/lock.h"

#define LINE 64				/* bytes of a line of the processor's cache */
#define BUCKETS 1024			/* a power of two; some thousand files at most */
#define CHAIN_MAX 16			/* longer ones are walked under the mutex */

/* The word of an entry. */
#define PINS 0xffffffffull
#define OPEN (1ull << 32)
#define ENDS (1ull << 33)		/* with its last pin: dropped, or not to be opened */
#define HIT (1ull << 34)		/* since the hand of the clock came by */

enum entry_state {
	ENTRY_OPENING,
	ENTRY_OPEN,
	ENTRY_FAILED,
};

struct kv_filecache_entry {
	_Alignas(LINE) _Atomic uint64_t word;
	_Atomic(struct kv_filecache_entry *) chain; /* of its bucket */
	_Atomic kv_fileno number;	/* constant while it is OPEN, as the next three */
	enum kv_file_kind kind;
	struct kv_sst *sst;		/* one of the two */
	struct kv_env_file *file;

	struct kv_link link;		/* of open ones, or free ones; guarded by the mutex, to the end */
	uint64_t charged_bytes;		/* to the cache of blocks */
	enum entry_state state;
	int error;			/* why it failed */
	bool dropped;
};

struct kv_filecache {
	struct kv_store *store;		/* set when made, constant after */
	struct kv_cache *cache;
	struct kv_sst_counters counters;
	uint32_t open_max;

	_Atomic uint32_t open_count;	/* changed under the mutex, as are the buckets; all read */
	_Atomic(struct kv_filecache_entry *) buckets[BUCKETS];

	struct kv_mutex mu;		/* guards all below */
	struct kv_cond opened;		/* some entry isn't OPENING any more */
	struct kv_link open;		/* front: next to be looked at by the clock */
	struct kv_link free;
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
	fc->open_max = files_max;
	kv_mutex_init(&fc->mu);
	kv_cond_init(&fc->opened);
	kv_list_init(&fc->open);
	kv_list_init(&fc->free);
	return fc;
}

static struct kv_filecache_entry *entry_of(struct kv_link *l)
{
	return kv_container_of(l, struct kv_filecache_entry, link);
}

static kv_fileno number_of(const struct kv_filecache_entry *e)
{
	return atomic_load_explicit(&e->number, memory_order_relaxed);
}

/* --- finding ---------------------------------------------------------------------------------- */

static _Atomic(struct kv_filecache_entry *) *bucket_of(struct kv_filecache *fc, kv_fileno number)
{
	return &fc->buckets[number & (BUCKETS - 1)];
}

static struct kv_filecache_entry *follow(const _Atomic(struct kv_filecache_entry *) *at)
{
	return atomic_load_explicit(at, memory_order_acquire);
}

/* Without the mutex. NULL: not open, or missed. */
static struct kv_filecache_entry *pin_open(struct kv_filecache *fc, enum kv_file_kind kind,
					   kv_fileno number)
{
	struct kv_filecache_entry *e = follow(bucket_of(fc, number));
	uint64_t word;

	for (int n = 0; e && n < CHAIN_MAX; n++, e = follow(&e->chain)) {
		if (number_of(e) != number)
			continue;
		word = atomic_fetch_add_explicit(&e->word, 1, memory_order_acquire);
		if (word & OPEN && number_of(e) == number && e->kind == kind) {
			if (!(word & HIT))
				atomic_fetch_or_explicit(&e->word, HIT, memory_order_relaxed);
			return e;
		}
		kv_filecache_unpin(fc, e);
	}
	return NULL;
}

static struct kv_filecache_entry *find_locked(struct kv_filecache *fc, enum kv_file_kind kind,
					      kv_fileno number) KV_REQUIRES(&fc->mu)
{
	struct kv_filecache_entry *e = follow(bucket_of(fc, number));

	while (e && (number_of(e) != number || e->kind != kind))
		e = follow(&e->chain);
	return e;
}

static void forget_locked(struct kv_filecache *fc, struct kv_filecache_entry *e)
	KV_REQUIRES(&fc->mu)
{
	_Atomic(struct kv_filecache_entry *) *at = bucket_of(fc, number_of(e));

	while (follow(at) != e)
		at = &follow(at)->chain;
	atomic_store_explicit(at, follow(&e->chain), memory_order_release);
}

/* --- closing ---------------------------------------------------------------------------------- */

/* Nobody finds or has it any more. Without the mutex: closing may take its time. */
static void entry_close(struct kv_filecache *fc, struct kv_filecache_entry *e)
{
	if (!e)
		return;
	kv_cache_charge(fc->cache, -(int64_t)e->charged_bytes);
	kv_sst_close(e->sst);
	if (e->file)
		fc->store->env->ops->close(e->file);
	/* Only now: as long as it was open, blocks and values could come in. */
	if (e->dropped)
		kv_cache_drop_file(fc->cache, number_of(e));
	kv_mutex_lock(&fc->mu);
	kv_list_push_back(&fc->free, &e->link);
	kv_mutex_unlock(&fc->mu);
}

/* Ends it, if it has none of the bits and no pins; the caller closes it then, without the mutex. */
static bool end_locked(struct kv_filecache *fc, struct kv_filecache_entry *e, uint64_t bits)
	KV_REQUIRES(&fc->mu)
{
	uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);

	if (word & (PINS | bits) ||
	    !atomic_compare_exchange_strong_explicit(&e->word, &word, 0, memory_order_acq_rel,
						     memory_order_relaxed))
		return false;
	if (e->state == ENTRY_OPEN) { /* one that failed is forgotten already */
		forget_locked(fc, e);
		kv_list_remove(&e->link);
		atomic_fetch_sub_explicit(&fc->open_count, 1, memory_order_relaxed);
	}
	return true;
}

static bool ends(const struct kv_filecache_entry *e)
{
	return atomic_load_explicit(&e->word, memory_order_relaxed) & ENDS;
}

static bool too_many(const struct kv_filecache *fc)
{
	return atomic_load_explicit(&fc->open_count, memory_order_relaxed) > fc->open_max;
}

/*
 * If too many are open, takes out one of them, which the caller closes. Twice round each
 * was seen after its bit was cleared: the others are in use.
 */
static struct kv_filecache_entry *evict_locked(struct kv_filecache *fc) KV_REQUIRES(&fc->mu)
{
	uint64_t left = 2ull * atomic_load_explicit(&fc->open_count, memory_order_relaxed);
	struct kv_filecache_entry *e;

	for (; too_many(fc) && left; left--) {
		e = entry_of(fc->open.next);
		if (end_locked(fc, e, HIT))
			return e;
		atomic_fetch_and_explicit(&e->word, ~HIT, memory_order_relaxed);
		kv_list_remove(&e->link);
		kv_list_push_back(&fc->open, &e->link);
	}
	return NULL;
}

/*
 * For an entry that had its last pin taken off. Meanwhile others may have pinned it again, or
 * ended it, and the entry may stand for another file: what the word says now counts.
 */
static void settle(struct kv_filecache *fc, struct kv_filecache_entry *e)
{
	struct kv_filecache_entry *gone;

	kv_mutex_lock(&fc->mu);
	gone = ends(e) && end_locked(fc, e, 0) ? e : evict_locked(fc);
	kv_mutex_unlock(&fc->mu);
	entry_close(fc, gone);
}

void kv_filecache_unpin(struct kv_filecache *fc, struct kv_filecache_entry *e)
{
	uint64_t word;

	if (!e)
		return;
	word = atomic_fetch_sub_explicit(&e->word, 1, memory_order_acq_rel);
	KV_ASSERT(word & PINS);
	if ((word & PINS) == 1 && (word & ENDS || too_many(fc)))
		settle(fc, e);
}

void kv_filecache_free(struct kv_filecache *fc)
{
	struct kv_filecache_entry *e;

	if (!fc)
		return;
	while (!kv_list_empty(&fc->open)) {
		e = entry_of(fc->open.next);
		KV_ASSERT(!(atomic_load(&e->word) & PINS));
		kv_list_remove(&e->link);
		entry_close(fc, e);
	}
	kv_list_for_each_safe(l, &fc->free)
		free(entry_of(l));
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

	KV_TRY(kv_store_open_file(fc->store, e->kind, number_of(e), &file));
	if (e->kind != KV_FILE_TABLE) {
		e->file = file;
		return 0;
	}
	err = kv_sst_open(fc->store, fc->cache, file, number_of(e), file_bytes, &fc->counters,
			  &e->sst);
	if (err)
		fc->store->env->ops->close(file);
	return err;
}

/* One that was used before, or a new one. */
static struct kv_filecache_entry *take_free_locked(struct kv_filecache *fc) KV_REQUIRES(&fc->mu)
{
	struct kv_filecache_entry *e;

	if (!kv_list_empty(&fc->free)) {
		e = entry_of(fc->free.next);
		kv_list_remove(&e->link);
		return e;
	}
	e = aligned_alloc(LINE, sizeof(*e));
	if (e) {
		atomic_init(&e->word, 0);
		atomic_init(&e->chain, NULL);
		atomic_init(&e->number, 0);
		kv_list_init(&e->link);
	}
	return e;
}

/* A new entry, OPENING, with a pin. */
static struct kv_filecache_entry *insert_locked(struct kv_filecache *fc, enum kv_file_kind kind,
						kv_fileno number) KV_REQUIRES(&fc->mu)
{
	_Atomic(struct kv_filecache_entry *) *bucket = bucket_of(fc, number);
	struct kv_filecache_entry *e = take_free_locked(fc);

	if (!e)
		return NULL;
	atomic_store_explicit(&e->number, number, memory_order_relaxed);
	e->kind = kind;
	e->sst = NULL;
	e->file = NULL;
	e->charged_bytes = 0;
	e->state = ENTRY_OPENING;
	e->error = 0;
	e->dropped = false;
	atomic_fetch_add_explicit(&e->word, 1, memory_order_relaxed);
	atomic_store_explicit(&e->chain, follow(bucket), memory_order_release);
	atomic_store_explicit(bucket, e, memory_order_release);
	return e;
}

/* Opens the file of an entry that was just inserted. The mutex is let go meanwhile. */
static int open_locked(struct kv_filecache *fc, struct kv_filecache_entry *e, uint64_t file_bytes)
	KV_REQUIRES(&fc->mu)
{
	uint64_t charged_bytes = 0;
	int err;

	kv_mutex_unlock(&fc->mu);
	err = open_file(fc, e, file_bytes);
	if (!err) {
		charged_bytes = sizeof(*e) + (e->sst ? kv_sst_memory_bytes(e->sst) : 0);
		kv_cache_charge(fc->cache, (int64_t)charged_bytes);
	}
	kv_mutex_lock(&fc->mu);
	e->charged_bytes = charged_bytes;
	e->error = err;
	if (err) {
		e->state = ENTRY_FAILED;
		forget_locked(fc, e); /* the next one tries again */
		atomic_fetch_or_explicit(&e->word, ENDS, memory_order_relaxed);
	} else {
		e->state = ENTRY_OPEN;
		kv_list_push_back(&fc->open, &e->link);
		atomic_fetch_add_explicit(&fc->open_count, 1, memory_order_relaxed);
		atomic_fetch_or_explicit(&e->word, OPEN, memory_order_release);
	}
	kv_cond_broadcast(&fc->opened);
	return err;
}

/* The entry, pinned, also when it failed. */
static int get_locked(struct kv_filecache *fc, enum kv_file_kind kind, kv_fileno number,
		      uint64_t file_bytes, struct kv_filecache_entry **out_pin)
	KV_REQUIRES(&fc->mu)
{
	struct kv_filecache_entry *e = find_locked(fc, kind, number);

	*out_pin = e;
	if (e) {
		atomic_fetch_add_explicit(&e->word, 1, memory_order_acquire);
		while (e->state == ENTRY_OPENING)
			kv_cond_wait(&fc->opened, &fc->mu);
		return e->error;
	}
	*out_pin = e = insert_locked(fc, kind, number);
	return e ? open_locked(fc, e, file_bytes) : -ENOMEM;
}

static int get(struct kv_filecache *fc, enum kv_file_kind kind, kv_fileno number,
	       uint64_t file_bytes, struct kv_filecache_entry **out_pin)
{
	struct kv_filecache_entry *e = pin_open(fc, kind, number), *gone;
	int err;

	if (e) {
		*out_pin = e;
		return 0;
	}
	kv_mutex_lock(&fc->mu);
	err = get_locked(fc, kind, number, file_bytes, &e);
	gone = evict_locked(fc);
	kv_mutex_unlock(&fc->mu);
	entry_close(fc, gone);
	if (err)
		kv_filecache_unpin(fc, e);
	else
		*out_pin = e;
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

/* --- dropping --------------------------------------------------------------------------------- */

/* False: it isn't open. */
static bool drop_open(struct kv_filecache *fc, enum kv_file_kind kind, kv_fileno number)
{
	struct kv_filecache_entry *e, *gone = NULL;

	kv_mutex_lock(&fc->mu);
	e = find_locked(fc, kind, number);
	if (e) {
		/* One in use stays to be found: its file may have no name any more. */
		e->dropped = true;
		atomic_fetch_or_explicit(&e->word, ENDS, memory_order_relaxed);
		if (end_locked(fc, e, 0))
			gone = e;
	}
	kv_mutex_unlock(&fc->mu);
	entry_close(fc, gone);
	return e;
}

void kv_filecache_drop(struct kv_filecache *fc, kv_fileno number)
{
	if (drop_open(fc, KV_FILE_SEGMENT, number) || drop_open(fc, KV_FILE_TABLE, number))
		return;
	kv_cache_drop_file(fc->cache, number); /* blocks outlive the open file that read them */
}
