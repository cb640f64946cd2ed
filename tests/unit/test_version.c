#include <stdio.h>
#include <time.h>

#include "kv/errcode.h"
#include "kv/version.h"
#include "tests/unit/tmpstore.h"
#include "tests/unit/version_make.h"

struct gone {
	size_t count;
	struct {
		enum kv_file_kind kind;
		kv_fileno number;
	} at[64];
};

static struct gone gone;

static void on_gone(void *arg, enum kv_file_kind kind, kv_fileno number)
{
	struct gone *g = arg;

	ck_assert_uint_lt(g->count, KV_ARRAY_LEN(g->at));
	for (size_t i = 0; i < g->count; i++)
		ck_assert(g->at[i].kind != kind || g->at[i].number != number);
	g->at[g->count].kind = kind;
	g->at[g->count++].number = number;
}

static const struct kv_obsolete_sink sink = { .fn = on_gone, .arg = &gone };

static void unrefp(struct kv_version **v)
{
	kv_version_unref(*v);
}

/* v becomes v with the edit; the edit is empty again. */
static int change(struct kv_version **v, struct kv_edit *e)
{
	struct kv_version *next = NULL;
	int err = kv_version_apply(*v, e, &sink, &next);

	if (!err) {
		if (*v)
			kv_version_retire(*v, e);
		kv_version_unref(*v);
		*v = next;
	}
	kv_edit_done(e);
	return err;
}

static void assert_numbers(const struct kv_version *v, int level, size_t count,
			   const kv_fileno *numbers)
{
	uint64_t bytes = 0;

	ck_assert_uint_eq(v->levels[level].count, count);
	for (size_t i = 0; i < count; i++) {
		ck_assert_uint_eq(v->levels[level].tables[i]->meta.number, numbers[i]);
		bytes += v->levels[level].tables[i]->meta.file_bytes;
	}
	ck_assert_uint_eq(v->levels[level].bytes, bytes);
}

#define NUMBERS(...)                                                     \
	sizeof((kv_fileno[]){ __VA_ARGS__ }) / sizeof(kv_fileno), (kv_fileno[]){ __VA_ARGS__ }

UNIT(levels_are_in_order)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_edit e = { 0 };

	ck_ok(change(&v, &e));
	for (int l = 0; l < KV_LEVELS; l++)
		ck_assert_uint_eq(v->levels[l].count, 0);
	edit_add(&e, 0, 10, "a", "z", 100);
	edit_add(&e, 0, 12, "b", "y", 300);
	edit_add(&e, 0, 11, "a", "c", 200);
	edit_add(&e, 0, 13, "a", "c", 200);
	edit_add(&e, 1, 20, "m", "p", 50);
	edit_add(&e, 1, 21, "a", "c", 50);
	ck_ok(change(&v, &e));
	assert_numbers(v, 0, NUMBERS(12, 13, 11, 10));
	assert_numbers(v, 1, NUMBERS(21, 20));
	edit_add(&e, 0, 14, "a", "c", 150);
	edit_add(&e, 1, 22, "d", "e", 50);
	edit_add(&e, 1, 23, "q", "r", 50);
	edit_add(&e, 1, 24, "0", "1", 50);
	ck_ok(kv_edit_delete_table(&e, 1, 21));
	ck_ok(change(&v, &e));
	assert_numbers(v, 0, NUMBERS(12, 13, 11, 14, 10));
	assert_numbers(v, 1, NUMBERS(24, 22, 20, 23));
}
UNIT_END

UNIT(deep_levels_do_not_overlap)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_sst_meta m = make_meta(30, "a", "c", 1, 2);
	struct kv_edit e = { 0 };

	edit_add(&e, 1, 20, "c", "f", 50);
	ck_ok(change(&v, &e));
	ck_ok(kv_edit_add_table(&e, 1, &m));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record); /* both have c */
	edit_add(&e, 1, 21, "f", "g", 50);
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	edit_add(&e, 1, 21, "d", "e", 50);
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	edit_add(&e, 1, 21, "a", "z", 50);
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	edit_add(&e, 2, 21, "a", "z", 50);
	ck_ok(change(&v, &e));

	/* A tombstone that ends at c does not have c. */
	make_exclusive(&m, "c");
	ck_ok(kv_edit_add_table(&e, 1, &m));
	ck_ok(change(&v, &e));
	assert_numbers(v, 1, NUMBERS(30, 20));
	kv_sst_meta_done(&m);
}
UNIT_END

