//! Finds feature sections that make perf refuse a file or crash: perf trusts lengths and counts, even if they are damaged.

use super::{
    Caches, ClockData, Compression, CpuCount, CpuTopology, EventDesc, Feature, GroupDesc, MemoryTopology, NumaTopology,
    SectionContent, Text, build_id,
};
use crate::{Endian, Error, Result, Writer};

/// Limit on CPU numbers, higher than those of any machine. perf allocates memory by these numbers.
const CPUS_MAX: u32 = 1 << 16;
/// Limit on the decompression buffer; perf maps a buffer of the size in the section.
const COMPRESSION_BUFFER_MAX_BYTES: u32 = 1 << 30;
/// Minimum size of an attr that perf reads.
const ATTR_MIN_BYTES: u32 = 64;

/// Writer of the sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionWriter {
    /// This crate: encoding the content of an intact section gives the same bytes.
    Ours,
    /// Any writer: texts may have other padding, and bytes may follow the content.
    Anyone,
}

/// Facts about a file that its sections must agree with.
#[derive(Debug, Clone, Copy)]
pub struct SectionCheck {
    endian: Endian,
    writer: SectionWriter,
    /// Count of available CPUs from NRCPUS; 0 if NRCPUS is missing or damaged.
    available_cpus: u32,
    /// True for s390 and arm64: package numbers do not count from 0 there, and perf does not compare them with the count of CPUs.
    has_other_socket_ids: bool,
    events: Option<u32>,
    highest_cpu: Option<u32>,
}

impl SectionCheck {
    /// Creates the check for a file with these sections.
    pub fn new<'s>(
        sections: impl Iterator<Item = (Feature, &'s [u8])> + Clone,
        endian: Endian,
        writer: SectionWriter,
    ) -> SectionCheck {
        let alone = SectionCheck {
            endian,
            writer,
            available_cpus: 0,
            has_other_socket_ids: false,
            events: None,
            highest_cpu: None,
        };
        let intact = |feature: Feature| {
            let last = sections.clone().filter(|(it, _)| *it == feature).last();
            last.map(|(_, bytes)| bytes).filter(|bytes| alone.check(feature, bytes).is_ok())
        };
        let cpus = intact(Feature::NRCPUS).and_then(|bytes| CpuCount::parse(bytes, 0, endian).ok());
        let arch = intact(Feature::ARCH).and_then(|bytes| Text::parse(bytes, 0, endian).ok());
        SectionCheck {
            available_cpus: cpus.map_or(0, |cpus| cpus.value.available),
            has_other_socket_ids: arch
                .is_some_and(|arch| [&b"s390"[..], b"aarch64"].iter().any(|it| arch.value.0.starts_with(it))),
            events: intact(Feature::EVENT_DESC).and_then(|bytes| endian.u32_at(bytes, 0)),
            ..alone
        }
    }

    /// Sets the highest CPU of the file's samples. perf looks up the CPU of each sample in CPU_TOPOLOGY without
    /// checking the length of the section.
    #[must_use]
    pub fn with_highest_cpu(self, highest_cpu: Option<u32>) -> SectionCheck {
        SectionCheck { highest_cpu, ..self }
    }

