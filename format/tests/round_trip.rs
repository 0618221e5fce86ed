//! Written values are read back unchanged, in both byte orders.
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "common/strategies.rs"]
mod strategies;

use bprec_format::records::{
    BpfEvent, BpfEventKind, BuildId, Cgroup, Comm, Ksymbol, KsymbolKind, Lost, LostSamples, Mmap, Mmap2, Mmap2File,
    Namespace, Namespaces, Payload, Task, Throttle, UserPayload, write_record,
};
use bprec_format::{
    AttrFlags, Endian, EventAttr, File, FileAttr, FileLayout, ReadFormat, Record, RecordType, Records, SampleId,
    SampleLayout, SampleType, misc,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use strategies::{bytes, endian, name};

prop_compose! {
    fn attr()(
        (kind, config, sample_period) in any::<(u32, u64, u64)>(),
        (sample_type, read_format, flags) in any::<(u64, u64, u64)>(),
        (wakeup, bp_type, config1, config2) in any::<(u32, u32, u64, u64)>(),
        (branch_sample_type, sample_regs_user, sample_stack_user) in any::<(u64, u64, u32)>(),
        (clockid, sample_regs_intr, aux_watermark, sample_max_stack) in any::<(i32, u64, u32, u16)>(),
        (aux_sample_size, aux_action, sig_data, config3, config4) in any::<(u32, u32, u64, u64, u64)>(),
    ) -> EventAttr {
        EventAttr {
            kind, size: 144, config, sample_period,
            sample_type: SampleType(sample_type), read_format: ReadFormat(read_format), flags: AttrFlags(flags),
            wakeup, bp_type, config1, config2, branch_sample_type, sample_regs_user, sample_stack_user, clockid,
            sample_regs_intr, aux_watermark, sample_max_stack, aux_sample_size, aux_action, sig_data, config3, config4,
        }
    }
}

/// An attr with a trailer on its records, and with only those bits of `sample_type` that are fields of fixed size.
fn plain_attr(sample_type: u64) -> EventAttr {
    let fixed = [0u32, 1, 2, 3, 6, 7, 8, 9, 16];
    let mask = fixed.iter().fold(0, |mask, bit| mask | 1 << bit);
    EventAttr {
        size: 64,
        sample_type: SampleType(sample_type & mask),
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..EventAttr::default()
    }
}

#[derive(Debug, Clone)]
enum Kind {
    Mmap(u32, u32, u64, u64, u64, Vec<u8>),
    Mmap2(u32, u64, Result<(u32, u32, u64, u64), Vec<u8>>, u32, Vec<u8>),
    Comm(u32, u32, Vec<u8>),
    Fork(u32, u32, u64),
    Namespaces(u32, Vec<(u64, u64)>),
    Cgroup(u64, Vec<u8>),
    Ksymbol(u64, u32, u16, u16, Vec<u8>),
    BpfEvent(u16, u32, [u8; 8]),
    Lost(u64, u64),
    LostSamples(u64, bool),
    Throttle(u64, u64, u64),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (any::<(u32, u32, u64, u64, u64)>(), name(300)).prop_map(|((a, b, c, d, e), n)| Kind::Mmap(a, b, c, d, e, n)),
        (
            any::<(u32, u64)>(),
            prop_oneof![any::<(u32, u32, u64, u64)>().prop_map(Ok), bytes(21).prop_map(Err)],
            any::<u32>(),
            name(300)
        )
            .prop_map(|((a, b), file, c, n)| Kind::Mmap2(a, b, file, c, n)),
        (any::<(u32, u32)>(), name(15)).prop_map(|((a, b), n)| Kind::Comm(a, b, n)),
        any::<(u32, u32, u64)>().prop_map(|(a, b, c)| Kind::Fork(a, b, c)),
        (any::<u32>(), prop::collection::vec(any::<(u64, u64)>(), 0..9)).prop_map(|(a, b)| Kind::Namespaces(a, b)),
        (any::<u64>(), name(500)).prop_map(|(a, n)| Kind::Cgroup(a, n)),
        (any::<(u64, u32, u16, u16)>(), name(500)).prop_map(|((a, b, c, d), n)| Kind::Ksymbol(a, b, c, d, n)),
        any::<(u16, u32, [u8; 8])>().prop_map(|(a, b, c)| Kind::BpfEvent(a, b, c)),
        any::<(u64, u64)>().prop_map(|(a, b)| Kind::Lost(a, b)),
        any::<(u64, bool)>().prop_map(|(a, b)| Kind::LostSamples(a, b)),
        any::<(u64, u64, u64)>().prop_map(|(a, b, c)| Kind::Throttle(a, b, c)),
    ]
}

