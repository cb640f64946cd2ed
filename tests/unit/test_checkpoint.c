/*
 * Checkpoints: what they hold, that the two stores do not disturb each other, and that the
 * machine may die at each change that one makes. And reading only, on a real disk.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kv/filename.h"
#include "kv/format.h"
#include "kv/verify.h"
#include "tests/unit/db_fixture.h"

static const struct kv_slice none = { NULL, 0 };

static void put_sized(struct dbfix *f, unsigned i, unsigned round)
{
	static const size_t sizes[] = { 3, 100, 300, 1500, 2500, 9000 };
	static uint8_t value[9000];
	char key[16];

	snprintf(key, sizeof(key), "k%03u", i);
	dbfix_fill(value, sizes[(i + round) % KV_ARRAY_LEN(sizes)], round * 1000 + i);
	ck_ok(dbfix_put_bytes(f, key, value, sizes[(i + round) % KV_ARRAY_LEN(sizes)], false));
}

static void write_round(struct dbfix *f, unsigned round)
{
	for (unsigned i = 0; i < 50; i++)
		put_sized(f, i * 7 % 50, round);
	ck_ok(dbfix_delete(f, "k007"));
	ck_ok(dbfix_delete_range(f, "k030", "k035"));
}

/* A sum over all keys and values. */
static uint64_t see(struct kv_db *db, const struct kv_snapshot *s)
{
	struct kv_iter_options o = { .snap = s };
	uint64_t h = 14695981039346656037u;
	struct kv_iter *it;
	struct kv_slice v;

	ck_ok(kv_iter_new(db, &o, &it));
	for (kv_iter_seek_first(it); kv_iter_valid(it); kv_iter_next(it)) {
		ck_ok(kv_iter_value(it, &v));
		for (size_t i = 0; i < kv_iter_key(it).bytes; i++)
			h = (h ^ ((const uint8_t *)kv_iter_key(it).data)[i]) * 1099511628211u;
		for (size_t i = 0; i < v.bytes; i++)
			h = (h ^ ((const uint8_t *)v.data)[i]) * 1099511628211u;
	}
	ck_ok(kv_iter_error(it));
	kv_iter_free(it);
	return h;
}

static uint64_t see_named(struct kv_db *db, const char *name)
{
	struct kv_snapshot *s;
	uint64_t sum;

	ck_ok(kv_snapshot_open(db, name, &s));
	sum = see(db, s);
	kv_snapshot_free(db, s);
	return sum;
}

static void problem(void *arg, const char *file, const char *text)
{
	(void)arg;
	printf("verify: %s: %s\n", file ? file : "-", text);
}

static void verify(struct kv_env *env, const char *path)
{
	struct kv_verify_options o = { .env = env, .problem = problem };
	uint64_t problems;

	ck_ok(kv_verify(path, &o, &problems));
	ck_assert_uint_eq(problems, 0);
}

static struct kv_db *open_at(struct dbfix *f, const char *path)
{
	struct kv_options o = f->options;
	struct kv_db *db;

	o.create = false;
	ck_ok(kv_open(path, &o, &db));
	return db;
}

static uint64_t see_at(struct dbfix *f, const char *path)
{
	struct kv_db *db = open_at(f, path);
	uint64_t sum = see(db, NULL);

	ck_ok(kv_close(db));
	return sum;
}

static bool there_is(struct kv_env *env, const char *path)
{
	struct kv_env_dir *dir;
	int err = env->ops->dir_open(env, path, false, &dir);

	ck_assert(!err || err == -ENOENT);
	if (!err)
		env->ops->dir_close(dir);
	return !err;
}

/* --- what it holds ------------------------------------------------------------------------ */

