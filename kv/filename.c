#include "kv/filename.h"

#include <inttypes.h>
#include <stdio.h>

#include "kv/assert.h"

#define DIGITS_MIN 6

static const struct {
	enum kv_file_kind kind;
	const char *suffix;
} kinds[] = {
	{ KV_FILE_MANIFEST, ".manifest" },
	{ KV_FILE_JOURNAL, ".journal" },
	{ KV_FILE_TABLE, ".sst" },
	{ KV_FILE_SEGMENT, ".vlog" },
};

struct kv_filename kv_filename(enum kv_file_kind kind, kv_fileno number)
{
	struct kv_filename name;

	for (size_t i = 0; i < KV_ARRAY_LEN(kinds); i++)
		if (kinds[i].kind == kind) {
			int n = snprintf(name.s, sizeof(name.s), "%0*" PRIu64 "%s", DIGITS_MIN,
					 number, kinds[i].suffix);

			KV_ASSERT(n > 0 && (size_t)n < sizeof(name.s));
			return name;
		}
	kv_assert_failed("the kind of a file is known", __FILE__, __LINE__);
}

/*
 * One number has one name: zeros fill up to the least width and stand nowhere
 * else, so that no two files can claim the same number.
 */
bool kv_filename_parse(const char *name, enum kv_file_kind *out_kind, kv_fileno *out_number)
{
	kv_fileno number = 0;
	size_t digits = 0;

	for (; name[digits] >= '0' && name[digits] <= '9'; digits++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (unsigned)(name[digits] - '0'), &number))
			return false;
	if (digits < DIGITS_MIN || (digits > DIGITS_MIN && name[0] == '0') || !number)
		return false;
	for (size_t i = 0; i < KV_ARRAY_LEN(kinds); i++)
		if (!strcmp(name + digits, kinds[i].suffix)) {
			*out_kind = kinds[i].kind;
			*out_number = number;
			return true;
		}
	return false;
}
