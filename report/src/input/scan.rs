//! Finds, with several threads, the few records that the first pass needs; the first pass skips samples, which are most of the records. A thread that
//! starts in the middle guesses where a record begins. Its findings are used only if the scan of the bytes before ends at the guessed place.

use bprec_format::{Endian, RECORD_HEADER_BYTES, Record, RecordType, Records};

use crate::input::cache::read_ahead;
use std::sync::mpsc::sync_channel;
use std::thread::Builder;

/// Approximate size of the parts into which the samples are divided for the threads of the second pass.
const PART_BYTES: usize = 1 << 20;
/// Size of a stretch, the unit of work of a scanning thread: the thread scans a stretch and then hands over its findings.
const STRETCH_BYTES: usize = 8 << 20;
/// Number of plausible records in a row that confirm a guess.
const PLAUSIBLE_RECORDS: usize = 32;
/// Limit on the size of a record. From any offset, the next record starts within this distance.
const GUESS_BYTES: usize = 1 << 16;

/// Findings in a stretch of records, as offsets in the slice.
#[derive(Default)]
struct ScanStretch {
    wanted: Vec<usize>,
    parts: Vec<usize>,
    /// Offset of the first record after the stretch. If a record of the stretch cannot be read, the offset of that record.
    end: usize,
}

/// Scanner of the records of a slice.
pub(crate) struct Scanner<'w, W> {
    pub(crate) endian: Endian,
    pub(crate) threads: usize,
    /// Returns true if the caller needs this record; the bytes include its header.
    pub(crate) is_wanted: &'w W,
}

impl<W: Fn(RecordType, &[u8]) -> bool + Sync> Scanner<'_, W> {
    /// Calls `visit` with every wanted record of a slice, in order, and with the error of a damaged record, which ends the walk. Calls `done` with
    /// each range that was read. Returns the offsets in the input at which parts of about [`PART_BYTES`] start.
    pub(crate) fn scan(
        &self,
        records: &Records<'_>,
        visit: &mut dyn FnMut(bprec_format::Result<Record<'_>>),
        done: &dyn Fn(std::ops::Range<u64>),
    ) -> Vec<u64> {
        let (bytes, offset) = (records.rest(), records.offset());
        let stretches = bytes.len().div_ceil(STRETCH_BYTES);
        let threads = self.threads.min(stretches);
        let bound = |number: usize| number.saturating_mul(STRETCH_BYTES).min(bytes.len());
        std::thread::scope(|scope| {
            // Each thread scans every `threads`-th stretch, and its channel holds the findings of one stretch. While the channel is full, the thread
            // waits with the findings of its next stretch.
            let start = |first: usize| {
                let (found, taken) = sync_channel(1);
                let work = move || {
                    for number in (first..stretches).step_by(threads) {
                        let start = guess(bytes, bound(number), self.endian);
                        let stretch = start.map(|start| (start, self.stretch(bytes, start, bound(number + 1))));
                        if found.send(stretch).is_err() {
                            break;
                        }
                    }
                };
                Builder::new().spawn_scoped(scope, work).ok().map(|_| taken)
            };
            let found: Vec<_> = (0..threads).filter(|_| threads > 1).map_while(start).collect();
            let (mut parts, mut at) = (Vec::new(), 0);
            for number in 0..stretches {
                // The reading thread scans the stretch itself if no thread could be started, or if the thread guessed the stretch's first record
                // wrong.
                let guessed = found.get(number % threads).and_then(|found| found.recv().ok().flatten());
                let stretch = match guessed {
                    Some((start, stretch)) if start == at => stretch,
                    _ => self.stretch(bytes, at, bound(number + 1)),
                };
                parts.extend(stretch.parts.iter().map(|part| offset + *part as u64));
                for wanted in &stretch.wanted {
                    visit(Record::parse(&bytes[*wanted..], offset + *wanted as u64, self.endian));
                }
                done(offset + at as u64..offset + stretch.end as u64);
                at = stretch.end;
                // After a damaged record, the start of the next record is unknown.
                if at < bound(number + 1) {
                    if let Err(error) = Record::parse(&bytes[at..], offset + at as u64, self.endian) {
                        visit(Err(error));
                    }
                    break;
                }
            }
            parts
        })
    }

    /// Walks records from `from` to the first one that starts at or after `to`, or that cannot be read.
    fn stretch(&self, bytes: &[u8], from: usize, to: usize) -> ScanStretch {
        let mut found = ScanStretch { end: from, ..ScanStretch::default() };
        let mut next_part = from;
        while found.end < to {
            let at = found.end;
            let rest = &bytes[at..];
            read_ahead(rest);
            let Some((kind, record)) = header(rest, self.endian) else { break };
            let mut len = record.len();
            if matches!(kind, RecordType::AUXTRACE | RecordType::HEADER_TRACING_DATA) {
                match Record::parse(rest, 0, self.endian) {
                    Ok(record) => len = record.total_bytes(),
                    Err(_) => break,
                }
            }
            if at >= next_part {
                found.parts.push(at);
                next_part = at + PART_BYTES;
            }
            if (self.is_wanted)(kind, record) {
                found.wanted.push(at);
            }
            found.end = at + len;
        }
        found
    }
}

