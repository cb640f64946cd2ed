#!/bin/bash
# Checks the includes of all sources against layers.txt. Called in the top folder of the sources.
set -euo pipefail

# shellcheck disable=SC2016
find kv fs mkfs fsck tests -name '*.[ch]' ! -name engine_kvfs.c | LC_ALL=C sort | xargs awk -v layers=tests/tidy/layers.txt '
function bad(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; failed = 1 }
function folder_of(path) { return substr(path, 1, index(path, "/") - 1) }
# Line in layers.txt of a file of the engine: by NAME:h or NAME:c, by NAME, by what is before a "_".
function layer_of(path,    name, kind) {
	name = path
	sub(/^kv\//, "", name)
	kind = name
	sub(/\.[ch]$/, "", name)
	sub(/^.*\./, "", kind)
	if ((name ":" kind) in layer)
		return layer[name ":" kind]
	while (!(name in layer) && sub(/_[^_]*$/, "", name))
		;
	return name in layer ? layer[name] : 0
}
function matches(path, globs,    n, list, i, re) {
	n = split(globs, list, " ")
	for (i = 1; i <= n; i++) {
		re = list[i]
		gsub(/\./, "\\.", re)
		gsub(/\*/, "[^/]*", re)
		if (path ~ ("^" re "$"))
			return 1
	}
	return 0
}
BEGIN {
	while ((getline line < layers) > 0) {
		n = split(line, f, /[ \t]+/)
		if (f[1] == "layer") {
			rank++
			for (i = 3; i <= n; i++)
				layer[f[i]] = rank
		} else if (f[1] == "border") {
			for (i = 2; i <= n; i++)
				border["kv/" f[i] ".h"] = 1
		} else if (f[1] == "folder") {
			folder[f[2]] = ++folders
		} else if (f[1] == "fuse") {
			fuse = substr(line, 6)
		} else if (f[1] == "front") {
			front = substr(line, 7)
		}
	}
}
FNR == 1 {
	mine = folder_of(FILENAME)
	if (mine == "kv" && !layer_of(FILENAME))
		bad("is in no layer")
}
/^#[ \t]*include[ \t]*<fuse/ && !matches(FILENAME, fuse) { bad("only the FUSE front knows libfuse") }
/^#[ \t]*include[ \t]*"/ {
	split($0, part, "\"")
	to = part[2]
	if (to == "config.h")
		next
	if (!(folder_of(to) in folder)) {
		bad("name the folder of " to)
	} else if (folder[folder_of(to)] > folder[mine]) {
		bad(to " lies above " mine "/")
	} else if (mine == "kv") {
		if (layer_of(to) > layer_of(FILENAME))
			bad(to " lies in a layer above")
	} else if (folder_of(to) == "kv" && mine != "tests" && !(to in border)) {
		bad(to " is the business of the engine")
	}
	if (mine != "tests" && matches(to, front) && !matches(FILENAME, fuse) && !matches(FILENAME, "fs/opts.c"))
		bad(to " is of the FUSE front")
}
END { exit failed }
'
