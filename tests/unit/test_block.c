#include "kv/block.h"
#include "tests/unit/tmpstore.h"

#define ENTRIES_MAX 300

/* Sorted entries, and a block made of them. */
struct block {
	struct kv_buf keys[ENTRIES_MAX];
	struct kv_buf values[ENTRIES_MAX];
	size_t count;
	struct kv_block_builder builder;
	struct kv_slice bytes;
	uint8_t *kept;			/* the same with heads */
	struct kv_block view;		/* of the one or the other */
};

/* Every third user key has two versions; lengths vary so that lengths of two bytes are met. */
static void block_make(struct block *b, size_t count, uint32_t restart_interval)
{
	struct kv_buf user = KV_BUF_INIT;

	memset(b, 0, sizeof(*b));
	b->count = count;
	kv_block_builder_init(&b->builder, restart_interval);
	for (size_t i = 0; i < count; i++) {
		bool second = i % 4 == 3;
		kv_seqno seqno = second ? 10 : 20 + i;

		kv_buf_reset(&user);
		ck_ok(kv_buf_printf(&user, "key%06zu", (i - second) * 10));
		if (i % 7 == 0 && !second && (i + 1) % 4 != 3)
			for (int k = 0; k < 20; k++)
				ck_ok(kv_buf_append(&user, "0123456789", 10));
		ck_ok(kv_ikey_make(&b->keys[i], kv_buf_slice(&user), seqno, KV_KIND_PUT));
		ck_ok(kv_buf_printf(&b->values[i], "value of %zu", i));
		if (i % 11 == 0)
			for (int k = 0; k < 30; k++)
				ck_ok(kv_buf_append(&b->values[i], "0123456789", 10));
		ck_ok(kv_block_add(&b->builder, kv_buf_slice(&b->keys[i]),
				   kv_buf_slice(&b->values[i])));
	}
	ck_assert_uint_eq(b->builder.count, count);
	ck_ok(kv_block_finish(&b->builder, &b->bytes));
	b->view = kv_block_plain(b->bytes);
	kv_buf_done(&user);
}

/* From here on it is searched by its heads. */
static void block_use_heads(struct block *b)
{
	size_t bytes = b->bytes.bytes;

	b->kept = malloc(bytes);
	ck_assert_ptr_nonnull(b->kept);
	memcpy(b->kept, b->bytes.data, bytes);
	ck_ok(kv_block_add_heads(&b->kept, &bytes));
	b->view = kv_block_with_heads(kv_slice(b->kept, bytes));
	ck_assert(kv_slice_eq(b->view.bytes, b->bytes));
	ck_assert_int_eq(b->view.heads != NULL, b->count > 0);
}

static void block_done(struct block *b)
{
	free(b->kept);
	for (size_t i = 0; i < b->count; i++) {
		kv_buf_done(&b->keys[i]);
		kv_buf_done(&b->values[i]);
	}
	kv_block_builder_done(&b->builder);
}

static bool is_at(const struct block *b, const struct kv_block_cursor *c, size_t i)
{
	const struct kv_cursor_ops *ops = c->cursor.ops;

	if (i >= b->count)
		return !ops->valid(&c->cursor) && !ops->error(&c->cursor);
	return ops->valid(&c->cursor) && !ops->error(&c->cursor) &&
	       kv_slice_eq(ops->key(&c->cursor), kv_buf_slice(&b->keys[i])) &&
	       kv_slice_eq(ops->value(&c->cursor), kv_buf_slice(&b->values[i]));
}

static void walk_both_ways(const struct block *b)
{
	struct kv_block_cursor c;
	const struct kv_cursor_ops *ops;

	kv_block_cursor_init(&c);
	ops = c.cursor.ops;
	ck_ok(kv_block_cursor_set(&c, &b->view));
	ck_assert(!ops->valid(&c.cursor));
	ops->seek_first(&c.cursor);
	for (size_t i = 0; i < b->count; i++) {
		ck_assert(is_at(b, &c, i));
		ops->next(&c.cursor);
	}
	ck_assert(is_at(b, &c, b->count));
	ops->seek_last(&c.cursor);
	for (size_t i = b->count; i-- > 0;) {
		ck_assert(is_at(b, &c, i));
		ops->prev(&c.cursor);
	}
	ck_assert(is_at(b, &c, b->count));
	kv_block_cursor_done(&c);
}

UNIT(walks_give_all_entries)
{
	static const size_t counts[] = { 0, 1, 2, 15, 16, 17, 32, 33, 300 };
	static const uint32_t intervals[] = { 1, 2, 16, 1000 };

	for (size_t n = 0; n < KV_ARRAY_LEN(counts); n++)
		for (size_t r = 0; r < KV_ARRAY_LEN(intervals); r++) {
			struct block b;

			block_make(&b, counts[n], intervals[r]);
			walk_both_ways(&b);
			block_done(&b);
		}
}
UNIT_END

