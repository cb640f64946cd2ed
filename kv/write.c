/*
 * The commit. A batch goes through four stages:
 *	pressure	in the caller's thread, without locks: slowed down or
 *			stopped while flush and compaction lag behind
 *	prepare		in the caller's thread: operations are encoded, bulk
 *			values compressed and summed, parts resolved
 *	commit		writers queue up; the first leads a group of them: room is
 *			reserved, seqnos assigned, values appended to the
 *			segment, one chunk to the journal, everything inserted
 *			into the memtable, and published
 *	sync		who asked for it waits until its seqno is durable (sync.c);
 *			a writer that didn't ask never waits for a sync. Small batches
 *			that ask gather before the commit, while one sync runs
 *
 * CRASH: "no space" is found out before a seqno is assigned, and then nothing has
 * happened. From there on a failure poisons: whether the group survives is
 * unknown until recovery has looked, and its seqnos are never used again (K3).
 */
#include "kv/write.h"

#include <inttypes.h>

#define GROUP_BYTES_MAX (1 * KV_MIB)	/* encoded; a larger batch makes a group of its own */
#define GROUP_BULK_BYTES_MAX (16 * KV_MIB)
#define GROUP_WRITERS_MAX 256		/* one iovec each */
#define CHAIN_WRITERS_MAX (GROUP_WRITERS_MAX / 2)
#define CHAIN_BATCH_BYTES_MAX (4 * KV_KIB)
#define MEMTABLE_RANGEDELS_MAX 1024	/* they are fragmented anew for readers */
#define DELETES_MUCH 64			/* or one range tombstone */
#define BULK_MUCH_PART 8		/* of a segment: values that may have overwritten others */

struct group {
	struct kv_writer *writers[GROUP_WRITERS_MAX];
	size_t count;
	uint64_t bytes, bulk_bytes, ops, user_bytes;
};

/* --- the memtable's turn ------------------------------------------------------------------- */

static int journal_begin(struct kv_db *db, struct kv_live_journal *j)
{
	struct kv_journal *before = db->journal->journal;
	struct kv_journal_begin begin = {
		.previous_no = kv_le64(db->journal->number),
		.seqno = kv_le64(db->seqno_last),
	};
	struct iovec iov = { &begin, sizeof(begin) };

	KV_TRY(kv_journal_append(before, KV_CHUNK_END, db->seqno_last, 0, NULL, 0));
	begin.previous_bytes = kv_le64(kv_journal_bytes(before));
	return kv_journal_append(j->journal, KV_CHUNK_BEGIN, db->seqno_last, 0, &iov, 1);
}

/*
 * The journal that was prepared ahead, or a new one. Numbers must ascend, so nobody
 * prepares one until give_journal().
 */
static int take_journal(struct kv_db *db, struct kv_live_journal **out)
{
	struct kv_live_journal *j;

	kv_mutex_lock(&db->mu);
	while (db->preparing_journal)
		kv_cond_wait(&db->done_cond, &db->mu);
	j = db->journal_next;
	db->journal_next = NULL;
	db->preparing_journal = true;
	kv_mutex_unlock(&db->mu);
	if (j) {
		*out = j;
		return 0;
	}
	return kv_live_journal_new(db, out);
}

/* j: one that was taken, but not used; else NULL. */
static void give_journal(struct kv_db *db, struct kv_live_journal *j)
{
	kv_mutex_lock(&db->mu);
	db->journal_next = j;
	db->journal_wanted = false;
	db->preparing_journal = false;
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);
}

/* Everything that can fail harmlessly. */
static int switch_prepare(struct kv_db *db, struct kv_live_journal *j, struct kv_memtable **out_mem,
			  struct kv_readstate **out_rs)
{
	KV_TRY(kv_err_space(kv_journal_reserve(db->journal->journal, 0)));
	KV_TRY(kv_err_space(kv_journal_reserve(j->journal, sizeof(struct kv_journal_begin))));
	*out_mem = kv_memtable_new_charged(j->number, db->cache);
	if (!*out_mem)
		return -ENOMEM;
	*out_rs = kv_readstate_new();
	if (!*out_rs) {
		kv_memtable_unref(*out_mem);
		return -ENOMEM;
	}
	return 0;
}

