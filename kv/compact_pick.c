/*
 * Which tables to merge next. Pure functions of a version and its busy flags:
 * no locks are taken and nothing is changed, so a test can build any
 * situation by hand.
 */
#include "kv/compact.h"

#include <stdlib.h>

/* A range tombstone stands for about so many deletes. */
#define RANGE_DELETE_WEIGHT 64
/* A table is full of tombstones when they are at least this part of it. */
#define TOMBSTONES_DENSE_PART 4
/* A table may go down for what it hides in the value log, if that is so much more than what is rewritten. */
#define UNCOVER_FACTOR 16
#define UNCOVER_BYTES_MIN (256 * KV_KIB)
/* When there is nothing else to do, less is enough, if they may free much: a large file has a range. */
#define QUIET_RANGE_DELETE_WEIGHT 1024
#define QUIET_WEIGHT_MIN 64
#define QUIET_PART 16

void kv_pick_done(struct kv_pick *p)
{
	free(p->tables);
	*p = (struct kv_pick){ 0 };
}

/* --- spans -------------------------------------------------------------------------------- */

struct kv_span kv_table_span(const struct kv_table *t)
{
	struct kv_slice largest = kv_buf_slice(&t->meta.largest);

	return (struct kv_span){
		.begin = kv_ikey_user(kv_buf_slice(&t->meta.smallest)),
		.end = kv_ikey_user(largest),
		.end_open = kv_ikey_seqno(largest) == KV_SEQNO_MAX,
	};
}

/* Does a end before b begins? */
static bool ends_before(struct kv_span a, struct kv_span b)
{
	int c = kv_slice_cmp(a.end, b.begin);

	return c < 0 || (!c && a.end_open);
}

bool kv_span_overlaps(struct kv_span a, struct kv_span b)
{
	return !ends_before(a, b) && !ends_before(b, a);
}

struct kv_span kv_span_join(struct kv_span a, struct kv_span b)
{
	int c = kv_slice_cmp(a.end, b.end);

	if (kv_slice_cmp(b.begin, a.begin) < 0)
		a.begin = b.begin;
	if (c < 0) {
		a.end = b.end;
		a.end_open = b.end_open;
	} else if (!c) {
		a.end_open = a.end_open && b.end_open;
	}
	return a;
}

size_t kv_level_span(const struct kv_level *l, struct kv_span s, size_t *out_first)
{
	size_t first = 0, end = l->count, last;

	while (first < end) {
		size_t mid = first + (end - first) / 2;

		if (ends_before(kv_table_span(l->tables[mid]), s))
			first = mid + 1;
		else
			end = mid;
	}
	for (last = first; last < l->count; last++)
		if (ends_before(s, kv_table_span(l->tables[last])))
			break;
	*out_first = first;
	return last - first;
}

bool kv_version_deeper_overlaps(const struct kv_version *v, int level, struct kv_span s)
{
	size_t first;

	for (int i = level + 1; i < KV_LEVELS; i++)
		if (kv_level_span(&v->levels[i], s, &first))
			return true;
	return false;
}

static uint64_t overlap_bytes(const struct kv_level *l, struct kv_span s)
{
	size_t first, n = kv_level_span(l, s, &first);
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += l->tables[first + i]->meta.file_bytes;
	return bytes;
}

/* --- tombstones --------------------------------------------------------------------------- */

static uint64_t tombstone_weight(const struct kv_sst_meta *m)
{
	return m->deletes + RANGE_DELETE_WEIGHT * m->range_deletes;
}

/* Size of the table, plus what its tombstones may remove below. */
static uint64_t compensated_bytes(const struct kv_sst_meta *m)
{
	uint64_t each = m->entries ? m->file_bytes / m->entries : 0;

	return m->file_bytes + tombstone_weight(m) * KV_MAX(each, (uint64_t)64);
}

static bool is_dense(const struct kv_sst_meta *m)
{
	uint64_t weight = tombstone_weight(m);

	return weight && weight * TOMBSTONES_DENSE_PART >= m->entries;
}

