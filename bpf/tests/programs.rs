//! Programs and their statistics, compared with bpftool and fdinfo.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::process::Command;

use bprec_bpf::{BtfCache, Kallsyms, KernelNames, Program, Refs, StatsGuard, access, prog_ids};
use bprec_format::bpf::prog_info::Array;
use common::{bpftool, bpftool_dump, can_load, has_bpftool, has_jit, load_inventory, prog_id};
use libbpf_rs::ProgramInput;

#[test]
fn programs_are_what_bpftool_says() {
    let test = "programs_are_what_bpftool_says";
    if !can_load(test) || !has_bpftool(test) || !has_jit(test) {
        return;
    }
    let object = load_inventory(&[]);
    let ours: Vec<u32> = object.progs().map(|program| prog_id(&object, program.name().to_str().unwrap())).collect();
    assert!(ours.len() >= 8);
    let btfs = BtfCache::new();
    let listed = bpftool(&["prog", "show"]);
    let listed: Vec<_> = listed.as_array().unwrap().iter().filter(|entry| !entry["id"].is_null()).collect();
    let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let hidden_symbols = Kallsyms::read().unwrap().problem().is_some();
    let ids: Vec<u32> = prog_ids().collect::<Result<_, _>>().unwrap();
    for id in &ours {
        assert!(ids.contains(id), "{id} is not among {ids:?}");
        let entry = listed.iter().find(|entry| entry["id"] == *id).unwrap();
        let program = Program::take(*id).unwrap();
        let snapshot = program.fetch(&btfs).unwrap();
        assert_eq!(snapshot.withheld, "", "program {id}");
        let info = snapshot.info.view();
        assert!(info.dropped().is_empty(), "{:?}", info.dropped());
        assert_eq!(info.prog_type().unwrap().name().unwrap(), entry["type"].as_str().unwrap());
        assert_eq!(info.tag().unwrap().to_string(), entry["tag"].as_str().unwrap());
        assert_eq!(info.id().unwrap(), *id);
        // bpftool prints the full name from BTF; the info has its first 15 bytes.
        let name = entry["name"].as_str().unwrap();
        assert_eq!(info.name().unwrap(), &name.as_bytes()[..name.len().min(15)]);
        assert_eq!(u64::from(info.created_by_uid().unwrap()), entry["uid"].as_u64().unwrap());
        assert_eq!(u64::from(info.btf_id().unwrap()), entry["btf_id"].as_u64().unwrap());
        assert_eq!(info.xlated_insns().unwrap(), bpftool_dump("xlated", *id), "program {id}");
        assert_eq!(info.jited_insns().unwrap().len() as u64, entry["bytes_jited"].as_u64().unwrap());
        let maps: Vec<u64> = info.map_ids().map(|ids| ids.iter().map(u64::from).collect()).unwrap_or_default();
        let map_ids = entry["map_ids"].as_array().unwrap();
        assert_eq!(maps, map_ids.iter().map(|id| id.as_u64().unwrap()).collect::<Vec<_>>());
        let functions = info.jited_ksyms().unwrap();
        assert_eq!(functions.len(), info.func_info().unwrap().len());
        let symbol = format!("{:x} t bpf_prog_{}_{name}\t[bpf]", functions.get(0).unwrap(), info.tag().unwrap());
        assert!(hidden_symbols || kallsyms.lines().any(|line| line == symbol), "{symbol}");
        assert_eq!(info.line_info().unwrap().len(), info.jited_line_info().unwrap().len());
        let code_bytes: u32 = info.jited_func_lens().unwrap().iter().sum();
        assert_eq!(code_bytes as usize, info.jited_insns().unwrap().len());
        assert!(snapshot.btf.is_some_and(|btf| btf.starts_with(&0xeb9fu16.to_ne_bytes())));
    }
    assert_eq!(btfs.all().len(), 1, "programs of one object share one BTF");
}

