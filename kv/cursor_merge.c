#include "kv/cursor_merge.h"

#include <stdlib.h>

#include "kv/assert.h"

/* --- tables of a level in a row --------------------------------------------------------- */

struct level_cursor {
	struct kv_cursor base;
	struct kv_version *version;
	const struct kv_level *level;
	struct kv_filecache *files;
	bool fill_cache, sequential;

	/* The open table; without one the cursor is not valid. */
	struct kv_cursor *table;
	struct kv_filecache_entry *pin;
	size_t at;
	int error;
};

static struct level_cursor *level_cast(const struct kv_cursor *c)
{
	return kv_container_of((uintptr_t)c, struct level_cursor, base);
}

static void level_close_table(struct level_cursor *c)
{
	if (!c->table)
		return;
	kv_cursor_free(c->table);
	kv_filecache_unpin(c->files, c->pin);
	c->table = NULL;
	c->pin = NULL;
}

static void level_fail(struct level_cursor *c, int err)
{
	c->error = err;
	level_close_table(c);
}

/* False, with no table open, when it fails. */
static bool level_open_table(struct level_cursor *c, size_t i)
{
	const struct kv_sst_meta *meta = &c->level->tables[i]->meta;
	struct kv_sst *sst;
	int err;

	if (c->table && c->at == i)
		return true;
	level_close_table(c);
	err = kv_filecache_table(c->files, meta->number, meta->file_bytes, &c->pin, &sst);
	if (err) {
		c->error = err;
		return false;
	}
	c->table = kv_sst_cursor(sst, c->fill_cache, c->sequential);
	if (!c->table) {
		kv_filecache_unpin(c->files, c->pin);
		c->pin = NULL;
		c->error = -ENOMEM;
		return false;
	}
	c->at = i;
	return true;
}

/* Goes on to the first entry of a later table when the open one has no more. */
static void level_settle_forward(struct level_cursor *c)
{
	while (c->table && !c->table->ops->valid(c->table)) {
		int err = c->table->ops->error(c->table);

		if (err)
			level_fail(c, err);
		else if (c->at + 1 == c->level->count)
			level_close_table(c);
		else if (level_open_table(c, c->at + 1))
			c->table->ops->seek_first(c->table);
	}
}

static void level_settle_backward(struct level_cursor *c)
{
	while (c->table && !c->table->ops->valid(c->table)) {
		int err = c->table->ops->error(c->table);

		if (err)
			level_fail(c, err);
		else if (!c->at)
			level_close_table(c);
		else if (level_open_table(c, c->at - 1))
			c->table->ops->seek_last(c->table);
	}
}

static void level_free(struct kv_cursor *base)
{
	struct level_cursor *c = level_cast(base);

	level_close_table(c);
	kv_version_unref(c->version);
	free(c);
}

static void level_seek_first(struct kv_cursor *base)
{
	struct level_cursor *c = level_cast(base);

	c->error = 0;
	if (!c->level->count || !level_open_table(c, 0))
		return;
	c->table->ops->seek_first(c->table);
	level_settle_forward(c);
}

static void level_seek_last(struct kv_cursor *base)
{
	struct level_cursor *c = level_cast(base);

	c->error = 0;
	if (!c->level->count || !level_open_table(c, c->level->count - 1))
		return;
	c->table->ops->seek_last(c->table);
	level_settle_backward(c);
}

/*
 * How many tables begin at or before ikey (by_largest false), or end before it (true). Not
 * kv_level_find(), which knows user keys only: a range tombstone may end one table at the very
 * user key with which the next one begins.
 */
