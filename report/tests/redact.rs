//! Redaction: outputs of redacted recordings contain nothing that identifies the machine, and costs of programs do not change.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;
#[path = "support/outputs.rs"]
mod outputs;

use std::collections::{HashMap, HashSet};

use bprec_format::bpf::btf::{BpfBtfSection, Btf};
use bprec_format::bpf::prog_info::BpfProgInfoSection;
use bprec_format::bprec::state::{self, State};
use bprec_format::feature::{BuildIds, Feature, SectionContent as _, Text, TextList};
use bprec_format::records::{Mmap2File, Payload};
use bprec_format::{CONTEXT_MAX, Container, Events, File, Metadata, Record, RecordType, misc};
use bprec_report::{AnnotateOptions, Document, Input, Options, Redact, Session, by_prog};
use outputs::{outputs, redacted};

/// Secrets of a recording.
#[derive(Default)]
struct Secrets {
    /// Texts by their first four bytes.
    texts: HashMap<[u8; 4], HashSet<Vec<u8>>>,
    addresses: HashSet<u64>,
}

/// Texts that may stay: names that exist on all machines, and words of reports and of the format.
const PUBLIC: [&str; 14] = [
    "bprec",
    "bprec-load",
    "perf",
    "swapper",
    // Names of kernel threads that are also names of kernel functions.
    "khugepaged",
    "kthreadd",
    "[heap]",
    "[stack]",
    "[vdso]",
    "[vvar]",
    "//anon",
    "[vsyscall]",
    "[uprobes]",
    "[kernel.kallsyms]",
];

impl Secrets {
    fn text(&mut self, text: &[u8]) {
        // Texts of fewer than four bytes may occur by chance.
        if let Some(start) = text.first_chunk::<4>().filter(|_| !PUBLIC.iter().any(|word| word.as_bytes() == text)) {
            self.texts.entry(*start).or_default().insert(text.to_vec());
        }
    }

    fn address(&mut self, addr: u64) {
        const VSYSCALL: std::ops::Range<u64> = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;
        // Smaller values may be ordinary numbers.
        if (1 << 32..CONTEXT_MAX).contains(&addr) && !VSYSCALL.contains(&addr) {
            self.addresses.insert(addr);
        }
    }

