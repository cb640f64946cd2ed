/*
 * What is in files, and what of it a crash leaves: inodes made of shared blocks.
 *
 * Invariant of an inode, unless a sync has failed (lost): outside its dirty
 * sectors, current and durable content are equal, zeros standing for what is
 * not there. Behind its size the current content is zeros.
 */
#include <errno.h>
#include <stdlib.h>

#include "tests/sim/sim_impl.h"

_Thread_local volatile unsigned kv_env_sim_allocates;

void *sim_have(void *p)
{
	kv_env_sim_allocates--;
	KV_ASSERT(p);
	return p;
}

/* splitmix64 */
uint64_t sim_draw(uint64_t *rng)
{
	uint64_t z = *rng += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* --- blocks ---------------------------------------------------------------------------- */

struct block *sim_block_ref(struct block *b)
{
	if (b)
		atomic_fetch_add(&b->refs, 1);
	return b;
}

void sim_block_set(struct block **at, struct block *b)
{
	struct block *old = *at;

	*at = b;
	if (old && atomic_fetch_sub(&old->refs, 1) == 1)
		free(old);
}

/* A block of one's own, with the content of b. */
static struct block *block_copy(const struct block *b)
{
	struct block *copy = sim_must(malloc(sizeof(*copy)));

	atomic_init(&copy->refs, 1);
	if (b)
		memcpy(copy->data, b->data, BLOCK_BYTES);
	else
		memset(copy->data, 0, BLOCK_BYTES);
	return copy;
}

uint8_t *sim_block_write(struct block **at)
{
	if (!*at || atomic_load(&(*at)->refs) != 1)
		sim_block_set(at, block_copy(*at));
	return (*at)->data;
}

/* base, with the sectors of mask as in over; returns a reference. */
static struct block *block_mix(struct block *base, struct block *over, uint8_t mask)
{
	struct block *b;

	if (!mask || base == over)
		return sim_block_ref(base);
	b = block_copy(base);
	for (unsigned i = 0; i < SECTORS; i++) {
		uint8_t *to = b->data + i * KV_SIM_SECTOR_BYTES;

		if (!(mask >> i & 1))
			continue;
		if (over)
			memcpy(to, over->data + i * KV_SIM_SECTOR_BYTES, KV_SIM_SECTOR_BYTES);
		else
			memset(to, 0, KV_SIM_SECTOR_BYTES);
	}
	return b;
}

/* --- inodes ----------------------------------------------------------------------------- */

struct inode *sim_inode_new(struct sim *sim)
{
	struct inode *ino = sim_must(calloc(1, sizeof(*ino)));

	kv_list_push_back(&sim->inodes, &ino->link);
	return ino;
}

struct inode *sim_inode_ref(struct inode *ino)
{
	ino->refs++;
	return ino;
}

void sim_inode_unref(struct inode *ino)
{
	if (--ino->refs)
		return;
	for (size_t i = 0; i < ino->slot_count; i++) {
		sim_block_set(&ino->slots[i].current, NULL);
		sim_block_set(&ino->slots[i].durable, NULL);
	}
	kv_list_remove(&ino->link);
	free(ino->slots);
	free(ino);
}

static bool inode_counts(const struct inode *ino)
{
	return ino->links || ino->opens;
}

/* Links and opens change by these only, as the last of either frees the space. */
void sim_inode_gains(struct sim *sim, struct inode *ino, unsigned *what)
{
	if (!inode_counts(ino))
		sim->used += ino->used;
	++*what;
}

void sim_inode_loses(struct sim *sim, struct inode *ino, unsigned *what)
{
	--*what;
	if (!inode_counts(ino))
		sim->used -= ino->used;
}

bool sim_slot_used(const struct slot *slot)
{
	return slot->current || slot->reserved;
}

void sim_slots_reach(struct inode *ino, uint64_t bytes)
{
	size_t count = (size_t)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
	size_t old = ino->slot_count;

	if (count <= old)
		return;
	count = KV_MAX(count, old + old / 2);
	ino->slots = sim_must(realloc(ino->slots, count * sizeof(*ino->slots)));
	memset(ino->slots + old, 0, (count - old) * sizeof(*ino->slots));
	ino->slot_count = count;
}

static bool take_block(struct sim *sim, struct inode *ino)
{
	if (sim->used > sim->capacity || sim->capacity - sim->used < BLOCK_BYTES)
		return false;
	ino->used += BLOCK_BYTES;
	sim->used += BLOCK_BYTES;
	return true;
}

/* The bits of the sectors that [begin, end) of a block touches. */
static uint8_t sector_mask(size_t begin, size_t end)
{
	size_t first = begin / KV_SIM_SECTOR_BYTES;
	size_t behind = (end + KV_SIM_SECTOR_BYTES - 1) / KV_SIM_SECTOR_BYTES;

	return (uint8_t)((1u << behind) - (1u << first));
}

int sim_inode_write(struct sim *sim, struct inode *ino, uint64_t offset, const uint8_t *from,
		       size_t bytes)
{
	sim_slots_reach(ino, offset + bytes);
	while (bytes) {
		struct slot *slot = &ino->slots[offset / BLOCK_BYTES];
		size_t at = (size_t)(offset % BLOCK_BYTES), n = KV_MIN(bytes, BLOCK_BYTES - at);

		if (!sim_slot_used(slot) && !take_block(sim, ino))
			return -ENOSPC;
		memcpy(sim_block_write(&slot->current) + at, from, n);
		slot->dirty |= sector_mask(at, at + n);
		offset += n;
		from += n;
		bytes -= n;
		ino->bytes = KV_MAX(ino->bytes, offset);
	}
	return 0;
}

size_t sim_inode_read(const struct inode *ino, uint64_t offset, uint8_t *to, size_t bytes)
{
	size_t done;

	if (offset >= ino->bytes)
		return 0;
	bytes = (size_t)KV_MIN(bytes, ino->bytes - offset);
	for (done = 0; done < bytes;) {
		size_t i = (size_t)(offset / BLOCK_BYTES), at = (size_t)(offset % BLOCK_BYTES);
		size_t n = KV_MIN(bytes - done, BLOCK_BYTES - at);
		const struct block *b = i < ino->slot_count ? ino->slots[i].current : NULL;

		if (b)
			memcpy(to + done, b->data + at, n);
		else
			memset(to + done, 0, n);
		done += n;
		offset += n;
	}
	return done;
}

/* Zeros behind the size, and gives back the blocks there. */
void sim_inode_cut(struct sim *sim, struct inode *ino, uint64_t bytes)
{
	size_t at = (size_t)(bytes % BLOCK_BYTES), i = (size_t)(bytes / BLOCK_BYTES);

	ino->bytes = bytes;
	if (at && i < ino->slot_count && ino->slots[i].current) {
		memset(sim_block_write(&ino->slots[i].current) + at, 0, BLOCK_BYTES - at);
		ino->slots[i].dirty |= sector_mask(at, BLOCK_BYTES);
	}
	for (i += at != 0; i < ino->slot_count; i++) {
		struct slot *slot = &ino->slots[i];

		if (sim_slot_used(slot)) {
			ino->used -= BLOCK_BYTES;
			if (inode_counts(ino))
				sim->used -= BLOCK_BYTES;
		}
		if (slot->current || slot->durable)
			slot->dirty = sector_mask(0, BLOCK_BYTES);
		sim_block_set(&slot->current, NULL);
		slot->reserved = false;
	}
}

/* All or nothing. */
int sim_inode_allocate(struct sim *sim, struct inode *ino, uint64_t offset, uint64_t end)
{
	uint64_t need = 0;

	sim_slots_reach(ino, end);
	for (uint64_t i = offset / BLOCK_BYTES; i * BLOCK_BYTES < end; i++)
		need += sim_slot_used(&ino->slots[i]) ? 0 : BLOCK_BYTES;
	if (need && (sim->used > sim->capacity || sim->capacity - sim->used < need))
		return -ENOSPC;
	for (uint64_t i = offset / BLOCK_BYTES; i * BLOCK_BYTES < end; i++)
		ino->slots[i].reserved = true;
	ino->used += need;
	sim->used += need;
	return 0;
}

void sim_inode_sync(struct inode *ino)
{
	for (size_t i = 0; i < ino->slot_count; i++) {
		struct slot *slot = &ino->slots[i];

		if (slot->dirty)
			sim_block_set(&slot->durable,
				  ino->lost ? block_mix(slot->durable, slot->current, slot->dirty) :
					      sim_block_ref(slot->current));
		slot->dirty = 0;
		slot->reserved_durable = slot->reserved;
	}
	ino->bytes_durable = ino->bytes;
}

/* What was dirty is clean, and not durable. The size is less easily lost. */
void sim_inode_lose(struct inode *ino)
{
	for (size_t i = 0; i < ino->slot_count; i++)
		ino->slots[i].dirty = 0;
	ino->lost = true;
}

/* Any size between, now and then the one or the other itself. */
static uint64_t draw_size(const struct inode *ino, uint64_t *rng)
{
	uint64_t low = KV_MIN(ino->bytes, ino->bytes_durable);
	uint64_t high = KV_MAX(ino->bytes, ino->bytes_durable);

	switch (sim_draw(rng) % 3) {
	case 0:
		return low;
	case 1:
		return high;
	default:
		return low + sim_draw(rng) % (high - low + 1);
	}
}

void sim_inode_crash(struct sim *sim, struct inode *ino, enum kv_sim_crash how, uint64_t *rng)
{
	uint64_t bytes;

	/* Some files as a whole, as that is what finds most. */
	if (how == KV_SIM_RANDOM && sim_draw(rng) % 2)
		how = sim_draw(rng) % 2 ? KV_SIM_DROP_ALL : KV_SIM_KEEP_ALL;
	bytes = how == KV_SIM_DROP_ALL ? ino->bytes_durable :
		how == KV_SIM_KEEP_ALL ? ino->bytes : draw_size(ino, rng);
	for (size_t i = 0; i < ino->slot_count; i++) {
		struct slot *slot = &ino->slots[i];
		uint8_t kept = how == KV_SIM_DROP_ALL ? 0 : slot->dirty;

		if (how == KV_SIM_RANDOM && slot->dirty)
			kept &= (uint8_t)sim_draw(rng);
		if ((slot->dirty || ino->lost) && (ino->lost || kept != slot->dirty))
			sim_block_set(&slot->current, block_mix(slot->durable, slot->current, kept));
		if (slot->reserved != slot->reserved_durable &&
		    (how == KV_SIM_DROP_ALL || (how == KV_SIM_RANDOM && sim_draw(rng) % 2)))
			slot->reserved = slot->reserved_durable;
	}
	ino->lost = false;
	sim_inode_cut(sim, ino, bytes);
	ino->used = 0;
	for (size_t i = 0; i < ino->slot_count; i++) {
		struct slot *slot = &ino->slots[i];

		if (slot->durable != slot->current)
			sim_block_set(&slot->durable, sim_block_ref(slot->current));
		slot->dirty = 0;
		slot->reserved_durable = slot->reserved;
		ino->used += sim_slot_used(slot) ? BLOCK_BYTES : 0;
	}
	ino->bytes_durable = bytes;
}

struct inode *sim_inode_clone(struct sim *to, const struct inode *ino)
{
	struct inode *copy = sim_inode_new(to);

	copy->slots = sim_must(calloc(ino->slot_count + 1, sizeof(*copy->slots)));
	copy->slot_count = ino->slot_count;
	for (size_t i = 0; i < ino->slot_count; i++) {
		copy->slots[i] = ino->slots[i];
		sim_block_ref(copy->slots[i].current);
		sim_block_ref(copy->slots[i].durable);
	}
	copy->bytes = ino->bytes;
	copy->bytes_durable = ino->bytes_durable;
	copy->used = ino->used;
	copy->lost = ino->lost;
	return copy;
}
