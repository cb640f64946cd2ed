#include "kv/journal.h"
#include "kv/manifest.h"
#include "tests/unit/tmpstore.h"
#include "tests/unit/version_make.h"

static struct tmpstore t;

static void unrefp(struct kv_version **v)
{
	kv_version_unref(*v);
}

/* Segment 7 sealed, segment 8; tables 20 and 21. */
static struct kv_version *make_version(void)
{
	struct kv_edit e = { .is_snapshot = true };
	struct kv_sst_meta m = make_meta(20, "a", "f", 5, 90);
	struct kv_version *v;

	make_ref(&m, 7, 1000);
	ck_ok(kv_edit_add_segment(&e, 7));
	ck_ok(kv_edit_seal_segment(&e, 7, 5000));
	ck_ok(kv_edit_add_segment(&e, 8));
	ck_ok(kv_edit_add_table(&e, 0, &m));
	edit_add(&e, 3, 21, "b", "c", 4);
	ck_ok(kv_version_apply(NULL, &e, NULL, &v));
	kv_edit_done(&e);
	kv_sst_meta_done(&m);
	return v;
}

static const struct kv_manifest_state begin_state = { .next_fileno = 31, .journal_min = 12,
						      .seqno = 90 };

static struct kv_manifest *make_manifest(kv_fileno number)
{
	KV_AUTO(unrefp) struct kv_version *v = make_version();
	struct kv_manifest *m;

	ck_ok(kv_manifest_create(&t.store, number, v, &begin_state, &m));
	ck_assert_uint_eq(kv_manifest_number(m), number);
	return m;
}

/* Adds segment `number`, and raises the numbers to it. */
static int append_segment(struct kv_manifest *m, kv_fileno number)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { .has_next_fileno = true, .has_seqno = true,
						   .next_fileno = number + 1, .seqno = number };

	ck_ok(kv_edit_add_segment(&e, number));
	return kv_manifest_append(m, &e);
}

static int load(kv_fileno number, struct kv_manifest_state *out_state)
{
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_manifest_state state;
	int err = kv_manifest_load(&t.store, number, NULL, &v, &state);

	if (!err) {
		ck_assert_uint_eq(v->levels[0].tables[0]->meta.number, 20);
		ck_assert_uint_eq(v->levels[3].tables[0]->meta.number, 21);
		ck_assert_uint_eq(kv_version_segment(v, 7)->referenced_bytes, 1000);
		*out_state = state;
	}
	return err;
}

static void assert_fails(kv_fileno number, int code, const char *word)
{
	struct kv_manifest_state state;
	unsigned before = t.message_count;

	ck_assert_int_eq(load(number, &state), code);
	ck_assert_uint_gt(t.message_count, before);
	ck_assert_msg(strstr(t.message, kv_filename(KV_FILE_MANIFEST, number).s) &&
			      strstr(t.message, word), "%s", t.message);
}

UNIT(what_is_appended_is_loaded)
{
	struct kv_manifest *m;
	struct kv_manifest_state state;
	struct kv_root root;

	tmpstore_init(&t);
	m = make_manifest(30);
	ck_ok(load(30, &state));
	ck_assert_uint_eq(state.next_fileno, 31);
	ck_assert_uint_eq(state.journal_min, 12);
	ck_assert_uint_eq(state.seqno, 90);
	for (kv_fileno n = 100; n < 110; n++)
		ck_ok(append_segment(m, n));
	ck_ok(load(30, &state));
	ck_assert_uint_eq(state.next_fileno, 110);
	ck_assert_uint_eq(state.journal_min, 12);
	ck_assert_uint_eq(state.seqno, 109);
	ck_ok(kv_root_read(&t.store, &root));
	ck_assert_uint_eq(kv_le64_get(root.manifest_no), 30);
	ck_ok(kv_manifest_close(m));
	ck_ok(load(30, &state));
	ck_assert_uint_eq(t.message_count, 0);
	tmpstore_done(&t);
}
UNIT_END

