#include "fs/icache.h"

#include <stdlib.h>

#include "fs/fs.h"

#define SHARD_BITS 4
#define SHARDS (1u << SHARD_BITS)
#define BUCKETS_MIN 64
#define KNOWN_MIN 16

/* --- the table of lookup counts --------------------------------------------------------
 *
 * Open addressing with linear probing. An entry's home is its hash scaled to the
 * table's length, so that the length can be anything: a table grows by half, and stays
 * between 7/12 and 7/8 full, at 18 to 28 bytes an inode.
 */
struct known {
	fs_ino ino;			/* 0: free */
	uint64_t count;
};

struct known_shard {
	struct kv_mutex mu;		/* guards what follows */
	struct known *table;
	size_t max, used;
};

struct icache_shard {
	struct kv_mutex mu;		/* guards what follows */
	struct kv_cond loaded;		/* some inode has been read */
	struct kv_link *buckets;
	size_t bucket_count, count;	/* bucket_count: a power of two */
	struct kv_link unused;		/* the longest unused one first */
	size_t unused_count;
};

struct fs_icache {
	struct icache_shard shards[SHARDS];
	struct known_shard known[SHARDS];
	size_t unused_max;		/* of a shard */
};

/* Neighbouring numbers go to different shards and buckets. */
static uint64_t mix(fs_ino ino)
{
	uint64_t h = ino * 0x9e3779b97f4a7c15;

	return h ^ h >> 32;
}

static size_t shard_no(fs_ino ino)
{
	return mix(ino) & (SHARDS - 1);
}

static size_t known_home(const struct known_shard *k, fs_ino ino)
{
	uint64_t hash = mix(ino) >> SHARD_BITS & UINT32_MAX;

	return (size_t)(hash * k->max >> 32);
}

static size_t known_next(const struct known_shard *k, size_t at)
{
	return at + 1 < k->max ? at + 1 : 0;
}

/* The entry of ino, or the free one where it would go. There always is a free one. */
static struct known *known_find(const struct known_shard *k, fs_ino ino)
{
	size_t at = known_home(k, ino);

	while (k->table[at].ino && k->table[at].ino != ino)
		at = known_next(k, at);
	return &k->table[at];
}

static int known_resize(struct known_shard *k, size_t max)
{
	struct known_shard bigger = { .max = max, .used = k->used };

	KV_ASSERT(max > k->used && max <= UINT32_MAX);
	bigger.table = calloc(max, sizeof(*bigger.table));
	if (!bigger.table)
		return -ENOMEM;
	for (size_t i = 0; i < k->max; i++)
		if (k->table[i].ino)
			*known_find(&bigger, k->table[i].ino) = k->table[i];
	free(k->table);
	k->table = bigger.table;
	k->max = max;
	return 0;
}

/* Frees an entry; those that were pushed behind their home by it move up. */
static void known_remove(struct known_shard *k, struct known *e)
{
	size_t hole = (size_t)(e - k->table), at = hole;

	for (;;) {
		size_t home;

		at = known_next(k, at);
		if (!k->table[at].ino)
			break;
		home = known_home(k, k->table[at].ino);
		/* Is home cyclically in (hole, at]? Then the entry may stay. */
		if (hole < at ? home > hole && home <= at : home > hole || home <= at)
			continue;
		k->table[hole] = k->table[at];
		hole = at;
	}
	k->table[hole] = (struct known){ 0, 0 };
	k->used--;
	/* Memory is given back; when there is none for the smaller table, the larger one does as well. */
	if (k->max > KNOWN_MIN && k->used < k->max / 4)
		(void)known_resize(k, KV_MAX(k->used * 3 / 2 + 1, (size_t)KNOWN_MIN));
}

int fs_known_add(struct fs *fs, fs_ino ino)
{
	struct known_shard *k = &fs->icache->known[shard_no(ino)];
	struct known *e;
	int err = 0;

	KV_ASSERT(ino);
	kv_mutex_lock(&k->mu);
	if (k->used + 1 > k->max / 8 * 7)
		err = known_resize(k, KV_MAX(k->max + k->max / 2, (size_t)KNOWN_MIN));
	if (!err) {
		e = known_find(k, ino);
		if (!e->ino) {
			e->ino = ino;
			k->used++;
		}
		e->count++;
	}
	kv_mutex_unlock(&k->mu);
	return err;
}

