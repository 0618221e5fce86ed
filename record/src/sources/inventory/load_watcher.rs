//! A thread that opens a descriptor of every BPF program at the moment its load is announced.
//!
//! Each record in the rings for loads and unloads of kernel code ([`CodeRings`]) wakes the thread, which sends these records to the output. The
//! thread opens descriptors of all announced programs at real-time priority, so that no announced program can be unloaded any more. A second thread
//! of normal priority reads the facts of the programs: info, BTF and run statistics. If descriptors are scarce, the first thread reads the facts at
//! once and closes the descriptor. The threads never touch a file of the recording: their findings go to the recorder through an unbounded channel.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

use bprec_bpf::{BtfCache, ProgSnapshot, Program, RunStats, owner, prog_ids};
use bprec_format::bprec::state::{KernelSymbol, Missed, Owner};
use bprec_format::records::{BpfEvent, BpfEventKind, Ksymbol, KsymbolKind, Payload};
use bprec_format::{Endian, RecordType, Records, SampleId, SampleLayout};

use super::Holding;
use super::holding::is_spare;
use crate::Result;
use crate::drain::CodeRings;
use crate::output::Queue;
use crate::sys::{self, Waker};

/// Time between two attempts to open programs that the kernel refuses, for example because no descriptor is free.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Limit on programs in the queue of the second thread; further programs wait in the first thread, each with its descriptor.
const ASKED_MAX: usize = 256;
/// Time between two attempts to queue waiting programs.
const HAND_ON_EVERY: Duration = Duration::from_millis(10);

/// Finding of the load watcher.
#[derive(Debug)]
pub(crate) enum LoadEvent {
    /// A program was loaded.
    Program(Box<LoadedProgram>),
    /// A program was unloaded before it could be read, or the kernel refused to open it.
    Missed(Missed),
    /// The kernel made an image that is not a program: a trampoline, a dispatcher or a stub.
    ImageCame(KernelSymbol),
    /// The image at this address is gone.
    ImageWent(u64),
}

/// A loaded program with its facts from the kernel.
#[derive(Debug)]
pub(crate) struct LoadedProgram {
    pub(crate) id: u32,
    /// Descriptor of the program, if the recorder keeps it open.
    pub(crate) program: Option<Program>,
    pub(crate) snapshot: ProgSnapshot,
    /// Time at which the descriptor was opened, ns of the recording's clock.
    pub(crate) taken_ns: u64,
    /// Run statistics of the program at `taken_ns`.
    pub(crate) runs: Option<RunStats>,
    /// Process that loaded the program, if that process still existed.
    pub(crate) loader: Option<Owner>,
}

/// Handle of the thread, with the channel of its findings.
#[derive(Debug)]
pub(crate) struct LoadWatcher {
    /// Thread to join at the end; `None` after it was joined.
    thread: Option<JoinHandle<()>>,
    rings: Arc<CodeRings>,
    /// Queue of the output; `None` for a count.
    queue: Option<Queue>,
    commands: Sender<Command>,
    /// Waker of the thread, used after a command is sent.
    commanded: Waker,
    events: Receiver<LoadEvent>,
}

/// Requests to the thread.
#[derive(Debug)]
enum Command {
    /// Rings of further CPUs exist. Programs may have been loaded on these CPUs before.
    CpuCame,
    /// The rings of some CPUs were closed.
    CpuWent,
    /// Read the rings once more and end.
    Quit,
}

