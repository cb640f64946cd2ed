/*
 * A store's directory for tests: a new one under $TMPDIR or /tmp, removed with
 * all that is in it by tmpstore_done(). Its env is that of the system with a table
 * of its own, so that a test may put its functions in the place of some; messages
 * are counted, the last one is kept.
 */
#ifndef TESTS_TMPSTORE_H
#define TESTS_TMPSTORE_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kv/store.h"
#include "tests/unit/unit.h"

struct tmpstore {
	struct kv_store store;
	struct kv_env env;
	struct kv_env_ops ops;
	char path[256];
	unsigned message_count;
	char message[512];
};

static inline const struct kv_env_ops *tmpstore_system(void)
{
	return kv_env_posix()->ops;
}

static inline void tmpstore_message(void *arg, enum kv_msg_level level, const char *text)
{
	struct tmpstore *t = arg;

	(void)level;
	t->message_count++;
	snprintf(t->message, sizeof(t->message), "%s", text);
}

static inline void tmpstore_init(struct tmpstore *t)
{
	const char *tmp = getenv("TMPDIR");

	memset(t, 0, sizeof(*t));
	snprintf(t->path, sizeof(t->path), "%s/kvunit-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(t->path));
	t->ops = *tmpstore_system();
	t->env.ops = &t->ops;
	t->store.env = &t->env;
	t->store.path = t->path;
	t->store.msg = (struct kv_msg){ tmpstore_message, t, KV_MSG_ERROR };
	memset(t->store.store_id, 0x5a, sizeof(t->store.store_id));
	ck_ok(tmpstore_system()->dir_open(kv_env_posix(), t->path, false, &t->store.dir));
}

static inline int tmpstore_unlink(void *arg, const char *name)
{
	struct tmpstore *t = arg;

	return t->ops.unlink(t->store.dir, name);
}

static inline void tmpstore_done(struct tmpstore *t)
{
	t->ops = *tmpstore_system();
	ck_ok(t->ops.dir_list(t->store.dir, tmpstore_unlink, t));
	t->ops.dir_close(t->store.dir);
	ck_assert_int_eq(rmdir(t->path), 0);
}

/* Whole content of a file, and the way back. */
static inline struct kv_buf tmpstore_load(struct tmpstore *t, const char *name)
{
	struct kv_buf b = KV_BUF_INIT;
	struct kv_env_file *f;
	uint64_t bytes;

	ck_ok(t->ops.open(t->store.dir, name, KV_ENV_READ, &f));
	ck_ok(t->ops.size(f, &bytes));
	if (bytes) {
		ck_assert_ptr_nonnull(kv_buf_grow(&b, bytes));
		ck_ok(kv_env_read_exact(&t->env, f, b.data, bytes, 0));
	}
	t->ops.close(f);
	return b;
}

static inline void tmpstore_save(struct tmpstore *t, const char *name, struct kv_slice s)
{
	struct kv_env_file *f;

	ck_ok(t->ops.open(t->store.dir, name, KV_ENV_WRITE, &f));
	ck_ok(t->ops.truncate(f, s.bytes));
	if (s.bytes)
		ck_ok(kv_env_write(&t->env, f, s, 0));
	t->ops.close(f);
}

/* The same numbers each time for a seed: SEED in the environment, else `otherwise`; printed. */
static inline uint64_t tmpstore_seed(uint64_t otherwise)
{
	const char *s = getenv("SEED");
	uint64_t seed = s ? strtoull(s, NULL, 0) : otherwise;

	printf("SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

static inline uint64_t tmpstore_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static inline void tmpstore_random_bytes(uint64_t *state, void *to, size_t bytes)
{
	uint8_t *p = to;

	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)tmpstore_random(state);
}

#endif
