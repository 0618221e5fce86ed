//! Header of a recording as perf prints it: facts about machine and recording, a line each.

use crate::index::sections::{btf_of, symbol_of};
use crate::index::states::Traces;
use crate::input::recording::OpenRecording;
use crate::model::Header;
use crate::{Input, Result};
use bprec_format::bpf::btf::{BpfBtfSection, Btf};
use bprec_format::bpf::prog_info::{BpfProgInfoSection, ProgInfo};
use bprec_format::bprec::state::State;
use bprec_format::feature::{
    BuildIds, CacheLineSize, Caches, ClockData, ClockResolution, Compression, CpuCount, CpuDomains, CpuPmuCaps,
    CpuTopology, ElfMachine, Feature, GroupDesc, HybridTopology, MemoryTopology, NumaTopology, PmuCap, PmuCaps,
    PmuMappings, SampleTime, SectionContent, Text, TextList, TotalMemory,
};
use bprec_format::records::Payload;
use bprec_format::{AttrFlags, Event, FeatureSection, ReadFormat, Record, RecordType, SampleType};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Header with all features, file by file.
///
/// # Errors
/// Fails if the recording cannot be read.
pub fn header(input: &Input) -> Result<Header> {
    let mut lines = Vec::new();
    let read = std::iter::once(input).chain(input.later()).try_for_each(|file| {
        if !input.later().is_empty() {
            lines.push(format!("file : {}", file.path().display()));
        }
        lines.extend(all(&OpenRecording::open_file(file)?));
        Ok(())
    });
    input.checked(read.map(|()| Header::new(lines)))
}

fn all(recording: &OpenRecording<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for section in recording.sections() {
        lines.extend(feature(recording, section));
        if section.feature == Feature::CMDLINE {
            lines.extend(events(recording));
        }
    }
    if !recording.sections().iter().any(|section| section.feature == Feature::CMDLINE) {
        lines.extend(events(recording));
    }
    let RecordedFacts { machine_id, boot_id, longest_gap_ns, traces } = RecordedFacts::of(recording);
    let ids = [("machine id", machine_id), ("boot id", boot_id)].into_iter().filter(|(_, id)| !id.is_empty());
    lines.extend(ids.map(|(what, id)| format!("{what} : {id}")));
    lines.extend(
        longest_gap_ns
            .map(|ns| format!("longest time between two reads of the ring buffers : {:.1} ms", ns as f64 / 1e6)),
    );
    if traces.bytes > 0 {
        let kind = traces.kind().unwrap_or_else(|| "of an unknown type".into());
        lines.push(format!("hardware trace data : {} bytes ({kind}), not decoded here", traces.bytes));
    }
    let missing = (1..=Feature::CLN_SIZE.0).map(Feature);
    let missing = missing.filter(|feature| recording.sections_of(*feature).next().is_none());
    let missing: Vec<String> = missing.filter_map(|feature| feature.name().map(str::to_owned)).collect();
    lines.push(format!("missing features: {}", missing.join(" ")));
    lines.extend(recording.problems().iter().map(|problem| format!("problem: {problem}")));
    lines
}

/// Facts from records outside the sections.
#[derive(Default)]
struct RecordedFacts {
    /// Id of the machine; empty if unknown.
    machine_id: String,
    /// Id of the boot; empty if unknown.
    boot_id: String,
    /// Longest time between two polls of the rings, ns, as the recorder reports at its end.
    longest_gap_ns: Option<u64>,
    traces: Traces,
}

impl RecordedFacts {
    fn of(recording: &OpenRecording<'_>) -> RecordedFacts {
        let mut facts = RecordedFacts::default();
        recording.for_each_slice(|slice| {
            for record in slice.records.into_iter().flatten().map_while(|record| record.ok()) {
                match record.kind {
                    RecordType::SAMPLE => facts.sample(recording, &record),
                    RecordType::AUXTRACE_INFO | RecordType::AUXTRACE => {
                        let layout = recording.events.all().first().map(|event| &event.layout);
                        let decoded = layout.and_then(|layout| Payload::decode(&record, layout).ok());
                        decoded.into_iter().for_each(|(payload, _)| facts.traces.take(&payload));
                    }
                    _ => {}
                }
            }
        });
        facts
    }

