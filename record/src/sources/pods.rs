//! Names of the containers of Kubernetes pods, for the cgroups that samples are in.

use std::collections::BTreeSet;
use std::time::{Instant, SystemTime};

use bprec_format::bprec::state::{self, State};
use bprec_host::PodContainer;

use super::{Context, Source, Tick};
use crate::Result;

/// Containers with names in the current file.
#[derive(Debug, Default)]
pub(crate) struct PodNames {
    written: BTreeSet<PodContainer>,
    changed_at: Option<SystemTime>,
}

impl PodNames {
    /// Writes the names of the containers that came since the last call. Names in the file stay after their containers end.
    fn write_new(&mut self, context: &mut Context<'_>) -> Result<()> {
        let changed_at = PodContainer::changed_at();
        if changed_at == self.changed_at {
            return Ok(());
        }
        self.changed_at = changed_at;
        let all = PodContainer::all().into_iter();
        let new = all.filter(|container| self.written.insert(container.clone()));
        let named = new.map(|PodContainer { id, pod_uid, namespace, pod, container }| state::PodContainer {
            id,
            pod_uid,
            namespace,
            pod,
            container,
        });
        let named: Vec<state::PodContainer> = named.collect();
        if named.is_empty() { Ok(()) } else { context.out.state(State::PodContainers(named)) }
    }
}

impl Source for PodNames {
    fn begin_file(&mut self, _is_first: bool, context: &mut Context<'_>) -> Result<()> {
        *self = PodNames::default();
        self.write_new(context)
    }

    fn tick(&mut self, tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        if tick.is_reading {
            self.write_new(context)?;
        }
        Ok(None)
    }

    fn end_file(&mut self, _is_last: bool, context: &mut Context<'_>) -> Result<()> {
        self.write_new(context)
    }
}
