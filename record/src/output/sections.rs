//! Feature sections made from the recording itself; module `machine` makes the sections about the machine.

use bprec_format::bpf::prog_info::{DEFAULT_INFO_LEN, ProgInfoBuf, write_section};
use bprec_format::feature::{
    ClockData, ClockResolution, DescribedEvent, EventDesc, Feature, SampleTime, SectionContent,
};
use bprec_format::{Endian, EventAttr, Writer};

use crate::events::OpenEvent;
use crate::sys;

/// Feature bit and payload of a section.
pub(crate) type Section = (u8, Vec<u8>);

fn section<'a>(feature: Feature, payload: &impl SectionContent<'a>) -> Section {
    let mut bytes = Vec::new();
    payload.encode(&mut Writer::new(&mut bytes, Endian::NATIVE));
    (feature.0, bytes)
}

/// The EVENT_DESC section: attributes, names and ids of the events.
pub(crate) fn event_desc(events: &[OpenEvent]) -> Section {
    let attr_size_bytes = events.iter().map(|event| event.file.attr.smallest_size()).max().unwrap_or(64);
    let attrs: Vec<Vec<u8>> = events
        .iter()
        .map(|event| {
            let mut bytes = Vec::new();
            EventAttr { size: attr_size_bytes, ..event.file.attr.clone() }.encode(&mut bytes, Endian::NATIVE);
            bytes
        })
        .collect();
    let events = events
        .iter()
        .zip(&attrs)
        .map(|(event, attr)| DescribedEvent { attr, name: event.name.as_bytes(), ids: event.file.ids.clone() })
        .collect();
    section(Feature::EVENT_DESC, &EventDesc { attr_size_bytes, events })
}

/// The CLOCKID and CLOCK_DATA sections: resolution of the clock, and its relation to the wall clock.
pub(crate) fn clock() -> [Section; 2] {
    let resolution_ns = sys::monotonic_resolution_ns();
    let data = ClockData {
        version: 1,
        clockid: sys::CLOCK_MONOTONIC.cast_unsigned(),
        wall_clock_ns: sys::realtime_unix_ns(),
        clockid_ns: sys::monotonic_ns(),
    };
    [section(Feature::CLOCKID, &ClockResolution { resolution_ns }), section(Feature::CLOCK_DATA, &data)]
}

/// The SAMPLE_TIME section: times of the first and the last sample.
pub(crate) fn sample_time(first_ns: u64, last_ns: u64) -> Section {
    section(Feature::SAMPLE_TIME, &SampleTime { first_ns, last_ns })
}

/// The BPF_PROG_INFO section with the given programs.
pub(crate) fn programs(programs: &[ProgInfoBuf]) -> Section {
    let mut bytes = Vec::new();
    write_section(&mut bytes, Endian::NATIVE, programs, DEFAULT_INFO_LEN);
    (Feature::BPF_PROG_INFO.0, bytes)
}

/// The BPF_BTF section with the given blobs, which must be in ascending order of their ids.
pub(crate) fn btfs<'a>(blobs: impl ExactSizeIterator<Item = (u32, &'a [u8])>) -> Section {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes, Endian::NATIVE);
    w.u32(blobs.len() as u32);
    for (id, data) in blobs {
        w.u32(id).u32(data.len() as u32).bytes(data);
    }
    (Feature::BPF_BTF.0, bytes)
}
