// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Counts the samples of the event that it sits on by whose they are and where, instead of letting them into the ring. Every sample that it
 * sees is in `per_cpu`, and then in one of two places: an entry of the table, or the overflow of its CPU.
 *
 * The table is the one in slot 0 of `tables`. A run looks there once and then keeps to what it found, so that the reader can put another
 * in and read the first when all runs that may still have it are over (aggregate.rs says why that is known). The CPU is part of
 * the key: an entry is written by one CPU alone, and on one CPU the kernel lets no second perf event program in, so that entries and
 * these numbers are added to without atomic operations.
 */
#include "bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_NOEXIST = 1,
};

/* Words of a call chain: the kernel's default of 127 frames, and a word before those of each mode. */
#define WORDS 130

/* Layout read by aggregate.rs. */
struct key {
	__u64 ip;
	/* Of the words of the chain; equal hashes of different chains are told apart by the chains themselves. */
	__u64 hash;
	__u64 cgroup;
	__u32 tgid;
	__u32 tid;
	__u32 cpu;
	__u16 words;
	/* Number of words of the kernel's part of the chain, which comes first. */
	__u16 kernel_words;
	/* Not reported: it keeps what a task did before it changed its name apart from what it did after. */
	__u8 comm[16];
};

struct entry {
	__u64 samples;
	__u64 period;
	__u64 first_ns;
	__u64 chain[WORDS];
};

struct per_cpu_stats {
	__u64 samples;
	__u64 period;
	__u64 overflow_samples;
	__u64 overflow_period;
};

/* A chain is put together here: what is behind an entry is where user frames may reach before they are cut. */
struct scratch {
	struct entry entry;
	__u64 spill[WORDS];
	struct key key;
};

/* Set before loading. */
const volatile struct {
	__u32 machine;
	__u32 user_chains;
	/* Of samples in user mode; without, they are told apart by thread and CPU alone. */
	__u32 user_ips;
} config SEC(".rodata");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct per_cpu_stats);
} per_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/*
 * A word of the context: registers of the interrupted code, behind them the period. In assembly, because the verifier takes constant
 * offsets only and a compiler would make one load with a computed one out of several.
 */
#define CONTEXT(ctx, offset) ({ __u64 word; asm volatile("%0 = *(u64 *)(%1 + " #offset ")" : "=r"(word) : "r"(ctx)); word; })

static __always_inline __u64 ip_of(void *ctx)
{
	switch (config.machine) {
	case 1: /* x86-64: ip of struct pt_regs */
		return CONTEXT(ctx, 128);
	case 2: /* arm64: pc of struct user_pt_regs */
		return CONTEXT(ctx, 256);
	case 3: /* riscv64: pc of struct user_regs_struct */
		return CONTEXT(ctx, 0);
	case 4: /* s390x: psw.addr of user_pt_regs */
		return CONTEXT(ctx, 16);
	}
	return 0;
}

static __always_inline __u64 period_of(void *ctx)
{
	switch (config.machine) {
	case 1:
		return CONTEXT(ctx, 168);
	case 2:
		return CONTEXT(ctx, 272);
	case 3:
		return CONTEXT(ctx, 256);
	case 4:
		return CONTEXT(ctx, 152);
	}
	return 0;
}

/* Puts the chain into the scratch, and its lengths into the key. */
static __always_inline void chain_of(void *ctx, struct scratch *scratch)
{
	__u64 *chain = scratch->entry.chain;
	long bytes = bpf_get_stack(ctx, chain, sizeof(scratch->entry.chain), 0);
	__u32 words = 0;

	if (bytes > 0)
		words = (__u32)bytes / 8;
	if (words > WORDS)
		words = WORDS;
	scratch->key.kernel_words = words;
	if (config.user_chains) {
		bytes = bpf_get_stack(ctx, chain + words, sizeof(scratch->entry.chain), BPF_F_USER_STACK);
		if (bytes > 0)
			words += (__u32)bytes / 8;
		if (words > WORDS)
			words = WORDS;
	}
	scratch->key.words = words;
}

/* Counts a sample in the table; false when there is no room for it. */
static __always_inline int count(void *table, struct key *key, struct scratch *scratch, __u64 period)
{
	struct entry *entry = bpf_map_lookup_elem(table, key);
	__u32 i;

	if (!entry) {
		scratch->entry.samples = 1;
		scratch->entry.period = period;
		/* Read when the table is known: no entry is older than the moment its table was put in. */
		scratch->entry.first_ns = bpf_ktime_get_ns();
		return bpf_map_update_elem(table, key, &scratch->entry, BPF_NOEXIST) == 0;
	}
#pragma clang loop unroll(disable)
	for (i = 0; i < WORDS; i++) {
		if (i >= key->words)
			break;
		if (entry->chain[i] != scratch->entry.chain[i])
			return 0;
	}
	entry->samples++;
	entry->period += period;
	return 1;
}

SEC("perf_event")
int bprec_aggregate(void *ctx)
{
	__u32 zero = 0, i;
	struct per_cpu_stats *stats = bpf_map_lookup_elem(&per_cpu, &zero);
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	struct key *key;
	__u64 period, id;
	void *table;

	if (!stats || !scratch)
		return 0;
	period = period_of(ctx);
	stats->samples++;
	stats->period += period;

	key = &scratch->key;
	id = bpf_get_current_pid_tgid();
	key->cgroup = bpf_get_current_cgroup_id();
	key->tgid = id >> 32;
	key->tid = id;
	key->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(key->comm, sizeof(key->comm));
	chain_of(ctx, scratch);
	key->ip = 0;
	/* A kernel chain has at least the frame it starts with. */
	if (key->words || config.user_ips)
		key->ip = ip_of(ctx);
	key->hash = key->words;
#pragma clang loop unroll(disable)
	for (i = 0; i < WORDS; i++) {
		if (i >= key->words)
			break;
		key->hash = (key->hash ^ scratch->entry.chain[i]) * 0x9e3779b97f4a7c15ULL;
		key->hash ^= key->hash >> 32;
	}

	table = bpf_map_lookup_elem(&tables, &zero);
	if (!table || !count(table, key, scratch, period)) {
		stats->overflow_samples++;
		stats->overflow_period += period;
	}
	return 0;
}
