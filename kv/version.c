#include "kv/version.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kv/errcode.h"

/* --- what versions share -------------------------------------------------------------- */

static int table_new(const struct kv_sst_meta *meta, const struct kv_obsolete_sink *sink,
		     struct kv_table **out)
{
	struct kv_table *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	err = kv_sst_meta_copy(&t->meta, meta);
	if (err) {
		free(t);
		return err;
	}
	atomic_init(&t->refs, 1);
	t->sink = sink;
	*out = t;
	return 0;
}

static struct kv_table *table_ref(struct kv_table *t)
{
	atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
	return t;
}

static void table_unref(struct kv_table *t)
{
	if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (t->sink && atomic_load_explicit(&t->obsolete, memory_order_relaxed))
		t->sink->fn(t->sink->arg, KV_FILE_TABLE, t->meta.number);
	kv_sst_meta_done(&t->meta);
	free(t);
}

static struct kv_segment *segment_new(kv_fileno number, const struct kv_obsolete_sink *sink)
{
	struct kv_segment *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	atomic_init(&s->refs, 1);
	s->sink = sink;
	s->number = number;
	return s;
}

static struct kv_segment *segment_ref(struct kv_segment *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}

static void segment_unref(struct kv_segment *s)
{
	if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (s->sink && atomic_load_explicit(&s->obsolete, memory_order_relaxed))
		s->sink->fn(s->sink->arg, KV_FILE_SEGMENT, s->number);
	free(s);
}

static struct kv_version *version_new(void)
{
	struct kv_version *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	atomic_init(&v->refs, 1);
	kv_mutex_init(&v->level_rangedels_mu);
	return v;
}

struct kv_version *kv_version_ref(struct kv_version *v)
{
	atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
	return v;
}

void kv_version_unref(struct kv_version *v)
{
	if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (int l = 0; l < KV_LEVELS; l++) {
		for (size_t i = 0; i < v->levels[l].count; i++)
			table_unref(v->levels[l].tables[i]);
		free(v->levels[l].tables);
		kv_rangedels_unref(v->level_rangedels[l]);
	}
	for (size_t i = 0; i < v->segment_count; i++)
		segment_unref(v->segments[i].segment);
	free(v->segments);
	kv_snapset_unref(v->snapshots);
	kv_mutex_done(&v->level_rangedels_mu);
	free(v);
}

/* --- order and bounds ----------------------------------------------------------------- */

static struct kv_slice smallest_user(const struct kv_table *t)
{
	return kv_ikey_user(kv_buf_slice(&t->meta.smallest));
}

static struct kv_slice largest_user(const struct kv_table *t)
{
	return kv_ikey_user(kv_buf_slice(&t->meta.largest));
}

/*
 * Does all of the table lie before the user key? The end of a range tombstone
 * does not belong to it: a table that ends with one lies before that key.
 */
static bool ends_before(const struct kv_table *t, struct kv_slice user_key)
{
	int c = kv_slice_cmp(largest_user(t), user_key);

	return c < 0 || (!c && kv_ikey_seqno(kv_buf_slice(&t->meta.largest)) == KV_SEQNO_MAX);
}

