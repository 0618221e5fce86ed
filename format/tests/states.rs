//! States are read back as written, in both byte orders.

#[path = "common/strategies.rs"]
mod strategies;

use bprec_format::Secret;
use bprec_format::bprec::sampler::Parts;
use bprec_format::bprec::state::{
    AbsentEvent, Aggregation, AttachTarget, Attachment, BootClock, Calibration, ContentsEnd, Cost, CounterEvent,
    CounterEvents, CounterTier, CounterUnit, CpuNotSampled, EventLoss, FileFunction, FileFunctions, Histogram,
    HolderTimes, KernelSymbol, LinkMisses, Loss, Map, MapContents, Missed, Owner, PodContainer, ProbeMisses, ProgArray,
    Program, ProgramCounters, ProgramRuns, Reading, Released, RunCounts, RunStats, Sampler, SamplerCounts, Session,
    SharedCounters, SharedScope, SharedTarget, State, StatsOff, TailCall, TargetCounters, UserSymbols,
};
use bprec_format::records::{BuildId, Mmap2File};
use proptest::prelude::*;
use strategies::{bytes, endian};

fn mapped_file() -> impl Strategy<Value = Mmap2File> {
    prop_oneof![
        any::<(u32, u32, u64, u64)>()
            .prop_map(|(major, minor, inode, generation)| { Mmap2File::Inode { major, minor, inode, generation } }),
        bytes(20).prop_map(|id| Mmap2File::BuildId(BuildId::new(&id))),
    ]
}

fn readings() -> impl Strategy<Value = Vec<Reading>> {
    prop::collection::vec(any::<[u64; 3]>(), 0..4).prop_map(|readings| {
        let reading = |[value, enabled_ns, running_ns]: [u64; 3]| Reading { value, enabled_ns, running_ns };
        readings.into_iter().map(reading).collect()
    })
}

prop_compose! {
    fn counter_events()(
        (tier, time_ns, budget_ppm) in any::<(u8, u64, Option<u32>)>(),
        events in prop::collection::vec(any::<(u32, u64, u32, u8, bool)>(), 0..4),
        texts in ["[ -~]{0,40}"; 3],
        calibration in prop::option::of(
            (any::<(u64, u64, Option<u64>, Option<u64>)>(), prop::collection::vec(any::<u64>(), 0..4)),
        ),
    ) -> CounterEvents {
        let [name, reason, note] = texts;
        CounterEvents {
            tier: CounterTier(tier),
            time_ns,
            events: events.into_iter().map(|(attr_type, config, group, unit, software)| {
                CounterEvent { name: name.clone(), attr_type, config, group, unit: CounterUnit(unit), software }
            }).collect(),
            absent: vec![AbsentEvent { name: name.clone(), reason }],
            calibration: calibration.map(|((runs, inside_ns, measured_ns, skipped_ns), inside)| {
                Calibration { runs, inside_ns, inside, measured_ns, skipped_ns }
            }),
            budget_ppm,
            note,
        }
    }
}

prop_compose! {
    fn target_counters()(
        (id, load_time_ns, function, since_ns) in any::<(u32, u64, u32, u64)>(),
        name in bytes(40),
        reason in "[ -~]{0,40}",
        counts in prop::option::of((
            any::<([u64; 6], Option<u64>, u8)>(),
            readings(),
            prop::collection::vec(any::<(u16, u64)>(), 0..5),
        )),
        cpu in any::<Option<u32>>(),
    ) -> TargetCounters {
        let counts = counts.map(|((numbers, misses, sub_bits), readings, buckets)| {
            let [runs, measured, too_deep, discarded, every, time_ns] = numbers;
            let histogram = Histogram { sub_bits, buckets };
            RunCounts { runs, measured, too_deep, discarded, misses, every, time_ns, readings, histogram }
        });
        TargetCounters { id, load_time_ns, function, name, since_ns, reason, counts, cpu }
    }
}

prop_compose! {
    fn shared_target()(
        (scope, id, children, since_ns) in any::<(u8, u64, bool, u64)>(),
        name in bytes(40),
        reason in "[ -~]{0,40}",
        readings in readings(),
    ) -> SharedTarget {
        SharedTarget { scope: SharedScope(scope), id, name, children, since_ns, reason, readings }
    }
}

fn aggregation() -> impl Strategy<Value = State> {
    let seen = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<Option<u64>>());
    (any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>(), seen).prop_map(
        |(time_ns, event_id, entries, interval_ns, (samples, period, overflow_samples, overflow_period, counted))| {
            State::Aggregation(Aggregation {
                time_ns,
                event_id,
                entries,
                interval_ns,
                samples,
                period,
                overflow_samples,
                overflow_period,
                counted,
            })
        },
    )
}

