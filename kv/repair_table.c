/*
 * What can be read of a table. A block that can't is left out, and what it held is told by the keys
 * on both sides; a table whose index, range tombstones or footer are damaged is lost as a whole.
 */
#include "kv/repair_impl.h"

#include <inttypes.h>
#include <stdio.h>

#include "kv/compress.h"
#include "kv/sst_impl.h"

#define HEX_BYTES 24

/* A key in a message: its first bytes. */
struct hex {
	char s[2 * HEX_BYTES + 4];
};

static struct hex hex(struct kv_slice s)
{
	const uint8_t *p = s.data;
	struct hex h = { "" };

	for (size_t i = 0; i < s.bytes && i < HEX_BYTES; i++)
		snprintf(h.s + 2 * i, 3, "%02x", p[i]);
	if (s.bytes > HEX_BYTES)
		snprintf(h.s + 2 * HEX_BYTES, sizeof(h.s) - 2 * HEX_BYTES, "...");
	return h;
}

static struct kv_slice user_key(const struct kv_buf *ikey)
{
	return ikey->bytes ? kv_ikey_user(kv_buf_slice(ikey)) : kv_slice(NULL, 0);
}

static int open_table(struct kv_repair *r, const struct kv_repair_file *f, struct kv_sst **out)
{
	struct kv_store *s = &r->db->store;
	struct kv_env_file *file;
	int err;

	KV_TRY(kv_store_open_file(s, KV_FILE_TABLE, f->number, &file));
	err = kv_sst_open(s, r->db->cache, file, f->number, f->bytes, &r->db->sst_counters, out);
	if (err)
		s->env->ops->close(file);
	return err;
}

/* --- salvage ------------------------------------------------------------------------------ */

struct salvage {
	struct kv_repair *r;
	const struct kv_repair_file *file;
	struct kv_sst *sst;
	struct kv_sst_build *build;	/* NULL in a dry run */
	struct kv_buf last;		/* internal key of the last entry that was good */
	bool losing;			/* something behind it was lost */
	uint64_t blocks_lost, entries;
};

static void salvage_done(struct salvage *v)
{
	kv_sst_build_free(v->build);
	kv_buf_done(&v->last);
}

/* next: the first key that is good again; NULL: none is. */
static void tell_lost(struct salvage *v, const struct kv_slice *next)
{
	if (!v->losing)
		return;
	v->losing = false;
	kv_repair_lost(v->r, "%s: entries between keys %s and %s cannot be read",
		       kv_filename(KV_FILE_TABLE, v->file->number).s,
		       v->last.bytes ? hex(user_key(&v->last)).s : "(the first)",
		       next ? hex(kv_ikey_user(*next)).s : "(the last)");
}

/* True when the entry is good, in itself and behind those before. */
static bool entry_is_good(const struct salvage *v, struct kv_slice key, struct kv_slice value)
{
	struct kv_packed packed;
	struct kv_vptr p;

	if (!kv_ikey_is_valid(key) || kv_ikey_seqno(key) > KV_SEQNO_MAX ||
	    (v->last.bytes && kv_ikey_cmp(kv_buf_slice(&v->last), key) >= 0))
		return false;
	switch (kv_ikey_kind(key)) {
	case KV_KIND_PUT_PTR:
		return !kv_vptr_decode(value, &p);
	case KV_KIND_PUT_PACKED:
		return !kv_packed_decode(value, &packed);
	case KV_KIND_DELETE_RANGE:
		return false;
	default:
		return true;
	}
}

static int take_entry(struct salvage *v, struct kv_slice key, struct kv_slice value)
{
	tell_lost(v, &key);
	v->entries++;
	if (v->build)
		KV_TRY(kv_sst_build_add(v->build, key, value));
	return kv_buf_assign(&v->last, key);
}

static int take_block(struct salvage *v, struct kv_block_handle h)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	KV_AUTO(kv_block_cursor_done) struct kv_block_cursor c;
	struct kv_block block;

	kv_block_cursor_init(&c);
	KV_TRY(kv_sst_block_anew(v->sst, h, &pin));
	block = kv_block_plain(kv_cache_entry_data(pin.entry));
	KV_TRY(kv_block_cursor_set(&c, &block));
	for (c.cursor.ops->seek_first(&c.cursor); c.valid; c.cursor.ops->next(&c.cursor)) {
		if (!entry_is_good(v, kv_buf_slice(&c.key), c.value))
			return KV_E_bad_record;
		KV_TRY(take_entry(v, kv_buf_slice(&c.key), c.value));
	}
	return c.error;
}

