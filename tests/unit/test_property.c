#include "tests/unit/db_fixture.h"

static struct dbfix f;

static void setup(void)
{
	dbfix_init(&f, 1);
	dbfix_open(&f);
}

static void put_range(uint64_t begin, uint64_t end)
{
	uint8_t value[3000];
	char key[16];

	for (uint64_t n = begin; n < end; n++) {
		snprintf(key, sizeof(key), "k%06" PRIu64, n);
		dbfix_fill(value, sizeof(value), n);
		ck_ok(dbfix_put_bytes(&f, key, value, n % 3 ? 100 : sizeof(value), false));
	}
}

static uint64_t bytes_of(const char *begin, const char *end)
{
	uint64_t bytes;

	ck_ok(kv_approximate_bytes(f.db, begin ? kv_slice_str(begin) : kv_slice(NULL, 0),
				   end ? kv_slice_str(end) : kv_slice(NULL, 0), &bytes));
	return bytes;
}

static uint64_t number(const char *name)
{
	uint64_t n;

	ck_ok(kv_property_number(f.db, name, &n));
	return n;
}

/* Of 1000 keys that take 1067 bytes each. */
static void check_parts(uint64_t all)
{
	uint64_t sum = 0;

	ck_assert_uint_eq(bytes_of("k000500", "k000500"), 0);
	ck_assert_uint_eq(bytes_of("k000500", "k000400"), 0);
	ck_assert_uint_eq(bytes_of("l", NULL), 0);
	ck_assert_uint_eq(bytes_of(NULL, "a"), 0);
	ck_assert_uint_eq(bytes_of(NULL, NULL), all);
	ck_assert_uint_eq(bytes_of("a", "z"), all);
	ck_assert_uint_ge(bytes_of("k000000", "k000500"), all / 3);
	ck_assert_uint_le(bytes_of("k000000", "k000500"), 2 * all / 3);
	for (unsigned char i = 0; i < 10; i++) {
		char begin[16], end[16];

		snprintf(begin, sizeof(begin), "k000%d00", i);
		snprintf(end, sizeof(end), i == 9 ? "k001000" : "k000%d00", i + 1);
		sum += bytes_of(begin, end);
	}
	/* The parts leave nothing out and count little twice. */
	ck_assert_uint_ge(sum, all - all / 10);
	ck_assert_uint_le(sum, all + all / 10);
}

UNIT(approximate_bytes_of_tables)
{
	uint64_t all;

	setup();
	put_range(0, 1000);
	ck_ok(kv_flush(f.db));
	ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	ck_ok(kv_wait_idle(f.db));
	all = bytes_of(NULL, NULL);
	ck_assert_uint_ge(all, 1067000);
	ck_assert_uint_le(all, 1300000);
	ck_assert_uint_eq(all, number("table_bytes") + number("segment_bytes_live"));
	check_parts(all);
	dbfix_done(&f);
}
UNIT_END

UNIT(approximate_bytes_of_memtables)
{
	uint64_t all;

	dbfix_init(&f, 1);
	f.options.memtable_bytes = 16 * KV_MIB;
	f.options.bulk_bytes_per_memtable = 64 * KV_MIB;
	dbfix_open(&f);
	put_range(0, 1000);
	all = bytes_of(NULL, NULL);
	ck_assert_uint_ge(all, 1067000);
	ck_assert_uint_le(all, 1400000);
	ck_assert_uint_eq(bytes_of("l", NULL), 0);
	ck_assert_uint_eq(bytes_of(NULL, "a"), 0);
	ck_assert_uint_ge(bytes_of("k000000", "k000500"), all / 5);
	ck_assert_uint_le(bytes_of("k000000", "k000500"), 4 * all / 5);
	dbfix_done(&f);
}
UNIT_END

UNIT(approximate_bytes_tells_of_damage)
{
	uint64_t bytes = 77;

	setup();
	put_range(0, 10);
	ck_ok(kv_flush(f.db));
	dbfix_reopen(&f);
	kv_env_sim_fail(f.env, &(struct kv_sim_fault){ .ops = KV_SIM_READ, .suffix = ".sst",
						       .err = -EIO, .forever = true });
	ck_assert_int_eq(kv_approximate_bytes(f.db, kv_slice_str("k000005"), kv_slice(NULL, 0),
					      &bytes), -EIO);
	ck_assert_uint_eq(bytes, 77);
	kv_env_sim_heal(f.env);
	dbfix_done(&f);
}
UNIT_END

