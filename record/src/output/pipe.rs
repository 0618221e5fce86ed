//! Records that only a stream has, in place of the header and the feature sections of a file.

use bprec_format::records::user::FeatureRecord;
use bprec_format::records::{UserPayload, write_record};
use bprec_format::{Endian, EventAttr, FileAttr, RecordType, SampleId, SampleLayout, Writer};

use crate::events::OpenEvent;
use crate::{Error, Result};

/// Limit on the payload of a HEADER_FEATURE record, in bytes.
const FEATURE_MAX_BYTES: usize = 65_535 - 16;
/// Type of an EVENT_UPDATE record that carries the name of an event.
const EVENT_UPDATE_NAME: u64 = 2;

/// A FINISHED_ROUND record, for streams and files: a header without a body.
pub(super) fn finished_round() -> [u8; 8] {
    let mut record = [0; 8];
    record[..4].copy_from_slice(&RecordType::FINISHED_ROUND.0.to_ne_bytes());
    record[6..].copy_from_slice(&8u16.to_ne_bytes());
    record
}

/// Appends an event as a HEADER_ATTR record, with an attr of `attr_bytes`.
pub(super) fn attr(event: &FileAttr, attr_bytes: u32, out: &mut Vec<u8>) -> Result<()> {
    user_record(RecordType::HEADER_ATTR, out, |w| {
        let mut attr = Vec::new();
        EventAttr { size: attr_bytes, ..event.attr.clone() }.encode(&mut attr, Endian::NATIVE);
        w.bytes(&attr);
        event.ids.iter().for_each(|id| {
            w.u64(*id);
        });
    })
}

/// A feature section as a HEADER_FEATURE record; `None` if the section does not fit into a record.
///
/// # Errors
/// Fails if the record cannot be encoded.
pub(crate) fn feature(bit: u8, payload: &[u8]) -> Result<Option<Vec<u8>>> {
    if payload.len() > FEATURE_MAX_BYTES {
        return Ok(None);
    }
    // The size is not rounded up to a multiple of 8: if a CPU_TOPOLOGY section has no dies, perf would read the padding
    // as dies.
    let mut record = Vec::new();
    UserPayload::Feature(FeatureRecord { feature: bit.into(), bytes: payload })
        .encode(Endian::NATIVE, &mut record)
        .map_err(|error| Error::Other(format!("{}: {error}", RecordType::HEADER_FEATURE)))?;
    Ok(Some(record))
}

/// Appends the name of an event as an EVENT_UPDATE record.
///
/// # Errors
/// Fails if the name does not fit into a record.
pub(crate) fn event_name(event: &OpenEvent, out: &mut Vec<u8>) -> Result<()> {
    let Some(id) = event.file.ids.first() else { return Ok(()) };
    user_record(RecordType::EVENT_UPDATE, out, |w| {
        w.u64(EVENT_UPDATE_NAME).u64(*id).bytes(event.name.as_bytes()).u8(0);
    })
}

/// Appends the formats of tracepoints as a HEADER_TRACING_DATA record.
///
/// # Errors
/// Fails if the record cannot be encoded.
pub(crate) fn tracing_data(payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
    // perf expects the size to include the padding.
    let padded_bytes = payload.len().next_multiple_of(8);
    user_record(RecordType::HEADER_TRACING_DATA, out, |w| {
        w.u32(padded_bytes as u32);
    })?;
    out.extend_from_slice(payload);
    out.resize(out.len() + padded_bytes - payload.len(), 0);
    Ok(())
}

fn user_record(kind: RecordType, out: &mut Vec<u8>, fill: impl FnOnce(&mut Writer<'_>)) -> Result<()> {
    // These records have no sample id trailer, whatever the attributes of the events are.
    let layout = SampleLayout::new(&EventAttr::default(), Endian::NATIVE);
    write_record(out, kind, 0, &layout, &SampleId::default(), fill)
        .map_err(|error| Error::Other(format!("{kind}: {error}")))
}
