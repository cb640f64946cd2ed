/*
 * Replaying journals. The order of batches is the order of journals by number,
 * and of chunks in each; replay takes them up to the first that never arrived,
 * and nothing behind it (K1).
 *
 * Where may it stop? A journal may end early, and a pointer's value be missing, if
 * that was never promised. What shows a promise: a later chunk of the same
 * journal that says so, or any promise in a later journal, which is made only
 * when all before it is durable (sync.c). Whatever is missing before a promise
 * is damage: an error, and never a shorter store.
 *
 *	journal ends before what its successor says	stop; with a promise behind: error
 *	successor of another journal than the last	error
 *	value of a pointer behind the last promise	is verified; stop when it isn't there
 *	value of a pointer before it			is not looked at: whoever reads it, reports it
 *	seqnos don't go on, operations are malformed	error: the checksum was right
 *	journal without a header			made when the power failed, if it is empty
 *	less than a named snapshot has seen		error: it was made when that was durable
 */
#include "kv/recover.h"

#include <inttypes.h>

/* --- the directory ---------------------------------------------------------------------------- */

void kv_dir_files_done(struct kv_dir_files *f)
{
	free(f->at);
	f->at = NULL;
	f->count = f->count_max = 0;
}

static int dir_file_cmp(const void *a, const void *b)
{
	const struct kv_dir_file *x = a, *y = b;

	if (x->kind != y->kind)
		return (x->kind > y->kind) - (x->kind < y->kind);
	return (x->number > y->number) - (x->number < y->number);
}

static bool is_known_name(const char *name)
{
	return !strcmp(name, KV_NAME_LOCK) || !strcmp(name, KV_NAME_ROOT_NEW) ||
	       !strcmp(name, KV_NAME_LOG) || !strcmp(name, KV_NAME_LOG_OLD) ||
	       !strcmp(name, "lost+found");
}

static int note_file(void *arg, const char *name)
{
	struct kv_dir_files *f = arg;
	struct kv_dir_file file;

	if (!strcmp(name, KV_NAME_ROOT)) {
		f->has_root = true;
		return 0;
	}
	if (!kv_filename_parse(name, &file.kind, &file.number)) {
		if (!is_known_name(name)) {
			strncpy(f->foreign, name, sizeof(f->foreign) - 1);
			f->foreign[sizeof(f->foreign) - 1] = 0;
		}
		return 0;
	}
	if (f->count == f->count_max) {
		size_t n = f->count_max ? 2 * f->count_max : 64;
		struct kv_dir_file *at = realloc(f->at, n * sizeof(*at));

		if (!at)
			return -ENOMEM;
		f->at = at;
		f->count_max = n;
	}
	f->at[f->count++] = file;
	f->number_max = KV_MAX(f->number_max, file.number);
	return 0;
}

int kv_dir_files_read(struct kv_store *s, struct kv_dir_files *out)
{
	int err;

	*out = (struct kv_dir_files){ 0 };
	err = s->env->ops->dir_list(s->dir, note_file, out);
	if (err)
		return kv_fail(&s->msg, err, "%s: cannot be listed: %s", s->path, kv_err_text(err));
	if (out->count)
		qsort(out->at, out->count, sizeof(*out->at), dir_file_cmp);
	return 0;
}

bool kv_dir_files_has(const struct kv_dir_files *f, enum kv_file_kind kind, kv_fileno number)
{
	struct kv_dir_file key = { kind, number };

	return f->count && bsearch(&key, f->at, f->count, sizeof(key), dir_file_cmp);
}

/* --- looking at all journals ------------------------------------------------------------------- */

struct journal_info {
	kv_fileno number;
	bool has_begin;
	kv_fileno previous_no;
	uint64_t previous_bytes;
	kv_seqno seqno;			/* of the last operation before it */
	uint64_t begin_end;		/* where the first chunk ends */
	struct kv_journal_tail tail;
};

struct replay {
	struct kv_db *db;
	struct kv_store *store;
	struct kv_edit *edit;
	struct journal_info *journals;	/* ascending */
	size_t count;
	kv_seqno seqno;			/* replayed so far */
	uint64_t operations;
	bool stopped;			/* something is missing that was never promised */
};

