#!/bin/sh
# The daemon is killed in the middle of work: what was synced is there, nothing is torn, fsck finds nothing.
. "$(dirname "$0")/lib.sh"

format
for round in 1 2 3 4 5; do
	mount_store
	rm -rf "$mnt/new" "$mnt/synced"
	mkdir "$mnt/synced"
	cp -a "$sources" "$mnt/synced/tree"
	"$kvfsctl" sync "$mnt"
	# Replaces a file atomically, over and over, beside a copy. Both go into the mount first: a path would
	# lead into the directory below it once it is gone, and there they would go on for ever.
	echo 0 >"$mnt/counter"
	(cd "$mnt"; i=0; while i=$((i + 1)) && echo "$i $i" >counter.new && mv counter.new counter; do :; done) 2>/dev/null &
	a=$!
	(cd "$mnt"; cp -a "$sources" new; rm -rf new) 2>/dev/null &
	b=$!
	while [ "$(find "$mnt/new" 2>/dev/null | wc -l)" -lt $((round * 120)) ]; do kill -0 $b || break; done
	kill_daemon
	wait $a $b || true
	check_store
	mount_store
	same_tree "$sources" "$mnt/synced/tree"
	read -r x y <"$mnt/counter" || true
	[ "$x" = "${y:-0}" ] || [ "$x" = 0 ] || fail "the counter is torn: $x $y"
	# A file that was copied whole has its content: a name with a size has its bytes.
	(cd "$mnt/new" 2>/dev/null && find . -type f -newermt '2000-01-01' ! -size 0 -print) |
		while read -r f; do
			[ ! -f "$sources/$f" ] || [ "$(stat -c %Y "$mnt/new/$f")" != "$(stat -c %Y "$sources/$f")" ] ||
				cmp "$mnt/new/$f" "$sources/$f"
		done
	unmount_store
	check_store
done
