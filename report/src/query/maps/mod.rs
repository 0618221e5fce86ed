//! Maps of the recording's programs: properties, types and contents.

mod entries;
mod names;

use crate::index::Index;
use crate::index::map_contents::Contents;
use crate::index::sections::prog_infos;
use crate::input::recording::OpenRecording;
use crate::input::window::since;
use crate::model::Header;
use crate::options::TextStyle;
use crate::{MapFilter, ProgFilter};
use bprec_format::bpf::Tag;
use bprec_format::bpf::btf::Btf;
use bprec_format::bpf::names::MapType;
use bprec_format::bprec::state;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use entries::{EntryValue, MapEntry, StackTraceFrame};

/// Options of a report on maps.
#[derive(Debug, Clone, Default)]
pub struct MapsOptions {
    /// Maps to show; empty for all.
    pub maps: Vec<MapFilter>,
    /// Filters of programs: only the maps of these programs are shown. Empty for all programs.
    pub programs: Vec<ProgFilter>,
    /// Limit on the entries of each map.
    pub limit: Option<usize>,
    /// Form of the output.
    pub form: MapsForm,
    /// Header of the recording to include in the JSON document.
    pub header: Option<Header>,
    /// Width and colours of the text.
    pub text: TextStyle,
}

/// Form of the output of a report on maps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MapsForm {
    /// Lines about each map, with its entries.
    #[default]
    Text,
    /// One document, with the entries.
    Json,
    /// A line per map.
    Csv,
    /// A table with a line per map.
    Markdown,
}

impl MapsForm {
    /// All forms.
    pub const ALL: [MapsForm; 4] = [MapsForm::Text, MapsForm::Json, MapsForm::Csv, MapsForm::Markdown];

    /// Returns the requested form; text if none is requested.
    pub fn of(is_json: bool, is_csv: bool, is_markdown: bool) -> MapsForm {
        match (is_json, is_csv, is_markdown) {
            (true, ..) => MapsForm::Json,
            (_, true, _) => MapsForm::Csv,
            (.., true) => MapsForm::Markdown,
            _ => MapsForm::Text,
        }
    }
}

/// Program that uses maps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct User<'a> {
    pub(crate) id: u32,
    pub(crate) load_time_ns: u64,
    pub(crate) name: &'a str,
    /// Id of the program's BTF, which may have types that the map lacks.
    btf_id: Option<u32>,
    is_asked: bool,
}

/// Programs that use maps, and the maps that they use.
#[derive(Debug, Default)]
struct Uses<'a> {
    users: Vec<User<'a>>,
    /// Pairs of a map's id and the position of a user, ascending and distinct.
    uses: Vec<(u32, u32)>,
}

impl<'a> Uses<'a> {
    fn new(recording: &OpenRecording<'_>, index: &'a Index, programs: &[ProgFilter]) -> Uses<'a> {
        let mut users: Vec<User<'a>> = Vec::new();
        let mut uses: Vec<(u32, u32)> = Vec::new();
        for info in prog_infos(recording.sections(), recording.endian()) {
            let Some(maps) = info.map_ids().filter(|maps| !maps.is_empty()) else { continue };
            let (id, load_time_ns) = (info.id().unwrap_or(0), info.load_time_ns().unwrap_or(0));
            let name = index.programs.by_key(id, load_time_ns).map_or("", |known| known.name());
            let tag = info.tag().map(|tag| tag.0);
            let is_asked = programs.iter().any(|filter| filter.matches(Some(id), tag.map(Tag), name));
            uses.extend(maps.iter().map(|map| (map, users.len() as u32)));
            let btf_id = info.btf_id().filter(|id| *id != 0);
            users.push(User { id, load_time_ns, name, btf_id, is_asked });
        }
        // Each file of a recording has an info of the program. The program is kept once. The programs are sorted by id and load time.
        let mut order: Vec<u32> = (0..users.len() as u32).collect();
        order.sort_by_key(|at| &users[*at as usize]);
        let is_same = |a: &User<'_>, b: &User<'_>| (a.id, a.load_time_ns, a.name) == (b.id, b.load_time_ns, b.name);
        let mut listed: Vec<User<'a>> = Vec::with_capacity(users.len());
        let mut places = vec![0; users.len()];
        for at in order {
            let user = &users[at as usize];
            if !listed.last().is_some_and(|last| is_same(last, user)) {
                listed.push(user.clone());
            }
            places[at as usize] = listed.len() as u32 - 1;
        }
        uses.iter_mut().for_each(|(_, user)| *user = places[*user as usize]);
        uses.sort_unstable();
        uses.dedup();
        Uses { users: listed, uses }
    }

    /// Returns the ids of the used maps.
    fn maps(&self) -> impl Iterator<Item = u32> {
        self.uses.chunk_by(|a, b| a.0 == b.0).map(|uses| uses[0].0)
    }

    /// Returns the programs that use a map.
    fn of(&self, map: u32) -> impl ExactSizeIterator<Item = &User<'a>> + Clone {
        let from = self.uses.partition_point(|(of, _)| *of < map);
        let uses = &self.uses[from..][..self.uses[from..].partition_point(|(of, _)| *of == map)];
        uses.iter().map(|(_, user)| &self.users[*user as usize])
    }

    /// Returns the ids of the BTF of programs that use a map.
    fn btf(&self, map: u32) -> BTreeSet<u32> {
        self.of(map).filter_map(|user| user.btf_id).collect()
    }
}

