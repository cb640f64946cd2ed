/*
 * Each shard: a hash table, and a queue of its entries in which eviction goes round. Whoever
 * comes to the front and was hit since it was there last goes to the back once more.
 *
 * References: the shard has one to each entry in its table, each pin is one. New ones are made
 * under the shard's mutex from an entry that is in the table; so when the mutex is held and
 * only the table's reference is left, nobody can be using the entry. Letting go needs no mutex.
 */
#include "kv/cache.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kv/list.h"
#include "kv/lock.h"

#define SHARDS_MAX 16
#define SHARD_BYTES_MIN KV_MIB		/* fewer shards when the budget is small: a block always fits */
#define BUCKETS_MIN 64
#define OVERHEAD_BYTES 48		/* of an entry: allocator and table */

struct kv_cache_entry {
	struct kv_cache_key key;	/* constant once made */
	void *data;
	size_t bytes;

	_Atomic uint32_t refs;

	struct kv_cache_entry *chain;	/* of its bucket; guarded by the shard, to the end */
	struct kv_link queue_link;
	bool hit;
};

struct shard {
	struct kv_mutex mu;		/* guards all below */
	struct kv_cache_entry **buckets;
	size_t bucket_count, count;	/* a power of two; entries */
	struct kv_link queue;		/* front: next to be looked at by eviction */
	uint64_t bytes, bytes_max;
};

struct kv_cache {
	struct shard shards[SHARDS_MAX];
	uint32_t shard_count;		/* a power of two */
	_Atomic uint64_t bytes;
};

/* --- entries ---------------------------------------------------------------------------------- */

static uint64_t key_hash(struct kv_cache_key key)
{
	uint64_t x = key.file_no * 0x9e3779b97f4a7c15 ^ key.offset;

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
	return x ^ x >> 32;
}

static struct shard *shard_of(struct kv_cache *c, uint64_t hash)
{
	return &c->shards[(hash >> 56) & (c->shard_count - 1)];
}

static bool key_eq(struct kv_cache_key a, struct kv_cache_key b)
{
	return a.file_no == b.file_no && a.offset == b.offset;
}

static uint64_t entry_bytes(const struct kv_cache_entry *e)
{
	return e->bytes + sizeof(*e) + OVERHEAD_BYTES;
}

/* Takes the data over, also on failure. One reference. */
static struct kv_cache_entry *entry_new(struct kv_cache_key key, void *data, size_t bytes)
{
	struct kv_cache_entry *e = calloc(1, sizeof(*e));

	if (!e) {
		free(data);
		return NULL;
	}
	e->key = key;
	e->data = data;
	e->bytes = bytes;
	atomic_init(&e->refs, 1);
	kv_list_init(&e->queue_link);
	return e;
}

static void entry_unref(struct kv_cache_entry *e)
{
	uint32_t before = atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel);

	KV_ASSERT(before > 0);
	if (before > 1)
		return;
	free(e->data);
	free(e);
}

/* --- shards ----------------------------------------------------------------------------------- */

static struct kv_cache_entry **bucket_of(struct shard *s, uint64_t hash) KV_REQUIRES(&s->mu)
{
	return &s->buckets[hash & (s->bucket_count - 1)];
}

static struct kv_cache_entry *find_locked(struct shard *s, struct kv_cache_key key, uint64_t hash)
	KV_REQUIRES(&s->mu)
{
	struct kv_cache_entry *e = *bucket_of(s, hash);

	while (e && !key_eq(e->key, key))
		e = e->chain;
	return e;
}

/* Longer chains, when there is no memory for more buckets. */
static void grow_locked(struct shard *s) KV_REQUIRES(&s->mu)
{
	size_t old_count = s->bucket_count;
	struct kv_cache_entry **old = s->buckets, **buckets, *e, **to;

	if (s->count < old_count)
		return;
	buckets = calloc(old_count * 2, sizeof(*buckets));
	if (!buckets)
		return;
	s->buckets = buckets;
	s->bucket_count = old_count * 2;
	for (size_t i = 0; i < old_count; i++)
		while ((e = old[i]) != NULL) {
			old[i] = e->chain;
			to = bucket_of(s, key_hash(e->key));
			e->chain = *to;
			*to = e;
		}
	free(old);
}

static void insert_locked(struct kv_cache *c, struct shard *s, struct kv_cache_entry *e,
			  uint64_t hash) KV_REQUIRES(&s->mu)
{
	struct kv_cache_entry **b;

	grow_locked(s);
	b = bucket_of(s, hash);
	e->chain = *b;
	*b = e;
	kv_list_push_back(&s->queue, &e->queue_link);
	s->count++;
	s->bytes += entry_bytes(e);
	atomic_fetch_add_explicit(&c->bytes, entry_bytes(e), memory_order_relaxed);
}

/* Out of the table; the table's reference goes to the caller, with the entry pushed on *list. */
static void remove_locked(struct kv_cache *c, struct shard *s, struct kv_cache_entry *e,
			  struct kv_cache_entry **list) KV_REQUIRES(&s->mu)
{
	struct kv_cache_entry **at = bucket_of(s, key_hash(e->key));

	while (*at != e)
		at = &(*at)->chain;
	*at = e->chain;
	kv_list_remove(&e->queue_link);
	s->count--;
	s->bytes -= entry_bytes(e);
	atomic_fetch_sub_explicit(&c->bytes, entry_bytes(e), memory_order_relaxed);
	e->chain = *list;
	*list = e;
}