static bool is_worth_quiet(const struct kv_sst_meta *m)
{
	uint64_t weight = m->deletes + QUIET_RANGE_DELETE_WEIGHT * m->range_deletes;

	return weight >= QUIET_WEIGHT_MIN && weight * QUIET_PART >= m->entries;
}

/* --- completing a choice ------------------------------------------------------------------ */

static bool any_busy(const struct kv_level *l, size_t first, size_t n)
{
	for (size_t i = first; i < first + n; i++)
		if (l->tables[i]->busy)
			return true;
	return false;
}

/*
 * May the table go down as it is? Not when something would be gained by writing it
 * anew: tombstones that have nothing left to hide, or pieces that overlap less
 * of the level after the next.
 */
static bool can_move(const struct kv_version *v, const struct kv_pick_options *o,
		     const struct kv_pick *p)
{
	const struct kv_sst_meta *m = &p->tables[0]->meta;
	struct kv_span s = kv_table_span(p->tables[0]);

	if (p->upper_count != 1 || p->lower_count || p->level == p->output_level)
		return false;
	if ((m->range_deletes || is_dense(m)) &&
	    !kv_version_deeper_overlaps(v, p->output_level, s))
		return false;
	return p->output_level + 1 >= KV_LEVELS ||
	       overlap_bytes(&v->levels[p->output_level + 1], s) <=
		       KV_GRANDPARENT_FACTOR * o->table_bytes;
}

/*
 * Could another compaction, on other tables, write to a gap between ours, or ours to a gap
 * between its tables? The span of a rewriting in place has gaps at its own level, into
 * which a table from above would fit without overlapping any.
 */
static bool may_collide(const struct kv_version *v, const struct kv_pick *p, struct kv_span s,
			size_t first)
{
	const struct kv_level *above, *lower = &v->levels[p->output_level];

	if (p->level != p->output_level)	/* in a gap, and what is on both sides is at work? */
		return !p->lower_count && first && first < lower->count &&
		       lower->tables[first - 1]->busy && lower->tables[first]->busy;
	above = &v->levels[p->level - 1];
	for (size_t i = 0; i < above->count; i++)
		if (above->tables[i]->busy && kv_span_overlaps(s, kv_table_span(above->tables[i])))
			return true;
	return false;
}

/*
 * Adds what the upper tables have to be merged with. *out_busy, and nothing chosen, when
 * one that would have to take part is busy.
 */
static int complete(const struct kv_version *v, const struct kv_pick_options *o, int level,
		    int output_level, struct kv_table *const *upper, size_t upper_count,
		    struct kv_pick *out, bool *out_busy)
{
	struct kv_pick p = { .level = level, .output_level = output_level,
			     .upper_count = upper_count };
	const struct kv_level *lower = &v->levels[output_level];
	struct kv_span s = kv_table_span(upper[0]);
	bool busy = upper[0]->busy;
	size_t first = 0;

	for (size_t i = 1; i < upper_count; i++) {
		s = kv_span_join(s, kv_table_span(upper[i]));
		busy = busy || upper[i]->busy;
	}
	if (level != output_level)
		p.lower_count = kv_level_span(lower, s, &first);
	if (busy || any_busy(lower, first, p.lower_count) || may_collide(v, &p, s, first)) {
		*out_busy = true;
		return 0;
	}
	p.tables = malloc((upper_count + p.lower_count) * sizeof(struct kv_table *));
	if (!p.tables)
		return -ENOMEM;
	memcpy(p.tables, upper, upper_count * sizeof(struct kv_table *));
	if (p.lower_count)
		memcpy(p.tables + upper_count, lower->tables + first,
		       p.lower_count * sizeof(struct kv_table *));
	p.move = can_move(v, o, &p);
	*out = p;
	return 0;
}

/*
 * Level 0 from one table on: with all that overlap it, and all that overlap those.
 * What is left behind shares no key with what goes, so it doesn't matter which is newer.
 */
