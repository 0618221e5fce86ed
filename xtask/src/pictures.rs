//! Makes the pictures of README from recordings of the fixtures: a page in a browser, and a tree and screens with their terminal colours.

use std::fmt::Write as _;
use std::path::{Path, absolute};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::builds::{named, workspace};
use crate::target_directory;

const RECORDING: &str = "fixtures/recordings/linux-7.2/ratio.data";
/// Recording of the page and of the screens.
const PAGE_OF: &str = "fixtures/recordings/linux-7.2/everything.data";
const PAGE: &str = "page.webp";
const TREE: &str = "tree.svg";
/// Screens of `report --tui`, with their columns and rows.
const SCREENS: [(&str, usize, usize); 2] = [("screen.svg", 120, 40), ("screen-small.svg", 80, 24)];
/// Directory of the pictures.
const DOCS: &str = "docs";
/// Count of attempts to capture a screen, and the time between them.
const CAPTURES: (u32, Duration) = (100, Duration::from_millis(100));
/// Arguments of `bprec` that print the tree.
const COMMAND: [&str; 4] = ["report", "--tree", "--prog", "17"];
/// Width of the terminal, in columns.
const COLUMNS: usize = 96;
/// Limit on the size of a picture: every visitor of the README on GitHub loads the pictures.
const MOST_BYTES: usize = 150_000;
/// Size of the browser window, in pixels: the first screen of the page.
const PAGE_SIZE: (u32, u32) = (1400, 800);
/// Limit on the share of pixels, per cent, that may differ in the picture of the page: releases of the browser smooth letters differently.
const MOST_DIFFERENT: f64 = 0.5;

/// Makes all pictures. With `check`, compares the committed pictures with pictures of today's page and screens instead.
pub(crate) fn run(sh: &Shell, check: bool) -> Result<()> {
    if !check {
        return draw_all(sh, Path::new(DOCS));
    }
    let made = absolute(target_directory().join("pictures"))?;
    sh.create_dir(&made)?;
    draw_all(sh, &made)?;
    let mut stale = Vec::new();
    for name in [TREE].into_iter().chain(SCREENS.map(|(name, ..)| name)) {
        if sh.read_binary_file(made.join(name))? != sh.read_binary_file(Path::new(DOCS).join(name))? {
            stale.push(name.to_owned());
        }
    }
    let different = different_percent(sh, &made.join(PAGE), &Path::new(DOCS).join(PAGE))?;
    if different > MOST_DIFFERENT {
        stale.push(format!("{PAGE} ({different:.1} % of its pixels)"));
    }
    ensure!(stale.is_empty(), "pictures have changed; run `make pictures` and look at them: {}", stale.join(", "));
    println!("the committed pictures are current");
    Ok(())
}

/// Returns the share of pixels, per cent, in which two pictures of the page differ visibly.
fn different_percent(sh: &Shell, one: &Path, other: &Path) -> Result<f64> {
    // `compare` prints the count of different pixels, and then fails if there are any.
    let output = cmd!(sh, "compare -metric AE -fuzz 19% {one} {other} null:").quiet().ignore_status().output()?;
    let said = String::from_utf8(output.stderr)?;
    let different: f64 = said.trim().parse().with_context(|| format!("compare the pictures of the page: {said}"))?;
    Ok(100.0 * different / (PAGE_SIZE.0 * PAGE_SIZE.1) as f64)
}

/// Takes a picture of a page in the browser.
fn capture_page(sh: &Shell, page: &Path, picture: &Path) -> Result<()> {
    // chromium does not start as root with its sandbox. Without the sandbox, it opens only the page made here.
    let always = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000"];
    // Without this option, a picture may lack parts that were not drawn in time.
    let whole = "--run-all-compositor-stages-before-draw";
    let size = format!("--window-size={},{}", PAGE_SIZE.0, PAGE_SIZE.1);
    let chromium = cmd!(sh, "chromium {always...} {whole} {size} --screenshot={picture} file://{page}");
    Ok(chromium.quiet().ignore_stderr().run()?)
}

/// Draws all pictures into a directory.
fn draw_all(sh: &Shell, into: &Path) -> Result<()> {
    let built = workspace(sh)?;
    let bprec = &named(&built, "bprec", false)?.path;
    let page = absolute(target_directory().join("picture.html"))?;
    cmd!(sh, "{bprec} export --to html -i {PAGE_OF} -o {page}").quiet().run()?;
    capture_page(sh, &page, &into.join(PAGE))?;
    let report = cmd!(sh, "{bprec} {COMMAND...} --color always -i {RECORDING}").env("COLUMNS", COLUMNS.to_string());
    let tree = format!("$ bprec {}\n{}", COMMAND.join(" "), report.quiet().read()?);
    sh.write_file(into.join(TREE), svg(&tree, COLUMNS, "What a program cost, as a tree"))?;
    for (picture, columns, rows) in SCREENS {
        let screen = captured(sh, bprec, columns, rows)?;
        sh.write_file(into.join(picture), svg(&screen, columns, "What BPF programs cost, on a terminal"))?;
    }
    for picture in [PAGE, TREE].into_iter().chain(SCREENS.map(|(picture, ..)| picture)) {
        let bytes = sh.read_binary_file(into.join(picture))?.len();
        ensure!(bytes <= MOST_BYTES, "{picture} has {bytes} bytes, more than {MOST_BYTES}");
        println!("{picture}: {bytes} bytes");
    }
    Ok(())
}

