# Shared by the tests on a real mount. Each test is a script that sources this, and ends 0 (passed),
# 77 (skipped: no /dev/fuse here), or otherwise at the first command that fails.
#
# $top_builddir is where the programs are (set by make check). $tmp is the test's own directory, which
# goes at the end, mounts and daemons with it.

set -eu

builddir=$(cd "${top_builddir:-build}" && pwd)
srcdir=$(cd "$(dirname "$0")/../.." && pwd)
kvfs=$builddir/fs/kvfs
kvfsctl=$builddir/fs/kvfsctl
umount_kvfs=$builddir/fs/umount.fuse.kvfs
mkfs=$builddir/mkfs/mkfs.kvfs
fsck=$builddir/fsck/fsck.kvfs

# A tree of some hundred small files and a few larger ones that every machine has which can build this.
sources=/usr/include/linux

say() { printf '# %s\n' "$*"; }
fail() { printf 'FAIL: %s\n' "$*" >&2; exit 1; }
skip() { printf 'SKIP: %s\n' "$*"; exit 77; }

[ -c /dev/fuse ] || skip "there is no /dev/fuse"
command -v fusermount3 >/dev/null || skip "fusermount3 (package fuse3) is missing"

tmp=$(mktemp -d "${TMPDIR:-/var/tmp}/kvfs-test.XXXXXX")
store=$tmp/store
mnt=$tmp/mnt
mkdir "$mnt"

cleanup() {
	status=$?
	trap - EXIT
	cd /
	kill_daemon 2>/dev/null || true
	while mountpoint -q "$mnt" 2>/dev/null || [ "$(stat -c x "$mnt" 2>&1)" != x ]; do
		umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt" 2>/dev/null || break
	done
	[ $status = 0 ] || [ $status = 77 ] || {
		printf 'test failed with %s; daemon log:\n' "$status" >&2
		cat "$tmp"/log >&2 2>/dev/null || true
	}
	rm -rf "$tmp"
	exit $status
}
trap cleanup EXIT
trap 'exit 129' HUP INT TERM

# must_fail CODE COMMAND...: it exits with the code, and says one sentence on stderr, kept in $tmp/err.
must_fail() {
	want=$1
	shift
	got=0
	"$@" >"$tmp/out" 2>"$tmp/err" || got=$?
	[ "$got" = "$want" ] || fail "$* exited with $got, not $want: $(cat "$tmp/err")"
	[ "$(wc -l <"$tmp/err")" = 1 ] || fail "$* said not one line but: $(cat "$tmp/err")"
}

# said TEXT: what must_fail heard contains it.
said() { grep -qF -- "$1" "$tmp/err" || fail "expected \"$1\" in: $(cat "$tmp/err")"; }

format() { "$mkfs" -q "$@" "$store"; }

# mount_store [-o options]: in the foreground of a background job, so that its pid is known. Returns when mounted.
mount_store() {
	"$kvfs" "$@" "$store" "$mnt"
	daemon=$(pgrep -n -f "kvfs .*$store $mnt") || fail "no daemon"
}

# Unmounts and waits for the daemon to be done.
unmount_store() {
	"$umount_kvfs" "$mnt"
	daemon=
}

daemon=
kill_daemon() {
	[ -n "$daemon" ] || return 0
	kill -9 "$daemon"
	while kill -0 "$daemon" 2>/dev/null; do
		read -r _ <"/proc/$daemon/stat" 2>/dev/null || break
		grep -q '^State:.*Z' "/proc/$daemon/status" 2>/dev/null && break
	done
	daemon=
	umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt"
}

# The store is sound.
check_store() {
	"$fsck" -f -n "$store" >"$tmp/fsck" 2>&1 || fail "fsck.kvfs exited with $?: $(cat "$tmp/fsck")"
}

# Two trees have the same content, modes, times, links.
same_tree() {
	for tree in "$1" "$2"; do
		(cd "$tree" && find . -mindepth 1 \( -type d -printf '%P %y %m %U %G %T@ %n\n' \
			-o -printf '%P %y %m %U %G %s %T@ %n %l\n' \) | LC_ALL=C sort
			cd "$tree" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 cksum) >"$tmp/list.$([ "$tree" = "$1" ] && echo 1 || echo 2)"
	done
	cmp "$tmp/list.1" "$tmp/list.2" || {
		diff "$tmp/list.1" "$tmp/list.2" | head -20
		fail "$1 and $2 differ"
	}
}
