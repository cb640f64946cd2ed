/*
 * The power is cut before every single change that the engine makes to its disk, and each
 * time the store must be one that existed: with a prefix of the batches, and all of those
 * that were promised durable (rule K1).
 *
 *	SEED=n ROUNDS=n POINT=n tests/sim/crash_kv
 *
 * A round is one random workload, run twice. First it runs to its end on a simulated disk
 * which calls us before each change. There the disk is copied, and the copy crashes in several ways:
 * nothing unsynced survives, all of it, or a random part, so writes are torn, too. Each is opened
 * and looked at, with its named snapshots; and for some, the same is done once more at the changes that the opening itself makes.
 * Then the workload runs again and again, with a disk that dies under it at some change:
 * the engine must notice, promise nothing any more, and let itself be closed.
 *
 * POINT looks at one change only, as the line that a failure prints says.
 */
#include <inttypes.h>
#include <stdarg.h>

#include "kv/verify.h"
#include "tests/sim/env_sim.h"
#include "tests/sim/kvref.h"

#define STORE "store"
#define RANDOM_CRASHES 2	/* at each change */
#define DEATHS 60		/* runs with a dying disk, about, each round */
#define RECOVERY_EVERY 23	/* crashes of which the opening is crashed */
#define USE_EVERY 5		/* crashes after which the store is used on */
#define BATCHES_MAX 120
#define NAMES 12			/* named snapshots; each name is used once */

/* One workload and what it knows of its progress. */
struct run {
	uint64_t seed;
	struct kv_env *env;
	struct kv_db *db;
	struct ref_gen gen;
	uint64_t random;
	struct kv_snapshot *snap;
	struct ref states[BATCHES_MAX + 1]; /* states[i]: after i batches */
	struct name {
		enum { NAME_NONE, NAME_BEGUN, NAME_THERE, NAME_GOING } state;
		uint64_t batches;	/* that it sees */
	} names[NAMES];
	uint64_t begun, done, synced;	/* batches: written or being written; acknowledged; durable */
	int error;			/* the first, with a dying disk */
	uint64_t collections;		/* of garbage in the value log */

	uint64_t point;			/* changes so far */
	uint64_t images;		/* looked at */
};

static uint64_t seed;
static uint64_t only_point = UINT64_MAX;
static const struct run *running;
static const char *crash_text = "";

_Noreturn static void die(int line, const char *what, const char *fmt, ...) KV_PRINTF(3, 4);

static void die(int line, const char *what, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "crash_kv.c:%d: %s: ", line, what);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nat change %" PRIu64 "%s: %" PRIu64 " batches begun, %" PRIu64 " done, %"
		PRIu64 " durable", running->point, crash_text, running->begun, running->done,
		running->synced);
	fprintf(stderr, "\nrepeat: SEED=%" PRIu64 " ROUNDS=1 POINT=%" PRIu64
		" tests/sim/crash_kv\n", running->seed, running->point);
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

static void print_message(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "%s\n", text);
}

/* Sizes differ from round to round: segments are smaller than memtables, or larger, and so on. */
static uint64_t roll(unsigned which, uint64_t least)
{
	return least << (running->seed >> which & 1);
}

static struct kv_options options(struct kv_env *env)
{
	return (struct kv_options){
		.env = env,
		.msg = { getenv("VERBOSE") ? print_message : NULL, NULL, KV_MSG_DEBUG },
		.create = true,
		.inline_work = true,
		.no_event_log = true,
		.cache_bytes = 64 * KV_KIB,
		.memtable_bytes = roll(0, 8 * KV_KIB),
		.bulk_bytes_per_memtable = roll(1, 32 * KV_KIB),
		.segment_bytes = roll(2, 16 * KV_KIB),
		.table_bytes = 4 * KV_KIB,
		.level_base_bytes = roll(3, 16 * KV_KIB),
		.block_bytes = 512,
		.medium_bytes = 128,
		.bulk_bytes = 1024,
	};
}

