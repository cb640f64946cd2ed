#include <linux/fs.h>

#include "tests/unit/fs_fixture.h"

#define S(text) kv_slice_str(text)
#define ROOT FS_INO_ROOT

static const struct fs_caller root_caller;

static fs_ino find(struct fixture *x, fs_ino dir, const char *name)
{
	struct fs_attr a;

	ck_ok(fs_lookup(x->fs, dir, S(name), &a));
	fs_forget(x->fs, a.ino, 1);
	return a.ino;
}

static int find_err(struct fixture *x, fs_ino dir, const char *name)
{
	struct fs_attr a;

	return fs_lookup(x->fs, dir, S(name), &a);
}

static uint64_t inodes(struct fixture *x)
{
	struct fs_stats s;

	fs_stats(x->fs, &s);
	return s.inodes;
}

static void dir_is(struct fixture *x, fs_ino dir, uint64_t entries, uint64_t size, uint32_t nlink)
{
	struct fs_attr a = fixture_attr(x, dir);

	ck_assert_uint_eq(a.entries, entries);
	ck_assert_uint_eq(a.size, size);
	ck_assert_uint_eq(a.nlink, nlink);
}

UNIT(a_made_file_is_found)
{
	struct fixture x;
	struct fs_attr a, before;
	struct fs_caller c = { .uid = 5, .gid = 6 };

	fixture_init(&x);
	before = fixture_attr(&x, ROOT);
	ck_ok(fs_mknod(x.fs, ROOT, S("f"), S_IFREG | 0640, 99, &c, &a));
	ck_assert_uint_ge(a.ino, FS_INO_FIRST);
	ck_assert_uint_eq(a.mode, S_IFREG | 0640);
	ck_assert_uint_eq(a.uid, 5);
	ck_assert_uint_eq(a.gid, 6);
	ck_assert_uint_eq(a.nlink, 1);
	ck_assert_uint_eq(a.rdev, 0);
	ck_assert_uint_eq(a.parent, ROOT);
	ck_assert_uint_eq(find(&x, ROOT, "f"), a.ino);
	ck_assert_int_ne(fixture_attr(&x, ROOT).mtime.tv_sec, before.mtime.tv_sec);
	dir_is(&x, ROOT, 1, 1, 2);
	fixture_unmount(&x);
	fixture_mount(&x);
	ck_assert_uint_eq(find(&x, ROOT, "f"), a.ino);
	ck_assert_uint_eq(inodes(&x), 2);
	fixture_done(&x);
}
UNIT_END

UNIT(device_numbers_are_kept)
{
	struct fixture x;
	struct fs_attr a;

	fixture_init(&x);
	ck_ok(fs_mknod(x.fs, ROOT, S("null"), S_IFCHR | 0666, 0x103, &root_caller, &a));
	ck_assert_uint_eq(fixture_attr(&x, a.ino).rdev, 0x103);
	ck_ok(fs_mknod(x.fs, ROOT, S("pipe"), S_IFIFO | 0666, 0x103, &root_caller, &a));
	ck_assert_uint_eq(a.rdev, 0);
	ck_assert_int_eq(fs_mknod(x.fs, ROOT, S("d"), S_IFDIR, 0, &root_caller, &a), -EINVAL);
	ck_assert_int_eq(fs_mknod(x.fs, ROOT, S("l"), S_IFLNK, 0, &root_caller, &a), -EINVAL);
	fixture_done(&x);
}
UNIT_END

