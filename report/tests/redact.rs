//! Redaction: what recordings say of their machine is in nothing that is made of the redacted ones, and what programs cost is as before.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::collections::{HashMap, HashSet};
use std::io::{Cursor, Read};

use bprec_format::bpf::btf::{BpfBtfSection, Btf};
use bprec_format::bpf::prog_info::BpfProgInfoSection;
use bprec_format::feature::{BuildIds, Feature, Payload as _, Text, TextList};
use bprec_format::records::{Mmap2File, Payload};
use bprec_format::state::{self, State};
use bprec_format::{CONTEXT_MAX, Container, Events, File, Metadata, Record, RecordType, misc};
use bprec_report::{
    AnnotateOptions, Document, ExportFormat, Input, MapsOptions, Options, Payer, Redact, RewriteOptions, ScriptOptions,
    Session, Show, Source, by_prog, counters, diff, header, maps, rewrite, script,
};

/// What a recording says that must not get out.
#[derive(Default)]
struct Secrets {
    /// By their first four bytes.
    texts: HashMap<[u8; 4], HashSet<Vec<u8>>>,
    addresses: HashSet<u64>,
}

/// Names that are everyone's, or that are words of reports and of the format.
const PUBLIC: [&str; 14] = [
    "bprec",
    "bprec-load",
    "perf",
    "swapper",
    // Threads of the kernel, called as the functions that they run.
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
        // Shorter ones may be anything.
        if let Some(start) = text.first_chunk::<4>().filter(|_| !PUBLIC.iter().any(|word| word.as_bytes() == text)) {
            self.texts.entry(*start).or_default().insert(text.to_vec());
        }
    }

    fn address(&mut self, addr: u64) {
        const VSYSCALL: std::ops::Range<u64> = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;
        // Smaller ones may be numbers.
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
                    // Single words, as options, may be words of reports.
                    words.iter().filter(|word| word.starts_with(b"/")).for_each(|word| self.text(word));
                }
                Feature::BUILD_ID => {
                    for id in BuildIds::parse(bytes, offset, endian).unwrap().value.0 {
                        if id.cpu_mode == misc::USER {
                            self.text(id.id);
                            self.text(id.file);
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

    /// The first secret in an output.
    fn found_in(&self, output: &[u8]) -> Option<String> {
        let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte));
        for (at, start) in output.windows(4).enumerate() {
            let Some(texts) = self.texts.get(start) else { continue };
            let is_alone = |text: &&Vec<u8>| {
                let end = at + text.len();
                // Threads of the kernel may be called as its modules are, whose names stay.
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

    /// The first address in binary data, in either byte order.
    fn address_in(&self, output: &[u8]) -> Option<String> {
        let mut words = output.windows(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        words
            .find(|word| self.addresses.contains(word) || self.addresses.contains(&word.swap_bytes()))
            .map(|addr| format!("{addr:#x}"))
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

fn redacted(bytes: &[u8], what: Redact) -> Option<Vec<u8>> {
    let options = RewriteOptions { redact: Some(what), ..RewriteOptions::default() };
    let mut out = Cursor::new(Vec::new());
    rewrite(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out).ok()?;
    Some(out.into_inner())
}

/// All that is made of a recording, unpacked.
fn outputs(recording: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let input = Input::from_bytes("recording", recording.to_vec());
    let mut outputs: Vec<(&str, Vec<u8>)> = Vec::new();
    macro_rules! put {
        ($name:literal, $report:expr) => {
            if let Ok(report) = $report {
                let (mut table, mut json, mut csv) = (Vec::new(), Vec::new(), Vec::new());
                report.write_table(&mut table, 200).unwrap();
                report.write_json(&mut json).unwrap();
                report.write_csv(&mut csv).unwrap();
                outputs.extend([
                    (concat!($name, " table"), table),
                    (concat!($name, " JSON"), json),
                    (concat!($name, " CSV"), csv),
                ]);
            }
        };
    }
    let options = Options { all: true, ..Options::default() };
    let session = || Session::open(&input);
    put!("programs", by_prog(&input, &options));
    put!("counters", counters(&input, &options));
    put!("over time", session().and_then(|session| session.over_time(&options, None)));
    put!("lines", session().and_then(|session| session.lines(&options)));
    put!("payers", session().and_then(|session| session.payers(&options, &[Payer::Comm, Payer::Cgroup])));
    put!("trees", session().and_then(|session| session.trees(&options, 0.0)));
    let side = std::slice::from_ref(&input);
    put!("diff", diff(side, side, &bprec_report::DiffOptions { all: true, ..Default::default() }));
    let query = Options { programs: vec!["*".parse().unwrap()], ..Options::default() };
    let code = AnnotateOptions { query, ..AnnotateOptions::default() };
    put!("code", session().and_then(|session| session.annotate(&code)));
    for json in [false, true] {
        let mut out = Vec::new();
        if maps(&input, &MapsOptions { json, ..MapsOptions::default() }, &mut out).is_ok() {
            outputs.push(("maps", out));
        }
    }
    outputs.extend(header(&input).map(|header| ("header", header.into_bytes())));
    for dump in [false, true] {
        let mut out = Vec::new();
        let options = ScriptOptions { show: Show::ALL, dump, ..ScriptOptions::default() };
        script(&mut Source::from_bytes("recording", recording.to_vec()), &options, &mut out).unwrap();
        // Where bytes are shown, words end with the line; the bytes themselves are looked at in the recording.
        let is_text = |line: &&[u8]| {
            let start = line.iter().position(|byte| !b" .".contains(byte)).unwrap_or(0);
            let line = line[start..].strip_prefix(b"BPF output: ").unwrap_or(&line[start..]);
            !line.get(..5).is_some_and(|head| head[..4].iter().all(u8::is_ascii_hexdigit) && head[4] == b':')
        };
        let lines: Vec<&[u8]> = out.split(|byte| *byte == b'\n').filter(is_text).collect();
        outputs.push((if dump { "dump" } else { "script" }, lines.join(&b'\n')));
    }
    use ExportFormat::{Firefox, Folded, Html, Pprof, Speedscope};
    for format in [Folded, Pprof, Speedscope, Firefox, Html] {
        let mut out = Vec::new();
        if session().and_then(|session| session.export(&Options::default(), format, &mut out)).is_ok() {
            let mut unpacked = Vec::new();
            match out.starts_with(&[0x1f, 0x8b]) {
                true => drop(flate2::read::GzDecoder::new(&out[..]).read_to_end(&mut unpacked).unwrap()),
                false => unpacked = out,
            }
            outputs.push(("export", unpacked));
        }
    }
    outputs
}

fn inputs() -> Vec<(String, Vec<u8>)> {
    let corpus = common::corpus_files().into_iter().map(|file| (file.name, file.bytes));
    let inputs = corpus.chain(common::recordings()).chain(common::fixtures());
    let fits = |(name, bytes): &(String, Vec<u8>)| {
        bytes.len() < 400_000 && (cfg!(feature = "zstd") || !(name.ends_with("/z.data") || name.contains("compressed")))
    };
    inputs.filter(fits).filter(|(_, bytes)| Container::detect(bytes).is_ok()).collect()
}

#[test]
fn no_secret_is_in_a_redacted_recording_or_in_what_is_made_of_it() {
    let (mut checked, mut texts, mut addresses, mut seen) = (0, 0, 0, 0);
    for (name, bytes) in inputs() {
        let Some(recording) = redacted(&bytes, Redact::Machine) else { continue };
        let secrets = Secrets::of(&bytes);
        texts += secrets.texts.values().map(HashSet::len).sum::<usize>();
        addresses += secrets.addresses.len();
        seen += usize::from(secrets.found_in(&bytes).is_some());
        assert_eq!(secrets.found_in(&recording), None, "{name}");
        assert_eq!(secrets.address_in(&recording), None, "{name}");
        // All kinds of them, of some: the fixtures are ours and have all that there is.
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
    assert!(seen > 30, "only of {seen} recordings a secret is found in themselves");
}

/// What a document says of programs, without what is redacted: who owns them, where they are attached and pinned.
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
    // The fixtures' programs are all of one process.
    let is_comm = |word: &&str| word.starts_with("comm-") || *word == "bprec-load";
    let words =
        |line: &str| line.split(['/', ' ', '"']).filter(|word| !is_comm(word)).map(str::to_owned).collect::<Vec<_>>();
    serde_json::to_string_pretty(&value).unwrap().lines().map(|line| words(line).join(" ")).collect()
}

/// The first place where two texts differ.
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
        // Who owns a program is in the last column.
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

        // The listing of the code, too: its calls reach what they reached.
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

/// The lines of a text but those with names of files and bytes of code, with an X for each long hexadecimal number.
fn without_addresses(text: &str) -> Vec<String> {
    // Addresses are put together from parts on arm64.
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
                // With something behind it, it is a word of others, too.
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
