#include "kv/separate.h"

#include "kv/checksum.h"
#include "kv/compress.h"

#define WINDOW_BYTES KV_MIB
#define WINDOW_ENTRIES 512

struct window_entry {
	struct kv_slice ikey, value;
	bool leaves;			/* for the segment: s->puts[put] */
	size_t put;
};

struct kv_separator {
	struct kv_db *db;
	struct kv_live_segment **segment;	/* NULL: all values stay */
	struct kv_link *full;
	bool apart;

	struct kv_buf ikey;			/* of the entry that is being added */
	struct window_entry window[WINDOW_ENTRIES];
	size_t window_count;
	uint64_t value_bytes, table_bytes;	/* in the window, for the segment and for the table */
	struct kv_segment_put puts[WINDOW_ENTRIES];
	struct kv_vptr ptrs[WINDOW_ENTRIES];
	size_t put_count;
};

struct kv_separator *kv_separator_new(struct kv_db *db, struct kv_live_segment **segment,
				      struct kv_link *full, bool apart)
{
	struct kv_separator *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->db = db;
	s->segment = segment;
	s->full = full;
	s->apart = apart;
	return s;
}

void kv_separator_free(struct kv_separator *s)
{
	if (!s)
		return;
	kv_buf_done(&s->ikey);
	free(s);
}

bool kv_separator_holds(const struct kv_separator *s)
{
	return s->window_count;
}

uint64_t kv_separator_bytes(const struct kv_separator *s)
{
	return s->table_bytes;
}

static bool leaves(const struct kv_separator *s, struct kv_slice ikey, size_t value_bytes)
{
	enum kv_kind kind = kv_ikey_kind(ikey);

	return s->segment && (kind == KV_KIND_PUT_PACKED ||
			      (kind == KV_KIND_PUT && value_bytes >= s->db->options.medium_bytes));
}

/* --- values -------------------------------------------------------------------------------- */

static int new_segment(struct kv_separator *s, struct kv_live_segment **out)
{
	KV_TRY(kv_live_segment_new(s->db, out));
	if (s->apart) {
		kv_mutex_lock(&s->db->mu);
		(*out)->apart = true;
		kv_mutex_unlock(&s->db->mu);
	}
	return 0;
}

/* Room in the segment for as many bytes; a full one is left for a new one. */
static int segment_room(struct kv_separator *s, uint64_t bytes)
{
	struct kv_live_segment **at = s->segment, *next;

	if (*at && kv_segment_bytes((*at)->writer) + bytes > s->db->options.segment_bytes &&
	    kv_segment_bytes((*at)->writer) > sizeof(struct kv_file_header)) {
		KV_TRY(new_segment(s, &next));
		kv_list_push_back(s->full, &(*at)->flush_link);
		*at = next;
	}
	if (!*at)
		KV_TRY(new_segment(s, at));
	return kv_err_space(kv_segment_reserve((*at)->writer, bytes));
}

/* Appends the values of the window to the segment: s->ptrs[n] for s->puts[n]. */
static int write_values(struct kv_separator *s)
{
	uint64_t bytes = 0;
	int err;

	if (!s->put_count)
		return 0;
	for (size_t i = 0; i < s->put_count; i++)
		bytes += sizeof(struct kv_vlog_record) + s->puts[i].key.bytes +
			 s->puts[i].stored.bytes + KV_RECORD_ALIGN;
	KV_TRY(segment_room(s, bytes));
	kv_count(&s->db->counters.vlog_bytes, bytes);
	err = kv_segment_append((*s->segment)->writer, s->puts, s->put_count, s->ptrs);
	/* Whatever the reason: the segment can't be synced any more. */
	return err ? kv_poison(s->db, err) : 0;
}

/* What can be compressed came so from its writer. */
static int add_value(struct kv_separator *s, struct kv_slice ikey, struct kv_slice value)
{
	struct kv_packed p = { KV_CODEC_NONE, (uint32_t)value.bytes, value };

	if (kv_ikey_kind(ikey) == KV_KIND_PUT_PACKED)
		KV_TRY(kv_packed_decode(value, &p));
	s->puts[s->put_count++] = (struct kv_segment_put){
		.key = kv_ikey_user(ikey),
		.seqno = kv_ikey_seqno(ikey),
		.stored = p.stored,
		.raw_bytes = p.raw_bytes,
		.codec = p.codec,
		.value_checksum = kv_checksum(p.stored, 0),
	};
	s->value_bytes += p.stored.bytes;
	return 0;
}

/* --- entries ------------------------------------------------------------------------------- */

static int add_pointer(struct kv_separator *s, struct kv_sst_build *build,
		       const struct window_entry *e)
{
	struct kv_vptr_disk disk;

	kv_vptr_encode(&s->ptrs[e->put], &disk);
	KV_TRY(kv_ikey_make(&s->ikey, kv_ikey_user(e->ikey), kv_ikey_seqno(e->ikey),
			    KV_KIND_PUT_PTR));
	return kv_sst_build_add(build, kv_buf_slice(&s->ikey), kv_slice(&disk, sizeof(disk)));
}

int kv_separator_flush(struct kv_separator *s, struct kv_sst_build *build)
{
	KV_TRY(write_values(s));
	for (size_t i = 0; i < s->window_count; i++) {
		const struct window_entry *e = &s->window[i];

		if (e->leaves)
			KV_TRY(add_pointer(s, build, e));
		else
			KV_TRY(kv_sst_build_add(build, e->ikey, e->value));
	}
	s->window_count = s->put_count = 0;
	s->value_bytes = s->table_bytes = 0;
	return 0;
}

static int hold_back(struct kv_separator *s, struct kv_sst_build *build, struct window_entry e)
{
	e.put = s->put_count;
	s->window[s->window_count++] = e;
	s->table_bytes += e.ikey.bytes + (e.leaves ? sizeof(struct kv_vptr_disk) : e.value.bytes);
	if (e.leaves)
		KV_TRY(add_value(s, e.ikey, e.value));
	if (s->window_count == WINDOW_ENTRIES || s->value_bytes >= WINDOW_BYTES)
		return kv_separator_flush(s, build);
	return 0;
}

int kv_separator_add(struct kv_separator *s, struct kv_sst_build *build, struct kv_slice ikey,
		     struct kv_slice value)
{
	struct window_entry e = { .ikey = ikey, .value = value,
				  .leaves = leaves(s, ikey, value.bytes) };

	if (s->window_count || e.leaves)
		return hold_back(s, build, e);
	return kv_sst_build_add(build, ikey, value);
}
