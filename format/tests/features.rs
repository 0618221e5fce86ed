//! Feature sections of real recordings: compared with perf's output, and rewritten with the same bytes.
//!
//! The recordings are beside the checkout.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use bprec_format::feature::tracing::TracingData;
use bprec_format::feature::*;
use bprec_format::{Container, Endian, Events, File, RecordType};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Files under a folder beside the checkout, with their bytes; prints a SKIP line if there are none.
fn beside(folder: &str, test: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(folder);
    let mut folders = vec![root];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = fs::read(&path)
                && matches!(Container::detect(&bytes), Ok(Container::File(_)))
            {
                found.push((path, bytes));
            }
        }
    }
    if found.is_empty() {
        eprintln!("SKIP {test}: no {folder} beside the checkout");
    }
    found.sort();
    found
}

fn payload<'a, P: SectionContent<'a>>(file: &File<'a>, feature: Feature) -> Option<P> {
    let (bytes, base) = file.feature(feature.0)?;
    let read = P::parse(bytes, base, file.endian()).unwrap();
    assert_eq!(read.problem, None, "{feature}");
    Some(read.value)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Minimum of recordings that must have the output of perf beside them, if there are recordings.
const HEADERS_MIN: usize = 20;

#[test]
fn sections_say_what_perf_printed() {
    let files = beside("recordings", "sections_say_what_perf_printed");
    let mut compared = 0;
    for (path, bytes) in &files {
        let Ok(header) = fs::read_to_string(path.with_extension("header.txt")) else { continue };
        let file = File::parse(bytes).unwrap();
        let mut expected: Vec<&str> = header.lines().collect();
        let mut check = |line: String| {
            let at = expected.iter().position(|l| l.trim_end() == line.trim_end());
            expected.remove(at.unwrap_or_else(|| panic!("{}: {line}\nnot in\n{header}", path.display())));
        };
        let names = [
            ("hostname", Feature::HOSTNAME),
            ("os release", Feature::OSRELEASE),
            ("perf version", Feature::VERSION),
            ("arch", Feature::ARCH),
            ("cpudesc", Feature::CPUDESC),
            ("cpuid", Feature::CPUID),
        ];
        for (name, feature) in names {
            if let Some(value) = payload::<Text>(&file, feature) {
                check(format!("# {name} : {}", text(value.0)));
            } else {
                // A machine may lack these facts; perf then does not print them.
                assert!(matches!(name, "cpudesc" | "cpuid") && !header.contains(&format!("# {name} : ")));
            }
        }
        let cpus: CpuCount = payload(&file, Feature::NRCPUS).unwrap();
        check(format!("# nrcpus online : {}", cpus.online));
        check(format!("# nrcpus avail : {}", cpus.available));
        let memory: TotalMemory = payload(&file, Feature::TOTAL_MEM).unwrap();
        check(format!("# total memory : {} kB", memory.kib));
        let command: TextList = payload(&file, Feature::CMDLINE).unwrap();
        let arguments: Vec<_> = command.0.iter().map(|argument| text(argument)).collect();
        check(format!("# cmdline : {}", arguments.join(" ")));
        let pmus: PmuMappings = payload(&file, Feature::PMU_MAPPINGS).unwrap();
        let pmus: Vec<_> = pmus.0.iter().map(|(kind, name)| format!("{} = {kind}", text(name))).collect();
        check(format!("# pmu mappings: {}", pmus.join(", ")));
        if let Some(time) = payload::<SampleTime>(&file, Feature::SAMPLE_TIME) {
            let seconds = |ns: u64| format!("{}.{:06}", ns / 1_000_000_000, ns / 1000 % 1_000_000);
            check(format!("# time of first sample : {}", seconds(time.first_ns)));
            check(format!("# time of last sample : {}", seconds(time.last_ns)));
        }
        let events: EventDesc = payload(&file, Feature::EVENT_DESC).unwrap();
        assert_eq!(events.events.len(), file.attrs().len());
        for (event, attr) in events.events.iter().zip(file.attrs()) {
            assert_eq!(event.ids, attr.ids);
            let ids: Vec<_> = event.ids.iter().map(u64::to_string).collect();
            let start = format!("# event : name = {}, , id = {{ {} }}, ", text(event.name), ids.join(", "));
            assert!(header.lines().any(|l| l.starts_with(&start)), "{}: {start}", path.display());
        }
        let missing: Vec<_> = (Feature::TRACING_DATA.0..=Feature::HYBRID_TOPOLOGY.0)
            .filter(|bit| file.feature(*bit).is_none())
            .map(|bit| Feature(bit).to_string())
            .collect();
        let line = header.lines().find(|l| l.starts_with("# missing features: ")).unwrap();
        assert_eq!(line.trim_end(), format!("# missing features: {}", missing.join(" ")));
        compared += 1;
    }
    assert!(files.is_empty() || compared >= HEADERS_MIN, "{compared} of {} recordings", files.len());
}

/// Reads a section, writes it again, and compares the bytes.
fn rewritten<'a, P: SectionContent<'a>>(
    path: &Path,
    file: &File<'a>,
    feature: Feature,
    seen: &mut BTreeMap<Feature, usize>,
) {
    let Some((bytes, base)) = file.feature(feature.0) else { return };
    // simpleperf's index of trace data has its own layout.
    if feature == Feature::AUXTRACE && path.to_string_lossy().contains("system.extras__") {
        return;
    }
    let read = P::parse(bytes, base, file.endian()).unwrap();
    assert_eq!(read.problem, None, "{} {feature}", path.display());
    assert!(read.value.to_bytes(file.endian()) == bytes, "{} {feature}", path.display());
    *seen.entry(feature).or_default() += 1;
}

#[test]
fn sections_are_written_as_perf_wrote_them() {
    let test = "sections_are_written_as_perf_wrote_them";
    let mut seen = BTreeMap::new();
    let mut files = beside("recordings", test);
    files.extend(beside("corpus", test));
    for (path, bytes) in &files {
        let Ok(file) = File::parse(bytes) else { continue };
        // A converter wrote this file and padded texts to 8 bytes.
        if path.ends_with("google_autofdo__ro_sample.perf") {
            continue;
        }
        let seen = &mut seen;
        let text_features =
            [Feature::HOSTNAME, Feature::OSRELEASE, Feature::VERSION, Feature::ARCH, Feature::CPUDESC, Feature::CPUID];
        for feature in text_features {
            rewritten::<Text>(path, &file, feature, seen);
        }
        rewritten::<CpuCount>(path, &file, Feature::NRCPUS, seen);
        rewritten::<TotalMemory>(path, &file, Feature::TOTAL_MEM, seen);
        rewritten::<TextList>(path, &file, Feature::CMDLINE, seen);
        rewritten::<EventDesc>(path, &file, Feature::EVENT_DESC, seen);
        rewritten::<NumaTopology>(path, &file, Feature::NUMA_TOPOLOGY, seen);
        rewritten::<PmuMappings>(path, &file, Feature::PMU_MAPPINGS, seen);
        rewritten::<GroupDesc>(path, &file, Feature::GROUP_DESC, seen);
        rewritten::<AuxtraceIndex>(path, &file, Feature::AUXTRACE, seen);
        rewritten::<Caches>(path, &file, Feature::CACHE, seen);
        rewritten::<SampleTime>(path, &file, Feature::SAMPLE_TIME, seen);
        rewritten::<MemoryTopology>(path, &file, Feature::MEM_TOPOLOGY, seen);
        rewritten::<ClockResolution>(path, &file, Feature::CLOCKID, seen);
        rewritten::<ClockData>(path, &file, Feature::CLOCK_DATA, seen);
        rewritten::<Compression>(path, &file, Feature::COMPRESSED, seen);
        rewritten::<CpuPmuCaps>(path, &file, Feature::CPU_PMU_CAPS, seen);
        rewritten::<HybridTopology>(path, &file, Feature::HYBRID_TOPOLOGY, seen);
        rewritten::<PmuCaps>(path, &file, Feature::PMU_CAPS, seen);
        rewritten::<TracingData>(path, &file, Feature::TRACING_DATA, seen);
        if let Some(read) = payload::<BuildIds>(&file, Feature::BUILD_ID) {
            // Old writers did not store the length of ids, so bytes differ.
            let written = read.to_bytes(file.endian());
            let again = BuildIds::parse(&written, 0, file.endian()).unwrap();
            assert_eq!((&again.value, &again.problem), (&read, &None), "{}", path.display());
            let [first, ..] = read.0.as_slice() else { continue };
            assert!(first.filename.starts_with(b"[") || first.filename.starts_with(b"/"), "{}", path.display());
            *seen.entry(Feature::BUILD_ID).or_default() += 1;
        }
        if let (Some((bytes, base)), Some(cpus)) =
            (file.feature(Feature::CPU_TOPOLOGY.0), payload::<CpuCount>(&file, Feature::NRCPUS))
        {
            let read = CpuTopology::parse(bytes, base, file.endian(), cpus.available).unwrap();
            assert_eq!(read.problem, None, "{}", path.display());
            let mut out = Vec::new();
            read.value.encode(&mut bprec_format::Writer::new(&mut out, file.endian()));
            assert!(out == bytes, "{}", path.display());
            *seen.entry(Feature::CPU_TOPOLOGY).or_default() += 1;
        }
    }
    let sections: usize = seen.values().sum();
    assert!(files.is_empty() || (seen.len() >= 20 && sections >= 500), "{seen:?}");
}

/// perf's percentage of each command in the samples of sched_switch equals the share of the command in `prev_comm` of the raw data.
#[test]
fn raw_data_is_read_as_the_format_says() {
    let (mut endians, mut compared) = (BTreeSet::new(), 0);
    for (path, bytes) in beside("recordings", "raw_data_is_read_as_the_format_says") {
        if path.file_name() != Some("tp.data".as_ref()) {
            continue;
        }
        let file = File::parse(&bytes).unwrap();
        endians.insert(file.endian() == Endian::Big);
        let tracing: TracingData = payload(&file, Feature::TRACING_DATA).unwrap();
        assert_eq!((tracing.endian, tracing.long_bytes, tracing.page_size_bytes), (file.endian(), 8, 4096));
        let (system, format) = tracing.event(file.attrs()[0].attr.config).unwrap();
        assert_eq!((system, format.name), (b"sched".as_slice(), "sched_switch"));
        let fields: Vec<_> = format.fields.iter().map(|f| (f.name, f.size_bytes, f.is_common())).collect();
        assert_eq!(
            fields,
            [
                ("common_type", 2, true),
                ("common_flags", 1, true),
                ("common_preempt_count", 1, true),
                ("common_pid", 4, true),
                ("prev_comm", 16, false),
                ("prev_pid", 4, false),
                ("prev_prio", 4, false),
                ("prev_state", 8, false),
                ("next_comm", 16, false),
                ("next_pid", 4, false),
                ("next_prio", 4, false),
            ]
        );
        let events = Events::new(file.attrs(), file.endian()).unwrap();
        let mut samples_of = BTreeMap::new();
        for record in file.records().map(Result::unwrap).filter(|r| r.kind == RecordType::SAMPLE) {
            let sample = events.all()[0].layout.sample(record.body(), record.offset).unwrap();
            let raw = sample.raw().unwrap().unwrap();
            let text = |name| {
                let mut text = String::new();
                format.field(name).unwrap().layout().write(raw, file.endian(), &mut text);
                text
            };
            let number = |name| text(name).parse::<u64>().unwrap();
            // The sampled task is the previous one of the switch.
            let (_, tid) = sample.pid_tid().unwrap();
            // perf_event reports -1 for a task that is already dead.
            let is_alive = tid != u32::MAX;
            assert!(!is_alive || (number("prev_pid"), number("common_pid")) == (tid.into(), tid.into()));
            assert_eq!(number("common_type"), file.attrs()[0].attr.config);
            *samples_of.entry(text("prev_comm")).or_insert(0u32) += 1;
        }
        let total: u32 = samples_of.values().sum();
        let report = fs::read_to_string(path.with_extension("report.txt")).unwrap();
        for command in ["rcu_preempt", "rcu_sched"] {
            let Some(line) = report.lines().find(|l| l.split_whitespace().nth(1) == Some(command)) else { continue };
            let samples = samples_of[&format!("{command:?}")];
            let share = format!("{:.2}%", f64::from(samples) * 100.0 / f64::from(total));
            assert_eq!(line.split_whitespace().next(), Some(share.as_str()), "{}: {command}", path.display());
            compared += 1;
        }
    }
    assert!(endians.is_empty() || (endians.len() == 2 && compared >= 4), "{endians:?}, {compared} shares compared");
}
