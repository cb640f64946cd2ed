/*
 * The whole engine against a sorted array: random batches, transactions, reads, iterators,
 * snapshots with and without names, flushes, compactions, checkpoints and openings, and
 * after every step both must say the same.
 *
 *	SEED=n OPS=n tests/sim/model_kv
 *
 * OPS are the steps of each of the rounds, which differ in options: tiny
 * ones, so that everything that needs much data happens all the time, and large ones; with threads
 * and without; and several writers at once, each with keys of its own.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <unistd.h>

#include "kv/batch.h"
#include "kv/env.h"
#include "kv/lock.h"
#include "kv/verify.h"
#include "tests/sim/kvref.h"

#define SNAPSHOTS 4
#define ITERS 4
#define NAMES 3		/* named snapshots of one writer */
#define WRITERS 4
#define TOTAL_KEY "~total"	/* all writers add to it */

static uint64_t seed;
static uint64_t ops = 6000;

_Noreturn static void die(int line, const char *what, const char *fmt, ...) KV_PRINTF(3, 4);

static void die(int line, const char *what, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "model_kv.c:%d: %s: ", line, what);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nrepeat: SEED=%" PRIu64 " OPS=%" PRIu64 " tests/sim/model_kv\n", seed, ops);
	abort();
}

#define CHECK(c, ...)                                          \
	do {                                                   \
		if (!(c))                                      \
			die(__LINE__, #c, " " __VA_ARGS__);    \
	} while (0)
#define CHECK_OK(expr)                                                          \
	do {                                                                    \
		int check_err_ = (expr);                                        \
		if (check_err_)                                                 \
			die(__LINE__, #expr, "%s", kv_err_text(check_err_));    \
	} while (0)

struct held_snapshot {
	struct kv_snapshot *snap;
	struct ref state;
};

/* A named snapshot: the store keeps it, we only what it ought to hold. */
struct held_name {
	bool there;
	struct ref state;
};

struct held_iter {
	struct kv_iter *it;
	struct ref state;
	size_t first, end;	/* of the state, within the bounds */
	size_t at;		/* when valid */
	bool valid;
};

/* One writer and all that it knows. */
struct model {
	struct kv_db *db;
	struct ref_gen gen;
	uint64_t random;
	struct ref now;
	struct held_snapshot snapshots[SNAPSHOTS];
	struct held_iter iters[ITERS];
	struct held_name names[NAMES];
	bool alone;		/* nobody else has keys in the store */
	int64_t total;		/* added to TOTAL_KEY */
};

/* --- reading ------------------------------------------------------------------------------ */

static void check_get(struct model *m, const struct kv_snapshot *snap, const struct ref *state)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
	struct ref_name name = ref_name(&m->gen, ref_below(&m->random, m->gen.keys));
	struct kv_slice key = kv_slice_str(name.s);
	size_t i;
	int err;

	if (!ref_has(state, key, &i)) {
		err = kv_get(m->db, snap, key, &got);
		CHECK(err == KV_E_not_found, "%s: %s", name.s, kv_err_text(err));
		err = kv_exists(m->db, snap, key);
		CHECK(err == KV_E_not_found, "%s: %s", name.s, kv_err_text(err));
		return;
	}
	CHECK_OK(kv_exists(m->db, snap, key));
	CHECK_OK(kv_get(m->db, snap, key, &got));
	CHECK(kv_slice_eq(kv_buf_slice(&got), ref_value_at(state, i)), "%s", name.s);
}

/* The iterator stands where it should, on what it should. */
static void check_iter(struct held_iter *h, bool with_value)
{
	struct kv_slice value;

	CHECK_OK(kv_iter_error(h->it));
	CHECK(kv_iter_valid(h->it) == h->valid, "at %zu of %zu..%zu", h->at, h->first, h->end);
	if (!h->valid)
		return;
	CHECK(kv_slice_eq(kv_iter_key(h->it), ref_key_at(&h->state, h->at)), "%.*s, not %.*s",
	      (int)kv_iter_key(h->it).bytes, (const char *)kv_iter_key(h->it).data,
	      (int)ref_key_at(&h->state, h->at).bytes,
	      (const char *)ref_key_at(&h->state, h->at).data);
	CHECK(kv_iter_value_bytes(h->it) == ref_value_at(&h->state, h->at).bytes);
	if (!with_value)
		return;
	CHECK_OK(kv_iter_value(h->it, &value));
	CHECK(kv_slice_eq(value, ref_value_at(&h->state, h->at)));
}

static struct ref_name random_target(struct model *m)
{
	struct ref_name n = ref_name(&m->gen, ref_below(&m->random, m->gen.keys));

	if (ref_chance(&m->random, 30))
		n.s[strlen(n.s) - 1]++;		/* in between, mostly */
	return n;
}

/* What a call with the same name does to the iterator, to the place in the array. */
static void move_to(struct held_iter *h, size_t at)
{
	h->valid = at >= h->first && at < h->end;
	h->at = at;
}

static void move_iter(struct model *m, struct held_iter *h)
{
	uint32_t what = ref_below(&m->random, 100);
	struct ref_name name = random_target(m);
	struct kv_slice key = kv_slice_str(name.s);
	size_t at, unused;

	if (what < 35 && h->valid) {
		kv_iter_next(h->it);
		move_to(h, h->at + 1);
	} else if (what < 70 && h->valid) {
		kv_iter_prev(h->it);
		move_to(h, h->at - 1);	/* of 0: SIZE_MAX, not valid */
	} else if (what < 80) {
		kv_iter_seek(h->it, key);
		at = ref_lower(&h->state, key);
		move_to(h, KV_MAX(at, h->first));
	} else if (what < 90) {
		kv_iter_seek_prev(h->it, key);
		at = ref_lower(&h->state, key) + ref_has(&h->state, key, &unused);
		move_to(h, KV_MIN(at, h->end) - 1);
	} else if (what < 95) {
		kv_iter_seek_first(h->it);
		move_to(h, h->first);
	} else {
		kv_iter_seek_last(h->it);
		move_to(h, h->end - 1);
	}
	check_iter(h, ref_chance(&m->random, 30));
}

static void free_iter(struct held_iter *h)
{
	kv_iter_free(h->it);
	ref_done(&h->state);
	*h = (struct held_iter){ 0 };
}

static void new_iter(struct model *m, struct held_iter *h, const struct kv_snapshot *snap,
		     const struct ref *state)
{
	char all_from[2] = { m->gen.prefix, 0 }, all_to[2] = { (char)(m->gen.prefix + 1), 0 };
	struct ref_name lower = random_target(m), upper = random_target(m);
	struct kv_iter_options o = {
		.snap = snap,
		.no_cache = ref_chance(&m->random, 30),
		.sequential = ref_chance(&m->random, 30),
	};

	if (ref_chance(&m->random, 40))
		o.lower = kv_slice_str(lower.s);
	else if (!m->alone)
		o.lower = kv_slice_str(all_from);
	if (ref_chance(&m->random, 40))
		o.upper = kv_slice_str(upper.s);
	else if (!m->alone)
		o.upper = kv_slice_str(all_to);
	free_iter(h);
	CHECK_OK(kv_iter_new(m->db, &o, &h->it));
	h->state = ref_copy(state);
	h->first = o.lower.data ? ref_lower(state, o.lower) : 0;
	h->end = o.upper.data ? ref_lower(state, o.upper) : state->count;
	h->end = KV_MAX(h->end, h->first);
	check_iter(h, false);
}

/* Everything, in both directions. */
static void check_all(struct model *m, const struct kv_snapshot *snap, const struct ref *state)
{
	char from[2] = { m->gen.prefix, 0 }, to[2] = { (char)(m->gen.prefix + 1), 0 };
	struct kv_iter_options o = { .snap = snap, .sequential = true,
				     .lower = kv_slice_str(from), .upper = kv_slice_str(to) };
	struct held_iter h = { .state = ref_copy(state), .end = state->count };

	CHECK_OK(kv_iter_new(m->db, &o, &h.it));
	kv_iter_seek_first(h.it);
	for (move_to(&h, 0); h.valid; move_to(&h, h.at + 1)) {
		check_iter(&h, true);
		kv_iter_next(h.it);
	}
	check_iter(&h, false);
	kv_iter_seek_last(h.it);
	for (move_to(&h, h.end - 1); h.valid; move_to(&h, h.at - 1)) {
		check_iter(&h, false);
		kv_iter_prev(h.it);
	}
	check_iter(&h, false);
	free_iter(&h);
}

static void free_snapshot(struct model *m, struct held_snapshot *h)
{
	kv_snapshot_free(m->db, h->snap);
	ref_done(&h->state);
	h->snap = NULL;
}

static void let_go(struct model *m)
{
	for (int i = 0; i < ITERS; i++)
		free_iter(&m->iters[i]);
	for (int i = 0; i < SNAPSHOTS; i++)
		free_snapshot(m, &m->snapshots[i]);
}

/* --- steps -------------------------------------------------------------------------------- */

/* b: an empty one, which is written. */
static void write_random(struct model *m, struct kv_batch *b)
{
	struct ref next;
	int64_t delta = (int64_t)ref_below(&m->random, 100);

	next = ref_gen_batch(&m->gen, &m->now, b);
	if (!m->alone) {
		kv_batch_add(b, kv_slice_str(TOTAL_KEY), delta);
		m->total += delta;
	}
	CHECK_OK(kv_write(m->db, b, ref_chance(&m->random, 3)));
	ref_done(&m->now);
	m->now = next;
}

static void step_write(struct model *m)
{
	struct kv_batch *b = kv_batch_new();

	CHECK(b);
	write_random(m, b);
	kv_batch_free(b);
}

/* A sorted run; another thread may be at one. */
static void step_ingest(struct model *m)
{
	bool commits = ref_chance(&m->random, 80);
	struct kv_ingest *in;
	struct ref next;
	int err = kv_ingest_new(m->db, &in);

	if (err == -EBUSY && !m->alone)
		return;
	CHECK_OK(err);
	next = ref_gen_ingest(&m->gen, &m->now, in, &err);
	CHECK_OK(err);
	if (commits) {
		CHECK_OK(kv_ingest_commit(in));
		ref_done(&m->now);
		m->now = next;
	} else {
		ref_done(&next);
	}
	kv_ingest_free(in);
}

/* A batch that can't be done leaves nothing behind. */
static void step_fail(struct model *m)
{
	struct kv_batch *b = kv_batch_new();
	struct ref next;
	size_t i;
	int err;

	CHECK(b);
	next = ref_gen_batch(&m->gen, &m->now, b);
	if (ref_chance(&m->random, 50) || !ref_pick(&m->gen, &m->now, &i)) {
		kv_batch_put_part(b, kv_slice_str("x"), kv_slice_str("no such key"), 0, 0);
		err = kv_write(m->db, b, false);
		CHECK(err == KV_E_not_found, "%s", kv_err_text(err));
	} else {
		kv_batch_put_part(b, kv_slice_str("x"), ref_key_at(&m->now, i), 1,
				  (uint32_t)ref_value_at(&m->now, i).bytes);
		err = kv_write(m->db, b, false);
		CHECK(err == -EINVAL, "%s", kv_err_text(err));
	}
	kv_batch_free(b);
	ref_done(&next);
}

#define TOUCHED_MAX 6

/* A transaction, and what is known of it. */
struct held_txn {
	struct kv_txn *txn;
	struct ref begun, state;	/* without, and with its own writes */
	struct ref_name touched[TOUCHED_MAX]; /* keys that its commit depends on */
	bool written[TOUCHED_MAX];
	size_t touched_count;
};

/* Reads or writes one key. */
static void use_txn(struct model *m, struct held_txn *t)
{
	struct ref_name *name = &t->touched[t->touched_count];
	bool *written = &t->written[t->touched_count++];
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
	struct kv_slice key;
	uint32_t bytes;
	size_t i;
	int err;

	*name = ref_name(&m->gen, ref_below(&m->random, m->gen.keys));
	key = kv_slice_str(name->s);
	err = kv_txn_get(t->txn, key, &got);
	if (ref_has(&t->state, key, &i))
		CHECK(!err && kv_slice_eq(kv_buf_slice(&got), ref_value_at(&t->state, i)), "%s",
		      name->s);
	else
		CHECK(err == KV_E_not_found, "%s: %s", name->s, kv_err_text(err));
	if (ref_chance(&m->random, 40) && !err) {
		*written = true;
		kv_txn_delete(t->txn, key);
		ref_delete(&t->state, i, i + 1);
	} else if (ref_chance(&m->random, 60)) {
		*written = true;
		bytes = ref_size(&m->gen);
		ref_fill(&m->gen, ref_put(&t->state, key, bytes), bytes, true);
		CHECK(ref_has(&t->state, key, &i));
		kv_txn_put(t->txn, key, ref_value_at(&t->state, i), KV_HINT_NONE);
	}
}

/*
 * Has the batch an operation on a key of the transaction? *out_sure: it must be a conflict; a
 * key that is neither there before nor after may have lost all that it was.
 */
static bool meets(struct model *m, const struct held_txn *t, const struct kv_batch *b, bool *out_sure)
{
	bool any = false;
	size_t unused;

	*out_sure = false;
	for (size_t k = 0; k < t->touched_count; k++)
		for (uint32_t i = 0; i < b->count; i++) {
			struct kv_slice key = kv_slice_str(t->touched[k].s);
			const struct kv_batch_op *op = &b->ops[i];

			if (op->ask == KV_ASK_DELETE_RANGE ?
			    kv_slice_cmp(key, op->key) < 0 || kv_slice_cmp(op->value, key) <= 0 :
			    !kv_slice_eq(op->key, key))
				continue;
			any = true;
			*out_sure |= ref_has(&t->begun, key, &unused) ||
				     ref_has(&m->now, key, &unused);
		}
	return any;
}

/* What the transaction has made of a key, the store has now. */
static void take_over(struct model *m, const struct held_txn *t, struct kv_slice key)
{
	struct kv_slice value;
	size_t i;

	if (ref_has(&t->state, key, &i)) {
		value = ref_value_at(&t->state, i);
		memcpy(ref_put(&m->now, key, (uint32_t)value.bytes), value.data, value.bytes);
	} else if (ref_has(&m->now, key, &i)) {
		ref_delete(&m->now, i, i + 1);
	}
}

/* b: what was written since it began. */
static void commit_txn(struct model *m, struct held_txn *t, const struct kv_batch *b)
{
	bool sure, met = meets(m, t, b, &sure), writes = false;
	int err = kv_txn_commit(t->txn, ref_chance(&m->random, 3));

	for (size_t k = 0; k < t->touched_count; k++)
		writes |= t->written[k];
	CHECK(err == (sure && writes ? KV_E_conflict : 0) ||
	      (err == KV_E_conflict && met && writes), "%s", kv_err_text(err));
	for (size_t k = 0; k < t->touched_count && !err; k++)
		if (t->written[k])
			take_over(m, t, kv_slice_str(t->touched[k].s));
}

static void step_txn(struct model *m)
{
	struct held_txn t = { .begun = ref_copy(&m->now), .state = ref_copy(&m->now) };
	struct kv_batch *b = kv_batch_new();

	CHECK(b);
	CHECK_OK(kv_txn_begin(m->db, &t.txn));
	while (t.touched_count < TOUCHED_MAX - 1 && ref_chance(&m->random, 80))
		use_txn(m, &t);
	if (ref_chance(&m->random, 60))
		write_random(m, b);
	if (ref_chance(&m->random, 5))
		CHECK_OK(kv_flush(m->db));
	use_txn(m, &t);
	if (ref_chance(&m->random, 90))
		commit_txn(m, &t, b);
	kv_txn_free(t.txn);
	kv_batch_free(b);
	ref_done(&t.begun);
	ref_done(&t.state);
}

static void step_snapshot(struct model *m)
{
	struct held_snapshot *h = &m->snapshots[ref_below(&m->random, SNAPSHOTS)];

	if (h->snap) {
		if (ref_chance(&m->random, 10))
			check_all(m, h->snap, &h->state);
		free_snapshot(m, h);
		return;
	}
	h->snap = kv_snapshot_new(m->db);
	CHECK(h->snap);
	h->state = ref_copy(&m->now);
}

static struct ref_name name_of(struct model *m, size_t i)
{
	struct ref_name n;

	snprintf(n.s, sizeof(n.s), "%c-%zu", m->gen.prefix, i);
	return n;
}

/* All of it, or one key. */
static void check_name(struct model *m, size_t i, bool whole)
{
	struct kv_snapshot *s;

	CHECK_OK(kv_snapshot_open(m->db, name_of(m, i).s, &s));
	if (whole)
		check_all(m, s, &m->names[i].state);
	else
		check_get(m, s, &m->names[i].state);
	kv_snapshot_free(m->db, s);
}

static void check_names(struct model *m)
{
	struct kv_snapshot *s;

	for (size_t i = 0; i < NAMES; i++) {
		if (m->names[i].there)
			check_name(m, i, true);
		else
			CHECK(kv_snapshot_open(m->db, name_of(m, i).s, &s) == KV_E_no_snapshot);
	}
}

static void drop_name(struct model *m, size_t i)
{
	CHECK_OK(kv_snapshot_drop(m->db, name_of(m, i).s));
	ref_done(&m->names[i].state);
	m->names[i].there = false;
}

static void step_name(struct model *m)
{
	size_t i = ref_below(&m->random, NAMES);
	struct held_name *h = &m->names[i];
	int err;

	if (h->there) {
		if (ref_chance(&m->random, 20))
			check_name(m, i, true);
		drop_name(m, i);
		return;
	}
	CHECK_OK(kv_snapshot_create(m->db, name_of(m, i).s));
	h->there = true;
	h->state = ref_copy(&m->now);
	err = kv_snapshot_create(m->db, name_of(m, i).s);
	CHECK(err == KV_E_snapshot_exists);
}

static void step_read(struct model *m)
{
	struct held_snapshot *s = &m->snapshots[ref_below(&m->random, SNAPSHOTS)];
	struct held_iter *h = &m->iters[ref_below(&m->random, ITERS)];
	uint32_t what = ref_below(&m->random, 100);

	if (what < 40)
		check_get(m, NULL, &m->now);
	else if (what < 60 && s->snap)
		check_get(m, s->snap, &s->state);
	else if (what < 62 && m->names[0].there)
		check_name(m, 0, false);
	else if (what < 65 && s->snap)
		new_iter(m, h, s->snap, &s->state);
	else if (what < 75 || !h->it)
		new_iter(m, h, NULL, &m->now);
	else
		for (int i = 0; i < 10; i++)
			move_iter(m, h);
}

static void step_compact(struct model *m)
{
	struct ref_name from = random_target(m), to = random_target(m);
	struct kv_slice none = { NULL, 0 };

	CHECK_OK(kv_compact(m->db, ref_chance(&m->random, 20) ? none : kv_slice_str(from.s),
			    ref_chance(&m->random, 20) ? none : kv_slice_str(to.s)));
}

static void step(struct model *m)
{
	uint32_t what = ref_below(&m->random, 1000);

	if (what < 420)
		step_write(m);
	else if (what < 430)
		step_fail(m);
	else if (what < 460)
		step_txn(m);
	else if (what < 480)
		step_snapshot(m);
	else if (what < 482)
		step_name(m);
	else if (what < 484)
		CHECK_OK(kv_flush(m->db));
	else if (what < 486)
		step_compact(m);
	else if (what < 489)
		CHECK_OK(kv_sync(m->db));
	else if (what < 490)
		check_all(m, NULL, &m->now);
	else if (what < 492)
		step_ingest(m);
	else
		step_read(m);
}

/* --- rounds ------------------------------------------------------------------------------- */

static void print_message(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	fprintf(stderr, "%s: %s\n", level == KV_MSG_ERROR ? "error" : "message", text);
}

static struct kv_options round_options(bool tiny, bool inline_work)
{
	struct kv_options o = {
		.create = true,
		.inline_work = inline_work,
		.no_event_log = true,
		.msg = { print_message, NULL, getenv("VERBOSE") ? KV_MSG_DEBUG : KV_MSG_WARN },
	};

	if (tiny) {
		o.cache_bytes = 256 * KV_KIB;
		o.memtable_bytes = 64 * KV_KIB;
		o.table_bytes = 32 * KV_KIB;
		o.segment_bytes = 256 * KV_KIB;
		o.bulk_bytes_per_memtable = 512 * KV_KIB;
		o.level_base_bytes = 128 * KV_KIB;
		o.block_bytes = 512;
		o.medium_bytes = 256;
		o.bulk_bytes = 4096;
	}
	return o;
}

/* One of three sizes, each four times the one before. */
static uint64_t roll(struct model *m, uint64_t least)
{
	return least << 2 * ref_below(&m->random, 3);
}

/* Other limits for the same store: what was made under others has to be lived with. */
static void roll_options(struct model *m, struct kv_options *o, bool tiny)
{
	o->no_compression = ref_chance(&m->random, 30);
	o->no_value_cache = ref_chance(&m->random, 50);
	if (!tiny)
		return;
	o->memtable_bytes = roll(m, 16 * KV_KIB);
	o->table_bytes = roll(m, 8 * KV_KIB);
	o->segment_bytes = roll(m, 16 * KV_KIB);
	o->bulk_bytes_per_memtable = roll(m, 64 * KV_KIB);
	o->level_base_bytes = roll(m, 32 * KV_KIB);
	o->block_bytes = (uint32_t)roll(m, 256);
	o->medium_bytes = (uint32_t)roll(m, 64);
	o->bulk_bytes = (uint32_t)roll(m, 1024);
}

static void model_init(struct model *m, struct kv_db *db, char prefix, bool tiny)
{
	*m = (struct model){
		.db = db,
		.random = seed * 31 + (uint64_t)prefix,
		.gen = {
			.prefix = prefix,
			.keys = tiny ? 3000 : 400,
			.medium_bytes = tiny ? 256 : 1024,
			.bulk_bytes = tiny ? 4096 : 32768,
			.value_bytes_max = tiny ? 20000 : 200 * 1024,
		},
	};
	m->gen.random = ref_random(&m->random);
}

static void remove_store(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	char name[600];

	CHECK(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		CHECK(!unlink(name), "%s", name);
	}
	closedir(d);
	CHECK(!rmdir(path), "%s", path);
}

static void make_directory(char *path, size_t bytes)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(path, bytes, "%s/kvmodel-XXXXXX", tmp ? tmp : "/tmp");
	CHECK(mkdtemp(path), "%s", path);
}

