#include "tests/unit/fs_fixture.h"

#define S(text) kv_slice_str(text)
#define ROOT FS_INO_ROOT

static bool in_no_group(void *arg, uint32_t gid)
{
	(void)arg;
	(void)gid;
	return false;
}

static const struct fs_caller stranger = { .uid = 7, .gid = 8, .in_group = in_no_group };

static struct fs_attr set(struct fixture *x, fs_ino ino, struct fs_attr in, uint32_t what,
			  const struct fs_caller *caller)
{
	struct fs_attr out;

	ck_ok(fs_setattr(x->fs, ino, &in, what, caller, &out));
	return out;
}

static int set_err(struct fixture *x, fs_ino ino, struct fs_attr in, uint32_t what)
{
	struct fs_attr out;

	return fs_setattr(x->fs, ino, &in, what, NULL, &out);
}

UNIT(chmod_keeps_the_type)
{
	struct fixture x;
	struct fs_attr a, before;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	before = fixture_attr(&x, f);
	a = set(&x, f, (struct fs_attr){ .mode = S_IFDIR | 06755 }, FS_SET_MODE, NULL);
	ck_assert_uint_eq(a.mode, S_IFREG | 06755);
	ck_assert_int_gt(a.ctime.tv_sec, before.ctime.tv_sec);
	ck_assert_int_eq(a.mtime.tv_sec, before.mtime.tv_sec);
	a = set(&x, f, (struct fs_attr){ .mode = 06755 }, FS_SET_MODE, &stranger);
	ck_assert_uint_eq(a.mode, S_IFREG | 04755);
	fixture_unmount(&x);
	fixture_mount(&x);
	ck_assert_uint_eq(fixture_attr(&x, f).mode, S_IFREG | 04755);
	fixture_done(&x);
}
UNIT_END

UNIT(chown_clears_set_id)
{
	struct fixture x;
	struct fs_attr a, ids = { .uid = 3, .gid = 4, .mode = 06755 };
	fs_ino f, d;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	d = fixture_dir(&x, ROOT, "d");
	set(&x, f, ids, FS_SET_MODE, NULL);
	a = set(&x, f, ids, FS_SET_UID, NULL);
	ck_assert_uint_eq(a.mode, S_IFREG | 0755);
	ck_assert_uint_eq(a.uid, 3);
	ck_assert_uint_eq(a.gid, 0);
	set(&x, f, (struct fs_attr){ .mode = 06745 }, FS_SET_MODE, NULL);
	a = set(&x, f, ids, FS_SET_GID, NULL);
	ck_assert_uint_eq(a.mode, S_IFREG | 02745);
	ck_assert_uint_eq(a.gid, 4);
	a = set(&x, f, ids, FS_SET_MODE | FS_SET_UID, NULL);
	ck_assert_uint_eq(a.mode, S_IFREG | 06755);
	set(&x, d, ids, FS_SET_MODE, NULL);
	a = set(&x, d, ids, FS_SET_UID | FS_SET_GID, NULL);
	ck_assert_uint_eq(a.mode, S_IFDIR | 06755);
	fixture_done(&x);
}
UNIT_END

UNIT(a_write_kills_privileges)
{
	KV_AUTO(kv_buf_done) struct kv_buf caps = KV_BUF_INIT;
	struct fixture x;
	struct fs_attr a;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	ck_ok(fs_setxattr(x.fs, f, S("security.capability"), S("caps"), 0));
	ck_ok(fs_getxattr(x.fs, f, S("security.capability"), &caps));
	set(&x, f, (struct fs_attr){ .mode = 06755 }, FS_SET_MODE, NULL);
	a = set(&x, f, (struct fs_attr){ .size = 0 }, FS_SET_SIZE | FS_SET_KILL_PRIV, NULL);
	ck_assert_uint_eq(a.mode, S_IFREG | 0755);
	ck_assert_int_eq(fs_getxattr(x.fs, f, S("security.capability"), &caps), -ENODATA);
	fixture_done(&x);
}
UNIT_END

