//! User code that samples hit, by mapped file, collected from the records that are written.
//!
//! Records of different CPUs are not in strict time order, so a sample may be written before the MMAP2 record of the
//! mapping that it hit. Samples therefore wait for up to `ROUNDS_MAX` rounds. A location that is collected by mistake
//! does no harm: readers match samples and mappings again, by time.

use std::collections::{HashMap, HashSet, VecDeque};

use bprec_format::records::{Mmap2, Mmap2File, Task};

/// Slots of the filter that skips most repeated addresses.
const RECENT_SLOTS: usize = 1 << 13;
/// Number of counters in `epochs`. Processes with the same pid modulo this number share a counter.
const EPOCHS: usize = 1 << 10;
/// Rounds that a sample waits for its mapping.
const ROUNDS_MAX: u8 = 5;
/// Limit on the samples that wait at a time.
const WAITING_MAX: usize = 1 << 18;
/// Limit on the mappings that are remembered per process.
const MAPS_MAX: usize = 1 << 12;
/// Limit on the processes that are remembered.
const SPACES_MAX: usize = 1 << 17;
/// Limit on the ended processes that are remembered, because their samples may arrive late.
const ENDED_MAX: usize = 1 << 12;
/// Limit on the chain of parents through which inherited mappings are searched.
const FORKS_MAX: usize = 32;
/// Limit on the files that are remembered.
const FILES_MAX: usize = 1 << 15;
/// Limit on the locations in files that are remembered.
const PLACES_MAX: usize = 1 << 18;
/// Limit on the processes that are remembered per mapped file.
const MAPPERS_MAX: usize = 8;
/// File index of mappings without a file.
const NO_FILE: u32 = u32::MAX;

/// Locations in mapped files that samples hit.
#[derive(Debug)]
pub(crate) struct UserHits {
    recent: Vec<(u64, u32, u32)>,
    /// Counters of changes to mappings, by pid modulo `EPOCHS`.
    epochs: Vec<u32>,
    waiting: Vec<Hit>,
    spaces: HashMap<u32, Space>,
    ended: VecDeque<u32>,
    numbers: HashMap<(Vec<u8>, Mmap2File), u32>,
    files: Vec<FileHits>,
    places: usize,
    left_out: LeftOut,
}

/// Data that was left out because of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LeftOut {
    /// True if samples hit too many addresses, files or processes.
    hits: bool,
    /// Number of mappings that were forgotten before a sample hit them.
    maps: u64,
}

