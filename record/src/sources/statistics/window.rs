//! Thread that opens and closes windows, so that windows are closed on time even if the control thread is busy.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use bprec_bpf::StatsGuard;

use crate::Result;
use crate::sources::inventory::OnTime;
use crate::sys::{self, Waker};

/// Request to the thread.
#[derive(Debug)]
enum Order {
    /// Switches statistics on for this time.
    Open(Duration),
    /// Switches statistics off at once.
    Close,
}

/// Result of a window: the time for which statistics were on.
pub(super) type WindowResult = bprec_bpf::Result<Duration>;

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct WindowTimer {
    /// Channel to the thread, which ends when the channel is closed.
    orders: Option<Sender<Order>>,
    closed: Receiver<WindowResult>,
    thread: Option<JoinHandle<()>>,
    is_open: bool,
}

impl WindowTimer {
    /// Starts the thread. It wakes `waker` when a window is closed.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(super) fn start(on_time: OnTime, waker: Waker) -> Result<WindowTimer> {
        let (orders, ordered) = mpsc::channel();
        let (done, closed) = mpsc::channel();
        let thread = sys::spawn("bprec-windows", move || {
            sys::become_urgent();
            while let Ok(order) = ordered.recv() {
                let Order::Open(length) = order else { continue };
                if done.send(window(length, &ordered, &on_time)).is_err() {
                    return;
                }
                waker.wake();
            }
        })?;
        Ok(WindowTimer { orders: Some(orders), closed, thread: Some(thread), is_open: false })
    }

    /// Returns true if a window was requested and its result was not taken yet.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Opens a window of this length at once.
    pub(super) fn open(&mut self, length: Duration) {
        self.is_open = self.orders.as_ref().is_some_and(|orders| orders.send(Order::Open(length)).is_ok());
    }

    /// Takes the result of a closed window, if any.
    pub(super) fn take_closed(&mut self) -> Option<WindowResult> {
        let closed = self.closed.try_recv().ok();
        self.is_open &= closed.is_none();
        closed
    }

    /// Closes the open window at once and returns its result; `None` if no window is open.
    pub(super) fn close(&mut self) -> Option<WindowResult> {
        if !self.is_open {
            return None;
        }
        self.is_open = false;
        self.orders.as_ref()?.send(Order::Close).ok()?;
        self.closed.recv().ok()
    }
}

impl Drop for WindowTimer {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // The thread closes an open window before it ends. The thread itself returns no value.
            let _ = thread.join();
        }
    }
}

/// Switches statistics on until the time is over, an order comes, or the channel is closed; returns the time for which they were on. Each switch
/// counts as made in the middle of the time that it took.
fn window(length: Duration, ordered: &Receiver<Order>, on_time: &OnTime) -> WindowResult {
    let began_ns = sys::monotonic_ns();
    let guard = StatsGuard::enable()?;
    let on_ns = middle(began_ns);
    on_time.switched_on(on_ns);
    // While a window is open, `Close` is the only possible order.
    let _ = ordered.recv_timeout(length);
    let ends_ns = sys::monotonic_ns();
    drop(guard);
    let off_ns = middle(ends_ns);
    on_time.switched_off(off_ns);
    Ok(Duration::from_nanos(off_ns.saturating_sub(on_ns)))
}

/// Returns the middle between a time and now.
pub(super) fn middle(began_ns: u64) -> u64 {
    began_ns + (sys::monotonic_ns() - began_ns) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window is closed on time even if no thread asks for its result, and at once on request. Needs a real kernel and root.
    #[test]
    fn windows_are_closed_on_time() {
        if StatsGuard::enable().is_err() {
            println!("SKIP windows_are_closed_on_time: run statistics cannot be switched on here");
            return;
        }
        let on_time = OnTime::default();
        let mut timer = WindowTimer::start(on_time.clone(), Waker::new().unwrap()).unwrap();
        let (short, late) = (Duration::from_millis(5), Duration::from_millis(500));
        timer.open(short);
        std::thread::sleep(late);
        let on = timer.take_closed().unwrap().unwrap();
        assert!(on >= short && on < late / 2, "{on:?}");
        assert!(!timer.is_open());
        timer.open(Duration::from_secs(600));
        let closed = timer.close().unwrap().unwrap();
        let (on_ns, _) = on_time.at(sys::monotonic_ns());
        assert_eq!(on_ns, u64::try_from((on + closed).as_nanos()).unwrap());
        // Dropping the timer closes the open window.
        timer.open(Duration::from_secs(600));
    }
}
