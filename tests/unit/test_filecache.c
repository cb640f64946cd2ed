#include <pthread.h>
#include <stdatomic.h>

#include "kv/checksum.h"
#include "kv/filecache.h"
#include "kv/lock.h"
#include "tests/unit/tmpstore.h"

static struct tmpstore t;
static struct kv_cache *cache;
static struct kv_filecache *fc;
static uint64_t table_bytes[100];
static atomic_uint opens, closes;

static int counted_open(struct kv_env_dir *dir, const char *name, enum kv_env_mode mode,
			struct kv_env_file **out_file)
{
	atomic_fetch_add(&opens, 1);
	return tmpstore_system()->open(dir, name, mode, out_file);
}

static int counted_success(struct kv_env_dir *dir, const char *name, enum kv_env_mode mode,
			   struct kv_env_file **out_file)
{
	int err = tmpstore_system()->open(dir, name, mode, out_file);

	if (!err)
		atomic_fetch_add(&opens, 1);
	return err;
}

static void counted_close(struct kv_env_file *f)
{
	atomic_fetch_add(&closes, 1);
	tmpstore_system()->close(f);
}

static void make_table(kv_fileno number)
{
	KV_AUTO(kv_buf_done) struct kv_buf key = KV_BUF_INIT;
	struct kv_sst_options options = { 256, 10, true };
	struct kv_sst_meta meta;
	struct kv_sst_build *b;
	char user[24];

	ck_ok(kv_sst_build_new(&t.store, number, &options, &b));
	for (int i = 0; i < 50; i++) {
		snprintf(user, sizeof(user), "%llu-%04d", (unsigned long long)number, i);
		ck_ok(kv_ikey_make(&key, kv_slice_str(user), 1, KV_KIND_PUT));
		ck_ok(kv_sst_build_add(b, kv_buf_slice(&key), kv_slice_str(user)));
	}
	ck_ok(kv_sst_build_finish(b, &meta));
	table_bytes[number] = meta.file_bytes;
	kv_sst_meta_done(&meta);
	kv_sst_build_free(b);
}

static void make_segment(kv_fileno number)
{
	struct kv_segment_writer *w;

	ck_ok(kv_segment_create(&t.store, number, 0, &w));
	ck_ok(kv_segment_seal(w));
	kv_segment_writer_free(w);
}

static void begin(uint32_t files_max)
{
	tmpstore_init(&t);
	cache = kv_cache_new(KV_MIB);
	fc = kv_filecache_new(&t.store, cache, NULL, files_max);
	ck_assert_ptr_nonnull(fc);
	for (kv_fileno n = 1; n <= 8; n++)
		make_table(n);
	make_segment(20);
	make_segment(21);
	t.ops.open = counted_open;
	t.ops.close = counted_close;
	atomic_store(&opens, 0);
	atomic_store(&closes, 0);
}

static void end(void)
{
	kv_filecache_free(fc);
	ck_assert_uint_eq(atomic_load(&opens), atomic_load(&closes));
	kv_cache_free(cache);
	tmpstore_done(&t);
}

static struct kv_filecache_entry *pin_table(kv_fileno number, struct kv_sst **out)
{
	struct kv_filecache_entry *pin;

	ck_ok(kv_filecache_table(fc, number, table_bytes[number], &pin, out));
	return pin;
}

static void touch_table(kv_fileno number)
{
	struct kv_sst *sst;

	kv_filecache_unpin(fc, pin_table(number, &sst));
}

static bool reads_right(struct kv_sst *sst, kv_fileno number)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin block = { 0 };
	struct kv_found found = { 0 };
	kv_seqno covered = 0;
	char user[24];
	bool right;

	snprintf(user, sizeof(user), "%llu-%04d", (unsigned long long)number, 33);
	if (kv_sst_get(sst, kv_slice_str(user), 5, &found, &covered, &block))
		return false;
	right = found.found && kv_slice_eq(found.value, kv_slice_str(user));
	return right;
}

UNIT(files_are_opened_once)
{
	struct kv_filecache_entry *a, *b, *c;
	struct kv_env_file *f, *g;
	struct kv_sst *x, *y;

	begin(10);
	a = pin_table(1, &x);
	b = pin_table(1, &y);
	ck_assert_ptr_eq(x, y);
	ck_assert(reads_right(x, 1));
	kv_filecache_unpin(fc, a);
	kv_filecache_unpin(fc, b);
	touch_table(1);
	ck_assert_uint_eq(atomic_load(&opens), 1);
	ck_ok(kv_filecache_segment(fc, 20, &a, &f));
	ck_ok(kv_filecache_segment(fc, 20, &b, &g));
	ck_ok(kv_filecache_segment(fc, 21, &c, &g));
	ck_assert_ptr_eq(a, b);
	ck_assert_ptr_ne(f, g);
	kv_filecache_unpin(fc, a);
	kv_filecache_unpin(fc, b);
	kv_filecache_unpin(fc, c);
	kv_filecache_unpin(fc, NULL);
	ck_assert_uint_eq(atomic_load(&opens), 3);
	ck_assert_uint_eq(atomic_load(&closes), 0);
	end();
}
UNIT_END