    fn of(bytes: &[u8]) -> Secrets {
        let mut secrets = Secrets::default();
        let mut events: Option<Events> = None;
        let mut last: Option<Metadata<'_>> = None;
        let is_stream = matches!(Container::detect(bytes), Ok(Container::Pipe(_)));
        let _ = common::for_each_record(bytes, &mut |record, metadata: &Metadata<'_>| {
            let known = events.as_ref().map_or(0, |events| events.all().len());
            if known != metadata.attrs().len() {
                events = Events::new(metadata.attrs(), metadata.endian()).ok();
            }
            if let Some(events) = &events {
                secrets.record(record, events, &metadata.event_names());
            }
            if is_stream && last.as_ref().is_none_or(|last| last.revision() != metadata.revision()) {
                last = Some(metadata.redescribed(Vec::new(), owned(metadata)));
            }
        });
        match last {
            Some(metadata) => secrets.sections(&metadata),
            None => secrets.sections(&Metadata::of_file(&File::parse(bytes).unwrap())),
        }
        secrets
    }

    fn record(&mut self, record: &Record<'_>, events: &Events, names: &[String]) {
        let Some(index) = events.index_of(record) else { return };
        let layout = &events.all()[index].layout;
        let in_kernel = matches!(record.misc & misc::CPUMODE_MASK, misc::KERNEL | misc::GUEST_KERNEL);
        if record.kind == RecordType::SAMPLE {
            let Ok(fields) = layout.sample(record.body(), record.offset).and_then(|sample| sample.decode()) else {
                return;
            };
            if names[index] == state::EVENT_NAME {
                let state = State::decode(fields.raw.unwrap_or_default(), 0, layout.endian());
                return state.map_or((), |state| self.state(&state));
            }
            let chain = fields.callchain.iter().flat_map(|chain| chain.iter());
            fields.ip.into_iter().chain(chain).for_each(|addr| self.address(addr));
            return;
        }
        let mut file = |name: &[u8], file: Option<Mmap2File>| {
            if !in_kernel {
                self.text(name);
                if let Some(Mmap2File::BuildId(id)) = file {
                    self.text(id.as_bytes());
                }
            }
        };
        match Payload::decode(record, layout).map(|(payload, _)| payload) {
            Ok(Payload::Mmap(map)) => {
                file(map.filename, None);
                self.address(map.addr);
            }
            Ok(Payload::Mmap2(map)) => {
                file(map.filename, Some(map.file));
                self.address(map.addr);
            }
            Ok(Payload::Comm(comm)) => self.text(comm.comm),
            Ok(Payload::Cgroup(cgroup)) => self.text(cgroup.path),
            Ok(Payload::Ksymbol(symbol)) => self.address(symbol.addr),
            _ => {}
        }
    }

    fn state(&mut self, state: &State) {
        match state {
            State::Program(program) => {
                for owner in &program.owners {
                    self.text(&owner.comm);
                    self.text(&owner.cgroup);
                }
                program.pins.iter().for_each(|pin| self.text(pin));
                program.metadata.iter().for_each(|(_, value)| self.text(value));
            }
            State::KernelSymbols(symbols) => symbols.iter().for_each(|symbol| self.address(symbol.addr)),
            State::FileFunctions(functions) => self.text(&functions.path),
            _ => {}
        }
    }

    fn sections(&mut self, metadata: &Metadata<'_>) {
        let endian = metadata.endian();
        let mut files = HashMap::<u32, HashSet<u32>>::new();
        for section in metadata.sections() {
            let (bytes, offset) = (&section.bytes[..], section.offset);
            match section.feature {
                Feature::HOSTNAME => self.text(Text::parse(bytes, offset, endian).unwrap().value.0),
                Feature::CMDLINE => {
                    let words = TextList::parse(bytes, offset, endian).unwrap().value.0;
                    // Only the paths of the command line are secrets: its other words may also occur in reports.
                    words.iter().filter(|word| word.starts_with(b"/")).for_each(|word| self.text(word));
                }
                Feature::BUILD_ID => {
                    for id in BuildIds::parse(bytes, offset, endian).unwrap().value.0 {
                        if id.cpumode == misc::USER {
                            self.text(id.id.as_bytes());
                            self.text(id.filename);
                        }
                    }
                }
                Feature::BPF_PROG_INFO => {
                    for info in BpfProgInfoSection::new(bytes, offset, endian).unwrap().flatten() {
                        let addresses = info.jited_ksyms().into_iter().chain(info.jited_line_info());
                        addresses.flat_map(|all| all.iter()).for_each(|addr| self.address(addr));
                        let lines = info.line_info().into_iter().flat_map(|lines| lines.iter());
                        files
                            .entry(info.btf_id().unwrap_or(0))
                            .or_default()
                            .extend(lines.map(|line| line.file_name_off));
                    }
                }
                _ => {}
            }
        }
        for section in metadata.feature(Feature::BPF_BTF) {
            for (id, blob) in BpfBtfSection::new(&section.bytes, section.offset, endian).unwrap().flatten() {
                let Ok(btf) = Btf::parse(blob) else { continue };
                for file in files.get(&id).into_iter().flatten() {
                    self.text(btf.name(*file).unwrap_or_default());
                }
            }
        }
    }

    /// Finds the first secret in an output.
    fn found_in(&self, output: &[u8]) -> Option<String> {
        let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte));
        for (at, start) in output.windows(4).enumerate() {
            let Some(texts) = self.texts.get(start) else { continue };
            let is_alone = |text: &&Vec<u8>| {
                let end = at + text.len();
                // Names of modules stay, and a kernel thread may have the name of a module.
                let is_module = output.get(end..).is_some_and(|rest| rest.starts_with(b".ko"));
                output[at..].starts_with(text)
                    && !is_module
                    && !is_word(output.get(end))
                    && !is_word(output[..at].last())
            };
            if let Some(text) = texts.iter().find(is_alone) {
                let end = (at + text.len() + 40).min(output.len());
                let around = &output[at.saturating_sub(40)..end];
                return Some(format!("{} in {}", text.escape_ascii(), around.escape_ascii()));
            }
        }
        for digits in output.split(|byte| !byte.is_ascii_hexdigit()).filter(|run| (9..=16).contains(&run.len())) {
            let addr = u64::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
            if self.addresses.contains(&addr) {
                return Some(format!("{addr:#x}, as text"));
            }
        }
        None
    }

    /// Finds the first address in a recording, in the byte order of the recording. In the other order, small numbers can look like the start of the
    /// kernel.
    fn address_in(&self, recording: &[u8]) -> Option<String> {
        let of = if recording.starts_with(b"2ELIFREP") { u64::from_be_bytes } else { u64::from_le_bytes };
        let mut words = recording.windows(8).map(|word| of(word.try_into().unwrap()));
        words.find(|word| self.addresses.contains(word)).map(|addr| format!("{addr:#x}"))
    }
}

