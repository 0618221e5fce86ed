//! Leaders (BPF programs that read an event), which several counting processes ("sessions", of bprec or perf) share, and the map in which sessions
//! find them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

mod common;

use std::fs;
use std::process::Command;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use bprec_bpf::{AttrMap, Leader};
use bprec_fixtures::{Counter, SoftwareEvent};
use bprec_record::{CounterTarget, Shared};
use common::{PrivateBpf, SAID, allowed, check_within, options, say, values};

/// Ids of the leaders' programs in the note of a session.
fn programs_of(shared: &Shared) -> Vec<String> {
    let note = &shared.events().note;
    note.match_indices("by program ")
        .map(|(at, word)| note[at + word.len()..].split([',', ';']).next().unwrap().to_owned())
        .collect()
}
#[test]
fn sessions_share_a_leader_that_goes_with_the_last_of_them() {
    if !allowed("sessions_share_a_leader_that_goes_with_the_last_of_them") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let plain = Counter::of_machine(SoftwareEvent::PageFaults).unwrap();
    let first = Shared::start(&options(&bpf, "cpu-clock,page-faults", &[CounterTarget::Machine]), say).unwrap();
    let leaders = programs_of(&first);
    assert_eq!(leaders.len(), 2, "{}", first.events().note);
    let mut at = vec![plain.value().unwrap()];
    let second = Shared::start(&options(&bpf, "page-faults,cpu-clock", &[CounterTarget::Machine]), say).unwrap();
    at.push(plain.value().unwrap());
    assert!(second.events().note.contains("loaded by another session and shared"), "{}", second.events().note);
    assert_eq!(programs_of(&second), [leaders[1].clone(), leaders[0].clone()]);
    assert!(Command::new("true").status().unwrap().success());
    // The leaders outlive the session that loaded them.
    drop(first);
    assert!(bpf.map().exists());
    for _ in 0..20 {
        assert!(Command::new("true").status().unwrap().success());
    }
    at.push(plain.value().unwrap());
    let last = second.finish();
    at.push(plain.value().unwrap());
    check_within("page faults", values(&last, 0)[0], [at[0], at[1], at[2], at[3]]);
    assert!(!bpf.map().exists());
    for id in leaders {
        let id: u32 = id.parse().unwrap();
        let gone = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            bprec_bpf::Program::take(id).is_err()
        });
        assert!(gone, "program {id} is still there");
    }
}

#[test]
fn whoever_waits_for_the_lock_of_a_map_that_is_removed_makes_another() {
    if !allowed("whoever_waits_for_the_lock_of_a_map_that_is_removed_makes_another") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let locked = AttrMap::lock(&bpf.map(), 136).unwrap();
    let waiting = options(&bpf, "cpu-clock", &[CounterTarget::Machine]);
    let waiting = thread::spawn(move || Shared::start(&waiting, say).unwrap());
    thread::sleep(Duration::from_millis(200));
    assert!(!waiting.is_finished());
    fs::remove_file(bpf.map()).unwrap();
    locked.unlock();
    let shared = waiting.join().unwrap();
    assert!(shared.events().note.contains("other sessions can share"), "{}", shared.events().note);
    let another = Shared::start(&options(&bpf, "cpu-clock", &[CounterTarget::Machine]), say).unwrap();
    assert_eq!(programs_of(&another), programs_of(&shared));
}

/// Pins a map that another tool could have made.
fn pin_a_map(bpf: &PrivateBpf, key: &str, value: &str, entries: &str) -> bool {
    let mut command = Command::new("bpftool");
    command.args(["map", "create"]).arg(bpf.map()).args(["type", "hash", "key", key, "value", value]);
    command.args(["entries", entries, "name", "somebodys"]).status().is_ok_and(|status| status.success())
}

