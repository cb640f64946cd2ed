/*
 * Building a sorted table. All that goes to the file goes through one buffer, in order;
 * index, hashes of the keys and range tombstones are gathered beside it, and follow at the end.
 */
#include <stdlib.h>

#include "kv/assert.h"
#include "kv/compress.h"
#include "kv/filter.h"
#include "kv/sst_impl.h"

#define WRITE_BYTES (512 * KV_KIB)	/* of one write */
#define WRITEBACK_BYTES KV_MIB		/* start writing back when as many have gathered */
#define DATA_RESTART_INTERVAL 16
#define INDEX_RESTART_INTERVAL 1	/* a look-up is a binary search and nothing else */

struct kv_sst_build {
	struct kv_store *store;
	struct kv_env_file *file;
	struct kv_sst_options options;
	struct kv_sst_meta meta;
	bool finished;

	struct kv_buf out;		/* not written yet, belongs at `written` */
	uint64_t written, writeback_started;

	struct kv_block_builder data, index;
	struct kv_buf last_key;
	struct kv_buf hashes;		/* uint64_t each, of every user key */
	struct kv_buf rangedels;	/* the block */
};

static int build_fail(struct kv_sst_build *b, int err, const char *what)
{
	return kv_fail(&b->store->msg, err, "%s/%s: %s: %s", b->store->path,
		       kv_filename(KV_FILE_TABLE, b->meta.number).s, what, kv_err_text(err));
}

int kv_sst_build_new(struct kv_store *s, kv_fileno number, const struct kv_sst_options *options,
		     struct kv_sst_build **out)
{
	struct kv_sst_build *b = calloc(1, sizeof(*b));
	int err;

	if (!b)
		return -ENOMEM;
	err = kv_store_create_file(s, KV_FILE_TABLE, number, &b->file);
	if (err) {
		free(b);
		return err;
	}
	b->store = s;
	b->options = *options;
	b->meta.number = number;
	b->written = b->writeback_started = sizeof(struct kv_file_header);
	kv_block_builder_init(&b->data, DATA_RESTART_INTERVAL);
	kv_block_builder_init(&b->index, INDEX_RESTART_INTERVAL);
	*out = b;
	return 0;
}

void kv_sst_build_free(struct kv_sst_build *b)
{
	if (!b)
		return;
	b->store->env->ops->close(b->file);
	if (!b->finished) /* no edit names it; if it stays, the next opening of the store removes it */
		(void)kv_store_unlink(b->store, KV_FILE_TABLE, b->meta.number);
	kv_sst_meta_done(&b->meta);
	kv_block_builder_done(&b->data);
	kv_block_builder_done(&b->index);
	kv_buf_done(&b->out);
	kv_buf_done(&b->last_key);
	kv_buf_done(&b->hashes);
	kv_buf_done(&b->rangedels);
	free(b);
}

/* --- writing ---------------------------------------------------------------------------------- */

static uint64_t end_offset(const struct kv_sst_build *b)
{
	return b->written + b->out.bytes;
}

static int write_out(struct kv_sst_build *b)
{
	const struct kv_env_ops *ops = b->store->env->ops;
	uint64_t gathered;
	int err;

	err = kv_env_write(b->store->env, b->file, kv_buf_slice(&b->out), b->written);
	if (err)
		return build_fail(b, err, "cannot be written");
	b->written += b->out.bytes;
	kv_buf_reset(&b->out);
	gathered = b->written - b->writeback_started;
	if (gathered < WRITEBACK_BYTES)
		return 0;
	err = ops->writeback(b->file, b->writeback_started, gathered, false);
	if (err)
		return build_fail(b, err, "cannot be written back");
	b->writeback_started = b->written;
	return 0;
}

static int write_block(struct kv_sst_build *b, struct kv_slice raw, enum kv_codec codec,
		       struct kv_block_handle *out)
{
	uint64_t offset = end_offset(b);
	size_t start = b->out.bytes;
	struct kv_block_trailer trailer = { .raw_bytes = kv_le32((uint32_t)raw.bytes) };
	struct kv_slice stored;

	if (raw.bytes > KV_BLOCK_RAW_BYTES_MAX)
		return build_fail(b, KV_E_too_big, "a block cannot be written");
	trailer.codec = (uint8_t)kv_compress(codec, raw, &b->out);
	if (trailer.codec == KV_CODEC_NONE)
		KV_TRY(kv_buf_append_slice(&b->out, raw));
	stored = kv_slice(b->out.data + start, b->out.bytes - start);
	trailer.checksum = kv_le64(kv_block_sum(b->meta.number, offset, stored, &trailer));
	*out = (struct kv_block_handle){ offset, (uint32_t)stored.bytes };
	KV_TRY(kv_buf_append(&b->out, &trailer, sizeof(trailer)));
	return b->out.bytes >= WRITE_BYTES ? write_out(b) : 0;
}

static int flush_data(struct kv_sst_build *b)
{
	struct kv_block_handle_disk disk;
	struct kv_block_handle h = { 0, 0 };
	struct kv_slice raw;

	if (!b->data.count)
		return 0;
	KV_TRY(kv_block_finish(&b->data, &raw));
	KV_TRY(write_block(b, raw, b->options.codec, &h));
	disk = kv_block_handle_encode(h);
	KV_TRY(kv_block_add(&b->index, kv_buf_slice(&b->last_key), kv_slice(&disk, sizeof(disk))));
	kv_block_builder_reset(&b->data);
	return 0;
}

