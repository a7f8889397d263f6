//! Makes the table of tasks in D state: samples of equal waits are one row, which points to the row of its holder's own wait.

use std::collections::HashMap;

use whyslow_model::blocked::Blocked;
use whyslow_model::table::Stack;
use whyslow_model::timeline::{LockWait, State};

use crate::bpf::blocked::blocked_task;
use crate::bpf::constants::shared_h;
use crate::bpf::text;
use crate::span_table::lock_kind;
use crate::symbols::KernelNames;

/// Rows by thread. Of further waits equal ones of all threads are one row.
const MOST_BY_THREAD: usize = 8_192;
/// Rows in all; samples beyond them are counted as lost.
const MOST: usize = 16_384;
/// Stacks in all, 32 frames each; waits with further ones have none.
const MOST_STACKS: usize = 8_192;
/// Holders of holders that are followed: chains of kernel locks have three or four.
const MOST_HOPS: usize = 16;
/// Of a wait without a stack.
const NO_STACK: u32 = u32::MAX;

/// All that samples of one row have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    pid: u32,
    tgid: u32,
    comm: String,
    state: u32,
    stack: u32,
    work: u64,
    lock: u64,
    kind: u32,
    write: u32,
    owner: u32,
    owner_tgid: u32,
    owner_comm: String,
    owner_state: u32,
    reader_owned: u32,
    behind: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    samples: u64,
    waits: u64,
}

/// The samples of a window.
#[derive(Debug, Default)]
pub struct Samples {
    stacks: HashMap<Vec<u64>, u32>,
    rows: Vec<(Key, Count)>,
    by_key: HashMap<Key, u32>,
    /// Of the last pass: thread, and the number of its switches.
    last: HashMap<u32, u64>,
    passes: u64,
    lost: u64,
}

/// One pass over all tasks.
struct Pass<'p> {
    tasks: &'p [blocked_task],
    by_pid: HashMap<u32, usize>,
    /// The row of each; `None`: not yet known. The inner `None`: it has none.
    rows: Vec<Option<Option<u32>>>,
}

impl Samples {
    /// Passes so far.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// Samples for which there was no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Add one pass over all tasks.
    pub fn pass(&mut self, tasks: &[blocked_task]) {
        self.passes += 1;
        let by_pid = tasks.iter().enumerate().map(|(at, task)| (task.pid, at)).collect();
        let mut pass = Pass { tasks, by_pid, rows: vec![None; tasks.len()] };
        for at in 0..tasks.len() {
            self.row_of(&mut pass, at, MOST_HOPS);
        }
        for (task, row) in tasks.iter().zip(&pass.rows) {
            let is_new = self.last.get(&task.pid) != Some(&task.switches);
            match row.flatten().and_then(|row| self.rows.get_mut(row as usize)) {
                Some((_, count)) => {
                    count.samples += 1;
                    count.waits += u64::from(is_new);
                }
                None => self.lost += 1,
            }
        }
        self.last = tasks.iter().map(|task| (task.pid, task.switches)).collect();
    }

    /// The row of a task, after that of the task that holds its lock. Tasks that hold each other's locks: the one that is met again ends it.
    fn row_of(&mut self, pass: &mut Pass<'_>, at: usize, hops: usize) -> Option<u32> {
        let (task, known) = (pass.tasks.get(at)?, *pass.rows.get(at)?);
        if let Some(row) = known {
            return row;
        }
        if let Some(entry) = pass.rows.get_mut(at) {
            *entry = Some(None);
        }
        let owner = pass.by_pid.get(&task.owner).copied().filter(|owner| *owner != at && task.owner != 0);
        let behind = owner.filter(|_| hops > 0).and_then(|owner| self.row_of(pass, owner, hops - 1));
        let row = self.row(task, behind);
        if let Some(entry) = pass.rows.get_mut(at) {
            *entry = Some(row);
        }
        row
    }

