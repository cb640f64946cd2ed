#include <sys/xattr.h>

#include "tests/unit/fs_fixture.h"

static int set(struct fixture *x, fs_ino ino, const char *name, const char *value, int flags)
{
	return fs_setxattr(x->fs, ino, kv_slice_str(name), kv_slice_str(value), flags);
}

static int del(struct fixture *x, fs_ino ino, const char *name)
{
	return fs_removexattr(x->fs, ino, kv_slice_str(name));
}

static void expect(struct fixture *x, fs_ino ino, const char *name, const char *want)
{
	struct kv_buf got = KV_BUF_INIT;
	int err = fs_getxattr(x->fs, ino, kv_slice_str(name), &got);

	if (want) {
		ck_ok(err);
		ck_assert(kv_slice_eq(kv_buf_slice(&got), kv_slice_str(want)));
	} else {
		ck_assert_int_eq(err, -ENODATA);
	}
	kv_buf_done(&got);
}

static void expect_list(struct fixture *x, fs_ino ino, const char *want, size_t bytes)
{
	struct kv_buf got = KV_BUF_INIT;

	ck_ok(fs_listxattr(x->fs, ino, &got));
	ck_assert_uint_eq(got.bytes, bytes);
	if (bytes)
		ck_assert_mem_eq(got.data, want, bytes);
	kv_buf_done(&got);
}

UNIT(set_get_list_remove)
{
	struct fixture x;
	struct fs_attr a;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	expect(&x, f, "user.a", NULL);
	expect_list(&x, f, "", 0);
	a = fixture_attr(&x, f);
	ck_ok(set(&x, f, "user.b", "two", 0));
	ck_assert_int_gt(fixture_attr(&x, f).ctime.tv_sec, a.ctime.tv_sec);
	ck_assert_int_eq(fixture_attr(&x, f).mtime.tv_sec, a.mtime.tv_sec);
	ck_ok(set(&x, f, "user.a", "", XATTR_CREATE));
	ck_ok(set(&x, f, "trusted.c", "three", 0));
	ck_ok(set(&x, FS_INO_ROOT, "user.a", "of another", 0));
	expect(&x, f, "user.a", "");
	expect(&x, f, "user.b", "two");
	expect_list(&x, f, "trusted.c\0user.a\0user.b", 24);
	ck_assert_int_eq(set(&x, f, "user.a", "x", XATTR_CREATE), -EEXIST);
	ck_assert_int_eq(set(&x, f, "user.z", "x", XATTR_REPLACE), -ENODATA);
	ck_ok(set(&x, f, "user.a", "one", XATTR_REPLACE));
	fixture_unmount(&x);
	fixture_mount(&x);
	expect(&x, f, "user.a", "one");
	ck_ok(del(&x, f, "user.a"));
	ck_assert_int_eq(del(&x, f, "user.a"), -ENODATA);
	expect(&x, f, "user.a", NULL);
	expect(&x, f, "user.b", "two");
	expect_list(&x, f, "trusted.c\0user.b", 17);
	expect(&x, FS_INO_ROOT, "user.a", "of another");
	fixture_done(&x);
}
UNIT_END

UNIT(flags_tell_what_there_can_be)
{
	struct fixture x;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	ck_assert_uint_eq(fixture_attr(&x, f).flags, 0);
	ck_ok(set(&x, f, "user.a", "1", 0));
	ck_assert_uint_eq(fixture_attr(&x, f).flags, FS_ATTR_XATTRS);
	ck_ok(set(&x, f, "system.posix_acl_access", "1", 0));
	ck_ok(set(&x, f, "system.posix_acl_default", "1", 0));
	ck_ok(set(&x, f, "security.capability", "1", 0));
	ck_assert_uint_eq(fixture_attr(&x, f).flags,
			  FS_ATTR_XATTRS | FS_ATTR_ACL | FS_ATTR_CAPS);
	ck_ok(del(&x, f, "security.capability"));
	ck_assert_uint_eq(fixture_attr(&x, f).flags, FS_ATTR_XATTRS | FS_ATTR_ACL);
	ck_ok(del(&x, f, "system.posix_acl_access"));
	ck_assert_uint_eq(fixture_attr(&x, f).flags, FS_ATTR_XATTRS | FS_ATTR_ACL);
	expect(&x, f, "system.posix_acl_default", "1");
	ck_ok(del(&x, f, "system.posix_acl_default"));
	ck_assert_uint_eq(fixture_attr(&x, f).flags, FS_ATTR_XATTRS);
	ck_ok(del(&x, f, "user.a"));
	ck_assert_uint_eq(fixture_attr(&x, f).flags, 0);
	fixture_done(&x);
}
UNIT_END

