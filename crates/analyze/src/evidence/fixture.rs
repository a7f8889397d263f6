//! Hosts for tests: a window, files at its start and end, tables.

use std::time::Duration;

use whyslow_model::table::Tables;
use whyslow_model::{FileSnapshot, Meta, Missing, Recording};

use crate::Evidence;

/// A host in the making: two CPUs, 100 ticks a second, pages of 4 KiB, recorded as root.
pub(crate) struct Fixture(pub Recording);

impl Fixture {
    /// A window of a second.
    pub fn second() -> Self {
        Fixture::window(Duration::from_secs(1))
    }

    pub fn window(window: Duration) -> Self {
        let meta = Meta {
            window_ns: window.as_nanos() as u64,
            cpus: 2,
            clock_ticks: 100,
            page_size: 4096,
            privileged: true,
            ..Meta::default()
        };
        Fixture(Recording { meta, ..Recording::default() })
    }

    /// A file as it was when the window began.
    pub fn start(self, name: &str, text: &str) -> Self {
        self.snapshot(Duration::ZERO, name, text)
    }

    /// A file as it was when the window ended.
    pub fn end(self, name: &str, text: &str) -> Self {
        let at = self.0.window();
        self.snapshot(at, name, text)
    }

    fn snapshot(mut self, at: Duration, name: &str, text: &str) -> Self {
        self.0.snapshots.push(FileSnapshot { at, name: name.to_owned(), bytes: text.as_bytes().to_vec() });
        self.0.snapshots.sort_by_key(|f| f.at);
        self
    }

    /// A thing that could not be looked at.
    pub fn missing(mut self, missing: Missing) -> Self {
        self.0.missing.push(missing.into());
        self
    }

    /// Fill tables.
    pub fn with(mut self, fill: impl FnOnce(&mut Tables)) -> Self {
        fill(&mut self.0.tables);
        self
    }

    /// Its facts.
    pub fn ev(&self) -> Evidence<'_> {
        Evidence::of(&self.0)
    }
}
