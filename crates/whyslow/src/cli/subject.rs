//! `NAME|PID`, `--pid`, `--name`, `--cgroup`, `--unit`, `--pod`, `--container`, `--user`: why is *this* slow?

use std::path::Path;

use anyhow::{Result, bail};
use whyslow_analyze::focus::Focus;

use crate::nearest::nearest;
use crate::target;

/// What the user asks about; nothing: the whole host.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(multiple = false)]
pub struct SubjectArgs {
    /// Focus on this systemd unit ("nginx" or "nginx.service")
    #[arg(long, value_name = "UNIT", help_heading = "Focus")]
    unit: Option<String>,
    /// Focus on this pod ("web-0", "shop/web-0", or its uid)
    #[arg(long, value_name = "POD", help_heading = "Focus")]
    pod: Option<String>,
    /// Focus on this container (its name, or the beginning of its id)
    #[arg(long, value_name = "NAME", help_heading = "Focus")]
    container: Option<String>,
    /// Focus on the tasks of this user (name or number)
    #[arg(long, value_name = "USER", help_heading = "Focus")]
    user: Option<String>,
    /// Focus on this cgroup ("/web", or its folder below /sys/fs/cgroup)
    #[arg(long, value_name = "PATH", help_heading = "Focus")]
    cgroup: Option<String>,
    /// Focus on this process (or thread)
    #[arg(long, value_name = "PID", help_heading = "Focus", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Focus on the processes of this name
    #[arg(long, value_name = "NAME", help_heading = "Focus")]
    name: Option<String>,
}

/// A word that says it all; a verb of that name wins.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct WordArg {
    /// Focus on this process, unit, or the processes of this name
    #[arg(value_name = "NAME|PID", conflicts_with = "SubjectArgs")]
    word: Option<String>,
}

impl WordArg {
    /// What is meant by it now. A word that is nobody's name may be a verb that was meant.
    pub fn focus(&self) -> Result<Option<Focus>> {
        let Some(word) = self.word.as_deref() else { return Ok(None) };
        let focus = target::meant(word);
        let verbs = super::verbs();
        match (must_be_here(&focus), nearest(word, verbs.iter().map(String::as_str))) {
            (Err(_), Some(verb)) if word.chars().all(char::is_alphabetic) => {
                bail!("cannot find a process named {word}; did you mean `whyslow {verb}`?")
            }
            (here, _) => here.map(|()| Some(focus)),
        }
    }
}

impl SubjectArgs {
    /// What the head is to focus on.
    #[must_use]
    pub fn focus(&self) -> Option<Focus> {
        let SubjectArgs { unit, pod, container, user, cgroup, pid, name } = self.clone();
        let all = [
            pid.map(Focus::Pid),
            name.map(Focus::Name),
            cgroup.map(Focus::Cgroup),
            unit.map(Focus::Unit),
            pod.map(Focus::Pod),
            container.map(Focus::Container),
            user.map(Focus::User),
        ];
        all.into_iter().flatten().next()
    }
}

/// What is plainly not there is said before the window, not after it.
pub fn must_be_here(focus: &Focus) -> Result<()> {
    if let Focus::Pid(pid) = focus
        && !Path::new("/proc").join(pid.to_string()).exists()
    {
        bail!("cannot find process {pid}; `ps -e` lists what runs");
    }
    target::must_be_here(focus)
}
