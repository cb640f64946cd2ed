#include "kv/kv.h"
#include "kv/sst_impl.h"
#include "tests/unit/tmpstore.h"

#define NUMBER 12
#define ENTRIES_MAX 4000

/* What a table holds, in order, and the table. */
struct model {
	struct tmpstore t;
	struct kv_cache *cache;
	struct kv_buf keys[ENTRIES_MAX], values[ENTRIES_MAX];
	size_t count;
	struct kv_rangedel rangedels[10];
	size_t rangedel_count;
	struct kv_sst_meta meta;
	struct kv_sst *sst;
	_Atomic uint64_t skips, hits, misses;
};

static struct model *model_new(void)
{
	struct model *m = calloc(1, sizeof(*m));

	tmpstore_init(&m->t);
	m->cache = kv_cache_new(KV_MIB);
	return m;
}

static void model_free(struct model *m)
{
	kv_sst_close(m->sst);
	kv_sst_meta_done(&m->meta);
	for (size_t i = 0; i < m->count; i++) {
		kv_buf_done(&m->keys[i]);
		kv_buf_done(&m->values[i]);
	}
	kv_cache_free(m->cache);
	tmpstore_done(&m->t);
	free(m);
}

static void model_add(struct model *m, const char *user_key, kv_seqno seqno, enum kv_kind kind,
		      struct kv_slice value)
{
	size_t i = m->count++;

	ck_assert_uint_lt(i, ENTRIES_MAX);
	ck_ok(kv_ikey_make(&m->keys[i], kv_slice_str(user_key), seqno, kind));
	ck_ok(kv_buf_assign(&m->values[i], value));
}

static void model_add_pointer(struct model *m, const char *user_key, kv_seqno seqno,
			      kv_fileno segment_no, uint32_t bytes)
{
	struct kv_vptr p = { .segment_no = segment_no, .offset = 64, .stored_bytes = bytes,
			     .raw_bytes = bytes, .part_bytes = bytes, .key_bytes = 5 };
	struct kv_vptr_disk d;

	kv_vptr_encode(&p, &d);
	model_add(m, user_key, seqno, KV_KIND_PUT_PTR, kv_slice(&d, sizeof(d)));
}

static struct kv_env_file *open_file(struct model *m)
{
	struct kv_env_file *f;

	ck_ok(kv_store_open_file(&m->t.store, KV_FILE_TABLE, NUMBER, &f));
	return f;
}

static void model_open(struct model *m)
{
	struct kv_sst_counters counters = { &m->skips, &m->hits, &m->misses };

	ck_ok(kv_sst_open(&m->t.store, m->cache, open_file(m), NUMBER, m->meta.file_bytes,
			  &counters, &m->sst));
}

static void model_build(struct model *m, uint32_t block_bytes, uint32_t bits, bool compress)
{
	struct kv_sst_options options = { block_bytes, bits, compress ? KV_CODEC_ZSTD : KV_CODEC_NONE };
	struct kv_sst_build *b;
	uint64_t bytes;
	int err = 0;

	ck_ok(kv_sst_build_new(&m->t.store, NUMBER, &options, &b));
	ck_assert(kv_sst_build_is_empty(b));
	for (size_t i = 0; i < m->count; i++)
		err |= kv_sst_build_add(b, kv_buf_slice(&m->keys[i]), kv_buf_slice(&m->values[i]));
	ck_ok(err);
	for (size_t i = 0; i < m->rangedel_count; i++)
		ck_ok(kv_sst_build_add_rangedel(b, &m->rangedels[i]));
	ck_assert(!kv_sst_build_is_empty(b));
	bytes = kv_sst_build_bytes(b);
	ck_ok(kv_sst_build_finish(b, &m->meta));
	ck_assert_uint_lt(m->meta.file_bytes, bytes + 2000);
	kv_sst_build_free(b);
}

/* --- everything that can be asked ------------------------------------------------------------- */