uint64_t fs_known_sub(struct fs *fs, fs_ino ino, uint64_t times)
{
	struct known_shard *k = &fs->icache->known[shard_no(ino)];
	uint64_t left = 0;

	kv_mutex_lock(&k->mu);
	if (k->max && ino) {
		struct known *e = known_find(k, ino);

		if (e->ino) {
			left = e->count - KV_MIN(times, e->count);
			e->count = left;
			if (!left)
				known_remove(k, e);
		}
	}
	kv_mutex_unlock(&k->mu);
	return left;
}

uint64_t fs_known(struct fs *fs, fs_ino ino)
{
	struct known_shard *k = &fs->icache->known[shard_no(ino)];
	uint64_t count = 0;

	kv_mutex_lock(&k->mu);
	if (k->max && ino)
		count = known_find(k, ino)->count;
	kv_mutex_unlock(&k->mu);
	return count;
}

/* --- inodes ------------------------------------------------------------------------------ */

static struct icache_shard *shard_of(struct fs *fs, fs_ino ino)
{
	return &fs->icache->shards[shard_no(ino)];
}

static struct kv_link *bucket_of(struct icache_shard *sh, fs_ino ino)
{
	return &sh->buckets[mix(ino) >> SHARD_BITS & (sh->bucket_count - 1)];
}

static struct fs_inode *find(struct icache_shard *sh, fs_ino ino)
{
	kv_list_for_each(l, bucket_of(sh, ino)) {
		struct fs_inode *i = kv_container_of(l, struct fs_inode, hash_link);

		if (i->ino == ino)
			return i;
	}
	return NULL;
}

static struct kv_link *buckets_new(size_t count)
{
	struct kv_link *b = malloc(count * sizeof(*b));

	for (size_t n = 0; b && n < count; n++)
		kv_list_init(&b[n]);
	return b;
}

/* One bucket an inode; without memory for that, longer chains do. */
static void grow(struct icache_shard *sh)
{
	struct kv_link *old = sh->buckets, *more = buckets_new(sh->bucket_count * 2);
	size_t old_count = sh->bucket_count;

	if (!more)
		return;
	sh->buckets = more;
	sh->bucket_count *= 2;
	for (size_t n = 0; n < old_count; n++)
		kv_list_for_each_safe(l, &old[n]) {
			struct fs_inode *i = kv_container_of(l, struct fs_inode, hash_link);

			kv_list_remove(l);
			kv_list_push_front(bucket_of(sh, i->ino), l);
		}
	free(old);
}

static struct fs_inode *inode_alloc(fs_ino ino)
{
	struct fs_inode *i = calloc(1, sizeof(*i));

	if (!i)
		return NULL;
	i->ino = ino;
	i->refs = 1;
	kv_list_init(&i->hash_link);
	kv_list_init(&i->unused_link);
	kv_list_init(&i->reclaim_link);
	kv_mutex_init(&i->mu);
	kv_mutex_init(&i->attr_mu);
	return i;
}

static void inode_free(struct fs_inode *i)
{
	kv_buf_done(&i->inline_bytes);
	kv_mutex_done(&i->mu);
	kv_mutex_done(&i->attr_mu);
	free(i);
}

static void insert(struct icache_shard *sh, struct fs_inode *i)
{
	if (sh->count >= sh->bucket_count)
		grow(sh);
	kv_list_push_front(bucket_of(sh, i->ino), &i->hash_link);
	sh->count++;
}

static void unhash(struct icache_shard *sh, struct fs_inode *i)
{
	if (kv_list_empty(&i->hash_link))
		return;
	kv_list_remove(&i->hash_link);
	sh->count--;
}

static void ref_locked(struct icache_shard *sh, struct fs_inode *i)
{
	if (!i->refs++) {
		kv_list_remove(&i->unused_link);
		sh->unused_count--;
	}
}

static bool is_gone(struct fs_inode *i)
{
	bool gone;

	kv_mutex_lock(&i->attr_mu);
	gone = i->gone;
	kv_mutex_unlock(&i->attr_mu);
	return gone;
}

