#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "kv/memtable.h"
#include "tests/unit/unit.h"

static void unref(struct kv_memtable **m)
{
	kv_memtable_unref(*m);
}

#define MEMTABLE(m) KV_AUTO(unref) struct kv_memtable *m = kv_memtable_new(42)

static struct kv_slice str(const char *s)
{
	return kv_slice_str(s);
}

static void add(struct kv_memtable *m, kv_seqno seqno, enum kv_kind kind, const char *key,
		const char *value)
{
	ck_ok(kv_memtable_add(m, seqno, kind, str(key), str(value)));
}

static void add_ptr(struct kv_memtable *m, kv_seqno seqno, const char *key, kv_fileno segment_no,
		    uint32_t stored_bytes)
{
	struct kv_vptr_disk p = {
		.segment_no = kv_le64(segment_no),
		.stored_bytes = kv_le32(stored_bytes),
	};

	ck_ok(kv_memtable_add(m, seqno, KV_KIND_PUT_PTR, str(key), kv_slice(&p, sizeof(p))));
}

static struct kv_found get(struct kv_memtable *m, const char *key, kv_seqno snapshot,
			   kv_seqno *covered)
{
	struct kv_found f = { .found = true };

	ck_ok(kv_memtable_get(m, str(key), snapshot, &f, covered));
	return f;
}

UNIT(get_sees_what_the_snapshot_sees)
{
	kv_seqno covered = 0;
	struct kv_found f;

	MEMTABLE(m);
	ck_assert_ptr_nonnull(m);
	ck_assert_uint_eq(kv_memtable_journal_no(m), 42);
	add(m, 1, KV_KIND_PUT, "a", "one");
	add(m, 2, KV_KIND_DELETE, "a", "");
	add(m, 3, KV_KIND_PUT, "a", "three");
	add(m, 4, KV_KIND_PUT, "ab", "");

	ck_assert(!get(m, "a", 0, &covered).found);
	f = get(m, "a", 1, &covered);
	ck_assert(f.found && f.kind == KV_KIND_PUT && f.seqno == 1);
	ck_assert(kv_slice_eq(f.value, str("one")));
	f = get(m, "a", 2, &covered);
	ck_assert(f.found && f.kind == KV_KIND_DELETE && f.seqno == 2);
	f = get(m, "a", KV_SEQNO_MAX, &covered);
	ck_assert(f.found && f.seqno == 3);
	f = get(m, "ab", KV_SEQNO_MAX, &covered);
	ck_assert(f.found && f.value.bytes == 0);
	ck_assert(!get(m, "", KV_SEQNO_MAX, &covered).found);
	ck_assert(!get(m, "b", KV_SEQNO_MAX, &covered).found);
	ck_assert_uint_eq(covered, 0);
	ck_assert_uint_eq(kv_memtable_count(m), 4);
	ck_assert_uint_gt(kv_memtable_bytes(m), 0);
	ck_assert_uint_lt(kv_memtable_bytes(m), 1024);
}
UNIT_END

UNIT(range_tombstones_are_told_but_not_applied)
{
	struct kv_rangedels *r = NULL;
	kv_seqno covered = 0;

	MEMTABLE(m);
	ck_ok(kv_memtable_rangedels(m, &r));
	ck_assert_ptr_null(r);
	add(m, 1, KV_KIND_PUT, "b", "v");
	add(m, 2, KV_KIND_DELETE_RANGE, "a", "c");
	add(m, 3, KV_KIND_DELETE_RANGE, "c", "c");	/* nothing */
	ck_assert_uint_eq(kv_memtable_rangedel_count(m), 1);
	ck_assert_uint_eq(kv_memtable_count(m), 3);
	ck_assert(get(m, "b", 2, &covered).found);
	ck_assert_uint_eq(covered, 2);
	covered = 7;	/* found elsewhere, newer */
	ck_assert(get(m, "b", 2, &covered).found);
	ck_assert_uint_eq(covered, 7);
	covered = 0;
	get(m, "b", 1, &covered);
	get(m, "c", 9, &covered);
	ck_assert_uint_eq(covered, 0);

	ck_ok(kv_memtable_rangedels(m, &r));
	ck_assert_uint_eq(r->count, 1);
	add(m, 4, KV_KIND_DELETE_RANGE, "b", "d");
	ck_assert_uint_eq(kv_rangedels_covering(r, str("b"), 9), 2);
	kv_rangedels_unref(r);
	ck_ok(kv_memtable_rangedels(m, &r));
	ck_assert_uint_eq(kv_rangedels_covering(r, str("b"), 9), 4);
	kv_rangedels_unref(r);
}
UNIT_END