static size_t level_count_before(const struct kv_level *l, struct kv_slice ikey, bool by_largest)
{
	size_t lo = 0, hi = l->count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct kv_sst_meta *meta = &l->tables[mid]->meta;

		if (by_largest ? kv_ikey_cmp(kv_buf_slice(&meta->largest), ikey) < 0 :
				 kv_ikey_cmp(kv_buf_slice(&meta->smallest), ikey) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void level_seek(struct kv_cursor *base, struct kv_slice ikey)
{
	struct level_cursor *c = level_cast(base);
	size_t i = level_count_before(c->level, ikey, true);

	c->error = 0;
	if (i == c->level->count) {
		level_close_table(c);
	} else if (level_open_table(c, i)) {
		c->table->ops->seek(c->table, ikey);
		level_settle_forward(c);
	}
}

static void level_seek_prev(struct kv_cursor *base, struct kv_slice ikey)
{
	struct level_cursor *c = level_cast(base);
	size_t n = level_count_before(c->level, ikey, false);

	c->error = 0;
	if (!n) {
		level_close_table(c);
	} else if (level_open_table(c, n - 1)) {
		c->table->ops->seek_prev(c->table, ikey);
		level_settle_backward(c);
	}
}

static void level_next(struct kv_cursor *base)
{
	struct level_cursor *c = level_cast(base);

	KV_ASSERT(c->table);
	c->table->ops->next(c->table);
	level_settle_forward(c);
}

static void level_prev(struct kv_cursor *base)
{
	struct level_cursor *c = level_cast(base);

	KV_ASSERT(c->table);
	c->table->ops->prev(c->table);
	level_settle_backward(c);
}

/* Between calls an open table is positioned at an entry. */
static bool level_valid(const struct kv_cursor *base)
{
	return level_cast(base)->table;
}

static int level_error(const struct kv_cursor *base)
{
	return level_cast(base)->error;
}

static struct kv_slice level_key(const struct kv_cursor *base)
{
	const struct level_cursor *c = level_cast(base);

	KV_ASSERT(c->table);
	return c->table->ops->key(c->table);
}

static struct kv_slice level_value(const struct kv_cursor *base)
{
	const struct level_cursor *c = level_cast(base);

	KV_ASSERT(c->table);
	return c->table->ops->value(c->table);
}

static const struct kv_cursor_ops level_ops = {
	.free = level_free,
	.seek_first = level_seek_first,
	.seek_last = level_seek_last,
	.seek = level_seek,
	.seek_prev = level_seek_prev,
	.next = level_next,
	.prev = level_prev,
	.valid = level_valid,
	.error = level_error,
	.key = level_key,
	.value = level_value,
};

struct kv_cursor *kv_level_cursor(struct kv_version *v, int level, struct kv_filecache *fc,
				  bool fill_cache, bool sequential)
{
	struct level_cursor *c = calloc(1, sizeof(*c));

	KV_ASSERT(level > 0 && level < KV_LEVELS);
	if (!c)
		return NULL;
	c->base.ops = &level_ops;
	c->version = kv_version_ref(v);
	c->level = &v->levels[level];
	c->files = fc;
	c->fill_cache = fill_cache;
	c->sequential = sequential;
	return &c->base;
}

/* --- sources merged ------------------------------------------------------------------------ */

struct source {
	struct kv_cursor *cursor;
	struct kv_rangedels *rangedels;
	struct kv_slice key;		/* of the cursor; while in the heap */
	struct kv_rangedel span;	/* last answer of the tombstones, good for the keys in it */
	bool span_known;
};

/*
 * The sources that are valid form a heap, the next one in the current direction
 * on top. In the other direction they would have to stand elsewhere, so a turn
 * seeks them all anew.
 *
 * Range tombstones are looked at for the entry on top only. So sources may stand
 * at covered entries, but never on top when a call returns.
 */
struct merge_cursor {
	struct kv_cursor base;
	kv_seqno apply_below;		/* 0 also when no source has tombstones */
	bool forward;
	int error;
	struct kv_buf seek_key, seek_target, skip_target;
	size_t count;
	size_t heap_count;		/* 0: not valid */
	struct source **heap;
	struct source sources[];	/* newest first; the heap follows */
};

static struct merge_cursor *merge_cast(const struct kv_cursor *c)
{
	return kv_container_of((uintptr_t)c, struct merge_cursor, base);
}

static void merge_fail(struct merge_cursor *m, int err)
{
	m->error = err;
	m->heap_count = 0;
}

static bool comes_first(const struct merge_cursor *m, const struct source *a,
			const struct source *b)
{
	int c = kv_ikey_cmp(a->key, b->key);

	return m->forward ? c < 0 : c > 0;
}

static void sift_down(struct merge_cursor *m, size_t i)
{
	struct source *s = m->heap[i];

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= m->heap_count)
			break;
		if (child + 1 < m->heap_count &&
		    comes_first(m, m->heap[child + 1], m->heap[child]))
			child++;
		if (!comes_first(m, m->heap[child], s))
			break;
		m->heap[i] = m->heap[child];
		i = child;
	}
	m->heap[i] = s;
}

/* After all sources were sought. */
static void make_heap(struct merge_cursor *m)
{
	m->heap_count = 0;
	for (struct source *s = m->sources; s < m->sources + m->count; s++) {
		int err;

		if (s->cursor->ops->valid(s->cursor)) {
			s->key = s->cursor->ops->key(s->cursor);
			m->heap[m->heap_count++] = s;
			continue;
		}
		err = s->cursor->ops->error(s->cursor);
		if (err) {
			merge_fail(m, err);
			return;
		}
	}
	for (size_t i = m->heap_count / 2; i-- > 0;)
		sift_down(m, i);
}