fn owned(metadata: &Metadata<'_>) -> Vec<bprec_format::FeatureSection<'static>> {
    let sections = metadata.sections().iter();
    let owned = sections.map(|section| bprec_format::FeatureSection {
        feature: section.feature,
        offset: section.offset,
        bytes: section.bytes.to_vec().into(),
        is_whole: section.is_whole,
    });
    owned.collect()
}

fn inputs() -> Vec<(String, Vec<u8>)> {
    let corpus = common::corpus_files().into_iter().map(|file| (file.name, file.bytes));
    let inputs = corpus.chain(common::recordings()).chain(common::fixtures());
    let fits = |(name, bytes): &(String, Vec<u8>)| {
        bytes.len() < 400_000 && (cfg!(feature = "zstd") || !(name.ends_with("/z.data") || name.contains("compressed")))
    };
    // This recording is already redacted: it contains names that redaction generates.
    let is_redacted = |name: &str| name.ends_with("busy.data");
    inputs
        .filter(|(name, _)| !is_redacted(name))
        .filter(fits)
        .filter(|(_, bytes)| Container::detect(bytes).is_ok())
        .collect()
}

#[test]
fn no_secret_is_in_a_redacted_recording_or_in_what_is_made_of_it() {
    let (mut checked, mut texts, mut addresses, mut seen, mut seen_addresses) = (0, 0, 0, 0, 0);
    for (name, bytes) in inputs() {
        let Some(recording) = redacted(&bytes, Redact::Machine) else { continue };
        let secrets = Secrets::of(&bytes);
        texts += secrets.texts.values().map(HashSet::len).sum::<usize>();
        addresses += secrets.addresses.len();
        seen += usize::from(secrets.found_in(&bytes).is_some());
        seen_addresses += usize::from(secrets.address_in(&bytes).is_some());
        assert_eq!(secrets.found_in(&recording), None, "{name}");
        assert_eq!(secrets.address_in(&recording), None, "{name}");
        // To save time, all outputs are made only for fixtures, which have all kinds of data, and for every eighth recording.
        if name.starts_with("linux-7.2") || checked % 8 == 0 {
            for (what, output) in outputs(&recording) {
                assert_eq!(secrets.found_in(&output), None, "{name}: {what}");
            }
        }
        checked += 1;
    }
    assert!(
        checked > 30 && texts > 1000 && addresses > 10_000,
        "{checked} recordings, {texts} texts, {addresses} addresses"
    );
    assert!(
        seen > 30 && seen_addresses > 30,
        "secrets were found in only {seen} and {seen_addresses} of the original recordings"
    );
}

/// Lines of a JSON document, without members that redaction changes, such as owners, attach points and pins.
fn without_names(document: &[u8]) -> Vec<String> {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                for name in [
                    "owners",
                    "holders",
                    "owner",
                    "attachments",
                    "pins",
                    "metadata",
                    "target",
                    "path",
                    "hostname",
                    "machine_id",
                    "boot_id",
                    "attached",
                ] {
                    fields.remove(name);
                }
                fields.values_mut().for_each(strip);
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::from_slice(document).unwrap();
    strip(&mut value);
    // All programs of the fixtures belong to one process, whose name and pseudonym are left out.
    let is_comm = |word: &&str| word.starts_with("comm-") || *word == "bprec-load";
    let words =
        |line: &str| line.split(['/', ' ', '"']).filter(|word| !is_comm(word)).map(str::to_owned).collect::<Vec<_>>();
    serde_json::to_string_pretty(&value).unwrap().lines().map(|line| words(line).join(" ")).collect()
}

/// Finds the first difference between two texts.
fn difference<'t>(before: &'t [String], after: &'t [String]) -> Option<(&'t String, &'t String)> {
    assert_eq!(before.len(), after.len());
    before.iter().zip(after).find(|(before, after)| before != after)
}

