//! Sections of the header of a file, with planted words as their texts.

use bprec_format::bpf::btf;
use bprec_format::bpf::prog_info::{self, Array, DEFAULT_INFO_LEN, ProgInfoBuf};
use bprec_format::feature::tracing::{TracingData, TracingSystem};
use bprec_format::feature::{
    BuildIds, Cache, Caches, CpuDomain, CpuDomains, CpuPlace, CpuPmuCaps, CpuTopology, CpuWithDomains, DescribedEvent,
    EventDesc, EventGroup, Feature, GroupDesc, HybridPmu, HybridTopology, NumaNode, NumaTopology, PmuCap, PmuCaps,
    PmuMappings, PmuWithCaps, SectionContent as _, Text, TextList,
};
use bprec_format::records::BuildId;
use bprec_format::records::user::BuildIdRecord;
use bprec_format::{EventAttr, Writer, misc};

use super::{CODE, Event, LITTLE, LOAD_TIME_NS, PROG_ID, Planted};

/// Builds one header section of a file; `None` if the section has no texts.
pub(crate) fn section(feature: Feature, events: &[Event], p: &mut Planted) -> Option<Vec<u8>> {
    let machine = |p: &mut Planted| p.kept("the processor, memory and topology");
    Some(match feature {
        Feature::HOSTNAME => Text(p.secret("host").as_bytes()).to_bytes(LITTLE),
        Feature::OSRELEASE => Text(p.kept("the kernel's version").as_bytes()).to_bytes(LITTLE),
        Feature::VERSION => Text(p.kept("the recorder's version").as_bytes()).to_bytes(LITTLE),
        Feature::ARCH => Text(b"x86_64").to_bytes(LITTLE),
        Feature::CPUDESC | Feature::CPUID => Text(machine(p).as_bytes()).to_bytes(LITTLE),
        Feature::CMDLINE => {
            let words = [p.secret("command"), p.secret("command")];
            TextList(words.iter().map(String::as_bytes).collect()).to_bytes(LITTLE)
        }
        Feature::BUILD_ID => {
            let (user, modules, module) = (p.secret("file"), p.secret("path of a module"), p.kept("kernel modules"));
            let (path, module) = (format!("/{user}"), format!("/{modules}/{module}.ko"));
            let id = p.secret("build id");
            let user = BuildIdRecord {
                cpumode: misc::USER,
                pid: -1,
                id: BuildId::new(id.as_bytes()),
                filename: path.as_bytes(),
            };
            let module = BuildIdRecord {
                cpumode: misc::KERNEL,
                pid: -1,
                id: BuildId::new(&[1; 20]),
                filename: module.as_bytes(),
            };
            BuildIds(vec![user, module]).to_bytes(LITTLE)
        }
        Feature::EVENT_DESC => {
            let attrs: Vec<Vec<u8>> = events.iter().map(attr_bytes).collect();
            let described = events.iter().zip(&attrs);
            let described = described.map(|(event, attr)| DescribedEvent {
                attr,
                name: event.name.as_bytes(),
                ids: event.attr.ids.clone(),
            });
            EventDesc { attr_size_bytes: 112, events: described.collect() }.to_bytes(LITTLE)
        }
        Feature::GROUP_DESC => {
            let (kept, secret) = (p.kept("names of events"), format!("/{}", p.secret("group")));
            let group = |name| EventGroup { name, leader_index: 0, members: 1 };
            GroupDesc(vec![group(kept.as_bytes()), group(secret.as_bytes())]).to_bytes(LITTLE)
        }
        Feature::CPU_TOPOLOGY => {
            let texts = [machine(p), machine(p), machine(p)];
            let [cores, threads, dies] = texts.each_ref().map(|text| vec![text.as_bytes()]);
            let cpus = vec![CpuPlace { core_id: 0, socket_id: 0, die_id: Some(0) }];
            let topology = CpuTopology { core_siblings: cores, thread_siblings: threads, die_siblings: dies, cpus };
            let mut bytes = Vec::new();
            topology.encode(&mut Writer::new(&mut bytes, LITTLE));
            bytes
        }
        Feature::NUMA_TOPOLOGY => {
            let cpus = machine(p);
            let node = NumaNode { node: 0, mem_total_kib: 1, mem_free_kib: 1, cpus: cpus.as_bytes() };
            NumaTopology(vec![node]).to_bytes(LITTLE)
        }
        Feature::CACHE => {
            let texts = [machine(p), machine(p), machine(p)];
            let [kind, size, cpus] = texts.each_ref().map(String::as_bytes);
            let cache = Cache { level: 1, line_size_bytes: 64, sets: 1, ways: 1, kind, size, cpus };
            Caches { version: 1, caches: vec![cache] }.to_bytes(LITTLE)
        }
        Feature::PMU_MAPPINGS => PmuMappings(vec![(8, machine(p).as_bytes())]).to_bytes(LITTLE),
        Feature::CPU_PMU_CAPS => {
            let texts = [machine(p), machine(p)];
            CpuPmuCaps(vec![PmuCap { name: texts[0].as_bytes(), value: texts[1].as_bytes() }]).to_bytes(LITTLE)
        }
        Feature::PMU_CAPS => {
            let texts = [machine(p), machine(p), machine(p)];
            let [pmu, name, value] = texts.each_ref().map(String::as_bytes);
            PmuCaps(vec![PmuWithCaps { pmu, caps: vec![PmuCap { name, value }] }]).to_bytes(LITTLE)
        }
        Feature::HYBRID_TOPOLOGY => {
            let texts = [machine(p), machine(p)];
            HybridTopology(vec![HybridPmu { pmu: texts[0].as_bytes(), cpus: texts[1].as_bytes() }]).to_bytes(LITTLE)
        }
        Feature::CPU_DOMAIN_INFO => {
            let texts = [machine(p), machine(p), machine(p)];
            let [name, cpumask, cpulist] = texts.each_ref().map(String::as_bytes);
            let domains = vec![CpuDomain { domain: 0, name: Some(name), cpumask, cpulist }];
            let cpus = vec![CpuWithDomains { cpu: 0, domains }];
            CpuDomains { schedstat_version: 17, max_domains: 1, cpus }.to_bytes(LITTLE)
        }
        Feature::TRACING_DATA => {
            let format = format!(
                "name: {}\nID: 77\nformat:\n\tfield:int {};\toffset:0;\tsize:4;\tsigned:1;\n\nprint fmt: \"%d {}\", REC->x\n",
                p.kept("tracepoints"),
                p.kept("tracepoints"),
                p.kept("tracepoints")
            );
            let system = p.kept("tracepoints");
            let [kallsyms, printk, comms] =
                ["kallsyms", "printk formats", "saved command lines"].map(|it| p.secret(it));
            TracingData {
                endian: LITTLE,
                long_bytes: 8,
                page_size_bytes: 4096,
                header_page: b"",
                header_event: b"",
                ftrace: Vec::new(),
                systems: vec![TracingSystem { name: system.as_bytes(), formats: vec![format.as_bytes()] }],
                kallsyms: kallsyms.as_bytes(),
                printk_formats: printk.as_bytes(),
                saved_cmdlines: comms.as_bytes(),
            }
            .to_bytes(LITTLE)
        }
        Feature::BPF_PROG_INFO => {
            let mut section = Vec::new();
            prog_info::write_section(&mut section, LITTLE, &[program(p)], DEFAULT_INFO_LEN);
            section
        }
        Feature::BPF_BTF => {
            let mut section = Vec::new();
            btf::write_section(&mut section, LITTLE, &[(1, &types(p)[..])]);
            section
        }
        // Sections with only numbers and flags.
        Feature::NRCPUS
        | Feature::TOTAL_MEM
        | Feature::BRANCH_STACK
        | Feature::AUXTRACE
        | Feature::STAT
        | Feature::SAMPLE_TIME
        | Feature::MEM_TOPOLOGY
        | Feature::CLOCKID
        | Feature::DIR_FORMAT
        | Feature::COMPRESSED
        | Feature::CLOCK_DATA
        | Feature::E_MACHINE
        | Feature::CLN_SIZE => return None,
        feature => panic!("the test plants no word in feature {feature}; add one"),
    })
}

