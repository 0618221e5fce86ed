//! A sample as text: a line, then a line per frame of its call chain.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use bprec_format::bprec::sampler::SamplerPayload;
use bprec_format::bprec::state::State;
use bprec_format::feature::tracing::{EventFormat, FieldLayout};
use bprec_format::records::CallchainDeferred;
use bprec_format::{
    CONTEXT_MAX, Callchain, Endian, EventAttr, SampleFields, SampleId, SampleType, context, event_type, misc, software,
};

use crate::input::event_kind::EventKind;

use super::fields::{Field, Fields};
use super::frames::FrameTexts;
use super::sampled;
use super::state;
use super::tasks::StreamTasks;
use super::text::{Name, Text, dotted};

/// Text of an unknown name.
const UNKNOWN: &[u8] = b"[unknown]";

/// Fixed part of the limit on the text of a tracepoint's fields, bytes. [`TRACE_BYTES_PER_BYTE`] adds to it.
const TRACE_FIXED_BYTES: usize = 4 << 10;
/// Part of the limit on the text of a tracepoint's fields that each byte of raw data adds, bytes. In an array, a one-byte number takes five bytes of
/// text.
const TRACE_BYTES_PER_BYTE: usize = 16;

/// Limit on the text of a call chain, bytes; beyond it, no further frame is printed. More than [`super::MAX_STACK`] frames with the longest printed
/// names fit.
const FRAMES_BYTES: usize = 2 << 20;

/// Layout of lines.
pub(crate) struct Style {
    pub(crate) fields: Fields,
    pub(crate) nanoseconds: bool,
    pub(crate) chains: bool,
    pub(crate) max_stack: usize,
    /// Width of the event-name column.
    pub(crate) event_width: usize,
}

/// Task and time at the start of each line.
pub(crate) struct Stamp<'a> {
    pub(crate) comm: &'a [u8],
    pub(crate) pid_tid: Option<(u32, u32)>,
    pub(crate) cpu: Option<u32>,
    pub(crate) time_ns: Option<u64>,
    /// True if the frames of a call chain follow on lines of their own.
    pub(crate) has_chain: bool,
}

/// A sample of one event. A sample with the counters of a group becomes a line for each counter that has grown.
pub(crate) struct PrintedLine<'a> {
    pub(crate) attr: &'a EventAttr,
    pub(crate) plan: &'a LinePlan,
    pub(crate) fields: &'a SampleFields<'a>,
    pub(crate) period: Option<u64>,
    pub(crate) misc: u16,
    /// Byte order of the recording.
    pub(crate) endian: Endian,
    /// Payload of the recorder's sampling program, if it wrote the sample.
    pub(crate) sampled: Option<&'a SamplerPayload<'a>>,
    /// Register names, if known.
    pub(crate) registers: &'static [&'static str],
}

/// Parts shared by all lines of an event.
pub(crate) struct LinePlan {
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: EventKind,
    /// Format of a tracepoint.
    pub(crate) format: Option<Arc<TracepointFormat>>,
}

/// Plan for an unknown event.
pub(super) static UNKNOWN_EVENT: LinePlan =
    LinePlan { name: Cow::Borrowed("[unknown]"), kind: EventKind::Other, format: None };

/// Fields of a tracepoint, printed one by one.
pub(crate) struct TracepointFormat {
    fields: Vec<(Box<str>, FieldLayout)>,
    /// Byte order of the fields.
    endian: Endian,
}

impl TracepointFormat {
    pub(crate) fn new(format: &EventFormat<'_>, endian: Endian) -> TracepointFormat {
        let own = format.fields.iter().filter(|field| !field.is_common());
        TracepointFormat { fields: own.map(|field| (field.name.into(), field.layout())).collect(), endian }
    }

