#include "kv/env.h"

#include "kv/errcode.h"

int kv_env_write(struct kv_env *env, struct kv_env_file *file, struct kv_slice s,
		 uint64_t offset)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)s.data, .iov_len = s.bytes };

	return s.bytes ? env->ops->pwritev(file, &iov, 1, offset) : 0;
}

int kv_env_read_exact(struct kv_env *env, struct kv_env_file *file, void *to, size_t bytes,
		      uint64_t offset)
{
	size_t got;

	KV_TRY(env->ops->pread(file, to, bytes, offset, &got));
	return got == bytes ? 0 : KV_E_short_file;
}
