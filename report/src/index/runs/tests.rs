use super::*;

const KEY: ProgramKey = (7, 100);

/// A reading of one program, with the time for which statistics had been on.
fn reading(time_ns: u64, on_ns: Option<u64>, run_cnt: u64, misses: Option<u64>) -> RunStats {
    let (id, load_time_ns) = KEY;
    let runs = ProgramRuns { id, load_time_ns, run_time_ns: run_cnt * 5, run_cnt, recursion_misses: misses };
    RunStats { time_ns, programs: vec![runs], on_ns, others_ns: None }
}

fn series(readings: impl IntoIterator<Item = RunStats>) -> RunSeries {
    let mut series = RunSeries::default();
    readings.into_iter().for_each(|reading| series.add(&reading));
    series.settle();
    series
}

/// Readings by time and runs, with statistics always on.
fn always(readings: &[(u64, u64)]) -> RunSeries {
    series(readings.iter().map(|(time_ns, runs)| reading(*time_ns, None, *runs, None)))
}

/// Readings with statistics on in windows, while the program's runs follow `runs_by`, up to `end_ns`.
fn in_windows(windows: &[(u64, u64)], end_ns: u64, runs_by: impl Fn(u64) -> u64) -> RunSeries {
    let (mut on_ns, mut counted) = (0, 0);
    let mut readings = vec![reading(0, Some(0), 0, None)];
    for (from_ns, to_ns) in windows {
        readings.push(reading(*from_ns, Some(on_ns), counted, None));
        (on_ns, counted) = (on_ns + to_ns - from_ns, counted + runs_by(*to_ns) - runs_by(*from_ns));
        readings.push(reading(*to_ns, Some(on_ns), counted, None));
    }
    readings.push(reading(end_ns, Some(on_ns), counted, None));
    series(readings)
}

fn all() -> Selected {
    Selected::everything()
}

fn selected(text: &str, span: (u64, u64)) -> Selected {
    Selected::new(&text.parse().unwrap(), Some(span)).unwrap()
}

fn whole(series: &RunSeries) -> Stretch {
    series.within(KEY, &all()).into_value().unwrap()
}

