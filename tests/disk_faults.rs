//! A disk that fails at any step, and power that is lost between any two: what is said of it, and what is left. Every step of the real program is
//! tried. Real kernel, root; perf opens what is left.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/power.rs"]
mod power;
mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use bprec_format::{Events, File, RecordType};
use bprec_report::{Input, Options, RewriteOptions, Source, by_prog, rewrite};
use disk::{Answer, Inode, Run, Step, run};
use power::{Disk, lose_power_everywhere};
use support::{bprec, perf_installed, record, root};

/// Ends a file of the recorder that runs it, so that another one follows.
const ROTATE: &str = "kill -USR2 $PPID; :";

/// Files that memory holds: nothing waits for a real disk, and no number of a file comes twice.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Two recordings that are there before.
fn older() -> &'static [Vec<u8>; 2] {
    static OLDER: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    OLDER.get_or_init(|| {
        let directory = scratch();
        let path = directory.path().join("older");
        [(); 2].map(|()| {
            record(&path, &["-q", "-e", "page-faults", "-c", "1", "--counters", "off", "--", "true"]);
            fs::read(&path).unwrap()
        })
    })
}

/// All files of a directory.
fn files(directory: &Path) -> BTreeMap<String, (Inode, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.metadata().unwrap().is_file());
    files
        .map(|entry| {
            let inode = entry.metadata().unwrap().ino();
            (entry.file_name().into_string().unwrap(), (inode, fs::read(entry.path()).unwrap()))
        })
        .collect()
}

/// Samples of the first event that are whole, and whether the recording is: one that was cut off or damaged is mended in memory.
fn samples(bytes: &[u8]) -> Result<(usize, bool), String> {
    by_prog(&Input::from_bytes("test", bytes.to_vec()), &Options::default()).map_err(|error| error.to_string())?;
    let mut out = Cursor::new(Vec::new());
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    let summary = rewrite(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out);
    let summary = summary.map_err(|error| error.to_string())?;
    let bytes = out.into_inner();
    let file = File::parse(&bytes).map_err(|error| error.to_string())?;
    let events = Events::new(file.attrs(), file.endian()).map_err(|error| error.to_string())?;
    let mut count = 0;
    for record in file.records() {
        let record = record.map_err(|error| error.to_string())?;
        count += usize::from(record.kind == RecordType::SAMPLE && events.index_of(&record) == Some(0));
    }
    Ok((count, summary.problems.is_empty() && summary.dropped.is_empty()))
}

/// What is wrong with recordings that perf and bprec cannot open, and the samples of the others; each contents are looked at once.
#[derive(Default)]
struct Judge {
    known: HashMap<Vec<u8>, (usize, bool)>,
    has_perf: bool,
    opened: usize,
    refused: Vec<String>,
}

impl Judge {
    fn open(&mut self, about: &str, bytes: &[u8]) -> (usize, bool) {
        if let Some(known) = self.known.get(bytes) {
            return *known;
        }
        let found = samples(bytes).unwrap_or_else(|error| {
            self.refused.push(format!("{about}, {} bytes: bprec: {error}", bytes.len()));
            (0, false)
        });
        if self.has_perf {
            let path = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
            fs::write(&path, bytes).unwrap();
            let perf = Command::new("perf").args(["script", "-f", "-F", "event", "-i"]).arg(path.path()).output();
            let perf = perf.unwrap();
            if !perf.status.success() {
                self.refused.push(format!("{about}: perf: {}", String::from_utf8_lossy(&perf.stderr)));
            }
        }
        self.opened += 1;
        self.known.insert(bytes.to_vec(), found);
        found
    }
}

/// A program that writes below a directory, and what has to hold of what it leaves.
struct Case<'a> {
    name: &'static str,
    /// Puts there what the program finds.
    prepare: &'a dyn Fn(&Path),
    program: &'a dyn Fn(&Path) -> Command,
    /// Names of what has to be there at the end, whatever happens: contents that some file has.
    kept: Vec<Vec<u8>>,
    /// Checks what a success has left.
    succeeded: &'a dyn Fn(&Path) -> Result<(), String>,
    /// Checks what is left, however it ended.
    at_last: &'a dyn Fn(&Path) -> Result<(), String>,
}

