#!/bin/sh
# A real tree: copied in, compared, compared again after a remount; packed in by mkfs.kvfs -d.
. "$(dirname "$0")/lib.sh"

# A copy first, since somebody may be installing packages; with some things that headers don't have.
cp -a "$sources" "$tmp/source"
cp -a /usr/share/perl "$tmp/source/" 2>/dev/null || true
ln "$tmp/source/fs.h" "$tmp/source/fs-again.h"
truncate -s 300000000 "$tmp/source/sparse"
printf x | dd of="$tmp/source/sparse" bs=1 seek=123456789 conv=notrunc status=none
mkfifo -m 600 "$tmp/source/fifo"
touch -d '1969-07-20 20:17:40.123456789 UTC' "$tmp/source/old"
chmod 4751 "$tmp/source/old"
name=$(printf '%0255d' 7)
echo x >"$tmp/source/$name"
say "$(find "$tmp/source" | wc -l) files, $(du -sh "$tmp/source" | cut -f1)"

format
mount_store
cp -a --sparse=always "$tmp/source" "$mnt/copy"
same_tree "$tmp/source" "$mnt/copy"
[ "$(stat -c %b "$mnt/copy/sparse")" -lt 4096 ] || fail "the sparse file is not sparse"
unmount_store
check_store
mount_store
same_tree "$tmp/source" "$mnt/copy"
[ "$(stat -c %i "$mnt/copy/fs.h")" = "$(stat -c %i "$mnt/copy/fs-again.h")" ]

say "a file of more than 4 GiB"
truncate -s 6G "$mnt/large"
echo end >>"$mnt/large"
[ "$(stat -c %s "$mnt/large")" = 6442450948 ]
[ "$(tail -c 4 "$mnt/large")" = end ]
truncate -s 5G "$mnt/large"
[ "$(tail -c 1 "$mnt/large" | od -An -tu1 | tr -d ' ')" = 0 ]
[ "$(stat -c %b "$mnt/large")" = 0 ]

say "a file that is copied by copy_file_range"
yes 'a line of text' | head -c 150000000 >"$mnt/full"
cp "$mnt/full" "$mnt/full-copy"
cmp "$mnt/full" "$mnt/full-copy"
rm "$mnt/full" "$mnt/full-copy"

say "no hole where the kernel still holds data"
perl -e 'open(my $f, "+>", $ARGV[0]) or die; truncate($f, 1 << 20) or die; sysseek($f, 500000, 0);
	syswrite($f, "x" x 5000) == 5000 or die; my $at = sysseek($f, 0, 3);
	defined $at && $at <= 500000 or die "SEEK_DATA passed over data: " . ($at // $!) . "\n"' "$mnt/dirty"
rm "$mnt/dirty"

say "everything removed: the space is given back"
rm -rf "$mnt/copy" "$mnt/large"
[ "$(ls -A "$mnt" | wc -l)" = 0 ]
unmount_store
check_store

say "mkfs.kvfs -d"
rm -rf "$store"
format -d "$tmp/source"
check_store
mount_store
same_tree "$tmp/source" "$mnt"
[ "$(stat -c %a "$mnt")" = "$(stat -c %a "$tmp/source")" ]
[ "$(stat -c %i "$mnt/fs.h")" = "$(stat -c %i "$mnt/fs-again.h")" ]
[ "$(stat -c %b "$mnt/sparse")" -lt 4096 ] || fail "mkfs.kvfs -d filled the holes"
unmount_store
