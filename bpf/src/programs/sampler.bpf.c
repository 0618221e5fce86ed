// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Adds data to the samples of a perf event: the program collects the requested parts in a per-CPU buffer and writes them as the raw bytes of a
 * bpf-output event. format/src/bprec/sampler.rs describes the layout. The sample itself is dropped: the program returns 0.
 *
 * One object serves every architecture. Registers are read as words of the context, which has more words on some architectures. The program
 * reads only words that the loader requests: for the verifier, the code that reads other words is dead, so it does not check their offsets.
 */
#include "bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Configuration set by the loader (sampler.rs). */
struct sampler_config {
	/* Bit n: record word n of the context. */
	__u64 registers;
	/* Parts to record: PART_* */
	__u32 parts;
	/* Indexes of two words of the context: the instruction pointer, and the period. The period follows the registers; the address follows it. */
	__u32 ip_word;
	__u32 period_word;
	/* Call chains to record: STACK_* */
	__u32 stacks;
};

const volatile struct sampler_config config SEC(".rodata") = {};

#define PART_IP (1 << 0)
#define PART_PERIOD (1 << 1)
#define PART_ADDR (1 << 2)
#define PART_TASK (1 << 3)
#define PART_CGROUP (1 << 4)
#define PART_COMM (1 << 5)
#define PART_VALUE (1 << 6)
#define PART_REGISTERS (1 << 7)
#define PART_STACK (1 << 8)

#define STACK_KERNEL (1 << 0)
#define STACK_USER (1 << 1)

#define VERSION 1
#define COMM_BYTES 16
#define FRAMES_MAX 127
#define STACK_BYTES (FRAMES_MAX * 8)
/* Markers in front of kernel and user frames, as in the call chains of perf events. */
#define CONTEXT_KERNEL ((__u64)-128)
#define CONTEXT_USER ((__u64)-512)

struct header {
	__u16 version;
	__u16 parts;
	__u16 missing;
	__u16 zero;
	__u32 length;
	__u32 zero2;
};

struct value {
	__u64 value;
	__u64 enabled;
	__u64 running;
};

/* Bytes of a sample: at most 16 + 7 * 8 + 24 + 16 + 35 * 8 without the call chain, and (1 + 2 * 128) * 8 for the chain. */
#define SCRATCH_BYTES 4096

struct scratch {
	__u8 bytes[SCRATCH_BYTES];
};

/* Buffer of one run. Runs do not share it: a CPU runs only one perf event program at a time, and none interrupts another. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} sampler_scratch SEC(".maps");

/* Layout read by sampler.rs. */
struct sampler_counts {
	__u64 runs;
	__u64 written;
	__u64 full;
	__u64 failed;
	__u64 last_error;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sampler_counts);
} sampler_counts SEC(".maps");

/* The bpf-output event of each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} sampler_output SEC(".maps");

/* Reads a word of the context. The compiler must not merge several loads into one, because the offset must be a constant. */
#define WORD(ctx, number) \
	({ \
		__u64 word; \
		asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(word) : "r"(ctx), "i"((number) * 8)); \
		word; \
	})

#define PUT(value) \
	do { \
		*(__u64 *)(out + at) = (value); \
		at += 8; \
	} while (0)

#define PUT_REGISTER(number) \
	do { \
		if (registers & (1ULL << (number))) \
			PUT(WORD(ctx, number)); \
	} while (0)

#define PUT_REGISTERS_8(first) \
	PUT_REGISTER(first); \
	PUT_REGISTER(first + 1); \
	PUT_REGISTER(first + 2); \
	PUT_REGISTER(first + 3); \
	PUT_REGISTER(first + 4); \
	PUT_REGISTER(first + 5); \
	PUT_REGISTER(first + 6); \
	PUT_REGISTER(first + 7)

#define X86_IP_WORD 16
#define X86_PERIOD_WORD 21
#define ARM64_PC_WORD 32
#define ARM64_PERIOD_WORD 34

