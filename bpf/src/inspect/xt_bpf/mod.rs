//! Programs that rules of iptables match by (`iptables -m bpf --object-pinned PATH`).
//!
//! The kernel keeps the rules in one of two ways: in its legacy tables (`iptables-legacy`), or in nf_tables (`iptables-nft`). Either tells the
//! path of the pin that the rule was made with, and not the program. Neither is asked unless it is there already, since asking would load
//! modules or make tables.

mod legacy;
mod nf_tables;
mod rule;

use std::path::Path;

use bprec_format::state::Attachment;

use crate::error::Result;
use crate::inspect::other_networks::visit_all;
use crate::inspect::pins::Pins;
use rule::Rule;

/// The rules of one network namespace.
#[derive(Debug, Default)]
struct Rules {
    rules: Vec<Rule>,
    /// What could not be looked at, and why.
    problems: Vec<String>,
}

impl Rules {
    /// Those of the namespace that the calling thread is in.
    fn of_this_namespace(has_nf_tables: bool) -> Rules {
        let mut all = Rules::default();
        let mut take = |rules: Result<Vec<Rule>>| match rules {
            Ok(rules) => all.rules.extend(rules),
            Err(error) => all.problems.push(format!("rules of iptables: {error}")),
        };
        take(legacy::rules());
        if has_nf_tables {
            take(nf_tables::rules());
        }
        all
    }
}

/// The programs of rules in all network namespaces, and what could not be looked at.
///
/// A rule tells the path of a pin, so that its program is what is pinned there now: if the pin has been replaced since the rule was made,
/// the rule still runs the program before. Paths are those of the mount namespace of whoever made the rule; only pins that this process
/// sees are taken, since opening what somebody else named could take any time.
pub(crate) fn attachments(pins: &Pins) -> (Vec<Attachment>, Vec<String>) {
    let has_nf_tables = nf_tables::is_there();
    let mut all = Rules::of_this_namespace(has_nf_tables);
    let (others, problems) = visit_all(move |namespace| {
        let mut rules = Rules::of_this_namespace(has_nf_tables);
        rules.rules.iter_mut().for_each(|rule| rule.place += &format!(" in {}", namespace.label()));
        rules.problems.iter_mut().for_each(|problem| *problem = format!("{}: {problem}", namespace.label()));
        Ok(rules)
    });
    all.problems.extend(problems);
    for other in others {
        all.rules.extend(other.rules);
        all.problems.extend(other.problems);
    }
    let mut attachments = Vec::new();
    let mut unknown: Vec<&Rule> = Vec::new();
    for rule in &all.rules {
        match prog_at(pins, &rule.pin) {
            Some(prog_id) => attachments.push(Attachment {
                prog_id,
                link_id: None,
                kind: "xt_bpf".to_owned(),
                target: rule.place.clone().into_bytes(),
            }),
            None => unknown.push(rule),
        }
    }
    if let Some(first) = unknown.first() {
        all.problems.push(format!(
            "{} rules of iptables name pins that are not there, or are in another mount namespace: their programs lack these attach points \
             (the first: {}, {})",
            unknown.len(),
            first.place,
            first.pin.display()
        ));
    }
    (attachments, all.problems)
}

fn prog_at(pins: &Pins, path: &Path) -> Option<u32> {
    pins.by_prog.iter().find(|(_, paths)| paths.iter().any(|it| it == path)).map(|(prog_id, _)| *prog_id)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_pin_is_known_by_its_path() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let by_prog = [(7, paths(&["/b/link", "/b/one"])), (9, paths(&["/b/two"]))].into();
        let pins = Pins { by_prog, problems: Vec::new() };
        assert_eq!(prog_at(&pins, Path::new("/b//two")), Some(9));
        assert_eq!(prog_at(&pins, Path::new("/b/one")), Some(7));
        assert_eq!(prog_at(&pins, Path::new("/b")), None);
    }
}
