/*
 * Optimistic transactions: a snapshot, a batch, and a table of the keys that were read or
 * written. The commit looks whether one of them has a version that is newer than the snapshot.
 *
 * It looks twice (kv_write_if()). First without locks, up to what is published then; that may read
 * tables. Then as the leader of a group, with everything before it in the memtable and nothing able
 * to come in between: only for versions behind the first look. Mostly there are none, or they
 * are in memory: a table is read under the lock only if it was flushed, or compacted from one
 * that was, between the two.
 *
 * What is looked for may have been dropped by a flush or a compaction meanwhile: a version that a still newer
 * one hides, which is found in its place; or a deletion, together with all that it
 * hides. Then the snapshot, which is registered and so can't lose anything, doesn't see the key,
 * and neither does the present: what the transaction has read holds still.
 */
#include "kv/checksum.h"
#include "kv/db.h"

#define SLOTS_MIN 16
#define KEY_EXTRA_BYTES 64	/* what a key costs beside its bytes */

/* A key that the commit depends on. */
struct txn_key {
	struct kv_slice key;	/* in the arena; data NULL: an empty slot */
	uint64_t hash;
	uint32_t op;		/* its last operation in the batch, counted from 1; 0: only read */
};

struct kv_txn {
	struct kv_db *db;
	struct kv_snapshot *snap;
	struct kv_batch *batch;		/* its error is that of the transaction */
	struct kv_arena arena;
	struct txn_key *slots;		/* open addressing; a third is empty, at the least */
	size_t slot_count, key_count;	/* slot_count: a power of two, or 0 */
	uint64_t key_bytes;
	uint64_t hash_seed;
	kv_seqno seqno_checked;		/* no version up to here is a conflict */
};

int kv_txn_begin(struct kv_db *db, struct kv_txn **out_txn)
{
	struct kv_txn *txn = calloc(1, sizeof(*txn));

	if (!txn)
		return -ENOMEM;
	txn->db = db;
	kv_arena_init(&txn->arena);
	/* Nobody who chooses keys knows it. */
	memcpy(&txn->hash_seed, db->store.store_id, sizeof(txn->hash_seed));
	txn->batch = kv_batch_new();
	if (txn->batch)
		txn->snap = kv_snapshot_new(db);
	if (!txn->snap) {
		kv_txn_free(txn);
		return -ENOMEM;
	}
	txn->seqno_checked = txn->snap->seqno;
	*out_txn = txn;
	return 0;
}

void kv_txn_free(struct kv_txn *txn)
{
	if (!txn)
		return;
	kv_snapshot_free(txn->db, txn->snap);
	kv_batch_free(txn->batch);
	kv_arena_done(&txn->arena);
	free(txn->slots);
	free(txn);
}

const struct kv_snapshot *kv_txn_snapshot(const struct kv_txn *txn)
{
	return txn->snap;
}

/* --- its keys ------------------------------------------------------------------------------ */

/* Where the key is, or would have to be. */
static struct txn_key *find_slot(const struct kv_txn *txn, struct kv_slice key, uint64_t hash)
{
	size_t mask = txn->slot_count - 1;

	for (size_t i = hash & mask;; i = (i + 1) & mask) {
		struct txn_key *k = &txn->slots[i];

		if (!k->key.data || (k->hash == hash && kv_slice_eq(k->key, key)))
			return k;
	}
}

static int grow_slots(struct kv_txn *txn)
{
	struct txn_key *old = txn->slots;
	size_t old_count = txn->slot_count;

	if (3 * (txn->key_count + 1) <= 2 * old_count)
		return 0;
	txn->slot_count = old_count ? 2 * old_count : SLOTS_MIN;
	txn->slots = calloc(txn->slot_count, sizeof(*txn->slots));
	if (!txn->slots) {
		txn->slots = old;
		txn->slot_count = old_count;
		return -ENOMEM;
	}
	for (size_t i = 0; i < old_count; i++)
		if (old[i].key.data)
			*find_slot(txn, old[i].key, old[i].hash) = old[i];
	free(old);
	return 0;
}

static int add_key(struct kv_txn *txn, struct txn_key *slot, struct kv_slice key, uint64_t hash)
{
	uint64_t bytes = KEY_EXTRA_BYTES + (uint64_t)key.bytes;
	void *copy;

	if (bytes > KV_TXN_KEY_BYTES_MAX - txn->key_bytes)
		return KV_E_too_big;
	copy = kv_arena_alloc(&txn->arena, key.bytes);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, key.data, key.bytes);
	*slot = (struct txn_key){ .key = kv_slice(copy, key.bytes), .hash = hash };
	txn->key_bytes += bytes;
	txn->key_count++;
	return 0;
}

/* From now on the commit depends on the key. *out stays until the next call. */
static int remember(struct kv_txn *txn, struct kv_slice key, struct txn_key **out)
{
	uint64_t hash = kv_checksum(key, txn->hash_seed);
	struct txn_key *k;

	KV_TRY(grow_slots(txn));
	k = find_slot(txn, key, hash);
	if (!k->key.data)
		KV_TRY(add_key(txn, k, key, hash));
	*out = k;
	return 0;
}

