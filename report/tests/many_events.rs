//! Recordings of many events, such as those of all tracepoints of a subsystem: one table stands for those with the same rows.
#![allow(clippy::unwrap_used, reason = "a test")]

use bprec_format::records::write_record;
use bprec_format::{
    AttrFlags, Endian, EventAttr, FILE_HEADER_BYTES, FileAttr, FileLayout, RecordType, SampleId, SampleLayout,
    SampleType, event_type, misc,
};
use bprec_report::{Document, Input, Options, by_prog};

/// `PERF_COUNT_SW_PAGE_FAULTS`; context-switches, cpu-migrations, minor-faults and so on follow.
const PAGE_FAULTS: u64 = 2;
const PROGRAM: u64 = 0xffff_ffff_c000_1000;

/// As many events as there are numbers, each with so many samples in the one program.
fn recording(samples: &[u64]) -> Vec<u8> {
    let sample_type = [SampleType::IP, SampleType::TID, SampleType::TIME];
    let sample_type = sample_type.into_iter().fold(SampleType::IDENTIFIER, SampleType::with);
    let attr = |config| EventAttr {
        kind: event_type::SOFTWARE,
        config,
        sample_period: 1,
        sample_type,
        flags: AttrFlags::SAMPLE_ID_ALL.with(AttrFlags::EXCLUDE_GUEST),
        ..EventAttr::default()
    };
    let events: Vec<FileAttr> =
        (0..).zip(samples).map(|(at, _)| FileAttr { attr: attr(PAGE_FAULTS + at), ids: vec![100 + at] }).collect();
    let layout = SampleLayout::new(&events[0].attr, Endian::Little);
    let mut bytes = Vec::new();
    let file = FileLayout::begin(&events, Endian::Little, &mut bytes);
    let start = bytes.len();
    let id = SampleId { id: Some(100), ..SampleId::default() };
    write_record(&mut bytes, RecordType::KSYMBOL, 0, &layout, &id, |w| {
        w.u64(PROGRAM).u32(64).u16(1).u16(0).bytes(b"bpf_prog_0123456789abcdef_demo\0\0");
    })
    .unwrap();
    for (id, samples) in (100..).zip(samples) {
        for at in 0..*samples {
            write_record(&mut bytes, RecordType::SAMPLE, misc::KERNEL, &layout, &SampleId::default(), |w| {
                w.u64(id).u64(PROGRAM + 4).u32(1).u32(1).u64(1000 + at);
            })
            .unwrap();
        }
    }
    let header = file.header((bytes.len() - start) as u64, &[]);
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&header);
    bytes
}

fn table(samples: &[u64], options: &Options) -> (String, Vec<Option<usize>>) {
    let report = by_prog(&Input::from_bytes("test", recording(samples)), options).unwrap();
    let mut text = Vec::new();
    report.write_table(&mut text, usize::MAX).unwrap();
    (String::from_utf8(text).unwrap(), report.events.iter().map(|event| event.same_rows_as).collect())
}

#[test]
fn one_table_stands_for_events_with_the_same_rows() {
    let (text, same) = table(&[1, 7, 2, 7, 0, 3, 0], &Options::default());
    // Two events without samples are few.
    assert_eq!(same, [Some(1), None, Some(1), Some(1), None, Some(1), None]);
    assert_eq!(text.matches("ID  PROGRAM").count(), 3, "{text}");
    let hint = "# 4 more events with rows of the same programs (-e NAME shows one): page-faults (1 sample, 1 in BPF), \
                cpu-migrations (2 samples, 2 in BPF), minor-faults (7 samples, 7 in BPF), \
                alignment-faults (3 samples, 3 in BPF)\n";
    assert!(text.contains(hint), "{text}");
}

#[test]
fn a_few_events_have_a_table_each() {
    let (text, same) = table(&[1, 2, 3], &Options::default());
    assert_eq!(same, [None; 3]);
    assert!(!text.contains("same programs"), "{text}");
}

#[test]
fn events_that_are_named_have_a_table_each() {
    let names = ["page-faults", "context-switches", "cpu-migrations", "minor-faults", "major-faults"];
    let options = Options { events: names.map(str::to_owned).into(), ..Options::default() };
    let (text, same) = table(&[1, 2, 3, 4, 5], &options);
    assert_eq!(same, [None; 5]);
    assert!(!text.contains("same programs"), "{text}");
}