#[test]
fn a_held_program_outlives_its_owner_and_a_freed_one_fails_alone() {
    if !can_load("a_held_program_outlives_its_owner_and_a_freed_one_fails_alone") {
        return;
    }
    let object = load_inventory(&["inventory_raw_tp", "inventory_xdp"]);
    let (held, freed) = (prog_id(&object, "inventory_raw_tp"), prog_id(&object, "inventory_xdp"));
    let program = Program::take(held).unwrap();
    drop(object);
    let snapshot = program.fetch(&BtfCache::new()).unwrap();
    assert_eq!(snapshot.info.view().name(), Some(&b"inventory_raw_t"[..]));
    assert!(snapshot.info.arrays[Array::XlatedInsns as usize].is_some() && snapshot.btf.is_some());

    // The last reference is dropped after an RCU grace period; a recorder that runs at the same time drops its reference at its end.
    let error = (0..1500)
        .find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            Program::take(freed).err()
        })
        .unwrap();
    assert!(error.is_gone(), "{error}");
    assert_eq!(
        error.to_string(),
        format!("bpf(BPF_PROG_GET_FD_BY_ID) program {freed}: No such file or directory (ENOENT)")
    );
    assert!(prog_ids().all(|id| id.unwrap() != freed));
}

#[test]
fn programs_that_come_and_go_spoil_nothing() {
    if !can_load("programs_that_come_and_go_spoil_nothing") {
        return;
    }
    let object = load_inventory(&["inventory_tc"]);
    let stays = prog_id(&object, "inventory_tc");
    let (mut rounds, mut gone) = (0, 0);
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| (0..40).for_each(|_| drop(load_inventory(&["inventory_xdp", "inventory_raw_tp"]))));
        while !churn.is_finished() {
            let btfs = BtfCache::new();
            let ids: Vec<u32> = prog_ids().collect::<Result<_, _>>().unwrap();
            for id in ids {
                match Program::take(id) {
                    Ok(program) => assert_eq!(program.fetch(&btfs).unwrap().withheld, "", "program {id}"),
                    Err(error) => {
                        assert!(error.is_gone() && id != stays, "{error}");
                        gone += 1;
                    }
                }
            }
            rounds += 1;
        }
    });
    println!("{rounds} rounds, {gone} programs gone between their id and their descriptor");
    assert!(rounds > 1);
}

#[test]
fn maps_bound_meanwhile_are_found_too() {
    use libbpf_rs::{MapHandle, MapType};
    use std::os::fd::AsFd;
    if !can_load("maps_bound_meanwhile_are_found_too") {
        return;
    }
    const MAPS: u32 = 300;
    let object = load_inventory(&["inventory_raw_tp"]);
    let loaded = common::program(&object, "inventory_raw_tp");
    let program = Program::take(prog_id(&object, "inventory_raw_tp")).unwrap();
    let btfs = BtfCache::new();
    let map_count = || {
        let snapshot = program.fetch(&btfs).unwrap();
        let info = snapshot.info.view();
        assert!(info.dropped().is_empty(), "{:?}", info.dropped());
        info.map_ids().unwrap().len()
    };
    let before = map_count();
    std::thread::scope(|scope| {
        let prog_fd = loaded.as_fd();
        let binder = scope.spawn(move || {
            let opts = libbpf_rs::libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as libbpf_rs::libbpf_sys::size_t,
                ..Default::default()
            };
            let create = |_| MapHandle::create(MapType::Array, Some("bound"), 4, 8, 1, &opts).unwrap();
            let maps: Vec<MapHandle> = (0..MAPS).map(create).collect();
            // The delay after each map is chosen so that fetches succeed, and that some maps are bound between the two system calls of a fetch.
            for map in &maps {
                common::bind_map(prog_fd, map.as_fd());
                std::hint::black_box((0..2000).map(std::hint::black_box).sum::<u64>());
            }
        });
        let mut last = before;
        while !binder.is_finished() {
            let now = map_count();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    });
    assert_eq!(map_count(), before + MAPS as usize);
}