/*
 * Makes room for more bytes. Twice round is enough to see each entry after its bit was
 * cleared; then all that is left is pinned, and the budget is exceeded.
 */
static void evict_locked(struct kv_cache *c, struct shard *s, uint64_t bytes,
			 struct kv_cache_entry **list) KV_REQUIRES(&s->mu)
{
	struct kv_cache_entry *e;

	for (size_t left = 2 * s->count; left && s->bytes + bytes > s->bytes_max; left--) {
		e = kv_container_of(s->queue.next, struct kv_cache_entry, queue_link);
		if (e->hit || atomic_load_explicit(&e->refs, memory_order_acquire) > 1) {
			e->hit = false;
			kv_list_remove(&e->queue_link);
			kv_list_push_back(&s->queue, &e->queue_link);
		} else {
			remove_locked(c, s, e, list);
		}
	}
}

/* Outside of the mutex: freeing many blocks takes its time. */
static void unref_list(struct kv_cache_entry *list)
{
	struct kv_cache_entry *e;

	while ((e = list) != NULL) {
		list = e->chain;
		entry_unref(e);
	}
}

/* --- the cache -------------------------------------------------------------------------------- */

struct kv_cache *kv_cache_new(uint64_t bytes_max)
{
	struct kv_cache *c = calloc(1, sizeof(*c));
	uint32_t n = SHARDS_MAX;

	if (!c)
		return NULL;
	while (n > 1 && bytes_max / n < SHARD_BYTES_MIN)
		n /= 2;
	for (uint32_t i = 0; i < n; i++) {
		struct shard *s = &c->shards[i];

		s->buckets = calloc(BUCKETS_MIN, sizeof(*s->buckets));
		if (!s->buckets) {
			kv_cache_free(c);
			return NULL;
		}
		kv_mutex_init(&s->mu);
		kv_list_init(&s->queue);
		s->bucket_count = BUCKETS_MIN;
		s->bytes_max = bytes_max / n;
		c->shard_count++;
	}
	return c;
}

void kv_cache_free(struct kv_cache *c)
{
	struct kv_cache_entry *e;

	if (!c)
		return;
	for (uint32_t i = 0; i < c->shard_count; i++) {
		struct shard *s = &c->shards[i];

		while (!kv_list_empty(&s->queue)) {
			e = kv_container_of(s->queue.next, struct kv_cache_entry, queue_link);
			KV_ASSERT(atomic_load(&e->refs) == 1);
			kv_list_remove(&e->queue_link);
			entry_unref(e);
		}
		free(s->buckets);
		kv_mutex_done(&s->mu);
	}
	free(c);
}

struct kv_cache_entry *kv_cache_get(struct kv_cache *c, struct kv_cache_key key)
{
	uint64_t hash = key_hash(key);
	struct shard *s = shard_of(c, hash);
	struct kv_cache_entry *e;

	kv_mutex_lock(&s->mu);
	e = find_locked(s, key, hash);
	if (e) {
		e->hit = true;
		atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
	}
	kv_mutex_unlock(&s->mu);
	return e;
}

struct kv_cache_entry *kv_cache_put(struct kv_cache *c, struct kv_cache_key key, void *data,
				    size_t bytes)
{
	uint64_t hash = key_hash(key);
	struct shard *s = shard_of(c, hash);
	struct kv_cache_entry *mine = entry_new(key, data, bytes), *e, *gone = NULL;

	if (!mine)
		return NULL;
	kv_mutex_lock(&s->mu);
	e = find_locked(s, key, hash);
	if (e) {
		e->hit = true;
	} else {
		e = mine;
		mine = NULL;
		evict_locked(c, s, entry_bytes(e), &gone);
		insert_locked(c, s, e, hash);
	}
	atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
	kv_mutex_unlock(&s->mu);
	unref_list(gone);
	if (mine)
		entry_unref(mine);
	return e;
}

struct kv_cache_entry *kv_cache_private(struct kv_cache *c, void *data, size_t bytes)
{
	(void)c;
	return entry_new((struct kv_cache_key){ 0, 0 }, data, bytes);
}

void kv_cache_unpin(struct kv_cache *c, struct kv_cache_entry *e)
{
	(void)c;
	if (e)
		entry_unref(e);
}

struct kv_slice kv_cache_entry_data(const struct kv_cache_entry *e)
{
	return kv_slice(e->data, e->bytes);
}

void kv_cache_drop_file(struct kv_cache *c, uint64_t file_no)
{
	struct kv_cache_entry *e, *gone;

	for (uint32_t i = 0; i < c->shard_count; i++) {
		struct shard *s = &c->shards[i];

		gone = NULL;
		kv_mutex_lock(&s->mu);
		kv_list_for_each_safe(l, &s->queue) {
			e = kv_container_of(l, struct kv_cache_entry, queue_link);
			if (e->key.file_no == file_no)
				remove_locked(c, s, e, &gone);
		}
		kv_mutex_unlock(&s->mu);
		unref_list(gone);
	}
}

uint64_t kv_cache_bytes(const struct kv_cache *c)
{
	return atomic_load_explicit(&c->bytes, memory_order_relaxed);
}
