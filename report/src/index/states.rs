//! Facts from the states of bprec's recordings, and losses.

use super::map_contents::Contents;
use super::programs::IndexedProgram;
use bprec_format::bprec::state::BootClock;
use bprec_format::bprec::{self, state};
use bprec_format::records::user::AuxtraceInfo;
use bprec_format::records::{Payload, UserPayload};
use std::collections::{BTreeMap, BTreeSet};

/// Target text of a recording of the whole machine, as the recorder writes it.
pub(crate) const SYSTEM_WIDE: &str = "system wide";

/// States of a recording made by bprec.
#[derive(Debug, Default)]
pub(crate) struct States {
    pub(crate) session: Option<state::Session>,
    /// Offset of load times from the recording's clock.
    pub(crate) boot_times: BootTimes,
    pub(crate) programs: BTreeMap<(u32, u64), state::Program>,
    pub(crate) missed: Vec<state::Missed>,
    /// Attachments, sorted by program id.
    pub(crate) attachments: Vec<state::Attachment>,
    pub(crate) released: BTreeMap<(u32, u64), state::Released>,
    pub(crate) loss: Option<state::Loss>,
    pub(crate) cpus_not_sampled: Vec<state::CpuNotSampled>,
    pub(crate) sampler: Option<state::Sampler>,
    pub(crate) cost: Option<state::Cost>,
    pub(crate) maps: BTreeMap<u32, state::Map>,
    /// Contents of program arrays, in the order of reading.
    pub(crate) prog_arrays: Vec<state::ProgArray>,
    /// Hits of kprobes that ran no program, by program id; `None` if a link was removed before the end.
    pub(crate) probe_misses: BTreeMap<u32, Option<u64>>,
    /// CPU time of processes that hold programs, in each file.
    pub(crate) holder_times: Vec<state::HolderTimes>,
    /// Contents of maps by id, if wanted.
    pub(crate) contents: BTreeMap<u32, Contents>,
    /// Containers of Kubernetes pods.
    pub(crate) pods: BTreeSet<state::PodContainer>,
    /// Time from which run statistics are not recorded, and the reason.
    pub(crate) stats_off: Option<state::StatsOff>,
    /// Summary of the recorder's lookup of user-space functions.
    pub(crate) user_symbols: Option<state::UserSymbols>,
}

impl States {
    /// Adds the state of a program. Each file repeats the state, but only the first file says that the program was loaded during the recording.
    pub(crate) fn program(&mut self, mut program: state::Program) {
        let key = (program.id, program.load_time_ns);
        program.loaded_during |= self.programs.get(&key).is_some_and(|before| before.loaded_during);
        self.programs.insert(key, program);
    }

    /// Load time of the only program with this id, ns since boot; `None` if the recording has the state of no program or several programs.
    pub(crate) fn only_load_time_ns(&self, id: u32) -> Option<u64> {
        let mut of_id = self.programs.range((id, 0)..=(id, u64::MAX)).map(|((_, load_time_ns), _)| *load_time_ns);
        of_id.next().filter(|_| of_id.next().is_none())
    }

    /// Adds the missed hits of a file.
    pub(crate) fn add_probe_misses(&mut self, state: &state::ProbeMisses) {
        for link in &state.links {
            let misses = link.last.and_then(|last| last.checked_sub(link.first));
            let sum = self.probe_misses.entry(link.prog_id).or_insert(Some(0));
            *sum = sum.zip(misses).map(|(sum, misses)| sum.saturating_add(misses));
        }
    }

    /// Adds a gap in the sampling of a CPU. A second state about the same gap replaces the first: the second state has the time from which the CPU
    /// was sampled again.
    pub(crate) fn add_cpu_not_sampled(&mut self, state: state::CpuNotSampled) {
        let is_same = |known: &&mut state::CpuNotSampled| (known.cpu, known.time_ns) == (state.cpu, state.time_ns);
        match self.cpus_not_sampled.iter_mut().find(is_same) {
            Some(known) => *known = state,
            None => self.cpus_not_sampled.push(state),
        }
    }

    /// Attachments of the programs with an id.
    pub(crate) fn attachments_of(&self, id: Option<u32>) -> &[state::Attachment] {
        let Some(id) = id else { return &[] };
        let from = self.attachments.partition_point(|attachment| attachment.prog_id < id);
        let of_id = &self.attachments[from..];
        &of_id[..of_id.partition_point(|attachment| attachment.prog_id == id)]
    }

    /// Process id of the recorder.
    pub(crate) fn recorder_pid(&self) -> Option<u32> {
        self.session.as_ref()?.recorder_pid
    }

