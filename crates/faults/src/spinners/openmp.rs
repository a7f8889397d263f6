//! An OpenMP team that waits by spinning.

use std::io;
use std::process::Command;

use super::outside::{self, Outside};
use crate::cgroup::Group;
use crate::{Draw, Fence, host, work};

/// Build it under a drawn name, and start it. libgomp spins for long only if each of its threads has a CPU.
pub fn start(fence: &Fence, group: &Group, draw: &mut Draw) -> io::Result<(Outside, String)> {
    let name = draw.word(10);
    let program = fence.dir().join(&name);
    let compiler = outside::find("gcc")?;
    outside::build(
        Command::new(compiler).args(["-O2", "-fopenmp", "-o"]).arg(&program).arg(outside::source("c/team.c")),
    )?;
    let first = draw.between(1_000, 6_000);
    let others = first * draw.between(10, 60) / 100;
    let rest = if draw.one_in(2) { first * draw.between(30, 100) / 100 } else { 0 };
    let mut command = Command::new(&program);
    command
        .args([first, others, rest].map(|us| us.to_string()))
        .arg(work::turns_per_us().to_string())
        .env_clear()
        .env("OMP_WAIT_POLICY", "active")
        .env("OMP_NUM_THREADS", host::cpus().len().clamp(2, 4).to_string());
    let mut team = Outside::start(fence, group, &mut command, &name)?;
    team.until("the team", |team| team.accounts().iter().filter(|each| each.until() > 0).count() > 1)?;
    Ok((team, name))
}
