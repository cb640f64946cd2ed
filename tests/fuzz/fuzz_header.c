/* What begins files, and the root; names of files. */
#include "tests/fuzz/fuzz.h"

#include "kv/checksum.h"

static void fix_sum(void *at, size_t offset, size_t bytes)
{
	uint8_t *p = at;
	size_t behind = offset + sizeof(le64);
	le64 sum = kv_le64(kv_checksum(kv_slice(p + behind, bytes - behind), 0));

	if (p[offset] != FUZZ_BROKEN)
		memcpy(p + offset, &sum, sizeof(sum));
}

static void run_root(struct kv_slice input)
{
	struct kv_root root = { .version = kv_le32(0) }, read;
	struct fuzz_store s;
	size_t bytes = KV_MIN(input.bytes, sizeof(root));

	if (bytes)
		memcpy(&root, input.data, bytes);
	if (bytes == sizeof(root))
		fix_sum(&root, offsetof(struct kv_root, checksum), sizeof(root));
	fuzz_store_init(&s, kv_slice(&root, bytes));
	if (kv_root_read(&s.store, &read))
		return;
	FUZZ_ASSERT(!memcmp(&root, &read, sizeof(root)));
	FUZZ_ASSERT(!memcmp(read.magic, KV_ROOT_MAGIC, sizeof(read.magic)));
	FUZZ_ASSERT(kv_le32_get(read.version) == KV_FORMAT_VERSION && kv_le64_get(read.manifest_no));
	FUZZ_ASSERT(!memcmp(s.store.store_id, read.store_id, sizeof(read.store_id)));
}

static void run_header(struct kv_slice input)
{
	enum kv_file_kind kind = (enum kv_file_kind)(1 + fuzz_take(&input, 1) % 4);
	kv_fileno number = fuzz_take(&input, 8);
	struct kv_file_header h, made;
	struct kv_env_file *file;
	struct fuzz_store s;
	int err;

	if (input.bytes < sizeof(h))
		return;
	memcpy(&h, input.data, sizeof(h));
	fix_sum(&h, offsetof(struct kv_file_header, checksum), sizeof(h));
	fuzz_store_init(&s, kv_slice(&h, sizeof(h)));
	err = kv_store_open_file(&s.store, kind, number, &file);
	FUZZ_ASSERT(err == kv_file_header_check(&h, kind, number, s.store.store_id));
	if (err)
		return;
	s.env.ops->close(file);
	/* But for bytes that are kept, there is one good header only. */
	kv_file_header_make(&made, kind, number, s.store.store_id);
	FUZZ_ASSERT(!memcmp(made.magic, h.magic, sizeof(h.magic)));
	FUZZ_ASSERT(!memcmp(&made.version, &h.version,
			    offsetof(struct kv_file_header, reserved) -
				    offsetof(struct kv_file_header, version)));
}

static void run_name(struct kv_slice input)
{
	char name[64] = "";
	enum kv_file_kind kind;
	kv_fileno number;

	if (input.bytes)
		memcpy(name, input.data, KV_MIN(input.bytes, sizeof(name) - 1));
	if (kv_filename_parse(name, &kind, &number))
		FUZZ_ASSERT(!strcmp(kv_filename(kind, number).s, name));
}

static void run(struct kv_slice input)
{
	switch (fuzz_take(&input, 1) % 3) {
	case 0:
		run_root(input);
		break;
	case 1:
		run_header(input);
		break;
	default:
		run_name(input);
	}
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf file = KV_BUF_INIT;
	struct kv_root root = { .version = kv_le32(KV_FORMAT_VERSION), .manifest_no = kv_le64(4) };
	static const uint8_t eight[8] = { 8 };

	memcpy(root.magic, KV_ROOT_MAGIC, sizeof(root.magic));
	FUZZ_OK(kv_buf_append_byte(&b, 0));
	FUZZ_OK(kv_buf_append(&b, &root, sizeof(root)));
	emit(arg, kv_buf_slice(&b));
	for (uint8_t kind = 0; kind < 4; kind++) {
		fuzz_file_make(&file, (enum kv_file_kind)(1 + kind), 8, kv_slice(NULL, 0));
		kv_buf_reset(&b);
		FUZZ_OK(kv_buf_append_byte(&b, 1));
		FUZZ_OK(kv_buf_append_byte(&b, kind));
		FUZZ_OK(kv_buf_append(&b, eight, sizeof(eight)));
		FUZZ_OK(kv_buf_append_slice(&b, kv_buf_slice(&file)));
		emit(arg, kv_buf_slice(&b));
		kv_buf_reset(&b);
		FUZZ_OK(kv_buf_append_byte(&b, 2));
		FUZZ_OK(kv_buf_append_slice(&b, kv_slice_str(kv_filename((enum kv_file_kind)(1 + kind),
									 12345678).s)));
		emit(arg, kv_buf_slice(&b));
	}
}

const struct fuzz_target fuzz_header = { "header", run, seeds };
