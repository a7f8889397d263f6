//! Who listened where connections were refused: those who were there when the probe started, and those who came or went.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use whyslow_model::table;

use super::{connect_door, connect_listener, door_key, name, socket_address};

/// By network namespace and own address; an unspecified address stands for all.
#[derive(Debug, Default)]
pub struct Servers(BTreeMap<(u32, SocketAddr), table::Server>);

impl Servers {
    /// `window`: from when to when doors were seen, by their clock.
    pub fn of(doors: Vec<(door_key, connect_door)>, before: &[connect_listener], window: (u64, u64)) -> Self {
        let mut all = BTreeMap::new();
        for l in before {
            let server = table::Server { tgid: l.tgid, comm: name(&l.comm), ..table::Server::default() };
            all.insert((l.netns, socket_address(l.addr, l.port)), server);
        }
        for (key, door) in doors {
            let place = (key.netns, socket_address(key.addr, key.port));
            let since = if door.closed_ns == 0 { 0 } else { window.1.saturating_sub(door.closed_ns) };
            let is_new = door.opened_ns > 0 && !all.contains_key(&place);
            let until = if is_new { door.opened_ns.saturating_sub(window.0) } else { 0 };
            let server = table::Server {
                tgid: door.tgid,
                comm: name(&door.comm),
                closed: door.closed.into(),
                ended: door.ended.into(),
                status: door.status,
                absent_ns: door.absent_ns.saturating_add(since).saturating_add(until),
            };
            all.insert(place, server);
        }
        Servers(all)
    }

    /// Who was asked by whoever connects to `peer`. An IPv6 socket takes IPv4, too, unless it is told not to.
    pub fn at(&self, netns: u32, peer: SocketAddr) -> Option<table::Server> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let any = any.into_iter().skip(usize::from(peer.is_ipv6()));
        let mut places = std::iter::once(peer.ip()).chain(any);
        places.find_map(|ip| self.0.get(&(netns, SocketAddr::new(ip, peer.port())))).cloned()
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

    fn asked(servers: &Servers, netns: u32, peer: &str) -> Option<String> {
        servers.at(netns, peer.parse().unwrap()).map(|server| server.comm)
    }

    #[test]
    fn whoever_came_or_went_is_known_with_the_time_nobody_was_there() {
        let key = door_key { addr: mapped([127, 0, 0, 1]), netns: 7, port: 80 };
        let door = connect_door {
            tgid: 5,
            comm: comm("web"),
            closed: 2,
            ended: 2,
            status: 256,
            absent_ns: 30,
            closed_ns: 60,
            opened_ns: 0,
        };
        let server =
            Servers::of(vec![(key, door)], &[], (10, 100)).at(7, "127.0.0.1:80".parse().unwrap()).unwrap();
        let want =
            table::Server { tgid: 5, comm: "web".into(), closed: 2, ended: 2, status: 256, absent_ns: 70 };
        assert_eq!(server, want);
        let back = Servers::of(vec![(key, connect_door { closed_ns: 0, ..door })], &[], (10, 100));
        assert_eq!(back.at(7, "127.0.0.1:80".parse().unwrap()).unwrap().absent_ns, 30);
        let begun = connect_door { opened_ns: 35, closed_ns: 0, absent_ns: 0, ..door };
        let old = connect_listener { addr: key.addr, netns: 7, port: 80, ..Default::default() };
        for (before, absent) in [(&[][..], 25), (&[old][..], 0)] {
            let servers = Servers::of(vec![(key, begun)], before, (10, 100));
            assert_eq!(servers.at(7, "127.0.0.1:80".parse().unwrap()).unwrap().absent_ns, absent);
        }
    }

    #[test]
    fn a_server_of_all_addresses_is_asked_at_each_of_its_namespace() {
        let old = connect_listener {
            addr: mapped([0; 4]),
            netns: 7,
            port: 80,
            comm: comm("old"),
            ..Default::default()
        };
        let six =
            connect_listener { addr: [0; 16], netns: 7, port: 81, comm: comm("six"), ..Default::default() };
        let servers = Servers::of(Vec::new(), &[old, six], (10, 100));
        assert_eq!(asked(&servers, 7, "10.0.0.1:80").as_deref(), Some("old"));
        assert_eq!(asked(&servers, 7, "10.0.0.1:81").as_deref(), Some("six"));
        assert_eq!(asked(&servers, 7, "[::1]:81").as_deref(), Some("six"));
        assert_eq!(asked(&servers, 7, "[::1]:80"), None, "IPv4 alone");
        assert_eq!((asked(&servers, 8, "10.0.0.1:80"), asked(&servers, 7, "10.0.0.1:82")), (None, None));
    }
}
