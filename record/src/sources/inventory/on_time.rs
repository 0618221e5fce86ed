//! For how long run statistics have been on.

/// For how long statistics have been on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OnTime {
    pub(crate) before_ns: u64,
    pub(crate) since_ns: Option<u64>,
}

impl OnTime {
    /// As of `now_ns`.
    pub(crate) fn at(self, now_ns: u64) -> u64 {
        self.before_ns + self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }
}
