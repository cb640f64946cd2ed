/*
 * kv: an embedded, ordered, crash-consistent key-value store.
 *
 * A store is a directory. Keys and values are bytes; keys are ordered by
 * memcmp. Changes are made in batches: a batch is all or nothing, for readers
 * and for crashes alike. Batches take effect in one order, and after a crash
 * the store holds a prefix of that order which contains every batch that was
 * promised durable (kv/README.md, rule K1).
 *
 * A struct kv_db may be used by any number of threads at once. A batch, an
 * iterator, a snapshot and a transaction are used by one thread at a time.
 *
 * Functions return 0 or a negative code (kv/errcode.h). What a caller may want
 * to tell apart, in every function that writes:
 *	KV_E_no_space	nothing was changed; works again when there is room
 *	KV_E_poisoned	a write or sync failed earlier: the store is read-only
 *			until it is opened anew
 *	KV_E_read_only	opened with read_only
 *	KV_E_corrupt	damage was found (and reported to the message sink)
 */
#ifndef KV_KV_H
#define KV_KV_H

#include "kv/buf.h"
#include "kv/errcode.h"
#include "kv/msg.h"
#include "kv/slice.h"

struct kv_batch;
struct kv_db;
struct kv_env;
struct kv_ingest;
struct kv_iter;
struct kv_snapshot;
struct kv_txn;

#define KV_KEY_BYTES_MAX 4096
#define KV_VALUE_BYTES_MAX (16u << 20)
#define KV_BATCH_BYTES_MAX (64u << 20)	/* keys and values of one batch together */

/* --- opening and closing -------------------------------------------------------- */

/*
 * All zero is a good default for everything: a field that is 0 takes the value
 * of the table in options.c, and is checked against the limits there.
 */
struct kv_options {
	struct kv_env *env;		/* NULL: kv_env_posix() */
	struct kv_msg msg;		/* where errors and events are reported */

	bool create;			/* make a store in an empty or new directory */
	bool error_if_exists;
	bool read_only;			/* see below */

	/*
	 * Memory, about, in one budget: blocks of tables, their indexes and filters; values read from the
	 * value log, up to 256 KiB each; memtables (three of memtable_bytes at the most, while two wait for
	 * their flush); and what is known of tables and of open files. Blocks and values make room for the
	 * others, but can always have a quarter of it: so if memtables may take more than the rest, the store
	 * may take that much more. Not in it is what lives as long as a call or one piece of work: batches,
	 * values handed out, buffers of iterators, flushes, compactions and helper threads, blocks and
	 * values of no_cache scans. [80 MiB]
	 */
	uint64_t cache_bytes;
	uint64_t memtable_bytes;	/* a memtable is flushed at this size [16 MiB] */
	uint64_t bulk_bytes_per_memtable; /* and after as many bytes in segments [256 MiB] */
	uint64_t segment_bytes;		/* value-log segment, about [128 MiB] */
	uint64_t table_bytes;		/* table written by compaction, about [8 MiB] */
	uint64_t level_base_bytes;	/* level 1; each next one is 10 times as large [64 MiB] */
	uint32_t medium_bytes;		/* values from here on go to the value log at flush [1 KiB] */
	uint32_t bulk_bytes;		/* and from here on directly, when written [32 KiB] */
	uint32_t block_bytes;		/* block of a table, before compression [8 KiB] */
	uint32_t level0_tables_slow;	/* writers are slowed down from here on [8] */
	uint32_t level0_tables_max;	/* and stopped here [20] */
	/*
	 * So many threads merge, each a part of a compaction that is large enough. Each has a block of each
	 * input, and a MiB or two of output. More than half of the cores slow writers down more than
	 * they spare them waiting. [2; 1 with less than three cores]
	 */
	uint32_t compact_threads;
	bool no_value_cache;		/* values from the value log aren't kept in memory: the caller does that */
	bool no_compression;
	bool no_event_log;		/* else events are written to the file LOG, which is never synced */
	/*
	 * No threads: flush and compaction run inside kv_write(), kv_flush() and
	 * kv_compact(). For tests that want the same I/O in the same order each time.
	 */
	bool inline_work;
};

