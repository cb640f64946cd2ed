/*
 * Writing journals. One thread appends; syncs come from anywhere. What they
 * share are three atomics: how far the file is written, how far it is synced,
 * and the first failure.
 */
#include "kv/journal.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kv/checksum.h"
#include "kv/journal_chunk.h"
#include "kv/lock.h"

/* Room that stays behind a reserved chunk, for marks and the end, which nobody reserves. */
#define SPARE_BYTES (8 * sizeof(struct kv_chunk_header))
#define WRITEBACK_BYTES KV_MIB	/* start writing back when as many have gathered */

struct kv_journal {
	struct kv_env *env;	/* set at creation, constant after */
	struct kv_env_file *file;
	kv_fileno number;
	uint64_t seed;
	uint64_t allocate_bytes;

	uint64_t allocated;	/* the appending thread's, as the next */
	uint64_t writeback_started;

	struct kv_mutex sync_mu; /* one sync at a time */

	_Atomic uint64_t bytes;	/* appender writes, all read */
	_Atomic uint64_t synced; /* written under sync_mu, all read */
	_Atomic uint64_t promised; /* as the engine says; a manifest promises what is synced */
	bool promises_synced;
	_Atomic int poison;	/* the first failure; never 0 again */
};

static int poison(struct kv_journal *j, int err)
{
	int first = 0;

	return atomic_compare_exchange_strong(&j->poison, &first, err) ? err : first;
}

static bool is_no_space(int err)
{
	return err == -ENOSPC || err == -EDQUOT;
}

int kv_journal_create(struct kv_store *s, enum kv_file_kind kind, kv_fileno number,
		      uint64_t allocate_bytes, struct kv_journal **out)
{
	struct kv_journal *j = calloc(1, sizeof(*j));
	int err;

	if (!j)
		return -ENOMEM;
	err = kv_store_create_file(s, kind, number, &j->file);
	if (err) {
		free(j);
		return is_no_space(err) ? KV_E_no_space : err;
	}
	j->env = s->env;
	j->number = number;
	j->seed = kv_chunk_seed(s, number);
	j->allocate_bytes = allocate_bytes;
	j->promises_synced = kind == KV_FILE_MANIFEST;
	kv_mutex_init(&j->sync_mu);
	atomic_init(&j->bytes, sizeof(struct kv_file_header));
	err = kv_journal_reserve(j, 0);
	if (err) {
		kv_journal_free(j);
		/* If that fails, too, the next opening finds a file that nobody names. */
		(void)kv_store_unlink(s, kind, number);
		return kv_fail(&s->msg, err, "%s/%s: no room is allocated for it: %s", s->path,
			       kv_filename(kind, number).s, kv_err_text(err));
	}
	*out = j;
	return 0;
}

void kv_journal_free(struct kv_journal *j)
{
	if (!j)
		return;
	j->env->ops->close(j->file);
	kv_mutex_done(&j->sync_mu);
	free(j);
}

/*
 * The file is extended, so that a sync of later appends need not write its
 * size; what is allocated and not written reads as zeros, which end a journal.
 */
int kv_journal_reserve(struct kv_journal *j, uint64_t payload_bytes)
{
	uint64_t need, end;
	int err = atomic_load(&j->poison);

	if (err)
		return err;
	if (payload_bytes > KV_CHUNK_PAYLOAD_MAX)
		return KV_E_too_big;
	need = kv_journal_bytes(j) + kv_chunk_bytes(payload_bytes) + SPARE_BYTES;
	if (!j->allocate_bytes || need <= j->allocated)
		return 0;
	end = KV_MAX(need, j->allocated + j->allocate_bytes);
	err = j->env->ops->allocate(j->file, j->allocated, end - j->allocated, true);
	if (is_no_space(err) && end > need) {
		end = need;
		err = j->env->ops->allocate(j->file, j->allocated, end - j->allocated, true);
	}
	if (is_no_space(err))
		return KV_E_no_space;
	if (err)
		return poison(j, err);
	j->allocated = end;
	return 0;
}

