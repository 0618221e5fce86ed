//! Counts over the records of a recording: samples, their times, and the addresses that they hit.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bprec_format::records::Payload;
use bprec_format::rewrite::is_cpu;
use bprec_format::{
    CONTEXT_MAX, Endian, Events, Record, RecordType, Records, Resync, SampleType, bprec::sampler, context, misc,
};

use super::compression::Unpacker;
use super::user_hits::{FileHits, LeftOut, UserHits};
use crate::events::SampleRole;

/// Bytes read from a file at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Slots of the filter that keeps most repeated addresses out of the address set.
const RECENT_SLOTS: usize = 1 << 12;

/// Counts over the records of a file.
#[derive(Debug)]
pub(crate) struct Tally {
    events: Events,
    /// Origin of the samples of each event, by index.
    roles: Vec<SampleRole>,
    /// Samples of the events to sample (`-e`, or the default event).
    pub(crate) samples: u64,
    /// Samples of the recorder's own sampling program.
    pub(crate) bpf_samples: u64,
    /// Samples that the user's BPF programs wrote or let pass.
    pub(crate) of_programs: u64,
    /// Number of THROTTLE records.
    pub(crate) throttled: u64,
    /// Lost records, as counted by LOST records.
    pub(crate) lost: u64,
    /// Number of COMPRESSED records.
    pub(crate) compressed: u64,
    /// Times of the first and the last sample, in nanoseconds.
    pub(crate) times: Option<(u64, u64)>,
    /// Processes that were forked and have not ended.
    processes: BTreeSet<u32>,
    addresses: Addresses,
    /// User code that samples hit, if names of user functions are wanted.
    user_hits: Option<UserHits>,
    /// Unpacker of the COMPRESSED records; `None` after a COMPRESSED record that could not be unpacked.
    unpacker: Option<Unpacker>,
    unpacked: Vec<u8>,
    /// True if all records so far are intact; `None` if records are not checked.
    intact: Option<bool>,
    /// The highest CPU number in a sample.
    pub(crate) highest_cpu: Option<u32>,
}

/// A set of addresses, behind a filter that skips most repeated addresses.
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
    /// Creates a tally without counts. `roles` has the origin of the samples of each event.
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

    /// Returns the tally, set to check that records are intact.
    pub(super) fn with_check(self) -> Tally {
        Tally { intact: Some(true), ..self }
    }

    /// Returns true if all records so far are intact, or are not checked.
    pub(super) fn is_intact(&self) -> bool {
        self.intact.unwrap_or(true)
    }

    /// Returns the tally, set to collect the user code that samples hit.
    pub(crate) fn with_user_hits(self) -> Tally {
        Tally { user_hits: Some(UserHits::default()), ..self }
    }

    /// Creates the tally of the next file, without counts. The new tally keeps the forked processes that have not ended.
    pub(super) fn successor(&self) -> Tally {
        Tally {
            processes: self.processes.clone(),
            user_hits: self.user_hits.as_ref().map(|_| UserHits::default()),
            ..Tally::new(self.events.clone(), self.roles.clone())
        }
    }

    /// Ends a round: all records before this point were counted, so waiting samples can be matched with mappings.
    pub(super) fn round(&mut self) {
        self.user_hits.iter_mut().for_each(UserHits::round);
    }

    /// Processes that were forked and have not ended.
    pub(crate) fn processes(&self) -> &BTreeSet<u32> {
        &self.processes
    }

    /// Counts the records in `bytes`. Returns the number of bytes of whole records.
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

    /// Counts the records in a part of a file, up to the first incomplete record. Returns the number of bytes of whole
    /// records.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
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
                // The buffer is full and does not begin with a whole record. Records are shorter than the buffer, so this one is damaged.
                break;
            }
        }
        Ok(read - kept as u64)
    }

    /// Returns true if every COMPRESSED record so far could be unpacked.
    pub(crate) fn is_unpacked(&self) -> bool {
        self.unpacker.is_some()
    }

    /// Kernel addresses that samples hit.
    pub(crate) fn addresses(&self) -> &HashSet<u64> {
        &self.addresses.all
    }

    /// User code that samples hit, by file, and the parts left out. `None` if user code is not collected.
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
                // A synthesized FORK record (FORK_EXEC) is of a process that existed before the recording. Such a
                // process has mappings of its own and inherits none.
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

    /// Counts the records in a COMPRESSED record.
    fn compressed(&mut self, slice: &[u8]) {
        self.compressed += 1;
        let Some(mut unpacker) = self.unpacker.take() else { return };
        let mut unpacked = std::mem::take(&mut self.unpacked);
        if unpacker.unpack(slice, &mut unpacked).is_ok() {
            // Meanwhile `self.unpacker` is `None`, so a COMPRESSED record inside this COMPRESSED record is skipped.
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
            // Only samples aggregated in the kernel have a WEIGHT here: the number of samples that the record stands
            // for.
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
            sampler::SamplerPayload::parse(raw, record.offset, Endian::NATIVE)
                .ok()
                .and_then(|payload| payload.callchain)
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
            // A call may be the last instruction of its function, and the return address then belongs to the next
            // function. The byte before a return address is therefore used.
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
