#include "fs/window.h"

#include <inttypes.h>
#include <stdlib.h>

/* --- pieces ------------------------------------------------------------------------ */

void fs_pieces_done(struct fs_pieces *v)
{
	free(v->at);
	*v = (struct fs_pieces)FS_PIECES_INIT;
}

int fs_pieces_push(struct fs_pieces *v, const struct fs_piece *p)
{
	if (v->count == v->max) {
		size_t max = v->max ? 2 * v->max : FS_WINDOW_EXTENTS_MAX;
		struct fs_piece *at = reallocarray(v->at, max, sizeof(*at));

		if (!at)
			return -ENOMEM;
		v->at = at;
		v->max = max;
	}
	v->at[v->count++] = *p;
	return 0;
}

/* Adds what p has in [begin, end), if anything. */
static int pieces_push_cut(struct fs_pieces *v, const struct fs_piece *p, uint64_t begin,
			   uint64_t end)
{
	struct fs_piece cut = *p;
	uint64_t cut_end = KV_MIN(fs_piece_end(p), end);

	cut.offset = KV_MAX(p->offset, begin);
	if (cut.offset >= cut_end)
		return 0;
	cut.bytes = (uint32_t)(cut_end - cut.offset);
	if (p->data)
		cut.data += cut.offset - p->offset;
	else
		cut.skip += (uint32_t)(cut.offset - p->offset);
	cut.joined = false;
	return fs_pieces_push(v, &cut);
}

/* Are its bytes written by the batch, where the others are only referred to? */
static bool piece_is_rewritten(const struct fs_piece *p)
{
	return p->data || !p->from_ino ||
	       (uint64_t)p->bytes * FS_PART_RATIO_MAX < p->value_bytes;
}

/* Is it an extent of this file as it lies in the store? */
static bool piece_is_unchanged(const struct fs_window *w, const struct fs_piece *p)
{
	return !p->data && p->from_ino == w->ino && p->from_offset == p->offset && !p->skip &&
	       p->bytes == p->value_bytes;
}

static bool pieces_touch(const struct fs_pieces *v, size_t i)
{
	return i && fs_piece_end(&v->at[i - 1]) == v->at[i].offset;
}

/* --- reading what is there ------------------------------------------------------------ */

int fs_extent_iter(struct fs *fs, fs_ino ino, uint64_t begin, uint64_t end, bool sequential,
		   struct kv_iter **out)
{
	struct fs_key lower = fs_key_extent(ino, begin);
	struct fs_key upper = end == UINT64_MAX ? fs_key_begin(FS_KEY_EXTENT, ino + 1)
						: fs_key_extent(ino, end);
	struct kv_iter_options o = {
		.lower = fs_key_slice(&lower),
		.upper = fs_key_slice(&upper),
		.sequential = sequential,
	};
	struct kv_iter *it;

	KV_TRY(kv_iter_new(fs->kv, &o, &it));
	kv_iter_seek_first(it);
	*out = it;
	return 0;
}

void fs_extent_iter_freep(struct kv_iter **it)
{
	kv_iter_free(*it);
}

int fs_extent_at(struct fs *fs, struct kv_iter *it, fs_ino ino, uint64_t from,
		 struct fs_piece *out)
{
	uint32_t bytes = kv_iter_value_bytes(it);
	struct fs_key_parts key;

	if (!fs_key_parse(kv_iter_key(it), &key) || key.kind != FS_KEY_EXTENT || key.ino != ino)
		return fs_damaged(fs, "inode %" PRIu64 ": malformed key among its extents", ino);
	if (key.number < from || !bytes || key.number > FS_FILE_BYTES_MAX ||
	    bytes > FS_EXTENT_BYTES_MAX - key.number % FS_EXTENT_BYTES_MAX)
		return fs_damaged(fs, "inode %" PRIu64 ": an extent of %" PRIu32
				  " bytes at offset %" PRIu64 " cannot be",
				  ino, bytes, key.number);
	*out = (struct fs_piece){
		.offset = key.number,
		.bytes = bytes,
		.from_ino = ino,
		.from_offset = key.number,
		.value_bytes = bytes,
	};
	return 0;
}

