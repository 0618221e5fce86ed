//! The programs that count others, by the names that the kernel and other sessions know them by.

/// The programs, with their attach types: `BPF_TRACE_FENTRY`, `BPF_TRACE_FEXIT`, `BPF_TRACE_FSESSION`.
pub(super) const ENTER: (&str, u32) = ("bprec_enter", 24);
pub(super) const LEAVE: (&str, u32) = ("bprec_leave", 25);
pub(super) const SESSION: (&str, u32) = ("bprec_session", 58);
/// A pair, in the order in which it is attached: what is in between when only one of them is there is left out.
pub(super) const PAIR: [(&str, u32); 2] = [LEAVE, ENTER];
/// The program that does nothing, on which the cost of counting is found.
pub(super) const EMPTY: &str = "bprec_gauge";

/// Whether a program goes by the name of one that counts others or finds out what that costs, of this process or another.
pub fn counts_others(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(is_own_name)
}

/// Whether a program goes by the name of one of those that count others.
pub(super) fn is_own_name(name: &str) -> bool {
    [ENTER.0, LEAVE.0, SESSION.0, EMPTY].contains(&name)
}
