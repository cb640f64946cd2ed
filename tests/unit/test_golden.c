/*
 * Bytes that were stored by format version 1, and must stay readable for ever: two small stores
 * in tests/golden/v1, and every struct on disk as a line of hexadecimal digits.
 *
 * A test that fails here says that the format has changed: that needs a new version or a feature
 * bit, never new golden bytes. Stores for a new version are made with
 *	GOLDEN_MAKE=tests/golden/v2 tests/unit/test_golden
 * before anything else changes in it; those of old versions stay.
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fs/core.h"
#include "fs/record.h"
#include "kv/batch.h"
#include "kv/checksum.h"
#include "kv/edit.h"
#include "kv/journal.h"
#include "kv/sst_impl.h"
#include "kv/verify.h"
#include "tests/sim/env_sim.h"
#include "tests/unit/unit.h"

#define STORE "store"

/* --- files of the machine and of the disk in memory --------------------------------------- */

static void path_make(char *path, size_t bytes, const char *set, const char *name)
{
	const char *srcdir = getenv("srcdir");
	const char *make = getenv("GOLDEN_MAKE");

	if (make)
		snprintf(path, bytes, "%s/%s/%s", make, set, name);
	else
		snprintf(path, bytes, "%s/tests/golden/v1/%s/%s", srcdir ? srcdir : ".", set, name);
}

static void load_file(struct kv_env *env, struct kv_env_dir *dir, const char *set,
		      const char *name)
{
	static uint8_t bytes[1 << 20];
	struct kv_env_file *to;
	char path[2048];
	size_t n;
	FILE *f;

	path_make(path, sizeof(path), set, name);
	f = fopen(path, "rb");
	ck_assert_msg(f != NULL, "%s", path);
	n = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	ck_ok(env->ops->open(dir, name, KV_ENV_CREATE, &to));
	ck_ok(kv_env_write(env, to, kv_slice(bytes, n), 0));
	ck_ok(env->ops->sync(to));
	env->ops->close(to);
}

/* A new disk with the golden store on it. */
static struct kv_env *load(const char *set)
{
	struct kv_env *env = kv_env_sim_new(1);
	struct kv_env_dir *dir;
	struct dirent *e;
	char path[2048];
	size_t n = 0;
	DIR *d;

	ck_ok(env->ops->dir_open(env, STORE, true, &dir));
	path_make(path, sizeof(path), set, "");
	d = opendir(path);
	ck_assert_msg(d != NULL, "%s", path);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		load_file(env, dir, set, e->d_name);
		n++;
	}
	closedir(d);
	ck_assert_uint_ge(n, 4);
	ck_ok(env->ops->dir_sync(dir));
	env->ops->dir_close(dir);
	return env;
}

struct dump {
	struct kv_env *env;
	struct kv_env_dir *dir;
	const char *set;
};

/* Without zeros that were allocated ahead: a word of 8 bytes is never torn apart. */
static int dump_file(void *arg, const char *name)
{
	static uint8_t bytes[4 << 20];
	struct dump *d = arg;
	struct kv_env_file *from;
	char path[2048];
	size_t n, all;
	FILE *f;

	ck_ok(d->env->ops->open(d->dir, name, KV_ENV_READ, &from));
	ck_ok(d->env->ops->pread(from, bytes, sizeof(bytes), 0, &n));
	d->env->ops->close(from);
	all = n;
	while (strcmp(name, KV_NAME_ROOT) && n > sizeof(struct kv_file_header) && !bytes[n - 1])
		n--;
	n = KV_MIN((n + 7) / 8 * 8, all);
	path_make(path, sizeof(path), d->set, name);
	f = fopen(path, "wb");
	ck_assert_msg(f != NULL, "%s", path);
	ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
	ck_ok(fclose(f));
	return 0;
}

static void dump(struct kv_env *env, const char *set)
{
	struct dump d = { .env = env, .set = set };

	ck_ok(env->ops->dir_open(env, STORE, false, &d.dir));
	ck_ok(env->ops->dir_list(d.dir, dump_file, &d));
	env->ops->dir_close(d.dir);
}

static void say(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "%s\n", text);
}

static struct kv_options options(struct kv_env *env)
{
	return (struct kv_options){
		.env = env,
		.msg = { say, NULL, KV_MSG_WARN },
		.inline_work = true,
		.no_event_log = true,
		.medium_bytes = 64,
		.bulk_bytes = 256,
		.block_bytes = 256,
	};
}

