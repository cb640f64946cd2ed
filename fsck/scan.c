#include "fsck/ctx.h"

static void report_end(struct fsck_scan *s)
{
	int err = kv_iter_error(s->it);

	if (!err)
		return;
	s->c->damaged = true;
	if (!s->c->report)
		return;
	fsck_report(s->c, FSCK_P_store_unread, (struct fsck_about){
		.text = s->what,
		.b = s->seen,
		.name = kv_slice_str(kv_err_text(err)),
	});
}

/* Takes the key at the iterator apart, or the first one behind that can be. */
static void settle(struct fsck_scan *s)
{
	for (; kv_iter_valid(s->it); kv_iter_next(s->it)) {
		s->seen++;
		s->valid = fs_key_parse(kv_iter_key(s->it), &s->key) && s->key.kind == s->kind;
		if (s->valid)
			return;
		if (s->c->report)
			fsck_report_key(s->c, kv_iter_key(s->it));
	}
	s->valid = false;
	report_end(s);
}

static const char *kind_name(enum fs_key_kind kind)
{
	switch (kind) {
	case FS_KEY_ATTR:
		return "the list of inodes";
	case FS_KEY_DIRENT:
		return "the list of names";
	case FS_KEY_XATTR:
		return "the list of extended attributes";
	case FS_KEY_EXTENT:
		return "the list of the files' pieces";
	case FS_KEY_ORPHAN:
		return "the list of deleted inodes";
	default:
		return "the store";
	}
}

int fsck_scan_open(struct fsck *c, enum fs_key_kind kind, fs_ino from, struct fsck_scan *out)
{
	struct fs_key lower = fs_key_begin(kind, from), upper = fs_key_begin(kind, FS_INO_MAX);
	struct kv_iter_options o = {
		.lower = fs_key_slice(&lower),
		.upper = fs_key_slice(&upper),
		.no_cache = true,
		.sequential = true,
	};

	*out = (struct fsck_scan){ .c = c, .kind = kind, .what = kind_name(kind) };
	KV_TRY(kv_iter_new(c->kv, &o, &out->it));
	kv_iter_seek_first(out->it);
	settle(out);
	return 0;
}

void fsck_scan_close(struct fsck_scan *s)
{
	if (s->it)
		kv_iter_free(s->it);
	s->it = NULL;
}

void fsck_scan_next(struct fsck_scan *s)
{
	kv_iter_next(s->it);
	settle(s);
}

bool fsck_scan_value(struct fsck_scan *s, struct kv_slice *out)
{
	static const struct {
		enum fs_key_kind kind;
		const char *text;
	} parts[] = {
		{ FS_KEY_ATTR, "attributes" },
		{ FS_KEY_DIRENT, "list of names" },
	};
	const char *text = "record";

	if (!kv_iter_value(s->it, out))
		return true;
	for (size_t i = 0; i < KV_ARRAY_LEN(parts); i++)
		if (parts[i].kind == s->kind)
			text = parts[i].text;
	s->c->damaged = true;
	if (s->c->report)
		fsck_report(s->c, FSCK_P_value_unread,
			    (struct fsck_about){ .ino = s->key.ino, .text = text });
	return false;
}
