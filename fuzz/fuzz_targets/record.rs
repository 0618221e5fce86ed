//! Decodes any bytes as an attr, and as bodies of records with a known type and the right size. A decoded record of a tool can be encoded, and
//! decodes to the same record.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use bprec_format::records::{Payload, UserPayload};
use bprec_format::{Endian, EventAttr, RecordType, Records, SampleLayout, Writer};
use limits::within_limits;

/// Makes records from the bytes: three bytes with the type, the mode and the count of words, then the words.
fn records(mut bytes: &[u8], endian: Endian) -> Vec<u8> {
    let mut records = Vec::new();
    while let Some(([kind, misc, words], rest)) = bytes.split_first_chunk::<3>() {
        let (kind, _) = RecordType::NAMES[usize::from(*kind) % RecordType::NAMES.len()];
        let body = &rest[..rest.len().min(usize::from(*words) * 8) / 8 * 8];
        let size = 8 + body.len() as u16;
        Writer::new(&mut records, endian).u32(kind.0).u16(u16::from(*misc)).u16(size).bytes(body);
        bytes = &rest[body.len()..];
    }
    records
}

fn check(bytes: &[u8]) {
    for endian in [Endian::Little, Endian::Big] {
        let Ok(attr) = EventAttr::parse(bytes, 0, endian) else { continue };
        let layout = SampleLayout::new(&attr, endian);
        let records = records(bytes.get(attr.size as usize..).unwrap_or_default(), endian);
        for record in Records::new(&records, 0, endian).map_while(Result::ok) {
            if record.kind == RecordType::SAMPLE {
                if let Ok(fields) = layout.sample(record.body(), 8).and_then(|sample| sample.decode()) {
                    let branches = fields.branches.map_or(0, |branches| branches.iter().count());
                    let values = fields.read.map_or(0, |read| read.iter().count());
                    let frames = fields.callchain.map_or(0, |chain| chain.iter().count());
                    assert!((branches + values + frames) * 8 <= record.bytes.len());
                }
            } else if let Ok((Payload::User(user), _)) = Payload::decode(&record, &layout) {
                let mut out = Vec::new();
                if user.encode(endian, &mut out).is_ok()
                    && let Ok(again) = bprec_format::Record::parse_alone(&out, 0, endian)
                {
                    let mut twice = Vec::new();
                    let decoded = UserPayload::decode(&again, endian).expect("the encoded payload can be decoded");
                    decoded.encode(endian, &mut twice).expect("the decoded payload can be encoded again");
                    assert_eq!(out, twice);
                }
            }
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| within_limits("fuzz", bytes.len(), || check(bytes)));
