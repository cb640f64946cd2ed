#include "tests/sim/fsops.h"

#include <errno.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>

#include "kv/assert.h"
#include "kv/checksum.h"
#include "tests/sim/env_sim.h"

#define A_BYTES 3000
#define B_BYTES 140000
#define WRITE_MAX 300000u
#define KEEP FALLOC_FL_KEEP_SIZE

const struct fsop fsops[] = {
	{ "create-c", FSOP_CREATE, "c", NULL, 0, 0, 0 },
	{ "create-d/c", FSOP_CREATE, "d/c", NULL, 0, 0, 0 },
	{ "mkfifo-c", FSOP_MKFIFO, "c", NULL, 0, 0, 0 },
	{ "tmpfile-c", FSOP_TMPFILE, "c", NULL, 0, 5000, 0 },
	{ "mkdir-c", FSOP_MKDIR, "c", NULL, 0, 0, 0 },
	{ "mkdir-e", FSOP_MKDIR, "e", NULL, 0, 0, 0 },
	{ "mkdir-d/c", FSOP_MKDIR, "d/c", NULL, 0, 0, 0 },
	{ "symlink-s", FSOP_SYMLINK, "s", "a", 0, 0, 0 },
	{ "symlink-c", FSOP_SYMLINK, "c", "d/a", 0, 0, 0 },
	{ "link-a-c", FSOP_LINK, "a", "c", 0, 0, 0 },
	{ "link-b-d/c", FSOP_LINK, "b", "d/c", 0, 0, 0 },
	{ "link-d/a-c", FSOP_LINK, "d/a", "c", 0, 0, 0 },
	{ "unlink-a", FSOP_UNLINK, "a", NULL, 0, 0, 0 },
	{ "unlink-b", FSOP_UNLINK, "b", NULL, 0, 0, 0 },
	{ "unlink-c", FSOP_UNLINK, "c", NULL, 0, 0, 0 },
	{ "unlink-d/a", FSOP_UNLINK, "d/a", NULL, 0, 0, 0 },
	{ "unlink-open-b", FSOP_UNLINK_OPEN, "b", NULL, 0, 0, 0 },
	{ "rmdir-c", FSOP_RMDIR, "c", NULL, 0, 0, 0 },
	{ "rmdir-d", FSOP_RMDIR, "d", NULL, 0, 0, 0 },
	{ "rename-a-c", FSOP_RENAME, "a", "c", 0, 0, 0 },
	{ "rename-a-b", FSOP_RENAME, "a", "b", 0, 0, 0 },
	{ "rename-b-a", FSOP_RENAME, "b", "a", 0, 0, 0 },
	{ "rename-c-a", FSOP_RENAME, "c", "a", 0, 0, 0 },
	{ "rename-c-b", FSOP_RENAME, "c", "b", 0, 0, 0 },
	{ "rename-a-d/a", FSOP_RENAME, "a", "d/a", 0, 0, 0 },
	{ "rename-d/a-a", FSOP_RENAME, "d/a", "a", 0, 0, 0 },
	{ "rename-d-e", FSOP_RENAME, "d", "e", 0, 0, 0 },
	{ "rename-d-c", FSOP_RENAME, "d", "c", 0, 0, 0 },
	{ "noreplace-a-b", FSOP_RENAME, "a", "b", 0, 0, RENAME_NOREPLACE },
	{ "exchange-a-b", FSOP_RENAME, "a", "b", 0, 0, RENAME_EXCHANGE },
	{ "exchange-a-d", FSOP_RENAME, "a", "d", 0, 0, RENAME_EXCHANGE },
	{ "exchange-b-d/a", FSOP_RENAME, "b", "d/a", 0, 0, RENAME_EXCHANGE },
	{ "whiteout-a-c", FSOP_RENAME, "a", "c", 0, 0, RENAME_WHITEOUT },
	{ "write-a", FSOP_WRITE, "a", NULL, 100, 700, 0 },
	{ "overwrite-a", FSOP_WRITE, "a", NULL, 0, 20000, 0 },
	{ "write-b", FSOP_WRITE, "b", NULL, 120000, 15000, 0 },
	{ "write-c", FSOP_WRITE, "c", NULL, 0, 3000, 0 },
	{ "write-c-bulk", FSOP_WRITE, "c", NULL, 0, 200000, 0 },
	{ "write-d/a", FSOP_WRITE, "d/a", NULL, 50, 200, 0 },
	{ "write-d/a-hole", FSOP_WRITE, "d/a", NULL, 90000, 100, 0 },
	{ "write-sync-a", FSOP_WRITE_SYNC, "a", NULL, 1000, 4000, 0 },
	{ "append-a", FSOP_APPEND, "a", NULL, 0, 500, 0 },
	{ "append-b", FSOP_APPEND, "b", NULL, 0, 9000, 0 },
	{ "truncate-a", FSOP_TRUNCATE, "a", NULL, 0, 0, 0 },
	{ "truncate-b", FSOP_TRUNCATE, "b", NULL, 0, 50000, 0 },
	{ "extend-d/a", FSOP_TRUNCATE, "d/a", NULL, 0, 70000, 0 },
	{ "allocate-a", FSOP_ALLOCATE, "a", NULL, 2000, 10000, 0 },
	{ "allocate-keep-a", FSOP_ALLOCATE, "a", NULL, 2000, 10000, KEEP },
	{ "punch-b", FSOP_ALLOCATE, "b", NULL, 4096, 8192, FALLOC_FL_PUNCH_HOLE | KEEP },
	{ "zero-b", FSOP_ALLOCATE, "b", NULL, 130000, 20000, FALLOC_FL_ZERO_RANGE },
	{ "copy-b-a", FSOP_COPY, "b", "a", 1000, 100000, 0 },
	{ "chmod-a", FSOP_CHMOD, "a", NULL, 0, 0, 0600 },
	{ "setxattr-a", FSOP_SETXATTR, "a", NULL, 0, 20, 0 },
	{ "setxattr-d", FSOP_SETXATTR, "d", NULL, 0, 5000, 0 },
	{ "removexattr-a", FSOP_REMOVEXATTR, "a", NULL, 0, 0, 0 },
	{ "sync", FSOP_SYNC, NULL, NULL, 0, 0, 0 },
	{ "flush", FSOP_FLUSH, NULL, NULL, 0, 0, 0 },
	{ "reopen", FSOP_REOPEN, NULL, NULL, 0, 0, 0 },
	{ "kill", FSOP_KILL, NULL, NULL, 0, 0, 0 },
};
const size_t fsop_count = KV_ARRAY_LEN(fsops);

