//! Values that may be unknown, and the reasons why. Enums name the reasons; the sentences of these enums are written only in this module.

use super::text::some;
use crate::options::worded_by_json;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// A side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffSide {
    /// Recordings before the change.
    Base,
    /// Recordings after the change.
    New,
}

worded_by_json! { DiffSide }

/// A value, or the reason why it is unknown.
#[derive(Debug, Clone, PartialEq)]
pub enum Known<T> {
    /// The value.
    Value(T),
    /// The recording does not contain the value.
    Unknown(Reason),
    /// The recording contains a contradiction. Boxed, because an anomaly is rare and larger than most values.
    Impossible(Box<Anomaly>),
}

impl<T> Known<T> {
    /// The value, if it is known.
    pub fn value(&self) -> Option<&T> {
        match self {
            Known::Value(value) => Some(value),
            Known::Unknown(_) | Known::Impossible(_) => None,
        }
    }

    /// The value, if it is known.
    pub fn into_value(self) -> Option<T> {
        match self {
            Known::Value(value) => Some(value),
            Known::Unknown(_) | Known::Impossible(_) => None,
        }
    }

    /// Returns true if there is a value.
    pub fn is_value(&self) -> bool {
        self.value().is_some()
    }

    /// Returns the reason why the value is unknown, in words; `None` for a value.
    pub fn why(&self) -> Option<String> {
        match self {
            Known::Value(_) => None,
            Known::Unknown(reason) => Some(reason.to_string()),
            Known::Impossible(anomaly) => Some(anomaly.to_string()),
        }
    }

    /// Applies `then` to a value; keeps a reason.
    pub fn map<U>(self, then: impl FnOnce(T) -> U) -> Known<U> {
        self.and_then(|value| Known::Value(then(value)))
    }

    /// Applies `then` to a value; keeps a reason.
    pub fn and_then<U>(self, then: impl FnOnce(T) -> Known<U>) -> Known<U> {
        match self {
            Known::Value(value) => then(value),
            Known::Unknown(reason) => Known::Unknown(reason),
            Known::Impossible(anomaly) => Known::Impossible(anomaly),
        }
    }

    /// Turns `Some` into a known value, and `None` into an unknown value with `reason`.
    pub fn or_unknown(value: Option<T>, reason: Reason) -> Known<T> {
        value.map_or(Known::Unknown(reason), Known::Value)
    }

    /// Reason or anomaly, for JSON; `None` for a value.
    pub(crate) fn lack(&self) -> Option<Lack> {
        match self {
            Known::Value(_) => None,
            Known::Unknown(reason) => Some(Lack::Reason(reason.clone())),
            Known::Impossible(anomaly) => Some(Lack::Anomaly(anomaly.clone())),
        }
    }
}

/// Serializes the value alone, or `null`. `known_members` adds the reason as a member beside the value.
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

/// Reason why there is no value: a [`Reason`] or an [`Anomaly`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Lack {
    Reason(Reason),
    Anomaly(Box<Anomaly>),
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

/// Returns the schema of an object: `code` is one of `codes`, `text` the sentence; further members are the numbers and names in the sentence.
pub(super) fn coded_schema(codes: &[&str]) -> Schema {
    json_schema!({
        "type": "object",
        "properties": { "code": { "enum": codes }, "text": { "type": "string" } },
        "required": ["code", "text"]
    })
}

/// Gives a type that is serialized as another one the schema of the other one.
macro_rules! schema_of_members {
    ($type:ident: $members:ty) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$members>::json_schema(generator)
            }
        }
    };
}

pub(crate) use schema_of_members;

