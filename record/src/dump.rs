//! What maps hold at the end of a recording, as states.

use std::collections::BTreeSet;

use bprec_bpf::{Map, map_ids};
use bprec_format::bpf::names::MapType;
use bprec_format::state::{self, MapContents, State};

use crate::glob::glob;
use crate::session::Session;
use crate::{Level, Result, WantedMap, features, sys};

/// `BPF_F_STACK_BUILD_ID`: a stack trace map has build ids and offsets instead of addresses.
const STACK_BUILD_ID: u32 = 1 << 5;
/// Where the kernel's half of the address space starts, on every architecture that BPF is compiled for.
const KERNEL_HALF: u64 = 1 << 63;
/// Addresses of stack traces that are looked up, at most.
const MAX_ADDRESSES: usize = 1 << 20;

/// Says which of the maps asked for there are none of yet: it may be a slip of the pen.
pub(crate) fn announce(session: &Session<'_>) {
    let wanted = &session.options.dump_maps;
    if wanted.is_empty() {
        return;
    }
    let names: Vec<(u32, String)> = map_ids().map_while(|id| id.ok()).filter_map(named).collect();
    for wanted in wanted.iter().filter(|wanted| !names.iter().any(|(id, name)| wanted.is(*id, name))) {
        (session.options.notify)(Level::Notice, &format!("there is no map {wanted} yet"));
    }
}

/// Reads the maps that the options ask for, and those of the user's programs. The kernel addresses in their stack traces are returned.
///
/// # Errors
/// When the output cannot be written. Maps that cannot be read are said.
pub(crate) fn wanted(session: &mut Session<'_>) -> Result<Vec<u64>> {
    let wanted = &session.options.dump_maps;
    let mut ids = session.programs.map_ids()?;
    if !wanted.is_empty() {
        let names: Vec<(u32, String)> = map_ids().map_while(|id| id.ok()).filter_map(named).collect();
        for wanted in wanted {
            let before = ids.len();
            ids.extend(names.iter().filter(|(id, name)| wanted.is(*id, name)).map(|(id, _)| *id));
            if ids.len() == before {
                (session.options.notify)(
                    Level::Warning,
                    &format!("there is no map {wanted}: nothing of it is recorded"),
                );
            }
        }
    }
    maps(session, ids)
}

/// Reads these maps, each once. The kernel addresses in their stack traces are returned.
///
/// # Errors
/// As [`wanted`].
pub(crate) fn maps(session: &mut Session<'_>, ids: impl IntoIterator<Item = u32>) -> Result<Vec<u64>> {
    let (mut addresses, mut streamed) = (BTreeSet::new(), BTreeSet::new());
    for id in ids.into_iter().collect::<BTreeSet<u32>>() {
        match Map::take(id) {
            Ok(map) => {
                types(session, map.about(), &mut streamed)?;
                self::map(session, &map, &mut addresses)?;
            }
            Err(error) => (session.options.notify)(Level::Warning, &format!("not recorded what it holds: {error}")),
        }
    }
    Ok(addresses.into_iter().collect())
}

fn named(id: u32) -> Option<(u32, String)> {
    let map = Map::take(id).ok()?;
    Some((id, String::from_utf8_lossy(&map.about().name).into_owned()))
}

impl WantedMap {
    fn is(&self, id: u32, name: &str) -> bool {
        match self {
            WantedMap::Id(wanted) => *wanted == id,
            WantedMap::Name(pattern) => glob(pattern, name),
        }
    }
}

/// Has the file know the types of a map's keys and values. A stream, which has no section for them, gets them at once.
fn types(session: &mut Session<'_>, about: &state::Map, streamed: &mut BTreeSet<u32>) -> Result<()> {
    if about.btf_id == 0 {
        return Ok(());
    }
    let problem = match session.inventory.btf(about.btf_id) {
        Err(error) => error.to_string(),
        Ok(_) if session.sink.is_file() || !streamed.insert(about.btf_id) => return Ok(()),
        Ok(btf) => {
            let (bit, payload) = features::btfs([(about.btf_id, &btf[..])].into_iter());
            if session.sink.stream_feature(bit, &payload)? {
                return Ok(());
            }
            format!("{} bytes are too many for a stream; record into a file", btf.len())
        }
    };
    (session.options.notify)(Level::Warning, &format!("the types of {} stay unknown: {problem}", name(about)));
    Ok(())
}

fn name(about: &state::Map) -> String {
    format!("map {} ({})", about.id, String::from_utf8_lossy(&about.name))
}

fn map(session: &mut Session<'_>, map: &Map, addresses: &mut BTreeSet<u64>) -> Result<()> {
    let about = map.about();
    let what = name(about);
    session.pending.push(State::Map(about.clone()));
    let mut traces = (about.map_type == MapType::STACK_TRACE.0 && about.flags & STACK_BUILD_ID == 0).then(|| Traces {
        stride: 4 + about.value_bytes as usize,
        rest: Vec::new(),
        addresses,
    });
    let mut end = None;
    let bounds = session.options.dump_bounds;
    map.read_contents(
        &bounds,
        || sys::clock_ns(sys::CLOCK_MONOTONIC),
        |part| {
            if let Some(traces) = &mut traces {
                traces.add(&part);
            }
            end.clone_from(&part.end);
            session.pending.push(State::MapContents(part));
            session.round().map(drop)
        },
    )?;
    let Some(end) = end else { return Ok(()) };
    let entries = if end.entries == 1 { "1 entry".to_owned() } else { format!("{} entries", end.entries) };
    if end.cut.is_empty() {
        (session.options.notify)(Level::Detail, &format!("{what}: {entries}"));
    } else {
        (session.options.notify)(Level::Warning, &format!("{what}: {entries}; {}", end.cut));
    }
    Ok(())
}

/// Addresses out of the parts of a stack trace map.
struct Traces<'s> {
    /// Bytes of an entry.
    stride: usize,
    /// An entry of which the rest is to come.
    rest: Vec<u8>,
    addresses: &'s mut BTreeSet<u64>,
}

impl Traces<'_> {
    fn add(&mut self, part: &MapContents) {
        self.rest.extend_from_slice(&part.bytes);
        let whole = self.rest.len() / self.stride * self.stride;
        for entry in self.rest[..whole].chunks_exact(self.stride) {
            for (at, word) in entry[4..].chunks_exact(8).enumerate() {
                let Some(addr) = word.first_chunk().map(|word| u64::from_ne_bytes(*word)) else { continue };
                if addr >= KERNEL_HALF && self.addresses.len() < MAX_ADDRESSES {
                    // All but the first are return addresses: a call may be the last instruction of its function.
                    self.addresses.insert(addr - u64::from(at > 0));
                }
            }
        }
        self.rest.drain(..whole);
    }
}
