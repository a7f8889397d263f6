//! `NAME|PID`, `--pid`, `--name`, `--cgroup`, `--unit`, `--pod`, `--container`, `--user`: the subject of the report.

use std::path::Path;

use anyhow::{Result, bail};
use whyslow_analyze::focus::Focus;

use crate::suggest::suggest;
use crate::target;

/// The subject that the user names; none: the whole host.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(multiple = false)]
pub struct SubjectArgs {
    /// Focus on this systemd unit ("nginx" or "nginx.service")
    #[arg(long, value_name = "UNIT", help_heading = "Focus")]
    unit: Option<String>,
    /// Focus on this pod ("web-0", "shop/web-0", or its uid)
    #[arg(long, value_name = "POD", help_heading = "Focus")]
    pod: Option<String>,
    /// Focus on this container (its name, its id, or the beginning of its id)
    #[arg(long, value_name = "NAME", help_heading = "Focus")]
    container: Option<String>,
    /// Focus on the tasks of this user (name or uid)
    #[arg(long, value_name = "USER", help_heading = "Focus")]
    user: Option<String>,
    /// Focus on this cgroup and those below it ("/web", or its folder below /sys/fs/cgroup)
    #[arg(long, value_name = "PATH", help_heading = "Focus")]
    cgroup: Option<String>,
    /// Focus on the process or thread with this id
    #[arg(long, value_name = "PID", help_heading = "Focus", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Focus on the processes of this name (as `ps -e` shows it)
    #[arg(long, value_name = "NAME", help_heading = "Focus")]
    name: Option<String>,
}

/// A subject without an option; a verb of the same name takes precedence.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct WordArg {
    /// Focus on this process id, systemd unit or process name: report its time, and only findings and chains that concern it
    #[arg(value_name = "NAME|PID", conflicts_with = "SubjectArgs")]
    word: Option<String>,
}

impl WordArg {
    /// The subject that the word means now. A word without a subject may be a misspelt verb.
    pub fn focus(&self) -> Result<Option<Focus>> {
        let Some(word) = self.word.as_deref() else { return Ok(None) };
        let focus = target::meant(word);
        let verbs = super::verbs();
        match (must_be_here(&focus), suggest(word, verbs.iter().map(String::as_str))) {
            (Err(_), Some(verb)) if word.chars().all(char::is_alphabetic) => {
                bail!("cannot find a process named {word}; did you mean `whyslow {verb}`?")
            }
            (here, _) => here.map(|()| Some(focus)),
        }
    }
}

impl SubjectArgs {
    /// The subject that the report focuses on.
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

/// Reports a subject that is not on this host before the window, not after it.
pub fn must_be_here(focus: &Focus) -> Result<()> {
    if let Focus::Pid(pid) = focus
        && !Path::new("/proc").join(pid.to_string()).exists()
    {
        bail!("cannot find process {pid}; `ps -e` lists what runs");
    }
    target::must_be_here(focus)
}
