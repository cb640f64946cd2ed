/*
 * Values of the filesystem, decoded and checked: the one place that believes
 * bytes from the store. Decoders return false for what cannot be, and never
 * read outside of the value; fsck and the core both use them.
 */
#ifndef FS_RECORD_H
#define FS_RECORD_H

#include "fs/core.h"
#include "fs/key.h"

/* ATTR. *out_inline: the bytes behind the struct (borrowed). */
bool fs_attr_decode(fs_ino ino, struct kv_slice value, struct fs_attr *out,
		    struct kv_slice *out_inline);
void fs_attr_encode(const struct fs_attr *a, struct fs_attr_disk *out);

/* One entry of a DIRENT bucket; takes it from the front of *bucket; false when malformed or at the end. */
struct fs_slot {
	uint8_t slot, type;
	fs_ino ino;
	struct kv_slice name;
};
bool fs_slot_take(struct kv_slice *bucket, struct fs_slot *out);
int fs_slot_append(struct kv_buf *bucket, const struct fs_slot *s) KV_NODISCARD;

/* SUPER. decode: 0, KV_E_not_a_store (magic), KV_E_newer_format, KV_E_bad_record. */
struct fs_super {
	uint64_t features_required, features_write, features_ignorable;
	uint8_t uuid[16];
	uint8_t hash_key[16];
	uint32_t hash_bits;
	char label[FS_LABEL_BYTES_MAX + 1];
	int64_t created_s;
};
int fs_super_decode(struct kv_slice value, struct fs_super *out) KV_NODISCARD;
void fs_super_encode(const struct fs_super *s, struct fs_super_disk *out);

/* Hash of a name, as in the keys of DIRENT: SipHash-2-4, cut to hash_bits, at least FS_HASH_MIN. */
uint64_t fs_name_hash(const struct fs_super *s, struct kv_slice name);

/* DT_* of a mode. */
uint8_t fs_type_of_mode(uint32_t mode);

#endif
