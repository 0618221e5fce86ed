//! Maps, attachments, owners, pins and metadata, compared with bpftool, ip and tc.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use bprec_bpf::{BtfCache, Program, prog_arrays};
use bprec_format::bpf::names::MapType;
use bprec_format::bprec::state::ProgArray;
use common::*;
use libbpf_rs::{Link, MapCore, Object, libbpf_sys as sys};

fn id(object: &Object, name: &str) -> u32 {
    prog_id(object, name)
}

#[test]
fn maps_are_what_bpftool_says() {
    let test = "maps_are_what_bpftool_says";
    if !can_load(test) || !has_bpftool(test) {
        return;
    }
    let object = load_inventory(&["inventory_xdp"]);
    let btfs = BtfCache::new();
    let around = look_around(&snapshots(&object, &btfs), &btfs);
    let mut expected: Vec<u32> = object.maps().map(|map| map.info().unwrap().info.id).collect();
    expected.sort_unstable();
    assert_eq!(around.maps.iter().map(|map| map.id).collect::<Vec<_>>(), expected);
    for map in &around.maps {
        let listed = bpftool(&["map", "show", "id", &map.id.to_string()]);
        let number = |key: &str| listed[key].as_u64().unwrap();
        assert_eq!(MapType(map.map_type).name(), listed["type"].as_str());
        assert_eq!(String::from_utf8_lossy(&map.name), listed["name"].as_str().unwrap());
        assert_eq!(u64::from(map.flags), number("flags"));
        assert_eq!(u64::from(map.key_bytes), number("bytes_key"));
        assert_eq!(u64::from(map.value_bytes), number("bytes_value"));
        assert_eq!(u64::from(map.max_entries), number("max_entries"));
        assert_eq!(map.memlock_bytes, Some(number("bytes_memlock")));
        assert_eq!(u64::from(map.frozen), number("frozen"));
        assert_eq!(u64::from(map.btf_id), listed["btf_id"].as_u64().unwrap_or(0));
        assert_eq!(map.btf_id != 0, map.btf_value_type_id != 0);
    }
    let rodata = around.maps.iter().find(|map| map.name.ends_with(b".rodata")).unwrap();
    assert!(rodata.frozen && around.maps.iter().any(|map| !map.frozen));
}

#[test]
fn metadata_owners_and_pins_are_found() {
    let test = "metadata_owners_and_pins_are_found";
    if !can_load(test) {
        return;
    }
    let before_ns = uptime_ns();
    let object = load_inventory(&["inventory_raw_tp", "inventory_xdp", "inventory_tc"]);
    let (by_prog, by_link) = (id(&object, "inventory_xdp"), id(&object, "inventory_raw_tp"));
    let btfs = BtfCache::new();
    let mut link = program(&object, "inventory_raw_tp").attach().unwrap();
    let holds_prog = Holder::of(program(&object, "inventory_xdp").as_fd().try_clone_to_owned().unwrap());
    let holds_link = Holder::of(link.as_fd().try_clone_to_owned().unwrap());
    let map = object.maps().find(|map| map.name() == "inventory_map").unwrap();
    let holds_map = Holder::of(map.as_fd().try_clone_to_owned().unwrap());
    let bpffs = Bpffs::mount();
    let mut pins = Vec::new();
    if let Some(bpffs) = &bpffs {
        let directory = bpffs.path().join("with space");
        std::fs::create_dir(&directory).unwrap();
        pins = vec![directory.join("prog"), directory.join("link")];
        object.progs_mut().find(|it| it.name() == "inventory_xdp").unwrap().pin(&pins[0]).unwrap();
        link.pin(&pins[1]).unwrap();
    } else {
        println!("SKIP {test}: pins: cannot mount a bpf file system");
    }

    let snapshots = snapshots(&object, &btfs);
    let around = look_around(&snapshots, &btfs);
    let about = |prog_id: u32| {
        let snapshot = snapshots.iter().find(|it| it.info.view().id() == Some(prog_id)).unwrap();
        around.program(snapshot, false)
    };
    let (xdp, raw_tp, tc) = (about(by_prog), about(by_link), about(id(&object, "inventory_tc")));
    let metadata: Vec<(&[u8], &[u8])> = xdp.metadata.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(metadata, [(&b"team"[..], &b"\"storage\""[..]), (b"build", b"42")]);
    let pids =
        |program: &bprec_format::bprec::state::Program| program.owners.iter().map(|it| it.pid).collect::<Vec<_>>();
    // The owners can include another recorder that runs at the same time, so the checks use `contains`.
    assert!(pids(&xdp).contains(&holds_prog.pid()) && !pids(&xdp).contains(&holds_map.pid()));
    assert!(pids(&raw_tp).contains(&holds_link.pid()) && !pids(&raw_tp).contains(&holds_prog.pid()));
    // No process holds this program itself, so the holder of one of its maps is its owner.
    if !pids(&tc).contains(&holds_map.pid()) {
        println!("SKIP {test}: owner by map: another process holds the program");
    }
    let owner = xdp.owners.iter().find(|it| it.pid == holds_prog.pid()).unwrap();
    assert_eq!((&owner.comm[..], owner.uid), (&b"sleep"[..], 0));
    assert!(owner.cgroup.starts_with(b"/"));
    if bpffs.is_some() {
        let paths =
            |pins: &[Vec<u8>]| pins.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect::<Vec<_>>();
        assert_eq!(paths(&xdp.pins), [pins[0].to_str().unwrap()]);
        assert_eq!(paths(&raw_tp.pins), [pins[1].to_str().unwrap()]);
    }
    assert!((before_ns..=uptime_ns() + 10_000_000).contains(&xdp.load_time_ns), "{}", xdp.load_time_ns);
}