UNIT(tables_are_added_and_deleted_once)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_edit e = { 0 };

	edit_add(&e, 1, 20, "a", "b", 50);
	edit_add(&e, 1, 20, "c", "d", 50);
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	edit_add(&e, 1, 20, "a", "b", 50);
	ck_ok(change(&v, &e));
	edit_add(&e, 2, 20, "a", "b", 50);
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_delete_table(&e, 1, 21));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_delete_table(&e, 2, 20));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_delete_table(&e, 1, 20));
	ck_ok(kv_edit_delete_table(&e, 1, 20));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_delete_table(&e, KV_LEVELS, 20));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	edit_add(&e, KV_LEVELS, 22, "a", "b", 50);
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_delete_table(&e, 1, 20));
	ck_ok(change(&v, &e));
	ck_assert_uint_eq(v->levels[1].count, 0);
	ck_assert_uint_eq(v->levels[1].bytes, 0);
}
UNIT_END

enum bad_meta {
	NO_NUMBER,
	NO_BYTES,
	SEQNOS_SWAPPED,
	SEQNO_TOO_BIG,
	NO_SMALLEST,
	SHORT_LARGEST,
	KEYS_SWAPPED,
	REFS_SWAPPED,
	REFS_TWICE,
	REF_ZERO,
	GOOD,
};

static struct kv_sst_meta make_bad_meta(enum bad_meta what)
{
	struct kv_sst_meta m = make_meta(what == NO_NUMBER ? 0 : 5, "b", "c", 4, 5);

	if (what == NO_BYTES)
		m.file_bytes = 0;
	if (what == SEQNOS_SWAPPED)
		m.seqno_min = 6;
	if (what == SEQNO_TOO_BIG)
		m.seqno_max = KV_SEQNO_MAX + 1;
	if (what == NO_SMALLEST)
		kv_buf_reset(&m.smallest);
	if (what == SHORT_LARGEST)
		m.largest.bytes = KV_IKEY_TRAILER_BYTES - 1;
	if (what == KEYS_SWAPPED)
		kv_buf_swap(&m.smallest, &m.largest);
	if (what == REF_ZERO)
		make_ref(&m, 0, 1);
	if (what == REFS_SWAPPED)
		make_ref(&m, 2, 1);
	make_ref(&m, 1, 1);
	if (what == REFS_TWICE)
		make_ref(&m, 1, 1);
	return m;
}

UNIT(metas_are_checked)
{
	for (int what = 0; what <= GOOD; what++) {
		KV_AUTO(unrefp) struct kv_version *v = NULL;
		struct kv_sst_meta m = make_bad_meta((enum bad_meta)what);
		struct kv_edit e = { 0 };

		ck_ok(kv_edit_add_segment(&e, 1));
		ck_ok(kv_edit_add_segment(&e, 2));
		ck_ok(kv_edit_add_table(&e, 1, &m));
		ck_assert_msg(change(&v, &e) == (what == GOOD ? 0 : KV_E_bad_record), "case %d",
			      what);
		kv_sst_meta_done(&m);
	}
}
UNIT_END

static void edit_add_with_ref(struct kv_edit *e, int level, kv_fileno number, const char *key,
			      kv_fileno segment_no, uint64_t bytes)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = make_meta(number, key, key, 5, 5);

	make_ref(&m, segment_no, bytes);
	ck_ok(kv_edit_add_table(e, level, &m));
}

static void assert_segment(const struct kv_version *v, kv_fileno number, uint64_t referenced,
			   uint64_t tables)
{
	struct kv_version_segment *s = kv_version_segment(v, number);

	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(s->number, number);
	ck_assert_uint_eq(s->segment->number, number);
	ck_assert_uint_eq(s->referenced_bytes, referenced);
	ck_assert_uint_eq(s->table_count, tables);
}

