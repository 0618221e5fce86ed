//! The query engines over a lake, which see the files that count and no others: DataFusion inside of this program, and a Spark cluster.
//! The same query is the same to both.

mod datafusion;
mod spark;

pub(crate) use datafusion::DataFusionEngine;
pub(crate) use spark::Spark;

use crate::answer::Answer;
use crate::lake::{Committed, Lake};
use anyhow::{Result, bail};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The tables of a lake, ready to be asked.
pub(crate) trait Engine {
    /// Leaves only rows of a table for which a condition holds: an expression of SQL over its columns.
    ///
    /// # Errors
    /// When it is no such expression; Spark says so when it is asked.
    fn narrow(&mut self, table: &str, condition: &str) -> Result<()>;

    /// Answers a query. Statements that would change anything are refused.
    ///
    /// # Errors
    /// When it is no query, or a file that it needs is not what was committed.
    fn ask(&self, sql: &str) -> Result<Answer>;
}

/// Engine that runs queries.
#[derive(Debug, Clone)]
pub(crate) enum EngineChoice {
    DataFusion,
    Spark(Spark),
}

impl EngineChoice {
    /// Takes the files of a lake that count now.
    ///
    /// # Errors
    /// When one of them is not there, or has another size than was committed.
    pub(crate) fn open(&self, lake: &Lake) -> Result<Box<dyn Engine>> {
        Ok(match self {
            EngineChoice::DataFusion => Box::new(DataFusionEngine::open(lake)?),
            EngineChoice::Spark(spark) => Box::new(spark.open(lake)?),
        })
    }
}

/// Message about a condition that is none.
fn no_condition(table: &str, condition: &str) -> String {
    format!("--where {condition}: is no condition on the columns of {table}")
}

/// Looks whether files are what was committed. A page of Parquet has no checksum: what was damaged may well be read, and be added up.
///
/// # Errors
/// When one is not: names the first.
fn check<'c>(files: impl IntoIterator<Item = &'c Committed>) -> Result<()> {
    let files: Vec<&Committed> = files.into_iter().collect();
    let (next, threads) = (AtomicUsize::new(0), std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let check = || loop {
        let file = files.get(next.fetch_add(1, Ordering::Relaxed))?;
        if let Err(error) = file.check() {
            return Some(format!("{error:#}"));
        }
    };
    let damage = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(files.len())).map(|_| scope.spawn(check)).collect();
        let failed = || Some("a thread that checks files failed".to_owned());
        threads.into_iter().filter_map(|thread| thread.join().unwrap_or_else(|_| failed())).min()
    });
    damage.map_or(Ok(()), |damage| bail!(damage))
}
