/*
 * Entries on their way to a table, in order: small values stay with their keys, larger ones leave
 * for a segment of the value log, and pointers take their place. Entries are held back
 * while values are gathered, so that these are written together.
 */
#ifndef KV_SEPARATE_H
#define KV_SEPARATE_H

#include "kv/db.h"

struct kv_separator;

/*
 * Values go to *segment, which is made when it is needed, and replaced when it is full. The
 * full one goes to the list `full`: pointers into it are in no installed table yet, so the caller must
 * not finish it before they are. segment NULL: all values stay in the table.
 * apart: no batch's value is in the segments, and who calls this syncs them.
 * NULL when out of memory.
 */
struct kv_separator *kv_separator_new(struct kv_db *db, struct kv_live_segment **segment,
				      struct kv_link *full, bool apart);
void kv_separator_free(struct kv_separator *s);

/*
 * The next entry of the table. Key and value must stay until nothing is held back any more.
 * KV_E_no_space and -ENOMEM are harmless; a segment that can't be written poisons.
 */
int kv_separator_add(struct kv_separator *s, struct kv_sst_build *build, struct kv_slice ikey,
		     struct kv_slice value) KV_NODISCARD;
/* Everything is in the table, and all values are in segments. To be called before it is finished. */
int kv_separator_flush(struct kv_separator *s, struct kv_sst_build *build) KV_NODISCARD;
/* Is anything held back? And how many bytes of it will be in the table, about? */
bool kv_separator_holds(const struct kv_separator *s);
uint64_t kv_separator_bytes(const struct kv_separator *s);

#endif
