#!/bin/sh
# Somebody without privileges formats, mounts through fusermount3, uses and unmounts.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root, to become nobody"
chmod 755 "$tmp"
mkdir "$tmp/home"
chown nobody "$tmp/home"
cp "$kvfs" "$mkfs" "$fsck" "$kvfsctl" "$tmp/home/"
chmod 755 "$tmp"/home/*kvfs*
chmod o+rw /dev/fuse 2>/dev/null || true
cat >"$tmp/home/go" <<'EOS'
set -eu
cd "$1"
./mkfs.kvfs -q s
mkdir m
./kvfs s m
echo hello >m/f
[ "$(cat m/f)" = hello ]
[ "$(stat -c %U m/f)" = nobody ]
./kvfsctl sync m
fusermount3 -u m
flock s/LOCK true
./fsck.kvfs -f s
EOS
setpriv --reuid nobody --regid nogroup --clear-groups sh "$tmp/home/go" "$tmp/home"
