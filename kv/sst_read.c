/*
 * Opening a sorted table, reading its blocks, and looking up a key. A block's bytes are believed
 * once its checksum matches, and even then only to be what they say within their own bounds.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kv/assert.h"
#include "kv/compress.h"
#include "kv/filter.h"
#include "kv/sst_impl.h"

static void free_bytes(uint8_t **p)
{
	free(*p);
}

static void count(_Atomic uint64_t *counter)
{
	if (counter)
		atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* --- blocks ----------------------------------------------------------------------------------- */

int kv_sst_fail(const struct kv_sst *t, int err, struct kv_block_handle h, const char *what)
{
	return kv_fail(&t->store->msg, err, "%s/%s: %s at %" PRIu64 " (%" PRIu32 " bytes): %s",
		       t->store->path, kv_filename(KV_FILE_TABLE, t->number).s, what, h.offset,
		       h.stored_bytes, kv_err_text(err));
}

/* Does a block fit there, between the header and the footer? */
static bool handle_is_valid(const struct kv_sst *t, struct kv_block_handle h)
{
	uint64_t end = t->file_bytes - sizeof(struct kv_table_footer);
	uint64_t bytes = (uint64_t)h.stored_bytes + sizeof(struct kv_block_trailer);

	return h.stored_bytes && h.offset >= sizeof(struct kv_file_header) && h.offset <= end &&
	       bytes <= end - h.offset;
}

int kv_sst_handle(const struct kv_sst *t, struct kv_slice value, struct kv_block_handle *out)
{
	struct kv_block_handle_disk d;
	struct kv_block_handle h;

	if (value.bytes != sizeof(d))
		return KV_E_bad_record;
	memcpy(&d, value.data, sizeof(d));
	h = kv_block_handle_decode(d);
	if (!handle_is_valid(t, h) || kv_le32_get(d.reserved))
		return KV_E_bad_record;
	*out = h;
	return 0;
}

/* Reads a block: *out, from malloc, is the raw one. */
static int read_raw(struct kv_sst *t, struct kv_block_handle h, uint8_t **out, size_t *out_bytes)
{
	static const uint8_t zeros[sizeof(((struct kv_block_trailer *)0)->reserved)];
	size_t file_bytes = (size_t)h.stored_bytes + sizeof(struct kv_block_trailer), raw_bytes;
	KV_AUTO(free_bytes) uint8_t *stored = malloc(file_bytes);
	KV_AUTO(free_bytes) uint8_t *raw = NULL;
	struct kv_block_trailer trailer;
	struct kv_slice s = kv_slice(stored, h.stored_bytes);

	if (!stored)
		return -ENOMEM;
	KV_TRY(kv_env_read_exact(t->store->env, t->file, stored, file_bytes, h.offset));
	memcpy(&trailer, stored + h.stored_bytes, sizeof(trailer));
	if (kv_le64_get(trailer.checksum) != kv_block_sum(t->number, h.offset, s, &trailer))
		return KV_E_bad_sum;
	raw_bytes = kv_le32_get(trailer.raw_bytes);
	if (raw_bytes > KV_BLOCK_RAW_BYTES_MAX || memcmp(trailer.reserved, zeros, sizeof(zeros)))
		return KV_E_bad_record;
	if (trailer.codec == KV_CODEC_NONE) {
		if (raw_bytes != h.stored_bytes)
			return KV_E_bad_record;
		*out = stored;
		stored = NULL;
	} else {
		raw = malloc(raw_bytes + 1); /* never nothing */
		if (!raw)
			return -ENOMEM;
		KV_TRY(kv_decompress((enum kv_codec)trailer.codec, s, raw, raw_bytes));
		*out = raw;
		raw = NULL;
	}
	*out_bytes = raw_bytes;
	return 0;
}

/* searched: as kv_block_add_heads() leaves it. */
static int read_block(struct kv_sst *t, struct kv_block_handle h, bool fill, bool searched,
		      struct kv_sst_pin *out)
{
	struct kv_cache_key key = { t->number, h.offset };
	struct kv_cache_entry *e;
	uint8_t *raw;
	size_t bytes;
	int err;

