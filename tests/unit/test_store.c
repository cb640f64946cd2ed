#include <stdio.h>

#include "kv/checksum.h"
#include "kv/store.h"
#include "tests/sim/env_sim.h"
#include "tests/unit/unit.h"

#define ROOT "/store"

static struct kv_store store;
static char said[1024];		/* the last message */
static int messages;

static void hear(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	ck_assert_int_eq(level, KV_MSG_ERROR);
	snprintf(said, sizeof(said), "%s", text);
	messages++;
}

static void enter(struct kv_env *env)
{
	store = (struct kv_store){
		.env = env,
		.path = ROOT,
		.msg = { .fn = hear, .level_max = KV_MSG_DEBUG },
		.store_id = "0123456789abcde",
	};
	messages = 0;
	ck_ok(env->ops->dir_open(env, ROOT, true, &store.dir));
}

static void leave(void)
{
	store.env->ops->dir_close(store.dir);
	kv_env_sim_free(store.env);
}

static void crash(enum kv_sim_crash how, uint64_t seed)
{
	kv_env_sim_crash(store.env, how, seed);
	store.env->ops->dir_close(store.dir);
	ck_ok(store.env->ops->dir_open(store.env, ROOT, false, &store.dir));
}

static void write_file(const char *name, const void *data, size_t bytes)
{
	struct kv_env_file *f;

	(void)store.env->ops->unlink(store.dir, name);	/* when it is there */
	ck_ok(store.env->ops->open(store.dir, name, KV_ENV_CREATE, &f));
	ck_ok(kv_env_write(store.env, f, kv_slice(data, bytes), 0));
	store.env->ops->close(f);
}

/* The manifest that the root names; 0 and the error when it cannot be read. */
static kv_fileno root(int want_err)
{
	struct kv_root r;
	int err;

	messages = 0;
	memset(store.store_id, 0, sizeof(store.store_id));
	err = kv_root_read(&store, &r);
	ck_assert_int_eq(err, want_err);
	ck_assert_int_eq(messages, want_err != 0);
	return err ? 0 : kv_le64_get(r.manifest_no);
}

UNIT(the_root_round_trips)
{
	struct kv_root r;

	enter(kv_env_sim_new(1));
	ck_ok(kv_root_write(&store, 42));
	ck_assert_uint_eq(root(0), 42);
	ck_assert_mem_eq(store.store_id, "0123456789abcde", KV_STORE_ID_BYTES);
	ck_ok(kv_root_read(&store, &r));
	ck_assert_uint_eq(kv_le64_get(r.features_write), 0);
	ck_ok(kv_root_write(&store, 43));
	ck_assert_uint_eq(root(0), 43);
	write_file(KV_NAME_ROOT_NEW, "left behind by a crash", 22);
	ck_ok(kv_root_write(&store, 44));
	ck_assert_uint_eq(root(0), 44);
	leave();
}
UNIT_END

/* Bits that this program doesn't know are not its own to take away. */
UNIT(features_stay_as_they_are)
{
	struct kv_root r;

	enter(kv_env_sim_new(1));
	store.features_write = 0x4000000000000000;
	store.features_ignorable = 0x30;
	ck_ok(kv_root_write(&store, 42));
	for (kv_fileno number = 43; number < 45; number++) {
		store.features_write = store.features_ignorable = 0;
		ck_ok(kv_root_read(&store, &r));
		ck_ok(kv_root_write(&store, number));
		ck_ok(kv_root_read(&store, &r));
		ck_assert_uint_eq(kv_le64_get(r.manifest_no), number);
		ck_assert_uint_eq(kv_le64_get(r.features_write), 0x4000000000000000);
		ck_assert_uint_eq(kv_le64_get(r.features_ignorable), 0x30);
	}
	store.features_write = store.features_ignorable = 0;
	leave();
}
UNIT_END

UNIT(what_is_no_root_is_told_apart)
{
	struct kv_root r;
	struct kv_env_file *f;

	enter(kv_env_sim_new(1));
	root(KV_E_not_a_store);
	ck_assert_ptr_nonnull(strstr(said, ROOT));
	write_file(KV_NAME_ROOT, "something else", 14);
	root(KV_E_not_a_store);
	ck_ok(kv_root_write(&store, 42));
	ck_ok(store.env->ops->open(store.dir, KV_NAME_ROOT, KV_ENV_READ, &f));
	ck_ok(kv_env_read_exact(store.env, f, &r, sizeof(r), 0));
	store.env->ops->close(f);
	for (size_t bytes = 0; bytes < sizeof(r); bytes++) {
		write_file(KV_NAME_ROOT, &r, bytes);
		root(KV_E_short_file);
	}
	for (size_t i = 0; i < sizeof(r); i++) {
		write_file(KV_NAME_ROOT, &r, sizeof(r));
		ck_ok(kv_env_sim_flip(store.env, ROOT, KV_NAME_ROOT, i, 0x10));
		root(i < sizeof(r.magic) ? KV_E_not_a_store : KV_E_bad_sum);
	}
	write_file(KV_NAME_ROOT, &r, sizeof(r));
	ck_assert_uint_eq(root(0), 42);
	leave();
}
UNIT_END

