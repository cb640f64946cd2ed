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
 *			a writer that didn't ask never waits for a sync
 *
 * A pointer is encoded as 48 zero bytes, and a counter as 8, and both are filled
 * in by the leader, who alone knows where a value went and what a counter is.
 *
 * CRASH: "no space" is found out before a seqno is assigned, and then nothing has
 * happened. From there on a failure poisons: whether the group survives is
 * unknown until recovery has looked, and its seqnos are never used again (K3).
 */
#include "kv/db.h"

#include "kv/checksum.h"
#include "kv/compress.h"

#define GROUP_BYTES_MAX (1 * KV_MIB)	/* encoded; a larger batch makes a group of its own */
#define GROUP_BULK_BYTES_MAX (16 * KV_MIB)
#define GROUP_WRITERS_MAX 256		/* one iovec each */
#define MEMTABLE_RANGEDELS_MAX 1024	/* they are fragmented anew for readers */
#define DELETES_MUCH 64			/* or one range tombstone */
#define BULK_MUCH_PART 8		/* of a segment: values that may have overwritten others */

/* A value that goes to the segment. */
struct bulk {
	size_t at;			/* of the pointer in the encoded batch */
	uint32_t op;			/* index in the batch */
	bool in_stored;			/* the stored bytes lie in writer->stored, at stored_at */
	size_t stored_at;
};

/* A counter that the leader computes. */
struct add {
	size_t at;			/* of the 8 bytes in the encoded batch */
	struct kv_slice key;
	int64_t delta;
	bool has_base;			/* the batch itself has put or deleted the key before */
	int64_t base;
};

/* A batch on its way, in the stack of its caller. */
struct kv_writer {
	struct kv_link link;		/* in db->queue */
	struct kv_cond cond;
	bool done;			/* under queue_mu */
	int result;
	struct kv_batch *batch;
	struct kv_buf stored;		/* compressed and copied values */
	struct bulk *bulks;
	struct kv_segment_put *puts;	/* one for each of them */
	struct kv_vptr *ptrs;
	size_t bulk_count, bulk_count_max, put_count_max;
	uint64_t bulk_bytes;		/* of the segment that they will take */
	struct add *adds;
	size_t add_count, add_count_max;
	struct kv_readstate *parts;	/* what parts are looked up in; parts_lock is held */
	kv_seqno seqno_parts;
	kv_seqno seqno_first, seqno_last;
};

struct group {
	struct kv_writer *writers[GROUP_WRITERS_MAX];
	size_t count;
	uint64_t bytes, bulk_bytes, ops, user_bytes;
};

/* Makes room for one more element in an array. */
static int grow(void *array, size_t count, size_t *count_max, size_t element_bytes)
{
	size_t n = *count_max ? 2 * *count_max : 8;
	void *p;

	if (count < *count_max)
		return 0;
	memcpy(&p, array, sizeof(p));
	p = realloc(p, n * element_bytes);
	if (!p)
		return -ENOMEM;
	memcpy(array, &p, sizeof(p));
	*count_max = n;
	return 0;
}

/* --- counters --------------------------------------------------------------------------- */

/*
 * What the few keys are that kv_batch_add() changes, so that adding costs no
 * look-up. Belongs to the commit. An entry is forgotten when its key is put or deleted.
 */
#define COUNTERS_KEPT_MAX 256		/* from one group to the next */

struct counter {
	struct kv_buf key;
	int64_t value;
};

struct kv_counter_cache {
	struct counter *at;
	size_t count, count_max;
};

static void counter_forget(struct kv_counter_cache *c, size_t i)
{
	kv_buf_done(&c->at[i].key);
	c->at[i] = c->at[--c->count];
}

static void counters_clear(struct kv_counter_cache *c)
{
	while (c && c->count)
		counter_forget(c, c->count - 1);
}

void kv_counter_cache_free(struct kv_counter_cache *c)
{
	if (!c)
		return;
	counters_clear(c);
	free(c->at);
	free(c);
}

