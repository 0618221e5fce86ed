//! Query engines over the committed files of a lake: DataFusion in this process, or a Spark cluster. Both run the same SQL.

mod datafusion;
mod spark;

pub(crate) use datafusion::DataFusionEngine;
pub(crate) use spark::Spark;

use crate::answer::Answer;
use crate::lake::{Committed, Lake};
use crate::parallel::in_parallel;
use anyhow::Result;

/// Tables of a lake, ready for queries.
pub(crate) trait Engine {
    /// Restricts a table to the rows that meet a condition, an SQL expression over its columns.
    ///
    /// # Errors
    /// Fails if the condition is not valid; with Spark, [`Engine::ask`] fails instead.
    fn narrow(&mut self, table: &str, condition: &str) -> Result<()>;

    /// Runs a query. Statements other than queries are refused.
    ///
    /// # Errors
    /// Fails if the query is not valid, or if a file of its tables differs from the committed one.
    fn ask(&self, sql: &str) -> Result<Answer>;
}

/// Choice of the engine.
#[derive(Debug, Clone)]
pub(crate) enum EngineChoice {
    DataFusion,
    Spark(Spark),
}

impl EngineChoice {
    /// Returns the chosen engine with the committed files of a lake.
    ///
    /// # Errors
    /// Fails if a file is missing or has another size than was committed.
    pub(crate) fn open(&self, lake: &Lake) -> Result<Box<dyn Engine>> {
        Ok(match self {
            EngineChoice::DataFusion => Box::new(DataFusionEngine::open(lake)?),
            EngineChoice::Spark(spark) => Box::new(spark.open(lake)?),
        })
    }
}

/// Message about an invalid condition.
fn no_condition(table: &str, condition: &str) -> String {
    format!("--where {condition}: is not a condition on the columns of {table}")
}

/// Compares the hashes of files with the committed hashes. The pages of these Parquet files have no checksums; without this check, queries could sum
/// damaged values.
///
/// # Errors
/// Fails if the hash of a file differs; the message names the first such file.
fn check(files: &[&Committed]) -> Result<()> {
    in_parallel(files, None, |file| file.check())?.into_iter().collect()
}