/// Writes the record, reads it back, and compares.
fn check_kind(kind: &Kind, layout: &SampleLayout, id: &SampleId) {
    let mut out = Vec::new();
    let endian = layout.endian();
    let read_back = |out: &[u8]| {
        let mut records = Records::new(out, 0, endian);
        let record = records.next().unwrap().unwrap();
        assert!(records.next().is_none());
        assert_eq!(record.bytes.len() % 8, 0);
        record.bytes.to_vec()
    };
    macro_rules! check {
        ($type:expr, $misc:expr, $value:expr, $variant:path) => {{
            let value = $value;
            write_record(&mut out, $type, $misc, layout, id, |w| value.encode(w)).unwrap();
            let bytes = read_back(&out);
            let record = Record::parse(&bytes, 0, endian).unwrap();
            assert_eq!(record.kind, $type);
            let (payload, trailer) = Payload::decode(&record, layout).unwrap();
            let $variant(decoded) = payload else { panic!("the payload was decoded as another type: {payload:?}") };
            assert_eq!(decoded, value);
            check_trailer(&trailer, layout, id);
        }};
    }
    match kind {
        Kind::Mmap(pid, tid, addr, len_bytes, pgoff, filename) => check!(
            RecordType::MMAP,
            0,
            Mmap { pid: *pid, tid: *tid, addr: *addr, len_bytes: *len_bytes, pgoff: *pgoff, filename },
            Payload::Mmap
        ),
        Kind::Mmap2(pid, addr, file, prot, filename) => {
            let file = match file {
                Ok((major, minor, inode, generation)) => {
                    Mmap2File::Inode { major: *major, minor: *minor, inode: *inode, generation: *generation }
                }
                Err(id) => Mmap2File::BuildId(BuildId::new(id)),
            };
            let value = Mmap2 {
                pid: *pid,
                tid: !*pid,
                addr: *addr,
                len_bytes: !*addr,
                pgoff: *addr,
                file,
                prot: *prot,
                flags: !*prot,
                filename,
            };
            check!(RecordType::MMAP2, value.misc(), value.clone(), Payload::Mmap2);
        }
        Kind::Comm(pid, tid, comm) => {
            check!(RecordType::COMM, misc::COMM_EXEC, Comm { pid: *pid, tid: *tid, comm }, Payload::Comm)
        }
        Kind::Fork(pid, tid, time_ns) => check!(
            RecordType::FORK,
            0,
            Task { pid: *pid, ppid: !*pid, tid: *tid, ptid: !*tid, time_ns: *time_ns },
            Payload::Fork
        ),
        Kind::Namespaces(pid, links) => {
            let links = links.iter().map(|(dev, ino)| Namespace { dev: *dev, ino: *ino }).collect();
            check!(RecordType::NAMESPACES, 0, Namespaces { pid: *pid, tid: !*pid, links }, Payload::Namespaces)
        }
        Kind::Cgroup(id, path) => check!(RecordType::CGROUP, 0, Cgroup { id: *id, path }, Payload::Cgroup),
        Kind::Ksymbol(addr, len_bytes, kind, flags, name) => check!(
            RecordType::KSYMBOL,
            0,
            Ksymbol { addr: *addr, len_bytes: *len_bytes, kind: KsymbolKind(*kind), flags: *flags, name },
            Payload::Ksymbol
        ),
        Kind::BpfEvent(kind, id, tag) => check!(
            RecordType::BPF_EVENT,
            0,
            BpfEvent { kind: BpfEventKind(*kind), flags: 0, id: *id, tag: *tag },
            Payload::BpfEvent
        ),
        Kind::Lost(id, lost) => check!(RecordType::LOST, 0, Lost { id: *id, lost: *lost }, Payload::Lost),
        Kind::LostSamples(lost, by_bpf) => check!(
            RecordType::LOST_SAMPLES,
            if *by_bpf { misc::LOST_SAMPLES_BPF } else { 0 },
            LostSamples { lost: *lost, by_bpf: *by_bpf },
            Payload::LostSamples
        ),
        Kind::Throttle(time_ns, id, stream_id) => check!(
            RecordType::THROTTLE,
            0,
            Throttle { time_ns: *time_ns, id: *id, stream_id: *stream_id },
            Payload::Throttle
        ),
    }
}