/// Nanoseconds since boot, with the resolution of /proc/uptime.
fn uptime_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    let (seconds, hundredths) = text.split(' ').next().unwrap().split_once('.').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000_000 + hundredths.parse::<u64>().unwrap() * 10_000_000
}

#[test]
fn programs_reached_by_tail_calls_say_from_where() {
    if !can_load("programs_reached_by_tail_calls_say_from_where") {
        return;
    }
    let bytes = include_bytes!("../../fixtures/bpf/tailcall.bpf.o");
    let object = libbpf_rs::ObjectBuilder::default().open_memory(bytes).unwrap().load().unwrap();
    let btfs = BtfCache::new();
    let around = look_around(&snapshots(&object, &btfs), &btfs);
    for (index, name) in ["tail_call_first", "tail_call_second", "tail_call_third"].into_iter().enumerate() {
        assert_eq!(attachments(&around, id(&object, name)), [format!("tail_call chain[{index}]")]);
    }
    assert_eq!(attachments(&around, id(&object, "tail_call_entry")), [""; 0]);
    let jumps = object.maps().find(|map| map.name() == "chain").unwrap();
    let held = |around: &[ProgArray]| match around {
        [array] => (array.map_id, array.slots.iter().map(|slot| (slot.index, slot.prog_id)).collect::<Vec<_>>()),
        others => panic!("{others:?}"),
    };
    let (first, second, third) =
        (id(&object, "tail_call_first"), id(&object, "tail_call_second"), id(&object, "tail_call_third"));
    let map_id = jumps.info().unwrap().info.id;
    assert_eq!(held(&around.prog_arrays), (map_id, vec![(0, first), (1, second), (2, third)]));
    // A deleted entry is missing in the next reading.
    jumps.delete(&1u32.to_ne_bytes()).unwrap();
    assert_eq!(held(&prog_arrays([map_id])), (map_id, vec![(0, first), (2, third)]));
}