UNIT(it_is_a_store_with_all_that_was_there)
{
	uint64_t sum, named;
	struct dbfix f;

	dbfix_init(&f, 1);
	dbfix_open(&f);
	write_round(&f, 1);
	ck_ok(kv_snapshot_create(f.db, "one"));
	named = see(f.db, NULL);
	ck_ok(kv_compact(f.db, none, none));
	write_round(&f, 2);
	ck_ok(kv_flush(f.db));
	write_round(&f, 3);
	sum = see(f.db, NULL);
	ck_ok(kv_checkpoint(f.db, "copy"));
	ck_assert_uint_eq(see(f.db, NULL), sum);
	for (int round = 0; round < 2; round++) {
		struct kv_db *copy;

		verify(f.env, "copy");
		copy = open_at(&f, "copy");
		ck_assert_uint_eq(see(copy, NULL), sum);
		ck_assert_uint_eq(see_named(copy, "one"), named);
		ck_ok(kv_close(copy));
	}
	dbfix_close(&f);
	verify(f.env, "store");
	dbfix_done(&f);
}
UNIT_END

UNIT(an_empty_store_can_have_one)
{
	struct kv_db *copy;
	struct dbfix f;

	dbfix_init(&f, 2);
	dbfix_open(&f);
	ck_ok(kv_checkpoint(f.db, "copy"));
	copy = open_at(&f, "copy");
	ck_assert_uint_eq(see(copy, NULL), see(f.db, NULL));
	ck_ok(kv_close(copy));
	verify(f.env, "copy");
	dbfix_done(&f);
}
UNIT_END

/* Tables and sealed segments cost no space. */
UNIT(finished_files_are_shared)
{
	uint64_t before, after;
	struct dbfix f;

	dbfix_init(&f, 3);
	dbfix_open(&f);
	for (unsigned round = 0; round < 10; round++)
		write_round(&f, round);
	dbfix_reopen(&f);	/* seals all */
	ck_ok(kv_compact(f.db, none, none));
	dbfix_reopen(&f);
	before = kv_env_sim_used(f.env);
	ck_assert_uint_gt(before, 200 * KV_KIB);
	ck_ok(kv_checkpoint(f.db, "copy"));
	after = kv_env_sim_used(f.env);
	ck_assert_uint_lt(after - before, 100 * KV_KIB);
	dbfix_done(&f);
}
UNIT_END

/* Both are written to, compacted, and closed and opened; then one is removed. */
UNIT(the_two_go_their_own_ways)
{
	struct dbfix f, g;
	uint64_t sums[2];

	dbfix_init(&f, 4);
	dbfix_open(&f);
	for (unsigned round = 0; round < 4; round++)
		write_round(&f, round);
	ck_ok(kv_checkpoint(f.db, "copy"));
	g = f;
	g.db = open_at(&f, "copy");
	for (unsigned round = 0; round < 4; round++) {
		write_round(&f, 10 + round);
		write_round(&g, 20 + round);
		ck_ok(kv_compact(f.db, none, none));
		if (round == 1)
			ck_ok(kv_compact(g.db, none, none));
		if (round == 2)
			ck_ok(kv_checkpoint(g.db, "second"));
	}
	sums[0] = see(f.db, NULL);
	sums[1] = see(g.db, NULL);
	ck_assert_uint_ne(sums[0], sums[1]);
	ck_ok(kv_close(g.db));
	dbfix_close(&f);
	kv_env_sim_crash(f.env, KV_SIM_DROP_ALL, 0);
	verify(f.env, "store");
	verify(f.env, "copy");
	verify(f.env, "second");
	ck_assert_uint_eq(see_at(&f, "store"), sums[0]);
	ck_assert_uint_eq(see_at(&f, "copy"), sums[1]);
	dbfix_done(&f);
}
UNIT_END

/* The source rewrites and deletes all its files; the other one has its names for them still. */
UNIT(files_that_one_deletes_stay_for_the_other)
{
	struct dbfix f;
	uint64_t sum;

	dbfix_init(&f, 5);
	dbfix_open(&f);
	for (unsigned round = 0; round < 4; round++)
		write_round(&f, round);
	sum = see(f.db, NULL);
	ck_ok(kv_checkpoint(f.db, "copy"));
	ck_ok(dbfix_delete_range(&f, "a", "z"));
	ck_ok(kv_compact(f.db, none, none));
	ck_ok(kv_wait_idle(f.db));
	dbfix_close(&f);
	verify(f.env, "copy");
	ck_assert_uint_eq(see_at(&f, "copy"), sum);
	dbfix_done(&f);
}
UNIT_END

/* --- beside writers ----------------------------------------------------------------------- */

struct busy {
	struct kv_db *db;
	_Atomic bool stop;
	_Atomic uint64_t acknowledged;
};

