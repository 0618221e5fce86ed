//! `bprec recover`: results for cut-off and damaged recordings, and files that it must not change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bprec_format::feature::{Feature, SectionCheck, SectionWriter};
use bprec_format::{Events, File, RecordType};

/// Samples of the first event of the cut-off fixture: the number of lines of `perf script -F event`.
const CUT_OFF_SAMPLES: usize = 254;

fn bprec(arguments: &[&str], path: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bprec")).args(arguments).arg(path).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

fn recover(path: &Path) -> (bool, String) {
    bprec(&["recover"], path)
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// All files of a directory.
fn files(dir: &tempfile::TempDir) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap_or_default()))
        .collect()
}

fn names(dir: &tempfile::TempDir) -> Vec<String> {
    files(dir).into_keys().collect()
}

/// Lines of samples that `bprec script` prints.
fn printed(path: &Path) -> usize {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bprec"));
    let output = command.args(["script", "-F", "time,ip", "-i"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().count()
}

/// Returns the number of samples of the first event, and of programs in the features; every record must be complete.
fn contents(bytes: &[u8]) -> (usize, u32) {
    let file = File::parse(bytes).unwrap();
    let events = Events::new(file.attrs(), file.endian()).unwrap();
    let records: Vec<_> = file.records().map(Result::unwrap).collect();
    let is_sample = |record: &&_| events.index_of(record) == Some(0);
    let samples = records.iter().filter(|record| record.kind == RecordType::SAMPLE).filter(is_sample).count();
    let programs = file.feature(Feature::BPF_PROG_INFO.0);
    (samples, programs.and_then(|(bytes, _)| file.endian().u32_at(bytes, 0)).unwrap_or(0))
}

/// Asserts that perf opens the file; without perf, prints a message.
fn perf_opens(path: &Path) {
    match Command::new("perf").args(["script", "-f", "-F", "event", "-i"]).arg(path).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => println!("SKIP {}: perf is not installed", std::thread::current().name().unwrap_or("recover")),
    }
}

/// A copy of the recording that was cut off, with its journal.
fn cut_off(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("perf.data");
    fs::copy(fixture("recordings/linux-6.1/cut-off.data"), &path).unwrap();
    fs::copy(fixture("recordings/linux-6.1/cut-off.data.journal"), dir.path().join("perf.data.journal")).unwrap();
    path
}

/// Sets the size of a record to 0.
fn damage(path: &Path, number: usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = File::parse(&bytes).unwrap().records().nth(number).unwrap().unwrap().offset as usize;
    bytes[at + 6..at + 8].fill(0);
    fs::write(path, &bytes).unwrap();
}

/// Makes the file of a killed perf: a header without a size, and a last record that may be incomplete.
fn killed_perf(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("perf.data");
    let mut bytes = fs::read(fixture("corpus/perf.data.singleprocess-3.8")).unwrap();
    let data_end =
        u64::from_le_bytes(bytes[40..48].try_into().unwrap()) + u64::from_le_bytes(bytes[48..56].try_into().unwrap());
    bytes.truncate(data_end as usize - 4);
    bytes[48..56].fill(0);
    fs::write(&path, &bytes).unwrap();
    path
}

#[test]
fn what_perf_left_behind_is_made_whole_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = killed_perf(&dir);
    let original = fs::read(&path).unwrap();
    let before = printed(&path);
    assert!(before > 0);

    let (done, text) = recover(&path);
    assert!(done && text.contains("cut off while it was written"), "{text}");
    let recovered = dir.path().join("perf.data.recovered");
    assert_eq!(printed(&recovered), before);
    assert_ne!(fs::read(&recovered).unwrap()[48..56], [0; 8], "the header says how much there is");
    assert_eq!(fs::read(&path).unwrap(), original, "the source is unchanged");

    let after = files(&dir);
    assert_eq!(after.len(), 2, "the directory has only the source and the recovered recording");
    assert!(recover(&path).0 && files(&dir) == after, "a second run changes nothing");
    let (done, text) = recover(&recovered);
    assert!(done && text.contains("nothing to do"), "{text}");
    assert_eq!(files(&dir), after);
}

#[test]
fn readers_of_what_was_cut_off_name_the_command_that_mends_it() {
    const REMEDY: &str = "`bprec recover` turns it into a file that perf opens";
    let dir = tempfile::tempdir().unwrap();
    let path = cut_off(&dir);
    let said = |path: &Path, arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_bprec")).args(arguments).arg(path).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ").replace("# ", "")
    };
    let other = fixture("recordings/linux-6.1/ratio.data");
    let other = other.to_str().unwrap();
    let readers: [&[&str]; 3] = [&["report", "--notes", "-i"], &["script", "-i"], &["diff", other]];
    for reader in readers {
        assert_eq!(said(&path, reader).matches(REMEDY).count(), 1, "{reader:?}: {}", said(&path, reader));
    }
    assert!(!said(&path, &["recover"]).contains(REMEDY));
    for reader in readers {
        assert!(!said(&dir.path().join("perf.data.recovered"), reader).contains(REMEDY), "{reader:?}");
    }
}

