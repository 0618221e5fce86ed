// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Programs put around one function of a BPF program: on kernels that have sessions bprec_session, which the kernel
 * calls before the function and after it, and else a pair, bprec_enter before it and bprec_leave after it. The recorder
 * loads a copy for each function, with a `per_cpu` map of its own.
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

/* per_cpu.rs has the same, and a test of its own holds it against the BTF of this. */
#define EVENTS_MAX 8
#define OPEN_MAX 4
/* Buckets are at most a sixteenth of their time wide. */
#define SUB_BITS 4
#define BUCKETS 528
/* The first time that is too long for the buckets, some 69 seconds. */
#define TOO_LONG_NS (1ULL << 36)
/* An open run that is older gives way when there is no room: its end may have been missed. */
#define STALE_NS 1000000000ULL

struct reading {
	__u64 value;
	__u64 enabled_ns;
	__u64 running_ns;
};

/* In place of a key: the end was not seen, and something else has the key by now. */
#define STALE (~0ULL)

struct open_run {
	/* Zero when this is free. */
	__u64 key;
	__u64 start_ns;
	struct reading readings[EVENTS_MAX];
};

/* Each number has one writer per CPU. */
struct per_cpu_stats {
	/* One run in so many is measured. Written by user space, all else by the programs. */
	__u64 every;
	/* The `every` that `next` was drawn for. */
	__u64 drawn_every;
	__u64 runs;
	/* The number of the next run that is measured, when it is none that was before. */
	__u64 next;
	__u64 opened;
	__u64 closed;
	/* Numbers of runs that end are on the move. A run of a pair that begins now would not see its end. */
	volatile __u64 exit_active;
	/*
	 * Odd while what the end of a run adds to is written: `closed` and all from `measured` on. User space reads these again when this was
	 * odd, or is another number afterwards.
	 */
	volatile __u64 sequence;
	/* Ends that a session saw. */
	__u64 ended;
	__u64 nesting_overflow;
	__u64 discarded_at_entry;
	__u64 discarded_at_exit;
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
 * Kind of each event; zero behind the last. Reading an event is most of the cost of measuring a run, and half of that are the times for
 * which it was enabled and on the hardware. So only the first of each group that may have to wait for the hardware is read with them
 * (LEADING); the others of the group have the same (FOLLOWING). CLOCK is a clock of a CPU: its count is the time of the run, and it is not
 * read. The rest never waits. A PARTIAL event is not there on every CPU: a missing one adds nothing.
 */
#define USED 1
#define LEADING 2
#define FOLLOWING 4
#define CLOCK 8
#define PARTIAL 16
const volatile __u8 event_kinds[EVENTS_MAX] = {};

/* The processor does not promise to show stores to other CPUs in their order. */
const volatile __u32 stores_are_reordered = 0;

/* One for each CPU: the recorder gives the map as many. All in one value, whose address is in the instructions: no lookup. */
struct per_cpu_stats per_cpu[1] SEC(".bss.per_cpu");

/* Time that the counting itself adds to a run, as calibrated. Written by user space, for all copies. */
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

	/* So that the compiler takes no offence at an array of one, and works the address out once. */
	asm volatile("" : "+r"(stats));
	return stats;
}

/* The position of the highest bit, and the SUB_BITS bits behind it. */
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

/* Error values, which the kernel gives in place of a count when an event cannot be read. */
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
static __always_inline struct open_run *open_run(struct per_cpu_stats *stats, __u64 key, __u32 cpu)
{
	struct open_run *oldest = &stats->open[0];

	/* The usual case: all places are free. What ends meanwhile makes more room. */
	if (stats->opened == stats->closed) {
		stats->opened++;
		return oldest;
	}
	/* Whatever had this address is over, though its end was not seen. */
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

/* A run that is not measured has this address: whatever had it before is over, though its end was not seen. */
static __noinline int forget(struct per_cpu_stats *stats, __u64 key)
{
#pragma clang loop unroll(full)
	for (int i = 0; i < OPEN_MAX; i++) {
		if (stats->open[i].key == key)
			stats->open[i].key = STALE;
	}
	return 0;
}

/* Begins to measure a run. A function of its own, so that the registers it needs are not saved for the many runs that are skipped. */
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
	/* By chance, so that no rhythm of the load is met; one in `every` on average. */
	if (every > 1)
		stats->next = stats->runs + 1 + bpf_get_prandom_u32() % (2 * every - 1);
	if (stats->exit_active) {
		stats->discarded_at_entry++;
		return 0;
	}
	run = open_run(stats, key, cpu);
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

static __always_inline int begins(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct per_cpu_stats *stats;

	if (cpu >= cpus_used)
		return 0;
	stats = stats_of(cpu);
	/* Or when user space has changed how many are measured. */
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

/* Store barrier: a CPU that sees the later stores sees the earlier ones. */
static __always_inline void store_barrier(struct per_cpu_stats *stats)
{
	__u64 none = 0;

	/* An atomic instruction that fetches orders what is around it; one without a use of its result does not. */
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

/* Adds it to the numbers. */
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
 * Adds a run that ends to the numbers; none of it when a reading is missing or runs backwards. 0 when its place was taken for another run
 * meanwhile, which then counted it as discarded.
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
	/* After all that is read of it. */
	if (*(volatile __u64 *)&run->key != key)
		return 0;
	begin_write(stats);
	stats->measured++;
	stats->time_ns += time_ns;
	FOR_EVENTS(ADD_EVENT)
added:
	/* Last, as the verifier goes through what follows once for each of its ways. */
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

/* Ends a run that may be measured. As begin(), a function of its own. */
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
	/* Work common to both ends is done behind the question, so that the answer has not to be kept meanwhile. */
	if (bpf_session_is_return(ctx)) {
		asm volatile("" : "+r"(ctx));
		return ends(ctx);
	}
	return begins(ctx);
}
