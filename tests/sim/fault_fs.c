/*
 * Something fails while the filesystem is in use: the n-th call to the disk, once or from then on, or the n-th
 * allocation of memory; for each n until nothing fails any more. A script of changes goes through all that
 * the core does (tests/sim/fsops.h). Then:
 *	- what fails gives an error to who asked for it, and has changed nothing that can be seen;
 *	- out of memory passes: the same change succeeds when it is asked for again, unless it was in the
 *	  middle of a commit;
 *	- after a kill, and an opening without failures, the tree is the one before or after the change
 *	  that failed, with all that was synced, and fsck finds nothing;
 *	- nothing hangs, and with the sanitizer on, nothing leaks.
 *
 *	LAYOUT=n PLAN=n AT=n tests/sim/fault_fs
 *
 * does one case again, as the line that a failure prints says.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "fsck/check.h"
#include "kv/checksum.h"
#include "tests/sim/env_sim.h"
#include "tests/sim/fsops.h"
#include "tests/sim/fsref.h"
#include "tests/sim/kvref.h"

static const char *const script[] = {
	"create-c", "write-c-bulk", "setxattr-a", "rename-c-a", "sync", "mkdir-e", "link-b-d/c",
	"write-b", "truncate-b", "punch-b", "flush", "exchange-b-d/a", "zero-b", "symlink-s", "overwrite-a",
	"copy-b-a", "unlink-open-b", "tmpfile-c", "append-a", "sync", "write-sync-a", "reopen", "unlink-c",
	"chmod-a", "flush", "setxattr-d", "unlink-a", "rename-d-e",
};
#define STEPS KV_ARRAY_LEN(script)

/* What fails. */
static const struct plan {
	const char *name;
	unsigned ops;		/* 0: memory */
	int err;
	bool forever;
} plans[] = {
	{ "memory", 0, -ENOMEM, false },
	{ "a write", KV_SIM_WRITE, -EIO, false },
	{ "a sync", KV_SIM_SYNC | KV_SIM_DIR_SYNC, -EIO, false },
	{ "a read", KV_SIM_READ | KV_SIM_OPEN, -EIO, false },
	{ "any change", KV_SIM_MUTATING, -EIO, false },
	{ "all changes", KV_SIM_MUTATING, -EIO, true },
	{ "space", KV_SIM_CREATE | KV_SIM_ALLOCATE | KV_SIM_WRITE, -ENOSPC, false },
};

static struct {
	enum fsop_layout layout;
	const struct plan *plan;
	uint64_t at;
	struct kv_env *base;
	uint64_t clean[STEPS + 1];	/* trees without any failure: clean[i] after i steps */
	time_t now;
	uint64_t cases, failures, poisoned;
} t;

