//! Checks the rules for every source file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use walkdir::{DirEntry, WalkDir};
use xshell::Shell;

use crate::skips;

const BPF_LICENCE: &str = "SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)";
const MAX_LINES: usize = 600;
/// Path prefixes of a developer's machine. The literals are split so that this file passes its own check.
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Crates whose source files are in folders, one for each stage of the data, with the names of files that may stand beside the folders.
const WITH_FOLDERS: [(&str, &[&str]); 2] =
    [("record/src/", &["lib.rs", "error.rs", "options.rs"]), ("report/src/", &["lib.rs", "error.rs", "session.rs"])];

/// Checks headers, sizes and contents of all sources.
pub(crate) fn check(sh: &Shell) -> Result<()> {
    let (mut checked, mut wrong) = (0, unnamed_programs(sh)?);
    let mut functions = BTreeSet::new();
    for path in files_under(".")? {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let path = path.strip_prefix(".").unwrap_or(&path).display().to_string();
        functions.extend(text.split("fn ").skip(1).filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())));
        wrong.extend(faults(&path, &text).into_iter().map(|fault| format!("{path}: {fault}")));
        checked += 1;
    }
    let list = sh.read_file(skips::LIST)?;
    let gone = skips::parse(&list)?.into_iter().filter(|it| !functions.contains(it.test));
    wrong.extend(gone.map(|it| format!("{}: no test is called {}", skips::LIST, it.test)));
    ensure!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
    println!("{checked} text files follow the rules");
    Ok(())
}

/// First words that are not allowed in a comment: a comment opens with a noun or a verb.
const OPENS_BADLY: [&str; 7] = ["What", "Whether", "Where", "Who", "Whose", "How", "Those"];

/// Returns true if the line is a comment and its text starts with one of [`OPENS_BADLY`].
fn opens_badly(line: &str) -> bool {
    let comment = ["/// ", "//! ", "// ", "* ", "/* "].iter().find_map(|sign| line.trim_start().strip_prefix(sign));
    comment.is_some_and(|text| {
        OPENS_BADLY.iter().any(|word| text.strip_prefix(word).is_some_and(|it| it.starts_with([' ', ','])))
    })
}

/// Returns test files that no test program includes: cargo only builds the programs in the manifest, so the others would never run.
fn unnamed_programs(sh: &Shell) -> Result<Vec<String>> {
    let mut unnamed = Vec::new();
    for directory in ["format", "report", "."] {
        let lists = ["Cargo.toml", "tests/main.rs", "tests/live.rs"].map(|list| format!("{directory}/{list}"));
        let lists = lists.map(|list| sh.read_file(list).unwrap_or_default()).concat();
        let is_named = |name: &str| {
            name == "main" || lists.contains(&format!("mod {name};")) || lists.contains(&format!("name = \"{name}\""))
        };
        for path in sh.read_dir(format!("{directory}/tests"))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.strip_suffix(".rs").is_some_and(|name| !is_named(name)) {
                unnamed.push(format!("{}: no test program includes it", path.display()));
            }
        }
    }
    Ok(unnamed)
}

