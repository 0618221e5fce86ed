use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use bprec_format::feature::Feature;
use bprec_format::{Endian, File, FileLayout};

use super::*;

fn parse_at(devices: &Path, list: &str) -> Result<Vec<EventSpec>> {
    Catalog { devices: devices.to_owned(), tracefs: Err("no tracefs in this test".to_owned()) }.parse(list)
}

fn parse_system(list: &str) -> Vec<EventSpec> {
    Catalog::system(list).parse(list).unwrap_or_else(|error| panic!("{error}"))
}

fn problem(devices: &Path, list: &str) -> String {
    parse_at(devices, list).unwrap_err().to_string()
}

/// Creates a directory of PMU files from pairs of relative path and contents.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// Returns the attributes that perf passes to the kernel for one event. `perf stat -vv` prints them even if the event cannot be opened.
fn attr_of_perf(event: &str) -> Option<HashMap<String, String>> {
    let output = Command::new("perf").args(["stat", "-vv", "-a", "-e", event, "--", "true"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, block) = text.split_once("perf_event_attr:\n")?;
    let (block, _) = block.split_once("-----")?;
    let fields = block.lines().filter_map(|line| {
        let (key, value) = line.trim_end().rsplit_once("  ")?;
        // Newer versions of perf print a name in brackets after the number.
        let value = value.split_whitespace().next()?;
        Some((key.trim().to_owned(), value.to_owned()))
    });
    Some(fields.collect())
}

#[test]
fn attrs_are_those_that_perf_opens() {
    const EVENTS: &str = "cpu-clock task-clock page-faults faults minor-faults major-faults context-switches cs \
        cpu-migrations migrations alignment-faults emulation-faults dummy bpf-output cgroup-switches \
        cycles cpu-cycles instructions cache-references cache-misses branches branch-instructions branch-misses \
        bus-cycles stalled-cycles-frontend idle-cycles-frontend stalled-cycles-backend idle-cycles-backend ref-cycles \
        L1-dcache-loads L1-dcache-load-misses L1-dcache-stores L1-dcache-store-misses L1-dcache-prefetches \
        L1-icache-load-misses L1-icache-prefetch-misses LLC-loads LLC-load-misses LLC-stores LLC-prefetches dTLB-loads \
        dTLB-load-misses dTLB-store-misses iTLB-loads iTLB-load-misses branch-loads branch-load-misses node-loads \
        node-load-misses node-stores node-prefetch-misses \
        r1a8 r0 rffffffffff msr/tsc/ msr/tsc/k msr/event=3/ msr/config=0x4,period=5/u msr/event=0x12345678/ \
        cycles:u cycles:k cycles:uk cycles:hu cycles:H cycles:G cycles:I cycles:D cs:u cpu-clock:kh \
        cpu-clock/period=1000/ instructions/name=foo,period=7/u";
    let mut compared = 0;
    let pmus = Path::new("/sys/bus/event_source/devices");
    for event in EVENTS.split_whitespace() {
        // The msr PMU does not exist on all machines.
        if event.starts_with("msr/") && !pmus.join("msr").exists() {
            continue;
        }
        let Some(theirs) = attr_of_perf(event) else {
            if compared == 0 {
                println!("SKIP attrs_are_those_that_perf_opens: perf is not installed or prints no attr");
                return;
            }
            panic!("perf does not know {event}");
        };
        let ours = parse_at(pmus, event).unwrap_or_else(|e| panic!("{e}"));
        let [ours] = ours.as_slice() else { panic!("{event} is {} events", ours.len()) };
        let field = |name: &str| theirs.get(name).map_or(Some(0), |text| terms::number(text)).unwrap();
        let attr = &ours.attr;
        assert_eq!((u64::from(attr.kind), attr.config), (field("type"), field("config")), "{event}");
        assert_eq!(
            (attr.config1, attr.config2),
            (field("{ bp_addr, config1 }"), field("{ bp_len, config2 }")),
            "{event}"
        );
        for (flag, name) in [
            (AttrFlags::EXCLUDE_USER, "exclude_user"),
            (AttrFlags::EXCLUDE_KERNEL, "exclude_kernel"),
            (AttrFlags::EXCLUDE_HV, "exclude_hv"),
            (AttrFlags::EXCLUDE_HOST, "exclude_host"),
            (AttrFlags::EXCLUDE_IDLE, "exclude_idle"),
            (AttrFlags::PINNED, "pinned"),
        ] {
            assert_eq!(attr.flags.contains(flag), field(name) == 1, "{event}: {name}");
        }
        compared += 1;
    }
    assert!(compared > 60);
}

#[test]
fn tracepoints_have_the_ids_that_tracefs_gives() {
    let Ok(tracefs) = Tracefs::open() else {
        println!("SKIP tracepoints_have_the_ids_that_tracefs_gives: tracefs can be neither found nor mounted");
        return;
    };
    let events = parse_system("sched:sched_switch,sched:sched_process_*:k,cs");
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!((names[0], *names.last().unwrap()), ("sched:sched_switch", "cs"));
    assert!(names.contains(&"sched:sched_process_fork") && names.contains(&"sched:sched_process_exec"), "{names:?}");
    for event in &events[..events.len() - 1] {
        let tracepoint = event.tracepoint.as_ref().unwrap();
        let format = tracefs.read(&format!("events/{}/{}/format", tracepoint.system, tracepoint.name)).unwrap();
        let format = String::from_utf8(format).unwrap();
        let id = format.lines().find_map(|line| line.strip_prefix("ID: ")).unwrap();
        assert_eq!((event.attr.kind, event.attr.config.to_string().as_str()), (event_type::TRACEPOINT, id));
        assert_eq!(event.default_rate, Some(Rate::Period(1)));
        assert_eq!(event.attr.flags.contains(AttrFlags::EXCLUDE_USER), event.name.contains("process"));
    }
    let unknown = Catalog::system(":").parse("sched:sched_swich").unwrap_err().to_string();
    assert!(unknown.contains("`sched_switch`"), "{unknown}");
    let unknown = Catalog::system(":").parse("shed:sched_switch").unwrap_err().to_string();
    assert!(unknown.contains("`sched`"), "{unknown}");
    assert!(Catalog::system(":").parse("sched:nothing_like_*").is_err());
    assert!(Catalog::system(":").parse("../sched:sched_switch").is_err());
}

#[test]
fn lists_names_and_rates() {
    let none = tree(&[]);
    let events = parse_at(none.path(), "cycles:u,cpu-clock/freq=99,name=ticks/ , bpf-output,{dummy}").unwrap();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["cycles:u", "ticks", "bpf-output", "dummy"]);
    assert_eq!(events[1].rate, Some(Rate::Frequency(99)));
    assert_eq!((events[0].rate, events[2].default_rate), (None, Some(Rate::Period(1))));
}

