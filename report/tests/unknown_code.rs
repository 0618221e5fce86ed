//! What looks like the idle task, or like BPF, and is not: hand-made recordings with known answers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use bprec_format::records::write_record;
use bprec_format::{
    AttrFlags, Endian, EventAttr, FileAttr, FileLayout, RecordType, SampleId, SampleLayout, SampleType, event_type,
    misc, software,
};
use bprec_report::model::{EventReport, Known, Reason};
use bprec_report::{Input, Options, by_prog};
use std::io::Write;

const MODULE: u64 = 0xffff_ffff_c010_0000;
const TEXT: u64 = 0xffff_ffff_8100_0000;

/// A recording of a timer without symbols: mode, address, and process of each sample.
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
    // Tasks outside of a pid namespace come as task 0: which of its samples are the idle task's nobody knows.
    let event = report(&[(misc::KERNEL, TEXT, 0), (misc::USER, 0x40_0000, 0), (misc::USER, 0x40_0000, 0)]);
    assert_eq!(event.idle, Known::Unknown(Reason::ForeignTasks));
    assert!(event.busy.value().is_none() && event.total.shares.busy.is_none());
}

#[test]
fn code_that_nothing_accounts_for_is_no_bpf() {
    let event = report(&[(misc::KERNEL, MODULE + 0x2000, 12), (misc::KERNEL, MODULE + 0x10, 12)]);
    assert_eq!(event.unknown_kernel_code.value().unwrap().count.samples, 1);
    assert_eq!(event.total.count.samples, 0);
    // Nor is it known that nothing ran programs, where nothing names what does.
    assert_eq!(event.entry_unattributed, Known::Unknown(Reason::NoKernelSymbols));
}
