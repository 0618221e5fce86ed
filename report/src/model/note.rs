//! Notes: sentences that stand beside numbers.

use super::known::coded;
use super::text::{counted, decimal, grouped, listed, optional, seconds};
use super::{Anomaly, MissingTicks, Reason};
use serde::Serialize;
use std::fmt;

/// Why runs were not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotMeasured {
    /// Too many runs were open.
    NestingOverflow,
    /// Only the begin or the end was seen.
    Discarded,
    /// The recursion guard hid them.
    Missed,
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotMeasured::NestingOverflow => "nested too deep",
            NotMeasured::Discarded => "only their start or end was seen",
            NotMeasured::Missed => "missed by the recursion guard",
        })
    }
}

coded! {
    /// Something that has to be said beside numbers.
    Note {
        /// Counting overhead is subtracted from each measured run.
        OverheadTakenOff { overhead_ns: f64, events: Vec<(String, f64)>, runs: u64 } = "overhead_taken_off":
            "the counting overhead is subtracted from each measured run: {} ns{} (calibrated with {} of an empty program)",
            decimal(*overhead_ns),
            events.iter().map(|(event, overhead)| format!(", {} {event}", decimal(*overhead))).collect::<String>(),
            counted(*runs, "run");
        /// Counting overhead was not found out.
        OverheadUnknown = "overhead_unknown": "the counting overhead is unknown: nothing is subtracted";
        /// The kernel's time per run includes counting.
        StatisticsIncludeCounting { measured_ns: f64, skipped_ns: Option<f64> } = "statistics_include_counting":
            "the kernel's time per run includes counting: {} ns for a measured run{}",
            decimal(*measured_ns), optional(skipped_ns, |ns| format!(", {} ns for a skipped run", decimal(*ns)));
        /// Not all runs were measured.
        Estimated { budget_percent: Option<f64> } = "estimated":
            "≈ and ±: not all runs were measured{}; ± is the 95 % confidence interval",
            optional(budget_percent, |percent| format!(", to stay within {percent} % of the machine"));
        /// Some value is less than what counting adds.
        BelowOverhead = "below_overhead": "≈0: less than the counting overhead";
        /// Run statistics were on in short windows, and the recording does not say what counting took. Margins do not cover that counting slows a load
        /// which keeps a CPU busy.
        RunsInWindows = "runs_in_windows":
            "≈RUNS are from short windows. Counting slows a load that keeps a CPU busy: its programs ran more often than shown, beyond ± \
            (record --budget 100 counts all runs)";
        /// Events took turns on the hardware.
        EventsTookTurns = "events_took_turns":
            "[n%]: events were multiplexed; counted for n % of the time and scaled";
        /// Events that were asked for are not counted.
        EventsNotCounted { events: Vec<String>, why: String } = "events_not_counted":
            "not counted: {} ({why})", listed(events);
        /// Configuration of exact counters, in the recorder's words.
        HowCounted { said: String } = "how_counted": "counting: {said}";
        /// Configuration of shared counters, in the recorder's words.
        HowShared { said: String } = "how_shared": "shared counters: {said}";
        /// Why not more is counted.
        CountersNote { said: String } = "counters_note": "{said}";
        /// Numbers that cannot be true.
        Impossible {
            of: String,
            /// From when to when, ns since the start; all of the time without.
            interval: Option<(i64, i64)>,
            anomaly: Box<Anomaly>,
        } = "impossible": "! {of}{}: {anomaly}", optional(interval, |interval| format!(" {}", span(interval)));
        /// Numbers of an interval that are not known.
        IntervalUnknown { of: String, interval: (i64, i64), reason: Reason } = "interval_unknown":
            "! {of} {}: {reason}", span(interval);
        /// Counting of programs ended before the recording.
        NoLongerCounted { programs: Vec<String>, why: String } = "no_longer_counted":
            "no longer counted: {} ({why})", listed(programs);
        /// Programs that are not counted exactly.
        NotCountedExactly { programs: Vec<String>, why: String } = "not_counted_exactly":
            "not counted exactly: {} ({why})", listed(programs);
        /// A target that was never counted.
        NeverCounted { name: String, id: u64, why: String } = "never_counted": "not counted: {name} (id {id}): {why}";
        /// Runs that were not measured.
        NotMeasured { cause: NotMeasured, runs: Vec<(u64, String)> } = "not_measured":
            "not measured, as {cause}: {}",
            listed(&runs.iter().map(|(runs, of)| format!("{} of {of}", counted(*runs, "run"))).collect::<Vec<_>>());
        /// Samples cannot be taken in programs, or are too few.
        Blind { programs: Vec<String>, reason: Reason } = "blind": "~ {}: {reason}", listed(programs);
        /// Programs without samples or runs are not shown.
        QuietPrograms { programs: usize } = "quiet_programs":
            "{programs} program{} without samples or runs not shown (--all shows them)", if *programs == 1 { "" } else { "s" };
        /// Programs that ran and have no sample of the event have no row: there are too many rows.
        UnsampledLeftOut { programs: usize } = "unsampled_left_out":
            "{} without samples of this event {} no row, as many events would have the same ones (--event lists them)",
            counted(*programs as u64, "program"), if *programs == 1 { "has" } else { "have" };
        /// The event carries a program, and lacks samples for it.
        CarriesProgram { program: String } = "carries_program":
            "this event carries program {program}: it has only samples that the program lets through, and none from inside kprobe, \
            tracepoint and perf_event programs";
        /// The recording has no kernel call chains.
        NoCallChains = "no_call_chains": "{}", Reason::NoCallChains;
        /// Runs are not known of any program.
        RunsUnknown { reason: Reason } = "runs_unknown": "runs: n/a, {reason}";
        /// Samples were counted in the kernel.
        CountedInKernel { interval_ns: u64 } = "counted_in_kernel":
            "samples were counted in the kernel and written every {} s: times are no finer than that",
            seconds(i64::try_from(*interval_ns).unwrap_or(i64::MAX));
        /// Blind spot of samples counted in the kernel.
        BlindSpot { is_timer: bool } = "blind_spot":
            "[blind spot]: samples that the counting program cannot see, in no other line: inside kprobe, tracepoint and perf_event \
            programs, and map system calls{}",
            if *is_timer { ", and late timer interrupts that were merged" } else { "" };
        /// Samples for which there was no room in the kernel.
        Overflow { entries: u32 } = "overflow":
            "[overflow]: samples that did not fit into {} stacks (bprec record --aggregate-entries)", grouped((*entries).into());
        /// Ticks of the sampling timer are missing.
        LateTicks {
            /// Share of the machine's time for which ticks came.
            arrived_percent: f64,
            /// Time that they are missing from.
            missing: MissingTicks,
        } = "late_ticks":
            "only {arrived_percent:.0} % of the timer's ticks came, as late ones are merged: {}", late_ticks(*arrived_percent, *missing);
        /// Programs marked `~` have their cost from run statistics.
        UnsampledTime = "unsampled_time":
            "~ with ≈%MACHINE: samples cannot see the program; RUNS × NS/RUN, and the samples of the code that runs it";
        /// The share of the machine is not known.
        MachineUnknown { reason: Reason } = "machine_unknown":
            "%MACHINE: n/a, {reason}; SELF%, HELPER%, ENTRY%, TOTAL%: of all samples";
        /// Without kernel symbols, waiting cannot be told from other work of the idle task.
        IdleWithoutSymbols = "idle_without_symbols":
            "no kernel symbols in the recording: the idle task counts as idle, except for BPF";
        /// The idle task's samples cannot be told.
        IdleUnknown { reason: Reason } = "idle_unknown": "idle: n/a, {reason}";
        /// Runs are of the whole machine, samples of a part of it.
        RunsOfMachine { cause: String } = "runs_of_machine":
            "RUNS, NS/RUN and MISSES cover the whole machine, samples only part of it ({cause})";
        /// Code that nothing accounts for cannot be told.
        NoKernelMap = "no_kernel_map": "{}", Reason::NoKernelMap;
        /// A program is on a perf event of someone else.
        ForeignEventCarriesProgram {
            program: String,
            holders: String,
            /// Name of the event; empty where the kernel does not tell.
            event: String,
        } = "foreign_event_carries_program":
            "program {program}{} is on {}: other users of this event lose the samples inside kprobe, tracepoint and perf_event programs; \
            this recording's samples are not affected",
            if holders.is_empty() { String::new() } else { format!(" of {holders}") }, foreign_event(event);
        /// Nothing was recorded between files.
        Gaps { gaps: u64, length_ns: u64, longest: (i64, i64) } = "gaps":
            "! {} of {:.1} s in all between the files: nothing there is in any number (the longest: {})",
            counted(*gaps, "gap"), *length_ns as f64 / 1e9, span(longest);
        /// The recording was cut off.
        CutOff = "cut_off": "the recording was cut off: it ends where the recorder wrote last";
        /// Records were lost of an event that this report has no samples of.
        SideBandLost { event: String, records: u64 } = "side_band_lost":
            "! {event}: {} lost, of an event without samples here; its data about tasks, mappings and programs is incomplete",
            counted(*records, "record");
        /// Not all functions of user space were looked up.
        UserSymbolsCut { cause: String } = "user_symbols_cut": "some user functions have no names: {cause}";
        /// The recorder had no descriptor of some programs when they were unloaded.
        LastRunsUnknown { programs: u64 } = "last_runs_unknown":
            "runs of {} between the last reading and the unload are unknown: the recorder had no descriptor",
            counted(*programs, "program");
        /// Hardware traces are not decoded.
        TracesNotDecoded { kind: Option<String>, bytes: u64 } = "traces_not_decoded":
            "{} bytes of hardware trace data ({}) are in the recording but not decoded",
            grouped(*bytes), kind.as_deref().unwrap_or("of an unknown type");
        /// Counts of exact counters are exact, beside statistics.
        ExactBesideStatistics = "exact_beside_statistics":
            "exact: counted in each run; MISSES and stats rows are the kernel's run statistics";
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
            "not counted: {} unloaded too soon or not captured: {}",
            counted(ids.len() as u64, "program"), listed(&ids.iter().map(ToString::to_string).collect::<Vec<_>>());
        /// Programs that ended long ago are not kept while counting goes on.
        EndedNotListed { programs: u64 } = "ended_not_listed":
            "{} that ended earlier: not listed, as only the newest are kept", counted(*programs, "more program");
    }
}

