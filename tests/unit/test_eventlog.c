#include <regex.h>

#include "kv/eventlog.h"
#include "tests/unit/db_fixture.h"

static struct dbfix f;

static void setup(void)
{
	dbfix_init(&f, 1);
	f.options.no_event_log = false;
	dbfix_open(&f);
}

/* The whole of a file, 0-terminated; NULL when there is none. The caller frees it. */
static char *load(const char *name, uint64_t *out_bytes)
{
	struct kv_env_file *file;
	struct kv_env_dir *dir;
	uint64_t bytes;
	char *text;
	int err;

	ck_ok(f.env->ops->dir_open(f.env, "store", false, &dir));
	err = f.env->ops->open(dir, name, KV_ENV_READ, &file);
	f.env->ops->dir_close(dir);
	if (err == -ENOENT)
		return NULL;
	ck_ok(err);
	ck_ok(f.env->ops->size(file, &bytes));
	text = calloc(1, bytes + 1);
	ck_assert_ptr_nonnull(text);
	ck_ok(kv_env_read_exact(f.env, file, text, bytes, 0));
	f.env->ops->close(file);
	if (out_bytes)
		*out_bytes = bytes;
	return text;
}

static bool has(const char *what)
{
	char *text = load(KV_NAME_LOG, NULL);
	bool found = text && strstr(text, what);

	free(text);
	return found;
}

