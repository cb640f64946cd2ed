#include "fs/extent.h"

#include <inttypes.h>

#include "fs/window.h"

/* --- reading ------------------------------------------------------------------------- */

int fs_extent_read_first(struct fs *fs, fs_ino ino, void *to, size_t bytes, uint64_t offset)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_extent(ino, 0);

	KV_TRY(kv_get(fs->kv, NULL, fs_key_slice(&key), &value));
	if (offset > value.bytes || bytes > value.bytes - offset)
		return KV_E_not_found;
	memcpy(to, value.data + offset, bytes);
	return 0;
}

/* The part of the extent at the iterator that lies in [offset, offset + bytes), into `to`. */
static int read_extent(struct fs *fs, struct kv_iter *it, const struct fs_piece *p, uint8_t *to,
		       size_t bytes, uint64_t offset)
{
	uint64_t begin = KV_MAX(p->offset, offset);
	uint64_t end = KV_MIN(fs_piece_end(p), offset + bytes);
	struct kv_slice value;

	KV_TRY(kv_iter_value(it, &value));
	if (value.bytes != p->bytes)
		return fs_damaged(fs, "inode %" PRIu64 ": the extent at offset %" PRIu64
				  " has %zu bytes instead of %" PRIu32,
				  p->from_ino, p->offset, value.bytes, p->bytes);
	memcpy(to + (begin - offset), (const uint8_t *)value.data + (begin - p->offset),
	       end - begin);
	return 0;
}

int fs_extent_read(struct fs *fs, fs_ino ino, void *to, size_t bytes, uint64_t offset)
{
	KV_AUTO(fs_extent_iter_freep) struct kv_iter *it = NULL;
	uint64_t end = offset + bytes, from = fs_window_floor(offset), done = offset;
	uint8_t *at = to;

	if (!bytes)
		return 0;
	KV_TRY(fs_extent_iter(fs, ino, from, end, bytes > FS_EXTENT_BYTES_MAX, &it));
	for (; kv_iter_valid(it); kv_iter_next(it)) {
		struct fs_piece p;

		KV_TRY(fs_extent_at(fs, it, ino, from, &p));
		from = fs_piece_end(&p);
		if (from <= offset)
			continue;
		if (p.offset > done)
			memset(at + (done - offset), 0, p.offset - done);
		KV_TRY(read_extent(fs, it, &p, at, bytes, offset));
		done = KV_MIN(from, end);
	}
	KV_TRY(kv_iter_error(it));
	memset(at + (done - offset), 0, end - done);
	return 0;
}

int fs_extent_seek(struct fs *fs, fs_ino ino, uint64_t offset, uint64_t size, bool hole,
		   uint64_t *out)
{
	KV_AUTO(fs_extent_iter_freep) struct kv_iter *it = NULL;
	uint64_t from = fs_window_floor(offset), at = offset;

	if (offset >= size)
		return -ENXIO;
	KV_TRY(fs_extent_iter(fs, ino, from, size, false, &it));
	for (; kv_iter_valid(it); kv_iter_next(it)) {
		struct fs_piece p;

		KV_TRY(fs_extent_at(fs, it, ino, from, &p));
		from = fs_piece_end(&p);
		if (from <= offset)
			continue;
		if (!hole) {
			*out = KV_MAX(p.offset, offset);
			return 0;
		}
		if (p.offset > at)
			break;
		at = from;
	}
	KV_TRY(kv_iter_error(it));
	if (!hole)
		return -ENXIO;
	*out = KV_MIN(at, size); /* the end of the file counts as a hole */
	return 0;
}

/* --- writing --------------------------------------------------------------------------- */

/*
 * An iterator over the windows that [begin, end) touches; NULL when there is nothing
 * in them for certain: no extents at all, or all of it lies behind the end of the file.
 */
static int iter_of_range(struct fs *fs, fs_ino ino, const struct fs_attr *attr, uint64_t begin,
			 uint64_t end, struct kv_iter **out)
{
	uint64_t from = fs_window_floor(begin);

	*out = NULL;
	if (!attr->extents || from >= attr->size)
		return 0;
	return fs_extent_iter(fs, ino, from, fs_window_ceil(end), false, out);
}

/* Where the part of [pos, end) that lies in the first window ends. */
static uint64_t window_part_end(uint64_t pos, uint64_t end)
{
	return KV_MIN(end, fs_window_floor(pos) + FS_EXTENT_BYTES_MAX);
}

