//! What is added to each run of a program: one copy of a program that does nothing for each way of counting, all attached at once, run by
//! turns. Whatever happens to the machine meanwhile happens to all of them.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bprec_bpf::{BtfCache, Pair, Profiler, Program};
use bprec_fixtures::{Fixture, Loaded, online_cpus, open_software_counter};

use crate::Result;

const TARGET: &str = "do_nothing";
/// Runs at a time, of which the kernel gives the mean.
const RUNS: u32 = 4000;
const ROUNDS: usize = 41;
/// No run is measured by chance.
const NEVER: u64 = 1 << 30;
/// `PERF_COUNT_SW_*` and their names: clocks are read by reading a clock, the others are numbers in memory.
const EVENTS: [(u64, &str); 4] = [(0, "cpu-clock"), (1, "task-clock"), (2, "page-faults"), (3, "context-switches")];
/// What bpftool calls its first four; a bpftool without a PMU has to be built with software events in their place.
const METRICS: [&str; 4] = ["cycles", "instructions", "l1d_loads", "llc_misses"];
/// How long a tool may take to attach.
const PATIENCE: Duration = Duration::from_secs(60);

/// A way of counting, on a program of its own.
struct Way {
    name: String,
    target: Loaded,
    /// What has to stay so that it goes on counting.
    _held: Held,
    times: Vec<Duration>,
}

enum Held {
    Nothing,
    Fixture { _loaded: Box<Loaded> },
    Ours { _pair: Pair, _profiler: Profiler, _events: Vec<OwnedFd> },
    Tool(Child),
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Held::Tool(child) = self {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The table.
pub(crate) fn bench(perf: &Path, bpftool: &Path) -> Result<()> {
    let mut ways = vec![Way::new("nothing", |_| Ok(Held::Nothing))?];
    for (name, fixture) in [("empty fentry", Fixture::EMPTY), ("empty fentry and fexit", Fixture::EMPTY_PAIR)] {
        ways.push(Way::new(name, |target| {
            let loaded = fixture.open()?.on_program(target, TARGET)?.start()?;
            Ok(Held::Fixture { _loaded: Box::new(loaded) })
        })?);
    }
    ways.push(Way::new("bprec, skipped", |target| ours(target, 1, NEVER))?);
    for events in [0, 1, 4] {
        ways.push(Way::new(&format!("bprec, {events} events"), |target| ours(target, events, 1))?);
    }
    for events in [1, 4] {
        let list = EVENTS[..events].iter().map(|(_, name)| *name).collect::<Vec<_>>().join(",");
        let way = Way::new(&format!("perf stat -b, {events} events"), |target| {
            let id = target.id_of(TARGET)?.to_string();
            tool(Command::new(perf).args(["stat", "-b", &id, "-e", &list]), 2 * events)
        });
        ways.push(way?);
    }
    for events in [1, 4] {
        let way = Way::new(&format!("bpftool prog profile, {events} events"), |target| {
            let id = target.id_of(TARGET)?.to_string();
            tool(Command::new(bpftool).args(["prog", "profile", "id", &id]).args(&METRICS[..events]), 2)
        });
        ways.push(way?);
    }
    measure(&mut ways)?;
    let bare = ways[0].median_ns();
    let (one, four) = (ways[7].median_ns() - bare, ways[8].median_ns() - bare);
    let empty = ways[1].median_ns() - bare;
    println!("| around a program that does nothing | ns per run | added | of an empty fentry | of perf's, 1 event | of perf's, 4 events |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for way in &ways {
        let (median, added) = (way.median_ns(), way.median_ns() - bare);
        println!(
            "| {} | {median:.0} | {added:.0} | {:.2} | {:.2} | {:.2} |",
            way.name,
            added / empty,
            added / one,
            added / four
        );
    }
    println!();
    yardsticks()
}

/// What takes as long with trampolines as without, to compare machines by.
pub(crate) fn yardsticks() -> Result<()> {
    let target = Fixture::IDLE.open()?.load()?;
    for (name, unit, units) in [("do_nothing", "run", 1.0), ("loop_200", "200 instructions", 1.0), ("read_the_clock_20", "call", 20.0)] {
        let mut times = (0..ROUNDS).map(|_| target.run(name, RUNS)).collect::<std::result::Result<Vec<_>, _>>()?;
        times.sort_unstable();
        println!("yardstick {name}: {:.1} ns per {unit}", times[ROUNDS / 2].as_nanos() as f64 / units);
    }
    Ok(())
}

/// Runs all by turns, forwards and backwards.
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
            way.times.push(way.target.run(TARGET, RUNS)?);
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

    fn median_ns(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[times.len() / 2].as_nanos() as f64
    }
}

/// Our pair, with so many events, measuring one in `every` runs.
fn ours(target: &Loaded, events: usize, every: u64) -> Result<Held> {
    let profiler = Profiler::load(events, 0, possible_cpus()?)?;
    let mut open = Vec::new();
    for (index, (config, _)) in EVENTS[..events].iter().enumerate() {
        for cpu in online_cpus()? {
            let fd = open_software_counter(cpu, *config)?;
            profiler.set_event(index, cpu as u32, fd.as_fd())?;
            open.push(fd);
        }
    }
    let program = Program::take(target.id_of(TARGET)?)?;
    let snapshot = program.fetch(&BtfCache::new())?;
    let function = snapshot.info.view().functions().next().and_then(|function| function.type_id);
    let pair = profiler.attach(program.as_fd(), program.id(), function.ok_or("no function")?, every)?;
    if every == NEVER {
        // The first run is measured and draws how many are not.
        target.run(TARGET, 1)?;
    }
    Ok(Held::Ours { _pair: pair, _profiler: profiler, _events: open })
}

/// Another tool, once it holds as many tracing links as it needs.
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

/// Links of tracing programs among a process' descriptors.
fn tracing_links(pid: u32) -> usize {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return 0 };
    let is_link = |text: &String| text.lines().any(|line| line.starts_with("link_type:") && line.ends_with("tracing"));
    entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()).filter(is_link).count()
}

/// One more than the highest number of a CPU that may ever be there.
fn possible_cpus() -> Result<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    Ok(text.trim().rsplit([',', '-']).next().unwrap_or_default().parse::<u32>()? + 1)
}
