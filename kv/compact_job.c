/*
 * A compaction from its claim to its edit.
 *
 * Nothing here changes what a reader sees; so whenever something goes wrong before the
 * edit, the outputs are removed and everything is as it was.
 */
#include "kv/compact_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* --- claiming ----------------------------------------------------------------------------- */

struct kv_pick_options kv_job_pick_options_locked(struct kv_db *db)
{
	struct kv_pick_options o = {
		.level_base_bytes = db->options.level_base_bytes,
		.table_bytes = db->options.table_bytes,
		.oldest_snapshot = kv_snapshot_oldest_locked(db),
	};

	for (int i = 0; i < KV_LEVELS; i++)
		if (db->compact_pointer[i].bytes)
			o.pointers[i] = kv_buf_slice(&db->compact_pointer[i]);
	return o;
}

void kv_job_claim_locked(struct kv_db *db, struct kv_job *j)
{
	j->version = kv_version_ref(db->version);
	for (size_t i = 0; i < kv_job_input_count(j); i++)
		j->pick.tables[i]->busy = true;
	j->claimed = true;
}

static void unclaim(struct kv_job *j)
{
	struct kv_db *db = j->db;

	if (!j->claimed)
		return;
	kv_mutex_lock(&db->mu);
	for (size_t i = 0; i < kv_job_input_count(j); i++)
		j->pick.tables[i]->busy = false;
	kv_cond_broadcast(&db->done_cond);
	kv_mutex_unlock(&db->mu);
}

static void part_done(struct kv_job_part *p)
{
	kv_sst_build_free(p->build);
	kv_edit_done(&p->outputs);
	kv_buf_done(&p->last);
	kv_buf_done(&p->output_begin);
}

void kv_job_done(struct kv_job *j)
{
	unclaim(j);
	for (size_t i = 0; i < j->part_count; i++)
		part_done(&j->parts[i]);
	free(j->parts);
	kv_arena_done(&j->keys);
	kv_edit_done(&j->edit);
	free(j->read);
	free(j->kept);
	free(j->snapshots);
	kv_rangedels_unref(j->rangedels);
	kv_pick_done(&j->pick);
	if (j->version)
		kv_version_unref(j->version);
}

/* --- telling ------------------------------------------------------------------------------ */

#define NUMBERS_BYTES 320		/* of a line of the event log */

/* Appends ",number"; what does not fit is left out. */
static void put_number(char *text, size_t *at, kv_fileno number)
{
	int n = snprintf(text + *at, NUMBERS_BYTES - *at, "%s%" PRIu64, *at ? "," : "", number);

	if (n > 0 && (size_t)n < NUMBERS_BYTES - *at)
		*at += (size_t)n;
	else
		text[*at] = 0;
}

static void log_done(const struct kv_job *j, uint64_t start_ns)
{
	char inputs[NUMBERS_BYTES] = "", outputs[NUMBERS_BYTES] = "";
	uint64_t in_bytes = 0, out_bytes = 0;
	size_t in_at = 0, out_at = 0;

	for (size_t i = 0; i < kv_job_input_count(j); i++) {
		put_number(inputs, &in_at, j->pick.tables[i]->meta.number);
		in_bytes += j->pick.tables[i]->meta.file_bytes;
	}
	for (size_t i = 0; i < j->edit.add_count; i++) {
		put_number(outputs, &out_at, j->edit.adds[i].meta.number);
		out_bytes += j->edit.adds[i].meta.file_bytes;
	}
	kv_event(j->db->log, j->pick.move ? "move" : "compact",
		 "level=%d output_level=%d input_tables=%zu+%zu input_bytes=%" PRIu64
		 " output_tables=%zu output_bytes=%" PRIu64 " parts=%zu us=%" PRIu64
		 " inputs=%s outputs=%s",
		 j->pick.level, j->pick.output_level, j->pick.upper_count, j->pick.lower_count,
		 in_bytes, j->edit.add_count, out_bytes, j->part_count,
		 (kv_now_ns(j->db) - start_ns) / 1000, inputs, outputs);
}

/* --- installing --------------------------------------------------------------------------- */

/* They are named nowhere: what can't be removed now is removed by the next opening. */
static void remove_outputs(struct kv_job *j)
{
	for (size_t i = 0; i < j->part_count; i++)
		for (size_t k = 0; k < j->parts[i].outputs.add_count; k++)
			(void)kv_store_unlink(&j->db->store, KV_FILE_TABLE,
					      j->parts[i].outputs.adds[k].meta.number);
}

static int input_level(const struct kv_job *j, size_t i)
{
	return i < j->pick.upper_count ? j->pick.level : j->pick.output_level;
}

static int add_outputs(struct kv_job *j)
{
	for (size_t i = 0; i < j->part_count; i++) {
		const struct kv_edit *e = &j->parts[i].outputs;

		for (size_t k = 0; k < e->add_count; k++)
			KV_TRY(kv_edit_add_table(&j->edit, e->adds[k].level, &e->adds[k].meta));
	}
	return 0;
}

/* Makes the outputs' names durable, and completes the edit. */
static int job_finish(struct kv_job *j)
{
	for (size_t i = 0; i < kv_job_input_count(j); i++)
		KV_TRY(kv_edit_delete_table(&j->edit, input_level(j, i),
					    j->pick.tables[i]->meta.number));
	if (j->pick.move)
		return kv_edit_add_table(&j->edit, j->pick.output_level,
					 &j->pick.tables[0]->meta);
	KV_TRY(add_outputs(j));
	/*
	 * CRASH: the outputs were synced when they were finished, and so are their names now;
	 * what they refer to in segments was durable before the inputs were. Stop before the edit:
	 * the outputs are unknown and removed. Stop behind it: the inputs are.
	 */
	return j->edit.add_count ? j->db->store.env->ops->dir_sync(j->db->store.dir) : 0;
}

/* The next compaction of the level begins behind this one; or in front, if memory is short. */
static void advance_pointer(struct kv_job *j)
{
	struct kv_span s = kv_table_span(j->pick.tables[j->pick.upper_count - 1]);
	struct kv_buf *pointer = &j->db->compact_pointer[j->pick.level];

	kv_mutex_lock(&j->db->mu);
	if (kv_buf_assign(pointer, s.begin))
		kv_buf_reset(pointer);
	kv_mutex_unlock(&j->db->mu);
}

int kv_job_run(struct kv_job *j)
{
	struct kv_db *db = j->db;
	uint64_t start = kv_now_ns(db);
	bool harmless = true;
	int err = 0;

	if (!j->pick.move)
		err = kv_job_merge(j);
	if (!err && !j->stopped)
		err = job_finish(j);
	if (!err && !j->stopped) {
		err = kv_install(db, &j->edit);
		/* Else the edit may be durable nevertheless, and the outputs must stay. */
		harmless = kv_err_passes(err);
	}
	if (err || j->stopped) {
		if (harmless && !j->pick.move)
			remove_outputs(j);
		return kv_err_space(err);
	}
	advance_pointer(j);
	kv_count(&db->counters.compactions, 1);
	if (!j->pick.move)
		kv_latency_add(db, KV_LATENCY_compact, start);
	if (db->log)
		log_done(j, start);
	kv_msg(&db->store.msg, KV_MSG_INFO,
	       "%s %zu tables of level %d with %zu of level %d: %zu tables",
	       j->pick.move ? "moved" : "compacted", j->pick.upper_count, j->pick.level,
	       j->pick.lower_count, j->pick.output_level, j->edit.add_count);
	return 0;
}
