/* Metas of tables that do not exist, for tests of edits and versions. */
#ifndef TESTS_VERSION_MAKE_H
#define TESTS_VERSION_MAKE_H

#include "kv/edit.h"
#include "tests/unit/unit.h"

/* A table with the user keys [from, to]; free it with kv_sst_meta_done(). */
static inline struct kv_sst_meta make_meta(kv_fileno number, const char *from, const char *to,
					   kv_seqno seqno_min, kv_seqno seqno_max)
{
	struct kv_sst_meta m = {
		.number = number,
		.file_bytes = 1000 + number,
		.entries = 10,
		.deletes = 2,
		.range_deletes = 1,
		.raw_bytes = 5000,
		.seqno_min = seqno_min,
		.seqno_max = seqno_max,
	};

	ck_ok(kv_ikey_make(&m.smallest, kv_slice_str(from), seqno_max, KV_KIND_PUT));
	ck_ok(kv_ikey_make(&m.largest, kv_slice_str(to), seqno_min, KV_KIND_PUT));
	return m;
}

/* The table ends with a range tombstone, before the user key `end`. */
static inline void make_exclusive(struct kv_sst_meta *m, const char *end)
{
	kv_buf_reset(&m->largest);
	ck_ok(kv_ikey_make(&m->largest, kv_slice_str(end), KV_SEQNO_MAX, KV_KIND_DELETE_RANGE));
}

static inline void make_ref(struct kv_sst_meta *m, kv_fileno segment_no, uint64_t bytes)
{
	m->refs = realloc(m->refs, (m->ref_count + 1) * sizeof(*m->refs));
	ck_assert_ptr_nonnull(m->refs);
	m->refs[m->ref_count++] = (struct kv_segment_ref){ segment_no, bytes };
}

/* Adds a table without references to the edit. */
static inline void edit_add(struct kv_edit *e, int level, kv_fileno number, const char *from,
			    const char *to, kv_seqno seqno_max)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta m =
		make_meta(number, from, to, seqno_max, seqno_max);

	ck_ok(kv_edit_add_table(e, level, &m));
}

#endif
