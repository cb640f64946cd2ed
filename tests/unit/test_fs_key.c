#include "fs/key.h"
#include "tests/unit/unit.h"

static int cmp(struct fs_key a, struct fs_key b)
{
	return kv_slice_cmp(fs_key_slice(&a), fs_key_slice(&b));
}

static struct fs_key_parts parsed(struct fs_key k)
{
	static struct fs_key kept;
	struct fs_key_parts p;

	kept = k;
	ck_assert(fs_key_parse(fs_key_slice(&kept), &p));
	return p;
}

UNIT(keys_come_back_as_they_went)
{
	struct kv_slice name = kv_slice_str("user.x");
	struct fs_key_parts p;

	p = parsed(fs_key_super(FS_SUPER_INODES));
	ck_assert_int_eq(p.kind, FS_KEY_SUPER);
	ck_assert_uint_eq(p.number, FS_SUPER_INODES);
	p = parsed(fs_key_attr(FS_INO_ROOT));
	ck_assert_int_eq(p.kind, FS_KEY_ATTR);
	ck_assert_uint_eq(p.ino, FS_INO_ROOT);
	p = parsed(fs_key_dirent(77, ((uint64_t)1 << FS_HASH_BITS) - 1));
	ck_assert_int_eq(p.kind, FS_KEY_DIRENT);
	ck_assert_uint_eq(p.ino, 77);
	ck_assert_uint_eq(p.number, ((uint64_t)1 << FS_HASH_BITS) - 1);
	p = parsed(fs_key_xattr(FS_INO_MAX - 1, name));
	ck_assert_int_eq(p.kind, FS_KEY_XATTR);
	ck_assert_uint_eq(p.ino, FS_INO_MAX - 1);
	ck_assert(kv_slice_eq(p.name, name));
	p = parsed(fs_key_extent(9, 0x123456789a));
	ck_assert_int_eq(p.kind, FS_KEY_EXTENT);
	ck_assert_uint_eq(p.number, 0x123456789a);
	p = parsed(fs_key_orphan(10));
	ck_assert_int_eq(p.kind, FS_KEY_ORPHAN);
	ck_assert_uint_eq(p.ino, 10);
}
UNIT_END

UNIT(keys_are_ordered_by_kind_then_inode_then_number)
{
	ck_assert_int_lt(cmp(fs_key_super(FS_SUPER_BLOCK), fs_key_attr(1)), 0);
	ck_assert_int_lt(cmp(fs_key_attr(FS_INO_MAX - 1), fs_key_dirent(1, 1)), 0);
	ck_assert_int_lt(cmp(fs_key_extent(1, 255), fs_key_extent(1, 256)), 0);
	ck_assert_int_lt(cmp(fs_key_extent(1, INT64_MAX), fs_key_extent(2, 0)), 0);
	ck_assert_int_lt(cmp(fs_key_begin(FS_KEY_EXTENT, 2), fs_key_extent(2, 0)), 0);
	ck_assert_int_lt(cmp(fs_key_extent(1, INT64_MAX), fs_key_begin(FS_KEY_EXTENT, 2)), 0);
	ck_assert_int_lt(cmp(fs_key_orphan(FS_INO_MAX - 1), fs_key_begin(FS_KEY_ORPHAN, FS_INO_MAX)),
			 0);
}
UNIT_END

UNIT(foreign_keys_are_refused)
{
	struct fs_key_parts p;
	struct fs_key good[] = { fs_key_super(FS_SUPER_BLOCK), fs_key_attr(5), fs_key_dirent(5, 5),
				 fs_key_extent(5, 5), fs_key_orphan(5) };
	struct fs_key k;

	ck_assert(!fs_key_parse(kv_slice("", 0), &p));
	for (size_t i = 0; i < KV_ARRAY_LEN(good); i++) {
		for (size_t cut = 0; cut < good[i].bytes; cut++)
			ck_assert(!fs_key_parse(kv_slice(good[i].data, cut), &p));
		k = good[i];
		k.data[k.bytes++] = 0;
		ck_assert(!fs_key_parse(fs_key_slice(&k), &p));
	}
	k = fs_key_attr(0);
	ck_assert(!fs_key_parse(fs_key_slice(&k), &p));
	k = fs_key_attr(FS_INO_MAX);
	ck_assert(!fs_key_parse(fs_key_slice(&k), &p));
	k = fs_key_dirent(5, 0);
	ck_assert(!fs_key_parse(fs_key_slice(&k), &p));
	k = fs_key_dirent(5, (uint64_t)1 << FS_HASH_BITS);
	ck_assert(!fs_key_parse(fs_key_slice(&k), &p));
	k = fs_key_extent(5, FS_FILE_BYTES_MAX);
	ck_assert(!fs_key_parse(fs_key_slice(&k), &p));
	k = fs_key_begin(FS_KEY_XATTR, 5);
	ck_assert(!fs_key_parse(fs_key_slice(&k), &p));
	k = fs_key_attr(5);
	k.data[0] = 0x11;
	ck_assert(!fs_key_parse(fs_key_slice(&k), &p));
}
UNIT_END

UNIT_MAIN("fs_key", keys_come_back_as_they_went, keys_are_ordered_by_kind_then_inode_then_number,
	  foreign_keys_are_refused)
