#include <stdio.h>

#include "kv/rangedel.h"
#include "tests/unit/unit.h"

static void unref(struct kv_rangedels **r)
{
	kv_rangedels_unref(*r);
}

#define RANGEDELS(r) KV_AUTO(unref) struct kv_rangedels *r = NULL

static struct kv_slice str(const char *s)
{
	return kv_slice_str(s);
}

static void check_at(const struct kv_rangedels *r, uint32_t i, const char *begin, const char *end,
		     kv_seqno seqno)
{
	ck_assert_uint_lt(i, r->count);
	ck_assert(kv_slice_eq(r->at[i].begin, str(begin)));
	ck_assert(kv_slice_eq(r->at[i].end, str(end)));
	ck_assert_uint_eq(r->at[i].seqno, seqno);
}

UNIT(nothing_is_null_and_covers_nothing)
{
	const struct kv_rangedel empty[] = { { str("b"), str("b"), 3 }, { str("b"), str("a"), 4 } };
	struct kv_rangedel span;

	RANGEDELS(r);
	ck_ok(kv_rangedels_new(NULL, 0, &r));
	ck_assert_ptr_null(r);
	ck_ok(kv_rangedels_new(empty, 2, &r));
	ck_assert_ptr_null(r);
	ck_assert_ptr_null(kv_rangedels_ref(r));
	ck_assert_uint_eq(kv_rangedels_covering(r, str("b"), KV_SEQNO_MAX), 0);
	ck_assert_uint_eq(kv_rangedels_cover(r, str("b"), KV_SEQNO_MAX, &span), 0);
	ck_assert(!span.begin.data && !span.end.data);
}
UNIT_END

UNIT(overlapping_ranges_are_cut)
{
	const struct kv_rangedel in[] = {
		{ str("c"), str("g"), 7 },
		{ str("a"), str("e"), 5 },
		{ str("x"), str("y"), 1 },
	};
	struct kv_rangedel span;

	RANGEDELS(r);
	ck_ok(kv_rangedels_new(in, KV_ARRAY_LEN(in), &r));
	ck_assert_uint_eq(r->count, 5);
	check_at(r, 0, "a", "c", 5);
	check_at(r, 1, "c", "e", 7);
	check_at(r, 2, "c", "e", 5);
	check_at(r, 3, "e", "g", 7);
	check_at(r, 4, "x", "y", 1);
	ck_assert_uint_eq(kv_rangedels_covering(r, str("d"), KV_SEQNO_MAX), 7);
	ck_assert_uint_eq(kv_rangedels_covering(r, str("d"), 6), 5);
	ck_assert_uint_eq(kv_rangedels_covering(r, str("d"), 4), 0);
	ck_assert_uint_eq(kv_rangedels_covering(r, str("e"), 6), 0);
	ck_assert_uint_eq(kv_rangedels_covering(r, str("y"), 9), 0);

	ck_assert_uint_eq(kv_rangedels_cover(r, str("dd"), 6, &span), 5);
	ck_assert(kv_slice_eq(span.begin, str("c")) && kv_slice_eq(span.end, str("e")));
	ck_assert_uint_eq(kv_rangedels_cover(r, str("h"), 9, &span), 0);
	ck_assert(kv_slice_eq(span.begin, str("g")) && kv_slice_eq(span.end, str("x")));
	ck_assert_uint_eq(kv_rangedels_cover(r, str(""), 9, &span), 0);
	ck_assert(!span.begin.data && kv_slice_eq(span.end, str("a")));
	ck_assert_uint_eq(kv_rangedels_cover(r, str("z"), 9, &span), 0);
	ck_assert(kv_slice_eq(span.begin, str("y")) && !span.end.data);
}
UNIT_END

UNIT(neighbours_with_the_same_seqnos_become_one)
{
	const struct kv_rangedel in[] = {
		{ str("b"), str("c"), 5 }, { str("a"), str("b"), 5 }, { str("c"), str("d"), 5 },
		{ str("d"), str("e"), 6 }, { str("a"), str("b"), 5 }, { str(""), str("a"), 6 },
	};

	RANGEDELS(r);
	ck_ok(kv_rangedels_new(in, KV_ARRAY_LEN(in), &r));
	ck_assert_uint_eq(r->count, 3);
	check_at(r, 0, "", "a", 6);
	check_at(r, 1, "a", "d", 5);
	check_at(r, 2, "d", "e", 6);
}
UNIT_END

