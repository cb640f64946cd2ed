/*
 * The disk in memory: inodes made of shared blocks, directories made of two
 * sets of entries and the steps that lead from one to the other.
 *
 * Invariant of an inode, unless a sync has failed (lost): outside its dirty
 * sectors, current and durable content are equal, zeros standing for what is
 * not there. Behind its size the current content is zeros.
 */
#include "tests/sim/env_sim.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kv/list.h"
#include "kv/lock.h"

#define BLOCK_BYTES 4096
#define SECTORS (BLOCK_BYTES / KV_SIM_SECTOR_BYTES)
#define FILE_BYTES_MAX ((uint64_t)1 << 36)
#define BYTES_UNLIMITED ((uint64_t)1 << 50)	/* what space() tells of such a disk */
#define CLOCK_TICK_NS 1000
#define EPOCH_NS ((uint64_t)1000000000 * 1000000000) /* what people's clock shows at first */
#define PATH_BYTES_MAX 4096

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

static struct sim *to_sim(struct kv_env *env)
{
	return kv_container_of(env, struct sim, env);
}

static struct dir_handle *to_dir(struct kv_env_dir *dir)
{
	return (struct dir_handle *)(void *)dir;
}

static struct file_handle *to_file(struct kv_env_file *file)
{
	return (struct file_handle *)(void *)file;
}

/* A test that runs out of memory has nothing to tell. */
static void *must(void *p)
{
	KV_ASSERT(p);
	return p;
}

