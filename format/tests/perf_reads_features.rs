//! perf, if it is installed, reads a written file with every feature section; the test compares perf's output.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use bprec_format::bpf::btf;
use bprec_format::bpf::prog_info::{self, Array, ProgInfoBuf};
use bprec_format::feature::tracing::{TracingData, TracingSystem};
use bprec_format::feature::*;
use bprec_format::records::user::BuildIdRecord;
use bprec_format::records::{BuildId, Comm, write_record};
use bprec_format::*;
use std::process::Command;

/// Sets a field of `struct bpf_prog_info`.
fn set(info: &mut [u8], at: usize, value: u32) {
    info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

/// A program of two functions. Both have the name of type 34 in the BTF of `data/types.bpf.c`, which is `use`.
fn program(id: u32) -> ProgInfoBuf {
    let mut info = vec![0; 232];
    for (at, value) in [(0, 5), (4, id), (16, 48), (20, 16), (104, 2), (108, 2), (128, 9), (132, 8), (144, 2), (180, 2)]
    {
        set(&mut info, at, value);
    }
    info[8..16].copy_from_slice(&[0xaa; 8]);
    info[64..67].copy_from_slice(b"use");
    let u64s = |values: [u64; 2]| Some(values.map(u64::to_ne_bytes).concat());
    let u32s = |values: &[u32]| Some(values.iter().flat_map(|v| v.to_ne_bytes()).collect());
    let mut arrays = [const { None }; Array::COUNT];
    arrays[Array::JitedInsns as usize] = Some(vec![0xc3; 48]);
    arrays[Array::XlatedInsns as usize] = Some(vec![0; 16]);
    arrays[Array::JitedKsyms as usize] = u64s([0xffff_ffff_c012_3450, 0xffff_ffff_c012_1000]);
    arrays[Array::JitedFuncLens as usize] = u32s(&[17, 31]);
    arrays[Array::FuncInfo as usize] = u32s(&[0, 34, 1, 34]);
    arrays[Array::ProgTags as usize] = Some([[0x11; 8], [0x22; 8]].concat());
    ProgInfoBuf::new(info, arrays)
}

const HEADER_PAGE: &[u8] = b"\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

const FORMAT: &[u8] = b"name: tick\nID: 777\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:int n;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"n=%d\", REC->n\n";

/// All sections that perf 6.1 knows. Sections that refer to other files are left out.
fn sections(events: &[FileAttr]) -> Vec<(u8, Vec<u8>)> {
    let endian = Endian::NATIVE;
    let mut all: Vec<(Feature, Vec<u8>)> = Vec::new();
    let mut put = |feature, bytes| all.push((feature, bytes));
    let tracing = TracingData {
        endian,
        long_bytes: 8,
        page_size_bytes: 4096,
        header_page: HEADER_PAGE,
        header_event: b"# compressed entry header\n\ttype_len    :    5 bits\n",
        ftrace: vec![],
        systems: vec![TracingSystem { name: b"demo", formats: vec![FORMAT] }],
        kallsyms: b"",
        printk_formats: b"",
        saved_cmdlines: b"1 init\n",
    };
    put(Feature::TRACING_DATA, tracing.to_bytes(endian));
    let kernel = BuildIdRecord { cpumode: 1, pid: -1, id: BuildId::new(&[7; 20]), filename: b"[kernel.kallsyms]" };
    put(Feature::BUILD_ID, BuildIds(vec![kernel]).to_bytes(endian));
    let texts = [
        (Feature::HOSTNAME, "box"),
        (Feature::OSRELEASE, "6.1.2-test"),
        (Feature::VERSION, "0.1"),
        (Feature::ARCH, "x86_64"),
        (Feature::CPUDESC, "A CPU"),
        (Feature::CPUID, "GenuineIntel,6,85,4"),
    ];
    for (feature, text) in texts {
        put(feature, Text(text.as_bytes()).to_bytes(endian));
    }
    put(Feature::NRCPUS, CpuCount { available: 3, online: 2 }.to_bytes(endian));
    put(Feature::TOTAL_MEM, TotalMemory { kib: 123_456 }.to_bytes(endian));
    put(Feature::CMDLINE, TextList(vec![b"/usr/bin/bprec", b"record", b"-a"]).to_bytes(endian));
    let mut attr = Vec::new();
    EventAttr { size: 112, ..events[0].attr.clone() }.encode(&mut attr, endian);
    let described = DescribedEvent { attr: &attr, name: b"my-clock", ids: events[0].ids.clone() };
    put(Feature::EVENT_DESC, EventDesc { attr_size_bytes: 112, events: vec![described] }.to_bytes(endian));
    let place = |core_id| CpuPlace { core_id, socket_id: 0, die_id: Some(0) };
    let topology = CpuTopology {
        core_siblings: vec![b"0-2"],
        thread_siblings: vec![b"0", b"1-2"],
        die_siblings: vec![b"0-2"],
        cpus: vec![place(0), place(5), place(6)],
    };
    let mut bytes = Vec::new();
    topology.encode(&mut Writer::new(&mut bytes, endian));
    put(Feature::CPU_TOPOLOGY, bytes);
    let node = NumaNode { node: 0, mem_total_kib: 1000, mem_free_kib: 400, cpus: b"0-2" };
    put(Feature::NUMA_TOPOLOGY, NumaTopology(vec![node]).to_bytes(endian));
    put(Feature::PMU_MAPPINGS, PmuMappings(vec![(1, b"software"), (2, b"tracepoint")]).to_bytes(endian));
    let cache = Cache { level: 1, line_size_bytes: 64, sets: 64, ways: 8, kind: b"Data", size: b"32K", cpus: b"0-2" };
    put(Feature::CACHE, Caches { version: 1, caches: vec![cache] }.to_bytes(endian));
    put(Feature::SAMPLE_TIME, SampleTime { first_ns: 1_000_002_000, last_ns: 3_000_004_000 }.to_bytes(endian));
    let blocks = MemoryNode { node: 0, size: 3, blocks: Bitmap { bits: 70, words: vec![0b111, 0] } };
    let memory = MemoryTopology { version: 1, block_size_bytes: 1 << 27, nodes: vec![blocks] };
    put(Feature::MEM_TOPOLOGY, memory.to_bytes(endian));
    put(Feature::CLOCKID, ClockResolution { resolution_ns: 1 }.to_bytes(endian));
    let mut programs = Vec::new();
    prog_info::write_section(&mut programs, endian, &[program(88), program(12)], prog_info::DEFAULT_INFO_LEN);
    put(Feature::BPF_PROG_INFO, programs);
    let blob: &[u8] = if endian == Endian::Little {
        include_bytes!("data/types.le.btf")
    } else {
        include_bytes!("data/types.be.btf")
    };
    let mut blobs = Vec::new();
    btf::write_section(&mut blobs, endian, &[(9, blob)]);
    put(Feature::BPF_BTF, blobs);
    put(Feature::CPU_PMU_CAPS, CpuPmuCaps(vec![PmuCap { name: b"branches", value: b"32" }]).to_bytes(endian));
    let clock = ClockData { version: 1, clockid: 1, wall_clock_ns: 1_600_000_000_000_000_000, clockid_ns: 5_000 };
    put(Feature::CLOCK_DATA, clock.to_bytes(endian));
    let hybrid = HybridTopology(vec![HybridPmu { pmu: b"cpu_core", cpus: b"0-2" }]);
    put(Feature::HYBRID_TOPOLOGY, hybrid.to_bytes(endian));
    let caps = vec![PmuCap { name: b"max_precise", value: b"3" }, PmuCap { name: b"branches", value: b"16" }];
    put(Feature::PMU_CAPS, PmuCaps(vec![PmuWithCaps { pmu: b"cpu_atom", caps }]).to_bytes(endian));
    all.sort();
    all.into_iter().map(|(feature, bytes)| (feature.0, bytes)).collect()
}

/// Returns standard output and error output of perf for a file with one event, one record and these sections; `None` without perf.
fn perf(arguments: &[&str], attr: EventAttr, record: &[u8], test: &str) -> Option<(String, String)> {
    if Command::new("perf").arg("--version").output().is_err() {
        eprintln!("SKIP {test}: no perf");
        return None;
    }
    let events = [FileAttr { attr, ids: vec![41, 42] }];
    let mut bytes = Vec::new();
    let layout = FileLayout::begin(&events, Endian::NATIVE, &mut bytes);
    bytes.extend_from_slice(record);
    let sections = sections(&events);
    layout.features(record.len() as u64, &sections, &mut bytes);
    let bits: Vec<u8> = sections.iter().map(|(bit, _)| *bit).collect();
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&layout.header(record.len() as u64, &bits));

    let path = format!("{}/{test}-{}.data", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    std::fs::write(&path, &bytes).unwrap();
    let output = Command::new("perf").args(arguments).args(["-i", &path]).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    Some((String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap()))
}

/// Builds a record of the event from its payload.
fn record(attr: &EventAttr, kind: RecordType, fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let layout = SampleLayout::new(attr, Endian::NATIVE);
    write_record(&mut out, kind, 0, &layout, &SampleId::default(), fill).unwrap();
    out
}

#[test]
fn perf_prints_what_was_written() {
    let attr = EventAttr {
        kind: event_type::SOFTWARE,
        size: 112,
        sample_type: SampleType::IP.with(SampleType::TID).with(SampleType::IDENTIFIER),
        ..EventAttr::default()
    };
    let comm = record(&attr, RecordType::COMM, |w| Comm { pid: 1, tid: 1, comm: b"init" }.encode(w));
    let arguments = ["report", "--header-only", "-I"];
    let Some((printed, complaints)) = perf(&arguments, attr, &comm, "perf_prints_what_was_written") else { return };
    assert_eq!(complaints, "", "{printed}");
    let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let expected = "\
# hostname : box
# os release : 6.1.2-test
# perf version : 0.1
# arch : x86_64
# nrcpus online : 2
# nrcpus avail : 3
# cpudesc : A CPU
# cpuid : GenuineIntel,6,85,4
# total memory : 123456 kB
# cmdline : /usr/bin/bprec record -a
# sibling sockets : 0-2
# sibling dies    : 0-2
# sibling threads : 0
# sibling threads : 1-2
# CPU 0: Core ID 0, Die ID 0, Socket ID 0
# CPU 1: Core ID 5, Die ID 0, Socket ID 0
# CPU 2: Core ID 6, Die ID 0, Socket ID 0
# node0 meminfo  : total = 1000 kB, free = 400 kB
# node0 cpu list : 0-2
# pmu mappings: software = 1, tracepoint = 2
#  L1 Data                 32K [0-2]
# time of first sample : 1.000002
# time of last sample : 3.000004
# memory nodes (nr 1, block size 0x8000000):
#    0 [384M]: 0-2
# clockid frequency: 1000 MHz
# bpf_prog_info 12:
# \tsub_prog 0: bpf_prog_1111111111111111_use addr 0xffffffffc0123450 size 17
# \tsub_prog 1: bpf_prog_2222222222222222_use addr 0xffffffffc0121000 size 31
# bpf_prog_info 88:
# btf info of id 9
# cpu pmu capabilities: branches=32
# reference time: 2020-09-13 12:26:40.000000 = 1600000000.000000 (TOD) = 0.000005000 (monotonic)
# cpu_core cpu list : 0-2
# cpu_atom pmu capabilities: max_precise=3, branches=16";
    for line in expected.lines() {
        assert!(lines.contains(&line), "{line}\nis not in\n{printed}");
    }
    let event = "# event : name = my-clock, , id = { 41, 42 }, type = 1";
    assert!(lines.iter().any(|line| line.starts_with(event)), "{printed}");
}

#[test]
fn perf_prints_the_fields_of_a_tracepoint() {
    let attr = EventAttr {
        kind: event_type::TRACEPOINT,
        size: 112,
        config: 777,
        sample_type: SampleType::IP.with(SampleType::TID).with(SampleType::RAW).with(SampleType::IDENTIFIER),
        ..EventAttr::default()
    };
    let sample = record(&attr, RecordType::SAMPLE, |w| {
        // Identifier, address, pid and tid, then the length of the raw data, and the raw data.
        w.u64(41).u64(0x1234).u32(9).u32(9).u32(12).u16(777).u16(0).u32(9).u32(-5i32 as u32);
    });
    let arguments = ["script", "-F", "trace:event,trace"];
    let test = "perf_prints_the_fields_of_a_tracepoint";
    let Some((printed, complaints)) = perf(&arguments, attr, &sample, test) else { return };
    assert_eq!((printed.trim(), complaints.as_str()), ("my-clock: n=-5", ""));
}
