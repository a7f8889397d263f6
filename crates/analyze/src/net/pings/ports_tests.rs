use proptest::prelude::*;
use whyslow_model::ping::PingAccount;

use super::super::simulator::{Dice, MS, Receiver, recording};
use super::*;
use crate::Evidence;

fn account(receiver: &Receiver, dice: &mut Dice) -> PingAccount {
    let rec = recording(receiver.interval, receiver.window, receiver.rows(dice));
    super::super::account(&Evidence::of(&rec)).expect("a host was asked")
}

fn told(receiver: &Receiver, dice: &mut Dice) -> Option<PingPorts> {
    account(receiver, dice).ports
}

/// 16 ports, stalls of 60 to 150 ms.
fn receiver(queues: u16, dice: &mut Dice) -> Receiver {
    let mut receiver =
        Receiver::every(5 * MS, 20_000 * MS).stalling(dice, (60 * MS, 150 * MS), (400 * MS, 900 * MS));
    (receiver.ports, receiver.queues) = (16, queues);
    receiver
}

proptest! {
    #[test]
    fn all_ports_stall_where_one_queue_has_them_all(seed: u64, jitter in 0..3 * MS, loss in 0.0..0.05) {
        let mut dice = Dice(seed);
        let mut receiver = receiver(1, &mut dice);
        (receiver.jitter, receiver.loss) = (jitter, loss);
        prop_assert_eq!(told(&receiver, &mut dice).map(|told| told.held), Some(PortsHeld::All));
    }

    #[test]
    fn the_same_ports_stall_where_one_queue_of_several_does(seed: u64, queues in 2..9u16, jitter in 0..3 * MS) {
        let mut dice = Dice(seed);
        let mut receiver = receiver(queues, &mut dice);
        receiver.jitter = jitter;
        let told = told(&receiver, &mut dice).expect("it stalled");
        prop_assert_eq!(told.held, PortsHeld::Same, "{:?}", told);
        prop_assert_eq!(told.late_ports, u64::from(16_u16.div_ceil(queues)), "{:?}", told);
        prop_assert!(told.late > 0 && told.in_time_ports >= 16 - told.late_ports);
    }

    #[test]
    fn other_ports_stall_each_time_where_the_queue_changes(seed: u64) {
        let mut dice = Dice(seed);
        let mut receiver = receiver(2, &mut dice);
        receiver.stalls.iter_mut().enumerate().for_each(|(at, stall)| stall.0 = at as u16 % 2);
        prop_assert_eq!(told(&receiver, &mut dice).map(|told| told.held), Some(PortsHeld::Changing));
    }
}

#[test]
fn a_host_that_does_not_stall_holds_no_port() {
    let mut dice = Dice(1);
    let mut receiver = receiver(2, &mut dice);
    receiver.stalls.clear();
    assert_eq!(told(&receiver, &mut dice), None);
}

#[test]
fn one_port_tells_nothing_about_others() {
    let mut dice = Dice(1);
    let mut receiver = receiver(1, &mut dice);
    receiver.ports = 1;
    let account = account(&receiver, &mut dice);
    assert!(!account.stalls.is_empty() && account.ports.is_none());
}

/// Each second request is an ICMP echo, which stalls or does not, whatever the ports do.
#[test]
fn icmp_is_told_apart_from_ports() {
    for (queues, stalls) in [(2, true), (2, false), (1, true), (1, false)] {
        let mut dice = Dice(3);
        let receiver = receiver(queues, &mut dice);
        let mut rows = receiver.rows(&mut dice);
        let mut icmp = receiver.clone();
        (icmp.ports, icmp.queues) = (1, 1);
        icmp.stalls.retain(|_| stalls);
        rows.extend(icmp.rows(&mut dice).into_iter().map(|row| whyslow_model::ping::Ping { port: 0, ..row }));
        let mut rec = recording(receiver.interval / 2, receiver.window, rows);
        rec.meta.pinged.as_mut().expect("a host was asked").with_icmp = true;
        let told = super::super::account(&Evidence::of(&rec)).expect("a host was asked");
        let told = told.ports.expect("it stalled");
        let (held, late_ports) = if queues == 2 { (PortsHeld::Same, 8) } else { (PortsHeld::All, 16) };
        assert_eq!((told.held, told.late_ports), (held, late_ports), "{told:?}");
        assert_eq!((told.icmp_late > 0, told.icmp_in_time > 0), (stalls, !stalls), "{told:?}");
    }
}

/// A policer of ICMP holds its echoes alone.
#[test]
fn late_echoes_accuse_no_port() {
    let mut dice = Dice(4);
    let receiver = receiver(1, &mut dice);
    let mut icmp = receiver.clone();
    icmp.ports = 1;
    let mut quiet = receiver.clone();
    quiet.stalls.clear();
    let mut rows = quiet.rows(&mut dice);
    rows.extend(icmp.rows(&mut dice).into_iter().map(|row| whyslow_model::ping::Ping { port: 0, ..row }));
    let mut rec = recording(receiver.interval / 2, receiver.window, rows);
    rec.meta.pinged.as_mut().expect("a host was asked").with_icmp = true;
    let told = super::super::account(&Evidence::of(&rec)).expect("a host was asked");
    let ports = told.ports.expect("it stalled");
    assert_eq!((ports.held, ports.late, ports.icmp_in_time), (PortsHeld::Unknown, 0, 0), "{ports:?}");
    assert!(ports.in_time > 0 && ports.icmp_late > 0 && told.ruled_out.is_empty(), "{told:?}");
}

/// One of so many queues: one port of 16, and no other.
#[test]
fn one_port_is_the_queue_of_many() {
    let mut dice = Dice(5);
    let mut receiver = receiver(16, &mut dice);
    receiver.interval = 2 * MS;
    let ports = told(&receiver, &mut dice).expect("it stalled");
    assert_eq!((ports.held, ports.late_ports, ports.in_time_ports), (PortsHeld::Same, 1, 15), "{ports:?}");
    // Another one each time.
    receiver.stalls.iter_mut().enumerate().for_each(|(at, stall)| stall.0 = at as u16 % 16);
    let ports = told(&receiver, &mut dice).expect("it stalled");
    assert_eq!(ports.held, PortsHeld::Unknown, "{ports:?}");
}

#[test]
fn one_short_stall_is_too_little() {
    let mut dice = Dice(1);
    let mut receiver = receiver(1, &mut dice);
    receiver.stalls = vec![(0, 1001 * MS, 1021 * MS)];
    let told = told(&receiver, &mut dice).expect("it stalled");
    assert_eq!((told.held, told.in_time), (PortsHeld::Unknown, 0));
    assert!(told.late_ports < ENOUGH, "{told:?}");
}