impl LoadWatcher {
    /// Starts to read the rings, and sends their records to the output through `queue`. Programs loaded before the rings were opened are
    /// not announced. `waker` is woken after each finding.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn start(
        rings: Arc<CodeRings>,
        queue: Option<Queue>,
        btfs: Arc<BtfCache>,
        holding: Holding,
        waker: Waker,
    ) -> Result<LoadWatcher> {
        let commanded = Waker::new()?;
        let (found, events) = mpsc::channel();
        let (commands, received) = mpsc::channel();
        let fetcher = Fetcher { btfs, holding, found, waker };
        let (taken, asked) = mpsc::sync_channel(ASKED_MAX);
        let second = fetcher.clone();
        let fetching = sys::spawn("bprec-fetch", move || asked.into_iter().for_each(|taken| second.ask(taken)))?;
        let watcher = Watcher {
            events: rings.watch(),
            layout: rings.layout(),
            rings: Arc::clone(&rings),
            output: queue.clone(),
            commands: received,
            commanded: commanded.clone(),
            fetcher,
            taken,
            queue: VecDeque::new(),
            seen: HashMap::new(),
            refused: BTreeMap::new(),
        };
        let thread = sys::spawn("bprec-loads", move || {
            watcher.run();
            // The second thread ends once its queue is closed.
            drop(fetching.join());
        })?;
        Ok(LoadWatcher { thread: Some(thread), rings, queue, commands, commanded, events })
    }

    /// Returns the findings since the last call.
    pub(crate) fn events(&self) -> impl Iterator<Item = LoadEvent> {
        self.events.try_iter()
    }

    /// Adds the ring of a CPU that came online, and looks for programs that were loaded there before.
    ///
    /// # Errors
    /// Fails if the event cannot be opened.
    pub(crate) fn watch(&self, cpu: u32) -> Result<()> {
        self.rings.open(cpu)?;
        self.command(Command::CpuCame);
        Ok(())
    }

    /// Removes the ring of a CPU that went offline, after reading it.
    ///
    /// # Errors
    /// Fails if the output has ended.
    pub(crate) fn forget(&self, cpu: u32) -> Result<()> {
        self.rings.take(self.queue.as_ref())?;
        self.rings.remove(cpu);
        self.command(Command::CpuWent);
        Ok(())
    }

    /// Disables the events. Records in the rings are still read.
    pub(crate) fn disable(&self) {
        self.rings.disable();
    }

    /// Reads the rings once more, ends the thread, and returns its findings.
    pub(crate) fn finish(mut self) -> Vec<LoadEvent> {
        self.quit();
        self.events.try_iter().collect()
    }

    fn quit(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.command(Command::Quit);
            drop(thread.join());
        }
    }

    fn command(&self, command: Command) {
        // Sending fails only if the thread has ended.
        drop(self.commands.send(command));
        self.commanded.wake();
    }
}

/// Ends the thread, even if an error ends the recording before sampling begins.
impl Drop for LoadWatcher {
    fn drop(&mut self) {
        self.quit();
    }
}

/// A program with an open descriptor. Its facts are not read yet.
#[derive(Debug)]
struct CapturedProgram {
    program: Program,
    taken_ns: u64,
    loader_pid: Option<u32>,
    loader: Option<Owner>,
}

struct Watcher {
    rings: Arc<CodeRings>,
    /// Events of the rings that can still wake the thread.
    events: Vec<Arc<OwnedFd>>,
    output: Option<Queue>,
    layout: SampleLayout,
    commands: Receiver<Command>,
    commanded: Waker,
    fetcher: Fetcher,
    /// Queue of the thread that reads facts.
    taken: SyncSender<CapturedProgram>,
    /// Programs with a descriptor that wait for space in `taken`.
    queue: VecDeque<CapturedProgram>,
    /// Announced programs by id. The value is true if the descriptor of the program was opened.
    seen: HashMap<u32, bool>,
    /// Programs that the kernel refused, by id; they are tried again.
    refused: BTreeMap<u32, Missed>,
}

/// Reads facts of programs and sends them to the recorder.
#[derive(Debug, Clone)]
struct Fetcher {
    btfs: Arc<BtfCache>,
    holding: Holding,
    found: Sender<LoadEvent>,
    waker: Waker,
}

