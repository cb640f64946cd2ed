/*
 * Which manifest holds; and when it is damaged, what can still be read of it.
 *
 * Every edit that can be read tells a fact: a table that was added counts, unless it was deleted later; one that
 * was deleted does not. What lies in an edit that is lost is not known, and only that.
 */
#include <inttypes.h>

#include "kv/repair_impl.h"

/* --- the one that holds ------------------------------------------------------------------- */

static int load(struct kv_repair *r, kv_fileno number, struct kv_version **out_version,
		struct kv_manifest_state *out_state)
{
	int err;

	*out_version = NULL;
	err = kv_manifest_load(&r->db->store, number, NULL, out_version, out_state);
	return kv_repair_is_damage(err) ? 0 : err;
}

/* Numbers of files only go up: so of two that are whole, that is newer which knows the higher ones. */
static bool is_newer(const struct kv_manifest_state *a, const struct kv_manifest_state *b)
{
	return a->next_fileno > b->next_fileno;
}

/*
 * Without a root. A manifest that follows another comes with the number of a file, its own, that the other
 * doesn't know. If it does, the other went on, and the manifest was given up; it is the smaller number that holds.
 * When the last one is damaged, an older one must not be taken for the present state.
 */
static int choose(struct kv_repair *r, struct kv_version **out_version,
		  struct kv_manifest_state *out_state)
{
	struct kv_manifest_state state;
	struct kv_version *v;
	bool last_is_whole = false;

	*out_version = NULL;
	for (size_t i = 0; i < r->found_count; i++) {
		const struct kv_repair_file *f = &r->found[i];

		if (f->kind != KV_FILE_MANIFEST || f->foreign)
			continue;
		r->quiet = true;
		v = NULL;
		if (!f->bad_header)
			KV_TRY(load(r, f->number, &v, &state));
		r->quiet = false;
		last_is_whole = v;
		if (v && *out_version && !is_newer(&state, out_state)) {
			kv_version_unref(v);
		} else if (v) {
			kv_version_unref(*out_version);
			*out_version = v;
			*out_state = state;
			r->manifest_no = f->number;
		}
	}
	if (!last_is_whole) {
		kv_version_unref(*out_version);
		*out_version = NULL;
		r->manifest_no = 0;
	}
	return 0;
}

int kv_repair_manifest(struct kv_repair *r, struct kv_version **out_version,
		       struct kv_manifest_state *out_state)
{
	const struct kv_repair_file *f;

	if (!r->root_is_good)
		return choose(r, out_version, out_state);
	*out_version = NULL;
	f = kv_repair_find(r, KV_FILE_MANIFEST, r->manifest_no);
	if (!f) {
		kv_repair_lost(r, "%s: is missing, though " KV_NAME_ROOT " names it",
			       kv_filename(KV_FILE_MANIFEST, r->manifest_no).s);
		return 0;
	}
	if (f->foreign || f->bad_header) {
		kv_repair_lost(r, "%s: cannot be used",
			       kv_filename(KV_FILE_MANIFEST, r->manifest_no).s);
		return 0;
	}
	KV_TRY(load(r, r->manifest_no, out_version, out_state));
	if (!*out_version)
		kv_repair_lost(r, "%s: cannot be read to its end, so what the store consists of is "
			       "found out from its files",
			       kv_filename(KV_FILE_MANIFEST, r->manifest_no).s);
	return 0;
}

/* --- facts -------------------------------------------------------------------------------- */

void kv_repair_facts_done(struct kv_repair_facts *f)
{
	free(f->at);
	free(f->snapshots);
	*f = (struct kv_repair_facts){ 0 };
}

