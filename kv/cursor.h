/*
 * Contract of the iterators inside the engine: over a memtable, a block, a
 * table, a level, or several of these merged. Keys are internal keys (ikey.h)
 * in their order. The public struct kv_iter (scan.c) is built on one.
 *
 * A new cursor is not valid. key and value stay until the cursor moves. An
 * error makes it not valid and is kept until the next seek.
 */
#ifndef KV_CURSOR_H
#define KV_CURSOR_H

#include "kv/slice.h"

struct kv_cursor {
	const struct kv_cursor_ops *ops;
};

struct kv_cursor_ops {
	void (*free)(struct kv_cursor *c);
	void (*seek_first)(struct kv_cursor *c);
	void (*seek_last)(struct kv_cursor *c);
	/* To the first entry at or after ikey. */
	void (*seek)(struct kv_cursor *c, struct kv_slice ikey);
	/* To the last entry at or before ikey. */
	void (*seek_prev)(struct kv_cursor *c, struct kv_slice ikey);
	void (*next)(struct kv_cursor *c);
	void (*prev)(struct kv_cursor *c);
	bool (*valid)(const struct kv_cursor *c);
	int (*error)(const struct kv_cursor *c);
	struct kv_slice (*key)(const struct kv_cursor *c);
	struct kv_slice (*value)(const struct kv_cursor *c);
};

static inline void kv_cursor_free(struct kv_cursor *c)
{
	if (c)
		c->ops->free(c);
}

#endif
