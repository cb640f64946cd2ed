#include <stdio.h>
#include <time.h>

#include "kv/edit.h"
#include "kv/errcode.h"
#include "tests/unit/version_make.h"

static void make_full(struct kv_edit *e)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = make_meta(7, "alpha", "omega", 3, 90);

	make_ref(&m, 4, 1u << 20);
	make_ref(&m, 5, 0);
	make_ref(&m, 300, UINT64_MAX);
	e->is_snapshot = true;
	e->has_next_fileno = e->has_journal_min = e->has_seqno = true;
	e->next_fileno = 1000;
	e->journal_min = 12;
	e->seqno = KV_SEQNO_MAX;
	ck_ok(kv_edit_add_table(e, 0, &m));
	edit_add(e, KV_LEVELS - 1, 8, "", "", 5);
	ck_ok(kv_edit_delete_table(e, 3, 77));
	ck_ok(kv_edit_add_segment(e, 4));
	ck_ok(kv_edit_add_segment(e, 5));
	ck_ok(kv_edit_add_segment(e, 300));
	ck_ok(kv_edit_seal_segment(e, 4, 123456789));
	ck_ok(kv_edit_delete_segment(e, 2));
	ck_ok(kv_edit_add_snapshot(e, &(struct kv_snapshot_info){
		.name = "before the upgrade", .seqno = 77, .made_ns = UINT64_MAX }));
	ck_ok(kv_edit_delete_snapshot(e, "old"));
}

static void assert_same_meta(const struct kv_sst_meta *a, const struct kv_sst_meta *b)
{
	ck_assert_uint_eq(a->number, b->number);
	ck_assert_uint_eq(a->file_bytes, b->file_bytes);
	ck_assert_uint_eq(a->entries, b->entries);
	ck_assert_uint_eq(a->deletes, b->deletes);
	ck_assert_uint_eq(a->range_deletes, b->range_deletes);
	ck_assert_uint_eq(a->raw_bytes, b->raw_bytes);
	ck_assert_uint_eq(a->seqno_min, b->seqno_min);
	ck_assert_uint_eq(a->seqno_max, b->seqno_max);
	ck_assert(kv_slice_eq(kv_buf_slice(&a->smallest), kv_buf_slice(&b->smallest)));
	ck_assert(kv_slice_eq(kv_buf_slice(&a->largest), kv_buf_slice(&b->largest)));
	ck_assert_uint_eq(a->ref_count, b->ref_count);
	for (size_t i = 0; i < a->ref_count; i++) {
		ck_assert_uint_eq(a->refs[i].segment_no, b->refs[i].segment_no);
		ck_assert_uint_eq(a->refs[i].bytes, b->refs[i].bytes);
	}
}

static void assert_same_tables(const struct kv_edit_table *a, size_t an,
			       const struct kv_edit_table *b, size_t bn)
{
	ck_assert_uint_eq(an, bn);
	for (size_t i = 0; i < an; i++) {
		ck_assert_int_eq(a[i].level, b[i].level);
		assert_same_meta(&a[i].meta, &b[i].meta);
	}
}

static void assert_same_segments(const struct kv_edit_segment *a, size_t an,
				 const struct kv_edit_segment *b, size_t bn)
{
	ck_assert_uint_eq(an, bn);
	for (size_t i = 0; i < an; i++) {
		ck_assert_uint_eq(a[i].number, b[i].number);
		ck_assert_uint_eq(a[i].bytes, b[i].bytes);
	}
}

UNIT(edits_round_trip)
{
	KV_AUTO(kv_edit_done) struct kv_edit a = { 0 };
	KV_AUTO(kv_edit_done) struct kv_edit b = { 0 };
	KV_AUTO(kv_buf_done) struct kv_buf bytes = KV_BUF_INIT;

	make_full(&a);
	ck_ok(kv_edit_encode(&a, &bytes));
	ck_ok(kv_edit_decode(kv_buf_slice(&bytes), &b));
	ck_assert(b.is_snapshot && b.has_next_fileno && b.has_journal_min && b.has_seqno);
	ck_assert_uint_eq(a.next_fileno, b.next_fileno);
	ck_assert_uint_eq(a.journal_min, b.journal_min);
	ck_assert_uint_eq(a.seqno, b.seqno);
	assert_same_tables(a.adds, a.add_count, b.adds, b.add_count);
	assert_same_tables(a.deletes, a.delete_count, b.deletes, b.delete_count);
	assert_same_segments(a.segment_adds, a.segment_add_count, b.segment_adds,
			     b.segment_add_count);
	assert_same_segments(a.segment_seals, a.segment_seal_count, b.segment_seals,
			     b.segment_seal_count);
	assert_same_segments(a.segment_deletes, a.segment_delete_count, b.segment_deletes,
			     b.segment_delete_count);
	ck_assert_uint_eq(b.snapshot_add_count, 1);
	ck_assert_str_eq(b.snapshot_adds[0].name, "before the upgrade");
	ck_assert_uint_eq(b.snapshot_adds[0].seqno, 77);
	ck_assert_uint_eq(b.snapshot_adds[0].made_ns, UINT64_MAX);
	ck_assert_uint_eq(b.snapshot_delete_count, 1);
	ck_assert_str_eq(b.snapshot_deletes[0].name, "old");
}
UNIT_END

