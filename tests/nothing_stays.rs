//! After any end of a recording, `kill -9` included, the kernel is as it was. Real kernel, root; a test binary of its own, so that
//! no other test's programs come and go beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Scratch, bpf_ids, bprec, record, root, stats_sysctl};

/// What there is now that was not there before: objects of each kind. The kernel frees what a process held from workers, so
/// that it is asked again for a while.
fn left_behind(before: &[Vec<u64>; 3]) -> Vec<Vec<u64>> {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let left: Vec<Vec<u64>> = objects()
            .into_iter()
            .zip(before)
            .map(|(now, before)| now.into_iter().filter(|id| !before.contains(id)).collect())
            .collect();
        if left.iter().all(Vec::is_empty) || Instant::now() > patience {
            return left;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn objects() -> [Vec<u64>; 3] {
    ["prog", "map", "link"].map(bpf_ids)
}

#[test]
fn nothing_stays_in_the_kernel() {
    if !root("nothing_stays_in_the_kernel") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let (before, switch) = (objects(), stats_sysctl());
    let nothing = vec![Vec::<u64>::new(); 3];

    record(&path, &["-q", "-a", "--", "sleep", "0.3"]);
    assert_eq!(left_behind(&before), nothing, "programs, maps, links after a clean end");
    assert_eq!(stats_sysctl(), switch);

    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGKILL];
    let object = concat!("--bpf-object=", env!("CARGO_MANIFEST_DIR"), "/fixtures/bpf/ip_histogram.bpf.o");
    let ways =
        signals.into_iter().flat_map(|signal| [None, Some("--aggregate"), Some(object)].map(|way| (signal, way)));
    for (signal, more) in ways {
        let mut child = bprec()
            .args(["record", "-q", "-a", "-e", "cpu-clock", "-o"])
            .arg(&path)
            .args(more)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(700));
        // SAFETY: kill(2) takes two numbers; the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let status = child.wait().unwrap();
        assert_eq!(status.success(), signal != libc::SIGKILL, "signal {signal}: {status}");
        assert_eq!(left_behind(&before), nothing, "programs, maps, links after signal {signal} {more:?}");
        assert_eq!(stats_sysctl(), switch, "after signal {signal}");
    }
}
