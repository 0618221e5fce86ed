//! `bprec:sampler`: samples that bprec's BPF program builds on the perf event that runs it.
//!
//! Each payload rides in the RAW field of a sample of one software/bpf-output event of this name. Layout, in the byte order
//! of the recording:
//!
//! ```text
//! version u16 (1) · parts u16 · missing u16 · zero u16 · length u32 (of the payload, from the version on) · zero u32
//! ```
//!
//! and behind that each part whose bit is set in `parts`, lowest first:
//!
//! | bit | part | layout |
//! | --- | --- | --- |
//! | 0 | instruction pointer | `u64` |
//! | 1 | the sample's period | `u64` |
//! | 2 | data address; 0 with events that have none | `u64` |
//! | 3 | task | `pid u32 · tid u32` |
//! | 4 | cgroup id | `u64` |
//! | 5 | comm | 16 bytes, NULs at the end |
//! | 6 | the event's counter | `value u64 · enabled_ns u64 · running_ns u64` |
//! | 7 | registers | `mask u64` · `u64` for each bit set in it, lowest first: words of the architecture's `bpf_user_pt_regs_t` |
//! | 8 | call chain | `nr u64` · `nr` words, with context markers as in the call chains of perf events |
//!
//! A part whose bit is also set in `missing` has this layout, but the kernel refused its content. The length is needed
//! because the RAW field is padded. Source of the layout: `bpf/src/programs/sampler.bpf.c`, which writes it.

use crate::{Callchain, Endian, Error, Reader, Result, Words, Writer};

/// The name of the event whose samples carry these payloads.
pub const EVENT_NAME: &str = "bprec:sampler";

/// Limit on kernel frames, and on user frames, of a call chain.
pub const FRAMES_MAX: u32 = 127;

const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const COMM_BYTES: usize = 16;

/// Bits of the parts that a payload has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Parts(pub u16);

crate::layout::number!(Parts: u16);

impl Parts {
    /// Instruction pointer.
    pub const IP: Parts = Parts(1 << 0);
    /// The sample's period.
    pub const PERIOD: Parts = Parts(1 << 1);
    /// Data address.
    pub const ADDR: Parts = Parts(1 << 2);
    /// Process and thread.
    pub const TASK: Parts = Parts(1 << 3);
    /// cgroup id.
    pub const CGROUP: Parts = Parts(1 << 4);
    /// Name of the thread.
    pub const COMM: Parts = Parts(1 << 5);
    /// Value of the event's counter.
    pub const VALUE: Parts = Parts(1 << 6);
    /// Registers.
    pub const REGISTERS: Parts = Parts(1 << 7);
    /// Call chain.
    pub const STACK: Parts = Parts(1 << 8);

    /// All parts, with their names in options and messages.
    pub const NAMES: [(&str, Parts); 9] = [
        ("ip", Parts::IP),
        ("period", Parts::PERIOD),
        ("addr", Parts::ADDR),
        ("task", Parts::TASK),
        ("cgroup", Parts::CGROUP),
        ("comm", Parts::COMM),
        ("value", Parts::VALUE),
        ("regs", Parts::REGISTERS),
        ("stack", Parts::STACK),
    ];

    /// All parts of this version.
    const KNOWN: Parts = Parts((1 << 9) - 1);

    /// Returns true if all parts of `other` are set.
    #[inline]
    pub const fn contains(self, other: Parts) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of both sets of parts.
    #[must_use]
    pub const fn with(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }

    /// Returns these parts without the parts of `other`.
    #[must_use]
    pub const fn without(self, other: Parts) -> Parts {
        Parts(self.0 & !other.0)
    }
}

/// Value of the event's counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterValue {
    /// Events counted.
    pub value: u64,
    /// Time the event was enabled, ns.
    pub enabled_ns: u64,
    /// Time it was counting, ns.
    pub running_ns: u64,
}

