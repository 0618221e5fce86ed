//! Tables of a lake. Each column is declared once: its name, its type and its value by the reporter's model.
//!
//! No unsigned integers: Spark reads unsigned 64-bit integers as decimals. No floating point: sums must not depend on the order of addition.
//! Times in µs since 1970 UTC, durations in ns, text in UTF-8. An unknown value is null, never zero. Within a version, only nullable columns may
//! be added, at the end of a table, and tables, which older batches lack.

use crate::identity::{owner_name, prog_key};
use crate::rows::Date;
use anyhow::{Context, Result};
use bprec_report::model::{
    self, BillParts, EventReport, Exact, Line, NamedReading, OwnerBill, Program, Recording, Report, Runs, Unit,
    has_sha256_tags,
};
use chrono::{DateTime, Datelike, Timelike, Utc};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use std::path::Path;
use std::sync::Arc;

/// Version of the directory layout and of all tables.
pub(crate) const SCHEMA_VERSION: i32 = 2;

/// Table of recordings. In a lake in a directory, its files have the commits.
pub(crate) const RECORDING: &str = "recording";
/// Table of programs.
pub(crate) const PROG: &str = "prog";

/// Name of the `bpf_metadata_*` value with the version of a program.
const VERSION_KEY: &str = "version";

/// Text that rows share.
pub(crate) type Text = Arc<str>;

/// Time, in tables with a resolution of 1 µs.
pub(crate) type Time = DateTime<Utc>;

/// Hours since Monday 00:00 UTC, 0 to 167.
pub(crate) fn hour_of_week(time: Time) -> i32 {
    (time.weekday().num_days_from_monday() * 24 + time.hour()).cast_signed()
}

/// Table of a lake.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) schema: SchemaRef,
    /// Columns by which the rows of each file are sorted.
    pub(crate) sorted_by: &'static [&'static str],
}

