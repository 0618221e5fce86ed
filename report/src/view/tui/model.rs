//! Models that pages show, and the lines of each view of a model.

use std::sync::Arc;

use crate::ProgFilter;
use crate::model::{Annotation, Bill, CodeCost, History, Interval, Overview, Payers, Program, Report, Stacks, Trees};
use crate::view::{Detail, FirstScreen, Listing};

/// Identity of a program, the same in all models of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShownProgram {
    id: u32,
    load_time_ns: Option<u64>,
}

/// Kind of a requested model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Programs: the first page, and the table of all columns.
    Programs,
    /// Functions, lines and instructions.
    Code,
    /// Trees of the code that programs called.
    Tree,
    /// Payers.
    Payers,
    /// Bills of the owners.
    Bill,
    /// Call chains.
    Stacks,
}

/// A model; several pages can share it.
#[derive(Debug, Clone)]
pub enum Model {
    /// A recording, with an overview of each event.
    Report(Arc<Report>, Arc<[Overview]>),
    /// An interval, and the cost of programs in earlier intervals.
    Interval(Arc<Interval>, Arc<History>),
    /// Code of the programs.
    Annotation(Arc<Annotation>),
    /// Trees of the code that programs called.
    Trees(Arc<Trees>),
    /// Payers of the programs.
    Payers(Arc<Payers>),
    /// Bills of the owners of programs.
    Bill(Arc<Bill>),
    /// Call chains of one program, or of all.
    Stacks(Arc<Stacks>),
}

/// Part of a model that a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageView {
    Programs,
    /// Programs with all columns.
    Table,
    Functions,
    Code {
        function: usize,
        detail: Detail,
    },
    Line {
        function: usize,
        line: usize,
    },
    Tree,
    Payers,
    Bill,
    Flame,
}

impl PageView {
    /// Name of the view, for the title line.
    pub(super) fn title(self) -> &'static str {
        match self {
            PageView::Programs | PageView::Table | PageView::Functions => "functions",
            PageView::Code { .. } => "lines",
            PageView::Line { .. } => "instructions",
            PageView::Tree => "what it called",
            PageView::Payers => "payers",
            PageView::Bill => "bill of each owner",
            PageView::Flame => "flame graph",
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            PageView::Programs | PageView::Table => Kind::Programs,
            PageView::Functions | PageView::Code { .. } | PageView::Line { .. } => Kind::Code,
            PageView::Tree => Kind::Tree,
            PageView::Payers => Kind::Payers,
            PageView::Bill => Kind::Bill,
            PageView::Flame => Kind::Stacks,
        }
    }
}

impl Model {
    /// Lines of a view of one program, or of all programs. Tables show the event `event`; a flame graph shows the stacks that begin with `below`.
    pub(super) fn listing(
        &self,
        view: PageView,
        program: Option<ShownProgram>,
        event: usize,
        below: &[String],
        width: usize,
    ) -> Listing {
        let of = |programs: &[Program]| {
            programs.iter().position(|it| program.is_some_and(|key| key.is(it.id, it.load_time_ns)))
        };
        match (self, view) {
            (Model::Report(report, _), _) => report.listing(event, width),
            (Model::Interval(interval, history), _) => interval.listing(event, history, width),
            (Model::Annotation(annotation), view) => {
                let mut programs = annotation.programs.iter();
                let at = programs.position(|it| program.is_some_and(|key| key.is(it.id, it.load_time_ns)));
                match (at, view) {
                    (None, _) => Listing::default(),
                    (Some(at), PageView::Code { function, detail }) => {
                        annotation.code_listing(at, function, detail, width)
                    }
                    (Some(at), PageView::Line { function, line }) => annotation.line_listing(at, function, line, width),
                    (Some(at), _) => annotation.functions_listing(at, width),
                }
            }
            (Model::Trees(trees), _) => match program {
                None => trees.listing(None, width),
                Some(_) => of(&trees.programs).map(|at| trees.listing(Some(at), width)).unwrap_or_default(),
            },
            (Model::Stacks(stacks), _) => stacks.flame_listing(width, below),
            (Model::Bill(bill), _) => bill.listing(width),
            (Model::Payers(payers), _) => match program {
                None => payers.listing(None, width),
                Some(_) => of(&payers.programs).map(|at| payers.listing(Some(at), width)).unwrap_or_default(),
            },
        }
    }

    /// Key and label of the program at a position in the report; `None` if the program has no id.
    pub(super) fn program(&self, item: usize) -> Option<(ShownProgram, String)> {
        let program = self.report()?.programs.get(item)?;
        Some((ShownProgram { id: program.id?, load_time_ns: program.load_time_ns }, program.label_with_id()))
    }

    /// Row of a program in the table of an event.
    pub(super) fn row_of(&self, key: ShownProgram, event: usize) -> Option<usize> {
        let report = self.report()?;
        let is_it = |at: usize| report.programs.get(at).is_some_and(|it| key.is(it.id, it.load_time_ns));
        report.events.get(event)?.rows.iter().position(|row| is_it(row.program))
    }

    /// First page of an event; `None` for models of other pages.
    pub(super) fn first_screen(&self, event: usize) -> Option<FirstScreen> {
        match self {
            Model::Report(report, overviews) => {
                Some(overviews.get(event).map(|it| report.first_screen(event, it)).unwrap_or_default())
            }
            Model::Interval(interval, history) => Some(interval.first_screen(event, history)),
            Model::Annotation(_) | Model::Trees(_) | Model::Payers(_) | Model::Bill(_) | Model::Stacks(_) => None,
        }
    }

    /// Position of the function or source line with the most samples; `None` for views that list neither.
    pub(super) fn hottest(&self, view: PageView, program: Option<ShownProgram>) -> Option<usize> {
        let Model::Annotation(annotation) = self else { return None };
        let mut programs = annotation.programs.iter();
        let program = programs.find(|it| program.is_some_and(|key| key.is(it.id, it.load_time_ns)))?;
        let costs: Vec<&CodeCost> = match view {
            PageView::Functions => program.functions.iter().map(|function| &function.cost).collect(),
            PageView::Code { function, .. } => {
                program.functions.get(function)?.lines.iter().map(|line| &line.cost).collect()
            }
            _ => return None,
        };
        // `max_by_key` returns the last of several items with equal samples; `rev` makes it the first.
        (0..costs.len()).rev().max_by_key(|at| costs[*at].samples)
    }

    /// Events of the table: position and name.
    pub(super) fn events(&self) -> Vec<(usize, &str)> {
        let events = self.report().map(|report| &report.events[..]).unwrap_or_default();
        events.iter().enumerate().map(|(at, event)| (at, event.name.as_str())).collect()
    }

    fn report(&self) -> Option<&Report> {
        match self {
            Model::Report(report, _) => Some(report),
            Model::Interval(interval, _) => Some(&interval.report),
            Model::Annotation(_) | Model::Trees(_) | Model::Payers(_) | Model::Bill(_) | Model::Stacks(_) => None,
        }
    }
}

impl ShownProgram {
    fn is(self, id: Option<u32>, load_time_ns: Option<u64>) -> bool {
        id == Some(self.id) && load_time_ns == self.load_time_ns
    }

    /// Filter that selects the program.
    pub(super) fn filter(self) -> ProgFilter {
        ProgFilter::Id(self.id)
    }
}
