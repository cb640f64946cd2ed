/*
 * Each inode by itself. Five ordered scans (attributes, names, extended attributes,
 * extents, orphans) are merged by inode: whatever belongs to one is seen together, in
 * constant memory.
 */
#include <dirent.h>

#include "fsck/ctx.h"

enum {
	SCAN_ATTR,
	SCAN_DIRENT,
	SCAN_XATTR,
	SCAN_EXTENT,
	SCAN_ORPHAN,
	SCANS,
};

struct merge {
	struct fsck *c;
	struct fsck_scan scan[SCANS];

	fs_ino ino;			/* the inode being looked at, and what was found of it */
	bool exists;			/* has attributes, maybe damaged ones */
	bool attr_ok;
	struct fs_attr attr;		/* when attr_ok */
	uint64_t extents, bytes, names, subdirs;
	bool orphan;
};

static bool is_at(const struct merge *m, int scan)
{
	return m->scan[scan].valid && m->scan[scan].key.ino == m->ino;
}

static void report(struct merge *m, enum fsck_problem p, uint64_t a, uint64_t b)
{
	fsck_report(m->c, p, (struct fsck_about){ .ino = m->ino, .a = a, .b = b });
}

static void report_name(struct merge *m, enum fsck_problem p, struct kv_slice name, uint64_t a)
{
	fsck_report(m->c, p, (struct fsck_about){ .ino = m->ino, .name = name, .a = a });
}

/* --- attributes --------------------------------------------------------------------------- */

static void take_attr(struct merge *m)
{
	struct kv_slice value, inline_bytes;

	m->exists = is_at(m, SCAN_ATTR);
	m->attr_ok = false;
	if (!m->exists)
		return;
	if (fsck_scan_value(&m->scan[SCAN_ATTR], &value)) {
		m->attr_ok = fs_attr_decode(m->ino, value, &m->attr, &inline_bytes);
		if (!m->attr_ok)
			report(m, FSCK_P_attr_bad, 0, 0);
	}
	fsck_scan_next(&m->scan[SCAN_ATTR]);
}

static void count_inode(struct merge *m)
{
	struct fsck_result *r = m->c->result;

	r->inodes++;
	r->orphans += m->orphan;
	if (!m->attr_ok)
		return;
	if (S_ISREG(m->attr.mode))
		r->files++;
	else if (S_ISDIR(m->attr.mode))
		r->dirs++;
	else if (S_ISLNK(m->attr.mode))
		r->symlinks++;
	else
		r->others++;
	/* What the counter is a sum of; that it agrees with the extents is checked for each inode. */
	r->bytes += m->attr.bytes;
}

/* --- extents ------------------------------------------------------------------------------- */

static void check_extent(struct merge *m, uint64_t offset, uint32_t bytes, uint64_t *end)
{
	if (!bytes || bytes > FS_EXTENT_BYTES_MAX - offset % FS_EXTENT_BYTES_MAX)
		report(m, FSCK_P_extent_bad, offset, bytes);
	else if (offset < *end)
		report(m, FSCK_P_extent_overlap, offset, 0);
	*end = KV_MAX(*end, offset + bytes);
	m->extents++;
	m->bytes += bytes;
}

static int take_extents(struct merge *m)
{
	struct fsck_scan *s = &m->scan[SCAN_EXTENT];
	uint64_t end = 0;

	m->extents = m->bytes = 0;
	if (!is_at(m, SCAN_EXTENT))
		return 0;
	if (!m->exists)
		report(m, FSCK_P_extent_no_inode, 0, 0);
	else if (m->attr_ok && !S_ISREG(m->attr.mode))
		report(m, FSCK_P_extent_no_file, 0, 0);
	for (; is_at(m, SCAN_EXTENT); fsck_scan_next(s)) {
		check_extent(m, s->key.number, kv_iter_value_bytes(s->it), &end);
		if (m->extents % FSCK_PROGRESS_STEP == 0)
			KV_TRY(fsck_progress(m->c, "checking inodes", m->c->result->inodes,
					     m->c->inodes));
	}
	m->c->result->extents += m->extents;
	if (m->attr_ok && S_ISREG(m->attr.mode) && end > m->attr.size)
		report(m, FSCK_P_extent_beyond, end, m->attr.size);
	return 0;
}