SEC("perf_event")
int bprec_sampler(void *ctx)
{
	__u32 zero = 0, parts = config.parts, at = sizeof(struct header), missing = 0;
	__u64 registers = config.registers;
	struct sampler_counts *counts = bpf_map_lookup_elem(&sampler_counts, &zero);
	__u8 *out = bpf_map_lookup_elem(&sampler_scratch, &zero);
	struct header *header = (struct header *)out;
	long error;

	if (!counts || !out)
		return 0;
	counts->runs++;
	if (parts & PART_IP) {
		if (config.ip_word == X86_IP_WORD)
			PUT(WORD(ctx, X86_IP_WORD));
		else
			PUT(WORD(ctx, ARM64_PC_WORD));
	}
	if (parts & PART_PERIOD) {
		if (config.period_word == X86_PERIOD_WORD)
			PUT(WORD(ctx, X86_PERIOD_WORD));
		else
			PUT(WORD(ctx, ARM64_PERIOD_WORD));
	}
	if (parts & PART_ADDR) {
		if (config.period_word == X86_PERIOD_WORD)
			PUT(WORD(ctx, X86_PERIOD_WORD + 1));
		else
			PUT(WORD(ctx, ARM64_PERIOD_WORD + 1));
	}
	if (parts & PART_TASK) {
		__u64 task = bpf_get_current_pid_tgid();

		*(__u32 *)(out + at) = task >> 32;
		*(__u32 *)(out + at + 4) = task;
		at += 8;
	}
	if (parts & PART_CGROUP)
		PUT(bpf_get_current_cgroup_id());
	if (parts & PART_COMM) {
		if (bpf_get_current_comm(out + at, COMM_BYTES))
			missing |= PART_COMM;
		at += COMM_BYTES;
	}
	if (parts & PART_VALUE) {
		if (bpf_perf_prog_read_value(ctx, out + at, sizeof(struct value)))
			missing |= PART_VALUE;
		at += sizeof(struct value);
	}
	if (parts & PART_REGISTERS) {
		PUT(registers);
		PUT_REGISTERS_8(0);
		PUT_REGISTERS_8(8);
		PUT_REGISTERS_8(16);
		PUT_REGISTERS_8(24);
		PUT_REGISTER(32);
		PUT_REGISTER(33);
	}
	if (parts & PART_STACK) {
		__u32 start = at;
		long bytes;

		at += 8;
		if (config.stacks & STACK_KERNEL) {
			bytes = bpf_get_stack(ctx, out + at + 8, STACK_BYTES, 0);
			if (bytes < 0) {
				missing |= PART_STACK;
			} else if (bytes > 0) {
				*(__u64 *)(out + at) = CONTEXT_KERNEL;
				at += 8 + bytes;
			}
		}
		if (config.stacks & STACK_USER) {
			/* Check for the verifier, which does not know that the length of one stack leaves space for the other. */
			if (at > SCRATCH_BYTES - 8 - STACK_BYTES)
				return 0;
			bytes = bpf_get_stack(ctx, out + at + 8, STACK_BYTES, BPF_F_USER_STACK);
			if (bytes < 0) {
				missing |= PART_STACK;
			} else if (bytes > 0) {
				*(__u64 *)(out + at) = CONTEXT_USER;
				at += 8 + bytes;
			}
		}
		*(__u64 *)(out + start) = (at - start - 8) / 8;
	}
	header->version = VERSION;
	header->parts = parts;
	header->missing = missing;
	header->zero = 0;
	header->length = at;
	header->zero2 = 0;
	if (at > SCRATCH_BYTES)
		return 0;
	error = bpf_perf_event_output(ctx, &sampler_output, BPF_F_CURRENT_CPU, out, at);
	if (!error) {
		counts->written++;
	} else if (error == -ENOSPC) {
		counts->full++;
	} else {
		counts->failed++;
		counts->last_error = -error;
	}
	return 0;
}
