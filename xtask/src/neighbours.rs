//! Runs other users of BPF beside the tests, as on an ordinary machine: pinned programs, a tracer, another recorder. The tests must pass
//! beside these neighbours, and must not disturb them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::{output, run};
use crate::tally::Tally;

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
pub(crate) struct Neighbours {
    directory: PathBuf,
    bprec: PathBuf,
    processes: Vec<(&'static str, Child)>,
    is_mounted: bool,
}

impl Neighbours {
    /// Starts the neighbours, with their files below the directory `target`. The recorder is this `bprec`.
    pub(crate) fn start(target: &Path, bprec: &Path) -> Result<Self> {
        let directory = target.join("neighbours");
        fs::create_dir_all(directory.join("bpf")).with_context(|| format!("create {}", directory.display()))?;
        let mut neighbours = Self { directory, bprec: bprec.to_owned(), processes: Vec::new(), is_mounted: false };
        run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(neighbours.pins()))?;
        neighbours.is_mounted = true;
        let idle = neighbours.pins().join("idle");
        run(Command::new("bpftool").args(["prog", "loadall", IDLE]).arg(&idle))?;
        neighbours.pin_running()?;
        if installed("bpftrace") {
            neighbours.spawn("bpftrace", Command::new("bpftrace").args(["-e", TRACED]))?;
        } else {
            // Without bpftrace, the project's loader attaches programs to perf events.
            neighbours.spawn("bprec-load", Command::new(neighbours.loader()).arg("perf-event"))?;
        }
        let mut record = Command::new(bprec);
        record.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "99", "-o"]).arg(neighbours.recording());
        neighbours.spawn("bprec", &record)?;
        // All neighbours must run before the first test starts; the recorder writes its first checkpoint after one second.
        std::thread::sleep(Duration::from_secs(3));
        Ok(neighbours)
    }

    /// Ends the neighbours. Checks that the tests did not disturb them, and adds each check to `tally`.
    pub(crate) fn end(mut self, tally: &mut Tally) {
        for (check, result) in [
            ("pins_stay", self.pins_stay()),
            ("processes_stay", self.processes_stay()),
            ("recording_is_whole", self.recorded()),
        ] {
            match result {
                Ok(()) => tally.pass(),
                Err(why) => tally.fail(&format!("neighbours {check}"), &format!("{why:#}")),
            }
        }
    }

    /// Pins the link of an attached BPF program, then ends the process that loaded the program.
    fn pin_running(&self) -> Result<()> {
        let mut load = Command::new(self.loader())
            .arg(RUNNING)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("run bprec-load")?;
        let printed = BufReader::new(load.stdout.take().context("bprec-load has no output")?);
        let lines: Vec<String> =
            printed.lines().map_while(Result::ok).take_while(|line| !line.starts_with("ready")).collect();
        let program = lines
            .iter()
            .find_map(|line| line.strip_prefix("program ")?.split(' ').find_map(|it| it.strip_prefix("id=")));
        let program: u64 =
            program.with_context(|| format!("no program id in the output of bprec-load: {lines:?}"))?.parse()?;
        let links = output(Command::new("bpftool").args(["-j", "link", "list"]))?;
        let links: Value = serde_json::from_str(&links).context("read the output of bpftool")?;
        let link = links.as_array().and_then(|links| links.iter().find(|link| link["prog_id"] == program));
        let link = link.with_context(|| format!("program {program} has no link"))?["id"].to_string();
        let pinned = run(Command::new("bpftool").args(["link", "pin", "id", &link]).arg(self.pins().join("running")));
        interrupt(&load)?;
        load.wait()?;
        pinned
    }

    fn loader(&self) -> PathBuf {
        self.bprec.with_file_name("bprec-load")
    }

    fn pins(&self) -> PathBuf {
        self.directory.join("bpf")
    }

    fn recording(&self) -> PathBuf {
        self.directory.join("perf.data")
    }

    fn spawn(&mut self, name: &'static str, command: &Command) -> Result<()> {
        let log = File::create(self.directory.join(format!("{name}.log")))?;
        let mut limited = Command::new("timeout");
        limited.args(["-s", "INT", LIMIT]).arg(command.get_program()).args(command.get_args());
        let child = limited.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        self.processes.push((name, child.with_context(|| format!("run {name}"))?));
        Ok(())
    }

    fn pins_stay(&self) -> Result<()> {
        let idle = fs::read_dir(self.pins().join("idle")).context("read the pinned programs")?.count();
        ensure!(idle > 0 && self.pins().join("running").exists(), "{idle} pinned programs are left");
        Ok(())
    }

    fn processes_stay(&mut self) -> Result<()> {
        for (name, process) in &mut self.processes {
            if let Some(status) = process.try_wait()? {
                let log = self.directory.join(format!("{name}.log"));
                anyhow::bail!("{name} ended with {status}: {}", fs::read_to_string(log).unwrap_or_default().trim());
            }
        }
        Ok(())
    }

    /// Checks that the recorder ends normally, and that its file names the pinned program.
    fn recorded(&mut self) -> Result<()> {
        let (_, recorder) = self.processes.last_mut().context("no recorder was started")?;
        interrupt(recorder)?;
        let status = recorder.wait()?;
        ensure!(status.success(), "bprec record ended with {status}");
        let report = output(Command::new(&self.bprec).args(["report", "--json", "-i"]).arg(self.recording()))?;
        ensure!(
            report.contains("count_sched_switches"),
            "{} does not name the pinned program that ran",
            self.recording().display()
        );
        Ok(())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for (_, process) in &mut self.processes {
            // Fails only if the process has already ended.
            interrupt(process).ok();
            process.wait().ok();
        }
        if self.is_mounted {
            // Unmounting the file system removes the pins.
            run(Command::new("umount").arg(self.pins())).ok();
        }
    }
}

/// Sends SIGINT to `timeout`, which sends the signal to its child.
fn interrupt(process: &Child) -> Result<()> {
    run(Command::new("kill").args(["-INT", &process.id().to_string()]))
}

pub(crate) fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}
