//! Tests of `bprec-fleet`, on recordings of this repository and on generated ones.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod bucket;
mod damage;
mod hosts;
mod import;
mod keys;
mod kill;
mod page;
mod planted;
mod questions;
mod readers;
mod retention;
mod schema;
mod spark;
mod summary;
mod sums;
mod support;
mod versions;
