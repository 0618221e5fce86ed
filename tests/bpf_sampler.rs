//! `record --bpf-sampler`: the output of the program is compared with independent facts about the load, and its blind spot with the samples of the
//! event without a program (the main samples). Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{
    Scratch, alone, bprec, end, perf, perf_installed, record, recording, report, root, skip, succeed,
};
use bprec_fixtures::load::system_calls;
use bprec_fixtures::{Fixture, Loaded, StatsSwitch, thread_id};
use bprec_format::bprec::sampler::{EVENT_NAME, SamplerPayload};
use bprec_format::bprec::state::{self, State};
use bprec_format::{CONTEXT_MAX, Events, File, Metadata, RecordType, context};
use serde_json::Value;

/// A sample of bprec's sampling program, as stored in the file.
struct Sampled {
    ip: u64,
    pid_tid: (u32, u32),
    cpu: u32,
    raw: Vec<u8>,
}

impl Sampled {
    fn payload(&self) -> SamplerPayload<'_> {
        SamplerPayload::parse(&self.raw, 0, bprec_format::Endian::NATIVE).unwrap()
    }
}

/// Returns the samples of the sampling program in the file, in order, and its state.
fn read(path: &Path) -> (Vec<Sampled>, state::Sampler) {
    let bytes = std::fs::read(path).unwrap();
    let file = File::parse(&bytes).unwrap();
    let names = Metadata::of_file(&file).event_names();
    let events = Events::new(file.attrs(), file.endian()).unwrap();
    let (mut samples, mut account) = (Vec::new(), None);
    for record in file.records() {
        let record = record.unwrap();
        if record.kind != RecordType::SAMPLE {
            continue;
        }
        let event = events.index_of(&record).unwrap();
        let sample = events.all()[event].layout.sample(record.body(), record.offset).unwrap();
        match names[event].as_str() {
            EVENT_NAME => samples.push(Sampled {
                ip: sample.ip().unwrap(),
                pid_tid: sample.pid_tid().unwrap(),
                cpu: sample.cpu().unwrap(),
                raw: sample.raw().unwrap().unwrap().to_vec(),
            }),
            state::EVENT_NAME => {
                let state = State::decode(sample.raw().unwrap().unwrap(), record.offset, file.endian()).unwrap();
                if let State::Sampler(told) = state {
                    account = Some(told);
                }
            }
            _ => {}
        }
    }
    (samples, account.unwrap())
}

/// The event of this name in a report.
fn event<'r>(report: &'r Value, name: &str) -> &'r Value {
    report["events"].as_array().unwrap().iter().find(|event| event["name"] == name).unwrap()
}

/// Samples in a program and in all that it calls, for one event of a report; 0 for a program that is not listed.
fn inclusive(event: &Value, id: u32) -> u64 {
    let rows = event["rows"].as_array().unwrap();
    // A program that an event cannot see has an unknown cost, not 0.
    let Some(row) = rows.iter().find(|row| row["id"] == id) else { return 0 };
    // Entry code is not part of the program.
    row["inclusive"]["samples"].as_u64().map_or(0, |samples| samples - row["entry"]["samples"].as_u64().unwrap())
}

/// Makes calls for a part of the time, in periods of varying length, so that the calls do not run in step with the timer.
fn calls_part_of_the_time(time: Duration, busy_per_cent: u32) {
    let until = Instant::now() + time;
    let mut random = 1u64;
    while Instant::now() < until {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let busy = Duration::from_micros(2_000 + (random >> 52));
        let turn = Instant::now();
        while turn.elapsed() < busy {
            system_calls(1);
        }
        std::thread::sleep(busy * (100 - busy_per_cent) / busy_per_cent);
    }
}