/* Key "n" counts the batches, and each batch has a key and a value of its own, of some size. */
static void *be_busy(void *arg)
{
	static const size_t sizes[] = { 20, 400, 3000 };
	static uint8_t value[3000];
	struct busy *w = arg;
	struct kv_batch *b = kv_batch_new();
	char key[24];

	ck_assert_ptr_nonnull(b);
	for (uint64_t n = 1; !atomic_load(&w->stop) && n < 20000; n++) {
		kv_batch_reset(b);
		snprintf(key, sizeof(key), "b%" PRIu64, n % 500);
		dbfix_fill(value, sizes[n % 3], n);
		kv_batch_put(b, kv_slice_str(key), kv_slice(value, sizes[n % 3]), KV_HINT_NONE);
		kv_batch_add(b, kv_slice_str("n"), 1);
		ck_ok(kv_write(w->db, b, false));
		atomic_store(&w->acknowledged, n);
	}
	kv_batch_free(b);
	return NULL;
}

/* The store holds exactly the first n batches, for the n that it says. */
static uint64_t check_busy(struct dbfix *f)
{
	static const size_t sizes[] = { 20, 400, 3000 };
	static uint8_t value[3000];
	uint64_t n = (uint64_t)dbfix_counter(f, "n");
	char key[24];

	for (uint64_t i = n > 500 ? n - 499 : 1; i <= n; i++) {
		snprintf(key, sizeof(key), "b%" PRIu64, i % 500);
		dbfix_fill(value, sizes[i % 3], i);
		dbfix_expect_bytes(f, NULL, key, value, sizes[i % 3]);
	}
	return n;
}

UNIT(writers_go_on_meanwhile)
{
	struct dbfix f, g;
	struct busy w = { .db = NULL };
	pthread_t thread;

	dbfix_init(&f, 6);
	f.options.inline_work = false;
	dbfix_open(&f);
	w.db = f.db;
	ck_assert(!pthread_create(&thread, NULL, be_busy, &w));
	for (unsigned i = 0; i < 5; i++) {
		char path[16], name[16];
		uint64_t before;

		while (atomic_load(&w.acknowledged) < 100 * (i + 1))
			sched_yield();
		before = atomic_load(&w.acknowledged);
		snprintf(path, sizeof(path), "copy%u", i);
		snprintf(name, sizeof(name), "s%u", i);
		ck_ok(kv_snapshot_create(f.db, name));
		ck_ok(kv_checkpoint(f.db, path));
		verify(f.env, path);
		g = f;
		g.db = open_at(&f, path);
		ck_assert_uint_ge(check_busy(&g), before);
		ck_ok(kv_snapshot_drop(g.db, name));
		ck_ok(kv_close(g.db));
	}
	atomic_store(&w.stop, true);
	ck_assert(!pthread_join(thread, NULL));
	ck_assert_uint_eq(check_busy(&f), atomic_load(&w.acknowledged));
	dbfix_close(&f);
	verify(f.env, "store");
	dbfix_done(&f);
}
UNIT_END

/* While the checkpoint's flush makes its table, a snapshot is made of more than goes there. */
static void make_snapshot(void *arg, struct kv_env *env, enum kv_sim_op op, const char *name)
{
	struct dbfix *f = arg;

	if (op != KV_SIM_CREATE || !strstr(name, ".sst"))
		return;
	kv_env_sim_hook(env, NULL, NULL);
	ck_ok(dbfix_put(f, "b", "late", false));
	ck_ok(kv_snapshot_create(f->db, "late"));
}

UNIT(a_snapshot_that_saw_more_is_left_out)
{
	struct kv_snapshot *s;
	struct dbfix f, g;

	dbfix_init(&f, 13);
	f.options.inline_work = false;
	dbfix_open(&f);
	ck_ok(dbfix_put(&f, "a", "1", false));
	ck_ok(kv_snapshot_create(f.db, "early"));
	kv_env_sim_hook(f.env, make_snapshot, &f);
	ck_ok(kv_checkpoint(f.db, "copy"));
	kv_env_sim_hook(f.env, NULL, NULL);
	ck_ok(kv_snapshot_open(f.db, "late", &s));
	dbfix_expect_bytes(&f, s, "b", "late", 4);
	kv_snapshot_free(f.db, s);
	verify(f.env, "copy");
	g = f;
	g.db = open_at(&f, "copy");
	dbfix_expect(&g, "a", "1");
	dbfix_expect(&g, "b", NULL);
	ck_assert_int_eq(kv_snapshot_open(g.db, "late", &s), KV_E_no_snapshot);
	(void)see_named(g.db, "early");
	ck_ok(kv_close(g.db));
	dbfix_done(&f);
}
UNIT_END