/* --- looking at a store ------------------------------------------------------------------- */

static uint64_t count_batches(struct kv_db *db)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
	int err = kv_get(db, NULL, kv_slice_str("an"), &got);
	le64 n;

	if (err == KV_E_not_found)
		return 0;
	CHECK_OK(err);
	CHECK(got.bytes == sizeof(n));
	memcpy(&n, got.data, sizeof(n));
	return kv_le64_get(n);
}

static void check_content_at(struct kv_db *db, const struct kv_snapshot *snap,
			     const struct ref *state)
{
	struct kv_iter_options o = { .snap = snap };
	struct kv_iter *it;
	struct kv_slice value;
	size_t i = 0;

	CHECK_OK(kv_iter_new(db, &o, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it); kv_iter_next(it), i++) {
		CHECK(i < state->count);
		CHECK(kv_slice_eq(kv_iter_key(it), ref_key_at(state, i)), "%.*s, not %.*s",
		      (int)kv_iter_key(it).bytes, (const char *)kv_iter_key(it).data,
		      (int)ref_key_at(state, i).bytes, (const char *)ref_key_at(state, i).data);
		CHECK_OK(kv_iter_value(it, &value));
		CHECK(kv_slice_eq(value, ref_value_at(state, i)));
	}
	CHECK_OK(kv_iter_error(it));
	CHECK(i == state->count);
	kv_iter_free(it);
}

static void check_content(struct kv_db *db, const struct ref *state)
{
	check_content_at(db, NULL, state);
}

static void name_make(char *to, size_t bytes, size_t i)
{
	snprintf(to, bytes, "name %zu", i);
}

/*
 * What has a name is there and sees what it saw; what was being made or dropped is there
 * whole, or not at all; and nothing else is.
 */
static void check_names(const struct run *r, struct kv_db *db)
{
	struct kv_snapshot_info *infos;
	size_t count, found = 0;

	for (size_t i = 0; i < NAMES; i++) {
		const struct name *n = &r->names[i];
		struct kv_snapshot *s;
		char name[32];
		int err;

		name_make(name, sizeof(name), i);
		err = kv_snapshot_open(db, name, &s);
		if (err == KV_E_no_snapshot) {
			CHECK(n->state != NAME_THERE, "%s", name);
			continue;
		}
		CHECK_OK(err);
		CHECK(n->state != NAME_NONE, "%s", name);
		check_content_at(db, s, &r->states[n->batches]);
		kv_snapshot_free(db, s);
		found++;
	}
	CHECK_OK(kv_snapshot_list(db, &infos, &count));
	free(infos);
	CHECK(count == found);
}

static void problem(void *arg, const char *file, const char *text)
{
	(void)arg;
	fprintf(stderr, "verify: %s: %s\n", file ? file : "-", text);
}

static void verify(struct kv_env *env)
{
	struct kv_verify_options o = { .env = env, .problem = problem };
	uint64_t problems = 0;
	int err = kv_verify(STORE, &o, &problems);

	CHECK_OK(err);
	CHECK(!problems);
}

/* The store can be used on, and keeps what is written to it, and what has a name. */
static void use_on(const struct run *r, struct kv_env *env, const struct ref *state)
{
	struct kv_options o = options(env);
	struct ref more = ref_copy(state);
	struct kv_batch *b = kv_batch_new();
	struct kv_db *db;

	CHECK(b);
	kv_batch_put(b, kv_slice_str("z"), kv_slice_str("more"), KV_HINT_NONE);
	memcpy(ref_put(&more, kv_slice_str("z"), 4), "more", 4);
	CHECK_OK(kv_open(STORE, &o, &db));
	check_content(db, state);
	CHECK_OK(kv_write(db, b, true));
	check_content(db, &more);
	CHECK_OK(kv_close(db));
	CHECK_OK(kv_open(STORE, &o, &db));
	check_content(db, &more);
	CHECK_OK(kv_compact(db, (struct kv_slice){ NULL, 0 }, (struct kv_slice){ NULL, 0 }));
	check_content(db, &more);
	check_names(r, db);
	CHECK_OK(kv_close(db));
	verify(env);
	kv_batch_free(b);
	ref_done(&more);
}