UNIT(references_are_counted)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_edit e = { 0 };

	edit_add_with_ref(&e, 1, 20, "a", 7, 100);
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record); /* not registered */
	ck_ok(kv_edit_add_segment(&e, 9));
	ck_ok(kv_edit_add_segment(&e, 7));
	edit_add_with_ref(&e, 1, 20, "a", 7, 100);
	edit_add_with_ref(&e, 1, 21, "b", 7, 0);
	edit_add_with_ref(&e, 0, 22, "b", 7, 23);
	ck_ok(change(&v, &e));
	assert_segment(v, 7, 123, 3);
	assert_segment(v, 9, 0, 0);
	ck_assert_ptr_null(kv_version_segment(v, 8));
	ck_assert_ptr_null(kv_version_segment(v, 10));

	edit_add_with_ref(&e, 0, 23, "b", 7, UINT64_MAX - 100);
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);

	ck_ok(kv_edit_delete_table(&e, 1, 20));
	ck_ok(kv_edit_delete_table(&e, 0, 22));
	ck_ok(kv_edit_delete_segment(&e, 7));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record); /* one refers to it, though to no byte */
	ck_ok(kv_edit_delete_table(&e, 1, 20));
	ck_ok(kv_edit_delete_table(&e, 0, 22));
	ck_ok(change(&v, &e));
	assert_segment(v, 7, 0, 1);
	ck_ok(kv_edit_delete_table(&e, 1, 21));
	ck_ok(kv_edit_delete_segment(&e, 7));
	ck_ok(change(&v, &e));
	ck_assert_ptr_null(kv_version_segment(v, 7));
	assert_segment(v, 9, 0, 0);
	ck_assert_uint_eq(v->segment_count, 1);
}
UNIT_END

UNIT(segments_live_once)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_edit e = { 0 };

	ck_ok(kv_edit_seal_segment(&e, 7, 100));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_delete_segment(&e, 7));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_add_segment(&e, 0));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_add_segment(&e, 7));
	ck_ok(kv_edit_add_segment(&e, 7));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_add_segment(&e, 7));
	ck_ok(kv_edit_delete_segment(&e, 7));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);

	ck_ok(kv_edit_add_segment(&e, 7));
	ck_ok(change(&v, &e));
	ck_ok(kv_edit_add_segment(&e, 7));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_assert(!kv_version_segment(v, 7)->sealed);
	ck_ok(kv_edit_seal_segment(&e, 7, 100));
	ck_ok(kv_edit_add_segment(&e, 8));
	ck_ok(change(&v, &e));
	ck_assert(kv_version_segment(v, 7)->sealed);
	ck_assert_uint_eq(kv_version_segment(v, 7)->bytes, 100);
	ck_ok(kv_edit_seal_segment(&e, 7, 100));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_delete_segment(&e, 7));
	ck_ok(kv_edit_delete_segment(&e, 7));
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
	ck_ok(kv_edit_delete_segment(&e, 7));
	ck_ok(change(&v, &e));
	ck_assert_uint_eq(v->segment_count, 1);
}
UNIT_END

UNIT(a_snapshot_edit_comes_first)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_edit e = { .is_snapshot = true };

	ck_ok(kv_edit_add_segment(&e, 7));
	ck_ok(change(&v, &e));
	e.is_snapshot = true;
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);
}
UNIT_END

static void assert_gone(size_t count, enum kv_file_kind kind, kv_fileno number)
{
	ck_assert_uint_eq(gone.count, count);
	for (size_t i = 0; i < count; i++)
		if (gone.at[i].kind == kind && gone.at[i].number == number)
			return;
	ck_assert_msg(!count, "%d %lu is not gone", (int)kind, (unsigned long)number);
}

