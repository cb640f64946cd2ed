/*
 * All sequences of up to three changes to a small tree (tests/sim/fsops.h), and the power is cut
 * before each single change that the last one makes to the disk, and after it. What is left must be
 * the tree as it was after a prefix of the sequence, with all that was synced, and fsck must find
 * nothing. (Crashes in earlier changes are those of shorter sequences.)
 *
 *	SEED=n DEPTH=n SAMPLES=n SEQUENCE=a,b,c LAYOUT=n tests/sim/ace_fs
 *
 * All sequences up to DEPTH; then SAMPLES of three operations, drawn at random, with those of two
 * that they begin with. SEQUENCE and LAYOUT look at one only, as the line that a failure prints says.
 *
 * A crash is a copy of the disk in memory. What is found in it is a function of its bytes, so copies
 * with the same bytes are opened once: most of them are the same. Trees are compared by the checksum
 * of their text. The tree after each change is read from the living filesystem; that
 * it is the right one, model_fs.c says.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fsck/check.h"
#include "kv/checksum.h"
#include "kv/env.h"
#include "tests/sim/env_sim.h"
#include "tests/sim/fsops.h"
#include "tests/sim/fsref.h"
#include "tests/sim/kvref.h"

#define STORE "store"
#define OPS_MAX 5		/* of one sequence */
#define RANDOM_CRASHES 2	/* at each change */
#define RECOVERY_EVERY 64	/* states of which the opening is crashed */
#define AGAIN_EVERY 8		/* states that fsck looks at after the opening, too */
#define SAMPLES 100		/* of each layout */
#define START_S 1000000
#define FOUND_MAX 1024		/* crashes in one change */

struct sequence {
	const struct fsop *ops[OPS_MAX];
	int count;
};

/* A crash, and what was there. */
struct found {
	uint64_t point;
	int how;
	uint64_t tree;
	struct kv_buf text;	/* for those that are explained */
};

static struct {
	uint64_t seed;
	enum fsop_layout layout;
	struct kv_env *base;	/* with the tree, closed */
	bool explain;		/* it has failed, and is done again to tell how */
	const struct fsop *move;	/* the file that it replaces is always the old or the new one */

	/* The sequence that is looked at. */
	const struct sequence *sequence;
	struct kv_env *env;
	struct fs *fs;
	time_t now;
	uint64_t trees[OPS_MAX + 1];	/* trees[i]: after i operations */
	struct kv_buf texts[OPS_MAX + 1]; /* when explaining */
	int synced;
	uint64_t point;
	struct found found[FOUND_MAX];
	size_t found_count;

	uint64_t sequences, crashes, states;
} t;

_Noreturn static void die(int line, const char *what, const char *fmt, ...) KV_PRINTF(3, 4);

static void print_sequence(FILE *to, const struct sequence *s)
{
	for (int i = 0; i < s->count; i++)
		fprintf(to, "%s%s", i ? "," : "", s->ops[i]->name);
}

static void die(int line, const char *what, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "ace_fs.c:%d: %s: ", line, what);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nat change %" PRIu64 " of the last operation", t.point);
	fprintf(stderr, "\nrepeat: SEED=%" PRIu64 " LAYOUT=%d SEQUENCE=", t.seed, (int)t.layout);
	if (t.sequence)
		print_sequence(stderr, t.sequence);
	fprintf(stderr, " tests/sim/ace_fs\n");
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

static int open_fs(struct kv_env *env, struct fs **out)
{
	return fsop_open(env, t.layout, &t.now, out);
}

/* --- states that were seen -------------------------------------------------------------------------- */

static struct {
	struct { uint64_t disk, tree; } *at;
	size_t count, max;	/* a power of two; disk 0 is free */
} seen;

static size_t seen_slot(uint64_t disk)
{
	size_t i = disk & (seen.max - 1);

	while (seen.at[i].disk && seen.at[i].disk != disk)
		i = (i + 1) & (seen.max - 1);
	return i;
}