static struct counter *counter_find(struct kv_counter_cache *c, struct kv_slice key)
{
	for (size_t i = 0; c && i < c->count; i++)
		if (kv_slice_eq(kv_buf_slice(&c->at[i].key), key))
			return &c->at[i];
	return NULL;
}

/* Somebody else has changed the key, or keys. */
static void counters_changed(struct kv_counter_cache *c, const struct kv_op *op)
{
	for (size_t i = c ? c->count : 0; i-- > 0;) {
		struct kv_slice key = kv_buf_slice(&c->at[i].key);

		if (op->kind == KV_KIND_DELETE_RANGE ?
		    kv_slice_cmp(op->key, key) <= 0 && kv_slice_cmp(key, op->value) < 0 :
		    kv_slice_eq(op->key, key))
			counter_forget(c, i);
	}
}

static int counter_read(struct kv_db *db, struct kv_slice key, int64_t *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	int err = kv_get(db, NULL, key, &value);
	le64 v;

	if (err == KV_E_not_found) {
		*out = 0;
		return 0;
	}
	KV_TRY(err);
	if (value.bytes != sizeof(v))
		return -EINVAL;
	memcpy(&v, value.data, sizeof(v));
	*out = (int64_t)kv_le64_get(v);
	return 0;
}

static int counter_load(struct kv_db *db, struct kv_slice key)
{
	struct kv_counter_cache *cache;
	struct counter *c;
	int64_t value;

	if (counter_find(db->counter_cache, key))
		return 0;
	KV_TRY(counter_read(db, key, &value));
	if (!db->counter_cache) {
		db->counter_cache = calloc(1, sizeof(*db->counter_cache));
		if (!db->counter_cache)
			return -ENOMEM;
	}
	cache = db->counter_cache;
	KV_TRY(grow(&cache->at, cache->count, &cache->count_max, sizeof(*cache->at)));
	c = &cache->at[cache->count];
	*c = (struct counter){ KV_BUF_INIT, value };
	KV_TRY(kv_buf_assign(&c->key, key));
	cache->count++;
	return 0;
}

/* All counters of the batch are in the cache on return. */
static int counters_load(struct kv_db *db, struct kv_writer *w)
{
	for (size_t i = 0; i < w->add_count; i++)
		KV_TRY(counter_load(db, w->adds[i].key));
	return 0;
}

static void counters_patch(struct kv_db *db, struct kv_writer *w)
{
	for (size_t i = 0; i < w->add_count; i++) {
		struct add *a = &w->adds[i];
		struct counter *c = counter_find(db->counter_cache, a->key);
		le64 v;

		/* Unsigned: a counter wraps around. */
		if (a->has_base)
			c->value = a->base;
		c->value = (int64_t)((uint64_t)c->value + (uint64_t)a->delta);
		v = kv_le64((uint64_t)c->value);
		memcpy(w->batch->encoded.data + a->at, &v, sizeof(v));
	}
}

/* --- prepare ----------------------------------------------------------------------------- */

static uint64_t record_bytes(const struct kv_segment_put *p)
{
	uint64_t bytes = sizeof(struct kv_vlog_record) + p->key.bytes + p->stored.bytes;

	return (bytes + KV_RECORD_ALIGN - 1) / KV_RECORD_ALIGN * KV_RECORD_ALIGN;
}

/* The value goes to the segment. stays: its bytes are there until the end of kv_write(). */
static int encode_bulk(struct kv_db *db, struct kv_writer *w, uint32_t op, struct kv_slice key,
		       struct kv_slice value, enum kv_hint hint, bool stays)
{
	static const struct kv_vptr_disk none;
	struct bulk b = { .op = op, .stored_at = w->stored.bytes };
	struct kv_segment_put put = { .key = key, .raw_bytes = (uint32_t)value.bytes };