/* The last reference went: the inode is kept for the next one, and another one makes room for it. */
static void unused_locked(struct icache_shard *sh, struct fs_inode *i, size_t unused_max)
{
	if (i->load_error || is_gone(i)) {
		unhash(sh, i);
		inode_free(i);
		return;
	}
	kv_list_push_back(&sh->unused, &i->unused_link);
	sh->unused_count++;
	while (sh->unused_count > unused_max) {
		struct fs_inode *oldest =
			kv_container_of(sh->unused.next, struct fs_inode, unused_link);

		kv_list_remove(&oldest->unused_link);
		sh->unused_count--;
		unhash(sh, oldest);
		inode_free(oldest);
	}
}

void fs_inode_ref(struct fs *fs, struct fs_inode *i)
{
	struct icache_shard *sh = shard_of(fs, i->ino);

	kv_mutex_lock(&sh->mu);
	KV_ASSERT(i->refs);
	i->refs++;
	kv_mutex_unlock(&sh->mu);
}

void fs_inode_put(struct fs *fs, struct fs_inode *i)
{
	struct icache_shard *sh;

	if (!i)
		return;
	sh = shard_of(fs, i->ino);
	kv_mutex_lock(&sh->mu);
	KV_ASSERT(i->refs);
	if (!--i->refs)
		unused_locked(sh, i, fs->icache->unused_max);
	kv_mutex_unlock(&sh->mu);
}

static int load(struct fs *fs, struct fs_inode *i)
{
	KV_AUTO(kv_buf_done) struct kv_buf value = KV_BUF_INIT;
	struct fs_key key = fs_key_attr(i->ino);
	struct kv_slice inline_bytes;
	struct fs_attr attr;
	int err = kv_get(fs->kv, NULL, fs_key_slice(&key), &value);

	if (err == KV_E_not_found)
		return -ENOENT;
	if (err)
		return err;
	if (!fs_attr_decode(i->ino, kv_buf_slice(&value), &attr, &inline_bytes))
		return fs_damaged(fs, "the attributes of inode %llu are malformed",
				  (unsigned long long)i->ino);
	KV_TRY(kv_buf_assign(&i->inline_bytes, inline_bytes));
	kv_mutex_lock(&i->attr_mu);
	i->attr = attr;
	kv_mutex_unlock(&i->attr_mu);
	return 0;
}

/* Waits until the inode has been read. The shard's lock is held, and a reference. */
static int loaded_locked(struct icache_shard *sh, struct fs_inode *i) KV_REQUIRES(&sh->mu)
{
	while (i->loading)
		kv_cond_wait(&sh->loaded, &sh->mu);
	return i->load_error;
}

static void load_done(struct icache_shard *sh, struct fs_inode *i, int err)
{
	kv_mutex_lock(&sh->mu);
	i->loading = false;
	i->load_error = err;
	if (err)
		unhash(sh, i);
	kv_cond_broadcast(&sh->loaded);
	kv_mutex_unlock(&sh->mu);
}

/*
 * An inode is in the table before its attributes are read. So there is one struct
 * for a number at any time, and no change can slip in between the read and
 * the insertion of what was read.
 */
int fs_inode_get(struct fs *fs, fs_ino ino, struct fs_inode **out)
{
	struct icache_shard *sh = shard_of(fs, ino);
	struct fs_inode *i;
	bool mine = false;
	int err = 0;

	if (!ino || ino >= FS_INO_MAX)
		return -ENOENT;
	kv_mutex_lock(&sh->mu);
	i = find(sh, ino);
	if (i) {
		ref_locked(sh, i);
		err = loaded_locked(sh, i);
	} else if ((i = inode_alloc(ino)) != NULL) {
		mine = i->loading = true;
		insert(sh, i);
	} else {
		err = -ENOMEM;
	}
	kv_mutex_unlock(&sh->mu);
	if (mine) {
		err = load(fs, i);
		load_done(sh, i, err);
	}
	if (!err && is_gone(i))
		err = -ENOENT;
	if (err)
		fs_inode_put(fs, i);
	else
		*out = i;
	return err;
}

struct fs_inode *fs_inode_peek(struct fs *fs, fs_ino ino)
{
	struct icache_shard *sh = shard_of(fs, ino);
	struct fs_inode *i;

	kv_mutex_lock(&sh->mu);
	i = find(sh, ino);
	if (i && i->loading)
		i = NULL;
	if (i)
		ref_locked(sh, i);
	kv_mutex_unlock(&sh->mu);
	return i;
}

