#include <linux/falloc.h>

#include "fs/window.h"
#include "tests/unit/fs_fixture.h"

#define WINDOW FS_EXTENT_BYTES_MAX

UNIT(read_ends_at_the_end_of_the_file)
{
	struct fixture x;
	char got[100];
	size_t n;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	ck_ok(fs_read(x.fs, f, got, sizeof(got), 0, &n));
	ck_assert_uint_eq(n, 0);
	ck_ok(fs_write(x.fs, f, "hello", 5, 10, 0));
	ck_assert_uint_eq(fixture_attr(&x, f).size, 15);
	memset(got, 'x', sizeof(got));
	ck_ok(fs_read(x.fs, f, got, sizeof(got), 0, &n));
	ck_assert_uint_eq(n, 15);
	ck_assert_mem_eq(got, "\0\0\0\0\0\0\0\0\0\0hello", 15);
	ck_assert_int_eq(got[15], 'x');
	ck_ok(fs_read(x.fs, f, got, 2, 12, &n));
	ck_assert_uint_eq(n, 2);
	ck_assert_mem_eq(got, "ll", 2);
	ck_ok(fs_read(x.fs, f, got, 2, 15, &n));
	ck_assert_uint_eq(n, 0);
	ck_ok(fs_read(x.fs, f, got, 2, UINT64_MAX - 1, &n));
	ck_assert_uint_eq(n, 0);
	fixture_done(&x);
}
UNIT_END

UNIT(only_regular_files_have_contents)
{
	struct fs_caller caller = { 0 };
	struct fs_attr fifo;
	struct fixture x;
	uint64_t at;
	char c = 0;
	size_t n;

	fixture_init(&x);
	ck_ok(fs_mknod(x.fs, FS_INO_ROOT, kv_slice_str("p"), S_IFIFO | 0644, 0, &caller, &fifo));
	ck_assert_int_eq(fs_read(x.fs, FS_INO_ROOT, &c, 1, 0, &n), -EISDIR);
	ck_assert_int_eq(fs_write(x.fs, FS_INO_ROOT, &c, 1, 0, 0), -EISDIR);
	ck_assert_int_eq(fs_fallocate(x.fs, FS_INO_ROOT, 0, 0, 1), -EISDIR);
	ck_assert_int_eq(fs_write(x.fs, fifo.ino, &c, 1, 0, 0), -EINVAL);
	ck_assert_int_eq(fs_fallocate(x.fs, fifo.ino, 0, 0, 1), -ENODEV);
	ck_assert_int_eq(fs_lseek(x.fs, fifo.ino, 0, SEEK_DATA, &at), -EINVAL);
	ck_assert_int_eq(fs_write(x.fs, 999999, &c, 1, 0, 0), -ENOENT);
	fixture_done(&x);
}
UNIT_END

UNIT(limits_of_a_write)
{
	struct fixture x;
	char c = 'c';
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	ck_assert_int_eq(fs_write(x.fs, f, &c, FS_WRITE_BYTES_MAX + 1, 0, 0), -EINVAL);
	ck_assert_int_eq(fs_write(x.fs, f, &c, 1, FS_FILE_BYTES_MAX, 0), -EFBIG);
	ck_assert_int_eq(fs_write(x.fs, f, &c, 1, UINT64_MAX, 0), -EFBIG);
	ck_ok(fs_write(x.fs, f, &c, 1, FS_FILE_BYTES_MAX - 1, 0));
	ck_assert_uint_eq(fixture_attr(&x, f).size, FS_FILE_BYTES_MAX);
	ck_assert_uint_eq(fixture_attr(&x, f).bytes, 1);
	ck_assert_int_eq(fs_fallocate(x.fs, f, 0, 1, FS_FILE_BYTES_MAX), -EFBIG);
	fixture_truncate(&x, f, 0);
	ck_assert_uint_eq(fixture_attr(&x, f).bytes, 0);
	fixture_done(&x);
}
UNIT_END