impl Case<'_> {
    fn begin(&self) -> tempfile::TempDir {
        let directory = scratch();
        (self.prepare)(directory.path());
        directory
    }

    /// Has each step fail in each way; how many steps there are at most, how many runs were made.
    fn fail_everywhere(&self, is_thorough: bool, judge: &mut Judge) -> (usize, usize, Vec<String>) {
        let (mut most, mut runs, mut wrong) = (0, 0, Vec::new());
        let some = if is_thorough { Vec::new() } else { self.places() };
        for way in Way::ALL {
            let places: Box<dyn Iterator<Item = usize>> =
                if is_thorough { Box::new(0..) } else { Box::new(some.iter().copied()) };
            for at in places {
                let directory = self.begin();
                let mut disk = Disk::new(&files(directory.path()));
                let mut hit = None;
                let ran = run(directory.path(), (self.program)(directory.path()), &mut |number, step| {
                    let answer =
                        if number == at || number > at && way == Way::Gone { way.answer(step) } else { Answer::Go };
                    if number == at {
                        hit = Some(step.clone());
                    }
                    answer
                });
                most = most.max(ran.count);
                // Not every run has as many.
                let Some(hit) = hit else { break };
                runs += 1;
                let about = format!("{}, step {at} ({}) {way:?}", self.name, brief(&hit));
                ran.steps.iter().take(at).for_each(|step| disk.take(step));
                self.check(&about, way, &hit, &ran, directory.path(), &disk, judge, &mut wrong);
            }
        }
        (most, runs, wrong)
    }

    /// The first and the last step of each kind.
    fn places(&self) -> Vec<usize> {
        let directory = self.begin();
        let mut places: HashMap<String, (usize, usize)> = HashMap::new();
        run(directory.path(), (self.program)(directory.path()), &mut |number, step| {
            places.entry(kind(step)).or_insert((number, number)).1 = number;
            Answer::Go
        });
        let places: BTreeSet<usize> = places.into_values().flat_map(|(first, last)| [first, last]).collect();
        places.into_iter().collect()
    }

    #[expect(clippy::too_many_arguments, reason = "what a run was and has left")]
    fn check(
        &self,
        about: &str,
        way: Way,
        hit: &Step,
        ran: &Run,
        directory: &Path,
        disk: &Disk,
        judge: &mut Judge,
        wrong: &mut Vec<String>,
    ) {
        let said = ran.said.trim();
        match (ran.status.code(), ran.status.signal()) {
            (Some(0), _) => {
                if let Err(error) = (self.succeeded)(directory) {
                    wrong.push(format!("{about}: success, but {error} {said}"));
                }
            }
            (Some(2), _) if !said.is_empty() && way.is_error(hit) => {}
            (None, Some(libc::SIGKILL)) if way == Way::Killed => {}
            _ => wrong.push(format!("{about}: {}: {said}", ran.status)),
        }
        let left = files(directory);
        for (number, kept) in self.kept.iter().enumerate() {
            if !left.values().any(|(_, bytes)| bytes == kept) {
                wrong.push(format!("{about}: older recording {number} is gone: {:?} {said}", left.keys()));
            }
        }
        let is_older = |bytes: &Vec<u8>| older().contains(bytes);
        let recordings = left.iter().filter(|(name, (_, bytes))| is_recording(name) && !is_older(bytes));
        let found: usize = recordings.map(|(name, (_, bytes))| judge.open(&format!("{about}: {name}"), bytes).0).sum();
        if let Err(error) = (self.at_last)(directory) {
            wrong.push(format!("{about}: {error} {said}"));
        }
        // What had been written before is there.
        let names = disk.names(disk.name_changes());
        let before = names.iter().filter(|(name, _)| is_recording(name)).map(|(_, inode)| {
            let bytes = disk.files[inode].contents(disk.files[inode].len());
            if is_older(&bytes) { 0 } else { samples(&bytes).map_or(0, |(samples, _)| samples) }
        });
        let before: usize = before.sum();
        if found < before {
            wrong.push(format!("{about}: {found} samples of {before} that were written: {:?} {said}", left.keys()));
        }
    }
}

/// Whether it is to be a recording; beside one is its journal.
fn is_recording(name: &str) -> bool {
    name.contains("perf.data") && !name.ends_with(".journal")
}

/// Whether every step is to be tried, not the first and the last of each kind only.
fn is_thorough() -> bool {
    std::env::var("BPREC_DISK_STEPS").is_ok_and(|which| which == "all")
}

/// What a step is, whatever its numbers.
fn kind(step: &Step) -> String {
    match step {
        Step::Write { offset, len, .. } => format!("write {} {}", offset.min(&1), len.ilog2() / 4),
        other => format!("{other:?}").chars().filter(|c| !c.is_ascii_digit()).collect(),
    }
}

fn brief(step: &Step) -> String {
    match step {
        Step::Write { offset, len, inode, .. } => format!("write of {len} at {offset} to {inode}"),
        other => format!("{other:?}"),
    }
}