/* --- adding ----------------------------------------------------------------------------------- */

/* Versions of one key follow each other: its hash is taken once. */
static int add_hash(struct kv_sst_build *b, struct kv_slice user_key)
{
	uint64_t hash;

	if (!b->options.filter_bits_per_key ||
	    (b->last_key.bytes &&
	     kv_slice_eq(kv_ikey_user(kv_buf_slice(&b->last_key)), user_key)))
		return 0;
	hash = kv_filter_hash(user_key);
	return kv_buf_append(&b->hashes, &hash, sizeof(hash));
}

int kv_sst_build_add(struct kv_sst_build *b, struct kv_slice ikey, struct kv_slice value)
{
	int err;

	KV_ASSERT(!b->finished);
	KV_ASSERT(kv_ikey_is_valid(ikey) && kv_ikey_kind(ikey) != KV_KIND_DELETE_RANGE);
	KV_ASSERT(!b->last_key.bytes || kv_ikey_cmp(kv_buf_slice(&b->last_key), ikey) < 0);
	err = kv_sst_meta_add(&b->meta, ikey, value);
	if (err)
		return build_fail(b, err, "a value in the log cannot be referred to");
	KV_TRY(add_hash(b, kv_ikey_user(ikey)));
	KV_TRY(kv_block_add(&b->data, ikey, value));
	KV_TRY(kv_buf_assign(&b->last_key, ikey));
	return kv_block_builder_bytes(&b->data) >= b->options.block_bytes ? flush_data(b) : 0;
}

int kv_sst_build_add_rangedel(struct kv_sst_build *b, const struct kv_rangedel *r)
{
	KV_ASSERT(!b->finished);
	if (kv_slice_cmp(r->begin, r->end) >= 0)
		return 0;
	KV_TRY(kv_sst_meta_add_rangedel(&b->meta, r));
	KV_TRY(kv_buf_append_prefixed(&b->rangedels, r->begin));
	KV_TRY(kv_buf_append_prefixed(&b->rangedels, r->end));
	return kv_buf_append_varint(&b->rangedels, r->seqno);
}

uint64_t kv_sst_build_bytes(const struct kv_sst_build *b)
{
	return end_offset(b) + kv_block_builder_bytes(&b->data) +
	       kv_block_builder_bytes(&b->index) + b->rangedels.bytes +
	       b->hashes.bytes / sizeof(uint64_t) * b->options.filter_bits_per_key / 8;
}

bool kv_sst_build_is_empty(const struct kv_sst_build *b)
{
	return !b->meta.entries && !b->meta.range_deletes;
}

/* --- finishing -------------------------------------------------------------------------------- */

static int write_filter(struct kv_sst_build *b, struct kv_block_handle *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf filter = KV_BUF_INIT;

	if (!b->hashes.bytes)
		return 0;
	KV_TRY(kv_filter_build((const uint64_t *)(const void *)b->hashes.data,
			       b->hashes.bytes / sizeof(uint64_t), b->options.filter_bits_per_key,
			       &filter));
	return write_block(b, kv_buf_slice(&filter), false, out);
}

static int write_index(struct kv_sst_build *b, struct kv_block_handle *out)
{
	struct kv_slice raw;

	if (!b->index.count)
		return 0;
	KV_TRY(kv_block_finish(&b->index, &raw));
	return write_block(b, raw, b->options.codec, out);
}

static int write_properties(struct kv_sst_build *b, struct kv_block_handle *out)
{
	KV_AUTO(kv_buf_done) struct kv_buf properties = KV_BUF_INIT;

	KV_TRY(kv_sst_meta_encode(&b->meta, &properties));
	return write_block(b, kv_buf_slice(&properties), false, out);
}

static int write_tail(struct kv_sst_build *b)
{
	struct kv_block_handle range_deletes = { 0 }, filter = { 0 }, index = { 0 };
	struct kv_block_handle properties = { 0 };
	struct kv_table_footer f;

	KV_TRY(flush_data(b));
	if (b->rangedels.bytes)
		KV_TRY(write_block(b, kv_buf_slice(&b->rangedels), b->options.codec,
				   &range_deletes));
	KV_TRY(write_filter(b, &filter));
	KV_TRY(write_index(b, &index));
	KV_TRY(write_properties(b, &properties));
	f = (struct kv_table_footer){
		.index = kv_block_handle_encode(index),
		.filter = kv_block_handle_encode(filter),
		.range_deletes = kv_block_handle_encode(range_deletes),
		.properties = kv_block_handle_encode(properties),
		.version = kv_le32(KV_TABLE_VERSION),
		.number = kv_le64(b->meta.number),
	};
	memcpy(f.magic, KV_TABLE_MAGIC, sizeof(f.magic));
	f.checksum = kv_le64(kv_table_footer_sum(&f));
	KV_TRY(kv_buf_append(&b->out, &f, sizeof(f)));
	return write_out(b);
}

int kv_sst_build_finish(struct kv_sst_build *b, struct kv_sst_meta *out_meta)
{
	int err;

	KV_ASSERT(!b->finished && !kv_sst_build_is_empty(b));
	KV_TRY(write_tail(b));
	/* CRASH: content before name; the caller's edit comes after both. */
	err = b->store->env->ops->sync(b->file);
	if (err)
		return build_fail(b, err, "cannot be synced");
	b->meta.file_bytes = b->written;
	*out_meta = b->meta;
	b->meta = (struct kv_sst_meta){ .number = out_meta->number };
	b->finished = true;
	return 0;
}
