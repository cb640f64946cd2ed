/*
 * SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash of 64 bits for which
 * nobody without the key can make collisions. Names in directories are found by it.
 */
#ifndef FS_SIPHASH_H
#define FS_SIPHASH_H

#include "kv/slice.h"

#define FS_SIPHASH_KEY_BYTES 16

uint64_t fs_siphash(const uint8_t key[FS_SIPHASH_KEY_BYTES], struct kv_slice in);

#endif
