/*
 * Repair: makes a store that can be opened of what there is in its directory, when the files that
 * say what it consists of are damaged or gone, or tables, journals or segments are.
 *
 * While the manifest can be read to its end, it says which files count and where, and only what is
 * damaged is replaced: a table by one with what is good in it; journals, if an opening could not
 * replay them, by tables with what can be replayed. If CURRENT is lost, the manifest is found by what
 * is in it.
 *
 * Without a whole manifest the store is rebuilt: all tables that may count are merged with all journals
 * into one level. Sequence numbers say which version of a key is newest, so that is right however
 * tables overlap. What can be read of manifests says which tables don't count. What nobody can tell
 * any more: a table that was replaced, but not deleted yet, may bring back keys that were deleted
 * since, if what deleted them is gone; report.may_resurrect says that this could be so.
 *
 * Nothing is made up: a key whose value is lost (its segment is gone, or damaged there) stays, and
 * reading it gives KV_E_corrupt until it is overwritten or deleted; kv_verify() names these keys. Where entries
 * of a table are lost, older versions of their keys may be seen again, or none; a message says
 * between which keys. Journals go on behind a loss: so the result need not be a prefix of history any more
 * (K1). A tail that was never promised durable is no damage, and ends them as in an opening.
 *
 * Safe at any moment: nothing is removed before the new state is durable, and that counts by the
 * replacement of CURRENT. Killed before, it has done nothing that an opening would notice. Files that
 * are damaged, or not of this store, stay under their name with ".lost" behind it, of
 * which the engine takes no notice. Good files that are not needed go with the next opening.
 */
#ifndef KV_REPAIR_H
#define KV_REPAIR_H

#include "kv/kv.h"

struct kv_repair_report {
	bool damaged;			/* something was wrong; else nothing was written */
	bool rebuilt;			/* without a whole manifest */
	bool may_resurrect;		/* see above */
	uint64_t losses;		/* messages that told of something lost */
	uint64_t tables_kept;		/* good, with all that is in them */
	uint64_t tables_salvaged;	/* written anew with what could be read */
	uint64_t tables_dropped;	/* named or needed, and nothing in them could be read */
	uint64_t tables_missing;	/* named, and not there */
	uint64_t tables_obsolete;	/* there, but replaced by others before: no loss */
	uint64_t blocks_lost;		/* in the tables salvaged */
	uint64_t journals_damaged;	/* or missing */
	uint64_t operations_recovered;	/* from damaged journals, or those of a store that was rebuilt */
	uint64_t operations_lost;	/* in between, by their numbers */
	uint64_t segments_missing;	/* referred to, and not there, or too short: zeros stand in for them */
	uint64_t headers_mended;	/* files of which only the first bytes were damaged */
	uint64_t files_foreign;		/* of another store, or under another file's name */
};

/*
 * Nobody may have the store open (KV_E_locked). Of one that is whole nothing is changed, and nothing
 * written. With read_only in the options nothing is written in any case: the report says what a
 * repair would find, where a damaged header counts as damage to all of the file. The options also give the
 * sizes of new tables, and where messages go: a loss is KV_MSG_WARN.
 *
 * KV_E_not_a_store when no file tells which store this is; KV_E_newer_format; and errors of the env: these
 * are no damage, and then nothing has happened.
 */
int kv_repair(const char *dir, const struct kv_options *options, struct kv_repair_report *out_report)
	KV_NODISCARD;

#endif
