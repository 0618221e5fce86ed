//! Values that a recording may lack, and why it lacks them. The enums say what the matter is; the prose of each is made
//! here and nowhere else.

use bprec_format::bpf::names::ProgType;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffSide {
    /// Before.
    Base,
    /// After.
    New,
}

impl fmt::Display for DiffSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiffSide::Base => "base",
            DiffSide::New => "new",
        })
    }
}

/// A value, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Known<T> {
    /// The value.
    Value(T),
    /// The recording does not tell.
    Unknown(Reason),
    /// The recording tells something that cannot be true. In a box: it is rare, and larger than most values.
    Impossible(Box<Anomaly>),
}

impl<T> Known<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Known::Value(value) => Some(value),
            Known::Unknown(_) | Known::Impossible(_) => None,
        }
    }

    /// The value, if there is one.
    pub fn into_value(self) -> Option<T> {
        match self {
            Known::Value(value) => Some(value),
            Known::Unknown(_) | Known::Impossible(_) => None,
        }
    }

    /// Whether there is a value.
    pub fn is_value(&self) -> bool {
        self.value().is_some()
    }

    /// Why there is no value, in words; `None` when there is one.
    pub fn why(&self) -> Option<String> {
        match self {
            Known::Value(_) => None,
            Known::Unknown(reason) => Some(reason.to_string()),
            Known::Impossible(anomaly) => Some(anomaly.to_string()),
        }
    }

    /// The same about what `then` makes of the value.
    pub fn map<U>(self, then: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Known::Value(value) => Known::Value(then(value)),
            Known::Unknown(reason) => Known::Unknown(reason),
            Known::Impossible(anomaly) => Known::Impossible(anomaly),
        }
    }

    /// What `then` says of the value.
    pub fn and_then<U>(self, then: impl FnOnce(T) -> Known<U>) -> Known<U> {
        match self {
            Known::Value(value) => then(value),
            Known::Unknown(reason) => Known::Unknown(reason),
            Known::Impossible(anomaly) => Known::Impossible(anomaly),
        }
    }

    /// The value, or `reason`.
    pub fn or_unknown(value: Option<T>, reason: Reason) -> Known<T> {
        value.map_or(Known::Unknown(reason), Known::Value)
    }

    /// The code of the reason or anomaly; `None` when there is a value.
    pub(crate) fn lack(&self) -> Option<Lack> {
        match self {
            Known::Value(_) => None,
            Known::Unknown(reason) => Some(Lack::Reason(reason.clone())),
            Known::Impossible(anomaly) => Some(Lack::Anomaly(anomaly.clone())),
        }
    }
}

/// The value alone, `null` without one. Where the reason belongs beside it, `known_members` puts it there.
impl<T: Serialize> Serialize for Known<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Known<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Known_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

/// Why there is no value: a [`Reason`] or an [`Anomaly`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Lack {
    Reason(Reason),
    Anomaly(Box<Anomaly>),
}

impl Serialize for Lack {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Lack::Reason(reason) => Serialize::serialize(reason, serializer),
            Lack::Anomaly(anomaly) => Serialize::serialize(anomaly, serializer),
        }
    }
}

impl JsonSchema for Lack {
    fn schema_name() -> Cow<'static, str> {
        "Lack".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let codes: Vec<&str> = Reason::CODES.iter().chain(Anomaly::CODES).copied().collect();
        coded_schema(&codes)
    }
}

/// An object with one of these codes, its prose in `text`, and the numbers and names that the prose has.
pub(super) fn coded_schema(codes: &[&str]) -> Schema {
    json_schema!({
        "type": "object",
        "properties": { "code": { "enum": codes }, "text": { "type": "string" } },
        "required": ["code", "text"]
    })
}

