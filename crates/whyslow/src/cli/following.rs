//! `--slow`, `--user-stacks`: what is reported about the followed processes.

use std::time::Duration;

use whyslow_probe::Follow;

/// How closely to follow.
#[derive(Debug, Clone, clap::Args)]
pub struct Following {
    /// Report each system call that takes at least this long: "100ms", "50us", at most 1h; a bare number is in seconds
    /// (default: off)
    #[arg(long, value_name = "DURATION", value_parser = super::slow)]
    slow: Option<Duration>,
    /// With -o: also record the user stack of each system call that --slow reports, and of a sample of the calls that block for 1 ms or longer
    #[arg(long)]
    user_stacks: bool,
}

impl Following {
    /// Options for following, without any process yet.
    #[must_use]
    pub fn follow(&self, subject: String) -> Follow {
        let (slow, user_stacks) = (self.slow, self.user_stacks);
        Follow { subject, slow, user_stacks, ..Follow::default() }
    }
}
