//! whyslow with few capabilities, as root of a container has them.

use std::thread;

use caps::{CapSet, Capability};
use whyslow_faults::rounds::Trouble;

/// Do `work` where who is executed has no more than these capabilities, of root; none are named: all of them.
///
/// What is not in the bounding set of who calls execve(2) is not permitted after it, to root neither; it is kept by thread
/// (capabilities(7)), so that the test bed keeps its own.
///
/// # Errors
/// Those of `work`; a name that is no capability; the kernel does not take one away.
pub fn with_only<T: Send>(
    names: &[String],
    work: impl FnOnce() -> Result<T, Trouble> + Send,
) -> Result<T, Trouble> {
    if names.is_empty() {
        return work();
    }
    let kept: Vec<Capability> = names
        .iter()
        .map(|name| name.parse().map_err(|_| format!("no capability: {name}")))
        .collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            for capability in caps::all().into_iter().filter(|one| !kept.contains(one)) {
                // Older kernels know fewer.
                if caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false) {
                    caps::drop(None, CapSet::Bounding, capability)
                        .map_err(|error| format!("take {capability} away: {error}"))?;
                }
            }
            work()
        });
        done.join().map_err(|_| "whoever looks with few rights panicked")?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn effective(names: &[&str]) -> Result<u64, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let status = with_only(&names, || Ok(Command::new("cat").arg("/proc/self/status").output()?));
        let status = status.map_err(|trouble| trouble.to_string())?;
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        u64::from_str_radix(line.unwrap_or_default().trim(), 16).map_err(|error| error.to_string())
    }

    #[test]
    fn root_who_is_executed_has_what_was_named_and_the_stage_has_all() {
        let all = effective(&[]);
        assert_eq!(effective(&["CAP_KILL", "CAP_BPF"]), Ok(1 << 5 | 1 << 39));
        assert_eq!(effective(&[]), all);
        assert!(effective(&["CAP_TO_FLY"]).is_err_and(|why| why.contains("CAP_TO_FLY")));
    }
}