UNIT(an_empty_edit_is_no_bytes)
{
	KV_AUTO(kv_edit_done) struct kv_edit a = { 0 };
	KV_AUTO(kv_edit_done) struct kv_edit b = { 0 };
	KV_AUTO(kv_buf_done) struct kv_buf bytes = KV_BUF_INIT;

	ck_ok(kv_edit_encode(&a, &bytes));
	ck_assert_uint_eq(bytes.bytes, 0);
	ck_ok(kv_edit_decode(kv_buf_slice(&bytes), &b));
	ck_assert(!b.is_snapshot && !b.has_seqno && !b.has_next_fileno && !b.has_journal_min);
	ck_assert_uint_eq(b.add_count + b.delete_count + b.segment_add_count, 0);
}
UNIT_END

UNIT(arrays_grow)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };

	for (kv_fileno n = 1; n <= 1000; n++) {
		ck_ok(kv_edit_add_segment(&e, n));
		ck_ok(kv_edit_delete_table(&e, 1, n));
	}
	ck_assert_uint_eq(e.segment_add_count, 1000);
	for (size_t i = 0; i < 1000; i++) {
		ck_assert_uint_eq(e.segment_adds[i].number, i + 1);
		ck_assert_uint_eq(e.deletes[i].meta.number, i + 1);
	}
}
UNIT_END

static void put(struct kv_buf *b, uint64_t tag, struct kv_slice value)
{
	ck_ok(kv_buf_append_varint(b, tag));
	ck_ok(kv_buf_append_prefixed(b, value));
}

static int decode(struct kv_slice bytes)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };

	return kv_edit_decode(bytes, &e);
}

UNIT(unknown_tags_are_refused_or_ignored)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	static const uint64_t newer[] = { 0, 24, 26, 1000000,
					  UINT64_MAX - 1 };

	for (size_t i = 0; i < KV_ARRAY_LEN(newer); i++) {
		kv_buf_reset(&b);
		put(&b, KV_TAG_SEQNO, kv_slice("\5", 1));
		put(&b, newer[i], kv_slice_str("whatever"));
		ck_assert_int_eq(decode(kv_buf_slice(&b)), KV_E_newer_format);
	}
	kv_buf_reset(&b);
	put(&b, KV_TAG_COMPACT_POINTER, kv_slice_str("x"));
	put(&b, UINT64_MAX, kv_slice_str(""));
	put(&b, KV_TAG_SEQNO, kv_slice("\5", 1));
	ck_ok(decode(kv_buf_slice(&b)));
}
UNIT_END

UNIT(malformed_fields_are_refused)
{
	static const struct {
		enum kv_edit_tag tag;
		const char *value;
		size_t bytes;
	} bad[] = {
		{ KV_TAG_SNAPSHOT, "x", 1 },		/* has a value */
		{ KV_TAG_SEQNO, "", 0 },		/* has none */
		{ KV_TAG_SEQNO, "\5\5", 2 },		/* bytes left over */
		{ KV_TAG_TABLE_DELETE, "\1", 1 },	/* no number */
		{ KV_TAG_TABLE_DELETE, "\7\1", 2 },	/* no such level */
		{ KV_TAG_TABLE_DELETE, "\1\1\1", 3 },
		{ KV_TAG_TABLE_ADD, "", 0 },
		{ KV_TAG_TABLE_ADD, "\7\1\1\1\1\1\1\1\1", 9 },
		{ KV_TAG_TABLE_ADD, "\1\1\1\1\1\1\1\1\1\1x\1x", 13 }, /* keys too short */
		{ KV_TAG_SEGMENT_ADD, "\1\1", 2 },
		{ KV_TAG_SEGMENT_SEAL, "\1", 1 },
		{ KV_TAG_SEGMENT_DELETE, "\x80", 1 },
		{ KV_TAG_NAMED_SNAPSHOT_ADD, "", 0 },
		{ KV_TAG_NAMED_SNAPSHOT_ADD, "\0\1\1", 3 },	/* no name */
		{ KV_TAG_NAMED_SNAPSHOT_ADD, "\1\0\1\1", 4 },	/* a name with a 0 */
		{ KV_TAG_NAMED_SNAPSHOT_ADD, "\1x\1", 3 },	/* no time */
		{ KV_TAG_NAMED_SNAPSHOT_ADD, "\1x\1\1\1", 5 },
		{ KV_TAG_NAMED_SNAPSHOT_DELETE, "", 0 },
		{ KV_TAG_NAMED_SNAPSHOT_DELETE, "x\0", 2 },
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(bad); i++) {
		KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;

		put(&b, bad[i].tag, kv_slice(bad[i].value, bad[i].bytes));
		ck_assert_msg(decode(kv_buf_slice(&b)) == KV_E_bad_record, "case %zu", i);
	}
}
UNIT_END