static void switch_memory(struct kv_db *db, struct kv_live_journal *j, struct kv_memtable *mem,
			  struct kv_readstate *rs)
{
	struct kv_readstate *old;

	db->journal = j;
	db->marked_bytes = 0;
	db->deletes_told = false;
	kv_mutex_lock(&db->mu);
	KV_ASSERT(db->imm_count < KV_IMM_MAX);
	kv_list_push_back(&db->journals, &j->link);
	db->imm[db->imm_count] = db->mem;
	db->imm_seqno[db->imm_count] = db->seqno_last;
	db->imm_count++;
	db->imm_switched++;
	db->mem = mem;
	db->journal_wanted = !db->options.inline_work;
	old = kv_readstate_swap_locked(db, rs);
	atomic_store(&db->imm_full, db->imm_count == KV_IMM_MAX);
	kv_work_want_locked(db);
	kv_mutex_unlock(&db->mu);
	kv_readstate_unref(old);
}

int kv_memtable_switch(struct kv_db *db)
{
	struct kv_live_journal *j = NULL;
	struct kv_memtable *mem = NULL;
	struct kv_readstate *rs = NULL;
	int err = take_journal(db, &j);

	if (!err)
		err = switch_prepare(db, j, &mem, &rs);
	if (err) {
		give_journal(db, j);
		return kv_err_passes(err) ? err : kv_poison(db, err);
	}
	give_journal(db, NULL);
	err = journal_begin(db, j);
	if (err) {
		kv_live_journal_unref(db, j);
		kv_memtable_unref(mem);
		kv_readstate_unref(rs);
		return kv_poison(db, err);
	}
	switch_memory(db, j, mem, rs);
	return 0;
}

bool kv_memtable_frees_much(const struct kv_db *db, const struct kv_memtable *m)
{
	return kv_memtable_delete_count(m) +
	       (uint64_t)DELETES_MUCH * kv_memtable_rangedel_count(m) >= DELETES_MUCH ||
	       kv_memtable_bulk_bytes(m) >= db->options.segment_bytes / BULK_MUCH_PART;
}

static bool memtable_is_full(struct kv_db *db)
{
	return kv_memtable_bytes(db->mem) >= db->options.memtable_bytes ||
	       kv_memtable_bulk_bytes(db->mem) >= db->options.bulk_bytes_per_memtable ||
	       kv_memtable_rangedel_count(db->mem) >= MEMTABLE_RANGEDELS_MAX;
}

/* Waits until a memtable has been flushed, or until that has failed. */
static int wait_for_flush(struct kv_db *db)
{
	uint64_t start = kv_now_ns(db), failures, us;
	int err = 0;

	if (db->options.inline_work)
		return kv_flush_one(db);
	kv_count(&db->counters.stopped_writes, 1);
	kv_event(db->log, "stall_begin", "reason=flush memtables=%d", KV_IMM_MAX + 1);
	kv_mutex_lock(&db->mu);
	failures = db->flush_failures;
	kv_work_want_locked(db);
	while (db->imm_count == KV_IMM_MAX && !err) {
		if (atomic_load(&db->poisoned))
			err = KV_E_poisoned;
		else if (db->flush_failures != failures && db->flush_error)
			err = db->flush_error;
		else
			kv_cond_wait(&db->done_cond, &db->mu);
	}
	kv_mutex_unlock(&db->mu);
	us = (kv_now_ns(db) - start) / 1000;
	kv_count(&db->counters.stop_us, us);
	kv_event(db->log, "stall_end", "reason=flush us=%" PRIu64, us);
	return err;
}

/* The memtable has room, afterwards, or is a new one. */
static int make_room(struct kv_db *db) KV_REQUIRES(&db->commit_mu)
{
	for (;;) {
		bool imm_full;

		if (atomic_load_explicit(&db->poisoned, memory_order_acquire))
			return KV_E_poisoned;
		if (!memtable_is_full(db))
			return 0;
		kv_mutex_lock(&db->mu);
		imm_full = db->imm_count == KV_IMM_MAX;
		kv_mutex_unlock(&db->mu);
		if (!imm_full)
			return kv_memtable_switch(db);
		KV_TRY(wait_for_flush(db));
	}
}

