//! Time added to each run of a program: one copy of an empty program for each way of counting, all attached
//! at once and run in turns, so that other load on the machine affects all of them.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bprec_bpf::{BtfCache, Probe, Profiler, Program, Source};
use bprec_fixtures::{Fixture, Loaded, online_cpus, open_software_counter};

use crate::Result;

const TARGET: &str = "do_nothing";
/// Runs per measurement; the kernel returns their mean time.
const RUNS: u32 = 2000;
const ROUNDS: usize = 101;
/// Interval of measurement (one in this many runs) with which practically no run is measured.
pub(crate) const NEVER: u64 = 1 << 30;
const NOTHING: &str = "nothing";
const EMPTY: &str = "empty fentry";

/// Software event, which every machine has.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    /// `PERF_COUNT_SW_*`
    config: u64,
    name: &'static str,
    /// Metric of `bpftool prog profile` under which the benchmark's bpftool counts this event. That bpftool is patched to open software events, as a
    /// guest has no hardware events.
    metric: Option<&'static str>,
    source: Source,
}

const fn event(config: u64, name: &'static str, metric: Option<&'static str>, source: Source) -> Event {
    Event { config, name, metric, source }
}

/// Two clock events, and two events that count occurrences.
pub(crate) const MIXED: [Event; 4] = [
    event(0, "cpu-clock", Some("cycles"), Source::Clock),
    event(1, "task-clock", Some("instructions"), Source::Clock),
    event(2, "page-faults", Some("l1d_loads"), Source::Always),
    event(3, "context-switches", Some("llc_misses"), Source::Always),
];
/// Four events that count occurrences.
const NUMBERS: [Event; 4] = [
    MIXED[2],
    MIXED[3],
    event(4, "cpu-migrations", None, Source::Always),
    event(5, "minor-faults", None, Source::Always),
];
const SETS: [&[Event]; 4] = [&[MIXED[0]], &[NUMBERS[0]], &MIXED, &NUMBERS];

/// Limit on the time that a tool takes to attach.
const PATIENCE: Duration = Duration::from_secs(60);

/// A way of counting, with its own copy of the counted program.
struct Way {
    name: String,
    target: Loaded,
    /// Objects that must stay alive while this way of counting is measured.
    _held: Held,
    times: Vec<Duration>,
}

pub(crate) enum Held {
    Nothing,
    Fixture { _loaded: Box<Loaded> },
    Ours { pair: Probe, _profiler: Box<Profiler>, _events: Vec<OwnedFd> },
    Tool(Child),
}

