/*
 * struct kv_db, its locks and states. Only the files of the engine layer
 * (options open write flush read scan compact gc worker stats) include this.
 *
 * Lock order: names_mu, inline_mu, parts_lock, commit_mu, install_mu, mu, then anything
 * below the engine. queue_mu, sync_mu and obsolete_mu are leaves: nothing is
 * locked under them, but a waiting writer's own lock under sync_mu; and the lock of the event log,
 * which any thread may take whatever it holds.
 *	names_mu	one named snapshot is made or dropped at a time
 *	inline_mu	with inline_work: one caller at a time does the work
 *	parts_lock	shared: a batch refers to existing values, until its memtable
 *			does; exclusive: a segment is being declared dead
 *	commit_mu	leads the commit: journal and segment appends, memtable inserts
 *	install_mu	one manifest edit at a time, held over its sync
 *	mu		everything else, never held over I/O
 */
#ifndef KV_DB_H
#define KV_DB_H

#include <stdatomic.h>
#include <stdlib.h>

#include "kv/batch.h"
#include "kv/eventlog.h"
#include "kv/histogram.h"
#include "kv/journal.h"
#include "kv/kv.h"
#include "kv/list.h"
#include "kv/lock.h"
#include "kv/manifest.h"
#include "kv/memtable.h"
#include "kv/pace.h"

#define KV_IMM_MAX 2		/* memtables that wait for their flush */
#define KV_WORKERS 2

/*
 * What a reader pins: there is no other way to the memtables and the version.
 * Immutable; replaced as a whole under mu.
 */
struct kv_readstate {
	_Atomic uint32_t refs;
	struct kv_version *version;
	uint32_t imm_count;
	struct kv_memtable *mem;
	struct kv_memtable *imm[KV_IMM_MAX];	/* newest first */
};

struct kv_snapshot {
	struct kv_link link;		/* in db->snapshots, oldest first */
	kv_seqno seqno;
};

/* A journal that is needed still: a memtable lives in it. */
struct kv_live_journal {
	struct kv_link link;		/* in db->journals, oldest first */
	struct kv_journal *journal;
	kv_fileno number;
	_Atomic uint32_t refs;
	uint64_t sync_target;		/* under mu: sync.c wants so many bytes durable */
	bool obsolete;			/* under mu: deleted when the last one lets go of it */
};

/* A segment that may be appended to, or has not been sealed yet. */
struct kv_live_segment {
	struct kv_link link;		/* in db->segments */
	struct kv_segment_writer *writer;
	kv_fileno number;
	_Atomic uint32_t refs;
	struct kv_link flush_link;	/* in db->flush_full */
	uint64_t sync_target;		/* under mu, as above */
	bool apart;			/* under mu: no batch's value is in it, who fills it syncs it */
	bool full;			/* under mu: no more appends, every pointer into it has a home */
	bool sealing;			/* under mu */
};

/* What one who writes knows of the disk; see space.c. */
struct kv_space_look {
	uint64_t unlooked;		/* bytes written since it was looked at */
	bool low;
	uint64_t margin;		/* so much is to be left beyond what is kept back */
};

/* A file that nothing names any more. */
struct kv_obsolete {
	struct kv_link link;
	enum kv_file_kind kind;
	kv_fileno number;
};

struct kv_counters {
#define X(name, text) _Atomic uint64_t name;
	KV_COUNTERS(X)
#undef X
};

static inline void kv_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* One of so many is timed. */
enum {
#define X(name, one_of, text) KV_TIMED_##name = (one_of),
	KV_LATENCIES(X)
#undef X
};

/*
 * Has its turn been drawn, at so many counted before? Not simply each nth: what callers do may
 * have a period, too.
 */
static inline bool kv_is_drawn(uint64_t count, uint32_t one_of)
{
	return (count * 0x9e3779b97f4a7c15 >> 32) % one_of == 0;
}

struct kv_db {
	/* Set at open, constant after. */
	struct kv_options options;	/* with the defaults filled in */
	struct kv_store store;
	struct kv_env_file *lock;
	struct kv_eventlog *log;	/* NULL: no events are logged */
	struct kv_cache *cache;
	struct kv_filecache *files;
	struct kv_sst_counters sst_counters;
	struct kv_obsolete_sink obsolete_sink;
	struct kv_pool *pool;		/* helpers; NULL with inline_work */
	struct kv_pool *compact_pool;	/* the same, for parts of compactions, which take long */
	struct kv_mutex names_mu;
	struct kv_mutex inline_mu;

