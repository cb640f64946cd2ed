/*
 * The offline check. It rests on the same functions that the engine reads with,
 * so it cannot call good what the engine would refuse; what these report comes
 * to the caller as the sentence of a problem.
 *
 * Nothing is kept of what was read but a few numbers for each file: memory
 * does not grow with the data.
 */
#include "kv/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kv/batch.h"
#include "kv/compress.h"
#include "kv/journal.h"
#include "kv/manifest.h"
#include "kv/pace.h"

#define CACHE_BYTES (4 * KV_MIB)
#define FILES_MAX 16
#define PROGRESS_BYTES (4 * KV_MIB)
#define PACE_BURST_BYTES (KV_MIB / 4)
#define SLEEP_NS_MAX ((uint64_t)100000000)	/* between two questions whether to go on */
#define TEXT_BYTES 512
/* So many of one kind are told one by one in each file, the rest is counted. */
#define SINGLE_MAX 8

/* A file that is in the directory. */
struct found {
	enum kv_file_kind kind;
	kv_fileno number;
	uint64_t bytes;
};

/* A journal that is needed still. */
struct needed_journal {
	kv_fileno number;
	bool good;		/* its frame: chunks, and numbers of operations */
	bool has_begin;		/* else nothing was ever written to it */
	kv_fileno previous_no;
	uint64_t previous_bytes;
	kv_seqno seqno_before, seqno_last;
	uint64_t begin_end, end, promised;
	bool all_promised;	/* a later one says so */
	bool replay_ends;	/* in it, at a value that never arrived */
};

struct verify {
	const struct kv_verify_options *options;
	struct kv_store store;
	struct kv_env_file *lock;
	struct kv_cache *cache;
	struct kv_filecache *files;
	_Atomic uint64_t uncounted;
	struct kv_sst_counters counters;
	bool root_is_good;		/* else the id that every file carries is not known */
	struct kv_version *version;	/* NULL: the manifest cannot be read */
	struct kv_manifest_state state;
	struct found *found;		/* sorted */
	size_t found_count, found_max;
	uint64_t problems;
	uint64_t bytes_done, bytes_told, bytes_all;
	struct kv_pace pace;
	char reported[TEXT_BYTES];	/* first message since the last problem */
};

/* --- reporting ------------------------------------------------------------------------ */

static void problem(struct verify *v, const char *file, const char *fmt, ...) KV_PRINTF(3, 4);