UNIT(what_is_said_once_is_not_said_twice)
{
	static const enum kv_edit_tag once[] = { KV_TAG_NEXT_FILENO, KV_TAG_JOURNAL_MIN,
						 KV_TAG_SEQNO, KV_TAG_SNAPSHOT };

	for (size_t i = 0; i < KV_ARRAY_LEN(once); i++) {
		KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
		struct kv_slice v = kv_slice("\5", once[i] == KV_TAG_SNAPSHOT ? 0 : 1);

		put(&b, once[i], v);
		ck_ok(decode(kv_buf_slice(&b)));
		put(&b, once[i], v);
		ck_assert_int_eq(decode(kv_buf_slice(&b)), KV_E_bad_record);
	}
}
UNIT_END

UNIT(a_huge_count_asks_for_no_memory)
{
	KV_AUTO(kv_buf_done) struct kv_buf v = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = make_meta(7, "a", "b", 1, 2);

	ck_ok(kv_buf_append(&v, "\1\1\1\1\1\1\1\1\1", 9));
	ck_ok(kv_buf_append_prefixed(&v, kv_buf_slice(&m.smallest)));
	ck_ok(kv_buf_append_prefixed(&v, kv_buf_slice(&m.largest)));
	ck_ok(kv_buf_append_varint(&v, (uint64_t)1 << 60));
	ck_ok(kv_buf_append(&v, "\1\1\1\1", 4));
	put(&b, KV_TAG_TABLE_ADD, kv_buf_slice(&v));
	ck_assert_int_eq(decode(kv_buf_slice(&b)), KV_E_bad_record);
}
UNIT_END

UNIT(cut_edits_never_reach_outside)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	size_t whole = 0;

	make_full(&e);
	ck_ok(kv_edit_encode(&e, &b));
	for (size_t n = 0; n <= b.bytes; n++) {
		/* A copy of just these bytes, so that a look beyond them is noticed. */
		uint8_t *copy = malloc(n ? n : 1);
		int err;

		ck_assert_ptr_nonnull(copy);
		memcpy(copy, b.data, n);
		err = decode(kv_slice(copy, n));
		ck_assert(!err || err == KV_E_bad_record);
		whole += !err;
		free(copy);
	}
	/* Between two of the 14 fields, and at both ends. */
	ck_assert_uint_eq(whole, 15);
}
UNIT_END

UNIT(random_damage_is_survived)
{
	const char *env = getenv("SEED");
	unsigned seed = env ? (unsigned)strtoul(env, NULL, 0) : (unsigned)time(NULL);
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf damaged = KV_BUF_INIT;

	printf("SEED=%u\n", seed);
	srand(seed);
	make_full(&e);
	ck_ok(kv_edit_encode(&e, &b));
	for (int round = 0; round < 20000; round++) {
		int err, flips = 1 + rand() % 4;

		ck_ok(kv_buf_assign(&damaged, kv_buf_slice(&b)));
		while (flips--)
			damaged.data[(size_t)rand() % damaged.bytes] = (uint8_t)rand();
		err = decode(kv_buf_slice(&damaged));
		ck_assert(!err || err == KV_E_bad_record || err == KV_E_newer_format);
	}
}
UNIT_END

UNIT_MAIN("edit", edits_round_trip, an_empty_edit_is_no_bytes, arrays_grow,
	  unknown_tags_are_refused_or_ignored, malformed_fields_are_refused,
	  what_is_said_once_is_not_said_twice, a_huge_count_asks_for_no_memory,
	  cut_edits_never_reach_outside, random_damage_is_survived)
