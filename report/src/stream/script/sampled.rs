//! Samples of the recorder's sampling program: the payload as sample fields, and the rest in words.

use std::fmt::Write;

use bprec_format::SampleFields;
use bprec_format::bprec::sampler::{Parts, SamplerPayload};

use super::text::{Plain, Text};

/// Returns the sample with period, address and cgroup of the payload, if the payload has them. The call chain is always the payload's.
pub(super) fn merged<'a>(fields: &SampleFields<'a>, payload: &SamplerPayload<'a>) -> SampleFields<'a> {
    SampleFields {
        period: payload.period.or(fields.period),
        addr: payload.addr.or(fields.addr),
        cgroup: payload.cgroup.or(fields.cgroup),
        callchain: payload.callchain.filter(|chain| !chain.is_empty()),
        ..fields.clone()
    }
}

/// Appends the payload without its call chain. `names` are register names, if known.
pub(super) fn describe(out: &mut Text, payload: &SamplerPayload<'_>, names: &[&str]) {
    out.push_str("      BPF sampler:");
    // Writing to a string cannot fail.
    let mut number = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            let _ = write!(out, " {name}={value}");
        }
    };
    number("period", payload.period);
    number("cgroup", payload.cgroup);
    if let Some((pid, tid)) = payload.pid_tid {
        let _ = write!(out, " task={pid}/{tid}");
    }
    if let Some(comm) = payload.comm {
        let _ = write!(out, " comm={}", Plain(comm));
    }
    for (name, value) in [("ip", payload.ip), ("addr", payload.addr)] {
        if let Some(value) = value {
            let _ = write!(out, " {name}={value:#x}");
        }
    }
    if let Some(value) = payload.value {
        let _ = write!(out, " value={} enabled={} running={}", value.value, value.enabled_ns, value.running_ns);
    }
    if let Some(registers) = payload.registers {
        out.push_str(" regs:");
        for (number, value) in registers.iter() {
            let _ = match names.get(number as usize) {
                Some(name) => write!(out, " {name}={value:#x}"),
                None => write!(out, " word{number}={value:#x}"),
            };
        }
    }
    for (name, part) in Parts::NAMES {
        if payload.missing.contains(part) {
            let _ = write!(out, " {name}=n/a");
        }
    }
}
