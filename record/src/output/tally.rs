//! What the records of a finished recording say as a whole: how many samples, when, and which kernel code they hit.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bprec_format::records::Payload;
use bprec_format::rewrite::is_cpu;
use bprec_format::{
    CONTEXT_MAX, Endian, Events, Record, RecordType, Records, Resync, SampleType, context, misc, sampler,
};

use super::compression::Unpacker;
use super::user_hits::{FileHits, LeftOut, UserHits};
use crate::events::SampleRole;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes that are counted in one go while the file grows: whoever does it has other work, too.
const FOLLOWED_BYTES: u64 = 16 << 20;
/// Slots of the filter in front of the set of addresses: hot code repeats itself.
const RECENT_SLOTS: usize = 1 << 12;

/// Counts over records.
#[derive(Debug)]
pub(crate) struct Tally {
    events: Events,
    /// By event: whose samples it carries.
    roles: Vec<SampleRole>,
    /// Samples of the events that sample.
    pub(crate) samples: u64,
    /// Samples of our sampling program.
    pub(crate) bpf_samples: u64,
    /// Samples that programs of the user's let through or put out.
    pub(crate) of_programs: u64,
    /// THROTTLE records.
    pub(crate) throttled: u64,
    /// Records dropped, as LOST records have it.
    pub(crate) lost: u64,
    /// COMPRESSED records.
    pub(crate) compressed: u64,
    /// Times of the first and the last sample, ns.
    pub(crate) times: Option<(u64, u64)>,
    /// Processes that came and are not gone.
    processes: BTreeSet<u32>,
    addresses: Addresses,
    /// Code of files, where that is wanted.
    user_hits: Option<UserHits>,
    /// `None` once a COMPRESSED record is no slice of the stream before it.
    unpacker: Option<Unpacker>,
    unpacked: Vec<u8>,
    /// All records so far are intact, where that is wanted.
    intact: Option<bool>,
    /// The highest number of a CPU that a sample is of.
    pub(crate) highest_cpu: Option<u32>,
}

/// Counts the records of a file while it is written, so that it is not read as a whole at the end.
#[derive(Debug)]
pub(crate) struct Follower {
    file: File,
    /// Where the first record is that is not counted yet.
    at: u64,
    tally: Tally,
}

impl Follower {
    pub(super) fn new(file: File, first_record: u64, tally: Tally) -> Follower {
        Follower { file, at: first_record, tally }
    }

    /// Counts what was written since the last call. A record of which a part is written yet is left for the next one.
    ///
    /// # Errors
    /// When the file cannot be read; so for [`Follower::finish`].
    pub(crate) fn follow(&mut self) -> io::Result<()> {
        let end = self.file.metadata()?.len();
        let used = self.tally.add_file(&self.file, self.at, end.saturating_sub(self.at).min(FOLLOWED_BYTES))?;
        self.at += used;
        // However often this is called, a sample waits until more is written.
        self.tally.user_hits.iter_mut().filter(|_| used > 0).for_each(UserHits::round);
        Ok(())
    }

    /// Processes that came, by what was counted, and are not gone.
    pub(crate) fn processes(&self) -> &BTreeSet<u32> {
        &self.tally.processes
    }

    /// The kernel addresses that samples have hit, by what was counted, in no order.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        self.tally.addresses()
    }

    /// Counts the rest of the records, which end at `end`.
    pub(crate) fn finish(mut self, end: u64) -> io::Result<Tally> {
        self.tally.add_file(&self.file, self.at, end.saturating_sub(self.at))?;
        Ok(self.tally)
    }
}

/// The set of addresses.
#[derive(Debug)]
struct Addresses {
    all: HashSet<u64>,
    recent: Vec<u64>,
}

impl Addresses {
    #[inline]
    fn add(&mut self, addr: u64) {
        let slot = (addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize & (RECENT_SLOTS - 1);
        if self.recent[slot] != addr {
            self.recent[slot] = addr;
            self.all.insert(addr);
        }
    }
}

impl Tally {
    /// Nothing counted yet.
    ///
    /// # Errors
    /// When the records of the events cannot be told apart.
    pub(crate) fn new(events: Events, roles: Vec<SampleRole>) -> Tally {
        Tally {
            events,
            roles,
            samples: 0,
            bpf_samples: 0,
            of_programs: 0,
            throttled: 0,
            lost: 0,
            compressed: 0,
            times: None,
            processes: BTreeSet::new(),
            addresses: Addresses { all: HashSet::new(), recent: vec![0; RECENT_SLOTS] },
            user_hits: None,
            unpacker: Some(Unpacker::default()),
            unpacked: Vec::new(),
            intact: None,
            highest_cpu: None,
        }
    }

