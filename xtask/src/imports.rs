//! Checks the imports between the folders of a crate: a folder imports only from folders before it. Tests are excluded.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use xshell::Shell;

use crate::tree::files_under;

/// Crates, each with its folders in their required order.
const CRATES: [(&str, &[&str]); 2] = [
    ("bpf/src", &["sys", "inspect", "programs"]),
    ("report/src", &["options", "model", "input", "index", "pass", "query", "view", "export", "stream"]),
];

/// Checks all crates.
pub(crate) fn check(sh: &Shell) -> Result<()> {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for (root, folders) in CRATES {
        let lib = sh.read_file(format!("{root}/lib.rs"))?;
        let names = exported(&lib);
        for path in files_under(root)? {
            let file = path.strip_prefix(root)?.display().to_string();
            if file.ends_with(".rs") && !file.ends_with("tests.rs") {
                let later = faults(&file, &sh.read_file(&path)?, folders, &names);
                wrong.extend(later.into_iter().map(|fault| format!("{root}: {fault}")));
                checked += 1;
            }
        }
    }
    ensure!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
    println!("{checked} source files import in one direction");
    Ok(())
}

/// Maps each name that a crate's root exports (`pub use folder::part::{Name, Other};`) to its folder.
fn exported(lib: &str) -> BTreeMap<&str, &str> {
    let statements = lib.split("\npub use ").skip(1).filter_map(|rest| rest.split_once(';')?.0.split_once("::"));
    statements.flat_map(|(folder, rest)| words(rest).map(move |name| (name, folder))).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the imports from folders that come after the folder of the file.
fn faults(file: &str, text: &str, folders: &[&str], exported: &BTreeMap<&str, &str>) -> Vec<String> {
    let rank = |folder: &str| folders.iter().position(|it| *it == folder);
    let Some(own) = file.split_once('/').and_then(|(folder, _)| rank(folder)) else { return Vec::new() };
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let code: String = text.lines().filter_map(|line| line.split("//").next()).collect::<Vec<_>>().join(" ");
    let names = code.split("crate::").skip(1).flat_map(|path| match path.strip_prefix('{') {
        Some(list) => {
            let mut list = list.split(';').next().unwrap_or(list).to_owned();
            // Only names directly below the root matter; a name in inner braces is below one of these names.
            while let Some(at) = list.rfind('{') {
                let end = list[at..].find('}').map_or(list.len(), |end| at + end + 1);
                list.replace_range(at..end, "");
            }
            list.split([',', '}']).filter_map(|part| Some(words(part).next()?.to_owned())).collect()
        }
        None => Vec::from_iter(words(path).next().map(str::to_owned)),
    });
    let targets = names.map(|name| exported.get(&*name).map_or(name.clone(), |folder| (*folder).to_owned()));
    let later = targets.filter(|target| rank(target).is_some_and(|rank| rank > own));
    later.map(|target| format!("{file} imports {target}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{exported, faults};

    #[test]
    fn folders_are_in_order() {
        let names = exported("mod low;\npub use low::inner::A;\npub use high::{\n    B, C,\n};\n");
        let of = |text: &str| faults("low/x.rs", text, &["low", "high"], &names);
        for allowed in [
            "use crate::low::y;\nuse crate::{A, error::{high, D}};",
            "// crate::high::Y",
            "fn f() {}\n#[cfg(test)]\nmod tests { use crate::high::Y; }",
        ] {
            assert_eq!(of(allowed), Vec::<String>::new(), "{allowed}");
        }
        for refused in
            ["use crate::high::Y;", "use crate::{\n    low::{a, b},\n    high::Y,\n};", "fn f() { crate::C::new() }"]
        {
            assert_eq!(of(refused), ["low/x.rs imports high"], "{refused}");
        }
        assert!(faults("high/x.rs", "use crate::A;", &["low", "high"], &names).is_empty());
        assert!(faults("session.rs", "use crate::high;", &["low", "high"], &names).is_empty());
    }
}