UNIT(versions_of_a_load_tell_the_sink)
{
	static const struct kv_obsolete_sink sink = { 0 };
	KV_AUTO(unrefp) struct kv_version *v = NULL;
	struct kv_manifest_state state;

	tmpstore_init(&t);
	kv_manifest_free(make_manifest(30));
	ck_ok(kv_manifest_load(&t.store, 30, &sink, &v, &state));
	ck_assert_ptr_eq(v->levels[0].tables[0]->sink, &sink);
	ck_assert_ptr_eq(v->segments[0].segment->sink, &sink);
	tmpstore_done(&t);
}
UNIT_END

UNIT(numbers_of_files_count_if_nobody_says_them)
{
	struct kv_manifest *m;
	struct kv_manifest_state state;
	struct kv_edit e = { 0 };

	tmpstore_init(&t);
	m = make_manifest(30);
	edit_add(&e, 4, 777, "a", "b", 4444);
	ck_ok(kv_manifest_append(m, &e));
	kv_manifest_free(m);
	kv_edit_done(&e);
	ck_ok(load(30, &state));
	ck_assert_uint_eq(state.next_fileno, 778);
	ck_assert_uint_eq(state.seqno, 4444);
	tmpstore_done(&t);
}
UNIT_END

/* Where the two edits begin that are appended to a manifest, and where the last one ends. */
static uint64_t two_edits(uint64_t *out_second, uint64_t *out_end)
{
	struct kv_manifest *m = make_manifest(30);
	uint64_t first = kv_manifest_bytes(m);

	ck_ok(append_segment(m, 100));
	*out_second = kv_manifest_bytes(m);
	ck_ok(append_segment(m, 101));
	/* Behind it is the mark. */
	*out_end = kv_manifest_bytes(m) - sizeof(struct kv_chunk_header);
	kv_manifest_free(m);
	return first;
}

UNIT(a_torn_last_edit_is_left_out)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf whole_file = KV_BUF_INIT;
	struct kv_filename name = kv_filename(KV_FILE_MANIFEST, 30);
	uint64_t second, end;

	tmpstore_init(&t);
	two_edits(&second, &end);
	b = tmpstore_load(&t, name.s);
	whole_file = tmpstore_load(&t, name.s);
	for (uint64_t bytes = second; bytes <= end; bytes++) {
		struct kv_manifest_state state;

		tmpstore_save(&t, name.s, kv_slice(b.data, bytes));
		ck_ok(load(30, &state));
		ck_assert_uint_eq(state.seqno, bytes < end ? 100 : 101);
		/* Not cut, but never written: zeros behind. */
		memset(b.data + bytes, 0, b.bytes - bytes);
		tmpstore_save(&t, name.s, kv_buf_slice(&b));
		ck_ok(load(30, &state));
		memcpy(b.data, whole_file.data, b.bytes);
	}
	tmpstore_done(&t);
}
UNIT_END

UNIT(a_damaged_edit_is_not_forgiven)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct kv_filename name = kv_filename(KV_FILE_MANIFEST, 30);
	uint64_t first, second, end;

	tmpstore_init(&t);
	first = two_edits(&second, &end);
	b = tmpstore_load(&t, name.s);
	/* The mark behind each says that it was promised, the last one too. */
	for (int i = 0; i < 3; i++) {
		uint64_t at = i == 0 ? sizeof(struct kv_file_header) : i == 1 ? first : second;

		b.data[at + sizeof(struct kv_chunk_header)] ^= 1;
		tmpstore_save(&t, name.s, kv_buf_slice(&b));
		assert_fails(30, KV_E_journal_damaged, "damaged");
		b.data[at + sizeof(struct kv_chunk_header)] ^= 1;
	}
	tmpstore_done(&t);
}
UNIT_END

