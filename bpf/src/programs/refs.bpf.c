// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Writes one record for each BPF program: the count of references to the program, how many of them this recorder has, and the program's
 * load time and name. While the iterator visits a program, the kernel itself holds a reference on the program. The record includes this
 * reference; the reader subtracts it.
 */
#include "bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct seq_file;

/*
 * The context of an iterator has the same layout in all kernels, so its structures need no CO-RE: for each structure with CO-RE, the loader
 * searches all types of the kernel.
 */
struct bpf_iter_meta {
	struct seq_file *seq;
};

typedef struct {
	__s64 counter;
} atomic64_t;

#define NAME_BYTES 16
#define HELD_MAX 32768

/* Count of references that this recorder has on each program, by program id. Read by the program below and by other recorders. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, HELD_MAX);
	__type(key, __u32);
	__type(value, __s64);
} bprec_held SEC(".maps");

struct bpf_prog_aux {
	atomic64_t refcnt;
	__u32 id;
	__u64 load_time;
	char name[NAME_BYTES];
} KERNEL_STRUCT;

struct bpf_prog {
	struct bpf_prog_aux *aux;
} KERNEL_STRUCT;

struct bpf_iter__bpf_prog {
	struct bpf_iter_meta *meta;
	struct bpf_prog *prog;
};

/* Layout read by refs.rs. */
struct refs_record {
	__u32 id;
	__u32 zero;
	__s64 refcnt;
	__s64 own;
	__u64 load_time;
	char name[NAME_BYTES];
};

SEC("iter/bpf_prog")
int bprec_refs(struct bpf_iter__bpf_prog *ctx)
{
	struct bpf_prog *prog = ctx->prog;
	struct refs_record record = {};
	__s64 *own;

	if (!prog)
		return 0;
	record.id = prog->aux->id;
	record.refcnt = prog->aux->refcnt.counter;
	own = bpf_map_lookup_elem(&bprec_held, &record.id);
	if (own)
		record.own = *own;
	record.load_time = prog->aux->load_time;
#pragma unroll
	for (int i = 0; i < NAME_BYTES; i++)
		record.name[i] = prog->aux->name[i];
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
