/*
 * umount.fuse.kvfs: what umount(8) calls for our mounts. Unmounts, and waits until the
 * daemon has synced and released the store: then a copy or another mount of the store is safe.
 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/mounts.h"

#define EXIT_USAGE 1
#define EXIT_FAILED 32
#define WAIT_S 600

int main(int argc, char **argv)
{
	KV_AUTO(kv_buf_done) struct kv_buf source = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf type = KV_BUF_INIT;
	char mountpoint[PATH_MAX];
	unsigned major, minor;
	bool lazy = false, force = false;
	int c, err;

	/* As umount(8) hands them on: lazy, force, no mtab, read-only, verbose, type. */
	while ((c = getopt(argc, argv, "lfnrvt:N:")) != -1) {
		if (c == 'l')
			lazy = true;
		else if (c == 'f')
			force = true;
		else if (c == '?')
			return EXIT_USAGE;
	}
	if (optind + 1 != argc) {
		fputs("usage: umount.fuse.kvfs [-l] [-f] MOUNTPOINT\n", stderr);
		return EXIT_USAGE;
	}
	/* realpath() would ask a daemon that may be dead: only the mount table is asked first. */
	if (fs_mounts_at(argv[optind], &source, &type, &major, &minor)) {
		snprintf(mountpoint, sizeof(mountpoint), "%s", argv[optind]);
	} else if (!realpath(argv[optind], mountpoint) ||
		   !fs_mounts_at(mountpoint, &source, &type, &major, &minor)) {
		fprintf(stderr, "umount: %s: not mounted\n", argv[optind]);
		return EXIT_FAILED;
	}
	err = fs_unmount(mountpoint, lazy, force);
	if (err) {
		fprintf(stderr, "umount: %s: %s\n", mountpoint, strerror(-err));
		return EXIT_FAILED;
	}
	if (lazy)
		return 0;
	if (fs_store_wait((const char *)source.data, WAIT_S)) {
		fprintf(stderr, "umount: %s: unmounted, but the daemon has not released %s in %d s\n",
			mountpoint, (const char *)source.data, WAIT_S);
		return EXIT_FAILED;
	}
	return 0;
}