UNIT(names_and_values_have_limits)
{
	char name[FS_XATTR_NAME_BYTES_MAX + 2] = "user.";
	static char value[FS_XATTR_BYTES_MAX + 2];
	struct fs_caller caller = { 0 };
	struct kv_buf got = KV_BUF_INIT;
	struct fs_attr fifo;
	struct fixture x;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	ck_assert_int_eq(set(&x, f, "", "", 0), -ERANGE);
	ck_assert_int_eq(set(&x, f, "user.", "", 0), -EINVAL);
	ck_assert_int_eq(fs_setxattr(x.fs, f, kv_slice("user.a\0b", 8), kv_slice_str(""), 0), -EINVAL);
	ck_assert_int_eq(set(&x, f, "nobody.a", "", 0), -EOPNOTSUPP);
	ck_assert_int_eq(set(&x, f, "system.other", "", 0), -EOPNOTSUPP);
	ck_assert_int_eq(fs_getxattr(x.fs, f, kv_slice_str("nobody.a"), &got), -EOPNOTSUPP);
	ck_assert_int_eq(set(&x, f, "user.a", "", 64), -EINVAL);
	memset(name + 5, 'n', FS_XATTR_NAME_BYTES_MAX - 5);
	ck_ok(set(&x, f, name, "long", XATTR_CREATE));
	expect(&x, f, name, "long");
	name[FS_XATTR_NAME_BYTES_MAX] = 'n';
	ck_assert_int_eq(set(&x, f, name, "", 0), -ERANGE);
	memset(value, 'v', FS_XATTR_BYTES_MAX + 1);
	ck_assert_int_eq(set(&x, f, "user.v", value, 0), -E2BIG);
	value[FS_XATTR_BYTES_MAX] = 0;
	ck_ok(set(&x, f, "user.v", value, 0));
	expect(&x, f, "user.v", value);
	ck_ok(fs_mknod(x.fs, FS_INO_ROOT, kv_slice_str("p"), S_IFIFO | 0644, 0, &caller, &fifo));
	ck_assert_int_eq(set(&x, fifo.ino, "user.a", "", 0), -EPERM);
	ck_assert_int_eq(del(&x, fifo.ino, "user.a"), -EPERM);
	expect(&x, fifo.ino, "user.a", NULL);
	ck_ok(set(&x, fifo.ino, "trusted.a", "t", 0));
	kv_buf_done(&got);
	fixture_done(&x);
}
UNIT_END

UNIT(the_list_stays_short_enough_to_be_returned)
{
	struct kv_buf list = KV_BUF_INIT;
	struct fixture x;
	char name[256];
	int err = 0;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	for (unsigned i = 0; !err; i++) {
		ck_assert_uint_lt(i, 300);
		snprintf(name, sizeof(name), "user.%0250u", i);
		err = set(&x, f, name, "", 0);
	}
	ck_assert_int_eq(err, -ENOSPC);
	ck_ok(fs_listxattr(x.fs, f, &list));
	ck_assert_uint_eq(list.bytes, 65536);
	/* What is there can still be replaced. */
	ck_ok(set(&x, f, (const char *)list.data, "new", 0));
	kv_buf_done(&list);
	fixture_done(&x);
}
UNIT_END

UNIT_MAIN("fs_xattr", set_get_list_remove, flags_tell_what_there_can_be,
	  names_and_values_have_limits, the_list_stays_short_enough_to_be_returned)
