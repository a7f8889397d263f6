//! A server does not accept fast enough, its listen queue is full, and clients wait for a second and more to connect.
//!
//! All processes are in a network namespace of their own. Fault: 4 to 12 clients that connect, close and think; the server stops accepting,
//! or accepts a few times a second. Twin: the server accepts at once, and its queue has room for all clients. False-positive control: the
//! same full queue; a task sends connects to it without waiting for them, while its work continues.

use std::io;
use std::sync::atomic::Ordering;

use crate::ledger::{NEVER, Word};
use crate::scenario::{FaultKind, Form, Scenario, TestBed};
use crate::spec::{Network, Work};
use crate::{Draw, Victim};

/// Draw a scenario and start it.
pub fn set(testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Scenario> {
    let port = draw.between(1024, 30_000) as u16;
    let backlog = draw.between(1, 8) as u32;
    let pause_us = if draw.one_in(3) { NEVER } else { draw.between(150, 400) * 1000 };
    let (threads, work) = match form {
        Form::Control => {
            let every_us = draw.between(10, 30) * 1000;
            (draw.between(1, 3), Work::Fling { port, burst_us: every_us / 20, every_us })
        }
        Form::Fault | Form::Twin => {
            (draw.between(4, 12), Work::Connect { port, think_us: draw.between(5, 20) * 1000 })
        }
    };
    let pause_us = if form == Form::Twin { 0 } else { pause_us };
    // Clients that connect at the same moment fill a shorter queue, however soon the server accepts: then one loses a second.
    let backlog = if form == Form::Twin { backlog.max(threads as u32) } else { backlog };
    let said = format!(
        "port {port}, backlog {backlog}, {threads} x {work:?}, the server {}",
        match pause_us {
            0 => "accepts at once".to_owned(),
            NEVER => "stops accepting".to_owned(),
            us => format!("rests {us} us after each accept"),
        }
    );
    let server_group = testbed.fence.group(&draw.word(7))?;
    let group = testbed.fence.group(&draw.word(6))?;
    let comm = format!("srv-{}", draw.word(4));
    let mut spec = testbed.fence.spec(&server_group, &comm, 1, Work::Serve { port, backlog });
    spec.network = Network::Own;
    let server = Victim::spawn(spec)?;
    let mut spec = testbed.fence.spec(&group, &format!("cli-{}", draw.word(4)), threads, work);
    spec.network = Network::Of(server.pid());
    let victim = Victim::spawn(spec)?;
    let (ledger, netstat) = (server.ledger().clone(), format!("/proc/{}/net/netstat", server.pid()));
    Ok(Scenario {
        victim,
        others: vec![server],
        group,
        kind: FaultKind::ListenOverflow,
        form,
        said,
        switch: Box::new(move |_, on| {
            ledger.word(Word::AcceptPause).store(if on { pause_us } else { 0 }, Ordering::Relaxed);
            Ok(())
        }),
        counter: Some(Box::new(move |_| overflows(&std::fs::read_to_string(&netstat)?))),
        without: Vec::new(),
        limits: Vec::new(),
        _belongings: Vec::new(),
    })
}

/// ListenOverflows from the text of net/netstat: a line of names, then a line of numbers.
fn overflows(netstat: &str) -> io::Result<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    names
        .split(' ')
        .zip(values.split(' '))
        .find_map(|(name, value)| (name == "ListenOverflows").then(|| value.parse().ok())?)
        .ok_or_else(|| io::Error::other("expected ListenOverflows in net/netstat"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflows_are_found_by_name() {
        let text =
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 22 333\nIpExt: A\nIpExt: 0\n";
        assert_eq!(overflows(text).unwrap(), 22);
        assert!(overflows("TcpExt: ListenOver").is_err());
    }
}
