/*
 * Intrusive, circular, doubly linked list. The head is a link of its own;
 * an item that is on no list points to itself.
 */
#ifndef KV_LIST_H
#define KV_LIST_H

#include "kv/base.h"

struct kv_link {
	struct kv_link *next, *prev;
};

static inline void kv_list_init(struct kv_link *l)
{
	l->next = l->prev = l;
}

static inline bool kv_list_empty(const struct kv_link *head)
{
	return head->next == head;
}

static inline void kv_list_insert_before(struct kv_link *at, struct kv_link *l)
{
	l->next = at;
	l->prev = at->prev;
	at->prev->next = l;
	at->prev = l;
}

static inline void kv_list_push_back(struct kv_link *head, struct kv_link *l)
{
	kv_list_insert_before(head, l);
}

static inline void kv_list_push_front(struct kv_link *head, struct kv_link *l)
{
	kv_list_insert_before(head->next, l);
}

/* Afterwards l is on no list; may be called when it is on none already. */
static inline void kv_list_remove(struct kv_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	kv_list_init(l);
}

#define kv_list_for_each(pos, head) \
	for (struct kv_link *pos = (head)->next; pos != (head); pos = pos->next)

/* pos may be removed in the body. */
#define kv_list_for_each_safe(pos, head)                                            \
	for (struct kv_link *pos = (head)->next, *pos##_next = pos->next;           \
	     pos != (head); pos = pos##_next, pos##_next = pos->next)

#endif