#[test]
fn precision() {
    let none = tree(&[]);
    let of = |event: &str| parse_at(none.path(), event).unwrap().remove(0);
    for (event, level, possible) in [("cycles", 0, false), ("cycles:p", 1, false), ("cycles:ppk", 2, false)] {
        let spec = of(event);
        assert_eq!((spec.attr.flags.precise_ip(), spec.precise_as_possible), (level, possible), "{event}");
        assert_eq!(spec.attr.flags.contains(AttrFlags::EXCLUDE_GUEST), level > 0);
    }
    assert_eq!((of("cycles:P").attr.flags.precise_ip(), of("cycles:P").precise_as_possible), (3, true));
    assert!(parse_at(none.path(), "cycles:pppp").is_err());
}

#[test]
fn formats_aliases_and_uncore_pmus() {
    // Formats and events of an Intel machine.
    let devices = tree(&[
        ("cpu/type", "4\n"),
        ("cpu/format/event", "config:0-7\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/edge", "config:18\n"),
        ("cpu/format/cmask", "config:24-31\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ("cpu/events/cpu-cycles", "event=0x3c\n"),
        ("cpu/events/param", "event=?,umask=1\n"),
        ("uncore_imc_0/type", "14\n"),
        ("uncore_imc_0/cpumask", "0,4-5\n"),
        // A field in two parts, as in uncore PMUs of servers.
        ("uncore_imc_0/format/event", "config:0-3,32-33\n"),
        ("uncore_imc_0/events/cas_count_read", "event=0x15\n"),
        ("uncore_imc_0/events/cas_count_read.scale", "6.103515625e-5\n"),
        ("uncore_imc_1/type", "15\n"),
        ("uncore_imc_1/cpumask", "0,4-5\n"),
        ("uncore_imc_1/format/event", "config:0-3,32-33\n"),
        ("uncore_imc_1/events/cas_count_read", "event=0x15\n"),
    ]);
    let of = |event: &str| parse_at(devices.path(), event).unwrap_or_else(|e| panic!("{e}"));
    let one = |event: &str| {
        let mut events = of(event);
        assert_eq!(events.len(), 1, "{event}");
        events.remove(0).attr
    };
    assert_eq!(one("cpu/event=0xcd,umask=1,edge,cmask=2/").config, 0xcd | 1 << 8 | 1 << 18 | 2 << 24);
    assert_eq!((one("cpu/mem-loads/P").config, one("cpu/mem-loads/").config1), (0x1cd, 3));
    // Terms beside the name of an event override the terms of that event in sysfs, whether they stand before or after
    // the name.
    assert_eq!(one("cpu/ldlat=30,mem-loads/").config1, 30);
    assert_eq!(one("mem-loads").config, 0x1cd);
    assert_eq!(one("cpu/r1a8/").config, 0x1a8);
    assert_eq!(one("cpu/config=0x1a8,config1=0x20,config2=7/").config1, 0x20);

    let imc = of("uncore_imc_1/cas_count_read/");
    assert_eq!((imc[0].attr.kind, imc[0].attr.config), (15, 0x5 | 1 << 32));
    assert_eq!((imc[0].name.as_str(), imc[0].cpus.clone()), ("uncore_imc_1/cas_count_read/", Some(vec![0, 4, 5])));
    // A name that several PMUs have gives one event per PMU.
    assert_eq!(of("cas_count_read").iter().map(|e| e.attr.kind).collect::<Vec<_>>(), [14, 15]);

    for (event, expected) in [
        ("cpu/event=0x100/", "8 bits"),
        ("cpu/event/", "needs a value"),
        ("cpu/param/", "`event=?` is not a number"),
        ("cpu/event=abc/", "not a number"),
        ("cpu/umsk=1/", "did you mean `umask`"),
        ("cpuu/event=1/", "did you mean `cpu`?"),
        ("cycles/umask=1/", "not a term of `cycles`"),
        ("mem-laods", "did you mean `mem-loads`?"),
    ] {
        let text = problem(devices.path(), event);
        assert!(text.contains(expected), "{event}: {text}");
    }
}

#[test]
fn hybrid_machines_get_an_event_for_each_kind_of_core() {
    let devices = tree(&[
        ("cpu_core/type", "4\n"),
        ("cpu_core/cpus", "0-3\n"),
        ("cpu_atom/type", "10\n"),
        ("cpu_atom/cpus", "4-5\n"),
    ]);
    let of = |event: &str| parse_at(devices.path(), event).unwrap();
    let cycles = of("cycles:u");
    let seen: Vec<_> = cycles.iter().map(|e| (e.attr.kind, e.attr.config, e.cpus.clone())).collect();
    assert_eq!(seen, [(0, 10 << 32, Some(vec![4, 5])), (0, 4 << 32, Some(vec![0, 1, 2, 3]))]);
    assert!(cycles.iter().all(|e| e.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)));
    let core = of("cpu_core/cycles/u");
    let seen: Vec<_> = core.iter().map(|e| (e.name.as_str(), e.attr.kind, e.attr.config, e.cpus.clone())).collect();
    assert_eq!(seen, [("cpu_core/cycles/u", 0, 4 << 32, Some(vec![0, 1, 2, 3]))]);
    assert_eq!(of("r1a8").iter().map(|e| (e.attr.kind, e.attr.config)).collect::<Vec<_>>(), [(10, 0x1a8), (4, 0x1a8)]);
    assert_eq!(of("cpu-clock").len(), 1);
}

