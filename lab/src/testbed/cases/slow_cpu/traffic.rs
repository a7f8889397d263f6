//! Messages over connections and datagrams, to a server that computes over each byte.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::actor::Pen;

const MESSAGE: usize = 1024;
const DATAGRAM: usize = 256;
const CONNECTIONS: usize = 4;
/// Small buffers: a slow server has an effect soon.
const RECEIVE_BUFFER: &str = "4096 16384 32768";
const TICK_NS: u64 = 1_000_000;
/// Messages that a connection may take in a tick.
const AT_ONCE: usize = 4;
/// The kernel retransmits a connection's first packet after 1 s, 3 s and 7 s: a client that gave up at such a moment would get its answer
/// after it is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes messages and computes over each byte.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sink {
    pub port: u16,
    pub turns_per_byte: u64,
}

/// Sends as much as the receiver takes, and datagrams at a steady rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Source {
    pub to: Ipv4Addr,
    pub port: u16,
    pub datagrams_per_s: u64,
}

impl Sink {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        // This sets the limit of our own network namespace.
        fs::write("/proc/sys/net/ipv4/tcp_rmem", RECEIVE_BUFFER)?;
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port));
        let (listener, datagrams) = (TcpListener::bind(any)?, UdpSocket::bind(any)?);
        listener.set_nonblocking(true)?;
        datagrams.set_nonblocking(true)?;
        pen.ready();
        let (mut streams, mut buffer): (Vec<(TcpStream, usize)>, _) = (Vec::new(), [0_u8; MESSAGE]);
        loop {
            if let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true)?;
                streams.push((stream, 0));
            }
            let mut idle = true;
            streams.retain_mut(|(stream, got)| match would_block(stream.read(&mut buffer)) {
                Ok(Some(length)) => {
                    idle = false;
                    self.compute(length);
                    *got += length;
                    (0..*got / MESSAGE).for_each(|_| pen.did_one());
                    *got %= MESSAGE;
                    true
                }
                Ok(None) => true,
                // The client gave up because the connection was accepted too late.
                Err(_) => false,
            });
            if let Some(length) = would_block(datagrams.recv(&mut buffer))? {
                idle = false;
                self.compute(length);
            }
            if idle {
                std::thread::sleep(Duration::from_micros(500));
            }
        }
    }

    fn compute(&self, bytes: usize) {
        super::run(bytes as u64 * self.turns_per_byte * 2);
    }
}

impl Source {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        pen.ready();
        let to = SocketAddr::from((self.to, self.port));
        let streams = (0..CONNECTIONS).map(|_| connect(to)).collect::<io::Result<Vec<_>>>()?;
        let datagrams = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        datagrams.set_nonblocking(true)?;
        let (message, mut owed) = ([7_u8; MESSAGE], 0);
        pen.at_each_tick(TICK_NS, |pen| {
            owed += self.datagrams_per_s * TICK_NS / 1_000;
            while owed >= 1_000_000 {
                would_block(datagrams.send_to(&message[..DATAGRAM], to))?;
                owed -= 1_000_000;
            }
            for mut stream in &streams {
                let taken = (0..AT_ONCE).map_while(|_| would_block(stream.write(&message)).transpose());
                for one in taken {
                    one?;
                    pen.did_one();
                }
            }
            Ok(())
        })
    }
}

/// Retries: until the cable exists and the server listens there is no route.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    loop {
        match TcpStream::connect_timeout(&to, PATIENCE) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn would_block(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(length) => Ok(Some(length)),
        // A full queue of a device drops a datagram; that is no failure.
        Err(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(err) if err.raw_os_error() == Some(libc::ENOBUFS) => Ok(None),
        Err(err) => Err(err),
    }
}
