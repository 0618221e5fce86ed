//! The end of a recording: what is left in the rings, what was lost, what it cost, and the feature sections.

use std::os::fd::AsFd;
use std::time::Duration;

use bprec_format::records::{LostSamples, write_record};
use bprec_format::state::{self, Cost, EventLoss, KernelSymbol, Loss, State};
use bprec_format::{Endian, RecordType, SampleId, SampleLayout};

use crate::session::Session;
use crate::{Error, Level, Result, Summary, dump, features, shared, sys};

/// The bytes of symbols in one payload: what fits into a record, with room for its own fields.
const SYMBOLS_BYTES: usize = state::PAYLOAD_MAX_BYTES - 1000;

/// Ends sampling, writes what is left, and makes the output whole.
pub(crate) fn finish(session: &mut Session<'_>) -> Result<Summary> {
    if let Some(bpf_sampler) = &session.bpf_sampler {
        bpf_sampler.disable();
    }
    session.opened.disable();
    let end_ns = sys::clock_ns(sys::CLOCK_MONOTONIC);
    if let Some(shared) = session.shared.take() {
        session.pending.extend(shared::states(shared.finish()));
    }
    if let Some(exact) = session.exact.take() {
        session.pending.extend(exact.finish());
    }
    session.take_in_caught()?;
    // The captor's own events are still on, so that it sees at least what the rings have.
    for caught in session.captor.take().map(|captor| captor.finish()).unwrap_or_default() {
        session.take_in(caught)?;
    }
    // Switched off first: what is read then is all that the kernel will ever have counted for us.
    if session.stats.take().is_some() {
        session.pending.extend(session.inventory.run_stats());
    }
    session.check_releases();
    session.check_cpus();
    session.inventory.survey(true, &mut session.pending);
    for problem in session.inventory.problems() {
        (session.options.notify)(Level::Detail, problem);
    }
    let account = session.bpf_sampler.as_ref().map(|bpf_sampler| bpf_sampler.accounted(session.options));
    session.pending.extend(account);
    let traced = dump::wanted(session)?;
    // Sampling is off: nothing is counted behind this.
    session.drain_aggregates()?;
    let lost = write_losses(session)?;
    session.round()?;

    if session.sink.is_file() {
        let (file, offset, bytes) = session.sink.contents();
        session
            .tally
            .add_file(file, offset, bytes)
            .map_err(|answer| Error::Other(format!("reading back: {answer}")))?;
    }
    let symbols = kernel_symbols(session, traced);
    session.pending.extend(chunks(symbols).into_iter().map(State::KernelSymbols));
    let (programs, missed) = session.inventory.counts();
    let usage = sys::usage();
    session.pending.push(State::Cost(Cost {
        end_ns,
        user_ns: usage.user_ns,
        system_ns: usage.system_ns,
        max_rss_bytes: usage.max_rss_bytes,
        written_bytes: session.sink.written_bytes(),
        wakeups: session.wakeups,
        programs,
        missed,
    }));
    session.round()?;

    let mut sections = std::mem::take(&mut session.sections);
    let (infos, btfs) = session.inventory.take_sections();
    if session.sink.is_file() {
        let (first, last) = session.tally.times.unwrap_or((session.start_ns, end_ns));
        sections.push(features::sample_time(first, last));
        sections.push(features::programs(&infos));
        sections.push(features::btfs(btfs.iter().map(|(id, data)| (*id, &data[..]))));
        sections.sort_by_key(|(bit, _)| *bit);
        sections.dedup_by_key(|(bit, _)| *bit);
        session.sink.finish(&sections)?;
    }
    let usage = sys::usage();
    Ok(Summary {
        samples: session.tally.samples,
        bpf_samples: session.bpf_sampler.is_some().then_some(session.tally.bpf_samples),
        of_programs: session.tally.of_programs,
        weighted: session.aggregates.as_ref().map(|aggregates| aggregates.records),
        // Before 6.0 the LOST records are all there is.
        lost: lost.or(Some(session.tally.lost)),
        throttled: session.tally.throttled,
        programs,
        missed,
        written_bytes: session.sink.written_bytes(),
        path: session.sink.path().map(std::path::Path::to_path_buf),
        cpu_time: Duration::from_nanos(usage.user_ns + usage.system_ns),
        command: None,
    })
}

/// Writes a LOST_SAMPLES record for each event and CPU that lost any, and the same as a state. How many records were
/// lost, where the kernel counts that.
fn write_losses(session: &mut Session<'_>) -> Result<Option<u64>> {
    if !session.abilities.lost {
        session.pending.push(State::Loss(Loss { events: Vec::new(), not_counted: true }));
        return Ok(None);
    }
    let time_ns = sys::clock_ns(sys::CLOCK_MONOTONIC);
    let mut events = Vec::new();
    let mut records = Vec::new();
    for instance in session.opened.instances.iter().filter(|it| it.event != session.opened.state) {
        let Ok([_, lost]) = sys::read_counter(instance.fd.as_fd()) else { continue };
        if lost == 0 {
            continue;
        }
        events.push(EventLoss { event_id: instance.id, cpu: instance.cpu, lost });
        let layout = SampleLayout::new(&session.opened.events[instance.event].file.attr, Endian::NATIVE);
        let id = SampleId {
            pid_tid: Some((0, 0)),
            time_ns: Some(time_ns),
            id: Some(instance.id),
            stream_id: None,
            cpu: u32::try_from(instance.cpu).ok(),
        };
        write_record(&mut records, RecordType::LOST_SAMPLES, 0, &layout, &id, |w| {
            LostSamples { lost, by_bpf: false }.encode(w);
        })
        .map_err(|error| Error::Other(error.to_string()))?;
    }
    let total = events.iter().map(|event| event.lost).sum();
    session.pending.push(State::Loss(Loss { events, not_counted: false }));
    session.sink.append(&records)?;
    Ok(Some(total))
}

/// Names for the kernel functions that samples hit or stack traces in maps have, but for those of BPF programs, which their own records name.
fn kernel_symbols(session: &Session<'_>, traced: Vec<u64>) -> Vec<KernelSymbol> {
    let Some(kallsyms) = &session.kallsyms else { return Vec::new() };
    let mut addresses = session.tally.addresses();
    addresses.extend(traced);
    let mut symbols = kallsyms.functions_at(&addresses);
    symbols.retain(|symbol| !symbol.name.ends_with(b" [bpf]"));
    symbols
}

/// Symbols in parts that fit into one payload each.
fn chunks(symbols: Vec<KernelSymbol>) -> Vec<Vec<KernelSymbol>> {
    let mut parts: Vec<Vec<KernelSymbol>> = Vec::new();
    let mut bytes = SYMBOLS_BYTES;
    for symbol in symbols {
        let own = 14 + symbol.name.len();
        if bytes + own > SYMBOLS_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += own;
        if let Some(part) = parts.last_mut() {
            part.push(symbol);
        }
    }
    parts
}
