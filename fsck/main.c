/* fsck.kvfs: options, messages, exit codes. */
#include "config.h"

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/mounts.h"
#include "fsck/check.h"

#define LOCK_WAIT_S 60

static const struct option long_options[] = {
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: fsck.kvfs [-a|-p|-n|-y] [-f] [-v] [-C] STORE\n"
	"\n"
	"Checks the filesystem in the directory STORE, which must not be mounted.\n"
	"\n"
	"  -n        write nothing at all\n"
	"  -a, -p    repair what is safe to repair, without asking (what happens without -n)\n"
	"  -y        repair all that can be repaired, also the store's files, if some are lost\n"
	"  -f        also read every byte of the store's files\n"
	"  -v        tell what the filesystem holds\n"
	"  -C        show how far it is, on a terminal\n"
	"  -V        print the version\n"
	"\n"
	"Exit code: 0 all is well, 1 something was cleared, 4 problems are left, 8 it could not\n"
	"be checked, 16 wrong usage, 32 interrupted. See fsck.kvfs(8).\n";

struct program {
	const char *store;
	bool bar;		/* a progress bar is asked for and possible */
	int bar_percent;	/* shown last */
	const char *bar_step;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int signal_no)
{
	(void)signal_no;
	interrupted = 1;
}

static void bar_clear(struct program *p)
{
	if (p->bar_step)
		fprintf(stderr, "\r\033[K");
	p->bar_step = NULL;
}

static bool progress(void *arg, const char *step, uint64_t done, uint64_t all)
{
	const int width = 40;
	struct program *p = arg;
	int percent = all ? (int)(KV_MIN(done, all) * 100.0 / (double)all) : 0;

	if (!p->bar || (p->bar_step == step && p->bar_percent == percent))
		return !interrupted;
	fprintf(stderr, "\r\033[K%s: [", step);
	for (int i = 0; i < width; i++)
		fputc(i < percent * width / 100 ? '=' : ' ', stderr);
	fprintf(stderr, "] %d%%", percent);
	fflush(stderr);
	p->bar_step = step;
	p->bar_percent = percent;
	return !interrupted;
}

/* Findings are what the program is for; that it cannot find out is an error. */
static void say(void *arg, enum kv_msg_level level, const char *sentence)
{
	struct program *p = arg;

	bar_clear(p);
	if (level == KV_MSG_ERROR)
		fprintf(stderr, "fsck.kvfs: %s %s\n", p->store, sentence);
	else
		printf("%s: %s\n", p->store, sentence);
	fflush(stdout);
}

static int usage(const char *why)
{
	fprintf(stderr, "fsck.kvfs: %s; fsck.kvfs -h tells more\n", why);
	return FSCK_EXIT_USAGE;
}

static void tell_contents(const char *store, const struct fsck_result *r)
{
	printf("%s: %" PRIu64 " inodes: %" PRIu64 " files, %" PRIu64 " directories, %" PRIu64
	       " symbolic links, %" PRIu64 " others\n",
	       store, r->inodes, r->files, r->dirs, r->symlinks, r->others);
	printf("%s: %" PRIu64 " names, %" PRIu64 " extended attributes, %" PRIu64 " bytes in %" PRIu64
	       " pieces\n",
	       store, r->names, r->xattrs, r->bytes, r->extents);
}

static void tell_end(const char *store, const struct fsck_options *o, const struct fsck_result *r)
{
	if (r->problems)
		return;
	if (r->orphans_freed)
		printf("%s: %" PRIu64 " deleted inodes were freed\n", store, r->orphans_freed);
	else if (r->orphans && o->read_only)
		printf("%s: %" PRIu64 " deleted inodes will be freed by the next mount\n", store,
		       r->orphans);
	printf("%s: clean, %" PRIu64 " inodes, %" PRIu64 " bytes\n", store,
	       r->inodes - r->orphans_freed, r->bytes);
}

/*
 * A daemon still syncs and closes its store when the unmount has returned: that is waited for.
 * False: it is mounted, which was said.
 */
static bool wait_unmounted(const char *store)
{
	KV_AUTO(kv_buf_done) struct kv_buf where = KV_BUF_INIT;
	char path[PATH_MAX];

	if (!realpath(store, path))
		return true;
	if (fs_mounts_of_store(path, &where)) {
		fprintf(stderr, "fsck.kvfs: %s is mounted on %s; unmount it first\n", store,
			(const char *)where.data);
		return false;
	}
	/* Out of time: what it is in use by, the check says. */
	(void)!fs_store_wait(path, LOCK_WAIT_S);
	return true;
}

static int run(struct program *p, struct fsck_options *o, bool verbose)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct fsck_result r;
	enum fsck_exit code;

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	o->msg = (struct kv_msg){ say, p, KV_MSG_WARN };
	o->progress = progress;
	o->arg = p;
	if (!wait_unmounted(p->store))
		return FSCK_EXIT_OPERATIONAL;
	code = fsck_exit_code(fsck_run(p->store, o, &r), &r);
	bar_clear(p);
	if (code == FSCK_EXIT_CANCELED)
		fprintf(stderr, "fsck.kvfs: interrupted; nothing was changed\n");
	if (code == FSCK_EXIT_CANCELED || code == FSCK_EXIT_OPERATIONAL)
		return code;
	if (verbose)
		tell_contents(p->store, &r);
	tell_end(p->store, o, &r);
	return code;
}

int main(int argc, char **argv)
{
	struct program p = { 0 };
	struct fsck_options o = { 0 };
	bool verbose = false, progress_wanted = false;
	char mode = 0;
	int c;

	opterr = 0;
	/* The number behind -C is where a graphical caller of fsck(8) would read: it is not used. */
	while ((c = getopt_long(argc, argv, "apnyfvC::hV", long_options, NULL)) != -1) {
		switch (c) {
		case 'a':
		case 'p':
		case 'n':
		case 'y':
			c = c == 'a' ? 'p' : c;
			if (mode && mode != c)
				return usage("only one of -a, -p, -n and -y can be");
			mode = (char)c;
			break;
		case 'f':
			o.thorough = true;
			break;
		case 'v':
			verbose = true;
			break;
		case 'C':
			progress_wanted = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'V':
			printf("fsck.kvfs %s\n", PACKAGE_VERSION);
			return 0;
		default:
			return usage("unknown option");
		}
	}
	if (optind == argc)
		return usage("which directory");
	if (optind + 1 != argc)
		return usage("one directory at a time");
	o.read_only = mode == 'n';
	o.repair = mode == 'y';
	p.store = argv[optind];
	p.bar = progress_wanted && isatty(STDERR_FILENO);
	return run(&p, &o, verbose);
}
