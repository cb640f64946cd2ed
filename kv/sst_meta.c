/* What is known about a table, gathered while it is built, and as its properties. */
#include <stdlib.h>

#include "kv/assert.h"
#include "kv/checksum.h"
#include "kv/compress.h"
#include "kv/sst_impl.h"

void kv_sst_meta_done(struct kv_sst_meta *m)
{
	if (!m)
		return;
	kv_buf_done(&m->smallest);
	kv_buf_done(&m->largest);
	free(m->refs);
	*m = (struct kv_sst_meta){ 0 };
}

int kv_sst_meta_copy(struct kv_sst_meta *to, const struct kv_sst_meta *from)
{
	struct kv_sst_meta m = *from;

	m.smallest = m.largest = (struct kv_buf)KV_BUF_INIT;
	m.refs = NULL;
	if (from->ref_count) {
		m.refs = malloc(from->ref_count * sizeof(*m.refs));
		if (!m.refs)
			return -ENOMEM;
		memcpy(m.refs, from->refs, from->ref_count * sizeof(*m.refs));
	}
	if (kv_buf_assign(&m.smallest, kv_buf_slice(&from->smallest)) ||
	    kv_buf_assign(&m.largest, kv_buf_slice(&from->largest))) {
		kv_sst_meta_done(&m);
		return -ENOMEM;
	}
	*to = m;
	return 0;
}

uint64_t kv_sst_meta_memory_bytes(const struct kv_sst_meta *m)
{
	return m->smallest.bytes_max + m->largest.bytes_max + m->ref_count * sizeof(*m->refs);
}

uint64_t kv_sst_memory_bytes(const struct kv_sst *t)
{
	return sizeof(*t) + kv_sst_meta_memory_bytes(&t->meta) +
	       (t->rangedels ? t->rangedels->memory_bytes : 0);
}

/* --- gathering -------------------------------------------------------------------------------- */

/* Appends a reference behind the last one; the array has room up to the next power of two. */
static int refs_push(struct kv_sst_meta *m, struct kv_segment_ref ref)
{
	if (!(m->ref_count & (m->ref_count - 1))) {
		size_t max = m->ref_count ? m->ref_count * 2 : 1;
		struct kv_segment_ref *refs = realloc(m->refs, max * sizeof(*refs));

		if (!refs)
			return -ENOMEM;
		m->refs = refs;
	}
	m->refs[m->ref_count++] = ref;
	return 0;
}

static int refs_add(struct kv_sst_meta *m, kv_fileno segment_no, uint64_t bytes)
{
	size_t low = 0, high = m->ref_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (m->refs[middle].segment_no < segment_no)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == m->ref_count || m->refs[low].segment_no != segment_no) {
		KV_TRY(refs_push(m, (struct kv_segment_ref){ segment_no, 0 }));
		memmove(m->refs + low + 1, m->refs + low,
			(m->ref_count - 1 - low) * sizeof(*m->refs));
		m->refs[low] = (struct kv_segment_ref){ segment_no, 0 };
	}
	m->refs[low].bytes += bytes;
	return 0;
}

static void add_seqno(struct kv_sst_meta *m, kv_seqno seqno)
{
	bool first = !m->entries && !m->range_deletes;

	m->seqno_min = first ? seqno : KV_MIN(m->seqno_min, seqno);
	m->seqno_max = KV_MAX(m->seqno_max, seqno);
}

static int add_bounds(struct kv_sst_meta *m, struct kv_slice low, struct kv_slice high)
{
	if (!m->smallest.bytes || kv_ikey_cmp(low, kv_buf_slice(&m->smallest)) < 0)
		KV_TRY(kv_buf_assign(&m->smallest, low));
	if (!m->largest.bytes || kv_ikey_cmp(high, kv_buf_slice(&m->largest)) > 0)
		KV_TRY(kv_buf_assign(&m->largest, high));
	return 0;
}

int kv_sst_meta_add(struct kv_sst_meta *m, struct kv_slice ikey, struct kv_slice value)
{
	struct kv_packed packed;
	struct kv_vptr p;

	if (kv_ikey_kind(ikey) == KV_KIND_PUT_PACKED)
		KV_TRY(kv_packed_decode(value, &packed));
	if (kv_ikey_kind(ikey) == KV_KIND_PUT_PTR) {
		KV_TRY(kv_vptr_decode(value, &p));
		KV_TRY(refs_add(m, p.segment_no, kv_vptr_referenced_bytes(&p)));
	}
	KV_TRY(add_bounds(m, ikey, ikey));
	add_seqno(m, kv_ikey_seqno(ikey));
	m->entries++;
	m->deletes += kv_ikey_kind(ikey) == KV_KIND_DELETE;
	m->raw_bytes += ikey.bytes + value.bytes;
	return 0;
}