static void fill_header(struct kv_journal *j, struct kv_chunk_header *h, enum kv_chunk_type type,
			kv_seqno seqno, uint32_t count, uint64_t payload_bytes)
{
	*h = (struct kv_chunk_header){
		.magic = kv_le32(KV_CHUNK_MAGIC),
		.payload_bytes = kv_le32((uint32_t)payload_bytes),
		.promised = kv_le64(j->promises_synced ? kv_journal_synced(j) :
							 atomic_load(&j->promised)),
		.seqno = kv_le64(seqno),
		.count = kv_le32(count),
		.type = kv_le32(type),
	};
}

/*
 * Bytes are on their way to the disk soon after they were written, so that a sync does not have to
 * wait for all of them. The page at the end is left out: it would be written twice.
 */
static int start_writeback(struct kv_journal *j)
{
	uint64_t end = kv_journal_bytes(j) / 4096 * 4096, begin;

	j->writeback_started = KV_MAX(j->writeback_started, kv_journal_synced(j));
	begin = j->writeback_started;
	if (end < begin + WRITEBACK_BYTES)
		return 0;
	j->writeback_started = end;
	return j->env->ops->writeback(j->file, begin, end - begin, false);
}

int kv_journal_append(struct kv_journal *j, enum kv_chunk_type type, kv_seqno seqno,
		      uint32_t count, const struct iovec *iov, int iov_count)
{
	static uint8_t zeros[KV_CHUNK_ALIGN];
	struct iovec all[1 + KV_JOURNAL_PARTS_MAX + 1];	/* header, payload, zeros */
	struct kv_chunk_header h;
	uint64_t at = kv_journal_bytes(j), bytes = 0, chunk_bytes;
	int err = atomic_load(&j->poison), n = 0;

	KV_ASSERT(iov_count >= 0 && iov_count <= KV_JOURNAL_PARTS_MAX);
	if (err)
		return err;
	for (int i = 0; i < iov_count; i++) {
		if (iov[i].iov_len > KV_CHUNK_PAYLOAD_MAX - bytes)
			return KV_E_too_big;
		bytes += iov[i].iov_len;
	}
	chunk_bytes = kv_chunk_bytes(bytes);
	fill_header(j, &h, type, seqno, count, bytes);
	h.checksum = kv_le64(kv_checksum_iov(kv_chunk_summed(&h, 0), iov, iov_count, j->seed));

	all[n++] = (struct iovec){ &h, sizeof(h) };
	for (int i = 0; i < iov_count; i++)
		all[n++] = iov[i];
	all[n++] = (struct iovec){ zeros, (size_t)(chunk_bytes - sizeof(h) - bytes) };
	err = j->env->ops->pwritev(j->file, all, n, at);
	if (err)
		return poison(j, err);
	atomic_store(&j->bytes, at + chunk_bytes);
	err = start_writeback(j);
	return err ? poison(j, err) : 0;
}

/*
 * CRASH: what counts as synced was written before the sync began, and no sync
 * is tried after one that failed: the pages that it lost are clean now, and a
 * second try would succeed without them.
 */
static int sync_locked(struct kv_journal *j) KV_REQUIRES(&j->sync_mu)
{
	uint64_t bytes = kv_journal_bytes(j);
	int err = atomic_load(&j->poison);

	if (err || kv_journal_synced(j) >= bytes)
		return err;
	err = j->env->ops->sync(j->file);
	if (err)
		return poison(j, err);
	atomic_store(&j->synced, bytes);
	return 0;
}

int kv_journal_sync(struct kv_journal *j)
{
	int err;

	kv_mutex_lock(&j->sync_mu);
	err = sync_locked(j);
	kv_mutex_unlock(&j->sync_mu);
	return err;
}

void kv_journal_trim(struct kv_journal *j)
{
	/* Zeros that stay behind the end are as good. */
	(void)j->env->ops->truncate(j->file, kv_journal_bytes(j));
}

void kv_journal_promise(struct kv_journal *j, uint64_t bytes)
{
	uint64_t before = atomic_load(&j->promised);

	KV_ASSERT(bytes <= kv_journal_synced(j));
	while (before < bytes && !atomic_compare_exchange_weak(&j->promised, &before, bytes))
		;
}

uint64_t kv_journal_bytes(const struct kv_journal *j)
{
	return atomic_load(&j->bytes);
}

uint64_t kv_journal_synced(const struct kv_journal *j)
{
	return atomic_load(&j->synced);
}

kv_fileno kv_journal_number(const struct kv_journal *j)
{
	return j->number;
}
