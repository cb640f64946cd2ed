/*
 * Each shard has slots, in each of which an entry can live, and an index: a hash table with
 * open addressing, whose words hold 32 bits of the key's hash and the number of the slot.
 * A hit reads a word of the index, and the line of the slot: no mutex, and two atomic
 * operations, one that pins and one that unpins. All else is done under the shard's mutex.
 *
 * That works since slots are never freed before the cache is, only used again, and since
 * whoever comes late finds out: a get pins whatever lives in the slot, and only then looks
 * whether it may have it, and whether it has the right key; if not, it lets go again. What it
 * pins for a moment may be another entry, or none, so pins are added and taken off, and the
 * word of a slot is never stored to. A get that runs while the index changes may miss what is
 * there; its caller reads the block and kv_cache_put() finds the entry.
 *
 * An entry is replaced only when it is VISIBLE without pins; with pins it becomes GONE, and
 * whoever takes off the last pin ends it. Both are a compare-and-exchange under the mutex.
 */
#include "kv/cache.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kv/lock.h"

#define LINE 64				/* bytes of a line of the processor's cache */
#define SHARDS_MAX 16
#define SHARD_BYTES_MIN (4 * KV_MIB)	/* fewer shards when the budget is small: a block always fits */
#define BLOCKS_FLOOR 4			/* blocks may always take a quarter of the budget */
#define BLOCK_BYTES_GUESS (8 * KV_KIB)	/* for the first index; it grows */
#define INDEX_MIN 64			/* powers of two */
#define INDEX_FIRST_MAX 65536
#define WORDS_PER_CHAIN 32		/* of the index, for a chain of entries by file */
#define SLOTS_FIRST 64u			/* in the first segment; each next one has twice as many */
#define SEGMENTS_MAX 26			/* more have no 32-bit number */
#define OVERHEAD_BYTES 48		/* of an entry: allocator, index */

/* The word of a slot. None of VISIBLE, GONE, PRIVATE: nothing lives in it. */
#define PINS 0xffffffffull
#define VISIBLE (1ull << 32)		/* in the index */
#define GONE (1ull << 33)		/* not in it any more, but pinned */
#define PRIVATE (1ull << 34)		/* no slot, but from malloc */
#define HIT (1ull << 35)		/* since the hand of the clock came by */

/* A slot. Key and data are constant from when it becomes VISIBLE until nothing lives in it. */
struct kv_cache_entry {
	_Atomic uint64_t word;
	struct kv_cache_key key;
	void *data;
	size_t bytes;
	uint32_t number, shard;		/* constant; numbers begin with 1 */
	uint32_t tag;			/* guarded by the shard, to the end: what the index has of its hash */
	uint32_t next, prev;		/* of the chain by file (next also: of free slots); 0: none */
};
_Static_assert(sizeof(struct kv_cache_entry) == LINE || sizeof(void *) != 8,
	       "an entry has a line");

struct index {
	struct index *older;		/* gets may still be in it: freed with the cache */
	uint64_t mask;
	_Atomic uint64_t words[];	/* tag << 32 | number of the slot; 0: empty */
};

struct shard {
	_Alignas(LINE) _Atomic(struct index *) index;	/* gets read to the blank line */
	_Atomic(struct kv_cache_entry *) segments[SEGMENTS_MAX];

	_Alignas(LINE) struct kv_mutex mu;	/* guards all below, and changes of all above */
	uint32_t *chains;		/* by file: numbers of first entries */
	uint32_t chain_count;		/* a power of two */
	uint32_t slot_count, segment_count;
	uint32_t count;			/* entries in the index */
	uint32_t free;			/* a slot in which nothing lives, with the others behind it */
	uint32_t hand;			/* of the clock: the slot that was looked at last */
	uint64_t bytes;			/* of all entries, GONE ones too */
};

struct kv_cache {
	struct shard shards[SHARDS_MAX];
	uint32_t shard_count;		/* a power of two; constant, as the next */
	uint64_t bytes_max;
	_Alignas(LINE) _Atomic uint64_t bytes;
	_Atomic uint64_t charged;
};

/* Data to be freed when the mutex is not held: freeing many blocks takes its time. */
struct doomed {
	uint32_t count;
	void *at[32];
};

static void doomed_free(struct doomed *d)
{
	while (d->count)
		free(d->at[--d->count]);
}

static void doomed_add(struct doomed *d, void *data)
{
	if (d->count == KV_ARRAY_LEN(d->at))
		doomed_free(d);
	d->at[d->count++] = data;
}

