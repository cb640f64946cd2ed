#include "kv/store.h"

#include <inttypes.h>

#include "kv/assert.h"
#include "kv/checksum.h"

#define FILE_VERSION 1		/* of each kind's format */

/* All of a struct on disk behind its checksum. */
static struct kv_slice behind(const void *at, const le64 *checksum, size_t bytes)
{
	const char *begin = (const char *)(checksum + 1);

	return kv_slice(begin, bytes - (size_t)(begin - (const char *)at));
}

/* --- the header of a file --------------------------------------------------------- */

static uint64_t header_sum(const struct kv_file_header *h)
{
	return kv_checksum(behind(h, &h->checksum, sizeof(*h)), 0);
}

void kv_file_header_make(struct kv_file_header *h, enum kv_file_kind kind, kv_fileno number,
			 const uint8_t *store_id)
{
	*h = (struct kv_file_header){
		.version = kv_le32(FILE_VERSION),
		.kind = kv_le32(kind),
		.number = kv_le64(number),
	};
	memcpy(h->magic, KV_FILE_MAGIC, sizeof(h->magic));
	memcpy(h->store_id, store_id, sizeof(h->store_id));
	h->checksum = kv_le64(header_sum(h));
}

int kv_file_header_check(const struct kv_file_header *h, enum kv_file_kind kind,
			 kv_fileno number, const uint8_t *store_id)
{
	if (memcmp(h->magic, KV_FILE_MAGIC, sizeof(h->magic)))
		return KV_E_bad_record;
	if (kv_le64_get(h->checksum) != header_sum(h))
		return KV_E_bad_sum;
	if (kv_le32_get(h->version) > FILE_VERSION || kv_le64_get(h->features_required))
		return KV_E_newer_format;
	if (kv_le32_get(h->version) != FILE_VERSION || kv_le32_get(h->kind) != (uint32_t)kind ||
	    kv_le64_get(h->number) != number ||
	    memcmp(h->store_id, store_id, sizeof(h->store_id)))
		return KV_E_bad_record;
	return 0;
}

/* --- files ---------------------------------------------------------------------------- */

int kv_store_create_file(struct kv_store *s, enum kv_file_kind kind, kv_fileno number,
			 struct kv_env_file **out_file)
{
	struct kv_filename name = kv_filename(kind, number);
	struct kv_file_header h;
	struct kv_env_file *file;
	int err;

	err = s->env->ops->open(s->dir, name.s, KV_ENV_CREATE, &file);
	if (err)
		return kv_fail(&s->msg, err, "%s/%s: cannot be made: %s", s->path, name.s,
			       kv_err_text(err));
	kv_file_header_make(&h, kind, number, s->store_id);
	err = kv_env_write(s->env, file, kv_slice(&h, sizeof(h)), 0);
	if (err) {
		s->env->ops->close(file);
		/* If that fails, too, the next opening finds a file that nobody names. */
		(void)s->env->ops->unlink(s->dir, name.s);
		return kv_fail(&s->msg, err, "%s/%s: cannot be written: %s", s->path, name.s,
			       kv_err_text(err));
	}
	*out_file = file;
	return 0;
}

static int read_header(struct kv_store *s, struct kv_env_file *file, enum kv_file_kind kind,
		       kv_fileno number)
{
	struct kv_file_header h;

	KV_TRY(kv_env_read_exact(s->env, file, &h, sizeof(h), 0));
	return kv_file_header_check(&h, kind, number, s->store_id);
}

int kv_store_open_file(struct kv_store *s, enum kv_file_kind kind, kv_fileno number,
		       struct kv_env_file **out_file)
{
	struct kv_filename name = kv_filename(kind, number);
	struct kv_env_file *file;
	int err;

	err = s->env->ops->open(s->dir, name.s, KV_ENV_READ, &file);
	if (err == -ENOENT)
		err = KV_E_missing_file;
	if (err)
		return kv_fail(&s->msg, err, "%s/%s: cannot be opened: %s", s->path, name.s,
			       kv_err_text(err));
	err = read_header(s, file, kind, number);
	if (err) {
		s->env->ops->close(file);
		return kv_fail(&s->msg, err, "%s/%s: its header is not good: %s", s->path, name.s,
			       kv_err_text(err));
	}
	*out_file = file;
	return 0;
}

int kv_store_unlink(struct kv_store *s, enum kv_file_kind kind, kv_fileno number)
{
	return s->env->ops->unlink(s->dir, kv_filename(kind, number).s);
}

/* --- the root ------------------------------------------------------------------------------ */

static uint64_t root_sum(const struct kv_root *root)
{
	return kv_checksum(behind(root, &root->checksum, sizeof(*root)), 0);
}

static int read_root_file(struct kv_store *s, struct kv_root *out, size_t *out_bytes)
{
	struct kv_env_file *file;
	int err;

	KV_TRY(s->env->ops->open(s->dir, KV_NAME_ROOT, KV_ENV_READ, &file));
	err = s->env->ops->pread(file, out, sizeof(*out), 0, out_bytes);
	s->env->ops->close(file);
	return err;
}