	KV_TRY(grow(&w->bulks, w->bulk_count, &w->bulk_count_max, sizeof(*w->bulks)));
	KV_TRY(grow(&w->puts, w->bulk_count, &w->put_count_max, sizeof(*w->puts)));
	if (!db->options.no_compression && hint != KV_HINT_INCOMPRESSIBLE)
		put.codec = kv_compress(KV_CODEC_LZ4, value, &w->stored);
	if (put.codec == KV_CODEC_NONE && !stays)
		KV_TRY(kv_buf_append_slice(&w->stored, value));
	b.in_stored = put.codec != KV_CODEC_NONE || !stays;
	put.stored = b.in_stored ?
		     kv_slice(w->stored.data + b.stored_at, w->stored.bytes - b.stored_at) : value;
	put.value_checksum = kv_checksum(put.stored, 0);
	KV_TRY(kv_op_append(&w->batch->encoded, KV_KIND_PUT_PTR, key,
			    kv_slice(&none, sizeof(none))));
	b.at = w->batch->encoded.bytes - sizeof(none);
	w->bulk_bytes += record_bytes(&put);
	w->bulks[w->bulk_count] = b;
	w->puts[w->bulk_count++] = put;
	return 0;
}

static int encode_put(struct kv_db *db, struct kv_writer *w, uint32_t op, struct kv_slice key,
		      struct kv_slice value, enum kv_hint hint, bool stays)
{
	if (value.bytes >= db->options.bulk_bytes)
		return encode_bulk(db, w, op, key, value, hint, stays);
	return kv_op_append(&w->batch->encoded, KV_KIND_PUT, key, value);
}

static bool is_dying(struct kv_db *db, kv_fileno segment_no)
{
	for (size_t i = 0; i < db->dying_count; i++)
		if (db->dying[i] == segment_no)
			return true;
	return false;
}

/*
 * Can the part be a reference? A small rest of a large value is copied: it
 * would keep the whole value's space.
 */
static bool may_share(struct kv_db *db, const struct kv_vptr *p)
{
	return !is_dying(db, p->segment_no) && p->part_bytes && p->part_bytes >= p->raw_bytes / 4;
}

/*
 * A part of what from_key has now. The lock is held from here until the memtable has
 * the pointer: in between nothing else shows that its segment is needed.
 */
static int encode_part(struct kv_db *db, struct kv_writer *w, uint32_t i,
		       const struct kv_batch_op *op) KV_NO_TSA
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct kv_vptr_disk disk;
	struct kv_found found;
	struct kv_vptr p;
	uint32_t bytes;

	if (!w->parts) {
		kv_rwlock_read(&db->parts_lock);
		w->parts = kv_readstate_ref(db);
		w->seqno_parts = atomic_load_explicit(&db->seqno_published, memory_order_acquire);
	}
	KV_TRY(kv_readstate_get(db, w->parts, op->value, w->seqno_parts, &found, &pin));
	if (!found.found)
		return KV_E_not_found;
	KV_TRY(kv_value_bytes(found.kind, found.value, &bytes));
	if (op->part_offset > bytes || op->part_bytes > bytes - op->part_offset)
		return -EINVAL;
	if (found.kind == KV_KIND_PUT_PTR) {
		KV_TRY(kv_vptr_decode(found.value, &p));
		p.part_offset += op->part_offset;
		p.part_bytes = op->part_bytes;
		if (may_share(db, &p)) {
			kv_vptr_encode(&p, &disk);
			return kv_op_append(&w->batch->encoded, KV_KIND_PUT_PTR, op->key,
					    kv_slice(&disk, sizeof(disk)));
		}
	}
	if (op->part_bytes)
		KV_TRY(kv_value_fetch(db, found.kind, found.value, NULL, &value));
	return encode_put(db, w, i, op->key,
			  kv_slice(op->part_bytes ? value.data + op->part_offset : NULL,
				   op->part_bytes),
			  KV_HINT_NONE, false);
}

/*
 * What the batch itself has made of the key before its operation i: that, and
 * not what the store has, is what is added to. A put by reference can't be known here.
 */
