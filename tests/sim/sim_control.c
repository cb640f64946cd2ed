/*
 * What tests do to the disk as a whole: clone it, crash it, fill it, damage it, look at it.
 */
#include <errno.h>
#include <stdlib.h>

#include "kv/checksum.h"
#include "tests/sim/sim_impl.h"

struct kv_env *kv_env_sim_clone(struct kv_env *env)
{
	struct sim *sim = to_sim(env), *copy;

	kv_mutex_lock(&sim->mu);
	copy = sim_new(sim->rng);
	copy->now_ns = sim->now_ns;
	copy->capacity = sim->capacity;
	copy->links_guarded = sim->links_guarded;
	/* The reference lets go of what is only held open. */
	kv_list_for_each(l, &sim->inodes) {
		struct inode *ino = kv_container_of(l, struct inode, link);

		ino->copy = sim_inode_ref(sim_inode_clone(copy, ino));
	}
	for (size_t i = 0; i < sim->dir_count; i++)
		if (!sim->dirs[i]->removed)
			sim_dir_clone(copy, sim->dirs[i]);
	kv_list_for_each(l, &sim->inodes)
		sim_inode_unref(kv_container_of(l, struct inode, link)->copy);
	kv_mutex_unlock(&sim->mu);
	sim_recount(copy);
	return &copy->env;
}

void kv_env_sim_crash(struct kv_env *env, enum kv_sim_crash how, uint64_t seed)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->epoch++;
	sim->stopped = false;
	sim->stop_at = UINT64_MAX;
	for (size_t i = 0; i < sim->dir_count; i++)
		sim_dir_crash(sim->dirs[i], how, &seed);
	kv_list_for_each(l, &sim->inodes)
		sim_inode_crash(sim, kv_container_of(l, struct inode, link), how, &seed);
	sim_recount(sim);
	kv_mutex_unlock(&sim->mu);
}

void kv_env_sim_guard_links(struct kv_env *env)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->links_guarded = true;
	kv_mutex_unlock(&sim->mu);
}

void kv_env_sim_set_capacity(struct kv_env *env, uint64_t bytes)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->capacity = bytes;
	kv_mutex_unlock(&sim->mu);
}

uint64_t kv_env_sim_used(struct kv_env *env)
{
	struct sim *sim = to_sim(env);
	uint64_t used;

	kv_mutex_lock(&sim->mu);
	used = sim->used;
	kv_mutex_unlock(&sim->mu);
	return used;
}

static struct entry *entry_of(struct sim *sim, const char *path, const char *name)
{
	struct dir *dir = sim_dir_find(sim, path);

	return dir ? sim_entries_find(&dir->current, name) : NULL;
}

static int flip_locked(struct sim *sim, const char *path, const char *name, uint64_t offset,
		       uint8_t mask)
{
	struct entry *e = entry_of(sim, path, name);
	size_t at = (size_t)(offset % BLOCK_BYTES);
	struct slot *slot;
	bool same;

	if (!e)
		return -ENOENT;
	if (offset >= e->inode->bytes)
		return -EINVAL;
	sim_slots_reach(e->inode, offset + 1);
	slot = &e->inode->slots[offset / BLOCK_BYTES];
	same = slot->current == slot->durable;
	if (!sim_slot_used(slot)) {	/* a hole gets a block, full disk or not */
		e->inode->used += BLOCK_BYTES;
		sim->used += BLOCK_BYTES;
	}
	if (same)
		sim_block_set(&slot->durable, NULL);
	sim_block_write(&slot->current)[at] ^= mask;
	if (same)
		sim_block_set(&slot->durable, sim_block_ref(slot->current));
	else
		sim_block_write(&slot->durable)[at] ^= mask;
	return 0;
}

int kv_env_sim_flip(struct kv_env *env, const char *path, const char *name, uint64_t offset,
		    uint8_t mask)
{
	struct sim *sim = to_sim(env);
	int err;

	kv_mutex_lock(&sim->mu);
	err = flip_locked(sim, path, name, offset, mask);
	kv_mutex_unlock(&sim->mu);
	return err;
}

int kv_env_sim_unsynced(struct kv_env *env, const char *path, const char *name,
			uint64_t *out_bytes)
{
	struct sim *sim = to_sim(env);
	struct entry *e;
	uint64_t sectors = 0;

	kv_mutex_lock(&sim->mu);
	e = entry_of(sim, path, name);
	for (size_t i = 0; e && i < e->inode->slot_count; i++)
		sectors += (uint64_t)__builtin_popcount(e->inode->slots[i].dirty);
	kv_mutex_unlock(&sim->mu);
	if (!e)
		return -ENOENT;
	*out_bytes = sectors * KV_SIM_SECTOR_BYTES;
	return 0;
}

static bool name_durable_locked(const struct dir *dir, const struct entry *e)
{
	const struct entry *durable = sim_entries_find(&dir->durable, e->name);

	for (size_t i = 0; i < dir->step_count; i++)
		if (!strcmp(dir->steps[i].from, e->name) || !strcmp(dir->steps[i].to, e->name))
			return false;
	return durable && durable->inode == e->inode;
}

int kv_env_sim_name_durable(struct kv_env *env, const char *path, const char *name,
			    bool *out_durable)
{
	struct sim *sim = to_sim(env);
	struct entry *e;

	kv_mutex_lock(&sim->mu);
	e = entry_of(sim, path, name);
	if (e)
		*out_durable = name_durable_locked(sim_dir_find(sim, path), e);
	kv_mutex_unlock(&sim->mu);
	return e ? 0 : -ENOENT;
}

void kv_env_sim_advance(struct kv_env *env, uint64_t ns)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->now_ns += ns;
	kv_mutex_unlock(&sim->mu);
}

/* What is not there and zeros are the same. */
static uint64_t content_hash(const struct inode *ino, uint64_t hash)
{
	static const uint8_t zeros[BLOCK_BYTES];

	hash = kv_checksum(kv_slice(&ino->bytes, sizeof(ino->bytes)), hash);
	for (size_t i = 0; i < ino->slot_count && i * BLOCK_BYTES < ino->bytes; i++) {
		const struct block *b = ino->slots[i].current;
		uint64_t seed = hash + i;

		if (b && memcmp(b->data, zeros, BLOCK_BYTES))
			hash ^= kv_checksum(kv_slice(b->data, BLOCK_BYTES), seed);
	}
	return hash;
}

uint64_t kv_env_sim_hash(struct kv_env *env)
{
	struct sim *sim = to_sim(env);
	uint64_t sum = 0;	/* the order of names says nothing */

	kv_mutex_lock(&sim->mu);
	for (size_t d = 0; d < sim->dir_count; d++) {
		const struct dir *dir = sim->dirs[d];
		uint64_t path;

		if (dir->removed)
			continue;
		path = kv_checksum(kv_slice_str(dir->path), 0);
		sum += path;
		for (size_t i = 0; i < dir->current.count; i++) {
			const struct entry *e = &dir->current.e[i];

			sum += content_hash(e->inode, kv_checksum(kv_slice_str(e->name), path));
		}
	}
	kv_mutex_unlock(&sim->mu);
	return sum;
}
