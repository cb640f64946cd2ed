/*
 * Sources are arrays here, and so are tables: this file stands in for the version, the
 * file cache and the table reader, to know what is opened and to fail on demand.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "kv/assert.h"
#include "kv/cursor_merge.h"
#include "tests/unit/unit.h"

/* --- random --------------------------------------------------------------------------------- */

static void seed_random(void)
{
	const char *s = getenv("SEED");
	unsigned int seed = s ? (unsigned int)strtoul(s, NULL, 0) : 4711;

	printf("SEED=%u\n", seed);
	srandom(seed);
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)random() % n;
}

/* --- entries ------------------------------------------------------------------------------- */

/* User keys in order: 00, 00 07, 01, 01 07, ...; also short ones, that others begin with. */
enum { KEYS = 64, ENTRIES = 400 };

struct entry {
	uint32_t key;			/* 0 .. KEYS - 1 */
	kv_seqno seqno;
	uint8_t bytes[2 + KV_IKEY_TRAILER_BYTES];
};

static struct kv_slice user_key(uint32_t key)
{
	static uint8_t bytes[2 * KEYS][2];

	KV_ASSERT(key < 2 * KEYS);
	bytes[key][0] = (uint8_t)(key / 2);
	bytes[key][1] = 7;
	return kv_slice(bytes[key], 1 + key % 2);
}

static struct kv_slice ikey_of(const struct entry *e)
{
	return kv_slice(e->bytes, 1 + e->key % 2 + KV_IKEY_TRAILER_BYTES);
}

static struct entry make_entry(uint32_t key, kv_seqno seqno, enum kv_kind kind)
{
	struct entry e = { .key = key, .seqno = seqno };
	le64 trailer = kv_le64(kv_ikey_pack(seqno, kind));

	memcpy(e.bytes, user_key(key).data, user_key(key).bytes);
	memcpy(e.bytes + user_key(key).bytes, &trailer, sizeof(trailer));
	return e;
}

static int compare_entries(const struct entry *a, const struct entry *b)
{
	return kv_ikey_cmp(ikey_of(a), ikey_of(b));
}

/* --- a cursor over an array ------------------------------------------------------------------ */

struct array {
	struct entry entries[ENTRIES];
	size_t count;
	uint32_t moves;			/* all moves of its cursors */
	uint32_t fail_at;		/* that move fails; 0: none */
};

struct array_cursor {
	struct kv_cursor base;
	struct array *a;
	size_t at;			/* a->count: not valid */
	int error;
};

static uint32_t cursors_open;

static struct array_cursor *cast(const struct kv_cursor *c)
{
	return kv_container_of((uintptr_t)c, struct array_cursor, base);
}

/* at may be -1, which is SIZE_MAX. */
static void move(struct array_cursor *c, size_t at)
{
	c->at = at < c->a->count ? at : c->a->count;
	c->error = 0;
	if (++c->a->moves == c->a->fail_at) {
		c->at = c->a->count;
		c->error = -EIO;
	}
}

static void array_free(struct kv_cursor *c)
{
	cursors_open--;
	free(cast(c));
}

static void array_seek_first(struct kv_cursor *c)
{
	move(cast(c), 0);
}

static void array_seek_last(struct kv_cursor *c)
{
	move(cast(c), cast(c)->a->count - 1);
}

static void array_seek(struct kv_cursor *c, struct kv_slice ikey)
{
	size_t i = 0;

	while (i < cast(c)->a->count && kv_ikey_cmp(ikey_of(&cast(c)->a->entries[i]), ikey) < 0)
		i++;
	move(cast(c), i);
}

static void array_seek_prev(struct kv_cursor *c, struct kv_slice ikey)
{
	size_t i = 0;

	while (i < cast(c)->a->count && kv_ikey_cmp(ikey_of(&cast(c)->a->entries[i]), ikey) <= 0)
		i++;
	move(cast(c), i - 1);
}

static bool array_valid(const struct kv_cursor *c)
{
	return cast(c)->at < cast(c)->a->count;
}