UNIT(keys_are_copied)
{
	char begin[] = "aaa", end[] = "ccc";
	const struct kv_rangedel in = { str(begin), str(end), 5 };

	RANGEDELS(r);
	ck_ok(kv_rangedels_new(&in, 1, &r));
	memset(begin, 'x', 3);
	memset(end, 'x', 3);
	check_at(r, 0, "aaa", "ccc", 5);
}
UNIT_END

static void check_shape(const struct kv_rangedels *r)
{
	for (uint32_t i = 0; i < r->count; i++) {
		const struct kv_rangedel *f = &r->at[i];

		ck_assert_int_lt(kv_slice_cmp(f->begin, f->end), 0);
		if (!i)
			continue;
		if (kv_slice_eq(f->begin, f[-1].begin)) {
			ck_assert(kv_slice_eq(f->end, f[-1].end));
			ck_assert_uint_lt(f->seqno, f[-1].seqno);
		} else {
			ck_assert_int_ge(kv_slice_cmp(f->begin, f[-1].end), 0);
		}
	}
}

static bool spans(const struct kv_rangedel *span, struct kv_slice key)
{
	return (!span->begin.data || kv_slice_cmp(span->begin, key) <= 0) &&
	       (!span->end.data || kv_slice_cmp(key, span->end) < 0);
}

/* One assertion for all, since Check writes each of them down. */
static bool answers_are_right(const struct kv_rangedels *r, const struct kv_rangedel *in, size_t n,
			      kv_seqno snapshot)
{
	bool right = true;

	for (unsigned int k = 0; k < 64; k++) {
		uint8_t byte = (uint8_t)k;
		struct kv_slice key = kv_slice(&byte, 1);
		struct kv_rangedel span;
		kv_seqno want = 0;

		for (size_t i = 0; i < n; i++)
			if (in[i].seqno <= snapshot && in[i].seqno > want && spans(&in[i], key))
				want = in[i].seqno;
		right &= kv_rangedels_covering(r, key, snapshot) == want;
		right &= kv_rangedels_cover(r, key, snapshot, &span) == want;
		right &= span.seqno == want && spans(&span, key);
		/* The answer holds everywhere in the span. */
		for (unsigned int o = 0; o < 64; o++) {
			uint8_t other = (uint8_t)o;
			struct kv_slice s = kv_slice(&other, 1);

			if (spans(&span, s))
				right &= kv_rangedels_covering(r, s, snapshot) == want;
		}
	}
	return right;
}

UNIT(agrees_with_looking_at_each_tombstone)
{
	const char *s = getenv("SEED");
	unsigned int seed = s ? (unsigned int)strtoul(s, NULL, 0) : 4711;
	static uint8_t bytes[64];

	printf("SEED=%u\n", seed);
	srandom(seed);
	for (unsigned int i = 0; i < 64; i++)
		bytes[i] = (uint8_t)i;
	for (int round = 0; round < 300; round++) {
		struct kv_rangedel in[20];
		size_t n = (size_t)random() % 20;

		RANGEDELS(r);
		for (size_t i = 0; i < n; i++) {
			long begin = random() % 64, end = random() % 64;

			in[i].begin = kv_slice(bytes + begin, random() % 16 ? 1 : 0);
			in[i].end = kv_slice(bytes + end, 1);
			in[i].seqno = 1 + (kv_seqno)random() % 15;
		}
		ck_ok(kv_rangedels_new(in, n, &r));
		if (r)
			check_shape(r);
		for (kv_seqno snapshot = 0; snapshot < 16; snapshot += 5)
			ck_assert(answers_are_right(r, in, n, snapshot));
	}
}
UNIT_END

UNIT_MAIN("rangedel", nothing_is_null_and_covers_nothing, overlapping_ranges_are_cut,
	  neighbours_with_the_same_seqnos_become_one, keys_are_copied,
	  agrees_with_looking_at_each_tombstone)
