//! What a pair costs, and what it adds to what it measures: found on a program that does nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::ObjectBuilder;

use super::{Profiler, account::Counted};
use crate::btf::BtfCache;
use crate::error::{Error, Object, Result};
use crate::prog::Program;
use crate::quiet::quietly;
use crate::sys::load;

const OBJECT: &[u8] = include_bytes!("../bpf/gauge.bpf.o");
/// The program that does nothing.
pub(super) const PROGRAM: &str = "bprec_gauge";

/// Runs at a time; the kernel gives their mean, rounded to 1 ns.
const RUNS: u32 = 250;
/// How many times; the one in the middle counts, so that some may be interrupted.
const BATCHES: usize = 31;
/// No run is measured by chance.
const NEVER: u64 = 1 << 30;

/// The program that does nothing, loaded.
#[derive(Debug)]
pub(super) struct Gauge {
    program: OwnedFd,
}

/// What a pair adds, as totals over so many runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gauged {
    /// Runs that the totals are over.
    pub runs: u64,
    /// Time that the pair saw of itself.
    pub inside_ns: u64,
    /// What the events came to in it, scaled if they took turns on the hardware.
    pub inside: Vec<u64>,
    /// What measured runs took longer than runs without a pair.
    pub measured_ns: u64,
    /// What skipped runs took longer than runs without a pair.
    pub skipped_ns: u64,
}

impl Gauge {
    pub(super) fn load() -> Result<Gauge> {
        let refused = |(source, log)| Error::Load { program: PROGRAM, source, log };
        let object = quietly(|| ObjectBuilder::default().open_memory(OBJECT)?.load()).map_err(refused)?;
        let program = object.progs().find(|program| program.name() == PROGRAM);
        let program = program.and_then(|program| program.as_fd().try_clone_to_owned().ok());
        program.map(|program| Gauge { program }).ok_or_else(|| unfit("it is not there".to_owned()))
    }

    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Runs it; the mean time of a run.
    fn run(&self) -> Result<u64> {
        load::run_socket_filter(self.program(), RUNS).map(u64::from).map_err(|errno| Error::Syscall {
            call: "bpf(BPF_PROG_TEST_RUN)",
            object: Object::Named(PROGRAM),
            errno,
            remedy: None,
        })
    }

    /// The mean time of a run, in the middle of many batches.
    fn usual_run(&self) -> Result<u64> {
        Ok(middle((0..BATCHES).map(|_| self.run()).collect::<Result<_>>()?))
    }
}

impl Profiler {
    /// Finds out what a pair adds. Takes some milliseconds, and runs nothing but a program of our own.
    ///
    /// # Errors
    /// When that cannot be run.
    pub fn gauge(&self) -> Result<Gauged> {
        let bare_ns = self.gauge.usual_run()?;
        let pair = self.attach(self.gauge.program(), 0, self.gauge.function_type_id()?, 1)?;
        let (mut times, mut spent, mut values) = (Vec::new(), Vec::new(), vec![Vec::new(); self.events]);
        let mut before = pair.read();
        for _ in 0..BATCHES {
            spent.push(self.gauge.run()?);
            let now = pair.read();
            if now.measured - before.measured == u64::from(RUNS) {
                times.push(now.time_ns - before.time_ns);
                for (event, values) in values.iter_mut().enumerate() {
                    values.extend(scaled(&before, &now, event));
                }
            }
            before = now;
        }
        if times.is_empty() {
            return Err(unfit(format!("of {} runs {} were measured", before.runs, before.measured)));
        }
        pair.set_every(NEVER);
        self.gauge.run()?;
        let skipped_ns = self.gauge.usual_run()?;
        let added = |with_ns: u64| with_ns.saturating_sub(bare_ns) * u64::from(RUNS);
        Ok(Gauged {
            runs: u64::from(RUNS),
            inside_ns: middle(times),
            inside: values.into_iter().map(middle).collect(),
            measured_ns: added(middle(spent)),
            skipped_ns: added(skipped_ns),
        })
    }
}

impl Gauge {
    /// The type of its function.
    fn function_type_id(&self) -> Result<u32> {
        let id = crate::fdinfo::FdInfo::of_own(self.program())?.prog_id.unwrap_or(0);
        let snapshot = Program::take(id)?.fetch(&BtfCache::new())?;
        let function = snapshot.info.view().functions().next().and_then(|function| function.type_id);
        function.ok_or_else(|| unfit("the kernel does not tell its function".to_owned()))
    }
}

/// What an event came to between two readings; nothing when it was not on the hardware.
fn scaled(before: &Counted, now: &Counted, event: usize) -> Option<u64> {
    let (before, now) = (before.readings.get(event)?, now.readings.get(event)?);
    let [value, enabled_ns, running_ns] = [0, 1, 2].map(|part| u128::from(now[part] - before[part]));
    if enabled_ns == running_ns {
        return u64::try_from(value).ok();
    }
    u64::try_from((value * enabled_ns).checked_div(running_ns)?).ok()
}

/// The one in the middle; zero of none.
fn middle(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

fn unfit(problem: String) -> Error {
    Error::Answer { call: "our program", object: Object::Named(PROGRAM), problem }
}
