#include "kv/manifest.h"

#include <inttypes.h>
#include <stdlib.h>

#include "kv/assert.h"
#include "kv/journal.h"

#define LONG_BYTES_MIN KV_MIB	/* below, a manifest is never long */
#define LONG_FACTOR 4		/* else: as many times what it began with */

/*
 * Room is allocated ahead, as for a journal, so that a full disk shows before
 * anything is written: then the edit has not happened, and the file is good still.
 */
#define ALLOCATE_BYTES (64 * KV_KIB)

struct kv_manifest {
	struct kv_store *store;
	struct kv_journal *journal;
	uint64_t edit_no;	/* of the last edit in the file; the first has 1 */
	uint64_t begin_bytes;	/* of the file with the first edit */
	struct kv_buf encoded;	/* scratch */
};

/* --- reading ------------------------------------------------------------------------------ */

struct load {
	struct kv_store *store;
	struct kv_filename name;
	const struct kv_obsolete_sink *sink;
	struct kv_journal_reader *reader;
	struct kv_version *version;
	struct kv_manifest_state state;
	uint64_t edit_no;
	bool closed;
};

static void load_done(struct load *l)
{
	kv_journal_close(l->reader);
	kv_version_unref(l->version);
}

static int load_fail(struct load *l, int err, const char *what)
{
	return kv_fail(&l->store->msg, err, "%s/%s: edit %" PRIu64 " %s (%s); run fsck.kvfs",
		       l->store->path, l->name.s, l->edit_no, what, kv_err_text(err));
}

/* No number may go back: what was given out once would be given out again (K3). */
static bool numbers_go_on(const struct kv_manifest_state *s, const struct kv_edit *e)
{
	if (e->has_next_fileno && (e->next_fileno < s->next_fileno || !e->next_fileno))
		return false;
	if (e->has_journal_min && e->journal_min < s->journal_min)
		return false;
	return !e->has_seqno || (e->seqno >= s->seqno && e->seqno <= KV_SEQNO_MAX);
}

static void taken(struct kv_manifest_state *s, kv_fileno number)
{
	s->next_fileno = KV_MAX(s->next_fileno, number + 1);
}

/* The edit has been applied, so its numbers are good, but for UINT64_MAX. */
static int state_apply(struct kv_manifest_state *s, const struct kv_edit *e)
{
	if (!numbers_go_on(s, e))
		return KV_E_bad_record;
	if (e->has_next_fileno)
		s->next_fileno = e->next_fileno;
	if (e->has_journal_min)
		s->journal_min = e->journal_min;
	if (e->has_seqno)
		s->seqno = e->seqno;
	/* What files say of themselves counts too, if the edit does not say it. */
	for (size_t i = 0; i < e->add_count; i++) {
		if (e->adds[i].meta.number == UINT64_MAX)
			return KV_E_bad_record;
		taken(s, e->adds[i].meta.number);
		s->seqno = KV_MAX(s->seqno, e->adds[i].meta.seqno_max);
	}
	for (size_t i = 0; i < e->segment_add_count; i++) {
		if (e->segment_adds[i].number == UINT64_MAX)
			return KV_E_bad_record;
		taken(s, e->segment_adds[i].number);
	}
	return 0;
}

static int load_edit(struct load *l, const struct kv_chunk *chunk)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	struct kv_version *next;
	int err;

	l->edit_no++;
	if (chunk->seqno != l->edit_no)
		return load_fail(l, KV_E_bad_record, "has another number");
	err = kv_edit_decode(chunk->payload, &e);
	if (err)
		return load_fail(l, err, "cannot be understood");
	if (e.is_snapshot != (l->edit_no == 1))
		return load_fail(l, KV_E_bad_record, "does not follow from the one before");
	if (e.is_snapshot && !(e.has_next_fileno && e.has_journal_min && e.has_seqno))
		return load_fail(l, KV_E_bad_record, "is not the whole state, as the first should be");
	err = kv_version_apply(l->version, &e, l->sink, &next);
	if (err)
		return load_fail(l, err, "does not fit the files named before");
	kv_version_unref(l->version);
	l->version = next;
	err = state_apply(&l->state, &e);
	return err ? load_fail(l, err, "has numbers that go back") : 0;
}

static int load_chunk(struct load *l, const struct kv_chunk *chunk)
{
	if (l->closed)
		return load_fail(l, KV_E_bad_record, "is followed by something after the end");
	switch (chunk->type) {
	case KV_CHUNK_EDIT:
		return load_edit(l, chunk);
	case KV_CHUNK_MARK:
		return 0;
	case KV_CHUNK_END:
		l->closed = true;
		return 0;
	default:
		return load_fail(l, KV_E_bad_record, "is followed by what does not belong here");
	}
}