#define CHECK(c, ...)                                                                             \
	do {                                                                                      \
		if (!(c)) {                                                                       \
			fprintf(stderr, "fault_fs.c:%d: %s: ", __LINE__, #c);                     \
			fprintf(stderr, " " __VA_ARGS__);                                         \
			fprintf(stderr, "\nrepeat: LAYOUT=%d PLAN=%d AT=%" PRIu64                 \
				" tests/sim/fault_fs\n", (int)t.layout, t.plan ? (int)(t.plan - plans) : -1,    \
				t.at);                                                            \
			abort();                                                                  \
		}                                                                                 \
	} while (0)

/* --- memory that fails ---------------------------------------------------------------------- */

/* The linker leads all calls of the engine and the core here (--wrap, tests/module.am). */
static uint64_t memory_left = UINT64_MAX;	/* so many allocations still work, and then one doesn't */
static uint64_t memory_failed;

static bool memory_fails(void)
{
	if (memory_left == UINT64_MAX || kv_env_sim_allocates || memory_left--)
		return false;
	memory_left = UINT64_MAX;
	memory_failed++;
	return true;
}

void *real_malloc(size_t bytes) __asm__("__real_malloc");
void *real_calloc(size_t n, size_t bytes) __asm__("__real_calloc");
void *real_realloc(void *p, size_t bytes) __asm__("__real_realloc");
void *real_aligned_alloc(size_t align, size_t bytes) __asm__("__real_aligned_alloc");
char *real_strdup(const char *s) __asm__("__real_strdup");
void *wrap_malloc(size_t bytes) __asm__("__wrap_malloc");
void *wrap_calloc(size_t n, size_t bytes) __asm__("__wrap_calloc");
void *wrap_realloc(void *p, size_t bytes) __asm__("__wrap_realloc");
void *wrap_aligned_alloc(size_t align, size_t bytes) __asm__("__wrap_aligned_alloc");
char *wrap_strdup(const char *s) __asm__("__wrap_strdup");

void *wrap_malloc(size_t bytes)
{
	return memory_fails() ? NULL : real_malloc(bytes);
}

void *wrap_calloc(size_t n, size_t bytes)
{
	return memory_fails() ? NULL : real_calloc(n, bytes);
}

void *wrap_realloc(void *p, size_t bytes)
{
	return memory_fails() ? NULL : real_realloc(p, bytes);
}

void *wrap_aligned_alloc(size_t align, size_t bytes)
{
	return memory_fails() ? NULL : real_aligned_alloc(align, bytes);
}

char *wrap_strdup(const char *s)
{
	return memory_fails() ? NULL : real_strdup(s);
}

/* --- looking -------------------------------------------------------------------------------- */

static uint64_t tree_of(struct fs *fs)
{
	KV_AUTO(kv_buf_done) struct kv_buf text = KV_BUF_INIT;
	int err = fsref_dump_fs(fs, &text);

	CHECK(!err, "%s", kv_err_text(err));
	return kv_checksum(kv_buf_slice(&text), 0);
}

static void fsck(struct kv_env *env)
{
	const struct fsck_options o = { .env = env, .read_only = true };
	struct fsck_result result;
	int err = fsck_run("store", &o, &result);

	CHECK(!err && !result.problems, "%s, %" PRIu64 " problems", kv_err_text(err),
	      result.problems);
}

/* --- one case --------------------------------------------------------------------------------- */

struct run {
	struct kv_env *env;
	struct fs *fs;		/* NULL after an opening that failed */
	size_t durable;		/* so many steps */
};

static uint64_t failures(const struct run *r)
{
	return t.plan && t.plan->ops ? kv_env_sim_faults_hit(r->env) : memory_failed;
}

static int step(struct run *r, size_t i)
{
	const struct fsop *op = fsop_find(kv_slice_str(script[i]));
	struct fs *fs = r->fs;
	int err, open_err;

	t.now = (time_t)(2000 + i);
	if (op->kind != FSOP_REOPEN)
		return fsop_do(fs, op);
	r->fs = NULL;
	err = fs_close(fs);
	open_err = fsop_open(r->env, t.layout, &t.now, &r->fs);
	return err ? err : open_err;
}

static void plan_failure(struct run *r)
{
	const struct kv_sim_fault fault = { .ops = t.plan->ops, .after = t.at, .err = t.plan->err,
					    .forever = t.plan->forever };

	memory_failed = 0;
	if (t.plan->ops)
		kv_env_sim_fail(r->env, &fault);
	else
		memory_left = t.at;
}

/* The process is killed: what it has written stays. Then all works again: so many steps are done. */
static void check_killed(struct run *r, size_t from, size_t to)
{
	struct kv_env *left = kv_env_sim_clone(r->env);
	struct fs *fs;
	uint64_t tree;
	bool good = false;
	int err;

	CHECK(left);
	kv_env_sim_crash(left, KV_SIM_KEEP_ALL, 0);
	kv_env_sim_heal(left);
	fsck(left);
	err = fsop_open(left, t.layout, &t.now, &fs);
	CHECK(!err, "%s", kv_err_text(err));
	tree = tree_of(fs);
	for (size_t i = from; i <= to; i++)
		good |= tree == t.clean[i];
	CHECK(good, "the tree is none of those after %zu to %zu steps", from, to);
	CHECK(!fs_close(fs));
	kv_env_sim_free(left);
}

/*
 * It has changed nothing. But when the sync of a write fails, the write has been done, and nobody
 * knows whether it lasts: its bytes are seen, its times may not be.
 */
static void check_failed(struct run *r, size_t i)
{
	uint64_t tree = tree_of(r->fs);

	if (fsop_find(kv_slice_str(script[i]))->kind != FSOP_WRITE_SYNC)
		CHECK(tree == t.clean[i], "step %zu, %s, has failed, and changed something", i, script[i]);
}

/*
 * Takes the failure out, and sees what the step that met it has done. True: the script can go on, with
 * the next step.
 */
static bool met(struct run *r, size_t i, int err)
{
	t.failures++;
	memory_left = UINT64_MAX;
	CHECK(err != -ENOENT && err != -EEXIST && err != -EINVAL && !kv_err_is(err, KV_E_corrupt),
	      "step %zu, %s: %s", i, script[i], kv_err_text(err));
	/* What a sync could not write is gone when the system stops using it, too. */
	check_killed(r, t.plan->ops & (KV_SIM_SYNC | KV_SIM_DIR_SYNC) ? r->durable : i, i + 1);
	if (r->fs && !t.plan->forever)
		check_failed(r, i);
	if (t.plan->ops)
		return false;
	if (!r->fs)
		err = fsop_open(r->env, t.layout, &t.now, &r->fs);
	else
		err = step(r, i);
	/* In the middle of a commit it is not known what counts: then nothing more is written. */
	if (kv_err_is(err, KV_E_poisoned)) {
		t.poisoned++;
		return false;
	}
	CHECK(!err, "step %zu, %s, again: %s", i, script[i], kv_err_text(err));
	CHECK(tree_of(r->fs) == t.clean[i + 1]);
	return true;
}

/* False: nothing has failed, since there are not so many calls. */
static bool run_case(void)
{
	struct run r = { .env = kv_env_sim_clone(t.base) };
	bool goes_on = true, hit;
	size_t i;
	int err;

	CHECK(r.env);
	t.now = 2000;
	CHECK(!fsop_open(r.env, t.layout, &t.now, &r.fs));
	plan_failure(&r);
	for (i = 0; i < STEPS && goes_on; i++) {
		err = step(&r, i);
		if (err)
			goes_on = met(&r, i, err);
		else if (fsop_is_durable(fsop_find(kv_slice_str(script[i]))))
			r.durable = i + 1;
	}
	memory_left = UINT64_MAX;
	hit = failures(&r);
	if (goes_on)
		check_killed(&r, STEPS, STEPS);
	kv_env_sim_heal(r.env);
	if (r.fs)
		(void)!fs_close(r.fs);	/* it may tell of the failure once more */
	kv_env_sim_free(r.env);
	t.cases++;
	return hit;
}

/* --- all of them ------------------------------------------------------------------------------ */

static void clean_run(void)
{
	struct run r = { .env = kv_env_sim_clone(t.base) };

	CHECK(r.env);
	t.now = 2000;
	CHECK(!fsop_open(r.env, t.layout, &t.now, &r.fs));
	t.clean[0] = tree_of(r.fs);
	for (size_t i = 0; i < STEPS; i++) {
		int err = step(&r, i);

		CHECK(!err, "%s: %s", script[i], kv_err_text(err));
		t.clean[i + 1] = tree_of(r.fs);
	}
	CHECK(!fs_close(r.fs));
	kv_env_sim_free(r.env);
}

static uint64_t number(const char *name, uint64_t unset)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 0) : unset;
}