#[test]
fn run_statistics_count_the_runs_made() {
    if !can_load("run_statistics_count_the_runs_made") {
        return;
    }
    let object = load_inventory(&["inventory_xdp"]);
    let program = Program::take(prog_id(&object, "inventory_xdp")).unwrap();
    let guard = StatsGuard::enable().unwrap();
    let before = program.stats().unwrap();
    let packet = [0u8; 64];
    let loaded = object.progs_mut().find(|loaded| loaded.name() == "inventory_xdp").unwrap();
    loaded.test_run(ProgramInput { data_in: Some(&packet), repeat: 1000, ..ProgramInput::default() }).unwrap();
    let after = program.stats().unwrap();
    drop(guard);
    // A repeated test run counts as a run for each repetition.
    assert_eq!(after.run_cnt - before.run_cnt, 1000);
    assert!(after.run_time_ns > before.run_time_ns);
    assert_eq!(after.recursion_misses, common::kernel_is(5, 12).then_some(0));
}

/// Count of descriptors of a program in one process, or in all processes, according to fdinfo.
fn descriptors(pid: Option<u32>, id: u32) -> usize {
    let line = format!("prog_id:\t{id}");
    let is_process = |name: &str| pid.map_or_else(|| name.parse::<u32>().is_ok(), |pid| name == pid.to_string());
    let processes =
        std::fs::read_dir("/proc").unwrap().flatten().filter(|it| it.file_name().to_str().is_some_and(is_process));
    let infos =
        processes.flat_map(|process| std::fs::read_dir(process.path().join("fdinfo")).into_iter().flatten().flatten());
    let is_its = |info: &std::fs::DirEntry| {
        std::fs::read_to_string(info.path())
            .is_ok_and(|text| text.contains("prog_type") && text.lines().any(|it| it == line))
    };
    infos.filter(is_its).count()
}

#[test]
fn a_program_that_nobody_else_holds_is_told_by_its_references() {
    if !can_load("a_program_that_nobody_else_holds_is_told_by_its_references") {
        return;
    }
    let object = load_inventory(&["inventory_raw_tp"]);
    let program = Program::take(prog_id(&object, "inventory_raw_tp")).unwrap();
    let refs = Refs::load().unwrap();
    let references = || refs.read().unwrap().iter().find(|it| it.id == program.id()).map(|it| it.references);
    // Links drop their reference after a grace period. A recorder that runs at the same time has its own descriptors.
    let expect = |own: usize, links: i64| {
        let reached = (0..1000).any(|_| {
            let all = descriptors(None, program.id()) as i64;
            let is_it = references() == Some(all + links) && descriptors(Some(std::process::id()), program.id()) == own;
            if !is_it {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            is_it
        });
        let all = descriptors(None, program.id());
        assert!(reached, "{:?} references, {all} descriptors, {own} expected of this process", references());
    };
    // Two descriptors: that of the loader (`object`) and that of this test (`program`).
    expect(2, 0);
    let link = common::program(&object, "inventory_raw_tp").attach().unwrap();
    expect(2, 1);
    let again = Program::take(program.id()).unwrap();
    expect(3, 1);
    drop((again, link, object));
    expect(1, 0);
    let ids: Vec<u32> = refs.read().unwrap().iter().map(|it| it.id).collect();
    assert!(ids.is_sorted() && ids.contains(&refs.own_id()));
}

#[test]
fn recorders_tell_each_other_what_they_hold() {
    if !can_load("recorders_tell_each_other_what_they_hold") {
        return;
    }
    let object = load_inventory(&["inventory_raw_tp"]);
    let id = prog_id(&object, "inventory_raw_tp");
    let [one, other] = [(), ()].map(|()| Refs::load().unwrap());
    let of =
        |refs: &Refs| refs.read().unwrap().into_iter().find(|it| it.id == id).map(|it| (it.own, it.other_recorders));
    // More references than all recorders that run at the same time hold together.
    const MANY: i64 = 1 << 40;
    let tells = |refs: &Refs| of(refs).is_some_and(|(_, others)| others >= MANY);
    assert!(!tells(&one) && !tells(&other));
    assert!(one.set_held(id, MANY));
    assert_eq!(of(&one).map(|(own, _)| own), Some(MANY));
    assert_eq!(of(&other).map(|(own, _)| own), Some(0));
    assert!(!tells(&one) && tells(&other));
    assert!(one.set_held(id, 0));
    assert!(!tells(&other));
    assert!(one.set_held(id, MANY));
    // Iterators are freed after a grace period.
    drop(one);
    assert!((0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !tells(&other)
    }));
}

