#!/bin/bash
# Builds the fuzz targets with clang and libFuzzer, in the directory where it is called, and runs
# each for its share of the time.
#
#   FUZZ_SECONDS=180   in all
#   T=journal          only that target, for all of the time
#   CLANG=clang        another compiler
#
# An input that breaks a target is left in fuzz/found-NAME/; the line to repeat it is printed.
# What is worth keeping goes to tests/fuzz/found/NAME-what, which `make check` then runs.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
clang=${CLANG:-clang}
seconds=${FUZZ_SECONDS:-180}
only=${T:-}
jobs=$(nproc)
out=$PWD/fuzz
mkdir -p "$out/obj"

# shellcheck disable=SC2054
flags=(-std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 "-I$top" -O1 -g -fno-omit-frame-pointer
	-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -DKV_DEBUG=1 -Wall -pthread)
read -r -a libs <<<"$(pkg-config --libs libzstd liblz4 libxxhash)"

# What the targets reach: the engine, the bytes of the filesystem, options, the disk for seeds.
sources=("$top"/kv/*.c "$top"/fs/key.c "$top"/fs/record.c "$top"/fs/siphash.c "$top"/fs/opts.c
	"$top"/tests/sim/env_sim.c "$top"/tests/sim/sim_*.c "$top"/tests/fuzz/fuzz.c)

compile() {
	local source=$1 object=$out/obj/${1#"$top"/}
	object=${object%.c}.o
	mkdir -p "$(dirname "$object")"
	# As make would: again if the source, or any header, is newer.
	if [ ! -f "$object" ] || [ "$source" -nt "$object" ] || [ "$out/headers" -nt "$object" ]; then
		"$clang" "${flags[@]}" -c "$source" -o "$object"
	fi
}

objects() {
	local source
	for source in "$@"; do
		source=${source#"$top"/}
		printf '%s\n' "$out/obj/${source%.c}.o"
	done
}

# compile_all SOURCES: as many at a time as there are processors.
compile_all() {
	local source running=0 pids=()
	for source in "$@"; do
		compile "$source" &
		pids+=($!)
		if [ $((++running)) -ge "$jobs" ]; then
			wait "${pids[0]}"
			pids=("${pids[@]:1}")
			running=$((running - 1))
		fi
	done
	local pid
	for pid in "${pids[@]}"; do
		wait "$pid"
	done
}

if [ ! -f "$out/headers" ] ||
	[ -n "$(find "$top/kv" "$top/fs" "$top/tests" -name '*.h' -newer "$out/headers" -print -quit)" ]; then
	touch "$out/headers"
fi

targets=()
for source in "$top"/tests/fuzz/fuzz_*.c; do
	name=$(basename "$source" .c)
	name=${name#fuzz_}
	if [ -z "$only" ] || [ "$only" = "$name" ]; then
		targets+=("$name")
	fi
done
[ ${#targets[@]} -gt 0 ] || { echo "there is no target \"$only\"" >&2; exit 2; }

target_sources=()
for name in "${targets[@]}"; do
	target_sources+=("$top/tests/fuzz/fuzz_$name.c")
done
compile_all "${sources[@]}" "${target_sources[@]}"
mapfile -t common < <(objects "${sources[@]}")
for name in "${targets[@]}"; do
	"$clang" "${flags[@]}" -DFUZZ_TARGET="fuzz_$name" -fsanitize=fuzzer "$top/tests/fuzz/libfuzzer.c" \
		"$out/obj/tests/fuzz/fuzz_$name.o" "${common[@]}" "${libs[@]}" -o "$out/fuzz_$name"
done

# As many at a time as there are processors.
each=$((seconds * jobs / ${#targets[@]}))
[ "$each" -gt 0 ] || each=1

# One target, with what it says in its log.
run() {
	local name=$1 corpus=$out/corpus-$1 found=$out/found-$1 status=0
	mkdir -p "$corpus" "$found"
	local inputs=("$corpus")
	[ ! -d "$top/tests/fuzz/found" ] || inputs+=("$top/tests/fuzz/found")
	FUZZ_SEEDS=$corpus "$out/fuzz_$name" -max_total_time="$each" -max_len=16384 -timeout=20 \
		-rss_limit_mb=2048 -malloc_limit_mb=256 -print_final_stats=1 \
		-artifact_prefix="$found/" "${inputs[@]}" >"$out/$name.log" 2>&1 || status=$?
	echo "$status" >"$out/$name.status"
}

running=0
for name in "${targets[@]}"; do
	rm -f "$out/$name.status"
	run "$name" &
	if [ $((++running)) -ge "$jobs" ]; then
		wait -n
		running=$((running - 1))
	fi
done
wait

failed=()
for name in "${targets[@]}"; do
	if [ "$(cat "$out/$name.status")" = 0 ]; then
		printf 'fuzz_%-10s %s inputs tried, %s kept\n' "$name" \
			"$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log")" \
			"$(find "$out/corpus-$name" -type f | wc -l)"
		continue
	fi
	failed+=("$name")
	artifact=$(sed -n 's/.*Test unit written to //p' "$out/$name.log" | tail -n 1)
	printf 'fuzz_%-10s FAILED; to repeat: %s %s\n' "$name" "$out/fuzz_$name" "$artifact"
	tail -n 40 "$out/$name.log"
done

echo "$((${#targets[@]} - ${#failed[@]})) targets held, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"
[ ${#failed[@]} -eq 0 ]
