//! Missing timer ticks in a recording by perf: 100 of 1,000 ticks per second arrive on each of two CPUs. Without run statistics, it is unknown if
//! idle time or busy time lacks the ticks.
#![allow(clippy::unwrap_used, reason = "a test")]

use bprec_format::feature::Feature;
use bprec_format::records::write_record;
use bprec_format::{
    AttrFlags, Endian, EventAttr, FILE_HEADER_BYTES, FileAttr, FileLayout, RecordType, SampleId, SampleLayout,
    SampleType, event_type, misc, software,
};
use bprec_report::model::{LateTicks, MissingTicks};
use bprec_report::{Document, Input, Options, Session, by_prog};

const TICK_NS: u64 = 1_000_000;
/// Time between two ticks that arrive, ns: every tenth tick arrives.
const APART_NS: u64 = 10 * TICK_NS;
const TICKS: u64 = 100;
const KERNEL_ADDR: u64 = 0xffff_ffff_8100_0000;

/// Recording of an event on two CPUs of a machine with `online` CPUs. CPU 0 runs task 7, CPU 1 runs `idle_pid` (0 is the idle task).
fn recording(flags: AttrFlags, online: u32, idle_pid: u32) -> Input {
    throttled(flags, online, idle_pid, 0)
}

/// The same recording, in which the kernel throttled the event `times` times.
fn throttled(flags: AttrFlags, online: u32, idle_pid: u32, times: u64) -> Input {
    let fields = [SampleType::IP, SampleType::TID, SampleType::TIME, SampleType::CPU];
    let attr = EventAttr {
        kind: event_type::SOFTWARE,
        config: software::CPU_CLOCK,
        sample_period: TICK_NS,
        sample_type: fields.into_iter().fold(SampleType::IDENTIFIER, SampleType::with),
        flags: AttrFlags::SAMPLE_ID_ALL.with(flags),
        ..EventAttr::default()
    };
    let layout = SampleLayout::new(&attr, Endian::Little);
    let mut bytes = Vec::new();
    let file = FileLayout::begin(&[FileAttr { attr, ids: vec![1, 2] }], Endian::Little, &mut bytes);
    let start = bytes.len();
    for tick in 0..TICKS {
        for (cpu, task) in [(0, 7), (1, idle_pid)] {
            write_record(&mut bytes, RecordType::SAMPLE, misc::KERNEL, &layout, &SampleId::default(), |w| {
                w.u64(1 + u64::from(cpu)).u64(KERNEL_ADDR).u32(task).u32(task).u64(tick * APART_NS).u32(cpu).u32(0);
            })
            .unwrap();
        }
    }
    for time in 0..times {
        write_record(&mut bytes, RecordType::THROTTLE, 0, &layout, &SampleId::default(), |w| {
            w.u64(time * TICK_NS).u64(1).u64(1);
        })
        .unwrap();
    }
    let data_bytes = (bytes.len() - start) as u64;
    let cpus = [online, online].map(u32::to_le_bytes).concat();
    file.features(data_bytes, &[(Feature::NRCPUS.0, cpus)], &mut bytes);
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&file.header(data_bytes, &[Feature::NRCPUS.0]));
    Input::from_bytes("of perf", bytes)
}

fn late(input: &Input, options: &Options) -> Option<LateTicks> {
    by_prog(input, options).unwrap().events.first().unwrap().late_ticks
}

#[test]
fn recordings_of_perf_have_late_ticks() {
    let input = recording(AttrFlags::default(), 2, 0);
    let of_each_cpu = (TICKS - 1) * APART_NS;
    let percent = (TICKS * TICK_NS) as f64 * 100.0 / of_each_cpu as f64;
    let one_cpu = Options { cpus: Some("1".parse().unwrap()), ..Options::default() };
    let one_task = Options { comms: vec!["swapper".to_owned()], ..Options::default() };
    for (options, cpus) in [(Options::default(), 2), (one_cpu, 1), (one_task, 2)] {
        let late = late(&input, &options).unwrap();
        assert_eq!((late.capacity_ns, late.missing), (cpus * of_each_cpu, MissingTicks::Unknown));
        assert!((late.arrived_percent - percent).abs() < 1e-9, "{}", late.arrived_percent);
    }
}

/// Throttling stops the ticks for 10 ms at most, so a few times do not explain that most ticks are missing.
#[test]
fn throttling_explains_only_a_part_of_the_missing_ticks() {
    let late = |times| late(&throttled(AttrFlags::default(), 2, 0, times), &Options::default());
    assert_eq!(late(2), late(0));
    assert_eq!(late(200), None);
}

/// Reports with shares of the machine say that these may be too low.
#[test]
fn bills_and_payers_say_that_ticks_are_missing() {
    let input = recording(AttrFlags::default(), 2, 0);
    let ticks = late(&input, &Options::default());
    assert!(ticks.is_some());
    let session = Session::open(&input).unwrap();
    let (bill, payers) =
        (session.bill(&Options::default(), None).unwrap(), session.payers(&Options::default(), &[]).unwrap());
    assert_eq!(bill.events.iter().map(|event| event.late_ticks).collect::<Vec<_>>(), [ticks]);
    assert_eq!(payers.events.iter().map(|event| event.late_ticks).collect::<Vec<_>>(), [ticks]);
    let (mut of_bill, mut of_payers) = (Vec::new(), Vec::new());
    bill.write_table(&mut of_bill, usize::MAX).unwrap();
    payers.write_table(&mut of_payers, usize::MAX).unwrap();
    for shown in [of_bill, of_payers] {
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.contains("only 10 % of the sampling timer's ticks arrived"), "{shown}");
    }
}

/// An event of tasks only, of some CPUs or of some modes has fewer ticks than the machine has time, so bprec cannot detect missing ticks.
#[test]
fn events_of_a_part_of_the_machine_have_no_late_ticks() {
    for (flags, online, idle_pid) in [
        (AttrFlags::INHERIT, 2, 0),
        (AttrFlags::EXCLUDE_USER, 2, 0),
        (AttrFlags::default(), 4, 0),
        (AttrFlags::default(), 2, 8),
    ] {
        assert_eq!(
            late(&recording(flags, online, idle_pid), &Options::default()),
            None,
            "{flags:?} {online} {idle_pid}"
        );
    }
}
