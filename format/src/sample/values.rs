//! Lists in a sample: call chains, registers, branches, counter values.

use crate::layout::{Address, Codec};
use crate::{CONTEXT_MAX, Endian, ReadFormat, Reader, Result, Writer, context};

/// Consecutive `u64` values, decoded on access.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    bytes: &'a [u8],
    endian: Endian,
}

impl<'a> Words<'a> {
    /// Words in `bytes`; an incomplete last word is ignored.
    pub fn new(bytes: &'a [u8], endian: Endian) -> Words<'a> {
        Words { bytes, endian }
    }

    /// Bytes of all words.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Byte order of the words.
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Count of words.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Word at an index, from 0.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        self.endian.u64_at(self.bytes, index.checked_mul(8)?)
    }

    /// Iterator over the words.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone + use<'a> {
        let endian = self.endian;
        self.bytes.chunks_exact(8).map(move |word| endian.u64(word.first_chunk().copied().unwrap_or_default()))
    }

    /// Appends the words in the byte order of `w`.
    pub(crate) fn put(&self, w: &mut Writer<'_>) {
        for word in self.iter() {
            w.u64(word);
        }
    }
}

/// A call chain, innermost frame first, with context markers (values from [`CONTEXT_MAX`](crate::CONTEXT_MAX) up) among the addresses.
pub type Callchain<'a> = Words<'a>;

impl Default for Words<'_> {
    /// No words.
    fn default() -> Self {
        Words::new(&[], Endian::NATIVE)
    }
}

impl PartialEq for Words<'_> {
    /// Compares the values of the words.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Words<'_> {}

/// `nr u64`, then `nr` words of a call chain. Its addresses are secrets; markers are not, nor is the cookie after the marker of a deferred chain.
pub(crate) struct Chain;

impl<'a> Codec<'a, Words<'a>> for Chain {
    const MIN_BYTES: usize = 8;

    fn put(words: &Words<'a>, w: &mut Writer<'_>) {
        w.u64(words.len() as u64);
        let mut before = 0;
        for word in words.iter() {
            match word < CONTEXT_MAX && before != context::USER_DEFERRED {
                true => Address::put(&word, w),
                false => drop(w.u64(word)),
            }
            before = word;
        }
    }

    #[inline]
    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Words<'a>> {
        let nr = r.u64(what)?;
        let nr = r.count(nr, 8, what)?;
        Ok(Words { bytes: r.take(nr * 8, what)?, endian: r.endian() })
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

/// Registers (REGS_USER since 3.7, REGS_INTR since 3.19): `abi u64`, then a `u64` for each bit of the attr's mask. REGS_USER
/// of tasks without a user space has ABI 0 and no registers.
#[derive(Debug, Clone, Copy)]
pub struct Regs<'a> {
    /// ABI of the task: 0 none, 1 32-bit, 2 64-bit (`PERF_SAMPLE_REGS_ABI_*`).
    pub abi: u64,
    /// Bit n is set if register n is in `values`.
    pub mask: u64,
    /// Values of the registers, lowest first; empty for ABI 0.
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
        self.values.put(w);
    }
}

/// Bit of `branch_sample_type`: the hardware index precedes the branches.
pub(super) const BRANCH_HW_INDEX: u64 = 1 << 17;
/// Bit of `branch_sample_type`: counters follow the branches.
const BRANCH_COUNTERS: u64 = 1 << 19;

/// Branch records of a sample (since 3.4): `nr u64`, the hardware index if requested (since 5.7), `nr` × `{from, to,
/// flags: u64}`, and `nr` words of counters if requested (since 6.8).
#[derive(Debug, Clone, Copy)]
pub struct Branches<'a> {
    /// Index of the most recent entry in the hardware's buffer.
    pub hw_index: Option<u64>,
    /// `from`, `to` and flags of each branch, newest first.
    entries: Words<'a>,
    /// Counters, one word per branch.
    pub counters: Option<Words<'a>>,
}

/// One branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branch {
    /// Source address.
    pub from: u64,
    /// Target address.
    pub to: u64,
    /// Flags by bit, as on little-endian machines: mispred 0, predicted 1, in_tx 2, abort 3, cycles 4–19, type 20–23, spec
    /// 24–25, new_type 26–29, priv 30–32.
    pub flags: u64,
}

