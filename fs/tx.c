#include "fs/tx.h"

void fs_tx_begin(struct fs_tx *tx, struct fs *fs)
{
	tx->fs = fs;
	tx->batch = kv_batch_new();
	tx->error = tx->batch ? 0 : -ENOMEM;
	tx->bytes_delta = tx->inodes_delta = 0;
	tx->staged_count = tx->bucket_count = 0;
	tx->has_data = false;
}

void fs_tx_done(struct fs_tx *tx)
{
	for (uint32_t n = 0; n < tx->bucket_count; n++)
		kv_buf_done(&tx->buckets[n].bytes);
	kv_batch_free(tx->batch);
	tx->batch = NULL;
	tx->bucket_count = 0;
}

void fs_tx_put(struct fs_tx *tx, const struct fs_key *key, struct kv_slice value)
{
	if (!tx->error)
		kv_batch_put(tx->batch, fs_key_slice(key), value, KV_HINT_NONE);
}

void fs_tx_put_ref(struct fs_tx *tx, const struct fs_key *key, struct kv_slice value)
{
	if (!tx->error)
		kv_batch_put_ref(tx->batch, fs_key_slice(key), value, KV_HINT_NONE);
}

void fs_tx_put_part(struct fs_tx *tx, const struct fs_key *key, const struct fs_key *from,
		    uint32_t offset, uint32_t bytes)
{
	if (!tx->error)
		kv_batch_put_part(tx->batch, fs_key_slice(key), fs_key_slice(from), offset, bytes);
}

void fs_tx_delete(struct fs_tx *tx, const struct fs_key *key)
{
	if (!tx->error)
		kv_batch_delete(tx->batch, fs_key_slice(key));
}

void fs_tx_delete_range(struct fs_tx *tx, const struct fs_key *begin, const struct fs_key *end)
{
	if (!tx->error)
		kv_batch_delete_range(tx->batch, fs_key_slice(begin), fs_key_slice(end));
}

/* --- attributes ----------------------------------------------------------------------- */

static uint32_t staged_find(const struct fs_tx *tx, const struct fs_inode *inode)
{
	uint32_t n = 0;

	while (n < tx->staged_count && tx->staged[n].inode != inode)
		n++;
	return n;
}

static uint32_t staged_make(struct fs_tx *tx, struct fs_inode *inode)
{
	uint32_t n = staged_find(tx, inode);

	if (n == tx->staged_count) {
		KV_ASSERT(n < FS_TX_INODES_MAX);
		tx->staged[n].inode = inode;
		tx->staged[n].fresh = tx->staged[n].gone = false;
		tx->staged_count++;
	}
	return n;
}

void fs_tx_attr(struct fs_tx *tx, struct fs_inode *inode, const struct fs_attr *attr)
{
	uint32_t n = staged_make(tx, inode);

	KV_ASSERT(attr->ino == inode->ino && !tx->staged[n].gone);
	tx->staged[n].attr = *attr;
}

int fs_tx_attr_get(struct fs_tx *tx, struct fs_inode *inode, struct fs_attr *out)
{
	uint32_t n = staged_find(tx, inode);

	if (n == tx->staged_count)
		return fs_inode_attr(inode, out);
	*out = tx->staged[n].attr;
	return 0;
}

void fs_tx_attr_new(struct fs_tx *tx, struct fs_inode *inode, const struct fs_attr *attr)
{
	uint32_t n = staged_make(tx, inode);

	tx->staged[n].attr = *attr;
	tx->staged[n].fresh = true;
}

void fs_tx_attr_delete(struct fs_tx *tx, struct fs_inode *inode)
{
	tx->staged[staged_make(tx, inode)].gone = true;
}

/* The committed attributes: also of an inode that is condemned. */
static struct fs_attr committed(struct fs_inode *i)
{
	struct fs_attr a;

	kv_mutex_lock(&i->attr_mu);
	a = i->attr;
	kv_mutex_unlock(&i->attr_mu);
	return a;
}

static int put_attr(struct fs_tx *tx, const struct fs_attr *attr, struct kv_slice inline_bytes)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_attr(attr->ino);
	struct fs_attr_disk d;

	fs_attr_encode(attr, &d);
	if (!(attr->flags & FS_ATTR_INLINE)) {
		fs_tx_put(tx, &key, kv_slice(&d, sizeof(d)));
		return 0;
	}
	KV_TRY(kv_buf_append(&value, &d, sizeof(d)));
	KV_TRY(kv_buf_append_slice(&value, inline_bytes));
	fs_tx_put(tx, &key, kv_buf_slice(&value));
	return 0;
}

/* An inode has an ORPHAN key exactly when its links are 0: here is the only place that knows. */
static void put_orphan(struct fs_tx *tx, fs_ino ino, bool was, bool is)
{
	struct fs_key key = fs_key_orphan(ino);

	if (is && !was)
		fs_tx_put(tx, &key, kv_slice(NULL, 0));
	else if (was && !is)
		fs_tx_delete(tx, &key);
}

