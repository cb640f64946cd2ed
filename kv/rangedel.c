#include "kv/rangedel.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kv/assert.h"

/*
 * Cutting: a sweep over all bounds in order, with the tombstones that cover the
 * span from this bound to the next one, newest first. Keys are borrowed from
 * the caller until the end, then copied once.
 */
struct sweep {
	struct kv_rangedel *in;		/* not empty ones, by begin */
	struct kv_slice *bounds;	/* each once */
	struct kv_rangedel *active;	/* newest first */
	size_t in_count, bound_count, active_count;

	struct kv_rangedel *out;
	size_t out_count, out_max;
	size_t last;			/* where the last fragment begins in out */
};

static void sweep_done(struct sweep *s)
{
	free(s->in);
	free(s->bounds);
	free(s->active);
	free(s->out);
}

static int compare_begin(const void *a, const void *b)
{
	const struct kv_rangedel *x = a, *y = b;

	return kv_slice_cmp(x->begin, y->begin);
}

static int compare_slice(const void *a, const void *b)
{
	const struct kv_slice *x = a, *y = b;

	return kv_slice_cmp(*x, *y);
}

static int sweep_init(struct sweep *s, const struct kv_rangedel *in, size_t n)
{
	size_t count = 0;

	s->in = calloc(n, sizeof(*s->in));
	s->active = calloc(n, sizeof(*s->active));
	s->bounds = calloc(n, 2 * sizeof(*s->bounds));
	if (!s->in || !s->active || !s->bounds)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (kv_slice_cmp(in[i].begin, in[i].end) >= 0)
			continue;
		s->in[s->in_count++] = in[i];
		s->bounds[count++] = in[i].begin;
		s->bounds[count++] = in[i].end;
	}
	qsort(s->in, s->in_count, sizeof(*s->in), compare_begin);
	qsort(s->bounds, count, sizeof(*s->bounds), compare_slice);
	for (size_t i = 0; i < count; i++)
		if (!i || !kv_slice_eq(s->bounds[i], s->bounds[s->bound_count - 1]))
			s->bounds[s->bound_count++] = s->bounds[i];
	return 0;
}

static void activate(struct sweep *s, const struct kv_rangedel *r)
{
	size_t i = s->active_count++;

	for (; i > 0 && s->active[i - 1].seqno < r->seqno; i--)
		s->active[i] = s->active[i - 1];
	s->active[i] = *r;
}

static void drop_ended(struct sweep *s, struct kv_slice bound)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->active_count; i++)
		if (kv_slice_cmp(s->active[i].end, bound) > 0)
			s->active[kept++] = s->active[i];
	s->active_count = kept;
}

static int reserve_out(struct sweep *s, size_t more)
{
	size_t max = KV_MAX(s->out_count + more, s->out_max * 2);
	struct kv_rangedel *out;

	if (s->out_count + more <= s->out_max)
		return 0;
	if (max > UINT32_MAX)
		return -ENOMEM;
	out = realloc(s->out, max * sizeof(*out));
	if (!out)
		return -ENOMEM;
	s->out = out;
	s->out_max = max;
	return 0;
}

/* If the fragment at s->last continues in the one behind it, makes them one. */
static void join_last(struct sweep *s, size_t behind)
{
	size_t n = behind - s->last;

	if (n && n == s->out_count - behind &&
	    kv_slice_eq(s->out[s->last].end, s->out[behind].begin)) {
		size_t same = 0;

		while (same < n && s->out[s->last + same].seqno == s->out[behind + same].seqno)
			same++;
		if (same == n) {
			for (size_t i = s->last; i < behind; i++)
				s->out[i].end = s->out[behind].end;
			s->out_count = behind;
			return;
		}
	}
	s->last = behind;
}

static int emit(struct sweep *s, struct kv_slice begin, struct kv_slice end)
{
	size_t first = s->out_count;

	KV_TRY(reserve_out(s, s->active_count));
	for (size_t i = 0; i < s->active_count; i++)
		if (!i || s->active[i].seqno != s->active[i - 1].seqno)
			s->out[s->out_count++] =
				(struct kv_rangedel){ begin, end, s->active[i].seqno };
	join_last(s, first);
	return 0;
}

