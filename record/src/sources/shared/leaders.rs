//! One leader for each event: another session's, or one of our own.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use bprec_bpf::{AttrMap, Follower, Leader, LeaderSlot, Locked};
use bprec_format::bprec::state::{AbsentEvent, CounterEvent};
use bprec_format::{ATTR_SIZE_MAX, AttrFlags, Endian, EventAttr, event_type};
use bprec_host::Capability;

use crate::events::machine;
use crate::events::syntax::EventSpec;
use crate::events::syntax::groups::{self, Wanted};
use crate::{Error, Result, sys};

/// perf's path.
const ATTR_MAP: &str = "/sys/fs/bpf/perf_attr_map";
/// Number of requests to a CPU to read if its leader is at work there at that moment.
const ASK_AGAIN: usize = 100;

/// An event that is counted, and what reads it.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) event: CounterEvent,
    pub(super) leader: Leader,
    /// The CPUs that it is read on.
    pub(super) cpus: Vec<u32>,
    of: Owner,
}

/// Owner of a leader.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    /// Another session's, which we keep alive as well.
    Other,
    /// Ours, for others to share.
    Ours,
    /// Ours alone, and why.
    Private(String),
}

/// Leaders for what is wanted.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) leading: Vec<Leading>,
    pub(super) absent: Vec<AbsentEvent>,
    /// Why no session can share anything with another; `None` when they can.
    pub(super) unshared: Option<String>,
    pub(super) map: Option<AttrMap>,
    /// Under which our leaders are known.
    pub(super) keys: Vec<Vec<u8>>,
}

/// Finds a leader for each event, or makes one, with the map of leaders locked meanwhile.
///
/// # Errors
/// When the kernel lets us not load one at all.
pub(super) fn find(wanted: &Wanted, attr_map: Option<&Path>, online: &[u32]) -> Result<Found> {
    let mut found = Found::default();
    let key_bytes = sys::kernel_attr_bytes().unwrap_or(ATTR_SIZE_MAX);
    // Without it neither another session's leader can be followed, nor can be told when the last one of the map is gone.
    let can_look = Capability::SYS_ADMIN.is_effective();
    let locked = match can_look.then(|| AttrMap::lock(attr_map.unwrap_or(Path::new(ATTR_MAP)), key_bytes)) {
        None => Err("finding others' leaders needs CAP_SYS_ADMIN".to_owned()),
        Some(locked) => locked.map_err(|error| error.to_string()),
    };
    let locked = locked.map_err(|problem| found.unshared = Some(problem)).ok();
    let mut failed = None;
    for spec in wanted.groups.iter().flatten() {
        let cpus = groups::cpus_of(spec, online);
        match leading(spec, cpus, found.leading.len() as u32, locked.as_ref(), &mut found.keys) {
            Ok(Ok(leading)) => found.leading.push(leading),
            Ok(Err(reason)) => found.absent.push(AbsentEvent { name: spec.name.clone(), reason }),
            // The others would not fare better.
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
            // Others may have found some of ours already; what they do not use goes.
            found.leading.clear();
            if let Some(map) = &found.map {
                map.leave(&found.keys);
            }
            Err(error)
        }
    }
}

