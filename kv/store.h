/*
 * A store's directory, as all that touch its files share it; and the header
 * that begins each file.
 */
#ifndef KV_STORE_H
#define KV_STORE_H

#include "kv/env.h"
#include "kv/errcode.h"
#include "kv/filename.h"
#include "kv/msg.h"

struct kv_store {
	struct kv_env *env;
	struct kv_env_dir *dir;
	const char *path;		/* for messages */
	struct kv_msg msg;
	uint8_t store_id[KV_STORE_ID_BYTES];
	/* As in the root, see format.h; written with it again. */
	uint64_t features_required, features_write, features_ignorable;
};

/*
 * Makes the file (-EEXIST when it is there) and writes its header; not synced,
 * nor is the directory. After a failure, which is reported, there is no new file.
 */
int kv_store_create_file(struct kv_store *s, enum kv_file_kind kind, kv_fileno number,
			 struct kv_env_file **out_file) KV_NODISCARD;
/*
 * Opens for reading and checks the header: KV_E_missing_file, KV_E_short_file,
 * KV_E_bad_sum, KV_E_bad_record (another kind, number or store), each
 * reported with the file's name; or an error of the env.
 */
int kv_store_open_file(struct kv_store *s, enum kv_file_kind kind, kv_fileno number,
		       struct kv_env_file **out_file) KV_NODISCARD;
/* An error of the env, not reported. */
int kv_store_unlink(struct kv_store *s, enum kv_file_kind kind, kv_fileno number);

/* Fills in the header of a file; and checks one. For what doesn't go through create_file. */
void kv_file_header_make(struct kv_file_header *h, enum kv_file_kind kind, kv_fileno number,
			 const uint8_t *store_id);
int kv_file_header_check(const struct kv_file_header *h, enum kv_file_kind kind,
			 kv_fileno number, const uint8_t *store_id) KV_NODISCARD;

/*
 * The root pointer. read fails with KV_E_not_a_store when there is none,
 * KV_E_corrupt when it is damaged, KV_E_newer_format; each is reported. It
 * also sets s->store_id and the features. Whoever opens for writing must look at features_write
 * of *out and refuse when it has bits beyond KV_FEATURES_WRITE_KNOWN.
 *
 * write replaces it atomically and durably; before that, all names made in
 * the directory so far (the manifest's) are made durable. A failure is reported.
 */
int kv_root_read(struct kv_store *s, struct kv_root *out) KV_NODISCARD;
int kv_root_write(struct kv_store *s, kv_fileno manifest_no) KV_NODISCARD;

#endif