/*
 * Opens the store in the directory, after a crash too: it recovers by itself.
 * -ENOENT when there is no such directory, KV_E_not_a_store when it holds no
 * store and create is not set (or it holds other files), KV_E_exists,
 * KV_E_locked when another process has it open, KV_E_newer_format.
 *
 * With read_only, nothing at all is written: no file is made, changed, cut or removed, nor
 * opened for writing. So neither write permission nor a medium that can be written is needed.
 * What a crash has left in journals is replayed into memory only, again by each opening.
 * Any number of processes may have a store open so, but none while one has it open for writing,
 * and the other way round: who comes second gets KV_E_locked. (Where the file LOCK is missing, as
 * in a copy that left it out, nobody is kept away. A reader then sees the state that it found, or
 * gets errors for files that are gone; never wrong data.)
 */
int kv_open(const char *dir, const struct kv_options *options, struct kv_db **out_db)
	KV_NODISCARD;

/*
 * Makes everything durable, stops the threads and frees db, also on error (of
 * which the first one is returned). No other call may be running, and all
 * iterators and snapshots must have been freed.
 */
int kv_close(struct kv_db *db);

/* --- batches ---------------------------------------------------------------------- */

enum kv_hint {
	KV_HINT_NONE = 0,
	KV_HINT_INCOMPRESSIBLE = 1,	/* don't try to compress */
};

/* NULL when out of memory; a later failure to grow is kept, and returned by kv_write(). */
struct kv_batch *kv_batch_new(void);
void kv_batch_free(struct kv_batch *b);
void kv_batch_reset(struct kv_batch *b);
bool kv_batch_is_empty(const struct kv_batch *b);
uint64_t kv_batch_bytes(const struct kv_batch *b);

/*
 * Operations take effect in the order in which they were added. Key and value
 * are copied, except by put_ref, whose value must stay until kv_write() returns
 * (bulk values are then never copied in memory).
 */
void kv_batch_put(struct kv_batch *b, struct kv_slice key, struct kv_slice value,
		  enum kv_hint hint);
void kv_batch_put_ref(struct kv_batch *b, struct kv_slice key, struct kv_slice value,
		      enum kv_hint hint);
/* Of a key that is known to exist: a delete of nothing costs as much as a put. */
void kv_batch_delete(struct kv_batch *b, struct kv_slice key);
/* All keys in [begin, end). */
void kv_batch_delete_range(struct kv_batch *b, struct kv_slice begin, struct kv_slice end);
/*
 * A put under key of the bytes [offset, offset + bytes) that from_key has when
 * kv_write() is called (not as changed by this batch). Costs no copy where the
 * value lies in the value log. kv_write() fails with KV_E_not_found, or -EINVAL
 * when from_key's value is shorter; then nothing of the batch is done.
 */
void kv_batch_put_part(struct kv_batch *b, struct kv_slice key, struct kv_slice from_key,
		       uint32_t offset, uint32_t bytes);
/*
 * Adds delta to a counter: a value of 8 bytes, little-endian, two's complement,
 * absent is 0. Batches that add to one counter at the same time do not conflict.
 * Meant for a few dozen keys, which nobody puts or deletes otherwise.
 */
void kv_batch_add(struct kv_batch *b, struct kv_slice key, int64_t delta);

/*
 * Some of the disk is kept back, so that there is always room to delete: batches fail
 * with KV_E_no_space before it is taken, but for those that say that they free more than they take.
 */
void kv_batch_use_reserve(struct kv_batch *b);

/*
 * Carries the batch out: it is visible to readers, and in the journal's file (a
 * kill of the process does not lose it), on return. With sync it also is durable, and
 * with it all batches before. The batch can be reset and used again, or written again.
 *
 * If it fails with KV_E_poisoned or -EIO while syncing, whether the batch
 * survives is unknown until the store is opened again.
 */