    /// Returns the fields as text: `prev_comm="bash" prev_pid=12`. Fields may overlap in raw data, so the length of the text is limited.
    fn show(&self, raw: &[u8]) -> String {
        let max_bytes = TRACE_FIXED_BYTES + TRACE_BYTES_PER_BYTE * raw.len();
        let mut out = String::new();
        for (name, layout) in &self.fields {
            if out.len() > max_bytes {
                out.push_str(" …");
                break;
            }
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(name);
            out.push('=');
            layout.write(raw, self.endian, &mut out);
        }
        out
    }
}

impl Style {
    /// Appends task name, ids, CPU and time.
    pub(crate) fn stamp(&self, out: &mut Text, stamp: &Stamp<'_>) {
        let has = |field| self.fields.has(field);
        if has(Field::Comm) {
            let width = if stamp.has_chain { 0 } else { 16 };
            let _ = write!(out, "{:>width$} ", Name(stamp.comm));
        }
        let pid_tid = stamp.pid_tid.map(|(pid, tid)| (pid as i32, tid as i32));
        let _ = match (has(Field::Pid), has(Field::Tid), pid_tid) {
            (true, true, Some((pid, tid))) => write!(out, "{pid:>5}/{tid:<5} "),
            (true, false, Some((pid, _))) => write!(out, "{pid:>7} "),
            (false, true, Some((_, tid))) => write!(out, "{tid:>7} "),
            (pid, tid, None) if pid && self.misses(Field::Pid) || tid && self.misses(Field::Tid) => {
                write!(out, "    n/a ")
            }
            _ => Ok(()),
        };
        if has(Field::Cpu) {
            let _ = match stamp.cpu {
                Some(cpu) => write!(out, "[{cpu:03}] "),
                None if self.misses(Field::Cpu) => write!(out, "[n/a] "),
                None => Ok(()),
            };
        }
        if has(Field::Time) {
            let _ = match stamp.time_ns {
                Some(time_ns) => write!(out, "{:>12}: ", self.time(time_ns)),
                None if self.misses(Field::Time) => write!(out, "{:>12}: ", "n/a"),
                None => Ok(()),
            };
        }
    }

    /// Appends a sample with its newline.
    pub(super) fn sample(
        &self,
        out: &mut Text,
        (tasks, texts): (&StreamTasks, &mut FrameTexts),
        line: &PrintedLine<'_>,
    ) {
        let style = Style { fields: self.fields.of_event(line.attr), ..*self };
        style.event_sample(out, (tasks, texts), line);
    }

