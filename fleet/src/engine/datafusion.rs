//! DataFusion, in this process.

use super::{Engine, names};
use crate::answer::{Answer, Value};
use crate::lake::Lake;
use crate::parallel::runtime;
use crate::schema::{Table, tables};
use anyhow::{Context, Error, Result};
use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float64Type, Schema, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, DataFusionError, Result as DataFusionResult, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::listing::helpers::{expr_applicable_for_cols, filter_partitioned_file};
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::context::{SQLOptions, SessionConfig, SessionContext};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::ObjectMeta;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::runtime::Runtime;

/// Column with the day of a row, from the name of the file's directory.
const DATE: &str = "date";
/// Limit on the memory for grouping and sorting, bytes. Beyond the limit, data goes to temporary files.
const MEMORY_BYTES: usize = 1 << 30;
/// Rows of a part of a table. DataFusion keeps all rows of window functions in memory, some 2 kB for each (query `regressed`).
const PART_ROWS: usize = 200_000;

/// Tables of a lake, ready for queries.
pub(crate) struct DataFusionEngine {
    context: SessionContext,
    lake: Lake,
    runtime: &'static Runtime,
}

impl DataFusionEngine {
    /// Registers the committed files of a lake.
    ///
    /// # Errors
    /// Fails if a file is missing or has another size than was committed.
    pub(crate) fn open(lake: &Lake) -> Result<DataFusionEngine> {
        let pool = Arc::new(GreedyMemoryPool::new(MEMORY_BYTES));
        let environment = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
        let context = SessionContext::new_with_config_rt(SessionConfig::new(), environment);
        let mut url = ObjectStoreUrl::local_filesystem();
        if let Some(objects) = lake.store.objects() {
            url = ObjectStoreUrl::parse("lake://files")?;
            context.register_object_store(url.as_ref(), objects);
        }
        for table in tables() {
            let name = table.name;
            let provider = LakeTable::new(table, lake, url.clone())?;
            context.register_table(name, Arc::new(provider))?;
        }
        Ok(DataFusionEngine { context, lake: lake.clone(), runtime: runtime()? })
    }

    /// Returns the rows of a query for all columns of a table.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if the columns are not those of the table.
    pub(crate) fn rows(&self, sql: &str, table: &Table) -> Result<Vec<RecordBatch>> {
        let batches = self.runtime.block_on(async { self.context.sql(sql).await?.collect().await })?;
        let of_table = |rows: RecordBatch| Ok(RecordBatch::try_new(table.schema.clone(), rows.columns().to_vec())?);
        batches.into_iter().map(of_table).collect()
    }
}

impl Engine for DataFusionEngine {
    fn narrow(&mut self, table: &str, condition: &str) -> Result<()> {
        let rows = self.runtime.block_on(self.context.table(table))?;
        let narrowed = rows.parse_sql_expr(condition).and_then(|condition| rows.filter(condition));
        let narrowed =
            narrowed.with_context(|| format!("--where {condition}: is not a condition on the columns of {table}"))?;
        self.context.deregister_table(table)?;
        self.context.register_table(table, narrowed.into_view())?;
        Ok(())
    }

    fn ask(&self, sql: &str) -> Result<Answer> {
        let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let rows = self.runtime.block_on(self.context.sql_with_options(sql, options))?;
        let columns = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
        let mut answer = Answer { columns, rows: Vec::new() };
        // A task of its own: the Parquet library panics at some headers of damaged pages.
        let collected = self.runtime.block_on(async { Ok(self.runtime.spawn(rows.collect()).await??) });
        let batches = collected.map_err(|error: Error| match error.downcast_ref().map(DataFusionError::find_root) {
            Some(DataFusionError::ResourcesExhausted(_)) => error,
            // The library does not name a damaged file.
            _ => self.lake.check(|table| names(sql, table)).err().unwrap_or(error),
        })?;
        for batch in batches {
            let columns: Vec<Vec<Value>> = batch.columns().iter().map(values).collect::<Result<_>>()?;
            let row = |row: usize| columns.iter().map(|column| column[row].clone()).collect();
            answer.rows.extend((0..batch.num_rows()).map(row));
        }
        Ok(answer)
    }

