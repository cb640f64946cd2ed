/* Inode numbers, counters, statfs. */
#include <stdatomic.h>

#include "fs/fs.h"
#include "fs/orphan.h"

/* What statfs calls an inode's worth of free space. */
#define BYTES_PER_INODE 1024

/*
 * CRASH: the store's next number is raised by a batch of its own before a number of the
 * run is used. Batches survive in their order: whichever batch uses one of these numbers,
 * the raised counter is there when it is. Stop between: numbers are skipped.
 */
static int run_take_locked(struct fs *fs)
{
	struct fs_key key = fs_key_super(FS_SUPER_INO_NEXT);
	fs_ino end = fs->ino_end + FS_INO_RUN;
	le64 value = kv_le64(end);
	struct kv_batch *b;
	int err;

	if (end > FS_INO_MAX)
		return kv_fail(&fs->msg, -ENOSPC, "%s: all inode numbers have been used", fs->path);
	b = kv_batch_new();
	if (!b)
		return -ENOMEM;
	kv_batch_put(b, fs_key_slice(&key), kv_slice(&value, sizeof(value)), KV_HINT_NONE);
	err = kv_write(fs->kv, b, false);
	kv_batch_free(b);
	if (!err)
		fs->ino_end = end;
	return err;
}

int fs_ino_take(struct fs *fs, fs_ino *out)
{
	int err = 0;

	kv_mutex_lock(&fs->ino_mu);
	if (fs->ino_next == fs->ino_end)
		err = run_take_locked(fs);
	if (!err)
		*out = fs->ino_next++;
	kv_mutex_unlock(&fs->ino_mu);
	return err;
}

/*
 * What a delete frees in the value log is garbage only when the tables say so: after a flush.
 * Left alone, the engine flushes when a memtable is full, which a few deletes of large files don't fill.
 */
bool fs_space_regain(struct fs *fs)
{
	uint64_t freed;

	if (fs_reclaim_wait(fs))
		return false;
	freed = atomic_exchange(&fs->bytes_freed, 0);
	if (!freed)
		return false;
	if (!kv_flush(fs->kv) && !kv_wait_idle(fs->kv))
		return true;
	fs->bytes_freed += freed;
	return false;
}

/* A counter; what is missing or can't be read counts as 0: statistics go on, fsck counts anew. */
static uint64_t counter(struct fs *fs, enum fs_super_item item)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_super(item);
	le64 n;

	if (kv_get(fs->kv, NULL, fs_key_slice(&key), &value) || value.bytes != sizeof(n))
		return 0;
	memcpy(&n, value.data, sizeof(n));
	return (int64_t)kv_le64_get(n) < 0 ? 0 : kv_le64_get(n);
}

void fs_stats(struct fs *fs, struct fs_stats *out)
{
	out->inodes = counter(fs, FS_SUPER_INODES);
	out->bytes_used = counter(fs, FS_SUPER_BYTES_USED);
	fs_icache_stats(fs, &out->inodes_known, &out->inodes_cached);
	out->orphans_waiting = fs_reclaim_waiting(fs);
}

/*
 * The store shares its medium with others: what it takes itself counts as used,
 * what is free there as free. So "used" is what a user pays for.
 */
int fs_statfs(struct fs *fs, struct statvfs *out)
{
	uint64_t all, bytes_free, inodes = counter(fs, FS_SUPER_INODES);
	struct kv_stats ks;

	KV_TRY(kv_space(fs->kv, &all, &bytes_free));
	kv_stats(fs->kv, &ks);
	memset(out, 0, sizeof(*out));
	out->f_bsize = out->f_frsize = FS_BLOCK_BYTES;
	out->f_bfree = out->f_bavail = bytes_free / FS_BLOCK_BYTES;
	out->f_blocks = (ks.disk_bytes + FS_BLOCK_BYTES - 1) / FS_BLOCK_BYTES + out->f_bfree;
	out->f_ffree = out->f_favail = bytes_free / BYTES_PER_INODE;
	out->f_files = inodes + out->f_ffree;
	out->f_namemax = FS_NAME_BYTES_MAX;
	out->f_flag = fs->read_only ? ST_RDONLY : 0;
	memcpy(&out->f_fsid, fs->super.uuid, sizeof(out->f_fsid));
	return 0;
}