int kv_write(struct kv_db *db, struct kv_batch *b, bool sync) KV_NODISCARD;

/* Every batch whose kv_write() returned before is durable on return. */
int kv_sync(struct kv_db *db) KV_NODISCARD;

/* --- reading ------------------------------------------------------------------------ */

/*
 * The state at one moment: reads that are given it see that and nothing later.
 * It keeps old versions of values alive, so don't keep it for long. NULL when out of memory.
 */
struct kv_snapshot *kv_snapshot_new(struct kv_db *db);
void kv_snapshot_free(struct kv_db *db, struct kv_snapshot *s);

/*
 * Named snapshots are part of the store: they stay when it is closed, in a crash, and in a
 * checkpoint, until they are dropped; and so does all that they see, however it is
 * overwritten. A name is 1 to KV_SNAPSHOT_NAME_BYTES_MAX bytes of any kind but 0.
 *
 * A store that has one can't be opened by programs that don't know them; when the last one is
 * dropped, they can again after the next opening for writing.
 */
#define KV_SNAPSHOT_NAME_BYTES_MAX 255
#define KV_SNAPSHOTS_MAX 1024

struct kv_snapshot_info {
	char name[KV_SNAPSHOT_NAME_BYTES_MAX + 1];
	uint64_t seqno;			/* the last operation that it sees */
	uint64_t made_ns;		/* since 1970, by the system's clock then */
};

/*
 * Makes one of the present. It is durable on return, with everything before it. KV_E_bad_name,
 * KV_E_snapshot_exists, KV_E_too_many_snapshots: nothing has changed. After KV_E_poisoned only
 * opening the store again tells whether it is there.
 */
int kv_snapshot_create(struct kv_db *db, const char *name) KV_NODISCARD;
/* Durable on return. KV_E_no_snapshot. Those that kv_snapshot_open() has given stay good. */
int kv_snapshot_drop(struct kv_db *db, const char *name) KV_NODISCARD;
/* For reads, as from kv_snapshot_new(); free it likewise. KV_E_no_snapshot. */
int kv_snapshot_open(struct kv_db *db, const char *name, struct kv_snapshot **out_snap)
	KV_NODISCARD;
/* All of them, the oldest first; free(*out_infos), which is NULL when there are none. */
int kv_snapshot_list(struct kv_db *db, struct kv_snapshot_info **out_infos, size_t *out_count)
	KV_NODISCARD;

/* snap may be NULL: the present. KV_E_not_found. *out is overwritten on success only. */
int kv_get(struct kv_db *db, const struct kv_snapshot *snap, struct kv_slice key,
	   struct kv_buf *out) KV_NODISCARD;
/* Is it there? 0, KV_E_not_found or an error; does not fetch the value. */
int kv_exists(struct kv_db *db, const struct kv_snapshot *snap, struct kv_slice key)
	KV_NODISCARD;

struct kv_iter_options {
	const struct kv_snapshot *snap;	/* NULL: the present, when the iterator is made */
	struct kv_slice lower;		/* data NULL: none; else the first key that may be seen */
	struct kv_slice upper;		/* data NULL: none; else the first key beyond */
	bool no_cache;			/* a scan that should not push others out of the cache */
	bool sequential;		/* read ahead */
};

/*
 * Iterators see the state at which they were made. A new one is not valid;
 * position it first. Bounds are copied.
 */
int kv_iter_new(struct kv_db *db, const struct kv_iter_options *options,
		struct kv_iter **out_iter) KV_NODISCARD;
