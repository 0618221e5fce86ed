//! Records of a recording, with planted words as their texts.

use bprec_format::bprec::sampler::{self, Parts, Registers};
use bprec_format::records::user::{
    Auxtrace, AuxtraceError, BpfMetadata, BuildIdRecord, EventTypeName, EventUpdate, ThreadMap, ThreadMapEntry, Update,
};
use bprec_format::records::{
    BpfEvent, BpfEventKind, BuildId, Cgroup, Comm, Ksymbol, KsymbolKind, Mmap, Mmap2, Mmap2File, Namespace, Namespaces,
    Payload, TextPoke, UserPayload, write_record,
};
use bprec_format::{RecordType, SampleId, SampleLayout, Words as Chain, Writer, context, misc};

use super::states::states;
use super::{
    CODE, Event, KERNEL_FUNCTION, LITTLE, MAIN, OUTPUT, PID, PROG_ID, Planted, SAMPLER, STATE, TIME_NS, TRACED,
};

/// Records of every type that has a text.
pub(crate) struct Records<'e> {
    pub(crate) events: &'e [Event],
    pub(crate) bytes: Vec<u8>,
}

impl Records<'_> {
    fn kernel(&mut self, kind: RecordType, misc: u16, payload: &Payload<'_>) {
        let layout = SampleLayout::new(&self.events[MAIN].attr.attr, LITTLE);
        let id =
            SampleId { pid_tid: Some((PID, PID)), time_ns: Some(TIME_NS), id: Some(1), cpu: Some(0), stream_id: None };
        write_record(&mut self.bytes, kind, misc, &layout, &id, |w| payload.encode(w)).unwrap();
    }

    fn user(&mut self, payload: &UserPayload<'_>) {
        payload.encode(LITTLE, &mut self.bytes).unwrap();
    }

    /// Appends a sample of an event; `fill` writes the fields after the period.
    fn sample(&mut self, event: usize, fill: impl FnOnce(&mut Writer<'_>)) {
        let Event { attr, .. } = &self.events[event];
        let layout = SampleLayout::new(&attr.attr, LITTLE);
        write_record(&mut self.bytes, RecordType::SAMPLE, misc::KERNEL, &layout, &SampleId::default(), |w| {
            w.u64(attr.ids[0]).u64(CODE + 8).u32(PID).u32(PID).u64(TIME_NS / 2).u32(0).u32(0).u64(1000);
            fill(w);
        })
        .unwrap();
    }

    fn raw(&mut self, event: usize, payload: &[u8], fill: impl FnOnce(&mut Writer<'_>)) {
        let padded = (payload.len() + 4).next_multiple_of(8) - 4;
        self.sample(event, |w| {
            w.u32(padded as u32).bytes(payload).zeros(padded - payload.len());
            fill(w);
        });
    }

    /// Appends records of this type, with words as texts. Returns false if the type has no texts.
    pub(crate) fn plant(&mut self, kind: RecordType, p: &mut Planted) -> bool {
        match kind {
            RecordType::MMAP => {
                let path = format!("/{}", p.secret("mapped file"));
                let filename = path.as_bytes();
                let map = Mmap { pid: PID, tid: PID, addr: 0x40_0000, len_bytes: 4096, pgoff: 0, filename };
                self.kernel(kind, misc::USER, &Payload::Mmap(map));
            }
            RecordType::MMAP2 => {
                let path = format!("/{}", p.secret("mapped file"));
                let file = Mmap2File::BuildId(BuildId::new(p.secret("build id of a mapped file").as_bytes()));
                let map = Mmap2 {
                    pid: PID,
                    tid: PID,
                    addr: 0x50_0000,
                    len_bytes: 4096,
                    pgoff: 0,
                    file,
                    prot: 5,
                    flags: 2,
                    filename: path.as_bytes(),
                };
                self.kernel(kind, misc::USER | misc::MMAP_BUILD_ID, &Payload::Mmap2(map));
            }
            RecordType::COMM => {
                let comm = p.secret("task");
                self.kernel(kind, 0, &Payload::Comm(Comm { pid: PID, tid: PID, comm: comm.as_bytes() }));
            }
            RecordType::NAMESPACES => {
                let inode = u64::from_le_bytes(p.secret("namespace").as_bytes().try_into().unwrap());
                let links = vec![Namespace { dev: 4, ino: inode }];
                self.kernel(kind, 0, &Payload::Namespaces(Namespaces { pid: PID, tid: PID, links }));
            }
            RecordType::KSYMBOL => {
                let name = format!("bpf_prog_{}_{}", "00".repeat(8), p.of_program("symbol"));
                let (addr, len_bytes) = (CODE, 64);
                let symbol = Ksymbol { addr, len_bytes, kind: KsymbolKind::BPF, flags: 0, name: name.as_bytes() };
                self.kernel(kind, 0, &Payload::Ksymbol(symbol));
            }
            RecordType::BPF_EVENT => {
                let tag = p.of_program("tag of an event").as_bytes().try_into().unwrap();
                let event = BpfEvent { kind: BpfEventKind::PROG_LOAD, flags: 0, id: PROG_ID, tag };
                self.kernel(kind, 0, &Payload::BpfEvent(event));
            }
            RecordType::CGROUP => {
                let path = format!("/{}", p.secret("cgroup"));
                self.kernel(kind, 0, &Payload::Cgroup(Cgroup { id: 3, path: path.as_bytes() }));
            }
            RecordType::TEXT_POKE => {
                let [old, new] = ["code of the kernel"; 2].map(|place| p.secret(place));
                let poke = TextPoke { addr: KERNEL_FUNCTION, old: old.as_bytes(), new: new.as_bytes() };
                self.kernel(kind, 0, &Payload::TextPoke(poke));
            }
            RecordType::SAMPLE => {
                for state in states(p) {
                    let mut payload = Vec::new();
                    state.encode(&mut payload, LITTLE);
                    self.raw(STATE, &payload, |_| ());
                }
                let chain = [context::KERNEL, CODE + 8, KERNEL_FUNCTION + 8];
                for _ in 0..5 {
                    self.sample(MAIN, |w| {
                        w.u64(chain.len() as u64);
                        chain.iter().for_each(|addr| _ = w.u64(*addr));
                    });
                }
                let (comm, registers) = (p.secret("task of a sample"), p.secret("register"));
                let mut payload = Vec::new();
                let sampled = sampler::SamplerPayload {
                    missing: Parts(0),
                    ip: Some(CODE + 8),
                    period: Some(1000),
                    addr: None,
                    pid_tid: Some((PID, PID)),
                    cgroup: None,
                    comm: Some(comm.as_bytes()),
                    value: None,
                    registers: Some(Registers { mask: 1, values: Chain::new(registers.as_bytes(), LITTLE) }),
                    callchain: None,
                };
                sampled.encode(&mut payload, LITTLE);
                self.raw(SAMPLER, &payload, |_| ());
                self.raw(OUTPUT, p.secret("output of a program").as_bytes(), |_| ());
                let (raw, stack) = (p.secret("raw data"), p.secret("stack"));
                self.raw(TRACED, raw.as_bytes(), |w| {
                    w.u64(64).bytes(stack.as_bytes()).zeros(56).u64(64);
                });
            }
            RecordType::HEADER_EVENT_TYPE => {
                let name = p.secret("event type");
                self.user(&UserPayload::EventType(EventTypeName { config: 1, name: name.as_bytes() }));
            }
            RecordType::HEADER_BUILD_ID => {
                let path = format!("/{}", p.secret("file of a build id"));
                let id = BuildId::new(p.secret("build id").as_bytes());
                let (pid, cpumode, filename) = (-1, misc::USER, path.as_bytes());
                self.user(&UserPayload::BuildId(BuildIdRecord { pid, cpumode, id, filename }));
            }
            RecordType::AUXTRACE => {
                let (size_bytes, offset, reference) = (8, 0, 0);
                let trace = Auxtrace { size_bytes, offset, reference, idx: 0, tid: PID, cpu: 0 };
                self.user(&UserPayload::Auxtrace(trace));
                self.bytes.extend(p.secret("trace").into_bytes());
            }
            RecordType::AUXTRACE_ERROR => {
                let message = p.secret("error of a trace");
                self.user(&UserPayload::AuxtraceError(AuxtraceError {
                    kind: 1,
                    code: 1,
                    cpu: 0,
                    pid: PID,
                    tid: PID,
                    ip: 0,
                    time_ns: Some(TIME_NS),
                    message: message.as_bytes(),
                    guest: None,
                }));
            }
            RecordType::THREAD_MAP => {
                let comm = p.secret("thread");
                let entries = vec![ThreadMapEntry { tid: PID.into(), comm: comm.as_bytes() }];
                self.user(&UserPayload::ThreadMap(ThreadMap { entries }));
            }
            RecordType::EVENT_UPDATE => {
                let (name, unit) = (format!("/{}", p.secret("new name of an event")), p.kept("units of events"));
                for update in [Update::Name(name.as_bytes()), Update::Unit(unit.as_bytes())] {
                    self.user(&UserPayload::EventUpdate(EventUpdate { id: 5, update }));
                }
                let other = p.secret("update of an event");
                let update = Update::Other { kind: 99, bytes: other.as_bytes() };
                self.user(&UserPayload::EventUpdate(EventUpdate { id: 5, update }));
            }
            RecordType::BPF_METADATA => {
                let [program, name, value] = ["metadata"; 3].map(|place| p.secret(place));
                let entries = vec![(name.as_bytes(), value.as_bytes())];
                self.user(&UserPayload::BpfMetadata(BpfMetadata { prog_name: program.as_bytes(), entries }));
            }
            // A stream has these records instead of the sections of a file; `stream` writes them.
            RecordType::HEADER_ATTR | RecordType::HEADER_TRACING_DATA | RecordType::HEADER_FEATURE => return false,
            // Records that contain only numbers, and records that contain other records.
            RecordType::LOST
            | RecordType::EXIT
            | RecordType::THROTTLE
            | RecordType::UNTHROTTLE
            | RecordType::FORK
            | RecordType::READ
            | RecordType::AUX
            | RecordType::ITRACE_START
            | RecordType::LOST_SAMPLES
            | RecordType::SWITCH
            | RecordType::SWITCH_CPU_WIDE
            | RecordType::AUX_OUTPUT_HW_ID
            | RecordType::CALLCHAIN_DEFERRED
            | RecordType::FINISHED_ROUND
            | RecordType::ID_INDEX
            | RecordType::AUXTRACE_INFO
            | RecordType::CPU_MAP
            | RecordType::STAT_CONFIG
            | RecordType::STAT
            | RecordType::STAT_ROUND
            | RecordType::TIME_CONV
            | RecordType::COMPRESSED
            | RecordType::FINISHED_INIT
            | RecordType::COMPRESSED2
            | RecordType::SCHEDSTAT_CPU
            | RecordType::SCHEDSTAT_DOMAIN => return false,
            kind => panic!("the test plants no word in records of type {kind}; add one"),
        }
        true
    }
}
