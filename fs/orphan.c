/*
 * The queue holds inodes that looked like forgotten orphans when they were put on it;
 * whoever takes one off looks again (fs_inode_condemn). Orphans of the last session
 * are fed to it from their keys, some at a time, while it is empty.
 */
#include "fs/orphan.h"

#include <stdlib.h>

#include "fs/extent.h"

#define BATCH_INODES 8			/* freed by one batch */
#define QUEUE_MAX 65536			/* who makes it longer helps */
#define RETRY_NS 1000000000u		/* after an error */

_Static_assert(BATCH_INODES <= FS_TX_INODES_MAX, "a batch of the reclaimer is one change");

struct fs_reclaim_queue {
	struct kv_link queue;		/* of inodes, each with a reference */
	uint64_t count;
	uint32_t busy;			/* threads that free some */
	bool scanning;			/* there may be orphans of the last session, at or after: */
	fs_ino scan_from;
};

/* --- freeing ------------------------------------------------------------------------------ */

/* Few by points, many by a range: a range delete costs every later reader of the neighbourhood. */
static int delete_xattrs(struct fs_tx *tx, fs_ino ino)
{
	struct fs_key begin = fs_key_begin(FS_KEY_XATTR, ino);
	struct fs_key end = fs_key_begin(FS_KEY_XATTR, ino + 1), keys[FS_POINT_DELETES_MAX];
	struct kv_iter_options o = { .lower = fs_key_slice(&begin), .upper = fs_key_slice(&end) };
	struct kv_iter *it;
	bool by_range = false;
	uint32_t n = 0;
	int err;

	KV_TRY(kv_iter_new(tx->fs->kv, &o, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it); kv_iter_next(it)) {
		struct kv_slice k = kv_iter_key(it);

		by_range = n == FS_POINT_DELETES_MAX || k.bytes > sizeof(keys[n].data);
		if (by_range)
			break;
		keys[n].bytes = (uint16_t)k.bytes;
		memcpy(keys[n].data, k.data, k.bytes);
		n++;
	}
	err = kv_iter_error(it);
	kv_iter_free(it);
	if (err)
		return err;
	if (by_range)
		fs_tx_delete_range(tx, &begin, &end);
	for (uint32_t k = 0; !by_range && k < n; k++)
		fs_tx_delete(tx, &keys[k]);
	return 0;
}

/* Stages the end of a condemned inode, whose attributes nobody changes any more. */
static int stage_end(struct fs_tx *tx, struct fs_inode *i)
{
	struct fs_attr a;

	kv_mutex_lock(&i->attr_mu);
	a = i->attr;
	kv_mutex_unlock(&i->attr_mu);
	if (a.extents)
		KV_TRY(fs_extent_delete_all(tx, i->ino, a.extents));
	if (a.flags & FS_ATTR_XATTRS)
		KV_TRY(delete_xattrs(tx, i->ino));
	fs_tx_attr_delete(tx, i);
	return 0;
}

static int free_together(struct fs *fs, struct fs_inode **inodes, uint32_t count)
{
	struct fs_tx tx;
	int err = 0;

	fs_tx_begin(&tx, fs);
	for (uint32_t n = 0; n < count && !err; n++)
		err = stage_end(&tx, inodes[n]);
	if (!err)
		err = fs_tx_commit(&tx, false);
	fs_tx_done(&tx);
	return err;
}

static void enqueue(struct fs *fs, struct fs_inode *i);

static bool is_damage(int err)
{
	return err == -EUCLEAN || kv_err_is(err, KV_E_corrupt);
}

/*
 * Ends condemned inodes and their references. What cannot be freed now goes back to the
 * queue; what is damaged is left to fsck and doesn't keep the others back.
 */
static int free_condemned(struct fs *fs, struct fs_inode **inodes, uint32_t count)
{
	int err = free_together(fs, inodes, count);

	if (is_damage(err) && count > 1) {
		err = 0;
		for (uint32_t n = 0; n < count; n++) {
			int one = free_condemned(fs, &inodes[n], 1);

			err = err ? err : one;
		}
		return err;
	}
	for (uint32_t n = 0; n < count; n++) {
		if (err)
			fs_inode_spare(inodes[n]);
		if (err && !is_damage(err))
			enqueue(fs, inodes[n]);
		else
			fs_inode_put(fs, inodes[n]);
	}
	if (!is_damage(err))
		return err;
	(void)kv_fail(&fs->msg, err, "%s: inode %llu, deleted, cannot be freed: %s", fs->path,
		      (unsigned long long)inodes[0]->ino, kv_err_text(err));
	return 0;
}

/* --- the queue ------------------------------------------------------------------------------- */

/* Takes over the reference. */
static void enqueue_locked(struct fs *fs, struct fs_inode *i)
{
	kv_list_push_back(&fs->reclaim->queue, &i->reclaim_link);
	fs->reclaim->count++;
	kv_cond_signal(&fs->reclaim_cond);
}