#[test]
fn dispatchers_and_functions_are_in_kallsyms() {
    let test = "dispatchers_and_functions_are_in_kallsyms";
    if !can_load(test) {
        return;
    }
    if let Some(problem) = Kallsyms::read().unwrap().problem() {
        println!("SKIP {test}: {problem}");
        return;
    }
    let object = load_inventory(&["inventory_counts_every_switch"]);
    let id = prog_id(&object, "inventory_counts_every_switch");
    let snapshot = Program::take(id).unwrap().fetch(&BtfCache::new()).unwrap();
    let info = snapshot.info.view();
    let starts: Vec<u64> = info.jited_ksyms().unwrap().iter().collect();
    assert_eq!(starts.len(), 2, "a function and a subprogram");
    let kallsyms = Kallsyms::read().unwrap();
    let functions = kallsyms.bpf_functions();
    for (start, name) in starts.iter().zip(["inventory_counts_every_switch", "inventory_spin_in_a_subprogram"]) {
        let symbol = functions.iter().find(|symbol| symbol.addr == *start).unwrap();
        assert!(symbol.name.ends_with(name.as_bytes()), "{}", String::from_utf8_lossy(&symbol.name));
    }
    let known = ["schedule", "bpf_prog_put", "do_exit"];
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
    for name in known {
        let line = text.lines().find(|line| line.split(' ').nth(2) == Some(name)).unwrap();
        let addr = u64::from_str_radix(&line[..16], 16).unwrap();
        let found = kallsyms.functions_at(&[addr + 1]);
        assert_eq!((found[0].addr, String::from_utf8_lossy(&found[0].name).as_ref()), (addr, name));
    }
}

/// The look-up of the kernel and the table agree on functions all over the kernel, and on the functions that a program calls.
#[test]
fn the_kernel_names_the_functions_of_its_table() {
    let test = "the_kernel_names_the_functions_of_its_table";
    if !can_load(test) {
        return;
    }
    let names = match KernelNames::load() {
        Ok(names) => names,
        Err(error) => {
            println!("SKIP {test}: {error}");
            return;
        }
    };
    let object = load_inventory(&[]);
    let id = prog_id(&object, "inventory_counts_every_switch");
    let programs = [Program::take(id).unwrap().fetch(&BtfCache::new()).unwrap().info];
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let addresses = text.lines().filter_map(|line| {
        let [addr, "t" | "T", name] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        (!name.contains('\t')).then(|| u64::from_str_radix(addr, 16).unwrap() + 1)
    });
    let sampled: Vec<u64> = addresses.step_by(211).collect();
    // Symbols before the first and at the end of the last function of a section hold no function.
    let addresses: Vec<u64> =
        sampled.iter().copied().filter(|addr| names.functions_at(&[*addr], &[]).unwrap().is_some()).collect();
    assert!(addresses.len() > 100 && addresses.len() + 3 > sampled.len(), "{} {}", addresses.len(), sampled.len());
    let table = Kallsyms::read().unwrap();
    let expected = table.functions_at(&[&addresses[..], &table.called_by(&programs)].concat());
    let found = names.functions_at(&addresses, &programs).unwrap().unwrap();
    assert!(found.iter().any(|it| it.name == b"__bpf_call_base"));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    let last = found.len() - 1;
    assert_eq!(names.functions_at(&[found[last].addr], &[]).unwrap().unwrap().last(), found.last());
    assert_eq!(names.functions_at(&[found[last].addr, 8], &[]).unwrap(), None, "no function is at address 8");
}

