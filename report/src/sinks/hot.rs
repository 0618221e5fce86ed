//! What was hit most, for recordings in which no BPF program is known: kernel functions where the recording names them,
//! otherwise addresses in the kernel, a module or a file.

use crate::index::Index;
use crate::index::file_functions::{FileFunctions, Files, Mapped, functions_of_files};
use crate::input::recording::Recording;
use crate::model::Count;
use crate::pass::attribution::Attribution;
use crate::pass::{SampleView, Selection, Sink, run};
use crate::sinks::task_maps::{Map, TaskMaps};
use bprec_format::records::Payload;
use bprec_format::{Record, RecordType, Records, misc};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// How many are kept.
const HOTTEST: usize = 40;
/// Places that are counted one by one; what is hit beyond these goes to one line.
const MAX_PLACES: usize = 1 << 19;
/// Maps of tasks that are kept.
const MAX_MAPS: usize = 1 << 18;
/// A task whose maps are its parent's, whose maps are its parent's …
const MAX_FORKS: usize = 32;

/// Name, object and count of a place.
pub(crate) type Hot = (String, String, Count);

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
    let functions = functions_of_files(recording.sections(), recording.endian());
    let mut maps = Mappings::default();
    for_each_record(recording, |record| maps.record(recording, record));
    maps.order(functions);
    let sink = HotSink { index, maps: &maps, places: vec![FxHashMap::default(); recording.events.all().len()] };
    // More places than are counted one by one go to one line: which those are must not depend on threads.
    let options = crate::Options { threads: Some(1), ..selection.options.clone() };
    let selection = Selection { options: &options, ..selection.clone() };
    let (sink, _) = run(recording, index, &selection, sink, |_, _| {});
    sink.places.into_iter().map(|places| name(places, index, &maps)).collect()
}

fn for_each_record(recording: &Recording<'_>, mut visit: impl FnMut(&Record<'_>)) {
    recording.for_each_slice(|records| {
        let records: Option<Records<'_>> = records.ok();
        records.into_iter().flatten().map_while(Result::ok).for_each(|record| visit(&record));
    });
}

/// Counts samples by place.
struct HotSink<'i> {
    index: &'i Index,
    maps: &'i Mappings,
    /// By event.
    places: Vec<FxHashMap<Place, Count>>,
}

impl HotSink<'_> {
    fn place(&self, sample: &SampleView<'_>) -> Place {
        let time = sample.time_ns.unwrap_or(u64::MAX);
        match (sample.fields.ip(), sample.record.misc & misc::CPUMODE_MASK) {
            // Counted in the kernel by thread alone: address 0 is none.
            (None, _) | (Some(0), misc::USER) => Place::Other,
            (Some(ip), misc::USER) => match self.maps.find(sample.pid_tid.0, ip, time, MAX_FORKS) {
                Some((file, mapped)) => self.maps.place(file, mapped),
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

fn name(places: FxHashMap<Place, Count>, index: &Index, maps: &Mappings) -> Vec<Hot> {
    let mut places: Vec<(Place, Count)> = places.into_iter().collect();
    places.sort_by_key(|(place, count)| (Reverse(count.weight), Reverse(count.samples), *place));
    let hot = places.into_iter().take(HOTTEST).map(|(place, count)| {
        let (name, object) = match place {
            Place::Kernel(symbol) => (index.symbols.name(symbol), "[kernel]".into()),
            Place::KernelAddr(addr) => (format!("{addr:#x}"), index.kernel.find(addr).unwrap_or("[kernel]").to_owned()),
            Place::Function(file, number) => (maps.function_name(file, number), maps.files[file as usize].clone()),
            Place::File(file, offset) => (format!("{offset:#x}"), maps.files[file as usize].clone()),
            Place::User(addr) => (format!("{addr:#x}"), "[unknown]".into()),
            Place::Other => ("(other)".into(), String::new()),
        };
        (name, object, count)
    });
    hot.collect()
}

/// What tasks had mapped, by process.
#[derive(Debug, Default)]
struct Mappings {
    files: Vec<String>,
    /// By file: its functions, if the recording has them.
    functions: Vec<Option<FileFunctions>>,
    numbers: FxHashMap<Vec<u8>, u32>,
    maps: FxHashMap<u32, TaskMaps>,
    count: usize,
    /// Since when a process is the child of which.
    parents: FxHashMap<u32, (u64, u32)>,
}

impl Mappings {
    fn record(&mut self, recording: &Recording<'_>, record: &Record<'_>) {
        if !matches!(record.kind, RecordType::MMAP | RecordType::MMAP2 | RecordType::FORK) {
            return;
        }
        let event = recording.events.index_of(record).unwrap_or(0);
        let Ok((payload, id)) = Payload::decode(record, &recording.event(event).layout) else { return };
        let time_ns = id.time_ns.unwrap_or(0);
        match payload {
            Payload::Mmap(map) => self.add(map.pid, time_ns, map.addr, map.len_bytes, map.pgoff, map.filename),
            Payload::Mmap2(map) => self.add(map.pid, time_ns, map.addr, map.len_bytes, map.pgoff, map.filename),
            Payload::Fork(task) if task.pid != task.ppid => {
                self.parents.insert(task.pid, (time_ns.max(task.time_ns), task.ppid));
            }
            _ => {}
        }
    }

    fn add(&mut self, pid: u32, time_ns: u64, start: u64, len_bytes: u64, pgoff: u64, file: &[u8]) {
        if self.count >= MAX_MAPS {
            return;
        }
        self.count += 1;
        let file = match self.numbers.get(file) {
            Some(number) => *number,
            None => {
                let number = self.files.len() as u32;
                self.files.push(String::from_utf8_lossy(file).into_owned());
                self.numbers.insert(file.to_vec(), number);
                number
            }
        };
        let map = Map { time_ns, start, end: start.saturating_add(len_bytes), pgoff, file };
        self.maps.entry(pid).or_default().push(map);
    }

    fn order(&mut self, mut functions: Files) {
        self.maps.values_mut().for_each(TaskMaps::build);
        self.functions.resize_with(self.files.len(), || None);
        for (path, number) in &self.numbers {
            self.functions[*number as usize] = functions.remove(path);
        }
    }

    /// The function that a mapped address is in, or its offset in the file.
    fn place(&self, file: u32, mapped: Mapped) -> Place {
        let functions = self.functions[file as usize].as_ref();
        match functions.and_then(|functions| functions.find(mapped)) {
            Some(number) => Place::Function(file, number),
            None => Place::File(file, mapped.ip.wrapping_sub(mapped.map_start).wrapping_add(mapped.pgoff)),
        }
    }

    fn function_name(&self, file: u32, number: u32) -> String {
        let name = self.functions[file as usize].as_ref().and_then(|functions| functions.name(number));
        name.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
    }

    /// The file that an address was mapped to, and how: by the newest map, or by what was inherited.
    fn find(&self, pid: u32, addr: u64, time_ns: u64, forks: usize) -> Option<(u32, Mapped)> {
        match self.maps.get(&pid).and_then(|maps| maps.find(addr, time_ns)) {
            Some(map) => Some((map.file, Mapped { ip: addr, map_start: map.start, pgoff: map.pgoff })),
            None => {
                let (since, parent) = self.parents.get(&pid).filter(|_| forks > 0)?;
                self.find(*parent, addr, *since, forks - 1)
            }
        }
    }
}
