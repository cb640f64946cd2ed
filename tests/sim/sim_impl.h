/*
 * The inside of the disk in memory, for its own files only (env_sim.h is for everybody). One
 * mutex, sim.mu, guards all; functions here are called with it held.
 */
#ifndef TESTS_SIM_IMPL_H
#define TESTS_SIM_IMPL_H

#include <stdatomic.h>

#include "kv/list.h"
#include "kv/lock.h"
#include "tests/sim/env_sim.h"

#define BLOCK_BYTES 4096
#define SECTORS (BLOCK_BYTES / KV_SIM_SECTOR_BYTES)
#define FILE_BYTES_MAX ((uint64_t)1 << 36)

_Static_assert(SECTORS == 8, "a byte has one bit for each sector of a block");

/* Never changed while there is more than one reference. */
struct block {
	atomic_uint refs;
	uint8_t data[BLOCK_BYTES];
};

struct slot {
	struct block *current, *durable; /* NULL: zeros */
	uint8_t dirty;			/* a bit for each sector */
	bool reserved, reserved_durable; /* allocated, also without content */
};

struct inode {
	struct kv_link link;	/* on sim.inodes */
	unsigned refs;		/* entries of either set, steps, handles */
	unsigned links;		/* current entries */
	unsigned opens;		/* living handles */
	struct slot *slots;
	size_t slot_count;
	uint64_t bytes, bytes_durable;
	uint64_t used;		/* bytes of blocks, current or reserved */
	bool lost;		/* a sync has failed */
	unsigned lock_shared;
	bool lock_exclusive;
	struct inode *copy;	/* while cloning */
};

struct entry {
	char name[KV_SIM_NAME_BYTES_MAX];
	struct inode *inode;
};

struct entries {
	struct entry *e;
	size_t count, max;
};

/* The inode gets the name `to`, and loses `from`; an empty name is none. */
struct step {
	char from[KV_SIM_NAME_BYTES_MAX], to[KV_SIM_NAME_BYTES_MAX];
	struct inode *inode;
	bool dropped;		/* while crashing */
};

struct dir {
	char *path;
	struct entries current, durable;
	struct step *steps;
	size_t step_count, step_max;
	bool removed;		/* found no more, but handles may lead to it */
};

struct sim {
	struct kv_env env;

	struct kv_mutex mu;	/* guards all below */
	struct kv_link inodes;
	struct dir **dirs;
	size_t dir_count;
	uint64_t epoch;		/* a handle of another one is dead */
	uint64_t handles;
	uint64_t rng, now_ns;
	uint64_t capacity, used;
	uint64_t ops, stop_at;
	bool stop_torn, stopped;
	struct kv_sim_fault faults[KV_SIM_FAULTS_MAX];
	size_t fault_count;
	uint64_t faults_hit;
	kv_env_sim_hook_fn *hook;
	void *hook_arg;
	bool links_guarded;
};

struct dir_handle {
	struct sim *sim;
	struct dir *dir;
	uint64_t epoch;
};

struct file_handle {
	struct sim *sim;
	struct inode *inode;
	uint64_t epoch;
	char name[KV_SIM_NAME_BYTES_MAX];
	bool writable;
	enum { LOCK_NONE, LOCK_SHARED, LOCK_EXCLUSIVE } lock;
};

static inline struct sim *to_sim(struct kv_env *env)
{
	return kv_container_of(env, struct sim, env);
}

/* --- files (sim_disk.c) ---------------------------------------------------- */

/* The memory; a test that runs out of it has nothing to tell. See kv_env_sim_allocates. */
void *sim_have(void *p);
#define sim_must(p) (kv_env_sim_allocates++, sim_have(p))
uint64_t sim_draw(uint64_t *rng);
struct block *sim_block_ref(struct block *b);
void sim_block_set(struct block **at, struct block *b);
uint8_t *sim_block_write(struct block **at);
struct inode *sim_inode_new(struct sim *sim);
struct inode *sim_inode_ref(struct inode *ino);
void sim_inode_unref(struct inode *ino);
void sim_inode_gains(struct sim *sim, struct inode *ino, unsigned *what);
void sim_inode_loses(struct sim *sim, struct inode *ino, unsigned *what);
bool sim_slot_used(const struct slot *slot);
void sim_slots_reach(struct inode *ino, uint64_t bytes);
int sim_inode_write(struct sim *sim, struct inode *ino, uint64_t offset, const uint8_t *from,
		       size_t bytes);
size_t sim_inode_read(const struct inode *ino, uint64_t offset, uint8_t *to, size_t bytes);
void sim_inode_cut(struct sim *sim, struct inode *ino, uint64_t bytes);
int sim_inode_allocate(struct sim *sim, struct inode *ino, uint64_t offset, uint64_t end);
void sim_inode_sync(struct inode *ino);
void sim_inode_lose(struct inode *ino);
void sim_inode_crash(struct sim *sim, struct inode *ino, enum kv_sim_crash how, uint64_t *rng);
struct inode *sim_inode_clone(struct sim *to, const struct inode *ino);

/* --- directories (sim_dir.c) ----------------------------------------------- */

void sim_name_set(char *to, const char *name);
struct entry *sim_entries_find(const struct entries *s, const char *name);
void sim_entries_clear(struct entries *s);
void sim_apply(struct entries *s, const struct step *step);
void sim_take_step(struct sim *sim, struct dir *dir, const char *from, const char *to,
		   struct inode *ino);
void sim_forget_steps(struct dir *dir);
void sim_dir_crash(struct dir *dir, enum kv_sim_crash how, uint64_t *rng);
struct dir *sim_dir_find(struct sim *sim, const char *path);
struct dir *sim_dir_add(struct sim *sim, const char *path);
void sim_dir_free(struct dir *dir);
void sim_dir_clone(struct sim *to, const struct dir *dir);
void sim_recount(struct sim *sim);

/* --- calls (sim_fault.c) --------------------------------------------------- */

void sim_announce(struct sim *sim, enum kv_sim_op op, const char *name);
int sim_begin(struct sim *sim, uint64_t epoch, enum kv_sim_op op, const char *name,
		 const char *name2, bool *out_touched);
int sim_check_name(const char *name);

/* --- the whole (env_sim.c) ------------------------------------------------- */

struct sim *sim_new(uint64_t rng);

#endif
