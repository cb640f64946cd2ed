#include "kv/snapset.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kv/errcode.h"

struct kv_snapset *kv_snapset_ref(struct kv_snapset *s)
{
	if (s)
		atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}

void kv_snapset_unref(struct kv_snapset *s)
{
	if (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
		free(s);
}

static void unrefp(struct kv_snapset **s)
{
	kv_snapset_unref(*s);
}

const struct kv_snapshot_info *kv_snapset_find(const struct kv_snapset *s, const char *name)
{
	for (size_t i = 0; s && i < s->count; i++)
		if (!strcmp(s->at[i].name, name))
			return &s->at[i];
	return NULL;
}

static int take_away(struct kv_snapset *s, const char *name)
{
	const struct kv_snapshot_info *found = kv_snapset_find(s, name);
	size_t i;

	if (!found)
		return KV_E_bad_record;
	i = (size_t)(found - s->at);
	s->count--;
	memmove(&s->at[i], &s->at[i + 1], (s->count - i) * sizeof(*found));
	return 0;
}

/* s has room for one more. Behind those of the same seqno. */
static int put_in(struct kv_snapset *s, const struct kv_snapshot_info *info)
{
	size_t i = s->count;

	if (kv_snapset_find(s, info->name) || s->count == KV_SNAPSHOTS_MAX || info->seqno > KV_SEQNO_MAX)
		return KV_E_bad_record;
	while (i && s->at[i - 1].seqno > info->seqno)
		i--;
	memmove(&s->at[i + 1], &s->at[i], (s->count - i) * sizeof(*info));
	s->at[i] = *info;
	s->count++;
	return 0;
}

int kv_snapset_apply(struct kv_snapset *base, const struct kv_edit *e, struct kv_snapset **out)
{
	KV_AUTO(unrefp) struct kv_snapset *s = NULL;
	size_t count = base ? base->count : 0;

	if (!e->snapshot_add_count && !e->snapshot_delete_count) {
		*out = kv_snapset_ref(base);
		return 0;
	}
	if (e->snapshot_add_count > KV_SNAPSHOTS_MAX)
		return KV_E_bad_record;
	s = calloc(1, sizeof(*s) + (count + e->snapshot_add_count) * sizeof(s->at[0]));
	if (!s)
		return -ENOMEM;
	atomic_init(&s->refs, 1);
	s->count = count;
	if (base)
		memcpy(s->at, base->at, count * sizeof(s->at[0]));
	for (size_t i = 0; i < e->snapshot_delete_count; i++)
		KV_TRY(take_away(s, e->snapshot_deletes[i].name));
	for (size_t i = 0; i < e->snapshot_add_count; i++)
		KV_TRY(put_in(s, &e->snapshot_adds[i]));
	*out = NULL;
	if (s->count) {
		*out = s;
		s = NULL;
	}
	return 0;
}

int kv_snapset_to_edit(const struct kv_snapset *s, struct kv_edit *e)
{
	for (size_t i = 0; s && i < s->count; i++)
		KV_TRY(kv_edit_add_snapshot(e, &s->at[i]));
	return 0;
}

const struct kv_snapshot_info *kv_snapset_newest(const struct kv_snapset *s)
{
	return s ? &s->at[s->count - 1] : NULL;
}

int kv_snapset_seqnos(const struct kv_snapset *s, kv_seqno last, kv_seqno **out, size_t *out_count)
{
	size_t count = s ? s->count : 0, n = 0;
	kv_seqno *seqnos = malloc((count + 1) * sizeof(*seqnos));

	if (!seqnos)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (!n || seqnos[n - 1] != s->at[i].seqno)
			seqnos[n++] = s->at[i].seqno;
	if (!n || seqnos[n - 1] != last)
		seqnos[n++] = last;
	*out = seqnos;
	*out_count = n;
	return 0;
}
