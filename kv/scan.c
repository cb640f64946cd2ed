/*
 * The public iterator: over what a merging cursor yields (all versions of all
 * keys, newest first, hidden ones left out already) it shows the newest version
 * that the snapshot sees of each key, unless that is a delete.
 *
 * Going forward, the cursor stands on the entry that is shown. Going backward,
 * it has to pass all versions of a key, oldest first, before it is known which is shown: so
 * it stands before them, and key and value are copies.
 */
#include <stdlib.h>

#include "kv/cursor_merge.h"
#include "kv/db.h"

struct kv_iter {
	struct kv_db *db;
	struct kv_readstate *rs;
	kv_seqno snapshot;
	struct kv_buf lower, upper;
	bool has_lower, has_upper, sequential, no_cache;

	struct kv_cursor *cursor;
	struct kv_filecache_entry **pins; /* tables of level 0 */
	size_t pin_count;

	bool valid, backward;
	int error;
	struct kv_buf key;		/* backward: what is shown; forward: scratch */
	enum kv_kind kind;
	struct kv_buf stored;		/* backward: its value as the cursor had it */
	uint32_t value_bytes;
	bool fetched;
	struct kv_buf value;		/* what kv_iter_value() has fetched */
	struct kv_vlog_ahead ahead;	/* sequential: out of this */
	struct kv_buf target;		/* internal key to seek to */
};

/* --- making one --------------------------------------------------------------------------- */

struct sources {
	struct kv_merge_source *at;
	size_t count;
};

static void sources_done(struct sources *s)
{
	for (size_t i = 0; i < s->count; i++) {
		kv_cursor_free(s->at[i].cursor);
		kv_rangedels_unref(s->at[i].rangedels);
	}
	free(s->at);
}

/* Takes the reference to rangedels over. */
static int add_source(struct sources *s, struct kv_cursor *cursor, struct kv_rangedels *rangedels)
{
	if (!cursor) {
		kv_rangedels_unref(rangedels);
		return -ENOMEM;
	}
	s->at[s->count++] = (struct kv_merge_source){ cursor, rangedels };
	return 0;
}

static int add_memtable(struct sources *s, struct kv_memtable *m)
{
	struct kv_rangedels *r = NULL;

	KV_TRY(kv_memtable_rangedels(m, &r));
	return add_source(s, kv_memtable_cursor(m), r);
}

static struct kv_slice bound(bool has, const struct kv_buf *b)
{
	return has ? kv_buf_slice(b) : (struct kv_slice){ NULL, 0 };
}

/* May the table have a key within the bounds? */
static bool is_within(const struct kv_iter *it, const struct kv_table *t)
{
	struct kv_slice smallest = kv_ikey_user(kv_buf_slice(&t->meta.smallest));
	struct kv_slice largest = kv_ikey_user(kv_buf_slice(&t->meta.largest));

	return !(it->has_lower && kv_slice_cmp(largest, kv_buf_slice(&it->lower)) < 0) &&
	       !(it->has_upper && kv_slice_cmp(smallest, kv_buf_slice(&it->upper)) >= 0);
}

static int add_level0(struct kv_iter *it, const struct kv_iter_options *o, struct sources *s)
{
	const struct kv_level *l = &it->rs->version->levels[0];
	struct kv_rangedels *r;
	struct kv_sst *sst;

	if (!l->count)
		return 0;
	it->pins = calloc(l->count, sizeof(struct kv_filecache_entry *));
	if (!it->pins)
		return -ENOMEM;
	for (size_t i = 0; i < l->count; i++) {
		if (!is_within(it, l->tables[i]))
			continue;
		KV_TRY(kv_filecache_table(it->db->files, l->tables[i]->meta.number,
					  l->tables[i]->meta.file_bytes,
					  &it->pins[it->pin_count], &sst));
		it->pin_count++;
		r = kv_sst_rangedels(sst);
		KV_TRY(add_source(s, kv_sst_cursor(sst, !o->no_cache, o->sequential),
				  r ? kv_rangedels_ref(r) : NULL));
	}
	return 0;
}

static int add_levels(struct kv_iter *it, const struct kv_iter_options *o, struct sources *s)
{
	struct kv_version *v = it->rs->version;
	struct kv_slice lower = bound(it->has_lower, &it->lower);
	struct kv_slice upper = bound(it->has_upper, &it->upper);
	struct kv_rangedels *r;

	for (int i = 1; i < KV_LEVELS; i++) {
		if (!kv_level_overlaps(&v->levels[i], i, lower, upper))
			continue;
		r = NULL;
		KV_TRY(kv_version_level_rangedels(v, i, it->db->files, &r));
		KV_TRY(add_source(s,
				  kv_level_cursor(v, i, it->db->files, !o->no_cache, o->sequential),
				  r ? kv_rangedels_ref(r) : NULL));
	}
	return 0;
}

