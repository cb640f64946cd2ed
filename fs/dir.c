/*
 * Directory streams. They have no state: a cookie is the position of the entry before,
 * hash << FS_SLOT_BITS | slot, which never changes as long as the name exists; an entry follows when
 * its position is greater. 0 is the start, 1 is after ".", 2 after "..".
 */
#include <dirent.h>
#include <stdlib.h>

#include "fs/dirent.h"

#define COOKIE_DOT 1
#define COOKIE_DOTDOT 2
#define BATCH_MAX 64			/* entries whose attributes are fetched together */
#define DENSE_MIN 8			/* inodes that are worth a scan, */
#define DENSE_GAP 4			/* with so many numbers an inode at the most */

/* --- the names, one after the other --------------------------------------------------------- */

struct names {
	struct fs *fs;
	fs_ino dir;
	uint64_t cookie;		/* of the last one */
	struct kv_iter *it;
	struct kv_slice bucket;		/* what is left of the bucket at the iterator */
	uint64_t hash;
	int slot_last;
};

static int names_damaged(struct names *n)
{
	return fs_damaged(n->fs, "directory %llu: a record of names is malformed",
			  (unsigned long long)n->dir);
}

static int names_bucket(struct names *n)
{
	struct fs_key_parts parts;

	if (!fs_key_parse(kv_iter_key(n->it), &parts) || parts.kind != FS_KEY_DIRENT)
		return names_damaged(n);
	KV_TRY(kv_iter_value(n->it, &n->bucket));
	if (!n->bucket.bytes)
		return names_damaged(n);
	n->hash = parts.number;
	n->slot_last = -1;
	return 0;
}

/* Stands before the first entry behind the cookie. */
static int names_open(struct names *n, struct fs *fs, fs_ino dir, uint64_t cookie)
{
	struct fs_key begin = fs_key_dirent(dir, cookie >> FS_SLOT_BITS);
	struct fs_key end = fs_key_begin(FS_KEY_DIRENT, dir + 1);
	struct kv_iter_options o = { .lower = fs_key_slice(&begin), .upper = fs_key_slice(&end) };

	*n = (struct names){ .fs = fs, .dir = dir, .cookie = cookie };
	KV_TRY(kv_iter_new(fs->kv, &o, &n->it));
	kv_iter_seek_first(n->it);
	return kv_iter_valid(n->it) ? names_bucket(n) : kv_iter_error(n->it);
}

/* The next entry; its name stays until the call after this. False at the end, or on an error. */
static bool names_next(struct names *n, struct fs_dirent *out, int *out_err)
{
	struct fs_slot s;

	*out_err = 0;
	for (;;) {
		if (!n->bucket.bytes) {
			if (!kv_iter_valid(n->it))
				return false;
			kv_iter_next(n->it);
			if (!kv_iter_valid(n->it)) {
				*out_err = kv_iter_error(n->it);
				return false;
			}
			*out_err = names_bucket(n);
			if (*out_err)
				return false;
		}
		if (!fs_slot_take(&n->bucket, &s) || s.slot <= n->slot_last) {
			*out_err = names_damaged(n);
			return false;
		}
		n->slot_last = s.slot;
		if ((n->hash << FS_SLOT_BITS | s.slot) > n->cookie)
			break;
	}
	n->cookie = n->hash << FS_SLOT_BITS | s.slot;
	*out = (struct fs_dirent){ .ino = s.ino, .type = s.type, .name = s.name,
				   .cookie = n->cookie };
	return true;
}

static int names_only(struct names *n, fs_readdir_fn *fn, void *arg)
{
	struct fs_dirent e;
	int err;

	while (names_next(n, &e, &err))
		if (!fn(arg, &e))
			return 0;
	return err;
}

/* --- with attributes ----------------------------------------------------------------------------- */

enum entry_state {
	ENTRY_UNREAD,
	ENTRY_READ,
	ENTRY_GONE,		/* no such inode any more */
	ENTRY_DAMAGED,		/* there, but unreadable: given without attributes */
};

struct entry {
	struct fs_dirent e;	/* name: only its length, until it is given out */
	size_t name_at;
	enum entry_state state;
	struct fs_attr attr;
};

