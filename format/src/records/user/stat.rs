//! Counts without samples: STAT_CONFIG, STAT, STAT_ROUND (since perf 4.6), SCHEDSTAT_CPU and SCHEDSTAT_DOMAIN (since
//! perf 7.0).

use crate::{Reader, Result, Writer};

/// STAT_CONFIG (since perf 4.6): `nr u64`, `nr` × `{tag u64, val u64}`; tags 0 aggregation mode, 1 interval, 2 scale, 3 aggregation level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatConfig {
    /// Tag and value.
    pub entries: Vec<(u64, u64)>,
}

impl StatConfig {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<StatConfig> {
        let nr = r.u64("STAT_CONFIG nr")?;
        let nr = r.count(nr, 16, "STAT_CONFIG entries")?;
        let mut entries = Vec::with_capacity(nr);
        for _ in 0..nr {
            entries.push((r.u64("STAT_CONFIG tag")?, r.u64("STAT_CONFIG val")?));
        }
        Ok(StatConfig { entries })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.entries.len() as u64);
        for (tag, value) in &self.entries {
            w.u64(*tag).u64(*value);
        }
    }
}

record! {
    /// STAT (since perf 4.6): `id u64, cpu u32, thread u32, val u64, ena u64, run u64`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Stat {
        /// The event.
        pub id: u64,
        /// Index of the CPU.
        pub cpu: u32,
        /// Index of the thread in the THREAD_MAP.
        pub thread: u32,
        /// The count, not scaled.
        pub value: u64,
        /// Time enabled, ns.
        pub time_enabled_ns: u64,
        /// Time counting, ns.
        pub time_running_ns: u64,
    }
}

record! {
    /// STAT_ROUND (since perf 4.6): `type u64, time u64`: all counts of an interval are written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StatRound {
        /// 0 an interval, 1 the last.
        pub kind: u64,
        /// Its end, ns since the start.
        pub time_ns: u64,
    }
}

/// SCHEDSTAT_CPU: `timestamp u64, cpu u32, version u16, padding`, six `u32` {yld_count, array_exp, sched_count, sched_goidle,
/// ttwu_count, ttwu_local}, three `u64` {rq_cpu_time, run_delay, pcount}.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of /proc/schedstat under the same names")]
pub struct SchedstatCpu {
    pub timestamp: u64,
    pub cpu: u32,
    pub version: u16,
    pub counts: [u32; 6],
    pub rq_cpu_time: u64,
    pub run_delay: u64,
    pub pcount: u64,
}

impl SchedstatCpu {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<SchedstatCpu> {
        let (timestamp, cpu) = (r.u64("SCHEDSTAT_CPU timestamp")?, r.u32("SCHEDSTAT_CPU cpu")?);
        let version = r.u16("SCHEDSTAT_CPU version")?;
        r.u16("SCHEDSTAT_CPU padding")?;
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = r.u32("SCHEDSTAT_CPU counts")?;
        }
        Ok(SchedstatCpu {
            timestamp,
            cpu,
            version,
            counts,
            rq_cpu_time: r.u64("SCHEDSTAT_CPU rq_cpu_time")?,
            run_delay: r.u64("SCHEDSTAT_CPU run_delay")?,
            pcount: r.u64("SCHEDSTAT_CPU pcount")?,
        })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.timestamp).u32(self.cpu).u16(self.version).u16(0);
        for count in self.counts {
            w.u32(count);
        }
        w.u64(self.rq_cpu_time).u64(self.run_delay).u64(self.pcount);
    }
}

/// Counts that a SCHEDSTAT_DOMAIN has in any version.
const FEWEST_DOMAIN_COUNTS: usize = 36;

/// SCHEDSTAT_DOMAIN: `timestamp u64, cpu u32, version u16, domain u16`, then `u32` counts: 36 in versions 15 and 16, 45 in
/// version 17; the record has room for the longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedstatDomain {
    /// Jiffies.
    pub timestamp: u64,
    /// CPU.
    pub cpu: u32,
    /// Version of /proc/schedstat, which says what the counts are.
    pub version: u16,
    /// Number of the domain.
    pub domain: u16,
    /// The counts, those of the record's unused end included.
    pub counts: Vec<u32>,
}

impl SchedstatDomain {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<SchedstatDomain> {
        let (timestamp, cpu) = (r.u64("SCHEDSTAT_DOMAIN timestamp")?, r.u32("SCHEDSTAT_DOMAIN cpu")?);
        let (version, domain) = (r.u16("SCHEDSTAT_DOMAIN version")?, r.u16("SCHEDSTAT_DOMAIN domain")?);
        let mut counts = Vec::new();
        for _ in 0..FEWEST_DOMAIN_COUNTS {
            counts.push(r.u32("SCHEDSTAT_DOMAIN counts")?);
        }
        let endian = r.endian();
        counts.extend(r.rest().chunks_exact(4).filter_map(|count| endian.u32_at(count, 0)));
        Ok(SchedstatDomain { timestamp, cpu, version, domain, counts })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.timestamp).u32(self.cpu).u16(self.version).u16(self.domain);
        for count in &self.counts {
            w.u32(*count);
        }
    }
}