/* After the source on top has moved. */
static void restore_heap(struct merge_cursor *m)
{
	struct source *s = m->heap[0];
	int err;

	if (s->cursor->ops->valid(s->cursor)) {
		s->key = s->cursor->ops->key(s->cursor);
	} else {
		err = s->cursor->ops->error(s->cursor);
		if (err) {
			merge_fail(m, err);
			return;
		}
		m->heap[0] = m->heap[--m->heap_count];
	}
	if (m->heap_count)
		sift_down(m, 0);
}

static void step_top(struct merge_cursor *m)
{
	struct kv_cursor *c = m->heap[0]->cursor;

	if (m->forward)
		c->ops->next(c);
	else
		c->ops->prev(c);
	restore_heap(m);
}

/* Seqno of the newest tombstone of s that applies and covers the key; s->span is its span. */
static kv_seqno cover(const struct merge_cursor *m, struct source *s, struct kv_slice user_key)
{
	const struct kv_rangedel *span = &s->span;

	if (!s->span_known || (span->begin.data && kv_slice_cmp(user_key, span->begin) < 0) ||
	    (span->end.data && kv_slice_cmp(user_key, span->end) >= 0)) {
		kv_rangedels_cover(s->rangedels, user_key, m->apply_below, &s->span);
		s->span_known = true;
	}
	return s->span.seqno;
}

/* Where a source has to be sought to get past a span: behind it forward, before it backward. */
static int past_span(const struct merge_cursor *m, const struct kv_rangedel *span,
		     struct kv_buf *out)
{
	/*
	 * The first internal key that a user key can have: no entry has it, so that
	 * also seek_prev ends before the user key.
	 */
	return kv_ikey_make(out, m->forward ? span->end : span->begin, KV_SEQNO_MAX, KV_KIND_MAX);
}

static void move_to(const struct merge_cursor *m, struct source *s, struct kv_slice ikey)
{
	if (m->forward)
		s->cursor->ops->seek(s->cursor, ikey);
	else
		s->cursor->ops->seek_prev(s->cursor, ikey);
}

/*
 * If a tombstone covers the entry on top, moves its source on and returns true. What a
 * newer source's tombstone covers is older than it in this source, as far as the
 * tombstone goes; of its own source's, some entries may be newer.
 */
static bool pass_covered(struct merge_cursor *m)
{
	struct source *top = m->heap[0];
	struct kv_slice user_key = kv_ikey_user(top->key);
	kv_seqno seqno = kv_ikey_seqno(top->key);
	int err;

	for (struct source *s = m->sources; s <= top; s++) {
		if (!s->rangedels || cover(m, s, user_key) <= seqno)
			continue;
		if (s == top) {
			step_top(m);
			return true;
		}
		err = past_span(m, &s->span, &m->skip_target);
		if (err) {
			merge_fail(m, err);
			return true;
		}
		move_to(m, top, kv_buf_slice(&m->skip_target));
		restore_heap(m);
		return true;
	}
	return false;
}

static void settle(struct merge_cursor *m)
{
	if (m->apply_below)
		while (m->heap_count && pass_covered(m))
			;
}

/*
 * All sources to m->seek_key, or right past what a newer source's tombstone covers
 * there: an older source then need not read what will be passed over anyway.
 */
static int seek_sources(struct merge_cursor *m)
{
	struct kv_slice user_key = kv_ikey_user(kv_buf_slice(&m->seek_key));
	struct kv_slice target = kv_buf_slice(&m->seek_key);

	for (struct source *s = m->sources; s < m->sources + m->count; s++) {
		int c;

		move_to(m, s, target);
		if (!m->apply_below || !s->rangedels || !cover(m, s, user_key))
			continue;
		c = kv_slice_cmp(m->forward ? s->span.end : s->span.begin, kv_ikey_user(target));
		if (m->forward ? c <= 0 : c > 0)
			continue;
		KV_TRY(past_span(m, &s->span, &m->seek_target));
		target = kv_buf_slice(&m->seek_target);
	}
	return 0;
}

static void merge_seek_to(struct merge_cursor *m, struct kv_slice ikey, bool forward)
{
	/* A copy: the caller's may be the key of a source that is about to move. */
	int err = kv_buf_assign(&m->seek_key, ikey);

	m->error = 0;
	m->forward = forward;
	if (!err)
		err = seek_sources(m);
	if (err) {
		merge_fail(m, err);
		return;
	}
	make_heap(m);
	settle(m);
}

