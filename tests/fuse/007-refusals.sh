#!/bin/sh
# Bad input gets one clear sentence and the right exit code.
. "$(dirname "$0")/lib.sh"

say "a directory that is not there, or no store"
must_fail 32 "$kvfs" "$tmp/nothing" "$mnt"
said "$tmp/nothing"
mkdir "$tmp/plain"
must_fail 32 "$kvfs" "$tmp/plain" "$mnt"
said "$tmp/plain"
must_fail 8 "$fsck" -n "$tmp/plain"
said "$tmp/plain"
echo x >"$tmp/plain/file"
must_fail 32 "$kvfs" "$tmp/plain" "$mnt"
must_fail 1 "$mkfs" "$tmp/plain"
said '"file"'
[ "$(ls -A "$tmp/plain")" = file ] || fail "mkfs.kvfs left something behind"
"$mkfs" -q -f "$tmp/plain"
[ "$(cat "$tmp/plain/file")" = x ] || fail "mkfs.kvfs -f touched a file that is not its own"
"$fsck" -n "$tmp/plain" >/dev/null

say "options"
format
must_fail 1 "$mkfs" "$store"
said "holds a kvfs store"
must_fail 1 "$kvfs" "$store"
must_fail 1 "$kvfs" "$store" "$mnt" -o misspelt
said '"misspelt"'
must_fail 1 "$kvfs" "$store" "$mnt" -o commit=x
said 'commit=x'
must_fail 1 "$kvfs" -z "$store" "$mnt"
must_fail 2 "$mkfs" -U 123 "$tmp/s2"
must_fail 2 "$mkfs" -o misspelt "$tmp/s2"
[ ! -e "$tmp/s2" ]
must_fail 16 "$fsck" -z "$store"
must_fail 2 "$kvfsctl" misspelt "$mnt"

say "a source that holds the store"
mkdir -p "$tmp/tree/sub"
must_fail 1 "$mkfs" -d "$tmp/tree" "$tmp/tree/sub/store"
said "copied into itself"
[ ! -e "$tmp/tree/sub/store" ] || fail "mkfs.kvfs left something behind"
mkdir "$tmp/tree-2"
"$mkfs" -q -d "$tmp/tree" "$tmp/tree-2/store"
must_fail 2 "$kvfsctl" sync "$mnt" "$mnt"
said "kvfsctl: one mount point"

say "mount points"
must_fail 32 "$kvfs" "$store" "$tmp/nowhere"
said "$tmp/nowhere"
echo x >"$tmp/file"
must_fail 32 "$kvfs" "$store" "$tmp/file"
said "$tmp/file"
must_fail 32 "$kvfs" "$store" "$store"

say "a newer format: version 2, with the right checksum"
cp -a "$store" "$tmp/newer"
cp "$srcdir/tests/golden/newer/CURRENT" "$tmp/newer/CURRENT"
must_fail 32 "$kvfs" "$tmp/newer" "$mnt"
said "newer"
must_fail 8 "$fsck" -n "$tmp/newer"

say "a root pointer that is damaged, or cut off"
cp -a "$store" "$tmp/damaged"
printf '\377' | dd of="$tmp/damaged/CURRENT" bs=1 seek=40 conv=notrunc status=none
must_fail 32 "$kvfs" "$tmp/damaged" "$mnt"
said "CURRENT"
truncate -s 20 "$tmp/damaged/CURRENT"
must_fail 32 "$kvfs" "$tmp/damaged" "$mnt"
said "CURRENT"

say "a manifest cut off, and one with a byte flipped"
mount_store
cp -a /usr/include/linux "$mnt/"
unmount_store
manifest=$(cd "$store" && ls ./*.manifest)
for damage in cut flip; do
	rm -rf "$tmp/damaged"
	cp -a "$store" "$tmp/damaged"
	case $damage in
	cut) truncate -s 100 "$tmp/damaged/$manifest" ;;
	flip) dd if=/dev/zero of="$tmp/damaged/$manifest" bs=1 seek=120 count=8 conv=notrunc status=none ;;
	esac
	must_fail 32 "$kvfs" "$tmp/damaged" "$mnt"
	said ".manifest"
	"$fsck" "$tmp/damaged" >"$tmp/out" 2>&1 && fail "fsck.kvfs found nothing wrong" || [ $? = 4 ]
	grep -q -- "-y makes" "$tmp/out" || fail "fsck.kvfs did not tell of -y: $(cat "$tmp/out")"
	"$fsck" -y "$tmp/damaged" >"$tmp/out" 2>&1 && fail "fsck.kvfs -y did nothing" || [ $? = 1 ] ||
		fail "fsck.kvfs -y: $(cat "$tmp/out")"
	"$fsck" -f -n "$tmp/damaged" >"$tmp/out" 2>&1 || fail "a second run: $(cat "$tmp/out")"
	"$kvfs" "$tmp/damaged" "$mnt"
	diff -r --no-dereference /usr/include/linux "$mnt/linux" || fail "files differ after the repair"
	"$umount_kvfs" "$mnt"
done

say "a table that is gone, a table and a segment with flipped bytes"
for kind in sst vlog; do
	file=$(cd "$store" && ls -S ./*.$kind | head -n 1)
	rm -rf "$tmp/damaged"
	cp -a "$store" "$tmp/damaged"
	printf '\125\252\125' | dd of="$tmp/damaged/$file" bs=1 seek=$(($(stat -c %s "$store/$file") / 2)) conv=notrunc status=none
	"$fsck" -f -n "$tmp/damaged" >"$tmp/out" 2>&1 && fail "fsck.kvfs found nothing wrong with $file" || [ $? = 4 ]
	grep -qF "$(basename "$file")" "$tmp/out" || fail "fsck.kvfs did not name $file: $(cat "$tmp/out")"
	rm "$tmp/damaged/$file"
	"$fsck" -n "$tmp/damaged" >"$tmp/out" 2>&1 && fail "fsck.kvfs did not miss $file"
	grep -qF "$(basename "$file")" "$tmp/out" || fail "fsck.kvfs did not name $file: $(cat "$tmp/out")"
	"$fsck" -y "$tmp/damaged" >"$tmp/out" 2>&1 && fail "fsck.kvfs -y lost nothing" || [ $? -le 4 ]
	grep -qF "lost: $(basename "$file")" "$tmp/out" || fail "fsck.kvfs -y did not tell: $(cat "$tmp/out")"
done

say "files that may not be read (root may read everything)"
if [ "$(id -u)" != 0 ]; then
	chmod 0 "$store/CURRENT"
	must_fail 32 "$kvfs" "$store" "$mnt"
	chmod 600 "$store/CURRENT"
fi
check_store