static bool get_is_right(struct model *m, struct kv_slice user_key, kv_seqno snapshot)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	struct kv_found found = { 0 };
	kv_seqno covered = 0, covers = 0;
	size_t i = 0;
	bool right;

	while (i < m->count && (!kv_slice_eq(kv_ikey_user(kv_buf_slice(&m->keys[i])), user_key) ||
				kv_ikey_seqno(kv_buf_slice(&m->keys[i])) > snapshot))
		i++;
	for (size_t r = 0; r < m->rangedel_count; r++)
		if (kv_slice_cmp(m->rangedels[r].begin, user_key) <= 0 &&
		    kv_slice_cmp(user_key, m->rangedels[r].end) < 0 &&
		    m->rangedels[r].seqno <= snapshot)
			covers = KV_MAX(covers, m->rangedels[r].seqno);
	if (kv_sst_get(m->sst, user_key, snapshot, &found, &covered, &pin))
		return false;
	right = covered == covers && found.found == (i < m->count);
	if (right && found.found)
		right = pin.entry && found.kind == kv_ikey_kind(kv_buf_slice(&m->keys[i])) &&
			found.seqno == kv_ikey_seqno(kv_buf_slice(&m->keys[i])) &&
			kv_slice_eq(found.value, kv_buf_slice(&m->values[i]));
	return right;
}

static bool is_at(const struct model *m, const struct kv_cursor *c, size_t i)
{
	if (c->ops->error(c))
		return false;
	if (i >= m->count)
		return !c->ops->valid(c);
	return c->ops->valid(c) && kv_slice_eq(c->ops->key(c), kv_buf_slice(&m->keys[i])) &&
	       kv_slice_eq(c->ops->value(c), kv_buf_slice(&m->values[i]));
}

static bool walks_are_right(struct model *m, bool fill, bool sequential)
{
	struct kv_cursor *c = kv_sst_cursor(m->sst, fill, sequential);
	bool right = !c->ops->valid(c);

	c->ops->seek_first(c);
	for (size_t i = 0; right && i < m->count; i++) {
		right = is_at(m, c, i);
		if (right)
			c->ops->next(c);
	}
	right = right && is_at(m, c, m->count);
	c->ops->seek_last(c);
	for (size_t i = m->count; right && i-- > 0;) {
		right = is_at(m, c, i);
		if (right)
			c->ops->prev(c);
	}
	right = right && is_at(m, c, m->count);
	kv_cursor_free(c);
	return right;
}

static bool seeks_are_right(struct model *m)
{
	KV_AUTO(kv_buf_done) struct kv_buf around = KV_BUF_INIT;
	struct kv_cursor *c = kv_sst_cursor(m->sst, true, false);
	bool right = true;

	for (size_t i = 0; right && i < m->count; i++) {
		struct kv_slice key = kv_buf_slice(&m->keys[i]), user = kv_ikey_user(key);

		c->ops->seek(c, key);
		right = is_at(m, c, i);
		c->ops->seek_prev(c, key);
		right = right && is_at(m, c, i);
		ck_ok(kv_ikey_make(&around, user, kv_ikey_seqno(key) - 1, KV_KIND_MAX));
		c->ops->seek(c, kv_buf_slice(&around));
		right = right && is_at(m, c, i + 1);
		c->ops->seek_prev(c, kv_buf_slice(&around));
		right = right && is_at(m, c, i);
		ck_ok(kv_ikey_make(&around, user, kv_ikey_seqno(key) + 1, KV_KIND_DELETE));
		c->ops->seek(c, kv_buf_slice(&around));
		right = right && is_at(m, c, i);
		c->ops->seek_prev(c, kv_buf_slice(&around));
		right = right && is_at(m, c, i ? i - 1 : m->count);
	}
	kv_cursor_free(c);
	return right;
}

static void model_fill(struct model *m, size_t users)
{
	char key[32], value[200];

	for (size_t u = 0; u < users; u++) {
		snprintf(key, sizeof(key), "key%06zu", u * 3);
		for (size_t v = u % 3 + 1; v-- > 0;) {
			kv_seqno seqno = 100 + v * 50 + u % 40;

			if (u % 10 == 5)
				model_add(m, key, seqno, KV_KIND_DELETE, kv_slice("", 0));
			else if (u % 10 == 7)
				model_add_pointer(m, key, seqno, 30 + (u + 2 * v) % 3, 2000);
			else
				model_add(m, key, seqno, KV_KIND_PUT,
					  kv_slice(value, (size_t)snprintf(value, sizeof(value),
							  "value %zu of key %zu%*s", v, u,
							  (int)(u % 90), "")));
		}
	}
}