UNIT(open_files_are_charged)
{
	struct kv_sst *sst;
	uint64_t one;

	begin(2);
	touch_table(1);
	one = kv_cache_charged(cache);
	ck_assert_uint_gt(one, 0);
	touch_table(2);
	touch_table(1);
	ck_assert_uint_eq(kv_cache_charged(cache), 2 * one);
	touch_table(3);
	ck_assert_uint_eq(kv_cache_charged(cache), 2 * one);
	ck_assert_int_eq(kv_filecache_table(fc, 4, table_bytes[4] + 1,
					    &(struct kv_filecache_entry *){ NULL }, &sst),
			 KV_E_short_file);
	for (kv_fileno n = 1; n <= 3; n++)
		kv_filecache_drop(fc, n);
	ck_assert_uint_eq(kv_cache_charged(cache), 0);
	end();
}
UNIT_END

UNIT(unused_files_are_bounded)
{
	struct kv_filecache_entry *pins[8];
	struct kv_sst *sst[8];

	begin(2);
	for (kv_fileno n = 1; n <= 8; n++)
		pins[n - 1] = pin_table(n, &sst[n - 1]);
	ck_assert_uint_eq(atomic_load(&closes), 0);
	for (kv_fileno n = 1; n <= 8; n++)
		kv_filecache_unpin(fc, pins[n - 1]);
	ck_assert_uint_eq(atomic_load(&closes), 6);
	touch_table(7); /* still there; then 8 has been unused for longest */
	touch_table(1);
	ck_assert_uint_eq(atomic_load(&opens), 9);
	touch_table(7);
	ck_assert_uint_eq(atomic_load(&opens), 9);
	touch_table(8);
	ck_assert_uint_eq(atomic_load(&opens), 10);
	end();
}
UNIT_END

UNIT(none_may_be_kept)
{
	begin(0);
	touch_table(1);
	ck_assert_uint_eq(atomic_load(&closes), 1);
	touch_table(1);
	ck_assert_uint_eq(atomic_load(&opens), 2);
	end();
}
UNIT_END

UNIT(failures_are_not_kept)
{
	struct kv_filecache_entry *pin = NULL;
	struct kv_sst *sst = NULL;
	struct kv_env_file *f = NULL;

	begin(10);
	ck_assert_int_eq(kv_filecache_table(fc, 50, 1000, &pin, &sst), KV_E_missing_file);
	ck_assert_int_eq(kv_filecache_segment(fc, 50, &pin, &f), KV_E_missing_file);
	ck_assert_int_eq(kv_filecache_table(fc, 1, table_bytes[1] + 1, &pin, &sst),
			 KV_E_short_file);
	ck_assert_ptr_null(pin);
	ck_assert_ptr_null(sst);
	atomic_fetch_sub(&opens, 2); /* of what isn't there */
	make_table(50);
	touch_table(50);
	touch_table(1);
	end();
}
UNIT_END

UNIT(a_dropped_file_works_while_it_is_used)
{
	struct kv_filecache_entry *a, *b;
	struct kv_sst *x, *y;

	begin(10);
	a = pin_table(3, &x);
	ck_assert(reads_right(x, 3));
	kv_filecache_drop(fc, 3);
	ck_ok(kv_store_unlink(&t.store, KV_FILE_TABLE, 3));
	b = pin_table(3, &y);
	ck_assert_ptr_eq(x, y);
	ck_assert(reads_right(y, 3));
	kv_filecache_unpin(fc, a);
	ck_assert(reads_right(y, 3));
	ck_assert_uint_eq(atomic_load(&closes), 0);
	kv_filecache_unpin(fc, b);
	ck_assert_uint_eq(atomic_load(&closes), 1);
	ck_assert_uint_eq(kv_cache_bytes(cache), 0);
	ck_assert_int_eq(kv_filecache_table(fc, 3, table_bytes[3], &a, &x), KV_E_missing_file);
	atomic_fetch_sub(&opens, 1);
	end();
}
UNIT_END

