//! How another host is asked.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use whyslow_model::ping::PingHow;
use whyslow_probe::ping::Aim;
use whyslow_report::safe::plain;

use super::window::{LENGTH, seconds};

/// More often only with --flood: ping(8) draws the same line for users other than root, at 2 ms.
const POLITE: Duration = Duration::from_millis(1);
/// Not even with --flood.
const SHORTEST: Duration = Duration::from_micros(100);
/// Longer than the window of a look can be.
const LONGEST: Duration = Duration::from_secs(3600);
/// Requests that were due while whyslow had no CPU are sent later: `--count` gets so much more time for them.
const SPARE: Duration = Duration::from_secs(2);
/// The prober waits so long for the last answers.
const MOST_PATIENT: Duration = Duration::from_secs(60);
/// Requests of one look: each is a row, and has to fit into the memory that whyslow plans with.
const MOST: u128 = 500_000;

/// What is sent, and how often.
#[derive(Debug, Clone, clap::Args)]
pub struct PingArgs {
    /// Ask by ICMP echo (the default): all requests share one receive queue of the target. With --tcp or --udp: by both, in turn
    #[arg(long, requires = "target")]
    icmp: bool,
    /// Ask by TCP SYN to this port, from 16 source ports; connections are not completed
    #[arg(long, value_name = "PORT", requires = "target", conflicts_with = "udp", value_parser = clap::value_parser!(u16).range(1..))]
    tcp: Option<u16>,
    /// Ask by UDP datagram to this port, from 16 source ports: of `whyslow net --serve PORT`, a DNS server (53), or a closed port
    #[arg(long, value_name = "PORT", requires = "target", value_parser = clap::value_parser!(u16).range(1..))]
    udp: Option<u16>,
    /// Time between two requests: "10ms", "1s"
    #[arg(long, value_name = "DURATION", requires = "target", default_value = "10ms", value_parser = interval)]
    interval: Duration,
    /// Allow intervals below 1ms, down to 100us
    #[arg(long, requires = "target")]
    flood: bool,
    /// End after so many requests
    #[arg(long, value_name = "N", requires = "target", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// A request without an answer for so long is lost
    #[arg(long, value_name = "DURATION", requires = "target", default_value = "1s", value_parser = timeout)]
    timeout: Duration,
    /// Ask an IPv4 address of TARGET
    #[arg(short = '4', long, requires = "target", conflicts_with = "ipv6")]
    ipv4: bool,
    /// Ask an IPv6 address of TARGET
    #[arg(short = '6', long, requires = "target")]
    ipv6: bool,
}

impl PingArgs {
    /// The window: that of `--for`, else what `--count` requests need, else the usual one. The count ends it earlier.
    pub fn window(&self, window: Option<Duration>) -> Duration {
        let needed = |count| self.interval.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let counted = self.count.map(|count| needed(count).saturating_add(SPARE).min(LONGEST));
        window.or(counted).unwrap_or(LENGTH)
    }

    /// The address of `target`, and how it is asked.
    pub fn aim(&self, target: &str, window: Duration) -> Result<Aim> {
        if self.interval < POLITE && !self.flood {
            bail!("cannot ask {} more often than once in 1ms without --flood", plain(target));
        }
        let requests = window.as_nanos() / self.interval.as_nanos().max(1);
        if requests.min(self.count.map_or(u128::MAX, u128::from)) > MOST {
            bail!(
                "cannot send more than {MOST} requests in one window; choose a longer --interval or a shorter --for"
            );
        }
        let (how, port) = match (self.tcp, self.udp) {
            (Some(port), _) => (PingHow::Tcp, port),
            (None, Some(port)) => (PingHow::Udp, port),
            (None, None) => (PingHow::Icmp, 0),
        };
        let (address, scope) = self.address(target)?;
        let (interval, count, timeout) = (self.interval, self.count, self.timeout);
        let with_icmp = self.icmp && how != PingHow::Icmp;
        Ok(Aim { address, scope, how, port, with_icmp, interval, count, timeout })
    }