static int make_cursor(struct kv_iter *it, const struct kv_iter_options *o)
{
	KV_AUTO(sources_done) struct sources s = { 0 };
	size_t n;

	s.at = calloc(1 + it->rs->imm_count + it->rs->version->levels[0].count + KV_LEVELS,
		      sizeof(*s.at));
	if (!s.at)
		return -ENOMEM;
	KV_TRY(add_memtable(&s, it->rs->mem));
	for (uint32_t i = 0; i < it->rs->imm_count; i++)
		KV_TRY(add_memtable(&s, it->rs->imm[i]));
	KV_TRY(add_level0(it, o, &s));
	KV_TRY(add_levels(it, o, &s));
	n = s.count;
	s.count = 0;	/* taken over, whatever happens */
	it->cursor = kv_merge_cursor(s.at, n, it->snapshot);
	return it->cursor ? 0 : -ENOMEM;
}

/*
 * The read state first, then the seqno. What a compaction has dropped before
 * the read state was made was hidden by something that was published then, so the seqno sees
 * that as well. The other way round, a compaction in between could drop what the seqno sees in
 * favour of what it doesn't.
 *
 * And the read state must still be the present one when the seqno has been read. Else
 * its memtable could hold a visible pointer into a segment that is younger than its
 * version, which then would not keep the segment's file. It also makes this exactly the
 * state after batch `snapshot`, not one that lacks what went to a newer memtable.
 */
static void pin_present(struct kv_iter *it)
{
	for (;;) {
		struct kv_readstate *now;
		bool same;

		it->rs = kv_readstate_ref(it->db);
		it->snapshot = it->db->seqno_published;
		now = kv_readstate_ref(it->db);
		same = now == it->rs;
		kv_readstate_unref(now);
		if (same)
			return;
		kv_readstate_unref(it->rs);
	}
}

static int iter_init(struct kv_iter *it, const struct kv_iter_options *o)
{
	it->has_lower = o->lower.data;
	it->has_upper = o->upper.data;
	it->sequential = o->sequential;
	it->no_cache = o->no_cache;
	if (it->has_lower)
		KV_TRY(kv_buf_assign(&it->lower, o->lower));
	if (it->has_upper)
		KV_TRY(kv_buf_assign(&it->upper, o->upper));
	if (o->snap) {
		/* Compactions know of it: any later read state has all that it sees. */
		it->rs = kv_readstate_ref(it->db);
		it->snapshot = o->snap->seqno;
	} else {
		pin_present(it);
	}
	return make_cursor(it, o);
}

int kv_iter_new(struct kv_db *db, const struct kv_iter_options *options, struct kv_iter **out_iter)
{
	static const struct kv_iter_options none;
	struct kv_iter *it = calloc(1, sizeof(*it));
	int err;

	if (!it)
		return -ENOMEM;
	it->db = db;
	err = iter_init(it, options ? options : &none);
	if (err) {
		kv_iter_free(it);
		return err;
	}
	*out_iter = it;
	return 0;
}

void kv_iter_free(struct kv_iter *it)
{
	if (!it)
		return;
	kv_cursor_free(it->cursor);
	for (size_t i = 0; i < it->pin_count; i++)
		kv_filecache_unpin(it->db->files, it->pins[i]);
	free(it->pins);
	if (it->rs)
		kv_readstate_unref(it->rs);
	kv_buf_done(&it->lower);
	kv_buf_done(&it->upper);
	kv_buf_done(&it->key);
	kv_buf_done(&it->stored);
	kv_buf_done(&it->value);
	kv_vlog_ahead_done(&it->ahead);
	kv_buf_done(&it->target);
	free(it);
}

/* --- finding what to show ----------------------------------------------------------------- */

static void fail(struct kv_iter *it, int err)
{
	it->valid = false;
	it->error = err;
}

/* The cursor's internal key, split. False, and the iterator failed: no key of a point entry. */
static bool split_key(struct kv_iter *it, struct kv_slice *out_user, kv_seqno *out_seqno,
		      enum kv_kind *out_kind)
{
	struct kv_slice ikey = it->cursor->ops->key(it->cursor);