UNIT(deleted_files_go_with_the_last_version)
{
	struct kv_version *v = NULL, *old;
	struct kv_edit e = { 0 };

	edit_add(&e, 1, 20, "a", "b", 50);
	edit_add(&e, 1, 21, "c", "d", 50);
	ck_ok(kv_edit_add_segment(&e, 7));
	ck_ok(kv_edit_add_segment(&e, 8));
	ck_ok(change(&v, &e));
	old = kv_version_ref(v);
	ck_ok(kv_edit_delete_table(&e, 1, 20));
	ck_ok(kv_edit_delete_segment(&e, 7));
	ck_ok(change(&v, &e));
	edit_add(&e, 1, 22, "e", "f", 50);
	ck_ok(change(&v, &e));
	ck_assert_uint_eq(gone.count, 0);
	kv_version_unref(old);
	assert_gone(2, KV_FILE_TABLE, 20);
	assert_gone(2, KV_FILE_SEGMENT, 7);

	/* Letting go of everything is no deletion. */
	kv_version_unref(v);
	ck_assert_uint_eq(gone.count, 2);
}
UNIT_END

UNIT(without_an_older_version_they_go_at_once)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_edit e = { 0 };

	edit_add(&e, 1, 20, "a", "b", 50);
	ck_ok(change(&v, &e));
	ck_ok(kv_edit_delete_table(&e, 1, 20));
	ck_ok(change(&v, &e));
	assert_gone(1, KV_FILE_TABLE, 20);
}
UNIT_END

UNIT(a_moved_table_lives_on)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_edit e = { 0 };
	struct kv_table *t;

	ck_ok(kv_edit_add_segment(&e, 7));
	edit_add_with_ref(&e, 1, 20, "a", 7, 100);
	ck_ok(change(&v, &e));
	t = v->levels[1].tables[0];
	ck_ok(kv_edit_delete_table(&e, 1, 20));
	ck_ok(kv_edit_add_table(&e, 2, &t->meta));
	ck_ok(change(&v, &e));
	ck_assert_uint_eq(v->levels[1].count, 0);
	assert_numbers(v, 2, NUMBERS(20));
	ck_assert_ptr_eq(v->levels[2].tables[0], t);
	ck_assert_uint_eq(gone.count, 0);
	assert_segment(v, 7, 100, 1);

	/* And up again; but not as another one. */
	ck_ok(kv_edit_delete_table(&e, 2, 20));
	ck_ok(kv_edit_add_table(&e, 1, &t->meta));
	ck_ok(change(&v, &e));
	ck_ok(kv_edit_delete_table(&e, 1, 20));
	edit_add(&e, 2, 20, "x", "y", 5);
	ck_assert_int_eq(change(&v, &e), KV_E_bad_record);

	ck_ok(kv_edit_delete_table(&e, 1, 20));
	ck_ok(change(&v, &e));
	assert_gone(1, KV_FILE_TABLE, 20);
	assert_segment(v, 7, 0, 0);
}
UNIT_END

UNIT(an_edit_that_was_not_installed_deletes_nothing)
{
	struct kv_version *v = NULL, *next;
	struct kv_edit e = { 0 };

	edit_add(&e, 1, 20, "a", "b", 50);
	ck_ok(change(&v, &e));
	ck_ok(kv_edit_delete_table(&e, 1, 20));
	edit_add(&e, 1, 21, "a", "b", 50);
	ck_ok(kv_version_apply(v, &e, &sink, &next));
	kv_version_unref(next);
	kv_version_unref(v);
	kv_edit_done(&e);
	ck_assert_uint_eq(gone.count, 0);
}
UNIT_END

UNIT(a_version_becomes_an_edit_and_back)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	KV_AUTO(unrefp) struct kv_version *copy = NULL;
	struct kv_edit e = { 0 };

	ck_ok(kv_edit_add_segment(&e, 9));
	ck_ok(kv_edit_add_segment(&e, 7));
	ck_ok(kv_edit_seal_segment(&e, 7, 4711));
	edit_add_with_ref(&e, 0, 20, "a", 7, 100);
	edit_add_with_ref(&e, 1, 22, "m", 7, 100);
	edit_add_with_ref(&e, 1, 21, "a", 9, 10);
	edit_add(&e, KV_LEVELS - 1, 23, "a", "z", 4);
	ck_ok(change(&v, &e));
	ck_ok(kv_version_to_edit(v, &e));
	ck_assert(e.is_snapshot);
	ck_ok(change(&copy, &e));
	assert_numbers(copy, 0, NUMBERS(20));
	assert_numbers(copy, 1, NUMBERS(21, 22));
	assert_numbers(copy, KV_LEVELS - 1, NUMBERS(23));
	assert_segment(copy, 7, 200, 2);
	assert_segment(copy, 9, 10, 1);
	ck_assert(kv_version_segment(copy, 7)->sealed);
	ck_assert_uint_eq(kv_version_segment(copy, 7)->bytes, 4711);
	ck_assert(!kv_version_segment(copy, 9)->sealed);
}
UNIT_END

