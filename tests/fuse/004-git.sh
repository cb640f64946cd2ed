#!/bin/sh
# git's own workflow, checked by git fsck.
. "$(dirname "$0")/lib.sh"
command -v git >/dev/null || skip "git is missing"

export HOME="$tmp" GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example
format
mount_store
cp -a "$sources" "$mnt/work"
cd "$mnt/work"
git init -q .
git config gc.auto 0 # it would run beside the one below
git add -A
git commit -qm first
[ -z "$(git status --porcelain)" ]
echo change >>fs.h
git commit -qam second
git gc -q
git clone -q . "$mnt/clone"
git -C "$mnt/clone" fsck --full --strict
cd /
unmount_store
check_store
mount_store
git -C "$mnt/work" fsck --full --strict
[ -z "$(git -C "$mnt/work" status --porcelain)" ]
[ "$(git -C "$mnt/clone" log --oneline | wc -l)" = 2 ]
unmount_store
