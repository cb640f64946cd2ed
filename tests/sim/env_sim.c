/*
 * The disk in memory: the calls of a struct kv_env. What they work on is in sim_disk.c and
 * sim_dir.c; that they fail, in sim_fault.c; crashes and clones, in sim_control.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "tests/sim/sim_impl.h"

#define BYTES_UNLIMITED ((uint64_t)1 << 50)	/* what space() tells of such a disk */
#define CLOCK_TICK_NS 1000
#define EPOCH_NS ((uint64_t)1000000000 * 1000000000) /* what people's clock shows at first */
#define PATH_BYTES_MAX 4096

static struct dir_handle *to_dir(struct kv_env_dir *dir)
{
	return (struct dir_handle *)(void *)dir;
}

static struct file_handle *to_file(struct kv_env_file *file)
{
	return (struct file_handle *)(void *)file;
}

/* --- calls on directories --------------------------------------------------------------------- */

static int dir_open_locked(struct sim *sim, const char *path, bool create, struct kv_env_dir **out)
{
	struct dir *dir = sim_dir_find(sim, path);
	struct dir_handle *h;

	KV_TRY(sim_begin(sim, sim->epoch, dir || !create ? KV_SIM_OPEN : KV_SIM_CREATE, path, NULL,
		     NULL));
	if (!dir && !create)
		return -ENOENT;
	if (!dir)
		dir = sim_dir_add(sim, path);
	h = sim_must(malloc(sizeof(*h)));
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
		sim_announce(sim, KV_SIM_CREATE, path);
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
	struct dir *dir = sim_dir_find(sim, path);

	KV_TRY(sim_begin(sim, sim->epoch, KV_SIM_UNLINK, path, NULL, NULL));
	if (!dir)
		return -ENOENT;
	if (dir->current.count)
		return -ENOTEMPTY;
	dir->removed = true;
	sim_entries_clear(&dir->durable);
	sim_forget_steps(dir);
	return 0;
}

