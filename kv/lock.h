/*
 * Mutex, condition and reader-writer lock, with the annotations that clang's
 * lock analysis checks (-Wthread-safety, in `make tidy`).
 */
#ifndef KV_LOCK_H
#define KV_LOCK_H

#include <pthread.h>

#include "kv/assert.h"

#if defined(__clang__)
#define KV_TSA(x) __attribute__((x))
#else
#define KV_TSA(x)
#endif
#define KV_CAPABILITY KV_TSA(capability("mutex"))
#define KV_GUARDED_BY(m) KV_TSA(guarded_by(m))
#define KV_REQUIRES(...) KV_TSA(requires_capability(__VA_ARGS__))
#define KV_ACQUIRE(...) KV_TSA(acquire_capability(__VA_ARGS__))
#define KV_ACQUIRE_SHARED(...) KV_TSA(acquire_shared_capability(__VA_ARGS__))
#define KV_RELEASE(...) KV_TSA(release_capability(__VA_ARGS__))
#define KV_RELEASE_GENERIC(...) KV_TSA(release_generic_capability(__VA_ARGS__))
#define KV_NO_TSA KV_TSA(no_thread_safety_analysis)

struct KV_CAPABILITY kv_mutex {
	pthread_mutex_t m;
};

struct kv_cond {
	pthread_cond_t c;
};

struct KV_CAPABILITY kv_rwlock {
	pthread_rwlock_t l;
};

void kv_mutex_init(struct kv_mutex *m);
void kv_mutex_done(struct kv_mutex *m);
void kv_mutex_lock(struct kv_mutex *m) KV_ACQUIRE(m);
/* False, at once, when somebody has it. */
bool kv_mutex_trylock(struct kv_mutex *m) KV_TSA(try_acquire_capability(true, m));
void kv_mutex_unlock(struct kv_mutex *m) KV_RELEASE(m);

void kv_cond_init(struct kv_cond *c);
void kv_cond_done(struct kv_cond *c);
void kv_cond_wait(struct kv_cond *c, struct kv_mutex *m) KV_REQUIRES(m);
/* Returns false when the time (nanoseconds from now, monotonic) ran out. */
bool kv_cond_wait_for(struct kv_cond *c, struct kv_mutex *m, uint64_t ns) KV_REQUIRES(m);
void kv_cond_signal(struct kv_cond *c);
void kv_cond_broadcast(struct kv_cond *c);

void kv_rwlock_init(struct kv_rwlock *l);
void kv_rwlock_done(struct kv_rwlock *l);
void kv_rwlock_read(struct kv_rwlock *l) KV_ACQUIRE_SHARED(l);
void kv_rwlock_write(struct kv_rwlock *l) KV_ACQUIRE(l);
void kv_rwlock_unlock(struct kv_rwlock *l) KV_RELEASE_GENERIC(l);

#endif
