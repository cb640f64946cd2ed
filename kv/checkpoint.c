/*
 * A checkpoint: a second store that shares all finished files with this one.
 *
 * After a flush the version and its seqno are a prefix of all batches. Its tables and sealed
 * segments are never modified again by anybody (K11), so they get a second name, in the new directory. A
 * segment that tables refer to, but that is still being written, is copied as far as it is durable, which
 * is further than any table of the version points (K5), and is sealed in the copy. Segments that no table
 * refers to are left out. A new manifest names all that, with a new, empty journal.
 *
 * The version is held all the while, so none of its files is deleted (K12).
 *
 * CRASH: what is copied and the journal are synced, and all names are durable, before the
 * root is made, which comes last (kv_manifest_create). Stop before it: the directory is no store. Cleaning up
 * begins with the root, durably, so that there never is a root whose files are not all there.
 */
#include "kv/db.h"

#include <inttypes.h>

#include "kv/recover.h"

#define COPY_BYTES (256 * KV_KIB)

/* A segment of the version that is still being written. */
struct open_segment {
	kv_fileno number;
	uint64_t bytes;		/* durable, and all that any table of the version needs */
};

struct checkpoint {
	struct kv_db *db;
	struct kv_version *version;
	struct kv_manifest_state state;
	struct open_segment *open;
	size_t open_count;
	struct kv_store to;
	struct kv_env_file *lock;	/* of the new directory */
	bool made;			/* what is in the directory is ours */
	struct kv_edit edit;		/* the whole state of the new store */
};

static void checkpoint_done(struct checkpoint *c)
{
	kv_edit_done(&c->edit);
	kv_version_unref(c->version);
	free(c->open);
	if (c->lock)
		c->to.env->ops->close(c->lock);
	if (c->to.dir)
		c->to.env->ops->dir_close(c->to.dir);
}

static int fail(struct checkpoint *c, int err, const char *name, const char *what)
{
	if (err == -EXDEV)
		err = KV_E_other_filesystem;
	return kv_fail(&c->to.msg, kv_err_space(err), "%s/%s: %s: %s", c->to.path, name, what,
		       kv_err_text(err));
}

/* --- which state -------------------------------------------------------------------------- */

/*
 * A segment leaves the list only after the edit that seals it, so what the version
 * knows as not sealed is on the list in the same moment.
 */
static void note_open_locked(struct kv_db *db, struct checkpoint *c) KV_REQUIRES(&db->mu)
{
	kv_list_for_each(l, &db->segments) {
		struct kv_live_segment *s = kv_container_of(l, struct kv_live_segment, link);
		struct kv_version_segment *v = kv_version_segment(c->version, s->number);

		if (!v || v->sealed || !v->table_count)
			continue;
		KV_ASSERT(c->open); /* has room for as many as the version has */
		c->open[c->open_count++] = (struct open_segment){
			s->number, kv_segment_synced(s->writer)
		};
	}
}

static int choose_state(struct checkpoint *c)
{
	struct kv_db *db = c->db;
	size_t room = 0, unsealed = 0;

	for (;;) {
		kv_mutex_lock(&db->mu);
		if (room >= db->version->segment_count)
			break;
		room = db->version->segment_count + 8;
		kv_mutex_unlock(&db->mu);
		free(c->open);
		c->open = calloc(room, sizeof(*c->open));
		if (!c->open)
			return -ENOMEM;
	}
	c->version = kv_version_ref(db->version);
	c->state = db->state;
	note_open_locked(db, c);
	kv_mutex_unlock(&db->mu);
	for (size_t i = 0; i < c->version->segment_count; i++)
		unsealed += !c->version->segments[i].sealed && c->version->segments[i].table_count;
	KV_ASSERT(c->open_count == unsealed);
	return 0;
}

/* Everything so far is in tables, and what can be sealed is: a link is cheaper than a copy. */
static int settle(struct kv_db *db)
{
	bool did = true;

	KV_TRY(kv_flush(db));
	while (did)
		KV_TRY(kv_live_segment_seal_one(db, &did));
	return 0;
}

/* --- the directory ------------------------------------------------------------------------ */

static int fail_exists(struct checkpoint *c)
{
	return kv_fail(&c->to.msg, -EEXIST, "%s: exists; a checkpoint is made in a new directory",
		       c->to.path);
}

