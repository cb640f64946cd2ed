/* The superblock, the counters, and keys that mean nothing. */
#include <stdio.h>

#include "fsck/ctx.h"

#define KEY_BYTES_SHOWN 32

/* A number of 8 bytes; false when it is not there or has another length. */
static bool get_number(struct fsck *c, enum fs_super_item item, uint64_t *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_super(item);
	le64 n;

	if (kv_get(c->kv, NULL, fs_key_slice(&key), &value) || value.bytes != sizeof(n))
		return false;
	memcpy(&n, value.data, sizeof(n));
	*out = kv_le64_get(n);
	return true;
}

/* Is there any inode? What has none, and no superblock, never was a filesystem. */
static int has_inodes(struct fsck *c, bool *out)
{
	struct fsck_scan s;

	KV_TRY(fsck_scan_open(c, FS_KEY_ATTR, 0, &s));
	*out = s.valid;
	fsck_scan_close(&s);
	return 0;
}

static int check_super(struct fsck *c)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_super(FS_SUPER_BLOCK);
	int err = kv_get(c->kv, NULL, fs_key_slice(&key), &value);
	bool inodes;

	if (kv_err_is(err, KV_E_not_found)) {
		KV_TRY(has_inodes(c, &inodes));
		if (!inodes && !c->damaged)
			return KV_E_not_a_store;
		fsck_report(c, FSCK_P_super_missing, (struct fsck_about){ 0 });
		return 0;
	}
	if (!err)
		err = fs_super_decode(kv_buf_slice(&value), &c->super);
	if (kv_err_is(err, KV_E_newer_format) || err == -ENOMEM)
		return err;
	c->super_ok = !err;
	if (err)
		fsck_report(c, FSCK_P_super_bad, (struct fsck_about){ 0 });
	return 0;
}

int fsck_pass_super(struct fsck *c)
{
	KV_TRY(check_super(c));
	if (!get_number(c, FS_SUPER_INO_NEXT, &c->ino_next) || c->ino_next < FS_INO_FIRST ||
	    c->ino_next > FS_INO_MAX) {
		c->ino_next = 0;
		fsck_report(c, FSCK_P_ino_next_bad, (struct fsck_about){ 0 });
	}
	/* A counter that is missing is 0; one of another length is wrong, whatever the sum is. */
	if (!get_number(c, FS_SUPER_BYTES_USED, &c->bytes_used))
		c->bytes_used = 0;
	if (!get_number(c, FS_SUPER_INODES, &c->inodes))
		c->inodes = 0;
	return 0;
}

void fsck_report_key(struct fsck *c, struct kv_slice key)
{
	char text[2 * KEY_BYTES_SHOWN + 4] = "";
	const uint8_t *at = key.data;

	for (size_t i = 0; i < key.bytes && i < KEY_BYTES_SHOWN; i++)
		snprintf(text + 2 * i, sizeof(text) - 2 * i, "%02x", at[i]);
	if (key.bytes > KEY_BYTES_SHOWN)
		memcpy(text + 2 * KEY_BYTES_SHOWN, "...", sizeof("..."));
	fsck_report(c, FSCK_P_key_unknown, (struct fsck_about){ .a = key.bytes, .text = text });
}

static bool means_something(struct kv_slice key)
{
	struct fs_key_parts parts;

	if (!fs_key_parse(key, &parts))
		return false;
	return parts.kind != FS_KEY_SUPER ||
	       (parts.number >= FS_SUPER_BLOCK && parts.number <= FS_SUPER_INODES);
}

/* Keys in [lower, upper), where there should be none but those of the superblock. */
static int check_gap(struct fsck *c, const struct fs_key *lower, const struct fs_key *upper)
{
	struct kv_iter_options o = { .no_cache = true };
	struct kv_iter *it;
	uint64_t seen = 0;
	int err = 0;

	if (lower)
		o.lower = fs_key_slice(lower);
	if (upper)
		o.upper = fs_key_slice(upper);
	KV_TRY(kv_iter_new(c->kv, &o, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it) && !err; kv_iter_next(it)) {
		if (!means_something(kv_iter_key(it)))
			fsck_report_key(c, kv_iter_key(it));
		if (!err && ++seen % FSCK_PROGRESS_STEP == 0)
			err = fsck_progress(c, "reading unknown keys", seen, 0);
	}
	/* That the store cannot be read further is told by the passes that read what there is. */
	kv_iter_free(it);
	return err;
}

/* What lies before, between and behind the kinds of keys that the other passes scan. */
int fsck_pass_keys(struct fsck *c)
{
	static const enum fs_key_kind kinds[] = {
		FS_KEY_ATTR, FS_KEY_DIRENT, FS_KEY_XATTR, FS_KEY_EXTENT, FS_KEY_ORPHAN,
	};
	struct fs_key end, begin;

	for (size_t i = 0; i < KV_ARRAY_LEN(kinds); i++) {
		begin = fs_key_begin(kinds[i], 0);
		KV_TRY(check_gap(c, i ? &end : NULL, &begin));
		end = fs_key_begin(kinds[i], FS_INO_MAX);
	}
	return check_gap(c, &end, NULL);
}