static int cmp_numbers(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* The order of the tables of a level. */
static int cmp_tables(int level, const struct kv_table *a, const struct kv_table *b)
{
	int c;

	if (level)
		return kv_ikey_cmp(kv_buf_slice(&a->meta.smallest),
				   kv_buf_slice(&b->meta.smallest));
	c = cmp_numbers(b->meta.seqno_max, a->meta.seqno_max);
	return c ? c : cmp_numbers(b->meta.number, a->meta.number);
}

static bool meta_is_valid(const struct kv_sst_meta *m)
{
	struct kv_slice smallest = kv_buf_slice(&m->smallest);
	struct kv_slice largest = kv_buf_slice(&m->largest);

	if (!m->number || !m->file_bytes || m->seqno_min > m->seqno_max ||
	    m->seqno_max > KV_SEQNO_MAX)
		return false;
	if (!kv_ikey_is_valid(smallest) || !kv_ikey_is_valid(largest) ||
	    kv_ikey_cmp(smallest, largest) > 0)
		return false;
	for (size_t i = 0; i < m->ref_count; i++)
		if (m->refs[i].segment_no <= (i ? m->refs[i - 1].segment_no : 0))
			return false;
	return true;
}

static bool level_is_valid(int level, const struct kv_level *l)
{
	for (size_t i = 1; level && i < l->count; i++)
		if (!ends_before(l->tables[i - 1], smallest_user(l->tables[i])))
			return false;
	return true;
}

size_t kv_level_find(const struct kv_level *l, struct kv_slice user_key)
{
	size_t low = 0, high = l->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (ends_before(l->tables[mid], user_key))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool begins_by(const struct kv_table *t, struct kv_slice user_key)
{
	return kv_slice_cmp(smallest_user(t), user_key) <= 0;
}

bool kv_level_overlaps(const struct kv_level *l, int level, struct kv_slice begin,
		       struct kv_slice end)
{
	size_t i = level && begin.data ? kv_level_find(l, begin) : 0;

	if (level)
		return i < l->count && (!end.data || begins_by(l->tables[i], end));
	for (; i < l->count; i++)
		if ((!begin.data || !ends_before(l->tables[i], begin)) &&
		    (!end.data || begins_by(l->tables[i], end)))
			return true;
	return false;
}

struct kv_version_segment *kv_version_segment(const struct kv_version *v, kv_fileno number)
{
	size_t low = 0, high = v->segment_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (v->segments[mid].number < number)
			low = mid + 1;
		else
			high = mid;
	}
	return low < v->segment_count && v->segments[low].number == number ? &v->segments[low] :
									      NULL;
}

/* --- applying an edit ----------------------------------------------------------------- */

/* A table that the edit adds or deletes. */
struct change {
	kv_fileno number;
	const struct kv_edit_table *item;
	bool met;		/* deletion: the table is there */
	struct kv_table *table;	/* addition: a reference, until a level takes it over */
};

struct apply {
	const struct kv_version *base;	/* may be NULL */
	const struct kv_edit *edit;
	const struct kv_obsolete_sink *sink;
	struct kv_version *v;		/* being made */
	struct change *adds, *deletes;	/* sorted by number, until add_tables() */
};

static void apply_done(struct apply *a)
{
	for (size_t i = 0; a->adds && i < a->edit->add_count; i++)
		table_unref(a->adds[i].table);
	free(a->adds);
	free(a->deletes);
	kv_version_unref(a->v);
}

static int cmp_changes(const void *a, const void *b)
{
	return cmp_numbers(((const struct change *)a)->number, ((const struct change *)b)->number);
}

static int sort_changes(const struct kv_edit_table *items, size_t count, struct change **out)
{
	struct change *c;

	if (!count)
		return 0;
	c = calloc(count, sizeof(*c));
	if (!c)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		c[i] = (struct change){ .number = items[i].meta.number, .item = &items[i] };
	qsort(c, count, sizeof(*c), cmp_changes);
	*out = c;
	for (size_t i = 0; i < count; i++)
		if (c[i].item->level < 0 || c[i].item->level >= KV_LEVELS ||
		    (i && c[i - 1].number == c[i].number))
			return KV_E_bad_record;
	return 0;
}

static struct change *find_change(struct change *changes, size_t count, kv_fileno number)
{
	struct change key = { .number = number };

	return count ? bsearch(&key, changes, count, sizeof(key), cmp_changes) : NULL;
}

static int cmp_segments(const void *a, const void *b)
{
	return cmp_numbers(((const struct kv_version_segment *)a)->number,
			   ((const struct kv_version_segment *)b)->number);
}

/* The segments of the base and those added, sealed as the edit says. */
static int add_segments(struct apply *a)
{
	const struct kv_edit *e = a->edit;
	size_t before = a->base ? a->base->segment_count : 0;
	size_t count = before + e->segment_add_count;
	struct kv_version *v = a->v;

	if (!count)
		return e->segment_seal_count ? KV_E_bad_record : 0;
	v->segments = calloc(count, sizeof(*v->segments));
	if (!v->segments)
		return -ENOMEM;
	for (size_t i = 0; i < before; i++) {
		v->segments[i] = a->base->segments[i];
		segment_ref(v->segments[i].segment);
	}
	v->segment_count = before;
	for (size_t i = 0; i < e->segment_add_count; i++) {
		kv_fileno number = e->segment_adds[i].number;
		struct kv_segment *s = segment_new(number, a->sink);

		if (!s)
			return -ENOMEM;
		v->segments[v->segment_count++] =
			(struct kv_version_segment){ .segment = s, .number = number };
	}
	if (e->segment_add_count)
		qsort(v->segments, count, sizeof(*v->segments), cmp_segments);
	for (size_t i = 0; i < count; i++)
		if (v->segments[i].number <= (i ? v->segments[i - 1].number : 0))
			return KV_E_bad_record;
	for (size_t i = 0; i < e->segment_seal_count; i++) {
		struct kv_version_segment *s = kv_version_segment(v, e->segment_seals[i].number);

		if (!s || s->sealed)
			return KV_E_bad_record;
		s->sealed = true;
		s->bytes = e->segment_seals[i].bytes;
	}
	return 0;
}

/* Comes after the tables, when it is known what they refer to. */
static int delete_segments(struct apply *a)
{
	struct kv_version *v = a->v;
	size_t kept = 0;

	for (size_t i = 0; i < a->edit->segment_delete_count; i++) {
		kv_fileno number = a->edit->segment_deletes[i].number;
		struct kv_version_segment *s = kv_version_segment(v, number);

		if (!a->base || !kv_version_segment(a->base, number) || !s || !s->segment ||
		    s->table_count)
			return KV_E_bad_record;
		segment_unref(s->segment);
		s->segment = NULL;
	}
	for (size_t i = 0; i < v->segment_count; i++)
		if (v->segments[i].segment)
			v->segments[kept++] = v->segments[i];
	v->segment_count = kept;
	return 0;
}

static int count_refs(struct kv_version *v, const struct kv_sst_meta *m)
{
	for (size_t i = 0; i < m->ref_count; i++) {
		struct kv_version_segment *s = kv_version_segment(v, m->refs[i].segment_no);

		if (!s || __builtin_add_overflow(s->referenced_bytes, m->refs[i].bytes,
						 &s->referenced_bytes))
			return KV_E_bad_record;
		s->table_count++;
	}
	return 0;
}

static void uncount_refs(struct kv_version *v, const struct kv_sst_meta *m)
{
	for (size_t i = 0; i < m->ref_count; i++) {
		struct kv_version_segment *s = kv_version_segment(v, m->refs[i].segment_no);

		KV_ASSERT(s && s->table_count && s->referenced_bytes >= m->refs[i].bytes);
		s->referenced_bytes -= m->refs[i].bytes;
		s->table_count--;
	}
}

/* Adds a table behind those that the level has; takes over the reference on success. */
static int level_append(struct kv_level *l, struct kv_table *t)
{
	if (__builtin_add_overflow(l->bytes, t->meta.file_bytes, &l->bytes))
		return KV_E_bad_record;
	l->tables[l->count++] = t;
	return 0;
}

/* Takes over a table of the base, unless the edit deletes it. A move is a deletion and an addition. */
static int keep_table(struct apply *a, int level, struct kv_table *t)
{
	struct change *gone = find_change(a->deletes, a->edit->delete_count, t->meta.number);
	struct change *added = find_change(a->adds, a->edit->add_count, t->meta.number);

	if (!gone) {
		if (added)
			return KV_E_bad_record;
		KV_TRY(level_append(&a->v->levels[level], t));
		table_ref(t);
		return 0;
	}
	if (gone->item->level != level)
		return KV_E_bad_record;
	gone->met = true;
	uncount_refs(a->v, &t->meta);
	if (added)
		added->table = table_ref(t);
	return 0;
}

static int keep_tables(struct apply *a)
{
	size_t room[KV_LEVELS] = { 0 };

	for (size_t i = 0; i < a->edit->add_count; i++)
		room[a->edit->adds[i].level]++;
	for (int l = 0; l < KV_LEVELS; l++) {
		size_t before = a->base ? a->base->levels[l].count : 0;

		if (!before && !room[l])
			continue;
		a->v->levels[l].tables = calloc(before + room[l], sizeof(struct kv_table *));
		if (!a->v->levels[l].tables)
			return -ENOMEM;
		for (size_t i = 0; i < before; i++)
			KV_TRY(keep_table(a, l, a->base->levels[l].tables[i]));
	}
	for (size_t i = 0; i < a->edit->delete_count; i++)
		if (!a->deletes[i].met)
			return KV_E_bad_record;
	return 0;
}

static bool is_same_table(const struct kv_sst_meta *a, const struct kv_sst_meta *b)
{
	return a->file_bytes == b->file_bytes && a->seqno_max == b->seqno_max &&
	       a->ref_count == b->ref_count &&
	       kv_slice_eq(kv_buf_slice(&a->smallest), kv_buf_slice(&b->smallest)) &&
	       kv_slice_eq(kv_buf_slice(&a->largest), kv_buf_slice(&b->largest));
}

static int cmp_added(const void *a, const void *b)
{
	const struct change *x = a, *y = b;

	if (x->item->level != y->item->level)
		return x->item->level < y->item->level ? -1 : 1;
	return cmp_tables(x->item->level, x->table, y->table);
}

/* Merges n added tables, in order, into a level that is in order. */
static int merge_added(struct kv_level *l, int level, struct change *added, size_t n)
{
	size_t kept = l->count;

	for (size_t i = 0; i < n; i++) {
		KV_TRY(level_append(l, added[i].table));
		added[i].table = NULL;
	}
	/* Each added one, from the first on, moves to its place among all before it. */
	for (size_t i = kept; i < l->count; i++) {
		struct kv_table *t = l->tables[i];
		size_t low = 0, high = i;

		while (low < high) {
			size_t mid = low + (high - low) / 2;

			if (cmp_tables(level, l->tables[mid], t) <= 0)
				low = mid + 1;
			else
				high = mid;
		}
		memmove(&l->tables[low + 1], &l->tables[low], (i - low) * sizeof(t));
		l->tables[low] = t;
	}
	return level_is_valid(level, l) ? 0 : KV_E_bad_record;
}

static int add_tables(struct apply *a)
{
	size_t count = a->edit->add_count, n;

	for (size_t i = 0; i < count; i++) {
		struct change *c = &a->adds[i];

		if (!meta_is_valid(&c->item->meta))
			return KV_E_bad_record;
		if (!c->table)
			KV_TRY(table_new(&c->item->meta, a->sink, &c->table));
		else if (!is_same_table(&c->table->meta, &c->item->meta))
			return KV_E_bad_record;
		KV_TRY(count_refs(a->v, &c->table->meta));
	}
	if (count)
		qsort(a->adds, count, sizeof(*a->adds), cmp_added);
	for (size_t i = 0; i < count; i += n) {
		int level = a->adds[i].item->level;

		for (n = 1; i + n < count && a->adds[i + n].item->level == level;)
			n++;
		KV_TRY(merge_added(&a->v->levels[level], level, &a->adds[i], n));
	}
	return 0;
}

static bool version_is_empty(const struct kv_version *v)
{
	for (int l = 0; l < KV_LEVELS; l++)
		if (v->levels[l].count)
			return false;
	return !v->segment_count && !v->snapshots;
}

int kv_version_apply(const struct kv_version *base, const struct kv_edit *edit,
		     const struct kv_obsolete_sink *sink, struct kv_version **out)
{
	KV_AUTO(apply_done) struct apply a = { .base = base, .edit = edit, .sink = sink };

	/* The whole state can follow on nothing only. */
	if (edit->is_snapshot && base && !version_is_empty(base))
		return KV_E_bad_record;
	a.v = version_new();
	if (!a.v)
		return -ENOMEM;
	KV_TRY(sort_changes(edit->adds, edit->add_count, &a.adds));
	KV_TRY(sort_changes(edit->deletes, edit->delete_count, &a.deletes));
	KV_TRY(add_segments(&a));
	KV_TRY(keep_tables(&a));
	KV_TRY(add_tables(&a));
	KV_TRY(delete_segments(&a));
	KV_TRY(kv_snapset_apply(base ? base->snapshots : NULL, edit, &a.v->snapshots));
	*out = a.v;
	a.v = NULL;
	return 0;
}

static bool edit_adds_table(const struct kv_edit *e, kv_fileno number)
{
	for (size_t i = 0; i < e->add_count; i++)
		if (e->adds[i].meta.number == number)
			return true;
	return false;
}

void kv_version_retire(const struct kv_version *before, const struct kv_edit *edit)
{
	for (size_t i = 0; i < edit->delete_count; i++) {
		const struct kv_level *l = &before->levels[edit->deletes[i].level];
		kv_fileno number = edit->deletes[i].meta.number;

		/* One that is moved to another level lives on. */
		if (edit_adds_table(edit, number))
			continue;
		for (size_t n = 0; n < l->count; n++)
			if (l->tables[n]->meta.number == number)
				atomic_store_explicit(&l->tables[n]->obsolete, true,
						      memory_order_relaxed);
	}
	for (size_t i = 0; i < edit->segment_delete_count; i++) {
		struct kv_version_segment *s =
			kv_version_segment(before, edit->segment_deletes[i].number);

		if (s)
			atomic_store_explicit(&s->segment->obsolete, true, memory_order_relaxed);
	}
}

int kv_version_to_edit(const struct kv_version *v, struct kv_edit *out)
{
	out->is_snapshot = true;
	for (size_t i = 0; i < v->segment_count; i++) {
		const struct kv_version_segment *s = &v->segments[i];

		KV_TRY(kv_edit_add_segment(out, s->number));
		if (s->sealed)
			KV_TRY(kv_edit_seal_segment(out, s->number, s->bytes));
	}
	for (int l = 0; l < KV_LEVELS; l++)
		for (size_t i = 0; i < v->levels[l].count; i++)
			KV_TRY(kv_edit_add_table(out, l, &v->levels[l].tables[i]->meta));
	return kv_snapset_to_edit(v->snapshots, out);
}

/* --- reading -------------------------------------------------------------------------- */

/* Tombstones of several tables, and the references that keep their bytes. */
struct gathered {
	struct kv_rangedel *at;
	size_t count, count_max;
	struct kv_rangedels **refs;
	size_t ref_count;
};

static void gathered_done(struct gathered *g)
{
	for (size_t i = 0; i < g->ref_count; i++)
		kv_rangedels_unref(g->refs[i]);
	free(g->refs);
	free(g->at);
}

/* refs has room for one more. */
static int gather(struct gathered *g, struct kv_rangedels *r)
{
	size_t max = KV_MAX(2 * g->count_max, g->count + r->count);
	struct kv_rangedel *at;

	g->refs[g->ref_count++] = kv_rangedels_ref(r);
	if (g->count + r->count > g->count_max) {
		at = realloc(g->at, max * sizeof(*at));
		if (!at)
			return -ENOMEM;
		g->at = at;
		g->count_max = max;
	}
	KV_ASSERT(g->at);	/* there are no rangedels without any */
	memcpy(g->at + g->count, r->at, r->count * sizeof(*r->at));
	g->count += r->count;
	return 0;
}

static int gather_table(struct gathered *g, struct kv_filecache *fc, const struct kv_table *t)
{
	struct kv_filecache_entry *pin;
	struct kv_rangedels *r;
	struct kv_sst *sst;
	int err = 0;

	if (!t->meta.range_deletes)
		return 0;
	KV_TRY(kv_filecache_table(fc, t->meta.number, t->meta.file_bytes, &pin, &sst));
	r = kv_sst_rangedels(sst);
	if (r)
		err = gather(g, r);
	kv_filecache_unpin(fc, pin);
	return err;
}

static int combine_rangedels(const struct kv_level *l, struct kv_filecache *fc,
			     struct kv_rangedels **out)
{
	KV_AUTO(gathered_done) struct gathered g = { 0 };

	if (!l->count)
		return 0;
	g.refs = calloc(l->count, sizeof(struct kv_rangedels *));
	if (!g.refs)
		return -ENOMEM;
	for (size_t i = 0; i < l->count; i++)
		KV_TRY(gather_table(&g, fc, l->tables[i]));
	return g.count ? kv_rangedels_new(g.at, g.count, out) : 0;
}

int kv_version_level_rangedels(struct kv_version *v, int level, struct kv_filecache *fc,
			       struct kv_rangedels **out)
{
	int err = 0;

	KV_ASSERT(level > 0 && level < KV_LEVELS);
	/* Held over reading the tables: who comes meanwhile would read the same ones. */
	kv_mutex_lock(&v->level_rangedels_mu);
	if (!v->level_rangedels_made[level])
		err = combine_rangedels(&v->levels[level], fc, &v->level_rangedels[level]);
	if (!err) {
		v->level_rangedels_made[level] = true;
		*out = v->level_rangedels[level];
	}
	kv_mutex_unlock(&v->level_rangedels_mu);
	return err;
}

static int table_get(const struct kv_table *t, struct kv_filecache *fc, struct kv_slice user_key,
		     kv_seqno snapshot, struct kv_found *out, kv_seqno *out_covered,
		     struct kv_sst_pin *out_pin)
{
	struct kv_filecache_entry *pin;
	struct kv_sst *sst;
	int err;

	KV_TRY(kv_filecache_table(fc, t->meta.number, t->meta.file_bytes, &pin, &sst));
	err = kv_sst_get(sst, user_key, snapshot, out, out_covered, out_pin);
	kv_filecache_unpin(fc, pin);
	return err;
}

int kv_version_get_since(const struct kv_version *v, struct kv_filecache *fc,
			 struct kv_slice user_key, kv_seqno since, kv_seqno snapshot,
			 struct kv_found *out, kv_seqno *out_covered, struct kv_sst_pin *out_pin)
{
	/* On level 0 any table may hold the key, and newer ones come first; deeper, one a level. */
	for (int l = 0; l < KV_LEVELS; l++) {
		const struct kv_level *level = &v->levels[l];
		size_t i = l ? kv_level_find(level, user_key) : 0;
		size_t end = l ? KV_MIN(i + 1, level->count) : level->count;

		for (; i < end; i++) {
			const struct kv_table *t = level->tables[i];

			if (t->meta.seqno_max <= since || !begins_by(t, user_key) ||
			    ends_before(t, user_key))
				continue;
			out->found = false;
			KV_TRY(table_get(t, fc, user_key, snapshot, out, out_covered, out_pin));
			/* Everything further on is older than the entry, or the tombstone. */
			if (out->found || *out_covered)
				return 0;
		}
	}
	out->found = false;
	return 0;
}

int kv_version_get(const struct kv_version *v, struct kv_filecache *fc, struct kv_slice user_key,
		   kv_seqno snapshot, struct kv_found *out, kv_seqno *out_covered,
		   struct kv_sst_pin *out_pin)
{
	return kv_version_get_since(v, fc, user_key, 0, snapshot, out, out_covered, out_pin);
}