/* --- the group ------------------------------------------------------------------------------ */

static int take_segment(struct kv_db *db, struct kv_live_segment **out)
{
	struct kv_live_segment *s;

	kv_mutex_lock(&db->mu);
	while (db->preparing_segment)
		kv_cond_wait(&db->done_cond, &db->mu);
	s = db->segment_next;
	db->segment_next = NULL;
	kv_mutex_unlock(&db->mu);
	if (s) {
		*out = s;
		return 0;
	}
	return kv_live_segment_new(db, out);
}

/*
 * Room for the values of a group, in one segment. A segment is left only between
 * groups, when all pointers into it are in a memtable.
 */
static int segment_room(struct kv_db *db, uint64_t bytes)
{
	if (!bytes)
		return 0;
	if (!db->segment || kv_segment_bytes(db->segment->writer) + bytes >
				    KV_MAX(db->options.segment_bytes,
					   bytes + sizeof(struct kv_file_header))) {
		struct kv_live_segment *s;

		KV_TRY(take_segment(db, &s));
		kv_live_segment_finish(db, db->segment);
		db->segment = s;
	}
	return kv_err_space(kv_segment_reserve(db->segment->writer, bytes));
}

static int reserve(struct kv_db *db, const struct group *g)
{
	int err = segment_room(db, g->bulk_bytes);

	if (!err)
		err = kv_err_space(kv_journal_reserve(db->journal->journal, g->bytes));
	return !err || kv_err_passes(err) ? err : kv_poison(db, err);
}

/* Appends the bulk values of one batch, and fills their pointers in. */
static int append_bulk(struct kv_db *db, struct kv_writer *w)
{
	if (!w->bulk_count)
		return 0;
	for (size_t i = 0; i < w->bulk_count; i++)
		w->puts[i].seqno = w->seqno_first + w->bulks[i].op;
	KV_TRY(kv_segment_append(db->segment->writer, w->puts, w->bulk_count, w->ptrs));
	for (size_t i = 0; i < w->bulk_count; i++) {
		struct kv_vptr_disk disk;

		kv_vptr_encode(&w->ptrs[i], &disk);
		memcpy(w->batch->encoded.data + w->bulks[i].at, &disk, sizeof(disk));
	}
	return 0;
}

static int append_journal(struct kv_db *db, const struct group *g)
{
	struct iovec iov[GROUP_WRITERS_MAX];

	for (size_t i = 0; i < g->count; i++)
		iov[i] = (struct iovec){ g->writers[i]->batch->encoded.data,
					 g->writers[i]->batch->encoded.bytes };
	return kv_journal_append(db->journal->journal, KV_CHUNK_BATCHES,
				 g->writers[0]->seqno_first, (uint32_t)g->ops, iov,
				 (int)g->count);
}

static int insert(struct kv_db *db, struct kv_writer *w)
{
	struct kv_slice left = kv_buf_slice(&w->batch->encoded);
	kv_seqno seqno = w->seqno_first;
	size_t next_add = 0;
	struct kv_op op;

	while (left.bytes) {
		bool taken = kv_op_take(&left, &op);

		KV_ASSERT(taken);
		KV_TRY(kv_memtable_add(db->mem, seqno++, op.kind, op.key, op.value));
		if (next_add < w->add_count &&
		    w->adds[next_add].at ==
			    (size_t)((const uint8_t *)op.value.data - w->batch->encoded.data))
			next_add++;
		else if (db->counter_cache)
			kv_counters_changed(db->counter_cache, &op);
	}
	KV_ASSERT(seqno == w->seqno_last + 1 && next_add == w->add_count);
	return 0;
}

