#include <sys/wait.h>
#include <unistd.h>

#include "kv/batch.h"
#include "kv/checksum.h"
#include "kv/journal.h"
#include "kv/manifest.h"
#include "kv/verify.h"
#include "tests/unit/tmpstore.h"
#include "tests/unit/version_make.h"

/*
 * A store made by hand. Table 10 holds operations 1..20, of which every other
 * one is a value in segment 7. Journal 12 holds 21..22, journal 13 holds 23..24: a
 * put and a pointer into segment 8 each. Manifest 30.
 */
static struct tmpstore t;
static struct kv_vptr table_ptrs[10], journal_ptrs[2];
static uint64_t journal_end[2], unpromised_at;

#define VALUE_BYTES 1000

static void make_segment(kv_fileno number, size_t n, struct kv_vptr *out_ptrs)
{
	struct kv_segment_writer *w;
	uint8_t value[VALUE_BYTES];

	ck_ok(kv_segment_create(&t.store, number, 64 * KV_KIB, &w));
	for (size_t i = 0; i < n; i++) {
		struct kv_segment_put put = {
			.key = kv_slice_str("k"),
			.seqno = i + 1,
			.stored = kv_slice(value, sizeof(value)),
			.raw_bytes = sizeof(value),
		};

		memset(value, (int)(i + number), sizeof(value));
		put.value_checksum = kv_checksum(put.stored, 0);
		ck_ok(kv_segment_append(w, &put, 1, &out_ptrs[i]));
	}
	ck_ok(kv_segment_seal(w));
	kv_segment_writer_free(w);
}

static struct kv_slice pointer(const struct kv_vptr *p)
{
	static struct kv_vptr_disk disk;

	kv_vptr_encode(p, &disk);
	return kv_slice(&disk, sizeof(disk));
}

static void make_table(struct kv_edit *e)
{
	static const struct kv_sst_options options = { .block_bytes = 512,
						       .filter_bits_per_key = 10 };
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta meta = { 0 };
	struct kv_sst_build *b;

	ck_ok(kv_sst_build_new(&t.store, 10, &options, &b));
	for (kv_seqno s = 1; s <= 20; s++) {
		KV_AUTO(kv_buf_done) struct kv_buf ikey = KV_BUF_INIT;
		char key[16];
		bool ptr = s % 2;

		snprintf(key, sizeof(key), "key%03u", (unsigned)s);
		ck_ok(kv_ikey_make(&ikey, kv_slice_str(key), s,
				   ptr ? KV_KIND_PUT_PTR : KV_KIND_PUT));
		ck_ok(kv_sst_build_add(b, kv_buf_slice(&ikey),
				       ptr ? pointer(&table_ptrs[s / 2]) : kv_slice_str("value")));
	}
	ck_ok(kv_sst_build_finish(b, &meta));
	kv_sst_build_free(b);
	ck_ok(kv_edit_add_table(e, 0, &meta));
}

static void append(struct kv_journal *j, enum kv_chunk_type type, kv_seqno seqno, uint32_t count,
		   struct kv_slice s)
{
	struct iovec iov = { (void *)(uintptr_t)s.data, s.bytes };

	ck_ok(kv_journal_append(j, type, seqno, count, &iov, s.bytes ? 1 : 0));
}

static void append_ops(struct kv_journal *j, kv_seqno seqno, const struct kv_vptr *p)
{
	KV_AUTO(kv_buf_done) struct kv_buf ops = KV_BUF_INIT;

	ck_ok(kv_op_append(&ops, KV_KIND_PUT, kv_slice_str("a"), kv_slice_str("x")));
	ck_ok(kv_op_append(&ops, KV_KIND_PUT_PTR, kv_slice_str("b"), pointer(p)));
	append(j, KV_CHUNK_BATCHES, seqno, 2, kv_buf_slice(&ops));
}

static void promise(struct kv_journal *j)
{
	ck_ok(kv_journal_sync(j));
	kv_journal_promise(j, kv_journal_bytes(j));
}