    fn row(&mut self, task: &blocked_task, behind: Option<u32>) -> Option<u32> {
        let mut key = Key {
            pid: task.pid,
            tgid: task.tgid,
            comm: text(&task.comm),
            state: task.state,
            stack: self.stack(task),
            work: task.work,
            lock: task.lock,
            kind: task.kind,
            write: task.write,
            owner: task.owner,
            owner_tgid: task.owner_tgid,
            owner_comm: text(&task.owner_comm),
            owner_state: task.owner_state,
            reader_owned: task.reader_owned,
            behind,
        };
        if let Some(row) = self.by_key.get(&key) {
            return Some(*row);
        }
        if self.rows.len() >= MOST_BY_THREAD {
            (key.pid, key.tgid) = (0, 0);
        }
        if let Some(row) = self.by_key.get(&key) {
            return Some(*row);
        }
        let next = u32::try_from(self.rows.len()).ok().filter(|_| self.rows.len() < MOST)?;
        self.rows.push((key.clone(), Count::default()));
        self.by_key.insert(key, next);
        Some(next)
    }

    fn stack(&mut self, task: &blocked_task) -> u32 {
        let depth = usize::try_from(task.depth).unwrap_or(0) / 8;
        let frames = task.frames.get(..depth).unwrap_or_default();
        if let Some(id) = self.stacks.get(frames) {
            return *id;
        }
        let next = self.stacks.len();
        if frames.is_empty() || next >= MOST_STACKS {
            return NO_STACK;
        }
        self.stacks.insert(frames.to_vec(), next as u32);
        next as u32
    }
}

/// The table, and the stacks that it points to, numbered from `first_stack`. A window without a wait has one row, with the passes alone.
#[must_use]
pub fn blocked(samples: &Samples, kernel: &mut KernelNames, first_stack: u32) -> (Vec<Blocked>, Vec<Stack>) {
    let numbered = |id: u32| (id != NO_STACK).then(|| first_stack.saturating_add(id));
    let mut stacks: Vec<Stack> = samples
        .stacks
        .iter()
        .map(|(frames, id)| Stack {
            id: first_stack.saturating_add(*id),
            kernel: kernel.stack(frames),
            user: Vec::new(),
        })
        .collect();
    stacks.sort_by_key(|stack| stack.id);
    let mut function = |address: u64| kernel.stack(&[address]).into_iter().next().filter(|_| address != 0);
    let mut rows: Vec<Blocked> = samples
        .rows
        .iter()
        .zip(1..)
        .map(|((key, count), id)| Blocked {
            id,
            pid: key.pid,
            tgid: key.tgid,
            comm: key.comm.clone(),
            state: state(key.state),
            samples: count.samples,
            waits: count.waits,
            passes: samples.passes,
            stack: numbered(key.stack),
            work: function(key.work),
            lock: lock(key),
            owner_tgid: key.owner_tgid,
            owner_comm: key.owner_comm.clone(),
            owner_state: state(key.owner_state),
            behind: key.behind.map(|row| row.saturating_add(1)),
        })
        .collect();
    if rows.is_empty() && samples.passes > 0 {
        rows.push(Blocked { passes: samples.passes, ..Blocked::default() });
    }
    (rows, stacks)
}

fn lock(key: &Key) -> Option<LockWait> {
    (key.lock != 0).then(|| LockWait {
        address: key.lock,
        kind: lock_kind(key.kind),
        write: key.write != 0,
        owner: key.owner,
        reader_owned: key.reader_owned != 0,
        ..LockWait::default()
    })
}

fn state(state: u32) -> State {
    match state {
        shared_h::RUNNING => State::Running,
        shared_h::READY => State::Runnable,
        shared_h::IO => State::Io,
        shared_h::BLOCKED => State::Blocked,
        shared_h::ASLEEP => State::Sleep,
        _ => State::None,
    }
}

#[cfg(test)]
#[path = "blocked_table_tests.rs"]
mod tests;