UNIT(a_write_changes_times_and_set_id_bits_as_asked)
{
	struct fs_caller caller = { 0 };
	struct fs_attr a, b, in = { .mode = S_IFREG | S_ISUID | S_ISGID | 0755 };
	struct kv_slice caps = kv_slice_str("security.capability");
	struct kv_buf value = KV_BUF_INIT;
	struct fixture x;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	ck_ok(fs_setattr(x.fs, f, &in, FS_SET_MODE, &caller, &a));
	ck_ok(fs_setxattr(x.fs, f, caps, kv_slice_str("v"), 0));
	a = fixture_attr(&x, f);
	ck_assert(a.flags & FS_ATTR_CAPS);
	ck_ok(fs_write(x.fs, f, "1", 1, 0, FS_WRITE_KEEP_TIMES));
	b = fixture_attr(&x, f);
	ck_assert_int_eq(b.mtime.tv_sec, a.mtime.tv_sec);
	ck_assert_int_eq(b.ctime.tv_sec, a.ctime.tv_sec);
	ck_assert_uint_eq(b.mode, in.mode);
	ck_ok(fs_write(x.fs, f, "2", 1, 0, FS_WRITE_KILL_PRIV | FS_WRITE_SYNC));
	b = fixture_attr(&x, f);
	ck_assert_int_gt(b.mtime.tv_sec, a.mtime.tv_sec);
	ck_assert_int_gt(b.ctime.tv_sec, a.ctime.tv_sec);
	ck_assert_uint_eq(b.mode, S_IFREG | 0755);
	ck_assert(!(b.flags & FS_ATTR_CAPS));
	ck_assert_int_eq(fs_getxattr(x.fs, f, caps, &value), -ENODATA);
	/* Set-group-id without the right to execute means locking, and stays. */
	in.mode = S_IFREG | S_ISGID | 0644;
	ck_ok(fs_setattr(x.fs, f, &in, FS_SET_MODE, &caller, &a));
	ck_ok(fs_write(x.fs, f, "3", 1, 0, FS_WRITE_KILL_PRIV));
	ck_assert_uint_eq(fixture_attr(&x, f).mode, in.mode);
	kv_buf_done(&value);
	fixture_done(&x);
}
UNIT_END

