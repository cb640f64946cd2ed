/*
 * What can be read of journals: all chunks that are whole, in order, whatever is lost between
 * them. Only where nothing was ever promised they end as in an opening (recover.c): at the first
 * thing that isn't there, since what lies behind may have arrived by chance.
 */
#include "kv/repair_impl.h"

#include <inttypes.h>

#include "kv/batch.h"
#include "kv/journal.h"
#include "kv/recover.h"

struct one {
	kv_fileno number;
	uint64_t promised, begin_end;	/* of the largest promise; 0: no beginning was read */
	kv_seqno seqno;			/* the last that it shows to have been given */
};

struct replay {
	struct kv_repair *r;
	struct kv_edit *edit;
	struct one *journals;		/* ascending */
	size_t count, at;
	uint64_t end;			/* of the last good chunk of this one */
	bool stopped;
	bool damaged;			/* this one */
};

/* --- a look at all ------------------------------------------------------------------------ */

static int look(void *arg, const struct kv_chunk *c)
{
	struct one *j = arg;

	if (c->seqno > KV_SEQNO_MAX || c->count > KV_SEQNO_MAX - c->seqno || c->promised > c->offset)
		return 0;
	j->promised = KV_MAX(j->promised, c->promised);
	if (c->type == KV_CHUNK_BEGIN)
		j->begin_end = c->end;
	/* A chunk of operations has the number of its first one; others that of the last before. */
	j->seqno = KV_MAX(j->seqno, c->type == KV_CHUNK_BATCHES && c->count ? c->seqno + c->count - 1 :
									       c->seqno);
	return 0;
}

static int look_at_all(struct replay *p, kv_fileno min)
{
	struct kv_repair *r = p->r;

	p->journals = calloc(r->found_count + 1, sizeof(*p->journals));
	if (!p->journals)
		return -ENOMEM;
	for (size_t i = 0; i < r->found_count; i++) {
		const struct kv_repair_file *f = &r->found[i];
		struct one *j = &p->journals[p->count];

		if (f->kind != KV_FILE_JOURNAL || f->number < min || f->foreign)
			continue;
		j->number = f->number;
		p->count++;
		KV_TRY(kv_repair_chunks(r, KV_FILE_JOURNAL, f->number, look, j));
	}
	return 0;
}

/* Does journal i, or a later one, say that something of it is durable? That covers all before it. */
static bool is_promised_behind(const struct replay *p, size_t i)
{
	for (; i < p->count; i++)
		if (p->journals[i].begin_end &&
		    p->journals[i].promised >= p->journals[i].begin_end)
			return true;
	return false;
}

/* Was everything up to the offset of the present journal promised? */
static bool is_promised(const struct replay *p, uint64_t offset)
{
	return p->journals[p->at].promised >= offset || is_promised_behind(p, p->at + 1);
}

/* --- replaying ---------------------------------------------------------------------------- */

/* Is the value there? A pointer into a segment that is gone is kept, and reading it tells. */
static int value_is_there(struct replay *p, struct kv_slice pointer, bool *out)
{
	struct kv_db *db = p->r->db;
	struct kv_filecache_entry *pin;
	struct kv_env_file *file;
	struct kv_vptr v;
	int err;

	*out = false;
	if (kv_vptr_decode(pointer, &v))
		return 0;
	err = kv_filecache_segment(db->files, v.segment_no, &pin, &file);
	if (!err) {
		err = kv_vlog_check(&db->store, file, &v);
		kv_filecache_unpin(db->files, pin);
	}
	*out = !err;
	return kv_repair_is_damage(err) ? 0 : err;
}

static int values_are_there(struct replay *p, const struct kv_chunk *c, bool *out)
{
	struct kv_slice left = c->payload;
	struct kv_op op;

	*out = true;
	while (*out && kv_op_take(&left, &op))
		if (op.kind == KV_KIND_PUT_PTR)
			KV_TRY(value_is_there(p, op.value, out));
	return 0;
}

static int flush_if_full(struct replay *p)
{
	struct kv_db *db = p->r->db;
	struct kv_memtable *next;
	int err;

	if (kv_memtable_bytes(db->mem) < db->options.memtable_bytes)
		return 0;
	next = kv_memtable_new_charged(kv_memtable_journal_no(db->mem), db->cache);
	if (!next)
		return -ENOMEM;
	err = kv_replay_flush(db, p->edit);
	kv_memtable_unref(err ? next : db->mem);
	if (!err)
		db->mem = next;
	return err;
}

