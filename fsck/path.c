/* Paths of inodes for messages: from the inode up through the parents, as far as that goes. */
#include <dirent.h>
#include <inttypes.h>

#include "fsck/ctx.h"

#define DEPTH_MAX 64	/* of a path that is told whole */

bool fsck_attr_get(struct fsck *c, fs_ino ino, struct fs_attr *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_attr(ino);
	struct kv_slice inline_bytes;

	return !kv_get(c->kv, NULL, fs_key_slice(&key), &value) &&
	       fs_attr_decode(ino, kv_buf_slice(&value), out, &inline_bytes);
}

int fsck_name_append(struct kv_slice name, struct kv_buf *out)
{
	const uint8_t *at = name.data;

	KV_TRY(kv_buf_append_byte(out, '"'));
	for (size_t i = 0; i < name.bytes; i++)
		if (at[i] < 0x20 || at[i] == 0x7f || at[i] == '"' || at[i] == '\\')
			KV_TRY(kv_buf_printf(out, "\\x%02x", at[i]));
		else
			KV_TRY(kv_buf_append_byte(out, at[i]));
	return kv_buf_append_byte(out, '"');
}

/* The name under which a bucket has the inode; false: it hasn't. */
static bool find_in_bucket(struct kv_slice bucket, fs_ino ino, struct kv_buf *out)
{
	struct fs_slot slot;

	while (fs_slot_take(&bucket, &slot))
		if (slot.ino == ino)
			return !kv_buf_assign(out, slot.name);
	return false;
}

/*
 * A name of the inode in the directory, or in any when dir is 0: *out_dir is that one. False:
 * none, or looking for it takes too long.
 */
static bool find_name(struct fsck *c, fs_ino dir, fs_ino ino, struct kv_buf *out, fs_ino *out_dir)
{
	struct fs_key lower = fs_key_begin(FS_KEY_DIRENT, dir);
	struct fs_key upper = fs_key_begin(FS_KEY_DIRENT, dir ? dir + 1 : FS_INO_MAX);
	struct kv_iter_options o = { .lower = fs_key_slice(&lower), .upper = fs_key_slice(&upper) };
	struct fs_key_parts key;
	struct kv_slice bucket;
	struct kv_iter *it;
	bool found = false;

	if (kv_iter_new(c->kv, &o, &it))
		return false;
	for (kv_iter_seek_first(it); kv_iter_valid(it) && !found && c->path_budget;
	     kv_iter_next(it)) {
		c->path_budget--;
		found = !kv_iter_value(it, &bucket) && fs_key_parse(kv_iter_key(it), &key) &&
			find_in_bucket(bucket, ino, out);
		if (found)
			*out_dir = key.ino;
	}
	kv_iter_free(it);
	return found;
}

/* "/" and the name before the path. */
static int prepend(struct kv_slice name, struct kv_buf *path)
{
	KV_AUTO(kv_buf_done) struct kv_buf longer = KV_BUF_INIT;

	KV_TRY(kv_buf_append_byte(&longer, '/'));
	KV_TRY(kv_buf_append_slice(&longer, name));
	KV_TRY(kv_buf_append_slice(&longer, kv_buf_slice(path)));
	kv_buf_swap(path, &longer);
	return 0;
}

/* The path from the root, or from the topmost directory whose own name is not known. Empty: no name. */
static int make_path(struct fsck *c, fs_ino ino, struct kv_buf *path)
{
	KV_AUTO(kv_buf_done) struct kv_buf name = KV_BUF_INIT;
	fs_ino at = ino, dir;

	for (int depth = 0; at != FS_INO_ROOT; depth++) {
		struct fs_attr attr;

		dir = fsck_attr_get(c, at, &attr) ? attr.parent : 0;
		if (depth == DEPTH_MAX || (depth && !dir) || !find_name(c, dir, at, &name, &dir)) {
			KV_AUTO(kv_buf_done) struct kv_buf top = KV_BUF_INIT;

			if (!depth)
				return 0;
			KV_TRY(kv_buf_printf(&top, "inode %" PRIu64, at));
			KV_TRY(kv_buf_append_slice(&top, kv_buf_slice(path)));
			kv_buf_swap(path, &top);
			return 0;
		}
		KV_TRY(prepend(kv_buf_slice(&name), path));
		at = dir;
	}
	return path->bytes ? 0 : kv_buf_append_byte(path, '/');
}

int fsck_path_append(struct fsck *c, fs_ino ino, struct kv_buf *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf path = KV_BUF_INIT;

	KV_TRY(make_path(c, ino, &path));
	if (!path.bytes)
		return kv_buf_printf(out, "inode %" PRIu64, ino);
	KV_TRY(fsck_name_append(kv_buf_slice(&path), out));
	return kv_buf_printf(out, " (inode %" PRIu64 ")", ino);
}
