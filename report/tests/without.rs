//! Predictions without programs: the CPU time saved is the bill of these programs, and the payers add up to the machine.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use crate::text;
use bprec_generate::{Shape, SharedHook, generate_bytes};
use bprec_report::model::{Count, CpuChange, EventWithout, Exact, Note, Operations, OwnerBill};
use bprec_report::{Document, Error, Input, Options, Payer, Session};
use serde_json::Value;
use support::fixtures;

fn patterns(one: &str) -> [String; 1] {
    [one.to_owned()]
}

/// Returns the cost of removed programs, with the part that stays because other programs are on the same hooks.
fn removed(change: &CpuChange) -> Count {
    change.saved.count + change.staying
}

fn check(event: &EventWithout, at: &str) {
    let changes = || event.payers.iter().map(|payer| &payer.change).chain([&event.others.change]);
    let sum = |of: fn(&CpuChange) -> Count| changes().map(of).sum::<Count>();
    let parts: [fn(&CpuChange) -> Count; 5] =
        [|it| it.now.count, |it| it.without.count, |it| it.saved.count, |it| it.shared, |it| it.staying];
    for of in parts {
        assert_eq!(of(&event.total), sum(of), "{at}");
    }
    for change in changes().chain([&event.total]) {
        assert_eq!(change.now.count, change.without.count + change.saved.count, "{at}");
        assert!(change.tax_percent.is_none_or(|tax| (0.0..=100.0).contains(&tax)), "{at}: {change:?}");
        let has_margin = change.saved.margin_percent.is_some_and(|margin| margin > 0.0);
        assert_eq!(has_margin, event.machine.value().is_some(), "{at}: {change:?}");
    }
}

/// The saved time and the time that stays add up to the program's row in the bill. The CPU time of all payers is the time that was not idle.
#[test]
fn the_saved_time_is_the_bill() {
    let (mut programs, mut owners) = (0, 0);
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let options = Options::default();
        let ledger = session.by_prog(&options).unwrap();
        let bill = session.bill(&options, Some("*")).unwrap();
        let of_bill = bill.events.iter().filter(|event| event.samples.samples > 0);
        for (nth, event) in of_bill.enumerate() {
            let at = format!("{} {}", path.display(), event.name);
            for owner in &event.owners {
                for program in owner.programs.iter().filter(|program| program.id.is_some()) {
                    let pattern = patterns(&program.id.unwrap().to_string());
                    let report = session.without(&options, &pattern, &[Payer::Cpu, Payer::Comm], None).unwrap();
                    // An id that was reused names several programs.
                    if report.programs.len() == 1 {
                        check(&report.events[nth], &at);
                        assert_eq!(removed(&report.events[nth].total), program.parts.count, "{at} {}", program.name);
                        programs += 1;
                    }
                }
                let report = session.without(&options, &patterns(&owner.name), &[], None).unwrap();
                check(&report.events[nth], &at);
                let of_ledger = ledger.events.iter().find(|it| it.name == event.name).unwrap();
                let busy = of_ledger.busy.value().copied();
                assert!(busy.is_none_or(|busy| busy == report.events[nth].total.now.count.weight), "{at}");
                if report.owners == [owner.name.clone()] {
                    // Removing an owner also removes its tasks, and with them the cost of other owners' programs in these tasks, which is not in the
                    // owner's bill.
                    let removed = removed(&report.events[nth].total).samples;
                    assert!(removed >= owner.parts.count.samples && removed <= event.total.count.samples, "{at}");
                    owners += 1;
                }
            }
        }
    }
    assert!(programs > 50 && owners > 20, "{programs} programs, {owners} owners");
}

