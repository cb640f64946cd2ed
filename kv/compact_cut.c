/*
 * Cutting a compaction into ranges of keys that several threads merge at the same time. Their outputs
 * don't overlap, since each user key is in one of them, and one edit installs them all.
 *
 * Where to cut is told by samples: some keys from the index of each table, each of which
 * stands for the bytes up to the next one.
 */
#include "kv/compact_impl.h"

#include <stdlib.h>

#define SAMPLES 32			/* of a table */

struct sample {
	struct kv_slice key;
	uint64_t bytes;
};

struct samples {
	struct kv_arena *arena;
	struct sample *at;
	size_t count;
};

static int add_sample(void *arg, struct kv_slice user_key)
{
	struct samples *s = arg;
	uint8_t *key = kv_arena_alloc(s->arena, user_key.bytes);

	if (!key)
		return -ENOMEM;
	memcpy(key, user_key.data, user_key.bytes);
	s->at[s->count++].key = kv_slice(key, user_key.bytes);
	return 0;
}

static int sample_table(struct kv_job *j, const struct kv_table *t, struct samples *s)
{
	struct kv_filecache_entry *pin;
	struct kv_sst *sst;
	size_t first = s->count;
	int err;

	KV_TRY(kv_filecache_table(j->db->files, t->meta.number, t->meta.file_bytes, &pin, &sst));
	err = kv_sst_sample(sst, SAMPLES, add_sample, s);
	kv_filecache_unpin(j->db->files, pin);
	for (size_t i = first; i < s->count; i++)
		s->at[i].bytes = t->meta.file_bytes / (s->count - first);
	return err;
}

static int cmp_samples(const void *pa, const void *pb)
{
	const struct sample *a = pa, *b = pb;

	return kv_slice_cmp(a->key, b->key);
}

static void cut_before(struct kv_job *j, struct kv_slice key)
{
	j->parts[j->part_count - 1].end = key;
	j->parts[j->part_count++] = (struct kv_job_part){ .job = j, .begin = key };
}

static void cut_at_samples(struct kv_job *j, const struct samples *s, size_t parts)
{
	uint64_t all = 0, before = 0;

	for (size_t i = 0; i < s->count; i++)
		all += s->at[i].bytes;
	for (size_t i = 0; i < s->count && j->part_count < parts; i++) {
		struct kv_slice key = s->at[i].key;

		/* The part up to here has its share; and it isn't empty. */
		if (before >= all / parts * j->part_count && i &&
		    kv_slice_cmp(s->at[i - 1].key, key) < 0)
			cut_before(j, key);
		before += s->at[i].bytes;
	}
}

static int cut(struct kv_job *j, size_t parts)
{
	struct samples s = { .arena = &j->keys };
	size_t n = j->read_upper + j->read_lower;
	int err = 0;

	s.at = malloc(n * SAMPLES * sizeof(*s.at));
	if (!s.at)
		return -ENOMEM;
	for (size_t i = 0; i < n && !err; i++)
		err = sample_table(j, j->read[i], &s);
	if (!err && s.count) {
		qsort(s.at, s.count, sizeof(*s.at), cmp_samples);
		cut_at_samples(j, &s, parts);
	}
	free(s.at);
	return err;
}

int kv_job_cut(struct kv_job *j, size_t count_max)
{
	uint64_t bytes = 0;
	size_t parts;

	for (size_t i = 0; i < j->read_upper + j->read_lower; i++)
		bytes += j->read[i]->meta.file_bytes;
	parts = KV_MAX(KV_MIN(bytes / j->db->options.table_bytes, (uint64_t)count_max),
		       (uint64_t)1);
	j->parts = calloc(parts, sizeof(*j->parts));
	if (!j->parts)
		return -ENOMEM;
	j->parts[j->part_count++].job = j;
	return parts > 1 ? cut(j, parts) : 0;
}