/// Returns the type and all bytes of the record at the start of `rest`.
#[inline]
fn header(rest: &[u8], endian: Endian) -> Option<(RecordType, &[u8])> {
    let [t0, t1, t2, t3, _, _, s0, s1] = *rest.first_chunk::<RECORD_HEADER_BYTES>()?;
    let size = usize::from(endian.u16([s0, s1]));
    let record = rest.get(..size).filter(|record| record.len() >= RECORD_HEADER_BYTES)?;
    Some((RecordType(endian.u32([t0, t1, t2, t3])), record))
}

/// Returns the first offset from `from` on where a record seems to start.
fn guess(bytes: &[u8], from: usize, endian: Endian) -> Option<usize> {
    let from = from.next_multiple_of(8);
    (from..(from + GUESS_BYTES).min(bytes.len())).step_by(8).find(|start| is_plausible(&bytes[*start..], endian))
}

fn is_plausible(mut rest: &[u8], endian: Endian) -> bool {
    for _ in 0..PLAUSIBLE_RECORDS {
        if rest.is_empty() {
            return true;
        }
        let Some((kind, record)) = header(rest, endian) else { return false };
        if kind.name().is_none() || !record.len().is_multiple_of(8) {
            return false;
        }
        rest = &rest[record.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds records of many sizes; one in a hundred is a COMM record, and some bodies look like headers.
    fn records(bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut number = 0u64;
        while out.len() < bytes {
            let kind: u32 = if number.is_multiple_of(100) { 3 } else { 9 };
            let size = 24 + (number * 2654435761 % 61) as u16 * 8;
            out.extend(kind.to_le_bytes());
            out.extend(1u16.to_le_bytes());
            out.extend(size.to_le_bytes());
            (1..size / 8).for_each(|word| out.extend(((u64::from(word) << 51) | (number % 11)).to_le_bytes()));
            number += 1;
        }
        out
    }

    fn scanned(bytes: &[u8], threads: usize) -> (Vec<u64>, Vec<u64>, Option<String>) {
        let is_wanted = |kind: RecordType, _: &[u8]| kind == RecordType::COMM;
        let scanner = Scanner { endian: Endian::Little, threads, is_wanted: &is_wanted };
        let (mut wanted, mut problem) = (Vec::new(), None);
        let parts = scanner.scan(
            &Records::new(bytes, 1000, Endian::Little),
            &mut |record| match record {
                Ok(record) => wanted.push(record.offset),
                Err(error) => problem = Some(error.to_string()),
            },
            &|_| (),
        );
        (wanted, parts, problem)
    }

    /// Finds the COMM records by a plain walk.
    fn walked(bytes: &[u8]) -> (Vec<u64>, Option<String>) {
        let mut wanted = Vec::new();
        for record in Records::new(bytes, 1000, Endian::Little) {
            match record {
                Ok(record) if record.kind == RecordType::COMM => wanted.push(record.offset),
                Ok(_) => {}
                Err(error) => return (wanted, Some(error.to_string())),
            }
        }
        (wanted, None)
    }

    #[test]
    fn several_threads_find_what_one_walk_finds() {
        let mut bytes = records(20 << 20);
        for damage in [None, Some(19 << 20), Some(9 << 20)] {
            if let Some(at) = damage {
                // Sets the size of a later record to 0, which is too small.
                let start =
                    walked(&bytes).0.into_iter().find(|offset| *offset > at).unwrap_or_default() as usize - 1000;
                bytes[start + 6..start + 8].fill(0);
            }
            let (expected, problem) = walked(&bytes);
            assert_eq!(problem.is_some(), damage.is_some());
            for threads in [1, 2, 3, 8] {
                let (wanted, parts, found) = scanned(&bytes, threads);
                assert_eq!((wanted, found), (expected.clone(), problem.clone()), "{damage:?}, {threads} threads");
                assert!(parts.is_sorted() && parts.first() == Some(&1000), "{threads} threads");
            }
        }
    }

    #[test]
    fn guesses_that_are_wrong_do_no_harm() {
        // The bodies are sequences of plausible records.
        let inner = [3u32.to_le_bytes(), [1, 0, 8, 0]].concat();
        let mut bytes = Vec::new();
        while bytes.len() < 18 << 20 {
            bytes.extend(9u32.to_le_bytes());
            bytes.extend([1, 0, 0xf8, 0xff]);
            bytes.extend(inner.repeat(0xfff8 / 8 - 1));
        }
        let (wanted, _, problem) = scanned(&bytes, 2);
        assert_eq!((wanted.len(), problem), (0, None));
    }
}