/// A tracepoint program that takes a fifth of a CPU is invisible to the event with the sampling program, and visible in the main samples; the report
/// states its time as blind spot. A raw_tp program, which runs without the kernel's guard against nested programs, is visible to both.
#[test]
fn the_blind_spot_is_stated_in_numbers() {
    const NAMES: [&str; 2] = ["account_syscall_enter", "account_syscall_exit"];
    const PERIOD_NS: u64 = 500_000;
    if !root("the_blind_spot_is_stated_in_numbers") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let _counting = StatsSwitch::on().unwrap();
    let start = |fixture: Fixture, loops| {
        fixture.open().unwrap().for_this_thread().unwrap().loops(loops).unwrap().start().unwrap()
    };
    let (guarded, seen) = (start(Fixture::TP, 300), start(Fixture::TWIN_A, 600));
    let period = PERIOD_NS.to_string();
    let child = recording(&path, "6", &["-e", "cpu-clock", "-c", &period, "--bpf-sampler"]);
    let ran_ns = |loaded: &Loaded| -> u64 {
        loaded.programs().unwrap().iter().map(|it| loaded.run_stats(&it.name).unwrap().run_time_ns).sum()
    };
    let before = ran_ns(&guarded);
    calls_part_of_the_time(Duration::from_secs(5), 40);
    let ran_ns = ran_ns(&guarded) - before;
    end(child);

    let report_json = report(&path, &["--all"]);
    let (main, sampler) = (event(&report_json, "cpu-clock"), event(&report_json, EVENT_NAME));
    let blind_spot = &sampler["bpf_sampler"]["blind_spot"];
    let number = |value: &Value| value.as_u64().unwrap();

    // The sampler has no sample in the tracepoint programs; the main samples show the time that the kernel counted.
    let ids = NAMES.map(|name| guarded.id_of(name).unwrap());
    assert_eq!(ids.map(|id| inclusive(sampler, id)), [0, 0], "{sampler:#}");
    let in_guarded: u64 = ids.iter().map(|id| inclusive(main, *id)).sum();
    let expected = ran_ns as f64 / PERIOD_NS as f64;
    assert!(expected > 200.0, "the load got only {ran_ns} ns");
    // The kernel's clock of a run includes interrupts during the run, and a busy machine delays some ticks of the sampling timer.
    let allowed = 4.0 * expected.sqrt() + 0.15 * expected;
    assert!(
        (in_guarded as f64 - expected).abs() < allowed,
        "{in_guarded} samples, expected {expected:.0} ± {allowed:.0}"
    );

    // The number in the report covers these programs, and all other programs of these types that ran meanwhile.
    let is_guarded = |row: &&Value| {
        let program = &report_json["programs"][number(&row["program"]) as usize];
        ["tracepoint", "kprobe", "perf_event"].contains(&program["type"].as_str().unwrap_or_default())
    };
    let rows = main["rows"].as_array().unwrap();
    let most: u64 = rows.iter().filter(is_guarded).filter_map(|row| row["inclusive"]["samples"].as_u64()).sum();
    let inside = number(&blind_spot["samples"]);
    assert!((in_guarded..=most).contains(&inside), "{in_guarded}..={most}: {blind_spot:#}");
    assert_eq!(blind_spot["of"], main["samples"]);
    assert_eq!(blind_spot["event"], "cpu-clock");
    let percent = blind_spot["percent"].as_f64().unwrap();
    assert!((percent - inside as f64 * 100.0 / number(&main["samples"]["samples"]) as f64).abs() < 1e-9);

    // All other output formats have the same number.
    let text = |arguments: &[&str]| {
        let output = succeed(bprec().args(["report", "--all", "-i"]).arg(&path).args(arguments));
        String::from_utf8(output.stdout).unwrap()
    };
    // Lines are wrapped, and numbers have thousands separators.
    let table = text(&[]).replace(',', "");
    let table: Vec<&str> = table.lines().map(|line| line.trim_start_matches('#').trim()).collect();
    let table = table.join(" ");
    let stated = format!(
        "blind spot: {inside} of {} samples of the main event ({percent:.2} %) fall into kprobe/tracepoint/perf_event programs",
        number(&main["samples"]["samples"])
    );
    assert!(table.contains(&stated), "{stated}\n{table}");
    let csv = text(&["--csv"]);
    let line = csv.lines().find(|line| line.starts_with("bprec:sampler,blind_spot,")).unwrap();
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let cell = |name: &str| line.split(',').nth(header.iter().position(|it| *it == name).unwrap()).unwrap();
    assert_eq!((cell("samples"), cell("name")), (inside.to_string().as_str(), "cpu-clock"));
    assert_eq!(cell("weight"), number(&blind_spot["weight"]).to_string());

    // Both events see programs that run without the guard, with the same share of this thread's samples.
    let twin = seen.id_of("same_name_in_two_objects").unwrap();
    let (by_main, by_sampler) = (inclusive(main, twin) as f64, inclusive(sampler, twin) as f64);
    assert!(by_main > 200.0, "only {by_main} samples");
    let deviation = (by_main + by_sampler).sqrt();
    assert!((by_main - by_sampler).abs() < 4.0 * deviation + 0.1 * by_main, "{by_main} and {by_sampler}");
    // A selection of this program keeps only its samples and the samples of entry code shared with other programs.
    let part = scratch.path("part.data");
    let mut rewrite = bprec();
    rewrite.args(["rewrite", "-i"]).arg(&path).arg("-o").arg(&part).args(["--prog", &twin.to_string()]);
    succeed(&mut rewrite);
    let left = report(&part, &["--all"]);
    for (name, samples) in [("cpu-clock", by_main), (EVENT_NAME, by_sampler)] {
        let left = event(&left, name);
        assert_eq!(inclusive(left, twin) as f64, samples, "{name}");
        let entry = number(&left["total"]["entry"]["samples"]);
        assert_eq!(number(&left["samples"]["samples"]) as f64, samples + entry as f64, "{name}: {left:#}");
    }
    // A row without a number from the sampler shows the reason instead of 0.
    let row = sampler["rows"].as_array().unwrap().iter().find(|row| row["id"] == ids[0]).unwrap();
    assert!(row["blind"]["text"].as_str().unwrap().contains("tracepoint"), "{row:#}");
}

