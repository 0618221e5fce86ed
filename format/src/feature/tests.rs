use super::tracing::{EventFormat, TracingData, TracingSystem};
use super::*;
use crate::records::BuildId;
use crate::records::user::BuildIdRecord;
use crate::{Problem, Section};
use proptest::collection::vec;
use proptest::prelude::*;

const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

/// Text as sections hold it: anything without a NUL.
fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(1u8.., 0..130)
}

fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(text(), 0..6)
}

/// Writes, reads back and compares; also reads every prefix of the written bytes.
fn round_trip<'a, P: SectionContent<'a> + PartialEq + std::fmt::Debug>(written: &'a [u8], value: &P, endian: Endian) {
    let read = P::parse(written, 0, endian).unwrap();
    assert_eq!((&read.value, &read.problem), (value, &None));
    for cut in 0..written.len() {
        // A shortened section gives an error, or fewer elements if it has no count of its elements.
        if let Ok(read) = P::parse(&written[..cut], 0, endian) {
            assert!(read.problem.is_some() || read.value != *value, "{cut} of {} bytes", written.len());
        }
    }
}

/// Passes the bytes to every reader.
fn read_everything(bytes: &[u8], endian: Endian) {
    macro_rules! read {
        ($($payload:ty),*) => {
            $(if let Ok(read) = <$payload>::parse(bytes, 0, endian) {
                let _ = read.value.to_bytes(endian);
            })*
        };
    }
    read!(Text, TextList, CpuCount, TotalMemory, ElfMachine, CacheLineSize, SampleTime, ClockResolution, ClockData);
    read!(DirFormat, Compression, AuxtraceIndex, NumaTopology, MemoryTopology, Caches, PmuMappings, CpuPmuCaps);
    read!(PmuCaps, HybridTopology, EventDesc, GroupDesc, CpuDomains, BuildIds);
    let _ = CpuTopology::parse(bytes, 0, endian, 4);
    if let Ok(tracing) = TracingData::parse(bytes, 0, endian) {
        let _ = (tracing.value.events().count(), tracing.value.to_bytes(endian));
    }
}

