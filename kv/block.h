/*
 * Prefix-compressed block of sorted entries:
 *	entry: varint shared, varint unshared, varint value length, unshared key bytes, value
 *	then the le32 offset of every restart (an entry with shared 0), le32 restart count
 * Keys are internal keys. Used for data blocks and for the index (key: last
 * key of a data block; value: its struct kv_block_handle_disk).
 */
#ifndef KV_BLOCK_H
#define KV_BLOCK_H

#include "kv/cursor.h"
#include "kv/ikey.h"

struct kv_block_builder {
	struct kv_buf bytes;
	struct kv_buf restarts;		/* le32 each */
	struct kv_buf last_key;
	uint32_t since_restart, restart_interval, count;
	size_t restart_at;		/* offset of the last restart */
};

/* restart_interval: of so many entries at most one is a restart, if they are short. */
void kv_block_builder_init(struct kv_block_builder *b, uint32_t restart_interval);
void kv_block_builder_done(struct kv_block_builder *b);
void kv_block_builder_reset(struct kv_block_builder *b);
int kv_block_add(struct kv_block_builder *b, struct kv_slice ikey, struct kv_slice value)
	KV_NODISCARD;
/* Size of the block if it were finished now. */
size_t kv_block_builder_bytes(const struct kv_block_builder *b);
/* Appends the restarts. *out stays until the reset. */
int kv_block_finish(struct kv_block_builder *b, struct kv_slice *out) KV_NODISCARD;

/*
 * A block in memory with what makes a search fast, its heads: of the user key of each restart,
 * after the bytes that all of them begin with, the next four as a big-endian number. A search
 * among the heads stays in a few cache lines, and nearly always leaves one restart. They are
 * built when the block is read, and part of no format (block_heads.c).
 */
struct kv_block {
	struct kv_slice bytes;
	struct kv_slice prefix;		/* what the user keys of all restarts begin with */
	const uint32_t *heads;		/* one for each restart, never descending; NULL: none */
	bool only_restarts;		/* each entry is one: a search need not walk */
};

/*
 * Puts the heads behind the block, whose bytes (from malloc) may be anything: *data is
 * reallocated, *bytes grows. A block that is malformed gets none.
 */
int kv_block_add_heads(uint8_t **data, size_t *bytes) KV_NODISCARD;
/* The block in what kv_block_add_heads() has made. */
struct kv_block kv_block_with_heads(struct kv_slice data);
/* The same block without. */
static inline struct kv_block kv_block_plain(struct kv_slice bytes)
{
	return (struct kv_block){ .bytes = bytes };
}

/*
 * Narrows a search for the first restart at or after the user key: it is in [*low, *high], where
 * restart_count means none. Without heads leaves both as they are.
 */
void kv_block_narrow(const struct kv_block *b, struct kv_slice user_key, uint32_t restart_count,
		     uint32_t *low, uint32_t *high);

struct kv_block_found {
	bool found;		/* else all entries are before, and the fields below say nothing */
	bool same_user_key;
	uint64_t trailer;	/* seqno and kind, see ikey.h */
	struct kv_slice value;	/* in the block */
};

/*
 * The first entry at or after the internal key {user_key, trailer}. Allocates nothing. The block's
 * bytes may be anything: KV_E_bad_record.
 */
int kv_block_find(const struct kv_block *block, struct kv_slice user_key, uint64_t trailer,
		  struct kv_block_found *out) KV_NODISCARD;

/*
 * A cursor over a block, to be embedded. The block's bytes may be anything: damage is
 * met as KV_E_bad_record from error(), never a read outside of them. The
 * caller keeps the bytes alive. free does nothing: call kv_block_cursor_done().
 */
struct kv_block_cursor {
	struct kv_cursor cursor;
	struct kv_block block;
	uint32_t restarts_offset, restart_count;
	uint32_t at, next;		/* offsets of this entry and the next */
	uint32_t restart;		/* index of the restart before `at` */
	bool valid;
	int error;
	struct kv_buf key;
	struct kv_slice value;
};

void kv_block_cursor_init(struct kv_block_cursor *c);
void kv_block_cursor_done(struct kv_block_cursor *c);
/* Sets the block to look at; not valid afterwards. Keeps memory. */
int kv_block_cursor_set(struct kv_block_cursor *c, const struct kv_block *block);
/* The user key of a restart, in place; false when it is malformed. */
bool kv_block_restart_key(const struct kv_block_cursor *c, uint32_t i, struct kv_slice *out);
/* Is each entry a restart that is well-formed? Order is not looked at. */
bool kv_block_has_only_restarts(const struct kv_block_cursor *c);
/*
 * Does each restart lead to an entry that shares nothing, in ascending order? A walk to the end
 * doesn't need them, a search does. The cursor stays where it is.
 */
bool kv_block_restarts_are_good(const struct kv_block_cursor *c);

#endif
