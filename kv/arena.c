#include "kv/arena.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

/*
 * Blocks grow with the arena: a batch of one small key takes 4 KiB, a memtable
 * gets its memory in pieces that malloc handles well. One that gets large takes whole huge
 * pages: filling a memtable cost a page fault every 4 KiB, and its readers miss the TLB less.
 */
#define BLOCK_BYTES_MIN ((size_t)4 << 10)
#define BLOCK_BYTES_MAX ((size_t)256 << 10)
#define HUGE_FROM_BYTES ((size_t)4 << 20)
#define HUGE_BYTES ((size_t)2 << 20)
#define ALIGN ((size_t)8)

struct kv_arena_block {
	struct kv_arena_block *next;
	size_t bytes;		/* with this header */
	uint8_t data[];
};

_Static_assert(sizeof(struct kv_arena_block) % ALIGN == 0, "data of a block is aligned");

static void use_block(struct kv_arena *a, struct kv_arena_block *b)
{
	a->at = b->data;
	a->end = (uint8_t *)b + b->bytes;
}

static void *new_memory(size_t bytes)
{
	void *p;

	if (bytes != HUGE_BYTES)
		return malloc(bytes);
	p = aligned_alloc(HUGE_BYTES, bytes);
#ifdef MADV_HUGEPAGE
	if (p)
		(void)madvise(p, bytes, MADV_HUGEPAGE); /* without it, it is only slower */
#endif
	return p;
}

static struct kv_arena_block *new_block(struct kv_arena *a, size_t bytes)
{
	struct kv_arena_block *b = new_memory(bytes);

	if (!b)
		return NULL;
	b->bytes = bytes;
	b->next = a->blocks;
	a->blocks = b;
	atomic_fetch_add_explicit(&a->bytes, bytes, memory_order_relaxed);
	return b;
}

/* Of the next block, for an arena of so many bytes. */
static size_t next_block_bytes(size_t arena_bytes)
{
	if (arena_bytes >= HUGE_FROM_BYTES)
		return HUGE_BYTES;
	return KV_MIN(KV_MAX(arena_bytes, BLOCK_BYTES_MIN), BLOCK_BYTES_MAX);
}

void kv_arena_init(struct kv_arena *a)
{
	a->blocks = NULL;
	a->at = a->end = NULL;
	atomic_init(&a->bytes, 0);
}

/* Frees all blocks but keep. */
static void free_blocks(struct kv_arena *a, struct kv_arena_block *keep)
{
	struct kv_arena_block *b, *next;

	for (b = a->blocks; b; b = next) {
		next = b->next;
		if (b != keep)
			free(b);
	}
	a->blocks = keep;
	if (keep)
		keep->next = NULL;
	a->at = a->end = NULL;
	atomic_store_explicit(&a->bytes, keep ? keep->bytes : 0, memory_order_relaxed);
}

void kv_arena_done(struct kv_arena *a)
{
	if (a)
		free_blocks(a, NULL);
}

void kv_arena_reset(struct kv_arena *a)
{
	struct kv_arena_block *keep = NULL;

	/* One that was made for a single huge value is not worth keeping. */
	for (struct kv_arena_block *b = a->blocks; b; b = b->next)
		if (b->bytes <= BLOCK_BYTES_MAX && (!keep || b->bytes > keep->bytes))
			keep = b;
	free_blocks(a, keep);
	if (keep)
		use_block(a, keep);
}

void *kv_arena_alloc(struct kv_arena *a, size_t bytes)
{
	size_t block_bytes;
	struct kv_arena_block *b;
	void *p;

	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (KV_MAX(bytes, (size_t)1) + ALIGN - 1) & ~(ALIGN - 1);
	if (bytes > (size_t)(a->end - a->at)) {
		block_bytes = next_block_bytes(atomic_load_explicit(&a->bytes,
								    memory_order_relaxed));
		if (bytes > block_bytes / 4) {
			/* A block of its own, so that what is left of the current one stays of use. */
			b = new_block(a, sizeof(*b) + bytes);
			return b ? b->data : NULL;
		}
		b = new_block(a, block_bytes);
		if (!b)
			return NULL;
		use_block(a, b);
	}
	p = a->at;
	a->at += bytes;
	return p;
}