void kv_iter_free(struct kv_iter *it);
void kv_iter_seek_first(struct kv_iter *it);
void kv_iter_seek_last(struct kv_iter *it);
/* To the first key at or after key; prev: to the last key at or before it. */
void kv_iter_seek(struct kv_iter *it, struct kv_slice key);
void kv_iter_seek_prev(struct kv_iter *it, struct kv_slice key);
void kv_iter_next(struct kv_iter *it);
void kv_iter_prev(struct kv_iter *it);
/* False at the end, before the first positioning, and after an error. */
bool kv_iter_valid(const struct kv_iter *it);
/* 0, or why the iterator is not valid. Check it when a scan ends. */
int kv_iter_error(const struct kv_iter *it);
/* Stay until the iterator moves. Only when it is valid. */
struct kv_slice kv_iter_key(const struct kv_iter *it);
/* Length of the value; does not fetch it. */
uint32_t kv_iter_value_bytes(const struct kv_iter *it);
/* Fetches the value. The bytes stay until the iterator moves. */
int kv_iter_value(struct kv_iter *it, struct kv_slice *out_value) KV_NODISCARD;

/* --- transactions --------------------------------------------------------------------- */

/*
 * Optimistic: a transaction reads the state of one moment, and its own writes. It locks nothing.
 * When it is committed, all its writes are done at once, if no batch since that moment has changed
 * a key that it has read or written: else nothing is done, and the caller begins anew. So
 * transactions are serializable, also with plain batches, as far as they read key by key. Of what
 * an iterator has seen nothing is remembered: ask with kv_txn_exists() for each key that matters.
 *
 * Changed means put, deleted, added to, also by a range, also when the value is the same again;
 * a key that was not there and is not there may be taken for unchanged.
 *
 *	do {
 *		KV_TRY(kv_txn_begin(db, &txn));
 *		err = kv_txn_get(txn, key, &value);
 *		...
 *		kv_txn_put(txn, key, new_value, KV_HINT_NONE);
 *		if (!err)
 *			err = kv_txn_commit(txn, true);
 *		kv_txn_free(txn);
 *	} while (err == KV_E_conflict);
 *
 * It keeps a snapshot for as long as it lives, so it should not live for long. Its writes are a
 * batch and have the limits of one. What it knows of its keys is kept in memory, and limited
 * to KV_TXN_KEY_BYTES_MAX: every key counts once, with 64 bytes more than it has.
 */
#define KV_TXN_KEY_BYTES_MAX (64u << 20)

int kv_txn_begin(struct kv_db *db, struct kv_txn **out_txn) KV_NODISCARD;
/* What was not committed has never happened. */
void kv_txn_free(struct kv_txn *txn);

/* As kv_get() and kv_exists(). KV_E_too_big when it has too many keys. */
int kv_txn_get(struct kv_txn *txn, struct kv_slice key, struct kv_buf *out) KV_NODISCARD;
int kv_txn_exists(struct kv_txn *txn, struct kv_slice key) KV_NODISCARD;
/* As kv_txn_get(), but the commit does not depend on it. */
int kv_txn_peek(struct kv_txn *txn, struct kv_slice key, struct kv_buf *out) KV_NODISCARD;
/* The state that it reads, without its own writes: for iterators. Belongs to the transaction. */
const struct kv_snapshot *kv_txn_snapshot(const struct kv_txn *txn);

/* Key and value are copied. A failure is kept, and returned by kv_txn_commit(). */
void kv_txn_put(struct kv_txn *txn, struct kv_slice key, struct kv_slice value,
		enum kv_hint hint);
void kv_txn_delete(struct kv_txn *txn, struct kv_slice key);

/*
 * As kv_write(), or KV_E_conflict. With an error that can pass, KV_E_no_space or -ENOMEM, nothing was
 * changed, and it can be tried again. Without writes there is nothing to do, and no conflict. After
 * a success, or a conflict, kv_txn_free() is what remains.
 */
int kv_txn_commit(struct kv_txn *txn, bool sync) KV_NODISCARD;

/* --- taking in what is sorted --------------------------------------------------------- */

