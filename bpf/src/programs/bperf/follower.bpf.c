// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Charges the counts of the ending time slice to tasks and cgroups. Runs at each context switch, after the leaders that read the
 * events, and computes the differences of their readings itself. Nothing is counted twice or lost, even if another session makes a
 * leader read between two switches, or if a reading fails.
 *
 * The kernel does not nest runs of this program on one CPU, so each field has one writer.
 */
#include "../bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* follower.rs has the same constants; a test there compares them with the BTF of this object. */
#define EVENTS_MAX 8
#define LEVELS_MAX 32
#define TASKS_MAX 102400

#define CLONE_THREAD 0x00010000

enum {
	INHERIT_THREADS = 1,
	INHERIT_ALL = 2,
};

struct reading {
	__u64 value;
	__u64 enabled_ns;
	__u64 running_ns;
};

/* Totals of one target on one CPU; only this CPU writes them. */
struct target_stats {
	/* Odd while the program writes the readings. User space reads them again if the value was odd or has changed meanwhile. */
	volatile __u64 sequence;
	struct reading readings[EVENTS_MAX];
} __attribute__((aligned(64)));

struct followed {
	/*
	 * Address of the task's signal_struct: the same for all threads of a process, also after an exec. A task with this id and
	 * another address is a new task with a reused id. 0 until the first run of the task.
	 */
	__u64 process;
	__u32 target;
	__u32 inherit;
};

/* `enabled` is written by user space. `no_room` is the count of new tasks for which the map of tasks had no free entry. */
struct control {
	__u64 enabled;
	__u64 no_room;
};

struct readings {
	struct reading of[EVENTS_MAX];
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	/* Threads that have not begun to exit. */
	atomic_t live;
} KERNEL_STRUCT;

struct task_struct {
	int exit_state;
	int pid;
	struct signal_struct *signal;
} KERNEL_STRUCT;

/* Count of leaders. */
const volatile __u32 events_used = 0;
/* Non-zero if tasks are among the targets. */
const volatile __u32 with_tasks = 0;
/* Bit n is set if cgroups at level n of the hierarchy are among the targets. */
const volatile __u32 cgroup_levels = 0;
/* Limit on CPU numbers: all of them are lower. */
const volatile __u32 cpus_used = 1;

/* `prev_readings` of each leader; slots without a leader get the map of the first leader. */
#define LEADER(name)                                                                                                                      \
	struct {                                                                                                                          \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                                                                  \
		__uint(max_entries, 1);                                                                                                   \
		__type(key, __u32);                                                                                                       \
		__type(value, struct reading);                                                                                            \
	} name SEC(".maps")

LEADER(leader_0);
LEADER(leader_1);
LEADER(leader_2);
LEADER(leader_3);
LEADER(leader_4);
LEADER(leader_5);
LEADER(leader_6);
LEADER(leader_7);

/* Entry 0 has the readings at the last run, entry 1 their growth since the run before. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct readings);
} last SEC(".maps");

/* Statistics of target t on CPU c, at t * cpus_used + c. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct target_stats);
} targets SEC(".maps");

/*
 * Followed threads, by id in the initial pid namespace. From Linux 6.1 on, entries are allocated when needed. Older kernels do not allow
 * this in tracing programs, so user space removes the flag there.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct followed);
} tasks SEC(".maps");

/* Target by cgroup id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

/* Computes the growth of a reading; 0 if the reading is older than the last one: its leader was interrupted by another run of itself. */
static __always_inline void grow(const struct reading *now, struct reading *last, struct reading *grown)
{
	if (now->enabled_ns < last->enabled_ns || now->value < last->value || now->running_ns < last->running_ns) {
		grown->value = 0;
		grown->enabled_ns = 0;
		grown->running_ns = 0;
		return;
	}
	grown->value = now->value - last->value;
	grown->enabled_ns = now->enabled_ns - last->enabled_ns;
	grown->running_ns = now->running_ns - last->running_ns;
	*last = *now;
}

#define FOLLOW(i)                                                                                                                         \
	if (i < events_used) {                                                                                                            \
		struct reading *now = bpf_map_lookup_elem(&leader_##i, &zero);                                                            \
		if (now)                                                                                                                  \
			grow(now, &last_readings->of[i], &grown->of[i]);                                                                  \
	}

/* Store barrier: a CPU that sees later stores also sees earlier ones. `ordered` is 0 if the processor guarantees this without a barrier. */
static __always_inline void store_barrier(struct target_stats *stats, const int ordered)
{
	__u64 none = 0;

	/* A fetching atomic instruction is a full barrier. Linux supports it from 5.12 on; older kernels refuse programs that contain it. */
	if (ordered)
		none = __sync_fetch_and_add(&stats->sequence, none);
	asm volatile("" : : "r"(none) : "memory");
}

static __always_inline int charge_target(__u32 target, const int ordered)
{
	__u32 one = 1, cpu = bpf_get_smp_processor_id(), key = target * cpus_used + cpu;
	struct readings *grown = bpf_map_lookup_elem(&last, &one);
	struct target_stats *stats = bpf_map_lookup_elem(&targets, &key);

	if (!stats || !grown || cpu >= cpus_used)
		return 0;
	stats->sequence++;
	store_barrier(stats, ordered);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < EVENTS_MAX; i++) {
		if (i < events_used) {
			stats->readings[i].value += grown->of[i].value;
			stats->readings[i].enabled_ns += grown->of[i].enabled_ns;
			stats->readings[i].running_ns += grown->of[i].running_ns;
		}
	}
	store_barrier(stats, ordered);
	stats->sequence++;
	return 0;
}

