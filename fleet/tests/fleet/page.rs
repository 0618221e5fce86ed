//! Page of a fleet in a browser.

use crate::support::{DAY_NS, Lake, program, recording, rows, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Returns the document of a page after its scripts ran in a browser.
fn shown(page: &Path) -> Option<String> {
    let chromium = Path::new("/usr/bin/chromium");
    if !chromium.exists() {
        assert!(std::env::var_os("CI").is_none(), "setup/install fleet was not run");
        return None;
    }
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(chromium);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.path().display())).arg(format!("file://{}", page.display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout))
}

/// Returns the cells of each row in the table of a section.
fn cells<'p>(shown: &'p str, section: &str) -> Vec<Vec<&'p str>> {
    let section = shown.split_once(&format!(">{section}</h2>")).unwrap().1.split_once("</section>").unwrap().0;
    let body = section.split_once("<tbody>").unwrap().1.split_once("</tbody>").unwrap().0;
    let cells = |row: &'p str| row.split("</td>").filter_map(|cell| Some(cell.rsplit_once('>')?.1)).collect();
    body.split("</tr>").filter(|row| row.contains("<td")).map(cells).collect()
}

/// The page has every row of every answer, and names queries without rows.
#[test]
fn a_browser_shows_every_answer() {
    let lake = Lake::of_four_hosts(&[&recording("7.2/ratio.data"), &recording("7.2/everything.data")]);
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("fleet.html");
    let output =
        program().args(["page", "--min-runs", "100", "--lake"]).arg(lake.path()).arg("-o").arg(&page).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let Some(shown) = shown(&page) else {
        println!("SKIP a_browser_shows_every_answer: needs chromium");
        return;
    };
    assert!(shown.contains("8 recordings of 4 hosts, 2026-03-01 to 2026-03-02 (UTC)"), "{shown}");
    assert!(shown.contains("<title>bprec fleet · lake</title>") && shown.contains(r#"data-ready="yes""#));
    let sections = [
        ("top", "Programs", "cpu_ns"),
        ("regressed", "Changes", "cpu_ns_new"),
        ("versions", "Versions", "runs"),
        ("hosts", "Hosts", "runs"),
        ("functions", "Functions", "weight"),
        ("owners", "Owners", "weight"),
    ];
    for (question, title, number) in sections {
        let answer = rows(&lake.query(&[question, "--format", "json", "--limit", "500", "--min-runs", "100"]));
        let seen = cells(&shown, title);
        assert_eq!(seen.len(), answer.len(), "{question}");
        for (seen, row) in seen.iter().zip(&answer) {
            let expected = row[number].as_u64().unwrap().to_string();
            assert!(seen.contains(&&*expected), "{question}: {seen:?} {row}");
            let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
            assert!(name.is_empty() || seen.contains(&name), "{question}: {seen:?} {row}");
        }
    }
    assert!(shown.contains("counters: no rows for these days") && !shown.contains(">Counters</h2>"));
    // A page of the hosts with a label.
    let options = ["--host", "host4", "--label", "role=edge"];
    assert!(lake.import_with_start(&recording("7.2/ratio.data"), DAY_NS + 4000, &options).status.success());
    let output = lake.run(&["page", "--label", "role=edge", "-o", page.to_str().unwrap(), "--lake"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = self::shown(&page).unwrap();
    assert!(page.contains("1 recordings of 1 hosts, 2026-03-01 to 2026-03-01 (UTC)"), "{page}");
    assert_eq!(cells(&page, "Hosts").len(), 1);
}