/* --- keys ------------------------------------------------------------------------------------- */

/* Files and offsets differ in few of their low bits; those of the result differ in all. */
static uint64_t key_hash(struct kv_cache_key key)
{
	uint64_t x = (key.file_no << 40 | key.file_no >> 24) + key.offset;

	x *= 0xd6e8feb86659fd93;
	x ^= x >> 32;
	return x * 0xd6e8feb86659fd93;
}

static uint32_t hash_tag(uint64_t hash)
{
	return (uint32_t)(hash >> 32);
}

static struct shard *hash_shard(struct kv_cache *c, uint64_t hash)
{
	return &c->shards[(hash >> 28) & (c->shard_count - 1)];
}

static bool key_eq(struct kv_cache_key a, struct kv_cache_key b)
{
	return a.file_no == b.file_no && a.offset == b.offset;
}

static uint64_t entry_bytes(const struct kv_cache_entry *e)
{
	return e->bytes + sizeof(*e) + OVERHEAD_BYTES;
}

/* --- slots ------------------------------------------------------------------------------------ */

static struct kv_cache_entry *slot_at(struct shard *s, uint32_t number)
{
	uint32_t at = number - 1 + SLOTS_FIRST;
	uint32_t segment = (uint32_t)__builtin_clz(SLOTS_FIRST) - (uint32_t)__builtin_clz(at);

	/* Who has the number from the index has seen the segment be set before. */
	return atomic_load_explicit(&s->segments[segment], memory_order_relaxed) +
	       (at - (SLOTS_FIRST << segment));
}

/* Calls for one that the slot's number is free. */
static void slot_free_locked(struct shard *s, struct kv_cache_entry *e) KV_REQUIRES(&s->mu)
{
	e->data = NULL;
	e->next = s->free;
	s->free = e->number;
}

static bool add_segment_locked(struct shard *s, uint32_t shard_no) KV_REQUIRES(&s->mu)
{
	uint32_t n = SLOTS_FIRST << s->segment_count;
	struct kv_cache_entry *slots;

	if (s->segment_count == SEGMENTS_MAX)
		return false;
	slots = aligned_alloc(LINE, n * sizeof(*slots));
	if (!slots)
		return false;
	atomic_store_explicit(&s->segments[s->segment_count++], slots, memory_order_relaxed);
	for (uint32_t i = n; i-- > 0;) {
		slots[i] = (struct kv_cache_entry){
			.number = s->slot_count + i + 1,
			.shard = shard_no,
		};
		slot_free_locked(s, &slots[i]);
	}
	s->slot_count += n;
	return true;
}

/* --- the index -------------------------------------------------------------------------------- */

static struct index *index_of(struct shard *s)
{
	return atomic_load_explicit(&s->index, memory_order_acquire);
}

static uint64_t word_at(const struct index *x, uint64_t i)
{
	return atomic_load_explicit(&x->words[i & x->mask], memory_order_acquire);
}

static void set_word(struct index *x, uint64_t i, uint64_t word)
{
	atomic_store_explicit(&x->words[i & x->mask], word, memory_order_release);
}

static void index_add(struct index *x, uint64_t word)
{
	uint64_t i = word >> 32;

	while (word_at(x, i))
		i++;
	set_word(x, i, word);
}

static void index_remove(struct index *x, uint64_t word)
{
	uint64_t hole = word >> 32, i;

	while (word_at(x, hole) != word)
		hole++;
	/* What lies behind moves up, as far as it may: to where its tag would have it, not before. */
	for (i = hole + 1; (word = word_at(x, i)) != 0; i++)
		if (((i - (word >> 32)) & x->mask) >= i - hole) {
			set_word(x, hole, word);
			hole = i;
		}
	set_word(x, hole, 0);
}

static uint64_t entry_word(const struct kv_cache_entry *e)
{
	return (uint64_t)e->tag << 32 | e->number;
}

static uint32_t *chain_of(struct shard *s, uint64_t file_no) KV_REQUIRES(&s->mu)
{
	return &s->chains[file_no & (s->chain_count - 1)];
}

static void chain_add_locked(struct shard *s, struct kv_cache_entry *e) KV_REQUIRES(&s->mu)
{
	uint32_t *first = chain_of(s, e->key.file_no);

	e->prev = 0;
	e->next = *first;
	if (e->next)
		slot_at(s, e->next)->prev = e->number;
	*first = e->number;
}