static bool seen_find(uint64_t disk, uint64_t *out_tree)
{
	size_t i = seen.max ? seen_slot(disk) : 0;

	if (!seen.max || !seen.at[i].disk)
		return false;
	*out_tree = seen.at[i].tree;
	return true;
}

static void seen_grow(void)
{
	__typeof__(seen) old = seen;

	seen.max = old.max ? 2 * old.max : 4096;
	seen.at = calloc(seen.max, sizeof(*seen.at));
	KV_ASSERT(seen.at);
	for (size_t i = 0; i < old.max; i++)
		if (old.at[i].disk)
			seen.at[seen_slot(old.at[i].disk)] = old.at[i];
	free(old.at);
}

static void seen_add(uint64_t disk, uint64_t tree)
{
	size_t i;

	if (2 * (seen.count + 1) > seen.max)
		seen_grow();
	i = seen_slot(disk);
	seen.count += !seen.at[i].disk;
	seen.at[i].disk = disk;
	seen.at[i].tree = tree;
}

static void seen_forget(void)
{
	free(seen.at);
	memset(&seen, 0, sizeof(seen));
}

/* --- looking at what a crash has left ------------------------------------------------------------- */

static uint64_t tree_of(struct fs *fs, struct kv_buf *text)
{
	CHECK_OK(fsref_dump_fs(fs, text));
	return kv_checksum(kv_buf_slice(text), 0);
}

static void fsck(struct kv_env *env)
{
	struct fsck_options o = { .env = env, .read_only = true,
				  .msg = { print_message, NULL, KV_MSG_WARN } };
	struct fsck_result result;

	CHECK_OK(fsck_run(STORE, &o, &result));
	CHECK(!result.problems);
}

static bool is_content(const uint8_t *got, size_t bytes, const char *name, size_t want_bytes)
{
	static uint8_t want[300000];

	fsop_fill(name, want, want_bytes);
	return bytes == want_bytes && !memcmp(got, want, bytes);
}

/* A file that another one was renamed over is the old or the new one, whatever was synced. */
static void check_replaced(struct fs *fs)
{
	static uint8_t got[300000];
	bool is_a = *t.move->to == 'a';
	struct fs_attr a;
	size_t bytes;

	CHECK_OK(fs_lookup(fs, FS_INO_ROOT, kv_slice_str(t.move->to), &a));
	CHECK_OK(fs_read(fs, a.ino, got, sizeof(got), 0, &bytes));
	if (is_content(got, bytes, is_a ? "old-a" : "old-b", is_a ? 3000 : 140000))
		return;
	CHECK(t.sequence->count > 2, "it is neither the old nor the new one");
	CHECK(is_content(got, bytes, t.sequence->ops[1]->name, t.sequence->ops[1]->bytes),
	      "%zu bytes are neither the old nor the new ones", bytes);
}

struct second {
	uint64_t trees[256];
	size_t count;
	uint64_t seed;
};

static uint64_t open_and_read(struct kv_env *image, struct kv_buf *text)
{
	struct fs *fs;
	uint64_t tree;

	CHECK_OK(open_fs(image, &fs));
	tree = tree_of(fs, text);
	if (t.move)
		check_replaced(fs);
	CHECK_OK(fs_close(fs));
	return tree;
}

/* The power is cut again, while the filesystem is being opened. */
static void second_crash(void *arg, struct kv_env *env, enum kv_sim_op op, const char *name)
{
	KV_AUTO(kv_buf_done) struct kv_buf text = KV_BUF_INIT;
	struct second *s = arg;
	struct kv_env *image;
	uint64_t disk;

	(void)op;
	(void)name;
	if (s->count == KV_ARRAY_LEN(s->trees))
		return;
	image = kv_env_sim_clone(env);
	CHECK(image);
	kv_env_sim_crash(image, s->count % 3 ? KV_SIM_RANDOM : KV_SIM_DROP_ALL, ++s->seed);
	disk = kv_env_sim_hash(image);
	if (!seen_find(disk, &s->trees[s->count])) {
		s->trees[s->count] = open_and_read(image, &text);
		t.states++;
		seen_add(disk, s->trees[s->count]);
	}
	s->count++;
	kv_env_sim_free(image);
}

