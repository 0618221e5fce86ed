//! `cargo xtask vm static`: builds the static executable for Arm on x86-64, and tries it in the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::packages::fresh;
use super::{GUESTS, cross, guest, images};
use crate::command;

const GUEST: &str = "arm64-6.12";
const MACHINE: &str = "aarch64";
/// Arguments of cargo, as in `setup/package static`.
const BUILD: [&str; 6] = [
    "build",
    "--release",
    "--features=static",
    "--target-dir=target/packaged",
    "--config",
    r#"target.aarch64-unknown-linux-gnu.rustflags = ["-C", "target-feature=+crt-static"]"#,
];

/// Script that fails if the executable needs the dynamic linker, if it records nothing, or if the report lacks the table.
const TRY: &str = r#"set -e
! grep -q ld-linux-aarch64 bprec
./bprec record -a -o /tmp/trial.data -- sleep 2
./bprec report -i /tmp/trial.data >/out/table.txt
grep -q '^ *ID  *PROGRAM' /out/table.txt
./bprec doctor >/out/doctor.txt
"#;

/// Builds the executable beside the results of `setup/package static`, and tries it.
pub(crate) fn make() -> Result<()> {
    cross::cargo(&BUILD)?;
    let target = crate::target_directory();
    let package = target.join("package");
    fs::create_dir_all(&package).with_context(|| format!("create {}", package.display()))?;
    let program = package.join(format!("bprec-{}-{MACHINE}", env!("CARGO_PKG_VERSION")));
    let built = Path::new("target/packaged").join(cross::TRIPLE).join("release/bprec");
    command::run(Command::new(format!("{}strip", cross::TOOLS)).arg("-o").arg(&program).arg(built))?;

    let found = GUESTS.iter().find(|guest| guest.name == GUEST).context("no such guest")?;
    let directory = target.join("vm").join("static");
    let (payload, out): (PathBuf, PathBuf) = (directory.join("payload"), directory.join("out"));
    fresh(&payload)?;
    fs::copy(&program, payload.join("bprec")).context("copy the program")?;
    fs::write(payload.join("run.sh"), TRY)?;
    let run = guest::run(found, &images::prepare(found)?, &payload, &out, guest::LIMIT)?;
    match run.outcome {
        guest::Outcome::Ended(0) => {}
        outcome => bail!("{GUEST}: {outcome}; see {}", out.join("console.log").display()),
    }
    println!("{}: records and reports on {GUEST}", program.display());
    Ok(())
}
