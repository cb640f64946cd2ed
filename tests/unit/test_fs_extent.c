#include "fs/extent.h"
#include "fs/window.h"
#include "tests/unit/fs_fixture.h"

#define WINDOW FS_EXTENT_BYTES_MAX

static uint8_t *pattern(size_t bytes, unsigned seed)
{
	uint8_t *b = malloc(bytes);

	ck_assert_ptr_nonnull(b);
	for (size_t i = 0; i < bytes; i++)
		b[i] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
	return b;
}

static void write_pattern(struct fixture *x, fs_ino ino, uint64_t offset, size_t bytes,
			  unsigned seed)
{
	uint8_t *b = pattern(bytes, seed);

	ck_ok(fs_write(x->fs, ino, b, bytes, offset, 0));
	free(b);
}

static void expect_pattern(struct fixture *x, fs_ino ino, uint64_t offset, size_t bytes,
			   unsigned seed, size_t skip)
{
	uint8_t *b = pattern(skip + bytes, seed), *got = malloc(bytes);

	ck_assert_ptr_nonnull(got);
	ck_ok(fs_extent_read(x->fs, ino, got, bytes, offset));
	ck_assert_mem_eq(got, b + skip, bytes);
	free(b);
	free(got);
}

static void expect_zeros(struct fixture *x, fs_ino ino, uint64_t offset, size_t bytes)
{
	uint8_t *got = malloc(bytes);

	ck_assert_ptr_nonnull(got);
	ck_ok(fs_extent_read(x->fs, ino, got, bytes, offset));
	ck_assert(!got[0] && !memcmp(got, got + 1, bytes - 1));
	free(got);
}

/* The n extents of the file are exactly these (offset, bytes); and its attributes count them. */
static void expect_extents(struct fixture *x, fs_ino ino, size_t n, const uint64_t (*want)[2])
{
	struct fs_attr attr = fixture_attr(x, ino);
	struct kv_iter *it;
	struct fs_piece p;
	uint64_t bytes = 0;

	ck_ok(fs_extent_iter(x->fs, ino, 0, UINT64_MAX, false, &it));
	for (size_t i = 0; i < n; i++, kv_iter_next(it)) {
		ck_assert_msg(kv_iter_valid(it), "%zu extents instead of %zu", i, n);
		ck_ok(fs_extent_at(x->fs, it, ino, 0, &p));
		ck_assert_uint_eq(p.offset, want[i][0]);
		ck_assert_uint_eq(p.bytes, want[i][1]);
		bytes += p.bytes;
	}
	ck_assert(!kv_iter_valid(it));
	ck_ok(kv_iter_error(it));
	kv_iter_free(it);
	ck_assert_uint_eq(attr.extents, n);
	ck_assert_uint_eq(attr.bytes, bytes);
}
#define EXPECT_EXTENTS(x, ino, ...)                                         \
	do {                                                                \
		const uint64_t want_[][2] = { __VA_ARGS__ };                \
		expect_extents(x, ino, KV_ARRAY_LEN(want_), want_);         \
	} while (0)

static int punch(struct fixture *x, fs_ino ino, uint64_t begin, uint64_t end)
{
	struct fs_inode *inode;
	struct fs_attr attr;
	struct fs_tx tx;
	int err;

	ck_ok(fs_inode_get(x->fs, ino, &inode));
	kv_mutex_lock(&inode->mu);
	fs_tx_begin(&tx, x->fs);
	ck_ok(fs_tx_attr_get(&tx, inode, &attr));
	err = fs_extent_punch(&tx, inode, &attr, begin, end);
	fs_tx_attr(&tx, inode, &attr);
	if (!err)
		err = fs_tx_commit(&tx, false);
	fs_tx_done(&tx);
	kv_mutex_unlock(&inode->mu);
	fs_inode_put(x->fs, inode);
	return err;
}

UNIT(a_write_is_cut_at_the_windows)
{
	struct fixture x;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	write_pattern(&x, f, 1000, 3 * WINDOW, 1);
	EXPECT_EXTENTS(&x, f, { 1000, WINDOW - 1000 }, { WINDOW, WINDOW }, { 2 * WINDOW, WINDOW },
		       { 3 * WINDOW, 1000 });
	expect_zeros(&x, f, 0, 1000);
	expect_pattern(&x, f, 1000, 3 * WINDOW, 1, 0);
	/* Whole windows replace what was there, under one key each. */
	write_pattern(&x, f, 0, 2 * WINDOW, 2);
	EXPECT_EXTENTS(&x, f, { 0, WINDOW }, { WINDOW, WINDOW }, { 2 * WINDOW, WINDOW },
		       { 3 * WINDOW, 1000 });
	expect_pattern(&x, f, 0, 2 * WINDOW, 2, 0);
	fixture_done(&x);
}
UNIT_END

