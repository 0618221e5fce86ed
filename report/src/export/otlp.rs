//! Profiles of the OpenTelemetry protocol, `v1development`: a `ProfilesData` message. Field numbers are those of the published format.
//!
//! Samples in a container have the container as their resource, all others the host. Tables are shared by all profiles; the first entry of each is
//! empty, and number 0 refers to it.

use super::{Table, as_i64, number_of_last, unit_name};
use crate::model::text::printable;
use crate::model::{Count, FrameKind, Profile, Recording, StackLabel, Stacks, Workload};
use prost::Message;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io::{self, Write};

#[derive(Clone, PartialEq, Message)]
struct ProfilesData {
    #[prost(message, repeated, tag = "1")]
    resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    dictionary: Option<Dictionary>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_profiles: Vec<ScopeProfiles>,
}

/// The machine, or a container on it.
#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<ResourceAttribute>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceAttribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    profiles: Vec<OtlpProfile>,
}

/// The tool that made the profiles.
#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpProfile {
    #[prost(message, optional, tag = "1")]
    sample_type: Option<OtlpValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<OtlpSample>,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    period_type: Option<OtlpValueType>,
    #[prost(int64, tag = "6")]
    period: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct OtlpValueType {
    #[prost(int32, tag = "1")]
    type_strindex: i32,
    #[prost(int32, tag = "2")]
    unit_strindex: i32,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpSample {
    #[prost(int32, tag = "1")]
    stack_index: i32,
    #[prost(int32, repeated, tag = "2")]
    attribute_indices: Vec<i32>,
    #[prost(int64, repeated, tag = "4")]
    values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Dictionary {
    #[prost(message, repeated, tag = "1")]
    mapping_table: Vec<OtlpMapping>,
    #[prost(message, repeated, tag = "2")]
    location_table: Vec<OtlpLocation>,
    #[prost(message, repeated, tag = "3")]
    function_table: Vec<OtlpFunction>,
    #[prost(message, repeated, tag = "4")]
    link_table: Vec<OtlpLink>,
    #[prost(string, repeated, tag = "5")]
    string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    attribute_table: Vec<Attribute>,
    #[prost(message, repeated, tag = "7")]
    stack_table: Vec<OtlpStack>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
struct OtlpMapping {
    #[prost(int32, tag = "4")]
    filename_strindex: i32,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpLocation {
    #[prost(int32, tag = "1")]
    mapping_index: i32,
    #[prost(message, repeated, tag = "3")]
    lines: Vec<OtlpLine>,
    #[prost(int32, repeated, tag = "4")]
    attribute_indices: Vec<i32>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct OtlpLine {
    #[prost(int32, tag = "1")]
    function_index: i32,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
struct OtlpFunction {
    #[prost(int32, tag = "1")]
    name_strindex: i32,
    #[prost(int32, tag = "2")]
    system_name_strindex: i32,
    #[prost(int32, tag = "3")]
    filename_strindex: i32,
    #[prost(int64, tag = "4")]
    start_line: i64,
}

/// Link from a sample to a trace. Recordings have no traces, so the table has only the empty entry.
#[derive(Clone, Copy, PartialEq, Message)]
struct OtlpLink {}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct Attribute {
    #[prost(int32, tag = "1")]
    key_strindex: i32,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
enum AnyValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

impl AnyValue {
    fn text(text: &str) -> Option<AnyValue> {
        Some(AnyValue { value: Some(AnyValueKind::Text(printable(text).into_owned())) })
    }

    fn number(number: i64) -> Option<AnyValue> {
        Some(AnyValue { value: Some(AnyValueKind::Number(number)) })
    }
}

/// Call chain: locations, innermost first.
#[derive(Clone, PartialEq, Message)]
struct OtlpStack {
    #[prost(int32, repeated, tag = "1")]
    location_indices: Vec<i32>,
}

struct Tables {
    texts: Table<String>,
    mappings: Table<OtlpMapping>,
    functions: Table<OtlpFunction>,
    attributes: Table<Attribute>,
}

impl Tables {
    fn text(&mut self, text: &str) -> i32 {
        self.texts.text(text)
    }

    fn attribute(&mut self, key: &str, value: Option<AnyValue>) -> i32 {
        let key_strindex = self.text(key);
        self.attributes.number(Attribute { key_strindex, value })
    }

    fn value_type(&mut self, name: &str, unit: &str) -> OtlpValueType {
        OtlpValueType { type_strindex: self.text(name), unit_strindex: self.text(unit) }
    }
}

impl Profile {
    /// Writes the call chains as a `ProfilesData` message of OpenTelemetry's protocol.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_otlp(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&message(self).encode_to_vec())
    }
}

fn message(profile: &Profile) -> ProfilesData {
    let (stacks, recording) = (&profile.samples.stacks, &profile.report.recording);
    let mut tables =
        Tables { texts: Table::new(), mappings: Table::new(), functions: Table::new(), attributes: Table::new() };
    let location_table = locations(stacks, &mut tables);
    let owners = owners(profile, &mut tables);
    let mut stack_table = vec![OtlpStack::default()];
    // Samples by container; those of the host come first.
    let mut samples: BTreeMap<Option<u32>, Vec<(OtlpSample, Count)>> = BTreeMap::new();
    for stack in &stacks.stacks {
        let location_indices = stack.frames.iter().rev().map(|frame| *frame as i32 + 1).collect();
        // Stacks are sorted by their frames: a call chain that occurs in several containers stands in adjacent entries, and gets one row in the
        // table.
        if stack_table.last().is_some_and(|last| last.location_indices != location_indices) {
            stack_table.push(OtlpStack { location_indices });
        }
        let mut attribute_indices: Vec<i32> =
            stacks.labels(stack).into_iter().map(|label| attribute_of(label, &mut tables)).collect();
        attribute_indices.extend(stacks.innermost_program(stack).and_then(|frame| owners[frame as usize]));
        let stack_index = number_of_last(&stack_table);
        let sample = OtlpSample { stack_index, attribute_indices, values: Vec::new() };
        samples.entry(stack.container).or_default().push((sample, stack.count));
    }

    let weights = tables.value_type(&stacks.event, unit_name(stacks.unit));
    let counts = tables.value_type("samples", "count");
    let profile_of = |samples: &[(OtlpSample, Count)], sample_type, value: fn(&Count) -> u64| OtlpProfile {
        sample_type: Some(sample_type),
        samples: samples
            .iter()
            .map(|(sample, count)| OtlpSample { values: vec![as_i64(value(count))], ..sample.clone() })
            .collect(),
        time_unix_nano: recording.start_unix_ns.unwrap_or(0),
        duration_nano: recording.elapsed_ns.unwrap_or(0),
        period_type: Some(weights),
        period: as_i64(stacks.mean_weight()),
    };
    let scope = Scope { name: "bprec".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let resource_profiles = samples.iter().map(|(container, samples)| {
        let container = container.and_then(|at| profile.samples.containers.get(at as usize));
        let by_weight = profile_of(samples, weights, |count| count.weight);
        let by_samples = profile_of(samples, counts, |count| count.samples);
        let scope_profiles = vec![ScopeProfiles { scope: Some(scope.clone()), profiles: vec![by_weight, by_samples] }];
        ResourceProfiles { resource: Some(resource(recording, container)), scope_profiles }
    });
    ProfilesData {
        resource_profiles: resource_profiles.collect(),
        dictionary: Some(Dictionary {
            mapping_table: tables.mappings.rows,
            location_table,
            function_table: tables.functions.rows,
            link_table: vec![OtlpLink::default()],
            string_table: tables.texts.rows,
            attribute_table: tables.attributes.rows,
            stack_table,
        }),
    }
}

/// Returns the empty location, then one location per frame, in the order of the frames.
fn locations(stacks: &Stacks, tables: &mut Tables) -> Vec<OtlpLocation> {
    let mut locations = vec![OtlpLocation::default()];
    for frame in &stacks.frames {
        let file = tables.text(frame.kind.file().unwrap_or_default());
        let source = frame.source.as_ref();
        let function = OtlpFunction {
            name_strindex: tables.text(&frame.label()),
            system_name_strindex: tables.text(&frame.name),
            filename_strindex: source.map_or(file, |source| tables.text(&source.file)),
            start_line: source.map_or(0, |source| source.function_line.into()),
        };
        let line = OtlpLine {
            function_index: tables.functions.number(function),
            line: source.map_or(0, |source| source.line.into()),
        };
        let frame_type = match &frame.kind {
            FrameKind::Task => None,
            FrameKind::User { .. } => Some("native"),
            FrameKind::Kernel => Some("kernel"),
            FrameKind::Program { .. } | FrameKind::Image => Some("bpf"),
        };
        let attribute = frame_type.map(|kind| tables.attribute("profile.frame.type", AnyValue::text(kind)));
        locations.push(OtlpLocation {
            mapping_index: tables.mappings.number(OtlpMapping { filename_strindex: file }),
            lines: vec![line],
            attribute_indices: attribute.into_iter().collect(),
        });
    }
    locations
}

fn attribute_of(label: StackLabel<'_>, tables: &mut Tables) -> i32 {
    let (key, value) = match label {
        StackLabel::Comm(name) => ("thread.name", AnyValue::text(name)),
        StackLabel::ProgramName(name) => ("bpf.program.name", AnyValue::text(name)),
        StackLabel::ProgramId(id) => ("bpf.program.id", AnyValue::number(id.into())),
        StackLabel::ProgramType(prog_type) => ("bpf.program.type", AnyValue::text(&prog_type.to_string())),
        StackLabel::ProgramTag(tag) => ("bpf.program.tag", AnyValue::text(&tag.to_string())),
    };
    tables.attribute(key, value)
}

/// Returns, for each frame, the number of the attribute that names the holders of the frame's program: processes and pins. `None` if the frame is not
/// of a program, or if no holder is known.
fn owners(profile: &Profile, tables: &mut Tables) -> Vec<Option<i32>> {
    let programs = profile.report.programs.iter();
    let holders: FxHashMap<String, String> =
        programs.map(|program| (program.label_with_id(), program.holders())).collect();
    let frames = profile.samples.stacks.frames.iter();
    let attributes = frames.map(|frame| {
        let holders = holders.get(&frame.program_label()?).filter(|holders| !holders.is_empty())?;
        Some(tables.attribute("bpf.program.owner", AnyValue::text(holders)))
    });
    attributes.collect()
}

/// Returns the host as a resource, with the container if there is one, under the names of the semantic conventions.
fn resource(recording: &Recording, container: Option<&Workload>) -> Resource {
    let host = [
        ("host.id", recording.machine_id.as_deref()),
        ("host.name", recording.hostname.as_deref()),
        ("host.arch", recording.arch.as_deref()),
        ("host.cpu.model.name", recording.cpu_model.as_deref()),
        ("os.type", Some("linux")),
        ("os.version", recording.os_release.as_deref()),
    ];
    let known = host.into_iter().chain(container.map(container_attributes).into_iter().flatten());
    let attributes = known.filter_map(|(key, text)| {
        let value = AnyValue::text(text?);
        Some(ResourceAttribute { key: key.to_owned(), value })
    });
    Resource { attributes: attributes.collect() }
}

/// Runtimes that put the name of a container into the path of its cgroup. Other runtimes put the id of the container there.
const RUNTIMES_WITH_NAMES: [&str; 3] = ["lxc", "nspawn", "machine"];
/// Least number of digits in the UID of a Kubernetes pod. Ids of Podman's pods are shorter: the index cuts them to 12 digits.
const POD_UID_DIGITS: usize = 32;

fn container_attributes(container: &Workload) -> [(&'static str, Option<&str>); 7] {
    let runtime = container.runtime.as_deref();
    let is_named = runtime.is_some_and(|runtime| RUNTIMES_WITH_NAMES.contains(&runtime));
    let (namespace, pod) = container.pod_name.as_deref().and_then(|name| name.split_once('/')).unzip();
    [
        ("container.id", container.id.as_deref().filter(|_| !is_named)),
        ("container.name", container.id.as_deref().filter(|_| is_named)),
        // `container` means that the cgroup's path does not show which runtime made the container.
        ("container.runtime.name", runtime.filter(|runtime| *runtime != "container")),
        ("k8s.namespace.name", namespace),
        ("k8s.pod.name", pod),
        ("k8s.pod.uid", container.pod.as_deref().filter(|pod| pod.len() >= POD_UID_DIGITS)),
        ("k8s.container.name", container.container_name.as_deref()),
    ]
}
