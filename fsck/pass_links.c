/*
 * What the names name. The inodes are looked at in chunks by number, as many as fit into
 * memory: of each chunk a sorted array of nodes, then one scan over all names that
 * counts those of the chunk. Stores of up to a few million inodes are one chunk.
 */
#include <dirent.h>
#include <stdlib.h>

#include "fsck/ctx.h"

enum node_walk {
	WALK_UNKNOWN,
	WALK_ON_IT,	/* on the way that is being walked */
	WALK_DONE,	/* leads to the root, or into what was reported already */
};

struct node {
	fs_ino ino;
	fs_ino parent;		/* of directories */
	uint32_t nlink;
	uint32_t names;		/* found */
	uint8_t type;		/* DT_*; DT_UNKNOWN: damaged attributes */
	uint8_t walk;		/* enum node_walk */
};

_Static_assert(sizeof(struct node) == 32, "nodes are what memory is bounded by");

struct chunk {
	struct fsck *c;
	struct node *nodes;	/* sorted */
	size_t count, max;
	fs_ino begin, end;	/* all inodes of these numbers are in it */
};

static struct node *node_find(const struct chunk *ch, fs_ino ino)
{
	size_t low = 0, high = ch->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ch->nodes[middle].ino < ino)
			low = middle + 1;
		else
			high = middle;
	}
	return low < ch->count && ch->nodes[low].ino == ino ? &ch->nodes[low] : NULL;
}

/* --- filling a chunk ----------------------------------------------------------------------- */

static struct node node_make(struct fsck_scan *s)
{
	struct node n = { .ino = s->key.ino, .type = DT_UNKNOWN };
	struct kv_slice value, inline_bytes;
	struct fs_attr attr;

	/* What cannot be read or decoded has been reported by the pass before. */
	if (!fsck_scan_value(s, &value) || !fs_attr_decode(n.ino, value, &attr, &inline_bytes))
		return n;
	n.type = fs_type_of_mode(attr.mode);
	n.nlink = attr.nlink;
	n.parent = attr.parent;
	return n;
}

static int chunk_fill(struct chunk *ch, fs_ino begin)
{
	struct fsck *c = ch->c;
	struct fsck_scan s;
	int err;

	ch->begin = begin;
	ch->count = 0;
	KV_TRY(fsck_scan_open(c, FS_KEY_ATTR, begin, &s));
	for (err = 0; s.valid && ch->count < ch->max && !err; fsck_scan_next(&s)) {
		ch->nodes[ch->count++] = node_make(&s);
		if (ch->count % FSCK_PROGRESS_STEP == 0)
			err = fsck_progress(c, "reading inodes", ch->count, ch->max);
	}
	ch->end = s.valid ? s.key.ino : FS_INO_MAX;
	fsck_scan_close(&s);
	return err;
}

/* --- counting the names ----------------------------------------------------------------------- */

static const char *type_text(uint8_t type)
{
	switch (type) {
	case DT_REG:
		return "regular file";
	case DT_DIR:
		return "directory";
	case DT_LNK:
		return "symbolic link";
	case DT_CHR:
		return "character device";
	case DT_BLK:
		return "block device";
	case DT_FIFO:
		return "named pipe";
	case DT_SOCK:
		return "socket";
	default:
		return "thing unknown";
	}
}

static void count_name(struct chunk *ch, fs_ino dir, const struct fs_slot *s)
{
	struct node *n = node_find(ch, s->ino);
	struct fsck_about about = {
		.dir = dir, .ino = s->ino, .name = s->name, .text = type_text(s->type),
	};

	if (!n) {
		/* It may be among those that could not be read. */
		if (!ch->c->damaged)
			fsck_report(ch->c, FSCK_P_name_no_inode, about);
		return;
	}
	if (n->names < UINT32_MAX)
		n->names++;
	if (n->type == DT_UNKNOWN)
		return;
	if (n->type != s->type)
		fsck_report(ch->c, FSCK_P_name_type, about);
	about.a = n->parent;
	if (n->type == DT_DIR && n->parent != dir && n->ino != FS_INO_ROOT)
		fsck_report(ch->c, FSCK_P_dir_parent, about);
}