/* With last: all of it is promised, and a last batch comes that is not. */
static void make_journal(kv_fileno number, kv_fileno previous_no, uint64_t previous_bytes,
			 kv_seqno seqno, const struct kv_vptr *p, bool last, uint64_t *out_end)
{
	struct kv_journal_begin begin = {
		.previous_no = kv_le64(previous_no),
		.previous_bytes = kv_le64(previous_bytes),
		.seqno = kv_le64(seqno),
	};
	struct kv_journal *j;

	ck_ok(kv_journal_create(&t.store, KV_FILE_JOURNAL, number, 4096, &j));
	append(j, KV_CHUNK_BEGIN, seqno, 0, kv_slice(&begin, sizeof(begin)));
	append_ops(j, seqno + 1, p);
	if (last) {
		struct kv_vptr nowhere = *p;

		nowhere.offset += 64 * KV_KIB;
		promise(j);
		append(j, KV_CHUNK_MARK, seqno + 2, 0, kv_slice(NULL, 0));
		unpromised_at = kv_journal_bytes(j);
		append_ops(j, seqno + 3, &nowhere);
	} else {
		append(j, KV_CHUNK_END, seqno + 2, 0, kv_slice(NULL, 0));
		promise(j);
	}
	*out_end = kv_journal_bytes(j);
	kv_journal_free(j);
}

static void make_store(void)
{
	const struct kv_manifest_state state = { .next_fileno = 31, .journal_min = 12,
						 .seqno = 20 };
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	struct kv_manifest *m;
	struct kv_version *v;

	tmpstore_init(&t);
	make_segment(7, 10, table_ptrs);
	make_segment(8, 2, journal_ptrs);
	make_table(&e);
	ck_ok(kv_edit_add_segment(&e, 7));
	ck_ok(kv_edit_seal_segment(&e, 7, table_ptrs[9].offset +
						   kv_vptr_record_bytes(&table_ptrs[9])));
	ck_ok(kv_edit_add_segment(&e, 8));
	make_journal(12, 11, 4711, 20, &journal_ptrs[0], false, &journal_end[0]);
	make_journal(13, 12, journal_end[0], 22, &journal_ptrs[1], true, &journal_end[1]);
	ck_ok(kv_version_apply(NULL, &e, NULL, &v));
	ck_ok(kv_manifest_create(&t.store, 30, v, &state, &m));
	kv_version_unref(v);
	ck_ok(kv_manifest_close(m));
}

struct seen {
	unsigned count;
	char file[16][64], text[16][512];
	uint64_t bytes_done, bytes_all;
};

static struct seen seen;

static void on_problem(void *arg, const char *file, const char *text)
{
	struct seen *s = arg;

	ck_assert_uint_lt(s->count, KV_ARRAY_LEN(s->file));
	snprintf(s->file[s->count], sizeof(s->file[0]), "%s", file ? file : "");
	snprintf(s->text[s->count++], sizeof(s->text[0]), "%s", text);
}

static void on_progress(void *arg, uint64_t bytes_done, uint64_t bytes_all)
{
	struct seen *s = arg;

	ck_assert_uint_ge(bytes_done, s->bytes_done);
	ck_assert_uint_le(bytes_done, bytes_all);
	s->bytes_done = bytes_done;
	s->bytes_all = bytes_all;
}

static int verify(bool quick)
{
	const struct kv_verify_options o = { .env = &t.env, .problem = on_problem,
					     .progress = on_progress, .arg = &seen,
					     .quick = quick };
	uint64_t problems = 0;
	int err;

	memset(&seen, 0, sizeof(seen));
	err = kv_verify(t.path, &o, &problems);
	if (!err)
		ck_assert_uint_eq(problems, seen.count);
	return err;
}