/// Width in bits of each field of the flag word, from the lowest field on little-endian machines.
const BRANCH_FLAG_WIDTHS: [u32; 10] = [1, 1, 1, 1, 16, 4, 2, 4, 3, 31];

impl<'a> Branches<'a> {
    /// Returns true if the hardware index was requested and no branch follows: then the kernel may have left it out.
    pub(super) fn may_lack_index(r: &Reader<'_>, branch_sample_type: u64) -> bool {
        branch_sample_type & BRANCH_HW_INDEX != 0 && r.clone().u64("branch_stack nr") == Ok(0)
    }

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

    /// `from`, `to` and flags of the branches, as stored.
    pub fn words(&self) -> Words<'a> {
        self.entries
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.len() as u64);
        if let Some(index) = self.hw_index {
            w.u64(index);
        }
        for (place, word) in self.entries.iter().enumerate() {
            match place % 3 {
                2 => drop(w.u64(word)),
                _ => Address::put(&word, w),
            }
        }
        self.counters.unwrap_or_default().put(w);
    }

    /// Count of branches.
    pub fn len(&self) -> usize {
        self.entries.len() / 3
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterator over the branches, newest first.
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

/// Converts a big-endian flag word: moves a field of width w from bit 64−p−w to bit p, where p is the width of all
/// fields before it.
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

/// Counter values in `read(2)`, READ records and samples: `value, [enabled], [running], [id], [lost]`, or for a group
/// `nr, [enabled], [running]`, then `nr` × `{value, [id], [lost]}`. All are `u64`; `read_format` selects the fields in brackets.
/// A reader scales a count by `enabled / running`; with `running` 0 nothing was counted.
#[derive(Debug, Clone)]
pub struct ReadValues<'a> {
    /// Time for which the event was enabled, ns.
    pub time_enabled_ns: Option<u64>,
    /// Time for which the event was counting, ns.
    pub time_running_ns: Option<u64>,
    values: Words<'a>,
    format: ReadFormat,
}

/// Value of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadValue {
    /// Count, not scaled.
    pub value: u64,
    /// Id of the event.
    pub id: Option<u64>,
    /// Count of lost samples of the event.
    pub lost: Option<u64>,
}

impl ReadFormat {
    /// Count of recorded time fields (time enabled, time running): 0 to 2.
    pub(super) fn times(self) -> usize {
        usize::from(self.contains(ReadFormat::TOTAL_TIME_ENABLED))
            + usize::from(self.contains(ReadFormat::TOTAL_TIME_RUNNING))
    }

    /// Count of words of each value: the value, and its id and lost samples if they are recorded.
    pub(super) fn words_per_value(self) -> usize {
        1 + usize::from(self.contains(ReadFormat::ID)) + usize::from(self.contains(ReadFormat::LOST))
    }
}

impl<'a> ReadValues<'a> {
    /// Reads values in this format.
    ///
    /// # Errors
    /// Fails if the values are incomplete.
    pub fn parse(r: &mut Reader<'a>, format: ReadFormat) -> Result<ReadValues<'a>> {
        let endian = r.endian();
        let per_value = format.words_per_value();
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
        // Without a group, the order is value, times, id, lost count. All these words are kept, and `iter` skips the
        // times.
        let start = r.clone();
        r.u64("read value")?;
        let (time_enabled_ns, time_running_ns) = times(r)?;
        r.take((per_value - 1) * 8, "read value")?;
        let words = start.remaining() - r.remaining();
        let values = Words::new(start.clone().take(words, "read value")?, endian);
        Ok(ReadValues { time_enabled_ns, time_running_ns, values, format })
    }

    /// Appends the values.
    pub fn encode(&self, w: &mut Writer<'_>) {
        if self.format.contains(ReadFormat::GROUP) {
            w.u64(self.iter().count() as u64);
            for time_ns in [self.time_enabled_ns, self.time_running_ns].into_iter().flatten() {
                w.u64(time_ns);
            }
        }
        self.values.put(w);
    }

    /// Iterator over the values: the value of the event, or the values of all events of the group, the leader's first.
    pub fn iter(&self) -> impl Iterator<Item = ReadValue> + 'a {
        let (values, format) = (self.values, self.format);
        let has_id = format.contains(ReadFormat::ID);
        let has_lost = format.contains(ReadFormat::LOST);
        let group = format.contains(ReadFormat::GROUP);
        let stride = if group { format.words_per_value() } else { values.len().max(1) };
        let times = if group { 0 } else { format.times() };
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