#[test]
fn maps_of_others_are_followed_where_they_fit_and_left_alone_where_not() {
    let test = "maps_of_others_are_followed_where_they_fit_and_left_alone_where_not";
    if !allowed(test) {
        return;
    }
    let bpf = PrivateBpf::mount();
    if !pin_a_map(&bpf, "128", "8", "2") {
        println!("SKIP {test}: bpftool cannot create maps");
        return;
    }
    // A map as an older perf makes it, with two entries. They are enough for one event, because the event has two keys.
    let first = Shared::start(&options(&bpf, "cpu-clock", &[CounterTarget::Machine]), say).unwrap();
    let second = Shared::start(&options(&bpf, "cpu-clock,page-faults", &[CounterTarget::Machine]), say).unwrap();
    assert_eq!(programs_of(&first), programs_of(&second)[..1]);
    let note = &second.events().note;
    assert!(note.contains("page-faults is not shared") && note.contains("the map is full"), "{note}");
    assert!(values(&second.finish(), 0)[0] > 0);
    drop(first);
    assert!(bpf.map().exists(), "a map that perf made is not removed");
    // The entries of bprec are removed, so there is space again.
    let third = Shared::start(&options(&bpf, "page-faults", &[CounterTarget::Machine]), say).unwrap();
    assert!(third.events().note.contains("other sessions can share"), "{}", third.events().note);
    drop(third);

    for (key, value) in [("4", "8"), ("136", "12")] {
        fs::remove_file(bpf.map()).unwrap();
        assert!(pin_a_map(&bpf, key, value, "16"));
        let shared = Shared::start(&options(&bpf, "cpu-clock", &[CounterTarget::Machine]), say).unwrap();
        let note = shared.events().note.clone();
        let expected = format!("map of event attributes: type 1, keys of {key} bytes, values of {value} bytes;");
        assert!(note.contains(&expected), "{note}");
        assert!(values(&shared.finish(), 0)[0] > 0, "events are counted nevertheless");
        assert!(bpf.map().exists());
    }
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(said.iter().any(|it| it.starts_with("Notice: counters are not shared with other sessions: ")), "{said:?}");
}

#[test]
fn a_leader_that_does_not_read_is_not_followed() {
    let test = "a_leader_that_does_not_read_is_not_followed";
    if !allowed(test) {
        return;
    }
    let bpf = PrivateBpf::mount();
    let first = Shared::start(&options(&bpf, "cpu-clock", &[CounterTarget::Machine]), say).unwrap();
    // The key of the event, as the kernel shows it.
    let dump = Command::new("bpftool").args(["-j", "map", "dump", "pinned"]).arg(bpf.map()).output();
    let Some(dump) = dump.ok().filter(|output| output.status.success()) else {
        println!("SKIP {test}: bpftool cannot print maps");
        return;
    };
    let text = String::from_utf8(dump.stdout).unwrap();
    let keys: Vec<Vec<u8>> = text
        .split("\"key\":[")
        .skip(1)
        .map(|rest| rest.split(']').next().unwrap())
        .map(|list| {
            list.split(',')
                .map(|byte| u8::from_str_radix(byte.trim_matches(['"']).trim_start_matches("0x"), 16).unwrap())
                .collect()
        })
        .collect();
    assert_eq!(keys.len(), 2, "{text}");
    drop(first);
    // A leader without an event, as another recorder makes if it cannot open the event.
    let silent = Leader::load(64, &[]).unwrap();
    let locked = AttrMap::lock(&bpf.map(), keys[0].len()).unwrap();
    for key in &keys {
        locked.publish(key, &silent).unwrap();
    }
    locked.unlock();
    let second = Shared::start(&options(&bpf, "cpu-clock", &[CounterTarget::Machine]), say).unwrap();
    let note = second.events().note.clone();
    assert!(note.contains("cpu-clock is not shared") && note.contains("does not read the event on CPU 0"), "{note}");
    assert!(note.contains(&silent.program_id().to_string()), "{note}");
    assert!(values(&second.finish(), 0)[0] > 0);
}

#[test]
fn cycles_are_counted_for_all_sessions_on_one_counter() {
    let test = "cycles_are_counted_for_all_sessions_on_one_counter";
    if !allowed(test) {
        return;
    }
    let Ok(plain) = Counter::cycles_of_machine() else {
        println!("SKIP {test}: this machine has no hardware PMU");
        return;
    };
    let bpf = PrivateBpf::mount();
    // There are more sessions than hardware counters: with one counter per session, the sessions would have to take turns.
    let mut at = vec![plain.value().unwrap()];
    let all: Vec<Shared> =
        (0..20).map(|_| Shared::start(&options(&bpf, "cycles", &[CounterTarget::Machine]), say).unwrap()).collect();
    let leaders: Vec<String> = all.iter().flat_map(programs_of).collect();
    assert!(leaders.len() == 20 && leaders.iter().all(|it| *it == leaders[0]), "{leaders:?}");
    at.push(plain.value().unwrap());
    for _ in 0..10 {
        assert!(Command::new("true").status().unwrap().success());
    }
    at.push(plain.value().unwrap());
    let last: Vec<_> = all.into_iter().map(Shared::finish).collect();
    at.push(plain.value().unwrap());
    for counters in last {
        // `values` checks that the event was never off the hardware.
        check_within("cycles", values(&counters, 0)[0], [at[0], at[1], at[2], at[3]]);
    }
}