/* From here on a failure poisons. */
static int carry_out(struct kv_db *db, const struct group *g)
{
	for (size_t i = 0; i < g->count; i++) {
		struct kv_writer *w = g->writers[i];

		w->seqno_first = db->seqno_last + 1;
		w->seqno_last = db->seqno_last + w->batch->count;
		db->seqno_last = w->seqno_last;
		kv_counters_patch(db, w);
		KV_TRY(append_bulk(db, w));
	}
	KV_TRY(append_journal(db, g));
	for (size_t i = 0; i < g->count; i++)
		KV_TRY(insert(db, g->writers[i]));
	atomic_store_explicit(&db->seqno_published, db->seqno_last, memory_order_release);
	return 0;
}

static uint64_t group_bytes(const struct group *g)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < g->count; i++)
		bytes += g->writers[i]->batch->encoded.bytes + g->writers[i]->bulk_bytes;
	return bytes;
}

/*
 * Drops from the group the batches that there is no space for, those whose counters
 * can't be had, and one that its check rules out; they get an error of their own.
 */
static void sum_up(struct kv_db *db, struct group *g)
{
	bool low = kv_space_is_low(db, &db->space, group_bytes(g));
	size_t kept = 0;

	kv_counters_trim(db->counter_cache);
	for (size_t i = 0; i < g->count; i++) {
		struct kv_writer *w = g->writers[i];

		w->result = low && !w->batch->use_reserve ? KV_E_no_space :
							    kv_counters_load(db, w);
		if (!w->result && w->check)
			w->result = w->check(db, w->check_arg);
		if (w->result)
			continue;
		g->writers[kept++] = w;
		g->bytes += w->batch->encoded.bytes;
		g->bulk_bytes += w->bulk_bytes;
		g->ops += w->batch->count;
		g->user_bytes += w->batch->user_bytes;
	}
	g->count = kept;
}

static void count_group(struct kv_db *db, const struct group *g)
{
	kv_count(&db->counters.batches, g->count);
	kv_count(&db->counters.batch_bytes, g->user_bytes);
	kv_count(&db->counters.groups, 1);
	kv_count(&db->counters.journal_bytes, g->bytes + sizeof(struct kv_chunk_header));
	kv_count(&db->counters.vlog_bytes, g->bulk_bytes);
}

/* Has the next journal and segment prepared, in time; and tells of deletes. */
static void want_next(struct kv_db *db)
{
	bool journal = kv_memtable_bytes(db->mem) >= db->options.memtable_bytes / 2;
	bool segment = db->segment && kv_segment_bytes(db->segment->writer) >=
					      db->options.segment_bytes / 2;
	bool deletes = !db->deletes_told && kv_memtable_frees_much(db, db->mem);

	if ((!journal && !segment && !deletes) || db->options.inline_work)
		return;
	db->deletes_told = db->deletes_told || deletes;
	kv_mutex_lock(&db->mu);
	journal = journal && !db->journal_wanted && !db->journal_next;
	segment = segment && !db->segment_wanted && !db->segment_next;
	db->journal_wanted |= journal;
	db->segment_wanted |= segment;
	if (journal || segment || deletes)
		kv_work_want_locked(db);
	kv_mutex_unlock(&db->mu);
}

static int commit_locked(struct kv_db *db, struct group *g) KV_REQUIRES(&db->commit_mu)
{
	int err;

	sum_up(db, g);
	if (!g->count)
		return 0;
	KV_TRY(reserve(db, g));
	err = carry_out(db, g);
	if (err) {
		kv_counters_clear(db->counter_cache);
		return kv_poison(db, err);
	}
	count_group(db, g);
	want_next(db);
	return 0;
}

/*
 * Takes from the front of the queue: the leader in any case, others as long
 * as the group stays small; with each its chain. They stay in the queue, so that nobody else
 * leads. One with a check leads its group: so what it looks at is whole, with nothing half-way.
 * Returns how many of the queue these are.
 */