	/* Commit: guarded by commit_mu (only the leader holds it for long). */
	struct kv_mutex commit_mu;
	struct kv_live_journal *journal;	/* appended to */
	struct kv_live_segment *segment;	/* bulk values go here; NULL before the first */
	kv_seqno seqno_last;		/* assigned */
	struct kv_counter_cache *counter_cache; /* values of keys that kv_batch_add() changes */
	struct kv_space_look space;
	uint64_t marked_bytes;		/* the journal is no longer than this: its end is promised */
	bool deletes_told;		/* the workers know that the memtable may hide much */

	struct kv_mutex queue_mu;	/* writers waiting for their turn: struct kv_writer */
	struct kv_link queue;

	/* Durability: who syncs, and how far it got; see sync.c. */
	struct kv_mutex sync_mu;
	struct kv_cond sync_cond;
	bool sync_running;
	struct kv_link durable_queue;	/* struct kv_writer: small batches to be durable; see write.c */
	bool durable_led;		/* one is committing and syncing, for a chain of them */
	kv_seqno seqno_synced;		/* every batch up to here is durable */

	struct kv_rwlock parts_lock;
	kv_fileno *dying;		/* segments that no batch may refer to any more; under parts_lock */
	size_t dying_count;

	struct kv_mutex install_mu;
	struct kv_manifest *manifest;	/* under install_mu */
	uint64_t version_charged;	/* to the cache, for the present version; under install_mu */

	/* One flush at a time: belongs to who has set flush_running. */
	struct kv_live_segment *flush_segment; /* medium values go here; NULL before the first */
	struct kv_link flush_full;	/* that it filled, and are to be finished */

	/* Of the one thread that compacts and collects; with inline_work, under inline_mu. */
	kv_seqno quiet_seqno;		/* nothing was written since quiet_since_ns */
	uint64_t quiet_since_ns;	/* 0: not looked yet */
	uint64_t quiet_flush_ns;	/* 0: there was none; when the last was begun */
	bool quiet;			/* so for some time */
	struct kv_gc_skip *gc_skip;	/* segments that collection leaves alone */
	size_t gc_skip_count;

	struct kv_mutex mu;		/* guards to the blank line */
	struct kv_cond work_cond;	/* there is work, or stop */
	struct kv_cond done_cond;	/* some work is done, or an error came */
	struct kv_memtable *mem;
	struct kv_memtable *imm[KV_IMM_MAX]; /* oldest first */
	kv_seqno imm_seqno[KV_IMM_MAX];	/* last one in each */
	uint32_t imm_count;
	uint64_t imm_switched, imm_flushed; /* memtables that ever became immutable, were flushed */
	uint64_t flush_ns_per_kib;	/* what a KiB of memtable took in the last flush */
	struct kv_version *version;
	struct kv_manifest_state state;
	struct kv_link snapshots;
	struct kv_link journals;	/* struct kv_live_journal */
	struct kv_link segments;	/* struct kv_live_segment */
	struct kv_live_journal *journal_next; /* prepared ahead; on no list */
	struct kv_live_segment *segment_next; /* prepared ahead; on db->segments */
	bool journal_wanted, segment_wanted;  /* to be prepared */
	bool preparing_journal, preparing_segment;
	int error;			/* first failure; the store is read-only from then on */
	/* Last failures that can pass: 0 after a success; and how many there were. */
	int flush_error, compact_error;
	uint64_t flush_failures, compact_failures;
	int gc_error;			/* the same, and when it is tried again */
	uint64_t gc_backoff_ns, gc_retry_ns;
	bool space_reported;
	bool stop;
	bool flush_running;
	bool gc_running;
	bool gc_asked;			/* the caller wants all garbage collected that there is */
	size_t compact_threads_taken;	/* by the parts of compactions that run */
	uint32_t compacting_by_hand;	/* callers of kv_compact(): no collection begins */
	struct kv_ingest *ingest;	/* the one that is running; NULL: none */
	bool placing;			/* it looks for a place, and gets it: no compaction is chosen */
	bool settled;			/* the thread that compacts need not look by itself */
	struct kv_buf compact_pointer[KV_LEVELS];
	uint64_t work_seq;		/* changes whenever there may be new work */
	uint64_t idle_seq[KV_WORKERS];	/* of which a thread has found that there is none left */
	pthread_t threads[KV_WORKERS];
	uint32_t thread_count;

