/*
 * Reading: the read state, and gets. No lock is taken by a get.
 *
 * The read state is found through one atomic word: the pointer in the low 48
 * bits, and above it a transient count. To take a reference, a reader
 *	1. adds 1 to the transient count, which gives it the pointer and keeps the
 *	   object alive in the same step;
 *	2. adds 1 to the object's own count;
 *	3. gives the transient count back, if the word still has that pointer.
 * Who replaces the word (one at a time, under mu) finds in the old one how many
 * readers are between 1 and 3, and moves that many to the object's own count. A reader
 * that finds another pointer in 3 knows this, and drops it from there.
 *
 * Loading a pointer and counting the object up in two steps, without 1, would
 * count up memory that was freed in between.
 */
#include "kv/db.h"

#define TRANSIENT_SHIFT 48
#define TRANSIENT_ONE ((uint64_t)1 << TRANSIENT_SHIFT)
#define POINTER_MASK (TRANSIENT_ONE - 1)

/* More than there can be readers between 1 and 3: keeps an object alive while it is replaced. */
#define REFS_BIAS ((uint32_t)1 << 24)

static struct kv_readstate *word_pointer(uint64_t word)
{
	return (struct kv_readstate *)(uintptr_t)(word & POINTER_MASK);
}

struct kv_readstate *kv_readstate_ref(struct kv_db *db)
{
	uint64_t word = atomic_fetch_add_explicit(&db->readstate, TRANSIENT_ONE,
						  memory_order_acquire) + TRANSIENT_ONE;
	struct kv_readstate *rs = word_pointer(word);

	atomic_fetch_add_explicit(&rs->refs, 1, memory_order_relaxed);
	while (word_pointer(word) == rs)
		if (atomic_compare_exchange_weak_explicit(&db->readstate, &word,
							  word - TRANSIENT_ONE,
							  memory_order_relaxed,
							  memory_order_relaxed))
			return rs;
	atomic_fetch_sub_explicit(&rs->refs, 1, memory_order_relaxed);
	return rs;
}

static void readstate_free(struct kv_readstate *rs)
{
	kv_memtable_unref(rs->mem);
	for (uint32_t i = 0; i < rs->imm_count; i++)
		kv_memtable_unref(rs->imm[i]);
	if (rs->version)
		kv_version_unref(rs->version);
	free(rs);
}

/* n of them at once. */
static void readstate_drop(struct kv_readstate *rs, uint32_t n)
{
	if (atomic_fetch_sub_explicit(&rs->refs, n, memory_order_acq_rel) == n)
		readstate_free(rs);
}

void kv_readstate_unref(struct kv_readstate *rs)
{
	if (rs)
		readstate_drop(rs, 1);
}

struct kv_readstate *kv_readstate_new(void)
{
	struct kv_readstate *rs = calloc(1, sizeof(*rs));

	if (rs)
		atomic_init(&rs->refs, 1);
	return rs;
}

struct kv_readstate *kv_readstate_swap_locked(struct kv_db *db, struct kv_readstate *rs)
{
	struct kv_readstate *old = word_pointer(atomic_load(&db->readstate));
	uint64_t word;

	KV_ASSERT(((uint64_t)(uintptr_t)rs & ~POINTER_MASK) == 0);
	rs->version = kv_version_ref(db->version);
	rs->mem = kv_memtable_ref(db->mem);
	rs->imm_count = db->imm_count;
	for (uint32_t i = 0; i < db->imm_count; i++)
		rs->imm[i] = kv_memtable_ref(db->imm[db->imm_count - 1 - i]);
	/*
	 * A reader that comes to 3 right after the exchange drops a count which
	 * has not been moved yet; the bias keeps that from freeing the object.
	 */
	if (old)
		atomic_fetch_add_explicit(&old->refs, REFS_BIAS, memory_order_relaxed);
	word = atomic_exchange_explicit(&db->readstate, (uint64_t)(uintptr_t)rs,
					memory_order_acq_rel);
	KV_ASSERT(word_pointer(word) == old);
	if (old)
		readstate_drop(old, REFS_BIAS - (uint32_t)(word >> TRANSIENT_SHIFT));
	return old;
}

