// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What is put around one function of a BPF program: on kernels that have sessions bprec_session, which the kernel calls before the
 * function and after it, and else a pair, bprec_enter before it and bprec_leave after it. The recorder loads a copy for each function, with
 * an `accounts` of its own.
 *
 * A run is known by the address of the arguments that are given at both of its ends: it lies in the frame of the trampoline that calls us,
 * so that no two runs that are open at one time have the same, on any CPU, nested or preempted. A run of which only one end was seen
 * therefore cannot be mistaken for another. (A session has a word for each run, bpf_session_cookie. To fetch it costs more than to look the
 * address up: bpf/benches/results.md.)
 *
 * The kernel lets no program run inside itself on one CPU; what it refuses, it counts. So each number below has one writer per CPU, and
 * nothing here needs to be atomic. But either of a pair may be interrupted, or preempted, by runs of the other. A session is both: each
 * end of a run is refused while an end of another is at work.
 */
#include "../bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* per_cpu.rs reads and checks these by their position. */
#define EVENTS_MAX 8
#define OPEN_MAX 4
#define SUB_BITS 2
#define BUCKETS 156
/* The first time that is too long for the buckets, some 18 minutes. */
#define TOO_LONG_NS (1ULL << 40)
/* An open run that is older gives way when there is no room: its end may have been missed. */
#define STALE_NS 1000000000ULL

struct reading {
	__u64 value;
	__u64 enabled_ns;
	__u64 running_ns;
};

/* In place of a key: the end was not seen, and something else has the key by now. */
#define OVER (~0ULL)

struct open_run {
	/* Zero when this is free. */
	__u64 key;
	__u64 start_ns;
	struct reading readings[EVENTS_MAX];
};

struct account {
	/* One run in so many is measured. Written by user space. */
	__u64 every;
	__u64 runs;
	/* The number of the next run that is measured, when it is none that was before. */
	__u64 next;
	__u64 opened;
	__u64 closed;
	/* Numbers of runs that end are on the move. A run of a pair that begins now would not see its end. */
	volatile __u64 leaving;
	/* Ends that a session saw. */
	__u64 ended;
	__u64 too_deep;
	__u64 discarded_entering;
	__u64 discarded_leaving;
	__u64 measured;
	__u64 time_ns;
	struct reading readings[EVENTS_MAX];
	__u64 buckets[BUCKETS];
	struct open_run open[OPEN_MAX];
	/* Which of them bprec_leave closes: read back from here, the verifier walks what follows once and not for each. */
	volatile __u64 closing;
	/* No two CPUs write to one cache line. */
} __attribute__((aligned(64)));

/* Number of events that are counted, and of CPUs that may ever be there. */
const volatile __u32 events_used = 0;
const volatile __u32 cpus_used = 1;
/*
 * What each of them is; zero behind the last. Reading an event is most of what measuring a run costs, and half of that are the times for
 * which it was enabled and on the hardware. So only the first of each group that may have to wait for the hardware is read with them
 * (LEADING); the others of the group have the same (FOLLOWING). CLOCK is a clock of a CPU: what it counts is the time of the run, and it is
 * not read. The rest never waits. What is PARTIAL is not there on every CPU: what is missing then adds nothing.
 */
#define USED 1
#define LEADING 2
#define FOLLOWING 4
#define CLOCK 8
#define PARTIAL 16
const volatile __u8 event_kinds[EVENTS_MAX] = {};

/* One account per CPU: the recorder gives the map as many. All in one value, whose address is in the instructions: no lookup. */
struct account accounts[1] SEC(".bss.accounts");

/* Events of CPU c from c * EVENTS_MAX on. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, EVENTS_MAX);
	__uint(map_flags, BPF_F_PRESERVE_ELEMS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} events SEC(".maps");

static __always_inline struct account *account_of(__u32 cpu)
{
	struct account *account = accounts + (__u64)cpu;

	/* So that the compiler takes no offence at an array of one, and works the address out once. */
	asm volatile("" : "+r"(account));
	return account;
}

/* The position of the highest bit, and the two bits behind it. */
static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 log2 = 0;
	__u64 rest = ns;

	if (ns >= TOO_LONG_NS)
		return BUCKETS - 1;
	if (ns < 2 << SUB_BITS)
		return ns;
	if (rest >> 32) {
		rest >>= 32;
		log2 += 32;
	}
	if (rest >> 16) {
		rest >>= 16;
		log2 += 16;
	}
	if (rest >> 8) {
		rest >>= 8;
		log2 += 8;
	}
	if (rest >> 4) {
		rest >>= 4;
		log2 += 4;
	}
	if (rest >> 2) {
		rest >>= 2;
		log2 += 2;
	}
	log2 += rest >> 1;
	log2 -= SUB_BITS;
	return (log2 << SUB_BITS) + (ns >> log2);
}