/* splitmix64 */
static uint64_t draw(uint64_t *rng)
{
	uint64_t z = *rng += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* --- blocks ---------------------------------------------------------------------------- */

static struct block *block_ref(struct block *b)
{
	if (b)
		atomic_fetch_add(&b->refs, 1);
	return b;
}

static void block_set(struct block **at, struct block *b)
{
	struct block *old = *at;

	*at = b;
	if (old && atomic_fetch_sub(&old->refs, 1) == 1)
		free(old);
}

/* A block of one's own, with the content of b. */
static struct block *block_copy(const struct block *b)
{
	struct block *copy = must(malloc(sizeof(*copy)));

	atomic_init(&copy->refs, 1);
	if (b)
		memcpy(copy->data, b->data, BLOCK_BYTES);
	else
		memset(copy->data, 0, BLOCK_BYTES);
	return copy;
}

static uint8_t *block_write(struct block **at)
{
	if (!*at || atomic_load(&(*at)->refs) != 1)
		block_set(at, block_copy(*at));
	return (*at)->data;
}

/* base, with the sectors of mask as in over; returns a reference. */
static struct block *block_mix(struct block *base, struct block *over, uint8_t mask)
{
	struct block *b;

	if (!mask || base == over)
		return block_ref(base);
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

static struct inode *inode_new(struct sim *sim)
{
	struct inode *ino = must(calloc(1, sizeof(*ino)));

	kv_list_push_back(&sim->inodes, &ino->link);
	return ino;
}

static struct inode *inode_ref(struct inode *ino)
{
	ino->refs++;
	return ino;
}

static void inode_unref(struct inode *ino)
{
	if (--ino->refs)
		return;
	for (size_t i = 0; i < ino->slot_count; i++) {
		block_set(&ino->slots[i].current, NULL);
		block_set(&ino->slots[i].durable, NULL);
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
static void inode_gains(struct sim *sim, struct inode *ino, unsigned *what)
{
	if (!inode_counts(ino))
		sim->used += ino->used;
	++*what;
}

static void inode_loses(struct sim *sim, struct inode *ino, unsigned *what)
{
	--*what;
	if (!inode_counts(ino))
		sim->used -= ino->used;
}

static bool slot_used(const struct slot *slot)
{
	return slot->current || slot->reserved;
}

static void slots_reach(struct inode *ino, uint64_t bytes)
{
	size_t count = (size_t)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
	size_t old = ino->slot_count;

	if (count <= old)
		return;
	count = KV_MAX(count, old + old / 2);
	ino->slots = must(realloc(ino->slots, count * sizeof(*ino->slots)));
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

static int inode_write(struct sim *sim, struct inode *ino, uint64_t offset, const uint8_t *from,
		       size_t bytes)
{
	slots_reach(ino, offset + bytes);
	while (bytes) {
		struct slot *slot = &ino->slots[offset / BLOCK_BYTES];
		size_t at = (size_t)(offset % BLOCK_BYTES), n = KV_MIN(bytes, BLOCK_BYTES - at);

		if (!slot_used(slot) && !take_block(sim, ino))
			return -ENOSPC;
		memcpy(block_write(&slot->current) + at, from, n);
		slot->dirty |= sector_mask(at, at + n);
		offset += n;
		from += n;
		bytes -= n;
		ino->bytes = KV_MAX(ino->bytes, offset);
	}
	return 0;
}

static size_t inode_read(const struct inode *ino, uint64_t offset, uint8_t *to, size_t bytes)
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
static void inode_cut(struct sim *sim, struct inode *ino, uint64_t bytes)
{
	size_t at = (size_t)(bytes % BLOCK_BYTES), i = (size_t)(bytes / BLOCK_BYTES);

	ino->bytes = bytes;
	if (at && i < ino->slot_count && ino->slots[i].current) {
		memset(block_write(&ino->slots[i].current) + at, 0, BLOCK_BYTES - at);
		ino->slots[i].dirty |= sector_mask(at, BLOCK_BYTES);
	}
	for (i += at != 0; i < ino->slot_count; i++) {
		struct slot *slot = &ino->slots[i];

		if (slot_used(slot)) {
			ino->used -= BLOCK_BYTES;
			if (inode_counts(ino))
				sim->used -= BLOCK_BYTES;
		}
		if (slot->current || slot->durable)
			slot->dirty = sector_mask(0, BLOCK_BYTES);
		block_set(&slot->current, NULL);
		slot->reserved = false;
	}
}

/* All or nothing. */
static int inode_allocate(struct sim *sim, struct inode *ino, uint64_t offset, uint64_t end)
{
	uint64_t need = 0;

	slots_reach(ino, end);
	for (uint64_t i = offset / BLOCK_BYTES; i * BLOCK_BYTES < end; i++)
		need += slot_used(&ino->slots[i]) ? 0 : BLOCK_BYTES;
	if (need && (sim->used > sim->capacity || sim->capacity - sim->used < need))
		return -ENOSPC;
	for (uint64_t i = offset / BLOCK_BYTES; i * BLOCK_BYTES < end; i++)
		ino->slots[i].reserved = true;
	ino->used += need;
	sim->used += need;
	return 0;
}

static void inode_sync(struct inode *ino)
{
	for (size_t i = 0; i < ino->slot_count; i++) {
		struct slot *slot = &ino->slots[i];

		if (slot->dirty)
			block_set(&slot->durable,
				  ino->lost ? block_mix(slot->durable, slot->current, slot->dirty) :
					      block_ref(slot->current));
		slot->dirty = 0;
		slot->reserved_durable = slot->reserved;
	}
	ino->bytes_durable = ino->bytes;
}

/* What was dirty is clean, and not durable. The size is less easily lost. */
static void inode_lose(struct inode *ino)
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

	switch (draw(rng) % 3) {
	case 0:
		return low;
	case 1:
		return high;
	default:
		return low + draw(rng) % (high - low + 1);
	}
}

static void inode_crash(struct sim *sim, struct inode *ino, enum kv_sim_crash how, uint64_t *rng)
{
	uint64_t bytes;

	/* Some files as a whole, as that is what finds most. */
	if (how == KV_SIM_RANDOM && draw(rng) % 2)
		how = draw(rng) % 2 ? KV_SIM_DROP_ALL : KV_SIM_KEEP_ALL;
	bytes = how == KV_SIM_DROP_ALL ? ino->bytes_durable :
		how == KV_SIM_KEEP_ALL ? ino->bytes : draw_size(ino, rng);
	for (size_t i = 0; i < ino->slot_count; i++) {
		struct slot *slot = &ino->slots[i];
		uint8_t kept = how == KV_SIM_DROP_ALL ? 0 : slot->dirty;

		if (how == KV_SIM_RANDOM && slot->dirty)
			kept &= (uint8_t)draw(rng);
		if ((slot->dirty || ino->lost) && (ino->lost || kept != slot->dirty))
			block_set(&slot->current, block_mix(slot->durable, slot->current, kept));
		if (slot->reserved != slot->reserved_durable &&
		    (how == KV_SIM_DROP_ALL || (how == KV_SIM_RANDOM && draw(rng) % 2)))
			slot->reserved = slot->reserved_durable;
	}
	ino->lost = false;
	inode_cut(sim, ino, bytes);
	ino->used = 0;
	for (size_t i = 0; i < ino->slot_count; i++) {
		struct slot *slot = &ino->slots[i];

		if (slot->durable != slot->current)
			block_set(&slot->durable, block_ref(slot->current));
		slot->dirty = 0;
		slot->reserved_durable = slot->reserved;
		ino->used += slot_used(slot) ? BLOCK_BYTES : 0;
	}
	ino->bytes_durable = bytes;
}

static struct inode *inode_clone(struct sim *to, const struct inode *ino)
{
	struct inode *copy = inode_new(to);

	copy->slots = must(calloc(ino->slot_count + 1, sizeof(*copy->slots)));
	copy->slot_count = ino->slot_count;
	for (size_t i = 0; i < ino->slot_count; i++) {
		copy->slots[i] = ino->slots[i];
		block_ref(copy->slots[i].current);
		block_ref(copy->slots[i].durable);
	}
	copy->bytes = ino->bytes;
	copy->bytes_durable = ino->bytes_durable;
	copy->used = ino->used;
	copy->lost = ino->lost;
	return copy;
}

/* --- directories ----------------------------------------------------------------------- */

static void name_set(char *to, const char *name)
{
	size_t bytes = strlen(name);

	KV_ASSERT(bytes < KV_SIM_NAME_BYTES_MAX);
	memcpy(to, name, bytes + 1);
}

static struct entry *entries_find(const struct entries *s, const char *name)
{
	for (size_t i = 0; i < s->count; i++)
		if (!strcmp(s->e[i].name, name))
			return &s->e[i];
	return NULL;
}

static void entries_remove(struct entries *s, struct entry *e)
{
	inode_unref(e->inode);
	*e = s->e[--s->count];
}

static void entries_put(struct entries *s, const char *name, struct inode *ino)
{
	struct entry *e = entries_find(s, name);

	inode_ref(ino);
	if (e) {
		inode_unref(e->inode);
		e->inode = ino;
		return;
	}
	if (s->count == s->max) {
		s->max = s->max ? s->max * 2 : 16;
		s->e = must(realloc(s->e, s->max * sizeof(*s->e)));
	}
	e = &s->e[s->count++];
	name_set(e->name, name);
	e->inode = ino;
}

static void entries_clear(struct entries *s)
{
	while (s->count)
		entries_remove(s, &s->e[s->count - 1]);
}

static void entries_copy(struct entries *to, const struct entries *from)
{
	for (size_t i = 0; i < from->count; i++)
		inode_ref(from->e[i].inode);
	entries_clear(to);
	for (size_t i = 0; i < from->count; i++) {
		entries_put(to, from->e[i].name, from->e[i].inode);
		inode_unref(from->e[i].inode);
	}
}

static void apply(struct entries *s, const struct step *step)
{
	struct entry *e;

	if (*step->to)
		entries_put(s, step->to, step->inode);
	if (*step->from) {
		e = entries_find(s, step->from);
		if (e)
			entries_remove(s, e);
	}
}

static void drop_link(struct sim *sim, struct dir *dir, const char *name)
{
	struct entry *e = entries_find(&dir->current, name);

	if (e)
		inode_loses(sim, e->inode, &e->inode->links);
}

/* Does the step in the current entries, and remembers it. */
static void take_step(struct sim *sim, struct dir *dir, const char *from, const char *to,
		      struct inode *ino)
{
	struct step *step;

	if (dir->step_count == dir->step_max) {
		dir->step_max = dir->step_max ? dir->step_max * 2 : 16;
		dir->steps = must(realloc(dir->steps, dir->step_max * sizeof(*dir->steps)));
	}
	step = &dir->steps[dir->step_count++];
	memset(step, 0, sizeof(*step));
	name_set(step->from, from);
	name_set(step->to, to);
	step->inode = inode_ref(ino);
	if (*to) {
		inode_gains(sim, ino, &ino->links);
		drop_link(sim, dir, to);
	}
	if (*from)
		drop_link(sim, dir, from);
	apply(&dir->current, step);
}

static void forget_steps(struct dir *dir)
{
	for (size_t i = 0; i < dir->step_count; i++)
		inode_unref(dir->steps[i].inode);
	dir->step_count = 0;
}

static bool share_a_name(const struct step *a, const struct step *b)
{
	return (*a->from && (!strcmp(a->from, b->from) || !strcmp(a->from, b->to))) ||
	       (*a->to && (!strcmp(a->to, b->from) || !strcmp(a->to, b->to)));
}

static bool is_dropped(const struct dir *dir, size_t i, enum kv_sim_crash how, uint64_t *rng)
{
	if (how != KV_SIM_RANDOM)
		return how == KV_SIM_DROP_ALL;
	for (size_t k = 0; k < i; k++)
		if (dir->steps[k].dropped && share_a_name(&dir->steps[k], &dir->steps[i]))
			return true;
	return draw(rng) % 2;
}

static void dir_crash(struct dir *dir, enum kv_sim_crash how, uint64_t *rng)
{
	if (how == KV_SIM_RANDOM && draw(rng) % 2)
		how = draw(rng) % 2 ? KV_SIM_DROP_ALL : KV_SIM_KEEP_ALL;
	for (size_t i = 0; i < dir->step_count; i++) {
		dir->steps[i].dropped = is_dropped(dir, i, how, rng);
		if (!dir->steps[i].dropped)
			apply(&dir->durable, &dir->steps[i]);
	}
	forget_steps(dir);
	entries_copy(&dir->current, &dir->durable);
}

static struct dir *dir_find(struct sim *sim, const char *path)
{
	for (size_t i = 0; i < sim->dir_count; i++)
		if (!sim->dirs[i]->removed && !strcmp(sim->dirs[i]->path, path))
			return sim->dirs[i];
	return NULL;
}

static struct dir *dir_add(struct sim *sim, const char *path)
{
	struct dir *dir = must(calloc(1, sizeof(*dir)));

	dir->path = must(strdup(path));
	sim->dirs = must(realloc(sim->dirs, (sim->dir_count + 1) * sizeof(struct dir *)));
	sim->dirs[sim->dir_count++] = dir;
	return dir;
}

static void dir_free(struct dir *dir)
{
	entries_clear(&dir->current);
	entries_clear(&dir->durable);
	forget_steps(dir);
	free(dir->current.e);
	free(dir->durable.e);
	free(dir->steps);
	free(dir->path);
	free(dir);
}

static void entries_clone(struct entries *to, const struct entries *from)
{
	for (size_t i = 0; i < from->count; i++)
		entries_put(to, from->e[i].name, from->e[i].inode->copy);
}

static void dir_clone(struct sim *to, const struct dir *dir)
{
	struct dir *copy = dir_add(to, dir->path);

	entries_clone(&copy->current, &dir->current);
	entries_clone(&copy->durable, &dir->durable);
	copy->steps = must(calloc(dir->step_count + 1, sizeof(*copy->steps)));
	copy->step_max = dir->step_count + 1;
	for (size_t i = 0; i < dir->step_count; i++) {
		copy->steps[i] = dir->steps[i];
		copy->steps[i].inode = inode_ref(dir->steps[i].inode->copy);
	}
	copy->step_count = dir->step_count;
}

/* Links of all inodes anew, and the space used, when nothing is open. */
static void recount(struct sim *sim)
{
	sim->used = 0;
	kv_list_for_each(l, &sim->inodes) {
		struct inode *ino = kv_container_of(l, struct inode, link);

		ino->links = ino->opens = ino->lock_shared = 0;
		ino->lock_exclusive = false;
	}
	for (size_t d = 0; d < sim->dir_count; d++)
		for (size_t i = 0; i < sim->dirs[d]->current.count; i++) {
			struct inode *ino = sim->dirs[d]->current.e[i].inode;

			inode_gains(sim, ino, &ino->links);
		}
}

/* --- what every call begins with ------------------------------------------------------------ */

static void announce(struct sim *sim, enum kv_sim_op op, const char *name)
{
	kv_env_sim_hook_fn *fn;
	void *arg;

	kv_mutex_lock(&sim->mu);
	fn = sim->stopped ? NULL : sim->hook;
	arg = sim->hook_arg;
	kv_mutex_unlock(&sim->mu);
	if (fn)
		fn(arg, &sim->env, op, name);
}

static bool has_suffix(const char *name, const char *suffix)
{
	size_t bytes, suffix_bytes = strlen(suffix);

	if (!name)
		return false;
	bytes = strlen(name);
	return bytes >= suffix_bytes && !strcmp(name + bytes - suffix_bytes, suffix);
}

static int fault_of(struct sim *sim, enum kv_sim_op op, const char *name, const char *name2)
{
	for (size_t i = 0; i < sim->fault_count; i++) {
		struct kv_sim_fault *f = &sim->faults[i];

		if (!(f->ops & op) || (f->suffix && !has_suffix(name, f->suffix) &&
				       !has_suffix(name2, f->suffix)))
			continue;
		if (f->after) {
			f->after--;
			continue;
		}
		if (!f->forever)
			f->ops = 0;
		sim->faults_hit++;
		return f->err;
	}
	return 0;
}

/*
 * May the call be made? *out_touched, which may be NULL, is true when a call
 * that fails now still has an effect: a part of a write, a loss by a sync.
 */
static int begin(struct sim *sim, uint64_t epoch, enum kv_sim_op op, const char *name,
		 const char *name2, bool *out_touched)
{
	int err;

	if (out_touched)
		*out_touched = false;
	if (epoch != sim->epoch || sim->stopped)
		return -EIO;
	if (op & KV_SIM_MUTATING && sim->ops++ >= sim->stop_at) {
		sim->stopped = true;
		if (out_touched)
			*out_touched = op == KV_SIM_WRITE && sim->stop_torn;
		return -EIO;
	}
	err = fault_of(sim, op, name, name2);
	if (err && out_touched)
		*out_touched = true;
	return err;
}

static int check_name(const char *name)
{
	if (!*name || strchr(name, '/'))
		return -EINVAL;
	return strlen(name) < KV_SIM_NAME_BYTES_MAX ? 0 : -ENAMETOOLONG;
}

/* --- calls on directories --------------------------------------------------------------------- */

static int dir_open_locked(struct sim *sim, const char *path, bool create, struct kv_env_dir **out)
{
	struct dir *dir = dir_find(sim, path);
	struct dir_handle *h;

	KV_TRY(begin(sim, sim->epoch, dir || !create ? KV_SIM_OPEN : KV_SIM_CREATE, path, NULL,
		     NULL));
	if (!dir && !create)
		return -ENOENT;
	if (!dir)
		dir = dir_add(sim, path);
	h = must(malloc(sizeof(*h)));
	*h = (struct dir_handle){ .sim = sim, .dir = dir, .epoch = sim->epoch };
	sim->handles++;
	*out = (struct kv_env_dir *)(void *)h;
	return 0;
}

static int sim_dir_open(struct kv_env *env, const char *path, bool create,
			struct kv_env_dir **out_dir)
{
	struct sim *sim = to_sim(env);
	int err;

	if (!*path || strlen(path) >= PATH_BYTES_MAX)
		return *path ? -ENAMETOOLONG : -ENOENT;
	if (create)
		announce(sim, KV_SIM_CREATE, path);
	kv_mutex_lock(&sim->mu);
	err = dir_open_locked(sim, path, create, out_dir);
	kv_mutex_unlock(&sim->mu);
	return err;
}

static void sim_dir_close(struct kv_env_dir *dir)
{
	struct dir_handle *h = to_dir(dir);

	if (!h)
		return;
	kv_mutex_lock(&h->sim->mu);
	h->sim->handles--;
	kv_mutex_unlock(&h->sim->mu);
	free(h);
}

/* Durable at once, with all that was unsynced in it. */
static int dir_remove_locked(struct sim *sim, const char *path)
{
	struct dir *dir = dir_find(sim, path);

	KV_TRY(begin(sim, sim->epoch, KV_SIM_UNLINK, path, NULL, NULL));
	if (!dir)
		return -ENOENT;
	if (dir->current.count)
		return -ENOTEMPTY;
	dir->removed = true;
	entries_clear(&dir->durable);
	forget_steps(dir);
	return 0;
}

static int sim_dir_remove(struct kv_env *env, const char *path)
{
	struct sim *sim = to_sim(env);
	int err;

	announce(sim, KV_SIM_UNLINK, path);
	kv_mutex_lock(&sim->mu);
	err = dir_remove_locked(sim, path);
	kv_mutex_unlock(&sim->mu);
	return err;
}

/* The names are copied first: fn may make calls. */
static int sim_dir_list(struct kv_env_dir *dir, kv_env_list_fn *fn, void *arg)
{
	struct dir_handle *h = to_dir(dir);
	struct entry *e = NULL;
	size_t count = 0;
	int err;

	kv_mutex_lock(&h->sim->mu);
	err = begin(h->sim, h->epoch, KV_SIM_LIST, h->dir->path, NULL, NULL);
	if (!err) {
		count = h->dir->current.count;
		e = must(malloc((count + 1) * sizeof(*e)));
		for (size_t i = 0; i < count; i++)
			e[i] = h->dir->current.e[i];
	}
	kv_mutex_unlock(&h->sim->mu);
	for (size_t i = 0; i < count && !err; i++)
		err = fn(arg, e[i].name);
	free(e);
	return err;
}

static int sim_dir_sync(struct kv_env_dir *dir)
{
	struct dir_handle *h = to_dir(dir);
	int err;

	announce(h->sim, KV_SIM_DIR_SYNC, h->dir->path);
	kv_mutex_lock(&h->sim->mu);
	err = begin(h->sim, h->epoch, KV_SIM_DIR_SYNC, h->dir->path, NULL, NULL);
	if (!err) {
		for (size_t i = 0; i < h->dir->step_count; i++)
			apply(&h->dir->durable, &h->dir->steps[i]);
		forget_steps(h->dir);
	}
	kv_mutex_unlock(&h->sim->mu);
	return err;
}

static int rename_locked(struct dir_handle *h, const char *from, const char *to)
{
	struct entry *e, *replaced;

	KV_TRY(begin(h->sim, h->epoch, KV_SIM_RENAME, from, to, NULL));
	KV_TRY(check_name(from));
	KV_TRY(check_name(to));
	e = entries_find(&h->dir->current, from);
	if (!e)
		return -ENOENT;
	replaced = entries_find(&h->dir->current, to);
	if (!replaced || replaced->inode != e->inode)
		take_step(h->sim, h->dir, from, to, e->inode);
	return 0;
}

static int sim_rename(struct kv_env_dir *dir, const char *from, const char *to)
{
	struct dir_handle *h = to_dir(dir);
	int err;

	announce(h->sim, KV_SIM_RENAME, from);
	kv_mutex_lock(&h->sim->mu);
	err = rename_locked(h, from, to);
	kv_mutex_unlock(&h->sim->mu);
	return err;
}

static int unlink_locked(struct dir_handle *h, const char *name)
{
	struct entry *e;

	KV_TRY(begin(h->sim, h->epoch, KV_SIM_UNLINK, name, NULL, NULL));
	e = entries_find(&h->dir->current, name);
	if (!e)
		return -ENOENT;
	take_step(h->sim, h->dir, name, "", e->inode);
	return 0;
}

static int sim_unlink(struct kv_env_dir *dir, const char *name)
{
	struct dir_handle *h = to_dir(dir);
	int err;

	announce(h->sim, KV_SIM_UNLINK, name);
	kv_mutex_lock(&h->sim->mu);
	err = unlink_locked(h, name);
	kv_mutex_unlock(&h->sim->mu);
	return err;
}

static int link_locked(struct dir_handle *h, const char *name, struct dir_handle *to,
		       const char *to_name)
{
	struct entry *e;

	KV_TRY(begin(h->sim, h->epoch, KV_SIM_LINK, name, to_name, NULL));
	if (to->sim != h->sim)
		return -EXDEV;
	if (to->epoch != h->epoch)
		return -EIO;
	KV_TRY(check_name(to_name));
	e = entries_find(&h->dir->current, name);
	if (!e)
		return -ENOENT;
	if (entries_find(&to->dir->current, to_name))
		return -EEXIST;
	take_step(h->sim, to->dir, "", to_name, e->inode);
	return 0;
}

static int sim_link(struct kv_env_dir *dir, const char *name, struct kv_env_dir *to_dir_,
		    const char *to_name)
{
	struct dir_handle *h = to_dir(dir);
	int err;

	announce(h->sim, KV_SIM_LINK, name);
	kv_mutex_lock(&h->sim->mu);
	err = link_locked(h, name, to_dir(to_dir_), to_name);
	kv_mutex_unlock(&h->sim->mu);
	return err;
}

static int sim_space(struct kv_env_dir *dir, uint64_t *out_bytes_all, uint64_t *out_bytes_free)
{
	struct dir_handle *h = to_dir(dir);
	struct sim *sim = h->sim;
	int err;

	kv_mutex_lock(&sim->mu);
	err = begin(sim, h->epoch, KV_SIM_SIZE, h->dir->path, NULL, NULL);
	if (!err) {
		*out_bytes_all = KV_MIN(sim->capacity, BYTES_UNLIMITED);
		*out_bytes_free = *out_bytes_all > sim->used ? *out_bytes_all - sim->used : 0;
	}
	kv_mutex_unlock(&sim->mu);
	return err;
}

/* --- opening, closing, locking ------------------------------------------------------------------ */

static struct file_handle *file_new(struct sim *sim, struct inode *ino, const char *name)
{
	struct file_handle *f = must(calloc(1, sizeof(*f)));

	f->sim = sim;
	f->inode = inode_ref(ino);
	f->epoch = sim->epoch;
	name_set(f->name, name);
	inode_gains(sim, ino, &ino->opens);
	sim->handles++;
	return f;
}

static struct inode *create_locked(struct dir_handle *h, const char *name)
{
	struct inode *ino = inode_new(h->sim);

	take_step(h->sim, h->dir, "", name, ino);
	return ino;
}

static int open_locked(struct dir_handle *h, const char *name, enum kv_env_mode mode,
		       struct kv_env_file **out_file)
{
	struct file_handle *f;
	struct inode *ino;
	struct entry *e;

	KV_TRY(begin(h->sim, h->epoch, mode == KV_ENV_CREATE ? KV_SIM_CREATE : KV_SIM_OPEN, name,
		     NULL, NULL));
	KV_TRY(check_name(name));
	e = entries_find(&h->dir->current, name);
	if (mode == KV_ENV_CREATE && e)
		return -EEXIST;
	if (mode != KV_ENV_CREATE && !e)
		return -ENOENT;
	ino = e ? e->inode : create_locked(h, name);
	f = file_new(h->sim, ino, name);
	f->writable = mode != KV_ENV_READ;
	*out_file = (struct kv_env_file *)(void *)f;
	return 0;
}

static int sim_open(struct kv_env_dir *dir, const char *name, enum kv_env_mode mode,
		    struct kv_env_file **out_file)
{
	struct dir_handle *h = to_dir(dir);
	int err;

	if (mode == KV_ENV_CREATE)
		announce(h->sim, KV_SIM_CREATE, name);
	kv_mutex_lock(&h->sim->mu);
	err = open_locked(h, name, mode, out_file);
	kv_mutex_unlock(&h->sim->mu);
	return err;
}

/* Of a dead handle, the crash has taken everything but the memory. */
static void let_go_locked(struct file_handle *f)
{
	if (f->epoch == f->sim->epoch) {
		if (f->lock == LOCK_SHARED)
			f->inode->lock_shared--;
		else if (f->lock == LOCK_EXCLUSIVE)
			f->inode->lock_exclusive = false;
		inode_loses(f->sim, f->inode, &f->inode->opens);
	}
	inode_unref(f->inode);
	f->sim->handles--;
}

static void sim_close(struct kv_env_file *file)
{
	struct file_handle *f = to_file(file);

	if (!f)
		return;
	kv_mutex_lock(&f->sim->mu);
	let_go_locked(f);
	kv_mutex_unlock(&f->sim->mu);
	free(f);
}

static int lock_locked(struct dir_handle *h, const char *name, bool shared,
		       struct kv_env_file **out_lock)
{
	struct file_handle *f;
	struct inode *ino;
	struct entry *e;

	KV_TRY(begin(h->sim, h->epoch, KV_SIM_LOCK, name, NULL, NULL));
	KV_TRY(check_name(name));
	e = entries_find(&h->dir->current, name);
	/* A shared lock makes no file; it is on one that has no name, then. */
	if (!e && !shared)
		KV_TRY(begin(h->sim, h->epoch, KV_SIM_CREATE, name, NULL, NULL));
	ino = e ? e->inode : shared ? inode_new(h->sim) : create_locked(h, name);
	if (ino->lock_exclusive || (!shared && ino->lock_shared))
		return -EBUSY;
	f = file_new(h->sim, ino, name);
	f->lock = shared ? LOCK_SHARED : LOCK_EXCLUSIVE;
	ino->lock_shared += shared;
	ino->lock_exclusive = !shared;
	*out_lock = (struct kv_env_file *)(void *)f;
	return 0;
}

static int sim_lock(struct kv_env_dir *dir, const char *name, bool shared,
		    struct kv_env_file **out_lock)
{
	struct dir_handle *h = to_dir(dir);
	int err;

	if (!shared)
		announce(h->sim, KV_SIM_CREATE, name);
	kv_mutex_lock(&h->sim->mu);
	err = lock_locked(h, name, shared, out_lock);
	kv_mutex_unlock(&h->sim->mu);
	return err;
}

/* --- calls on files --------------------------------------------------------------------------------- */

static int sim_pread(struct kv_env_file *file, void *to, size_t bytes, uint64_t offset,
		     size_t *out_bytes)
{
	struct file_handle *f = to_file(file);
	int err;

	kv_mutex_lock(&f->sim->mu);
	err = begin(f->sim, f->epoch, KV_SIM_READ, f->name, NULL, NULL);
	if (!err)
		*out_bytes = inode_read(f->inode, offset, to, bytes);
	kv_mutex_unlock(&f->sim->mu);
	return err;
}

/* Rule K11: whoever else has a name for the file counts on its bytes. */
static void check_links(const struct file_handle *f)
{
	KV_ASSERT(!f->sim->links_guarded || f->inode->links < 2);
}

static int pwritev_locked(struct file_handle *f, struct iovec *iov, int iov_count, uint64_t offset)
{
	uint64_t all = 0, left;
	bool touched;
	int err;

	for (int i = 0; i < iov_count; i++)
		all += iov[i].iov_len;
	err = begin(f->sim, f->epoch, KV_SIM_WRITE, f->name, NULL, &touched);
	if (err && !touched)
		return err;
	if (!f->writable)
		return -EBADF;
	check_links(f);
	if (offset > FILE_BYTES_MAX || all > FILE_BYTES_MAX - offset)
		return -EFBIG;
	left = err ? draw(&f->sim->rng) % (all + 1) : all;
	for (int i = 0; i < iov_count && left; i++) {
		size_t n = (size_t)KV_MIN(iov[i].iov_len, left);

		if (n)
			KV_TRY(inode_write(f->sim, f->inode, offset, iov[i].iov_base, n));
		offset += n;
		left -= n;
		iov[i] = (struct iovec){ NULL, 0 };	/* the contract allows it, so callers meet it */
	}
	return err;
}

static int sim_pwritev(struct kv_env_file *file, struct iovec *iov, int iov_count, uint64_t offset)
{
	struct file_handle *f = to_file(file);
	int err;

	announce(f->sim, KV_SIM_WRITE, f->name);
	kv_mutex_lock(&f->sim->mu);
	err = pwritev_locked(f, iov, iov_count, offset);
	kv_mutex_unlock(&f->sim->mu);
	return err;
}

static int sim_sync(struct kv_env_file *file)
{
	struct file_handle *f = to_file(file);
	bool touched;
	int err;

	announce(f->sim, KV_SIM_SYNC, f->name);
	kv_mutex_lock(&f->sim->mu);
	err = begin(f->sim, f->epoch, KV_SIM_SYNC, f->name, NULL, &touched);
	if (!err)
		inode_sync(f->inode);
	else if (touched)
		inode_lose(f->inode);
	kv_mutex_unlock(&f->sim->mu);
	return err;
}

/* Makes nothing durable: that is what the contract says. */
static int sim_writeback(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool wait)
{
	struct file_handle *f = to_file(file);
	int err;

	(void)offset, (void)bytes, (void)wait;
	kv_mutex_lock(&f->sim->mu);
	err = begin(f->sim, f->epoch, KV_SIM_WRITEBACK, f->name, NULL, NULL);
	kv_mutex_unlock(&f->sim->mu);
	return err;
}

static int allocate_locked(struct file_handle *f, uint64_t offset, uint64_t bytes, bool extend)
{
	KV_TRY(begin(f->sim, f->epoch, KV_SIM_ALLOCATE, f->name, NULL, NULL));
	if (!f->writable)
		return -EBADF;
	check_links(f);
	if (offset > FILE_BYTES_MAX || bytes > FILE_BYTES_MAX - offset)
		return -EFBIG;
	if (!bytes)
		return 0;
	KV_TRY(inode_allocate(f->sim, f->inode, offset, offset + bytes));
	if (extend)
		f->inode->bytes = KV_MAX(f->inode->bytes, offset + bytes);
	return 0;
}

static int sim_allocate(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool extend)
{
	struct file_handle *f = to_file(file);
	int err;

	announce(f->sim, KV_SIM_ALLOCATE, f->name);
	kv_mutex_lock(&f->sim->mu);
	err = allocate_locked(f, offset, bytes, extend);
	kv_mutex_unlock(&f->sim->mu);
	return err;
}

static int truncate_locked(struct file_handle *f, uint64_t bytes)
{
	KV_TRY(begin(f->sim, f->epoch, KV_SIM_TRUNCATE, f->name, NULL, NULL));
	if (!f->writable)
		return -EBADF;
	check_links(f);
	if (bytes > FILE_BYTES_MAX)
		return -EFBIG;
	/* To the same length, too: what was allocated behind the end goes. */
	if (bytes <= f->inode->bytes)
		inode_cut(f->sim, f->inode, bytes);
	f->inode->bytes = bytes;
	return 0;
}

static int sim_truncate(struct kv_env_file *file, uint64_t bytes)
{
	struct file_handle *f = to_file(file);
	int err;

	announce(f->sim, KV_SIM_TRUNCATE, f->name);
	kv_mutex_lock(&f->sim->mu);
	err = truncate_locked(f, bytes);
	kv_mutex_unlock(&f->sim->mu);
	return err;
}

static int sim_size(struct kv_env_file *file, uint64_t *out_bytes)
{
	struct file_handle *f = to_file(file);
	int err;

	kv_mutex_lock(&f->sim->mu);
	err = begin(f->sim, f->epoch, KV_SIM_SIZE, f->name, NULL, NULL);
	if (!err)
		*out_bytes = f->inode->bytes;
	kv_mutex_unlock(&f->sim->mu);
	return err;
}

static void sim_advise(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool will_need)
{
	(void)file, (void)offset, (void)bytes, (void)will_need;
}

static uint64_t sim_monotonic_ns(struct kv_env *env)
{
	struct sim *sim = to_sim(env);
	uint64_t now;

	kv_mutex_lock(&sim->mu);
	now = sim->now_ns += CLOCK_TICK_NS;
	kv_mutex_unlock(&sim->mu);
	return now;
}

static void sim_sleep_ns(struct kv_env *env, uint64_t ns)
{
	kv_env_sim_advance(env, ns);
}

static uint64_t sim_realtime_ns(struct kv_env *env)
{
	return EPOCH_NS + sim_monotonic_ns(env);
}

static int sim_random(struct kv_env *env, void *to, size_t bytes)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)to)[i] = (uint8_t)draw(&sim->rng);
	kv_mutex_unlock(&sim->mu);
	return 0;
}

/* --- for the tests ------------------------------------------------------------------------------------ */

static struct sim *sim_new(uint64_t rng)
{
	static const struct kv_env_ops ops = {
		.dir_open = sim_dir_open,
		.dir_close = sim_dir_close,
		.dir_remove = sim_dir_remove,
		.dir_list = sim_dir_list,
		.dir_sync = sim_dir_sync,
		.rename = sim_rename,
		.unlink = sim_unlink,
		.link = sim_link,
		.lock = sim_lock,
		.space = sim_space,
		.open = sim_open,
		.close = sim_close,
		.pread = sim_pread,
		.pwritev = sim_pwritev,
		.sync = sim_sync,
		.writeback = sim_writeback,
		.allocate = sim_allocate,
		.truncate = sim_truncate,
		.size = sim_size,
		.advise = sim_advise,
		.monotonic_ns = sim_monotonic_ns,
		.sleep_ns = sim_sleep_ns,
		.realtime_ns = sim_realtime_ns,
		.random = sim_random,
	};
	struct sim *sim = must(calloc(1, sizeof(*sim)));

	sim->env.ops = &ops;
	kv_mutex_init(&sim->mu);
	kv_list_init(&sim->inodes);
	sim->rng = rng;
	sim->capacity = UINT64_MAX;
	sim->stop_at = UINT64_MAX;
	return sim;
}

struct kv_env *kv_env_sim_new(uint64_t seed)
{
	return &sim_new(seed)->env;
}

void kv_env_sim_free(struct kv_env *env)
{
	struct sim *sim;

	if (!env)
		return;
	sim = to_sim(env);
	KV_ASSERT(!sim->handles);
	for (size_t i = 0; i < sim->dir_count; i++)
		dir_free(sim->dirs[i]);
	KV_ASSERT(kv_list_empty(&sim->inodes));
	kv_mutex_done(&sim->mu);
	free(sim->dirs);
	free(sim);
}

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

		ino->copy = inode_ref(inode_clone(copy, ino));
	}
	for (size_t i = 0; i < sim->dir_count; i++)
		if (!sim->dirs[i]->removed)
			dir_clone(copy, sim->dirs[i]);
	kv_list_for_each(l, &sim->inodes)
		inode_unref(kv_container_of(l, struct inode, link)->copy);
	kv_mutex_unlock(&sim->mu);
	recount(copy);
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
		dir_crash(sim->dirs[i], how, &seed);
	kv_list_for_each(l, &sim->inodes)
		inode_crash(sim, kv_container_of(l, struct inode, link), how, &seed);
	recount(sim);
	kv_mutex_unlock(&sim->mu);
}