    /// The same, which also looks whether records are intact.
    pub(super) fn with_check(self) -> Tally {
        Tally { intact: Some(true), ..self }
    }

    /// Returns true if all records so far are intact, and where that was not wanted.
    pub(super) fn is_intact(&self) -> bool {
        self.intact.unwrap_or(true)
    }

    /// The same, which also learns what code of files is hit in user space.
    pub(crate) fn with_user_hits(self) -> Tally {
        Tally { user_hits: Some(UserHits::default()), ..self }
    }

    /// The same, where these processes are known to have come before.
    pub(crate) fn with(self, processes: BTreeSet<u32>) -> Tally {
        Tally { processes, ..self }
    }

    /// Counts the records in `bytes`; how many bytes of them were whole records.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> usize {
        let mut records = Records::new(bytes, 0, Endian::NATIVE);
        while let Some(Ok(record)) = records.next() {
            self.record(&record);
        }
        let used = records.offset() as usize;
        if let Some(intact) = &mut self.intact {
            *intact &= Resync::new(&self.events, false).is_intact(bytes);
        }
        used
    }

    /// Counts the records in a part of a file, up to one that is not there whole; how many bytes the others are.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn add_file(&mut self, file: &File, offset: u64, bytes: u64) -> io::Result<u64> {
        let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(bytes).unwrap_or(CHUNK_BYTES)).max(1)];
        let (mut kept, mut read) = (0, 0);
        while read < bytes {
            let wanted = (buffer.len() - kept).min(usize::try_from(bytes - read).unwrap_or(usize::MAX));
            let got = file.read_at(&mut buffer[kept..kept + wanted], offset + read)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            read += got as u64;
            let filled = kept + got;
            let used = self.add(&buffer[..filled]);
            buffer.copy_within(used..filled, 0);
            kept = filled - used;
            if kept == buffer.len() {
                // No record of a file is as long as that: it never becomes whole.
                break;
            }
        }
        Ok(read - kept as u64)
    }

    /// Whether every COMPRESSED record so far could be unpacked.
    pub(crate) fn is_unpacked(&self) -> bool {
        self.unpacker.is_some()
    }

    /// The kernel addresses that samples hit, in no order.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        self.addresses.all.iter().copied().collect()
    }

    /// The code of files that samples hit, and what was left out of it. `None` where that was not wanted.
    pub(crate) fn take_user_hits(&mut self) -> Option<(Vec<FileHits>, LeftOut)> {
        self.user_hits.as_mut().map(UserHits::finish)
    }

    fn record(&mut self, record: &Record<'_>) {
        match record.kind {
            RecordType::SAMPLE => self.sample(record),
            RecordType::COMPRESSED => self.compressed(record.body()),
            RecordType::THROTTLE => self.throttled += 1,
            RecordType::FORK | RecordType::EXIT => self.task(record),
            RecordType::MMAP2 if self.user_hits.is_some() => self.map(record),
            RecordType::LOST => {
                if let Some(index) = self.events.index_of(record)
                    && let Ok((Payload::Lost(lost), _)) = Payload::decode(record, &self.events.all()[index].layout)
                {
                    self.lost += lost.lost;
                }
            }
            _ => (),
        }
    }

    fn task(&mut self, record: &Record<'_>) {
        let event = self.events.index_of(record).and_then(|index| self.events.all().get(index));
        match event.and_then(|event| Payload::decode(record, &event.layout).ok()) {
            Some((Payload::Fork(task), _)) if task.pid != task.ppid => {
                self.processes.insert(task.pid);
                // One that was there before has maps of its own.
                if let Some(hits) = self.user_hits.as_mut().filter(|_| record.misc & misc::FORK_EXEC == 0) {
                    hits.fork(&task);
                }
            }
            Some((Payload::Exit(task), _)) if task.pid == task.tid => {
                self.processes.remove(&task.pid);
                self.user_hits.as_mut().into_iter().for_each(|hits| hits.exit(task.pid));
            }
            _ => (),
        }
    }

    fn map(&mut self, record: &Record<'_>) {
        let event = self.events.index_of(record).and_then(|index| self.events.all().get(index));
        let payload = event.and_then(|event| Payload::decode(record, &event.layout).ok());
        if let (Some((Payload::Mmap2(map), id)), Some(hits)) = (payload, &mut self.user_hits)
            && record.misc & misc::CPUMODE_MASK == misc::USER
        {
            hits.map(&map, id.time_ns.unwrap_or(0));
        }
    }

    /// Counts what a COMPRESSED record holds.
    fn compressed(&mut self, slice: &[u8]) {
        self.compressed += 1;
        let Some(mut unpacker) = self.unpacker.take() else { return };
        let mut unpacked = std::mem::take(&mut self.unpacked);
        if unpacker.unpack(slice, &mut unpacked).is_ok() {
            // Meanwhile there is no unpacker: one that stands in another is passed over.
            self.add(&unpacked);
            self.unpacker = Some(unpacker);
        }
        self.unpacked = unpacked;
    }

    fn sample(&mut self, record: &Record<'_>) {
        let Some(index) = self.events.index_of(record) else { return };
        let role = self.roles.get(index).copied().unwrap_or(SampleRole::Other);
        if role == SampleRole::Other {
            return;
        }
        let layout = &self.events.all()[index].layout;
        let Ok(sample) = layout.sample(record.body(), record.offset) else { return };
        match role {
            // Only samples that were counted in the kernel have a WEIGHT here: how many they are.
            SampleRole::Main if layout.sample_type().contains(SampleType::WEIGHT) => {
                self.samples += sample.decode().ok().and_then(|fields| fields.weight).unwrap_or(0);
            }
            SampleRole::Main => self.samples += 1,
            SampleRole::BpfSampler => self.bpf_samples += 1,
            SampleRole::UserProgram => self.of_programs += 1,
            SampleRole::Other => (),
        }
        if let Some(time) = sample.time_ns() {
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
        }
        self.highest_cpu = self.highest_cpu.max(sample.cpu().filter(|cpu| is_cpu(*cpu)));
        let mode = record.misc & misc::CPUMODE_MASK;
        if mode == misc::KERNEL
            && let Some(ip) = sample.ip()
        {
            self.addresses.add(ip);
        }
        let mut user_hits = self.user_hits.as_mut().zip(sample.pid_tid()).map(|(hits, (pid, _))| {
            let time_ns = sample.time_ns().unwrap_or(u64::MAX);
            move |addr| hits.add(pid, addr, time_ns)
        });
        if let (misc::USER, Some(ip), Some(hit)) = (mode, sample.ip(), &mut user_hits) {
            hit(ip);
        }
        let chain = if role == SampleRole::BpfSampler {
            let raw = sample.raw().ok().flatten().unwrap_or_default();
            sampler::Payload::parse(raw, record.offset, Endian::NATIVE).ok().and_then(|payload| payload.callchain)
        } else {
            sample.callchain().ok().flatten()
        };
        let Some(chain) = chain else { return };
        let mut space = None;
        let mut is_caller = false;
        for addr in chain.iter() {
            if addr >= CONTEXT_MAX {
                space = Some(addr);
                is_caller = false;
                continue;
            }
            // A call may be the last instruction of its function: the return address is then the next one's.
            let within = addr.wrapping_sub(is_caller.into());
            is_caller = true;
            match (space, &mut user_hits) {
                (Some(context::KERNEL), _) => self.addresses.add(within),
                (Some(context::USER), Some(hit)) => hit(within),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::io::Write;

    use bprec_format::{EventAttr, FileAttr};

    use super::*;

    #[test]
    fn a_file_that_grows_is_counted_once_wherever_a_write_ends() {
        let attr = EventAttr { sample_type: SampleType::IDENTIFIER.with(SampleType::TIME), ..EventAttr::default() };
        let events = Events::new(&[FileAttr { attr, ids: vec![7] }], Endian::NATIVE).unwrap();
        const RECORD_BYTES: usize = 24;
        const SAMPLES: u64 = 1000;
        let mut bytes = b"in front".to_vec();
        for time in 0..SAMPLES {
            bytes.extend_from_slice(&RecordType::SAMPLE.0.to_ne_bytes());
            bytes.extend_from_slice(&0u16.to_ne_bytes());
            bytes.extend_from_slice(&(RECORD_BYTES as u16).to_ne_bytes());
            bytes.extend_from_slice(&7u64.to_ne_bytes());
            bytes.extend_from_slice(&(100 + time).to_ne_bytes());
        }
        for part_bytes in [1, 7, 23, 24, 25, 1000, bytes.len()] {
            let mut file = tempfile::tempfile().unwrap();
            let tally = Tally::new(events.clone(), vec![SampleRole::Main]);
            let mut follower = Follower::new(file.try_clone().unwrap(), 8, tally);
            follower.follow().unwrap();
            let (mut written, mut rest) = (0, &bytes[..]);
            // The last part is left to the end.
            while rest.len() > part_bytes {
                let (part, behind) = rest.split_at(part_bytes);
                file.write_all(part).unwrap();
                (written, rest) = (written + part.len(), behind);
                follower.follow().unwrap();
                assert_eq!(follower.tally.samples, (written.saturating_sub(8) / RECORD_BYTES) as u64, "{part_bytes}");
            }
            file.write_all(rest).unwrap();
            let tally = follower.finish(bytes.len() as u64).unwrap();
            assert_eq!((tally.samples, tally.times), (SAMPLES, Some((100, 99 + SAMPLES))), "{part_bytes}");
        }
    }
}
