#include "kv/msg.h"

#include <stdarg.h>
#include <stdio.h>

#define MSG_BYTES_MAX 1024

static void msg_v(const struct kv_msg *m, enum kv_msg_level level, const char *fmt, va_list ap)
{
	char text[MSG_BYTES_MAX];

	if (!m || !m->fn || level > m->level_max)
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	m->fn(m->arg, level, text);
}

void kv_msg(const struct kv_msg *m, enum kv_msg_level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	msg_v(m, level, fmt, ap);
	va_end(ap);
}

int kv_fail(const struct kv_msg *m, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	msg_v(m, KV_MSG_ERROR, fmt, ap);
	va_end(ap);
	return err;
}
