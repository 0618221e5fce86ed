// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* A program that does nothing. Run by the recorder alone, to find out what measuring a program costs, and adds to what is measured. */
#include "../bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct __sk_buff;

SEC("socket")
int bprec_gauge(struct __sk_buff *skb)
{
	return 0;
}
