//! Owners of programs on the first screen of a page, by their bill.

use crate::model::text::{LEAST_SHOWN_PERCENT, clean, fixed};
use crate::model::{BillParts, BillShare, EventBill};
use crate::view::bill::of_the_machine;
use serde::Serialize;

/// Limit on the owners in the row of the screen; the table has all.
const MAX_OWNERS: usize = 6;

/// An owner of programs, or the unattributed part of the bill.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct OwnerOfAll {
    name: String,
    about: String,
    text: String,
    /// Parts, %: programs in tasks of others, own tasks, and work that the programs cause.
    parts: [f64; 3],
}

/// Returns the owners with a cost, the largest first, and the unattributed part of the bill.
pub(super) fn of_bill(bill: &EventBill) -> Vec<OwnerOfAll> {
    let is_shown = |parts: &BillParts| parts.machine_percent.is_some_and(|percent| percent >= LEAST_SHOWN_PERCENT);
    let owner = |name: &str, parts: &BillParts| {
        let of = |share: BillShare| share.machine_percent.unwrap_or(0.0);
        let [others, own, causes] = [parts.in_others.sum, parts.own_tasks.sum, parts.causes.sum].map(of);
        let about = format!(
            "% of the machine: its programs in tasks of others {}, its own tasks {}, work that its programs cause {}",
            fixed(others, 2),
            fixed(own, 2),
            fixed(causes, 2)
        );
        OwnerOfAll { name: clean(name), about, text: of_the_machine(bill, parts), parts: [others, own, causes] }
    };
    let listed = bill.owners.iter().filter(|it| is_shown(&it.parts)).take(MAX_OWNERS);
    let listed = listed.map(|it| owner(&it.name, &it.parts));
    let unattributed = Some(&bill.unattributed).filter(|parts| is_shown(parts));
    listed.chain(unattributed.map(|parts| owner("[unattributed]", parts))).collect()
}