/// Words of the interrupted context.
#[derive(Debug, Clone, Copy)]
pub struct Registers<'a> {
    /// Bit n is set if word n is present.
    pub mask: u64,
    /// Values of the registers, lowest first.
    pub values: Words<'a>,
}

impl Registers<'_> {
    /// Number and value of each register, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        let mask = self.mask;
        (0..u64::BITS).filter(move |bit| mask >> bit & 1 != 0).zip(self.values.iter())
    }
}

/// One payload. A part that is `None` was not asked for, or is among [`missing`](SamplerPayload::missing).
#[derive(Debug, Clone, Copy, Default)]
pub struct SamplerPayload<'a> {
    /// Requested parts that the kernel refused.
    pub missing: Parts,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// Number of events (or ns, for clocks) that the sample stands for.
    pub period: Option<u64>,
    /// Data address; 0 with events that have none.
    pub addr: Option<u64>,
    /// Process and thread.
    pub pid_tid: Option<(u32, u32)>,
    /// The cgroup (version 2) of the task.
    pub cgroup: Option<u64>,
    /// Name of the thread, without the NULs at its end.
    pub comm: Option<&'a [u8]>,
    /// The event's counter.
    pub value: Option<CounterValue>,
    /// Registers asked for.
    pub registers: Option<Registers<'a>>,
    /// Kernel frames, user frames, or both, each behind its marker; frames innermost first.
    pub callchain: Option<Callchain<'a>>,
}