/// Each sample of the event that counts operations is an operation of one payer, and the cost per operation is the cost divided by their number.
#[test]
fn operations_are_the_samples_of_their_event() {
    let shape = Shape { record_bytes: 1 << 20, events: 2, ..Shape::default() };
    let input = Input::from_bytes("generated", generate_bytes(&shape).unwrap().0);
    let session = Session::open(&input).unwrap();
    let options = Options::default();
    let ledger = session.by_prog(&options).unwrap();
    let [clock, per] = ledger.events.as_slice() else { panic!() };
    // Names are accepted without their terms; the event is read even if it is not selected.
    for options in [options.clone(), Options { events: vec![clock.name.clone()], ..options.clone() }] {
        let report = session.without(&options, &patterns("*"), &[Payer::Comm], Some(&per.name)).unwrap();
        assert_eq!(report.operation.as_ref(), Some(&per.name));
        let [event] = report.events.as_slice() else { panic!("{:?}", report.events) };
        assert_eq!(event.name, clock.name);
        let of = |change: &CpuChange| change.operations.unwrap();
        let rows = event.payers.iter().map(|payer| &payer.change).chain([&event.others.change]);
        assert_eq!(rows.clone().map(|change| of(change).count).sum::<Count>(), of(&event.total).count);
        assert_eq!(per.busy.value().copied().unwrap_or(per.samples.weight), of(&event.total).count.weight);
        let mut with_operations = 0;
        for change in rows.chain([&event.total]) {
            let Operations { count, saved, margin, .. } = of(change);
            assert_eq!(saved.is_some(), count.weight > 0);
            let Some(saved) = saved else { continue };
            // CPU time, scaled up where ticks are missing.
            let saved_ns = change.saved.millicpus.unwrap() / 1000.0 * report.recording.elapsed_ns.unwrap() as f64;
            assert!((saved * count.weight as f64 / saved_ns - 1.0).abs() < 1e-6, "{saved} {saved_ns}");
            assert!(margin.unwrap() > 0.0);
            with_operations += 1;
        }
        assert!(with_operations > 2);
    }
    let error = session.without(&options, &patterns("*"), &[], Some("nothing")).unwrap_err().to_string();
    assert!(error.contains("--per nothing") && error.contains(&per.name), "{error}");
}

/// Programs on `sched_switch` run with interrupts off, where the timer takes no samples: a bill of 0 would be wrong without a word.
#[test]
fn programs_that_samples_cannot_show_are_named_with_their_cost() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/everything.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let session = Session::open(&input).unwrap();
    let options = Options::default();
    let ledger = session.by_prog(&options).unwrap();
    let [event] = ledger.events.as_slice() else { panic!() };
    let notes = |notes: &[Note]| {
        let found = notes.iter().find_map(|note| match note {
            Note::NotInSamples { programs, machine_percent, .. } => Some((programs.clone(), machine_percent.unwrap())),
            _ => None,
        });
        found.unwrap()
    };
    let report = session.bill(&options, Some("*")).unwrap();
    let bill = notes(&report.notes);
    assert!(bill.0.contains(&"count_sched_switches".to_owned()), "{bill:?}");
    let all = event.unsampled.unwrap().machine_percent.unwrap();
    assert!(bill.1 > 0.0 && bill.1 <= all * 1.000_001, "{bill:?} {all}");
    assert_eq!(report.events[0].total.unsampled.unwrap().machine_percent.unwrap(), bill.1);
    let one = session.without(&options, &patterns("count_sched_switches"), &[], None).unwrap();
    let row = event.rows.iter().find(|row| row.name == "count_sched_switches").unwrap();
    let expected = row.unsampled.unwrap();
    assert_eq!(notes(&one.notes), (vec!["count_sched_switches".to_owned()], expected.machine_percent.unwrap()));
    // The rows of the program and of its owner have the same time, in every output.
    let of_program = |owner: &OwnerBill| owner.programs.iter().find(|it| it.id == row.id).map(|it| it.parts.unsampled);
    let owner = report.events[0].owners.iter().find(|owner| of_program(owner).is_some()).unwrap();
    assert_eq!(of_program(owner), Some(Some(expected)));
    assert!(owner.parts.unsampled.unwrap().time_ns >= expected.time_ns, "{:?}", owner.parts);
    let csv = text(|out| report.write_csv(out).unwrap());
    let head = csv.lines().find(|line| line.starts_with("event,")).unwrap();
    let at = |name: &str| head.split(',').position(|field| field == name).unwrap();
    let mut cells = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let line = cells.find(|cells| cells.get(at("program")) == Some(&"count_sched_switches")).unwrap();
    assert_eq!(line[at("unsampled_ns")], expected.time_ns.to_string());
    let table = text(|out| report.write_table(out, usize::MAX).unwrap());
    let line = table.lines().find(|line| line.starts_with("count_sched_switches")).unwrap();
    assert!(line.contains(&format!("≈{:.2}", expected.machine_percent.unwrap())), "{table}");
    assert!(table.contains("UNSAMPLED%: programs that samples cannot show"), "{table}");
}