static void model_check(struct model *m, size_t users)
{
	static const kv_seqno snapshots[] = { 0, 99, 110, 139, 140, 160, 210, 1000, KV_SEQNO_MAX };
	char key[32];
	bool right = true;

	ck_ok(kv_sst_check(m->sst));
	ck_assert(kv_sst_meta_eq(kv_sst_meta(m->sst), &m->meta));
	for (size_t k = 0; right && k < users * 3; k += 1 + (k > 60) * 7) {
		snprintf(key, sizeof(key), "key%06zu", k);
		for (size_t s = 0; right && s < KV_ARRAY_LEN(snapshots); s++)
			right = get_is_right(m, kv_slice_str(key), snapshots[s]);
	}
	ck_assert(right);
	ck_assert(get_is_right(m, kv_slice_str(""), 1000));
	ck_assert(get_is_right(m, kv_slice_str("zzz"), 1000));
	ck_assert(walks_are_right(m, true, false));
	ck_assert(walks_are_right(m, false, true));
	ck_assert(seeks_are_right(m));
	ck_assert_uint_eq(m->t.message_count, 0);
}

UNIT(a_table_gives_back_what_it_was_given)
{
	static const struct { uint32_t block_bytes, bits; bool compress; size_t users; } cases[] = {
		{ 256, 10, true, 1000 }, { 8192, 10, true, 1500 }, { 1024, 0, false, 700 },
		{ 1, 10, false, 40 }, { 1 << 20, 6, true, 900 }, { 4096, 10, true, 1 },
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++) {
		struct model *m = model_new();

		model_fill(m, cases[i].users);
		model_build(m, cases[i].block_bytes, cases[i].bits, cases[i].compress);
		model_open(m);
		ck_assert_uint_eq(m->meta.entries, m->count);
		model_check(m, cases[i].users);
		ck_assert((m->skips > 0) == (cases[i].bits > 0));
		ck_assert_uint_gt(m->hits, 0);
		ck_assert_uint_gt(m->misses, 0);
		model_free(m);
	}
}
UNIT_END

UNIT(versions_of_one_key_span_blocks)
{
	struct model *m = model_new();

	model_add(m, "a", 1, KV_KIND_PUT, kv_slice_str("before"));
	for (kv_seqno s = 1000; s > 0; s--)
		model_add(m, "b", s * 2, KV_KIND_PUT, kv_slice_str("some value that fills blocks"));
	model_add(m, "c", 1, KV_KIND_PUT, kv_slice_str("behind"));
	model_build(m, 128, 10, true);
	model_open(m);
	ck_ok(kv_sst_check(m->sst));
	for (kv_seqno s = 0; s < 2010; s += 7)
		ck_assert(get_is_right(m, kv_slice_str("b"), s));
	ck_assert(get_is_right(m, kv_slice_str("a"), 5));
	ck_assert(get_is_right(m, kv_slice_str("c"), 5));
	ck_assert(walks_are_right(m, true, true));
	model_free(m);
}
UNIT_END

static void add_rangedel(struct model *m, const char *begin, const char *end, kv_seqno seqno)
{
	m->rangedels[m->rangedel_count++] =
		(struct kv_rangedel){ kv_slice_str(begin), kv_slice_str(end), seqno };
}

UNIT(range_tombstones_are_kept)
{
	struct model *m = model_new();

	model_fill(m, 300);
	add_rangedel(m, "key000010", "key000200", 120);
	add_rangedel(m, "key000100", "key000300", 130);
	add_rangedel(m, "key000100", "key000110", 125);
	add_rangedel(m, "same", "same", 990);
	m->rangedel_count--; /* empty: as if it had not been added */
	model_build(m, 512, 10, true);
	ck_assert_uint_eq(m->meta.range_deletes, 3);
	model_open(m);
	ck_assert_ptr_nonnull(kv_sst_rangedels(m->sst));
	model_check(m, 300);
	model_free(m);
}
UNIT_END

