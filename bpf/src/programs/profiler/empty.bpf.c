// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Empty program. Only the recorder runs it, to calibrate the cost of measuring a run and the overhead that measured values include. */
#include "../bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct __sk_buff;

SEC("socket")
int bprec_gauge(struct __sk_buff *skb)
{
	return 0;
}
