//! format
#![forbid(unsafe_code)]
