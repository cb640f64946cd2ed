#include "fs/record.h"

#include <dirent.h>
#include <stdio.h>

#include "tests/unit/unit.h"

static struct fs_attr some_file(void)
{
	return (struct fs_attr){
		.ino = 17, .mode = S_IFREG | 0644, .nlink = 1, .uid = 1000, .gid = 1001,
		.size = 5000, .bytes = 4000, .extents = 2, .parent = FS_INO_ROOT, .flags = FS_ATTR_XATTRS,
		.generation = 3,
		.atime = { -1, 999999999 }, .mtime = { (time_t)1 << 40, 1 },
		.ctime = { INT64_MIN, 0 }, .btime = { 1, 2 },
	};
}

static bool decodes(const struct fs_attr *a, const char *inline_text)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct kv_slice inline_bytes;
	struct fs_attr_disk d;
	struct fs_attr got;

	fs_attr_encode(a, &d);
	ck_ok(kv_buf_append(&value, &d, sizeof(d)));
	ck_ok(kv_buf_append_slice(&value, kv_slice_str(inline_text)));
	if (!fs_attr_decode(17, kv_buf_slice(&value), &got, &inline_bytes))
		return false;
	ck_assert(kv_slice_eq(inline_bytes, kv_slice_str(inline_text)));
	ck_assert_uint_eq(got.size, a->size);
	return true;
}

UNIT(attributes_round_trip)
{
	struct fs_attr a = some_file(), got;
	struct kv_slice inline_bytes;
	struct fs_attr_disk d, again;

	fs_attr_encode(&a, &d);
	ck_assert(fs_attr_decode(17, kv_slice(&d, sizeof(d)), &got, &inline_bytes));
	ck_assert_uint_eq(inline_bytes.bytes, 0);
	fs_attr_encode(&got, &again);
	ck_assert_mem_eq(&d, &again, sizeof(d));
	ck_assert_uint_eq(got.ino, 17);
	ck_assert_int_eq(got.atime.tv_sec, -1);
	ck_assert_int_eq(got.atime.tv_nsec, 999999999);
	ck_assert(got.ctime.tv_sec == INT64_MIN);
	ck_assert_uint_eq(got.parent, FS_INO_ROOT);
}
UNIT_END

#define REFUSED(field, value)                                  \
	do {                                                   \
		struct fs_attr bad_ = some_file();             \
		bad_.field = value;                            \
		ck_assert_msg(!decodes(&bad_, ""), #field);    \
	} while (0)

UNIT(impossible_attributes_are_refused)
{
	struct fs_attr a = some_file(), got;
	struct kv_slice rest;
	struct fs_attr_disk d;

	ck_assert(decodes(&a, ""));
	ck_assert(!decodes(&a, "x"));
	REFUSED(mode, 0644);
	REFUSED(mode, S_IFREG | 010000000);
	REFUSED(mode, S_IFDIR | 0755);	/* with extents */
	REFUSED(nlink, FS_LINKS_MAX + 1);
	REFUSED(size, (uint64_t)INT64_MAX + 1);
	REFUSED(bytes, (uint64_t)INT64_MAX + 1);
	REFUSED(extents, 4001);
	REFUSED(entries, 1);
	REFUSED(parent, 0);
	REFUSED(parent, FS_INO_MAX);
	REFUSED(flags, FS_ATTR_INLINE);
	fs_attr_encode(&a, &d);
	ck_assert(!fs_attr_decode(0, kv_slice(&d, sizeof(d)), &got, &rest));
	ck_assert(!fs_attr_decode(FS_INO_MAX, kv_slice(&d, sizeof(d)), &got, &rest));
	for (size_t cut = 0; cut < sizeof(d); cut++)
		ck_assert(!fs_attr_decode(17, kv_slice(&d, cut), &got, &rest));
	d.mtime.ns = kv_le32(1000000000);
	ck_assert(!fs_attr_decode(17, kv_slice(&d, sizeof(d)), &got, &rest));
}
UNIT_END

UNIT(a_symbolic_link_has_its_target_inline)
{
	struct fs_attr a = some_file();

	a.mode = S_IFLNK | 0777;
	a.bytes = a.extents = 0;
	a.size = 3;
	a.flags = FS_ATTR_INLINE;
	ck_assert(decodes(&a, "a/b"));
	ck_assert(!decodes(&a, "a/"));
	ck_assert(!decodes(&a, "a/bc"));
	a.flags = 0;
	ck_assert(!decodes(&a, ""));
	ck_assert(!decodes(&a, "a/b"));
	a.flags = FS_ATTR_INLINE;
	a.size = 0;
	ck_assert(!decodes(&a, ""));
}
UNIT_END

UNIT(slots_round_trip_and_are_bounded)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	char longest[FS_NAME_BYTES_MAX];
	struct fs_slot in[] = {
		{ 0, DT_REG, 1, kv_slice_str("a") },
		{ 15, DT_DIR, FS_INO_MAX - 1, kv_slice(longest, sizeof(longest)) },
	}, got;
	struct kv_slice rest;

	memset(longest, 'x', sizeof(longest));
	for (size_t i = 0; i < KV_ARRAY_LEN(in); i++)
		ck_ok(fs_slot_append(&b, &in[i]));
	rest = kv_buf_slice(&b);
	for (size_t i = 0; i < KV_ARRAY_LEN(in); i++) {
		ck_assert(fs_slot_take(&rest, &got));
		ck_assert_uint_eq(got.slot, in[i].slot);
		ck_assert_uint_eq(got.type, in[i].type);
		ck_assert_uint_eq(got.ino, in[i].ino);
		ck_assert(kv_slice_eq(got.name, in[i].name));
	}
	ck_assert_uint_eq(rest.bytes, 0);
	ck_assert(!fs_slot_take(&rest, &got));
	for (size_t cut = 0; cut < sizeof(struct fs_dirent_disk) + 1; cut++) {
		rest = kv_slice(b.data, cut);
		ck_assert(!fs_slot_take(&rest, &got));
		ck_assert_uint_eq(rest.bytes, cut);
	}
}
UNIT_END

