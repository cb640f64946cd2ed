/*
 * What happens to a call before it is made: it is announced, counted, and perhaps fails.
 */
#include <errno.h>

#include "tests/sim/sim_impl.h"

void sim_announce(struct sim *sim, enum kv_sim_op op, const char *name)
{
	kv_env_sim_hook_fn *fn;
	void *arg;

	kv_mutex_lock(&sim->mu);
	fn = sim->stopped ? NULL : sim->hook;
	arg = sim->hook_arg;
	kv_mutex_unlock(&sim->mu);
	if (fn)
		fn(arg, &sim->env, op, name);
}

static bool has_suffix(const char *name, const char *suffix)
{
	size_t bytes, suffix_bytes = strlen(suffix);

	if (!name)
		return false;
	bytes = strlen(name);
	return bytes >= suffix_bytes && !strcmp(name + bytes - suffix_bytes, suffix);
}

static int fault_of(struct sim *sim, enum kv_sim_op op, const char *name, const char *name2)
{
	for (size_t i = 0; i < sim->fault_count; i++) {
		struct kv_sim_fault *f = &sim->faults[i];

		if (!(f->ops & op) || (f->suffix && !has_suffix(name, f->suffix) &&
				       !has_suffix(name2, f->suffix)))
			continue;
		if (f->after) {
			f->after--;
			continue;
		}
		if (!f->forever)
			f->ops = 0;
		sim->faults_hit++;
		return f->err;
	}
	return 0;
}

/*
 * May the call be made? *out_touched, which may be NULL, is true when a call
 * that fails now still has an effect: a part of a write, a loss by a sync.
 */
int sim_begin(struct sim *sim, uint64_t epoch, enum kv_sim_op op, const char *name,
		 const char *name2, bool *out_touched)
{
	int err;

	if (out_touched)
		*out_touched = false;
	if (epoch != sim->epoch || sim->stopped)
		return -EIO;
	if (op & KV_SIM_MUTATING && sim->ops++ >= sim->stop_at) {
		sim->stopped = true;
		if (out_touched)
			*out_touched = op == KV_SIM_WRITE && sim->stop_torn;
		return -EIO;
	}
	err = fault_of(sim, op, name, name2);
	if (err && out_touched)
		*out_touched = true;
	return err;
}

int sim_check_name(const char *name)
{
	if (!*name || strchr(name, '/'))
		return -EINVAL;
	return strlen(name) < KV_SIM_NAME_BYTES_MAX ? 0 : -ENAMETOOLONG;
}

/* --- for the tests ------------------------------------------------------------------------ */

uint64_t kv_env_sim_ops(struct kv_env *env)
{
	struct sim *sim = to_sim(env);
	uint64_t ops;

	kv_mutex_lock(&sim->mu);
	ops = sim->ops;
	kv_mutex_unlock(&sim->mu);
	return ops;
}

void kv_env_sim_stop_after(struct kv_env *env, uint64_t more, bool torn)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->stop_at = sim->ops + more;
	sim->stop_torn = torn;
	kv_mutex_unlock(&sim->mu);
}

bool kv_env_sim_stopped(struct kv_env *env)
{
	struct sim *sim = to_sim(env);
	bool stopped;

	kv_mutex_lock(&sim->mu);
	stopped = sim->stopped;
	kv_mutex_unlock(&sim->mu);
	return stopped;
}

void kv_env_sim_hook(struct kv_env *env, kv_env_sim_hook_fn *fn, void *arg)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->hook = fn;
	sim->hook_arg = arg;
	kv_mutex_unlock(&sim->mu);
}

void kv_env_sim_fail(struct kv_env *env, const struct kv_sim_fault *fault)
{
	struct sim *sim = to_sim(env);
	size_t i = 0;

	KV_ASSERT(fault->err < 0);
	kv_mutex_lock(&sim->mu);
	while (i < sim->fault_count && sim->faults[i].ops)	/* 0: spent */
		i++;
	KV_ASSERT(i < KV_SIM_FAULTS_MAX);
	sim->faults[i] = *fault;
	sim->fault_count = KV_MAX(sim->fault_count, i + 1);
	kv_mutex_unlock(&sim->mu);
}

uint64_t kv_env_sim_faults_hit(struct kv_env *env)
{
	struct sim *sim = to_sim(env);
	uint64_t hit;

	kv_mutex_lock(&sim->mu);
	hit = sim->faults_hit;
	kv_mutex_unlock(&sim->mu);
	return hit;
}

void kv_env_sim_heal(struct kv_env *env)
{
	struct sim *sim = to_sim(env);

	kv_mutex_lock(&sim->mu);
	sim->fault_count = 0;
	sim->stopped = false;
	sim->stop_at = UINT64_MAX;
	kv_mutex_unlock(&sim->mu);
}
