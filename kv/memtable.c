#include "kv/memtable.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kv/assert.h"
#include "kv/lock.h"

/* A range tombstone as it was added; the keys lie behind it in the arena. */
struct raw_rangedel {
	struct raw_rangedel *older;
	struct kv_rangedel r;
};

struct kv_memtable {
	_Atomic uint32_t refs;
	kv_fileno journal_no;
	struct kv_cache *cache;		/* NULL: not charged */
	struct kv_arena arena;
	struct kv_skiplist list;	/* point entries */
	kv_fileno last_segment_no;	/* the writer's own: the last one remembered */
	size_t charged_bytes;		/* the writer's own: of the arena */

	/* The writer writes, all read. */
	_Atomic uint64_t bytes, bulk_bytes, count, delete_count;
	_Atomic uint32_t rangedel_count;

	struct kv_mutex mu;		/* guards to the end */
	struct raw_rangedel *newest;
	struct kv_rangedels *view;	/* the oldest view_count tombstones, fragmented */
	uint32_t view_count;
	kv_fileno *segments;		/* sorted */
	size_t segment_count, segment_max;
};

struct kv_memtable *kv_memtable_new(kv_fileno journal_no)
{
	struct kv_memtable *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	atomic_init(&m->refs, 1);
	m->journal_no = journal_no;
	kv_arena_init(&m->arena);
	kv_mutex_init(&m->mu);
	if (kv_skiplist_init(&m->list, &m->arena)) {
		kv_memtable_unref(m);
		return NULL;
	}
	return m;
}

/* How much it takes has changed. */
static void charge(struct kv_memtable *m, size_t before, size_t after)
{
	if (m->cache && before != after)
		kv_cache_charge(m->cache, (int64_t)after - (int64_t)before);
}

static void charge_arena(struct kv_memtable *m)
{
	size_t bytes = atomic_load_explicit(&m->arena.bytes, memory_order_relaxed);

	charge(m, m->charged_bytes, bytes);
	m->charged_bytes = bytes;
}

static size_t view_bytes(const struct kv_rangedels *view)
{
	return view ? view->memory_bytes : 0;
}

struct kv_memtable *kv_memtable_new_charged(kv_fileno journal_no, struct kv_cache *c)
{
	struct kv_memtable *m = kv_memtable_new(journal_no);

	if (m) {
		m->cache = c;
		charge_arena(m);
	}
	return m;
}

struct kv_memtable *kv_memtable_ref(struct kv_memtable *m)
{
	atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	return m;
}

void kv_memtable_unref(struct kv_memtable *m)
{
	if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
		return;
	charge(m, m->charged_bytes + view_bytes(m->view), 0);
	kv_rangedels_unref(m->view);
	free(m->segments);
	kv_arena_done(&m->arena);
	kv_mutex_done(&m->mu);
	free(m);
}

/* --- segments ---------------------------------------------------------------------------- */

