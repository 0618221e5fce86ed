//! A thread that takes hold of every BPF program the moment its load is announced.
//!
//! It is woken by each record of the rings of code ([`CodeRings`]), and sends these records to the output. It takes descriptors of all
//! programs announced, so that none of them can go away any more, before anything else on its CPU runs; a second thread of ordinary
//! priority asks what they are. Where descriptors are few, it asks each at once and gives its descriptor back. It never touches a file:
//! what is found goes to the recorder through a channel without a bound.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

use bprec_bpf::{BtfCache, ProgSnapshot, Program, RunStats, prog_ids};
use bprec_format::bprec::state::{KernelSymbol, Missed, Owner};
use bprec_format::records::{BpfEvent, BpfEventKind, Ksymbol, KsymbolKind, Payload};
use bprec_format::{Endian, RecordType, Records, SampleId, SampleLayout};

use super::Holding;
use super::holding::is_spare;
use crate::Result;
use crate::drain::CodeRings;
use crate::output::Queue;
use crate::sys::{self, Waker};

/// Time between two tries to take what the kernel refuses, as it does when there are no descriptors.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Programs that wait to be asked; more of them wait for these, each with the descriptor that keeps it.
const ASKED_MAX: usize = 256;
/// Time between two tries to hand on programs that wait for others.
const HAND_ON_EVERY: Duration = Duration::from_millis(10);

/// Event of a program that was loaded or is gone.
#[derive(Debug)]
pub(crate) enum LoadEvent {
    /// A program.
    Program(Box<LoadedProgram>),
    /// A program that was gone, or that the kernel would not give.
    Missed(Missed),
    /// An image that the kernel has made beside programs: a trampoline, a dispatcher, a stub.
    ImageCame(KernelSymbol),
    /// Address of an image that has gone.
    ImageWent(u64),
}

/// A program that was loaded, and what the kernel told about it.
#[derive(Debug)]
pub(crate) struct LoadedProgram {
    pub(crate) id: u32,
    /// Its descriptor, where it is to be held.
    pub(crate) program: Option<Program>,
    pub(crate) snapshot: ProgSnapshot,
    /// When it was taken, ns of the recording's clock.
    pub(crate) taken_ns: u64,
    /// Its run statistics then.
    pub(crate) runs: Option<RunStats>,
    /// Its loader, if that could still be seen.
    pub(crate) loader: Option<Owner>,
}

/// The thread, and the way to hear from it.
#[derive(Debug)]
pub(crate) struct LoadWatcher {
    /// `None` when it has ended.
    thread: Option<JoinHandle<()>>,
    rings: Arc<CodeRings>,
    /// To the output, where there is one.
    queue: Option<Queue>,
    commands: Sender<Command>,
    /// Wakes the thread for a command.
    commanded: Waker,
    events: Receiver<LoadEvent>,
}

/// Requests to the thread.
#[derive(Debug)]
enum Command {
    /// There are rings of other CPUs. Programs may have been loaded there before.
    CpuCame,
    /// There are rings of fewer CPUs.
    CpuWent,
    /// Look once more, and end.
    Quit,
}

impl LoadWatcher {
    /// Starts to look at what the rings have, and sends it to the output through `queue`. Programs alive before the rings were opened are
    /// not announced. `waker` is woken when something was found.
    ///
    /// # Errors
    /// When the thread is refused.
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
            // It has nobody to wait for any more.
            drop(fetching.join());
        })?;
        Ok(LoadWatcher { thread: Some(thread), rings, queue, commands, commanded, events })
    }

    /// Findings since the last call.
    pub(crate) fn events(&self) -> impl Iterator<Item = LoadEvent> {
        self.events.try_iter()
    }

    /// Has it listen to a CPU that has come online, and look what was loaded there before it listened.
    ///
    /// # Errors
    /// When the event is refused.
    pub(crate) fn watch(&self, cpu: u32) -> Result<()> {
        self.rings.open(cpu)?;
        self.command(Command::CpuCame);
        Ok(())
    }

    /// Has it give up the ring of a CPU that has gone offline, when that is read.
    ///
    /// # Errors
    /// When the output has ended.
    pub(crate) fn forget(&self, cpu: u32) -> Result<()> {
        self.rings.take(self.queue.as_ref())?;
        self.rings.remove(cpu);
        self.command(Command::CpuWent);
        Ok(())
    }

    /// Switches its events off. What the rings have is still to be found.
    pub(crate) fn disable(&self) {
        self.rings.disable();
    }

    /// Has it look once more, ends it, and returns what it had found.
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
        // A thread that has ended has nothing to be told.
        drop(self.commands.send(command));
        self.commanded.wake();
    }
}

/// A recording may end before it has begun.
impl Drop for LoadWatcher {
    fn drop(&mut self) {
        self.quit();
    }
}

/// A program that was taken and not asked yet.
#[derive(Debug)]
struct CapturedProgram {
    program: Program,
    taken_ns: u64,
    loader_pid: Option<u32>,
    loader: Option<Owner>,
}

