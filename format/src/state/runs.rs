//! Run statistics: how often programs ran, as the kernel counts while it is told to.

use super::parts::{get_list, get_option, put_list, put_option};
use crate::{Reader, Result, Writer};

/// Run statistics of programs, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunStats {
    /// When they were read, ns of the recording's clock.
    pub time_ns: u64,
    /// Per program.
    pub programs: Vec<ProgramRuns>,
    /// For how long statistics had been on by then, since the recording switched them on first: less than the time that passed
    /// where they are on in windows. None in older recordings, which had them on throughout.
    pub on_ns: Option<u64>,
    /// For how long by then somebody else is known to have had statistics on while the recording had not: they were on at two looks that
    /// follow each other, less than 0.1 s apart. Between two readings in which this grows by as much as time passes, beside `on_ns`, all
    /// runs were counted. Counts that grow while neither does were counted for somebody else, for an unknown part of the time. None in
    /// older recordings.
    pub others_ns: Option<u64>,
}

/// Counts of one program by the kernel since its load, while statistics were on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramRuns {
    /// Program id.
    pub id: u32,
    /// When it was loaded, ns since boot.
    pub load_time_ns: u64,
    /// Time in the program, ns.
    pub run_time_ns: u64,
    /// Runs.
    pub run_cnt: u64,
    /// Runs that the recursion guard refused; `None` on kernels that do not tell (before 5.12).
    pub recursion_misses: Option<u64>,
}

impl RunStats {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u64(self.time_ns);
        put_list(w, &self.programs, ProgramRuns::put);
        if let Some(on_ns) = self.on_ns {
            w.u64(on_ns);
            if let Some(others_ns) = self.others_ns {
                w.u64(others_ns);
            }
        }
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<RunStats> {
        Ok(RunStats {
            time_ns: r.u64("run stats time")?,
            programs: get_list(r, 29, ProgramRuns::get)?,
            // Older recordings end here.
            on_ns: if r.is_empty() { None } else { Some(r.u64("run stats on")?) },
            others_ns: if r.is_empty() { None } else { Some(r.u64("run stats on for others")?) },
        })
    }
}

impl ProgramRuns {
    /// The most bytes an element takes.
    pub const MAX_BYTES: usize = 37;

    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.id).u64(self.load_time_ns).u64(self.run_time_ns).u64(self.run_cnt);
        put_option(w, self.recursion_misses);
    }

    /// Recordings hold one for each program at each snapshot: what has a fixed size is taken at once.
    #[inline]
    pub(super) fn get(r: &mut Reader<'_>) -> Result<ProgramRuns> {
        let mut fixed = Reader::new(r.take(28, "program runs")?, 0, r.endian());
        Ok(ProgramRuns {
            id: fixed.u32("runs id")?,
            load_time_ns: fixed.u64("runs load time")?,
            run_time_ns: fixed.u64("runs time")?,
            run_cnt: fixed.u64("runs count")?,
            recursion_misses: get_option(r, "runs misses")?,
        })
    }
}
