/*
 * Error codes: an int, 0 or negative.
 *
 * -1 .. -4095 are negated errno values, where the system or POSIX has named
 * the failure already. The engine's own codes lie below -4096; each has a
 * parent, so that a caller asks for the class it can do something about
 * (kv_err_is(err, KV_E_corrupt)), and ends in the errno that a kernel would
 * be told.
 */
#ifndef KV_ERRCODE_H
#define KV_ERRCODE_H

#include <errno.h>

#include "kv/base.h"

#define KV_ERRCODES(x)                                                                  \
	/* number parent            name               what happened */                 \
	x(1,  -EIO,                 corrupt,           "stored data is damaged")        \
	x(2,  KV_E_corrupt,         bad_sum,           "a checksum does not match")     \
	x(3,  KV_E_corrupt,         bad_record,        "a record is malformed")         \
	x(4,  KV_E_corrupt,         missing_file,      "a file of the store is missing") \
	x(5,  KV_E_corrupt,         short_file,        "a file of the store is too short") \
	x(6,  KV_E_corrupt,         journal_damaged,   "the journal is damaged before the last promised point") \
	x(7,  KV_E_corrupt,         bad_compression,   "compressed data does not decompress") \
	x(8,  -EINVAL,              not_a_store,       "not a kv store")                \
	x(9,  -EINVAL,              newer_format,      "the store was written by a newer version") \
	x(10, -EEXIST,              exists,            "there is a store already")      \
	x(11, -EBUSY,               locked,            "the store is in use by another process") \
	x(12, -EROFS,               read_only,         "the store is open read-only")   \
	x(13, -EIO,                 poisoned,          "an earlier write failed, the store is read-only now") \
	x(14, -ENOENT,              not_found,         "no such key")                   \
	x(15, -E2BIG,               too_big,           "a key, a value or a batch is too big") \
	x(16, -ENOSPC,              no_space,          "no space left for the store")   \
	x(17, -EINVAL,              bad_option,        "an option is out of its range") \
	x(18, -EAGAIN,              conflict,          "another batch has changed what the transaction relies on") \
	x(19, -EINVAL,              bad_name,          "the name of a snapshot is empty or too long") \
	x(20, -EEXIST,              snapshot_exists,   "there is a snapshot of that name already") \
	x(21, -ENOENT,              no_snapshot,       "there is no snapshot of that name") \
	x(22, -EMLINK,              too_many_snapshots, "there are as many snapshots as there may be") \
	x(23, -EXDEV,               other_filesystem,  "the checkpoint would lie on another filesystem")

#define KV_ERR_BASE (-4096)
enum kv_errcode {
#define X(number, parent, name, text) KV_E_##name = KV_ERR_BASE - (number),
	KV_ERRCODES(X)
#undef X
};

/* True when err is code, or a descendant of it. */
bool kv_err_is(int err, int code);

/* The errno at the root of err, positive; 0 for 0. */
int kv_err_errno(int err);

/* What happened, without a final full stop; a constant or thread-local string. */
const char *kv_err_text(int err);

#endif
