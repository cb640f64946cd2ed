#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "kv/db.h"
#include "tests/unit/db_fixture.h"

static struct kv_slice S(const char *s)
{
	return kv_slice_str(s);
}

static struct kv_txn *begin(struct dbfix *f)
{
	struct kv_txn *txn;

	ck_ok(kv_txn_begin(f->db, &txn));
	return txn;
}

static void put(struct kv_txn *txn, const char *key, const char *value)
{
	kv_txn_put(txn, S(key), S(value), KV_HINT_NONE);
}

/* value NULL: it must not be there. */
static void expect(struct kv_txn *txn, const char *key, const char *value)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;

	ck_assert_int_eq(kv_txn_exists(txn, S(key)), value ? 0 : KV_E_not_found);
	ck_assert_int_eq(kv_txn_get(txn, S(key), &got), value ? 0 : KV_E_not_found);
	if (value)
		ck_assert(kv_slice_eq(kv_buf_slice(&got), S(value)));
}

static void commit(struct kv_txn *txn, int want)
{
	ck_assert_int_eq(kv_txn_commit(txn, false), want);
	kv_txn_free(txn);
}

/* --- what it reads ------------------------------------------------------------------------------ */

UNIT(it_reads_one_moment_and_its_own_writes)
{
	struct kv_txn *txn;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	ck_ok(dbfix_put(&f, "b", "1", false));
	txn = begin(&f);
	ck_ok(dbfix_put(&f, "a", "2", false));
	ck_ok(dbfix_delete(&f, "b"));
	ck_ok(dbfix_put(&f, "c", "2", false));
	expect(txn, "a", "1");
	expect(txn, "b", "1");
	expect(txn, "c", NULL);
	put(txn, "a", "mine");
	expect(txn, "a", "mine");
	kv_txn_delete(txn, S("a"));
	expect(txn, "a", NULL);
	put(txn, "a", "again");
	expect(txn, "a", "again");
	kv_txn_delete(txn, S("b"));
	put(txn, "d", "");
	expect(txn, "b", NULL);
	expect(txn, "d", "");
	/* Nobody else sees any of it, nor does its snapshot. */
	dbfix_expect(&f, "a", "2");
	dbfix_expect(&f, "d", NULL);
	dbfix_expect_bytes(&f, kv_txn_snapshot(txn), "a", "1", 1);
	kv_txn_free(txn);
	dbfix_expect(&f, "a", "2");
	dbfix_expect(&f, "d", NULL);
	dbfix_done(&f);
}
UNIT_END

UNIT(a_commit_does_all_writes)
{
	struct kv_txn *txn;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	txn = begin(&f);
	expect(txn, "a", "1");
	put(txn, "b", "first");
	put(txn, "b", "second");
	kv_txn_delete(txn, S("a"));
	put(txn, "c", "3");
	ck_ok(kv_txn_commit(txn, true));
	kv_txn_free(txn);
	dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
	dbfix_open(&f);
	dbfix_expect(&f, "a", NULL);
	dbfix_expect(&f, "b", "second");
	dbfix_expect(&f, "c", "3");
	dbfix_done(&f);
}
UNIT_END

UNIT(without_writes_there_is_no_conflict)
{
	struct kv_txn *txn;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	txn = begin(&f);
	expect(txn, "a", NULL);
	ck_ok(dbfix_put(&f, "a", "1", false));
	expect(txn, "a", NULL);
	ck_ok(kv_txn_commit(txn, true));
	kv_txn_free(txn);
	/* It was a sync. */
	dbfix_crash(&f, KV_SIM_DROP_ALL, 1);
	dbfix_open(&f);
	dbfix_expect(&f, "a", "1");
	dbfix_done(&f);
}
UNIT_END

UNIT(what_is_no_key_is_not_there_and_cannot_be_written)
{
	static const uint8_t bytes[KV_KEY_BYTES_MAX + 1];
	struct kv_slice long_key = kv_slice(bytes, sizeof(bytes));
	struct kv_txn *txn;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	txn = begin(&f);
	ck_assert_int_eq(kv_txn_exists(txn, S("")), KV_E_not_found);
	ck_assert_int_eq(kv_txn_exists(txn, long_key), KV_E_not_found);
	put(txn, "a", "1");
	commit(txn, 0);
	txn = begin(&f);
	put(txn, "a", "2");
	kv_txn_put(txn, long_key, S("2"), KV_HINT_NONE);
	put(txn, "a", "3");
	commit(txn, KV_E_too_big);
	txn = begin(&f);
	put(txn, "", "2");
	commit(txn, -EINVAL);
	dbfix_expect(&f, "a", "1");
	kv_txn_free(NULL);
	dbfix_done(&f);
}
UNIT_END