impl<'a> SamplerPayload<'a> {
    /// Reads the payload in a sample's RAW bytes, which lie at `offset` of the input.
    ///
    /// # Errors
    /// Fails if the version is newer than this crate, or the bytes are too short for the parts in the header.
    #[inline]
    pub fn parse(raw: &'a [u8], offset: u64, endian: Endian) -> Result<SamplerPayload<'a>> {
        let mut r = Reader::new(raw, offset, endian);
        let version = r.u16("bprec:sampler version")?;
        if version != VERSION {
            return Err(Error::value(offset, "bprec:sampler version", version.into(), "1"));
        }
        let parts = Parts(r.u16("bprec:sampler parts")?);
        let missing = Parts(r.u16("bprec:sampler missing")?);
        r.u16("bprec:sampler header")?;
        let length = r.u32("bprec:sampler length")? as usize;
        r.u32("bprec:sampler header")?;
        let body_offset = r.offset();
        let Some(body_bytes) = length.checked_sub(HEADER_BYTES) else {
            return Err(Error::value(offset, "bprec:sampler length", length as u64, "at least 16"));
        };
        let body = r.take(body_bytes, "bprec:sampler body")?;
        let r = &mut Reader::new(body, body_offset, endian);
        let mut payload = SamplerPayload { missing, ..SamplerPayload::default() };
        let known = |part: Parts| !missing.contains(part);
        let has = |part: Parts| parts.contains(part);
        if has(Parts::IP) {
            payload.ip = Some(r.u64("sampler ip")?).filter(|_| known(Parts::IP));
        }
        if has(Parts::PERIOD) {
            payload.period = Some(r.u64("sampler period")?).filter(|_| known(Parts::PERIOD));
        }
        if has(Parts::ADDR) {
            payload.addr = Some(r.u64("sampler addr")?).filter(|_| known(Parts::ADDR));
        }
        if has(Parts::TASK) {
            payload.pid_tid = Some((r.u32("sampler pid")?, r.u32("sampler tid")?)).filter(|_| known(Parts::TASK));
        }
        if has(Parts::CGROUP) {
            payload.cgroup = Some(r.u64("sampler cgroup")?).filter(|_| known(Parts::CGROUP));
        }
        if has(Parts::COMM) {
            let comm = r.take(COMM_BYTES, "sampler comm")?;
            let len = comm.iter().position(|byte| *byte == 0).unwrap_or(COMM_BYTES);
            payload.comm = Some(&comm[..len]).filter(|_| known(Parts::COMM));
        }
        if has(Parts::VALUE) {
            let value = CounterValue {
                value: r.u64("sampler value")?,
                enabled_ns: r.u64("sampler enabled")?,
                running_ns: r.u64("sampler running")?,
            };
            payload.value = Some(value).filter(|_| known(Parts::VALUE));
        }
        if has(Parts::REGISTERS) {
            let mask = r.u64("sampler registers")?;
            let values = Words::new(r.take(mask.count_ones() as usize * 8, "sampler registers")?, endian);
            payload.registers = Some(Registers { mask, values }).filter(|_| known(Parts::REGISTERS));
        }
        if has(Parts::STACK) {
            payload.callchain = Some(Callchain::parse(r)?).filter(|_| known(Parts::STACK));
        }
        Ok(payload)
    }

    /// Parts of the payload, the missing ones included.
    pub fn parts(&self) -> Parts {
        let there = [
            (self.ip.is_some(), Parts::IP),
            (self.period.is_some(), Parts::PERIOD),
            (self.addr.is_some(), Parts::ADDR),
            (self.pid_tid.is_some(), Parts::TASK),
            (self.cgroup.is_some(), Parts::CGROUP),
            (self.comm.is_some(), Parts::COMM),
            (self.value.is_some(), Parts::VALUE),
            (self.registers.is_some(), Parts::REGISTERS),
            (self.callchain.is_some(), Parts::STACK),
        ];
        let missing = Parts(self.missing.0 & Parts::KNOWN.0);
        there.into_iter().filter(|(is_there, _)| *is_there).fold(missing, |parts, (_, part)| parts.with(part))
    }

    /// Appends the payload. A comm is cut to 16 bytes.
    pub fn encode(&self, out: &mut Vec<u8>, endian: Endian) {
        let start = out.len();
        let parts = self.parts();
        let mut w = Writer::new(out, endian);
        w.u16(VERSION).u16(parts.0).u16(self.missing.0).u16(0).u32(0).u32(0);
        let has = |part: Parts| parts.contains(part);
        for (part, value) in [(Parts::IP, self.ip), (Parts::PERIOD, self.period), (Parts::ADDR, self.addr)] {
            if has(part) {
                w.u64(value.unwrap_or(0));
            }
        }
        if has(Parts::TASK) {
            let (pid, tid) = self.pid_tid.unwrap_or_default();
            w.u32(pid).u32(tid);
        }
        if has(Parts::CGROUP) {
            w.u64(self.cgroup.unwrap_or(0));
        }
        if has(Parts::COMM) {
            let comm = self.comm.unwrap_or_default();
            let comm = &comm[..comm.len().min(COMM_BYTES)];
            w.bytes(comm).zeros(COMM_BYTES - comm.len());
        }
        if has(Parts::VALUE) {
            let value = self.value.map_or([0; 3], |it| [it.value, it.enabled_ns, it.running_ns]);
            value.into_iter().for_each(|number| {
                w.u64(number);
            });
        }
        if has(Parts::REGISTERS) {
            let registers = self.registers;
            w.u64(registers.map_or(0, |registers| registers.mask));
            registers.iter().flat_map(Registers::iter).for_each(|(_, value)| {
                w.u64(value);
            });
        }
        if has(Parts::STACK) {
            let words = self.callchain.unwrap_or(Words::new(&[], endian));
            w.u64(words.len() as u64);
            words.iter().for_each(|word| {
                w.u64(word);
            });
        }
        let length = (w.position() - start) as u32;
        w.patch_u32(start + 8, length);
    }
}

/// Names of the words of `bpf_user_pt_regs_t` on an architecture, as `uname -m` has it: `struct pt_regs` of x86-64 and
/// `struct user_pt_regs` of arm64, in order. `None` for an unknown architecture.
pub fn register_names(arch: &str) -> Option<&'static [&'static str]> {
    match arch {
        "x86_64" => Some(&[
            "r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di", "orig_ax",
            "ip", "cs", "flags", "sp", "ss",
        ]),
        "aarch64" => Some(&[
            "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
            "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "lr",
            "sp", "pc", "pstate",
        ]),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
