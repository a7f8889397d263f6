//! The guest's serial console: read while the guest runs, judged afterwards.

use std::io::Read;
use std::process::Child;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::{child, orders};

/// Limit on the output that is kept; the rest is dropped, so that a flood cannot fill the host's memory.
const MOST: usize = 16 << 20;
/// A line without an end is taken in pieces of this size.
const LONGEST: usize = 64 << 10;
/// Bytes at the end of a console that explain why a guest died.
const LAST_WORDS: usize = 1500;
/// A shorter command does not allow to measure a clock.
const SHORTEST: f64 = 2.0;
/// The kernel's own words when it has an error.
const ALARMS: [&str; 14] = [
    "soft lockup",
    "hard LOCKUP",
    "blocked for more than",
    "detected stalls",
    "detected expedited stalls",
    "BUG:",
    "kernel BUG at",
    "Oops",
    "Kernel panic",
    "unable to handle",
    "general protection fault",
    "workqueue lockup",
    "unregister_netdevice: waiting",
    "detected stall on CPU",
];

/// A warning with a stack begins this way; "RETBleed: WARNING: ..." is only about the CPU's model.
const WARNING: &str = "WARNING: ";

/// A console that is being read.
pub struct Console {
    readers: Vec<JoinHandle<Said>>,
}

/// The output of a console.
#[derive(Debug, Default)]
pub struct Said {
    /// All of it, with the emulator's own complaints at the end.
    pub text: String,
    up: Option<Mark>,
    end: Option<Mark>,
}

/// A line of PID 1 with the guest's uptime, and when it arrived here.
#[derive(Debug, Clone, Copy)]
struct Mark {
    guest: f64,
    host: Instant,
}

impl Console {
    /// Read the emulator's output on threads of their own until it closes it.
    pub fn read(guest: &mut Child) -> Self {
        let output = guest.stdout.take().map(|pipe| thread::spawn(move || listen(pipe)));
        let errors = guest.stderr.take().map(|pipe| thread::spawn(move || listen(pipe)));
        Self { readers: output.into_iter().chain(errors).collect() }
    }

    /// The output, once the emulator is gone.
    pub fn finish(self) -> Said {
        let mut all = Said::default();
        for reader in self.readers {
            let said = reader.join().unwrap_or_default();
            all.text.push_str(&said.text);
            all.up = all.up.or(said.up);
            all.end = all.end.or(said.end);
        }
        all
    }
}

impl Said {
    /// Guest seconds per host second between the marks.
    pub fn clock_ratio(&self) -> Option<f64> {
        let (up, end) = (self.up?, self.end?);
        let host = end.host.saturating_duration_since(up.host).as_secs_f64();
        (host >= SHORTEST).then(|| (end.guest - up.guest) / host)
    }

    /// The guest's uptime at its last mark.
    pub fn guest_seconds(&self) -> f64 {
        self.end.or(self.up).map_or(0.0, |mark| mark.guest)
    }

    /// The end of the output, for a guest that is gone.
    pub fn last_words(&self) -> String {
        child::tail(&self.text, LAST_WORDS).to_owned()
    }
}

fn listen(mut pipe: impl Read) -> Said {
    let (mut said, mut line, mut buffer) = (Said::default(), Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        let now = Instant::now();
        for byte in buffer.iter().take(count).filter(|byte| **byte != b'\r') {
            line.push(*byte);
            if *byte == b'\n' || line.len() >= LONGEST {
                take_line(&mut said, &mut line, now);
            }
        }
    }
    take_line(&mut said, &mut line, Instant::now());
    said
}

fn take_line(said: &mut Said, line: &mut Vec<u8>, host: Instant) {
    let text = String::from_utf8_lossy(line);
    let mark = |word: &str| Some(Mark { guest: text.split_once(word)?.1.trim().parse().ok()?, host });
    said.up = said.up.or_else(|| mark(orders::UP));
    said.end = mark(orders::END).or(said.end);
    if said.text.len() < MOST {
        said.text.push_str(&text);
    }
    line.clear();
}

/// The lines in which the kernel complains. Only the kernel's lines: they begin with its clock, "[   12.345678] ".
pub fn complaints(console: &str) -> Vec<String> {
    let alarming = |said: &str| said.starts_with(WARNING) || ALARMS.iter().any(|alarm| said.contains(alarm));
    console.lines().filter(|line| kernel_says(line).is_some_and(alarming)).map(str::to_owned).collect()
}

/// The text after the kernel's clock. Other output may come before it on the same line.
fn kernel_says(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('[')?;
    let (clock, said) = rest.split_once("] ")?;
    let (seconds, micros) = clock.trim_start().split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(seconds) && digits(micros) && micros.len() == 6).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn the_kernel_complains_and_programs_do_not() {
        let console = "\
[    0.901135] RETBleed: WARNING: Spectre v2 mitigation leaves CPU vulnerable to RETBleed attacks
[    1.000000] 9pnet: Installing 9P2000 support
[    2.000000] WARNING: CPU: 0 PID: 1 at kernel/x.c:7 x+0x1/0x2
[   44.123456] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [cc1:711]
WARNING: this is a program that says BUG: and Oops
[  250.000001] INFO: task dd:812 blocked for more than 120 seconds.
half a line[   60.000001] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[notime] BUG: nothing
[   70.1] BUG: no clock of the kernel
[   71.000000] Kernel panic - not syncing: Attempted to kill init!
";
        let found = complaints(console);
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found.first().is_some_and(|line| line.contains("kernel/x.c")));
    }

    #[test]
    fn marks_tell_both_clocks() {
        let said = listen("[ 0.1] x\r\nlab: up 3.50\r\nhello\nlab: end 9.00\n".as_bytes());
        assert_eq!(said.guest_seconds(), 9.0);
        assert_eq!(said.text.lines().nth(2), Some("hello"));
        assert_eq!(said.clock_ratio(), None, "too short to tell");
        let now = Instant::now();
        let long = Said {
            up: Some(Mark { guest: 2.0, host: now }),
            end: Some(Mark { guest: 7.0, host: now + Duration::from_secs(10) }),
            ..Said::default()
        };
        assert_eq!(long.clock_ratio(), Some(0.5));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), text in "(\\[ *|[0-9.]|\\] |BUG:|lab: up |\\n|\\PC){0,40}") {
            let _ = (complaints(&text), listen(bytes.as_slice()), listen(text.as_bytes()));
        }
    }
}