static int complete_level0(const struct kv_version *v, const struct kv_pick_options *o,
			   size_t seed, struct kv_pick *out, bool *out_busy)
{
	const struct kv_level *l = &v->levels[0];
	struct kv_span s = kv_table_span(l->tables[seed]);
	struct kv_table **upper;
	bool *taken, grown = true;
	size_t n = 0;
	int err;

	if (any_busy(l, 0, l->count)) {
		*out_busy = true;
		return 0;
	}
	taken = calloc(l->count, sizeof(*taken));
	upper = malloc(l->count * sizeof(*upper));
	if (!taken || !upper) {
		free(taken);
		free(upper);
		return -ENOMEM;
	}
	taken[seed] = true;
	while (grown) {
		grown = false;
		for (size_t i = 0; i < l->count; i++) {
			struct kv_span t = kv_table_span(l->tables[i]);

			if (taken[i] || !kv_span_overlaps(s, t))
				continue;
			taken[i] = grown = true;
			s = kv_span_join(s, t);
		}
	}
	for (size_t i = 0; i < l->count; i++)	/* stays ordered, newest first */
		if (taken[i])
			upper[n++] = l->tables[i];
	err = complete(v, o, 0, 1, upper, n, out, out_busy);
	free(taken);
	free(upper);
	return err;
}

/*
 * Neighbours [first, first + n) of a level below 0. A user key never lies in two tables;
 * should it do so nevertheless, its older half must not be left above its newer one.
 */
static int complete_run(const struct kv_version *v, const struct kv_pick_options *o, int level,
			int output_level, size_t first, size_t n, struct kv_pick *out,
			bool *out_busy)
{
	const struct kv_level *l = &v->levels[level];

	while (first && kv_span_overlaps(kv_table_span(l->tables[first - 1]),
					 kv_table_span(l->tables[first]))) {
		first--;
		n++;
	}
	while (first + n < l->count &&
	       kv_span_overlaps(kv_table_span(l->tables[first + n - 1]),
				kv_table_span(l->tables[first + n])))
		n++;
	return complete(v, o, level, output_level, l->tables + first, n, out, out_busy);
}

int kv_pick_table(const struct kv_version *v, const struct kv_pick_options *o, int level,
		  const struct kv_table *t, struct kv_pick *out)
{
	const struct kv_level *l = &v->levels[level];
	bool busy = false;

	*out = (struct kv_pick){ 0 };
	KV_ASSERT(level + 1 < KV_LEVELS);
	for (size_t i = 0; i < l->count; i++) {
		if (l->tables[i] != t)
			continue;
		if (!level)
			return complete_level0(v, o, i, out, &busy);
		return complete_run(v, o, level, level + 1, i, 1, out, &busy);
	}
	return 0;
}

/* --- choosing ----------------------------------------------------------------------------- */

static uint64_t level_bytes_max(uint64_t level_base_bytes, int level)
{
	uint64_t bytes = level_base_bytes;

	for (int i = 1; i < level; i++)
		bytes *= KV_LEVEL_FACTOR;
	return bytes;
}

/* How full a level is; 1.0 is its limit. What is being compacted already is not counted. */
static double level_score(const struct kv_version *v, const struct kv_pick_options *o, int level)
{
	const struct kv_level *l = &v->levels[level];
	uint64_t bytes = 0;

	if (!level)
		return any_busy(l, 0, l->count) ?
			       0 : (double)l->count / KV_LEVEL0_TABLES_COMPACT;
	for (size_t i = 0; i < l->count; i++)
		if (!l->tables[i]->busy)
			bytes += l->tables[i]->meta.file_bytes;
	return (double)bytes / (double)level_bytes_max(o->level_base_bytes, level);
}

uint64_t kv_pick_debt(const struct kv_version *v, uint64_t level_base_bytes)
{
	uint64_t debt = 0;

	if (v->levels[0].count >= KV_LEVEL0_TABLES_COMPACT)
		debt = v->levels[0].bytes;
	for (int level = 1; level + 1 < KV_LEVELS; level++) {
		uint64_t max = level_bytes_max(level_base_bytes, level);

		if (v->levels[level].bytes > max)
			debt += v->levels[level].bytes - max;
	}
	return debt;
}

/*
 * The table that is cheapest to push down: fewest bytes to rewrite below for each
 * byte (and tombstone) that leaves the level. Among equals, the first behind the pointer,
 * so that all have their turn.
 */