static void problem(struct verify *v, const char *file, const char *fmt, ...)
{
	char text[TEXT_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	v->problems++;
	v->reported[0] = 0;
	if (v->options->problem)
		v->options->problem(v->options->arg, file, text);
}

/* What was reported meanwhile says it better than the code. */
static void problem_err(struct verify *v, const char *file, int err)
{
	char text[TEXT_BYTES];

	snprintf(text, sizeof(text), "%s", v->reported[0] ? v->reported : kv_err_text(err));
	problem(v, file, "%s", text);
}

/* The sink of the store. The file's name, which most messages begin with, goes with the problem anyway. */
static void on_message(void *arg, enum kv_msg_level level, const char *text)
{
	struct verify *v = arg;
	size_t bytes = strlen(v->store.path);
	const char *colon;

	if (v->reported[0] || level > KV_MSG_WARN)
		return;
	if (!strncmp(text, v->store.path, bytes) && text[bytes] == '/') {
		colon = strstr(text + bytes, ": ");
		text = colon ? colon + 2 : text;
	}
	snprintf(v->reported, sizeof(v->reported), "%s", text);
}

static void tell_progress(struct verify *v)
{
	v->bytes_told = v->bytes_done;
	if (v->options->progress)
		v->options->progress(v->options->arg, KV_MIN(v->bytes_done, v->bytes_all),
				     v->bytes_all);
}

static int ask_cancelled(struct verify *v)
{
	return v->options->cancelled && v->options->cancelled(v->options->arg) ? -ECANCELED : 0;
}

/* Waits until as much may be read as was. */
static int keep_pace(struct verify *v, uint64_t bytes)
{
	struct kv_env *env = v->store.env;
	uint64_t ns;

	if (!v->pace.bytes_per_second)
		return 0;
	kv_pace_take(&v->pace, env->ops->monotonic_ns(env), bytes);
	while ((ns = kv_pace_wait_ns(&v->pace, env->ops->monotonic_ns(env)))) {
		env->ops->sleep_ns(env, KV_MIN(ns, SLEEP_NS_MAX));
		KV_TRY(ask_cancelled(v));
	}
	return 0;
}

/*
 * So many bytes more. A value that several keys share is looked at, and counted, for each.
 * -ECANCELED: no more.
 */
static int done(struct verify *v, uint64_t bytes)
{
	v->bytes_done += bytes;
	KV_TRY(keep_pace(v, bytes));
	if (v->bytes_done - v->bytes_told < PROGRESS_BYTES)
		return 0;
	tell_progress(v);
	return ask_cancelled(v);
}

/* What has nothing to do with the store, and ends the check. */
static bool is_final(int err)
{
	return err == -ENOMEM || err == -ECANCELED;
}

/* --- which files there are ---------------------------------------------------------------- */

static int cmp_found(const void *pa, const void *pb)
{
	const struct found *a = pa, *b = pb;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

static struct found *find(const struct verify *v, enum kv_file_kind kind, kv_fileno number)
{
	struct found key = { .kind = kind, .number = number };

	return v->found_count ? bsearch(&key, v->found, v->found_count, sizeof(key), cmp_found) :
				NULL;
}

/* For progress only: whether the file can be read shows when it is. */
static uint64_t size_of(struct verify *v, const char *name)
{
	const struct kv_env_ops *ops = v->store.env->ops;
	struct kv_env_file *file;
	uint64_t bytes;
	int err;

	if (ops->open(v->store.dir, name, KV_ENV_READ, &file))
		return 0;
	err = ops->size(file, &bytes);
	ops->close(file);
	return err ? 0 : bytes;
}

static int on_name(void *arg, const char *name)
{
	struct verify *v = arg;
	struct found f = { 0 };
	struct found *grown;

	/* Other files may lie beside a store: they are nobody's concern. */
	if (!kv_filename_parse(name, &f.kind, &f.number))
		return 0;
	f.bytes = size_of(v, name);
	if (v->found_count == v->found_max) {
		v->found_max = v->found_max ? 2 * v->found_max : 64;
		grown = realloc(v->found, v->found_max * sizeof(f));
		if (!grown)
			return -ENOMEM;
		v->found = grown;
	}
	v->found[v->found_count++] = f;
	return 0;
}

static int find_files(struct verify *v)
{
	KV_TRY(v->store.env->ops->dir_list(v->store.dir, on_name, v));
	if (v->found_count)
		qsort(v->found, v->found_count, sizeof(*v->found), cmp_found);
	return 0;
}

/* Is the file one that the store needs, as far as is known? */
static bool is_needed(const struct verify *v, const struct found *f)
{
	switch (f->kind) {
	case KV_FILE_TABLE:
		for (int l = 0; v->version && l < KV_LEVELS; l++)
			for (size_t i = 0; i < v->version->levels[l].count; i++)
				if (v->version->levels[l].tables[i]->meta.number == f->number)
					return true;
		return !v->version;
	case KV_FILE_SEGMENT:
		return !v->version || kv_version_segment(v->version, f->number);
	case KV_FILE_JOURNAL:
		return v->version && f->number >= v->state.journal_min;
	default:
		return false;
	}
}

static bool is_missing(struct verify *v, enum kv_file_kind kind, kv_fileno number)
{
	if (find(v, kind, number))
		return false;
	problem(v, kv_filename(kind, number).s, "is missing, though the manifest needs it");
	return true;
}

static int file_done(struct verify *v, enum kv_file_kind kind, kv_fileno number)
{
	const struct found *f = find(v, kind, number);

	return f ? done(v, f->bytes) : 0;
}

/* --- pointers ------------------------------------------------------------------------------- */

/* Why not to go on, or 0; *out_why is set when the pointer is no good. */
static int look_at_value(struct verify *v, const struct kv_vptr *p, const char **out_why)
{
	struct kv_version_segment *s = kv_version_segment(v->version, p->segment_no);
	struct kv_filecache_entry *pin;
	struct kv_env_file *file;
	int err;

	if (!s) {
		*out_why = "the manifest has no such segment";
		return 0;
	}
	if (s->sealed && (p->offset > s->bytes || kv_vptr_record_bytes(p) > s->bytes - p->offset)) {
		*out_why = "the segment ends before";
		return 0;
	}
	err = kv_filecache_segment(v->files, p->segment_no, &pin, &file);
	if (!err) {
		err = kv_vlog_check(&v->store, file, p);
		kv_filecache_unpin(v->files, pin);
	}
	KV_TRY(done(v, kv_vptr_record_bytes(p)));
	/* If the segment itself is no good, that is told when it is looked at. */
	v->reported[0] = 0;
	if (err)
		*out_why = kv_err_text(err);
	return err == -ENOMEM ? err : 0;
}

static void hex(struct kv_slice s, char *to, size_t room)
{
	size_t n = KV_MIN(s.bytes, (room - 4) / 2), i;

	for (i = 0; i < n; i++)
		snprintf(to + 2 * i, 3, "%02x", ((const uint8_t *)s.data)[i]);
	snprintf(to + 2 * n, 4, "%s", n < s.bytes ? "..." : "");
}

/* A pointer of a file that is no good; *bad counts them. */
static void bad_pointer(struct verify *v, const char *file, struct kv_slice key,
			const struct kv_vptr *p, const char *why, uint64_t *bad)
{
	char text[2 * 40 + 4];

	if ((*bad)++ >= SINGLE_MAX)
		return;
	hex(key, text, sizeof(text));
	if (p)
		problem(v, file, "the value of key %s, in %s at byte %" PRIu64 ", is not good: %s",
			text, kv_filename(KV_FILE_SEGMENT, p->segment_no).s, p->offset, why);
	else
		problem(v, file, "the pointer to the value of key %s is malformed", text);
}

static void bad_pointers_done(struct verify *v, const char *file, uint64_t bad)
{
	if (bad > SINGLE_MAX)
		problem(v, file, "%" PRIu64 " more values are not good", bad - SINGLE_MAX);
}

static int check_packed(struct verify *v, const char *file, struct kv_slice key,
			struct kv_slice value, uint64_t *bad)
{
	KV_AUTO(kv_buf_done) struct kv_buf raw = KV_BUF_INIT;
	int err = kv_packed_unpack(value, &raw);
	char text[2 * 40 + 4];

	if (!err || err == -ENOMEM || (*bad)++ >= SINGLE_MAX)
		return err == -ENOMEM ? err : 0;
	hex(key, text, sizeof(text));
	problem(v, file, "the value of key %s is not good: %s", text, kv_err_text(err));
	return 0;
}

/* --- tables --------------------------------------------------------------------------------- */

static bool is_as_said(const struct kv_sst_meta *a, const struct kv_sst_meta *b)
{
	if (a->number != b->number || a->entries != b->entries || a->deletes != b->deletes ||
	    a->range_deletes != b->range_deletes || a->seqno_min != b->seqno_min ||
	    a->seqno_max != b->seqno_max || a->ref_count != b->ref_count)
		return false;
	for (size_t i = 0; i < a->ref_count; i++)
		if (a->refs[i].segment_no != b->refs[i].segment_no ||
		    a->refs[i].bytes != b->refs[i].bytes)
			return false;
	return kv_slice_eq(kv_buf_slice(&a->smallest), kv_buf_slice(&b->smallest)) &&
	       kv_slice_eq(kv_buf_slice(&a->largest), kv_buf_slice(&b->largest));
}

/* Going through the entries of a table. */
struct walk {
	const char *file;
	uint64_t bad;
};

static int walk_entry(struct verify *v, struct walk *w, struct kv_slice key, struct kv_slice value)
{
	const char *why = NULL;
	struct kv_vptr p;

	if (!kv_ikey_is_valid(key))
		return 0;
	if (kv_ikey_kind(key) == KV_KIND_PUT_PACKED)
		return check_packed(v, w->file, kv_ikey_user(key), value, &w->bad);
	if (kv_ikey_kind(key) != KV_KIND_PUT_PTR)
		return 0;
	if (kv_vptr_decode(value, &p)) {
		bad_pointer(v, w->file, kv_ikey_user(key), NULL, NULL, &w->bad);
		return 0;
	}
	KV_TRY(look_at_value(v, &p, &why));
	if (why)
		bad_pointer(v, w->file, kv_ikey_user(key), &p, why, &w->bad);
	return 0;
}

/*
 * The values of all entries that can be reached. That all can be, and that they
 * add up to what the table says of its references, is kv_sst_check()'s to say.
 */
static int walk_table(struct verify *v, const char *file, struct kv_sst *sst)
{
	struct kv_cursor *c = kv_sst_cursor(sst, false, true);
	struct walk w = { .file = file };
	int err = 0;

	if (!c)
		return -ENOMEM;
	for (c->ops->seek_first(c); !err && c->ops->valid(c); c->ops->next(c))
		err = walk_entry(v, &w, c->ops->key(c), c->ops->value(c));
	if (!err && c->ops->error(c) == -ENOMEM)
		err = -ENOMEM;
	kv_cursor_free(c);
	bad_pointers_done(v, file, w.bad);
	return err;
}

/* said: what the manifest says of it, NULL when that cannot be read. */
static int check_open_table(struct verify *v, const char *file, struct kv_sst *sst,
			    const struct kv_sst_meta *said)
{
	int err;

	if (said && !is_as_said(said, kv_sst_meta(sst)))
		problem(v, file, "is not the table that the manifest describes");
	if (v->options->quick)
		return 0;
	err = kv_sst_check(sst);
	if (err == -ENOMEM)
		return err;
	if (err)
		problem_err(v, file, err);
	/* Without a manifest, which segments there should be is not known. */
	return v->version ? walk_table(v, file, sst) : 0;
}

static int check_table(struct verify *v, kv_fileno number, uint64_t file_bytes,
		       const struct kv_sst_meta *said)
{
	struct kv_filename name = kv_filename(KV_FILE_TABLE, number);
	struct kv_filecache_entry *pin;
	struct kv_sst *sst;
	int err;

	if (is_missing(v, KV_FILE_TABLE, number))
		return 0;
	err = kv_filecache_table(v->files, number, file_bytes, &pin, &sst);
	if (err == -ENOMEM)
		return err;
	if (err) {
		problem_err(v, name.s, err);
	} else {
		err = check_open_table(v, name.s, sst, said);
		kv_filecache_unpin(v->files, pin);
		KV_TRY(err);
	}
	v->reported[0] = 0;
	return file_done(v, KV_FILE_TABLE, number);
}

/* --- segments --------------------------------------------------------------------------------- */

struct scan {
	struct verify *v;
	const char *file;
	uint64_t bad;
};

static int on_record(void *arg, const struct kv_vlog_entry *e)
{
	struct scan *s = arg;
	char key[2 * 40 + 4];

	KV_TRY(done(s->v, kv_vptr_record_bytes(&e->ptr)));
	if (!e->value_error || s->bad++ >= SINGLE_MAX)
		return 0;
	hex(e->key, key, sizeof(key));
	problem(s->v, s->file, "the value at byte %" PRIu64 ", written for key %s, is not good: %s",
		e->offset, key, kv_err_text(e->value_error));
	return 0;
}

static int scan_segment(struct verify *v, const char *file, struct kv_env_file *f,
			kv_fileno number)
{
	struct scan s = { .v = v, .file = file };
	uint64_t end;
	int err = kv_vlog_scan(&v->store, f, number, on_record, &s, &end);

	if (is_final(err))
		return err;
	bad_pointers_done(v, file, s.bad);
	if (err)
		problem_err(v, file, err);
	return 0;
}

/*
 * With a manifest, the values are looked at from the keys that have them. What
 * no key has is of no concern: among it are values that a crash has torn.
 */
static int check_open_segment(struct verify *v, const char *file, struct kv_env_file *f,
			      kv_fileno number, const struct kv_version_segment *said)
{
	uint64_t bytes;
	int err = v->store.env->ops->size(f, &bytes);

	if (err)
		problem_err(v, file, err);
	else if (said && said->sealed && bytes < said->bytes)
		problem(v, file, "is too short: it has %" PRIu64 " of %" PRIu64 " bytes", bytes,
			said->bytes);
	return said || v->options->quick ? 0 : scan_segment(v, file, f, number);
}

static int check_segment(struct verify *v, kv_fileno number, const struct kv_version_segment *said)
{
	struct kv_filename name = kv_filename(KV_FILE_SEGMENT, number);
	struct kv_filecache_entry *pin;
	struct kv_env_file *f;
	int err;

	if (is_missing(v, KV_FILE_SEGMENT, number))
		return 0;
	err = kv_filecache_segment(v->files, number, &pin, &f);
	if (err == -ENOMEM)
		return err;
	if (err) {
		problem_err(v, name.s, err);
	} else {
		err = check_open_segment(v, name.s, f, number, said);
		kv_filecache_unpin(v->files, pin);
		KV_TRY(err);
	}
	v->reported[0] = 0;
	return 0;
}

/* --- journals: the same rules as in recover.c --------------------------------------------------- */

/* What reading goes by in one journal. */
struct replay {
	const char *file;
	struct needed_journal *j;
	kv_seqno seqno;		/* of the last operation before the chunk */
	uint64_t bad;
};

static int begin_chunk(struct replay *r, const struct kv_chunk *c)
{
	struct kv_journal_begin b;

	if (c->type != KV_CHUNK_BEGIN || c->payload.bytes != sizeof(b))
		return KV_E_bad_record;
	memcpy(&b, c->payload.data, sizeof(b));
	r->j->has_begin = true;
	r->j->previous_no = kv_le64_get(b.previous_no);
	r->j->previous_bytes = kv_le64_get(b.previous_bytes);
	r->j->seqno_before = r->seqno = kv_le64_get(b.seqno);
	r->j->begin_end = c->end;
	return 0;
}

/* Does the chunk follow from the one before? Its operations are looked at later. */
static int frame_chunk(struct verify *v, struct replay *r, const struct kv_chunk *c)
{
	int err = 0;

	if (!r->j->has_begin)
		err = begin_chunk(r, c);
	else if (c->type == KV_CHUNK_BEGIN || c->type == KV_CHUNK_EDIT)
		err = KV_E_bad_record;
	if (err) {
		problem(v, r->file, "the chunk at byte %" PRIu64 " does not belong there",
			c->offset);
		return err;
	}
	/* What was ingested while the first journal was empty. */
	if (r->j->number == v->state.journal_min)
		r->seqno = KV_MAX(r->seqno, v->state.seqno);
	if (c->type != KV_CHUNK_BATCHES)
		return 0;
	if (c->seqno != r->seqno + 1 || c->count > KV_SEQNO_MAX - r->seqno) {
		problem(v, r->file,
			"the operations at byte %" PRIu64 " begin with number %" PRIu64
			", and should follow %" PRIu64,
			c->offset, c->seqno, r->seqno);
		return KV_E_bad_record;
	}
	r->seqno += c->count;
	return 0;
}

/* A value behind the promise may be missing: there the replay ends. Its segment may not (K4). */
static int check_op(struct verify *v, struct replay *r, const struct kv_chunk *c,
		    const struct kv_op *op)
{
	const char *why = NULL;
	struct kv_vptr p;

	if (op->kind == KV_KIND_PUT_PACKED)
		return check_packed(v, r->file, op->key, op->value, &r->bad);
	if (op->kind != KV_KIND_PUT_PTR)
		return 0;
	if (kv_vptr_decode(op->value, &p)) {
		bad_pointer(v, r->file, op->key, NULL, NULL, &r->bad);
		return 0;
	}
	KV_TRY(look_at_value(v, &p, &why));
	if (why && kv_version_segment(v->version, p.segment_no) && !r->j->all_promised &&
	    c->end > r->j->promised)
		r->j->replay_ends = true;
	else if (why)
		bad_pointer(v, r->file, op->key, &p, why, &r->bad);
	if (r->j->replay_ends)
		r->j->seqno_last = c->seqno - 1;
	return 0;
}

static int check_ops(struct verify *v, struct replay *r, const struct kv_chunk *c)
{
	struct kv_slice rest = c->payload;
	struct kv_op op;

	for (uint32_t i = 0; i < c->count && !r->j->replay_ends; i++) {
		if (!kv_op_take(&rest, &op)) {
			problem(v, r->file, "operation %" PRIu32 " at byte %" PRIu64 " is malformed",
				i, c->offset);
			return 0;
		}
		KV_TRY(check_op(v, r, c, &op));
	}
	if (rest.bytes && !r->j->replay_ends)
		problem(v, r->file, "there are more than %" PRIu32 " operations at byte %" PRIu64,
			c->count, c->offset);
	return 0;
}

/*
 * A header is durable before anything is written behind it. So a journal without a
 * good one, and with nothing behind it, was being made when the power failed.
 */
static bool was_being_made(struct verify *v, const char *name, kv_fileno number)
{
	static const uint8_t zeros[sizeof(struct kv_chunk_header)];
	uint8_t bytes[sizeof(struct kv_file_header) + sizeof(zeros)] = { 0 };
	const struct kv_env_ops *ops = v->store.env->ops;
	struct kv_file_header h;
	struct kv_env_file *file;
	size_t got;
	int err;

	if (ops->open(v->store.dir, name, KV_ENV_READ, &file))
		return false;
	err = ops->pread(file, bytes, sizeof(bytes), 0, &got);
	ops->close(file);
	memcpy(&h, bytes, sizeof(h));
	/* The last bytes of a header are zeros: one that is too short may seem good. */
	return !err &&
	       (got < sizeof(h) ||
		kv_file_header_check(&h, KV_FILE_JOURNAL, number, v->store.store_id)) &&
	       !memcmp(bytes + sizeof(h), zeros, sizeof(zeros));
}

/* For the frame of each chunk, or with ops for what is in it. Stops where something is wrong. */
static int read_chunks(struct verify *v, struct kv_journal_reader *reader, struct replay *r,
		       bool ops)
{
	struct kv_chunk c;
	bool end;

	while (!r->j->replay_ends) {
		KV_TRY(kv_journal_read(reader, &c, &end));
		if (end)
			break;
		if (!ops)
			KV_TRY(frame_chunk(v, r, &c));
		else if (c.type == KV_CHUNK_BATCHES)
			KV_TRY(check_ops(v, r, &c));
	}
	return 0;
}

/* Reads a journal through, and sets what is known of it. */
static int read_journal(struct verify *v, struct needed_journal *j, bool ops)
{
	struct kv_filename name = kv_filename(KV_FILE_JOURNAL, j->number);
	struct replay r = { .file = name.s, .j = j };
	struct kv_journal_reader *reader;
	struct kv_journal_tail tail;
	uint64_t problems = v->problems;
	int err;

	err = kv_journal_open(&v->store, KV_FILE_JOURNAL, j->number, &reader);
	if (!err) {
		err = read_chunks(v, reader, &r, ops);
		if (!err && !ops) {
			kv_journal_tail(reader, &tail);
			j->good = true;
			j->end = tail.end;
			j->promised = tail.promised;
			j->seqno_last = r.seqno;
		}
		kv_journal_close(reader);
	}
	bad_pointers_done(v, name.s, r.bad);
	if (is_final(err))
		return err;
	/* Damage was told when the frame was read. */
	if (err && !ops && v->problems == problems)
		problem_err(v, name.s, err);
	v->reported[0] = 0;
	return 0;
}

static int read_frame(struct verify *v, struct needed_journal *j)
{
	/* The first one is named by the manifest, so it was there. */
	if (j->number != v->state.journal_min &&
	    was_being_made(v, kv_filename(KV_FILE_JOURNAL, j->number).s, j->number)) {
		j->good = true;
		return 0;
	}
	return read_journal(v, j, false);
}

static bool has_promise(const struct needed_journal *j)
{
	return j->has_begin && j->promised >= j->begin_end;
}

/* A promise in a journal covers all before it. */
static void spread_promises(struct needed_journal *all, size_t count)
{
	bool promised = false;

	while (count--) {
		all[count].all_promised = promised;
		promised |= has_promise(&all[count]);
	}
}

/* Does what the journal says of the one before agree with that one? */
static bool knows_before(struct verify *v, const struct needed_journal *before,
			 const struct needed_journal *j)
{
	struct kv_filename name = kv_filename(KV_FILE_JOURNAL, j->number);

	if (j->previous_no != before->number) {
		problem(v, kv_filename(KV_FILE_JOURNAL, j->previous_no).s,
			"is missing, though %s follows it", name.s);
		return false;
	}
	if (j->previous_bytes < before->end)
		problem(v, name.s, "follows %s, but knows only %" PRIu64 " of its %" PRIu64 " bytes",
			kv_filename(KV_FILE_JOURNAL, before->number).s, j->previous_bytes,
			before->end);
	return j->previous_bytes >= before->end;
}

/*
 * before: NULL for the first. False: replay ends before this journal, and
 * rightly so, since what is missing was never promised.
 */
static bool follows(struct verify *v, const struct needed_journal *before,
		    const struct needed_journal *j)
{
	struct kv_filename name = kv_filename(KV_FILE_JOURNAL, j->number);
	kv_seqno expected = before ? before->seqno_last : v->state.seqno;

	/* From an opening that was cut off: nothing was written to it, and nothing follows. */
	if (before && j->has_begin && !j->previous_no)
		return false;
	if (before && j->has_begin && !knows_before(v, before, j))
		return true;
	if (!j->has_begin || (before && before->end < j->previous_bytes)) {
		if (!j->all_promised && !has_promise(j))
			return false;
		problem(v, before ? kv_filename(KV_FILE_JOURNAL, before->number).s : name.s,
			"has lost its end, which was durable once");
		return true;
	}
	/* Before the first, something may have been ingested while it was empty. */
	if (before ? j->seqno_before != expected : j->seqno_before > expected)
		problem(v, name.s,
			"begins behind operation %" PRIu64 ", but what is before it ends with %" PRIu64,
			j->seqno_before, expected);
	return true;
}

/* What a named snapshot has seen was durable before. */
static void check_snapshots(struct verify *v, kv_seqno reached)
{
	const struct kv_snapshot_info *newest = kv_snapset_newest(v->version->snapshots);

	if (newest && newest->seqno > reached)
		problem(v, NULL, "snapshot \"%s\" has seen operation %" PRIu64
			", which was durable, but the journals end with %" PRIu64, newest->name,
			newest->seqno, reached);
}

static int check_needed_journals(struct verify *v, struct needed_journal *all, size_t count)
{
	/* What is missing or damaged says nothing reliable of its neighbours. */
	bool linked = count && all[0].number == v->state.journal_min;
	kv_seqno reached = v->state.seqno;

	for (size_t i = 0; i < count; i++)
		KV_TRY(read_frame(v, &all[i]));
	spread_promises(all, count);
	for (size_t i = 0; i < count; i++) {
		linked = linked && all[i].good;
		if (linked && !follows(v, i ? &all[i - 1] : NULL, &all[i]))
			break;
		if (!v->options->quick && all[i].has_begin)
			KV_TRY(read_journal(v, &all[i], true));
		KV_TRY(file_done(v, KV_FILE_JOURNAL, all[i].number));
		if (all[i].has_begin)
			reached = KV_MAX(reached, all[i].seqno_last);
		if (all[i].replay_ends)
			break;
	}
	/* Where they don't hang together, that was told, and how far they reach is not known. */
	if (linked)
		check_snapshots(v, reached);
	return 0;
}

static int check_journals(struct verify *v)
{
	struct needed_journal *all;
	size_t count = 0;
	int err;

	all = calloc(v->found_count + 1, sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < v->found_count; i++)
		if (v->found[i].kind == KV_FILE_JOURNAL &&
		    v->found[i].number >= v->state.journal_min)
			all[count++].number = v->found[i].number;
	(void)is_missing(v, KV_FILE_JOURNAL, v->state.journal_min); /* told */
	err = check_needed_journals(v, all, count);
	free(all);
	return err;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int check_files_of_version(struct verify *v)
{
	for (size_t i = 0; i < v->version->segment_count; i++)
		KV_TRY(check_segment(v, v->version->segments[i].number,
				     &v->version->segments[i]));
	for (int l = 0; l < KV_LEVELS; l++)
		for (size_t i = 0; i < v->version->levels[l].count; i++) {
			const struct kv_sst_meta *m = &v->version->levels[l].tables[i]->meta;

			KV_TRY(check_table(v, m->number, m->file_bytes, m));
		}
	return 0;
}

/* Without a manifest, each file can be judged by itself still. */
static int check_files_found(struct verify *v)
{
	for (size_t i = 0; i < v->found_count; i++) {
		const struct found *f = &v->found[i];

		if (f->kind == KV_FILE_TABLE)
			KV_TRY(check_table(v, f->number, f->bytes, NULL));
		if (f->kind == KV_FILE_SEGMENT)
			KV_TRY(check_segment(v, f->number, NULL));
	}
	return 0;
}

static void add_up(struct verify *v)
{
	for (size_t i = 0; i < v->found_count; i++)
		if (is_needed(v, &v->found[i]))
			v->bytes_all += v->found[i].bytes;
}

/* The root and the manifest. What cannot be read of them is a problem, and the result. */
static int read_manifest(struct verify *v)
{
	struct kv_root root;
	const char *file = KV_NAME_ROOT;
	struct kv_filename name;
	int err = kv_root_read(&v->store, &root);

	if (!err) {
		v->root_is_good = true;
		name = kv_filename(KV_FILE_MANIFEST, kv_le64_get(root.manifest_no));
		file = name.s;
		err = kv_manifest_load(&v->store, kv_le64_get(root.manifest_no), NULL,
				       &v->version, &v->state);
	}
	if (kv_err_is(err, KV_E_corrupt) || err == -EIO)
		problem_err(v, file, err);
	v->reported[0] = 0;
	return err;
}

static int open_caches(struct verify *v)
{
	v->counters = (struct kv_sst_counters){ &v->uncounted, &v->uncounted, &v->uncounted };
	v->cache = kv_cache_new(CACHE_BYTES);
	if (!v->cache)
		return -ENOMEM;
	v->files = kv_filecache_new(&v->store, v->cache, &v->counters, FILES_MAX);
	return v->files ? 0 : -ENOMEM;
}

static int check_all(struct verify *v)
{
	int err, read_err;

	KV_TRY(open_caches(v));
	read_err = read_manifest(v);
	/* Not the store's fault, or not a store, or one that this program does not know. */
	if (read_err && !(v->root_is_good && kv_err_is(read_err, KV_E_corrupt)))
		return read_err;
	KV_TRY(find_files(v));
	add_up(v);
	if (v->version) {
		err = check_files_of_version(v);
		if (!err)
			err = check_journals(v);
	} else {
		err = check_files_found(v);
	}
	if (err)
		return err;
	v->bytes_done = v->bytes_all;
	tell_progress(v);
	return read_err;
}

static int open_dir(struct verify *v, const char *dir)
{
	const struct kv_env_ops *ops = v->store.env->ops;
	int err;

	v->store.path = dir;
	v->store.msg = (struct kv_msg){ on_message, v, KV_MSG_WARN };
	KV_TRY(ops->dir_open(v->store.env, dir, false, &v->store.dir));
	err = ops->lock(v->store.dir, KV_NAME_LOCK, true, &v->lock);
	return err == -EBUSY ? KV_E_locked : err;
}

static void verify_done(struct verify *v)
{
	kv_version_unref(v->version);
	if (v->files)
		kv_filecache_free(v->files);
	if (v->cache)
		kv_cache_free(v->cache);
	if (v->lock)
		v->store.env->ops->close(v->lock);
	if (v->store.dir)
		v->store.env->ops->dir_close(v->store.dir);
	free(v->found);
}

int kv_verify(const char *dir, const struct kv_verify_options *options, uint64_t *out_problems)
{
	KV_AUTO(verify_done) struct verify v = { .options = options };

	v.store.env = options->env ? options->env : kv_env_posix();
	if (!options->quick)
		v.pace = (struct kv_pace){ options->bytes_per_second, PACE_BURST_BYTES, 0 };
	KV_TRY(open_dir(&v, dir));
	KV_TRY(check_all(&v));
	*out_problems = v.problems;
	return 0;
}