uint64_t kv_env_sim_ops(struct kv_env *env)
{
	struct sim *sim = to_sim(env);
	uint64_t ops;

	kv_mutex_lock(&sim->mu);
	ops = sim->ops;
	kv_mutex_unlock(&sim->mu);
	return ops;
}

void kv_env_sim_stop_after(struct kv_env *env, uint64_t more, bool torn)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->stop_at = sim->ops + more;
	sim->stop_torn = torn;
	kv_mutex_unlock(&sim->mu);
}

bool kv_env_sim_stopped(struct kv_env *env)
{
	struct sim *sim = to_sim(env);
	bool stopped;

	kv_mutex_lock(&sim->mu);
	stopped = sim->stopped;
	kv_mutex_unlock(&sim->mu);
	return stopped;
}

void kv_env_sim_hook(struct kv_env *env, kv_env_sim_hook_fn *fn, void *arg)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->hook = fn;
	sim->hook_arg = arg;
	kv_mutex_unlock(&sim->mu);
}

void kv_env_sim_fail(struct kv_env *env, const struct kv_sim_fault *fault)
{
	struct sim *sim = to_sim(env);
	size_t i = 0;

	KV_ASSERT(fault->err < 0);
	kv_mutex_lock(&sim->mu);
	while (i < sim->fault_count && sim->faults[i].ops)	/* 0: spent */
		i++;
	KV_ASSERT(i < KV_SIM_FAULTS_MAX);
	sim->faults[i] = *fault;
	sim->fault_count = KV_MAX(sim->fault_count, i + 1);
	kv_mutex_unlock(&sim->mu);
}