/* --- a store of the engine ---------------------------------------------------------------- */

static uint8_t bulk[1000], noise[300], medium[100];

static void fill_values(void)
{
	for (size_t i = 0; i < sizeof(bulk); i++)
		bulk[i] = (uint8_t)("golden bytes "[i % 13] + i / 500);
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)(i * i * 31 + i * 7 + 1);
	for (size_t i = 0; i < sizeof(medium); i++)
		medium[i] = (uint8_t)(255 - i);
}

static void put(struct kv_batch *b, const char *key, const char *value)
{
	kv_batch_put(b, kv_slice_str(key), kv_slice_str(value), KV_HINT_NONE);
}

static void make_first(struct kv_batch *b)
{
	char key[] = "r0";

	put(b, "apple", "red");
	put(b, "gone", "soon");
	put(b, "empty", "");
	kv_batch_put(b, kv_slice_str("bulk"), kv_slice(bulk, sizeof(bulk)), KV_HINT_NONE);
	kv_batch_put(b, kv_slice_str("medium"), kv_slice(medium, sizeof(medium)), KV_HINT_NONE);
	for (; key[1] <= '9'; key[1]++)
		put(b, key, "of a range");
	kv_batch_add(b, kv_slice_str("counter"), 5);
}

static void make_second(struct kv_batch *b)
{
	put(b, "apple", "green");
	kv_batch_delete(b, kv_slice_str("gone"));
	kv_batch_delete_range(b, kv_slice_str("r1"), kv_slice_str("r5"));
	kv_batch_put_part(b, kv_slice_str("part"), kv_slice_str("bulk"), 400, 500);
	kv_batch_add(b, kv_slice_str("counter"), -7);
}

static void make_third(struct kv_batch *b)
{
	kv_batch_put(b, kv_slice_str("noise"), kv_slice(noise, sizeof(noise)),
		     KV_HINT_INCOMPRESSIBLE);
	kv_batch_delete_range(b, kv_slice_str("r7"), kv_slice_str("r8"));
	put(b, "late", "in the journal only");
}

