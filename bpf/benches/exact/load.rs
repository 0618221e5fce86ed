//! Background work that runs until its handle is dropped, with a count of the work done.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bprec_fixtures::{Fixture, Loaded};

use crate::Result;

/// Test runs between two checks of the request to stop.
const AT_A_TIME: u32 = 100;

/// Threads that run one program of an object.
pub(crate) struct Load {
    pub(crate) loaded: Arc<Loaded>,
    quit: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
    runs: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Runs `program` of [`Fixture::COUNTED`] in `threads` threads, without pause or with a pause after each [`AT_A_TIME`] runs.
    pub(crate) fn start(program: &'static str, threads: usize, pause: Option<Duration>) -> Result<Load> {
        let loaded = Arc::new(Fixture::COUNTED.open()?.load()?);
        let (quit, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let runs = Arc::new(AtomicU64::new(0));
        let start = |_| {
            let (loaded, runs) = (Arc::clone(&loaded), Arc::clone(&runs));
            let (quit, held) = (Arc::clone(&quit), Arc::clone(&held));
            thread::spawn(move || {
                while !quit.load(Ordering::Relaxed) {
                    if held.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    if loaded.run(program, AT_A_TIME).is_err() {
                        break;
                    }
                    runs.fetch_add(u64::from(AT_A_TIME), Ordering::Relaxed);
                    pause.into_iter().for_each(thread::sleep);
                }
            })
        };
        let threads = (0..threads).map(start).collect();
        Ok(Load { loaded, quit, held, runs, threads })
    }

    /// Pauses or resumes the runs.
    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }

    /// Count of runs so far.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread does not panic, and a panic could not be reported here.
            let _ = thread.join();
        }
    }
}

/// A thread that does arithmetic until the value is dropped, and counts its rounds.
pub(crate) struct Work {
    rounds: Arc<AtomicU64>,
    quit: Arc<AtomicBool>,
}

impl Work {
    pub(crate) fn start() -> Work {
        let work = Work { rounds: Default::default(), quit: Default::default() };
        let (rounds, quit) = (Arc::clone(&work.rounds), Arc::clone(&work.quit));
        thread::spawn(move || {
            let mut x = 1u64;
            while !quit.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    x = hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        work
    }

    pub(crate) fn done(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
    }
}