fn table<T: Columns>(name: &'static str, sorted_by: &'static [&'static str]) -> Table {
    Table { name, schema: Arc::new(Schema::new(T::fields(""))), sorted_by }
}

/// All tables, in the order of [`RecordedRows`].
pub(crate) fn tables() -> [Table; 8] {
    [
        table::<ProgRow>(PROG, &["prog_key", "host_id", "prog_id", "load_time_ns"]),
        table::<AttachmentRow>("attachment", &["prog_key", "host_id", "window_start", "kind", "hook"]),
        table::<RunStatsRow>("run_stats", &["prog_key", "host_id", "window_start"]),
        table::<EventRow>("event", &["event", "host_id", "window_start"]),
        table::<SampleRow>("sample", &["prog_key", "host_id", "window_start", "event", "func"]),
        table::<BillRow>("bill", &["owner", "host_id", "window_start", "event"]),
        table::<CounterRow>("counter", &["scope", "event", "prog_key", "host_id", "window_start"]),
        table::<RecordingRow>(RECORDING, &["host_id", "start_time", "recording_id"]),
    ]
}

/// Returns rows as columns.
pub(crate) fn columns_of<T: Columns>(rows: &[T]) -> Result<RecordBatch, ArrowError> {
    let rows: Vec<Option<&T>> = rows.iter().map(Some).collect();
    RecordBatch::try_new(Arc::new(Schema::new(T::fields(""))), T::arrays(&rows))
}

/// Columns of [`RecordedRows`].
pub(crate) fn recorded_schema() -> SchemaRef {
    Arc::new(Schema::new(RecordedRows::fields("")))
}

/// Returns the rows of a table in recordings, which are rows of [`RecordedRows`].
pub(crate) fn rows_in(recordings: &RecordBatch, table: &str) -> Result<RecordBatch> {
    let rows = recordings.column_by_name(table).with_context(|| format!("there is no table {table}"))?;
    Ok(RecordBatch::from(rows.as_list::<i32>().values().as_struct()))
}

/// Type of a column, or of a group of columns. In a group that is an `Option`, all columns are nullable.
pub(crate) trait Columns: Sized {
    /// Returns the columns; `name` is the name of a single column.
    fn fields(name: &str) -> Vec<Field>;
    fn arrays(values: &[Option<&Self>]) -> Vec<ArrayRef>;
}

impl<T: Columns> Columns for Option<T> {
    fn fields(name: &str) -> Vec<Field> {
        T::fields(name).into_iter().map(|field| field.with_nullable(true)).collect()
    }

    fn arrays(values: &[Option<&Self>]) -> Vec<ArrayRef> {
        T::arrays(&values.iter().map(|value| value.and_then(Option::as_ref)).collect::<Vec<_>>())
    }
}

/// Rows of a table in a column: a list for each value.
impl<T: Columns> Columns for Vec<T> {
    fn fields(name: &str) -> Vec<Field> {
        let row = Field::new_struct(Field::LIST_FIELD_DEFAULT_NAME, T::fields(""), false);
        vec![Field::new_list(name, row, false)]
    }

    fn arrays(values: &[Option<&Self>]) -> Vec<ArrayRef> {
        let rows: Vec<Option<&T>> = values.iter().copied().flatten().flatten().map(Some).collect();
        let rows = StructArray::new(T::fields("").into(), T::arrays(&rows), None);
        let lengths = OffsetBuffer::from_lengths(values.iter().map(|list| list.map_or(0, Vec::len)));
        let row = Arc::new(Field::new(Field::LIST_FIELD_DEFAULT_NAME, rows.data_type().clone(), false));
        vec![Arc::new(ListArray::new(row, lengths, Arc::new(rows), None))]
    }
}

macro_rules! column {
    ($type:ty, $data_type:expr, |$values:ident| $array:expr) => {
        impl Columns for $type {
            fn fields(name: &str) -> Vec<Field> {
                vec![Field::new(name, $data_type, false)]
            }

            fn arrays(values: &[Option<&Self>]) -> Vec<ArrayRef> {
                let $values = values.iter().copied();
                vec![Arc::new($array)]
            }
        }
    };
}

column!(Text, DataType::Utf8, |texts| texts.collect::<StringArray>());
column!(i32, DataType::Int32, |numbers| numbers.map(Option::<&i32>::copied).collect::<Int32Array>());
column!(i64, DataType::Int64, |numbers| numbers.map(Option::<&i64>::copied).collect::<Int64Array>());
column!(bool, DataType::Boolean, |flags| flags.map(Option::<&bool>::copied).collect::<BooleanArray>());
column!(Time, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), |times| {
    let micros = times.map(|time| time.map(Time::timestamp_micros));
    micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC")
});

/// Defines rows of tables, and groups of columns: names, types, and values by the reporter's model.
macro_rules! columns {
    ($($(#[$about:meta])* $name:ident($($arg:ident: $arg_type:ty),*) { $($column:ident: $type:ty = $value:expr,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name {
            $(pub(crate) $column: $type,)*
        }

        impl $name {
            /// Fails if a number is above 2^63 - 1.
            pub(crate) fn new($($arg: $arg_type),*) -> Result<$name> {
                Ok($name { $($column: $value),* })
            }
        }

        impl Columns for $name {
            fn fields(_name: &str) -> Vec<Field> {
                [$(<$type>::fields(stringify!($column))),*].concat()
            }

            fn arrays(rows: &[Option<&Self>]) -> Vec<ArrayRef> {
                let rows = rows.iter();
                [$(<$type>::arrays(&rows.clone().map(|row| row.map(|row| &row.$column)).collect::<Vec<_>>())),*].concat()
            }
        }
    )*};
}