/* Opens what a crash has left, and returns how many batches are there. */
static uint64_t look(const struct run *r, struct kv_env *env)
{
	struct kv_options o = options(env);
	struct kv_db *db;
	uint64_t n;

	CHECK_OK(kv_open(STORE, &o, &db));
	n = count_batches(db);
	CHECK(n >= r->synced && n <= r->begun, "%" PRIu64 " batches are there", n);
	check_content(db, &r->states[n]);
	check_names(r, db);
	CHECK_OK(kv_close(db));
	return n;
}

/* --- crashing the opening ----------------------------------------------------------------- */

struct second {
	const struct run *run;
	uint64_t every, point;
	uint64_t results[64];		/* batches that were found: all the same as in the end */
	size_t result_count;
};

static void second_crash(void *arg, struct kv_env *env, enum kv_sim_op op, const char *name)
{
	struct second *s = arg;
	struct kv_env *image;

	(void)op;
	(void)name;
	if (s->point++ % s->every || s->result_count == KV_ARRAY_LEN(s->results))
		return;
	image = kv_env_sim_clone(env);
	CHECK(image);
	kv_env_sim_crash(image, s->point % 3 ? KV_SIM_RANDOM :
			 s->point % 2 ? KV_SIM_DROP_ALL : KV_SIM_KEEP_ALL, s->point);
	s->results[s->result_count++] = look(s->run, image);
	kv_env_sim_free(image);
}

/* --- crashing the workload ---------------------------------------------------------------- */

/* Takes the disk over. */
static void look_at_crash(struct run *r, struct kv_env *image)
{
	bool recovery = r->images % RECOVERY_EVERY == 0, use = r->images % USE_EVERY == 0;
	struct second s = { .run = r, .every = 1 + r->images / RECOVERY_EVERY % 4 };
	uint64_t n;

	r->images++;
	if (recovery)
		kv_env_sim_hook(image, second_crash, &s);
	n = look(r, image);
	kv_env_sim_hook(image, NULL, NULL);
	/* What the crash has left was durable, so the first opening that was cut off saw the same. */
	for (size_t i = 0; i < s.result_count; i++)
		CHECK(s.results[i] == n, "%" PRIu64 " and %" PRIu64, s.results[i], n);
	verify(image);
	if (use)
		use_on(r, image, &r->states[n]);
	kv_env_sim_free(image);
}

static void crash(struct run *r, struct kv_env *env, enum kv_sim_crash how, uint64_t crash_seed)
{
	struct kv_env *image = kv_env_sim_clone(env);

	CHECK(image);
	crash_text = how == KV_SIM_DROP_ALL ? ", unsynced dropped" :
		     how == KV_SIM_KEEP_ALL ? ", unsynced kept" : ", unsynced at random";
	kv_env_sim_crash(image, how, crash_seed);
	look_at_crash(r, image);
	crash_text = "";
}

static void before_change(void *arg, struct kv_env *env, enum kv_sim_op op, const char *name)
{
	struct run *r = arg;

	(void)op;
	(void)name;
	if (only_point == UINT64_MAX || only_point == r->point) {
		crash(r, env, KV_SIM_DROP_ALL, 0);
		crash(r, env, KV_SIM_KEEP_ALL, 0);
		for (uint64_t i = 0; i < RANDOM_CRASHES; i++)
			crash(r, env, KV_SIM_RANDOM, r->seed ^ (r->point * RANDOM_CRASHES + i));
	}
	r->point++;
}

/* --- the workload ------------------------------------------------------------------------- */

