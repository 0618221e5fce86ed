//! `PERF_RECORD_SAMPLE`, and the offsets of fields in samples and trailers.
//!
//! The attr's `sample_type` gives the fields of a sample. Their order is not the order of the bits (source:
//! `perf_output_sample` in `kernel/events/core.c`). A [`SampleLayout`] computes the offsets of the fields in front of the
//! variable part once per attr: reading such a field is a bounds check and a load.

mod encode;
mod values;

pub(crate) use values::Chain;
use values::{BRANCH_HW_INDEX, raw_bytes, user_stack};
pub use values::{Branch, Branches, Callchain, ReadValue, ReadValues, Regs, Words};

use crate::layout::Codec;
use crate::{AttrFlags, Endian, Error, EventAttr, ReadFormat, Reader, Result, SampleType};

/// Entries of a call chain from here up are context markers, not addresses (`PERF_CONTEXT_MAX`, −4095).
pub const CONTEXT_MAX: u64 = -4095i64 as u64;

/// Context markers in call chains: the code at the addresses after a marker ran in this mode. The kernel part comes
/// first. Any other word from `CONTEXT_MAX` up is garbage: the frame pointer left the user stack.
pub mod context {
    /// Hypervisor.
    pub const HV: u64 = -32i64 as u64;
    /// Kernel.
    pub const KERNEL: u64 = -128i64 as u64;
    /// User space.
    pub const USER: u64 = -512i64 as u64;
    /// User space. The next word is a cookie; a later CALLCHAIN_DEFERRED record with this cookie has the addresses.
    pub const USER_DEFERRED: u64 = -640i64 as u64;
    /// Guest.
    pub const GUEST: u64 = -2048i64 as u64;
    /// Guest kernel.
    pub const GUEST_KERNEL: u64 = -2176i64 as u64;
    /// Guest user space.
    pub const GUEST_USER: u64 = -2560i64 as u64;
}

/// Marks a field that a layout does not have.
pub(crate) const ABSENT: u16 = u16::MAX;

/// Fields in front of READ, in the order of a sample. All have 8 bytes.
const HEAD: [SampleType; 9] = [
    SampleType::IDENTIFIER,
    SampleType::IP,
    SampleType::TID,
    SampleType::TIME,
    SampleType::ADDR,
    SampleType::ID,
    SampleType::STREAM_ID,
    SampleType::CPU,
    SampleType::PERIOD,
];

/// Fields of a trailer, in their order. All have 8 bytes.
const TRAILER: [SampleType; 6] =
    [SampleType::TID, SampleType::TIME, SampleType::ID, SampleType::STREAM_ID, SampleType::CPU, SampleType::IDENTIFIER];

/// Offsets of the fields in a sample or a trailer. Each field has 8 bytes.
#[derive(Debug, Clone)]
pub(crate) struct Offsets {
    /// Offsets of the fields, indexed by the number of the field's bit; [`ABSENT`] for a missing field. IDENTIFIER has
    /// the offset of ID if only ID is present.
    offsets: [u16; SampleType::IDENTIFIER.0.ilog2() as usize + 1],
    /// Bytes of all fields.
    bytes: u16,
}

impl Offsets {
    /// Offsets of the fields of `order` that are in `present`.
    fn new(order: &[SampleType], present: SampleType) -> Offsets {
        let mut it = Offsets { offsets: [ABSENT; SampleType::IDENTIFIER.0.ilog2() as usize + 1], bytes: 0 };
        for field in order.iter().filter(|field| present.contains(**field)) {
            it.offsets[field.0.ilog2() as usize] = it.bytes;
            it.bytes += 8;
        }
        if it.of(SampleType::IDENTIFIER) == ABSENT {
            it.offsets[SampleType::IDENTIFIER.0.ilog2() as usize] = it.of(SampleType::ID);
        }
        it
    }

    /// Offset of a field; [`ABSENT`] for a missing field. `field` must be a single bit, at most IDENTIFIER.
    #[inline(always)]
    pub(crate) fn of(&self, field: SampleType) -> u16 {
        self.offsets[field.0.trailing_zeros() as usize]
    }
}

/// Offsets of the fields of an event's samples and trailers, computed once per attr.
#[derive(Debug, Clone)]
pub struct SampleLayout {
    pub(crate) endian: Endian,
    sample_type: SampleType,
    read_format: ReadFormat,
    branch_sample_type: u64,
    regs_user: u64,
    regs_intr: u64,
    /// True if fields follow the call chain.
    has_more: bool,
    /// Fields in front of READ.
    head: Offsets,
    /// Fields of the trailer, from its start; none without `sample_id_all`.
    pub(crate) trailer: Offsets,
}