static int put_staged(struct fs_tx *tx, uint32_t n)
{
	struct fs_inode *i = tx->staged[n].inode;
	const struct fs_attr *now = &tx->staged[n].attr;
	struct fs_attr was = committed(i);
	bool fresh = tx->staged[n].fresh, gone = tx->staged[n].gone;

	put_orphan(tx, i->ino, !fresh && !was.nlink, !gone && !now->nlink);
	if (!fresh) {
		tx->bytes_delta -= (int64_t)was.bytes;
		tx->inodes_delta--;
	}
	if (gone) {
		struct fs_key key = fs_key_attr(i->ino);

		fs_tx_delete(tx, &key);
		return 0;
	}
	tx->bytes_delta += (int64_t)now->bytes;
	tx->inodes_delta++;
	return put_attr(tx, now, kv_buf_slice(&i->inline_bytes));
}

/* An orphan of this session stays in memory, so that the last fs_forget() finds it without reading. */
static void apply_staged(struct fs_tx *tx, uint32_t n)
{
	struct fs_inode *i = tx->staged[n].inode;
	bool orphan = !tx->staged[n].gone && !tx->staged[n].attr.nlink;

	if (tx->staged[n].gone)
		fs_inode_set_gone(i);
	else
		fs_inode_set_attr(i, &tx->staged[n].attr);
	if (orphan && !i->pinned) {
		i->pinned = true;
		fs_inode_ref(tx->fs, i);
	} else if (!orphan && i->pinned) {
		i->pinned = false;
		fs_inode_put(tx->fs, i);
	}
}

/* --- buckets of names --------------------------------------------------------------------- */

int fs_tx_bucket(struct fs_tx *tx, fs_ino dir, uint64_t hash, struct fs_tx_bucket **out)
{
	struct fs_key key = fs_key_dirent(dir, hash);
	struct fs_tx_bucket *b;
	int err;

	for (uint32_t n = 0; n < tx->bucket_count; n++) {
		b = &tx->buckets[n];
		if (b->dir == dir && b->hash == hash) {
			*out = b;
			return 0;
		}
	}
	KV_ASSERT(tx->bucket_count < FS_TX_BUCKETS_MAX);
	b = &tx->buckets[tx->bucket_count];
	*b = (struct fs_tx_bucket){ .dir = dir, .hash = hash, .bytes = KV_BUF_INIT };
	err = kv_get(tx->fs->kv, NULL, fs_key_slice(&key), &b->bytes);
	if (err && err != KV_E_not_found) {
		kv_buf_done(&b->bytes);
		return err;
	}
	b->stored = !err;
	tx->bucket_count++;
	*out = b;
	return 0;
}

static void put_bucket(struct fs_tx *tx, const struct fs_tx_bucket *b)
{
	struct fs_key key = fs_key_dirent(b->dir, b->hash);

	if (!b->changed)
		return;
	if (b->bytes.bytes)
		fs_tx_put(tx, &key, kv_buf_slice(&b->bytes));
	else if (b->stored)
		fs_tx_delete(tx, &key);
}

/* --- the commit ------------------------------------------------------------------------------ */

static void put_counter(struct fs_tx *tx, enum fs_super_item item, int64_t delta)
{
	struct fs_key key = fs_key_super(item);

	if (delta && !tx->error)
		kv_batch_add(tx->batch, fs_key_slice(&key), delta);
}

static int put_all(struct fs_tx *tx)
{
	for (uint32_t n = 0; n < tx->bucket_count; n++)
		put_bucket(tx, &tx->buckets[n]);
	for (uint32_t n = 0; n < tx->staged_count; n++)
		KV_TRY(put_staged(tx, n));
	/* On a full disk, what makes nothing larger works: removing, above all. */
	if (!tx->error && !tx->has_data && tx->bytes_delta <= 0 && tx->inodes_delta <= 0)
		kv_batch_use_reserve(tx->batch);
	put_counter(tx, FS_SUPER_BYTES_USED, tx->bytes_delta);
	put_counter(tx, FS_SUPER_INODES, tx->inodes_delta);
	return tx->error;
}

/*
 * May the change wait for the reclaimer? Not one of an orphan, since the reclaimer may want
 * that inode's lock; and its own changes are of orphans all.
 */
static bool may_wait(const struct fs_tx *tx)
{
	for (uint32_t n = 0; n < tx->staged_count; n++)
		if (tx->staged[n].gone || !tx->staged[n].attr.nlink)
			return false;
	return true;
}

static int write_batch(struct fs_tx *tx, bool sync)
{
	struct fs *fs = tx->fs;
	int err = kv_write(fs->kv, tx->batch, sync);

	if (kv_err_is(err, -ENOSPC) && may_wait(tx) && fs_space_regain(fs))
		err = kv_write(fs->kv, tx->batch, sync);
	return err;
}

int fs_tx_commit(struct fs_tx *tx, bool sync)
{
	KV_TRY(tx->error);
	if (tx->fs->read_only)
		return -EROFS;
	KV_TRY(put_all(tx));
	if (kv_batch_is_empty(tx->batch))
		return sync ? kv_sync(tx->fs->kv) : 0;
	KV_TRY(write_batch(tx, sync));
	tx->fs->changes++;
	if (tx->bytes_delta < 0)
		tx->fs->bytes_freed += (uint64_t)-tx->bytes_delta;
	for (uint32_t n = 0; n < tx->staged_count; n++)
		apply_staged(tx, n);
	return 0;
}