    /// Returns true for a program that a recorder uses to measure: the recorder of this file loaded it to count another program, or it has the name
    /// of a recorder's program and is held by the recorder of this file or by no process. If the pid of the recorder is unknown, the name is enough.
    pub(crate) fn is_of_recorder(&self, program: &IndexedProgram) -> bool {
        let recorder = self.recorder_pid();
        let state = program.key().and_then(|key| self.programs.get(&key));
        let owners = state.map_or(&[][..], |state| &state.owners);
        let is_held = owners.is_empty() || recorder.is_none_or(|pid| owners.iter().any(|owner| owner.pid == pid));
        self.is_loaded_by_recorder(program) || is_held && bprec::is_program(program.name().as_bytes())
    }

    /// Returns true for a program that the recorder loaded to count other programs: such a program is not captured.
    pub(crate) fn is_loaded_by_recorder(&self, program: &IndexedProgram) -> bool {
        let loader = program.loader.map(|(pid, _)| pid);
        program.info.is_none() && loader.is_some() && loader == self.recorder_pid()
    }

    /// Number of online CPUs, on which runs are counted.
    pub(crate) fn cpus_online(&self) -> Option<u32> {
        self.session.as_ref().map(|session| session.cpus_online).filter(|cpus| *cpus > 0)
    }

    /// Returns true if run statistics were recorded at a time.
    pub(crate) fn has_run_stats_at(&self, time_ns: u64) -> bool {
        self.stats_off.as_ref().is_none_or(|off| time_ns < off.time_ns)
    }

    /// Returns the reasons why counters are missing or limited, if any.
    pub(crate) fn counters_note(&self) -> Option<String> {
        counters_note(self.session.as_ref(), self.stats_off.as_ref())
    }
}

/// Returns the reasons why counters are missing or limited: the session's note, and the end of run statistics.
pub(crate) fn counters_note(session: Option<&state::Session>, off: Option<&state::StatsOff>) -> Option<String> {
    let said = session.map(|session| session.counters_note.clone()).filter(|note| !note.is_empty());
    let start_ns = session.map_or(0, |session| session.start_ns);
    let off = off.map(|off| match off.time_ns.checked_sub(start_ns).filter(|after_ns| *after_ns > 0) {
        None => format!("no run statistics: {}", off.reason),
        Some(after_ns) => format!("run statistics cover only the first {:.3} s: {}", after_ns as f64 / 1e9, off.reason),
    });
    let notes: Vec<String> = said.into_iter().chain(off).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// Losses of a recording, as three kinds of records report them.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Number of lost records of any event (LOST).
    pub(crate) records: u64,
    /// Number of lost samples by event (LOST_SAMPLES).
    pub(crate) samples: BTreeMap<usize, u64>,
    /// Number of lost samples in LOST_SAMPLES records that do not say which of several events lost them.
    pub(crate) samples_of_any: u64,
    /// Number of samples dropped by a BPF filter, by event.
    pub(crate) filtered: BTreeMap<usize, u64>,
    /// Number of THROTTLE records by event.
    pub(crate) throttled: BTreeMap<usize, u64>,
}

impl Lost {
    /// Returns the upper limit on the losses of an event with unknown losses: the lost records of any event and, if some lost samples are of unknown
    /// events, all lost samples.
    pub(crate) fn of_any_event(&self) -> u64 {
        let named = if self.samples_of_any > 0 { self.samples.values().copied().collect() } else { Vec::new() };
        let all = [self.records, self.samples_of_any].into_iter().chain(named);
        all.fold(0, u64::saturating_add)
    }
}

/// Hardware traces (AUX area data), which the report does not decode.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    info: Option<AuxtraceInfo>,
    pub(crate) bytes: u64,
}

impl Traces {
    pub(crate) fn take(&mut self, payload: &Payload<'_>) {
        match payload {
            Payload::User(UserPayload::AuxtraceInfo(info)) => {
                self.info.get_or_insert_with(|| info.clone());
            }
            Payload::User(UserPayload::Auxtrace(trace)) => self.bytes = self.bytes.saturating_add(trace.size_bytes),
            _ => {}
        }
    }

    /// Hardware that made the traces, if the recording says so.
    pub(crate) fn kind(&self) -> Option<String> {
        let info = self.info.as_ref()?;
        Some(info.kind_name().map_or_else(|| format!("type {}", info.kind), str::to_owned))
    }
}

/// Offset of `CLOCK_BOOTTIME`, the clock of programs' load times, from the recording's clock. A suspend increases it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BootTimes {
    /// Offsets, each with the time on the recording's clock from which it holds, ns, ascending. The first also holds for all times before.
    offsets: Vec<(u64, i64)>,
}

