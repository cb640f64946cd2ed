/*
 * What a writer does with its batch before it queues up: operations are encoded
 * as the journal will have them, bulk values compressed and summed, parts resolved.
 *
 * A pointer is encoded as 48 zero bytes, and a counter as 8, and both are filled
 * in by the leader, who alone knows where a value went and what a counter is.
 */
#include "kv/write.h"

#include "kv/checksum.h"
#include "kv/compress.h"
#include "kv/pool.h"

int kv_array_grow(void *array, size_t count, size_t *count_max, size_t element_bytes)
{
	size_t n = *count_max ? 2 * *count_max : 8;
	void *p;

	if (count < *count_max)
		return 0;
	memcpy(&p, array, sizeof(p));
	p = realloc(p, n * element_bytes);
	if (!p)
		return -ENOMEM;
	memcpy(array, &p, sizeof(p));
	*count_max = n;
	return 0;
}

/* The value goes to the segment. stays: its bytes are there until the end of kv_write(). */
static int encode_bulk(struct kv_db *db, struct kv_writer *w, uint32_t op, struct kv_slice key,
		       struct kv_slice value, enum kv_hint hint, bool stays)
{
	static const struct kv_vptr_disk none;
	bool compress = !db->options.no_compression && hint != KV_HINT_INCOMPRESSIBLE;
	struct kv_bulk b = {
		.op = op,
		.copied = !stays,
		.copy_at = w->copies.bytes,
		.raw = value,
		.codec = compress ? KV_CODEC_LZ4 : KV_CODEC_NONE,
	};

	KV_TRY(kv_array_grow(&w->bulks, w->bulk_count, &w->bulk_count_max, sizeof(*w->bulks)));
	if (!stays)
		KV_TRY(kv_buf_append_slice(&w->copies, value));
	KV_TRY(kv_op_append(&w->batch->encoded, KV_KIND_PUT_PTR, key,
			    kv_slice(&none, sizeof(none))));
	b.at = w->batch->encoded.bytes - sizeof(none);
	w->bulks[w->bulk_count++] = b;
	return 0;
}

static int encode_put(struct kv_db *db, struct kv_writer *w, uint32_t op, struct kv_slice key,
		      struct kv_slice value, enum kv_hint hint, bool stays)
{
	struct kv_slice packed;

	if (value.bytes >= db->options.bulk_bytes)
		return encode_bulk(db, w, op, key, value, hint, stays);
	KV_TRY(kv_writer_pack(db, w, op, value, hint, &packed));
	if (packed.bytes)
		return kv_op_append(&w->batch->encoded, KV_KIND_PUT_PACKED, key, packed);
	return kv_op_append(&w->batch->encoded, KV_KIND_PUT, key, value);
}

static bool is_dying(struct kv_db *db, kv_fileno segment_no)
{
	for (size_t i = 0; i < db->dying_count; i++)
		if (db->dying[i] == segment_no)
			return true;
	return false;
}

/*
 * Can the part be a reference? A small rest of a large value is copied: it
 * would keep the whole value's space.
 */
static bool may_share(struct kv_db *db, const struct kv_vptr *p)
{
	return !is_dying(db, p->segment_no) && p->part_bytes && p->part_bytes >= p->raw_bytes / 4;
}

/*
 * A part of what from_key has now. The lock is held from here until the memtable has
 * the pointer: in between nothing else shows that its segment is needed.
 */
static int encode_part(struct kv_db *db, struct kv_writer *w, uint32_t i,
		       const struct kv_batch_op *op) KV_NO_TSA
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct kv_vptr_disk disk;
	struct kv_found found;
	struct kv_vptr p;
	uint32_t bytes;

	if (!w->parts) {
		kv_rwlock_read(&db->parts_lock);
		w->parts = kv_readstate_ref(db);
		w->seqno_parts = atomic_load_explicit(&db->seqno_published, memory_order_acquire);
	}
	KV_TRY(kv_readstate_get(db, w->parts, op->value, w->seqno_parts, &found, &pin));
	if (!found.found)
		return KV_E_not_found;
	KV_TRY(kv_value_bytes(found.kind, found.value, &bytes));
	if (op->part_offset > bytes || op->part_bytes > bytes - op->part_offset)
		return -EINVAL;
	if (found.kind == KV_KIND_PUT_PTR) {
		KV_TRY(kv_vptr_decode(found.value, &p));
		p.part_offset += op->part_offset;
		p.part_bytes = op->part_bytes;
		if (may_share(db, &p)) {
			kv_vptr_encode(&p, &disk);
			return kv_op_append(&w->batch->encoded, KV_KIND_PUT_PTR, op->key,
					    kv_slice(&disk, sizeof(disk)));
		}
	}
	if (op->part_bytes)
		KV_TRY(kv_value_fetch(db, found.kind, found.value, NULL, false, &value));
	return encode_put(db, w, i, op->key,
			  kv_slice(op->part_bytes ? value.data + op->part_offset : NULL,
				   op->part_bytes),
			  KV_HINT_NONE, false);
}

/*
 * What the batch itself has made of the key before its operation i: that, and
 * not what the store has, is what is added to. A put by reference can't be known here.
 */
static int base_in_batch(struct kv_batch *b, uint32_t i, struct kv_add *a)
{
	while (i-- > 0) {
		struct kv_batch_op *op = &b->ops[i];
		le64 v;

		if (op->ask == KV_ASK_DELETE_RANGE) {
			a->has_base = kv_slice_cmp(op->key, a->key) <= 0 &&
				      kv_slice_cmp(a->key, op->value) < 0;
		} else if (kv_slice_eq(op->key, a->key)) {
			if (op->ask == KV_ASK_ADD)
				return 0;
			if (op->ask == KV_ASK_PUT_PART || (op->ask == KV_ASK_PUT &&
							   op->value.bytes != sizeof(v)))
				return -EINVAL;
			a->has_base = true;
			if (op->ask == KV_ASK_PUT) {
				memcpy(&v, op->value.data, sizeof(v));
				a->base = (int64_t)kv_le64_get(v);
			}
		}
		if (a->has_base)
			return 0;
	}
	return 0;
}

