//! `cargo xtask vm static`: builds the static executable for Arm on x86-64, and tries it in the guest.

use anyhow::Result;
use xshell::{Shell, cmd};

use super::{cross, guest, named};

const GUEST: &str = "arm64-6.12";
/// Arguments of cargo, as in `setup/package static`.
const BUILD: [&str; 5] = [
    "build",
    "--release",
    "--locked",
    "--features=static",
    r#"--config=target.aarch64-unknown-linux-gnu.rustflags = ["-C", "target-feature=+crt-static"]"#,
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
pub(crate) fn make(sh: &Shell) -> Result<()> {
    cross::cargo(sh, &BUILD)?.quiet().run()?;
    let (target, strip) = (crate::target_directory(), format!("{}strip", cross::TOOLS));
    let program = sh.create_dir(target.join("package"))?.join(concat!("bprec-", env!("CARGO_PKG_VERSION"), "-aarch64"));
    let built = cross::directory().join(cross::TRIPLE).join("release/bprec");
    cmd!(sh, "{strip} -o {program} {built}").quiet().run()?;

    let directory = target.join("vm/static");
    let payload = directory.join("payload");
    sh.write_file(payload.join("run.sh"), TRY)?;
    sh.copy_file(&program, payload.join("bprec"))?;
    guest::run(sh, named(GUEST)?, &payload, &directory.join("out"), guest::LIMIT)?.succeeded()?;
    println!("{}: records and reports on {GUEST}", program.display());
    Ok(())
}