/// An enum whose variants have a code for programs and a sentence for people.
macro_rules! coded {
    (
        $(#[$about:meta])*
        $name:ident {
            $(
                $(#[$doc:meta])*
                $variant:ident $({ $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })? = $code:literal,
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant $({ $($(#[$field_doc])* $field: $type,)* })?,)*
        }

        impl $name {
            /// The codes of all variants.
            pub const CODES: &'static [&'static str] = &[$($code,)*];

            /// The code of the variant, as JSON has it.
            pub fn code(&self) -> &'static str {
                match self {
                    $($name::$variant $({ $($field: _,)* })? => $code,)*
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("code", self.code())?;
                map.serialize_entry("text", &self.to_string())?;
                match self {
                    $($name::$variant $({ $($field,)* })? => {
                        $($(map.serialize_entry(stringify!($field), $field)?;)*)?
                    })*
                }
                map.end()
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                coded_schema(Self::CODES)
            }
        }
    };
}

pub(crate) use coded;

coded! {
    /// Why a value is not known.
    Reason {
        /// The recorder says why.
        Recorder {
            /// In its words.
            said: String,
        } = "recorder",
        /// The recording has no run statistics.
        NoRunStatistics = "no_run_statistics",
        /// The recorder was not asked for run statistics.
        CountersAre {
            /// What it was asked for.
            counters: String,
        } = "counters_are",
        /// The recording has no exact counters.
        NoExactCounters = "no_exact_counters",
        /// The program has no id and load time in the recording.
        ProgramUnidentified = "program_unidentified",
        /// The program was not chosen to be counted exactly.
        NotChosen = "not_chosen",
        /// There are no two snapshots in the time that is looked at.
        NoSnapshots = "no_snapshots",
        /// Run statistics were on for a part of the time, and hardly while the program was there.
        StatisticsWereOff = "statistics_were_off",
        /// The kernel counts runs of programs that it enters; to this one tail calls lead, or a program whose function it replaces.
        NotEntered = "not_entered",
        /// The program did not run.
        NoRuns = "no_runs",
        /// No sample hit it.
        NoSamples = "no_samples",
        /// The event was not counted for this program.
        NotCounted = "not_counted",
        /// No run was measured.
        NoRunMeasured = "no_run_measured",
        /// The event was not on the hardware while the program ran.
        NotOnHardware = "not_on_hardware",
        /// The interpreter runs the program.
        Interpreted = "interpreted",
        /// The kernel hid the program's addresses.
        AddressesHidden = "addresses_hidden",
        /// The kernel drops samples of events with a program while the program runs.
        Guarded {
            /// Type of the program.
            prog_type: ProgTypeName,
        } = "guarded",
        /// The program runs in the interrupt that samples.
        InSamplingInterrupt = "in_sampling_interrupt",
        /// The program's hook runs with interrupts off.
        InterruptsOff {
            /// The hook.
            hook: String,
        } = "interrupts_off",
        /// The program ran for long, and has no sample.
        Unsampled {
            /// How many samples it should have.
            expected: u64,
        } = "unsampled",
        /// The recording does not tell its length, or how many CPUs there were.
        LengthUnknown = "length_unknown",
        /// How many of the event the machine could have had is not known.
        CapacityUnknown = "capacity_unknown",
        /// Samples do not tell their task.
        NoTaskIds = "no_task_ids",
        /// Tasks of other pid namespaces look like the idle task.
        ForeignTasks = "foreign_tasks",
        /// The recording has no kernel map.
        NoKernelMap = "no_kernel_map",
        /// The recording has no kernel call chains.
        NoCallChains = "no_call_chains",
        /// Losses were counted for all events together.
        LostTogether {
            /// Records of any event that were lost.
            records: u64,
        } = "lost_together",
        /// The recording has no names or addresses of what leads to programs.
        NoKernelSymbols = "no_kernel_symbols",
        /// What runs the program is inlined into its caller: no sample can tell the two apart.
        EntryInlined = "entry_inlined",
        /// Only a part of the recording is there, or is looked at.
        PartOnly = "part_only",
        /// The intervals of the view are too short, and too many.
        TooManyIntervals = "too_many_intervals",
        /// The numbers exist for a part of the row only.
        NotForThisLine = "not_for_this_line",
        /// The program is in no recording of a side.
        NotInRecordings {
            /// Which side.
            side: DiffSide,
        } = "not_in_recordings",
        /// The recordings do not have the event, or not all of them.
        NoSuchEvent = "no_such_event",
        /// Intervals are too few, or depend on each other too much, to tell how far a number may be off.
        TooFewIntervals = "too_few_intervals",
        /// The interval of a number has its bound inside.
        NotShown = "not_shown",
        /// No program is meant by a condition.
        NoProgramMatches = "no_program_matches",
        /// The recording has no `bpf_prog_info` of the program.
        NoProgInfo = "no_prog_info",
        /// The recording does not tell the memory of all of its maps.
        NoMapMemory = "no_map_memory",
        /// The kernel gave the recorder no instructions, or the recorder did not ask for them.
        NoInstructions = "no_instructions",
        /// What the recording has does not tell which instructions are the function's.
        FunctionUnbounded = "function_unbounded",
        /// The program was loaded without BTF line information.
        NoLineInfo = "no_line_info",
        /// The recording does not tell where the machine code of lines is.
        NoLineAddresses = "no_line_addresses",
        /// The machine code of this processor is not decoded.
        NotDecoded {
            /// The processor, as the recording has it; empty when it does not tell.
            arch: String,
        } = "not_decoded",
    }
}

impl Reason {
    /// What the recorder says.
    pub(crate) fn recorder(said: &str) -> Reason {
        Reason::Recorder { said: said.to_owned() }
    }
}

/// The prose of reasons.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Recorder { said } => f.write_str(said),
            Reason::NoRunStatistics => f.write_str("the recording has no run statistics"),
            Reason::CountersAre { counters } => write!(f, "counters: {counters}"),
            Reason::NoExactCounters => f.write_str("the recording has no exact counters"),
            Reason::ProgramUnidentified => f.write_str("the recording does not identify the program"),
            Reason::NotChosen => f.write_str("it was not selected for counting"),
            Reason::NoSnapshots => f.write_str("fewer than two snapshots of it in the window"),
            Reason::StatisticsWereOff => f.write_str("run statistics were off for most of its lifetime"),
            Reason::NotEntered => {
                f.write_str("the kernel counts only programs that it enters itself; other programs lead to this one")
            }
            Reason::NoRuns => f.write_str("it did not run"),
            Reason::NoSamples => f.write_str("no sample hit it"),
            Reason::NotCounted => f.write_str("it was not counted"),
            Reason::NoRunMeasured => f.write_str("no run was measured"),
            Reason::NotOnHardware => f.write_str("it was not on the hardware while the program ran"),
            Reason::Interpreted => f.write_str("it has no machine code: the interpreter runs it"),
            Reason::AddressesHidden => f.write_str("the kernel hid its addresses: samples in it cannot be identified"),
            Reason::Guarded { prog_type } => {
                let prog_type = prog_type.0;
                write!(
                    f,
                    "while a {prog_type} program runs, the kernel drops samples of events with a program, uncounted"
                )
            }
            Reason::InSamplingInterrupt => f.write_str("a perf_event program runs in the sampling interrupt"),
            Reason::InterruptsOff { hook } => {
                write!(f, "{hook} runs with interrupts off, where this event cannot sample")
            }
            Reason::Unsampled { expected } => {
                write!(f, "it ran long enough for {expected} samples and got none: interrupts are off while it runs")
            }
            Reason::LengthUnknown => f.write_str("the recording does not state its duration or number of CPUs"),
            Reason::CapacityUnknown => f.write_str("the machine's maximum for this event is not known"),
            Reason::NoTaskIds => f.write_str("samples have no task ids"),
            Reason::ForeignTasks => f.write_str("tasks outside the recorder's pid namespace look like the idle task"),
            Reason::NoKernelMap => f.write_str("no kernel map in the recording: unaccounted code cannot be identified"),
            Reason::NoCallChains => {
                f.write_str("no kernel call chains in the recording: what programs call, and what calls them, is n/a")
            }
            Reason::LostTogether { records } => {
                write!(f, "losses were counted for all events together: {records} records")
            }
            Reason::NoKernelSymbols => f.write_str("no kernel symbols in the recording"),
            Reason::EntryInlined => f.write_str("the kernel inlines what runs the program into its caller"),
            Reason::PartOnly => f.write_str("only a part of the recording exists or is selected"),
            Reason::TooManyIntervals => f.write_str("there are too many intervals to spread the counts over"),
            Reason::NotForThisLine => f.write_str("not known for this line"),
            Reason::NotInRecordings { side } => write!(f, "it is in no recording of the {side} side"),
            Reason::NoSuchEvent => f.write_str("not every recording has samples of the event"),
            Reason::TooFewIntervals => f.write_str("too few independent intervals to estimate the error"),
            Reason::NotShown => f.write_str("the bound lies inside the interval"),
            Reason::NoProgramMatches => f.write_str("no program matches it"),
            Reason::NoMapMemory => f.write_str("the recording lacks the memory size of some of its maps"),
            Reason::NoProgInfo => f.write_str("the recording has no bpf_prog_info of it"),
            Reason::NoInstructions => {
                f.write_str("the recording has none: the kernel withheld them, or they were not requested")
            }
            Reason::FunctionUnbounded => f.write_str("the recording does not say where the function begins"),
            Reason::NoLineInfo => f.write_str("the program was loaded without line information"),
            Reason::NoLineAddresses => f.write_str("the recording does not say where the machine code of each line is"),
            Reason::NotDecoded { arch } if arch.is_empty() => {
                f.write_str("the recording does not say which processor they are for")
            }
            Reason::NotDecoded { arch } => write!(f, "instructions of {arch} are not decoded"),
        }
    }
}

/// A program type, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgTypeName(pub ProgType);

impl Serialize for ProgTypeName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

coded! {
    /// What cannot be true of counts.
    Anomaly {
        /// More runs were measured than there were.
        MoreMeasuredThanRan {
            /// Runs that were measured.
            measured: u64,
            /// All runs.
            runs: u64,
        } = "more_measured_than_ran",
        /// More time than the machine had.
        TimeExceedsMachine {
            /// Time in the program, ns.
            time_ns: u64,
            /// Time that the CPUs had, ns.
            machine_ns: u64,
        } = "time_exceeds_machine",
        /// An event was on the hardware for longer than it was enabled.
        RunningExceedsEnabled {
            /// Its name.
            event: String,
            /// On the hardware, ns.
            running_ns: u64,
            /// Enabled, ns.
            enabled_ns: u64,
        } = "running_exceeds_enabled",
        /// An event was enabled for longer than the CPUs had time.
        EnabledExceedsMachine {
            /// Its name.
            event: String,
            /// Enabled, ns.
            enabled_ns: u64,
            /// Time that the CPUs had, ns.
            machine_ns: u64,
        } = "enabled_exceeds_machine",
        /// More of an event than any CPU can do in the time.
        EventExceedsTime {
            /// Its name.
            event: String,
            /// How many.
            value: u64,
            /// CPU time, ns.
            cpu_ns: u64,
        } = "event_exceeds_time",
        /// Snapshots do not follow from each other.
        SnapshotsDisagree {
            /// How the first of them does not.
            first: SnapshotFault,
            /// How many more.
            more: u64,
        } = "snapshots_disagree",
    }
}

/// The prose of anomalies.
impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Anomaly::MoreMeasuredThanRan { measured, runs } => write!(f, "{measured} measured runs of {runs}"),
            Anomaly::TimeExceedsMachine { time_ns, machine_ns } => {
                write!(f, "{time_ns} ns in it, but its CPUs had {machine_ns} ns (possible only if it sleeps)")
            }
            Anomaly::RunningExceedsEnabled { event, running_ns, enabled_ns } => {
                write!(f, "{event}: counted for {running_ns} ns of {enabled_ns} ns")
            }
            Anomaly::EnabledExceedsMachine { event, enabled_ns, machine_ns } => {
                write!(f, "{event}: enabled for {enabled_ns} ns, but its CPUs had {machine_ns} ns")
            }
            Anomaly::EventExceedsTime { event, value, cpu_ns } => {
                write!(f, "{event}: {value} in {cpu_ns} ns of CPU time")
            }
            Anomaly::SnapshotsDisagree { first, more } => {
                write!(f, "its counts are impossible: {first}")?;
                if *more > 0 { write!(f, ", and {more} more like it") } else { Ok(()) }
            }
        }
    }
}

