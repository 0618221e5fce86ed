//! Dumps of BPF maps: the recorder reads the contents of maps when sampling has ended, and writes them as states.

use std::collections::BTreeSet;

use bprec_bpf::{Bounds, Map, map_ids};
use bprec_filter::MapFilter;
use bprec_format::bpf::names::MapType;
use bprec_format::bprec::state::{self, MapContents, State};

use super::{Context, Source};
use crate::{Level, Options, Result, sys};

/// `BPF_F_STACK_BUILD_ID`: a stack trace map has build ids and offsets instead of addresses.
const STACK_BUILD_ID: u32 = 1 << 5;
/// Start of the kernel's half of the address space, on every architecture that BPF is compiled for.
const KERNEL_HALF: u64 = 1 << 63;
/// Limit on the addresses in maps of stack traces for which the recorder looks up symbols; it ignores further addresses.
const MAX_ADDRESSES: usize = 1 << 20;

/// Maps to dump: maps that the options name, and maps of the user's programs.
#[derive(Debug)]
pub(crate) struct MapDumps {
    wanted: Vec<MapFilter>,
    /// Ids of the maps of the user's programs.
    own: Vec<u32>,
    bounds: Bounds,
}

impl MapDumps {
    /// Plans the dump of the maps with the ids `own`, and of all maps that the options name.
    pub(crate) fn new(options: &Options, own: Vec<u32>) -> MapDumps {
        MapDumps { wanted: options.dump_maps.clone(), own, bounds: options.dump_bounds }
    }
}

impl Source for MapDumps {
    /// Reports each requested map that does not exist yet, because the user may have mistyped its name.
    fn begin_file(&mut self, is_first: bool, context: &mut Context<'_>) -> Result<()> {
        if !is_first {
            return Ok(());
        }
        let names = names_if(!self.wanted.is_empty());
        for wanted in self.wanted.iter().filter(|wanted| !names.iter().any(|(id, name)| wanted.matches(*id, name))) {
            (context.notify)(Level::Notice, &format!("no loaded map matches {wanted} yet"));
        }
        Ok(())
    }

    /// Reads each map once, and requests names for the kernel addresses in stack traces.
    fn end_file(&mut self, is_last: bool, context: &mut Context<'_>) -> Result<()> {
        if !is_last {
            return Ok(());
        }
        let mut ids: BTreeSet<u32> = self.own.iter().copied().collect();
        let names = names_if(!self.wanted.is_empty());
        for wanted in &self.wanted {
            let mut found = names.iter().filter(|(id, name)| wanted.matches(*id, name)).map(|(id, _)| *id).peekable();
            if found.peek().is_none() {
                let text = format!("no loaded map matches {wanted}, so the recording lacks its contents");
                (context.notify)(Level::Warning, &text);
            }
            ids.extend(found);
        }
        let mut addresses = BTreeSet::new();
        for id in ids {
            match Map::take(id) {
                Ok(map) => {
                    types(map.about(), context)?;
                    dump(&map, &self.bounds, context, &mut addresses)?;
                }
                Err(error) => {
                    (context.notify)(Level::Warning, &format!("the recording lacks the contents of a map: {error}"))
                }
            }
        }
        context.out.addresses.extend(addresses);
        Ok(())
    }
}

/// Returns ids and names of all maps if `needed`, else nothing.
fn names_if(needed: bool) -> Vec<(u32, String)> {
    map_ids().take_while(|_| needed).map_while(|id| id.ok()).filter_map(named).collect()
}

fn named(id: u32) -> Option<(u32, String)> {
    let map = Map::take(id).ok()?;
    Some((id, String::from_utf8_lossy(&map.about().name).into_owned()))
}

/// Writes the BTF of the map's keys and values. A file holds BTF in a section; a stream, which has no sections, gets a record.
fn types(about: &state::Map, context: &mut Context<'_>) -> Result<()> {
    if about.btf_id == 0 {
        return Ok(());
    }
    let problem = match context.programs.btf(about.btf_id) {
        Err(error) => error.to_string(),
        Ok(btf) if context.out.types(about.btf_id, &btf)? => return Ok(()),
        Ok(btf) => format!("the BTF of {} bytes is too large for a pipe stream; record into a file", btf.len()),
    };
    (context.notify)(Level::Warning, &format!("the types of {} are unknown: {problem}", name(about)));
    Ok(())
}

fn name(about: &state::Map) -> String {
    format!("map {} ({})", about.id, String::from_utf8_lossy(&about.name))
}

fn dump(map: &Map, bounds: &Bounds, context: &mut Context<'_>, addresses: &mut BTreeSet<u64>) -> Result<()> {
    let about = map.about();
    let what = name(about);
    context.out.state(State::Map(about.clone()))?;
    let mut traces = (about.map_type == MapType::STACK_TRACE.0 && about.flags & STACK_BUILD_ID == 0).then(|| Traces {
        stride: 4 + about.value_bytes as usize,
        rest: Vec::new(),
        addresses,
    });
    let mut end = None;
    map.read_contents(bounds, sys::monotonic_ns, |part| {
        if let Some(traces) = &mut traces {
            traces.add(&part);
        }
        end.clone_from(&part.end);
        context.out.state(State::MapContents(part))
    })?;
    let Some(end) = end else { return Ok(()) };
    let entries = if end.entries == 1 { "1 entry".to_owned() } else { format!("{} entries", end.entries) };
    if end.cut.is_empty() {
        (context.notify)(Level::Detail, &format!("{what}: {entries}"));
    } else {
        (context.notify)(Level::Warning, &format!("{what}: {entries}; {}", end.cut));
    }
    Ok(())
}

/// Collects kernel addresses from the contents of a stack trace map, which arrive in parts.
struct Traces<'s> {
    /// Size of an entry: the 4-byte key and the value, bytes.
    stride: usize,
    /// Start of an entry that continues in the next part.
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
                    // All addresses of a stack after the first are return addresses. A call may be the last instruction of its function, so the
                    // address minus 1 is used.
                    self.addresses.insert(addr - u64::from(at > 0));
                }
            }
        }
        self.rest.drain(..whole);
    }
}
