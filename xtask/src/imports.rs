//! Checks the imports between the folders of a crate: a folder imports only from folders before it. Tests are excluded.

use std::collections::BTreeMap;

use anyhow::Result;
use xshell::Shell;

/// Crates, each with its folders in their required order.
const CRATES: [(&str, &[&str]); 2] = [
    ("bpf/src", &["sys", "inspect", "programs"]),
    ("report/src", &["options", "model", "input", "index", "pass", "query", "view", "export", "stream"]),
];

/// A crate: its directory of sources, its folders in their required order, and the folder of each name that its root exports.
pub(crate) type Crate = (&'static str, &'static [&'static str], BTreeMap<String, String>);

/// Returns all crates with ordered folders.
pub(crate) fn crates(sh: &Shell) -> Result<Vec<Crate>> {
    let read = |(root, folders)| Ok((root, folders, exported(&sh.read_file(format!("{root}/lib.rs"))?)));
    CRATES.into_iter().map(read).collect()
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
pub(crate) fn faults(path: &str, text: &str, crates: &[Crate]) -> Vec<String> {
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
        let list = match rest.strip_prefix('{').and_then(|list| list.split(';').next()) {
            // Only names directly below the root matter; a name in inner braces is below one of these names.
            Some(list) => list.replace(
                |c| {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    depth != 0
                },
                "",
            ),
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
    use super::{Crate, exported, faults};

    #[test]
    fn folders_are_in_order() {
        let names = exported("mod low;\npub use low::inner::A;\npub use high::{\n    B, C,\n};\n");
        let crates: [Crate; 1] = [("x/src", &["low", "high"], names)];
        let of = |text: &str| faults("x/src/low/x.rs", text, &crates);
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
        assert!(faults("x/src/high/x.rs", "use crate::A;", &crates).is_empty());
        assert!(faults("x/src/session.rs", "use crate::high;", &crates).is_empty());
        assert!(faults("x/src/low/tests.rs", "use crate::high;", &crates).is_empty());
        assert!(faults("y/src/low/x.rs", "use crate::high;", &crates).is_empty());
    }
}
