//! Profiles of OpenTelemetry, decoded by OpenTelemetry's own package.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use bprec_fixtures::Fixture;
use bprec_report::{Input, Options, Session};
use serde_json::{Value, json};

use super::pod::{self, Pod};
use super::support::{perf, perf_installed, report, root};
use super::{RECORDINGS, Scratch, bprec, exported, program_of, repository, succeed, viewers};

fn decoded(modules: &Path, profile: &Path) -> Value {
    let mut decode = Command::new("python3");
    decode.arg(repository().join("tests/viewers/otlp.py")).arg(profile);
    decode.env("PYTHONPATH", modules.with_file_name("python"));
    serde_json::from_slice(&succeed(&mut decode).stdout).unwrap()
}

/// Sums of the values of samples by resource: weights, and numbers of samples.
fn sums(seen: &Value) -> Vec<(&Value, [u64; 2])> {
    let resources = seen["resources"].as_array().unwrap().iter();
    let sums = resources.map(|resource| {
        let sum = |profile: &Value| {
            profile["samples"].as_array().unwrap().iter().map(|it| it["value"].as_u64().unwrap()).sum()
        };
        let [weights, counts] = &resource["profiles"].as_array().unwrap()[..] else { panic!("{resource}") };
        (&resource["attributes"], [sum(weights), sum(counts)])
    });
    sums.collect()
}

/// Programs of the recorder share a row.
fn is_of_recorder(program: &str) -> bool {
    program.starts_with("bprec_")
}

/// Asserts that samples with a program in their stack, over all resources, have the weight of the program in the table. Entry code is left out, as
/// it is in no frame of the program.
fn programs_weigh_as_in_the_table(seen: &Value, report: &Value, about: &str) {
    let frames = seen["frames"].as_array().unwrap();
    let mut read = BTreeMap::<String, u64>::new();
    for resource in seen["resources"].as_array().unwrap() {
        for sample in resource["profiles"][0]["samples"].as_array().unwrap() {
            let positions = sample["stack"].as_array().unwrap().iter();
            let names = positions.map(|at| frames[at.as_u64().unwrap() as usize]["name"].as_str().unwrap());
            let programs: BTreeSet<&str> = names.filter_map(program_of).collect();
            for program in programs.into_iter().filter(|program| !is_of_recorder(program)) {
                *read.entry(program.to_owned()).or_default() += sample["value"].as_u64().unwrap();
            }
        }
    }
    let rows = report["events"][0]["rows"].as_array().unwrap().iter();
    let weights = rows.filter(|row| !is_of_recorder(row["name"].as_str().unwrap())).map(|row| {
        // Programs that samples cannot see have no weight, and no stack; samples may show the code that runs them.
        let weight = |part: &str| row[part]["weight"].as_u64();
        let in_program = weight("inclusive").map_or(0, |inclusive| inclusive - weight("entry").unwrap_or(0));
        (format!("{} ({})", row["name"].as_str().unwrap(), row["id"]), in_program)
    });
    assert_eq!(read, weights.filter(|(_, weight)| *weight > 0).collect(), "{about}");
}