/* --- conflicts ------------------------------------------------------------------------------------ */

/* Everything that can happen to a key of which the transaction has read "value". */
static int change(struct dbfix *f, int how)
{
	switch (how) {
	case 0:
		return dbfix_put(f, "key", "other", false);
	case 1:
		return dbfix_put(f, "key", "12345678", false); /* the same again */
	case 2:
		return dbfix_delete(f, "key");
	case 3:
		return dbfix_delete_range(f, "k", "l");
	case 4:
		return dbfix_add(f, "key", 1);
	case 5:
		return dbfix_put_part(f, "key", "from", 1, 2);
	case 6:
		ck_ok(dbfix_delete(f, "key"));
		return dbfix_put(f, "key", "back", false);
	default:
		return -ENOENT;
	}
}
#define CHANGES 7

/* What else happens between the first read and the commit. */
static void shake(struct dbfix *f, int how)
{
	struct kv_slice none = { NULL, 0 };

	if (how == 0)
		return;
	ck_ok(kv_flush(f->db));
	if (how > 1)
		ck_ok(kv_compact(f->db, none, none));
	if (how > 2)
		ck_ok(dbfix_put(f, "unrelated", "x", false));
}
#define SHAKES 4

/* uses: 0 reads the key, 1 asks whether it is there, 2 puts it, 3 deletes it, 4 peeks at it, 5 none of it. */
static struct kv_txn *use(struct dbfix *f, int uses)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
	struct kv_txn *txn = begin(f);

	if (uses == 0)
		ck_ok(kv_txn_get(txn, S("key"), &got));
	else if (uses == 1)
		ck_ok(kv_txn_exists(txn, S("key")));
	else if (uses == 2)
		put(txn, "key", "mine");
	else if (uses == 3)
		kv_txn_delete(txn, S("key"));
	else if (uses == 4)
		ck_ok(kv_txn_peek(txn, S("key"), &got));
	put(txn, "result", "done");
	return txn;
}

UNIT(every_change_of_a_key_is_a_conflict)
{
	struct kv_txn *txn;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (int how = 0; how < CHANGES; how++)
		for (int i = 0; i < SHAKES * SHAKES; i++)
			for (int uses = 0; uses < 6; uses++) {
				ck_ok(dbfix_put(&f, "from", "from", false));
				ck_ok(dbfix_put(&f, "key", "12345678", false));
				ck_ok(dbfix_put(&f, "result", "none", false));
				txn = use(&f, uses);
				shake(&f, i / SHAKES);
				ck_ok(change(&f, how));
				shake(&f, i % SHAKES);
				commit(txn, uses < 4 ? KV_E_conflict : 0);
				dbfix_expect(&f, "result", uses < 4 ? "none" : "done");
			}
	dbfix_done(&f);
}
UNIT_END

/* A key that is not there is read, too. */
UNIT(a_key_that_appears_is_a_conflict)
{
	struct kv_txn *txn;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (int i = 0; i < SHAKES; i++) {
		txn = begin(&f);
		expect(txn, "new", NULL);
		put(txn, "result", "done");
		ck_ok(dbfix_put(&f, "new", "1", false));
		shake(&f, i);
		commit(txn, KV_E_conflict);
		ck_ok(dbfix_delete(&f, "new"));
		shake(&f, i);
	}
	dbfix_expect(&f, "result", NULL);
	dbfix_done(&f);
}
UNIT_END

