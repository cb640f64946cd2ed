/*
 * The named snapshots that a version has: immutable, counted, shared by all versions
 * between two changes of it. NULL is the empty set. Ordered by seqno, that is by age.
 */
#ifndef KV_SNAPSET_H
#define KV_SNAPSET_H

#include "kv/edit.h"

struct kv_snapset {
	_Atomic uint32_t refs;
	size_t count;			/* not 0 */
	struct kv_snapshot_info at[];
};

struct kv_snapset *kv_snapset_ref(struct kv_snapset *s);
void kv_snapset_unref(struct kv_snapset *s);

/*
 * base with what the edit deletes taken away, and then what it adds. KV_E_bad_record when
 * something deleted is not there, something added is, there are too many, or a seqno cannot be.
 */
int kv_snapset_apply(struct kv_snapset *base, const struct kv_edit *e, struct kv_snapset **out)
	KV_NODISCARD;
/* Adds all to the edit. */
int kv_snapset_to_edit(const struct kv_snapset *s, struct kv_edit *e) KV_NODISCARD;
/* NULL when there is none of that name. */
const struct kv_snapshot_info *kv_snapset_find(const struct kv_snapset *s, const char *name);
/* The newest; NULL when there is none. */
const struct kv_snapshot_info *kv_snapset_newest(const struct kv_snapset *s);
/* Their seqnos, ascending, each once, and `last`, which is not below any, as the last. The caller frees *out. */
int kv_snapset_seqnos(const struct kv_snapset *s, kv_seqno last, kv_seqno **out, size_t *out_count)
	KV_NODISCARD;

#endif