static void merge_step(struct merge_cursor *m, bool forward)
{
	KV_ASSERT(m->heap_count);
	if (m->forward != forward) {
		merge_seek_to(m, m->heap[0]->key, forward);
		/* The entry where it stood; only an error or damage makes it another. */
		if (!m->heap_count || !kv_slice_eq(m->heap[0]->key, kv_buf_slice(&m->seek_key)))
			return;
	}
	step_top(m);
	settle(m);
}

static void merge_free(struct kv_cursor *c)
{
	struct merge_cursor *m = merge_cast(c);

	for (size_t i = 0; i < m->count; i++) {
		kv_cursor_free(m->sources[i].cursor);
		kv_rangedels_unref(m->sources[i].rangedels);
	}
	kv_buf_done(&m->seek_key);
	kv_buf_done(&m->seek_target);
	kv_buf_done(&m->skip_target);
	free(m);
}

static void merge_seek_first(struct kv_cursor *c)
{
	struct merge_cursor *m = merge_cast(c);

	m->error = 0;
	m->forward = true;
	for (size_t i = 0; i < m->count; i++)
		m->sources[i].cursor->ops->seek_first(m->sources[i].cursor);
	make_heap(m);
	settle(m);
}

static void merge_seek_last(struct kv_cursor *c)
{
	struct merge_cursor *m = merge_cast(c);

	m->error = 0;
	m->forward = false;
	for (size_t i = 0; i < m->count; i++)
		m->sources[i].cursor->ops->seek_last(m->sources[i].cursor);
	make_heap(m);
	settle(m);
}

static void merge_seek(struct kv_cursor *c, struct kv_slice ikey)
{
	merge_seek_to(merge_cast(c), ikey, true);
}

static void merge_seek_prev(struct kv_cursor *c, struct kv_slice ikey)
{
	merge_seek_to(merge_cast(c), ikey, false);
}

static void merge_next(struct kv_cursor *c)
{
	merge_step(merge_cast(c), true);
}

static void merge_prev(struct kv_cursor *c)
{
	merge_step(merge_cast(c), false);
}

static bool merge_valid(const struct kv_cursor *c)
{
	return merge_cast(c)->heap_count;
}

static int merge_error(const struct kv_cursor *c)
{
	return merge_cast(c)->error;
}

static struct kv_slice merge_key(const struct kv_cursor *c)
{
	KV_ASSERT(merge_cast(c)->heap_count);
	return merge_cast(c)->heap[0]->key;
}

static struct kv_slice merge_value(const struct kv_cursor *c)
{
	struct kv_cursor *top;

	KV_ASSERT(merge_cast(c)->heap_count);
	top = merge_cast(c)->heap[0]->cursor;
	return top->ops->value(top);
}

static const struct kv_cursor_ops merge_ops = {
	.free = merge_free,
	.seek_first = merge_seek_first,
	.seek_last = merge_seek_last,
	.seek = merge_seek,
	.seek_prev = merge_seek_prev,
	.next = merge_next,
	.prev = merge_prev,
	.valid = merge_valid,
	.error = merge_error,
	.key = merge_key,
	.value = merge_value,
};

static void free_sources(struct kv_merge_source *sources, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		kv_cursor_free(sources[i].cursor);
		kv_rangedels_unref(sources[i].rangedels);
	}
}

struct kv_cursor *kv_merge_cursor(struct kv_merge_source *sources, size_t n,
				  kv_seqno apply_below)
{
	bool any_rangedels = false, any_missing = false;
	struct merge_cursor *m = NULL;

	for (size_t i = 0; i < n; i++) {
		any_rangedels |= sources[i].rangedels != NULL;
		any_missing |= !sources[i].cursor;
	}
	if (n == 1 && !any_rangedels)
		return sources[0].cursor;
	if (!any_missing)
		m = calloc(1, sizeof(*m) + n * (sizeof(m->sources[0]) + sizeof(m->heap[0])));
	if (!m) {
		free_sources(sources, n);
		return NULL;
	}
	m->base.ops = &merge_ops;
	m->apply_below = any_rangedels ? apply_below : 0;
	m->forward = true;
	m->count = n;
	m->heap = (struct source **)(void *)(m->sources + n);
	for (size_t i = 0; i < n; i++) {
		m->sources[i].cursor = sources[i].cursor;
		m->sources[i].rangedels = sources[i].rangedels;
	}
	return &m->base;
}
