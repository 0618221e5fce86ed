//! Turns of tests on the machine: tests of one file run together, and a test that measures runs alone.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::turns::Turns;

/// Longer than a thread needs if it does not wait.
const A_WHILE: Duration = Duration::from_millis(300);

#[test]
fn tests_of_a_file_run_side_by_side_and_all_others_wait() {
    let turns = Turns::new();
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        let first = turns.beside("one");
        let second = turns.beside("one");
        for file in [None, Some("two")] {
            let (turns, say) = (&turns, say.clone());
            scope.spawn(move || {
                let _turn = file.map_or_else(|| turns.alone(), |file| turns.beside(file));
                say.send("begun").unwrap();
                thread::sleep(Duration::from_millis(20));
                say.send("ended").unwrap();
            });
        }
        assert!(said.recv_timeout(A_WHILE).is_err());
        drop(first);
        assert!(said.recv_timeout(A_WHILE).is_err(), "one test still runs");
        drop(second);
        let order: Vec<_> = said.iter().take(4).collect();
        assert_eq!(order, ["begun", "ended", "begun", "ended"]);
    });
}

#[test]
fn nobody_joins_before_one_that_waits_to_be_alone() {
    let turns = Turns::new();
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        let first = turns.beside("one");
        let joins = |name, turn: fn(&Turns) -> crate::support::turns::Turn<'_>| {
            let (turns, say) = (&turns, say.clone());
            scope.spawn(move || {
                let _turn = turn(turns);
                say.send(name).unwrap();
            });
            assert!(said.recv_timeout(A_WHILE).is_err(), "{name} did not wait");
        };
        joins("alone", Turns::alone);
        joins("one", |turns| turns.beside("one"));
        drop(first);
        assert_eq!(said.iter().take(2).collect::<Vec<_>>(), ["alone", "one"]);
    });
}