    fn sample(&mut self, recording: &OpenRecording<'_>, record: &Record<'_>) {
        match recording.state(record) {
            Some(Ok(State::Session(session))) => {
                (self.machine_id, self.boot_id) = (session.machine_id, session.boot_id);
            }
            Some(Ok(State::Cost(cost))) => self.longest_gap_ns = cost.longest_gap_ns,
            _ => {}
        }
    }
}

fn events<'r>(recording: &'r OpenRecording<'_>) -> impl Iterator<Item = String> + 'r {
    recording.events.all().iter().zip(&recording.names).map(|(event, name)| self::event(event, name))
}

fn event(event: &Event, name: &str) -> String {
    let attr = &event.attr;
    let join = |names: Vec<&str>| names.join("|");
    let ids: Vec<String> = event.ids.iter().map(ToString::to_string).collect();
    let mut line = format!("event : name = {name}, id = {{ {} }}", ids.join(", "));
    let sample_type =
        SampleType::NAMES.iter().filter(|(bit, _)| attr.sample_type.contains(*bit)).map(|(_, name)| *name);
    let read_format =
        ReadFormat::NAMES.iter().filter(|(bit, _)| attr.read_format.contains(*bit)).map(|(_, name)| *name);
    let period = if attr.flags.contains(AttrFlags::FREQ) { "sample_freq" } else { "sample_period" };
    // Writing to a string cannot fail.
    let _ = write!(
        line,
        ", type = {}, size = {}, config = {:#x}, {period} = {}, sample_type = {}, read_format = {}",
        attr.kind,
        attr.size,
        attr.config,
        attr.sample_period,
        join(sample_type.collect()),
        join(read_format.collect()),
    );
    for (bit, name) in AttrFlags::NAMES.iter().filter(|(bit, _)| attr.flags.contains(*bit)) {
        if *bit != AttrFlags::FREQ {
            let _ = write!(line, ", {} = 1", name.to_lowercase());
        }
    }
    if attr.flags.precise_ip() > 0 {
        let _ = write!(line, ", precise_ip = {}", attr.flags.precise_ip());
    }
    line
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of a feature.
fn feature(recording: &OpenRecording<'_>, section: &FeatureSection<'_>) -> Vec<String> {
    let name = |name: &str| read(recording, section, |Text(value)| vec![format!("{name} : {}", text(value))]);
    match section.feature {
        Feature::TRACING_DATA => vec![format!("contains formats of tracepoints: {} bytes", section.bytes.len())],
        Feature::BUILD_ID => read(recording, section, |BuildIds(ids)| {
            let hex = |id: &[u8]| id.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            ids.iter().map(|id| format!("build id of {}: {}", text(id.filename), hex(id.id.as_bytes()))).collect()
        }),
        Feature::HOSTNAME => name("hostname"),
        Feature::OSRELEASE => name("os release"),
        Feature::VERSION => name("perf version"),
        Feature::ARCH => name("arch"),
        Feature::CPUDESC => name("cpudesc"),
        Feature::CPUID => name("cpuid"),
        Feature::NRCPUS => read(recording, section, |count: CpuCount| {
            vec![format!("nrcpus online : {}", count.online), format!("nrcpus avail : {}", count.available)]
        }),
        Feature::TOTAL_MEM => {
            read(recording, section, |memory: TotalMemory| vec![format!("total memory : {} kB", memory.kib)])
        }
        Feature::CMDLINE => read(recording, section, |TextList(args)| {
            vec![format!("cmdline : {}", args.iter().map(|arg| text(arg)).collect::<Vec<_>>().join(" "))]
        }),
        // Events are printed from their attributes, with names from this section.
        Feature::EVENT_DESC => Vec::new(),
        Feature::CPU_TOPOLOGY => cpu_topology(recording, section),
        Feature::NUMA_TOPOLOGY => read(recording, section, |NumaTopology(nodes)| {
            let node = |node: &bprec_format::feature::NumaNode<'_>| {
                let memory = format!("meminfo : total = {} kB, free = {} kB", node.mem_total_kib, node.mem_free_kib);
                [format!("node{} {memory}", node.node), format!("node{} cpu list : {}", node.node, text(node.cpus))]
            };
            nodes.iter().flat_map(node).collect()
        }),
        Feature::BRANCH_STACK => vec!["contains samples with branch stack".into()],
        Feature::PMU_MAPPINGS => read(recording, section, |PmuMappings(pmus)| {
            let pmus: Vec<String> = pmus.iter().map(|(kind, name)| format!("{} = {kind}", text(name))).collect();
            vec![format!("pmu mappings: {}", pmus.join(", "))]
        }),
        Feature::GROUP_DESC => read(recording, section, |GroupDesc(groups)| {
            let group = |group: &bprec_format::feature::EventGroup<'_>| {
                // The members include the leader. Only existing events are listed, even if the section's count is larger.
                let names = recording.names.iter().skip(group.leader_index as usize).take(group.members as usize);
                let names: Vec<&str> = names.map(String::as_str).collect();
                format!("group: {}{{{}}}", text(group.name), names.join(","))
            };
            groups.iter().map(group).collect()
        }),
        Feature::AUXTRACE => vec!["contains AUX area data (e.g. instruction trace)".into()],
        Feature::STAT => vec!["contains stat data".into()],
        Feature::CACHE => read(recording, section, |caches: Caches<'_>| {
            let cache = |cache: &bprec_format::feature::Cache<'_>| {
                let (kind, size, cpus) = (text(cache.kind), text(cache.size), text(cache.cpus));
                format!("CPU cache info: L{} {kind:<15} {size} [{cpus}]", cache.level)
            };
            caches.caches.iter().map(cache).collect()
        }),
        Feature::SAMPLE_TIME => read(recording, section, |time: SampleTime| {
            // Rounded to the nearest µs, as perf does with printf.
            let duration_us = time.last_ns.saturating_sub(time.first_ns).saturating_add(500) / 1000;
            vec![
                format!("time of first sample : {}", seconds(time.first_ns)),
                format!("time of last sample : {}", seconds(time.last_ns)),
                format!("sample duration : {:>6}.{:03} ms", duration_us / 1000, duration_us % 1000),
            ]
        }),
        Feature::MEM_TOPOLOGY => read(recording, section, |memory: MemoryTopology| {
            let mut lines =
                vec![format!("memory nodes (nr {}, block size {:#x}):", memory.nodes.len(), memory.block_size_bytes)];
            lines.extend(
                memory.nodes.iter().map(|node| format!("    {} : {} blocks", node.node, node.blocks.iter().count())),
            );
            lines
        }),
        Feature::CLOCKID => read(recording, section, |clock: ClockResolution| {
            vec![format!("clockid frequency: {} MHz", 1000 / clock.resolution_ns.max(1))]
        }),
        Feature::BPF_PROG_INFO => programs(recording, section),
        Feature::BPF_BTF => match BpfBtfSection::new(&section.bytes, section.offset, recording.endian()) {
            Ok(blobs) => blobs.flatten().map(|(id, _)| format!("btf info of id {id}")).collect(),
            Err(error) => vec![problem(section.feature, &error)],
        },
        Feature::COMPRESSED => read(recording, section, |compression: Compression| {
            let kind = if compression.kind == 1 { "Zstd" } else { "Unknown" };
            vec![format!("compressed : {kind}, level = {}, ratio = {}", compression.level, compression.ratio)]
        }),
        Feature::CPU_PMU_CAPS => {
            read(recording, section, |CpuPmuCaps(caps)| vec![format!("cpu pmu capabilities: {}", pmu_caps(&caps))])
        }
        Feature::CLOCK_DATA => read(recording, section, |clock: ClockData| {
            vec![
                format!("clockid: {}", clock.clockid),
                format!(
                    "reference time: {} s at {} s of this clock",
                    seconds(clock.wall_clock_ns),
                    seconds(clock.clockid_ns)
                ),
            ]
        }),
        Feature::HYBRID_TOPOLOGY => read(recording, section, |HybridTopology(pmus)| {
            pmus.iter().map(|pmu| format!("{} cpu list : {}", text(pmu.pmu), text(pmu.cpus))).collect()
        }),
        Feature::PMU_CAPS => read(recording, section, |PmuCaps(pmus)| {
            pmus.iter().map(|pmu| format!("{} pmu capabilities: {}", text(pmu.pmu), pmu_caps(&pmu.caps))).collect()
        }),
        Feature::CPU_DOMAIN_INFO => read(recording, section, |domains: CpuDomains<'_>| {
            let mut lines = vec![format!("schedstat version : {}", domains.schedstat_version)];
            for cpu in &domains.cpus {
                for domain in &cpu.domains {
                    let name = domain.name.map(text).unwrap_or_default();
                    lines.push(format!("cpu {} domain {} {name} : {}", cpu.cpu, domain.domain, text(domain.cpulist)));
                }
            }
            lines
        }),
        Feature::E_MACHINE => read(recording, section, |machine: ElfMachine| {
            vec![format!("e_machine : {}, e_flags : {:#x}", machine.e_machine, machine.e_flags)]
        }),
        Feature::CLN_SIZE => {
            read(recording, section, |line: CacheLineSize| vec![format!("cacheline size : {}", line.bytes)])
        }
        feature => vec![format!("feature {feature}: {} bytes", section.bytes.len())],
    }
}