/* Somebody else may make the same directory at the same moment: the lock tells whose it is. */
static int claim_dir(struct checkpoint *c)
{
	struct kv_dir_files files = { 0 };
	int err = c->to.env->ops->lock(c->to.dir, KV_NAME_LOCK, false, &c->lock);

	if (err == -EBUSY)
		return fail_exists(c);
	if (err)
		return fail(c, err, KV_NAME_LOCK, "cannot be locked");
	err = kv_dir_files_read(&c->to, &files);
	if (!err && (files.has_root || files.count || files.foreign[0]))
		err = fail_exists(c);
	kv_dir_files_done(&files);
	return err;
}

static int make_dir(struct checkpoint *c)
{
	const struct kv_env_ops *ops = c->to.env->ops;
	struct kv_env_dir *there;
	int err = ops->dir_open(c->to.env, c->to.path, false, &there);

	if (!err)
		ops->dir_close(there);
	if (!err || err == -ENOTDIR)
		return fail_exists(c);
	if (err == -ENOENT)
		err = ops->dir_open(c->to.env, c->to.path, true, &c->to.dir);
	if (err)
		return kv_fail(&c->to.msg, kv_err_space(err), "%s: cannot be made: %s", c->to.path,
			       kv_err_text(err));
	/* If it is not empty now, it was not made by us. */
	err = claim_dir(c);
	c->made = err != -EEXIST;
	return err;
}

/* Only files with our names are removed; with any other, the directory stays. */
static int remove_files(struct checkpoint *c)
{
	const struct kv_env_ops *ops = c->to.env->ops;
	struct kv_dir_files files = { 0 };
	int err = kv_dir_files_read(&c->to, &files);

	for (size_t i = 0; i < files.count && !err; i++)
		err = kv_store_unlink(&c->to, files.at[i].kind, files.at[i].number);
	kv_dir_files_done(&files);
	if (!err)
		err = ops->unlink(c->to.dir, KV_NAME_ROOT_NEW);
	if (!err || err == -ENOENT)
		err = ops->unlink(c->to.dir, KV_NAME_LOCK);
	return err == -ENOENT ? 0 : err;
}

/* After a failure. If it fails, too, a directory stays that is no store, or a whole one. */
static void clean_up(struct checkpoint *c)
{
	const struct kv_env_ops *ops = c->to.env->ops;
	int err = ops->unlink(c->to.dir, KV_NAME_ROOT);

	if (!err || err == -ENOENT)
		err = ops->dir_sync(c->to.dir);
	if (!err)
		err = remove_files(c);
	ops->close(c->lock);
	ops->dir_close(c->to.dir);
	c->lock = NULL;
	c->to.dir = NULL;
	if (!err)
		err = ops->dir_remove(c->to.env, c->to.path);
	if (err)
		kv_msg(&c->to.msg, KV_MSG_WARN,
		       "%s: what there is of the checkpoint cannot be removed: %s", c->to.path,
		       kv_err_text(err));
}

/* --- files -------------------------------------------------------------------------------- */

static int link_file(struct checkpoint *c, enum kv_file_kind kind, kv_fileno number)
{
	struct kv_filename name = kv_filename(kind, number);
	int err = c->to.env->ops->link(c->db->store.dir, name.s, c->to.dir, name.s);

	return err ? fail(c, err, name.s, "cannot be linked") : 0;
}

static int copy_bytes(struct kv_env *env, struct kv_env_file *from, struct kv_env_file *to,
		      uint64_t bytes)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	size_t n;

	if (!kv_buf_grow(&b, COPY_BYTES))
		return -ENOMEM;
	for (uint64_t at = 0; at < bytes; at += n) {
		n = (size_t)KV_MIN(bytes - at, COPY_BYTES);
		KV_TRY(kv_env_read_exact(env, from, b.data, n, at));
		KV_TRY(kv_env_write(env, to, kv_slice(b.data, n), at));
	}
	return env->ops->sync(to);
}

/* With its header, which has the same number and the same store's id. */
static int copy_segment(struct checkpoint *c, const struct open_segment *s)
{
	struct kv_filename name = kv_filename(KV_FILE_SEGMENT, s->number);
	struct kv_env *env = c->to.env;
	struct kv_env_file *from, *to;
	int err;

	KV_TRY(kv_store_open_file(&c->db->store, KV_FILE_SEGMENT, s->number, &from));
	err = env->ops->open(c->to.dir, name.s, KV_ENV_CREATE, &to);
	if (!err) {
		err = copy_bytes(env, from, to, s->bytes);
		env->ops->close(to);
	}
	env->ops->close(from);
	return err ? fail(c, err, name.s, "cannot be copied") : 0;
}

