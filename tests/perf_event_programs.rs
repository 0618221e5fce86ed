//! Programs of the user on separate events: they run; their samples, output and counts are in the recording; and nothing of them remains. Real
//! kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::held::{bpftool, held_by_any};
use crate::support::{Scratch, bpf_ids, bprec, perf, perf_installed, record, report, root, skip, succeed, wait_for};
use bprec_fixtures::Fixture;
use bprec_format::bprec::state::{MapContents, State};
use bprec_format::{Endian, Events, File, Metadata, RecordType};
use serde_json::Value;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bpf").join(format!("{name}.bpf.o"));
    path.to_str().unwrap().to_owned()
}

/// Fields of one sample of a recording.
struct Seen {
    event: String,
    ip: u64,
    pid: u32,
    raw: Vec<u8>,
}

/// The samples of a recording, with the names of their events.
fn samples(path: &Path) -> Vec<Seen> {
    let bytes = std::fs::read(path).unwrap();
    let file = File::parse(&bytes).unwrap();
    let names = Metadata::of_file(&file).event_names();
    let events = Events::new(file.attrs(), Endian::NATIVE).unwrap();
    let mut seen = Vec::new();
    for record in file.records() {
        let record = record.unwrap();
        if record.kind != RecordType::SAMPLE {
            continue;
        }
        let index = events.index_of(&record).unwrap();
        let sample = events.all()[index].layout.sample(record.body(), 0).unwrap();
        seen.push(Seen {
            event: names[index].clone(),
            ip: sample.ip().unwrap(),
            pid: sample.pid_tid().unwrap().0,
            raw: sample.raw().unwrap().unwrap_or_default().to_vec(),
        });
    }
    seen
}

/// Key and value.
type Entry = (Vec<u8>, Vec<u8>);

/// Entries of the maps of a recording, by map name.
fn maps(path: &Path) -> HashMap<String, Vec<Entry>> {
    let mut names = HashMap::new();
    let mut contents: HashMap<u32, (MapContents, Vec<u8>)> = HashMap::new();
    for sample in samples(path).into_iter().filter(|sample| sample.event == "bprec:state") {
        match State::decode(&sample.raw, 0, Endian::NATIVE).unwrap() {
            State::Map(map) => drop(names.insert(map.id, String::from_utf8(map.name).unwrap())),
            State::MapContents(part) => {
                let (_, run) = contents.entry(part.map_id).or_insert_with(|| (part.clone(), Vec::new()));
                assert_eq!(part.offset, run.len() as u64);
                run.extend(&part.bytes);
            }
            _ => {}
        }
    }
    let entries = |(about, run): (MapContents, Vec<u8>)| {
        let (key, value) = (about.key_bytes as usize, about.value_bytes as usize);
        run.chunks_exact(key + value).map(|entry| (entry[..key].to_vec(), entry[key..].to_vec())).collect()
    };
    contents.into_iter().map(|(id, contents)| (names[&id].clone(), entries(contents))).collect()
}

fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(wide)
}

/// Finds the program with this name on an event of this recording. Other programs with the name belong to tests that run at the same time, or to
/// earlier tests if another recorder still holds them.
fn by_name<'r>(report: &'r Value, name: &str) -> &'r Value {
    let events = report["blinded_events"].as_array().unwrap();
    let is_own = |id: &Value| events.iter().any(|event| event["own"] == true && event["program_id"] == *id);
    let mut programs = report["programs"].as_array().unwrap().iter();
    programs.find(|program| program["name"] == name && is_own(&program["id"])).unwrap()
}

/// Waits until the program has left the kernel, which frees programs later, in workers. Returns true also if another process holds the program: other
/// recordings keep descriptors of all programs that they have seen. Returns false after a minute.
fn is_gone(program: &Value) -> bool {
    let id = program["id"].as_u64().unwrap();
    wait_until(|| !bpf_ids("prog").contains(&id) || held_by_any()[0].contains(&id))
}