/* Neighbours, older versions and what was there before, in any state of the files. */
UNIT(what_others_do_elsewhere_is_none)
{
	struct kv_txn *txn;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (int i = 0; i < SHAKES * SHAKES * SHAKES; i++) {
		ck_ok(dbfix_put(&f, "key", "1", false));
		ck_ok(dbfix_put(&f, "gone", "1", false));
		ck_ok(dbfix_delete_range(&f, "g", "h"));
		shake(&f, i / SHAKES / SHAKES);
		txn = begin(&f);
		expect(txn, "key", "1");
		expect(txn, "gone", NULL);
		shake(&f, i / SHAKES % SHAKES);
		ck_ok(dbfix_put(&f, "ke", "2", false));
		ck_ok(dbfix_put(&f, "key2", "2", false));
		ck_ok(dbfix_delete_range(&f, "a", "gone"));
		ck_ok(dbfix_delete_range(&f, "key0", "l"));
		shake(&f, i % SHAKES);
		put(txn, "result", "done");
		commit(txn, 0);
		dbfix_expect(&f, "result", "done");
		dbfix_expect(&f, "key", "1");
		dbfix_expect(&f, "key2", NULL);
	}
	dbfix_done(&f);
}
UNIT_END

/*
 * A put and its deletion can be gone altogether, as if neither had been. Whether they are is
 * the engine's business, but what was read must hold: the key is not there.
 */
UNIT(what_came_and_went_does_no_harm)
{
	struct kv_slice none = { NULL, 0 };
	struct kv_txn *txn;
	struct dbfix f;
	int err;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	txn = begin(&f);
	expect(txn, "new", NULL);
	put(txn, "result", "done");
	ck_ok(dbfix_put(&f, "new", "1", false));
	ck_ok(dbfix_delete(&f, "new"));
	ck_ok(kv_flush(f.db));
	ck_ok(kv_compact(f.db, none, none));
	err = kv_txn_commit(txn, false);
	ck_assert(!err || err == KV_E_conflict);
	dbfix_expect(&f, "result", err ? NULL : "done");
	kv_txn_free(txn);
	dbfix_done(&f);
}
UNIT_END

UNIT(no_update_is_lost)
{
	struct kv_txn *a, *b;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "n", "1", false));
	a = begin(&f);
	b = begin(&f);
	expect(a, "n", "1");
	expect(b, "n", "1");
	put(a, "n", "2");
	put(b, "n", "2");
	commit(b, 0);
	commit(a, KV_E_conflict);
	/* Nor is one that was made without looking: the first committer wins. */
	a = begin(&f);
	b = begin(&f);
	put(a, "blind", "a");
	put(b, "blind", "b");
	commit(a, 0);
	commit(b, KV_E_conflict);
	dbfix_expect(&f, "blind", "a");
	dbfix_done(&f);
}
UNIT_END

/* Each reads what the other one writes. */
UNIT(there_is_no_write_skew)
{
	struct kv_txn *a, *b;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "x", "on", false));
	ck_ok(dbfix_put(&f, "y", "on", false));
	a = begin(&f);
	b = begin(&f);
	expect(a, "y", "on");
	put(a, "x", "off");
	expect(b, "x", "on");
	put(b, "y", "off");
	commit(a, 0);
	commit(b, KV_E_conflict);
	dbfix_expect(&f, "x", "off");
	dbfix_expect(&f, "y", "on");
	dbfix_done(&f);
}
UNIT_END

/* It stays one, and the key that it was about can be read still. */
UNIT(a_conflict_is_final)
{
	struct kv_txn *txn;
	struct kv_stats before, after;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	txn = begin(&f);
	expect(txn, "a", "1");
	put(txn, "b", "1");
	ck_ok(dbfix_put(&f, "a", "2", false));
	kv_stats(f.db, &before);
	ck_assert_int_eq(kv_txn_commit(txn, true), KV_E_conflict);
	ck_ok(kv_flush(f.db));
	ck_assert_int_eq(kv_txn_commit(txn, false), KV_E_conflict);
	kv_stats(f.db, &after);
	ck_assert_uint_eq(before.seqno, after.seqno);
	expect(txn, "a", "1");
	kv_txn_free(txn);
	dbfix_expect(&f, "b", NULL);
	dbfix_done(&f);
}
UNIT_END

