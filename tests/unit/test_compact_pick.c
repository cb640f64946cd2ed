#include "kv/compact.h"
#include "tests/unit/tmpstore.h"
#include "tests/unit/unit.h"

static const struct kv_pick_options options = {
	.level_base_bytes = 10000,
	.table_bytes = 1000,
	.oldest_snapshot = 1000,
};

static const struct kv_slice none = { NULL, 0 };

/* A table of 1000 bytes with the user keys [from, to], newer the larger its number is. */
static struct kv_sst_meta make(kv_fileno number, const char *from, const char *to)
{
	struct kv_sst_meta m = {
		.number = number,
		.file_bytes = 1000,
		.entries = 100,
		.seqno_min = number * 10,
		.seqno_max = number * 10 + 9,
	};

	ck_ok(kv_ikey_make(&m.smallest, kv_slice_str(from), m.seqno_max, KV_KIND_PUT));
	ck_ok(kv_ikey_make(&m.largest, kv_slice_str(to), m.seqno_min, KV_KIND_PUT));
	return m;
}

static void add(struct kv_edit *e, int level, kv_fileno number, const char *from, const char *to)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = make(number, from, to);

	ck_ok(kv_edit_add_table(e, level, &m));
}

/* One that ends with a range tombstone, before the key `end`. */
static void add_open(struct kv_edit *e, int level, kv_fileno number, const char *from,
		     const char *end)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = make(number, from, from);

	kv_buf_reset(&m.largest);
	m.range_deletes = 1;
	m.entries = 100000;
	ck_ok(kv_ikey_make(&m.largest, kv_slice_str(end), KV_SEQNO_MAX, KV_KIND_DELETE_RANGE));
	ck_ok(kv_edit_add_table(e, level, &m));
}

static void add_dense(struct kv_edit *e, int level, kv_fileno number, const char *from,
		      const char *to)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = make(number, from, to);

	m.deletes = 50;
	ck_ok(kv_edit_add_table(e, level, &m));
}

/* One that refers to so much in segment 1, which the edit must add. */
static void add_refs(struct kv_edit *e, int level, kv_fileno number, const char *from,
		     const char *to, uint64_t bytes)
{
	struct kv_segment_ref ref = { 1, bytes };
	struct kv_sst_meta m = make(number, from, to);

	m.refs = &ref;
	m.ref_count = 1;
	ck_ok(kv_edit_add_table(e, level, &m));
	m.refs = NULL;
	kv_sst_meta_done(&m);
}

static struct kv_version *version(struct kv_edit *e)
{
	struct kv_version *v;

	ck_ok(kv_version_apply(NULL, e, NULL, &v));
	kv_edit_done(e);
	*e = (struct kv_edit){ 0 };
	return v;
}

static struct kv_table *table(struct kv_version *v, kv_fileno number)
{
	for (int l = 0; l < KV_LEVELS; l++)
		for (size_t i = 0; i < v->levels[l].count; i++)
			if (v->levels[l].tables[i]->meta.number == number)
				return v->levels[l].tables[i];
	ck_abort_msg("no such table");
	return NULL;
}

/* The numbers of the tables, in order; '|' between the levels, '>' in front of a move, '=' in place. */
static const char *text(const struct kv_pick *p)
{
	static char s[256];
	size_t n = 0;

	s[0] = 0;
	if (p->move)
		s[n++] = '>';
	else if (p->upper_count && p->level == p->output_level)
		s[n++] = '=';
	for (size_t i = 0; i < p->upper_count + p->lower_count; i++)
		n += (size_t)snprintf(s + n, sizeof(s) - n, "%s%llu",
				      i == p->upper_count ? "|" : i ? " " : "",
				      (unsigned long long)p->tables[i]->meta.number);
	return s;
}

static void expect_auto(struct kv_version *v, const struct kv_pick_options *o, const char *want)
{
	KV_AUTO(kv_pick_done) struct kv_pick p;

	ck_ok(kv_pick_auto(v, o, &p));
	ck_assert_str_eq(text(&p), want);
}

UNIT(a_small_store_has_nothing_to_do)
{
	struct kv_edit e = { 0 };
	struct kv_version *v = version(&e);

	expect_auto(v, &options, "");
	kv_version_unref(v);
	for (kv_fileno i = 1; i <= KV_LEVEL0_TABLES_COMPACT - 1; i++)
		add(&e, 0, i, "a", "z");
	add(&e, 1, 10, "a", "c");
	add(&e, 2, 11, "a", "c");
	v = version(&e);
	expect_auto(v, &options, "");
	kv_version_unref(v);
}
UNIT_END