#[test]
fn links_are_what_they_were_attached_to() {
    let test = "links_are_what_they_were_attached_to";
    if !can_load(test) {
        return;
    }
    let object = load_inventory(&[]);
    let btfs = BtfCache::new();
    let mut links: Vec<Link> = Vec::new();
    for name in ["inventory_raw_tp", "inventory_tp_btf", "inventory_iter_task"] {
        links.push(program(&object, name).attach().unwrap());
    }
    let clock = perf_event(1, 0);
    links.push(program(&object, "inventory_perf_event").attach_perf_event(clock.into_raw_fd()).unwrap());
    let tracefs = Tracefs::mount();
    let tracepoint = tracefs.as_ref().map(|tracefs| perf_event(2, tracefs.id("sched/sched_switch")));
    // The link takes over the event's descriptor and closes it.
    let has_tracepoint = tracepoint.is_some();
    if let Some(event) = tracepoint {
        let name = "inventory_counts_every_switch";
        links.push(program(&object, name).attach_perf_event(event.into_raw_fd()).unwrap());
    }
    let cgroup = Cgroup::make();
    if let Some(cgroup) = &cgroup {
        let directory = std::fs::File::open(&cgroup.0).unwrap();
        links.push(program(&object, "inventory_egress").attach_cgroup(directory.as_raw_fd()).unwrap());
    }

    let around = look_around(&snapshots(&object, &btfs), &btfs);
    let of = |name: &str| attachments(&around, id(&object, name));
    assert_eq!(of("inventory_raw_tp"), ["link raw_tracepoint sched_wakeup"]);
    assert_eq!(of("inventory_tp_btf"), ["link raw_tracepoint sched_process_exit"]);
    assert_eq!(of("inventory_iter_task"), ["link iter task"]);
    if !kernel_is(6, 6) {
        println!("SKIP {test}: perf events: before Linux 6.6, links do not show the event");
        return;
    }
    assert_eq!(of("inventory_perf_event"), ["link perf_event cpu-clock"]);
    match has_tracepoint {
        true => assert_eq!(of("inventory_counts_every_switch"), ["link tracepoint sched:sched_switch"]),
        false => println!("SKIP {test}: tracepoint: cannot mount tracefs"),
    }
    match &cgroup {
        Some(cgroup) => {
            let below = format!("/{}", cgroup.0.file_name().unwrap().to_str().unwrap());
            assert_eq!(of("inventory_egress"), [format!("link cgroup_inet_egress {below}")]);
        }
        None => println!("SKIP {test}: cgroup: no writable cgroup2"),
    }
    // bpftool lists the same links.
    let listed = bpftool(&["link", "show"]);
    for attachment in around.attachments.iter().filter(|it| it.link_id.is_some()) {
        let entry = listed.as_array().unwrap().iter().find(|it| it["id"] == attachment.link_id.unwrap());
        if let Some(entry) = entry {
            assert_eq!(entry["prog_id"], attachment.prog_id, "{entry}");
            if let Some(name) = entry["tp_name"].as_str() {
                assert_eq!(name.as_bytes(), attachment.target.text(), "{entry}");
            }
        }
    }
}

#[test]
fn trampolines_name_what_they_trace() {
    let test = "trampolines_name_what_they_trace";
    if !can_load(test) {
        return;
    }
    let traced = load_inventory(&["inventory_xdp", "inventory_raw_tp"]);
    let (xdp, raw_tp) = (program(&traced, "inventory_xdp"), program(&traced, "inventory_raw_tp"));
    let subprogram = "inventory_spin_in_a_subprogram";
    let of_raw_tp = format!("{subprogram} of program {}", id(&traced, "inventory_raw_tp"));
    let of_xdp = format!("inventory_xdp of program {}", id(&traced, "inventory_xdp"));
    let cases = [
        ("inventory_fentry", None, "fentry", "bpf_fentry_test1"),
        ("inventory_fexit_module", None, "fexit", "virtio_queue_rq [virtio_blk]"),
        ("inventory_fentry_prog", Some((raw_tp.as_fd(), subprogram)), "fentry", &of_raw_tp),
        ("inventory_replacement", Some((xdp.as_fd(), "inventory_xdp")), "freplace", &of_xdp),
    ];
    for (name, target, kind, expected) in cases {
        let attached = |object: &Object| program(object, name).attach();
        // Before 5.13, links do not show their targets.
        let expected = format!("link {kind} {}", if kernel_is(5, 13) { expected } else { "" });
        is_found(test, name, target, attached, &expected);
    }
}

