#include "tests/sim/fsref.h"

#include <dirent.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/fs.h"
#include "kv/checksum.h"
#include "tests/sim/kvref.h"

#define START_S 1000000		/* time of the first operation */
#define NODES_MAX 160
#define NAMES 18
#define XATTRS 4
#define FILE_MAX (420 * 1024)

struct node;

struct entry {
	int name;		/* its number */
	struct node *node;
};

struct node {
	fs_ino ino;
	time_t birth, atime, mtime, ctime;
	uint32_t mode, nlink, uid, gid;
	uint64_t rdev, known;
	struct kv_buf data;	/* content, or target */
	struct node *parent;	/* of a directory */
	struct entry entries[NAMES];
	int entry_count;
	struct kv_buf xattrs[XATTRS];
	bool has_xattr[XATTRS];
};

enum kind {
	MKNOD, MKDIR, SYMLINK, TMPFILE, LINK, UNLINK, RMDIR, RENAME, SETATTR, WRITE, FALLOCATE, COPY,
	SETXATTR, REMOVEXATTR, FORGET, LOOKUP, KINDS
};

static const char *const kind_names[KINDS] = {
	"mknod", "mkdir", "symlink", "tmpfile", "link", "unlink", "rmdir", "rename", "setattr",
	"write", "fallocate", "copy_range", "setxattr", "removexattr", "forget", "lookup",
};

/* One drawn change, with what is needed to do it, and what must come of it. */
struct op {
	enum kind kind;
	fs_ino ino, other_ino;	/* what it is about; directories before names */
	int name, other_name;
	uint32_t mode, flags;
	uint64_t rdev, offset, other_offset, bytes, times;
	struct kv_buf data;
	struct fs_attr set;
	int want;		/* the result */
	struct node *made;	/* gets its number from the answer */
	struct node *answer;	/* the answer must look like this; may be NULL */
	uint64_t want_bytes;
};

struct fsref {
	struct fs *fs;
	uint64_t random;
	time_t now_s;
	fsref_fail_fn *fail;
	void *fail_arg;
	struct node *nodes[NODES_MAX]; /* [0] is the root */
	int node_count;
	struct op op;
	fs_ino dead[8];		/* freed by the operation: nobody may find them any more */
	int dead_count;
};

static void fail(struct fsref *r, const char *fmt, ...) KV_PRINTF(2, 3);

static void fail(struct fsref *r, const char *fmt, ...)
{
	char text[400];
	va_list ap;
	int n;

	n = snprintf(text, sizeof(text), "%s at time %lld: ", kind_names[r->op.kind],
		     (long long)r->now_s);
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	r->fail(r->fail_arg, text);
	abort();
}