    /// Appends a sample with these fields, for any event.
    fn event_sample(&self, out: &mut Text, (tasks, texts): (&StreamTasks, &mut FrameTexts), line: &PrintedLine<'_>) {
        let has = |field| self.fields.has(field);
        let fields = line.fields;
        let chain = fields.callchain.filter(|_| self.chains && has(Field::Ip));
        let comm = has(Field::Comm).then(|| tasks.comm(fields.pid_tid.map_or(u32::MAX, |(_, tid)| tid)));
        let stamp = Stamp {
            comm: comm.as_deref().unwrap_or_default(),
            pid_tid: fields.pid_tid,
            cpu: fields.cpu,
            time_ns: fields.time_ns,
            has_chain: chain.is_some(),
        };
        self.stamp(out, &stamp);
        if has(Field::Period) {
            self.number(out, Field::Period, line.period, |out, period| write!(out, "{period:>10} "));
        }
        if has(Field::Event) {
            let _ = write!(out, "{:>width$}: ", Name(line.plan.name.as_bytes()), width = self.event_width);
        }
        if has(Field::Trace)
            && let (Some(format), Some(raw)) = (&line.plan.format, fields.raw)
        {
            let _ = out.write_str(&format.show(raw));
        }
        let pid = fields.pid_tid.map_or(u32::MAX, |(pid, _)| pid);
        if has(Field::Addr) {
            self.number(out, Field::Addr, fields.addr, |out, addr| write!(out, "{addr:>16x}"));
        }
        if has(Field::Weight) {
            // A word may hold three weights. The first, in the lower 32 bits, is printed.
            let is_struct = line.attr.sample_type.contains(SampleType::WEIGHT_STRUCT);
            let weight = fields.weight.map(|weight| if is_struct { weight & u64::from(u32::MAX) } else { weight });
            self.number(out, Field::Weight, weight, |out, weight| write!(out, "{weight:>16}"));
        }
        if has(Field::Cgroup) {
            self.number(out, Field::Cgroup, fields.cgroup, |out, id| match tasks.cgroup(id) {
                Some(path) => write!(out, " {} ", Name(path)),
                None => write!(out, " cgroup:{id} "),
            });
        }
        if has(Field::Ip) || has(Field::Sym) {
            match chain {
                Some(chain) => {
                    out.push('\n');
                    self.frames(out, (tasks, texts), pid, chain);
                }
                None => {
                    out.push(' ');
                    self.number(out, Field::Ip, fields.ip, |out, ip| {
                        let kernel = is_kernel(line.misc);
                        self.frame(out, (tasks, texts), tasks.space(pid, kernel), (pid, ip, kernel));
                        Ok(())
                    });
                }
            }
        }
        let is_output = (line.attr.kind, line.attr.config) == (event_type::SOFTWARE, software::BPF_OUTPUT);
        if let Some(raw) = fields.raw.filter(|_| is_output) {
            let state = || State::decode(raw, 0, line.endian).ok();
            if has(Field::State)
                && line.plan.kind == EventKind::State
                && let Some(state) = state()
            {
                state::describe(out, &state);
            } else if has(Field::BpfOutput) {
                match line.sampled {
                    Some(payload) => sampled::describe(out, payload, line.registers),
                    None => bpf_output(out, raw),
                }
            }
        }
        out.push('\n');
    }

    fn frames(&self, out: &mut Text, (tasks, texts): (&StreamTasks, &mut FrameTexts), pid: u32, chain: Callchain<'_>) {
        let is_kernel = |ip| matches!(ip, context::KERNEL | context::GUEST_KERNEL | context::HV);
        let spaces = [false, true].map(|kernel| tasks.space(pid, kernel));
        let mut kernel = false;
        for ip in chain.iter().take(self.max_stack) {
            if ip >= CONTEXT_MAX {
                kernel = is_kernel(ip);
            } else {
                texts.prefetch((spaces[usize::from(kernel)], ip));
            }
        }
        let start = out.len();
        kernel = false;
        let mut shown = 0;
        let mut is_cookie = false;
        for (at, ip) in chain.iter().enumerate() {
            if ip >= CONTEXT_MAX {
                // An invalid user stack may have a word in the range of the context markers that is not a known marker. As in perf, no frame of such
                // a chain is printed.
                if at < self.max_stack && !is_context(ip) {
                    out.truncate(start);
                    return;
                }
                kernel = is_kernel(ip);
                is_cookie = ip == context::USER_DEFERRED;
                continue;
            }
            if shown == self.max_stack {
                break;
            }
            if out.len() - start > FRAMES_BYTES {
                out.push_str("\t[more frames]\n");
                break;
            }
            shown += 1;
            out.push('\t');
            if std::mem::take(&mut is_cookie) {
                self.cookie(out, ip);
            } else {
                self.frame(out, (tasks, texts), spaces[usize::from(kernel)], (pid, ip, kernel));
            }
            out.push('\n');
        }
    }

    /// Appends the cookie of a deferred user chain, in place of the chain, which is missing.
    fn cookie(&self, out: &mut Text, cookie: u64) {
        if self.fields.has(Field::Ip) {
            out.push_address(cookie);
        }
        for (field, text) in [(Field::Sym, " (cookie)"), (Field::Dso, " ([unknown])")] {
            if self.fields.has(field) {
                out.push_str(text);
            }
        }
    }

