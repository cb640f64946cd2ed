/*
 * The writing half of the value log: one segment, append only.
 *
 * An append is written from the caller's bytes, headers and keys in between
 * come from a scratch buffer, padding goes with the next header. `written`
 * moves when a whole append has been written, so whatever a failed one left
 * behind was never pointed to.
 */
#include "kv/vlog.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kv/checksum.h"
#include "kv/kv.h"
#include "kv/lock.h"

#define IOV_COUNT_MAX 1024		/* of one write: IOV_MAX of Linux */
#define GROUP_PUTS_MAX ((IOV_COUNT_MAX - 1) / 2) /* records of one write: two parts each, padding */

#define WRITEBACK_BYTES KV_MIB		/* start writing back when as many have gathered */
#define DIRTY_BYTES_MAX (32 * KV_MIB)	/* with more than these in memory, an append waits... */
#define DIRTY_BYTES_KEPT (16 * KV_MIB)	/* ... until at most these are not on their way */
/*
 * Space is asked for in steps that grow with the file: while the filesystem commits its journal,
 * asking waits for that, some 50 ms on a busy disk.
 */
#define ALLOCATE_BYTES_MIN KV_MIB
#define ALLOCATE_BYTES_MAX (16 * KV_MIB)
#define ALLOCATE_PART 4			/* of what the file has */

struct kv_segment_writer {
	struct kv_store *store;		/* set at creation, constant after */
	struct kv_env *env;
	struct kv_env_file *file;
	kv_fileno number;

	/* Of the appending thread, to the blank line. */
	uint64_t allocated;		/* space up to here */
	uint64_t writeback_started, writeback_waited;
	struct kv_buf scratch;		/* headers, keys and padding of one write */
	struct iovec iov[IOV_COUNT_MAX];
	bool sealed;

	/*
	 * One sync or waiting writeback at a time. The kernel tells an I/O error to one
	 * of the calls that wait for a file: were there two, the other one would take
	 * lost bytes for durable ones.
	 */
	struct kv_mutex sync_mu;

	_Atomic uint64_t written;	/* the appending thread writes, all read */
	_Atomic uint64_t synced;	/* written under sync_mu */
	_Atomic int error;		/* the first failure; never reset */
};

/* --- pointers --------------------------------------------------------------------------------- */

void kv_vptr_encode(const struct kv_vptr *p, struct kv_vptr_disk *out)
{
	*out = (struct kv_vptr_disk){
		.segment_no = kv_le64(p->segment_no),
		.offset = kv_le64(p->offset),
		.value_checksum = kv_le64(p->value_checksum),
		.stored_bytes = kv_le32(p->stored_bytes),
		.raw_bytes = kv_le32(p->raw_bytes),
		.part_offset = kv_le32(p->part_offset),
		.part_bytes = kv_le32(p->part_bytes),
		.key_bytes = kv_le16(p->key_bytes),
		.codec = p->codec,
	};
}

/* --- making, reserving ------------------------------------------------------------------------ */

static int no_space_or(int err)
{
	return err == -ENOSPC || err == -EDQUOT ? KV_E_no_space : err;
}

/* Keeps the first failure and reports it; returns the one that was kept. */
static int poison(struct kv_segment_writer *w, int err, const char *what)
{
	int none = 0;

	if (!atomic_compare_exchange_strong(&w->error, &none, err))
		return none;
	return kv_fail(&w->store->msg, err, "%s/%s: %s failed: %s; it is not written any more",
		       w->store->path, kv_filename(KV_FILE_SEGMENT, w->number).s, what,
		       kv_err_text(err));
}

static int create_sync(struct kv_segment_writer *w, uint64_t allocate_bytes)
{
	if (allocate_bytes > w->allocated) {
		KV_TRY(no_space_or(w->env->ops->allocate(w->file, 0, allocate_bytes, false)));
		w->allocated = allocate_bytes;
	}
	KV_TRY(w->env->ops->sync(w->file));
	return w->env->ops->dir_sync(w->store->dir);
}

int kv_segment_create(struct kv_store *s, kv_fileno number, uint64_t allocate_bytes,
		      struct kv_segment_writer **out)
{
	struct kv_segment_writer *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	w->store = s;
	w->env = s->env;
	w->number = number;
	w->allocated = sizeof(struct kv_file_header);
	w->writeback_started = w->writeback_waited = sizeof(struct kv_file_header);
	atomic_init(&w->written, sizeof(struct kv_file_header));
	atomic_init(&w->synced, sizeof(struct kv_file_header));
	kv_mutex_init(&w->sync_mu);

	err = no_space_or(kv_store_create_file(s, KV_FILE_SEGMENT, number, &w->file));
	if (!err) {
		err = create_sync(w, allocate_bytes);
		if (err) {
			(void)kv_store_unlink(s, KV_FILE_SEGMENT, number); /* err tells more */
			kv_msg(&s->msg, KV_MSG_ERROR, "%s/%s: cannot be made: %s", s->path,
			       kv_filename(KV_FILE_SEGMENT, number).s, kv_err_text(err));
		}
	}
	if (err) {
		kv_segment_writer_free(w);
		return err;
	}
	*out = w;
	return 0;
}