/* Index of the segment, or where it would have to be. */
static size_t find_segment(const struct kv_memtable *m, kv_fileno segment_no)
{
	size_t lo = 0, hi = m->segment_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (m->segments[mid] < segment_no)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int remember_segment_locked(struct kv_memtable *m, kv_fileno segment_no)
	KV_REQUIRES(&m->mu)
{
	size_t i = find_segment(m, segment_no);

	if (i < m->segment_count && m->segments[i] == segment_no)
		return 0;
	if (m->segment_count == m->segment_max) {
		size_t max = m->segment_max ? m->segment_max * 2 : 8;
		kv_fileno *segments = realloc(m->segments, max * sizeof(*segments));

		if (!segments)
			return -ENOMEM;
		m->segments = segments;
		m->segment_max = max;
	}
	memmove(m->segments + i + 1, m->segments + i,
		(m->segment_count - i) * sizeof(*m->segments));
	m->segments[i] = segment_no;
	m->segment_count++;
	return 0;
}

static int remember_segment(struct kv_memtable *m, kv_fileno segment_no)
{
	int err;

	if (m->last_segment_no == segment_no)
		return 0;
	kv_mutex_lock(&m->mu);
	err = remember_segment_locked(m, segment_no);
	kv_mutex_unlock(&m->mu);
	if (!err)
		m->last_segment_no = segment_no;
	return err;
}

int kv_memtable_each_segment(const struct kv_memtable *m, kv_memtable_segment_fn *fn, void *arg)
{
	for (size_t i = 0; i < m->segment_count; i++)
		KV_TRY(fn(arg, m->segments[i]));
	return 0;
}

bool kv_memtable_refers(const struct kv_memtable *m, kv_fileno segment_no)
{
	struct kv_mutex *mu = (struct kv_mutex *)(uintptr_t)&m->mu;
	size_t i;
	bool refers;

	kv_mutex_lock(mu);
	i = find_segment(m, segment_no);
	refers = i < m->segment_count && m->segments[i] == segment_no;
	kv_mutex_unlock(mu);
	return refers;
}

/* --- adding -------------------------------------------------------------------------------- */

static void publish_bytes(struct kv_memtable *m)
{
	uint64_t unused = (uint64_t)(m->arena.end - m->arena.at);

	atomic_store_explicit(&m->bytes, m->arena.bytes - unused, memory_order_relaxed);
	charge_arena(m);
}

static int add_rangedel(struct kv_memtable *m, kv_seqno seqno, struct kv_slice begin,
			struct kv_slice end)
{
	struct raw_rangedel *raw;
	uint8_t *at;

	if (kv_slice_cmp(begin, end) >= 0)
		return 0;
	raw = kv_arena_alloc(&m->arena, sizeof(*raw) + begin.bytes + end.bytes);
	if (!raw)
		return -ENOMEM;
	at = (uint8_t *)(raw + 1);
	if (begin.bytes)
		memcpy(at, begin.data, begin.bytes);
	memcpy(at + begin.bytes, end.data, end.bytes);
	raw->r.begin = kv_slice(at, begin.bytes);
	raw->r.end = kv_slice(at + begin.bytes, end.bytes);
	raw->r.seqno = seqno;

	kv_mutex_lock(&m->mu);
	raw->older = m->newest;
	m->newest = raw;
	atomic_fetch_add_explicit(&m->rangedel_count, 1, memory_order_release);
	kv_mutex_unlock(&m->mu);
	return 0;
}

static int add_pointer(struct kv_memtable *m, kv_seqno seqno, struct kv_slice key,
		       struct kv_slice value)
{
	struct kv_vptr_disk p;

	KV_ASSERT(value.bytes == sizeof(p));
	memcpy(&p, value.data, sizeof(p));
	/* Before the entry can be seen; if adding fails, one segment too many is kept: no harm. */
	KV_TRY(remember_segment(m, kv_le64_get(p.segment_no)));
	KV_TRY(kv_skiplist_insert(&m->list, key, seqno, KV_KIND_PUT_PTR, value));
	atomic_fetch_add_explicit(&m->bulk_bytes, kv_le32_get(p.stored_bytes),
				  memory_order_relaxed);
	return 0;
}

int kv_memtable_add(struct kv_memtable *m, kv_seqno seqno, enum kv_kind kind,
		    struct kv_slice key, struct kv_slice value)
{
	switch (kind) {
	case KV_KIND_DELETE:
	case KV_KIND_PUT:
	case KV_KIND_PUT_PACKED:
		KV_TRY(kv_skiplist_insert(&m->list, key, seqno, kind, value));
		break;
	case KV_KIND_PUT_PTR:
		KV_TRY(add_pointer(m, seqno, key, value));
		break;
	case KV_KIND_DELETE_RANGE:
		KV_TRY(add_rangedel(m, seqno, key, value));
		break;
	}
	atomic_fetch_add_explicit(&m->count, 1, memory_order_relaxed);
	if (kind == KV_KIND_DELETE)
		atomic_fetch_add_explicit(&m->delete_count, 1, memory_order_relaxed);
	publish_bytes(m);
	return 0;
}

/* --- range tombstones --------------------------------------------------------------------- */

static uint32_t rangedel_count_locked(struct kv_memtable *m) KV_REQUIRES(&m->mu)
{
	return atomic_load_explicit(&m->rangedel_count, memory_order_relaxed);
}

static int refresh_view_locked(struct kv_memtable *m) KV_REQUIRES(&m->mu)
{
	uint32_t count = rangedel_count_locked(m), n = 0;
	struct kv_rangedel *all;
	struct kv_rangedels *view;
	int err;

	if (m->view_count == count)
		return 0;
	all = calloc(count, sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (struct raw_rangedel *raw = m->newest; raw; raw = raw->older)
		all[n++] = raw->r;
	KV_ASSERT(n == count);
	err = kv_rangedels_new(all, count, &view);
	free(all);
	if (err)
		return err;
	charge(m, view_bytes(m->view), view_bytes(view));
	kv_rangedels_unref(m->view);
	m->view = view;
	m->view_count = count;
	return 0;
}

/*
 * Deletes of files and look-ups take turns, and fragmenting costs more than
 * comparing: so the newest tombstones are looked at one by one, and the view
 * is made anew when there are many of them.
 */
static kv_seqno covering_locked(struct kv_memtable *m, struct kv_slice user_key, kv_seqno snapshot)
	KV_REQUIRES(&m->mu)
{
	uint32_t count = rangedel_count_locked(m);
	struct raw_rangedel *raw = m->newest;
	kv_seqno covered;

	if (count - m->view_count > 32 + count / 32)
		(void)refresh_view_locked(m);	/* without memory, one by one */
	covered = kv_rangedels_covering(m->view, user_key, snapshot);
	for (uint32_t n = count - m->view_count; n > 0; n--, raw = raw->older)
		if (raw->r.seqno > covered && raw->r.seqno <= snapshot &&
		    kv_slice_cmp(raw->r.begin, user_key) <= 0 &&
		    kv_slice_cmp(user_key, raw->r.end) < 0)
			covered = raw->r.seqno;
	return covered;
}

int kv_memtable_rangedels(struct kv_memtable *m, struct kv_rangedels **out)
{
	int err;

	if (!kv_memtable_rangedel_count(m)) {
		*out = NULL;
		return 0;
	}
	kv_mutex_lock(&m->mu);
	err = refresh_view_locked(m);
	if (!err)
		*out = kv_rangedels_ref(m->view);
	kv_mutex_unlock(&m->mu);
	return err;
}

/* --- reading --------------------------------------------------------------------------------- */

int kv_memtable_get(struct kv_memtable *m, struct kv_slice user_key, kv_seqno snapshot,
		    struct kv_found *out, kv_seqno *out_covered)
{
	struct kv_skipnode *n =
		kv_skiplist_seek(&m->list, user_key, kv_ikey_pack(snapshot, KV_KIND_MAX));
	struct kv_found found = { .found = false };
	kv_seqno covered;

	if (n && kv_slice_eq(kv_ikey_user(kv_skipnode_key(n)), user_key)) {
		found.found = true;
		found.kind = kv_ikey_kind(kv_skipnode_key(n));
		found.seqno = kv_ikey_seqno(kv_skipnode_key(n));
		found.value = kv_skipnode_value(n);
	}
	if (kv_memtable_rangedel_count(m)) {
		kv_mutex_lock(&m->mu);
		covered = covering_locked(m, user_key, snapshot);
		kv_mutex_unlock(&m->mu);
		*out_covered = KV_MAX(*out_covered, covered);
	}
	*out = found;
	return 0;
}

uint64_t kv_memtable_bytes(const struct kv_memtable *m)
{
	return atomic_load_explicit(&m->bytes, memory_order_relaxed);
}

uint64_t kv_memtable_bulk_bytes(const struct kv_memtable *m)
{
	return atomic_load_explicit(&m->bulk_bytes, memory_order_relaxed);
}

uint64_t kv_memtable_approximate_bytes(const struct kv_memtable *m, struct kv_slice begin,
				       struct kv_slice end)
{
	uint64_t trailer = kv_ikey_pack(KV_SEQNO_MAX, KV_KIND_MAX);
	uint64_t all = atomic_load_explicit(&m->list.count, memory_order_relaxed);
	uint64_t from = begin.data ? kv_skiplist_rank(&m->list, begin, trailer) : 0;
	uint64_t to = end.data ? kv_skiplist_rank(&m->list, end, trailer) : all;

	if (from >= to)
		return 0;
	return (uint64_t)((double)(kv_memtable_bytes(m) + kv_memtable_bulk_bytes(m)) *
			  (double)(to - from) / (double)KV_MAX(all, to));
}

uint64_t kv_memtable_count(const struct kv_memtable *m)
{
	return atomic_load_explicit(&m->count, memory_order_relaxed);
}

uint64_t kv_memtable_delete_count(const struct kv_memtable *m)
{
	return atomic_load_explicit(&m->delete_count, memory_order_relaxed);
}

uint32_t kv_memtable_rangedel_count(const struct kv_memtable *m)
{
	return atomic_load_explicit(&m->rangedel_count, memory_order_acquire);
}

kv_fileno kv_memtable_journal_no(const struct kv_memtable *m)
{
	return m->journal_no;
}

/* --- cursor ------------------------------------------------------------------------------------ */

struct memtable_cursor {
	struct kv_cursor base;
	struct kv_memtable *m;
	struct kv_skipnode *at;		/* NULL: not valid */
};

static struct memtable_cursor *cast(const struct kv_cursor *c)
{
	return kv_container_of((uintptr_t)c, struct memtable_cursor, base);
}

static void cursor_free(struct kv_cursor *c)
{
	kv_memtable_unref(cast(c)->m);
	free(cast(c));
}

static void cursor_seek_first(struct kv_cursor *c)
{
	cast(c)->at = kv_skiplist_first(&cast(c)->m->list);
}

static void cursor_seek_last(struct kv_cursor *c)
{
	cast(c)->at = kv_skiplist_last(&cast(c)->m->list);
}

static void cursor_seek(struct kv_cursor *c, struct kv_slice ikey)
{
	cast(c)->at = kv_skiplist_seek(&cast(c)->m->list, kv_ikey_user(ikey),
				       kv_ikey_trailer(ikey));
}

static void cursor_seek_prev(struct kv_cursor *c, struct kv_slice ikey)
{
	cast(c)->at = kv_skiplist_seek_prev(&cast(c)->m->list, kv_ikey_user(ikey),
					    kv_ikey_trailer(ikey));
}

static void cursor_next(struct kv_cursor *c)
{
	KV_ASSERT(cast(c)->at);
	cast(c)->at = kv_skipnode_next(cast(c)->at);
}

static void cursor_prev(struct kv_cursor *c)
{
	struct kv_slice key;

	KV_ASSERT(cast(c)->at);
	key = kv_skipnode_key(cast(c)->at);
	/* Nodes know no way back. The next larger trailer comes right before this one. */
	cast(c)->at = kv_skiplist_seek_prev(&cast(c)->m->list, kv_ikey_user(key),
					    kv_ikey_trailer(key) + 1);
}

static bool cursor_valid(const struct kv_cursor *c)
{
	return cast(c)->at;
}

static int cursor_error(const struct kv_cursor *c)
{
	(void)c;
	return 0;
}

static struct kv_slice cursor_key(const struct kv_cursor *c)
{
	KV_ASSERT(cast(c)->at);
	return kv_skipnode_key(cast(c)->at);
}

static struct kv_slice cursor_value(const struct kv_cursor *c)
{
	KV_ASSERT(cast(c)->at);
	return kv_skipnode_value(cast(c)->at);
}

static const struct kv_cursor_ops cursor_ops = {
	.free = cursor_free,
	.seek_first = cursor_seek_first,
	.seek_last = cursor_seek_last,
	.seek = cursor_seek,
	.seek_prev = cursor_seek_prev,
	.next = cursor_next,
	.prev = cursor_prev,
	.valid = cursor_valid,
	.error = cursor_error,
	.key = cursor_key,
	.value = cursor_value,
};

struct kv_cursor *kv_memtable_cursor(struct kv_memtable *m)
{
	struct memtable_cursor *c = malloc(sizeof(*c));

	if (!c)
		return NULL;
	c->base.ops = &cursor_ops;
	c->m = kv_memtable_ref(m);
	c->at = NULL;
	return &c->base;
}
