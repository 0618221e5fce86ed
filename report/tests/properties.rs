//! Properties of every recording, also of damaged ones: all outputs have the same totals, a second rewrite or recovery
//! changes nothing, and memory stays in proportion to the input.
//!
//! `BPREC_PROPERTIES` is the number of damaged recordings to try; the default suits CI.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;
#[path = "support/damaged.rs"]
mod damaged;
#[path = "support/limits.rs"]
mod limits;
#[path = "support/totals.rs"]
mod totals;

use std::io::Cursor;

use bprec_report::{Input, RewriteOptions, Source, rewrite};
use damaged::{Numbers, inputs, mutate};
use limits::within_limits;
use totals::totals_agree;

/// Number of damaged recordings to try.
const TRIED: u64 = 1000;

fn rewritten(bytes: &[u8], repair: bool) -> Option<Vec<u8>> {
    let mut out = Cursor::new(Vec::new());
    let options = RewriteOptions { repair, ..RewriteOptions::default() };
    rewrite(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out).ok()?;
    Some(out.into_inner())
}

#[test]
fn properties_hold_of_damaged_recordings() {
    let inputs = inputs();
    let tried = std::env::var("BPREC_PROPERTIES").ok().and_then(|n| n.parse().ok()).unwrap_or(TRIED);
    let (mut compared, mut again) = (0, 0);
    for round in 0..tried {
        let mut numbers = Numbers(!round);
        let (name, original) = &inputs[numbers.below(inputs.len())];
        let other = &inputs[numbers.below(inputs.len())].1;
        let mut bytes = original.clone();
        // Each input is tested once unchanged, then damaged.
        if round >= inputs.len() as u64 {
            mutate(&mut bytes, other, &mut numbers);
        }
        let about = format!("{name}, round {round}");
        let input = Input::from_bytes("test", bytes.clone());
        compared += u64::from(totals_agree(&about, &input));
        within_limits(&about, bytes.len(), || {
            for repair in [false, true] {
                let Some(once) = rewritten(&bytes, repair) else { continue };
                let twice = rewritten(&once, repair);
                assert!(
                    twice.is_some_and(|twice| twice == once),
                    "{about}, repair {repair}: a second rewrite changes the file"
                );
                again += 1;
            }
        });
    }
    eprintln!("{tried} recordings: totals of {compared} compared, {again} rewritten twice");
    assert!(compared > tried / 4 && again > tried / 2, "{compared} and {again} of {tried}");
}