const struct fsop *fsop_find(struct kv_slice name)
{
	for (size_t i = 0; i < fsop_count; i++)
		if (kv_slice_eq(name, kv_slice_str(fsops[i].name)))
			return &fsops[i];
	return NULL;
}

bool fsop_is_durable(const struct fsop *op)
{
	switch (op->kind) {
	case FSOP_WRITE_SYNC:
	case FSOP_SYNC:
	case FSOP_FLUSH:
	case FSOP_REOPEN:
	case FSOP_KILL:
		return true;
	default:
		return false;
	}
}

bool fsop_is_refusal(int err)
{
	switch (err) {
	case -ENOENT:
	case -EEXIST:
	case -ENOTDIR:
	case -EISDIR:
	case -ENOTEMPTY:
	case -EPERM:
	case -EINVAL:
	case -ENODATA:
	case -ENXIO:
	case -ENODEV:
		return true;
	default:
		return false;
	}
}

/* Half of it compresses: 512 bytes that don't, 512 that do, and so on. */
void fsop_fill(const char *name, uint8_t *to, size_t bytes)
{
	uint64_t seed = kv_checksum(kv_slice_str(name), 0);
	uint8_t letter = (uint8_t)seed;

	for (size_t i = 0; i < bytes; i += 8) {
		seed = seed * 0x5851f42d4c957f2d + 0x14057b7ef767814f;
		if (i / 512 % 2)
			memset(to + i, letter, KV_MIN(8, bytes - i));
		else
			memcpy(to + i, &seed, KV_MIN(8, bytes - i));
	}
}

/* --- paths ------------------------------------------------------------------------------------ */

static int lookup(struct fs *fs, fs_ino dir, struct kv_slice name, struct fs_attr *out)
{
	KV_TRY(fs_lookup(fs, dir, name, out));
	fs_forget(fs, out->ino, 1);
	return 0;
}

/* The directory that the last part of the path is in, and that part. */
static int parent(struct fs *fs, const char *path, fs_ino *out_dir, struct kv_slice *out_name)
{
	const char *slash = strchr(path, '/');
	struct fs_attr a;

	*out_dir = FS_INO_ROOT;
	*out_name = kv_slice_str(slash ? slash + 1 : path);
	if (!slash)
		return 0;
	KV_TRY(lookup(fs, FS_INO_ROOT, kv_slice(path, (size_t)(slash - path)), &a));
	*out_dir = a.ino;
	return 0;
}

static int find(struct fs *fs, const char *path, struct fs_attr *out)
{
	struct kv_slice name;
	fs_ino dir;

	KV_TRY(parent(fs, path, &dir, &name));
	return lookup(fs, dir, name, out);
}

/* --- changes ----------------------------------------------------------------------------------- */

