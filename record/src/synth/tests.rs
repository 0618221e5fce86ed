//! Compares the records with perf's synthesized records of the same moment, and with other output of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};

use bprec_bpf::{BtfCache, Kallsyms, ProgSnapshot, Program};
use bprec_fixtures::Fixture;
use bprec_format::records::{Ksymbol, Mmap2File, Payload};
use bprec_format::{AttrFlags, Endian, EventAttr, File, Record, Records, SampleType, misc};

use super::*;

fn layout() -> SampleLayout {
    let attr = EventAttr {
        sample_type: SampleType::IDENTIFIER.with(SampleType::TID).with(SampleType::TIME).with(SampleType::CPU),
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..EventAttr::default()
    };
    SampleLayout::new(&attr, Endian::NATIVE)
}

fn decode<'a>(layout: &SampleLayout, bytes: &'a [u8]) -> Vec<(Record<'a>, Payload<'a>)> {
    let records = Records::new(bytes, 0, Endian::NATIVE).map(|record| record.unwrap());
    records.map(|record| (record, Payload::decode(&record, layout).unwrap().0)).collect()
}

/// Data from a recording that perf makes now, of the whole machine, without samples.
struct OfPerf {
    bytes: Vec<u8>,
}

impl OfPerf {
    fn record(test: &str) -> Option<OfPerf> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data");
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-a", "-e", "dummy", "-o"]).arg(&path).args(["--", "true"]);
        if !perf.output().is_ok_and(|output| output.status.success()) {
            println!("SKIP {test}: perf cannot record the whole machine here");
            return None;
        }
        Some(OfPerf { bytes: fs::read(&path).unwrap() })
    }

    fn payloads(&self) -> Vec<(Record<'_>, Payload<'_>)> {
        let file = File::parse(&self.bytes).unwrap();
        let layout = SampleLayout::new(&file.attrs()[0].attr, Endian::NATIVE);
        let records = file.records().map(|record| record.unwrap());
        let records = records.filter(|record| record.kind.is_kernel() && record.kind != RecordType::SAMPLE);
        records.map(|record| (record, Payload::decode(&record, &layout).unwrap().0)).collect()
    }
}

#[test]
fn the_kernel_is_where_perf_says() {
    let Some(perf) = OfPerf::record("the_kernel_is_where_perf_says") else { return };
    let theirs = perf.payloads().into_iter().find_map(|(_, payload)| match payload {
        Payload::Mmap(map) if map.pid == NO_PID => Some((map.addr, map.len_bytes, map.pgoff, map.filename.to_vec())),
        Payload::Mmap2(map) if map.pid == NO_PID => Some((map.addr, map.len_bytes, map.pgoff, map.filename.to_vec())),
        _ => None,
    });
    let (mut out, layout) = (Vec::new(), layout());
    let reason = kernel(&layout, &mut out);
    let ours = decode(&layout, &out);
    let Some(theirs) = theirs else {
        assert!(reason.is_some() && ours.is_empty());
        return;
    };
    assert_eq!(reason, None);
    let (record, Payload::Mmap2(map)) = &ours[0] else { panic!("{ours:?}") };
    let (addr, len_bytes, pgoff, filename) = theirs;
    assert_eq!((map.addr, map.pgoff, map.filename.to_vec()), (addr, pgoff, filename));
    // Newer versions of perf include the kernel's data in the mapping.
    assert!(map.len_bytes == len_bytes || map.len_bytes > 1 << 20 && map.len_bytes < len_bytes, "{len_bytes}");
    assert_eq!(record.misc & misc::CPUMODE_MASK, misc::KERNEL);
}

