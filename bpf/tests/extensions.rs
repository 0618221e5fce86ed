//! bprec counts extensions (freplace). It does not count programs with a placeholder function for extensions, because the kernel refuses to replace a
//! function that is counted. Needs trampolines (fentry, fexit), which not every machine allows.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use bprec_bpf::{BtfCache, ProgSnapshot, Program, Refusals};
use bprec_fixtures::{Fixture, Loaded};
use common::{attach, position_of, profiler};

const PLACE: &str = "place_for_another";

fn snapshot(loaded: &Loaded, name: &str) -> ProgSnapshot {
    Program::take(loaded.id_of(name).unwrap()).unwrap().fetch(&BtfCache::new()).unwrap()
}

fn dispatcher() -> Loaded {
    Fixture::DISPATCHER.open().unwrap().load().unwrap()
}

/// Loads an extension and attaches it in place of the function `PLACE` of the program `name`. Returns the error if the kernel refuses the attachment.
fn extension(target: &Loaded, name: &str) -> Result<Loaded, String> {
    let mut loaded = Fixture::EXTENSION.open().unwrap().on_function_of(target, name, PLACE).unwrap().load().unwrap();
    match loaded.attach() {
        Ok(()) => Ok(loaded),
        Err(error) => Err(format!("{error:#}")),
    }
}

#[test]
fn programs_with_a_place_for_extensions_are_left_alone() {
    let Some(_) = profiler("programs_with_a_place_for_extensions_are_left_alone") else { return };
    let dispatcher = dispatcher();
    let counted = Fixture::COUNTED.open().unwrap().load().unwrap();
    let mut refusals = Refusals::look().unwrap();
    let reason = |refusals: &Refusals, loaded: &Loaded, name| refusals.reason(&snapshot(loaded, name));
    assert!(reason(&refusals, &dispatcher, "xdp_dispatcher").unwrap().contains("it is a dispatcher"));
    assert!(reason(&refusals, &dispatcher, "pass_to_another").unwrap().contains("is an empty placeholder"));
    for name in ["loop_of_100", "call_a_subprogram", "run_inside_itself"] {
        assert_eq!(reason(&refusals, &counted, name), None, "{name}");
    }
    let extension = extension(&dispatcher, "pass_to_another").unwrap();
    refusals.refresh().unwrap();
    assert!(reason(&refusals, &dispatcher, "pass_to_another").unwrap().contains("an extension program has replaced"));
    assert_eq!(reason(&refusals, &extension, "run_in_its_place"), None);
}

#[test]
fn an_extension_is_kept_off_the_function_that_is_traced() {
    let Some(profiler) = profiler("an_extension_is_kept_off_the_function_that_is_traced") else { return };
    let dispatcher = dispatcher();
    let place = position_of(&dispatcher, "pass_to_another", PLACE);
    let pair = attach(&profiler, &dispatcher, "pass_to_another", place);
    let refused = extension(&dispatcher, "pass_to_another").map(drop).unwrap_err();
    assert!(refused.contains("busy"), "{refused}");
    drop(pair);
    // Without the probe, an extension can replace the placeholder function of each of the two programs.
    drop(extension(&dispatcher, "xdp_dispatcher").unwrap());
    let extension = extension(&dispatcher, "pass_to_another").unwrap();
    dispatcher.run("pass_to_another", 3).unwrap();
    assert_eq!(extension.entered("run_in_its_place").unwrap(), 3);
}

#[test]
fn an_extension_itself_is_counted() {
    let Some(profiler) = profiler("an_extension_itself_is_counted") else { return };
    let dispatcher = dispatcher();
    let extension = extension(&dispatcher, "xdp_dispatcher").unwrap();
    let mut pair = attach(&profiler, &extension, "run_in_its_place", 0);
    dispatcher.run("xdp_dispatcher", 500).unwrap();
    pair.detach();
    let counted = pair.read().unwrap();
    assert_eq!(extension.entered("run_in_its_place").unwrap(), 500);
    assert_eq!((counted.runs, counted.measured, pair.misses()), (500, 500, Some(0)));
}
