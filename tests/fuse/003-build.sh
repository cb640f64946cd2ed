#!/bin/sh
# A real C project, kvfs itself, built inside a mount.
. "$(dirname "$0")/lib.sh"

[ -x "$srcdir/configure" ] || skip "the source has no configure script"
format
mount_store
mkdir "$mnt/src"
(cd "$srcdir" && tar cf - configure configure.ac aclocal.m4 config.h.in Makefile.in Makefile.am \
	build-aux README.md LICENSE bootstrap kv fs mkfs fsck man tests) | tar xf - -C "$mnt/src"
mkdir "$mnt/src/build"
cd "$mnt/src/build"
../configure -q CFLAGS=-O0 >"$tmp/log" 2>&1
make -s -j2 >>"$tmp/log" 2>&1
./mkfs/mkfs.kvfs -V
cd /
unmount_store
check_store
mount_store
"$mnt/src/build/mkfs/mkfs.kvfs" -q "$tmp/inner"
[ -z "$(make -s -C "$mnt/src/build")" ] || fail "make finds something to do again"
unmount_store