/* At the end, compacting all must leave nothing but the state. */
static void finish(struct model *m)
{
	struct kv_slice none = { NULL, 0 };

	let_go(m);
	check_all(m, NULL, &m->now);
	check_names(m);
	for (size_t i = 0; i < NAMES; i++)
		if (m->names[i].there && ref_chance(&m->random, 50))
			drop_name(m, i);
	CHECK_OK(kv_compact(m->db, none, none));
	CHECK_OK(kv_wait_idle(m->db));
	check_all(m, NULL, &m->now);
	check_names(m);
	for (size_t i = 0; i < NAMES; i++)
		if (m->names[i].there)
			drop_name(m, i);
}

static void print_problem(void *arg, const char *file, const char *text)
{
	(void)arg;
	fprintf(stderr, "verify: %s: %s\n", file ? file : "-", text);
}

/* A copy of the store is good, is used on, and goes away without the store's noticing. */
static void checkpoint(struct model *m, const char *path, const struct kv_options *options)
{
	struct kv_verify_options v = { .problem = print_problem };
	struct kv_options o = *options;
	struct model copy = *m;
	uint64_t problems;
	char to[300];

	snprintf(to, sizeof(to), "%s-checkpoint", path);
	CHECK_OK(kv_checkpoint(m->db, to));
	CHECK_OK(kv_verify(to, &v, &problems));
	CHECK(!problems);
	o.create = false;
	o.read_only = ref_chance(&m->random, 30);
	CHECK_OK(kv_open(to, &o, &copy.db));
	check_all(&copy, NULL, &m->now);
	check_names(&copy);
	if (!o.read_only) {
		struct kv_batch *b = kv_batch_new();

		CHECK(b);
		kv_batch_delete_range(b, kv_slice_str("a"), kv_slice_str("b"));
		CHECK_OK(kv_write(copy.db, b, false));
		kv_batch_free(b);
		CHECK_OK(kv_compact(copy.db, (struct kv_slice){ NULL, 0 },
				    (struct kv_slice){ NULL, 0 }));
		check_names(&copy);
	}
	CHECK_OK(kv_close(copy.db));
	remove_store(to);
}