/// Runs `bprec report --tui` in tmux; returns the screen with its escape sequences.
fn captured(sh: &Shell, bprec: &Path, columns: usize, rows: usize) -> Result<String> {
    // Each screen has its own server. The previous server may still be ending, and would end the new session too.
    let socket = absolute(target_directory().join(format!("picture-{columns}.tmux")))?;
    let tmux = |arguments: &[&str]| {
        let tmux = cmd!(sh, "tmux -f /dev/null -S {socket} {arguments...}").env_remove("TMUX").env("LC_ALL", "C.UTF-8");
        tmux.quiet().read()
    };
    let command = format!("COLORTERM=truecolor '{}' report --tui -i {PAGE_OF}", bprec.display());
    tmux(&["new-session", "-d", "-x", &columns.to_string(), "-y", &rows.to_string(), &command])?;
    let mut screen = String::new();
    // The first screen says only that the recording is being read.
    for _ in 0..CAPTURES.0 {
        thread::sleep(CAPTURES.1);
        screen = tmux(&["capture-pane", "-p", "-e", "-N"])?;
        if screen.contains("PROGRAM") {
            break;
        }
    }
    tmux(&["kill-server"])?;
    ensure!(screen.contains("PROGRAM"), "no programs on the screen after {:?}:\n{screen}", CAPTURES.1 * CAPTURES.0);
    Ok(screen)
}

/// Width of a character and height of a line, in pixels.
const CELL: (f64, f64) = (8.4, 19.0);
const MARGIN: f64 = 16.0;

/// Draws terminal text as SVG. Each stretch of text in one style has the width of its cells, so the font does not change the layout.
fn svg(text: &str, columns: usize, title: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (width, height) = (columns as f64 * CELL.0 + 2.0 * MARGIN, lines.len() as f64 * CELL.1 + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"14\" fill=\"#d6deeb\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#10151c\"/>\n"
    );
    for (row, line) in lines.iter().enumerate() {
        let top = MARGIN + row as f64 * CELL.1;
        let (mut column, mut style) = (0, TextStyle::default());
        for (at, part) in line.split("\u{1b}[").enumerate() {
            // Text before the first escape sequence has the default style.
            let (codes, words) = if at == 0 { ("", part) } else { part.split_once('m').unwrap_or(("", part)) };
            if at > 0 {
                style.apply(codes);
            }
            draw(&mut svg, words, MARGIN + column as f64 * CELL.0, top, &style);
            column += words.chars().count();
        }
    }
    svg + "</svg>\n"
}

/// Draws a stretch of text in one style: its background, bars as rectangles, and text.
fn draw(svg: &mut String, words: &str, x: f64, top: f64, style: &TextStyle) {
    let length = words.chars().count() as f64 * CELL.0;
    // Writing to a string does not fail.
    if let Some(color) = &style.background {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{:.1}\" fill=\"{color}\"/>",
            CELL.1
        );
    }
    if words.trim().is_empty() {
        return;
    }
    let mut at = 0.0;
    for run in words.chars().collect::<Vec<char>>().chunk_by(|a, b| eighths(*a) == eighths(*b)) {
        let (from, length) = (x + at, run.len() as f64 * CELL.0);
        at += length;
        let color = style.color.as_deref().unwrap_or("#d6deeb");
        let text = run.iter().collect::<String>().replace('&', "&amp;").replace('<', "&lt;");
        let _ = match eighths(run[0]) {
            Some(eighths) => {
                let height = CELL.1 * f64::from(eighths) / 8.0;
                let y = top + CELL.1 - height;
                writeln!(
                    svg,
                    "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>"
                )
            }
            None if text.trim().is_empty() => Ok(()),
            None => writeln!(
                svg,
                "<text x=\"{from:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\"{}>{text}</text>",
                top + 0.75 * CELL.1,
                style.attributes()
            ),
        };
    }
}

/// Returns the height of a bar character in eighths of a line; `None` for any other character. Bars are drawn as rectangles, as fonts differ in these
/// characters.
fn eighths(c: char) -> Option<u32> {
    ('▁'..='█').contains(&c).then(|| c as u32 - '▁' as u32 + 1)
}

/// Style that escape sequences set.
#[derive(Default)]
struct TextStyle {
    color: Option<String>,
    background: Option<String>,
    is_bold: bool,
    is_dim: bool,
}

impl TextStyle {
    /// Applies the codes of an escape sequence.
    fn apply(&mut self, codes: &str) {
        let mut codes = codes.split(';');
        while let Some(code) = codes.next() {
            match code {
                "" | "0" => *self = TextStyle::default(),
                "1" => self.is_bold = true,
                "2" => self.is_dim = true,
                "31" => self.color = Some("#ff7b72".to_owned()),
                "32" => self.color = Some("#7ee787".to_owned()),
                "33" => self.color = Some("#e3b341".to_owned()),
                "39" => self.color = None,
                "49" => self.background = None,
                "38" | "48" => {
                    // Four numbers follow: 2, red, green, blue.
                    let parts: Vec<&str> = codes.by_ref().take(4).skip(1).collect();
                    let color = Some(format!("rgb({})", parts.join(",")));
                    if code == "38" { self.color = color } else { self.background = color }
                }
                _ => {}
            }
        }
    }

    /// SVG attributes of text.
    fn attributes(&self) -> String {
        let bold = if self.is_bold { " font-weight=\"bold\"" } else { "" };
        let color = self.color.as_deref().or(self.is_dim.then_some("#8593a5"));
        let color = color.map(|color| format!(" fill=\"{color}\"")).unwrap_or_default();
        format!("{bold}{color}")
    }
}