UNIT(level_0_goes_with_all_that_it_overlaps)
{
	struct kv_edit e = { 0 };
	struct kv_version *v;

	add(&e, 1, 1, "a", "b");
	add(&e, 1, 2, "c", "d");
	add(&e, 1, 3, "g", "h");
	add(&e, 0, 4, "c", "e");
	add(&e, 0, 5, "x", "z");	/* shares nothing with the others */
	add(&e, 0, 6, "e", "f");
	add(&e, 0, 7, "f", "f");
	v = version(&e);
	expect_auto(v, &options, "7 6 4|2");
	table(v, 3)->busy = true;
	expect_auto(v, &options, "7 6 4|2");
	table(v, 2)->busy = true;
	expect_auto(v, &options, "");
	table(v, 2)->busy = false;
	table(v, 5)->busy = true;	/* one at a time takes tables of level 0 */
	expect_auto(v, &options, "");
	kv_version_unref(v);
}
UNIT_END

UNIT(the_cheapest_table_of_a_full_level_goes)
{
	struct kv_edit e = { 0 };
	struct kv_pick_options o = options;
	struct kv_version *v;

	o.level_base_bytes = 2500;
	add(&e, 1, 1, "a", "b");
	add(&e, 1, 2, "c", "d");
	add(&e, 1, 3, "e", "f");
	add(&e, 2, 4, "a", "a5");
	add(&e, 2, 5, "b", "b5");
	add(&e, 2, 6, "c5", "e5");
	v = version(&e);
	expect_auto(v, &o, "2|6");
	table(v, 2)->busy = table(v, 6)->busy = true;
	expect_auto(v, &o, "");			/* what leaves already isn't counted */
	o.level_base_bytes = 1000;
	expect_auto(v, &o, "1|4 5");
	kv_version_unref(v);
}
UNIT_END

UNIT(equally_cheap_tables_take_turns)
{
	struct kv_edit e = { 0 };
	struct kv_pick_options o = options;
	struct kv_version *v;

	o.level_base_bytes = 1000;
	add(&e, 1, 1, "a", "b");
	add(&e, 1, 2, "c", "d");
	add(&e, 1, 3, "e", "f");
	v = version(&e);
	expect_auto(v, &o, ">1");
	o.pointers[1] = kv_slice_str("a");
	expect_auto(v, &o, ">2");
	o.pointers[1] = kv_slice_str("e");
	expect_auto(v, &o, ">1");
	kv_version_unref(v);
}
UNIT_END

UNIT(a_table_that_ends_before_a_key_does_not_overlap_it)
{
	struct kv_edit e = { 0 };
	struct kv_pick_options o = options;
	struct kv_version *v;

	o.level_base_bytes = 900;
	add_open(&e, 1, 1, "a", "c");
	add(&e, 2, 2, "c", "d");
	v = version(&e);
	/* Not moved: nothing below is left for the tombstone to hide. */
	expect_auto(v, &o, "1");
	kv_version_unref(v);
	add_open(&e, 1, 1, "a", "c");
	add(&e, 2, 2, "b", "d");
	add(&e, 3, 3, "a", "z");
	v = version(&e);
	expect_auto(v, &o, "1|2");
	kv_version_unref(v);
}
UNIT_END

UNIT(a_table_is_not_moved_above_too_much)
{
	char from[8], to[8];
	struct kv_edit e = { 0 };
	struct kv_pick_options o = options;
	struct kv_version *v;

	o.level_base_bytes = 500;
	add(&e, 1, 1, "a", "z");
	for (kv_fileno i = 0; i < KV_GRANDPARENT_FACTOR; i++) {
		snprintf(from, sizeof(from), "b%02u", (unsigned)i);
		snprintf(to, sizeof(to), "b%02ux", (unsigned)i);
		add(&e, 3, 10 + i, from, to);
	}
	v = version(&e);
	expect_auto(v, &o, ">1");
	kv_version_unref(v);
	add(&e, 1, 1, "a", "z");
	for (kv_fileno i = 0; i <= KV_GRANDPARENT_FACTOR; i++) {
		snprintf(from, sizeof(from), "b%02u", (unsigned)i);
		snprintf(to, sizeof(to), "b%02ux", (unsigned)i);
		add(&e, 3, 10 + i, from, to);
	}
	v = version(&e);
	expect_auto(v, &o, "1");
	kv_version_unref(v);
}
UNIT_END