static bool overlaps(const struct kv_version *v, int level, const char *begin, const char *end)
{
	return kv_level_overlaps(&v->levels[level], level,
				 begin ? kv_slice_str(begin) : kv_slice(NULL, 0),
				 end ? kv_slice_str(end) : kv_slice(NULL, 0));
}

UNIT(tables_are_found_by_key)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_sst_meta m = make_meta(20, "b", "d", 1, 2);
	struct kv_edit e = { 0 };
	const struct kv_level *l;

	make_exclusive(&m, "d");
	for (int level = 0; level < 2; level++) {
		m.number = 20 + (kv_fileno)level;
		ck_ok(kv_edit_add_table(&e, level, &m));
		edit_add(&e, level, 22 + (kv_fileno)level, "d", "f", 1);
		edit_add(&e, level, 24 + (kv_fileno)level, "k", "m", 1);
	}
	ck_ok(change(&v, &e));
	kv_sst_meta_done(&m);
	l = &v->levels[1];
	ck_assert_uint_eq(kv_level_find(l, kv_slice_str("a")), 0);
	ck_assert_uint_eq(kv_level_find(l, kv_slice_str("b")), 0);
	ck_assert_uint_eq(kv_level_find(l, kv_slice_str("czz")), 0);
	ck_assert_uint_eq(kv_level_find(l, kv_slice_str("d")), 1);
	ck_assert_uint_eq(kv_level_find(l, kv_slice_str("f")), 1);
	ck_assert_uint_eq(kv_level_find(l, kv_slice_str("f1")), 2);
	ck_assert_uint_eq(kv_level_find(l, kv_slice_str("m")), 2);
	ck_assert_uint_eq(kv_level_find(l, kv_slice_str("n")), 3);
	ck_assert_uint_eq(kv_level_find(&v->levels[2], kv_slice_str("n")), 0);
	for (int level = 0; level < 2; level++) {
		ck_assert(overlaps(v, level, NULL, NULL));
		ck_assert(overlaps(v, level, "a", "b"));
		ck_assert(!overlaps(v, level, "a", "azz"));
		ck_assert(overlaps(v, level, NULL, "b"));
		ck_assert(!overlaps(v, level, NULL, "a"));
		ck_assert(!overlaps(v, level, "g", "j"));
		ck_assert(overlaps(v, level, "g", "k"));
		ck_assert(overlaps(v, level, "m", NULL));
		ck_assert(!overlaps(v, level, "n", NULL));
		ck_assert(overlaps(v, level, "a", "z"));
	}
	ck_assert(!overlaps(v, 2, NULL, NULL));
}
UNIT_END

UNIT(the_end_of_a_tombstone_does_not_overlap)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_sst_meta m = make_meta(20, "b", "d", 1, 2);
	struct kv_edit e = { 0 };

	make_exclusive(&m, "d");
	ck_ok(kv_edit_add_table(&e, 0, &m));
	m.number++;
	ck_ok(kv_edit_add_table(&e, 1, &m));
	kv_sst_meta_done(&m);
	ck_ok(change(&v, &e));
	for (int level = 0; level < 2; level++) {
		ck_assert(!overlaps(v, level, "d", NULL));
		ck_assert(overlaps(v, level, "c", NULL));
	}
}
UNIT_END

#define MODEL_TABLES 40

struct model {
	bool there;
	int level, from, to;
};

static void model_keys(const struct model *m, char *from, char *to)
{
	snprintf(from, 16, "%03d", m->from);
	snprintf(to, 16, "%03d", m->to);
}

