/* A cursor over a block that may be anything, moved in every way. */
#include "tests/fuzz/fuzz.h"

#include "kv/block.h"

static void check_place(const struct kv_block_cursor *c, struct kv_slice block)
{
	const uint8_t *begin = block.data, *value = c->value.data;

	if (!c->valid)
		return;
	FUZZ_ASSERT(!c->error && kv_ikey_is_valid(kv_buf_slice(&c->key)));
	FUZZ_ASSERT(value >= begin && c->value.bytes <= block.bytes &&
		    value + c->value.bytes <= begin + block.bytes);
}

/* From the first to the last: each step goes forward, so that there is an end. */
static void walk(struct kv_block_cursor *c, struct kv_slice block)
{
	const struct kv_cursor_ops *ops = c->cursor.ops;
	uint32_t at = 0, steps = 0;

	for (ops->seek_first(&c->cursor); c->valid; ops->next(&c->cursor)) {
		check_place(c, block);
		FUZZ_ASSERT(!steps || c->at > at);
		at = c->at;
		steps++;
	}
	steps = 0;
	for (ops->seek_last(&c->cursor); c->valid; ops->prev(&c->cursor)) {
		check_place(c, block);
		FUZZ_ASSERT(!steps || c->at < at);
		at = c->at;
		steps++;
	}
}

/* A look-up ends where the cursor does that was set to seek the same, or as it does. */
static void check_find(const struct kv_block_cursor *c, struct kv_slice target)
{
	struct kv_block_found f;
	int err = kv_block_find(&c->block, kv_ikey_user(target), kv_ikey_trailer(target), &f);

	FUZZ_ASSERT(err == c->error);
	if (err)
		return;
	FUZZ_ASSERT(f.found == c->valid);
	if (f.found)
		FUZZ_ASSERT(f.value.data == c->value.data && f.value.bytes == c->value.bytes &&
			    f.trailer == kv_ikey_trailer(kv_buf_slice(&c->key)) &&
			    f.same_user_key == kv_slice_eq(kv_ikey_user(kv_buf_slice(&c->key)),
							   kv_ikey_user(target)));
}

static void move(struct kv_block_cursor *c, uint8_t how, struct kv_slice target)
{
	const struct kv_cursor_ops *ops = c->cursor.ops;

	switch (how % 6) {
	case 0:
		ops->seek_first(&c->cursor);
		break;
	case 1:
		ops->seek_last(&c->cursor);
		break;
	case 2:
		ops->seek(&c->cursor, target);
		FUZZ_ASSERT(!c->valid || kv_ikey_cmp(kv_buf_slice(&c->key), target) >= 0);
		check_find(c, target);
		break;
	case 3:
		ops->seek_prev(&c->cursor, target);
		break;
	case 4:
		if (c->valid)
			ops->next(&c->cursor);
		break;
	default:
		if (c->valid)
			ops->prev(&c->cursor);
	}
}

/* Walks and moves as the script says. */
static void explore(struct kv_block block, struct kv_slice script, struct kv_slice user_key)
{
	KV_AUTO(kv_buf_done) struct kv_buf target = KV_BUF_INIT;
	KV_AUTO(kv_block_cursor_done) struct kv_block_cursor c;

	FUZZ_OK(kv_ikey_make(&target, user_key, 5, KV_KIND_PUT));
	kv_block_cursor_init(&c);
	if (kv_block_cursor_set(&c, &block))
		return;
	walk(&c, block.bytes);
	while (script.bytes) {
		move(&c, (uint8_t)fuzz_take(&script, 1), kv_buf_slice(&target));
		check_place(&c, block.bytes);
		if (c.valid && script.bytes % 2)
			FUZZ_OK(kv_buf_assign(&target, kv_buf_slice(&c.key)));
	}
}

static void run(struct kv_slice input)
{
	struct kv_slice script = fuzz_take_slice(&input, (size_t)fuzz_take(&input, 1) % 32);
	struct kv_slice user_key = fuzz_take_slice(&input, (size_t)fuzz_take(&input, 1) % 32);
	size_t bytes = input.bytes;
	uint8_t *copy = malloc(bytes + 1);

	FUZZ_ASSERT(copy);
	if (bytes)
		memcpy(copy, input.data, bytes);
	explore(kv_block_plain(input), script, user_key);
	FUZZ_OK(kv_block_add_heads(&copy, &bytes));
	explore(kv_block_with_heads(kv_slice(copy, bytes)), script, user_key);
	free(copy);
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	static const uint8_t head[] = { 8, 2, 2, 3, 4, 5, 4, 3, 2, 1, 'k', '3' };
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf key = KV_BUF_INIT;
	struct kv_block_builder builder;
	struct kv_slice block;

	for (uint32_t interval = 1; interval <= 16; interval *= 4) {
		kv_block_builder_init(&builder, interval);
		for (int i = 0; i < 9; i++) {
			char user_key[] = { 'k', (char)('0' + i), 'x', 0 };

			kv_buf_reset(&key);
			FUZZ_OK(kv_ikey_make(&key, kv_slice_str(user_key), 9, KV_KIND_PUT));
			FUZZ_OK(kv_block_add(&builder, kv_buf_slice(&key), kv_slice_str("value")));
		}
		FUZZ_OK(kv_block_finish(&builder, &block));
		kv_buf_reset(&b);
		FUZZ_OK(kv_buf_append(&b, head, sizeof(head)));
		FUZZ_OK(kv_buf_append_slice(&b, block));
		emit(arg, kv_buf_slice(&b));
		kv_block_builder_done(&builder);
	}
}

const struct fuzz_target fuzz_block = { "block", run, seeds };