#define FAIL_UNLESS(r, c, ...)                    \
	do {                                      \
		if (!(c))                         \
			fail(r, #c " " __VA_ARGS__); \
	} while (0)

static void must(int err)
{
	KV_ASSERT(!err);
}

/* Names of all lengths; the last of them are the longest. */
static struct kv_slice name_of(int n)
{
	static char text[NAMES][FS_NAME_BYTES_MAX + 1];
	size_t bytes = n < NAMES - 4 ? (size_t)(1 + n % 5) : (size_t)(FS_NAME_BYTES_MAX - n % 3);

	memset(text[n], 'a' + n, bytes);
	return kv_slice(text[n], bytes);
}

static struct kv_slice xattr_of(int n)
{
	static const char *const names[XATTRS] = {
		"security.capability", "trusted.t", "user.a", "user.longer-than-that",
	};

	return kv_slice_str(names[n]);
}

void fsref_now(void *arg, struct timespec *out)
{
	struct fsref *r = arg;

	*out = (struct timespec){ r->now_s, 0 };
}

/* --- the tree ------------------------------------------------------------------------------ */

static struct node *node_new(struct fsref *r, uint32_t mode)
{
	struct node *n = calloc(1, sizeof(*n));

	KV_ASSERT(n && r->node_count < NODES_MAX);
	n->mode = mode;
	n->nlink = S_ISDIR(mode) ? 2 : 1;
	n->birth = n->atime = n->mtime = n->ctime = r->now_s;
	r->nodes[r->node_count++] = n;
	return n;
}

static void node_free(struct node *n)
{
	kv_buf_done(&n->data);
	for (int i = 0; i < XATTRS; i++)
		kv_buf_done(&n->xattrs[i]);
	free(n);
}

static struct node *node_of_ino(struct fsref *r, fs_ino ino)
{
	for (int i = 0; i < r->node_count; i++)
		if (r->nodes[i]->ino == ino)
			return r->nodes[i];
	return NULL;
}

/* A node that nobody names or knows is no more. */
static void node_consider(struct fsref *r, struct node *n)
{
	int i = 0;

	if (n->nlink || n->known)
		return;
	while (r->nodes[i] != n)
		i++;
	r->nodes[i] = r->nodes[--r->node_count];
	/* A removed directory's parent may end before it. */
	for (int k = 0; k < r->node_count; k++)
		if (r->nodes[k]->parent == n)
			r->nodes[k]->parent = NULL;
	if (n->ino && r->dead_count < (int)KV_ARRAY_LEN(r->dead))
		r->dead[r->dead_count++] = n->ino;
	node_free(n);
}

static struct entry *find(struct node *dir, int name)
{
	for (int i = 0; i < dir->entry_count; i++)
		if (dir->entries[i].name == name)
			return &dir->entries[i];
	return NULL;
}

static void touch_dir(struct fsref *r, struct node *dir)
{
	dir->mtime = dir->ctime = r->now_s;
}

static void add(struct fsref *r, struct node *dir, int name, struct node *n)
{
	KV_ASSERT(dir->entry_count < NAMES);
	dir->entries[dir->entry_count++] = (struct entry){ name, n };
	if (S_ISDIR(n->mode)) {
		dir->nlink++;
		n->parent = dir;
	}
	touch_dir(r, dir);
}

static void take_away(struct fsref *r, struct node *dir, int name)
{
	struct entry *e = find(dir, name);

	if (S_ISDIR(e->node->mode))
		dir->nlink--;
	*e = dir->entries[--dir->entry_count];
	touch_dir(r, dir);
}

static bool is_below(const struct node *n, const struct node *above)
{
	for (; n && n->parent != n; n = n->parent)
		if (n == above)
			return true;
	return n == above;
}

static uint64_t dir_size(const struct node *dir)
{
	uint64_t size = 0;

	for (int i = 0; i < dir->entry_count; i++)
		size += name_of(dir->entries[i].name).bytes;
	return size;
}

/* Are all slots of the name's hash taken? */
static bool is_full(struct fsref *r, const struct node *dir, int name)
{
	uint64_t hash = fs_name_hash(&r->fs->super, name_of(name));
	unsigned same = 0;

	for (int i = 0; i < dir->entry_count; i++)
		same += fs_name_hash(&r->fs->super, name_of(dir->entries[i].name)) == hash;
	return same == FS_SLOTS_MAX;
}

/* --- dumps ------------------------------------------------------------------------------------- */

struct dumped {
	const struct fs_attr *a;
	struct kv_slice data;
	struct kv_slice xattrs;		/* text */
};

static void dump_line(struct kv_buf *out, struct kv_slice path, const struct dumped *d)
{
	const struct fs_attr *a = d->a;

	must(kv_buf_append_slice(out, path));
	must(kv_buf_printf(out, " %o links %u owner %u:%u dev %" PRIu64 " size %" PRIu64 " names %" PRIu64,
			   a->mode, a->nlink, a->uid, a->gid, a->rdev, a->size, a->entries));
	must(kv_buf_printf(out, " born %lld a %lld m %lld c %lld data %016" PRIx64,
			   (long long)a->btime.tv_sec, (long long)a->atime.tv_sec,
			   (long long)a->mtime.tv_sec, (long long)a->ctime.tv_sec,
			   d->data.bytes ? kv_checksum(d->data, 0) : 0));
	must(kv_buf_append_slice(out, d->xattrs));
	must(kv_buf_append_byte(out, '\n'));
}

static void dump_xattr(struct kv_buf *out, struct kv_slice name, struct kv_slice value)
{
	must(kv_buf_printf(out, " %.*s=%zu:%016" PRIx64, (int)name.bytes, (const char *)name.data,
			   value.bytes, value.bytes ? kv_checksum(value, 0) : 0));
}

static void node_attr(const struct node *n, struct fs_attr *out)
{
	*out = (struct fs_attr){
		.ino = n->ino, .mode = n->mode, .nlink = n->nlink, .uid = n->uid, .gid = n->gid,
		.rdev = n->rdev,
		.size = S_ISDIR(n->mode) ? dir_size(n) : n->data.bytes,
		.entries = (uint64_t)n->entry_count,
		.atime = { n->atime, 0 }, .mtime = { n->mtime, 0 }, .ctime = { n->ctime, 0 },
		.btime = { n->birth, 0 },
	};
}

static void path_push(struct kv_buf *path, struct kv_slice name)
{
	must(kv_buf_append_byte(path, '/'));
	must(kv_buf_append_slice(path, name));
}

static void dump_node(const struct node *n, struct kv_buf *path, struct kv_buf *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf xattrs = KV_BUF_INIT;
	struct fs_attr a;
	struct dumped d = { &a, kv_buf_slice(&n->data), { NULL, 0 } };

	node_attr(n, &a);
	for (int i = 0; i < XATTRS; i++)
		if (n->has_xattr[i])
			dump_xattr(&xattrs, xattr_of(i), kv_buf_slice(&n->xattrs[i]));
	d.xattrs = kv_buf_slice(&xattrs);
	dump_line(out, kv_buf_slice(path), &d);
	/* Names are numbered in their order. */
	for (int name = 0; name < NAMES; name++) {
		struct entry *e = find((struct node *)(uintptr_t)n, name);
		size_t bytes = path->bytes;

		if (!e)
			continue;
		path_push(path, name_of(name));
		dump_node(e->node, path, out);
		path->bytes = bytes;
	}
}

void fsref_dump(struct fsref *r, struct kv_buf *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf path = KV_BUF_INIT;

	kv_buf_reset(out);
	dump_node(r->nodes[0], &path, out);
}

struct listed {
	struct {
		char name[FS_NAME_BYTES_MAX + 1];
		fs_ino ino;
		uint8_t type;
	} at[NAMES + 2];
	int count;
	bool too_many;
};

static bool list_one(void *arg, const struct fs_dirent *e)
{
	struct listed *l = arg;

	if (l->count == (int)KV_ARRAY_LEN(l->at) || e->name.bytes > FS_NAME_BYTES_MAX) {
		l->too_many = true;
		return false;
	}
	memcpy(l->at[l->count].name, e->name.data, e->name.bytes);
	l->at[l->count].name[e->name.bytes] = 0;
	l->at[l->count].ino = e->ino;
	l->at[l->count].type = e->type;
	l->count++;
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);	/* the name comes first in the struct */
}

static int fs_data(struct fs *fs, const struct fs_attr *a, struct kv_buf *out)
{
	size_t got = 0;
	void *to;

	kv_buf_reset(out);
	if (S_ISLNK(a->mode))
		return fs_readlink(fs, a->ino, out);
	if (!S_ISREG(a->mode) || !a->size)
		return 0;
	if (a->size > FILE_MAX)
		return -EFBIG;
	to = kv_buf_grow(out, a->size);
	KV_ASSERT(to);
	KV_TRY(fs_read(fs, a->ino, to, a->size, 0, &got));
	return got == a->size ? 0 : -EIO;
}

