/* Reads a whole table and compares it with what it says of itself. */
#include "kv/filter.h"
#include "kv/sst_impl.h"

struct check {
	struct kv_sst *sst;
	struct kv_sst_meta sum;		/* of what has been met */
	struct kv_buf last_key;
	struct kv_sst_pin filter;
	uint64_t offset;		/* where the next block must begin: no gaps */
};

static void check_done(struct check *k)
{
	kv_sst_meta_done(&k->sum);
	kv_buf_done(&k->last_key);
	kv_sst_pin_done(&k->filter);
}

/* Without the cache, even if it has the block: the bytes of the file are what is in question. */
static int block_follows(struct check *k, struct kv_block_handle h, struct kv_sst_pin *out)
{
	if (h.offset != k->offset)
		return kv_sst_fail(k->sst, KV_E_bad_record, h, "there is a gap before the block");
	k->offset = kv_block_end(h);
	return kv_sst_block_anew(k->sst, h, out);
}

static const char *entry_wrong(struct check *k, struct kv_slice key)
{
	if (kv_ikey_kind(key) == KV_KIND_DELETE_RANGE)
		return "a range delete among the entries of the block";
	if (k->last_key.bytes && kv_ikey_cmp(kv_buf_slice(&k->last_key), key) >= 0)
		return "keys are not in order in the block";
	if (k->filter.entry && !kv_filter_may_contain(kv_cache_entry_data(k->filter.entry),
						      kv_filter_hash(kv_ikey_user(key))))
		return "the filter does not know a key of the block";
	return NULL;
}

static int check_data(struct check *k, struct kv_block_handle h, struct kv_slice index_key)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	KV_AUTO(kv_block_cursor_done) struct kv_block_cursor c;
	struct kv_block block;
	const char *wrong;
	int err;

	kv_block_cursor_init(&c);
	KV_TRY(block_follows(k, h, &pin));
	block = kv_block_plain(kv_cache_entry_data(pin.entry));
	err = kv_block_cursor_set(&c, &block);
	if (err)
		return kv_sst_fail(k->sst, err, h, "cannot walk the block");
	if (!kv_block_restarts_are_good(&c))
		return kv_sst_fail(k->sst, KV_E_bad_record, h, "cannot search the block");
	for (c.cursor.ops->seek_first(&c.cursor); c.valid; c.cursor.ops->next(&c.cursor)) {
		struct kv_slice key = kv_buf_slice(&c.key);

		wrong = entry_wrong(k, key);
		if (wrong)
			return kv_sst_fail(k->sst, KV_E_bad_record, h, wrong);
		err = kv_sst_meta_add(&k->sum, key, c.value);
		if (err)
			return kv_sst_fail(k->sst, err, h, "a pointer makes no sense in the block");
		KV_TRY(kv_buf_assign(&k->last_key, key));
	}
	if (c.error)
		return kv_sst_fail(k->sst, c.error, h, "cannot walk the block");
	if (!kv_slice_eq(kv_buf_slice(&k->last_key), index_key))
		return kv_sst_fail(k->sst, KV_E_bad_record, h,
				   "the index has another last key for the block");
	return 0;
}

static int check_index(struct check *k)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	KV_AUTO(kv_block_cursor_done) struct kv_block_cursor c;
	struct kv_block block;
	struct kv_sst *t = k->sst;
	struct kv_block_handle h;
	int err;

	kv_block_cursor_init(&c);
	KV_TRY(kv_sst_block_anew(t, t->index, &pin));
	block = kv_block_plain(kv_cache_entry_data(pin.entry));
	err = kv_block_cursor_set(&c, &block);
	if (err)
		return kv_sst_fail(t, err, t->index, "cannot walk the index");
	if (!kv_block_restarts_are_good(&c))
		return kv_sst_fail(t, KV_E_bad_record, t->index, "cannot search the index");
	for (c.cursor.ops->seek_first(&c.cursor); c.valid; c.cursor.ops->next(&c.cursor)) {
		err = kv_sst_handle(t, c.value, &h);
		if (err)
			return kv_sst_fail(t, err, t->index, "an entry of the index is wrong");
		KV_TRY(check_data(k, h, kv_buf_slice(&c.key)));
	}
	return c.error ? kv_sst_fail(t, c.error, t->index, "cannot walk the index") : 0;
}

static int check_rangedels(struct check *k)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	struct kv_rangedel r;
	struct kv_slice s;

	KV_TRY(block_follows(k, k->sst->range_deletes, &pin));
	s = kv_cache_entry_data(pin.entry);
	while (s.bytes) {
		if (!kv_sst_take_rangedel(&s, &r))
			return kv_sst_fail(k->sst, KV_E_bad_record, k->sst->range_deletes,
					   "a range delete makes no sense");
		KV_TRY(kv_sst_meta_add_rangedel(&k->sum, &r));
	}
	return 0;
}

static int check_follows(struct check *k, struct kv_block_handle h)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };

	return h.stored_bytes ? block_follows(k, h, &pin) : 0;
}

int kv_sst_check(struct kv_sst *t)
{
	KV_AUTO(check_done) struct check k = { .sst = t };
	struct kv_block_handle footer = { t->file_bytes - sizeof(struct kv_table_footer),
					  sizeof(struct kv_table_footer) };

	k.offset = sizeof(struct kv_file_header);
	k.sum.number = t->number;
	k.sum.file_bytes = t->file_bytes;
	if (t->filter.stored_bytes)
		KV_TRY(kv_sst_block_anew(t, t->filter, &k.filter));
	if (t->index.stored_bytes)
		KV_TRY(check_index(&k));
	if (t->range_deletes.stored_bytes)
		KV_TRY(check_rangedels(&k));
	KV_TRY(check_follows(&k, t->filter));
	KV_TRY(check_follows(&k, t->index));
	KV_TRY(check_follows(&k, t->properties));
	if (k.offset != footer.offset)
		return kv_sst_fail(t, KV_E_bad_record, footer, "there is a gap before the footer");
	if (!kv_sst_meta_eq(&k.sum, &t->meta))
		return kv_sst_fail(t, KV_E_bad_record, t->properties,
				   "the properties do not match what is in the table");
	return 0;
}