UNIT(tombstones_go_down_until_they_are_gone)
{
	struct kv_edit e = { 0 };
	struct kv_pick_options o = options;
	struct kv_version *v;

	add_dense(&e, 0, 1, "a", "b");
	v = version(&e);
	expect_auto(v, &o, "1");		/* written anew, without them */
	kv_version_unref(v);

	add_dense(&e, 1, 1, "a", "c");
	add(&e, 3, 2, "b", "d");
	v = version(&e);
	expect_auto(v, &o, ">1");
	kv_version_unref(v);

	add_dense(&e, 2, 1, "a", "c");
	add(&e, 3, 2, "b", "d");
	v = version(&e);
	expect_auto(v, &o, "1|2");
	kv_version_unref(v);

	/* Nothing is below: written anew in place, as soon as no snapshot needs them. */
	add_dense(&e, 3, 1, "a", "c");
	v = version(&e);
	expect_auto(v, &o, "=1");
	o.oldest_snapshot = 18;
	expect_auto(v, &o, "");
	o.oldest_snapshot = 19;
	expect_auto(v, &o, "=1");
	kv_version_unref(v);
}
UNIT_END

/* When nothing else is to do, fewer suffice; most of all, of ranges. */
UNIT(in_quiet_times_few_tombstones_go_down)
{
	struct kv_edit e = { 0 };
	struct kv_pick_options o = options;
	struct kv_version *v;

	for (int i = 0; i < 2; i++) {
		struct kv_sst_meta m = make(1, "a", "c");

		m.entries = 1600;
		m.deletes = i ? 0 : 100;
		m.range_deletes = i ? 1 : 0;
		ck_ok(kv_edit_add_table(&e, 2, &m));
		kv_sst_meta_done(&m);
		add(&e, 3, 2, "b", "d");
		v = version(&e);
		o.quiet = false;
		expect_auto(v, &o, "");
		o.quiet = true;
		expect_auto(v, &o, "1|2");
		kv_version_unref(v);
	}
}
UNIT_END

/* A small table of large values meets the one whose values it may have overwritten. */
UNIT(tables_that_may_hide_large_values_go_down)
{
	const uint64_t much = 10 * KV_MIB;
	struct kv_edit e = { 0 };
	struct kv_version *v;

	ck_ok(kv_edit_add_segment(&e, 1));
	add_refs(&e, 0, 3, "a", "c", much);
	add_refs(&e, 0, 2, "x", "z", much);
	add_refs(&e, 0, 1, "b", "d", much);
	v = version(&e);
	expect_auto(v, &options, "3 1");
	kv_version_unref(v);

	/* Also if the older values lie deeper; not where there are none, nor for what costs too much. */
	ck_ok(kv_edit_add_segment(&e, 1));
	add_refs(&e, 1, 1, "a", "c", much);
	add_refs(&e, 3, 2, "b", "d", much);
	add_refs(&e, 1, 3, "f", "g", much);
	add(&e, 3, 4, "f", "g");
	add_refs(&e, 1, 5, "h", "i", 15000);
	add_refs(&e, 3, 6, "h", "i", much);
	v = version(&e);
	expect_auto(v, &options, ">1");
	table(v, 1)->busy = true;
	expect_auto(v, &options, "");
	kv_version_unref(v);
}
UNIT_END

static void expect_range(struct kv_version *v, int level, int output_level, const char *begin,
			 const char *end, kv_fileno number_max, const char *want)
{
	KV_AUTO(kv_pick_done) struct kv_pick p;
	bool busy;

	ck_ok(kv_pick_range(v, &options, level, output_level, begin ? kv_slice_str(begin) : none,
			    end ? kv_slice_str(end) : none, number_max, &p, &busy));
	ck_assert_str_eq(busy ? "busy" : text(&p), want);
}

