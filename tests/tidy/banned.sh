#!/bin/bash
# Looks for what banned.txt lists. Called in the top folder of the sources.
set -euo pipefail

mapfile -t files < <(find kv fs mkfs fsck tests -name '*.[ch]' | LC_ALL=C sort)
failed=0
while IFS=$'\t' read -r pattern instead; do
	case $pattern in '' | '#'*) continue ;; esac
	hits=$(grep -nE "$pattern" "${files[@]}" || true)
	if [ -n "$hits" ]; then
		printf '%s\n' "$hits" | sed "s|\$|    <- $instead|"
		failed=1
	fi
done <tests/tidy/banned.txt
exit $failed