impl Watcher {
    fn run(mut self) {
        sys::become_urgent();
        let mut is_last = false;
        loop {
            self.look();
            self.retry();
            self.hand_on();
            if is_last || self.wait().is_err() {
                for taken in std::mem::take(&mut self.queue) {
                    // The receiver ends only with this thread.
                    drop(self.taken.send(taken));
                }
                let refused = std::mem::take(&mut self.refused);
                refused.into_values().for_each(|missed| self.fetcher.send(LoadEvent::Missed(missed)));
                self.rings.unwatch();
                return;
            }
            self.commanded.take();
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::CpuCame => {
                        self.events = self.rings.watch();
                        self.catch_up();
                    }
                    Command::CpuWent => self.events = self.rings.watch(),
                    Command::Quit => is_last = true,
                }
            }
        }
    }

    /// Waits for an announcement, a command, or the time of the next attempt.
    fn wait(&mut self) -> io::Result<()> {
        let mut fds: Vec<_> = self.events.iter().map(sys::poll_in).collect();
        fds.push(sys::poll_in(&self.commanded));
        let again = match (self.queue.is_empty(), self.refused.is_empty()) {
            (false, _) => Some(HAND_ON_EVERY),
            (true, false) => Some(RETRY_EVERY),
            (true, true) => None,
        };
        sys::poll(&mut fds, again)?;
        // Events of CPUs that went offline are always ready, so a poll of these events would never wait.
        let mut hung_up = fds.iter().map(sys::is_hung_up).collect::<Vec<_>>().into_iter();
        self.events.retain(|_| !hung_up.next().unwrap_or(false));
        Ok(())
    }

    /// Moves waiting programs into the queue of the thread that reads facts, as many as fit.
    fn hand_on(&mut self) {
        while let Some(taken) = self.queue.pop_front() {
            if let Err(TrySendError::Full(taken) | TrySendError::Disconnected(taken)) = self.taken.try_send(taken) {
                self.queue.push_front(taken);
                return;
            }
        }
    }

    /// Opens all programs that were announced since the last call.
    fn look(&mut self) {
        // If the output has ended, the recording ends too.
        drop(self.rings.take(self.output.as_ref()));
        let mut overrun = false;
        for record in Records::new(&self.rings.unseen(), 0, Endian::NATIVE).flatten() {
            match record.kind {
                RecordType::LOST => overrun = true,
                RecordType::BPF_EVENT => {
                    if let Ok((Payload::BpfEvent(event), id)) = Payload::decode(&record, &self.layout) {
                        self.announced(event, &id);
                    }
                }
                RecordType::KSYMBOL => {
                    if let Ok((Payload::Ksymbol(symbol), _)) = Payload::decode(&record, &self.layout) {
                        self.named(&symbol);
                    }
                }
                _ => (),
            }
        }
        if overrun {
            self.catch_up();
        }
        // Facts about the loaders are read only now. A loader may exit at any time, but a program may also be unloaded, and programs matter more.
        for taken in self.queue.iter_mut() {
            if let Some(pid) = taken.loader_pid.take() {
                taken.loader = owner(pid);
            }
        }
    }

    /// Reports an image. Functions of programs are left out, because the programs' info has them.
    fn named(&self, symbol: &Ksymbol<'_>) {
        if symbol.kind != KsymbolKind::BPF || symbol.name.is_empty() || symbol.name.starts_with(b"bpf_prog_") {
            return;
        }
        let (addr, len_bytes) = (symbol.addr, symbol.len_bytes);
        self.fetcher.send(match symbol.is_unregister() {
            true => LoadEvent::ImageWent(addr),
            false => LoadEvent::ImageCame(KernelSymbol { addr, len_bytes, name: symbol.name.to_vec() }),
        });
    }

    fn announced(&mut self, event: BpfEvent, id: &SampleId) {
        match event.kind {
            BpfEventKind::PROG_LOAD => {
                let loader = id.pid_tid.map(|(pid, _)| pid);
                self.take(event.id, Some(event.tag), id.time_ns, loader);
            }
            // An unload needs no report. A program that was not opened is already reported as missed; a program that
            // was opened is unloaded because the recorder released it.
            BpfEventKind::PROG_UNLOAD => drop(self.seen.remove(&event.id)),
            _ => (),
        }
    }

    fn take(&mut self, id: u32, tag: Option<[u8; 8]>, seen_ns: Option<u64>, loader: Option<u32>) {
        // An open descriptor keeps the id from reuse; the id of a missed program may be reused.
        if self.seen.get(&id) == Some(&true) {
            return;
        }
        // Programs that this process loads later count other programs, or are libbpf's probes of the kernel's features.
        // They do not belong to the recording and are unloaded soon.
        if loader == Some(std::process::id()) {
            return;
        }
        match Program::take(id) {
            Ok(program) => {
                let counts_others = loader.is_none() && program.counts().unwrap_or(false);
                self.taken(program, loader, counts_others);
            }
            Err(error) if error.is_gone() => {
                self.seen.insert(id, false);
                let now_ns = sys::monotonic_ns();
                let late_ns = now_ns.saturating_sub(seen_ns.unwrap_or(now_ns));
                let reason =
                    format!("unloaded {:.1} ms after its load, before bprec could capture it", late_ns as f64 / 1e6);
                self.fetcher.send(LoadEvent::Missed(Missed { id, tag, time_ns: seen_ns.unwrap_or(now_ns), reason }));
            }
            Err(error) => {
                self.seen.insert(id, false);
                let time_ns = seen_ns.unwrap_or_else(sys::monotonic_ns);
                self.refused.insert(id, Missed { id, tag, time_ns, reason: error.to_string() });
            }
        }
    }

    fn taken(&mut self, program: Program, loader_pid: Option<u32>, counts_others: bool) {
        self.seen.insert(program.id(), true);
        if counts_others {
            return;
        }
        let is_spare = is_spare(&program);
        let mut taken = CapturedProgram { program, taken_ns: sys::monotonic_ns(), loader_pid, loader: None };
        if is_spare {
            self.queue.push_back(taken);
        } else {
            taken.loader = loader_pid.and_then(owner);
            self.fetcher.ask(taken);
        }
    }

    /// Tries again to open programs that the kernel refused.
    fn retry(&mut self) {
        for (id, missed) in std::mem::take(&mut self.refused) {
            match Program::take(id) {
                Ok(program) => self.taken(program, None, false),
                Err(error) if error.is_gone() => self.fetcher.send(LoadEvent::Missed(missed)),
                Err(_) => drop(self.refused.insert(id, missed)),
            }
        }
    }

    /// After announcements were lost, opens all loaded programs that were not opened yet.
    fn catch_up(&mut self) {
        for id in prog_ids().map_while(|id| id.ok()) {
            if self.seen.get(&id) != Some(&true) {
                self.take(id, None, None, None);
            }
        }
    }
}