static int fs_xattrs(struct fs *fs, const struct fs_attr *a, struct kv_buf *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf list = KV_BUF_INIT, value = KV_BUF_INIT;
	const char *at;

	KV_TRY(fs_listxattr(fs, a->ino, &list));
	at = (const char *)list.data;
	for (size_t done = 0; done < list.bytes; done += strlen(at + done) + 1) {
		struct kv_slice name = kv_slice_str(at + done);

		KV_TRY(fs_getxattr(fs, a->ino, name, &value));
		dump_xattr(out, name, kv_buf_slice(&value));
	}
	return 0;
}

static int dump_inode(struct fs *fs, fs_ino ino, fs_ino parent, struct kv_buf *path,
		      struct kv_buf *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf xattrs = KV_BUF_INIT, data = KV_BUF_INIT;
	struct fs_attr a;
	struct dumped d = { .a = &a };
	struct listed l = { .count = 0 };

	if (path->bytes > 40 * FS_NAME_BYTES_MAX)
		return -ELOOP;
	KV_TRY(fs_getattr(fs, ino, &a));
	if (S_ISDIR(a.mode) && a.parent != parent)
		return -EXDEV;
	KV_TRY(fs_data(fs, &a, &data));
	KV_TRY(fs_xattrs(fs, &a, &xattrs));
	d.data = kv_buf_slice(&data);
	d.xattrs = kv_buf_slice(&xattrs);
	dump_line(out, kv_buf_slice(path), &d);
	if (!S_ISDIR(a.mode))
		return 0;
	KV_TRY(fs_readdir(fs, ino, 2, false, list_one, &l));
	if (l.too_many)
		return -EOVERFLOW;
	qsort(l.at, (size_t)l.count, sizeof(l.at[0]), by_name);
	for (int i = 0; i < l.count; i++) {
		size_t bytes = path->bytes;

		path_push(path, kv_slice_str(l.at[i].name));
		KV_TRY(dump_inode(fs, l.at[i].ino, ino, path, out));
		path->bytes = bytes;
	}
	return 0;
}

int fsref_dump_fs(struct fs *fs, struct kv_buf *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf path = KV_BUF_INIT;

	kv_buf_reset(out);
	return dump_inode(fs, FS_INO_ROOT, FS_INO_ROOT, &path, out);
}

static int line(const struct kv_buf *b, size_t at)
{
	size_t end = at;

	while (end < b->bytes && b->data[end] != '\n')
		end++;
	return (int)(end - at);
}

void fsref_print_difference(const struct kv_buf *want, const struct kv_buf *got)
{
	size_t w = 0, g = 0;

	while (w < want->bytes || g < got->bytes) {
		int wl = line(want, w), gl = line(got, g);

		if (wl != gl || memcmp(want->data + w, got->data + g, (size_t)wl)) {
			fprintf(stderr, "want %.*s\ngot  %.*s\n", wl, (char *)want->data + w, gl,
				(char *)got->data + g);
			return;
		}
		w += (size_t)wl + 1;
		g += (size_t)gl + 1;
	}
}

/* --- drawing what to do, and doing it to the reference ---------------------------------------- */

static uint32_t below(struct fsref *r, uint64_t n)
{
	return ref_below(&r->random, n);
}

static bool chance(struct fsref *r, uint32_t percent)
{
	return ref_chance(&r->random, percent);
}

static int any_name(struct fsref *r)
{
	return (int)below(r, NAMES);
}

/* Is there no room to make one more? */
static bool is_crowded(const struct fsref *r)
{
	return r->node_count >= NODES_MAX - 1;
}

static struct node *any_node(struct fsref *r)
{
	return r->nodes[below(r, (uint64_t)r->node_count)];
}

static struct node *any_dir(struct fsref *r)
{
	struct node *n = r->nodes[0];

	if (chance(r, 25))
		return n;
	for (int tries = 0; tries < 8; tries++) {
		n = any_node(r);
		if (S_ISDIR(n->mode))
			break;
	}
	return n;	/* not always a directory, or one with a name */
}

static struct node *any_file(struct fsref *r)
{
	struct node *n = r->nodes[0];

	for (int tries = 0; tries < 16 && !S_ISREG(n->mode); tries++)
		n = any_node(r);
	return n;
}

/* A name that is there, more often than not. */
static int likely_name(struct fsref *r, struct node *dir)
{
	if (dir->entry_count && chance(r, 85))
		return dir->entries[below(r, (uint64_t)dir->entry_count)].name;
	return any_name(r);
}

static void fill(struct fsref *r, struct kv_buf *to, uint64_t bytes)
{
	uint8_t *at;
	bool dull = chance(r, 50);

	kv_buf_reset(to);
	if (!bytes)
		return;
	at = kv_buf_grow(to, bytes);
	KV_ASSERT(at);
	for (uint64_t i = 0; i < bytes; i++)
		at[i] = dull ? (uint8_t)('a' + i / 100 % 20) : (uint8_t)ref_random(&r->random);
}

static int dir_err(const struct node *dir)
{
	if (!S_ISDIR(dir->mode))
		return -ENOTDIR;
	return dir->nlink ? 0 : -ENOENT;
}

static int make_err(struct fsref *r, struct node *dir, int name)
{
	int err = dir_err(dir);

	if (err)
		return err;
	if (find(dir, name))
		return -EEXIST;
	return is_full(r, dir, name) ? -ENOSPC : 0;
}