UNIT(without_the_first_edit_there_is_nothing)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct kv_filename name = kv_filename(KV_FILE_MANIFEST, 30);

	tmpstore_init(&t);
	kv_manifest_free(make_manifest(30));
	b = tmpstore_load(&t, name.s);
	tmpstore_save(&t, name.s, kv_slice(b.data, sizeof(struct kv_file_header)));
	assert_fails(30, KV_E_corrupt, "fsck.kvfs");
	tmpstore_save(&t, name.s, kv_slice(b.data, sizeof(struct kv_file_header) + 50));
	assert_fails(30, KV_E_corrupt, "fsck.kvfs");
	tmpstore_save(&t, name.s, kv_slice(b.data, 3));
	assert_fails(30, KV_E_short_file, "header");
	ck_ok(kv_store_unlink(&t.store, KV_FILE_MANIFEST, 30));
	assert_fails(30, KV_E_missing_file, "missing");
	tmpstore_done(&t);
}
UNIT_END

struct raw {
	enum kv_chunk_type type;
	uint64_t number;
	struct kv_edit edit;
};

/* A manifest of a whole first edit and then what `raw` says. */
static void write_raw(kv_fileno number, struct raw *first, struct raw *second)
{
	struct raw *all[] = { first, second };
	struct kv_journal *j;

	ck_ok(kv_journal_create(&t.store, KV_FILE_MANIFEST, number, 0, &j));
	for (int i = 0; i < 2 && all[i]; i++) {
		KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
		struct iovec iov;

		ck_ok(kv_edit_encode(&all[i]->edit, &b));
		iov = (struct iovec){ b.data, b.bytes };
		ck_ok(kv_journal_append(j, all[i]->type, all[i]->number, 1, &iov, 1));
		kv_edit_done(&all[i]->edit);
	}
	ck_ok(kv_journal_sync(j));
	kv_journal_free(j);
}

static struct raw whole(uint64_t number)
{
	struct raw r = { .type = KV_CHUNK_EDIT, .number = number };
	KV_AUTO(unrefp) struct kv_version *v = make_version();

	ck_ok(kv_version_to_edit(v, &r.edit));
	r.edit.has_next_fileno = r.edit.has_journal_min = r.edit.has_seqno = true;
	r.edit.next_fileno = 50;
	r.edit.journal_min = 12;
	r.edit.seqno = 90;
	return r;
}

UNIT(edits_must_follow_from_each_other)
{
	struct kv_manifest_state state;
	kv_fileno n = 30;
	struct raw a, b;

	tmpstore_init(&t);
	a = whole(1);
	write_raw(++n, &a, NULL);
	ck_ok(load(n, &state));

	a = whole(2);
	write_raw(++n, &a, NULL);
	assert_fails(n, KV_E_bad_record, "number");

	a = whole(1);
	a.edit.has_seqno = false;
	write_raw(++n, &a, NULL);
	assert_fails(n, KV_E_bad_record, "whole state");

	a = whole(1);
	a.edit.is_snapshot = false;
	write_raw(++n, &a, NULL);
	assert_fails(n, KV_E_bad_record, "follow");

	a = whole(1);
	b = whole(2);
	write_raw(++n, &a, &b);
	assert_fails(n, KV_E_bad_record, "follow");

	a = whole(1);
	b = (struct raw){ .type = KV_CHUNK_EDIT, .number = 3 };
	write_raw(++n, &a, &b);
	assert_fails(n, KV_E_bad_record, "number");

	a = whole(1);
	b = (struct raw){ .type = KV_CHUNK_BATCHES, .number = 2 };
	write_raw(++n, &a, &b);
	assert_fails(n, KV_E_bad_record, "belong");

	a = whole(1);
	b = (struct raw){ .type = KV_CHUNK_EDIT, .number = 2 };
	ck_ok(kv_edit_delete_table(&b.edit, 1, 20));
	write_raw(++n, &a, &b);
	assert_fails(n, KV_E_bad_record, "fit");
	tmpstore_done(&t);
}
UNIT_END

