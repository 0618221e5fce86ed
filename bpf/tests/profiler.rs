//! The program profiler, compared with programs that count their own runs. Needs trampolines (fentry, fexit), which not every machine allows.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::os::fd::{AsFd, OwnedFd};

use bprec_bpf::{Probe, ProbeCounts, Profiler, Program, Source};
use bprec_fixtures::{Fixture, Loaded, online_cpus, open_software_counter};
use common::{attach, profiler, profiler_of, profilers};

fn in_histogram(counted: &ProbeCounts) -> u64 {
    counted.buckets.iter().map(|(_, runs)| runs).sum()
}

#[test]
fn every_run_is_counted_once() {
    profilers("every_run_is_counted_once").iter().for_each(count_every_run);
}

fn count_every_run(profiler: &Profiler) {
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    let names = ["loop_of_100", "loop_of_1000", "loop_of_10000"];
    let mut pairs: Vec<Probe> = names.iter().map(|name| attach(profiler, &loaded, name, 0)).collect();
    let mut elapsed_ns = Vec::new();
    for (name, pair) in names.iter().zip(&pairs) {
        assert_eq!(pair.read().unwrap(), ProbeCounts::default());
        let start = std::time::Instant::now();
        for times in [1, 250, 3000] {
            loaded.run(name, times).unwrap();
        }
        elapsed_ns.push(start.elapsed().as_nanos());
    }
    let mut shortest = Vec::new();
    for ((name, pair), elapsed_ns) in names.iter().zip(&mut pairs).zip(elapsed_ns) {
        pair.detach();
        let counted = pair.read().unwrap();
        assert_eq!(counted.runs, loaded.entered(name).unwrap());
        assert_eq!((counted.runs, counted.measured), (3251, 3251), "{name}");
        assert_eq!((counted.discarded, counted.nesting_overflow, counted.open), (0, 0, 0), "{name}");
        assert_eq!(pair.misses(), Some(0));
        assert_eq!(in_histogram(&counted), counted.measured);
        assert!(u128::from(counted.time_ns) <= elapsed_ns, "{name}: {counted:?} in {elapsed_ns} ns");
        shortest.push(counted.buckets[0].0);
    }
    // Interruptions make runs longer, never shorter. The shortest runs therefore show that the third program does a hundred times the work of the
    // first.
    assert!(shortest[0] < shortest[2], "{shortest:?}");
    // Runs after the probe is gone are not counted.
    loaded.run(names[0], 100).unwrap();
    assert_eq!(pairs[0].read().unwrap().runs, 3251);
}

#[test]
fn a_subprogram_is_counted_by_itself() {
    let Some(profiler) = profiler("a_subprogram_is_counted_by_itself") else { return };
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    let mut pairs = [0, 1].map(|function| attach(&profiler, &loaded, "call_a_subprogram", function));
    loaded.run("call_a_subprogram", 1000).unwrap();
    pairs.iter_mut().for_each(Probe::detach);
    let [entry, subprogram] = pairs.map(|pair| pair.read().unwrap());
    assert_eq!((entry.runs, entry.measured), (1000, 1000));
    assert_eq!((subprogram.runs, subprogram.measured), (3000, 3000));
    assert!(subprogram.time_ns < entry.time_ns, "{subprogram:?} in {entry:?}");
}