/* Which tree is there? Takes the disk over. */
static uint64_t look(struct kv_env *image, struct kv_buf *text)
{
	uint64_t disk = kv_env_sim_hash(image), tree;
	struct second s = { .seed = disk };

	if (!t.explain && seen_find(disk, &tree)) {
		kv_env_sim_free(image);
		return tree;
	}
	fsck(image);
	if (t.states % RECOVERY_EVERY == 0)
		kv_env_sim_hook(image, second_crash, &s);
	tree = open_and_read(image, text);
	kv_env_sim_hook(image, NULL, NULL);
	for (size_t i = 0; i < s.count; i++)
		CHECK(s.trees[i] == tree, "crash %zu of the opening leaves another tree", i);
	if (t.states++ % AGAIN_EVERY == 0)
		fsck(image);
	seen_add(disk, tree);
	kv_env_sim_free(image);
	return tree;
}

static const char *how_text(int how)
{
	return how == KV_SIM_DROP_ALL ? "unsynced dropped" :
	       how == KV_SIM_KEEP_ALL ? "unsynced kept" : "unsynced at random";
}

static void crash(int how)
{
	struct kv_env *image = kv_env_sim_clone(t.env);
	struct found *f = &t.found[t.found_count];

	CHECK(image);
	CHECK(t.found_count < FOUND_MAX);
	t.found_count++;
	t.crashes++;
	f->point = t.point;
	f->how = how;
	kv_env_sim_crash(image, (enum kv_sim_crash)KV_MIN(how, KV_SIM_RANDOM),
			 t.seed ^ (t.point << 8) ^ (uint64_t)how);
	f->tree = look(image, &f->text);
}

static void crash_all_ways(void)
{
	for (int how = 0; how < KV_SIM_RANDOM + RANDOM_CRASHES; how++)
		crash(how);
	t.point++;
}

static void before_change(void *arg, struct kv_env *env, enum kv_sim_op op, const char *name)
{
	(void)arg;
	(void)env;
	(void)op;
	(void)name;
	crash_all_ways();
}

/* --- one sequence --------------------------------------------------------------------------------------- */

static bool sequence_run(const struct sequence *s);

_Noreturn static void explain(const struct found *f)
{
	fprintf(stderr, "crash before change %" PRIu64 " of the last operation, %s; %d operations were durable\n",
		f->point, how_text(f->how), t.synced);
	for (int i = t.synced; i <= t.sequence->count; i++) {
		fprintf(stderr, "to the tree after %d operations:\n", i);
		fsref_print_difference(&t.texts[i], &f->text);
	}
	die(__LINE__, "a tree that was not, or is lost", "-");
}

/* What was found in crashes must be one of the trees from `synced` on. */
static void check_found(int synced)
{
	t.synced = synced;
	for (size_t k = 0; k < t.found_count; k++) {
		bool good = false;

		for (int i = synced; i <= t.sequence->count && !good; i++)
			good = t.found[k].tree == t.trees[i];
		if (good)
			continue;
		if (t.explain)
			explain(&t.found[k]);
		t.explain = true;
		(void)sequence_run(t.sequence);
		die(__LINE__, "it was another tree the first time", "-");
	}
	t.found_count = 0;
}

static int kill_and_open(bool looks)
{
	struct kv_env *left = kv_env_sim_clone(t.env);
	struct fs *fs = t.fs;

	CHECK(left);
	t.fs = NULL;
	kv_env_sim_hook(t.env, NULL, NULL);
	kv_env_sim_crash(t.env, KV_SIM_DROP_ALL, 0);
	(void)fs_close(fs);		/* its disk is gone */
	kv_env_sim_free(t.env);
	t.env = left;
	if (looks)
		kv_env_sim_hook(t.env, before_change, NULL);
	return open_fs(t.env, &t.fs);
}

