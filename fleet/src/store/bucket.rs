//! Lake in a bucket of an object store.
//!
//! ```text
//! v2/generations/00000000000000000017.json                           ["date=<day>/12-5f0c3a9e7d21b846", …]: the state of each day
//! v2/days/date=<day>/12-5f0c3a9e7d21b846.json                        all batches of this state, with sizes and hashes of their files
//! v2/days/date=<day>/12-5f0c3a9e7d21b846.<table>.<batch>.parquet     files of the batch that is new in this state
//! ```
//!
//! The object with the highest number is the newest generation. It is created only if no object has its key (`If-None-Match: *`). This is the commit,
//! and the check that no other writer was first. All other keys have a random part, so writers cannot write to the same object.

use super::{DAYS, Day, Files, GENERATIONS, Generation, HORIZON, PARALLEL, SUFFIX, Store, check_versions};
use crate::lake::Batch;
use crate::parallel::{in_parallel, runtime};
use crate::rows::{Date, date};
use crate::schema::SCHEMA_VERSION;
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::object_store::aws::AmazonS3Builder;
use datafusion::object_store::path::Path as StorePath;
use datafusion::object_store::prefix::PrefixStore;
use datafusion::object_store::{
    Error, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, Result as StoreResult, RetryConfig,
};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Limits on the attempts to send a request, and on their time.
const RETRIES: usize = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// Settings that are a part of URLs or headers: `object_store` panics at invalid characters in them.
const SETTINGS: [&str; 6] =
    ["aws_bucket", "aws_region", "aws_endpoint", "aws_endpoint_url_s3", "aws_access_key_id", "aws_session_token"];
/// End of the names of generations and states.
const JSON: &str = ".json";

/// Lake in a bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// URL of all objects of this version of the lake.
    url: PathBuf,
    /// These objects. Keys are relative to the URL.
    objects: Arc<dyn ObjectStore>,
}

impl Bucket {
    pub(super) fn open(url: &str) -> Result<Bucket> {
        let name = url.strip_prefix("s3://").filter(|name| !name.starts_with('/'));
        let name = name.with_context(|| format!("{url}: is neither a directory nor s3://BUCKET/PREFIX"))?;
        let (bucket, prefix) = name.split_once('/').unwrap_or((name, ""));
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
        for name in SETTINGS {
            let value = builder.get_config_value(&name.parse()?).unwrap_or_default();
            let is_valid = value.chars().all(|c| c.is_ascii_alphanumeric() || "-._:/+=[]".contains(c));
            let authority = value.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
            let is_endpoint = name.contains("endpoint") && !value.is_empty();
            let is_complete = !is_endpoint || ObjectStoreUrl::parse(authority).is_ok();
            ensure!(is_valid && is_complete, "{url}: {} is not valid", name.to_uppercase());
        }
        let objects: Arc<dyn ObjectStore> = Arc::new(builder.build().with_context(|| format!("open {url}"))?);
        let lake = Bucket { url: url.into(), objects: Arc::new(PrefixStore::new(objects.clone(), prefix)) };
        let versions = lake.list("")?.common_prefixes;
        check_versions(&lake.url, versions.iter().filter_map(StorePath::filename))?;
        let version = format!("v{SCHEMA_VERSION}");
        Ok(Bucket { url: lake.url.join(&version), objects: Arc::new(PrefixStore::new(lake.objects, version)) })
    }

    /// Waits for a request. The error has the message of the server, or else its first cause.
    fn wait<T>(&self, what: &str, key: &str, request: impl Future<Output = StoreResult<T>>) -> Result<T> {
        let error = match runtime()?.block_on(request) {
            Ok(done) => return Ok(done),
            Err(error) => anyhow!(error),
        };
        let cause = error.root_cause().to_string();
        let message = cause.split_once("<Message>").and_then(|(_, rest)| rest.split_once("</Message>"));
        let message = message.map_or(&*cause, |(message, _)| message);
        bail!("{what} {}: {message}", self.url.join(key).display())
    }

    /// Lists the objects directly below a prefix, and the next parts of longer keys.
    fn list(&self, prefix: &str) -> Result<ListResult> {
        self.wait("list", prefix, self.objects.list_with_delimiter(Some(&prefix.into())))
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        self.wait("read", key, async { self.objects.get(&key.into()).await?.bytes().await })
    }

    fn json<T: DeserializeOwned>(&self, key: &str) -> Result<T> {
        let bytes = self.get(key)?;
        serde_json::from_slice(&bytes).with_context(|| format!("read {}", self.url.join(key).display()))
    }

    /// Creates an object; returns false if it exists.
    fn create(&self, key: &str, bytes: Bytes) -> Result<bool> {
        self.wait("create", key, async {
            match self.objects.put_opts(&key.into(), bytes.into(), PutMode::Create.into()).await {
                Err(Error::AlreadyExists { .. }) => Ok(false),
                done => done.map(|_| true),
            }
        })
    }
}

impl Store for Bucket {
    fn newest(&self) -> Result<Option<Generation>> {
        let generations = self.list(GENERATIONS)?.objects;
        let Some(number) = generations.iter().filter_map(number_of).max() else { return Ok(None) };
        let states: Vec<String> = self.json(&generation_key(number))?;
        let dated = |state: String| {
            let day = state.strip_prefix("date=").and_then(|state| state.split_once('/'));
            Ok((date(day.with_context(|| format!("{state}: is no state of a day"))?.0)?, state))
        };
        Ok(Some(Generation { number, states: states.into_iter().map(dated).collect::<Result<_>>()? }))
    }

