#include "fs/opts.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

enum opt_kind {
	OPT_TRUE,		/* sets the field */
	OPT_FALSE,
	OPT_NUMBER,		/* name=N */
	OPT_BYTES,		/* name=N with K, M or G behind it */
	OPT_KERNEL,		/* goes on to the kernel, as it is */
	OPT_IGNORED,		/* for mount(8), fstab and systemd only */
};

#define NO_FIELD SIZE_MAX
#define FIELD(name) offsetof(struct fs_mount_opts, name)

/* A name that ends in '=' takes a value; one that ends in '*' is the beginning of many. */
static const struct opt {
	const char *name;
	enum opt_kind kind;
	size_t field, set_field;	/* set_field: remembers that it was given */
	uint64_t min, max;
} opts[] = {
	{ "ro", OPT_TRUE, FIELD(read_only), NO_FIELD, 0, 0 },
	{ "rw", OPT_FALSE, FIELD(read_only), NO_FIELD, 0, 0 },
	{ "remount", OPT_TRUE, FIELD(remount), NO_FIELD, 0, 0 },
	{ "writeback", OPT_TRUE, FIELD(writeback), NO_FIELD, 0, 0 },
	{ "nowriteback", OPT_FALSE, FIELD(writeback), NO_FIELD, 0, 0 },
	{ "relatime", OPT_TRUE, FIELD(relatime), NO_FIELD, 0, 0 },
	{ "noatime", OPT_FALSE, FIELD(relatime), NO_FIELD, 0, 0 },
	{ "commit=", OPT_NUMBER, FIELD(commit_s), NO_FIELD, 1, 3600 },
	{ "cache=", OPT_BYTES, FIELD(cache_bytes), NO_FIELD, 1 * KV_MIB, 64 * KV_GIB },
	{ "read_ahead=", OPT_BYTES, FIELD(read_ahead_bytes), NO_FIELD, 4 * KV_KIB, 64 * KV_MIB },
	{ "allow_other", OPT_TRUE, FIELD(allow_other), FIELD(allow_other_set), 0, 0 },
	{ "noallow_other", OPT_FALSE, FIELD(allow_other), FIELD(allow_other_set), 0, 0 },
	{ "suid", OPT_TRUE, FIELD(suid), FIELD(suid_set), 0, 0 },
	{ "nosuid", OPT_FALSE, FIELD(suid), FIELD(suid_set), 0, 0 },
	{ "dev", OPT_TRUE, FIELD(dev), FIELD(dev_set), 0, 0 },
	{ "nodev", OPT_FALSE, FIELD(dev), FIELD(dev_set), 0, 0 },
	{ "exec", OPT_KERNEL, NO_FIELD, NO_FIELD, 0, 0 },
	{ "noexec", OPT_KERNEL, NO_FIELD, NO_FIELD, 0, 0 },
	{ "sync", OPT_KERNEL, NO_FIELD, NO_FIELD, 0, 0 },
	{ "async", OPT_KERNEL, NO_FIELD, NO_FIELD, 0, 0 },
	{ "dirsync", OPT_KERNEL, NO_FIELD, NO_FIELD, 0, 0 },
	{ "context=", OPT_KERNEL, NO_FIELD, NO_FIELD, 0, 0 },
	{ "fscontext=", OPT_KERNEL, NO_FIELD, NO_FIELD, 0, 0 },
	{ "defcontext=", OPT_KERNEL, NO_FIELD, NO_FIELD, 0, 0 },
	{ "rootcontext=", OPT_KERNEL, NO_FIELD, NO_FIELD, 0, 0 },
	{ "default_permissions", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 }, /* always on */
	{ "diratime", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "nodiratime", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "lazytime", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "nolazytime", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "defaults", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "auto", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "noauto", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "user", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "user=", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "nouser", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "users", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "nousers", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "owner", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "group", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "nofail", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "_netdev", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	/* What the kernel tells of a mount, mount(8) hands back with a remount. */
	{ "user_id=", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "group_id=", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "blksize=", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "max_read=", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "comment=", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "x-*", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
	{ "X-*", OPT_IGNORED, NO_FIELD, NO_FIELD, 0, 0 },
};

static const struct opt *find(const char *text)
{
	for (size_t i = 0; i < KV_ARRAY_LEN(opts); i++) {
		size_t n = strlen(opts[i].name);
		char last = opts[i].name[n - 1];

		if (last == '=' ? !strncmp(text, opts[i].name, n)
		    : last == '*' ? !strncmp(text, opts[i].name, n - 1)
				  : !strcmp(text, opts[i].name))
			return &opts[i];
	}
	return NULL;
}

static bool parse_number(const char *s, bool with_unit, uint64_t *out)
{
	static const char units[] = "KMG";
	const char *unit;
	char *end;

	/* strtoull takes signs and spaces; we don't. */
	if (!isdigit((unsigned char)*s))
		return false;
	errno = 0;
	*out = strtoull(s, &end, 10);
	if (errno)
		return false;
	if (with_unit && *end && (unit = strchr(units, toupper((unsigned char)*end)))) {
		unsigned shift = 10 * (unsigned)(unit - units + 1);

		if (*out > UINT64_MAX >> shift)
			return false;
		*out <<= shift;
		end++;
	}
	return *end == 0;
}

static int apply(struct fs_mount_opts *o, char *text, struct kv_buf *why)
{
	const struct opt *opt = find(text);
	const char *value = strchr(text, '=');
	char *base = (char *)o;
	uint64_t n;

	if (!opt) {
		KV_TRY(kv_buf_printf(why, "unknown mount option \"%s\"; kvfs(5) lists them", text));
		return -EINVAL;
	}
	switch (opt->kind) {
	case OPT_TRUE:
	case OPT_FALSE:
		*(bool *)(void *)(base + opt->field) = opt->kind == OPT_TRUE;
		break;
	case OPT_NUMBER:
	case OPT_BYTES:
		if (!parse_number(value + 1, opt->kind == OPT_BYTES, &n) || n < opt->min ||
		    n > opt->max) {
			KV_TRY(kv_buf_printf(why,
					     "mount option \"%s\" needs a number from %llu to %llu",
					     text, (unsigned long long)opt->min,
					     (unsigned long long)opt->max));
			return -EINVAL;
		}
		*(uint64_t *)(void *)(base + opt->field) = n;
		break;
	case OPT_KERNEL:
		KV_TRY(kv_buf_printf(&o->kernel, ",%s", text));
		break;
	case OPT_IGNORED:
		break;
	}
	if (opt->set_field != NO_FIELD)
		*(bool *)(void *)(base + opt->set_field) = true;
	return 0;
}

/* A comma inside double quotes (context="a,b") does not end an option. */
static int apply_list(struct fs_mount_opts *o, const char *list, struct kv_buf *why)
{
	char *copy = strdup(list), *at = copy;
	int err = copy ? 0 : -ENOMEM;

	while (!err && at && *at) {
		bool quoted = false;
		char *end = at;

		for (; *end && (*end != ',' || quoted); end++)
			quoted ^= *end == '"';
		if (*end)
			*end++ = 0;
		if (*at)
			err = apply(o, at, why);
		at = end;
	}
	free(copy);
	return err;
}

static int take_operand(struct fs_mount_opts *o, const char *s, struct kv_buf *why)
{
	char **to = !o->store ? &o->store : !o->mountpoint ? &o->mountpoint : NULL;

	if (!to) {
		KV_TRY(kv_buf_printf(why, "\"%s\" is one argument too many", s));
		return -EINVAL;
	}
	*to = strdup(s);
	return *to ? 0 : -ENOMEM;
}

/* One short option; *value_used says that it took `value`. */
static int take_flag(struct fs_mount_opts *o, char c, const char *value, bool helper,
		     bool *value_used, struct kv_buf *why)
{
	*value_used = false;
	if (c == 'o' || (c == 't' && helper) || (c == 'N' && helper)) {
		if (!value) {
			KV_TRY(kv_buf_printf(why, "-%c needs an argument", c));
			return -EINVAL;
		}
		*value_used = true;
		return c == 'o' ? apply_list(o, value, why) : 0;
	}
	/* Of mount(8)'s: fake, sloppy, verbose, no mtab. Nothing of that is ours to do. */
	if (helper && strchr("sfvn", c))
		return 0;
	switch (c) {
	case 'f':
		o->foreground = true;
		return 0;
	case 'd':
		o->debug = o->foreground = true;
		return 0;
	case 's':
		o->single = true;
		return 0;
	case 'h':
		o->help = true;
		return 0;
	case 'V':
		o->version = true;
		return 0;
	case 'r':
		o->read_only = true;
		return 0;
	case 'w':
		o->read_only = false;
		return 0;
	}
	KV_TRY(kv_buf_printf(why, "unknown option -%c; kvfs(8) lists them", c));
	return -EINVAL;
}

static int take_argument(struct fs_mount_opts *o, char **argv, int argc, int *i, bool helper,
			 struct kv_buf *why)
{
	const char *arg = argv[*i];
	bool value_used;

	if (arg[0] != '-' || !arg[1])
		return take_operand(o, arg, why);
	if (!strcmp(arg, "--help"))
		return take_flag(o, 'h', NULL, false, &value_used, why);
	if (!strcmp(arg, "--version"))
		return take_flag(o, 'V', NULL, false, &value_used, why);
	if (arg[1] == '-') {
		KV_TRY(kv_buf_printf(why, "unknown option %s; kvfs(8) lists them", arg));
		return -EINVAL;
	}
	for (size_t k = 1; arg[k]; k++) {
		bool last = !arg[k + 1];
		const char *value = !last ? arg + k + 1 : *i + 1 < argc ? argv[*i + 1] : NULL;

		KV_TRY(take_flag(o, arg[k], value, helper, &value_used, why));
		if (value_used) {
			*i += last;
			break;
		}
	}
	return 0;
}

int fs_mount_opts_parse(struct fs_mount_opts *o, int argc, char **argv, bool helper,
			struct kv_buf *out_why)
{
	bool root = geteuid() == 0, operands_only = false;

	*o = (struct fs_mount_opts){
		.writeback = true,
		.commit_s = 5,
		.cache_bytes = 32 * KV_MIB,
		.read_ahead_bytes = 1 * KV_MIB,
	};
	for (int i = 1; i < argc; i++) {
		if (!operands_only && !strcmp(argv[i], "--"))
			operands_only = true;
		else if (operands_only)
			KV_TRY(take_operand(o, argv[i], out_why));
		else
			KV_TRY(take_argument(o, argv, argc, &i, helper, out_why));
	}
	if (!o->allow_other_set)
		o->allow_other = root;
	if (!o->suid_set)
		o->suid = root;
	if (!o->dev_set)
		o->dev = root;
	if (!o->help && !o->version && (!o->store || !o->mountpoint)) {
		KV_TRY(kv_buf_printf(out_why, "usage: kvfs STORE MOUNTPOINT [-o options] [-f] [-d] [-s]"));
		return -EINVAL;
	}
	return 0;
}

void fs_mount_opts_done(struct fs_mount_opts *o)
{
	free(o->store);
	free(o->mountpoint);
	kv_buf_done(&o->kernel);
}