static struct node *make(struct fsref *r, struct node *dir, uint32_t mode)
{
	struct node *n = node_new(r, mode);

	n->uid = 11;
	n->gid = dir->mode & S_ISGID ? dir->gid : 12;
	if (S_ISDIR(mode) && dir->mode & S_ISGID)
		n->mode |= S_ISGID;
	return n;
}

static void draw_make(struct fsref *r, struct op *o)
{
	static const uint32_t types[] = { S_IFREG, S_IFREG, S_IFREG, S_IFREG, S_IFCHR, S_IFIFO };
	struct node *dir = any_dir(r);

	o->ino = dir->ino;
	o->name = any_name(r);
	o->mode = below(r, 07777 + 1) & ~(uint32_t)(S_ISUID | S_ISGID);
	o->rdev = below(r, 1000);
	if (o->kind == MKNOD)
		o->mode |= types[below(r, KV_ARRAY_LEN(types))];
	else if (o->kind == SYMLINK)
		fill(r, &o->data, 1 + (chance(r, 90) ? below(r, 100) : below(r, FS_TARGET_BYTES_MAX)));
	for (size_t i = 0; o->kind == SYMLINK && i < o->data.bytes; i++)
		o->data.data[i] |= 1;		/* no 0 byte */
	o->want = o->kind == TMPFILE ? dir_err(dir) : make_err(r, dir, o->name);
	if (o->want)
		return;
	o->made = make(r, dir, o->kind == MKDIR ? S_IFDIR | o->mode :
			       o->kind == SYMLINK ? S_IFLNK | 0777 :
			       o->kind == TMPFILE ? S_IFREG | o->mode : o->mode);
	o->made->known = 1;
	o->answer = o->made;
	if (o->kind == SYMLINK)
		must(kv_buf_assign(&o->made->data, kv_buf_slice(&o->data)));
	if (S_ISCHR(o->made->mode))
		o->made->rdev = o->rdev;
	if (o->kind == TMPFILE)
		o->made->nlink = 0;
	else
		add(r, dir, o->name, o->made);
}

static void draw_link(struct fsref *r, struct op *o)
{
	struct node *n = any_node(r), *dir = any_dir(r);

	o->ino = n->ino;
	o->other_ino = dir->ino;
	o->name = any_name(r);
	o->want = !S_ISDIR(dir->mode) ? -ENOTDIR : S_ISDIR(n->mode) ? -EPERM :
		  make_err(r, dir, o->name);
	if (o->want)
		return;
	n->nlink++;
	n->known++;
	n->ctime = r->now_s;
	add(r, dir, o->name, n);
	o->answer = n;
}

static void unlink_node(struct fsref *r, struct node *n)
{
	n->nlink = S_ISDIR(n->mode) ? 0 : n->nlink - 1;
	n->ctime = r->now_s;
}

static void draw_remove(struct fsref *r, struct op *o)
{
	struct node *dir = any_dir(r), *n;
	bool is_dir = o->kind == RMDIR;
	struct entry *e;

	o->ino = dir->ino;
	o->name = likely_name(r, dir);
	e = find(dir, o->name);
	o->want = dir_err(dir);
	if (!o->want && !e)
		o->want = -ENOENT;
	if (!o->want && is_dir != S_ISDIR(e->node->mode))
		o->want = is_dir ? -ENOTDIR : -EISDIR;
	if (!o->want && is_dir && e->node->entry_count)
		o->want = -ENOTEMPTY;
	if (o->want)
		return;
	n = e->node;
	take_away(r, dir, o->name);
	unlink_node(r, n);
	node_consider(r, n);
}

