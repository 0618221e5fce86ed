//! The program profiler: programs of our own around functions of others' programs, which count their runs, how long those take, and what
//! perf events come to in them.
//!
//! Around a function is a session (fsession, from Linux 7.0 on): one program, called at both ends and attached to both by one call. Where
//! the kernel or the processor has no sessions it is a pair (fentry, fexit), of which the end of a function is attached before its begin and
//! detached after it. Either way whatever began under our eyes also ends there. One session or pair serves a function, for all events;
//! the events are opened once per CPU for all functions. Everything goes with its descriptors.
//!
//! A session takes as many of the trampoline's places and of its calls as a pair, and counting takes as long. What it has over a pair: it is
//! there or not, never half; its begins and ends cannot come in between each other; and it is one program to load, attach and detach.

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
