//! Tests of keys, clicks and answers.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::view::ListingRow;
use crate::view::tui::{Charset, Depth, draw};
use crate::{Input, Session};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const RATIO: &[u8] = include_bytes!("../../../../../fixtures/recordings/linux-7.2/ratio.data");

/// Answers the next request from a recording.
fn answer(browser: &mut Browser, session: &Session<'_>) -> Answer {
    match browser.next_request() {
        Some(Request::Read(read)) => session.answer(&read),
        other => panic!("{other:?}"),
    }
}

fn browser_of_recording() -> Browser {
    Browser::of_recording(String::new(), Options::default(), Palette::new(Depth::Full, Charset::Unicode))
}

fn press(browser: &mut Browser, code: KeyCode) {
    browser.key(KeyEvent::new(code, KeyModifiers::NONE));
}

/// The user leaves the page by a key before its answer arrives.
#[test]
fn a_late_answer_is_not_taken_for_another_page() {
    let input = Input::from_bytes("ratio.data", RATIO.to_vec());
    let session = Session::open(&input).unwrap();
    let mut browser = browser_of_recording();
    let table = answer(&mut browser, &session);
    browser.take(table);
    press(&mut browser, KeyCode::Char('c'));
    let before = browser.listing(100).unwrap().clone();
    assert!(before.header.contains("PROGRAM"), "{before:?}");
    press(&mut browser, KeyCode::Char('P'));
    let late = answer(&mut browser, &session);
    press(&mut browser, KeyCode::Esc);
    browser.take(late);
    assert_eq!(browser.listing(100), Some(&before));
}

#[test]
fn the_cursor_is_on_the_hottest_row_and_a_click_opens_it() {
    let input = Input::from_bytes("ratio.data", RATIO.to_vec());
    let session = Session::open(&input).unwrap();
    let mut browser = browser_of_recording();
    let table = answer(&mut browser, &session);
    browser.take(table);
    press(&mut browser, KeyCode::Enter);
    let functions = answer(&mut browser, &session);
    browser.take(functions);
    for pages in [3, 4] {
        let samples = |row: &ListingRow| row.text.split_whitespace().next()?.parse::<u64>().ok();
        let listing = browser.listing(100).unwrap().clone();
        let page = browser.pages.last().unwrap();
        let hottest = listing.rows.iter().filter_map(samples).max();
        assert_eq!(samples(&listing.rows[page.chosen()]), hottest, "{listing:?}");
        let row = 5 + u16::try_from(page.chosen()).unwrap();
        browser.set_rows_area(Rect::new(0, 5, 100, 50));
        let kind = MouseEventKind::Down(MouseButton::Left);
        let click = |row| MouseEvent { kind, column: 3, row, modifiers: KeyModifiers::NONE };
        // A click above the rows does nothing.
        browser.mouse(click(4));
        assert_eq!(browser.pages.len(), pages - 1);
        browser.mouse(click(row));
        assert_eq!(browser.pages.len(), pages);
    }
}

#[test]
fn a_filter_holds_while_it_is_typed_and_escape_takes_it_back() {
    let input = Input::from_bytes("ratio.data", RATIO.to_vec());
    let session = Session::open(&input).unwrap();
    let mut browser = browser_of_recording();
    let table = answer(&mut browser, &session);
    browser.take(table);
    let rows = |browser: &Browser| browser.pages[0].len();
    let all = rows(&browser);
    press(&mut browser, KeyCode::Char('/'));
    for c in "enter".chars() {
        press(&mut browser, KeyCode::Char(c));
        let filtered = answer(&mut browser, &session);
        browser.take(filtered);
    }
    assert!(rows(&browser) > 0 && rows(&browser) < all, "{} of {all}", rows(&browser));
    press(&mut browser, KeyCode::Esc);
    let table = answer(&mut browser, &session);
    browser.take(table);
    assert_eq!(rows(&browser), all);
}

/// Help and notes are wrapped, and keys scroll the lines that do not fit.
#[test]
fn no_line_of_the_help_is_out_of_reach() {
    let mut terminal = Terminal::new(TestBackend::new(70, 12)).unwrap();
    let mut browser = browser_of_recording();
    press(&mut browser, KeyCode::Char('h'));
    let mut shown = |browser: &mut Browser| {
        terminal.draw(|frame| draw(frame, browser)).unwrap();
        terminal.backend().buffer().content.iter().map(|cell| cell.symbol()).collect::<String>()
    };
    assert!(!shown(&mut browser).contains("q Ctrl-C"));
    press(&mut browser, KeyCode::End);
    let last = shown(&mut browser);
    assert!(last.contains("q Ctrl-C") && last.contains("selects text"), "{last}");
    press(&mut browser, KeyCode::Up);
    press(&mut browser, KeyCode::Home);
    assert!(shown(&mut browser).contains("go to a row"));
    press(&mut browser, KeyCode::Esc);
    assert_eq!(browser.overlay, None);
}
