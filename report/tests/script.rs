//! Output of `script`, compared with the installed perf for the corpus, and with the guests' own perf for their recordings.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use bprec_report::{Fields, ScriptOptions, ScriptSummary, Show, Source, script};

fn options(fields: &str) -> ScriptOptions {
    ScriptOptions { fields: Fields::parse(fields).unwrap(), ..ScriptOptions::default() }
}

fn ours(path: &Path, options: &ScriptOptions) -> (String, ScriptSummary) {
    let mut text = Vec::new();
    let mut source = Source::open(path).unwrap();
    let summary = script(&mut source, options, &mut text).unwrap();
    (String::from_utf8(text).unwrap(), summary)
}

/// Parts of names of files whose text differs from perf's even after [`normal`], each with the reason.
const DIFFERENT: [(&str, &str); 3] = [
    ("intel_pt-4.14", "perf decodes the hardware trace into samples of its own"),
    ("aggregatable_perf2", "mappings whose file offset is not a multiple of the page size"),
    ("jit_symbol", "mappings whose file offset is not a multiple of the page size"),
];

/// Reduces user-space frames of call chains to their last twelve bits. perf 6.1 prints offsets in files, and we print addresses. Mappings are aligned
/// to pages, so the last twelve bits of offset and address are equal.
fn normal(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match line.strip_prefix('\t').map(|frame| u64::from_str_radix(frame.trim(), 16)) {
            Some(Ok(ip)) if ip < 1 << 63 => out.push_str(&format!("\tuser {:03x}\n", ip & 0xfff)),
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

fn first_difference(ours: &str, theirs: &str) -> String {
    let differs = ours.lines().zip(theirs.lines()).enumerate().find(|(_, (a, b))| a != b);
    format!("{} and {} lines; {differs:?}", ours.lines().count(), theirs.lines().count())
}

/// Time, task, event and address of every sample are what the installed perf prints.
#[test]
fn samples_are_printed_as_perf_prints_them() {
    const NAME: &str = "samples_are_printed_as_perf_prints_them";
    let files = common::corpus_files();
    let version = Command::new("perf").arg("--version").output();
    if !version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).starts_with("perf version 6.1.")) {
        eprintln!("SKIP {NAME}: perf 6.1 is not installed");
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    let mut compared = 0;
    let mut wrong = Vec::new();
    for file in &files {
        if file.kind.contains("zstd") && !cfg!(feature = "zstd") {
            continue;
        }
        let path = common::corpus_dir().join(&file.name);
        let perf = Command::new("perf")
            .args(["script", "-f", "-F", "pid,tid,time,event,ip", "--symfs"])
            .arg(empty.path())
            .arg("-i")
            .arg(&path)
            .output()
            .unwrap();
        // Files that perf rejects are not compared.
        if !perf.status.success() {
            continue;
        }
        let (text, summary) = ours(&path, &options("pid,tid,time,event,ip"));
        assert_eq!((summary.unreadable, summary.unknown, summary.late), (0, 0, 0), "{}", file.name);
        let (text, theirs) = (normal(&text), normal(&String::from_utf8(perf.stdout).unwrap()));
        let known = DIFFERENT.iter().any(|(part, _)| file.name.contains(part));
        if (text == theirs) == known {
            wrong.push(format!("{}: {}", file.name, first_difference(&text, &theirs)));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared >= 8, "only {compared} files compared");
}

/// Removes from a line of the guests' perf the names that our output cannot have: functions of the kernel and of user space, their files, and
/// tasks. Also returns the BPF program in the line.
fn without_symbols(line: &str) -> (String, String) {
    let unnamed = || {
        let (front, dso) = line.rsplit_once(" (").filter(|_| !line.contains("PERF_RECORD_"))?;
        // A function name may contain blanks, so the address is found from the right: it is the last word that consists of hexadecimal digits.
        let is_address = |word: &str| word.len() >= 4 && word.bytes().all(|b| b.is_ascii_hexdigit());
        let mut front = front;
        loop {
            let (before, word) = front.rsplit_once([' ', '\t'])?;
            if is_address(word) {
                break;
            }
            front = before;
        }
        let program = if dso.starts_with("bpf_prog_") { dso } else { "" };
        Some((front.to_owned(), program.to_owned()))
    };
    let (line, program) = unnamed().unwrap_or_else(|| (line.to_owned(), String::new()));
    // Names of tasks are left out: the guests' perf forgets a task's name when the task ends, although samples may follow.
    match line.find('[') {
        Some(at) if !line.contains("PERF_RECORD_") && !line.starts_with('\t') => (line[at..].to_owned(), program),
        _ => (line, program),
    }
}

/// For the recordings of guests, also big-endian ones, the output equals that of the guests' perf: every sample, every frame and every side-band
/// record, in the same order.
#[test]
fn recordings_of_guests_are_printed_as_their_perf_printed_them() {
    let mut compared = BTreeMap::new();
    for (path, _) in common::recordings() {
        let path = Path::new(&path);
        let Ok(packed) = std::fs::File::open(path.with_extension("script.txt.gz")) else { continue };
        let mut theirs = String::new();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut theirs).unwrap();
        let show = Show { throttle: false, ..Show::ALL };
        let options = ScriptOptions { show, ..options("comm,tid,cpu,time,event,ip,sym,dso") };
        let (text, summary) = ours(path, &options);
        assert_eq!((summary.unreadable, summary.unknown, summary.late), (0, 0, 0), "{}", path.display());
        let ours: Vec<(String, String)> = text.lines().map(without_symbols).collect();
        let mut theirs: Vec<(String, String)> = theirs.lines().map(without_symbols).collect();
        let is_arm64_chain = path.parent().is_some_and(|dir| dir.display().to_string().contains("arm64"));
        if is_arm64_chain && path.ends_with("hw-a-g.data") {
            // Frames that only perf prints are left out: perf guesses the caller of a leaf function in user space from the link register.
            let mut mine = ours.iter().peekable();
            theirs.retain(|line| mine.next_if(|ours| ours.0 == line.0).is_some() || !line.0.starts_with('\t'));
        }
        // The guests' perf does not name some programs: it takes them for a trampoline in the same page.
        let same = |a: &(String, String), b: &(String, String)| a.0 == b.0 && (a.1 == b.1 || b.1.is_empty());
        let differs = ours.iter().zip(&theirs).enumerate().find(|(_, (a, b))| !same(a, b));
        assert_eq!((differs, ours.len()), (None, theirs.len()), "{}", path.display());
        compared.insert(path.to_owned(), ours.len());
    }
    if compared.is_empty() {
        eprintln!(
            "SKIP recordings_of_guests_are_printed_as_their_perf_printed_them: no recordings beside the checkout"
        );
        return;
    }
    assert!(compared.len() >= 15, "{compared:?}");
}
