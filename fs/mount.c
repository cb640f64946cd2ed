/*
 * kvfs: mounts a store. Also installed as mount.kvfs and mount.fuse.kvfs, as
 * mount(8) calls it.
 *
 * Order of the start: parse, fork (before any thread is there), open the store, mount,
 * serve; the parent leaves when the kernel's first request has been answered, or
 * prints why not. Order of the end: the kernel writes out what it holds (umount does
 * that), the loop ends, the store is synced and closed.
 */
#include "config.h"

#include "fs/fuse_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "fs/mounts.h"
#include "fs/opts.h"
#include "kv/lock.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

/* Exit codes of mount(8). */
#define EXIT_USAGE 1
#define EXIT_SYSTEM 2
#define EXIT_MOUNT 32

/* A store may still be closing after its umount has returned. */
#define LOCK_WAIT_S 60
#define LOCK_TRIES 3		/* somebody else may have been waiting, too */
#define WAKE_NS (10 * 1000 * 1000)

#define THREADS_MAX 10
#define ARENAS_MAX 2
#define BDI_MAX_RATIO 40	/* percent of the dirty limit; the kernel gives FUSE 1 */

struct daemon {
	struct fs_mount_opts opts;
	char store[PATH_MAX], mountpoint[PATH_MAX];
	struct fs_front front;
	struct fuse_session *session;
	sigset_t signals;		/* of the end; taken by their own thread */
	pthread_t main_thread, signal_thread;
	int status_fd;			/* the parent waits here; -1 in the foreground */

	struct kv_mutex mu;		/* guards to the blank line */
	struct kv_cond ended;
	bool loop_ended;
	bool serving;			/* messages go where a daemon's go */
	struct kv_buf failure;		/* of the start: the last error reported */
};

/* --- messages ---------------------------------------------------------------------- */

/*
 * While starting, an error is kept: it is told once, when it is final (waiting for a
 * lock tries again and again). Afterwards there may be no terminal.
 */