/// Fields of the layout are read back unchanged; other fields are unknown.
fn check_trailer(read: &SampleId, layout: &SampleLayout, written: &SampleId) {
    let has = |bit| layout.sample_type().contains(bit);
    assert_eq!(read.pid_tid, written.pid_tid.filter(|_| has(SampleType::TID)));
    assert_eq!(read.time_ns, written.time_ns.filter(|_| has(SampleType::TIME)));
    let has_id = has(SampleType::ID) || has(SampleType::IDENTIFIER);
    assert_eq!(read.id, written.id.filter(|_| has_id));
    assert_eq!(read.stream_id, written.stream_id.filter(|_| has(SampleType::STREAM_ID)));
    assert_eq!(read.cpu, written.cpu.filter(|_| has(SampleType::CPU)));
}

/// Records of every known type with random words. Small words are more frequent than by chance, because they can be counts and lengths. If a
/// record decodes, its encoding decodes to the same value.
#[test]
fn any_words_in_records_of_known_types_round_trip() {
    let mut state = 1u64;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 20) % bound
    };
    let mut decoded: BTreeMap<&str, usize> = BTreeMap::new();
    for (kind, name) in RecordType::NAMES {
        for round in 0..400 {
            let endian = if round % 2 == 0 { Endian::Little } else { Endian::Big };
            let layout = SampleLayout::new(&plain_attr(below(1 << 20)), endian);
            let mut record = Vec::new();
            // Some records begin with a text of 64 words.
            let count = (below(40) + if below(4) == 0 { 64 } else { 0 }) as u16;
            bprec_format::Writer::new(&mut record, endian).u32(kind.0).u16(below(1 << 16) as u16).u16(8 + 8 * count);
            for _ in 0..count {
                let word = match below(4) {
                    0 => below(u64::MAX),
                    1 => below(4) << 32 | below(4),
                    _ => below(6),
                };
                bprec_format::Writer::new(&mut record, endian).u64(word);
            }
            let Ok(record) = Record::parse_alone(&record, 0, endian) else { continue };
            if *kind == RecordType::SAMPLE {
                let fields = layout.sample(record.body(), 8).and_then(|sample| sample.decode());
                *decoded.entry(name).or_default() += usize::from(fields.is_ok());
                continue;
            }
            let Ok((payload, _)) = Payload::decode(&record, &layout) else { continue };
            *decoded.entry(name).or_default() += 1;
            let Payload::User(user) = payload else { continue };
            let mut once = Vec::new();
            if user.encode(endian, &mut once).is_err() {
                continue;
            }
            let Ok(again) = Record::parse_alone(&once, 0, endian) else { continue };
            let mut twice = Vec::new();
            UserPayload::decode(&again, endian).unwrap().encode(endian, &mut twice).unwrap();
            assert!(once == twice, "{name} in round {round}");
        }
    }
    let few: Vec<_> = RecordType::NAMES.iter().filter(|(_, name)| decoded.get(name).is_none_or(|n| *n < 5)).collect();
    assert!(few.is_empty(), "too few payloads of these types could be decoded: {few:?} {decoded:?}");
}

