#include "fs/key.h"

#include "kv/assert.h"

#define KEY_INO_BYTES (1 + 8)		/* kind and inode: what every key but SUPER's begins with */
#define KEY_NUMBER_BYTES (KEY_INO_BYTES + 8)
#define KEY_SUPER_BYTES 2

struct fs_key fs_key_super(enum fs_super_item item)
{
	struct fs_key k = { .bytes = KEY_SUPER_BYTES };

	k.data[0] = FS_KEY_SUPER;
	k.data[1] = (uint8_t)item;
	return k;
}

struct fs_key fs_key_begin(enum fs_key_kind kind, fs_ino ino)
{
	struct fs_key k;

	k.bytes = KEY_INO_BYTES;
	k.data[0] = (uint8_t)kind;
	kv_be64_put(k.data + 1, ino);
	return k;
}

static struct fs_key key_number(enum fs_key_kind kind, fs_ino ino, uint64_t number)
{
	struct fs_key k = fs_key_begin(kind, ino);

	kv_be64_put(k.data + KEY_INO_BYTES, number);
	k.bytes = KEY_NUMBER_BYTES;
	return k;
}

struct fs_key fs_key_attr(fs_ino ino)
{
	return fs_key_begin(FS_KEY_ATTR, ino);
}

struct fs_key fs_key_dirent(fs_ino dir, uint64_t hash)
{
	return key_number(FS_KEY_DIRENT, dir, hash);
}

struct fs_key fs_key_xattr(fs_ino ino, struct kv_slice name)
{
	struct fs_key k = fs_key_begin(FS_KEY_XATTR, ino);

	KV_ASSERT(name.bytes && name.bytes <= FS_XATTR_NAME_BYTES_MAX);
	memcpy(k.data + KEY_INO_BYTES, name.data, name.bytes);
	k.bytes = (uint16_t)(KEY_INO_BYTES + name.bytes);
	return k;
}

struct fs_key fs_key_extent(fs_ino ino, uint64_t offset)
{
	return key_number(FS_KEY_EXTENT, ino, offset);
}

struct fs_key fs_key_orphan(fs_ino ino)
{
	return fs_key_begin(FS_KEY_ORPHAN, ino);
}

static bool parse_super(struct kv_slice key, struct fs_key_parts *out)
{
	if (key.bytes != KEY_SUPER_BYTES)
		return false;
	*out = (struct fs_key_parts){
		.kind = FS_KEY_SUPER,
		.number = ((const uint8_t *)key.data)[1],
	};
	return true;
}

bool fs_key_parse(struct kv_slice key, struct fs_key_parts *out)
{
	const uint8_t *at = key.data;
	struct fs_key_parts parts = { 0 };

	if (!key.bytes)
		return false;
	if (at[0] == FS_KEY_SUPER)
		return parse_super(key, out);
	if (key.bytes < KEY_INO_BYTES)
		return false;
	parts.kind = at[0];
	parts.ino = kv_be64_get(at + 1);
	if (!parts.ino || parts.ino >= FS_INO_MAX)
		return false;
	switch (at[0]) {
	case FS_KEY_ATTR:
	case FS_KEY_ORPHAN:
		if (key.bytes != KEY_INO_BYTES)
			return false;
		break;
	case FS_KEY_DIRENT:
	case FS_KEY_EXTENT:
		if (key.bytes != KEY_NUMBER_BYTES)
			return false;
		parts.number = kv_be64_get(at + KEY_INO_BYTES);
		if (at[0] == FS_KEY_DIRENT &&
		    (parts.number < FS_HASH_MIN || parts.number >> FS_HASH_BITS))
			return false;
		if (at[0] == FS_KEY_EXTENT && parts.number >= FS_FILE_BYTES_MAX)
			return false;
		break;
	case FS_KEY_XATTR:
		parts.name = kv_slice(at + KEY_INO_BYTES, key.bytes - KEY_INO_BYTES);
		if (!parts.name.bytes || parts.name.bytes > FS_XATTR_NAME_BYTES_MAX)
			return false;
		break;
	default:
		return false;
	}
	*out = parts;
	return true;
}
