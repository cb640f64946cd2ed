/*
 * Everything that can be wrong with a filesystem, in one table. A number is permanent:
 * it is printed, documented in fsck.kvfs(8), and never used for anything else again.
 *
 * In a sentence stand for what the problem is about:
 *	%p	the inode: its path and number, as far as they can be told
 *	%i	its number alone
 *	%d	the path of the directory
 *	%n	the name, quoted
 *	%a %b	two numbers
 *	%t	a text
 */
#ifndef FSCK_PROBLEM_H
#define FSCK_PROBLEM_H

#include "fs/record.h"

struct fsck;

#define FSCK_PROBLEMS(x)                                                                        \
	/* number name         what is wrong */                                                 \
	/* the store's files */                                                                 \
	x(1,  store_file,      "%t")                                                            \
	x(2,  store_unopened,  "the store cannot be opened: %t")                                \
	x(3,  store_unread,    "%t cannot be read to the end: %b records in, the store says: "  \
			       "%n")                                                            \
	x(4,  value_unread,    "%p: its %t cannot be read")                                     \
	/* the whole */                                                                         \
	x(10, super_missing,   "the superblock is missing")                                     \
	x(11, super_bad,       "the superblock is damaged")                                     \
	x(12, ino_next_bad,    "the next inode number is missing or damaged")                   \
	x(13, ino_next_low,    "%p: its number would be given away again: the next one is %a")  \
	x(14, bytes_used,      "the files have %b bytes together, but %a are on record")        \
	x(15, inodes,          "there are %b inodes, but %a are on record")                     \
	x(16, key_unknown,     "the store holds a key of %a bytes that means nothing: %t")      \
	/* inodes */                                                                            \
	x(20, root_missing,    "the root directory is missing, or is no directory")             \
	x(21, attr_bad,        "%p: its attributes are damaged")                                \
	x(22, ino_reserved,    "%p: an inode of this number cannot be")                         \
	x(23, orphan_missing,  "%p: has no links, but is not listed as deleted")                \
	x(24, orphan_linked,   "%p: is listed as deleted, but has %a links")                    \
	x(25, orphan_no_inode, "inode %i is listed as deleted, but does not exist")             \
	x(26, dir_nlink,       "%p: has %a links, but its subdirectories make it %b")           \
	x(27, dir_size,        "%p: has %a entries on record, but %b names in it")              \
	x(28, inline_bad,      "%p: is a regular file with its bytes in the attributes, "       \
			       "which this version does not write")                             \
	/* bytes of files */                                                                    \
	x(30, extent_no_inode, "inode %i has bytes of a file, but does not exist")              \
	x(31, extent_no_file,  "%p: has bytes of a file, but is none")                          \
	x(32, extent_bad,      "%p: a piece of %b bytes at offset %a cannot be")                \
	x(33, extent_overlap,  "%p: two pieces overlap at offset %a")                           \
	x(34, extent_beyond,   "%p: has bytes up to offset %a, but ends at %b")                 \
	x(35, extent_bytes,    "%p: has %a bytes on record, but its pieces have %b")            \
	x(36, extent_count,    "%p: has %a pieces on record, but there are %b")                 \
	/* extended attributes */                                                               \
	x(40, xattr_no_inode,  "inode %i has extended attributes, but does not exist")          \
	x(41, xattr_denied,    "%p: has an extended attribute %n that its flags deny")          \
	x(42, xattr_bad,       "%p: its extended attribute %n has %a bytes, more than can be")  \
	/* names */                                                                             \
	x(50, names_no_inode,  "inode %i has names in it, but does not exist")                  \
	x(51, names_no_dir,    "%p: has names in it, but is no directory")                      \
	x(52, bucket_bad,      "%p: some of the names in it are damaged")                       \
	x(53, slot_twice,      "%p: the name %n in it has another one's place")                 \
	x(54, name_twice,      "%p: the name %n is in it twice")                                \
	x(55, name_lost,       "%p: the name %n in it is not where it is looked for")           \
	x(56, names_deleted,   "%p: is deleted, but has names in it")                           \
	/* links */                                                                             \
	x(60, name_no_inode,   "%n in %d names inode %i, which does not exist")                 \
	x(61, name_type,       "%n in %d is listed as a %t, but inode %i is something else")    \
	x(62, nlink,           "%p: has %a links on record, but %b names")                      \
	x(63, no_name,         "%p: no directory names it")                                     \
	x(64, dir_two_names,   "%p: a directory with %b names")                                 \
	x(65, dir_parent,      "%n in %d names directory %i, which says that it is in inode %a") \
	x(66, dir_loop,        "%p: a directory that is in itself, not below the root")

enum fsck_problem {
#define X(number, name, text) FSCK_P_##name = (number),
	FSCK_PROBLEMS(X)
#undef X
};

/* What it is about; what the sentence has no use for stays 0. */
struct fsck_about {
	fs_ino ino, dir;
	struct kv_slice name;
	uint64_t a, b;
	const char *text;
};

/* Counts the problem and says its sentence (of one kind no more than options->repeat_max times). */
void fsck_report(struct fsck *c, enum fsck_problem p, struct fsck_about about);

#define FSCK_PROBLEM_NUMBER_MAX 66

/* The number, as it is printed, to its name in the table; NULL: there is none. For tests and -v. */
const char *fsck_problem_name(int number);

#endif
