/*
 * A job lies in its caller's stack. Helpers find it in the list of jobs, and
 * count themselves in and out under the lock: when all items are taken and no helper
 * is in it, the caller may return.
 */
#include "kv/pool.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kv/list.h"
#include "kv/lock.h"

#define THREADS_MAX 7			/* of a pool */
#define USEFUL_MAX 3

struct job {
	struct kv_link link;		/* in pool->jobs, until all items are taken */
	kv_parallel_fn *fn;
	void *arg;
	size_t count;
	_Atomic size_t next;		/* the first item that nobody has taken */
	uint32_t helpers;		/* under mu, to the end */
	size_t failed_item;
	int err;
};

struct kv_pool {
	uint32_t threads_max;

	struct kv_mutex mu;		/* guards to the end */
	struct kv_cond work_cond;	/* there is a job, or stop */
	struct kv_cond done_cond;	/* a helper has left a job */
	struct kv_link jobs;		/* struct job, oldest first */
	bool stop;
	bool started;			/* it has been tried */
	uint32_t thread_count;
	pthread_t threads[THREADS_MAX];
};

uint32_t kv_pool_threads(void)
{
	cpu_set_t set;
	int cores;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 0;
	cores = CPU_COUNT(&set);
	return (uint32_t)KV_MIN(KV_MAX(cores - 1, 0), USEFUL_MAX);
}

struct kv_pool *kv_pool_new(uint32_t threads)
{
	struct kv_pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->threads_max = KV_MIN(threads, (uint32_t)THREADS_MAX);
	kv_mutex_init(&p->mu);
	kv_cond_init(&p->work_cond);
	kv_cond_init(&p->done_cond);
	kv_list_init(&p->jobs);
	return p;
}

void kv_pool_free(struct kv_pool *p)
{
	if (!p)
		return;
	kv_mutex_lock(&p->mu);
	KV_ASSERT(kv_list_empty(&p->jobs));
	p->stop = true;
	kv_cond_broadcast(&p->work_cond);
	kv_mutex_unlock(&p->mu);
	while (p->thread_count)
		KV_ASSERT(pthread_join(p->threads[--p->thread_count], NULL) == 0);
	kv_mutex_done(&p->mu);
	kv_cond_done(&p->work_cond);
	kv_cond_done(&p->done_cond);
	free(p);
}

/*
 * Items are taken in order, so all before one that fails have been taken: of the failures
 * that are reported, the first item's is the one that a single thread would have met.
 */
static void fail(struct kv_pool *p, struct job *j, size_t item, int err)
{
	atomic_store_explicit(&j->next, j->count, memory_order_relaxed);
	kv_mutex_lock(&p->mu);
	if (!j->err || item < j->failed_item) {
		j->err = err;
		j->failed_item = item;
	}
	kv_mutex_unlock(&p->mu);
}

/* Takes items until none is left. */
static void run(struct kv_pool *p, struct job *j)
{
	size_t item;

	/* What fn reads and writes is passed on by the lock, when helpers come and go. */
	while ((item = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->count) {
		int err = j->fn(j->arg, item);

		if (err)
			fail(p, j, item, err);
	}
}

static void help_locked(struct kv_pool *p) KV_REQUIRES(&p->mu)
{
	struct job *j = kv_container_of(p->jobs.next, struct job, link);

	j->helpers++;
	kv_mutex_unlock(&p->mu);
	run(p, j);
	kv_mutex_lock(&p->mu);
	kv_list_remove(&j->link);
	if (!--j->helpers)
		kv_cond_broadcast(&p->done_cond);
}

static void *helper_thread(void *arg)
{
	struct kv_pool *p = arg;

	kv_mutex_lock(&p->mu);
	while (!p->stop) {
		if (kv_list_empty(&p->jobs))
			kv_cond_wait(&p->work_cond, &p->mu);
		else
			help_locked(p);
	}
	kv_mutex_unlock(&p->mu);
	return NULL;
}

/* As many as can be had. */
static void start_locked(struct kv_pool *p) KV_REQUIRES(&p->mu)
{
	sigset_t all, before;

	p->started = true;
	/* Signals are the program's business, in a thread of the program. */
	sigfillset(&all);
	KV_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	while (p->thread_count < p->threads_max &&
	       !pthread_create(&p->threads[p->thread_count], NULL, helper_thread, p))
		p->thread_count++;
	KV_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

static int run_alone(size_t count, kv_parallel_fn *fn, void *arg)
{
	for (size_t i = 0; i < count; i++)
		KV_TRY(fn(arg, i));
	return 0;
}

int kv_parallel(struct kv_pool *p, size_t count, kv_parallel_fn *fn, void *arg)
{
	struct job j = { .fn = fn, .arg = arg, .count = count };

	if (!p || !p->threads_max || count < 2)
		return run_alone(count, fn, arg);
	kv_mutex_lock(&p->mu);
	if (!p->started)
		start_locked(p);
	kv_list_push_back(&p->jobs, &j.link);
	kv_cond_broadcast(&p->work_cond);
	kv_mutex_unlock(&p->mu);

	run(p, &j);
	kv_mutex_lock(&p->mu);
	kv_list_remove(&j.link);
	while (j.helpers)
		kv_cond_wait(&p->done_cond, &p->mu);
	kv_mutex_unlock(&p->mu);
	return j.err;
}