#[test]
fn what_is_wrong_is_said() {
    let none = tree(&[]);
    for (list, expected) in [
        ("cylces", "did you mean `cycles`"),
        ("instruction", "`instructions`"),
        ("LLC-load-mises", "`LLC-load-misses`"),
        ("cpu-clok", "`cpu-clock`"),
        ("{cycles,instructions}", "not supported yet"),
        ("cycles,", "missing before or after a comma"),
        ("", "missing"),
        ("cycles:z", "`z` is not a modifier"),
        ("cycles:S", "`S` is not a modifier"),
        ("cycles/call-graph=fp/", "`call-graph` is not a term"),
        ("cycles:u/period=1/", "modifiers follow the terms"),
        ("cpu-clock/period=0/", "above 0"),
        ("cpu-clock/name=/", "needs a name"),
        ("cpu/event=1", "the closing `/`"),
        ("duration_time", "unknown event"),
        ("sched:sched_switch", "no tracefs in this test"),
        ("zzzzzzzzzz", "unknown event"),
    ] {
        let text = problem(none.path(), list);
        assert!(text.contains(expected), "{list}: {text}");
    }
}

#[test]
fn perf_prints_fields_as_our_section_describes_them() {
    const TEST: &str = "perf_prints_fields_as_our_section_describes_them";
    let directory = tempfile::tempdir().unwrap();
    let theirs = directory.path().join("perf.data");
    // Recorded in a private mount namespace, so that a mount of tracefs does not remain.
    let record = "mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null; exec perf record -q -a -o \"$0\" \
                  -e sched:sched_switch,sched:sched_wakeup,irq:softirq_entry -- sleep 0.1";
    let made = Command::new("unshare").args(["-m", "sh", "-c", record]).arg(&theirs).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return println!("SKIP {TEST}: perf cannot record tracepoints here");
    }
    let script = |path: &Path| {
        let output = Command::new("perf").args(["script", "-i"]).arg(path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    let [expected, complaints] = script(&theirs);
    assert!(expected.contains("prev_comm=") && expected.contains("vec="));

    // The same recording with bprec's section instead of perf's section.
    let bytes = fs::read(&theirs).unwrap();
    let file = File::parse(&bytes).unwrap();
    let events = parse_system("sched:sched_wakeup,irq:softirq_entry,sched:sched_switch");
    let ours = tracing_data(&events).unwrap().unwrap();
    let sections: Vec<(u8, Vec<u8>)> = file
        .features()
        .iter()
        .map(|(bit, _)| match Feature(*bit) {
            Feature::TRACING_DATA => (*bit, ours.clone()),
            _ => (*bit, file.feature(*bit).unwrap().0.to_vec()),
        })
        .collect();
    let mut out = Vec::new();
    let layout = FileLayout::begin(file.attrs(), Endian::NATIVE, &mut out);
    let data = file.data();
    out.extend_from_slice(&bytes[data.offset as usize..][..data.size as usize]);
    layout.features(data.size, &sections, &mut out);
    let bits: Vec<u8> = sections.iter().map(|(bit, _)| *bit).collect();
    let header = layout.header(data.size, &bits);
    out[..header.len()].copy_from_slice(&header);
    let path = directory.path().join("ours.data");
    fs::write(&path, out).unwrap();
    let [found, our_complaints] = script(&path);
    assert_eq!(our_complaints, complaints);
    for (ours, theirs) in found.lines().zip(expected.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}