/* What the kernel gives in place of a value when an event cannot be read. */
#define IS_ERROR(value) ((value) >= -4095ULL)

/* The first event's time enabled is the clock, when it is read anyway and on every CPU. */
static __always_inline int first_is_clock(void)
{
	return (event_kinds[0] & (LEADING | PARTIAL)) == LEADING;
}

/* Reads one of the events; with times that are zero when it cannot be read, or a value that is an error. */
static __always_inline void read_event(struct reading *reading, __u32 i, __u8 kind, __u32 cpu)
{
	if (kind & LEADING)
		bpf_perf_event_read_value(&events, cpu * EVENTS_MAX + i, reading, sizeof(*reading));
	else if (!(kind & CLOCK))
		reading->value = bpf_perf_event_read(&events, cpu * EVENTS_MAX + i);
}

/* The time by the clock of start_ns. */
static __always_inline __u64 clock_ns(__u32 cpu)
{
	struct reading first;

	if (!first_is_clock())
		return bpf_ktime_get_ns();
	read_event(&first, 0, LEADING, cpu);
	return first.enabled_ns;
}

/* A place for a run that begins, or none. */
static __always_inline struct open_run *open_run(struct account *account, __u64 key, __u32 cpu)
{
	struct open_run *oldest = &account->open[0];

	/* The usual case: all places are free. What ends meanwhile makes more room. */
	if (account->opened == account->closed) {
		account->opened++;
		return oldest;
	}
	/* Whatever had this address is over, though its end was not seen. */
#pragma clang loop unroll(full)
	for (int i = 0; i < OPEN_MAX; i++) {
		if (account->open[i].key == key || account->open[i].key == OVER) {
			account->discarded_entering++;
			return &account->open[i];
		}
	}
#pragma clang loop unroll(full)
	for (int i = 0; i < OPEN_MAX; i++) {
		if (!account->open[i].key) {
			account->opened++;
			return &account->open[i];
		}
		if (account->open[i].start_ns < oldest->start_ns)
			oldest = &account->open[i];
	}
	if (clock_ns(cpu) - oldest->start_ns > STALE_NS) {
		account->discarded_entering++;
		return oldest;
	}
	account->too_deep++;
	return 0;
}

/* Begins to measure a run. A function of its own, so that the registers it needs are not saved for the many runs that are skipped. */
static __noinline int begin(struct account *account, __u64 key, __u32 cpu)
{
	struct open_run *run;

	/* By chance, so that no rhythm of the load is met; one in `every` on average. */
	if (account->every > 1)
		account->next = account->runs + 1 + bpf_get_prandom_u32() % (2 * account->every - 1);
	if (account->leaving) {
		account->discarded_entering++;
		return 0;
	}
	run = open_run(account, key, cpu);
	if (!run)
		return 0;
	/* Before all else of it: if it was another's that is just ending, that one sees that it is no longer. */
	*(volatile __u64 *)&run->key = key;
	/* The first last, so that of what is read twice the outer encloses the inner. */
	switch (events_used) {
#define READ(i) read_event(&run->readings[i], i, event_kinds[i], cpu)
	case 8:
		READ(7);
	case 7:
		READ(6);
	case 6:
		READ(5);
	case 5:
		READ(4);
	case 4:
		READ(3);
	case 3:
		READ(2);
	case 2:
		READ(1);
	case 1:
		READ(0);
#undef READ
	}
	run->start_ns = first_is_clock() ? run->readings[0].enabled_ns : bpf_ktime_get_ns();
	return 0;
}

/* A run that is not measured has this address: whatever had it before is over, though its end was not seen. */
static __noinline int forget(struct account *account, __u64 key)
{
#pragma clang loop unroll(full)
	for (int i = 0; i < OPEN_MAX; i++) {
		if (account->open[i].key == key)
			account->open[i].key = OVER;
	}
	return 0;
}

static __always_inline int begins(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct account *account;

	if (cpu >= cpus_used)
		return 0;
	account = account_of(cpu);
	if (++account->runs >= account->next)
		begin(account, (__u64)ctx, cpu);
	else if (account->opened != account->closed)
		forget(account, (__u64)ctx);
	return 0;
}

SEC("fentry")
int bprec_enter(void *ctx)
{
	return begins(ctx);
}

/* For each event in their order, until the last. Constants are known to the verifier: it leaves only what is done for that event. */
#define FOR_EVENTS(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7)

