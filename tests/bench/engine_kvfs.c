/*
 * Our engine, for the benchmark that runs the same workloads on its peers (`make bench-kv`).
 * The contracts are that benchmark's engine.h, its settings settings.h.
 */
#include <stdlib.h>
#include <string.h>

#include "kv/kv.h"

#include "engine.h"
#include "settings.h"

struct db {
	struct kv_db *kv;
};

/* One thread's: what it needs for each call, so that none of them allocates. */
struct session {
	struct kv_db *kv;
	struct kv_batch *batch;
	struct kv_buf value;
};

static void check(const char *what, int err)
{
	if (err < 0)
		die("kvfs: %s: %s", what, kv_err_text(err));
}

static struct kv_slice key_slice(const char *key)
{
	return kv_slice(key, KEY_LEN);
}

static const char *version(void)
{
	return KVFS_VERSION;
}

static void *db_open(const struct kv_config *c)
{
	struct db *db = xmalloc(sizeof *db);
	struct kv_options options = {
		.create = true,
		.cache_bytes = CACHE_BYTES,
		.memtable_bytes = WRITE_BUFFER_BYTES,
		.no_compression = strcmp(c->compression, "none") == 0,
	};

	check("open", kv_open(c->dir, &options, &db->kv));
	return db;
}

static void db_close(void *p)
{
	struct db *db = p;

	check("close", kv_close(db->kv));
	free(db);
}

static void *session_new(void *p)
{
	struct db *db = p;
	struct session *s = xmalloc(sizeof *s);

	*s = (struct session){ .kv = db->kv, .batch = kv_batch_new() };
	s->value = (struct kv_buf)KV_BUF_INIT;
	if (s->batch == NULL)
		die("kvfs: out of memory");
	return s;
}

static void session_end(void *p)
{
	struct session *s = p;

	kv_batch_free(s->batch);
	kv_buf_done(&s->value);
	free(s);
}

static void put(void *p, const struct kv_pair *pairs, size_t count, bool sync)
{
	struct session *s = p;

	kv_batch_reset(s->batch);
	for (size_t i = 0; i < count; i++)
		kv_batch_put_ref(s->batch, key_slice(pairs[i].key),
				 kv_slice(pairs[i].value, pairs[i].value_len), KV_HINT_NONE);
	check("write", kv_write(s->kv, s->batch, sync));
}

static void del(void *p, const char *key)
{
	struct session *s = p;

	kv_batch_reset(s->batch);
	kv_batch_delete(s->batch, key_slice(key));
	check("delete", kv_write(s->kv, s->batch, false));
}

static ptrdiff_t get(void *p, const char *key, char *buf, size_t cap)
{
	struct session *s = p;
	int err = kv_get(s->kv, NULL, key_slice(key), &s->value);

	if (err == KV_E_not_found)
		return -1;
	check("get", err);
	memcpy(buf, s->value.data, s->value.bytes < cap ? s->value.bytes : cap);
	return (ptrdiff_t)s->value.bytes;
}

static void scan(void *p, const char *key, kv_visit *visit, void *arg)
{
	struct session *s = p;
	struct kv_iter_options options = { .sequential = true };
	struct kv_iter *it;

	check("iterator", kv_iter_new(s->kv, &options, &it));
	for (kv_iter_seek(it, key_slice(key)); kv_iter_valid(it); kv_iter_next(it)) {
		struct kv_slice k = kv_iter_key(it), v;

		check("value", kv_iter_value(it, &v));
		if (!visit(arg, (const char *)k.data, k.bytes, (const char *)v.data, v.bytes))
			break;
	}
	check("scan", kv_iter_error(it));
	kv_iter_free(it);
}

static void sync_all(void *p)
{
	struct session *s = p;

	check("sync", kv_sync(s->kv));
}

static void settle(void *p)
{
	struct session *s = p;

	check("flush", kv_flush(s->kv));
	check("compact", kv_compact(s->kv, (struct kv_slice){ 0 }, (struct kv_slice){ 0 }));
	check("wait", kv_wait_idle(s->kv));
}

static const struct kv_engine engine = {
	.name = "kvfs",
	.settings = "cache 256 MiB, memtable 64 MiB, the rest as it is by default: LZ4, zstd in deep levels, values from 1 KiB in the value log",
	.version = version,
	.open = db_open,
	.close = db_close,
	.session = session_new,
	.session_end = session_end,
	.put = put,
	.del = del,
	.get = get,
	.scan = scan,
	.sync = sync_all,
	.settle = settle,
};
KV_ENGINE(engine)
