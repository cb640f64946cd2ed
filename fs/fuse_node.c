/* Requests about one inode: attributes, lookups and forgets, and the mount's own. */
#include "config.h"

#include "fs/fuse_ops.h"

#include <string.h>

#include "fs/ioctl.h"

/* The kernel's own numbers for flags that an old libfuse has no name for. */
#ifndef FUSE_CAP_EXPLICIT_INVAL_DATA
#define FUSE_CAP_EXPLICIT_INVAL_DATA (1 << 25)
#endif

#define MAX_BACKGROUND 64
#define CONGESTION_THRESHOLD 48

static const unsigned int caps_wanted[] = {
	FUSE_CAP_ASYNC_READ,		/* several reads of a file at once */
	FUSE_CAP_ASYNC_DIO,
	FUSE_CAP_PARALLEL_DIROPS,	/* lookups and listings of a directory at once */
	FUSE_CAP_READDIRPLUS,
	FUSE_CAP_READDIRPLUS_AUTO,
	FUSE_CAP_EXPORT_SUPPORT,	/* node ids are inode numbers, for ever */
	FUSE_CAP_CACHE_SYMLINKS,
	FUSE_CAP_EXPLICIT_INVAL_DATA,	/* nobody else writes: pages stay good */
	FUSE_CAP_IOCTL_DIR,
};

static const unsigned int caps_unwanted[] = {
	FUSE_CAP_ATOMIC_O_TRUNC,	/* nobody would be told, where open is not sent */
	FUSE_CAP_AUTO_INVAL_DATA,
	FUSE_CAP_SPLICE_READ,		/* values are decoded in memory anyway */
	FUSE_CAP_SPLICE_WRITE,
	FUSE_CAP_SPLICE_MOVE,
	FUSE_CAP_FLOCK_LOCKS,
	FUSE_CAP_POSIX_LOCKS,
};

void fs_fuse_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs_front *front = userdata;

	for (size_t i = 0; i < KV_ARRAY_LEN(caps_wanted); i++)
		conn->want |= conn->capable & caps_wanted[i];
	for (size_t i = 0; i < KV_ARRAY_LEN(caps_unwanted); i++)
		conn->want &= ~caps_unwanted[i];
	if (front->writeback)
		conn->want |= conn->capable & FUSE_CAP_WRITEBACK_CACHE;
	front->writeback = conn->want & FUSE_CAP_WRITEBACK_CACHE;
	front->no_open = conn->capable & FUSE_CAP_NO_OPEN_SUPPORT;
	front->no_opendir = conn->capable & FUSE_CAP_NO_OPENDIR_SUPPORT;
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = CONGESTION_THRESHOLD;
	conn->time_gran = 1;
	front->mounted(front);
}

void fs_fuse_lookup(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	/* Node 0 with a lifetime: the kernel remembers that there is nothing. */
	static const struct fuse_entry_param nothing = { .entry_timeout = FS_FUSE_VALID_S };
	struct fs_attr a;
	int err = fs_lookup(fs_of(req), dir, kv_slice_str(name), &a);

	if (err == -ENOENT)
		(void)fuse_reply_entry(req, &nothing);
	else
		fs_reply_entry(req, err, &a);
}

void fs_fuse_forget(fuse_req_t req, fuse_ino_t ino, uint64_t times)
{
	fs_forget(fs_of(req), ino, times);
	fuse_reply_none(req);
}

void fs_fuse_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < n; i++)
		fs_forget(fs_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void reply_attr(fuse_req_t req, int err, const struct fs_attr *a)
{
	struct stat st;

	if (err) {
		fs_reply_err(req, err);
		return;
	}
	fs_stat_of(a, &st);
	(void)fuse_reply_attr(req, &st, FS_FUSE_VALID_S);
}

void fs_fuse_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_attr a;

	(void)fi;
	reply_attr(req, fs_getattr(fs_of(req), ino, &a), &a);
}

void fs_fuse_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
		     struct fuse_file_info *fi)
{
	static const struct {
		int from;
		uint32_t to;
	} map[] = {
		{ FUSE_SET_ATTR_MODE, FS_SET_MODE },
		{ FUSE_SET_ATTR_UID, FS_SET_UID },
		{ FUSE_SET_ATTR_GID, FS_SET_GID },
		{ FUSE_SET_ATTR_SIZE, FS_SET_SIZE },
		{ FUSE_SET_ATTR_ATIME, FS_SET_ATIME },
		{ FUSE_SET_ATTR_MTIME, FS_SET_MTIME },
		{ FUSE_SET_ATTR_ATIME_NOW, FS_SET_ATIME_NOW },
		{ FUSE_SET_ATTR_MTIME_NOW, FS_SET_MTIME_NOW },
		{ FUSE_SET_ATTR_CTIME, FS_SET_CTIME },
#ifdef FUSE_SET_ATTR_KILL_PRIV
		{ FUSE_SET_ATTR_KILL_PRIV, FS_SET_KILL_PRIV },
#endif
	};
	struct fs_fuse_caller caller;
	struct fs_attr a, in = {
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.atime = st->st_atim,
		.mtime = st->st_mtim,
		.ctime = st->st_ctim,
	};
	uint32_t set = 0;

	(void)fi;
	for (size_t i = 0; i < KV_ARRAY_LEN(map); i++)
		if (to_set & map[i].from)
			set |= map[i].to;
	reply_attr(req, fs_setattr(fs_of(req), ino, &in, set, fs_caller_of(req, &caller), &a), &a);
}