/// A copy of a complete recording lost its end. The recovered part has the names and run counts of the programs that its records still have.
#[test]
fn a_part_of_a_recording_says_how_much_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let mut bytes = fs::read(fixture("recordings/linux-7.2/ratio.data")).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (data_offset, announced) = (word(40), word(48));
    let there = announced * 9 / 10;
    bytes.truncate((data_offset + there) as usize);
    fs::write(&path, &bytes).unwrap();
    let (done, text) = recover(&path);
    let missing = format!("{} of {announced} bytes of records (10.0 %)", announced - there);
    assert!(done && text.contains(&missing) && !text.contains("is complete"), "{text}");

    let printed = |path: &Path, arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_bprec")).args(arguments).arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let recovered = dir.path().join("perf.data.recovered");
    for part in [&path, &recovered] {
        let counters = printed(part, &["report", "--counters", "-i"]);
        assert!(counters.contains("account_syscall_exit") && !counters.contains("[no name]"), "{counters}");
        let report = printed(part, &["report", "--all", "-i"]);
        assert!(!report.contains("fewer than two snapshots"), "{report}");
    }
    perf_opens(&recovered);
}

#[test]
fn in_its_place_the_one_before_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = killed_perf(&dir);
    let original = fs::read(&path).unwrap();
    let before = printed(&path);
    fs::write(dir.path().join("perf.data.old"), "an older one").unwrap();
    let (done, text) = bprec(&["recover", "--in-place"], &path);
    assert!(!done && text.contains("perf.data.old exists"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), original);
    assert_eq!(names(&dir), ["perf.data", "perf.data.old"]);

    fs::remove_file(dir.path().join("perf.data.old")).unwrap();
    let (done, text) = bprec(&["recover", "--in-place"], &path);
    assert!(done && text.contains("perf.data.old"), "{text}");
    assert_eq!(fs::read(dir.path().join("perf.data.old")).unwrap(), original);
    assert_eq!(printed(&path), before);
    assert_eq!(names(&dir), ["perf.data", "perf.data.old"]);
}

#[test]
fn whole_recordings_are_left_alone_and_others_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let whole = fs::read(fixture("corpus/ro_sample.perf")).unwrap();
    for arguments in [&["recover"][..], &["recover", "--in-place"]] {
        fs::write(&path, &whole).unwrap();
        let (done, text) = bprec(arguments, &path);
        assert!(done && text.contains("nothing to do"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), whole);

        fs::write(&path, b"not a recording").unwrap();
        let (done, text) = bprec(arguments, &path);
        assert!(!done && text.contains("not a recording by bprec or perf"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), b"not a recording");
        assert_eq!(names(&dir), ["perf.data"], "the directory has only the recording");
    }
}

#[test]
fn records_behind_a_damaged_one_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = cut_off(&dir);
    let records = File::parse(&fs::read(&path).unwrap()).unwrap().records().flatten().count();
    assert_eq!(contents(&fs::read(&path).unwrap()).0, CUT_OFF_SAMPLES);
    damage(&path, 60);
    let before = files(&dir);

    let (done, text) = recover(&path);
    assert!(done && text.contains("bytes skipped") && text.contains("from its journal"), "{text}");
    let recovered = fs::read(dir.path().join("perf.data.recovered")).unwrap();
    let (samples, programs) = contents(&recovered);
    assert!(samples >= CUT_OFF_SAMPLES - 1 && programs > 0, "{samples} samples, {programs} programs");
    assert_eq!(File::parse(&recovered).unwrap().records().count(), records - 1);
    perf_opens(&dir.path().join("perf.data.recovered"));
    let mut after = files(&dir);
    after.remove("perf.data.recovered");
    assert_eq!(after, before, "recording and journal are unchanged");

    let (done, text) = bprec(&["recover", "--in-place"], &path);
    assert!(done && text.contains("from its journal"), "{text}");
    let after = files(&dir);
    assert_eq!(after["perf.data"], recovered);
    assert_eq!(after["perf.data.old"], before["perf.data"]);
    assert_eq!(after["perf.data.old.journal"], before["perf.data.journal"]);
    assert_eq!(after.len(), 4);
}