proptest! {
    #[test]
    fn attrs(attr in attr(), endian in endian()) {
        let mut out = Vec::new();
        attr.encode(&mut out, endian);
        prop_assert_eq!(EventAttr::parse(&out, 0, endian).unwrap(), attr);
    }

    /// The smallest size loses no field.
    #[test]
    fn attr_sizes(mut attr in attr(), keep in 0usize..10) {
        for (at, zero) in [
            (9, &mut attr.config4), (8, &mut attr.config3), (7, &mut attr.sig_data), (2, &mut attr.branch_sample_type),
        ] {
            if keep < at { *zero = 0; }
        }
        let size = attr.smallest_size();
        let mut out = Vec::new();
        let small = EventAttr { size, ..attr.clone() };
        small.encode(&mut out, Endian::Little);
        prop_assert_eq!(out.len(), size as usize);
        prop_assert_eq!(EventAttr::parse(&out, 0, Endian::Little).unwrap(), small);
    }

    #[test]
    fn kernel_records(
        kind in kind(),
        sample_type in any::<u64>(),
        endian in endian(),
        (pid, tid, time, id, stream, cpu) in any::<(u32, u32, u64, u64, u64, u32)>(),
    ) {
        let layout = SampleLayout::new(&plain_attr(sample_type), endian);
        let id = SampleId {
            pid_tid: Some((pid, tid)), time_ns: Some(time), id: Some(id), stream_id: Some(stream), cpu: Some(cpu),
        };
        check_kind(&kind, &layout, &id);
    }

    #[test]
    fn any_bytes_as_records_do_not_panic(bytes in bytes(300), sample_type in any::<u64>(), endian in endian()) {
        let attr = EventAttr { sample_type: SampleType(sample_type), flags: AttrFlags::SAMPLE_ID_ALL, ..EventAttr::default() };
        let layout = SampleLayout::new(&attr, endian);
        if let Ok(sample) = layout.sample(&bytes, 0) {
            let _ = (sample.decode(), sample.callchain(), sample.raw());
        }
        for record in Records::new(&bytes, 0, endian).flatten() {
            let _ = Payload::decode(&record, &layout);
        }
        let _ = File::parse(&bytes);
    }

    #[test]
    fn files(
        attrs in prop::collection::vec((attr(), prop::collection::vec(any::<u64>(), 0..5)), 1..4),
        data in bytes(64),
        features in prop::collection::btree_map(any::<u8>(), bytes(30), 0..6),
        endian in endian(),
    ) {
        let events: Vec<FileAttr> = attrs.into_iter().map(|(attr, ids)| FileAttr { attr, ids }).collect();
        let mut out = Vec::new();
        let layout = FileLayout::begin(&events, endian, &mut out);
        out.extend_from_slice(&data);
        // With HOSTNAME, the file does not look unfinished, and the order of the halves of the bitmap words is known.
        let mut features = features;
        features.insert(3, b"host".to_vec());
        let features: Vec<(u8, Vec<u8>)> = features.into_iter().collect();
        let mut tail = Vec::new();
        layout.features(data.len() as u64, &features, &mut tail);
        out.extend_from_slice(&tail);
        let bits: Vec<u8> = features.iter().map(|(bit, _)| *bit).collect();
        out[..104].copy_from_slice(&layout.header(data.len() as u64, &bits));

        let file = File::parse(&out).unwrap();
        prop_assert_eq!(file.endian(), endian);
        prop_assert!(file.problems().is_empty());
        prop_assert_eq!(file.attrs().len(), events.len());
        for (read, written) in file.attrs().iter().zip(&events) {
            prop_assert_eq!(&read.ids, &written.ids);
            prop_assert_eq!(&EventAttr { size: written.attr.size, ..read.attr.clone() }, &written.attr);
        }
        if !data.is_empty() {
            prop_assert_eq!(file.data().offset, layout.data_offset());
            prop_assert_eq!(file.data().size, data.len() as u64);
            for (bit, payload) in &features {
                prop_assert_eq!(file.feature(*bit).unwrap().0, payload.as_slice());
            }
        }
    }
}