int fs_extent_write(struct fs_tx *tx, struct fs_inode *inode, struct fs_attr *attr,
		    const void *from, size_t bytes, uint64_t offset)
{
	KV_AUTO(fs_extent_iter_freep) struct kv_iter *it = NULL;
	KV_AUTO(fs_window_done) struct fs_window w = FS_WINDOW_INIT(inode->ino);
	uint64_t end = offset + bytes, part_end;

	if (!bytes)
		return 0;
	tx->has_data = true;
	KV_TRY(iter_of_range(tx->fs, inode->ino, attr, offset, end, &it));
	for (uint64_t pos = offset; pos < end; pos = part_end) {
		struct fs_piece p = {
			.offset = pos,
			.data = (const uint8_t *)from + (pos - offset),
		};

		part_end = window_part_end(pos, end);
		p.bytes = (uint32_t)(part_end - pos);
		KV_TRY(fs_window_load(tx->fs, &w, it, fs_window_floor(pos)));
		KV_TRY(fs_window_replace(&w, pos, part_end, &p, 1));
		KV_TRY(fs_window_stage(tx, &w, attr));
	}
	return 0;
}

/*
 * What from_ino has in [offset, offset + *bytes), as pieces of another file where the
 * same bytes begin at to_offset. Makes *bytes less when that would be too many pieces.
 */
static int copy_source(struct fs *fs, fs_ino from_ino, uint64_t offset, uint64_t to_offset,
		       uint64_t *bytes, struct fs_pieces *out)
{
	KV_AUTO(fs_extent_iter_freep) struct kv_iter *it = NULL;
	uint64_t end = offset + *bytes, from = fs_window_floor(offset);

	KV_TRY(fs_extent_iter(fs, from_ino, from, end, false, &it));
	for (; kv_iter_valid(it); kv_iter_next(it)) {
		struct fs_piece p;

		KV_TRY(fs_extent_at(fs, it, from_ino, from, &p));
		from = fs_piece_end(&p);
		if (from <= offset)
			continue;
		if (out->count == FS_COPY_EXTENTS_MAX) {
			*bytes = p.offset - offset;
			return 0;
		}
		if (p.offset < offset) {
			p.skip = (uint32_t)(offset - p.offset);
			p.bytes -= p.skip;
			p.offset = offset;
		}
		p.offset = p.offset - offset + to_offset;
		KV_TRY(fs_pieces_push(out, &p));
	}
	return kv_iter_error(it);
}

int fs_extent_copy(struct fs_tx *tx, fs_ino from_ino, uint64_t from_offset, struct fs_inode *inode,
		   struct fs_attr *attr, uint64_t to_offset, uint64_t bytes, uint64_t *out_bytes)
{
	KV_AUTO(fs_extent_iter_freep) struct kv_iter *it = NULL;
	KV_AUTO(fs_window_done) struct fs_window w = FS_WINDOW_INIT(inode->ino);
	KV_AUTO(fs_pieces_done) struct fs_pieces source = FS_PIECES_INIT;
	uint64_t end, part_end;
	size_t i = 0, n;

	tx->has_data = true;
	KV_TRY(copy_source(tx->fs, from_ino, from_offset, to_offset, &bytes, &source));
	end = to_offset + bytes;
	KV_TRY(iter_of_range(tx->fs, inode->ino, attr, to_offset, end, &it));
	for (uint64_t pos = to_offset; pos < end; pos = part_end) {
		part_end = window_part_end(pos, end);
		while (i < source.count && fs_piece_end(&source.at[i]) <= pos)
			i++;
		for (n = 0; i + n < source.count && source.at[i + n].offset < part_end;)
			n++;
		KV_TRY(fs_window_load(tx->fs, &w, it, fs_window_floor(pos)));
		KV_TRY(fs_window_replace(&w, pos, part_end, n ? source.at + i : NULL, n));
		KV_TRY(fs_window_stage(tx, &w, attr));
	}
	*out_bytes = bytes;
	return 0;
}

/* --- removing ---------------------------------------------------------------------------- */

/* Extents found by a scan, as far as they are few enough to be deleted one by one. */
struct doomed {
	uint64_t count, bytes;
	uint64_t offset[FS_POINT_DELETES_MAX];
};

/* Collects the extents from the iterator on, up to `end`, and leaves it there. */
static int doomed_scan(struct fs *fs, struct kv_iter *it, fs_ino ino, uint64_t end,
		       struct doomed *d)
{
	uint64_t from = 0;

