#include "kv/edit.h"

#include <stdlib.h>

#include "kv/assert.h"
#include "kv/errcode.h"

void kv_edit_done(struct kv_edit *e)
{
	for (size_t i = 0; i < e->add_count; i++)
		kv_sst_meta_done(&e->adds[i].meta);
	free(e->adds);
	free(e->deletes);
	free(e->segment_adds);
	free(e->segment_seals);
	free(e->segment_deletes);
	free(e->snapshot_adds);
	free(e->snapshot_deletes);
	memset(e, 0, sizeof(*e));
}

/*
 * The array, with room for one more than its count items; NULL when out of
 * memory. The arrays have no field for their capacity: it is the power of two
 * at or above the count.
 */
static void *grow(void *array, size_t count, size_t item_bytes)
{
	size_t bytes;

	if (count & (count - 1))
		return array;
	if (__builtin_mul_overflow(count ? 2 * count : 1, item_bytes, &bytes))
		return NULL;
	return realloc(array, bytes);
}

static int append_table(struct kv_edit_table **array, size_t *count, int level,
			struct kv_edit_table **out)
{
	struct kv_edit_table *grown = grow(*array, *count, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	*array = grown;
	*out = &(*array)[(*count)++];
	memset(*out, 0, sizeof(**out));
	(*out)->level = level;
	return 0;
}

int kv_edit_add_table(struct kv_edit *e, int level, const struct kv_sst_meta *meta)
{
	struct kv_edit_table *t;
	int err;

	KV_TRY(append_table(&e->adds, &e->add_count, level, &t));
	err = kv_sst_meta_copy(&t->meta, meta);
	if (err) {
		memset(&t->meta, 0, sizeof(t->meta));
		e->add_count--;
	}
	return err;
}

int kv_edit_delete_table(struct kv_edit *e, int level, kv_fileno number)
{
	struct kv_edit_table *t;

	KV_TRY(append_table(&e->deletes, &e->delete_count, level, &t));
	t->meta.number = number;
	return 0;
}

static int append_segment(struct kv_edit_segment **array, size_t *count, kv_fileno number,
			  uint64_t bytes)
{
	struct kv_edit_segment *grown = grow(*array, *count, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	*array = grown;
	(*array)[(*count)++] = (struct kv_edit_segment){ .number = number, .bytes = bytes };
	return 0;
}

int kv_edit_add_segment(struct kv_edit *e, kv_fileno number)
{
	return append_segment(&e->segment_adds, &e->segment_add_count, number, 0);
}

int kv_edit_seal_segment(struct kv_edit *e, kv_fileno number, uint64_t bytes)
{
	return append_segment(&e->segment_seals, &e->segment_seal_count, number, bytes);
}

int kv_edit_delete_segment(struct kv_edit *e, kv_fileno number)
{
	return append_segment(&e->segment_deletes, &e->segment_delete_count, number, 0);
}

bool kv_snapshot_name_is_good(const char *name)
{
	size_t bytes = strnlen(name, KV_SNAPSHOT_NAME_BYTES_MAX + 1);

	return bytes && bytes <= KV_SNAPSHOT_NAME_BYTES_MAX;
}

static int append_snapshot(struct kv_snapshot_info **array, size_t *count,
			   const struct kv_snapshot_info *info)
{
	struct kv_snapshot_info *grown = grow(*array, *count, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	*array = grown;
	(*array)[(*count)++] = *info;
	return 0;
}

int kv_edit_add_snapshot(struct kv_edit *e, const struct kv_snapshot_info *info)
{
	return append_snapshot(&e->snapshot_adds, &e->snapshot_add_count, info);
}

int kv_edit_delete_snapshot(struct kv_edit *e, const char *name)
{
	struct kv_snapshot_info info = { .seqno = 0 };

	KV_ASSERT(kv_snapshot_name_is_good(name));
	memcpy(info.name, name, strlen(name) + 1);
	return append_snapshot(&e->snapshot_deletes, &e->snapshot_delete_count, &info);
}

/* --- encoding --------------------------------------------------------------------- */

static int put_field(struct kv_buf *to, enum kv_edit_tag tag, struct kv_slice value)
{
	KV_TRY(kv_buf_append_varint(to, tag));
	return kv_buf_append_prefixed(to, value);
}

static int put_numbers(struct kv_buf *to, enum kv_edit_tag tag, const uint64_t *n, size_t count)
{
	uint8_t value[2 * KV_VARINT_BYTES_MAX];
	size_t bytes = 0;

	KV_ASSERT(count <= 2);
	for (size_t i = 0; i < count; i++)
		bytes += kv_varint_put(value + bytes, n[i]);
	return put_field(to, tag, kv_slice(value, bytes));
}

static int put_number(struct kv_buf *to, enum kv_edit_tag tag, uint64_t n)
{
	return put_numbers(to, tag, &n, 1);
}

static int put_added_table(struct kv_buf *to, const struct kv_edit_table *t)
{
	const struct kv_sst_meta *m = &t->meta;
	const uint64_t numbers[] = {
		(uint64_t)t->level, m->number,	  m->file_bytes, m->entries,   m->deletes,
		m->range_deletes,   m->raw_bytes, m->seqno_min,	 m->seqno_max,
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(numbers); i++)
		KV_TRY(kv_buf_append_varint(to, numbers[i]));
	KV_TRY(kv_buf_append_prefixed(to, kv_buf_slice(&m->smallest)));
	KV_TRY(kv_buf_append_prefixed(to, kv_buf_slice(&m->largest)));
	KV_TRY(kv_buf_append_varint(to, m->ref_count));
	for (size_t i = 0; i < m->ref_count; i++) {
		KV_TRY(kv_buf_append_varint(to, m->refs[i].segment_no));
		KV_TRY(kv_buf_append_varint(to, m->refs[i].bytes));
	}
	return 0;
}

static int put_tables(struct kv_buf *to, const struct kv_edit *e)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;

	for (size_t i = 0; i < e->delete_count; i++) {
		const struct kv_edit_table *t = &e->deletes[i];

		KV_TRY(put_numbers(to, KV_TAG_TABLE_DELETE,
				   (uint64_t[]){ (uint64_t)t->level, t->meta.number }, 2));
	}
	for (size_t i = 0; i < e->add_count; i++) {
		kv_buf_reset(&value);
		KV_TRY(put_added_table(&value, &e->adds[i]));
		KV_TRY(put_field(to, KV_TAG_TABLE_ADD, kv_buf_slice(&value)));
	}
	return 0;
}

static int put_snapshots(struct kv_buf *to, const struct kv_edit *e)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;

	for (size_t i = 0; i < e->snapshot_delete_count; i++)
		KV_TRY(put_field(to, KV_TAG_NAMED_SNAPSHOT_DELETE,
				 kv_slice_str(e->snapshot_deletes[i].name)));
	for (size_t i = 0; i < e->snapshot_add_count; i++) {
		const struct kv_snapshot_info *s = &e->snapshot_adds[i];

		kv_buf_reset(&value);
		KV_TRY(kv_buf_append_prefixed(&value, kv_slice_str(s->name)));
		KV_TRY(kv_buf_append_varint(&value, s->seqno));
		KV_TRY(kv_buf_append_varint(&value, s->made_ns));
		KV_TRY(put_field(to, KV_TAG_NAMED_SNAPSHOT_ADD, kv_buf_slice(&value)));
	}
	return 0;
}

int kv_edit_encode(const struct kv_edit *e, struct kv_buf *out)
{
	if (e->is_snapshot)
		KV_TRY(put_field(out, KV_TAG_SNAPSHOT, kv_slice(NULL, 0)));
	if (e->has_next_fileno)
		KV_TRY(put_number(out, KV_TAG_NEXT_FILENO, e->next_fileno));
	if (e->has_journal_min)
		KV_TRY(put_number(out, KV_TAG_JOURNAL_MIN, e->journal_min));
	if (e->has_seqno)
		KV_TRY(put_number(out, KV_TAG_SEQNO, e->seqno));
	for (size_t i = 0; i < e->segment_add_count; i++)
		KV_TRY(put_number(out, KV_TAG_SEGMENT_ADD, e->segment_adds[i].number));
	for (size_t i = 0; i < e->segment_seal_count; i++) {
		const struct kv_edit_segment *s = &e->segment_seals[i];

		KV_TRY(put_numbers(out, KV_TAG_SEGMENT_SEAL,
				   (uint64_t[]){ s->number, s->bytes }, 2));
	}
	for (size_t i = 0; i < e->segment_delete_count; i++)
		KV_TRY(put_number(out, KV_TAG_SEGMENT_DELETE, e->segment_deletes[i].number));
	KV_TRY(put_snapshots(out, e));
	return put_tables(out, e);
}

/* --- decoding --------------------------------------------------------------------- */

static bool take_level(struct kv_slice *s, int *out)
{
	uint64_t level;

	if (!kv_take_varint(s, &level) || level >= KV_LEVELS)
		return false;
	*out = (int)level;
	return true;
}

static int take_number_once(struct kv_slice s, bool *has, uint64_t *out)
{
	if (*has || !kv_take_varint(&s, out) || s.bytes)
		return KV_E_bad_record;
	*has = true;
	return 0;
}

static int take_key(struct kv_slice *s, struct kv_buf *out)
{
	struct kv_slice key;

	if (!kv_take_prefixed(s, &key) || !kv_ikey_is_valid(key))
		return KV_E_bad_record;
	return kv_buf_assign(out, key);
}

static int take_refs(struct kv_slice *s, struct kv_sst_meta *m)
{
	uint64_t count;

	/* A reference takes two bytes at least: so a wrong count cannot ask for much memory. */
	if (!kv_take_varint(s, &count) || count > s->bytes / 2)
		return KV_E_bad_record;
	if (!count)
		return 0;
	m->refs = calloc((size_t)count, sizeof(*m->refs));
	if (!m->refs)
		return -ENOMEM;
	m->ref_count = (size_t)count;
	for (size_t i = 0; i < m->ref_count; i++)
		if (!kv_take_varint(s, &m->refs[i].segment_no) ||
		    !kv_take_varint(s, &m->refs[i].bytes))
			return KV_E_bad_record;
	return 0;
}

static int take_added_table(struct kv_slice s, struct kv_edit *e)
{
	struct kv_edit_table *t;
	struct kv_sst_meta *m;
	int level;

	if (!take_level(&s, &level))
		return KV_E_bad_record;
	/* From here on the edit owns what is half filled in. */
	KV_TRY(append_table(&e->adds, &e->add_count, level, &t));
	m = &t->meta;
	if (!kv_take_varint(&s, &m->number) || !kv_take_varint(&s, &m->file_bytes) ||
	    !kv_take_varint(&s, &m->entries) || !kv_take_varint(&s, &m->deletes) ||
	    !kv_take_varint(&s, &m->range_deletes) || !kv_take_varint(&s, &m->raw_bytes) ||
	    !kv_take_varint(&s, &m->seqno_min) || !kv_take_varint(&s, &m->seqno_max))
		return KV_E_bad_record;
	KV_TRY(take_key(&s, &m->smallest));
	KV_TRY(take_key(&s, &m->largest));
	KV_TRY(take_refs(&s, m));
	return s.bytes ? KV_E_bad_record : 0;
}

static int take_deleted_table(struct kv_slice s, struct kv_edit *e)
{
	uint64_t number;
	int level;

	if (!take_level(&s, &level) || !kv_take_varint(&s, &number) || s.bytes)
		return KV_E_bad_record;
	return kv_edit_delete_table(e, level, number);
}

static int take_segment(struct kv_slice s, bool with_bytes, struct kv_edit_segment **array,
			size_t *count)
{
	uint64_t number, bytes = 0;

	if (!kv_take_varint(&s, &number) || (with_bytes && !kv_take_varint(&s, &bytes)) || s.bytes)
		return KV_E_bad_record;
	return append_segment(array, count, number, bytes);
}

static int take_name(struct kv_slice s, struct kv_snapshot_info *out)
{
	if (!s.bytes || s.bytes > KV_SNAPSHOT_NAME_BYTES_MAX || memchr(s.data, 0, s.bytes))
		return KV_E_bad_record;
	memcpy(out->name, s.data, s.bytes);
	return 0;
}

/* No more than there may be: so what is damaged cannot ask for much memory. */
static int take_snapshot(struct kv_slice s, struct kv_edit *e)
{
	struct kv_snapshot_info info = { .seqno = 0 };
	struct kv_slice name;

	if (e->snapshot_add_count == KV_SNAPSHOTS_MAX || !kv_take_prefixed(&s, &name) ||
	    !kv_take_varint(&s, &info.seqno) || !kv_take_varint(&s, &info.made_ns) || s.bytes)
		return KV_E_bad_record;
	KV_TRY(take_name(name, &info));
	return kv_edit_add_snapshot(e, &info);
}

static int take_deleted_snapshot(struct kv_slice s, struct kv_edit *e)
{
	struct kv_snapshot_info info = { .seqno = 0 };

	if (e->snapshot_delete_count == KV_SNAPSHOTS_MAX)
		return KV_E_bad_record;
	KV_TRY(take_name(s, &info));
	return kv_edit_delete_snapshot(e, info.name);
}

static int take_field(uint64_t tag, struct kv_slice s, struct kv_edit *e)
{
	switch (tag) {
	case KV_TAG_SNAPSHOT:
		if (e->is_snapshot || s.bytes)
			return KV_E_bad_record;
		e->is_snapshot = true;
		return 0;
	case KV_TAG_NEXT_FILENO:
		return take_number_once(s, &e->has_next_fileno, &e->next_fileno);
	case KV_TAG_JOURNAL_MIN:
		return take_number_once(s, &e->has_journal_min, &e->journal_min);
	case KV_TAG_SEQNO:
		return take_number_once(s, &e->has_seqno, &e->seqno);
	case KV_TAG_TABLE_ADD:
		return take_added_table(s, e);
	case KV_TAG_TABLE_DELETE:
		return take_deleted_table(s, e);
	case KV_TAG_SEGMENT_ADD:
		return take_segment(s, false, &e->segment_adds, &e->segment_add_count);
	case KV_TAG_SEGMENT_SEAL:
		return take_segment(s, true, &e->segment_seals, &e->segment_seal_count);
	case KV_TAG_SEGMENT_DELETE:
		return take_segment(s, false, &e->segment_deletes, &e->segment_delete_count);
	case KV_TAG_NAMED_SNAPSHOT_ADD:
		return take_snapshot(s, e);
	case KV_TAG_NAMED_SNAPSHOT_DELETE:
		return take_deleted_snapshot(s, e);
	default:
		return tag & 1 ? 0 : KV_E_newer_format;
	}
}

int kv_edit_decode(struct kv_slice s, struct kv_edit *out)
{
	struct kv_slice value;
	uint64_t tag;

	while (s.bytes) {
		if (!kv_take_varint(&s, &tag) || !kv_take_prefixed(&s, &value))
			return KV_E_bad_record;
		KV_TRY(take_field(tag, value, out));
	}
	return 0;
}
