//! `whyslow cpu` on the live kernel: healthy CPUs are reported as such, alone and at a load of 20, and their speeds are those of
//! an independent loop by the wall clock.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use whyslow_faults::look::Look;
use whyslow_faults::rounds::{self, Trouble};
use whyslow_faults::spec::Work;
use whyslow_faults::{Fence, Victim, pace};

mod judge;
mod stand_ins;

use judge::Made;

const WINDOW: Duration = Duration::from_secs(3);
/// Busy threads of the test's load.
const LOAD: u64 = 20;

fn kept_in() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cpu")
}

fn look(label: &str) -> Result<Look, Trouble> {
    fs::create_dir_all(kept_in())?;
    let kept = kept_in().join(format!("{label}.json"));
    let whyslow = whyslow_faults::program!();
    Look::now(&whyslow, &["cpu", "--for", "3s", "--json"], WINDOW, &kept)
}

/// What the hypervisor took from all CPUs so far, in ticks of 10 ms.
fn stolen() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    text.split_whitespace().nth(8).and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn make(busy: Option<u64>, label: &str) -> Result<(Made, Look), Trouble> {
    let fence = Fence::enter()?;
    let group = fence.group("load")?;
    let work = Work::Spin { burst_us: 500, rest_us: 0 };
    let load = busy.map(|threads| Victim::spawn(fence.spec(&group, "load", threads, work))).transpose()?;
    load.iter().for_each(Victim::go);
    let before = pace::of_cpus();
    let (ticks, cpu, began) = (stolen(), group.cpu_used()?, Instant::now());
    let look = look(label)?;
    let (ticks, took) = (stolen() - ticks, began.elapsed());
    let sight = look.sight(&group, cpu)?;
    let after = pace::of_cpus();
    fence.check_time()?;
    let all = took.as_secs_f64() * before.len() as f64;
    let steal = Duration::from_millis(10 * ticks).as_secs_f64() / all;
    Ok((Made { before, after, steal, sight }, look))
}

fn healthy(label: &str, busy: Option<u64>) {
    rounds::run(
        &label,
        |_| true,
        &kept_in(),
        |_| {
            rounds::until_judged(&label, |attempt| {
                let (made, look) = make(busy, &format!("{label}-{attempt}"))?;
                println!("{}", made.reported(&look));
                Ok(made.judge(&look))
            })
        },
    );
}

#[test]
fn root_healthy_cpus_are_not_slow() {
    healthy("calm", None);
}

#[test]
fn root_healthy_cpus_are_not_slow_at_a_load_of_20() {
    healthy("load", Some(LOAD));
}