/// OpenTelemetry's package reads the same stacks, lines of programs and labels as the other exports have.
#[test]
fn opentelemetry_reads_the_same() {
    let Some(modules) = viewers("opentelemetry_reads_the_same") else { return };
    for recording in RECORDINGS {
        let scratch = Scratch::new();
        let path = scratch.path("profile.otlp");
        exported("otlp", recording, &path);
        let seen = decoded(&modules, &path);

        let input = Input::open(repository().join(recording)).unwrap();
        let session = Session::open(&input).unwrap();
        let known = session.by_prog(&Options::default()).unwrap();
        let known = &known.recording;
        // These machines have no containers.
        let [resource] = &seen["resources"].as_array().unwrap()[..] else { panic!("{recording}: {seen}") };
        let attributes = &resource["attributes"];
        assert_eq!(attributes["host.id"].as_str(), known.machine_id.as_deref(), "{recording}");
        assert_eq!(attributes["host.name"].as_str(), known.hostname.as_deref(), "{recording}");
        assert_eq!(attributes["os.version"].as_str(), known.os_release.as_deref(), "{recording}");

        // Stacks as lists of frame names, outermost first.
        let frames = seen["frames"].as_array().unwrap();
        let mut expected = BTreeMap::<Vec<String>, (u64, u64)>::new();
        let stacks = session.stacks(&Options::default()).unwrap();
        for stack in &stacks.stacks {
            let names = stack.frames.iter().map(|frame| stacks.frames[*frame as usize].label()).collect();
            let counts = expected.entry(names).or_default();
            *counts = (counts.0 + stack.count.weight, counts.1 + stack.count.samples);
        }
        let mut read = BTreeMap::<Vec<String>, (u64, u64)>::new();
        let [weights, counts] = &resource["profiles"].as_array().unwrap()[..] else { panic!("{recording}") };
        assert_eq!(weights["type"][0].as_str(), Some(stacks.event.as_str()), "{recording}");
        assert_eq!(weights["type"], weights["period_type"], "{recording}");
        assert_eq!(counts["type"], json!(["samples", "count"]), "{recording}");
        assert_eq!(weights["time"].as_u64(), Some(known.start_unix_ns.unwrap_or(0)), "{recording}");
        for (weight, count) in weights["samples"].as_array().unwrap().iter().zip(counts["samples"].as_array().unwrap())
        {
            assert_eq!(weight["stack"], count["stack"], "{recording}");
            let positions = weight["stack"].as_array().unwrap().iter().rev();
            let names = positions.map(|at| frames[at.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned());
            let names: Vec<String> = names.collect();
            assert_eq!(weight["attributes"]["thread.name"].as_str(), Some(names[0].as_str()), "{recording}");
            let program = names.iter().rev().find_map(|name| program_of(name));
            let labelled = weight["attributes"]["bpf.program.name"].as_str();
            let labelled = labelled.map(|name| format!("{name} ({})", weight["attributes"]["bpf.program.id"]));
            assert_eq!(labelled.as_deref(), program, "{recording}");
            let read = read.entry(names).or_default();
            *read = (read.0 + weight["value"].as_u64().unwrap(), read.1 + count["value"].as_u64().unwrap());
        }
        assert_eq!(read, expected, "{recording}");

        // Samples by the source line of the innermost frame of a program.
        let mut by_line = BTreeMap::<(String, u64), u64>::new();
        for sample in counts["samples"].as_array().unwrap() {
            let positions = sample["stack"].as_array().unwrap().iter();
            let mut innermost = positions.map(|at| &frames[at.as_u64().unwrap() as usize]);
            let bpf = innermost.find(|frame| frame["type"] == "bpf");
            if let Some(frame) = bpf.filter(|frame| frame["line"] != 0) {
                let line = (frame["file"].as_str().unwrap().to_owned(), frame["line"].as_u64().unwrap());
                *by_line.entry(line).or_default() += sample["value"].as_u64().unwrap();
            }
        }
        let lines = session.lines(&Options::default()).unwrap();
        let mut expected = BTreeMap::<(String, u64), u64>::new();
        for row in lines.events.first().map_or(&[][..], |event| &event.rows) {
            let samples = row.own.samples + row.helper.map_or(0, |helper| helper.samples);
            if let Some(source) = row.source.as_ref().filter(|source| source.line > 0) {
                *expected.entry((source.file.to_string(), source.line.into())).or_default() += samples;
            }
        }
        assert_eq!(by_line, expected, "{recording}");
        // The third recording has no BPF programs.
        if RECORDINGS[..2].contains(&recording) {
            programs_weigh_as_in_the_table(&seen, &report(&repository().join(recording), &[]), recording);
        }
    }
}

/// A container of a pod is a separate resource. It has the samples that perf counts in the container's cgroup; the host's resource has all other
/// samples.
#[test]
fn a_container_is_a_resource_of_its_own() {
    let test = "a_container_is_a_resource_of_its_own";
    let Some(modules) = viewers(test) else { return };
    if !root(test) || !perf_installed(test) {
        return;
    }
    let Some(pod) = Pod::new(test) else { return };
    let program = Fixture::TWIN_B.open().unwrap().set("filter_syscall", libc::SYS_openat).unwrap();
    let program = program.loops(300).unwrap().start().unwrap();
    let id = program.id_of("same_name_in_two_objects").unwrap();
    // Each round of the loop opens a file.
    let mut load = Command::new("sh").args(["-c", "while :; do read -r line </dev/null; done"]).spawn().unwrap();
    pod.take(load.id());
    let scratch = Scratch::new();
    let (path, profile) = (scratch.path("perf.data"), scratch.path("profile.otlp"));
    let ended = pod.record(&path).wait().unwrap();
    load.kill().unwrap();
    load.wait().unwrap();
    assert!(ended.success(), "{ended}");
    succeed(bprec().args(["export", "--to", "otlp", "-i"]).arg(&path).arg("-o").arg(&profile));
    let seen = decoded(&modules, &profile);

    let [(host, of_host), (container, of_container)] = sums(&seen)[..] else { panic!("{:#?}", sums(&seen)) };
    let of = |resource: &Value, names: &[&str]| names.iter().map(|name| resource[*name].clone()).collect::<Value>();
    let names = ["container.id", "k8s.namespace.name", "k8s.pod.name", "k8s.container.name", "k8s.pod.uid"];
    let [namespace, name, of_pod] = pod::NAMES;
    assert_eq!(of(container, &names), json!([pod.id, namespace, name, of_pod, pod::UID]));
    assert_eq!(of(host, &names), json!([null, null, null, null, null]));
    let recorded = report(&path, &[])["recording"]["machine_id"].clone();
    assert_eq!([&host["host.id"], &container["host.id"]], [&recorded; 2]);
    assert_eq!(host["host.name"], container["host.name"]);
    assert!(host["host.name"].is_string(), "{host}");

    // Numbers of samples by cgroup, as perf counts them.
    let path_of = path.to_str().unwrap();
    let columns = ["--sort=cgroup", "-F", "sample,cgroup", "-t", ";"];
    let listed = perf(&[&["report", "--stdio", "--no-children", "-g", "none", "-i", path_of][..], &columns].concat());
    // Keeps the first table. perf prints a second one for bprec's own event, `bprec:state`.
    let listed = listed.split("# Samples: ").nth(1).unwrap();
    let lines = listed.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(';'));
    let (mut inside, mut outside) = (0, 0);
    for (samples, cgroup) in lines {
        let samples: u64 = samples.trim().parse().unwrap();
        *(if cgroup.contains(&pod.id) { &mut inside } else { &mut outside }) += samples;
    }
    assert!(inside > 0 && outside > 0, "{listed}");
    assert_eq!((of_host[1], of_container[1]), (outside, inside), "{listed}");

    let by_program = report(&path, &[]);
    let all = &by_program["events"][0]["samples"];
    assert_eq!(json!([of_host[0] + of_container[0], inside + outside]), json!([all["weight"], all["samples"]]));
    programs_weigh_as_in_the_table(&seen, &by_program, "a container");

    // The owner of the program that the container runs is this test, outside of the container.
    let samples = seen["resources"][1]["profiles"][0]["samples"].as_array().unwrap().iter();
    let in_program: Vec<&Value> = samples.map(|it| &it["attributes"]).filter(|it| it["bpf.program.id"] == id).collect();
    assert!(!in_program.is_empty());
    let owner = format!("/{}", std::process::id());
    let is_owner = |it: &&Value| it["bpf.program.owner"].as_str().is_some_and(|text| text.ends_with(&owner));
    assert!(in_program.iter().all(is_owner), "{:?}", in_program[0]);
    drop(program);
}
