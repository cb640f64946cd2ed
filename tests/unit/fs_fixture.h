/* A filesystem in a directory of its own under TMPDIR, for tests of the core and of fsck. */
#ifndef TESTS_FS_FIXTURE_H
#define TESTS_FS_FIXTURE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/core.h"
#include "tests/unit/unit.h"

struct fixture {
	char dir[256];
	struct fs *fs;
	time_t now_s;			/* the clock: a second later at each look */
};

static inline void fixture_now(void *arg, struct timespec *out)
{
	struct fixture *x = arg;

	*out = (struct timespec){ x->now_s++, 0 };
}

static inline void fixture_msg(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg;
	if (level <= KV_MSG_WARN)
		fprintf(stderr, "%s\n", text);
}

static inline struct kv_options fixture_kv_options(void)
{
	return (struct kv_options){
		.inline_work = true,
		.no_event_log = true,
		.msg = { .fn = fixture_msg, .level_max = KV_MSG_WARN },
	};
}

static inline void fixture_mount(struct fixture *x)
{
	struct fs_options o = {
		.kv = fixture_kv_options(),
		.commit_s = UINT32_MAX,
		.now = fixture_now,
		.now_arg = x,
	};

	ck_ok(fs_open(x->dir, &o, &x->fs));
}

static inline void fixture_unmount(struct fixture *x)
{
	ck_ok(fs_close(x->fs));
	x->fs = NULL;
}

/* With a short hash, names collide. */
static inline void fixture_init_hash(struct fixture *x, uint32_t hash_bits)
{
	struct fs_format_options o = { .kv = fixture_kv_options(), .hash_bits = hash_bits };
	const char *tmp = getenv("TMPDIR");

	*x = (struct fixture){ .now_s = 1000000 };
	snprintf(x->dir, sizeof(x->dir), "%s/kvfs-test-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(x->dir));
	ck_ok(fs_format(x->dir, &o));
	fixture_mount(x);
}

static inline void fixture_init(struct fixture *x)
{
	fixture_init_hash(x, 0);
}

/* Unmounts, if it is mounted, and removes the store. */
static inline void fixture_done(struct fixture *x)
{
	char path[600];
	struct dirent *e;
	DIR *d;

	if (x->fs)
		fixture_unmount(x);
	d = opendir(x->dir);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", x->dir, e->d_name);
		if (e->d_name[0] != '.')
			unlink(path);
	}
	if (d)
		closedir(d);
	rmdir(x->dir);
}

static inline fs_ino fixture_file(struct fixture *x, fs_ino dir, const char *name)
{
	struct fs_caller caller = { 0 };
	struct fs_attr attr;

	ck_ok(fs_mknod(x->fs, dir, kv_slice_str(name), S_IFREG | 0644, 0, &caller, &attr));
	return attr.ino;
}

static inline fs_ino fixture_dir(struct fixture *x, fs_ino dir, const char *name)
{
	struct fs_caller caller = { 0 };
	struct fs_attr attr;

	ck_ok(fs_mkdir(x->fs, dir, kv_slice_str(name), S_IFDIR | 0755, &caller, &attr));
	return attr.ino;
}

static inline struct fs_attr fixture_attr(struct fixture *x, fs_ino ino)
{
	struct fs_attr attr;

	ck_ok(fs_getattr(x->fs, ino, &attr));
	return attr;
}

static inline void fixture_truncate(struct fixture *x, fs_ino ino, uint64_t size)
{
	struct fs_caller caller = { 0 };
	struct fs_attr in = { .size = size }, out;

	ck_ok(fs_setattr(x->fs, ino, &in, FS_SET_SIZE, &caller, &out));
	ck_assert_uint_eq(out.size, size);
}

#endif
