/*
 * Making, opening and closing a filesystem; the thread that makes changes durable
 * every few seconds.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fs/fs.h"
#include "fs/orphan.h"
#include "kv/env.h"

#define COMMIT_S 5
#define INODES_CACHED_MAX 65536
#define ROOT_MODE 0755
#define FREED_BYTES_MAX (64 * KV_MIB) /* what is deleted before a flush is worth it */

/* --- formatting ------------------------------------------------------------------------- */

static int super_make(struct kv_env *env, const struct fs_format_options *o, struct fs_super *out)
{
	struct fs_super s = { .hash_bits = o->hash_bits ? o->hash_bits : FS_HASH_BITS };
	const char *label = o->label ? o->label : "";
	struct timespec now;

	if (s.hash_bits > FS_HASH_BITS || strlen(label) > FS_LABEL_BYTES_MAX)
		return KV_E_bad_option;
	memcpy(s.label, label, strlen(label));
	KV_TRY(env->ops->random(env, s.hash_key, sizeof(s.hash_key)));
	if (o->uuid) {
		memcpy(s.uuid, o->uuid, sizeof(s.uuid));
	} else {
		/* Version 4, variant 1 of RFC 9562: drawn at random. */
		KV_TRY(env->ops->random(env, s.uuid, sizeof(s.uuid)));
		s.uuid[6] = (uint8_t)((s.uuid[6] & 0x0f) | 0x40);
		s.uuid[8] = (uint8_t)((s.uuid[8] & 0x3f) | 0x80);
	}
	clock_gettime(CLOCK_REALTIME, &now);
	s.created_s = now.tv_sec;
	*out = s;
	return 0;
}

static void put(struct kv_batch *b, const struct fs_key key, const void *value, size_t bytes)
{
	kv_batch_put(b, fs_key_slice(&key), kv_slice(value, bytes), KV_HINT_NONE);
}

static void put_root(struct kv_batch *b, const struct fs_format_options *o, int64_t now_s)
{
	struct timespec now = { .tv_sec = (time_t)now_s };
	uint32_t mode = o->root_mode ? o->root_mode & 07777 : ROOT_MODE;
	struct fs_attr root = {
		.ino = FS_INO_ROOT,
		.mode = S_IFDIR | mode,
		.nlink = 2,
		.uid = o->root_uid,
		.gid = o->root_gid,
		.parent = FS_INO_ROOT,
		.atime = now, .mtime = now, .ctime = now, .btime = now,
	};
	struct fs_attr_disk d;

	fs_attr_encode(&root, &d);
	put(b, fs_key_attr(FS_INO_ROOT), &d, sizeof(d));
}

static int write_super(struct kv_db *kv, const struct fs_super *s,
		       const struct fs_format_options *o)
{
	struct fs_key inodes = fs_key_super(FS_SUPER_INODES);
	le64 ino_next = kv_le64(FS_INO_FIRST);
	struct kv_batch *b = kv_batch_new();
	struct fs_super_disk d;
	int err;

	if (!b)
		return -ENOMEM;
	fs_super_encode(s, &d);
	put(b, fs_key_super(FS_SUPER_BLOCK), &d, sizeof(d));
	put(b, fs_key_super(FS_SUPER_INO_NEXT), &ino_next, sizeof(ino_next));
	put_root(b, o, s->created_s);
	kv_batch_add(b, fs_key_slice(&inodes), 1);
	err = kv_write(kv, b, true);
	kv_batch_free(b);
	return err;
}

/*
 * CRASH: everything is one batch, made durable before we return. Stop before: a kv store
 * without a superblock, which fs_open() tells from a filesystem.
 */
int fs_format(const char *dir, const struct fs_format_options *options)
{
	struct kv_options ko = options->kv;
	struct fs_super s;
	struct kv_db *kv;
	int err, close_err;

	KV_TRY(super_make(ko.env ? ko.env : kv_env_posix(), options, &s));
	ko.create = ko.error_if_exists = true;
	ko.read_only = false;
	KV_TRY(kv_open(dir, &ko, &kv));
	err = write_super(kv, &s, options);
	close_err = kv_close(kv);
	return err ? err : close_err;
}

/* --- what all of the core uses -------------------------------------------------------------- */

struct timespec fs_now(const struct fs *fs)
{
	struct timespec t;

	if (fs->options.now)
		fs->options.now(fs->options.now_arg, &t);
	else
		clock_gettime(CLOCK_REALTIME, &t);
	return t;
}

void fs_damaged_say(struct fs *fs, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	kv_msg(&fs->msg, KV_MSG_ERROR, "%s: %s; run fsck.kvfs", fs->path, text);
}

struct kv_db *fs_kv(struct fs *fs)
{
	return fs->kv;
}

void fs_identity(struct fs *fs, struct fs_identity *out)
{
	memcpy(out->uuid, fs->super.uuid, sizeof(out->uuid));
	memcpy(out->label, fs->super.label, sizeof(out->label));
}

/* --- the commit thread ------------------------------------------------------------------------- */

/*
 * Makes all durable; by a flush instead, when much has been deleted, so that its space comes
 * back soon. Without the space for one, that has to wait.
 */
static int commit(struct fs *fs)
{
	if (fs->bytes_freed >= FREED_BYTES_MAX) {
		int err = kv_flush(fs->kv);

		if (!kv_err_is(err, -ENOSPC)) {
			fs->bytes_freed = 0;
			return err;
		}
	}
	return kv_sync(fs->kv);
}

