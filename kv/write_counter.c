/*
 * Counters that batches add to: the leader of the commit, who alone knows their
 * present values, fills the sums in.
 */
#include "kv/write.h"

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

void kv_counters_clear(struct kv_counter_cache *c)
{
	while (c && c->count)
		counter_forget(c, c->count - 1);
}

void kv_counters_trim(struct kv_counter_cache *c)
{
	if (c && c->count > COUNTERS_KEPT_MAX)
		kv_counters_clear(c);
}

void kv_counter_cache_free(struct kv_counter_cache *c)
{
	if (!c)
		return;
	kv_counters_clear(c);
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
void kv_counters_changed(struct kv_counter_cache *c, const struct kv_op *op)
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
	KV_TRY(kv_array_grow(&cache->at, cache->count, &cache->count_max, sizeof(*cache->at)));
	c = &cache->at[cache->count];
	*c = (struct counter){ KV_BUF_INIT, value };
	KV_TRY(kv_buf_assign(&c->key, key));
	cache->count++;
	return 0;
}

/* All counters of the batch are in the cache on return. */
int kv_counters_load(struct kv_db *db, struct kv_writer *w)
{
	for (size_t i = 0; i < w->add_count; i++)
		KV_TRY(counter_load(db, w->adds[i].key));
	return 0;
}

void kv_counters_patch(struct kv_db *db, struct kv_writer *w)
{
	for (size_t i = 0; i < w->add_count; i++) {
		struct kv_add *a = &w->adds[i];
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
