//! Code that only looks like the idle task, or like BPF: hand-made recordings with known answers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use bprec_format::records::write_record;
use bprec_format::{
    AttrFlags, Endian, EventAttr, Events, File, FileAttr, FileLayout, RecordType, SampleId, SampleLayout, SampleType,
    event_type, misc, software,
};
use bprec_report::model::{EventReport, Known, Reason};
use bprec_report::{Input, Options, by_prog};
use std::io::Write;
use std::path::Path;

const MODULE: u64 = 0xffff_ffff_c010_0000;
const TEXT: u64 = 0xffff_ffff_8100_0000;

/// Returns the report of a recording without symbols. The recording has one timer event; each sample is given as mode, address and process id.
fn report(samples: &[(u16, u64, u32)]) -> EventReport {
    let types = [SampleType::IDENTIFIER, SampleType::IP, SampleType::TID, SampleType::TIME, SampleType::CPU];
    let attr = EventAttr {
        kind: event_type::SOFTWARE,
        config: software::CPU_CLOCK,
        sample_period: 1_000_000,
        sample_type: types.iter().fold(SampleType(0), |all, bit| all.with(*bit)),
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..EventAttr::default()
    };
    let event = FileAttr { attr, ids: vec![7] };
    let layout = SampleLayout::new(&event.attr, Endian::Little);
    let mut data = Vec::new();
    for (start, len, name) in [(TEXT, 0x10_0000, &b"[kernel.kallsyms]_text"[..]), (MODULE, 0x1000, b"[loop]")] {
        let padded = (name.len() + 1).next_multiple_of(8);
        write_record(&mut data, RecordType::MMAP, misc::KERNEL, &layout, &SampleId::default(), |w| {
            w.u32(u32::MAX).u32(0).u64(start).u64(len).u64(0).bytes(name).zeros(padded - name.len());
        })
        .unwrap();
    }
    for (at, (mode, ip, pid)) in samples.iter().enumerate() {
        write_record(&mut data, RecordType::SAMPLE, *mode, &layout, &SampleId::default(), |w| {
            w.u64(7).u64(*ip).u32(*pid).u32(*pid).u64(1000 + at as u64).u32(0).u32(0);
        })
        .unwrap();
    }
    let mut host = Vec::new();
    bprec_format::Writer::new(&mut host, Endian::Little).u32(64).bytes(b"host").zeros(60);
    let mut out = Vec::new();
    let file = FileLayout::begin(&[event], Endian::Little, &mut out);
    out.extend_from_slice(&data);
    let mut tail = Vec::new();
    file.features(data.len() as u64, &[(3, host)], &mut tail);
    out.extend_from_slice(&tail);
    out[..104].copy_from_slice(&file.header(data.len() as u64, &[3]));
    let mut on_disk = tempfile::NamedTempFile::new().unwrap();
    on_disk.write_all(&out).unwrap();
    let report = by_prog(&Input::open(on_disk.path()).unwrap(), &Options::default()).unwrap();
    assert_eq!(report.problems, [""; 0]);
    report.events.into_iter().next().unwrap()
}

#[test]
fn what_runs_in_user_mode_is_not_idle() {
    let event = report(&[(misc::KERNEL, TEXT, 0), (misc::KERNEL, TEXT, 0), (misc::USER, 0x40_0000, 12)]);
    assert_eq!(event.idle.value().unwrap().count.samples, 2);
    // Task 0 has samples in user mode, so the recorder ran in a pid namespace: tasks outside appear as task 0, and idle samples are unknown.
    let event = report(&[(misc::KERNEL, TEXT, 0), (misc::USER, 0x40_0000, 0), (misc::USER, 0x40_0000, 0)]);
    assert_eq!(event.idle, Known::Unknown(Reason::ForeignTasks));
    assert!(event.busy.value().is_none() && event.total.shares.busy.is_none());
}

/// Idle samples of each event of a recording; `None` if unknown.
fn idle(bytes: &[u8]) -> Vec<Option<u64>> {
    let report = by_prog(&Input::from_bytes("changed", bytes.to_vec()), &Options::default()).unwrap();
    report.events.iter().map(|event| event.idle.value().map(|idle| idle.count.samples)).collect()
}

/// Recordings of real machines with samples changed to user mode: first all samples, then only the samples of tasks other than the idle task.
#[test]
fn no_sample_in_user_mode_is_idle() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/linux-7.2");
    let mut idle_before = 0;
    for name in ["ratio.data", "switches.data", "xdp.data", "none.data"] {
        let bytes = std::fs::read(place.join(name)).unwrap();
        let file = File::parse(&bytes).unwrap();
        let events = Events::new(file.attrs(), file.endian()).unwrap();
        let samples: Vec<(usize, bool)> = file
            .records()
            .map(Result::unwrap)
            .filter(|record| record.kind == RecordType::SAMPLE)
            .map(|record| {
                let layout = &events.all()[events.index_of(&record).unwrap()].layout;
                let sample = layout.sample(record.body(), record.offset).unwrap();
                (record.offset as usize, sample.pid_tid() == Some((0, 0)))
            })
            .collect();
        let in_user_mode = |is_chosen: &dyn Fn(bool) -> bool| {
            let mut changed = bytes.clone();
            for (offset, _) in samples.iter().filter(|(_, is_idle_task)| is_chosen(*is_idle_task)) {
                changed[offset + 4] = changed[offset + 4] & !(misc::CPUMODE_MASK as u8) | misc::USER as u8;
            }
            changed
        };
        let before = idle(&bytes);
        idle_before += before.iter().flatten().sum::<u64>();
        assert!(idle(&in_user_mode(&|_| true)).iter().all(|idle| idle.unwrap_or(0) == 0), "{name}");
        assert_eq!(idle(&in_user_mode(&|is_idle_task| !is_idle_task)), before, "{name}");
    }
    assert!(idle_before > 0);
}

#[test]
fn code_that_nothing_accounts_for_is_no_bpf() {
    let event = report(&[(misc::KERNEL, MODULE + 0x2000, 12), (misc::KERNEL, MODULE + 0x10, 12)]);
    assert_eq!(event.unknown_kernel_code.value().unwrap().count.samples, 1);
    assert_eq!(event.total.count.samples, 0);
    // Without kernel symbols, the entry code is also unknown.
    assert_eq!(event.entry_unattributed, Known::Unknown(Reason::NoKernelSymbols));
}
