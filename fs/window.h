/*
 * One window of a file (FS_EXTENT_BYTES_MAX bytes at a multiple of it): the
 * extents that it has, and those that it shall have. Everything that changes a
 * file's bytes (write, punch, truncate, copy) is, window by window: load what is there,
 * replace a range of it, stage the difference. Which neighbours are joined, what is
 * kept by reference and what is rewritten is decided in stage, and nowhere else.
 *
 * For extent.c only.
 */
#ifndef FS_WINDOW_H
#define FS_WINDOW_H

#include "fs/tx.h"

/*
 * A window holds no more extents than this: when an edit would leave more, all that
 * touch are joined, and holes shorter than FS_BLOCK_BYTES are filled with zeros. (What then
 * remains is separated by holes of a block at least: no more than as many.)
 */
#define FS_WINDOW_EXTENTS_MAX 32
_Static_assert(FS_EXTENT_BYTES_MAX / FS_BLOCK_BYTES <= FS_WINDOW_EXTENTS_MAX,
	       "holes of a block could leave more extents than a window holds");
/*
 * What is written is joined with an extent that it touches, up to JOIN_BYTES_MAX together,
 * but only with one that is at most JOIN_RATIO times as large: bytes appended one by one
 * are rewritten a few times, not each time.
 */
#define FS_JOIN_BYTES_MAX ((uint64_t)32 << 10)
#define FS_JOIN_RATIO 8
/* A reference to less than this part of a value would pin too much garbage: it is rewritten. */
#define FS_PART_RATIO_MAX 4

/* Some bytes of the file: new ones (data), a part of a stored value (from_ino), or zeros (neither). */
struct fs_piece {
	uint64_t offset;		/* in the file that is changed */
	uint32_t bytes;
	const uint8_t *data;		/* borrowed until the commit */
	fs_ino from_ino;		/* the extent (from_ino, from_offset) has them, */
	uint64_t from_offset;
	uint32_t skip;			/* so many bytes after its beginning; */
	uint32_t value_bytes;		/* its whole length */
	bool joined;			/* one extent with the piece before */
};

static inline uint64_t fs_piece_end(const struct fs_piece *p)
{
	return p->offset + p->bytes;
}

/* Pieces in the order of their offsets, not overlapping. */
struct fs_pieces {
	struct fs_piece *at;
	size_t count, max;
};

#define FS_PIECES_INIT { NULL, 0, 0 }
void fs_pieces_done(struct fs_pieces *v);
int fs_pieces_push(struct fs_pieces *v, const struct fs_piece *p) KV_NODISCARD;

struct fs_window {
	fs_ino ino;
	uint64_t begin;
	struct fs_pieces old, now;
};

#define FS_WINDOW_INIT(number) { (number), 0, FS_PIECES_INIT, FS_PIECES_INIT }
void fs_window_done(struct fs_window *w);

/* Offsets to the window that they are in, or the end of it. */
static inline uint64_t fs_window_floor(uint64_t offset)
{
	return offset & ~(FS_EXTENT_BYTES_MAX - 1);
}

static inline uint64_t fs_window_ceil(uint64_t offset)
{
	return fs_window_floor(offset + FS_EXTENT_BYTES_MAX - 1);
}

/* An iterator over the extents with keys in [begin, end) (end UINT64_MAX: the last), at the first one. */
int fs_extent_iter(struct fs *fs, fs_ino ino, uint64_t begin, uint64_t end, bool sequential,
		   struct kv_iter **out) KV_NODISCARD;
void fs_extent_iter_freep(struct kv_iter **it);
/*
 * The extent at the iterator, as a piece of its own file. -EUCLEAN when it cannot be: a key of another
 * kind, no bytes, across the end of its window, or before `from` (the end of the one before).
 */
int fs_extent_at(struct fs *fs, struct kv_iter *it, fs_ino ino, uint64_t from,
		 struct fs_piece *out) KV_NODISCARD;

/*
 * Takes what the window at `begin` holds, and leaves the iterator behind it. it NULL:
 * the caller knows that it holds nothing.
 */
int fs_window_load(struct fs *fs, struct fs_window *w, struct kv_iter *it, uint64_t begin)
	KV_NODISCARD;
/*
 * What shall be there: in [begin, end), which lies in the window, what the n pieces
 * hold of it (they may reach beyond; nothing: a hole), elsewhere what is there now. Once after each load.
 */
int fs_window_replace(struct fs_window *w, uint64_t begin, uint64_t end,
		      const struct fs_piece *pieces, size_t n) KV_NODISCARD;
/* Stages the difference; *attr: bytes and extents are updated. */
int fs_window_stage(struct fs_tx *tx, struct fs_window *w, struct fs_attr *attr) KV_NODISCARD;

#endif
