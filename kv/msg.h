/*
 * Where messages go. Libraries report a failure once, at the place that knows
 * the object's name, as one sentence a user can act on, and return the error
 * code; programs decide what to print.
 */
#ifndef KV_MSG_H
#define KV_MSG_H

#include "kv/base.h"

enum kv_msg_level {
	KV_MSG_ERROR,	/* something the caller asked for is not done */
	KV_MSG_WARN,	/* done, but somebody should look */
	KV_MSG_INFO,	/* an event: opened, recovered, flushed, compacted */
	KV_MSG_DEBUG,
};

/* Called from any thread, maybe concurrently. text has no final newline. */
typedef void kv_msg_fn(void *arg, enum kv_msg_level level, const char *text);

struct kv_msg {
	kv_msg_fn *fn;		/* NULL: messages are dropped */
	void *arg;
	enum kv_msg_level level_max; /* what lies above is not formatted */
};

void kv_msg(const struct kv_msg *m, enum kv_msg_level level, const char *fmt, ...)
	KV_PRINTF(3, 4);

/* Reports at KV_MSG_ERROR and returns err: return kv_fail(m, err, "table %s: ...", ...); */
int kv_fail(const struct kv_msg *m, int err, const char *fmt, ...) KV_PRINTF(3, 4);

#endif