/* In the order in which rename(2) looks. */
static int rename_err(struct fsref *r, const struct op *o, struct node *from, struct node *to)
{
	struct entry *f, *t;
	bool exchange = o->flags & RENAME_EXCHANGE;

	if (!S_ISDIR(from->mode) || !S_ISDIR(to->mode))
		return -ENOTDIR;
	if (!from->nlink || !to->nlink)
		return -ENOENT;
	f = find(from, o->name);
	t = find(to, o->other_name);
	if (!f)
		return -ENOENT;
	if (t && o->flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (!t && exchange)
		return -ENOENT;
	if (t && t->node == f->node)
		return 0;
	if (S_ISDIR(f->node->mode) && is_below(to, f->node))
		return -EINVAL;
	if (t && S_ISDIR(t->node->mode) && is_below(from, t->node))
		return exchange ? -EINVAL : -ENOTEMPTY;
	if (exchange)
		return 0;
	if (!t)
		return is_full(r, to, o->other_name) ? -ENOSPC : 0;
	if (S_ISDIR(f->node->mode) != S_ISDIR(t->node->mode))
		return S_ISDIR(f->node->mode) ? -ENOTDIR : -EISDIR;
	return S_ISDIR(t->node->mode) && t->node->entry_count ? -ENOTEMPTY : 0;
}

static void rename_nodes(struct fsref *r, const struct op *o, struct node *from, struct node *to)
{
	struct node *f = find(from, o->name)->node, *w;
	struct entry *e = find(to, o->other_name);
	struct node *t = e ? e->node : NULL;

	if (f == t)
		return;
	take_away(r, from, o->name);
	if (t)
		take_away(r, to, o->other_name);
	add(r, to, o->other_name, f);
	f->ctime = r->now_s;
	if (o->flags & RENAME_EXCHANGE) {
		add(r, from, o->name, t);
		t->ctime = r->now_s;
	} else if (t) {
		unlink_node(r, t);
		node_consider(r, t);
	}
	if (!(o->flags & RENAME_WHITEOUT))
		return;
	w = node_new(r, S_IFCHR);
	w->uid = f->uid;
	w->gid = f->gid;
	add(r, from, o->name, w);
	r->op.made = w;		/* its number is looked up */
}

static void draw_rename(struct fsref *r, struct op *o)
{
	static const uint32_t flags[] = { 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE,
					  RENAME_WHITEOUT };
	struct node *from = any_dir(r), *to = chance(r, 40) ? from : any_dir(r);

	o->ino = from->ino;
	o->other_ino = to->ino;
	o->name = likely_name(r, from);
	o->other_name = chance(r, 50) ? any_name(r) : likely_name(r, to);
	o->flags = is_crowded(r) ? 0 : flags[below(r, KV_ARRAY_LEN(flags))];
	o->want = rename_err(r, o, from, to);
	if (!o->want)
		rename_nodes(r, o, from, to);
}

static void kill_priv(struct node *n)
{
	if (!S_ISDIR(n->mode)) {
		n->mode &= ~(uint32_t)S_ISUID;
		if (n->mode & S_IXGRP)
			n->mode &= ~(uint32_t)S_ISGID;
	}
	n->has_xattr[0] = false;
}

static void resize(struct node *n, uint64_t size)
{
	uint64_t was = n->data.bytes;
	void *more;

	if (size > was) {
		more = kv_buf_grow(&n->data, size - was);
		KV_ASSERT(more);
		memset(more, 0, size - was);
	}
	n->data.bytes = size;
}

static uint64_t any_offset(struct fsref *r)
{
	uint32_t what = below(r, 100);

	if (what < 40)
		return below(r, 3000);
	if (what < 60)
		return (uint64_t)below(r, 20) * 4096;
	if (what < 70)
		return FS_EXTENT_BYTES_MAX * below(r, 3);
	return below(r, 300 * 1024);
}

static void draw_setattr(struct fsref *r, struct op *o)
{
	struct node *n = chance(r, 50) ? any_file(r) : any_node(r);
	uint64_t size = any_offset(r);

	o->ino = n->ino;
	o->flags = below(r, FS_SET_KILL_PRIV * 2);
	if (chance(r, 60))
		o->flags &= below(r, FS_SET_KILL_PRIV * 2);
	o->set = (struct fs_attr){
		.mode = below(r, 07777 + 1), .uid = below(r, 5), .gid = below(r, 5), .size = size,
		.atime = { below(r, 1000), 0 }, .mtime = { below(r, 1000), 0 },
		.ctime = { below(r, 1000), 0 },
	};
	if (o->flags & FS_SET_SIZE && !S_ISREG(n->mode)) {
		o->want = S_ISDIR(n->mode) ? -EISDIR : -EINVAL;
		return;
	}
	o->answer = n;
	if (!o->flags)
		return;
	if (o->flags & FS_SET_SIZE) {
		resize(n, size);
		n->mtime = r->now_s;
	}
	n->uid = o->flags & FS_SET_UID ? o->set.uid : n->uid;
	n->gid = o->flags & FS_SET_GID ? o->set.gid : n->gid;
	if (o->flags & FS_SET_KILL_PRIV ||
	    (o->flags & (FS_SET_UID | FS_SET_GID) && !S_ISDIR(n->mode)))
		kill_priv(n);
	if (o->flags & FS_SET_MODE)
		n->mode = (n->mode & S_IFMT) | o->set.mode;
	n->atime = o->flags & FS_SET_ATIME_NOW ? r->now_s :
		   o->flags & FS_SET_ATIME ? o->set.atime.tv_sec : n->atime;
	n->mtime = o->flags & FS_SET_MTIME_NOW ? r->now_s :
		   o->flags & FS_SET_MTIME ? o->set.mtime.tv_sec : n->mtime;
	n->ctime = o->flags & FS_SET_CTIME ? o->set.ctime.tv_sec : r->now_s;
}

static int data_err(const struct node *n)
{
	return S_ISREG(n->mode) ? 0 : S_ISDIR(n->mode) ? -EISDIR : -EINVAL;
}

static uint64_t any_length(struct fsref *r)
{
	uint32_t what = below(r, 100);

	if (what < 50)
		return below(r, 600);
	if (what < 85)
		return below(r, 9000);
	return below(r, 120 * 1024);
}

static void draw_write(struct fsref *r, struct op *o)
{
	struct node *n = any_file(r);

	o->ino = n->ino;
	o->offset = chance(r, 30) ? n->data.bytes : any_offset(r);
	o->offset = KV_MIN(o->offset, (uint64_t)FILE_MAX - 120 * 1024);
	o->flags = below(r, 4) | (chance(r, 15) ? FS_WRITE_SYNC : 0);
	fill(r, &o->data, any_length(r));
	o->want = data_err(n);
	if (o->want || !o->data.bytes) {
		o->flags &= ~(uint32_t)FS_WRITE_SYNC;	/* nothing is written */
		return;
	}
	if (o->offset + o->data.bytes > n->data.bytes)
		resize(n, o->offset + o->data.bytes);
	memcpy(n->data.data + o->offset, o->data.data, o->data.bytes);
	if (!(o->flags & FS_WRITE_KEEP_TIMES))
		n->mtime = n->ctime = r->now_s;
	if (o->flags & FS_WRITE_KILL_PRIV)
		kill_priv(n);
}

static void draw_fallocate(struct fsref *r, struct op *o)
{
	static const int modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	};
	struct node *n = any_file(r);
	uint64_t end;

	o->ino = n->ino;
	o->mode = (uint32_t)modes[below(r, KV_ARRAY_LEN(modes))];
	o->offset = any_offset(r);
	o->bytes = 1 + any_length(r) % (100 * 1024);
	o->want = S_ISREG(n->mode) ? 0 : S_ISDIR(n->mode) ? -EISDIR : -ENODEV;
	if (o->want)
		return;
	end = o->offset + o->bytes;
	if (!(o->mode & FALLOC_FL_KEEP_SIZE) && end > n->data.bytes)
		resize(n, end);
	if (o->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && o->offset < n->data.bytes)
		memset(n->data.data + o->offset, 0, KV_MIN(end, n->data.bytes) - o->offset);
	n->mtime = n->ctime = r->now_s;
	kill_priv(n);
}

