/* The command line of a mount: arguments are the lines of the input. */
#include "tests/fuzz/fuzz.h"

#include "fs/opts.h"

#define ARGS_MAX 16

static void run(struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf why = KV_BUF_INIT;
	struct fs_mount_opts o = { 0 };
	bool helper = fuzz_take(&input, 1) % 2;
	char *text = malloc(input.bytes + 1), *argv[ARGS_MAX + 1], *at = text;
	char name[] = "kvfs";
	int argc = 0, err;

	FUZZ_ASSERT(text);
	if (input.bytes)
		memcpy(text, input.data, input.bytes);
	text[input.bytes] = 0;
	argv[argc++] = name;
	while (at && argc < ARGS_MAX)
		argv[argc++] = strsep(&at, "\n");
	argv[argc] = NULL;
	err = fs_mount_opts_parse(&o, argc, argv, helper, &why);
	if (err)
		FUZZ_ASSERT(err == -EINVAL && why.bytes && strlen((char *)why.data) == why.bytes);
	else
		FUZZ_ASSERT(o.commit_s && o.cache_bytes && (!o.mountpoint || o.store));
	fs_mount_opts_done(&o);
	free(text);
}

static void seeds(fuzz_emit_fn *emit, void *arg)
{
	emit(arg, kv_slice_str("0/store\n/mnt\n-o\nro,noatime,commit=7,cache=64M"));
	emit(arg, kv_slice_str("1/store\n/mnt\n-osuid,nodev,context=\"a,b\",x-systemd.mount\n-sfnv"));
	emit(arg, kv_slice_str("0-fd\n--help\n--\n-V"));
}

const struct fuzz_target fuzz_opts = { "opts", run, seeds };
