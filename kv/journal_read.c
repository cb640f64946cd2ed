/*
 * Reading journals: chunk by chunk through a window of the file, and when a
 * chunk is not valid, telling a torn tail from damage.
 */
#include "kv/journal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "kv/assert.h"
#include "kv/journal_chunk.h"

#define WINDOW_BYTES ((size_t)1 << 20)

/*
 * Bytes that may be summed to judge one tail. What lies there may look like
 * any number of chunks that overlap; real ones don't, and need no more than
 * the size of the file.
 */
#define JUDGE_BYTES_MAX (8 * (uint64_t)KV_CHUNK_PAYLOAD_MAX)

struct kv_journal_reader {
	struct kv_store *store;
	struct kv_env_file *file;
	struct kv_filename name;
	uint64_t seed;
	uint64_t file_bytes;

	struct kv_buf window;		/* bytes of the file */
	uint64_t window_offset;		/* from here on */

	struct kv_journal_tail tail;	/* end: where the next chunk begins */
	bool ended;
	int err;			/* the failure that every later read repeats */
};

int kv_journal_open(struct kv_store *s, enum kv_file_kind kind, kv_fileno number,
		    struct kv_journal_reader **out)
{
	struct kv_journal_reader *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->store = s;
	r->name = kv_filename(kind, number);
	r->seed = kv_chunk_seed(s, number);
	r->tail.end = sizeof(struct kv_file_header);
	err = kv_store_open_file(s, kind, number, &r->file);
	if (err) {
		free(r);
		return err;
	}
	err = s->env->ops->size(r->file, &r->file_bytes);
	if (!err && r->file_bytes < r->tail.end)
		err = KV_E_short_file;
	if (err) {
		err = kv_fail(&s->msg, err, "%s/%s: its size cannot be told: %s", s->path, r->name.s,
			      kv_err_text(err));
		kv_journal_close(r);
		return err;
	}
	*out = r;
	return 0;
}

void kv_journal_close(struct kv_journal_reader *r)
{
	if (!r)
		return;
	r->store->env->ops->close(r->file);
	kv_buf_done(&r->window);
	free(r);
}

static int fail_read(struct kv_journal_reader *r, uint64_t offset, int err)
{
	return kv_fail(&r->store->msg, err, "%s/%s: cannot be read at byte %" PRIu64 ": %s",
		       r->store->path, r->name.s, offset, kv_err_text(err));
}

/* Moves the window so that it begins at offset; bytes are in the file. */
static int move_window(struct kv_journal_reader *r, uint64_t offset, size_t bytes)
{
	size_t want = (size_t)KV_MIN(KV_MAX(bytes, WINDOW_BYTES), r->file_bytes - offset);
	void *to;
	int err;

	kv_buf_reset(&r->window);
	to = kv_buf_grow(&r->window, want);
	if (!to)
		return fail_read(r, offset, -ENOMEM);
	err = kv_env_read_exact(r->store->env, r->file, to, want, offset);
	if (err) {
		kv_buf_reset(&r->window);
		return fail_read(r, offset, err);
	}
	r->window_offset = offset;
	return 0;
}

/* Points to bytes of the file, which must reach so far; they stay until the next fetch. */
static int fetch(struct kv_journal_reader *r, uint64_t offset, size_t bytes, const uint8_t **out)
{
	KV_ASSERT(offset <= r->file_bytes && bytes <= r->file_bytes - offset);
	if (offset < r->window_offset || offset - r->window_offset > r->window.bytes ||
	    bytes > r->window.bytes - (size_t)(offset - r->window_offset))
		KV_TRY(move_window(r, offset, bytes));
	*out = r->window.data + (size_t)(offset - r->window_offset);
	return 0;
}

/* Is there a header that could be one? Then *out is set, but for the payload. */
static int header_at(struct kv_journal_reader *r, uint64_t offset, struct kv_chunk *out,
		     bool *out_plausible)
{
	uint64_t left = r->file_bytes - offset;
	struct kv_chunk_header h;
	const uint8_t *at;
	size_t bytes;

	*out_plausible = false;
	if (left < sizeof(h))
		return 0;
	KV_TRY(fetch(r, offset, sizeof(h), &at));
	memcpy(&h, at, sizeof(h));
	bytes = kv_le32_get(h.payload_bytes);
	if (kv_le32_get(h.magic) != KV_CHUNK_MAGIC || bytes > KV_CHUNK_PAYLOAD_MAX ||
	    kv_chunk_bytes(bytes) > left)
		return 0;
	*out = (struct kv_chunk){
		.type = (enum kv_chunk_type)kv_le32_get(h.type),
		.seqno = kv_le64_get(h.seqno),
		.count = kv_le32_get(h.count),
		.promised = kv_le64_get(h.promised),
		.offset = offset,
		.end = offset + kv_chunk_bytes(bytes),
		.payload = kv_slice(NULL, bytes),
	};
	*out_plausible = true;
	return 0;
}

/* Of a plausible chunk: does the checksum match? Sets its payload. */
static int sum_matches(struct kv_journal_reader *r, struct kv_chunk *c, bool *out_valid)
{
	struct kv_chunk_header h;
	const uint8_t *at;

	KV_TRY(fetch(r, c->offset, sizeof(h) + c->payload.bytes, &at));
	memcpy(&h, at, sizeof(h));
	*out_valid = kv_checksum(kv_chunk_summed((const struct kv_chunk_header *)(const void *)at,
						 c->payload.bytes),
				 r->seed) == kv_le64_get(h.checksum);
	c->payload.data = at + sizeof(h);
	return 0;
}

