//! Makes the pictures of README from recordings of the fixtures: a page in a browser, and a tree with its terminal colours.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::target_directory;

const RECORDING: &str = "fixtures/recordings/linux-7.2/ratio.data";
/// Recording of the page.
const PAGE_OF: &str = "fixtures/recordings/linux-7.2/everything.data";
const PAGE: &str = "docs/page.webp";
const TREE: &str = "docs/tree.svg";
/// Arguments of `bprec` that print the tree.
const COMMAND: [&str; 4] = ["report", "--tree", "--prog", "17"];
/// Size of the browser window, in pixels: the first screen of the page.
const PAGE_SIZE: &str = "1400,775";
/// Width of the terminal, in columns.
const COLUMNS: usize = 96;
/// Limit on the size of a picture: every visitor of the README on GitHub loads the pictures.
const MOST_BYTES: u64 = 150_000;

/// Makes both pictures.
pub(crate) fn make() -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    succeed(Command::new(cargo).args(["build", "--locked", "--bin", "bprec"]))?;
    let bprec = target_directory().join("debug/bprec");
    let page = std::path::absolute(target_directory().join("picture.html"))?;
    succeed(Command::new(&bprec).args(["export", "--to", "html", "-i", PAGE_OF, "-o"]).arg(&page))?;
    let mut chromium = Command::new("chromium");
    // chromium refuses its sandbox as root; without the sandbox it opens only our page.
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000"]);
    chromium.arg(format!("--window-size={PAGE_SIZE}")).arg(format!("--screenshot={PAGE}"));
    succeed(chromium.arg(format!("file://{}", page.display())))?;
    let mut report = Command::new(&bprec);
    report.args(COMMAND).args(["--color", "always", "-i", RECORDING]).env("COLUMNS", COLUMNS.to_string());
    let printed = succeed(&mut report)?;
    fs::write(TREE, svg(&format!("$ bprec {}\n{printed}", COMMAND.join(" ")))).context(TREE)?;
    for picture in [PAGE, TREE] {
        let bytes = fs::metadata(Path::new(picture)).context(picture)?.len();
        ensure!(bytes <= MOST_BYTES, "{picture} has {bytes} bytes, more than {MOST_BYTES}");
        println!("{picture}: {bytes} bytes");
    }
    Ok(())
}

/// Runs a command that must succeed; returns its output.
fn succeed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Width of a character and height of a line, in pixels.
const CELL: (f64, f64) = (8.4, 19.0);
const MARGIN: f64 = 16.0;

/// Draws terminal text as SVG. Each run of one colour has the width of its cells, so the font does not change the layout.
fn svg(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (width, height) = (COLUMNS as f64 * CELL.0 + 2.0 * MARGIN, lines.len() as f64 * CELL.1 + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"14\" fill=\"#d6deeb\">\n\
         <title>What a program cost, as a tree</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#10151c\"/>\n"
    );
    for (row, line) in lines.iter().enumerate() {
        let y = MARGIN + (row as f64 + 0.75) * CELL.1;
        let mut column = 0;
        for (at, part) in line.split("\u{1b}[").enumerate() {
            // Text before the first escape sequence has the default colour.
            let (code, words) = if at == 0 { ("0", part) } else { part.split_once('m').unwrap_or(("0", part)) };
            let cells = words.chars().count();
            if !words.trim().is_empty() {
                let (x, length) = (MARGIN + column as f64 * CELL.0, cells as f64 * CELL.0);
                let words = words.replace('&', "&amp;").replace('<', "&lt;");
                let style = style(code);
                // Writing to a string does not fail.
                let _ = writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\"{style}>{words}</text>"
                );
            }
            column += cells;
        }
    }
    svg + "</svg>\n"
}

/// Returns the SVG attributes of a colour.
fn style(code: &str) -> &'static str {
    match code {
        "1" => " font-weight=\"bold\"",
        "2" => " fill=\"#8593a5\"",
        "31" => " fill=\"#ff7b72\"",
        "32" => " fill=\"#7ee787\"",
        "33" => " fill=\"#e3b341\"",
        _ => "",
    }
}
