#!/bin/bash
# Whatever a tool can say about the sources without running them. `make tidy` calls it with the
# folder that config.h is in. Everything is looked at before it fails.
#
#   T=clang-tidy   only the steps with this in their name
set -uo pipefail

build=${1:-.}
build=$(cd "$build" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

read -r -a fuse <<<"$(pkg-config --cflags fuse3)"
flags=(-std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. "-I$build" "${fuse[@]}")
clang=${CLANG:-clang}
jobs=$(nproc)
# Not the adapter of a benchmark whose headers are elsewhere.
mapfile -t sources < <(find kv fs mkfs fsck tests -name '*.c' ! -name libfuzzer.c ! -name engine_kvfs.c | LC_ALL=C sort)

failed=()

# step NAME COMMAND...
step() {
	local name=$1
	shift
	case $name in *"${T:-}"*) ;; *) return 0 ;; esac
	printf -- '--- %s\n' "$name"
	"$@" || failed+=("$name")
}

each_source() {
	printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$jobs" "$@"
}

lock_analysis() {
	each_source "$clang" "${flags[@]}" -fsyntax-only -Wall -Wextra -Wthread-safety -Werror
}

# Not unit tests and models, which take it minutes and lean on what cannot be: compilers and
# cppcheck see those.
# One file a process: what the analyzer of clang 14 knows of va_list does not survive a second file.
run_clang_tidy() {
	# shellcheck disable=SC2016
	printf '%s\0' "${sources[@]}" | grep -zv -e '^tests/unit/' -e '^tests/sim/[^es]' | xargs -0 -I '{}' -P "$jobs" \
		bash -c 'out=$(clang-tidy --quiet "$@" 2>&1) || { printf "%s\n" "$out"; exit 1; }' \
		bash '{}' -- "${flags[@]}"
}

run_cppcheck() {
	grep -v '^#' tests/tidy/cppcheck.txt >"$build/cppcheck.suppressions"
	cppcheck -q --std=c11 --language=c -j "$jobs" --enable=warning,performance,portability \
		--error-exitcode=1 --suppressions-list="$build/cppcheck.suppressions" \
		-D_GNU_SOURCE -I. kv fs mkfs fsck tests
}

# What other pages of the system there are is not asked, only whether ours are well formed.
run_mandoc() {
	mandoc -T lint -W warning man/*.[1-9]
}

step layers tests/tidy/layers.sh
step banned tests/tidy/banned.sh
step locks lock_analysis
step mandoc run_mandoc
step cppcheck run_cppcheck
step clang-tidy run_clang_tidy

if [ ${#failed[@]} -gt 0 ]; then
	printf 'tidy: not good: %s\n' "${failed[*]}"
	exit 1
fi
echo 'tidy: all good'
