/*
 * Value-log segments: append-only files of records {header, key, stored value},
 * read through pointers. A segment is written by one thread at a time, and
 * read by any number while it grows.
 */
#ifndef KV_VLOG_H
#define KV_VLOG_H

#include "kv/buf.h"
#include "kv/store.h"

/* A decoded struct kv_vptr_disk. */
struct kv_vptr {
	kv_fileno segment_no;
	uint64_t offset;
	uint64_t value_checksum;
	uint32_t stored_bytes, raw_bytes;
	uint32_t part_offset, part_bytes;
	uint16_t key_bytes;
	uint8_t codec;
};

void kv_vptr_encode(const struct kv_vptr *p, struct kv_vptr_disk *out);
/* KV_E_bad_record when the bytes are no pointer (length, part outside of the value, unknown codec, ...). */
int kv_vptr_decode(struct kv_slice s, struct kv_vptr *out) KV_NODISCARD;
/* Bytes of the segment that belong to the record p points to, padding included. */
uint64_t kv_vptr_record_bytes(const struct kv_vptr *p);
/* Its share of them: all when the part is the whole value, else in proportion, rounded up. */
uint64_t kv_vptr_referenced_bytes(const struct kv_vptr *p);

/* --- writing ------------------------------------------------------------------------------ */

struct kv_segment_writer;

/* Makes the file (-EEXIST when it is there) with space for allocate_bytes, synced, and syncs the directory. */
int kv_segment_create(struct kv_store *s, kv_fileno number, uint64_t allocate_bytes,
		      struct kv_segment_writer **out) KV_NODISCARD;
void kv_segment_writer_free(struct kv_segment_writer *w);
/* Space for as many more bytes, the one place where -ENOSPC is harmless. */
int kv_segment_reserve(struct kv_segment_writer *w, uint64_t bytes) KV_NODISCARD;

struct kv_segment_put {
	struct kv_slice key;
	kv_seqno seqno;
	struct kv_slice stored;		/* compressed already, if that pays */
	uint32_t raw_bytes;
	enum kv_codec codec;
	uint64_t value_checksum;	/* kv_checksum(stored, 0) */
};

/*
 * Appends the records with as few writes as possible; out_ptrs gets a pointer
 * to each. Starts writing back what has gathered, and waits when more than the bound of
 * dirty bytes has. After a failure the segment is poisoned.
 */
int kv_segment_append(struct kv_segment_writer *w, const struct kv_segment_put *puts,
		      size_t n, struct kv_vptr *out_ptrs) KV_NODISCARD;
/* All appends that returned before are durable. Beside an append; by many threads. */
int kv_segment_sync(struct kv_segment_writer *w) KV_NODISCARD;
/* Gives back what was allocated beyond the end, and syncs; no append may follow. */
int kv_segment_seal(struct kv_segment_writer *w) KV_NODISCARD;
uint64_t kv_segment_bytes(const struct kv_segment_writer *w);
uint64_t kv_segment_synced(const struct kv_segment_writer *w);
kv_fileno kv_segment_number(const struct kv_segment_writer *w);

/* --- reading --------------------------------------------------------------------------------- */

/*
 * What a reader that goes through keys in order has read ahead, so that values come out of few
 * large reads. Each flush has written its values in the order of keys: so the reader meets several runs of
 * them, each of which goes forward. All zero is an empty one.
 */
struct kv_vlog_ahead {
	struct kv_vlog_window {
		kv_fileno segment_no;	/* 0: not used yet */
		uint64_t offset;	/* of bytes, in the segment */
		struct kv_buf bytes;
		uint64_t end;		/* of the value that was read last */
		size_t ahead_bytes;	/* to be read at once; 0: the run may end here */
		uint64_t used;
	} windows[8];
	uint64_t clock;
};

void kv_vlog_ahead_done(struct kv_vlog_ahead *a);

/*
 * Reads and verifies the part of the value that p means, and appends it to out.
 * The file is opened already (filecache.h). ahead: NULL, or the reader's own; all values that it
 * reads were there when it was empty. KV_E_bad_sum, KV_E_short_file, KV_E_bad_compression are
 * reported with the segment's name.
 */
int kv_vlog_read(struct kv_store *s, struct kv_env_file *segment, const struct kv_vptr *p,
		 struct kv_vlog_ahead *ahead, struct kv_buf *out) KV_NODISCARD;
/*
 * Appends the record that p points to (header, key, value as stored) to out, checked against p
 * and its own sums. *out_seqno: of the put that wrote it. KV_E_corrupt (not reported) when it isn't
 * what p says, or an error of the env; out is as it was then.
 */
int kv_vlog_read_record(struct kv_store *s, struct kv_env_file *segment, const struct kv_vptr *p,
			struct kv_buf *out, kv_seqno *out_seqno) KV_NODISCARD;
/* Is the value that p points to there and whole? 0, KV_E_corrupt (not reported), or an error of the env. */
int kv_vlog_check(struct kv_store *s, struct kv_env_file *segment, const struct kv_vptr *p)
	KV_NODISCARD;

/* One record met by a scan. */
struct kv_vlog_entry {
	uint64_t offset;
	struct kv_slice key;
	kv_seqno seqno;
	struct kv_vptr ptr;		/* to the whole value */
	int value_error;		/* 0, or KV_E_bad_sum: the value is damaged */
};
typedef int kv_vlog_entry_fn(void *arg, const struct kv_vlog_entry *e);
/*
 * Calls fn for every record in order, values verified. *out_end: where the last
 * valid header's record ends. A header that is not valid ends the scan.
 */
int kv_vlog_scan(struct kv_store *s, struct kv_env_file *segment, kv_fileno number,
		 kv_vlog_entry_fn *fn, void *arg, uint64_t *out_end) KV_NODISCARD;

#endif
