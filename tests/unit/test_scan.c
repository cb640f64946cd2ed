#include "tests/unit/db_fixture.h"

static void setup(struct dbfix *f)
{
	dbfix_init(f, 1);
	dbfix_open(f);
}

static void put(struct dbfix *f, const char *key, const char *value)
{
	ck_ok(dbfix_put(f, key, value, false));
}

static void delete(struct dbfix *f, const char *key)
{
	ck_ok(dbfix_delete(f, key));
}

static void delete_range(struct dbfix *f, const char *begin, const char *end)
{
	ck_ok(dbfix_delete_range(f, begin, end));
}

static struct kv_iter *iter(struct dbfix *f, const struct kv_snapshot *snap, const char *lower,
			    const char *upper)
{
	struct kv_iter_options o = { .snap = snap };
	struct kv_iter *it;

	if (lower)
		o.lower = kv_slice_str(lower);
	if (upper)
		o.upper = kv_slice_str(upper);
	ck_ok(kv_iter_new(f->db, &o, &it));
	ck_assert(!kv_iter_valid(it));
	return it;
}

/* "key=value", or "-" when the iterator is not valid. */
static const char *at(struct kv_iter *it)
{
	static char text[256];
	struct kv_slice key, value;

	ck_ok(kv_iter_error(it));
	if (!kv_iter_valid(it))
		return "-";
	key = kv_iter_key(it);
	ck_ok(kv_iter_value(it, &value));
	ck_assert_uint_eq(value.bytes, kv_iter_value_bytes(it));
	snprintf(text, sizeof(text), "%.*s=%.*s", (int)key.bytes, (const char *)key.data,
		 (int)value.bytes, (const char *)value.data);
	return text;
}

/* All of it forward, then backward, which must be the same. */
static void expect_all(struct dbfix *f, const struct kv_snapshot *snap, const char *lower,
		       const char *upper, const char *want)
{
	struct kv_iter *it = iter(f, snap, lower, upper);
	size_t end = strlen(want), done = 0, n;
	const char *text;

	for (kv_iter_seek_first(it); kv_iter_valid(it); kv_iter_next(it)) {
		text = at(it);
		n = strlen(text);
		ck_assert_msg(!strncmp(want + done, text, n), "%s is not in %s", text, want + done);
		done += n + 1;
	}
	ck_assert_str_eq(at(it), "-");
	ck_assert_uint_eq(done, end);
	for (kv_iter_seek_last(it); kv_iter_valid(it); kv_iter_prev(it)) {
		text = at(it);
		n = strlen(text) + 1;
		ck_assert_uint_ge(end, n);
		end -= n;
		ck_assert_msg(!strncmp(want + end, text, n - 1), "%s is not in %s", text, want);
	}
	ck_assert_str_eq(at(it), "-");
	ck_assert_uint_eq(end, 0);
	kv_iter_free(it);
}

UNIT(an_empty_store_has_nothing_to_show)
{
	struct dbfix f;
	struct kv_iter *it;

	setup(&f);
	it = iter(&f, NULL, NULL, NULL);
	kv_iter_seek_first(it);
	ck_assert_str_eq(at(it), "-");
	kv_iter_seek_last(it);
	ck_assert_str_eq(at(it), "-");
	kv_iter_seek(it, kv_slice_str("a"));
	ck_assert_str_eq(at(it), "-");
	kv_iter_seek_prev(it, kv_slice_str("a"));
	ck_assert_str_eq(at(it), "-");
	kv_iter_free(it);
	ck_ok(kv_iter_new(f.db, NULL, &it));
	kv_iter_free(it);
	kv_iter_free(NULL);
	dbfix_done(&f);
}
UNIT_END