impl LeftOut {
    /// Message about the data left out; `None` if nothing was left out.
    pub(crate) fn text(self) -> Option<String> {
        let hits = self.hits.then(|| "samples hit more user-space addresses than the recorder keeps".to_owned());
        let maps = (self.maps > 0).then(|| {
            format!("the recorder keeps {MAPS_MAX} executable mappings of a process, and left out {} more", self.maps)
        });
        let texts: Vec<String> = hits.into_iter().chain(maps).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// Locations in a file that samples hit.
#[derive(Debug, Clone)]
pub(crate) struct FileHits {
    /// Path in the MMAP2 records.
    pub(crate) path: Vec<u8>,
    /// File identity in the MMAP2 records.
    pub(crate) file: Mmap2File,
    /// Time of the first mapping, in nanoseconds of the recording's clock; 0 if the file was mapped before the
    /// recording.
    pub(crate) first_ns: u64,
    /// Offsets from the start of the file, in bytes.
    pub(crate) offsets: HashSet<u64>,
    /// Some of the processes in which samples hit the file.
    pub(crate) mappers: Vec<Mapper>,
}

/// A process that has the file mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapper {
    pub(crate) pid: u32,
    /// Start address of the mapping.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Time of the mapping, in nanoseconds of the recording's clock; 0 if the mapping was made before the recording.
    pub(crate) since_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Hit {
    pid: u32,
    rounds: u8,
    addr: u64,
    time_ns: u64,
}

#[derive(Debug, Default)]
struct Space {
    maps: Vec<MappedFile>,
    /// Time of the fork, and pid of the parent, from which the process inherits mappings.
    parent: Option<(u64, u32)>,
    /// Number of child processes that may inherit mappings.
    children: u32,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct MappedFile {
    time_ns: u64,
    start: u64,
    end: u64,
    pgoff: u64,
    file: u32,
    /// True if a sample hit the mapping.
    is_hit: bool,
}

impl Default for UserHits {
    fn default() -> UserHits {
        UserHits {
            recent: vec![(0, 0, 0); RECENT_SLOTS],
            epochs: vec![0; EPOCHS],
            waiting: Vec::new(),
            spaces: HashMap::new(),
            ended: VecDeque::new(),
            numbers: HashMap::new(),
            files: Vec::new(),
            places: 0,
            left_out: LeftOut::default(),
        }
    }
}

impl UserHits {
    /// Adds a user-space address of a sample.
    #[inline]
    pub(super) fn add(&mut self, pid: u32, addr: u64, time_ns: u64) {
        let hash = (addr ^ u64::from(pid).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = &mut self.recent[(hash >> 51) as usize % RECENT_SLOTS];
        let seen = (addr, pid, self.epochs[pid as usize % EPOCHS]);
        if *slot != seen {
            *slot = seen;
            match self.waiting.len() < WAITING_MAX {
                true => self.waiting.push(Hit { pid, rounds: 0, addr, time_ns }),
                false => self.left_out.hits = true,
            }
        }
    }

    pub(super) fn map(&mut self, map: &Mmap2<'_>, time_ns: u64) {
        self.changed(map.pid);
        let file = self.number(map);
        if let Some(hits) = self.files.get_mut(file as usize) {
            hits.first_ns = hits.first_ns.min(time_ns);
        }
        let Some(space) = self.space(map.pid) else { return };
        let end = map.addr.saturating_add(map.len_bytes);
        space.maps.push(MappedFile { time_ns, start: map.addr, end, pgoff: map.pgoff, file, is_hit: false });
        if space.maps.len() >= MAPS_MAX {
            self.left_out.maps += space.forget_some();
        }
    }

    pub(super) fn fork(&mut self, task: &Task) {
        self.changed(task.pid);
        self.leave_parent(task.pid);
        let Some(space) = self.space(task.pid) else { return };
        // Mappings from before the fork belong to an earlier process with the same pid.
        space.maps.retain(|map| map.time_ns >= task.time_ns);
        space.has_ended = false;
        space.parent = Some((task.time_ns, task.ppid));
        if let Some(parent) = self.space(task.ppid) {
            parent.children = parent.children.saturating_add(1);
        }
    }

    pub(super) fn exit(&mut self, pid: u32) {
        let Some(space) = self.spaces.get_mut(&pid).filter(|space| !space.has_ended) else { return };
        space.has_ended = true;
        self.ended.push_back(pid);
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
            && let Some(space) = self.spaces.get(&oldest).filter(|space| space.has_ended)
        {
            match space.children {
                0 => {
                    self.leave_parent(oldest);
                    self.spaces.remove(&oldest);
                }
                _ => self.ended.push_back(oldest),
            }
        }
    }

    /// Ends a round: all records before this point were added.
    pub(super) fn round(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|hit| {
            hit.rounds += 1;
            hit.rounds < 2 || !self.place(*hit) && hit.rounds < ROUNDS_MAX
        });
        self.waiting = waiting;
    }

    /// Returns the locations hit, and the data left out.
    pub(super) fn finish(&mut self) -> (Vec<FileHits>, LeftOut) {
        for hit in std::mem::take(&mut self.waiting) {
            self.place(hit);
        }
        let mut files = std::mem::take(&mut self.files);
        files.retain(|file| !file.offsets.is_empty());
        (files, self.left_out)
    }

    /// Adds the location that a sample hit; returns false if no known mapping contains the address.
    fn place(&mut self, hit: Hit) -> bool {
        let Some(map) = self.find(hit.pid, hit.addr, hit.time_ns) else { return false };
        let Some(file) = self.files.get_mut(map.file as usize) else { return true };
        if self.places >= PLACES_MAX {
            self.left_out.hits = true;
        } else if file.offsets.insert(hit.addr.wrapping_sub(map.start).wrapping_add(map.pgoff)) {
            self.places += 1;
        }
        let mapper = Mapper { pid: hit.pid, start: map.start, end: map.end, since_ns: map.time_ns };
        if file.mappers.iter().all(|known| known.pid != hit.pid) {
            let is_gone = |known: &Mapper| self.spaces.get(&known.pid).is_none_or(|space| space.has_ended);
            match file.mappers.iter().position(is_gone) {
                Some(gone) => file.mappers[gone] = mapper,
                None if file.mappers.len() < MAPPERS_MAX => file.mappers.push(mapper),
                None => {}
            }
        }
        true
    }

    /// Newest mapping that contains the address at `time_ns`: a mapping of the process itself, or inherited from a
    /// parent.
    fn find(&mut self, pid: u32, addr: u64, time_ns: u64) -> Option<MappedFile> {
        let (mut pid, mut time_ns) = (pid, time_ns);
        for _ in 0..FORKS_MAX {
            let space = self.spaces.get_mut(&pid)?;
            let holding =
                space.maps.iter_mut().filter(|it| it.time_ns <= time_ns && (it.start..it.end).contains(&addr));
            if let Some(newest) = holding.max_by_key(|map| map.time_ns) {
                newest.is_hit = true;
                return Some(*newest);
            }
            (time_ns, pid) = space.parent?;
        }
        None
    }

    fn space(&mut self, pid: u32) -> Option<&mut Space> {
        if self.spaces.len() >= SPACES_MAX && !self.spaces.contains_key(&pid) {
            self.left_out.hits = true;
            return None;
        }
        Some(self.spaces.entry(pid).or_default())
    }

    fn leave_parent(&mut self, pid: u32) {
        let parent = self.spaces.get_mut(&pid).and_then(|space| space.parent.take());
        if let Some(parent) = parent.and_then(|(_, parent)| self.spaces.get_mut(&parent)) {
            parent.children = parent.children.saturating_sub(1);
        }
    }

    fn number(&mut self, map: &Mmap2<'_>) -> u32 {
        if map.filename.first() != Some(&b'/') && map.filename != b"[vdso]" || map.filename.starts_with(b"//") {
            return NO_FILE;
        }
        let key = (map.filename.to_vec(), map.file);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.files.len() >= FILES_MAX {
            self.left_out.hits = true;
            return NO_FILE;
        }
        let number = self.files.len() as u32;
        self.files.push(FileHits {
            path: key.0.clone(),
            file: map.file,
            first_ns: u64::MAX,
            offsets: HashSet::new(),
            mappers: Vec::new(),
        });
        self.numbers.insert(key, number);
        number
    }

    fn changed(&mut self, pid: u32) {
        let epoch = &mut self.epochs[pid as usize % EPOCHS];
        *epoch = epoch.wrapping_add(1);
    }
}

impl Space {
    /// Forgets half of the mappings, in this order: mappings of no file, further mappings of a file, the first mapping of
    /// each file (the executable or a library), mappings that samples hit. Returns the number of forgotten file mappings
    /// that no sample hit.
    fn forget_some(&mut self) -> u64 {
        let mut files = HashSet::new();
        let mut ranked: Vec<(bool, bool, bool, usize)> = Vec::with_capacity(self.maps.len());
        for (at, map) in self.maps.iter().enumerate() {
            let is_file = map.file != NO_FILE;
            ranked.push((map.is_hit, is_file && files.insert(map.file), is_file, at));
        }
        // The oldest of equal rank are forgotten first, because they may be unmapped already.
        ranked.sort_unstable();
        let mut forgotten = vec![false; self.maps.len()];
        let mut left_out = 0;
        for (is_hit, _, is_file, at) in ranked.into_iter().take(MAPS_MAX / 2) {
            forgotten[at] = true;
            left_out += u64::from(is_file && !is_hit);
        }
        let mut at = 0;
        self.maps.retain(|_| {
            at += 1;
            !forgotten[at - 1]
        });
        left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pid: u32, addr: u64, pgoff: u64, filename: &'static str) -> Mmap2<'static> {
        let file = Mmap2File::Inode { major: 0, minor: 0, inode: 1, generation: 0 };
        let filename = filename.as_bytes();
        Mmap2 { pid, tid: pid, addr, len_bytes: 0x1000, pgoff, file, prot: 5, flags: 2, filename }
    }

    fn offsets(hits: &mut UserHits) -> Vec<(Vec<u8>, Vec<u64>)> {
        let (files, left_out) = hits.finish();
        assert_eq!(left_out.text(), None);
        let sorted = |offsets: HashSet<u64>| {
            let mut offsets: Vec<u64> = offsets.into_iter().collect();
            offsets.sort_unstable();
            offsets
        };
        let mut found: Vec<_> = files.into_iter().map(|file| (file.path, sorted(file.offsets))).collect();
        found.sort();
        found
    }

    #[test]
    fn a_sample_finds_the_mapping_of_its_time_whichever_comes_first() {
        let mut hits = UserHits::default();
        hits.add(7, 0x5010, 30);
        hits.round();
        hits.map(&map(7, 0x5000, 0x2000, "/new"), 20);
        hits.map(&map(7, 0x5000, 0x1000, "/old"), 10);
        hits.add(7, 0x5010, 15);
        hits.map(&map(7, 0x9000, 0, "//anon"), 10);
        hits.add(7, 0x9000, 30);
        hits.round();
        hits.add(7, 0x5020, 5);
        assert_eq!(offsets(&mut hits), [(b"/new".to_vec(), vec![0x2010]), (b"/old".to_vec(), vec![0x1010])]);
    }

    #[test]
    fn a_child_has_what_its_parent_had_when_it_came() {
        let fork = |pid, ppid, time_ns| Task { pid, ppid, tid: pid, ptid: ppid, time_ns };
        let mut hits = UserHits::default();
        hits.map(&map(1, 0x5000, 0, "/before"), 0);
        hits.fork(&fork(2, 1, 10));
        hits.map(&map(1, 0x5000, 0, "/behind"), 20);
        hits.exit(1);
        hits.add(2, 0x5001, 30);
        hits.round();
        hits.round();
        // Another process reuses the pid.
        hits.exit(2);
        hits.fork(&fork(2, 1, 40));
        hits.add(2, 0x5002, 50);
        assert_eq!(offsets(&mut hits), [(b"/before".to_vec(), vec![1]), (b"/behind".to_vec(), vec![2])]);
    }

    /// The mappings of the executable, of a library and of hit files are kept, even if many other mappings follow.
    #[test]
    fn what_matters_of_many_mappings_stays() {
        let mut hits = UserHits::default();
        hits.map(&map(1, 0x5000, 0x1000, "/executable"), 1);
        hits.map(&map(1, 0x8000, 0, "/library"), 1);
        let first = 0x10_0000;
        let addr = |number: u64| first + number * 0x1000;
        let count = 3 * MAPS_MAX as u64;
        for number in 0..count {
            hits.map(&map(1, addr(number), 0x7000, "/code"), 2 + number);
            if number == 10 {
                hits.add(1, addr(10) + 5, 20);
                (0..ROUNDS_MAX).for_each(|_| hits.round());
            }
        }
        for (number, addr) in [0x5004, 0x8004, addr(10) + 6, addr(count - 1) + 7].into_iter().enumerate() {
            hits.add(1, addr, 2 + count + number as u64);
        }
        let (files, left_out) = hits.finish();
        let mut offsets: Vec<(&[u8], u64)> =
            files.iter().flat_map(|file| file.offsets.iter().map(|offset| (&file.path[..], *offset))).collect();
        offsets.sort_unstable();
        let expected: [(&[u8], u64); 5] =
            [(b"/code", 0x7005), (b"/code", 0x7006), (b"/code", 0x7007), (b"/executable", 0x1004), (b"/library", 4)];
        assert_eq!(offsets, expected);
        assert!(left_out.text().is_some_and(|text| text.contains("keeps 4096 executable mappings of a process")));
    }

    /// Processes that ended long ago are forgotten if they have no living children.
    #[test]
    fn what_ended_is_forgotten() {
        let mut hits = UserHits::default();
        hits.map(&map(1, 0x5000, 0, "/shell"), 0);
        for pid in 2..20_000 {
            hits.fork(&Task { pid, ppid: 1, tid: pid, ptid: 1, time_ns: u64::from(pid) });
            hits.map(&map(pid, 0x5000, 0, "/tool"), u64::from(pid));
            hits.exit(pid);
        }
        assert!(hits.spaces.len() <= ENDED_MAX + 2, "{}", hits.spaces.len());
        assert_eq!(hits.files.len(), 2);
        hits.add(19_999, 0x5003, 20_000);
        hits.add(1, 0x5004, 20_000);
        assert_eq!(offsets(&mut hits), [(b"/shell".to_vec(), vec![4]), (b"/tool".to_vec(), vec![3])]);
    }
}