static void write_root(struct kv_root *r)
{
	memcpy(r->magic, KV_ROOT_MAGIC, sizeof(r->magic));
	r->checksum = kv_le64(kv_checksum(kv_slice((uint8_t *)r + 16, sizeof(*r) - 16), 0));
	write_file(KV_NAME_ROOT, r, sizeof(*r));
}

UNIT(newer_formats_are_refused_in_one_sentence)
{
	struct kv_root r = { .version = kv_le32(KV_FORMAT_VERSION + 1), .manifest_no = kv_le64(1) };
	struct kv_root got;

	enter(kv_env_sim_new(1));
	write_root(&r);
	root(KV_E_newer_format);
	ck_assert_str_eq(said, ROOT ": written by a newer version of kvfs (format 2, this program knows 1)");
	r.version = kv_le32(KV_FORMAT_VERSION);
	r.features_required = kv_le64((uint64_t)1 << 40);
	write_root(&r);
	root(KV_E_newer_format);
	r.features_required = kv_le64(0);
	r.features_write = kv_le64(4);		/* the opener's to judge */
	r.features_ignorable = kv_le64(8);
	write_root(&r);
	ck_ok(kv_root_read(&store, &got));
	ck_assert_uint_eq(kv_le64_get(got.features_write), 4);
	r.version = kv_le32(0);
	write_root(&r);
	root(KV_E_bad_record);
	r.version = kv_le32(KV_FORMAT_VERSION);
	r.manifest_no = kv_le64(0);
	write_root(&r);
	root(KV_E_bad_record);
	leave();
}
UNIT_END

/* A store that moves from manifest 1 to 2 is at one of them whenever the power fails. */
static int move_on(void)
{
	struct kv_env_file *f;
	int err;

	KV_TRY(kv_store_create_file(&store, KV_FILE_MANIFEST, 2, &f));
	err = store.env->ops->sync(f);
	store.env->ops->close(f);
	return err ? err : kv_root_write(&store, 2);
}

UNIT(the_root_always_names_a_manifest_that_is_there)
{
	int seen[3] = { 0 };
	bool stopped = true;

	for (uint64_t n = 0; stopped; n++)
		for (uint64_t seed = 0; seed < 40; seed++) {
			struct kv_env_file *f;
			kv_fileno number;
			int err;

			enter(kv_env_sim_new(seed));
			ck_ok(kv_store_create_file(&store, KV_FILE_MANIFEST, 1, &f));
			ck_ok(store.env->ops->sync(f));
			store.env->ops->close(f);
			ck_ok(kv_root_write(&store, 1));
			kv_env_sim_stop_after(store.env, n, true);
			err = move_on();
			stopped = kv_env_sim_stopped(store.env);
			ck_assert(stopped || !err);
			crash(KV_SIM_RANDOM, seed);
			number = root(0);
			ck_assert(number == 2 || (number == 1 && err));
			seen[number]++;
			ck_ok(kv_store_open_file(&store, KV_FILE_MANIFEST, number, &f));
			store.env->ops->close(f);
			leave();
		}
	ck_assert_int_gt(seen[1], 0);
	ck_assert_int_gt(seen[2], 0);
}
UNIT_END

UNIT(a_root_that_cannot_be_replaced_stays)
{
	static const struct kv_sim_fault faults[] = {
		{ KV_SIM_WRITE, "CURRENT.new", 0, -ENOSPC, false },
		{ KV_SIM_SYNC, "CURRENT.new", 0, -EIO, false },
		{ KV_SIM_RENAME, NULL, 0, -EIO, false },
		{ KV_SIM_CREATE, NULL, 0, -EMFILE, false },
		{ KV_SIM_UNLINK, "CURRENT.new", 0, -EACCES, false },
		{ KV_SIM_DIR_SYNC, NULL, 0, -EIO, false },
	};

	enter(kv_env_sim_new(1));
	ck_ok(kv_root_write(&store, 1));
	for (size_t i = 0; i < KV_ARRAY_LEN(faults); i++) {
		uint8_t id[KV_STORE_ID_BYTES];

		memcpy(id, store.store_id, sizeof(id));
		kv_env_sim_fail(store.env, &faults[i]);
		messages = 0;
		ck_assert_int_eq(kv_root_write(&store, 2), faults[i].err);
		ck_assert_int_eq(messages, 1);
		kv_env_sim_heal(store.env);
		ck_assert_uint_eq(root(0), 1);
		ck_assert_mem_eq(id, store.store_id, sizeof(id));
	}
	ck_ok(kv_root_write(&store, 2));
	ck_assert_uint_eq(root(0), 2);
	leave();
}
UNIT_END

