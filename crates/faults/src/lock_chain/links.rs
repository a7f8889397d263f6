//! The links between the threads of a lock chain, one file per kind.

mod address_space;
mod cgroups;
mod locks;
mod page;
mod peer;
mod relay;
mod stopped;
mod veth;

use std::io;
use std::sync::{MutexGuard, OnceLock};

use super::{Link, Plan};
use crate::sys::userfault::MissingPage;

pub(super) use peer::came_unseen;
pub(super) use veth::is_possible as can_be_across;

/// The state that a holder keeps.
pub enum Taken<'a> {
    /// No state beyond that of the link.
    Nothing,
    /// A lock that is released by dropping the guard.
    Guard {
        /// Never read.
        _until_dropped: MutexGuard<'a, ()>,
    },
}

/// What a thread (above) wants from another thread (below).
pub trait Object: Send + Sync {
    /// Below: acquire it.
    fn take(&self) -> io::Result<Taken<'_>> {
        Ok(Taken::Nothing)
    }

    /// Above: acquire it, and release it at once.
    fn want(&self) -> io::Result<()>;

    /// Below: release it.
    fn give(&self, taken: Taken<'_>) -> io::Result<()> {
        drop(taken);
        Ok(())
    }

    /// Above: be ready for the next round.
    fn rest(&self) -> io::Result<()> {
        Ok(())
    }

    /// Below: acquire it in a system call that stops until `page` is provided.
    fn enter(&self, page: &dyn Object) -> io::Result<()> {
        let _ = page;
        Err(io::Error::other("this is not held within a system call"))
    }

    /// Below, at the leaf: hold it for about `us` in one system call.
    fn hold_for(&self, us: u64) -> io::Result<()> {
        let _ = us;
        Err(io::Error::other("this is not held by the leaf"))
    }

    /// Whether the thread above waits for it, as far as that is visible.
    fn is_wanted(&self) -> bool {
        true
    }

    /// The missing page, if the link is one.
    fn page(&self) -> Option<&MissingPage> {
        None
    }

    /// Below, healthy: acquire it, do something short, release it.
    fn briefly(&self, act: &dyn Fn()) -> io::Result<()> {
        let taken = self.take()?;
        act();
        self.give(taken)
    }

    /// Above, healthy: acquire and release it once.
    fn pass(&self) -> io::Result<()> {
        self.want()
    }
}

/// All links of a lock chain.
pub struct Objects(Vec<Box<dyn Object>>);

static HERE: OnceLock<Objects> = OnceLock::new();

/// Make them before the threads or processes of the lock chain start.
pub fn prepare(plan: &Plan) -> io::Result<()> {
    let make = |(index, link): (usize, &Link)| make(plan, index, *link);
    let objects = plan.links.iter().enumerate().map(make).collect::<io::Result<Vec<_>>>()?;
    let _ = HERE.set(Objects(objects));
    Ok(())
}

fn make(plan: &Plan, index: usize, link: Link) -> io::Result<Box<dyn Object>> {
    Ok(match link {
        Link::Futex => Box::new(locks::Futex::new(plan.apart)?),
        Link::Pi => Box::new(locks::Pi::new(plan.apart)?),
        Link::Pthread => Box::new(locks::Pthread::new(plan.apart)?),
        Link::Std => Box::new(locks::Std::default()),
        Link::Go => return Err(io::Error::other("a Go mutex is not of this program")),
        Link::Pipe => Box::new(relay::Relay::pipe()?),
        Link::Unix => Box::new(relay::Relay::unix()?),
        Link::Peer { wire, by } => Box::new(peer::Peer::new(wire, by)?),
        Link::Page => Box::new(page::Page::new()?),
        Link::File { read } => Box::new(stopped::File::new(&plan.dir, index, read)?),
        Link::Directory => Box::new(stopped::Directory::new(&plan.dir, index)?),
        Link::PipeLock => Box::new(stopped::Pipe::new()?),
        Link::AddressSpace { read } => Box::new(address_space::AddressSpace::new(plan, read)?),
        Link::Cgroups => Box::new(cgroups::Cgroups::new(plan)?),
    })
}

impl Objects {
    /// The links that `prepare` made.
    pub fn here() -> io::Result<&'static Objects> {
        HERE.get().ok_or_else(|| io::Error::other("the lock_chain was not prepared"))
    }

    /// The link between positions `index` and `index + 1`.
    pub fn of(&self, index: usize) -> &dyn Object {
        &*self.0[index]
    }

    /// The link above the leaf.
    pub fn last(&self) -> &dyn Object {
        &*self.0[self.0.len() - 1]
    }
}
