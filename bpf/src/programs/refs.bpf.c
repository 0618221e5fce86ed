// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * How many references each BPF program has. Reading the iterator gives one record per program. The kernel holds a reference of its
 * own on the program that is being visited; it is counted here and subtracted by the reader.
 */
#include "bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL_STRUCT;

typedef struct {
	__s64 counter;
} atomic64_t;

struct bpf_prog_aux {
	atomic64_t refcnt;
	__u32 id;
} KERNEL_STRUCT;

struct bpf_prog {
	struct bpf_prog_aux *aux;
} KERNEL_STRUCT;

struct bpf_iter__bpf_prog {
	struct bpf_iter_meta *meta;
	struct bpf_prog *prog;
} KERNEL_STRUCT;

/* What refs.rs reads. */
struct refs_record {
	__u32 id;
	__u32 zero;
	__s64 refcnt;
};

SEC("iter/bpf_prog")
int bprec_refs(struct bpf_iter__bpf_prog *ctx)
{
	struct bpf_prog *prog = ctx->prog;
	struct refs_record record = {};

	if (!prog)
		return 0;
	record.id = prog->aux->id;
	record.refcnt = prog->aux->refcnt.counter;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