/* One error is reported: the engine is read-only from then on, and says so to every writer. */
static void *commit_main(void *arg)
{
	struct fs *fs = arg;
	uint64_t ns = (uint64_t)fs->options.commit_s * 1000000000, synced = 0;
	bool failed = false;

	kv_mutex_lock(&fs->reclaim_mu);
	while (!fs->stop) {
		uint64_t changes = fs->changes;
		int err;

		kv_mutex_unlock(&fs->reclaim_mu);
		err = changes == synced || failed ? 0 : commit(fs);
		if (!err)
			synced = changes;
		else
			(void)kv_fail(&fs->msg, err, "%s: changes could not be made durable: %s",
				      fs->path, kv_err_text(err));
		failed = failed || err;
		kv_mutex_lock(&fs->reclaim_mu);
		if (!fs->stop)
			kv_cond_wait_for(&fs->commit_cond, &fs->reclaim_mu, ns);
	}
	kv_mutex_unlock(&fs->reclaim_mu);
	return NULL;
}

static int commit_start(struct fs *fs)
{
	int err;

	if (fs->read_only || fs->options.kv.inline_work || fs->options.commit_s == UINT32_MAX)
		return 0;
	err = pthread_create(&fs->commit_thread, NULL, commit_main, fs);
	fs->commit_running = !err;
	return -err;
}

static void commit_stop(struct fs *fs)
{
	if (!fs->commit_running)
		return;
	kv_mutex_lock(&fs->reclaim_mu);
	fs->stop = true;
	kv_cond_broadcast(&fs->commit_cond);
	kv_mutex_unlock(&fs->reclaim_mu);
	KV_ASSERT(pthread_join(fs->commit_thread, NULL) == 0);
	fs->commit_running = false;
}

/* --- opening and closing -------------------------------------------------------------------------- */

static int read_super(struct fs *fs)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_super(FS_SUPER_BLOCK);
	int err = kv_get(fs->kv, NULL, fs_key_slice(&key), &value);

	if (err == KV_E_not_found)
		return kv_fail(&fs->msg, KV_E_not_a_store,
			       "%s: holds a kv store, but no filesystem", fs->path);
	if (err)
		return err;
	err = fs_super_decode(kv_buf_slice(&value), &fs->super);
	if (err)
		return kv_fail(&fs->msg, err, "%s: superblock: %s", fs->path, kv_err_text(err));
	if (fs->super.features_write & ~FS_FEATURES_WRITE_KNOWN && !fs->read_only)
		return kv_fail(&fs->msg, KV_E_newer_format,
			       "%s: has features that only a newer version can write "
			       "(it can be opened read-only)", fs->path);
	return 0;
}

static int read_ino_next(struct fs *fs)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_super(FS_SUPER_INO_NEXT);
	int err = kv_get(fs->kv, NULL, fs_key_slice(&key), &value);
	le64 n;

	if (err && err != KV_E_not_found)
		return err;
	if (err || value.bytes != sizeof(n))
		return fs_damaged(fs, "the next inode number is missing");
	memcpy(&n, value.data, sizeof(n));
	fs->ino_next = fs->ino_end = kv_le64_get(n);
	if (fs->ino_next < FS_INO_FIRST || fs->ino_next > FS_INO_MAX)
		return fs_damaged(fs, "the next inode number cannot be");
	return 0;
}

static int open_all(struct fs *fs, const char *dir)
{
	fs->path = strdup(dir);
	fs->icache = fs_icache_new(fs, fs->options.inodes_cached_max);
	if (!fs->path || !fs->icache)
		return -ENOMEM;
	KV_TRY(kv_open(dir, &fs->options.kv, &fs->kv));
	KV_TRY(read_super(fs));
	KV_TRY(read_ino_next(fs));
	KV_TRY(fs_reclaim_start(fs));
	return commit_start(fs);
}

int fs_open(const char *dir, const struct fs_options *options, struct fs **out_fs)
{
	struct fs *fs = calloc(1, sizeof(*fs));
	int err;

	if (!fs)
		return -ENOMEM;
	fs->options = *options;
	fs->options.kv.create = fs->options.kv.error_if_exists = false;
	/* What files hold is cached above us, by the kernel. */
	fs->options.kv.no_value_cache = true;
	if (!fs->options.commit_s)
		fs->options.commit_s = COMMIT_S;
	if (!fs->options.inodes_cached_max)
		fs->options.inodes_cached_max = INODES_CACHED_MAX;
	fs->msg = options->kv.msg;
	fs->read_only = options->kv.read_only;
	kv_mutex_init(&fs->rename_mu);
	kv_mutex_init(&fs->ino_mu);
	kv_mutex_init(&fs->reclaim_mu);
	kv_cond_init(&fs->reclaim_cond);
	kv_cond_init(&fs->reclaim_done);
	kv_cond_init(&fs->commit_cond);
	err = open_all(fs, dir);
	if (err)
		(void)fs_close(fs);	/* the first error is the one to tell */
	else
		*out_fs = fs;
	return err;
}

int fs_close(struct fs *fs)
{
	int err = 0;

	if (!fs)
		return 0;
	commit_stop(fs);
	fs_reclaim_stop(fs);
	fs_icache_free(fs->icache);
	if (fs->kv)
		err = kv_close(fs->kv);
	kv_cond_done(&fs->commit_cond);
	kv_cond_done(&fs->reclaim_done);
	kv_cond_done(&fs->reclaim_cond);
	kv_mutex_done(&fs->reclaim_mu);
	kv_mutex_done(&fs->ino_mu);
	kv_mutex_done(&fs->rename_mu);
	free(fs->path);
	free(fs);
	return err;
}
