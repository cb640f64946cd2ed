/*
 * Every struct of the engine on disk. man/kvfs-format.5 tells the same in
 * words. Numbers that have reached a disk are never used for anything else.
 *
 * A store is a directory:
 *	CURRENT		struct kv_root: which manifest holds; replaced by rename
 *	LOCK		empty; carries the advisory lock
 *	NNNNNN.manifest	chunks of edits: which files make up the store
 *	NNNNNN.journal	chunks of batches, newest data
 *	NNNNNN.sst	sorted tables
 *	NNNNNN.vlog	value-log segments
 * NNNNNN is one sequence of numbers for all kinds, at least 6 decimal digits;
 * a number is never used twice. All but CURRENT and LOCK begin with struct kv_file_header.
 */
#ifndef KV_FORMAT_H
#define KV_FORMAT_H

#include "kv/coding.h"

typedef uint64_t kv_seqno;	/* of one operation; 56 bits; 0 is before the first */
typedef uint64_t kv_fileno;	/* 0 is none */

#define KV_SEQNO_MAX (((uint64_t)1 << 56) - 1)

/* --- whole store -------------------------------------------------------------- */

#define KV_FORMAT_VERSION 1
#define KV_STORE_ID_BYTES 16

/*
 * A reader that doesn't know a bit of features_required refuses the store; of
 * features_write, opens it read-only only; of features_ignorable, goes on.
 */
#define KV_FEATURES_REQUIRED_KNOWN KV_FEATURE_NAMED_SNAPSHOTS
#define KV_FEATURES_WRITE_KNOWN ((uint64_t)0)

/* Required, as long as the manifest tells of named snapshots: who doesn't know them would drop what they see. */
#define KV_FEATURE_NAMED_SNAPSHOTS ((uint64_t)1 << 0)

#define KV_ROOT_MAGIC "kvfsroot"

struct kv_root {
	uint8_t magic[8];
	le64 checksum;		/* XXH3-64 of all after this field */
	le32 version;		/* KV_FORMAT_VERSION */
	le32 reserved;		/* 0 */
	le64 manifest_no;
	uint8_t store_id[KV_STORE_ID_BYTES]; /* drawn at creation; in every file */
	le64 features_required;
	le64 features_write;
	le64 features_ignorable;
	uint8_t reserved2[56];	/* 0 */
};
KV_DISK_SIZE(kv_root, 128);
KV_DISK_OFFSET(kv_root, store_id, 32);

enum kv_file_kind {
	KV_FILE_MANIFEST = 1,
	KV_FILE_JOURNAL = 2,
	KV_FILE_TABLE = 3,
	KV_FILE_SEGMENT = 4,
};

#define KV_FILE_MAGIC "kvfsfile"

struct kv_file_header {
	uint8_t magic[8];
	le64 checksum;		/* XXH3-64 of all after this field */
	le32 version;		/* of this kind's format: 1 */
	le32 kind;		/* enum kv_file_kind */
	le64 number;
	uint8_t store_id[KV_STORE_ID_BYTES];
	le64 features_required;	/* of this file: 0 */
	uint8_t reserved[8];	/* 0 */
};
KV_DISK_SIZE(kv_file_header, 64);
KV_DISK_OFFSET(kv_file_header, store_id, 32);

/* --- journal and manifest: chunks --------------------------------------------------- */

#define KV_CHUNK_MAGIC 0x6b6e4843u	/* "CHnk"; never 0, so that zeros end a journal */
#define KV_CHUNK_ALIGN 8
#define KV_CHUNK_PAYLOAD_MAX (96u << 20)

enum kv_chunk_type {
	KV_CHUNK_BEGIN = 1,	/* first of a journal: struct kv_journal_begin */
	KV_CHUNK_BATCHES = 2,	/* operations of one or more batches, see batch.h */
	KV_CHUNK_MARK = 3,	/* no payload: tells how far was promised */
	KV_CHUNK_EDIT = 4,	/* manifest: one version edit, see edit.h */
	KV_CHUNK_END = 5,	/* no payload: the file was closed in order, nothing follows */
	/* 6 .. 9 are kept for transactions prepared before they commit */
};

struct kv_chunk_header {
	le32 magic;
	le32 payload_bytes;	/* follows; then zeros up to a multiple of KV_CHUNK_ALIGN */
	le64 checksum;		/* XXH3-64 of the header after this field and the payload;
				   its seed is XXH3-64, seeded with the file's number, of
				   the store's id */
	le64 promised;		/* bytes of this file known durable when this was written */
	le64 seqno;		/* of the first operation; manifest: number of the edit */
	le32 count;		/* operations */
	le32 type;		/* enum kv_chunk_type */
};
KV_DISK_SIZE(kv_chunk_header, 40);

struct kv_journal_begin {
	le64 previous_no;	/* journal before this one, 0 for none */
	le64 previous_bytes;	/* where its last chunk ended */
	le64 seqno;		/* of the last operation before this journal; in the first that is needed,
				   tables may have more, from a run that was ingested while it was empty */
	le64 reserved;
};
KV_DISK_SIZE(kv_journal_begin, 32);