void kv_env_sim_guard_links(struct kv_env *env)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->links_guarded = true;
	kv_mutex_unlock(&sim->mu);
}

uint64_t kv_env_sim_faults_hit(struct kv_env *env)
{
	struct sim *sim = to_sim(env);
	uint64_t hit;

	kv_mutex_lock(&sim->mu);
	hit = sim->faults_hit;
	kv_mutex_unlock(&sim->mu);
	return hit;
}

void kv_env_sim_heal(struct kv_env *env)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->fault_count = 0;
	sim->stopped = false;
	sim->stop_at = UINT64_MAX;
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
	struct dir *dir = dir_find(sim, path);

	return dir ? entries_find(&dir->current, name) : NULL;
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
	slots_reach(e->inode, offset + 1);
	slot = &e->inode->slots[offset / BLOCK_BYTES];
	same = slot->current == slot->durable;
	if (!slot_used(slot)) {	/* a hole gets a block, full disk or not */
		e->inode->used += BLOCK_BYTES;
		sim->used += BLOCK_BYTES;
	}
	if (same)
		block_set(&slot->durable, NULL);
	block_write(&slot->current)[at] ^= mask;
	if (same)
		block_set(&slot->durable, block_ref(slot->current));
	else
		block_write(&slot->durable)[at] ^= mask;
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
	const struct entry *durable = entries_find(&dir->durable, e->name);

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
		*out_durable = name_durable_locked(dir_find(sim, path), e);
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
