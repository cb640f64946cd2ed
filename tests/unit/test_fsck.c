/* Each kind of damage, made on purpose in a store that was right, is found and told. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "fs/record.h"
#include "fsck/check.h"
#include "tests/unit/fs_fixture.h"

/* --- the tree that is damaged: /d/f with 3 extents and an attribute, /d/e, /d/l, /d/s -> target --- */

struct tree {
	struct fixture x;
	fs_ino d, e, f, s;
	struct kv_db *kv;		/* while it is being damaged */
	struct kv_batch *b;
};

static struct kv_buf said;

static void say(void *arg, enum kv_msg_level level, const char *sentence)
{
	(void)arg, (void)level;
	ck_ok(kv_buf_printf(&said, "%s\n", sentence));
}

static void tree_init(struct tree *t)
{
	static uint8_t bytes[300000];
	struct fs_caller caller = { 0 };
	struct fs_attr attr;

	fixture_init(&t->x);
	t->d = fixture_dir(&t->x, FS_INO_ROOT, "d");
	t->e = fixture_dir(&t->x, t->d, "e");
	t->f = fixture_file(&t->x, t->d, "f");
	memset(bytes, 'x', sizeof(bytes));
	ck_ok(fs_write(t->x.fs, t->f, bytes, sizeof(bytes), 0, 0));
	ck_ok(fs_setxattr(t->x.fs, t->f, kv_slice_str("user.a"), kv_slice_str("v"), 0));
	ck_ok(fs_link(t->x.fs, t->f, t->d, kv_slice_str("l"), &attr));
	ck_ok(fs_symlink(t->x.fs, t->d, kv_slice_str("s"), kv_slice_str("target"), &caller, &attr));
	t->s = attr.ino;
	fixture_unmount(&t->x);
}

static struct fsck_result check_with(struct tree *t, struct fsck_options o)
{
	struct fsck_result r;

	kv_buf_reset(&said);
	o.msg = (struct kv_msg){ say, NULL, KV_MSG_WARN };
	ck_ok(fsck_run(t->x.dir, &o, &r));
	return r;
}

static struct fsck_result check(struct tree *t)
{
	return check_with(t, (struct fsck_options){ .read_only = true });
}

static void damage_begin(struct tree *t)
{
	struct kv_options o = fixture_kv_options();

	ck_ok(kv_open(t->x.dir, &o, &t->kv));
	t->b = kv_batch_new();
	ck_assert_ptr_nonnull(t->b);
}

static void damage_end(struct tree *t)
{
	ck_ok(kv_write(t->kv, t->b, true));
	kv_batch_free(t->b);
	ck_ok(kv_close(t->kv));
}

static void put(struct tree *t, struct fs_key key, const void *value, size_t bytes)
{
	kv_batch_put(t->b, fs_key_slice(&key), kv_slice(value, bytes), KV_HINT_NONE);
}

static void del(struct tree *t, struct fs_key key)
{
	kv_batch_delete(t->b, fs_key_slice(&key));
}

static struct fs_attr get_attr(struct tree *t, fs_ino ino)
{
	struct fs_key key = fs_key_attr(ino);
	struct kv_buf value = KV_BUF_INIT;
	struct kv_slice inline_bytes;
	struct fs_attr attr;

	ck_ok(kv_get(t->kv, NULL, fs_key_slice(&key), &value));
	ck_assert(fs_attr_decode(ino, kv_buf_slice(&value), &attr, &inline_bytes));
	kv_buf_done(&value);
	return attr;
}

static void put_attr(struct tree *t, const struct fs_attr *attr)
{
	struct fs_attr_disk d;

	fs_attr_encode(attr, &d);
	put(t, fs_key_attr(attr->ino), &d, sizeof(d));
}

/* Key of the bucket that has the name. */
static struct fs_key name_key(struct tree *t, fs_ino dir, const char *name)
{
	struct fs_key key = fs_key_super(FS_SUPER_BLOCK);
	struct kv_buf value = KV_BUF_INIT;
	struct fs_super super;

	ck_ok(kv_get(t->kv, NULL, fs_key_slice(&key), &value));
	ck_ok(fs_super_decode(kv_buf_slice(&value), &super));
	kv_buf_done(&value);
	return fs_key_dirent(dir, fs_name_hash(&super, kv_slice_str(name)));
}