static int fail_journal(struct replay *r, size_t i, int err, const char *what)
{
	return kv_fail(&r->store->msg, err, "%s/%s: %s; run fsck.kvfs", r->store->path,
		       kv_filename(KV_FILE_JOURNAL, r->journals[i].number).s, what);
}

/*
 * The header is durable before anything is written behind it (live.c). So a file that has no
 * good one, and nothing behind it, was being made. Anything else is as it seems.
 */
static int was_being_made(struct replay *r, kv_fileno number, bool *out)
{
	static const uint8_t zeros[sizeof(struct kv_chunk_header)];
	struct kv_env *env = r->store->env;
	uint8_t bytes[sizeof(struct kv_file_header) + sizeof(zeros)] = { 0 };
	struct kv_file_header h;
	struct kv_env_file *file;
	size_t got;
	int err;

	KV_TRY(env->ops->open(r->store->dir, kv_filename(KV_FILE_JOURNAL, number).s, KV_ENV_READ,
			      &file));
	err = env->ops->pread(file, bytes, sizeof(bytes), 0, &got);
	env->ops->close(file);
	KV_TRY(err);
	memcpy(&h, bytes, sizeof(h));
	/* The last bytes of a header are zeros: one that is too short may seem good. */
	*out = (got < sizeof(h) ||
		kv_file_header_check(&h, KV_FILE_JOURNAL, number, r->store->store_id)) &&
	       !memcmp(bytes + sizeof(h), zeros, sizeof(zeros));
	return 0;
}

static int note_begin(struct replay *r, size_t i, const struct kv_chunk *c)
{
	struct journal_info *j = &r->journals[i];
	struct kv_journal_begin b;

	if (c->type != KV_CHUNK_BEGIN || c->payload.bytes != sizeof(b))
		return fail_journal(r, i, KV_E_bad_record, "it does not begin as a journal does");
	memcpy(&b, c->payload.data, sizeof(b));
	j->has_begin = true;
	j->previous_no = kv_le64_get(b.previous_no);
	j->previous_bytes = kv_le64_get(b.previous_bytes);
	j->seqno = kv_le64_get(b.seqno);
	j->begin_end = c->end;
	return 0;
}

static int read_to_end(struct replay *r, size_t i, struct kv_journal_reader *reader)
{
	struct kv_chunk c;
	bool end = false;

	for (bool first = true; !end; first = false) {
		KV_TRY(kv_journal_read(reader, &c, &end));
		if (!end && first)
			KV_TRY(note_begin(r, i, &c));
	}
	kv_journal_tail(reader, &r->journals[i].tail);
	return 0;
}

static int survey_journal(struct replay *r, size_t i)
{
	struct journal_info *j = &r->journals[i];
	struct kv_journal_reader *reader;
	bool unmade = false;
	int err;

	/* The first one is named by the manifest, so it was there. */
	if (i)
		KV_TRY(was_being_made(r, j->number, &unmade));
	if (unmade)
		return 0;
	KV_TRY(kv_journal_open(r->store, KV_FILE_JOURNAL, j->number, &reader));
	err = read_to_end(r, i, reader);
	kv_journal_close(reader);
	return err;
}

static int survey(struct replay *r, const struct kv_dir_files *files)
{
	kv_fileno min = r->db->state.journal_min;

	r->journals = calloc(files->count + 1, sizeof(*r->journals));
	if (!r->journals)
		return -ENOMEM;
	for (size_t i = 0; i < files->count; i++)
		if (files->at[i].kind == KV_FILE_JOURNAL && files->at[i].number >= min)
			r->journals[r->count++].number = files->at[i].number;
	if (!r->count || r->journals[0].number != min)
		return kv_fail(&r->store->msg, KV_E_missing_file,
			       "%s/%s: the journal is missing; run fsck.kvfs", r->store->path,
			       kv_filename(KV_FILE_JOURNAL, min).s);
	for (size_t i = 0; i < r->count; i++)
		KV_TRY(survey_journal(r, i));
	return 0;
}

/* Does this journal or a later one tell of a promise, which covers all journals before it? */
static bool is_promised_behind(const struct replay *r, size_t i)
{
	for (; i < r->count; i++)
		if (r->journals[i].has_begin &&
		    r->journals[i].tail.promised >= r->journals[i].begin_end)
			return true;
	return false;
}

/* --- replaying --------------------------------------------------------------------------------- */

