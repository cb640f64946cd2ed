/*
 * The few macros that everything uses. Includes nothing of the project.
 */
#ifndef KV_BASE_H
#define KV_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_PRINTF(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))
#define KV_NODISCARD __attribute__((warn_unused_result))
#define KV_UNUSED __attribute__((unused))

/*
 * Runs fn(&variable) when the variable leaves its scope:
 *	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
 */
#define KV_AUTO(fn) __attribute__((cleanup(fn)))

#define KV_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define KV_MIN(a, b) ((a) < (b) ? (a) : (b))
#define KV_MAX(a, b) ((a) > (b) ? (a) : (b))

#define kv_container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - offsetof(type, member)))

/* Return early with the error of a call that failed. */
#define KV_TRY(expr)                        \
	do {                                \
		int kv_try_err_ = (expr);   \
		if (kv_try_err_)            \
			return kv_try_err_; \
	} while (0)

/* What a struct on disk looks like is promised here and nowhere else. */
#define KV_DISK_SIZE(type, bytes) \
	_Static_assert(sizeof(struct type) == (bytes), #type " has changed its size")
#define KV_DISK_OFFSET(type, member, bytes)                           \
	_Static_assert(offsetof(struct type, member) == (bytes),      \
		       #type "." #member " has moved")

#define KV_KIB ((uint64_t)1 << 10)
#define KV_MIB ((uint64_t)1 << 20)
#define KV_GIB ((uint64_t)1 << 30)

#endif
