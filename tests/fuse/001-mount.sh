#!/bin/sh
# Format, mount, use, unmount, mount again; what the programs refuse.
. "$(dirname "$0")/lib.sh"

format -L first
mount_store
[ "$(stat -f -c %T "$mnt")" = fuseblk ] || [ "$(stat -f -c %T "$mnt")" = fuse ] || [ "$(stat -f -c %t "$mnt")" = 65735546 ]
grep -q " $mnt fuse.kvfs " /proc/self/mounts
[ "$(stat -c %i "$mnt")" = 1 ]

echo hello >"$mnt/a"
mkdir "$mnt/d"
ln "$mnt/a" "$mnt/d/b"
ln -s a "$mnt/link"
[ "$(cat "$mnt/link")" = hello ]
[ "$(stat -c %h "$mnt/a")" = 2 ]

say "a second mount of the store is refused, and says where the first is"
mkdir "$tmp/other"
must_fail 32 "$kvfs" "$store" "$tmp/other"
said "mounted already"
said "$mnt"
must_fail 8 "$fsck" -n "$store"
must_fail 1 "$mkfs" "$store"
said "$mnt"
must_fail 1 "$mkfs" -f "$store"
said "$mnt"

say "kvfsctl"
"$kvfsctl" sync "$mnt"
"$kvfsctl" stats "$mnt" | grep -q '^inodes  *4 '
must_fail 1 "$kvfsctl" sync "$tmp"
said "not a kvfs mount"

say "umount waits until the store is released"
unmount_store
check_store
mount_store
[ "$(cat "$mnt/d/b")" = hello ]
[ "$(readlink "$mnt/link")" = a ]

say "a mount that is in use is not unmounted"
exec 3<"$mnt/a"
must_fail 32 "$umount_kvfs" "$mnt"
exec 3<&-

say "SIGTERM syncs, unmounts and releases"
echo more >>"$mnt/a"
kill -TERM "$daemon"
flock "$store/LOCK" true
while mountpoint -q "$mnt"; do :; done
daemon=
check_store
mount_store
[ "$(tail -n 1 "$mnt/d/b")" = more ]

say "SIGTERM with open files: what was written is kept"
exec 3>>"$mnt/a"
echo last >&3
kill -TERM "$daemon"
flock "$store/LOCK" true
exec 3>&- || true
daemon=
umount -l "$mnt" 2>/dev/null || true
check_store
mount_store
[ "$(tail -n 1 "$mnt/a")" = last ]

say "the leftover of a daemon that died is taken away by the next mount"
kill -9 "$daemon"
while kill -0 "$daemon" 2>/dev/null; do :; done
"$kvfs" "$store" "$mnt" 2>"$tmp/err"
daemon=$(pgrep -n -f "kvfs .*$store $mnt")
[ "$(tail -n 1 "$mnt/a")" = last ]
unmount_store
! grep -q "$mnt" /proc/self/mounts || fail "the dead mount is there still"

say "read-only"
mount_store -o ro
[ "$(cat "$mnt/d/b" | head -n 1)" = hello ]
must_fail 32 "$kvfs" -o ro "$store" "$tmp/other"
said "mounted already"
! touch "$mnt/new" 2>/dev/null || fail "a read-only mount was written to"
unmount_store
check_store

if [ "$(id -u)" = 0 ]; then
	say "remounted, with what the kernel says of the mount, as mount(8) does it"
	mount_store
	options=$(awk -v m="$mnt" '$2 == m { sub(/^rw,/, "", $4); print $4 }' /proc/self/mounts)
	"$kvfs" -o "remount,ro,$options" "$store" "$mnt"
	! touch "$mnt/new" 2>/dev/null || fail "a mount that is read-only now was written to"
	"$kvfs" -o "remount,rw,$options" "$store" "$mnt"
	touch "$mnt/new"
	unmount_store
	check_store
fi