/* --- failures ----------------------------------------------------------------------------- */

UNIT(what_is_there_is_left_alone)
{
	struct kv_env_dir *dir;
	struct dbfix f;
	uint64_t sum;

	dbfix_init(&f, 7);
	dbfix_open(&f);
	write_round(&f, 1);
	sum = see(f.db, NULL);
	ck_ok(f.env->ops->dir_open(f.env, "empty", true, &dir));
	f.env->ops->dir_close(dir);
	ck_assert_int_eq(kv_checkpoint(f.db, "empty"), -EEXIST);
	ck_assert(there_is(f.env, "empty"));
	ck_assert_int_eq(kv_checkpoint(f.db, "store"), -EEXIST);
	ck_ok(kv_checkpoint(f.db, "copy"));
	ck_assert_int_eq(kv_checkpoint(f.db, "copy"), -EEXIST);
	ck_assert_uint_eq(see_at(&f, "copy"), sum);
	ck_assert_uint_eq(see(f.db, NULL), sum);
	dbfix_done(&f);
}
UNIT_END

/* Each kind of call fails, first, second, ...: there is no directory afterwards, and all is well. */
UNIT(after_a_failure_nothing_is_there)
{
	static const struct kv_sim_fault faults[] = {
		{ KV_SIM_LINK, NULL, 0, -EXDEV, false },
		{ KV_SIM_LINK, NULL, 0, -EMLINK, false },
		{ KV_SIM_CREATE, "CURRENT.new", 0, -ENOSPC, false },
		{ KV_SIM_CREATE, ".manifest", 0, -ENOSPC, false },
		{ KV_SIM_RENAME, "CURRENT", 0, -EIO, false },
		{ KV_SIM_WRITE, ".vlog", 0, -ENOSPC, false },
		{ KV_SIM_SYNC, ".vlog", 0, -EIO, false },
		{ KV_SIM_SYNC, ".manifest", 0, -EIO, false },
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(faults); i++)
		for (uint64_t after = 0; after < 4; after++) {
			struct kv_sim_fault fault = faults[i];
			struct dbfix f;
			uint64_t sum;
			int err;

			dbfix_init(&f, 8);
			dbfix_open(&f);
			write_round(&f, 1);
			ck_ok(kv_compact(f.db, none, none));
			write_round(&f, 2);
			ck_ok(kv_flush(f.db));
			sum = see(f.db, NULL);
			fault.after = after;
			kv_env_sim_fail(f.env, &fault);
			err = kv_checkpoint(f.db, "copy");
			if (kv_env_sim_faults_hit(f.env)) {
				ck_assert_msg(err < 0, "%zu", i);
				ck_assert(fault.err != -EXDEV || err == KV_E_other_filesystem);
				ck_assert(fault.err != -ENOSPC || err == KV_E_no_space);
				ck_assert(!there_is(f.env, "copy"));
			} else {
				ck_ok(err);
			}
			kv_env_sim_heal(f.env);
			ck_assert_uint_eq(see(f.db, NULL), sum);
			/* The store is not harmed, and it can be tried again. */
			ck_ok(dbfix_put(&f, "after", "it", true));
			ck_ok(kv_checkpoint(f.db, err ? "copy" : "copy2"));
			verify(f.env, err ? "copy" : "copy2");
			dbfix_close(&f);
			verify(f.env, "store");
			dbfix_done(&f);
		}
}
UNIT_END

