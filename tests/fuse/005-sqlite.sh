#!/bin/sh
# An SQLite database in WAL and in DELETE mode; the daemon killed in the middle: what was committed is there.
. "$(dirname "$0")/lib.sh"
command -v sqlite3 >/dev/null || skip "sqlite3 is missing"

format
for mode in wal delete; do
	say "$mode"
	mount_store
	db=$mnt/$mode.db
	sqlite3 "$db" "pragma journal_mode=$mode; create table t(id integer primary key, s text);" >"$tmp/log"
	sqlite3 "$db" "with recursive n(i) as (select 1 union all select i+1 from n where i<20000)
		insert into t select i, hex(randomblob(50)) from n; delete from t where id % 3 = 0; vacuum;"
	[ "$(sqlite3 "$db" 'pragma integrity_check')" = ok ]

	say "killed while it commits one row after the other"
	: >"$tmp/acked.log"
	(i=100000; while sqlite3 "$db" "pragma synchronous=full; insert into t values($i, 'x')" 2>/dev/null; do
		echo $i; i=$((i + 1)); done) >>"$tmp/acked.log" &
	writer=$!
	while [ "$(wc -l <"$tmp/acked.log")" -lt 30 ]; do kill -0 $writer || break; done
	kill_daemon
	wait $writer || true
	[ "$(wc -l <"$tmp/acked.log")" -ge 30 ] || fail "the writer did not get far"
	check_store
	mount_store
	[ "$(sqlite3 "$db" 'pragma integrity_check')" = ok ]
	last=$(tail -n 1 "$tmp/acked.log")
	[ "$(sqlite3 "$db" "select count(*) from t where id between 100000 and $last")" = $((last - 100000 + 1)) ] ||
		fail "an acknowledged row is missing"
	unmount_store
	check_store
done
