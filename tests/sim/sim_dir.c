/*
 * Directories: two sets of entries, and the steps that lead from the durable one to the other.
 */
#include <stdlib.h>

#include "tests/sim/sim_impl.h"

void sim_name_set(char *to, const char *name)
{
	size_t bytes = strlen(name);

	KV_ASSERT(bytes < KV_SIM_NAME_BYTES_MAX);
	memcpy(to, name, bytes + 1);
}

struct entry *sim_entries_find(const struct entries *s, const char *name)
{
	for (size_t i = 0; i < s->count; i++)
		if (!strcmp(s->e[i].name, name))
			return &s->e[i];
	return NULL;
}

static void entries_remove(struct entries *s, struct entry *e)
{
	sim_inode_unref(e->inode);
	*e = s->e[--s->count];
}

static void entries_put(struct entries *s, const char *name, struct inode *ino)
{
	struct entry *e = sim_entries_find(s, name);

	sim_inode_ref(ino);
	if (e) {
		sim_inode_unref(e->inode);
		e->inode = ino;
		return;
	}
	if (s->count == s->max) {
		s->max = s->max ? s->max * 2 : 16;
		s->e = sim_must(realloc(s->e, s->max * sizeof(*s->e)));
	}
	e = &s->e[s->count++];
	sim_name_set(e->name, name);
	e->inode = ino;
}

void sim_entries_clear(struct entries *s)
{
	while (s->count)
		entries_remove(s, &s->e[s->count - 1]);
}

static void entries_copy(struct entries *to, const struct entries *from)
{
	for (size_t i = 0; i < from->count; i++)
		sim_inode_ref(from->e[i].inode);
	sim_entries_clear(to);
	for (size_t i = 0; i < from->count; i++) {
		entries_put(to, from->e[i].name, from->e[i].inode);
		sim_inode_unref(from->e[i].inode);
	}
}

void sim_apply(struct entries *s, const struct step *step)
{
	struct entry *e;

	if (*step->to)
		entries_put(s, step->to, step->inode);
	if (*step->from) {
		e = sim_entries_find(s, step->from);
		if (e)
			entries_remove(s, e);
	}
}

static void drop_link(struct sim *sim, struct dir *dir, const char *name)
{
	struct entry *e = sim_entries_find(&dir->current, name);

	if (e)
		sim_inode_loses(sim, e->inode, &e->inode->links);
}

/* Does the step in the current entries, and remembers it. */
void sim_take_step(struct sim *sim, struct dir *dir, const char *from, const char *to,
		      struct inode *ino)
{
	struct step *step;

	if (dir->step_count == dir->step_max) {
		dir->step_max = dir->step_max ? dir->step_max * 2 : 16;
		dir->steps = sim_must(realloc(dir->steps, dir->step_max * sizeof(*dir->steps)));
	}
	step = &dir->steps[dir->step_count++];
	memset(step, 0, sizeof(*step));
	sim_name_set(step->from, from);
	sim_name_set(step->to, to);
	step->inode = sim_inode_ref(ino);
	if (*to) {
		sim_inode_gains(sim, ino, &ino->links);
		drop_link(sim, dir, to);
	}
	if (*from)
		drop_link(sim, dir, from);
	sim_apply(&dir->current, step);
}

void sim_forget_steps(struct dir *dir)
{
	for (size_t i = 0; i < dir->step_count; i++)
		sim_inode_unref(dir->steps[i].inode);
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
	return sim_draw(rng) % 2;
}

void sim_dir_crash(struct dir *dir, enum kv_sim_crash how, uint64_t *rng)
{
	if (how == KV_SIM_RANDOM && sim_draw(rng) % 2)
		how = sim_draw(rng) % 2 ? KV_SIM_DROP_ALL : KV_SIM_KEEP_ALL;
	for (size_t i = 0; i < dir->step_count; i++) {
		dir->steps[i].dropped = is_dropped(dir, i, how, rng);
		if (!dir->steps[i].dropped)
			sim_apply(&dir->durable, &dir->steps[i]);
	}
	sim_forget_steps(dir);
	entries_copy(&dir->current, &dir->durable);
}

struct dir *sim_dir_find(struct sim *sim, const char *path)
{
	for (size_t i = 0; i < sim->dir_count; i++)
		if (!sim->dirs[i]->removed && !strcmp(sim->dirs[i]->path, path))
			return sim->dirs[i];
	return NULL;
}

struct dir *sim_dir_add(struct sim *sim, const char *path)
{
	struct dir *dir = sim_must(calloc(1, sizeof(*dir)));

	dir->path = sim_must(strdup(path));
	sim->dirs = sim_must(realloc(sim->dirs, (sim->dir_count + 1) * sizeof(struct dir *)));
	sim->dirs[sim->dir_count++] = dir;
	return dir;
}

void sim_dir_free(struct dir *dir)
{
	sim_entries_clear(&dir->current);
	sim_entries_clear(&dir->durable);
	sim_forget_steps(dir);
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

void sim_dir_clone(struct sim *to, const struct dir *dir)
{
	struct dir *copy = sim_dir_add(to, dir->path);

	entries_clone(&copy->current, &dir->current);
	entries_clone(&copy->durable, &dir->durable);
	copy->steps = sim_must(calloc(dir->step_count + 1, sizeof(*copy->steps)));
	copy->step_max = dir->step_count + 1;
	for (size_t i = 0; i < dir->step_count; i++) {
		copy->steps[i] = dir->steps[i];
		copy->steps[i].inode = sim_inode_ref(dir->steps[i].inode->copy);
	}
	copy->step_count = dir->step_count;
}

/* Links of all inodes anew, and the space used, when nothing is open. */
void sim_recount(struct sim *sim)
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

			sim_inode_gains(sim, ino, &ino->links);
		}
}