static void array_next(struct kv_cursor *c)
{
	KV_ASSERT(array_valid(c));
	move(cast(c), cast(c)->at + 1);
}

static void array_prev(struct kv_cursor *c)
{
	KV_ASSERT(array_valid(c));
	move(cast(c), cast(c)->at - 1);
}

static int array_error(const struct kv_cursor *c)
{
	return cast(c)->error;
}

static struct kv_slice array_key(const struct kv_cursor *c)
{
	KV_ASSERT(array_valid(c));
	return ikey_of(&cast(c)->a->entries[cast(c)->at]);
}

/* The value tells which entry it belongs to. */
static struct kv_slice array_value(const struct kv_cursor *c)
{
	KV_ASSERT(array_valid(c));
	return kv_slice(&cast(c)->a->entries[cast(c)->at].seqno, sizeof(kv_seqno));
}

static const struct kv_cursor_ops array_ops = {
	.free = array_free,
	.seek_first = array_seek_first,
	.seek_last = array_seek_last,
	.seek = array_seek,
	.seek_prev = array_seek_prev,
	.next = array_next,
	.prev = array_prev,
	.valid = array_valid,
	.error = array_error,
	.key = array_key,
	.value = array_value,
};

static struct kv_cursor *array_cursor(struct array *a)
{
	struct array_cursor *c = calloc(1, sizeof(*c));

	ck_assert_ptr_nonnull(c);
	c->base.ops = &array_ops;
	c->a = a;
	c->at = a->count;
	cursors_open++;
	return &c->base;
}

static void array_add(struct array *a, uint32_t key, kv_seqno seqno)
{
	struct entry e = make_entry(key, seqno, KV_KIND_PUT);
	size_t i = a->count++;

	KV_ASSERT(i < ENTRIES);
	for (; i && compare_entries(&a->entries[i - 1], &e) > 0; i--)
		a->entries[i] = a->entries[i - 1];
	a->entries[i] = e;
}

static void array_reset(struct array *a)
{
	a->count = 0;
	a->moves = a->fail_at = 0;
}

/* --- what stands in for version, file cache and tables ----------------------------------------- */

struct kv_sst {
	struct array a;
};

static struct kv_sst tables[8];
static uint32_t tables_pinned, tables_opened, open_fails_at;

struct kv_version *kv_version_ref(struct kv_version *v)
{
	atomic_fetch_add(&v->refs, 1);
	return v;
}

void kv_version_unref(struct kv_version *v)
{
	atomic_fetch_sub(&v->refs, 1);
}

int kv_filecache_table(struct kv_filecache *fc, kv_fileno number, uint64_t file_bytes,
		       struct kv_filecache_entry **out_pin, struct kv_sst **out)
{
	(void)fc;
	ck_assert_uint_eq(file_bytes, number * 10);
	if (++tables_opened == open_fails_at)
		return KV_E_missing_file;
	*out_pin = (struct kv_filecache_entry *)&tables[number];
	*out = &tables[number];
	tables_pinned++;
	ck_assert_uint_eq(tables_pinned, 1);
	return 0;
}

void kv_filecache_unpin(struct kv_filecache *fc, struct kv_filecache_entry *e)
{
	(void)fc;
	ck_assert(e);
	tables_pinned--;
}

struct kv_cursor *kv_sst_cursor(struct kv_sst *t, bool fill_cache, bool sequential)
{
	ck_assert(fill_cache && !sequential);
	return array_cursor(&t->a);
}

/* --- any cursor against the sorted array of what it must show ------------------------------------ */

struct model {
	struct array *want;
	size_t at;			/* want->count: not valid */
};

static bool agrees(const struct kv_cursor *c, const struct model *m)
{
	const struct entry *e = &m->want->entries[m->at];
	kv_seqno value;

	if (c->ops->error(c))
		return false;
	if (m->at == m->want->count)
		return !c->ops->valid(c);
	if (!c->ops->valid(c) || !kv_slice_eq(c->ops->key(c), ikey_of(e)))
		return false;
	memcpy(&value, c->ops->value(c).data, sizeof(value));
	return value == e->seqno;
}

