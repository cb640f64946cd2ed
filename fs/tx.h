/*
 * One change of the filesystem, staged and then committed whole: a batch of the
 * engine, the deltas of the counters, and the attributes that take effect in
 * memory once the batch has been written.
 *
 *	fs_tx_begin(&tx, fs);
 *	fs_tx_attr(&tx, inode, &attr);		any number of these, in any order
 *	fs_tx_put(&tx, &key, value);
 *	err = fs_tx_commit(&tx, sync);
 *	fs_tx_done(&tx);
 *
 * An error while staging is kept and returned by the commit: nothing is done then.
 * The locks of all inodes staged must be held from begin to commit.
 */
#ifndef FS_TX_H
#define FS_TX_H

#include "fs/fs.h"

#define FS_TX_INODES_MAX 8
#define FS_TX_BUCKETS_MAX 4

struct fs_tx {
	struct fs *fs;
	struct kv_batch *batch;
	int error;
	int64_t bytes_delta, inodes_delta; /* of the counters; the commit adds what follows from `staged` */
	bool has_data;			/* bytes of a file are written */
	struct {
		struct fs_inode *inode;
		struct fs_attr attr;
		bool fresh;		/* has no ATTR key yet */
		bool gone;
	} staged[FS_TX_INODES_MAX];
	uint32_t staged_count;
	/* Buckets of names as this change leaves them: put, or deleted when empty, by the commit. */
	struct fs_tx_bucket {
		fs_ino dir;
		uint64_t hash;
		struct kv_buf bytes;
		bool stored;		/* the key exists */
		bool changed;
	} buckets[FS_TX_BUCKETS_MAX];
	uint32_t bucket_count;
};

void fs_tx_begin(struct fs_tx *tx, struct fs *fs);
void fs_tx_done(struct fs_tx *tx);

void fs_tx_put(struct fs_tx *tx, const struct fs_key *key, struct kv_slice value);
/* The value is not copied: it stays until the commit. */
void fs_tx_put_ref(struct fs_tx *tx, const struct fs_key *key, struct kv_slice value);
void fs_tx_put_part(struct fs_tx *tx, const struct fs_key *key, const struct fs_key *from,
		    uint32_t offset, uint32_t bytes);
void fs_tx_delete(struct fs_tx *tx, const struct fs_key *key);
void fs_tx_delete_range(struct fs_tx *tx, const struct fs_key *begin, const struct fs_key *end);

/*
 * The inode's attributes become *attr (a later call replaces an earlier one): the ATTR key is put
 * (with the inode's inline bytes), the difference of `bytes` goes to the counter.
 */
void fs_tx_attr(struct fs_tx *tx, struct fs_inode *inode, const struct fs_attr *attr);
/* The staged attributes of the inode, or the committed ones: where a change starts from. */
int fs_tx_attr_get(struct fs_tx *tx, struct fs_inode *inode, struct fs_attr *out) KV_NODISCARD;
/* A new inode's first attributes; counts it. */
void fs_tx_attr_new(struct fs_tx *tx, struct fs_inode *inode, const struct fs_attr *attr);
/* The inode ends: its ATTR key is deleted, counters go down. */
void fs_tx_attr_delete(struct fs_tx *tx, struct fs_inode *inode);

/*
 * The bucket of names as the change has left it so far: two names of one hash can be
 * changed by one batch. Read from the store at first use (empty when there is none), of which the errors are
 * returned and not kept. Stays the caller's to change, with `changed` set, until the commit.
 */
int fs_tx_bucket(struct fs_tx *tx, fs_ino dir, uint64_t hash, struct fs_tx_bucket **out)
	KV_NODISCARD;

/*
 * Writes the batch; on success the staged attributes are the committed ones. The ORPHAN key
 * follows from nlink: it is put when that falls to 0 (or begins so), deleted when it rises again
 * or the inode ends. With no space left, tries once to regain some (fs_space_regain).
 */
int fs_tx_commit(struct fs_tx *tx, bool sync) KV_NODISCARD;

#endif