static size_t gather(struct kv_db *db, struct group *g)
{
	uint64_t bytes = 0, bulk_bytes = 0;
	size_t n = 0;

	g->count = 0;
	g->bytes = g->bulk_bytes = g->ops = g->user_bytes = 0;
	kv_mutex_lock(&db->queue_mu);
	kv_list_for_each(l, &db->queue) {
		struct kv_writer *w = kv_container_of(l, struct kv_writer, link), *c = w;
		size_t count = 0;

		do {
			bytes += c->batch->encoded.bytes;
			bulk_bytes += c->bulk_bytes;
			count++;
		} while ((c = c->chain) != NULL);
		if (n && (w->check || g->count + count > GROUP_WRITERS_MAX ||
			  bytes > GROUP_BYTES_MAX ||
			  bulk_bytes > GROUP_BULK_BYTES_MAX))
			break;
		c = w;
		do
			g->writers[g->count++] = c;
		while ((c = c->chain) != NULL);
		n++;
	}
	kv_mutex_unlock(&db->queue_mu);
	return n;
}

/* Takes the n first writers from the queue, and wakes them and the next leader. */
static void dismiss(struct kv_db *db, struct kv_writer *leader, size_t n, int err)
{
	kv_mutex_lock(&db->queue_mu);
	for (size_t i = 0; i < n; i++) {
		struct kv_writer *w = kv_container_of(db->queue.next, struct kv_writer, link);

		kv_list_remove(&w->link);
		for (struct kv_writer *c = w; c; c = c->chain)
			if (err && !c->result)
				c->result = err;
		w->done = true;
		if (w != leader)
			kv_cond_signal(&w->cond);
	}
	if (!kv_list_empty(&db->queue))
		kv_cond_signal(&kv_container_of(db->queue.next, struct kv_writer, link)->cond);
	kv_mutex_unlock(&db->queue_mu);
}

static void lead(struct kv_db *db, struct kv_writer *leader)
{
	struct group g;
	size_t n;
	int err;

	kv_mutex_lock(&db->commit_mu);
	err = make_room(db);
	n = gather(db, &g);
	if (!err)
		err = commit_locked(db, &g);
	kv_mutex_unlock(&db->commit_mu);
	dismiss(db, leader, n, err);
}

static int commit(struct kv_db *db, struct kv_writer *w)
{
	bool leads;

	kv_mutex_lock(&db->queue_mu);
	kv_list_push_back(&db->queue, &w->link);
	while (!w->done && db->queue.next != &w->link)
		kv_cond_wait(&w->cond, &db->queue_mu);
	leads = !w->done;
	kv_mutex_unlock(&db->queue_mu);
	if (leads)
		lead(db, w);
	return w->result;
}

/* --- durable together ----------------------------------------------------------------------- */

/* Would its append delay others much, does it hold a lock, or must it lead? Then it goes its way alone. */
static bool may_chain(const struct kv_writer *w)
{
	return !w->bulk_count && !w->parts && !w->check &&
	       w->batch->encoded.bytes <= CHAIN_BATCH_BYTES_MAX;
}

/* The last touch, when it is over: w returns and is gone. */
static void tell(struct kv_writer *w, enum kv_turn turn)
{
	kv_mutex_lock(&w->mu);
	w->turn = turn;
	kv_cond_signal(&w->cond);
	kv_mutex_unlock(&w->mu);
}

/* Leads, with those who wait, unless somebody else does (and may have taken it along). */
static bool try_lead(struct kv_db *db, struct kv_writer *w)
{
	struct kv_writer *last = w;
	bool leads;

	kv_mutex_lock(&db->sync_mu);
	leads = !db->durable_led && !kv_list_empty(&w->link);
	if (leads) {
		db->durable_led = true;
		kv_list_remove(&w->link);
	}
	for (size_t i = 1; leads && i < CHAIN_WRITERS_MAX && !kv_list_empty(&db->durable_queue);
	     i++) {
		last->chain = kv_container_of(db->durable_queue.next, struct kv_writer, link);
		last = last->chain;
		kv_list_remove(&last->link);
	}
	kv_mutex_unlock(&db->sync_mu);
	return leads;
}

static enum kv_turn wait_for_turn(struct kv_writer *w)
{
	enum kv_turn turn;

	kv_mutex_lock(&w->mu);
	while (w->turn == KV_TURN_NONE)
		kv_cond_wait(&w->cond, &w->mu);
	turn = w->turn;
	w->turn = KV_TURN_NONE;
	kv_mutex_unlock(&w->mu);
	return turn;
}