fn faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let bpf_program = path.ends_with(".bpf.c");
    let c = bpf_program || path.ends_with(".h");
    let rust = path.ends_with(".rs");
    if c && !text.lines().next().is_some_and(|line| line.contains(BPF_LICENCE)) {
        faults.push(format!("the first line is not `{BPF_LICENCE}`"));
    }
    // A source without SEC is compiled only for its BTF and is never loaded, so it needs no licence string.
    if bpf_program && text.contains("SEC(") && !text.contains("\"Dual BSD/GPL\"") {
        faults.push("declares no \"Dual BSD/GPL\" licence to the kernel".to_owned());
    }
    if c && ["<linux/", "vmlinux.h"]
        .iter()
        .any(|header| text.contains(&format!("#include {header}")) || text.contains(&format!("#include \"{header}")))
    {
        faults.push("includes kernel headers".to_owned());
    }
    if rust && !path.ends_with("/tests.rs") && !text.starts_with("//!") {
        faults.push("does not open with its purpose (`//!`)".to_owned());
    }
    if bpf_program || rust {
        let lines = (1..).zip(text.lines()).filter(|(_, line)| opens_badly(line));
        let words = OPENS_BADLY.join("/");
        faults
            .extend(lines.map(|(at, _)| format!("line {at}: a comment opens with {words}, not with a noun or a verb")));
    }
    if (c || rust) && text.lines().count() > MAX_LINES {
        faults.push(format!("has {} lines, more than {MAX_LINES}", text.lines().count()));
    }
    for (root, top) in WITH_FOLDERS {
        if path.strip_prefix(root).is_some_and(|name| !name.contains('/') && !top.contains(&name)) {
            faults.push(format!("is in none of the folders of {root}"));
        }
    }
    // Expected outputs of recordings may contain paths of the machine on which they were recorded.
    if !path.starts_with("fixtures/recordings/") {
        faults.extend(MACHINE_PATHS.iter().filter(|word| text.contains(**word)).map(|word| format!("contains {word}")));
    }
    faults
}

/// Returns every file below a directory in sorted order, without build output, version control and symbolic links.
pub(crate) fn files_under(directory: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let all = WalkDir::new(directory).sort_by_file_name().into_iter();
    let kept = all.filter_entry(|entry| ["target", ".git"].iter().all(|name| entry.file_name() != *name));
    let entries = kept.collect::<Result<Vec<_>, _>>()?.into_iter();
    Ok(entries.filter(|entry| entry.file_type().is_file()).map(DirEntry::into_path).collect())
}

#[cfg(test)]
mod tests {
    use super::{faults, opens_badly};

    #[test]
    fn comments_open_with_a_noun_or_a_verb() {
        for bad in ["/// What it is.", "    // Whether it is.", "//! How, and why.", " * Those that go."] {
            assert!(opens_badly(bad), "{bad}");
        }
        for good in ["/// Whatever it is.", "// A name of What it is.", "let x = 1; // What", "How it is"] {
            assert!(!opens_badly(good), "{good}");
        }
        let found = faults("a.rs", "//! Doc.\n\n// What it is.\nlet x = 1;\n");
        assert_eq!(
            found,
            ["line 3: a comment opens with What/Whether/Where/Who/Whose/How/Those, not with a noun or a verb"]
        );
    }

    #[test]
    fn every_rule_is_seen_broken() {
        let bpf = "// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)\nchar L[] = \"Dual BSD/GPL\";\n";
        assert_eq!(faults("a.bpf.c", bpf), Vec::<String>::new());
        assert_eq!(faults("a.bpf.c", "SEC(\"xdp\") int x;\n").len(), 2);
        assert_eq!(faults("a.bpf.c", &format!("{bpf}#include <linux/bpf.h>\n")).len(), 1);
        assert_eq!(faults("a.bpf.c", &format!("{bpf}#include \"vmlinux.h\"\n")).len(), 1);
        assert_eq!(faults("a.rs", "//! Doc.\n"), Vec::<String>::new());
        assert_eq!(faults("a.rs", "fn main() {}\n").len(), 1);
        assert_eq!(faults("a.rs", &format!("//! Doc.\n{}", "\n".repeat(600))).len(), 1);
        assert_eq!(faults("record/src/drain/ring.rs", "//! Doc.\n"), Vec::<String>::new());
        assert_eq!(faults("record/src/lib.rs", "//! Doc.\n"), Vec::<String>::new());
        assert_eq!(faults("record/src/ring.rs", "//! Doc.\n").len(), 1);
        assert_eq!(faults("report/src/index/mod.rs", "//! Doc.\n"), Vec::<String>::new());
        assert_eq!(faults("report/src/index.rs", "//! Doc.\n").len(), 1);
        assert_eq!(faults("README.md", concat!("see /wo", "rk/x\n")).len(), 1);
    }
}