static void assert_problem(const char *file, const char *word)
{
	for (unsigned i = 0; i < seen.count; i++)
		if (!strcmp(seen.file[i], file) && strstr(seen.text[i], word))
			return;
	ck_abort_msg("no problem of %s with \"%s\"; the first of %u: %s: %s", file, word,
		     seen.count, seen.file[0], seen.text[0]);
}

static void assert_no_problem(bool quick)
{
	ck_ok(verify(quick));
	ck_assert_msg(!seen.count, "%s: %s", seen.file[0], seen.text[0]);
}

static void assert_one(const char *file, const char *word)
{
	ck_ok(verify(false));
	assert_problem(file, word);
	ck_assert_msg(seen.count == 1, "%s: %s", seen.file[1], seen.text[1]);
}

static void flip(const char *name, uint64_t at)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = tmpstore_load(&t, name);

	ck_assert_uint_lt(at, b.bytes);
	b.data[at] ^= 0x10;
	tmpstore_save(&t, name, kv_buf_slice(&b));
}

static void cut(const char *name, uint64_t bytes)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = tmpstore_load(&t, name);

	ck_assert_uint_lt(bytes, b.bytes);
	tmpstore_save(&t, name, kv_slice(b.data, bytes));
}

static void touch(const char *name)
{
	struct kv_env_file *f;

	ck_ok(t.ops.open(t.store.dir, name, KV_ENV_CREATE, &f));
	t.ops.close(f);
}

UNIT(a_good_store_has_no_problem)
{
	make_store();
	assert_no_problem(false);
	ck_assert_uint_gt(seen.bytes_all, 12 * VALUE_BYTES);
	ck_assert_uint_eq(seen.bytes_done, seen.bytes_all);
	assert_no_problem(true);
	tmpstore_done(&t);
}
UNIT_END

UNIT(what_is_left_over_or_others_is_no_problem)
{
	make_store();
	touch("CURRENT.new");
	touch("000009.sst");
	touch("000011.journal");
	touch("000006.vlog");
	touch("000029.manifest");
	touch("000099.sst");
	touch("core");
	assert_no_problem(false);
	tmpstore_done(&t);
}
UNIT_END

UNIT(damage_in_a_table_is_found)
{
	make_store();
	flip("000010.sst", 100);
	ck_ok(verify(true));
	ck_assert_uint_eq(seen.count, 0); /* quick does not look so close */
	assert_one("000010.sst", "");
	flip("000010.sst", 100);
	assert_no_problem(false);
	cut("000010.sst", 200);
	assert_one("000010.sst", "");
	ck_ok(kv_store_unlink(&t.store, KV_FILE_TABLE, 10));
	ck_ok(verify(true));
	assert_problem("000010.sst", "missing");
	tmpstore_done(&t);
}
UNIT_END

UNIT(damage_of_a_value_is_found_from_its_key)
{
	make_store();
	flip("000007.vlog", table_ptrs[3].offset + 500);
	/* key007, as hexadecimal digits. */
	assert_one("000010.sst", "6b6579303037");
	flip("000007.vlog", table_ptrs[3].offset + 500);
	flip("000008.vlog", journal_ptrs[1].offset + 500);
	assert_one("000013.journal", "000008.vlog");
	tmpstore_done(&t);
}
UNIT_END

UNIT(segments_are_as_long_as_the_manifest_says)
{
	make_store();
	cut("000007.vlog", table_ptrs[9].offset);
	ck_ok(verify(true));
	assert_problem("000007.vlog", "too short");
	ck_ok(verify(false));
	assert_problem("000010.sst", "000007.vlog");
	ck_ok(kv_store_unlink(&t.store, KV_FILE_SEGMENT, 7));
	ck_ok(verify(true));
	assert_problem("000007.vlog", "missing");
	/* Ten values are lost, which is told for some and counted for the rest. */
	ck_ok(verify(false));
	assert_problem("000010.sst", "2 more values");
	tmpstore_done(&t);
}
UNIT_END