int kv_sst_meta_add_rangedel(struct kv_sst_meta *m, const struct kv_rangedel *r)
{
	KV_AUTO(kv_buf_done) struct kv_buf low = KV_BUF_INIT, high = KV_BUF_INIT;

	KV_TRY(kv_ikey_make(&low, r->begin, r->seqno, KV_KIND_DELETE_RANGE));
	KV_TRY(kv_ikey_make(&high, r->end, KV_SEQNO_MAX, KV_KIND_DELETE_RANGE));
	KV_TRY(add_bounds(m, kv_buf_slice(&low), kv_buf_slice(&high)));
	add_seqno(m, r->seqno);
	m->range_deletes++;
	return 0;
}

bool kv_sst_meta_eq(const struct kv_sst_meta *a, const struct kv_sst_meta *b)
{
	if (a->number != b->number || a->file_bytes != b->file_bytes ||
	    a->entries != b->entries || a->deletes != b->deletes ||
	    a->range_deletes != b->range_deletes || a->raw_bytes != b->raw_bytes ||
	    a->seqno_min != b->seqno_min || a->seqno_max != b->seqno_max ||
	    a->ref_count != b->ref_count ||
	    !kv_slice_eq(kv_buf_slice(&a->smallest), kv_buf_slice(&b->smallest)) ||
	    !kv_slice_eq(kv_buf_slice(&a->largest), kv_buf_slice(&b->largest)))
		return false;
	for (size_t i = 0; i < a->ref_count; i++)
		if (a->refs[i].segment_no != b->refs[i].segment_no ||
		    a->refs[i].bytes != b->refs[i].bytes)
			return false;
	return true;
}

/* --- properties ------------------------------------------------------------------------------- */

static const struct {
	enum kv_table_property number;
	size_t field;			/* a uint64_t of struct kv_sst_meta */
} numbers[] = {
	{ KV_PROPERTY_ENTRIES, offsetof(struct kv_sst_meta, entries) },
	{ KV_PROPERTY_DELETES, offsetof(struct kv_sst_meta, deletes) },
	{ KV_PROPERTY_RANGE_DELETES, offsetof(struct kv_sst_meta, range_deletes) },
	{ KV_PROPERTY_RAW_BYTES, offsetof(struct kv_sst_meta, raw_bytes) },
	{ KV_PROPERTY_SEQNO_MIN, offsetof(struct kv_sst_meta, seqno_min) },
	{ KV_PROPERTY_SEQNO_MAX, offsetof(struct kv_sst_meta, seqno_max) },
};

#define PROPERTIES_REQUIRED ((1u << (KV_PROPERTY_REFS + 1)) - 2)

static int append_number(struct kv_buf *out, enum kv_table_property number, uint64_t n)
{
	KV_TRY(kv_buf_append_varint(out, (uint64_t)number));
	KV_TRY(kv_buf_append_varint(out, kv_varint_bytes(n)));
	return kv_buf_append_varint(out, n);
}

static int append_bytes(struct kv_buf *out, enum kv_table_property number, struct kv_slice s)
{
	KV_TRY(kv_buf_append_varint(out, (uint64_t)number));
	return kv_buf_append_prefixed(out, s);
}

int kv_sst_meta_encode(const struct kv_sst_meta *m, struct kv_buf *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf refs = KV_BUF_INIT;
	uint64_t n;

	for (size_t i = 0; i < KV_ARRAY_LEN(numbers); i++) {
		memcpy(&n, (const char *)m + numbers[i].field, sizeof(n));
		KV_TRY(append_number(out, numbers[i].number, n));
	}
	KV_TRY(append_bytes(out, KV_PROPERTY_SMALLEST, kv_buf_slice(&m->smallest)));
	KV_TRY(append_bytes(out, KV_PROPERTY_LARGEST, kv_buf_slice(&m->largest)));
	for (size_t i = 0; i < m->ref_count; i++) {
		KV_TRY(kv_buf_append_varint(&refs, m->refs[i].segment_no));
		KV_TRY(kv_buf_append_varint(&refs, m->refs[i].bytes));
	}
	return append_bytes(out, KV_PROPERTY_REFS, kv_buf_slice(&refs));
}

