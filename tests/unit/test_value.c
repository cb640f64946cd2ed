/* Values that come from the value log, and what is kept of them. */
#include "kv/db.h"
#include "tests/unit/db_fixture.h"

#define BYTES 3000

static void value_of(uint8_t *to, size_t bytes, int i)
{
	dbfix_fill(to, bytes, (uint64_t)i + 77);
}

/* Ten values in the log, k0 to k9, and none of them in the cache. */
static void setup(struct dbfix *f, bool no_value_cache)
{
	uint8_t value[BYTES];
	char key[3] = "k0";

	dbfix_init(f, 1);
	f->options.no_value_cache = no_value_cache;
	dbfix_open(f);
	for (int i = 0; i < 10; i++) {
		key[1] = (char)('0' + i);
		value_of(value, sizeof(value), i);
		ck_ok(dbfix_put_bytes(f, key, value, sizeof(value), false));
	}
	ck_ok(kv_flush(f->db));
}

static void expect(struct dbfix *f, int i)
{
	char key[3] = { 'k', (char)('0' + i), 0 };
	uint8_t value[BYTES];

	value_of(value, sizeof(value), i);
	dbfix_expect_bytes(f, NULL, key, value, sizeof(value));
}

/* The log can't be read any more. */
static void break_log(struct dbfix *f)
{
	const struct kv_sim_fault fault = { .ops = KV_SIM_READ, .suffix = ".vlog", .err = -EIO,
					    .forever = true };

	kv_env_sim_fail(f->env, &fault);
}

static void expect_unreadable(struct dbfix *f, const char *key)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;

	ck_assert_int_eq(kv_get(f->db, NULL, kv_slice_str(key), &got), -EIO);
}

static uint64_t hits(struct dbfix *f)
{
	struct kv_stats s;

	kv_stats(f->db, &s);
	return s.cache_hits;
}

UNIT(a_value_is_read_once)
{
	struct dbfix f;

	setup(&f, false);
	expect(&f, 3);
	break_log(&f);
	expect(&f, 3);
	expect(&f, 3);
	expect_unreadable(&f, "k4");
	kv_env_sim_heal(f.env);
	dbfix_done(&f);
}
UNIT_END

UNIT(and_each_time_if_the_caller_keeps_it)
{
	struct dbfix f;

	setup(&f, true);
	expect(&f, 3);
	break_log(&f);
	expect_unreadable(&f, "k3");
	dbfix_done(&f);
}
UNIT_END

UNIT(parts_are_cut_from_what_is_kept)
{
	uint8_t value[BYTES];
	struct dbfix f;

	setup(&f, false);
	value_of(value, sizeof(value), 5);
	ck_ok(dbfix_put_part(&f, "part", "k5", 100, 2000));
	ck_ok(dbfix_put_part(&f, "tail", "k5", 1000, 2000));
	ck_ok(dbfix_put_part(&f, "none", "k5", 7, 0));
	/* Read for a part, kept as a whole. */
	dbfix_expect_bytes(&f, NULL, "part", value + 100, 2000);
	break_log(&f);
	expect(&f, 5);
	dbfix_expect_bytes(&f, NULL, "tail", value + 1000, 2000);
	dbfix_expect_bytes(&f, NULL, "part", value + 100, 2000);
	dbfix_expect_bytes(&f, NULL, "none", value, 0);
	expect_unreadable(&f, "k6");
	dbfix_done(&f);
}
UNIT_END

static void scan(struct dbfix *f, bool no_cache, bool sequential)
{
	const struct kv_iter_options o = { .no_cache = no_cache, .sequential = sequential };
	struct kv_iter *it;
	struct kv_slice got;
	int i = 0;

	ck_ok(kv_iter_new(f->db, &o, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it); kv_iter_next(it), i++) {
		uint8_t value[BYTES];

		value_of(value, sizeof(value), i);
		ck_ok(kv_iter_value(it, &got));
		ck_assert(kv_slice_eq(got, kv_slice(value, sizeof(value))));
	}
	ck_ok(kv_iter_error(it));
	ck_assert_int_eq(i, 10);
	kv_iter_free(it);
}

UNIT(scans_keep_values_unless_told_not_to)
{
	for (int sequential = 0; sequential < 2; sequential++) {
		struct dbfix f;
		uint64_t before;

		setup(&f, false);
		scan(&f, true, sequential);
		before = hits(&f);
		scan(&f, false, sequential);
		ck_assert_uint_lt(hits(&f) - before, 10);
		break_log(&f);
		for (int i = 0; i < 10; i++)
			expect(&f, i);
		scan(&f, true, sequential);
		dbfix_done(&f);
	}
}
UNIT_END

UNIT(huge_values_are_not_kept)
{
	static uint8_t value[300 * 1024];
	struct dbfix f;

	dbfix_init(&f, 1);
	f.options.cache_bytes = 16 * KV_MIB;
	dbfix_open(&f);
	value_of(value, sizeof(value), 1);
	ck_ok(dbfix_put_bytes(&f, "huge", value, sizeof(value), false));
	ck_ok(dbfix_put_bytes(&f, "large", value, 256 * KV_KIB, false));
	ck_ok(kv_flush(f.db));
	dbfix_expect_bytes(&f, NULL, "huge", value, sizeof(value));
	dbfix_expect_bytes(&f, NULL, "large", value, 256 * KV_KIB);
	break_log(&f);
	dbfix_expect_bytes(&f, NULL, "large", value, 256 * KV_KIB);
	expect_unreadable(&f, "huge");
	dbfix_done(&f);
}
UNIT_END

/* Many more values than there is memory for. */
UNIT(values_stay_in_the_budget)
{
	uint8_t value[BYTES];
	struct kv_stats s;
	struct dbfix f;
	char key[16];

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "%04d", i);
		value_of(value, sizeof(value), i);
		ck_ok(dbfix_put_bytes(&f, key, value, sizeof(value), false));
	}
	ck_ok(kv_flush(f.db));
	ck_ok(kv_wait_idle(f.db));
	for (int i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "%04d", i * 7 % 1000);
		value_of(value, sizeof(value), i * 7 % 1000);
		dbfix_expect_bytes(&f, NULL, key, value, sizeof(value));
	}
	kv_stats(f.db, &s);
	ck_assert_uint_le(s.memory_bytes, f.options.cache_bytes);
	dbfix_done(&f);
}
UNIT_END

/* Overwritten and collected: the old segment's values are neither found nor kept. */
UNIT(a_new_value_is_seen_at_once)
{
	uint8_t value[BYTES];
	struct dbfix f;

	setup(&f, false);
	expect(&f, 2);
	for (int round = 0; round < 50; round++) {
		value_of(value, sizeof(value), 1000 + round);
		ck_ok(dbfix_put_bytes(&f, "k2", value, sizeof(value), false));
		dbfix_expect_bytes(&f, NULL, "k2", value, sizeof(value));
		if (round % 10 == 9)
			ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
		dbfix_expect_bytes(&f, NULL, "k2", value, sizeof(value));
	}
	ck_ok(kv_wait_idle(f.db));
	dbfix_expect_bytes(&f, NULL, "k2", value, sizeof(value));
	expect(&f, 1);
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("value", a_value_is_read_once, and_each_time_if_the_caller_keeps_it,
	  parts_are_cut_from_what_is_kept, scans_keep_values_unless_told_not_to,
	  huge_values_are_not_kept, values_stay_in_the_budget, a_new_value_is_seen_at_once)
