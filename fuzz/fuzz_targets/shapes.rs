//! Reads a dense or large recording in one view or export. The first bytes choose the case and its sizes.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;
#[path = "../../report/tests/support/shapes.rs"]
mod shapes;

use limits::within_limits;
use shapes::Case;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((chosen, _)) = bytes.split_first_chunk::<8>() else { return };
    let numbers = [0, 2, 4, 6].map(|at| u16::from_le_bytes([chosen[at], chosen[at + 1]]));
    let case = Case::draw(numbers);
    within_limits(&case.about, case.input_bytes(), || case.read());
});