    /// Appends a deferred user call chain by itself.
    pub(super) fn user_chain(
        &self,
        out: &mut Text,
        (tasks, texts): (&StreamTasks, &mut FrameTexts),
        id: &SampleId,
        chain: &CallchainDeferred<'_>,
    ) {
        let comm = tasks.comm(id.pid_tid.map_or(u32::MAX, |(_, tid)| tid));
        let has_chain = self.chains && self.fields.has(Field::Ip);
        let SampleId { pid_tid, cpu, time_ns, .. } = *id;
        self.stamp(out, &Stamp { comm: &comm, pid_tid, cpu, time_ns, has_chain });
        out.line(format_args!("DEFERRED CALLCHAIN [cookie: {:x}]", chain.cookie));
        if has_chain {
            self.frames(out, (tasks, texts), pid_tid.map_or(u32::MAX, |(pid, _)| pid), chain.ips);
            out.push('\n');
        }
    }

    #[inline(always)]
    fn frame(
        &self,
        out: &mut Text,
        (tasks, texts): (&StreamTasks, &mut FrameTexts),
        space: u32,
        (pid, ip, kernel): (u32, u64, bool),
    ) {
        if self.fields.has(Field::Ip) {
            out.push_address(ip);
        }
        if self.fields.has(Field::Sym) || self.fields.has(Field::Dso) {
            texts.push(out, (space, ip), |text| self.place(text, tasks, pid, ip, kernel));
        }
    }

    /// Appends symbol and file of the code at an address.
    fn place(&self, out: &mut Text, tasks: &StreamTasks, pid: u32, ip: u64, kernel: bool) {
        let has = |field| self.fields.has(field);
        let place = tasks.place(pid, ip, kernel);
        if has(Field::Sym) {
            let (name, offset) = place.symbol.map_or((UNKNOWN, None), |(name, offset)| (name, Some(offset)));
            out.push(' ');
            out.push_name(name);
            if let Some(offset) = offset.filter(|_| has(Field::Symoff)) {
                let _ = write!(out, "+{offset:#x}");
            }
        }
        if has(Field::Dso) {
            out.push_str(" (");
            out.push_name(place.dso.unwrap_or(UNKNOWN));
            out.push(')');
        }
    }

    /// Appends a number in its format, or a placeholder if it is missing and was requested by name.
    fn number(
        &self,
        out: &mut Text,
        field: Field,
        value: Option<u64>,
        show: impl FnOnce(&mut Text, u64) -> std::fmt::Result,
    ) {
        let _ = match value {
            Some(value) => show(out, value),
            None if self.misses(field) => write!(out, "n/a "),
            None => Ok(()),
        };
    }

    /// Returns true if a missing field needs a placeholder.
    fn misses(&self, field: Field) -> bool {
        self.fields.is_named(field)
    }

    fn time(&self, time_ns: u64) -> String {
        let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        match self.nanoseconds {
            true => format!("{seconds}.{rest:09}"),
            false => format!("{seconds}.{:06}", rest / 1000),
        }
    }
}

fn is_context(word: u64) -> bool {
    const GUESTS: [u64; 3] = [context::GUEST, context::GUEST_KERNEL, context::GUEST_USER];
    matches!(word, context::HV | context::KERNEL | context::USER | context::USER_DEFERRED) || GUESTS.contains(&word)
}

fn is_kernel(record_misc: u16) -> bool {
    matches!(record_misc & misc::CPUMODE_MASK, misc::KERNEL | misc::GUEST_KERNEL | misc::HYPERVISOR)
}

/// Appends raw bytes as hex and text.
fn bpf_output(out: &mut Text, raw: &[u8]) {
    let mut at = "      BPF output:";
    for (row, bytes) in raw.chunks(8).enumerate() {
        out.push('\n');
        let _ = write!(out, "{at:>17} {:04x}: ", row * 8);
        bytes.iter().for_each(|b| {
            let _ = write!(out, "{b:02x} ");
        });
        let text = dotted(bytes);
        let _ = write!(out, "{:width$} {text}", "", width = (8 - bytes.len()) * 3);
        at = "";
    }
}
