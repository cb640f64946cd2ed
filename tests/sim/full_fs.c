/*
 * The disk fills up: whoever writes is told, nothing that was acknowledged is lost, all that is
 * there can be read, opened anew, and deleted; and when it has been, there is room as before.
 *
 *	SEED=n TURNS=n tests/sim/full_fs
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "fsck/check.h"
#include "fs/core.h"
#include "kv/env.h"
#include "tests/sim/env_sim.h"
#include "tests/sim/kvref.h"

#define STORE "store"
#define CAPACITY (24 * KV_MIB)
#define FILES_MAX 4000

static uint64_t seed, turns = 3, random_state;

struct file {
	fs_ino ino;
	uint64_t seed;
	uint32_t bytes;
};

static struct file files[FILES_MAX];
static int file_count;

_Noreturn static void give_up(const char *what, int err)
{
	fprintf(stderr, "full_fs: %s: %s\nrepeat: SEED=%" PRIu64 " tests/sim/full_fs\n", what,
		kv_err_text(err), seed);
	abort();
}

static void ok(int err, const char *what)
{
	if (err)
		give_up(what, err);
}

static void print_message(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "%s\n", text);
}

static struct kv_options engine(struct kv_env *env, bool threads)
{
	return (struct kv_options){
		.env = env,
		.inline_work = !threads,
		.no_event_log = true,
		.msg = { getenv("VERBOSE") ? print_message : NULL, NULL, KV_MSG_DEBUG },
		.cache_bytes = 256 * KV_KIB,
		.memtable_bytes = 128 * KV_KIB,
		.table_bytes = 64 * KV_KIB,
		.segment_bytes = 512 * KV_KIB,
		.bulk_bytes_per_memtable = 1024 * KV_KIB,
		.level_base_bytes = 256 * KV_KIB,
	};
}

static struct kv_slice name_of(int n, char *to, size_t bytes)
{
	snprintf(to, bytes, "file-%d", n);
	return kv_slice_str(to);
}

static void fill(uint8_t *to, uint32_t bytes, uint64_t from)
{
	for (uint32_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)ref_random(&from);
}

/* Makes one file more; or says that there is no room. */
static int write_one(struct fs *fs)
{
	static uint8_t data[256 * 1024];
	struct file *f = &files[file_count];
	struct fs_attr a;
	char name[32];
	int err;

	f->seed = ref_random(&random_state);
	f->bytes = ref_chance(&random_state, 70) ? ref_below(&random_state, 2000)
						 : ref_below(&random_state, sizeof(data));
	err = fs_mknod(fs, FS_INO_ROOT, name_of(file_count, name, sizeof(name)), S_IFREG | 0644, 0,
		       NULL, &a);
	if (err)
		return err;
	fs_forget(fs, a.ino, 1);
	f->ino = a.ino;
	file_count++;
	fill(data, f->bytes, f->seed);
	err = fs_write(fs, a.ino, data, f->bytes, 0, 0);
	if (err)
		f->bytes = 0;		/* it is as it was */
	return err;
}

static uint64_t write_until_full(struct fs *fs)
{
	uint64_t bytes = 0;

	while (file_count < FILES_MAX) {
		int err = write_one(fs);

		if (kv_err_is(err, -ENOSPC))
			return bytes;
		ok(err, "write");
		bytes += files[file_count - 1].bytes;
	}
	return bytes;
}

static void read_all(struct fs *fs)
{
	static uint8_t want[256 * 1024], got[256 * 1024];

	for (int n = 0; n < file_count; n++) {
		struct fs_attr a;
		char name[32];
		size_t bytes;

		ok(fs_lookup(fs, FS_INO_ROOT, name_of(n, name, sizeof(name)), &a), "lookup");
		fs_forget(fs, a.ino, 1);
		if (a.ino != files[n].ino || a.size != files[n].bytes)
			give_up("a file is another", -EIO);
		ok(fs_read(fs, a.ino, got, sizeof(got), 0, &bytes), "read");
		fill(want, files[n].bytes, files[n].seed);
		if (bytes != files[n].bytes || memcmp(got, want, bytes))
			give_up("a file holds something else", -EIO);
	}
}

static void delete_all(struct fs *fs)
{
	while (file_count) {
		char name[32];

		file_count--;
		ok(fs_unlink(fs, FS_INO_ROOT, name_of(file_count, name, sizeof(name))),
		   "unlink on a full disk");
	}
	ok(fs_reclaim_wait(fs), "reclaim");
	ok(kv_wait_idle(fs_kv(fs)), "wait");
}

static void check(struct kv_env *env)
{
	struct fsck_options o = { .env = env, .read_only = true, .thorough = true,
				  .msg = { print_message, NULL, KV_MSG_WARN } };
	struct fsck_result result;

	ok(fsck_run(STORE, &o, &result), "fsck");
	if (result.problems)
		give_up("fsck has found problems", -EUCLEAN);
}

static struct fs *open_fs(struct kv_env *env, bool threads)
{
	struct fs_options o = { .kv = engine(env, threads), .commit_s = threads ? 1 : UINT32_MAX };
	struct fs *fs = NULL;

	ok(fs_open(STORE, &o, &fs), "open");
	return fs;
}

static void run(bool threads)
{
	struct fs_format_options o = { .hash_bits = 0 };
	struct kv_env *env = kv_env_sim_new(seed);
	struct fs *fs;

	KV_ASSERT(env);
	random_state = seed;
	kv_env_sim_set_capacity(env, CAPACITY);
	o.kv = engine(env, threads);
	ok(fs_format(STORE, &o), "format");
	fs = open_fs(env, threads);
	for (uint64_t turn = 0; turn < turns; turn++) {
		uint64_t bytes = write_until_full(fs);

		printf("%s: %" PRIu64 " KiB in %d files, then %" PRIu64 " of %" PRIu64
		       " KiB of the disk are taken\n", threads ? "threads" : "inline",
		       bytes / KV_KIB, file_count, kv_env_sim_used(env) / KV_KIB,
		       (uint64_t)CAPACITY / KV_KIB);
		fflush(stdout);
		/* Of what the disk holds, a good part is files. */
		if (bytes < CAPACITY / 2)
			give_up("full too soon", -ENOSPC);
		read_all(fs);
		if (turn % 2) {
			ok(fs_close(fs), "close");
			check(env);
			fs = open_fs(env, threads);
			read_all(fs);
		}
		/* Who finds no space in the next turn makes the engine look for what was deleted. */
		delete_all(fs);
	}
	ok(fs_close(fs), "close");
	check(env);
	kv_env_sim_free(env);
}

int main(void)
{
	const char *s = getenv("SEED"), *n = getenv("TURNS");
	struct kv_env *posix = kv_env_posix();

	if (s)
		seed = strtoull(s, NULL, 0);
	else if (posix->ops->random(posix, &seed, sizeof(seed)))
		return EXIT_FAILURE;
	turns = n ? strtoull(n, NULL, 0) : turns;
	printf("SEED=%" PRIu64 "\n", seed);
	run(false);
	run(true);
	printf("ok\n");
	return EXIT_SUCCESS;
}