/// Offsets of sample fields from the kernel's order: IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, PERIOD, READ,
/// CALLCHAIN, RAW … written here by hand.
#[test]
fn sample_fields_stand_in_the_kernels_order() {
    let bits = [
        SampleType::IDENTIFIER,
        SampleType::IP,
        SampleType::TID,
        SampleType::TIME,
        SampleType::ADDR,
        SampleType::ID,
        SampleType::STREAM_ID,
        SampleType::CPU,
        SampleType::PERIOD,
        SampleType::READ,
        SampleType::CALLCHAIN,
        SampleType::RAW,
        SampleType::WEIGHT_STRUCT,
        SampleType::DATA_SRC,
        SampleType::PHYS_ADDR,
        SampleType::CGROUP,
        SampleType::DATA_PAGE_SIZE,
        SampleType::CODE_PAGE_SIZE,
        SampleType::AUX,
    ];
    let sample_type = bits.iter().fold(SampleType(0), |all, bit| all.with(*bit));
    let read_format = ReadFormat::TOTAL_TIME_ENABLED.with(ReadFormat::ID).with(ReadFormat::LOST);
    let attr = EventAttr { sample_type, read_format, ..EventAttr::default() };
    for endian in [Endian::Little, Endian::Big] {
        let mut body = Vec::new();
        let mut w = bprec_format::Writer::new(&mut body, endian);
        w.u64(77).u64(0xffff_ffff_8100_0000).u32(10).u32(11).u64(123).u64(0xadd).u64(77).u64(78).u32(3).u32(0).u64(999);
        w.u64(5).u64(6).u64(77).u64(2); // value, enabled, id, lost
        w.u64(2).u64(0xffff_ffff_ffff_ff80).u64(0xffff_ffff_8100_0000);
        w.u32(12).bytes(b"raw bytes 12");
        w.u64(1).u64(2).u64(3).u64(4).u64(5).u64(6);
        w.u64(3).bytes(b"aux");
        let layout = SampleLayout::new(&attr, endian);
        let sample = layout.sample(&body, 0).unwrap().decode().unwrap();
        assert_eq!(sample.id, Some(77));
        assert_eq!(sample.ip, Some(0xffff_ffff_8100_0000));
        assert_eq!(sample.pid_tid, Some((10, 11)));
        assert_eq!(sample.time_ns, Some(123));
        assert_eq!(sample.addr, Some(0xadd));
        assert_eq!(sample.stream_id, Some(78));
        assert_eq!(sample.cpu, Some(3));
        assert_eq!(sample.period, Some(999));
        let read = sample.read.unwrap();
        assert_eq!((read.time_enabled_ns, read.time_running_ns), (Some(6), None));
        let values: Vec<_> = read.iter().map(|v| (v.value, v.id, v.lost)).collect();
        assert_eq!(values, [(5, Some(77), Some(2))]);
        let chain: Vec<u64> = sample.callchain.unwrap().iter().collect();
        assert_eq!(chain, [0xffff_ffff_ffff_ff80, 0xffff_ffff_8100_0000]);
        assert_eq!(sample.raw, Some(&b"raw bytes 12"[..]));
        assert_eq!((sample.weight, sample.data_src, sample.phys_addr), (Some(1), Some(2), Some(3)));
        assert_eq!((sample.cgroup, sample.data_page_size, sample.code_page_size), (Some(4), Some(5), Some(6)));
        assert_eq!(sample.aux, Some(&b"aux"[..]));
    }
}

/// The kernel writes the hardware index only for a sample that has a branch stack. This stack may be empty.
#[test]
fn a_sample_without_branch_stack_has_no_hardware_index() {
    const HW_INDEX: u64 = 1 << 17;
    let sample_type = SampleType::BRANCH_STACK.with(SampleType::REGS_USER).with(SampleType::CGROUP);
    let (branch_sample_type, sample_regs_user) = (HW_INDEX, 0b11);
    let attr = EventAttr { sample_type, branch_sample_type, sample_regs_user, ..EventAttr::default() };
    for endian in [Endian::Little, Endian::Big] {
        let layout = SampleLayout::new(&attr, endian);
        // Words of the sample after the branch stack: ABI, two registers, cgroup. A stack in `cases` is the count of
        // branches, the hardware index, and three words for each branch.
        let behind = [2, 70, 71, 9];
        let cases: [(&[u64], Option<u64>, usize); 4] = [
            (&[0], None, 0),
            (&[0, 0], Some(0), 0),
            (&[0, u64::MAX], Some(u64::MAX), 0),
            (&[1, 5, 1, 2, 0], Some(5), 1),
        ];
        for (stack, hw_index, len) in cases {
            let mut body = Vec::new();
            let mut w = bprec_format::Writer::new(&mut body, endian);
            for word in stack.iter().chain(&behind) {
                w.u64(*word);
            }
            let sample = layout.sample(&body, 0).unwrap();
            let fields = sample.decode().unwrap();
            let branches = fields.branches.unwrap();
            assert_eq!((branches.hw_index, branches.len()), (hw_index, len), "{stack:?}");
            let registers: Vec<u64> = fields.regs_user.as_ref().unwrap().values.iter().collect();
            assert_eq!((registers, fields.cgroup, sample.unread_bytes()), (vec![70, 71], Some(9), Ok(0)), "{stack:?}");
            let mut again = Vec::new();
            fields.encode(&layout, &mut bprec_format::Writer::new(&mut again, endian));
            assert_eq!(again, body, "{stack:?}");
        }
        // The branch stack is the last field.
        let attr = EventAttr { sample_type: SampleType::BRANCH_STACK, ..attr };
        let layout = SampleLayout::new(&attr, endian);
        let branches = layout.sample(&[0; 8], 0).unwrap().decode().unwrap().branches.unwrap();
        assert_eq!((branches.hw_index, branches.len()), (None, 0));
    }
}