struct batch {
	struct fs *fs;
	struct kv_buf names;
	uint32_t count;
	struct entry entries[BATCH_MAX];
	struct entry *unread[BATCH_MAX];
	uint32_t unread_count;
};

static int batch_collect(struct batch *b, struct names *n, int *out_end_err)
{
	struct fs_dirent e;

	b->count = 0;
	kv_buf_reset(&b->names);
	*out_end_err = 0;
	while (b->count < BATCH_MAX && names_next(n, &e, out_end_err)) {
		struct entry *to = &b->entries[b->count];

		to->e = e;
		to->name_at = b->names.bytes;
		to->state = ENTRY_UNREAD;
		KV_TRY(kv_buf_append_slice(&b->names, e.name));
		KV_TRY(fs_known_add(b->fs, e.ino));
		b->count++;
	}
	return 0;
}

static void decoded(struct entry *to, struct fs *fs, struct kv_slice value)
{
	struct kv_slice inline_bytes;

	to->state = ENTRY_READ;
	if (fs_attr_decode(to->e.ino, value, &to->attr, &inline_bytes))
		return;
	to->state = ENTRY_DAMAGED;
	(void)fs_damaged(fs, "the attributes of inode %llu are malformed",
			 (unsigned long long)to->e.ino);
}

/* From memory, where that is. */
static void batch_peek(struct batch *b)
{
	b->unread_count = 0;
	for (uint32_t k = 0; k < b->count; k++) {
		struct entry *to = &b->entries[k];
		struct fs_inode *i = fs_inode_peek(b->fs, to->e.ino);

		if (!i) {
			b->unread[b->unread_count++] = to;
			continue;
		}
		to->state = fs_inode_attr(i, &to->attr) ? ENTRY_GONE : ENTRY_READ;
		fs_inode_put(b->fs, i);
	}
}

static int by_ino(const void *a, const void *b)
{
	const struct entry *const *x = a, *const *y = b;

	return ((*x)->e.ino > (*y)->e.ino) - ((*x)->e.ino < (*y)->e.ino);
}

/* One scan over neighbours; inodes that it doesn't meet are gone. */
static int read_scan(struct batch *b, struct kv_iter *it)
{
	uint32_t k = 0;

	kv_iter_seek_first(it);
	while (k < b->unread_count && kv_iter_valid(it)) {
		struct entry *to = b->unread[k];
		struct fs_key_parts parts;
		struct kv_slice value;

		if (!fs_key_parse(kv_iter_key(it), &parts) || parts.ino < to->e.ino) {
			kv_iter_next(it);
		} else if (parts.ino > to->e.ino) {
			to->state = ENTRY_GONE;
			k++;
		} else {
			KV_TRY(kv_iter_value(it, &value));
			decoded(to, b->fs, value);
			k++;		/* the next one may be the same inode by another name */
		}
	}
	KV_TRY(kv_iter_error(it));
	for (; k < b->unread_count; k++)
		b->unread[k]->state = ENTRY_GONE;
	return 0;
}

static int read_dense(struct batch *b, fs_ino first, fs_ino last)
{
	struct fs_key begin = fs_key_attr(first), end = fs_key_attr(last + 1);
	struct kv_iter_options o = { .lower = fs_key_slice(&begin), .upper = fs_key_slice(&end) };
	struct kv_iter *it;
	int err;

	KV_TRY(kv_iter_new(b->fs->kv, &o, &it));
	err = read_scan(b, it);
	kv_iter_free(it);
	return err;
}

static int read_each(struct batch *b)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;

	for (uint32_t k = 0; k < b->unread_count; k++) {
		struct entry *to = b->unread[k];
		struct fs_key key = fs_key_attr(to->e.ino);
		int err = kv_get(b->fs->kv, NULL, fs_key_slice(&key), &value);

		if (err == KV_E_not_found)
			to->state = ENTRY_GONE;
		else if (kv_err_is(err, KV_E_corrupt))
			to->state = ENTRY_DAMAGED;	/* the engine has reported it */
		else if (err)
			return err;
		else
			decoded(to, b->fs, kv_buf_slice(&value));
	}
	return 0;
}