/* --- gets ------------------------------------------------------------------------------------ */

/*
 * Sources are asked from new to old, and whatever lies in a later one is older
 * than all of an earlier one. So the first point entry decides, and a range
 * tombstone that covers the key hides all later sources.
 */
static bool decided(struct kv_found *found, kv_seqno covered)
{
	if (found->found && (found->kind == KV_KIND_DELETE || found->seqno < covered)) {
		found->found = false;
		return true;
	}
	return found->found || covered;
}

int kv_readstate_get(struct kv_db *db, struct kv_readstate *rs, struct kv_slice key,
		     kv_seqno snapshot, struct kv_found *out, struct kv_sst_pin *out_pin)
{
	struct kv_found found = { 0 };
	kv_seqno covered = 0;
	bool done;

	KV_TRY(kv_memtable_get(rs->mem, key, snapshot, &found, &covered));
	done = decided(&found, covered);
	for (uint32_t i = 0; i < rs->imm_count && !done; i++) {
		KV_TRY(kv_memtable_get(rs->imm[i], key, snapshot, &found, &covered));
		done = decided(&found, covered);
	}
	if (!done) {
		KV_TRY(kv_version_get(rs->version, db->files, key, snapshot, &found, &covered,
				      out_pin));
		decided(&found, covered);
	}
	*out = found;
	return 0;
}

#define GET_AGAIN 1	/* no error is positive */

/*
 * A read state keeps the files of the segments that its version names. Its memtable goes on, and
 * may get a pointer into a younger segment, which nothing keeps for this reader: if it were
 * held up for long enough, the file could be gone. A younger read state names the segment.
 */
static bool is_kept(const struct kv_readstate *rs, const struct kv_found *found)
{
	struct kv_vptr p;

	return found->kind != KV_KIND_PUT_PTR || kv_vptr_decode(found->value, &p) ||
	       kv_version_segment(rs->version, p.segment_no);
}

/*
 * Looks the key up. With out, fetches the value: behind what out holds, so that
 * this stays when something fails, and then moves it to the front. GET_AGAIN, only
 * with may_retry: a younger read state is needed.
 */
static int get(struct kv_db *db, struct kv_readstate *rs, const struct kv_snapshot *snap,
	       struct kv_slice key, struct kv_buf *out, bool may_retry)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	struct kv_found found;
	size_t bytes_before;
	int err;

	KV_TRY(kv_readstate_get(db, rs, key,
				snap ? snap->seqno :
				atomic_load_explicit(&db->seqno_published, memory_order_acquire),
				&found, &pin));
	if (!found.found)
		return KV_E_not_found;
	if (!out)
		return 0;
	if (may_retry && !is_kept(rs, &found))
		return GET_AGAIN;
	bytes_before = out->bytes;
	err = kv_value_fetch(db, found.kind, found.value, NULL, true, out);
	if (err) {
		out->bytes = bytes_before;
		return err;
	}
	if (bytes_before) {
		out->bytes -= bytes_before;
		memmove(out->data, out->data + bytes_before, out->bytes);
	}
	return 0;
}

int kv_get(struct kv_db *db, const struct kv_snapshot *snap, struct kv_slice key,
	   struct kv_buf *out)
{
	bool timed = kv_is_drawn(atomic_fetch_add_explicit(&db->counters.gets, 1,
							   memory_order_relaxed), KV_TIMED_get);
	uint64_t start = timed ? kv_now_ns(db) : 0;
	struct kv_readstate *rs = kv_readstate_ref(db), *now;
	int err = get(db, rs, snap, key, out, true);

	while (err == GET_AGAIN) {
		now = kv_readstate_ref(db);
		/* The same one again: the pointer is damaged, and fetching it says so. */
		err = get(db, now, snap, key, out, now != rs);
		kv_readstate_unref(rs);
		rs = now;
	}
	kv_readstate_unref(rs);
	if (timed)
		kv_latency_add(db, KV_LATENCY_get, start);
	return err;
}

int kv_exists(struct kv_db *db, const struct kv_snapshot *snap, struct kv_slice key)
{
	return kv_get(db, snap, key, NULL);
}