	if (!kv_ikey_is_valid(ikey) || kv_ikey_kind(ikey) == KV_KIND_DELETE_RANGE) {
		fail(it, kv_fail(&it->db->store.msg, KV_E_bad_record,
				 "an iterator has met a malformed key"));
		return false;
	}
	*out_user = kv_ikey_user(ikey);
	*out_seqno = kv_ikey_seqno(ikey);
	*out_kind = kv_ikey_kind(ikey);
	return true;
}

static void show(struct kv_iter *it, enum kv_kind kind, struct kv_slice stored)
{
	int err = kv_value_bytes(kind, stored, &it->value_bytes);

	if (err) {
		fail(it, kv_fail(&it->db->store.msg, err,
				 "an iterator has met a malformed pointer"));
		return;
	}
	it->kind = kind;
	it->fetched = false;
	it->valid = true;
}

/* Shows the first visible entry from the cursor on; with skip, none of the key in it->key. */
static void find_forward(struct kv_iter *it, bool skip)
{
	struct kv_cursor *c = it->cursor;
	struct kv_slice user;
	enum kv_kind kind;
	kv_seqno seqno;
	int err;

	it->backward = false;
	it->valid = false;
	for (; c->ops->valid(c); c->ops->next(c)) {
		if (!split_key(it, &user, &seqno, &kind))
			return;
		if (it->has_upper && kv_slice_cmp(user, kv_buf_slice(&it->upper)) >= 0)
			return;
		if (seqno > it->snapshot || (skip && kv_slice_eq(user, kv_buf_slice(&it->key))))
			continue;
		if (kind != KV_KIND_DELETE) {
			show(it, kind, c->ops->value(c));
			return;
		}
		/* What is older of this key is hidden by the delete. */
		err = kv_buf_assign(&it->key, user);
		if (err) {
			fail(it, err);
			return;
		}
		skip = true;
	}
	it->error = c->ops->error(c);
}

/* Shows the last visible entry up to the cursor, and leaves the cursor before all versions of it. */
static void find_backward(struct kv_iter *it)
{
	struct kv_cursor *c = it->cursor;
	bool any = false;	/* the newest version so far of it->key is no delete */
	struct kv_slice user;
	enum kv_kind kind, any_kind = KV_KIND_DELETE;
	kv_seqno seqno;
	int err;

	it->backward = true;
	it->valid = false;
	for (; c->ops->valid(c); c->ops->prev(c)) {
		if (!split_key(it, &user, &seqno, &kind))
			return;
		if (it->has_lower && kv_slice_cmp(user, kv_buf_slice(&it->lower)) < 0)
			break;
		if (any && !kv_slice_eq(user, kv_buf_slice(&it->key)))
			break;
		if (seqno > it->snapshot)
			continue;
		any = kind != KV_KIND_DELETE;
		any_kind = kind;
		err = any ? kv_buf_assign(&it->key, user) : 0;
		if (!err && any)
			err = kv_buf_assign(&it->stored, c->ops->value(c));
		if (err) {
			fail(it, err);
			return;
		}
	}
	/* After an error something newer than what was found may be missing. */
	it->error = c->ops->valid(c) ? 0 : c->ops->error(c);
	if (any && !it->error)
		show(it, any_kind, kv_buf_slice(&it->stored));
}

/* --- moving ------------------------------------------------------------------------------- */

struct timing {
	struct kv_db *db;	/* NULL: it is not timed */
	uint64_t start_ns;
};

/* Before a move that doesn't depend on where the iterator is: an old error is forgotten. */
static struct timing begin_seek(struct kv_iter *it)
{
	struct kv_db *db = it->db;
	bool timed = kv_is_drawn(atomic_fetch_add_explicit(&db->counters.seeks, 1,
							   memory_order_relaxed), KV_TIMED_seek);

	it->valid = false;
	it->error = 0;
	return timed ? (struct timing){ db, kv_now_ns(db) } : (struct timing){ 0 };
}

static void end_seek(struct timing t)
{
	if (t.db)
		kv_latency_add(t.db, KV_LATENCY_seek, t.start_ns);
}

static bool make_target(struct kv_iter *it, struct kv_slice user, kv_seqno seqno,
			enum kv_kind kind)
{
	int err = kv_ikey_make(&it->target, user, seqno, kind);

	if (err)
		fail(it, err);
	return !err;
}

/* To the last entry of any key before this one: nothing sorts before (user, KV_SEQNO_MAX). */
static void seek_before(struct kv_iter *it, struct kv_slice user)
{
	if (!make_target(it, user, KV_SEQNO_MAX, KV_KIND_MAX))
		return;
	it->cursor->ops->seek_prev(it->cursor, kv_buf_slice(&it->target));
	find_backward(it);
}