UNIT(numbers_do_not_go_back)
{
	struct raw a, b;
	kv_fileno n = 30;

	tmpstore_init(&t);
	for (int i = 0; i < 4; i++) {
		a = whole(1);
		b = (struct raw){ .type = KV_CHUNK_EDIT, .number = 2 };
		b.edit.has_next_fileno = i == 0;
		b.edit.has_journal_min = i == 1;
		b.edit.has_seqno = i == 2;
		b.edit.next_fileno = 49;
		b.edit.journal_min = 11;
		b.edit.seqno = 89;
		if (i == 3)
			ck_ok(kv_edit_add_segment(&b.edit, UINT64_MAX));
		write_raw(++n, &a, &b);
		assert_fails(n, KV_E_bad_record, "back");
	}
	tmpstore_done(&t);
}
UNIT_END

UNIT(a_newer_edit_is_said_to_be_newer)
{
	struct kv_journal *j;
	struct iovec iov = { (void *)(uintptr_t) "\x1e\0", 2 };

	tmpstore_init(&t);
	ck_ok(kv_journal_create(&t.store, KV_FILE_MANIFEST, 30, 0, &j));
	ck_ok(kv_journal_append(j, KV_CHUNK_EDIT, 1, 1, &iov, 1));
	ck_ok(kv_journal_sync(j));
	kv_journal_free(j);
	assert_fails(30, KV_E_newer_format, "newer");
	tmpstore_done(&t);
}
UNIT_END

static int fail_sync(struct kv_env_file *file)
{
	(void)file;
	return -EIO;
}

UNIT(a_failed_append_stays_failed)
{
	struct kv_manifest_state state;
	struct kv_manifest *m;

	tmpstore_init(&t);
	m = make_manifest(30);
	t.ops.sync = fail_sync;
	ck_assert_int_eq(append_segment(m, 100), -EIO);
	ck_assert(strstr(t.message, "000030.manifest"));
	t.ops.sync = tmpstore_system()->sync;
	ck_assert_int_eq(append_segment(m, 100), -EIO);
	ck_assert_int_eq(kv_manifest_close(m), -EIO);
	ck_ok(load(30, &state));
	tmpstore_done(&t);
}
UNIT_END

static int fail_allocate(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool extend)
{
	(void)file;
	(void)offset;
	(void)bytes;
	(void)extend;
	return -ENOSPC;
}

UNIT(a_full_disk_does_no_harm)
{
	struct kv_manifest_state state;
	struct kv_manifest *m;
	struct kv_edit e = { 0 };

	tmpstore_init(&t);
	m = make_manifest(30);
	for (kv_fileno s = 1000; s < 41000; s++)
		ck_ok(kv_edit_add_segment(&e, s));
	t.ops.allocate = fail_allocate;
	ck_assert_int_eq(kv_manifest_append(m, &e), KV_E_no_space);
	ck_ok(append_segment(m, 100)); /* there is room for it */
	t.ops.allocate = tmpstore_system()->allocate;
	ck_ok(kv_manifest_append(m, &e));
	kv_edit_done(&e);
	ck_ok(kv_manifest_close(m));
	ck_ok(load(30, &state));
	ck_assert_uint_eq(state.next_fileno, 41000);
	tmpstore_done(&t);
}
UNIT_END

UNIT(a_failed_creation_changes_nothing)
{
	KV_AUTO(unrefp) struct kv_version *v = make_version();
	struct kv_manifest_state state = { .next_fileno = 50, .journal_min = 12, .seqno = 90 };
	struct kv_env_file *file;
	struct kv_manifest *m;
	struct kv_root root;

	tmpstore_init(&t);
	kv_manifest_free(make_manifest(30));
	t.ops.sync = fail_sync;
	ck_assert_int_eq(kv_manifest_create(&t.store, 31, v, &state, &m), -EIO);
	t.ops.sync = tmpstore_system()->sync;
	ck_ok(kv_root_read(&t.store, &root));
	ck_assert_uint_eq(kv_le64_get(root.manifest_no), 30);
	ck_assert_int_eq(t.ops.open(t.store.dir, kv_filename(KV_FILE_MANIFEST, 31).s,
				    KV_ENV_READ, &file), -ENOENT);
	ck_ok(load(30, &state));
	tmpstore_done(&t);
}
UNIT_END

