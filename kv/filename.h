/* (kind, number) to a file's name and back. */
#ifndef KV_FILENAME_H
#define KV_FILENAME_H

#include "kv/format.h"

#define KV_NAME_BYTES_MAX 40

#define KV_NAME_ROOT "CURRENT"
#define KV_NAME_ROOT_NEW "CURRENT.new"
#define KV_NAME_LOCK "LOCK"
#define KV_NAME_LOG "LOG"		/* of events */
#define KV_NAME_LOG_OLD "LOG.old"

struct kv_filename {
	char s[KV_NAME_BYTES_MAX];
};

struct kv_filename kv_filename(enum kv_file_kind kind, kv_fileno number);
/* False when the name is not one of ours (KV_NAME_* are not, either). */
bool kv_filename_parse(const char *name, enum kv_file_kind *out_kind, kv_fileno *out_number);

#endif