/* What was flushed, merged and cut out, its segments, and a journal that nobody closed. */
static void make_kv(void)
{
	struct kv_env *env = kv_env_sim_new(7), *killed;
	struct kv_options o = options(env);
	struct kv_batch *b = kv_batch_new();
	struct kv_db *db;

	o.create = true;
	ck_ok(kv_open(STORE, &o, &db));
	make_first(b);
	ck_ok(kv_write(db, b, true));
	ck_ok(kv_flush(db));
	ck_ok(kv_compact(db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	kv_batch_reset(b);
	make_second(b);
	ck_ok(kv_write(db, b, true));
	ck_ok(kv_flush(db));
	kv_batch_reset(b);
	make_third(b);
	ck_ok(kv_write(db, b, true));
	killed = kv_env_sim_clone(env);
	dump(killed, "kv");
	kv_env_sim_free(killed);
	kv_batch_free(b);
	ck_ok(kv_close(db));
	kv_env_sim_free(env);
}

static void check_content(struct kv_db *db)
{
	const struct {
		const char *key;
		struct kv_slice value;
	} expected[] = {
		{ "apple", kv_slice_str("green") },
		{ "bulk", kv_slice(bulk, sizeof(bulk)) },
		{ "counter", kv_slice("\xfe\xff\xff\xff\xff\xff\xff\xff", 8) },
		{ "empty", kv_slice_str("") },
		{ "late", kv_slice_str("in the journal only") },
		{ "medium", kv_slice(medium, sizeof(medium)) },
		{ "noise", kv_slice(noise, sizeof(noise)) },
		{ "part", kv_slice(bulk + 400, 500) },
		{ "r0", kv_slice_str("of a range") },
		{ "r5", kv_slice_str("of a range") },
		{ "r6", kv_slice_str("of a range") },
		{ "r8", kv_slice_str("of a range") },
		{ "r9", kv_slice_str("of a range") },
	};
	struct kv_iter_options o = { 0 };
	struct kv_slice value;
	struct kv_iter *it;
	size_t i = 0;

	ck_ok(kv_iter_new(db, &o, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it); kv_iter_next(it), i++) {
		ck_assert_uint_lt(i, KV_ARRAY_LEN(expected));
		ck_assert_msg(kv_slice_eq(kv_iter_key(it), kv_slice_str(expected[i].key)), "%s",
			      expected[i].key);
		ck_ok(kv_iter_value(it, &value));
		ck_assert_msg(kv_slice_eq(value, expected[i].value), "%s", expected[i].key);
	}
	ck_ok(kv_iter_error(it));
	ck_assert_uint_eq(i, KV_ARRAY_LEN(expected));
	kv_iter_free(it);
}

static void problem(void *arg, const char *file, const char *text)
{
	(void)arg;
	fprintf(stderr, "%s: %s\n", file ? file : STORE, text);
}

UNIT(store_of_the_engine)
{
	struct kv_env *env = load("kv");
	struct kv_verify_options verify = { .env = env, .problem = problem };
	struct kv_options o = options(env);
	struct kv_db *db;
	uint64_t problems;

	fill_values();
	ck_ok(kv_verify(STORE, &verify, &problems));
	ck_assert_uint_eq(problems, 0);
	o.read_only = true;
	ck_ok(kv_open(STORE, &o, &db));
	check_content(db);
	ck_ok(kv_close(db));
	o.read_only = false;
	ck_ok(kv_open(STORE, &o, &db));
	check_content(db);
	ck_ok(kv_compact(db, kv_slice(NULL, 0), kv_slice(NULL, 0)));
	check_content(db);
	ck_ok(kv_close(db));
	ck_ok(kv_open(STORE, &o, &db));
	check_content(db);
	ck_ok(kv_close(db));
	kv_env_sim_free(env);
}
UNIT_END

/* --- a filesystem --------------------------------------------------------------------------- */

static const uint8_t uuid[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

static void now(void *arg, struct timespec *out)
{
	(void)arg;
	*out = (struct timespec){ 1700000000, 123456789 };
}

static struct fs *mount_fs(struct kv_env *env)
{
	struct fs_options o = { .kv = options(env), .commit_s = UINT32_MAX, .now = now };
	struct fs *fs;

	ck_ok(fs_open(STORE, &o, &fs));
	return fs;
}

static void make_tree(struct fs *fs)
{
	const struct fs_caller caller = { .uid = 1000, .gid = 100 };
	struct fs_attr dir, file, other;

	ck_ok(fs_mkdir(fs, FS_INO_ROOT, kv_slice_str("dir"), S_IFDIR | 0750, &caller, &dir));
	ck_ok(fs_mknod(fs, dir.ino, kv_slice_str("file"), S_IFREG | 0640, 0, &caller, &file));
	ck_ok(fs_write(fs, file.ino, bulk, sizeof(bulk), 0, 0));
	ck_ok(fs_write(fs, file.ino, noise, sizeof(noise), 200000, 0));
	ck_ok(fs_setxattr(fs, file.ino, kv_slice_str("user.colour"), kv_slice_str("gold"), 0));
	ck_ok(fs_link(fs, file.ino, FS_INO_ROOT, kv_slice_str("link"), &other));
	ck_ok(fs_symlink(fs, FS_INO_ROOT, kv_slice_str("symlink"), kv_slice_str("dir/file"), &caller,
			 &other));
	ck_ok(fs_mknod(fs, dir.ino, kv_slice_str("null"), S_IFCHR | 0600, makedev(1, 3), &caller,
		       &other));
}

static void make_fs(void)
{
	struct kv_env *env = kv_env_sim_new(8);
	struct fs_format_options o = { .kv = options(env), .label = "golden", .uuid = uuid };
	struct fs *fs;

	ck_ok(fs_format(STORE, &o));
	fs = mount_fs(env);
	make_tree(fs);
	ck_ok(fs_close(fs));
	dump(env, "fs");
	kv_env_sim_free(env);
}

static fs_ino find(struct fs *fs, fs_ino dir, const char *name, struct fs_attr *out)
{
	ck_assert_int_eq(fs_lookup(fs, dir, kv_slice_str(name), out), 0);
	return out->ino;
}

static void check_file(struct fs *fs, fs_ino ino)
{
	static uint8_t got[200400], expected[200300];
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	size_t n;

	memcpy(expected, bulk, sizeof(bulk));
	memcpy(expected + 200000, noise, sizeof(noise));
	ck_ok(fs_read(fs, ino, got, sizeof(got), 0, &n));
	ck_assert_uint_eq(n, sizeof(expected));
	ck_assert(!memcmp(got, expected, sizeof(expected)));
	ck_ok(fs_getxattr(fs, ino, kv_slice_str("user.colour"), &value));
	ck_assert(kv_slice_eq(kv_buf_slice(&value), kv_slice_str("gold")));
}

static void check_tree(struct fs *fs)
{
	KV_AUTO(kv_buf_done) struct kv_buf target = KV_BUF_INIT;
	struct fs_attr dir, file, link, symlink, null;
	struct fs_identity id;

	fs_identity(fs, &id);
	ck_assert_str_eq(id.label, "golden");
	ck_assert(!memcmp(id.uuid, uuid, sizeof(uuid)));
	find(fs, FS_INO_ROOT, "dir", &dir);
	ck_assert_uint_eq(dir.mode, S_IFDIR | 0750);
	ck_assert_uint_eq(dir.nlink, 2);
	ck_assert_uint_eq(dir.entries, 2);
	find(fs, dir.ino, "file", &file);
	ck_assert_uint_eq(file.mode, S_IFREG | 0640);
	ck_assert_uint_eq(file.uid, 1000);
	ck_assert_uint_eq(file.gid, 100);
	ck_assert_uint_eq(file.nlink, 2);
	ck_assert_uint_eq(file.size, 200300);
	ck_assert_int_eq(file.mtime.tv_sec, 1700000000);
	ck_assert_int_eq(file.mtime.tv_nsec, 123456789);
	ck_assert_uint_eq(find(fs, FS_INO_ROOT, "link", &link), file.ino);
	check_file(fs, file.ino);
	find(fs, FS_INO_ROOT, "symlink", &symlink);
	ck_ok(fs_readlink(fs, symlink.ino, &target));
	ck_assert(kv_slice_eq(kv_buf_slice(&target), kv_slice_str("dir/file")));
	find(fs, dir.ino, "null", &null);
	ck_assert_uint_eq(null.mode, S_IFCHR | 0600);
	ck_assert_uint_eq(null.rdev, makedev(1, 3));
}

UNIT(filesystem)
{
	struct kv_env *env = load("fs");
	struct fs *fs;

	fill_values();
	fs = mount_fs(env);
	check_tree(fs);
	ck_ok(fs_unlink(fs, FS_INO_ROOT, kv_slice_str("symlink")));
	ck_ok(fs_close(fs));
	fs = mount_fs(env);
	ck_ok(fs_close(fs));
	kv_env_sim_free(env);
}
UNIT_END

/* --- stored bytes -------------------------------------------------------------------------- */

#define GOLDEN_ROOT \
	"6b766673726f6f7496ea28c62107b0230100000000000000080706050403020173746f7265277320" \
	"69642068657265000000000000000000000000000000000000000000000000000000000000000000" \
	"00000000000000000000000000000000000000000000000000000000000000000000000000000000" \
	"0000000000000000"
#define GOLDEN_HEADER \
	"6b76667366696c65d080a763efbcf7630100000004000000080706050403020173746f7265277320" \
	"696420686572650000000000000000000000000000000000"
#define GOLDEN_CHUNK \
	"43486e6b18000000d86243b6f28170f60000000000000000e8030000000000000300000002000000" \
	"01036b65790576616c756500056f74686572000301610162"
#define GOLDEN_VALUE \
	"766c52430300000053c8ee98e72399ce4d00000000000000f0f09d9b267ed5870500000005000000" \
	"00000000000000006b657976616c7565"
#define GOLDEN_POINTER \
	"09000000000000004000000000000000f0f09d9b267ed58705000000050000000100000003000000" \
	"0300000000000000"
#define GOLDEN_TABLE \
	"000d036170706c65010500000000000072656406070503000000000000677265656e020d00726963" \
	"6f7400040000000000000000000001000000b470e7a9343d4ce73a0000000000000001620164066f" \
	"7cafa8270402df050000000000000000000000000000000000000000000204000000000000000000" \
	"00000000000000008400000000008001000000000000004020800000000000000420000000000001" \
	"000000060000001ddffac50f92792c4800000000000000000f1061707269636f7400040000000000" \
	"0040000000000000003a000000000000000000000001000000071a3b190f9066442a000000000000" \
	"00010103020101030101040131050103060106070d6170706c65010500000000000008096403ffff" \
	"ffffffffff09001e255cb934bbdec02e00000000000000f7000000000000002a000000000000009f" \
	"0000000000000048000000000000008a00000000000000050000000000000031010000000000002e" \
	"00000000000000000000000000000000000000000000000000000000000000000000000000000001" \
	"000000000000000c000000000000002ab4c3c2716d7fb06b7666735f737374"
#define GOLDEN_EDIT \
	"12000202ac020401040603f0a2040c01070e030780201001050a0201090824020a8827090201a006" \
	"03900309610190010000000000097a00030000000000000107d209"
#define GOLDEN_SNAPSHOT_EDIT "16036f6c641409056461696c79ac0201"
#define GOLDEN_SUPER \
	"6b7666732d667331010000003b000000000000000000000000000000000000000400000000000000" \
	"000102030405060708090a0b0c0d0e0f73746f72652773206964206865726500676f6c64656e0000" \
	"00000000000000000000000000000000000000000000000000000000000000000000000000000000" \
	"0000000000000000000000000000000000f153650000000000000000000000000000000000000000" \
	"00000000000000000000000000000000000000000000000000000000000000000000000000000000" \
	"00000000000000000000000000000000000000000000000000000000000000000000000000000000" \
	"00000000000000000000000000000000"
#define GOLDEN_ATTR \
	"a481000002000000e803000064000000881300000000000000100000000000000300000000000000" \
	"0000000000000000110000000000000000000000000000000100000009000000ffffffffffffffff" \
	"0100000000f1536500000000ffc99a3b01f15365000000000200000000105e5f0000000003000000" \
	"000000000000000000000000000000000000000000000000"
#define GOLDEN_SLOT \
	"0304040006050403020100006e616d65"
#define GOLDEN_NAME_HASH 0x890ea8ae233767ull

/* --- structs ---------------------------------------------------------------------------------- */

static const uint8_t store_id[KV_STORE_ID_BYTES] = "store's id here";

static void same(const void *bytes, size_t n, const char *expected)
{
	KV_AUTO(kv_buf_done) struct kv_buf text = KV_BUF_INIT;
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++)
		ck_ok(kv_buf_printf(&text, "%02x", p[i]));
	ck_assert_str_eq((const char *)text.data, expected);
}

static void sim_store(struct kv_store *s)
{
	*s = (struct kv_store){ .env = kv_env_sim_new(1), .path = STORE, .msg = { say, NULL, KV_MSG_WARN } };
	ck_ok(s->env->ops->dir_open(s->env, STORE, true, &s->dir));
	memcpy(s->store_id, store_id, sizeof(store_id));
}

static void sim_done(struct kv_store *s)
{
	s->env->ops->dir_close(s->dir);
	kv_env_sim_free(s->env);
}

/* n bytes of a file; all up to its end when that comes first. */
static size_t sim_read(struct kv_store *s, const char *name, void *to, size_t n, uint64_t offset)
{
	struct kv_env_file *f;
	size_t got;

	ck_ok(s->env->ops->open(s->dir, name, KV_ENV_READ, &f));
	ck_ok(s->env->ops->pread(f, to, n, offset, &got));
	s->env->ops->close(f);
	return got;
}

UNIT(root_and_header)
{
	struct kv_file_header h;
	struct kv_store s;
	struct kv_root r;

	sim_store(&s);
	ck_ok(kv_root_write(&s, 0x0102030405060708));
	ck_assert_uint_eq(sim_read(&s, KV_NAME_ROOT, &r, sizeof(r), 0), sizeof(r));
	same(&r, sizeof(r), GOLDEN_ROOT);
	sim_done(&s);
	kv_file_header_make(&h, KV_FILE_SEGMENT, 0x0102030405060708, store_id);
	same(&h, sizeof(h), GOLDEN_HEADER);
}
UNIT_END

UNIT(chunk)
{
	KV_AUTO(kv_buf_done) struct kv_buf ops = KV_BUF_INIT;
	struct kv_journal *j;
	struct kv_store s;
	struct iovec iov;
	uint8_t bytes[256];

	ck_ok(kv_op_append(&ops, KV_KIND_PUT, kv_slice_str("key"), kv_slice_str("value")));
	ck_ok(kv_op_append(&ops, KV_KIND_DELETE, kv_slice_str("other"), kv_slice(NULL, 0)));
	ck_ok(kv_op_append(&ops, KV_KIND_DELETE_RANGE, kv_slice_str("a"), kv_slice_str("b")));
	iov = (struct iovec){ ops.data, ops.bytes };
	sim_store(&s);
	ck_ok(kv_journal_create(&s, KV_FILE_JOURNAL, 6, 0, &j));
	ck_ok(kv_journal_reserve(j, ops.bytes));
	ck_ok(kv_journal_append(j, KV_CHUNK_BATCHES, 1000, 3, &iov, 1));
	ck_assert_uint_eq(sim_read(&s, "000006.journal", bytes, sizeof(bytes),
				   sizeof(struct kv_file_header)), 64);
	same(bytes, 64, GOLDEN_CHUNK);
	kv_journal_free(j);
	sim_done(&s);
}
UNIT_END

UNIT(value_and_pointer)
{
	struct kv_segment_put put_value = {
		.key = kv_slice_str("key"), .seqno = 77, .stored = kv_slice_str("value"), .raw_bytes = 5,
		.value_checksum = kv_checksum(kv_slice_str("value"), 0),
	};
	struct kv_segment_writer *w;
	struct kv_vptr_disk d;
	struct kv_store s;
	struct kv_vptr p;
	uint8_t bytes[56];

	sim_store(&s);
	ck_ok(kv_segment_create(&s, 9, 4096, &w));
	ck_ok(kv_segment_append(w, &put_value, 1, &p));
	ck_ok(kv_segment_seal(w));
	kv_segment_writer_free(w);
	ck_assert_uint_eq(sim_read(&s, "000009.vlog", bytes, sizeof(bytes),
				   sizeof(struct kv_file_header)), sizeof(bytes));
	same(bytes, sizeof(bytes), GOLDEN_VALUE);
	sim_done(&s);
	p.part_offset = 1;
	p.part_bytes = 3;
	kv_vptr_encode(&p, &d);
	same(&d, sizeof(d), GOLDEN_POINTER);
}
UNIT_END

static void add(struct kv_sst_build *b, const char *key, kv_seqno seqno, enum kv_kind kind,
		const char *value)
{
	KV_AUTO(kv_buf_done) struct kv_buf ikey = KV_BUF_INIT;

	ck_ok(kv_ikey_make(&ikey, kv_slice_str(key), seqno, kind));
	ck_ok(kv_sst_build_add(b, kv_buf_slice(&ikey), kv_slice_str(value)));
}

UNIT(table)
{
	const struct kv_sst_options o = { .block_bytes = 4096, .filter_bits_per_key = 10 };
	struct kv_rangedel r = { kv_slice_str("b"), kv_slice_str("d"), 6 };
	struct kv_sst_meta meta;
	struct kv_sst_build *b;
	uint8_t bytes[1024];
	struct kv_store s;

	sim_store(&s);
	ck_ok(kv_sst_build_new(&s, 12, &o, &b));
	add(b, "apple", 5, KV_KIND_PUT, "red");
	add(b, "apple", 3, KV_KIND_PUT, "green");
	add(b, "apricot", 4, KV_KIND_DELETE, "");
	ck_ok(kv_sst_build_add_rangedel(b, &r));
	ck_ok(kv_sst_build_finish(b, &meta));
	kv_sst_build_free(b);
	ck_assert_uint_eq(sim_read(&s, "000012.sst", bytes, sizeof(bytes),
				   sizeof(struct kv_file_header)),
			  meta.file_bytes - sizeof(struct kv_file_header));
	same(bytes, meta.file_bytes - sizeof(struct kv_file_header), GOLDEN_TABLE);
	kv_sst_meta_done(&meta);
	sim_done(&s);
}
UNIT_END

UNIT(edit)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_edit_done) struct kv_edit e = {
		.is_snapshot = true, .has_next_fileno = true, .next_fileno = 300,
		.has_journal_min = true, .journal_min = 4, .has_seqno = true, .seqno = 70000,
	};
	struct kv_segment_ref ref = { 7, 1234 };
	struct kv_sst_meta m = {
		.number = 10, .file_bytes = 5000, .entries = 9, .deletes = 2, .range_deletes = 1,
		.raw_bytes = 800, .seqno_min = 3, .seqno_max = 400, .refs = &ref, .ref_count = 1,
	};

	ck_ok(kv_ikey_make(&m.smallest, kv_slice_str("a"), 400, KV_KIND_PUT));
	ck_ok(kv_ikey_make(&m.largest, kv_slice_str("z"), 3, KV_KIND_DELETE));
	ck_ok(kv_edit_add_table(&e, 2, &m));
	ck_ok(kv_edit_delete_table(&e, 1, 9));
	ck_ok(kv_edit_add_segment(&e, 7));
	ck_ok(kv_edit_seal_segment(&e, 7, 4096));
	ck_ok(kv_edit_delete_segment(&e, 5));
	ck_ok(kv_edit_encode(&e, &b));
	same(b.data, b.bytes, GOLDEN_EDIT);
	kv_buf_done(&m.smallest);
	kv_buf_done(&m.largest);
}
UNIT_END