UNIT(bad_names_are_refused)
{
	char longest[257];
	struct fixture x;
	struct fs_attr a;
	fs_ino f;

	memset(longest, 'n', sizeof(longest) - 1);
	longest[256] = 0;
	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	ck_assert_int_eq(find_err(&x, ROOT, ""), -ENOENT);
	ck_assert_int_eq(find_err(&x, ROOT, longest), -ENAMETOOLONG);
	ck_assert_int_eq(find_err(&x, ROOT, "a/b"), -EINVAL);
	ck_assert_int_eq(fs_mkdir(x.fs, ROOT, S(longest), 0, &root_caller, &a), -ENAMETOOLONG);
	ck_assert_int_eq(fs_mkdir(x.fs, ROOT, S("."), 0, &root_caller, &a), -EEXIST);
	ck_assert_int_eq(fs_mkdir(x.fs, ROOT, S("f"), 0, &root_caller, &a), -EEXIST);
	ck_assert_int_eq(fs_unlink(x.fs, ROOT, S("..")), -EISDIR);
	ck_assert_int_eq(fs_rmdir(x.fs, ROOT, S(".")), -EINVAL);
	ck_assert_int_eq(fs_rmdir(x.fs, ROOT, S("..")), -ENOTEMPTY);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("."), ROOT, S("x"), 0), -EBUSY);
	ck_assert_int_eq(find_err(&x, ROOT, "x"), -ENOENT);
	ck_assert_int_eq(find_err(&x, f, "x"), -ENOTDIR);
	ck_assert_int_eq(find_err(&x, 12345, "x"), -ENOENT);
	longest[255] = 0;
	fixture_file(&x, ROOT, longest);
	find(&x, ROOT, longest);
	fixture_done(&x);
}
UNIT_END

UNIT(directories_count_links_and_names)
{
	struct fixture x;
	fs_ino d;

	fixture_init(&x);
	d = fixture_dir(&x, ROOT, "d");
	dir_is(&x, ROOT, 1, 1, 3);
	dir_is(&x, d, 0, 0, 2);
	ck_assert_uint_eq(find(&x, d, "."), d);
	ck_assert_uint_eq(find(&x, d, ".."), ROOT);
	ck_assert_uint_eq(find(&x, ROOT, ".."), ROOT);
	fixture_file(&x, d, "file");
	dir_is(&x, d, 1, 4, 2);
	ck_assert_int_eq(fs_rmdir(x.fs, ROOT, S("d")), -ENOTEMPTY);
	ck_assert_int_eq(fs_unlink(x.fs, ROOT, S("d")), -EISDIR);
	ck_assert_int_eq(fs_rmdir(x.fs, d, S("file")), -ENOTDIR);
	ck_ok(fs_unlink(x.fs, d, S("file")));
	dir_is(&x, d, 0, 0, 2);
	ck_ok(fs_rmdir(x.fs, ROOT, S("d")));
	dir_is(&x, ROOT, 0, 0, 2);
	ck_assert_int_eq(find_err(&x, ROOT, "d"), -ENOENT);
	fixture_done(&x);
}
UNIT_END

UNIT(nothing_is_made_in_a_removed_directory)
{
	struct fixture x;
	struct fs_attr a;
	fs_ino d, f;

	fixture_init(&x);
	d = fixture_dir(&x, ROOT, "d");
	f = fixture_file(&x, ROOT, "f");
	ck_ok(fs_rmdir(x.fs, ROOT, S("d")));
	ck_assert_uint_eq(fixture_attr(&x, d).nlink, 0);
	ck_assert_int_eq(fs_mkdir(x.fs, d, S("x"), 0755, &root_caller, &a), -ENOENT);
	ck_assert_int_eq(fs_tmpfile(x.fs, d, 0600, &root_caller, &a), -ENOENT);
	ck_assert_int_eq(fs_link(x.fs, f, d, S("x"), &a), -ENOENT);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("f"), d, S("x"), 0), -ENOENT);
	ck_assert_int_eq(fs_unlink(x.fs, d, S("x")), -ENOENT);
	ck_assert_int_eq(find_err(&x, d, "x"), -ENOENT);
	ck_assert_uint_eq(inodes(&x), 3);
	fs_forget(x.fs, d, 1);
	ck_assert_uint_eq(inodes(&x), 2);
	ck_assert_int_eq(fs_getattr(x.fs, d, &a), -ENOENT);
	fixture_done(&x);
}
UNIT_END