proptest! {
    #[test]
    fn texts_are_read_as_written(one in text(), list in texts(), big: bool) {
        let endian = BOTH[usize::from(big)];
        let value = Text(&one);
        round_trip(&value.to_bytes(endian), &value, endian);
        prop_assert_eq!(value.to_bytes(endian).len() % 64, 4);
        let value = TextList(list.iter().map(Vec::as_slice).collect());
        round_trip(&value.to_bytes(endian), &value, endian);
    }

    #[test]
    fn numbers_are_read_as_written(a: u32, b: u32, c: u32, x: u64, y: u64, big: bool) {
        let endian = BOTH[usize::from(big)];
        macro_rules! round_trips {
            ($($value:expr),*) => { $({ let value = $value; round_trip(&value.to_bytes(endian), &value, endian); })* };
        }
        round_trips!(
            CpuCount { available: a, online: b },
            TotalMemory { kib: x },
            ElfMachine { e_machine: a, e_flags: b },
            CacheLineSize { bytes: a },
            SampleTime { first_ns: x, last_ns: y },
            ClockResolution { resolution_ns: x },
            ClockData { version: a, clockid: b, wall_clock_ns: x, clockid_ns: y },
            DirFormat { version: x },
            Compression { version: a, kind: b, level: c, ratio: a, mmap_len_bytes: b },
            AuxtraceIndex(vec![Section { offset: x, size: y }, Section { offset: y, size: a.into() }])
        );
    }

    #[test]
    fn machines_are_read_as_written(
        texts in vec(text(), 3),
        numbers in vec(any::<(u32, u32, u64, u64)>(), 0..4),
        big: bool,
    ) {
        let endian = BOTH[usize::from(big)];
        let [a, b, c] = [0, 1, 2].map(|n| texts[n].as_slice());
        let value = NumaTopology(
            numbers
                .iter()
                .map(|n| NumaNode { node: n.0, mem_total_kib: n.2, mem_free_kib: n.3, cpus: a })
                .collect(),
        );
        round_trip(&value.to_bytes(endian), &value, endian);
        let value = MemoryTopology {
            version: 1,
            block_size_bytes: 1 << 27,
            nodes: numbers
                .iter()
                .map(|n| MemoryNode {
                    node: n.2,
                    size: n.3,
                    blocks: Bitmap { bits: u64::from(n.0 % 200), words: vec![n.3; (n.0 % 200).div_ceil(64) as usize] },
                })
                .collect(),
        };
        round_trip(&value.to_bytes(endian), &value, endian);
        let value = Caches {
            version: 1,
            caches: numbers
                .iter()
                .map(|n| Cache {
                    level: n.0, line_size_bytes: 64, sets: n.1, ways: n.2 as u32, kind: a, size: b, cpus: c,
                })
                .collect(),
        };
        round_trip(&value.to_bytes(endian), &value, endian);
        for schedstat_version in [15, 17] {
            let name = (schedstat_version == 17).then_some(a);
            let value = CpuDomains {
                schedstat_version,
                max_domains: 2,
                cpus: numbers
                    .iter()
                    .map(|n| CpuWithDomains {
                        cpu: n.0,
                        domains: vec![CpuDomain { domain: n.1, name, cpumask: b, cpulist: c }; n.1 as usize % 3],
                    })
                    .collect(),
            };
            round_trip(&value.to_bytes(endian), &value, endian);
        }
    }

    #[test]
    fn cpu_topology_is_read_as_written(cores in texts(), threads in texts(), dies in texts(),
        places in vec(any::<(u32, u32, u32)>(), 0..6), big: bool)
    {
        let endian = BOTH[usize::from(big)];
        let has_dies = !dies.is_empty() && !places.is_empty();
        let value = CpuTopology {
            core_siblings: cores.iter().map(Vec::as_slice).collect(),
            thread_siblings: threads.iter().map(Vec::as_slice).collect(),
            die_siblings: if has_dies { dies.iter().map(Vec::as_slice).collect() } else { vec![] },
            cpus: places
                .iter()
                .map(|p| CpuPlace { core_id: p.0, socket_id: p.1, die_id: has_dies.then_some(p.2) })
                .collect(),
        };
        let mut written = Vec::new();
        value.encode(&mut Writer::new(&mut written, endian));
        let read = CpuTopology::parse(&written, 0, endian, places.len() as u32).unwrap();
        prop_assert_eq!((read.value, read.problem), (value, None));
        for cut in 0..written.len() {
            let _ = CpuTopology::parse(&written[..cut], 0, endian, places.len() as u32);
        }
    }

    #[test]
    fn pmus_are_read_as_written(names in vec((any::<u32>(), text(), text()), 0..5), big: bool) {
        let endian = BOTH[usize::from(big)];
        let value = PmuMappings(names.iter().map(|(n, name, _)| (*n, name.as_slice())).collect());
        round_trip(&value.to_bytes(endian), &value, endian);
        let caps: Vec<_> = names.iter().map(|(_, name, value)| PmuCap { name, value }).collect();
        let value = CpuPmuCaps(caps.clone());
        round_trip(&value.to_bytes(endian), &value, endian);
        let value = PmuCaps(names.iter().map(|(_, pmu, _)| PmuWithCaps { pmu, caps: caps.clone() }).collect());
        round_trip(&value.to_bytes(endian), &value, endian);
        let value = HybridTopology(names.iter().map(|(_, pmu, cpus)| HybridPmu { pmu, cpus }).collect());
        round_trip(&value.to_bytes(endian), &value, endian);
    }

    #[test]
    fn events_are_read_as_written(
        events in vec((vec(any::<u8>(), 112), text(), vec(any::<u64>(), 0..9)), 0..4),
        groups in vec((text(), any::<u32>(), any::<u32>()), 0..4),
        big: bool,
    ) {
        let endian = BOTH[usize::from(big)];
        let value = EventDesc {
            attr_size_bytes: 112,
            events: events.iter().map(|(attr, name, ids)| DescribedEvent { attr, name, ids: ids.clone() }).collect(),
        };
        round_trip(&value.to_bytes(endian), &value, endian);
        let value = GroupDesc(
            groups.iter().map(|(name, first, n)| EventGroup { name, leader_index: *first, members: *n }).collect(),
        );
        round_trip(&value.to_bytes(endian), &value, endian);
    }

    #[test]
    fn build_ids_are_read_as_written(
        ids in vec((0u16..8, any::<i32>(), vec(any::<u8>(), 0..=20), text()), 0..5),
        big: bool,
    ) {
        let endian = BOTH[usize::from(big)];
        let value = BuildIds(
            ids.iter().map(|(mode, pid, id, file)| BuildIdRecord { cpumode: *mode, pid: *pid, id: BuildId::new(id), filename: file }).collect(),
        );
        round_trip(&value.to_bytes(endian), &value, endian);
    }

    #[test]
    fn tracing_data_is_read_as_written(
        bodies in vec(vec(any::<u8>(), 0..80), 7),
        systems in vec((text(), vec(vec(any::<u8>(), 0..80), 0..4)), 0..4),
        big: bool,
        own_big: bool,
    ) {
        let value = TracingData {
            endian: BOTH[usize::from(own_big)],
            long_bytes: 8,
            page_size_bytes: 4096,
            header_page: &bodies[0],
            header_event: &bodies[1],
            ftrace: vec![&bodies[2], &bodies[3]],
            systems: systems
                .iter()
                .map(|(name, formats)| TracingSystem { name, formats: formats.iter().map(Vec::as_slice).collect() })
                .collect(),
            kallsyms: &bodies[4],
            printk_formats: &bodies[5],
            saved_cmdlines: &bodies[6],
        };
        let endian = BOTH[usize::from(big)];
        round_trip(&value.to_bytes(endian), &value, endian);
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(
        mut bytes in vec(prop_oneof![Just(0u8), 0u8..9, any::<u8>()], 0..300),
        big: bool,
    ) {
        read_everything(&bytes, BOTH[usize::from(big)]);
        let head = b"\x17\x08\x44tracing0.6\0\0\x08";
        if let Some(start) = bytes.get_mut(..head.len()) {
            start.copy_from_slice(head);
        }
        read_everything(&bytes, BOTH[usize::from(big)]);
    }

    #[test]
    fn arbitrary_formats_are_read(lines in vec("(field:|name:|ID:|print fmt:)[a-z_\\[\\]; :0-9*]{0,40}", 0..12),
        raw in vec(any::<u8>(), 0..64), big: bool)
    {
        let text = format!("name: n\nID: 7\n{}", lines.join("\n"));
        if let Some(format) = EventFormat::parse(text.as_bytes()) {
            let _ = values(&format, &raw, BOTH[usize::from(big)]);
        }
    }
}

#[test]
fn a_count_beyond_the_bytes_keeps_what_is_there() {
    for endian in BOTH {
        let value = PmuMappings(vec![(1, b"software"), (4, b"cpu")]);
        let mut bytes = value.to_bytes(endian);
        bytes[..4].copy_from_slice(&endian.bytes_u32(u32::MAX));
        let read = PmuMappings::parse(&bytes, 0x1000, endian).unwrap();
        assert_eq!(read.value, value);
        let problem = read.problem.unwrap();
        assert_eq!(problem.offset, 0x1000 + bytes.len() as u64);
        assert!(matches!(problem.problem, Problem::Truncated { needed: 4, available: 0 }));
    }
}

#[test]
fn a_bitmap_lists_its_bits() {
    let bitmap = Bitmap { bits: 67, words: vec![1 << 63 | 0b101, u64::MAX] };
    assert_eq!(bitmap.iter().collect::<Vec<_>>(), [0, 2, 63, 64, 65, 66]);
}

/// Entries without a pid, as in old files: 8 bytes of header, 24 of build id, the name.
#[test]
fn old_build_ids_are_noticed_by_the_name_of_the_kernel() {
    for endian in BOTH {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes, endian);
        for (mode, name) in [(1, b"[kernel.kallsyms]\0\0\0\0\0\0\0".as_slice()), (2, b"/bin/sh\0")] {
            w.u32(0).u16(mode).u16(32 + name.len() as u16).bytes(&[mode as u8; 20]).u32(0).bytes(name);
        }
        let read = BuildIds::parse(&bytes, 0, endian).unwrap();
        assert_eq!(read.problem, None);
        let entry =
            |cpumode, filename| BuildIdRecord { cpumode, pid: -1, id: BuildId::new(&[cpumode as u8; 20]), filename };
        assert_eq!(read.value.0, [entry(1, b"[kernel.kallsyms]".as_slice()), entry(2, b"/bin/sh")]);
    }
}

