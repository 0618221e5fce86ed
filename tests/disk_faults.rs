//! A disk that fails at any step, and a power loss between any two steps: the messages, and the remaining files. The tests try every step of the real
//! program. Real kernel, root; perf opens the remaining recordings.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test")]

mod power;
mod readers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::disk::{Answer, Inode, Run, Step, run};
use crate::support::{bprec, perf_installed, record, root};
use bprec_format::bprec::is_unfinished;
use bprec_format::{Events, File, Record, RecordType};
use bprec_report::{Input, Options, RewriteOptions, Source, by_prog, rewrite};
use power::{Disk, lose_power_everywhere};

/// Ends the current file of the recorder that runs this command, so that another file follows.
const ROTATE: &str = "kill -USR2 $PPID; :";

/// After this many consecutive runs that end before a step, the test assumes that no run reaches the step.
const SHORTER_RUNS: usize = 3;

/// A directory in memory: nothing waits for a real disk, and no inode number occurs twice.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Two recordings that exist before the run.
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

/// Returns the number of complete samples of the first event, and the complete recording: a cut-off or damaged recording is repaired in memory.
fn samples(bytes: &[u8]) -> Result<(usize, Vec<u8>), String> {
    by_prog(&Input::from_bytes("test", bytes.to_vec()), &Options::default()).map_err(|error| error.to_string())?;
    let mut out = Cursor::new(Vec::new());
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    rewrite(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out).map_err(|error| error.to_string())?;
    let whole = out.into_inner();
    let file = File::parse(&whole).map_err(|error| error.to_string())?;
    let events = Events::new(file.attrs(), file.endian()).map_err(|error| error.to_string())?;
    let mut count = 0;
    for record in file.records() {
        let record = record.map_err(|error| error.to_string())?;
        count += usize::from(record.kind == RecordType::SAMPLE && events.index_of(&record) == Some(0));
    }
    Ok((count, whole))
}

/// Returns true if perf can read the recording only after recovery: it has compressed records, but no feature section at the end of the file.
fn is_compressed_and_cut_off(bytes: &[u8]) -> bool {
    File::parse(bytes).is_ok_and(|file| {
        let is_compressed = |record: &Record<'_>| record.kind == RecordType::COMPRESSED;
        is_unfinished(&file) && file.records().map_while(Result::ok).any(|record| is_compressed(&record))
    })
}

/// Opens recordings with bprec and perf; checks each content only once. `known` has the number of samples of each content, `refused` the errors.
#[derive(Default)]
struct Judge {
    known: HashMap<Vec<u8>, usize>,
    has_perf: bool,
    opened: usize,
    refused: Vec<String>,
}

impl Judge {
    /// Number of samples of a recording that bprec and perf must be able to open.
    fn open(&mut self, about: &str, bytes: &[u8]) -> usize {
        if let Some(known) = self.known.get(bytes) {
            return *known;
        }
        let (found, whole) = samples(bytes).unwrap_or_else(|error| {
            self.refused.push(format!("{about}, {} bytes: bprec: {error}", bytes.len()));
            (0, bytes.to_vec())
        });
        if self.has_perf {
            let path = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
            fs::write(&path, if is_compressed_and_cut_off(bytes) { &whole } else { bytes }).unwrap();
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

/// Returns the name of the recording that ended early, and the number of its kept bytes, both from the message.
fn ended_at(said: &str) -> Option<(String, usize)> {
    let (front, behind) = said.split_once("; the recording ended at this error: the file has the ")?;
    let path = front.rsplit('\n').next()?.trim_start_matches("bprec: ").split(": ").next()?;
    let name = Path::new(path).file_name()?.to_str()?;
    Some((name.to_owned(), behind.split(' ').next()?.parse().ok()?))
}

/// A program that writes below a directory, and the conditions for its remaining files.
struct Case<'a> {
    name: &'static str,
    /// Prepares the directory for the program.
    prepare: &'a dyn Fn(&Path),
    program: &'a dyn Fn(&Path) -> Command,
    /// Contents that one of the files must have at the end, in every case.
    kept: Vec<Vec<u8>>,
    /// Checks the files after a success.
    succeeded: &'a dyn Fn(&Path) -> Result<(), String>,
    /// Checks the files after every end, success or failure.
    at_last: &'a dyn Fn(&Path) -> Result<(), String>,
}

impl Case<'_> {
    fn begin(&self) -> tempfile::TempDir {
        let directory = scratch();
        (self.prepare)(directory.path());
        directory
    }

    /// Makes each step fail in each way. Returns the largest number of steps, the number of runs, and the errors found.
    fn fail_everywhere(&self, tried: Tried, judge: &mut Judge) -> (usize, usize, Vec<String>) {
        let (mut most, mut runs, mut wrong) = (0, 0, Vec::new());
        let some = if tried == Tried::All { Vec::new() } else { self.places(tried) };
        for way in Way::ALL {
            let places: Box<dyn Iterator<Item = usize>> =
                if tried == Tried::All { Box::new(0..) } else { Box::new(some.iter().copied()) };
            let mut shorter = 0;
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
                // The run had fewer steps, as some runs do.
                let Some(hit) = hit else {
                    shorter += 1;
                    if shorter == SHORTER_RUNS { break } else { continue }
                };
                (runs, shorter) = (runs + 1, 0);
                let about = format!("{}, step {at} ({}) {way:?}", self.name, brief(&hit));
                ran.steps.iter().take(at).for_each(|step| disk.take(step));
                self.check(&about, way, &hit, &ran, directory.path(), &disk, judge, &mut wrong);
            }
        }
        (most, runs, wrong)
    }

