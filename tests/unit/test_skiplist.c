#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "kv/skiplist.h"
#include "tests/unit/unit.h"

struct list {
	struct kv_arena arena;
	struct kv_skiplist l;
};

static void list_init(struct list *t)
{
	kv_arena_init(&t->arena);
	ck_ok(kv_skiplist_init(&t->l, &t->arena));
}

static void list_done(struct list *t)
{
	kv_arena_done(&t->arena);
}

static unsigned int seed_of_environment(void)
{
	const char *s = getenv("SEED");
	unsigned int seed = s ? (unsigned int)strtoul(s, NULL, 0) : 4711;

	printf("SEED=%u\n", seed);
	return seed;
}

static struct kv_slice key_of(uint32_t n, char *store)
{
	return kv_slice(store, (size_t)snprintf(store, 16, "%u", n % 997));
}

static void insert(struct list *t, const char *key, kv_seqno seqno, const char *value)
{
	ck_ok(kv_skiplist_insert(&t->l, kv_slice_str(key), seqno, KV_KIND_PUT,
				 kv_slice_str(value)));
}

static bool is(const struct kv_skipnode *n, const char *key, kv_seqno seqno)
{
	return n && kv_slice_eq(kv_ikey_user(kv_skipnode_key(n)), kv_slice_str(key)) &&
	       kv_ikey_seqno(kv_skipnode_key(n)) == seqno;
}

UNIT(an_empty_list_has_nothing)
{
	KV_AUTO(list_done) struct list t;

	list_init(&t);
	ck_assert_ptr_null(kv_skiplist_first(&t.l));
	ck_assert_ptr_null(kv_skiplist_last(&t.l));
	ck_assert_ptr_null(kv_skiplist_seek(&t.l, kv_slice_str(""), UINT64_MAX));
	ck_assert_ptr_null(kv_skiplist_seek_prev(&t.l, kv_slice_str("x"), 0));
}
UNIT_END

UNIT(newer_versions_come_first)
{
	KV_AUTO(list_done) struct list t;
	struct kv_skipnode *n;

	list_init(&t);
	insert(&t, "b", 5, "b5");
	insert(&t, "a", 3, "a3");
	insert(&t, "b", 9, "");
	insert(&t, "", 1, "empty key");
	insert(&t, "bb", 2, "bb2");
	ck_assert_uint_eq(t.l.count, 5);

	n = kv_skiplist_first(&t.l);
	ck_assert(is(n, "", 1));
	ck_assert(is(n = kv_skipnode_next(n), "a", 3));
	ck_assert(is(n = kv_skipnode_next(n), "b", 9));
	ck_assert_uint_eq(kv_skipnode_value(n).bytes, 0);
	ck_assert(is(n = kv_skipnode_next(n), "b", 5));
	ck_assert(kv_slice_eq(kv_skipnode_value(n), kv_slice_str("b5")));
	ck_assert(is(n = kv_skipnode_next(n), "bb", 2));
	ck_assert_ptr_null(kv_skipnode_next(n));
	ck_assert(kv_skiplist_last(&t.l) == n);

	/* What a snapshot sees of b. */
	ck_assert(is(kv_skiplist_seek(&t.l, kv_slice_str("b"), kv_ikey_pack(9, KV_KIND_MAX)), "b",
		     9));
	ck_assert(is(kv_skiplist_seek(&t.l, kv_slice_str("b"), kv_ikey_pack(8, KV_KIND_MAX)), "b",
		     5));
	ck_assert(is(kv_skiplist_seek(&t.l, kv_slice_str("b"), kv_ikey_pack(4, KV_KIND_MAX)), "bb",
		     2));
	ck_assert(is(kv_skiplist_seek_prev(&t.l, kv_slice_str("b"), kv_ikey_pack(4, 0)), "b", 5));
	ck_assert(is(kv_skiplist_seek_prev(&t.l, kv_slice_str("b"), kv_ikey_pack(9, KV_KIND_PUT)),
		     "b", 9));
	ck_assert(is(kv_skiplist_seek_prev(&t.l, kv_slice_str("b"), kv_ikey_pack(9, KV_KIND_MAX)),
		     "a", 3));
}
UNIT_END

static int compare_keys(const void *a, const void *b)
{
	return kv_ikey_cmp(*(const struct kv_slice *)a, *(const struct kv_slice *)b);
}

