//! The inventory on the running kernel.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use bprec_bpf::{BtfCache, StatsGuard};
use bprec_fixtures::Fixture;
use bprec_format::bprec::state::KernelSymbol;

use super::load_watcher::LoadEvent;
use super::{Programs, Reading};

/// After the busiest program is unloaded, new runs of the other programs are still counted. Needs a real kernel and root.
#[test]
fn a_program_that_goes_takes_no_runs_of_others_along() {
    let test = "a_program_that_goes_takes_no_runs_of_others_along";
    let Ok(_statistics) = StatsGuard::enable() else {
        return println!("SKIP {test}: run statistics cannot be switched on here");
    };
    let mut busy = Fixture::RAW_TP.open().unwrap().load().unwrap();
    busy.attach().unwrap();
    let switches = |count| (0..count).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
    switches(200);
    let mut stays = Fixture::RAW_TP.open().unwrap().load().unwrap();
    stays.attach().unwrap();
    let mut programs = Programs::new(Arc::new(BtfCache::new()), None, Vec::new());
    programs.enumerate().unwrap();
    // Runs before the first reading do not count as new.
    let (_, first) = programs.run_stats(Reading::All);
    assert_eq!(first, 0);
    drop(busy);
    // The kernel unloads the program a moment after it is released.
    switches(50);
    assert!(programs.new_runs() >= 50);
    switches(20);
    let (_, last) = programs.run_stats(Reading::Changed);
    assert!(last >= 20, "{last}");
}

/// Images that appear or vanish while the kernel prints its symbols, or later: the latest event of an address decides.
#[test]
fn images_are_those_of_the_start_with_what_has_changed() {
    let image = |addr, name: &str| KernelSymbol { addr, len_bytes: 8, name: name.into() };
    let mut programs = Programs::new(Arc::new(BtfCache::new()), None, Vec::new());
    let hear = |programs: &mut Programs, event| assert!(programs.take_in(event, &mut Vec::new()).is_none());
    hear(&mut programs, LoadEvent::ImageWent(0x10));
    hear(&mut programs, LoadEvent::ImageCame(image(0x20, "new")));
    programs.add_images(vec![image(0x10, "gone"), image(0x20, "old"), image(0x30, "stays"), image(0x40, "goes")]);
    hear(&mut programs, LoadEvent::ImageWent(0x40));
    hear(&mut programs, LoadEvent::ImageCame(image(0x50, "came")));
    let names: Vec<&[u8]> = programs.images().map(|image| &image.name[..]).collect();
    assert_eq!(names, [&b"new"[..], b"stays", b"came"]);
}