void fs_fuse_readlink(fuse_req_t req, fuse_ino_t ino)
{
	KV_AUTO(kv_buf_done) struct kv_buf target = KV_BUF_INIT;
	int err = fs_readlink(fs_of(req), ino, &target);

	if (!err)
		err = kv_buf_append_byte(&target, 0);
	if (err)
		fs_reply_err(req, err);
	else
		(void)fuse_reply_readlink(req, (const char *)target.data);
}

void fs_fuse_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;
	int err = fs_statfs(fs_of(req), &st);

	(void)ino;
	if (err)
		fs_reply_err(req, err);
	else
		(void)fuse_reply_statfs(req, &st);
}

static int latencies_text(struct kv_db *kv, struct kv_buf *b)
{
	static const struct {
		const char *name, *text;
	} kinds[] = {
#define X(name, one_of, text) { #name, text },
		KV_LATENCIES(X)
#undef X
	};

	KV_TRY(kv_buf_printf(b, "\n%-12s %9s %9s %9s %9s %9s %9s %9s  microseconds that it takes\n",
			     "", "timed", "mean", "50%", "90%", "99%", "99.9%", "most"));
	for (int i = 0; i < KV_LATENCY_KINDS; i++) {
		struct kv_latency l;

		kv_latency(kv, (enum kv_latency_kind)i, &l);
		KV_TRY(kv_buf_printf(b, "%-12s %9llu %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f  %s\n",
				     kinds[i].name, (unsigned long long)l.count,
				     (double)l.mean_ns / 1000, (double)l.p50_ns / 1000,
				     (double)l.p90_ns / 1000, (double)l.p99_ns / 1000,
				     (double)l.p999_ns / 1000, (double)l.max_ns / 1000,
				     kinds[i].text));
	}
	return 0;
}

static int stats_text(struct fs *fs, struct kvfs_stats_text *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	uint64_t garbage_percent, debt;
	struct fs_stats f;
	struct kv_stats k;

	fs_stats(fs, &f);
	kv_stats(fs_kv(fs), &k);
	KV_TRY(kv_property_number(fs_kv(fs), "garbage_percent", &garbage_percent));
	KV_TRY(kv_property_number(fs_kv(fs), "compaction_debt_bytes", &debt));
	KV_TRY(kv_buf_printf(&b,
			     "%-20s %20llu  inodes in the store\n"
			     "%-20s %20llu  bytes of file data\n"
			     "%-20s %20llu  inodes that the kernel knows\n"
			     "%-20s %20llu  inodes cached\n"
			     "%-20s %20llu  deleted files not freed yet\n"
			     "%-20s %20llu  bytes of memtables\n"
			     "%-20s %20llu  bytes of cached blocks\n"
			     "%-20s %20llu  bytes of both, and of what is known of tables\n"
			     "%-20s %20llu  bytes of all files of the store\n"
			     "%-20s %20llu  bytes of the value log\n"
			     "%-20s %20llu  of them, referred to by tables\n"
			     "%-20s %20llu  percent of them that nothing refers to\n"
			     "%-20s %20llu  bytes of tables that wait for compaction\n",
			     "inodes", (unsigned long long)f.inodes, "bytes_used",
			     (unsigned long long)f.bytes_used, "inodes_known",
			     (unsigned long long)f.inodes_known, "inodes_cached",
			     (unsigned long long)f.inodes_cached, "orphans_waiting",
			     (unsigned long long)f.orphans_waiting, "memtable_bytes",
			     (unsigned long long)k.memtable_bytes, "cache_bytes",
			     (unsigned long long)k.cache_bytes, "memory_bytes",
			     (unsigned long long)k.memory_bytes, "disk_bytes",
			     (unsigned long long)k.disk_bytes, "segment_bytes",
			     (unsigned long long)k.segment_bytes, "segment_bytes_live",
			     (unsigned long long)k.segment_bytes_live, "garbage_percent",
			     (unsigned long long)garbage_percent, "compaction_debt",
			     (unsigned long long)debt));
	for (int i = 0; i < KV_LEVELS; i++)
		KV_TRY(kv_buf_printf(&b, "level%d_tables        %20llu  with %llu bytes\n", i,
				     (unsigned long long)k.table_count[i],
				     (unsigned long long)k.table_bytes[i]));
#define X(name, text) \
	KV_TRY(kv_buf_printf(&b, "%-20s %20llu  %s\n", #name, (unsigned long long)k.name, text));
	KV_COUNTERS(X)
#undef X
	KV_TRY(latencies_text(fs_kv(fs), &b));
	memset(out, 0, sizeof(*out));
	memcpy(out->s, b.data, KV_MIN(b.bytes, sizeof(out->s) - 1));
	return 0;
}

void fs_fuse_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
		   struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_bytes,
		   size_t out_bytes)
{
	struct kvfs_stats_text text;
	int err;

	(void)ino, (void)arg, (void)fi, (void)flags, (void)in, (void)in_bytes;
	switch (cmd) {
	case KVFS_IOC_SYNC:
		err = fs_sync(fs_of(req));
		if (err)
			break;
		(void)fuse_reply_ioctl(req, 0, NULL, 0);
		return;
	case KVFS_IOC_STATS:
		err = out_bytes < sizeof(text) ? -EINVAL : stats_text(fs_of(req), &text);
		if (err)
			break;
		(void)fuse_reply_ioctl(req, 0, &text, sizeof(text));
		return;
	default:
		err = -ENOTTY;
	}
	fs_reply_err(req, err);
}
