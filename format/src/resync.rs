//! Finding the next record behind damage.
//!
//! A record's own bytes decide alone whether it is fit, so that a record that was kept once is kept again. Damage ends at the
//! next place from which plausible records follow each other.

use std::ops::{Range, RangeInclusive};

use crate::records::user::UserPayload;
use crate::records::{Payload, write_record};
use crate::trailer::oversized_trailer;
use crate::{Error, Event, Events, Problem, RECORD_HEADER_BYTES, Record, RecordType, Records, SampleId};

/// Types of tools' records beyond this one are known to no perf.
const LAST_TOOL_TYPE: RecordType = RecordType::SCHEDSTAT_DOMAIN;
/// Types of simpleperf's own records.
const SIMPLEPERF_TYPES: Range<u32> = 32768..32800;
/// Kinds of traces that perf knows.
const AUXTRACE_KINDS: RangeInclusive<u32> = 1..=7;
/// Number of consecutive records checked to decide whether an offset is the start of a record.
const CHAIN_MAX: usize = 64;
/// Number of fit records that prove a chain, and the number that does where the chain breaks.
const CHAIN_FIT: usize = 3;
const CHAIN_FIT_BEFORE_BREAK: usize = 2;
/// Records of most writers are aligned: with this step the start of the next one is found, unless the damage is longer than this.
const ALIGNED_STEP: usize = 8;
const ALIGNED_SEARCH_BYTES: usize = 128 << 10;

/// Tells records from what is none.
#[derive(Debug, Clone, Copy)]
pub struct Resync<'e> {
    events: &'e Events,
    is_stream: bool,
}