static void judge_extents(struct merge *m)
{
	if (!S_ISREG(m->attr.mode) || m->c->damaged)
		return;
	if (m->attr.extents != m->extents)
		report(m, FSCK_P_extent_count, m->attr.extents, m->extents);
	if (m->attr.bytes != m->bytes)
		report(m, FSCK_P_extent_bytes, m->attr.bytes, m->bytes);
}

/* --- extended attributes ---------------------------------------------------------------------- */

static uint32_t xattr_flags(struct kv_slice name)
{
	if (kv_slice_eq(name, kv_slice_str("system.posix_acl_access")) ||
	    kv_slice_eq(name, kv_slice_str("system.posix_acl_default")))
		return FS_ATTR_XATTRS | FS_ATTR_ACL;
	if (kv_slice_eq(name, kv_slice_str("security.capability")))
		return FS_ATTR_XATTRS | FS_ATTR_CAPS;
	return FS_ATTR_XATTRS;
}

static void take_xattrs(struct merge *m)
{
	struct fsck_scan *s = &m->scan[SCAN_XATTR];

	if (is_at(m, SCAN_XATTR) && !m->exists)
		report(m, FSCK_P_xattr_no_inode, 0, 0);
	for (; is_at(m, SCAN_XATTR); fsck_scan_next(s)) {
		uint32_t needs = xattr_flags(s->key.name), bytes = kv_iter_value_bytes(s->it);

		m->c->result->xattrs++;
		if (m->attr_ok && (m->attr.flags & needs) != needs)
			report_name(m, FSCK_P_xattr_denied, s->key.name, 0);
		if (bytes > FS_XATTR_BYTES_MAX)
			report_name(m, FSCK_P_xattr_bad, s->key.name, bytes);
	}
}

/* --- names ------------------------------------------------------------------------------------- */

static bool name_is_before(const struct fs_slot *slots, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (kv_slice_eq(slots[i].name, slots[n].name))
			return true;
	return false;
}

static void check_bucket(struct merge *m, uint64_t hash, struct kv_slice bucket)
{
	struct fs_slot slots[FS_SLOTS_MAX];
	uint32_t n = 0, taken = 0;

	for (; n < FS_SLOTS_MAX && fs_slot_take(&bucket, &slots[n]); n++) {
		const struct fs_slot *s = &slots[n];

		m->names++;
		m->subdirs += s->type == DT_DIR;
		if (taken & 1u << s->slot)
			report_name(m, FSCK_P_slot_twice, s->name, 0);
		else if (name_is_before(slots, n))
			report_name(m, FSCK_P_name_twice, s->name, 0);
		if (m->c->super_ok && fs_name_hash(&m->c->super, s->name) != hash)
			report_name(m, FSCK_P_name_lost, s->name, 0);
		taken |= 1u << s->slot;
	}
	if (bucket.bytes || !n)
		report(m, FSCK_P_bucket_bad, 0, 0);
}

static int take_names(struct merge *m)
{
	struct fsck_scan *s = &m->scan[SCAN_DIRENT];
	struct kv_slice bucket;
	uint64_t buckets = 0;

	m->names = m->subdirs = 0;
	if (!is_at(m, SCAN_DIRENT))
		return 0;
	if (!m->exists)
		report(m, FSCK_P_names_no_inode, 0, 0);
	else if (m->attr_ok && !S_ISDIR(m->attr.mode))
		report(m, FSCK_P_names_no_dir, 0, 0);
	for (; is_at(m, SCAN_DIRENT); fsck_scan_next(s)) {
		if (fsck_scan_value(s, &bucket))
			check_bucket(m, s->key.number, bucket);
		if (++buckets % FSCK_PROGRESS_STEP == 0)
			KV_TRY(fsck_progress(m->c, "checking inodes", m->c->result->inodes,
					     m->c->inodes));
	}
	m->c->result->names += m->names;
	return 0;
}

static void judge_directory(struct merge *m)
{
	uint64_t nlink = 2 + m->subdirs; /* its name, its ".", and the ".." in each */

	if (!S_ISDIR(m->attr.mode) || m->c->damaged)
		return;
	if (m->attr.entries != m->names)
		report(m, FSCK_P_dir_size, m->attr.entries, m->names);
	if (!m->attr.nlink && m->names)
		report(m, FSCK_P_names_deleted, 0, 0);
	else if (m->attr.nlink && m->attr.nlink != nlink)
		report(m, FSCK_P_dir_nlink, m->attr.nlink, nlink);
}