static void enqueue(struct fs *fs, struct fs_inode *i)
{
	bool is_there;

	kv_mutex_lock(&fs->reclaim_mu);
	is_there = !kv_list_empty(&i->reclaim_link);
	if (!is_there)
		enqueue_locked(fs, i);
	kv_mutex_unlock(&fs->reclaim_mu);
	if (is_there)
		fs_inode_put(fs, i);
}

static uint32_t dequeue_locked(struct fs *fs, struct fs_inode **out)
{
	struct fs_reclaim_queue *q = fs->reclaim;
	uint32_t n = 0;

	while (n < BATCH_INODES && !kv_list_empty(&q->queue)) {
		out[n] = kv_container_of(q->queue.next, struct fs_inode, reclaim_link);
		kv_list_remove(&out[n]->reclaim_link);
		q->count--;
		n++;
	}
	return n;
}

/* An ORPHAN key whose inode is not there says nothing: it goes. */
static int drop_key(struct fs *fs, fs_ino ino)
{
	struct fs_key key = fs_key_orphan(ino);
	struct fs_tx tx;
	int err;

	(void)fs_damaged(fs, "an orphan's key names inode %llu, which does not exist",
			 (unsigned long long)ino);
	fs_tx_begin(&tx, fs);
	fs_tx_delete(&tx, &key);
	err = fs_tx_commit(&tx, false);
	fs_tx_done(&tx);
	return err;
}

/* The inode of a key is not there: it is being freed, or has been since the scan; else the key is wrong. */
static int feed_missing(struct fs *fs, fs_ino ino)
{
	struct fs_key key = fs_key_orphan(ino);
	struct fs_inode *i = fs_inode_peek(fs, ino);
	int err;

	if (i) {
		fs_inode_put(fs, i);
		return 0;
	}
	err = kv_exists(fs->kv, NULL, fs_key_slice(&key));
	if (err)
		return err == KV_E_not_found ? 0 : err;
	return drop_key(fs, ino);
}

static int feed_one(struct fs *fs, fs_ino ino)
{
	struct fs_inode *i;
	struct fs_attr a;
	int err = fs_inode_get(fs, ino, &i);

	if (err == -ENOENT)
		return feed_missing(fs, ino);
	if (err)
		return is_damage(err) ? 0 : err;	/* reported; fsck's */
	if (!fs_inode_attr(i, &a) && a.nlink)
		(void)fs_damaged(fs, "inode %llu has names, and the key of an orphan",
				 (unsigned long long)ino);
	enqueue(fs, i);
	return 0;
}

/* Puts the next orphans of the last session on the queue. */
static int feed(struct fs *fs)
{
	struct fs_reclaim_queue *q = fs->reclaim;
	struct fs_key begin = fs_key_orphan(q->scan_from);
	struct fs_key end = fs_key_begin(FS_KEY_ORPHAN, FS_INO_MAX);
	struct kv_iter_options o = { .lower = fs_key_slice(&begin), .upper = fs_key_slice(&end) };
	struct fs_key_parts parts;
	fs_ino found[BATCH_INODES];
	struct kv_iter *it;
	uint32_t n = 0;
	int err;

	KV_TRY(kv_iter_new(fs->kv, &o, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it) && n < BATCH_INODES; kv_iter_next(it))
		if (fs_key_parse(kv_iter_key(it), &parts))
			found[n++] = parts.ino;
	err = kv_iter_error(it);
	kv_iter_free(it);
	for (uint32_t k = 0; k < n && !err; k++) {
		err = feed_one(fs, found[k]);
		if (!err)
			q->scan_from = found[k] + 1;
	}
	if (!err && !n) {
		kv_mutex_lock(&fs->reclaim_mu);
		q->scanning = false;
		kv_mutex_unlock(&fs->reclaim_mu);
	}
	return err;
}

static int reclaim_batch(struct fs *fs, struct fs_inode **inodes, uint32_t count)
{
	uint32_t condemned = 0;

	for (uint32_t n = 0; n < count; n++) {
		struct fs_inode *i = inodes[n];
		bool yes;

		/* A change of it that has begun ends first; one that comes later finds it gone. */
		kv_mutex_lock(&i->mu);
		yes = fs_inode_condemn(fs, i);
		kv_mutex_unlock(&i->mu);
		if (yes)
			inodes[condemned++] = i;
		else
			fs_inode_put(fs, i);
	}
	return condemned ? free_condemned(fs, inodes, condemned) : 0;
}

/* Frees some, or feeds the queue. False when there was nothing to do. Called and returns with reclaim_mu held. */
static bool work_locked(struct fs *fs, int *out_err) KV_REQUIRES(&fs->reclaim_mu)
{
	struct fs_reclaim_queue *q = fs->reclaim;
	struct fs_inode *inodes[BATCH_INODES];
	uint32_t count = dequeue_locked(fs, inodes);
	bool scan = !count && q->scanning && !q->busy;

	*out_err = 0;
	if (!count && !scan)
		return false;
	q->busy++;
	kv_mutex_unlock(&fs->reclaim_mu);
	*out_err = count ? reclaim_batch(fs, inodes, count) : feed(fs);
	kv_mutex_lock(&fs->reclaim_mu);
	q->busy--;
	if (*out_err && *out_err != fs->reclaim_error)
		(void)kv_fail(&fs->msg, *out_err, "%s: deleted files cannot be freed for now: %s",
			      fs->path, kv_err_text(*out_err));
	fs->reclaim_error = *out_err;
	return true;
}

