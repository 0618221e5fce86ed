// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Names the kernel functions at the addresses in a map, by the kernel's own look-up. Runs only in test runs (BPF_PROG_TEST_RUN).
 */
#include "bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Number of addresses in a run. The verifier follows each, so that the load takes longer with more. */
#define ADDRESSES 32
/* Bytes for a name (at most 511), an offset, a length and the name of a module. */
#define TEXT_BYTES 632

/* Layout read by kernel_names.rs. */
struct slot {
	__u64 addr;
	char text[TEXT_BYTES];
};

/* The first slot receives the address from which programs' calls of helpers count; 0 if the kernel hides addresses from this user. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 + ADDRESSES);
	__type(key, __u32);
	__type(value, struct slot);
} bprec_slots SEC(".maps");

SEC("syscall")
int bprec_names(void *ctx)
{
	__u32 base = 0;
	__u64 addr = 0;
	struct slot *slot = bpf_map_lookup_elem(&bprec_slots, &base);

	if (!slot)
		return 0;
	bpf_kallsyms_lookup_name("__bpf_call_base", sizeof("__bpf_call_base"), 0, &addr);
	slot->addr = addr;
	for (__u32 index = 1; index <= ADDRESSES; index++) {
		/* A copy: the verifier does not follow the index of a loop in memory. */
		__u32 key = index;

		slot = bpf_map_lookup_elem(&bprec_slots, &key);
		if (!slot || !slot->addr)
			break;
		addr = slot->addr;
		slot->text[0] = 0;
		bpf_snprintf(slot->text, sizeof(slot->text), "%pS", &addr, sizeof(addr));
	}
	return 0;
}