UNIT(a_commit_without_space_can_be_tried_again)
{
	struct kv_txn *txn;
	struct dbfix f;
	int err;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	txn = begin(&f);
	expect(txn, "a", NULL);
	for (int i = 0; i < 2000; i++) {
		static char value[1000];
		char key[16];

		snprintf(key, sizeof(key), "k%d", i);
		dbfix_fill(value, sizeof(value), (uint64_t)i);
		kv_txn_put(txn, S(key), kv_slice(value, sizeof(value)), KV_HINT_NONE);
	}
	kv_env_sim_set_capacity(f.env, kv_env_sim_used(f.env));
	err = kv_txn_commit(txn, false);
	ck_assert_int_eq(err, KV_E_no_space);
	kv_env_sim_set_capacity(f.env, UINT64_MAX);
	ck_ok(dbfix_put(&f, "unrelated", "1", false));
	ck_ok(kv_txn_commit(txn, false));
	kv_txn_free(txn);
	ck_ok(kv_exists(f.db, NULL, S("k1999")));
	dbfix_done(&f);
}
UNIT_END

UNIT(many_keys)
{
	enum { KEYS = 20000 };
	struct kv_txn *txn;
	struct dbfix f;
	char key[32];

	dbfix_init(&f, 1);
	dbfix_open(&f);
	for (int round = 0; round < 2; round++) {
		txn = begin(&f);
		for (int i = 0; i < KEYS; i++) {
			snprintf(key, sizeof(key), "%d", i);
			ck_assert_int_eq(kv_txn_exists(txn, S(key)), KV_E_not_found);
			if (i % 100 == 0)
				put(txn, key, "1");
		}
		/* Each key counts once. */
		for (int i = 0; i < KEYS; i += 100) {
			snprintf(key, sizeof(key), "%d", i);
			expect(txn, key, "1");
			kv_txn_delete(txn, S(key));
		}
		put(txn, "result", "1");
		ck_ok(dbfix_put(&f, round ? "19999" : "20000", "x", false));
		commit(txn, round ? KV_E_conflict : 0);
		dbfix_expect(&f, "result", round ? NULL : "1");
		ck_ok(dbfix_delete(&f, "result"));
	}
	dbfix_done(&f);
}
UNIT_END

UNIT(keys_are_limited)
{
	static uint8_t key[KV_KEY_BYTES_MAX];
	struct kv_txn *txn;
	struct dbfix f;
	uint32_t n = 0;
	int err;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	txn = begin(&f);
	do {
		n++;
		memcpy(key, &n, sizeof(n));
		err = kv_txn_exists(txn, kv_slice(key, sizeof(key)));
	} while (err == KV_E_not_found);
	ck_assert_int_eq(err, KV_E_too_big);
	ck_assert_uint_eq(n, KV_TXN_KEY_BYTES_MAX / (KV_KEY_BYTES_MAX + 64) + 1);
	/* What it knows already it can read, and it can be committed; nothing new goes in. */
	n = 1;
	memcpy(key, &n, sizeof(n));
	ck_assert_int_eq(kv_txn_exists(txn, kv_slice(key, sizeof(key))), KV_E_not_found);
	kv_txn_put(txn, kv_slice(key, sizeof(key)), S("1"), KV_HINT_NONE);
	ck_ok(kv_txn_commit(txn, false));
	kv_txn_free(txn);
	dbfix_done(&f);
}
UNIT_END

UNIT(a_store_that_only_reads_commits_nothing)
{
	struct kv_txn *txn;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	dbfix_close(&f);
	f.options.read_only = true;
	f.options.create = false;
	dbfix_open(&f);
	txn = begin(&f);
	expect(txn, "a", "1");
	ck_ok(kv_txn_commit(txn, false));
	put(txn, "a", "2");
	commit(txn, KV_E_read_only);
	dbfix_done(&f);
}
UNIT_END

/* --- beside others: the same group ------------------------------------------------------------------ */

struct task {
	struct dbfix *f;
	struct kv_txn *txn;	/* committed; NULL: a put, of key */
	const char *key;
	pthread_t thread;
	int err;
};

static void *run_task(void *arg)
{
	struct task *t = arg;

	t->err = t->txn ? kv_txn_commit(t->txn, false) : dbfix_put(t->f, t->key, "other", false);
	return NULL;
}

static size_t queued(struct kv_db *db)
{
	size_t n = 0;

	kv_mutex_lock(&db->queue_mu);
	kv_list_for_each(l, &db->queue)
		n++;
	kv_mutex_unlock(&db->queue_mu);
	return n;
}

