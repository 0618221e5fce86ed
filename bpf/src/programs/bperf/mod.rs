//! Counters that are read at context switches, once for everyone who asks: bperf.
//!
//! For each event there is one leader on the machine, a program on `sched_switch` that reads the event of its CPU. Sessions, perf's
//! among them, find it in a pinned map ([`AttrMap`]) and keep it alive together: it goes with the last of them. What a whole CPU came
//! to is in the leader's readings; what tasks and cgroups came to, a second program of each session adds up ([`Follower`]).
//!
//! Our followers are no fexit programs on the leader, as perf's are: those are refused on some machines, take one of the few dozen
//! places that a function's trampoline has, and are one program per event. A follower of ours stands behind the leaders on the
//! same tracepoint and takes differences of their readings itself. It loses nothing when somebody else has a leader read in
//! between, and adds nothing twice when a reading fails.

mod attr_map;
mod follower;
mod leader;

pub use attr_map::{AttrMap, LeaderSlot, Locked};
pub use follower::{FOLLOWED_MAX, Follower, Inherit, Targets};
pub use leader::{EventReading, Leader};