static void model_move(struct model *m, size_t at)
{
	m->at = at < m->want->count ? at : m->want->count;
}

static void random_seek(struct kv_cursor *c, struct model *m, kv_seqno seqno_max)
{
	struct entry e = make_entry(below(KEYS), below((uint32_t)seqno_max + 2), KV_KIND_PUT);
	struct kv_slice to = ikey_of(&e);
	size_t i = 0;

	/* To the key where it stands, too: a slice that moving makes stale. */
	if (c->ops->valid(c) && !below(4)) {
		to = c->ops->key(c);
		e = m->want->entries[m->at];
	}
	while (i < m->want->count && compare_entries(&m->want->entries[i], &e) < 0)
		i++;
	if (below(2)) {
		c->ops->seek(c, to);
	} else {
		c->ops->seek_prev(c, to);
		if (i == m->want->count || compare_entries(&m->want->entries[i], &e))
			i--;
	}
	model_move(m, i);
}

static void walk(struct kv_cursor *c, struct array *want, kv_seqno seqno_max, int moves)
{
	struct model m = { want, want->count };

	ck_assert(agrees(c, &m));
	while (moves-- > 0) {
		uint32_t what = below(20);

		if (what == 0) {
			c->ops->seek_first(c);
			model_move(&m, 0);
		} else if (what == 1) {
			c->ops->seek_last(c);
			model_move(&m, want->count - 1);
		} else if (what <= 5 || m.at == want->count) {
			random_seek(c, &m, seqno_max);
		} else if (what <= 12) {
			c->ops->next(c);
			model_move(&m, m.at + 1);
		} else {
			c->ops->prev(c);
			model_move(&m, m.at - 1);
		}
		ck_assert(agrees(c, &m));
	}
}

/* --- merge -------------------------------------------------------------------------------------------- */

enum { SOURCES = 6, DELS = 40 };

/*
 * A history of puts and range deletes, each in one of the sources: never in an
 * older one than what came before it for any of its keys.
 */
struct history {
	size_t sources;
	struct array arrays[SOURCES];
	struct kv_rangedel dels[SOURCES][DELS];
	size_t del_count[SOURCES];
	struct array all;
	struct kv_rangedel all_dels[DELS];
	size_t all_del_count;
	kv_seqno seqno_last;
};

static void add_rangedel(struct history *h, uint32_t *oldest)
{
	uint32_t begin = below(KEYS), end = begin + 1 + below(below(4) ? 4 : KEYS - begin), s;
	struct kv_rangedel r;

	end = KV_MIN(end, (uint32_t)KEYS);
	s = oldest[begin];
	for (uint32_t k = begin; k < end; k++)
		s = KV_MIN(s, oldest[k]);
	if (s && !below(3))
		s -= below(s + 1);
	for (uint32_t k = begin; k < end; k++)
		oldest[k] = s;
	r = (struct kv_rangedel){ user_key(begin), user_key(end), h->seqno_last };
	h->dels[s][h->del_count[s]++] = r;
	h->all_dels[h->all_del_count++] = r;
}

static void make_history(struct history *h)
{
	uint32_t oldest[KEYS], dels_in_100 = below(20), ops = below(ENTRIES);

	h->sources = 1 + below(SOURCES);
	for (uint32_t k = 0; k < KEYS; k++)
		oldest[k] = (uint32_t)h->sources - 1;
	for (size_t s = 0; s < SOURCES; s++) {
		array_reset(&h->arrays[s]);
		h->del_count[s] = 0;
	}
	array_reset(&h->all);
	h->all_del_count = 0;
	for (h->seqno_last = 1; h->seqno_last <= ops; h->seqno_last++) {
		uint32_t key = below(KEYS);

		if (below(100) < dels_in_100 && h->all_del_count < DELS) {
			add_rangedel(h, oldest);
			continue;
		}
		if (oldest[key] && !below(3))
			oldest[key] -= 1 + below(oldest[key]);
		array_add(&h->arrays[oldest[key]], key, h->seqno_last);
		array_add(&h->all, key, h->seqno_last);
	}
}

