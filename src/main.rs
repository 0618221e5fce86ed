//! The `bprec` program; what it is made of stands in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bprec::main()
}
