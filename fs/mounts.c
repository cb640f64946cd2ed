#include "fs/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kv/filename.h"

/* Space, tab, newline and backslash are written as \ooo. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
}

/* ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS...] - TYPE SOURCE SUPER-OPTIONS */
static bool parse(char *line, struct fs_mounts_entry *e)
{
	char *field[6], *save = NULL, *f, *type, *source;
	int n = 0;

	for (f = strtok_r(line, " \n", &save); f && n < 6; f = strtok_r(NULL, " \n", &save))
		field[n++] = f;
	while (f && strcmp(f, "-"))
		f = strtok_r(NULL, " \n", &save);
	type = strtok_r(NULL, " \n", &save);
	source = strtok_r(NULL, " \n", &save);
	if (n < 6 || !type || !source || sscanf(field[2], "%u:%u", &e->major, &e->minor) != 2)
		return false;
	unescape(field[4]);
	unescape(source);
	e->mountpoint = field[4];
	e->type = type;
	e->source = source;
	return true;
}

int fs_mounts_each(fs_mounts_fn *fn, void *arg)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct fs_mounts_entry e;
	char *line = NULL;
	size_t bytes = 0;

	if (!f)
		return -errno;
	while (getline(&line, &bytes, f) > 0)
		if (parse(line, &e) && !fn(arg, &e))
			break;
	free(line);
	fclose(f);
	return 0;
}

struct search {
	const char *store, *mountpoint;
	struct kv_buf *out_mountpoint, *out_source, *out_type;
	unsigned major, minor;
	bool found;
};

static bool set_text(struct kv_buf *b, const char *s)
{
	kv_buf_reset(b);
	return !kv_buf_printf(b, "%s", s);
}

/* Later ones lie on top of earlier ones: the last match counts. */
static bool match_store(void *arg, const struct fs_mounts_entry *e)
{
	struct search *s = arg;

	if (!strcmp(e->type, FS_MOUNT_TYPE) && !strcmp(e->source, s->store))
		s->found = set_text(s->out_mountpoint, e->mountpoint);
	return true;
}

static bool match_mountpoint(void *arg, const struct fs_mounts_entry *e)
{
	struct search *s = arg;

	if (!strcmp(e->mountpoint, s->mountpoint)) {
		s->found = set_text(s->out_source, e->source) && set_text(s->out_type, e->type);
		s->major = e->major;
		s->minor = e->minor;
	}
	return true;
}

bool fs_mounts_of_store(const char *store, struct kv_buf *out_mountpoint)
{
	struct search s = { .store = store, .out_mountpoint = out_mountpoint };

	return !fs_mounts_each(match_store, &s) && s.found;
}

bool fs_mounts_at(const char *mountpoint, struct kv_buf *out_source, struct kv_buf *out_type,
		  unsigned *out_major, unsigned *out_minor)
{
	struct search s = { .mountpoint = mountpoint, .out_source = out_source, .out_type = out_type };

	if (fs_mounts_each(match_mountpoint, &s) || !s.found)
		return false;
	*out_major = s.major;
	*out_minor = s.minor;
	return true;
}

int fs_unmount(const char *mountpoint, bool lazy, bool force)
{
	int wstatus;
	pid_t pid;

	if (umount2(mountpoint,
		    UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0) | (force ? MNT_FORCE : 0)) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", mountpoint,
		       (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &wstatus, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(wstatus) && !WEXITSTATUS(wstatus) ? 0 : -EBUSY;
}

static void out_of_time(int sig)
{
	(void)sig;
}

int fs_store_wait(const char *store, unsigned seconds)
{
	/* No SA_RESTART: the alarm ends the wait. */
	struct sigaction sa = { .sa_handler = out_of_time }, old;
	char path[PATH_MAX];
	int fd, err = 0;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", store, KV_NAME_LOCK) >= sizeof(path))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	sigaction(SIGALRM, &sa, &old);
	alarm(seconds);
	/* Exclusive: a read-only mount holds a shared one. */
	if (flock(fd, LOCK_EX | (seconds ? 0 : LOCK_NB)))
		err = errno == EINTR ? -EBUSY : errno == EWOULDBLOCK ? -EBUSY : 0;
	alarm(0);
	sigaction(SIGALRM, &old, NULL);
	close(fd);
	return err;
}