static void make_expectation(const struct history *h, kv_seqno apply_below, struct array *want)
{
	array_reset(want);
	for (size_t i = 0; i < h->all.count; i++) {
		const struct entry *e = &h->all.entries[i];
		bool covered = false;

		for (size_t d = 0; d < h->all_del_count; d++) {
			const struct kv_rangedel *r = &h->all_dels[d];

			covered |= e->seqno < r->seqno && r->seqno <= apply_below &&
				   kv_slice_cmp(r->begin, user_key(e->key)) <= 0 &&
				   kv_slice_cmp(user_key(e->key), r->end) < 0;
		}
		if (!covered)
			want->entries[want->count++] = *e;
	}
}

static struct kv_cursor *merge_history(struct history *h, kv_seqno apply_below)
{
	struct kv_merge_source sources[SOURCES];
	struct kv_cursor *c;

	for (size_t s = 0; s < h->sources; s++) {
		ck_ok(kv_rangedels_new(h->dels[s], h->del_count[s], &sources[s].rangedels));
		sources[s].cursor = array_cursor(&h->arrays[s]);
	}
	c = kv_merge_cursor(sources, h->sources, apply_below);
	ck_assert_ptr_nonnull(c);
	return c;
}

UNIT(merge_agrees_with_a_sorted_array)
{
	static struct history h;
	static struct array want;

	seed_random();
	for (int round = 0; round < 300; round++) {
		kv_seqno apply_below;
		struct kv_cursor *c;

		make_history(&h);
		apply_below = below(4) ? below((uint32_t)h.seqno_last + 2) : 0;
		make_expectation(&h, apply_below, &want);
		c = merge_history(&h, apply_below);
		walk(c, &want, h.seqno_last, 100);
		kv_cursor_free(c);
		ck_assert_uint_eq(cursors_open, 0);
	}
}
UNIT_END

UNIT(merge_of_nothing_is_empty)
{
	struct kv_cursor *c = kv_merge_cursor(NULL, 0, 5);
	struct entry e = make_entry(1, 1, KV_KIND_PUT);

	ck_assert_ptr_nonnull(c);
	ck_assert(!c->ops->valid(c));
	c->ops->seek_first(c);
	ck_assert(!c->ops->valid(c));
	c->ops->seek_last(c);
	ck_assert(!c->ops->valid(c));
	c->ops->seek(c, ikey_of(&e));
	ck_assert(!c->ops->valid(c));
	c->ops->seek_prev(c, ikey_of(&e));
	ck_assert(!c->ops->valid(c));
	ck_ok(c->ops->error(c));
	kv_cursor_free(c);
}
UNIT_END

/* A new source of two entries around a tombstone, over an old one that it covers. */
static struct kv_cursor *covered_pair(struct array *fresh, struct array *old)
{
	const struct kv_rangedel del = { user_key(2), user_key(KEYS - 2), 1000 };
	struct kv_merge_source sources[2] = { { NULL, NULL }, { NULL, NULL } };

	array_reset(fresh);
	array_reset(old);
	array_add(fresh, 0, 2000);
	array_add(fresh, KEYS - 1, 2001);
	for (uint32_t k = 0; k < KEYS; k++)
		array_add(old, k, 1 + k);
	sources[0].cursor = array_cursor(fresh);
	ck_ok(kv_rangedels_new(&del, 1, &sources[0].rangedels));
	sources[1].cursor = array_cursor(old);
	return kv_merge_cursor(sources, 2, KV_SEQNO_MAX);
}