static int chunk_count(struct chunk *ch)
{
	struct fsck *c = ch->c;
	struct kv_slice bucket;
	struct fs_slot slot;
	struct fsck_scan s;
	uint64_t done = 0;
	int err = 0;

	KV_TRY(fsck_scan_open(c, FS_KEY_DIRENT, 0, &s));
	for (; s.valid && !err; fsck_scan_next(&s)) {
		if (!fsck_scan_value(&s, &bucket))
			continue;
		while (fs_slot_take(&bucket, &slot))
			if (slot.ino >= ch->begin && slot.ino < ch->end)
				count_name(ch, s.key.ino, &slot);
		if (++done % FSCK_PROGRESS_STEP == 0)
			err = fsck_progress(c, "checking names", done, c->result->names);
	}
	fsck_scan_close(&s);
	return err;
}

/* --- judging ------------------------------------------------------------------------------------ */

static void judge_node(struct chunk *ch, const struct node *n)
{
	struct fsck_about about = { .ino = n->ino, .a = n->nlink, .b = n->names };
	uint32_t want = n->nlink;

	if (n->type == DT_UNKNOWN)
		return;
	if (n->type == DT_DIR)
		want = n->ino != FS_INO_ROOT && n->nlink;
	if (n->names == want)
		return;
	if (!n->names)
		fsck_report(ch->c, FSCK_P_no_name, about);
	else if (n->type == DT_DIR && n->nlink)
		fsck_report(ch->c, FSCK_P_dir_two_names, about);
	else
		fsck_report(ch->c, FSCK_P_nlink, about);
}

/*
 * The parent of a directory; 0 when there is none to walk on to: it was reported, or
 * the way from here is known.
 */
static fs_ino walk_on(struct chunk *ch, fs_ino at, bool *loop)
{
	struct node *n = node_find(ch, at);
	struct fs_attr attr;

	*loop = false;
	if (at == FS_INO_ROOT)
		return 0;
	if (n) {
		*loop = n->walk == WALK_ON_IT;
		if (n->walk != WALK_UNKNOWN || n->type != DT_DIR)
			return 0;
		n->walk = WALK_ON_IT;
		return n->parent;
	}
	return fsck_attr_get(ch->c, at, &attr) && S_ISDIR(attr.mode) ? attr.parent : 0;
}

static void walk_mark_done(struct chunk *ch, fs_ino at)
{
	struct node *n;

	for (uint64_t steps = ch->c->result->dirs + 1; steps; steps--) {
		struct fs_attr attr;

		n = node_find(ch, at);
		if (n && n->walk != WALK_ON_IT)
			return;
		if (n)
			n->walk = WALK_DONE;
		else if (at == FS_INO_ROOT || !fsck_attr_get(ch->c, at, &attr))
			return;
		at = n ? n->parent : attr.parent;
	}
}

/*
 * Up from the directory by what each says its parent is. Directories of other chunks are
 * walked through too, by look-ups: a loop that has none in this chunk at which to notice it is
 * known by its length.
 */
static void walk(struct chunk *ch, struct node *from)
{
	uint64_t steps = ch->c->result->dirs + 1;
	fs_ino at = from->ino, next;
	bool loop;

	while ((next = walk_on(ch, at, &loop)) && steps) {
		at = next;
		steps--;
	}
	if (loop || !steps)
		fsck_report(ch->c, FSCK_P_dir_loop, (struct fsck_about){ .ino = at });
	walk_mark_done(ch, from->ino);
}

static int chunk_judge(struct chunk *ch)
{
	for (size_t i = 0; i < ch->count; i++) {
		struct node *n = &ch->nodes[i];

		/* Names that could not be read are missing in the counts. */
		if (!ch->c->damaged)
			judge_node(ch, n);
		if (n->type == DT_DIR && n->nlink)
			walk(ch, n);
		if (i % FSCK_PROGRESS_STEP == 0)
			KV_TRY(fsck_progress(ch->c, "checking links", i, ch->count));
	}
	return 0;
}

static int run(struct chunk *ch)
{
	fs_ino begin = 0;

	do {
		KV_TRY(chunk_fill(ch, begin));
		KV_TRY(chunk_count(ch));
		KV_TRY(chunk_judge(ch));
		begin = ch->end;
	} while (begin < FS_INO_MAX);
	return 0;
}

int fsck_pass_links(struct fsck *c)
{
	struct chunk ch = { .c = c };
	int err;

	/* As many as the pass before has counted: no more memory than is needed. */
	ch.max = (size_t)KV_MIN(c->result->inodes + 1, (uint64_t)c->options->nodes_max);
	ch.nodes = calloc(ch.max, sizeof(*ch.nodes));
	if (!ch.nodes)
		return -ENOMEM;
	err = run(&ch);
	free(ch.nodes);
	return err;
}
