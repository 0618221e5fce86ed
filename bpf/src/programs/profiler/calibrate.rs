//! What a pair costs, and what it adds to what it measures: found on a program that does nothing.
//!
//! With the kernel's run statistics on, both are other numbers, by a third and more: they are found for both.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::ObjectBuilder;

use super::{Profiler, per_cpu::Counted};
use crate::error::{Error, Object, Result};
use crate::inspect::BtfCache;
use crate::inspect::Program;
use crate::programs::quiet::quietly;
use crate::sys::{self, load};

const OBJECT: &[u8] = include_bytes!("calibrate.bpf.o");
/// The program that does nothing.
pub(super) const PROGRAM: &str = "bprec_gauge";

/// Runs at a time; the kernel gives their mean, rounded to 1 ns.
const RUNS: u32 = 250;
/// How many times, each way by turns. The lower quartile counts: what else the machine does only ever adds.
const BATCHES: usize = 41;
/// How often it is tried again when run statistics are switched on or off meanwhile.
const TRIES: usize = 5;
/// `struct bpf_prog_info` up to and with `run_cnt`.
const STATS_END: usize = 208;
/// No run is measured by chance.
const NEVER: u64 = 1 << 30;

/// The program that does nothing, loaded.
#[derive(Debug)]
pub(super) struct Gauge {
    program: OwnedFd,
    /// The same, which no pair is ever put around.
    bare: OwnedFd,
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
    /// Time of the runs without a pair.
    pub bare_ns: u64,
    /// What measured runs took longer than runs without a pair.
    pub measured_ns: u64,
    /// What skipped runs took longer than runs without a pair.
    pub skipped_ns: u64,
    /// The kernel's run statistics were on, which read a clock before and after each of these programs, and those of the pair too.
    pub with_stats: bool,
}

impl Gauge {
    pub(super) fn load() -> Result<Gauge> {
        let program = || {
            let refused = |(source, log)| Error::Load { program: PROGRAM, source, log };
            let object = quietly(|| ObjectBuilder::default().open_memory(OBJECT)?.load()).map_err(refused)?;
            let program = object.progs().find(|program| program.name() == PROGRAM);
            let program = program.and_then(|program| program.as_fd().try_clone_to_owned().ok());
            program.ok_or_else(|| unfit("it is not there".to_owned()))
        };
        Ok(Gauge { program: program()?, bare: program()? })
    }

    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// The runs that run statistics have counted of the program without a pair.
    fn counted_runs(&self) -> Result<u64> {
        let (info, _) = sys::prog_block::<STATS_END>(self.bare.as_fd(), 0)?;
        Ok(sys::get_u64(&info, 200))
    }
}

/// Runs a program; the mean time of a run.
fn run(program: BorrowedFd<'_>, runs: u32) -> Result<u64> {
    load::run_socket_filter(program, runs).map(u64::from).map_err(|errno| Error::Syscall {
        call: "bpf(BPF_PROG_TEST_RUN)",
        object: Object::Named(PROGRAM),
        errno,
        remedy: None,
    })
}

impl Profiler {
    /// Finds out what a pair adds, with run statistics as they are. Takes some milliseconds, and runs nothing but programs of our own.
    ///
    /// # Errors
    /// When these cannot be run.
    pub fn gauge(&self) -> Result<Gauged> {
        for _ in 0..TRIES {
            let counted = self.gauge.counted_runs()?;
            let gauged = self.gauge_once()?;
            match self.gauge.counted_runs()? - counted {
                0 => return Ok(gauged),
                runs if runs == BATCHES as u64 * u64::from(RUNS) => return Ok(Gauged { with_stats: true, ..gauged }),
                _ => (),
            }
        }
        Err(unfit("run statistics were switched on and off meanwhile".to_owned()))
    }

    /// Whether run statistics are on, whoever switched them on.
    ///
    /// # Errors
    /// When a program of our own cannot be run.
    pub fn stats_are_on(&self) -> Result<bool> {
        let counted = self.gauge.counted_runs()?;
        run(self.gauge.bare.as_fd(), 1)?;
        Ok(self.gauge.counted_runs()? > counted)
    }

    fn gauge_once(&self) -> Result<Gauged> {
        let pair = self.attach(self.gauge.program(), 0, self.gauge.function_type_id()?, 1)?;
        let (mut bare, mut skipped) = (Vec::new(), Vec::new());
        let (mut times, mut spent, mut values) = (Vec::new(), Vec::new(), vec![Vec::new(); self.events]);
        for _ in 0..BATCHES {
            bare.push(run(self.gauge.bare.as_fd(), RUNS)?);
            pair.set_every(1);
            let before = pair.read();
            spent.push(run(self.gauge.program(), RUNS)?);
            let now = pair.read();
            if now.measured - before.measured == u64::from(RUNS) {
                times.push(now.time_ns - before.time_ns);
                for (event, values) in values.iter_mut().enumerate() {
                    values.extend(scaled(&before, &now, event));
                }
            }
            pair.set_every(NEVER);
            // The first is measured, and draws how many are not.
            run(self.gauge.program(), 1)?;
            skipped.push(run(self.gauge.program(), RUNS)?);
        }
        if times.is_empty() {
            let all = pair.read();
            return Err(unfit(format!("of {} runs {} were measured", all.runs, all.measured)));
        }
        let bare_ns = usual(bare);
        let added = |with_ns: u64| with_ns.saturating_sub(bare_ns) * u64::from(RUNS);
        Ok(Gauged {
            runs: u64::from(RUNS),
            inside_ns: usual(times),
            inside: values.into_iter().map(usual).collect(),
            bare_ns: bare_ns * u64::from(RUNS),
            measured_ns: added(usual(spent)),
            skipped_ns: added(usual(skipped)),
            with_stats: false,
        })
    }
}

impl Gauge {
    /// The type of its function.
    fn function_type_id(&self) -> Result<u32> {
        let id = sys::FdInfo::of_own(self.program())?.prog_id.unwrap_or(0);
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

/// The lower quartile; zero of none.
fn usual(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 4).copied().unwrap_or(0)
}

fn unfit(problem: String) -> Error {
    Error::Answer { call: "our program", object: Object::Named(PROGRAM), problem }
}