static void report(void *arg, enum kv_msg_level level, const char *text)
{
	static const int priority[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
	struct daemon *d = arg;

	kv_mutex_lock(&d->mu);
	if (level == KV_MSG_ERROR && !d->serving) {
		kv_buf_reset(&d->failure);
		/* Out of memory: the code's own text is told in its place. */
		(void)!kv_buf_printf(&d->failure, "%s", text);
	} else if (d->opts.foreground || !d->serving) {
		fprintf(stderr, "kvfs: %s\n", text);
	} else {
		syslog(priority[level], "%s: %s", d->store, text);
	}
	kv_mutex_unlock(&d->mu);
}

/* Prints the failure of the start: what was reported, or else what the code says. */
static void print_failure(struct daemon *d, const char *doing, int err)
{
	kv_mutex_lock(&d->mu);
	if (d->failure.bytes)
		fprintf(stderr, "kvfs: %s\n", (const char *)d->failure.data);
	else
		fprintf(stderr, "kvfs: %s: %s\n", doing, kv_err_text(err));
	kv_mutex_unlock(&d->mu);
}

/* --- background -------------------------------------------------------------------- */

/* In the child, returns 0. The parent waits for the first byte and exits with it. */
static int into_background(struct daemon *d)
{
	int fd[2];
	pid_t pid;
	uint8_t status = EXIT_SYSTEM;
	ssize_t n;
	int wstatus;

	if (pipe2(fd, O_CLOEXEC) || (pid = fork()) < 0)
		return -errno;
	if (!pid) {
		close(fd[0]);
		d->status_fd = fd[1];
		return setsid() < 0 ? -errno : 0;
	}
	close(fd[1]);
	do
		n = read(fd[0], &status, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		_exit(status);
	/* Died without a word: say with what. */
	if (waitpid(pid, &wstatus, 0) == pid && WIFSIGNALED(wstatus))
		fprintf(stderr, "kvfs: the daemon died of signal %d\n", WTERMSIG(wstatus));
	_exit(n == 0 && WIFEXITED(wstatus) && WEXITSTATUS(wstatus) ? WEXITSTATUS(wstatus)
								   : EXIT_SYSTEM);
}

static void tell_parent(struct daemon *d, uint8_t status)
{
	int null;

	if (d->status_fd < 0)
		return;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0 && !status) {
		for (int fd = 0; fd <= 2; fd++)
			(void)dup2(null, fd);
	}
	if (null > 2)
		close(null);
	while (write(d->status_fd, &status, 1) < 0 && errno == EINTR)
		;
	close(d->status_fd);
	d->status_fd = -1;
}

/* The kernel's first request is being answered. */
static void mounted(struct fs_front *front)
{
	struct daemon *d = front->mounted_arg;

	kv_mutex_lock(&d->mu);
	d->serving = true;
	kv_mutex_unlock(&d->mu);
	tell_parent(d, 0);
}

/* --- the end ------------------------------------------------------------------------- */

/* The kernel writes out the dirty pages that it holds for the mount: requests that the loop serves meanwhile. */
static void flush_kernel(struct daemon *d)
{
	int fd = open(d->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)syncfs(fd);
	close(fd);
}

static void tune_kernel(struct daemon *d)
{
	static const char *const name[] = { "read_ahead_kb", "max_ratio" };
	const uint64_t value[] = { d->opts.read_ahead_bytes / KV_KIB, BDI_MAX_RATIO };
	KV_AUTO(kv_buf_done) struct kv_buf source = KV_BUF_INIT;
	KV_AUTO(kv_buf_done) struct kv_buf type = KV_BUF_INIT;
	unsigned major, minor;
	char path[128];

	if (geteuid() != 0 || !fs_mounts_at(d->mountpoint, &source, &type, &major, &minor) ||
	    strcmp((const char *)type.data, FS_MOUNT_TYPE))
		return;
	for (size_t i = 0; i < KV_ARRAY_LEN(name); i++) {
		FILE *f;

		snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/%s", major, minor, name[i]);
		f = fopen(path, "we");
		if (!f)
			continue;	/* slower, not wrong */
		fprintf(f, "%llu\n", (unsigned long long)value[i]);
		fclose(f);
	}
}

/*
 * SIGTERM, SIGINT, SIGHUP end the mount in order. While the loop still serves, the
 * kernel is made to write out what it holds; if somebody has files open, the
 * mount is detached, and what they do later fails, but all done before is kept.
 */
static void *signal_main(void *arg)
{
	struct daemon *d = arg;
	struct kv_msg msg = { report, d, KV_MSG_WARN };
	bool ended;
	int sig, err;

	tune_kernel(d);
	KV_ASSERT(sigwait(&d->signals, &sig) == 0);
	kv_mutex_lock(&d->mu);
	ended = d->loop_ended;
	kv_mutex_unlock(&d->mu);
	if (ended)
		return NULL;
	if (fs_unmount(d->mountpoint, false, false) == 0)
		return NULL;	/* the loop ends by itself */
	flush_kernel(d);
	err = fs_unmount(d->mountpoint, true, false);
	if (err)
		kv_msg(&msg, KV_MSG_WARN, "cannot unmount %s: %s", d->mountpoint, strerror(-err));
	fuse_session_exit(d->session);
	/* The loop's thread sleeps; a signal makes it look. It may come just before the sleep: again, then. */
	kv_mutex_lock(&d->mu);
	while (!d->loop_ended) {
		pthread_kill(d->main_thread, SIGUSR1);
		(void)kv_cond_wait_for(&d->ended, &d->mu, WAKE_NS);
	}
	kv_mutex_unlock(&d->mu);
	return NULL;
}

static void nothing(int sig)
{
	(void)sig;
}

/* --- start ------------------------------------------------------------------------------ */

static int absolute(const char *path, char *out, const char *what, struct daemon *d)
{
	struct kv_msg msg = { report, d, KV_MSG_INFO };

	if (realpath(path, out))
		return 0;
	return kv_fail(&msg, -errno, "%s %s: %s", what, path, strerror(errno));
}

/* The mount point is there, a directory, and not the leftover of a daemon that died. */
static int prepare_mountpoint(struct daemon *d)
{
	struct kv_msg msg = { report, d, KV_MSG_INFO };
	struct stat st;

	if (stat(d->opts.mountpoint, &st) && errno == ENOTCONN) {
		snprintf(d->mountpoint, sizeof(d->mountpoint), "%s", d->opts.mountpoint);
		kv_msg(&msg, KV_MSG_WARN, "%s: taking away the mount of a daemon that died",
		       d->mountpoint);
		KV_TRY(fs_unmount(d->mountpoint, true, false));
	}
	KV_TRY(absolute(d->opts.mountpoint, d->mountpoint, "mount point", d));
	if (stat(d->mountpoint, &st))
		return kv_fail(&msg, -errno, "mount point %s: %s", d->mountpoint, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return kv_fail(&msg, -ENOTDIR, "mount point %s: not a directory", d->mountpoint);
	if (!strcmp(d->store, d->mountpoint))
		return kv_fail(&msg, -EINVAL, "%s: a store cannot be mounted on itself", d->store);
	return 0;
}

/*
 * A mount of the store that has no daemon any more goes: whoever has the store open holds its
 * lock, and the kernel may answer for a dead one from its cache for long.
 */
static int clear_dead_mounts(struct daemon *d)
{
	struct kv_msg msg = { report, d, KV_MSG_WARN };
	KV_AUTO(kv_buf_done) struct kv_buf where = KV_BUF_INIT;
	const char *mountpoint;
	int err;

	while (fs_mounts_of_store(d->store, &where)) {
		mountpoint = (const char *)where.data;
		if (fs_store_wait(d->store, 0))
			return kv_fail(&msg, KV_E_locked, "%s is mounted already, on %s", d->store,
				       mountpoint);
		kv_msg(&msg, KV_MSG_WARN, "%s: taking away the mount of a daemon that died",
		       mountpoint);
		err = fs_unmount(mountpoint, true, false);
		if (err)
			return kv_fail(&msg, err, "%s: the mount of a daemon that died cannot be taken away: %s",
				       mountpoint, strerror(-err));
	}
	return 0;
}

static int open_store(struct daemon *d)
{
	struct kv_msg msg = { report, d, d->opts.debug ? KV_MSG_DEBUG : KV_MSG_WARN };
	struct fs_options o = {
		.kv = { .msg = msg,
			.read_only = d->opts.read_only,
			.cache_bytes = d->opts.cache_bytes },
		.commit_s = (uint32_t)d->opts.commit_s,
		.relatime = d->opts.relatime,
	};
	int err, waited = 0;

	while ((err = fs_open(d->store, &o, &d->front.fs)) == KV_E_locked) {
		if (waited++ == LOCK_TRIES || fs_store_wait(d->store, LOCK_WAIT_S))
			return kv_fail(&msg, err, "%s is in use by another process", d->store);
	}
	if (kv_err_errno(err) == EROFS)
		return kv_fail(&msg, err, "%s is on a read-only disk; mount it with -o ro", d->store);
	return err;
}

static int make_session(struct daemon *d)
{
	struct kv_msg msg = { report, d, KV_MSG_WARN };
	KV_AUTO(kv_buf_done) struct kv_buf o = KV_BUF_INIT;
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int err = -ENOMEM;

	KV_TRY(kv_buf_printf(&o, "subtype=kvfs,default_permissions%s%s%s%s%s,fsname=",
			     d->opts.read_only ? ",ro" : ",rw",
			     d->opts.allow_other ? ",allow_other" : "", d->opts.suid ? ",suid" : "",
			     d->opts.dev ? ",dev" : "",
			     d->opts.kernel.bytes ? (const char *)d->opts.kernel.data : ""));
	/* libfuse takes a backslash before what means something to it. */
	for (const char *s = d->store; *s; s++)
		KV_TRY(kv_buf_printf(&o, "%s%c", *s == ',' || *s == '\\' ? "\\" : "", *s));
	if (fuse_opt_add_arg(&args, "kvfs") || fuse_opt_add_arg(&args, "-o") ||
	    fuse_opt_add_arg(&args, (const char *)o.data) ||
	    (d->opts.debug && fuse_opt_add_arg(&args, "-odebug")))
		goto out;
	d->session = fuse_session_new(&args, &fs_fuse_ops, sizeof(fs_fuse_ops), &d->front);
	err = d->session ? 0 : kv_fail(&msg, -EINVAL, "libfuse refuses the mount options");
out:
	fuse_opt_free_args(&args);
	return err;
}

static int mount_session(struct daemon *d)
{
	struct kv_msg msg = { report, d, KV_MSG_WARN };

	if (access("/dev/fuse", R_OK | W_OK))
		return kv_fail(&msg, -errno,
			       "/dev/fuse: %s; load the kernel's fuse module, or run where it is allowed",
			       strerror(errno));
	if (fuse_session_mount(d->session, d->mountpoint))
		return kv_fail(&msg, -EPERM, "cannot mount on %s%s", d->mountpoint,
			       geteuid() ? "; fusermount3 (package fuse3) says above why" : "");
	return 0;
}

static int serve(struct daemon *d)
{
	struct fuse_loop_config config = { .clone_fd = 1, .max_idle_threads = THREADS_MAX };
	struct sigaction wake = { .sa_handler = nothing };	/* no SA_RESTART: it ends the wait */

	KV_ASSERT(sigaction(SIGUSR1, &wake, NULL) == 0);
	d->main_thread = pthread_self();
	if (pthread_create(&d->signal_thread, NULL, signal_main, d))
		return -EAGAIN;
	if (d->opts.single)
		(void)fuse_session_loop(d->session);
	else
		(void)fuse_session_loop_mt(d->session, &config);
	kv_mutex_lock(&d->mu);
	d->loop_ended = true;
	kv_cond_signal(&d->ended);
	kv_mutex_unlock(&d->mu);
	pthread_kill(d->signal_thread, SIGTERM);
	pthread_join(d->signal_thread, NULL);
	fuse_session_unmount(d->session);
	return 0;
}

/* Everything between the fork and the exit. Returns the exit code. */
static int run(struct daemon *d)
{
	struct kv_msg msg = { report, d, KV_MSG_WARN };
	bool served = false;
	int err, close_err = 0;

	KV_ASSERT(pthread_sigmask(SIG_BLOCK, &d->signals, NULL) == 0);
	signal(SIGPIPE, SIG_IGN);
	/* A heap for each thread would keep free memory many times. */
	(void)mallopt(M_ARENA_MAX, ARENAS_MAX);
	/* Memory that we allocate must not wait for our own mount to write something out. */
	(void)prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	(void)!chdir("/");

	err = clear_dead_mounts(d);
	if (!err)
		err = open_store(d);
	if (!err)
		err = make_session(d);
	if (!err)
		err = mount_session(d);
	if (!err) {
		err = serve(d);
		served = !err;
	}
	kv_mutex_lock(&d->mu);
	served &= d->serving;
	kv_mutex_unlock(&d->mu);
	if (d->front.fs)
		close_err = fs_close(d->front.fs);
	if (d->session)
		fuse_session_destroy(d->session);
	if (served) {
		if (close_err)
			kv_msg(&msg, KV_MSG_ERROR, "closing: %s", kv_err_text(close_err));
		return close_err ? EXIT_SYSTEM : 0;
	}
	print_failure(d, d->store, err ? err : -EIO);
	tell_parent(d, EXIT_MOUNT);
	return EXIT_MOUNT;
}

/* mount(8) hands a remount to us, too; the kernel does it by itself. */
static int remount(struct daemon *d)
{
	unsigned long flags = MS_REMOUNT | (d->opts.read_only ? MS_RDONLY : 0) |
			      (d->opts.suid ? 0 : MS_NOSUID) | (d->opts.dev ? 0 : MS_NODEV);

	if (mount(d->opts.store, d->opts.mountpoint, FS_MOUNT_TYPE, flags, NULL) == 0)
		return 0;
	fprintf(stderr, "kvfs: remounting %s: %s\n", d->opts.mountpoint, strerror(errno));
	return EXIT_MOUNT;
}

static const char help[] =
	"usage: kvfs STORE MOUNTPOINT [-o options] [-f] [-d] [-s]\n"
	"\n"
	"Mounts the store (made by mkfs.kvfs) on the directory MOUNTPOINT, and goes to the\n"
	"background when the mount works.\n"
	"\n"
	"  -o ro             read-only\n"
	"  -o commit=N       everything is durable after N seconds (5)\n"
	"  -o cache=N[KMG]   memory for the store (80M)\n"
	"  -o relatime       keep access times, as by relatime\n"
	"  -o nowriteback    every write(2) is in the store when it returns\n"
	"  -o allow_other    other users may see the mount (the default for root)\n"
	"  -f                stay in the foreground\n"
	"  -d                print every request (stays in the foreground)\n"
	"  -s                serve one request at a time\n"
	"  -V                print the version\n"
	"\n"
	"To unmount: umount MOUNTPOINT, or fusermount3 -u MOUNTPOINT. See kvfs(8) and kvfs(5).\n";

static void daemon_done(struct daemon *d)
{
	fs_mount_opts_done(&d->opts);
	kv_buf_done(&d->failure);
	kv_cond_done(&d->ended);
	kv_mutex_done(&d->mu);
}

int main(int argc, char **argv)
{
	static struct daemon d;
	KV_AUTO(kv_buf_done) struct kv_buf why = KV_BUF_INIT;
	bool helper = argc > 0 && !strncmp(basename(argv[0]), "mount.", 6);
	int err, code;

	d.status_fd = -1;
	d.front.mounted = mounted;
	d.front.mounted_arg = &d;
	kv_mutex_init(&d.mu);
	kv_cond_init(&d.ended);
	sigemptyset(&d.signals);
	sigaddset(&d.signals, SIGTERM);
	sigaddset(&d.signals, SIGINT);
	sigaddset(&d.signals, SIGHUP);

	err = fs_mount_opts_parse(&d.opts, argc, argv, helper, &why);
	if (err) {
		fprintf(stderr, "kvfs: %s\n", why.bytes ? (const char *)why.data : kv_err_text(err));
		code = EXIT_USAGE;
	} else if (d.opts.help) {
		fputs(help, stdout);
		code = 0;
	} else if (d.opts.version) {
		printf("kvfs %s\n", PACKAGE_VERSION);
		code = 0;
	} else if (d.opts.remount) {
		code = remount(&d);
	} else {
		d.front.writeback = d.opts.writeback;
		err = absolute(d.opts.store, d.store, "store", &d);
		if (!err)
			err = prepare_mountpoint(&d);
		if (!err && !d.opts.foreground)
			err = into_background(&d);
		if (err)
			print_failure(&d, "starting", err);
		code = err ? EXIT_MOUNT : run(&d);
	}
	daemon_done(&d);
	return code;
}