/* All of them wait in this order, before the first is done. */
static void run_in_a_row(struct dbfix *f, struct task *t, size_t n)
{
	kv_mutex_lock(&f->db->commit_mu);
	for (size_t i = 0; i < n; i++) {
		t[i].f = f;
		ck_ok(pthread_create(&t[i].thread, NULL, run_task, &t[i]));
		while (queued(f->db) != i + 1)
			sched_yield();
	}
	kv_mutex_unlock(&f->db->commit_mu);
	for (size_t i = 0; i < n; i++) {
		ck_ok(pthread_join(t[i].thread, NULL));
		kv_txn_free(t[i].txn);
	}
}

UNIT(what_waits_before_it_counts_and_what_waits_behind_does_not)
{
	struct kv_stats before, after;
	struct dbfix f;

	dbfix_init(&f, 1);
	f.options.inline_work = false;
	dbfix_open(&f);
	for (int at = 0; at < 4; at++) {
		struct task t[4] = { { .key = "a" }, { .key = "b" }, { .key = "c" }, { .key = "d" } };
		static const char *const read[] = { "b", "c", "b", "c" };
		/* It waits in third place, or first, and reads what the second one or the third one writes. */
		int place = at < 2 ? 2 : 0;

		t[place].txn = begin(&f);
		ck_assert_int_eq(kv_txn_exists(t[place].txn, S(read[at])),
				 at ? kv_exists(f.db, NULL, S(read[at])) : KV_E_not_found);
		put(t[place].txn, "result", "1");
		kv_stats(f.db, &before);
		run_in_a_row(&f, t, 4);
		kv_stats(f.db, &after);
		for (int i = 0; i < 4; i++)
			ck_assert_int_eq(t[i].err, at == 0 && i == place ? KV_E_conflict : 0);
		/* Plain batches behind it go with it. */
		ck_assert_uint_le(after.groups - before.groups, 2 + (uint64_t)(place > 0));
	}
	dbfix_done(&f);
}
UNIT_END

UNIT(of_two_that_wait_the_second_sees_the_first)
{
	struct dbfix f;

	dbfix_init(&f, 1);
	f.options.inline_work = false;
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "n", "0", false));
	{
		struct task t[3] = { { .txn = begin(&f) }, { .txn = begin(&f) }, { .txn = begin(&f) } };

		expect(t[0].txn, "n", "0");
		expect(t[1].txn, "n", "0");
		put(t[0].txn, "n", "1");
		put(t[1].txn, "n", "1");
		put(t[2].txn, "m", "1");
		run_in_a_row(&f, t, 3);
		ck_ok(t[0].err);
		ck_assert_int_eq(t[1].err, KV_E_conflict);
		ck_ok(t[2].err);
	}
	dbfix_done(&f);
}
UNIT_END

/* --- beside others: a bank ---------------------------------------------------------------------------- */

#define ACCOUNTS 8
#define ACCOUNT_BEGIN 1000
#define CLERKS 4
#define TRANSFERS 300

struct clerk {
	struct dbfix *f;
	uint64_t random;
	uint64_t conflicts;
	pthread_t thread;
	_Atomic int *running;
};

static uint64_t draw(struct clerk *c)
{
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return c->random >> 16;
}

static const char *account(uint64_t i)
{
	static const char *const names[ACCOUNTS] = { "acc0", "acc1", "acc2", "acc3",
						     "acc4", "acc5", "acc6", "acc7" };

	return names[i % ACCOUNTS];
}

static int balance(struct kv_txn *txn, const char *name, long *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
	int err = kv_txn_get(txn, S(name), &got);

	if (!err) {
		ck_assert_uint_eq(got.bytes, sizeof(*out));
		memcpy(out, got.data, sizeof(*out));
	}
	return err;
}

static void set_balance(struct kv_txn *txn, const char *name, long n)
{
	kv_txn_put(txn, S(name), kv_slice(&n, sizeof(n)), KV_HINT_NONE);
}

