//! DataFusion, inside of this program.

use super::{Engine, check, no_condition};
use crate::answer::{Answer, Value};
use crate::lake::{Committed, Lake};
use crate::schema::{Table, tables};
use anyhow::{Context, Result};
use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result as DataFusionResult, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::path::Path as StorePath;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// The tables of a lake, ready to be asked.
pub(crate) struct DataFusionEngine {
    context: SessionContext,
    runtime: tokio::runtime::Runtime,
}

impl DataFusionEngine {
    /// Takes the files of a lake that count now.
    ///
    /// # Errors
    /// When one of them is not there, or not as it was committed.
    pub(crate) fn open(lake: &Lake) -> Result<DataFusionEngine> {
        let context = SessionContext::new();
        for table in tables() {
            let name = table.name;
            let provider = LakeTable::new(table, lake.committed(name)?)?;
            context.register_table(name, Arc::new(provider))?;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().build().context("start threads")?;
        Ok(DataFusionEngine { context, runtime })
    }

    /// Rows of a query as a table has them.
    ///
    /// # Errors
    /// When they cannot be read, or are no rows of that table.
    pub(crate) fn rows(&self, sql: &str, table: &Table) -> Result<Vec<RecordBatch>> {
        let batches = self.runtime.block_on(async { self.context.sql(sql).await?.collect().await })?;
        let of_table = |batch: RecordBatch| {
            let columns = batch.columns().iter().zip(table.schema.fields());
            let columns = columns.map(|(column, field)| cast(column, field.data_type()));
            Ok(RecordBatch::try_new(table.schema.clone(), columns.collect::<Result<_, _>>()?)?)
        };
        batches.into_iter().map(of_table).collect()
    }
}

impl Engine for DataFusionEngine {
    fn narrow(&mut self, table: &str, condition: &str) -> Result<()> {
        let narrowed = || -> Result<()> {
            let rows = self.runtime.block_on(self.context.table(table))?;
            let condition = rows.parse_sql_expr(condition)?;
            let view = rows.filter(condition)?.into_view();
            self.context.deregister_table(table)?;
            self.context.register_table(table, view)?;
            Ok(())
        };
        narrowed().with_context(|| no_condition(table, condition))
    }

    fn ask(&self, sql: &str) -> Result<Answer> {
        let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        self.runtime.block_on(async {
            let rows = self.context.sql_with_options(sql, options).await?;
            let columns = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
            let mut answer = Answer { columns, rows: Vec::new() };
            for batch in rows.collect().await? {
                let columns: Vec<Vec<Value>> = batch.columns().iter().map(values).collect::<Result<_>>()?;
                let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
                for _ in 0..batch.num_rows() {
                    answer.rows.push(columns.iter_mut().map(|column| column.next().unwrap_or(Value::Null)).collect());
                }
            }
            Ok(answer)
        })
    }
}

fn values(array: &ArrayRef) -> Result<Vec<Value>> {
    let known = |row: usize, value: &dyn Fn(usize) -> Value| if array.is_null(row) { Value::Null } else { value(row) };
    let each = |value: &dyn Fn(usize) -> Value| (0..array.len()).map(|row| known(row, value)).collect();
    Ok(match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean();
            each(&|row| Value::Bool(array.value(row)))
        }
        data_type if data_type.is_integer() && *data_type != DataType::UInt64 => {
            let array = cast(array, &DataType::Int64)?;
            let array = array.as_primitive::<Int64Type>();
            each(&|row| Value::Integer(array.value(row).into()))
        }
        DataType::UInt64 | DataType::Decimal128(_, 0) => {
            let array = cast(array, &DataType::Decimal128(38, 0))?;
            let array = array.as_primitive::<Decimal128Type>();
            each(&|row| Value::Integer(array.value(row)))
        }
        data_type if data_type.is_floating() => {
            let array = cast(array, &DataType::Float64)?;
            let array = array.as_primitive::<Float64Type>();
            each(&|row| Value::from(Some(array.value(row))))
        }
        _ => {
            let options = FormatOptions::default();
            let text = ArrayFormatter::try_new(array, &options)?;
            each(&|row| Value::Text(text.value(row).to_string()))
        }
    })
}

/// A table of a lake: the files that count, each with its day.
#[derive(Debug)]
struct LakeTable {
    schema: TableSchema,
    committed: Vec<Committed>,
    files: Vec<PartitionedFile>,
    /// Damage of the files, found when they are asked for the first time.
    damage: OnceLock<Option<String>>,
}

impl LakeTable {
    fn new(table: Table, committed: Vec<Committed>) -> Result<LakeTable> {
        let date: FieldRef = Arc::new(Field::new("date", DataType::Utf8, false));
        let files = committed.iter().map(|Committed { date: day, path, bytes, .. }| {
            let path = path.canonicalize().with_context(|| format!("find {}", path.display()))?;
            let location = StorePath::from_absolute_path(&path)?;
            let last_modified = SystemTime::UNIX_EPOCH.into();
            let meta = ObjectMeta { location, last_modified, size: *bytes, e_tag: None, version: None };
            let mut file = PartitionedFile::new_from_meta(meta);
            file.partition_values = vec![ScalarValue::from(day.to_string())];
            Ok(file)
        });
        let schema = TableSchema::builder(table.schema).with_table_partition_cols(vec![date]).build();
        let files = files.collect::<Result<_>>()?;
        Ok(LakeTable { schema, committed, files, damage: OnceLock::new() })
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

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        if let Some(damage) = self.damage.get_or_init(|| check(&self.committed).err().map(|error| error.to_string())) {
            return Err(DataFusionError::Execution(damage.clone()));
        }
        if self.files.is_empty() {
            let schema = match projection {
                Some(columns) => Arc::new(self.schema().project(columns)?),
                None => self.schema(),
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let groups = FileGroup::new(self.files.clone()).split_files(session.config().target_partitions());
        let source = Arc::new(ParquetSource::new(self.schema.clone()));
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_groups(groups)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit);
        Ok(DataSourceExec::from_data_source(config.build()))
    }
}