UNIT(set_group_id_directories_hand_down_their_group)
{
	struct fixture x;
	struct fs_attr in = { .mode = 02775, .gid = 42 }, a;
	struct fs_caller c = { .uid = 5, .gid = 6 };
	fs_ino d;

	fixture_init(&x);
	d = fixture_dir(&x, ROOT, "d");
	ck_ok(fs_setattr(x.fs, d, &in, FS_SET_MODE | FS_SET_GID, &root_caller, &a));
	ck_ok(fs_mknod(x.fs, d, S("f"), S_IFREG | 0644, 0, &c, &a));
	ck_assert_uint_eq(a.gid, 42);
	ck_assert_uint_eq(a.mode, S_IFREG | 0644);
	ck_ok(fs_mkdir(x.fs, d, S("sub"), 0755, &c, &a));
	ck_assert_uint_eq(a.gid, 42);
	ck_assert_uint_eq(a.mode, S_IFDIR | 02755);
	fixture_done(&x);
}
UNIT_END

static bool in_no_group(void *arg, uint32_t gid)
{
	(void)arg;
	(void)gid;
	return false;
}

UNIT(set_group_id_is_for_members)
{
	struct fixture x;
	struct fs_attr in = { .mode = 02775, .gid = 42 }, a;
	struct fs_caller c = { .uid = 5, .gid = 6, .in_group = in_no_group };
	fs_ino d;

	fixture_init(&x);
	d = fixture_dir(&x, ROOT, "d");
	ck_ok(fs_setattr(x.fs, d, &in, FS_SET_MODE | FS_SET_GID, &root_caller, &a));
	ck_ok(fs_mknod(x.fs, d, S("f"), S_IFREG | 02755, 0, &c, &a));
	ck_assert_uint_eq(a.mode, S_IFREG | 0755);
	ck_ok(fs_mknod(x.fs, d, S("g"), S_IFREG | 02644, 0, &c, &a));
	ck_assert_uint_eq(a.mode, S_IFREG | 02644);
	fixture_done(&x);
}
UNIT_END

UNIT(symbolic_links_keep_their_target)
{
	KV_AUTO(kv_buf_done) struct kv_buf target = KV_BUF_INIT;
	char longest[FS_TARGET_BYTES_MAX + 1];
	struct fixture x;
	struct fs_attr a;
	fs_ino l;

	memset(longest, 't', sizeof(longest));
	fixture_init(&x);
	ck_ok(fs_symlink(x.fs, ROOT, S("l"), S("../some/where"), &root_caller, &a));
	l = a.ino;
	ck_assert_uint_eq(a.mode, S_IFLNK | 0777);
	ck_assert_uint_eq(a.size, 13);
	ck_assert_int_eq(fs_symlink(x.fs, ROOT, S("m"), S(""), &root_caller, &a), -ENOENT);
	ck_assert_int_eq(fs_symlink(x.fs, ROOT, S("m"), kv_slice(longest, sizeof(longest)),
				    &root_caller, &a), -ENAMETOOLONG);
	ck_ok(fs_symlink(x.fs, ROOT, S("m"), kv_slice(longest, sizeof(longest) - 1), &root_caller,
			 &a));
	ck_ok(fs_setattr(x.fs, l, &a, FS_SET_UID, &root_caller, &a));
	fixture_unmount(&x);
	fixture_mount(&x);
	ck_ok(fs_readlink(x.fs, l, &target));
	ck_assert(kv_slice_eq(kv_buf_slice(&target), S("../some/where")));
	ck_ok(fs_readlink(x.fs, find(&x, ROOT, "m"), &target));
	ck_assert_uint_eq(target.bytes, FS_TARGET_BYTES_MAX);
	ck_assert_int_eq(fs_readlink(x.fs, ROOT, &target), -EINVAL);
	fixture_done(&x);
}
UNIT_END