UNIT(promised_journals_must_be_whole)
{
	make_store();
	/* The last batch of the last journal was never promised. */
	cut("000013.journal", journal_end[1] - 8);
	assert_no_problem(false);
	cut("000013.journal", unpromised_at);
	assert_no_problem(false);
	/* Of the other one everything was, as 13 says. */
	flip("000012.journal", journal_end[0] - sizeof(struct kv_chunk_header) - 20);
	ck_ok(verify(false));
	assert_problem("000012.journal", "");
	flip("000012.journal", journal_end[0] - sizeof(struct kv_chunk_header) - 20);
	assert_no_problem(false);
	cut("000012.journal", journal_end[0] - sizeof(struct kv_chunk_header));
	assert_one("000012.journal", "durable once");
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 12));
	assert_one("000012.journal", "missing");
	tmpstore_done(&t);
}
UNIT_END

static void make_empty_journal(kv_fileno number)
{
	struct kv_journal *j;

	ck_ok(kv_journal_create(&t.store, KV_FILE_JOURNAL, number, 4096, &j));
	kv_journal_free(j);
}

UNIT(journals_follow_the_tables)
{
	uint64_t end;

	make_store();
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 13));
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 12));
	assert_one("000012.journal", "missing");
	/* The tables end with 20. */
	make_journal(12, 11, 4711, 21, &journal_ptrs[0], true, &end);
	assert_one("000012.journal", "21");
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 12));
	make_journal(12, 11, 4711, 20, &journal_ptrs[0], true, &end);
	assert_no_problem(false);
	tmpstore_done(&t);
}
UNIT_END

UNIT(journals_that_were_being_made_are_no_problem)
{
	uint64_t end;

	make_store();
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 13));
	make_empty_journal(13);
	touch("000014.journal");
	assert_no_problem(false);
	/* But what was promised in one that follows it is lost. */
	make_journal(15, 13, 4711, 22, &journal_ptrs[1], true, &end);
	ck_ok(verify(false));
	assert_problem("000012.journal", "durable once");
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 15));
	flip("000013.journal", 20);
	assert_no_problem(false);
	/* The one that the manifest names was there. */
	flip("000012.journal", 20);
	ck_ok(verify(false));
	assert_problem("000012.journal", "header");
	tmpstore_done(&t);
}
UNIT_END

UNIT(a_torn_journal_makes_the_next_one_void)
{
	make_store();
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 13));
	make_journal(13, 12, journal_end[0], 22, &journal_ptrs[1], false, &journal_end[1]);
	assert_no_problem(false);
	/* Nothing in 13 says that it, or 12, was promised. */
	cut("000012.journal", journal_end[0] - sizeof(struct kv_chunk_header));
	flip("000008.vlog", journal_ptrs[1].offset + 500);
	assert_no_problem(false);
	tmpstore_done(&t);
}
UNIT_END

UNIT(pointers_lead_to_registered_segments)
{
	struct kv_vptr p;
	uint64_t end;

	make_store();
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 12));
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 13));
	p = journal_ptrs[0];
	p.segment_no = 9;
	make_journal(12, 11, 4711, 20, &p, false, &end);
	assert_one("000012.journal", "no such segment");
	tmpstore_done(&t);
}
UNIT_END

UNIT(nothing_stops_at_the_first_problem)
{
	make_store();
	flip("000010.sst", 100);
	ck_ok(kv_store_unlink(&t.store, KV_FILE_SEGMENT, 8));
	ck_ok(kv_store_unlink(&t.store, KV_FILE_JOURNAL, 12));
	ck_ok(verify(false));
	assert_problem("000010.sst", "");
	assert_problem("000008.vlog", "missing");
	assert_problem("000012.journal", "missing");
	assert_problem("000013.journal", "000008.vlog");
	tmpstore_done(&t);
}
UNIT_END