/* Tombstones and look-ups take turns, so that views of all ages are asked. */
UNIT(many_tombstones_agree_with_a_plain_list)
{
	enum { COUNT = 600 };
	static struct { uint8_t begin, end; } all[COUNT + 1];
	const char *s = getenv("SEED");
	unsigned int seed = s ? (unsigned int)strtoul(s, NULL, 0) : 4711;

	MEMTABLE(m);
	printf("SEED=%u\n", seed);
	srandom(seed);
	for (kv_seqno i = 1; i <= COUNT; i++) {
		all[i].begin = (uint8_t)random();
		all[i].end = (uint8_t)(all[i].begin + random() % 8);
		ck_ok(kv_memtable_add(m, i, KV_KIND_DELETE_RANGE, kv_slice(&all[i].begin, 1),
				      kv_slice(&all[i].end, 1)));
		for (int k = 0; k < 4; k++) {
			uint8_t key = (uint8_t)random();
			kv_seqno snapshot = (kv_seqno)random() % (i + 1), want = 0, covered = 0;
			struct kv_found f;

			for (kv_seqno j = 1; j <= snapshot; j++)
				if (all[j].begin <= key && key < all[j].end)
					want = j;
			ck_ok(kv_memtable_get(m, kv_slice(&key, 1), snapshot, &f, &covered));
			ck_assert_uint_eq(covered, want);
		}
	}
}
UNIT_END

static int collect(void *arg, kv_fileno segment_no)
{
	kv_fileno **next = arg;

	*(*next)++ = segment_no;
	return 0;
}

static int refuse(void *arg, kv_fileno segment_no)
{
	(void)arg;
	return segment_no == 7 ? -EINTR : 0;
}

UNIT(segments_are_remembered)
{
	kv_fileno got[100], *next = got;
	kv_seqno seqno = 1;

	MEMTABLE(m);
	ck_assert(!kv_memtable_refers(m, 9));
	add_ptr(m, seqno++, "a", 9, 100);
	add_ptr(m, seqno++, "b", 7, 20);
	add_ptr(m, seqno++, "c", 9, 3);
	ck_assert(kv_memtable_refers(m, 9));
	ck_assert(kv_memtable_refers(m, 7));
	ck_assert(!kv_memtable_refers(m, 8));
	ck_assert_uint_eq(kv_memtable_bulk_bytes(m), 123);
	for (kv_fileno s = 60; s > 30; s--)
		add_ptr(m, seqno++, "d", s, UINT32_MAX);
	ck_ok(kv_memtable_each_segment(m, collect, &next));
	ck_assert_int_eq(next - got, 32);
	for (kv_fileno *s = got + 1; s < next; s++)
		ck_assert_uint_gt(s[0], s[-1]);
	ck_assert_int_eq(kv_memtable_each_segment(m, refuse, NULL), -EINTR);
	ck_assert_uint_gt(kv_memtable_bulk_bytes(m), UINT32_MAX);
}
UNIT_END

UNIT(cursor_goes_both_ways_and_keeps_the_memtable)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct kv_memtable *m = kv_memtable_new(1);
	static const struct { const char *key; kv_seqno seqno; } want[] = {
		{ "a", 1 }, { "b", 4 }, { "b", 3 }, { "b", 2 }, { "c", 5 },
	};
	struct kv_cursor *c;
	size_t i = 0;

	add(m, 1, KV_KIND_PUT, "a", "a1");
	add(m, 2, KV_KIND_PUT, "b", "b2");
	add(m, 3, KV_KIND_DELETE, "b", "");
	add(m, 4, KV_KIND_PUT, "b", "b4");
	add(m, 5, KV_KIND_PUT, "c", "c5");
	add(m, 6, KV_KIND_DELETE_RANGE, "a", "z");
	c = kv_memtable_cursor(m);
	kv_memtable_unref(m);
	ck_assert(!c->ops->valid(c));
	for (c->ops->seek_first(c); c->ops->valid(c); c->ops->next(c), i++) {
		ck_assert(kv_slice_eq(kv_ikey_user(c->ops->key(c)), str(want[i].key)));
		ck_assert_uint_eq(kv_ikey_seqno(c->ops->key(c)), want[i].seqno);
	}
	ck_assert_uint_eq(i, KV_ARRAY_LEN(want));
	for (c->ops->seek_last(c); c->ops->valid(c); c->ops->prev(c)) {
		i--;
		ck_assert(kv_slice_eq(kv_ikey_user(c->ops->key(c)), str(want[i].key)));
		ck_assert_uint_eq(kv_ikey_seqno(c->ops->key(c)), want[i].seqno);
	}
	ck_assert_uint_eq(i, 0);
	ck_ok(kv_ikey_make(&b, str("b"), 3, KV_KIND_MAX));
	c->ops->seek(c, kv_buf_slice(&b));
	ck_assert_uint_eq(kv_ikey_seqno(c->ops->key(c)), 3);
	c->ops->seek_prev(c, kv_buf_slice(&b));
	ck_assert_uint_eq(kv_ikey_seqno(c->ops->key(c)), 4);
	ck_assert(kv_slice_eq(c->ops->value(c), str("b4")));
	ck_ok(c->ops->error(c));
	kv_cursor_free(c);
}
UNIT_END