static void append_slot(struct kv_buf *bucket, uint8_t slot, uint8_t type, fs_ino ino,
			const char *name)
{
	struct fs_slot s = { slot, type, ino, kv_slice_str(name) };

	ck_ok(fs_slot_append(bucket, &s));
}

static void put_name(struct tree *t, fs_ino dir, const char *name, uint8_t type, fs_ino ino)
{
	struct kv_buf bucket = KV_BUF_INIT;

	append_slot(&bucket, 0, type, ino, name);
	put(t, name_key(t, dir, name), bucket.data, bucket.bytes);
	kv_buf_done(&bucket);
}

/*
 * Makes a tree, damages it, checks: these problems and no others are found, each as
 * often as it is named; and the sentences say `text`.
 */
#define EXPECT(damage, text, ...)                                             \
	do {                                                                  \
		const enum fsck_problem want_[] = { __VA_ARGS__ };            \
		expect(damage, text, want_, KV_ARRAY_LEN(want_));             \
	} while (0)

static void expect(void (*damage)(struct tree *), const char *text, const enum fsck_problem *want,
		   size_t n)
{
	struct fsck_result r;
	struct tree t;

	tree_init(&t);
	damage_begin(&t);
	damage(&t);
	damage_end(&t);
	r = check(&t);
	for (size_t i = 0; i < n; i++) {
		ck_assert_msg(r.count[want[i]], "problem %d (%s) was not found; said:\n%s", (int)want[i],
			      fsck_problem_name((int)want[i]), (const char *)said.data);
		r.count[want[i]]--;
	}
	ck_assert_msg(r.problems == n, "%d problems instead of %d; said:\n%s", (int)r.problems, (int)n,
		      (const char *)said.data);
	ck_assert_msg(strstr((const char *)said.data, text), "\"%s\" was not said, but:\n%s", text,
		      (const char *)said.data);
	ck_assert_int_eq(fsck_exit_code(0, &r), FSCK_EXIT_UNCORRECTED);
	fixture_done(&t.x);
}

/* --- what is right ------------------------------------------------------------------------- */

UNIT(a_filesystem_in_order_is_clean)
{
	struct fsck_result r;
	struct tree t;

	tree_init(&t);
	for (int thorough = 0; thorough < 2; thorough++) {
		r = check_with(&t, (struct fsck_options){ .thorough = thorough });
		ck_assert_msg(!r.problems, "said: %s", (const char *)said.data);
		ck_assert_uint_eq(r.inodes, 5);
		ck_assert_uint_eq(r.files, 1);
		ck_assert_uint_eq(r.dirs, 3);
		ck_assert_uint_eq(r.symlinks, 1);
		ck_assert_uint_eq(r.names, 5);
		ck_assert_uint_eq(r.xattrs, 1);
		ck_assert_uint_eq(r.bytes, 300000);
		ck_assert_uint_eq(r.extents, 3);
		ck_assert_int_eq(fsck_exit_code(0, &r), FSCK_EXIT_OK);
	}
	/* Few nodes at a time: several scans, the same result. */
	for (uint32_t nodes = 1; nodes < 6; nodes++) {
		r = check_with(&t, (struct fsck_options){ .nodes_max = nodes });
		ck_assert_msg(!r.problems, "said: %s", (const char *)said.data);
	}
	fixture_done(&t.x);
}
UNIT_END

UNIT(orphans_are_normal_and_are_freed)
{
	struct fsck_result r;
	struct fs_attr attr;
	struct tree t;

	tree_init(&t);
	fixture_mount(&t.x);
	ck_ok(fs_lookup(t.x.fs, t.d, kv_slice_str("f"), &attr));
	ck_ok(fs_unlink(t.x.fs, t.d, kv_slice_str("f")));
	ck_ok(fs_unlink(t.x.fs, t.d, kv_slice_str("l")));
	fixture_unmount(&t.x);
	r = check(&t);
	ck_assert_msg(!r.problems, "said: %s", (const char *)said.data);
	ck_assert_uint_eq(r.orphans, 1);
	ck_assert_uint_eq(r.orphans_freed, 0);
	ck_assert_int_eq(fsck_exit_code(0, &r), FSCK_EXIT_OK);
	r = check_with(&t, (struct fsck_options){ .read_only = false });
	ck_assert_uint_eq(r.orphans_freed, 1);
	ck_assert_int_eq(fsck_exit_code(0, &r), FSCK_EXIT_CORRECTED);
	r = check_with(&t, (struct fsck_options){ .read_only = false });
	ck_assert_uint_eq(r.problems, 0);
	ck_assert_uint_eq(r.orphans, 0);
	ck_assert_uint_eq(r.inodes, 4);
	ck_assert_uint_eq(r.bytes, 0);
	ck_assert_int_eq(fsck_exit_code(0, &r), FSCK_EXIT_OK);
	fixture_done(&t.x);
}
UNIT_END