impl SampleLayout {
    /// Layout of the records of an event with this attr.
    pub fn new(attr: &EventAttr, endian: Endian) -> SampleLayout {
        let has_trailer = attr.flags.contains(AttrFlags::SAMPLE_ID_ALL);
        let front = HEAD.into_iter().chain([SampleType::READ, SampleType::CALLCHAIN]).reduce(SampleType::with);
        SampleLayout {
            endian,
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            branch_sample_type: attr.branch_sample_type,
            regs_user: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr,
            has_more: !front.unwrap_or_default().contains(attr.sample_type),
            head: Offsets::new(&HEAD, attr.sample_type),
            trailer: Offsets::new(&TRAILER, if has_trailer { attr.sample_type } else { SampleType::default() }),
        }
    }

    /// Byte order of the records.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Fields of the samples.
    pub fn sample_type(&self) -> SampleType {
        self.sample_type
    }

    /// Layout of counter values in samples and READ records.
    pub fn read_format(&self) -> ReadFormat {
        self.read_format
    }

    /// Offset of the event id in the body of a sample, in bytes; `None` if samples have no id. It must be the same for all events of a recording.
    pub fn id_offset(&self) -> Option<usize> {
        Some(self.head.of(SampleType::IDENTIFIER)).filter(|at| *at != ABSENT).map(usize::from)
    }

    /// Offset of the event id in other records, in bytes from the end of the record; `None` if these records have no id.
    pub fn id_offset_from_end(&self) -> Option<usize> {
        let at = self.trailer.of(SampleType::IDENTIFIER);
        (at != ABSENT).then(|| usize::from(self.trailer.bytes - at))
    }

    /// Bytes of the trailer of records that are not samples.
    pub fn trailer_bytes(&self) -> usize {
        self.trailer.bytes.into()
    }

    /// Sample in the body of a record; the body lies at `offset` of the input.
    ///
    /// # Errors
    /// Fails if the body is too short for the fields in front of the variable part.
    #[inline]
    pub fn sample<'a>(&'a self, body: &'a [u8], offset: u64) -> Result<Sample<'a>> {
        if body.len() < usize::from(self.head.bytes) {
            return Err(Error::truncated(offset, "sample", self.head.bytes.into(), body.len() as u64));
        }
        Ok(Sample { layout: self, body, offset })
    }
}

/// A sample. Accessors read single fields at little cost; [`Sample::decode`] reads all fields.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    layout: &'a SampleLayout,
    body: &'a [u8],
    offset: u64,
}

/// Defines accessors of fields; `None` if the event does not record the field.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $read:ident -> $type:ty = $field:ident;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name(&self) -> Option<$type> {
            self.$read(SampleType::$field)
        }
    )*};
}

impl<'a> Sample<'a> {
    #[inline]
    fn u64_at(&self, field: SampleType) -> Option<u64> {
        // The offset of a missing field lies beyond any body, as a record has at most 65,535 bytes: the bounds check
        // covers both cases.
        self.layout.endian.u64_at(self.body, self.layout.head.of(field).into())
    }

    #[inline]
    fn pair_at(&self, field: SampleType) -> Option<(u32, u32)> {
        let (endian, at) = (self.layout.endian, usize::from(self.layout.head.of(field)));
        Some((endian.u32_at(self.body, at)?, endian.u32_at(self.body, at + 4)?))
    }

    /// Byte order of the record.
    pub fn endian(&self) -> Endian {
        self.layout.endian
    }

    fields! {
        /// Id of the event: IDENTIFIER, or ID.
        id: u64_at -> u64 = IDENTIFIER;
        /// Instruction pointer.
        ip: u64_at -> u64 = IP;
        /// Process id and thread id.
        pid_tid: pair_at -> (u32, u32) = TID;
        /// Time, in ns of the recording's clock.
        time_ns: u64_at -> u64 = TIME;
        /// Data or breakpoint address.
        addr: u64_at -> u64 = ADDR;
        /// Id of the event's own instance.
        stream_id: u64_at -> u64 = STREAM_ID;
        /// Count of events that the sample stands for; ns for clocks.
        period: u64_at -> u64 = PERIOD;
    }

    /// Number of the CPU.
    #[inline]
    pub fn cpu(&self) -> Option<u32> {
        self.pair_at(SampleType::CPU).map(|(cpu, _)| cpu)
    }