/// Defines an enum whose variants have a code for scripts and a sentence for people. The sentence is a format string with the variant's fields. Codes
/// are literals, so that JSON does not change when a variant is renamed.
macro_rules! coded {
    (
        $(#[$about:meta])*
        $name:ident {
            $(
                $(#[$doc:meta])*
                $variant:ident $({ $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? })? = $code:literal:
                    $text:literal $(, $arg:expr)*;
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "the sentence of a variant describes its fields")]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant $({ $($(#[$field_doc])* $field: $type,)* })?,)*
        }

        impl $name {
            /// The codes of all variants.
            pub const CODES: &'static [&'static str] = &[$($code,)*];

            /// The code of the variant in JSON.
            pub fn code(&self) -> &'static str {
                match self {
                    $($name::$variant $({ $($field: _,)* })? => $code,)*
                }
            }
        }

        /// Writes the sentence.
        impl std::fmt::Display for $name {
            #[allow(unused_variables, reason = "a sentence may omit a field")]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $($name::$variant $({ $($field,)* })? => write!(f, $text $(, $arg)*),)*
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
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

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::model::known::coded_schema(Self::CODES)
            }
        }
    };
}

pub(crate) use coded;

coded! {
    /// Reason why a value is unknown.
    Reason {
        /// Reason given by the recorder.
        Recorder { said: String } = "recorder": "{said}";
        /// The recording has no run statistics.
        NoRunStatistics = "no_run_statistics": "the recording has no run statistics";
        /// The recording has no run statistics; `counters` is the recorder's choice of counters, for instance `off`.
        CountersAre { counters: String } = "counters_are": "counters: {counters}";
        /// The recording has no exact counters.
        NoExactCounters = "no_exact_counters": "the recording has no exact counters";
        /// The recording lacks the program's id or load time.
        ProgramUnidentified = "program_unidentified": "the recording does not identify the program";
        /// The program was not chosen to be counted exactly.
        NotChosen = "not_chosen": "the program was not selected for counting";
        /// The selected time has fewer than two snapshots.
        NoSnapshots = "no_snapshots": "the selected time has fewer than two snapshots of the program";
        /// Run statistics were off for all or most of the time that the program was loaded.
        StatisticsWereOff = "statistics_were_off": "run statistics were off for most of the program's lifetime";
        /// The kernel counts only runs of programs that it enters itself. Other programs enter this one by tail call or function replacement.
        NotEntered = "not_entered":
            "the kernel counts only runs that it starts itself, and other programs start this one by tail call or function \
             replacement";
        /// The program did not run.
        NoRuns = "no_runs": "the program did not run";
        /// No sample hit the program.
        NoSamples = "no_samples": "no sample hit the program";
        /// The event was not counted for this program.
        NotCounted = "not_counted": "the event was not counted for this program";
        /// No run was measured.
        NoRunMeasured = "no_run_measured": "no run was measured";
        /// The event was not scheduled on the PMU while the program ran.
        NotOnHardware = "not_on_hardware": "the event was not on the PMU while the program ran";
        /// The interpreter runs the program.
        Interpreted = "interpreted": "the program has no machine code: the kernel interprets it";
        /// The kernel hid the program's addresses from the recorder.
        AddressesHidden = "addresses_hidden": "the kernel hid the program's addresses: samples in the program cannot be identified";
        /// While this program runs, the kernel drops samples of events that have a BPF program.
        Guarded { prog_type: String } = "guarded":
            "while a {prog_type} program runs, the kernel drops the samples of events that have a BPF program, without counting these samples";
        /// The program is a perf_event program: it runs in the sampling interrupt itself.
        InSamplingInterrupt = "in_sampling_interrupt": "a perf_event program runs in the sampling interrupt";
        /// The program's hook runs with interrupts off.
        InterruptsOff { hook: String } = "interrupts_off":
            "{hook} runs with interrupts off; this event cannot sample it";
        /// The program ran long enough for `expected` samples, but has none.
        Unsampled { expected: u64 } = "unsampled":
            "the program ran long enough for {expected} samples but has none: interrupts are off while it runs";
        /// The length of the recording or its number of CPUs is unknown.
        LengthUnknown = "length_unknown": "the recording does not state its duration or number of CPUs";
        /// The maximum of the event on this machine is not known.
        CapacityUnknown = "capacity_unknown": "the machine's maximum for this event is not known";
        /// Samples have no task ids.
        NoTaskIds = "no_task_ids": "samples have no task ids";
        /// Tasks of other pid namespaces look like the idle task.
        ForeignTasks = "foreign_tasks": "tasks outside the recorder's pid namespace look like the idle task";
        /// The recording has no MMAP record of the kernel.
        NoKernelMap = "no_kernel_map": "the recording has no MMAP record of the kernel: samples of kernel code without a name cannot be told apart from other samples";
        /// The recording has no kernel call chains.
        NoCallChains = "no_call_chains":
            "the recording has no kernel call chains: the cost of code that programs call, and of code that runs programs, \
             is n/a";
        /// Losses were counted for all events together.
        LostTogether { records: u64 } = "lost_together":
            "the kernel counted {records} lost records for all events together, not for each event";
        /// The recording has no kernel symbols of the code that runs programs.
        NoKernelSymbols = "no_kernel_symbols": "the recording has no kernel symbols";
        /// The kernel inlines the function that runs the program into its caller, so that samples cannot tell the two functions apart.
        EntryInlined = "entry_inlined": "the kernel inlines the function that runs the program into its caller: samples \
                                         cannot tell the two apart";
        /// The recording is incomplete, or only a part of it is selected.
        PartOnly = "part_only": "the recording is incomplete, or only a part of it is selected";
        /// The view has too many intervals to spread the counts over them.
        TooManyIntervals = "too_many_intervals": "the view has too many intervals to spread the counts over them";
        /// The number is not known for this line, for instance because the line combines several programs.
        NotForThisLine = "not_for_this_line": "not known for this line";
        /// No recording of a side has the program.
        NotInRecordings { side: DiffSide } = "not_in_recordings": "no recording of the {side} side has the program";
        /// Some recordings lack the event.
        NoSuchEvent = "no_such_event": "not every recording has samples of the event";
        /// Too few independent intervals to estimate the error.
        TooFewIntervals = "too_few_intervals": "the recordings have too few independent intervals to estimate the error";
        /// The bound lies inside the confidence interval.
        NotShown = "not_shown": "the bound lies inside the confidence interval";
        /// The recording has no `bpf_prog_info` of the program.
        NoProgInfo = "no_prog_info": "the recording has no bpf_prog_info of the program";
        /// The recording lacks the memory size of some maps.
        NoMapMemory = "no_map_memory": "the recording lacks the memory size of some of the program's maps";
        /// The recording lacks the resident memory of some processes.
        NoResidentMemory = "no_resident_memory":
            "the recording lacks the resident memory of some of the owner's processes, for instance because they ended";
        /// The kernel gave the recorder no instructions, or the recorder did not ask for them.
        NoInstructions = "no_instructions":
            "the recording has no instructions: the kernel withheld them, or the recorder did not request them";
        /// The recording lacks the bounds of the function's instructions.
        FunctionUnbounded = "function_unbounded": "the recording does not say where the function begins";
        /// The program was loaded without BTF line information.
        NoLineInfo = "no_line_info": "the program was loaded without line information";
        /// The recording lacks the machine-code addresses of source lines.
        NoLineAddresses = "no_line_addresses": "the recording does not say where the machine code of each line is";
        /// bprec does not decode the machine code of the recorded processor.
        NotDecoded {
            /// Architecture in the recording; empty when unknown.
            arch: String,
        } = "not_decoded": "{}", not_decoded(arch);
    }
}

/// Returns the reason why instructions are not decoded.
fn not_decoded(arch: &str) -> String {
    match arch {
        "" => "the recording does not name the processor of the instructions".to_owned(),
        arch => format!("instructions of {arch} are not decoded"),
    }
}

impl Reason {
    /// Reason given by the recorder.
    pub(crate) fn recorder(said: &str) -> Reason {
        Reason::Recorder { said: said.to_owned() }
    }
}

coded! {
    /// Contradiction in counts.
    Anomaly {
        /// More runs were measured than counted.
        MoreMeasuredThanRan { measured: u64, runs: u64 } = "more_measured_than_ran":
            "{measured} runs were measured, but the program ran only {runs} times";
        /// A program took more time than all its CPUs had.
        TimeExceedsMachine { time_ns: u64, machine_ns: u64 } = "time_exceeds_machine":
            "the program took {time_ns} ns, but its CPUs had only {machine_ns} ns (possible only if the program sleeps)";
        /// An event was scheduled on the PMU longer than it was enabled.
        RunningExceedsEnabled { event: String, running_ns: u64, enabled_ns: u64 } = "running_exceeds_enabled":
            "{event}: counted for {running_ns} ns, but enabled for only {enabled_ns} ns";
        /// An event was enabled longer than the CPUs had time.
        EnabledExceedsMachine { event: String, enabled_ns: u64, machine_ns: u64 } = "enabled_exceeds_machine":
            "{event}: enabled for {enabled_ns} ns, but its CPUs had only {machine_ns} ns";
        /// The count of an event is larger than a CPU can reach in the time.
        EventExceedsTime { event: String, value: u64, cpu_ns: u64 } = "event_exceeds_time":
            "{event}: the count {value} is more than a CPU can reach in {cpu_ns} ns of CPU time";
        /// Consecutive snapshots contradict each other.
        SnapshotsDisagree { first: SnapshotFault, more: u64 } = "snapshots_disagree":
            "snapshots of its counts contradict each other: {first}{}", some(*more, |more| format!(", and {more} more like it"));
    }
}

coded! {
    /// Contradiction between a snapshot and its predecessor.
    SnapshotFault {
        /// A cumulative value decreased.
        Fell { what: &'static str, from: u64, to: u64, after_ns: u64 } = "fell":
            "{what} fell from {from} to {to} after {}.{:09} s", after_ns / 1_000_000_000, after_ns % 1_000_000_000;
        /// The set of counters changed.
        CountersChanged { from: usize, to: usize } = "counters_changed": "the number of counters changed from {from} to {to}";
        /// Snapshots are not in the order of their times.
        OutOfOrder = "out_of_order": "the snapshots are not in the order of their times";
        /// The resolution of the histogram changed.
        ResolutionChanged = "resolution_changed": "the resolution of the histogram changed";
    }
}

/// Defines a struct that serializes a [`Known`] as members of the enclosing object: the value or `null`, the reason in words, and the reason as a
/// code. Used as `#[serde(flatten, serialize_with = "Members::serialize")]`.
macro_rules! known_members {
    ($name:ident { $value:ident, $unknown:ident, $reason:ident }: $type:ty) => {
        #[derive(Serialize, schemars::JsonSchema)]
        pub(crate) struct $name {
            /// Value; `null` when unknown.
            $value: Option<$type>,
            /// Reason why the value is unknown, in words.
            #[serde(skip_serializing_if = "Option::is_none")]
            $unknown: Option<String>,
            /// Reason as an object with a code, for scripts.
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