static int take_blocks(struct salvage *v)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	KV_AUTO(kv_block_cursor_done) struct kv_block_cursor c;
	struct kv_block_handle h;
	struct kv_block block;

	kv_block_cursor_init(&c);
	if (!v->sst->index.stored_bytes)
		return 0;
	KV_TRY(kv_sst_block_anew(v->sst, v->sst->index, &pin));
	block = kv_block_plain(kv_cache_entry_data(pin.entry));
	KV_TRY(kv_block_cursor_set(&c, &block));
	for (c.cursor.ops->seek_first(&c.cursor); c.valid; c.cursor.ops->next(&c.cursor)) {
		int err = kv_sst_handle(v->sst, c.value, &h);

		if (!err)
			err = take_block(v, h);
		if (err && !kv_repair_is_damage(err))
			return err;
		v->losing |= err != 0;
		v->blocks_lost += err != 0;
	}
	return c.error;
}

static int take_rangedels(struct salvage *v)
{
	const struct kv_rangedels *all = kv_sst_rangedels(v->sst);

	for (uint32_t i = 0; all && v->build && i < all->count; i++)
		KV_TRY(kv_sst_build_add_rangedel(v->build, &all->at[i]));
	return 0;
}

static int finish(struct salvage *v, int level)
{
	KV_AUTO(kv_sst_meta_done) struct kv_sst_meta meta = { 0 };

	if (!v->build || kv_sst_build_is_empty(v->build))
		return 0;
	KV_TRY(kv_sst_build_finish(v->build, &meta));
	return kv_edit_add_table(&v->r->state, level, &meta);
}

/* KV_E_corrupt: nothing can be had of it. */
static int salvage(struct kv_repair *r, const struct kv_repair_file *f, struct kv_sst *sst, int level)
{
	KV_AUTO(salvage_done) struct salvage v = { .r = r, .file = f, .sst = sst };
	int err;

	if (!r->dry)
		KV_TRY(kv_table_build_new(r->db, kv_fileno_take(r->db), level, &v.build));
	r->quiet = true;
	err = take_blocks(&v);
	r->quiet = false;
	KV_TRY(err);
	tell_lost(&v, NULL);
	KV_TRY(take_rangedels(&v));
	KV_TRY(finish(&v, level));
	r->report->tables_salvaged++;
	r->report->blocks_lost += v.blocks_lost;
	kv_repair_note(r, "%s: damaged; %" PRIu64 " entries of it are kept, %" PRIu64 " blocks are lost",
		       kv_filename(KV_FILE_TABLE, f->number).s, v.entries, v.blocks_lost);
	return 0;
}

/* --- a whole table ------------------------------------------------------------------------ */

static void drop(struct kv_repair *r, struct kv_repair_file *f, const struct kv_sst_meta *said)
{
	r->report->tables_dropped++;
	f->lost = true;
	if (said)
		kv_repair_lost(r, "%s: nothing in it can be read; it held %" PRIu64
			       " entries from key %s to %s", kv_filename(f->kind, f->number).s,
			       said->entries, hex(user_key(&said->smallest)).s,
			       hex(user_key(&said->largest)).s);
	else
		kv_repair_lost(r, "%s: nothing in it can be read", kv_filename(f->kind, f->number).s);
}

/* Is it what the manifest means, or some other table under its name? */
static bool is_meant(const struct kv_sst_meta *m, const struct kv_sst_meta *said)
{
	return !said || (kv_slice_eq(kv_buf_slice(&m->smallest), kv_buf_slice(&said->smallest)) &&
			 kv_slice_eq(kv_buf_slice(&m->largest), kv_buf_slice(&said->largest)) &&
			 m->entries == said->entries && m->seqno_max == said->seqno_max);
}

int kv_repair_table(struct kv_repair *r, struct kv_repair_file *f, int level,
		    const struct kv_sst_meta *said, kv_seqno *out_seqno)
{
	struct kv_sst *sst = NULL;
	int err;

	*out_seqno = 0;
	KV_TRY(kv_repair_mend(r, f));
	r->quiet = true;
	err = f->foreign ? KV_E_bad_record : open_table(r, f, &sst);
	if (!err && !is_meant(kv_sst_meta(sst), said))
		err = KV_E_bad_record;
	if (!err)
		err = kv_sst_check(sst);
	r->quiet = false;
	if (!err) {
		err = kv_edit_add_table(&r->state, level, kv_sst_meta(sst));
		*out_seqno = kv_sst_meta(sst)->seqno_max;
		r->report->tables_kept++;
	} else if (kv_repair_is_damage(err)) {
		r->report->damaged = true;
		if (sst && is_meant(kv_sst_meta(sst), said))
			err = salvage(r, f, sst, level);
		if (kv_repair_is_damage(err)) {
			drop(r, f, said);
			err = 0;
		}
		f->lost = true;
	}
	kv_sst_close(sst);
	return err;
}
