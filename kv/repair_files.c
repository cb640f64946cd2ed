/*
 * The directory of a damaged store: which files there are, whose they are, and what is done with
 * those that are lost.
 */
#include <inttypes.h>
#include <stdio.h>

#include "kv/journal_chunk.h"
#include "kv/repair_impl.h"

#define LOST ".lost"
#define MEND ".mend"
#define WINDOW_BYTES KV_MIB
#define PAGE_BYTES 4096
/* What looks like chunks may overlap; real ones don't. Beyond the size of the file, so many bytes are summed. */
#define SUM_BYTES_MAX (8 * (uint64_t)KV_CHUNK_PAYLOAD_MAX)

struct suffixed {
	char s[KV_NAME_BYTES_MAX + 8];
};

static struct suffixed suffixed(const struct kv_repair_file *f, const char *suffix)
{
	struct suffixed name;

	snprintf(name.s, sizeof(name.s), "%s%s", kv_filename(f->kind, f->number).s, suffix);
	return name;
}

static int fail(struct kv_repair *r, const struct kv_repair_file *f, int err, const char *what)
{
	return kv_fail(&r->db->store.msg, kv_err_space(err), "%s/%s: %s: %s", r->db->store.path,
		       kv_filename(f->kind, f->number).s, what, kv_err_text(err));
}

/* --- bytes that may not be readable --------------------------------------------------------- */

/* Zeros are given for what isn't. */
struct window {
	struct kv_repair *r;
	struct kv_env_file *file;
	uint64_t file_bytes;
	struct kv_buf bytes;
	uint64_t offset;
};

static int window_open(struct kv_repair *r, enum kv_file_kind kind, kv_fileno number,
			  struct window *out)
{
	const struct kv_env_ops *ops = r->db->store.env->ops;
	struct kv_repair_file f = { .kind = kind, .number = number };
	struct kv_env_file *file;
	uint64_t bytes;
	int err;

	err = ops->open(r->db->store.dir, kv_filename(kind, number).s, KV_ENV_READ, &file);
	if (err)
		return fail(r, &f, err, "cannot be opened");
	err = ops->size(file, &bytes);
	if (err) {
		ops->close(file);
		return fail(r, &f, err, "its size cannot be told");
	}
	*out = (struct window){ .r = r, .file = file, .file_bytes = bytes };
	return 0;
}

static void window_done(struct window *w)
{
	if (w->file)
		w->r->db->store.env->ops->close(w->file);
	w->file = NULL;
	kv_buf_done(&w->bytes);
}

static int read_pages(struct window *w, uint8_t *to, size_t bytes, uint64_t offset)
{
	const struct kv_env_ops *ops = w->r->db->store.env->ops;
	size_t got, n;
	int err;

	for (size_t at = 0; at < bytes; at += n) {
		n = KV_MIN(bytes - at, (size_t)PAGE_BYTES);
		err = ops->pread(w->file, to + at, n, offset + at, &got);
		if (err && err != -EIO)
			return err;
		got = err ? 0 : got;
		memset(to + at + got, 0, n - got);
	}
	return 0;
}

static int window_at(struct window *w, uint64_t offset, size_t bytes,
			const uint8_t **out)
{
	size_t want, got;
	uint8_t *to;
	int err;

	KV_ASSERT(offset <= w->file_bytes && bytes <= w->file_bytes - offset);
	if (offset < w->offset || offset - w->offset > w->bytes.bytes ||
	    bytes > w->bytes.bytes - (size_t)(offset - w->offset)) {
		want = (size_t)KV_MIN(KV_MAX(bytes, WINDOW_BYTES), w->file_bytes - offset);
		kv_buf_reset(&w->bytes);
		to = kv_buf_grow(&w->bytes, want);
		if (!to)
			return -ENOMEM;
		w->offset = offset;
		err = w->r->db->store.env->ops->pread(w->file, to, want, offset, &got);
		if (!err)
			memset(to + got, 0, want - got);
		if (err == -EIO)
			err = read_pages(w, to, want, offset);
		if (err) {
			kv_buf_reset(&w->bytes);
			return err;
		}
	}
	*out = w->bytes.data + (size_t)(offset - w->offset);
	return 0;
}

