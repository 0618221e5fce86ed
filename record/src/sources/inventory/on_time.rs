//! Time for which run statistics have been on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Time for which run statistics have been on, shared by the thread that switches them and by all readers of counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnTime(Arc<Mutex<Times>>);

#[derive(Debug, Default)]
struct Times {
    before_ns: u64,
    since_ns: Option<u64>,
    others_ns: u64,
}

impl OnTime {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns two durations up to `now_ns`, in ns: first the time for which the recorder had statistics on, then the time for which only other tools
    /// are known to have had them on.
    pub(crate) fn at(&self, now_ns: u64) -> (u64, u64) {
        let times = self.times();
        (times.on_ns(now_ns), times.others_ns)
    }

    /// Notes that the recorder has statistics on from `now_ns`.
    pub(crate) fn switched_on(&self, now_ns: u64) {
        self.times().since_ns = Some(now_ns);
    }

    /// Notes that the recorder switched statistics off at `now_ns`.
    pub(crate) fn switched_off(&self, now_ns: u64) {
        let mut times = self.times();
        times.before_ns = times.on_ns(now_ns);
        times.since_ns = None;
    }

    /// Subtracts a window of `ns` from the recorder's time. Called if another tool switched statistics on or off near
    /// the window: the counts then include runs outside of the window, so they belong to no known time.
    pub(crate) fn take_back(&self, ns: u64) {
        let mut times = self.times();
        times.before_ns = times.before_ns.saturating_sub(ns);
    }

    /// Adds `ns` of time for which only other tools had statistics on.
    pub(crate) fn add_others(&self, ns: u64) {
        self.times().others_ns += ns;
    }
}

impl Times {
    fn on_ns(&self, now_ns: u64) -> u64 {
        self.before_ns + self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::OnTime;

    #[test]
    fn time_on_is_that_of_the_windows() {
        let time = OnTime::default();
        time.switched_on(995);
        time.switched_off(1000);
        assert_eq!(time.at(2000), (5, 0));
        time.switched_on(2900);
        time.add_others(30);
        assert_eq!(time.clone().at(3000), (105, 30));
    }
}
