/*
 * One change to the set of files that make up the store: what a chunk of the
 * manifest holds. Encoded as fields {varint tag, prefixed value}, in any
 * order. A reader refuses a tag it doesn't know, unless its lowest bit is set
 * (ignorable tags are odd).
 */
#ifndef KV_EDIT_H
#define KV_EDIT_H

#include "kv/kv.h"
#include "kv/sst.h"

enum kv_edit_tag {
	KV_TAG_NEXT_FILENO = 2,		/* varint: numbers below are taken */
	KV_TAG_JOURNAL_MIN = 4,		/* varint: journals below are not needed */
	KV_TAG_SEQNO = 6,		/* varint: last one in tables */
	KV_TAG_TABLE_ADD = 8,		/* level, then struct kv_sst_meta field by field */
	KV_TAG_TABLE_DELETE = 10,	/* level, number */
	KV_TAG_SEGMENT_ADD = 12,	/* number: may be referred to from now on */
	KV_TAG_SEGMENT_SEAL = 14,	/* number, bytes: nothing is appended any more */
	KV_TAG_SEGMENT_DELETE = 16,	/* number */
	KV_TAG_SNAPSHOT = 18,		/* the whole state follows in this edit: first of a manifest */
	/* With these, the root has KV_FEATURE_NAMED_SNAPSHOTS. */
	KV_TAG_NAMED_SNAPSHOT_ADD = 20,	/* name (prefixed), seqno, when it was made */
	KV_TAG_NAMED_SNAPSHOT_DELETE = 22, /* name (all of the value) */
	KV_TAG_COMPACT_POINTER = 25,	/* ignorable: level, user key where the next compaction begins */
};

struct kv_edit_table {
	int level;
	struct kv_sst_meta meta;	/* of a deletion only the number */
};

struct kv_edit_segment {
	kv_fileno number;
	uint64_t bytes;			/* SEAL: size */
};

/* Growing arrays; all zero is an empty edit. */
struct kv_edit {
	bool is_snapshot;
	bool has_next_fileno, has_journal_min, has_seqno;
	kv_fileno next_fileno, journal_min;
	kv_seqno seqno;
	struct kv_edit_table *adds, *deletes;
	size_t add_count, delete_count;
	struct kv_edit_segment *segment_adds, *segment_seals, *segment_deletes;
	size_t segment_add_count, segment_seal_count, segment_delete_count;
	struct kv_snapshot_info *snapshot_adds, *snapshot_deletes; /* of a deletion only the name */
	size_t snapshot_add_count, snapshot_delete_count;
};

void kv_edit_done(struct kv_edit *e);
/* Copies the meta. */
int kv_edit_add_table(struct kv_edit *e, int level, const struct kv_sst_meta *meta) KV_NODISCARD;
int kv_edit_delete_table(struct kv_edit *e, int level, kv_fileno number) KV_NODISCARD;
int kv_edit_add_segment(struct kv_edit *e, kv_fileno number) KV_NODISCARD;
int kv_edit_seal_segment(struct kv_edit *e, kv_fileno number, uint64_t bytes) KV_NODISCARD;
int kv_edit_delete_segment(struct kv_edit *e, kv_fileno number) KV_NODISCARD;
int kv_edit_add_snapshot(struct kv_edit *e, const struct kv_snapshot_info *info) KV_NODISCARD;
/* The name must be a good one: kv_snapshot_name_is_good(). */
int kv_edit_delete_snapshot(struct kv_edit *e, const char *name) KV_NODISCARD;
/* Is it neither empty nor too long? The bytes may be any. */
bool kv_snapshot_name_is_good(const char *name);

int kv_edit_encode(const struct kv_edit *e, struct kv_buf *out) KV_NODISCARD;
/* KV_E_bad_record, KV_E_newer_format (an unknown tag). *out must be all zero; done it also after a failure. */
int kv_edit_decode(struct kv_slice s, struct kv_edit *out) KV_NODISCARD;

#endif
