//! Namespaces that this process is in.

use std::fs;

/// The initial pid namespace, by its number, which no other ever gets (`PROC_PID_INIT_INO`).
const INITIAL_PIDS: &str = "pid:[4026531836]";

/// Whether task numbers of this process are those that the kernel itself uses; `None` when that is not told.
pub fn is_initial_pid_namespace() -> Option<bool> {
    fs::read_link("/proc/self/ns/pid").ok().map(|namespace| namespace.as_os_str() == INITIAL_PIDS)
}