static __noinline int charge(__u32 target)
{
	return charge_target(target, 0);
}

static __noinline int charge_ordered(__u32 target)
{
	return charge_target(target, 1);
}

static __always_inline __u64 process_of(struct task_struct *task)
{
	__u64 process = 0;

	bpf_probe_read_kernel(&process, sizeof(process), &task->signal);
	return process;
}

/* Removes an exiting task, because its id can be reused. */
static __always_inline void forget(struct task_struct *task, __u64 process, __u32 tid, __u32 first)
{
	struct signal_struct *signal = (struct signal_struct *)process;
	int exit_state = 0, live = 0;

	/* A task without an exit state may run again. */
	if (bpf_probe_read_kernel(&exit_state, sizeof(exit_state), &task->exit_state) || !exit_state)
		return;
	if (bpf_probe_read_kernel(&live, sizeof(live), &signal->live.counter))
		return;
	/* A thread that execs takes the id of the first thread. This id is therefore removed only with the last thread. */
	if (tid != first || !live)
		bpf_map_delete_elem(&tasks, &tid);
	if (tid != first && !live)
		bpf_map_delete_elem(&tasks, &first);
}

static __always_inline void charge_task(const int ordered)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), process;
	__u32 tid = pid_tgid;
	struct followed *followed;
	struct task_struct *task;

	/* The idle task has id 0. */
	if (!tid)
		return;
	followed = bpf_map_lookup_elem(&tasks, &tid);
	if (!followed)
		return;
	task = (struct task_struct *)bpf_get_current_task();
	process = process_of(task);
	if (!followed->process)
		followed->process = process;
	if (followed->process != process)
		return;
	if (ordered)
		charge_ordered(followed->target);
	else
		charge(followed->target);
	forget(task, process, tid, pid_tgid >> 32);
}

static __always_inline int follow(const int ordered)
{
	__u32 zero = 0, one = 1;
	struct readings *last_readings = bpf_map_lookup_elem(&last, &zero);
	struct readings *grown = bpf_map_lookup_elem(&last, &one);
	struct control *control = bpf_map_lookup_elem(&controls, &zero);

	if (!last_readings || !grown || !control)
		return 0;
	FOLLOW(0)
	FOLLOW(1)
	FOLLOW(2)
	FOLLOW(3)
	FOLLOW(4)
	FOLLOW(5)
	FOLLOW(6)
	FOLLOW(7)
	/* The return value 1 tells the session that requested this run that the kernel did not skip it. */
	if (!control->enabled)
		return 1;
	if (with_tasks)
		charge_task(ordered);
	if (cgroup_levels) {
		for (int level = 0; level < LEVELS_MAX; level++) {
			__u64 id;
			__u32 *target;

			if (!(cgroup_levels & 1U << level))
				continue;
			id = bpf_get_current_ancestor_cgroup_id(level);
			/* The task's cgroup is nearer to the root than this level. */
			if (!id)
				break;
			target = bpf_map_lookup_elem(&cgroups, &id);
			if (!target)
				continue;
			if (ordered)
				charge_ordered(*target);
			else
				charge(*target);
		}
	}
	return 1;
}

SEC("raw_tp/sched_switch")
int bprec_follow(void *ctx)
{
	return follow(0);
}

/* bprec_follow for processors on which other CPUs can see stores in another order. */
SEC("raw_tp/sched_switch")
int bprec_follow_o(void *ctx)
{
	return follow(1);
}

SEC("raw_tp/task_newtask")
int bprec_inherit(__u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	__u64 flags = ctx[1];
	__u32 zero = 0, tid = bpf_get_current_pid_tgid();
	struct followed *parent = bpf_map_lookup_elem(&tasks, &tid);
	struct followed child = {};
	__u32 pid;

	if (!parent || !parent->inherit)
		return 0;
	if (parent->process && parent->process != process_of((struct task_struct *)bpf_get_current_task()))
		return 0;
	if (!(flags & CLONE_THREAD) && parent->inherit != INHERIT_ALL)
		return 0;
	if (bpf_probe_read_kernel(&pid, sizeof(pid), &task->pid))
		return 0;
	child.process = process_of(task);
	child.target = parent->target;
	child.inherit = parent->inherit;
	if (bpf_map_update_elem(&tasks, &pid, &child, 0)) {
		struct control *control = bpf_map_lookup_elem(&controls, &zero);

		if (control)
			__sync_fetch_and_add(&control->no_room, 1);
	}
	return 0;
}