void kv_segment_writer_free(struct kv_segment_writer *w)
{
	if (!w)
		return;
	if (w->file)
		w->env->ops->close(w->file);
	kv_mutex_done(&w->sync_mu);
	kv_buf_done(&w->scratch);
	free(w);
}

int kv_segment_reserve(struct kv_segment_writer *w, uint64_t bytes)
{
	uint64_t end = kv_segment_bytes(w) + bytes, need, step;
	int err = atomic_load(&w->error);

	if (err || end <= w->allocated)
		return err;
	KV_ASSERT(!w->sealed);
	need = end - w->allocated;
	step = KV_MIN(KV_MAX(end / ALLOCATE_PART, ALLOCATE_BYTES_MIN), ALLOCATE_BYTES_MAX);
	step = KV_MAX(step, need);
	err = w->env->ops->allocate(w->file, w->allocated, step, false);
	if (err && need < step) { /* nearly full: what is needed may still be there */
		step = need;
		err = w->env->ops->allocate(w->file, w->allocated, step, false);
	}
	if (!err)
		w->allocated += step;
	return no_space_or(err);
}

/* --- appending -------------------------------------------------------------------------------- */

static uint64_t put_record_bytes(const struct kv_segment_put *p)
{
	uint64_t bytes = sizeof(struct kv_vlog_record) + p->key.bytes + p->stored.bytes;

	return (bytes + KV_RECORD_ALIGN - 1) / KV_RECORD_ALIGN * KV_RECORD_ALIGN;
}

static struct kv_vlog_record record_make(const struct kv_segment_writer *w,
					 const struct kv_segment_put *p)
{
	const size_t rest_offset = offsetof(struct kv_vlog_record, seqno);
	struct kv_slice rest;
	struct kv_vlog_record r = {
		.magic = kv_le32(KV_RECORD_MAGIC),
		.key_bytes = kv_le32((uint32_t)p->key.bytes),
		.seqno = kv_le64(p->seqno),
		.value_checksum = kv_le64(p->value_checksum),
		.stored_bytes = kv_le32((uint32_t)p->stored.bytes),
		.raw_bytes = kv_le32(p->raw_bytes),
		.codec = kv_le32((uint32_t)p->codec),
	};

	rest = kv_slice((const uint8_t *)&r + rest_offset, sizeof(r) - rest_offset);
	r.checksum = kv_le64(kv_checksum2(rest, p->key, w->number));
	return r;
}

static void put_check(const struct kv_segment_put *p)
{
	KV_ASSERT(p->key.bytes <= KV_KEY_BYTES_MAX);
	KV_ASSERT(p->stored.bytes <= KV_VALUE_BYTES_MAX && p->raw_bytes <= KV_VALUE_BYTES_MAX);
	KV_ASSERT(p->codec != KV_CODEC_NONE || p->stored.bytes == p->raw_bytes);
}

/* Adds a part to the write that is being gathered. Scratch has been reserved: it stays put. */
static void part_add(struct kv_segment_writer *w, int *iov_count, const void *data, size_t bytes)
{
	if (bytes)
		w->iov[(*iov_count)++] = (struct iovec){ (void *)(uintptr_t)data, bytes };
}

/* Writes up to GROUP_PUTS_MAX records at offset; *out_end is where they end. */
static int group_write(struct kv_segment_writer *w, const struct kv_segment_put *puts, size_t n,
		       uint64_t offset, struct kv_vptr *out_ptrs, uint64_t *out_end)
{
	static const uint8_t zeros[KV_RECORD_ALIGN];
	size_t scratch_bytes = 0, begin = 0;
	uint64_t at = offset;
	int iov_count = 0;

	for (size_t i = 0; i < n; i++)
		scratch_bytes += sizeof(struct kv_vlog_record) + puts[i].key.bytes + KV_RECORD_ALIGN;
	kv_buf_reset(&w->scratch);
	KV_TRY(kv_buf_reserve(&w->scratch, scratch_bytes));

	for (size_t i = 0; i < n; i++) {
		const struct kv_segment_put *p = &puts[i];
		struct kv_vlog_record r = record_make(w, p);
		uint64_t bytes = put_record_bytes(p);

		KV_TRY(kv_buf_append(&w->scratch, &r, sizeof(r)));
		KV_TRY(kv_buf_append_slice(&w->scratch, p->key));
		part_add(w, &iov_count, w->scratch.data + begin, w->scratch.bytes - begin);
		part_add(w, &iov_count, p->stored.data, p->stored.bytes);
		begin = w->scratch.bytes;
		KV_TRY(kv_buf_append(&w->scratch, zeros,
				     bytes - sizeof(r) - p->key.bytes - p->stored.bytes));
		out_ptrs[i] = (struct kv_vptr){
			.segment_no = w->number,
			.offset = at,
			.value_checksum = p->value_checksum,
			.stored_bytes = (uint32_t)p->stored.bytes,
			.raw_bytes = p->raw_bytes,
			.part_bytes = p->raw_bytes,
			.key_bytes = (uint16_t)p->key.bytes,
			.codec = (uint8_t)p->codec,
		};
		at += bytes;
	}
	part_add(w, &iov_count, w->scratch.data + begin, w->scratch.bytes - begin);
	KV_ASSERT(iov_count <= IOV_COUNT_MAX);
	*out_end = at;
	return w->env->ops->pwritev(w->file, w->iov, iov_count, offset);
}

