//! Feeds any bytes to a stream in pieces; the first byte sets their size. The counts of records and errors are the same as for one piece.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use bprec_format::{Availability, Endian, Stream, pipe_header};
use limits::within_limits;

fn records(bytes: &[u8], piece: usize) -> (u64, u64) {
    let mut stream = Stream::new();
    let (mut count, mut errors) = (0, 0);
    for piece in bytes.chunks(piece) {
        stream.feed(piece);
        loop {
            match stream.next_chunk() {
                Ok(Availability::NeedMore) => break,
                Ok(Availability::Ready(chunk)) => {
                    count += chunk.records().map(|record| u64::from(record.is_ok())).sum::<u64>()
                }
                Err(_) => errors += 1,
            }
        }
    }
    (count, errors + u64::from(stream.finish().is_err()))
}

fn check(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let endian = if first & 1 == 0 { Endian::Little } else { Endian::Big };
    let mut input = pipe_header(endian).to_vec();
    input.extend_from_slice(rest);
    assert_eq!(records(&input, usize::from(*first) + 1), records(&input, input.len()));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| within_limits("fuzz", bytes.len(), || check(bytes)));