/* Runs of neighbours in both directions, and jumps: the remembered place is right and wrong. */
UNIT(agrees_with_a_sorted_array)
{
	enum { COUNT = 5000 };
	KV_AUTO(list_done) struct list t;
	static struct kv_slice keys[COUNT];
	struct kv_skipnode *n;
	uint32_t at = 0;
	char s[16];

	list_init(&t);
	srandom(seed_of_environment());
	for (uint32_t i = 0; i < COUNT; i++) {
		struct kv_buf b = KV_BUF_INIT;
		enum kv_kind kind = random() % 2 ? KV_KIND_PUT : KV_KIND_DELETE;
		struct kv_slice key;

		at = random() % 10 ? at + (random() % 4 ? 1 : UINT32_MAX) : (uint32_t)random();
		key = key_of(at, s);
		ck_ok(kv_skiplist_insert(&t.l, key, i + 1, kind, kv_slice(&i, sizeof(i))));
		ck_ok(kv_ikey_make(&b, key, i + 1, kind));
		keys[i] = kv_buf_slice(&b);
	}
	qsort(keys, COUNT, sizeof(*keys), compare_keys);
	n = kv_skiplist_first(&t.l);
	for (size_t i = 0; i < COUNT; i++, n = kv_skipnode_next(n)) {
		uint32_t value;

		ck_assert(n && kv_slice_eq(kv_skipnode_key(n), keys[i]));
		memcpy(&value, kv_skipnode_value(n).data, sizeof(value));
		ck_assert_uint_eq(value + 1, kv_ikey_seqno(keys[i]));
	}
	ck_assert_ptr_null(n);
	for (size_t i = 0; i < COUNT; i++) {
		struct kv_slice user = kv_ikey_user(keys[i]);
		uint64_t trailer = kv_ikey_trailer(keys[i]);

		n = kv_skiplist_seek(&t.l, user, trailer);
		ck_assert(n && kv_slice_eq(kv_skipnode_key(n), keys[i]));
		ck_assert(kv_skiplist_seek_prev(&t.l, user, trailer) == n);
		n = kv_skiplist_seek(&t.l, user, trailer - 1);
		ck_assert(i + 1 < COUNT ? n && kv_slice_eq(kv_skipnode_key(n), keys[i + 1]) : !n);
		n = kv_skiplist_seek_prev(&t.l, user, trailer + 1);
		ck_assert(i ? n && kv_slice_eq(kv_skipnode_key(n), keys[i - 1]) : !n);
	}
	for (size_t i = 0; i < COUNT; i++)
		free((void *)(uintptr_t)keys[i].data);
}
UNIT_END

/*
 * The writer publishes how many it has inserted; readers must find all of these,
 * and the list in order, whatever else is being inserted.
 */
struct race {
	struct list t;
	_Atomic uint32_t published;
	_Atomic bool failed;
};

enum { RACE_COUNT = 10000 };

static void race_read(struct race *r, uint32_t *state)
{
	uint32_t published = atomic_load_explicit(&r->published, memory_order_acquire), seen = 0;
	uint32_t want = 1 + (*state = *state * 1664525 + 1013904223) % (published ? published : 1);
	struct kv_skipnode *n, *before;
	char s[16];

	if (!published)
		return;
	n = kv_skiplist_seek(&r->t.l, key_of(want * 7919, s), kv_ikey_pack(want, KV_KIND_PUT));
	if (!n || kv_ikey_seqno(kv_skipnode_key(n)) != want)
		r->failed = true;
	n = kv_skiplist_seek_prev(&r->t.l, key_of(want * 7919, s),
				  kv_ikey_pack(want, KV_KIND_PUT));
	if (!n || kv_ikey_seqno(kv_skipnode_key(n)) != want)
		r->failed = true;
	if (want % 512)
		return;
	for (before = NULL, n = kv_skiplist_first(&r->t.l); n; n = kv_skipnode_next(n)) {
		if (before && kv_ikey_cmp(kv_skipnode_key(before), kv_skipnode_key(n)) >= 0)
			r->failed = true;
		seen += kv_ikey_seqno(kv_skipnode_key(n)) <= published;
		before = n;
	}
	if (seen != published || !kv_skiplist_last(&r->t.l))
		r->failed = true;
}

static void *race_reader(void *arg)
{
	struct race *r = arg;
	uint32_t state = 1;

	while (atomic_load_explicit(&r->published, memory_order_relaxed) < RACE_COUNT)
		race_read(r, &state);
	race_read(r, &state);
	return NULL;
}

UNIT(readers_beside_the_writer_see_order_and_all_that_is_published)
{
	static struct race r;
	pthread_t threads[3];
	char s[16];

	list_init(&r.t);
	for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
		ck_ok(pthread_create(&threads[i], NULL, race_reader, &r));
	for (uint32_t i = 1; i <= RACE_COUNT; i++) {
		ck_ok(kv_skiplist_insert(&r.t.l, key_of(i * 7919, s), i, KV_KIND_PUT,
					 kv_slice(s, 16)));
		atomic_store_explicit(&r.published, i, memory_order_release);
	}
	for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
		ck_ok(pthread_join(threads[i], NULL));
	ck_assert(!r.failed);
	list_done(&r.t);
}
UNIT_END

UNIT(arena_memory_is_aligned_and_disjoint)
{
	struct kv_arena a;
	uint8_t *p[2000], want[2000];

	kv_arena_init(&a);
	ck_assert_ptr_null(kv_arena_alloc(&a, SIZE_MAX));
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < KV_ARRAY_LEN(p); i++) {
			p[i] = kv_arena_alloc(&a, i);
			ck_assert(p[i] && (uintptr_t)p[i] % 8 == 0);
			memset(p[i], (int)(i & 0xff), i);
		}
		for (size_t i = 0; i < KV_ARRAY_LEN(p); i++) {
			memset(want, (int)(i & 0xff), i);
			ck_assert(!memcmp(p[i], want, i));
		}
		ck_assert_uint_ge(a.bytes, KV_ARRAY_LEN(p) * (KV_ARRAY_LEN(p) - 1) / 2);
		kv_arena_reset(&a);
		ck_assert_uint_gt(a.bytes, 0);
	}
	kv_arena_done(&a);
	ck_assert_uint_eq(a.bytes, 0);
	kv_arena_done(NULL);
}
UNIT_END

UNIT_MAIN("skiplist", an_empty_list_has_nothing, newer_versions_come_first,
	  agrees_with_a_sorted_array, readers_beside_the_writer_see_order_and_all_that_is_published,
	  arena_memory_is_aligned_and_disjoint)