UNIT(a_full_disk_leaves_nothing)
{
	int failed = 0;

	for (uint64_t room = 0; room < 400; room += 16) {
		struct dbfix f;
		uint64_t sum;
		int err;

		dbfix_init(&f, 9);
		dbfix_open(&f);
		write_round(&f, 1);
		ck_ok(kv_flush(f.db));
		sum = see(f.db, NULL);
		kv_env_sim_set_capacity(f.env, kv_env_sim_used(f.env) + room * KV_KIB);
		err = kv_checkpoint(f.db, "copy");
		kv_env_sim_set_capacity(f.env, UINT64_MAX);
		ck_assert_msg(!err || err == KV_E_no_space, "%s", kv_err_text(err));
		ck_assert_int_eq(there_is(f.env, "copy"), !err);
		failed += !!err;
		if (!err)
			ck_assert_uint_eq(see_at(&f, "copy"), sum);
		ck_assert_uint_eq(see(f.db, NULL), sum);
		dbfix_close(&f);
		verify(f.env, "store");
		dbfix_done(&f);
	}
	ck_assert_int_gt(failed, 0);
	ck_assert_int_lt(failed, 25);
}
UNIT_END

/* --- crashes ------------------------------------------------------------------------------ */

/* Whatever is at the path is a whole store, or is refused. True for the one. */
static bool is_whole_or_refused(struct dbfix *f, const char *path, uint64_t sum)
{
	struct kv_options o = f->options;
	struct kv_db *db;
	int err;

	o.create = false;
	err = kv_open(path, &o, &db);
	if (err) {
		ck_assert_msg(err == KV_E_not_a_store || err == -ENOENT, "%s: %s", path,
			      kv_err_text(err));
		return false;
	}
	ck_assert_uint_eq(see(db, NULL), sum);
	ck_ok(kv_close(db));
	verify(f->env, path);
	return true;
}

static void crash_at(uint64_t n, enum kv_sim_crash how, bool *out_done)
{
	uint64_t sum;
	struct dbfix f;
	int err;
	bool whole;

	dbfix_init(&f, 10);
	dbfix_open(&f);
	write_round(&f, 1);
	ck_ok(kv_compact(f.db, none, none));
	write_round(&f, 2);
	ck_ok(kv_snapshot_create(f.db, "s"));
	ck_ok(kv_flush(f.db));
	put_sized(&f, 3, 9);
	put_sized(&f, 4, 9);
	ck_ok(kv_sync(f.db));
	sum = see(f.db, NULL);
	kv_env_sim_stop_after(f.env, n, true);
	err = kv_checkpoint(f.db, "copy");
	*out_done = !kv_env_sim_stopped(f.env);
	ck_assert_int_eq(!err, *out_done);
	dbfix_crash(&f, how, n);
	whole = is_whole_or_refused(&f, "copy", sum);
	ck_assert(whole || !*out_done);
	ck_assert(is_whole_or_refused(&f, "store", sum));
	dbfix_open(&f);
	if (!whole && there_is(f.env, "copy"))
		ck_assert_int_eq(kv_checkpoint(f.db, "copy"), -EEXIST);
	ck_ok(kv_checkpoint(f.db, "again"));
	dbfix_close(&f);
	ck_assert(is_whole_or_refused(&f, "again", sum));
	dbfix_done(&f);
}

UNIT(the_machine_may_die_at_each_change)
{
	bool done = false;
	uint64_t n;

	for (n = 0; !done; n++) {
		crash_at(n, KV_SIM_DROP_ALL, &done);
		crash_at(n, KV_SIM_KEEP_ALL, &done);
		crash_at(n, KV_SIM_RANDOM, &done);
	}
	ck_assert_uint_gt(n, 20);
}
UNIT_END

/* A failure is cleaned up, and the machine dies at each change of that, too. */
UNIT(or_while_a_failure_is_cleaned_up)
{
	bool stopped = true;

	for (uint64_t n = 0; stopped; n++) {
		/* When its root has a name already. */
		static const struct kv_sim_fault fault = {
			KV_SIM_DIR_SYNC, "copy", 1, -EIO, false,
		};
		struct dbfix f;
		uint64_t sum;

		dbfix_init(&f, 11);
		dbfix_open(&f);
		write_round(&f, 1);
		ck_ok(kv_flush(f.db));
		ck_ok(kv_sync(f.db));
		sum = see(f.db, NULL);
		kv_env_sim_fail(f.env, &fault);
		kv_env_sim_stop_after(f.env, 10 + n, false);
		ck_assert_int_lt(kv_checkpoint(f.db, "copy"), 0);
		stopped = kv_env_sim_stopped(f.env);
		dbfix_crash(&f, KV_SIM_RANDOM, n);
		kv_env_sim_heal(f.env);
		(void)is_whole_or_refused(&f, "copy", sum);
		ck_assert(stopped || !there_is(f.env, "copy"));
		ck_assert(is_whole_or_refused(&f, "store", sum));
		dbfix_done(&f);
	}
}
UNIT_END

