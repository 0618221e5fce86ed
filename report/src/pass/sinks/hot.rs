//! What was hit most, for recordings in which no BPF program is known: kernel functions where the recording names them,
//! otherwise addresses in the kernel, a module or a file.

use crate::Options;
use crate::index::Index;
use crate::index::demangle::function_name;
use crate::input::recording::Recording;
use crate::model::Count;
use crate::pass::attribution::Attribution;
use crate::pass::sinks::mappings::Mappings;
use crate::pass::{SampleView, Selection, Sink, run};
use bprec_format::misc;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::sync::Arc;

/// How many are kept.
const HOTTEST: usize = 40;
/// Places that are counted one by one; what is hit beyond these goes to one line.
const MAX_PLACES: usize = 1 << 19;

/// A place that was hit.
#[derive(Debug, Clone)]
pub(crate) struct Hot {
    pub(crate) name: String,
    /// The name as the file has it, where that is another one.
    pub(crate) mangled: Option<String>,
    pub(crate) object: Arc<str>,
    pub(crate) count: Count,
}

/// Where a sample was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    /// A kernel function, by its number.
    Kernel(u32),
    /// An address in the kernel or a module.
    KernelAddr(u64),
    /// A function of a mapped file, by their numbers.
    Function(u32, u32),
    /// An offset in a mapped file, by its number.
    File(u32, u64),
    /// An address in no map.
    User(u64),
    /// No address, or too many places.
    Other,
}

/// By event: the places that were hit most, hottest first.
pub(crate) fn hottest(recording: &Recording<'_>, index: &Index, selection: &Selection<'_>) -> Vec<Vec<Hot>> {
    let maps = Mappings::of(recording, &index.files);
    let sink = HotSink { index, maps: &maps, places: vec![FxHashMap::default(); recording.events.all().len()] };
    // More places than are counted one by one go to one line: which those are must not depend on threads.
    let options = Options { threads: Some(1), ..selection.options.clone() };
    let selection = Selection { options: &options, ..selection.clone() };
    let (sink, _) = run(recording, index, &selection, sink, |_, _| {});
    let mut objects = Objects::default();
    sink.places.into_iter().map(|places| name(places, &mut objects, index, &maps, selection.options)).collect()
}

/// Counts samples by place.
struct HotSink<'i> {
    index: &'i Index,
    maps: &'i Mappings<'i>,
    /// By event.
    places: Vec<FxHashMap<Place, Count>>,
}

impl HotSink<'_> {
    fn place(&self, sample: &SampleView<'_>) -> Place {
        let time = sample.time_ns.unwrap_or(u64::MAX);
        match (sample.fields.ip(), sample.record.misc & misc::CPUMODE_MASK) {
            // Counted in the kernel by thread alone: address 0 is none.
            (None, _) | (Some(0), misc::USER) => Place::Other,
            (Some(ip), misc::USER) => match self.maps.find(sample.pid_tid.0, ip, time) {
                Some((file, mapped)) => match self.maps.function(file, mapped) {
                    Some(number) => Place::Function(file, number),
                    None => Place::File(file, mapped.offset()),
                },
                None => Place::User(ip),
            },
            (Some(ip), _) => self.index.symbols.find(ip).map_or(Place::KernelAddr(ip), Place::Kernel),
        }
    }

    fn add(&mut self, event: usize, place: Place, count: Count) {
        let places = &mut self.places[event];
        let has_room = places.len() < MAX_PLACES || places.contains_key(&place);
        places.entry(if has_room { place } else { Place::Other }).or_default().merge(count);
    }
}

impl Sink for HotSink<'_> {
    fn fork(&self) -> Self {
        HotSink { index: self.index, maps: self.maps, places: vec![FxHashMap::default(); self.places.len()] }
    }

    fn sample(&mut self, sample: &SampleView<'_>, _: &Attribution<'_>) -> bprec_format::Result<()> {
        self.add(sample.event, self.place(sample), sample.count);
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        for (event, places) in other.places.into_iter().enumerate() {
            places.into_iter().for_each(|(place, count)| self.add(event, place, count));
        }
    }
}

/// Names of kernel, modules and files, each once: they can be long, and the events many.
#[derive(Default)]
struct Objects(FxHashSet<Arc<str>>);

impl Objects {
    fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = name.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}

fn name(
    places: FxHashMap<Place, Count>,
    objects: &mut Objects,
    index: &Index,
    maps: &Mappings<'_>,
    options: &Options,
) -> Vec<Hot> {
    let mut places: Vec<(Place, Count)> = places.into_iter().collect();
    places.sort_by_key(|(place, count)| (Reverse(count.weight), Reverse(count.samples), *place));
    let hot = places.into_iter().take(HOTTEST).map(|(place, count)| {
        let mut mangled = None;
        let (name, object) = match place {
            Place::Kernel(symbol) => (index.symbols.name(symbol), "[kernel]"),
            Place::KernelAddr(addr) => (format!("{addr:#x}"), index.kernel.find(addr).unwrap_or("[kernel]")),
            Place::Function(file, number) => {
                let own = maps.function_name(file, number);
                let name = function_name(own, options);
                mangled = Some(String::from_utf8_lossy(own).into_owned()).filter(|own| *own != name);
                (name, maps.file(file))
            }
            Place::File(file, offset) => (format!("{offset:#x}"), maps.file(file)),
            Place::User(addr) => (format!("{addr:#x}"), "[unknown]"),
            Place::Other => ("(other)".into(), ""),
        };
        Hot { name, mangled, object: objects.get(object), count }
    });
    hot.collect()
}
