//! Leaders: BPF programs that read an event at each context switch. Each event has one leader, of another session or of
//! this session.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use bprec_bpf::{AttrMap, Follower, Leader, LeaderSlot, Locked};
use bprec_format::bprec::state::{AbsentEvent, CounterEvent};
use bprec_format::{ATTR_SIZE_MAX, AttrFlags, Endian, EventAttr, event_type};
use bprec_host::Capability;

use crate::events::syntax::EventSpec;
use crate::events::{self, Wanted, machine};
use crate::{Error, Result, sys};

/// Path of perf's map of leaders.
const ATTR_MAP: &str = "/sys/fs/bpf/perf_attr_map";
/// Limit on attempts to get a new reading from a CPU. The kernel ignores an attempt while the leader runs on that CPU.
const ASK_AGAIN: usize = 100;

/// Counted event with its leader.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) event: CounterEvent,
    pub(super) leader: Leader,
    /// CPUs on which the leader reads the event.
    pub(super) cpus: Vec<u32>,
    of: Owner,
}

/// Owner of a leader.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    /// Another session; our link keeps the leader attached as well.
    Other,
    /// This session; other sessions can share the leader.
    Ours,
    /// This session alone; the text is the reason why other sessions cannot share the leader.
    Private(String),
}

/// Leaders of the requested events.
#[derive(Debug, Default)]
pub(super) struct FoundLeaders {
    pub(super) leading: Vec<Leading>,
    pub(super) absent: Vec<AbsentEvent>,
    /// Reason why no leader can be shared with other sessions; `None` if leaders can be shared.
    pub(super) unshared: Option<String>,
    pub(super) map: Option<AttrMap>,
    /// Keys of our leaders in the map.
    pub(super) keys: Vec<Vec<u8>>,
}