/* --- reading only, on a real disk --------------------------------------------------------- */

static char root_path[128];

static void path_of(char *to, size_t bytes, const char *store, const char *name)
{
	snprintf(to, bytes, "%s/%s%s%s", root_path, store, name ? "/" : "", name ? name : "");
}

struct look {
	char name[64];
	uint64_t sum, bytes;
	struct timespec mtime, ctime;
	mode_t mode;
};

static uint64_t sum_of(const char *path)
{
	static uint8_t bytes[1 << 16];
	uint64_t h = 14695981039346656037u;
	FILE *file = fopen(path, "rb");
	size_t n;

	ck_assert_ptr_nonnull(file);
	while ((n = fread(bytes, 1, sizeof(bytes), file)))
		for (size_t i = 0; i < n; i++)
			h = (h ^ bytes[i]) * 1099511628211u;
	fclose(file);
	return h;
}

static int cmp_look(const void *a, const void *b)
{
	return strcmp(((const struct look *)a)->name, ((const struct look *)b)->name);
}

/* Every file with its bytes and times, and the directory with its own. */
static size_t look_at(const char *store, struct look *looks, size_t max)
{
	char path[512];
	struct dirent *e;
	size_t n = 0;
	DIR *d;

	path_of(path, sizeof(path), store, NULL);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		struct look *l = &looks[n++];
		struct stat st;

		ck_assert_uint_lt(n, max);
		if (!strcmp(e->d_name, "..")) {
			n--;
			continue;
		}
		memset(l, 0, sizeof(*l));
		ck_assert_uint_lt(strlen(e->d_name), sizeof(l->name));
		memcpy(l->name, e->d_name, strlen(e->d_name) + 1);
		path_of(path, sizeof(path), store, e->d_name);
		ck_assert(!stat(path, &st));
		l->sum = S_ISDIR(st.st_mode) ? 0 : sum_of(path);
		l->bytes = (uint64_t)st.st_size;
		l->mtime = st.st_mtim;
		l->ctime = st.st_ctim;
		l->mode = st.st_mode;
	}
	closedir(d);
	qsort(looks, n, sizeof(*looks), cmp_look);
	return n;
}

static void remove_store(const char *store)
{
	char path[512];
	struct dirent *e;
	DIR *d;

	path_of(path, sizeof(path), store, NULL);
	ck_assert(!chmod(path, 0700));
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		path_of(path, sizeof(path), store, e->d_name);
		ck_assert(!unlink(path));
	}
	closedir(d);
	path_of(path, sizeof(path), store, NULL);
	ck_assert(!rmdir(path));
}

/* A copy of the files as they are, which is what a kill of the process leaves. */
static void copy_store(const char *from, const char *to)
{
	static uint8_t bytes[32 << 20];
	char path[512];
	struct dirent *e;
	DIR *d;

	path_of(path, sizeof(path), to, NULL);
	ck_assert(!mkdir(path, 0700));
	path_of(path, sizeof(path), from, NULL);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		FILE *file;
		size_t n;

		if (e->d_name[0] == '.')
			continue;
		path_of(path, sizeof(path), from, e->d_name);
		file = fopen(path, "rb");
		ck_assert_ptr_nonnull(file);
		n = fread(bytes, 1, sizeof(bytes), file);
		fclose(file);
		path_of(path, sizeof(path), to, e->d_name);
		file = fopen(path, "wb");
		ck_assert_ptr_nonnull(file);
		ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
		fclose(file);
	}
	closedir(d);
}

