/*
 * The value of an entry, wherever it lies: in the entry, compressed there, or in the value log.
 *
 * What was read from the log is kept in the cache, whole and decompressed, under its segment and
 * offset, which are never used again for anything else. Parts that several keys share are cut from it.
 */
#include "kv/compress.h"
#include "kv/db.h"

#include <stdlib.h>

#define KEPT_BYTES_MAX (256 * KV_KIB)	/* larger ones would push out too much for one */

int kv_value_bytes(enum kv_kind kind, struct kv_slice value, uint32_t *out_bytes)
{
	struct kv_packed packed;
	struct kv_vptr p;

	if (kind == KV_KIND_PUT) {
		*out_bytes = (uint32_t)value.bytes;
		return 0;
	}
	if (kind == KV_KIND_PUT_PACKED) {
		KV_TRY(kv_packed_decode(value, &packed));
		*out_bytes = packed.raw_bytes;
		return 0;
	}
	KV_TRY(kv_vptr_decode(value, &p));
	*out_bytes = p.part_bytes;
	return 0;
}

/* A whole value out of the cache: appends the part that p means. False: it isn't there. */
static bool value_cached(struct kv_db *db, const struct kv_vptr *p, struct kv_buf *out, int *out_err)
{
	struct kv_cache_entry *e =
		kv_cache_get(db->cache, (struct kv_cache_key){ p->segment_no, p->offset });
	struct kv_slice value;

	if (!e)
		return false;
	kv_count(&db->counters.cache_hits, 1);
	value = kv_cache_entry_data(e);
	/* The pointer is damaged if not: to read it says so. */
	if (value.bytes == p->raw_bytes)
		*out_err = kv_buf_append(out, (const uint8_t *)value.data + p->part_offset,
					 p->part_bytes);
	kv_cache_unpin(db->cache, e);
	return value.bytes == p->raw_bytes;
}

/* For want of memory it just isn't kept. */
static void value_keep(struct kv_db *db, const struct kv_vptr *p, const uint8_t *value)
{
	void *copy = malloc(p->raw_bytes);

	if (!copy)
		return;
	memcpy(copy, value, p->raw_bytes);
	kv_cache_unpin(db->cache,
		       kv_cache_put(db->cache, (struct kv_cache_key){ p->segment_no, p->offset },
				    copy, p->raw_bytes));
}

/* Reads the whole value, keeps it, and leaves the part that p means. */
static int value_read_and_keep(struct kv_db *db, struct kv_env_file *file, const struct kv_vptr *p,
			       struct kv_vlog_ahead *ahead, struct kv_buf *out)
{
	struct kv_vptr whole = *p;
	size_t at = out->bytes;

	whole.part_offset = 0;
	whole.part_bytes = p->raw_bytes;
	KV_TRY(kv_vlog_read(&db->store, file, &whole, ahead, out));
	kv_count(&db->counters.cache_misses, 1);
	value_keep(db, p, out->data + at);
	if (p->part_offset)
		memmove(out->data + at, out->data + at + p->part_offset, p->part_bytes);
	out->bytes = at + p->part_bytes;
	return 0;
}

static bool is_kept_in_cache(const struct kv_db *db, const struct kv_vptr *p)
{
	return !db->options.no_value_cache && p->raw_bytes && p->raw_bytes <= KEPT_BYTES_MAX;
}

int kv_value_fetch(struct kv_db *db, enum kv_kind kind, struct kv_slice value,
		   struct kv_vlog_ahead *ahead, bool fill, struct kv_buf *out)
{
	struct kv_filecache_entry *pin;
	struct kv_env_file *file;
	struct kv_vptr p;
	int err;

	if (kind == KV_KIND_PUT)
		return kv_buf_append_slice(out, value);
	if (kind == KV_KIND_PUT_PACKED) {
		err = kv_packed_unpack(value, out);
		if (err && err != -ENOMEM)
			return kv_fail(&db->store.msg, err, "a table or journal of %s holds a "
				       "compressed value that is malformed", db->store.path);
		return err;
	}
	KV_ASSERT(kind == KV_KIND_PUT_PTR);
	err = kv_vptr_decode(value, &p);
	if (err)
		return kv_fail(&db->store.msg, err, "a table or journal of %s holds a pointer into "
			       "the value log that is malformed", db->store.path);
	if (is_kept_in_cache(db, &p) && value_cached(db, &p, out, &err))
		return err;
	KV_TRY(kv_filecache_segment(db->files, p.segment_no, &pin, &file));
	if (fill && is_kept_in_cache(db, &p))
		err = value_read_and_keep(db, file, &p, ahead, out);
	else
		err = kv_vlog_read(&db->store, file, &p, ahead, out);
	kv_filecache_unpin(db->files, pin);
	return err;
}