    /// Checks that every version of perf can read a section.
    ///
    /// # Errors
    /// Fails if a version of perf would refuse the section or misread it; the error names the fault.
    pub fn check(&self, feature: Feature, bytes: &[u8]) -> Result<()> {
        let is_ours = self.writer == SectionWriter::Ours;
        let wrong = |problem| Err(Error::other(0, "feature section", problem));
        let mut recoded = Vec::new();
        if let Some(problem) = feature.recode(bytes, &mut Writer::new(&mut recoded, self.endian)) {
            self.whole(problem?, &recoded, bytes)?;
        }
        match feature {
            Feature::BUILD_ID => build_id::check(bytes, self.endian),
            Feature::NRCPUS => match self.read::<CpuCount>(bytes)? {
                CpuCount { available, online } if available.max(online) > CPUS_MAX => wrong("too many CPUs"),
                _ => Ok(()),
            },
            Feature::EVENT_DESC if self.read::<EventDesc<'_>>(bytes)?.attr_size_bytes < ATTR_MIN_BYTES => {
                wrong("the attrs are smaller than perf requires")
            }
            Feature::CPU_TOPOLOGY => self.topology(bytes),
            Feature::NUMA_TOPOLOGY => {
                match self.read::<NumaTopology<'_>>(bytes)?.0.iter().all(|it| is_cpu_list(it.cpus)) {
                    true => Ok(()),
                    false => wrong("a NUMA node has no valid list of CPUs"),
                }
            }
            Feature::GROUP_DESC => {
                let GroupDesc(groups) = self.read(bytes)?;
                let mut next = 0;
                let follow = groups.iter().all(|group| {
                    let is_behind = group.leader_index >= next;
                    next = group.leader_index.saturating_add(group.members);
                    is_behind && self.events.is_none_or(|events| next <= events)
                });
                if follow { Ok(()) } else { wrong("a group has events that the file does not have") }
            }
            Feature::CACHE if self.read::<Caches<'_>>(bytes)?.version != 1 => wrong("an unknown version"),
            Feature::MEM_TOPOLOGY if self.read::<MemoryTopology>(bytes)?.version != 1 => wrong("an unknown version"),
            Feature::CLOCK_DATA if self.read::<ClockData>(bytes)?.version != 1 => wrong("an unknown version"),
            Feature::COMPRESSED if self.read::<Compression>(bytes)?.mmap_len_bytes > COMPRESSION_BUFFER_MAX_BYTES => {
                wrong("the decompression buffer is too large")
            }
            Feature::BRANCH_STACK | Feature::STAT if is_ours && !bytes.is_empty() => {
                wrong("the feature is a flag, but its section is not empty")
            }
            Feature::AUXTRACE | Feature::DIR_FORMAT if is_ours => wrong("a feature that bprec does not write"),
            _ if is_ours && feature.name().is_none() => wrong("an unknown feature"),
            _ => Ok(()),
        }
    }

    /// Reads the content of a section that has no damage.
    fn read<'a, P: SectionContent<'a>>(&self, bytes: &'a [u8]) -> Result<P> {
        P::parse(bytes, 0, self.endian).map(|partial| partial.value)
    }

    fn whole(&self, problem: Option<Error>, encoded: &[u8], bytes: &[u8]) -> Result<()> {
        match problem {
            Some(problem) => Err(problem),
            None if self.writer == SectionWriter::Ours && encoded != bytes => {
                Err(Error::other(0, "feature section", "the bytes differ from those that bprec writes"))
            }
            None => Ok(()),
        }
    }

    /// Checks CPU_TOPOLOGY. perf reads the core and the package of as many CPUs as NRCPUS counts, and takes any further bytes as dies.
    fn topology(&self, bytes: &[u8]) -> Result<()> {
        let partial = CpuTopology::parse(bytes, 0, self.endian, self.available_cpus)?;
        let topology = &partial.value;
        let mut encoded = Vec::new();
        topology.encode(&mut Writer::new(&mut encoded, self.endian));
        self.whole(partial.problem, &encoded, bytes)?;
        if !topology.cpus.is_empty() && self.highest_cpu.is_some_and(|cpu| cpu >= self.available_cpus) {
            return Err(Error::other(0, "CPU_TOPOLOGY", "the topology lacks a CPU that has samples"));
        }
        let is_known = |id: u32| self.has_other_socket_ids || id == u32::MAX || id <= self.available_cpus;
        match topology.cpus.iter().all(|cpu| is_known(cpu.socket_id)) {
            true => Ok(()),
            false => Err(Error::other(0, "CPU_TOPOLOGY", "a package number is larger than the number of CPUs")),
        }
    }
}

/// Returns true if a text is a list of CPUs like `0-3,8`, or empty.
fn is_cpu_list(text: &[u8]) -> bool {
    let number = |text: &str| text.parse::<u32>().ok().filter(|cpu| *cpu < CPUS_MAX);
    let is_range = |range: &str| match range.split_once('-') {
        Some((from, to)) => number(from).zip(number(to)).is_some_and(|(from, to)| from <= to),
        None => number(range).is_some(),
    };
    let text = std::str::from_utf8(text).ok().map(str::trim_end);
    text.is_some_and(|text| text.is_empty() || text.split(',').all(is_range))
}

#[cfg(test)]
mod tests {
    use super::super::{BuildIds, CpuPlace, EventGroup, NumaNode};
    use super::*;
    use crate::records::BuildId;
    use crate::records::user::BuildIdRecord;

    const LITTLE: Endian = Endian::Little;

    fn check(sections: &[(Feature, Vec<u8>)], feature: Feature) -> Result<()> {
        let all = sections.iter().map(|(feature, bytes)| (*feature, bytes.as_slice()));
        let section = all.clone().find(|(it, _)| *it == feature).unwrap();
        SectionCheck::new(all, LITTLE, SectionWriter::Ours).check(section.0, section.1)
    }

