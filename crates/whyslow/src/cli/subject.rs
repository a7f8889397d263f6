//! `--pid`, `--cgroup`, `--unit`: why is *this* slow?

use std::path::Path;

use anyhow::{Result, bail};
use whyslow_analyze::focus::Focus;

/// What the user asks about; nothing: the whole host.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(multiple = false)]
pub struct SubjectArgs {
    /// Focus on this systemd unit ("nginx" or "nginx.service")
    #[arg(long, value_name = "UNIT", help_heading = "Focus")]
    unit: Option<String>,
    /// Focus on this cgroup ("/web", or its folder below /sys/fs/cgroup)
    #[arg(long, value_name = "PATH", help_heading = "Focus")]
    cgroup: Option<String>,
    /// Focus on this process (or thread)
    #[arg(long, value_name = "PID", help_heading = "Focus", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
}

impl SubjectArgs {
    /// What the head is to focus on.
    #[must_use]
    pub fn focus(&self) -> Option<Focus> {
        let pid = self.pid.map(Focus::Pid);
        let cgroup = || self.cgroup.clone().map(Focus::Cgroup);
        pid.or_else(cgroup).or_else(|| self.unit.clone().map(Focus::Unit))
    }

    /// What is plainly not there is said before the window, not after it.
    pub fn must_be_here(&self) -> Result<()> {
        if let Some(pid) = self.pid
            && !Path::new("/proc").join(pid.to_string()).exists()
        {
            bail!("cannot find process {pid}; `ps -e` lists what runs");
        }
        if let Some(folder) = self.cgroup.as_ref().filter(|c| c.starts_with("/sys/"))
            && !Path::new(folder).is_dir()
        {
            bail!("cannot find cgroup {folder}; `cat /proc/PID/cgroup` names a process's cgroups");
        }
        Ok(())
    }
}