impl Held {
    pub(crate) fn pair(&self) -> Option<&Probe> {
        match self {
            Held::Ours { pair, .. } => Some(pair),
            _ => None,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Held::Tool(child) = self {
            // Fails if the tool has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Measures and prints the table.
pub(crate) fn bench(perf: &Path, bpftool: &Path) -> Result<()> {
    let mut ways = vec![Way::new(NOTHING, |_| Ok(Held::Nothing))?];
    let kinds = kinds()?;
    let mut empty = vec![(EMPTY, Fixture::EMPTY), ("empty fentry and fexit", Fixture::EMPTY_PAIR)];
    if kinds.len() > 1 {
        empty.push(("empty fsession", Fixture::EMPTY_SESSION));
    }
    for (name, fixture) in empty {
        ways.push(Way::new(name, |target| {
            let loaded = fixture.open()?.on_program(target, TARGET)?.start()?;
            Ok(Held::Fixture { _loaded: Box::new(loaded) })
        })?);
    }
    for (kind, load) in kinds {
        let mut push = |what: &str, events: &[Event], every| -> Result<()> {
            let way = Way::new(&format!("{kind}{what}"), |target| ours_by(load, target, TARGET, events, every))?;
            ways.push(way);
            Ok(())
        };
        push(", skipped", SETS[0], NEVER)?;
        push(", no events", &[], 1)?;
        for events in SETS {
            push(&format!(": {}", names(events)), events, 1)?;
        }
        for events in [&NUMBERS[..1], &NUMBERS] {
            push(&format!(", read like a hardware group: {}", names(events)), &as_hardware(events), 1)?;
        }
    }
    for events in SETS {
        let way = Way::new(&format!("perf stat -b: {}", names(events)), |target| {
            let id = target.id_of(TARGET)?.to_string();
            tool(Command::new(perf).args(["stat", "-b", &id, "-e", &names(events)]), 2 * events.len())
        });
        ways.push(way?);
    }
    for events in SETS {
        let Some(metrics) = events.iter().map(|event| event.metric).collect::<Option<Vec<_>>>() else { continue };
        let way = Way::new(&format!("bpftool prog profile: {}", names(events)), |target| {
            let id = target.id_of(TARGET)?.to_string();
            tool(Command::new(bpftool).args(["prog", "profile", "id", &id]).args(&metrics), 2)
        });
        ways.push(way?);
    }
    measure(&mut ways)?;
    let added = |name: &str| {
        let found = ways.iter().find(|way| way.name == name);
        found.map(|way| way.usual_ns() - ways[0].usual_ns()).unwrap_or(f64::NAN)
    };
    println!(
        "| around a program that does nothing | ns per run | added | of an empty fentry | of perf's with the same events |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for way in &ways {
        let of_perf =
            way.name.split_once(": ").map(|(_, events)| added(&way.name) / added(&format!("perf stat -b: {events}")));
        println!(
            "| {} | {:.0} | {:.0} | {:.2} | {} |",
            way.name,
            way.usual_ns(),
            added(&way.name),
            added(&way.name) / added(EMPTY),
            of_perf.filter(|ratio| ratio.is_finite()).map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        );
    }
    println!();
    yardsticks()
}

/// Measures work that does not depend on trampolines, to compare machines.
pub(crate) fn yardsticks() -> Result<()> {
    let target = Fixture::IDLE.open()?.load()?;
    for (name, unit, units) in
        [("do_nothing", "run", 1.0), ("loop_200", "200 instructions", 1.0), ("read_the_clock_20", "call", 20.0)]
    {
        let mut times =
            (0..ROUNDS).map(|_| target.mean_time(name, RUNS)).collect::<std::result::Result<Vec<_>, _>>()?;
        times.sort_unstable();
        println!("yardstick {name}: {:.1} ns per {unit}", times[ROUNDS / 2].as_nanos() as f64 / units);
    }
    Ok(())
}

/// Runs all ways in turns, alternately forwards and backwards.
fn measure(ways: &mut [Way]) -> Result<()> {
    for way in &mut *ways {
        way.target.run(TARGET, RUNS)?;
    }
    for round in 0..ROUNDS {
        let mut order: Vec<&mut Way> = ways.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for way in order {
            way.times.push(way.target.mean_time(TARGET, RUNS)?);
        }
    }
    Ok(())
}

impl Way {
    fn new(name: &str, hold: impl FnOnce(&Loaded) -> Result<Held>) -> Result<Way> {
        let target = Fixture::IDLE.open()?.load()?;
        let held = hold(&target).map_err(|error| format!("{name}: {error}"))?;
        Ok(Way { name: name.to_owned(), target, _held: held, times: Vec::new() })
    }

    /// Lower quartile of the times, because other load on the machine only adds time.
    fn usual_ns(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[times.len() / 4].as_nanos() as f64
    }
}

fn names(events: &[Event]) -> String {
    events.iter().map(|event| event.name).collect::<Vec<_>>().join(",")
}

/// Returns the same events as one group, to be read like hardware events: the first with its times ([`Source::Leading`]), the others without.
fn as_hardware(events: &[Event]) -> Vec<Event> {
    let source = |index| if index == 0 { Source::Leading } else { Source::Following };
    events.iter().enumerate().map(|(index, event)| Event { source: source(index), ..*event }).collect()
}

/// Function that loads bprec's programs: `Profiler::load` (a session if the kernel has sessions, else a pair) or `Profiler::load_pair`.
pub(crate) type Load = fn(&[Source], u32, u32) -> bprec_bpf::Result<Profiler>;

/// Returns the kinds of programs that this kernel supports.
pub(crate) fn kinds() -> Result<Vec<(&'static str, Load)>> {
    let pair: (&str, Load) = ("bprec pair", Profiler::load_pair);
    let has_sessions = Profiler::load(&[], 0, possible_cpus()?)?.has_sessions();
    Ok(if has_sessions { vec![("bprec session", Profiler::load), pair] } else { vec![pair] })
}

/// Attaches bprec's programs in their default form, with these events, and measures one run in `every`.
pub(crate) fn ours(target: &Loaded, program: &str, events: &[Event], every: u64) -> Result<Held> {
    ours_by(Profiler::load, target, program, events, every)
}

fn ours_by(load: Load, target: &Loaded, program: &str, events: &[Event], every: u64) -> Result<Held> {
    let sources: Vec<Source> = events.iter().map(|event| event.source).collect();
    let profiler = load(&sources, 0, possible_cpus()?)?;
    let mut open = Vec::new();
    for (index, event) in events.iter().enumerate() {
        for cpu in online_cpus()? {
            let fd = open_software_counter(cpu, event.config)?;
            profiler.set_event(index, cpu as u32, fd.as_fd())?;
            open.push(fd);
        }
    }
    let traced = Program::take(target.id_of(program)?)?;
    let snapshot = traced.fetch(&BtfCache::new())?;
    let function = snapshot.info.view().functions().next().and_then(|function| function.type_id);
    let pair = profiler.attach(traced.as_fd(), traced.id(), function.ok_or("no function")?, every)?;
    if every == NEVER {
        // The first run is measured, and sets the number of runs until the next measured run.
        target.run(program, 1)?;
    }
    Ok(Held::Ours { pair, _profiler: Box::new(profiler), _events: open })
}

/// Starts another tool and waits until it has `links` tracing links.
fn tool(command: &mut Command, links: usize) -> Result<Held> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).stdin(Stdio::null()).spawn()?;
    let mut held = Held::Tool(child);
    let start = Instant::now();
    while let Held::Tool(child) = &mut held {
        if let Some(status) = child.try_wait()? {
            return Err(format!("{command:?} ended with {status}").into());
        }
        if tracing_links(child.id()) >= links {
            break;
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{command:?} has not attached {links} programs").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(held)
}

/// Returns the count of tracing links among a process's descriptors.
fn tracing_links(pid: u32) -> usize {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return 0 };
    let is_link = |text: &String| text.lines().any(|line| line.starts_with("link_type:") && line.ends_with("tracing"));
    entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()).filter(is_link).count()
}

/// Returns the highest number of a possible CPU, plus one.
pub(crate) fn possible_cpus() -> Result<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    Ok(text.trim().rsplit([',', '-']).next().unwrap_or_default().parse::<u32>()? + 1)
}
