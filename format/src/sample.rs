//! `PERF_RECORD_SAMPLE`, and where the fields of samples and of trailers stand.
//!
//! Fields of a sample follow from the attr's `sample_type`; their order is the kernel's, which is not the order of the
//! bits (source: `perf_output_sample` in `kernel/events/core.c`). A [`SampleLayout`] computes the offsets of the fields
//! in front of the variable part once per attr, so that reading one of them is a bounds check and a load.

mod encode;
mod values;

pub use values::{Branch, Branches, Callchain, ReadValue, ReadValues, Regs, Words};
use values::{raw_bytes, user_stack};

use crate::{AttrFlags, Endian, Error, EventAttr, ReadFormat, Reader, Result, SampleType};

/// Entries of a call chain from here up are context markers, not addresses (`PERF_CONTEXT_MAX`, −4095).
pub const CONTEXT_MAX: u64 = -4095i64 as u64;

/// Context markers in call chains: what follows was running in this mode. The kernel's part comes first. Another word
/// in the range of markers is garbage: the walk of frame pointers left the user stack.
pub mod context {
    /// Hypervisor.
    pub const HV: u64 = -32i64 as u64;
    /// Kernel.
    pub const KERNEL: u64 = -128i64 as u64;
    /// User space.
    pub const USER: u64 = -512i64 as u64;
    /// User space, delivered later in a CALLCHAIN_DEFERRED record with the cookie that follows.
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

/// Offsets of an attr's sample fields and trailer fields, computed once.
#[derive(Debug, Clone)]
pub struct SampleLayout {
    pub(crate) endian: Endian,
    sample_type: SampleType,
    read_format: ReadFormat,
    branch_sample_type: u64,
    regs_user: u64,
    regs_intr: u64,
    ip: u16,
    tid: u16,
    time: u16,
    addr: u16,
    id: u16,
    stream_id: u16,
    cpu: u16,
    period: u16,
    /// Fields follow behind the call chain.
    has_more: bool,
    /// Bytes of the fields in front of READ.
    head: u16,
    /// Bytes of the trailer on other records; 0 without `sample_id_all`.
    pub(crate) trailer: u16,
    /// Offsets of the trailer's fields, counted from its start.
    pub(crate) trailer_tid: u16,
    pub(crate) trailer_time: u16,
    pub(crate) trailer_plain_id: u16,
    pub(crate) trailer_id: u16,
    pub(crate) trailer_stream_id: u16,
    pub(crate) trailer_cpu: u16,
}

impl SampleLayout {
    /// The layout that `attr` gives to the records of its event.
    pub fn new(attr: &EventAttr, endian: Endian) -> SampleLayout {
        let has = |bit| attr.sample_type.contains(bit);
        let mut head = 0;
        let mut place = |bit| {
            if !has(bit) {
                return ABSENT;
            }
            head += 8;
            head - 8
        };
        let identifier = place(SampleType::IDENTIFIER);
        let ip = place(SampleType::IP);
        let tid = place(SampleType::TID);
        let time = place(SampleType::TIME);
        let addr = place(SampleType::ADDR);
        let id = place(SampleType::ID);
        let stream_id = place(SampleType::STREAM_ID);
        let cpu = place(SampleType::CPU);
        let period = place(SampleType::PERIOD);

        let mut trailer = 0;
        let mut place_trailer = |bit| {
            if !has(bit) || !attr.flags.contains(AttrFlags::SAMPLE_ID_ALL) {
                return ABSENT;
            }
            trailer += 8;
            trailer - 8
        };
        let trailer_tid = place_trailer(SampleType::TID);
        let trailer_time = place_trailer(SampleType::TIME);
        let trailer_plain_id = place_trailer(SampleType::ID);
        let trailer_stream_id = place_trailer(SampleType::STREAM_ID);
        let trailer_cpu = place_trailer(SampleType::CPU);
        let trailer_identifier = place_trailer(SampleType::IDENTIFIER);
        let front = [
            SampleType::IDENTIFIER,
            SampleType::IP,
            SampleType::TID,
            SampleType::TIME,
            SampleType::ADDR,
            SampleType::ID,
            SampleType::STREAM_ID,
            SampleType::CPU,
            SampleType::PERIOD,
            SampleType::READ,
            SampleType::CALLCHAIN,
        ];
        let front = front.into_iter().reduce(SampleType::with).unwrap_or_default();
        SampleLayout {
            endian,
            has_more: !front.contains(attr.sample_type),
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            branch_sample_type: attr.branch_sample_type,
            regs_user: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr,
            id: if identifier == ABSENT { id } else { identifier },
            ip,
            tid,
            time,
            addr,
            stream_id,
            cpu,
            period,
            head,
            trailer,
            trailer_tid,
            trailer_time,
            trailer_plain_id,
            trailer_id: if trailer_identifier == ABSENT { trailer_plain_id } else { trailer_identifier },
            trailer_stream_id,
            trailer_cpu,
        }
    }