/* The system itself must refuse any change, so root becomes somebody else. */
static void take_rights_away(const char *store)
{
	static const uid_t nobody = 65534;
	char path[512];
	struct dirent *e;
	DIR *d;

	path_of(path, sizeof(path), store, NULL);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		path_of(path, sizeof(path), store, e->d_name);
		ck_assert(!chmod(path, 0444));
	}
	closedir(d);
	path_of(path, sizeof(path), store, NULL);
	ck_assert(!chmod(path, 0555));
	ck_assert(!chmod(root_path, 0755));
	if (!geteuid())
		ck_assert(!seteuid(nobody));
	ck_assert_int_ne(eaccess(path, W_OK), 0);
}

static void read_only_round(struct dbfix *f, const char *store, uint64_t sum, uint64_t named)
{
	struct kv_verify_options v = { .problem = problem };
	struct look before[64], after[64];
	struct kv_stats stats;
	char path[512];
	uint64_t problems;
	size_t n;

	take_rights_away(store);
	path_of(path, sizeof(path), store, NULL);
	n = look_at(store, before, KV_ARRAY_LEN(before));
	ck_assert_uint_gt(n, 4);
	f->options.read_only = true;
	f->options.create = false;
	ck_ok(kv_open(path, &f->options, &f->db));
	ck_assert_uint_eq(see(f->db, NULL), sum);
	ck_assert_uint_eq(see_named(f->db, "s"), named);
	ck_ok(kv_exists(f->db, NULL, kv_slice_str("k001")));
	kv_stats(f->db, &stats);
	ck_assert_uint_eq(stats.named_snapshots, 1);
	ck_ok(kv_verify(path, &v, &problems));
	ck_assert_uint_eq(problems, 0);
	ck_assert_int_eq(dbfix_put(f, "x", "y", false), KV_E_read_only);
	ck_ok(kv_close(f->db));
	f->db = NULL;
	ck_assert_uint_eq(look_at(store, after, KV_ARRAY_LEN(after)), n);
	ck_assert(!memcmp(before, after, n * sizeof(before[0])));
	ck_assert(!seteuid(getuid()));
}

UNIT(a_directory_that_is_read_only_stays_as_it_is)
{
	const char *tmp = getenv("TMPDIR");
	struct dbfix f;
	uint64_t sum, named;
	char path[512];

	snprintf(root_path, sizeof(root_path), "%s/kvunit-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(root_path));
	dbfix_init(&f, 12);
	f.options.env = NULL;
	path_of(path, sizeof(path), "store", NULL);
	ck_ok(kv_open(path, &f.options, &f.db));
	write_round(&f, 1);
	ck_ok(kv_snapshot_create(f.db, "s"));
	named = see(f.db, NULL);
	write_round(&f, 2);
	put_sized(&f, 5, 5);	/* in the journal only */
	sum = see(f.db, NULL);
	copy_store("store", "crashed");
	path_of(path, sizeof(path), "checkpoint", NULL);
	ck_ok(kv_checkpoint(f.db, path));
	ck_assert_int_eq(kv_checkpoint(f.db, path), -EEXIST);
	path_of(path, sizeof(path), "no/where", NULL);
	ck_assert_int_eq(kv_checkpoint(f.db, path), -ENOENT);
	ck_ok(kv_close(f.db));
	f.db = NULL;
	read_only_round(&f, "crashed", sum, named);
	read_only_round(&f, "checkpoint", sum, named);
	read_only_round(&f, "store", sum, named);
	remove_store("store");
	read_only_round(&f, "checkpoint", sum, named);
	remove_store("checkpoint");
	remove_store("crashed");
	ck_assert(!rmdir(root_path));
	dbfix_done(&f);
}
UNIT_END

UNIT_MAIN("checkpoint", it_is_a_store_with_all_that_was_there, an_empty_store_can_have_one,
	  finished_files_are_shared, the_two_go_their_own_ways,
	  files_that_one_deletes_stay_for_the_other, writers_go_on_meanwhile,
	  a_snapshot_that_saw_more_is_left_out, what_is_there_is_left_alone,
	  after_a_failure_nothing_is_there,
	  a_full_disk_leaves_nothing, the_machine_may_die_at_each_change,
	  or_while_a_failure_is_cleaned_up, a_directory_that_is_read_only_stays_as_it_is)