fn state() -> impl Strategy<Value = State> {
    let text = "[ -~]{0,40}";
    let owner = (any::<(u32, u32)>(), bytes(16), bytes(40)).prop_map(|((pid, uid), comm, cgroup)| Owner {
        pid,
        comm,
        uid,
        cgroup,
    });
    prop_oneof![
        (any::<(u64, u64, i64, u32, bool, u64, Option<u32>, u32, Option<u64>)>(), [text; 7]).prop_map(|(numbers, texts)| {
            let (start_ns, realtime_ns, to_boottime_ns, cpus_online, stats_were_on, interval_ns, pid, part, run_ns) = numbers;
            let recorder_pid = pid.filter(|pid| *pid != 0);
            let [target, event, event_note, counters, counters_note, machine_id, boot_id] = texts;
            State::Session(Session {
                start_ns,
                realtime_ns,
                to_boottime_ns,
                cpus_online,
                target,
                event,
                event_note,
                counters,
                counters_note,
                stats_were_on,
                interval_ns,
                recorder_pid,
                part,
                statistics_run_ns: run_ns.filter(|run_ns| *run_ns != 0),
                machine_id,
                boot_id,
            })
        }),
        (
            any::<(u32, u64, bool)>(),
            prop::collection::vec(owner, 0..3),
            prop::collection::vec(bytes(30), 0..3),
            prop::collection::vec((bytes(20), bytes(20)), 0..3),
            text
        )
            .prop_map(|((id, load_time_ns, loaded_during), owners, pins, metadata, withheld)| {
                State::Program(Program { id, load_time_ns, loaded_during, owners, pins, metadata, withheld })
            }),
        (any::<(u32, Option<[u8; 8]>, u64)>(), text).prop_map(|((id, tag, time_ns), reason)| State::Missed(Missed {
            id,
            tag,
            time_ns,
            reason
        })),
        (
            any::<u64>(),
            prop::collection::vec(any::<(u32, u64, u64, u64, Option<u64>)>(), 0..5),
            any::<Option<(u64, Option<u64>)>>()
        )
            .prop_map(|(time_ns, programs, on)| State::RunStats(RunStats {
                time_ns,
                on_ns: on.map(|(on_ns, _)| on_ns),
                others_ns: on.and_then(|(_, others_ns)| others_ns),
                programs: programs
                    .into_iter()
                    .map(|(id, load_time_ns, run_time_ns, run_cnt, recursion_misses)| ProgramRuns {
                        id,
                        load_time_ns,
                        run_time_ns,
                        run_cnt,
                        recursion_misses
                    })
                    .collect(),
            })),
        (any::<[u32; 9]>(), bytes(16), any::<(Option<u64>, bool)>()).prop_map(|(n, name, (memlock_bytes, frozen))| {
            State::Map(Map {
                id: n[0],
                map_type: n[1],
                key_bytes: n[2],
                value_bytes: n[3],
                max_entries: n[4],
                flags: n[5],
                name,
                btf_id: n[6],
                btf_key_type_id: n[7],
                btf_value_type_id: n[8],
                memlock_bytes,
                frozen,
            })
        }),
        (any::<(u32, Option<u32>)>(), text, bytes(40), bytes(40)).prop_map(|((prog_id, link_id), kind, name, words)| {
            let target = AttachTarget::default().name(Secret::Map, name).words(words);
            State::Attachment(Attachment { prog_id, link_id, kind, target })
        }),
        any::<(u32, u64, u64, u64)>().prop_map(|(id, load_time_ns, after_ns, before_ns)| {
            State::Released(Released { id, load_time_ns, after_ns, before_ns })
        }),
        (prop::collection::vec(any::<(u64, i32, u64)>(), 0..5), any::<bool>()).prop_map(|(events, not_counted)| {
            let events = events.into_iter().map(|(event_id, cpu, lost)| EventLoss { event_id, cpu, lost }).collect();
            State::Loss(Loss { events, not_counted })
        }),
        any::<(u64, u32, bool, u64)>().prop_map(|(time_ns, cpu, came_online, until_ns)| {
            State::CpuNotSampled(CpuNotSampled { time_ns, cpu, came_online, until_ns })
        }),
        any::<(u64, i64)>()
            .prop_map(|(time_ns, to_boottime_ns)| { State::BootClock(BootClock { time_ns, to_boottime_ns }) }),
        any::<([u64; 6], u32, u32, Option<(u64, u64, Option<u64>, Option<u32>)>)>().prop_map(
            |(n, programs, missed, drained)| {
                State::Cost(Cost {
                    end_ns: n[0],
                    user_ns: n[1],
                    system_ns: n[2],
                    max_rss_bytes: n[3],
                    written_bytes: n[4],
                    wakeups: n[5],
                    programs,
                    missed,
                    longest_gap_ns: drained.map(|(gap_ns, ..)| gap_ns),
                    overrun_bytes: drained.map_or(0, |(_, overrun_bytes, ..)| overrun_bytes),
                    statistics_ns: drained.and_then(|(_, _, statistics_ns, _)| statistics_ns),
                    unheld: drained.and_then(|(.., unheld)| unheld),
                })
            }
        ),
        prop::collection::vec((any::<(u64, u32)>(), bytes(40)), 0..5).prop_map(|symbols| {
            State::KernelSymbols(
                symbols.into_iter().map(|((addr, len_bytes), name)| KernelSymbol { addr, len_bytes, name }).collect(),
            )
        }),
        (bytes(40), mapped_file(), prop::collection::vec((any::<(u64, u64)>(), bytes(40)), 0..5)).prop_map(
            |(path, file, functions)| {
                let function = |((offset, len_bytes), name)| FileFunction { offset, len_bytes, name };
                State::FileFunctions(FileFunctions {
                    path,
                    file,
                    functions: functions.into_iter().map(function).collect(),
                })
            },
        ),
        (any::<[u64; 3]>(), text).prop_map(|([addresses, named, took_ns], cut)| {
            State::UserSymbols(UserSymbols { addresses, named, took_ns, cut })
        }),
        counter_events().prop_map(State::CounterEvents),
        (any::<u64>(), prop::collection::vec(target_counters(), 0..4))
            .prop_map(|(time_ns, targets)| State::ProgramCounters(ProgramCounters { time_ns, targets })),
        (any::<u64>(), prop::collection::vec(shared_target(), 0..4))
            .prop_map(|(time_ns, targets)| State::SharedCounters(SharedCounters { time_ns, targets })),
        (any::<([u64; 2], [u32; 4], u16, bool)>(), text, prop::option::of(any::<([u64; 4], u32)>())).prop_map(
            |((long, short, parts, is_frequency), event, counts)| {
                let counts = counts.map(|([runs, written, full, failed], last_errno)| SamplerCounts {
                    runs,
                    written,
                    full,
                    failed,
                    last_errno,
                });
                State::Sampler(Sampler {
                    prog_id: short[0],
                    event,
                    event_type: short[1],
                    event_config: long[0],
                    is_frequency,
                    rate: long[1],
                    parts: Parts(parts),
                    events: short[2],
                    links: short[3],
                    counts,
                })
            },
        ),
        (
            any::<(u32, u64, u32, u32, u64)>(),
            prop::collection::vec(any::<u32>(), 0..5),
            bytes(100),
            prop::option::of((any::<(u64, u64)>(), text))
        )
            .prop_map(|((map_id, time_ns, key_bytes, value_bytes, offset), cpus, bytes, end)| {
                let end = end.map(|((entries, time_ns), cut)| ContentsEnd { entries, time_ns, cut });
                State::MapContents(MapContents { map_id, time_ns, key_bytes, value_bytes, cpus, offset, bytes, end })
            }),
        aggregation(),
        (any::<(u32, u32)>(), prop::collection::vec(any::<(u32, u32)>(), 0..5)).prop_map(
            |((map_id, unread_slots), slots)| {
                let slots = slots.into_iter().map(|(index, prog_id)| TailCall { index, prog_id }).collect();
                State::ProgArray(ProgArray { map_id, slots, unread_slots })
            }
        ),
        (any::<u64>(), prop::collection::vec(any::<(u32, u32, u64, Option<u64>)>(), 0..5)).prop_map(
            |(time_ns, links)| {
                let link = |(link_id, prog_id, first, last)| LinkMisses { link_id, prog_id, first, last };
                State::ProbeMisses(ProbeMisses { time_ns, links: links.into_iter().map(link).collect() })
            }
        ),
        (any::<(u64, u64)>(), [(); 2].map(|()| prop::collection::vec(any::<(u32, u64)>(), 0..5))).prop_map(
            |((from_ns, to_ns), [processes, resident_bytes])| {
                State::HolderTimes(HolderTimes { from_ns, to_ns, processes, resident_bytes })
            }
        ),
        prop::collection::vec([text; 5], 0..3).prop_map(|all| {
            let container = |[id, pod_uid, namespace, pod, container]: [String; 5]| PodContainer {
                id,
                pod_uid,
                namespace,
                pod,
                container,
            };
            State::PodContainers(all.into_iter().map(container).collect())
        }),
        (any::<u64>(), text).prop_map(|(time_ns, reason)| State::StatsOff(StatsOff { time_ns, reason })),
        (1000u16.., bytes(50)).prop_map(|(kind, body)| State::Unknown { kind, body }),
    ]
}

proptest! {
    #[test]
    fn states(state in state(), padding in 0usize..8, endian in endian()) {
        let mut out = Vec::new();
        state.encode(&mut out, endian);
        out.resize(out.len() + padding, 0xaa);
        prop_assert_eq!(State::decode(&out, 0, endian).unwrap(), state);
    }

    #[test]
    fn a_cut_state_is_an_error_and_no_other_state(state in state(), cut in 1usize..40, endian in endian()) {
        let mut out = Vec::new();
        state.encode(&mut out, endian);
        out.truncate(out.len().saturating_sub(cut));
        prop_assert!(State::decode(&out, 0, endian).is_err());
    }

    #[test]
    fn states_of_any_bytes_do_not_panic(bytes in bytes(200), kind in 0u16..48, endian in endian()) {
        let mut raw = Vec::new();
        State::Unknown { kind, body: bytes }.encode(&mut raw, endian);
        let _ = State::decode(&raw, 0, endian);
    }
}