/* Looked up from the block, it is entry i, or none if there is no such entry. */
static bool finds(const struct block *b, struct kv_slice ikey, size_t i)
{
	struct kv_block_found f;

	if (kv_block_find(&b->view, kv_ikey_user(ikey), kv_ikey_trailer(ikey), &f))
		return false;
	if (i >= b->count)
		return !f.found;
	return f.found && kv_slice_eq(f.value, kv_buf_slice(&b->values[i])) &&
	       f.trailer == kv_ikey_trailer(kv_buf_slice(&b->keys[i])) &&
	       f.same_user_key == kv_slice_eq(kv_ikey_user(ikey),
					      kv_ikey_user(kv_buf_slice(&b->keys[i])));
}

static void seek_everything(const struct block *b)
{
	KV_AUTO(kv_buf_done) struct kv_buf before = KV_BUF_INIT, after = KV_BUF_INIT;
	struct kv_block_cursor c;
	const struct kv_cursor_ops *ops;

	kv_block_cursor_init(&c);
	ops = c.cursor.ops;
	ck_ok(kv_block_cursor_set(&c, &b->view));
	for (size_t i = 0; i < b->count; i++) {
		struct kv_slice key = kv_buf_slice(&b->keys[i]), user = kv_ikey_user(key);

		ck_ok(kv_ikey_make(&before, user, kv_ikey_seqno(key) + 1, KV_KIND_DELETE));
		ck_ok(kv_ikey_make(&after, user, kv_ikey_seqno(key) - 1, KV_KIND_MAX));
		ck_assert(finds(b, key, i));
		ck_assert(finds(b, kv_buf_slice(&before), i));
		ck_assert(finds(b, kv_buf_slice(&after), i + 1));
		ops->seek(&c.cursor, key);
		ck_assert(is_at(b, &c, i));
		if (i) {
			ops->prev(&c.cursor);
			ck_assert(is_at(b, &c, i - 1));
			ops->next(&c.cursor);
			ck_assert(is_at(b, &c, i));
		}
		ops->seek(&c.cursor, kv_buf_slice(&before));
		ck_assert(is_at(b, &c, i));
		ops->seek(&c.cursor, kv_buf_slice(&after));
		ck_assert(is_at(b, &c, i + 1));
		ops->seek_prev(&c.cursor, key);
		ck_assert(is_at(b, &c, i));
		ops->seek_prev(&c.cursor, kv_buf_slice(&after));
		ck_assert(is_at(b, &c, i));
		ops->seek_prev(&c.cursor, kv_buf_slice(&before));
		ck_assert(is_at(b, &c, i ? i - 1 : b->count));
	}
	kv_block_cursor_done(&c);
}

UNIT(seeks_find_the_neighbours)
{
	static const uint32_t intervals[] = { 1, 3, 16, 1000 };

	for (size_t r = 0; r < KV_ARRAY_LEN(intervals); r++) {
		struct block b;

		block_make(&b, 200, intervals[r]);
		seek_everything(&b);
		block_use_heads(&b);
		seek_everything(&b);
		block_done(&b);
	}
}
UNIT_END

/* Keys that are their own prefix, and such as differ behind the head only, or in nothing but the version. */
UNIT(heads_that_are_alike)
{
	static const char *const users[] = { "", "a", "ab", "abcd", "abcdefghi", "abcdefghj", "b" };
	struct block b;

	memset(&b, 0, sizeof(b));
	kv_block_builder_init(&b.builder, 1);
	for (size_t i = 0; i < 2 * KV_ARRAY_LEN(users); i++) {
		ck_ok(kv_ikey_make(&b.keys[i], kv_slice_str(users[i / 2]), 100 - 50 * (i % 2),
				   KV_KIND_PUT));
		ck_ok(kv_buf_printf(&b.values[i], "value of %zu", i));
		ck_ok(kv_block_add(&b.builder, kv_buf_slice(&b.keys[i]),
				   kv_buf_slice(&b.values[i])));
		b.count++;
	}
	ck_ok(kv_block_finish(&b.builder, &b.bytes));
	block_use_heads(&b);
	seek_everything(&b);
	block_done(&b);
}
UNIT_END

/* What lies before or behind the prefix of all keys, or ends within it. */
UNIT(keys_without_the_prefix)
{
	static const struct {
		const char *user;
		size_t at;
	} cases[] = { { "", 0 }, { "ke", 0 }, { "kex", 0 }, { "key", 0 }, { "kez", 40 }, { "l", 40 } };
	KV_AUTO(kv_buf_done) struct kv_buf key = KV_BUF_INIT;
	struct block b;

	block_make(&b, 40, 4);
	block_use_heads(&b);
	ck_assert_uint_ge(b.view.prefix.bytes, 3);
	for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++) {
		ck_ok(kv_ikey_make(&key, kv_slice_str(cases[i].user), 50, KV_KIND_MAX));
		ck_assert_msg(finds(&b, kv_buf_slice(&key), cases[i].at), "%s", cases[i].user);
	}
	block_done(&b);
}
UNIT_END

