//! The parts of a sample that are lists: call chains, registers, branches, counter values.

use crate::{Endian, ReadFormat, Reader, Result, Writer};

/// Consecutive `u64` values, read when asked for.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    bytes: &'a [u8],
    endian: Endian,
}

impl<'a> Words<'a> {
    /// The words in `bytes`; a last incomplete one is left out.
    pub fn new(bytes: &'a [u8], endian: Endian) -> Words<'a> {
        Words { bytes, endian }
    }

    /// The bytes of all.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The byte order of each.
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Number of words.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        self.endian.u64_at(self.bytes, index.checked_mul(8)?)
    }

    /// First to last.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone + use<'a> {
        let endian = self.endian;
        self.bytes.chunks_exact(8).map(move |word| endian.u64(word.first_chunk().copied().unwrap_or_default()))
    }
}

/// A call chain, innermost frame first, with context markers (values from [`CONTEXT_MAX`](crate::CONTEXT_MAX) up) among the addresses.
pub type Callchain<'a> = Words<'a>;

impl<'a> Words<'a> {
    /// `nr u64` and `nr` words.
    #[inline]
    pub(crate) fn parse(r: &mut Reader<'a>) -> Result<Words<'a>> {
        let nr = r.u64("callchain nr")?;
        let nr = r.count(nr, 8, "callchain")?;
        Ok(Words { bytes: r.take(nr * 8, "callchain")?, endian: r.endian() })
    }
}

pub(super) fn raw_bytes<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let size = r.u32("raw size")?;
    r.take(size as usize, "raw")
}

pub(super) fn user_stack<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let size = r.u64("stack_user size")?;
    if size == 0 {
        return Ok(&[]);
    }
    let size = r.count(size, 1, "stack_user")?;
    let bytes = r.take(size, "stack_user")?;
    let used = r.u64("stack_user dyn_size")?;
    Ok(&bytes[..size.min(used as usize)])
}

/// Registers (REGS_USER since 3.7, REGS_INTR since 3.19): `abi u64`, then a `u64` for each bit of the attr's mask. With ABI
/// 0, for tasks without a user space, nothing follows.
#[derive(Debug, Clone, Copy)]
pub struct Regs<'a> {
    /// 0 none, 1 32-bit, 2 64-bit (`PERF_SAMPLE_REGS_ABI_*`).
    pub abi: u64,
    /// Bit n: register n is in `values`, lowest first.
    pub mask: u64,
    /// The values; empty when the ABI is 0.
    pub values: Words<'a>,
}

impl<'a> Regs<'a> {
    pub(super) fn parse(r: &mut Reader<'a>, mask: u64) -> Result<Regs<'a>> {
        let abi = r.u64("regs abi")?;
        let count = if abi == 0 { 0 } else { mask.count_ones() as usize };
        Ok(Regs { abi, mask, values: Words::new(r.take(count * 8, "regs")?, r.endian()) })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.abi);
        self.values.iter().for_each(|value| {
            w.u64(value);
        });
    }
}

/// `branch_sample_type` bit: the hardware index precedes the branches.
const BRANCH_HW_INDEX: u64 = 1 << 17;
/// `branch_sample_type` bit: counters follow the branches.
const BRANCH_COUNTERS: u64 = 1 << 19;

/// Branch records of a sample (since 3.4): `nr u64`, the hardware index if it is asked for (since 5.7), `nr` × `{from, to,
/// flags: u64}`, and `nr` words of counters if they are (since 6.8).
#[derive(Debug, Clone, Copy)]
pub struct Branches<'a> {
    /// Index of the most recent entry in the hardware's buffer.
    pub hw_index: Option<u64>,
    /// `from`, `to` and flags of each branch, newest first.
    entries: Words<'a>,
    /// One word per branch with the counters that occurred.
    pub counters: Option<Words<'a>>,
}

/// One branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// Source address.
    pub from: u64,
    /// Target address.
    pub to: u64,
    /// The flag word with its fields where little-endian machines have them: mispred 0, predicted 1, in_tx 2, abort 3,
    /// cycles 4–19, type 20–23, spec 24–25, new_type 26–29, priv 30–32.
    pub flags: u64,
}

/// Width in bits of each field of a branch's flag word, lowest first on little-endian machines.
const BRANCH_FLAG_WIDTHS: [u32; 10] = [1, 1, 1, 1, 16, 4, 2, 4, 3, 31];

impl<'a> Branches<'a> {
    pub(super) fn parse(r: &mut Reader<'a>, branch_sample_type: u64) -> Result<Branches<'a>> {
        let nr = r.u64("branch_stack nr")?;
        let hw_index =
            if branch_sample_type & BRANCH_HW_INDEX != 0 { Some(r.u64("branch_stack hw_idx")?) } else { None };
        let nr = r.count(nr, 24, "branch_stack")?;
        let entries = Words::new(r.take(nr * 24, "branch_stack")?, r.endian());
        let counters = if branch_sample_type & BRANCH_COUNTERS != 0 {
            Some(Words::new(r.take(nr * 8, "branch counters")?, r.endian()))
        } else {
            None
        };
        Ok(Branches { hw_index, entries, counters })
    }

    /// Branches with these words instead: `from`, `to` and flags of each.
    #[must_use]
    pub fn with_words<'w>(&self, words: Words<'w>) -> Branches<'w>
    where
        'a: 'w,
    {
        Branches { hw_index: self.hw_index, entries: words, counters: self.counters }
    }

