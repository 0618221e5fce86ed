//! `bprec:sampler`: samples that bprec's BPF program builds on the perf event that runs it.
//!
//! Each payload is in the RAW field of a sample of the software/bpf-output event with this name. Layout, in the byte order of the recording:
//!
//! ```text
//! version u16 (1) · parts u16 · missing u16 · zero u16 · length u32 (of the payload, from the version on) · zero u32
//! ```
//!
//! Each part with its bit set in `parts` follows, lowest bit first:
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
//! A part with its bit also set in `missing` has this layout, but no valid content: the kernel refused the content. The length is needed because the
//! RAW field is padded. `bpf/src/programs/sampler.bpf.c` writes the payloads.

use crate::attr::bit_set;
use crate::layout::meaning::Comm;
use crate::layout::{Address, Codec, Fixed, Pair, Plain, layout};
use crate::sample::Chain;
use crate::{Callchain, Endian, Error, Reader, Result, Words, Writer};

/// Name of the event with samples that carry these payloads.
pub const EVENT_NAME: &str = "bprec:sampler";

/// Limit on the kernel frames of a call chain; the user frames have the same limit.
pub const FRAMES_MAX: u32 = 127;

const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;

layout! {
    /// Bits of the parts that a payload has.
    #[derive(Copy, Hash, Default)]
    pub struct Parts(pub u16);

    /// Value of the event's counter.
    #[derive(Copy, Default)]
    pub struct CounterValue {
        /// Events counted.
        pub value: u64,
        /// Time the event was enabled, ns.
        pub enabled_ns: u64,
        /// Time for which the event was counting, ns.
        pub running_ns: u64,
    }
}

bit_set!(Parts);

/// Registers of the interrupted context: words of `bpf_user_pt_regs_t`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Registers<'a> {
    /// Bit n is set if word n is present.
    pub mask: u64,
    /// Values of the registers, lowest first.
    pub values: Words<'a>,
}

impl Registers<'_> {
    /// Bit and value of each register that is present, lowest bit first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        let mask = self.mask;
        (0..u64::BITS).filter(move |bit| mask >> bit & 1 != 0).zip(self.values.iter())
    }
}

impl<'a> Codec<'a, Registers<'a>> for Plain {
    const MIN_BYTES: usize = 8;

    fn put(value: &Registers<'a>, w: &mut Writer<'_>) {
        w.u64(value.mask);
        for (_, register) in value.iter() {
            w.u64(register);
        }
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Registers<'a>> {
        let mask = r.u64(what)?;
        let bytes = r.take(mask.count_ones() as usize * 8, what)?;
        Ok(Registers { mask, values: Words::new(bytes, r.endian()) })
    }
}

/// Declares the parts in the order of their bytes: name and bit, name in options and messages, field, type and layout.
macro_rules! parts {
    ($life:lifetime: $($(#[$doc:meta])* $part:ident = $bit:literal, $text:literal, $field:ident: $ty:ty as $codec:ty;)*) => {
        impl Parts {
            $($(#[$doc])* pub const $part: Parts = Parts(1 << $bit);)*

            /// All parts, with their names in options and messages.
            pub const NAMES: [(&str, Parts); [$($bit),*].len()] = [$(($text, Parts::$part)),*];

            /// All parts of this version.
            const KNOWN: Parts = Parts(0 $(| 1 << $bit)*);
        }

        /// One payload. A part that is `None` was not asked for, or is among [`missing`](SamplerPayload::missing).
        #[derive(Debug, Clone, Copy, Default)]
        pub struct SamplerPayload<$life> {
            /// Requested parts that the kernel refused.
            pub missing: Parts,
            $($(#[$doc])* pub $field: Option<$ty>,)*
        }

        impl<$life> SamplerPayload<$life> {
            #[inline]
            fn get_parts(&mut self, parts: Parts, r: &mut Reader<$life>) -> Result<()> {
                $(if parts.contains(Parts::$part) {
                    let value = <$codec as Codec<$life, $ty>>::get(r, concat!("bprec:sampler ", $text))?;
                    self.$field = (!self.missing.contains(Parts::$part)).then_some(value);
                })*
                Ok(())
            }

            fn put_parts(&self, parts: Parts, w: &mut Writer<'_>) {
                $(if parts.contains(Parts::$part) {
                    <$codec as Codec<$life, $ty>>::put(&self.$field.unwrap_or_default(), w);
                })*
            }

            /// Parts of the payload, the missing ones included.
            pub fn parts(&self) -> Parts {
                let missing = Parts(self.missing.0 & Parts::KNOWN.0);
                [$(self.$field.map(|_| Parts::$part)),*].into_iter().flatten().fold(missing, Parts::with)
            }
        }
    };
}

parts! {
    'a:
    /// Instruction pointer.
    IP = 0, "ip", ip: u64 as Address;
    /// Count of events that the sample stands for; ns for clocks.
    PERIOD = 1, "period", period: u64 as Plain;
    /// Data address; 0 with events that have none.
    ADDR = 2, "addr", addr: u64 as Address;
    /// Process id and thread id.
    TASK = 3, "task", pid_tid: (u32, u32) as Pair<Plain, Plain>;
    /// Id of the task's cgroup (cgroup v2).
    CGROUP = 4, "cgroup", cgroup: u64 as Plain;
    /// Name of the thread, without the NULs at its end.
    COMM = 5, "comm", comm: &'a [u8] as Fixed<Comm, 16>;
    /// The event's counter.
    VALUE = 6, "value", value: CounterValue as Plain;
    /// Requested registers.
    REGISTERS = 7, "regs", registers: Registers<'a> as Plain;
    /// Kernel frames, user frames, or both, each after its marker; frames innermost first.
    STACK = 8, "stack", callchain: Callchain<'a> as Chain;
}

impl<'a> SamplerPayload<'a> {
    /// Reads the payload in the RAW bytes of a sample. The bytes lie at `offset` of the input.
    ///
    /// # Errors
    /// Fails if the version is not 1, or the bytes are too short for the parts in the header.
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
        let mut payload = SamplerPayload { missing, ..SamplerPayload::default() };
        payload.get_parts(parts, &mut Reader::new(body, body_offset, endian))?;
        Ok(payload)
    }

    /// Appends the payload. A comm is cut to 15 bytes.
    pub fn encode(&self, out: &mut Vec<u8>, endian: Endian) {
        self.put(&mut Writer::new(out, endian));
    }

    /// Appends the payload, redacted if the writer redacts. Registers must be removed before: they may hold anything.
    pub fn put(&self, w: &mut Writer<'_>) {
        let start = w.position();
        let parts = self.parts();
        w.u16(VERSION).u16(parts.0).u16(self.missing.0).u16(0).u32(0).u32(0);
        self.put_parts(parts, w);
        let length = (w.position() - start) as u32;
        w.patch_u32(start + 8, length);
    }
}

/// Names of the words of `bpf_user_pt_regs_t`, in order: `struct pt_regs` of x86-64, `struct user_pt_regs` of arm64.
/// `arch` is the machine name of `uname -m`. `None` for an unknown architecture.
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