#[test]
fn what_programs_cost_is_as_before() {
    for (name, bytes) in common::fixtures().into_iter().filter(|(name, _)| !name.contains("cut-off")) {
        let recording = redacted(&bytes, Redact::Machine).unwrap();
        let json = |bytes: &[u8]| {
            let (mut json, mut table) = (Vec::new(), Vec::new());
            let report = by_prog(&Input::from_bytes("recording", bytes.to_vec()), &Options::default()).unwrap();
            report.write_json(&mut json).unwrap();
            report.write_table(&mut table, usize::MAX).unwrap();
            (without_names(&json), String::from_utf8(table).unwrap())
        };
        let ((before, table), (after, new_table)) = (json(&bytes), json(&recording));
        assert_eq!(difference(&before, &after), None, "{name}");
        // The owner of a program is in the last column.
        let before_owner = |line: &str| {
            let words = line
                .split_inclusive(' ')
                .take_while(|word| !word.starts_with("comm-") && !word.starts_with("bprec-load"));
            words.collect::<String>()
        };
        let rows = |table: &str| {
            let rows = table.lines().filter(|line| !line.starts_with(['#', '-']));
            rows.map(before_owner).collect::<Vec<_>>()
        };
        assert_eq!(difference(&rows(&table), &rows(&new_table)), None, "{name}");

        // Calls in the listing of the code have the same targets as before.
        let query = Options { programs: vec!["*".parse().unwrap()], ..Options::default() };
        let code = |bytes: &[u8]| {
            let input = Input::from_bytes("recording", bytes.to_vec());
            let options = AnnotateOptions { query: query.clone(), ..AnnotateOptions::default() };
            let mut json = Vec::new();
            if let Ok(code) = Session::open(&input).unwrap().annotate(&options) {
                code.write_json(&mut json).unwrap();
            }
            without_addresses(&String::from_utf8(json).unwrap())
        };
        assert_eq!(difference(&code(&bytes), &code(&recording)), None, "{name}");
    }
}

/// Lines of a text without file names and machine code; each long hexadecimal number is replaced by an X.
fn without_addresses(text: &str) -> Vec<String> {
    // `mov` instructions are left out, too: on arm64, they load the parts of an address.
    let left_out = ["\"file\":", "\"bytes\":", "\"text\": \"mov"];
    let kept = text.lines().filter(|line| !left_out.iter().any(|part| line.contains(part)));
    let is_address = |digits: &str| digits.len() > 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let word = |word: &str| {
        let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
        let digits = word[..end].trim_start_matches("0x");
        if is_address(digits) { format!("X{}", &word[end..]) } else { word.to_owned() }
    };
    kept.map(|line| line.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).map(word).collect()).collect()
}