void fs_window_done(struct fs_window *w)
{
	fs_pieces_done(&w->old);
	fs_pieces_done(&w->now);
}

int fs_window_load(struct fs *fs, struct fs_window *w, struct kv_iter *it, uint64_t begin)
{
	uint64_t from = begin;

	w->begin = begin;
	w->old.count = w->now.count = 0;
	if (!it)
		return 0;
	for (; kv_iter_valid(it); kv_iter_next(it)) {
		struct fs_piece p;

		KV_TRY(fs_extent_at(fs, it, w->ino, from, &p));
		if (p.offset >= begin + FS_EXTENT_BYTES_MAX)
			return 0;
		KV_TRY(fs_pieces_push(&w->old, &p));
		from = fs_piece_end(&p);
	}
	return kv_iter_error(it);
}

int fs_window_replace(struct fs_window *w, uint64_t begin, uint64_t end,
		      const struct fs_piece *pieces, size_t n)
{
	KV_ASSERT(begin >= w->begin && begin < end && end <= w->begin + FS_EXTENT_BYTES_MAX);
	KV_ASSERT(!w->now.count);
	for (size_t i = 0; i < w->old.count; i++)
		KV_TRY(pieces_push_cut(&w->now, &w->old.at[i], 0, begin));
	for (size_t i = 0; i < n; i++)
		KV_TRY(pieces_push_cut(&w->now, &pieces[i], begin, end));
	for (size_t i = 0; i < w->old.count; i++)
		KV_TRY(pieces_push_cut(&w->now, &w->old.at[i], end, UINT64_MAX));
	return 0;
}

/* --- which pieces become one extent ------------------------------------------------------ */

/* The extent being formed has so many bytes; shall p, which touches it, be part of it? */
static bool join_pays(uint64_t bytes, bool rewritten, const struct fs_piece *p)
{
	bool p_rewritten = piece_is_rewritten(p);
	uint64_t kept = rewritten ? p->bytes : bytes;
	uint64_t fresh = rewritten ? bytes : p->bytes;

	if (rewritten && p_rewritten)
		return true;
	if (!rewritten && !p_rewritten)
		return false;
	return kept + fresh <= FS_JOIN_BYTES_MAX && kept <= FS_JOIN_RATIO * fresh;
}

static size_t join_where_it_pays(struct fs_pieces *v)
{
	uint64_t bytes = 0;
	bool rewritten = false;
	size_t extents = 0;

	for (size_t i = 0; i < v->count; i++) {
		struct fs_piece *p = &v->at[i];

		p->joined = pieces_touch(v, i) && join_pays(bytes, rewritten, p);
		rewritten = p->joined || piece_is_rewritten(p);
		bytes = p->joined ? bytes + p->bytes : p->bytes;
		extents += !p->joined;
	}
	return extents;
}

static size_t join_all_that_touch(struct fs_pieces *v)
{
	size_t extents = 0;

	for (size_t i = 0; i < v->count; i++) {
		v->at[i].joined = pieces_touch(v, i);
		extents += !v->at[i].joined;
	}
	return extents;
}

static int fill_short_holes(struct fs_pieces *v)
{
	KV_AUTO(fs_pieces_done) struct fs_pieces filled = FS_PIECES_INIT;
	struct fs_pieces t;

	for (size_t i = 0; i < v->count; i++) {
		uint64_t end = i ? fs_piece_end(&v->at[i - 1]) : v->at[i].offset;
		uint64_t hole = v->at[i].offset - end;

		if (hole && hole < FS_BLOCK_BYTES) {
			struct fs_piece zeros = { .offset = end, .bytes = (uint32_t)hole };

			KV_TRY(fs_pieces_push(&filled, &zeros));
		}
		KV_TRY(fs_pieces_push(&filled, &v->at[i]));
	}
	t = *v;
	*v = filled;
	filled = t;
	return 0;
}

