//! `whyslow attach`: where the wall time of running processes goes, and who makes them wait.

use std::io::Write;

use anyhow::{Result, bail};
use whyslow_analyze::focus::Focus;
use whyslow_probe::Follow;

use crate::cli::{Following, OutputArgs, SaveArgs, WindowArgs};
use crate::ending;
use crate::outcome::Outcome;
use crate::target::{Target, called, numbers_are_ours};
use crate::watch::{Look, watch};

/// Arguments of `whyslow attach`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    override_usage = "whyslow attach [OPTIONS] PID|NAME[,PID...]
       whyslow attach [OPTIONS] --unit|--pod|--container|--user|--cgroup NAME",
    after_help = "\
All their threads are followed, and the processes that they start. The
window ends early when all processes that were named have ended.

Examples:
  sudo whyslow attach 4242
  sudo whyslow attach postgres --for 30s
  sudo whyslow attach --unit nginx --slow 100ms --flame nginx.svg
  sudo whyslow attach --pod shop/web-0 --for 30s
  sudo whyslow attach --cgroup /sys/fs/cgroup/web"
)]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    following: Following,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    save: SaveArgs,
}

/// Whom to follow.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
struct TargetArgs {
    /// Processes to attach to: their numbers, or a name
    #[arg(value_name = "PID|NAME", value_delimiter = ',')]
    pids: Vec<String>,
    /// Attach to the processes of this cgroup and below ("/web", or its folder below /sys/fs/cgroup)
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Attach to the processes of this systemd unit ("nginx" or "nginx.service")
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Attach to the processes of this pod ("web-0", "shop/web-0", or its uid)
    #[arg(long, value_name = "POD")]
    pod: Option<String>,
    /// Attach to the processes of this container (its name, or the beginning of its id)
    #[arg(long, value_name = "NAME")]
    container: Option<String>,
    /// Attach to the processes of this user (name or number)
    #[arg(long, value_name = "USER")]
    user: Option<String>,
}

/// Of each word: a number, or the processes of a name. Of a name some may end before we have them.
fn processes(words: &[String]) -> Result<Target> {
    let mut all = Vec::new();
    for word in words {
        match word.parse::<u32>() {
            Ok(0) => bail!("cannot attach to process 0: numbers begin with 1"),
            Ok(pid) => all.push(pid),
            Err(_) => {
                let found = called(word)?;
                let here: Vec<u32> =
                    found.iter().copied().filter(|pid| Target::processes(&[*pid]).is_ok()).collect();
                // Where none can be followed, the first says why.
                all.extend(if here.is_empty() { found } else { here });
            }
        }
    }
    Target::processes(&all)
}

/// Follow them for a window and report. What was found is no fault of theirs: 0, looked.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    ending::begin(Outcome::CouldNotLook.status());
    args.save.must_be_writable()?;
    numbers_are_ours()?;
    let target = match &args.target {
        TargetArgs { cgroup: Some(path), .. } => Target::cgroup(path)?,
        TargetArgs { unit: Some(unit), .. } => Target::named(&Focus::Unit(unit.clone()))?,
        TargetArgs { pod: Some(pod), .. } => Target::named(&Focus::Pod(pod.clone()))?,
        TargetArgs { container: Some(name), .. } => Target::named(&Focus::Container(name.clone()))?,
        TargetArgs { user: Some(user), .. } => Target::named(&Focus::User(user.clone()))?,
        TargetArgs { pids, .. } => processes(pids)?,
    };
    let follow = Follow {
        pids: target.pids.clone(),
        pidfds: target.pidfds(),
        cgroup: target.cgroup,
        ..args.following.follow(target.subject.clone())
    };
    let ends = target.ends()?;
    let ends_with = ends.as_ref().map(std::os::fd::AsRawFd::as_raw_fd);
    let recording = watch(Look { follow: Some(follow), ends_with, ..Look::at_the_host(args.window.window) })?;
    let reported = args.output.compared_with(None).tell(&recording, None, out);
    args.save.keep(&recording)?;
    // Without the scheduler's events nothing is known of anybody's waits.
    Ok(if reported?.why_waits_unseen().is_some() { Outcome::CouldNotLook } else { Outcome::Quiet })
}
