#include "fs/icache.h"

#include <stdio.h>

#include "fs/fs.h"
#include "tests/unit/fs_fixture.h"

#define ROOT FS_INO_ROOT

/* Counts alone: they need no store. */
static struct fs *counts_new(void)
{
	struct fs *fs = calloc(1, sizeof(*fs));

	ck_assert_ptr_nonnull(fs);
	fs->icache = fs_icache_new(fs, 1);
	ck_assert_ptr_nonnull(fs->icache);
	return fs;
}

static void counts_free(struct fs *fs)
{
	fs_icache_free(fs->icache);
	free(fs);
}

static uint64_t known_inodes(struct fs *fs)
{
	uint64_t known, cached;

	fs_icache_stats(fs, &known, &cached);
	return known;
}

UNIT(counts_add_up)
{
	struct fs *fs = counts_new();

	ck_assert_uint_eq(fs_known(fs, 5), 0);
	ck_assert_uint_eq(fs_known_sub(fs, 5, 3), 0);
	ck_ok(fs_known_add(fs, 5));
	ck_ok(fs_known_add(fs, 5));
	ck_ok(fs_known_add(fs, 6));
	ck_assert_uint_eq(fs_known(fs, 5), 2);
	ck_assert_uint_eq(fs_known_sub(fs, 5, 1), 1);
	ck_assert_uint_eq(fs_known_sub(fs, 5, 9), 0);
	ck_assert_uint_eq(fs_known(fs, 5), 0);
	ck_assert_uint_eq(fs_known(fs, 6), 1);
	ck_assert_uint_eq(known_inodes(fs), 1);
	counts_free(fs);
}
UNIT_END

/* Numbers lie together, with gaps. */
static fs_ino number(size_t i)
{
	return 16 + i / 100 * 1000 + i % 100;
}

/* Against plain arrays: growing, holes that are filled, shrinking. */
UNIT(counts_are_right_under_random_use)
{
	enum { INODES = 5000, STEPS = 200000 };
	static uint64_t want[INODES];
	struct fs *fs = counts_new();
	const char *given = getenv("SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 1;
	uint64_t some = 0;

	printf("SEED=%u\n", seed);
	for (int step = 0; step < STEPS; step++) {
		/* First mostly more, later mostly less. */
		size_t i = (size_t)rand_r(&seed) % INODES;
		fs_ino ino = number(i);

		if (rand_r(&seed) % STEPS > step) {
			ck_ok(fs_known_add(fs, ino));
			want[i]++;
		} else {
			uint64_t times = 1 + (uint64_t)rand_r(&seed) % 3;

			want[i] -= KV_MIN(times, want[i]);
			ck_assert_uint_eq(fs_known_sub(fs, ino, times), want[i]);
		}
	}
	for (size_t i = 0; i < INODES; i++)
		some += !!want[i];
	ck_assert_uint_eq(known_inodes(fs), some);
	for (size_t i = 0; i < INODES; i++)
		ck_assert_uint_eq(fs_known(fs, number(i)), want[i]);
	for (size_t i = 0; i < INODES; i++)
		ck_assert_uint_eq(fs_known_sub(fs, number(i), UINT64_MAX), 0);
	ck_assert_uint_eq(known_inodes(fs), 0);
	counts_free(fs);
}
UNIT_END

UNIT(an_inode_is_one_struct)
{
	struct fixture x;
	struct fs_inode *a, *b;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	ck_ok(fs_inode_get(x.fs, f, &a));
	ck_ok(fs_inode_get(x.fs, f, &b));
	ck_assert_ptr_eq(a, b);
	fs_inode_put(x.fs, a);
	fs_inode_put(x.fs, b);
	ck_assert_int_eq(fs_inode_get(x.fs, 0, &a), -ENOENT);
	ck_assert_int_eq(fs_inode_get(x.fs, FS_INO_MAX, &a), -ENOENT);
	ck_assert_int_eq(fs_inode_get(x.fs, 777, &a), -ENOENT);
	fs_inode_put(x.fs, NULL);
	fixture_done(&x);
}
UNIT_END

UNIT(unused_inodes_make_room)
{
	struct fs_options o = { .kv = fixture_kv_options(), .inodes_cached_max = 32 };
	struct fixture x;
	struct fs_inode *kept;
	uint64_t known, cached;
	fs_ino first;

	fixture_init(&x);
	fixture_unmount(&x);
	ck_ok(fs_open(x.dir, &o, &x.fs));
	first = fixture_file(&x, ROOT, "first");
	ck_ok(fs_inode_get(x.fs, first, &kept));
	for (int i = 0; i < 500; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		fixture_file(&x, ROOT, name);
	}
	fs_icache_stats(x.fs, &known, &cached);
	ck_assert_uint_eq(known, 501);
	ck_assert_uint_le(cached, 32 + 1);
	ck_assert_ptr_eq(fs_inode_peek(x.fs, first), kept);
	fs_inode_put(x.fs, kept);
	fs_inode_put(x.fs, kept);
	fixture_done(&x);
}
UNIT_END

UNIT(only_forgotten_orphans_are_condemned)
{
	struct fixture x;
	struct fs_inode *i;
	struct fs_attr a;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, ROOT, "f");
	ck_ok(fs_inode_get(x.fs, f, &i));
	ck_assert(!fs_inode_condemn(x.fs, i));
	ck_ok(fs_unlink(x.fs, ROOT, kv_slice_str("f")));
	ck_assert(!fs_inode_condemn(x.fs, i));
	ck_assert_uint_eq(fs_known_sub(x.fs, f, 1), 0);
	ck_assert(fs_inode_condemn(x.fs, i));
	ck_assert(!fs_inode_condemn(x.fs, i));
	ck_assert_int_eq(fs_inode_attr(i, &a), -ENOENT);
	fs_inode_spare(i);
	ck_ok(fs_inode_attr(i, &a));
	fs_inode_put(x.fs, i);
	fixture_done(&x);
}
UNIT_END

UNIT_MAIN("fs_icache", counts_add_up, counts_are_right_under_random_use, an_inode_is_one_struct,
	  unused_inodes_make_room, only_forgotten_orphans_are_condemned)
