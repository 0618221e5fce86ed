//! Names of our programs. The kernel, other sessions and recordings identify the programs by these names.

/// Program of the profiler at the entry of a function.
pub(super) const ENTER: &str = "bprec_enter";
/// Program of the profiler at the exit of a function.
pub(super) const LEAVE: &str = "bprec_leave";
/// Program of the profiler at both entry and exit of a function.
pub(super) const SESSION: &str = "bprec_session";
/// Empty program, on which the cost of counting is measured.
pub(super) const EMPTY: &str = "bprec_gauge";
/// Reads an event at each context switch. perf's leaders have the same name, and perf's followers attach to a leader by this name.
pub(super) const LEADER: &str = "on_switch";
/// Charges the counts of leaders to tasks and cgroups. The program with the first name is for x86-64 and s390x, where other CPUs see stores in
/// program order; the program with the second name is for all other architectures.
pub(super) const FOLLOW: &str =
    if cfg!(any(target_arch = "x86_64", target_arch = "s390x")) { FOLLOWERS[0] } else { FOLLOWERS[1] };
const FOLLOWERS: [&str; 2] = ["bprec_follow", "bprec_follow_o"];
/// Adds new tasks to the map of charged tasks.
pub(super) const INHERIT: &str = "bprec_inherit";
/// Counts samples by stack.
pub(super) const AGGREGATE: &str = "bprec_aggregate";
/// Composes the samples of `bprec:sampler`.
pub(super) const SAMPLER: &str = "bprec_sampler";
/// BPF iterator program that lists the references of programs.
pub(super) const REFS: &str = "bprec_refs";
/// Looks up names of kernel functions.
pub(super) const NAMES: &str = "bprec_names";

/// Returns true for the name of the BPF iterator program with which a recorder lists references.
pub fn lists_references(name: &[u8]) -> bool {
    is_one_of(name, &[REFS])
}

/// Returns true for the names of programs that read or charge events at context switches.
pub(super) fn counts_switches(name: &[u8]) -> bool {
    is_one_of(name, &[LEADER, FOLLOWERS[0], FOLLOWERS[1], INHERIT])
}

/// Returns true for the names of all our programs and of perf's leaders.
pub(super) fn is_own(name: &[u8]) -> bool {
    bprec_format::bprec::is_program(name) || name == LEADER.as_bytes()
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|own| own.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_keeps_whole_names() {
        for name in
            [ENTER, LEAVE, SESSION, EMPTY, LEADER, FOLLOWERS[0], FOLLOWERS[1], INHERIT, AGGREGATE, SAMPLER, REFS, NAMES]
        {
            assert!(name.len() <= 15 && is_own(name.as_bytes()), "{name}");
        }
        assert!(!is_own(b"bprec") && !is_own(b""));
    }
}