/* *out: is the value there? An error: can't be told, or the pointer is nonsense. */
static int check_value(struct replay *r, size_t i, struct kv_slice pointer, bool *out)
{
	struct kv_filecache_entry *pin;
	struct kv_env_file *file;
	struct kv_vptr p;
	int err;

	if (kv_vptr_decode(pointer, &p))
		return fail_journal(r, i, KV_E_bad_record, "it holds a malformed pointer");
	/* Registered before its first use. */
	if (!kv_version_segment(r->db->version, p.segment_no))
		return fail_journal(r, i, KV_E_bad_record,
				    "it points into a segment that the manifest doesn't name");
	KV_TRY(kv_filecache_segment(r->db->files, p.segment_no, &pin, &file));
	err = kv_vlog_check(r->store, file, &p);
	kv_filecache_unpin(r->db->files, pin);
	*out = !err;
	return kv_err_is(err, KV_E_corrupt) ? 0 : err;
}

/* Goes through the operations of a chunk; with verify, *out_whole tells whether all values are there. */
static int check_chunk(struct replay *r, size_t i, const struct kv_chunk *c, bool verify,
		       bool *out_whole)
{
	struct kv_slice left = c->payload;
	struct kv_op op;
	uint32_t n = 0;

	*out_whole = true;
	if (c->seqno != r->seqno + 1 || c->count > KV_SEQNO_MAX - c->seqno)
		return fail_journal(r, i, KV_E_journal_damaged,
				    "its operations do not follow those before");
	for (; left.bytes && *out_whole; n++) {
		if (!kv_op_take(&left, &op))
			return fail_journal(r, i, KV_E_bad_record, "an operation is malformed");
		if (verify && op.kind == KV_KIND_PUT_PTR)
			KV_TRY(check_value(r, i, op.value, out_whole));
	}
	if (*out_whole && n != c->count)
		return fail_journal(r, i, KV_E_bad_record,
				    "a chunk has another number of operations than it says");
	return 0;
}

int kv_replay_flush(struct kv_db *db, struct kv_edit *edit)
{
	kv_seqno *snapshots;
	size_t n;
	int err;

	KV_TRY(kv_snapset_seqnos(db->version->snapshots, KV_SEQNO_MAX, &snapshots, &n));
	err = kv_flush_table(db, db->mem, snapshots, n, NULL, edit);
	free(snapshots);
	return err;
}

/* What is in memory goes to a table, when it is too much. */
static int flush_if_full(struct replay *r)
{
	struct kv_db *db = r->db;
	struct kv_memtable *next;

	if (db->options.read_only || kv_memtable_bytes(db->mem) < db->options.memtable_bytes)
		return 0;
	next = kv_memtable_new_charged(kv_memtable_journal_no(db->mem), db->cache);
	if (!next)
		return -ENOMEM;
	{
		int err = kv_replay_flush(db, r->edit);

		kv_memtable_unref(err ? next : db->mem);
		if (err)
			return err;
	}
	db->mem = next;
	return 0;
}

static int insert_chunk(struct replay *r, const struct kv_chunk *c)
{
	struct kv_slice left = c->payload;
	struct kv_op op;

	while (kv_op_take(&left, &op))
		KV_TRY(kv_memtable_add(r->db->mem, ++r->seqno, op.kind, op.key, op.value));
	r->operations += c->count;
	return flush_if_full(r);
}

static int replay_chunk(struct replay *r, size_t i, const struct kv_chunk *c, bool all_promised)
{
	bool verify = !all_promised && c->end > r->journals[i].tail.promised;
	bool whole;

	switch (c->type) {
	case KV_CHUNK_BATCHES:
		break;
	case KV_CHUNK_BEGIN:
	case KV_CHUNK_MARK:
	case KV_CHUNK_END:
		return 0;
	default:
		return fail_journal(r, i, KV_E_bad_record, "it holds what does not belong there");
	}
	KV_TRY(check_chunk(r, i, c, verify, &whole));
	if (whole)
		return insert_chunk(r, c);
	r->stopped = true;
	kv_msg(&r->store->msg, KV_MSG_INFO,
	       "%s/%s: left out from byte %" PRIu64 " on: a value never arrived, and nobody was "
	       "told that it is durable", r->store->path,
	       kv_filename(KV_FILE_JOURNAL, r->journals[i].number).s, c->offset);
	return 0;
}

