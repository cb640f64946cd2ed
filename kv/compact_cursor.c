/*
 * The inputs of a compaction as one cursor: the tables of one level, which don't overlap, one behind
 * the other; and those rows merged.
 */
#include "kv/compact_impl.h"

#include <stdlib.h>

#include "kv/cursor_merge.h"

/* --- the inputs of one level, one behind the other ---------------------------------------- */

struct run_cursor {
	struct kv_cursor cursor;
	struct kv_filecache *files;
	struct kv_table *const *tables;
	size_t count, at;
	struct kv_filecache_entry *pin;
	struct kv_cursor *table;	/* over tables[at]; NULL at the end */
	int error;
};

static struct run_cursor *run_of(const struct kv_cursor *c)
{
	return kv_container_of(c, struct run_cursor, cursor);
}

static void run_close_table(struct run_cursor *r)
{
	kv_cursor_free(r->table);
	r->table = NULL;
	if (r->pin)
		kv_filecache_unpin(r->files, r->pin);
	r->pin = NULL;
}

static void run_free(struct kv_cursor *c)
{
	run_close_table(run_of(c));
	free(run_of(c));
}

/* False: it has failed. */
static bool run_open_table(struct run_cursor *r)
{
	const struct kv_sst_meta *m = &r->tables[r->at]->meta;
	struct kv_sst *sst;

	r->error = kv_filecache_table(r->files, m->number, m->file_bytes, &r->pin, &sst);
	if (r->error)
		return false;
	r->table = kv_sst_cursor(sst, false, true);
	if (!r->table)
		r->error = -ENOMEM;
	return r->table;
}

/* Opens tables until one has an entry. */
static void run_settle(struct run_cursor *r)
{
	while (!r->error) {
		if (r->table && r->table->ops->valid(r->table))
			return;
		if (r->table) {
			r->error = r->table->ops->error(r->table);
			run_close_table(r);
			r->at++;
			continue;
		}
		if (r->at == r->count)
			return;
		if (run_open_table(r))
			r->table->ops->seek_first(r->table);
	}
}

static void run_seek_first(struct kv_cursor *c)
{
	struct run_cursor *r = run_of(c);

	run_close_table(r);
	r->error = 0;
	r->at = 0;
	run_settle(r);
}

static void run_seek(struct kv_cursor *c, struct kv_slice ikey)
{
	struct run_cursor *r = run_of(c);

	run_close_table(r);
	r->error = 0;
	r->at = 0;
	while (r->at < r->count &&
	       kv_ikey_cmp(kv_buf_slice(&r->tables[r->at]->meta.largest), ikey) < 0)
		r->at++;
	if (r->at < r->count && run_open_table(r))
		r->table->ops->seek(r->table, ikey);
	run_settle(r);
}

static void run_next(struct kv_cursor *c)
{
	struct run_cursor *r = run_of(c);

	r->table->ops->next(r->table);
	run_settle(r);
}

static bool run_valid(const struct kv_cursor *c)
{
	return !run_of(c)->error && run_of(c)->table;
}

static int run_error(const struct kv_cursor *c)
{
	return run_of(c)->error;
}

static struct kv_slice run_key(const struct kv_cursor *c)
{
	return run_of(c)->table->ops->key(run_of(c)->table);
}

static struct kv_slice run_value(const struct kv_cursor *c)
{
	return run_of(c)->table->ops->value(run_of(c)->table);
}

/* A compaction goes forward only. */
static void run_no_backward(struct kv_cursor *c)
{
	(void)c;
	KV_ASSERT(!"a compaction goes forward only");
}

static void run_no_seek_prev(struct kv_cursor *c, struct kv_slice ikey)
{
	(void)ikey;
	run_no_backward(c);
}

static const struct kv_cursor_ops run_ops = {
	.free = run_free,
	.seek_first = run_seek_first,
	.seek_last = run_no_backward,
	.seek = run_seek,
	.seek_prev = run_no_seek_prev,
	.next = run_next,
	.prev = run_no_backward,
	.valid = run_valid,
	.error = run_error,
	.key = run_key,
	.value = run_value,
};

static struct kv_cursor *run_cursor(struct kv_filecache *files, struct kv_table *const *tables,
				    size_t count)
{
	struct run_cursor *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->cursor.ops = &run_ops;
	r->files = files;
	r->tables = tables;
	r->count = count;
	return &r->cursor;
}

/* --- all of them ------------------------------------------------------------------------------ */

/* Sources newest first: tables of level 0 one by one; those of another level in a row. */
struct kv_cursor *kv_job_cursor(struct kv_job *j)
{
	size_t n = 0, run = j->pick.level ? KV_MAX(j->read_upper, (size_t)1) : 1;
	struct kv_merge_source *sources;
	struct kv_cursor *c;

	sources = calloc(j->read_upper + 2, sizeof(*sources));
	if (!sources)
		return NULL;
	for (size_t i = 0; i < j->read_upper; i += run)
		sources[n++].cursor = run_cursor(j->db->files, j->read + i, run);
	if (j->read_lower)
		sources[n++].cursor =
			run_cursor(j->db->files, j->read + j->read_upper, j->read_lower);
	/* One that could not be made is a failure there, which frees the others. */
	c = kv_merge_cursor(sources, n, 0);
	free(sources);
	return c;
}
