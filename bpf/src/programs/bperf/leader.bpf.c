// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Reads one event at each context switch, for all sessions that count it. The names of the function and maps, and the layouts
 * of the maps, are an interface: perf's followers attach to `on_switch` and use `diff_readings`, bprec's read `prev_readings`.
 *
 * Sessions also run this program between switches, to read the count of a slice in progress. At a switch, `current` is the task that leaves.
 */
#include "../bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct reading {
	__u64 value;
	__u64 enabled_ns;
	__u64 running_ns;
};

/* The event on each CPU. It stays open after the session that opened it has ended. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_PRESERVE_ELEMS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} events SEC(".maps");

/* The last reading. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reading);
} prev_readings SEC(".maps");

/* Difference between the last reading and the one before. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reading);
} diff_readings SEC(".maps");

SEC("raw_tp/sched_switch")
int on_switch(void *ctx)
{
	__u32 key = 0;
	struct reading *prev = bpf_map_lookup_elem(&prev_readings, &key);
	struct reading *diff = bpf_map_lookup_elem(&diff_readings, &key);
	struct reading now;

	if (!prev || !diff)
		return 0;
	/* `now` can be older than the stored reading: a request from another CPU can run this program in the middle of this run. */
	if (bpf_perf_event_read_value(&events, BPF_F_CURRENT_CPU, &now, sizeof(now)) || now.enabled_ns < prev->enabled_ns) {
		/* Followers that add up differences must not add the last difference again. */
		diff->value = 0;
		diff->enabled_ns = 0;
		diff->running_ns = 0;
		return 0;
	}
	diff->value = now.value - prev->value;
	diff->enabled_ns = now.enabled_ns - prev->enabled_ns;
	diff->running_ns = now.running_ns - prev->running_ns;
	*prev = now;
	return 0;
}
