//! The three verdicts, compared with numbers computed by hand, and with resampled and synthetic loads of known properties.

use super::*;
use crate::model::{DiffMetric, Estimate, MetricValue};
use crate::query::diff::estimate::Uncertain;
use crate::query::diff::estimate::tests::{
    CHOSEN_BY, FRESH, Numbers, Series, dependent, half_minute, recorded, scaled, side,
};

fn of_sides(base: Side, new: Side) -> Measured {
    let shown = |side: &Side| {
        let estimate = Estimate { value: side.value(), margin: None, recordings: 1 };
        MetricValue { estimate: Known::Value(estimate) }
    };
    let metric = DiffMetric::TimePerRun;
    let shown = MetricDiff { metric, event: None, base: shown(&base), new: shown(&new), change: None };
    Measured { shown, base: Some(base), new: Some(new) }
}

/// Time per run of both sides, each with a deviation; 100 degrees of freedom.
fn measured(base: f64, new: f64, deviation: f64) -> Measured {
    let side = |value: f64| {
        let variance = Some((deviation * deviation, 100.0));
        Side::of(&[Uncertain { value, mean: value, variance }]).unwrap()
    };
    of_sides(side(base), side(new))
}

fn judgments(condition: &str, programs: &[Measured]) -> Vec<Judgment> {
    let candidates: Vec<Candidate<'_>> = programs
        .iter()
        .map(|measured| Candidate {
            label: Some("p".into()),
            name: "p",
            prog_type: "xdp",
            owners: &[],
            metrics: std::slice::from_ref(measured),
        })
        .collect();
    judge(&[condition.parse().unwrap()], &candidates, Confidence::default()).unwrap()
}

fn verdicts(condition: &str, programs: &[Measured]) -> Vec<&'static str> {
    judgments(condition, programs).iter().map(|judgment| judgment.verdict.code()).collect()
}

/// The difference of 100 and 110 has a standard deviation of √2 ≈ 1.41. At 99.9 % on one side, its margin is 3.17 times the deviation: 4.5.
#[test]
fn the_bound_is_the_null_hypothesis_of_both_words() {
    let one = [measured(100.0, 110.0, 1.0)];
    for (condition, expected) in [
        ("prog:p time/run +0%", "fail"),
        ("prog:p time/run +5%", "fail"),
        // The change exceeds these bounds by 3 and 1 points; chance explains up to 4.6.
        ("prog:p time/run +7%", "undecided"),
        ("prog:p time/run +9%", "undecided"),
        // The change is below these bounds by 2 and 5 points; chance explains up to 4.8.
        ("prog:p time/run +12%", "undecided"),
        ("prog:p time/run +15%", "ok"),
        ("prog:p time/run -5%", "ok"),
        ("prog:p time/run > 106", "fail"),
        ("prog:p time/run > 108", "undecided"),
        ("prog:p time/run > 112", "undecided"),
        ("prog:p time/run > 114", "ok"),
        ("prog:p time/run < 114", "fail"),
        ("prog:p time/run < 112", "undecided"),
        ("prog:p time/run < 106", "ok"),
        ("prog:p cycles/run +0%", "undecided"),
    ] {
        assert_eq!(verdicts(condition, &one), [expected], "{condition}");
    }
    let unknown = Side::of(&[Uncertain { value: 1.0, mean: 1.0, variance: None }]).unwrap();
    let judged = judgments("prog:p time/run +900%", &[of_sides(unknown, unknown)]);
    assert_eq!(judged[0].verdict, Verdict::Undecided { reason: Reason::TooFewIntervals });
    assert_eq!((judged[0].interval, judged[0].least_shown), (None, None));
}

/// 478.3 and 1,273.7 ns, estimated from a few intervals with very different values.
#[test]
fn a_measured_change_that_may_be_none_is_undecided() {
    let side = |value: f64, deviation: f64| {
        Side::of(&[Uncertain { value, mean: value, variance: Some((deviation * deviation, 20.0)) }]).unwrap()
    };
    let noisy = [of_sides(side(478.3, 10.0), side(1_273.7, 461.0))];
    let judged = judgments("prog:p time/run +2%", &noisy);
    assert_eq!(judged[0].verdict, Verdict::Undecided { reason: Reason::NotShown });
    let PossibleRange { from, to } = judged[0].interval.unwrap();
    assert!((-190.0..-160.0).contains(&from) && (500.0..540.0).contains(&to.unwrap()), "{from}…{to:?}");
    // Numbers with such a variance cannot show a change of any size.
    assert_eq!(judged[0].least_shown, None);
}

/// Judges with levels that are computed once for all tests.
fn judged_by(levels: &Levels, condition: &str, measured: &Measured) -> Judgment {
    let metrics = std::slice::from_ref(measured);
    let candidate = Candidate { label: Some("p".into()), name: "p", prog_type: "xdp", owners: &[], metrics };
    judgment(&condition.parse().unwrap(), &candidate, levels)
}

