//! States of the recorder, with planted words as their texts.

use bprec_format::Secret;
use bprec_format::bprec::sampler::Parts;
use bprec_format::bprec::state::{
    AbsentEvent, AttachTarget, Attachment, ContentsEnd, CounterEvent, CounterEvents, CounterTier, CounterUnit,
    FileFunction, FileFunctions, HolderTimes, KernelSymbol, LinkMisses, Map, MapContents, Missed, Owner, PodContainer,
    ProbeMisses, ProgArray, Program, ProgramCounters, ProgramRuns, RunStats, Sampler, Session, SharedCounters,
    SharedScope, SharedTarget, State, StatsOff, TailCall, TargetCounters, UserSymbols,
};
use bprec_format::records::{BuildId, Mmap2File};

use super::{KERNEL_FUNCTION, LOAD_TIME_NS, PROG_ID, Planted, TIME_NS};

/// States of every kind that has a text. Struct literals name all fields, so that a new field does not compile until it is filled here.
pub(crate) fn states(planted: &mut Planted) -> Vec<State> {
    let p = planted;
    let mut states = vec![
        State::Session(Session {
            start_ns: 1,
            realtime_ns: 1,
            to_boottime_ns: 0,
            cpus_online: 2,
            target: format!("{} --token {}", p.secret("session"), p.secret("session")),
            event: format!("/{} a", p.secret("session event")),
            event_note: format!("tried /{} b/{}: no", p.secret("session note"), p.secret("session note")),
            counters: p.secret("session counters"),
            counters_note: format!("file=/{}", p.secret("session note")),
            stats_were_on: false,
            interval_ns: 1_000_000,
            recorder_pid: Some(3),
            part: 0,
            statistics_run_ns: None,
            machine_id: p.secret("machine id"),
            boot_id: p.secret("boot id"),
        }),
        State::Program(Program {
            id: PROG_ID,
            load_time_ns: LOAD_TIME_NS,
            loaded_during: false,
            owners: vec![Owner {
                pid: 9,
                comm: p.secret("owner").into(),
                uid: 0,
                cgroup: format!("/{}", p.secret("owner cgroup")).into(),
            }],
            pins: vec![format!("/sys/fs/bpf/{}", p.secret("pin")).into()],
            metadata: vec![(p.of_program("metadata name").into(), p.secret("metadata value").into())],
            withheld: format!("{} /{}", p.of_program("withheld"), p.secret("withheld")),
        }),
        State::Missed(Missed {
            id: 9,
            tag: Some(p.of_program("missed tag").as_bytes().try_into().unwrap()),
            time_ns: TIME_NS,
            reason: format!("{} (/{} c)", p.of_program("missed reason"), p.secret("missed reason")),
        }),
        State::RunStats(RunStats { time_ns: 2, programs: vec![runs(0, 0)], on_ns: None, others_ns: None }),
        State::RunStats(RunStats {
            time_ns: TIME_NS,
            programs: vec![runs(500_000, 100)],
            on_ns: None,
            others_ns: None,
        }),
        State::Map(map(1, &p.of_program("map name"))),
        State::KernelSymbols(vec![
            KernelSymbol { addr: KERNEL_FUNCTION, len_bytes: 64, name: p.kept("names of functions").into() },
            KernelSymbol {
                addr: KERNEL_FUNCTION + 64,
                len_bytes: 64,
                name: format!("bpf_prog_0011223344556677_{}", p.of_program("symbol")).into(),
            },
        ]),
        State::CounterEvents(CounterEvents {
            tier: CounterTier::EXACT,
            time_ns: 1,
            events: vec![CounterEvent {
                name: format!("uprobe/path=/{}/", p.secret("counted event")),
                attr_type: 8,
                config: 0,
                group: 0,
                unit: CounterUnit::EVENTS,
                software: false,
            }],
            absent: vec![AbsentEvent {
                name: format!("{} b", p.secret("absent event")),
                reason: format!("/{}", p.secret("absent event")),
            }],
            calibration: None,
            budget_ppm: None,
            note: format!("/{}", p.secret("counters note")),
        }),
        State::ProgramCounters(ProgramCounters {
            time_ns: TIME_NS,
            targets: vec![TargetCounters {
                id: PROG_ID,
                load_time_ns: LOAD_TIME_NS,
                function: 1,
                name: p.of_program("counted function").into(),
                since_ns: 1,
                reason: format!("{} /{}", p.of_program("not counted"), p.secret("not counted")),
                counts: None,
                cpu: None,
            }],
        }),
        State::SharedCounters(SharedCounters {
            time_ns: TIME_NS,
            targets: [SharedScope::TGID, SharedScope::CGROUP]
                .map(|scope| SharedTarget {
                    scope,
                    id: 1,
                    name: format!("/{}", p.secret("shared target")).into(),
                    children: false,
                    since_ns: 1,
                    reason: format!("/{}", p.secret("shared reason")),
                    readings: Vec::new(),
                })
                .into(),
        }),
        State::Sampler(Sampler {
            prog_id: PROG_ID,
            event: format!("/{}", p.secret("sampler event")),
            event_type: 1,
            event_config: 0,
            is_frequency: true,
            rate: 1,
            parts: Parts::COMM,
            events: 1,
            links: 1,
            counts: None,
        }),
        State::MapContents(MapContents {
            map_id: 1,
            time_ns: 1,
            key_bytes: 4,
            value_bytes: 4,
            cpus: Vec::new(),
            offset: 0,
            bytes: p.secret("map contents").into(),
            end: Some(ContentsEnd { entries: 1, time_ns: 2, cut: p.secret("map contents") }),
        }),
        State::PodContainers(vec![PodContainer {
            id: p.secret("id of a container"),
            pod_uid: p.secret("uid of a pod"),
            namespace: p.secret("namespace of a pod"),
            pod: p.secret("name of a pod"),
            container: p.secret("name of a container"),
        }]),
        State::StatsOff(StatsOff { time_ns: 1 << 40, reason: format!("/{}", p.secret("statistics off")) }),
        State::FileFunctions(FileFunctions {
            path: format!("/{}", p.secret("file of functions")).into(),
            file: Mmap2File::BuildId(BuildId::new(p.secret("build id of functions").as_bytes())),
            functions: vec![FileFunction { offset: 0, len_bytes: 64, name: p.kept("names of functions").into() }],
        }),
        State::UserSymbols(UserSymbols {
            addresses: 1,
            named: 1,
            took_ns: 1,
            cut: format!("/{}", p.secret("user symbols")),
        }),
        State::ProgArray(ProgArray {
            map_id: 1,
            slots: vec![TailCall { index: 0, prog_id: PROG_ID }],
            unread_slots: 0,
        }),
        State::ProbeMisses(ProbeMisses {
            time_ns: 1 << 40,
            links: vec![LinkMisses { link_id: 1, prog_id: PROG_ID, first: 0, last: Some(1) }],
        }),
        State::HolderTimes(HolderTimes { from_ns: 1, to_ns: 2, processes: vec![(1, 1)], resident_bytes: vec![(1, 1)] }),
        State::Unknown { kind: 999, body: p.secret("unknown state").into() },
    ];
    states.extend(attachments(p).into_iter().map(State::Attachment));
    states
}