#[test]
fn without_privilege_the_refusal_says_what_is_missing() {
    let test = "without_privilege_the_refusal_says_what_is_missing";
    if !can_load(test) {
        return;
    }
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_without_privilege", "--nocapture", "--include-ignored"])
        .output();
    let Ok(output) = output else {
        println!("SKIP {test}: no setpriv");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains(
            "bpf(BPF_PROG_GET_NEXT_ID) of all: Operation not permitted (EPERM); needs CAP_SYS_ADMIN (run as root)"
        ),
        "{text}"
    );
    assert!(
        text.contains("bprec's BPF program bprec_refs: ") && text.contains("; needs CAP_BPF and CAP_PERFMON"),
        "{text}"
    );
    assert!(
        text.contains(
            "bpf(BPF_ENABLE_STATS) run time: Operation not permitted (EPERM); needs CAP_SYS_ADMIN (run as root)"
        ),
        "{text}"
    );
}

#[test]
fn hidden_code_is_withheld_with_the_reason_and_the_rest_is_kept() {
    let test = "hidden_code_is_withheld_with_the_reason_and_the_rest_is_kept";
    if !can_load(test) || !has_jit(test) {
        return;
    }
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-syslog"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_without_syslog", "--nocapture", "--include-ignored"])
        .output();
    let Ok(output) = output else {
        println!("SKIP {test}: no setpriv");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("nothing is hidden") {
        println!("SKIP {test}: kernel.perf_event_paranoid shows kernel addresses to everyone");
        return;
    }
    assert!(output.status.success(), "{text}");
    let expected = "withheld: bpf_prog_info.jited_prog_insns, bpf_prog_info.jited_ksyms, \
                    bpf_prog_info.jited_func_lens, bpf_prog_info.jited_line_info: ";
    assert!(text.contains(expected) && text.contains("CAP_SYSLOG"), "{text}");
}

/// Child process of `hidden_code_is_withheld_with_the_reason_and_the_rest_is_kept`, without CAP_SYSLOG; not a test of its own.
#[test]
#[ignore = "run by another test without CAP_SYSLOG"]
fn child_without_syslog() {
    let object = load_inventory(&["inventory_raw_tp", "inventory_egress"]);
    let program = Program::take(prog_id(&object, "inventory_raw_tp")).unwrap();
    let snapshot = program.fetch(&BtfCache::new()).unwrap();
    if snapshot.withheld.is_empty() {
        println!("nothing is hidden");
        return;
    }
    println!("withheld: {}", snapshot.withheld);
    let info = snapshot.info.view();
    assert!(info.jited_insns().is_none() && info.jited_ksyms().is_none() && info.jited_line_info().is_none());
    assert_eq!(info.func_info().unwrap().len(), 2);
    assert!(!info.xlated_insns().unwrap().is_empty() && !info.line_info().unwrap().is_empty());
    assert!(info.map_ids().unwrap().len() > 1 && snapshot.btf.is_some());
    assert!(Kallsyms::read().unwrap().is_hidden());

    // Constants of a program without subprograms may be blinded, and then its BPF instructions are withheld too.
    let single = Program::take(prog_id(&object, "inventory_egress")).unwrap().fetch(&BtfCache::new()).unwrap();
    let info = single.info.view();
    let harden = std::fs::read_to_string("/proc/sys/net/core/bpf_jit_harden").unwrap();
    assert_eq!(info.xlated_insns().is_none(), harden.trim() == "2", "{}", single.withheld);
    assert_eq!(single.withheld.contains("xlated_prog_insns: constants are blinded"), harden.trim() == "2");
    assert_eq!(info.func_info().unwrap().len(), 1, "{}", single.withheld);
    assert!(single.withheld.contains("bpf_prog_info.jited_prog_insns, "), "{}", single.withheld);
}

/// Child process of `without_privilege_the_refusal_says_what_is_missing`, without privileges; not a test of its own.
#[test]
#[ignore = "run by another test as a user without privilege"]
fn child_without_privilege() {
    let access = access();
    for answer in [access.programs, access.statistics, access.loading] {
        println!("{}", answer.map_or_else(|error| error.to_string(), |()| "ok".to_owned()));
    }
}
