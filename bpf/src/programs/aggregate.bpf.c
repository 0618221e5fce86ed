// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Counts the samples of its event by task, CPU, cgroup and call chain (`struct key`), instead of letting them into the ring. Every sample that
 * the program sees is counted in `per_cpu`, and also in one of two places: an entry of the table, or the overflow of its CPU.
 *
 * The table is the map in slot 0 of `tables`. A run looks it up once and uses it to its end. The reader can therefore replace the
 * table, and read the old one after all runs that may still use it have ended (aggregate.rs explains how the reader knows). The CPU is
 * part of the key: only one CPU writes an entry, and the kernel does not nest perf event programs on one CPU. Entries and the fields
 * of `per_cpu` therefore need no atomic operations.
 */
#include "bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_NOEXIST = 1,
};

/* Limit on the words of a call chain: the kernel's default of 127 frames, and one word before the frames of each mode. */
#define WORDS 130

/* Layout read by aggregate.rs. */
struct key {
	__u64 ip;
	/* Hash of the words of the chain. If different chains have equal hashes, only the first gets an entry; the others go to the overflow. */
	__u64 hash;
	__u64 cgroup;
	__u32 tgid;
	__u32 tid;
	__u32 cpu;
	__u16 words;
	/* Count of kernel words; they are first in the chain. */
	__u16 kernel_words;
	/* Name of the task, not reported: samples before and after a change of the name get different entries. */
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

/* Buffer in which a chain is built. User frames can reach beyond `entry` into `spill`; the chain is then cut to WORDS. */
struct scratch {
	struct entry entry;
	__u64 spill[WORDS];
	struct key key;
};

/* Set before loading. */
const volatile struct {
	__u32 machine;
	__u32 user_chains;
	/* Non-zero if samples with an empty chain (in user mode, without user chains) have their instruction pointer in the key. */
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
 * Reads a word of the context: the registers of the interrupted code, then the period. The load is in assembly, because the verifier
 * accepts only constant offsets, and a compiler would merge several loads into one with a computed offset.
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

/* Writes the chain into the scratch buffer, and its lengths into the key. */
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

/* Counts a sample in the table. Returns 0 if the entry has another chain, or if no entry can be added: the table is full or locked. */
static __always_inline int count(void *table, struct key *key, struct scratch *scratch, __u64 period)
{
	struct entry *entry = bpf_map_lookup_elem(table, key);
	__u32 i;

	if (!entry) {
		scratch->entry.samples = 1;
		scratch->entry.period = period;
		/* The clock is read after the lookup of the table, so first_ns is later than the time at which user space put the table into the slot. */
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
	/* A sample in the kernel has at least one word in its chain. */
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