/*
 * Sequence number i (of three) puts, points, or deletes the range of one of eight keys,
 * so that a reader can compute what each snapshot must see.
 */
enum { RACE_COUNT = 6000 };

struct race {
	struct kv_memtable *m;
	_Atomic kv_seqno published;
	_Atomic bool failed;
};

static uint8_t race_key(kv_seqno i)
{
	return (uint8_t)(i / 3 % 8);
}

static void race_check(struct race *r, kv_seqno snapshot)
{
	for (uint8_t key = 0; key < 8; key++) {
		kv_seqno newest = 0, deleted = 0, covered = 0;
		struct kv_found f;

		for (kv_seqno i = snapshot; i > 0 && i + 48 > snapshot; i--) {
			if (race_key(i) != key)
				continue;
			if (i % 3 == 2 && !deleted)
				deleted = i;
			if (i % 3 != 2 && !newest)
				newest = i;
		}
		if (kv_memtable_get(r->m, kv_slice(&key, 1), snapshot, &f, &covered) ||
		    covered != deleted || f.found != (newest > 0) ||
		    (f.found && f.seqno != newest))
			r->failed = true;
	}
}

static void *race_reader(void *arg)
{
	struct race *r = arg;
	kv_seqno snapshot;

	do {
		struct kv_rangedels *dels;

		snapshot = atomic_load_explicit(&r->published, memory_order_acquire);
		race_check(r, snapshot);
		if (kv_memtable_rangedels(r->m, &dels))
			r->failed = true;
		else
			kv_rangedels_unref(dels);
		if (snapshot > 3 && !kv_memtable_refers(r->m, 1 + snapshot / 3 / 100))
			/* The first key of a hundred may be put without a pointer, the second never is. */
			r->failed = r->failed || snapshot / 3 % 100 > 1;
	} while (snapshot < RACE_COUNT);
	return NULL;
}

UNIT(readers_beside_the_writer_see_their_snapshot)
{
	struct race r = { .m = kv_memtable_new(1) };
	pthread_t threads[3];

	for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
		ck_ok(pthread_create(&threads[i], NULL, race_reader, &r));
	for (kv_seqno i = 1; i <= RACE_COUNT; i++) {
		uint8_t key = race_key(i), end = (uint8_t)(key + 1);
		char s[2] = { (char)key, 0 };

		if (i % 3 == 2)
			ck_ok(kv_memtable_add(r.m, i, KV_KIND_DELETE_RANGE, kv_slice(&key, 1),
					      kv_slice(&end, 1)));
		else if (i % 3 == 1 && key)
			add_ptr(r.m, i, s, 1 + i / 3 / 100, 1);
		else
			ck_ok(kv_memtable_add(r.m, i, KV_KIND_PUT, kv_slice(&key, 1),
					      kv_slice(&i, sizeof(i))));
		atomic_store_explicit(&r.published, i, memory_order_release);
	}
	for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
		ck_ok(pthread_join(threads[i], NULL));
	ck_assert(!r.failed);
	ck_assert_uint_eq(kv_memtable_count(r.m), RACE_COUNT);
	kv_memtable_unref(r.m);
}
UNIT_END

UNIT_MAIN("memtable", get_sees_what_the_snapshot_sees, range_tombstones_are_told_but_not_applied,
	  many_tombstones_agree_with_a_plain_list, segments_are_remembered,
	  cursor_goes_both_ways_and_keeps_the_memtable,
	  readers_beside_the_writer_see_their_snapshot)
