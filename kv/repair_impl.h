/*
 * What the files of repair share:
 *	repair.c		decides what the new state is, and makes it count
 *	repair_files.c		the directory: whose the files are, and those that are lost
 *	repair_manifest.c	what can be read of manifests
 *	repair_table.c		what can be read of tables
 *	repair_journal.c	what can be read of journals
 */
#ifndef KV_REPAIR_IMPL_H
#define KV_REPAIR_IMPL_H

#include <stdlib.h>

#include "kv/open.h"
#include "kv/repair.h"

struct kv_chunk;

struct kv_repair_file {
	enum kv_file_kind kind;
	kv_fileno number;
	uint64_t bytes;
	bool bad_header;		/* or it is cut off within */
	bool foreign;
	bool lost;			/* stays, as NAME.lost */
};

/* What is known of a table or segment from edits that could be read. */
struct kv_repair_fact {
	enum kv_file_kind kind;
	kv_fileno number;
	bool alive;			/* added, and not deleted since; else deleted */
	bool sealed;
	uint64_t bytes;			/* of a sealed segment */
};

struct kv_repair_facts {
	struct kv_repair_fact *at;	/* sorted by kind and number */
	size_t count, count_max;
	struct kv_snapshot_info *snapshots;
	size_t snapshot_count;
	kv_fileno next_fileno, journal_min;
	kv_seqno seqno;
	bool whole_once;		/* some manifest's first edit, which has the whole state, was read */
};

struct kv_repair {
	struct kv_db *db;		/* as opening makes it; nobody else has it */
	struct kv_msg msg;		/* the caller's */
	struct kv_repair_report *report;
	bool dry;			/* nothing is written */
	bool quiet;			/* what the layers below say is dropped */

	struct kv_repair_file *found;	/* sorted by kind and number */
	size_t found_count, found_max;
	bool root_is_good;
	kv_fileno manifest_no;		/* that the root names, or that was chosen; 0: none */

	struct kv_edit state;		/* the new one, as it is found: tables, segments, snapshots */
	kv_seqno flushed;		/* what journals have up to here is in tables */
};

/* One sentence of something lost. */
void kv_repair_lost(struct kv_repair *r, const char *fmt, ...) KV_PRINTF(2, 3);
/* Something to know, but no loss. */
void kv_repair_note(struct kv_repair *r, const char *fmt, ...) KV_PRINTF(2, 3);
/* Is it damage, and not a failure to look? */
static inline bool kv_repair_is_damage(int err)
{
	return kv_err_is(err, KV_E_corrupt);
}

/* --- repair_files.c ----------------------------------------------------------------------- */

int kv_repair_list(struct kv_repair *r) KV_NODISCARD;
/* NULL when it is not there. */
struct kv_repair_file *kv_repair_find(const struct kv_repair *r, enum kv_file_kind kind,
				      kv_fileno number);
/* The store's id when the root can't tell: the one that most files have. KV_E_not_a_store. */
int kv_repair_elect_id(struct kv_repair *r) KV_NODISCARD;
/* Looks at the headers of all files, and mends those of journals and manifests that were in use. */
int kv_repair_headers(struct kv_repair *r) KV_NODISCARD;
/*
 * If only its header is damaged, writes that anew (not in a dry run): whose the file is, its name says, and
 * all else in it has checksums of its own.
 */
int kv_repair_mend(struct kv_repair *r, struct kv_repair_file *f) KV_NODISCARD;
/*
 * The segment has a good header and at least so many bytes, afterwards, zeros where there was
 * nothing. f may be NULL: it is made.
 */
int kv_repair_stand_in(struct kv_repair *r, struct kv_repair_file *f, kv_fileno segment_no,
		       uint64_t bytes) KV_NODISCARD;
/* Gives a second name to all that is lost; and, when the new state is durable, takes the first one away. */
int kv_repair_keep_lost(struct kv_repair *r) KV_NODISCARD;
int kv_repair_forget_lost(struct kv_repair *r) KV_NODISCARD;

/*
 * Calls fn for each chunk of a journal or manifest whose checksum is right, from the first on,
 * whatever lies between them. What fn returns ends it, if it isn't 0.
 */
typedef int kv_repair_chunk_fn(void *arg, const struct kv_chunk *c);
int kv_repair_chunks(struct kv_repair *r, enum kv_file_kind kind, kv_fileno number,
		     kv_repair_chunk_fn *fn, void *arg) KV_NODISCARD;

/* --- repair_manifest.c -------------------------------------------------------------------- */

void kv_repair_facts_done(struct kv_repair_facts *f);
/*
 * The manifest that holds, if it can be read to its end: *out_version, else NULL. Sets r->manifest_no.
 */
int kv_repair_manifest(struct kv_repair *r, struct kv_version **out_version,
		       struct kv_manifest_state *out_state) KV_NODISCARD;
/* What all edits say that can be read. */
int kv_repair_facts(struct kv_repair *r, struct kv_repair_facts *out) KV_NODISCARD;
/* NULL: nothing is known. */
const struct kv_repair_fact *kv_repair_fact(const struct kv_repair_facts *f,
					    enum kv_file_kind kind, kv_fileno number);

/* --- repair_table.c ----------------------------------------------------------------------- */

/*
 * Reads the whole table, and adds it to r->state at the level: as it is, or as a new one with what
 * is good in it. said: as the manifest has it, or NULL. *out_seqno: the largest, if it is good; else 0.
 */
int kv_repair_table(struct kv_repair *r, struct kv_repair_file *f, int level,
		    const struct kv_sst_meta *said, kv_seqno *out_seqno) KV_NODISCARD;

/* --- repair_journal.c --------------------------------------------------------------------- */

/*
 * Replays what can be read of the journals from min on into r->db->mem, and into tables which the edit
 * gets. Operations up to r->flushed are left out. Raises r->db->seqno_last to the last one that was given.
 */
int kv_repair_journals(struct kv_repair *r, kv_fileno min, struct kv_edit *edit) KV_NODISCARD;
/* The largest sequence number that any journal shows to have been given. */
int kv_repair_journals_reach(struct kv_repair *r, kv_seqno *out) KV_NODISCARD;

#endif
