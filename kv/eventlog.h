/*
 * What a store does, for people: one line an event, "time=... event=... key=value ...", in a file
 * beside its data. It is never synced and nothing rests on it: what can't be written is left
 * out, and a crash may leave anything in it. When it is full it gets another name, and the one that had
 * this name before is gone.
 */
#ifndef KV_EVENTLOG_H
#define KV_EVENTLOG_H

#include "kv/store.h"

#define KV_EVENTLOG_BYTES_MAX KV_MIB	/* of each of the two */

struct kv_eventlog;

/* Goes on behind what is there. NULL when out of memory. The store must stay. */
struct kv_eventlog *kv_eventlog_open(struct kv_store *s);
void kv_eventlog_close(struct kv_eventlog *l);

/*
 * Writes a line; without a final newline, and none within. Does nothing when l is NULL. By any
 * thread; as file access, not under locks that are not held over that.
 */
void kv_event(struct kv_eventlog *l, const char *event, const char *fmt, ...) KV_PRINTF(3, 4);

#endif