#[test]
fn probes_name_what_they_are_placed_on() {
    let test = "probes_name_what_they_are_placed_on";
    if !can_load(test) || !kernel_is(6, 6) {
        println!("SKIP {test}: needs root and Linux 6.6: earlier links do not show the probe");
        return;
    }
    let itself = std::env::current_exe().unwrap();
    let path = itself.to_str().unwrap();
    let kprobe = |object: &Object| program(object, "inventory_kprobe").attach_kprobe(false, "bpf_fentry_test1");
    is_found(test, "inventory_kprobe", None, kprobe, "link kprobe bpf_fentry_test1");
    let kretprobe = |object: &Object| program(object, "inventory_kprobe").attach_kprobe(true, "bpf_fentry_test1");
    is_found(test, "inventory_kprobe", None, kretprobe, "link kretprobe bpf_fentry_test1");
    let multi = |object: &Object| {
        let functions = vec!["bpf_fentry_test1", "bpf_fentry_test2"];
        program(object, "inventory_kprobe_multi").attach_kprobe_multi(false, functions)
    };
    let expected = "link kprobe_multi bpf_fentry_test1, bpf_fentry_test2";
    is_found(test, "inventory_kprobe_multi", None, multi, expected);
    // The kernel refuses a probe where there is no instruction. The bytes at this offset of a 64-bit ELF file are one: `add al, [rcx]`.
    let uprobe = |object: &Object| program(object, "inventory_uprobe").attach_uprobe(true, -1, path, 0x4);
    is_found(test, "inventory_uprobe", None, uprobe, &format!("link uretprobe {path}+0x4"));
    let netfilter = |object: &Object| {
        let hook = libbpf_rs::NetfilterOpts { protocol_family: 2, hooknum: 1, priority: -7, ..Default::default() };
        program(object, "inventory_netfilter").attach_netfilter_with_opts(hook)
    };
    is_found(test, "inventory_netfilter", None, netfilter, "link netfilter ipv4 input priority -7");
}

