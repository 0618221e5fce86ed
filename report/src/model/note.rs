//! Notes: sentences about the numbers of a report.

use super::known::coded;
use super::text::{counted, decimal, grouped, listed, optional, seconds};
use super::{Anomaly, MissingTicks, Reason};
use serde::Serialize;
use std::fmt;

/// Reason why runs were not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotMeasured {
    /// Too many runs were nested.
    NestingOverflow,
    /// Only the start or only the end of the run was seen.
    Discarded,
    /// The kernel's recursion guard refused the counting program.
    Missed,
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotMeasured::NestingOverflow => "too many runs were nested",
            NotMeasured::Discarded => "only their start or end was seen",
            NotMeasured::Missed => "the kernel's recursion guard refused the counting programs",
        })
    }
}

/// Limit on the names of programs in [`Note::NotInSamples`]. With more programs, the note has only their count.
const NAMES_MAX: usize = 3;

coded! {
    /// A statement about the numbers of a report.
    Note {
        /// Counting overhead is subtracted from each measured run.
        OverheadTakenOff { overhead_ns: f64, events: Vec<(String, f64)>, runs: u64 } = "overhead_taken_off":
            "the counting overhead is subtracted from each measured run: {} ns{} (calibrated with {} of an empty program)",
            decimal(*overhead_ns),
            events.iter().map(|(event, overhead)| format!(", {} {event}", decimal(*overhead))).collect::<String>(),
            counted(*runs, "run");
        /// The overhead of counting is unknown.
        OverheadUnknown = "overhead_unknown": "the counting overhead is unknown: nothing is subtracted";
        /// The kernel's time per run includes the overhead of counting.
        StatisticsIncludeCounting { measured_ns: f64, skipped_ns: Option<f64> } = "statistics_include_counting":
            "the kernel's time per run includes the counting overhead: {} ns for a measured run{}",
            decimal(*measured_ns), optional(skipped_ns, |ns| format!(", {} ns for a skipped run", decimal(*ns)));
        /// Some runs were not measured.
        Estimated { budget_percent: Option<f64> } = "estimated":
            "≈ and ±: estimates, because not all runs were measured{}; ± is the 95 % confidence interval",
            optional(budget_percent, |percent| format!(", to stay within {percent} % of the machine"));
        /// A value is smaller than the overhead of counting.
        BelowOverhead = "below_overhead": "≈0: less than the counting overhead";
        /// Run statistics were on in short windows, and their overhead is unknown. Margins ignore that counting slows down a load that keeps a CPU
        /// busy.
        RunsInWindows = "runs_in_windows":
            "≈RUNS are estimates from short windows with counting on. Counting slows a load that keeps a CPU busy: its \
             programs ran more often than shown, even beyond ± (record --budget 100 counts all runs)";
        /// Events were multiplexed on the PMU.
        EventsTookTurns = "events_took_turns":
            "[n%]: the PMU counted this event for n % of the time, in turns with other events; the number is scaled up";
        /// Requested events are not counted.
        EventsNotCounted { events: Vec<String>, why: String } = "events_not_counted":
            "events not counted: {} ({why})", listed(events);
        /// Configuration of exact counters, in the recorder's words.
        HowCounted { said: String } = "how_counted": "counting: {said}";
        /// Configuration of shared counters, in the recorder's words.
        HowShared { said: String } = "how_shared": "shared counters: {said}";
        /// Reason why some counters are missing.
        CountersNote { said: String } = "counters_note": "{said}";
        /// Contradictory numbers.
        Impossible {
            of: String,
            /// Time range, ns since the start; `null` for the whole time.
            interval: Option<(i64, i64)>,
            anomaly: Box<Anomaly>,
        } = "impossible": "! {of}{}: {anomaly}", optional(interval, |interval| format!(" {}", span(interval)));
        /// Unknown numbers of an interval.
        IntervalUnknown { of: String, interval: (i64, i64), reason: Reason } = "interval_unknown":
            "! {of} {}: {reason}", span(interval);
        /// Counting of programs ended before the recording ended.
        NoLongerCounted { programs: Vec<String>, why: String } = "no_longer_counted":
            "programs no longer counted exactly: {} ({why})", listed(programs);
        /// Programs that are not counted exactly.
        NotCountedExactly { programs: Vec<String>, why: String } = "not_counted_exactly":
            "programs not counted exactly: {} ({why})", listed(programs);
        /// Runs that were not measured.
        NotMeasured { cause: NotMeasured, runs: Vec<(u64, String)> } = "not_measured":
            "runs that were not measured, because {cause}: {}",
            listed(&runs.iter().map(|(runs, of)| format!("{} of {of}", counted(*runs, "run"))).collect::<Vec<_>>());
        /// Hits of kprobes that ran no program.
        ProbesMissed { hits: Vec<(u64, String)> } = "probes_missed":
            "hits of kprobes that ran no program, because their CPU ran another kprobe or too many calls were open: {}",
            listed(&hits.iter().map(|(hits, of)| format!("{} of {of}", counted(*hits, "hit"))).collect::<Vec<_>>());
        /// Programs that the event cannot sample, or samples too rarely.
        Blind { programs: Vec<String>, reason: Reason } = "blind": "~ {}: {reason}", listed(programs);
        /// Hidden programs: they have neither samples nor runs.
        QuietPrograms { programs: usize } = "quiet_programs":
            "not shown: {programs} program{} with neither samples nor runs (--all shows them)", if *programs == 1 { "" } else { "s" };
        /// Programs that ran without a sample have no row, because there would be too many rows.
        UnsampledLeftOut { programs: usize } = "unsampled_left_out":
            "{} without samples of this event {} no row, because the recording has many events (--event NAME lists these \
             programs)",
            counted(*programs as u64, "program"), if *programs == 1 { "has" } else { "have" };
        /// A BPF program runs on the event, which therefore lacks samples.
        CarriesProgram { program: String } = "carries_program":
            "BPF program {program} runs on this event: the event has only the samples that the program lets through, and \
             none from inside kprobe, tracepoint and perf_event programs";
        /// The recording has no kernel call chains.
        NoCallChains = "no_call_chains": "{}", Reason::NoCallChains;
        /// Runs of all programs are unknown.
        RunsUnknown { reason: Reason } = "runs_unknown": "runs: n/a, {reason}";
        /// Samples were counted in the kernel.
        CountedInKernel { interval_ns: u64 } = "counted_in_kernel":
            "samples were counted in the kernel and written every {} s: this is the resolution of the sample times",
            seconds(i64::try_from(*interval_ns).unwrap_or(i64::MAX));
        /// Blind spot of samples counted in the kernel.
        BlindSpot { is_timer: bool } = "blind_spot":
            "[blind spot]: samples that the counting program cannot see and that no other line includes: inside kprobe, \
             tracepoint and perf_event programs, inside map system calls{}",
            if *is_timer { ", and in late timer interrupts that were merged" } else { "" };
        /// Samples that exceeded the kernel table of stacks.
        Overflow { entries: u32 } = "overflow":
            "[overflow]: samples that did not fit into the table of {} stacks (bprec record --aggregate-entries sets its size)", grouped((*entries).into());
        /// Ticks of the sampling timer are missing.
        LateTicks {
            /// Share of the machine's time with ticks, %.
            arrived_percent: f64,
            /// Kind of time in which ticks are missing.
            missing: MissingTicks,
        } = "late_ticks":
            "only {arrived_percent:.0} % of the sampling timer's ticks arrived, because the kernel merges late ticks: {}", late_ticks(*arrived_percent, *missing);
        /// The cost of programs marked `~` comes from run statistics.
        UnsampledTime = "unsampled_time":
            "~ with ≈%MACHINE: samples cannot see the program, so its cost is RUNS × NS/RUN plus the samples charged to its entry code";
        /// The share of the machine is unknown.
        MachineUnknown { reason: Reason } = "machine_unknown":
            "%MACHINE: n/a, {reason}; SELF%, HELPER%, ENTRY% and TOTAL% are shares of all samples";
        /// Without kernel symbols, waiting of the idle task cannot be separated from its other work.
        IdleWithoutSymbols = "idle_without_symbols":
            "the recording has no kernel symbols: samples of the idle task count as idle, except those in BPF programs";
        /// Samples of the idle task cannot be identified.
        IdleUnknown { reason: Reason } = "idle_unknown": "idle: n/a, {reason}";
        /// Runs cover the whole machine, samples a part of it.
        RunsOfMachine { cause: String } = "runs_of_machine":
            "RUNS, NS/RUN and MISSES cover the whole machine, samples only part of it ({cause})";
        /// Unknown kernel code cannot be identified, because the recording has no MMAP record of the kernel.
        NoKernelMap = "no_kernel_map": "{}", Reason::NoKernelMap;
        /// A BPF program runs on a perf event of another user.
        ForeignEventCarriesProgram {
            program: String,
            holders: String,
            /// Name of the event; empty when unknown.
            event: String,
        } = "foreign_event_carries_program":
            "{} samples {} with BPF program {program}: its own profile lacks the samples inside kprobe, tracepoint and perf_event programs; \
            this recording has these samples",
            if holders.is_empty() { "another process" } else { holders }, foreign_event(event);
        /// Gaps between the files of the recording: nothing was recorded in these times.
        Gaps { gaps: u64, length_ns: u64, longest: (i64, i64) } = "gaps":
            "! nothing was recorded in {} between the files, {:.1} s in all: no number includes these gaps (the longest: {})",
            counted(*gaps, "gap"), *length_ns as f64 / 1e9, span(longest);
        /// The recording was cut off.
        CutOff = "cut_off": "the recording was cut off: it ends where the recorder wrote last; `bprec recover` turns it into a file that perf opens";
        /// Lost records of an event that has no samples in this report.
        SideBandLost { event: String, records: u64 } = "side_band_lost":
            "! {event}: {} lost. This event has no samples in this report, but its records describe tasks, mappings and \
             programs: some of these may be missing",
            counted(*records, "record");
        /// Samples cannot show some programs, or only a part of their cost, so numbers that are made of samples alone are too small.
        NotInSamples { event: String, programs: Vec<String>, machine_percent: Option<f64> } = "not_in_samples":
            "! samples of {event} cannot show all of the cost of {}, so numbers here are too small{}",
            if programs.len() > NAMES_MAX { counted(programs.len() as u64, "program") } else { listed(programs) },
            optional(machine_percent, |percent| format!(", by {percent:.2} % of the machine in run statistics"));
        /// The event that counts operations lacks samples.
        OperationsMissing { event: String, lost: Option<u64>, throttled: u64 } = "operations_missing":
            "! {event}: {}: there may have been more operations than shown, so that each costs less",
            missing_operations(*lost, *throttled);
        /// Some functions of user space were not looked up.
        UserSymbolsCut { cause: String } = "user_symbols_cut": "some user functions have no names: {cause}";
        /// Last runs of programs that were unloaded before the recorder could open their descriptors: these runs are unknown.
        LastRunsUnknown { programs: u64 } = "last_runs_unknown":
            "the last runs of {}, from the last reading to the unload, are unknown: the recorder had no descriptor of these \
             programs",
            counted(*programs, "program");
        /// Hardware traces are not decoded.
        TracesNotDecoded { kind: Option<String>, bytes: u64 } = "traces_not_decoded":
            "{} bytes of hardware trace data ({}) are in the recording but not decoded",
            grouped(*bytes), kind.as_deref().unwrap_or("of an unknown type");
        /// Exact counts and run statistics are shown together.
        ExactBesideStatistics = "exact_beside_statistics":
            "rows with SOURCE exact are from exact counters; MISSES and rows with SOURCE stats are the kernel's run \
             statistics";
        /// A target is not counted.
        TargetNotCounted { name: String, reason: Reason } = "target_not_counted": "{name}: not counted, {reason}";
        /// A program was unloaded while it was counted.
        Unloaded { program: String, after_ns: i64 } = "unloaded":
            "{program}: unloaded after {:.3} s", *after_ns as f64 / 1e9;
        /// Programs that did not run are not shown.
        DidNotRun { programs: usize } = "did_not_run":
            "{} did not run; -b all shows them", counted(*programs as u64, "more program");
        /// Programs that could not be counted.
        NotCaptured { ids: Vec<u32> } = "not_captured":
            "not counted: {}, unloaded too soon or not captured; ids: {}",
            counted(ids.len() as u64, "program"), listed(&ids.iter().map(ToString::to_string).collect::<Vec<_>>());
        /// Programs that ended long ago are removed while counting continues.
        EndedNotListed { programs: u64 } = "ended_not_listed":
            "not listed: {} that ended earlier, because bprec keeps only the newest programs", counted(*programs, "more program");
    }
}

