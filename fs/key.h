/* Keys of the filesystem, to bytes and back. */
#ifndef FS_KEY_H
#define FS_KEY_H

#include "fs/format.h"

#define FS_KEY_BYTES_MAX (1 + 8 + FS_XATTR_NAME_BYTES_MAX)

struct fs_key {
	uint16_t bytes;
	uint8_t data[FS_KEY_BYTES_MAX];
};

static inline struct kv_slice fs_key_slice(const struct fs_key *k)
{
	return kv_slice(k->data, k->bytes);
}

struct fs_key fs_key_super(enum fs_super_item item);
struct fs_key fs_key_attr(fs_ino ino);
struct fs_key fs_key_dirent(fs_ino dir, uint64_t hash);
struct fs_key fs_key_xattr(fs_ino ino, struct kv_slice name);
struct fs_key fs_key_extent(fs_ino ino, uint64_t offset);
struct fs_key fs_key_orphan(fs_ino ino);
/* First key of the kind that belongs to the inode: [begin(kind, ino), begin(kind, ino + 1)) is all of them. */
struct fs_key fs_key_begin(enum fs_key_kind kind, fs_ino ino);

/* A key from the store, taken apart. False when it is none of ours. */
struct fs_key_parts {
	enum fs_key_kind kind;
	fs_ino ino;			/* not of SUPER */
	uint64_t number;		/* SUPER: item; DIRENT: hash; EXTENT: offset */
	struct kv_slice name;		/* XATTR; borrowed */
};
bool fs_key_parse(struct kv_slice key, struct fs_key_parts *out);

#endif
