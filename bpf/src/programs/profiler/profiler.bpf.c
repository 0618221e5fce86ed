// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Programs around one function of a BPF program: on kernels with sessions bprec_session, which the kernel
 * calls before and after the function; otherwise a pair, bprec_enter before it and bprec_leave after it. The recorder
 * loads a copy for each function, with a `per_cpu` map of its own.
 *
 * A run is identified by the address of its arguments, which is the same at both ends. It lies in the stack frame of the calling trampoline,
 * so no two open runs have the same address, on any CPU, nested or preempted. Therefore a run with one end
 * unseen cannot be mistaken for another run. (A session has storage for each run, bpf_session_cookie. Fetching it costs more than searching for the
 * address: bpf/benches/results.md.)
 *
 * The kernel does not nest runs of a program on one CPU; it counts the runs that it skips. So each field below has one writer per CPU, and
 * nothing here needs to be atomic. But each program of a pair can be interrupted or preempted by the other. A session is one program for
 * both ends: while it handles one end, the kernel skips the ends of other runs.
 */
#include "../bprec_bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* per_cpu.rs has the same constants; a test there compares them with the BTF of this object. */
#define EVENTS_MAX 8
#define OPEN_MAX 4
/* The width of a bucket is at most 1/16 of its time. */
#define SUB_BITS 4
#define BUCKETS 528
/* Upper limit of the buckets, about 69 seconds; longer times are in the last bucket. */
#define TOO_LONG_NS (1ULL << 36)
/* Age from which an open run is replaced if no slot is free, because its end may have been missed. */
#define STALE_NS 1000000000ULL

struct reading {
	__u64 value;
	__u64 enabled_ns;
	__u64 running_ns;
};

/* Key of a run that must be over, though its end was not seen: another run with its key has begun. */
#define STALE (~0ULL)

struct open_run {
	/* Zero if this slot is free. */
	__u64 key;
	__u64 start_ns;
	struct reading readings[EVENTS_MAX];
};

/* Each field has one writer per CPU. */
struct per_cpu_stats {
	/* Interval: one run in this many is measured. Written by user space; the programs write all other fields. */
	__u64 every;
	/* Value of `every` with which `next` was chosen. */
	__u64 drawn_every;
	__u64 runs;
	/* Index of the next run to measure. If the index is in the past, the next run is measured. */
	__u64 next;
	__u64 opened;
	__u64 closed;
	/* Non-zero while a run's end is handled. If another run begins now, the kernel may skip bprec_leave at its end: it is not measured. */
	volatile __u64 exit_active;
	/*
	 * Odd while the end of a run writes `closed` and the fields from `measured` on. User space reads these fields again if the value
	 * was odd or has changed meanwhile.
	 */
	volatile __u64 sequence;
	/* Count of run ends that bprec_session has seen. */
	__u64 ended;
	__u64 nesting_overflow;
	__u64 discarded_at_entry;
	__u64 discarded_at_exit;
	__u64 measured;
	__u64 time_ns;
	struct reading readings[EVENTS_MAX];
	__u64 buckets[BUCKETS];
	struct open_run open[OPEN_MAX];
	/* Slot of the ending run. The program reads it back from memory, so that the verifier checks the code below once, not once for each slot. */
	volatile __u64 closing;
	/* The alignment keeps each CPU's fields in cache lines of their own. */
} __attribute__((aligned(64)));

/* Count of events, and of possible CPUs. */
const volatile __u32 events_used = 0;
const volatile __u32 cpus_used = 1;
/*
 * Kind of each event; zero after the last. Reading events is most of the cost of measuring a run, and half of that is reading the times for
 * which an event was enabled and on the hardware. So only the first event of a group that may wait for the hardware is read with times
 * (LEADING); the others of the group use the same times (FOLLOWING). CLOCK is a CPU clock: its count is the time of the run, and it is not
 * read. All other events never wait. A PARTIAL event is missing on some CPUs and adds nothing there.
 */
#define USED 1
#define LEADING 2
#define FOLLOWING 4
#define CLOCK 8
#define PARTIAL 16
const volatile __u8 event_kinds[EVENTS_MAX] = {};

/* Non-zero if other CPUs can see stores of this processor in another order. */
const volatile __u32 stores_are_reordered = 0;

/* One element per CPU: the recorder enlarges the map. All are in one map value at an address in the instructions, so no lookup is needed. */
struct per_cpu_stats per_cpu[1] SEC(".bss.per_cpu");

/* Calibrated time that the counting itself adds to a run, ns. Written by user space, for all copies of these programs. */
volatile __u64 overhead_ns SEC(".bss.overhead");