coded! {
    /// How a snapshot does not follow from the one before.
    SnapshotFault {
        /// A total fell.
        Fell {
            /// Which total.
            what: &'static str,
            /// It was.
            from: u64,
            /// It is.
            to: u64,
            /// When it was, ns of the recording's clock.
            after_ns: u64,
        } = "fell",
        /// There are other counters than before.
        CountersChanged {
            /// How many there were.
            from: usize,
            /// How many there are.
            to: usize,
        } = "counters_changed",
        /// The snapshots are not in the order of their times.
        OutOfOrder = "out_of_order",
        /// The resolution of the histogram changed.
        ResolutionChanged = "resolution_changed",
    }
}

/// The prose of faults.
impl fmt::Display for SnapshotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotFault::Fell { what, from, to, after_ns } => write!(
                f,
                "{what} fell from {from} to {to} after {}.{:09} s",
                after_ns / 1_000_000_000,
                after_ns % 1_000_000_000
            ),
            SnapshotFault::CountersChanged { from, to } => write!(f, "{from} counters became {to}"),
            SnapshotFault::OutOfOrder => f.write_str("its snapshots are not in the order of their times"),
            SnapshotFault::ResolutionChanged => f.write_str("the resolution of its histogram changed"),
        }
    }
}

/// A [`Known`] as members of the object around it: the value or `null`, and where it is not known the prose and the code of
/// the reason. To be used as `#[serde(flatten, serialize_with = "Members::serialize")]`.
macro_rules! known_members {
    ($name:ident { $value:ident, $unknown:ident, $reason:ident }: $type:ty) => {
        #[derive(Serialize, schemars::JsonSchema)]
        pub(crate) struct $name {
            /// `null` when it is not known.
            $value: Option<$type>,
            /// Why it is not known, in words.
            #[serde(skip_serializing_if = "Option::is_none")]
            $unknown: Option<String>,
            /// The same for programs.
            #[serde(skip_serializing_if = "Option::is_none")]
            $reason: Option<$crate::model::known::Lack>,
        }

        impl $name {
            pub(crate) fn serialize<S: serde::Serializer>(
                known: &Known<$type>,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let members = $name { $value: known.value().cloned(), $unknown: known.why(), $reason: known.lack() };
                Serialize::serialize(&members, serializer)
            }
        }
    };
}

pub(crate) use known_members;