static int base_in_batch(struct kv_batch *b, uint32_t i, struct add *a)
{
	while (i-- > 0) {
		struct kv_batch_op *op = &b->ops[i];
		le64 v;

		if (op->ask == KV_ASK_DELETE_RANGE) {
			a->has_base = kv_slice_cmp(op->key, a->key) <= 0 &&
				      kv_slice_cmp(a->key, op->value) < 0;
		} else if (kv_slice_eq(op->key, a->key)) {
			if (op->ask == KV_ASK_ADD)
				return 0;
			if (op->ask == KV_ASK_PUT_PART || (op->ask == KV_ASK_PUT &&
							   op->value.bytes != sizeof(v)))
				return -EINVAL;
			a->has_base = true;
			if (op->ask == KV_ASK_PUT) {
				memcpy(&v, op->value.data, sizeof(v));
				a->base = (int64_t)kv_le64_get(v);
			}
		}
		if (a->has_base)
			return 0;
	}
	return 0;
}

static int encode_add(struct kv_writer *w, uint32_t i, const struct kv_batch_op *op)
{
	static const le64 zero;
	struct add *a;

	KV_TRY(grow(&w->adds, w->add_count, &w->add_count_max, sizeof(*w->adds)));
	a = &w->adds[w->add_count];
	*a = (struct add){ .key = op->key, .delta = op->delta };
	KV_TRY(base_in_batch(w->batch, i, a));
	KV_TRY(kv_op_append(&w->batch->encoded, KV_KIND_PUT, op->key,
			    kv_slice(&zero, sizeof(zero))));
	a->at = w->batch->encoded.bytes - sizeof(zero);
	w->add_count++;
	return 0;
}

static int encode_op(struct kv_db *db, struct kv_writer *w, uint32_t i)
{
	struct kv_batch_op *op = &w->batch->ops[i];
	struct kv_buf *to = &w->batch->encoded;

	switch (op->ask) {
	case KV_ASK_PUT:
		return encode_put(db, w, i, op->key, op->value, op->hint, true);
	case KV_ASK_DELETE:
		return kv_op_append(to, KV_KIND_DELETE, op->key, kv_slice(NULL, 0));
	case KV_ASK_DELETE_RANGE:
		return kv_op_append(to, KV_KIND_DELETE_RANGE, op->key, op->value);
	case KV_ASK_PUT_PART:
		return encode_part(db, w, i, op);
	case KV_ASK_ADD:
		return encode_add(w, i, op);
	}
	KV_ASSERT(!"an operation of no kind");
	return -EINVAL;
}

static int prepare(struct kv_db *db, struct kv_writer *w)
{
	kv_buf_reset(&w->batch->encoded);
	for (uint32_t i = 0; i < w->batch->count; i++)
		KV_TRY(encode_op(db, w, i));
	if (w->bulk_count) {
		w->ptrs = malloc(w->bulk_count * sizeof(*w->ptrs));
		if (!w->ptrs)
			return -ENOMEM;
	}
	/* The buffer may have moved while it grew. */
	for (size_t i = 0; i < w->bulk_count; i++)
		if (w->bulks[i].in_stored)
			w->puts[i].stored.data = w->stored.data + w->bulks[i].stored_at;
	if (w->batch->encoded.bytes > KV_CHUNK_PAYLOAD_MAX)
		return KV_E_too_big;
	return 0;
}

static void writer_done(struct kv_db *db, struct kv_writer *w) KV_NO_TSA
{
	if (w->parts) {
		kv_readstate_unref(w->parts);
		kv_rwlock_unlock(&db->parts_lock);
	}
	free(w->bulks);
	free(w->puts);
	free(w->ptrs);
	free(w->adds);
	kv_buf_done(&w->stored);
}

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
	*out_mem = kv_memtable_new(j->number);
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
		kv_live_journal_unref(j);
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
	uint64_t start = db->store.env->ops->monotonic_ns(db->store.env), failures;
	int err = 0;

	if (db->options.inline_work)
		return kv_flush_one(db);
	kv_count(&db->counters.stopped_writes, 1);
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
	kv_count(&db->counters.stop_us,
		 (db->store.env->ops->monotonic_ns(db->store.env) - start) / 1000);
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
		else if (db->counter_cache && db->counter_cache->count)
			counters_changed(db->counter_cache, &op);
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
		counters_patch(db, w);
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
 * Drops from the group the batches that there is no space for, and those whose counters
 * can't be had; they get an error of their own.
 */