/// Gravity of a note, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gravity {
    /// Numbers are wrong, or data are lost.
    Wrong,
    /// Programs, samples or counts are missing.
    Missing,
    /// Numbers are estimates, or include something else.
    Inexact,
    /// Numbers are explained.
    Explained,
}

impl Note {
    /// Gravity of the note, by which notes are ordered below a table.
    pub(crate) fn gravity(&self) -> Gravity {
        match self {
            Note::Impossible { .. }
            | Note::IntervalUnknown { .. }
            | Note::SideBandLost { .. }
            | Note::CutOff
            | Note::NoCallChains
            | Note::CarriesProgram { .. } => Gravity::Wrong,
            Note::Blind { .. }
            | Note::EventsNotCounted { .. }
            | Note::NoLongerCounted { .. }
            | Note::NotCountedExactly { .. }
            | Note::NeverCounted { .. }
            | Note::NotMeasured { .. }
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

/// An interval, ns since the start.
fn span((from_ns, to_ns): &(i64, i64)) -> String {
    format!("{}..{} s", seconds(*from_ns), seconds(*to_ns))
}

fn late_ticks(arrived_percent: f64, missing: MissingTicks) -> String {
    match missing {
        MissingTicks::All => "%MACHINE is scaled up and marked ≈".to_owned(),
        MissingTicks::Idle => "by run statistics idle CPUs lack them, so idle is more than its samples say".to_owned(),
        MissingTicks::Unknown => format!("%MACHINE may be too low, by up to {:.1} times", 100.0 / arrived_percent),
    }
}

fn foreign_event(event: &str) -> String {
    match event {
        "" => "a perf event of unknown type".to_owned(),
        event if event.starts_with("event of ") => format!("a perf {event}, of unknown type"),
        event => format!("perf event {event}"),
    }
}