#[test]
fn runs_inside_runs_are_counted_once_and_not_mixed() {
    let test = "runs_inside_runs_are_counted_once_and_not_mixed";
    const LOOPBACK: u32 = 1;
    let Some(profiler) = profiler(test) else { return };
    // This thread gets its own network namespace, so that its loopback interface sends no other packets.
    // SAFETY: changes only which network this thread sees.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        println!("SKIP {test}: {}", std::io::Error::last_os_error());
        return;
    }
    for depth in [2u64, 4, 6] {
        let opened = Fixture::COUNTED.open().unwrap().set("depth_max", depth as i64).unwrap();
        let mut loaded = opened.load().unwrap();
        if let Err(error) = loaded.attach_to_egress("run_inside_itself", LOOPBACK) {
            println!("SKIP {test}: {error:#}");
            return;
        }
        let mut pair = attach(&profiler, &loaded, "run_inside_itself", 0);
        let start = std::time::Instant::now();
        loaded.run("run_inside_itself", 500).unwrap();
        let elapsed_ns = start.elapsed().as_nanos() as u64;
        loaded.detach();
        pair.detach();
        let counted = pair.read().unwrap();
        let runs = loaded.entered("run_inside_itself").unwrap();
        assert_eq!((counted.runs, pair.misses()), (runs, Some(0)), "depth {depth}: {counted:?}");
        assert_eq!(
            loaded.ran("run_inside_itself").unwrap(),
            500,
            "depth {depth}: the runs are not nested as deeply as expected"
        );
        // At most four runs are measured at the same time; runs nested deeper are counted but not measured.
        assert_eq!(counted.measured, 500 * depth.min(4));
        assert_eq!(counted.nesting_overflow, 500 * depth.saturating_sub(4));
        assert_eq!((counted.discarded, counted.open), (0, 0));
        // An outer run includes the inner ones, so the sum is at most `depth` times the elapsed time.
        assert!(counted.time_ns <= depth * elapsed_ns);
        assert!(counted.buckets.len() > 1 || depth == 1, "{:?}", counted.buckets);
    }
}

#[test]
fn a_gate_measures_one_in_so_many() {
    let Some(profiler) = profiler("a_gate_measures_one_in_so_many") else { return };
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    let name = "rarely_a_hundred_times_longer";
    let pair = attach(&profiler, &loaded, name, 0);
    loaded.run(name, 20_000).unwrap();
    let every_run = pair.read().unwrap();
    assert_eq!((every_run.runs, every_run.measured), (20_000, 20_000));
    // One in a hundred runs is longer. The choice of the measured runs must not be in step with these long runs.
    pair.set_every(10);
    loaded.run(name, 60_000).unwrap();
    let gated = pair.read().unwrap();
    assert_eq!(gated.runs, 80_000);
    let measured = gated.measured - every_run.measured;
    // Between two measured runs, 0 to 18 runs are skipped, 9 on average. The standard deviation of the count is about 42 (5.5 ÷ 10 × √6,000).
    assert!(
        (6000 - 250..6000 + 250).contains(&measured),
        "{measured} of 60,000 runs were measured, expected one in ten"
    );
    let long_runs = |counted: &ProbeCounts, bucket: u16| -> u64 {
        counted.buckets.iter().filter(|(index, _)| *index >= bucket).map(|(_, runs)| runs).sum()
    };
    // Runs from nine buckets above the median on (about 1.5 times the time) are long runs, or short runs that were interrupted.
    let mut runs = 0;
    let median = every_run.buckets.iter().find(|(_, more)| {
        runs += more;
        runs >= 10_000
    });
    let bucket = median.unwrap().0 + 9;
    assert!(long_runs(&every_run, bucket) >= 200, "{:?}", every_run.buckets);
    let long = long_runs(&gated, bucket) - long_runs(&every_run, bucket);
    // 60 long runs are expected, with a margin for chance; a busy machine only increases the number.
    assert!(long >= 60 - 40, "{long} long runs among {measured} measured runs");
}

#[test]
fn what_is_read_while_it_moves_is_of_one_moment() {
    let Some(profiler) = profiler_of("what_is_read_while_it_moves_is_of_one_moment", &[Source::Clock], 0) else {
        return;
    };
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    let pair = attach(&profiler, &loaded, "loop_of_100", 0);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let (mut read, mut moved, mut last) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..200).for_each(|_| loaded.run("loop_of_100", 2000).unwrap());
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            // If the counts change during every attempt to read them, they are unknown. This is rare but correct.
            let Some(counted) = pair.read() else { continue };
            let in_buckets: u64 = counted.buckets.iter().map(|(_, runs)| runs).sum();
            assert_eq!(in_buckets, counted.measured, "{counted:?}");
            assert_eq!(counted.readings[0][0], counted.time_ns, "{counted:?}");
            assert!(counted.measured <= counted.runs && last <= counted.runs, "{counted:?} after {last} runs");
            moved += u64::from(counted.runs > last);
            (read, last) = (read + 1, counted.runs);
        }
    });
    assert!(read > 10 && moved > 0, "{read} readings, {moved} of them differ from the previous reading");
    assert_eq!(pair.read().unwrap().measured, 400_000);
}