/* Before it is opened for writing again, it is looked at without. */
static void look_only(struct model *m, const char *path, const struct kv_options *options)
{
	struct kv_options o = *options;

	o.create = false;
	o.read_only = true;
	CHECK_OK(kv_open(path, &o, &m->db));
	check_all(m, NULL, &m->now);
	check_names(m);
	CHECK_OK(kv_close(m->db));
}

static void reopen(struct model *m, const char *path, struct kv_options *o, bool tiny)
{
	if (ref_chance(&m->random, 30))
		checkpoint(m, path, o);
	let_go(m);
	CHECK_OK(kv_close(m->db));
	roll_options(m, o, tiny);
	if (ref_chance(&m->random, 30))
		look_only(m, path, o);
	CHECK_OK(kv_open(path, o, &m->db));
	check_all(m, NULL, &m->now);
	check_names(m);
}

static void round_single(bool tiny, bool inline_work, uint64_t steps)
{
	struct kv_options o = round_options(tiny, inline_work);
	char path[256];
	struct model m;
	struct kv_db *db;

	make_directory(path, sizeof(path));
	CHECK_OK(kv_open(path, &o, &db));
	model_init(&m, db, 'a', tiny);
	m.alone = true;
	for (uint64_t i = 0; i < steps; i++) {
		step(&m);
		if (ref_below(&m.random, 500) == 0)
			reopen(&m, path, &o, tiny);
	}
	finish(&m);
	CHECK_OK(kv_close(m.db));
	ref_done(&m.now);
	remove_store(path);
}

