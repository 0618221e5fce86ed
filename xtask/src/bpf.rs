//! Compiles the BPF programs, and checks that the committed objects equal the compiler's output for their sources.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::target_directory;
use crate::tree::files_under;

/// Directories of BPF sources; each object is next to its source.
const DIRECTORIES: [&str; 2] = ["bpf/src/programs", "fixtures/bpf"];
const CLANG: &str = "clang-14";
const STRIP: &str = "llvm-strip-14";
/// Version of the compiler of the committed objects; another version may produce other bytes.
const PINNED_VERSION: &str = "14.0.6";

/// Compiles every source and overwrites its committed object. With `check`, compares them instead, and prints SKIP if the pinned compiler is missing.
pub(crate) fn run(sh: &Shell, check: bool) -> Result<()> {
    let version = cmd!(sh, "{CLANG} --version").quiet().read().unwrap_or_else(|why| why.to_string());
    if check && !version.contains(PINNED_VERSION) {
        let found = version.lines().next().unwrap_or_default();
        println!("SKIP bpf objects: they are built with clang {PINNED_VERSION}, but this machine has {found:?}");
        return Ok(());
    }
    let (sources, rebuilt) = (sources()?, target_directory().join("rebuilt.bpf.o"));
    ensure!(!sources.is_empty(), "no *.bpf.c found under {DIRECTORIES:?}");
    let mut stale = Vec::new();
    for source in &sources {
        let committed = source.with_extension("o");
        let object = if check { &rebuilt } else { &committed };
        compile(sh, source, object)?;
        if sh.read_binary_file(&committed)? != sh.read_binary_file(object)? {
            stale.push(source.display().to_string());
        }
    }
    let names = stale.join(", ");
    ensure!(stale.is_empty(), "objects differ from builds of these sources; run `cargo xtask bpf`: {names}");
    println!("{} BPF objects equal a build of their sources", sources.len());
    Ok(())
}

fn sources() -> Result<Vec<PathBuf>> {
    let files = DIRECTORIES.into_iter().map(files_under).collect::<Result<Vec<_>>>()?;
    Ok(files.into_iter().flatten().filter(|path| path.to_string_lossy().ends_with(".bpf.c")).collect())
}

/// Compiles one source. The two path options keep the checkout's path out of BTF, so every checkout produces the same bytes.
fn compile(sh: &Shell, source: &Path, object: &Path) -> Result<()> {
    let paths = format!("-ffile-prefix-map={}=.", sh.current_dir().display());
    // clang writes BTF only with -g; the names of fixtures without BTF end in `nobtf`.
    let btf = (!source.to_string_lossy().ends_with("nobtf.bpf.c")).then_some("-g");
    let options = "-O2 -target bpf -mcpu=v3 -Wall -Werror -fdebug-compilation-dir=.".split(' ');
    cmd!(sh, "{CLANG} {options...} {paths} {btf...} -c {source} -o {object}").quiet().run()?;
    Ok(cmd!(sh, "{STRIP} -g {object}").quiet().run()?)
}
