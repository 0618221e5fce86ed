//! Values of events with samples. Recordings may have thousands of events without any.

use std::ops::Index;

/// A value for each event that has one.
#[derive(Debug, Clone)]
pub(crate) struct ByEvent<T> {
    events: Vec<Option<Box<T>>>,
    /// The value of all others.
    nothing: T,
}

impl<T: Default> ByEvent<T> {
    /// For this number of events.
    pub(crate) fn new(events: usize) -> ByEvent<T> {
        ByEvent { events: (0..events).map(|_| None).collect(), nothing: T::default() }
    }

    /// The number of events.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// The value of an event, to be changed.
    #[inline]
    pub(crate) fn of(&mut self, event: usize) -> &mut T {
        self.events[event].get_or_insert_default()
    }

    /// The values of events that have one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.events.iter().flatten().map(|value| &**value)
    }

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.events.iter_mut().flatten().map(|value| &mut **value)
    }

    /// Other values of the same events.
    pub(crate) fn map<U: Default>(self, mut make: impl FnMut(T) -> U) -> ByEvent<U> {
        let events = self.events.into_iter().map(|value| value.map(|value| Box::new(make(*value))));
        ByEvent { events: events.collect(), nothing: U::default() }
    }

    /// Adds what another thread has of the same events.
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
