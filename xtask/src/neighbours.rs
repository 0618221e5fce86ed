//! Runs other users of BPF beside the tests, as on an ordinary machine: pinned programs, a tracer, another recorder. The tests must pass
//! beside these neighbours, and must not disturb them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::tally::Tally;
use crate::target_directory;

/// Object file of BPF programs that are pinned but not attached.
const IDLE: &str = "fixtures/bpf/counted.bpf.o";
/// Name of a load of `bprec-load`: a BPF program on every context switch. Its link is pinned.
const RUNNING: &str = "rawtp";
/// Script of the tracer bpftrace: programs on perf events of the tracer.
const TRACED: &str =
    "profile:hz:49 { @samples[comm] = count(); } software:context-switches:1000 { @switches = count(); }";
/// Time limit of the processes, in seconds. Beyond it, `timeout` ends the processes, even if the tests died before.
const LIMIT: &str = "3600";

/// Neighbours that run until this value is dropped or [`Neighbours::end`] is called.
pub(crate) struct Neighbours<'a> {
    sh: &'a Shell,
    directory: PathBuf,
    bprec: PathBuf,
    processes: Vec<(&'static str, Child)>,
}

impl<'a> Neighbours<'a> {
    /// Starts the neighbours. The recorder is this `bprec`.
    pub(crate) fn start(sh: &'a Shell, bprec: &Path) -> Result<Self> {
        let directory = target_directory().join("neighbours");
        let pins = sh.create_dir(directory.join("bpf"))?;
        cmd!(sh, "mount -t bpf bpf {pins}").quiet().run()?;
        let mut neighbours = Self { sh, directory, bprec: bprec.to_owned(), processes: Vec::new() };
        cmd!(sh, "bpftool prog loadall {IDLE} {pins}/idle").quiet().run()?;
        neighbours.pin_running()?;
        if cmd!(sh, "bpftrace --version").quiet().read().is_ok() {
            neighbours.spawn("bpftrace", &["bpftrace", "-e", TRACED])?;
        } else {
            // Without bpftrace, the project's loader attaches programs to perf events.
            let loader = neighbours.loader().display().to_string();
            neighbours.spawn("bprec-load", &[&loader, "perf-event"])?;
        }
        let recorder = [&bprec.display().to_string(), "record", "-q", "-a", "-e", "cpu-clock", "-F", "99", "-o"];
        let recording = neighbours.recording().display().to_string();
        neighbours.spawn("bprec", &[&recorder[..], &[&recording]].concat())?;
        // All neighbours must run before the first test starts; the recorder writes its first checkpoint after one second.
        std::thread::sleep(Duration::from_secs(3));
        Ok(neighbours)
    }

    /// Ends the neighbours. Checks that the tests did not disturb them, and adds each check to `tally`.
    pub(crate) fn end(mut self, tally: &mut Tally) {
        tally.check("neighbours pins_stay", self.pins_stay());
        tally.check("neighbours processes_stay", self.processes_stay());
        tally.check("neighbours recording_is_whole", self.recorded());
    }

    /// Pins the link of an attached BPF program, then ends the process that loaded the program.
    fn pin_running(&self) -> Result<()> {
        let (sh, loader, pin) = (self.sh, self.loader(), self.directory.join("bpf/running"));
        let mut load = Command::from(cmd!(sh, "{loader} {RUNNING}")).stdout(Stdio::piped()).spawn()?;
        let printed = BufReader::new(load.stdout.take().context("bprec-load has no output")?);
        let mut lines = printed.lines().map_while(Result::ok).take_while(|line| !line.starts_with("ready"));
        // The last lines are read, too: the program is attached after them.
        let program =
            lines.by_ref().find_map(|line| Some(line.split_once("program id=")?.1.split(' ').next()?.to_owned()));
        lines.for_each(drop);
        let program: u64 = program.context("bprec-load printed no program")?.parse()?;
        let links: Vec<Value> = serde_json::from_str(&cmd!(sh, "bpftool -j link list").quiet().read()?)?;
        let link = links.iter().find(|link| link["prog_id"] == program);
        let link = link.with_context(|| format!("program {program} has no link"))?["id"].to_string();
        let pinned = cmd!(sh, "bpftool link pin id {link} {pin}").quiet().run();
        interrupt(sh, &load)?;
        load.wait()?;
        Ok(pinned?)
    }

    fn loader(&self) -> PathBuf {
        self.bprec.with_file_name("bprec-load")
    }

    fn recording(&self) -> PathBuf {
        self.directory.join("perf.data")
    }

    fn spawn(&mut self, name: &'static str, command: &[&str]) -> Result<()> {
        let log = File::create(self.directory.join(format!("{name}.log")))?;
        let mut limited: Command = cmd!(self.sh, "timeout -s INT {LIMIT} {command...}").into();
        let child = limited.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        self.processes.push((name, child.with_context(|| format!("run {name}"))?));
        Ok(())
    }

    fn pins_stay(&self) -> Result<()> {
        let bpf = self.directory.join("bpf");
        let idle = self.sh.read_dir(bpf.join("idle"))?.len();
        ensure!(idle > 0 && bpf.join("running").exists(), "{idle} pinned programs are left");
        Ok(())
    }

    fn processes_stay(&mut self) -> Result<()> {
        for (name, process) in &mut self.processes {
            if let Some(status) = process.try_wait()? {
                let log = self.sh.read_file(self.directory.join(format!("{name}.log")))?;
                anyhow::bail!("{name} ended with {status}: {}", log.trim());
            }
        }
        Ok(())
    }

    /// Checks that the recorder ends normally, and that its file names the pinned program.
    fn recorded(&mut self) -> Result<()> {
        let (_, recorder) = self.processes.last_mut().context("no recorder was started")?;
        interrupt(self.sh, recorder)?;
        let status = recorder.wait()?;
        ensure!(status.success(), "bprec record ended with {status}");
        let (bprec, recording) = (&self.bprec, self.recording());
        let report = cmd!(self.sh, "{bprec} report --json -i {recording}").quiet().read()?;
        let names_it = report.contains("count_sched_switches");
        ensure!(names_it, "{} does not name the pinned program that ran", recording.display());
        Ok(())
    }
}

impl Drop for Neighbours<'_> {
    fn drop(&mut self) {
        for (_, process) in &mut self.processes {
            // Fails only if the process has already ended.
            interrupt(self.sh, process).ok();
            process.wait().ok();
        }
        // Unmounting the file system removes the pins.
        let pins = self.directory.join("bpf");
        cmd!(self.sh, "umount {pins}").quiet().run().ok();
    }
}

/// Sends SIGINT to `timeout`, which sends the signal to its child.
fn interrupt(sh: &Shell, process: &Child) -> Result<()> {
    let id = process.id().to_string();
    Ok(cmd!(sh, "kill -INT {id}").quiet().ignore_stderr().run()?)
}