struct writer {
	struct model model;
	uint64_t steps;
};

static void *writer_run(void *arg)
{
	struct writer *w = arg;

	for (uint64_t i = 0; i < w->steps; i++)
		step(&w->model);
	let_go(&w->model);
	return NULL;
}

static void check_total(struct kv_db *db, int64_t total)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
	le64 n;

	CHECK_OK(kv_get(db, NULL, kv_slice_str(TOTAL_KEY), &got));
	CHECK(got.bytes == sizeof(n));
	memcpy(&n, got.data, sizeof(n));
	CHECK((int64_t)kv_le64_get(n) == total);
}

static void round_many(bool tiny, uint64_t steps)
{
	struct kv_options o = round_options(tiny, false);
	struct writer writers[WRITERS];
	pthread_t threads[WRITERS];
	int64_t total = 0;
	struct kv_db *db;
	char path[256];

	make_directory(path, sizeof(path));
	CHECK_OK(kv_open(path, &o, &db));
	for (int i = 0; i < WRITERS; i++) {
		writers[i].steps = steps / WRITERS;
		model_init(&writers[i].model, db, (char)('a' + i), tiny);
	}
	for (int i = 0; i < WRITERS; i++)
		CHECK(!pthread_create(&threads[i], NULL, writer_run, &writers[i]));
	for (int i = 0; i < WRITERS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	for (int i = 0; i < WRITERS; i++)
		total += writers[i].model.total;
	check_total(db, total);
	CHECK_OK(kv_close(db));
	CHECK_OK(kv_open(path, &o, &db));
	check_total(db, total);
	for (int i = 0; i < WRITERS; i++) {
		writers[i].model.db = db;
		finish(&writers[i].model);
		ref_done(&writers[i].model.now);
	}
	CHECK_OK(kv_close(db));
	remove_store(path);
}

int main(void)
{
	const char *s = getenv("SEED"), *n = getenv("OPS");

	if (s)
		seed = strtoull(s, NULL, 0);
	else
		CHECK(!kv_env_posix()->ops->random(kv_env_posix(), &seed, sizeof(seed)));
	if (n)
		ops = strtoull(n, NULL, 0);
	printf("SEED=%" PRIu64 " OPS=%" PRIu64 "\n", seed, ops);
	fflush(stdout);
	round_single(true, true, ops);
	round_single(true, false, ops);
	round_single(false, true, ops / 4);
	round_single(false, false, ops / 4);
	round_many(true, ops);
	printf("ok\n");
	return 0;
}
