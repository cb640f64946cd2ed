/*
 * The log of edits. An edit counts once it is durable; only then is it applied
 * in memory. The manifest begins with the whole state and is replaced by a
 * new one when it has grown, and at every opening for writing.
 *
 * Behind every durable edit follows a mark (not synced), so that damage to
 * the last edit can be told from an edit that never arrived.
 */
#ifndef KV_MANIFEST_H
#define KV_MANIFEST_H

#include "kv/version.h"

/* What the manifest knows beside the version. */
struct kv_manifest_state {
	kv_fileno next_fileno;
	kv_fileno journal_min;
	kv_seqno seqno;
};

struct kv_manifest;

/*
 * Reads the manifest that the root names. Nothing is written. Errors are
 * reported and name the file: KV_E_corrupt, KV_E_newer_format. What becomes
 * obsolete of the version later goes to the sink (NULL: to nobody).
 */
int kv_manifest_load(struct kv_store *s, kv_fileno manifest_no,
		     const struct kv_obsolete_sink *sink, struct kv_version **out_version,
		     struct kv_manifest_state *out_state) KV_NODISCARD;

/*
 * Starts a manifest with the number, holding the whole state, durable, and
 * points the root to it, with the features that the version needs (to s->features_required
 * as well). The number must be below state->next_fileno. With
 * KV_E_no_space and -ENOMEM the root is as it was; after any other failure it may
 * name either, and both manifests must stay.
 */
int kv_manifest_create(struct kv_store *s, kv_fileno number, const struct kv_version *v,
		       const struct kv_manifest_state *state, struct kv_manifest **out)
	KV_NODISCARD;
/* close: ends the file in order. free: just lets go. */
int kv_manifest_close(struct kv_manifest *m) KV_NODISCARD;
void kv_manifest_free(struct kv_manifest *m);
/*
 * Appends the edit and makes it durable. One that adds a named snapshot only if the root
 * has KV_FEATURE_NAMED_SNAPSHOTS; else a new manifest is needed. With KV_E_no_space, -ENOMEM and
 * KV_E_too_big nothing was written, and it may be tried again. After any other
 * failure only opening the store again tells whether the edit counts: until
 * then the files that it names must stay, and those that it deletes, too.
 */
int kv_manifest_append(struct kv_manifest *m, const struct kv_edit *e) KV_NODISCARD;
uint64_t kv_manifest_bytes(const struct kv_manifest *m);
/* Time for a new one: it has grown to several times what the whole state takes. */
bool kv_manifest_is_long(const struct kv_manifest *m);
kv_fileno kv_manifest_number(const struct kv_manifest *m);

#endif
