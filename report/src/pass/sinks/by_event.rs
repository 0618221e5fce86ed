//! Values by event, stored only for events with samples: a recording may have thousands of events without any.

use std::ops::Index;

/// Values of events; an event without a value has the default value.
#[derive(Debug, Clone)]
pub(crate) struct ByEvent<T> {
    events: Vec<Option<Box<T>>>,
    /// Default value, for events without a value of their own.
    nothing: T,
}

impl<T: Default> ByEvent<T> {
    /// Makes an empty table for this number of events.
    pub(crate) fn new(events: usize) -> ByEvent<T> {
        ByEvent { events: (0..events).map(|_| None).collect(), nothing: T::default() }
    }

    /// Number of events.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns the value of an event for update; creates it if missing.
    #[inline]
    pub(crate) fn of(&mut self, event: usize) -> &mut T {
        self.events[event].get_or_insert_default()
    }

    /// Stored values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.events.iter().flatten().map(|value| &**value)
    }

    /// Stored values for update.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.events.iter_mut().flatten().map(|value| &mut **value)
    }

    /// Maps each stored value.
    pub(crate) fn map<U: Default>(self, mut make: impl FnMut(T) -> U) -> ByEvent<U> {
        let events = self.events.into_iter().map(|value| value.map(|value| Box::new(make(*value))));
        ByEvent { events: events.collect(), nothing: U::default() }
    }

    /// Merges the values of another thread.
    pub(crate) fn merge(&mut self, other: ByEvent<T>, mut add: impl FnMut(&mut T, T)) {
        for (mine, theirs) in self.events.iter_mut().zip(other.events) {
            if let Some(theirs) = theirs {
                add(mine.get_or_insert_default(), *theirs);
            }
        }
    }
}

impl<T> Index<usize> for ByEvent<T> {
    type Output = T;

    fn index(&self, event: usize) -> &T {
        self.events[event].as_deref().unwrap_or(&self.nothing)
    }
}
