//! Programs that run as often as they can, for as long as this lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bprec_fixtures::{Fixture, Loaded};

use crate::Result;

/// Test runs at a time, between which it looks whether to stop.
const AT_A_TIME: u32 = 100;

/// Threads that run one program each, all of one object.
pub(crate) struct Load {
    pub(crate) loaded: Arc<Loaded>,
    quit: Arc<AtomicBool>,
    runs: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Runs `program` of [`Fixture::COUNTED`] from so many threads, without pause or with one after each [`AT_A_TIME`].
    pub(crate) fn start(program: &'static str, threads: usize, pause: Option<Duration>) -> Result<Load> {
        let loaded = Arc::new(Fixture::COUNTED.open()?.load()?);
        let (quit, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let start = |_| {
            let (loaded, quit, runs) = (Arc::clone(&loaded), Arc::clone(&quit), Arc::clone(&runs));
            thread::spawn(move || {
                while !quit.load(Ordering::Relaxed) && loaded.run(program, AT_A_TIME).is_ok() {
                    runs.fetch_add(u64::from(AT_A_TIME), Ordering::Relaxed);
                    pause.into_iter().for_each(thread::sleep);
                }
            })
        };
        let threads = (0..threads).map(start).collect();
        Ok(Load { loaded, quit, runs, threads })
    }

    /// Runs so far.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It panics in no case, and there is nothing left to say if it did.
            let _ = thread.join();
        }
    }
}
