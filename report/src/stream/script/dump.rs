//! Every record as it is: offset, size, bytes, and one line that says what they mean. In the order of the input.

use std::fmt::Write;

use bprec_format::records::{Payload, UserPayload};
use bprec_format::{Endian, Error, Event, RECORD_HEADER_BYTES, Record, RecordType, Sample, SampleId, context};

use super::side;
use super::text::{Text, dotted};

/// Appends a record.
pub(crate) fn record(out: &mut Text, record: &Record<'_>, endian: Endian, event: Option<&Event>) {
    let size = record.bytes.len();
    out.push('\n');
    out.line(format_args!("{:#x} [{size:#x}]: event: {}", record.offset, record.kind.0));
    out.push_str(".\n");
    out.line(format_args!(". ... raw event: size {size} bytes"));
    hex_dump(out, record.bytes);
    out.push('\n');
    let body_offset = record.offset + RECORD_HEADER_BYTES as u64;
    let decoded = match event {
        _ if !record.kind.is_kernel() => UserPayload::decode(record, endian)
            .map(|user| other(out, record, &Payload::User(user), &SampleId::default())),
        None => Err(Error::other(record.offset, "record", "of no known event")),
        Some(event) if record.kind == RecordType::SAMPLE => {
            event.layout.sample(record.body(), body_offset).and_then(|s| sample(out, record, &s))
        }
        Some(event) => Payload::decode(record, &event.layout).map(|(payload, id)| other(out, record, &payload, &id)),
    };
    if let Err(error) = decoded {
        out.line(format_args!("{:#x} [{size:#x}]: PERF_RECORD_{}: {error}", record.offset, record.kind));
    }
}

fn other(out: &mut Text, record: &Record<'_>, payload: &Payload<'_>, id: &SampleId) {
    stamp(out, record, id);
    side::describe(out, record, payload);
    out.push('\n');
}

/// CPU and time, where they are known, then offset and size.
fn stamp(out: &mut Text, record: &Record<'_>, id: &SampleId) {
    if let Some(cpu) = id.cpu {
        let _ = write!(out, "{cpu} ");
    }
    if let Some(time_ns) = id.time_ns {
        let _ = write!(out, "{time_ns} ");
    }
    let _ = write!(out, "{:#x} [{:#x}]: ", record.offset, record.bytes.len());
}

fn sample(out: &mut Text, record: &Record<'_>, sample: &Sample<'_>) -> bprec_format::Result<()> {
    let fields = sample.decode()?;
    stamp(out, record, &SampleId { cpu: fields.cpu, time_ns: fields.time_ns, ..SampleId::default() });
    let _ = write!(out, "PERF_RECORD_SAMPLE(IP, {:#x}):", record.misc);
    let number = |out: &mut Text, name: &str, value: Option<u64>| {
        if let Some(value) = value {
            let _ = write!(out, " {name}: {value:#x}");
        }
    };
    if let Some((pid, tid)) = fields.pid_tid {
        let _ = write!(out, " {}/{}:", pid as i32, tid as i32);
    }
    number(out, "ip", fields.ip);
    if let Some(period) = fields.period {
        let _ = write!(out, " period: {period}");
    }
    number(out, "addr", fields.addr);
    number(out, "id", fields.id);
    number(out, "stream id", fields.stream_id);
    number(out, "cgroup", fields.cgroup);
    number(out, "phys_addr", fields.phys_addr);
    number(out, "data page size", fields.data_page_size);
    number(out, "code page size", fields.code_page_size);
    number(out, "weight", fields.weight);
    number(out, "data src", fields.data_src);
    number(out, "transaction", fields.transaction);
    out.push('\n');
    if let Some(read) = &fields.read {
        for value in read.iter() {
            out.line(format_args!("... sample_read: value {} id {:?} lost {:?}", value.value, value.id, value.lost));
        }
    }
    if let Some(chain) = fields.callchain {
        out.line(format_args!("... FP chain: nr:{}", chain.len()));
        for (index, ip) in chain.iter().enumerate() {
            let mark = match ip {
                context::HV => " (hypervisor)",
                context::KERNEL => " (kernel)",
                context::USER => " (user)",
                context::USER_DEFERRED => " (user, deferred)",
                context::GUEST | context::GUEST_KERNEL | context::GUEST_USER => " (guest)",
                _ => "",
            };
            out.line(format_args!("..... {index:2}: {ip:016x}{mark}"));
        }
    }
    if let Some(branches) = &fields.branches {
        out.line(format_args!("... branch stack: nr:{}", branches.len()));
        for (index, branch) in branches.iter().enumerate() {
            let (from, to, flags) = (branch.from, branch.to, branch.flags);
            out.line(format_args!("..... {index:2}: {from:016x} -> {to:016x} flags {flags:#x}"));
        }
    }
    for (name, regs) in [("user", &fields.regs_user), ("intr", &fields.regs_intr)] {
        if let Some(regs) = regs {
            out.line(format_args!("... {name} regs: mask {:#x} ABI {}", regs.mask, regs.abi));
        }
    }
    if let Some(stack) = fields.stack_user {
        out.line(format_args!("... ustack: size {}", stack.len()));
    }
    if let Some(raw) = fields.raw {
        out.line(format_args!("... raw: size {}", raw.len()));
    }
    if let Some(aux) = fields.aux {
        out.line(format_args!("... aux: size {}", aux.len()));
    }
    Ok(())
}

/// Sixteen bytes per line, in hexadecimal and as text.
pub(crate) fn hex_dump(out: &mut Text, bytes: &[u8]) {
    for (line, row) in bytes.chunks(16).enumerate() {
        let _ = write!(out, ".  {:04x}: ", line * 16);
        row.iter().for_each(|b| {
            let _ = write!(out, " {b:02x}");
        });
        let text = dotted(row);
        out.line(format_args!("{:width$}  {text}", "", width = (16 - row.len()) * 3));
    }
}