/// Pseudo-random numbers from 0 to 1.
fn drawn(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(2) + 1;
    move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn runs_are_the_difference_of_the_outermost_readings() {
    let mut series = series([
        reading(10, None, 10, Some(3)),
        reading(20, None, 15, Some(3)),
        // This reading is dated before the previous reading.
        reading(15, None, 99, Some(9)),
        reading(30, None, 40, Some(4)),
    ]);
    let all_of_it = whole(&series);
    assert_eq!((all_of_it.runs, all_of_it.time_ns, all_of_it.misses), (30.0, 150.0, Some(1.0)));
    assert_eq!((all_of_it.span, all_of_it.is_estimate, all_of_it.margin), ((10, 30), false, Some(0.0)));
    let late = selected("0.000000015,", (0, 40));
    let late = series.within(KEY, &late).into_value().unwrap();
    assert_eq!((late.runs, late.span), (25.0, (20, 30)));
    assert_eq!(
        series.within((7, 101), &all()),
        Known::Unknown(Reason::NoSnapshots),
        "another program with the same id"
    );
    // The program was loaded at 5.
    series.loaded(KEY, 5);
    let all_of_it = whole(&series);
    assert_eq!((all_of_it.runs, all_of_it.misses, all_of_it.span), (40.0, Some(4.0), (5, 30)));
    assert!(!all_of_it.is_estimate);
}

/// A reading that is dated before the previous reading has the time at which the recorder found the program. The program's counts start at this time.
#[test]
fn a_program_begins_where_it_was_found() {
    let other = RunStats { time_ns: 20, programs: Vec::new(), on_ns: None, others_ns: None };
    let found = whole(&series([other, reading(10, None, 100, Some(2)), reading(30, None, 150, Some(3))]));
    assert_eq!((found.runs, found.misses, found.span, found.is_estimate), (50.0, Some(1.0), (10, 30), false));
}

/// A reading of other programs alone, between two readings of this program, does not cut off this program's runs.
#[test]
fn a_reading_of_others_cuts_no_runs_off() {
    let other = |time_ns| RunStats {
        time_ns,
        programs: vec![ProgramRuns { id: 8, ..ProgramRuns::default() }],
        on_ns: None,
        others_ns: None,
    };
    let both = |time_ns, runs| {
        let mut both = reading(time_ns, None, runs, None);
        both.programs.extend(other(time_ns).programs);
        both
    };
    let series = series([both(0, 0), other(40), both(100, 1000), other(110), both(200, 1000)]);
    assert_eq!((whole(&series).runs, whole(&series).time_ns), (1000.0, 5000.0));
    assert_eq!(series.between(KEY, 0, 40).into_value().unwrap().runs, 400.0);
    assert_eq!(series.between(KEY, 100, 200).into_value().unwrap().runs, 0.0);
    let cuts = |series: &RunSeries| series.cuts().to_vec();
    assert_eq!(cuts(&series), [0, 40, 100, 110, 200], "snapshots that contain at least half of the programs");
}

/// A single reading of very many programs does not make the usual readings count as incomplete.
#[test]
fn a_reading_of_very_many_programs_leaves_the_cuts_of_the_others() {
    let of = |time_ns, programs: u32| {
        let mut of = reading(time_ns, None, time_ns, None);
        of.programs.extend((0..programs).map(|at| ProgramRuns { id: 100 + at, ..ProgramRuns::default() }));
        of
    };
    let moments: Vec<u64> = (0..20).map(|at| at * 100).collect();
    let series = series(moments.iter().map(|time_ns| of(*time_ns, if *time_ns == 500 { 30 } else { 8 })));
    assert_eq!(series.cuts(), moments);
}

#[test]
fn one_reading_or_a_falling_count_say_nothing() {
    assert_eq!(always(&[(10, 10)]).within(KEY, &all()), Known::Unknown(Reason::NoSnapshots));
    let fallen = always(&[(10, 10), (20, 9), (30, 20)]).within(KEY, &all());
    let first = SnapshotFault::Fell { what: "runs", from: 10, to: 9, after_ns: 10 };
    assert_eq!(fallen, Known::Impossible(Box::new(Anomaly::SnapshotsDisagree { first, more: 0 })));
}

#[test]
fn what_lies_between_parts_of_the_selection_is_not_counted() {
    let mut series = always(&(1..=10).map(|at| (at * 100, at * at)).collect::<Vec<_>>());
    let parts = selected("0%-35%,75%-100%", (0, 1000));
    // Runs grow from 1 (time 100) to 9 (time 300), and from 64 (time 800) to 100 (time 1000).
    let found = series.within(KEY, &parts).into_value().unwrap();
    assert_eq!((found.runs, found.span, found.length_ns, found.is_estimate), (8.0 + 36.0, (100, 1000), 400.0, false));
    series.loaded(KEY, 50);
    assert_eq!(series.within(KEY, &parts).into_value().unwrap().runs, 9.0 + 36.0);
}

/// Ten windows of 10 ns in 1000 ns: evenly distributed runs are known exactly, and runs in only one window have a very large margin.
#[test]
fn runs_in_windows_are_of_all_of_the_time() {
    let windows: Vec<(u64, u64)> = (0..10).map(|at| (at * 100 + 50, at * 100 + 60)).collect();
    let even = whole(&in_windows(&windows, 1000, |by_ns| by_ns * 2));
    assert_eq!((even.count(), even.counted, even.counted_ns), (2000, 200.0, 100.0));
    assert!((even.time_ns - 10_000.0).abs() < 1e-6 && even.is_estimate);
    assert_eq!(even.margin, Some(0.0));
    let bursts = whole(&in_windows(&windows, 1000, |by_ns| if by_ns >= 260 { 200 } else { 0 }));
    // The window represents its own 10 ns and half of the gaps of 90 ns before and after it.
    assert_eq!(bursts.count(), 2000);
    assert!(bursts.margin.unwrap() > 2000.0, "{bursts:?}");
}

/// Counting slows down a load that keeps a CPU busy: a run takes 20 ns in the windows (4 ns for counting) and 16 ns outside.
#[test]
fn what_counting_slows_runs_more_often_beside_windows() {
    let windows: Vec<(u64, u64)> = (0..100).map(|at| (at * 10_000 + 4000, at * 10_000 + 5000)).collect();
    let all = || in_windows(&windows, 1_000_000, |by_ns| by_ns / 20);
    let (seen, truth) = (100 * 50, 100 * 50 + 900_000 / 16);
    assert_eq!(whole(&all()).count(), 50_000, "the same rate as in the windows");
    let own_ns = 5.0 - 0.57 * 4.0;
    let sampled = |runs: f64| {
        let time_ns = runs * own_ns;
        FxHashMap::from_iter([(KEY, SampledTime { samples: 10_000, least_ns: time_ns, most_ns: time_ns })])
    };
    let corrected = |samples: Option<f64>| {
        let mut series = all();
        series.correct(4, samples.map(sampled).as_ref());
        series
    };
    let off = |series: &RunSeries, truth: i64| {
        let found = whole(series);
        let (off, margin) = (found.runs - truth as f64, found.margin.unwrap());
        assert!(off.abs() <= margin && found.counted == seen as f64, "{off} ± {margin}");
        (off.abs() / truth as f64, margin / truth as f64)
    };
    let slowed = corrected(Some(truth as f64));
    assert!(off(&slowed, truth).0 < 0.03);
    assert!(off(&corrected(Some(50_000.0)), 50_000).0 < 0.03, "a load with idle time");
    // Without samples, the margin is wide: it covers the true number of either load.
    assert!(off(&corrected(None), truth).1 > 0.15 && off(&corrected(None), 50_000).1 > 0.15);
    // The sum over all parts of the time equals the whole.
    let parts = [(0, 333_333), (333_333, 666_666), (666_666, 1_000_000)];
    let parts = parts.map(|(from_ns, to_ns)| slowed.between(KEY, from_ns, to_ns).into_value().unwrap());
    assert!((parts.iter().map(|part| part.runs).sum::<f64>() - whole(&slowed).runs).abs() < 1.0);
}

/// The load is busy for a third of the time. Statistics are on throughout while it is quiet, and for a tenth of the time while it is busy.
#[test]
fn a_busy_time_weighs_as_much_as_it_is_long() {
    let mut windows = vec![(0, 1000), (1000, 2000)];
    windows.extend((0..10).map(|at| (2050 + at * 100, 2060 + at * 100)));
    let found = whole(&in_windows(&windows, 3000, |by_ns| by_ns.saturating_sub(2000) * 3));
    // The error is at most the runs in half of the gap between the quiet and the busy time.
    assert!((2900.0..=3000.0).contains(&found.runs), "{found:?}");
}

#[test]
fn the_tail_is_estimated_by_the_last_window_alone() {
    let series =
        in_windows(&[(10, 20), (50, 60)], 100, |by_ns| if by_ns <= 50 { by_ns } else { 50 + 3 * (by_ns - 50) });
    let tail = series.between(KEY, 60, 100).into_value().unwrap();
    assert_eq!((tail.count(), tail.counted), (120, 0.0));
    let head = series.between(KEY, 0, 10).into_value().unwrap();
    assert_eq!(head.count(), 10);
    let gap = series.between(KEY, 20, 50).into_value().unwrap();
    assert_eq!(gap.count(), 60, "the mean of 1 and 3");
}

/// Windows of 10 ns in 100 ns with 20 runs each. Between the windows, another tool switches statistics on, and the kernel counts 1000 runs.
#[test]
fn what_others_have_counted_between_windows_is_not_used() {
    let (mut on, mut runs) = (0, 0);
    let readings = (0..10).flat_map(|window| {
        runs += 1000;
        let begin = reading(window * 100 + 50, Some(on), runs, None);
        (on, runs) = (on + 10, runs + 20);
        [begin, reading(window * 100 + 60, Some(on), runs, None)]
    });
    let found = whole(&series(readings.collect::<Vec<_>>()));
    // 2 runs per ns, from 50 to 960 ns.
    assert_eq!((found.count(), found.counted, found.counted_ns), (1820, 200.0, 100.0));
}

/// Windows continue while a program is loaded, runs and is unloaded.
#[test]
fn nothing_is_known_of_what_came_and_went_between_windows() {
    let other = |time_ns, on_ns| {
        let runs = ProgramRuns { id: 8, load_time_ns: 1, ..ProgramRuns::default() };
        RunStats { time_ns, programs: vec![runs], on_ns: Some(on_ns), others_ns: None }
    };
    let mut readings: Vec<RunStats> =
        (0..10).flat_map(|at| [other(at * 100, at * 10), other(at * 100 + 10, at * 10 + 10)]).collect();
    let added = |readings: &[RunStats], more: &[(u64, u64, u64)]| {
        let more = more.iter().map(|(time_ns, on_ns, runs)| reading(*time_ns, Some(*on_ns), *runs, None));
        let mut series = series(readings.iter().cloned().chain(more));
        series.loaded(KEY, 929);
        series
    };
    let unknown = Known::Unknown(Reason::StatisticsWereOff);
    assert_eq!(added(&readings, &[(930, 100, 0)]).within(KEY, &all()), unknown, "one look");
    assert_eq!(added(&readings, &[(930, 100, 0), (960, 100, 0)]).within(KEY, &all()), unknown, "no window");
    let one = added(&readings, &[(930, 100, 0), (1000, 100, 0), (1010, 110, 500)]);
    assert_eq!(one.within(KEY, &all()), unknown, "one window is no evidence of the rate at another time");
    readings.clear();
    let quiet = one.within((8, 1), &all()).into_value().unwrap();
    assert_eq!(quiet.count(), 0);
    // No run in 100 ns of windows: with 95 % certainty, at most 3 runs in the same length of unseen time.
    assert!((quiet.margin.unwrap() - 3.0 * 810.0 / 100.0).abs() < 1e-9, "{quiet:?}");
}

#[test]
fn of_one_window_there_is_no_spread_and_of_few_no_less_than_chance() {
    assert_eq!(whole(&in_windows(&[(40, 60)], 100, |by_ns| by_ns)).margin, None);
    let two = whole(&in_windows(&[(20, 40), (60, 80)], 100, |by_ns| by_ns));
    // 20 runs in each of two windows, and each window represents 50 ns: one degree of freedom.
    let chance = 12.706 * (2.0f64 * 50.0 * 30.0 * 20.0 / 400.0).sqrt();
    assert!((two.margin.unwrap() - chance).abs() < 0.1, "{two:?}");
}

/// For any division of the time, the parts add up to the whole: in runs, in time, and in runs rounded to whole numbers.
#[test]
fn parts_add_up_to_the_whole() {
    let mut unit = drawn(3);
    for round in 0..200 {
        let mut windows = Vec::new();
        let mut at = 0;
        while at < 1_000_000 {
            let from_ns = at + (unit() * 40_000.0) as u64 * u64::from(unit() < 0.7);
            at = from_ns + 1 + (unit() * 20_000.0) as u64;
            windows.push((from_ns, at));
        }
        let period = 1 + (unit() * 300_000.0) as u64;
        let mut series = in_windows(&windows, at + 5_000, |by_ns| by_ns / 100 + by_ns / period * 5_000);
        if round % 3 == 0 {
            series = in_windows(&windows, at + 5_000, |by_ns| by_ns / 50);
            series.loaded(KEY, 0);
        }
        let Some(found) = series.within(KEY, &all()).into_value() else { continue };
        let (first, last) = found.span;
        let mut cuts: Vec<u64> = (0..1 + round % 40).map(|_| (unit() * (last + 10) as f64) as u64).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let steps = series.steps(KEY, &all(), &cuts).into_value().unwrap();
        let sum = |of: fn(&Stretch) -> f64| steps.iter().map(of).sum::<f64>();
        assert!((sum(|it| it.runs) - found.runs).abs() < 1e-6 * found.runs.max(1.0), "{round}");
        assert!((sum(|it| it.time_ns) - found.time_ns).abs() < 1e-6 * found.time_ns.max(1.0));
        assert!((sum(|it| it.counted_ns) - found.counted_ns).abs() < 1e-3);
        assert_eq!(sum(|it| it.length_ns), found.length_ns);
        assert_eq!(Stretch::counts(&steps).iter().sum::<u64>(), sum(|it| it.runs).round() as u64);
        assert!(steps.windows(2).all(|pair| pair[0].span.1 == pair[1].span.0));
        assert_eq!((steps[0].span.0, steps[steps.len() - 1].span.1), (first, last));
        // No estimate is less than what was counted.
        assert!(steps.iter().all(|it| it.runs >= it.counted - 1e-6 && it.runs >= 0.0));
        let middle = cuts[cuts.len() / 2].clamp(first, last);
        let [left, right] = [(first, middle), (middle, last)].map(|(a, b)| series.between(KEY, a, b).into_value());
        if let (Some(left), Some(right)) = (left, right) {
            assert!((left.runs + right.runs - found.runs).abs() < 1e-6 * found.runs.max(1.0));
        }
    }
}

/// With any number of readings, the counts between kept readings add up, and the last reading is kept.
#[test]
fn of_long_recordings_fewer_moments_are_kept() {
    let readings = 5 * MOST_MOMENTS as u64;
    let long = series((0..readings).map(|at| reading(at * 1_000, None, at * at, None)));
    assert!(long.moments.len() <= MOST_MOMENTS && long.moments.len() > MOST_MOMENTS / 2, "{}", long.moments.len());
    let last = readings - 1;
    assert_eq!((whole(&long).runs, whole(&long).span), ((last * last) as f64, (0, last * 1_000)));
    assert!(!whole(&long).is_estimate);
    let cuts = long.cuts();
    assert!(cuts.len() <= MOST_CUTS + 1 && cuts[0] == 0 && cuts[cuts.len() - 1] == last * 1_000);
    let sum: f64 = (0..cuts.len() as u32 - 1).map(|at| long.in_interval(KEY, at).into_value().unwrap().runs).sum();
    assert_eq!(sum, (last * last) as f64);
    // With windows, dropping readings changes the estimate only by joining gaps.
    let windows: Vec<(u64, u64)> = (0..readings / 2).map(|at| (at * 100 + 40, at * 100 + 60)).collect();
    let thinned = whole(&in_windows(&windows, readings * 50, |by_ns| by_ns));
    assert!((thinned.runs / (readings * 50) as f64 - 1.0).abs() < 1e-3, "{thinned:?}");
    assert!((thinned.counted_ns / (readings * 10) as f64 - 1.0).abs() < 1e-3, "{thinned:?}");
}

#[test]
fn times_are_in_the_interval_that_has_begun() {
    let series = always(&[(10, 0), (20, 1), (20, 1), (30, 2), (25, 9), (40, 3)]);
    assert_eq!(series.cuts(), [10, 20, 30, 40]);
    let intervals = [9, 10, 19, 20, 39, 40, u64::MAX].map(|time_ns| series.interval(time_ns));
    assert_eq!(intervals, [None, Some(0), Some(0), Some(1), Some(2), None, None]);
    assert_eq!(RunSeries::default().interval(5), None);
    // Cuts are at the ends of windows, so a gap is in the same interval as the window after it.
    let series = in_windows(&[(20, 30), (70, 80)], 100, |by_ns| by_ns);
    assert_eq!(series.cuts(), [0, 30, 80, 100]);
}

/// Loads with known runs and windows at random times: the true number is within the margin as often as stated, and the estimate has no bias.
#[test]
fn the_truth_is_within_the_margin_in_95_of_100() {
    const MS: u64 = 1_000_000;
    let steady = |by_ns: u64| by_ns / 5_000;
    let bursts = |by_ns: u64| (by_ns / (400 * MS) * 100 * MS + (by_ns % (400 * MS)).min(100 * MS)) / 2_000;
    let late = |by_ns: u64| by_ns.saturating_sub(4_000 * MS) / 2_000;
    let ramp = |by_ns: u64| (by_ns / MS) * (by_ns / MS) / 50;
    let loads: [(&str, &dyn Fn(u64) -> u64); 4] =
        [("steady", &steady), ("bursts", &bursts), ("late", &late), ("ramp", &ramp)];
    for (name, load) in loads {
        let (mut within, mut bias) = (0, 0.0);
        let rounds = 400;
        for round in 0..rounds {
            let mut unit = drawn(1_000 + round);
            let (end_ns, mut begins_ns, mut windows) = (10_000 * MS, 0, Vec::new());
            while begins_ns < end_ns {
                let period = (60.0 + 80.0 * unit()) * MS as f64;
                let from_ns = begins_ns + ((period - 10.0 * MS as f64) * unit()) as u64;
                if from_ns + 10 * MS < end_ns {
                    windows.push((from_ns, from_ns + 10 * MS));
                }
                begins_ns += period as u64;
            }
            let (found, truth) = (whole(&in_windows(&windows, end_ns, load)), load(end_ns) as f64);
            within += u32::from((found.runs - truth).abs() <= found.margin.unwrap() + 1.0);
            bias += (found.runs / truth - 1.0) / rounds as f64;
        }
        println!("{name}: {within} of {rounds}, bias {bias:.4}");
        assert!(within >= rounds as u32 * 92 / 100, "{name}: {within} of {rounds}");
        assert!(bias.abs() < 0.01, "{name}: {bias}");
    }
}

/// Other tools have statistics on throughout the time from 0 to 100, for a part of the time from 100 to 200, and not after.
#[test]
fn others_count_where_they_had_statistics_on_all_the_time() {
    let readings = [(0, 0, 0), (100, 40, 99), (200, 70, 149), (300, 70, 149)];
    let series = series(readings.map(|(time_ns, run_cnt, others_ns)| RunStats {
        others_ns: Some(others_ns),
        ..reading(time_ns, Some(0), run_cnt, None)
    }));
    let of = |from_ns, to_ns| series.between(KEY, from_ns, to_ns).into_value();
    let exact = of(0, 100).unwrap();
    assert_eq!((exact.count(), exact.is_estimate, exact.counted_ns), (40, false, 100.0));
    // The runs from 100 to 300 are estimated from the 100 ns in which runs were counted. The 30 runs that other tools counted for an unknown time are
    // not used.
    let all = of(0, 300).unwrap();
    assert_eq!((all.count(), all.is_estimate, all.counted_ns), (120, true, 100.0));
}

/// The load time and the time of the first reading come from different clocks. Both times are 30, but the program had already run 3 times at the
/// reading.
#[test]
fn what_ran_before_the_first_reading_is_its_own() {
    let mut series = RunSeries::default();
    for (time_ns, runs) in [(0, 0), (10, 3), (20, 8)] {
        series.add(&reading(time_ns, Some(time_ns), runs, None));
    }
    let other = ProgramRuns { id: 8, load_time_ns: 1, run_cnt: 3, ..ProgramRuns::default() };
    let of_other = |time_ns, run_cnt| RunStats {
        programs: vec![ProgramRuns { run_cnt, ..other }],
        ..reading(time_ns, Some(time_ns), 0, None)
    };
    series.add(&of_other(30, 3));
    series.add(&of_other(40, 9));
    series.loaded((8, 1), 30);
    series.settle();
    let all = series.within((8, 1), &Selected::everything()).into_value().unwrap();
    assert_eq!((all.count(), all.is_estimate), (9, false));
}
