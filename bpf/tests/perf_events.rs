//! Programs on perf events: a program runs after each way of attaching it, and no attachment remains after the test.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bprec_bpf::{AttachMethod, Attached};
use common::{bpftool, can_load, has_bpftool, kernel_is, perf_event, prog_id, program};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};

const BY_COOKIE: &[u8] = include_bytes!("../../fixtures/bpf/by_cookie.bpf.o");
/// Software event: the CPU time of a task, ns.
const TASK_CLOCK: (u32, u64) = (1, 1);

fn load(test: &str) -> Option<Object> {
    if !can_load(test) {
        return None;
    }
    if !kernel_is(5, 15) {
        println!("SKIP {test}: cookies of perf events need Linux 5.15");
        return None;
    }
    Some(ObjectBuilder::default().open_memory(BY_COOKIE).unwrap().load().unwrap())
}

fn runs(object: &Object, cookie: u64) -> u64 {
    let map = object.maps().find(|map| map.name() == "runs_by_cookie").unwrap();
    let value = map.lookup(&cookie.to_ne_bytes(), MapFlags::ANY).unwrap();
    value.map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().unwrap()))
}

/// Computes until the program has made `more` further runs with the cookie; false after a minute.
fn burn_until(object: &Object, cookie: u64, more: u64) -> bool {
    let wanted = runs(object, cookie) + more;
    let started = Instant::now();
    while runs(object, cookie) < wanted {
        if started.elapsed() > Duration::from_secs(60) {
            return false;
        }
        std::hint::black_box((0..1_000_000u64).fold(1u64, |x, i| x.wrapping_mul(31).wrapping_add(i)));
    }
    true
}

#[test]
fn by_link_it_runs_with_its_cookie_and_goes_when_dropped() {
    let test = "by_link_it_runs_with_its_cookie_and_goes_when_dropped";
    let Some(object) = load(test) else { return };
    let event = perf_event(TASK_CLOCK.0, TASK_CLOCK.1);
    let attached = Attached::new(program(&object, "count_runs_by_cookie").as_fd(), event.as_fd(), 4711).unwrap();
    assert_eq!(attached.method(), AttachMethod::Link);
    let link_id = attached.link_id().unwrap();
    assert!(burn_until(&object, 4711, 3));
    if has_bpftool(test) {
        let link = bpftool(&["link", "show", "id", &link_id.to_string()]);
        assert_eq!(link["prog_id"], prog_id(&object, "count_runs_by_cookie"), "{link}");
    }
    drop(attached);
    let links: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().flatten().collect();
    let is_link = |fd: &std::fs::DirEntry| {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.file_name().display()));
        text.is_ok_and(|text| text.contains(&format!("link_id:\t{link_id}\n")))
    };
    assert!(!links.iter().any(is_link));
    // The event continues without the program, and accepts another one.
    let before = runs(&object, 4711);
    let again = Attached::new(program(&object, "count_runs_by_cookie").as_fd(), event.as_fd(), 4712).unwrap();
    assert!(burn_until(&object, 4712, 3));
    assert_eq!(runs(&object, 4711), before);
    drop(again);
}

#[test]
fn by_ioctl_it_runs_without_a_cookie_and_goes_with_the_event() {
    let test = "by_ioctl_it_runs_without_a_cookie_and_goes_with_the_event";
    let Some(object) = load(test) else { return };
    let event = perf_event(TASK_CLOCK.0, TASK_CLOCK.1);
    let attached = Attached::by_ioctl(program(&object, "count_runs_by_cookie").as_fd(), event.as_fd()).unwrap();
    assert_eq!((attached.method(), attached.link_id()), (AttachMethod::Ioctl, None));
    assert!(burn_until(&object, 0, 3));
    drop(attached);
    drop(event);
    let after = runs(&object, 0);
    let other = perf_event(TASK_CLOCK.0, TASK_CLOCK.1);
    let other = (Attached::new(program(&object, "count_runs_by_cookie").as_fd(), other.as_fd(), 1).unwrap(), other);
    assert!(burn_until(&object, 1, 3));
    assert_eq!(runs(&object, 0), after, "the program does not run after its event was closed");
    drop(other);
}

#[test]
fn an_event_takes_one_program() {
    let test = "an_event_takes_one_program";
    let Some(object) = load(test) else { return };
    let event = perf_event(TASK_CLOCK.0, TASK_CLOCK.1);
    let program = program(&object, "count_runs_by_cookie");
    for first_by_link in [false, true] {
        let event = if first_by_link { event.try_clone().unwrap() } else { perf_event(TASK_CLOCK.0, TASK_CLOCK.1) };
        let first = match first_by_link {
            true => Attached::by_link(program.as_fd(), event.as_fd(), 1).unwrap(),
            false => Attached::by_ioctl(program.as_fd(), event.as_fd()).unwrap(),
        };
        let second = Attached::new(program.as_fd(), event.as_fd(), 2).unwrap_err();
        assert_eq!(second.errno(), Some(libc::EEXIST));
        assert!(second.to_string().contains("(EEXIST); the perf event already has a BPF program"), "{second}");
        drop(first);
    }
}