static int encode_add(struct kv_writer *w, uint32_t i, const struct kv_batch_op *op)
{
	static const le64 zero;
	struct kv_add *a;

	KV_TRY(kv_array_grow(&w->adds, w->add_count, &w->add_count_max, sizeof(*w->adds)));
	a = &w->adds[w->add_count];
	*a = (struct kv_add){ .key = op->key, .delta = op->delta };
	KV_TRY(base_in_batch(w->batch, i, a));
	KV_TRY(kv_op_append(&w->batch->encoded, KV_KIND_PUT, op->key,
			    kv_slice(&zero, sizeof(zero))));
	a->at = w->batch->encoded.bytes - sizeof(zero);
	w->add_count++;
	return 0;
}

static int encode_op(struct kv_db *db, struct kv_writer *w, uint32_t i)
{
	struct kv_batch_op *op = &w->batch->ops[i];
	struct kv_buf *to = &w->batch->encoded;

	switch (op->ask) {
	case KV_ASK_PUT:
		return encode_put(db, w, i, op->key, op->value, op->hint, true);
	case KV_ASK_DELETE:
		return kv_op_append(to, KV_KIND_DELETE, op->key, kv_slice(NULL, 0));
	case KV_ASK_DELETE_RANGE:
		return kv_op_append(to, KV_KIND_DELETE_RANGE, op->key, op->value);
	case KV_ASK_PUT_PART:
		return encode_part(db, w, i, op);
	case KV_ASK_ADD:
		return encode_add(w, i, op);
	}
	KV_ASSERT(!"an operation of no kind");
	return -EINVAL;
}

/* --- bulk values -------------------------------------------------------------------------- */

#define PARALLEL_BYTES_MIN (128 * KV_KIB)	/* less than these are not worth a helper */

static uint64_t record_bytes(const struct kv_segment_put *p)
{
	uint64_t bytes = sizeof(struct kv_vlog_record) + p->key.bytes + p->stored.bytes;

	return (bytes + KV_RECORD_ALIGN - 1) / KV_RECORD_ALIGN * KV_RECORD_ALIGN;
}

/* Compresses and sums one value. Runs in several threads. */
static int store_bulk(void *arg, size_t i)
{
	struct kv_writer *w = arg;
	const struct kv_bulk *b = &w->bulks[i];
	struct kv_segment_put *p = &w->puts[i];
	uint8_t *to = NULL;
	size_t bytes;

	*p = (struct kv_segment_put){
		.key = w->batch->ops[b->op].key,
		.stored = b->raw,
		.raw_bytes = (uint32_t)b->raw.bytes,
	};
	if (b->codec != KV_CODEC_NONE) {
		to = w->stored.data + b->stored_at;
		p->codec = kv_compress_to(b->codec, b->raw, to, &bytes);
	}
	if (p->codec != KV_CODEC_NONE)
		p->stored = kv_slice(to, bytes);
	p->value_checksum = kv_checksum(p->stored, 0);
	return 0;
}

static int store_bulks(struct kv_db *db, struct kv_writer *w)
{
	size_t bytes = 0, bytes_raw = 0;

	w->puts = malloc(w->bulk_count * sizeof(*w->puts));
	w->ptrs = malloc(w->bulk_count * sizeof(*w->ptrs));
	if (!w->puts || !w->ptrs)
		return -ENOMEM;
	for (size_t i = 0; i < w->bulk_count; i++) {
		struct kv_bulk *b = &w->bulks[i];

		/* The buffer may have moved while it grew. */
		if (b->copied)
			b->raw.data = w->copies.data + b->copy_at;
		if (b->codec == KV_CODEC_NONE)
			continue;
		b->stored_at = bytes;
		bytes += kv_compressed_max(b->raw.bytes);
		bytes_raw += b->raw.bytes;
	}
	if (bytes && !kv_buf_grow(&w->stored, bytes))
		return -ENOMEM;
	KV_TRY(kv_parallel(bytes_raw >= PARALLEL_BYTES_MIN ? db->pool : NULL, w->bulk_count,
			   store_bulk, w));
	for (size_t i = 0; i < w->bulk_count; i++)
		w->bulk_bytes += record_bytes(&w->puts[i]);
	return 0;
}

/* --- the whole ---------------------------------------------------------------------------- */

int kv_writer_prepare(struct kv_db *db, struct kv_writer *w)
{
	kv_buf_reset(&w->batch->encoded);
	KV_TRY(kv_writer_pack_ahead(db, w));
	for (uint32_t i = 0; i < w->batch->count; i++)
		KV_TRY(encode_op(db, w, i));
	if (w->batch->encoded.bytes > KV_CHUNK_PAYLOAD_MAX)
		return KV_E_too_big;
	return w->bulk_count ? store_bulks(db, w) : 0;
}

void kv_writer_done(struct kv_db *db, struct kv_writer *w) KV_NO_TSA
{
	if (w->parts) {
		kv_readstate_unref(w->parts);
		kv_rwlock_unlock(&db->parts_lock);
	}
	free(w->bulks);
	free(w->puts);
	free(w->ptrs);
	free(w->adds);
	free(w->packs);
	kv_buf_done(&w->packed);
	kv_buf_done(&w->copies);
	kv_buf_done(&w->stored);
}
