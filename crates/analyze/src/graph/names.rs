//! Names, each kept once: trees of waits compare and sort them as numbers.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::rc::Rc;

use whyslow_model::wait::{Detail, Who};

use crate::hashing::Table;

/// A name's number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name(u32);

#[cfg(test)]
impl Name {
    /// Any name.
    pub const fn of(number: u32) -> Self {
        Name(number)
    }
}

/// All names of a graph.
#[derive(Debug, Default)]
pub(super) struct Names {
    by_text: RefCell<Table<Rc<str>, Name>>,
    texts: RefCell<Vec<Rc<str>>>,
}

impl Names {
    /// The number of this name.
    pub fn id(&self, text: &str) -> Name {
        if let Some(name) = self.by_text.borrow().get(text) {
            return *name;
        }
        let mut texts = self.texts.borrow_mut();
        let name = Name(u32::try_from(texts.len()).unwrap_or(u32::MAX));
        let text: Rc<str> = text.into();
        texts.push(text.clone());
        self.by_text.borrow_mut().insert(text, name);
        name
    }

    /// The name of this number.
    pub fn text(&self, name: Name) -> Rc<str> {
        self.texts.borrow().get(name.0 as usize).cloned().unwrap_or_else(|| "".into())
    }
}

/// How a task is called: numbers that name things, so that trees of waits compare and sort without texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Called {
    pub comm: Name,
    /// The function of its work item.
    pub work: Option<Name>,
}

/// Of two alike, who is known better comes first.
impl Ord for Called {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |called: &Called| (called.comm, called.work.is_none(), called.work);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Called {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Names {
    /// Who is called so.
    pub fn who(&self, called: Called) -> Who {
        let comm = self.text(called.comm).to_string();
        match called.work.map(|work| self.text(work).to_string()) {
            None if comm.is_empty() => Who::Nobody,
            work => Who::Task { comm, work },
        }
    }
}

/// The number of something to wait for, or to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DetailId(u32);

#[cfg(test)]
impl DetailId {
    /// Of anything.
    pub const fn of(number: u32) -> Self {
        DetailId(number)
    }
}

/// All that is waited for or done in a graph, each kept once.
#[derive(Debug, Default)]
pub(super) struct Details {
    by_value: RefCell<Table<Rc<Detail>, DetailId>>,
    values: RefCell<Vec<Rc<Detail>>>,
}

impl Details {
    pub fn id(&self, detail: Detail) -> DetailId {
        if let Some(id) = self.by_value.borrow().get(&detail) {
            return *id;
        }
        let mut values = self.values.borrow_mut();
        let id = DetailId(u32::try_from(values.len()).unwrap_or(u32::MAX));
        let detail = Rc::new(detail);
        values.push(detail.clone());
        self.by_value.borrow_mut().insert(detail, id);
        id
    }

    /// What has this number.
    pub fn of(&self, id: DetailId) -> Rc<Detail> {
        self.values.borrow().get(id.0 as usize).cloned().unwrap_or_default()
    }
}

/// A thread's name with its numbers folded: the workers of a pool are alike. "kworker/1:2" -> "kworker/*:*".
pub(crate) fn folded(comm: &str) -> String {
    let mut out = String::with_capacity(comm.len());
    for c in comm.chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('*') => {}
            true => out.push('*'),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_pools_are_folded() {
        for (comm, want) in
            [("kworker/1:2", "kworker/*:*"), ("worker-13", "worker-*"), ("cc1", "cc*"), ("", ""), ("7", "*")]
        {
            assert_eq!(folded(comm), want);
        }
    }

    #[test]
    fn a_name_is_kept_once() {
        let names = Names::default();
        let (a, b) = (names.id("a"), names.id("b"));
        assert_eq!((names.id("a"), names.id("b")), (a, b));
        assert_eq!((&*names.text(a), &*names.text(b), &*names.text(Name(9))), ("a", "b", ""));
    }
}
