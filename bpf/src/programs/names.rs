//! The names of our programs, by which the kernel, other sessions and recordings know them.

/// Before and after a function, and at both of its ends.
pub(super) const ENTER: &str = "bprec_enter";
pub(super) const LEAVE: &str = "bprec_leave";
pub(super) const SESSION: &str = "bprec_session";
/// It does nothing: on it the cost of counting is found.
pub(super) const EMPTY: &str = "bprec_gauge";
/// Reads an event at each context switch. It is the name by which perf's followers attach to it, and that of perf's own.
pub(super) const LEADER: &str = "on_switch";
/// Charges what leaders read: where the processor shows stores to other CPUs in the order in which they were made, and where it does not.
pub(super) const FOLLOW: &str =
    if cfg!(any(target_arch = "x86_64", target_arch = "s390x")) { FOLLOWERS[0] } else { FOLLOWERS[1] };
const FOLLOWERS: [&str; 2] = ["bprec_follow", "bprec_follow_o"];
/// Has new tasks charged.
pub(super) const INHERIT: &str = "bprec_inherit";
/// Counts samples.
pub(super) const AGGREGATE: &str = "bprec_aggregate";
/// Makes samples.
pub(super) const SAMPLER: &str = "bprec_sampler";
/// Lists references.
pub(super) const REFS: &str = "bprec_refs";

/// Returns true if a program goes by the name of one that counts others or finds out what that costs, of this process or another.
pub fn counts_others(name: &[u8]) -> bool {
    is_one_of(name, &[ENTER, LEAVE, SESSION, EMPTY])
}

/// True for the name of a recorder's iterator over references.
pub fn lists_references(name: &[u8]) -> bool {
    is_one_of(name, &[REFS])
}

/// Returns true if a program goes by the name of one that reads or charges events at context switches.
pub(super) fn counts_switches(name: &[u8]) -> bool {
    is_one_of(name, &[LEADER, FOLLOWERS[0], FOLLOWERS[1], INHERIT])
}

/// Returns true if a program goes by the name of any of ours, or of perf's leaders.
pub(super) fn is_own(name: &[u8]) -> bool {
    counts_others(name) || counts_switches(name) || lists_references(name) || is_one_of(name, &[AGGREGATE, SAMPLER])
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
            [ENTER, LEAVE, SESSION, EMPTY, LEADER, FOLLOWERS[0], FOLLOWERS[1], INHERIT, AGGREGATE, SAMPLER, REFS]
        {
            assert!(name.len() <= 15 && is_own(name.as_bytes()), "{name}");
        }
        assert!(!is_own(b"bprec") && !is_own(b""));
    }
}