/// Gravity of a note, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gravity {
    /// Numbers are wrong, or data was lost.
    Wrong,
    /// Programs, samples or counts are missing.
    Missing,
    /// Numbers are estimates, or include other costs.
    Inexact,
    /// Explanation of numbers.
    Explained,
}

impl Note {
    /// Gravity of the note, which orders the notes below a table.
    pub(crate) fn gravity(&self) -> Gravity {
        match self {
            Note::Impossible { .. }
            | Note::IntervalUnknown { .. }
            | Note::SideBandLost { .. }
            | Note::NotInSamples { .. }
            | Note::OperationsMissing { .. }
            | Note::CutOff
            | Note::NoCallChains
            | Note::CarriesProgram { .. } => Gravity::Wrong,
            Note::Blind { .. }
            | Note::EventsNotCounted { .. }
            | Note::NoLongerCounted { .. }
            | Note::NotCountedExactly { .. }
            | Note::NotMeasured { .. }
            | Note::ProbesMissed { .. }
            | Note::NotCaptured { .. }
            | Note::TargetNotCounted { .. }
            | Note::RunsUnknown { .. }
            | Note::MachineUnknown { .. }
            | Note::IdleUnknown { .. }
            | Note::LastRunsUnknown { .. }
            | Note::BlindSpot { .. }
            | Note::Overflow { .. }
            | Note::NoKernelMap
            | Note::Gaps { .. }
            | Note::UserSymbolsCut { .. } => Gravity::Missing,
            Note::LateTicks { .. }
            | Note::RunsInWindows
            | Note::RunsOfMachine { .. }
            | Note::OverheadUnknown
            | Note::StatisticsIncludeCounting { .. }
            | Note::Estimated { .. }
            | Note::IdleWithoutSymbols
            | Note::EventsTookTurns => Gravity::Inexact,
            Note::OverheadTakenOff { .. }
            | Note::BelowOverhead
            | Note::HowCounted { .. }
            | Note::HowShared { .. }
            | Note::CountersNote { .. }
            | Note::QuietPrograms { .. }
            | Note::UnsampledLeftOut { .. }
            | Note::CountedInKernel { .. }
            | Note::UnsampledTime
            | Note::ForeignEventCarriesProgram { .. }
            | Note::TracesNotDecoded { .. }
            | Note::ExactBesideStatistics
            | Note::Unloaded { .. }
            | Note::DidNotRun { .. }
            | Note::EndedNotListed { .. } => Gravity::Explained,
        }
    }
}

