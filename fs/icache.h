/*
 * Inodes in memory: their attributes, their locks, how often the caller knows
 * them. Two tables: the cache of inodes in use or used lately, whose unused
 * members are evicted; and a compact one of lookup counts (16 bytes each), since
 * the kernel may know a million inodes that nobody touches.
 */
#ifndef FS_ICACHE_H
#define FS_ICACHE_H

#include "fs/core.h"
#include "kv/list.h"
#include "kv/lock.h"

struct fs_icache;

struct fs_inode {
	fs_ino ino;
	uint32_t refs;			/* under its shard's lock to the blank line; 0: unused */
	bool loading;			/* being read from the store: wait */
	int load_error;
	struct kv_link hash_link, unused_link;

	struct kv_mutex mu;		/* whoever changes the inode, from read to commit; guards: */
	bool pinned;			/* an orphan of this session: holds a reference to itself */

	struct kv_link reclaim_link;	/* under reclaim_mu: on the queue, with a reference */

	struct kv_mutex attr_mu;	/* the committed attributes; guards to the blank line */
	struct fs_attr attr;
	struct kv_buf inline_bytes;	/* behind them: target of a symbolic link */
	bool gone;			/* its ATTR key has been deleted, or is about to be */
};

struct fs_icache *fs_icache_new(struct fs *fs, uint32_t unused_max);
void fs_icache_free(struct fs_icache *c);

/* The inode, read from the store when it isn't here; -ENOENT, -EUCLEAN. Release with fs_inode_put(). */
int fs_inode_get(struct fs *fs, fs_ino ino, struct fs_inode **out) KV_NODISCARD;
/* An inode whose first batch has just been committed, or is about to be: enters it with these attributes. */
int fs_inode_new(struct fs *fs, const struct fs_attr *attr, struct kv_slice inline_bytes,
		 struct fs_inode **out) KV_NODISCARD;
/* One more reference for somebody who holds one already. */
void fs_inode_ref(struct fs *fs, struct fs_inode *i);
/* Takes NULL. */
void fs_inode_put(struct fs *fs, struct fs_inode *i);

/* Copies the committed attributes. -ENOENT when the inode is gone. */
int fs_inode_attr(struct fs_inode *i, struct fs_attr *out) KV_NODISCARD;
/* After the commit, i->mu held: replaces them. */
void fs_inode_set_attr(struct fs_inode *i, const struct fs_attr *attr);
/* Marks it gone: its attributes are no more; and it leaves the cache with its last reference. */
void fs_inode_set_gone(struct fs_inode *i);

/* Like fs_inode_get(), when it is in memory; else NULL. Reads nothing. */
struct fs_inode *fs_inode_peek(struct fs *fs, fs_ino ino);

/*
 * Marks an inode gone if no directory names it and nobody knows it, as one step: whoever
 * makes it known before is seen here, whoever does so after finds it gone
 * (namei.c, fs_lookup). i->mu held. spare takes the mark back.
 */
bool fs_inode_condemn(struct fs *fs, struct fs_inode *i);
void fs_inode_spare(struct fs_inode *i);

/* Lookup counts. know: one more. forget: as many less; returns what is left. */
int fs_known_add(struct fs *fs, fs_ino ino) KV_NODISCARD;
uint64_t fs_known_sub(struct fs *fs, fs_ino ino, uint64_t times);
uint64_t fs_known(struct fs *fs, fs_ino ino);
void fs_icache_stats(struct fs *fs, uint64_t *out_known, uint64_t *out_cached);

#endif
