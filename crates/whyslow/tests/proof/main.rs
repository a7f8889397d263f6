//! Statistical tests: faults, twins and honest loads on the live kernel, drawn; whyslow is compared with the victims' own clocks. Also the
//! tests of the judges themselves. `make proof` makes the cells; the gate makes a few of them with known seeds (`smoke.seeds`).

use std::path::PathBuf;
use std::time::Duration;

use whyslow_faults::look::Look;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::thresholds;

mod advice;
mod agents;
mod days;
mod extra_work;
mod failures;
mod names;
mod risks;
mod script;
mod self_inflicted;
mod services;
mod small;
mod spin;
mod user_locks;

whyslow_faults::may_become_victim!();

/// Where a suite keeps whyslow's documents: below `target/*/tmp`, or `WHYSLOW_KEPT`.
fn kept_in(suite: &str) -> PathBuf {
    let place = std::env::var_os("WHYSLOW_KEPT").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    PathBuf::from(place).join(suite)
}

/// Run whyslow for the usual window, with `args`.
fn look(suite: &str, label: &str, args: &[&str]) -> Result<Look, Trouble> {
    std::fs::create_dir_all(kept_in(suite))?;
    let length = format!("{}s", thresholds::WINDOW_S);
    let args: Vec<&str> = args.iter().copied().chain(["--for", &length, "--json"]).collect();
    let kept = kept_in(suite).join(format!("{label}.json"));
    Look::now(&whyslow_faults::program!(), &args, Duration::from_secs(thresholds::WINDOW_S), &kept)
}