UNIT(hard_links_are_one_inode)
{
	struct fixture x;
	struct fs_attr a;
	fs_ino f, d;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	d = fixture_dir(&x, ROOT, "d");
	ck_ok(fs_link(x.fs, f, d, S("g"), &a));
	ck_assert_uint_eq(a.nlink, 2);
	ck_assert_uint_eq(a.parent, ROOT);
	ck_assert_uint_eq(find(&x, d, "g"), f);
	ck_assert_int_eq(fs_link(x.fs, f, d, S("g"), &a), -EEXIST);
	ck_assert_int_eq(fs_link(x.fs, d, ROOT, S("e"), &a), -EPERM);
	ck_assert_int_eq(fs_link(x.fs, d, d, S("e"), &a), -EPERM);
	ck_assert_int_eq(fs_link(x.fs, 999, ROOT, S("e"), &a), -ENOENT);
	ck_assert_int_eq(fs_link(x.fs, f, f, S("e"), &a), -ENOTDIR);
	ck_ok(fs_unlink(x.fs, ROOT, S("f")));
	ck_assert_uint_eq(fixture_attr(&x, f).nlink, 1);
	ck_ok(fs_unlink(x.fs, d, S("g")));
	ck_assert_uint_eq(fixture_attr(&x, f).nlink, 0);
	fs_forget(x.fs, f, 2);
	ck_assert_int_eq(fs_getattr(x.fs, f, &a), -ENOENT);
	ck_assert_uint_eq(inodes(&x), 2);
	fixture_done(&x);
}
UNIT_END

UNIT(an_unlinked_file_lives_while_it_is_known)
{
	struct fixture x;
	struct fs_stats s;
	struct fs_attr a;
	char got[5];
	size_t bytes;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	ck_ok(fs_write(x.fs, f, "hello", 5, 0, 0));
	ck_ok(fs_unlink(x.fs, ROOT, S("f")));
	ck_assert_int_eq(find_err(&x, ROOT, "f"), -ENOENT);
	ck_ok(fs_read(x.fs, f, got, 5, 0, &bytes));
	ck_assert_mem_eq(got, "hello", 5);
	ck_ok(fs_setattr(x.fs, f, &(struct fs_attr){ .mode = 0600 }, FS_SET_MODE, NULL, &a));
	fs_forget(x.fs, f, 1);
	ck_assert_int_eq(fs_getattr(x.fs, f, &a), -ENOENT);
	fs_stats(x.fs, &s);
	ck_assert_uint_eq(s.inodes, 1);
	ck_assert_uint_eq(s.bytes_used, 0);
	ck_assert_uint_eq(s.inodes_known, 0);
	fixture_done(&x);
}
UNIT_END

UNIT(orphans_of_the_last_session_are_freed)
{
	struct fixture x;
	struct fs_attr a;
	struct fs_stats s;

	fixture_init(&x);
	for (int i = 0; i < 20; i++) {
		char name[16];
		fs_ino f;

		snprintf(name, sizeof(name), "f%d", i);
		f = fixture_file(&x, ROOT, name);
		ck_ok(fs_write(x.fs, f, "hello", 5, 0, 0));
		ck_ok(fs_setxattr(x.fs, f, S("user.a"), S("b"), 0));
		ck_ok(fs_unlink(x.fs, ROOT, S(name)));
	}
	ck_ok(fs_tmpfile(x.fs, ROOT, 0600, &root_caller, &a));
	ck_assert_uint_eq(inodes(&x), 22);
	fixture_unmount(&x);
	fixture_mount(&x);
	ck_ok(fs_reclaim_wait(x.fs));
	fs_stats(x.fs, &s);
	ck_assert_uint_eq(s.inodes, 1);
	ck_assert_uint_eq(s.bytes_used, 0);
	ck_assert_uint_eq(s.orphans_waiting, 0);
	fixture_done(&x);
}
UNIT_END

UNIT(a_temporary_file_can_get_a_name)
{
	struct fixture x;
	struct fs_attr a;
	fs_ino f;

	fixture_init(&x);
	ck_ok(fs_tmpfile(x.fs, ROOT, 0600, &root_caller, &a));
	f = a.ino;
	ck_assert_uint_eq(a.nlink, 0);
	dir_is(&x, ROOT, 0, 0, 2);
	ck_ok(fs_link(x.fs, f, ROOT, S("named"), &a));
	ck_assert_uint_eq(a.nlink, 1);
	fs_forget(x.fs, f, 2);
	ck_assert_uint_eq(find(&x, ROOT, "named"), f);
	fixture_unmount(&x);
	fixture_mount(&x);
	ck_assert_uint_eq(find(&x, ROOT, "named"), f);
	ck_ok(fs_unlink(x.fs, ROOT, S("named")));
	ck_assert_uint_eq(inodes(&x), 1);
	fixture_done(&x);
}
UNIT_END

