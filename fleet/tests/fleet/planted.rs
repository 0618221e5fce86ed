//! Fleets in which it is known what got slower.

use crate::support::{Lake, recordings_of, rows};
use bprec_generate::{Fleet, Regression};
use std::collections::BTreeMap;

/// Programs that are 20 % and 100 % slower on the second day are found, on the kernel where they are and on no other; of programs that stayed as they
/// were none is called slower or faster.
#[test]
fn what_was_made_slower_is_found_and_nothing_else() {
    let planted = |program, kernel, percent| Regression { program, kernel, percent };
    let regressions = vec![planted(2, 0, 20), planted(5, 1, 100), planted(5, 0, 20)];
    let fleet = Fleet { hosts: 30, programs: 8, record_bytes: 1, seed: 3, regressions };
    let place = tempfile::tempdir().unwrap();
    let lake = Lake::with(&recordings_of(&fleet, place.path()), &[]);
    let found = rows(&lake.query(&["regressed", "--format", "json"]));
    assert_eq!(found.len(), 16, "each program on each kernel: {found:?}");
    let mut alarms = BTreeMap::new();
    for row in &found {
        assert_eq!(row["pairs"], 15, "{row}");
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        if text("verdict") != "unclear" {
            alarms.insert((text("name"), text("kernel_release")), (text("verdict"), row["ratio"].as_f64().unwrap()));
        }
    }
    assert_eq!(alarms.len(), fleet.regressions.len(), "{alarms:?}");
    for planted in &fleet.regressions {
        let key = (Fleet::program_name(planted.program), Fleet::kernel_release(planted.kernel).to_owned());
        let (verdict, ratio) = &alarms[&key];
        assert_eq!(verdict, "slower", "{key:?}");
        let expected = 1.0 + f64::from(planted.percent) / 100.0;
        // Three standard errors of fifteen pairs of recordings that differ by 4 %.
        assert!((ratio / expected - 1.0).abs() < 0.044, "{key:?}: {ratio}");
    }
}