/// Each verdict follows from the printed interval, for many pairs of loads: quiet and busy, long and short, with and without a change.
#[test]
fn words_agree_with_their_intervals() {
    let pools = [recorded(CHOSEN_BY, "a"), recorded(FRESH, "a"), recorded(FRESH, "b")];
    let levels = Levels::new(0.001);
    let mut numbers = Numbers(23);
    let mut words = std::collections::BTreeMap::<&str, usize>::new();
    for at in 0..3_000 {
        let slower = 1.0 + 0.15 * (numbers.part() - 0.5);
        let mut draw = || -> Series {
            match at % 4 {
                3 => dependent(8 + at % 40, 0.1 * (at % 9) as f64, 0.05, &mut numbers),
                pool => half_minute(&pools[pool], 2, &mut numbers),
            }
        };
        let (base, new) = (draw(), scaled(draw(), slower));
        let sides = of_sides(side(&[base]), side(&[new]));
        for (bound, limit) in [("+0%", 0.0), ("+2%", 2.0), ("+10%", 10.0), ("-3%", -3.0)] {
            let judgment = judged_by(&levels, &format!("prog:p time/run {bound}"), &sides);
            let (from, to) = judgment.interval.map_or((f64::NEG_INFINITY, f64::INFINITY), |interval| {
                (interval.from, interval.to.unwrap_or(f64::INFINITY))
            });
            // Percentages are computed from factors, with rounding errors.
            let (beyond, within) = if limit < 0.0 { (limit - to, from - limit) } else { (from - limit, limit - to) };
            let word = judgment.verdict.code();
            assert_eq!(word == "fail", beyond > 1e-9, "{bound}: {judgment:?}");
            assert_eq!(word == "ok", within > -1e-9, "{bound}: {judgment:?}");
            *words.entry(word).or_default() += 1;
        }
    }
    println!("{words:?}");
    assert!(words.len() == 3 && words.values().all(|times| *times > 300), "{words:?}");
}

/// Draws a random recording.
type Draw<'d> = &'d dyn Fn(&mut Numbers) -> Series;

/// Recordings of one steady load do not differ, and a load slower than the bound allows does not pass. The allowed error is one in 1,000: of 500
/// judgments, at least two are wrong with a probability of 9 %, at least three with 1.4 %.
#[test]
fn chance_is_no_verdict() {
    let levels = Levels::new(0.001);
    let mut numbers = Numbers(31);
    let mut count = |draw: Draw<'_>, slower: f64, condition: &str, word: &str| {
        let mut times = 0;
        for _ in 0..500 {
            let (base, new) = (draw(&mut numbers), draw(&mut numbers));
            let sides = of_sides(side(&[base]), side(&[scaled(new, slower)]));
            let judgment = judged_by(&levels, &format!("prog:p time/run {condition}"), &sides);
            times += usize::from(judgment.verdict.code() == word);
        }
        times
    };
    let (quiet, busy) = (recorded(CHOSEN_BY, "a"), recorded(FRESH, "a"));
    let draws: [(&str, Draw<'_>); 3] = [
        ("quiet", &|numbers| half_minute(&quiet, 2, numbers)),
        ("busy", &|numbers| half_minute(&busy, 2, numbers)),
        ("made up", &|numbers| dependent(30, 0.2, 0.02, numbers)),
    ];
    for (name, draw) in draws {
        let alarms = count(draw, 1.0, "+0%", "fail");
        let passed = count(draw, 1.03, "+2%", "ok");
        let caught = count(draw, 1.1, "+2%", "fail");
        let within = ["+2%", "+3%", "+5%", "+10%"].map(|bound| count(draw, 1.0, bound, "ok"));
        println!(
            "{name}: {alarms} alarms, {passed} of 3 % more passed, {caught} of 10 % more caught, ok {within:?} of 500"
        );
        assert!(alarms <= 1 && passed <= 1, "{name}: {alarms} alarms, {passed} passed");
        assert!(caught >= 475 && within[3] >= 475, "{name}: {caught} caught, {within:?} within");
    }
}

/// With t = 3.5, a single judgment is certain enough; with a hundred judgments, each needs 99.999 %: t = 4.5.
#[test]
fn many_programs_have_to_be_surer_each() {
    let program = || measured(100.0, 100.0 + 3.5 * 2f64.sqrt(), 1.0);
    assert_eq!(verdicts("prog:p time/run +0%", &[program()]), ["fail"]);
    let many: Vec<Measured> = (0..100).map(|_| program()).collect();
    assert!(verdicts("prog:p time/run +0%", &many).iter().all(|verdict| *verdict == "undecided"));
}