#[test]
fn where_only_the_end_is_missing_only_the_end_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = cut_off(&dir);
    let before = fs::read(&path).unwrap();
    let file = File::parse(&before).unwrap();
    let data = file.data();
    let records_end = file.records().flatten().last().map(|it| it.offset + it.total_bytes() as u64).unwrap();
    let (done, text) = bprec(&["recover", "--in-place"], &path);
    assert!(done && text.contains("from its journal"), "{text}");
    assert_eq!(names(&dir), ["perf.data"]);
    let after = fs::read(&path).unwrap();
    let (from, to) = (data.offset as usize, records_end as usize);
    assert!(after[from..to] == before[from..to]);
    assert_eq!(contents(&after).0, CUT_OFF_SAMPLES);
    perf_opens(&path);
    let (done, text) = bprec(&["recover", "--in-place"], &path);
    assert!(done && text.contains("nothing to do") && fs::read(&path).unwrap() == after, "{text}");
}

/// A header with 0 bytes of records means a cut-off recording; this recording has no complete record, so it cannot be repaired.
#[test]
fn a_recording_without_a_whole_record_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = cut_off(&dir);
    fs::remove_file(dir.path().join("perf.data.journal")).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(File::parse(&bytes).unwrap().data().offset as usize + 20);
    fs::write(&path, &bytes).unwrap();
    for _ in 0..2 {
        let (done, text) = bprec(&["recover", "--in-place"], &path);
        assert!(!done && text.contains("no record that can be kept"), "{text}");
        assert!(fs::read(&path).unwrap() == bytes);
        assert_eq!(names(&dir), ["perf.data"]);
    }
}

/// A damaged size that reaches beyond the end of the file looks like an incomplete last record; recovery must still find the records after it.
#[test]
fn records_behind_one_that_seems_cut_off_are_no_tail() {
    let dir = tempfile::tempdir().unwrap();
    let path = cut_off(&dir);
    let mut bytes = fs::read(&path).unwrap();
    let at = File::parse(&bytes).unwrap().records().nth(480).unwrap().unwrap().offset as usize;
    bytes[at + 6..at + 8].copy_from_slice(&0xfff8u16.to_le_bytes());
    assert!(at + 0xfff8 > bytes.len());
    fs::write(&path, &bytes).unwrap();
    let (done, text) = bprec(&["recover", "--in-place"], &path);
    assert!(done && text.contains("bytes skipped"), "{text}");
    assert!(contents(&fs::read(&path).unwrap()).0 >= CUT_OFF_SAMPLES - 1);
    assert!(fs::read(dir.path().join("perf.data.old")).unwrap() == bytes);
}

#[cfg(unix)]
#[test]
fn a_journal_is_found_beside_what_a_link_leads_to() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("links")).unwrap();
    let path = cut_off(&dir);
    let link = dir.path().join("links/latest");
    std::os::unix::fs::symlink("../perf.data", &link).unwrap();
    let (done, text) = recover(&link);
    assert!(done, "{text}");
    let recovered = fs::read(path.with_extension("data.recovered")).unwrap();
    assert!(contents(&recovered).1 > 0, "the recovered recording has programs of the journal");
}

/// A pipe or an endless file in place of the journal does not block the command, and is not read.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_no_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = cut_off(&dir);
    let journal = dir.path().join("perf.data.journal");
    let make_pipe = || assert!(Command::new("mkfifo").arg(&journal).status().unwrap().success());
    let make_link = || std::os::unix::fs::symlink("/dev/zero", &journal).unwrap();
    for make in [&make_pipe as &dyn Fn(), &make_link] {
        fs::remove_file(&journal).unwrap();
        make();
        let out = dir.path().join("out.data");
        let rewrite = ["rewrite", "-o", out.to_str().unwrap(), "-i"];
        for arguments in [&["report", "-i"][..], &["script", "-F", "time", "-i"], &rewrite, &["recover"]] {
            let (done, text) = bprec(arguments, &path);
            assert!(done, "{arguments:?}: {text}");
        }
        let (done, text) = bprec(&["recover", "--in-place"], &path);
        assert!(done, "{text}");
        assert!(fs::symlink_metadata(&journal).is_ok(), "a pipe or link in place of the journal is not removed");
        fs::copy(fixture("recordings/linux-6.1/cut-off.data"), &path).unwrap();
    }
}

/// Numbers that are the same in every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % bound.max(1) as u64) as usize
    }

    fn lie(&mut self, near: u32) -> u32 {
        let lies = [0, 1, near.wrapping_sub(1), near.wrapping_add(1), 0x7fff_ffff, u32::MAX];
        *lies.get(self.below(lies.len() + 1)).unwrap_or(&(self.below(1 << 32) as u32))
    }
}

/// Offsets, kinds and lengths of the frames of a journal.
fn frames(journal: &[u8]) -> Vec<(usize, u32, usize)> {
    let word = |at: usize| Some(u32::from_le_bytes(journal.get(at..at + 4)?.try_into().ok()?));
    let mut frames = Vec::new();
    let mut at = 0;
    while let (Some(kind), Some(length)) = (word(at), word(at + 4)) {
        frames.push((at, kind, length as usize));
        at += 8 + length as usize;
    }
    frames
}