UNIT(the_newest_version_is_shown_unless_deleted)
{
	struct dbfix f;

	setup(&f);
	put(&f, "a", "1");
	put(&f, "b", "1");
	put(&f, "c", "1");
	put(&f, "b", "2");
	delete(&f, "c");
	put(&f, "d", "1");
	delete(&f, "d");
	put(&f, "d", "2");
	expect_all(&f, NULL, NULL, NULL, "a=1 b=2 d=2 ");
	ck_ok(kv_flush(f.db));
	put(&f, "a", "3");
	delete(&f, "b");
	put(&f, "c", "3");
	expect_all(&f, NULL, NULL, NULL, "a=3 c=3 d=2 ");
	ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	expect_all(&f, NULL, NULL, NULL, "a=3 c=3 d=2 ");
	dbfix_done(&f);
}
UNIT_END

UNIT(bounds_hide_what_lies_outside)
{
	struct dbfix f;
	struct kv_iter *it;

	setup(&f);
	put(&f, "a", "1");
	put(&f, "b", "1");
	ck_ok(kv_flush(f.db));
	put(&f, "c", "1");
	put(&f, "d", "1");
	expect_all(&f, NULL, "b", NULL, "b=1 c=1 d=1 ");
	expect_all(&f, NULL, NULL, "c", "a=1 b=1 ");
	expect_all(&f, NULL, "b", "d", "b=1 c=1 ");
	expect_all(&f, NULL, "aa", "bb", "b=1 ");
	expect_all(&f, NULL, "b", "b", "");
	expect_all(&f, NULL, "d", "a", "");
	expect_all(&f, NULL, "", NULL, "a=1 b=1 c=1 d=1 ");
	expect_all(&f, NULL, NULL, "", "");

	it = iter(&f, NULL, "b", "d");
	kv_iter_seek(it, kv_slice_str("a"));
	ck_assert_str_eq(at(it), "b=1");
	kv_iter_prev(it);
	ck_assert_str_eq(at(it), "-");
	kv_iter_seek(it, kv_slice_str("d"));
	ck_assert_str_eq(at(it), "-");
	kv_iter_seek_prev(it, kv_slice_str("z"));
	ck_assert_str_eq(at(it), "c=1");
	kv_iter_next(it);
	ck_assert_str_eq(at(it), "-");
	kv_iter_seek_prev(it, kv_slice_str("a"));
	ck_assert_str_eq(at(it), "-");
	kv_iter_free(it);
	dbfix_done(&f);
}
UNIT_END

UNIT(seek_goes_to_the_next_and_seek_prev_to_the_one_before)
{
	struct dbfix f;
	struct kv_iter *it;

	setup(&f);
	put(&f, "b", "1");
	put(&f, "d", "1");
	put(&f, "d", "2");
	put(&f, "f", "1");
	delete(&f, "f");
	put(&f, "h", "1");
	it = iter(&f, NULL, NULL, NULL);
	kv_iter_seek(it, kv_slice_str("c"));
	ck_assert_str_eq(at(it), "d=2");
	kv_iter_seek(it, kv_slice_str("d"));
	ck_assert_str_eq(at(it), "d=2");
	kv_iter_seek(it, kv_slice_str("e"));
	ck_assert_str_eq(at(it), "h=1");
	kv_iter_seek(it, kv_slice_str("i"));
	ck_assert_str_eq(at(it), "-");
	kv_iter_seek_prev(it, kv_slice_str("g"));
	ck_assert_str_eq(at(it), "d=2");
	kv_iter_seek_prev(it, kv_slice_str("d"));
	ck_assert_str_eq(at(it), "d=2");
	kv_iter_seek_prev(it, kv_slice_str("c"));
	ck_assert_str_eq(at(it), "b=1");
	kv_iter_seek_prev(it, kv_slice_str("a"));
	ck_assert_str_eq(at(it), "-");
	/* A key of the iterator's own is fine. */
	kv_iter_seek_last(it);
	kv_iter_seek(it, kv_iter_key(it));
	ck_assert_str_eq(at(it), "h=1");
	kv_iter_free(it);
	dbfix_done(&f);
}
UNIT_END

