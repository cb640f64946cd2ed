/*
 * The unit of atomicity: while it is being built, and as the journal holds it.
 *
 * Building: a list of what the caller asked for. kv_write() encodes it (write_prepare.c),
 * since only the commit knows where bulk values went, what a part refers to and
 * what a counter has become.
 *
 * Encoded: operations in the order in which they take effect,
 *	kind byte (enum kv_kind), varint key length, key, varint value length, value
 * The i-th one of a chunk has the chunk's seqno + i. A chunk of type
 * KV_CHUNK_BATCHES holds the operations of all batches of its group, one after
 * another; its checksum makes the group, and so each batch, all or nothing.
 */
#ifndef KV_BATCH_H
#define KV_BATCH_H

#include "kv/arena.h"
#include "kv/ikey.h"
#include "kv/kv.h"

/*
 * Operations of one batch. With it and KV_BATCH_BYTES_MAX, a batch is known to fit
 * into one chunk: an operation adds at most 8 bytes to its key and value.
 */
#define KV_BATCH_OPS_MAX (1u << 20)

enum kv_ask {
	KV_ASK_PUT,
	KV_ASK_DELETE,
	KV_ASK_DELETE_RANGE,
	KV_ASK_PUT_PART,
	KV_ASK_ADD,
};

struct kv_batch_op {
	enum kv_ask ask;
	enum kv_hint hint;		/* PUT */
	struct kv_slice key;		/* DELETE_RANGE: begin. Copied to the arena */
	struct kv_slice value;		/* PUT: in the arena or borrowed; DELETE_RANGE: end; PUT_PART: from_key */
	uint32_t part_offset, part_bytes; /* PUT_PART */
	int64_t delta;			/* ADD */
};

struct kv_batch {
	int error;			/* first failure while building */
	bool use_reserve;
	uint64_t user_bytes;		/* keys and values, borrowed ones and parts too */
	struct kv_batch_op *ops;
	uint32_t count, count_max;
	struct kv_arena arena;
	struct kv_buf encoded;		/* scratch of kv_write(), kept for its memory */
};

/* One encoded operation. */
struct kv_op {
	enum kv_kind kind;
	struct kv_slice key, value;
};

/*
 * Takes the next operation from the front of *ops; false, with *ops untouched, when
 * it is malformed (or there is none). Lengths are checked too: what it returns
 * may be added to a memtable.
 */
bool kv_op_take(struct kv_slice *ops, struct kv_op *out);
/* Appends an operation; its lengths must be as kv_op_take() wants them (asserted). */
int kv_op_append(struct kv_buf *to, enum kv_kind kind, struct kv_slice key,
		 struct kv_slice value) KV_NODISCARD;

#endif