static void sum_up(struct kv_db *db, struct group *g)
{
	bool low = kv_space_is_low(db, group_bytes(g));
	size_t kept = 0;

	if (db->counter_cache && db->counter_cache->count > COUNTERS_KEPT_MAX)
		counters_clear(db->counter_cache);
	for (size_t i = 0; i < g->count; i++) {
		struct kv_writer *w = g->writers[i];

		w->result = low && !w->batch->use_reserve ? KV_E_no_space :
							    counters_load(db, w);
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
		counters_clear(db->counter_cache);
		return kv_poison(db, err);
	}
	count_group(db, g);
	want_next(db);
	return 0;
}

/*
 * Takes from the front of the queue: the leader in any case, others as long
 * as the group stays small. They stay in the queue, so that nobody else leads.
 */
static void gather(struct kv_db *db, struct group *g)
{
	uint64_t bytes = 0, bulk_bytes = 0;

	g->count = 0;
	g->bytes = g->bulk_bytes = g->ops = g->user_bytes = 0;
	kv_mutex_lock(&db->queue_mu);
	kv_list_for_each(l, &db->queue) {
		struct kv_writer *w = kv_container_of(l, struct kv_writer, link);

		bytes += w->batch->encoded.bytes;
		bulk_bytes += w->bulk_bytes;
		if (g->count && (g->count == GROUP_WRITERS_MAX || bytes > GROUP_BYTES_MAX ||
				 bulk_bytes > GROUP_BULK_BYTES_MAX))
			break;
		g->writers[g->count++] = w;
	}
	kv_mutex_unlock(&db->queue_mu);
}

/* Takes the n first writers from the queue, and wakes them and the next leader. */
static void dismiss(struct kv_db *db, struct kv_writer *leader, size_t n, int err)
{
	kv_mutex_lock(&db->queue_mu);
	for (size_t i = 0; i < n; i++) {
		struct kv_writer *w = kv_container_of(db->queue.next, struct kv_writer, link);

		kv_list_remove(&w->link);
		if (err && !w->result)
			w->result = err;
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
	gather(db, &g);
	n = g.count;
	if (!err)
		err = commit_locked(db, &g);
	kv_mutex_unlock(&db->commit_mu);
	dismiss(db, leader, n, err);
}

static int commit(struct kv_db *db, struct kv_writer *w)
{
	bool leads;

	kv_cond_init(&w->cond);
	kv_mutex_lock(&db->queue_mu);
	kv_list_push_back(&db->queue, &w->link);
	while (!w->done && db->queue.next != &w->link)
		kv_cond_wait(&w->cond, &db->queue_mu);
	leads = !w->done;
	kv_mutex_unlock(&db->queue_mu);
	if (leads)
		lead(db, w);
	kv_cond_done(&w->cond);
	return w->result;
}

/* --- pressure ------------------------------------------------------------------------------- */

/*
 * A writer is slowed down in proportion to what it adds to the memtable and to how
 * far level 0 has grown from the slow mark to the limit: from about 64 MiB/s down to
 * 1 MiB/s. Times too short to sleep are run up first.
 */
#define DELAY_NS_PER_BYTE_MIN 16
#define DELAY_NS_PER_BYTE_MAX 1000
#define DELAY_NS_STEP 1000000
#define OP_BYTES 64			/* what an operation costs beside its key and value */

static uint64_t memtable_cost(struct kv_db *db, const struct kv_batch *b)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < b->count; i++) {
		const struct kv_batch_op *op = &b->ops[i];

		bytes += OP_BYTES + op->key.bytes;
		if (op->ask == KV_ASK_PUT && op->value.bytes < db->options.bulk_bytes)
			bytes += op->value.bytes;
	}
	return bytes;
}

