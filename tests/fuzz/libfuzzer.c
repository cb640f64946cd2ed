/*
 * Links a target (-DFUZZ_TARGET=fuzz_block) with libFuzzer. With FUZZ_SEEDS set, its seeds are
 * written to that directory first, which then is to be named as a corpus.
 */
#include "tests/fuzz/fuzz.h"

extern const struct fuzz_target FUZZ_TARGET;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct writer {
	const char *dir;
	unsigned count;
};

static void write_seed(void *arg, struct kv_slice input)
{
	struct writer *w = arg;
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/seed-%u", w->dir, w->count++);
	f = fopen(path, "wb");
	FUZZ_ASSERT(f);
	FUZZ_ASSERT(fwrite(input.data, 1, input.bytes, f) == input.bytes);
	FUZZ_OK(fclose(f));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct writer w = { .dir = getenv("FUZZ_SEEDS") };

	(void)argc;
	(void)argv;
	if (w.dir)
		FUZZ_TARGET.seeds(write_seed, &w);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	FUZZ_TARGET.run(kv_slice(data, bytes));
	return 0;
}