/// Returns the lines that `print` makes of a section, or a line about a section that cannot be read.
fn read<'s, T: SectionContent<'s>>(
    recording: &OpenRecording<'_>,
    section: &'s FeatureSection<'_>,
    print: impl FnOnce(T) -> Vec<String>,
) -> Vec<String> {
    match T::parse(&section.bytes, section.offset, recording.endian()) {
        Ok(partial) => {
            let mut lines = print(partial.value);
            lines.extend(partial.problem.map(|error| problem(section.feature, &error)));
            lines
        }
        Err(error) => vec![problem(section.feature, &error)],
    }
}

fn problem(feature: Feature, error: &bprec_format::Error) -> String {
    format!("problem: {feature}: {error}")
}

/// Formats ns as seconds with six decimals.
fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns / 1000 % 1_000_000)
}

fn pmu_caps(caps: &[PmuCap<'_>]) -> String {
    if caps.is_empty() {
        return "not available".into();
    }
    caps.iter().map(|cap| format!("{}={}", text(cap.name), text(cap.value))).collect::<Vec<_>>().join(", ")
}

fn cpu_topology(recording: &OpenRecording<'_>, section: &FeatureSection<'_>) -> Vec<String> {
    let count: Option<CpuCount> = recording.feature(Feature::NRCPUS);
    let available = count.map_or(0, |count| count.available);
    let topology = match CpuTopology::parse(&section.bytes, section.offset, recording.endian(), available) {
        Ok(partial) => partial.value,
        Err(error) => return vec![problem(section.feature, &error)],
    };
    let siblings = [
        ("sockets", &topology.core_siblings),
        ("dies", &topology.die_siblings),
        ("threads", &topology.thread_siblings),
    ];
    let siblings = siblings
        .iter()
        .flat_map(|(what, lists)| lists.iter().map(move |list| format!("sibling {what} : {}", text(list))));
    let cpus = topology.cpus.iter().enumerate().map(|(cpu, place)| {
        let die = place.die_id.map(|die| format!("Die ID {die}, ")).unwrap_or_default();
        format!("CPU {cpu}: Core ID {}, {die}Socket ID {}", place.core_id, place.socket_id)
    });
    siblings.chain(cpus).collect()
}

fn programs(recording: &OpenRecording<'_>, section: &FeatureSection<'_>) -> Vec<String> {
    let btf = btf_of(recording.sections(), recording.endian(), |_| true);
    let infos = match BpfProgInfoSection::new(&section.bytes, section.offset, recording.endian()) {
        Ok(infos) => infos,
        Err(error) => return vec![problem(section.feature, &error)],
    };
    infos
        .flat_map(|info| match info {
            Ok(info) => program(&info, &btf),
            Err(error) => vec![problem(section.feature, &error)],
        })
        .collect()
}

/// Returns one line for a program with one function, or else a line for each function.
fn program(info: &ProgInfo<'_>, btf: &BTreeMap<u32, Btf<'_>>) -> Vec<String> {
    let id = info.id().map_or("?".into(), |id| id.to_string());
    let functions: Vec<String> = info
        .functions()
        .map(|function| {
            let place = match (function.addr, function.len) {
                (Some(addr), Some(len)) => format!(" addr {addr:#x} size {len}"),
                _ => " without machine code".into(),
            };
            text(&symbol_of(info, &function, btf)) + &place
        })
        .collect();
    match functions.as_slice() {
        [only] => vec![format!("bpf_prog_info {id}: {only}")],
        several => {
            let numbered = several.iter().enumerate().map(|(n, function)| format!("\tsub_prog {n}: {function}"));
            std::iter::once(format!("bpf_prog_info {id}:")).chain(numbered).collect()
        }
    }
}
