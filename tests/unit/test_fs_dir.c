#include "tests/unit/fs_fixture.h"

#define S(text) kv_slice_str(text)
#define ROOT FS_INO_ROOT
#define NAMES_MAX 4096

struct seen {
	struct fixture *x;
	char names[NAMES_MAX][32];
	fs_ino inos[NAMES_MAX];
	uint64_t cookies[NAMES_MAX];
	size_t count;
	size_t room;			/* entries taken before one is refused */
	bool with_attr;
	size_t without;			/* entries without attributes */
};

static bool take(void *arg, const struct fs_dirent *e)
{
	struct seen *s = arg;

	if (!s->room)
		return false;
	s->room--;
	ck_assert_uint_lt(s->count, NAMES_MAX);
	ck_assert_uint_lt(e->name.bytes, sizeof(s->names[0]));
	memset(s->names[s->count], 0, sizeof(s->names[0]));
	memcpy(s->names[s->count], e->name.data, e->name.bytes);
	s->inos[s->count] = e->ino;
	s->cookies[s->count] = e->cookie;
	ck_assert_uint_gt(e->cookie, s->count ? s->cookies[s->count - 1] : 0);
	ck_assert(!e->attr || s->with_attr);
	if (e->attr) {
		ck_assert_uint_eq(e->attr->ino, e->ino);
		ck_assert_uint_eq(fixture_attr(s->x, e->ino).size, e->attr->size);
	} else {
		s->without++;
	}
	s->count++;
	return true;
}

static struct seen *seen_new(struct fixture *x, bool with_attr)
{
	struct seen *s = calloc(1, sizeof(*s));

	ck_assert_ptr_nonnull(s);
	s->x = x;
	s->with_attr = with_attr;
	return s;
}

/* Reads on from where it stopped, `room` entries at a time, to the end. */
static void read_all(struct seen *s, fs_ino dir, size_t room)
{
	size_t before;

	do {
		before = s->count;
		s->room = room;
		ck_ok(fs_readdir(s->x->fs, dir, before ? s->cookies[before - 1] : 0, s->with_attr, take,
				 s));
	} while (s->count > before);
}

static bool has(const struct seen *s, const char *name)
{
	size_t times = 0;

	for (size_t i = 0; i < s->count; i++)
		times += !strcmp(s->names[i], name);
	ck_assert_uint_le(times, 1);
	return times;
}

static uint64_t known(struct fixture *x)
{
	struct fs_stats s;

	fs_stats(x->fs, &s);
	return s.inodes_known;
}

static void fill(struct fixture *x, fs_ino dir, int count)
{
	for (int i = 0; i < count; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		fs_forget(x->fs, fixture_file(x, dir, name), 1);
	}
}

static void all_are_seen(uint32_t hash_bits, int count, size_t room, bool with_attr)
{
	struct fixture x;
	struct seen *s;

	fixture_init_hash(&x, hash_bits);
	fill(&x, ROOT, count);
	for (int again = 0; again < 2; again++) {
		s = seen_new(&x, with_attr);
		read_all(s, ROOT, room);
		ck_assert_uint_eq(s->count, (size_t)count + 2);
		ck_assert_str_eq(s->names[0], ".");
		ck_assert_str_eq(s->names[1], "..");
		for (int i = 0; i < count; i++) {
			char name[16];

			snprintf(name, sizeof(name), "f%d", i);
			ck_assert(has(s, name));
		}
		ck_assert_uint_eq(s->without, with_attr ? 2 : s->count);
		ck_assert_uint_eq(known(&x), with_attr ? (uint64_t)count : 0);
		for (size_t i = 2; with_attr && i < s->count; i++)
			fs_forget(x.fs, s->inos[i], 1);
		ck_assert_uint_eq(known(&x), 0);
		free(s);
		/* Once with the inodes in memory, once without. */
		fixture_unmount(&x);
		fixture_mount(&x);
	}
	fixture_done(&x);
}

UNIT(an_empty_directory_has_its_dots)
{
	all_are_seen(0, 0, 100, false);
	all_are_seen(0, 0, 1, true);
}
UNIT_END

UNIT(all_names_are_seen_once)
{
	all_are_seen(0, 300, 1000, false);
	all_are_seen(0, 300, 7, false);
	all_are_seen(0, 20, 1, false);
}
UNIT_END

UNIT(all_names_are_seen_once_with_attributes)
{
	all_are_seen(0, 300, 1000, true);
	all_are_seen(0, 300, 7, true);
	all_are_seen(0, 64, 64, true);
	all_are_seen(0, 66, 66, true);
	all_are_seen(0, 3, 1, true);
}
UNIT_END

UNIT(colliding_names_are_seen_once)
{
	all_are_seen(5, 50, 1000, false);
	all_are_seen(5, 50, 3, true);
	all_are_seen(1, 16, 1, false);
}
UNIT_END

UNIT(names_that_stay_are_seen_whatever_else_changes)
{
	struct fixture x;
	struct seen *s;

	fixture_init_hash(&x, 6);
	fill(&x, ROOT, 100);
	s = seen_new(&x, false);
	for (int i = 0; i < 50; i++) {
		char name[16], other[16];

		s->room = 2;
		ck_ok(fs_readdir(x.fs, ROOT, s->count ? s->cookies[s->count - 1] : 0, false, take, s));
		snprintf(name, sizeof(name), "f%d", i);
		snprintf(other, sizeof(other), "g%d", i);
		ck_ok(fs_rename(x.fs, ROOT, S(name), ROOT, S(other), 0));
		if (i % 2)
			ck_ok(fs_unlink(x.fs, ROOT, S(other)));
	}
	read_all(s, ROOT, 1000);
	for (int i = 50; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		ck_assert(has(s, name));
	}
	free(s);
	fixture_done(&x);
}
UNIT_END

UNIT(what_is_no_directory_is_not_read)
{
	struct fixture x;
	struct seen *s;
	fs_ino d, f;

	fixture_init(&x);
	d = fixture_dir(&x, ROOT, "d");
	f = fixture_file(&x, ROOT, "f");
	s = seen_new(&x, false);
	s->room = 10;
	ck_assert_int_eq(fs_readdir(x.fs, f, 0, false, take, s), -ENOTDIR);
	ck_assert_int_eq(fs_readdir(x.fs, 12345, 0, false, take, s), -ENOENT);
	ck_ok(fs_rmdir(x.fs, ROOT, S("d")));
	ck_assert_int_eq(fs_readdir(x.fs, d, 0, false, take, s), -ENOENT);
	ck_ok(fs_readdir(x.fs, ROOT, UINT64_MAX, true, take, s));
	ck_ok(fs_readdir(x.fs, ROOT, INT64_MAX, true, take, s));
	ck_assert_uint_eq(s->count, 0);
	free(s);
	fixture_done(&x);
}
UNIT_END

UNIT_MAIN("fs_dir", an_empty_directory_has_its_dots, all_names_are_seen_once,
	  all_names_are_seen_once_with_attributes, colliding_names_are_seen_once,
	  names_that_stay_are_seen_whatever_else_changes, what_is_no_directory_is_not_read)
