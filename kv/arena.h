/*
 * Bump allocator: memory that is freed all at once. One thread allocates; what
 * it published with release order may be read by others.
 */
#ifndef KV_ARENA_H
#define KV_ARENA_H

#include "kv/base.h"

struct kv_arena_block;

struct kv_arena {
	struct kv_arena_block *blocks;
	uint8_t *at, *end;
	_Atomic size_t bytes;	/* taken from the system */
};

void kv_arena_init(struct kv_arena *a);
void kv_arena_done(struct kv_arena *a);
/* Forgets all allocations, keeps some of the memory. */
void kv_arena_reset(struct kv_arena *a);
/* 8-byte aligned; NULL when out of memory. */
void *kv_arena_alloc(struct kv_arena *a, size_t bytes);

#endif
