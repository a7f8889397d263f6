//! `--slow`, `--user-stacks`: what is told of those who are followed.

use std::time::Duration;

use whyslow_probe::Follow;

/// How closely to follow.
#[derive(Debug, Clone, clap::Args)]
pub struct Following {
    /// Report each system call that takes longer: "100ms", "50us"
    #[arg(long, value_name = "DURATION", value_parser = super::slow)]
    slow: Option<Duration>,
    /// Keep the callers' user stacks of slow calls in the recording (-o)
    #[arg(long)]
    user_stacks: bool,
}

impl Following {
    /// Follow nobody yet, in this way.
    #[must_use]
    pub fn follow(&self, subject: String) -> Follow {
        let (slow, user_stacks) = (self.slow, self.user_stacks);
        Follow { subject, slow, user_stacks, ..Follow::default() }
    }
}