UNIT(what_cannot_be_checked_is_told_apart)
{
	struct fsck_options o = { .msg = { say, NULL, KV_MSG_WARN } };
	struct fsck_result r;
	char path[400];
	struct tree t;
	int err;

	tree_init(&t);
	fixture_mount(&t.x);
	err = fsck_run(t.x.dir, &o, &r);
	ck_assert(kv_err_is(err, KV_E_locked));
	ck_assert_int_eq(fsck_exit_code(err, &r), FSCK_EXIT_OPERATIONAL);
	fixture_unmount(&t.x);
	snprintf(path, sizeof(path), "%s/nothing", t.x.dir);
	err = fsck_run(path, &o, &r);
	ck_assert_int_eq(err, -ENOENT);
	ck_ok(mkdir(path, 0755));
	err = fsck_run(path, &o, &r);
	ck_assert(kv_err_is(err, KV_E_not_a_store));
	ck_assert_int_eq(fsck_exit_code(err, &r), FSCK_EXIT_OPERATIONAL);
	rmdir(path);
	fixture_done(&t.x);
}
UNIT_END

/* Sum of names, sizes and times of the store's files: whether anything was written. */
static uint64_t fingerprint(const char *dir)
{
	uint64_t sum = 0;
	struct dirent *e;
	struct stat st;
	DIR *d = opendir(dir);

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		ck_ok(fstatat(dirfd(d), e->d_name, &st, 0));
		sum += (uint64_t)st.st_ino * 31 + (uint64_t)st.st_size * 7 +
		       (uint64_t)st.st_mtim.tv_nsec + (uint64_t)st.st_mtim.tv_sec;
	}
	closedir(d);
	return sum;
}

UNIT(read_only_writes_nothing)
{
	struct fs_attr attr;
	uint64_t before;
	struct tree t;

	tree_init(&t);
	fixture_mount(&t.x);
	ck_ok(fs_lookup(t.x.fs, t.d, kv_slice_str("s"), &attr));
	ck_ok(fs_unlink(t.x.fs, t.d, kv_slice_str("s")));
	fixture_unmount(&t.x);
	before = fingerprint(t.x.dir);
	check_with(&t, (struct fsck_options){ .read_only = true, .thorough = true });
	ck_assert_uint_eq(fingerprint(t.x.dir), before);
	fixture_done(&t.x);
}
UNIT_END

static bool stop(void *arg, const char *step, uint64_t done, uint64_t all)
{
	(void)arg, (void)step, (void)done, (void)all;
	return false;
}

UNIT(it_can_be_stopped)
{
	struct fsck_options o = { .progress = stop };
	struct fsck_result r;
	struct tree t;
	int err;

	tree_init(&t);
	err = fsck_run(t.x.dir, &o, &r);
	ck_assert_int_eq(err, -ECANCELED);
	ck_assert_int_eq(fsck_exit_code(err, &r), FSCK_EXIT_CANCELED);
	fixture_done(&t.x);
}
UNIT_END

/* --- the whole ------------------------------------------------------------------------------- */

static void super_goes(struct tree *t)
{
	del(t, fs_key_super(FS_SUPER_BLOCK));
}

static void super_is_bad(struct tree *t)
{
	put(t, fs_key_super(FS_SUPER_BLOCK), FS_SUPER_MAGIC_TEXT "short", 13);
}

