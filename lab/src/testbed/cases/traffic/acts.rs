//! Both ends of a talk.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::actor::Pen;

const PORT: u16 = 7_777;
/// A request, and its answer.
const REQUEST: usize = 64;
/// A message of a stream, at each millisecond: 16 MB a second.
const MESSAGE: usize = 16 << 10;
const DATAGRAM: [u8; 200] = [0x5a; 200];
const CONNECTIONS: usize = 200;
/// Connections that are asked at each tick.
const AT_ONCE: usize = 20;
/// Destination ports: each is an entry of the connection table.
const FLOWS: u16 = 10_000;
const MS: u64 = 1_000_000;

/// How two ends talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Messages over one connection.
    Stream,
    /// Small requests over one connection.
    Requests,
    /// Small requests over many connections, each with a thread of the server.
    Connections,
    /// A new connection for each request.
    Short,
    /// Many datagrams at once, and a pause.
    Bursts,
    /// Datagrams to 10,000 ports of a host that tracks connections.
    Flows,
    /// Datagrams to all hosts and to a group, and questions for addresses that no host has.
    Broadcast,
    /// Datagrams to a process that does not read.
    Paused,
    /// Requests through a bridge with many ports.
    Bridge,
    /// Requests, beside many network namespaces with their own datagrams.
    Namespaces,
    /// Requests, while cgroups come and go.
    Cgroups,
}

/// Sends, at each tick.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Talk {
    pub to: Ipv4Addr,
    pub shape: Shape,
}

/// Answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Listen {
    pub shape: Shape,
}

/// Makes a cgroup and removes it, at each tick.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Come {
    pub dir: PathBuf,
    pub every_ns: u64,
}

impl Talk {
    /// Datagrams over its own loopback.
    pub fn alone() -> Self {
        Talk { to: Ipv4Addr::LOCALHOST, shape: Shape::Paused }
    }

    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        let connect = || TcpStream::connect((self.to, PORT));
        let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        udp.set_broadcast(true)?;
        // Full queues, and a device that is not up yet, refuse: that is no matter.
        let send = |to: Ipv4Addr, port: u16| drop(udp.send_to(&DATAGRAM, (to, port)));
        let count = match self.shape {
            Shape::Connections => CONNECTIONS,
            Shape::Stream | Shape::Requests | Shape::Bridge | Shape::Namespaces | Shape::Cgroups => 1,
            _ => 0,
        };
        let mut open = (0..count).map(|_| connect()).collect::<io::Result<Vec<_>>>()?;
        let [a, b, c, _] = self.to.octets();
        let mut at: u16 = 0;
        pen.ready();
        pen.at_each_tick(self.every_ns(), |pen| {
            at = at.wrapping_add(1);
            match self.shape {
                Shape::Stream => open[0].write_all(&[0x5a; MESSAGE])?,
                Shape::Short => exchange(&mut connect()?)?,
                Shape::Connections => {
                    let first = usize::from(at) * AT_ONCE % CONNECTIONS;
                    open.iter_mut().skip(first).take(AT_ONCE).try_for_each(exchange)?;
                }
                Shape::Bursts => (0..100).for_each(|_| send(self.to, PORT)),
                Shape::Paused => (0..5).for_each(|_| send(self.to, PORT)),
                Shape::Flows => {
                    (0..50).for_each(|one| {
                        send(self.to, 10_000 + at.wrapping_mul(50).wrapping_add(one) % FLOWS)
                    });
                }
                Shape::Broadcast => {
                    send(Ipv4Addr::new(a, b, c, 255), PORT);
                    send(Ipv4Addr::new(239, 1, 1, 1), PORT);
                    send(Ipv4Addr::new(a, b, c, 3 + (at % 200) as u8), PORT);
                }
                Shape::Requests | Shape::Bridge | Shape::Namespaces | Shape::Cgroups => {
                    exchange(&mut open[0])?
                }
            }
            pen.did_one();
            Ok(())
        })
    }

    fn every_ns(&self) -> u64 {
        match self.shape {
            Shape::Stream | Shape::Requests => MS,
            Shape::Bursts | Shape::Paused => 20 * MS,
            Shape::Connections | Shape::Flows => 5 * MS,
            _ => 2 * MS,
        }
    }
}

/// One request and its answer.
fn exchange(with: &mut TcpStream) -> io::Result<()> {
    with.write_all(&[0x5a; REQUEST])?;
    with.read_exact(&mut [0; REQUEST])
}

impl Listen {
    pub fn live(&self, pen: &Pen) -> io::Result<()> {
        let (tcp, udp) = (
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?,
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?,
        );
        pen.ready();
        match self.shape {
            Shape::Paused => loop {
                std::thread::sleep(Duration::from_secs(60));
            },
            Shape::Bursts | Shape::Flows | Shape::Broadcast => loop {
                udp.recv(&mut [0; 512])?;
            },
            _ => {}
        }
        let answers = self.shape != Shape::Stream;
        for one in tcp.incoming() {
            let one = one?;
            std::thread::spawn(move || answer(one, answers));
        }
        Ok(())
    }
}

/// Until the other end closes.
fn answer(mut with: TcpStream, answers: bool) -> io::Result<()> {
    let mut into = [0; MESSAGE];
    loop {
        match with.read(&mut into)? {
            0 => return Ok(()),
            length if answers => with.write_all(into.get(..length).unwrap_or_default())?,
            _ => {}
        }
    }
}

impl Come {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        pen.ready();
        pen.at_each_tick(self.every_ns, |pen| {
            fs::create_dir(&self.dir)?;
            fs::remove_dir(&self.dir)?;
            pen.did_one();
            Ok(())
        })
    }
}
