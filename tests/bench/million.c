/*
 * What one operation costs in an empty directory and in one of many files, on any mounted
 * filesystem:	million DIRECTORY [FILES]
 *
 * Prints the median of each over a sample, in microseconds, and the ratio. Then walks the
 * directory as find(1) does. The full directory is left for others to measure (fsck, memory).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE 2000

enum op { CREATE, LOOKUP, MISS, UNLINK, OPS };
static const char *const op_names[OPS] = { "create", "lookup", "lookup of nothing", "unlink" };

_Noreturn static void die(const char *what, const char *name)
{
	fprintf(stderr, "million: %s %s: %s\n", what, name, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void make(int dir, const char *name)
{
	int fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY, 0644);

	if (fd < 0 || close(fd))
		die("creating", name);
}

static void one(enum op op, int dir, unsigned i)
{
	char name[32];
	struct stat st;

	snprintf(name, sizeof(name), "%s-%u", op == MISS ? "nothing" : "sample", i * 7919u);
	switch (op) {
	case CREATE:
		make(dir, name);
		break;
	case LOOKUP:
		if (fstatat(dir, name, &st, 0))
			die("looking up", name);
		break;
	case MISS:
		if (!fstatat(dir, name, &st, 0) || errno != ENOENT)
			die("looking up", name);
		break;
	case UNLINK:
		if (unlinkat(dir, name, 0))
			die("removing", name);
		break;
	case OPS:
		break;
	}
}

/* The kernel forgets what it knows, so that a lookup is one. */
static void drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (fd < 0 || write(fd, "2\n", 2) != 2)
		fprintf(stderr, "million: not root: the kernel's caches stay\n");
	if (fd >= 0)
		close(fd);
}

static void measure(int dir, double median[OPS])
{
	static double us[SAMPLE];

	for (enum op op = 0; op < OPS; op++) {
		if (op == LOOKUP)
			drop_caches();
		for (unsigned i = 0; i < SAMPLE; i++) {
			double start = now_us();

			one(op, dir, i);
			us[i] = now_us() - start;
		}
		qsort(us, SAMPLE, sizeof(us[0]), compare);
		median[op] = us[SAMPLE / 2];
	}
}

static void walk(int dir, unsigned long expected)
{
	double start;
	DIR *d = fdopendir(dup(dir));
	struct dirent *e;
	struct stat st;
	unsigned long n = 0;

	if (!d)
		die("opening", ".");
	drop_caches();
	start = now_us();
	while ((errno = 0, e = readdir(d))) {
		if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			die("looking up", e->d_name);
		n++;
	}
	if (errno || n != expected + 2)
		die("listing", "the directory");
	printf("listing with attributes: %lu entries, %.2f us each\n", n, (now_us() - start) / (double)n);
	closedir(d);
}

int main(int argc, char **argv)
{
	unsigned long files = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000000;
	double empty[OPS], full[OPS], start;
	char name[32];
	int dir;

	if (argc < 2) {
		fprintf(stderr, "usage: million DIRECTORY [FILES]\n");
		return 2;
	}
	if (mkdir(argv[1], 0755) && errno != EEXIST)
		die("making", argv[1]);
	dir = open(argv[1], O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		die("opening", argv[1]);
	measure(dir, empty);
	start = now_us();
	for (unsigned long i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "file-%lu", i);
		make(dir, name);
	}
	printf("creating: %lu files, %.2f us each\n", files, (now_us() - start) / (double)files);
	measure(dir, full);
	for (enum op op = 0; op < OPS; op++)
		printf("%-18s %8.2f us in an empty directory, %8.2f us in one of %lu: %.2f x\n",
		       op_names[op], empty[op], full[op], files, full[op] / empty[op]);
	walk(dir, files);
	return 0;
}
