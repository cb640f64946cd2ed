/*
 * What a store's directory holds, and what its journals add to the manifest.
 */
#ifndef KV_RECOVER_H
#define KV_RECOVER_H

#include "kv/db.h"

struct kv_dir_file {
	enum kv_file_kind kind;
	kv_fileno number;
};

struct kv_dir_files {
	struct kv_dir_file *at;		/* sorted by kind and number */
	size_t count, count_max;
	kv_fileno number_max;
	bool has_root;
	char foreign[64];		/* beginning of a name that is none of ours; empty: there is none */
};

void kv_dir_files_done(struct kv_dir_files *f);
/* Lists the directory. *out must be done, also after a failure (which is reported). */
int kv_dir_files_read(struct kv_store *s, struct kv_dir_files *out) KV_NODISCARD;
bool kv_dir_files_has(const struct kv_dir_files *f, enum kv_file_kind kind, kv_fileno number);

/*
 * Replays the journals that the manifest needs into a new db->mem, on top of
 * db->version and db->state. What does not fit into memory is written to tables, which the
 * edit gets (not when the store is open read-only; then nothing is written).
 * Sets db->seqno_last. Errors are reported: KV_E_corrupt, or of the env.
 */
int kv_replay(struct kv_db *db, const struct kv_dir_files *files, struct kv_edit *edit)
	KV_NODISCARD;
/* Writes db->mem, which is replayed, to a table; medium values stay inline. */
int kv_replay_flush(struct kv_db *db, struct kv_edit *edit) KV_NODISCARD;

#endif