/*
 * Many keys that come in ascending order are written to tables and to the value log at once,
 * without journal and memtable. The commit puts all of them into the store in one step, as if
 * one batch of puts were written then: what the keys had before is overwritten. Until then
 * nobody sees anything of it, and others may read and write.
 *
 * Worth it for a MiB and more: it makes a few files, and the commit flushes what is in memory, and keeps
 * writers waiting meanwhile. Where the tables lie between those that are there, they go to the deepest
 * level at once; otherwise compactions have to take them down.
 *
 * One at a time: kv_ingest_new() fails with -EBUSY while there is another. An ingest is used by one
 * thread at a time, and must be freed before the store is closed.
 */
int kv_ingest_new(struct kv_db *db, struct kv_ingest **out_ingest) KV_NODISCARD;
/* Without a commit, nothing has happened; its files are deleted (after a crash, by the next opening). */
void kv_ingest_free(struct kv_ingest *in);
/*
 * Key and value are copied. -EINVAL, and it is left out, when the key does not come behind the one
 * before, or is empty; KV_E_too_big likewise. Any other failure is kept: all that follow return it. Some of the disk
 * is kept back, as from batches: KV_E_no_space.
 */
int kv_ingest_put(struct kv_ingest *in, struct kv_slice key, struct kv_slice value,
		  enum kv_hint hint) KV_NODISCARD;
/*
 * All of it is in the store, and durable, on return; what was written before is durable too. After
 * KV_E_no_space or -ENOMEM nothing has happened. With KV_E_poisoned, whether it has is unknown until
 * the store is opened again. -EOVERFLOW: meanwhile a billion other operations were written.
 * Whatever it returns, kv_ingest_free() is what remains.
 */
int kv_ingest_commit(struct kv_ingest *in) KV_NODISCARD;

/* --- upkeep --------------------------------------------------------------------------- */

/* Writes the memtables to tables; everything before is durable on return. */
int kv_flush(struct kv_db *db) KV_NODISCARD;
/*
 * Compacts all that lies in [begin, end]; data NULL: from the first, to the last key. Of
 * everything: the value log is collected too, in the background, until hardly any garbage is left.
 */
int kv_compact(struct kv_db *db, struct kv_slice begin, struct kv_slice end) KV_NODISCARD;
/* Bytes of the disk: all, and those that batches may still take (what is kept back is not among them). */
int kv_space(struct kv_db *db, uint64_t *out_bytes_all, uint64_t *out_bytes_free) KV_NODISCARD;
/* Returns when background work has nothing left to do, or with its error. */
int kv_wait_idle(struct kv_db *db) KV_NODISCARD;
/*
 * About how many bytes of files the keys in [begin, end) take (data NULL: from the first, to
 * the last key), with their share of memtables; also what is overwritten or deleted and not gone
 * yet. Reads the indexes of the tables that lie at the ends of the range, and no data.
 */
int kv_approximate_bytes(struct kv_db *db, struct kv_slice begin, struct kv_slice end,
			 uint64_t *out_bytes) KV_NODISCARD;

/* --- what it tells of itself -------------------------------------------------------------- */

/*
 * Makes a store of its own in a new directory, with a state of this store that has
 * everything written before the call (and maybe some of what is written beside it, but always a
 * prefix of the order of batches), and with the named snapshots that were made before. Writers and readers go on meanwhile.
 *
 * It flushes, and then costs little: files that are finished are hard links, so the directory
 * must be on the same filesystem; of what is being written (a segment of the value log, at most) copies
 * are made. Both stores have the same files then, and neither ever writes into them: each may be used,
 * compacted and deleted without the other's noticing. Damage to a shared file is damage to both.
 *
 * On return the checkpoint is durable. It becomes a store in its last step: what a crash leaves
 * before is a directory without the file CURRENT, which no opening takes for a store; remove it.
 * After any failure the directory is removed again, as far as that works, and this store
 * is as it was: -EEXIST when there is something of that name, -ENOENT when its parent is missing,
 * KV_E_other_filesystem, KV_E_no_space, other errors of the system.
 */
int kv_checkpoint(struct kv_db *db, const char *dir) KV_NODISCARD;

#define KV_LEVELS 7

