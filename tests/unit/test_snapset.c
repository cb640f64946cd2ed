#include <stdio.h>

#include "kv/errcode.h"
#include "kv/snapset.h"
#include "tests/unit/unit.h"

static int change(struct kv_snapset **s, const char *add, kv_seqno seqno, const char *drop)
{
	KV_AUTO(kv_edit_done) struct kv_edit e = { 0 };
	struct kv_snapshot_info info = { .seqno = seqno, .made_ns = 7 };
	struct kv_snapset *next;
	int err;

	if (add) {
		snprintf(info.name, sizeof(info.name), "%s", add);
		ck_ok(kv_edit_add_snapshot(&e, &info));
	}
	if (drop)
		ck_ok(kv_edit_delete_snapshot(&e, drop));
	err = kv_snapset_apply(*s, &e, &next);
	if (!err) {
		kv_snapset_unref(*s);
		*s = next;
	}
	return err;
}

static void expect(const struct kv_snapset *s, const char *names)
{
	char got[64] = "";

	for (size_t i = 0; s && i < s->count; i++) {
		ck_assert_uint_lt(i, sizeof(got) - 1);
		ck_assert_uint_eq(strlen(s->at[i].name), 1);
		got[i] = s->at[i].name[0];
		ck_assert(!i || s->at[i - 1].seqno <= s->at[i].seqno);
	}
	ck_assert_str_eq(got, names);
}

UNIT(they_are_in_order_of_age)
{
	struct kv_snapset *s = NULL;

	ck_assert_ptr_null(kv_snapset_newest(s));
	ck_assert_ptr_null(kv_snapset_find(s, "a"));
	ck_ok(change(&s, "b", 5, NULL));
	ck_ok(change(&s, "d", 9, NULL));
	ck_ok(change(&s, "a", 1, NULL));
	ck_ok(change(&s, "c", 5, NULL));
	expect(s, "abcd");
	ck_assert_str_eq(kv_snapset_newest(s)->name, "d");
	ck_assert_uint_eq(kv_snapset_find(s, "c")->seqno, 5);
	ck_ok(change(&s, NULL, 0, "b"));
	expect(s, "acd");
	/* What is dropped goes first, so a name can move. */
	ck_ok(change(&s, "a", 7, "a"));
	expect(s, "cad");
	ck_ok(change(&s, NULL, 0, "d"));
	ck_ok(change(&s, NULL, 0, "c"));
	ck_ok(change(&s, NULL, 0, "a"));
	ck_assert_ptr_null(s);
}
UNIT_END

UNIT(what_cannot_be_is_refused)
{
	struct kv_snapset *s = NULL;
	char name[16];

	ck_assert_int_eq(change(&s, NULL, 0, "a"), KV_E_bad_record);
	ck_assert_int_eq(change(&s, "a", KV_SEQNO_MAX + 1, NULL), KV_E_bad_record);
	ck_ok(change(&s, "a", KV_SEQNO_MAX, NULL));
	ck_assert_int_eq(change(&s, "a", 1, NULL), KV_E_bad_record);
	ck_assert_int_eq(change(&s, "b", 1, "c"), KV_E_bad_record);
	expect(s, "a");
	for (int i = 1; i < KV_SNAPSHOTS_MAX; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ck_ok(change(&s, name, 3, NULL));
	}
	ck_assert_int_eq(change(&s, "b", 1, NULL), KV_E_bad_record);
	ck_ok(change(&s, "b", 1, "17"));
	kv_snapset_unref(s);
}
UNIT_END

UNIT(a_set_that_does_not_change_is_shared)
{
	struct kv_snapset *s = NULL, *same;
	struct kv_edit nothing = { 0 };

	ck_ok(kv_snapset_apply(NULL, &nothing, &same));
	ck_assert_ptr_null(same);
	ck_ok(change(&s, "a", 1, NULL));
	ck_ok(kv_snapset_apply(s, &nothing, &same));
	ck_assert_ptr_eq(s, same);
	kv_snapset_unref(s);
	expect(same, "a");
	kv_snapset_unref(same);
}
UNIT_END

UNIT(each_seqno_is_told_once)
{
	static const kv_seqno seqnos[] = { 1, 1, 4, 4, 4, 9 };
	struct kv_snapset *s = NULL;
	kv_seqno *got;
	size_t n;

	ck_ok(kv_snapset_seqnos(NULL, 3, &got, &n));
	ck_assert(n == 1 && got[0] == 3);
	free(got);
	for (size_t i = 0; i < KV_ARRAY_LEN(seqnos); i++)
		ck_ok(change(&s, (char[]){ (char)('a' + i), 0 }, seqnos[i], NULL));
	ck_ok(kv_snapset_seqnos(s, 9, &got, &n));
	ck_assert(n == 3 && got[0] == 1 && got[1] == 4 && got[2] == 9);
	free(got);
	ck_ok(kv_snapset_seqnos(s, 10, &got, &n));
	ck_assert(n == 4 && got[3] == 10);
	free(got);
	kv_snapset_unref(s);
}
UNIT_END

UNIT_MAIN("snapset", they_are_in_order_of_age, what_cannot_be_is_refused,
	  a_set_that_does_not_change_is_shared, each_seqno_is_told_once)
