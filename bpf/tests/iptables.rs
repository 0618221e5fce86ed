//! Programs that rules of iptables match by, against the rules that the tests make.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::path::Path;
use std::process::Command;

use bprec_bpf::BtfCache;
use common::*;
use libbpf_rs::{Object, ObjectBuilder, ProgramType};

/// A program of type socket_filter, which is what rules take.
fn socket_filter() -> Object {
    let mut open = ObjectBuilder::default().open_memory(include_bytes!("../../fixtures/bpf/inventory.bpf.o")).unwrap();
    for mut program in open.progs_mut() {
        let is_it = program.name() == "inventory_tc";
        program.set_autoload(is_it);
        if is_it {
            program.set_prog_type(ProgramType::SocketFilter);
        }
    }
    open.load().unwrap()
}

/// Runs one command; PIN stands for a path. The lock of the legacy tables is one of the test's own.
fn run(command: &str, pin: &Path) -> Result<(), String> {
    let words: Vec<&str> =
        command.split(' ').map(|word| if word == "PIN" { pin.to_str().unwrap() } else { word }).collect();
    let lock = std::env::temp_dir().join(format!("bprec-xtables-{}.lock", std::process::id()));
    let done = Command::new(words[0]).args(&words[1..]).env("XTABLES_LOCKFILE", &lock).output();
    drop(std::fs::remove_file(lock));
    let done = done.map_err(|error| format!("{}: {error}", words[0]))?;
    done.status.success().then_some(()).ok_or_else(|| format!("{command}: {}", String::from_utf8_lossy(&done.stderr)))
}

#[test]
fn rules_that_match_by_a_program_are_its_attach_points() {
    let test = "rules_that_match_by_a_program_are_its_attach_points";
    if !can_load(test) {
        return;
    }
    // Pins are looked for where the process is, which is not the namespace of mounts that the thread gets beside that of the network.
    let Some(bpffs) = Bpffs::mount() else {
        println!("SKIP {test}: cannot mount a bpf file system");
        return;
    };
    // The namespace is that of the thread, so that the test has one of its own, which its rules go with.
    std::thread::scope(|scope| {
        scope.spawn(|| in_own_network(test, &bpffs)).join().unwrap();
    });
}

fn in_own_network(test: &str, bpffs: &Bpffs) {
    if !own_network() {
        println!("SKIP {test}: cannot make a network namespace");
        return;
    }
    let object = socket_filter();
    let btfs = BtfCache::new();
    let snapshots = snapshots(&object, &btfs);
    let (id, pin) = (prog_id(&object, "inventory_tc"), bpffs.path().join("filter"));
    program(&object, "inventory_tc").pin(&pin).unwrap();
    let found = || attachments(&look_around(&snapshots, &btfs), id);

    for (variant, suffix) in [("iptables-legacy", "legacy"), ("iptables-nft", "nf_tables")] {
        // Nothing is made by looking: no table that nobody has asked for.
        let tables = || std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
        let before = tables();
        assert_eq!(found(), [""; 0]);
        assert_eq!(tables(), before);

        let ip6 = variant.replace("iptables", "ip6tables");
        if let Err(reason) = run(&format!("{variant} -A INPUT -p tcp -j ACCEPT"), &pin) {
            println!("SKIP {test}: {variant}: {reason}");
            continue;
        }
        run(&format!("{variant} -N mine"), &pin).unwrap();
        let rules = [
            format!("{variant} -A INPUT -m bpf --object-pinned PIN -j ACCEPT"),
            format!("{variant} -A mine -p udp -m bpf --object-pinned PIN"),
            format!("{variant} -A OUTPUT -j mine"),
            format!("{variant} -t mangle -A POSTROUTING -m bpf --object-pinned PIN"),
            format!("{ip6} -A FORWARD -m bpf --object-pinned PIN"),
        ];
        if let Err(reason) = run(&rules[0], &pin) {
            println!("SKIP {test}: {variant}: {reason}");
            run(&format!("{variant} -F"), &pin).unwrap();
            continue;
        }
        rules[1..].iter().for_each(|rule| run(rule, &pin).unwrap());
        let places =
            |places: &[&str]| places.iter().map(|place| format!("xt_bpf {place} ({suffix})")).collect::<Vec<_>>();
        let expected = [
            "ip filter INPUT rule 2",
            "ip filter mine rule 1",
            "ip mangle POSTROUTING rule 1",
            "ip6 filter FORWARD rule 1",
        ];
        assert_eq!(found(), places(&expected));

        // The numbers of rules are what they are now.
        run(&format!("{variant} -D INPUT 1"), &pin).unwrap();
        assert_eq!(found()[0], places(&["ip filter INPUT rule 1"])[0]);

        // A pin that is gone says nothing any more, which is said.
        let moved = bpffs.path().join("moved");
        std::fs::rename(&pin, &moved).unwrap();
        let around = look_around(&snapshots, &btfs);
        assert_eq!(attachments(&around, id), [""; 0]);
        let problem =
            around.problems.iter().find(|it| it.starts_with("4 rules of iptables name pins that are not there"));
        assert!(problem.is_some_and(|it| it.contains(pin.to_str().unwrap())), "{:?}", around.problems);
        std::fs::rename(&moved, &pin).unwrap();

        for flush in ["-F", "-X mine", "-t mangle -F"] {
            run(&format!("{variant} {flush}"), &pin).unwrap();
        }
        run(&format!("{ip6} -F"), &pin).unwrap();
        assert_eq!(found(), [""; 0]);
    }
}

#[test]
fn rules_in_other_network_namespaces_are_found() {
    let test = "rules_in_other_network_namespaces_are_found";
    if !can_load(test) {
        return;
    }
    let (Some(network), Some(bpffs)) = (NamedNetwork::make(), Bpffs::mount()) else {
        println!("SKIP {test}: no `ip netns add`, or no bpf file system can be mounted");
        return;
    };
    let object = socket_filter();
    let btfs = BtfCache::new();
    let snapshots = snapshots(&object, &btfs);
    let (id, pin) = (prog_id(&object, "inventory_tc"), bpffs.path().join("filter"));
    program(&object, "inventory_tc").pin(&pin).unwrap();
    for (variant, suffix) in [("iptables-legacy", "legacy"), ("iptables-nft", "nf_tables")] {
        let inside = format!("ip netns exec {}", network.0);
        if let Err(reason) = run(&format!("{inside} {variant} -A INPUT -m bpf --object-pinned PIN"), &pin) {
            println!("SKIP {test}: {variant}: {reason}");
            continue;
        }
        let around = look_around(&snapshots, &btfs);
        let expected = format!("xt_bpf ip filter INPUT rule 1 ({suffix}) in netns {}", network.0);
        assert_eq!(attachments(&around, id), [expected], "{:?}", around.problems);
        run(&format!("{inside} {variant} -F"), &pin).unwrap();
    }
}
