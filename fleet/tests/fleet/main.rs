//! The program from outside, on the recordings of this repository.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod damage;
mod import;
mod kill;
mod page;
mod planted;
mod questions;
mod readers;
mod schema;
mod spark;
mod sums;
mod support;