columns! {
    /// Columns of a host. Without a machine id, the host name is the id. It is not hashed, because lakes of earlier versions have the plain name.
    HostColumns(recording: &Recording, given_host: Option<&String>) {
        host_id: Option<Text> = text(given_host.or(recording.machine_id.as_ref()).or(recording.hostname.as_ref())),
        host_name: Option<Text> = text(recording.hostname.as_ref()),
        boot_id: Option<Text> = text(recording.boot_id.as_ref()),
        kernel_release: Option<Text> = text(recording.os_release.as_ref()),
    }

    /// Columns of a recording, in tables of facts about its programs and events.
    RecordingColumns(host: HostColumns, start: Option<Time>, given_labels: Option<Text>) {
        host: HostColumns = host,
        window_start: Option<Time> = start,
        labels: Option<Text> = given_labels,
    }

    /// Columns of a program.
    ProgramColumns(program: &Program) {
        prog_id: Option<i32> = program.id.and_then(|id| i32::try_from(id).ok()),
        load_time_ns: Option<i64> = program.load_time_ns.and_then(|ns| i64::try_from(ns).ok()),
        prog_key: Text = prog_key(program).into(),
        tag: Option<Text> = program.tag.map(|tag| tag.to_string().into()),
        name: Text = program.label().into(),
        prog_type: Option<Text> = program.prog_type.map(|prog_type| prog_type.to_string().into()),
        version_label: Option<Text> =
            program.metadata.iter().find(|it| it.key == VERSION_KEY).map(|it| it.value.as_str().into()),
    }

    /// A recording and its host.
    RecordingRow(report: &Report, of: &RecordingColumns, id: u128, bytes: u64, path: &Path) {
        host: HostColumns = of.host.clone(),
        schema_version: i32 = SCHEMA_VERSION,
        recording_id: Text = format!("{id:032x}").into(),
        arch: Option<Text> = text(report.recording.arch.as_ref()),
        cpu_model: Option<Text> = text(report.recording.cpu_model.as_ref()),
        cpu_count: Option<i32> = cpu_count(report),
        labels: Option<Text> = of.labels.clone(),
        start_time: Option<Time> = of.window_start,
        duration_ns: Option<i64> = known(report.recording.elapsed_ns)?,
        cpu_time_ns: Option<i64> = known(
            report.recording.elapsed_ns.zip(report.recording.cpus).and_then(|(ns, cpus)| ns.checked_mul(cpus.into())),
        )?,
        target: Option<Text> = text(report.recording.target.as_ref()),
        run_stats_source: Option<Text> = text(report.recording.counters.as_ref()),
        lost_records: i64 = signed(report.recording.lost_records)?,
        problems: Option<Text> = (!report.problems.is_empty()).then(|| report.problems.join("; ").into()),
        source_uri: Text = path.to_string_lossy().into(),
        source_bytes: i64 = signed(bytes)?,
        writer: Text = concat!("bprec-fleet ", env!("CARGO_PKG_VERSION")).into(),
        // `Lake::commit` sets it.
        ingested_at: Option<Time> = None,
    }

    /// A program on a host, once per batch.
    ProgRow(host: &HostColumns, program: &Program) {
        host: HostColumns = host.clone(),
        program: ProgramColumns = ProgramColumns::new(program)?,
        counts_others: bool = program.counts_others,
        tag_algo: Option<Text> = program.tag.and(host.kernel_release.as_deref()).and_then(tag_algorithm),
        source_file: Option<Text> = program.source_file.as_deref().map(Text::from),
        owner_comm: Option<Text> = text(program.owners.first().map(|owner| &owner.comm)),
        owner_uid: Option<i32> = program.owners.first().and_then(|owner| i32::try_from(owner.uid).ok()),
    }

    /// Attach points of a program with the same kind and hook, in a recording.
    AttachmentRow(of: &RecordingColumns, prog: &ProgRow, kind: &str, hook: Option<&String>, attach_points: i64) {
        recording: RecordingColumns = of.clone(),
        program: ProgramColumns = prog.program.clone(),
        counts_others: bool = prog.counts_others,
        kind: Text = kind.into(),
        hook: Option<Text> = text(hook),
        attach_points: i64 = attach_points,
    }

    /// Runs of a program in a recording, by the kernel's run statistics.
    RunStatsRow(report: &Report, of: &RecordingColumns, prog: &ProgRow, program: &Program, runs: &Runs) {
        recording: RecordingColumns = of.clone(),
        program: ProgramColumns = prog.program.clone(),
        counts_others: bool = prog.counts_others,
        cpu_count: Option<i32> = cpu_count(report),
        observed_ns: Option<i64> = known(runs.span.map(|(from_ns, to_ns)| to_ns.saturating_sub(from_ns)))?,
        run_cnt: i64 = signed(runs.count)?,
        run_time_ns: i64 = signed(runs.time_ns)?,
        recursion_misses: Option<i64> = known(runs.misses)?,
        is_estimate: bool = runs.estimate.is_some(),
        is_partial: bool = program.loaded.is_some() || program.unloaded.is_some(),
        time_margin_ns: Option<i64> = known(runs.estimate.and_then(|estimate| estimate.time_margin_ns))?,
        hour_of_week: Option<i32> = of.window_start.map(hour_of_week),
    }

    /// All samples of an event in a recording.
    EventRow(report: &Report, of: &RecordingColumns, event: &EventReport) {
        recording: RecordingColumns = of.clone(),
        cpu_count: Option<i32> = cpu_count(report),
        event: Text = event.name.as_str().into(),
        unit: Text = if event.unit == Unit::Nanoseconds { "ns" } else { "events" }.into(),
        samples: i64 = signed(event.samples.samples)?,
        weight: i64 = signed(event.samples.weight)?,
        bpf_samples: i64 = signed(event.total.count.samples)?,
        bpf_weight: i64 = signed(event.total.count.weight)?,
        idle_weight: Option<i64> = known(event.idle.value().map(|share| share.count.weight))?,
        machine_weight: Option<i64> = known(event.machine.value().copied())?,
        lost: Option<i64> = known(event.lost.value().copied())?,
    }

    /// Samples of an event that are charged to a function of a program, or to BPF code of no known program.
    SampleRow(event: &EventRow, scope: &str, prog: Option<&ProgRow>, func: Option<&String>, line: &Line) {
        recording: RecordingColumns = event.recording.clone(),
        program: Option<ProgramColumns> = prog.map(|prog| prog.program.clone()),
        counts_others: bool = prog.is_some_and(|prog| prog.counts_others),
        event: Text = event.event.clone(),
        unit: Text = event.unit.clone(),
        scope: Text = scope.into(),
        func: Option<Text> = text(func),
        samples: i64 = signed(line.count.samples)?,
        weight: i64 = signed(line.count.weight)?,
        self_weight: Option<i64> =
            known(line.columns.as_ref().and_then(|it| it.own.value()).map(|share| share.count.weight))?,
        helper_weight: Option<i64> =
            known(line.columns.as_ref().and_then(|it| it.helper.value()).map(|share| share.count.weight))?,
        entry_weight: Option<i64> =
            known(line.columns.as_ref().and_then(|it| it.entry.value()).map(|share| share.count.weight))?,
    }

    /// Bill of an owner of programs in the samples of an event, or the part of the bill whose owner is unknown.
    BillRow(event: &EventRow, owner: Option<&OwnerBill>, parts: &BillParts) {
        recording: RecordingColumns = event.recording.clone(),
        owner: Option<Text> = owner.map(|it| owner_name(it).into()),
        owner_kind: Option<Text> = owner.map(|it| it.kind.to_string().into()),
        programs: Option<i64> = known(owner.map(|it| it.program_count() as u64))?,
        event: Text = event.event.clone(),
        unit: Text = event.unit.clone(),
        samples: i64 = signed(parts.count.samples)?,
        weight: i64 = signed(parts.count.weight)?,
        others_weight: i64 = signed(parts.in_others.sum.count.weight)?,
        own_weight: i64 = signed(parts.own_tasks.sum.count.weight)?,
        causes_weight: i64 = signed(parts.causes.sum.count.weight)?,
        shared_weight: i64 = signed(parts.shared.count.weight)?,
        unsampled_ns: Option<i64> = known(parts.unsampled.map(|it| it.time_ns))?,
        machine_weight: Option<i64> = event.machine_weight,
        map_bytes: Option<i64> = known(owner.and_then(|it| it.map_bytes.value().copied()))?,
        jit_bytes: Option<i64> = known(owner.and_then(|it| it.jit_bytes.value().copied()))?,
        resident_bytes: Option<i64> = known(owner.and_then(|it| it.resident_bytes.value().copied()))?,
    }

    /// Reading of a counter over the whole recording. `program` is the target, if it is a known program.
    CounterRow(
        of: &RecordingColumns,
        row: &model::CounterRow,
        program: Option<&ProgramColumns>,
        values: &Exact,
        event: &str,
        reading: &NamedReading
    ) {
        recording: RecordingColumns = of.clone(),
        source: Text = row.source.name().into(),
        scope: Text = row.target.kind.into(),
        target_id: Option<i64> = Some(signed(row.target.id)?),
        prog_key: Option<Text> = program.map(|it| it.prog_key.clone()),
        tag: Option<Text> = program.and_then(|it| it.tag.clone()),
        name: Option<Text> =
            program.map(|it| it.name.clone()).or_else(|| text(Some(&row.target.name).filter(|name| !name.is_empty()))),
        func: Option<Text> = text(Some(&row.target.name).filter(|_| is_program(row) && row.target.function > 0)),
        cpu: Option<i32> = row.target.cpu.and_then(|cpu| i32::try_from(cpu).ok()),
        event: Text = event.into(),
        value: i64 = signed(reading.value)?,
        time_enabled_ns: i64 = signed(reading.enabled_ns)?,
        time_running_ns: i64 = signed(reading.running_ns)?,
        runs: Option<i64> = known(is_program(row).then_some(values.runs))?,
        measured_runs: Option<i64> = known(is_program(row).then_some(values.measured))?,
    }

    /// Rows of a recording, by table.
    RecordedRows(date: Date) {
        date: Text = date.to_string().into(),
        prog: Vec<ProgRow> = Vec::new(),
        attachment: Vec<AttachmentRow> = Vec::new(),
        run_stats: Vec<RunStatsRow> = Vec::new(),
        event: Vec<EventRow> = Vec::new(),
        sample: Vec<SampleRow> = Vec::new(),
        // `None` in summaries of versions without this table.
        bill: Option<Vec<BillRow>> = Some(Vec::new()),
        counter: Vec<CounterRow> = Vec::new(),
        recording: Vec<RecordingRow> = Vec::new(),
    }
}

fn cpu_count(report: &Report) -> Option<i32> {
    report.recording.cpus.and_then(|cpus| i32::try_from(cpus).ok())
}

fn tag_algorithm(kernel_release: &str) -> Option<Text> {
    has_sha256_tags(kernel_release).map(|is_sha256| if is_sha256 { "sha256" } else { "sha1" }.into())
}

/// Returns true if the target is a program, or a function of it.
pub(crate) fn is_program(row: &model::CounterRow) -> bool {
    row.target.kind == "program"
}

fn text(text: Option<&String>) -> Option<Text> {
    text.map(|text| Text::from(text.as_str()))
}

fn known(value: Option<u64>) -> Result<Option<i64>> {
    value.map(signed).transpose()
}

/// Fails if the number is above 2^63 - 1.
fn signed(value: u64) -> Result<i64> {
    i64::try_from(value).with_context(|| format!("{value} does not fit into 63 bits"))
}