/* May replay go on with journal i? It may not, without a fault, when something before it is missing. */
static int check_order(struct replay *r, size_t i)
{
	const struct journal_info *j = &r->journals[i], *before = j - 1;
	bool follows = j->has_begin;

	/*
	 * One that follows none was made by an opening that was cut off before the
	 * root pointed to its manifest. It is empty, and nothing comes behind it but more of the kind.
	 */
	if (i && follows && !j->previous_no) {
		r->stopped = true;
		return 0;
	}
	if (i && follows) {
		if (j->previous_no != before->number)
			return fail_journal(r, i, KV_E_missing_file,
					    "the journal that it follows is missing");
		if (j->previous_bytes < before->tail.end)
			return fail_journal(r, i, KV_E_journal_damaged,
					    "it follows a shorter journal than there is");
		follows = j->previous_bytes == before->tail.end;
	}
	if (!follows) {
		if (is_promised_behind(r, i))
			return fail_journal(r, i ? i - 1 : 0, KV_E_journal_damaged,
					    "its end is missing, which was durable once");
		r->stopped = true;
		return 0;
	}
	/*
	 * Before the first one more may have come into tables than it knows of: what was ingested
	 * while it was empty. Its first operation, if it has any, tells whether it follows.
	 */
	if (i ? j->seqno != r->seqno : j->seqno > r->seqno)
		return fail_journal(r, i, KV_E_journal_damaged,
				    "it does not follow from what is before it");
	return 0;
}

static int replay_journal(struct replay *r, size_t i)
{
	bool all_promised = is_promised_behind(r, i + 1), end = false;
	struct kv_journal_reader *reader;
	struct kv_chunk c;
	int err;

	KV_TRY(check_order(r, i));
	if (r->stopped)
		return 0;
	KV_TRY(kv_journal_open(r->store, KV_FILE_JOURNAL, r->journals[i].number, &reader));
	do {
		err = kv_journal_read(reader, &c, &end);
		if (!err && !end)
			err = replay_chunk(r, i, &c, all_promised);
	} while (!err && !end && !r->stopped);
	kv_journal_close(reader);
	return err;
}

static int replay_all(struct replay *r, const struct kv_dir_files *files)
{
	uint64_t torn_bytes = 0;

	KV_TRY(survey(r, files));
	for (size_t i = 0; i < r->count && !r->stopped; i++) {
		KV_TRY(replay_journal(r, i));
		torn_bytes += r->journals[i].tail.torn_bytes;
	}
	kv_event(r->db->log, "recover", "journals=%zu operations=%" PRIu64 " seqno=%" PRIu64
		 " torn_bytes=%" PRIu64 " stopped=%d", r->count, r->operations, r->seqno,
		 torn_bytes, r->stopped);
	if (r->operations || torn_bytes || r->stopped)
		kv_msg(&r->store->msg, KV_MSG_INFO,
		       "%s: recovered %" PRIu64 " operations from %zu journals; %" PRIu64
		       " bytes at the end never arrived whole", r->store->path, r->operations,
		       r->count, torn_bytes);
	return 0;
}

/* A named snapshot was made when all that it sees was durable. */
static int check_snapshots(struct replay *r)
{
	const struct kv_snapshot_info *newest = kv_snapset_newest(r->db->version->snapshots);

	if (!newest || newest->seqno <= r->seqno)
		return 0;
	return kv_fail(&r->store->msg, KV_E_journal_damaged,
		       "%s: the journals end with operation %" PRIu64 ", but snapshot \"%s\" has seen "
		       "%" PRIu64 ", which was durable; run fsck.kvfs", r->store->path, r->seqno,
		       newest->name, newest->seqno);
}

int kv_replay(struct kv_db *db, const struct kv_dir_files *files, struct kv_edit *edit)
{
	struct replay r = { .db = db, .store = &db->store, .edit = edit, .seqno = db->state.seqno };
	int err;

	db->mem = kv_memtable_new_charged(db->state.journal_min, db->cache);
	if (!db->mem)
		return -ENOMEM;
	err = replay_all(&r, files);
	if (!err)
		err = check_snapshots(&r);
	free(r.journals);
	if (!err)
		db->seqno_last = r.seqno;
	return err;
}