/// The leader for one event; Ok(Err) says why there is none.
fn leading(
    spec: &EventSpec,
    cpus: Vec<u32>,
    group: u32,
    locked: Option<&Locked>,
    published: &mut Vec<Vec<u8>>,
) -> Result<Result<Leading, String>> {
    let event = groups::described(spec, group);
    let keys = locked.map(|locked| keys_of(spec, locked.key_bytes()));
    let mut private = None;
    if let (Some(locked), Some(keys)) = (locked, &keys) {
        match followed(locked, keys, &cpus)? {
            Ok(Some(leader)) => return Ok(Ok(Leading { event, leader, cpus, of: Owner::Other })),
            Ok(None) => (),
            Err(reason) => private = Some(reason),
        }
    }
    let open = match groups::open_on(spec, &cpus, &[]) {
        Ok(open) => open,
        Err(reason) => return Ok(Err(reason)),
    };
    let events: Vec<_> = open.iter().map(|(cpu, fd)| (*cpu, fd.as_fd())).collect();
    let leader = Leader::load(machine::possible_cpus(), &events)?;
    if let Some(cpu) = silent(&leader, &cpus)? {
        return Ok(Err(format!("a BPF program cannot read it on CPU {cpu}")));
    }
    let of = match (locked, keys, private) {
        (Some(locked), Some(Ok(keys)), None) => match locked.publish(&keys[0], &leader) {
            Ok(()) => {
                // Without room for it, it is found under the first all the same.
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

/// A leader of another session's for the event that has one of these names, or none; Ok(Err) says why one cannot be followed.
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
                    format!("program {id}, another session's, does not read it on CPU {cpu}")
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

/// The names that an event goes by in the map: its attributes as perf has them before anything else is set. Before 6.13 perf leaves guests
/// out unless it is told otherwise: where there can be none, this is the same event. Err says why it has no name.
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
        return Err(format!("its attributes have {needed} bytes, but the keys of the map {key_bytes}"));
    }
    let mut key = Vec::with_capacity(key_bytes);
    EventAttr { size: key_bytes.min(ATTR_SIZE_MAX) as u32, flags, ..attr.clone() }.encode(&mut key, Endian::NATIVE);
    key.resize(key_bytes, 0);
    // Longer than what we can write: the size is that of the tool that made the map all the same.
    key[4..8].copy_from_slice(&(key_bytes as u32).to_ne_bytes());
    Ok(key)
}

/// A CPU on which the leader does not come to read its event, or none.
fn silent(leader: &Leader, cpus: &[u32]) -> Result<Option<u32>> {
    let before: Vec<_> = leader.readings()?;
    for cpu in cpus {
        let was = before.iter().find(|it| it.cpu == *cpu).map_or(0, |it| it.enabled_ns);
        let mut is_read = false;
        for _ in 0..ASK_AGAIN {
            if !leader.read_now(*cpu)? {
                // It went offline just now.
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

/// Has every leader read on every CPU where its event is, and the follower charge what that comes to. The kernel leaves a program alone
/// that is at work at that moment: a CPU where nothing has moved is asked again.
pub(super) fn read_now(leading: &[Leading], follower: Option<&Follower>, cpus: &[u32]) -> Result<()> {
    let mut left: HashSet<u32> = cpus.iter().copied().collect();
    let readings = || leading.iter().map(|it| it.leader.readings()).collect::<bprec_bpf::Result<Vec<_>>>();
    let before = readings()?;
    for attempt in 1..=ASK_AGAIN {
        // In one order, so that CPUs are some microseconds apart and always the same ones.
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
    // CPUs that went offline count no further, which is right.
    let online = machine::online_cpus();
    left.retain(|cpu| online.contains(cpu));
    match left.into_iter().min() {
        None => Ok(()),
        Some(cpu) => Err(Error::Other(format!("events are not read on CPU {cpu}"))),
    }
}

impl Found {
    /// Remark on the counting.
    pub(super) fn note(&self, wanted: &Wanted, is_followed: bool) -> String {
        let of = |owner: fn(&Owner) -> bool| -> Vec<String> {
            let of_owner = self.leading.iter().filter(|it| owner(&it.of));
            of_owner.map(|it| format!("{} by program {}", it.event.name, it.leader.program_id())).collect()
        };
        let mut note = String::from("read at each context switch");
        if is_followed {
            note.push_str(", charged to tasks and cgroups by a second program on sched_switch");
        }
        let path = self.map.as_ref().map(|map| map.path().display().to_string()).unwrap_or_default();
        let (ours, others) = (of(|it| *it == Owner::Ours), of(|it| *it == Owner::Other));
        if !ours.is_empty() {
            note.push_str(&format!("; {}, which other sessions can share ({path})", ours.join(", ")));
        }
        if !others.is_empty() {
            note.push_str(&format!("; {}, shared with the session that loaded it ({path})", others.join(", ")));
        }
        if let Some(reason) = &self.unshared {
            note.push_str(&format!("; not shared with other sessions: {reason}"));
        }
        for it in &self.leading {
            if let Owner::Private(reason) = &it.of
                && !reason.is_empty()
            {
                note.push_str(&format!("; {} is not shared with other sessions: {reason}", it.event.name));
            }
        }
        if wanted.groups.iter().any(|group| group.len() > 1) {
            note.push_str("; events in braces are counted one by one, because each leader counts one event");
        }
        note
    }
}