/// Types of a map's keys and values, as BTF ids; 0 for no type.
pub(crate) struct Types<'a> {
    pub(crate) btf: &'a Btf<'a>,
    pub(crate) key: u32,
    pub(crate) value: u32,
    /// True if a `____btf_map_` struct of a program has the types, not the map.
    pub(crate) annotated: bool,
}

/// Map, with its types and contents if recorded.
pub(crate) struct Map<'a> {
    pub(crate) id: u32,
    pub(crate) name: &'a str,
    /// State of the map; `None` if the recording has only its id.
    pub(crate) about: Option<&'a state::Map>,
    pub(crate) types: Option<Types<'a>>,
    pub(crate) contents: Option<&'a Contents>,
}

impl Map<'_> {
    pub(crate) fn map_type(&self) -> Option<MapType> {
        self.about.map(|about| MapType(about.map_type))
    }
}

/// Maps to show, and the programs and maps that their values refer to.
pub(crate) struct MapsReport<'a> {
    /// Ids of the maps to show, ascending. The recording may have only the id of a map.
    pub(crate) ids: Vec<u32>,
    /// Count of maps in the recording.
    pub(crate) recorded: usize,
    pub(crate) problems: Vec<String>,
    uses: Uses<'a>,
    /// Names of maps by id.
    names: BTreeMap<u32, String>,
    /// Name of the last program with each id.
    programs: FxHashMap<u32, &'a str>,
    pub(crate) limit: Option<usize>,
    /// Start of the recording, ns of its clock.
    start_ns: u64,
    index: &'a Index,
    /// BTF by id.
    btf: &'a BTreeMap<u32, Btf<'a>>,
    endian: bprec_format::Endian,
}

impl<'a> MapsReport<'a> {
    pub(crate) fn new(
        recording: &OpenRecording<'_>,
        index: &'a Index,
        btf: &'a BTreeMap<u32, Btf<'a>>,
        options: &MapsOptions,
    ) -> MapsReport<'a> {
        let uses = Uses::new(recording, index, &options.programs);
        let states = &index.states;
        let declared = names::Declared::new(btf);
        let name = |about: &state::Map| (about.id, declared.name(about, &uses.btf(about.id)));
        let names: BTreeMap<u32, String> = states.maps.values().map(name).collect();
        let ids: BTreeSet<u32> = uses.maps().chain(states.maps.keys().chain(states.contents.keys()).copied()).collect();
        let mut report = MapsReport {
            ids: Vec::new(),
            recorded: ids.len(),
            problems: index.all_problems(recording),
            names,
            programs: {
                let known = index.programs.list.iter();
                known.filter_map(|known| Some((known.id?, known.name()))).collect()
            },
            uses,
            limit: options.limit,
            start_ns: states.session.as_ref().map_or(0, |session| session.start_ns),
            index,
            btf,
            endian: recording.endian(),
        };
        report.ids = ids.into_iter().filter(|id| report.is_asked(*id, options)).collect();
        report
    }

    fn is_asked(&self, id: u32, options: &MapsOptions) -> bool {
        // A filter may match the whole name, or the name as the kernel truncates it.
        let is_named = || {
            let kept = self.index.states.maps.get(&id).map(|about| String::from_utf8_lossy(&about.name));
            let (whole, kept) = (self.map_name(id).unwrap_or_default(), kept.unwrap_or_default());
            options.maps.iter().any(|filter| filter.matches(id, whole) || filter.matches(id, &kept))
        };
        (options.programs.is_empty() || self.uses.of(id).any(|user| user.is_asked))
            && (options.maps.is_empty() || is_named())
    }

    /// Returns the maps one at a time.
    pub(crate) fn maps(&self) -> impl Iterator<Item = Map<'_>> + Clone {
        self.ids.iter().map(|id| {
            let about = self.index.states.maps.get(id);
            Map {
                id: *id,
                name: self.map_name(*id).unwrap_or_default(),
                about,
                types: about.and_then(|about| types(about, self.btf, &self.uses.btf(*id))),
                contents: self.index.states.contents.get(id),
            }
        })
    }

    /// Returns the programs that use a map.
    pub(crate) fn users(&self, map: &Map<'_>) -> impl ExactSizeIterator<Item = &User<'a>> + Clone {
        self.uses.of(map.id)
    }

    /// Name of a program by its id.
    pub(crate) fn program_name(&self, id: u32) -> Option<&str> {
        self.programs.get(&id).copied().filter(|name| !name.is_empty())
    }

    /// Returns the time at which a map was read, ns since the recording's start.
    pub(crate) fn since_start_ns(&self, contents: &Contents) -> i64 {
        since(contents.time_ns(), self.start_ns)
    }

    /// Name of a map by its id.
    pub(crate) fn map_name(&self, id: u32) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }
}

/// Returns the types of a map. If the map itself has none, they come from a `____btf_map_` struct in the BTF of a program that uses the map, if the
/// sizes fit.
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
