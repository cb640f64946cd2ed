#include "fs/record.h"

#include <dirent.h>

#include "fs/siphash.h"
#include "kv/assert.h"

#define NS_PER_S 1000000000u
#define MODE_KNOWN (S_IFMT | 07777)

uint8_t fs_type_of_mode(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return DT_REG;
	case S_IFDIR:
		return DT_DIR;
	case S_IFLNK:
		return DT_LNK;
	case S_IFCHR:
		return DT_CHR;
	case S_IFBLK:
		return DT_BLK;
	case S_IFIFO:
		return DT_FIFO;
	case S_IFSOCK:
		return DT_SOCK;
	default:
		return DT_UNKNOWN;
	}
}

static bool ino_ok(fs_ino ino)
{
	return ino && ino < FS_INO_MAX;
}

/* --- ATTR ------------------------------------------------------------------------- */

static bool time_decode(const struct fs_time_disk *d, struct timespec *out)
{
	uint32_t ns = kv_le32_get(d->ns);

	out->tv_sec = (time_t)(int64_t)kv_le64_get(d->s);
	out->tv_nsec = (long)ns;
	return ns < NS_PER_S;
}

static struct fs_time_disk time_encode(const struct timespec *t)
{
	KV_ASSERT(t->tv_nsec >= 0 && t->tv_nsec < (long)NS_PER_S);
	return (struct fs_time_disk){
		.s = kv_le64((uint64_t)(int64_t)t->tv_sec),
		.ns = kv_le32((uint32_t)t->tv_nsec),
	};
}

/* Bytes behind the struct are there when the flags say so, and are the whole file then. */
static bool inline_ok(const struct fs_attr *a, struct kv_slice inline_bytes)
{
	if (!(a->flags & FS_ATTR_INLINE))
		return !S_ISLNK(a->mode) && !inline_bytes.bytes;
	if (inline_bytes.bytes != a->size || a->extents || a->bytes)
		return false;
	if (S_ISLNK(a->mode))
		return a->size && a->size <= FS_TARGET_BYTES_MAX &&
		       !memchr(inline_bytes.data, 0, inline_bytes.bytes);
	return S_ISREG(a->mode);
}

bool fs_attr_decode(fs_ino ino, struct kv_slice value, struct fs_attr *out,
		    struct kv_slice *out_inline)
{
	struct fs_attr_disk d;
	struct fs_attr a;
	struct kv_slice inline_bytes;
	bool times_ok;

	if (!ino_ok(ino) || value.bytes < sizeof(d))
		return false;
	memcpy(&d, value.data, sizeof(d));
	inline_bytes = kv_slice((const uint8_t *)value.data + sizeof(d), value.bytes - sizeof(d));
	a = (struct fs_attr){
		.ino = ino,
		.mode = kv_le32_get(d.mode),
		.nlink = kv_le32_get(d.nlink),
		.uid = kv_le32_get(d.uid),
		.gid = kv_le32_get(d.gid),
		.size = kv_le64_get(d.size),
		.bytes = kv_le64_get(d.bytes),
		.extents = kv_le64_get(d.extents),
		.entries = kv_le64_get(d.entries),
		.parent = kv_le64_get(d.parent),
		.rdev = kv_le64_get(d.rdev),
		.flags = kv_le32_get(d.flags),
		.generation = kv_le32_get(d.generation),
	};
	times_ok = time_decode(&d.atime, &a.atime) && time_decode(&d.mtime, &a.mtime) &&
		   time_decode(&d.ctime, &a.ctime) && time_decode(&d.btime, &a.btime);
	if (!times_ok || fs_type_of_mode(a.mode) == DT_UNKNOWN || a.mode & ~(uint32_t)MODE_KNOWN)
		return false;
	if (a.nlink > FS_LINKS_MAX || a.size > FS_FILE_BYTES_MAX || !ino_ok(a.parent))
		return false;
	if (a.bytes > FS_FILE_BYTES_MAX || a.extents > a.bytes)
		return false;
	if (a.entries && !S_ISDIR(a.mode))
		return false;
	if ((a.extents || a.bytes) && !S_ISREG(a.mode))
		return false;
	if (!inline_ok(&a, inline_bytes))
		return false;
	*out = a;
	*out_inline = inline_bytes;
	return true;
}

void fs_attr_encode(const struct fs_attr *a, struct fs_attr_disk *out)
{
	memset(out, 0, sizeof(*out));
	out->mode = kv_le32(a->mode);
	out->nlink = kv_le32(a->nlink);
	out->uid = kv_le32(a->uid);
	out->gid = kv_le32(a->gid);
	out->size = kv_le64(a->size);
	out->bytes = kv_le64(a->bytes);
	out->extents = kv_le64(a->extents);
	out->entries = kv_le64(a->entries);
	out->parent = kv_le64(a->parent);
	out->rdev = kv_le64(a->rdev);
	out->flags = kv_le32(a->flags);
	out->generation = kv_le32(a->generation);
	out->atime = time_encode(&a->atime);
	out->mtime = time_encode(&a->mtime);
	out->ctime = time_encode(&a->ctime);
	out->btime = time_encode(&a->btime);
}

