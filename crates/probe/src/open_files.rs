//! How many files whyslow may have open.
//!
//! Objects, programs and maps need some 200 descriptors, a timer and a counter two per CPU, and up to 256 network
//! namespaces one each: a host of 512 CPUs needs 1,500. The soft limit is 1,024 nearly everywhere, because of
//! select(2), which nothing here calls; the hard limit is what the process may use.

/// What to do where the limit is too low.
pub const WAY_OUT: &str =
    "raise the hard limit of open files (`ulimit -Hn 4096`, LimitNOFILE=4096): the number of CPUs needs more";

/// Raise our soft limit to the hard one. A command that was started before keeps its own limit.
pub fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to a local; what is refused stays as it was.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let now = || {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the pointer is to a local.
            assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
            limit
        };
        let low = libc::rlimit { rlim_cur: now().rlim_cur.min(512), ..now() };
        // SAFETY: the pointer is to a local; other tests need fewer files.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const low) }, 0);
        raise_limit();
        assert_eq!(now().rlim_cur, low.rlim_max);
    }
}