/// Finds or loads a leader for each event, while the map of leaders is locked.
///
/// # Errors
/// Fails if the kernel refuses to load leaders.
pub(super) fn find(wanted: &Wanted, attr_map: Option<&Path>, online: &[u32]) -> Result<FoundLeaders> {
    let mut found = FoundLeaders::default();
    let key_bytes = sys::kernel_attr_bytes().unwrap_or(ATTR_SIZE_MAX);
    // Without CAP_SYS_ADMIN, the recorder can neither follow a leader of another session, nor know when the last leader of the map is gone.
    let can_look = Capability::SYS_ADMIN.is_effective();
    let locked = match can_look.then(|| AttrMap::lock(attr_map.unwrap_or(Path::new(ATTR_MAP)), key_bytes)) {
        None => Err("bprec needs CAP_SYS_ADMIN to find the counters of other sessions".to_owned()),
        Some(locked) => locked.map_err(|error| error.to_string()),
    };
    let locked = locked.map_err(|problem| found.unshared = Some(problem)).ok();
    let mut failed = None;
    for spec in wanted.groups.iter().flatten() {
        let cpus = events::cpus_of(spec, online);
        match leading(spec, cpus, found.leading.len() as u32, locked.as_ref(), &mut found.keys) {
            Ok(Ok(leading)) => found.leading.push(leading),
            Ok(Err(reason)) => found.absent.push(AbsentEvent { name: spec.name.clone(), reason }),
            // Leaders of the other events would fail in the same way.
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    found.map = locked.and_then(Locked::unlock);
    match failed {
        None => Ok(found),
        Some(error) => {
            // Other sessions may follow some of these leaders already; leaders that no session uses are unloaded.
            found.leading.clear();
            if let Some(map) = &found.map {
                map.leave(&found.keys);
            }
            Err(error)
        }
    }
}

/// Finds or loads the leader of one event. `Ok(Err)` holds the reason why this event has no leader; `Err` is a failure
/// that leaders of other events would have, too.
fn leading(
    spec: &EventSpec,
    cpus: Vec<u32>,
    group: u32,
    locked: Option<&Locked>,
    published: &mut Vec<Vec<u8>>,
) -> Result<Result<Leading, String>> {
    let event = events::described(spec, group);
    let keys = locked.map(|locked| keys_of(spec, locked.key_bytes()));
    let mut private = None;
    if let (Some(locked), Some(keys)) = (locked, &keys) {
        match followed(locked, keys, &cpus)? {
            Ok(Some(leader)) => return Ok(Ok(Leading { event, leader, cpus, of: Owner::Other })),
            Ok(None) => (),
            Err(reason) => private = Some(reason),
        }
    }
    let open = match events::open_on(spec, &cpus, &[]) {
        Ok(open) => open,
        Err(reason) => return Ok(Err(reason)),
    };
    let events: Vec<_> = open.iter().map(|(cpu, fd)| (*cpu, fd.as_fd())).collect();
    let leader = Leader::load(machine::possible_cpus(), &events)?;
    if let Some(cpu) = silent(&leader, &cpus)? {
        return Ok(Err(format!("a BPF program cannot read the event on CPU {cpu}")));
    }
    let of = match (locked, keys, private) {
        (Some(locked), Some(Ok(keys)), None) => match locked.publish(&keys[0], &leader) {
            Ok(()) => {
                // If the map has no free entry for further keys, other sessions find the leader by its first key.
                let names = keys.iter().skip(1).filter(|key| locked.publish(key, &leader).is_ok()).cloned();
                published.extend(std::iter::once(keys[0].clone()).chain(names));
                Owner::Ours
            }
            Err(error) => Owner::Private(error.to_string()),
        },
        (None, ..) => Owner::Private(String::new()),
        (_, _, private) => Owner::Private(private.unwrap_or_default()),
    };
    Ok(Ok(Leading { event, leader, cpus, of }))
}

/// Finds a leader of another session by one of the event's keys; `Ok(Ok(None))` if no key has a leader. If there are
/// leaders and none of them can be followed, `Ok(Err)` holds the reason.
fn followed(
    locked: &Locked,
    keys: &Result<Vec<Vec<u8>>, String>,
    cpus: &[u32],
) -> Result<Result<Option<Leader>, String>> {
    let keys = match keys {
        Ok(keys) => keys,
        Err(problem) => return Ok(Err(problem.clone())),
    };
    let mut refused = None;
    for key in keys {
        let reason = match locked.find(key) {
            Ok(LeaderSlot::Leader(leader)) => match silent(&leader, cpus)? {
                None => return Ok(Ok(Some(leader))),
                Some(cpu) => {
                    let id = leader.program_id();
                    format!("program {id} of another session does not read the event on CPU {cpu}")
                }
            },
            Ok(LeaderSlot::Free) => continue,
            Ok(LeaderSlot::Foreign(problem)) => problem,
            Err(error) => error.to_string(),
        };
        refused = refused.or(Some(reason));
    }
    Ok(refused.map_or(Ok(None), Err))
}

/// Returns the keys of an event in the map: its attributes, with perf's default for guests. perf before 6.13 excludes
/// guests by default, later versions include them. On a machine that cannot run guests, events with either default count the same, so the
/// event has a key for each default. `Err` holds the reason why the event has no key.
fn keys_of(spec: &EventSpec, key_bytes: usize) -> Result<Vec<Vec<u8>>, String> {
    let flags = spec.attr.flags.with_precise_ip(0);
    let mut keys = vec![key(&spec.attr, flags, key_bytes)?];
    let has_guests = spec.attr.kind != event_type::SOFTWARE && Path::new("/dev/kvm").exists();
    if !has_guests && !flags.contains(AttrFlags::EXCLUDE_GUEST) {
        keys.push(key(&spec.attr, flags.with(AttrFlags::EXCLUDE_GUEST), key_bytes)?);
    }
    Ok(keys)
}

fn key(attr: &EventAttr, flags: AttrFlags, key_bytes: usize) -> Result<Vec<u8>, String> {
    let needed = attr.smallest_size();
    if needed as usize > key_bytes {
        return Err(format!(
            "the event's attributes need {needed} bytes, but the keys of the map have {key_bytes} bytes"
        ));
    }
    let mut key = Vec::with_capacity(key_bytes);
    EventAttr { size: key_bytes.min(ATTR_SIZE_MAX) as u32, flags, ..attr.clone() }.encode(&mut key, Endian::NATIVE);
    key.resize(key_bytes, 0);
    // The attr's `size` is the key size of the map, even if this is larger than the attr that bprec encodes.
    key[4..8].copy_from_slice(&(key_bytes as u32).to_ne_bytes());
    Ok(key)
}

/// Returns a CPU on which the leader does not read its event, if any.
fn silent(leader: &Leader, cpus: &[u32]) -> Result<Option<u32>> {
    let before: Vec<_> = leader.readings()?;
    for cpu in cpus {
        let was = before.iter().find(|it| it.cpu == *cpu).map_or(0, |it| it.enabled_ns);
        let mut is_read = false;
        for _ in 0..ASK_AGAIN {
            if !leader.read_now(*cpu)? {
                // No program can run on a CPU that has just gone offline, so the CPU is skipped.
                is_read = true;
                break;
            }
            is_read = leader.readings()?.iter().any(|now| now.cpu == *cpu && now.enabled_ns > was);
            if is_read {
                break;
            }
            thread::yield_now();
        }
        if !is_read {
            return Ok(Some(*cpu));
        }
    }
    Ok(None)
}

/// Makes every leader read its event on every CPU, and the follower, if there is one, charge the counts to tasks and
/// cgroups. The kernel does not start a program that is running on the same CPU at that moment, so CPUs with unchanged
/// readings are asked again.
pub(super) fn read_now(leading: &[Leading], follower: Option<&Follower>, cpus: &[u32]) -> Result<()> {
    let mut left: HashSet<u32> = cpus.iter().copied().collect();
    let readings = || leading.iter().map(|it| it.leader.readings()).collect::<bprec_bpf::Result<Vec<_>>>();
    let before = readings()?;
    for attempt in 1..=ASK_AGAIN {
        // The order of the CPUs is always the same, so that the time between two readings of a CPU hardly varies.
        for cpu in cpus.iter().filter(|cpu| left.contains(cpu)) {
            for it in leading.iter().filter(|it| it.cpus.contains(cpu)) {
                it.leader.read_now(*cpu)?;
            }
            if let Some(follower) = follower {
                follower.charge_now(*cpu)?;
            }
        }
        let now = readings()?;
        let has_moved = |cpu: u32| {
            leading.iter().zip(before.iter().zip(&now)).all(|(it, (before, now))| {
                let place = before.iter().position(|reading| reading.cpu == cpu).filter(|_| it.cpus.contains(&cpu));
                place.is_none_or(|place| now[place].enabled_ns > before[place].enabled_ns)
            })
        };
        left.retain(|cpu| !has_moved(*cpu));
        if left.is_empty() {
            return Ok(());
        }
        if attempt > 1 {
            thread::yield_now();
        }
    }
    // Events of CPUs that went offline count no further, so these readings are complete.
    let online = machine::online_cpus();
    left.retain(|cpu| online.contains(cpu));
    match left.into_iter().min() {
        None => Ok(()),
        Some(cpu) => Err(Error::Other(format!(
            "cannot read the events on CPU {cpu}: the BPF program gave no new reading after {ASK_AGAIN} attempts"
        ))),
    }
}

impl FoundLeaders {
    /// Describes how the events are counted and shared.
    pub(super) fn note(&self, wanted: &Wanted, is_followed: bool) -> String {
        let of = |owner: fn(&Owner) -> bool| -> Vec<String> {
            let of_owner = self.leading.iter().filter(|it| owner(&it.of));
            of_owner.map(|it| format!("{} by program {}", it.event.name, it.leader.program_id())).collect()
        };
        let mut note = String::from("a BPF program reads the events at each context switch");
        if is_followed {
            note.push_str(", and a second program on sched_switch charges the counts to tasks and cgroups");
        }
        let path = self.map.as_ref().map(|map| map.path().display().to_string()).unwrap_or_default();
        let (ours, others) = (of(|it| *it == Owner::Ours), of(|it| *it == Owner::Other));
        if !ours.is_empty() {
            note.push_str(&format!("; {}, which other sessions can share ({path})", ours.join(", ")));
        }
        if !others.is_empty() {
            note.push_str(&format!("; {}, loaded by another session and shared ({path})", others.join(", ")));
        }
        if let Some(reason) = &self.unshared {
            note.push_str(&format!("; the counters are not shared with other sessions: {reason}"));
        }
        for it in &self.leading {
            if let Owner::Private(reason) = &it.of
                && !reason.is_empty()
            {
                note.push_str(&format!("; {} is not shared with other sessions: {reason}", it.event.name));
            }
        }
        if wanted.groups.iter().any(|group| group.len() > 1) {
            note.push_str("; events in braces are counted separately, because each program counts one event");
        }
        note
    }
}