static bool model_is_free(const struct model *models, const struct model *m)
{
	for (int i = 0; i < MODEL_TABLES; i++)
		if (models[i].there && models[i].level == m->level && m->level &&
		    models[i].from <= m->to && m->from <= models[i].to)
			return false;
	return true;
}

static void assert_model(const struct kv_version *v, const struct model *models)
{
	size_t count = 0, there = 0;

	for (int l = 0; l < KV_LEVELS; l++)
		count += v->levels[l].count;
	for (int i = 0; i < MODEL_TABLES; i++)
		there += models[i].there;
	ck_assert_uint_eq(count, there);
	for (int l = 1; l < KV_LEVELS; l++)
		for (int key = 0; key < 100; key++) {
			char text[16];
			size_t at;
			int want = -1;

			for (int i = 0; i < MODEL_TABLES; i++)
				if (models[i].there && models[i].level == l &&
				    models[i].from <= key && key <= models[i].to)
					want = i;
			snprintf(text, sizeof(text), "%03d", key);
			at = kv_level_find(&v->levels[l], kv_slice_str(text));
			if (want >= 0)
				ck_assert_uint_eq(v->levels[l].tables[at]->meta.number,
						  (kv_fileno)want + 1);
			ck_assert_int_eq(overlaps(v, l, text, text), want >= 0);
		}
}

UNIT(random_edits_agree_with_a_model)
{
	const char *env = getenv("SEED");
	unsigned seed = env ? (unsigned)strtoul(env, NULL, 0) : (unsigned)time(NULL);
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct model models[MODEL_TABLES] = { 0 };
	struct kv_edit e = { 0 };
	int refused = 0;

	printf("SEED=%u\n", seed);
	srand(seed);
	ck_ok(kv_version_apply(NULL, &e, NULL, &v));
	for (int round = 0; round < 2000; round++) {
		int i = rand() % MODEL_TABLES, err;
		struct kv_version *next;
		struct model m = { .there = true, .level = rand() % 4, .from = rand() % 100 };
		bool want = true;
		char from[16], to[16];

		m.to = KV_MIN(99, m.from + rand() % 12);
		if (models[i].there) {
			ck_ok(kv_edit_delete_table(&e, models[i].level, (kv_fileno)i + 1));
			m.there = false;
		} else {
			want = model_is_free(models, &m);
			model_keys(&m, from, to);
			edit_add(&e, m.level, (kv_fileno)i + 1, from, to, (kv_seqno)round + 1);
		}
		err = kv_version_apply(v, &e, NULL, &next);
		kv_edit_done(&e);
		ck_assert_int_eq(err, want ? 0 : KV_E_bad_record);
		refused += !want;
		if (err)
			continue;
		models[i] = m;
		kv_version_unref(v);
		v = next;
		if (round % 20 == 0)
			assert_model(v, models);
	}
	ck_assert_int_gt(refused, 0);
}
UNIT_END

/* --- versions of tables that exist --------------------------------------------------------- */

struct entry {
	const char *key;
	kv_seqno seqno;
	enum kv_kind kind;	/* DELETE_RANGE: value is the end */
	const char *value;
};

static struct tmpstore t;
static struct kv_cache *cache;
static struct kv_filecache *files;
static _Atomic uint64_t counter;
static const struct kv_sst_counters counters = { &counter, &counter, &counter };

static void files_init(void)
{
	tmpstore_init(&t);
	cache = kv_cache_new(KV_MIB);
	ck_assert_ptr_nonnull(cache);
	files = kv_filecache_new(&t.store, cache, &counters, 4);
	ck_assert_ptr_nonnull(files);
}

static void files_done(void)
{
	kv_filecache_free(files);
	kv_cache_free(cache);
	tmpstore_done(&t);
}