	d->count = d->bytes = 0;
	for (; kv_iter_valid(it); kv_iter_next(it)) {
		struct fs_piece p;

		KV_TRY(fs_extent_at(fs, it, ino, from, &p));
		if (p.offset >= end)
			return 0;
		if (d->count < KV_ARRAY_LEN(d->offset))
			d->offset[d->count] = p.offset;
		d->count++;
		d->bytes += p.bytes;
		from = fs_piece_end(&p);
	}
	return kv_iter_error(it);
}

/* Few are deleted one by one; many by the range of keys [begin, end) that holds them. */
static void doomed_delete(struct fs_tx *tx, fs_ino ino, const struct doomed *d, uint64_t begin,
			  uint64_t end)
{
	struct fs_key from = fs_key_extent(ino, begin);
	struct fs_key to = end == UINT64_MAX ? fs_key_begin(FS_KEY_EXTENT, ino + 1)
					     : fs_key_extent(ino, end);

	if (d->count > KV_ARRAY_LEN(d->offset)) {
		fs_tx_delete_range(tx, &from, &to);
		return;
	}
	for (uint64_t i = 0; i < d->count; i++) {
		struct fs_key key = fs_key_extent(ino, d->offset[i]);

		fs_tx_delete(tx, &key);
	}
}

int fs_extent_delete_all(struct fs_tx *tx, fs_ino ino, uint64_t extents)
{
	KV_AUTO(fs_extent_iter_freep) struct kv_iter *it = NULL;
	struct doomed d = { .count = UINT64_MAX };

	if (!extents)
		return 0;
	if (extents <= FS_POINT_DELETES_MAX) {
		KV_TRY(fs_extent_iter(tx->fs, ino, 0, UINT64_MAX, false, &it));
		KV_TRY(doomed_scan(tx->fs, it, ino, UINT64_MAX, &d));
	}
	doomed_delete(tx, ino, &d, 0, UINT64_MAX);
	return 0;
}

static int punch_in_window(struct fs_tx *tx, struct fs_window *w, struct fs_attr *attr,
			   struct kv_iter *it, uint64_t begin, uint64_t end)
{
	KV_TRY(fs_window_load(tx->fs, w, it, fs_window_floor(begin)));
	if (!w->old.count)
		return 0;
	KV_TRY(fs_window_replace(w, begin, end, NULL, 0));
	return fs_window_stage(tx, w, attr);
}

static int punch_windows(struct fs_tx *tx, fs_ino ino, struct fs_attr *attr, struct kv_iter *it,
			 uint64_t begin, uint64_t end)
{
	struct doomed d;

	KV_TRY(doomed_scan(tx->fs, it, ino, end, &d));
	if (attr->bytes < d.bytes || attr->extents < d.count)
		return fs_damaged(tx->fs, "inode %" PRIu64 ": has more extents than its attributes count",
				  ino);
	doomed_delete(tx, ino, &d, begin, end);
	attr->bytes -= d.bytes;
	attr->extents -= d.count;
	return 0;
}

int fs_extent_punch(struct fs_tx *tx, struct fs_inode *inode, struct fs_attr *attr,
		    uint64_t begin, uint64_t end)
{
	KV_AUTO(fs_extent_iter_freep) struct kv_iter *it = NULL;
	KV_AUTO(fs_window_done) struct fs_window w = FS_WINDOW_INIT(inode->ino);
	bool to_last = end > FS_FILE_BYTES_MAX;
	uint64_t middle, middle_end;

	if (begin >= end || begin > FS_FILE_BYTES_MAX || !attr->extents)
		return 0;
	if (!begin && to_last) {
		KV_TRY(fs_extent_delete_all(tx, inode->ino, attr->extents));
		attr->bytes = attr->extents = 0;
		return 0;
	}
	KV_TRY(fs_extent_iter(tx->fs, inode->ino, fs_window_floor(begin),
			      to_last ? UINT64_MAX : fs_window_ceil(end), false, &it));
	middle = fs_window_ceil(begin);
	middle_end = to_last ? UINT64_MAX : fs_window_floor(end);
	if (middle > middle_end)
		return punch_in_window(tx, &w, attr, it, begin, end);
	if (begin < middle)
		KV_TRY(punch_in_window(tx, &w, attr, it, begin, middle));
	if (middle < middle_end)
		KV_TRY(punch_windows(tx, inode->ino, attr, it, middle, middle_end));
	if (!to_last && middle_end < end)
		KV_TRY(punch_in_window(tx, &w, attr, it, middle_end, end));
	return 0;
}