UNIT(a_table_may_hold_only_range_tombstones)
{
	KV_AUTO(kv_buf_done) struct kv_buf bound = KV_BUF_INIT;
	struct model *m = model_new();

	add_rangedel(m, "d", "m", 50);
	add_rangedel(m, "f", "z", 40);
	model_build(m, 512, 10, true);
	ck_assert_uint_eq(m->meta.entries, 0);
	ck_assert_uint_eq(m->meta.range_deletes, 2);
	ck_assert_uint_eq(m->meta.seqno_min, 40);
	ck_assert_uint_eq(m->meta.seqno_max, 50);
	ck_ok(kv_ikey_make(&bound, kv_slice_str("d"), 50, KV_KIND_DELETE_RANGE));
	ck_assert(kv_slice_eq(kv_buf_slice(&bound), kv_buf_slice(&m->meta.smallest)));
	ck_ok(kv_ikey_make(&bound, kv_slice_str("z"), KV_SEQNO_MAX, KV_KIND_DELETE_RANGE));
	ck_assert(kv_slice_eq(kv_buf_slice(&bound), kv_buf_slice(&m->meta.largest)));
	model_open(m);
	ck_ok(kv_sst_check(m->sst));
	ck_assert(get_is_right(m, kv_slice_str("e"), 100));
	ck_assert(get_is_right(m, kv_slice_str("g"), 45));
	ck_assert(get_is_right(m, kv_slice_str("z"), 100));
	ck_assert(walks_are_right(m, true, false));
	model_free(m);
}
UNIT_END

UNIT(the_meta_tells_what_is_inside)
{
	struct model *m = model_new();
	struct kv_sst_meta copy;

	model_add(m, "a", 30, KV_KIND_DELETE, kv_slice("", 0));
	model_add_pointer(m, "b", 20, 9, 1000);
	model_add_pointer(m, "c", 21, 4, 1000);
	model_add_pointer(m, "d", 25, 9, 3);
	model_add(m, "e", 22, KV_KIND_PUT, kv_slice_str("12345"));
	model_build(m, 4096, 10, true);
	ck_assert_uint_eq(m->meta.number, NUMBER);
	ck_assert_uint_eq(m->meta.entries, 5);
	ck_assert_uint_eq(m->meta.deletes, 1);
	ck_assert_uint_eq(m->meta.seqno_min, 20);
	ck_assert_uint_eq(m->meta.seqno_max, 30);
	ck_assert_uint_eq(m->meta.raw_bytes, 5 * 9 + 3 * 48 + 5);
	ck_assert_uint_eq(m->meta.ref_count, 2);
	ck_assert_uint_eq(m->meta.refs[0].segment_no, 4);
	ck_assert_uint_eq(m->meta.refs[0].bytes, 1056);
	ck_assert_uint_eq(m->meta.refs[1].segment_no, 9);
	ck_assert_uint_eq(m->meta.refs[1].bytes, 1056 + 56);
	ck_assert(kv_slice_eq(kv_buf_slice(&m->meta.smallest), kv_buf_slice(&m->keys[0])));
	ck_assert(kv_slice_eq(kv_buf_slice(&m->meta.largest), kv_buf_slice(&m->keys[4])));
	ck_ok(kv_sst_meta_copy(&copy, &m->meta));
	ck_assert(kv_sst_meta_eq(&copy, &m->meta));
	copy.refs[1].bytes++;
	ck_assert(!kv_sst_meta_eq(&copy, &m->meta));
	kv_sst_meta_done(&copy);
	kv_sst_meta_done(&copy);
	model_free(m);
}
UNIT_END

UNIT(many_segments_are_counted_apart)
{
	struct model *m = model_new();
	char key[16];

	for (size_t i = 0; i < 500; i++) {
		snprintf(key, sizeof(key), "%06zu", i);
		model_add_pointer(m, key, 1, 1 + i * 37 % 100, 500);
	}
	model_build(m, 4096, 10, true);
	ck_assert_uint_eq(m->meta.ref_count, 100);
	for (size_t i = 0; i < 100; i++) {
		ck_assert_uint_eq(m->meta.refs[i].segment_no, i + 1);
		ck_assert_uint_eq(m->meta.refs[i].bytes, 5 * 560);
	}
	model_open(m);
	ck_ok(kv_sst_check(m->sst));
	model_free(m);
}
UNIT_END