fn runs(run_time_ns: u64, run_cnt: u64) -> ProgramRuns {
    ProgramRuns { id: PROG_ID, load_time_ns: LOAD_TIME_NS, run_time_ns, run_cnt, recursion_misses: None }
}

fn map(id: u32, name: &str) -> Map {
    Map {
        id,
        map_type: 3,
        key_bytes: 4,
        value_bytes: 4,
        max_entries: 1,
        flags: 0,
        name: name.into(),
        btf_id: 1,
        btf_key_type_id: 0,
        btf_value_type_id: 3,
        memlock_bytes: None,
        frozen: false,
    }
}

/// Attachments with each kind of name in their targets, and with targets of older recorders, which did not tell names from words.
fn attachments(p: &mut Planted) -> Vec<Attachment> {
    let mut found = Vec::new();
    let mut add = |kind: &str, target: AttachTarget| {
        found.push(Attachment { prog_id: PROG_ID, link_id: Some(1), kind: kind.to_owned(), target });
    };
    let words = |words: String| AttachTarget::default().words(words);
    let name = |kind, name: String| AttachTarget::default().name(kind, name);
    let interface = words(p.kept("names of network devices"));
    add("xdp", interface.clone().words(" in netns ").name(Secret::NetworkNamespace, p.secret("network namespace")));
    let of_process = interface.words(" in net:[").name(Secret::NamespaceNumber, "4026532317").words("] of process 8 (");
    add("tc_ingress", of_process.name(Secret::Comm, p.secret("process in a network namespace")).words(")"));
    add("sk_lookup", name(Secret::NamespaceNumber, p.secret("number of a namespace")));
    add("uprobe", name(Secret::Path, format!("/{} a+0x10", p.secret("uprobe"))).words("+0x10 of process 8"));
    add("kprobe", name(Secret::Symbol, p.kept("names of functions")));
    add("tracepoint", words(p.kept("tracepoints")));
    add("freplace", name(Secret::Program, p.of_program("extended function")).words(" of program 12"));
    add("kprobe", name(Secret::Symbol, format!("bpf_prog_0011223344556677_{}", p.of_program("probed function"))));
    add("cgroup_inet_ingress", name(Secret::Cgroup, format!("/a/{} b", p.secret("cgroup"))));
    add("perf_event", name(Secret::Event, format!("cpu-clock ({})", p.of_program("program on an event"))));
    add("perf_event", name(Secret::Event, format!("/{}", p.secret("event of a program"))));
    add("tail_call", name(Secret::Map, p.of_program("program array")).words("[3]"));
    add("sk_msg_verdict", words("map 7 ".to_owned()).name(Secret::Map, p.of_program("map of sockets")));
    for kind in ["xdp", "uprobe", "kprobe", "tail_call", "7"] {
        add(kind, name(Secret::AttachTarget, format!("{} of {}", p.secret("old target"), p.secret("old target"))));
    }
    found
}
