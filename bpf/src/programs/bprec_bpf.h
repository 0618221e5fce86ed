/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Everything that bprec's BPF programs need from headers: types, sections, map definitions and the helpers they call, with the numbers
 * of the kernel's interface. Neither vmlinux.h nor <linux/bpf.h> is needed.
 */
#ifndef BPREC_BPF_H
#define BPREC_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;

#define SEC(name) __attribute__((section(name), used))
/* Kernel function that the loader finds by its name (__ksym), and that may be missing (__weak). */
#define __ksym __attribute__((section(".ksyms")))
#define __weak __attribute__((weak))
#define __noinline __attribute__((noinline))
#define __always_inline inline __attribute__((always_inline))
/* Kernel structure with only some members declared: the loader sets the offsets of the running kernel (CO-RE). */
#define KERNEL_STRUCT __attribute__((preserve_access_index))

/* Members of a map definition in SEC(".maps"). */
#define __uint(name, value) int(*name)[value]
#define __type(name, type) type *name

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
};

#define BPF_F_CURRENT_CPU 0xffffffffULL
#define BPF_F_USER_STACK (1ULL << 8)

enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_PRESERVE_ELEMS = 1 << 11,
};

#define ENOSPC 28

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static __u64 (*const bpf_perf_event_read)(void *map, __u64 flags) = (void *)22;
static __u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_get_current_comm)(void *buf, __u32 size) = (void *)16;
static long (*const bpf_perf_event_output)(void *ctx, void *map, __u64 flags, void *data, __u64 size) = (void *)25;
static __u64 (*const bpf_get_current_task)(void) = (void *)35;
static long (*const bpf_perf_event_read_value)(void *map, __u64 flags, void *value, __u32 bytes) = (void *)55;
static long (*const bpf_perf_prog_read_value)(void *ctx, void *value, __u32 size) = (void *)56;
static long (*const bpf_get_stack)(void *ctx, void *buf, __u32 size, __u64 flags) = (void *)67;
static __u64 (*const bpf_get_current_cgroup_id)(void) = (void *)80;
static long (*const bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static __u64 (*const bpf_get_current_ancestor_cgroup_id)(int level) = (void *)123;
static long (*const bpf_seq_write)(void *seq, const void *data, __u32 len) = (void *)127;
static long (*const bpf_snprintf)(char *text, __u32 size, const char *format, const __u64 *values, __u32 values_size) = (void *)165;
static long (*const bpf_kallsyms_lookup_name)(const char *name, int size, int flags, __u64 *addr) = (void *)179;

#endif
