/*
 * Walking through a sorted table: a cursor over the index, and one over the data block that it
 * points to. The data cursor is valid, or the whole one is not.
 */
#include <stdlib.h>

#include "kv/assert.h"
#include "kv/sst_impl.h"

#define READAHEAD_BYTES (256 * KV_KIB)

struct sst_cursor {
	struct kv_cursor cursor;
	struct kv_sst *sst;
	bool fill_cache, sequential;
	struct kv_sst_pin index_pin, data_pin;	/* hold what the cursors below look at */
	struct kv_block_cursor index, data;
	struct kv_block_handle at;		/* the block under data_pin */
	uint64_t advised_end;			/* the system has been told to read up to here */
	bool valid;
	int error;
};

static struct sst_cursor *to_sst(struct kv_cursor *c)
{
	return kv_container_of(c, struct sst_cursor, cursor);
}

static const struct sst_cursor *to_sst_const(const struct kv_cursor *c)
{
	return kv_container_of(c, const struct sst_cursor, cursor);
}

static void fail(struct sst_cursor *c, int err)
{
	c->valid = false;
	c->error = err;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* The system reads on while the blocks before are being used. */
static void read_ahead(struct sst_cursor *c, struct kv_block_handle h)
{
	uint64_t end = kv_block_end(h);

	if (!c->sequential || end + READAHEAD_BYTES / 2 <= c->advised_end)
		return;
	c->advised_end = KV_MAX(end, c->advised_end) + READAHEAD_BYTES;
	c->sst->store->env->ops->advise(c->sst->file, h.offset, c->advised_end - h.offset, true);
}

/* Lets go of the data block, and of the position. */
static void leave_block(struct sst_cursor *c)
{
	static const struct kv_block empty = { .bytes = { "\0\0\0", 4 } }; /* no entries */

	c->valid = false;
	c->at = (struct kv_block_handle){ 0, 0 };
	KV_ASSERT(kv_block_cursor_set(&c->data, &empty) == 0);
	kv_sst_pin_done(&c->data_pin);
}

/* Makes the block that the index is at the one that data looks at. False: the cursor has failed. */
static bool enter_block(struct sst_cursor *c)
{
	struct kv_sst_pin pin = { 0 };
	struct kv_block_handle h;
	struct kv_block block;
	int err;

	err = kv_sst_handle(c->sst, c->index.value, &h);
	if (err) {
		fail(c, kv_sst_fail(c->sst, err, c->sst->index, "an entry of the index is wrong"));
		return false;
	}
	if (h.offset == c->at.offset && h.stored_bytes == c->at.stored_bytes)
		return true;
	err = 0;
	if (!kv_sst_block_cached(c->sst, h, &pin)) {
		read_ahead(c, h);
		err = kv_sst_block(c->sst, h, c->fill_cache, &pin);
	}
	if (err) {
		fail(c, err);
		return false;
	}
	leave_block(c);
	block = kv_sst_pin_block(&pin);
	err = kv_block_cursor_set(&c->data, &block);
	if (err) {
		leave_block(c);
		kv_sst_pin_done(&pin);
		fail(c, kv_sst_fail(c->sst, err, h, "cannot walk the block"));
		return false;
	}
	c->data_pin = pin;
	c->at = h;
	return true;
}

/* After the index was moved: is it at a block? If not (the end, or damage), no entry is valid. */
static bool index_is_at_block(struct sst_cursor *c)
{
	if (c->index.error)
		fail(c, kv_sst_fail(c->sst, c->index.error, c->sst->index, "cannot walk the index"));
	else if (c->index.valid)
		return enter_block(c);
	c->valid = false;
	return false;
}

/*
 * After data was moved: true when that has settled where the cursor is. False: the block has
 * nothing (more) in the direction, look into the next one.
 */
static bool data_is_settled(struct sst_cursor *c)
{
	if (c->data.error)
		fail(c, kv_sst_fail(c->sst, c->data.error, c->at, "cannot walk the block"));
	else
		c->valid = c->data.valid;
	return c->valid || c->error;
}

static void forward(struct sst_cursor *c)
{
	while (!data_is_settled(c)) {
		c->index.cursor.ops->next(&c->index.cursor);
		if (!index_is_at_block(c))
			return;
		c->data.cursor.ops->seek_first(&c->data.cursor);
	}
}

static void backward(struct sst_cursor *c)
{
	while (!data_is_settled(c)) {
		c->index.cursor.ops->prev(&c->index.cursor);
		if (!index_is_at_block(c))
			return;
		c->data.cursor.ops->seek_last(&c->data.cursor);
	}
}

/* --- moving ----------------------------------------------------------------------------------- */

/* Before a seek. False: there is nothing to seek in, or the index cannot be read. */
static bool start(struct sst_cursor *c)
{
	struct kv_block block;
	int err;

	c->valid = false;
	c->error = 0;
	if (!c->sst->meta.entries)
		return false;
	if (c->index_pin.entry)
		return true;
	err = kv_sst_block(c->sst, c->sst->index, true, &c->index_pin);
	if (err) {
		fail(c, err);
		return false;
	}
	block = kv_sst_pin_block(&c->index_pin);
	err = kv_block_cursor_set(&c->index, &block);
	if (err) {
		kv_sst_pin_done(&c->index_pin);
		fail(c, kv_sst_fail(c->sst, err, c->sst->index, "cannot walk the index"));
		return false;
	}
	return true;
}

static void sst_seek_first(struct kv_cursor *cursor)
{
	struct sst_cursor *c = to_sst(cursor);

	if (!start(c))
		return;
	c->index.cursor.ops->seek_first(&c->index.cursor);
	if (!index_is_at_block(c))
		return;
	c->data.cursor.ops->seek_first(&c->data.cursor);
	forward(c);
}

static void sst_seek_last(struct kv_cursor *cursor)
{
	struct sst_cursor *c = to_sst(cursor);

	if (!start(c))
		return;
	c->index.cursor.ops->seek_last(&c->index.cursor);
	if (!index_is_at_block(c))
		return;
	c->data.cursor.ops->seek_last(&c->data.cursor);
	backward(c);
}

static void sst_seek(struct kv_cursor *cursor, struct kv_slice ikey)
{
	struct sst_cursor *c = to_sst(cursor);

	if (!start(c))
		return;
	c->index.cursor.ops->seek(&c->index.cursor, ikey);
	if (!index_is_at_block(c))
		return;
	c->data.cursor.ops->seek(&c->data.cursor, ikey);
	forward(c);
}

static void sst_seek_prev(struct kv_cursor *cursor, struct kv_slice ikey)
{
	struct sst_cursor *c = to_sst(cursor);

	if (!start(c))
		return;
	/* The first block that ends at or after ikey; beyond the last one, all are before it. */
	c->index.cursor.ops->seek(&c->index.cursor, ikey);
	if (!c->index.valid && !c->index.error) {
		sst_seek_last(cursor);
		return;
	}
	if (!index_is_at_block(c))
		return;
	c->data.cursor.ops->seek_prev(&c->data.cursor, ikey);
	backward(c);
}

static void sst_next(struct kv_cursor *cursor)
{
	struct sst_cursor *c = to_sst(cursor);

	KV_ASSERT(c->valid);
	c->data.cursor.ops->next(&c->data.cursor);
	forward(c);
}

static void sst_prev(struct kv_cursor *cursor)
{
	struct sst_cursor *c = to_sst(cursor);

	KV_ASSERT(c->valid);
	c->data.cursor.ops->prev(&c->data.cursor);
	backward(c);
}

/* --- the cursor ------------------------------------------------------------------------------- */

static bool sst_valid(const struct kv_cursor *cursor)
{
	return to_sst_const(cursor)->valid;
}

static int sst_error(const struct kv_cursor *cursor)
{
	return to_sst_const(cursor)->error;
}

static struct kv_slice sst_key(const struct kv_cursor *cursor)
{
	return kv_buf_slice(&to_sst_const(cursor)->data.key);
}

static struct kv_slice sst_value(const struct kv_cursor *cursor)
{
	return to_sst_const(cursor)->data.value;
}

static void sst_free(struct kv_cursor *cursor)
{
	struct sst_cursor *c = to_sst(cursor);

	kv_block_cursor_done(&c->index);
	kv_block_cursor_done(&c->data);
	kv_sst_pin_done(&c->index_pin);
	kv_sst_pin_done(&c->data_pin);
	free(c);
}

struct kv_cursor *kv_sst_cursor(struct kv_sst *t, bool fill_cache, bool sequential)
{
	static const struct kv_cursor_ops ops = {
		.free = sst_free,
		.seek_first = sst_seek_first,
		.seek_last = sst_seek_last,
		.seek = sst_seek,
		.seek_prev = sst_seek_prev,
		.next = sst_next,
		.prev = sst_prev,
		.valid = sst_valid,
		.error = sst_error,
		.key = sst_key,
		.value = sst_value,
	};
	struct sst_cursor *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cursor.ops = &ops;
	c->sst = t;
	c->fill_cache = fill_cache;
	c->sequential = sequential;
	c->index_pin.cache = c->data_pin.cache = t->cache;
	kv_block_cursor_init(&c->index);
	kv_block_cursor_init(&c->data);
	return &c->cursor;
}