static int pick_cheapest(const struct kv_version *v, const struct kv_pick_options *o, int level,
			 struct kv_pick *out)
{
	const struct kv_level *l = &v->levels[level], *lower = &v->levels[level + 1];
	struct kv_slice pointer = o->pointers[level];
	size_t start = 0, best = l->count;
	double best_cost = 0;
	bool busy = false;

	while (pointer.data && start < l->count &&
	       kv_slice_cmp(kv_table_span(l->tables[start]).begin, pointer) <= 0)
		start++;
	for (size_t k = 0; k < l->count; k++) {
		size_t i = (start + k) % l->count, first, n;
		struct kv_span s = kv_table_span(l->tables[i]);
		double cost = (double)overlap_bytes(lower, s) /
			      (double)(compensated_bytes(&l->tables[i]->meta) + 1);

		if (best < l->count && cost >= best_cost)
			continue;
		n = kv_level_span(lower, s, &first);
		if (l->tables[i]->busy || any_busy(lower, first, n))
			continue;
		best = i;
		best_cost = cost;
	}
	if (best == l->count)
		return 0;
	return complete_run(v, o, level, level + 1, best, 1, out, &busy);
}

/*
 * A table full of tombstones slows readers down and keeps what it hides on the disk:
 * it goes down until nothing is left for it to hide. When nothing below it is, and no
 * snapshot needs them, it is written anew without them. Both come to an end.
 */
static int pick_tombstones(const struct kv_version *v, const struct kv_pick_options *o,
			   struct kv_pick *out)
{
	bool busy = false;

	for (int level = 0; level < KV_LEVELS && !out->upper_count; level++) {
		const struct kv_level *l = &v->levels[level];

		for (size_t i = 0; i < l->count && !out->upper_count; i++) {
			const struct kv_sst_meta *m = &l->tables[i]->meta;
			struct kv_span s = kv_table_span(l->tables[i]);

			if (l->tables[i]->busy ||
			    (!is_dense(m) && !(o->quiet && is_worth_quiet(m))))
				continue;
			if (!level)
				KV_TRY(complete_level0(v, o, l->count - 1, out, &busy));
			else if (kv_version_deeper_overlaps(v, level, s))
				KV_TRY(complete_run(v, o, level, level + 1, i, 1, out, &busy));
			else if (m->seqno_max <= o->oldest_snapshot)
				KV_TRY(complete_run(v, o, level, level, i, 1, out, &busy));
		}
	}
	return 0;
}

static uint64_t referenced_bytes(const struct kv_sst_meta *m)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < m->ref_count; i++)
		bytes += m->refs[i].bytes;
	return bytes;
}

/* Values in the log that the table may hide: bytes that older tables within its span refer to. */
static uint64_t hidden_bytes_max(const struct kv_version *v, int level, size_t at)
{
	struct kv_span s = kv_table_span(v->levels[level].tables[at]);
	uint64_t bytes = 0;

	for (int i = level; i < KV_LEVELS; i++) {
		const struct kv_level *l = &v->levels[i];
		size_t first = at + 1, n = l->count - first;

		if (i == level && level)
			continue;
		if (i)
			n = kv_level_span(l, s, &first);
		for (size_t k = first; k < first + n; k++)
			if (i || kv_span_overlaps(s, kv_table_span(l->tables[k])))
				bytes += referenced_bytes(&l->tables[k]->meta);
	}
	return bytes;
}

/* Would rewriting little in tables tell how much of large values in the log is overwritten? */
static bool may_uncover(const struct kv_version *v, int level, size_t at)
{
	const struct kv_sst_meta *m = &v->levels[level].tables[at]->meta;
	uint64_t gain = referenced_bytes(m), cost = m->file_bytes;

	if (gain < UNCOVER_BYTES_MIN || gain / UNCOVER_FACTOR < cost)
		return false;
	cost += overlap_bytes(&v->levels[level + 1], kv_table_span(v->levels[level].tables[at]));
	if (gain / UNCOVER_FACTOR < cost)
		return false;
	return hidden_bytes_max(v, level, at) / UNCOVER_FACTOR >= cost;
}

