//! A daemon that reads the kernel's audit records (auditd(8)): include/uapi/linux/audit.h, over netlink(7). Guests only: after auditing was
//! on once, each system call of later processes costs more until the next boot.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::Worker;
use crate::ledger::{Fact, Word};
use crate::sys::{self, netlink};

/// Messages: set the status, add a rule.
const SET: u16 = 1001;
const ADD_RULE: u16 = 1011;
/// Mask of the status message, which fields it sets: enabled, the reader's pid, the length of the queue.
const ENABLED: u32 = 1;
const PID: u32 = 4;
const BACKLOG: u32 = 16;
/// Audit the call at its exit, always.
const AT_EXIT: u32 = 4;
const ALWAYS: u32 = 2;
/// ioprio_get (x86-64): almost no other program calls it.
const CALL: u32 = 252;
/// Length of the queue: with more pending records, the victims wait.
const MOST: u32 = 64;

/// Read the records. `Word::Mode` 1: with a sleep after each.
pub fn read<'l>(ready: impl FnOnce() -> Worker<'l>, sleep_us: u64) -> io::Result<()> {
    let socket = netlink::audit()?;
    let status = [ENABLED | PID | BACKLOG, 1, 0, std::process::id(), 0, MOST, 0, 0, 0, 0, 0];
    ask(&socket, SET, &status)?;
    ask(&socket, ADD_RULE, &rule())?;
    let mut worker = ready();
    while worker.goes_on() {
        netlink::receive(&socket)?;
        if worker.word(Word::Mode) == 1 {
            sys::sleep_us(sleep_us);
        }
        worker.did_one();
    }
    Ok(())
}

/// struct audit_rule_data: no field, and one system call.
fn rule() -> Vec<u32> {
    let mut mask = [0_u32; 64];
    mask[(CALL / 32) as usize] = 1 << (CALL % 32);
    let fields = [0_u32; 3 * 64];
    [&[AT_EXIT, ALWAYS, 0][..], &mask, &fields, &[0]].concat()
}

fn ask(socket: &OwnedFd, kind: u16, words: &[u32]) -> io::Result<()> {
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    netlink::ask(socket, kind, &body)
}

/// Make the audited call, and rest, again and again; record how long each call took.
pub fn told_of(worker: Worker<'_>, rest_us: u64) -> io::Result<()> {
    while worker.goes_on() {
        let began = sys::monotonic_ns();
        sys::own_io_priority();
        let ended = sys::monotonic_ns();
        worker.ledger.note(worker.slot, ended, ended.saturating_sub(began));
        worker.ledger.fact(worker.slot, Fact::Count).fetch_add(1, Ordering::Release);
        sys::sleep_us(rest_us);
    }
    Ok(())
}