    #[test]
    fn places_of_cpus_are_as_many_as_there_are_cpus() {
        let place = |socket_id| CpuPlace { core_id: 0, socket_id, die_id: None };
        let topology = |socket_id| {
            let lists = vec![&b"0-1"[..]];
            let cpus = vec![place(0), place(socket_id)];
            let topology =
                CpuTopology { core_siblings: lists.clone(), thread_siblings: lists, die_siblings: vec![], cpus };
            let mut bytes = Vec::new();
            topology.encode(&mut Writer::new(&mut bytes, LITTLE));
            bytes
        };
        let of = |available, bytes: Vec<u8>| {
            let cpus = CpuCount { available, online: 2 }.to_bytes(LITTLE);
            check(&[(Feature::NRCPUS, cpus), (Feature::CPU_TOPOLOGY, bytes)], Feature::CPU_TOPOLOGY)
        };
        assert!(of(2, topology(1)).is_ok());
        assert!(of(2, topology(9)).is_err(), "perf refuses such a file");
        assert!(of(1, topology(1)).is_err() && of(3, topology(1)).is_err());
        let sections = [
            (Feature::NRCPUS, CpuCount { available: 2, online: 2 }.to_bytes(LITTLE)),
            (Feature::CPU_TOPOLOGY, topology(1)),
        ];
        let all = sections.iter().map(|(feature, bytes)| (*feature, bytes.as_slice()));
        let with_sample = |cpu| {
            let check = SectionCheck::new(all.clone(), LITTLE, SectionWriter::Anyone).with_highest_cpu(Some(cpu));
            check.check(Feature::CPU_TOPOLOGY, &sections[1].1)
        };
        assert!(with_sample(1).is_ok() && with_sample(2).is_err(), "perf would read past the end of the section");
        let mut long = topology(0);
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(of(2, long).is_err());
    }

    #[test]
    fn build_ids_fit_into_what_perf_reads_them_into() {
        let one = |filename: &[u8]| {
            BuildIds(vec![BuildIdRecord { cpumode: 2, pid: 1, id: BuildId::new(&[7; 20]), filename }]).to_bytes(LITTLE)
        };
        let of = |bytes| check(&[(Feature::BUILD_ID, bytes)], Feature::BUILD_ID);
        assert!(of(one(b"/bin/true")).is_ok());
        assert!(of(one(&[b'a'; 4095])).is_ok() && of(one(&[b'a'; 4096])).is_err());
        let mut id = one(b"/bin/true");
        id[32] = 21;
        assert!(of(id).is_err());
    }

    #[test]
    fn what_others_refer_to_is_there() {
        let node = |cpus| NumaTopology(vec![NumaNode { node: 0, mem_total_kib: 1, mem_free_kib: 1, cpus }]);
        let of = |cpus| check(&[(Feature::NUMA_TOPOLOGY, node(cpus).to_bytes(LITTLE))], Feature::NUMA_TOPOLOGY);
        assert!(of(b"0-3,8").is_ok() && of(b"").is_ok());
        assert!(of(b"3-0").is_err() && of(b"0-\x01").is_err() && of(b"0-4000000000").is_err());

        let described = EventDesc { attr_size_bytes: 64, events: vec![] }.to_bytes(LITTLE);
        let group = GroupDesc(vec![EventGroup { name: b"g", leader_index: 0, members: 2 }]).to_bytes(LITTLE);
        let sections = [(Feature::EVENT_DESC, described), (Feature::GROUP_DESC, group)];
        assert!(check(&sections, Feature::EVENT_DESC).is_ok() && check(&sections, Feature::GROUP_DESC).is_err());
    }

    #[test]
    fn nothing_stands_behind_what_was_written() {
        let text = Text(b"machine").to_bytes(LITTLE);
        let of = |bytes: Vec<u8>| check(&[(Feature::HOSTNAME, bytes)], Feature::HOSTNAME);
        assert!(of(text.clone()).is_ok());
        assert!(of([&text[..], b"more"].concat()).is_err());
        assert!(of(text[..10].to_vec()).is_err());
        let anyone = SectionCheck::new(std::iter::empty(), LITTLE, SectionWriter::Anyone);
        assert!(anyone.check(Feature::HOSTNAME, &[&text[..], b"more"].concat()).is_ok());
        assert!(
            anyone.check(Feature(200), b"whatever").is_ok() && check(&[(Feature(200), vec![])], Feature(200)).is_err()
        );
    }
}