static void numbers_are_wrong(struct tree *t)
{
	le64 n = kv_le64(t->f);

	put(t, fs_key_super(FS_SUPER_INO_NEXT), &n, sizeof(n));
	n = kv_le64(7);
	put(t, fs_key_super(FS_SUPER_INODES), &n, sizeof(n));
	put(t, fs_key_super(FS_SUPER_BYTES_USED), &n, sizeof(n));
}

static void unknown_keys(struct tree *t)
{
	kv_batch_put(t->b, kv_slice("\x01\x77", 2), kv_slice("v", 1), KV_HINT_NONE);
	kv_batch_put(t->b, kv_slice("\x10short", 6), kv_slice("v", 1), KV_HINT_NONE);
	kv_batch_put(t->b, kv_slice("\x60", 1), kv_slice("v", 1), KV_HINT_NONE);
	kv_batch_put(t->b, kv_slice("\x20\xff\xff\0\0\0\0\0\0" "12345678", 17), kv_slice("v", 1),
		     KV_HINT_NONE);
}

static void ino_next_goes(struct tree *t)
{
	del(t, fs_key_super(FS_SUPER_INO_NEXT));
}

UNIT(damage_of_the_whole)
{
	EXPECT(super_goes, "the superblock is missing", FSCK_P_super_missing);
	EXPECT(super_is_bad, "the superblock is damaged", FSCK_P_super_bad);
	EXPECT(ino_next_goes, "next inode number", FSCK_P_ino_next_bad);
	EXPECT(numbers_are_wrong, "300000 bytes together, but 7 are on record", FSCK_P_ino_next_low,
	       FSCK_P_ino_next_low, FSCK_P_inodes, FSCK_P_bytes_used);
	EXPECT(unknown_keys, "20ffff", FSCK_P_key_unknown, FSCK_P_key_unknown, FSCK_P_key_unknown,
	       FSCK_P_key_unknown);
}
UNIT_END

/* --- inodes ---------------------------------------------------------------------------------- */

static void attr_is_bad(struct tree *t)
{
	put(t, fs_key_attr(t->f), "nonsense", 8);
}

static void reserved_inode(struct tree *t)
{
	struct fs_attr a = get_attr(t, t->f);

	a.ino = 5;
	a.nlink = 0;
	a.bytes = a.extents = a.size = 0;
	a.flags = 0;
	put_attr(t, &a);
	put(t, fs_key_orphan(5), "", 0);
	a.ino = FS_INO_ROOT;
	kv_batch_add(t->b, fs_key_slice(&(struct fs_key){ 2, { FS_KEY_SUPER, FS_SUPER_INODES } }), 1);
}

static void orphans_are_wrong(struct tree *t)
{
	put(t, fs_key_orphan(t->f), "", 0);
	put(t, fs_key_orphan(999), "", 0);
}

static void orphan_key_goes(struct tree *t)
{
	struct fs_attr a = get_attr(t, t->e), d = get_attr(t, t->d);

	a.nlink = 0;
	put_attr(t, &a);
	d.nlink--;
	d.entries--;
	put_attr(t, &d);
	del(t, name_key(t, t->d, "e"));
}

static void directory_counts_are_wrong(struct tree *t)
{
	struct fs_attr a = get_attr(t, t->d);

	a.nlink = 9;
	a.entries = 17;
	put_attr(t, &a);
}

static void root_goes(struct tree *t)
{
	del(t, fs_key_attr(FS_INO_ROOT));
}

UNIT(damage_of_inodes)
{
	EXPECT(attr_is_bad, "\"/d/", FSCK_P_attr_bad);
	EXPECT(reserved_inode, "inode 5", FSCK_P_ino_reserved);
	EXPECT(orphans_are_wrong, "inode 999 is listed as deleted, but does not exist",
	       FSCK_P_orphan_linked, FSCK_P_orphan_no_inode);
	EXPECT(orphan_key_goes, "has no links, but is not listed as deleted", FSCK_P_orphan_missing);
	EXPECT(directory_counts_are_wrong, "\"/d\" (inode ", FSCK_P_dir_nlink, FSCK_P_dir_size);
	EXPECT(root_goes, "the root directory is missing", FSCK_P_root_missing,
	       FSCK_P_names_no_inode, FSCK_P_inodes);
}
UNIT_END

/* --- bytes -------------------------------------------------------------------------------------- */