static int join(struct fs_pieces *v)
{
	size_t extents;

	if (join_where_it_pays(v) <= FS_WINDOW_EXTENTS_MAX)
		return 0;
	if (join_all_that_touch(v) <= FS_WINDOW_EXTENTS_MAX)
		return 0;
	KV_TRY(fill_short_holes(v));
	extents = join_all_that_touch(v);
	KV_ASSERT(extents <= FS_WINDOW_EXTENTS_MAX);
	return 0;
}

/* --- staging -------------------------------------------------------------------------------- */

static int append_piece(struct fs *fs, const struct fs_piece *p, struct kv_buf *bytes)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_extent(p->from_ino, p->from_offset);
	uint8_t *to;

	if (p->data)
		return kv_buf_append(bytes, p->data, p->bytes);
	if (p->from_ino) {
		KV_TRY(kv_get(fs->kv, NULL, fs_key_slice(&key), &value));
		if (value.bytes != p->value_bytes)
			return fs_damaged(fs, "inode %" PRIu64 ": the extent at offset %" PRIu64
					  " has changed its length by itself",
					  p->from_ino, p->from_offset);
		return kv_buf_append(bytes, value.data + p->skip, p->bytes);
	}
	to = kv_buf_grow(bytes, p->bytes);
	if (!to)
		return -ENOMEM;
	memset(to, 0, p->bytes);
	return 0;
}

/* One extent of the n pieces. `bytes` is memory to use. */
static int stage_extent(struct fs_tx *tx, struct fs_window *w, const struct fs_piece *p, size_t n,
			struct kv_buf *bytes)
{
	struct fs_key key = fs_key_extent(w->ino, p->offset);

	if (n == 1 && p->data) {
		fs_tx_put_ref(tx, &key, kv_slice(p->data, p->bytes));
		return 0;
	}
	if (n == 1 && piece_is_unchanged(w, p))
		return 0;
	if (n == 1 && !piece_is_rewritten(p)) {
		struct fs_key from = fs_key_extent(p->from_ino, p->from_offset);

		fs_tx_put_part(tx, &key, &from, p->skip, p->bytes);
		return 0;
	}
	kv_buf_reset(bytes);
	for (size_t i = 0; i < n; i++)
		KV_TRY(append_piece(tx->fs, &p[i], bytes));
	fs_tx_put(tx, &key, kv_buf_slice(bytes));
	return 0;
}

/* Deletes the old keys under which the window has no extent any more; a put replaces the others. */
static void stage_deletes(struct fs_tx *tx, const struct fs_window *w)
{
	size_t k = 0;

	for (size_t i = 0; i < w->old.count; i++) {
		uint64_t offset = w->old.at[i].offset;
		struct fs_key key = fs_key_extent(w->ino, offset);

		while (k < w->now.count && (w->now.at[k].joined || w->now.at[k].offset < offset))
			k++;
		if (k == w->now.count || w->now.at[k].offset != offset)
			fs_tx_delete(tx, &key);
	}
}

int fs_window_stage(struct fs_tx *tx, struct fs_window *w, struct fs_attr *attr)
{
	KV_AUTO(kv_buf_done) struct kv_buf bytes = KV_BUF_INIT;
	uint64_t old_bytes = 0;

	KV_TRY(join(&w->now));
	for (size_t i = 0; i < w->old.count; i++)
		old_bytes += w->old.at[i].bytes;
	if (attr->bytes < old_bytes || attr->extents < w->old.count)
		return fs_damaged(tx->fs, "inode %" PRIu64 ": has more extents than its attributes count",
				  w->ino);
	attr->bytes -= old_bytes;
	attr->extents -= w->old.count;
	for (size_t i = 0, n; i < w->now.count; i += n) {
		attr->bytes += w->now.at[i].bytes;
		attr->extents++;
		for (n = 1; i + n < w->now.count && w->now.at[i + n].joined; n++)
			attr->bytes += w->now.at[i + n].bytes;
		KV_TRY(stage_extent(tx, w, &w->now.at[i], n, &bytes));
	}
	stage_deletes(tx, w);
	return 0;
}