UNIT(a_range_by_hand)
{
	struct kv_edit e = { 0 };
	struct kv_version *v;

	add(&e, 1, 1, "a", "b");
	add(&e, 1, 2, "c", "d");
	add(&e, 1, 9, "e", "f");
	add(&e, 1, 4, "g", "h");
	add(&e, 2, 5, "b", "c");
	add(&e, 0, 6, "a", "b");
	add(&e, 0, 7, "c", "d");
	v = version(&e);
	expect_range(v, 0, 1, NULL, NULL, 100, "6|1");
	expect_range(v, 0, 1, "c", NULL, 100, "7|2");
	expect_range(v, 0, 1, "e", NULL, 100, "");
	expect_range(v, 1, 2, NULL, NULL, 100, "1 2 9 4|5");
	expect_range(v, 1, 2, NULL, NULL, 9, "1 2|5");
	expect_range(v, 1, 2, "e", NULL, 9, ">4");
	expect_range(v, 1, 1, "d", "e5", 100, "=2 9");
	expect_range(v, 2, 2, "c5", NULL, 100, "");
	expect_range(v, 3, 3, NULL, NULL, 100, "");
	table(v, 5)->busy = true;
	expect_range(v, 1, 2, "b", "b", 100, "busy");
	expect_range(v, 1, 1, "b", "b", 100, "=1");
	table(v, 6)->busy = true;
	expect_range(v, 0, 1, "c", NULL, 100, "busy");
	kv_version_unref(v);
}
UNIT_END

UNIT(a_range_by_hand_goes_in_portions)
{
	KV_AUTO(kv_pick_done) struct kv_pick p;
	char from[8], to[8];
	struct kv_edit e = { 0 };
	struct kv_version *v;
	bool busy;

	for (kv_fileno i = 0; i < 2 * KV_COMPACT_TABLES_MAX; i++) {
		snprintf(from, sizeof(from), "b%02u", (unsigned)i);
		snprintf(to, sizeof(to), "b%02ux", (unsigned)i);
		add(&e, 1, 10 + i, from, to);
	}
	v = version(&e);
	ck_ok(kv_pick_range(v, &options, 1, 2, none, none, 1000, &p, &busy));
	ck_assert_uint_eq(p.upper_count, KV_COMPACT_TABLES_MAX);
	kv_version_unref(v);
}
UNIT_END

/* --- any number of compactions at once ------------------------------------------------------- */

static void random_key(uint64_t *random, char key[8])
{
	snprintf(key, 8, "%03u", (unsigned)(tmpstore_random(random) % 1000));
}

static struct kv_version *random_version(uint64_t *random, kv_fileno *number)
{
	struct kv_edit e = { 0 };

	ck_ok(kv_edit_add_segment(&e, 1));
	for (int level = 0; level < KV_LEVELS; level++) {
		char at[8] = "";

		for (int n = (int)(tmpstore_random(random) % 8); n > 0; n--) {
			char a[8], b[8];
			int c;

			random_key(random, a);
			random_key(random, b);
			c = strcmp(a, b);
			if (c > 0 || (level && strcmp(a, at) <= 0))
				continue;
			if (c && tmpstore_random(random) % 3 == 0)
				add_open(&e, level, ++*number, a, b);
			else if (tmpstore_random(random) % 3 == 0)
				add_dense(&e, level, ++*number, a, b);
			else if (tmpstore_random(random) % 3 == 0)
				add_refs(&e, level, ++*number, a, b, KV_MIB);
			else
				add(&e, level, ++*number, a, b);
			memcpy(at, b, sizeof(at));
		}
	}
	return version(&e);
}

/* The worst outcome of a compaction: one table that reaches over all that its inputs reached over. */
static struct kv_version *carry_out(struct kv_version *v, const struct kv_pick *p,
				    kv_fileno *number)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m = { 0 };
	struct kv_version *after;

	ck_ok(kv_sst_meta_copy(&m, &p->tables[0]->meta));
	for (size_t i = 0; i < p->upper_count + p->lower_count; i++) {
		const struct kv_sst_meta *in = &p->tables[i]->meta;

		ck_ok(kv_edit_delete_table(&e, i < p->upper_count ? p->level : p->output_level,
					   in->number));
		if (kv_ikey_cmp(kv_buf_slice(&in->smallest), kv_buf_slice(&m.smallest)) < 0)
			ck_ok(kv_buf_assign(&m.smallest, kv_buf_slice(&in->smallest)));
		if (kv_ikey_cmp(kv_buf_slice(&in->largest), kv_buf_slice(&m.largest)) > 0)
			ck_ok(kv_buf_assign(&m.largest, kv_buf_slice(&in->largest)));
	}
	if (!p->move) {
		m.number = ++*number;
		m.deletes = m.range_deletes = 0;
	}
	ck_ok(kv_edit_add_table(&e, p->output_level, &m));
	ck_ok(kv_version_apply(v, &e, NULL, &after));
	kv_version_unref(v);
	return after;
}

