//! Finds the next record after damage.
//!
//! A record is fit if perf neither rejects nor misreads it. Only the bytes of the record and the events decide this, so a second repair of a
//! recording keeps all records. A record is plausible if perf or simpleperf writes its type and its size is possible for the type. Damage ends at the
//! next offset from which plausible records follow each other.

use std::ops::{Range, RangeInclusive};

use crate::records::user::UserPayload;
use crate::records::{Payload, write_record};
use crate::trailer::oversized_trailer;
use crate::{Error, Event, Events, Problem, RECORD_HEADER_BYTES, Record, RecordType, Records, SampleId};

/// Last type of a tool's record that perf knows.
const LAST_TOOL_TYPE: RecordType = RecordType::SCHEDSTAT_DOMAIN;
/// Types of simpleperf's own records.
const SIMPLEPERF_TYPES: Range<u32> = 32768..32800;
/// Kinds of hardware traces that perf knows.
const AUXTRACE_KINDS: RangeInclusive<u32> = 1..=7;
/// Limit on the consecutive records that are checked to decide if a record starts at an offset.
const CHAIN_MAX: usize = 64;
/// Count of fit records after which a chain of records is accepted.
const CHAIN_FIT: usize = 3;
/// Count of fit records that suffices for a chain that breaks before it has [`CHAIN_FIT`] of them.
const CHAIN_FIT_BEFORE_BREAK: usize = 2;
/// Alignment of most records. The search tries the aligned offsets in the first [`ALIGNED_SEARCH_BYTES`] of damage, and then every offset.
const ALIGNED_STEP: usize = 8;
/// Length of the damage in which the search first tries only aligned offsets.
const ALIGNED_SEARCH_BYTES: usize = 128 << 10;

/// Finds records and damage in the bytes of a recording.
#[derive(Debug, Clone, Copy)]
pub struct Resync<'e> {
    events: &'e Events,
    is_stream: bool,
}

