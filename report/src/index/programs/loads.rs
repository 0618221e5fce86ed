//! Loads of programs during the recording: which program did a thread load at a time.

use crate::index::Index;
use rustc_hash::FxHashMap;

/// Load of a program by a thread.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Start of the load, ns; 0 if unknown: then everything after the thread's previous load belongs to this one.
    began_ns: u64,
    /// End of the load, ns: the kernel announces the program.
    ended_ns: u64,
    program: u32,
}

/// Loads of each thread, ascending by time.
#[derive(Debug, Default)]
pub(crate) struct ProgramLoads(FxHashMap<u32, Vec<Load>>);

impl ProgramLoads {
    /// Lists the loads of all programs.
    pub(crate) fn new(index: &Index) -> ProgramLoads {
        let mut loads: FxHashMap<u32, Vec<Load>> = FxHashMap::default();
        for (program, number) in index.programs.list.iter().zip(0..) {
            if let Some(((_, thread), ended_ns)) = program.loader.zip(program.loaded_ns) {
                let began_ns = program.load_began_ns(&index.states).unwrap_or(0);
                loads.entry(thread).or_default().push(Load { began_ns, ended_ns, program: number });
            }
        }
        loads.values_mut().for_each(|loads| loads.sort_by_key(|load| load.ended_ns));
        ProgramLoads(loads)
    }

    /// Returns the program that a thread loaded at a time; `None` if the load failed, or when unknown.
    pub(crate) fn at(&self, thread: u32, time_ns: u64) -> Option<u32> {
        let loads = self.0.get(&thread)?;
        let load = loads.get(loads.partition_point(|load| load.ended_ns < time_ns))?;
        (load.began_ns <= time_ns).then_some(load.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::programs::{IndexedProgram, ProgInfoSummary};
    use crate::index::states::States;
    use bprec_format::bprec::state::BootClock;

    /// Thread 7 loads programs 0 and 1, and fails to load another one between them. Thread 8 loads program 2, whose load time is unknown.
    #[test]
    fn a_load_begins_at_the_load_time_and_ends_with_the_announcement() {
        let mut index = Index::default();
        let program = |id, loader, load_time_ns: Option<u64>, loaded_ns| IndexedProgram {
            id: Some(id),
            info: load_time_ns.map(|load_time_ns| ProgInfoSummary { load_time_ns, ..ProgInfoSummary::default() }),
            loader,
            loaded_ns,
            ..IndexedProgram::default()
        };
        // The recording's clock began 1,000 ns after the boot.
        index.states.boot_times.changed(&BootClock { time_ns: 0, to_boottime_ns: 1_000 });
        index.programs.list = vec![
            program(1, Some((6, 7)), Some(1_100), Some(150)),
            program(2, Some((6, 7)), Some(1_200), Some(260)),
            program(3, Some((6, 8)), None, Some(300)),
            program(4, None, Some(1_400), Some(450)),
        ];
        let loads = ProgramLoads::new(&index);
        let at = |thread, times: &[u64]| times.iter().map(|time_ns| loads.at(thread, *time_ns)).collect::<Vec<_>>();
        assert_eq!(at(7, &[99, 100, 150]), [None, Some(0), Some(0)]);
        assert_eq!(
            at(7, &[151, 199, 200, 260, 261]),
            [None, None, Some(1), Some(1), None],
            "a load failed between them"
        );
        assert_eq!(at(8, &[10, 300, 301]), [Some(2), Some(2), None]);
        assert_eq!(at(9, &[120, 420]), [None; 2], "another thread");
    }

    /// A load time after the announcement, as in damaged recordings, is no time in which the program was loaded.
    #[test]
    fn a_load_does_not_end_before_it_begins() {
        let info = ProgInfoSummary { load_time_ns: 500, ..ProgInfoSummary::default() };
        let mut states = States::default();
        states.boot_times.changed(&BootClock::default());
        let loaded = |loaded_ns| IndexedProgram {
            id: Some(1),
            info: Some(info),
            loader: Some((6, 7)),
            loaded_ns: Some(loaded_ns),
            ..IndexedProgram::default()
        };
        assert_eq!(
            [499, 500, 600].map(|ended_ns| loaded(ended_ns).load_began_ns(&states)),
            [None, Some(500), Some(500)]
        );
    }
}
