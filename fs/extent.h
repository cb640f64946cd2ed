/*
 * Bytes of a file as EXTENT records: key (inode, offset), value the bytes.
 * Extents don't overlap, are not empty, and never cross a multiple of FS_EXTENT_BYTES_MAX (a
 * window): what covers an offset is found by one seek. Where there is none is a
 * hole. No extent reaches beyond the file's size.
 *
 * The caller holds inode->mu for all that stage something, and stages the
 * attributes (size, bytes, extents, times) with what these functions return in *attr.
 * They look at the store, not at what the batch holds already: one call for each
 * inode in a batch.
 */
#ifndef FS_EXTENT_H
#define FS_EXTENT_H

#include "fs/tx.h"

/* Reads [offset, offset + bytes) of the present; what is not covered is zeros. Takes no lock. */
int fs_extent_read(struct fs *fs, fs_ino ino, void *to, size_t bytes, uint64_t offset)
	KV_NODISCARD;
/*
 * The same, when one extent at the file's beginning has all of it: one look-up instead of a scan.
 * KV_E_not_found when it has not.
 */
int fs_extent_read_first(struct fs *fs, fs_ino ino, void *to, size_t bytes, uint64_t offset)
	KV_NODISCARD;
/*
 * Stages the write; *attr: bytes and extents are updated, not the size, which still is
 * that before the write. `from` stays until the commit.
 */
int fs_extent_write(struct fs_tx *tx, struct fs_inode *inode, struct fs_attr *attr,
		    const void *from, size_t bytes, uint64_t offset) KV_NODISCARD;
/* Stages the removal of all bytes in [begin, end); end UINT64_MAX: to the last. Large ranges by a range delete. */
int fs_extent_punch(struct fs_tx *tx, struct fs_inode *inode, struct fs_attr *attr,
		    uint64_t begin, uint64_t end) KV_NODISCARD;
/*
 * Stages that [to_offset, to_offset + bytes) of the inode becomes what from_ino has at from_offset
 * (of the same file: not overlapping), holes included. Shares values where it can. *out_bytes: how far
 * it came; less when there are more than FS_COPY_EXTENTS_MAX extents. *attr as for a write.
 */
#define FS_COPY_EXTENTS_MAX 512
int fs_extent_copy(struct fs_tx *tx, fs_ino from_ino, uint64_t from_offset, struct fs_inode *inode,
		   struct fs_attr *attr, uint64_t to_offset, uint64_t bytes, uint64_t *out_bytes)
	KV_NODISCARD;
/* Stages all of an inode's extents for removal, point by point or by range. */
int fs_extent_delete_all(struct fs_tx *tx, fs_ino ino, uint64_t extents) KV_NODISCARD;
/* First offset at or after `offset` that is data (hole: a hole); -ENXIO when there is none before size. */
int fs_extent_seek(struct fs *fs, fs_ino ino, uint64_t offset, uint64_t size, bool hole,
		   uint64_t *out) KV_NODISCARD;

#endif
