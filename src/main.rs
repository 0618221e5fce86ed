//! The `bprec` program; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bprec::main()
}