/* With a dying disk any call may fail; the first failure ends the workload. */
static bool ok(struct run *r, int err)
{
	if (!err)
		return true;
	if (!kv_env_sim_stopped(r->env))
		die(__LINE__, "the disk works", "%s", kv_err_text(err));
	if (!r->error)
		r->error = err;
	return false;
}

static bool step_write(struct run *r)
{
	struct kv_batch *b = kv_batch_new();
	bool sync = ref_chance(&r->random, 20);
	bool good;

	CHECK(b);
	r->states[r->begun + 1] = ref_gen_batch(&r->gen, &r->states[r->begun], b);
	r->begun++;
	good = ok(r, kv_write(r->db, b, sync));
	kv_batch_free(b);
	if (!good)
		return false;
	r->done = r->begun;
	if (sync)
		r->synced = r->done;
	return true;
}

/* A sorted run is as good as a batch, and durable. Some are given up. */
static bool step_ingest(struct run *r)
{
	bool commits = ref_chance(&r->random, 80);
	struct kv_ingest *in;
	struct ref next;
	int err;

	if (!ok(r, kv_ingest_new(r->db, &in)))
		return false;
	next = ref_gen_ingest(&r->gen, &r->states[r->begun], in, &err);
	if (!err && commits) {
		r->states[++r->begun] = next;
		next = (struct ref){ 0 };
		err = kv_ingest_commit(in);
	}
	kv_ingest_free(in);
	ref_done(&next);
	if (!ok(r, err))
		return false;
	if (commits)
		r->synced = r->done = r->begun;
	return true;
}

static void count_collections(struct run *r)
{
	struct kv_stats s;

	kv_stats(r->db, &s);
	r->collections += s.gc_runs;
}

/* In every other round more is overwritten and compacted, so that much garbage is collected. */
static bool makes_garbage(uint64_t run_seed)
{
	return run_seed >> 4 & 1;
}

static bool step_close(struct run *r)
{
	struct kv_options o = options(r->env);
	struct kv_db *db = r->db;

	count_collections(r);
	kv_snapshot_free(db, r->snap);
	r->snap = NULL;
	r->db = NULL;
	if (!ok(r, kv_close(db)))
		return false;
	r->synced = r->done;
	return ok(r, kv_open(STORE, &o, &r->db));
}

static bool step_durable(struct run *r, int err)
{
	if (!ok(r, err))
		return false;
	r->synced = r->done;
	return true;
}

/* The state is set before and after, as the machine may die in between. */
static bool step_name(struct run *r)
{
	size_t i = ref_below(&r->random, NAMES);
	struct name *n = &r->names[i];
	char name[32];

	name_make(name, sizeof(name), i);
	if (n->state == NAME_NONE && !n->batches) {
		*n = (struct name){ NAME_BEGUN, r->done };
		if (!step_durable(r, kv_snapshot_create(r->db, name)))
			return false;
		n->state = NAME_THERE;
	} else if (n->state == NAME_THERE) {
		n->state = NAME_GOING;
		if (!ok(r, kv_snapshot_drop(r->db, name)))
			return false;
		n->state = NAME_NONE;
	}
	return true;
}

static bool step(struct run *r)
{
	uint32_t what = ref_below(&r->random, 100);
	struct kv_slice none = { NULL, 0 };

	if (makes_garbage(r->seed) && ref_chance(&r->random, 6))
		return step_durable(r, kv_compact(r->db, none, none));
	if (what < 3)
		return step_durable(r, kv_flush(r->db));
	if (what < 5)
		return step_durable(r, kv_compact(r->db, none, none));
	if (what < 7)
		return step_durable(r, kv_sync(r->db));
	if (what < 8)
		return step_close(r);
	if (what < 16)
		return step_name(r);
	if (what < 19)
		return step_ingest(r);
	if (what < 23) {
		if (r->snap) {
			kv_snapshot_free(r->db, r->snap);
			r->snap = NULL;
			return true;
		}
		r->snap = kv_snapshot_new(r->db);
		CHECK(r->snap);
		return true;
	}
	return step_write(r);
}

