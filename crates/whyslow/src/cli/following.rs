//! `--slow`, `--user-stacks`: what is told of those who are followed.

use std::time::Duration;

use whyslow_model::Recording;
use whyslow_probe::Follow;

/// How closely to follow.
#[derive(Debug, Clone, clap::Args)]
pub struct Following {
    /// Tell each system call that takes longer: "100ms", "50us"
    #[arg(long, value_name = "DURATION", value_parser = super::slow)]
    slow: Option<Duration>,
    /// Tell where in the program's own code it ran and waited, too
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

    /// Keep in the recording what was asked: `report` is to say the same later.
    pub fn note(&self, recording: &mut Recording, subject: &str) {
        let watched = recording.meta.watched.get_or_insert_default();
        subject.clone_into(&mut watched.subject);
        watched.slow_ns = self.slow.map(|slow| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX));
    }
}