/*
 * The last edit may be torn: it was never acknowledged, nothing was done that
 * rests on it, and the files that it names are of no use to anybody (K8).
 */
static int load_tail(struct load *l)
{
	struct kv_journal_tail tail;

	kv_journal_tail(l->reader, &tail);
	if (tail.torn_bytes)
		kv_msg(&l->store->msg, KV_MSG_INFO,
		       "%s/%s: leaving out %" PRIu64
		       " bytes behind edit %" PRIu64 " that were never acknowledged",
		       l->store->path, l->name.s, tail.torn_bytes, l->edit_no);
	if (!l->edit_no)
		return kv_fail(&l->store->msg, KV_E_corrupt,
			       "%s/%s: damaged, it does not begin with the state of the store; "
			       "run fsck.kvfs",
			       l->store->path, l->name.s);
	return 0;
}

int kv_manifest_load(struct kv_store *s, kv_fileno manifest_no,
		     const struct kv_obsolete_sink *sink, struct kv_version **out_version,
		     struct kv_manifest_state *out_state)
{
	KV_AUTO(load_done) struct load l = {
		.store = s,
		.name = kv_filename(KV_FILE_MANIFEST, manifest_no),
		.sink = sink,
	};
	struct kv_chunk chunk;
	bool end;

	KV_TRY(kv_journal_open(s, KV_FILE_MANIFEST, manifest_no, &l.reader));
	for (;;) {
		KV_TRY(kv_journal_read(l.reader, &chunk, &end));
		if (end)
			break;
		KV_TRY(load_chunk(&l, &chunk));
	}
	KV_TRY(load_tail(&l));
	if (manifest_no < UINT64_MAX)
		taken(&l.state, manifest_no);
	*out_version = l.version;
	*out_state = l.state;
	l.version = NULL;
	return 0;
}

/* --- writing ------------------------------------------------------------------------------ */

/*
 * Once writing has begun, no failure may look like one of those after which
 * nothing has happened: the edit may be in the file.
 */
static int not_harmless(int err)
{
	return err == -ENOMEM || err == KV_E_no_space ? -EIO : err;
}

static bool is_no_space(int err)
{
	return err == -ENOSPC || err == -EDQUOT;
}

/* Appends the edit, and makes it and all before it durable. */
static int append_durably(struct kv_manifest *m, const struct kv_edit *e)
{
	struct iovec iov;
	int err;

	kv_buf_reset(&m->encoded);
	KV_TRY(kv_edit_encode(e, &m->encoded));
	if (m->encoded.bytes > KV_CHUNK_PAYLOAD_MAX)
		return KV_E_too_big;
	KV_TRY(kv_journal_reserve(m->journal, m->encoded.bytes));
	iov = (struct iovec){ .iov_base = m->encoded.data, .iov_len = m->encoded.bytes };
	err = kv_journal_append(m->journal, KV_CHUNK_EDIT, m->edit_no + 1, 1, &iov, 1);
	if (err)
		return not_harmless(err);
	m->edit_no++;
	return not_harmless(kv_journal_sync(m->journal));
}

/*
 * CRASH: the mark says that the edit before it was promised. Without it, damage
 * to the edit would look like a torn tail, and be forgiven (K8). It is not
 * synced: a crash may lose it, and then only damage to the very last edit cannot
 * be told from one that never arrived.
 *
 * The edit is durable, whatever becomes of the mark. A failure poisons the
 * file, and so fails the next append.
 */
static void append_mark(struct kv_manifest *m)
{
	int err = kv_journal_append(m->journal, KV_CHUNK_MARK, m->edit_no, 0, NULL, 0);

	if (err)
		kv_msg(&m->store->msg, KV_MSG_WARN, "%s/%s: cannot be written any more: %s",
		       m->store->path, kv_filename(KV_FILE_MANIFEST, kv_manifest_number(m)).s,
		       kv_err_text(err));
}

int kv_manifest_append(struct kv_manifest *m, const struct kv_edit *e)
{
	uint64_t edit_no = m->edit_no + 1;
	int err;

	KV_ASSERT(e->is_snapshot || !e->snapshot_add_count ||
		  m->store->features_required & KV_FEATURE_NAMED_SNAPSHOTS);
	err = append_durably(m, e);
	if (err)
		return kv_fail(&m->store->msg, err, "%s/%s: edit %" PRIu64 " cannot be written: %s",
			       m->store->path,
			       kv_filename(KV_FILE_MANIFEST, kv_manifest_number(m)).s, edit_no,
			       kv_err_text(err));
	append_mark(m);
	return 0;
}