UNIT(rename_moves_and_replaces)
{
	struct fixture x;
	struct fs_attr a;
	fs_ino f, g, d, before;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	g = fixture_file(&x, ROOT, "longer");
	d = fixture_dir(&x, ROOT, "d");
	before = (fs_ino)fixture_attr(&x, f).ctime.tv_sec;
	ck_ok(fs_rename(x.fs, ROOT, S("f"), ROOT, S("ff"), 0));
	ck_assert_uint_eq(find(&x, ROOT, "ff"), f);
	ck_assert_int_eq(find_err(&x, ROOT, "f"), -ENOENT);
	ck_assert_uint_gt((fs_ino)fixture_attr(&x, f).ctime.tv_sec, before);
	dir_is(&x, ROOT, 3, 9, 3);
	ck_ok(fs_rename(x.fs, ROOT, S("ff"), d, S("f"), 0));
	dir_is(&x, ROOT, 2, 7, 3);
	dir_is(&x, d, 1, 1, 2);
	ck_assert_uint_eq(fixture_attr(&x, f).parent, d);
	ck_ok(fs_rename(x.fs, ROOT, S("longer"), d, S("f"), 0));
	ck_assert_uint_eq(find(&x, d, "f"), g);
	ck_assert_uint_eq(fixture_attr(&x, f).nlink, 0);
	fs_forget(x.fs, f, 1);
	ck_assert_int_eq(fs_getattr(x.fs, f, &a), -ENOENT);
	dir_is(&x, ROOT, 1, 1, 3);
	dir_is(&x, d, 1, 1, 2);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("no"), d, S("f"), 0), -ENOENT);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("d"), g, S("f"), 0), -ENOTDIR);
	fixture_done(&x);
}
UNIT_END

UNIT(rename_of_directories_keeps_the_tree_a_tree)
{
	struct fixture x;
	fs_ino a, b, c, e;

	fixture_init(&x);
	a = fixture_dir(&x, ROOT, "a");
	b = fixture_dir(&x, a, "b");
	c = fixture_dir(&x, b, "c");
	e = fixture_dir(&x, ROOT, "e");
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("a"), a, S("x"), 0), -EINVAL);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("a"), b, S("x"), 0), -EINVAL);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("a"), c, S("x"), 0), -EINVAL);
	ck_assert_int_eq(fs_rename(x.fs, b, S("c"), ROOT, S("a"), 0), -ENOTEMPTY);
	ck_assert_int_eq(fs_rename(x.fs, a, S("b"), ROOT, S("a"), 0), -ENOTEMPTY);
	ck_assert_int_eq(fs_rename(x.fs, b, S("c"), ROOT, S("a"), RENAME_EXCHANGE), -EINVAL);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("a"), b, S("c"), RENAME_EXCHANGE), -EINVAL);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("e"), ROOT, S("a"), 0), -ENOTEMPTY);
	ck_ok(fs_rename(x.fs, a, S("b"), ROOT, S("e"), 0));
	ck_assert_uint_eq(find(&x, ROOT, "e"), b);
	ck_assert_uint_eq(find(&x, b, ".."), ROOT);
	dir_is(&x, a, 0, 0, 2);
	dir_is(&x, ROOT, 2, 2, 4);
	ck_assert_uint_eq(fixture_attr(&x, e).nlink, 0);
	/* Within one directory, replacing an empty one. */
	ck_ok(fs_rename(x.fs, ROOT, S("e"), ROOT, S("a"), 0));
	dir_is(&x, ROOT, 1, 1, 3);
	ck_assert_uint_eq(fixture_attr(&x, a).nlink, 0);
	ck_assert_uint_eq(find(&x, ROOT, "a"), b);
	ck_assert_uint_eq(find(&x, b, "c"), c);
	fixture_done(&x);
}
UNIT_END