/* Builds a table of the entries, up to one without key, and adds it to the edit. */
static void build(struct kv_edit *e, int level, kv_fileno number, const struct entry *entries)
{
	static const struct kv_sst_options options = { .block_bytes = 256,
						       .filter_bits_per_key = 10 };
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta meta = { 0 };
	KV_AUTO(kv_buf_done) struct kv_buf ikey = KV_BUF_INIT;
	struct kv_sst_build *b;

	ck_ok(kv_sst_build_new(&t.store, number, &options, &b));
	for (; entries->key; entries++) {
		struct kv_slice value = kv_slice_str(entries->value);

		if (entries->kind == KV_KIND_DELETE_RANGE) {
			struct kv_rangedel r = { kv_slice_str(entries->key), value, entries->seqno };

			ck_ok(kv_sst_build_add_rangedel(b, &r));
			continue;
		}
		kv_buf_reset(&ikey);
		ck_ok(kv_ikey_make(&ikey, kv_slice_str(entries->key), entries->seqno,
				   entries->kind));
		ck_ok(kv_sst_build_add(b, kv_buf_slice(&ikey), value));
	}
	ck_ok(kv_sst_build_finish(b, &meta));
	kv_sst_build_free(b);
	ck_ok(kv_edit_add_table(e, level, &meta));
}

/* want: the value, "-" for a delete, NULL for nothing. */
static void assert_get(const struct kv_version *v, const char *key, kv_seqno snapshot,
		       const char *want, kv_seqno want_covered)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	struct kv_found found = { .found = true };
	kv_seqno covered = 0;

	ck_ok(kv_version_get(v, files, kv_slice_str(key), snapshot, &found, &covered, &pin));
	ck_assert_uint_eq(covered, want_covered);
	ck_assert_msg(found.found == !!want, "%s at %lu", key, (unsigned long)snapshot);
	if (want && strcmp(want, "-")) {
		ck_assert_int_eq(found.kind, KV_KIND_PUT);
		ck_assert_msg(kv_slice_eq(found.value, kv_slice_str(want)), "%s at %lu", key,
			      (unsigned long)snapshot);
	} else if (want) {
		ck_assert_int_eq(found.kind, KV_KIND_DELETE);
	}
}

#define PUT KV_KIND_PUT
#define END { NULL, 0, PUT, NULL }

UNIT(gets_go_from_new_to_old)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_edit e = { 0 };

	files_init();
	build(&e, 0, 10, (struct entry[]){ { "a", 50, PUT, "a50" }, { "c", 51, PUT, "c51" }, END });
	build(&e, 0, 11, (struct entry[]){ { "a", 60, KV_KIND_DELETE, "" },
					   { "b", 61, PUT, "b61" }, END });
	build(&e, 1, 5, (struct entry[]){ { "a", 30, PUT, "a30" }, { "b", 31, PUT, "b31" }, END });
	build(&e, 1, 6, (struct entry[]){ { "d", 35, PUT, "d35" }, { "d", 34, PUT, "d34" },
					  { "f", 36, PUT, "" }, END });
	build(&e, 3, 2, (struct entry[]){ { "a", 1, PUT, "a1" }, { "e", 2, PUT, "e2" },
					  { "z", 3, PUT, "z3" }, END });
	ck_ok(change(&v, &e));
	assert_get(v, "a", 100, "-", 0);
	assert_get(v, "a", 59, "a50", 0);
	assert_get(v, "a", 49, "a30", 0);
	assert_get(v, "a", 29, "a1", 0);
	assert_get(v, "a", 0, NULL, 0);
	assert_get(v, "b", 100, "b61", 0);
	assert_get(v, "b", 60, "b31", 0);
	assert_get(v, "c", 100, "c51", 0);
	assert_get(v, "d", 100, "d35", 0);
	assert_get(v, "d", 34, "d34", 0);
	assert_get(v, "f", 100, "", 0);
	assert_get(v, "e", 100, "e2", 0);
	assert_get(v, "z", 100, "z3", 0);
	assert_get(v, "0", 100, NULL, 0);
	assert_get(v, "bb", 100, NULL, 0);
	assert_get(v, "zz", 100, NULL, 0);
	files_done();
}
UNIT_END