static void run_init(struct run *r, uint64_t run_seed)
{
	*r = (struct run){
		.seed = run_seed,
		.env = kv_env_sim_new(run_seed),
		.random = run_seed,
		.gen = {
			.random = run_seed + 1,
			.prefix = 'a',
			.keys = makes_garbage(run_seed) ? 30 : 80,
			.medium_bytes = 128,
			.bulk_bytes = 1024,
			.value_bytes_max = makes_garbage(run_seed) ? 9000 : 5000,
		},
	};
	CHECK(r->env);
	kv_env_sim_guard_links(r->env);
	running = r;
}

/* Closes the store, whatever happens, since a broken one must let itself be closed. */
static void workload(struct run *r)
{
	uint32_t batches = 40 + ref_below(&r->random, BATCHES_MAX - 40);
	struct kv_options o = options(r->env);
	bool good = ok(r, kv_open(STORE, &o, &r->db));

	while (good && r->begun < batches)
		good = step(r);
	if (!r->db)
		return;
	count_collections(r);
	if (good && !kv_env_sim_stopped(r->env)) {
		check_content(r->db, &r->states[r->done]);
		check_names(r, r->db);
	}
	kv_snapshot_free(r->db, r->snap);
	r->snap = NULL;
	if (ok(r, kv_close(r->db)))
		r->synced = r->done;
	r->db = NULL;
}

static void run_done(struct run *r)
{
	for (uint64_t i = 0; i <= BATCHES_MAX; i++)
		ref_done(&r->states[i]);
	kv_env_sim_free(r->env);
}

/* The disk dies at a change, which is done in part; the engine goes on until it notices. */
static void run_dying(uint64_t run_seed, uint64_t at)
{
	struct run r;

	run_init(&r, run_seed);
	r.point = at;
	crash_text = ", while the disk died";
	kv_env_sim_stop_after(r.env, at, true);
	workload(&r);
	CHECK(kv_env_sim_stopped(r.env));
	kv_env_sim_crash(r.env, (enum kv_sim_crash)(at % 3), at);
	look_at_crash(&r, kv_env_sim_clone(r.env));
	crash_text = "";
	run_done(&r);
}

static void run_round(uint64_t run_seed)
{
	struct run r;
	uint64_t points, every;

	run_init(&r, run_seed);
	kv_env_sim_hook(r.env, before_change, &r);
	workload(&r);
	points = kv_env_sim_ops(r.env);
	printf("seed %" PRIu64 ": %" PRIu64 " batches, %" PRIu64 " collections, %" PRIu64
	       " changes, %" PRIu64 " crashes\n", run_seed, r.done, r.collections, points,
	       r.images);
	fflush(stdout);
	run_done(&r);

	every = 1 + points / DEATHS;
	for (uint64_t at = only_point < points ? only_point : run_seed % every; at < points;
	     at += every) {
		run_dying(run_seed, at);
		if (only_point != UINT64_MAX)
			break;
	}
}

int main(void)
{
	const char *s = getenv("SEED"), *n = getenv("ROUNDS"), *p = getenv("POINT");
	uint64_t rounds = n ? strtoull(n, NULL, 0) : 1;
	struct kv_env *posix = kv_env_posix();

	if (s)
		seed = strtoull(s, NULL, 0);
	else if (posix->ops->random(posix, &seed, sizeof(seed)))
		return EXIT_FAILURE;
	if (p)
		only_point = strtoull(p, NULL, 0);
	printf("SEED=%" PRIu64 " ROUNDS=%" PRIu64 "\n", seed, rounds);
	fflush(stdout);
	for (uint64_t i = 0; i < rounds; i++)
		run_round(seed + i);
	printf("ok\n");
	return EXIT_SUCCESS;
}