static void draw_copy(struct fsref *r, struct op *o)
{
	struct node *from = any_file(r), *to = any_file(r);

	o->ino = from->ino;
	o->other_ino = to->ino;
	o->offset = chance(r, 40) ? 0 : any_offset(r);
	o->other_offset = chance(r, 40) ? 0 : any_offset(r) % (200 * 1024);
	o->bytes = chance(r, 50) ? 200 * 1024 : any_length(r);
	o->want = data_err(from) ? data_err(from) : data_err(to);
	if (o->want)
		return;
	o->bytes = KV_MIN(o->bytes, (uint64_t)200 * 1024);
	o->want_bytes = o->offset < from->data.bytes ?
			KV_MIN(o->bytes, from->data.bytes - o->offset) : 0;
	if (!o->want_bytes)
		return;
	if (from == to && (o->offset < o->other_offset ? o->other_offset - o->offset :
			   o->offset - o->other_offset) < o->want_bytes) {
		o->want = -EINVAL;
		return;
	}
	if (o->other_offset + o->want_bytes > to->data.bytes)
		resize(to, o->other_offset + o->want_bytes);
	memcpy(to->data.data + o->other_offset, from->data.data + o->offset, o->want_bytes);
	to->mtime = to->ctime = r->now_s;
	kill_priv(to);
}

static void draw_xattr(struct fsref *r, struct op *o)
{
	static const uint32_t flags[] = { 0, 0, XATTR_CREATE, XATTR_REPLACE };
	struct node *n = chance(r, 50) ? any_file(r) : any_dir(r);
	bool set = o->kind == SETXATTR, may;

	o->ino = n->ino;
	o->name = (int)below(r, XATTRS);
	may = o->name < 2 || S_ISREG(n->mode) || S_ISDIR(n->mode);
	o->flags = flags[below(r, KV_ARRAY_LEN(flags))];
	if (!may)
		o->want = -EPERM;
	else if (n->has_xattr[o->name])
		o->want = set && o->flags & XATTR_CREATE ? -EEXIST : 0;
	else
		o->want = !set || o->flags & XATTR_REPLACE ? -ENODATA : 0;
	if (set)
		fill(r, &o->data, chance(r, 90) ? below(r, 100) : below(r, 5000));
	if (o->want)
		return;
	n->has_xattr[o->name] = set;
	must(kv_buf_assign(&n->xattrs[o->name], kv_buf_slice(&o->data)));
	n->ctime = r->now_s;
}

static void draw_forget(struct fsref *r, struct op *o)
{
	struct node *n = any_node(r);

	o->ino = n->ino;
	o->times = n->known && chance(r, 70) ? n->known : below(r, n->known + 1);
	n->known -= o->times;
	node_consider(r, n);
}

static void draw_lookup(struct fsref *r, struct op *o)
{
	struct node *dir = any_dir(r);
	struct entry *e;

	o->ino = dir->ino;
	o->name = likely_name(r, dir);
	e = find(dir, o->name);
	o->want = !S_ISDIR(dir->mode) ? -ENOTDIR : e ? 0 : -ENOENT;
	if (o->want)
		return;
	e->node->known++;
	o->answer = e->node;
}

static void op_reset(struct op *o)
{
	kv_buf_done(&o->data);
	*o = (struct op){ .kind = o->kind };
}

void fsref_draw(struct fsref *r)
{
	static const uint8_t weights[KINDS] = {
		[MKNOD] = 16, [MKDIR] = 8, [SYMLINK] = 4, [TMPFILE] = 2, [LINK] = 7, [UNLINK] = 12,
		[RMDIR] = 6, [RENAME] = 18, [SETATTR] = 9, [WRITE] = 22, [FALLOCATE] = 4, [COPY] = 6,
		[SETXATTR] = 4, [REMOVEXATTR] = 2, [FORGET] = 14, [LOOKUP] = 4,
	};
	struct op *o = &r->op;
	uint32_t all = 0, at;

	op_reset(o);
	r->now_s++;
	r->dead_count = 0;
	for (int i = 0; i < KINDS; i++)
		all += weights[i];
	at = below(r, all);
	for (o->kind = 0; at >= weights[o->kind]; o->kind++)
		at -= weights[o->kind];
	if (is_crowded(r) && o->kind <= TMPFILE)
		o->kind = chance(r, 70) ? UNLINK : FORGET;
	switch (o->kind) {
	case MKNOD: case MKDIR: case SYMLINK: case TMPFILE: draw_make(r, o); break;
	case LINK: draw_link(r, o); break;
	case UNLINK: case RMDIR: draw_remove(r, o); break;
	case RENAME: draw_rename(r, o); break;
	case SETATTR: draw_setattr(r, o); break;
	case WRITE: draw_write(r, o); break;
	case FALLOCATE: draw_fallocate(r, o); break;
	case COPY: draw_copy(r, o); break;
	case SETXATTR: case REMOVEXATTR: draw_xattr(r, o); break;
	case FORGET: draw_forget(r, o); break;
	case LOOKUP: draw_lookup(r, o); break;
	case KINDS: break;
	}
}

/* --- doing it to the filesystem -------------------------------------------------------------------- */