/// A busy thread, stopped on drop; `stack` is the address range of its stack.
struct Spinner {
    stop: &'static AtomicBool,
    thread: Option<std::thread::JoinHandle<()>>,
    tid: u32,
    stack: (u64, u64),
}

/// Returns start and end of the mappings of this process that `wanted` accepts.
fn mappings(wanted: impl Fn(&str) -> bool) -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = |line: &str| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap())
    };
    maps.lines().filter(|line| wanted(line)).map(range).collect()
}

impl Spinner {
    fn start(name: &str, stop: &'static AtomicBool, spin: fn(&AtomicBool)) -> Spinner {
        let (tell, told) = std::sync::mpsc::channel();
        let work = move || {
            let local = 0u8;
            let here = (&raw const local) as u64;
            let stack = mappings(|_| true).into_iter().find(|(start, end)| (*start..*end).contains(&here)).unwrap();
            tell.send((thread_id(), stack)).unwrap();
            while !stop.load(Ordering::Relaxed) {
                spin(stop);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap();
        let (tid, stack) = told.recv().unwrap();
        Spinner { stop, thread: Some(thread), tid: tid as u32, stack }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// The id of this process' cgroup: the inode of its directory.
fn cgroup_id() -> Option<u64> {
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, at, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| at.to_owned())
    })?;
    std::fs::metadata(format!("{mount}{path}")).ok().map(|directory| directory.ino())
}

/// Compares every field with independent facts: names and ids of the thread, its code, its stack, the requested rate, the inode of
/// its cgroup.
#[test]
fn fields_are_what_is_known_from_elsewhere() {
    const NAME: &str = "fields_are_what_is_known_from_elsewhere";
    static STOP: AtomicBool = AtomicBool::new(false);
    if !root(NAME) {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let (ip_register, fields) = match std::env::consts::ARCH {
        "x86_64" => (16, "+addr,+regs=ip,sp,+ustack"),
        _ => (32, "+addr,+regs=pc,sp,+ustack"),
    };
    let spin = |stop: &AtomicBool| {
        for _ in 0..1000 {
            std::hint::black_box(stop);
        }
    };
    let spinner = Spinner::start("known, load", &STOP, spin);
    record(
        &path,
        &["-q", "-a", "-e", "cpu-clock", "-c", "1000000", &format!("--bpf-sampler={fields}"), "--", "sleep", "2"],
    );
    let tid = spinner.tid;
    let stack = spinner.stack;
    drop(spinner);

    let (samples, account) = read(&path);
    let counts = account.counts.unwrap();
    assert_eq!((account.event.as_str(), account.is_frequency, account.rate), ("cpu-clock", false, 1_000_000));
    assert_eq!((counts.runs, counts.written), (counts.written + counts.full + counts.failed, samples.len() as u64));
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let code = mappings(|line| line.contains(" r-xp ") && line.ends_with(own.as_str()));
    let cgroup = cgroup_id();
    let (mut ours, mut in_code, mut in_user) = (0, 0, 0);
    let mut last_value = std::collections::BTreeMap::new();
    for sample in &samples {
        let payload = sample.payload();
        // The kernel pads with arbitrary bytes, so the length counts.
        let length = u32::from_ne_bytes(sample.raw[8..12].try_into().unwrap()) as usize;
        assert_eq!(sample.raw.len(), (length + 4).next_multiple_of(8) - 4);
        // For a task that is almost gone, the sample's own fields have no ids.
        if sample.pid_tid.0 != u32::MAX && sample.pid_tid.1 != u32::MAX {
            assert_eq!(payload.pid_tid, Some(sample.pid_tid), "the ids differ from the sample's own fields");
        }
        assert_eq!(payload.ip, Some(sample.ip));
        assert_eq!(payload.period, Some(1_000_000));
        let value = payload.value.expect("an event of a CPU can be read");
        assert!(value.value > 0 && value.enabled_ns >= value.running_ns && value.running_ns > 0, "{value:?}");
        let before = last_value.insert(sample.cpu, value);
        assert!(before.is_none_or(|before| before.value < value.value && before.enabled_ns < value.enabled_ns));
        let registers: Vec<(u32, u64)> = payload.registers.unwrap().iter().collect();
        assert_eq!(registers.len(), 2);
        assert!(registers.contains(&(ip_register, sample.ip)), "{registers:x?}");
        let chain: Vec<u64> = payload.callchain.unwrap().iter().collect();
        let at = |marker| chain.iter().position(|word| *word == marker);
        match at(context::KERNEL) {
            Some(at) => assert_eq!((at, chain[1]), (0, sample.ip), "the innermost frame is where the CPU was"),
            // Kernel threads have no user frames: all frames are kernel frames.
            None => assert_eq!((at(context::USER), chain[1]), (Some(0), sample.ip)),
        }
        // User frames can be any values that the frame pointer led to; kernel frames are addresses of the kernel.
        if at(context::KERNEL).is_some() {
            let kernel = chain[1..].iter().take_while(|word| **word != context::USER);
            assert!(kernel.clone().all(|word| *word < CONTEXT_MAX && *word > 1 << 63), "{chain:x?}");
        }
        if sample.pid_tid.1 != tid {
            continue;
        }
        ours += 1;
        assert_eq!(payload.pid_tid, Some((std::process::id(), tid)));
        assert_eq!(payload.comm, Some(&b"known, load"[..]));
        if cgroup.is_some() {
            assert_eq!(payload.cgroup, cgroup);
        }
        if at(context::KERNEL).is_none() {
            in_user += 1;
            in_code += u64::from(code.iter().any(|(start, end)| (*start..*end).contains(&sample.ip)));
            let sp = registers.iter().find(|(number, _)| *number != ip_register).unwrap().1;
            assert!((stack.0..=stack.1).contains(&sp), "{sp:#x} is not in {stack:x?}");
        }
    }
    if cgroup.is_none() {
        skip(NAME, "no cgroup2 hierarchy is mounted here: the rest was compared");
    }
    assert!(ours > 100, "{ours} samples of the load");
    // All user samples are in the code of this test, because the thread only checks a flag there.
    assert_eq!(in_code, in_user);
    assert!(in_user * 10 > ours * 8, "{in_user} of {ours} in user mode");

    // `script` prints the values unchanged.
    let script = succeed(bprec().args(["script", "-i"]).arg(&path).args(["--tid", &tid.to_string()]));
    let script = String::from_utf8(script.stdout).unwrap();
    let first = samples.iter().find(|sample| sample.pid_tid.1 == tid).unwrap();
    let value = first.payload().value.unwrap();
    for text in [
        "period=1000000".to_owned(),
        "comm=known, load".to_owned(),
        format!("task={}/{tid}", std::process::id()),
        format!("value={} enabled={} running={}", value.value, value.enabled_ns, value.running_ns),
        format!("{}={:#x}", if ip_register == 16 { "ip" } else { "pc" }, first.ip),
    ] {
        assert!(script.contains(&text), "no '{text}' in\n{}", script.lines().take(30).collect::<Vec<_>>().join("\n"));
    }
}

/// Fake stack frames: a linked list in memory, to which the frame pointer of a thread points.
#[cfg(target_arch = "x86_64")]
mod deep {
    /// More frames than the kernel records.
    pub(crate) const FRAMES: usize = 200;
    /// First return address, where nothing is mapped; each further return address is 16 bytes higher.
    pub(crate) const FIRST_RETURN: u64 = 0x1_0000_0000;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Frame {
        next: *const Frame,
        returns_to: u64,
    }

    /// Runs for a moment with a frame pointer that leads through [`FRAMES`] frames.
    pub(crate) fn spin() {
        let mut frames = [Frame { next: std::ptr::null(), returns_to: 0 }; FRAMES];
        let start = frames.as_ptr();
        for (number, frame) in frames.iter_mut().enumerate() {
            frame.returns_to = FIRST_RETURN + number as u64 * 16;
            if number + 1 < FRAMES {
                frame.next = start.wrapping_add(number + 1);
            }
        }
        // SAFETY: the block restores the frame pointer before it ends. In between, no other code uses the frame pointer or the stack, except two
        // balanced pushes. `frames` outlives the block, which only reads it.
        unsafe {
            std::arch::asm!(
                "push rbp",
                "mov rbp, {frames}",
                "2: dec {count}",
                "jnz 2b",
                "pop rbp",
                frames = in(reg) frames.as_ptr(),
                count = inout(reg) 3_000_000u64 => _,
            );
        }
    }
}

/// A call chain with as many frames as the kernel records has the correct frames in the correct order. No chain has more frames.
#[test]
fn the_deepest_stacks_come_back_whole() {
    const NAME: &str = "the_deepest_stacks_come_back_whole";
    #[cfg(target_arch = "x86_64")]
    {
        static STOP: AtomicBool = AtomicBool::new(false);
        if !root(NAME) {
            return;
        }
        alone();
        let most: usize =
            std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").unwrap().trim().parse().unwrap();
        let most = most.min(bprec_format::bprec::sampler::FRAMES_MAX as usize);
        let scratch = Scratch::new();
        let path = scratch.path("perf.data");
        let spinner = Spinner::start("deep", &STOP, |_| deep::spin());
        record(&path, &["-q", "-a", "-g", "-e", "cpu-clock", "-F", "1000", "--bpf-sampler", "--", "sleep", "1.5"]);
        let tid = spinner.tid;
        drop(spinner);

        let expected: Vec<u64> = (0..most as u64 - 1).map(|number| deep::FIRST_RETURN + number * 16).collect();
        let (samples, _) = read(&path);
        let chains: Vec<Vec<u64>> = samples
            .iter()
            .filter(|sample| sample.pid_tid.1 == tid)
            .map(|sample| sample.payload().callchain.unwrap().iter().collect())
            .collect();
        assert!(chains.len() > 50, "{} samples of the load", chains.len());
        let user = |chain: &[u64]| -> Vec<u64> {
            chain.iter().skip_while(|word| **word != context::USER).skip(1).copied().collect()
        };
        let deep = chains.iter().filter(|chain| user(chain).len() == most && user(chain)[1..] == expected).count();
        // In the other samples, the thread was outside its loop.
        assert!(
            deep * 10 > chains.len() * 9,
            "only {deep} of {} call chains are complete; the first: {:x?}",
            chains.len(),
            chains.first()
        );
        assert!(chains.iter().all(|chain| user(chain).len() <= most));
        // Payloads with kernel and user stack can exceed 1,016 bytes, but not this limit.
        assert!(samples.iter().all(|sample| sample.raw.len() <= 4096));
    }
    #[cfg(not(target_arch = "x86_64"))]
    skip(NAME, "the frames are made for x86-64");
}

/// With rings of one page, most samples are lost; the program and the kernel both count each lost sample.
#[test]
fn what_the_rings_lose_is_counted() {
    if !root("what_the_rings_lose_is_counted") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let arguments = [
        "-q",
        "-a",
        "-m",
        "1",
        "-e",
        "cpu-clock",
        "-F",
        "100",
        "--bpf-sampler=+regs,+ustack",
        "--bpf-sampler-freq",
        "10000",
        "--",
        "sh",
        "-c",
        // The recorder is stopped for a while, so that it cannot keep up even on an idle machine.
        "sleep 0.3; kill -STOP $PPID; sleep 0.5; kill -CONT $PPID; sleep 0.3",
    ];
    record(&path, &arguments);
    let (samples, account) = read(&path);
    let counts = account.counts.unwrap();
    assert_eq!((account.rate, account.is_frequency), (10_000, true));
    assert_eq!((counts.failed, counts.last_errno), (0, 0));
    assert_eq!(counts.runs, counts.written + counts.full);
    assert_eq!(counts.written, samples.len() as u64);
    assert!(counts.full > 100, "{counts:?}");
    let report = report(&path, &[]);
    let sampler = event(&report, EVENT_NAME);
    assert_eq!(sampler["lost"].as_u64(), Some(counts.full), "lost samples are those that found the buffer full");
    assert_eq!(sampler["bpf_sampler"]["full"].as_u64(), Some(counts.full));
    assert_eq!(sampler["samples"]["samples"].as_u64(), Some(counts.written));
}

/// Children of a command inherit the program, and perf reads the program's output without complaint.
#[test]
fn children_inherit_it_and_perf_reads_it() {
    const NAME: &str = "children_inherit_it_and_perf_reads_it";
    if !root(NAME) {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let script = format!("sh -c 'echo $$ > {}; {count}'; true", scratch.path("pid").display());
    record(&path, &["-q", "-e", "cpu-clock", "-F", "4000", "--bpf-sampler", "--", "sh", "-c", &script]);
    let child: u32 = std::fs::read_to_string(scratch.path("pid")).unwrap().trim().parse().unwrap();
    let (samples, account) = read(&path);
    let of_child: Vec<&Sampled> = samples.iter().filter(|sample| sample.pid_tid.0 == child).collect();
    assert!(of_child.len() > 20, "{} of {} samples are the child's", of_child.len(), samples.len());
    for sample in &of_child {
        let payload = sample.payload();
        assert_eq!((payload.comm, payload.pid_tid), (Some(&b"sh"[..]), Some((child, child))));
        // A BPF program cannot read an inherited event: the value is absent, not 0.
        assert_eq!(payload.value, None);
    }
    assert_eq!(account.counts.unwrap().written, samples.len() as u64);
    if !perf_installed(NAME) {
        return;
    }
    let text = perf(&["script", "-F", "event,ip", "-i", path.to_str().unwrap()]);
    let theirs = text.lines().filter(|line| line.contains(EVENT_NAME)).count();
    assert_eq!(theirs, samples.len());
    perf(&["report", "--stdio", "-i", path.to_str().unwrap()]);
}

/// Impossible options are refused with a reason, and nothing is recorded.
#[test]
fn what_cannot_be_is_said() {
    if !root("what_cannot_be_is_said") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    for (arguments, reason) in [
        (&["--bpf-sampler=nonsense"][..], "no such field"),
        (&["--bpf-sampler=regs=nonsense"], "no such register"),
        (&["-e", "sched:sched_switch", "--bpf-sampler"], "cannot carry a BPF program"),
    ] {
        let output =
            bprec().args(["record", "-a", "-o"]).arg(&path).args(arguments).args(["--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
        assert!(!path.exists());
    }
}
