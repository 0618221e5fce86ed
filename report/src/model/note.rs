//! What has to be said beside numbers. As with reasons, the enums say what, and the prose is made here alone.

use super::known::{coded, coded_schema};
use super::{Anomaly, MissingTicks, Reason};
use crate::model::text::{counted, decimal, grouped, listed, seconds};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
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
        /// What counting adds is taken off each measured run.
        OverheadTakenOff {
            /// Time, ns.
            overhead_ns: f64,
            /// Events: name and how many.
            events: Vec<(String, f64)>,
            /// Runs of an empty program that it was found with.
            runs: u64,
        } = "overhead_taken_off",
        /// What counting adds was not found out.
        OverheadUnknown = "overhead_unknown",
        /// The kernel's time per run includes counting.
        StatisticsIncludeCounting {
            /// For a measured run, ns.
            measured_ns: f64,
            /// For a run that is let pass, ns.
            skipped_ns: Option<f64>,
        } = "statistics_include_counting",
        /// Not all runs were measured.
        Estimated {
            /// How much of the machine counting may take.
            budget_percent: Option<f64>,
        } = "estimated",
        /// Some value is less than what counting adds.
        BelowOverhead = "below_overhead",
        /// Run statistics were on in short windows, and the recording does not say what counting took. Margins do not cover that counting slows a load
        /// which keeps a CPU busy.
        RunsInWindows = "runs_in_windows",
        /// Events took turns on the hardware.
        EventsTookTurns = "events_took_turns",
        /// Events that were asked for are not counted.
        EventsNotCounted {
            /// Their names.
            events: Vec<String>,
            /// Why.
            why: String,
        } = "events_not_counted",
        /// How exact counters count.
        HowCounted {
            /// In the recorder's words.
            said: String,
        } = "how_counted",
        /// How shared counters count.
        HowShared {
            /// In the recorder's words.
            said: String,
        } = "how_shared",
        /// Why not more is counted.
        CountersNote {
            /// In the recorder's words.
            said: String,
        } = "counters_note",
        /// Numbers that cannot be true.
        Impossible {
            /// Of which program or target.
            of: String,
            /// From when to when, ns since the start; all of the time without.
            interval: Option<(i64, i64)>,
            /// What cannot be true.
            anomaly: Box<Anomaly>,
        } = "impossible",
        /// Numbers of an interval that are not known.
        IntervalUnknown {
            /// Of which program or target.
            of: String,
            /// From when to when, ns since the start.
            interval: (i64, i64),
            /// Why.
            reason: Reason,
        } = "interval_unknown",
        /// Counting of programs ended before the recording.
        NoLongerCounted {
            /// Their names.
            programs: Vec<String>,
            /// Why.
            why: String,
        } = "no_longer_counted",
        /// Programs that are not counted exactly.
        NotCountedExactly {
            /// Their names.
            programs: Vec<String>,
            /// Why.
            why: String,
        } = "not_counted_exactly",
        /// A target that was never counted.
        NeverCounted {
            /// Its name.
            name: String,
            /// Its id.
            id: u64,
            /// Why.
            why: String,
        } = "never_counted",
        /// Runs that were not measured.
        NotMeasured {
            /// Why.
            cause: NotMeasured,
            /// How many, and of which program.
            runs: Vec<(u64, String)>,
        } = "not_measured",
        /// Samples cannot be taken in a program, or are too few.
        Blind {
            /// Which program.
            program: String,
            /// Why.
            reason: Reason,
        } = "blind",
        /// Programs without samples or runs are not shown.
        QuietPrograms {
            /// How many.
            programs: usize,
        } = "quiet_programs",
        /// Programs that ran and have no sample of the event have no row: there are too many rows.
        UnsampledLeftOut {
            /// How many.
            programs: usize,
        } = "unsampled_left_out",
        /// The event carries a program, and lacks samples for it.
        CarriesProgram {
            /// The program, with its id.
            program: String,
        } = "carries_program",
        /// The recording has no kernel call chains.
        NoCallChains = "no_call_chains",
        /// Runs are not known of any program.
        RunsUnknown {
            /// Why.
            reason: Reason,
        } = "runs_unknown",
        /// Samples were counted in the kernel.
        CountedInKernel {
            /// Time between two drains, ns.
            interval_ns: u64,
        } = "counted_in_kernel",
        /// What the blind spot of samples counted in the kernel is.
        BlindSpot {
            /// The event is a timer.
            is_timer: bool,
        } = "blind_spot",
        /// Samples for which there was no room in the kernel.
        Overflow {
            /// Stacks that there was room for.
            entries: u32,
        } = "overflow",
        /// Ticks of the sampling timer are missing.
        LateTicks {
            /// Share of the machine's time for which ticks came.
            arrived_percent: f64,
            /// Time that they are missing from.
            missing: MissingTicks,
        } = "late_ticks",
        /// Programs marked `~` have their cost from run statistics.
        UnsampledTime = "unsampled_time",
        /// The share of the machine is not known.
        MachineUnknown {
            /// Why.
            reason: Reason,
        } = "machine_unknown",
        /// Without kernel symbols, waiting cannot be told from other work of the idle task.
        IdleWithoutSymbols = "idle_without_symbols",
        /// The idle task's samples cannot be told.
        IdleUnknown {
            /// Why.
            reason: Reason,
        } = "idle_unknown",
        /// Runs are of the whole machine, samples of a part of it.
        RunsOfMachine {
            /// What narrowed the samples.
            cause: String,
        } = "runs_of_machine",
        /// Code that nothing accounts for cannot be told.
        NoKernelMap = "no_kernel_map",
        /// A program is on a perf event of someone else.
        ForeignEventCarriesProgram {
            /// The program, with its id.
            program: String,
            /// Who holds it.
            holders: String,
            /// Name of the event; empty where the kernel does not tell.
            event: String,
        } = "foreign_event_carries_program",
        /// The recording was cut off.
        CutOff = "cut_off",
        /// Records were lost of an event that this report has no samples of.
        SideBandLost {
            /// Its name.
            event: String,
            /// How many.
            records: u64,
        } = "side_band_lost",
        /// Not all functions of user space were looked up.
        UserSymbolsCut {
            /// Why.
            cause: String,
        } = "user_symbols_cut",
        /// The recorder had no descriptor of some programs when they were unloaded.
        LastRunsUnknown {
            /// How many.
            programs: u64,
        } = "last_runs_unknown",
        /// Hardware traces are not decoded.
        TracesNotDecoded {
            /// What made them, if that is known.
            kind: Option<String>,
            /// How much.
            bytes: u64,
        } = "traces_not_decoded",
        /// Which numbers are exact.
        ExactBesideStatistics = "exact_beside_statistics",
        /// A target is not counted.
        TargetNotCounted {
            /// Its name.
            name: String,
            /// Why.
            reason: Reason,
        } = "target_not_counted",
        /// A program was unloaded while it was counted.
        Unloaded {
            /// Its name.
            program: String,
            /// When, ns since counting began.
            after_ns: i64,
        } = "unloaded",
        /// Programs that did not run are not shown.
        DidNotRun {
            /// How many.
            programs: usize,
        } = "did_not_run",
        /// Programs that could not be counted.
        NotCaptured {
            /// Their ids.
            ids: Vec<u32>,
        } = "not_captured",
        /// Programs that ended long ago are not kept while counting goes on.
        EndedNotListed {
            /// Number of programs.
            programs: u64,
        } = "ended_not_listed",
    }
}