UNIT(scans_may_leave_the_cache_alone)
{
	struct model *m = model_new();
	uint64_t bytes;

	model_fill(m, 1000);
	model_build(m, 1024, 10, false);
	model_open(m);
	ck_assert(get_is_right(m, kv_slice_str("key000000"), 1000));
	bytes = kv_cache_bytes(m->cache);
	ck_assert(walks_are_right(m, false, true));
	ck_assert_uint_eq(kv_cache_bytes(m->cache), bytes);
	ck_ok(kv_sst_check(m->sst));
	ck_assert_uint_eq(kv_cache_bytes(m->cache), bytes);
	ck_assert(walks_are_right(m, true, true));
	ck_assert_uint_gt(kv_cache_bytes(m->cache), bytes);
	model_free(m);
}
UNIT_END

/* --- failures while building ------------------------------------------------------------------ */

static int fail_write(struct kv_env_file *f, struct iovec *iov, int iov_count, uint64_t offset)
{
	(void)f, (void)iov, (void)iov_count, (void)offset;
	return -ENOSPC;
}

static int fail_sync(struct kv_env_file *f)
{
	(void)f;
	return -EIO;
}

static bool file_is_there(struct model *m)
{
	struct kv_env_file *f;

	if (m->t.ops.open(m->t.store.dir, kv_filename(KV_FILE_TABLE, NUMBER).s, KV_ENV_READ, &f))
		return false;
	m->t.ops.close(f);
	return true;
}

UNIT(what_was_not_finished_is_removed)
{
	struct kv_sst_options options = { 4096, 10, true };
	struct model *m = model_new();
	struct kv_sst_build *b;

	model_fill(m, 10);
	for (int round = 0; round < 3; round++) {
		ck_ok(kv_sst_build_new(&m->t.store, NUMBER, &options, &b));
		ck_ok(kv_sst_build_add(b, kv_buf_slice(&m->keys[0]), kv_buf_slice(&m->values[0])));
		if (round == 1) {
			m->t.ops.pwritev = fail_write;
			ck_assert_int_eq(kv_sst_build_finish(b, &m->meta), -ENOSPC);
		} else if (round == 2) {
			m->t.ops.sync = fail_sync;
			ck_assert_int_eq(kv_sst_build_finish(b, &m->meta), -EIO);
		}
		m->t.ops = *tmpstore_system();
		ck_assert_uint_eq(m->meta.entries, 0);
		ck_assert(file_is_there(m));
		kv_sst_build_free(b);
		ck_assert(!file_is_there(m));
	}
	ck_assert_uint_eq(m->t.message_count, 2);
	model_free(m);
}
UNIT_END

UNIT(a_value_that_is_no_pointer_is_refused)
{
	struct kv_sst_options options = { 4096, 10, true };
	struct model *m = model_new();
	struct kv_sst_build *b;

	model_add(m, "a", 1, KV_KIND_PUT_PTR, kv_slice_str("nonsense"));
	ck_ok(kv_sst_build_new(&m->t.store, NUMBER, &options, &b));
	ck_assert_int_eq(kv_sst_build_add(b, kv_buf_slice(&m->keys[0]),
					  kv_buf_slice(&m->values[0])), KV_E_bad_record);
	kv_sst_build_free(b);
	model_free(m);
}
UNIT_END

/* --- damage ----------------------------------------------------------------------------------- */

/* Asks for everything; true when all answers are right or an error of damage. */
static bool answers_are_sound(struct model *m, uint64_t *errors)
{
	struct kv_cursor *c;
	bool sound = true;
	size_t i = 0;
	int err;

	for (size_t k = 0; k < m->count; k++) {
		struct kv_slice key = kv_buf_slice(&m->keys[k]);
		KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
		struct kv_found found = { 0 };
		kv_seqno covered = 0;

		err = kv_sst_get(m->sst, kv_ikey_user(key), kv_ikey_seqno(key), &found, &covered,
				 &pin);
		*errors += err != 0;
		sound = sound && (err ? kv_err_is(err, KV_E_corrupt)
				      : found.found && found.seqno == kv_ikey_seqno(key) &&
						kv_slice_eq(found.value,
							    kv_buf_slice(&m->values[k])));
	}
	c = kv_sst_cursor(m->sst, true, false);
	for (c->ops->seek_first(c); sound && c->ops->valid(c); c->ops->next(c))
		sound = is_at(m, c, i++);
	err = c->ops->error(c);
	*errors += err != 0;
	sound = sound && (err ? kv_err_is(err, KV_E_corrupt) : i == m->count);
	kv_cursor_free(c);
	return sound;
}