struct kv_stats {
	uint64_t seqno;			/* of the last batch */
	uint64_t memtable_bytes;	/* all memtables: what is in them */
	uint64_t cache_bytes;		/* blocks, indexes, filters */
	uint64_t memory_bytes;		/* all that is in the budget of options.cache_bytes, with the two */
	uint64_t table_count[KV_LEVELS];
	uint64_t table_bytes[KV_LEVELS];
	uint64_t segment_count;
	uint64_t segment_bytes;		/* files of the value log */
	uint64_t segment_bytes_live;	/* of that, referenced by tables (an upper bound) */
	uint64_t disk_bytes;		/* all files of the store */
	uint64_t snapshots;		/* given out and not freed */
	uint64_t named_snapshots;
	/* Since the store was opened: */
#define KV_COUNTERS(x)                                                          \
	x(batches,		"batches written")                              \
	x(batch_bytes,		"bytes of keys and values in them")             \
	x(groups,		"group commits")                                \
	x(syncs,		"syncs of the journal")                         \
	x(journal_bytes,	"bytes written to journals")                    \
	x(vlog_bytes,		"bytes written to the value log")               \
	x(flush_bytes,		"bytes of tables written by flushes")           \
	x(compact_read_bytes,	"bytes of tables read by compactions")          \
	x(compact_write_bytes,	"bytes of tables written by compactions")       \
	x(flushes,		"memtables flushed")                            \
	x(compactions,		"compactions")                                  \
	x(ingests,		"sorted runs taken in")                         \
	x(ingest_bytes,		"bytes of tables written by them")              \
	x(delayed_writes,	"writes slowed down")                           \
	x(delay_us,		"microseconds by which they were")              \
	x(stopped_writes,	"writes that had to wait")                      \
	x(stop_us,		"microseconds that they waited")                \
	x(gets,			"gets")                                         \
	x(seeks,		"seeks of iterators")                           \
	x(filter_skips,		"tables that a filter ruled out")               \
	x(cache_hits,		"blocks and values found in the cache")         \
	x(cache_misses,		"blocks and values read to be kept there")      \
	x(segments_dropped,	"segments deleted since nothing referred to them") \
	x(gc_runs,		"collections of garbage in the value log")      \
	x(gc_copied_bytes,	"bytes of live values copied by them")
#define X(name, text) uint64_t name;
	KV_COUNTERS(X)
#undef X
};

void kv_stats(struct kv_db *db, struct kv_stats *out_stats);

/*
 * How long things take, since the store was opened. What happens too often to be timed each time is
 * drawn: one of so many.
 */
#define KV_LATENCIES(x)                                                         \
	/* name		one of	what */                                         \
	x(get,		16,	"gets")                                         \
	x(seek,		16,	"seeks of iterators")                           \
	x(write,	4,	"batches, until they are visible")              \
	x(durable,	1,	"batches, until they are durable")              \
	x(sync,		1,	"syncs of journals and segments")               \
	x(flush,	1,	"memtables written to tables")                  \
	x(compact,	1,	"compactions")                                  \
	x(collect,	1,	"collections of garbage in the value log")

enum kv_latency_kind {
#define X(name, one_of, text) KV_LATENCY_##name,
	KV_LATENCIES(X)
#undef X
	KV_LATENCY_KINDS
};

/* Quantiles are exact to a sixteenth, rounded up. All 0 when count is. */
struct kv_latency {
	uint64_t count;			/* that were timed */
	uint64_t mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns;
};

void kv_latency(struct kv_db *db, enum kv_latency_kind kind, struct kv_latency *out_latency);

/*
 * The same and more by name, as text for people (appended to out) or as a number. The property
 * "properties" lists all names. KV_E_not_found when there is none of that name; and, for a number,
 * when it is one that is text only.
 */
int kv_property(struct kv_db *db, const char *name, struct kv_buf *out) KV_NODISCARD;
int kv_property_number(struct kv_db *db, const char *name, uint64_t *out_number) KV_NODISCARD;

#endif
