#include "fsck/check.h"

#include <stdio.h>

#include "fsck/ctx.h"
#include "kv/repair.h"
#include "kv/verify.h"

#define REPEAT_MAX 100
#define NODES_MAX ((uint32_t)4 << 20)

int fsck_progress(struct fsck *c, const char *step, uint64_t done, uint64_t all)
{
	if (!c->options->progress || c->options->progress(c->options->arg, step, done, all))
		return 0;
	return -ECANCELED;
}

/* --- the engine ------------------------------------------------------------------------------ */

struct verifying {
	struct fsck *c;
	bool cancelled;
};

static void verify_problem(void *arg, const char *file, const char *text)
{
	struct verifying *v = arg;
	char sentence[512];

	snprintf(sentence, sizeof(sentence), "%s%s%s", file ? file : "", file ? ": " : "", text);
	fsck_report(v->c, FSCK_P_store_file, (struct fsck_about){ .text = sentence });
}

static void verify_progress(void *arg, uint64_t done, uint64_t all)
{
	struct verifying *v = arg;

	if (fsck_progress(v->c, "reading the store's files", done, all))
		v->cancelled = true;
}

static bool verify_cancelled(void *arg)
{
	struct verifying *v = arg;

	return v->cancelled;
}

static int verify(struct fsck *c)
{
	struct verifying v = { .c = c };
	struct kv_verify_options o = {
		.env = c->options->env,
		.problem = verify_problem,
		.progress = verify_progress,
		.cancelled = verify_cancelled,
		.arg = &v,
		.quick = !c->options->thorough,
	};
	uint64_t problems;

	return kv_verify(c->dir, &o, &problems);
}

/* --- repair ----------------------------------------------------------------------------------- */

/* Without the path that it begins with: whoever says it puts one before. */
static void repair_message(void *arg, enum kv_msg_level level, const char *text)
{
	struct fsck *c = arg;
	size_t n = strlen(c->dir);

	if (!strncmp(text, c->dir, n) && (text[n] == ':' || text[n] == '/'))
		text += n + 1 + (text[n] == ':');
	c->said |= level == KV_MSG_ERROR;
	kv_msg(&c->options->msg, level, level == KV_MSG_WARN ? "lost: %s" : "%s", text);
}

static int repair(struct fsck *c)
{
	const struct kv_options o = {
		.env = c->options->env,
		.msg = { repair_message, c, KV_MSG_WARN },
	};
	struct kv_repair_report r;

	KV_TRY(fsck_progress(c, "repairing the store's files", 0, 0));
	KV_TRY(kv_repair(c->dir, &o, &r));
	c->result->repaired = r.damaged;
	c->result->losses = r.losses;
	if (!r.damaged)
		return 0;
	kv_msg(&c->options->msg, KV_MSG_WARN,
	       "the store's files were damaged, and have been repaired%s; what could not be used is kept "
	       "beside them, with .lost at the end of its name",
	       r.rebuilt ? ", from the tables and journals alone" : "");
	if (r.may_resurrect)
		kv_msg(&c->options->msg, KV_MSG_WARN,
		       "no manifest was left: what was deleted lately may be there again");
	return 0;
}

/* The engine says in a sentence why it cannot open: kept for when it does not. */
struct reason {
	char text[512];
};

static void keep_reason(void *arg, enum kv_msg_level level, const char *text)
{
	struct reason *r = arg;

	if (level == KV_MSG_ERROR && !r->text[0])
		snprintf(r->text, sizeof(r->text), "%s", text);
}

static struct kv_options kv_options(struct fsck *c, struct reason *r)
{
	return (struct kv_options){
		.env = c->options->env,
		.msg = { keep_reason, r, KV_MSG_ERROR },
		.read_only = true,
	};
}

/* --- the filesystem ---------------------------------------------------------------------------- */

static int passes(struct fsck *c)
{
	KV_TRY(fsck_pass_super(c));
	KV_TRY(fsck_pass_keys(c));
	KV_TRY(fsck_pass_inodes(c));
	return fsck_pass_links(c);
}

static bool is_damage(int err)
{
	return kv_err_is(err, KV_E_corrupt);
}