/// Opens a cpu-clock event on every CPU for each of the given event numbers of the profiler.
fn clocks(profiler: &Profiler, events: &[usize]) -> Vec<OwnedFd> {
    const CPU_CLOCK: u64 = 0;
    let places = online_cpus().unwrap().into_iter().flat_map(|cpu| events.iter().map(move |event| (*event, cpu)));
    places
        .map(|(event, cpu)| {
            let fd = open_software_counter(cpu, CPU_CLOCK).unwrap();
            profiler.set_event(event, cpu as u32, fd.as_fd()).unwrap();
            fd
        })
        .collect()
}

#[test]
fn clocks_agree_in_whatever_way_they_are_read() {
    let test = "clocks_agree_in_whatever_way_they_are_read";
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    for first in [Source::Leading, Source::Always] {
        let second = if first == Source::Leading { Source::Following } else { Source::Leading };
        let Some(profiler) = profiler_of(test, &[first, second, Source::Clock], 0) else { return };
        let _open = clocks(&profiler, &[0, 1, 2]);
        let pair = attach(&profiler, &loaded, "loop_of_10000", 0);
        let start = std::time::Instant::now();
        loaded.run("loop_of_10000", 2000).unwrap();
        let elapsed_ns = start.elapsed().as_nanos() as u64;
        let counted = pair.read().unwrap();
        assert_eq!((counted.measured, counted.discarded), (2000, 0), "{first:?}");
        let [one, two, clock] = counted.readings[..] else { panic!("{counted:?}") };
        // A clock event counts the time of the run, and is always running.
        assert_eq!(clock, [counted.time_ns; 3]);
        assert_eq!((one[1], two[1]), (one[2], two[2]), "{counted:?}");
        // The first event is read within the interval of the second event.
        assert!(one[0] <= two[0] && two[0] <= elapsed_ns, "{counted:?} in {elapsed_ns} ns");
        if first == Source::Leading {
            assert_eq!((one[1], two[1]), (counted.time_ns, one[1]), "all events of a group have the same time");
        } else {
            assert_eq!(one[1], counted.time_ns);
            // The two times are from different kernel clocks; one of them is adjusted to wall time.
            let within = counted.time_ns as f64 <= 1.001 * one[0] as f64;
            assert!(within, "the run time is measured while all events count: {counted:?}");
        }
        assert!(
            two[0] as f64 <= 2.0 * counted.time_ns as f64,
            "most of the count is not from reading the events: {counted:?}"
        );
    }
}

#[test]
fn a_missing_event_spoils_a_run_unless_it_may_be_missing() {
    let test = "a_missing_event_spoils_a_run_unless_it_may_be_missing";
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    for source in [Source::Leading, Source::Always] {
        for partial in [0, 0b10] {
            let Some(profiler) = profiler_of(test, &[Source::Always, source], partial) else { return };
            let _open = clocks(&profiler, &[0]);
            let pair = attach(&profiler, &loaded, "loop_of_100", 0);
            loaded.run("loop_of_100", 500).unwrap();
            let counted = pair.read().unwrap();
            let (whole, spoilt) = if partial == 0 { (0, 500) } else { (500, 0) };
            assert_eq!((counted.measured, counted.discarded), (whole, spoilt), "{source:?}: {counted:?}");
            assert_eq!(counted.readings[1], [0; 3]);
            assert_eq!(counted.readings[0][0] > 0, partial != 0);
        }
    }
}