UNIT(without_a_manifest_each_file_is_looked_at)
{
	make_store();
	flip("000030.manifest", 120);
	ck_assert(kv_err_is(verify(false), KV_E_corrupt));
	ck_assert_uint_eq(seen.count, 1);
	assert_problem("000030.manifest", "damaged");
	flip("000010.sst", 100);
	flip("000007.vlog", table_ptrs[3].offset + 500);
	ck_assert(kv_err_is(verify(false), KV_E_corrupt));
	ck_assert_uint_eq(seen.count, 3);
	assert_problem("000010.sst", "");
	assert_problem("000007.vlog", "not good");
	tmpstore_done(&t);
}
UNIT_END

UNIT(what_is_no_store_is_not_judged)
{
	struct kv_env_file *lock;

	make_store();
	ck_ok(t.ops.lock(t.store.dir, KV_NAME_LOCK, false, &lock));
	ck_assert_int_eq(verify(false), KV_E_locked);
	t.ops.close(lock);
	assert_no_problem(false);
	flip("CURRENT", 20);
	ck_assert(kv_err_is(verify(false), KV_E_corrupt));
	assert_problem("CURRENT", "");
	ck_assert_uint_eq(seen.count, 1);
	ck_ok(t.ops.unlink(t.store.dir, "CURRENT"));
	ck_assert_int_eq(verify(false), KV_E_not_a_store);
	ck_assert_uint_eq(seen.count, 0);
	ck_assert_int_eq(kv_verify("/does/not/exist", &(struct kv_verify_options){ 0 },
				   &(uint64_t){ 0 }), -ENOENT);
	tmpstore_done(&t);
}
UNIT_END

/* Small limits: so there are several memtables, tables, levels and segments. */
static struct kv_db *open_engine(void)
{
	const struct kv_options o = {
		.env = &t.env,
		.create = true,
		.inline_work = true,
		.no_event_log = true,
		.memtable_bytes = 32 * KV_KIB,
		.table_bytes = 32 * KV_KIB,
		.level_base_bytes = 64 * KV_KIB,
		.segment_bytes = 256 * KV_KIB,
		.bulk_bytes_per_memtable = 512 * KV_KIB,
		.medium_bytes = 256,
		.bulk_bytes = 2048,
	};
	struct kv_db *db;

	ck_ok(kv_open(t.path, &o, &db));
	return db;
}

static void write_much(struct kv_db *db, uint64_t seed)
{
	static uint8_t value[5000];
	struct kv_batch *b = kv_batch_new();

	ck_assert_ptr_nonnull(b);
	for (int i = 0; i < 1500; i++) {
		char key[16], end[16];
		unsigned n = (unsigned)(tmpstore_random(&seed) % 600);

		snprintf(key, sizeof(key), "key%04u", n);
		snprintf(end, sizeof(end), "key%04u", n + 5);
		tmpstore_random_bytes(&seed, value, sizeof(value));
		kv_batch_reset(b);
		if (i % 50 == 7)
			kv_batch_delete_range(b, kv_slice_str(key), kv_slice_str(end));
		else
			kv_batch_put(b, kv_slice_str(key),
				     kv_slice(value, tmpstore_random(&seed) % sizeof(value)),
				     KV_HINT_NONE);
		ck_ok(kv_write(db, b, i % 20 == 0));
	}
	kv_batch_free(b);
}

