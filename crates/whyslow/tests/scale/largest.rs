//! The largest host that must be reported within five seconds and a GiB.

use super::host::Size;

pub const LARGEST: Size =
    Size { tasks: 100_000, cgroups: 100_000, throttled: 500, cpus: 512, spans: 200_000, samples: 16_384 };