    /// The byte order of the records.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The fields that samples have.
    pub fn sample_type(&self) -> SampleType {
        self.sample_type
    }

    /// The shape of counter values in samples and READ records.
    pub fn read_format(&self) -> ReadFormat {
        self.read_format
    }

    /// Offset of the event id in a sample's body, in bytes. All events of one input must agree on it.
    pub fn id_offset(&self) -> Option<usize> {
        (self.id != ABSENT).then_some(self.id as usize)
    }

    /// Offset of the event id in other records, in bytes back from their end.
    pub fn id_offset_from_end(&self) -> Option<usize> {
        (self.trailer_id != ABSENT).then(|| usize::from(self.trailer - self.trailer_id))
    }

    /// Bytes of the trailer that this event's non-sample records end in.
    pub fn trailer_bytes(&self) -> usize {
        self.trailer as usize
    }

    /// The sample in a record's body, which lies at `offset` of the input.
    ///
    /// # Errors
    /// When the fields in front of the variable part are not there whole.
    #[inline]
    pub fn sample<'a>(&'a self, body: &'a [u8], offset: u64) -> Result<Sample<'a>> {
        if body.len() < self.head as usize {
            return Err(Error::truncated(offset, "sample", self.head.into(), body.len() as u64));
        }
        Ok(Sample { layout: self, body, offset })
    }
}

/// A sample: cheap accessors for the fields in front, [`Sample::decode`] for all.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    layout: &'a SampleLayout,
    body: &'a [u8],
    offset: u64,
}

impl<'a> Sample<'a> {
    #[inline]
    fn u64_at(&self, at: u16) -> Option<u64> {
        // An absent field's offset lies beyond any body (records are at most 65,535 bytes with their header), so that
        // the bounds check covers both cases.
        self.layout.endian.u64_at(self.body, at as usize)
    }

    #[inline]
    fn pair_at(&self, at: u16) -> Option<(u32, u32)> {
        let endian = self.layout.endian;
        Some((endian.u32_at(self.body, at as usize)?, endian.u32_at(self.body, at as usize + 4)?))
    }

    /// The byte order of the record that it is in.
    pub fn endian(&self) -> Endian {
        self.layout.endian
    }

    /// Id of the event that sampled: IDENTIFIER, or else ID.
    #[inline]
    pub fn id(&self) -> Option<u64> {
        self.u64_at(self.layout.id)
    }

    /// Instruction pointer.
    #[inline]
    pub fn ip(&self) -> Option<u64> {
        self.u64_at(self.layout.ip)
    }

    /// Process and thread.
    #[inline]
    pub fn pid_tid(&self) -> Option<(u32, u32)> {
        self.pair_at(self.layout.tid)
    }

    /// Time, in ns of the recording's clock.
    #[inline]
    pub fn time_ns(&self) -> Option<u64> {
        self.u64_at(self.layout.time)
    }

    /// Data or breakpoint address.
    #[inline]
    pub fn addr(&self) -> Option<u64> {
        self.u64_at(self.layout.addr)
    }

    /// Id of the event's own instance.
    #[inline]
    pub fn stream_id(&self) -> Option<u64> {
        self.u64_at(self.layout.stream_id)
    }

    /// CPU.
    #[inline]
    pub fn cpu(&self) -> Option<u32> {
        self.pair_at(self.layout.cpu).map(|(cpu, _)| cpu)
    }

    /// Number of events (or ns, for clocks) that the sample stands for.
    #[inline]
    pub fn period(&self) -> Option<u64> {
        self.u64_at(self.layout.period)
    }

    /// The call chain, if the event records one.
    ///
    /// # Errors
    /// When the fields before it, or its length, overrun the record.
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