static int state_to_edit(const struct kv_version *v, const struct kv_manifest_state *state,
			 struct kv_edit *out)
{
	KV_TRY(kv_version_to_edit(v, out));
	out->is_snapshot = true;
	out->has_next_fileno = out->has_journal_min = out->has_seqno = true;
	out->next_fileno = state->next_fileno;
	out->journal_min = state->journal_min;
	out->seqno = state->seqno;
	return 0;
}

static void manifest_freep(struct kv_manifest **m)
{
	kv_manifest_free(*m);
}

static int write_state(struct kv_manifest *m, kv_fileno number, const struct kv_edit *e)
{
	KV_TRY(kv_journal_create(m->store, KV_FILE_MANIFEST, number, ALLOCATE_BYTES, &m->journal));
	KV_TRY(kv_manifest_append(m, e));
	m->begin_bytes = kv_journal_bytes(m->journal);
	return 0;
}

/*
 * Points the root to the manifest. If that fails and the root names another
 * one still, nothing has happened, and the failure may be a harmless one.
 *
 * CRASH: the manifest's content is durable by now, and kv_root_write() makes its
 * name durable before the root gets to point to it. If it fails later, both
 * manifests must stay: which of them the root will name after a crash is not
 * known, and both say the same.
 */
static int point_root(struct kv_store *s, kv_fileno number)
{
	struct kv_store quiet = *s;
	struct kv_root root;
	int err = kv_root_write(s, number), read_err;

	if (!err)
		return 0;
	quiet.msg.fn = NULL;
	read_err = kv_root_read(&quiet, &root);
	/* There is none at all while a store is being made. */
	if (read_err == KV_E_not_a_store ||
	    (!read_err && kv_le64_get(root.manifest_no) != number)) {
		(void)kv_store_unlink(s, KV_FILE_MANIFEST, number);
		return is_no_space(err) ? KV_E_no_space : err;
	}
	return is_no_space(err) ? -EIO : not_harmless(err);
}

/* What the root has to say of the manifest: set while it names snapshots, and not for longer. */
static void set_features(struct kv_store *s, const struct kv_version *v)
{
	s->features_required &= ~KV_FEATURE_NAMED_SNAPSHOTS;
	if (v->snapshots)
		s->features_required |= KV_FEATURE_NAMED_SNAPSHOTS;
}

int kv_manifest_create(struct kv_store *s, kv_fileno number, const struct kv_version *v,
		       const struct kv_manifest_state *state, struct kv_manifest **out)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	KV_AUTO(manifest_freep) struct kv_manifest *m = NULL;
	uint64_t features;
	int err;

	KV_ASSERT(number && number < state->next_fileno);
	KV_TRY(state_to_edit(v, state, &e));
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->store = s;
	err = write_state(m, number, &e);
	if (err) {
		/* Nothing points to it. If it stays, the next opening removes it. */
		if (m->journal)
			(void)kv_store_unlink(s, KV_FILE_MANIFEST, number);
		return is_no_space(err) ? KV_E_no_space : err;
	}
	features = s->features_required;
	set_features(s, v);
	err = point_root(s, number);
	if (err) {
		s->features_required = features;
		return err;
	}
	*out = m;
	m = NULL;
	return 0;
}

int kv_manifest_close(struct kv_manifest *m)
{
	int err;

	err = kv_journal_append(m->journal, KV_CHUNK_END, m->edit_no, 0, NULL, 0);
	if (!err)
		err = kv_journal_sync(m->journal);
	if (err)
		err = kv_fail(&m->store->msg, err, "%s/%s: cannot be ended: %s", m->store->path,
			      kv_filename(KV_FILE_MANIFEST, kv_manifest_number(m)).s,
			      kv_err_text(err));
	kv_manifest_free(m);
	return err;
}

void kv_manifest_free(struct kv_manifest *m)
{
	if (!m)
		return;
	kv_journal_free(m->journal);
	kv_buf_done(&m->encoded);
	free(m);
}

uint64_t kv_manifest_bytes(const struct kv_manifest *m)
{
	return kv_journal_bytes(m->journal);
}

bool kv_manifest_is_long(const struct kv_manifest *m)
{
	return kv_manifest_bytes(m) > KV_MAX(LONG_BYTES_MIN, LONG_FACTOR * m->begin_bytes);
}

kv_fileno kv_manifest_number(const struct kv_manifest *m)
{
	return kv_journal_number(m->journal);
}