UNIT(covered_entries_are_jumped_over)
{
	static struct array fresh, old;
	struct kv_cursor *c = covered_pair(&fresh, &old);
	struct entry middle = make_entry(KEYS / 2, 500, KV_KIND_PUT);
	uint32_t seen = 0;

	for (c->ops->seek_first(c); c->ops->valid(c); c->ops->next(c))
		seen++;
	ck_assert_uint_eq(seen, 6);
	ck_assert_uint_lt(old.moves, 8);
	for (old.moves = seen = 0, c->ops->seek_last(c); c->ops->valid(c); c->ops->prev(c))
		seen++;
	ck_assert_uint_eq(seen, 6);
	ck_assert_uint_lt(old.moves, 8);

	/* A seek into the covered range goes to its end at once. */
	old.moves = 0;
	c->ops->seek(c, ikey_of(&middle));
	ck_assert_uint_eq(kv_ikey_seqno(c->ops->key(c)), KEYS - 1);
	ck_assert_uint_eq(old.moves, 1);
	c->ops->seek_prev(c, ikey_of(&middle));
	ck_assert_uint_eq(kv_ikey_seqno(c->ops->key(c)), 2);
	ck_assert_uint_eq(old.moves, 2);
	kv_cursor_free(c);
}
UNIT_END

static uint32_t count_all(struct kv_cursor *c, bool forward)
{
	uint32_t n = 0;

	if (forward)
		for (c->ops->seek_first(c); c->ops->valid(c); c->ops->next(c))
			n++;
	else
		for (c->ops->seek_last(c); c->ops->valid(c); c->ops->prev(c))
			n++;
	return n;
}

/* Whichever move of whichever source fails: the error is told, and gone with the next seek. */
UNIT(merge_keeps_an_error_until_the_next_seek)
{
	static struct array fresh, old;
	struct kv_cursor *c = covered_pair(&fresh, &old);

	for (int both = 0; both < 2; both++)
		for (int forward = 0; forward < 2; forward++)
			for (uint32_t at = 1;; at++) {
				struct array *a = both ? &fresh : &old;
				bool reached;

				fresh.moves = old.moves = 0;
				a->fail_at = at;
				count_all(c, forward);
				reached = a->moves >= at;
				a->fail_at = 0;
				ck_assert_int_eq(c->ops->error(c), reached ? -EIO : 0);
				ck_assert(!c->ops->valid(c));
				ck_assert_uint_eq(count_all(c, !forward), 6);
				ck_ok(c->ops->error(c));
				if (!reached)
					break;
			}
	kv_cursor_free(c);
}
UNIT_END

UNIT(merge_of_a_missing_cursor_frees_the_others)
{
	static struct array a;
	const struct kv_rangedel del = { user_key(2), user_key(3), 1 };
	struct kv_merge_source sources[3] = { { NULL, NULL }, { NULL, NULL }, { NULL, NULL } };

	sources[0].cursor = array_cursor(&a);
	ck_ok(kv_rangedels_new(&del, 1, &sources[1].rangedels));
	sources[2].cursor = array_cursor(&a);
	ck_assert_ptr_null(kv_merge_cursor(sources, 3, 9));
	ck_assert_uint_eq(cursors_open, 0);
}
UNIT_END

/* --- level ------------------------------------------------------------------------------------------- */

struct level {
	struct kv_version version;
	struct kv_table table[KV_ARRAY_LEN(tables)];
	struct kv_table *pointers[KV_ARRAY_LEN(tables)];
	struct array all;
};

static void set_bound(struct kv_buf *b, uint32_t key, kv_seqno seqno, enum kv_kind kind)
{
	ck_ok(kv_ikey_make(b, user_key(key), seqno, kind));
}

/* Tables of ever larger keys; some hold nothing but a range tombstone, up to the next table's key. */
static void make_level(struct level *l, size_t count)
{
	uint32_t key = below(4);

	array_reset(&l->all);
	for (size_t i = 0; i < count; i++) {
		struct kv_sst_meta *meta = &l->table[i].meta;
		struct array *a = &tables[i].a;
		uint32_t first = key, entries = below(5);

		array_reset(a);
		meta->number = i;
		meta->file_bytes = i * 10;
		for (uint32_t n = 0; n < entries; n++) {
			for (kv_seqno s = 1 + below(2); s < 4; s++) {
				array_add(a, key, s);
				array_add(&l->all, key, s);
			}
			key += 1 + below(2);
		}
		if (!entries)
			key++;
		if (entries && below(2)) {
			set_bound(&meta->smallest, first, 3, KV_KIND_PUT);
			set_bound(&meta->largest, a->entries[a->count - 1].key, 0, KV_KIND_PUT);
		} else {
			set_bound(&meta->smallest, first, 9, KV_KIND_DELETE_RANGE);
			set_bound(&meta->largest, key, KV_SEQNO_MAX, KV_KIND_DELETE_RANGE);
		}
		l->pointers[i] = &l->table[i];
	}
	l->version.levels[2].tables = l->pointers;
	l->version.levels[2].count = count;
}

