/*
 * Repair: what the new state of a damaged store is, and how it comes to count.
 *
 * CRASH: new tables and a new journal are durable, and all that is lost has its second name,
 * before the root points to a manifest with the new state (K6). Stop before: the store is as it was, beside
 * files that nothing names, and headers and stand-ins that say no more than the files they replace.
 * Stop behind: files that are lost may still have their first name, by which the next
 * opening deletes them, and the second one.
 */
#include "kv/repair_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "kv/compact_impl.h"
#include "kv/recover.h"

/* A run that is being ingested has numbers so far beyond the present (ingest.c). */
#define RUN_GAP ((kv_seqno)1 << 29)

/* --- telling ------------------------------------------------------------------------------ */

static void tell(struct kv_repair *r, enum kv_msg_level level, const char *fmt, va_list args)
{
	KV_AUTO(kv_buf_done) struct kv_buf text = KV_BUF_INIT;
	char *at;

	if (!r->msg.fn || level > r->msg.level_max)
		return;
	at = kv_buf_grow(&text, 512);
	if (!at)
		return;
	vsnprintf(at, 512, fmt, args);
	kv_msg(&r->msg, level, "%s: %s", r->db->store.path, at);
}

void kv_repair_lost(struct kv_repair *r, const char *fmt, ...)
{
	va_list args;

	r->report->damaged = true;
	r->report->losses++;
	va_start(args, fmt);
	tell(r, KV_MSG_WARN, fmt, args);
	va_end(args);
}

void kv_repair_note(struct kv_repair *r, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	tell(r, KV_MSG_INFO, fmt, args);
	va_end(args);
}

/* What the layers below say, unless it is about damage that is being looked for. */
static void pass_on(void *arg, enum kv_msg_level level, const char *text)
{
	const struct kv_repair *r = arg;

	if (!r->quiet && r->msg.fn && level <= r->msg.level_max)
		r->msg.fn(r->msg.arg, level, text);
}

/* --- whose store it is -------------------------------------------------------------------- */

static int read_root(struct kv_repair *r)
{
	struct kv_root root;
	int err;

	r->quiet = true;
	err = kv_root_read(&r->db->store, &root);
	r->quiet = false;
	r->root_is_good = !err;
	if (!err) {
		r->manifest_no = kv_le64_get(root.manifest_no);
		if (kv_le64_get(root.features_write) & ~KV_FEATURES_WRITE_KNOWN)
			err = KV_E_newer_format;
	}
	if (err == KV_E_not_a_store || kv_repair_is_damage(err)) {
		KV_TRY(kv_repair_elect_id(r));
		r->report->damaged = true;
		kv_repair_note(r, KV_NAME_ROOT " is %s", err == KV_E_not_a_store ? "missing" : "damaged");
		return 0;
	}
	if (err)
		return kv_fail(&r->msg, err, "%s/" KV_NAME_ROOT ": %s", r->db->store.path,
			       kv_err_text(err));
	return 0;
}

static int find(struct kv_repair *r)
{
	struct kv_db *db = r->db;
	int err = db->store.env->ops->dir_open(db->store.env, db->store.path, false, &db->store.dir);

	if (err)
		return kv_fail(&r->msg, err, "%s: cannot be opened: %s", db->store.path,
			       kv_err_text(err));
	KV_TRY(kv_db_lock(db));
	KV_TRY(kv_repair_list(r));
	KV_TRY(read_root(r));
	return kv_repair_headers(r);
}

/* --- with a whole manifest ---------------------------------------------------------------- */

static int missing_table(struct kv_repair *r, const struct kv_sst_meta *m)
{
	r->report->tables_missing++;
	kv_repair_lost(r, "%s: is missing, with %" PRIu64 " entries",
		       kv_filename(KV_FILE_TABLE, m->number).s, m->entries);
	return 0;
}

static int named_tables(struct kv_repair *r, const struct kv_version *v)
{
	kv_seqno ignored;

	for (int level = 0; level < KV_LEVELS; level++)
		for (size_t i = 0; i < v->levels[level].count; i++) {
			const struct kv_sst_meta *m = &v->levels[level].tables[i]->meta;
			struct kv_repair_file *f = kv_repair_find(r, KV_FILE_TABLE, m->number);

			KV_TRY(f ? kv_repair_table(r, f, level, m, &ignored) : missing_table(r, m));
		}
	return 0;
}

