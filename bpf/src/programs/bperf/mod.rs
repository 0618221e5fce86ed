//! bperf: one program reads a counter at each context switch, for all sessions that count it.
//!
//! Each event has one leader per machine: a program on `sched_switch` that reads the event of the current CPU. Sessions of bprec and perf
//! find the leader in a pinned map ([`AttrMap`]) and share it; the leader is unloaded when its last session ends. The leader's readings
//! give the counts of whole CPUs. For tasks and cgroups, each session has a second program, which adds up their counts ([`Follower`]).
//!
//! perf's followers are fexit programs on the leader. bprec's are not, because some machines refuse fexit programs, the trampoline of a function
//! takes only a few dozen of them, and each event would need a fexit program of its own. A follower of bprec is attached to the same tracepoint as
//! the leaders, after them, and computes the differences of their readings itself. It loses no counts if another session makes a leader read between
//! two context switches, and it counts nothing twice if a reading fails.

mod attr_map;
mod follower;
mod leader;

pub use attr_map::{AttrMap, LeaderSlot, Locked};
pub use follower::{FOLLOWED_MAX, Follower, Inherit, Targets};
pub use leader::{EventReading, Leader};