	struct kv_mutex obsolete_mu;
	struct kv_link obsolete;	/* struct kv_obsolete */

	/* Of the one thread that deletes by the way: how fast, and when it may go on. */
	struct kv_pace delete_pace;
	uint64_t delete_wait_ns;	/* 0: nothing is left to be deleted */

	_Atomic uint64_t readstate;	/* struct kv_readstate, see read.c */
	_Atomic kv_seqno seqno_published; /* visible; the leader writes, all read */
	_Atomic bool poisoned;		/* error is set: a look without the lock */
	_Atomic bool work_wanted;	/* with inline_work: there may be some */
	_Atomic uint32_t level0_count, imm_full; /* for back-pressure: looks without the lock */
	_Atomic uint64_t delay_until_ns; /* what writers have booked, see write_pressure.c */
	struct kv_counters counters;
	struct kv_histogram latencies[KV_LATENCY_KINDS];
	_Atomic bool slowed;		/* writers are, and that was logged */
	_Atomic uint64_t writes;	/* begun: for drawing those that are timed */
};

static inline uint64_t kv_now_ns(struct kv_db *db)
{
	return db->store.env->ops->monotonic_ns(db->store.env);
}

static inline void kv_latency_add(struct kv_db *db, enum kv_latency_kind kind, uint64_t start_ns)
{
	kv_histogram_add(&db->latencies[kind], kv_now_ns(db) - start_ns);
}

/* --- options.c ---------------------------------------------------------------------------- */

/* The options with every 0 replaced by its default. KV_E_bad_option, reported. */
int kv_options_fill(const struct kv_options *in, struct kv_options *out) KV_NODISCARD;

/* A table for the level: how its blocks are cut and compressed follows from the options. */
int kv_table_build_new(struct kv_db *db, kv_fileno number, int level, struct kv_sst_build **out)
	KV_NODISCARD;

/* --- read.c: the read state, gets ------------------------------------------------------ */

/*
 * Never NULL. Takes no lock. A reader of the present takes the read state first and
 * loads seqno_published after: what a flush or a compaction that it doesn't
 * see has dropped, it can't miss. (The other way round it could.)
 */
struct kv_readstate *kv_readstate_ref(struct kv_db *db);
/* Not under mu: it may be the last one, and free much. */
void kv_readstate_unref(struct kv_readstate *rs);
/* An empty one, for swap; NULL when out of memory. */
struct kv_readstate *kv_readstate_new(void);
/*
 * Fills rs from what mem, imm and version are now and puts it in the place of the
 * present one, which is returned: unref it when mu has been released (may be NULL).
 */
struct kv_readstate *kv_readstate_swap_locked(struct kv_db *db, struct kv_readstate *rs)
	KV_REQUIRES(&db->mu) KV_NODISCARD;
/*
 * Newest visible entry of a key, range tombstones applied: found is false for a deleted one. Its
 * value stays as long as the read state and *out_pin, which was none: the caller lets it go.
 */
int kv_readstate_get(struct kv_db *db, struct kv_readstate *rs, struct kv_slice key,
		     kv_seqno snapshot, struct kv_found *out, struct kv_sst_pin *out_pin)
	KV_NODISCARD;
/*
 * The value that an entry of any kind of put has, appended to out. ahead: see vlog.h, or NULL. fill: one
 * that comes from the value log is kept in the cache, if the options say so.
 */
int kv_value_fetch(struct kv_db *db, enum kv_kind kind, struct kv_slice value,
		   struct kv_vlog_ahead *ahead, bool fill, struct kv_buf *out) KV_NODISCARD;
/* Length of that value; KV_E_bad_record. */
int kv_value_bytes(enum kv_kind kind, struct kv_slice value, uint32_t *out_bytes) KV_NODISCARD;

/* --- snapshot.c ------------------------------------------------------------------------- */