UNIT(large_remainders_are_kept_by_reference)
{
	struct fixture x;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	write_pattern(&x, f, 0, WINDOW, 1);
	write_pattern(&x, f, 50000, 4096, 2);
	EXPECT_EXTENTS(&x, f, { 0, 50000 }, { 50000, 4096 }, { 54096, WINDOW - 54096 });
	expect_pattern(&x, f, 0, 50000, 1, 0);
	expect_pattern(&x, f, 50000, 4096, 2, 0);
	expect_pattern(&x, f, 54096, WINDOW - 54096, 1, 54096);
	/* And still when the values have moved from memory to the tables. */
	ck_ok(kv_flush(fs_kv(x.fs)));
	expect_pattern(&x, f, 54096, WINDOW - 54096, 1, 54096);
	write_pattern(&x, f, 90000, 4096, 3);
	expect_pattern(&x, f, 54096, 90000 - 54096, 1, 54096);
	expect_pattern(&x, f, 94096, WINDOW - 94096, 1, 94096);
	fixture_done(&x);
}
UNIT_END

UNIT(small_remainders_are_rewritten_with_what_is_new)
{
	struct fixture x;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	write_pattern(&x, f, 0, WINDOW, 1);
	write_pattern(&x, f, 5000, WINDOW - 7000, 2);
	EXPECT_EXTENTS(&x, f, { 0, WINDOW });
	expect_pattern(&x, f, 0, 5000, 1, 0);
	expect_pattern(&x, f, 5000, WINDOW - 7000, 2, 0);
	expect_pattern(&x, f, WINDOW - 2000, 2000, 1, WINDOW - 2000);
	/* A cut alone rewrites too what it leaves of a value, when that is little. */
	ck_ok(punch(&x, f, 3000, WINDOW));
	EXPECT_EXTENTS(&x, f, { 0, 3000 });
	expect_pattern(&x, f, 0, 3000, 1, 0);
	fixture_done(&x);
}
UNIT_END

UNIT(appended_bytes_are_joined)
{
	struct fixture x;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	for (uint64_t i = 0; i < 16; i++)
		write_pattern(&x, f, 4096 * i, 4096, (unsigned)i);
	EXPECT_EXTENTS(&x, f, { 0, 32768 }, { 32768, 32768 });
	for (unsigned i = 0; i < 16; i++)
		expect_pattern(&x, f, 4096 * i, 4096, i, 0);
	/* Backwards as well. */
	f = fixture_file(&x, FS_INO_ROOT, "g");
	for (uint64_t i = 16; i--;)
		write_pattern(&x, f, 4096 * i, 4096, (unsigned)i);
	EXPECT_EXTENTS(&x, f, { 0, 32768 }, { 32768, 32768 });
	fixture_done(&x);
}
UNIT_END

UNIT(a_window_holds_a_bounded_number_of_extents)
{
	struct fixture x;
	struct fs_attr attr;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	/* Every other byte of 1000: holes so short that they are filled. */
	for (uint64_t i = 0; i < 500; i++) {
		write_pattern(&x, f, 2 * i, 1, (unsigned)i);
		attr = fixture_attr(&x, f);
		ck_assert_uint_le(attr.extents, FS_WINDOW_EXTENTS_MAX);
	}
	for (unsigned i = 0; i < 500; i++) {
		expect_pattern(&x, f, 2 * i, 1, i, 0);
		expect_zeros(&x, f, 2 * i + 1, 1);
	}
	/* A block every second block: those holes stay. */
	f = fixture_file(&x, FS_INO_ROOT, "g");
	for (uint64_t i = 0; i < 32; i++)
		write_pattern(&x, f, 8192 * i, 4096, (unsigned)i);
	attr = fixture_attr(&x, f);
	ck_assert_uint_eq(attr.extents, 32);
	ck_assert_uint_eq(attr.bytes, 32 * 4096);
	/* Small appends between large extents, which are not joined with each. */
	f = fixture_file(&x, FS_INO_ROOT, "h");
	for (uint64_t i = 0; i < 1500; i++) {
		write_pattern(&x, f, 40 * i, 40, (unsigned)i);
		ck_assert_uint_le(fixture_attr(&x, f).extents, FS_WINDOW_EXTENTS_MAX);
	}
	for (unsigned i = 0; i < 1500; i += 7)
		expect_pattern(&x, f, 40 * i, 40, i, 0);
	fixture_done(&x);
}
UNIT_END

UNIT(punch_cuts_edges_and_deletes_what_lies_between)
{
	struct fixture x;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	write_pattern(&x, f, 0, 8 * WINDOW, 1);
	ck_ok(punch(&x, f, WINDOW / 2, 6 * WINDOW + WINDOW / 2));
	EXPECT_EXTENTS(&x, f, { 0, WINDOW / 2 }, { 6 * WINDOW + WINDOW / 2, WINDOW / 2 },
		       { 7 * WINDOW, WINDOW });
	expect_pattern(&x, f, 0, WINDOW / 2, 1, 0);
	expect_zeros(&x, f, WINDOW / 2, 6 * WINDOW);
	expect_pattern(&x, f, 6 * WINDOW + WINDOW / 2, WINDOW / 2, 1, 6 * WINDOW + WINDOW / 2);
	ck_ok(punch(&x, f, 100, 100));
	ck_ok(punch(&x, f, 7 * WINDOW + 65536, UINT64_MAX));
	EXPECT_EXTENTS(&x, f, { 0, WINDOW / 2 }, { 6 * WINDOW + WINDOW / 2, WINDOW / 2 },
		       { 7 * WINDOW, 65536 });
	ck_ok(punch(&x, f, 0, UINT64_MAX));
	expect_extents(&x, f, 0, NULL);
	fixture_done(&x);
}
UNIT_END

