//! `bprec script`.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;

use bprec_report::{Field, Fields, ScriptOptions, Show, Source};

use crate::args::{InputArgs, OUTPUT, PartArgs, ProgArgs, SELECTION, VIEWS, refuse_idle};
use crate::opening::{RedactArgs, Redacted, open_source};
use crate::pager::{Output, PagerArgs};
use crate::progress::with_progress_of;
use crate::sandbox::{Purpose, Sandbox, SandboxArgs};
use crate::values::{number, task_id};
use crate::{Outcome, found, say};

/// Print the records of a recording in time order, one sample per line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print these fields of each sample: comm, tid, pid, time, cpu, event, ip, sym, dso, symoff, period, addr, weight,
    /// callchain, bpf-output, trace, cgroup, state (`+state` prints the recorder's data about programs as text instead of bytes).
    #[arg(short = 'F', long, value_name = "LIST", value_parser = Fields::parse, help_heading = VIEWS)]
    fields: Option<Fields>,

    /// Also print FORK, EXIT and COMM records.
    #[arg(long, help_heading = VIEWS)]
    show_task_events: bool,

    /// Also print MMAP and MMAP2 records.
    #[arg(long, help_heading = VIEWS)]
    show_mmap_events: bool,

    /// Also print SWITCH records.
    #[arg(long, help_heading = VIEWS)]
    show_switch_events: bool,

    /// Also print NAMESPACES records.
    #[arg(long, help_heading = VIEWS)]
    show_namespace_events: bool,

    /// Also print CGROUP records.
    #[arg(long, help_heading = VIEWS)]
    show_cgroup_events: bool,

    /// Also print LOST and LOST_SAMPLES records.
    #[arg(long, help_heading = VIEWS)]
    show_lost_events: bool,

    /// Also print THROTTLE and UNTHROTTLE records.
    #[arg(long, help_heading = VIEWS)]
    show_throttle_events: bool,

    /// Also print KSYMBOL and BPF_EVENT records.
    #[arg(long, help_heading = VIEWS)]
    show_bpf_events: bool,

    /// Print one line per sample, even with a call chain.
    #[arg(short = 'G', long, help_heading = OUTPUT)]
    hide_call_graph: bool,

    /// Print deferred user call chains where the kernel delivered them, not with their samples.
    #[arg(long, help_heading = OUTPUT)]
    no_merge_callchains: bool,

    /// Print at most N frames of a call chain.
    #[arg(long, value_name = "N", value_parser = number, help_heading = OUTPUT)]
    max_stack: Option<usize>,

    /// Print times to the nanosecond.
    #[arg(long, help_heading = OUTPUT)]
    ns: bool,

    /// Print only samples of these processes.
    #[arg(long, value_name = "PID", value_parser = task_id, value_delimiter = ',', help_heading = SELECTION)]
    pid: Vec<u32>,

    /// Print only samples of these threads.
    #[arg(long, value_name = "TID", value_parser = task_id, value_delimiter = ',', help_heading = SELECTION)]
    tid: Vec<u32>,

    #[command(flatten)]
    select: ProgArgs,

    #[command(flatten)]
    part: PartArgs,

    /// Do not demangle names of user functions (Rust, C++).
    #[arg(long, help_heading = OUTPUT)]
    no_demangle: bool,

    #[command(flatten)]
    pager: PagerArgs,

    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    redact: RedactArgs,

    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    let fields = args.fields.unwrap_or_default();
    refuse_idle(&[
        (args.ns && !fields.has(Field::Time), "--ns is about times: add time to -F"),
        (args.hide_call_graph && !fields.has(Field::Ip), "--hide-call-graph is about call chains: add ip to -F"),
        (args.max_stack.is_some() && !fields.has(Field::Ip), "--max-stack is about call chains: add ip to -F"),
        (args.max_stack.is_some() && args.hide_call_graph, "--hide-call-graph prints no frames: omit --max-stack"),
        (args.no_demangle && !fields.has(Field::Sym), "--no-demangle is about names of functions: add sym to -F"),
    ])?;
    let path = args.input.path();
    // No pager for a stream: its records are printed as they arrive.
    let out = if path == Path::new("-") { Output::without_pager() } else { args.pager.output() };
    let sandbox = Sandbox::enter(&args.sandbox, Purpose::Print);
    let mut source = match args.redact.redact {
        None => {
            let source = open_source(path)?;
            sandbox.seal(source.is_stream());
            source
        }
        Some(_) => {
            let opened = args.redact.open(path)?;
            sandbox.seal(opened.needs_files());
            let mut redacted = Redacted::default();
            let input = opened.input(&mut args.redact.redactor(), &mut redacted)?;
            redacted.print();
            Source::of(input)
        }
    };
    let options = ScriptOptions {
        fields,
        show: Show {
            task: args.show_task_events,
            mmap: args.show_mmap_events,
            switch: args.show_switch_events,
            namespace: args.show_namespace_events,
            cgroup: args.show_cgroup_events,
            lost: args.show_lost_events,
            throttle: args.show_throttle_events,
            bpf: args.show_bpf_events,
        },
        nanoseconds: args.ns,
        hide_call_chains: args.hide_call_graph,
        keep_chains_apart: args.no_merge_callchains,
        max_stack: args.max_stack,
        keep_mangled: args.no_demangle,
        pids: args.pid,
        tids: args.tid,
        programs: args.select.prog,
        time: args.part.time.unwrap_or_default(),
        cpus: args.part.cpu,
        comms: args.part.comms,
        ..ScriptOptions::default()
    };
    let summary = out.print(|out| {
        let progress = Arc::clone(source.progress());
        let mut print = || bprec_report::script(&mut source, &options, out);
        Ok(match io::stdout().is_terminal() {
            // No progress line on a terminal: the printed records show the progress.
            true => print()?,
            false => with_progress_of(&[(path, &progress)], print)?,
        })
    })?;
    let Some(summary) = summary else { return Ok(Outcome::Done) };
    for problem in &summary.problems {
        say(&format!("bprec: {problem}"));
    }
    let first = summary.first_unreadable.as_ref().map(|error| format!("; the first at {error}")).unwrap_or_default();
    for (count, what, first) in [
        (summary.late, "came too late to be sorted by time", ""),
        (summary.unknown, "belong to no event of the recording", ""),
        (summary.unreadable, "could not be read", first.as_str()),
    ] {
        if count > 0 {
            let records = if count == 1 { "record" } else { "records" };
            say(&format!("bprec: {count} {records} {what}{first}"));
        }
    }
    let missing = "no record to print: the recording has no samples, or none match the options";
    Ok(found(summary.samples + summary.others > 0, &format!("bprec: {}: {missing}", path.display())))
}
