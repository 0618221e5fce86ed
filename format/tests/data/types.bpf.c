/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Types for the tests of the BTF reader. types.le.btf and types.be.btf are its .BTF section:
 *   clang-14 -g -O2 -target bpfel -c types.bpf.c -o types.o && llvm-objcopy-14 --dump-section .BTF=types.le.btf types.o
 * and the same with bpfeb.
 */
typedef unsigned int u32;
typedef unsigned long long u64;

enum state { IDLE, RUNNING = 7, BROKEN = -3 };

struct event;

typedef int (*handler_t)(struct event *, const char *, ...);

struct event {
	u32 pid;
	char comm[16];
	enum state state;
	unsigned char mac[6];
	u32 low : 3;
	int middle : 5;
	u32 high : 12;
	_Bool on;
	union {
		u64 whole;
		struct {
			u32 a, b;
		};
	};
	double load;
	const char *const path;
	volatile struct event *next;
	handler_t handler;
	int matrix[2][3];
	int (*rows)[3];
	struct opaque *opaque;
	void *any;
};

struct event event;
const volatile u64 limit = 12;
const char bpf_metadata_version[] __attribute__((section(".rodata"))) = "1.2.3";

int use(struct event *e, void *ctx)
{
	return e->pid + (ctx != 0);
}