static bool takes(uint8_t slot, uint8_t type, fs_ino ino, const char *name, size_t bytes)
{
	uint8_t raw[sizeof(struct fs_dirent_disk) + 256];
	struct fs_dirent_disk d = { .slot = slot, .type = type, .name_bytes = (uint8_t)bytes,
				    .ino = kv_le64(ino) };
	struct kv_slice s = kv_slice(raw, sizeof(d) + bytes);
	struct fs_slot got;

	memcpy(raw, &d, sizeof(d));
	memcpy(raw + sizeof(d), name, bytes);
	return fs_slot_take(&s, &got);
}

UNIT(impossible_slots_are_refused)
{
	ck_assert(takes(0, DT_REG, 1, "a", 1));
	ck_assert(!takes(16, DT_REG, 1, "a", 1));
	ck_assert(!takes(0, DT_UNKNOWN, 1, "a", 1));
	ck_assert(!takes(0, DT_WHT, 1, "a", 1));
	ck_assert(!takes(0, DT_REG, 0, "a", 1));
	ck_assert(!takes(0, DT_REG, FS_INO_MAX, "a", 1));
	ck_assert(!takes(0, DT_REG, 1, "", 0));
	ck_assert(!takes(0, DT_REG, 1, ".", 1));
	ck_assert(!takes(0, DT_REG, 1, "..", 2));
	ck_assert(takes(0, DT_REG, 1, "...", 3));
	ck_assert(!takes(0, DT_REG, 1, "a/b", 3));
	ck_assert(!takes(0, DT_REG, 1, "a\0b", 3));
}
UNIT_END

UNIT(superblock_round_trips_and_is_checked)
{
	struct fs_super s = { .hash_bits = 59, .label = "data", .created_s = 77 }, got;
	struct fs_super_disk d, bad;

	memset(s.uuid, 7, sizeof(s.uuid));
	memset(s.hash_key, 9, sizeof(s.hash_key));
	fs_super_encode(&s, &d);
	ck_ok(fs_super_decode(kv_slice(&d, sizeof(d)), &got));
	ck_assert_str_eq(got.label, "data");
	ck_assert_mem_eq(got.uuid, s.uuid, sizeof(s.uuid));
	ck_assert_mem_eq(got.hash_key, s.hash_key, sizeof(s.hash_key));
	ck_assert_int_eq(got.created_s, 77);
	ck_assert_int_eq(fs_super_decode(kv_slice(&d, 3), &got), KV_E_not_a_store);
	ck_assert_int_eq(fs_super_decode(kv_slice(&d, 100), &got), KV_E_bad_record);
	bad = d;
	bad.magic[0] ^= 1;
	ck_assert_int_eq(fs_super_decode(kv_slice(&bad, sizeof(d)), &got), KV_E_not_a_store);
	bad = d;
	bad.version = kv_le32(FS_VERSION + 1);
	ck_assert_int_eq(fs_super_decode(kv_slice(&bad, sizeof(d)), &got), KV_E_newer_format);
	bad = d;
	bad.features_required = kv_le64((uint64_t)1 << 63);
	ck_assert_int_eq(fs_super_decode(kv_slice(&bad, sizeof(d)), &got), KV_E_newer_format);
	bad = d;
	bad.hash_bits = kv_le32(60);
	ck_assert_int_eq(fs_super_decode(kv_slice(&bad, sizeof(d)), &got), KV_E_bad_record);
	memset(s.label, 'L', FS_LABEL_BYTES_MAX);
	fs_super_encode(&s, &d);
	ck_ok(fs_super_decode(kv_slice(&d, sizeof(d)), &got));
	ck_assert_uint_eq(strlen(got.label), FS_LABEL_BYTES_MAX);
}
UNIT_END

UNIT(hashes_of_names_stay_in_their_bits)
{
	struct fs_super s = { .hash_bits = 2 };
	bool seen[4] = { false };

	for (int i = 0; i < 200; i++) {
		char name[16];
		uint64_t h;

		snprintf(name, sizeof(name), "n%d", i);
		h = fs_name_hash(&s, kv_slice_str(name));
		ck_assert_uint_ge(h, FS_HASH_MIN);
		ck_assert_uint_lt(h, 4);
		seen[h] = true;
		ck_assert_uint_eq(h, fs_name_hash(&s, kv_slice_str(name)));
	}
	ck_assert(seen[1] && seen[2] && seen[3]);
	s.hash_bits = FS_HASH_BITS;
	ck_assert_uint_eq(fs_name_hash(&s, kv_slice_str("a")) >> FS_HASH_BITS, 0);
}
UNIT_END

UNIT_MAIN("fs_record", attributes_round_trip, impossible_attributes_are_refused,
	  a_symbolic_link_has_its_target_inline, slots_round_trip_and_are_bounded,
	  impossible_slots_are_refused, superblock_round_trips_and_is_checked,
	  hashes_of_names_stay_in_their_bits)
