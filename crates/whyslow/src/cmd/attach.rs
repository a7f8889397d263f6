//! `whyslow attach`: where the wall time of running processes goes, and what makes them wait.

use std::io::Write;

use anyhow::{Result, bail};
use whyslow_analyze::focus::Focus;
use whyslow_probe::Follow;

use crate::cli::{Following, OutputArgs, SaveArgs, WindowArgs};
use crate::outcome::Outcome;
use crate::target::{Target, called, numbers_are_ours};
use crate::watch::{Look, watch};
use crate::watchdog;

/// Arguments of `whyslow attach`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    override_usage = "whyslow attach [OPTIONS] PID|NAME[,PID...]
       whyslow attach [OPTIONS] --unit|--pod|--container|--user|--cgroup NAME",
    after_help = "\
whyslow follows all threads of these processes, and the processes that
they start. The window ends early when all processes given by id or name
have ended.

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

/// The processes to follow.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
struct TargetArgs {
    /// Processes to follow: process ids or names, separated by commas or spaces
    #[arg(value_name = "PID|NAME", value_delimiter = ',')]
    pids: Vec<String>,
    /// Follow the processes of this cgroup and of those below it ("/web", or its folder below /sys/fs/cgroup)
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Follow the processes of this systemd unit ("nginx" or "nginx.service")
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Follow the processes of this pod ("web-0", "shop/web-0", or its uid)
    #[arg(long, value_name = "POD")]
    pod: Option<String>,
    /// Follow the processes of this container (its name, its id, or the beginning of its id)
    #[arg(long, value_name = "NAME")]
    container: Option<String>,
    /// Follow the processes of this user (name or uid)
    #[arg(long, value_name = "USER")]
    user: Option<String>,
}

/// The processes that the words mean: a number is a process id, another word a process name. A process found by name may end before
/// whyslow opens it.
fn processes(words: &[String]) -> Result<Target> {
    let mut all = Vec::new();
    for word in words {
        match word.parse::<u32>() {
            Ok(0) => bail!("cannot attach to process 0: process ids begin with 1; `ps -e` lists what runs"),
            Ok(pid) => all.push(pid),
            Err(_) => {
                let found = called(word)?;
                let here: Vec<u32> =
                    found.iter().copied().filter(|pid| Target::processes(&[*pid]).is_ok()).collect();
                // If no process can be followed, the first one gives the error.
                all.extend(if here.is_empty() { found } else { here });
            }
        }
    }
    Target::processes(&all)
}

/// Follows the processes for a window and reports. Findings do not change the exit status: it is 0 if whyslow could look.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    watchdog::begin(Outcome::CouldNotLook.status());
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
    // Without the scheduler's events no wait of any task is known.
    Ok(if reported?.why_waits_unseen().is_some() { Outcome::CouldNotLook } else { Outcome::Quiet })
}