UNIT(turning_round_shows_each_key_once)
{
	struct dbfix f;
	struct kv_iter *it;

	setup(&f);
	for (int i = 0; i < 3; i++) {
		put(&f, "a", i ? "2" : "1");
		put(&f, "b", i ? "2" : "1");
		put(&f, "c", i ? "2" : "1");
		if (i < 2)
			ck_ok(kv_flush(f.db));
	}
	delete(&f, "b");
	put(&f, "b", "3");
	it = iter(&f, NULL, NULL, NULL);
	kv_iter_seek(it, kv_slice_str("b"));
	kv_iter_prev(it);
	ck_assert_str_eq(at(it), "a=2");
	kv_iter_next(it);
	ck_assert_str_eq(at(it), "b=3");
	kv_iter_next(it);
	ck_assert_str_eq(at(it), "c=2");
	kv_iter_prev(it);
	ck_assert_str_eq(at(it), "b=3");
	kv_iter_prev(it);
	ck_assert_str_eq(at(it), "a=2");
	kv_iter_prev(it);
	ck_assert_str_eq(at(it), "-");
	kv_iter_seek_last(it);
	ck_assert_str_eq(at(it), "c=2");
	kv_iter_next(it);
	ck_assert_str_eq(at(it), "-");
	kv_iter_free(it);
	dbfix_done(&f);
}
UNIT_END

UNIT(an_iterator_sees_the_state_at_which_it_was_made)
{
	struct kv_snapshot *snap;
	struct dbfix f;
	struct kv_iter *it;

	setup(&f);
	put(&f, "a", "1");
	put(&f, "b", "1");
	put(&f, "c", "1");
	snap = kv_snapshot_new(f.db);
	it = iter(&f, NULL, NULL, NULL);
	put(&f, "a", "2");
	put(&f, "aa", "2");
	delete_range(&f, "b", "z");
	put(&f, "c", "2");
	expect_all(&f, NULL, NULL, NULL, "a=2 aa=2 c=2 ");
	expect_all(&f, snap, NULL, NULL, "a=1 b=1 c=1 ");
	ck_ok(kv_flush(f.db));
	ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	expect_all(&f, NULL, NULL, NULL, "a=2 aa=2 c=2 ");
	expect_all(&f, snap, NULL, NULL, "a=1 b=1 c=1 ");
	kv_iter_seek_first(it);
	ck_assert_str_eq(at(it), "a=1");
	kv_iter_next(it);
	ck_assert_str_eq(at(it), "b=1");
	kv_iter_seek_last(it);
	ck_assert_str_eq(at(it), "c=1");
	kv_iter_free(it);
	kv_snapshot_free(f.db, snap);
	/* What only the snapshot kept goes when it is compacted again. */
	ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	expect_all(&f, NULL, NULL, NULL, "a=2 aa=2 c=2 ");
	dbfix_done(&f);
}
UNIT_END

UNIT(a_deleted_range_is_passed_over)
{
	struct dbfix f;
	struct kv_iter *it;
	char key[16];

	setup(&f);
	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "k%02d", i);
		put(&f, key, "1");
		if (i == 50)
			ck_ok(kv_flush(f.db));
	}
	delete_range(&f, "k10", "k90");
	put(&f, "k42", "2");
	it = iter(&f, NULL, NULL, NULL);
	for (int round = 0; round < 3; round++) {
		kv_iter_seek(it, kv_slice_str("k09"));
		kv_iter_next(it);
		ck_assert_str_eq(at(it), "k42=2");
		kv_iter_next(it);
		ck_assert_str_eq(at(it), "k90=1");
		kv_iter_prev(it);
		ck_assert_str_eq(at(it), "k42=2");
		kv_iter_prev(it);
		ck_assert_str_eq(at(it), "k09=1");
		kv_iter_seek_prev(it, kv_slice_str("k89"));
		ck_assert_str_eq(at(it), "k42=2");
		kv_iter_free(it);
		if (!round)
			ck_ok(kv_flush(f.db));
		else
			ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
		it = iter(&f, NULL, NULL, NULL);
	}
	kv_iter_free(it);
	dbfix_done(&f);
}
UNIT_END

