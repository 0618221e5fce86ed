//! The program profiler: programs of our own around functions of other programs. They count the runs of a function, the time of the runs
//! and the perf events in them.
//!
//! Each function gets a session (fsession, from Linux 7.0 on): one program that one call attaches to both ends of the function. If the
//! kernel or the processor has no sessions, the function gets a pair (fentry, fexit). The end of a pair is attached before its begin and
//! detached after it. In both cases, the end of a run is seen if its begin was seen. One session or pair per function counts all events;
//! the events are opened once per CPU for all functions. Closing the descriptors removes everything.
//!
//! A session costs as much as a pair: as many places in the trampoline, as many calls, as much time. Advantages of a session: it is attached
//! completely or not at all; begins and ends of two sessions cannot interleave; and only one program is loaded, attached and detached.

mod calibrate;
mod empty;
mod insn;
mod load;
mod per_cpu;
mod probe;
mod refusal;
mod source;
mod statistics;

pub use calibrate::ProbeCost;
pub use load::Profiler;
pub use per_cpu::{EVENTS_MAX, HISTOGRAM_SUB_BITS, ProbeCounts};
pub use probe::Probe;
pub use refusal::{Refusals, makes_tail_calls, tail_calls_are_counted};
pub use source::Source;
pub use statistics::{StatsCost, StatsProbe};
