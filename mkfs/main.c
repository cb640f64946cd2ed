/* mkfs.kvfs: options, messages, exit codes. */
#include "config.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mkfs/mkfs.h"

#define EXIT_FAILED 1
#define EXIT_USAGE 2

static const struct option long_options[] = {
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: mkfs.kvfs [-f] [-L label] [-U uuid] [-d sourcedir] [-o options] STORE\n"
	"\n"
	"Makes a filesystem in the directory STORE, which must be empty or not there yet.\n"
	"\n"
	"  -f            replace an old store; or put the store beside other files\n"
	"  -L label      a name, up to 64 bytes\n"
	"  -U uuid       instead of one drawn at random\n"
	"  -d sourcedir  fill it with the tree below the directory\n"
	"  -o options    root_owner=UID:GID, root_mode=OCTAL\n"
	"  -q            print nothing when all is well\n"
	"  -V            print the version\n"
	"\n"
	"See mkfs.kvfs(8).\n";

/* One sentence is enough: what came first is the reason. */
static void report(void *arg, enum kv_msg_level level, const char *text)
{
	bool *said = arg;

	if (level == KV_MSG_ERROR && *said)
		return;
	*said |= level == KV_MSG_ERROR;
	fprintf(stderr, "mkfs.kvfs: %s\n", text);
}

static bool parse_uuid(const char *s, uint8_t *out)
{
	size_t n = 0;

	for (; *s && n < 32; s++) {
		const char *digits = "0123456789abcdef", *d;

		if (*s == '-' && (n == 8 || n == 12 || n == 16 || n == 20))
			continue;
		d = strchr(digits, tolower((unsigned char)*s));
		if (!d)
			return false;
		out[n / 2] = (uint8_t)(n % 2 ? out[n / 2] | (d - digits) : (d - digits) << 4);
		n++;
	}
	return n == 32 && !*s;
}

static bool parse_number(const char *s, int base, char end, uint32_t *out, const char **out_rest)
{
	char *rest;
	unsigned long n;

	if (!isdigit((unsigned char)*s))
		return false;
	errno = 0;
	n = strtoul(s, &rest, base);
	if (errno || *rest != end || n > UINT32_MAX)
		return false;
	*out = (uint32_t)n;
	*out_rest = rest;
	return true;
}

static bool parse_option(char *o, struct mkfs_options *out)
{
	enum { ROOT_OWNER, ROOT_MODE };
	char *const names[] = { [ROOT_OWNER] = (char *)"root_owner",
				[ROOT_MODE] = (char *)"root_mode", NULL };

	while (*o) {
		char *value, *at = o;
		const char *rest;

		switch (getsubopt(&o, names, &value)) {
		case ROOT_OWNER:
			if (value && parse_number(value, 10, ':', &out->root_uid, &rest) &&
			    parse_number(rest + 1, 10, 0, &out->root_gid, &rest))
				continue;
			break;
		case ROOT_MODE:
			if (value && parse_number(value, 8, 0, &out->root_mode, &rest) &&
			    out->root_mode <= 07777)
				continue;
			break;
		}
		fprintf(stderr, "mkfs.kvfs: -o \"%s\" is not root_owner=UID:GID or root_mode=OCTAL\n",
			at);
		return false;
	}
	return true;
}

static int usage(const char *why, const char *what)
{
	fprintf(stderr, "mkfs.kvfs: %s%s; mkfs.kvfs -h tells more\n", why, what);
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	bool said = false, quiet = false;
	uint8_t uuid[16];
	struct mkfs_options o = {
		.msg = { report, &said, KV_MSG_WARN },
		.root_mode = 0755,
		.root_uid = geteuid(),
		.root_gid = getegid(),
	};
	int c, err;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "fL:U:d:o:qhV", long_options, NULL)) != -1) {
		switch (c) {
		case 'f':
			o.force = true;
			break;
		case 'L':
			if (strlen(optarg) > FS_LABEL_BYTES_MAX)
				return usage("a label has at most 64 bytes, not as many as ", optarg);
			o.label = optarg;
			break;
		case 'U':
			if (!parse_uuid(optarg, uuid))
				return usage("this is not a UUID: ", optarg);
			o.uuid = uuid;
			break;
		case 'd':
			o.source = optarg;
			break;
		case 'o':
			if (!parse_option(optarg, &o))
				return EXIT_USAGE;
			break;
		case 'q':
			quiet = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'V':
			printf("mkfs.kvfs %s\n", PACKAGE_VERSION);
			return 0;
		default:
			return usage("unknown option, or its argument is missing", "");
		}
	}
	if (optind == argc)
		return usage("which directory", "");
	if (optind + 1 != argc)
		return usage("one directory too many: ", argv[optind + 1]);
	err = mkfs_format(argv[optind], &o);
	if (err) {
		if (!said)
			fprintf(stderr, "mkfs.kvfs: %s: %s\n", argv[optind], kv_err_text(err));
		return EXIT_FAILED;
	}
	if (!quiet)
		printf("%s: a new kvfs filesystem; mount it with: kvfs %s MOUNTPOINT\n", argv[optind],
		       argv[optind]);
	return 0;
}