UNIT(values_are_fetched_when_asked_for)
{
	static char large[100000];
	struct kv_batch *b = kv_batch_new();
	struct kv_slice value, again;
	struct dbfix f;
	struct kv_iter *it;

	setup(&f);
	for (size_t i = 0; i < sizeof(large); i++)
		large[i] = (char)(i * i >> 3);
	kv_batch_put(b, kv_slice_str("bulk"), kv_slice(large, sizeof(large)), KV_HINT_NONE);
	kv_batch_put(b, kv_slice_str("medium"), kv_slice(large, 5000), KV_HINT_NONE);
	kv_batch_put(b, kv_slice_str("nothing"), kv_slice(NULL, 0), KV_HINT_NONE);
	ck_ok(kv_write(f.db, b, false));
	kv_batch_reset(b);
	kv_batch_put_part(b, kv_slice_str("part"), kv_slice_str("bulk"), 100, 60000);
	ck_ok(kv_write(f.db, b, false));
	kv_batch_free(b);
	ck_ok(kv_flush(f.db));

	it = iter(&f, NULL, NULL, NULL);
	kv_iter_seek_first(it);
	ck_assert_uint_eq(kv_iter_value_bytes(it), sizeof(large));
	ck_ok(kv_iter_value(it, &value));
	ck_assert(kv_slice_eq(value, kv_slice(large, sizeof(large))));
	ck_ok(kv_iter_value(it, &again));
	ck_assert_ptr_eq(again.data, value.data);
	kv_iter_next(it);
	ck_assert_uint_eq(kv_iter_value_bytes(it), 5000);
	kv_iter_next(it);
	ck_ok(kv_iter_value(it, &value));
	ck_assert_uint_eq(value.bytes, 0);
	kv_iter_next(it);
	ck_assert_uint_eq(kv_iter_value_bytes(it), 60000);
	ck_ok(kv_iter_value(it, &value));
	ck_assert(kv_slice_eq(value, kv_slice(large + 100, 60000)));
	kv_iter_prev(it);
	kv_iter_prev(it);
	ck_ok(kv_iter_value(it, &value));
	ck_assert(kv_slice_eq(value, kv_slice(large, 5000)));
	kv_iter_free(it);
	dbfix_done(&f);
}
UNIT_END

/* A failure to read ends the scan, and is not taken for its end. */
UNIT(an_error_is_told_and_forgotten_by_a_seek)
{
	const struct kv_sim_fault fault = { .ops = KV_SIM_READ, .suffix = ".sst", .err = -EIO,
					    .forever = true };
	struct dbfix f;
	struct kv_iter *it;

	setup(&f);
	put(&f, "a", "1");
	put(&f, "b", "1");
	ck_ok(kv_flush(f.db));
	dbfix_reopen(&f);
	kv_iter_free(iter(&f, NULL, NULL, NULL));	/* the table is open; its blocks aren't read */
	it = iter(&f, NULL, NULL, NULL);
	kv_env_sim_fail(f.env, &fault);
	kv_iter_seek_first(it);
	ck_assert(!kv_iter_valid(it));
	ck_assert_int_eq(kv_iter_error(it), -EIO);
	kv_iter_seek_last(it);
	ck_assert(!kv_iter_valid(it));
	ck_assert_int_eq(kv_iter_error(it), -EIO);
	kv_env_sim_heal(f.env);
	kv_iter_seek_first(it);
	ck_assert_str_eq(at(it), "a=1");
	kv_iter_free(it);
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("scan", an_empty_store_has_nothing_to_show, the_newest_version_is_shown_unless_deleted,
	  bounds_hide_what_lies_outside, seek_goes_to_the_next_and_seek_prev_to_the_one_before,
	  turning_round_shows_each_key_once, an_iterator_sees_the_state_at_which_it_was_made,
	  a_deleted_range_is_passed_over, values_are_fetched_when_asked_for,
	  an_error_is_told_and_forgotten_by_a_seek)