/// Damages kinds, lengths and contents of frames; cuts the journal, and repeats frames.
fn damage_journal(journal: &mut Vec<u8>, frames: &[(usize, u32, usize)], numbers: &mut Numbers) {
    for _ in 0..=numbers.below(3) {
        let (at, kind, length) = frames[numbers.below(frames.len())];
        let (place, value) = match numbers.below(10) {
            0 | 1 => (at + 4, numbers.lie(length as u32)),
            2 => (at, [numbers.below(40) as u32, numbers.lie(kind)][numbers.below(2)]),
            3 => {
                journal.truncate(at + numbers.below(8 + length));
                continue;
            }
            4 => {
                let again = journal.get(at..at + 8 + length).unwrap_or_default().to_vec();
                journal.extend(again);
                continue;
            }
            _ => (at + 8 + numbers.below(length), numbers.lie(numbers.0 as u32)),
        };
        if let Some(bytes) = journal.get_mut(place..place + 4) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Recordings and their journals are damaged. In a new file and in place, the recovered content equals the content that a reader sees; perf opens it,
/// and a second recovery changes nothing. `BPREC_JOURNALS` is the number of damaged pairs.
#[test]
fn damaged_journals_and_records_leave_nothing_that_perf_stumbles_over() {
    let (recording, journal) = {
        let dir = tempfile::tempdir().unwrap();
        let path = cut_off(&dir);
        (fs::read(&path).unwrap(), fs::read(dir.path().join("perf.data.journal")).unwrap())
    };
    let frames = frames(&journal);
    let data = File::parse(&recording).unwrap().data().offset as usize;
    let rounds = std::env::var("BPREC_JOURNALS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(100);
    let mut left_out = 0;
    for round in 0..rounds {
        let mut numbers = Numbers(round);
        let dir = tempfile::tempdir().unwrap();
        let (path, beside) = (dir.path().join("perf.data"), dir.path().join("perf.data.recovered"));
        let (mut damaged, mut of_journal) = (recording.clone(), journal.clone());
        damage_journal(&mut of_journal, &frames, &mut numbers);
        if numbers.below(2) == 0 {
            for _ in 0..=numbers.below(2) {
                match numbers.below(3) {
                    0 => damaged.truncate(data + numbers.below(damaged.len() - data)),
                    _ => {
                        let at = data + numbers.below(damaged.len().saturating_sub(data + 8));
                        let value = numbers.lie(8);
                        damaged.iter_mut().skip(at).zip(value.to_le_bytes()).for_each(|(to, byte)| *to = byte);
                    }
                }
            }
        }
        fs::write(&path, &damaged).unwrap();
        fs::write(dir.path().join("perf.data.journal"), &of_journal).unwrap();
        let (done, text) = recover(&path);
        if !done {
            assert!(text.contains("records"), "round {round}: {text}");
            continue;
        }
        left_out += usize::from(text.contains("left out: "));
        assert_eq!(fs::read(&path).unwrap(), damaged, "round {round}: the source is unchanged");
        let copy = fs::read(&beside).unwrap();
        let file = File::parse(&copy).unwrap();
        let bits: Vec<u8> = file.features().iter().map(|(bit, _)| *bit).collect();
        let sections: Vec<(Feature, &[u8])> =
            bits.iter().map(|bit| (Feature(*bit), file.feature(*bit).unwrap().0)).collect();
        let check = SectionCheck::new(sections.iter().copied(), file.endian(), SectionWriter::Ours);
        for (feature, bytes) in &sections {
            assert_eq!(check.check(*feature, bytes), Ok(()), "round {round}: {feature}");
        }

        let (done, text) = bprec(&["recover", "--in-place"], &path);
        assert!(done && (text.contains("is complete") || text.contains("is incomplete")), "round {round}: {text}");
        let in_place = fs::read(&path).unwrap();
        let records = |bytes: &[u8]| {
            File::parse(bytes).unwrap().records().map(|record| record.unwrap().bytes.to_vec()).collect::<Vec<_>>()
        };
        let (of_copy, of_place) = (records(&copy), records(&in_place));
        assert!(of_place == of_copy, "round {round}: {} and {} records: {text}", of_copy.len(), of_place.len());
        if round % 20 == 0 {
            perf_opens(&beside);
            perf_opens(&path);
        }
        let after = files(&dir);
        let (done, text) = bprec(&["recover", "--in-place"], &path);
        assert!(done && text.contains("nothing to do"), "round {round}: {text}");
        assert!(files(&dir) == after, "round {round}: a second run changes something");
    }
    assert!(rounds < 100 || left_out > 10, "{left_out} of {rounds} journals with damaged sections");
}