static int named_segments(struct kv_repair *r, const struct kv_version *v)
{
	for (size_t i = 0; i < v->segment_count; i++) {
		const struct kv_version_segment *s = &v->segments[i];
		uint64_t bytes = s->sealed ? s->bytes : 0;

		if (!kv_repair_find(r, KV_FILE_SEGMENT, s->number) && !s->sealed)
			bytes = sizeof(struct kv_file_header) + s->referenced_bytes;
		KV_TRY(kv_repair_stand_in(r, kv_repair_find(r, KV_FILE_SEGMENT, s->number), s->number,
					  bytes));
		KV_TRY(kv_edit_add_segment(&r->state, s->number));
		if (s->sealed)
			KV_TRY(kv_edit_seal_segment(&r->state, s->number, s->bytes));
	}
	return kv_snapset_to_edit(v->snapshots, &r->state);
}

/* As an opening would replay them; what is in memory then goes to the edit. */
static int replay_as_usual(struct kv_repair *r, bool keep, struct kv_edit *edit)
{
	struct kv_dir_files files = { 0 };
	bool read_only = r->db->options.read_only;
	int err = kv_dir_files_read(&r->db->store, &files);

	r->db->options.read_only = read_only || !keep;
	r->quiet = true;
	if (!err)
		err = kv_replay(r->db, &files, edit);
	r->quiet = false;
	r->db->options.read_only = read_only;
	kv_dir_files_done(&files);
	if (err || !keep) {
		kv_memtable_unref(r->db->mem);
		r->db->mem = NULL;
	}
	return err;
}

static int with_manifest(struct kv_repair *r, struct kv_version *v,
			 const struct kv_manifest_state *state)
{
	kv_fileno next = r->db->state.next_fileno;

	r->db->version = v;
	r->db->state = *state;
	r->db->state.next_fileno = KV_MAX(state->next_fileno, next);
	r->db->seqno_last = r->flushed = state->seqno;
	KV_TRY(named_tables(r, v));
	return named_segments(r, v);
}

/* --- without ------------------------------------------------------------------------------ */

static bool is_dead(const struct kv_repair_facts *facts, const struct kv_repair_file *f)
{
	const struct kv_repair_fact *fact = kv_repair_fact(facts, f->kind, f->number);

	return fact && !fact->alive;
}

/*
 * Is the table part of a run of which nothing shows that it was committed? Its numbers lie beyond
 * all that were given. When there is no journal and no fact to tell, it counts.
 */
static bool is_of_a_run(const struct kv_repair_facts *facts, kv_fileno number, kv_seqno seqno_min,
			kv_seqno reach)
{
	return reach && seqno_min > reach && seqno_min - reach >= RUN_GAP &&
	       !kv_repair_fact(facts, KV_FILE_TABLE, number);
}

/* Takes the table that was added last away again, if it is of such a run. */
static void leave_out_run(struct kv_repair *r, const struct kv_repair_facts *facts,
			  struct kv_repair_file *f, kv_seqno reach, kv_seqno *seqno)
{
	struct kv_edit *e = &r->state;

	if (!*seqno || !e->add_count ||
	    !is_of_a_run(facts, f->number, e->adds[e->add_count - 1].meta.seqno_min, reach))
		return;
	kv_sst_meta_done(&e->adds[--e->add_count].meta);
	f->lost = true;
	*seqno = 0;
	r->report->tables_kept--;
	kv_repair_note(r, "%s: belongs to a run of which nothing shows that it was committed; left out",
		       kv_filename(f->kind, f->number).s);
}

static int all_tables(struct kv_repair *r, const struct kv_repair_facts *facts)
{
	kv_seqno reach, seqno;

	KV_TRY(kv_repair_journals_reach(r, &reach));
	reach = KV_MAX(reach, facts->seqno);
	r->flushed = facts->seqno;
	for (size_t i = 0; i < r->found_count; i++) {
		struct kv_repair_file *f = &r->found[i];

		if (f->kind != KV_FILE_TABLE || f->foreign)
			continue;
		if (is_dead(facts, f)) {
			r->report->tables_obsolete++;
			continue;
		}
		KV_TRY(kv_repair_table(r, f, 0, NULL, &seqno));
		leave_out_run(r, facts, f, reach, &seqno);
		r->flushed = KV_MAX(r->flushed, seqno);
	}
	for (size_t i = 0; i < facts->count; i++)
		if (facts->at[i].kind == KV_FILE_TABLE && facts->at[i].alive &&
		    !kv_repair_find(r, KV_FILE_TABLE, facts->at[i].number)) {
			r->report->tables_missing++;
			kv_repair_lost(r, "%s: is missing",
				       kv_filename(KV_FILE_TABLE, facts->at[i].number).s);
		}
	return 0;
}

