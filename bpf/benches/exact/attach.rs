//! Time to attach bprec's programs to a hundred other programs, and to detach them.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use bprec_bpf::{BtfCache, Probe, Profiler, Program, Source};
use bprec_fixtures::{Fixture, Loaded};

use crate::Result;
use crate::cost::{kinds, possible_cpus};

const PROGRAMS: [&str; 5] =
    ["loop_of_100", "loop_of_1000", "loop_of_10000", "call_a_subprogram", "rarely_a_hundred_times_longer"];
const COPIES: usize = 20;

/// Measures and prints the table.
pub(crate) fn bench() -> Result<()> {
    let loaded = (0..COPIES).map(|_| Fixture::COUNTED.open()?.load()).collect::<std::result::Result<Vec<_>, _>>()?;
    let mut targets = Vec::new();
    for loaded in &loaded {
        for name in PROGRAMS {
            targets.push(target(loaded, name)?);
        }
    }
    println!("| {} programs, at once | attached in | detached in |", targets.len());
    println!("| --- | --- | --- |");
    for ((kind, load), threads) in kinds()?.into_iter().flat_map(|kind| [(kind, 1), (kind, 4)]) {
        let profiler = load(&[Source::Leading, Source::Following], 0b11, possible_cpus()?)?;
        let (mut attached, mut detached) = (Duration::MAX, Duration::MAX);
        for _ in 0..3 {
            let start = Instant::now();
            let mut pairs = attach(&profiler, &targets, threads)?;
            attached = attached.min(start.elapsed());
            let start = Instant::now();
            let part = pairs.len().div_ceil(threads);
            thread::scope(|scope| {
                for pairs in pairs.chunks_mut(part) {
                    scope.spawn(|| pairs.iter_mut().for_each(Probe::detach));
                }
            });
            detached = detached.min(start.elapsed());
        }
        println!("| {kind}, by {threads} threads | {attached:.2?} | {detached:.2?} |");
    }
    Ok(())
}

/// Returns a program, and the BTF id of its entry function's type.
pub(crate) fn target(loaded: &Loaded, name: &str) -> Result<(Program, u32)> {
    let program = Program::take(loaded.id_of(name)?)?;
    let snapshot = program.fetch(&BtfCache::new())?;
    let type_id = snapshot.info.view().functions().next().and_then(|function| function.type_id);
    Ok((program, type_id.ok_or("no function")?))
}

fn attach(profiler: &Profiler, targets: &[(Program, u32)], threads: usize) -> Result<Vec<Probe>> {
    let attach = |(program, type_id): &(Program, u32)| profiler.attach(program.as_fd(), program.id(), *type_id, 1);
    let parts: Vec<bprec_bpf::Result<Vec<Probe>>> = thread::scope(|scope| {
        let start = |part: &'_ [(Program, u32)]| part.iter().map(attach).collect::<bprec_bpf::Result<Vec<Probe>>>();
        let started: Vec<_> =
            targets.chunks(targets.len().div_ceil(threads)).map(|part| scope.spawn(move || start(part))).collect();
        started.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let pairs: Vec<Vec<Probe>> = parts.into_iter().collect::<bprec_bpf::Result<_>>()?;
    Ok(pairs.into_iter().flatten().collect())
}