	err = read_raw(t, h, &raw, &bytes);
	if (err)
		return kv_sst_fail(t, err, h, "cannot read the block");
	err = searched ? kv_block_add_heads(&raw, &bytes) : 0;
	if (err) {
		free(raw);
		return err;
	}
	e = fill ? kv_cache_put(t->cache, key, raw, bytes)
		 : kv_cache_private(t->cache, raw, bytes);
	if (!e)
		return -ENOMEM;
	*out = (struct kv_sst_pin){ t->cache, e };
	return 0;
}

bool kv_sst_block_cached(struct kv_sst *t, struct kv_block_handle h, struct kv_sst_pin *out)
{
	struct kv_cache_key key = { t->number, h.offset };
	struct kv_cache_entry *e = kv_cache_get(t->cache, key);

	if (!e)
		return false;
	count(t->counters.cache_hits);
	*out = (struct kv_sst_pin){ t->cache, e };
	return true;
}

static int get_block(struct kv_sst *t, struct kv_block_handle h, bool fill, bool searched,
		     struct kv_sst_pin *out)
{
	if (kv_sst_block_cached(t, h, out))
		return 0;
	count(t->counters.cache_misses);
	return read_block(t, h, fill, searched, out);
}

int kv_sst_block(struct kv_sst *t, struct kv_block_handle h, bool fill, struct kv_sst_pin *out)
{
	return get_block(t, h, fill, true, out);
}

struct kv_block kv_sst_pin_block(const struct kv_sst_pin *p)
{
	return kv_block_with_heads(kv_cache_entry_data(p->entry));
}

int kv_sst_block_anew(struct kv_sst *t, struct kv_block_handle h, struct kv_sst_pin *out)
{
	return read_block(t, h, false, false, out);
}

/* --- opening ---------------------------------------------------------------------------------- */

static bool optional_handle_is_valid(const struct kv_sst *t, struct kv_block_handle h)
{
	return !h.stored_bytes ? !h.offset : handle_is_valid(t, h);
}

static int read_footer(struct kv_sst *t)
{
	struct kv_table_footer f;
	uint64_t bytes;

	KV_TRY(t->store->env->ops->size(t->file, &bytes));
	if (bytes != t->file_bytes || bytes < sizeof(struct kv_file_header) + sizeof(f))
		return KV_E_short_file;
	KV_TRY(kv_env_read_exact(t->store->env, t->file, &f, sizeof(f), bytes - sizeof(f)));
	if (memcmp(f.magic, KV_TABLE_MAGIC, sizeof(f.magic)))
		return KV_E_bad_record;
	if (kv_le64_get(f.checksum) != kv_table_footer_sum(&f))
		return KV_E_bad_sum;
	if (kv_le32_get(f.version) > KV_TABLE_VERSION)
		return KV_E_newer_format;
	t->index = kv_block_handle_decode(f.index);
	t->filter = kv_block_handle_decode(f.filter);
	t->range_deletes = kv_block_handle_decode(f.range_deletes);
	t->properties = kv_block_handle_decode(f.properties);
	if (kv_le64_get(f.number) != t->number || !optional_handle_is_valid(t, t->index) ||
	    !optional_handle_is_valid(t, t->filter) ||
	    !optional_handle_is_valid(t, t->range_deletes) || !handle_is_valid(t, t->properties))
		return KV_E_bad_record;
	return 0;
}

static int read_properties(struct kv_sst *t)
{
	KV_AUTO(free_bytes) uint8_t *raw = NULL;
	size_t bytes;

	KV_TRY(read_raw(t, t->properties, &raw, &bytes));
	KV_TRY(kv_sst_meta_decode(kv_slice(raw, bytes), &t->meta));
	t->meta.number = t->number;
	t->meta.file_bytes = t->file_bytes;
	/* Blocks are there exactly for what there is. */
	if (!t->meta.entries != !t->index.stored_bytes ||
	    !t->meta.range_deletes != !t->range_deletes.stored_bytes)
		return KV_E_bad_record;
	return 0;
}