static int decode_refs(struct kv_sst_meta *m, struct kv_slice s)
{
	struct kv_segment_ref ref;
	kv_fileno last = 0;

	m->ref_count = 0;
	while (s.bytes) {
		if (!kv_take_varint(&s, &ref.segment_no) || !kv_take_varint(&s, &ref.bytes) ||
		    ref.segment_no <= last)
			return KV_E_bad_record;
		KV_TRY(refs_push(m, ref));
		last = ref.segment_no;
	}
	return 0;
}

static int decode_property(struct kv_sst_meta *m, uint64_t number, struct kv_slice value)
{
	uint64_t n;

	for (size_t i = 0; i < KV_ARRAY_LEN(numbers); i++)
		if (number == (uint64_t)numbers[i].number) {
			if (!kv_take_varint(&value, &n) || value.bytes)
				return KV_E_bad_record;
			memcpy((char *)m + numbers[i].field, &n, sizeof(n));
			return 0;
		}
	switch (number) {
	case KV_PROPERTY_SMALLEST:
		return kv_buf_assign(&m->smallest, value);
	case KV_PROPERTY_LARGEST:
		return kv_buf_assign(&m->largest, value);
	case KV_PROPERTY_REFS:
		return decode_refs(m, value);
	default:
		return 0;
	}
}

static bool meta_makes_sense(const struct kv_sst_meta *m)
{
	struct kv_slice smallest = kv_buf_slice(&m->smallest), largest = kv_buf_slice(&m->largest);

	return m->deletes <= m->entries && (m->entries || m->range_deletes) &&
	       m->seqno_min <= m->seqno_max && m->seqno_max <= KV_SEQNO_MAX &&
	       kv_ikey_is_valid(smallest) && kv_ikey_is_valid(largest) &&
	       kv_ikey_cmp(smallest, largest) <= 0;
}

int kv_sst_meta_decode(struct kv_slice s, struct kv_sst_meta *out)
{
	struct kv_slice value;
	uint64_t number;
	uint32_t seen = 0;

	while (s.bytes) {
		if (!kv_take_varint(&s, &number) || !kv_take_prefixed(&s, &value))
			return KV_E_bad_record;
		if (number <= KV_PROPERTY_REFS) {
			if (seen & 1u << number)
				return KV_E_bad_record;
			seen |= 1u << number;
		}
		KV_TRY(decode_property(out, number, value));
	}
	return seen == PROPERTIES_REQUIRED && meta_makes_sense(out) ? 0 : KV_E_bad_record;
}

/* --- blocks ----------------------------------------------------------------------------------- */

struct kv_block_handle_disk kv_block_handle_encode(struct kv_block_handle h)
{
	return (struct kv_block_handle_disk){
		.offset = kv_le64(h.offset),
		.stored_bytes = kv_le32(h.stored_bytes),
	};
}

struct kv_block_handle kv_block_handle_decode(struct kv_block_handle_disk d)
{
	return (struct kv_block_handle){
		.offset = kv_le64_get(d.offset),
		.stored_bytes = kv_le32_get(d.stored_bytes),
	};
}

uint64_t kv_table_footer_sum(const struct kv_table_footer *f)
{
	return kv_checksum(kv_slice(f, offsetof(struct kv_table_footer, checksum)), 0);
}

uint64_t kv_block_sum(kv_fileno number, uint64_t offset, struct kv_slice stored,
		      const struct kv_block_trailer *trailer)
{
	const size_t rest = offsetof(struct kv_block_trailer, raw_bytes);

	return kv_checksum2(stored, kv_slice((const char *)trailer + rest, sizeof(*trailer) - rest),
			    number ^ offset << 20);
}

bool kv_sst_take_rangedel(struct kv_slice *s, struct kv_rangedel *out)
{
	struct kv_slice rest = *s;

	if (!kv_take_prefixed(&rest, &out->begin) || !kv_take_prefixed(&rest, &out->end) ||
	    !kv_take_varint(&rest, &out->seqno) || out->seqno > KV_SEQNO_MAX ||
	    kv_slice_cmp(out->begin, out->end) >= 0)
		return false;
	*s = rest;
	return true;
}
