//! Repair of KSYMBOL and BPF_EVENT records that the kernel made too long.
//!
//! If several events of one CPU receive KSYMBOL or BPF_EVENT records, the kernel adds the trailer size of each event to
//! the record size for the next event and does not subtract it again (`perf_event_ksymbol_output`,
//! `perf_event_bpf_output`; other record types are handled correctly). The record then holds its payload, its trailer,
//! and old bytes of the ring: a reader that takes the trailer from the end of the record reads the old bytes. Any other
//! recorder on the machine triggers this.

use bprec_format::{Endian, RECORD_HEADER_BYTES, Record, RecordType, Records};

/// Bytes of a BPF_EVENT without its trailer, and of a KSYMBOL before its name.
const FIXED_BYTES: usize = 24;

/// Moves the trailers of KSYMBOL and BPF_EVENT records, `trailer_bytes` long, to the ends of their records.
pub(crate) fn fix_sample_id_trailer(bytes: &mut [u8], trailer_bytes: usize) {
    let oversized: Vec<(usize, usize, usize)> = Records::new(bytes, 0, Endian::NATIVE)
        .map_while(|record| record.ok())
        .filter_map(|record| {
            let (start, payload, size) = (record.offset as usize, payload_bytes(&record)?, record.bytes.len());
            (size > payload + trailer_bytes).then_some((start, payload, size))
        })
        .collect();
    for (start, payload, size) in oversized {
        let record = &mut bytes[start..start + size];
        let end = size - trailer_bytes;
        record.copy_within(payload..payload + trailer_bytes, end);
        // The bytes in between now count as padding of the name.
        record[payload..end].fill(0);
    }
}

/// Bytes of a KSYMBOL or BPF_EVENT record before its trailer; `None` for other types.
fn payload_bytes(record: &Record<'_>) -> Option<usize> {
    match record.kind {
        RecordType::BPF_EVENT => Some(FIXED_BYTES),
        RecordType::KSYMBOL => {
            let name = record.body().get(FIXED_BYTES - RECORD_HEADER_BYTES..)?;
            let len = name.iter().position(|byte| *byte == 0)?;
            Some(FIXED_BYTES + (len + 1).next_multiple_of(8))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, payload: &[u8], behind: &[u8]) -> Vec<u8> {
        let size = 8 + payload.len() + behind.len();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(0u16.to_ne_bytes());
        bytes.extend((size as u16).to_ne_bytes());
        bytes.extend(payload);
        bytes.extend(behind);
        bytes
    }

    #[test]
    fn trailers_move_to_the_end_whatever_follows_them() {
        let trailer = [7u8; 16];
        // The excess of an oversized record is the size of the trailers of other events: shorter than, equal to, or
        // longer than ours.
        for extra in [8, 16, 40] {
            let mut grown = trailer.to_vec();
            grown.extend(vec![0xee; extra]);
            let mut ksymbol = vec![1; 16];
            ksymbol.extend(b"bpf_prog_x\0\0\0\0\0\0");
            let mut bytes = record(9, &[5; 8], &[]);
            bytes.extend(record(18, &[1; 16], &grown));
            bytes.extend(record(17, &ksymbol, &grown));
            bytes.extend(record(18, &[2; 16], &trailer));
            fix_sample_id_trailer(&mut bytes, trailer.len());

            let mut right = vec![0; extra];
            right.extend(trailer);
            let mut expected = record(9, &[5; 8], &[]);
            expected.extend(record(18, &[1; 16], &right));
            expected.extend(record(17, &ksymbol, &right));
            expected.extend(record(18, &[2; 16], &trailer));
            assert_eq!(bytes, expected, "extra {extra}");
        }
    }
}
