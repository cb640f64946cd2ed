/*
 * Readers need no lock since a node is whole before it can be reached: it is
 * linked by a release store, and followed by an acquire load. It is linked from
 * the lowest level up, so that a node met on a level is met on all below.
 * Nothing is ever unlinked.
 */
#include "kv/skiplist.h"

#include <errno.h>
#include <stdatomic.h>

#include "kv/assert.h"

/* A node is on the next level, too, with a chance of one in 2^HEIGHT_BITS. */
#define HEIGHT_BITS 2

struct kv_skipnode {
	uint32_t value_bytes;
	uint16_t key_bytes;		/* of the internal key */
	uint16_t height;
	_Atomic(struct kv_skipnode *) next[];	/* height of them; then the key, then the value */
};

static struct kv_skipnode *load_next(const struct kv_skipnode *n, int level)
{
	return atomic_load_explicit(&n->next[level], memory_order_acquire);
}

static uint8_t *node_bytes(const struct kv_skipnode *n)
{
	return (uint8_t *)(uintptr_t)(n->next + n->height);
}

static struct kv_skipnode *new_node(struct kv_arena *arena, int height, size_t key_bytes,
				    size_t value_bytes)
{
	struct kv_skipnode *n;
	size_t tower_bytes = (size_t)height * sizeof(n->next[0]);

	KV_ASSERT(key_bytes <= UINT16_MAX && value_bytes <= UINT32_MAX);
	n = kv_arena_alloc(arena, sizeof(*n) + tower_bytes + key_bytes + value_bytes);
	if (!n)
		return NULL;
	n->value_bytes = (uint32_t)value_bytes;
	n->key_bytes = (uint16_t)key_bytes;
	n->height = (uint16_t)height;
	for (int i = 0; i < height; i++)
		atomic_init(&n->next[i], NULL);
	return n;
}

int kv_skiplist_init(struct kv_skiplist *l, struct kv_arena *arena)
{
	l->arena = arena;
	l->head = new_node(arena, KV_SKIPLIST_HEIGHT_MAX, 0, 0);
	if (!l->head)
		return -ENOMEM;
	atomic_init(&l->height, 1);
	atomic_init(&l->count, 0);
	l->random = 0x9e3779b9;
	for (int i = 0; i < KV_SKIPLIST_HEIGHT_MAX; i++)
		l->splice[i] = l->head;
	return 0;
}

/* Where n lies: < 0 before (user_key, trailer). The larger trailer comes first. */
static int compare(const struct kv_skipnode *n, struct kv_slice user_key, uint64_t trailer)
{
	struct kv_slice key = kv_skipnode_key(n);
	int c = kv_slice_cmp(kv_ikey_user(key), user_key);
	uint64_t t;

	if (c)
		return c;
	t = kv_ikey_trailer(key);
	return (t < trailer) - (t > trailer);
}

/*
 * The last node before the key (or at it, with or_at), which may be the head.
 * *out_next is the first one behind that place, as it was seen: a reader must
 * not ask for the next one again, a writer may have put another before it.
 */
static struct kv_skipnode *find(const struct kv_skiplist *l, struct kv_slice user_key,
				uint64_t trailer, bool or_at, struct kv_skipnode **out_splice,
				struct kv_skipnode **out_next)
{
	struct kv_skipnode *n = l->head, *next = NULL, *beyond = NULL;
	int level = atomic_load_explicit(&l->height, memory_order_relaxed);

	while (level-- > 0) {
		/* What was found to lie beyond on a higher level is not compared again. */
		while ((next = load_next(n, level)) && next != beyond) {
			if (compare(next, user_key, trailer) >= (or_at ? 1 : 0)) {
				beyond = next;
				break;
			}
			n = next;
		}
		if (out_splice)
			out_splice[level] = n;
	}
	if (out_next)
		*out_next = next;
	return n;
}

static int random_height(struct kv_skiplist *l)
{
	uint32_t r = l->random;
	int height = 1;

	r ^= r << 13;
	r ^= r >> 17;
	r ^= r << 5;
	l->random = r;
	for (; height < KV_SKIPLIST_HEIGHT_MAX && !(r & ((1 << HEIGHT_BITS) - 1));
	     r >>= HEIGHT_BITS)
		height++;
	return height;
}

/*
 * Does the key belong right behind the last one inserted? Then the splice holds on
 * all levels: on a higher one, the next node is no nearer than on the lowest.
 */