/* Its last own write of the key; NULL: none. */
static const struct kv_batch_op *own_write(const struct kv_txn *txn, struct kv_slice key)
{
	const struct txn_key *k;

	if (!txn->slot_count)
		return NULL;
	k = find_slot(txn, key, kv_checksum(key, txn->hash_seed));
	return k->key.data && k->op ? &txn->batch->ops[k->op - 1] : NULL;
}

/* --- reading and writing ------------------------------------------------------------------ */

/* out NULL: only whether it is there. */
static int look(struct kv_txn *txn, struct kv_slice key, bool depend, struct kv_buf *out)
{
	const struct kv_batch_op *op;
	struct txn_key *k;

	/* What can't be a key is not there, now or later. */
	if (!key.bytes || key.bytes > KV_KEY_BYTES_MAX)
		return KV_E_not_found;
	op = own_write(txn, key);
	if (op && op->ask == KV_ASK_DELETE)
		return KV_E_not_found;
	if (op)
		return out ? kv_buf_assign(out, op->value) : 0;
	if (depend)
		KV_TRY(remember(txn, key, &k));
	return out ? kv_get(txn->db, txn->snap, key, out) : kv_exists(txn->db, txn->snap, key);
}

int kv_txn_get(struct kv_txn *txn, struct kv_slice key, struct kv_buf *out)
{
	return look(txn, key, true, out);
}

int kv_txn_exists(struct kv_txn *txn, struct kv_slice key)
{
	return look(txn, key, true, NULL);
}

int kv_txn_peek(struct kv_txn *txn, struct kv_slice key, struct kv_buf *out)
{
	return look(txn, key, false, out);
}

/* The batch has got an operation on the key, or an error. */
static void written(struct kv_txn *txn, struct kv_slice key)
{
	struct kv_batch *b = txn->batch;
	struct txn_key *k;

	if (!b->error)
		b->error = remember(txn, key, &k);
	if (!b->error)
		k->op = b->count;
}

void kv_txn_put(struct kv_txn *txn, struct kv_slice key, struct kv_slice value, enum kv_hint hint)
{
	kv_batch_put(txn->batch, key, value, hint);
	written(txn, key);
}

void kv_txn_delete(struct kv_txn *txn, struct kv_slice key)
{
	kv_batch_delete(txn->batch, key);
	written(txn, key);
}

/* --- the commit ----------------------------------------------------------------------------- */

/*
 * The key's newest version or range tombstone, if it is newer than since; else anything up to
 * since. Sources are asked from new to old: the first that has something decides.
 */
static int newest(struct kv_db *db, struct kv_readstate *rs, struct kv_slice key, kv_seqno since,
		  kv_seqno *out)
{
	KV_AUTO(kv_sst_pin_done) struct kv_sst_pin pin = { 0 };
	struct kv_found found = { 0 };
	kv_seqno covered = 0;

	KV_TRY(kv_memtable_get(rs->mem, key, KV_SEQNO_MAX, &found, &covered));
	for (uint32_t i = 0; i < rs->imm_count && !found.found && !covered; i++)
		KV_TRY(kv_memtable_get(rs->imm[i], key, KV_SEQNO_MAX, &found, &covered));
	if (!found.found && !covered)
		KV_TRY(kv_version_get_since(rs->version, db->files, key, since, KV_SEQNO_MAX,
					    &found, &covered, &pin));
	*out = KV_MAX(found.found ? found.seqno : 0, covered);
	return 0;
}

static int check_keys(struct kv_txn *txn, struct kv_readstate *rs)
{
	kv_seqno seqno;

	for (size_t i = 0; i < txn->slot_count; i++) {
		const struct txn_key *k = &txn->slots[i];

		if (!k->key.data)
			continue;
		KV_TRY(newest(txn->db, rs, k->key, txn->seqno_checked, &seqno));
		if (seqno > txn->seqno_checked)
			return KV_E_conflict;
	}
	return 0;
}

/*
 * What is published is loaded before the read state, which so has all of it. (A reader of the
 * present does it the other way round: it must not miss what was dropped; here the head
 * of this file says why that does no harm.)
 */
static int check(struct kv_db *db, void *arg)
{
	kv_seqno published = atomic_load_explicit(&db->seqno_published, memory_order_acquire);
	struct kv_txn *txn = arg;
	struct kv_readstate *rs;
	int err;

	if (published == txn->seqno_checked)
		return 0;
	rs = kv_readstate_ref(db);
	err = check_keys(txn, rs);
	kv_readstate_unref(rs);
	if (!err)
		txn->seqno_checked = published;
	return err;
}

int kv_txn_commit(struct kv_txn *txn, bool sync)
{
	if (kv_batch_is_empty(txn->batch) && !sync)
		return 0;
	return kv_write_if(txn->db, txn->batch, check, txn, sync);
}