static const uint8_t zeros[FS_XATTR_BYTES_MAX + FS_EXTENT_BYTES_MAX];

static void extents_of_others(struct tree *t)
{
	put(t, fs_key_extent(t->d, 0), "x", 1);
	put(t, fs_key_extent(999, 0), "x", 1);
}

static void extents_are_wrong(struct tree *t)
{
	struct fs_attr a = get_attr(t, t->f);

	/* Across a window; beyond the end; overlapping: and counted right. */
	a.size = 300001;
	a.extents += 3;
	a.bytes += 20 + 5 + 5;
	put_attr(t, &a);
	put(t, fs_key_extent(t->f, 3 * FS_EXTENT_BYTES_MAX - 10), zeros, 20);
	put(t, fs_key_extent(t->f, 299000), zeros, 5);
	put(t, fs_key_extent(t->f, 4 * FS_EXTENT_BYTES_MAX), zeros, 5);
	kv_batch_add(t->b, fs_key_slice(&(struct fs_key){ 2, { FS_KEY_SUPER, FS_SUPER_BYTES_USED } }),
		     30);
}

static void extent_goes(struct tree *t)
{
	del(t, fs_key_extent(t->f, FS_EXTENT_BYTES_MAX));
}

UNIT(damage_of_contents)
{
	EXPECT(extents_of_others, "inode 999 has bytes of a file", FSCK_P_extent_no_file,
	       FSCK_P_extent_no_inode);
	EXPECT(extents_are_wrong, "has bytes up to offset 524293, but ends at 300001",
	       FSCK_P_extent_bad, FSCK_P_extent_overlap, FSCK_P_extent_beyond);
	EXPECT(extent_goes, "has 3 pieces on record, but there are 2", FSCK_P_extent_count,
	       FSCK_P_extent_bytes);
}
UNIT_END

/* --- extended attributes -------------------------------------------------------------------------- */

static void xattrs_are_wrong(struct tree *t)
{
	put(t, fs_key_xattr(t->d, kv_slice_str("user.hidden")), "v", 1);
	put(t, fs_key_xattr(t->f, kv_slice_str("security.capability")), "v", 1);
	put(t, fs_key_xattr(t->f, kv_slice_str("user.big")), zeros, FS_XATTR_BYTES_MAX + 1);
	put(t, fs_key_xattr(999, kv_slice_str("user.a")), "v", 1);
}

UNIT(damage_of_extended_attributes)
{
	EXPECT(xattrs_are_wrong, "\"user.hidden\"", FSCK_P_xattr_denied, FSCK_P_xattr_denied,
	       FSCK_P_xattr_bad, FSCK_P_xattr_no_inode);
}
UNIT_END

/* --- names ----------------------------------------------------------------------------------------- */

static void names_of_others(struct tree *t)
{
	struct fs_attr a = get_attr(t, t->f);

	a.nlink = 4;
	put_attr(t, &a);
	put_name(t, 999, "a", DT_REG, t->f);
	put_name(t, t->s, "b", DT_REG, t->f);
}

static void bucket_is_bad(struct tree *t)
{
	put(t, name_key(t, t->d, "none"), "nonsense", 8);
}

static void bucket_is_crowded(struct tree *t)
{
	struct fs_attr a = get_attr(t, t->d), f = get_attr(t, t->f);
	struct kv_buf bucket = KV_BUF_INIT;

	/* The same name, another name that doesn't belong here, and that in a slot that is taken. */
	append_slot(&bucket, 0, DT_REG, t->f, "f");
	append_slot(&bucket, 1, DT_REG, t->f, "f");
	append_slot(&bucket, 2, DT_REG, t->f, "other");
	append_slot(&bucket, 2, DT_REG, t->f, "f");
	put(t, name_key(t, t->d, "f"), bucket.data, bucket.bytes);
	kv_buf_done(&bucket);
	a.entries += 3;
	put_attr(t, &a);
	f.nlink += 3;
	put_attr(t, &f);
}

static void names_are_wrong(struct tree *t)
{
	struct fs_attr a = get_attr(t, t->d);

	a.entries++;
	put_attr(t, &a);
	put_name(t, t->d, "gone\n", DT_REG, 999);
	put_name(t, t->d, "s", DT_REG, t->s);
}

