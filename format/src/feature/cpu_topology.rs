//! CPUs that share cores, dies, packages and scheduling domains.

use super::{Partial, SectionContent, read_items};
use crate::layout::{Codec, List, PaddedText, Public};
use crate::{Endian, Error, Reader, Result, Writer};

/// Text that is not a secret.
type Label = PaddedText<Public>;

/// `nr u32`, then the texts.
type Texts = List<Label>;

/// CPU_TOPOLOGY (since 3.2): lists of CPUs that share a package, and lists of CPUs that share a core; then `core_id
/// u32, socket_id u32` for each CPU that NRCPUS counts as available; then, since 5.3 and only on some machines, lists
/// of CPUs that share a die, and `die_id u32` for each CPU. Old files end after the first two groups of lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuTopology<'a> {
    /// CPUs of each package, as lists like `0-3,8`.
    pub core_siblings: Vec<&'a [u8]>,
    /// CPUs of each core.
    pub thread_siblings: Vec<&'a [u8]>,
    /// CPUs of each die; empty if dies are not recorded.
    pub die_siblings: Vec<&'a [u8]>,
    /// Socket, die and core of each CPU, indexed by CPU number; empty in old files.
    pub cpus: Vec<CpuPlace>,
}

/// Socket, die and core of a CPU. The ids are the kernel's; `u32::MAX` for an offline CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuPlace {
    /// Id of the CPU's core.
    pub core_id: u32,
    /// Id of the CPU's package.
    pub socket_id: u32,
    /// Id of the CPU's die, if dies are recorded.
    pub die_id: Option<u32>,
}

impl<'a> CpuTopology<'a> {
    /// Reads a section that starts at offset `base` of the file. `available` is the count of available CPUs from NRCPUS.
    ///
    /// # Errors
    /// Fails if the first list cannot be read.
    pub fn parse(bytes: &'a [u8], base: u64, endian: Endian, available: u32) -> Result<Partial<CpuTopology<'a>>> {
        let mut r = Reader::new(bytes, base, endian);
        let mut problem = None;
        let core_siblings = Texts::get_partial(&mut r, "CPU_TOPOLOGY core siblings", &mut problem)?;
        let mut value = CpuTopology { core_siblings, thread_siblings: vec![], die_siblings: vec![], cpus: vec![] };
        if let Err(error) = value.read_rest(&mut r, available, &mut problem) {
            problem.get_or_insert(error);
        }
        Ok(Partial { value, problem })
    }

    fn read_rest(&mut self, r: &mut Reader<'a>, available: u32, problem: &mut Option<Error>) -> Result<()> {
        if problem.is_some() {
            return Ok(());
        }
        self.thread_siblings = Texts::get_partial(r, "CPU_TOPOLOGY thread siblings", problem)?;
        if problem.is_some() || r.is_empty() {
            return Ok(());
        }
        self.cpus = read_items(r, u64::from(available), problem, |r| {
            let (core_id, socket_id) = (r.u32("CPU_TOPOLOGY core id")?, r.u32("CPU_TOPOLOGY socket id")?);
            Ok(CpuPlace { core_id, socket_id, die_id: None })
        });
        if problem.is_some() || r.is_empty() {
            return Ok(());
        }
        self.die_siblings = Texts::get_partial(r, "CPU_TOPOLOGY die siblings", problem)?;
        if problem.is_none() {
            for cpu in &mut self.cpus {
                cpu.die_id = Some(r.u32("CPU_TOPOLOGY die id")?);
            }
        }
        Ok(())
    }

    /// Appends the content. Dies are written if `die_siblings` is not empty and every CPU has a die.
    pub fn encode(&self, w: &mut Writer<'_>) {
        Texts::put(&self.core_siblings, w);
        Texts::put(&self.thread_siblings, w);
        for cpu in &self.cpus {
            w.u32(cpu.core_id).u32(cpu.socket_id);
        }
        let dies: Vec<u32> = self.cpus.iter().filter_map(|cpu| cpu.die_id).collect();
        if !self.die_siblings.is_empty() && dies.len() == self.cpus.len() {
            Texts::put(&self.die_siblings, w);
            for die in dies {
                w.u32(die);
            }
        }
    }
}

/// First version of schedstat with domain names.
const NAMED_DOMAINS: u32 = 17;

/// CPU_DOMAIN_INFO (perf 7.3 writes it, 6.12 does not know it): `schedstat_version u32, max_domains u32`, then every
/// online CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuDomains<'a> {
    /// Version of `/proc/schedstat`.
    pub schedstat_version: u32,
    /// Highest count of domains of a CPU.
    pub max_domains: u32,
    /// The CPUs.
    pub cpus: Vec<CpuWithDomains<'a>>,
}

/// A CPU and its scheduling domains, the smallest first: `cpu u32, nr u32`, then the domains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuWithDomains<'a> {
    /// Number of the CPU.
    pub cpu: u32,
    /// Domains of the CPU.
    pub domains: Vec<CpuDomain<'a>>,
}

/// A scheduling domain: `domain u32`, the name as a text (only since version 17 of schedstat), mask and list as texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuDomain<'a> {
    /// Level of the domain.
    pub domain: u32,
    /// Name of the domain, since version 17 of schedstat.
    pub name: Option<&'a [u8]>,
    /// CPUs of the domain as a mask in hexadecimal.
    pub cpumask: &'a [u8],
    /// CPUs of the domain as a list like `0-3,8`.
    pub cpulist: &'a [u8],
}

impl<'a> SectionContent<'a> for CpuDomains<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<CpuDomains<'a>> {
        let schedstat_version = r.u32("CPU_DOMAIN_INFO schedstat version")?;
        let max_domains = r.u32("CPU_DOMAIN_INFO max domains")?;
        let mut cpus = Vec::new();
        while !r.is_empty() && problem.is_none() {
            let mut cpu = || {
                let (cpu, count) = (r.u32("CPU_DOMAIN_INFO cpu")?, r.u32("CPU_DOMAIN_INFO domain count")?);
                let domains = read_items(r, u64::from(count), problem, |r| {
                    let domain = r.u32("CPU_DOMAIN_INFO domain")?;
                    let is_named = schedstat_version >= NAMED_DOMAINS;
                    let name = is_named.then(|| Label::get(r, "CPU_DOMAIN_INFO name")).transpose()?;
                    let cpumask = Label::get(r, "CPU_DOMAIN_INFO cpumask")?;
                    Ok(CpuDomain { domain, name, cpumask, cpulist: Label::get(r, "CPU_DOMAIN_INFO cpulist")? })
                });
                Ok(CpuWithDomains { cpu, domains })
            };
            match cpu() {
                Ok(cpu) => cpus.push(cpu),
                Err(error) => *problem = Some(error),
            }
        }
        Ok(CpuDomains { schedstat_version, max_domains, cpus })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.schedstat_version).u32(self.max_domains);
        for cpu in &self.cpus {
            w.u32(cpu.cpu).u32(cpu.domains.len() as u32);
            for domain in &cpu.domains {
                w.u32(domain.domain);
                if self.schedstat_version >= NAMED_DOMAINS {
                    Label::put(&domain.name.unwrap_or_default(), w);
                }
                Label::put(&domain.cpumask, w);
                Label::put(&domain.cpulist, w);
            }
        }
    }
}
