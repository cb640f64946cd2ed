/*
 * What a store ought to hold: a sorted array, changed the simplest way; and
 * random batches that change both it and the store. A copy is cheap (values are
 * shared), so there may be one for every moment that somebody still looks at.
 * One thread.
 */
#ifndef TESTS_KVREF_H
#define TESTS_KVREF_H

#include <stdio.h>
#include <stdlib.h>

#include "kv/assert.h"
#include "kv/coding.h"
#include "kv/kv.h"

static inline uint64_t ref_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Below n. */
static inline uint32_t ref_below(uint64_t *state, uint64_t n)
{
	return (uint32_t)(ref_random(state) % n);
}

static inline bool ref_chance(uint64_t *state, uint32_t percent)
{
	return ref_below(state, 100) < percent;
}

/* --- the array --------------------------------------------------------------------------- */

struct ref_value {
	uint32_t refs;
	uint32_t bytes;
	uint8_t data[];
};

struct ref_key {
	uint32_t refs;
	uint32_t bytes;
	uint8_t data[];
};

struct ref_entry {
	struct ref_key *key;
	struct ref_value *value;
};

struct ref {
	struct ref_entry *at;
	size_t count, count_max;
};

static inline void *ref_alloc(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	KV_ASSERT(p);
	return p;
}

static inline struct kv_slice ref_key_at(const struct ref *r, size_t i)
{
	return kv_slice(r->at[i].key->data, r->at[i].key->bytes);
}

static inline struct kv_slice ref_value_at(const struct ref *r, size_t i)
{
	return kv_slice(r->at[i].value->data, r->at[i].value->bytes);
}

static inline void ref_entry_drop(struct ref_entry *e)
{
	if (!--e->key->refs)
		free(e->key);
	if (!--e->value->refs)
		free(e->value);
}

static inline void ref_done(struct ref *r)
{
	for (size_t i = 0; i < r->count; i++)
		ref_entry_drop(&r->at[i]);
	free(r->at);
	*r = (struct ref){ 0 };
}

static inline struct ref ref_copy(const struct ref *from)
{
	struct ref to = { .count = from->count, .count_max = from->count };

	to.at = ref_alloc(from->count * sizeof(*to.at));
	if (from->count)
		memcpy(to.at, from->at, from->count * sizeof(*to.at));
	for (size_t i = 0; i < to.count; i++) {
		to.at[i].key->refs++;
		to.at[i].value->refs++;
	}
	return to;
}

/* Index of the first key at or after. */
static inline size_t ref_lower(const struct ref *r, struct kv_slice key)
{
	size_t first = 0, end = r->count;

	while (first < end) {
		size_t mid = first + (end - first) / 2;

		if (kv_slice_cmp(ref_key_at(r, mid), key) < 0)
			first = mid + 1;
		else
			end = mid;
	}
	return first;
}

static inline bool ref_has(const struct ref *r, struct kv_slice key, size_t *out_at)
{
	*out_at = ref_lower(r, key);
	return *out_at < r->count && kv_slice_eq(ref_key_at(r, *out_at), key);
}

/* Sets the key to `bytes` bytes, which the caller fills in. */
static inline uint8_t *ref_put(struct ref *r, struct kv_slice key, uint32_t bytes)
{
	struct ref_value *v = ref_alloc(sizeof(*v) + bytes);
	size_t i;

	v->refs = 1;
	v->bytes = bytes;
	if (ref_has(r, key, &i)) {
		if (!--r->at[i].value->refs)
			free(r->at[i].value);
		r->at[i].value = v;
		return v->data;
	}
	if (r->count == r->count_max) {
		r->count_max = r->count_max ? 2 * r->count_max : 64;
		r->at = realloc(r->at, r->count_max * sizeof(*r->at));
		KV_ASSERT(r->at);
	}
	memmove(r->at + i + 1, r->at + i, (r->count - i) * sizeof(*r->at));
	r->count++;
	r->at[i].value = v;
	r->at[i].key = ref_alloc(sizeof(*r->at[i].key) + key.bytes);
	r->at[i].key->refs = 1;
	r->at[i].key->bytes = (uint32_t)key.bytes;
	memcpy(r->at[i].key->data, key.data, key.bytes);
	return v->data;
}

/* Deletes [first, end) of the array. */
static inline void ref_delete(struct ref *r, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		ref_entry_drop(&r->at[i]);
	memmove(r->at + first, r->at + end, (r->count - end) * sizeof(*r->at));
	r->count -= end - first;
}