static int all_segments(struct kv_repair *r, const struct kv_repair_facts *facts)
{
	for (size_t i = 0; i < r->found_count; i++) {
		struct kv_repair_file *f = &r->found[i];
		const struct kv_repair_fact *fact =
			kv_repair_fact(facts, KV_FILE_SEGMENT, f->number);

		if (f->kind != KV_FILE_SEGMENT || f->foreign || is_dead(facts, f))
			continue;
		KV_TRY(kv_repair_mend(r, f));
		if (f->bad_header)	/* if anything refers to it, something stands in for it */
			continue;
		KV_TRY(kv_edit_add_segment(&r->state, f->number));
		if (fact && fact->sealed)
			KV_TRY(kv_repair_stand_in(r, f, f->number, fact->bytes));
	}
	for (size_t i = 0; i < facts->snapshot_count; i++)
		KV_TRY(kv_edit_add_snapshot(&r->state, &facts->snapshots[i]));
	return 0;
}

static int without_manifest(struct kv_repair *r)
{
	struct kv_repair_facts facts = { 0 };
	int err = kv_repair_facts(r, &facts);

	r->report->damaged = r->report->rebuilt = true;
	r->report->may_resurrect = !facts.whole_once;
	r->db->state.next_fileno = KV_MAX(r->db->state.next_fileno, facts.next_fileno);
	r->db->state.journal_min = facts.journal_min;
	if (!err)
		err = all_tables(r, &facts);
	if (!err)
		err = all_segments(r, &facts);
	r->db->seqno_last = r->flushed;
	kv_repair_facts_done(&facts);
	return err;
}

/* --- segments that are referred to -------------------------------------------------------- */

static bool has_segment(const struct kv_edit *e, kv_fileno number)
{
	for (size_t i = 0; i < e->segment_add_count; i++)
		if (e->segment_adds[i].number == number)
			return true;
	return false;
}

static uint64_t referred_bytes(const struct kv_edit *e, kv_fileno number)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < e->add_count; i++)
		for (size_t k = 0; k < e->adds[i].meta.ref_count; k++)
			if (e->adds[i].meta.refs[k].segment_no == number)
				bytes += e->adds[i].meta.refs[k].bytes;
	return bytes;
}

/* Registers what the tables of `from` refer to, in `to`, with something that stands in for it. */
static int need_segments(struct kv_repair *r, const struct kv_edit *from, struct kv_edit *to)
{
	for (size_t i = 0; i < from->add_count; i++)
		for (size_t k = 0; k < from->adds[i].meta.ref_count; k++) {
			kv_fileno number = from->adds[i].meta.refs[k].segment_no;

			if (has_segment(&r->state, number) || has_segment(to, number))
				continue;
			KV_TRY(kv_repair_stand_in(r, kv_repair_find(r, KV_FILE_SEGMENT, number),
						  number, sizeof(struct kv_file_header) +
								  referred_bytes(from, number)));
			KV_TRY(kv_edit_add_segment(to, number));
		}
	return 0;
}

/* --- one level of all --------------------------------------------------------------------- */

static int level_for(const struct kv_db *db)
{
	uint64_t max = db->options.level_base_bytes;
	int level = 1;

	while (level < KV_LEVELS - 1 && db->version->levels[0].bytes > max) {
		max *= KV_LEVEL_FACTOR;
		level++;
	}
	return level;
}

static int merge(struct kv_repair *r, struct kv_job *j)
{
	const struct kv_level *all = &j->version->levels[0];

	j->pick.upper_count = all->count;
	j->pick.output_level = level_for(r->db);
	j->pick.tables = malloc(all->count * sizeof(struct kv_table *));
	if (!j->pick.tables)
		return -ENOMEM;
	memcpy(j->pick.tables, all->tables, all->count * sizeof(struct kv_table *));
	KV_TRY(kv_job_merge(j));
	for (size_t i = 0; i < r->state.add_count; i++)
		kv_sst_meta_done(&r->state.adds[i].meta);
	r->state.add_count = 0;
	for (size_t i = 0; i < j->part_count; i++)
		for (size_t k = 0; k < j->parts[i].outputs.add_count; k++)
			KV_TRY(kv_edit_add_table(&r->state, j->pick.output_level,
						 &j->parts[i].outputs.adds[k].meta));
	return 0;
}

/* r->state becomes the version of the db. */
static int make_version(struct kv_repair *r)
{
	struct kv_version *v;

	KV_TRY(kv_version_apply(NULL, &r->state, &r->db->obsolete_sink, &v));
	if (r->db->version)
		kv_version_unref(r->db->version);
	r->db->version = v;
	return 0;
}