    /// The call chain where it is the first of the fields that vary in length, and there whole.
    #[inline]
    fn leading_chain(&self) -> Option<Callchain<'a>> {
        let (endian, head) = (self.layout.endian, self.layout.head as usize);
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
        Callchain::parse(&mut reader)
    }

    /// Offsets in the body of the counter values, in the order of [`ReadValues::iter`]; none if the event reads no counters.
    ///
    /// # Errors
    /// When they overrun the record.
    pub fn read_value_offsets(&self) -> Result<impl Iterator<Item = usize> + use<>> {
        let (head, format) = (self.layout.head as usize, self.layout.read_format);
        let words = |bits: &[ReadFormat]| bits.iter().filter(|bit| format.contains(**bit)).count();
        let count = match self.layout.sample_type.contains(SampleType::READ) {
            true => ReadValues::parse(&mut self.variable_part(), format)?.iter().count(),
            false => 0,
        };
        let times = words(&[ReadFormat::TOTAL_TIME_ENABLED, ReadFormat::TOTAL_TIME_RUNNING]);
        let first = if format.contains(ReadFormat::GROUP) { 1 + times } else { 0 };
        let stride = 1 + words(&[ReadFormat::ID, ReadFormat::LOST]);
        Ok((0..count).map(move |nr| head + 8 * (first + nr * stride)))
    }

    /// The RAW bytes, if the event records them: tracepoint fields, or what a bpf-output event was given. The kernel
    /// pads them so that 4 + length is a multiple of 8.
    ///
    /// # Errors
    /// When the fields before them, or their length, overrun the record.
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
            Callchain::parse(&mut reader)?;
        }
        raw_bytes(&mut reader).map(Some)
    }

    /// All fields.
    ///
    /// # Errors
    /// When a field overruns the record.
    #[inline]
    pub fn decode(&self) -> Result<SampleFields<'a>> {
        self.decode_from(&mut self.variable_part())
    }

    /// Bytes of the record behind the last field: none in what a kernel wrote.
    ///
    /// # Errors
    /// When a field overruns the record.
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
            fields.callchain = Some(Callchain::parse(r)?);
        }
        if layout.has_more {
            self.decode_more(r, &mut fields)?;
        }
        Ok(fields)
    }

    /// Fields behind the call chain: few events have any of them.
    fn decode_more(&self, r: &mut Reader<'a>, fields: &mut SampleFields<'a>) -> Result<()> {
        let layout = self.layout;
        let has = |bit| layout.sample_type.contains(bit);
        if has(SampleType::RAW) {
            fields.raw = Some(raw_bytes(r)?);
        }
        if has(SampleType::BRANCH_STACK) {
            fields.branches = Some(Branches::parse(r, layout.branch_sample_type)?);
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
        if has(SampleType::DATA_SRC) {
            fields.data_src = Some(r.u64("sample data_src")?);
        }
        if has(SampleType::TRANSACTION) {
            fields.transaction = Some(r.u64("sample transaction")?);
        }
        if has(SampleType::REGS_INTR) {
            fields.regs_intr = Some(Regs::parse(r, layout.regs_intr)?);
        }
        if has(SampleType::PHYS_ADDR) {
            fields.phys_addr = Some(r.u64("sample phys_addr")?);
        }
        if has(SampleType::CGROUP) {
            fields.cgroup = Some(r.u64("sample cgroup")?);
        }
        if has(SampleType::DATA_PAGE_SIZE) {
            fields.data_page_size = Some(r.u64("sample data_page_size")?);
        }
        if has(SampleType::CODE_PAGE_SIZE) {
            fields.code_page_size = Some(r.u64("sample code_page_size")?);
        }
        if has(SampleType::AUX) {
            let len = r.u64("sample aux size")?;
            let len = r.count(len, 1, "sample aux")?;
            fields.aux = Some(r.take(len, "sample aux")?);
        }
        Ok(())
    }

    #[inline]
    fn variable_part(&self) -> Reader<'a> {
        let head = self.layout.head as usize;
        // `SampleLayout::sample` has checked that the head is there.
        Reader::new(&self.body[head..], self.offset + head as u64, self.layout.endian)
    }
}

/// All fields of a sample, in the kernel's order. Absent ones are `None`.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the fields are documented in perf_event_open(2) under the same names")]
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
    /// The copied bytes; shorter than asked for when the stack ended.
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