/// How a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Once, as a bad block or a full disk does.
    Once,
    /// As does everything behind it.
    Gone,
    /// A signal came in between, or half was done: neither is an error.
    Interrupted,
    /// The program is killed before it.
    Killed,
}

impl Way {
    const ALL: [Way; 4] = [Way::Once, Way::Gone, Way::Interrupted, Way::Killed];

    fn answer(self, step: &Step) -> Answer {
        match (self, step) {
            (_, Step::Refused) => Answer::Go,
            (Way::Killed, _) => Answer::Kill,
            (Way::Interrupted, Step::Write { data: Some(_), len, .. }) if *len > 1 => Answer::Half,
            (Way::Interrupted, Step::Write { .. }) => Answer::Fail(libc::EINTR),
            (Way::Interrupted, _) => Answer::Go,
            (_, Step::Write { len, .. }) if len % 3 == 0 => Answer::Fail(libc::EDQUOT),
            (_, Step::Write { .. } | Step::Create { .. } | Step::Link { .. }) => Answer::Fail(libc::ENOSPC),
            _ => Answer::Fail(libc::EIO),
        }
    }

    /// Whether the program may give up.
    fn is_error(self, step: &Step) -> bool {
        self == Way::Gone || self == Way::Once && *step != Step::Refused
    }
}

fn recorder(directory: &Path) -> Command {
    let path = directory.join("perf.data");
    let mut command = bprec();
    command.args(["record", "-q", "-e", "page-faults", "-c", "1", "--counters", "off", "--sync", "0.1"]);
    command.args(["--switch-output=signal", "-o"]).arg(&path).args(["--", "sh", "-c", ROTATE]);
    command
}

/// Whether every file of a recording is complete, and nothing else is left.
fn is_complete(directory: &Path) -> Result<(), String> {
    let mut parts = 0;
    for (name, (_, bytes)) in files(directory) {
        if !is_recording(&name) {
            return Err(format!("{name} is left"));
        }
        let file = File::parse(&bytes).map_err(|error| format!("{name}: {error}"))?;
        if file.is_unfinished() || !file.records().all(|record| record.is_ok()) {
            return Err(format!("{name} is not whole"));
        }
        parts += usize::from(name.starts_with("perf.data.2") || name == "perf.data");
    }
    if parts == 0 { Err("nothing is recorded".to_owned()) } else { Ok(()) }
}

fn with_older(directory: &Path) {
    fs::write(directory.join("perf.data"), &older()[0]).unwrap();
    fs::write(directory.join("perf.data.old"), &older()[1]).unwrap();
}

#[test]
fn a_recording_survives_a_disk_that_fails_at_any_step() {
    const NAME: &str = "a_recording_survives_a_disk_that_fails_at_any_step";
    if !root(NAME) {
        return;
    }
    let mut judge = Judge { has_perf: perf_installed(NAME), ..Judge::default() };
    let case = Case {
        name: "record",
        prepare: &with_older,
        program: &recorder,
        kept: vec![older()[0].clone()],
        succeeded: &is_complete,
        at_last: &|_| Ok(()),
    };
    let (steps, runs, wrong) = case.fail_everywhere(is_thorough(), &mut judge);
    eprintln!("{steps} steps, {runs} runs, {} recordings opened", judge.opened);
    assert!(wrong.is_empty(), "{} of {runs} runs:\n{}", wrong.len(), wrong.join("\n"));
    assert!(judge.refused.is_empty(), "{} refused:\n{}", judge.refused.len(), judge.refused.join("\n"));
}

/// Has every recording that was left mended where it is, with its journal: nothing of it is lost.
fn recover_in_place(left: &BTreeMap<String, Vec<u8>>, judge: &mut Judge) -> Result<(), String> {
    let directory = scratch();
    left.iter().for_each(|(name, bytes)| fs::write(directory.path().join(name), bytes).unwrap());
    for (name, bytes) in left.iter().filter(|(name, _)| is_recording(name)) {
        let path = directory.path().join(name);
        bprec_record::recover(&path).map_err(|error| error.to_string())?;
        let mended = fs::read(path).unwrap();
        let (before, after) = (judge.open(name, bytes).0, judge.open(&format!("{name}, mended"), &mended).0);
        if before != after {
            return Err(format!("{name}: {before} samples, mended {after}"));
        }
    }
    Ok(())
}

