#include "kv/eventlog.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kv/lock.h"

#define LINE_BYTES_MAX 1024

struct kv_eventlog {
	struct kv_store *store;
	struct kv_mutex mu;		/* a leaf; guards all below, held over the writing */
	struct kv_env_file *file;	/* NULL: the next event tries to open it */
	uint64_t bytes;
	bool torn;			/* it does not end with a newline */
};

/* --- the file -------------------------------------------------------------------------------- */

static int find_end(struct kv_eventlog *l, struct kv_env_file *file)
{
	const struct kv_env_ops *ops = l->store->env->ops;
	uint64_t bytes;
	char last = '\n';

	KV_TRY(ops->size(file, &bytes));
	if (bytes)
		KV_TRY(kv_env_read_exact(l->store->env, file, &last, 1, bytes - 1));
	l->bytes = bytes;
	l->torn = last != '\n';
	return 0;
}

static int open_file(struct kv_eventlog *l)
{
	const struct kv_env_ops *ops = l->store->env->ops;
	struct kv_env_file *file;
	int err = ops->open(l->store->dir, KV_NAME_LOG, KV_ENV_WRITE, &file);

	if (err == -ENOENT)
		err = ops->open(l->store->dir, KV_NAME_LOG, KV_ENV_CREATE, &file);
	if (err)
		return err;
	err = find_end(l, file);
	if (err)
		ops->close(file);
	else
		l->file = file;
	return err;
}

static void close_file(struct kv_eventlog *l)
{
	if (l->file)
		l->store->env->ops->close(l->file);
	l->file = NULL;
}

/* The file is open afterwards, and has room. */
static int make_room(struct kv_eventlog *l, size_t bytes)
{
	if (!l->file)
		KV_TRY(open_file(l));
	if (l->bytes + bytes <= KV_EVENTLOG_BYTES_MAX)
		return 0;
	close_file(l);
	KV_TRY(l->store->env->ops->rename(l->store->dir, KV_NAME_LOG, KV_NAME_LOG_OLD));
	return open_file(l);
}

static void write_line(struct kv_eventlog *l, struct kv_slice line)
{
	/* Where a part of a line was left, the next one is not joined to it. */
	struct kv_slice newline = kv_slice("\n", 1);

	if (make_room(l, line.bytes + newline.bytes))
		return;
	if (l->torn) {
		if (kv_env_write(l->store->env, l->file, newline, l->bytes))
			return;
		l->bytes++;
	}
	l->torn = kv_env_write(l->store->env, l->file, line, l->bytes);
	if (!l->torn)
		l->bytes += line.bytes;
}

/* --- lines ----------------------------------------------------------------------------------- */

static size_t put_time(struct kv_env *env, char *to, size_t bytes)
{
	uint64_t ns = env->ops->realtime_ns(env);
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;
	size_t n;

	if (!gmtime_r(&seconds, &tm))
		return 0;
	n = strftime(to, bytes, "time=%Y-%m-%dT%H:%M:%S", &tm);
	return n + (size_t)snprintf(to + n, bytes - n, ".%06uZ",
				    (unsigned)(ns % 1000000000 / 1000));
}

/* What is too long is cut. Returns how many bytes there are. */
static size_t put_line(struct kv_env *env, char *to, const char *event, const char *fmt, va_list ap)
{
	size_t n = put_time(env, to, LINE_BYTES_MAX);

	n += (size_t)snprintf(to + n, LINE_BYTES_MAX - n, " event=%s ", event);
	n = KV_MIN(n, (size_t)LINE_BYTES_MAX - 1);
	n += (size_t)vsnprintf(to + n, LINE_BYTES_MAX - n, fmt, ap);
	n = KV_MIN(n, (size_t)LINE_BYTES_MAX - 1);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)to[i] < ' ')
			to[i] = ' ';
	to[n] = '\n';
	return n + 1;
}

void kv_event(struct kv_eventlog *l, const char *event, const char *fmt, ...)
{
	char line[LINE_BYTES_MAX];
	size_t bytes;
	va_list ap;

	if (!l)
		return;
	va_start(ap, fmt);
	bytes = put_line(l->store->env, line, event, fmt, ap);
	va_end(ap);
	kv_mutex_lock(&l->mu);
	write_line(l, kv_slice(line, bytes));
	kv_mutex_unlock(&l->mu);
}

/* --- opening and closing ----------------------------------------------------------------------- */

struct kv_eventlog *kv_eventlog_open(struct kv_store *s)
{
	struct kv_eventlog *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->store = s;
	kv_mutex_init(&l->mu);
	return l;
}

void kv_eventlog_close(struct kv_eventlog *l)
{
	if (!l)
		return;
	close_file(l);
	kv_mutex_done(&l->mu);
	free(l);
}
