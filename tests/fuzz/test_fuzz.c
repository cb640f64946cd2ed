/*
 * All fuzz targets on their seeds, on the inputs kept in tests/fuzz/found, and on some
 * mutations of both: what any build can do in seconds. ROUNDS says how many mutations of
 * each input, SEED which ones.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>

#define TARGETS(x)                                                                             \
	x(batch) x(block) x(compress) x(edit) x(filter) x(header) x(journal) x(manifest)       \
	x(meta) x(opts) x(record) x(sst) x(vlog)

#define X(name) extern const struct fuzz_target fuzz_##name;
TARGETS(X)
#undef X

static const struct fuzz_target *const targets[] = {
#define X(name) &fuzz_##name,
	TARGETS(X)
#undef X
};

struct session {
	const struct fuzz_target *target;
	uint64_t random;
	unsigned long rounds;
	size_t inputs;
};

static uint64_t draw(struct session *s, uint64_t below)
{
	uint64_t x = s->random += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (x ^ x >> 31) % below;
}

/* In memory that ends where the input does, so that a sanitizer sees a read behind it. */
static void run_copy(struct session *s, const uint8_t *bytes, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	FUZZ_ASSERT(copy);
	if (n)
		memcpy(copy, bytes, n);
	s->target->run(kv_slice(copy, n));
	free(copy);
}

static void mutate(struct session *s, struct kv_buf *b)
{
	static const uint8_t favourites[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	size_t at;

	if (!b->bytes)
		return;
	at = (size_t)draw(s, b->bytes);
	switch (draw(s, 5)) {
	case 0:
		b->data[at] ^= (uint8_t)(1 << draw(s, 8));
		break;
	case 1:
		b->data[at] = favourites[draw(s, sizeof(favourites))];
		break;
	case 2:
		b->data[at] = (uint8_t)draw(s, 256);
		break;
	case 3:
		memmove(b->data + at, b->data + at + 1, b->bytes - at - 1);
		b->bytes--;
		break;
	default:
		if (!draw(s, 8))
			b->bytes = at;
		else
			b->data[at] = b->data[draw(s, b->bytes)];
	}
}

static void run_input(void *arg, struct kv_slice input)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	struct session *s = arg;

	run_copy(s, input.data, input.bytes);
	s->inputs++;
	for (unsigned long i = 0; i < s->rounds; i++) {
		FUZZ_OK(kv_buf_assign(&b, input));
		for (uint64_t n = 1 + draw(s, 4); n; n--)
			mutate(s, &b);
		run_copy(s, b.data, b.bytes);
	}
}

static void run_file(struct session *s, const char *path)
{
	KV_AUTO(kv_buf_done) struct kv_buf b = KV_BUF_INIT;
	FILE *f = fopen(path, "rb");
	size_t got;

	FUZZ_ASSERT(f);
	do {
		FUZZ_OK(kv_buf_reserve(&b, 65536));
		got = fread(b.data + b.bytes, 1, 65536, f);
		b.bytes += got;
	} while (got);
	FUZZ_OK(fclose(f));
	run_input(s, kv_buf_slice(&b));
}

/* Inputs that were found to break the target once: files <target>-<what>. */
static void run_found(struct session *s)
{
	const char *srcdir = getenv("srcdir");
	size_t name_bytes = strlen(s->target->name);
	char dir[2048], path[4096];
	struct dirent *e;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/tests/fuzz/found", srcdir ? srcdir : ".");
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		if (strncmp(e->d_name, s->target->name, name_bytes) || e->d_name[name_bytes] != '-')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		run_file(s, path);
	}
	if (d)
		closedir(d);
}

int main(int argc, char **argv)
{
	const char *rounds = getenv("ROUNDS"), *seed = getenv("SEED");
	struct session s = {
		.rounds = rounds ? strtoul(rounds, NULL, 0) : 1000,
		.random = seed ? strtoull(seed, NULL, 0) : 1,
	};

	printf("SEED=%llu\n", (unsigned long long)s.random);
	for (size_t i = 0; i < KV_ARRAY_LEN(targets); i++) {
		s.target = targets[i];
		if (argc > 1 && strcmp(argv[1], s.target->name))
			continue;
		s.inputs = 0;
		printf("%s\n", s.target->name);
		fflush(stdout);
		s.target->seeds(run_input, &s);
		run_found(&s);
		FUZZ_ASSERT(s.inputs);
	}
	return EXIT_SUCCESS;
}