static void free_rangedels(struct kv_rangedel **p)
{
	free(*p);
}

static int read_rangedels(struct kv_sst *t)
{
	KV_AUTO(free_bytes) uint8_t *raw = NULL;
	KV_AUTO(free_rangedels) struct kv_rangedel *all = NULL;
	size_t bytes, n = 0;
	struct kv_slice s;

	if (!t->range_deletes.stored_bytes)
		return 0;
	KV_TRY(read_raw(t, t->range_deletes, &raw, &bytes));
	if (t->meta.range_deletes > bytes) /* each has some bytes: no absurd allocation */
		return KV_E_bad_record;
	all = calloc((size_t)t->meta.range_deletes, sizeof(*all));
	if (!all)
		return -ENOMEM;
	s = kv_slice(raw, bytes);
	while (s.bytes) {
		if (n == t->meta.range_deletes || !kv_sst_take_rangedel(&s, &all[n]))
			return KV_E_bad_record;
		n++;
	}
	if (n != t->meta.range_deletes)
		return KV_E_bad_record;
	return kv_rangedels_new(all, n, &t->rangedels);
}

static int read_all(struct kv_sst *t)
{
	KV_TRY(read_footer(t));
	KV_TRY(read_properties(t));
	return read_rangedels(t);
}

/* All but the file. */
static void sst_free(struct kv_sst *t)
{
	kv_sst_meta_done(&t->meta);
	kv_rangedels_unref(t->rangedels);
	free(t);
}

int kv_sst_open(struct kv_store *s, struct kv_cache *cache, struct kv_env_file *file,
		kv_fileno number, uint64_t file_bytes, const struct kv_sst_counters *counters,
		struct kv_sst **out)
{
	struct kv_sst *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	t->store = s;
	t->cache = cache;
	t->file = file;
	t->number = number;
	t->file_bytes = file_bytes;
	if (counters)
		t->counters = *counters;
	err = read_all(t);
	if (err) {
		sst_free(t);
		return kv_fail(&s->msg, err, "%s/%s: the table cannot be opened: %s", s->path,
			       kv_filename(KV_FILE_TABLE, number).s, kv_err_text(err));
	}
	*out = t;
	return 0;
}

void kv_sst_close(struct kv_sst *t)
{
	if (!t)
		return;
	t->store->env->ops->close(t->file);
	sst_free(t);
}

struct kv_rangedels *kv_sst_rangedels(struct kv_sst *t)
{
	return t->rangedels;
}

const struct kv_sst_meta *kv_sst_meta(struct kv_sst *t)
{
	return &t->meta;
}

/* --- looking up ------------------------------------------------------------------------------- */

static int filter_says(struct kv_sst *t, struct kv_slice user_key, bool *out_maybe)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };

	*out_maybe = true;
	if (!t->filter.stored_bytes)
		return 0;
	KV_TRY(get_block(t, t->filter, true, false, &pin));
	*out_maybe = kv_filter_may_contain(kv_cache_entry_data(pin.entry),
					   kv_filter_hash(user_key));
	if (!*out_maybe)
		count(t->counters.filter_skips);
	return 0;
}

/* The block that holds the first entry at or after the key; stored_bytes 0: all are before it. */
static int find_block(struct kv_sst *t, struct kv_slice user_key, kv_seqno snapshot,
		      struct kv_block_handle *out)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	struct kv_block_found at;
	struct kv_block block;
	int err;

	*out = (struct kv_block_handle){ 0, 0 };
	KV_TRY(kv_sst_block(t, t->index, true, &pin));
	block = kv_sst_pin_block(&pin);
	err = kv_block_find(&block, user_key,
			    kv_ikey_pack(snapshot, KV_KIND_MAX), &at);
	if (!err && at.found)
		err = kv_sst_handle(t, at.value, out);
	return err ? kv_sst_fail(t, err, t->index, "cannot search the index") : 0;
}

/*
 * Looks for the newest version of the key that the snapshot sees. An index key is the last key of
 * its block: so it can only be the first entry at or after it in the block found.
 */