/* Opens the file as it is now, asks, checks; errors counts what was noticed. */
static bool open_is_sound(struct model *m, uint64_t file_bytes, uint64_t *errors)
{
	struct kv_env_file *f;
	bool sound = true;
	int err;

	kv_cache_drop_file(m->cache, NUMBER);
	err = kv_store_open_file(&m->t.store, KV_FILE_TABLE, NUMBER, &f);
	if (!err) {
		err = kv_sst_open(&m->t.store, m->cache, f, NUMBER, file_bytes, NULL, &m->sst);
		if (err)
			m->t.ops.close(f);
	}
	*errors += err != 0;
	if (err)
		return kv_err_is(err, KV_E_corrupt);
	sound = answers_are_sound(m, errors);
	err = kv_sst_check(m->sst);
	*errors += err != 0;
	sound = sound && (!err || kv_err_is(err, KV_E_corrupt));
	kv_sst_close(m->sst);
	m->sst = NULL;
	return sound;
}

static struct model *small_table(bool compress)
{
	struct model *m = model_new();

	model_fill(m, 24);
	add_rangedel(m, "key000010", "key000040", 120);
	add_rangedel(m, "key000020", "key000060", 130);
	model_build(m, 300, 10, compress);
	return m;
}

static void flip_each_byte(bool compress)
{
	struct model *m = small_table(compress);
	struct kv_buf file = tmpstore_load(&m->t, kv_filename(KV_FILE_TABLE, NUMBER).s);
	uint64_t errors = 0;

	ck_assert_uint_eq(file.bytes, m->meta.file_bytes);
	ck_assert(open_is_sound(m, file.bytes, &errors));
	ck_assert_uint_eq(errors, 0);
	for (size_t i = 0; i < file.bytes; i++) {
		errors = 0;
		file.data[i] ^= (uint8_t)(1 << i % 8);
		tmpstore_save(&m->t, kv_filename(KV_FILE_TABLE, NUMBER).s, kv_buf_slice(&file));
		if (!open_is_sound(m, file.bytes, &errors) || !errors)
			ck_abort_msg("byte %zu: not sound, or not noticed", i);
		file.data[i] ^= (uint8_t)(1 << i % 8);
	}
	ck_assert_uint_gt(m->t.message_count, 0);
	ck_assert_ptr_nonnull(strstr(m->t.message, "000012.sst"));
	kv_buf_done(&file);
	model_free(m);
}

UNIT(flipped_bytes_are_noticed)
{
	flip_each_byte(false);
	flip_each_byte(true);
}
UNIT_END

UNIT(cut_files_are_noticed)
{
	struct model *m = small_table(true);
	struct kv_buf file = tmpstore_load(&m->t, kv_filename(KV_FILE_TABLE, NUMBER).s);
	uint64_t errors;

	for (size_t cut = 0; cut < file.bytes; cut++) {
		tmpstore_save(&m->t, kv_filename(KV_FILE_TABLE, NUMBER).s, kv_slice(file.data, cut));
		errors = 0;
		ck_assert(open_is_sound(m, file.bytes, &errors) && errors == 1);
		errors = 0;
		ck_assert(open_is_sound(m, cut, &errors) && errors == 1);
	}
	kv_buf_done(&file);
	model_free(m);
}
UNIT_END

static void sum_again(struct kv_buf *file, struct kv_block_handle h)
{
	uint8_t *at = file->data + h.offset;
	struct kv_block_trailer trailer;

	memcpy(&trailer, at + h.stored_bytes, sizeof(trailer));
	trailer.checksum = kv_le64(kv_block_sum(NUMBER, h.offset, kv_slice(at, h.stored_bytes),
						&trailer));
	memcpy(at + h.stored_bytes, &trailer, sizeof(trailer));
}

