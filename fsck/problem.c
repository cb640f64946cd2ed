#include "fsck/problem.h"

#include <inttypes.h>

#include "fsck/ctx.h"
#include "kv/assert.h"

static const struct {
	int number;
	const char *name, *text;
} problems[] = {
#define X(number, name, text) { number, #name, text },
	FSCK_PROBLEMS(X)
#undef X
};

#define X(number, name, text)                                \
	_Static_assert((number) <= FSCK_PROBLEM_NUMBER_MAX, \
		       "FSCK_PROBLEM_NUMBER_MAX is too small for " #name);
FSCK_PROBLEMS(X)
#undef X

static size_t problem_index(int number)
{
	size_t i = 0;

	while (i < KV_ARRAY_LEN(problems) && problems[i].number != number)
		i++;
	return i;
}

const char *fsck_problem_name(int number)
{
	size_t i = problem_index(number);

	return i < KV_ARRAY_LEN(problems) ? problems[i].name : NULL;
}

static int append(struct fsck *c, char what, const struct fsck_about *about, struct kv_buf *out)
{
	switch (what) {
	case 'p':
		return fsck_path_append(c, about->ino, out);
	case 'i':
		return kv_buf_printf(out, "%" PRIu64, about->ino);
	case 'd':
		return fsck_path_append(c, about->dir, out);
	case 'n':
		return fsck_name_append(about->name, out);
	case 'a':
		return kv_buf_printf(out, "%" PRIu64, about->a);
	case 'b':
		return kv_buf_printf(out, "%" PRIu64, about->b);
	case 't':
		return kv_buf_printf(out, "%s", about->text);
	}
	KV_ASSERT(!"a letter of fsck/problem.h");
	return 0;
}

static int sentence(struct fsck *c, const char *text, const struct fsck_about *about,
		    struct kv_buf *out)
{
	for (; *text; text++)
		if (*text == '%')
			KV_TRY(append(c, *++text, about, out));
		else
			KV_TRY(kv_buf_append_byte(out, (uint8_t)*text));
	return 0;
}

void fsck_report(struct fsck *c, enum fsck_problem p, struct fsck_about about)
{
	KV_AUTO(kv_buf_done) struct kv_buf s = KV_BUF_INIT;
	const struct kv_msg *msg = &c->options->msg;
	size_t i = problem_index((int)p);
	uint64_t count = ++c->result->count[p];

	c->result->problems++;
	if (count > c->options->repeat_max) {
		if (count == (uint64_t)c->options->repeat_max + 1)
			kv_msg(msg, KV_MSG_WARN, "more problems of number %d are counted, but not shown",
			       (int)p);
		return;
	}
	/* Without memory for the sentence there still is its number. */
	if (sentence(c, problems[i].text, &about, &s) ||
	    kv_buf_printf(&s, " [%d]", problems[i].number))
		kv_msg(msg, KV_MSG_WARN, "problem %d (%s)", problems[i].number, problems[i].name);
	else if (msg->fn) /* a path can be longer than what kv_msg() formats */
		msg->fn(msg->arg, KV_MSG_WARN, (const char *)s.data);
}