/* Collection of garbage takes any table that isn't busy, and puts another one in its place. */
static int pick_in_place(uint64_t *random, struct kv_version *v, struct kv_pick *out)
{
	int level = (int)(tmpstore_random(random) % KV_LEVELS);
	const struct kv_level *l = &v->levels[level];
	struct kv_table *t = l->count ? l->tables[tmpstore_random(random) % l->count] : NULL;

	*out = (struct kv_pick){ 0 };
	if (!t || t->busy)
		return 0;
	*out = (struct kv_pick){ .level = level, .output_level = level, .upper_count = 1 };
	out->tables = malloc(sizeof(struct kv_table *));
	ck_assert_ptr_nonnull(out->tables);
	out->tables[0] = t;
	return 0;
}

static int pick_somehow(uint64_t *random, struct kv_version *v, const struct kv_pick_options *o,
			struct kv_pick *out)
{
	char a[8], b[8];
	bool busy;
	int level = (int)(tmpstore_random(random) % KV_LEVELS);
	int output_level = level == KV_LEVELS - 1 ? level :
			   !level ? 1 : level + (int)(tmpstore_random(random) % 2);

	if (tmpstore_random(random) % 5 == 0)
		return pick_in_place(random, v, out);
	if (tmpstore_random(random) % 3)
		return kv_pick_auto(v, o, out);
	random_key(random, a);
	random_key(random, b);
	return kv_pick_range(v, o, level, output_level, kv_slice_str(strcmp(a, b) < 0 ? a : b),
			     kv_slice_str(strcmp(a, b) < 0 ? b : a), KV_SEQNO_MAX, out, &busy);
}

UNIT(compactions_at_once_do_not_collide)
{
	uint64_t random = tmpstore_seed(1);
	struct kv_pick_options o = options;
	kv_fileno number = 0;

	o.level_base_bytes = 500;
	for (int round = 0; round < 3000; round++) {
		struct kv_version *v = random_version(&random, &number);
		struct kv_pick picks[4] = { 0 };

		for (size_t i = 0; i < KV_ARRAY_LEN(picks); i++) {
			ck_ok(pick_somehow(&random, v, &o, &picks[i]));
			for (size_t k = 0; k < picks[i].upper_count + picks[i].lower_count; k++) {
				ck_assert(!picks[i].tables[k]->busy);
				picks[i].tables[k]->busy = true;
			}
		}
		/* They end in any order: forward or backward. */
		for (size_t i = 0; i < KV_ARRAY_LEN(picks); i++) {
			struct kv_pick *p = &picks[round % 2 ? i : KV_ARRAY_LEN(picks) - 1 - i];

			if (p->upper_count)
				v = carry_out(v, p, &number);
			kv_pick_done(p);
		}
		kv_version_unref(v);
	}
}
UNIT_END

UNIT(choosing_comes_to_an_end)
{
	uint64_t random = tmpstore_seed(2);
	struct kv_pick_options o = options;
	kv_fileno number = 0;

	o.level_base_bytes = 1500;
	o.oldest_snapshot = KV_SEQNO_MAX;
	for (int round = 0; round < 1000; round++) {
		struct kv_version *v = random_version(&random, &number);
		struct kv_pick p;
		int steps = 0;

		o.quiet = round % 2;
		for (;; steps++) {
			ck_ok(kv_pick_auto(v, &o, &p));
			if (!p.upper_count)
				break;
			ck_assert_int_lt(steps, 1000);
			v = carry_out(v, &p, &number);
			kv_pick_done(&p);
		}
		ck_assert_uint_lt(v->levels[0].count, KV_LEVEL0_TABLES_COMPACT);
		kv_version_unref(v);
	}
}
UNIT_END

UNIT_MAIN("compact_pick", a_small_store_has_nothing_to_do, level_0_goes_with_all_that_it_overlaps,
	  the_cheapest_table_of_a_full_level_goes, equally_cheap_tables_take_turns,
	  a_table_that_ends_before_a_key_does_not_overlap_it, a_table_is_not_moved_above_too_much,
	  tombstones_go_down_until_they_are_gone, in_quiet_times_few_tombstones_go_down,
	  tables_that_may_hide_large_values_go_down, a_range_by_hand, a_range_by_hand_goes_in_portions,
	  compactions_at_once_do_not_collide, choosing_comes_to_an_end)