/// Formats an interval, given in ns since the start, in seconds.
fn span((from_ns, to_ns): &(i64, i64)) -> String {
    format!("{}..{} s", seconds(*from_ns), seconds(*to_ns))
}

fn late_ticks(arrived_percent: f64, missing: MissingTicks) -> String {
    match missing {
        MissingTicks::All => "%MACHINE is scaled up and marked ≈".to_owned(),
        MissingTicks::Idle => {
            "run statistics show that the missing ticks are idle time, so the machine is idle for more time than the samples show"
                .to_owned()
        }
        MissingTicks::Unknown => format!("%MACHINE may be too low, by up to {:.1} times", 100.0 / arrived_percent),
    }
}

fn missing_operations(lost: Option<u64>, throttled: u64) -> String {
    let lost = match lost {
        Some(0) => None,
        Some(lost) => Some(format!("{} lost", counted(lost, "sample"))),
        None => Some("samples lost, but not counted by event".to_owned()),
    };
    let throttled = (throttled > 0).then(|| format!("throttled {}", counted(throttled, "time")));
    lost.into_iter().chain(throttled).collect::<Vec<_>>().join(", ")
}

fn foreign_event(event: &str) -> String {
    match event {
        "" => "a perf event of unknown type".to_owned(),
        event if event.starts_with("event of ") => format!("a perf {event}, of unknown type"),
        event => format!("perf event {event}"),
    }
}