static int find_entry(struct kv_sst *t, struct kv_slice user_key, kv_seqno snapshot,
		      struct kv_found *out, struct kv_sst_pin *out_pin)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	struct kv_block_found at;
	struct kv_block_handle h;
	struct kv_block block;
	int err;

	KV_TRY(find_block(t, user_key, snapshot, &h));
	if (!h.stored_bytes)
		return 0;
	KV_TRY(kv_sst_block(t, h, true, &pin));
	block = kv_sst_pin_block(&pin);
	err = kv_block_find(&block, user_key,
			    kv_ikey_pack(snapshot, KV_KIND_MAX), &at);
	if (!err && !at.found)
		err = KV_E_bad_record; /* the index has promised something at or after it */
	if (err)
		return kv_sst_fail(t, err, h, "cannot search the block");
	if (!at.same_user_key)
		return 0;
	*out = (struct kv_found){
		.found = true,
		.kind = (enum kv_kind)(at.trailer & 0xff),
		.seqno = at.trailer >> 8,
		.value = at.value,
	};
	*out_pin = pin;
	pin.entry = NULL;
	return 0;
}

int kv_sst_get(struct kv_sst *t, struct kv_slice user_key, kv_seqno snapshot,
	       struct kv_found *out, kv_seqno *out_covered, struct kv_sst_pin *out_pin)
{
	kv_seqno covered = kv_rangedels_covering(t->rangedels, user_key, snapshot);
	struct kv_found found = { .found = false };
	bool maybe = false;

	KV_ASSERT(!out_pin->entry);
	if (t->meta.entries)
		KV_TRY(filter_says(t, user_key, &maybe));
	if (maybe)
		KV_TRY(find_entry(t, user_key, KV_MIN(snapshot, KV_SEQNO_MAX), &found, out_pin));
	*out = found;
	*out_covered = KV_MAX(*out_covered, covered);
	return 0;
}

/* Range tombstones, filter and index follow the data blocks, in this order, those that are there. */
uint64_t kv_sst_data_bytes(const struct kv_sst *t)
{
	const struct kv_block_handle *behind = t->range_deletes.stored_bytes ? &t->range_deletes :
					       t->filter.stored_bytes	     ? &t->filter :
					       t->index.stored_bytes	     ? &t->index :
										&t->properties;

	return behind->offset - sizeof(struct kv_file_header);
}

int kv_sst_bytes_before(struct kv_sst *t, struct kv_slice user_key, uint64_t *out)
{
	struct kv_block_handle h = { 0 };

	if (t->meta.entries)
		KV_TRY(find_block(t, user_key, KV_SEQNO_MAX, &h));
	*out = h.stored_bytes ? KV_MIN(h.offset - sizeof(struct kv_file_header),
				       kv_sst_data_bytes(t)) :
				kv_sst_data_bytes(t);
	return 0;
}

/* In the index each entry is a restart. */
static int sample_index(struct kv_block_cursor *c, size_t n,
			int (*fn)(void *arg, struct kv_slice user_key), void *arg)
{
	size_t count = c->restart_count, step = KV_MAX((count + n - 1) / n, (size_t)1);
	struct kv_slice key;

	for (size_t i = 0; i < count; i += step) {
		if (!kv_block_restart_key(c, (uint32_t)i, &key))
			return KV_E_bad_record;
		KV_TRY(fn(arg, key));
	}
	return 0;
}

int kv_sst_sample(struct kv_sst *t, size_t n, int (*fn)(void *arg, struct kv_slice user_key),
		  void *arg)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	struct kv_block_cursor c;
	struct kv_block block;
	int err;

	if (!t->meta.entries)
		return 0;
	KV_TRY(kv_sst_block(t, t->index, true, &pin));
	block = kv_sst_pin_block(&pin);
	kv_block_cursor_init(&c);
	err = kv_block_cursor_set(&c, &block);
	if (!err)
		err = sample_index(&c, n, fn, arg);
	kv_block_cursor_done(&c);
	return err == KV_E_bad_record ? kv_sst_fail(t, err, t->index, "cannot walk the index") : err;
}