UNIT(dropping_closes_what_is_unused)
{
	struct kv_filecache_entry *pin;
	struct kv_env_file *f;
	struct kv_sst *x;

	begin(1);
	pin = pin_table(3, &x);
	ck_assert(reads_right(x, 3));
	kv_filecache_unpin(fc, pin);
	kv_filecache_drop(fc, 3);
	ck_assert_uint_eq(atomic_load(&closes), 1);
	ck_assert_uint_eq(kv_cache_bytes(cache), 0);
	/* Closed for another one before it is dropped: its blocks go all the same. */
	pin = pin_table(4, &x);
	ck_assert(reads_right(x, 4));
	kv_filecache_unpin(fc, pin);
	touch_table(5);
	ck_assert_uint_eq(atomic_load(&closes), 2);
	ck_assert_uint_gt(kv_cache_bytes(cache), 0);
	kv_filecache_drop(fc, 4);
	ck_assert_uint_eq(kv_cache_bytes(cache), 0);
	/* The one that is kept may as well be one in use. */
	ck_ok(kv_filecache_segment(fc, 20, &pin, &f));
	ck_assert_uint_eq(atomic_load(&closes), 3);
	kv_filecache_drop(fc, 20);
	ck_assert_uint_eq(atomic_load(&closes), 3);
	kv_filecache_unpin(fc, pin);
	ck_assert_uint_eq(atomic_load(&closes), 4);
	kv_filecache_drop(fc, 77);
	end();
}
UNIT_END

/* --- threads ---------------------------------------------------------------------------------- */

static struct kv_mutex gate_mu;
static struct kv_cond gate_cond;
static bool gate_reached, gate_is_open;

/* Opening table 6 takes as long as the test wants. */
static int gated_open(struct kv_env_dir *dir, const char *name, enum kv_env_mode mode,
		      struct kv_env_file **out_file)
{
	if (!strcmp(name, kv_filename(KV_FILE_TABLE, 6).s)) {
		kv_mutex_lock(&gate_mu);
		gate_reached = true;
		kv_cond_broadcast(&gate_cond);
		while (!gate_is_open)
			kv_cond_wait(&gate_cond, &gate_mu);
		kv_mutex_unlock(&gate_mu);
	}
	return counted_open(dir, name, mode, out_file);
}

static void *open_slowly(void *arg)
{
	struct kv_filecache_entry *pin;
	struct kv_sst *sst;

	*(bool *)arg = !kv_filecache_table(fc, 6, table_bytes[6], &pin, &sst) &&
		       reads_right(sst, 6);
	kv_filecache_unpin(fc, pin);
	return NULL;
}

UNIT(a_slow_open_holds_up_nobody_else)
{
	pthread_t threads[3];
	bool ok[3];

	begin(10);
	kv_mutex_init(&gate_mu);
	kv_cond_init(&gate_cond);
	touch_table(1);
	t.ops.open = gated_open;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, open_slowly, &ok[i]), 0);
	kv_mutex_lock(&gate_mu);
	while (!gate_reached)
		kv_cond_wait(&gate_cond, &gate_mu);
	kv_mutex_unlock(&gate_mu);
	touch_table(1);
	touch_table(2);
	kv_filecache_drop(fc, 1);
	kv_filecache_drop(fc, 6);
	kv_mutex_lock(&gate_mu);
	gate_is_open = true;
	kv_cond_broadcast(&gate_cond);
	kv_mutex_unlock(&gate_mu);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert(ok[i]);
	}
	kv_cond_done(&gate_cond);
	kv_mutex_done(&gate_mu);
	end();
}
UNIT_END

struct worker {
	uint64_t random;
	bool ok;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct kv_filecache_entry *pin, *none;
	struct kv_sst *sst;

	for (int i = 0; w->ok && i < 1000; i++) {
		uint64_t r = tmpstore_random(&w->random);
		kv_fileno n = 1 + r % 8;

		if (r >> 32 & 0xf)
			w->ok = !kv_filecache_table(fc, n, table_bytes[n], &pin, &sst);
		else
			pin = NULL, kv_filecache_drop(fc, n);
		if (pin)
			w->ok = w->ok && reads_right(sst, n);
		/* A file that isn't there, which others may be waiting for. */
		if (!(r >> 40 & 0x7))
			w->ok = w->ok && kv_filecache_table(fc, 60, 1000, &none, &sst) ==
							 KV_E_missing_file;
		kv_filecache_unpin(fc, pin);
	}
	return NULL;
}

UNIT(threads_share_it)
{
	uint64_t seed = tmpstore_seed(11);
	struct worker workers[4];
	pthread_t threads[4];

	begin(3);
	t.ops.open = counted_success;
	for (int i = 0; i < 4; i++) {
		workers[i] = (struct worker){ seed + (uint64_t)i, true };
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert(workers[i].ok);
	}
	touch_table(1);
	ck_assert_uint_le(atomic_load(&opens) - atomic_load(&closes), 3);
	end();
}
UNIT_END

UNIT_MAIN("filecache", files_are_opened_once, open_files_are_charged, unused_files_are_bounded,
	  none_may_be_kept,
	  failures_are_not_kept, a_dropped_file_works_while_it_is_used,
	  dropping_closes_what_is_unused, a_slow_open_holds_up_nobody_else, threads_share_it)
