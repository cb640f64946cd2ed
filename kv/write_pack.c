/*
 * Medium values are compressed before they are written anywhere: so the journal, the memtable and
 * the value log take what is left of them, and the work is done by the writer, beside others, not
 * by the one thread that flushes.
 */
#include "kv/compress.h"
#include "kv/pool.h"
#include "kv/write.h"

#define PARALLEL_BYTES_MIN (128 * KV_KIB)	/* less than these are not worth a helper */
#define ITEM_BYTES (32 * KV_KIB)		/* compressed in one go */

static bool is_packable(const struct kv_db *db, size_t bytes, enum kv_hint hint)
{
	return bytes >= db->options.medium_bytes && bytes < db->options.bulk_bytes &&
	       !db->options.no_compression && hint != KV_HINT_INCOMPRESSIBLE;
}

/* Runs of packs, each about ITEM_BYTES of values: [begins[i], begins[i + 1]). */
struct runs {
	struct kv_writer *w;
	size_t *begins;
};

static int pack_run(void *arg, size_t i)
{
	const struct runs *r = arg;
	struct kv_writer *w = r->w;

	for (size_t k = r->begins[i]; k < r->begins[i + 1]; k++) {
		struct kv_pack *p = &w->packs[k];

		p->bytes = kv_packed_make(KV_CODEC_LZ4, w->batch->ops[p->op].value,
					  w->packed.data + p->at);
	}
	return 0;
}

/* Finds the values; *out_bytes: of all of them. */
static int gather(struct kv_db *db, struct kv_writer *w, size_t *out_bytes)
{
	size_t at = 0;

	for (uint32_t i = 0; i < w->batch->count; i++) {
		const struct kv_batch_op *op = &w->batch->ops[i];

		if (op->ask != KV_ASK_PUT || !is_packable(db, op->value.bytes, op->hint))
			continue;
		KV_TRY(kv_array_grow(&w->packs, w->pack_count, &w->pack_count_max,
				     sizeof(*w->packs)));
		w->packs[w->pack_count++] = (struct kv_pack){ .op = i, .at = at };
		at += op->value.bytes;
	}
	*out_bytes = at;
	return 0;
}

int kv_writer_pack_ahead(struct kv_db *db, struct kv_writer *w)
{
	struct runs r = { .w = w };
	size_t bytes, count = 0;
	int err;

	if (w->batch->user_bytes < PARALLEL_BYTES_MIN)
		return 0;
	KV_TRY(gather(db, w, &bytes));
	if (bytes < PARALLEL_BYTES_MIN) {
		w->pack_count = 0;
		return 0;
	}
	r.begins = malloc((w->pack_count + 1) * sizeof(*r.begins));
	if (!r.begins || !kv_buf_grow(&w->packed, bytes)) {
		free(r.begins);
		return -ENOMEM;
	}
	for (size_t k = 0; k < w->pack_count; k++)
		if (!k || w->packs[k].at - w->packs[r.begins[count - 1]].at >= ITEM_BYTES)
			r.begins[count++] = k;
	r.begins[count] = w->pack_count;
	err = kv_parallel(db->pool, count, pack_run, &r);
	free(r.begins);
	return err;
}

int kv_writer_pack(struct kv_db *db, struct kv_writer *w, uint32_t op, struct kv_slice value,
		   enum kv_hint hint, struct kv_slice *out)
{
	size_t bytes;

	*out = kv_slice(NULL, 0);
	if (!is_packable(db, value.bytes, hint))
		return 0;
	if (w->pack_next < w->pack_count && w->packs[w->pack_next].op == op) {
		const struct kv_pack *p = &w->packs[w->pack_next++];

		*out = kv_slice(w->packed.data + p->at, p->bytes);
		return 0;
	}
	/* Behind what was compressed ahead; one after the other in the same place. */
	bytes = w->packed.bytes;
	KV_TRY(kv_buf_reserve(&w->packed, value.bytes));
	*out = kv_slice(w->packed.data + bytes,
			kv_packed_make(KV_CODEC_LZ4, value, w->packed.data + bytes));
	return 0;
}