UNIT(what_the_engine_leaves_is_good)
{
	tmpstore_init(&t);
	for (uint64_t round = 0; round < 3; round++) {
		int status;
		pid_t child;

		/* A process that writes and is gone, without closing anything. */
		child = fork();
		ck_assert_int_ge(child, 0);
		if (!child) {
			write_much(open_engine(), round);
			_exit(0);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
		assert_no_problem(true);
		assert_no_problem(false);
		/* And one that closes. */
		ck_ok(kv_close(open_engine()));
		assert_no_problem(false);
	}
	tmpstore_done(&t);
}
UNIT_END

/* --- pace -------------------------------------------------------------------------------------- */

static uint64_t now_ns, slept_ns, sleeps, asked, cancel_at;

static uint64_t fake_clock(struct kv_env *env)
{
	(void)env;
	return now_ns += 1000;
}

static void fake_sleep(struct kv_env *env, uint64_t ns)
{
	(void)env;
	now_ns += ns;
	slept_ns += ns;
	sleeps++;
}

static bool cancelled(void *arg)
{
	ck_assert_ptr_eq(arg, &seen);
	return ++asked == cancel_at;
}

static int verify_at(uint64_t bytes_per_second, bool quick)
{
	const struct kv_verify_options o = {
		.env = &t.env,
		.problem = on_problem,
		.progress = on_progress,
		.cancelled = cancelled,
		.arg = &seen,
		.bytes_per_second = bytes_per_second,
		.quick = quick,
	};
	uint64_t problems = 0;

	memset(&seen, 0, sizeof(seen));
	now_ns = slept_ns = sleeps = asked = 0;
	t.ops.monotonic_ns = fake_clock;
	t.ops.sleep_ns = fake_sleep;
	return kv_verify(t.path, &o, &problems);
}

/* The engine runs on the system's clock still. */
static void make_large_store(void)
{
	struct kv_db *db;

	tmpstore_init(&t);
	db = open_engine();
	write_much(db, 1);
	ck_ok(kv_close(db));
}

UNIT(it_reads_as_slowly_as_it_is_told)
{
	uint64_t bytes;

	make_large_store();
	cancel_at = 0;
	ck_ok(verify_at(0, false));
	ck_assert_uint_eq(sleeps, 0);
	ck_ok(verify_at(1, true));
	ck_assert_uint_eq(sleeps, 0);
	ck_ok(verify_at(100 * KV_KIB, false));
	ck_assert_uint_eq(seen.bytes_done, seen.bytes_all);
	bytes = slept_ns / 1000000 * 100 * KV_KIB / 1000;
	ck_assert_uint_gt(bytes, seen.bytes_all / 2);
	ck_assert_uint_lt(bytes, seen.bytes_all * 3 / 2);
	/* It asks whether to go on all the time. */
	ck_assert_uint_ge(asked, sleeps);
	ck_assert_uint_lt(slept_ns / sleeps, 100000001);
	tmpstore_done(&t);
}
UNIT_END

/* From keys to values; and, without a manifest, file by file. */
UNIT(it_can_be_cancelled)
{
	struct kv_root root;

	make_large_store();
	for (int round = 0; round < 2; round++) {
		for (cancel_at = 1; cancel_at < 500; cancel_at += 7) {
			ck_assert_int_eq(verify_at(10 * KV_KIB, false), -ECANCELED);
			ck_assert_uint_eq(asked, cancel_at);
			ck_assert_uint_eq(seen.count, (unsigned)round);
			ck_assert_uint_lt(seen.bytes_done, seen.bytes_all + 1);
		}
		cancel_at = 0;
		ck_assert_int_eq(verify_at(1 * KV_MIB, false), round ? KV_E_journal_damaged : 0);
		ck_ok(kv_root_read(&t.store, &root));
		flip(kv_filename(KV_FILE_MANIFEST, kv_le64_get(root.manifest_no)).s, 120);
	}
	tmpstore_done(&t);
}
UNIT_END

UNIT_MAIN("verify", a_good_store_has_no_problem, what_is_left_over_or_others_is_no_problem,
	  damage_in_a_table_is_found, damage_of_a_value_is_found_from_its_key,
	  segments_are_as_long_as_the_manifest_says, promised_journals_must_be_whole,
	  journals_follow_the_tables, journals_that_were_being_made_are_no_problem,
	  a_torn_journal_makes_the_next_one_void, pointers_lead_to_registered_segments,
	  nothing_stops_at_the_first_problem, without_a_manifest_each_file_is_looked_at,
	  what_is_no_store_is_not_judged, what_the_engine_leaves_is_good,
	  it_reads_as_slowly_as_it_is_told, it_can_be_cancelled)