    /// The first address of the wanted family, with its interface if it has one ("fe80::1%eth0").
    fn address(&self, target: &str) -> Result<(IpAddr, u32)> {
        let shown = plain(target);
        let all = (target, 0).to_socket_addrs().with_context(|| format!("cannot find host {shown}"))?;
        let fits = |at: &SocketAddr| !(self.ipv4 && at.is_ipv6() || self.ipv6 && at.is_ipv4());
        match all.into_iter().find(fits) {
            Some(SocketAddr::V6(at)) => Ok((IpAddr::V6(*at.ip()), at.scope_id())),
            Some(at) => Ok((at.ip(), 0)),
            None => bail!("cannot find an IPv{} address of {shown}", if self.ipv4 { 4 } else { 6 }),
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let exact = seconds(text).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match exact.filter(|time| (SHORTEST..=LONGEST).contains(time)) {
        Some(time) => Ok(time),
        None => Err(format!("expected a duration from 100us to 1h such as 10ms, not {text:?}")),
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    let time = interval(text)?;
    if time > MOST_PATIENT { Err(format!("expected 1m at most, not {text:?}")) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        target: String,
        #[command(flatten)]
        ping: PingArgs,
    }

    fn aim(line: &str) -> Result<Aim> {
        let line = Line::try_parse_from(["x"].into_iter().chain(line.split(' ')))?;
        line.ping.aim(&line.target, line.ping.window(None))
    }

    #[test]
    fn a_host_is_asked_as_the_options_say() {
        let default = aim("127.0.0.1").unwrap();
        assert_eq!(
            (default.how, default.port, default.interval),
            (PingHow::Icmp, 0, Duration::from_millis(10))
        );
        let tcp = aim("::1 --tcp 80 --interval 1ms --count 5 --timeout 2s").unwrap();
        assert_eq!((tcp.how, tcp.port, tcp.count), (PingHow::Tcp, 80, Some(5)));
        assert_eq!((tcp.address.to_string().as_str(), tcp.timeout), ("::1", Duration::from_secs(2)));
        assert_eq!(aim("127.0.0.1 --udp 53").unwrap().how, PingHow::Udp);
        let both = |line| aim(line).map(|aim| (aim.how, aim.with_icmp)).unwrap();
        assert_eq!(both("127.0.0.1 --icmp --tcp 80"), (PingHow::Tcp, true));
        assert_eq!(
            (both("127.0.0.1 --icmp"), both("127.0.0.1 --tcp 80")),
            ((PingHow::Icmp, false), (PingHow::Tcp, false))
        );
        assert_eq!(aim("127.0.0.1 --flood --interval 100us").unwrap().interval, SHORTEST);
    }

    #[test]
    fn impolite_and_impossible_requests_are_refused() {
        for (line, why) in [
            ("127.0.0.1 --interval 500us", "--flood"),
            ("127.0.0.1 --interval 10us --flood", "expected a duration from 100us"),
            ("127.0.0.1 -6", "IPv6 address"),
            ("::1 -4", "IPv4 address"),
            ("127.0.0.1 --tcp 80 --udp 80", "cannot be used with"),
            ("127.0.0.1 --tcp 0", "invalid value"),
            ("127.0.0.1 --timeout 2m", "expected 1m at most"),
            ("127.0.0.1 --count 600000 --interval 1ms", "500000 requests"),
            ("no-such-host.invalid", "cannot find host"),
        ] {
            let refused = format!("{:#}", aim(line).unwrap_err());
            assert!(refused.contains(why), "{line}: {refused}");
        }
        let long = Line::try_parse_from(["x", "127.0.0.1", "--interval", "1ms"]).unwrap();
        let hour = long.ping.aim(&long.target, Duration::from_secs(3600)).unwrap_err();
        assert!(hour.to_string().contains("500000 requests"), "{hour}");
    }

    #[test]
    fn a_count_sets_the_window_unless_for_does() {
        let of = |options: &[&str], window| {
            let line = Line::try_parse_from(["x", "h"].iter().chain(options)).unwrap();
            line.ping.window(window)
        };
        let ms = Duration::from_millis;
        assert_eq!(of(&["--count", "5"], None), ms(50) + SPARE);
        assert_eq!(of(&["--count", "5"], Some(ms(700))), ms(700));
        assert_eq!(of(&["--count", "99999999999"], None), LONGEST);
        assert_eq!(of(&[], None), LENGTH);
    }
}