static bool only_deletes(const struct kv_batch *b)
{
	for (uint32_t i = 0; i < b->count; i++)
		if (b->ops[i].ask != KV_ASK_DELETE && b->ops[i].ask != KV_ASK_DELETE_RANGE)
			return false;
	return true;
}

static void sleep_ns(struct kv_db *db, uint64_t ns)
{
	struct kv_env *env = db->store.env;
	uint64_t now = env->ops->monotonic_ns(env), end = now + ns;

	kv_mutex_lock(&db->mu);
	/* Work that gets done wakes it before its time. The clock may be a test's, and stand still. */
	while (now < end && !atomic_load(&db->poisoned) &&
	       kv_cond_wait_for(&db->done_cond, &db->mu, end - now))
		now = env->ops->monotonic_ns(env);
	kv_mutex_unlock(&db->mu);
}

static void slow_down(struct kv_db *db, const struct kv_batch *b, uint32_t level0)
{
	uint32_t slow = db->options.level0_tables_slow, max = db->options.level0_tables_max;
	uint64_t per_byte = DELAY_NS_PER_BYTE_MIN;
	uint64_t ns;

	if (level0 > slow)
		per_byte += (uint64_t)(DELAY_NS_PER_BYTE_MAX - DELAY_NS_PER_BYTE_MIN) *
			    KV_MIN(level0 - slow, max - slow) / (max - slow);
	ns = memtable_cost(db, b) * per_byte;
	ns += atomic_fetch_add_explicit(&db->delay_ns, ns, memory_order_relaxed);
	if (ns < DELAY_NS_STEP)
		return;
	ns = atomic_exchange_explicit(&db->delay_ns, 0, memory_order_relaxed);
	if (!ns)
		return;
	sleep_ns(db, ns);
	kv_count(&db->counters.delayed_writes, 1);
	kv_count(&db->counters.delay_us, ns / 1000);
}

/* Level 0 is at its limit: waits until a compaction has made room. */
static int wait_for_compaction(struct kv_db *db)
{
	struct kv_env *env = db->store.env;
	uint64_t start = env->ops->monotonic_ns(env), failures;
	int err = 0;

	kv_count(&db->counters.stopped_writes, 1);
	kv_mutex_lock(&db->mu);
	failures = db->compact_failures;
	kv_work_want_locked(db);
	while (!err && atomic_load(&db->level0_count) >= db->options.level0_tables_max) {
		if (atomic_load(&db->poisoned))
			err = KV_E_poisoned;
		else if (db->compact_failures != failures && db->compact_error)
			err = db->compact_error;
		else
			kv_cond_wait(&db->done_cond, &db->mu);
	}
	kv_mutex_unlock(&db->mu);
	kv_count(&db->counters.stop_us, (env->ops->monotonic_ns(env) - start) / 1000);
	return err;
}

/* Batches that only delete are let through, down to the memtable's own limit. */
static int pressure(struct kv_db *db, const struct kv_batch *b)
{
	uint32_t level0 = atomic_load_explicit(&db->level0_count, memory_order_relaxed);
	bool imm_full = atomic_load_explicit(&db->imm_full, memory_order_relaxed);

	if (db->options.inline_work || (level0 < db->options.level0_tables_slow && !imm_full) ||
	    only_deletes(b))
		return 0;
	if (level0 >= db->options.level0_tables_max)
		return wait_for_compaction(db);
	slow_down(db, b, level0);
	return 0;
}

/* --- the whole ----------------------------------------------------------------------------------- */

int kv_write(struct kv_db *db, struct kv_batch *b, bool sync)
{
	struct kv_writer w = { .batch = b };
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

	KV_TRY(pressure(db, b));
	err = prepare(db, &w);
	if (!err)
		err = commit(db, &w);
	writer_done(db, &w);
	if (!err && sync)
		err = kv_sync_to(db, w.seqno_last);
	if (db->options.inline_work)
		kv_work_schedule(db);
	return err;
}
