//! `bprec:state` payloads as text: the kind and its main members, on one line.

use std::fmt::{Result, Write};

use bprec_format::bprec::state::{Program, Reading, State, TargetCounters};

use super::text::{Plain, Text};

/// Appends a state.
pub(super) fn describe(out: &mut Text, state: &State) {
    // Writing to a string cannot fail.
    let _ = write(out, state);
}

fn write(out: &mut Text, state: &State) -> Result {
    match state {
        State::Session(it) => {
            write!(out, "session: start {} ns, {}, event {}", it.start_ns, text(&it.target), text(&it.event))?;
            write!(out, ", {} CPUs, counters {}, interval {} ns", it.cpus_online, text(&it.counters), it.interval_ns)?;
            for (what, id) in [("machine", &it.machine_id), ("boot", &it.boot_id)] {
                if !id.is_empty() {
                    write!(out, ", {what} {}", text(id))?;
                }
            }
            [("event", &it.event_note), ("counters", &it.counters_note)]
                .iter()
                .filter(|(_, note)| !note.is_empty())
                .try_for_each(|(what, note)| write!(out, " ({what}: {})", text(note)))
        }
        State::Program(it) => write_program(out, it),
        State::Missed(it) => write!(out, "missed: program {} at {} ns: {}", it.id, it.time_ns, text(&it.reason)),
        State::RunStats(it) => {
            write!(out, "run stats at {} ns", it.time_ns)?;
            it.on_ns.map_or(Ok(()), |on_ns| write!(out, ", on for {on_ns} ns"))?;
            it.others_ns.filter(|ns| *ns > 0).map_or(Ok(()), |others_ns| write!(out, ", for others {others_ns} ns"))?;
            write!(out, ":")?;
            each(out, &it.programs, |out, program| {
                write!(out, " program {} {} runs {} ns", program.id, program.run_cnt, program.run_time_ns)?;
                program.recursion_misses.map_or(Ok(()), |misses| write!(out, " {misses} misses"))
            })
        }
        State::Map(it) => write!(
            out,
            "map: {} {} type {} key {} B value {} B entries {}",
            it.id,
            Plain(&it.name),
            it.map_type,
            it.key_bytes,
            it.value_bytes,
            it.max_entries
        ),
        State::Attachment(it) => {
            write!(out, "attachment: program {} {} {}", it.prog_id, text(&it.kind), Plain(it.target.text()))?;
            it.link_id.map_or(Ok(()), |link| write!(out, " link {link}"))
        }
        State::ProgArray(it) => {
            write!(out, "program array: map {}", it.map_id)?;
            each(out, &it.slots, |out, slot| write!(out, " [{}] program {}", slot.index, slot.prog_id))?;
            match it.unread_slots {
                0 => Ok(()),
                unread => write!(out, ", {unread} slots not read"),
            }
        }
        State::ProbeMisses(it) => {
            write!(out, "probe misses at {} ns:", it.time_ns)?;
            each(out, &it.links, |out, link| {
                write!(out, " link {} program {} {}", link.link_id, link.prog_id, link.first)?;
                match link.last {
                    Some(last) => write!(out, " to {last}"),
                    None => write!(out, ", removed"),
                }
            })
        }
        State::HolderTimes(it) => {
            write!(out, "CPU time of holders between {} and {} ns:", it.from_ns, it.to_ns)?;
            each(out, &it.processes, |out, (pid, cpu_ns)| write!(out, " pid {pid} {cpu_ns} ns"))?;
            if !it.resident_bytes.is_empty() {
                write!(out, ", resident memory:")?;
            }
            each(out, &it.resident_bytes, |out, (pid, bytes)| write!(out, " pid {pid} {bytes} bytes"))
        }
        State::Released(it) => {
            write!(out, "released: program {} between {} and {} ns", it.id, it.after_ns, it.before_ns)
        }
        State::Loss(it) if it.not_counted => write!(out, "loss: the kernel does not count losses per event"),
        State::Loss(it) => {
            write!(out, "loss:")?;
            each(out, &it.events, |out, event| {
                write!(out, " event {} CPU {} lost {}", event.event_id, event.cpu, event.lost)
            })
        }
        State::CpuNotSampled(it) => {
            let how = if it.came_online { "came online" } else { "went offline" };
            write!(out, "CPU not sampled: CPU {} {how}, not sampled from {} ns on", it.cpu, it.time_ns)?;
            match it.until_ns {
                0 => Ok(()),
                until_ns => write!(out, ", sampled again from {until_ns} ns on"),
            }
        }
        State::BootClock(it) => {
            write!(out, "boot clock: {} ns more than this clock from {} ns on", it.to_boottime_ns, it.time_ns)
        }
        State::Cost(it) => {
            write!(
                out,
                "cost: end {} ns, user {} ns, system {} ns, {} B resident, {} B written, {} wakeups, {} programs, {} missed",
                it.end_ns,
                it.user_ns,
                it.system_ns,
                it.max_rss_bytes,
                it.written_bytes,
                it.wakeups,
                it.programs,
                it.missed
            )?;
            if let Some(gap_ns) = it.longest_gap_ns {
                write!(out, ", longest gap {gap_ns} ns, {} B overrun", it.overrun_bytes)?;
            }
            it.unheld.filter(|unheld| *unheld > 0).map_or(Ok(()), |unheld| write!(out, ", {unheld} programs not held"))
        }
        State::KernelSymbols(symbols) => {
            write!(out, "kernel symbols:")?;
            each(out, symbols, |out, symbol| write!(out, " {:x} {}", symbol.addr, Plain(&symbol.name)))
        }
        State::PodContainers(pods) => {
            write!(out, "containers of pods:")?;
            each(out, pods, |out, it| {
                let [id, namespace, pod, container] =
                    [&it.id, &it.namespace, &it.pod, &it.container].map(|it| text(it));
                write!(out, " {id} is {namespace}/{pod}/{container}")
            })
        }
        State::CounterEvents(it) => {
            write!(out, "counter events:")?;
            each(out, &it.events, |out, event| write!(out, " {}", text(&event.name)))?;
            it.absent
                .iter()
                .try_for_each(|event| write!(out, ", without {} ({})", text(&event.name), text(&event.reason)))
        }
        State::ProgramCounters(it) => {
            write!(out, "program counters at {} ns:", it.time_ns)?;
            each(out, &it.targets, write_target)
        }
        State::SharedCounters(it) => {
            write!(out, "shared counters at {} ns:", it.time_ns)?;
            each(out, &it.targets, |out, target| {
                write!(out, " {}", Plain(&target.name))?;
                write_readings(out, &target.readings)?;
                reason(out, &target.reason)
            })
        }
        State::Sampler(it) => {
            write!(out, "sampler: program {} on {} at {}", it.prog_id, text(&it.event), it.rate)?;
            it.counts.as_ref().map_or(Ok(()), |counts| {
                write!(out, ", {} runs, {} written, {} full", counts.runs, counts.written, counts.full)
            })
        }
        State::MapContents(it) => {
            write!(
                out,
                "map contents: {} at {} ns: {} bytes from {}",
                it.map_id,
                it.time_ns,
                it.bytes.len(),
                it.offset
            )?;
            it.end.as_ref().map_or(Ok(()), |end| {
                write!(out, ", end of {} entries", end.entries)?;
                reason(out, &end.cut)
            })
        }
        State::Aggregation(it) => {
            write!(
                out,
                "aggregation at {} ns: event {} samples {} period {}",
                it.time_ns, it.event_id, it.samples, it.period
            )?;
            write!(out, ", {} samples without a free entry", it.overflow_samples)?;
            it.counted.map_or(Ok(()), |counted| write!(out, ", event counted {counted}"))
        }
        State::Recording(it) => {
            write!(out, "recording: ")?;
            it.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
        State::FileFunctions(it) => {
            write!(out, "functions of {}:", Plain(&it.path))?;
            each(out, &it.functions, |out, function| write!(out, " {:x} {}", function.offset, Plain(&function.name)))
        }
        State::UserSymbols(it) => {
            write!(out, "user symbols: {} of {} addresses named in {} ns", it.named, it.addresses, it.took_ns)?;
            reason(out, &it.cut)
        }
        State::StatsOff(it) => {
            write!(out, "run stats off at {} ns", it.time_ns)?;
            reason(out, &it.reason)
        }
        State::Unknown { kind, body } => write!(out, "kind {kind}: {} bytes", body.len()),
        // New kinds of the format need a branch here.
        _ => write!(out, "not printed"),
    }
}

fn write_program(out: &mut Text, program: &Program) -> Result {
    write!(out, "program: {} load {} ns", program.id, program.load_time_ns)?;
    for owner in &program.owners {
        write!(out, ", owner {} {} uid {}", owner.pid, Plain(&owner.comm), owner.uid)?;
        if !owner.cgroup.is_empty() {
            write!(out, " {}", Plain(&owner.cgroup))?;
        }
    }
    program.pins.iter().try_for_each(|pin| write!(out, ", pin {}", Plain(pin)))?;
    program.metadata.iter().try_for_each(|(key, value)| write!(out, ", {} = {}", Plain(key), Plain(value)))?;
    if program.withheld.is_empty() { Ok(()) } else { write!(out, ", withheld: {}", text(&program.withheld)) }
}

fn write_target(out: &mut Text, target: &TargetCounters) -> Result {
    write!(out, " program {} {}", target.id, Plain(&target.name))?;
    if let Some(counts) = &target.counts {
        write!(out, " {} runs, {} measured, {} ns,", counts.runs, counts.measured, counts.time_ns)?;
        write_readings(out, &counts.readings)?;
    }
    reason(out, &target.reason)
}

fn write_readings(out: &mut Text, readings: &[Reading]) -> Result {
    readings.iter().try_for_each(|it| write!(out, " {} ({} of {} ns)", it.value, it.running_ns, it.enabled_ns))
}

fn reason(out: &mut Text, reason: &str) -> Result {
    if reason.is_empty() { Ok(()) } else { write!(out, " ({})", text(reason)) }
}

/// Elements separated by semicolons; `none` for an empty list.
fn each<T>(out: &mut Text, items: &[T], mut write: impl FnMut(&mut Text, &T) -> Result) -> Result {
    if items.is_empty() {
        return write!(out, " none");
    }
    items.iter().enumerate().try_for_each(|(index, item)| {
        out.push_str(if index == 0 { "" } else { ";" });
        write(out, item)
    })
}

fn text(text: &str) -> Plain<'_> {
    Plain(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bprec_format::bprec::state::{AttachTarget, Attachment, Owner, ProgramRuns, RunStats};

    fn line(state: &State) -> String {
        let mut out = Text::default();
        describe(&mut out, state);
        String::from_utf8_lossy(out.as_bytes()).into_owned()
    }

    #[test]
    fn a_payload_is_one_line_fit_for_a_terminal() {
        let owner = Owner { pid: 7, comm: b"agent\n".to_vec(), uid: 0, cgroup: Vec::new() };
        let program = Program { id: 5, load_time_ns: 9, owners: vec![owner], ..Program::default() };
        assert_eq!(line(&State::Program(program)), "program: 5 load 9 ns, owner 7 agent\\x0a uid 0");
        let runs = |id| ProgramRuns { id, run_cnt: 3, run_time_ns: 40, ..ProgramRuns::default() };
        let programs = vec![runs(1), ProgramRuns { recursion_misses: Some(2), ..runs(2) }];
        assert_eq!(
            line(&State::RunStats(RunStats { time_ns: 100, programs, ..RunStats::default() })),
            "run stats at 100 ns: program 1 3 runs 40 ns; program 2 3 runs 40 ns 2 misses"
        );
        assert_eq!(line(&State::RunStats(RunStats::default())), "run stats at 0 ns: none");
        let attachment =
            Attachment { prog_id: 5, link_id: None, kind: "xdp".into(), target: AttachTarget::default().words("lo") };
        assert_eq!(line(&State::Attachment(attachment)), "attachment: program 5 xdp lo");
    }
}