static void seek(struct kv_iter *it, struct kv_slice key)
{
	if (it->has_lower && kv_slice_cmp(key, kv_buf_slice(&it->lower)) < 0)
		key = kv_buf_slice(&it->lower);
	if (!make_target(it, key, it->snapshot, KV_KIND_MAX))
		return;
	it->cursor->ops->seek(it->cursor, kv_buf_slice(&it->target));
	find_forward(it, false);
}

static void seek_prev(struct kv_iter *it, struct kv_slice key)
{
	if (it->has_upper && kv_slice_cmp(key, kv_buf_slice(&it->upper)) >= 0) {
		seek_before(it, kv_buf_slice(&it->upper));
		return;
	}
	/* Nothing of the key sorts behind (key, 0). */
	if (!make_target(it, key, 0, (enum kv_kind)0))
		return;
	it->cursor->ops->seek_prev(it->cursor, kv_buf_slice(&it->target));
	find_backward(it);
}

static void seek_first(struct kv_iter *it)
{
	if (it->has_lower) {
		seek(it, kv_buf_slice(&it->lower));
		return;
	}
	it->cursor->ops->seek_first(it->cursor);
	find_forward(it, false);
}

static void seek_last(struct kv_iter *it)
{
	if (it->has_upper) {
		seek_before(it, kv_buf_slice(&it->upper));
		return;
	}
	it->cursor->ops->seek_last(it->cursor);
	find_backward(it);
}

void kv_iter_seek(struct kv_iter *it, struct kv_slice key)
{
	struct timing t = begin_seek(it);

	seek(it, key);
	end_seek(t);
}

void kv_iter_seek_prev(struct kv_iter *it, struct kv_slice key)
{
	struct timing t = begin_seek(it);

	seek_prev(it, key);
	end_seek(t);
}

void kv_iter_seek_first(struct kv_iter *it)
{
	struct timing t = begin_seek(it);

	seek_first(it);
	end_seek(t);
}

void kv_iter_seek_last(struct kv_iter *it)
{
	struct timing t = begin_seek(it);

	seek_last(it);
	end_seek(t);
}

void kv_iter_next(struct kv_iter *it)
{
	int err;

	KV_ASSERT(it->valid);
	if (it->backward) {
		/* The cursor stands before the key: on, behind all that is of it. */
		if (!make_target(it, kv_buf_slice(&it->key), 0, (enum kv_kind)0))
			return;
		it->cursor->ops->seek(it->cursor, kv_buf_slice(&it->target));
		find_forward(it, false);
		return;
	}
	err = kv_buf_assign(&it->key, kv_iter_key(it));
	if (err) {
		fail(it, err);
		return;
	}
	it->cursor->ops->next(it->cursor);
	find_forward(it, true);
}

void kv_iter_prev(struct kv_iter *it)
{
	int err;

	KV_ASSERT(it->valid);
	if (it->backward) {
		find_backward(it);
		return;
	}
	err = kv_buf_assign(&it->key, kv_iter_key(it));
	if (err) {
		fail(it, err);
		return;
	}
	seek_before(it, kv_buf_slice(&it->key));
}

/* --- what is shown ------------------------------------------------------------------------ */

bool kv_iter_valid(const struct kv_iter *it)
{
	return it->valid;
}

int kv_iter_error(const struct kv_iter *it)
{
	return it->error;
}

struct kv_slice kv_iter_key(const struct kv_iter *it)
{
	KV_ASSERT(it->valid);
	return it->backward ? kv_buf_slice(&it->key) :
			      kv_ikey_user(it->cursor->ops->key(it->cursor));
}

uint32_t kv_iter_value_bytes(const struct kv_iter *it)
{
	KV_ASSERT(it->valid);
	return it->value_bytes;
}

int kv_iter_value(struct kv_iter *it, struct kv_slice *out_value)
{
	struct kv_slice stored;

	KV_ASSERT(it->valid);
	stored = it->backward ? kv_buf_slice(&it->stored) : it->cursor->ops->value(it->cursor);
	if (it->kind == KV_KIND_PUT) {
		*out_value = stored;
		return 0;
	}
	if (!it->fetched) {
		kv_buf_reset(&it->value);
		KV_TRY(kv_value_fetch(it->db, it->kind, stored,
				      it->sequential ? &it->ahead : NULL, !it->no_cache,
				      &it->value));
		it->fetched = true;
	}
	*out_value = kv_buf_slice(&it->value);
	return 0;
}