static int operate(const struct fsop *op, bool looks)
{
	struct fs *fs = t.fs;

	if (looks)
		kv_env_sim_hook(t.env, before_change, NULL);
	if (op->kind == FSOP_KILL)
		return kill_and_open(looks);
	if (op->kind != FSOP_REOPEN)
		return fsop_do(fs, op);
	t.fs = NULL;
	CHECK_OK(fs_close(fs));
	return open_fs(t.env, &t.fs);
}

/* The trees after the first operations are those of shorter sequences, and remembered. */
static struct {
	struct { uint64_t tree; bool known; } one[64], two[64][64];
} prefixes;

static void tree_after(int i)
{
	const struct sequence *s = t.sequence;
	KV_AUTO(kv_buf_done) struct kv_buf text = KV_BUF_INIT;
	size_t a = s->count > 0 ? (size_t)(s->ops[0] - fsops) : 0;
	size_t b = s->count > 1 ? (size_t)(s->ops[1] - fsops) : 0;
	uint64_t *tree = i == 1 ? &prefixes.one[a].tree : &prefixes.two[a][b].tree;
	bool *known = i == 1 ? &prefixes.one[a].known : &prefixes.two[a][b].known;

	KV_ASSERT(fsop_count <= 64);
	if (i && i <= 2 && *known && !t.explain) {
		t.trees[i] = *tree;
		return;
	}
	t.trees[i] = tree_of(t.fs, t.explain ? &t.texts[i] : &text);
	if (i && i <= 2) {
		*tree = t.trees[i];
		*known = true;
	}
}

/* The filesystem is left open. False: one of the operations was refused. */
static bool operate_all(const struct sequence *s)
{
	int synced = 0;

	for (int i = 0; i < s->count; i++) {
		bool last = i + 1 == s->count;
		int err;

		t.now++;
		t.point = 0;
		err = operate(s->ops[i], last);
		CHECK(!err || fsop_is_refusal(err), "%s: %s", s->ops[i]->name, kv_err_text(err));
		if (err && !last)
			return false;
		tree_after(i + 1);
		CHECK(!err || t.trees[i + 1] == t.trees[i], "%s was refused, and has changed something",
		      s->ops[i]->name);
		if (!last) {
			if (fsop_is_durable(s->ops[i]))
				synced = i + 1;
			continue;
		}
		check_found(synced);
		crash_all_ways();
		check_found(!err && fsop_is_durable(s->ops[i]) ? i + 1 : synced);
		return !err;
	}
	return true;
}

static bool sequence_run(const struct sequence *s)
{
	bool good;

	t.sequence = s;
	t.now = START_S;
	t.found_count = 0;
	t.env = kv_env_sim_clone(t.base);
	CHECK(t.env);
	CHECK_OK(open_fs(t.env, &t.fs));
	tree_after(0);
	good = operate_all(s);
	t.sequences++;
	kv_env_sim_hook(t.env, NULL, NULL);
	kv_env_sim_crash(t.env, KV_SIM_DROP_ALL, 0);
	(void)fs_close(t.fs);	/* its disk is gone */
	kv_env_sim_free(t.env);
	return good;
}

/* --- all of them ---------------------------------------------------------------------------------------- */

static void base_make(void)
{
	t.now = START_S - 10;
	t.base = fsop_disk(t.seed, t.layout, &t.now);
	memset(&prefixes, 0, sizeof(prefixes));
	seen_forget();
}

/*
 * Behind an operation that was refused there is nothing new. So a sequence is gone into only when
 * all of its prefixes have changed something.
 */
static bool one(size_t a)
{
	struct sequence s = { { &fsops[a] }, 1 };

	return sequence_run(&s);
}

static bool two(size_t a, size_t b)
{
	struct sequence s = { { &fsops[a], &fsops[b] }, 2 };

	return sequence_run(&s);
}

static void three(size_t a, size_t b, size_t c)
{
	struct sequence s = { { &fsops[a], &fsops[b], &fsops[c] }, 3 };

	(void)sequence_run(&s);
}

static void all(int depth)
{
	for (size_t a = 0; a < fsop_count; a++) {
		if (!one(a) || depth < 2)
			continue;
		for (size_t b = 0; b < fsop_count; b++) {
			if (!two(a, b) || depth < 3)
				continue;
			for (size_t c = 0; c < fsop_count; c++)
				three(a, b, c);
		}
	}
}