impl<'e> Resync<'e> {
    /// Search in a recording with these events. In a file, unlike a stream, events and features are not records.
    pub fn new(events: &'e Events, is_stream: bool) -> Resync<'e> {
        Resync { events, is_stream }
    }

    /// Damaged ranges of `bytes`, ascending, as offsets in the input; `bytes` lie at `offset`. All records between the ranges
    /// are complete. A last record that is cut off is not damage.
    pub fn damage(&self, bytes: &[u8], offset: u64) -> Vec<Range<u64>> {
        let mut damage: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let next = match self.step(bytes, at) {
                Step::Record(next) => {
                    at = next;
                    continue;
                }
                Step::Damage(next) => next,
                Step::End => break,
            };
            let (from, to) = (offset + at as u64, offset + next as u64);
            match damage.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => damage.push(from..to),
            }
            at = next;
        }
        damage
    }

    /// Returns true if the bytes from `at` on may be a record that the end of `bytes` cut off: no record begins in them, and
    /// their header is plausible.
    pub fn is_cut_off(&self, bytes: &[u8], at: usize) -> bool {
        matches!(self.step(bytes, at), Step::End)
    }

    /// Returns true if a repair keeps all records in `bytes` before the first incomplete record.
    pub fn is_intact(&self, bytes: &[u8]) -> bool {
        let mut records = Records::new(bytes, 0, self.events.endian());
        let all_fit = records
            .by_ref()
            .map_while(Result::ok)
            .all(|record| record.kind.is_compressed() || self.unfit(&record).is_none());
        let end = records.offset();
        all_fit && self.damage(bytes, 0).iter().all(|damage| damage.start >= end)
    }

    /// Reason why perf would reject or misread a record; `None` for a fit record.
    pub fn unfit(&self, record: &Record<'_>) -> Option<&'static str> {
        const ODD: &str = "a size that is not a multiple of 8";
        const UNREADABLE: &str = "fields that do not fit into the record";
        let is_odd = record.bytes.len() % 8 != 0;
        if !record.kind.is_kernel() {
            if record.kind > LAST_TOOL_TYPE {
                return Some("a type that perf does not know");
            }
            if is_odd && !may_be_odd(record.kind) {
                return Some(ODD);
            }
            return match UserPayload::decode(record, self.events.endian()) {
                Err(_) => Some(UNREADABLE),
                Ok(UserPayload::EventUpdate(update))
                    if !self.is_stream && self.events.index_of_id(update.id).is_none() =>
                {
                    Some("an unknown event")
                }
                Ok(UserPayload::AuxtraceInfo(info)) if !AUXTRACE_KINDS.contains(&info.kind) => {
                    Some("a trace of a kind that perf does not know")
                }
                // perf reads STAT and STAT_ROUND without checking their size.
                Ok(UserPayload::Stat(_) | UserPayload::StatRound(_)) if !self.is_exact(record) => Some(UNREADABLE),
                Ok(_) => None,
            };
        }
        if is_odd {
            return Some(ODD);
        }
        if record.kind.name().is_none() {
            return Some("a type that perf does not know");
        }
        let Some(event) = self.event(record) else { return Some("an unknown event") };
        let is_readable = match record.kind {
            RecordType::SAMPLE => {
                event.layout.sample(record.body(), record.body_offset()).is_ok_and(|sample| sample.decode().is_ok())
            }
            _ => Payload::decode(record, &event.layout).is_ok(),
        };
        (!is_readable).then_some(UNREADABLE)
    }

    fn event(&self, record: &Record<'_>) -> Option<&'e Event> {
        self.events.index_of(record).and_then(|index| self.events.all().get(index))
    }

    /// Decides whether the bytes at an offset are a record, damage, or a record that is cut off.
    fn step(&self, bytes: &[u8], at: usize) -> Step {
        let record = match Record::parse(&bytes[at..], 0, self.events.endian()) {
            Ok(record) => record,
            Err(error) => return self.search(bytes, at, Some(&error)),
        };
        let end = at + record.total_bytes();
        if self.is_misplaced(&record) {
            return match self.goes_on(bytes, at + record.bytes.len()) {
                true => Step::Damage(at + record.bytes.len()),
                false => self.search(bytes, at, None),
            };
        }
        let is_fit = self.unfit(&record).is_none();
        let is_exact = is_fit && self.is_exact(&record);
        if is_exact && !has_any_size(record.kind) {
            return Step::Record(end);
        }
        // The size of this record may be wrong, so that it contains other records. Look for a chain of inner records, each
        // filled by its fields. If this record is unfit, or longer than its fields, inner records may be longer than their fields, too.
        let swallowed = self.chain_to_end(&bytes[at..end], true);
        if let Some(inner) = swallowed.or_else(|| self.chain_to_end(&bytes[at..end], false).filter(|_| !is_exact)) {
            return Step::Damage(at + inner);
        }
        let follows = self.goes_on(bytes, end);
        if follows && (end == bytes.len() || self.begins(bytes, end, true)) {
            return Step::Record(end);
        }
        // Keep this record if it is fit or records follow it, and no other record begins inside it. If records follow, an inner record counts only if
        // its fields fill it. Inner bytes may look like a record by chance: therefore also keep a fit record if the next records, at most
        // `CHAIN_MAX`, are all fit, as in a repaired recording.
        let mut inside = (at + RECORD_HEADER_BYTES..end).step_by(ALIGNED_STEP);
        let is_whole = (is_fit || follows)
            && (inside.all(|start| !self.begins(bytes, start, follows)) || is_fit && self.all_fit(bytes, end));
        match is_whole {
            true => Step::Record(end),
            false => self.search(bytes, at, None),
        }
    }

    /// Finds the next record after the damaged record at `at`; `error` is the error of reading that record.
    fn search(&self, bytes: &[u8], at: usize, error: Option<&Error>) -> Step {
        let from = at + RECORD_HEADER_BYTES;
        let near = bytes.len().min(from.saturating_add(ALIGNED_SEARCH_BYTES));
        let aligned = (from..near).step_by(ALIGNED_STEP).find(|start| self.begins(bytes, *start, true));
        match aligned.or_else(|| (from..bytes.len()).find(|start| self.begins(bytes, *start, true))) {
            // The search for `next` skipped records that are longer than their fields. If a chain of these records leads to `next`, the damage ends
            // at the first record of the chain.
            Some(next) => Step::Damage(self.chain_to_end(&bytes[at..next], false).map_or(next, |first| at + first)),
            None if error.is_some_and(|error| self.is_tail(bytes, at, error)) => Step::End,
            None => Step::Damage(bytes.len()),
        }
    }

    /// Returns true if the bytes from `at` on are a record that lacks its end.
    fn is_tail(&self, bytes: &[u8], at: usize, error: &Error) -> bool {
        if !matches!(error.problem, Problem::Truncated { .. }) {
            return false;
        }
        let rest = &bytes[at..];
        let endian = self.events.endian();
        let (Some(kind), Some(size)) = (endian.u32_at(rest, 0).map(RecordType), endian.u16_at(rest, 6)) else {
            return true;
        };
        is_known(kind) && (size % 8 == 0 || may_be_odd(kind))
    }

    /// Returns true if a fit record begins at `start` and records follow it. With `is_exact`, the fields must fill the
    /// record.
    fn begins(&self, bytes: &[u8], start: usize, is_exact: bool) -> bool {
        self.record_bytes(&bytes[start..], is_exact).is_some_and(|len| self.goes_on(bytes, start + len))
    }

    /// Bytes of the fit record at the start of `bytes`, if any. With `is_exact`, the fields must fill the record.
    fn record_bytes(&self, bytes: &[u8], is_exact: bool) -> Option<usize> {
        let endian = self.events.endian();
        let kind = RecordType(endian.u32_at(bytes, 0)?);
        kind.name()?;
        let record = Record::parse(bytes, 0, endian).ok()?;
        let is_fit = !self.is_misplaced(&record) && self.unfit(&record).is_none();
        let is_oversized =
            || self.event(&record).is_some_and(|event| oversized_trailer(&record, &event.layout).is_some());
        (is_fit && (!is_exact || self.is_exact(&record) || is_oversized())).then(|| record.total_bytes())
    }

    /// Returns true if plausible records follow each other from `at` on, up to the end of `bytes` or until three of them are fit. If the chain breaks
    /// earlier, two fit records suffice. One fit record suffices if the chain breaks at a record that is cut off by the end of `bytes`.
    fn goes_on(&self, bytes: &[u8], mut at: usize) -> bool {
        let endian = self.events.endian();
        let mut fit = 0;
        for _ in 0..CHAIN_MAX {
            if at == bytes.len() {
                return true;
            }
            let record = match Record::parse(&bytes[at..], 0, endian) {
                Ok(record) => record,
                Err(error) => return fit > 0 && self.is_tail(bytes, at, &error) || fit >= CHAIN_FIT_BEFORE_BREAK,
            };
            let is_odd = record.bytes.len() % 8 != 0 && !may_be_odd(record.kind);
            if is_odd || !is_known(record.kind) {
                return fit >= CHAIN_FIT_BEFORE_BREAK;
            }
            fit += usize::from(self.unfit(&record).is_none());
            if fit >= CHAIN_FIT {
                return true;
            }
            at += record.total_bytes();
        }
        false
    }

    /// Returns true if the next [`CHAIN_MAX`] records from `at` on are all fit.
    fn all_fit(&self, bytes: &[u8], mut at: usize) -> bool {
        for _ in 0..CHAIN_MAX {
            if at == bytes.len() {
                break;
            }
            match self.record_bytes(&bytes[at..], false) {
                Some(len) => at += len,
                None => return false,
            }
        }
        true
    }

    /// Returns true if the fields fill the whole record.
    fn is_exact(&self, record: &Record<'_>) -> bool {
        let endian = self.events.endian();
        let mut again = Vec::new();
        let is_written = if record.kind.is_kernel() {
            let Some(event) = self.event(record) else { return false };
            if record.kind == RecordType::SAMPLE {
                let sample = event.layout.sample(record.body(), record.offset);
                return sample.and_then(|sample| sample.unread_bytes()).is_ok_and(|bytes| bytes == 0);
            }
            Payload::decode(record, &event.layout).and_then(|(payload, _)| {
                let id = SampleId::default();
                write_record(&mut again, record.kind, record.misc, &event.layout, &id, |w| payload.encode(w))
            })
        } else {
            UserPayload::decode(record, endian).and_then(|payload| payload.encode(endian, &mut again))
        };
        is_written.is_ok() && again.len() == record.bytes.len()
    }

    /// Returns true for a record in a file of a type that only streams have: a file has this content in its header and features.
    fn is_misplaced(&self, record: &Record<'_>) -> bool {
        !self.is_stream && matches!(record.kind, RecordType::HEADER_ATTR | RecordType::HEADER_FEATURE)
    }

    /// `bytes` begin with a record that may have a wrong size. Returns the offset of the first record inside it from
    /// which fit records follow each other up to the end of `bytes`.
    fn chain_to_end(&self, bytes: &[u8], is_exact: bool) -> Option<usize> {
        let places = bytes.len() / ALIGNED_STEP;
        let mut reaches_end = vec![false; places + 1];
        reaches_end[places] = bytes.len() % ALIGNED_STEP == 0;
        for place in (1..places).rev() {
            let start = place * ALIGNED_STEP;
            let end = self.record_bytes(&bytes[start..], is_exact).map(|len| start + len);
            reaches_end[place] = end.is_some_and(|end| end % ALIGNED_STEP == 0 && reaches_end[end / ALIGNED_STEP]);
        }
        (1..places).find(|place| reaches_end[*place]).map(|place| place * ALIGNED_STEP)
    }
}

/// Content at an offset.
enum Step {
    /// A record that ends at this offset.
    Record(usize),
    /// Damage that ends at this offset.
    Damage(usize),
    /// A record that the end of the bytes cut off.
    End,
}

/// Returns true for types that perf or simpleperf writes.
fn is_known(kind: RecordType) -> bool {
    kind.name().is_some() || SIMPLEPERF_TYPES.contains(&kind.0)
}

/// Returns true for types with fields that fit several sizes: their fields may fill a record of wrong size, too.
fn has_any_size(kind: RecordType) -> bool {
    matches!(kind, RecordType::AUXTRACE_INFO | RecordType::TIME_CONV | RecordType::HEADER_FEATURE)
}

/// Returns true for types with sizes that are not multiples of 8.
fn may_be_odd(kind: RecordType) -> bool {
    matches!(
        kind,
        RecordType::HEADER_FEATURE | RecordType::HEADER_TRACING_DATA | RecordType::COMPRESSED | RecordType::COMPRESSED2
    )
}