static bool is_idle_locked(const struct fs *fs)
{
	return !fs->reclaim->count && !fs->reclaim->busy && !fs->reclaim->scanning;
}

static void *reclaim_main(void *arg)
{
	struct fs *fs = arg;
	int err;

	kv_mutex_lock(&fs->reclaim_mu);
	while (!fs->stop) {
		if (!work_locked(fs, &err)) {
			if (is_idle_locked(fs))
				kv_cond_broadcast(&fs->reclaim_done);
			kv_cond_wait(&fs->reclaim_cond, &fs->reclaim_mu);
		} else if (err && !fs->stop) {
			kv_cond_broadcast(&fs->reclaim_done);
			kv_cond_wait_for(&fs->reclaim_cond, &fs->reclaim_mu, RETRY_NS);
		}
	}
	kv_mutex_unlock(&fs->reclaim_mu);
	return NULL;
}

/* Without a thread: works the queue off here. */
static int work_off(struct fs *fs)
{
	int err = 0;

	kv_mutex_lock(&fs->reclaim_mu);
	while (!err && work_locked(fs, &err))
		;
	kv_mutex_unlock(&fs->reclaim_mu);
	return err;
}

/* --- what others call ---------------------------------------------------------------------------- */

void fs_orphan_consider(struct fs *fs, fs_ino ino)
{
	struct fs_inode *i;
	struct fs_attr a;
	bool help;
	int err;

	if (fs->read_only)
		return;
	/* An orphan of this session is pinned in memory; all others are on the queue, or will be. */
	i = fs_inode_peek(fs, ino);
	if (!i)
		return;
	if (fs_inode_attr(i, &a) || a.nlink || fs_known(fs, ino)) {
		fs_inode_put(fs, i);
		return;
	}
	enqueue(fs, i);
	if (!fs->reclaim_running) {
		(void)work_off(fs);	/* what fails stays on the queue, and has been reported */
		return;
	}
	kv_mutex_lock(&fs->reclaim_mu);
	help = fs->reclaim->count > QUEUE_MAX && !fs->reclaim_error;
	if (help && work_locked(fs, &err))
		kv_cond_signal(&fs->reclaim_cond);	/* the thread looks whether that was all */
	kv_mutex_unlock(&fs->reclaim_mu);
}

int fs_reclaim_wait(struct fs *fs)
{
	int err;

	if (fs->read_only)
		return 0;
	if (!fs->reclaim_running)
		return work_off(fs);
	kv_mutex_lock(&fs->reclaim_mu);
	kv_cond_signal(&fs->reclaim_cond);
	fs->reclaim_error = 0;
	while (!is_idle_locked(fs) && !fs->reclaim_error && !fs->stop)
		kv_cond_wait(&fs->reclaim_done, &fs->reclaim_mu);
	err = is_idle_locked(fs) ? 0 : fs->reclaim_error;
	kv_mutex_unlock(&fs->reclaim_mu);
	return err;
}

uint64_t fs_reclaim_waiting(struct fs *fs)
{
	uint64_t count = 0;

	if (!fs->reclaim)
		return 0;
	kv_mutex_lock(&fs->reclaim_mu);
	count = fs->reclaim->count;
	kv_mutex_unlock(&fs->reclaim_mu);
	return count;
}

int fs_reclaim_start(struct fs *fs)
{
	int err;

	if (fs->read_only)
		return 0;
	fs->reclaim = calloc(1, sizeof(*fs->reclaim));
	if (!fs->reclaim)
		return -ENOMEM;
	kv_list_init(&fs->reclaim->queue);
	fs->reclaim->scanning = true;
	fs->reclaim->scan_from = FS_INO_ROOT;
	if (fs->options.kv.inline_work) {
		(void)work_off(fs);	/* as with the thread: what fails is no reason not to open */
		return 0;
	}
	err = pthread_create(&fs->reclaim_thread, NULL, reclaim_main, fs);
	fs->reclaim_running = !err;
	return -err;
}

void fs_reclaim_stop(struct fs *fs)
{
	struct fs_reclaim_queue *q = fs->reclaim;

	if (!q)
		return;
	kv_mutex_lock(&fs->reclaim_mu);
	fs->stop = true;
	kv_cond_broadcast(&fs->reclaim_cond);
	kv_cond_broadcast(&fs->reclaim_done);
	kv_mutex_unlock(&fs->reclaim_mu);
	if (fs->reclaim_running)
		KV_ASSERT(pthread_join(fs->reclaim_thread, NULL) == 0);
	fs->reclaim_running = false;
	while (!kv_list_empty(&q->queue)) {
		struct fs_inode *i =
			kv_container_of(q->queue.next, struct fs_inode, reclaim_link);

		kv_list_remove(&i->reclaim_link);
		fs_inode_put(fs, i);
	}
	free(q);
	fs->reclaim = NULL;
}