static void chain_remove_locked(struct shard *s, struct kv_cache_entry *e) KV_REQUIRES(&s->mu)
{
	if (e->prev)
		slot_at(s, e->prev)->next = e->next;
	else
		*chain_of(s, e->key.file_no) = e->next;
	if (e->next)
		slot_at(s, e->next)->prev = e->prev;
}

/* Replaces the index, and the chains, by larger ones (or sets the first). */
static bool resize_locked(struct shard *s, uint64_t words) KV_REQUIRES(&s->mu)
{
	uint32_t chain_count = (uint32_t)KV_MAX(words / WORDS_PER_CHAIN, (uint64_t)16);
	struct index *old = index_of(s), *x = calloc(1, sizeof(*x) + words * sizeof(x->words[0]));
	uint32_t *chains = calloc(chain_count, sizeof(*chains));

	if (!x || !chains) {
		free(x);
		free(chains);
		return false;
	}
	free(s->chains);
	s->chains = chains;
	s->chain_count = chain_count;
	x->older = old;
	x->mask = words - 1;
	for (uint64_t i = 0; old && i <= old->mask; i++)
		if (word_at(old, i)) {
			index_add(x, word_at(old, i));
			chain_add_locked(s, slot_at(s, (uint32_t)word_at(old, i)));
		}
	atomic_store_explicit(&s->index, x, memory_order_release);
	return true;
}

/* Room for one more. At the most half of the index is full; more, when there is no memory. */
static bool index_grow_locked(struct shard *s) KV_REQUIRES(&s->mu)
{
	uint64_t words = index_of(s)->mask + 1, count = (uint64_t)s->count + 1;

	return count * 2 <= words || resize_locked(s, words * 2) || count * 8 <= words * 7;
}

static struct kv_cache_entry *find_locked(struct shard *s, struct kv_cache_key key, uint32_t tag)
	KV_REQUIRES(&s->mu)
{
	const struct index *x = index_of(s);
	struct kv_cache_entry *e;
	uint64_t word;

	for (uint64_t i = tag; (word = word_at(x, i)) != 0; i++)
		if (word >> 32 == tag) {
			e = slot_at(s, (uint32_t)word);
			if (key_eq(e->key, key))
				return e;
		}
	return NULL;
}

/* --- entries ---------------------------------------------------------------------------------- */

/* Nothing lives in the slot any more, since its word was just made to say so. */
static void end_locked(struct kv_cache *c, struct shard *s, struct kv_cache_entry *e,
		       struct doomed *d) KV_REQUIRES(&s->mu)
{
	s->bytes -= entry_bytes(e);
	atomic_fetch_sub_explicit(&c->bytes, entry_bytes(e), memory_order_relaxed);
	doomed_add(d, e->data);
	slot_free_locked(s, e);
}

static void forget_locked(struct shard *s, struct kv_cache_entry *e) KV_REQUIRES(&s->mu)
{
	index_remove(index_of(s), entry_word(e));
	chain_remove_locked(s, e);
	s->count--;
}

/* If it is neither pinned nor was hit. */
static void evict_one_locked(struct kv_cache *c, struct shard *s, struct kv_cache_entry *e,
			     struct doomed *d) KV_REQUIRES(&s->mu)
{
	uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);

	if (!(word & VISIBLE))
		return;
	if (word & HIT)
		atomic_fetch_and_explicit(&e->word, ~HIT, memory_order_relaxed);
	else if (!(word & PINS) &&
		 atomic_compare_exchange_strong_explicit(&e->word, &word, 0, memory_order_acq_rel,
							 memory_order_relaxed)) {
		forget_locked(s, e);
		end_locked(c, s, e, d);
	}
}

/* What blocks may take beside all that is charged. */
static uint64_t shard_bytes_max(const struct kv_cache *c)
{
	uint64_t charged = atomic_load_explicit(&c->charged, memory_order_relaxed);
	uint64_t floor = c->bytes_max / BLOCKS_FLOOR;
	uint64_t left = charged < c->bytes_max ? c->bytes_max - charged : 0;

	return KV_MAX(left, floor) / c->shard_count;
}

/*
 * Makes room for more bytes. Twice round is enough to see each entry after its bit was
 * cleared; then all that is left is pinned, and the budget is exceeded.
 */
static void evict_locked(struct kv_cache *c, struct shard *s, uint64_t bytes, struct doomed *d)
	KV_REQUIRES(&s->mu)
{
	uint64_t max = shard_bytes_max(c);

	for (uint64_t left = 2ull * s->slot_count; left && s->bytes + bytes > max; left--) {
		s->hand = s->hand % s->slot_count + 1;
		evict_one_locked(c, s, slot_at(s, s->hand), d);
	}
}