    fn parts(&self, table: &str) -> Result<usize> {
        let count = self.ask(&format!("SELECT COUNT(*) FROM {table}"))?;
        let rows = count.rows.first().and_then(|row| row.first()?.integer()).context("COUNT(*) has no answer")?;
        Ok(usize::try_from(rows)? / PART_ROWS + 1)
    }
}

fn values(array: &ArrayRef) -> Result<Vec<Value>> {
    Ok(match array.data_type() {
        DataType::Boolean => array.as_boolean().iter().map(|flag| flag.map_or(Value::Null, Value::Bool)).collect(),
        data_type if data_type.is_integer() || matches!(data_type, DataType::Decimal128(_, 0)) => {
            let numbers = cast(array, &DataType::Decimal128(38, 0))?;
            let numbers = numbers.as_primitive::<Decimal128Type>().iter();
            numbers.map(|number| number.map_or(Value::Null, Value::Integer)).collect()
        }
        data_type if data_type.is_floating() => {
            let numbers = cast(array, &DataType::Float64)?;
            numbers.as_primitive::<Float64Type>().iter().map(Value::from).collect()
        }
        _ => {
            let options = FormatOptions::default();
            let texts = ArrayFormatter::try_new(array, &options)?;
            let text = |row| if array.is_null(row) { Value::Null } else { Value::Text(texts.value(row).to_string()) };
            (0..array.len()).map(text).collect()
        }
    })
}

/// A table of a lake.
#[derive(Debug)]
struct LakeTable {
    schema: TableSchema,
    url: ObjectStoreUrl,
    files: Vec<PartitionedFile>,
}

impl LakeTable {
    fn new(table: Table, lake: &Lake, url: ObjectStoreUrl) -> Result<LakeTable> {
        let date: FieldRef = Arc::new(Field::new(DATE, DataType::Utf8, false));
        let files = lake.committed(table.name)?.into_iter().map(|committed| {
            let location = lake.store.location(&committed.path)?;
            let last_modified = SystemTime::UNIX_EPOCH.into();
            let meta = ObjectMeta { location, last_modified, size: committed.bytes, e_tag: None, version: None };
            let date = ScalarValue::from(committed.date.to_string());
            Ok(PartitionedFile::new_from_meta(meta).with_partition_values(vec![date]))
        });
        let files = files.collect::<Result<_>>()?;
        let schema = TableSchema::builder(table.schema).with_table_partition_cols(vec![date]).build();
        Ok(LakeTable { schema, url, files })
    }
}

#[async_trait]
impl TableProvider for LakeTable {
    fn schema(&self) -> SchemaRef {
        self.schema.table_schema().clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Returns `Inexact` for all filters: a scan skips files and row groups by them, but DataFusion must still filter single rows.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let of_days: Vec<Expr> =
            filters.iter().filter(|filter| expr_applicable_for_cols(&[DATE], filter)).cloned().collect();
        let schema = DFSchema::try_from(Schema::new(self.schema.table_partition_cols().clone()))?;
        let selected = |file: &PartitionedFile| filter_partitioned_file(file.clone(), &of_days, &schema).transpose();
        let files = self.files.iter().filter_map(selected).collect::<DataFusionResult<_>>()?;
        let mut groups = FileGroup::new(files).split_files(session.config().target_partitions());
        if groups.is_empty() {
            groups.push(FileGroup::default());
        }
        let mut source = ParquetSource::new(self.schema.clone());
        if let Some(filter) = conjunction(filters.iter().cloned()) {
            let schema = DFSchema::try_from(self.schema())?;
            source = source.with_predicate(session.create_physical_expr(filter, &schema)?);
        }
        let config = FileScanConfigBuilder::new(self.url.clone(), Arc::new(source))
            .with_file_groups(groups)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit);
        Ok(DataSourceExec::from_data_source(config.build()))
    }
}