    /// Numbers of the steps to try: the last step of each kind and, depending on `tried`, also the first.
    fn places(&self, tried: Tried) -> Vec<usize> {
        let directory = self.begin();
        let mut places: HashMap<String, (usize, usize)> = HashMap::new();
        run(directory.path(), (self.program)(directory.path()), &mut |number, step| {
            places.entry(kind(step)).or_insert((number, number)).1 = number;
            Answer::Go
        });
        let of_kind = |(first, last)| [if tried == Tried::LastOfEachKind { last } else { first }, last];
        let places: BTreeSet<usize> = places.into_values().flat_map(of_kind).collect();
        places.into_iter().collect()
    }

    #[expect(clippy::too_many_arguments, reason = "parameters and results of a run")]
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
        let found: usize = recordings.map(|(name, (_, bytes))| judge.open(&format!("{about}: {name}"), bytes)).sum();
        // The message must not state more bytes than the file has. This is not checked if the disk failed completely, because then bprec cannot read
        // names.
        if way != Way::Gone
            && let Some((name, kept)) = ended_at(said)
            && left.get(&name).is_none_or(|(_, bytes)| bytes.len() < kept)
        {
            wrong.push(format!("{about}: not so: {said}"));
        }
        if let Err(error) = (self.at_last)(directory) {
            wrong.push(format!("{about}: {error} {said}"));
        }
        // The remaining recordings have at least the samples that were written before the failed step.
        let names = disk.names(disk.name_changes());
        let before = names.iter().filter(|(name, _)| is_recording(name)).map(|(_, inode)| {
            let bytes = disk.files[inode].contents(disk.files[inode].len());
            if is_older(&bytes) { 0 } else { samples(&bytes).map_or(0, |(samples, _)| samples) }
        });
        let before: usize = before.sum();
        if found < before {
            wrong.push(format!("{about}: {found} of the {before} samples that were written: {:?} {said}", left.keys()));
        }
    }
}

/// True if the file is a recording, not its journal.
fn is_recording(name: &str) -> bool {
    name.contains("perf.data") && !name.ends_with(".journal")
}

/// True if every step is tried, not only the first and the last of each kind.
fn is_thorough() -> bool {
    std::env::var("BPREC_DISK_STEPS").is_ok_and(|which| which == "all")
}

/// Selection of the steps that fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    All,
    FirstAndLastOfEachKind,
    LastOfEachKind,
}

/// Kind of a step: its description without numbers.
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

/// Way in which a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The step fails once, as with a bad block or a full disk.
    Once,
    /// The step and all later steps fail.
    Gone,
    /// A signal interrupts the call, or the call does half of its work; neither is an error.
    Interrupted,
    /// The program is killed before the step.
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

    /// True if the program may end with an error after this fault. An interrupted call, or a fault of a step that the kernel refuses anyway, is no
    /// reason to fail.
    fn is_error(self, step: &Step) -> bool {
        self == Way::Gone || self == Way::Once && *step != Step::Refused
    }
}

fn recorder(directory: &Path, options: &[&str]) -> Command {
    let path = directory.join("perf.data");
    let mut command = bprec();
    command.args(["record", "-q", "-e", "page-faults", "-c", "1", "--counters", "off", "--sync", "0.1"]).args(options);
    command.args(["--switch-output=signal", "-o"]).arg(&path).args(["--", "sh", "-c", ROTATE]);
    command
}