#[test]
fn an_empty_pair_is_gauged() {
    let Some(profiler) = profiler("an_empty_pair_is_gauged") else { return };
    let gauged = profiler.calibrate().unwrap();
    println!("{gauged:?}");
    assert!(gauged.runs > 0 && gauged.inside_ns > 0);
    assert!(gauged.inside.is_empty());
}

#[test]
fn nothing_stays() {
    let Some(profiler) = profiler("nothing_stays") else { return };
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    let pair = attach(&profiler, &loaded, "loop_of_100", 0);
    let id = loaded.id_of("loop_of_100").unwrap();
    if let Some(types) = attach_types(id) {
        assert_eq!(pair.references() as usize, types.len());
    }
    drop((pair, profiler, loaded));
    // The last reference is dropped after a grace period.
    let gone = (0..1500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        Program::take(id).is_err()
    });
    assert!(gone, "program {id} is still there");
}

/// Attach types of this process's links to a program; `None` if the kernel does not show the program of a link (Linux 6.1).
fn attach_types(target: u32) -> Option<Vec<u32>> {
    let mut types = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        // Other tests open and close descriptors meanwhile.
        let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
        let number = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse::<u32>().ok())
        };
        let is_tracing = text.lines().any(|line| line.starts_with("link_type") && line.ends_with("tracing"));
        match number("target_obj_id") {
            Some(id) if id == target => types.extend(number("attach_type")),
            None if is_tracing => return None,
            _ => (),
        }
    }
    types.sort_unstable();
    Some(types)
}

#[test]
fn one_session_is_around_a_function_where_there_are_sessions() {
    let test = "one_session_is_around_a_function_where_there_are_sessions";
    let Some(profiler) = profiler(test) else { return };
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    let id = loaded.id_of("loop_of_100").unwrap();
    let mut pair = attach(&profiler, &loaded, "loop_of_100", 0);
    let Some(types) = attach_types(id) else {
        println!("SKIP {test}: this kernel's links do not tell their targets");
        return;
    };
    // `BPF_TRACE_FENTRY`, `BPF_TRACE_FEXIT`, or `BPF_TRACE_FSESSION`.
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let name = b"\0BPF_TRACE_FSESSION\0";
    let kernel_has_them = btf.windows(name.len()).any(|window| window == name);
    match (kernel_has_them, cfg!(target_arch = "x86_64")) {
        (true, true) => assert_eq!(types, [58]),
        (false, _) => assert_eq!(types, [24, 25]),
        (true, false) => println!("SKIP {test}: this kernel has sessions, but not on this processor"),
    }
    pair.detach();
    assert_eq!(attach_types(id), Some(Vec::new()));
}

#[test]
fn a_hundred_programs_at_once() {
    let Some(profiler) = profiler("a_hundred_programs_at_once") else { return };
    let loaded: Vec<Loaded> = (0..20).map(|_| Fixture::COUNTED.open().unwrap().load().unwrap()).collect();
    let names = ["loop_of_100", "loop_of_1000", "loop_of_10000", "call_a_subprogram", "rarely_a_hundred_times_longer"];
    let start = std::time::Instant::now();
    let mut pairs: Vec<(Probe, &Loaded, &str)> =
        loaded.iter().flat_map(|loaded| names.map(|name| (attach(&profiler, loaded, name, 0), loaded, name))).collect();
    let attached = start.elapsed();
    for (_, loaded, name) in &pairs {
        loaded.run(name, 10).unwrap();
    }
    let start = std::time::Instant::now();
    for (pair, ..) in &mut pairs {
        pair.detach();
    }
    println!("100 programs: attached in {attached:?}, detached in {:?}", start.elapsed());
    assert_eq!(pairs.len(), 100);
    for (pair, loaded, name) in &pairs {
        assert_eq!(pair.read().unwrap().measured, 10, "{name}");
        assert_eq!(loaded.entered(name).unwrap(), 10, "{name}");
    }
}