/* Has every line a time, an event, and keys with values? */
static void check_lines(void)
{
	char *text = load(KV_NAME_LOG, NULL), *at;
	regex_t form;

	ck_assert_ptr_nonnull(text);
	ck_ok(regcomp(&form, "^time=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z "
		      "event=[a-z_0-9]+( [a-z_0-9]+=(\"[^\"]*\"|[^ \"]*))+$", REG_EXTENDED | REG_NOSUB));
	ck_assert_uint_gt(strlen(text), 0);
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
	for (char *line = strtok_r(text, "\n", &at); line; line = strtok_r(NULL, "\n", &at))
		ck_assert_msg(!regexec(&form, line, 0, NULL, 0), "%s", line);
	regfree(&form);
	free(text);
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

UNIT(what_happens_is_told)
{
	struct kv_ingest *in;

	setup();
	ck_assert(has("event=create seqno=0 "));
	for (int i = 0; i < 4; i++)
		put_range(0, 300);
	ck_ok(kv_compact(f.db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	ck_ok(kv_wait_idle(f.db));
	ck_assert(has("event=table table="));
	ck_assert(has("event=flush operations="));
	ck_assert(has("event=compact level="));
	ck_assert(has("event=collect segments="));
	ck_assert(has("event=drop segments="));
	ck_ok(kv_ingest_new(f.db, &in));
	ck_ok(kv_ingest_put(in, kv_slice_str("x"), kv_slice_str("y"), KV_HINT_NONE));
	ck_ok(kv_ingest_commit(in));
	kv_ingest_free(in);
	ck_assert(has("event=ingest keys=1 tables=1 segments=0 level_min=6 "));
	ck_assert(!has("event=close"));
	dbfix_reopen(&f);
	ck_assert(has("event=close "));
	ck_assert(has("event=recover journals=1 operations=0 "));
	ck_assert(has("event=open seqno="));
	ck_ok(dbfix_put(&f, "a", "b", true));
	dbfix_crash(&f, KV_SIM_KEEP_ALL, 1);
	dbfix_open(&f);
	ck_assert(has(" operations=1 "));
	check_lines();
	dbfix_done(&f);
}
UNIT_END

UNIT(what_goes_wrong_is_told)
{
	setup();
	put_range(0, 10);
	kv_env_sim_fail(f.env, &(struct kv_sim_fault){ .ops = KV_SIM_SYNC, .suffix = ".manifest",
						       .err = -EIO });
	ck_assert_int_eq(kv_flush(f.db), KV_E_poisoned);
	ck_assert(has("event=install_failed adds=1 deletes=0 error="));
	ck_assert(has("event=error text=\"store: "));
	ck_assert(kv_close(f.db) != 0);
	f.db = NULL;
	ck_assert(has("event=close "));
	check_lines();
	kv_env_sim_heal(f.env);
	dbfix_open(&f);
	dbfix_done(&f);
}
UNIT_END

static struct kv_store log_store;

static void setup_log(void)
{
	dbfix_init(&f, 1);
	log_store = (struct kv_store){ .env = f.env, .path = "store" };
	ck_ok(f.env->ops->dir_open(f.env, "store", true, &log_store.dir));
}

static void teardown_log(void)
{
	f.env->ops->dir_close(log_store.dir);
	dbfix_done(&f);
}

static unsigned number_of(const char *text, bool last)
{
	const char *at = NULL;

	for (const char *p = strstr(text, "number="); p && (last || !at); p = strstr(p + 1, "number="))
		at = p;
	ck_assert_ptr_nonnull(at);
	return (unsigned)strtoul(at + strlen("number="), NULL, 10);
}

UNIT(it_is_bounded)
{
	struct kv_eventlog *l;
	uint64_t bytes, bytes_old;
	char *now, *old;

	setup_log();
	l = kv_eventlog_open(&log_store);
	ck_assert_ptr_nonnull(l);
	for (unsigned i = 0; i < 40000; i++) {
		kv_event(l, "test", "number=%u", i);
		if (i % 7000 == 0) {	/* opening it again changes nothing */
			kv_eventlog_close(l);
			l = kv_eventlog_open(&log_store);
			ck_assert_ptr_nonnull(l);
		}
	}
	kv_eventlog_close(l);
	now = load(KV_NAME_LOG, &bytes);
	old = load(KV_NAME_LOG_OLD, &bytes_old);
	ck_assert_ptr_nonnull(now);
	ck_assert_ptr_nonnull(old);
	ck_assert_uint_le(bytes, KV_EVENTLOG_BYTES_MAX);
	ck_assert_uint_le(bytes_old, KV_EVENTLOG_BYTES_MAX);
	ck_assert_uint_gt(bytes_old, KV_EVENTLOG_BYTES_MAX - 1024);
	ck_assert_uint_eq(number_of(now, true), 39999);
	ck_assert_uint_eq(number_of(now, false), number_of(old, true) + 1);
	free(now);
	free(old);
	teardown_log();
}
UNIT_END

UNIT(a_torn_line_stays_alone)
{
	struct kv_eventlog *l;
	struct kv_env_file *file;
	char *text;

	setup_log();
	ck_ok(f.env->ops->open(log_store.dir, KV_NAME_LOG, KV_ENV_CREATE, &file));
	ck_ok(kv_env_write(f.env, file, kv_slice_str("time=20"), 0));
	f.env->ops->close(file);
	l = kv_eventlog_open(&log_store);
	kv_event(l, "test", "number=%d", 1);
	kv_event(l, "test", "text=\"%s\"", "one\ntwo\tthree");
	kv_eventlog_close(l);
	text = load(KV_NAME_LOG, NULL);
	ck_assert_ptr_nonnull(strstr(text, "time=20\ntime="));
	ck_assert_ptr_nonnull(strstr(text, "number=1\ntime="));
	ck_assert_ptr_nonnull(strstr(text, "text=\"one two three\"\n"));
	free(text);
	teardown_log();
}
UNIT_END

UNIT(a_long_line_is_cut)
{
	char longer[4000];
	struct kv_eventlog *l;
	uint64_t bytes;
	char *text;

	setup_log();
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	l = kv_eventlog_open(&log_store);
	kv_event(l, "test", "text=%s", longer);
	kv_event(l, longer, "number=1");
	kv_event(l, "test", "number=2");
	kv_eventlog_close(l);
	text = load(KV_NAME_LOG, &bytes);
	ck_assert_uint_gt(bytes, 2000);
	ck_assert_uint_lt(bytes, 2200);
	ck_assert_ptr_nonnull(strstr(text, "x\ntime="));
	ck_assert_ptr_nonnull(strstr(text, "number=2\n"));
	free(text);
	teardown_log();
}
UNIT_END

static void fails(unsigned ops, const char *suffix, int err)
{
	setup();
	kv_env_sim_fail(f.env, &(struct kv_sim_fault){ .ops = ops, .suffix = suffix, .err = err,
						       .forever = true });
	put_range(0, 200);
	ck_ok(kv_flush(f.db));
	dbfix_reopen(&f);
	put_range(0, 200);
	ck_ok(kv_flush(f.db));
	ck_assert_uint_gt(kv_env_sim_faults_hit(f.env), 0);
	ck_assert_uint_eq(f.errors, 0);
	kv_env_sim_heal(f.env);
	put_range(200, 210);
	ck_ok(kv_flush(f.db));
	ck_assert(has("event=flush operations=10 "));
	dbfix_done(&f);
}

UNIT(a_failure_fails_nothing_else)
{
	fails(KV_SIM_WRITE, "LOG", -ENOSPC);
	fails(KV_SIM_WRITE, "LOG", -EIO);
	fails(KV_SIM_OPEN, "LOG", -EACCES);
	fails(KV_SIM_SIZE | KV_SIM_READ, "LOG", -EIO);
}
UNIT_END

UNIT(one_that_is_full_and_cannot_be_renamed_does_not_grow)
{
	struct kv_eventlog *l;
	uint64_t bytes;

	setup_log();
	kv_env_sim_fail(f.env, &(struct kv_sim_fault){ .ops = KV_SIM_RENAME, .err = -EIO,
						       .forever = true });
	l = kv_eventlog_open(&log_store);
	for (unsigned i = 0; i < 25000; i++)
		kv_event(l, "test", "number=%u", i);
	free(load(KV_NAME_LOG, &bytes));
	ck_assert_uint_le(bytes, KV_EVENTLOG_BYTES_MAX);
	kv_env_sim_heal(f.env);
	kv_event(l, "test", "number=%u", 25000);
	free(load(KV_NAME_LOG, &bytes));
	ck_assert_uint_lt(bytes, 100);
	kv_eventlog_close(l);
	teardown_log();
}
UNIT_END

UNIT(reading_only_writes_none)
{
	uint64_t before, ops, bytes;

	setup();
	dbfix_close(&f);
	free(load(KV_NAME_LOG, &before));
	ops = kv_env_sim_ops(f.env);
	f.options.create = false;
	f.options.read_only = true;
	dbfix_open(&f);
	dbfix_close(&f);
	free(load(KV_NAME_LOG, &bytes));
	ck_assert_uint_eq(bytes, before);
	ck_assert_uint_eq(kv_env_sim_ops(f.env), ops);
	dbfix_done(&f);
}
UNIT_END

UNIT(the_option_turns_it_off)
{
	dbfix_init(&f, 1);
	dbfix_open(&f);
	put_range(0, 200);
	dbfix_reopen(&f);
	ck_assert_ptr_null(load(KV_NAME_LOG, NULL));
	dbfix_done(&f);
}
UNIT_END

UNIT(it_is_never_synced)
{
	uint64_t bytes, unsynced;

	setup();
	put_range(0, 200);
	dbfix_close(&f);
	free(load(KV_NAME_LOG, &bytes));
	ck_ok(kv_env_sim_unsynced(f.env, "store", KV_NAME_LOG, &unsynced));
	ck_assert_uint_ge(unsynced, bytes);
	kv_env_sim_crash(f.env, KV_SIM_DROP_ALL, 1);
	dbfix_open(&f);
	ck_assert(has("event=open "));
	dbfix_done(&f);
}
UNIT_END

/* It does not keep a store from being made, and a store keeps none that it does not know from being itself. */
UNIT(it_is_no_foreign_file)
{
	struct kv_eventlog *l;

	setup_log();
	l = kv_eventlog_open(&log_store);
	kv_event(l, "test", "number=1");
	ck_ok(f.env->ops->rename(log_store.dir, KV_NAME_LOG, KV_NAME_LOG_OLD));
	kv_eventlog_close(l);
	l = kv_eventlog_open(&log_store);
	kv_event(l, "test", "number=2");
	kv_eventlog_close(l);
	f.options.no_event_log = false;
	dbfix_open(&f);
	ck_assert(has("number=2\n"));
	ck_assert(has("event=create "));
	dbfix_close(&f);
	teardown_log();
}
UNIT_END

/* --- crashes --------------------------------------------------------------------------------- */

static void before_change(void *arg, struct kv_env *env, enum kv_sim_op op, const char *name)
{
	uint64_t *points = arg;
	struct kv_env *image;
	struct dbfix real = f;

	(void)op;
	if (strncmp(name, "LOG", 3) && *points % 5) {	/* all of the log's own, and some others */
		++*points;
		return;
	}
	image = kv_env_sim_clone(env);
	kv_env_sim_crash(image, KV_SIM_RANDOM, ++*points);
	f.env = f.options.env = image;
	dbfix_open(&f);
	ck_assert_uint_eq(f.errors, real.errors);
	dbfix_close(&f);
	kv_env_sim_free(image);
	f = real;
}

UNIT(a_crash_while_it_is_written_harms_nothing)
{
	uint64_t points = 0;

	setup();
	kv_env_sim_hook(f.env, before_change, &points);
	put_range(0, 100);
	ck_ok(kv_flush(f.db));
	dbfix_reopen(&f);
	kv_env_sim_hook(f.env, NULL, NULL);
	ck_assert_uint_gt(points, 50);
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("eventlog", what_happens_is_told, what_goes_wrong_is_told, it_is_bounded,
	  a_torn_line_stays_alone, a_long_line_is_cut, a_failure_fails_nothing_else,
	  one_that_is_full_and_cannot_be_renamed_does_not_grow, reading_only_writes_none,
	  the_option_turns_it_off, it_is_never_synced, it_is_no_foreign_file,
	  a_crash_while_it_is_written_harms_nothing)
