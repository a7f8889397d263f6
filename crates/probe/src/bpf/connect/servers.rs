//! Which process listened where connections were refused.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use whyslow_model::table;

use super::{connect_door, door_key, name, socket_address};

/// By network namespace and own address; an unspecified address stands for all.
#[derive(Debug, Default)]
pub struct Servers(BTreeMap<(u32, SocketAddr), Door>);

#[derive(Debug)]
struct Door {
    server: table::Server,
    takes_v4: bool,
}

impl Servers {
    /// `window`: its begin and end, by the clock of the doors.
    pub fn of(doors: Vec<(door_key, connect_door)>, (began, end): (u64, u64)) -> Self {
        let door = |(key, door): (door_key, connect_door)| {
            let since = if door.closed_ns == 0 { 0 } else { end.saturating_sub(door.closed_ns.max(began)) };
            let until = if door.opened_ns == 0 { 0 } else { door.opened_ns.saturating_sub(began) };
            let absent_ns = door.absent_ns.saturating_add(since).saturating_add(until);
            let server = table::Server {
                tgid: door.tgid,
                comm: name(&door.comm),
                closed: door.closed.into(),
                ended: door.ended.into(),
                status: door.status,
                absent_ns: absent_ns.min(end.saturating_sub(began)),
            };
            let place = (key.netns, socket_address(key.addr, key.port));
            (place, Door { server, takes_v4: door.v6only == 0 })
        };
        Servers(doors.into_iter().map(door).collect())
    }

    /// The process that a client of `peer` asks. A process that listens at all addresses does so at those of its network namespace: `own`.
    pub fn at(&self, netns: u32, peer: SocketAddr, own: bool) -> Option<table::Server> {
        let at = |ip: IpAddr| self.0.get(&(netns, SocketAddr::new(ip, peer.port())));
        let any_v4 = || at(Ipv4Addr::UNSPECIFIED.into()).filter(|_| peer.is_ipv4());
        let any_v6 = || at(Ipv6Addr::UNSPECIFIED.into()).filter(|door| peer.is_ipv6() || door.takes_v4);
        let any = || if own { any_v4().or_else(any_v6) } else { None };
        at(peer.ip()).or_else(any).map(|door| door.server.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(text: &str) -> [std::ffi::c_char; 16] {
        let mut comm = [0; 16];
        comm.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte.cast_signed());
        comm
    }

    fn mapped(ip: [u8; 4]) -> [u8; 16] {
        Ipv4Addr::from(ip).to_ipv6_mapped().octets()
    }

    fn door(addr: [u8; 16], port: u32, name: &str) -> (door_key, connect_door) {
        (door_key { addr, netns: 7, port }, connect_door { tgid: 5, comm: comm(name), ..Default::default() })
    }

    fn asked(servers: &Servers, netns: u32, peer: &str, own: bool) -> Option<String> {
        servers.at(netns, peer.parse().unwrap(), own).map(|server| server.comm)
    }

    #[test]
    fn server_absence_is_summed_and_never_exceeds_the_window() {
        let (key, door) = door(mapped([127, 0, 0, 1]), 80, "web");
        let gone = connect_door { closed: 2, ended: 2, status: 256, absent_ns: 30, closed_ns: 60, ..door };
        let absent = |door, window| {
            Servers::of(vec![(key, door)], window).at(7, "127.0.0.1:80".parse().unwrap(), true).unwrap()
        };
        let want =
            table::Server { tgid: 5, comm: "web".into(), closed: 2, ended: 2, status: 256, absent_ns: 70 };
        assert_eq!(absent(gone, (10, 100)), want);
        assert_eq!(absent(connect_door { closed_ns: 0, ..gone }, (10, 100)).absent_ns, 30);
        assert_eq!(
            absent(connect_door { closed_ns: 4, ..door }, (10, 100)).absent_ns,
            90,
            "before the window"
        );
        assert_eq!(absent(connect_door { opened_ns: 35, ..door }, (10, 100)).absent_ns, 25);
        assert_eq!(absent(connect_door { opened_ns: 5, ..door }, (10, 100)).absent_ns, 0);
        let garbage = connect_door { absent_ns: u64::MAX, closed_ns: 1, opened_ns: u64::MAX, ..door };
        assert_eq!(absent(garbage, (10, 100)).absent_ns, 90);
        assert_eq!(absent(garbage, (100, 10)).absent_ns, 0);
    }

    #[test]
    fn a_server_of_all_addresses_is_asked_at_those_of_its_own_namespace() {
        let servers = Servers::of(vec![door(mapped([0; 4]), 80, "old"), door([0; 16], 81, "six")], (10, 100));
        assert_eq!(asked(&servers, 7, "10.0.0.1:80", true).as_deref(), Some("old"));
        assert_eq!(asked(&servers, 7, "10.0.0.1:81", true).as_deref(), Some("six"));
        assert_eq!(asked(&servers, 7, "[::1]:81", true).as_deref(), Some("six"));
        assert_eq!(asked(&servers, 7, "[::1]:80", true), None, "IPv4 alone");
        assert_eq!(asked(&servers, 7, "10.9.0.1:80", false), None, "another host's");
        let others = [asked(&servers, 8, "10.0.0.1:80", true), asked(&servers, 7, "10.0.0.1:82", true)];
        assert_eq!(others, [None, None]);
    }

    #[test]
    fn a_socket_of_ipv6_alone_is_not_asked_by_ipv4() {
        let (key, six) = door([0; 16], 81, "six");
        let servers = Servers::of(vec![(key, connect_door { v6only: 1, ..six })], (10, 100));
        assert_eq!(asked(&servers, 7, "127.0.0.1:81", true), None);
        assert_eq!(asked(&servers, 7, "[::1]:81", true).as_deref(), Some("six"));
    }
}