int main(void)
{
	uint64_t layout = number("LAYOUT", FSOP_LAYOUTS), plan = number("PLAN", KV_ARRAY_LEN(plans));
	/* In between all of many: each n-th, another n-th each time for another seed. */
	uint64_t every = number("EVERY", 11);

	for (int l = 0; l < FSOP_LAYOUTS; l++) {
		if (layout != FSOP_LAYOUTS && layout != (uint64_t)l)
			continue;
		t.layout = (enum fsop_layout)l;
		t.now = 1000;
		t.base = fsop_disk(1, t.layout, &t.now);
		t.plan = NULL;
		clean_run();
		for (size_t p = 0; p < KV_ARRAY_LEN(plans); p++) {
			uint64_t cases = t.cases, met_before = t.failures;

			if (plan != KV_ARRAY_LEN(plans) && plan != p)
				continue;
			t.plan = &plans[p];
			t.at = number("AT", number("SEED", 1) % every);
			while (run_case() && !getenv("AT"))
				t.at += every;
			printf("layout %d, %s: %" PRIu64 " cases, %" PRIu64 " seen by the caller\n", l,
			       plans[p].name, t.cases - cases, t.failures - met_before);
			fflush(stdout);
		}
		kv_env_sim_free(t.base);
	}
	printf("%" PRIu64 " cases; %" PRIu64 " times no memory in the middle of a commit\nok\n", t.cases,
	       t.poisoned);
	return EXIT_SUCCESS;
}