/*
 * Bytes are on their way to the disk soon after they were written, and those in memory are bounded,
 * so that a sync never waits for more than the bound. The page at the end is left out: it would
 * be written twice.
 */
static int smooth_writeback(struct kv_segment_writer *w)
{
	uint64_t end = kv_segment_bytes(w) / 4096 * 4096;
	uint64_t synced = kv_segment_synced(w), wait_end;
	int err = 0;

	w->writeback_waited = KV_MAX(w->writeback_waited, synced);
	w->writeback_started = KV_MAX(w->writeback_started, synced);
	if (end >= w->writeback_started + WRITEBACK_BYTES) {
		err = w->env->ops->writeback(w->file, w->writeback_started,
					     end - w->writeback_started, false);
		w->writeback_started = end;
	}
	if (err || end <= w->writeback_waited + DIRTY_BYTES_MAX)
		return err;
	wait_end = end - DIRTY_BYTES_KEPT;
	kv_mutex_lock(&w->sync_mu);
	err = atomic_load(&w->error);
	if (!err)
		err = w->env->ops->writeback(w->file, w->writeback_waited,
					     wait_end - w->writeback_waited, true);
	/* Before the mutex is free: a sync behind us would not be told of the error any more. */
	if (err)
		err = poison(w, err, "writing back");
	kv_mutex_unlock(&w->sync_mu);
	w->writeback_waited = wait_end;
	return err;
}

int kv_segment_append(struct kv_segment_writer *w, const struct kv_segment_put *puts, size_t n,
		      struct kv_vptr *out_ptrs)
{
	uint64_t at = kv_segment_bytes(w);
	int err = atomic_load(&w->error);

	if (err)
		return err;
	KV_ASSERT(!w->sealed);
	for (size_t i = 0; i < n; i++)
		put_check(&puts[i]);
	for (size_t i = 0; i < n; i += GROUP_PUTS_MAX) {
		err = group_write(w, puts + i, KV_MIN(n - i, (size_t)GROUP_PUTS_MAX), at,
				  out_ptrs + i, &at);
		if (err)
			return poison(w, err, "a write");
	}
	atomic_store_explicit(&w->written, at, memory_order_release);
	err = smooth_writeback(w);
	return err ? poison(w, err, "writing back") : 0;
}

/* --- making it durable ------------------------------------------------------------------------ */

static int sync_locked(struct kv_segment_writer *w) KV_REQUIRES(&w->sync_mu)
{
	uint64_t written;
	int err = atomic_load(&w->error);

	if (err)
		return err;
	/* CRASH: what an append adds beside the sync may miss it, so the end is taken before. */
	written = kv_segment_bytes(w);
	if (written <= kv_segment_synced(w))
		return 0;
	err = w->env->ops->sync(w->file);
	if (err)
		return poison(w, err, "a sync");
	atomic_store_explicit(&w->synced, written, memory_order_release);
	return 0;
}

int kv_segment_sync(struct kv_segment_writer *w)
{
	int err;

	kv_mutex_lock(&w->sync_mu);
	err = sync_locked(w);
	kv_mutex_unlock(&w->sync_mu);
	return err;
}

int kv_segment_seal(struct kv_segment_writer *w)
{
	int err;

	kv_mutex_lock(&w->sync_mu);
	w->sealed = true;
	err = atomic_load(&w->error);
	if (!err) {
		/* Also when nothing is behind the end: that lets go of space kept there. */
		err = w->env->ops->truncate(w->file, kv_segment_bytes(w));
		if (!err)
			err = w->env->ops->sync(w->file);
		if (err)
			err = poison(w, err, "sealing");
		else
			atomic_store_explicit(&w->synced, kv_segment_bytes(w),
					      memory_order_release);
	}
	kv_mutex_unlock(&w->sync_mu);
	return err;
}

uint64_t kv_segment_bytes(const struct kv_segment_writer *w)
{
	return atomic_load_explicit(&w->written, memory_order_acquire);
}

uint64_t kv_segment_synced(const struct kv_segment_writer *w)
{
	return atomic_load_explicit(&w->synced, memory_order_acquire);
}

kv_fileno kv_segment_number(const struct kv_segment_writer *w)
{
	return w->number;
}