/* All tables, that of the edit included, become tables of one level, which are r->state then. */
static int merge_all(struct kv_repair *r, struct kv_edit *edit)
{
	KV_AUTO(kv_job_done) struct kv_job j = { .db = r->db, .rebuilds = true };

	for (size_t i = 0; i < edit->add_count; i++)
		KV_TRY(kv_edit_add_table(&r->state, 0, &edit->adds[i].meta));
	for (size_t i = 0; i < edit->segment_add_count; i++)
		KV_TRY(kv_edit_add_segment(&r->state, edit->segment_adds[i].number));
	kv_edit_done(edit);
	*edit = (struct kv_edit){ 0 };
	KV_TRY(make_version(r));
	atomic_store(&r->db->seqno_published, r->db->seqno_last);
	if (r->db->version->levels[0].count > 1) {
		j.version = kv_version_ref(r->db->version);
		KV_TRY(merge(r, &j));
	}
	return make_version(r);
}

/* --- making it count ---------------------------------------------------------------------- */

/* An edit that the version doesn't know yet: tables from journals, and what they refer to. */
static int replay(struct kv_repair *r, bool journals_are_whole, struct kv_edit *edit)
{
	if (journals_are_whole)
		KV_TRY(replay_as_usual(r, true, edit));
	else
		KV_TRY(kv_repair_journals(r, r->db->state.journal_min, edit));
	if (!r->dry && kv_memtable_count(r->db->mem))
		KV_TRY(kv_replay_flush(r->db, edit));
	return need_segments(r, edit, edit);
}

/* A snapshot may have seen more than is left: what is written from now on is not for it. */
static void go_on_behind_snapshots(struct kv_repair *r)
{
	for (size_t i = 0; i < r->state.snapshot_add_count; i++)
		r->db->seqno_last = KV_MAX(r->db->seqno_last, r->state.snapshot_adds[i].seqno);
}

static int install(struct kv_repair *r, struct kv_edit *edit)
{
	KV_TRY(kv_db_seal_segments(r->db, edit));
	KV_TRY(kv_db_begin_journal(r->db));
	KV_TRY(kv_repair_keep_lost(r));
	KV_TRY(kv_db_switch_root(r->db, edit));
	return kv_repair_forget_lost(r);
}

static int rebuild(struct kv_repair *r, bool journals_are_whole, struct kv_edit *edit)
{
	KV_TRY(need_segments(r, &r->state, &r->state));
	if (r->dry)
		return journals_are_whole ? 0 : replay(r, false, edit);
	KV_TRY(make_version(r));
	KV_TRY(replay(r, journals_are_whole, edit));
	go_on_behind_snapshots(r);
	if (r->report->rebuilt)
		KV_TRY(merge_all(r, edit));
	return install(r, edit);
}

/* Also sees whether an opening could replay the journals; in *out_whole. */
static int examine(struct kv_repair *r, bool *out_whole)
{
	struct kv_edit edit = { 0 };
	struct kv_manifest_state state;
	struct kv_version *v;
	int err;

	*out_whole = false;
	KV_TRY(kv_repair_manifest(r, &v, &state));
	if (!v)
		return without_manifest(r);
	KV_TRY(with_manifest(r, v, &state));
	err = replay_as_usual(r, false, &edit);
	kv_edit_done(&edit);
	*out_whole = !err;
	if (kv_repair_is_damage(err)) {
		r->report->damaged = true;
		kv_repair_note(r, "its journals cannot be replayed as they are: %s", kv_err_text(err));
		err = 0;
	}
	r->db->seqno_last = state.seqno;
	return err;
}

static int repair(struct kv_repair *r)
{
	KV_AUTO(kv_edit_done) struct kv_edit edit = { 0 };
	bool journals_are_whole;

	KV_TRY(find(r));
	KV_TRY(examine(r, &journals_are_whole));
	if (!r->report->damaged)
		return 0;
	return rebuild(r, journals_are_whole, &edit);
}

int kv_repair(const char *dir, const struct kv_options *options, struct kv_repair_report *out_report)
{
	struct kv_options o = options ? *options : (struct kv_options){ 0 };
	struct kv_repair r = { .msg = o.msg, .report = out_report, .dry = o.read_only };
	int err;

	*out_report = (struct kv_repair_report){ 0 };
	o.create = o.error_if_exists = false;
	o.inline_work = true;
	o.msg = (struct kv_msg){ pass_on, &r, o.msg.level_max };
	KV_TRY(kv_db_new(dir, &o, &r.db));
	err = repair(&r);
	if (err == KV_E_poisoned)
		err = r.db->error;
	kv_edit_done(&r.state);
	kv_db_free(r.db);
	free(r.found);
	return kv_err_space(err);
}