int fs_inode_new(struct fs *fs, const struct fs_attr *attr, struct kv_slice inline_bytes,
		 struct fs_inode **out)
{
	struct icache_shard *sh = shard_of(fs, attr->ino);
	struct fs_inode *i = inode_alloc(attr->ino);
	int err = i ? kv_buf_assign(&i->inline_bytes, inline_bytes) : -ENOMEM;

	if (err) {
		if (i)
			inode_free(i);
		return err;
	}
	i->attr = *attr;
	kv_mutex_lock(&sh->mu);
	KV_ASSERT(!find(sh, attr->ino));
	insert(sh, i);
	kv_mutex_unlock(&sh->mu);
	*out = i;
	return 0;
}

int fs_inode_attr(struct fs_inode *i, struct fs_attr *out)
{
	int err = 0;

	kv_mutex_lock(&i->attr_mu);
	if (i->gone)
		err = -ENOENT;
	else
		*out = i->attr;
	kv_mutex_unlock(&i->attr_mu);
	return err;
}

void fs_inode_set_attr(struct fs_inode *i, const struct fs_attr *attr)
{
	kv_mutex_lock(&i->attr_mu);
	i->attr = *attr;
	kv_mutex_unlock(&i->attr_mu);
}

void fs_inode_set_gone(struct fs_inode *i)
{
	kv_mutex_lock(&i->attr_mu);
	i->gone = true;
	kv_mutex_unlock(&i->attr_mu);
}

bool fs_inode_condemn(struct fs *fs, struct fs_inode *i)
{
	bool yes;

	kv_mutex_lock(&i->attr_mu);
	yes = !i->gone && !i->attr.nlink && !fs_known(fs, i->ino);
	if (yes)
		i->gone = true;
	kv_mutex_unlock(&i->attr_mu);
	return yes;
}

void fs_inode_spare(struct fs_inode *i)
{
	kv_mutex_lock(&i->attr_mu);
	i->gone = false;
	kv_mutex_unlock(&i->attr_mu);
}

/* --- both together ------------------------------------------------------------------------- */

struct fs_icache *fs_icache_new(struct fs *fs, uint32_t unused_max)
{
	struct fs_icache *c = calloc(1, sizeof(*c));
	bool ok = true;

	(void)fs;
	if (!c)
		return NULL;
	c->unused_max = (unused_max + SHARDS - 1) / SHARDS;
	for (size_t n = 0; n < SHARDS; n++) {
		struct icache_shard *sh = &c->shards[n];

		kv_mutex_init(&c->known[n].mu);
		kv_mutex_init(&sh->mu);
		kv_cond_init(&sh->loaded);
		kv_list_init(&sh->unused);
		sh->buckets = buckets_new(BUCKETS_MIN);
		sh->bucket_count = BUCKETS_MIN;
		ok = ok && sh->buckets;
	}
	if (!ok) {
		fs_icache_free(c);
		return NULL;
	}
	return c;
}

/* Whatever is in it goes, also orphans that are pinned. */
static void shard_done(struct icache_shard *sh)
{
	for (size_t n = 0; sh->buckets && n < sh->bucket_count; n++)
		kv_list_for_each_safe(l, &sh->buckets[n]) {
			struct fs_inode *i = kv_container_of(l, struct fs_inode, hash_link);

			KV_ASSERT(i->refs == (i->pinned ? 1 : 0));
			inode_free(i);
		}
	free(sh->buckets);
	kv_cond_done(&sh->loaded);
	kv_mutex_done(&sh->mu);
}

void fs_icache_free(struct fs_icache *c)
{
	if (!c)
		return;
	for (size_t n = 0; n < SHARDS; n++) {
		shard_done(&c->shards[n]);
		free(c->known[n].table);
		kv_mutex_done(&c->known[n].mu);
	}
	free(c);
}

void fs_icache_stats(struct fs *fs, uint64_t *out_known, uint64_t *out_cached)
{
	uint64_t known = 0, cached = 0;

	for (size_t n = 0; n < SHARDS; n++) {
		struct known_shard *k = &fs->icache->known[n];
		struct icache_shard *sh = &fs->icache->shards[n];

		kv_mutex_lock(&k->mu);
		known += k->used;
		kv_mutex_unlock(&k->mu);
		kv_mutex_lock(&sh->mu);
		cached += sh->count;
		kv_mutex_unlock(&sh->mu);
	}
	*out_known = known;
	*out_cached = cached;
}
