#include "tests/fuzz/fuzz.h"

#include "kv/journal_chunk.h"
#include "tests/sim/env_sim.h"

#define STORE_ID_BYTE 0x5a

/* --- a store of one file --------------------------------------------------------- */

struct kv_env_file {
	struct fuzz_store *store;
};

static int bytes_open(struct kv_env_dir *dir, const char *name, enum kv_env_mode mode,
		      struct kv_env_file **out_file)
{
	(void)name;
	FUZZ_ASSERT(mode == KV_ENV_READ);
	*out_file = fuzz_store_file((struct fuzz_store *)(void *)dir);
	return 0;
}

static void bytes_close(struct kv_env_file *file)
{
	free(file);
}

static int bytes_pread(struct kv_env_file *file, void *to, size_t bytes, uint64_t offset,
		       size_t *out_bytes)
{
	struct kv_slice s = file->store->file;
	size_t left = offset < s.bytes ? s.bytes - (size_t)offset : 0;

	*out_bytes = KV_MIN(bytes, left);
	if (*out_bytes)
		memcpy(to, (const uint8_t *)s.data + offset, *out_bytes);
	return 0;
}

static int bytes_size(struct kv_env_file *file, uint64_t *out_bytes)
{
	*out_bytes = file->store->file.bytes;
	return 0;
}

static void bytes_advise(struct kv_env_file *file, uint64_t offset, uint64_t bytes,
			 bool will_need)
{
	(void)file;
	(void)offset;
	(void)bytes;
	(void)will_need;
}

static void drop_message(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	(void)level;
	FUZZ_ASSERT(strlen(text));
}

void fuzz_store_init(struct fuzz_store *s, struct kv_slice file)
{
	/* What only writers call is not there: a crash, should a reader ever write. */
	static const struct kv_env_ops ops = {
		.open = bytes_open,
		.close = bytes_close,
		.pread = bytes_pread,
		.size = bytes_size,
		.advise = bytes_advise,
	};

	*s = (struct fuzz_store){
		.env = { &ops },
		.file = file,
		.store = { .path = "fuzz", .msg = { drop_message, NULL, KV_MSG_DEBUG } },
	};
	s->store.env = &s->env;
	s->store.dir = (struct kv_env_dir *)(void *)s;
	memset(s->store.store_id, STORE_ID_BYTE, sizeof(s->store.store_id));
}

struct kv_env_file *fuzz_store_file(struct fuzz_store *s)
{
	struct kv_env_file *file = malloc(sizeof(*file));

	FUZZ_ASSERT(file);
	file->store = s;
	return file;
}

void fuzz_file_make(struct kv_buf *file, enum kv_file_kind kind, kv_fileno number,
		    struct kv_slice input)
{
	uint8_t id[KV_STORE_ID_BYTES];
	struct kv_file_header h;

	memset(id, STORE_ID_BYTE, sizeof(id));
	kv_file_header_make(&h, kind, number, id);
	kv_buf_reset(file);
	FUZZ_OK(kv_buf_append(file, &h, sizeof(h)));
	FUZZ_OK(kv_buf_append_slice(file, input));
}

void fuzz_fix_chunks(struct kv_buf *file, kv_fileno number)
{
	size_t at = sizeof(struct kv_file_header);
	struct fuzz_store s;
	uint64_t seed;

	fuzz_store_init(&s, kv_slice(NULL, 0));
	seed = kv_chunk_seed(&s.store, number);
	while (at + sizeof(struct kv_chunk_header) <= file->bytes) {
		struct kv_chunk_header *h = (struct kv_chunk_header *)(void *)(file->data + at);
		size_t payload_bytes = kv_le32_get(h->payload_bytes);

		if (kv_le32_get(h->magic) != KV_CHUNK_MAGIC ||
		    payload_bytes > KV_CHUNK_PAYLOAD_MAX ||
		    kv_chunk_bytes(payload_bytes) > file->bytes - at) {
			at += KV_CHUNK_ALIGN;
			continue;
		}
		if (h->checksum.b[0] != FUZZ_BROKEN)
			h->checksum = kv_le64(kv_checksum(kv_chunk_summed(h, payload_bytes), seed));
		at += kv_chunk_bytes(payload_bytes);
	}
}

/* --- a disk for seeds ---------------------------------------------------------------- */

void fuzz_disk_init(struct fuzz_disk *d)
{
	*d = (struct fuzz_disk){ .store = { .path = "fuzz", .env = kv_env_sim_new(1) } };
	FUZZ_ASSERT(d->store.env);
	FUZZ_OK(d->store.env->ops->dir_open(d->store.env, "fuzz", true, &d->store.dir));
	memset(d->store.store_id, STORE_ID_BYTE, sizeof(d->store.store_id));
}

void fuzz_disk_done(struct fuzz_disk *d)
{
	d->store.env->ops->dir_close(d->store.dir);
	kv_env_sim_free(d->store.env);
}

void fuzz_disk_load(struct fuzz_disk *d, enum kv_file_kind kind, kv_fileno number,
		    struct kv_buf *out)
{
	const struct kv_env_ops *ops = d->store.env->ops;
	struct kv_env_file *file;
	uint64_t bytes;
	size_t got;

	FUZZ_OK(kv_store_open_file(&d->store, kind, number, &file));
	FUZZ_OK(ops->size(file, &bytes));
	bytes -= sizeof(struct kv_file_header);
	kv_buf_reset(out);
	FUZZ_ASSERT(kv_buf_grow(out, (size_t)bytes));
	FUZZ_OK(ops->pread(file, out->data, (size_t)bytes, sizeof(struct kv_file_header), &got));
	FUZZ_ASSERT(got == bytes);
	ops->close(file);
	/* What was allocated ahead is of no interest. */
	while (out->bytes && !out->data[out->bytes - 1])
		out->bytes--;
}

/* --- input -------------------------------------------------------------------------------- */

uint64_t fuzz_take(struct kv_slice *input, size_t bytes)
{
	struct kv_slice s = fuzz_take_slice(input, bytes);
	const uint8_t *p = s.data;
	uint64_t n = 0;

	for (size_t i = s.bytes; i; i--)
		n = n << 8 | p[i - 1];
	return n;
}

struct kv_slice fuzz_take_slice(struct kv_slice *input, size_t bytes)
{
	struct kv_slice s = kv_slice(input->data, KV_MIN(bytes, input->bytes));

	if (s.bytes)
		*input = kv_slice((const uint8_t *)input->data + s.bytes, input->bytes - s.bytes);
	return s;
}
