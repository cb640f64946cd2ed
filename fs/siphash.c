/*
 * Written from the paper: a state of four words, two rounds for each word of the
 * message, four to finish. The last word carries the message's length in its top byte.
 */
#include "fs/siphash.h"

#include "kv/coding.h"

struct sip {
	uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t n, int bits)
{
	return n << bits | n >> (64 - bits);
}

static inline void sip_rounds(struct sip *s, int rounds)
{
	for (; rounds > 0; rounds--) {
		s->v0 += s->v1;
		s->v2 += s->v3;
		s->v1 = rotl(s->v1, 13) ^ s->v0;
		s->v3 = rotl(s->v3, 16) ^ s->v2;
		s->v0 = rotl(s->v0, 32);
		s->v2 += s->v1;
		s->v0 += s->v3;
		s->v1 = rotl(s->v1, 17) ^ s->v2;
		s->v3 = rotl(s->v3, 21) ^ s->v0;
		s->v2 = rotl(s->v2, 32);
	}
}

static inline void sip_word(struct sip *s, uint64_t m)
{
	s->v3 ^= m;
	sip_rounds(s, 2);
	s->v0 ^= m;
}

static uint64_t load(const uint8_t *at, size_t bytes)
{
	uint64_t n = 0;

	for (size_t i = 0; i < bytes; i++)
		n |= (uint64_t)at[i] << 8 * i;
	return n;
}

uint64_t fs_siphash(const uint8_t key[FS_SIPHASH_KEY_BYTES], struct kv_slice in)
{
	uint64_t k0 = load(key, 8), k1 = load(key + 8, 8);
	struct sip s = {
		k0 ^ 0x736f6d6570736575,
		k1 ^ 0x646f72616e646f6d,
		k0 ^ 0x6c7967656e657261,
		k1 ^ 0x7465646279746573,
	};
	const uint8_t *at = in.data;
	size_t left = in.bytes;

	for (; left >= 8; left -= 8, at += 8)
		sip_word(&s, load(at, 8));
	sip_word(&s, load(at, left) | (uint64_t)in.bytes << 56);
	s.v2 ^= 0xff;
	sip_rounds(&s, 4);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
