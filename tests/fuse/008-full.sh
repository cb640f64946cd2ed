#!/bin/sh
# A full disk and a read-only one, for real: a small filesystem under the store.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root, for a loop mount"
command -v mkfs.ext4 >/dev/null || skip "mkfs.ext4 is missing"

disk=$tmp/disk
mkdir "$disk"
truncate -s 192M "$tmp/image"
mkfs.ext4 -q -F "$tmp/image"
mount -o loop "$tmp/image" "$disk" || skip "no loop devices here"
host_cleanup() {
	status=$?
	cd /
	umount -l "$mnt" 2>/dev/null || true
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null || true
	umount -l "$disk" 2>/dev/null || true
	(exit $status)
	cleanup
}
trap host_cleanup EXIT

store=$disk/store
format
mount_store
cp -a /usr/include/linux/netfilter_bridge "$mnt/keep"
"$kvfsctl" sync "$mnt"

say "writing until it is full gives ENOSPC, at write or at fsync"
if dd if=/dev/urandom of="$mnt/big" bs=1M count=400 conv=fsync 2>"$tmp/log"; then
	fail "400 MiB went into 192 MiB"
fi
grep -q 'No space left' "$tmp/log" || fail "not ENOSPC but: $(cat "$tmp/log")"
cmp "$mnt/keep/ebtables.h" /usr/include/linux/netfilter_bridge/ebtables.h

say "removing works, and gives the space back, without mounting again"
rm "$mnt/big"
tries=0
while [ "$(df -k --output=avail "$mnt" | tail -n 1)" -lt 90000 ]; do
	tries=$((tries + 1))
	[ $tries -lt 3000 ] || fail "the space is not given back: $(ls -l "$store"; "$kvfsctl" stats "$mnt")"
	"$kvfsctl" sync "$mnt" 2>/dev/null || true # may tell once more of what was lost
done
dd if=/dev/urandom of="$mnt/again" bs=1M count=60 conv=fsync 2>"$tmp/log" ||
	fail "no room after removing: $(cat "$tmp/log"; df "$disk"; ls -l "$store"; "$kvfsctl" stats "$mnt")"
unmount_store
check_store

say "a disk that is smaller than what is kept back: mkfs.kvfs says so"
mkdir "$disk/small"
mount -t tmpfs -o size=40m tmpfs "$disk/small"
"$mkfs" -q "$disk/small/store" 2>"$tmp/err"
said "less space left than the store keeps back"
umount "$disk/small"

say "a read-only disk: read-only mounts work, others are refused in one sentence"
mount -o remount,ro "$disk"
must_fail 32 "$kvfs" "$store" "$mnt"
said "read-only"
mount_store -o ro
cmp "$mnt/keep/ebtables.h" /usr/include/linux/netfilter_bridge/ebtables.h
unmount_store
check_store