impl BootTimes {
    /// Adds the offset at the start of a file.
    pub(crate) fn begin(&mut self, session: &state::Session) {
        let state::Session { start_ns, to_boottime_ns, .. } = *session;
        match self.offsets.is_empty() {
            true => self.offsets.push((0, to_boottime_ns)),
            false => self.changed(&BootClock { time_ns: start_ns, to_boottime_ns }),
        }
    }

    /// Adds a changed offset.
    pub(crate) fn changed(&mut self, to: &BootClock) {
        let at = self.offsets.partition_point(|(from_ns, _)| *from_ns <= to.time_ns);
        self.offsets.insert(at, (to.time_ns, to.to_boottime_ns));
    }

    /// Converts a time since boot to the recording's clock, ns; `None` if no offset is known. A time before the recording's clock began is 0.
    ///
    /// The recorder notices a new offset shortly after the suspend. If the old offset gives a result after this time, the new offset is used,
    /// also for a time between the suspend and the notice.
    pub(crate) fn to_recording(&self, boottime_ns: u64) -> Option<u64> {
        let (_, first) = self.offsets.first()?;
        let mut time_ns = boottime_ns.saturating_sub_signed(*first);
        for (from_ns, offset) in &self.offsets[1..] {
            if time_ns > *from_ns {
                time_ns = boottime_ns.saturating_sub_signed(*offset);
            }
        }
        Some(time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::programs::{ProgInfoSummary, ProgramFunction};

    /// Name and holder together show that a program belongs to the recorder.
    #[test]
    fn programs_of_a_recorder_have_its_names_and_no_other_holder() {
        const RECORDER: u32 = 3;
        let is_of_recorder = |recorder: Option<u32>, name: &str, holders: &[u32]| {
            let session = state::Session { recorder_pid: recorder, ..state::Session::default() };
            let mut states = States { session: Some(session), ..States::default() };
            let owners = holders.iter().map(|pid| state::Owner { pid: *pid, ..state::Owner::default() }).collect();
            states.program(state::Program { id: 7, load_time_ns: 5, owners, ..state::Program::default() });
            let info = ProgInfoSummary { load_time_ns: 5, ..ProgInfoSummary::default() };
            states.is_of_recorder(&IndexedProgram {
                id: Some(7),
                info: Some(info),
                functions: vec![ProgramFunction { name: name.to_owned(), addr: None }],
                ..IndexedProgram::default()
            })
        };
        assert!(is_of_recorder(Some(RECORDER), "bprec_refs", &[RECORDER]));
        assert!(is_of_recorder(Some(RECORDER), "bprec_refs", &[]), "that of another recorder");
        assert!(is_of_recorder(None, "bprec_sampler", &[RECORDER]), "an older recording");
        assert!(!is_of_recorder(Some(RECORDER), "bprec_refs", &[12]));
        assert!(!is_of_recorder(Some(RECORDER), "bprec_filter", &[]));
        assert!(!is_of_recorder(Some(RECORDER), "count_samples", &[RECORDER]), "a program of --bpf-object");
        let mut counting = IndexedProgram { loader: Some((RECORDER, RECORDER)), ..IndexedProgram::default() };
        let session = state::Session { recorder_pid: Some(RECORDER), ..state::Session::default() };
        let states = States { session: Some(session), ..States::default() };
        assert!(states.is_of_recorder(&counting));
        counting.loader = Some((12, 12));
        assert!(!states.is_of_recorder(&counting));
    }

    /// Two suspends: 60 s at second 100 of the recording's clock, noticed 0.2 s later, and 5 s at second 200.
    #[test]
    fn a_suspend_moves_only_what_comes_after_it() {
        const S: u64 = 1_000_000_000;
        let mut times = BootTimes::default();
        assert_eq!(times.to_recording(7), None);
        times.begin(&state::Session { to_boottime_ns: 10 * S.cast_signed(), ..state::Session::default() });
        times.changed(&BootClock { time_ns: 200 * S, to_boottime_ns: 75 * S.cast_signed() });
        times.changed(&BootClock { time_ns: 100 * S + S / 5, to_boottime_ns: 70 * S.cast_signed() });
        // Boot time is recording time + 10 s, after the first suspend + 70 s, after the second + 75 s.
        for (boottime_ns, time_ns) in [
            (5 * S, 0),
            (60 * S, 50 * S),
            (110 * S, 100 * S),
            (170 * S + S / 10, 100 * S + S / 10),
            (171 * S, 101 * S),
            (270 * S, 200 * S),
            (276 * S, 201 * S),
        ] {
            assert_eq!(times.to_recording(boottime_ns), Some(time_ns), "{boottime_ns}");
        }
    }
}
