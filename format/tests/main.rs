//! Tests of the formats through their public interface.
//!
//! One program for all tests, because each test program must be linked. Each file is named here by its path, so that its own modules stay
//! beside it. `cargo test -p bprec-format --test it FILE::` runs one file.
#![allow(clippy::duplicate_mod, reason = "each file names the modules that it needs")]

#[path = "btf.rs"]
mod btf;
#[path = "containers.rs"]
mod containers;
#[path = "corpus.rs"]
mod corpus;
#[path = "features.rs"]
mod features;
#[path = "front_door.rs"]
mod front_door;
#[path = "perf_reads_features.rs"]
mod perf_reads_features;
#[path = "recordings_bpf.rs"]
mod recordings_bpf;
#[path = "round_trip.rs"]
mod round_trip;
#[path = "states.rs"]
mod states;