#[test]
fn programs_have_no_names_and_no_code_where_that_is_asked_for() {
    for (name, bytes) in common::fixtures() {
        let Ok(file) = File::parse(&bytes) else { continue };
        let mut secrets = Secrets::default();
        for section in Metadata::of_file(&file).feature(Feature::BPF_PROG_INFO) {
            for info in BpfProgInfoSection::new(&section.bytes, section.offset, file.endian()).unwrap().flatten() {
                // Names of the recorder's own programs also occur as words of reports.
                secrets.text(info.name().filter(|name| !name.starts_with(b"bprec_")).unwrap_or_default());
                secrets.text(&info.tag().unwrap().0);
                secrets.text(info.xlated_insns().unwrap_or_default());
            }
        }
        let recording = redacted(&bytes, Redact::MachineAndPrograms).unwrap();
        assert_eq!(secrets.found_in(&recording), None, "{name}");
        let rows = |bytes: &[u8]| {
            let report = by_prog(&Input::from_bytes("recording", bytes.to_vec()), &Options::default()).unwrap();
            let rows = report.events.iter().flat_map(|event| &event.rows);
            rows.map(|row| (report.programs[row.program].id, format!("{:?}", row.line))).collect::<Vec<_>>()
        };
        assert_eq!(rows(&bytes).len(), rows(&recording).len(), "{name}");
    }
}

/// The numbers in a document and their nesting, without texts and without members that redaction changes. Lists are sorted by their
/// content, because names decide the order of entries with equal numbers.
fn numbers(document: &[u8]) -> serde_json::Value {
    use serde_json::Value;
    fn strip(value: &mut Value) {
        match value {
            Value::String(text) => text.clear(),
            Value::Object(fields) => {
                // These members have sets of names, or facts about types and code, which redaction changes.
                for name in ["owners", "pins", "metadata", "tag", "notes", "btf_id", "jited_bytes"] {
                    fields.remove(name);
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => {
                items.iter_mut().for_each(strip);
                items.sort_by_key(Value::to_string);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut value = serde_json::from_slice(document).unwrap();
    strip(&mut value);
    value
}

#[test]
fn numbers_and_trees_are_as_before_at_both_levels() {
    let mut with_chains = 0;
    for (name, bytes) in common::fixtures().into_iter().filter(|(name, _)| !name.contains("cut-off")) {
        let documents = |bytes: &[u8]| {
            let input = Input::from_bytes("recording", bytes.to_vec());
            let (mut programs, mut trees) = (Vec::new(), Vec::new());
            by_prog(&input, &Options { all: true, ..Options::default() }).unwrap().write_json(&mut programs).unwrap();
            let session = Session::open(&input).unwrap();
            let made = session.trees(&Options::default(), 0.0).map_err(|error| error.to_string());
            let lines = made.map(|made| {
                made.write_json(&mut trees).unwrap();
                let mut table = Vec::new();
                made.write_table(&mut table, usize::MAX).unwrap();
                String::from_utf8(table).unwrap().lines().filter(|line| !line.starts_with('#')).count()
            });
            let trees_at = |trees: &[u8]| (!trees.is_empty()).then(|| numbers(trees));
            (numbers(&programs), trees_at(&trees), lines)
        };
        let before = documents(&bytes);
        for level in [Redact::Machine, Redact::MachineAndPrograms] {
            let after = documents(&redacted(&bytes, level).unwrap());
            assert_eq!(before.2, after.2, "{name}, {level:?}: the trees have different lines");
            assert!(before.0 == after.0, "{name}, {level:?}: programs differ");
            assert!(before.1 == after.1, "{name}, {level:?}: trees differ");
        }
        let mut table = Vec::new();
        let input = Input::from_bytes("recording", redacted(&bytes, Redact::MachineAndPrograms).unwrap());
        by_prog(&input, &Options { all: true, ..Options::default() }).unwrap().write_json(&mut table).unwrap();
        let text = String::from_utf8(table).unwrap();
        for at in text.match_indices("tail_call:").map(|(at, word)| at + word.len()) {
            assert!(text[at..].starts_with("map-"), "{name}: {}", &text[at..at + 20]);
            with_chains += 1;
        }
    }
    assert!(with_chains > 1, "{with_chains} tail calls");
}