    fn prepare(&self) -> Result<Option<File>> {
        self.create("lake", Bytes::new())?;
        let (url, is_overwritten) = (self.url.display(), self.create("lake", Bytes::new())?);
        let reason = "the object store ignores `If-None-Match: *`, so one writer could undo the commits of another";
        ensure!(!is_overwritten, "{url}: {reason}");
        Ok(None)
    }

    fn remove_unused(&self, _newest: &Generation) -> Result<()> {
        // `elapsed` fails if this machine's clock is behind; the object is then kept.
        let is_old =
            |object: &ObjectMeta| SystemTime::from(object.last_modified).elapsed().is_ok_and(|age| age >= HORIZON);
        let mut generations = self.list(GENERATIONS)?.objects;
        generations.sort_by_key(number_of);
        // A generation is superseded by the next one.
        let superseded = generations.iter().skip(1).rposition(is_old).map_or(0, |at| at + 1);
        let (superseded, kept) = generations.split_at(superseded);
        // Files that only generations between these two have are younger than the horizon.
        let mut states: BTreeSet<String> = BTreeSet::new();
        for generation in kept.first().into_iter().chain(kept.last()) {
            states.extend(self.json::<Vec<String>>(generation.location.as_ref())?);
        }
        let unused_of = |day: &StorePath| -> Result<Vec<StorePath>> {
            let found = self.list(day.as_ref())?.objects;
            let mut used = BTreeSet::new();
            let of_day = |key: &String| StorePath::from(key.as_str()).prefix_matches(day);
            for state in states.iter().map(|state| state_key(state)).filter(of_day) {
                let batches: Vec<Batch> = self.json(&state)?;
                used.extend(batches.iter().flat_map(|batch| batch.commit.keys().map(|table| file_key(batch, table))));
                used.insert(state);
            }
            let unused = found.into_iter().filter(|object| is_old(object) && !used.contains(object.location.as_ref()));
            Ok(unused.map(|object| object.location).collect())
        };
        let remove = |key: &StorePath| self.wait("remove", key.as_ref(), self.objects.delete(key));
        for unused in in_parallel(&self.list(DAYS)?.common_prefixes, Some(PARALLEL), unused_of)? {
            in_parallel(&unused?, Some(PARALLEL), remove)?.into_iter().collect::<Result<()>>()?;
        }
        // In ascending order: `publish` relies on it.
        superseded.iter().try_for_each(|generation| remove(&generation.location))
    }

    fn read_day(&self, generation: &Generation, date: Date) -> Result<Day> {
        let mut batches: Vec<Batch> = self.json(&state_key(&generation.states[&date]))?;
        let objects = self.list(&format!("{DAYS}/date={date}"))?.objects;
        let sizes: BTreeMap<&str, u64> = objects.iter().map(|object| (object.location.as_ref(), object.size)).collect();
        for batch in &mut batches {
            let size = |table: &String| Some((table.clone(), *sizes.get(&*file_key(batch, table))?));
            batch.found = batch.commit.keys().filter_map(size).collect();
            batch.date = date;
        }
        Ok(Day { batches, foreign: Vec::new() })
    }

    fn write_day(&self, base: &Generation, kept: &[Batch], batch: &mut Batch, files: &Files) -> Result<()> {
        batch.state = format!("date={}/{}-{:016x}", batch.date, base.number + 1, RandomState::new().hash_one(()));
        let files: Vec<(&String, &Bytes)> = files.iter().collect();
        let create = |(table, bytes): &(&String, &Bytes)| self.create(&file_key(batch, table), Bytes::clone(bytes));
        in_parallel(&files, Some(PARALLEL), create)?.into_iter().collect::<Result<Vec<_>>>()?;
        let batches: Vec<&Batch> = kept.iter().chain([&*batch]).collect();
        self.create(&state_key(&batch.state), serde_json::to_vec(&batches)?.into())?;
        Ok(())
    }

    fn publish(&self, next: &Generation) -> Result<()> {
        let states: Vec<&String> = next.states.values().collect();
        let (key, bytes) = (generation_key(next.number), Bytes::from(serde_json::to_vec(&states)?));
        // A request whose answer is lost is sent again, and finds its own object.
        let is_first = self.create(&key, bytes.clone())? || self.get(&key)? == bytes;
        // A writer that waited for hours could create a generation that was superseded and removed. Its predecessor would have been removed before.
        let is_next = |generation: &ObjectMeta| number_of(generation) == Some(next.number - 1);
        let (url, number) = (self.url.display(), next.number);
        ensure!(
            is_first && (number == 1 || self.list(GENERATIONS)?.objects.iter().any(is_next)),
            "{url}: nothing was committed, because another writer committed generation {number} before; run the command again"
        );
        Ok(())
    }

    fn path_of(&self, _generation: &Generation, batch: &Batch, table: &str) -> PathBuf {
        self.url.join(file_key(batch, table))
    }

    fn read(&self, path: &Path, range: Range<u64>) -> Result<Bytes> {
        let key = self.location(path)?;
        self.wait("read", key.as_ref(), self.objects.get_range(&key, range))
    }

    fn location(&self, path: &Path) -> Result<StorePath> {
        Ok(StorePath::parse(path.strip_prefix(&self.url)?.to_string_lossy())?)
    }

    fn objects(&self) -> Option<Arc<dyn ObjectStore>> {
        Some(self.objects.clone())
    }
}

fn generation_key(number: u64) -> String {
    format!("{GENERATIONS}/{number:020}{JSON}")
}

fn number_of(generation: &ObjectMeta) -> Option<u64> {
    generation.location.filename()?.strip_suffix(JSON)?.parse().ok()
}

fn state_key(state: &str) -> String {
    format!("{DAYS}/{state}{JSON}")
}

fn file_key(batch: &Batch, table: &str) -> String {
    format!("{DAYS}/{}.{table}.{}{SUFFIX}", batch.state, batch.id)
}