    /// Call chain, if the event records call chains.
    ///
    /// # Errors
    /// Fails if the call chain or a field before it does not fit into the record.
    #[inline]
    pub fn callchain(&self) -> Result<Option<Callchain<'a>>> {
        let sample_type = self.layout.sample_type;
        if !sample_type.contains(SampleType::CALLCHAIN) {
            return Ok(None);
        }
        match self.leading_chain().filter(|_| !sample_type.contains(SampleType::READ)) {
            Some(chain) => Ok(Some(chain)),
            None => self.chain_behind_counters().map(Some),
        }
    }

    /// Call chain directly after the fixed fields; `None` if it does not fit into the record.
    #[inline]
    fn leading_chain(&self) -> Option<Callchain<'a>> {
        let (endian, head) = (self.layout.endian, usize::from(self.layout.head.bytes));
        let nr = endian.u64_at(self.body, head)?;
        let bytes = usize::try_from(nr).ok()?.checked_mul(8)?;
        Some(Callchain::new(self.body.get(head + 8..)?.get(..bytes)?, endian))
    }

    #[cold]
    fn chain_behind_counters(&self) -> Result<Callchain<'a>> {
        let mut reader = self.variable_part();
        if self.layout.sample_type.contains(SampleType::READ) {
            ReadValues::parse(&mut reader, self.layout.read_format)?;
        }
        Chain::get(&mut reader, "callchain")
    }

    /// Offsets of the counter values in the body, in the order of [`ReadValues::iter`]; empty if the event reads no counters.
    ///
    /// # Errors
    /// Fails if the values do not fit into the record.
    pub fn read_value_offsets(&self) -> Result<impl Iterator<Item = usize> + use<>> {
        let (head, format) = (usize::from(self.layout.head.bytes), self.layout.read_format);
        let count = match self.layout.sample_type.contains(SampleType::READ) {
            true => ReadValues::parse(&mut self.variable_part(), format)?.iter().count(),
            false => 0,
        };
        let first = if format.contains(ReadFormat::GROUP) { 1 + format.times() } else { 0 };
        let stride = format.words_per_value();
        Ok((0..count).map(move |nr| head + 8 * (first + nr * stride)))
    }

    /// RAW bytes, if the event records them: fields of a tracepoint, or the data of a bpf-output event. The kernel pads
    /// them: 4 + length is a multiple of 8.
    ///
    /// # Errors
    /// Fails if the bytes or a field before them do not fit into the record.
    pub fn raw(&self) -> Result<Option<&'a [u8]>> {
        let sample_type = self.layout.sample_type;
        if !sample_type.contains(SampleType::RAW) {
            return Ok(None);
        }
        let mut reader = self.variable_part();
        if sample_type.contains(SampleType::READ) {
            ReadValues::parse(&mut reader, self.layout.read_format)?;
        }
        if sample_type.contains(SampleType::CALLCHAIN) {
            Chain::get(&mut reader, "callchain")?;
        }
        raw_bytes(&mut reader).map(Some)
    }

    /// Decodes all fields.
    ///
    /// # Errors
    /// Fails if a field does not fit into the record.
    #[inline]
    pub fn decode(&self) -> Result<SampleFields<'a>> {
        self.decode_from(&mut self.variable_part())
    }

    /// Count of bytes after the last field; 0 in records of the kernel.
    ///
    /// # Errors
    /// Fails if a field does not fit into the record.
    pub fn unread_bytes(&self) -> Result<usize> {
        let mut r = self.variable_part();
        self.decode_from(&mut r)?;
        Ok(r.rest().len())
    }

    #[inline]
    fn decode_from(&self, r: &mut Reader<'a>) -> Result<SampleFields<'a>> {
        let layout = self.layout;
        let has = |bit| layout.sample_type.contains(bit);
        let mut fields = SampleFields {
            id: self.id(),
            ip: self.ip(),
            pid_tid: self.pid_tid(),
            time_ns: self.time_ns(),
            addr: self.addr(),
            stream_id: self.stream_id(),
            cpu: self.cpu(),
            period: self.period(),
            ..SampleFields::default()
        };
        if has(SampleType::READ) {
            fields.read = Some(ReadValues::parse(r, layout.read_format)?);
        }
        if has(SampleType::CALLCHAIN) {
            fields.callchain = Some(Chain::get(r, "callchain")?);
        }
        if layout.has_more {
            self.decode_more(r, &mut fields)?;
        }
        Ok(fields)
    }

    /// Decodes the fields after the call chain. Few events have such fields.
    fn decode_more(&self, r: &mut Reader<'a>, fields: &mut SampleFields<'a>) -> Result<()> {
        let layout = self.layout;
        if layout.sample_type.contains(SampleType::RAW) {
            fields.raw = Some(raw_bytes(r)?);
        }
        let requested = layout.branch_sample_type;
        // Without a branch stack, the kernel writes the count 0 and no hardware index. With an empty branch stack, it writes the count 0 and the
        // index. The length of the record distinguishes the two cases.
        if layout.sample_type.contains(SampleType::BRANCH_STACK) && Branches::may_lack_index(r, requested) {
            let (mut short, mut without) = (r.clone(), fields.clone());
            let end = self.decode_from_branches(&mut short, requested & !BRANCH_HW_INDEX, &mut without);
            if end.is_ok() && short.is_empty() {
                (*r, *fields) = (short, without);
                return Ok(());
            }
        }
        self.decode_from_branches(r, requested, fields)
    }

    /// Decodes the branch stack and the fields behind it.
    fn decode_from_branches(
        &self,
        r: &mut Reader<'a>,
        branch_sample_type: u64,
        fields: &mut SampleFields<'a>,
    ) -> Result<()> {
        let layout = self.layout;
        let has = |bit| layout.sample_type.contains(bit);
        let number = |r: &mut Reader<'a>, bit, what| if has(bit) { r.u64(what).map(Some) } else { Ok(None) };
        if has(SampleType::BRANCH_STACK) {
            fields.branches = Some(Branches::parse(r, branch_sample_type)?);
        }
        if has(SampleType::REGS_USER) {
            fields.regs_user = Some(Regs::parse(r, layout.regs_user)?);
        }
        if has(SampleType::STACK_USER) {
            fields.stack_user = Some(user_stack(r)?);
        }
        if has(SampleType::WEIGHT) || has(SampleType::WEIGHT_STRUCT) {
            fields.weight = Some(r.u64("sample weight")?);
        }
        fields.data_src = number(r, SampleType::DATA_SRC, "sample data_src")?;
        fields.transaction = number(r, SampleType::TRANSACTION, "sample transaction")?;
        if has(SampleType::REGS_INTR) {
            fields.regs_intr = Some(Regs::parse(r, layout.regs_intr)?);
        }
        fields.phys_addr = number(r, SampleType::PHYS_ADDR, "sample phys_addr")?;
        fields.cgroup = number(r, SampleType::CGROUP, "sample cgroup")?;
        fields.data_page_size = number(r, SampleType::DATA_PAGE_SIZE, "sample data_page_size")?;
        fields.code_page_size = number(r, SampleType::CODE_PAGE_SIZE, "sample code_page_size")?;
        if has(SampleType::AUX) {
            let len = r.u64("sample aux size")?;
            let len = r.count(len, 1, "sample aux")?;
            fields.aux = Some(r.take(len, "sample aux")?);
        }
        Ok(())
    }

    #[inline]
    fn variable_part(&self) -> Reader<'a> {
        let head = usize::from(self.layout.head.bytes);
        // `SampleLayout::sample` has checked the length.
        Reader::new(&self.body[head..], self.offset + head as u64, self.layout.endian)
    }
}

