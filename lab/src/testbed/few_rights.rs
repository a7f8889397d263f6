//! whyslow with few capabilities, as root of a container has.

use std::thread;

use caps::{CapSet, Capability};
use whyslow_faults::rounds::Trouble;

/// Run `work` on a thread whose children have, of root's capabilities, only these; an empty list: all of them.
///
/// A capability outside the bounding set of the thread that calls execve(2) is not permitted after it, not even for root; each thread has
/// its own set (capabilities(7)), so the test bed keeps its capabilities.
///
/// # Errors
/// Errors of `work`; a name that is no capability; the kernel does not remove one.
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
        done.join().map_err(|_| "the thread with few capabilities panicked")?
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
    fn root_child_has_only_the_named_capabilities_and_the_caller_keeps_all() {
        let all = effective(&[]);
        assert_eq!(effective(&["CAP_KILL", "CAP_BPF"]), Ok(1 << 5 | 1 << 39));
        assert_eq!(effective(&[]), all);
        assert!(effective(&["CAP_TO_FLY"]).is_err_and(|why| why.contains("CAP_TO_FLY")));
    }
}
