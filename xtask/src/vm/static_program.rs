//! `cargo xtask vm static`: builds the static executable for Arm on x86-64, and tries it in the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::packages::{Suite, fresh, unpack};
use super::{GUESTS, cache, cross, guest, images};

const GUEST: &str = "arm64-6.12";
const MACHINE: &str = "aarch64";
/// Release and package of the linked libelf.a. The libelf.a of the compiler's release calls a part of elfutils that is missing there.
const LIBELF: (&str, &str) = ("bookworm", "libelf-dev");
/// Arguments of cargo, as in `setup/package static`.
const BUILD: [&str; 6] = [
    "build",
    "--release",
    "--locked",
    "--features=static",
    "--config",
    r#"target.aarch64-unknown-linux-gnu.rustflags = ["-C", "target-feature=+crt-static", "-L", "native=/target/libelf/usr/lib/aarch64-linux-gnu", "-L", "native=/usr/lib/aarch64-linux-gnu"]"#,
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
    let target = crate::target_directory();
    let built = target.join("vm").join("cross-static");
    libelf(&built.join("libelf"))?;
    cross::cargo(&BUILD, &built)?;
    let program = target.join("package").join(format!("bprec-{}-{MACHINE}", env!("CARGO_PKG_VERSION")));
    strip(&built.join("aarch64-unknown-linux-gnu/release/bprec"), &program)?;

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

/// Unpacks libelf.a into a directory that the build can read.
fn libelf(directory: &Path) -> Result<()> {
    fresh(directory)?;
    let (release, package) = LIBELF;
    let suite = Suite::open(&cache()?, &[release], "arm64")?;
    for deb in suite.download(&[package.to_owned()])? {
        unpack(&deb, directory, &["./usr/share/*", "./usr/include/*"])?;
    }
    suite.close()
}

fn strip(program: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("no directory")?)?;
    crate::command::run(Command::new("aarch64-linux-gnu-strip").arg("-o").arg(to).arg(program))
        .context("Debian has it in binutils-aarch64-linux-gnu")
}