UNIT(tombstones_cover_up_to_their_end)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_edit e = { 0 };

	files_init();
	/* The second table begins with the key before which the first one's tombstone ends. */
	build(&e, 1, 5, (struct entry[]){ { "a", 30, PUT, "a30" },
					  { "b", 40, KV_KIND_DELETE_RANGE, "d" }, END });
	build(&e, 1, 6, (struct entry[]){ { "d", 35, PUT, "d35" }, END });
	build(&e, 2, 2, (struct entry[]){ { "a", 1, PUT, "a1" }, { "b", 2, PUT, "b2" },
					  { "c", 3, PUT, "c3" }, { "d", 4, PUT, "d4" }, END });
	ck_ok(change(&v, &e));
	assert_get(v, "a", 100, "a30", 0);
	assert_get(v, "b", 100, NULL, 40);
	assert_get(v, "c", 100, NULL, 40);
	assert_get(v, "c", 39, "c3", 0);
	assert_get(v, "d", 100, "d35", 0);
	assert_get(v, "d", 34, "d4", 0);
	files_done();
}
UNIT_END

UNIT(tombstones_of_a_level_are_one)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_rangedels *r, *again;
	struct kv_edit e = { 0 };

	files_init();
	build(&e, 1, 5, (struct entry[]){ { "b", 40, KV_KIND_DELETE_RANGE, "d" }, END });
	build(&e, 1, 6, (struct entry[]){ { "d", 35, PUT, "d35" }, END });
	build(&e, 1, 7, (struct entry[]){ { "m", 41, KV_KIND_DELETE_RANGE, "p" },
					  { "n", 50, KV_KIND_DELETE_RANGE, "o" }, END });
	build(&e, 2, 8, (struct entry[]){ { "d", 3, PUT, "d3" }, END });
	ck_ok(change(&v, &e));
	ck_ok(kv_version_level_rangedels(v, 1, files, &r));
	ck_assert_ptr_nonnull(r);
	ck_assert_uint_eq(kv_rangedels_covering(r, kv_slice_str("c"), 100), 40);
	ck_assert_uint_eq(kv_rangedels_covering(r, kv_slice_str("d"), 100), 0);
	ck_assert_uint_eq(kv_rangedels_covering(r, kv_slice_str("n"), 100), 50);
	ck_assert_uint_eq(kv_rangedels_covering(r, kv_slice_str("n"), 49), 41);
	ck_ok(kv_version_level_rangedels(v, 1, files, &again));
	ck_assert_ptr_eq(r, again);
	ck_ok(kv_version_level_rangedels(v, 2, files, &r));
	ck_assert_ptr_null(r);
	ck_ok(kv_version_level_rangedels(v, 3, files, &r));
	ck_assert_ptr_null(r);
	unrefp(&v);	/* it is charged to the cache */
	v = NULL;
	files_done();
}
UNIT_END

UNIT(a_missing_table_is_an_error_each_time)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_found found;
	struct kv_sst_pin pin = { 0 };
	struct kv_rangedels *r;
	kv_seqno covered = 0;
	struct kv_edit e = { 0 };

	files_init();
	build(&e, 1, 5, (struct entry[]){ { "b", 40, KV_KIND_DELETE_RANGE, "d" }, END });
	ck_ok(change(&v, &e));
	ck_ok(kv_store_unlink(&t.store, KV_FILE_TABLE, 5));
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(kv_version_level_rangedels(v, 1, files, &r), KV_E_missing_file);
		ck_assert_int_eq(kv_version_get(v, files, kv_slice_str("c"), 100, &found, &covered,
						&pin), KV_E_missing_file);
	}
	files_done();
}
UNIT_END

UNIT_MAIN("version", levels_are_in_order, deep_levels_do_not_overlap,
	  tables_are_added_and_deleted_once, metas_are_checked, references_are_counted,
	  segments_live_once, a_snapshot_edit_comes_first, deleted_files_go_with_the_last_version,
	  without_an_older_version_they_go_at_once, a_moved_table_lives_on,
	  an_edit_that_was_not_installed_deletes_nothing, a_version_becomes_an_edit_and_back,
	  tables_are_found_by_key, the_end_of_a_tombstone_does_not_overlap,
	  random_edits_agree_with_a_model, gets_go_from_new_to_old,
	  tombstones_cover_up_to_their_end, tombstones_of_a_level_are_one,
	  a_missing_table_is_an_error_each_time)