UNIT(files_are_checked_when_opened)
{
	static const struct kv_sim_fault fault = { KV_SIM_READ, NULL, 0, -EIO, false };
	const struct kv_filename filename = kv_filename(KV_FILE_TABLE, 7);
	const char *name = filename.s;
	struct kv_file_header h;
	struct kv_env_file *f;

	enter(kv_env_sim_new(1));
	ck_assert_int_eq(kv_store_open_file(&store, KV_FILE_TABLE, 7, &f), KV_E_missing_file);
	ck_assert_ptr_nonnull(strstr(said, "000007.sst"));
	ck_ok(kv_store_create_file(&store, KV_FILE_TABLE, 7, &f));
	store.env->ops->close(f);
	ck_assert_int_eq(kv_store_create_file(&store, KV_FILE_TABLE, 7, &f), -EEXIST);
	ck_ok(kv_store_open_file(&store, KV_FILE_TABLE, 7, &f));
	ck_ok(kv_env_read_exact(store.env, f, &h, sizeof(h), 0));
	store.env->ops->close(f);
	ck_ok(kv_file_header_check(&h, KV_FILE_TABLE, 7, store.store_id));
	ck_assert_int_eq(kv_file_header_check(&h, KV_FILE_JOURNAL, 7, store.store_id), KV_E_bad_record);
	ck_assert_int_eq(kv_file_header_check(&h, KV_FILE_TABLE, 8, store.store_id), KV_E_bad_record);
	ck_assert_int_eq(kv_file_header_check(&h, KV_FILE_TABLE, 7, (const uint8_t *)"another store's "),
			 KV_E_bad_record);

	for (size_t i = 0; i < sizeof(h); i++) {
		write_file(name, &h, sizeof(h));
		ck_ok(kv_env_sim_flip(store.env, ROOT, name, i, 1));
		messages = 0;
		ck_assert_int_eq(kv_store_open_file(&store, KV_FILE_TABLE, 7, &f),
				 i < sizeof(h.magic) ? KV_E_bad_record : KV_E_bad_sum);
		ck_assert_int_eq(messages, 1);
	}
	write_file(name, &h, sizeof(h) - 1);
	ck_assert_int_eq(kv_store_open_file(&store, KV_FILE_TABLE, 7, &f), KV_E_short_file);
	h.features_required = kv_le64(1);
	h.checksum = kv_le64(kv_checksum(kv_slice((uint8_t *)&h + 16, sizeof(h) - 16), 0));
	write_file(name, &h, sizeof(h));
	ck_assert_int_eq(kv_store_open_file(&store, KV_FILE_TABLE, 7, &f), KV_E_newer_format);
	kv_env_sim_fail(store.env, &fault);
	ck_assert_int_eq(kv_store_open_file(&store, KV_FILE_TABLE, 7, &f), -EIO);
	ck_ok(kv_store_unlink(&store, KV_FILE_TABLE, 7));
	ck_assert_int_eq(kv_store_unlink(&store, KV_FILE_TABLE, 7), -ENOENT);
	leave();
}
UNIT_END

UNIT(a_file_that_cannot_be_made_is_not_there)
{
	struct kv_env_file *f;

	enter(kv_env_sim_new(1));
	kv_env_sim_set_capacity(store.env, 0);
	ck_assert_int_eq(kv_store_create_file(&store, KV_FILE_SEGMENT, 3, &f), -ENOSPC);
	kv_env_sim_set_capacity(store.env, UINT64_MAX);
	ck_ok(kv_store_create_file(&store, KV_FILE_SEGMENT, 3, &f));
	store.env->ops->close(f);
	leave();
}
UNIT_END

UNIT_MAIN("store", the_root_round_trips, features_stay_as_they_are, what_is_no_root_is_told_apart,
	  newer_formats_are_refused_in_one_sentence,
	  the_root_always_names_a_manifest_that_is_there, a_root_that_cannot_be_replaced_stays,
	  files_are_checked_when_opened, a_file_that_cannot_be_made_is_not_there)
