//! Answers on the first screen of the page: the owner of the costliest program, and the change that saves most. Also the page in busy or old
//! browsers.

use super::{bprec, repository, succeed, texts};
use serde_json::{Value, json};

/// Asserts that the page names the owner and the change that saves most.
pub(super) fn of_first_screen(seen: &Value, recording: &str) {
    let json = succeed(bprec().args(["report", "--advise", "--json", "-i"]).arg(repository().join(recording)));
    let advice: Value = serde_json::from_slice(&json.stdout).unwrap();
    // The loader holds all programs of these recordings.
    let claims = texts(&seen["claims"]);
    assert!(claims[1].ends_with("owner: bprec-load"), "{recording}: {claims:?}");
    let finding = &advice["findings"][0];
    let saves = match finding["saves"]["machine_percent"].as_f64() {
        Some(percent) => format!("saves at most {percent:.2} % of the machine"),
        None => format!("saves at most {} samples", finding["saves"]["samples"]),
    };
    let program = finding["programs"][0]["program"].as_str().unwrap();
    let remedy = claims.last().unwrap();
    let is_it = remedy.starts_with("What to do") && remedy.contains(&saves) && remedy.contains(program);
    assert!(is_it, "{recording}: {remedy}");
}

/// Asserts that a busy browser draws all tables for a search and for printing, and that a browser without `DecompressionStream` still shows the
/// programs.
pub(super) fn of_other_browsers(seen: &Value, recording: &str) {
    for kind in ["searched", "printed"] {
        assert_eq!(seen[kind], json!([0, 4]), "{recording}: tables before and after, {kind}");
    }
    let plain = seen["without_inflating"].as_str().unwrap();
    assert!(plain.contains("it lacks DecompressionStream"), "{recording}: {plain}");
    let costliest = texts(&seen["costs"][0])[2];
    assert!(plain.contains(seen["percent"].as_str().unwrap()) && plain.contains(costliest), "{recording}: {plain}");
}