static int do_op(struct fs *fs, const struct op *o, struct fs_attr *out, uint64_t *out_bytes)
{
	struct fs_caller c = { .uid = 11, .gid = 12 };
	struct kv_slice data = kv_buf_slice(&o->data);

	switch (o->kind) {
	case MKNOD:
		return fs_mknod(fs, o->ino, name_of(o->name), o->mode, o->rdev, &c, out);
	case MKDIR:
		return fs_mkdir(fs, o->ino, name_of(o->name), o->mode, &c, out);
	case SYMLINK:
		return fs_symlink(fs, o->ino, name_of(o->name), data, &c, out);
	case TMPFILE:
		return fs_tmpfile(fs, o->ino, o->mode, &c, out);
	case LINK:
		return fs_link(fs, o->ino, o->other_ino, name_of(o->name), out);
	case UNLINK:
		return fs_unlink(fs, o->ino, name_of(o->name));
	case RMDIR:
		return fs_rmdir(fs, o->ino, name_of(o->name));
	case RENAME:
		return fs_rename(fs, o->ino, name_of(o->name), o->other_ino, name_of(o->other_name),
				 o->flags);
	case SETATTR:
		return fs_setattr(fs, o->ino, &o->set, o->flags, &c, out);
	case WRITE:
		return fs_write(fs, o->ino, data.data, data.bytes, o->offset, o->flags);
	case FALLOCATE:
		return fs_fallocate(fs, o->ino, (int)o->mode, o->offset, o->bytes);
	case COPY:
		return fs_copy_range(fs, o->ino, o->offset, o->other_ino, o->other_offset, o->bytes,
				     out_bytes);
	case SETXATTR:
		return fs_setxattr(fs, o->ino, xattr_of(o->name), data, (int)o->flags);
	case REMOVEXATTR:
		return fs_removexattr(fs, o->ino, xattr_of(o->name));
	case FORGET:
		fs_forget(fs, o->ino, o->times);
		return 0;
	case LOOKUP:
		return fs_lookup(fs, o->ino, name_of(o->name), out);
	case KINDS:
		break;
	}
	return 0;
}

static void same_attr(struct fsref *r, const struct node *n, const struct fs_attr *got)
{
	struct fs_attr a;
	KV_AUTO(kv_buf_done) struct kv_buf want_text = KV_BUF_INIT, got_text = KV_BUF_INIT;
	struct dumped w = { .a = &a }, g = { .a = got };

	node_attr(n, &a);
	FAIL_UNLESS(r, got->ino == n->ino, "%llu, not %llu", (unsigned long long)got->ino,
		    (unsigned long long)n->ino);
	dump_line(&want_text, kv_slice(NULL, 0), &w);
	dump_line(&got_text, kv_slice(NULL, 0), &g);
	if (kv_slice_eq(kv_buf_slice(&want_text), kv_buf_slice(&got_text)))
		return;
	fsref_print_difference(&want_text, &got_text);
	fail(r, "the attributes of inode %llu are others", (unsigned long long)n->ino);
}

/* Where both a missing directory and one that is none are in play, either may be said. */
static bool is_wanted(const struct op *o, int err)
{
	if (err == o->want)
		return true;
	return o->kind == RENAME && o->want == -ENOTDIR && err == -ENOENT;
}

static int learn_whiteout(struct fsref *r)
{
	struct fs_attr a;

	KV_TRY(fs_lookup(r->fs, r->op.ino, name_of(r->op.name), &a));
	r->op.made->ino = a.ino;
	same_attr(r, r->op.made, &a);
	fs_forget(r->fs, a.ino, 1);
	return 0;
}

int fsref_change(struct fsref *r, bool broken, bool *out_sync)
{
	struct op *o = &r->op;
	struct fs_attr a = { 0 };
	uint64_t bytes = 0;
	int err = do_op(r->fs, o, &a, &bytes);

	*out_sync = o->kind == WRITE && !o->want && o->flags & FS_WRITE_SYNC;
	if (broken && err && !is_wanted(o, err))
		return err;
	FAIL_UNLESS(r, is_wanted(o, err), "%s, not %s", kv_err_text(err), kv_err_text(o->want));
	if (err)
		return 0;
	if (o->made && o->kind == RENAME) {
		err = learn_whiteout(r);
		FAIL_UNLESS(r, broken || !err, "whiteout: %s", kv_err_text(err));
	} else if (o->made) {
		o->made->ino = a.ino;
	}
	if (broken)
		return err;
	if (o->answer)
		same_attr(r, o->answer, &a);
	FAIL_UNLESS(r, bytes == o->want_bytes, "%llu of %llu bytes", (unsigned long long)bytes,
		    (unsigned long long)o->want_bytes);
	if (r->dead_count)
		FAIL_UNLESS(r, !fs_reclaim_wait(r->fs), "reclaim");
	for (int i = 0; i < r->dead_count; i++) {
		err = fs_getattr(r->fs, r->dead[i], &a);
		FAIL_UNLESS(r, err == -ENOENT, "inode %llu: %s", (unsigned long long)r->dead[i],
			    kv_err_text(err));
	}
	return 0;
}

/* --- looking --------------------------------------------------------------------------------------------- */

static void look_data(struct fsref *r)
{
	KV_AUTO(kv_buf_done) struct kv_buf to = KV_BUF_INIT;
	struct node *n = any_file(r);
	uint64_t offset = any_offset(r), bytes = any_length(r), want, data = 0;
	size_t got = 0;
	int err;

	must(kv_buf_reserve(&to, bytes + 1));
	err = fs_read(r->fs, n->ino, to.data, bytes, offset, &got);
	FAIL_UNLESS(r, err == data_err(n), "read: %s", kv_err_text(err));
	if (err)
		return;
	want = offset < n->data.bytes ? KV_MIN(bytes, n->data.bytes - offset) : 0;
	FAIL_UNLESS(r, got == want, "read: %zu bytes", got);
	FAIL_UNLESS(r, !want || !memcmp(to.data, n->data.data + offset, want), "read");
	/* What lies before the next data is zeros. */
	err = fs_lseek(r->fs, n->ino, offset, SEEK_DATA, &data);
	FAIL_UNLESS(r, !err || err == -ENXIO, "lseek: %s", kv_err_text(err));
	if (err)
		data = n->data.bytes;
	for (uint64_t i = offset; i < data; i++)
		FAIL_UNLESS(r, !n->data.data[i], "lseek: no hole at %llu", (unsigned long long)i);
}

