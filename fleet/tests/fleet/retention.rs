//! Days, labels and permissions of lakes.

use crate::support::{Lake, TABLES, program, recording, rows, text};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

const NS_PER_DAY: u64 = 86_400_000_000_000;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn old_days_are_removed_and_the_others_stay() {
    let recording = recording("7.2/ratio.data");
    let lake = Lake::new();
    for days in [0, 1, 100, 200] {
        let output = lake.import_with_start(&recording, now_ns() - days * NS_PER_DAY, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let expire = |lake: &Path| program().args(["expire", "--keep", "90d", "--lake"]).arg(lake).output().unwrap();
    let output = expire(&lake.path());
    assert!(text(&output.stdout).starts_with("2 days removed, "), "{}", text(&output.stderr));
    assert_eq!(lake.sql("SELECT DISTINCT date FROM run_stats").len(), 2);
    let verified = lake.verify();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
    assert!(text(&expire(&lake.path()).stdout).starts_with("0 days removed, "));
    // A mistyped name creates no lake.
    let missing = lake.path().join("missing");
    assert_eq!((expire(&missing).status.code(), missing.exists()), (Some(2), false));
}

#[test]
fn an_erased_host_is_in_no_table() {
    let recording = recording("7.2/everything.data");
    let (lake, expected) = (Lake::new(), Lake::new());
    let import = |lake: &Lake, host: &str, at: u64| {
        let output = lake.import_with_start(&recording, 1_772_323_200_000_000_000 + at, &["--host", host]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    // One batch of two hosts, two batches that have only the erased host, and one batch without it.
    let erased = "edge'1";
    for (host, at) in [("a", 0), (erased, 1_000_000), (erased, NS_PER_DAY), ("b", 3 * NS_PER_DAY)] {
        import(&lake, host, at);
        if host != erased {
            import(&expected, host, at);
        }
    }
    let run = |verb: &[&str], lake: &Path| program().args(verb).arg("--lake").arg(lake).output().unwrap();
    assert_eq!(text(&run(&["compact"], &lake.path()).stdout), "4 batches merged into 3\n");
    import(&lake, erased, NS_PER_DAY + 1_000_000);
    let erase = |host: &str, lake: &Path| run(&["erase", "--host", host], lake);
    let output = erase(erased, &lake.path());
    assert_eq!(text(&output.stdout), "3 batches rewritten without the host edge'1\n", "{}", text(&output.stderr));
    // The recordings of the two lakes were imported from different paths.
    let contents = |lake: &Lake| {
        let mut contents = lake.contents();
        contents.remove("recording");
        contents
    };
    assert!(contents(&lake) == contents(&expected));
    for table in TABLES {
        let hosts = lake.sql(&format!("SELECT DISTINCT host_id FROM {table} ORDER BY host_id"));
        let hosts: Vec<&str> = hosts.iter().map(|row| row["host_id"].as_str().unwrap()).collect();
        assert!(hosts == ["a", "b"] || table == "counter" && hosts.is_empty(), "{table}: {hosts:?}");
    }
    let verified = lake.verify();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
    assert_eq!(text(&run(&["compact"], &lake.path()).stdout), "4 batches merged into 3\n");
    assert!(contents(&lake) == contents(&expected));
    let again = erase(erased, &lake.path());
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains(": has no host with the id edge'1"), "{}", text(&again.stderr));
    // A mistyped name creates no lake.
    let missing = lake.path().join("missing");
    assert_eq!((erase(erased, &missing).status.code(), missing.exists()), (Some(2), false));
    assert_eq!((run(&["compact"], &missing).status.code(), missing.exists()), (Some(2), false));
}

/// Readers of a superseded generation have an hour; then the next writer removes the generation.
#[test]
fn superseded_generations_are_removed_after_the_horizon() {
    let recording = recording("7.2/ratio.data");
    let lake = Lake::of_four_hosts(&[&recording]);
    let old = lake.generation();
    let before = lake.contents();
    let compact = |lake: &Lake| program().args(["compact", "--lake"]).arg(lake.path()).output().unwrap();
    assert_eq!(text(&compact(&lake).stdout), "4 batches merged into 1\n");
    let names = |directory: &str| {
        let entries = std::fs::read_dir(lake.path().join("v2").join(directory)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names("generations"), ["1", "2", "3", "4", "5"]);
    let files = |generation: &Path| std::fs::read_dir(generation.join("run_stats/date=2026-03-01")).unwrap().count();
    assert_eq!((files(&old), files(&lake.generation())), (4, 1));
    // Generations 2 and 3 get an age of one hour. A generation is superseded when the next one is made, so 1 and 2 were superseded an hour ago and
    // are removed.
    for generation in ["2", "3"] {
        let directory = std::fs::File::open(lake.path().join("v2/generations").join(generation)).unwrap();
        directory.set_modified(SystemTime::now() - Duration::from_secs(3601)).unwrap();
    }
    assert_eq!(text(&compact(&lake).stdout), "1 batches merged into 1\n");
    assert_eq!(names("generations"), ["3", "4", "5"]);
    assert_eq!(names("days"), ["2026-03-01.3", "2026-03-01.4", "2026-03-01.5"]);
    assert_eq!((files(&old), lake.contents()), (4, before));
}

#[test]
fn a_recording_from_the_future_is_refused() {
    let lake = Lake::new();
    let output = lake.import_with_start(&recording("7.2/ratio.data"), now_ns() + 3 * NS_PER_DAY, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("copy.data: its clock says "), "{}", text(&output.stderr));
}

#[test]
fn labels_select_hosts_in_every_query() {
    let (recording, lake) = (recording("7.2/everything.data"), Lake::new());
    for (at, role) in ["edge", "core\"'}"].into_iter().enumerate() {
        let start = 1_772_323_200_000_000_000 + at as u64 * 1_000_000;
        let label = format!("role={role}");
        let output =
            lake.import_with_start(&recording, start, &["--host", role, "--label", &label, "--label", "site=b"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let hosts = |labels: &[&str]| {
        let labels = labels.iter().flat_map(|label| ["--label", label]);
        let args: Vec<&str> = ["hosts", "--format", "json"].into_iter().chain(labels).collect();
        let rows = rows(&lake.query(&args));
        rows.iter().map(|row| row["host_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(hosts(&["role=edge"]), ["edge"]);
    assert_eq!(hosts(&["role=core\"'}", "site=b"]), ["core\"'}"]);
    assert_eq!(hosts(&["site=b"]).len(), 2);
    assert!(hosts(&["role=ed"]).is_empty());
    for query in ["functions", "top", "versions"] {
        let found = rows(&lake.query(&[query, "--format", "json", "--label", "role=edge"]));
        assert!(!found.is_empty() && found.iter().all(|row| row["hosts"] == 1), "{query}: {found:?}");
    }
}

#[test]
fn files_have_the_permissions_of_the_lake() {
    let recording = recording("7.2/ratio.data");
    let lake = Lake::new();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert!(lake.import_with_start(&recording, 1_772_323_200_000_000_000, &[]).status.success());
    assert_eq!(mode(&lake.path()), 0o700);
    assert!(lake.files("run_stats").iter().all(|file| mode(file) == 0o600));
    std::fs::set_permissions(lake.path().join("v2"), std::fs::Permissions::from_mode(0o750)).unwrap();
    assert!(lake.import_with_start(&recording, 1_772_323_200_000_000_000 + NS_PER_DAY, &[]).status.success());
    let modes: Vec<u32> = lake.files("run_stats").iter().map(|file| mode(file)).collect();
    assert_eq!(modes, [0o600, 0o640]);
    assert_eq!(mode(lake.files("run_stats")[1].parent().unwrap()), 0o750);
}