/// Loads one program of `inventory_tracing.bpf.c` and attaches it. The inventory must report it at this attach point.
fn is_found(
    test: &str,
    name: &str,
    target: Option<(BorrowedFd<'_>, &str)>,
    attach: impl FnOnce(&Object) -> libbpf_rs::Result<Link>,
    expected: &str,
) {
    let attached = load_tracing(&[name], target).and_then(|object| match attach(&object) {
        Ok(link) => Ok((object, link)),
        Err(error) => Err(format!("cannot attach: {error}")),
    });
    let (object, link) = match attached {
        Ok(attached) => attached,
        Err(reason) => {
            println!("SKIP {test}: {name}: {reason}");
            return;
        }
    };
    let btfs = BtfCache::new();
    let around = look_around(&snapshots(&object, &btfs), &btfs);
    assert_eq!(attachments(&around, id(&object, name)), [expected]);
    drop(link);
}

#[test]
fn operations_of_the_kernel_name_their_members() {
    let test = "operations_of_the_kernel_name_their_members";
    if !can_load(test) {
        return;
    }
    let members = ["inventory_ssthresh", "inventory_undo_cwnd", "inventory_cong_avoid"];
    let mut object = match load_tracing(&members, None) {
        Ok(object) => object,
        Err(reason) => {
            println!("SKIP {test}: {reason}");
            return;
        }
    };
    let link = object.maps_mut().find(|map| map.name() == "inventory_tcp").unwrap().attach_struct_ops().unwrap();
    let btfs = BtfCache::new();
    let around = look_around(&snapshots(&object, &btfs), &btfs);
    for name in members {
        let member = name.strip_prefix("inventory_").unwrap();
        let expected = format!("link struct_ops tcp_congestion_ops inventory_tcp.{member}");
        assert_eq!(attachments(&around, id(&object, name)), [expected]);
    }
    drop(link);
}

#[test]
fn attachments_to_the_network_are_found_with_and_without_links() {
    let test = "attachments_to_the_network_are_found_with_and_without_links";
    if !can_load(test) || !has_bpftool(test) {
        return;
    }
    // The network namespace belongs to the thread, so the test gets its own.
    std::thread::scope(|scope| {
        scope.spawn(|| in_own_network(test)).join().unwrap();
    });
}

fn in_own_network(test: &str) {
    if !own_network() {
        println!("SKIP {test}: cannot make a network namespace");
        return;
    }
    let Some(bpffs) = Bpffs::mount() else {
        println!("SKIP {test}: cannot mount a bpf file system");
        return;
    };
    let object = load_inventory(&["inventory_xdp", "inventory_tc"]);
    let btfs = BtfCache::new();
    let snapshots = snapshots(&object, &btfs);
    let (xdp, tc) = (id(&object, "inventory_xdp"), id(&object, "inventory_tc"));

    let link = program(&object, "inventory_xdp").attach_xdp(1).unwrap();
    let around = look_around(&snapshots, &btfs);
    assert_eq!(attachments(&around, xdp), ["link xdp lo"]);
    // Other threads are in another network namespace: there, interface 1 is another interface or has another program.
    let elsewhere = std::thread::scope(|scope| {
        let look = || {
            // /proc/self describes the process, so this is the network namespace of its first thread.
            let home = std::fs::File::open("/proc/self/ns/net").unwrap();
            // SAFETY: takes no pointers and moves only this thread.
            unsafe { libc::setns(home.as_raw_fd(), libc::CLONE_NEWNET) };
            look_around(&snapshots, &btfs)
        };
        scope.spawn(look).join().unwrap()
    });
    assert_eq!(attachments(&elsewhere, xdp), ["link xdp interface 1 of another namespace"]);
    drop(link);

    let pin = bpffs.path().join("prog");
    let run = |command: &str| {
        let pin = pin.to_str().unwrap();
        let words: Vec<&str> = command.split(' ').map(|word| if word == "PIN" { pin } else { word }).collect();
        let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    };
    program(&object, "inventory_xdp").pin(&pin).unwrap();
    run("bpftool net attach xdpgeneric pinned PIN dev lo");
    let around = look_around(&snapshots, &btfs);
    assert_eq!(attachments(&around, xdp), ["xdp lo"]);
    assert!(around.problems.iter().all(|problem| !problem.contains("RTM_")), "{:?}", around.problems);
    run("bpftool net detach xdpgeneric dev lo");
    std::fs::remove_file(&pin).unwrap();
    assert!(attachments(&look_around(&snapshots, &btfs), xdp).is_empty());

    program(&object, "inventory_tc").pin(&pin).unwrap();
    if Command::new("tc").args(["qdisc", "add", "dev", "lo", "clsact"]).status().is_ok_and(|status| status.success()) {
        run("tc filter add dev lo egress bpf direct-action object-pinned PIN");
        run("tc filter add dev lo ingress bpf direct-action object-pinned PIN");
        assert_eq!(attachments(&look_around(&snapshots, &btfs), tc), ["tc_egress lo", "tc_ingress lo"]);
        run("tc qdisc del dev lo clsact");
    } else {
        println!("SKIP {test}: tc filters: no tc, or a kernel without clsact");
    }
    let Some(tcx) = link_create(&program(&object, "inventory_tc"), 1, 46) else {
        println!("SKIP {test}: tcx: needs Linux 6.6");
        return;
    };
    assert_eq!(attachments(&look_around(&snapshots, &btfs), tc), ["link tcx_ingress lo"]);
    drop(tcx);
}

#[test]
fn attachments_in_other_network_namespaces_are_found() {
    let test = "attachments_in_other_network_namespaces_are_found";
    if !can_load(test) || !has_bpftool(test) {
        return;
    }
    let (Some(network), Some(bpffs)) = (NamedNetwork::make(), Bpffs::mount()) else {
        println!("SKIP {test}: no `ip netns add`, or no bpf file system can be mounted");
        return;
    };
    let object = load_inventory(&["inventory_xdp", "inventory_tc"]);
    let btfs = BtfCache::new();
    let snapshots = snapshots(&object, &btfs);
    let (xdp, tc) = (id(&object, "inventory_xdp"), id(&object, "inventory_tc"));
    let (xdp_pin, tc_pin) = (bpffs.path().join("xdp"), bpffs.path().join("tc"));
    program(&object, "inventory_xdp").pin(&xdp_pin).unwrap();
    program(&object, "inventory_tc").pin(&tc_pin).unwrap();

    assert!(network.run("bpftool net attach xdpgeneric pinned PIN dev lo", &xdp_pin));
    let has_tc = network.run("tc qdisc add dev lo clsact", &tc_pin);
    let has_tc = has_tc && network.run("tc filter add dev lo egress bpf direct-action object-pinned PIN", &tc_pin);
    let before = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let around = look_around(&snapshots, &btfs);
    assert_eq!(
        std::fs::read_link("/proc/thread-self/ns/net").unwrap(),
        before,
        "the thread is in its own network namespace again"
    );
    assert_eq!(attachments(&around, xdp), [format!("xdp lo in netns {}", network.0)], "{:?}", around.problems);
    if has_tc {
        assert_eq!(attachments(&around, tc), [format!("tc_egress lo in netns {}", network.0)]);
    } else {
        println!("SKIP {test}: tc filters: no tc, or a kernel without clsact");
    }
    // A namespace without a name is identified by a process in it.
    let mut child = Command::new("ip").args(["netns", "exec", &network.0, "sleep", "1000"]).spawn().unwrap();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() != "sleep\n" {
        assert!(std::time::Instant::now() < patience, "sleep did not start");
        std::thread::yield_now();
    }
    let number = std::fs::read_link(format!("/proc/{}/ns/net", child.id())).unwrap();
    let name = network.0.clone();
    drop(network);
    let found = attachments(&look_around(&snapshots, &btfs), xdp);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, [format!("xdp lo in {} of process {} (sleep)", number.display(), child.id())], "was {name}");
}