/*
 * Seqnos that must stay readable: those of snapshots, named or not, and the present, which is the
 * last; ascending. The caller frees *out. (While a store is being opened, kv_snapset_seqnos().)
 */
int kv_snapshot_seqnos(struct kv_db *db, kv_seqno **out, size_t *out_count) KV_NODISCARD;
/* The first of them. */
kv_seqno kv_snapshot_oldest_locked(struct kv_db *db) KV_REQUIRES(&db->mu);

/* --- live.c: journals and segments that are being written --------------------------------- */

/* By which steps a file that will have about so many bytes takes its space. */
uint64_t kv_allocate_bytes(uint64_t file_bytes);

/*
 * Makes a segment, durable and registered in the manifest, and puts it on
 * db->segments. One reference is the caller's, who alone appends to it.
 * KV_E_no_space when there is no room for it.
 */
int kv_live_segment_new(struct kv_db *db, struct kv_live_segment **out) KV_NODISCARD;
/*
 * Nobody appends any more, and every pointer into it is in a memtable or in
 * an installed table: it will be sealed. Drops the caller's reference.
 */
void kv_live_segment_finish(struct kv_db *db, struct kv_live_segment *s);
void kv_live_segment_unref(struct kv_live_segment *s);
/* Seals one that is finished; *out_did false: there was none. */
int kv_live_segment_seal_one(struct kv_db *db, bool *out_did) KV_NODISCARD;

/* Makes a journal whose name and header are durable, with nothing in it, on no list. */
int kv_live_journal_new(struct kv_db *db, struct kv_live_journal **out) KV_NODISCARD;
void kv_live_journal_unref(struct kv_db *db, struct kv_live_journal *j);

/* Makes the next journal or segment, when it is wanted and isn't there. */
int kv_live_prepare(struct kv_db *db, bool *out_did) KV_NODISCARD;

/* --- sync.c: what is durable, and what if that fails --------------------------------------- */

/* Everything up to seqno is durable on return. Poisons. No lock may be held but commit_mu or names_mu. */
int kv_sync_to(struct kv_db *db, kv_seqno seqno) KV_NODISCARD;
/* Everything that was appended to any live segment before is durable on return. Poisons. */
int kv_sync_segments(struct kv_db *db) KV_NODISCARD;
/* Tables have made durable everything up to seqno. */
void kv_sync_advance(struct kv_db *db, kv_seqno seqno);
/* Leaves a mark in a journal that has been synced to its end, if there is none yet. Takes commit_mu. Poisons. */
void kv_sync_mark(struct kv_db *db);

/* Keeps the first error and makes the store read-only; returns KV_E_poisoned. Not under mu. */
int kv_poison(struct kv_db *db, int err);
/* Is it a failure that can pass by itself: no space, no memory? */
bool kv_err_passes(int err);
/* KV_E_no_space for an error of the env that means so; other errors as they are. */
int kv_err_space(int err);

/* --- write.c, write_counter.c, write_pressure.c -------------------------------------------- */

/*
 * Makes the memtable immutable and starts a new one, with a new journal; there must
 * be less than KV_IMM_MAX. KV_E_no_space and -ENOMEM are harmless.
 */
int kv_memtable_switch(struct kv_db *db) KV_REQUIRES(&db->commit_mu) KV_NODISCARD;
/*
 * May the memtable hide so much (by deletes, or by large values) that it is flushed for the space
 * which that frees, when nothing else is to do?
 */
bool kv_memtable_frees_much(const struct kv_db *db, const struct kv_memtable *m);
void kv_counter_cache_free(struct kv_counter_cache *c);
/* Level 0 is below its limit on return, if compactions can do that. With inline_work does nothing. */
int kv_level0_wait(struct kv_db *db) KV_NODISCARD;

/* May the batch still be written? 0, or the error that kv_write_if() returns. */
typedef int kv_write_check_fn(struct kv_db *db, void *arg);
/*
 * As kv_write(), if check (NULL: none) returns 0. It is called twice: without locks, so that it can do
 * most of its work there; and again under commit_mu, when all batches before this one are in the
 * memtable and published, and nothing comes in between any more.
 */
int kv_write_if(struct kv_db *db, struct kv_batch *b, kv_write_check_fn *check, void *arg, bool sync)
	KV_NODISCARD;

/* --- flush.c, compact.c, gc.c: one step of background work each ------------------------- */

