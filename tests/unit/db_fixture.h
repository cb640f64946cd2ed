/*
 * A store on a disk in memory, for tests of the whole engine: small limits, so
 * that a few hundred writes go through flush and compaction.
 */
#ifndef TESTS_DB_FIXTURE_H
#define TESTS_DB_FIXTURE_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kv/coding.h"
#include "kv/kv.h"
#include "tests/sim/env_sim.h"
#include "tests/unit/unit.h"

struct dbfix {
	struct kv_env *env;
	struct kv_options options;
	struct kv_db *db;
	_Atomic unsigned errors;	/* messages of level ERROR */
};

static inline void dbfix_message(void *arg, enum kv_msg_level level, const char *text)
{
	struct dbfix *f = arg;

	if (level == KV_MSG_ERROR)
		f->errors++;
	if (getenv("VERBOSE"))
		fprintf(stderr, "%d %s\n", (int)level, text);
}

static inline void dbfix_init(struct dbfix *f, uint64_t seed)
{
	memset(f, 0, sizeof(*f));
	f->env = kv_env_sim_new(seed);
	ck_assert_ptr_nonnull(f->env);
	kv_env_sim_guard_links(f->env);
	f->options = (struct kv_options){
		.env = f->env,
		.msg = { dbfix_message, f, KV_MSG_INFO },
		.create = true,
		.inline_work = true,
		.no_event_log = true,
		.cache_bytes = 256 * KV_KIB,
		.memtable_bytes = 16 * KV_KIB,
		.bulk_bytes_per_memtable = 256 * KV_KIB,
		.segment_bytes = 128 * KV_KIB,
		.table_bytes = 16 * KV_KIB,
		.level_base_bytes = 64 * KV_KIB,
		.medium_bytes = 256,
		.bulk_bytes = 2048,
		.block_bytes = 1024,
	};
}

static inline void dbfix_open(struct dbfix *f)
{
	ck_ok(kv_open("store", &f->options, &f->db));
}

static inline void dbfix_close(struct dbfix *f)
{
	ck_ok(kv_close(f->db));
	f->db = NULL;
}

static inline void dbfix_reopen(struct dbfix *f)
{
	dbfix_close(f);
	dbfix_open(f);
}

/* The power fails while the store is open. */
static inline void dbfix_crash(struct dbfix *f, enum kv_sim_crash how, uint64_t seed)
{
	kv_env_sim_crash(f->env, how, seed);
	if (f->db)
		(void)!kv_close(f->db); /* whatever it says: its handles are dead */
	f->db = NULL;
}

static inline void dbfix_done(struct dbfix *f)
{
	if (f->db)
		ck_ok(kv_close(f->db));
	kv_env_sim_free(f->env);
}

static inline int dbfix_put_bytes(struct dbfix *f, const char *key, const void *value,
				  size_t bytes, bool sync)
{
	struct kv_batch *b = kv_batch_new();
	int err;

	ck_assert_ptr_nonnull(b);
	kv_batch_put(b, kv_slice_str(key), kv_slice(value, bytes), KV_HINT_NONE);
	err = kv_write(f->db, b, sync);
	kv_batch_free(b);
	return err;
}

static inline int dbfix_put(struct dbfix *f, const char *key, const char *value, bool sync)
{
	return dbfix_put_bytes(f, key, value, strlen(value), sync);
}

static inline int dbfix_delete(struct dbfix *f, const char *key)
{
	struct kv_batch *b = kv_batch_new();
	int err;

	ck_assert_ptr_nonnull(b);
	kv_batch_delete(b, kv_slice_str(key));
	err = kv_write(f->db, b, false);
	kv_batch_free(b);
	return err;
}

static inline int dbfix_delete_range(struct dbfix *f, const char *begin, const char *end)
{
	struct kv_batch *b = kv_batch_new();
	int err;

	ck_assert_ptr_nonnull(b);
	kv_batch_delete_range(b, kv_slice_str(begin), kv_slice_str(end));
	err = kv_write(f->db, b, false);
	kv_batch_free(b);
	return err;
}

static inline int dbfix_add(struct dbfix *f, const char *key, int64_t delta)
{
	struct kv_batch *b = kv_batch_new();
	int err;

	ck_assert_ptr_nonnull(b);
	kv_batch_add(b, kv_slice_str(key), delta);
	err = kv_write(f->db, b, false);
	kv_batch_free(b);
	return err;
}

static inline int dbfix_put_part(struct dbfix *f, const char *key, const char *from,
				 uint32_t offset, uint32_t bytes)
{
	struct kv_batch *b = kv_batch_new();
	int err;

	ck_assert_ptr_nonnull(b);
	kv_batch_put_part(b, kv_slice_str(key), kv_slice_str(from), offset, bytes);
	err = kv_write(f->db, b, false);
	kv_batch_free(b);
	return err;
}

/* value NULL: the key must not be there. */
static inline void dbfix_expect_bytes(struct dbfix *f, const struct kv_snapshot *s, const char *key,
				      const void *value, size_t bytes)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
	int err = kv_get(f->db, s, kv_slice_str(key), &got);

	if (!value) {
		ck_assert_msg(err == KV_E_not_found, "%s: %d, should not be there", key, err);
		return;
	}
	ck_assert_msg(!err, "%s: %s", key, kv_err_text(err));
	ck_assert_uint_eq(got.bytes, bytes);
	ck_assert(!bytes || !memcmp(got.data, value, bytes));
}

static inline void dbfix_expect(struct dbfix *f, const char *key, const char *value)
{
	dbfix_expect_bytes(f, NULL, key, value, value ? strlen(value) : 0);
}

static inline int64_t dbfix_counter(struct dbfix *f, const char *key)
{
	KV_AUTO(kv_buf_done) struct kv_buf got = KV_BUF_INIT;
	le64 v;

	ck_ok(kv_get(f->db, NULL, kv_slice_str(key), &got));
	ck_assert_uint_eq(got.bytes, sizeof(v));
	memcpy(&v, got.data, sizeof(v));
	return (int64_t)kv_le64_get(v);
}

/* Bytes that don't compress, a function of n. */
static inline void dbfix_fill(void *to, size_t bytes, uint64_t n)
{
	uint8_t *p = to;
	uint64_t x = n * 0x9e3779b97f4a7c15 + 1;

	for (size_t i = 0; i < bytes; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (uint8_t)(x >> 32);
	}
}

static inline uint64_t dbfix_seed(uint64_t otherwise)
{
	const char *s = getenv("SEED");
	uint64_t seed = s ? strtoull(s, NULL, 0) : otherwise;

	printf("SEED=%" PRIu64 "\n", seed);
	return seed;
}

#endif