/// The prose of notes.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::OverheadTakenOff { overhead_ns, events, runs } => {
                write!(f, "the counting overhead is subtracted from each measured run: {} ns", decimal(*overhead_ns))?;
                for (event, overhead) in events {
                    write!(f, ", {} {event}", decimal(*overhead))?;
                }
                write!(f, " (calibrated with {} of an empty program)", counted(*runs, "run"))
            }
            Note::OverheadUnknown => f.write_str("the counting overhead is unknown: nothing is subtracted"),
            Note::StatisticsIncludeCounting { measured_ns, skipped_ns } => {
                let measured = decimal(*measured_ns);
                write!(f, "the kernel's time per run includes counting: {measured} ns for a measured run")?;
                match skipped_ns {
                    Some(ns) => write!(f, ", {} ns for a skipped run", decimal(*ns)),
                    None => Ok(()),
                }
            }
            Note::Estimated { budget_percent } => {
                f.write_str("≈ and ±: not all runs were measured")?;
                if let Some(percent) = budget_percent {
                    write!(f, ", to stay within {percent} % of the machine")?;
                }
                f.write_str("; ± is the 95 % confidence interval")
            }
            Note::BelowOverhead => f.write_str("≈0: less than the counting overhead"),
            Note::RunsInWindows => f.write_str(
                "≈RUNS are from short windows. Counting slows a load that keeps a CPU busy: its programs ran more often than shown, beyond ± \
                 (record --budget 100 counts all runs)",
            ),
            Note::EventsTookTurns => {
                f.write_str("[n%]: events were multiplexed; counted for n % of the time and scaled")
            }
            Note::EventsNotCounted { events, why } => write!(f, "not counted: {} ({why})", listed(events)),
            Note::HowCounted { said } => write!(f, "counting: {said}"),
            Note::HowShared { said } => write!(f, "shared counters: {said}"),
            Note::CountersNote { said } => f.write_str(said),
            Note::Impossible { of, interval: None, anomaly } => write!(f, "! {of}: {anomaly}"),
            Note::Impossible { of, interval: Some((from_ns, to_ns)), anomaly } => {
                write!(f, "! {of} {}..{} s: {anomaly}", seconds(*from_ns), seconds(*to_ns))
            }
            Note::IntervalUnknown { of, interval: (from_ns, to_ns), reason } => {
                write!(f, "! {of} {}..{} s: {reason}", seconds(*from_ns), seconds(*to_ns))
            }
            Note::NoLongerCounted { programs, why } => {
                write!(f, "no longer counted: {} ({why})", listed(programs))
            }
            Note::NotCountedExactly { programs, why } => {
                write!(f, "not counted exactly: {} ({why})", listed(programs))
            }
            Note::NeverCounted { name, id, why } => write!(f, "not counted: {name} (id {id}): {why}"),
            Note::NotMeasured { cause, runs } => {
                let runs: Vec<String> =
                    runs.iter().map(|(runs, of)| format!("{} of {of}", counted(*runs, "run"))).collect();
                write!(f, "not measured, as {cause}: {}", listed(&runs))
            }
            Note::Blind { program, reason } => write!(f, "~ {program}: {reason}"),
            Note::QuietPrograms { programs } => {
                let s = if *programs == 1 { "" } else { "s" };
                write!(f, "{programs} program{s} without samples or runs not shown (--all shows them)")
            }
            Note::UnsampledLeftOut { programs } => {
                let have = if *programs == 1 { "has" } else { "have" };
                write!(
                    f,
                    "{} without samples of this event {have} no row, as many events would have the same ones (--event lists them)",
                    counted(*programs as u64, "program")
                )
            }
            Note::CarriesProgram { program } => write!(
                f,
                "this event carries program {program}: it has only samples that the program lets through, and none from \
                 inside kprobe, tracepoint and perf_event programs"
            ),
            Note::NoCallChains => write!(f, "{}", Reason::NoCallChains),
            Note::RunsUnknown { reason } => write!(f, "runs: n/a, {reason}"),
            Note::CountedInKernel { interval_ns } => write!(
                f,
                "samples were counted in the kernel and written every {} s: times are no finer than that",
                seconds(i64::try_from(*interval_ns).unwrap_or(i64::MAX))
            ),
            Note::BlindSpot { is_timer } => {
                f.write_str(
                    "[blind spot]: counted by the event but hidden from the program that counts samples, and in no other \
                     line: kprobe, tracepoint and perf_event programs, and map system calls",
                )?;
                match is_timer {
                    true => f.write_str(", and late timer interrupts that were merged"),
                    false => Ok(()),
                }
            }
            Note::Overflow { entries } => write!(
                f,
                "[overflow]: samples that did not fit into {} stacks (bprec record --aggregate-entries)",
                grouped((*entries).into())
            ),
            Note::LateTicks { arrived_percent, missing } => {
                write!(f, "only {arrived_percent:.0} % of the timer's ticks came, as late ones are merged: ")?;
                match missing {
                    MissingTicks::All => f.write_str("%MACHINE is scaled up and marked ≈"),
                    MissingTicks::Idle => f.write_str("by run statistics idle CPUs lack them, so idle is more than its samples say"),
                    MissingTicks::Unknown => {
                        write!(f, "%MACHINE may be too low, by up to {:.1} times", 100.0 / arrived_percent)
                    }
                }
            }
            Note::UnsampledTime => f.write_str(
                "~ with ≈%MACHINE: samples cannot see the program; RUNS × NS/RUN, and the samples of the code that runs it",
            ),
            Note::MachineUnknown { reason } => write!(f, "%MACHINE: n/a, {reason}; SELF%, HELPER%, ENTRY%, TOTAL%: of all samples"),
            Note::IdleWithoutSymbols => {
                f.write_str("no kernel symbols in the recording: the idle task counts as idle, except for BPF")
            }
            Note::IdleUnknown { reason } => write!(f, "idle: n/a, {reason}"),
            Note::RunsOfMachine { cause } => {
                write!(f, "RUNS, NS/RUN and MISSES cover the whole machine, samples only part of it ({cause})")
            }
            Note::NoKernelMap => write!(f, "{}", Reason::NoKernelMap),
            Note::ForeignEventCarriesProgram { program, holders, event } => {
                write!(f, "program {program}")?;
                if !holders.is_empty() {
                    write!(f, " of {holders}")?;
                }
                f.write_str(" is on ")?;
                match event.as_str() {
                    "" => f.write_str("a perf event (the kernel does not say which)")?,
                    event if event.starts_with("event of ") => {
                        write!(f, "a perf {event} (the kernel says no more)")?;
                    }
                    event => write!(f, "perf event {event}")?,
                }
                f.write_str(
                    ": other users of this event lose the samples inside kprobe, tracepoint and perf_event programs; \
                     this recording's samples are not affected",
                )
            }
            Note::ExactBesideStatistics => {
                f.write_str("exact: counted in each run; MISSES and stats rows are the kernel's run statistics")
            }
            Note::TargetNotCounted { name, reason } => write!(f, "{name}: not counted, {reason}"),
            Note::Unloaded { program, after_ns } => {
                write!(f, "{program}: unloaded after {:.3} s", *after_ns as f64 / 1e9)
            }
            Note::DidNotRun { programs } => {
                write!(f, "{} did not run; -b all shows them", counted(*programs as u64, "more program"))
            }
            Note::NotCaptured { ids } => {
                let programs = counted(ids.len() as u64, "program");
                let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                write!(f, "not counted: {programs} unloaded too soon or not captured: {}", listed(&ids))
            }
            Note::EndedNotListed { programs } => {
                write!(f, "{} that ended earlier: not listed, as only the newest are kept", counted(*programs, "more program"))
            }
            Note::TracesNotDecoded { kind, bytes } => {
                let kind = kind.as_deref().unwrap_or("of an unknown type");
                write!(
                    f,
                    "{} bytes of hardware trace data ({kind}) are in the recording but not decoded",
                    grouped(*bytes)
                )
            }
            Note::SideBandLost { event, records } => write!(
                f,
                "! {event}: {} lost, of an event without samples here; its data about tasks, mappings and programs is \
                 incomplete",
                counted(*records, "record")
            ),
            Note::UserSymbolsCut { cause } => write!(f, "some user functions have no names: {cause}"),
            Note::LastRunsUnknown { programs } => write!(
                f,
                "runs of {} between the last reading and the unload are unknown: the recorder had no descriptor",
                counted(*programs, "program")
            ),
            Note::CutOff => f.write_str("the recording was cut off: it ends where the recorder wrote last"),
        }
    }
}
