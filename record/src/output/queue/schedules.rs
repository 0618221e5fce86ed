//! The queue under a scheduler that tries many orders of the drain, sources, the control thread and the output. The scheduler finds deadlocks.
//! `cargo test -p bprec-record --features schedules --lib schedules::`

#![allow(clippy::unwrap_used, reason = "a test")]

use shuttle::{check_pct, check_random, thread};

use super::*;

/// Schedules that each test tries, by each of two schedulers.
const SCHEDULES: usize = 20_000;
/// Preemptions of a schedule that is otherwise free of preemption.
const PREEMPTIONS: usize = 3;
const SOURCES: u8 = 2;
/// Messages of each source. All together are more than the queue takes, so sources have to wait.
const OF_SOURCE: u8 = 40;
/// Buffers of the drain. Two fill the pool, so the drain has to wait, too.
const OF_DRAIN: u8 = 6;

fn try_all(test: fn()) {
    check_random(test, SCHEDULES);
    check_pct(test, SCHEDULES, PREEMPTIONS);
}

/// Sends the messages of a source; returns how many were accepted.
fn source(queue: &Queue, number: u8) -> u8 {
    (0..OF_SOURCE).take_while(|nth| queue.send(Message::Records(vec![number, *nth])).is_ok()).count() as u8
}

/// Sends buffers as the drain does: waits for its waker while there is no buffer. Returns the number of accepted buffers.
fn drain(queue: &Queue, waker: &Waker) -> u8 {
    for nth in 0..OF_DRAIN {
        let mut buffer = loop {
            match queue.buffer(POOL_BYTES / 2, false) {
                Some(buffer) => break buffer,
                None => {
                    while !waker.take() {
                        // After the end of the output nobody wakes the drain; it learns of the end when it sends.
                        if queue.push(Message::Plain(Vec::new())).is_err() {
                            return nth;
                        }
                        thread::yield_now();
                    }
                }
            }
        };
        buffer.push(nth);
        if queue.push(Message::Ring(buffer)).is_err() || queue.end_pass().is_err() {
            return nth;
        }
    }
    OF_DRAIN
}

#[test]
fn each_message_arrives_once_in_the_order_of_its_sender() {
    try_all(|| {
        let waker = Waker::new().unwrap();
        let (queue, received) = queue(waker.clone());
        let sources: Vec<_> = (0..SOURCES)
            .map(|number| {
                let queue = queue.clone();
                thread::spawn(move || source(&queue, number))
            })
            .collect();
        let rings = {
            let queue = queue.clone();
            thread::spawn(move || drain(&queue, &waker))
        };
        let output = thread::spawn(move || {
            let (mut of_source, mut of_drain) = ([0; SOURCES as usize], 0);
            let mut is_round_due = false;
            while let Some((message, _)) = received.next() {
                match message {
                    Message::Records(record) => {
                        assert_eq!(record[1], of_source[usize::from(record[0])]);
                        of_source[usize::from(record[0])] += 1;
                    }
                    Message::Ring(buffer) => {
                        assert_eq!(buffer, [of_drain]);
                        of_drain += 1;
                        is_round_due = true;
                        received.give_back(buffer);
                    }
                    Message::Round { .. } => is_round_due = false,
                    _ => {}
                }
            }
            assert!(!is_round_due, "no round ended after the last buffer");
            assert_eq!(received.shared.state().pooled_bytes, 0);
            (of_source, of_drain)
        });
        for source in sources {
            assert_eq!(source.join().unwrap(), OF_SOURCE);
        }
        assert_eq!(rings.join().unwrap(), OF_DRAIN);
        queue.close();
        assert_eq!(output.join().unwrap(), ([OF_SOURCE; SOURCES as usize], OF_DRAIN));
    });
}

#[test]
fn nobody_waits_for_an_output_that_has_ended() {
    try_all(|| {
        let waker = Waker::new().unwrap();
        let (queue, received) = queue(waker.clone());
        let sender = queue.clone();
        let sending = thread::spawn(move || source(&sender, 0) + source(&sender, 1));
        let rings = {
            let queue = queue.clone();
            thread::spawn(move || drain(&queue, &waker))
        };
        let output = thread::spawn(move || drop(received.next()));
        output.join().unwrap();
        sending.join().unwrap();
        rings.join().unwrap();
        assert!(queue.send(Message::Records(Vec::new())).is_err());
    });
}
