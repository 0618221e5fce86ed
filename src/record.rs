//! `bprec record`.

mod args;

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::bail;
use bprec_record::{
    Aggregate, Bounds, Budget, CounterTarget, Counters, Exact, Level, ObjectFile, Options, Output, Rate, Recovered,
    SamplerFields, SharedOptions, SwitchOutput, UserChains,
};

use crate::args::refuse_idle;
use crate::terminal::{is_quiet, is_verbose, notice};
use crate::{Outcome, say};
pub(crate) use args::{Args, BudgetArgs, COUNTERS, MeasureArgs, frequency, is_value};

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    let summary = bprec_record::record(&options(args)?)?;
    notice(&summary.to_string());
    Ok(summary.command.map_or(Outcome::Done, |status| Outcome::Command(exit_code(status))))
}

/// Exit code of a command, as in shells: its own, or 128 plus the number of the signal that killed it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Destination of the recording. Without -o: standard output if it is a pipe, as in perf, and otherwise perf.data.
fn output(asked: Option<&Path>) -> anyhow::Result<Output> {
    match asked {
        Some(path) if path.as_os_str() != "-" => Ok(Output::File(path.to_owned())),
        Some(_) if io::stdout().is_terminal() => {
            bail!("-o -: standard output is a terminal; redirect it, or give -o FILE")
        }
        Some(_) => Ok(Output::Stdout),
        None if is_pipe(&io::stdout()) => Ok(Output::Stdout),
        None => Ok(Output::File(PathBuf::from("perf.data"))),
    }
}

fn is_pipe(of: &impl AsFd) -> bool {
    let file = of.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|about| about.file_type().is_fifo())
}

fn refuse_idle_options(args: &Args, output: &Output) -> anyhow::Result<()> {
    let is_off = args.counters == Some(Counters::Off);
    let has_shared = args.measure.bpf_counters;
    let has_exact = matches!(args.counters, None | Some(Counters::Exact(_)));
    refuse_idle(&[
        (
            is_off && args.budget.budget.is_some(),
            "--budget limits the counting of runs, which --counters off switches off; omit one of them",
        ),
        (
            is_off && args.interval.is_some() && !args.aggregate && !has_shared,
            "--interval is the time between two snapshots of counters, which --counters off switches off; omit one of them",
        ),
        (
            !args.counter_event.is_empty() && !has_exact && !has_shared,
            "--counter-event needs --counters exact or --bpf-counters",
        ),
        (
            args.max_files.is_some() && args.switch_output.is_empty() && !args.overwrite,
            "--max-files needs --switch-output or --overwrite",
        ),
        (
            *output == Output::Stdout && args.sync.is_some(),
            "--sync needs a file: standard output cannot be synced; give -o FILE",
        ),
    ])
}

pub(crate) fn options(args: Args) -> anyhow::Result<Options> {
    let output = output(args.output.as_deref())?;
    refuse_idle_options(&args, &output)?;
    let (defaults, switch_output) = (Options::default(), switch_output(&args));
    let target = args.measure.target();
    let rate = args.freq.or(args.count.map(Rate::Period)).unwrap_or(Rate::Default);
    // Recordings with rotation or aggregation run for days, so their default limit is lower.
    let usually = if args.aggregate || !args.switch_output.is_empty() { Budget::LOW } else { Budget::Usual };
    let budget = args.budget.budget.unwrap_or(usually);
    let default = match args.counter_event.is_empty() || args.measure.bpf_counters {
        true => Counters::Stats,
        // Counting events in runs needs exact counters: run statistics count no events.
        false => Counters::Exact(Exact::default()),
    };
    let counters = match args.counters.unwrap_or(default) {
        Counters::Exact(exact) => Counters::Exact(Exact { events: args.counter_event.clone(), budget, ..exact }),
        other => other,
    };
    let shared = args.measure.bpf_counters.then(|| SharedOptions {
        events: args.counter_event,
        targets: args.counter_cgroup.into_iter().map(CounterTarget::Cgroup).collect(),
        attr_map: args.measure.bpf_attr_map,
    });
    Ok(Options {
        target,
        events: args.event,
        rate,
        bpf_sampler: args.bpf_sampler.as_deref().map(SamplerFields::parse).transpose()?,
        bpf_sampler_rate: args.bpf_sampler_freq,
        user_chains: args.call_graph.unwrap_or(if args.chains { UserChains::FramePointers } else { UserChains::None }),
        user_symbols: args.user_symbols == "on",
        objects: args.bpf_object.iter().map(|text| object_file(text)).collect(),
        ring: args.mmap_pages.unwrap_or(defaults.ring),
        overwrite: args.overwrite,
        output,
        switch_output,
        sync: args.sync.map_or(defaults.sync, |sync| sync.every),
        compression_level: args.compression_level,
        command: args.measure.command,
        duration: args.measure.duration,
        delay: args.delay,
        counters,
        budget,
        shared,
        interval: args.interval.unwrap_or(defaults.interval),
        dump_maps: args.dump_map,
        dump_bounds: Bounds { entries: args.dump_entries, bytes: args.dump_bytes },
        aggregate: args
            .aggregate
            .then(|| Aggregate { entries: args.aggregate_entries, user_addresses: args.aggregate_by == "ip" }),
        argv: std::env::args_os().collect(),
        notify,
        ..defaults
    })
}

/// Prints a message of the recorder on standard error. `--quiet` hides notices and progress. Progress also needs a
/// terminal. Details need `--verbose`.
pub(crate) fn notify(level: Level, message: &str) {
    let is_shown = match level {
        Level::Warning => true,
        Level::Notice => !is_quiet(),
        Level::Progress => !is_quiet() && io::stderr().is_terminal(),
        Level::Detail => is_verbose(),
    };
    if is_shown {
        say(&format!("bprec: {message}"));
    }
}

/// Parses `FILE.o` or `FILE.o:PROGRAM`. A colon is part of the file name if a file with this name exists.
fn object_file(text: &str) -> ObjectFile {
    match text.rsplit_once(':') {
        Some((path, program)) if !program.contains('/') && !Path::new(text).exists() => {
            ObjectFile { path: path.into(), program: Some(program.to_owned()) }
        }
        _ => ObjectFile { path: text.into(), program: None },
    }
}

/// Joins the conditions of all `--switch-output` options. Of several sizes or times, the last one is used. `None` if neither `--switch-output` nor
/// `--overwrite` is given.
fn switch_output(args: &Args) -> Option<SwitchOutput> {
    let start = SwitchOutput { max_files: args.max_files, on_signal: args.overwrite, ..SwitchOutput::default() };
    let joined = args.switch_output.iter().fold(start, |all, when| SwitchOutput {
        size_bytes: when.size_bytes.or(all.size_bytes),
        every: when.every.or(all.every),
        on_signal: when.on_signal || all.on_signal,
        ..all
    });
    (args.overwrite || !args.switch_output.is_empty()).then_some(joined)
}

/// Completes a recording of bprec that lacks only its end. Returns false for all other files, and does not change them.
pub(crate) fn mend(file: &Path) -> anyhow::Result<bool> {
    let recovered = bprec_record::recover(file)?;
    if recovered == Recovered::Unproven {
        return Ok(false);
    }
    notice(&format!("bprec: {} is {recovered}", file.display()));
    Ok(true)
}