/// A recording with exact counters shows how long the removed programs run, as `report` does for the same programs.
#[test]
fn removed_programs_have_their_percentiles() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let options = Options::default();
        let exact: Vec<(Option<u32>, Exact)> = session
            .by_prog(&options)
            .unwrap()
            .programs
            .iter()
            .filter_map(|program| Some((program.id, program.exact.value()?.as_ref().clone())))
            .collect();
        if exact.is_empty() {
            continue;
        }
        let report = session.without(&options, &patterns("*"), &[], None).unwrap();
        for (id, exact) in &exact {
            let removed = report.programs.iter().find(|program| program.id == *id).unwrap();
            assert_eq!(removed.exact.as_deref(), Some(exact));
        }
        let table = text(|out| report.write_table(out, usize::MAX).unwrap());
        let p99 = exact.iter().find_map(|(_, exact)| exact.percentiles.get(1)?.middle_ns());
        if let Some(p99) = p99.filter(|_| !report.events.is_empty()) {
            let head = table.lines().position(|line| line.contains("NS/RUN") && line.contains("P99")).unwrap();
            let rows = table.lines().skip(head + 1).map(|line| line.replace(',', ""));
            assert!(rows.into_iter().any(|row| row.split_whitespace().any(|cell| cell == p99.to_string())), "{table}");
            compared += 1;
        }
    }
    assert!(compared > 0);
}

/// Two programs on a hook with 1,000 and 9,000 runs: the entry code of the hook runs once for both. Its cost stays if one of them is removed, and
/// goes if both are removed.
#[test]
fn a_hook_stays_while_a_program_is_on_it() {
    let hook = SharedHook { samples: 100, runs: [1_000, 9_000] };
    let shape = Shape { record_bytes: 0, programs: 2, shared_hook: vec![hook], ..Shape::default() };
    let input = Input::from_bytes("generated", generate_bytes(&shape).unwrap().0);
    let session = Session::open(&input).unwrap();
    let of = |pattern: &str| {
        let report = session.without(&Options::default(), &patterns(pattern), &[], None).unwrap();
        let mut table = Vec::new();
        report.write_table(&mut table, 200).unwrap();
        (report.events[0].total.clone(), String::from_utf8(table).unwrap())
    };
    let (one, table) = of("generated_program_00001");
    assert_eq!((one.saved.count.samples, one.staying.samples, one.shared.samples), (0, 90, 0));
    let notes = table.replace("\n#   ", " ");
    assert!(
        notes.contains("90 samples in code that a hook runs once for all its programs are not part of SAVED"),
        "{table}"
    );
    let (both, table) = of("generated_program_*");
    assert_eq!((both.saved.count.samples, both.staying.samples, both.shared.samples), (100, 0, 0));
    assert!(!table.contains('≈'), "{table}");
}

#[test]
fn a_name_of_nothing_is_an_error_with_names() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/ratio.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let session = Session::open(&input).unwrap();
    let error = session.without(&Options::default(), &patterns("acount_syscall_enter"), &[], None).unwrap_err();
    assert!(matches!(&error, Error::NoProgramOrOwner { .. }) && error.is_no_match(), "{error}");
    assert!(error.remedy().unwrap().contains("similar names: account_syscall_enter"), "{error}");
}

#[test]
fn outputs_of_a_prediction_say_the_same() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let of = |threads| {
            let options = Options { threads: Some(threads), ..Options::default() };
            session.without(&options, &patterns("*"), &[Payer::Pid], None)
        };
        let (Ok(one), Ok(three)) = (of(1), of(3)) else { continue };
        assert_eq!(one, three, "{}", path.display());
        let csv = text(|out| one.write_csv(out).unwrap());
        let json: Value = serde_json::from_str(&text(|out| one.write_json(out).unwrap())).unwrap();
        let markdown = text(|out| one.write_markdown(out, false).unwrap());
        let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<&str>>());
        let head = rows.next().unwrap();
        let column = |name: &str| head.iter().position(|it| *it == name).unwrap();
        let totals: Vec<Vec<&str>> = rows.filter(|row| row[column("kind")] == "total").collect();
        assert_eq!(totals.len(), one.events.len(), "{}", path.display());
        for ((event, total), of_json) in one.events.iter().zip(totals).zip(json["events"].as_array().unwrap()) {
            for (name, time) in
                [("now", event.total.now), ("without", event.total.without), ("saved", event.total.saved)]
            {
                let weight = time.count.weight.to_string();
                assert_eq!(total[column(&format!("{name}_weight"))], weight, "{}", path.display());
                assert_eq!(of_json["total"][name]["weight"].to_string(), weight, "{}", path.display());
            }
            compared += 1;
        }
        assert_eq!(markdown.matches("\n| TOTAL |").count(), one.events.len(), "{markdown}");
    }
    assert!(compared > 10, "{compared}");
}