static int sweep_run(struct sweep *s)
{
	size_t next = 0;

	for (size_t i = 0; i + 1 < s->bound_count; i++) {
		drop_ended(s, s->bounds[i]);
		for (; next < s->in_count && kv_slice_eq(s->in[next].begin, s->bounds[i]); next++)
			activate(s, &s->in[next]);
		if (s->active_count)
			KV_TRY(emit(s, s->bounds[i], s->bounds[i + 1]));
	}
	KV_ASSERT(next == s->in_count);
	return 0;
}

/*
 * One allocation: the array, then the bytes of the keys. All entries of a fragment
 * share the bytes of its bounds, and fragments that touch share the bound.
 */
static struct kv_rangedels *sweep_result(const struct sweep *s)
{
	struct kv_rangedels *r;
	size_t bytes = sizeof(*r) + s->out_count * sizeof(r->at[0]);
	uint8_t *at;

	for (size_t i = 0; i < s->out_count; i++)
		bytes += s->out[i].begin.bytes + s->out[i].end.bytes;
	r = malloc(bytes);
	if (!r)
		return NULL;
	atomic_init(&r->refs, 1);
	r->count = (uint32_t)s->out_count;
	r->memory_bytes = bytes;
	at = (uint8_t *)(r->at + r->count);
	for (size_t i = 0; i < s->out_count; i++) {
		struct kv_rangedel *to = &r->at[i];

		*to = s->out[i];
		if (i && kv_slice_eq(to->begin, to[-1].begin)) {
			to->begin = to[-1].begin;
			to->end = to[-1].end;
			continue;
		}
		if (i && kv_slice_eq(to->begin, to[-1].end)) {
			to->begin = to[-1].end;
		} else {
			if (to->begin.bytes)
				memcpy(at, to->begin.data, to->begin.bytes);
			to->begin.data = at;
			at += to->begin.bytes;
		}
		memcpy(at, to->end.data, to->end.bytes);
		to->end.data = at;
		at += to->end.bytes;
	}
	return r;
}

int kv_rangedels_new(const struct kv_rangedel *in, size_t n, struct kv_rangedels **out)
{
	KV_AUTO(sweep_done) struct sweep s = { .in = NULL };
	struct kv_rangedels *r = NULL;

	if (n) {
		KV_TRY(sweep_init(&s, in, n));
		KV_TRY(sweep_run(&s));
		if (s.out_count) {
			r = sweep_result(&s);
			if (!r)
				return -ENOMEM;
		}
	}
	*out = r;
	return 0;
}

struct kv_rangedels *kv_rangedels_ref(struct kv_rangedels *r)
{
	if (r)
		atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
	return r;
}

void kv_rangedels_unref(struct kv_rangedels *r)
{
	if (r && atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1)
		free(r);
}

/* --- asking ------------------------------------------------------------------------------ */

/* How many entries begin at or before the key. */
static uint32_t count_begun(const struct kv_rangedels *r, struct kv_slice user_key)
{
	uint32_t lo = 0, hi = r->count;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (kv_slice_cmp(r->at[mid].begin, user_key) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/*
 * Of the entries of the fragment that ends before `behind`, the newest at or below
 * snapshot. The entries of one fragment share the bytes of its bounds.
 */
static kv_seqno newest_visible(const struct kv_rangedels *r, uint32_t behind, kv_seqno snapshot)
{
	const uint8_t *end = r->at[behind - 1].end.data;
	uint32_t lo = 0, hi = behind;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (r->at[mid].end.data == end && r->at[mid].seqno <= snapshot)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo < behind ? r->at[lo].seqno : 0;
}

kv_seqno kv_rangedels_cover(const struct kv_rangedels *r, struct kv_slice user_key,
			    kv_seqno snapshot, struct kv_rangedel *out_span)
{
	struct kv_rangedel span = { { NULL, 0 }, { NULL, 0 }, 0 };
	uint32_t begun = r ? count_begun(r, user_key) : 0;

	if (r && begun < r->count)
		span.end = r->at[begun].begin;
	if (begun) {
		const struct kv_rangedel *f = &r->at[begun - 1];

		if (kv_slice_cmp(user_key, f->end) < 0) {
			span.begin = f->begin;
			span.end = f->end;
			span.seqno = newest_visible(r, begun, snapshot);
		} else {
			span.begin = f->end;
		}
	}
	*out_span = span;
	return span.seqno;
}

kv_seqno kv_rangedels_covering(const struct kv_rangedels *r, struct kv_slice user_key,
			       kv_seqno snapshot)
{
	struct kv_rangedel span;

	return kv_rangedels_cover(r, user_key, snapshot, &span);
}