static int rename_err;

static int fail_rename(struct kv_env_dir *dir, const char *from, const char *to)
{
	(void)dir;
	(void)from;
	(void)to;
	return rename_err;
}

UNIT(a_switch_that_did_not_happen_is_harmless)
{
	static const struct {
		int err, want;
	} cases[] = { { -EIO, -EIO }, { -ENOSPC, KV_E_no_space }, { -ENOMEM, -ENOMEM } };
	KV_AUTO(unrefp) struct kv_version *v = make_version();
	struct kv_manifest_state state = { .next_fileno = 50, .journal_min = 12, .seqno = 90 };
	struct kv_manifest *m;

	tmpstore_init(&t);
	t.ops.rename = fail_rename;
	for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++) {
		rename_err = cases[i].err;
		/* First without a root, as when a store is made. */
		ck_assert_int_eq(kv_manifest_create(&t.store, 31, v, &state, &m), cases[i].want);
		assert_fails(31, KV_E_missing_file, "missing");
	}
	t.ops.rename = tmpstore_system()->rename;
	kv_manifest_free(make_manifest(30));
	t.ops.rename = fail_rename;
	for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++) {
		rename_err = cases[i].err;
		ck_assert_int_eq(kv_manifest_create(&t.store, 31, v, &state, &m), cases[i].want);
		assert_fails(31, KV_E_missing_file, "missing");
	}
	ck_ok(load(30, &state));
	tmpstore_done(&t);
}
UNIT_END

static int dir_syncs;

static int fail_second_dir_sync(struct kv_env_dir *dir)
{
	return ++dir_syncs == 2 ? -ENOSPC : tmpstore_system()->dir_sync(dir);
}

/* Which one the root names after a crash is unknown then: both must be whole. */
UNIT(a_switch_that_is_unknown_leaves_both)
{
	KV_AUTO(unrefp) struct kv_version *v = make_version();
	struct kv_manifest_state state = { .next_fileno = 50, .journal_min = 12, .seqno = 90 };
	struct kv_manifest *m;

	tmpstore_init(&t);
	kv_manifest_free(make_manifest(30));
	t.ops.dir_sync = fail_second_dir_sync;
	ck_assert_int_eq(kv_manifest_create(&t.store, 31, v, &state, &m), -EIO);
	ck_assert_int_eq(dir_syncs, 2);
	ck_ok(load(30, &state));
	ck_ok(load(31, &state));
	tmpstore_done(&t);
}
UNIT_END

UNIT(it_is_long_when_it_has_grown)
{
	struct kv_manifest *m;
	struct kv_edit e = { 0 };
	unsigned n = 0;

	tmpstore_init(&t);
	m = make_manifest(30);
	ck_assert(!kv_manifest_is_long(m));
	for (kv_fileno s = 1000; s < 21000; s++)
		ck_ok(kv_edit_add_segment(&e, s));
	for (; !kv_manifest_is_long(m); n++) {
		ck_assert_uint_le(kv_manifest_bytes(m), KV_MIB);
		ck_ok(kv_manifest_append(m, &e));
	}
	ck_assert_uint_gt(kv_manifest_bytes(m), KV_MIB);
	ck_assert_uint_gt(n, 5);
	kv_manifest_free(m);
	kv_edit_done(&e);
	tmpstore_done(&t);
}
UNIT_END

UNIT_MAIN("manifest", what_is_appended_is_loaded, versions_of_a_load_tell_the_sink,
	  numbers_of_files_count_if_nobody_says_them, a_torn_last_edit_is_left_out,
	  a_damaged_edit_is_not_forgiven, without_the_first_edit_there_is_nothing,
	  edits_must_follow_from_each_other, numbers_do_not_go_back,
	  a_newer_edit_is_said_to_be_newer, a_failed_append_stays_failed, a_full_disk_does_no_harm,
	  a_failed_creation_changes_nothing, a_switch_that_did_not_happen_is_harmless,
	  a_switch_that_is_unknown_leaves_both, it_is_long_when_it_has_grown)