#[test]
fn programs_on_events_and_cgroups_without_a_link_are_found() {
    let test = "programs_on_events_and_cgroups_without_a_link_are_found";
    if !can_load(test) || !has_bpftool(test) {
        return;
    }
    let object = load_inventory(&["inventory_counts_every_switch", "inventory_egress", "inventory_perf_event"]);
    let btfs = BtfCache::new();
    let snapshots = snapshots(&object, &btfs);
    if let Some(tracefs) = Tracefs::mount() {
        let event = perf_event(2, tracefs.id("sched/sched_switch"));
        set_bpf(&event, &program(&object, "inventory_counts_every_switch"));
        let holder = Holder::of(event);
        let around = look_around(&snapshots, &btfs);
        let prog_id = id(&object, "inventory_counts_every_switch");
        assert_eq!(attachments(&around, prog_id), ["tracepoint sched:sched_switch"]);
        let owners = around.program(&snapshots[0], false).owners;
        assert!(owners.iter().any(|it| it.pid == holder.pid()), "{owners:?}");
    } else {
        println!("SKIP {test}: tracepoint: cannot mount tracefs");
    }

    let event = perf_event(1, 0);
    set_bpf(&event, &program(&object, "inventory_perf_event"));
    let holder = Holder::of(event);
    let around = look_around(&snapshots, &btfs);
    let expected = format!("perf_event event of process {}", holder.pid());
    let found = attachments(&around, id(&object, "inventory_perf_event"));
    // If the machine has other programs of this type without a link, the target is ambiguous, which is reported.
    let is_ambiguous = |problem: &String| problem.contains("they have no link, and the kernel does not report");
    let ambiguous = around.problems.iter().any(is_ambiguous);
    assert_ne!(found.contains(&expected), ambiguous, "{found:?} {:?}", around.problems);

    let (Some(cgroup), Some(bpffs)) = (Cgroup::make(), Bpffs::mount()) else {
        println!("SKIP {test}: cgroup: no writable cgroup2, or no bpf file system");
        return;
    };
    let pin = bpffs.path().join("prog");
    program(&object, "inventory_egress").pin(&pin).unwrap();
    let path = cgroup.0.to_str().unwrap();
    bpftool(&["cgroup", "attach", path, "egress", "pinned", pin.to_str().unwrap(), "multi"]);
    let below = format!("/{}", cgroup.0.file_name().unwrap().to_str().unwrap());
    let found = attachments(&look_around(&snapshots, &btfs), id(&object, "inventory_egress"));
    assert_eq!(found, [format!("cgroup_inet_egress {below}")]);
}