UNIT(damage_of_names)
{
	EXPECT(names_of_others, "inode 999 has names in it", FSCK_P_names_no_inode,
	       FSCK_P_names_no_dir);
	EXPECT(bucket_is_bad, "\"/d\"", FSCK_P_bucket_bad);
	EXPECT(bucket_is_crowded, "the name \"f\" in it", FSCK_P_name_twice, FSCK_P_name_lost,
	       FSCK_P_slot_twice);
	EXPECT(names_are_wrong, "\"gone\\x0a\" in \"/d\" (inode ", FSCK_P_name_no_inode,
	       FSCK_P_name_type);
}
UNIT_END

/* --- links ------------------------------------------------------------------------------------------- */

static void links_are_wrong(struct tree *t)
{
	struct fs_attr a = get_attr(t, t->f), d = get_attr(t, t->d);

	a.nlink = 5;
	put_attr(t, &a);
	del(t, name_key(t, t->d, "s"));
	d.entries--;
	put_attr(t, &d);
}

static void directory_in_two(struct tree *t)
{
	struct fs_attr root = get_attr(t, FS_INO_ROOT);

	root.entries++;
	root.nlink++;
	put_attr(t, &root);
	put_name(t, FS_INO_ROOT, "again", DT_DIR, t->e);
}

static void directories_in_a_loop(struct tree *t)
{
	struct fs_attr root = get_attr(t, FS_INO_ROOT), d = get_attr(t, t->d), e = get_attr(t, t->e);

	/* d moves into e, which is in d. */
	del(t, name_key(t, FS_INO_ROOT, "d"));
	root.entries--;
	root.nlink--;
	put_attr(t, &root);
	put_name(t, t->e, "d", DT_DIR, t->d);
	e.entries++;
	e.nlink++;
	put_attr(t, &e);
	d.parent = t->e;
	put_attr(t, &d);
}

UNIT(damage_of_links)
{
	EXPECT(links_are_wrong, "has 5 links on record, but 2 names", FSCK_P_nlink, FSCK_P_no_name);
	EXPECT(directory_in_two, "a directory with 2 names", FSCK_P_dir_two_names,
	       FSCK_P_dir_parent);
	EXPECT(directories_in_a_loop, "not below the root", FSCK_P_dir_loop);
}
UNIT_END

UNIT(links_are_found_wrong_in_chunks_too)
{
	struct fsck_result r;

	for (uint32_t nodes = 1; nodes < 6; nodes++) {
		struct tree t;

		tree_init(&t);
		damage_begin(&t);
		directories_in_a_loop(&t);
		damage_end(&t);
		r = check_with(&t, (struct fsck_options){ .nodes_max = nodes });
		ck_assert_uint_ge(r.count[FSCK_P_dir_loop], 1);
		ck_assert_uint_eq(r.count[FSCK_P_dir_loop], r.problems);
		fixture_done(&t.x);
	}
}
UNIT_END

/* --- whatever the records hold, the check ends, and says something that can be read ---------------------- */

/* The n-th key of the store, as far as there are so many; its value too. */
static bool nth_record(struct tree *t, unsigned n, struct kv_buf *key, struct kv_buf *value)
{
	struct kv_iter_options o = { .snap = NULL };
	struct kv_slice v;
	struct kv_iter *it;
	bool found;

	ck_ok(kv_iter_new(t->kv, &o, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it) && n; n--)
		kv_iter_next(it);
	found = kv_iter_valid(it);
	if (found) {
		ck_ok(kv_buf_assign(key, kv_iter_key(it)));
		ck_ok(kv_iter_value(it, &v));
		ck_ok(kv_buf_assign(value, v));
	}
	kv_iter_free(it);
	return found;
}

/* Flips a bit of a value or of a key, cuts a value off, or takes the record away. */
static void damage_record(struct tree *t, unsigned *seed)
{
	struct kv_buf key = KV_BUF_INIT, value = KV_BUF_INIT;
	struct kv_buf *flip = rand_r(seed) % 3 ? &value : &key;

	if (nth_record(t, (unsigned)rand_r(seed) % 24, &key, &value)) {
		if (rand_r(seed) % 4 == 0)
			kv_batch_delete(t->b, kv_buf_slice(&key));
		if (rand_r(seed) % 4 == 0)
			value.bytes -= (size_t)rand_r(seed) % (value.bytes + 1);
		if (flip->bytes)
			flip->data[(size_t)rand_r(seed) % flip->bytes] ^= (uint8_t)(1 << rand_r(seed) % 8);
		kv_batch_put(t->b, kv_buf_slice(&key), kv_buf_slice(&value), KV_HINT_NONE);
	}
	kv_buf_done(&key);
	kv_buf_done(&value);
}