#[test]
fn a_recording_survives_a_loss_of_power_at_any_step() {
    const NAME: &str = "a_recording_survives_a_loss_of_power_at_any_step";
    if !root(NAME) {
        return;
    }
    let mut judge = Judge { has_perf: perf_installed(NAME), ..Judge::default() };
    let mut wrong = Vec::new();
    let is_older = |bytes: &Vec<u8>| older().contains(bytes);
    let (steps, states) = lose_power_everywhere(&with_older, &recorder, |about, disk, left| {
        if !left.values().any(|bytes| *bytes == older()[0]) {
            wrong.push(format!("{about}: the older recording is gone: {:?}", left.keys()));
        }
        let recordings = left.iter().filter(|(name, bytes)| is_recording(name) && !is_older(bytes));
        let found: usize = recordings.map(|(name, bytes)| judge.open(&format!("{about}: {name}"), bytes).0).sum();
        recover_in_place(left, &mut judge).unwrap_or_else(|error| wrong.push(format!("{about}: {error}")));
        // What was put on the disk, with its name, is there: of files that are not deleted.
        let (synced, now) = (disk.names(disk.synced_names), disk.names(disk.name_changes()));
        let promised = synced.iter().filter(|(name, inode)| is_recording(name) && now.values().any(|it| it == *inode));
        let promised = promised.map(|(name, inode)| (name, disk.files[inode].contents(disk.files[inode].synced)));
        let promised = promised.filter(|(_, bytes)| !is_older(bytes));
        let promised: usize =
            promised.map(|(name, bytes)| judge.open(&format!("{about}: {name} as synced"), &bytes).0).sum();
        if found < promised {
            wrong.push(format!("{about}: {found} samples of {promised} that were on the disk: {:?}", left.keys()));
        }
    });
    eprintln!("{steps} steps, {states} states, {} recordings opened", judge.opened);
    assert!(wrong.is_empty(), "{} of {states}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(judge.refused.is_empty(), "{} refused:\n{}", judge.refused.len(), judge.refused.join("\n"));
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-6.1").join(name)
}

/// A recording that was cut off, with its journal.
fn cut_off(directory: &Path) {
    for suffix in ["", ".journal"] {
        fs::copy(fixture(&format!("cut-off.data{suffix}")), directory.join(format!("perf.data{suffix}"))).unwrap();
    }
}

/// One with a record whose size is gone.
fn damaged(directory: &Path) {
    let mut bytes = fs::read(fixture("ratio.data")).unwrap();
    let at = File::parse(&bytes).unwrap().records().nth(20).unwrap().unwrap().offset as usize;
    bytes[at + 6..at + 8].fill(0);
    fs::write(directory.join("perf.data"), bytes).unwrap();
}

/// A command that reads, and the file that it writes.
struct Reader {
    arguments: &'static [&'static str],
    input: Option<&'static str>,
    prepare: fn(&Path),
    output: &'static str,
    /// What it finds under the name of its output, or as the file that it mends.
    is_in_place: bool,
}

const READERS: [Reader; 5] = [
    Reader {
        arguments: &["rewrite", "-o"],
        input: Some("ratio.data"),
        prepare: with_older,
        output: "perf.data",
        is_in_place: false,
    },
    Reader {
        arguments: &["export", "--to", "folded", "-o"],
        input: Some("ratio.data"),
        prepare: with_older,
        output: "perf.data",
        is_in_place: false,
    },
    Reader {
        arguments: &["recover"],
        input: None,
        prepare: cut_off,
        output: "perf.data.recovered",
        is_in_place: false,
    },
    Reader {
        arguments: &["recover", "--in-place"],
        input: None,
        prepare: damaged,
        output: "perf.data",
        is_in_place: false,
    },
    Reader {
        arguments: &["recover", "--in-place"],
        input: None,
        prepare: cut_off,
        output: "perf.data",
        is_in_place: true,
    },
];

impl Reader {
    fn command(&self, directory: &Path) -> Command {
        let mut command = bprec();
        command.args(self.arguments).arg(directory.join("perf.data"));
        if let Some(input) = self.input {
            command.arg("-i").arg(fixture(input));
        }
        command
    }

    /// What it writes, and the file that has to stay beside it.
    fn expected(&self) -> (Vec<u8>, Vec<Vec<u8>>) {
        let directory = scratch();
        (self.prepare)(directory.path());
        let before = fs::read(directory.path().join("perf.data")).unwrap();
        support::succeed(&mut self.command(directory.path()));
        let kept = if self.is_in_place { Vec::new() } else { vec![before] };
        (fs::read(directory.path().join(self.output)).unwrap(), kept)
    }
}