/* A new entry, pinned once; NULL when out of memory. */
static struct kv_cache_entry *insert_locked(struct kv_cache *c, struct shard *s,
					    const struct kv_cache_entry *from)
	KV_REQUIRES(&s->mu)
{
	struct kv_cache_entry *e;

	if (!index_grow_locked(s))
		return NULL;
	if (!s->free && !add_segment_locked(s, (uint32_t)(s - c->shards)))
		return NULL;
	e = slot_at(s, s->free);
	s->free = e->next;
	e->key = from->key;
	e->data = from->data;
	e->bytes = from->bytes;
	e->tag = from->tag;
	atomic_fetch_add_explicit(&e->word, VISIBLE + 1, memory_order_release);
	index_add(index_of(s), entry_word(e));
	chain_add_locked(s, e);
	s->count++;
	s->bytes += entry_bytes(e);
	atomic_fetch_add_explicit(&c->bytes, entry_bytes(e), memory_order_relaxed);
	return e;
}

/* Off the index; what is pinned stays until it isn't. */
static void drop_locked(struct kv_cache *c, struct shard *s, struct kv_cache_entry *e,
			struct doomed *d) KV_REQUIRES(&s->mu)
{
	uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed), to;

	do {
		to = word & PINS ? (word & ~VISIBLE) | GONE : 0;
	} while (!atomic_compare_exchange_weak_explicit(&e->word, &word, to, memory_order_acq_rel,
							memory_order_relaxed));
	forget_locked(s, e);
	if (!to)
		end_locked(c, s, e, d);
}

/* --- the cache -------------------------------------------------------------------------------- */

static uint64_t first_index_words(uint64_t shard_bytes)
{
	uint64_t words = INDEX_MIN;

	while (words < INDEX_FIRST_MAX && words / 2 < shard_bytes / BLOCK_BYTES_GUESS)
		words *= 2;
	return words;
}

struct kv_cache *kv_cache_new(uint64_t bytes_max)
{
	struct kv_cache *c = aligned_alloc(LINE, sizeof(*c));
	uint32_t n = SHARDS_MAX;
	bool ok = true;

	if (!c)
		return NULL;
	*c = (struct kv_cache){ .bytes_max = bytes_max };
	while (n > 1 && bytes_max / n < SHARD_BYTES_MIN)
		n /= 2;
	for (; ok && c->shard_count < n; c->shard_count++) {
		struct shard *s = &c->shards[c->shard_count];

		kv_mutex_init(&s->mu);
		kv_mutex_lock(&s->mu);
		ok = resize_locked(s, first_index_words(bytes_max / n));
		kv_mutex_unlock(&s->mu);
	}
	if (!ok) {
		kv_cache_free(c);
		return NULL;
	}
	return c;
}

static void shard_done(struct shard *s)
{
	struct index *x, *older;

	for (uint32_t i = 1; i <= s->slot_count; i++) {
		struct kv_cache_entry *e = slot_at(s, i);

		KV_ASSERT(!(atomic_load(&e->word) & (PINS | GONE)));
		free(e->data);
	}
	for (uint32_t i = 0; i < s->segment_count; i++)
		free(atomic_load(&s->segments[i]));
	for (x = index_of(s); x; x = older) {
		older = x->older;
		free(x);
	}
	free(s->chains);
	kv_mutex_done(&s->mu);
}

void kv_cache_free(struct kv_cache *c)
{
	if (!c)
		return;
	KV_ASSERT(!kv_cache_charged(c));
	for (uint32_t i = 0; i < c->shard_count; i++)
		shard_done(&c->shards[i]);
	free(c);
}

struct kv_cache_entry *kv_cache_get(struct kv_cache *c, struct kv_cache_key key)
{
	uint64_t hash = key_hash(key), i = hash_tag(hash), end, word;
	struct shard *s = hash_shard(c, hash);
	const struct index *x = index_of(s);
	struct kv_cache_entry *e;

	/* The end: for one before whom others keep moving what he looks at. */
	for (end = i + x->mask; i != end && (word = word_at(x, i)) != 0; i++) {
		if (word >> 32 != hash_tag(hash))
			continue;
		e = slot_at(s, (uint32_t)word);
		word = atomic_fetch_add_explicit(&e->word, 1, memory_order_acquire);
		if (word & VISIBLE && key_eq(e->key, key)) {
			if (!(word & HIT))
				atomic_fetch_or_explicit(&e->word, HIT, memory_order_relaxed);
			return e;
		}
		kv_cache_unpin(c, e);
	}
	return NULL;
}

