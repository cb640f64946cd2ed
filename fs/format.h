/*
 * Every value and key of the filesystem as it lies in the store. man/kvfs-format.5
 * tells the same in words. Values are made of le32 and le64, keys of big-endian
 * numbers, so that the store's order is by kind, then inode, then what follows.
 *
 *	key				value
 *	SUPER | item			see enum fs_super_item; one byte each
 *	ATTR | ino			struct fs_attr_disk, then inline bytes (target of a symbolic link)
 *	DIRENT | ino | hash		bucket: one or more struct fs_dirent_disk, each with its name, slots ascending
 *	XATTR | ino | name		value of the attribute
 *	EXTENT | ino | file offset	bytes of the file; never cross a multiple of FS_EXTENT_BYTES_MAX
 *	ORPHAN | ino			empty; no directory names the inode any more
 */
#ifndef FS_FORMAT_H
#define FS_FORMAT_H

#include "kv/coding.h"

typedef uint64_t fs_ino;	/* below FS_INO_MAX; 0 is none */

#define FS_INO_ROOT ((fs_ino)1)
#define FS_INO_FIRST ((fs_ino)16)	/* 2 .. 15 are kept */
#define FS_INO_MAX ((fs_ino)1 << 48)	/* the top 16 bits of a node id name a snapshot */

#define FS_NAME_BYTES_MAX 255
#define FS_TARGET_BYTES_MAX 4095	/* of a symbolic link */
#define FS_LINKS_MAX 0x7fffffffu
#define FS_FILE_BYTES_MAX ((uint64_t)INT64_MAX)
#define FS_XATTR_NAME_BYTES_MAX 255
#define FS_XATTR_BYTES_MAX 65536
#define FS_EXTENT_BYTES_MAX ((uint64_t)128 << 10)
#define FS_BLOCK_BYTES 4096		/* what statfs counts in */

/* --- kinds of keys --------------------------------------------------------------- */

enum fs_key_kind {
	FS_KEY_SUPER = 0x01,
	FS_KEY_ATTR = 0x10,
	FS_KEY_DIRENT = 0x20,
	FS_KEY_XATTR = 0x30,
	FS_KEY_EXTENT = 0x40,
	FS_KEY_ORPHAN = 0x50,
	/* kept for: */
	FS_KEY_LOGGED_OP = 0x60,	/* multi-step work that a mount resumes */
	FS_KEY_SNAPSHOT = 0x70,
	FS_KEY_QUOTA = 0x78,
};

/* --- SUPER ------------------------------------------------------------------------- */

enum fs_super_item {
	FS_SUPER_BLOCK = 1,	/* struct fs_super_disk */
	FS_SUPER_INO_NEXT = 2,	/* le64: numbers from here on were never given away */
	FS_SUPER_BYTES_USED = 3, /* counter, 8 bytes: sum of `bytes` of all attributes */
	FS_SUPER_INODES = 4,	/* counter, 8 bytes: number of attributes */
};

#define FS_SUPER_MAGIC_TEXT "kvfs-fs1"
#define FS_VERSION 1
#define FS_LABEL_BYTES_MAX 64
/* As with the engine's: required to read, required to write, ignorable. */
#define FS_FEATURES_REQUIRED_KNOWN ((uint64_t)0)
#define FS_FEATURES_WRITE_KNOWN ((uint64_t)0)

struct fs_super_disk {
	uint8_t magic[8];
	le32 version;
	le32 hash_bits;		/* of a name's hash that are used: 59; less only in tests of collisions */
	le64 features_required;
	le64 features_write;
	le64 features_ignorable;
	uint8_t uuid[16];
	uint8_t hash_key[16];	/* of the SipHash of names */
	uint8_t label[FS_LABEL_BYTES_MAX]; /* UTF-8, padded with zeros */
	le64 created_s;
	uint8_t reserved[112];
};
KV_DISK_SIZE(fs_super_disk, 256);

/* --- ATTR ---------------------------------------------------------------------------- */

struct fs_time_disk {
	le64 s;			/* two's complement, since 1970 */
	le32 ns;
};
KV_DISK_SIZE(fs_time_disk, 12);

enum fs_attr_flag {
	FS_ATTR_XATTRS = 1 << 0,	/* there may be XATTR keys; without it there are none */
	FS_ATTR_ACL = 1 << 1,		/* there may be a POSIX ACL among them */
	FS_ATTR_CAPS = 1 << 2,		/* there may be security.capability among them */
	FS_ATTR_INLINE = 1 << 3,	/* the file's bytes follow the struct (symbolic link: always) */
	/* 8 .. 15 are kept for chattr's: immutable, append-only, nodump, noatime */
};

struct fs_attr_disk {
	le32 mode;		/* type and permissions as in st_mode */
	le32 nlink;
	le32 uid;
	le32 gid;
	le64 size;
	le64 bytes;		/* allocated: sum of the lengths of its extents */
	le64 extents;		/* number of EXTENT keys */
	le64 entries;		/* directory: names in it */
	le64 parent;		/* directory: the one that names it; else one that did when it was made or moved last */
	le64 rdev;
	le32 flags;		/* enum fs_attr_flag */
	le32 generation;
	struct fs_time_disk atime, mtime, ctime, btime;
	le32 project;		/* 0; kept for quotas */
	uint8_t reserved[20];
};
KV_DISK_SIZE(fs_attr_disk, 144);

/* --- DIRENT ----------------------------------------------------------------------------- */

#define FS_HASH_BITS 59
#define FS_SLOT_BITS 4
#define FS_SLOTS_MAX (1u << FS_SLOT_BITS)	/* names of one hash: more are refused with ENOSPC */
/*
 * Position of an entry: hash << 4 | slot. Hashes below FS_HASH_MIN are moved up, since
 * small cookies stand for the start (0), after "." (1) and after ".." (2).
 */
#define FS_HASH_MIN 1u

struct fs_dirent_disk {
	uint8_t slot;
	uint8_t type;		/* DT_* */
	uint8_t name_bytes;	/* 1 .. 255; the name follows */
	uint8_t reserved;
	le64 ino;
};
KV_DISK_SIZE(fs_dirent_disk, 12);

#endif
