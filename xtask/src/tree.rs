//! Checks the rules for every source file.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, ensure};
use walkdir::WalkDir;
use xshell::Shell;

use crate::skips;

const BPF_LICENCE: &str = "SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)";
const MAX_LINES: usize = 600;
const KERNEL_HEADERS: [&str; 3] = ["#include <linux/", "#include <vmlinux.h", "#include \"vmlinux.h"];
/// Path prefixes of a developer's machine. The literals are split so that this file passes its own check.
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Crates whose source files are in folders, one for each stage of the data, with the names of files that may stand beside the folders.
const WITH_FOLDERS: [(&str, &[&str]); 2] =
    [("record/src/", &["lib.rs", "error.rs", "options.rs"]), ("report/src/", &["lib.rs", "error.rs", "session.rs"])];

/// Directories of tests whose packages name each test program: cargo would never run a file that no program includes.
const NAMED_TESTS: [&str; 3] = ["format/tests", "report/tests", "tests"];

/// First words that are not allowed in a comment: a comment opens with a noun or a verb.
const OPENS_BADLY: [&str; 7] = ["What", "Whether", "Where", "Who", "Whose", "How", "Those"];

/// Crates, each with its folders in their required order: a folder imports only from folders before it. Tests are excluded.
const ORDERED_FOLDERS: [(&str, &[&str]); 2] = [
    ("bpf/src", &["sys", "inspect", "programs"]),
    ("report/src", &["options", "model", "input", "index", "pass", "query", "view", "export", "stream"]),
];