static int fail_damaged(struct kv_journal_reader *r, uint64_t offset, const char *why)
{
	return kv_fail(&r->store->msg, KV_E_journal_damaged, "%s/%s: damaged at byte %" PRIu64 ": %s",
		       r->store->path, r->name.s, offset, why);
}

/*
 * Looks at what seems to be a chunk behind the end. If it is one it tells how
 * far the file was promised when it was written: beyond the end is damage;
 * less proves nothing, as chunks of one write may arrive in any order.
 * *next is where to look on.
 */
static int judge_chunk(struct kv_journal_reader *r, uint64_t offset, uint64_t *budget,
		       uint64_t *next)
{
	struct kv_chunk c;
	bool valid;

	KV_TRY(header_at(r, offset, &c, &valid));
	if (!valid || c.promised <= r->tail.promised)
		return 0;
	if (c.end - c.offset > *budget)
		return fail_damaged(r, r->tail.end,
				    "what follows is no journal, but too much like one");
	*budget -= c.end - c.offset;
	KV_TRY(sum_matches(r, &c, &valid));
	if (!valid)
		return 0;
	if (c.promised > r->tail.end)
		return fail_damaged(r, r->tail.end,
				    "a chunk there, once durable, is not valid any more");
	r->tail.promised = c.promised;
	r->tail.torn_bytes = c.end - r->tail.end;
	*next = c.end;
	return 0;
}

/* Most of a tail is what was allocated and never written. *out: the first step that has more than zeros. */
static int skip_zeros(struct kv_journal_reader *r, uint64_t offset, uint64_t *out)
{
	static const uint8_t zeros[512];
	const uint8_t *at;

	KV_ASSERT(sizeof(zeros) % KV_CHUNK_ALIGN == 0);
	for (size_t step = sizeof(zeros); offset < r->file_bytes;) {
		size_t bytes = (size_t)KV_MIN(r->file_bytes - offset, (uint64_t)step);

		KV_TRY(fetch(r, offset, bytes, &at));
		if (!memcmp(at, zeros, bytes))
			offset += bytes;
		else if (step > KV_CHUNK_ALIGN)
			step = KV_CHUNK_ALIGN;
		else
			break;
	}
	*out = offset;
	return 0;
}

/* The chunk at tail.end is not valid. All behind it is looked at, aligned as chunks are. */
static int judge_tail(struct kv_journal_reader *r)
{
	uint64_t budget = r->file_bytes + JUDGE_BYTES_MAX, next;
	const uint8_t *at;

	for (uint64_t offset = r->tail.end; offset < r->file_bytes; offset = next) {
		size_t bytes = (size_t)KV_MIN(r->file_bytes - offset, (uint64_t)KV_CHUNK_ALIGN);
		le32 magic;

		KV_TRY(skip_zeros(r, offset, &next));
		if (next > offset)
			continue;
		next = offset + bytes;
		KV_TRY(fetch(r, offset, bytes, &at));
		while (!at[bytes - 1])
			bytes--;
		r->tail.torn_bytes = KV_MAX(r->tail.torn_bytes, offset + bytes - r->tail.end);
		if (bytes < sizeof(magic) || offset == r->tail.end)
			continue;
		memcpy(&magic, at, sizeof(magic));
		if (kv_le32_get(magic) == KV_CHUNK_MAGIC)
			KV_TRY(judge_chunk(r, offset, &budget, &next));
	}
	return 0;
}

/* A chunk whose checksum matches was written so: what is wrong in it, nobody has torn. */
static int check_chunk(struct kv_journal_reader *r, const struct kv_chunk *c)
{
	if (r->tail.closed)
		return fail_damaged(r, c->offset, "a chunk follows the one that ends the file");
	if (c->promised > c->offset)
		return fail_damaged(r, c->offset, "a chunk promises itself");
	if (c->type < KV_CHUNK_BEGIN || c->type > KV_CHUNK_END)
		return kv_fail(&r->store->msg, KV_E_newer_format,
			       "%s/%s: written by a newer version of kvfs (a chunk of type %d at byte %"
			       PRIu64 ")", r->store->path, r->name.s, (int)c->type, c->offset);
	return 0;
}

static int read_chunk(struct kv_journal_reader *r, struct kv_chunk *out, bool *out_end)
{
	struct kv_chunk c;
	bool valid;

	KV_TRY(header_at(r, r->tail.end, &c, &valid));
	if (valid)
		KV_TRY(sum_matches(r, &c, &valid));
	if (!valid) {
		KV_TRY(judge_tail(r));
		r->ended = true;
		*out_end = true;
		return 0;
	}
	KV_TRY(check_chunk(r, &c));
	r->tail.end = c.end;
	r->tail.promised = KV_MAX(r->tail.promised, c.promised);
	r->tail.closed = c.type == KV_CHUNK_END;
	*out = c;
	*out_end = false;
	return 0;
}

int kv_journal_read(struct kv_journal_reader *r, struct kv_chunk *out, bool *out_end)
{
	if (r->ended) {
		*out_end = true;
		return 0;
	}
	if (!r->err)
		r->err = read_chunk(r, out, out_end);
	return r->err;
}

void kv_journal_tail(const struct kv_journal_reader *r, struct kv_journal_tail *out)
{
	KV_ASSERT(r->ended);
	*out = r->tail;
}