/* Events of CPU c from c * EVENTS_MAX on. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, EVENTS_MAX);
	__uint(map_flags, BPF_F_PRESERVE_ELEMS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} events SEC(".maps");

static __always_inline struct per_cpu_stats *stats_of(__u32 cpu)
{
	struct per_cpu_stats *stats = per_cpu + (__u64)cpu;

	/* Hides from the compiler that the index exceeds an array of one, and makes it compute the address once. */
	asm volatile("" : "+r"(stats));
	return stats;
}

/* Returns the bucket of a time: the position of its highest bit, and the next SUB_BITS bits. */
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

/* Error values that the kernel returns instead of a count if an event cannot be read. */
#define IS_ERROR(value) ((value) >= -4095ULL)

/* True if the first event is read with times on every CPU: its time enabled is then used as the clock. */
static __always_inline int first_is_clock(void)
{
	return (event_kinds[0] & (LEADING | PARTIAL)) == LEADING;
}

/* Reads an event. If that fails, an event read with times has times of zero, and any other event has an error value. */
static __always_inline void read_event(struct reading *reading, __u32 i, __u8 kind, __u32 cpu)
{
	if (kind & LEADING)
		bpf_perf_event_read_value(&events, cpu * EVENTS_MAX + i, reading, sizeof(*reading));
	else if (!(kind & CLOCK))
		reading->value = bpf_perf_event_read(&events, cpu * EVENTS_MAX + i);
}

/* Current time by the clock of start_ns. */
static __always_inline __u64 clock_ns(__u32 cpu)
{
	struct reading first;

	if (!first_is_clock())
		return bpf_ktime_get_ns();
	read_event(&first, 0, LEADING, cpu);
	return first.enabled_ns;
}

/* Returns a slot for a run that begins, or 0 if no slot is free. */
static __always_inline struct open_run *open_run(struct per_cpu_stats *stats, __u64 key, __u32 cpu)
{
	struct open_run *oldest = &stats->open[0];

	/* Usual case: all slots are free. */
	if (stats->opened == stats->closed) {
		stats->opened++;
		return oldest;
	}
	/* An older run with this address is over, though its end was not seen. */
#pragma clang loop unroll(full)
	for (int i = 0; i < OPEN_MAX; i++) {
		if (stats->open[i].key == key || stats->open[i].key == STALE) {
			stats->discarded_at_entry++;
			return &stats->open[i];
		}
	}
#pragma clang loop unroll(full)
	for (int i = 0; i < OPEN_MAX; i++) {
		if (!stats->open[i].key) {
			stats->opened++;
			return &stats->open[i];
		}
		if (stats->open[i].start_ns < oldest->start_ns)
			oldest = &stats->open[i];
	}
	if (clock_ns(cpu) - oldest->start_ns > STALE_NS) {
		stats->discarded_at_entry++;
		return oldest;
	}
	stats->nesting_overflow++;
	return 0;
}

/* Called for a run that is not measured: an older run with the same address is over, though its end was not seen. */
static __noinline int forget(struct per_cpu_stats *stats, __u64 key)
{
#pragma clang loop unroll(full)
	for (int i = 0; i < OPEN_MAX; i++) {
		if (stats->open[i].key == key)
			stats->open[i].key = STALE;
	}
	return 0;
}

