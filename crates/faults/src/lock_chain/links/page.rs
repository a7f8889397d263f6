//! A page that the thread below has to provide.

use std::io;

use super::{Object, Taken};
use crate::sys::userfault::MissingPage;

/// Missing until the thread below provides it.
pub struct Page(MissingPage);

impl Page {
    pub fn new() -> io::Result<Self> {
        MissingPage::new().map(Page)
    }
}

impl Object for Page {
    fn want(&self) -> io::Result<()> {
        self.0.touch();
        Ok(())
    }

    fn give(&self, _: Taken<'_>) -> io::Result<()> {
        self.0.give()
    }

    fn rest(&self) -> io::Result<()> {
        self.0.take_away();
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        self.0.is_wanted()
    }

    fn page(&self) -> Option<&MissingPage> {
        Some(&self.0)
    }

    fn briefly(&self, act: &dyn Fn()) -> io::Result<()> {
        act();
        Ok(())
    }

    fn pass(&self) -> io::Result<()> {
        Ok(())
    }
}