struct kv_cache_entry *kv_cache_put(struct kv_cache *c, struct kv_cache_key key, void *data,
				    size_t bytes)
{
	uint64_t hash = key_hash(key);
	const struct kv_cache_entry from = { .key = key, .data = data, .bytes = bytes,
					     .tag = hash_tag(hash) };
	struct shard *s = hash_shard(c, hash);
	struct doomed d = { .count = 0 };
	struct kv_cache_entry *e;

	kv_mutex_lock(&s->mu);
	e = find_locked(s, key, from.tag);
	if (e) {
		atomic_fetch_add_explicit(&e->word, 1, memory_order_acquire);
		atomic_fetch_or_explicit(&e->word, HIT, memory_order_relaxed);
		doomed_add(&d, data);
	} else {
		evict_locked(c, s, entry_bytes(&from), &d);
		e = insert_locked(c, s, &from);
		if (!e)
			doomed_add(&d, data);
	}
	kv_mutex_unlock(&s->mu);
	doomed_free(&d);
	return e;
}

struct kv_cache_entry *kv_cache_private(struct kv_cache *c, void *data, size_t bytes)
{
	struct kv_cache_entry *e = calloc(1, sizeof(*e));

	(void)c;
	if (!e) {
		free(data);
		return NULL;
	}
	e->data = data;
	e->bytes = bytes;
	atomic_init(&e->word, PRIVATE + 1);
	return e;
}

/* Somebody may pin it once more, for a moment: then he is the last one, and comes here. */
static void unpin_gone(struct kv_cache *c, struct kv_cache_entry *e)
{
	struct shard *s = &c->shards[e->shard];
	struct doomed d = { .count = 0 };
	uint64_t word;

	kv_mutex_lock(&s->mu);
	word = atomic_load_explicit(&e->word, memory_order_relaxed);
	if (word & GONE && !(word & PINS) &&
	    atomic_compare_exchange_strong_explicit(&e->word, &word, 0, memory_order_acq_rel,
						    memory_order_relaxed))
		end_locked(c, s, e, &d);
	kv_mutex_unlock(&s->mu);
	doomed_free(&d);
}

void kv_cache_unpin(struct kv_cache *c, struct kv_cache_entry *e)
{
	uint64_t word;

	if (!e)
		return;
	word = atomic_fetch_sub_explicit(&e->word, 1, memory_order_acq_rel);
	KV_ASSERT(word & PINS);
	if ((word & PINS) > 1 || !(word & (GONE | PRIVATE)))
		return;
	if (word & GONE) {
		unpin_gone(c, e);
	} else {
		free(e->data);
		free(e);
	}
}

struct kv_slice kv_cache_entry_data(const struct kv_cache_entry *e)
{
	return kv_slice(e->data, e->bytes);
}

/* False: there may be more. */
static bool drop_some(struct kv_cache *c, struct shard *s, uint64_t file_no)
{
	struct doomed d = { .count = 0 };
	struct kv_cache_entry *e;
	uint32_t next;

	kv_mutex_lock(&s->mu);
	next = *chain_of(s, file_no);
	while (next && d.count < KV_ARRAY_LEN(d.at)) {
		e = slot_at(s, next);
		next = e->next;
		if (e->key.file_no == file_no)
			drop_locked(c, s, e, &d);
	}
	kv_mutex_unlock(&s->mu);
	doomed_free(&d);
	return !next;
}

void kv_cache_drop_file(struct kv_cache *c, uint64_t file_no)
{
	for (uint32_t i = 0; i < c->shard_count; i++)
		while (!drop_some(c, &c->shards[i], file_no))
			;
}

uint64_t kv_cache_bytes(const struct kv_cache *c)
{
	return atomic_load_explicit(&c->bytes, memory_order_relaxed);
}

/* --- the budget ------------------------------------------------------------------------------- */

void kv_cache_charge(struct kv_cache *c, int64_t bytes)
{
	struct doomed d = { .count = 0 };

	atomic_fetch_add_explicit(&c->charged, (uint64_t)bytes, memory_order_relaxed);
	for (uint32_t i = 0; bytes > 0 && i < c->shard_count; i++) {
		struct shard *s = &c->shards[i];

		kv_mutex_lock(&s->mu);
		evict_locked(c, s, 0, &d);
		kv_mutex_unlock(&s->mu);
		doomed_free(&d);
	}
}

uint64_t kv_cache_charged(const struct kv_cache *c)
{
	return atomic_load_explicit(&c->charged, memory_order_relaxed);
}