static int write_ino(struct fs *fs, const struct fsop *op, fs_ino ino, uint64_t offset,
		     uint32_t flags)
{
	static uint8_t data[WRITE_MAX];

	KV_ASSERT(op->bytes <= sizeof(data));
	fsop_fill(op->name, data, op->bytes);
	return fs_write(fs, ino, data, op->bytes, offset, flags);
}

static int make(struct fs *fs, const struct fsop *op)
{
	struct kv_slice name;
	struct fs_attr a;
	fs_ino dir;

	KV_TRY(parent(fs, op->path, &dir, &name));
	if (op->kind == FSOP_MKDIR)
		KV_TRY(fs_mkdir(fs, dir, name, 0755, NULL, &a));
	else if (op->kind == FSOP_SYMLINK)
		KV_TRY(fs_symlink(fs, dir, name, kv_slice_str(op->to), NULL, &a));
	else
		KV_TRY(fs_mknod(fs, dir, name, 0644 | (op->kind == FSOP_MKFIFO ? S_IFIFO : S_IFREG),
				0, NULL, &a));
	fs_forget(fs, a.ino, 1);
	return 0;
}

/* Nobody sees it before it is linked: together they are one change. */
static int make_tmpfile(struct fs *fs, const struct fsop *op)
{
	struct fs_attr a, linked;
	struct kv_slice name;
	fs_ino dir;
	int err;

	KV_TRY(parent(fs, op->path, &dir, &name));
	KV_TRY(fs_tmpfile(fs, dir, 0644, NULL, &a));
	err = write_ino(fs, op, a.ino, 0, 0);
	err = err ? err : fs_link(fs, a.ino, dir, name, &linked);
	fs_forget(fs, a.ino, err ? 1 : 2);
	return err;
}

static int link_to(struct fs *fs, const struct fsop *op)
{
	struct fs_attr from, a;
	struct kv_slice name;
	fs_ino dir;

	KV_TRY(find(fs, op->path, &from));
	KV_TRY(parent(fs, op->to, &dir, &name));
	KV_TRY(fs_link(fs, from.ino, dir, name, &a));
	fs_forget(fs, a.ino, 1);
	return 0;
}

static int take_away(struct fs *fs, const struct fsop *op)
{
	struct kv_slice name;
	struct fs_attr a;
	fs_ino dir;
	int err;

	KV_TRY(parent(fs, op->path, &dir, &name));
	if (op->kind == FSOP_RMDIR)
		return fs_rmdir(fs, dir, name);
	if (op->kind == FSOP_UNLINK)
		return fs_unlink(fs, dir, name);
	KV_TRY(fs_lookup(fs, dir, name, &a));
	err = fs_unlink(fs, dir, name);
	if (err)
		fs_forget(fs, a.ino, 1);
	return err;
}

static int move(struct fs *fs, const struct fsop *op)
{
	struct kv_slice from, to;
	fs_ino from_dir, to_dir;

	KV_TRY(parent(fs, op->path, &from_dir, &from));
	KV_TRY(parent(fs, op->to, &to_dir, &to));
	return fs_rename(fs, from_dir, from, to_dir, to, op->flags);
}

static int change_data(struct fs *fs, const struct fsop *op)
{
	struct fs_attr a, to, set = { .size = op->bytes };
	uint64_t copied;

	KV_TRY(find(fs, op->path, &a));
	switch (op->kind) {
	case FSOP_APPEND:
		return write_ino(fs, op, a.ino, a.size, 0);
	case FSOP_WRITE:
		return write_ino(fs, op, a.ino, op->offset, 0);
	case FSOP_WRITE_SYNC:
		return write_ino(fs, op, a.ino, op->offset, FS_WRITE_SYNC);
	case FSOP_TRUNCATE:
		return fs_setattr(fs, a.ino, &set, FS_SET_SIZE, NULL, &a);
	case FSOP_ALLOCATE:
		return fs_fallocate(fs, a.ino, (int)op->flags, op->offset, op->bytes);
	default:
		KV_TRY(find(fs, op->to, &to));
		return fs_copy_range(fs, a.ino, op->offset, to.ino, 0, op->bytes, &copied);
	}
}

static int change_attr(struct fs *fs, const struct fsop *op)
{
	struct fs_attr a, set = { .mode = op->flags };
	uint8_t value[FS_XATTR_BYTES_MAX];

	KV_TRY(find(fs, op->path, &a));
	switch (op->kind) {
	case FSOP_CHMOD:
		return fs_setattr(fs, a.ino, &set, FS_SET_MODE, NULL, &a);
	case FSOP_SETXATTR:
		fsop_fill(op->name, value, op->bytes);
		return fs_setxattr(fs, a.ino, kv_slice_str("user.x"), kv_slice(value, op->bytes), 0);
	default:
		return fs_removexattr(fs, a.ino, kv_slice_str("user.x"));
	}
}

