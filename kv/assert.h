/*
 * Assertions stay on in releases: what our own code guarantees is asserted,
 * what comes from a disk, a kernel or a user is checked and is an error.
 */
#ifndef KV_ASSERT_H
#define KV_ASSERT_H

#include "kv/base.h"

/* Prints the broken condition to stderr and aborts. */
_Noreturn void kv_assert_failed(const char *condition, const char *file, int line);

#define KV_ASSERT(c) ((c) ? (void)0 : kv_assert_failed(#c, __FILE__, __LINE__))

/* For checks that cost more than O(1): on in sanitizer builds only. */
#ifdef KV_DEBUG
#define KV_DEBUG_ASSERT(c) KV_ASSERT(c)
#else
#define KV_DEBUG_ASSERT(c) ((void)sizeof(c))
#endif

#endif