/// Returns the build id that readelf prints for a file.
fn build_id_of_readelf(path: &str) -> Option<String> {
    let output = Command::new("readelf").args(["-n", path]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ").map(str::to_owned))
}

#[test]
fn tasks_are_those_that_perf_sees() {
    // One process that does not change, and one process with a second thread.
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let named = std::thread::Builder::new().name("second_thread".to_owned());
    let second = named.spawn(move || wait.recv()).unwrap();
    let theirs = OfPerf::record("tasks_are_those_that_perf_sees");
    let (mut out, layout) = (Vec::new(), layout());
    let mut take = |_, records: &[u8]| {
        out.extend_from_slice(records);
        Ok(())
    };
    each_process(&layout, None, &mut take).unwrap();
    let mut of_one = Vec::new();
    let mut take_one = |_, records: &[u8]| {
        of_one.extend_from_slice(records);
        Ok(())
    };
    each_process(&layout, Some(&[child.id()]), &mut take_one).unwrap();
    let sleep_maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(end);
    let _ = second.join().unwrap();
    let Some(theirs) = theirs else { return };

    let ours = decode(&layout, &out);
    let theirs = theirs.payloads();
    let mut shown: [BTreeMap<(u32, u32), String>; 2] = Default::default();
    let mut forks: [BTreeMap<(u32, u32), (u32, u32)>; 2] = Default::default();
    let mut maps: [BTreeSet<String>; 2] = Default::default();
    for (side, records) in [&theirs, &ours].into_iter().enumerate() {
        for (record, payload) in records {
            match payload {
                // Kernel workers change their names all the time.
                Payload::Comm(comm) if !comm.comm.starts_with(b"kworker") => {
                    shown[side].insert((comm.pid, comm.tid), String::from_utf8_lossy(comm.comm).into_owned());
                }
                Payload::Fork(fork) if record.misc & misc::FORK_EXEC != 0 => {
                    forks[side].insert((fork.pid, fork.tid), (fork.ppid, fork.ptid));
                }
                Payload::Mmap2(map) if map.pid == child.id() => {
                    let path = String::from_utf8_lossy(map.filename);
                    let (prot, flags) = (map.prot, map.flags);
                    let place = format!("{:x}+{:x} {prot} {flags} {:x} {path}", map.addr, map.len_bytes, map.pgoff);
                    maps[side].insert(place);
                }
                _ => {}
            }
        }
    }
    // Other tasks may start, end or change their names between the two readings. Kernel threads, the child and this
    // process do not.
    let [their_names, our_names] = &shown;
    let us = std::process::id();
    let stays = |(pid, tid): &(u32, u32)| {
        let is_kernel_thread = forks[1].get(&(*pid, *tid)).is_some_and(|(parent, _)| *parent == 2);
        is_kernel_thread || *pid == child.id() || (*pid, *tid) == (us, us)
    };
    let staying: Vec<&(u32, u32)> = our_names.keys().filter(|key| stays(key)).collect();
    assert!(staying.len() > 10, "{our_names:?}");
    for key in staying {
        assert_eq!((their_names.get(key), forks[0].get(key)), (our_names.get(key), forks[1].get(key)), "{key:?}");
    }
    assert!(our_names.iter().any(|((pid, tid), name)| pid != tid && name == "second_thread"));
    assert_eq!(maps[0], maps[1]);
    assert!(maps[1].len() > 2, "{maps:?}");

    // Records for the child alone: the same mappings as before, no FORK records, and the build ids that readelf prints.
    let alone = decode(&layout, &of_one);
    assert!(alone.iter().all(|(record, _)| record.kind != RecordType::FORK));
    let mut compared = 0;
    for (record, payload) in &alone {
        let Payload::Mmap2(map) = payload else { continue };
        let path = std::str::from_utf8(map.filename).unwrap();
        let line = sleep_maps.lines().find(|line| line.starts_with(&format!("{:x}-", map.addr))).unwrap();
        assert!(line.ends_with(path) && line.contains("xp "), "{line}");
        match (map.file, build_id_of_readelf(path)) {
            (Mmap2File::BuildId(id), Some(expected)) => {
                let hex: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(hex, expected, "{path}");
                assert_ne!(record.misc & misc::MMAP_BUILD_ID, 0);
                compared += 1;
            }
            (Mmap2File::Inode { inode, .. }, _) => {
                assert!(line.contains(&format!(" {inode} ")), "{line}");
            }
            _ => {}
        }
    }
    assert!(compared > 0 || build_id_of_readelf("/bin/sleep").is_none());
}

#[test]
fn functions_are_named_and_placed_as_in_kallsyms() {
    const TEST: &str = "functions_are_named_and_placed_as_in_kallsyms";
    let mut loaded = Vec::new();
    for fixture in [Fixture::TP, Fixture::TAIL_CALL, Fixture::NO_BTF, Fixture::XDP] {
        match fixture.open().and_then(|opened| opened.load()) {
            Ok(object) => loaded.push(object),
            Err(error) => return println!("SKIP {TEST}: {error:#}"),
        }
    }
    let btfs = BtfCache::default();
    let ids = loaded.iter().flat_map(|object| object.programs().unwrap()).map(|program| program.id);
    let programs: Vec<(u32, ProgSnapshot)> =
        ids.map(|id| (id, Program::take(id).unwrap().fetch(&btfs).unwrap())).collect();
    let kallsyms = Kallsyms::read().unwrap();
    if let Some(problem) = kallsyms.problem() {
        return println!("SKIP {TEST}: {problem}");
    }
    let functions = kallsyms.bpf_functions();
    let (mut named, mut several) = (0, 0);
    for (id, snapshot) in &programs {
        let (mut out, layout) = (Vec::new(), layout());
        program(&layout, snapshot, &mut out);
        let records = decode(&layout, &out);
        let (last, symbols) = records.split_last().unwrap();
        let Payload::BpfEvent(event) = last.1 else { panic!("{last:?}") };
        assert_eq!((event.id, event.kind), (*id, bprec_format::records::BpfEventKind::PROG_LOAD));
        several += usize::from(symbols.len() > 1);
        for (_, payload) in symbols {
            let Payload::Ksymbol(symbol) = payload else { panic!("{payload:?}") };
            // Old kernels list the first function of a program with several functions twice: under its own tag and under the program's tag.
            let shown = functions.iter().filter(|function| function.addr == symbol.addr);
            let shown: Vec<_> = shown.map(|function| String::from_utf8_lossy(&function.name)).collect();
            let name = String::from_utf8_lossy(symbol.name);
            assert!(shown.contains(&name), "{name} is not among {shown:?}");
            assert!(symbol.len_bytes > 0);
            named += 1;
        }
    }
    assert!(named > programs.len() && several > 0, "no program with several functions is loaded");
}

#[test]
fn images_end_at_the_next_symbol_or_with_their_page() {
    let symbol = |addr, name: &str| bprec_format::bprec::state::KernelSymbol { addr, len_bytes: 0, name: name.into() };
    let (mut out, layout) = (Vec::new(), layout());
    let mut found =
        [symbol(0x1000, "bpf_trampoline_1"), symbol(0x1200, "bpf_trampoline_2"), symbol(0x2fc0, "bpf_dispatcher_xdp")];
    measure_images(&mut found, &[symbol(0x1340, "bpf_prog_f"), symbol(0x9000, "bpf_prog_g")]);
    images(&layout, found.iter(), &mut out);
    let lengths: Vec<(u64, u32)> = decode(&layout, &out)
        .iter()
        .map(|(_, payload)| match payload {
            Payload::Ksymbol(Ksymbol { addr, len_bytes, .. }) => (*addr, *len_bytes),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [(0x1000, 0x200), (0x1200, 0x140), (0x2fc0, 0x40)]);
}

#[test]
fn cgroups_have_their_directories_inode() {
    let (mut out, layout) = (Vec::new(), layout());
    cgroups(&layout, &mut out);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let Some(root) = mounts.lines().find(|line| line.contains(" cgroup2 ")).and_then(|line| line.split(' ').nth(1))
    else {
        return println!("SKIP cgroups_have_their_directories_inode: no unified hierarchy is mounted");
    };
    let found = decode(&layout, &out);
    assert!(!found.is_empty());
    for (_, payload) in found {
        let Payload::Cgroup(cgroup) = payload else { panic!("{payload:?}") };
        let path = String::from_utf8(cgroup.path.to_vec()).unwrap();
        // The inode number of the directory is the cgroup id in the kernel's records.
        let Ok(meta) = fs::metadata(format!("{root}{path}")) else { continue };
        assert_eq!(cgroup.id, std::os::unix::fs::MetadataExt::ino(&meta), "{path}");
    }
}