/// A crate: its directory of sources, its folders in their required order, and the folder of each name that its root exports.
type Crate = (&'static str, &'static [&'static str], BTreeMap<String, String>);

/// Checks headers, sizes, contents and imports of all sources.
pub(crate) fn check(sh: &Shell) -> Result<()> {
    let (mut checked, mut wrong, mut code) = (0, Vec::new(), String::new());
    let read = |(root, folders)| Ok((root, folders, exported(&sh.read_file(format!("{root}/lib.rs"))?)));
    let crates = ORDERED_FOLDERS.into_iter().map(read).collect::<Result<Vec<Crate>>>()?;
    let all = WalkDir::new(".").sort_by_file_name().into_iter();
    for entry in all.filter_entry(|entry| ["target", ".git"].iter().all(|name| entry.file_name() != *name)) {
        let entry = entry?;
        let text = fs::read_to_string(entry.path()).ok().filter(|_| entry.file_type().is_file());
        let Some(text) = text else { continue };
        let path = entry.path().strip_prefix(".")?.display().to_string();
        let found = [faults(&path, &text), late_imports(&path, &text, &crates)].concat();
        wrong.extend(found.into_iter().map(|fault| format!("{path}: {fault}")));
        checked += 1;
        if path.ends_with(".rs") {
            code += &text;
        }
    }
    let list = sh.read_file(skips::LIST)?;
    let is_gone = |test: &str| test != skips::ANY && !code.contains(&format!("fn {test}("));
    let gone = skips::parse(&list)?.into_iter().filter(|it| is_gone(it.test));
    wrong.extend(gone.map(|it| format!("{}: no test is called {}", skips::LIST, it.test)));
    ensure!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
    println!("{checked} text files follow the rules");
    Ok(())
}

/// Returns true if the line is a comment and its text starts with one of [`OPENS_BADLY`].
fn opens_badly(line: &str) -> bool {
    let comment = ["/// ", "//! ", "// ", "* ", "/* "].iter().find_map(|sign| line.trim_start().strip_prefix(sign));
    comment.and_then(|text| text.split_once([' ', ','])).is_some_and(|(word, _)| OPENS_BADLY.contains(&word))
}

/// Returns true if the file is a test that no test program includes.
fn is_unnamed_test(path: &str) -> bool {
    let Some((directory, name)) = path.strip_suffix(".rs").and_then(|it| it.rsplit_once('/')) else { return false };
    let read = |list: &str| fs::read_to_string(format!("{directory}/{list}")).unwrap_or_default();
    let lists = || ["../Cargo.toml", "main.rs", "live.rs"].map(read).concat();
    let is_in = |lists: &str| lists.contains(&format!("mod {name};")) || lists.contains(&format!("name = \"{name}\""));
    NAMED_TESTS.contains(&directory) && name != "main" && !is_in(&lists())
}

fn faults(path: &str, text: &str) -> Vec<String> {
    let bpf_program = path.ends_with(".bpf.c");
    let c = bpf_program || path.ends_with(".h");
    let rust = path.ends_with(".rs");
    let (first, lines) = (text.lines().next().unwrap_or_default(), text.lines().count());
    let mut faults = Vec::new();
    let mut rule = |is_kept: bool, fault: &str| faults.extend((!is_kept).then(|| fault.to_owned()));
    rule(!c || first.contains(BPF_LICENCE), &format!("the first line is not `{BPF_LICENCE}`"));
    // A source without SEC is compiled only for its BTF and is never loaded, so it needs no licence string.
    let is_loaded = bpf_program && text.contains("SEC(");
    rule(!is_loaded || text.contains("\"Dual BSD/GPL\""), "declares no \"Dual BSD/GPL\" licence to the kernel");
    rule(!c || !KERNEL_HEADERS.iter().any(|it| text.contains(it)), "includes kernel headers");
    let has_purpose = path.ends_with("/tests.rs") || text.starts_with("//!");
    rule(!rust || has_purpose, "does not open with its purpose (`//!`)");
    rule(!(c || rust) || lines <= MAX_LINES, &format!("has {lines} lines, more than {MAX_LINES}"));
    rule(!is_unnamed_test(path), "no test program includes it");
    for (root, top) in WITH_FOLDERS {
        let is_placed = path.strip_prefix(root).is_none_or(|name| name.contains('/') || top.contains(&name));
        rule(is_placed, &format!("is in none of the folders of {root}"));
    }
    let words = OPENS_BADLY.join("/");
    for (at, _) in (1..).zip(text.lines()).filter(|(_, line)| (bpf_program || rust) && opens_badly(line)) {
        rule(false, &format!("line {at}: a comment opens with {words}, not with a noun or a verb"));
    }
    // Expected outputs of recordings may contain paths of the machine on which they were recorded.
    let is_recorded = path.starts_with("fixtures/recordings/");
    MACHINE_PATHS.iter().for_each(|word| rule(is_recorded || !text.contains(word), &format!("contains {word}")));
    faults
}

/// Maps each name that a crate's root exports (`pub use folder::part::{Name, Other};`) to its folder.
fn exported(lib: &str) -> BTreeMap<String, String> {
    let statements = lib.split("\npub use ").skip(1).filter_map(|rest| rest.split_once(';')?.0.split_once("::"));
    statements.flat_map(|(folder, rest)| words(rest).map(move |name| (name.to_owned(), folder.to_owned()))).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the imports from folders that come after the folder of the file.
fn late_imports(path: &str, text: &str, crates: &[Crate]) -> Vec<String> {
    let rank = |(root, folders, _): &Crate| {
        let (folder, _) = path.strip_prefix(root)?.strip_prefix('/')?.split_once('/')?;
        folders.iter().position(|it| *it == folder)
    };
    let found = crates.iter().find_map(|it| Some((it, rank(it)?))).filter(|_| !path.ends_with("tests.rs"));
    let Some(((_, folders, exported), own)) = found else { return vec![] };
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let code: String = text.lines().filter_map(|line| line.split("//").next()).collect::<Vec<_>>().join(" ");
    let names = code.split("crate::").skip(1).flat_map(|rest| {
        let mut depth = 0;
        // Only names directly below the root matter; a name in inner braces is below one of these names.
        let is_below_root = |c: &char| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0
        };
        let list: String = match rest.strip_prefix('{') {
            Some(list) => list.chars().take_while(|c| *c != ';').filter(is_below_root).collect(),
            None => words(rest).take(1).collect(),
        };
        list.split(',').filter_map(|part| words(part).next().map(str::to_owned)).collect::<Vec<_>>()
    });
    let targets = names.map(|name| exported.get(&name).cloned().unwrap_or(name));
    let later = targets.filter(|target| folders[own + 1..].contains(&target.as_str()));
    later.map(|target| format!("imports {target}, a later folder")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Crate, exported, faults, late_imports, opens_badly};

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

    #[test]
    fn folders_are_in_order() {
        let names = exported("mod low;\npub use low::inner::A;\npub use high::{\n    B, C,\n};\n");
        let crates: [Crate; 1] = [("x/src", &["low", "high"], names)];
        let of = |text: &str| late_imports("x/src/low/x.rs", text, &crates);
        for allowed in [
            "use crate::low::y;\nuse crate::{A, error::{high, D}};",
            "// crate::high::Y",
            "fn f() {}\n#[cfg(test)]\nmod tests { use crate::high::Y; }",
        ] {
            assert_eq!(of(allowed), Vec::<String>::new(), "{allowed}");
        }
        for refused in [
            "use crate::high::Y;",
            "use crate::{\n    low::{a, b},\n    high::Y,\n};",
            "use crate::{low::{a::{b, c}}, B};",
            "fn f() { crate::C::new() }",
        ] {
            assert_eq!(of(refused), ["imports high, a later folder"], "{refused}");
        }
        assert!(late_imports("x/src/high/x.rs", "use crate::A;", &crates).is_empty());
        assert!(late_imports("x/src/session.rs", "use crate::high;", &crates).is_empty());
        assert!(late_imports("x/src/low/tests.rs", "use crate::high;", &crates).is_empty());
        assert!(late_imports("y/src/low/x.rs", "use crate::high;", &crates).is_empty());
    }
}
