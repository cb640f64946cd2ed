/*
 * Record framing for journals and manifests: a file of checksummed chunks.
 *
 * Torn tail or damage? A chunk says how far the file was promised durable when
 * the chunk was written. Reading stops at the first chunk that is not valid; if
 * a valid one behind it promised more than where the reading stopped, what lies
 * between was durable once and is damaged: KV_E_journal_damaged. Else it is a torn tail, which
 * was never promised. What only other files know (that this one was longer) is
 * the caller's to compare with kv_journal_tail.
 */
#ifndef KV_JOURNAL_H
#define KV_JOURNAL_H

#include "kv/buf.h"
#include "kv/store.h"

/* --- writing: one thread at a time, but for sync ------------------------------------- */

#define KV_JOURNAL_PARTS_MAX 1000

struct kv_journal;

/*
 * Makes the file. allocate_bytes are physically allocated ahead, and again
 * whenever they are used up (0: never; for the manifest). Neither the file nor
 * its name is durable. KV_E_no_space, and any other failure, leave no file.
 */
int kv_journal_create(struct kv_store *s, enum kv_file_kind kind, kv_fileno number,
		      uint64_t allocate_bytes, struct kv_journal **out) KV_NODISCARD;
/* Closes the file as it is. */
void kv_journal_free(struct kv_journal *j);

/*
 * Makes sure that a chunk of payload_bytes has its room, and a few without
 * payload behind it. KV_E_no_space here, and nowhere later, is the harmless
 * kind: it does not poison. Called by the thread that appends. KV_E_too_big
 * when there cannot be such a chunk.
 */
int kv_journal_reserve(struct kv_journal *j, uint64_t payload_bytes) KV_NODISCARD;
/*
 * Appends a chunk whose payload is the iov_count parts (no more than
 * KV_JOURNAL_PARTS_MAX; not changed), in one write. KV_E_too_big changes
 * nothing. After any other failure the journal is poisoned: every later
 * append and sync fails with the same error.
 */
int kv_journal_append(struct kv_journal *j, enum kv_chunk_type type, kv_seqno seqno,
		      uint32_t count, const struct iovec *iov, int iov_count) KV_NODISCARD;
/*
 * All appends that returned before are durable on return. Many threads may
 * call it, beside an append. A failure poisons.
 */
int kv_journal_sync(struct kv_journal *j) KV_NODISCARD;
/* Gives back the room behind the last chunk, as far as that can be: nothing is appended any more. */
void kv_journal_trim(struct kv_journal *j);
/*
 * Later chunks state this as promised, if it is more than before (and no more than what is
 * synced). A manifest (KV_FILE_MANIFEST) does so by itself with all that is synced. A
 * journal doesn't: its batches are durable only when the segments that they point
 * into are, which a group that is appended beside a sync may not be.
 */
void kv_journal_promise(struct kv_journal *j, uint64_t bytes);
/* Where the last chunk ends; how far has been synced. */
uint64_t kv_journal_bytes(const struct kv_journal *j);
uint64_t kv_journal_synced(const struct kv_journal *j);
kv_fileno kv_journal_number(const struct kv_journal *j);

/* --- reading ----------------------------------------------------------------------------- */

struct kv_journal_reader;

struct kv_chunk {
	enum kv_chunk_type type;
	kv_seqno seqno;
	uint32_t count;
	uint64_t promised;
	uint64_t offset, end;		/* in the file */
	struct kv_slice payload;	/* stays until the next read */
};

int kv_journal_open(struct kv_store *s, enum kv_file_kind kind, kv_fileno number,
		    struct kv_journal_reader **out) KV_NODISCARD;
void kv_journal_close(struct kv_journal_reader *r);
/*
 * *out_end is true at the end (the chunk is not set then): see kv_journal_tail.
 * KV_E_journal_damaged as said above; KV_E_newer_format for an unknown type of chunk; an error of
 * the env is never taken for the end. All are reported, and repeated by every later read.
 */
int kv_journal_read(struct kv_journal_reader *r, struct kv_chunk *out, bool *out_end)
	KV_NODISCARD;

/* After the end was read. */
struct kv_journal_tail {
	uint64_t end;		/* of the last valid chunk */
	uint64_t promised;	/* the largest promise in any valid chunk: never more than end */
	bool closed;		/* the last chunk is KV_CHUNK_END */
	uint64_t torn_bytes;	/* from end to the last byte that is not zero */
};
void kv_journal_tail(const struct kv_journal_reader *r, struct kv_journal_tail *out);

#endif