UNIT(rename_looks_at_the_kinds)
{
	struct fixture x;

	fixture_init(&x);
	fixture_file(&x, ROOT, "f");
	fixture_dir(&x, ROOT, "d");
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("f"), ROOT, S("d"), 0), -EISDIR);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("d"), ROOT, S("f"), 0), -ENOTDIR);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("f"), ROOT, S("d"), RENAME_NOREPLACE), -EEXIST);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("f"), ROOT, S("g"), RENAME_EXCHANGE), -ENOENT);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("f"), ROOT, S("g"), 1 << 7), -EINVAL);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("f"), ROOT, S("d"),
				   RENAME_EXCHANGE | RENAME_NOREPLACE), -EINVAL);
	ck_ok(fs_rename(x.fs, ROOT, S("f"), ROOT, S("g"), RENAME_NOREPLACE));
	fixture_done(&x);
}
UNIT_END

UNIT(rename_onto_itself_does_nothing)
{
	struct fixture x;
	struct fs_attr a;
	fs_ino f;
	time_t ctime;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	ck_ok(fs_link(x.fs, f, ROOT, S("g"), &a));
	ctime = a.ctime.tv_sec;
	ck_ok(fs_rename(x.fs, ROOT, S("f"), ROOT, S("f"), 0));
	ck_ok(fs_rename(x.fs, ROOT, S("f"), ROOT, S("g"), 0));
	ck_assert_uint_eq(find(&x, ROOT, "f"), f);
	ck_assert_uint_eq(find(&x, ROOT, "g"), f);
	ck_assert_int_eq(fixture_attr(&x, f).ctime.tv_sec, ctime);
	fixture_done(&x);
}
UNIT_END

UNIT(exchange_swaps)
{
	struct fixture x;
	fs_ino f, d, e, g;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	d = fixture_dir(&x, ROOT, "d");
	e = fixture_dir(&x, d, "e");
	g = fixture_file(&x, ROOT, "g");
	ck_ok(fs_rename(x.fs, ROOT, S("f"), ROOT, S("g"), RENAME_EXCHANGE));
	ck_assert_uint_eq(find(&x, ROOT, "f"), g);
	ck_assert_uint_eq(find(&x, ROOT, "g"), f);
	ck_ok(fs_rename(x.fs, ROOT, S("g"), d, S("e"), RENAME_EXCHANGE));
	ck_assert_uint_eq(find(&x, ROOT, "g"), e);
	ck_assert_uint_eq(find(&x, d, "e"), f);
	ck_assert_uint_eq(find(&x, e, ".."), ROOT);
	dir_is(&x, ROOT, 3, 3, 4);
	dir_is(&x, d, 1, 1, 2);
	fixture_done(&x);
}
UNIT_END

UNIT(whiteout_stays_behind)
{
	struct fixture x;
	struct fs_attr a;
	fs_ino f, d;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	d = fixture_dir(&x, ROOT, "d");
	ck_ok(fs_rename(x.fs, ROOT, S("f"), d, S("f"), RENAME_WHITEOUT));
	ck_assert_uint_eq(find(&x, d, "f"), f);
	ck_ok(fs_lookup(x.fs, ROOT, S("f"), &a));
	ck_assert_uint_eq(a.mode & S_IFMT, S_IFCHR);
	ck_assert_uint_eq(a.rdev, 0);
	ck_assert_uint_eq(a.nlink, 1);
	dir_is(&x, ROOT, 2, 2, 3);
	ck_ok(fs_rename(x.fs, ROOT, S("d"), ROOT, S("e"), RENAME_WHITEOUT));
	dir_is(&x, ROOT, 3, 3, 3);
	ck_assert_uint_eq(inodes(&x), 5);
	fixture_done(&x);
}
UNIT_END