UNIT(snapshot_edit)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };

	ck_ok(kv_edit_delete_snapshot(&e, "old"));
	ck_ok(kv_edit_add_snapshot(&e, &(struct kv_snapshot_info){
		.name = "daily", .seqno = 300, .made_ns = 1 }));
	ck_ok(kv_edit_encode(&e, &b));
	same(b.data, b.bytes, GOLDEN_SNAPSHOT_EDIT);
	ck_assert_uint_eq(KV_FEATURE_NAMED_SNAPSHOTS, 1);
}
UNIT_END

UNIT(records)
{
	const struct fs_attr a = {
		.ino = 20, .mode = S_IFREG | 0644, .nlink = 2, .uid = 1000, .gid = 100, .size = 5000,
		.bytes = 4096, .extents = 3, .parent = 17, .flags = FS_ATTR_XATTRS, .generation = 9,
		.atime = { -1, 1 }, .mtime = { 1700000000, 999999999 }, .ctime = { 1700000001, 2 },
		.btime = { 1600000000, 3 },
	};
	const struct fs_slot slot = { 3, DT_DIR, 0x010203040506, { "name", 4 } };
	struct fs_super super = {
		.hash_bits = FS_HASH_BITS, .label = "golden", .created_s = 1700000000,
		.features_required = 0, .features_write = 0, .features_ignorable = 4,
	};
	KV_AUTO(kv_buf_done) struct kv_buf bucket = KV_BUF_INIT;
	struct fs_super_disk super_disk;
	struct fs_attr_disk attr_disk;

	memcpy(super.uuid, uuid, sizeof(uuid));
	memcpy(super.hash_key, store_id, sizeof(super.hash_key));
	fs_super_encode(&super, &super_disk);
	same(&super_disk, sizeof(super_disk), GOLDEN_SUPER);
	fs_attr_encode(&a, &attr_disk);
	same(&attr_disk, sizeof(attr_disk), GOLDEN_ATTR);
	ck_ok(fs_slot_append(&bucket, &slot));
	same(bucket.data, bucket.bytes, GOLDEN_SLOT);
	/* The hash decides where names lie, and so is a part of the format. */
	ck_assert_uint_eq(fs_name_hash(&super, kv_slice_str("name")), GOLDEN_NAME_HASH);
}
UNIT_END