/* Begins to measure a run. Not inlined, so that the many skipped runs do not save the registers that it needs. */
static __noinline int begin(struct per_cpu_stats *stats, __u64 key, __u32 cpu)
{
	struct open_run *run;

	__u64 every = *(volatile __u64 *)&stats->every;

	if (every != stats->drawn_every) {
		stats->drawn_every = every;
		stats->next = stats->runs;
		if (every > 1)
			stats->next += bpf_get_prandom_u32() % (2 * every - 1);
		if (stats->next > stats->runs) {
			if (stats->opened != stats->closed)
				forget(stats, key);
			return 0;
		}
	}
	/* The distance to the next measured run is random, so that it does not match a period of the load; it is `every` runs on average. */
	if (every > 1)
		stats->next = stats->runs + 1 + bpf_get_prandom_u32() % (2 * every - 1);
	if (stats->exit_active) {
		stats->discarded_at_entry++;
		return 0;
	}
	run = open_run(stats, key, cpu);
	if (!run)
		return 0;
	/* The key is written first: if an older run in this slot is ending at the moment, its end sees that the slot is reused. */
	*(volatile __u64 *)&run->key = key;
	/* Event 0 is read last here and first at the end, so that the intervals of the events are nested. */
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

static __always_inline int begins(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct per_cpu_stats *stats;

	if (cpu >= cpus_used)
		return 0;
	stats = stats_of(cpu);
	/* begin() also handles a change of `every` by user space. */
	if (++stats->runs >= stats->next || *(volatile __u64 *)&stats->every != stats->drawn_every)
		begin(stats, (__u64)ctx, cpu);
	else if (stats->opened != stats->closed)
		forget(stats, (__u64)ctx);
	return 0;
}

SEC("fentry")
int bprec_enter(void *ctx)
{
	return begins(ctx);
}

/* Expands a macro for each event in order. The verifier knows the constants, so it removes the branches that an event does not need. */
#define FOR_EVENTS(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7)

/* Reads an event again and stores the difference in spent[i]; jumps to `spoilt` if a reading is invalid. */
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

/* Store barrier: a CPU that sees later stores also sees earlier ones. */
static __always_inline void store_barrier(struct per_cpu_stats *stats)
{
	__u64 none = 0;

	/* A fetching atomic instruction is a full barrier; an atomic instruction with an unused result is not. */
	if (stores_are_reordered)
		none = __sync_fetch_and_add(&stats->closing, none);
	asm volatile("" : : "r"(none) : "memory");
}

static __always_inline void begin_write(struct per_cpu_stats *stats)
{
	stats->sequence++;
	store_barrier(stats);
}

static __always_inline void end_write(struct per_cpu_stats *stats)
{
	store_barrier(stats);
	stats->sequence++;
}

/* Adds the difference of an event to the statistics. */
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
		stats->readings[i].value += kind & CLOCK ? time_ns : spent[i].value; \
		stats->readings[i].enabled_ns += enabled_ns; \
		stats->readings[i].running_ns += running_ns; \
	}

/*
 * Adds an ending run to the statistics; counts it as discarded if a reading is missing or has decreased. Returns 0 if the slot was reused
 * meanwhile by another run, which has then counted this run as discarded.
 */
static __always_inline int measured(struct per_cpu_stats *stats, struct open_run *run, __u64 key, __u32 cpu)
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
	/* The key is checked after all reads of the slot. */
	if (*(volatile __u64 *)&run->key != key)
		return 0;
	begin_write(stats);
	stats->measured++;
	stats->time_ns += time_ns;
	FOR_EVENTS(ADD_EVENT)
added:
	/* The bucket comes last, because the verifier checks the code after bucket_of() once for each of its paths. */
	bucket = bucket_of(time_ns > overhead_ns ? time_ns - overhead_ns : 0);
	if (bucket < BUCKETS)
		stats->buckets[bucket]++;
	stats->closed++;
	end_write(stats);
	return 1;
spoilt:
	if (*(volatile __u64 *)&run->key != key)
		return 0;
	begin_write(stats);
	stats->discarded_at_exit++;
	stats->closed++;
	end_write(stats);
	return 1;
}

/* Ends a run that may be measured. Not inlined, like begin(). */
static __noinline int end(struct per_cpu_stats *stats, __u64 key, __u32 cpu)
{
	__u64 closing;

	stats->exit_active = 1;
	stats->closing = 0;
	if (stats->open[0].key != key) {
		stats->closing = OPEN_MAX;
#pragma clang loop unroll(full)
		for (int i = 1; i < OPEN_MAX; i++) {
			if (stats->open[i].key == key)
				stats->closing = i;
		}
	}
	closing = stats->closing;
	if (closing < OPEN_MAX && measured(stats, &stats->open[closing], key, cpu)) {
		stats->open[closing].key = 0;
	}
	stats->exit_active = 0;
	return 0;
}

SEC("fexit")
int bprec_leave(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct per_cpu_stats *stats;

	if (cpu >= cpus_used)
		return 0;
	stats = stats_of(cpu);
	stats->exit_active = 1;
	if (stats->opened != stats->closed)
		return end(stats, (__u64)ctx, cpu);
	stats->exit_active = 0;
	return 0;
}

extern _Bool bpf_session_is_return(void *ctx) __ksym __weak;

static __always_inline int ends(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct per_cpu_stats *stats;

	if (cpu >= cpus_used)
		return 0;
	stats = stats_of(cpu);
	stats->ended++;
	if (stats->opened != stats->closed)
		end(stats, (__u64)ctx, cpu);
	return 0;
}

SEC("fsession")
int bprec_session(void *ctx)
{
	/* bpf_session_is_return() is called first, so that no register has to keep its answer during the work common to entry and return. */
	if (bpf_session_is_return(ctx)) {
		asm volatile("" : "+r"(ctx));
		return ends(ctx);
	}
	return begins(ctx);
}