/// Options that change the way a recording is written.
const WAYS_TO_WRITE: [&[&str]; 2] = [&[], &["-z"]];

/// Checks that every file of a recording is complete, and nothing else remains.
fn is_complete(directory: &Path) -> Result<(), String> {
    let mut parts = 0;
    for (name, (_, bytes)) in files(directory) {
        if !is_recording(&name) {
            return Err(format!("{name} is left"));
        }
        let file = File::parse(&bytes).map_err(|error| format!("{name}: {error}"))?;
        if is_unfinished(&file) || !file.records().all(|record| record.is_ok()) {
            return Err(format!("{name} is incomplete"));
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
    for options in WAYS_TO_WRITE {
        let case = Case {
            name: "record",
            prepare: &with_older,
            program: &|directory| recorder(directory, options),
            kept: vec![older()[0].clone()],
            succeeded: &is_complete,
            at_last: &|_| Ok(()),
        };
        let tried = match (is_thorough(), options) {
            (true, _) => Tried::All,
            (false, []) => Tried::FirstAndLastOfEachKind,
            (false, _) => Tried::LastOfEachKind,
        };
        let (steps, runs, wrong) = case.fail_everywhere(tried, &mut judge);
        eprintln!("{options:?}: {steps} steps, {runs} runs, {} recordings opened", judge.opened);
        assert!(wrong.is_empty(), "{options:?}, {} of {runs} runs:\n{}", wrong.len(), wrong.join("\n"));
    }
    assert!(judge.refused.is_empty(), "{} refused:\n{}", judge.refused.len(), judge.refused.join("\n"));
}

/// Recovers every remaining recording in place, with its journal. The recovered recording has all data.
fn recover_in_place(left: &BTreeMap<String, Vec<u8>>, judge: &mut Judge) -> Result<(), String> {
    let directory = scratch();
    left.iter().for_each(|(name, bytes)| fs::write(directory.path().join(name), bytes).unwrap());
    for (name, bytes) in left.iter().filter(|(name, _)| is_recording(name)) {
        let path = directory.path().join(name);
        bprec_record::recover(&path).map_err(|error| error.to_string())?;
        let mended = fs::read(path).unwrap();
        let (before, after) = (judge.open(name, bytes), judge.open(&format!("{name}, mended"), &mended));
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
    let has_perf = perf_installed(NAME);
    let mut judge = Judge::default();
    let is_older = |bytes: &Vec<u8>| older().contains(bytes);
    for options in WAYS_TO_WRITE {
        judge.has_perf = has_perf && (options.is_empty() || is_thorough());
        let mut wrong = Vec::new();
        let (steps, states) = lose_power_everywhere(&with_older, &|it| recorder(it, options), |about, disk, left| {
            if !left.values().any(|bytes| *bytes == older()[0]) {
                wrong.push(format!("{about}: the older recording is gone: {:?}", left.keys()));
            }
            let recordings = left.iter().filter(|(name, bytes)| is_recording(name) && !is_older(bytes));
            let found: usize = recordings.map(|(name, bytes)| judge.open(&format!("{about}: {name}"), bytes)).sum();
            recover_in_place(left, &mut judge).unwrap_or_else(|error| wrong.push(format!("{about}: {error}")));
            // Synced contents of files that were not deleted still exist under their names.
            let (synced, now) = (disk.names(disk.synced_names), disk.names(disk.name_changes()));
            let promised =
                synced.iter().filter(|(name, inode)| is_recording(name) && now.values().any(|it| it == *inode));
            let promised = promised.map(|(name, inode)| (name, disk.files[inode].contents(disk.files[inode].synced)));
            let promised = promised.filter(|(_, bytes)| !is_older(bytes));
            let promised: usize =
                promised.map(|(name, bytes)| judge.open(&format!("{about}: {name} as synced"), &bytes)).sum();
            if found < promised {
                wrong.push(format!(
                    "{about}: {found} of the {promised} samples that were on the disk: {:?}",
                    left.keys()
                ));
            }
        });
        eprintln!("{options:?}: {steps} steps, {states} states, {} recordings opened", judge.opened);
        assert!(wrong.is_empty(), "{options:?}, {} of {states}:\n{}", wrong.len(), wrong.join("\n"));
    }
    assert!(judge.refused.is_empty(), "{} refused:\n{}", judge.refused.len(), judge.refused.join("\n"));
}