UNIT(times_are_set_as_given)
{
	struct fixture x;
	struct fs_attr a, in = { .atime = { -5, 1 }, .mtime = { (time_t)1 << 35, 999999999 },
				 .ctime = { 77, 7 } };
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	a = set(&x, f, in, FS_SET_ATIME | FS_SET_MTIME, NULL);
	ck_assert_int_eq(a.atime.tv_sec, -5);
	ck_assert_int_eq(a.mtime.tv_nsec, 999999999);
	ck_assert_int_eq(a.ctime.tv_sec, x.now_s - 1);
	a = set(&x, f, in, FS_SET_CTIME | FS_SET_MTIME_NOW, NULL);
	ck_assert_int_eq(a.ctime.tv_sec, 77);
	ck_assert_int_eq(a.mtime.tv_sec, x.now_s - 1);
	ck_assert_int_eq(a.atime.tv_sec, -5);
	in.atime.tv_nsec = 1000000000;
	ck_assert_int_eq(set_err(&x, f, in, FS_SET_ATIME), -EINVAL);
	in.atime.tv_nsec = -1;
	ck_assert_int_eq(set_err(&x, f, in, FS_SET_ATIME), -EINVAL);
	a = fixture_attr(&x, f);
	a = set(&x, f, in, 0, NULL);
	ck_assert_int_eq(a.ctime.tv_sec, 77);
	fixture_unmount(&x);
	fixture_mount(&x);
	a = fixture_attr(&x, f);
	ck_assert_int_eq(a.atime.tv_sec, -5);
	ck_assert_int_eq(a.ctime.tv_nsec, 7);
	fixture_done(&x);
}
UNIT_END

UNIT(a_new_size_cuts_or_grows)
{
	struct fixture x;
	struct fs_attr a, before;
	struct fs_stats s;
	char got[8];
	size_t bytes;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	ck_ok(fs_write(x.fs, f, "abcdefgh", 8, 0, 0));
	before = fixture_attr(&x, f);
	a = set(&x, f, (struct fs_attr){ .size = 3 }, FS_SET_SIZE, NULL);
	ck_assert_uint_eq(a.size, 3);
	ck_assert_uint_eq(a.bytes, 3);
	ck_assert_int_gt(a.mtime.tv_sec, before.mtime.tv_sec);
	before = a;
	a = set(&x, f, (struct fs_attr){ .size = 3 }, FS_SET_SIZE, NULL);
	ck_assert_int_gt(a.mtime.tv_sec, before.mtime.tv_sec);
	a = set(&x, f, (struct fs_attr){ .size = 8 }, FS_SET_SIZE, NULL);
	ck_assert_uint_eq(a.bytes, 3);
	ck_ok(fs_read(x.fs, f, got, 8, 0, &bytes));
	ck_assert_uint_eq(bytes, 8);
	ck_assert_mem_eq(got, "abc\0\0\0\0\0", 8);
	a = set(&x, f, (struct fs_attr){ .size = 0, .mtime = { 9, 9 } }, FS_SET_SIZE | FS_SET_MTIME,
		NULL);
	ck_assert_uint_eq(a.bytes, 0);
	ck_assert_uint_eq(a.extents, 0);
	ck_assert_int_eq(a.mtime.tv_sec, 9);
	fs_stats(x.fs, &s);
	ck_assert_uint_eq(s.bytes_used, 0);
	ck_assert_int_eq(set_err(&x, f, (struct fs_attr){ .size = UINT64_MAX }, FS_SET_SIZE), -EFBIG);
	ck_assert_int_eq(set_err(&x, ROOT, (struct fs_attr){ .size = 1 }, FS_SET_SIZE), -EISDIR);
	ck_assert_int_eq(set_err(&x, 12345, (struct fs_attr){ .size = 1 }, FS_SET_SIZE), -ENOENT);
	ck_ok(fs_symlink(x.fs, ROOT, S("l"), S("f"), NULL, &a));
	ck_assert_int_eq(set_err(&x, a.ino, (struct fs_attr){ .size = 1 }, FS_SET_SIZE), -EINVAL);
	fixture_done(&x);
}
UNIT_END

UNIT_MAIN("fs_attr", chmod_keeps_the_type, chown_clears_set_id, a_write_kills_privileges,
	  times_are_set_as_given, a_new_size_cuts_or_grows)