static int sim_dir_remove(struct kv_env *env, const char *path)
{
	struct sim *sim = to_sim(env);
	int err;

	sim_announce(sim, KV_SIM_UNLINK, path);
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
	err = sim_begin(h->sim, h->epoch, KV_SIM_LIST, h->dir->path, NULL, NULL);
	if (!err) {
		count = h->dir->current.count;
		e = sim_must(malloc((count + 1) * sizeof(*e)));
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

	sim_announce(h->sim, KV_SIM_DIR_SYNC, h->dir->path);
	kv_mutex_lock(&h->sim->mu);
	err = sim_begin(h->sim, h->epoch, KV_SIM_DIR_SYNC, h->dir->path, NULL, NULL);
	if (!err) {
		for (size_t i = 0; i < h->dir->step_count; i++)
			sim_apply(&h->dir->durable, &h->dir->steps[i]);
		sim_forget_steps(h->dir);
	}
	kv_mutex_unlock(&h->sim->mu);
	return err;
}

static int rename_locked(struct dir_handle *h, const char *from, const char *to)
{
	struct entry *e, *replaced;

	KV_TRY(sim_begin(h->sim, h->epoch, KV_SIM_RENAME, from, to, NULL));
	KV_TRY(sim_check_name(from));
	KV_TRY(sim_check_name(to));
	e = sim_entries_find(&h->dir->current, from);
	if (!e)
		return -ENOENT;
	replaced = sim_entries_find(&h->dir->current, to);
	if (!replaced || replaced->inode != e->inode)
		sim_take_step(h->sim, h->dir, from, to, e->inode);
	return 0;
}

static int sim_rename(struct kv_env_dir *dir, const char *from, const char *to)
{
	struct dir_handle *h = to_dir(dir);
	int err;

	sim_announce(h->sim, KV_SIM_RENAME, from);
	kv_mutex_lock(&h->sim->mu);
	err = rename_locked(h, from, to);
	kv_mutex_unlock(&h->sim->mu);
	return err;
}

static int unlink_locked(struct dir_handle *h, const char *name)
{
	struct entry *e;

	KV_TRY(sim_begin(h->sim, h->epoch, KV_SIM_UNLINK, name, NULL, NULL));
	e = sim_entries_find(&h->dir->current, name);
	if (!e)
		return -ENOENT;
	sim_take_step(h->sim, h->dir, name, "", e->inode);
	return 0;
}

static int sim_unlink(struct kv_env_dir *dir, const char *name)
{
	struct dir_handle *h = to_dir(dir);
	int err;

	sim_announce(h->sim, KV_SIM_UNLINK, name);
	kv_mutex_lock(&h->sim->mu);
	err = unlink_locked(h, name);
	kv_mutex_unlock(&h->sim->mu);
	return err;
}

static int link_locked(struct dir_handle *h, const char *name, struct dir_handle *to,
		       const char *to_name)
{
	struct entry *e;

	KV_TRY(sim_begin(h->sim, h->epoch, KV_SIM_LINK, name, to_name, NULL));
	if (to->sim != h->sim)
		return -EXDEV;
	if (to->epoch != h->epoch)
		return -EIO;
	KV_TRY(sim_check_name(to_name));
	e = sim_entries_find(&h->dir->current, name);
	if (!e)
		return -ENOENT;
	if (sim_entries_find(&to->dir->current, to_name))
		return -EEXIST;
	sim_take_step(h->sim, to->dir, "", to_name, e->inode);
	return 0;
}

static int sim_link(struct kv_env_dir *dir, const char *name, struct kv_env_dir *to_dir_,
		    const char *to_name)
{
	struct dir_handle *h = to_dir(dir);
	int err;

	sim_announce(h->sim, KV_SIM_LINK, name);
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
	err = sim_begin(sim, h->epoch, KV_SIM_SIZE, h->dir->path, NULL, NULL);
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
	struct file_handle *f = sim_must(calloc(1, sizeof(*f)));

	f->sim = sim;
	f->inode = sim_inode_ref(ino);
	f->epoch = sim->epoch;
	sim_name_set(f->name, name);
	sim_inode_gains(sim, ino, &ino->opens);
	sim->handles++;
	return f;
}

static struct inode *create_locked(struct dir_handle *h, const char *name)
{
	struct inode *ino = sim_inode_new(h->sim);

	sim_take_step(h->sim, h->dir, "", name, ino);
	return ino;
}

static int open_locked(struct dir_handle *h, const char *name, enum kv_env_mode mode,
		       struct kv_env_file **out_file)
{
	struct file_handle *f;
	struct inode *ino;
	struct entry *e;

	KV_TRY(sim_begin(h->sim, h->epoch, mode == KV_ENV_CREATE ? KV_SIM_CREATE : KV_SIM_OPEN, name,
		     NULL, NULL));
	KV_TRY(sim_check_name(name));
	e = sim_entries_find(&h->dir->current, name);
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
		sim_announce(h->sim, KV_SIM_CREATE, name);
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
		sim_inode_loses(f->sim, f->inode, &f->inode->opens);
	}
	sim_inode_unref(f->inode);
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

	KV_TRY(sim_begin(h->sim, h->epoch, KV_SIM_LOCK, name, NULL, NULL));
	KV_TRY(sim_check_name(name));
	e = sim_entries_find(&h->dir->current, name);
	/* A shared lock makes no file; it is on one that has no name, then. */
	if (!e && !shared)
		KV_TRY(sim_begin(h->sim, h->epoch, KV_SIM_CREATE, name, NULL, NULL));
	ino = e ? e->inode : shared ? sim_inode_new(h->sim) : create_locked(h, name);
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
		sim_announce(h->sim, KV_SIM_CREATE, name);
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
	err = sim_begin(f->sim, f->epoch, KV_SIM_READ, f->name, NULL, NULL);
	if (!err)
		*out_bytes = sim_inode_read(f->inode, offset, to, bytes);
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
	err = sim_begin(f->sim, f->epoch, KV_SIM_WRITE, f->name, NULL, &touched);
	if (err && !touched)
		return err;
	if (!f->writable)
		return -EBADF;
	check_links(f);
	if (offset > FILE_BYTES_MAX || all > FILE_BYTES_MAX - offset)
		return -EFBIG;
	left = err ? sim_draw(&f->sim->rng) % (all + 1) : all;
	for (int i = 0; i < iov_count && left; i++) {
		size_t n = (size_t)KV_MIN(iov[i].iov_len, left);

		if (n)
			KV_TRY(sim_inode_write(f->sim, f->inode, offset, iov[i].iov_base, n));
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

	sim_announce(f->sim, KV_SIM_WRITE, f->name);
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

	sim_announce(f->sim, KV_SIM_SYNC, f->name);
	kv_mutex_lock(&f->sim->mu);
	err = sim_begin(f->sim, f->epoch, KV_SIM_SYNC, f->name, NULL, &touched);
	if (!err)
		sim_inode_sync(f->inode);
	else if (touched)
		sim_inode_lose(f->inode);
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
	err = sim_begin(f->sim, f->epoch, KV_SIM_WRITEBACK, f->name, NULL, NULL);
	kv_mutex_unlock(&f->sim->mu);
	return err;
}

static int allocate_locked(struct file_handle *f, uint64_t offset, uint64_t bytes, bool extend)
{
	KV_TRY(sim_begin(f->sim, f->epoch, KV_SIM_ALLOCATE, f->name, NULL, NULL));
	if (!f->writable)
		return -EBADF;
	check_links(f);
	if (offset > FILE_BYTES_MAX || bytes > FILE_BYTES_MAX - offset)
		return -EFBIG;
	if (!bytes)
		return 0;
	KV_TRY(sim_inode_allocate(f->sim, f->inode, offset, offset + bytes));
	if (extend)
		f->inode->bytes = KV_MAX(f->inode->bytes, offset + bytes);
	return 0;
}

static int sim_allocate(struct kv_env_file *file, uint64_t offset, uint64_t bytes, bool extend)
{
	struct file_handle *f = to_file(file);
	int err;

	sim_announce(f->sim, KV_SIM_ALLOCATE, f->name);
	kv_mutex_lock(&f->sim->mu);
	err = allocate_locked(f, offset, bytes, extend);
	kv_mutex_unlock(&f->sim->mu);
	return err;
}

static int truncate_locked(struct file_handle *f, uint64_t bytes)
{
	KV_TRY(sim_begin(f->sim, f->epoch, KV_SIM_TRUNCATE, f->name, NULL, NULL));
	if (!f->writable)
		return -EBADF;
	check_links(f);
	if (bytes > FILE_BYTES_MAX)
		return -EFBIG;
	/* To the same length, too: what was allocated behind the end goes. */
	if (bytes <= f->inode->bytes)
		sim_inode_cut(f->sim, f->inode, bytes);
	f->inode->bytes = bytes;
	return 0;
}

static int sim_truncate(struct kv_env_file *file, uint64_t bytes)
{
	struct file_handle *f = to_file(file);
	int err;

	sim_announce(f->sim, KV_SIM_TRUNCATE, f->name);
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
	err = sim_begin(f->sim, f->epoch, KV_SIM_SIZE, f->name, NULL, NULL);
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
		((uint8_t *)to)[i] = (uint8_t)sim_draw(&sim->rng);
	kv_mutex_unlock(&sim->mu);
	return 0;
}

/* --- the whole ------------------------------------------------------------------------------ */

struct sim *sim_new(uint64_t rng)
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
	struct sim *sim = sim_must(calloc(1, sizeof(*sim)));

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
		sim_dir_free(sim->dirs[i]);
	KV_ASSERT(kv_list_empty(&sim->inodes));
	kv_mutex_done(&sim->mu);
	free(sim->dirs);
	free(sim);
}
