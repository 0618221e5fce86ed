//! Turns of tests on the machine: all tests of a program share BPF programs, run statistics and CPUs.
//!
//! Tests of one file run at the same time; tests of two files run one after the other, like separate programs. A test that measures runs alone. A
//! turn ends when the thread of its test ends.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Assigns turns.
pub(crate) struct Turns {
    taken: Mutex<Taken>,
    ended: Condvar,
}

/// State of the turns.
struct Taken {
    /// File of the tests that run; `None` while a test runs alone.
    file: Option<&'static str>,
    /// Number of running tests.
    running: usize,
    /// Number of tests that wait to run alone: no further test of a file starts before them.
    waiting: usize,
}

/// A turn that is held.
pub(crate) struct Turn<'a> {
    of: &'a Turns,
    is_alone: bool,
}

impl Turns {
    pub(crate) const fn new() -> Self {
        Self { taken: Mutex::new(Taken { file: None, running: 0, waiting: 0 }), ended: Condvar::new() }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until only tests of this file run.
    pub(crate) fn beside(&self, file: &'static str) -> Turn<'_> {
        let wait = |taken: &mut Taken| taken.waiting > 0 || (taken.running > 0 && taken.file != Some(file));
        let mut taken = self.ended.wait_while(self.taken(), wait).unwrap_or_else(PoisonError::into_inner);
        taken.file = Some(file);
        taken.running += 1;
        Turn { of: self, is_alone: false }
    }

    /// Waits until no test runs.
    pub(crate) fn alone(&self) -> Turn<'_> {
        let mut taken = self.taken();
        taken.waiting += 1;
        taken = self.ended.wait_while(taken, |taken| taken.running > 0).unwrap_or_else(PoisonError::into_inner);
        taken.waiting -= 1;
        taken.file = None;
        taken.running = 1;
        Turn { of: self, is_alone: true }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.taken().running -= 1;
        self.of.ended.notify_all();
    }
}

static MACHINE: Turns = Turns::new();

thread_local! {
    static OWN: RefCell<Option<Turn<'static>>> = const { RefCell::new(None) };
}

/// Waits until this thread's test may run beside those of its `file`. The turn lasts until the thread ends.
pub(super) fn beside(file: &'static str) {
    OWN.with_borrow_mut(|own| {
        own.get_or_insert_with(|| MACHINE.beside(file));
    });
}

/// Waits until no other test runs. No other test starts until the thread of this test ends.
pub(crate) fn alone() {
    OWN.with_borrow_mut(|own| {
        if !own.as_ref().is_some_and(|turn| turn.is_alone) {
            // The turn is given back first: two tests that kept their turns while they waited would deadlock.
            own.take();
            *own = Some(MACHINE.alone());
        }
    });
}
