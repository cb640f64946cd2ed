/*
 * struct kv_db, its locks and states. Only the files of the engine layer
 * (open write flush read scan compact gc worker) include this.
 *
 * Lock order: commit_mu, parts_lock, install_mu, mu, then anything below the engine.
 *	commit_mu	leads the commit: journal and segment appends, memtable inserts
 *	parts_lock	shared: a batch refers to existing values; exclusive: a segment
 *			is being declared dead
 *	install_mu	one manifest edit at a time, held over its sync
 *	mu		everything else, never held over I/O
 */
#ifndef KV_DB_H
#define KV_DB_H

#include "kv/batch.h"
#include "kv/kv.h"
#include "kv/list.h"
#include "kv/lock.h"
#include "kv/journal.h"
#include "kv/manifest.h"
#include "kv/memtable.h"

/*
 * What a reader pins: there is no other way to the memtables and the version.
 * Immutable; replaced as a whole under mu.
 */
struct kv_readstate {
	_Atomic uint32_t refs;
	struct kv_version *version;
	uint32_t imm_count;
	struct kv_memtable *mem;
	struct kv_memtable *imm[];	/* newest first */
};

struct kv_snapshot {
	struct kv_link link;		/* in db->snapshots, oldest first */
	kv_seqno seqno;
};

/* A thread's place in the queue of the group commit (write.c). */
struct kv_writer;

/* A journal that is needed still: one that a memtable lives in, or that has unsynced bytes. */
struct kv_live_journal {
	struct kv_link link;		/* in db->journals, oldest first */
	struct kv_journal *journal;
	kv_fileno number;
	bool synced;			/* whole, and never appended to again */
};

/* A segment with bytes that may not be durable yet. */
struct kv_live_segment {
	struct kv_link link;
	struct kv_segment_writer *writer;
	kv_fileno number;
	bool full;			/* no more appends; sealed by the next sync */
	_Atomic uint32_t refs;
};

struct kv_counters {
#define X(name, text) _Atomic uint64_t name;
	KV_COUNTERS(X)
#undef X
};

struct kv_db {
	/* Set at open, constant after. */
	struct kv_options options;	/* with the defaults filled in */
	struct kv_store store;
	struct kv_env_file *lock;
	struct kv_cache *cache;
	struct kv_filecache *files;
	struct kv_sst_counters sst_counters;
	struct kv_obsolete_sink obsolete_sink;

	/* Commit: what the leader uses; guarded by commit_mu (only the leader holds it for long). */
	struct kv_mutex commit_mu;
	struct kv_live_journal *journal;	/* appended to */
	struct kv_live_segment *segment;	/* bulk values go here; NULL before the first */
	kv_seqno seqno_last;		/* assigned */
	struct kv_counter_cache *counter_cache; /* values of keys that kv_batch_add() changes */

	struct kv_mutex queue_mu;	/* writers waiting for their turn */
	struct kv_link queue;

	/* Durability: who syncs, and how far it got; see write.c. */
	struct kv_mutex sync_mu;
	struct kv_cond sync_cond;
	bool sync_running;
	kv_seqno seqno_synced;		/* every batch up to here is durable */

	struct kv_rwlock parts_lock;
	kv_fileno *dying;		/* segments that no batch may refer to any more; under parts_lock */
	size_t dying_count;

	struct kv_mutex install_mu;
	struct kv_manifest *manifest;	/* under install_mu */

	struct kv_mutex mu;		/* guards to the blank line */
	struct kv_cond work_cond;	/* there is work, or stop */
	struct kv_cond done_cond;	/* some work is done, or an error came */
	struct kv_memtable *mem;
	struct kv_memtable **imm;	/* oldest first */
	size_t imm_count;
	struct kv_version *version;
	struct kv_manifest_state state;
	struct kv_link snapshots;
	struct kv_link journals;	/* struct kv_live_journal */
	struct kv_link segments;	/* struct kv_live_segment */
	struct kv_link obsolete;	/* files to be deleted */
	int error;			/* first failure; the store is read-only from then on */
	bool stop;
	bool flush_running;
	uint32_t compactions_running;
	struct kv_buf compact_pointer[KV_LEVELS];
	pthread_t threads[2];
	uint32_t thread_count;

	_Atomic(uintptr_t) readstate;	/* struct kv_readstate, see read.c */
	_Atomic kv_seqno seqno_published; /* visible; the leader writes, all read */
	_Atomic bool poisoned;		/* error is set: a look without the lock */
	struct kv_counters counters;
};

/* --- read.c: the read state, gets, snapshots ------------------------------------------ */

/* Never NULL. Takes no lock. */
struct kv_readstate *kv_readstate_ref(struct kv_db *db);
void kv_readstate_unref(struct kv_readstate *rs);
/* Replaces the read state after mem, imm or version have changed. */
int kv_readstate_install_locked(struct kv_db *db) KV_REQUIRES(&db->mu) KV_NODISCARD;
/* Newest visible entry of a key, range tombstones applied: found is false for a deleted one. */
int kv_readstate_get(struct kv_db *db, struct kv_readstate *rs, struct kv_slice key,
		     kv_seqno snapshot, struct kv_found *out, struct kv_buf *value_store)
	KV_NODISCARD;
/* The value that an entry of kind PUT or PUT_PTR has, appended to out. */
int kv_value_fetch(struct kv_db *db, enum kv_kind kind, struct kv_slice value, struct kv_buf *out)
	KV_NODISCARD;
/* Seqnos that must stay readable, ascending, the present last. The caller frees *out. */
int kv_snapshot_seqnos(struct kv_db *db, kv_seqno **out, size_t *out_count) KV_NODISCARD;

/* --- write.c ------------------------------------------------------------------------------ */

/* Keeps the first error and makes the store read-only; returns KV_E_poisoned. */
int kv_poison(struct kv_db *db, int err);
/* Makes the memtable immutable and starts a new one, with a new journal. */
int kv_memtable_switch(struct kv_db *db) KV_REQUIRES(&db->commit_mu) KV_NODISCARD;

/* --- flush.c, compact.c: one step of background work each ------------------------------- */

/* Writes the oldest immutable memtable to a table of level 0. */
int kv_flush_one(struct kv_db *db) KV_NODISCARD;
/* Picks a compaction and runs it; *out_did false: there was none to do. */
int kv_compact_one(struct kv_db *db, bool *out_did) KV_NODISCARD;
/* Drops segments that nothing refers to. */
int kv_gc_one(struct kv_db *db, bool *out_did) KV_NODISCARD;
/* Appends the edit, installs the version that results, replaces the read state. Takes the locks. */
int kv_install(struct kv_db *db, struct kv_edit *edit) KV_NODISCARD;

/* --- worker.c ------------------------------------------------------------------------------- */

int kv_workers_start(struct kv_db *db) KV_NODISCARD;
void kv_workers_stop(struct kv_db *db);
/* Tells the threads that there may be work; with inline_work, does it (no lock may be held). */
void kv_work_schedule(struct kv_db *db);
/* A number for a new file. */
kv_fileno kv_fileno_take(struct kv_db *db);

#endif
