//! bprec
fn main() {}