UNIT(the_size_is_known_before)
{
	struct block b;
	size_t bytes;

	block_make(&b, 0, 16);
	kv_block_builder_reset(&b.builder);
	ck_ok(kv_block_add(&b.builder, kv_slice_str("one12345678"), kv_slice_str("x")));
	ck_ok(kv_block_add(&b.builder, kv_slice_str("two12345678"), kv_slice_str("y")));
	bytes = kv_block_builder_bytes(&b.builder);
	ck_ok(kv_block_finish(&b.builder, &b.bytes));
	ck_assert_uint_eq(b.bytes.bytes, bytes);
	block_done(&b);
}
UNIT_END

/* Goes everywhere; the sanitizer sees whether it stays inside, the limit whether it ends. */
static void roam(struct kv_block block, struct kv_slice target)
{
	struct kv_slice bytes = block.bytes;
	struct kv_block_found found;
	struct kv_block_cursor c;
	const struct kv_cursor_ops *ops;
	size_t steps = 0;
	bool keys_ok = true;

	kv_block_cursor_init(&c);
	ops = c.cursor.ops;
	if (!kv_block_cursor_set(&c, &block)) {
		ops->seek_first(&c.cursor);
		for (; ops->valid(&c.cursor) && steps <= bytes.bytes; steps++) {
			keys_ok = keys_ok && kv_ikey_is_valid(ops->key(&c.cursor));
			ops->next(&c.cursor);
		}
		ops->seek_last(&c.cursor);
		for (; ops->valid(&c.cursor) && steps <= 2 * bytes.bytes; steps++)
			ops->prev(&c.cursor);
		ck_assert(keys_ok);
		ck_assert_uint_le(steps, 2 * bytes.bytes);
		ops->seek(&c.cursor, target);
		ops->seek_prev(&c.cursor, target);
		if (ops->error(&c.cursor))
			ck_assert_int_eq(ops->error(&c.cursor), KV_E_bad_record);
	} else {
		ck_assert_int_eq(ops->error(&c.cursor), KV_E_bad_record);
	}
	if (!kv_block_find(&block, kv_ikey_user(target), kv_ikey_trailer(target), &found) &&
	    found.found)
		ck_assert_uint_le(found.value.bytes, bytes.bytes);
	kv_block_cursor_done(&c);
}

/* Takes the copy over. */
static void roam_twice(uint8_t *copy, size_t bytes, struct kv_slice target)
{
	roam(kv_block_plain(kv_slice(copy, bytes)), target);
	ck_ok(kv_block_add_heads(&copy, &bytes));
	roam(kv_block_with_heads(kv_slice(copy, bytes)), target);
	free(copy);
}

UNIT(damaged_bytes_are_survived)
{
	static const uint8_t flips[] = { 0x01, 0x10, 0x80, 0xff };
	struct block b;
	uint8_t *copy;

	block_make(&b, 40, 4);
	for (size_t i = 0; i < b.bytes.bytes; i++)
		for (size_t f = 0; f < KV_ARRAY_LEN(flips); f++) {
			copy = malloc(b.bytes.bytes);
			memcpy(copy, b.bytes.data, b.bytes.bytes);
			copy[i] ^= flips[f];
			roam_twice(copy, b.bytes.bytes, kv_buf_slice(&b.keys[17]));
		}
	for (size_t cut = 0; cut < b.bytes.bytes; cut++) {
		copy = malloc(cut + 1);
		memcpy(copy, b.bytes.data, cut);
		roam_twice(copy, cut, kv_buf_slice(&b.keys[17]));
	}
	block_done(&b);
}
UNIT_END

UNIT(noise_is_survived)
{
	uint64_t random = tmpstore_seed(5);
	struct block b;

	block_make(&b, 40, 4);
	for (int round = 0; round < 5000; round++) {
		size_t bytes = 4 + tmpstore_random(&random) % 100, count;
		uint8_t *copy = malloc(bytes);
		le32 v;

		/* Small numbers, so that some of it passes for entries. */
		for (size_t i = 0; i < bytes; i++)
			copy[i] = (uint8_t)(tmpstore_random(&random) % (i % 3 ? 12 : 256));
		count = tmpstore_random(&random) % (bytes / 4);
		v = kv_le32((uint32_t)count);
		memcpy(copy + bytes - 4, &v, 4);
		if (count)
			memset(copy + bytes - 4 - 4 * count, 0, 4);
		roam_twice(copy, bytes, kv_buf_slice(&b.keys[17]));
	}
	block_done(&b);
}
UNIT_END

UNIT_MAIN("block", walks_give_all_entries, seeks_find_the_neighbours, heads_that_are_alike,
	  keys_without_the_prefix, the_size_is_known_before,
	  damaged_bytes_are_survived, noise_is_survived)