/* Later formats keep these 128 bytes as they are, so the sum comes before the version. */
static int check_root(struct kv_store *s, const struct kv_root *root, size_t bytes)
{
	uint32_t version = kv_le32_get(root->version);
	uint64_t unknown = kv_le64_get(root->features_required) & ~KV_FEATURES_REQUIRED_KNOWN;

	if (memcmp(root->magic, KV_ROOT_MAGIC, KV_MIN(bytes, sizeof(root->magic))))
		return kv_fail(&s->msg, KV_E_not_a_store, "%s: not a store (%s is something else)",
			       s->path, KV_NAME_ROOT);
	if (bytes < sizeof(*root))
		return kv_fail(&s->msg, KV_E_short_file, "%s/%s: damaged, only %zu of %zu bytes",
			       s->path, KV_NAME_ROOT, bytes, sizeof(*root));
	if (kv_le64_get(root->checksum) != root_sum(root))
		return kv_fail(&s->msg, KV_E_bad_sum, "%s/%s: damaged, its checksum does not match",
			       s->path, KV_NAME_ROOT);
	if (version > KV_FORMAT_VERSION)
		return kv_fail(&s->msg, KV_E_newer_format,
			       "%s: written by a newer version of kvfs (format %" PRIu32
			       ", this program knows %d)", s->path, version, KV_FORMAT_VERSION);
	if (unknown)
		return kv_fail(&s->msg, KV_E_newer_format,
			       "%s: written by a newer version of kvfs (it needs features 0x%" PRIx64
			       " that this program does not know)", s->path, unknown);
	if (!version || !kv_le64_get(root->manifest_no))
		return kv_fail(&s->msg, KV_E_bad_record, "%s/%s: malformed", s->path, KV_NAME_ROOT);
	return 0;
}

int kv_root_read(struct kv_store *s, struct kv_root *out)
{
	struct kv_root root;
	size_t bytes;
	int err;

	memset(&root, 0, sizeof(root));
	err = read_root_file(s, &root, &bytes);
	if (err == -ENOENT)
		return kv_fail(&s->msg, KV_E_not_a_store, "%s: not a store: it has no file %s",
			       s->path, KV_NAME_ROOT);
	if (err)
		return kv_fail(&s->msg, err, "%s/%s: cannot be read: %s", s->path, KV_NAME_ROOT,
			       kv_err_text(err));
	KV_TRY(check_root(s, &root, bytes));
	memcpy(s->store_id, root.store_id, sizeof(s->store_id));
	s->features_required = kv_le64_get(root.features_required);
	s->features_write = kv_le64_get(root.features_write);
	s->features_ignorable = kv_le64_get(root.features_ignorable);
	*out = root;
	return 0;
}

static int write_root_file(struct kv_store *s, const struct kv_root *root)
{
	const struct kv_env_ops *ops = s->env->ops;
	struct kv_env_file *file;
	int err;

	/* One that a crash has left behind. */
	err = ops->unlink(s->dir, KV_NAME_ROOT_NEW);
	if (err && err != -ENOENT)
		return err;
	KV_TRY(ops->open(s->dir, KV_NAME_ROOT_NEW, KV_ENV_CREATE, &file));
	err = kv_env_write(s->env, file, kv_slice(root, sizeof(*root)), 0);
	if (!err)
		err = ops->sync(file);
	ops->close(file);
	if (err)
		(void)ops->unlink(s->dir, KV_NAME_ROOT_NEW); /* else the next write does it */
	return err;
}

int kv_root_write(struct kv_store *s, kv_fileno manifest_no)
{
	struct kv_root root = {
		.version = kv_le32(KV_FORMAT_VERSION),
		.manifest_no = kv_le64(manifest_no),
		.features_required = kv_le64(s->features_required),
		.features_write = kv_le64(s->features_write),
		.features_ignorable = kv_le64(s->features_ignorable),
	};
	int err;

	KV_ASSERT(manifest_no);
	memcpy(root.magic, KV_ROOT_MAGIC, sizeof(root.magic));
	memcpy(root.store_id, s->store_id, sizeof(root.store_id));
	root.checksum = kv_le64(root_sum(&root));

	/*
	 * CRASH: the new root's content, and the name of the manifest that it
	 * points to, are durable before it gets its name. So CURRENT always
	 * leads to a whole store: the old one or, at the latest after the
	 * second sync of the directory, the new one.
	 */
	err = write_root_file(s, &root);
	if (!err)
		err = s->env->ops->dir_sync(s->dir);
	if (!err)
		err = s->env->ops->rename(s->dir, KV_NAME_ROOT_NEW, KV_NAME_ROOT);
	if (!err)
		err = s->env->ops->dir_sync(s->dir);
	if (err)
		return kv_fail(&s->msg, err, "%s/%s: cannot be replaced: %s", s->path, KV_NAME_ROOT,
			       kv_err_text(err));
	return 0;
}
