/* Keys and values of the filesystem: what decodes, encodes to the same. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>

#include "fs/record.h"

static struct fs_key key_make(const struct fs_key_parts *p)
{
	switch (p->kind) {
	case FS_KEY_SUPER:
		return fs_key_super((enum fs_super_item)p->number);
	case FS_KEY_ATTR:
		return fs_key_attr(p->ino);
	case FS_KEY_DIRENT:
		return fs_key_dirent(p->ino, p->number);
	case FS_KEY_XATTR:
		return fs_key_xattr(p->ino, p->name);
	case FS_KEY_EXTENT:
		return fs_key_extent(p->ino, p->number);
	case FS_KEY_ORPHAN:
		return fs_key_orphan(p->ino);
	default:
		abort();
	}
}

static void run_key(struct kv_slice input)
{
	struct fs_key_parts parts;
	struct fs_key key;

	if (!fs_key_parse(input, &parts))
		return;
	FUZZ_ASSERT(parts.kind == FS_KEY_SUPER || (parts.ino && parts.ino < FS_INO_MAX));
	key = key_make(&parts);
	FUZZ_ASSERT(kv_slice_eq(fs_key_slice(&key), input));
}

static void run_attr(struct kv_slice input)
{
	struct fs_attr a, again;
	struct fs_attr_disk d;
	struct kv_slice bytes, same;
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	fs_ino ino = fuzz_take(&input, 7);

	if (!fs_attr_decode(ino, input, &a, &bytes))
		return;
	FUZZ_ASSERT(a.ino == ino && a.size <= FS_FILE_BYTES_MAX && a.nlink <= FS_LINKS_MAX);
	fs_attr_encode(&a, &d);
	FUZZ_OK(kv_buf_append(&b, &d, sizeof(d)));
	FUZZ_OK(kv_buf_append_slice(&b, bytes));
	FUZZ_ASSERT(fs_attr_decode(ino, kv_buf_slice(&b), &again, &same));
	FUZZ_ASSERT(kv_slice_eq(bytes, same));
	FUZZ_ASSERT(again.mode == a.mode && again.size == a.size && again.nlink == a.nlink &&
		    again.parent == a.parent && again.flags == a.flags &&
		    again.mtime.tv_sec == a.mtime.tv_sec &&
		    again.mtime.tv_nsec == a.mtime.tv_nsec);
}

static void run_bucket(struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct fs_slot s, again;
	struct kv_slice left;

	while (fs_slot_take(&input, &s)) {
		kv_buf_reset(&b);
		FUZZ_OK(fs_slot_append(&b, &s));
		left = kv_buf_slice(&b);
		FUZZ_ASSERT(fs_slot_take(&left, &again) && !left.bytes);
		FUZZ_ASSERT(again.slot == s.slot && again.type == s.type && again.ino == s.ino &&
			    kv_slice_eq(again.name, s.name));
	}
}

static void run_super(struct kv_slice input)
{
	struct fs_super s, again;
	struct fs_super_disk d, same;

	if (fs_super_decode(input, &s))
		return;
	FUZZ_ASSERT(fs_name_hash(&s, kv_slice_str("name")) >= FS_HASH_MIN);
	fs_super_encode(&s, &d);
	FUZZ_OK(fs_super_decode(kv_slice(&d, sizeof(d)), &again));
	fs_super_encode(&again, &same);
	FUZZ_ASSERT(!memcmp(&d, &same, sizeof(d)));
}

static void run(struct kv_slice input)
{
	switch (fuzz_take(&input, 1) % 4) {
	case 0:
		run_key(input);
		break;
	case 1:
		run_attr(input);
		break;
	case 2:
		run_bucket(input);
		break;
	default:
		run_super(input);
	}
}

static void emit_as(fuzz_emit_fn *emit, void *arg, uint8_t which, struct kv_slice s)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;

	FUZZ_OK(kv_buf_append_byte(&b, which));
	FUZZ_OK(kv_buf_append_slice(&b, s));
	emit(arg, kv_buf_slice(&b));
}

static void emit_attr(fuzz_emit_fn *emit, void *arg, const struct fs_attr *a, const char *inline_bytes)
{
	static const uint8_t ino[7] = { 20 };
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct fs_attr_disk d;

	fs_attr_encode(a, &d);
	FUZZ_OK(kv_buf_append(&b, ino, sizeof(ino)));
	FUZZ_OK(kv_buf_append(&b, &d, sizeof(d)));
	FUZZ_OK(kv_buf_append_slice(&b, kv_slice_str(inline_bytes)));
	emit_as(emit, arg, 1, kv_buf_slice(&b));
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	static const struct fs_key_parts parts[] = {
		{ .kind = FS_KEY_SUPER, .number = FS_SUPER_BLOCK },
		{ .kind = FS_KEY_ATTR, .ino = 20 },
		{ .kind = FS_KEY_DIRENT, .ino = 20, .number = 12345 },
		{ .kind = FS_KEY_XATTR, .ino = 20, .name = { "user.a", 6 } },
		{ .kind = FS_KEY_EXTENT, .ino = 20, .number = 4096 },
		{ .kind = FS_KEY_ORPHAN, .ino = 20 },
	};
	static const struct fs_attr file = { .mode = S_IFREG | 0644, .nlink = 1, .size = 5000,
					     .bytes = 5000, .extents = 1, .parent = 1 };
	static const struct fs_attr symlink = { .mode = S_IFLNK | 0777, .nlink = 1, .size = 6,
						.parent = 1, .flags = FS_ATTR_INLINE };
	static const struct fs_slot slots[] = {
		{ 0, DT_REG, 20, { "name", 4 } },
		{ 3, DT_DIR, 21, { "other", 5 } },
	};
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct fs_super super = { .hash_bits = FS_HASH_BITS, .label = "label" };
	struct fs_super_disk super_disk;

	for (size_t i = 0; i < KV_ARRAY_LEN(parts); i++) {
		struct fs_key key = key_make(&parts[i]);

		emit_as(emit, arg, 0, fs_key_slice(&key));
	}
	emit_attr(emit, arg, &file, "");
	emit_attr(emit, arg, &symlink, "target");
	for (size_t i = 0; i < KV_ARRAY_LEN(slots); i++)
		FUZZ_OK(fs_slot_append(&b, &slots[i]));
	emit_as(emit, arg, 2, kv_buf_slice(&b));
	fs_super_encode(&super, &super_disk);
	emit_as(emit, arg, 3, kv_slice(&super_disk, sizeof(super_disk)));
}

const struct fuzz_target fuzz_record = { "record", run, seeds };