static void key_is(struct fs_key key, const char *expected)
{
	same(key.data, key.bytes, expected);
}

UNIT(keys)
{
	key_is(fs_key_super(FS_SUPER_BLOCK), "0101");
	key_is(fs_key_attr(0x010203040506), "100000010203040506");
	key_is(fs_key_dirent(20, 0x0102030405060708), "2000000000000000140102030405060708");
	key_is(fs_key_xattr(20, kv_slice_str("user.a")), "300000000000000014757365722e61");
	key_is(fs_key_extent(20, 131072), "4000000000000000140000000000020000");
	key_is(fs_key_orphan(20), "500000000000000014");
}
UNIT_END

UNIT(make)
{
	fill_values();
	make_kv();
	make_fs();
}
UNIT_END

int main(void)
{
	const TTest *tests[] = { store_of_the_engine, filesystem, root_and_header, chunk,
				 value_and_pointer, table, edit, snapshot_edit, records, keys };
	Suite *suite = suite_create("golden");
	TCase *tcase = tcase_create("golden");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 120);
	if (getenv("GOLDEN_MAKE")) {
		tcase_add_test(tcase, make);
	} else {
		for (size_t i = 0; i < KV_ARRAY_LEN(tests); i++)
			tcase_add_test(tcase, tests[i]);
	}
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