static void some(uint64_t samples)
{
	uint64_t random = t.seed;

	for (uint64_t i = 0; i < samples; i++) {
		size_t a = ref_below(&random, fsop_count), b = ref_below(&random, fsop_count);
		size_t c = ref_below(&random, fsop_count);

		if (two(a, b))
			three(a, b, c);
	}
}

/* What programs do to replace a file, at each step of it, with and without syncing it first. */
static void replace(const char *write, const char *move, bool sync)
{
	const struct fsop *all[] = {
		fsop_find(kv_slice_str("create-c")), fsop_find(kv_slice_str(write)),
		sync ? fsop_find(kv_slice_str("sync")) : NULL, fsop_find(kv_slice_str(move)),
		fsop_find(kv_slice_str("sync")),
	};
	struct sequence s = { { NULL }, 0 };

	t.move = fsop_find(kv_slice_str(move));
	seen_forget();		/* each state is looked at with this question in mind */
	for (size_t i = 0; i < KV_ARRAY_LEN(all); i++) {
		if (!all[i])
			continue;
		s.ops[s.count++] = all[i];
		CHECK(sequence_run(&s));
	}
	seen_forget();
	t.move = NULL;
}

static void replaces(void)
{
	for (int i = 0; i < 8; i++)
		replace(i & 1 ? "write-c" : "write-c-bulk", i & 2 ? "rename-c-a" : "rename-c-b", i & 4);
}

static void layout_run(int depth, uint64_t samples)
{
	base_make();
	replaces();
	all(depth);
	if (depth < 3)
		some(samples);
	kv_env_sim_free(t.base);
}

/* --- the command ------------------------------------------------------------------------------------------ */

static void one_sequence(const char *text)
{
	struct sequence s = { { NULL }, 0 };

	base_make();
	while (*text && s.count < OPS_MAX) {
		size_t bytes = strcspn(text, ",");

		s.ops[s.count] = fsop_find(kv_slice(text, bytes));
		CHECK(s.ops[s.count], "no operation is called %.*s", (int)bytes, text);
		s.count++;
		text += bytes + (text[bytes] == ',');
	}
	(void)sequence_run(&s);
	kv_env_sim_free(t.base);
}

static uint64_t number(const char *name, uint64_t unset)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 0) : unset;
}

int main(void)
{
	struct kv_env *posix = kv_env_posix();
	uint64_t start = posix->ops->monotonic_ns(posix), ms;
	int depth = (int)number("DEPTH", 1), first = (int)number("LAYOUT", 0);
	const char *sequence = getenv("SEQUENCE");

	if (!getenv("SEED") && posix->ops->random(posix, &t.seed, sizeof(t.seed)))
		return EXIT_FAILURE;
	t.seed = number("SEED", t.seed);
	printf("SEED=%" PRIu64 " DEPTH=%d\n", t.seed, depth);
	fflush(stdout);
	for (int l = first; l < (getenv("LAYOUT") ? first + 1 : FSOP_LAYOUTS); l++) {
		t.layout = (enum fsop_layout)l;
		if (sequence)
			one_sequence(sequence);
		else
			layout_run(depth, number("SAMPLES", SAMPLES));
	}
	ms = (posix->ops->monotonic_ns(posix) - start) / 1000000 + 1;
	printf("%" PRIu64 " sequences, %" PRIu64 " crashes, %" PRIu64 " distinct states, in %" PRIu64
	       " ms: %" PRIu64 " crashes and %" PRIu64 " states a second\nok\n", t.sequences, t.crashes,
	       t.states, ms, t.crashes * 1000 / ms, t.states * 1000 / ms);
	for (size_t i = 0; i < FOUND_MAX; i++)
		kv_buf_done(&t.found[i].text);
	for (int i = 0; i <= OPS_MAX; i++)
		kv_buf_done(&t.texts[i]);
	seen_forget();
	return EXIT_SUCCESS;
}