/// All fields of a sample, in the kernel's order; `None` for a missing field.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the fields are documented in perf_event_open(2), under PERF_SAMPLE_*")]
pub struct SampleFields<'a> {
    pub id: Option<u64>,
    pub ip: Option<u64>,
    pub pid_tid: Option<(u32, u32)>,
    pub time_ns: Option<u64>,
    pub addr: Option<u64>,
    pub stream_id: Option<u64>,
    pub cpu: Option<u32>,
    pub period: Option<u64>,
    pub read: Option<ReadValues<'a>>,
    pub callchain: Option<Callchain<'a>>,
    pub raw: Option<&'a [u8]>,
    pub branches: Option<Branches<'a>>,
    pub regs_user: Option<Regs<'a>>,
    /// Copied bytes of the stack; fewer than requested if the stack ended.
    pub stack_user: Option<&'a [u8]>,
    /// One number (WEIGHT), or var1 in bits 0–31, var2 in 32–47, var3 in 48–63 (WEIGHT_STRUCT).
    pub weight: Option<u64>,
    pub data_src: Option<u64>,
    pub transaction: Option<u64>,
    pub regs_intr: Option<Regs<'a>>,
    pub phys_addr: Option<u64>,
    pub cgroup: Option<u64>,
    pub data_page_size: Option<u64>,
    pub code_page_size: Option<u64>,
    pub aux: Option<&'a [u8]>,
}