static bool is_good(const struct kv_chunk *c)
{
	struct kv_slice left = c->payload;
	struct kv_vptr v;
	struct kv_op op;
	uint32_t n = 0;

	for (; kv_op_take(&left, &op); n++)
		if (op.kind == KV_KIND_PUT_PTR && kv_vptr_decode(op.value, &v))
			return false;
	return !left.bytes && n == c->count && c->seqno && c->seqno <= KV_SEQNO_MAX &&
	       c->count <= KV_SEQNO_MAX - c->seqno;
}

static int insert(struct replay *p, const struct kv_chunk *c)
{
	struct kv_db *db = p->r->db;
	struct kv_slice left = c->payload;
	kv_seqno seqno = c->seqno;
	struct kv_op op;

	if (seqno > db->seqno_last + 1) {
		p->r->report->operations_lost += seqno - db->seqno_last - 1;
		kv_repair_lost(p->r, "%s: %" PRIu64 " operations before byte %" PRIu64 " are lost",
			       kv_filename(KV_FILE_JOURNAL, p->journals[p->at].number).s,
			       seqno - db->seqno_last - 1, c->offset);
	}
	for (; kv_op_take(&left, &op); seqno++) {
		if (seqno <= p->r->flushed || seqno <= db->seqno_last)
			continue;
		p->r->report->operations_recovered++;
		if (!p->r->dry)
			KV_TRY(kv_memtable_add(db->mem, seqno, op.kind, op.key, op.value));
	}
	db->seqno_last = KV_MAX(db->seqno_last, seqno - 1);
	return p->r->dry ? 0 : flush_if_full(p);
}

/* Something is missing, or makes no sense, from p->end to the offset. */
static void meet_gap(struct replay *p, uint64_t offset)
{
	if (!is_promised(p, p->end + 1)) {
		p->stopped = true;
		return;
	}
	p->damaged = true;
	kv_repair_lost(p->r, "%s: damaged from byte %" PRIu64 " to %" PRIu64,
		       kv_filename(KV_FILE_JOURNAL, p->journals[p->at].number).s, p->end, offset);
}

static int replay_chunk(void *arg, const struct kv_chunk *c)
{
	struct replay *p = arg;
	bool there = true;
	int err = 0;

	if (p->stopped)
		return 0;
	if (c->offset != p->end)
		meet_gap(p, c->offset);
	p->end = c->end;
	if (p->stopped || c->type != KV_CHUNK_BATCHES)
		return 0;
	if (!is_good(c)) {
		p->damaged = true;
		kv_repair_lost(p->r, "%s: what it holds at byte %" PRIu64 " makes no sense",
			       kv_filename(KV_FILE_JOURNAL, p->journals[p->at].number).s, c->offset);
		return 0;
	}
	if (!is_promised(p, c->end)) {
		p->r->quiet = true;
		err = values_are_there(p, c, &there);
		p->r->quiet = false;
		KV_TRY(err);
	}
	p->stopped = !there;
	return there ? insert(p, c) : 0;
}

static int replay_all(struct replay *p)
{
	for (; p->at < p->count && !p->stopped; p->at++) {
		const struct one *j = &p->journals[p->at];
		struct kv_repair_file *f = kv_repair_find(p->r, KV_FILE_JOURNAL, j->number);

		p->end = sizeof(struct kv_file_header);
		p->damaged = f->bad_header && f->bytes > p->end && j->begin_end;
		KV_TRY(kv_repair_chunks(p->r, KV_FILE_JOURNAL, j->number, replay_chunk, p));
		/* Its end may be gone, too. */
		if (!p->stopped && j->promised > p->end)
			meet_gap(p, j->promised);
		p->r->report->journals_damaged += p->damaged;
		f->lost |= p->damaged;
	}
	return 0;
}

int kv_repair_journals(struct kv_repair *r, kv_fileno min, struct kv_edit *edit)
{
	struct replay p = { .r = r, .edit = edit };
	int err;

	r->db->mem = kv_memtable_new_charged(min, r->db->cache);
	if (!r->db->mem)
		return -ENOMEM;
	err = look_at_all(&p, min);
	/* A whole manifest needs the one that it names. */
	if (!err && !r->report->rebuilt && (!p.count || p.journals[0].number != min)) {
		r->report->journals_damaged++;
		kv_repair_lost(r, "%s: is missing, with what was written last",
			       kv_filename(KV_FILE_JOURNAL, min).s);
	}
	if (!err)
		err = replay_all(&p);
	free(p.journals);
	return err;
}

int kv_repair_journals_reach(struct kv_repair *r, kv_seqno *out)
{
	struct replay p = { .r = r };
	int err = look_at_all(&p, 0);

	*out = 0;
	for (size_t i = 0; i < p.count; i++)
		*out = KV_MAX(*out, p.journals[i].seqno);
	free(p.journals);
	return err;
}
