#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "kv/journal.h"
#include "kv/journal_chunk.h"
#include "tests/sim/env_sim.h"
#include "tests/unit/unit.h"

#define ROOT "/store"
#define NUMBER 5
#define BEGIN sizeof(struct kv_file_header)
#define HEADER sizeof(struct kv_chunk_header)

static struct kv_store store;
static struct kv_filename name;
static char said[1024];
static uint64_t rng;

static void hear(void *arg, enum kv_msg_level level, const char *text)
{
	(void)arg, (void)level;
	snprintf(said, sizeof(said), "%s", text);
}

static void enter(struct kv_env *env)
{
	store = (struct kv_store){
		.env = env,
		.path = ROOT,
		.msg = { .fn = hear, .level_max = KV_MSG_DEBUG },
		.store_id = "0123456789abcde",
	};
	name = kv_filename(KV_FILE_JOURNAL, NUMBER);
	ck_ok(env->ops->dir_open(env, ROOT, true, &store.dir));
}

static void leave(void)
{
	store.env->ops->dir_close(store.dir);
	kv_env_sim_free(store.env);
}

static void crash(enum kv_sim_crash how, uint64_t seed)
{
	kv_env_sim_crash(store.env, how, seed);
	store.env->ops->dir_close(store.dir);
	ck_ok(store.env->ops->dir_open(store.env, ROOT, false, &store.dir));
}