static size_t lower(const struct kv_repair_facts *f, enum kv_file_kind kind, kv_fileno number)
{
	size_t low = 0, high = f->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct kv_repair_fact *at = &f->at[mid];

		if (at->kind < kind || (at->kind == kind && at->number < number))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct kv_repair_fact *kv_repair_fact(const struct kv_repair_facts *f,
					    enum kv_file_kind kind, kv_fileno number)
{
	size_t i = lower(f, kind, number);

	return i < f->count && f->at[i].kind == kind && f->at[i].number == number ? &f->at[i] :
										      NULL;
}

static int note(struct kv_repair_facts *f, enum kv_file_kind kind, kv_fileno number, bool alive,
		struct kv_repair_fact **out)
{
	size_t i = lower(f, kind, number);

	if (i == f->count || f->at[i].kind != kind || f->at[i].number != number) {
		if (f->count == f->count_max) {
			size_t n = f->count_max ? 2 * f->count_max : 64;
			struct kv_repair_fact *grown = realloc(f->at, n * sizeof(*grown));

			if (!grown)
				return -ENOMEM;
			f->at = grown;
			f->count_max = n;
		}
		memmove(f->at + i + 1, f->at + i, (f->count - i) * sizeof(*f->at));
		f->at[i] = (struct kv_repair_fact){ .kind = kind, .number = number };
		f->count++;
	}
	f->at[i].alive = alive;
	*out = &f->at[i];
	return 0;
}

static int note_tables(struct kv_repair_facts *f, const struct kv_edit *e)
{
	struct kv_repair_fact *fact;

	for (size_t i = 0; i < e->delete_count; i++)
		KV_TRY(note(f, KV_FILE_TABLE, e->deletes[i].meta.number, false, &fact));
	/* A move is a deletion and an addition. */
	for (size_t i = 0; i < e->add_count; i++) {
		KV_TRY(note(f, KV_FILE_TABLE, e->adds[i].meta.number, true, &fact));
		f->seqno = KV_MAX(f->seqno, KV_MIN(e->adds[i].meta.seqno_max, KV_SEQNO_MAX));
	}
	return 0;
}

static int note_segments(struct kv_repair_facts *f, const struct kv_edit *e)
{
	struct kv_repair_fact *fact;

	for (size_t i = 0; i < e->segment_add_count; i++)
		KV_TRY(note(f, KV_FILE_SEGMENT, e->segment_adds[i].number, true, &fact));
	for (size_t i = 0; i < e->segment_seal_count; i++) {
		KV_TRY(note(f, KV_FILE_SEGMENT, e->segment_seals[i].number, true, &fact));
		fact->sealed = true;
		fact->bytes = e->segment_seals[i].bytes;
	}
	for (size_t i = 0; i < e->segment_delete_count; i++)
		KV_TRY(note(f, KV_FILE_SEGMENT, e->segment_deletes[i].number, false, &fact));
	return 0;
}

static void drop_snapshot(struct kv_repair_facts *f, const char *name)
{
	for (size_t i = 0; i < f->snapshot_count; i++)
		if (!strcmp(f->snapshots[i].name, name)) {
			f->snapshot_count--;
			memmove(&f->snapshots[i], &f->snapshots[i + 1],
				(f->snapshot_count - i) * sizeof(*f->snapshots));
			return;
		}
}

static int note_snapshots(struct kv_repair_facts *f, const struct kv_edit *e)
{
	for (size_t i = 0; i < e->snapshot_delete_count; i++)
		drop_snapshot(f, e->snapshot_deletes[i].name);
	for (size_t i = 0; i < e->snapshot_add_count; i++) {
		drop_snapshot(f, e->snapshot_adds[i].name);
		if (f->snapshot_count == KV_SNAPSHOTS_MAX || e->snapshot_adds[i].seqno > KV_SEQNO_MAX)
			continue;
		if (!f->snapshots)
			f->snapshots = calloc(KV_SNAPSHOTS_MAX, sizeof(*f->snapshots));
		if (!f->snapshots)
			return -ENOMEM;
		f->snapshots[f->snapshot_count++] = e->snapshot_adds[i];
	}
	return 0;
}

static int note_edit(struct kv_repair_facts *f, const struct kv_edit *e)
{
	if (e->is_snapshot) {
		/* What it doesn't name was dead by then. */
		for (size_t i = 0; i < f->count; i++)
			f->at[i].alive = false;
		f->snapshot_count = 0;
		f->whole_once = true;
	}
	if (e->has_next_fileno && e->next_fileno < UINT64_MAX - KV_GIB)
		f->next_fileno = KV_MAX(f->next_fileno, e->next_fileno);
	if (e->has_journal_min)
		f->journal_min = KV_MAX(f->journal_min, e->journal_min);
	if (e->has_seqno && e->seqno <= KV_SEQNO_MAX)
		f->seqno = KV_MAX(f->seqno, e->seqno);
	KV_TRY(note_tables(f, e));
	KV_TRY(note_segments(f, e));
	return note_snapshots(f, e);
}

static int note_chunk(void *arg, const struct kv_chunk *c)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	int err;

	if (c->type != KV_CHUNK_EDIT)
		return 0;
	err = kv_edit_decode(c->payload, &e);
	if (err == KV_E_bad_record)
		return 0;
	return err ? err : note_edit(arg, &e);
}

static int read_facts(struct kv_repair *r, const struct kv_repair_file *f,
		      struct kv_repair_facts *out)
{
	int err = kv_repair_chunks(r, KV_FILE_MANIFEST, f->number, note_chunk, out);

	if (err == KV_E_newer_format)
		return kv_fail(&r->db->store.msg, err, "%s/%s: written by a newer version of kvfs",
			       r->db->store.path, kv_filename(KV_FILE_MANIFEST, f->number).s);
	return err;
}

/* In the order in which they held; the one that the root names is the last. */
int kv_repair_facts(struct kv_repair *r, struct kv_repair_facts *out)
{
	const struct kv_repair_file *last = kv_repair_find(r, KV_FILE_MANIFEST, r->manifest_no);

	for (size_t i = 0; i < r->found_count; i++) {
		const struct kv_repair_file *f = &r->found[i];

		if (f->kind == KV_FILE_MANIFEST && !f->foreign && f != last)
			KV_TRY(read_facts(r, f, out));
	}
	return last && !last->foreign ? read_facts(r, last, out) : 0;
}
