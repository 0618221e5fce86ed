//! BPF objects of the user: the loaded programs and maps, and the message about an object that cannot be loaded.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::path::{Path, PathBuf};

use bprec_bpf::{Attached, UserObject};
use common::{bpftool, can_load, has_bpftool, perf_event};
use std::os::fd::AsFd;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/bpf").join(name)
}

fn refused(name: &str, program: Option<&str>) -> String {
    UserObject::load(&fixture(name), program).unwrap_err().to_string()
}

#[test]
fn a_rejected_program_is_named_with_the_end_of_the_log() {
    let test = "a_rejected_program_is_named_with_the_end_of_the_log";
    if !can_load(test) {
        return;
    }
    let message = refused("rejected.bpf.o", None);
    assert!(message.contains(
        "fixtures/bpf/rejected.bpf.o: the kernel's verifier rejects program reads_through_a_pointer_that_may_be_null"
    ));
    // The message contains the kernel's own verdict, which ends with a hint since 7.3.
    let verdicts = ["invalid mem access 'map_value_or_null'", "Add a NULL check before the access"];
    assert!(verdicts.iter().any(|verdict| message.contains(verdict)), "{message}");
    assert!(message.contains("\n  processed "), "{message}");
    assert!(message.lines().count() <= 18, "{message}");
}

#[test]
fn the_sound_program_beside_it_can_be_had_alone() {
    let test = "the_sound_program_beside_it_can_be_had_alone";
    if !can_load(test) {
        return;
    }
    let object = UserObject::load(&fixture("rejected.bpf.o"), Some("sound_program")).unwrap();
    assert_eq!(object.programs().iter().map(|program| program.name.as_str()).collect::<Vec<_>>(), ["sound_program"]);
    assert_eq!(object.map_ids().unwrap().len(), 1);
    if has_bpftool(test) {
        let shown = bpftool(&["prog", "show", "id", &object.programs()[0].id.to_string()]);
        assert_eq!((shown["type"].as_str(), shown["name"].as_str()), (Some("perf_event"), Some("sound_program")));
    }
}

#[test]
fn what_is_no_program_for_perf_events_is_said() {
    let test = "what_is_no_program_for_perf_events_is_said";
    if !can_load(test) {
        return;
    }
    let other = refused("rejected.bpf.o", Some("of_another_type"));
    assert!(other.ends_with("program of_another_type is in section \"raw_tp/sys_enter\", but only programs in SEC(\"perf_event\") run on perf events"));
    let none = refused("rejected.bpf.o", Some("nonsense"));
    assert!(
        none.contains("the object has no program nonsense; its programs are: sound_program (perf_event), "),
        "{none}"
    );
    let without = refused("rawtp.bpf.o", None);
    assert!(
        without.contains("the object has no program in SEC(\"perf_event\"); its programs are: count_sched_switches ("),
        "{without}"
    );
    let source = refused("rejected.bpf.c", None);
    assert!(source.contains("rejected.bpf.c: cannot open the file as a BPF object: "), "{source}");
    let missing = refused("missing.bpf.o", None);
    assert!(missing.ends_with("missing.bpf.o: No such file or directory (ENOENT)"), "{missing}");
    assert!(refused("", None).ends_with("not a file"));
}

#[test]
fn maps_defined_the_old_way_work() {
    let test = "maps_defined_the_old_way_work";
    if !can_load(test) {
        return;
    }
    for (name, typed) in [("old_style.bpf.o", true), ("old_style_nobtf.bpf.o", false)] {
        let object = UserObject::load(&fixture(name), None).unwrap();
        assert!(object.notes()[0].contains("old section"), "{:?}", object.notes());
        let event = perf_event(1, 1);
        let attached = Attached::new(object.programs()[0].fd.as_fd(), event.as_fd(), 0).unwrap();
        if !has_bpftool(test) {
            return;
        }
        let dump = |map: &str| {
            let ids = object.map_ids().unwrap();
            let shown = ids.iter().map(|id| bpftool(&["map", "show", "id", &id.to_string()]));
            let found = shown.into_iter().find(|shown| shown["name"] == map).unwrap();
            (found.clone(), bpftool(&["map", "dump", "id", &found["id"].to_string()]))
        };
        // Computes until the event has fired, one run each 10 ms of CPU time.
        let by_cpu = || dump("by_cpu").1.as_array().is_some_and(|entries| !entries.is_empty());
        for _ in 0..6000 {
            if by_cpu() {
                break;
            }
            std::hint::black_box((0..3_000_000u64).fold(1u64, |x, i| x.wrapping_mul(31).wrapping_add(i)));
        }
        let (map, entries) = dump("by_cpu");
        assert_eq!((map["type"].as_str(), map["bytes_value"].as_u64()), (Some("hash"), Some(8)));
        assert_eq!((map["max_entries"].as_u64(), map["flags"].as_u64()), (Some(1024), Some(1)));
        assert!(!entries.as_array().unwrap().is_empty(), "{name}: {entries}");
        let (map, entries) = dump("totals");
        assert_eq!((map["type"].as_str(), map["bytes_value"].as_u64()), (Some("array"), Some(32)));
        // bpftool prints values by type if the kernel knows the type.
        let total = &entries[1]["formatted"]["value"];
        assert_eq!(total.is_object(), typed, "{name}: {entries}");
        if typed {
            assert_eq!((total["low"].as_str(), total["high"].as_str()), (Some("0x9"), Some("0xabc")), "{entries}");
            assert_eq!(total["grid"], serde_json::json!([[0, 1, 2], [10, 11, 12]]));
        }
        drop(attached);
    }
}
