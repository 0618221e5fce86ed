//! Dense and large recordings of random sizes: many programs × events, long names, deep expressions, attrs between records. For all sizes, reading
//! takes memory and time in proportion to the input. One third of the recordings are also damaged.
//!
//! `BPREC_SHAPES` is the number of recordings to try, or a range: `400..500`. The default suits CI.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;
#[path = "support/damaged.rs"]
#[allow(dead_code, reason = "recordings are made here")]
mod damaged;
#[path = "support/limits.rs"]
mod limits;
#[path = "support/shapes.rs"]
mod shapes;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use damaged::{Numbers, mutate};
use limits::within_limits;
use shapes::Case;

fn rounds() -> Range<u64> {
    let asked = std::env::var("BPREC_SHAPES").unwrap_or_else(|_| "200".to_owned());
    let (start, end) = asked.split_once("..").unwrap_or(("0", &asked));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("BPREC_SHAPES={asked}: not N or FROM..TO"));
    number(start)..number(end)
}

/// Cases that once exceeded the limits of memory or time.
const ONCE_TOO_MUCH: [[u16; 4]; 2] = [[8, 0, 0xffff, 0x9300], [0x25, 0x25, 0, 0xb500]];

#[test]
fn dense_and_large_recordings_are_read_within_the_limits() {
    let rounds = rounds();
    let mut found = Vec::new();
    for case in ONCE_TOO_MUCH.map(Case::draw) {
        within_limits(&case.about, case.input_bytes(), || case.read());
    }
    for round in rounds.clone() {
        let mut numbers = Numbers(round);
        let mut case = Case::draw([0; 4].map(|_| numbers.below(1 << 16) as u16));
        if numbers.below(3) == 0 {
            let other = case.recording.clone();
            mutate(&mut case.recording, &other, &mut numbers);
        }
        let about = format!("round {round}: {}", case.about);
        let read = || within_limits(&about, case.input_bytes(), || case.read());
        if catch_unwind(AssertUnwindSafe(read)).is_err() {
            found.push(about);
        }
    }
    eprintln!("shapes {rounds:?}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}