/*
 * Attributes of inodes that all are known already (see know() in namei.c for why first).
 * An inode that is not in memory is not being freed now; it may have been, and the store, looked at
 * after, says that. If somebody begins to free it later, he finds it known.
 */
static int batch_read(struct batch *b)
{
	fs_ino first, last;
	int err;

	batch_peek(b);
	if (!b->unread_count)
		return 0;
	qsort(b->unread, b->unread_count, sizeof(*b->unread), by_ino);
	first = b->unread[0]->e.ino;
	last = b->unread[b->unread_count - 1]->e.ino;
	if (b->unread_count < DENSE_MIN || (last - first) / DENSE_GAP >= b->unread_count)
		return read_each(b);
	err = read_dense(b, first, last);
	/* One damaged block should not hide all that is around it. */
	return kv_err_is(err, KV_E_corrupt) ? read_each(b) : err;
}

/* Gives entries out until one is refused; what is not taken, is not known. */
static bool batch_give(struct batch *b, fs_readdir_fn *fn, void *arg, uint32_t *out_taken)
{
	uint32_t k;

	for (k = 0; k < b->count; k++) {
		struct entry *from = &b->entries[k];

		if (from->state == ENTRY_GONE) {
			fs_forget(b->fs, from->e.ino, 1);
			continue;
		}
		from->e.name.data = b->names.data + from->name_at;
		from->e.attr = from->state == ENTRY_READ ? &from->attr : NULL;
		if (!fn(arg, &from->e))
			break;
		if (!from->e.attr)
			fs_forget(b->fs, from->e.ino, 1);
	}
	*out_taken = k;
	return k == b->count;
}

static int batches(struct batch *b, struct names *n, fs_readdir_fn *fn, void *arg)
{
	bool more = true;
	int err = 0, end_err = 0;

	while (more && !err && !end_err) {
		uint32_t taken = 0;

		err = batch_collect(b, n, &end_err);
		more = b->count == BATCH_MAX;
		if (!err)
			err = batch_read(b);
		if (!err && !batch_give(b, fn, arg, &taken))
			more = false, end_err = 0;
		for (; taken < b->count; taken++)
			fs_forget(b->fs, b->entries[taken].e.ino, 1);
	}
	return err ? err : end_err;
}

static int names_with_attr(struct names *n, fs_readdir_fn *fn, void *arg)
{
	struct batch *b = malloc(sizeof(*b));
	int err;

	if (!b)
		return -ENOMEM;
	b->fs = n->fs;
	b->names = (struct kv_buf)KV_BUF_INIT;
	err = batches(b, n, fn, arg);
	kv_buf_done(&b->names);
	free(b);
	return err;
}

/* --- the whole ------------------------------------------------------------------------------------- */

static bool give_dots(const struct fs_attr *dir, uint64_t cookie, fs_readdir_fn *fn, void *arg)
{
	struct fs_dirent dot = { .ino = dir->ino, .type = DT_DIR, .name = kv_slice(".", 1),
				 .cookie = COOKIE_DOT };
	struct fs_dirent dotdot = { .ino = dir->parent, .type = DT_DIR, .name = kv_slice("..", 2),
				    .cookie = COOKIE_DOTDOT };

	if (cookie < COOKIE_DOT && !fn(arg, &dot))
		return false;
	return cookie >= COOKIE_DOTDOT || fn(arg, &dotdot);
}

int fs_readdir(struct fs *fs, fs_ino dir, uint64_t cookie, bool with_attr, fs_readdir_fn *fn,
	       void *arg)
{
	struct names n;
	struct fs_attr a;
	int err;

	KV_TRY(fs_getattr(fs, dir, &a));
	if (!S_ISDIR(a.mode))
		return -ENOTDIR;
	if (!a.nlink)
		return -ENOENT;
	if (!give_dots(&a, cookie, fn, arg) || !a.entries)
		return 0;
	if (cookie >> FS_SLOT_BITS >> FS_HASH_BITS)
		return 0;		/* no entry is there */
	err = names_open(&n, fs, dir, KV_MAX(cookie, COOKIE_DOTDOT));
	if (!err)
		err = with_attr ? names_with_attr(&n, fn, arg) : names_only(&n, fn, arg);
	kv_iter_free(n.it);
	return err;
}