impl<'e> Resync<'e> {
    /// For a recording with these events: a stream, or a file, where events and features have no records.
    pub fn new(events: &'e Events, is_stream: bool) -> Resync<'e> {
        Resync { events, is_stream }
    }

    /// The stretches of `bytes` that are no records, ascending: offsets in the input, of which `bytes` lie at `offset`. Between them
    /// each record is there whole. A last record of which only the first part is there is no such stretch.
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

    /// Returns true if the bytes from `at` on can be the first part of a record that the end of `bytes` has cut off: records begin nowhere in
    /// them, and what there is of a header makes sense.
    pub fn is_cut_off(&self, bytes: &[u8], at: usize) -> bool {
        matches!(self.step(bytes, at), Step::End)
    }

    /// Returns true if the records at the start of `bytes`, up to one that is not there whole, are all kept as they are when a recording is repaired.
    pub fn is_intact(&self, bytes: &[u8]) -> bool {
        let mut records = Records::new(bytes, 0, self.events.endian());
        let all_fit = records
            .by_ref()
            .map_while(Result::ok)
            .all(|record| is_compressed(&record) || self.unfit(&record).is_none());
        let end = records.offset();
        all_fit && self.damage(bytes, 0).iter().all(|damage| damage.start >= end)
    }

    /// Why perf would stumble over a record, if it would.
    pub(crate) fn unfit(&self, record: &Record<'_>) -> Option<&'static str> {
        const ODD: &str = "a size that is no multiple of 8";
        const UNREADABLE: &str = "fields that do not fit into it";
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
                    Some("an event that is not known")
                }
                Ok(UserPayload::AuxtraceInfo(info)) if !AUXTRACE_KINDS.contains(&info.kind) => {
                    Some("a trace of a kind that perf does not know")
                }
                // perf takes these for its own counts without a look at their size.
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
        let Some(event) = self.event(record) else { return Some("an event that is not known") };
        let offset = record.offset + RECORD_HEADER_BYTES as u64;
        let is_readable = match record.kind {
            RecordType::SAMPLE => {
                event.layout.sample(record.body(), offset).is_ok_and(|sample| sample.decode().is_ok())
            }
            _ => Payload::decode(record, &event.layout).is_ok(),
        };
        (!is_readable).then_some(UNREADABLE)
    }

    fn event(&self, record: &Record<'_>) -> Option<&'e Event> {
        self.events.index_of(record).and_then(|index| self.events.all().get(index))
    }

    /// Kind of the bytes at an offset.
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
        // The records that it has swallowed may have more bytes than they need, too. Records inside a type with an
        // opaque body must have exact sizes.
        let swallowed = self.chain_to_end(&bytes[at..end], true);
        if let Some(inner) = swallowed.or_else(|| self.chain_to_end(&bytes[at..end], false).filter(|_| !is_exact)) {
            return Step::Damage(at + inner);
        }
        let follows = self.goes_on(bytes, end);
        if follows && (end == bytes.len() || self.begins(bytes, end, true)) {
            return Step::Record(end);
        }
        // If records go on behind it, the damage is behind it, or it has swallowed the first part of another one. Bytes that only look like
        // one is known by the records behind: all fit, as they are in whatever was mended before.
        let mut inside = (at + RECORD_HEADER_BYTES..end).step_by(ALIGNED_STEP);
        let is_whole = (is_fit || follows)
            && (inside.all(|start| !self.begins(bytes, start, follows)) || is_fit && self.all_fit(bytes, end));
        match is_whole {
            true => Step::Record(end),
            false => self.search(bytes, at, None),
        }
    }

    /// Looks for the next record behind the one at `at`, which is damaged: why it cannot be read, if it cannot be.
    fn search(&self, bytes: &[u8], at: usize, error: Option<&Error>) -> Step {
        let from = at + RECORD_HEADER_BYTES;
        let near = bytes.len().min(from.saturating_add(ALIGNED_SEARCH_BYTES));
        let aligned = (from..near).step_by(ALIGNED_STEP).find(|start| self.begins(bytes, *start, true));
        match aligned.or_else(|| (from..bytes.len()).find(|start| self.begins(bytes, *start, true))) {
            // In front of it may be others with more bytes than they need.
            Some(next) => Step::Damage(self.chain_to_end(&bytes[at..next], false).map_or(next, |first| at + first)),
            None if error.is_some_and(|error| self.is_tail(bytes, at, error)) => Step::End,
            None => Step::Damage(bytes.len()),
        }
    }

    /// Returns true if the last bytes, from `at` on, are a record that lacks its end.
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

    /// Returns true if a record begins at `start`, without any bytes too many if it has to be exact, and others follow it.
    fn begins(&self, bytes: &[u8], start: usize, is_exact: bool) -> bool {
        self.record_bytes(&bytes[start..], is_exact).is_some_and(|len| self.goes_on(bytes, start + len))
    }

    /// Bytes of the record at the start of `bytes`, if there is a fit one; without any too many, if it has to be exact.
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

    /// Returns true if plausible records follow each other from `at` on, most of them fit, or if this is the end.
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

    /// Returns true if only fit records follow each other from `at` on, up to the last that is looked at.
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

    /// Returns true if its fields fill the whole record.
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

    /// A record that no file has: what it describes stands in the header there.
    fn is_misplaced(&self, record: &Record<'_>) -> bool {
        !self.is_stream && matches!(record.kind, RecordType::HEADER_ATTR | RecordType::HEADER_FEATURE)
    }

    /// Offset of the first of the records that lie in `bytes` behind a header and go up to their end: those that a record with a wrong
    /// size has swallowed.
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

/// Bytes at an offset: a record, damage, or the end.
enum Step {
    /// A record, up to the place where the next one begins.
    Record(usize),
    /// No record, up to the place where the next one begins.
    Damage(usize),
    /// The first part of a record, and nothing behind it.
    End,
}

/// Kinds that perf or simpleperf writes.
fn is_known(kind: RecordType) -> bool {
    kind.name().is_some() || SIMPLEPERF_TYPES.contains(&kind.0)
}

/// Holds other records, which take its place.
fn is_compressed(record: &Record<'_>) -> bool {
    matches!(record.kind, RecordType::COMPRESSED | RecordType::COMPRESSED2)
}

/// Kinds that fit more than one size, so that one with a wrong size may be exact, too.
fn has_any_size(kind: RecordType) -> bool {
    matches!(kind, RecordType::AUXTRACE_INFO | RecordType::TIME_CONV | RecordType::HEADER_FEATURE)
}

/// Kinds whose size need not be a multiple of 8.
fn may_be_odd(kind: RecordType) -> bool {
    matches!(
        kind,
        RecordType::HEADER_FEATURE | RecordType::HEADER_TRACING_DATA | RecordType::COMPRESSED | RecordType::COMPRESSED2
    )
}
