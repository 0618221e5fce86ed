//! Call chains that come in two parts: the kernel's with the sample, the user's in a record of its own when the task is
//! about to return to user space (since Linux 6.19).

use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

use bprec_format::{Callchain, Endian, context};

/// Limit on waiting samples, bytes; beyond it, the oldest sample is printed without its deferred chain.
const WAITING_BYTES: usize = 8 << 20;

/// A sample that waits for its deferred call chain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    tid: u32,
    cookie: u64,
    /// Bytes of the record.
    pub(super) bytes: Vec<u8>,
    /// Offset in the input.
    pub(super) offset: u64,
}

/// Samples that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// Samples by order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    /// Arrival numbers of each thread's samples.
    of_thread: FxHashMap<u32, VecDeque<u64>>,
    kept: u64,
    bytes: usize,
}

impl Deferred {
    /// Stores a sample. Returns the oldest sample if the limit is exceeded.
    pub(super) fn keep(&mut self, tid: u32, cookie: u64, bytes: &[u8], offset: u64) -> Option<Waiting> {
        self.bytes += bytes.len();
        self.waiting.insert(self.kept, Waiting { tid, cookie, bytes: bytes.to_vec(), offset });
        self.of_thread.entry(tid).or_default().push_back(self.kept);
        self.kept += 1;
        if self.bytes > WAITING_BYTES { self.next() } else { None }
    }

    /// Removes and returns the oldest sample.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        let (_, oldest) = self.waiting.pop_first()?;
        self.bytes -= oldest.bytes.len();
        if let Some(places) = self.of_thread.get_mut(&oldest.tid) {
            // The oldest sample is also the oldest of its thread.
            places.pop_front();
            if places.is_empty() {
                self.of_thread.remove(&oldest.tid);
            }
        }
        Some(oldest)
    }

    /// Removes and returns all waiting samples of a thread. The flag is true for samples that wait for the chain with this cookie. The other samples
    /// can no longer get their chain: a thread has one deferred chain at a time, so chains with earlier cookies will not come.
    pub(super) fn take(&mut self, tid: u32, cookie: u64) -> Vec<(Waiting, bool)> {
        let places = self.of_thread.remove(&tid).unwrap_or_default();
        let samples = places.iter().filter_map(|place| self.waiting.remove(place));
        let taken: Vec<(Waiting, bool)> = samples
            .map(|sample| {
                let is_its = sample.cookie == cookie;
                (sample, is_its)
            })
            .collect();
        self.bytes -= taken.iter().map(|(sample, _)| sample.bytes.len()).sum::<usize>();
        taken
    }
}

/// Returns the cookie at the end of a chain with a deferred user part.
pub(super) fn cookie(chain: Callchain<'_>) -> Option<u64> {
    let marker = chain.len().checked_sub(2)?;
    if chain.get(marker) == Some(context::USER_DEFERRED) { chain.get(marker + 1) } else { None }
}

/// Returns the words of a call chain, with the user part in place of the marker and the cookie, in the recording's byte order.
pub(super) fn merged(chain: Callchain<'_>, user: Callchain<'_>, endian: Endian) -> Vec<u8> {
    let kernel = chain.iter().take(chain.len().saturating_sub(2));
    kernel.chain(user.iter()).flat_map(|word| endian.bytes_u64(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_samples_do_not_wait() {
        let mut deferred = Deferred::default();
        let record = vec![0; 1 << 20];
        let back: Vec<u64> = (0..20).filter_map(|n| Some(deferred.keep(1, n, &record, n)?.offset)).collect();
        assert_eq!(back, (0..12).collect::<Vec<_>>());
        let taken: Vec<(u64, bool)> = deferred.take(1, 15).iter().map(|(it, is_its)| (it.offset, *is_its)).collect();
        assert_eq!(taken, (12..20).map(|n| (n, n == 15)).collect::<Vec<_>>());
        assert_eq!((deferred.bytes, deferred.next()), (0, None));
    }
}