fn attr_bytes(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    EventAttr { size: 112, ..event.attr.attr.clone() }.encode(&mut bytes, LITTLE);
    bytes
}

/// Offset, in the BTF strings, of the file name of a line.
const FILE_AT: u32 = 1;
/// Offset, in the BTF strings, of the text of a line.
const LINE_AT: u32 = FILE_AT + 11;

fn program(p: &mut Planted) -> ProgInfoBuf {
    let (name, tag, code) = (p.of_program("program"), p.of_program("tag"), p.of_program("code"));
    let mut info = Vec::new();
    let mut w = Writer::new(&mut info, LITTLE);
    // In the order of `struct bpf_prog_info`; pointers are left 0.
    w.u32(5).u32(PROG_ID).bytes(tag.as_bytes()).u32(64).u32(16).u64(0).u64(0);
    w.u64(LOAD_TIME_NS).u32(0).u32(1).u64(0).bytes(name.as_bytes()).zeros(8).u32(0).u32(1).u64(0).u64(0);
    w.u32(1).u32(1).u64(0).u64(0).u32(1).u32(8).u64(0).u32(1).u32(1).u64(0).u64(0);
    w.u32(0).u32(16).u32(8).u32(1).u64(0).u64(0).u64(0).u64(0).u32(2).u32(0).u32(0).u32(0);
    let mut arrays = [const { None }; Array::COUNT];
    let words = |words: &[u32]| Some(words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
    arrays[Array::JitedInsns as usize] = Some(vec![0xcc; 64]);
    arrays[Array::XlatedInsns as usize] = Some([code.as_bytes(), code.as_bytes()].concat());
    arrays[Array::MapIds as usize] = words(&[1]);
    arrays[Array::JitedKsyms as usize] = Some(CODE.to_le_bytes().into());
    arrays[Array::JitedFuncLens as usize] = words(&[64]);
    arrays[Array::FuncInfo as usize] = words(&[0, 2]);
    arrays[Array::LineInfo as usize] = words(&[0, FILE_AT, LINE_AT, 1 << 10]);
    arrays[Array::ProgTags as usize] = Some(tag.into_bytes());
    ProgInfoBuf { endian: LITTLE, info, arrays }
}

/// Builds BTF types: a prototype, a function, and a struct with a member.
fn types(p: &mut Planted) -> Vec<u8> {
    let mut strings = vec![0];
    let mut add = |text: String| {
        let at = strings.len() as u32;
        strings.extend(text.into_bytes());
        strings.push(0);
        at
    };
    assert_eq!(add(format!("/{}", p.secret("source file"))), FILE_AT);
    add(String::new());
    assert_eq!(add(p.of_program("source line")), LINE_AT);
    let [function, structure, member] = ["function", "type", "member"].map(|place| add(p.of_program(place)));
    add(p.secret("string of no type"));
    let mut types = Vec::new();
    let mut w = Writer::new(&mut types, LITTLE);
    w.u32(0).u32(13 << 24).u32(0);
    w.u32(function).u32(12 << 24).u32(1);
    w.u32(structure).u32(4 << 24 | 1).u32(0).u32(member).u32(0).u32(0);
    let mut blob = Vec::new();
    let mut w = Writer::new(&mut blob, LITTLE);
    w.u16(btf::MAGIC).u8(1).u8(0).u32(24).u32(0).u32(types.len() as u32);
    w.u32(types.len() as u32).u32(strings.len() as u32).bytes(&types).bytes(&strings);
    blob
}