/* Reads an event again and leaves in its place what it came to; or stops, when that cannot be. */
#define COUNT_EVENT(i) \
	kind = event_kinds[i]; \
	if (!kind) \
		goto counted; \
	if (!(kind & CLOCK)) { \
		before = &run->readings[i]; \
		read_event(&spent[i], i, kind, cpu); \
		if (kind & LEADING ? !before->enabled_ns : IS_ERROR(before->value)) { \
			if (!(kind & PARTIAL)) \
				goto spoilt; \
			missing |= 1 << i; \
		} \
		if (kind & LEADING) { \
			if (spent[i].enabled_ns < before->enabled_ns || spent[i].running_ns < before->running_ns) \
				goto spoilt; \
			spent[i].enabled_ns -= before->enabled_ns; \
			spent[i].running_ns -= before->running_ns; \
		} else if (IS_ERROR(spent[i].value) && !(missing & 1 << i)) { \
			goto spoilt; \
		} \
		if (spent[i].value < before->value) \
			goto spoilt; \
		spent[i].value -= before->value; \
	}

/* Adds it to the account. */
#define ADD_EVENT(i) \
	kind = event_kinds[i]; \
	if (!kind) \
		goto added; \
	if (kind & LEADING) { \
		enabled_ns = spent[i].enabled_ns; \
		running_ns = spent[i].running_ns; \
	} else if (!(kind & FOLLOWING)) { \
		enabled_ns = running_ns = time_ns; \
	} \
	if (!(kind & PARTIAL) || !(missing & 1 << i)) { \
		account->readings[i].value += kind & CLOCK ? time_ns : spent[i].value; \
		account->readings[i].enabled_ns += enabled_ns; \
		account->readings[i].running_ns += running_ns; \
	}

/*
 * Adds a run that ends to the account; none of it when a reading is missing or runs backwards. 0 when its place was taken for another run
 * meanwhile, which then counted it as discarded.
 */
static __always_inline int measured(struct account *account, struct open_run *run, __u64 key, __u32 cpu)
{
	__u64 time_ns = first_is_clock() ? 0 : bpf_ktime_get_ns() - run->start_ns;
	__u64 enabled_ns, running_ns;
	struct reading spent[EVENTS_MAX];
	struct reading *before;
	__u32 missing = 0;
	__u32 bucket;
	__u8 kind;

	FOR_EVENTS(COUNT_EVENT)
counted:
	if (first_is_clock())
		time_ns = spent[0].enabled_ns;
	if ((__s64)time_ns < 0)
		goto spoilt;
	/* After all that is read of it. */
	if (*(volatile __u64 *)&run->key != key)
		return 0;
	account->measured++;
	account->time_ns += time_ns;
	FOR_EVENTS(ADD_EVENT)
added:
	/* Last, as the verifier goes through what follows once for each of its ways. */
	bucket = bucket_of(time_ns);
	if (bucket < BUCKETS)
		account->buckets[bucket]++;
	return 1;
spoilt:
	if (*(volatile __u64 *)&run->key != key)
		return 0;
	account->discarded_leaving++;
	return 1;
}

/* Ends a run that may be measured. As begin(), a function of its own. */
static __noinline int end(struct account *account, __u64 key, __u32 cpu)
{
	__u64 closing;

	account->leaving = 1;
	account->closing = 0;
	if (account->open[0].key != key) {
		account->closing = OPEN_MAX;
#pragma clang loop unroll(full)
		for (int i = 1; i < OPEN_MAX; i++) {
			if (account->open[i].key == key)
				account->closing = i;
		}
	}
	closing = account->closing;
	if (closing < OPEN_MAX && measured(account, &account->open[closing], key, cpu)) {
		account->open[closing].key = 0;
		/* After the numbers that it stands for: user space reads again when it has moved. */
		account->closed++;
	}
	account->leaving = 0;
	return 0;
}

SEC("fexit")
int bprec_leave(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct account *account;

	if (cpu >= cpus_used)
		return 0;
	account = account_of(cpu);
	account->leaving = 1;
	if (account->opened != account->closed)
		return end(account, (__u64)ctx, cpu);
	account->leaving = 0;
	return 0;
}

extern _Bool bpf_session_is_return(void *ctx) __ksym __weak;

static __always_inline int ends(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct account *account;

	if (cpu >= cpus_used)
		return 0;
	account = account_of(cpu);
	account->ended++;
	if (account->opened != account->closed)
		end(account, (__u64)ctx, cpu);
	return 0;
}

SEC("fsession")
int bprec_session(void *ctx)
{
	/* What both ends do first is done behind the question, so that the answer has not to be kept meanwhile. */
	if (bpf_session_is_return(ctx)) {
		asm volatile("" : "+r"(ctx));
		return ends(ctx);
	}
	return begins(ctx);
}