int fsop_do(struct fs *fs, const struct fsop *op)
{
	switch (op->kind) {
	case FSOP_CREATE:
	case FSOP_MKFIFO:
	case FSOP_MKDIR:
	case FSOP_SYMLINK:
		return make(fs, op);
	case FSOP_TMPFILE:
		return make_tmpfile(fs, op);
	case FSOP_LINK:
		return link_to(fs, op);
	case FSOP_UNLINK:
	case FSOP_UNLINK_OPEN:
	case FSOP_RMDIR:
		return take_away(fs, op);
	case FSOP_RENAME:
		return move(fs, op);
	case FSOP_WRITE:
	case FSOP_WRITE_SYNC:
	case FSOP_APPEND:
	case FSOP_TRUNCATE:
	case FSOP_ALLOCATE:
	case FSOP_COPY:
		return change_data(fs, op);
	case FSOP_CHMOD:
	case FSOP_SETXATTR:
	case FSOP_REMOVEXATTR:
		return change_attr(fs, op);
	case FSOP_SYNC:
		return fs_sync(fs);
	case FSOP_FLUSH:
		return kv_flush(fs_kv(fs));
	case FSOP_REOPEN:
	case FSOP_KILL:
		break;
	}
	KV_ASSERT(!"an operation for fsop_do()");
	return -EINVAL;
}

/* --- a disk ------------------------------------------------------------------------------------- */

static void print_message(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "%s\n", text);
}

static struct kv_options engine(struct kv_env *env, enum fsop_layout layout)
{
	bool tight = layout == FSOP_TIGHT;

	return (struct kv_options){
		.env = env,
		.msg = { getenv("VERBOSE") ? print_message : NULL, NULL, KV_MSG_DEBUG },
		.inline_work = true,
		.no_event_log = true,
		.cache_bytes = 64 * KV_KIB,
		.memtable_bytes = tight ? 4 * KV_KIB : 32 * KV_KIB,
		.bulk_bytes_per_memtable = tight ? 16 * KV_KIB : 1024 * KV_KIB,
		.segment_bytes = tight ? 32 * KV_KIB : 256 * KV_KIB,
		.table_bytes = 4 * KV_KIB,
		.level_base_bytes = 16 * KV_KIB,
		.level0_tables_slow = tight ? 1 : 0,
		.level0_tables_max = tight ? 2 : 0,
		.block_bytes = 512,
		.medium_bytes = 256,
		.bulk_bytes = 4096,
	};
}

static void show_now(void *arg, struct timespec *out)
{
	*out = (struct timespec){ .tv_sec = *(time_t *)arg };
}

int fsop_open(struct kv_env *env, enum fsop_layout layout, time_t *now, struct fs **out)
{
	struct fs_options o = {
		.kv = engine(env, layout),
		.commit_s = UINT32_MAX,
		.inodes_cached_max = 16,
		.now = show_now,
		.now_arg = now,
	};

	return fs_open("store", &o, out);
}

static int make_tree(struct fs *fs)
{
	static const struct fsop tree[] = {
		{ "old-a", FSOP_CREATE, "a", NULL, 0, 0, 0 },
		{ "old-a", FSOP_WRITE, "a", NULL, 0, A_BYTES, 0 },
		{ "old-a", FSOP_SETXATTR, "a", NULL, 0, 10, 0 },
		{ "old-b", FSOP_CREATE, "b", NULL, 0, 0, 0 },
		{ "old-b", FSOP_WRITE, "b", NULL, 0, B_BYTES, 0 },
		{ "old-d", FSOP_MKDIR, "d", NULL, 0, 0, 0 },
		{ "old-d/a", FSOP_CREATE, "d/a", NULL, 0, 0, 0 },
		{ "old-d/a", FSOP_WRITE, "d/a", NULL, 0, 100, 0 },
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(tree); i++)
		KV_TRY(fsop_do(fs, &tree[i]));
	return 0;
}

struct kv_env *fsop_disk(uint64_t seed, enum fsop_layout layout, time_t *now)
{
	struct fs_format_options o = { .hash_bits = 0 };
	struct kv_env *env = kv_env_sim_new(seed);
	struct fs *fs;

	KV_ASSERT(env);
	o.kv = engine(env, layout);
	KV_ASSERT(!fs_format("store", &o));
	KV_ASSERT(!fsop_open(env, layout, now, &fs));
	KV_ASSERT(!make_tree(fs));
	KV_ASSERT(!fs_close(fs));
	return env;
}
