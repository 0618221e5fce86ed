//! Models of the reporter, and the lines of each view of them.

use std::sync::Arc;

use bprec_report::model::{History, Interval};
use bprec_report::{
    AnnotateOptions, Annotation, Detail, Listing, Options, Payer, Payers, ProgFilter, Report, Session, Stacks, Trees,
};

use crate::report::TREE_PERCENT_LIMIT;

/// Identity of a program in all models of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramKey {
    id: u32,
    load_time_ns: Option<u64>,
}

/// Kind of a requested model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The table by program.
    Programs,
    /// Functions, lines and instructions.
    Code,
    /// Functions that programs called, and code below them.
    Tree,
    /// Payers.
    Payers,
    /// Call chains.
    Stacks,
}

/// A model, which several pages can share.
#[derive(Debug, Clone)]
pub(crate) enum Model {
    Report(Arc<Report>),
    /// An interval, and the cost of programs in earlier intervals.
    Interval(Arc<Interval>, Arc<History>),
    Annotation(Arc<Annotation>),
    Trees(Arc<Trees>),
    Payers(Arc<Payers>),
    Stacks(Arc<Stacks>),
}

/// Part of a model that a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Programs,
    Functions,
    Code { function: usize, detail: Detail },
    Line { function: usize, line: usize },
    Tree,
    Payers,
    Flame,
}

impl View {
    pub(crate) fn kind(self) -> Kind {
        match self {
            View::Programs => Kind::Programs,
            View::Functions | View::Code { .. } | View::Line { .. } => Kind::Code,
            View::Tree => Kind::Tree,
            View::Payers => Kind::Payers,
            View::Flame => Kind::Stacks,
        }
    }
}

impl Model {
    /// Reads a model from a recording.
    ///
    /// # Errors
    /// Fails if the recording is damaged, or has no event of the query.
    pub(crate) fn read(session: &Session<'_>, kind: Kind, query: &Options) -> bprec_report::Result<Model> {
        Ok(match kind {
            Kind::Programs => Model::Report(session.by_prog(query)?.into()),
            Kind::Code => {
                let options = AnnotateOptions { query: query.clone(), ..AnnotateOptions::default() };
                Model::Annotation(session.annotate(&options)?.into())
            }
            Kind::Tree => Model::Trees(session.trees(query, TREE_PERCENT_LIMIT)?.into()),
            Kind::Stacks => Model::Stacks(session.stacks(query)?.into()),
            Kind::Payers => Model::Payers(session.payers(query, &[Payer::Comm])?.into()),
        })
    }

    /// Lines of a view of one program, or of all programs. The table uses `event`; a flame graph shows only stacks below the frames `below`.
    pub(crate) fn listing(
        &self,
        view: View,
        program: Option<ProgramKey>,
        event: usize,
        below: &[String],
        width: usize,
    ) -> Listing {
        let of = |programs: &[bprec_report::model::Program]| {
            programs.iter().position(|it| program.is_some_and(|key| key.is(it.id, it.load_time_ns)))
        };
        match (self, view) {
            (Model::Report(report), _) => report.listing(event, width),
            (Model::Interval(interval, history), _) => interval.listing(event, history, width),
            (Model::Annotation(annotation), view) => {
                let mut programs = annotation.programs.iter();
                let at = programs.position(|it| program.is_some_and(|key| key.is(it.id, it.load_time_ns)));
                match (at, view) {
                    (None, _) => Listing::default(),
                    (Some(at), View::Code { function, detail }) => annotation.code_listing(at, function, detail, width),
                    (Some(at), View::Line { function, line }) => annotation.line_listing(at, function, line, width),
                    (Some(at), _) => annotation.functions_listing(at, width),
                }
            }
            (Model::Trees(trees), _) => match program {
                None => trees.listing(None, width),
                Some(_) => of(&trees.programs).map(|at| trees.listing(Some(at), width)).unwrap_or_default(),
            },
            (Model::Stacks(stacks), _) => stacks.flame_listing(width, below),
            (Model::Payers(payers), _) => match program {
                None => payers.listing(None, width),
                Some(_) => of(&payers.programs).map(|at| payers.listing(Some(at), width)).unwrap_or_default(),
            },
        }
    }

    /// Program in a row of the table, with its label.
    pub(crate) fn program(&self, item: usize) -> Option<(ProgramKey, String)> {
        let program = self.report()?.programs.get(item)?;
        Some((ProgramKey { id: program.id?, load_time_ns: program.load_time_ns }, program.label_with_id()))
    }

    /// Row of a program in the table of an event.
    pub(crate) fn row_of(&self, key: ProgramKey, event: usize) -> Option<usize> {
        let report = self.report()?;
        let is_it = |at: usize| report.programs.get(at).is_some_and(|it| key.is(it.id, it.load_time_ns));
        report.events.get(event)?.rows.iter().position(|row| is_it(row.program))
    }

    /// Events of the table: position and name.
    pub(crate) fn events(&self) -> Vec<(usize, &str)> {
        let events = self.report().map(|report| &report.events[..]).unwrap_or_default();
        events.iter().enumerate().map(|(at, event)| (at, event.name.as_str())).collect()
    }

    fn report(&self) -> Option<&Report> {
        match self {
            Model::Report(report) => Some(report),
            Model::Interval(interval, _) => Some(&interval.report),
            Model::Annotation(_) | Model::Trees(_) | Model::Payers(_) | Model::Stacks(_) => None,
        }
    }
}

impl ProgramKey {
    fn is(self, id: Option<u32>, load_time_ns: Option<u64>) -> bool {
        id == Some(self.id) && load_time_ns == self.load_time_ns
    }

    /// Filter that selects the program.
    pub(crate) fn filter(self) -> ProgFilter {
        ProgFilter::Id(self.id)
    }
}