/*
 * Writes the oldest immutable memtable to a table of level 0. When another
 * thread is at it, waits for that and returns 0. Poisons by itself; a
 * failure that can pass is returned, and nothing has changed.
 */
int kv_flush_one(struct kv_db *db) KV_NODISCARD;
/*
 * Writes the memtable to a table and adds it to the edit (not when nothing is left of it).
 * With segment, medium values go to *segment, which is replaced when it is full;
 * NULL: they stay inline. The table is durable, its name is not.
 */
int kv_flush_table(struct kv_db *db, struct kv_memtable *m, const kv_seqno *snapshots,
		   size_t snapshot_count, struct kv_live_segment **segment,
		   struct kv_edit *edit) KV_NODISCARD;
/*
 * Writes what is in memory to tables: all that was written before is in them on return. _held: nothing
 * comes into memory as long as the caller holds on. KV_E_no_space and -ENOMEM are harmless.
 */
int kv_flush_memory(struct kv_db *db) KV_NODISCARD;
int kv_flush_memory_held(struct kv_db *db) KV_REQUIRES(&db->commit_mu) KV_NODISCARD;
/* Picks a compaction and runs it; *out_did false: there was none to do. */
int kv_compact_one(struct kv_db *db, bool *out_did) KV_NODISCARD;
/*
 * Drops segments that nothing refers to; if there are none, moves what is alive out of a few segments
 * with much garbage. One thread at a time: of the workers, only one calls it. A collection that fails
 * in a way that can pass is not an error here: it is kept in db->gc_error, and waits.
 */
int kv_gc_one(struct kv_db *db, bool *out_did) KV_NODISCARD;
/*
 * Has segments that are being written to, and are mostly garbage, sealed, so that they can be
 * collected. True when there were some.
 */
bool kv_gc_close_segments(struct kv_db *db) KV_REQUIRES(&db->commit_mu);

/* --- ingest.c: tables that come from outside ------------------------------------------------ */

/* Does the ingest that is running need the segment, although nothing refers to it yet? */
bool kv_ingest_needs_locked(struct kv_db *db, kv_fileno segment_no) KV_REQUIRES(&db->mu);

/* --- install.c ------------------------------------------------------------------------------ */

/*
 * Appends the edit, installs the version that results, replaces the read
 * state. Takes the locks. The edit gets the next file number by itself. Failures to write
 * poison; KV_E_no_space and -ENOMEM are harmless: the edit has not happened, and never will.
 */
int kv_install(struct kv_db *db, struct kv_edit *edit) KV_NODISCARD;
/* The same; and in the same moment, the oldest immutable memtable is gone. */
int kv_install_flush(struct kv_db *db, struct kv_edit *edit) KV_NODISCARD;
/* What the version, which is or becomes the present one, takes in memory belongs to the budget. */
void kv_version_charge(struct kv_db *db, const struct kv_version *v);
/* The sink of all versions (arg: db): the file is deleted by the next work. Any thread, not under mu. */
void kv_obsolete_add(void *arg, enum kv_file_kind kind, kv_fileno number);
/*
 * Deletes what has gathered, at a bounded rate: what is left then stays until db->delete_wait_ns have
 * passed. True when something was deleted. One thread at a time.
 */
bool kv_obsolete_delete(struct kv_db *db);
/* The same, all of it and at once. Any thread. */
bool kv_obsolete_delete_all(struct kv_db *db);
/* A number for a new file. */
kv_fileno kv_fileno_take(struct kv_db *db);

/* --- space.c: what is kept back of the disk ------------------------------------------ */

/* Would the bytes take what is kept back? One thread at a time for each look. */
bool kv_space_is_low(struct kv_db *db, struct kv_space_look *look, uint64_t bytes);

/* --- worker.c ------------------------------------------------------------------------------- */

int kv_workers_start(struct kv_db *db) KV_NODISCARD;
void kv_workers_stop(struct kv_db *db);
/* Tells the threads that there may be work; with inline_work, does it (no lock may be held). */
void kv_work_schedule(struct kv_db *db);
/* Only tells: for callers that hold locks. */
void kv_work_want(struct kv_db *db);
void kv_work_want_locked(struct kv_db *db) KV_REQUIRES(&db->mu);

#endif