struct Watcher {
    rings: Arc<CodeRings>,
    /// Events of the rings that can still wake it.
    events: Vec<Arc<OwnedFd>>,
    output: Option<Queue>,
    layout: SampleLayout,
    commands: Receiver<Command>,
    commanded: Waker,
    fetcher: Fetcher,
    /// To the thread that asks.
    taken: SyncSender<CapturedProgram>,
    /// Taken, and not handed on yet.
    queue: VecDeque<CapturedProgram>,
    /// Programs announced, and whether they were taken.
    seen: HashMap<u32, bool>,
    /// Programs that the kernel would not give, and are tried again: by id.
    refused: BTreeMap<u32, Missed>,
}

/// Asks what programs are, and tells the recorder.
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
                    // It ends when this thread does.
                    drop(self.taken.send(taken));
                }
                let refused = std::mem::take(&mut self.refused);
                refused.into_values().for_each(|missed| self.fetcher.tell(LoadEvent::Missed(missed)));
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

    /// Waits for an announcement or a command, or until it is time to try again.
    fn wait(&mut self) -> io::Result<()> {
        let mut fds: Vec<_> = self.events.iter().map(sys::poll_in).collect();
        fds.push(sys::poll_in(&self.commanded));
        let again = match (self.queue.is_empty(), self.refused.is_empty()) {
            (false, _) => Some(HAND_ON_EVERY),
            (true, false) => Some(RETRY_EVERY),
            (true, true) => None,
        };
        sys::poll(&mut fds, again)?;
        // Events of CPUs that have gone would never let it wait again.
        let mut hung_up = fds.iter().map(sys::is_hung_up).collect::<Vec<_>>().into_iter();
        self.events.retain(|_| !hung_up.next().unwrap_or(false));
        Ok(())
    }

    /// Hands what was taken to the thread that asks, as much as that has room for.
    fn hand_on(&mut self) {
        while let Some(taken) = self.queue.pop_front() {
            if let Err(TrySendError::Full(taken) | TrySendError::Disconnected(taken)) = self.taken.try_send(taken) {
                self.queue.push_front(taken);
                return;
            }
        }
    }

    /// Takes hold of everything announced since the last look.
    fn look(&mut self) {
        // An output that has ended ends the recording, too.
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
        // Loaders go away as well, but not before all programs are taken.
        for taken in self.queue.iter_mut() {
            if let Some(pid) = taken.loader_pid.take() {
                taken.loader = owner(pid);
            }
        }
    }

    /// Tells of an image. Functions of programs are in the programs' info.
    fn named(&self, symbol: &Ksymbol<'_>) {
        if symbol.kind != KsymbolKind::BPF || symbol.name.is_empty() || symbol.name.starts_with(b"bpf_prog_") {
            return;
        }
        let (addr, len_bytes) = (symbol.addr, symbol.len_bytes);
        self.fetcher.tell(match symbol.is_unregister() {
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
            // Programs that nobody took are already said to be missed. Programs that were taken are gone because we let go of them.
            BpfEventKind::PROG_UNLOAD => drop(self.seen.remove(&event.id)),
            _ => (),
        }
    }

    fn take(&mut self, id: u32, tag: Option<[u8; 8]>, seen_ns: Option<u64>, loader: Option<u32>) {
        // An id that was taken is not given to another program before its unload; one that we missed may be.
        if self.seen.get(&id) == Some(&true) {
            return;
        }
        // Programs that count others, and those by which libbpf finds out the kernel's abilities, do not belong to the
        // recording, and are gone soon. All others of ours are loaded before.
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
                    format!("unloaded {:.1} ms after its load, before it could be captured", late_ns as f64 / 1e6);
                self.fetcher.tell(LoadEvent::Missed(Missed { id, tag, time_ns: seen_ns.unwrap_or(now_ns), reason }));
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

    /// Tries once more what the kernel would not give.
    fn retry(&mut self) {
        for (id, missed) in std::mem::take(&mut self.refused) {
            match Program::take(id) {
                Ok(program) => self.taken(program, None, false),
                Err(error) if error.is_gone() => self.fetcher.tell(LoadEvent::Missed(missed)),
                Err(_) => drop(self.refused.insert(id, missed)),
            }
        }
    }

    /// Announcements were dropped: whatever is alive and not known must be among them.
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
        self.tell(event);
    }

    fn tell(&self, event: LoadEvent) {
        // When nobody listens any more the recording is over.
        drop(self.found.send(event));
        self.waker.wake();
    }
}

/// Identity of a process, if it can still be seen.
pub(super) fn owner(pid: u32) -> Option<Owner> {
    let bprec_host::Process { pid, comm, uid, cgroup } = bprec_host::Process::of(pid)?;
    Some(Owner { pid, comm, uid, cgroup })
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

    /// A recording that fails before it begins leaves neither thread, nor a ring.
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
        // A thread that was joined is listed for a moment longer. One that had not ended would hold the rings, and stay.
        while threads() > 0 {
            std::thread::yield_now();
        }
    }
}