static uint64_t roll(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static void seed_rolls(void)
{
	const char *seed = getenv("SEED");

	rng = seed ? strtoull(seed, NULL, 0) : (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
	rng |= 1;
	printf("SEED=%" PRIu64 "\n", rng);
}

static struct kv_journal *create(uint64_t allocate_bytes)
{
	struct kv_journal *j = NULL;

	ck_ok(kv_journal_create(&store, KV_FILE_JOURNAL, NUMBER, allocate_bytes, &j));
	ck_ok(store.env->ops->dir_sync(store.dir));
	return j;
}

/* The payload of the chunk with this seqno: its length and bytes follow from it. */
static struct kv_slice payload(uint64_t seqno)
{
	static uint8_t bytes[4096];
	size_t n = seqno * 37 % 200;

	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(seqno * 13 + i * 7 + 1);
	return kv_slice(bytes, n);
}

static int append(struct kv_journal *j, uint64_t seqno)
{
	struct kv_slice p = payload(seqno);
	struct iovec iov[] = { { (void *)(uintptr_t)p.data, p.bytes / 3 },
			       { NULL, 0 },
			       { (uint8_t *)(uintptr_t)p.data + p.bytes / 3, p.bytes - p.bytes / 3 } };

	return kv_journal_append(j, KV_CHUNK_BATCHES, seqno, (uint32_t)seqno + 1, iov, 3);
}

/* As an engine does whose values are durable, too. */
static int sync_and_promise(struct kv_journal *j)
{
	KV_TRY(kv_journal_sync(j));
	kv_journal_promise(j, kv_journal_synced(j));
	return 0;
}

/* Reads all: checks that the chunks are 1, 2, .. exactly as appended. */
static int read_all(uint64_t *out_last, struct kv_journal_tail *out_tail)
{
	struct kv_journal_reader *r;
	struct kv_chunk c;
	uint64_t last = 0, end = BEGIN;
	bool at_end;
	int err;

	KV_TRY(kv_journal_open(&store, KV_FILE_JOURNAL, NUMBER, &r));
	while ((err = kv_journal_read(r, &c, &at_end)) == 0 && !at_end) {
		ck_assert_uint_eq(c.offset, end);
		ck_assert_uint_le(c.promised, c.offset);
		end = c.end;
		if (c.type == KV_CHUNK_END)
			continue;
		ck_assert_int_eq(c.type, KV_CHUNK_BATCHES);
		ck_assert_uint_eq(c.seqno, ++last);
		ck_assert_uint_eq(c.count, last + 1);
		ck_assert(kv_slice_eq(c.payload, payload(last)));
	}
	*out_last = last;
	if (err) {
		ck_assert_int_eq(kv_journal_read(r, &c, &at_end), err);
	} else {
		at_end = false;
		ck_ok(kv_journal_read(r, &c, &at_end));
		ck_assert(at_end);
		kv_journal_tail(r, out_tail);
		ck_assert_uint_eq(out_tail->end, end);
		ck_assert_uint_le(out_tail->promised, end);
	}
	kv_journal_close(r);
	return err;
}

static void set_size(uint64_t bytes)
{
	struct kv_env_file *f;

	ck_ok(store.env->ops->open(store.dir, name.s, KV_ENV_WRITE, &f));
	ck_ok(store.env->ops->truncate(f, bytes));
	store.env->ops->close(f);
}

static void overwrite(uint64_t offset, struct kv_slice s)
{
	struct kv_env_file *f;

	ck_ok(store.env->ops->open(store.dir, name.s, KV_ENV_WRITE, &f));
	ck_ok(kv_env_write(store.env, f, s, offset));
	store.env->ops->close(f);
}

UNIT(chunks_round_trip)
{
	struct kv_journal_tail tail;
	uint64_t last;

	for (uint64_t allocate = 0; allocate <= 65536; allocate += 32768) {
		struct kv_journal *j;

		enter(kv_env_sim_new(1));
		j = create(allocate);
		ck_assert_uint_eq(kv_journal_number(j), NUMBER);
		ck_assert_uint_eq(kv_journal_bytes(j), BEGIN);
		ck_ok(read_all(&last, &tail));
		ck_assert_uint_eq(last, 0);
		for (uint64_t i = 1; i <= 300; i++) {
			ck_ok(kv_journal_reserve(j, payload(i).bytes));
			ck_ok(append(j, i));
			if (i % 10 == 0)
				ck_ok(sync_and_promise(j));
		}
		ck_assert_uint_eq(kv_journal_synced(j), kv_journal_bytes(j));
		ck_ok(read_all(&last, &tail));
		ck_assert_uint_eq(last, 300);
		ck_assert_uint_eq(tail.end, kv_journal_bytes(j));
		ck_assert_uint_gt(tail.promised, 0);
		ck_assert(!tail.closed);
		ck_assert_uint_eq(tail.torn_bytes, 0);
		ck_ok(kv_journal_append(j, KV_CHUNK_END, 301, 0, NULL, 0));
		kv_journal_free(j);
		ck_ok(read_all(&last, &tail));
		ck_assert_uint_eq(last, 300);
		ck_assert(tail.closed);
		ck_assert_uint_eq(tail.promised, tail.end - HEADER);
		leave();
	}
}
UNIT_END

/* Payloads larger than the reader's window, and one of the largest kind. */
UNIT(large_chunks_round_trip)
{
	static const size_t sizes[] = { 1000, (1 << 20) - 41, 1 << 20, 5 << 20, 3, KV_CHUNK_PAYLOAD_MAX };
	size_t bytes = KV_CHUNK_PAYLOAD_MAX + 1;
	uint8_t *data = malloc(bytes);
	struct kv_journal_reader *r;
	struct kv_journal *j;
	struct kv_chunk c;
	bool end;

	ck_assert_ptr_nonnull(data);
	for (size_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	enter(kv_env_sim_new(1));
	j = create(1 << 20);
	for (size_t i = 0; i < KV_ARRAY_LEN(sizes); i++) {
		struct iovec iov = { data, sizes[i] };

		ck_ok(kv_journal_reserve(j, sizes[i]));
		ck_ok(kv_journal_append(j, KV_CHUNK_BATCHES, i, 1, &iov, 1));
		ck_assert_ptr_eq(iov.iov_base, data);
	}
	ck_assert_int_eq(kv_journal_reserve(j, bytes), KV_E_too_big);
	{
		struct iovec iov[] = { { data, bytes - 1 }, { data, 1 } };

		ck_assert_int_eq(kv_journal_append(j, KV_CHUNK_BATCHES, 9, 1, iov, 2), KV_E_too_big);
	}
	ck_ok(kv_journal_append(j, KV_CHUNK_END, 9, 0, NULL, 0));	/* that did no harm */
	kv_journal_free(j);
	ck_ok(kv_journal_open(&store, KV_FILE_JOURNAL, NUMBER, &r));
	for (size_t i = 0; i < KV_ARRAY_LEN(sizes); i++) {
		ck_ok(kv_journal_read(r, &c, &end));
		ck_assert(!end);
		ck_assert(kv_slice_eq(c.payload, kv_slice(data, sizes[i])));
	}
	ck_ok(kv_journal_read(r, &c, &end));
	ck_assert(!end && c.type == KV_CHUNK_END);
	ck_ok(kv_journal_read(r, &c, &end));
	ck_assert(end);
	kv_journal_close(r);
	leave();
	free(data);
}
UNIT_END

/*
 * A small journal: chunks 1 .. 12, synced after each third. ends[i] is where
 * chunk i ends, promises[i] what it says.
 */
enum { CHUNKS = 12 };
static uint64_t ends[CHUNKS + 1], promises[CHUNKS + 1];

static void write_small(uint64_t allocate)
{
	struct kv_journal *j = create(allocate);

	ends[0] = BEGIN;
	for (uint64_t i = 1; i <= CHUNKS; i++) {
		promises[i] = kv_journal_synced(j);
		ck_ok(append(j, i));
		ends[i] = kv_journal_bytes(j);
		if (i % 3 == 0 && i < CHUNKS)
			ck_ok(sync_and_promise(j));
	}
	kv_journal_free(j);
}

/* The chunk in whose place the byte lies. */
static uint64_t chunk_of(uint64_t offset)
{
	uint64_t i = 1;

	while (offset >= ends[i])
		i++;
	return i;
}

static void check_flip(uint64_t offset, uint8_t mask)
{
	uint64_t hit = chunk_of(offset), last = 0, promised = 0;
	bool in_padding = offset >= ends[hit - 1] + HEADER + payload(hit).bytes;
	struct kv_journal_tail tail;
	int err;

	ck_ok(kv_env_sim_flip(store.env, ROOT, name.s, offset, mask));
	err = read_all(&last, &tail);
	ck_ok(kv_env_sim_flip(store.env, ROOT, name.s, offset, mask));
	for (uint64_t i = 1; i <= CHUNKS; i++)
		if (i != hit)
			promised = KV_MAX(promised, promises[i]);
	if (in_padding) {
		ck_ok(err);
		ck_assert_uint_eq(last, CHUNKS);
		return;
	}
	ck_assert_uint_eq(last, hit - 1);
	if (promised > ends[last]) {
		ck_assert_int_eq(err, KV_E_journal_damaged);
		ck_assert_ptr_nonnull(strstr(said, name.s));
		return;
	}
	ck_ok(err);
	ck_assert_uint_eq(tail.end, ends[last]);
	ck_assert_uint_eq(tail.promised, promised);
	ck_assert_uint_gt(tail.torn_bytes, 0);
	ck_assert_uint_le(tail.torn_bytes, ends[CHUNKS] - tail.end);
}

/* Every byte in turn: an error, or exactly the chunks before it and none that was promised missing. */
UNIT(every_flipped_byte_is_noticed)
{
	for (uint64_t allocate = 0; allocate <= 16384; allocate += 16384) {
		enter(kv_env_sim_new(1));
		write_small(allocate);
		for (uint64_t offset = BEGIN; offset < ends[CHUNKS]; offset++)
			check_flip(offset, (uint8_t)(1u << offset % 8));
		for (uint64_t offset = BEGIN; offset < ends[CHUNKS]; offset += 3)
			check_flip(offset, 0xff);
		leave();
	}
}
UNIT_END

UNIT(a_journal_cut_anywhere_ends_there)
{
	struct kv_journal_tail tail;
	uint64_t last;

	enter(kv_env_sim_new(1));
	write_small(0);
	for (uint64_t bytes = ends[CHUNKS]; bytes-- > BEGIN;) {
		set_size(bytes);
		ck_ok(read_all(&last, &tail));
		ck_assert_uint_eq(last, chunk_of(bytes) - 1);
		ck_assert_uint_le(tail.torn_bytes, bytes - ends[last]);
	}
	for (uint64_t bytes = 0; bytes < BEGIN; bytes += 9) {
		set_size(bytes);
		ck_assert_int_eq(read_all(&last, &tail), KV_E_short_file);
	}
	leave();
}
UNIT_END

UNIT(zeros_end_a_journal_and_garbage_is_torn)
{
	struct kv_journal_tail tail;
	uint64_t last;

	enter(kv_env_sim_new(1));
	write_small(0);
	set_size(ends[CHUNKS] + (3 << 20));	/* more than a window */
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(last, CHUNKS);
	ck_assert_uint_eq(tail.torn_bytes, 0);
	set_size(ends[CHUNKS] + (3 << 20) + 5);
	overwrite(ends[CHUNKS] + (3 << 20) + 1, kv_slice_str("x"));
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(last, CHUNKS);
	ck_assert_uint_eq(tail.torn_bytes, (3 << 20) + 2);
	leave();
}
UNIT_END

/* A sync may cover batches whose values are nowhere yet: the engine says what counts. */
UNIT(a_journal_promises_what_it_is_told_a_manifest_what_is_synced)
{
	struct kv_journal_tail tail;
	struct kv_journal_reader *r;
	struct kv_journal *j;
	struct kv_chunk c;
	uint64_t last, middle;
	bool end;

	enter(kv_env_sim_new(1));
	j = create(0);
	ck_ok(append(j, 1));
	middle = kv_journal_bytes(j);
	ck_ok(append(j, 2));
	ck_ok(kv_journal_sync(j));
	ck_ok(append(j, 3));
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(tail.promised, 0);
	kv_journal_promise(j, middle);
	kv_journal_promise(j, middle - 8);	/* nothing is taken back */
	ck_ok(append(j, 4));
	kv_journal_free(j);
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(last, 4);
	ck_assert_uint_eq(tail.promised, middle);

	ck_ok(kv_journal_create(&store, KV_FILE_MANIFEST, 6, 0, &j));
	ck_ok(kv_journal_append(j, KV_CHUNK_EDIT, 1, 1, NULL, 0));
	ck_ok(kv_journal_sync(j));
	ck_ok(kv_journal_append(j, KV_CHUNK_MARK, 1, 0, NULL, 0));
	kv_journal_free(j);
	ck_ok(kv_journal_open(&store, KV_FILE_MANIFEST, 6, &r));
	ck_ok(kv_journal_read(r, &c, &end));
	ck_assert(!end && c.promised == 0);
	ck_ok(kv_journal_read(r, &c, &end));
	ck_assert(!end && c.promised == c.offset);
	kv_journal_close(r);
	leave();
}
UNIT_END

/* A chunk as the writer would make it, but with any header. */
static void forge(uint64_t at, uint64_t promised, uint32_t type)
{
	struct kv_chunk_header h = {
		.magic = kv_le32(KV_CHUNK_MAGIC),
		.promised = kv_le64(promised),
		.type = kv_le32(type),
	};

	h.checksum = kv_le64(kv_checksum(kv_chunk_summed(&h, 0), kv_chunk_seed(&store, NUMBER)));
	overwrite(at, kv_slice(&h, sizeof(h)));
}

UNIT(only_a_promise_beyond_the_end_proves_damage)
{
	struct kv_journal_tail tail;
	uint64_t last, end;

	enter(kv_env_sim_new(1));
	write_small(0);
	end = ends[CHUNKS];
	overwrite(end, kv_slice_str("a chunk that never arrived whole"));
	forge(end + 64, end, KV_CHUNK_MARK);	/* written in the same breath */
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(last, CHUNKS);
	ck_assert_uint_eq(tail.promised, end);
	ck_assert_uint_eq(tail.torn_bytes, 64 + HEADER);
	forge(end + 64 + 2000000, end + 1, KV_CHUNK_MARK);
	ck_assert_int_eq(read_all(&last, &tail), KV_E_journal_damaged);
	ck_assert_uint_eq(last, CHUNKS);
	leave();
}
UNIT_END

UNIT(chunks_that_cannot_be_are_errors)
{
	struct kv_journal_tail tail;
	uint64_t last;

	enter(kv_env_sim_new(1));
	write_small(0);
	forge(ends[CHUNKS], ends[CHUNKS] + 1, KV_CHUNK_MARK);
	ck_assert_int_eq(read_all(&last, &tail), KV_E_journal_damaged);
	forge(ends[CHUNKS], 0, KV_CHUNK_END + 1);
	ck_assert_int_eq(read_all(&last, &tail), KV_E_newer_format);
	forge(ends[CHUNKS], 0, 0x80000000u);
	ck_assert_int_eq(read_all(&last, &tail), KV_E_newer_format);
	forge(ends[CHUNKS], 0, KV_CHUNK_END);
	ck_ok(read_all(&last, &tail));
	forge(ends[CHUNKS] + HEADER, 0, KV_CHUNK_END);
	ck_assert_int_eq(read_all(&last, &tail), KV_E_journal_damaged);
	leave();
}
UNIT_END

/* A journal of this store with another number, or of another store with this one. */
UNIT(chunks_of_another_journal_are_no_evidence)
{
	struct kv_journal_tail tail;
	uint64_t last, own_end;
	struct kv_env_file *f;
	uint8_t old[8192];
	size_t n;

	enter(kv_env_sim_new(1));
	store.store_id[3] ^= 1;
	write_small(0);
	ck_ok(store.env->ops->open(store.dir, name.s, KV_ENV_READ, &f));
	ck_ok(store.env->ops->pread(f, old, sizeof(old), 0, &n));
	store.env->ops->close(f);
	ck_assert_uint_eq(n, ends[CHUNKS]);
	ck_ok(store.env->ops->unlink(store.dir, name.s));
	store.store_id[3] ^= 1;
	{
		struct kv_journal *j = create(0);

		ck_ok(append(j, 1));
		own_end = kv_journal_bytes(j);
		kv_journal_free(j);
	}
	overwrite(own_end, kv_slice(old + own_end, n - own_end));
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(last, 1);
	ck_assert_uint_eq(tail.end, own_end);
	leave();
}
UNIT_END

/* Bytes that look like endless overlapping chunks must not keep anybody busy for long. */
UNIT(crafted_tails_are_judged_in_bounded_time)
{
	enum { BYTES = 64 << 20, STEP = 64 };
	uint8_t *tail_bytes = calloc(1, BYTES);
	struct kv_journal_tail tail;
	uint64_t last;
	int err;

	ck_assert_ptr_nonnull(tail_bytes);
	enter(kv_env_sim_new(1));
	write_small(0);
	for (size_t at = STEP; at + STEP <= BYTES; at += STEP) {
		struct kv_chunk_header h = {
			.magic = kv_le32(KV_CHUNK_MAGIC),
			.payload_bytes = kv_le32((uint32_t)(BYTES - at - HEADER) & ~7u),
			.promised = kv_le64(ends[CHUNKS] + 1),
			.type = kv_le32(KV_CHUNK_MARK),
		};

		memcpy(tail_bytes + at, &h, sizeof(h));
	}
	overwrite(ends[CHUNKS], kv_slice(tail_bytes, BYTES));
	free(tail_bytes);
	err = read_all(&last, &tail);
	ck_assert_int_eq(err, KV_E_journal_damaged);
	ck_assert_ptr_nonnull(strstr(said, "too much like one"));
	leave();
}
UNIT_END

UNIT(a_read_error_is_never_the_end)
{
	bool done = false;

	for (uint64_t n = 0; !done; n++) {
		struct kv_sim_fault fault = { KV_SIM_READ, ".journal", n, -EIO, true };
		struct kv_journal_tail tail;
		uint64_t last = 0;
		int err;

		enter(kv_env_sim_new(1));
		write_small(4 << 20);	/* several windows of zeros */
		kv_env_sim_fail(store.env, &fault);
		err = read_all(&last, &tail);
		done = !kv_env_sim_faults_hit(store.env);
		ck_assert_int_eq(err, done ? 0 : -EIO);
		leave();
		ck_assert_uint_lt(n, 50);
	}
}
UNIT_END

UNIT(trim_gives_back_what_was_allocated_ahead)
{
	struct kv_journal *j;
	struct kv_journal_tail tail;
	struct kv_env_file *file;
	uint64_t last, bytes, end;

	enter(kv_env_sim_new(1));
	j = create(1 << 20);
	for (uint64_t i = 1; i <= 5; i++) {
		ck_ok(kv_journal_reserve(j, payload(i).bytes));
		ck_ok(append(j, i));
	}
	ck_ok(kv_journal_append(j, KV_CHUNK_END, 5, 0, NULL, 0));
	end = kv_journal_bytes(j);
	kv_journal_trim(j);
	ck_ok(kv_journal_sync(j));
	kv_journal_free(j);
	ck_ok(store.env->ops->open(store.dir, name.s, KV_ENV_READ, &file));
	ck_ok(store.env->ops->size(file, &bytes));
	store.env->ops->close(file);
	ck_assert_uint_eq(bytes, end);
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(last, 5);
	ck_assert(tail.closed);
	leave();
}
UNIT_END

UNIT(no_space_is_told_by_reserve_and_harmless)
{
	struct kv_journal *j;
	struct kv_journal_tail tail;
	uint64_t last, i;
	int err = 0;

	enter(kv_env_sim_new(1));
	kv_env_sim_set_capacity(store.env, 3 * 4096);
	ck_assert_int_eq(kv_journal_create(&store, KV_FILE_JOURNAL, NUMBER, 1 << 20, &j), 0);
	ck_ok(store.env->ops->dir_sync(store.dir));
	for (i = 1; !(err = kv_journal_reserve(j, payload(i).bytes)); i++)
		ck_ok(append(j, i));
	ck_assert_int_eq(err, KV_E_no_space);
	ck_assert(kv_err_is(err, -ENOSPC));
	ck_assert_uint_gt(i, 20);
	ck_ok(kv_journal_append(j, KV_CHUNK_END, i, 0, NULL, 0));	/* has its room */
	ck_ok(kv_journal_sync(j));
	kv_journal_free(j);
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(last, i - 1);
	ck_assert(tail.closed);
	ck_ok(store.env->ops->unlink(store.dir, name.s));

	j = create(4096);
	for (i = 1; !kv_journal_reserve(j, payload(i).bytes); i++)
		ck_ok(append(j, i));
	kv_env_sim_set_capacity(store.env, UINT64_MAX);
	for (; i <= 300; i++) {
		ck_ok(kv_journal_reserve(j, payload(i).bytes));
		ck_ok(append(j, i));
	}
	kv_journal_free(j);
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(last, 300);
	ck_ok(store.env->ops->unlink(store.dir, name.s));

	kv_env_sim_set_capacity(store.env, 0);
	ck_assert_int_eq(kv_journal_create(&store, KV_FILE_JOURNAL, NUMBER, 4096, &j), KV_E_no_space);
	ck_assert_int_eq(kv_journal_open(&store, KV_FILE_JOURNAL, NUMBER, &(struct kv_journal_reader *){ NULL }),
			 KV_E_missing_file);
	leave();
}
UNIT_END

UNIT(the_first_failure_poisons)
{
	static const struct kv_sim_fault faults[] = {
		{ KV_SIM_WRITE, NULL, 0, -ENOSPC, false },
		{ KV_SIM_SYNC, NULL, 0, -EDQUOT, false },
		{ KV_SIM_ALLOCATE, NULL, 0, -EROFS, false },
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(faults); i++) {
		static const struct kv_sim_fault later = { KV_SIM_WRITE | KV_SIM_SYNC, NULL, 0, -EIO, true };
		struct kv_journal *j;
		struct kv_journal_tail tail;
		uint64_t last, bytes, ops_before;
		int err;

		enter(kv_env_sim_new(i));
		j = create(4096);
		ck_ok(append(j, 1));
		ck_ok(kv_journal_sync(j));
		ck_ok(append(j, 2));
		bytes = kv_journal_bytes(j);
		kv_env_sim_fail(store.env, &faults[i]);
		err = i == 0 ? append(j, 3) : i == 1 ? kv_journal_sync(j) : kv_journal_reserve(j, 8192);
		ck_assert_int_eq(err, faults[i].err);
		kv_env_sim_fail(store.env, &later);
		ops_before = kv_env_sim_ops(store.env);
		ck_assert_int_eq(append(j, 3), err);
		ck_assert_int_eq(kv_journal_sync(j), err);
		ck_assert_int_eq(kv_journal_reserve(j, 1), err);
		ck_assert_uint_eq(kv_env_sim_ops(store.env), ops_before); /* nothing is tried again */
		ck_assert_uint_eq(kv_journal_bytes(j), bytes);
		ck_assert_uint_lt(kv_journal_synced(j), bytes);
		kv_journal_free(j);
		kv_env_sim_heal(store.env);
		ck_ok(read_all(&last, &tail));
		ck_assert_uint_ge(last, 2);
		leave();
	}
}
UNIT_END

/* What sync promised is there after any crash, and nothing follows out of order. */
static uint64_t crash_workload(uint64_t *out_appended)
{
	struct kv_journal *j;
	uint64_t durable = 0, i = 0;

	*out_appended = 0;
	if (kv_journal_create(&store, KV_FILE_JOURNAL, NUMBER, 2048, &j))
		return 0;
	if (store.env->ops->dir_sync(store.dir) == 0)
		for (i = 1; i <= 40; i++) {
			if (kv_journal_reserve(j, payload(i).bytes))
				break;
			*out_appended = i;	/* may arrive, whatever the call says */
			if (append(j, i))
				break;
			if (i % 7 == 0 && sync_and_promise(j))
				break;
			durable = i % 7 == 0 ? i : durable;
		}
	kv_journal_free(j);
	return durable;
}

UNIT(no_crash_loses_what_was_promised)
{
	bool stopped = true;

	seed_rolls();
	for (uint64_t n = 0; stopped; n++)
		for (int k = 0; k < 25; k++) {
			uint64_t appended, durable, last = 0;
			struct kv_journal_tail tail = { 0 };
			int err;

			enter(kv_env_sim_new(roll()));
			kv_env_sim_stop_after(store.env, n, true);
			durable = crash_workload(&appended);
			stopped = kv_env_sim_stopped(store.env);
			crash(KV_SIM_RANDOM, roll());
			err = read_all(&last, &tail);
			if (err) {	/* a file that was never synced need not be one */
				ck_assert_uint_eq(durable, 0);
				ck_assert(err != KV_E_journal_damaged && kv_err_is(err, KV_E_corrupt));
			}
			ck_assert_uint_ge(last, durable);
			ck_assert_uint_le(last, appended);
			leave();
		}
}
UNIT_END

static atomic_bool stop_syncing;

static void *sync_often(void *arg)
{
	struct kv_journal *j = arg;

	while (!stop_syncing) {
		uint64_t bytes = kv_journal_bytes(j);

		if (kv_journal_sync(j) || kv_journal_synced(j) < bytes)
			return j;
	}
	return NULL;
}

UNIT(syncs_run_beside_appends)
{
	struct kv_journal_tail tail;
	struct kv_journal *j;
	pthread_t threads[2];
	uint64_t last;
	void *failed;

	enter(kv_env_sim_new(1));
	j = create(0);
	for (int i = 0; i < 2; i++)
		ck_ok(pthread_create(&threads[i], NULL, sync_often, j));
	for (uint64_t i = 1; i <= 2000; i++)
		ck_ok(append(j, i));
	stop_syncing = true;
	for (int i = 0; i < 2; i++) {
		ck_ok(pthread_join(threads[i], &failed));
		ck_assert_ptr_null(failed);
	}
	kv_journal_free(j);
	ck_ok(read_all(&last, &tail));
	ck_assert_uint_eq(last, 2000);
	leave();
}
UNIT_END

UNIT_MAIN("journal", chunks_round_trip, large_chunks_round_trip, every_flipped_byte_is_noticed,
	  a_journal_cut_anywhere_ends_there, zeros_end_a_journal_and_garbage_is_torn,
	  a_journal_promises_what_it_is_told_a_manifest_what_is_synced,
	  only_a_promise_beyond_the_end_proves_damage, chunks_that_cannot_be_are_errors,
	  chunks_of_another_journal_are_no_evidence, crafted_tails_are_judged_in_bounded_time,
	  a_read_error_is_never_the_end, no_space_is_told_by_reserve_and_harmless,
	  trim_gives_back_what_was_allocated_ahead, the_first_failure_poisons,
	  no_crash_loses_what_was_promised, syncs_run_beside_appends)
