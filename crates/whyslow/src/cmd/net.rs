//! `whyslow net`: answers of another host, and the packets that waited for their CPU here.

use std::io::Write;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use whyslow_model::{Document, Probe, Recording, counted};
use whyslow_probe::ping::{self, Live};
use whyslow_probe::{Asking, record_pings};
use whyslow_report::safe::plain;
use whyslow_report::{pings, stalls};

use crate::cli::{OutputArgs, PingArgs, SaveArgs, WINDOW, window};
use crate::out::say;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::watch::{Look, watch};
use crate::{interrupt, watchdog};

/// A server answers until it is ended.
const UNTIL_ENDED: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Arguments of `whyslow net`.
#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("subject").required(true).multiple(true).args(["target", "watch", "serve"]))]
pub struct Args {
    /// Host to ask: a name or an address; how long do its answers take, and does it stall?
    #[arg(value_name = "TARGET")]
    target: Option<String>,
    /// Watch this host as the receiver: list the packets that waited for their CPU for 5 ms or more, and what ran there
    #[arg(long)]
    watch: bool,
    /// Answer `whyslow net THIS_HOST --udp PORT` of other hosts, until Ctrl-C or the end of --for
    #[arg(long, value_name = "PORT", conflicts_with_all = ["target", "watch", "output", "flame"], value_parser = clap::value_parser!(u16).range(1..))]
    serve: Option<u16>,
    #[command(flatten)]
    ping: PingArgs,
    /// Length of the window, from 200ms to 1h: "3s", "500ms", "1m30s"; a bare number is in seconds [default: 10s; with --serve: no end]
    #[arg(long = "for", value_name = "DURATION", value_parser = window)]
    window: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    save: SaveArgs,
}

/// Asks a host, watches this one, or both in one window; or answers others. A stall is no cause yet: status 0.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    if let Some(port) = args.serve {
        return serve(port, args.window.unwrap_or(UNTIL_ENDED), out);
    }
    args.save.must_be_writable()?;
    let recording = match &args.target {
        Some(target) => ask(args, target, args.ping.window(args.window))?,
        None => {
            let host = Look::at_the_host(args.window.unwrap_or(WINDOW));
            watch(Look { watches_packets: true, ..host })?
        }
    };
    let page = if args.target.is_some() { pings } else { stalls };
    let told = args.output.compared_with(None).tell_as(page, &recording, None, out);
    args.save.keep(&recording)?;
    Ok(outcome(&told?, args))
}

fn outcome(document: &Document, args: &Args) -> Outcome {
    let unseen = || document.stalls.is_empty() && document.why_unseen_by(Probe::PacketStalls).is_some();
    match (&args.target, args.watch && unseen()) {
        (_, true) => Outcome::CouldNotLook,
        (Some(_), false) => Outcome::of_pings(document),
        (None, false) => Outcome::Quiet,
    }
}

fn ask(args: &Args, target: &str, window: Duration) -> Result<Recording> {
    let aim = args.ping.aim(target, window)?;
    // What cannot be sent is reported before the window.
    drop(ping::Pinger::open(&aim)?);
    let live = Arc::<Live>::default();
    let asking = Asking { target: target.to_owned(), aim, live: Arc::clone(&live) };
    let look = Look { asking: Some(asking), ..Look::at_the_host(window) };
    if args.watch {
        return watch(Look { watches_packets: true, ..look });
    }
    watchdog::begin(Outcome::CouldNotLook.status());
    let stop = interrupt::catch();
    let mut progress = Progress::of(Some(live));
    let recording = record_pings(&look.plan(whyslow_probe::OwnBudget::default()), stop, &mut progress);
    progress.done();
    match (&recording.meta.pinged, recording.missing.first()) {
        (None, Some(why)) => bail!("cannot ask {}: {}", plain(target), why.missing),
        _ => Ok(recording),
    }
}

fn serve(port: u16, window: Duration, out: &mut dyn Write) -> Result<Outcome> {
    let stop = interrupt::catch();
    let served = ping::serve(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), window, stop)?;
    let foreign = counted(served.foreign, "datagram");
    let words =
        format!("{} answered; {foreign} of other programs ignored\n", counted(served.requests, "request"));
    say(out, &words)?;
    Ok(Outcome::Quiet)
}
