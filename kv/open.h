/*
 * The steps of opening a store for writing (open.c), which repair takes, too. A db that was only
 * made has neither version nor memtable, and nobody else may see it.
 */
#ifndef KV_OPEN_H
#define KV_OPEN_H

#include "kv/db.h"

/* The struct, without looking at the directory. KV_E_bad_option, -ENOMEM. */
int kv_db_new(const char *dir, const struct kv_options *options, struct kv_db **out) KV_NODISCARD;
/* Whatever of it is there. Nothing is written. */
void kv_db_free(struct kv_db *db);
/* Of the directory, which is open. KV_E_locked. */
int kv_db_lock(struct kv_db *db) KV_NODISCARD;
/*
 * Cuts off what was allocated behind the end of all segments of the version that aren't sealed, syncs
 * them, and has the edit seal them.
 */
int kv_db_seal_segments(struct kv_db *db, struct kv_edit *edit) KV_NODISCARD;
/* The new journal, and an empty memtable that lives in it, in place of the one that there was. */
int kv_db_begin_journal(struct kv_db *db) KV_NODISCARD;
/* The one step (K6): a manifest with the version and the edit, to which the root points. */
int kv_db_switch_root(struct kv_db *db, const struct kv_edit *edit) KV_NODISCARD;

#endif