/* One bit: all names share one key, and sixteen fit. */
UNIT(names_of_one_hash_live_together)
{
	struct fixture x;
	struct fs_attr a;
	fs_ino first;

	fixture_init_hash(&x, 1);
	first = fixture_file(&x, ROOT, "n0");
	for (int i = 1; i < 16; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		ck_assert_uint_eq(fixture_file(&x, ROOT, name), first + (fs_ino)i);
	}
	ck_assert_int_eq(fs_mknod(x.fs, ROOT, S("n16"), S_IFREG, 0, &root_caller, &a), -ENOSPC);
	ck_assert_int_eq(fs_mknod(x.fs, ROOT, S("n3"), S_IFREG, 0, &root_caller, &a), -EEXIST);
	/* Both names of a rename are in that key, also with a slot to spare for none. */
	ck_ok(fs_rename(x.fs, ROOT, S("n3"), ROOT, S("n4"), 0));
	ck_assert_uint_eq(find(&x, ROOT, "n4"), first + 3);
	ck_ok(fs_rename(x.fs, ROOT, S("n4"), ROOT, S("n5"), RENAME_EXCHANGE));
	ck_assert_uint_eq(find(&x, ROOT, "n4"), first + 5);
	ck_ok(fs_rename(x.fs, ROOT, S("n5"), ROOT, S("m"), RENAME_WHITEOUT));
	ck_assert_uint_eq(find(&x, ROOT, "m"), first + 3);
	for (int i = 6; i < 16; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		ck_ok(fs_unlink(x.fs, ROOT, S(name)));
	}
	dir_is(&x, ROOT, 6, 11, 2);
	fixture_done(&x);
}
UNIT_END

UNIT(read_only_changes_nothing)
{
	struct fixture x;
	struct fs_attr a;
	struct fs_options o = { .kv = fixture_kv_options() };
	struct statvfs v;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	fixture_unmount(&x);
	o.kv.read_only = true;
	ck_ok(fs_open(x.dir, &o, &x.fs));
	ck_assert_uint_eq(find(&x, ROOT, "f"), f);
	ck_assert_int_eq(fs_unlink(x.fs, ROOT, S("f")), -EROFS);
	ck_assert_int_eq(fs_rmdir(x.fs, ROOT, S("f")), -EROFS);
	ck_assert_int_eq(fs_mkdir(x.fs, ROOT, S("d"), 0, &root_caller, &a), -EROFS);
	ck_assert_int_eq(fs_mknod(x.fs, ROOT, S("d"), S_IFREG, 0, &root_caller, &a), -EROFS);
	ck_assert_int_eq(fs_symlink(x.fs, ROOT, S("d"), S("x"), &root_caller, &a), -EROFS);
	ck_assert_int_eq(fs_link(x.fs, f, ROOT, S("d"), &a), -EROFS);
	ck_assert_int_eq(fs_tmpfile(x.fs, ROOT, 0, &root_caller, &a), -EROFS);
	ck_assert_int_eq(fs_rename(x.fs, ROOT, S("f"), ROOT, S("g"), 0), -EROFS);
	ck_assert_int_eq(fs_setattr(x.fs, f, &a, FS_SET_UID, &root_caller, &a), -EROFS);
	ck_ok(fs_statfs(x.fs, &v));
	ck_assert_uint_eq(v.f_flag, ST_RDONLY);
	fixture_done(&x);
}
UNIT_END

UNIT_MAIN("fs_namei", a_made_file_is_found, device_numbers_are_kept, bad_names_are_refused,
	  directories_count_links_and_names, nothing_is_made_in_a_removed_directory,
	  set_group_id_directories_hand_down_their_group, set_group_id_is_for_members,
	  symbolic_links_keep_their_target, hard_links_are_one_inode,
	  an_unlinked_file_lives_while_it_is_known, orphans_of_the_last_session_are_freed,
	  a_temporary_file_can_get_a_name, rename_moves_and_replaces,
	  rename_of_directories_keeps_the_tree_a_tree, rename_looks_at_the_kinds,
	  rename_onto_itself_does_nothing, exchange_swaps, whiteout_stays_behind,
	  names_of_one_hash_live_together, read_only_changes_nothing)
