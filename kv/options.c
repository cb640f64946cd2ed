/*
 * The options of a store: one table with default and limits. A 0 takes the default.
 */
#include "kv/db.h"

#include <inttypes.h>

#include "kv/pool.h"

#define KV_OPTIONS(x)                                                                \
	/* field                    default          min             max          */ \
	x(cache_bytes,              80 * KV_MIB,     16 * KV_KIB,    64 * KV_GIB)    \
	x(memtable_bytes,           16 * KV_MIB,     4 * KV_KIB,     1 * KV_GIB)     \
	x(bulk_bytes_per_memtable,  256 * KV_MIB,    16 * KV_KIB,    64 * KV_GIB)    \
	x(segment_bytes,            128 * KV_MIB,    16 * KV_KIB,    16 * KV_GIB)    \
	x(table_bytes,              8 * KV_MIB,      4 * KV_KIB,     1 * KV_GIB)     \
	x(level_base_bytes,         64 * KV_MIB,     16 * KV_KIB,    1024 * KV_GIB)  \
	x(medium_bytes,             1 * KV_KIB,      1,              KV_VALUE_BYTES_MAX + 1) \
	x(bulk_bytes,               32 * KV_KIB,     1,              KV_VALUE_BYTES_MAX + 1) \
	x(block_bytes,              8 * KV_KIB,      256,            1 * KV_MIB)     \
	x(level0_tables_slow,       8,               1,              1000)           \
	x(level0_tables_max,        20,              2,              1000)           \
	x(compact_threads,          o.inline_work ? 2 : kv_pool_threads() / 2 + 1, 1, 8)

static int check(const struct kv_msg *msg, const char *name, uint64_t value, uint64_t min,
		 uint64_t max)
{
	if (value >= min && value <= max)
		return 0;
	return kv_fail(msg, KV_E_bad_option,
		       "option %s is %" PRIu64 ", which is not between %" PRIu64 " and %" PRIu64,
		       name, value, min, max);
}

int kv_options_fill(const struct kv_options *in, struct kv_options *out)
{
	struct kv_options o = { 0 };

	if (in)
		o = *in;
	if (!o.env)
		o.env = kv_env_posix();
#define X(field, value, min, max)    \
	if (!o.field)                \
		o.field = (value);   \
	KV_TRY(check(&o.msg, #field, o.field, (min), (max)));
	KV_OPTIONS(X)
#undef X
	if (o.level0_tables_slow >= o.level0_tables_max)
		return kv_fail(&o.msg, KV_E_bad_option,
			       "option level0_tables_slow is %" PRIu32
			       ", which is not below level0_tables_max, %" PRIu32,
			       o.level0_tables_slow, o.level0_tables_max);
	if (o.read_only && o.create)
		return kv_fail(&o.msg, KV_E_bad_option,
			       "options create and read_only exclude each other");
	*out = o;
	return 0;
}

#define FILTER_BITS_PER_KEY 10
/*
 * Tables of the first levels are written again soon, so they are compressed fast; those of
 * deeper levels hold most of the data, and densely.
 */
#define DENSE_LEVEL 1

int kv_table_build_new(struct kv_db *db, kv_fileno number, int level, struct kv_sst_build **out)
{
	const struct kv_sst_options options = {
		.block_bytes = db->options.block_bytes,
		.filter_bits_per_key = FILTER_BITS_PER_KEY,
		.codec = db->options.no_compression ? KV_CODEC_NONE :
			 level < DENSE_LEVEL ? KV_CODEC_LZ4 : KV_CODEC_ZSTD,
	};

	return kv_sst_build_new(&db->store, number, &options, out);
}
