//! Compiles the BPF programs, and checks that the committed objects equal the compiler's output for their sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::command::run;
use crate::tree::files_under;

/// Directories of BPF sources; each object is next to its source.
const DIRECTORIES: [&str; 2] = ["bpf/src/programs", "fixtures/bpf"];
const CLANG: &str = "clang-14";
const STRIP: &str = "llvm-strip-14";
/// Version of the compiler of the committed objects; another version may produce other bytes.
const PINNED_VERSION: &str = "14.0.6";

/// Compiles every source and overwrites its committed object.
pub(crate) fn rebuild() -> Result<()> {
    for source in sources()? {
        let object = source.with_extension("o");
        compile(&source, &object)?;
        println!("{}", object.display());
    }
    Ok(())
}

/// Compiles every source into a temporary directory and compares the objects with the committed objects. Prints SKIP if the pinned compiler is
/// missing.
pub(crate) fn check() -> Result<()> {
    let version = match Command::new(CLANG).arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(why) => {
            println!("SKIP bpf objects: {CLANG}: {why}");
            return Ok(());
        }
    };
    if !version.contains(PINNED_VERSION) {
        let found = version.lines().next().unwrap_or_default();
        println!("SKIP bpf objects: they are built with clang {PINNED_VERSION}, but this machine has {found:?}");
        return Ok(());
    }
    let scratch = std::env::temp_dir().join(format!("xtask-bpf-{}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("create {}", scratch.display()))?;
    let result = compare(&scratch);
    fs::remove_dir_all(&scratch).with_context(|| format!("remove {}", scratch.display()))?;
    result
}

fn compare(scratch: &Path) -> Result<()> {
    let (mut compared, mut stale) = (0, Vec::new());
    for source in sources()? {
        let committed = source.with_extension("o");
        let rebuilt = scratch.join("rebuilt.o");
        compile(&source, &rebuilt)?;
        let committed_bytes = fs::read(&committed).with_context(|| format!("read {}", committed.display()))?;
        if committed_bytes != fs::read(&rebuilt)? {
            stale.push(committed.display().to_string());
        }
        compared += 1;
    }
    ensure!(compared > 0, "no *.bpf.c found under {DIRECTORIES:?}");
    if !stale.is_empty() {
        bail!("these objects differ from a build of their sources; run `cargo xtask bpf`: {}", stale.join(", "));
    }
    println!("{compared} BPF objects equal a build of their sources");
    Ok(())
}

fn sources() -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for directory in DIRECTORIES {
        sources.extend(
            files_under(Path::new(directory))?
                .into_iter()
                .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".bpf.c"))),
        );
    }
    Ok(sources)
}

/// Compiles one source. The two path options keep the checkout's path out of BTF, so every checkout produces the same bytes.
fn compile(source: &Path, object: &Path) -> Result<()> {
    let here = std::env::current_dir()?;
    let mut clang = Command::new(CLANG);
    clang.args(["-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-fdebug-compilation-dir=."]);
    clang.arg(format!("-ffile-prefix-map={}=.", here.display()));
    // clang writes BTF only with -g; the names of fixtures without BTF end in `nobtf`.
    if !source.to_string_lossy().ends_with("nobtf.bpf.c") {
        clang.arg("-g");
    }
    run(clang.arg("-c").arg(source).arg("-o").arg(object))?;
    run(Command::new(STRIP).arg("-g").arg(object))
}