struct looked {
	struct fsref *r;
	struct node *dir;
	int count, room;
	uint64_t cookie;
	bool with_attr;
};

static bool look_entry(void *arg, const struct fs_dirent *e)
{
	struct looked *l = arg;
	struct fsref *r = l->r;
	struct node *n = node_of_ino(r, e->ino);

	if (!l->room)
		return false;
	l->room--;
	FAIL_UNLESS(r, e->cookie > l->cookie, "readdir");
	l->cookie = e->cookie;
	FAIL_UNLESS(r, n && e->type == fs_type_of_mode(n->mode), "readdir");
	if (e->cookie <= 2) {
		FAIL_UNLESS(r, n == (e->cookie == 1 ? l->dir : l->dir->parent), "readdir");
		return true;
	}
	for (int i = 0; i < l->dir->entry_count; i++)
		if (kv_slice_eq(name_of(l->dir->entries[i].name), e->name)) {
			FAIL_UNLESS(r, l->dir->entries[i].node == n, "readdir");
			l->count++;
		}
	if (!l->with_attr)
		return true;
	FAIL_UNLESS(r, e->attr, "readdir");
	same_attr(r, n, e->attr);
	n->known++;
	return true;
}

static void look_dir(struct fsref *r)
{
	struct looked l = { .r = r, .dir = any_dir(r), .with_attr = chance(r, 50) };
	int err, before;

	do {
		before = l.room = 1 + (int)below(r, 8);
		err = fs_readdir(r->fs, l.dir->ino, l.cookie, l.with_attr, look_entry, &l);
		FAIL_UNLESS(r, err == dir_err(l.dir), "readdir: %s", kv_err_text(err));
	} while (!err && l.room < before);
	FAIL_UNLESS(r, err || l.count == l.dir->entry_count, "readdir: %d of %d names", l.count,
		    l.dir->entry_count);
}

static void look_attr(struct fsref *r)
{
	struct node *n = any_node(r);
	struct fs_attr a;
	int err = fs_getattr(r->fs, n->ino, &a);

	FAIL_UNLESS(r, !err, "getattr: %s", kv_err_text(err));
	same_attr(r, n, &a);
}

static void look_counters(struct fsref *r)
{
	uint64_t known = 0;
	struct fs_stats s;

	fs_stats(r->fs, &s);
	for (int i = 0; i < r->node_count; i++)
		known += !!r->nodes[i]->known;
	FAIL_UNLESS(r, s.inodes == (uint64_t)r->node_count, "stats: %llu inodes, not %d",
		    (unsigned long long)s.inodes, r->node_count);
	FAIL_UNLESS(r, s.inodes_known == known, "stats: %llu known",
		    (unsigned long long)s.inodes_known);
}

void fsref_look(struct fsref *r)
{
	switch (below(r, 4)) {
	case 0: look_data(r); break;
	case 1: look_dir(r); break;
	case 2: look_attr(r); break;
	default: look_counters(r); break;
	}
}

void fsref_compare(struct fsref *r)
{
	KV_AUTO(kv_buf_done) struct kv_buf want = KV_BUF_INIT, got = KV_BUF_INIT;
	int err = fsref_dump_fs(r->fs, &got);

	FAIL_UNLESS(r, !err, "dump: %s", kv_err_text(err));
	fsref_dump(r, &want);
	if (!kv_slice_eq(kv_buf_slice(&want), kv_buf_slice(&got))) {
		fsref_print_difference(&want, &got);
		fail(r, "the trees differ");
	}
	look_counters(r);
}

/* --- the whole -------------------------------------------------------------------------------------------- */

struct fsref *fsref_new(uint64_t seed, fsref_fail_fn *fail_fn, void *arg)
{
	struct fsref *r = calloc(1, sizeof(*r));
	struct node *root;

	KV_ASSERT(r);
	*r = (struct fsref){ .random = seed, .now_s = START_S, .fail = fail_fn, .fail_arg = arg };
	root = node_new(r, S_IFDIR | 0755);
	root->ino = FS_INO_ROOT;
	root->parent = root;
	return r;
}

void fsref_free(struct fsref *r)
{
	if (!r)
		return;
	for (int i = 0; i < r->node_count; i++)
		node_free(r->nodes[i]);
	op_reset(&r->op);
	free(r);
}

void fsref_opened(struct fsref *r, struct fs *fs)
{
	struct fs_attr a;
	int i = 0;

	r->fs = fs;
	r->dead_count = 0;
	while (i < r->node_count) {
		struct node *n = r->nodes[i];

		n->known = 0;
		if (n->nlink)
			i++;
		else
			node_consider(r, n);
	}
	/* Formatting is done by the real clock; only then can the root's times be others. */
	if (fs_getattr(fs, FS_INO_ROOT, &a))
		fail(r, "the root cannot be read");
	if (r->now_s == START_S) {
		r->nodes[0]->birth = a.btime.tv_sec;
		r->nodes[0]->atime = a.atime.tv_sec;
		r->nodes[0]->mtime = a.mtime.tv_sec;
		r->nodes[0]->ctime = a.ctime.tv_sec;
	}
}