const FORMAT: &str = "name: sys_enter_openat
ID: 684
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;
\tfield:const char * filename;\toffset:16;\tsize:8;\tsigned:0;
\tfield:char comm[8];\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long args[2];\toffset:32;\tsize:16;\tsigned:0;
\tfield:__data_loc char[] name;\toffset:48;\tsize:4;\tsigned:0;
\tfield:__rel_data_loc char[] rel;\toffset:52;\tsize:4;\tsigned:0;
\tfield:__data_loc u16[] words;\toffset:56;\tsize:4;\tsigned:0;
\tfield:u8 mac[ETH_ALEN];\toffset:60;\tsize:6;\tsigned:0;

print fmt: \"dfd: 0x%08lx\", ((unsigned long)(REC->dfd))
";

/// Returns `name=value` of each field of an event, without the fields that all events have.
fn values(format: &EventFormat<'_>, raw: &[u8], endian: Endian) -> String {
    let own = format.fields.iter().filter(|field| !field.is_common());
    let values = own.map(|field| {
        let mut value = format!("{}=", field.name);
        field.layout().write(raw, endian, &mut value);
        value
    });
    values.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_format_describes_fields_and_their_values() {
    let format = EventFormat::parse(FORMAT.as_bytes()).unwrap();
    assert_eq!((format.name, format.id), ("sys_enter_openat", 684));
    let declared: Vec<_> = format.fields.iter().map(|f| (f.type_name, f.name, f.dimensions)).collect();
    assert_eq!(
        declared,
        [
            ("unsigned short", "common_type", ""),
            ("int", "common_pid", ""),
            ("int", "__syscall_nr", ""),
            ("const char *", "filename", ""),
            ("char", "comm", "[8]"),
            ("unsigned long", "args", "[2]"),
            ("__data_loc char[]", "name", ""),
            ("__rel_data_loc char[]", "rel", ""),
            ("__data_loc u16[]", "words", ""),
            ("u8", "mac", "[ETH_ALEN]"),
        ]
    );
    for endian in BOTH {
        let mut raw = Vec::new();
        let mut w = Writer::new(&mut raw, endian);
        w.u16(684)
            .u16(0)
            .u32(77)
            .u32(-2i32 as u32)
            .u32(0)
            .u64(0x7fff_0000_1234)
            .bytes(b"ba\"sh\0xx")
            .u64(3)
            .u64(u64::MAX);
        // Locations of data: 4 bytes at offset 66; 5 bytes that begin 14 bytes after the end of the field at 56; 4
        // bytes at offset 76.
        w.u32(4 << 16 | 66).u32(5 << 16 | 14).u32(4 << 16 | 76).bytes(&[1, 2, 3, 4, 5, 255]);
        w.bytes(b"abc\0").bytes(b"rel!\0").bytes(b"-").u16(500).u16(7);
        assert_eq!(
            values(&format, &raw, endian),
            "__syscall_nr=-2 filename=0x7fff00001234 comm=\"ba\\\"sh\" args={3, 18446744073709551615} name=\"abc\" \
             rel=\"rel!\" words={500, 7} mac={1, 2, 3, 4, 5, 255}"
        );
        let mut cut_off = String::new();
        format.field("rel").unwrap().layout().write(&raw[..72], endian, &mut cut_off);
        assert_eq!(cut_off, "?");
    }
}