static bool splice_holds(const struct kv_skiplist *l, struct kv_slice user_key, uint64_t trailer)
{
	const struct kv_skipnode *last = l->splice[0], *next = load_next(last, 0);

	return (last == l->head || compare(last, user_key, trailer) < 0) &&
	       (!next || compare(next, user_key, trailer) > 0);
}

static void link_node(struct kv_skiplist *l, struct kv_skipnode *n)
{
	for (int i = 0; i < n->height; i++) {
		struct kv_skipnode *before = l->splice[i];

		atomic_store_explicit(&n->next[i], load_next(before, i), memory_order_relaxed);
		atomic_store_explicit(&before->next[i], n, memory_order_release);
		l->splice[i] = n;
	}
	/* A reader that sees the new height too early finds empty levels: no harm. */
	if (n->height > atomic_load_explicit(&l->height, memory_order_relaxed))
		atomic_store_explicit(&l->height, n->height, memory_order_relaxed);
	atomic_fetch_add_explicit(&l->count, 1, memory_order_relaxed);
}

int kv_skiplist_insert(struct kv_skiplist *l, struct kv_slice user_key, kv_seqno seqno,
		       enum kv_kind kind, struct kv_slice value)
{
	uint64_t trailer = kv_ikey_pack(seqno, kind);
	le64 stored_trailer = kv_le64(trailer);
	struct kv_skipnode *n, *next;
	uint8_t *at;

	KV_ASSERT(seqno <= KV_SEQNO_MAX);
	if (!splice_holds(l, user_key, trailer)) {
		find(l, user_key, trailer, false, l->splice, &next);
		KV_ASSERT(!next || compare(next, user_key, trailer) != 0);
	}
	n = new_node(l->arena, random_height(l), user_key.bytes + sizeof(stored_trailer),
		     value.bytes);
	if (!n)
		return -ENOMEM;
	at = node_bytes(n);
	if (user_key.bytes)
		memcpy(at, user_key.data, user_key.bytes);
	memcpy(at + user_key.bytes, &stored_trailer, sizeof(stored_trailer));
	if (value.bytes)
		memcpy(at + n->key_bytes, value.data, value.bytes);
	link_node(l, n);
	return 0;
}

struct kv_skipnode *kv_skiplist_seek(const struct kv_skiplist *l, struct kv_slice user_key,
				     uint64_t trailer)
{
	struct kv_skipnode *next;

	find(l, user_key, trailer, false, NULL, &next);
	return next;
}

struct kv_skipnode *kv_skiplist_seek_prev(const struct kv_skiplist *l, struct kv_slice user_key,
					  uint64_t trailer)
{
	struct kv_skipnode *n = find(l, user_key, trailer, true, NULL, NULL);

	return n == l->head ? NULL : n;
}

struct kv_skipnode *kv_skiplist_first(const struct kv_skiplist *l)
{
	return load_next(l->head, 0);
}

struct kv_skipnode *kv_skiplist_last(const struct kv_skiplist *l)
{
	struct kv_skipnode *n = l->head, *next;
	int level = atomic_load_explicit(&l->height, memory_order_relaxed);

	while (level-- > 0)
		while ((next = load_next(n, level)))
			n = next;
	return n == l->head ? NULL : n;
}

uint64_t kv_skiplist_rank(const struct kv_skiplist *l, struct kv_slice user_key, uint64_t trailer)
{
	struct kv_skipnode *n = l->head, *next;
	int level = atomic_load_explicit(&l->height, memory_order_relaxed);
	uint64_t rank = 0;

	while (level-- > 0)
		while ((next = load_next(n, level)) && compare(next, user_key, trailer) < 0) {
			n = next;
			rank += (uint64_t)1 << (HEIGHT_BITS * level);
		}
	return KV_MIN(rank, atomic_load_explicit(&l->count, memory_order_relaxed));
}

struct kv_skipnode *kv_skipnode_next(const struct kv_skipnode *n)
{
	return load_next(n, 0);
}

struct kv_slice kv_skipnode_key(const struct kv_skipnode *n)
{
	return kv_slice(node_bytes(n), n->key_bytes);
}

struct kv_slice kv_skipnode_value(const struct kv_skipnode *n)
{
	return kv_slice(node_bytes(n) + n->key_bytes, n->value_bytes);
}
