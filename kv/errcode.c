#include "kv/errcode.h"

#include <string.h>

static const struct {
	int code;
	int parent;
	const char *text;
} codes[] = {
#define X(number, parent, name, text) [(number) - 1] = { KV_ERR_BASE - (number), parent, text },
	KV_ERRCODES(X)
#undef X
};

static int parent_of(int err)
{
	size_t i = (size_t)(KV_ERR_BASE - err) - 1;

	return err < KV_ERR_BASE && i < KV_ARRAY_LEN(codes) ? codes[i].parent : 0;
}

bool kv_err_is(int err, int code)
{
	for (; err; err = parent_of(err))
		if (err == code)
			return true;
	return false;
}

int kv_err_errno(int err)
{
	int parent;

	while ((parent = parent_of(err)) != 0)
		err = parent;
	return err < KV_ERR_BASE ? EIO : -err;
}

const char *kv_err_text(int err)
{
	size_t i = (size_t)(KV_ERR_BASE - err) - 1;

	if (err < KV_ERR_BASE && i < KV_ARRAY_LEN(codes))
		return codes[i].text;
	return strerror(kv_err_errno(err));
}
