//! The maps of the recording's programs: what they are, what their keys and values are, and what they held.

mod entries;
mod names;

use crate::ProgFilter;
use crate::index::Index;
use crate::index::map_contents::Contents;
use crate::input::recording::Recording;
use crate::input::window::since;
use crate::options::{Paint, glob};
use bprec_format::bpf::btf::Btf;
use bprec_format::bpf::names::MapType;
use bprec_format::bpf::prog_info::BpfProgInfoSection;
use bprec_format::feature::Feature;
use bprec_format::state;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::str::FromStr;

pub(crate) use entries::{Entry, Frame, Shown};

/// What is shown of maps, and of which.
#[derive(Debug, Clone, Default)]
pub struct MapsOptions {
    /// Only maps that one of these matches; empty: all.
    pub maps: Vec<MapFilter>,
    /// Only maps of programs that one of these matches; empty: all.
    pub programs: Vec<ProgFilter>,
    /// At most so many entries of each.
    pub limit: Option<usize>,
    /// As one JSON document instead of text.
    pub json: bool,
    /// Whether text has colours.
    pub paint: Paint,
}

/// Which maps: an id, or a pattern for the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapFilter {
    /// This id.
    Id(u32),
    /// A name like this: `*`, `?`, `[a-z]`.
    Name(String),
}

impl FromStr for MapFilter {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<MapFilter, Infallible> {
        Ok(text.parse().map_or_else(|_| MapFilter::Name(text.to_owned()), MapFilter::Id))
    }
}

impl MapFilter {
    fn matches(&self, id: u32, name: &str) -> bool {
        match self {
            MapFilter::Id(wanted) => *wanted == id,
            MapFilter::Name(pattern) => glob::matches(pattern, name),
        }
    }
}

/// A program as a map refers to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) load_time_ns: u64,
    pub(crate) name: String,
}

/// Types of a map's keys and values; 0 where it has none.
pub(crate) struct Types<'a> {
    pub(crate) btf: &'a Btf<'a>,
    pub(crate) key: u32,
    pub(crate) value: u32,
    /// Told by a `____btf_map_` struct of a program, not by the map.
    pub(crate) annotated: bool,
}

/// One map.
pub(crate) struct Map<'a> {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// What it is, unless the recording only has its id.
    pub(crate) about: Option<&'a state::Map>,
    pub(crate) users: Vec<User>,
    pub(crate) types: Option<Types<'a>>,
    pub(crate) contents: Option<&'a Contents>,
}

impl Map<'_> {
    pub(crate) fn map_type(&self) -> Option<MapType> {
        self.about.map(|about| MapType(about.map_type))
    }
}

/// The maps to be shown, and what their values refer to.
pub(crate) struct MapsReport<'a> {
    pub(crate) maps: Vec<Map<'a>>,
    pub(crate) problems: Vec<String>,
    /// By id.
    names: BTreeMap<u32, String>,
    pub(crate) limit: Option<usize>,
    /// When the recording started, ns of its clock.
    start_ns: u64,
    index: &'a Index,
    endian: bprec_format::Endian,
}

impl<'a> MapsReport<'a> {
    pub(crate) fn new(
        recording: &Recording<'_>,
        index: &'a Index,
        btf: &'a BTreeMap<u32, Btf<'a>>,
        options: &MapsOptions,
    ) -> MapsReport<'a> {
        let mut problems = recording.problems().to_vec();
        problems.extend(index.problems.iter().cloned());
        let mut users: BTreeMap<u32, BTreeSet<User>> = BTreeMap::new();
        // The BTF of the programs that use a map: it may tell what the map does not.
        let mut blobs: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut asked: BTreeSet<u32> = BTreeSet::new();
        for section in recording.sections_of(Feature::BPF_PROG_INFO) {
            let infos = BpfProgInfoSection::new(&section.bytes, section.offset, recording.endian());
            for info in infos.into_iter().flatten().flatten() {
                let (id, load_time_ns) = (info.id().unwrap_or(0), info.load_time_ns().unwrap_or(0));
                let known = index.programs.by_key(id, load_time_ns);
                let name = known.map(|known| known.name().to_owned()).unwrap_or_default();
                let tag = info.tag().map(|tag| tag.0);
                let is_asked = options.programs.iter().any(|filter| filter.matches(Some(id), tag, &name));
                for map in info.map_ids().into_iter().flat_map(|ids| ids.iter()) {
                    users.entry(map).or_default().insert(User { id, load_time_ns, name: name.clone() });
                    blobs.entry(map).or_default().extend(info.btf_id().filter(|id| *id != 0));
                    if is_asked {
                        asked.insert(map);
                    }
                }
            }
        }
        let states = &index.states;
        let declared = names::Declared::new(btf);
        let names: BTreeMap<u32, String> =
            states.maps.values().map(|about| (about.id, declared.name(about, blobs.get(&about.id)))).collect();
        let ids: BTreeSet<u32> =
            users.keys().chain(states.maps.keys()).chain(states.contents.keys()).copied().collect();
        let maps = ids.into_iter().filter(|id| options.programs.is_empty() || asked.contains(id)).map(|id| {
            let about = states.maps.get(&id);
            let name = names.get(&id).cloned().unwrap_or_default();
            let blobs = blobs.remove(&id).unwrap_or_default();
            Map {
                id,
                name,
                about,
                users: users.remove(&id).unwrap_or_default().into_iter().collect(),
                types: about.and_then(|about| types(about, btf, &blobs)),
                contents: states.contents.get(&id),
            }
        });
        // By its whole name, or by what the kernel keeps of it.
        let is_asked = |map: &Map<'_>| {
            let kept = map.about.map(|about| String::from_utf8_lossy(&about.name)).unwrap_or_default();
            options.maps.is_empty()
                || options.maps.iter().any(|filter| filter.matches(map.id, &map.name) || filter.matches(map.id, &kept))
        };
        MapsReport {
            maps: maps.filter(is_asked).collect(),
            problems,
            names,
            limit: options.limit,
            start_ns: states.session.as_ref().map_or(0, |session| session.start_ns),
            index,
            endian: recording.endian(),
        }
    }

    /// Name of a program by its id.
    pub(crate) fn program_name(&self, id: u32) -> Option<&str> {
        let mut known = self.index.programs.list.iter().rev();
        known.find(|known| known.id == Some(id)).map(|known| known.name()).filter(|name| !name.is_empty())
    }

    /// When a map was read, since the recording's start.
    pub(crate) fn since_start_ns(&self, contents: &Contents) -> i64 {
        since(contents.time_ns(), self.start_ns)
    }

    /// Name of a map by its id.
    pub(crate) fn map_name(&self, id: u32) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }
}

/// The types that a map says it has, or else those that a program which uses it says by a `____btf_map_` struct whose members are
/// as large as the map's keys and values.
fn types<'a>(about: &state::Map, btf: &'a BTreeMap<u32, Btf<'a>>, programs: &BTreeSet<u32>) -> Option<Types<'a>> {
    if about.btf_key_type_id != 0 || about.btf_value_type_id != 0 {
        let (key, value) = (about.btf_key_type_id, about.btf_value_type_id);
        return Some(Types { btf: btf.get(&about.btf_id)?, key, value, annotated: false });
    }
    programs.iter().find_map(|id| {
        let btf = btf.get(id)?;
        let (key, value) = btf.annotated_map_types(&about.name)?;
        let fits =
            btf.size_of(key) == Some(about.key_bytes.into()) && btf.size_of(value) == Some(about.value_bytes.into());
        fits.then_some(Types { btf, key, value, annotated: true })
    })
}