/// Loads a program of the type `prog_type` that returns 1. Returns its descriptor and id.
fn returns_one(prog_type: u32) -> (OwnedFd, u32) {
    let one = sys::bpf_insn { code: 0xb7, imm: 1, ..sys::bpf_insn::default() };
    let insns = [one, sys::bpf_insn { code: 0x95, ..sys::bpf_insn::default() }];
    // SAFETY: two instructions; name and license end in a NUL. The kernel makes the descriptor for us.
    let fd = unsafe {
        let fd =
            sys::bpf_prog_load(prog_type, c"one".as_ptr(), c"GPL".as_ptr(), insns.as_ptr(), 2, std::ptr::null_mut());
        assert!(fd >= 0, "type {prog_type}: {}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    };
    let id = number_of(&fd, "prog_id:");
    (fd, id)
}

/// Reads a number from the fdinfo of a descriptor.
fn number_of(fd: &OwnedFd, name: &str) -> u32 {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
    info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
}

/// Programs attached to tcx, flow dissector and sockmaps without a link are found. The attachments end with the network namespace and the map.
#[test]
fn programs_at_hooks_without_a_link_are_found() {
    let test = "programs_at_hooks_without_a_link_are_found";
    if !can_load(test) {
        return;
    }
    let look = || {
        if !own_network() {
            return println!("SKIP {test}: cannot make a network namespace");
        }
        // SAFETY: the name ends in a NUL; the kernel makes the descriptor for us.
        let map = unsafe {
            let fd = sys::bpf_map_create(sys::BPF_MAP_TYPE_SOCKMAP, c"sockets".as_ptr(), 4, 4, 1, std::ptr::null());
            OwnedFd::from_raw_fd(fd)
        };
        let map_id = number_of(&map, "map_id:");
        let namespace = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        const LOOPBACK: i32 = 1;
        for (prog_type, hook, of, expected) in [
            (sys::BPF_PROG_TYPE_SCHED_CLS, sys::BPF_TCX_INGRESS, LOOPBACK, "tcx_ingress lo".to_owned()),
            (
                sys::BPF_PROG_TYPE_FLOW_DISSECTOR,
                sys::BPF_FLOW_DISSECTOR,
                0,
                format!("flow_dissector net:[{namespace}]"),
            ),
            (
                sys::BPF_PROG_TYPE_SK_SKB,
                sys::BPF_SK_SKB_STREAM_VERDICT,
                map.as_raw_fd(),
                "sk_skb_stream_verdict sockets".to_owned(),
            ),
            (sys::BPF_PROG_TYPE_SK_MSG, sys::BPF_SK_MSG_VERDICT, map.as_raw_fd(), "sk_msg_verdict sockets".to_owned()),
        ] {
            if of == map.as_raw_fd() && !kernel_is(5, 18) {
                println!("SKIP {test}: {expected}: maps of sockets show their programs from Linux 5.18 on");
                continue;
            }
            let (program, id) = returns_one(prog_type);
            // SAFETY: takes no pointers.
            let answer = unsafe { sys::bpf_prog_attach(program.as_raw_fd(), of, hook, 0) };
            if answer != 0 {
                println!("SKIP {test}: {expected}: {}", std::io::Error::last_os_error());
                continue;
            }
            let btfs = BtfCache::new();
            let snapshot = Program::take(id).unwrap().fetch(&btfs).unwrap();
            let found = attachments(&look_around(&[snapshot], &btfs), id);
            // Map names are not unique, so the target also has the map's id.
            let names: Vec<String> = found.iter().map(|it| it.replace(&format!(" map {map_id}"), "")).collect();
            assert_eq!(names, [expected]);
        }
    };
    // The network namespace belongs to the thread.
    std::thread::scope(|scope| scope.spawn(look).join().unwrap());
}

/// A tracefs mounted in an unusual directory.
struct Tracefs(tempfile::TempDir);

impl Tracefs {
    fn mount() -> Option<Tracefs> {
        let directory = tempfile::tempdir().unwrap();
        let done = Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(directory.path()).status().ok()?;
        done.success().then_some(Tracefs(directory))
    }

    fn id(&self, event: &str) -> u64 {
        let path = self.0.path().join("events").join(event).join("id");
        std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// A cgroup of the unified hierarchy without tasks.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    fn make() -> Option<Cgroup> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            (fields[2] == "cgroup2").then(|| fields[1].to_owned())
        })?;
        let path = tempfile::Builder::new().prefix("bprec-test-").tempdir_in(root).ok()?.keep();
        Some(Cgroup(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