static void level_done(struct level *l)
{
	for (size_t i = 0; i < KV_ARRAY_LEN(tables); i++) {
		kv_buf_done(&l->table[i].meta.smallest);
		kv_buf_done(&l->table[i].meta.largest);
	}
}

UNIT(level_agrees_with_a_sorted_array)
{
	static struct level l;

	seed_random();
	for (int round = 0; round < 200; round++) {
		struct kv_cursor *c;

		make_level(&l, below(KV_ARRAY_LEN(tables) + 1));
		c = kv_level_cursor(&l.version, 2, NULL, true, false);
		ck_assert_uint_eq(l.version.refs, 1);
		walk(c, &l.all, 4, 100);
		kv_cursor_free(c);
		ck_assert_uint_eq(l.version.refs, 0);
		ck_assert_uint_eq(tables_pinned, 0);
		ck_assert_uint_eq(cursors_open, 0);
	}
	level_done(&l);
}
UNIT_END

UNIT(level_opens_nothing_before_it_must)
{
	static struct level l;
	struct kv_cursor *c;

	do
		make_level(&l, 8);
	while (!tables[7].a.count || tables[7].a.entries[0].key >= KEYS);
	c = kv_level_cursor(&l.version, 2, NULL, true, false);
	ck_assert_uint_eq(tables_opened, 0);
	c->ops->seek(c, ikey_of(&tables[7].a.entries[0]));
	ck_assert(c->ops->valid(c));
	c->ops->seek_prev(c, ikey_of(&tables[7].a.entries[0]));
	ck_assert(c->ops->valid(c));
	ck_assert_uint_eq(tables_opened, 1);
	kv_cursor_free(c);
	level_done(&l);
}
UNIT_END

UNIT(level_keeps_an_error_until_the_next_seek)
{
	static struct level l;
	struct kv_cursor *c;

	seed_random();
	make_level(&l, 8);
	c = kv_level_cursor(&l.version, 2, NULL, true, false);
	for (uint32_t at = 1; at <= 8; at++) {
		open_fails_at = tables_opened + at;
		count_all(c, at % 2);
		ck_assert_int_eq(c->ops->error(c), at < 8 || tables_opened >= open_fails_at ?
						   KV_E_missing_file : 0);
		ck_assert(!c->ops->valid(c));
		ck_assert_uint_eq(tables_pinned, 0);
		open_fails_at = 0;
		ck_assert_uint_eq(count_all(c, at % 2), l.all.count);
		ck_ok(c->ops->error(c));
	}
	for (size_t i = 0; i < 8; i++) {
		tables[i].a.moves = 0;
		tables[i].a.fail_at = 1;
		count_all(c, i % 2);
		ck_assert_int_eq(c->ops->error(c), -EIO);
		ck_assert(!c->ops->valid(c));
		ck_assert_uint_eq(tables_pinned, 0);
		tables[i].a.fail_at = 0;
		ck_assert_uint_eq(count_all(c, i % 2), l.all.count);
	}
	kv_cursor_free(c);
	level_done(&l);
}
UNIT_END

UNIT_MAIN("cursor_merge", merge_agrees_with_a_sorted_array, merge_of_nothing_is_empty,
	  covered_entries_are_jumped_over, merge_keeps_an_error_until_the_next_seek,
	  merge_of_a_missing_cursor_frees_the_others, level_agrees_with_a_sorted_array,
	  level_opens_nothing_before_it_must, level_keeps_an_error_until_the_next_seek)
