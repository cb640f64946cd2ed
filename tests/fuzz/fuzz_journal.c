/* Reading a journal whose chunks may be anything: the end is found, or damage, always the same way. */
#include "tests/fuzz/fuzz.h"

#include "kv/batch.h"
#include "kv/journal.h"

#define NUMBER 7

struct result {
	int err;
	size_t chunks;
	struct kv_journal_tail tail;
};

static void check_operations(const struct kv_chunk *c)
{
	struct kv_slice ops = c->payload;
	struct kv_op op;

	while (kv_op_take(&ops, &op))
		FUZZ_ASSERT(op.kind <= KV_KIND_MAX && op.key.bytes <= KV_KEY_BYTES_MAX);
}

static struct result read_all(struct kv_slice file)
{
	struct result r = { 0 };
	struct kv_journal_reader *reader;
	struct fuzz_store s;
	uint64_t at = sizeof(struct kv_file_header);
	bool end = false;

	fuzz_store_init(&s, file);
	FUZZ_OK(kv_journal_open(&s.store, KV_FILE_JOURNAL, NUMBER, &reader));
	while (!end) {
		struct kv_chunk c;

		r.err = kv_journal_read(reader, &c, &end);
		if (r.err)
			break;
		if (end)
			continue;
		FUZZ_ASSERT(c.offset == at && c.end > at && c.end <= file.bytes);
		FUZZ_ASSERT(c.payload.bytes < c.end - c.offset && c.promised <= c.offset);
		at = c.end;
		r.chunks++;
		if (c.type == KV_CHUNK_BATCHES)
			check_operations(&c);
	}
	if (r.err) {
		struct kv_chunk c;

		FUZZ_ASSERT(kv_journal_read(reader, &c, &end) == r.err);
	} else {
		kv_journal_tail(reader, &r.tail);
		FUZZ_ASSERT(r.tail.end == at && r.tail.promised <= at);
		FUZZ_ASSERT(r.tail.torn_bytes <= file.bytes - at);
	}
	kv_journal_close(reader);
	return r;
}

static void run(struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf file = KV_BUF_INIT;
	struct result r, again;

	fuzz_file_make(&file, KV_FILE_JOURNAL, NUMBER, input);
	fuzz_fix_chunks(&file, NUMBER);
	r = read_all(kv_buf_slice(&file));
	if (r.err)
		return;
	/* Without its torn tail it is the same journal. */
	again = read_all(kv_slice(file.data, (size_t)r.tail.end));
	FUZZ_ASSERT(!again.err && again.chunks == r.chunks && !again.tail.torn_bytes &&
		    again.tail.closed == r.tail.closed);
}

static void append(struct kv_journal *j, enum kv_chunk_type type, kv_seqno seqno, uint32_t count,
		   struct kv_slice payload)
{
	struct iovec iov = { (void *)(uintptr_t)payload.data, payload.bytes };

	FUZZ_OK(kv_journal_reserve(j, payload.bytes));
	FUZZ_OK(kv_journal_append(j, type, seqno, count, &iov, payload.bytes ? 1 : 0));
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct kv_journal_begin begin = { .previous_no = kv_le64(3), .previous_bytes = kv_le64(64) };
	struct kv_journal *j;
	struct fuzz_disk d;

	fuzz_disk_init(&d);
	FUZZ_OK(kv_journal_create(&d.store, KV_FILE_JOURNAL, NUMBER, 0, &j));
	append(j, KV_CHUNK_BEGIN, 0, 0, kv_slice(&begin, sizeof(begin)));
	FUZZ_OK(kv_op_append(&b, KV_KIND_PUT, kv_slice_str("key"), kv_slice_str("value")));
	append(j, KV_CHUNK_BATCHES, 1, 1, kv_buf_slice(&b));
	FUZZ_OK(kv_journal_sync(j));
	kv_journal_promise(j, kv_journal_synced(j));
	append(j, KV_CHUNK_MARK, 2, 0, kv_slice(NULL, 0));
	FUZZ_OK(kv_op_append(&b, KV_KIND_DELETE_RANGE, kv_slice_str("a"), kv_slice_str("b")));
	append(j, KV_CHUNK_BATCHES, 2, 2, kv_buf_slice(&b));
	fuzz_disk_load(&d, KV_FILE_JOURNAL, NUMBER, &b);
	emit(arg, kv_buf_slice(&b));
	/* Torn in the last chunk; and with damage before what was promised. */
	b.data[b.bytes - 8] ^= 1;
	emit(arg, kv_slice(b.data, b.bytes - 3));
	b.data[offsetof(struct kv_chunk_header, checksum)] = FUZZ_BROKEN;
	emit(arg, kv_buf_slice(&b));
	append(j, KV_CHUNK_END, 4, 0, kv_slice(NULL, 0));
	fuzz_disk_load(&d, KV_FILE_JOURNAL, NUMBER, &b);
	emit(arg, kv_buf_slice(&b));
	kv_journal_free(j);
	fuzz_disk_done(&d);
}

const struct fuzz_target fuzz_journal = { "journal", run, seeds };