/* --- which there are ---------------------------------------------------------------------- */

static int cmp_files(const void *pa, const void *pb)
{
	const struct kv_repair_file *a = pa, *b = pb;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

/* A number of a file that was lost before is not given again (K3). */
static void note_lost(struct kv_repair *r, const char *name)
{
	char stem[KV_NAME_BYTES_MAX];
	size_t bytes = strlen(name), end = bytes - strlen(LOST);
	enum kv_file_kind kind;
	kv_fileno number;

	if (bytes < strlen(LOST) || strcmp(name + end, LOST) || end >= sizeof(stem))
		return;
	memcpy(stem, name, end);
	stem[end] = 0;
	if (!kv_filename_parse(stem, &kind, &number) || number >= UINT64_MAX - KV_GIB)
		return;
	r->db->state.next_fileno = KV_MAX(r->db->state.next_fileno, number + 1);
}

static int note_file(void *arg, const char *name)
{
	struct kv_repair_file f = { 0 };
	struct kv_repair *r = arg;

	if (!kv_filename_parse(name, &f.kind, &f.number)) {
		note_lost(r, name);
		return 0;
	}
	if (r->found_count == r->found_max) {
		size_t n = r->found_max ? 2 * r->found_max : 64;
		struct kv_repair_file *grown = realloc(r->found, n * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		r->found = grown;
		r->found_max = n;
	}
	r->found[r->found_count++] = f;
	/* One with an absurd number is nobody's, and must not use the numbers up. */
	if (f.number < UINT64_MAX - KV_GIB)
		r->db->state.next_fileno = KV_MAX(r->db->state.next_fileno, f.number + 1);
	else
		r->found[r->found_count - 1].foreign = true;
	return 0;
}

int kv_repair_list(struct kv_repair *r)
{
	int err = r->db->store.env->ops->dir_list(r->db->store.dir, note_file, r);

	if (err)
		return kv_fail(&r->db->store.msg, err, "%s: cannot be listed: %s", r->db->store.path,
			       kv_err_text(err));
	if (r->found_count)
		qsort(r->found, r->found_count, sizeof(*r->found), cmp_files);
	return 0;
}

struct kv_repair_file *kv_repair_find(const struct kv_repair *r, enum kv_file_kind kind,
				      kv_fileno number)
{
	struct kv_repair_file key = { .kind = kind, .number = number };

	return r->found_count ? bsearch(&key, r->found, r->found_count, sizeof(key), cmp_files) :
				NULL;
}

/* --- whose they are ----------------------------------------------------------------------- */

/* *out_readable false: nothing can be said of it. Sets the size. */
static int read_header(struct kv_repair *r, struct kv_repair_file *f, struct kv_file_header *h,
		       bool *out_readable)
{
	const struct kv_env_ops *ops = r->db->store.env->ops;
	struct kv_env_file *file;
	size_t got = 0;
	int err;

	memset(h, 0, sizeof(*h));
	err = ops->open(r->db->store.dir, kv_filename(f->kind, f->number).s, KV_ENV_READ, &file);
	if (err)
		return fail(r, f, err, "cannot be opened");
	err = ops->size(file, &f->bytes);
	if (!err)
		err = ops->pread(file, h, sizeof(*h), 0, &got);
	ops->close(file);
	*out_readable = !err && got == sizeof(*h) &&
			!memcmp(h->magic, KV_FILE_MAGIC, sizeof(h->magic));
	return err && err != -EIO ? fail(r, f, err, "cannot be read") : 0;
}

struct votes {
	uint8_t id[KV_STORE_ID_BYTES];
	size_t count;
};

static int vote(struct votes **all, size_t *count, const uint8_t *id)
{
	struct votes *grown;

	for (size_t i = 0; i < *count; i++)
		if (!memcmp((*all)[i].id, id, KV_STORE_ID_BYTES)) {
			(*all)[i].count++;
			return 0;
		}
	grown = realloc(*all, (*count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	*all = grown;
	memcpy(grown[*count].id, id, KV_STORE_ID_BYTES);
	grown[(*count)++].count = 1;
	return 0;
}

int kv_repair_elect_id(struct kv_repair *r)
{
	struct votes *all = NULL;
	size_t count = 0, best = 0;
	int err = 0;

	for (size_t i = 0; i < r->found_count && !err; i++) {
		struct kv_repair_file *f = &r->found[i];
		struct kv_file_header h;
		bool readable = false;

		err = read_header(r, f, &h, &readable);
		if (!err && readable && !f->foreign &&
		    !kv_file_header_check(&h, f->kind, f->number, h.store_id))
			err = vote(&all, &count, h.store_id);
	}
	for (size_t i = 1; i < count; i++)
		if (all[i].count > all[best].count)
			best = i;
	if (!err && count)
		memcpy(r->db->store.store_id, all[best].id, sizeof(r->db->store.store_id));
	free(all);
	if (!err && !count)
		return kv_fail(&r->db->store.msg, KV_E_not_a_store,
			       "%s: not a kv store, or no file of it tells which one it is",
			       r->db->store.path);
	return err;
}

/* --- headers ------------------------------------------------------------------------------ */

static int copy_rest(struct kv_repair *r, struct window *from, struct kv_env_file *to)
{
	const uint8_t *bytes;
	size_t n;

	for (uint64_t at = sizeof(struct kv_file_header); at < from->file_bytes; at += n) {
		n = (size_t)KV_MIN(from->file_bytes - at, WINDOW_BYTES);
		KV_TRY(window_at(from, at, n, &bytes));
		KV_TRY(kv_env_write(r->db->store.env, to, kv_slice(bytes, n), at));
	}
	return 0;
}

/* A good header, and behind it what f has (NULL: nothing), and zeros up to as many bytes. */
static int write_anew(struct kv_repair *r, const struct kv_repair_file *f, kv_fileno number,
		      enum kv_file_kind kind, uint64_t bytes, struct kv_env_file *to)
{
	KV_AUTO(window_done) struct window w = { 0 };
	const struct kv_env_ops *ops = r->db->store.env->ops;
	struct kv_file_header h;

	kv_file_header_make(&h, kind, number, r->db->store.store_id);
	KV_TRY(kv_env_write(r->db->store.env, to, kv_slice(&h, sizeof(h)), 0));
	if (f) {
		KV_TRY(window_open(r, f->kind, f->number, &w));
		KV_TRY(copy_rest(r, &w, to));
		bytes = KV_MAX(bytes, f->bytes);
	}
	KV_TRY(ops->truncate(to, KV_MAX(bytes, sizeof(h))));
	return ops->sync(to);
}

/*
 * Writes the file anew, since it may have a name in a checkpoint as well (K11).
 *
 * CRASH: the copy is durable before it gets the name, and says what the old one did.
 */
static int replace(struct kv_repair *r, const struct kv_repair_file *f, enum kv_file_kind kind,
		   kv_fileno number, uint64_t bytes)
{
	const struct kv_repair_file it = { .kind = kind, .number = number };
	const struct kv_env_ops *ops = r->db->store.env->ops;
	struct suffixed name = suffixed(&it, MEND);
	struct kv_env_file *to;
	int err;

	err = ops->unlink(r->db->store.dir, name.s); /* of a repair that was killed */
	if (!err || err == -ENOENT)
		err = ops->open(r->db->store.dir, name.s, KV_ENV_CREATE, &to);
	if (!err) {
		err = write_anew(r, f, number, kind, bytes, to);
		ops->close(to);
	}
	if (!err)
		err = ops->rename(r->db->store.dir, name.s, kv_filename(kind, number).s);
	if (!err)
		return ops->dir_sync(r->db->store.dir);
	(void)ops->unlink(r->db->store.dir, name.s); /* nobody looks at it */
	return fail(r, &it, err, "cannot be written anew");
}

int kv_repair_mend(struct kv_repair *r, struct kv_repair_file *f)
{
	if (!f->bad_header || f->foreign || f->bytes <= sizeof(struct kv_file_header))
		return 0;
	r->report->damaged = true;
	if (r->dry)
		return 0;
	KV_TRY(replace(r, f, f->kind, f->number, 0));
	f->bad_header = false;
	r->report->headers_mended++;
	kv_repair_note(r, "%s: its header was damaged, and has been written anew",
		       kv_filename(f->kind, f->number).s);
	return 0;
}

int kv_repair_stand_in(struct kv_repair *r, struct kv_repair_file *f, kv_fileno segment_no,
		       uint64_t bytes)
{
	bool there = f && !f->foreign;

	if (there)
		KV_TRY(kv_repair_mend(r, f));
	bytes = KV_MAX(bytes, sizeof(struct kv_file_header));
	if (there && !f->bad_header && f->bytes >= bytes)
		return 0;
	r->report->damaged = true;
	r->report->segments_missing++;
	kv_repair_lost(r, there ? "%s: is too short: what lay behind its end is lost" :
				  "%s: is missing: all values that lay in it are lost",
		       kv_filename(KV_FILE_SEGMENT, segment_no).s);
	return r->dry ? 0 : replace(r, there ? f : NULL, KV_FILE_SEGMENT, segment_no, bytes);
}

static int look_at_header(struct kv_repair *r, struct kv_repair_file *f)
{
	struct kv_file_header h;
	bool readable = false;
	int err;

	if (f->foreign)
		return 0;
	KV_TRY(read_header(r, f, &h, &readable));
	err = readable ? kv_file_header_check(&h, f->kind, f->number, r->db->store.store_id) :
			 KV_E_bad_sum;
	if (err == KV_E_newer_format)
		return fail(r, f, err, "it is not known to this program");
	f->foreign = err == KV_E_bad_record;
	f->bad_header = err == KV_E_bad_sum;
	return 0;
}

/*
 * Is it a journal or manifest that was in use? One that was being made when the power failed has no
 * good header either, and is no loss: nothing lies behind it, or it is not the manifest that the root names.
 */
static int was_in_use(struct kv_repair *r, const struct kv_repair_file *f, bool *out)
{
	KV_AUTO(window_done) struct window w = { 0 };
	const uint8_t *at;
	le32 magic;

	*out = false;
	if (!f->bad_header || f->kind == KV_FILE_TABLE || f->kind == KV_FILE_SEGMENT ||
	    f->bytes < sizeof(struct kv_file_header) + sizeof(magic) ||
	    (f->kind == KV_FILE_MANIFEST && r->root_is_good && f->number != r->manifest_no))
		return 0;
	KV_TRY(window_open(r, f->kind, f->number, &w));
	KV_TRY(window_at(&w, sizeof(struct kv_file_header), sizeof(magic), &at));
	memcpy(&magic, at, sizeof(magic));
	*out = kv_le32_get(magic) == KV_CHUNK_MAGIC;
	return 0;
}

int kv_repair_headers(struct kv_repair *r)
{
	for (size_t i = 0; i < r->found_count; i++) {
		struct kv_repair_file *f = &r->found[i];
		bool used = false;

		KV_TRY(look_at_header(r, f));
		KV_TRY(was_in_use(r, f, &used));
		if (used)
			KV_TRY(kv_repair_mend(r, f));
		if (!f->foreign)
			continue;
		f->lost = true;
		r->report->files_foreign++;
		r->report->damaged = true;
		kv_repair_note(r, "%s: is a file of another store, or has another file's name; it is "
			       "not taken", kv_filename(f->kind, f->number).s);
	}
	return 0;
}

/* --- what is lost ------------------------------------------------------------------------- */

int kv_repair_keep_lost(struct kv_repair *r)
{
	for (size_t i = 0; i < r->found_count; i++) {
		struct kv_repair_file *f = &r->found[i];
		int err;

		if (!f->lost)
			continue;
		err = r->db->store.env->ops->link(r->db->store.dir, kv_filename(f->kind, f->number).s,
					      r->db->store.dir, suffixed(f, LOST).s);
		/* There already: by a repair that was killed. Without links, it is renamed later. */
		if (err && err != -EEXIST && err != -EPERM && err != -EOPNOTSUPP && err != -EMLINK)
			return fail(r, f, err, "cannot be kept as " LOST);
	}
	return 0;
}

int kv_repair_forget_lost(struct kv_repair *r)
{
	const struct kv_env_ops *ops = r->db->store.env->ops;

	for (size_t i = 0; i < r->found_count; i++) {
		struct kv_repair_file *f = &r->found[i];
		struct kv_filename name = kv_filename(f->kind, f->number);
		struct kv_env_file *there;
		int err;

		if (!f->lost)
			continue;
		err = ops->open(r->db->store.dir, suffixed(f, LOST).s, KV_ENV_READ, &there);
		if (!err) {
			ops->close(there);
			err = ops->unlink(r->db->store.dir, name.s);
		} else if (err == -ENOENT) {
			err = ops->rename(r->db->store.dir, name.s, suffixed(f, LOST).s);
		}
		if (err && err != -ENOENT)
			return fail(r, f, err, "cannot be renamed");
	}
	return ops->dir_sync(r->db->store.dir);
}

/* --- chunks ------------------------------------------------------------------------------- */

/* Is there a chunk at the offset? *budget: bytes that may be summed still. */
static int chunk_at(struct window *w, uint64_t seed, uint64_t offset, uint64_t *budget,
		    struct kv_chunk *out, bool *out_valid)
{
	uint64_t left = w->file_bytes - offset;
	struct kv_chunk_header h;
	const uint8_t *at;
	size_t bytes;

	*out_valid = false;
	KV_TRY(window_at(w, offset, sizeof(h), &at));
	memcpy(&h, at, sizeof(h));
	bytes = kv_le32_get(h.payload_bytes);
	if (kv_le32_get(h.magic) != KV_CHUNK_MAGIC || bytes > KV_CHUNK_PAYLOAD_MAX ||
	    kv_chunk_bytes(bytes) > left || kv_chunk_bytes(bytes) > *budget)
		return 0;
	*budget -= kv_chunk_bytes(bytes);
	KV_TRY(window_at(w, offset, sizeof(h) + bytes, &at));
	*out_valid = kv_checksum(kv_chunk_summed((const struct kv_chunk_header *)(const void *)at,
						 bytes), seed) == kv_le64_get(h.checksum);
	*out = (struct kv_chunk){
		.type = (enum kv_chunk_type)kv_le32_get(h.type),
		.seqno = kv_le64_get(h.seqno),
		.count = kv_le32_get(h.count),
		.promised = kv_le64_get(h.promised),
		.offset = offset,
		.end = offset + kv_chunk_bytes(bytes),
		.payload = kv_slice(at + sizeof(h), bytes),
	};
	return 0;
}

int kv_repair_chunks(struct kv_repair *r, enum kv_file_kind kind, kv_fileno number,
		     kv_repair_chunk_fn *fn, void *arg)
{
	KV_AUTO(window_done) struct window w = { 0 };
	uint64_t offset = sizeof(struct kv_file_header), budget, seed = kv_chunk_seed(&r->db->store, number);
	struct kv_chunk c;
	bool valid;

	KV_TRY(window_open(r, kind, number, &w));
	budget = w.file_bytes + SUM_BYTES_MAX;
	while (offset <= w.file_bytes && w.file_bytes - offset >= sizeof(struct kv_chunk_header)) {
		KV_TRY(chunk_at(&w, seed, offset, &budget, &c, &valid));
		if (valid)
			KV_TRY(fn(arg, &c));
		offset = valid ? c.end : offset + KV_CHUNK_ALIGN;
	}
	return 0;
}