UNIT(random_damage_is_survived)
{
	const char *env = getenv("SEED");
	unsigned seed = env ? (unsigned)strtoul(env, NULL, 0) : (unsigned)getpid();
	struct fsck_options o = { .msg = { say, NULL, KV_MSG_WARN }, .read_only = true };
	struct fsck_result r;
	struct tree t;

	printf("SEED=%u\n", seed);
	fflush(stdout);
	tree_init(&t);
	for (int round = 0; round < 60; round++) {
		int err;

		damage_begin(&t);
		damage_record(&t, &seed);
		damage_end(&t);
		o.nodes_max = (uint32_t)rand_r(&seed) % 8;
		err = fsck_run(t.x.dir, &o, &r);
		/* The superblock may say now that it is a newer one's, or go for good. */
		ck_assert(!err || kv_err_is(err, KV_E_newer_format) || kv_err_is(err, KV_E_not_a_store));
	}
	fixture_done(&t.x);
}
UNIT_END

/* --- the engine's files --------------------------------------------------------------------------------- */

/* Changes the bytes in the middle of the largest file of the store. */
static void scratch_largest(const char *dir)
{
	static const uint8_t scratch[64] = { 0x5a };
	char name[300] = "";
	struct dirent *e;
	struct stat st;
	off_t most = 0;
	DIR *d = opendir(dir);
	int fd;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		ck_ok(fstatat(dirfd(d), e->d_name, &st, 0));
		if (S_ISREG(st.st_mode) && strstr(e->d_name, ".vlog") && st.st_size > most) {
			snprintf(name, sizeof(name), "%s", e->d_name);
			most = st.st_size;
		}
	}
	ck_assert(name[0]);
	fd = openat(dirfd(d), name, O_WRONLY);
	closedir(d);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, scratch, sizeof(scratch), most / 2), sizeof(scratch));
	close(fd);
}

UNIT(damaged_files_are_found_by_a_thorough_check)
{
	struct fsck_result r;
	struct tree t;

	tree_init(&t);
	damage_begin(&t);
	ck_ok(kv_flush(t.kv));
	damage_end(&t);
	scratch_largest(t.x.dir);
	r = check_with(&t, (struct fsck_options){ .thorough = true });
	ck_assert_uint_ge(r.count[FSCK_P_store_file], 1);
	ck_assert_int_eq(fsck_exit_code(0, &r), FSCK_EXIT_UNCORRECTED);
	fixture_done(&t.x);
}
UNIT_END

UNIT(sentences_of_one_kind_are_not_said_for_ever)
{
	struct fsck_result r;
	struct tree t;

	tree_init(&t);
	damage_begin(&t);
	for (fs_ino ino = 1000; ino < 1500; ino++)
		put(&t, fs_key_orphan(ino), "", 0);
	damage_end(&t);
	r = check_with(&t, (struct fsck_options){ .repeat_max = 10 });
	ck_assert_uint_eq(r.count[FSCK_P_orphan_no_inode], 500);
	ck_assert_ptr_nonnull(strstr((const char *)said.data, "inode 1009 "));
	ck_assert_ptr_null(strstr((const char *)said.data, "inode 1010 "));
	fixture_done(&t.x);
}
UNIT_END

UNIT_MAIN("fsck", a_filesystem_in_order_is_clean, orphans_are_normal_and_are_freed,
	  what_cannot_be_checked_is_told_apart, read_only_writes_nothing, it_can_be_stopped,
	  damage_of_the_whole, damage_of_inodes, damage_of_contents, damage_of_extended_attributes,
	  damage_of_names, damage_of_links, links_are_found_wrong_in_chunks_too,
	  random_damage_is_survived,
	  damaged_files_are_found_by_a_thorough_check, sentences_of_one_kind_are_not_said_for_ever)