/* An amount from one to another, never more than there is; and the log has one entry more. */
static int transfer(struct clerk *c)
{
	const char *from = account(draw(c)), *to = account(draw(c));
	long amount = (long)(draw(c) % 100), a, b, log = 0;
	struct kv_txn *txn = begin(c->f);
	int err;

	ck_ok(balance(txn, from, &a));
	ck_assert_int_ge(a, 0);
	amount = KV_MIN(amount, a);
	set_balance(txn, from, a - amount);
	ck_ok(balance(txn, to, &b));	/* its own write, when it is the same account */
	set_balance(txn, to, b + amount);
	err = balance(txn, "log", &log);
	ck_assert(!err || err == KV_E_not_found);
	set_balance(txn, "log", log + 1);
	err = kv_txn_commit(txn, draw(c) % 50 == 0);
	ck_assert(!err || err == KV_E_conflict);
	kv_txn_free(txn);
	return err;
}

static void *run_clerk(void *arg)
{
	struct clerk *c = arg;

	for (int i = 0; i < TRANSFERS; i++)
		while (transfer(c))
			c->conflicts++;
	atomic_fetch_sub(c->running, 1);
	return NULL;
}

static long sum(struct dbfix *f, const struct kv_snapshot *s)
{
	struct kv_iter_options o = { .snap = s, .lower = S("acc"), .upper = S("acd") };
	struct kv_iter *it;
	struct kv_slice v;
	long all = 0, n;

	ck_ok(kv_iter_new(f->db, &o, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it); kv_iter_next(it)) {
		ck_ok(kv_iter_value(it, &v));
		memcpy(&n, v.data, sizeof(n));
		all += n;
	}
	ck_ok(kv_iter_error(it));
	kv_iter_free(it);
	return all;
}

/* Meanwhile somebody audits, and the files change under all of them. */
static void audit(struct dbfix *f, _Atomic int *running)
{
	struct kv_slice none = { NULL, 0 };

	for (int i = 0; atomic_load(running); i++) {
		struct kv_snapshot *s = kv_snapshot_new(f->db);

		ck_assert_ptr_nonnull(s);
		ck_assert_int_eq(sum(f, s), ACCOUNTS * ACCOUNT_BEGIN);
		kv_snapshot_free(f->db, s);
		ck_ok(dbfix_add(f, "unrelated", 1));
		if (i % 4 == 0)
			ck_ok(kv_flush(f->db));
		if (i % 16 == 0)
			ck_ok(kv_compact(f->db, none, none));
	}
}

UNIT(money_is_neither_made_nor_lost)
{
	struct clerk clerks[CLERKS];
	_Atomic int running = CLERKS;
	struct kv_txn *txn;
	struct dbfix f;
	long log;

	dbfix_init(&f, 1);
	f.options.inline_work = false;
	dbfix_open(&f);
	txn = begin(&f);
	for (uint64_t i = 0; i < ACCOUNTS; i++)
		set_balance(txn, account(i), ACCOUNT_BEGIN);
	commit(txn, 0);
	for (int i = 0; i < CLERKS; i++) {
		clerks[i] = (struct clerk){ .f = &f, .random = (uint64_t)i + 1, .running = &running };
		ck_ok(pthread_create(&clerks[i].thread, NULL, run_clerk, &clerks[i]));
	}
	audit(&f, &running);
	for (int i = 0; i < CLERKS; i++)
		ck_ok(pthread_join(clerks[i].thread, NULL));
	dbfix_reopen(&f);
	ck_assert_int_eq(sum(&f, NULL), ACCOUNTS * ACCOUNT_BEGIN);
	txn = begin(&f);
	ck_ok(balance(txn, "log", &log));
	kv_txn_free(txn);
	ck_assert_int_eq(log, CLERKS * TRANSFERS);
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("txn", it_reads_one_moment_and_its_own_writes, a_commit_does_all_writes,
	  without_writes_there_is_no_conflict, what_is_no_key_is_not_there_and_cannot_be_written,
	  every_change_of_a_key_is_a_conflict, a_key_that_appears_is_a_conflict,
	  what_others_do_elsewhere_is_none, what_came_and_went_does_no_harm, no_update_is_lost,
	  there_is_no_write_skew, a_conflict_is_final, a_commit_without_space_can_be_tried_again,
	  many_keys, keys_are_limited, a_store_that_only_reads_commits_nothing,
	  what_waits_before_it_counts_and_what_waits_behind_does_not,
	  of_two_that_wait_the_second_sees_the_first, money_is_neither_made_nor_lost)