/* --- random batches ------------------------------------------------------------------------ */

/*
 * Keys are prefix 'k' number, prefix 'c' digit for counters, which nothing else changes, and
 * prefix 'n' for one whose value is the number of batches.
 */
struct ref_gen {
	uint64_t random;
	char prefix;
	uint32_t keys;			/* numbers are below */
	uint32_t medium_bytes, bulk_bytes, value_bytes_max;
};

struct ref_name {
	char s[160];
};

static inline struct ref_name ref_name(const struct ref_gen *g, uint32_t number)
{
	struct ref_name n;
	/* Some are long, and have much in common with their neighbours. */
	int pad = number % 7 ? 0 : (int)(number % 50);

	snprintf(n.s, sizeof(n.s), "%ck%05u%.*s", g->prefix, number, 2 * pad,
		 "----------------------------------------------------------------------------"
		 "--------------------------");
	return n;
}

static inline struct ref_name ref_name_random(struct ref_gen *g)
{
	return ref_name(g, ref_below(&g->random, g->keys));
}

/* Inline, medium and bulk values, each in part of the cases; some empty. */
static inline uint32_t ref_size(struct ref_gen *g)
{
	uint32_t what = ref_below(&g->random, 100);

	if (what < 3)
		return 0;
	if (what < 60)
		return ref_below(&g->random, KV_MIN(g->medium_bytes, 300u));
	if (what < 92)
		return g->medium_bytes + ref_below(&g->random, g->bulk_bytes - g->medium_bytes);
	return g->bulk_bytes + ref_below(&g->random, g->value_bytes_max - g->bulk_bytes + 1);
}

static inline void ref_fill(struct ref_gen *g, uint8_t *to, uint32_t bytes, bool compressible)
{
	uint64_t x = ref_random(&g->random);

	for (uint32_t i = 0; i < bytes; i++) {
		if (!(i % 8) && !(compressible && i % 512))
			x = ref_random(&g->random);
		to[i] = (uint8_t)(x >> 8 * (i % 8));
	}
}

/* A random key of the array that is no counter; false when there is none. */
static inline bool ref_pick(struct ref_gen *g, const struct ref *r, size_t *out)
{
	char from[3] = { g->prefix, 'k', 0 }, to[3] = { g->prefix, 'l', 0 };
	size_t first = ref_lower(r, kv_slice_str(from)), end = ref_lower(r, kv_slice_str(to));

	if (first == end)
		return false;
	*out = first + ref_below(&g->random, end - first);
	return true;
}

static inline void ref_add_number(struct ref *r, struct kv_slice key, int64_t delta)
{
	le64 n = { { 0 } };
	size_t i;

	if (ref_has(r, key, &i))
		memcpy(&n, ref_value_at(r, i).data, sizeof(n));
	n = kv_le64(kv_le64_get(n) + (uint64_t)delta);
	memcpy(ref_put(r, key, sizeof(n)), &n, sizeof(n));
}

static inline void ref_gen_put(struct ref_gen *g, struct kv_batch *b, struct ref *next)
{
	struct ref_name name = ref_name_random(g);
	struct kv_slice key = kv_slice_str(name.s);
	uint32_t bytes = ref_size(g);
	uint8_t *data = ref_put(next, key, bytes);
	bool compressible = ref_chance(&g->random, 50);

	ref_fill(g, data, bytes, compressible);
	kv_batch_put(b, key, kv_slice(data, bytes),
		     ref_chance(&g->random, 20) ? KV_HINT_INCOMPRESSIBLE : KV_HINT_NONE);
}

static inline void ref_gen_delete(struct ref_gen *g, struct kv_batch *b, struct ref *next)
{
	size_t i;

	if (!ref_pick(g, next, &i))
		return;
	kv_batch_delete(b, ref_key_at(next, i));
	ref_delete(next, i, i + 1);
}

static inline void ref_gen_delete_range(struct ref_gen *g, struct kv_batch *b, struct ref *next)
{
	uint32_t from = ref_below(&g->random, g->keys);
	uint32_t span = ref_chance(&g->random, 10) ? g->keys : 1 + g->keys / 20;
	struct ref_name begin = ref_name(g, from);
	struct ref_name end = ref_name(g, from + 1 + ref_below(&g->random, span));
	struct kv_slice b_key = kv_slice_str(begin.s), e_key = kv_slice_str(end.s);

	kv_batch_delete_range(b, b_key, e_key);
	ref_delete(next, ref_lower(next, b_key), ref_lower(next, e_key));
}

