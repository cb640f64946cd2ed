/*
 * A batch on its way: what the stages of kv_write() hand on to each other. Only
 * write.c and write_*.c include this.
 */
#ifndef KV_WRITE_H
#define KV_WRITE_H

#include "kv/db.h"

/* A value that goes to the segment. */
struct kv_bulk {
	size_t at;			/* of the pointer in the encoded batch */
	uint32_t op;			/* index in the batch */
	bool copied;			/* the value lies in writer->copies, at copy_at */
	size_t copy_at;
	struct kv_slice raw;
	enum kv_codec codec;		/* to be tried */
	size_t stored_at;		/* in writer->stored, if it can be compressed */
};

/* A value that stays in the batch, compressed. */
struct kv_pack {
	uint32_t op;
	size_t at, bytes;		/* in writer->packed, whole as an entry has it; bytes 0: as it was */
};

/* A counter that the leader computes. */
struct kv_add {
	size_t at;			/* of the 8 bytes in the encoded batch */
	struct kv_slice key;
	int64_t delta;
	bool has_base;			/* the batch itself has put or deleted the key before */
	int64_t base;
};

/* What a batch that is to be durable waits for. */
enum kv_turn {
	KV_TURN_NONE,
	KV_TURN_LEAD,			/* nobody leads: it may, for itself and those behind it */
	KV_TURN_OVER,			/* somebody has done it */
};

/* In the stack of its caller. */
struct kv_writer {
	struct kv_link link;		/* in db->queue, before that perhaps in db->durable_queue */
	struct kv_writer *chain;	/* goes the same way with it: see commit_durable() */
	struct kv_mutex mu;		/* its own: others tell it what its turn is */
	enum kv_turn turn;		/* under mu */
	struct kv_cond cond;
	bool done;			/* under queue_mu: committed */
	int result;
	struct kv_batch *batch;
	kv_write_check_fn *check;	/* NULL: written in any case */
	void *check_arg;
	struct kv_buf copies;		/* values that don't stay where they were */
	struct kv_buf stored;		/* compressed values */
	struct kv_bulk *bulks;
	struct kv_segment_put *puts;	/* one for each of them */
	struct kv_vptr *ptrs;
	size_t bulk_count, bulk_count_max;
	struct kv_buf packed;
	struct kv_pack *packs;		/* by operation, if they were compressed ahead */
	size_t pack_count, pack_count_max, pack_next;
	uint64_t bulk_bytes;		/* of the segment that they will take */
	struct kv_add *adds;
	size_t add_count, add_count_max;
	struct kv_readstate *parts;	/* what parts are looked up in; parts_lock is held */
	kv_seqno seqno_parts;
	kv_seqno seqno_first, seqno_last;
};

/* Makes room for one more element in an array (array: the address of its pointer). */
int kv_array_grow(void *array, size_t count, size_t *count_max, size_t element_bytes) KV_NODISCARD;

/* --- write_pressure.c --------------------------------------------------------------------- */

/*
 * Waits as the backlog of flushes and compactions asks for. Batches that only delete
 * are let through, down to the memtable's own limit.
 */
int kv_pressure(struct kv_db *db, const struct kv_batch *b) KV_NODISCARD;

/* --- write_prepare.c ---------------------------------------------------------------------- */

/* Encodes w->batch. Whether it succeeds or not, kv_writer_done() is called in the end. */
int kv_writer_prepare(struct kv_db *db, struct kv_writer *w) KV_NODISCARD;
void kv_writer_done(struct kv_db *db, struct kv_writer *w);

/* --- write_pack.c ---------------------------------------------------------------------------- */

/* Compresses the medium values of w->batch ahead, if they are many enough for several threads. */
int kv_writer_pack_ahead(struct kv_db *db, struct kv_writer *w) KV_NODISCARD;
/*
 * The operation's value, compressed, as an entry of kind PUT_PACKED has it; empty when it stays as
 * it is. To be asked in the order of operations. It stays until the next call.
 */
int kv_writer_pack(struct kv_db *db, struct kv_writer *w, uint32_t op, struct kv_slice value,
		   enum kv_hint hint, struct kv_slice *out) KV_NODISCARD;

/* --- write_counter.c: all of it under commit_mu; a cache may be NULL --------------------- */

/* All counters of the batch are in the cache on return; nothing has changed otherwise. */
int kv_counters_load(struct kv_db *db, struct kv_writer *w) KV_NODISCARD;
/* Adds, and fills the sums in the encoded batch. */
void kv_counters_patch(struct kv_db *db, struct kv_writer *w);
/* Somebody else has changed the key, or keys. */
void kv_counters_changed(struct kv_counter_cache *c, const struct kv_op *op);
void kv_counters_clear(struct kv_counter_cache *c);
/* Forgets them when they are too many to be searched. */
void kv_counters_trim(struct kv_counter_cache *c);

#endif