static int take_segments(struct checkpoint *c)
{
	for (size_t i = 0; i < c->version->segment_count; i++) {
		const struct kv_version_segment *s = &c->version->segments[i];

		if (!s->sealed || !s->table_count)
			continue;
		KV_TRY(link_file(c, KV_FILE_SEGMENT, s->number));
		KV_TRY(kv_edit_add_segment(&c->edit, s->number));
		KV_TRY(kv_edit_seal_segment(&c->edit, s->number, s->bytes));
	}
	for (size_t i = 0; i < c->open_count; i++) {
		KV_TRY(copy_segment(c, &c->open[i]));
		KV_TRY(kv_edit_add_segment(&c->edit, c->open[i].number));
		KV_TRY(kv_edit_seal_segment(&c->edit, c->open[i].number, c->open[i].bytes));
	}
	return 0;
}

static int take_tables(struct checkpoint *c)
{
	for (int level = 0; level < KV_LEVELS; level++)
		for (size_t i = 0; i < c->version->levels[level].count; i++) {
			const struct kv_table *t = c->version->levels[level].tables[i];

			KV_TRY(link_file(c, KV_FILE_TABLE, t->meta.number));
			KV_TRY(kv_edit_add_table(&c->edit, level, &t->meta));
		}
	return 0;
}

/* --- the root ----------------------------------------------------------------------------- */

/* An empty one that follows what is in the tables, as a closed store has it. */
static int make_journal(struct checkpoint *c, kv_fileno number)
{
	struct kv_journal_begin begin = { .seqno = kv_le64(c->state.seqno) };
	struct iovec iov = { &begin, sizeof(begin) };
	struct kv_journal *j;
	int err;

	KV_TRY(kv_journal_create(&c->to, KV_FILE_JOURNAL, number, 0, &j));
	err = kv_journal_append(j, KV_CHUNK_BEGIN, c->state.seqno, 0, &iov, 1);
	if (!err)
		err = kv_journal_append(j, KV_CHUNK_END, c->state.seqno, 0, NULL, 0);
	if (!err)
		err = kv_journal_sync(j);
	kv_journal_free(j);
	return err ? fail(c, err, kv_filename(KV_FILE_JOURNAL, number).s, "cannot be written") : 0;
}

/* One that was made after the flush may have seen more than is in the tables. */
static int take_snapshots(struct checkpoint *c)
{
	const struct kv_snapset *s = c->version->snapshots;

	for (size_t i = 0; s && i < s->count; i++)
		if (s->at[i].seqno <= c->state.seqno)
			KV_TRY(kv_edit_add_snapshot(&c->edit, &s->at[i]));
	return 0;
}

static int make_store(struct checkpoint *c)
{
	kv_fileno journal_no = c->state.next_fileno++, manifest_no = c->state.next_fileno++;
	struct kv_manifest *m;
	struct kv_version *v;
	int err;

	KV_TRY(make_journal(c, journal_no));
	c->state.journal_min = journal_no;
	KV_TRY(take_snapshots(c));
	KV_TRY(kv_version_apply(NULL, &c->edit, NULL, &v));
	err = kv_manifest_create(&c->to, manifest_no, v, &c->state, &m);
	if (!err)
		kv_manifest_free(m);	/* as a crash would leave it: that is good enough to read */
	kv_version_unref(v);
	return kv_err_space(err);
}

static int fill_dir(struct checkpoint *c)
{
	KV_TRY(take_tables(c));
	KV_TRY(take_segments(c));
	return make_store(c);
}

static int run(struct checkpoint *c)
{
	int err;

	KV_TRY(settle(c->db));
	KV_TRY(choose_state(c));
	err = make_dir(c);
	if (!err)
		err = fill_dir(c);
	if (err && c->made)
		clean_up(c);
	return err;
}

int kv_checkpoint(struct kv_db *db, const char *dir)
{
	struct checkpoint c = { .db = db, .to = db->store };
	int err;

	if (db->options.read_only)
		return KV_E_read_only;
	c.to.path = dir;
	c.to.dir = NULL;
	err = run(&c);
	checkpoint_done(&c);
	/* What was kept for the checkpoint only may go. */
	kv_work_schedule(db);
	return err;
}