    /// `from`, `to` and flags of each, as they are stored.
    pub fn words(&self) -> Words<'a> {
        self.entries
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.len() as u64);
        if let Some(index) = self.hw_index {
            w.u64(index);
        }
        let counters = self.counters.iter().flat_map(Words::iter);
        self.entries.iter().chain(counters).for_each(|word| {
            w.u64(word);
        });
    }

    /// Number of branches.
    pub fn len(&self) -> usize {
        self.entries.len() / 3
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Newest first.
    pub fn iter(&self) -> impl Iterator<Item = Branch> + 'a {
        let entries = self.entries;
        (0..self.len()).filter_map(move |i| {
            let flags = entries.get(i * 3 + 2)?;
            Some(Branch {
                from: entries.get(i * 3)?,
                to: entries.get(i * 3 + 1)?,
                flags: match entries.endian {
                    Endian::Little => flags,
                    Endian::Big => branch_flags_from_big(flags),
                },
            })
        })
    }
}

/// Moves every field of a big-endian flag word from bit 64−p−w to bit p.
fn branch_flags_from_big(word: u64) -> u64 {
    let mut at = 0;
    let mut flags = 0;
    for width in BRANCH_FLAG_WIDTHS {
        let field = word >> (64 - at - width) & ((1 << width) - 1);
        flags |= field << at;
        at += width;
    }
    flags
}

/// Counter values as `read(2)`, READ records and samples hold them: `value, [enabled], [running], [id], [lost]`, or of a group
/// `nr, [enabled], [running]`, then `nr` × `{value, [id], [lost]}`, all `u64` and those in brackets as `read_format` says.
/// A count is scaled by `enabled / running`; with `running` 0 nothing was counted.
#[derive(Debug, Clone)]
pub struct ReadValues<'a> {
    /// Time the event was enabled, ns.
    pub time_enabled_ns: Option<u64>,
    /// Time it was counting, ns.
    pub time_running_ns: Option<u64>,
    values: Words<'a>,
    format: ReadFormat,
}

/// One counter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadValue {
    /// The count, not scaled.
    pub value: u64,
    /// The event's id.
    pub id: Option<u64>,
    /// Samples it lost.
    pub lost: Option<u64>,
}

impl<'a> ReadValues<'a> {
    /// Reads values of `format`.
    ///
    /// # Errors
    /// When they are not there whole.
    pub fn parse(r: &mut Reader<'a>, format: ReadFormat) -> Result<ReadValues<'a>> {
        let endian = r.endian();
        let per_value =
            1 + usize::from(format.contains(ReadFormat::ID)) + usize::from(format.contains(ReadFormat::LOST));
        let times = |r: &mut Reader<'a>| -> Result<_> {
            let has = |bit| format.contains(bit);
            let enabled = if has(ReadFormat::TOTAL_TIME_ENABLED) { Some(r.u64("read time_enabled")?) } else { None };
            let running = if has(ReadFormat::TOTAL_TIME_RUNNING) { Some(r.u64("read time_running")?) } else { None };
            Ok((enabled, running))
        };
        if format.contains(ReadFormat::GROUP) {
            let nr = r.u64("read nr")?;
            let (time_enabled_ns, time_running_ns) = times(r)?;
            let nr = r.count(nr, per_value * 8, "read group")?;
            let values = Words::new(r.take(nr * per_value * 8, "read group")?, endian);
            return Ok(ReadValues { time_enabled_ns, time_running_ns, values, format });
        }
        // A single value stands before the times, its id and lost count after them: keep the words, skip the times.
        let start = r.clone();
        r.u64("read value")?;
        let (time_enabled_ns, time_running_ns) = times(r)?;
        r.take((per_value - 1) * 8, "read value")?;
        let words = start.remaining() - r.remaining();
        let values = Words::new(start.clone().take(words, "read value")?, endian);
        Ok(ReadValues { time_enabled_ns, time_running_ns, values, format })
    }

    /// Appends them.
    pub fn encode(&self, w: &mut Writer<'_>) {
        if self.format.contains(ReadFormat::GROUP) {
            w.u64(self.iter().count() as u64);
            for time_ns in [self.time_enabled_ns, self.time_running_ns].into_iter().flatten() {
                w.u64(time_ns);
            }
        }
        for word in self.values.iter() {
            w.u64(word);
        }
    }

    /// The values: one, or the group's, leader first.
    pub fn iter(&self) -> impl Iterator<Item = ReadValue> + 'a {
        let (values, format) = (self.values, self.format);
        let has_id = format.contains(ReadFormat::ID);
        let has_lost = format.contains(ReadFormat::LOST);
        let group = format.contains(ReadFormat::GROUP);
        let stride = if group { 1 + usize::from(has_id) + usize::from(has_lost) } else { values.len().max(1) };
        let times = if group {
            0
        } else {
            usize::from(format.contains(ReadFormat::TOTAL_TIME_ENABLED))
                + usize::from(format.contains(ReadFormat::TOTAL_TIME_RUNNING))
        };
        (0..values.len() / stride).filter_map(move |i| {
            let at = i * stride;
            let id_at = at + 1 + times;
            Some(ReadValue {
                value: values.get(at)?,
                id: if has_id { values.get(id_at) } else { None },
                lost: if has_lost { values.get(id_at + usize::from(has_id)) } else { None },
            })
        })
    }
}