/* --- all of one inode ---------------------------------------------------------------------------- */

static void take_orphan(struct merge *m)
{
	m->orphan = is_at(m, SCAN_ORPHAN);
	if (m->orphan && !m->exists)
		report(m, FSCK_P_orphan_no_inode, 0, 0);
	if (m->orphan)
		fsck_scan_next(&m->scan[SCAN_ORPHAN]);
}

static void judge_inode(struct merge *m)
{
	if (m->ino != FS_INO_ROOT && m->ino < FS_INO_FIRST)
		report(m, FSCK_P_ino_reserved, 0, 0);
	if (m->c->ino_next && m->ino >= m->c->ino_next)
		report(m, FSCK_P_ino_next_low, m->c->ino_next, 0);
	if (!m->attr_ok)
		return;
	if (S_ISREG(m->attr.mode) && m->attr.flags & FS_ATTR_INLINE)
		report(m, FSCK_P_inline_bad, 0, 0);
	if (!m->attr.nlink && !m->orphan && !m->c->damaged)
		report(m, FSCK_P_orphan_missing, 0, 0);
	if (m->attr.nlink && m->orphan)
		report(m, FSCK_P_orphan_linked, m->attr.nlink, 0);
	judge_extents(m);
	judge_directory(m);
}

static int take_inode(struct merge *m)
{
	take_attr(m);
	KV_TRY(take_extents(m));
	take_xattrs(m);
	KV_TRY(take_names(m));
	take_orphan(m);
	if (!m->exists)
		return 0;
	count_inode(m);
	judge_inode(m);
	if (m->c->result->inodes % FSCK_PROGRESS_STEP == 0)
		KV_TRY(fsck_progress(m->c, "checking inodes", m->c->result->inodes, m->c->inodes));
	return 0;
}

/* The lowest inode at which a scan stands; 0: all have ended. */
static fs_ino lowest(const struct merge *m)
{
	fs_ino ino = 0;

	for (int i = 0; i < SCANS; i++)
		if (m->scan[i].valid && (!ino || m->scan[i].key.ino < ino))
			ino = m->scan[i].key.ino;
	return ino;
}

static int run(struct merge *m)
{
	static const enum fs_key_kind kinds[SCANS] = {
		[SCAN_ATTR] = FS_KEY_ATTR, [SCAN_DIRENT] = FS_KEY_DIRENT,
		[SCAN_XATTR] = FS_KEY_XATTR, [SCAN_EXTENT] = FS_KEY_EXTENT,
		[SCAN_ORPHAN] = FS_KEY_ORPHAN,
	};
	bool root_ok = false;

	for (int i = 0; i < SCANS; i++)
		KV_TRY(fsck_scan_open(m->c, kinds[i], 0, &m->scan[i]));
	while ((m->ino = lowest(m))) {
		KV_TRY(take_inode(m));
		if (m->ino == FS_INO_ROOT)
			root_ok = m->exists && (!m->attr_ok || S_ISDIR(m->attr.mode));
	}
	if (!root_ok)
		report(m, FSCK_P_root_missing, 0, 0);
	return 0;
}

static void judge_sums(struct fsck *c)
{
	if (c->damaged)
		return;
	if (c->inodes != c->result->inodes)
		fsck_report(c, FSCK_P_inodes,
			    (struct fsck_about){ .a = c->inodes, .b = c->result->inodes });
	/* Attributes that are damaged have an unknown share in the sum. */
	if (c->bytes_used != c->result->bytes && !c->result->count[FSCK_P_attr_bad])
		fsck_report(c, FSCK_P_bytes_used,
			    (struct fsck_about){ .a = c->bytes_used, .b = c->result->bytes });
}

int fsck_pass_inodes(struct fsck *c)
{
	struct merge m = { .c = c };
	int err;

	c->report = true;
	err = run(&m);
	c->report = false;
	for (int i = 0; i < SCANS; i++)
		fsck_scan_close(&m.scan[i]);
	if (!err)
		judge_sums(c);
	return err;
}
