#include "kv/lock.h"

#include <errno.h>
#include <time.h>

void kv_mutex_init(struct kv_mutex *m)
{
	KV_ASSERT(pthread_mutex_init(&m->m, NULL) == 0);
}

void kv_mutex_done(struct kv_mutex *m)
{
	KV_ASSERT(pthread_mutex_destroy(&m->m) == 0);
}

void kv_mutex_lock(struct kv_mutex *m) KV_NO_TSA
{
	KV_ASSERT(pthread_mutex_lock(&m->m) == 0);
}

bool kv_mutex_trylock(struct kv_mutex *m) KV_NO_TSA
{
	int err = pthread_mutex_trylock(&m->m);

	KV_ASSERT(err == 0 || err == EBUSY);
	return err == 0;
}

void kv_mutex_unlock(struct kv_mutex *m) KV_NO_TSA
{
	KV_ASSERT(pthread_mutex_unlock(&m->m) == 0);
}

void kv_cond_init(struct kv_cond *c)
{
	pthread_condattr_t a;

	KV_ASSERT(pthread_condattr_init(&a) == 0);
	KV_ASSERT(pthread_condattr_setclock(&a, CLOCK_MONOTONIC) == 0);
	KV_ASSERT(pthread_cond_init(&c->c, &a) == 0);
	KV_ASSERT(pthread_condattr_destroy(&a) == 0);
}

void kv_cond_done(struct kv_cond *c)
{
	KV_ASSERT(pthread_cond_destroy(&c->c) == 0);
}

void kv_cond_wait(struct kv_cond *c, struct kv_mutex *m)
{
	KV_ASSERT(pthread_cond_wait(&c->c, &m->m) == 0);
}

bool kv_cond_wait_for(struct kv_cond *c, struct kv_mutex *m, uint64_t ns)
{
	struct timespec t;
	int err;

	KV_ASSERT(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
	ns += (uint64_t)t.tv_nsec;
	t.tv_sec += (time_t)(ns / 1000000000);
	t.tv_nsec = (long)(ns % 1000000000);
	err = pthread_cond_timedwait(&c->c, &m->m, &t);
	KV_ASSERT(err == 0 || err == ETIMEDOUT);
	return err == 0;
}

void kv_cond_signal(struct kv_cond *c)
{
	KV_ASSERT(pthread_cond_signal(&c->c) == 0);
}

void kv_cond_broadcast(struct kv_cond *c)
{
	KV_ASSERT(pthread_cond_broadcast(&c->c) == 0);
}

void kv_rwlock_init(struct kv_rwlock *l)
{
	KV_ASSERT(pthread_rwlock_init(&l->l, NULL) == 0);
}

void kv_rwlock_done(struct kv_rwlock *l)
{
	KV_ASSERT(pthread_rwlock_destroy(&l->l) == 0);
}

void kv_rwlock_read(struct kv_rwlock *l) KV_NO_TSA
{
	KV_ASSERT(pthread_rwlock_rdlock(&l->l) == 0);
}

void kv_rwlock_write(struct kv_rwlock *l) KV_NO_TSA
{
	KV_ASSERT(pthread_rwlock_wrlock(&l->l) == 0);
}

void kv_rwlock_unlock(struct kv_rwlock *l) KV_NO_TSA
{
	KV_ASSERT(pthread_rwlock_unlock(&l->l) == 0);
}