impl Fetcher {
    fn ask(&self, taken: CapturedProgram) {
        let CapturedProgram { program, taken_ns, loader, .. } = taken;
        let event = match program.fetch(&self.btfs) {
            Ok(snapshot) => {
                let (id, runs) = (program.id(), program.stats().ok());
                let program = self.holding.keep(program);
                LoadEvent::Program(Box::new(LoadedProgram { id, program, snapshot, taken_ns, runs, loader }))
            }
            Err(error) => {
                LoadEvent::Missed(Missed { id: program.id(), tag: None, time_ns: taken_ns, reason: error.to_string() })
            }
        };
        self.send(event);
    }

    fn send(&self, event: LoadEvent) {
        // Sending fails only when the recording is over.
        drop(self.found.send(event));
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::events::Abilities;

    fn threads() -> usize {
        let comm = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.map(comm).filter(|comm| ["bprec-loads", "bprec-fetch"].contains(&comm.trim())).count()
    }

    /// A recording that fails before it begins leaves no thread and no ring.
    #[test]
    fn its_threads_end_with_it() {
        let Some(rings) = Abilities::probe().ok().and_then(|abilities| CodeRings::unwritten(abilities, &[0]).ok())
        else {
            println!("SKIP its_threads_end_with_it: no events of loads here");
            return;
        };
        let rings = Arc::new(rings);
        let watcher = LoadWatcher::start(
            Arc::clone(&rings),
            None,
            Arc::new(BtfCache::new()),
            Holding::Never,
            Waker::new().unwrap(),
        )
        .unwrap();
        // A thread has its name a moment after it was started.
        while threads() < 2 {
            std::thread::yield_now();
        }
        drop(watcher);
        assert_eq!(Arc::strong_count(&rings), 1);
        // A joined thread is listed for a moment longer. A thread that had not ended would hold the rings and stay listed.
        while threads() > 0 {
            std::thread::yield_now();
        }
    }
}