UNIT(many_extents_are_deleted_by_a_range)
{
	const uint64_t n = 3 * FS_POINT_DELETES_MAX;
	struct fixture x;
	fs_ino f, g;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	g = fixture_file(&x, FS_INO_ROOT, "g");
	for (uint64_t i = 0; i < n; i++)
		write_pattern(&x, f, i * WINDOW + 100, 300, (unsigned)i);
	write_pattern(&x, g, 0, 1000, 5);
	ck_ok(punch(&x, f, WINDOW + 200, (n - 1) * WINDOW + 200));
	EXPECT_EXTENTS(&x, f, { 100, 300 }, { WINDOW + 100, 100 }, { (n - 1) * WINDOW + 200, 200 });
	expect_pattern(&x, f, WINDOW + 100, 100, 1, 0);
	expect_zeros(&x, f, 2 * WINDOW, 1000);
	expect_pattern(&x, f, (n - 1) * WINDOW + 200, 200, (unsigned)n - 1, 100);
	for (uint64_t i = 0; i < n; i++)
		write_pattern(&x, f, i * WINDOW + 100, 300, (unsigned)i);
	ck_ok(punch(&x, f, 0, UINT64_MAX));
	expect_extents(&x, f, 0, NULL);
	expect_pattern(&x, g, 0, 1000, 5, 0);
	fixture_done(&x);
}
UNIT_END

UNIT(seek_finds_data_and_holes)
{
	struct fixture x;
	uint64_t at;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	write_pattern(&x, f, 5000, 3 * WINDOW, 1);
	fixture_truncate(&x, f, 8 * WINDOW);
	ck_ok(fs_extent_seek(x.fs, f, 0, 8 * WINDOW, false, &at));
	ck_assert_uint_eq(at, 5000);
	ck_ok(fs_extent_seek(x.fs, f, 0, 8 * WINDOW, true, &at));
	ck_assert_uint_eq(at, 0);
	ck_ok(fs_extent_seek(x.fs, f, 5000, 8 * WINDOW, true, &at));
	ck_assert_uint_eq(at, 5000 + 3 * WINDOW);
	ck_ok(fs_extent_seek(x.fs, f, WINDOW + 77, 8 * WINDOW, false, &at));
	ck_assert_uint_eq(at, WINDOW + 77);
	ck_assert_int_eq(fs_extent_seek(x.fs, f, 5000 + 3 * WINDOW, 8 * WINDOW, false, &at), -ENXIO);
	ck_assert_int_eq(fs_extent_seek(x.fs, f, 8 * WINDOW, 8 * WINDOW, true, &at), -ENXIO);
	/* Data up to the end: the end is the hole. */
	fixture_truncate(&x, f, 2 * WINDOW);
	ck_ok(fs_extent_seek(x.fs, f, WINDOW, 2 * WINDOW, true, &at));
	ck_assert_uint_eq(at, 2 * WINDOW);
	fixture_done(&x);
}
UNIT_END

UNIT(extents_that_cannot_be_are_damage)
{
	static const uint8_t byte[FS_EXTENT_BYTES_MAX] = { 1 };
	struct kv_batch *b = kv_batch_new();
	struct fixture x;
	struct fs_key key;
	uint8_t got[16];
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	fixture_truncate(&x, f, 2 * WINDOW);
	key = fs_key_extent(f, WINDOW - 10);
	kv_batch_put(b, fs_key_slice(&key), kv_slice(byte, 20), KV_HINT_NONE);
	ck_ok(kv_write(fs_kv(x.fs), b, false));
	ck_assert_int_eq(fs_extent_read(x.fs, f, got, 16, WINDOW - 16), -EUCLEAN);
	kv_batch_reset(b);
	kv_batch_delete(b, fs_key_slice(&key));
	/* Two that overlap. */
	key = fs_key_extent(f, 0);
	kv_batch_put(b, fs_key_slice(&key), kv_slice(byte, 20), KV_HINT_NONE);
	key = fs_key_extent(f, 10);
	kv_batch_put(b, fs_key_slice(&key), kv_slice(byte, 20), KV_HINT_NONE);
	ck_ok(kv_write(fs_kv(x.fs), b, false));
	ck_assert_int_eq(fs_extent_read(x.fs, f, got, 16, 0), -EUCLEAN);
	kv_batch_free(b);
	fixture_done(&x);
}
UNIT_END

UNIT_MAIN("fs_extent", a_write_is_cut_at_the_windows, large_remainders_are_kept_by_reference,
	  small_remainders_are_rewritten_with_what_is_new, appended_bytes_are_joined,
	  a_window_holds_a_bounded_number_of_extents, punch_cuts_edges_and_deletes_what_lies_between,
	  many_extents_are_deleted_by_a_range, seek_finds_data_and_holes,
	  extents_that_cannot_be_are_damage)
