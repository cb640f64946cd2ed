/* kvfsctl: asks the daemon of a mount. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/ioctl.h"
#include "fs/mounts.h"

#define EXIT_FAILED 1
#define EXIT_USAGE 2

static int failed(const char *mountpoint)
{
	if (errno == ENOTTY || errno == ENOSYS)
		fprintf(stderr, "kvfsctl: %s: not a kvfs mount\n", mountpoint);
	else
		fprintf(stderr, "kvfsctl: %s: %s\n", mountpoint, strerror(errno));
	return EXIT_FAILED;
}

/* First what the kernel holds (the daemon is sent writes), then what the daemon has. */
static int do_sync(int fd, const char *mountpoint)
{
	return syncfs(fd) || ioctl(fd, KVFS_IOC_SYNC) ? failed(mountpoint) : 0;
}

static int do_stats(int fd, const char *mountpoint)
{
	static struct kvfs_stats_text text;

	if (ioctl(fd, KVFS_IOC_STATS, &text))
		return failed(mountpoint);
	text.s[sizeof(text.s) - 1] = 0;
	return fputs(text.s, stdout) < 0 ? failed("standard output") : 0;
}

static const struct command {
	const char *name, *help;
	int (*run)(int fd, const char *mountpoint);
} commands[] = {
	{ "sync", "make everything written so far durable", do_sync },
	{ "stats", "print what the daemon counts", do_stats },
};

static int help(void)
{
	puts("usage: kvfsctl COMMAND MOUNTPOINT\n");
	for (size_t i = 0; i < KV_ARRAY_LEN(commands); i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].help);
	return 0;
}

int main(int argc, char **argv)
{
	const struct command *c = NULL;
	int fd, code;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
		return help();
	if (argc == 2 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) {
		printf("kvfsctl %s\n", PACKAGE_VERSION);
		return 0;
	}
	for (size_t i = 0; argc > 1 && i < KV_ARRAY_LEN(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			c = &commands[i];
	if (argc > 1 && !c)
		fprintf(stderr, "kvfsctl: unknown command \"%s\"; kvfsctl -h lists them\n", argv[1]);
	else if (argc != 3)
		fprintf(stderr, "kvfsctl: %s; kvfsctl -h tells more\n",
			argc < 2 ? "which command" :
			argc < 3 ? "which mount point" : "one mount point at a time");
	if (!c || argc != 3)
		return EXIT_USAGE;
	fd = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return failed(argv[2]);
	code = c->run(fd, argv[2]);
	close(fd);
	return code;
}