/*
 * An overwritten value counts as alive until the table with the new one meets the one with the old.
 * Where values are large, tables are tiny beside what they refer to: pushing those down at once
 * costs next to nothing, and keeps the value log from growing by generations of overwritten values.
 */
static int pick_uncovering(const struct kv_version *v, const struct kv_pick_options *o,
			   struct kv_pick *out)
{
	bool busy = false;

	for (int level = 0; level < KV_LEVELS - 1 && !out->upper_count; level++) {
		const struct kv_level *l = &v->levels[level];

		for (size_t i = 0; i < l->count && !out->upper_count; i++) {
			if (l->tables[i]->busy || !may_uncover(v, level, i))
				continue;
			if (!level)
				KV_TRY(complete_level0(v, o, i, out, &busy));
			else
				KV_TRY(complete_run(v, o, level, level + 1, i, 1, out, &busy));
		}
	}
	return 0;
}

static int pick_useful(const struct kv_version *v, const struct kv_pick_options *o,
		       struct kv_pick *out)
{
	KV_TRY(pick_tombstones(v, o, out));
	return out->upper_count ? 0 : pick_uncovering(v, o, out);
}

int kv_pick_auto(const struct kv_version *v, const struct kv_pick_options *o,
		 struct kv_pick *out)
{
	double score[KV_LEVELS - 1];
	bool busy = false;

	*out = (struct kv_pick){ 0 };
	for (int i = 0; i < KV_LEVELS - 1; i++)
		score[i] = level_score(v, o, i);
	for (;;) {
		int level = 0;

		for (int i = 1; i < KV_LEVELS - 1; i++)
			if (score[i] > score[level])
				level = i;
		if (score[level] < 1)
			return pick_useful(v, o, out);
		if (!level)
			KV_TRY(complete_level0(v, o, v->levels[0].count - 1, out, &busy));
		else
			KV_TRY(pick_cheapest(v, o, level, out));
		if (out->upper_count)
			return 0;
		score[level] = 0;	/* all of it waits for somebody; see to the next */
	}
}

static struct kv_span range_span(const struct kv_level *l, struct kv_slice begin,
				 struct kv_slice end)
{
	struct kv_span s = { .begin = begin, .end = end };

	for (size_t i = 0; i < l->count; i++) {
		struct kv_span t = kv_table_span(l->tables[i]);

		if (!begin.data && (!s.begin.data || kv_slice_cmp(t.begin, s.begin) < 0))
			s.begin = t.begin;
		if (!end.data && (!s.end.data || kv_slice_cmp(t.end, s.end) > 0))
			s.end = t.end;
	}
	return s;
}

int kv_pick_range(const struct kv_version *v, const struct kv_pick_options *o, int level,
		  int output_level, struct kv_slice begin, struct kv_slice end,
		  kv_fileno number_max, struct kv_pick *out, bool *out_busy)
{
	const struct kv_level *l = &v->levels[level];
	struct kv_span s = range_span(l, begin, end);
	size_t first = l->count, n = 0;
	uint64_t bytes = 0;

	KV_ASSERT(output_level == level + 1 || (level && output_level == level));
	KV_ASSERT(output_level < KV_LEVELS);
	*out = (struct kv_pick){ 0 };
	*out_busy = false;
	/* The oldest table of level 0 first; below, a run of neighbours of limited size. */
	for (size_t k = 0; k < l->count; k++) {
		size_t i = level ? k : l->count - 1 - k;
		const struct kv_table *t = l->tables[i];
		bool fits = t->meta.number < number_max && kv_span_overlaps(s, kv_table_span(t));

		if (fits && !level)
			return complete_level0(v, o, i, out, out_busy);
		if (!fits && n)
			break;
		if (!fits)
			continue;
		if (!n)
			first = i;
		n++;
		bytes += t->meta.file_bytes;
		if (output_level != level)
			bytes += overlap_bytes(&v->levels[output_level], kv_table_span(t));
		if (bytes >= KV_COMPACT_TABLES_MAX * o->table_bytes)
			break;
	}
	if (!n)
		return 0;
	return complete_run(v, o, level, output_level, first, n, out, out_busy);
}