/*
 * Wakes one that may lead, and then those for whom it is over. Who comes running may lead before
 * it has woken: on a busy machine that takes long, and nobody should wait for it.
 */
static void end_turn(struct kv_db *db, struct kv_writer *leader)
{
	kv_mutex_lock(&db->sync_mu);
	db->durable_led = false;
	/* Under the lock: it can't be taken along, and be gone, meanwhile. */
	if (!kv_list_empty(&db->durable_queue))
		tell(kv_container_of(db->durable_queue.next, struct kv_writer, link),
		     KV_TURN_LEAD);
	kv_mutex_unlock(&db->sync_mu);
	for (struct kv_writer *c = leader->chain, *next; c; c = next) {
		next = c->chain;
		tell(c, KV_TURN_OVER);
	}
}

static void make_durable(struct kv_db *db, struct kv_writer *leader)
{
	kv_seqno seqno = 0;
	int err = 0;

	(void)commit(db, leader); /* each has its own result */
	for (struct kv_writer *c = leader; c; c = c->chain)
		if (!c->result)
			seqno = KV_MAX(seqno, c->seqno_last);
	if (seqno)
		err = kv_sync_to(db, seqno);
	for (struct kv_writer *c = leader; c; c = c->chain)
		if (!c->result)
			c->result = err;
}

/*
 * Small batches that are to be durable gather while one sync runs, since they have to wait
 * for the next one anyway. Then the first commits and syncs for all of them: each of the
 * others is woken once, when all is over for it, and by a lock of its own. They wait before
 * the queue, so that who wants no sync does not wait for theirs.
 */
static int commit_durable(struct kv_db *db, struct kv_writer *w)
{
	enum kv_turn turn = KV_TURN_NONE;

	kv_mutex_lock(&db->sync_mu);
	kv_list_push_back(&db->durable_queue, &w->link);
	kv_mutex_unlock(&db->sync_mu);
	while (turn != KV_TURN_OVER) {
		if (try_lead(db, w)) {
			make_durable(db, w);
			end_turn(db, w);
			break;
		}
		turn = wait_for_turn(w);
	}
	return w->result;
}

/* --- the whole ----------------------------------------------------------------------------------- */

static int commit_and_sync(struct kv_db *db, struct kv_writer *w, bool sync)
{
	KV_TRY(commit(db, w));
	return sync ? kv_sync_to(db, w->seqno_last) : 0;
}

int kv_write_if(struct kv_db *db, struct kv_batch *b, kv_write_check_fn *check, void *arg, bool sync)
{
	struct kv_writer w = { .batch = b, .check = check, .check_arg = arg };
	bool timed;
	uint64_t start;
	int err;

	if (b->error)
		return b->error;
	if (db->options.read_only)
		return KV_E_read_only;
	if (atomic_load_explicit(&db->poisoned, memory_order_acquire))
		return KV_E_poisoned;
	if (!b->count)
		return sync ? kv_sync(db) : 0;
	if (b->user_bytes > KV_BATCH_BYTES_MAX)
		return KV_E_too_big;

	timed = sync || kv_is_drawn(atomic_fetch_add_explicit(&db->writes, 1,
							       memory_order_relaxed),
				     KV_TIMED_write);
	start = timed ? kv_now_ns(db) : 0;
	KV_TRY(kv_pressure(db, b));
	kv_mutex_init(&w.mu);
	kv_cond_init(&w.cond);
	err = kv_writer_prepare(db, &w);
	if (!err && check)
		err = check(db, arg);
	if (!err && sync && may_chain(&w))
		err = commit_durable(db, &w);
	else if (!err)
		err = commit_and_sync(db, &w, sync);
	kv_writer_done(db, &w);
	kv_cond_done(&w.cond);
	kv_mutex_done(&w.mu);
	if (timed && !err)
		kv_latency_add(db, sync ? KV_LATENCY_durable : KV_LATENCY_write, start);
	if (db->options.inline_work)
		kv_work_schedule(db);
	return err;
}

int kv_write(struct kv_db *db, struct kv_batch *b, bool sync)
{
	return kv_write_if(db, b, NULL, NULL, sync);
}