/* --- DIRENT ------------------------------------------------------------------------- */

static bool type_ok(uint8_t type)
{
	switch (type) {
	case DT_REG:
	case DT_DIR:
	case DT_LNK:
	case DT_CHR:
	case DT_BLK:
	case DT_FIFO:
	case DT_SOCK:
		return true;
	default:
		return false;
	}
}

static bool name_ok(struct kv_slice name)
{
	if (!name.bytes || memchr(name.data, '/', name.bytes) || memchr(name.data, 0, name.bytes))
		return false;
	return !kv_slice_eq(name, kv_slice(".", 1)) && !kv_slice_eq(name, kv_slice("..", 2));
}

bool fs_slot_take(struct kv_slice *bucket, struct fs_slot *out)
{
	struct fs_dirent_disk d;
	struct kv_slice rest = *bucket, head, name;

	if (!kv_take_bytes(&rest, sizeof(d), &head))
		return false;
	memcpy(&d, head.data, sizeof(d));
	if (!kv_take_bytes(&rest, d.name_bytes, &name))
		return false;
	if (d.slot >= FS_SLOTS_MAX || !type_ok(d.type) || !ino_ok(kv_le64_get(d.ino)) ||
	    !name_ok(name))
		return false;
	*out = (struct fs_slot){ d.slot, d.type, kv_le64_get(d.ino), name };
	*bucket = rest;
	return true;
}

int fs_slot_append(struct kv_buf *bucket, const struct fs_slot *s)
{
	struct fs_dirent_disk d = {
		.slot = s->slot,
		.type = s->type,
		.name_bytes = (uint8_t)s->name.bytes,
		.ino = kv_le64(s->ino),
	};

	KV_ASSERT(s->name.bytes <= FS_NAME_BYTES_MAX && name_ok(s->name));
	KV_ASSERT(s->slot < FS_SLOTS_MAX && type_ok(s->type) && ino_ok(s->ino));
	KV_TRY(kv_buf_reserve(bucket, sizeof(d) + s->name.bytes));
	KV_TRY(kv_buf_append(bucket, &d, sizeof(d)));
	return kv_buf_append_slice(bucket, s->name);
}

/* --- SUPER ---------------------------------------------------------------------------- */

int fs_super_decode(struct kv_slice value, struct fs_super *out)
{
	struct fs_super_disk d;
	struct fs_super s;

	if (value.bytes < sizeof(d.magic) ||
	    memcmp(value.data, FS_SUPER_MAGIC_TEXT, sizeof(d.magic)) != 0)
		return KV_E_not_a_store;
	if (value.bytes < sizeof(d))
		return KV_E_bad_record;
	memcpy(&d, value.data, sizeof(d));
	if (kv_le32_get(d.version) > FS_VERSION)
		return KV_E_newer_format;
	s = (struct fs_super){
		.features_required = kv_le64_get(d.features_required),
		.features_write = kv_le64_get(d.features_write),
		.features_ignorable = kv_le64_get(d.features_ignorable),
		.hash_bits = kv_le32_get(d.hash_bits),
		.created_s = (int64_t)kv_le64_get(d.created_s),
	};
	if (s.features_required & ~FS_FEATURES_REQUIRED_KNOWN)
		return KV_E_newer_format;
	if (value.bytes != sizeof(d) || !kv_le32_get(d.version))
		return KV_E_bad_record;
	if (!s.hash_bits || s.hash_bits > FS_HASH_BITS)
		return KV_E_bad_record;
	memcpy(s.uuid, d.uuid, sizeof(s.uuid));
	memcpy(s.hash_key, d.hash_key, sizeof(s.hash_key));
	memcpy(s.label, d.label, sizeof(d.label));	/* the byte behind stays 0 */
	*out = s;
	return 0;
}

void fs_super_encode(const struct fs_super *s, struct fs_super_disk *out)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->magic, FS_SUPER_MAGIC_TEXT, sizeof(out->magic));
	out->version = kv_le32(FS_VERSION);
	out->hash_bits = kv_le32(s->hash_bits);
	out->features_required = kv_le64(s->features_required);
	out->features_write = kv_le64(s->features_write);
	out->features_ignorable = kv_le64(s->features_ignorable);
	memcpy(out->uuid, s->uuid, sizeof(out->uuid));
	memcpy(out->hash_key, s->hash_key, sizeof(out->hash_key));
	memcpy(out->label, s->label, strnlen(s->label, sizeof(out->label)));
	out->created_s = kv_le64((uint64_t)s->created_s);
}

uint64_t fs_name_hash(const struct fs_super *s, struct kv_slice name)
{
	uint64_t hash = fs_siphash(s->hash_key, name) & (((uint64_t)1 << s->hash_bits) - 1);

	return KV_MAX(hash, FS_HASH_MIN);
}