UNIT(every_property_has_something_to_say)
{
	KV_AUTO(kv_buf_done) struct kv_buf names = KV_BUF_INIT;
	size_t count = 0;

	setup();
	put_range(0, 300);
	ck_ok(kv_flush(f.db));
	put_range(300, 310);
	ck_ok(kv_property(f.db, "properties", &names));
	for (char *at, *name = strtok_r((char *)names.data, "\n", &at); name;
	     name = strtok_r(NULL, "\n", &at)) {
		KV_AUTO(kv_buf_done) struct kv_buf text = KV_BUF_INIT;
		uint64_t n;
		int err = kv_property_number(f.db, name, &n);

		count++;
		ck_ok(kv_property(f.db, name, &text));
		ck_assert_uint_gt(text.bytes, 1);
		ck_assert_int_eq(text.data[text.bytes - 1], '\n');
		if (err)
			ck_assert_int_eq(err, KV_E_not_found);
		else
			ck_assert_uint_eq(strtoull((char *)text.data, NULL, 10), n);
	}
	ck_assert_uint_gt(count, 15);
	dbfix_done(&f);
}
UNIT_END

UNIT(numbers_agree_with_the_statistics)
{
	struct kv_stats s;

	setup();
	put_range(0, 500);
	ck_ok(kv_flush(f.db));
	kv_stats(f.db, &s);
	ck_assert_uint_eq(number("seqno"), s.seqno);
	ck_assert_uint_eq(number("disk_bytes"), s.disk_bytes);
	ck_assert_uint_eq(number("garbage_bytes"), s.segment_bytes - s.segment_bytes_live);
	ck_assert_uint_le(number("garbage_percent"), 100);
	dbfix_done(&f);
}
UNIT_END

UNIT(no_such_property)
{
	KV_AUTO(kv_buf_done) struct kv_buf text = KV_BUF_INIT;
	uint64_t n = 77;

	setup();
	ck_assert_int_eq(kv_property(f.db, "", &text), KV_E_not_found);
	ck_assert_int_eq(kv_property(f.db, "level", &text), KV_E_not_found);
	ck_assert_int_eq(kv_property_number(f.db, "levels", &n), KV_E_not_found);
	ck_assert_uint_eq(text.bytes, 0);
	ck_assert_uint_eq(n, 77);
	dbfix_done(&f);
}
UNIT_END

static uint64_t timed(enum kv_latency_kind kind)
{
	struct kv_latency l;

	kv_latency(f.db, kind, &l);
	if (!l.count) {
		ck_assert_uint_eq(l.max_ns + l.p50_ns + l.mean_ns, 0);
		return 0;
	}
	ck_assert_uint_gt(l.mean_ns, 0);
	ck_assert_uint_le(l.p50_ns, l.p90_ns);
	ck_assert_uint_le(l.p90_ns, l.p99_ns);
	ck_assert_uint_le(l.p99_ns, l.p999_ns);
	ck_assert_uint_le(l.p999_ns, l.max_ns);
	return l.count;
}

UNIT(latencies_are_timed)
{
	struct kv_iter *it;
	char key[16];

	setup();
	for (int i = 0; i < KV_LATENCY_KINDS; i++)
		ck_assert_uint_eq(timed((enum kv_latency_kind)i), 0);
	put_range(0, 500);
	put_range(0, 500);
	for (int n = 0; n < 1600; n++) {
		snprintf(key, sizeof(key), "k%06d", n);
		(void)!kv_exists(f.db, NULL, kv_slice_str(key));
	}
	ck_ok(kv_iter_new(f.db, NULL, &it));
	for (int n = 0; n < 800; n++) {
		kv_iter_seek_first(it);
		kv_iter_seek(it, kv_slice_str("k000500"));
	}
	kv_iter_free(it);
	/* One of 16, about; and of the writes one of 4. */
	ck_assert_uint_ge(timed(KV_LATENCY_get), 50);
	ck_assert_uint_le(timed(KV_LATENCY_get), 200);
	ck_assert_uint_ge(timed(KV_LATENCY_seek), 50);
	ck_assert_uint_le(timed(KV_LATENCY_seek), 200);
	ck_assert_uint_ge(timed(KV_LATENCY_write), 125);
	ck_assert_uint_le(timed(KV_LATENCY_write), 500);
	ck_assert_uint_eq(timed(KV_LATENCY_durable), 0);
	ck_assert_uint_gt(timed(KV_LATENCY_flush), 0);
	ck_assert_uint_gt(timed(KV_LATENCY_compact), 0);
	for (int i = 0; i < 5; i++)
		ck_ok(dbfix_put(&f, "a", "b", true));
	ck_assert_uint_eq(timed(KV_LATENCY_durable), 5);
	ck_assert_uint_ge(timed(KV_LATENCY_sync), 5);
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("property", approximate_bytes_of_tables, approximate_bytes_of_memtables,
	  approximate_bytes_tells_of_damage, every_property_has_something_to_say,
	  numbers_agree_with_the_statistics, no_such_property, latencies_are_timed)
