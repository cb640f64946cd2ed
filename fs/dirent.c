/*
 * Names of one hash share one key. In its value they lie in the order of their slots; a
 * name keeps its slot for as long as it exists, since cookies of fs_readdir() are made of it.
 */
#include "fs/dirent.h"

int fs_name_check(struct kv_slice name)
{
	if (!name.bytes)
		return -ENOENT;
	if (name.bytes > FS_NAME_BYTES_MAX)
		return -ENAMETOOLONG;
	if (memchr(name.data, '/', name.bytes) || memchr(name.data, 0, name.bytes))
		return -EINVAL;
	return 0;
}

/* Takes a bucket apart. Slots ascend, so none is there twice. */
struct walk {
	struct kv_slice rest;
	int slot_last;
};

static bool walk_next(struct walk *w, struct fs_slot *out)
{
	if (!fs_slot_take(&w->rest, out) || out->slot <= w->slot_last)
		return false;
	w->slot_last = out->slot;
	return true;
}

static int damaged(struct fs *fs, fs_ino dir)
{
	return fs_damaged(fs, "directory %llu: a record of names is malformed",
			  (unsigned long long)dir);
}

/* -ENOENT. Reads the whole bucket, so that whoever changes it knows it to be sound. */
static int bucket_find(struct fs *fs, fs_ino dir, struct kv_slice bucket, struct kv_slice name,
		       struct fs_slot *out)
{
	struct walk w = { bucket, -1 };
	struct fs_slot s;
	bool found = false;

	while (w.rest.bytes) {
		if (!walk_next(&w, &s))
			return damaged(fs, dir);
		if (!kv_slice_eq(s.name, name))
			continue;
		*out = s;
		found = true;
	}
	return found ? 0 : -ENOENT;
}

int fs_dirent_find(struct fs *fs, fs_ino dir, struct kv_slice name, struct fs_dirent_found *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf bucket = KV_BUF_INIT;
	struct fs_key key = fs_key_dirent(dir, fs_name_hash(&fs->super, name));
	struct fs_slot s;
	int err = kv_get(fs->kv, NULL, fs_key_slice(&key), &bucket);

	if (err)
		return err == KV_E_not_found ? -ENOENT : err;
	KV_TRY(bucket_find(fs, dir, kv_buf_slice(&bucket), name, &s));
	*out = (struct fs_dirent_found){ s.ino, s.type };
	return 0;
}

static int staged_bucket(struct fs_tx *tx, fs_ino dir, struct kv_slice name,
			 struct fs_tx_bucket **out)
{
	return fs_tx_bucket(tx, dir, fs_name_hash(&tx->fs->super, name), out);
}

int fs_dirent_find_staged(struct fs_tx *tx, fs_ino dir, struct kv_slice name,
			  struct fs_dirent_found *out)
{
	struct fs_tx_bucket *b;
	struct fs_slot s;

	KV_TRY(staged_bucket(tx, dir, name, &b));
	KV_TRY(bucket_find(tx->fs, dir, kv_buf_slice(&b->bytes), name, &s));
	*out = (struct fs_dirent_found){ s.ino, s.type };
	return 0;
}

/* Copies a sound bucket with one entry put in or left out: add's slot, and without's name, may be none. */
static int bucket_rewrite(struct fs_tx_bucket *b, const struct fs_slot *without,
			  const struct fs_slot *add)
{
	KV_AUTO(kv_buf_done) struct kv_buf bytes = KV_BUF_INIT;
	struct walk w = { kv_buf_slice(&b->bytes), -1 };
	struct fs_slot s;

	while (walk_next(&w, &s)) {
		if (add && add->slot < s.slot) {
			KV_TRY(fs_slot_append(&bytes, add));
			add = NULL;
		}
		if (!without || s.slot != without->slot)
			KV_TRY(fs_slot_append(&bytes, &s));
	}
	if (add)
		KV_TRY(fs_slot_append(&bytes, add));
	kv_buf_swap(&b->bytes, &bytes);
	b->changed = true;
	return 0;
}

/* The lowest slot that no entry has. */
static int slot_free(const struct fs_tx_bucket *b, uint8_t *out)
{
	struct walk w = { kv_buf_slice(&b->bytes), -1 };
	struct fs_slot s;
	uint32_t slot = 0;

	while (walk_next(&w, &s) && s.slot == slot)
		slot++;
	if (slot == FS_SLOTS_MAX)
		return -ENOSPC;
	*out = (uint8_t)slot;
	return 0;
}

int fs_dirent_insert(struct fs_tx *tx, fs_ino dir, struct kv_slice name, fs_ino ino, uint8_t type)
{
	struct fs_slot s, add = { .type = type, .ino = ino, .name = name };
	struct fs_tx_bucket *b;
	int err;

	KV_TRY(staged_bucket(tx, dir, name, &b));
	err = bucket_find(tx->fs, dir, kv_buf_slice(&b->bytes), name, &s);
	if (err != -ENOENT)
		return err ? err : -EEXIST;
	KV_TRY(slot_free(b, &add.slot));
	return bucket_rewrite(b, NULL, &add);
}

int fs_dirent_replace(struct fs_tx *tx, fs_ino dir, struct kv_slice name, fs_ino ino, uint8_t type)
{
	struct fs_slot s, add;
	struct fs_tx_bucket *b;

	KV_TRY(staged_bucket(tx, dir, name, &b));
	KV_TRY(bucket_find(tx->fs, dir, kv_buf_slice(&b->bytes), name, &s));
	add = (struct fs_slot){ s.slot, type, ino, name };
	KV_TRY(bucket_rewrite(b, &s, NULL));
	return bucket_rewrite(b, NULL, &add);
}

int fs_dirent_remove(struct fs_tx *tx, fs_ino dir, struct kv_slice name)
{
	struct fs_slot s;
	struct fs_tx_bucket *b;

	KV_TRY(staged_bucket(tx, dir, name, &b));
	KV_TRY(bucket_find(tx->fs, dir, kv_buf_slice(&b->bytes), name, &s));
	return bucket_rewrite(b, &s, NULL);
}