/* Of a value as it was before the batch. */
static inline void ref_gen_put_part(struct ref_gen *g, struct kv_batch *b, const struct ref *now,
				    struct ref *next)
{
	struct ref_name name = ref_name_random(g);
	struct kv_slice from, key = kv_slice_str(name.s);
	uint32_t offset, bytes;
	size_t i;

	if (!ref_pick(g, now, &i))
		return;
	from = ref_value_at(now, i);
	offset = ref_below(&g->random, from.bytes + 1);
	bytes = ref_below(&g->random, from.bytes - offset + 1);
	if (ref_chance(&g->random, 30)) {
		offset = 0;
		bytes = (uint32_t)from.bytes;
	}
	kv_batch_put_part(b, key, ref_key_at(now, i), offset, bytes);
	memcpy(ref_put(next, key, bytes), (const uint8_t *)from.data + offset, bytes);
}

static inline void ref_gen_add(struct ref_gen *g, struct kv_batch *b, struct ref *next)
{
	char key[4] = { g->prefix, 'c', (char)('0' + ref_below(&g->random, 5)), 0 };
	int64_t delta = (int64_t)ref_below(&g->random, 2000) - 1000;

	kv_batch_add(b, kv_slice_str(key), delta);
	ref_add_number(next, kv_slice_str(key), delta);
}

/* Fills a batch with random operations; returns what `now` becomes by it. */
static inline struct ref ref_gen_batch(struct ref_gen *g, const struct ref *now,
				       struct kv_batch *b)
{
	uint32_t n = ref_chance(&g->random, 50) ? 1 : 1 + ref_below(&g->random, 12);
	char count[3] = { g->prefix, 'n', 0 };
	struct ref next = ref_copy(now);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t what = ref_below(&g->random, 100);

		if (what < 55)
			ref_gen_put(g, b, &next);
		else if (what < 75)
			ref_gen_delete(g, b, &next);
		else if (what < 80)
			ref_gen_delete_range(g, b, &next);
		else if (what < 92)
			ref_gen_put_part(g, b, now, &next);
		else
			ref_gen_add(g, b, &next);
	}
	kv_batch_add(b, kv_slice_str(count), 1);
	ref_add_number(&next, kv_slice_str(count), 1);
	return next;
}

static inline void ref_ingest_put(struct kv_ingest *in, struct ref *next, struct kv_slice key,
				  const void *data, uint32_t bytes, enum kv_hint hint, int *err)
{
	if (!*err)
		*err = kv_ingest_put(in, key, kv_slice(data, bytes), hint);
	if (bytes)
		memcpy(ref_put(next, key, bytes), data, bytes);
	else
		ref_put(next, key, 0);
}

/*
 * Gives an ingest random keys in a random range, and returns what `now` becomes by it: it counts
 * as a batch. *out_err: of the put that failed, if one has.
 */
static inline struct ref ref_gen_ingest(struct ref_gen *g, const struct ref *now,
					struct kv_ingest *in, int *out_err)
{
	uint32_t from = ref_below(&g->random, g->keys), density = 1 + ref_below(&g->random, 100);
	uint32_t end = from + 1 + ref_below(&g->random, g->keys - from);
	uint8_t *data = ref_alloc(g->value_bytes_max);
	char count[3] = { g->prefix, 'n', 0 };
	struct ref next = ref_copy(now);
	size_t i;
	le64 n;

	*out_err = 0;
	for (uint32_t number = from; number < end; number++) {
		struct ref_name name = ref_name(g, number);
		uint32_t bytes = ref_size(g);

		if (!ref_chance(&g->random, density))
			continue;
		ref_fill(g, data, bytes, ref_chance(&g->random, 50));
		ref_ingest_put(in, &next, kv_slice_str(name.s), data, bytes,
			       ref_chance(&g->random, 20) ? KV_HINT_INCOMPRESSIBLE : KV_HINT_NONE,
			       out_err);
	}
	free(data);
	ref_add_number(&next, kv_slice_str(count), 1);
	KV_ASSERT(ref_has(&next, kv_slice_str(count), &i));
	memcpy(&n, ref_value_at(&next, i).data, sizeof(n));
	ref_ingest_put(in, &next, kv_slice_str(count), &n, sizeof(n), KV_HINT_NONE, out_err);
	return next;
}

#endif
