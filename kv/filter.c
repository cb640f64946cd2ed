#include "kv/filter.h"

#include "kv/assert.h"
#include "kv/checksum.h"
#include "kv/coding.h"
#include "kv/errcode.h"

#define LINE_BYTES 64
#define LINE_BITS (8 * LINE_BYTES)
#define PROBES_MAX 12
#define HASH_SEED 0x6b6579u

struct filter_trailer {
	le32 lines;
	uint8_t probes;
	uint8_t reserved[3];
};
KV_DISK_SIZE(filter_trailer, 8);

uint64_t kv_filter_hash(struct kv_slice user_key)
{
	return kv_checksum(user_key, HASH_SEED);
}

/* The upper half of the hash chooses the line. */
static size_t line_offset(uint64_t hash, uint32_t lines)
{
	return (size_t)((hash >> 32) * lines >> 32) * LINE_BYTES;
}

/* A sequence of bit numbers of the line, from all of the hash: the top of each product. */
static uint32_t next_bit(uint64_t *state)
{
	*state = (*state ^ *state >> 29) * 0x9e3779b97f4a7c15;
	return (uint32_t)(*state >> 55);
}

/*
 * ln 2 bits per key would be best if the bits were spread over all of the filter; in one line
 * some fewer are, and they cost less.
 */
static uint8_t probes_for(uint32_t bits_per_key)
{
	uint32_t probes = bits_per_key * 6 / 10;

	return (uint8_t)KV_MIN(KV_MAX(probes, 1u), (uint32_t)PROBES_MAX);
}

int kv_filter_build(const uint64_t *hashes, size_t n, uint32_t bits_per_key, struct kv_buf *out)
{
	struct filter_trailer trailer = { .probes = probes_for(bits_per_key) };
	uint64_t lines = ((uint64_t)n * bits_per_key + LINE_BITS - 1) / LINE_BITS;
	uint8_t *at;

	lines = KV_MAX(lines, (uint64_t)1);
	if (lines > UINT32_MAX)
		return KV_E_too_big;
	at = kv_buf_grow(out, (size_t)lines * LINE_BYTES + sizeof(trailer));
	if (!at)
		return -ENOMEM;
	memset(at, 0, (size_t)lines * LINE_BYTES);
	for (size_t i = 0; i < n; i++) {
		uint8_t *line = at + line_offset(hashes[i], (uint32_t)lines);
		uint64_t state = hashes[i];

		for (uint32_t p = 0; p < trailer.probes; p++) {
			uint32_t bit = next_bit(&state);

			line[bit / 8] |= (uint8_t)(1 << bit % 8);
		}
	}
	trailer.lines = kv_le32((uint32_t)lines);
	memcpy(at + (size_t)lines * LINE_BYTES, &trailer, sizeof(trailer));
	return 0;
}

bool kv_filter_may_contain(struct kv_slice filter, uint64_t hash)
{
	struct filter_trailer trailer;
	const uint8_t *line;
	uint32_t lines;

	if (filter.bytes < sizeof(trailer))
		return true;
	memcpy(&trailer, (const uint8_t *)filter.data + filter.bytes - sizeof(trailer),
	       sizeof(trailer));
	lines = kv_le32_get(trailer.lines);
	if (!lines || filter.bytes != (uint64_t)lines * LINE_BYTES + sizeof(trailer) ||
	    !trailer.probes || trailer.probes > PROBES_MAX || trailer.reserved[0] ||
	    trailer.reserved[1] || trailer.reserved[2])
		return true;
	line = (const uint8_t *)filter.data + line_offset(hash, lines);
	for (uint32_t p = 0; p < trailer.probes; p++) {
		uint32_t bit = next_bit(&hash);

		if (!(line[bit / 8] & 1 << bit % 8))
			return false;
	}
	return true;
}