/* --- values in segments ----------------------------------------------------------------- */

enum kv_codec {
	KV_CODEC_NONE = 0,
	KV_CODEC_ZSTD = 1,	/* dense: what is written once and read from the cache */
	KV_CODEC_LZ4 = 2,	/* fast: what is written or read at the speed of its caller */
	KV_CODEC_END
};

#define KV_RECORD_MAGIC 0x43526c76u	/* "vlRC" */
#define KV_RECORD_ALIGN 8

struct kv_vlog_record {
	le32 magic;
	le32 key_bytes;		/* the key follows, then the stored value, then zeros to KV_RECORD_ALIGN */
	le64 checksum;		/* XXH3-64, seeded with the segment's number, of the header after
				   this field and the key */
	le64 seqno;		/* of the put that wrote it */
	le64 value_checksum;	/* XXH3-64 of the stored bytes */
	le32 stored_bytes;
	le32 raw_bytes;		/* after decompression */
	le32 codec;		/* enum kv_codec */
	le32 reserved;		/* 0 */
};
KV_DISK_SIZE(kv_vlog_record, 48);

/* What a table or a journal holds in place of such a value. */
struct kv_vptr_disk {
	le64 segment_no;
	le64 offset;		/* of the record in the segment */
	le64 value_checksum;	/* as in the record */
	le32 stored_bytes;
	le32 raw_bytes;
	le32 part_offset;	/* of the raw value, these bytes are meant */
	le32 part_bytes;
	le16 key_bytes;		/* of the record, so that the value is found without reading it */
	uint8_t codec;
	uint8_t reserved[5];	/* 0 */
};
KV_DISK_SIZE(kv_vptr_disk, 48);

/* --- keys of the engine ------------------------------------------------------------------- */

/* Kind of an operation, in batches and behind every key in tables. */
enum kv_kind {
	KV_KIND_DELETE = 0,
	KV_KIND_PUT = 1,	/* value inline */
	KV_KIND_PUT_PTR = 2,	/* value is a struct kv_vptr_disk */
	KV_KIND_DELETE_RANGE = 3, /* key: begin; value: end */
	KV_KIND_PUT_PACKED = 4,	/* value is a struct kv_packed_disk, then what it tells of */
	KV_KIND_MAX = 4,
	/* 5 .. 15 are kept: merge, single delete, delete that knows its size, ... */
};

/* A value that is inline and compressed. */
struct kv_packed_disk {
	le32 raw_bytes;
	uint8_t codec;		/* enum kv_codec, not NONE */
	uint8_t reserved[3];	/* 0 */
};
KV_DISK_SIZE(kv_packed_disk, 8);

/* --- tables -------------------------------------------------------------------------------- */

/* Behind every block. */
struct kv_block_trailer {
	le64 checksum;		/* XXH3-64, seeded with number ^ offset << 20 of the block, of the
				   stored bytes and the rest of this trailer */
	le32 raw_bytes;
	uint8_t codec;
	uint8_t reserved[3];
};
KV_DISK_SIZE(kv_block_trailer, 16);

struct kv_block_handle_disk {
	le64 offset;
	le32 stored_bytes;	/* without the trailer */
	le32 reserved;
};
KV_DISK_SIZE(kv_block_handle_disk, 16);

/*
 * The properties of a table say the same as the manifest does of it (struct kv_sst_meta), so that
 * a manifest can be rebuilt. Numbers are varints; a reader passes over numbers it doesn't know.
 */
enum kv_table_property {
	KV_PROPERTY_ENTRIES = 1,	/* point entries, deletes too */
	KV_PROPERTY_DELETES = 2,
	KV_PROPERTY_RANGE_DELETES = 3,
	KV_PROPERTY_RAW_BYTES = 4,	/* internal keys and inline values */
	KV_PROPERTY_SEQNO_MIN = 5,
	KV_PROPERTY_SEQNO_MAX = 6,
	KV_PROPERTY_SMALLEST = 7,	/* internal keys */
	KV_PROPERTY_LARGEST = 8,
	KV_PROPERTY_REFS = 9,		/* {varint segment, varint bytes}, ascending */
};

#define KV_TABLE_MAGIC "kvfs_sst"

/* The last bytes of a table. stored_bytes 0: no such block. */
struct kv_table_footer {
	struct kv_block_handle_disk index;
	struct kv_block_handle_disk filter;
	struct kv_block_handle_disk range_deletes;
	struct kv_block_handle_disk properties;
	uint8_t reserved[32];
	le32 version;		/* 1 */
	le32 reserved2;
	le64 number;		/* the table's own */
	le64 checksum;		/* XXH3-64 of all before this field */
	uint8_t magic[8];
};
KV_DISK_SIZE(kv_table_footer, 128);

#endif