/// The output of a command that reads is there as a whole, or as if the command had not been run; what it mends in place, it can mend again.
#[test]
fn a_reader_survives_a_disk_that_fails_at_any_step() {
    const NAME: &str = "a_reader_survives_a_disk_that_fails_at_any_step";
    if !root(NAME) {
        return;
    }
    let mut judge = Judge::default();
    let (mut steps, mut runs, mut wrong) = (0, 0, Vec::new());
    for reader in &READERS {
        let (expected, kept) = reader.expected();
        let is_written = |directory: &Path| match fs::read(directory.join(reader.output)) {
            Ok(bytes) if bytes == expected => Ok(()),
            other => {
                Err(format!("{} is not what it should be: {:?} bytes", reader.output, other.map(|bytes| bytes.len())))
            }
        };
        let at_last = |directory: &Path| match reader.is_in_place {
            true => {
                bprec_record::recover(&directory.join("perf.data")).map_err(|error| error.to_string())?;
                is_written(directory)
            }
            false if directory.join(reader.output).exists() => is_written(directory).or_else(|error| {
                let bytes = fs::read(directory.join(reader.output)).unwrap();
                if kept.contains(&bytes) { Ok(()) } else { Err(error) }
            }),
            false => Ok(()),
        };
        let case = Case {
            name: reader.arguments[0],
            prepare: &reader.prepare,
            program: &|directory| reader.command(directory),
            kept: kept.clone(),
            succeeded: &is_written,
            at_last: &at_last,
        };
        let (of_one, runs_of_one, wrong_of_one) = case.fail_everywhere(true, &mut judge);
        (steps, runs) = (steps + of_one, runs + runs_of_one);
        wrong.extend(wrong_of_one);
    }
    eprintln!("{steps} steps of {} commands, {runs} runs", READERS.len());
    assert!(wrong.is_empty(), "{} of {runs} runs:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_reader_survives_a_loss_of_power_at_any_step() {
    const NAME: &str = "a_reader_survives_a_loss_of_power_at_any_step";
    if !root(NAME) {
        return;
    }
    let (mut steps, mut states, mut wrong) = (0, 0, Vec::new());
    for reader in &READERS {
        let (expected, kept) = reader.expected();
        let (of_one, states_of_one) =
            lose_power_everywhere(&reader.prepare, &|it| reader.command(it), |about, _, left| {
                let about = format!("{:?}, {about}", reader.arguments);
                if kept.iter().any(|kept| !left.values().any(|bytes| bytes == kept)) {
                    wrong.push(format!("{about}: what was there before is gone: {:?}", left.keys()));
                }
                let is_whole = match (reader.is_in_place, left.get(reader.output)) {
                    (true, Some(_)) => {
                        let directory = scratch();
                        left.iter().for_each(|(name, bytes)| fs::write(directory.path().join(name), bytes).unwrap());
                        let path = directory.path().join(reader.output);
                        bprec_record::recover(&path).is_ok() && fs::read(&path).unwrap() == expected
                    }
                    (false, Some(bytes)) => *bytes == expected || kept.contains(bytes),
                    (is_in_place, None) => !is_in_place,
                };
                if !is_whole {
                    wrong.push(format!("{about}: {} is neither whole nor as it was", reader.output));
                }
            });
        (steps, states) = (steps + of_one, states + states_of_one);
    }
    eprintln!("{steps} steps of {} commands, {states} states", READERS.len());
    assert!(wrong.is_empty(), "{} of {states}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Counts that cannot be written are an error.
#[test]
fn a_count_survives_a_disk_that_fails_at_any_step() {
    const NAME: &str = "a_count_survives_a_disk_that_fails_at_any_step";
    if !root(NAME) {
        return;
    }
    let program = |directory: &Path| {
        let mut command = bprec();
        command.args(["stat", "-e", "page-faults", "-j", "-o"]).arg(directory.join("counts")).args(["--", "true"]);
        command
    };
    let is_written = |directory: &Path| {
        let text = fs::read_to_string(directory.join("counts")).map_err(|error| error.to_string())?;
        let is_whole = text.lines().count() > 0
            && text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
        if is_whole && text.ends_with('\n') { Ok(()) } else { Err(format!("counts are {text:?}")) }
    };
    let case = Case {
        name: "stat",
        prepare: &|_| {},
        program: &program,
        kept: Vec::new(),
        succeeded: &is_written,
        at_last: &|_| Ok(()),
    };
    let (steps, runs, wrong) = case.fail_everywhere(true, &mut Judge::default());
    eprintln!("{steps} steps, {runs} runs");
    assert!(wrong.is_empty(), "{} of {runs} runs:\n{}", wrong.len(), wrong.join("\n"));
}