static int check(struct fsck *c)
{
	struct reason reason = { "" };
	struct kv_options o = kv_options(c, &reason);
	int err = kv_open(c->dir, &o, &c->kv), close_err;

	if (is_damage(err)) {
		/* The engine's files were looked at before, and may have been told of already. */
		if (!c->result->count[FSCK_P_store_file])
			fsck_report(c, FSCK_P_store_unopened, (struct fsck_about){
				.text = reason.text[0] ? reason.text : kv_err_text(err),
			});
		c->damaged = true;
		return 0;
	}
	if (err)
		return err;
	err = passes(c);
	close_err = kv_close(c->kv);
	c->kv = NULL;
	return err ? err : close_err;
}

/*
 * What a mount does: the engine recovers, and what was deleted is freed. Only for a
 * filesystem in which all was found right.
 */
static int clear_orphans(struct fsck *c)
{
	struct reason reason = { "" };
	struct fs_options o = { .kv = kv_options(c, &reason) };
	struct fs *fs;
	int err, close_err;

	o.kv.read_only = false;
	KV_TRY(fsck_progress(c, "freeing what was deleted", 0, c->result->orphans));
	err = fs_open(c->dir, &o, &fs);
	if (!err) {
		err = fs_reclaim_wait(fs);
		close_err = fs_close(fs);
		err = err ? err : close_err;
	}
	if (err) {
		c->said = true;
		kv_msg(&c->options->msg, KV_MSG_ERROR,
		       "is sound, but what was deleted while open cannot be freed: %s",
		       reason.text[0] ? reason.text : kv_err_text(err));
		return err;
	}
	c->result->orphans_freed = c->result->orphans;
	return 0;
}

static int run(struct fsck *c)
{
	int err;

	if (c->options->repair && !c->options->read_only)
		KV_TRY(repair(c));
	err = verify(c);
	if (is_damage(err)) {
		if (!c->result->count[FSCK_P_store_file])
			fsck_report(c, FSCK_P_store_unopened,
				    (struct fsck_about){ .text = kv_err_text(err) });
		return 0;
	}
	if (err)
		return err;
	KV_TRY(fsck_progress(c, "checking inodes", 0, 0));
	KV_TRY(check(c));
	if (c->options->read_only || c->result->problems || !c->result->orphans)
		return 0;
	return clear_orphans(c);
}

static void say_why_not(struct fsck *c, int err)
{
	const char *why = kv_err_text(err);

	if (err == -ECANCELED || c->said)
		return;
	if (kv_err_is(err, KV_E_locked))
		why = "it is mounted, or in use by another program";
	else if (kv_err_is(err, KV_E_not_a_store))
		why = "it holds no kvfs filesystem";
	else if (kv_err_is(err, KV_E_newer_format))
		why = "it was written by a newer version of kvfs";
	kv_msg(&c->options->msg, KV_MSG_ERROR, "cannot be checked: %s", why);
}

static bool has_store_problems(const struct fsck_result *r)
{
	return r->count[FSCK_P_store_file] || r->count[FSCK_P_store_unopened];
}

int fsck_run(const char *dir, const struct fsck_options *options, struct fsck_result *out)
{
	struct fsck_options o = *options;
	struct fsck c = {
		.options = &o,
		.result = out,
		.dir = dir,
		.path_budget = FSCK_PATH_BUDGET,
	};
	int err;

	*out = (struct fsck_result){ 0 };
	if (!o.repeat_max)
		o.repeat_max = REPEAT_MAX;
	if (!o.nodes_max)
		o.nodes_max = NODES_MAX;
	err = run(&c);
	if (err)
		say_why_not(&c, err);
	else if (out->problems)
		kv_msg(&o.msg, KV_MSG_WARN, "%llu %s that this version cannot repair%s",
		       (unsigned long long)out->problems, out->problems == 1 ? "problem" : "problems",
		       out->repaired	       ? "" :
		       has_store_problems(out) ? "; nothing was changed; -y makes a store of what is "
						 "left of its files" :
						 "; nothing was changed");
	return err;
}

enum fsck_exit fsck_exit_code(int err, const struct fsck_result *r)
{
	if (err == -ECANCELED)
		return FSCK_EXIT_CANCELED;
	if (err)
		return FSCK_EXIT_OPERATIONAL;
	if (r->problems)
		return FSCK_EXIT_UNCORRECTED;
	return r->orphans_freed || r->repaired ? FSCK_EXIT_CORRECTED : FSCK_EXIT_OK;
}