/* Bytes that somebody made up, with checksums that match: answers may be wrong, but come. */
static void make_up(struct model *m, struct kv_buf *file, struct kv_block_handle h)
{
	static const uint8_t flips[] = { 0x01, 0x80, 0xff };
	uint64_t errors;

	if (!h.stored_bytes)
		return;
	for (size_t i = 0; i < h.stored_bytes + sizeof(struct kv_block_trailer); i++)
		for (size_t f = 0; f < KV_ARRAY_LEN(flips); f++) {
			struct kv_buf copy = KV_BUF_INIT;

			ck_ok(kv_buf_assign(&copy, kv_buf_slice(file)));
			copy.data[h.offset + i] ^= flips[f];
			sum_again(&copy, h);
			tmpstore_save(&m->t, kv_filename(KV_FILE_TABLE, NUMBER).s,
				      kv_buf_slice(&copy));
			errors = 0;
			(void)open_is_sound(m, file->bytes, &errors);
			kv_buf_done(&copy);
		}
}

UNIT(bytes_behind_a_right_checksum_are_survived)
{
	struct model *m = small_table(false);
	struct kv_buf file = tmpstore_load(&m->t, kv_filename(KV_FILE_TABLE, NUMBER).s);
	struct kv_block_handle h[4];

	model_open(m);
	h[0] = m->sst->index;
	h[1] = m->sst->filter;
	h[2] = m->sst->range_deletes;
	h[3] = m->sst->properties;
	kv_sst_close(m->sst);
	m->sst = NULL;
	for (size_t i = 0; i < KV_ARRAY_LEN(h); i++)
		make_up(m, &file, h[i]);
	/* And the footer. */
	for (size_t i = 0; i < offsetof(struct kv_table_footer, checksum); i++) {
		struct kv_buf copy = KV_BUF_INIT;
		struct kv_table_footer f;
		uint64_t errors = 0;

		ck_ok(kv_buf_assign(&copy, kv_buf_slice(&file)));
		copy.data[copy.bytes - sizeof(f) + i] ^= 0x11;
		memcpy(&f, copy.data + copy.bytes - sizeof(f), sizeof(f));
		f.checksum = kv_le64(kv_table_footer_sum(&f));
		memcpy(copy.data + copy.bytes - sizeof(f), &f, sizeof(f));
		tmpstore_save(&m->t, kv_filename(KV_FILE_TABLE, NUMBER).s, kv_buf_slice(&copy));
		(void)open_is_sound(m, file.bytes, &errors);
		kv_buf_done(&copy);
	}
	kv_buf_done(&file);
	model_free(m);
}
UNIT_END

UNIT(a_block_elsewhere_is_not_taken)
{
	struct model *m = model_new();
	struct kv_buf file;
	uint64_t errors = 0;
	size_t block;

	/* Two blocks of one size, with their trailers exchanged for each other whole. */
	model_add(m, "a", 1, KV_KIND_PUT, kv_slice_str("x"));
	model_add(m, "b", 1, KV_KIND_PUT, kv_slice_str("y"));
	model_build(m, 1, 0, false);
	file = tmpstore_load(&m->t, kv_filename(KV_FILE_TABLE, NUMBER).s);
	block = 3 + 9 + 1 + 8 + sizeof(struct kv_block_trailer);
	for (size_t i = 64; i < 64 + block; i++) {
		uint8_t was = file.data[i];

		file.data[i] = file.data[i + block];
		file.data[i + block] = was;
	}
	tmpstore_save(&m->t, kv_filename(KV_FILE_TABLE, NUMBER).s, kv_buf_slice(&file));
	ck_assert(open_is_sound(m, file.bytes, &errors));
	ck_assert_uint_eq(errors, 4);
	kv_buf_done(&file);
	model_free(m);
}
UNIT_END

UNIT_MAIN("sst", a_table_gives_back_what_it_was_given, versions_of_one_key_span_blocks,
	  range_tombstones_are_kept, a_table_may_hold_only_range_tombstones,
	  the_meta_tells_what_is_inside, many_segments_are_counted_apart,
	  scans_may_leave_the_cache_alone, what_was_not_finished_is_removed,
	  a_value_that_is_no_pointer_is_refused, flipped_bytes_are_noticed, cut_files_are_noticed,
	  bytes_behind_a_right_checksum_are_survived, a_block_elsewhere_is_not_taken)
