/*
 * Skiplist of internal keys: one writer at a time, any number of readers that
 * take no lock, beside it. Nodes live in an arena and are never removed.
 */
#ifndef KV_SKIPLIST_H
#define KV_SKIPLIST_H

#include "kv/arena.h"
#include "kv/ikey.h"

struct kv_skipnode;

#define KV_SKIPLIST_HEIGHT_MAX 12

struct kv_skiplist {
	struct kv_arena *arena;
	struct kv_skipnode *head;
	_Atomic int height;
	_Atomic uint64_t count;

	/* The writer's own: on each level the last node before the place of the last insertion. */
	struct kv_skipnode *splice[KV_SKIPLIST_HEIGHT_MAX];
	uint32_t random;
};

/* -ENOMEM. The arena must outlive the list. */
int kv_skiplist_init(struct kv_skiplist *l, struct kv_arena *arena) KV_NODISCARD;

/*
 * Copies key and value. Two equal internal keys are a bug (asserted).
 * After -ENOMEM the list is as before.
 */
int kv_skiplist_insert(struct kv_skiplist *l, struct kv_slice user_key, kv_seqno seqno,
		       enum kv_kind kind, struct kv_slice value) KV_NODISCARD;

/* First node at or after (user_key, seqno, kind); last node at or before it; NULL when none. */
struct kv_skipnode *kv_skiplist_seek(const struct kv_skiplist *l, struct kv_slice user_key,
				     uint64_t trailer);
struct kv_skipnode *kv_skiplist_seek_prev(const struct kv_skiplist *l, struct kv_slice user_key,
					  uint64_t trailer);
struct kv_skipnode *kv_skiplist_first(const struct kv_skiplist *l);
struct kv_skipnode *kv_skiplist_last(const struct kv_skiplist *l);
/*
 * About how many nodes lie before the key: counted on the way to it, on each level by how many nodes
 * of the lowest one a step there passes on average.
 */
uint64_t kv_skiplist_rank(const struct kv_skiplist *l, struct kv_slice user_key, uint64_t trailer);
struct kv_skipnode *kv_skipnode_next(const struct kv_skipnode *n);

/* The internal key and the value; stay as long as the arena. */
struct kv_slice kv_skipnode_key(const struct kv_skipnode *n);
struct kv_slice kv_skipnode_value(const struct kv_skipnode *n);

#endif