fn wait_until(condition: impl Fn() -> bool) -> bool {
    let patience = Instant::now() + Duration::from_secs(60);
    while !condition() {
        if Instant::now() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

#[test]
fn a_program_counts_the_very_samples_that_it_lets_through() {
    let test = "a_program_counts_the_very_samples_that_it_lets_through";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let object = fixture("ip_histogram");
    // On one CPU, two runs cannot make the same entry at the same time.
    record(&path, &["-q", "-e", "cpu-clock", "-C", "0", "-m", "4M", "--bpf-object", &object, "--", "sleep", "1"]);
    let event = "cpu-clock (count_samples_by_ip)";
    let mut let_through: BTreeMap<u64, u64> = BTreeMap::new();
    let all = samples(&path);
    for sample in all.iter().filter(|sample| sample.event == event) {
        *let_through.entry(sample.ip).or_default() += 1;
    }
    assert!(let_through.values().sum::<u64>() > 500, "{let_through:?}");
    assert!(all.iter().filter(|sample| sample.event == "cpu-clock").count() > 500, "the main samples are there, too");
    let counted: BTreeMap<u64, u64> =
        maps(&path)["samples_by_ip"].iter().map(|(ip, count)| (number(ip), number(count))).collect();
    assert_eq!(counted, let_through);

    let report = report(&path, &[]);
    let program = by_name(&report, "count_samples_by_ip");
    assert_eq!(program["attached"], serde_json::json!([format!("perf_event:{event}")]));
    assert_eq!(program["owners"][0]["comm"], "bprec");
    let own = report["blinded_events"].as_array().unwrap().iter().filter(|it| it["own"] == true).collect::<Vec<_>>();
    assert_eq!(own.len(), 1);
    assert_eq!((&own[0]["event"], &own[0]["program_id"]), (&event.into(), &program["id"]));
    let table = succeed(bprec().args(["report", "--notes", "-i"]).arg(&path));
    let table = String::from_utf8(table.stdout).unwrap().replace("\n#  ", "");
    assert!(table.contains("BPF program count_samples_by_ip ("), "{table}");
    assert!(is_gone(program));
    if perf_installed(test) {
        let script = perf(&["script", "-F", "event", "-i", path.to_str().unwrap()]);
        let lines = script.lines().filter(|line| line.trim() == format!("{event}:")).count() as u64;
        assert_eq!(lines, let_through.values().sum::<u64>());
    }
}

#[test]
fn children_inherit_the_program_with_the_event() {
    let test = "children_inherit_the_program_with_the_event";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let object = fixture("ip_histogram");
    // The child computes, the parent waits for it.
    let burn = "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo $$ > /dev/null) & wait; echo $$ > \"$0\"";
    let parent = scratch.path("parent");
    record(
        &path,
        &["-q", "-e", "task-clock", "--bpf-object", &object, "--", "sh", "-c", burn, parent.to_str().unwrap()],
    );
    let parent: u32 = std::fs::read_to_string(parent).unwrap().trim().parse().unwrap();
    let event = "task-clock (count_samples_by_ip)";
    let of_children = |event: &str| {
        samples(&path).iter().filter(|sample| sample.event == event && sample.pid != parent).count() as u64
    };
    let (main, with_program) = (of_children("task-clock"), of_children(event));
    assert!(
        main > 50 && with_program > 50,
        "{main} main samples and {with_program} samples with a program in the child"
    );
    let counted: u64 = maps(&path)["samples_by_ip"].iter().map(|(_, count)| number(count)).sum();
    let all = samples(&path).iter().filter(|sample| sample.event == event).count() as u64;
    // If two CPUs add the same new address at the same moment, one count can be lost.
    assert!(counted <= all && counted + 20 >= all, "{counted} counted, {all} let through");
    assert!(is_gone(by_name(&report(&path, &[]), "count_samples_by_ip")));
}

#[test]
fn stacks_are_counted_by_command() {
    let test = "stacks_are_counted_by_command";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let object = fixture("stacks_by_comm");
    let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    record(&path, &["-q", "-e", "task-clock", "--bpf-object", &object, "--", "sh", "-c", burn]);
    let maps = maps(&path);
    let event = "task-clock (count_stacks_by_comm)";
    assert_eq!(
        samples(&path).iter().filter(|sample| sample.event == event).count(),
        0,
        "the program lets no sample through"
    );
    let main = samples(&path).iter().filter(|sample| sample.event == "task-clock").count() as u64;
    let of_sh: u64 = maps["counts"].iter().filter(|(key, _)| key.starts_with(b"sh\0")).map(|(_, n)| number(n)).sum();
    // Both events have the same rate on one task. Their numbers of samples differ only by samples at the start and at the end.
    assert!(of_sh * 10 > main * 9 && of_sh * 9 < main * 10, "{of_sh} counted, {main} sampled");
    let with_user_stack = |key: &[u8]| i32::from_ne_bytes(key[20..24].try_into().unwrap()) >= 0;
    assert!(maps["counts"].iter().any(|(key, _)| with_user_stack(key)), "the program gets user stacks without -g");
    assert!(!maps["stacks"].is_empty());
    let text = succeed(bprec().args(["report", "--maps=stacks", "-i"]).arg(&path)).stdout;
    let text = String::from_utf8(text).unwrap();
    let frames: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("      0x")).collect();
    // The kernel's markers before kernel and user frames are not printed.
    assert!(!frames.is_empty() && !frames.iter().any(|frame| frame.starts_with("fffffffffffff")), "{text}");
    let bss = &maps["stacks_b.bss"][0].1;
    assert_eq!(bss.len(), 40);
}

#[test]
fn every_length_comes_back_byte_by_byte() {
    let test = "every_length_comes_back_byte_by_byte";
    if !root(test) {
        return;
    }
    const LONGEST: usize = 8000;
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let object = fixture("emit_lengths");
    // The ring holds all output, so the program emits each length only once.
    record(&path, &["-q", "-e", "cpu-clock", "-C", "0", "-m", "64M", "--bpf-object", &object, "--", "sleep", "3"]);
    let payloads: Vec<Vec<u8>> =
        samples(&path).into_iter().filter(|sample| sample.event == "payloads").map(|sample| sample.raw).collect();
    assert_eq!(payloads.len(), LONGEST);
    for (payload, length) in payloads.iter().zip(1..) {
        // The kernel rounds up so that the payload and its four-byte size are whole words.
        assert_eq!(payload.len(), (length + 4usize).next_multiple_of(8) - 4);
        let prefix = (length as u32).to_le_bytes();
        assert_eq!(payload[..length.min(4)], prefix[..length.min(4)], "length {length}");
        let wrong = (4..length).find(|at| payload[*at] != (7 * at) as u8);
        assert_eq!(wrong, None, "length {length}");
    }
    let script = succeed(bprec().args(["script", "-F", "event,bpf-output", "-i"]).arg(&path));
    let script = String::from_utf8(script.stdout).unwrap();
    assert_eq!(script.lines().filter(|line| line.trim() == "payloads:").count(), LONGEST);
    assert!(script.contains("0000: 06 00 00 00 1c 23 "), "the payload of six bytes");
    if perf_installed(test) {
        let input = path.to_str().unwrap();
        let script = perf(&["script", "-F", "sw:event,bpf-output", "-i", input]);
        assert_eq!(
            script.lines().filter(|line| line.contains("BPF output: 0000: ")).count() - state_samples(&path),
            LONGEST
        );
        assert!(script.contains("0000: 06 00 00 00 1c 23 "));
    }
}

fn state_samples(path: &Path) -> usize {
    samples(path).iter().filter(|sample| sample.event == "bprec:state").count()
}

#[test]
fn maps_defined_the_old_way_are_recorded() {
    let test = "maps_defined_the_old_way_are_recorded";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    for name in ["old_style", "old_style_nobtf"] {
        let path = scratch.path(name);
        let object = fixture(name);
        record(&path, &["-q", "-e", "task-clock", "--bpf-object", &object, "--", "sh", "-c", burn]);
        let maps = maps(&path);
        let runs: u64 = maps["by_cpu"].iter().map(|(_, runs)| number(runs)).sum();
        assert!(runs > 20, "{name}: {runs}");
        let (index, total) = &maps["totals"][1];
        assert_eq!(number(index), 1);
        assert!(number(&total[..8]) > 20);
        // Value: low 9 and high 2748 in 4 and 12 bits, an enum, a union, an array of arrays.
        let grid = [0u16, 1, 2, 10, 11, 12].map(u16::to_ne_bytes).concat();
        let rest = [&0xabc9u32.to_ne_bytes()[..], &2u32.to_ne_bytes(), &[1, 2, 3, 4], &grid].concat();
        if cfg!(target_endian = "little") {
            assert_eq!(total[8..], rest, "{name}");
        }
    }
}

#[test]
fn a_rejected_object_ends_it_before_it_begins() {
    let test = "a_rejected_object_ends_it_before_it_begins";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let (path, marker) = (scratch.path("perf.data"), scratch.path("ran"));
    std::fs::write(&path, "an older recording").unwrap();
    let object = fixture("rejected");
    let run = |object: &str| -> std::process::Output {
        let mut command = bprec();
        command
            .args(["record", "-o"])
            .arg(&path)
            .args(["--bpf-object", object, "-e", "cpu-clock", "--", "touch"])
            .arg(&marker);
        command.output().unwrap()
    };
    for (object, words) in [
        (
            object.clone(),
            &[
                "rejected.bpf.o: the kernel's verifier rejects program reads_through_a_pointer_that_may_be_null",
                "processed ",
            ][..],
        ),
        (format!("{object}:of_another_type"), &["program of_another_type is in section"]),
        (
            format!("{object}:nobody"),
            &["the object has no program nobody; its programs are: sound_program (perf_event)"],
        ),
        (fixture("no_such_object"), &["no_such_object.bpf.o: No such file"]),
    ] {
        let output = run(&object);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        words.iter().for_each(|words| assert!(said.contains(words), "{said}"));
        assert_eq!(std::fs::read(&path).unwrap(), b"an older recording");
        assert!(!marker.exists() && !path.with_extension("data.old").exists());
    }
    // The kernel frees the map with the program. Both stay if another process opened the program before its release.
    wait_for("the end of the map", || {
        let [_, elsewhere, _] = held_by_any();
        let is_left = |map: &Value| {
            map["name"].as_str().is_some_and(|name| name.starts_with("runs_of_the_sou"))
                && map["id"].as_u64().is_some_and(|id| !elsewhere.contains(&id))
        };
        (!bpftool(&["map", "list"]).iter().any(is_left)).then_some(())
    });
    // The valid program can be loaded without the other one.
    let output = run(&format!("{object}:sound_program"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(marker.exists());
}

#[test]
fn programs_of_others_are_named_with_their_event() {
    let test = "programs_of_others_are_named_with_their_event";
    if !root(test) {
        return;
    }
    let other = match Fixture::PERF_EVENT.start() {
        Ok(other) => other,
        Err(error) => return skip(test, &format!("{error:#}")),
    };
    let id = other.id_of("count_perf_samples").unwrap();
    let scratch = Scratch::new();
    let path: PathBuf = scratch.path("perf.data");
    let output = record(&path, &["-v", "-e", "task-clock", "--", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(&format!(
            "program {id} is attached to cpu-clock: other users of this event lose samples inside kprobe"
        )),
        "{said}"
    );
    let report = report(&path, &[]);
    let found = report["blinded_events"].as_array().unwrap().iter().find(|it| it["program_id"] == id).unwrap();
    assert_eq!((&found["event"], &found["own"]), (&"cpu-clock".into(), &false.into()));
    let table = succeed(bprec().args(["report", "--notes", "-i"]).arg(&path));
    let table = String::from_utf8(table.stdout).unwrap().replace("\n#  ", "");
    let note = table.lines().find(|line| line.contains(&format!("BPF program count_perf_samples ({id})")));
    let note = note.unwrap_or_else(|| panic!("{table}"));
    assert!(
        note.contains("samples perf event cpu-clock with BPF program")
            && note.contains("this recording has these samples"),
        "{note}"
    );
}
