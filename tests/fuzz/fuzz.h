/*
 * Fuzz targets: one for each decoder of bytes from a disk (or from a user). A target takes
 * any bytes and must neither crash nor break what it asserts beyond that.
 *
 * Each fuzz_<noun>.c defines one struct fuzz_target, fuzz_<noun>. `make fuzz` links it with
 * libFuzzer (libfuzzer.c); `make check` runs all of them on their seeds and a few thousand
 * mutations (test_fuzz.c), which needs no special compiler.
 *
 * Where a checksum guards what is decoded, the target computes it, so that what lies behind is
 * reached; a checksum whose first byte is FUZZ_BROKEN is left as it is.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>

#include "kv/buf.h"
#include "kv/store.h"

#define FUZZ_BROKEN 0xff

/* On in every build; a failure aborts, which is what a fuzzer looks for. */
#define FUZZ_ASSERT(c)                                                                 \
	((c) ? (void)0                                                                 \
	     : (fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #c), abort()))
#define FUZZ_OK(expr) FUZZ_ASSERT((expr) == 0)

typedef void fuzz_emit_fn(void *arg, struct kv_slice input);

struct fuzz_target {
	const char *name;
	void (*run)(struct kv_slice input);
	/* Calls emit with a few inputs to begin with: well-formed ones, mostly. */
	void (*seeds)(fuzz_emit_fn *emit, void *arg);
};

/*
 * A store for reading, whose files, whatever their name, all have the bytes of the one slice.
 * Messages are formatted and dropped.
 */
struct fuzz_store {
	struct kv_store store;
	struct kv_env env;
	struct kv_slice file;
};
void fuzz_store_init(struct fuzz_store *s, struct kv_slice file);
struct kv_env_file *fuzz_store_file(struct fuzz_store *s);

/* A good header of the store above, then the input. */
void fuzz_file_make(struct kv_buf *file, enum kv_file_kind kind, kv_fileno number,
		    struct kv_slice input);
/* Gives a checksum that matches to everything that looks like a chunk. */
void fuzz_fix_chunks(struct kv_buf *file, kv_fileno number);

/*
 * Seeds are made by the code that writes: on a disk in memory, in a store with the same id.
 * load returns all bytes of a file behind its header.
 */
struct fuzz_disk {
	struct kv_store store;
};
void fuzz_disk_init(struct fuzz_disk *d);
void fuzz_disk_done(struct fuzz_disk *d);
void fuzz_disk_load(struct fuzz_disk *d, enum kv_file_kind kind, kv_fileno number,
		    struct kv_buf *out);

/* A number from the front of the input; 0 when there is none left. */
uint64_t fuzz_take(struct kv_slice *input, size_t bytes);
/* Up to that many bytes from the front. */
struct kv_slice fuzz_take_slice(struct kv_slice *input, size_t bytes);

#endif