UNIT(fallocate_makes_longer_and_punches)
{
	const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct fixture x;
	uint64_t at;
	char got[8];
	size_t n;
	fs_ino f;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	ck_ok(fs_write(x.fs, f, "abcdefgh", 8, 0, 0));
	ck_ok(fs_fallocate(x.fs, f, FALLOC_FL_KEEP_SIZE, 0, 100000));
	ck_assert_uint_eq(fixture_attr(&x, f).size, 8);
	ck_ok(fs_fallocate(x.fs, f, 0, 0, 100000));
	ck_assert_uint_eq(fixture_attr(&x, f).size, 100000);
	ck_ok(fs_fallocate(x.fs, f, 0, 0, 10));
	ck_assert_uint_eq(fixture_attr(&x, f).size, 100000);
	ck_ok(fs_fallocate(x.fs, f, punch, 2, 3));
	ck_ok(fs_read(x.fs, f, got, 8, 0, &n));
	ck_assert_mem_eq(got, "ab\0\0\0fgh", 8);
	ck_ok(fs_fallocate(x.fs, f, FALLOC_FL_ZERO_RANGE, 6, 200000));
	ck_assert_uint_eq(fixture_attr(&x, f).size, 200006);
	ck_ok(fs_read(x.fs, f, got, 8, 0, &n));
	ck_assert_mem_eq(got, "ab\0\0\0f\0\0", 8);
	ck_ok(fs_fallocate(x.fs, f, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, 900000));
	ck_assert_uint_eq(fixture_attr(&x, f).size, 200006);
	ck_assert_uint_eq(fixture_attr(&x, f).extents, 0);
	ck_assert_int_eq(fs_lseek(x.fs, f, 0, SEEK_DATA, &at), -ENXIO);
	ck_ok(fs_lseek(x.fs, f, 17, SEEK_HOLE, &at));
	ck_assert_uint_eq(at, 17);
	ck_assert_int_eq(fs_lseek(x.fs, f, 0, SEEK_SET, &at), -EINVAL);
	ck_assert_int_eq(fs_fallocate(x.fs, f, FALLOC_FL_PUNCH_HOLE, 0, 1), -EOPNOTSUPP);
	ck_assert_int_eq(fs_fallocate(x.fs, f, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP);
	ck_assert_int_eq(fs_fallocate(x.fs, f, 0, 0, 0), -EINVAL);
	fixture_done(&x);
}
UNIT_END

UNIT(copy_range_ends_where_it_must)
{
	struct fixture x;
	char got[16];
	uint64_t done;
	size_t n;
	fs_ino f, g;

	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	g = fixture_file(&x, FS_INO_ROOT, "g");
	ck_ok(fs_write(x.fs, f, "0123456789", 10, 0, 0));
	ck_ok(fs_copy_range(x.fs, f, 4, g, 2, 100, &done));
	ck_assert_uint_eq(done, 6);
	ck_ok(fs_read(x.fs, g, got, 16, 0, &n));
	ck_assert_uint_eq(n, 8);
	ck_assert_mem_eq(got, "\0\000456789", 8);
	ck_ok(fs_copy_range(x.fs, f, 10, g, 2, 100, &done));
	ck_assert_uint_eq(done, 0);
	ck_assert_int_eq(fs_copy_range(x.fs, f, 0, f, 5, 6, &done), -EINVAL);
	ck_ok(fs_copy_range(x.fs, f, 0, f, 5, 5, &done));
	ck_assert_uint_eq(done, 5);
	ck_ok(fs_read(x.fs, f, got, 16, 0, &n));
	ck_assert_uint_eq(n, 10);
	ck_assert_mem_eq(got, "0123401234", 10);
	ck_assert_int_eq(fs_copy_range(x.fs, f, 0, FS_INO_ROOT, 0, 1, &done), -EISDIR);
	ck_assert_int_eq(fs_copy_range(x.fs, f, 0, g, FS_FILE_BYTES_MAX, 1, &done), -EFBIG);
	fixture_done(&x);
}
UNIT_END

/* --- against a plain array of bytes ------------------------------------------------------ */

#define MODEL_BYTES_MAX (5 * WINDOW)
#define MODEL_FILES 2

struct model {
	struct fixture x;
	unsigned seed;
	fs_ino ino[MODEL_FILES];
	uint64_t size[MODEL_FILES];
	uint8_t *bytes[MODEL_FILES];		/* zeros behind the size */
};

static uint64_t draw(struct model *m, uint64_t below)
{
	uint64_t n = (uint64_t)rand_r(&m->seed) << 31 ^ (uint64_t)rand_r(&m->seed);

	return n % below;
}

/* Small, around a block, or large; and now and then exactly at the end of a window. */
static void draw_range(struct model *m, uint64_t *begin, uint64_t *bytes)
{
	static const uint64_t scale[] = { 10, 5000, 40000, 3 * WINDOW };

	*begin = draw(m, MODEL_BYTES_MAX - 1);
	if (draw(m, 4) == 0)
		*begin = fs_window_floor(*begin);
	*bytes = 1 + draw(m, scale[draw(m, KV_ARRAY_LEN(scale))]);
	if (draw(m, 4) == 0)
		*bytes = KV_MAX(fs_window_ceil(*bytes), WINDOW);
	*bytes = KV_MIN(*bytes, MODEL_BYTES_MAX - *begin);
}

static void model_write(struct model *m, unsigned i)
{
	uint64_t begin, bytes;

	draw_range(m, &begin, &bytes);
	if (draw(m, 3) == 0)
		begin = KV_MIN(m->size[i], MODEL_BYTES_MAX - bytes); /* append */
	for (uint64_t k = 0, step = draw(m, 1000); k < bytes; k++)
		m->bytes[i][begin + k] = (uint8_t)((k * step + m->seed) >> 3 | 1);
	m->size[i] = KV_MAX(m->size[i], begin + bytes);
	ck_ok(fs_write(m->x.fs, m->ino[i], m->bytes[i] + begin, bytes, begin, 0));
}

static void model_punch(struct model *m, unsigned i)
{
	uint64_t begin, bytes;

	draw_range(m, &begin, &bytes);
	memset(m->bytes[i] + begin, 0, bytes);
	ck_ok(fs_fallocate(m->x.fs, m->ino[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin,
			   bytes));
}

static void model_truncate(struct model *m, unsigned i)
{
	uint64_t size = draw(m, 2) ? draw(m, m->size[i] + 1) : draw(m, MODEL_BYTES_MAX);

	memset(m->bytes[i] + size, 0, MODEL_BYTES_MAX - size);
	m->size[i] = size;
	fixture_truncate(&m->x, m->ino[i], size);
}

static void model_copy(struct model *m, unsigned i)
{
	unsigned to = (unsigned)draw(m, MODEL_FILES);
	uint64_t begin, bytes, to_begin, to_bytes, done;

	draw_range(m, &begin, &bytes);
	draw_range(m, &to_begin, &to_bytes);
	if (draw(m, 2))
		to_begin = to_begin - to_begin % WINDOW + begin % WINDOW;
	if (to_begin >= MODEL_BYTES_MAX)
		return;
	bytes = KV_MIN(bytes, MODEL_BYTES_MAX - to_begin);
	bytes = begin < m->size[i] ? KV_MIN(bytes, m->size[i] - begin) : 0;
	if (i == to && begin < to_begin + bytes && to_begin < begin + bytes)
		return;
	ck_ok(fs_copy_range(m->x.fs, m->ino[i], begin, m->ino[to], to_begin, bytes, &done));
	ck_assert_uint_eq(done, bytes);
	memcpy(m->bytes[to] + to_begin, m->bytes[i] + begin, bytes);
	if (bytes)
		m->size[to] = KV_MAX(m->size[to], to_begin + bytes);
}

/* The extents are as extent.h promises, and the attributes count them. */
static void model_check_extents(struct model *m, unsigned i)
{
	struct fs_attr attr = fixture_attr(&m->x, m->ino[i]);
	uint64_t from = 0, bytes = 0, extents = 0, in_window = 0;
	struct kv_iter *it;
	struct fs_piece p;

	ck_ok(fs_extent_iter(m->x.fs, m->ino[i], 0, UINT64_MAX, false, &it));
	for (; kv_iter_valid(it); kv_iter_next(it)) {
		ck_ok(fs_extent_at(m->x.fs, it, m->ino[i], from, &p));
		in_window = from && fs_window_floor(from - 1) == fs_window_floor(p.offset)
				    ? in_window + 1 : 1;
		ck_assert_uint_le(in_window, FS_WINDOW_EXTENTS_MAX);
		from = fs_piece_end(&p);
		bytes += p.bytes;
		extents++;
	}
	ck_ok(kv_iter_error(it));
	kv_iter_free(it);
	ck_assert_uint_le(from, attr.size);
	ck_assert_uint_eq(attr.bytes, bytes);
	ck_assert_uint_eq(attr.extents, extents);
	ck_assert_uint_eq(attr.size, m->size[i]);
}

/* Data begins and ends where seek says: all bytes outside of it are zeros. */
static void model_check_holes(struct model *m, unsigned i)
{
	static const uint8_t zeros[MODEL_BYTES_MAX];
	uint64_t at = 0, data, end;
	int err;

	while (at < m->size[i]) {
		err = fs_lseek(m->x.fs, m->ino[i], at, SEEK_DATA, &data);
		if (err == -ENXIO)
			data = m->size[i];
		else
			ck_ok(err);
		ck_assert_uint_le(data - at, sizeof(zeros));
		ck_assert(!memcmp(m->bytes[i] + at, zeros, data - at));
		if (err)
			break;
		ck_ok(fs_lseek(m->x.fs, m->ino[i], data, SEEK_HOLE, &end));
		ck_assert_uint_gt(end, data);
		at = end;
	}
}

static void model_check(struct model *m, unsigned i)
{
	static uint8_t got[MODEL_BYTES_MAX];
	uint64_t begin, bytes, want;
	size_t n;

	model_check_extents(m, i);
	draw_range(m, &begin, &bytes);
	want = begin < m->size[i] ? KV_MIN(bytes, m->size[i] - begin) : 0;
	ck_ok(fs_read(m->x.fs, m->ino[i], got, bytes, begin, &n));
	ck_assert_uint_eq(n, want);
	ck_assert(!n || !memcmp(got, m->bytes[i] + begin, n));
}

static void model_check_whole(struct model *m, unsigned i)
{
	uint8_t *got = malloc(MODEL_BYTES_MAX);
	size_t n;

	ck_assert_ptr_nonnull(got);
	ck_ok(fs_read(m->x.fs, m->ino[i], got, MODEL_BYTES_MAX, 0, &n));
	ck_assert_uint_eq(n, m->size[i]);
	ck_assert(!n || !memcmp(got, m->bytes[i], n));
	free(got);
	model_check_holes(m, i);
}

UNIT(random_changes_agree_with_a_model)
{
	static void (*const op[])(struct model *, unsigned) = {
		model_write, model_write, model_write, model_punch, model_truncate, model_copy,
	};
	const char *seed = getenv("SEED");
	struct model m = { .seed = seed ? (unsigned)strtoul(seed, NULL, 0) : (unsigned)getpid() };

	printf("SEED=%u\n", m.seed);
	fflush(stdout);
	fixture_init(&m.x);
	for (unsigned i = 0; i < MODEL_FILES; i++) {
		m.ino[i] = fixture_file(&m.x, FS_INO_ROOT, i ? "g" : "f");
		m.bytes[i] = calloc(1, MODEL_BYTES_MAX);
		ck_assert_ptr_nonnull(m.bytes[i]);
	}
	for (unsigned n = 1; n <= 900; n++) {
		unsigned i = (unsigned)draw(&m, MODEL_FILES);

		op[draw(&m, KV_ARRAY_LEN(op))](&m, i);
		model_check(&m, i);
		if (n % 100 == 0)
			for (unsigned k = 0; k < MODEL_FILES; k++)
				model_check_whole(&m, k);
		if (n % 200 == 0)
			ck_ok(kv_flush(fs_kv(m.x.fs)));
		if (n % 300 == 0) {
			fixture_unmount(&m.x);
			fixture_mount(&m.x);
		}
	}
	for (unsigned i = 0; i < MODEL_FILES; i++)
		free(m.bytes[i]);
	fixture_done(&m.x);
}
UNIT_END

/* Larger than any batch, and without a hole. */
UNIT(a_large_file_that_is_full_is_copied)
{
	const uint64_t n = FS_WRITE_BYTES_MAX, count = 100;
	uint8_t *b = malloc(n), *got = malloc(n);
	uint64_t done, at = 0;
	struct fixture x;
	size_t got_bytes;
	fs_ino f, g;

	ck_assert(b && got);
	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	g = fixture_file(&x, FS_INO_ROOT, "g");
	for (uint64_t i = 0; i < count; i++) {
		memset(b, (int)i, n);
		ck_ok(fs_write(x.fs, f, b, n, i * n, 0));
	}
	while (at < count * n) {
		ck_ok(fs_copy_range(x.fs, f, at, g, at, UINT64_MAX - at, &done));
		ck_assert_uint_gt(done, 0);
		at += done;
	}
	ck_assert_uint_eq(fixture_attr(&x, g).size, count * n);
	for (uint64_t i = 0; i < count; i++) {
		memset(b, (int)i, n);
		ck_ok(fs_read(x.fs, g, got, n, i * n, &got_bytes));
		ck_assert_uint_eq(got_bytes, n);
		ck_assert_mem_eq(got, b, n);
	}
	free(b);
	free(got);
	fixture_done(&x);
}
UNIT_END

UNIT(a_large_file_is_copied_in_several_calls)
{
	const uint64_t n = FS_WRITE_BYTES_MAX;
	uint8_t *b = malloc(n), *got = malloc(n);
	uint64_t done, at = 0;
	struct fixture x;
	size_t got_bytes;
	fs_ino f, g;

	ck_assert(b && got);
	fixture_init(&x);
	f = fixture_file(&x, FS_INO_ROOT, "f");
	g = fixture_file(&x, FS_INO_ROOT, "g");
	for (uint64_t i = 0; i < n; i++)
		b[i] = (uint8_t)(i * i >> 7);
	/* A hole between, longer than what one call copies. */
	ck_ok(fs_write(x.fs, f, b, n, 0, 0));
	ck_ok(fs_write(x.fs, f, b, n, 100 * n, 0));
	while (at < 101 * n) {
		ck_ok(fs_copy_range(x.fs, f, at, g, at, 101 * n - at, &done));
		ck_assert_uint_gt(done, 0);
		at += done;
	}
	ck_assert_uint_eq(fixture_attr(&x, g).size, 101 * n);
	ck_assert_uint_eq(fixture_attr(&x, g).bytes, 2 * n);
	/* Shared, and yet independent of each other. */
	fixture_truncate(&x, f, 0);
	ck_ok(fs_read(x.fs, g, got, n, 100 * n, &got_bytes));
	ck_assert_uint_eq(got_bytes, n);
	ck_assert(!memcmp(got, b, n));
	free(b);
	free(got);
	fixture_done(&x);
}
UNIT_END

UNIT_MAIN("fs_file", read_ends_at_the_end_of_the_file, only_regular_files_have_contents,
	  limits_of_a_write, a_write_changes_times_and_set_id_bits_as_asked,
	  fallocate_makes_longer_and_punches, copy_range_ends_where_it_must,
	  random_changes_agree_with_a_model, a_large_file_is_copied_in_several_calls,
	  a_large_file_that_is_full_is_copied)
