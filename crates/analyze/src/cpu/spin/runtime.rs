//! The software that a loop belongs to, from files and functions, and if these do not show it, from names of threads; with its own switch.

use super::process::SQ_THREAD;

/// Software that is known to spin, and the setting that stops it.
#[derive(Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Its common name.
    pub name: &'static str,
    /// Prefixes of its files.
    modules: &'static [&'static str],
    /// Prefixes of its functions.
    functions: &'static [&'static str],
    /// Prefixes or suffixes of its threads' names: a hint, used where files and functions show nothing.
    threads: &'static [&'static str],
    /// Its switch, for the report.
    pub knob: &'static str,
}

/// The order matters: software that uses libraries of others comes after these.
const KNOWN: &[Runtime] = &[
    Runtime {
        name: "the Erlang VM (BEAM)",
        modules: &["beam"],
        functions: &["sched_spin_wait", "erts_", "ethr_"],
        threads: &["_scheduler", "erts_sched", "_dirty_cpu", "_dirty_io"],
        knob: "start it with +sbwt none (and +sbwtdcpu none +sbwtdio none; in ERL_FLAGS, ELIXIR_ERL_OPTIONS or vm.args): its schedulers \
               sleep at once when there is nothing to do",
    },
    Runtime {
        name: "OpenMP (GNU libgomp)",
        modules: &["libgomp"],
        functions: &["gomp_", "GOMP_"],
        threads: &[],
        knob: "OMP_WAIT_POLICY=passive, or GOMP_SPINCOUNT=0: threads sleep at barriers",
    },
    Runtime {
        name: "OpenMP (LLVM or Intel libomp)",
        modules: &["libomp", "libiomp5"],
        functions: &["__kmp", "kmp_", "_kmp"],
        threads: &[],
        knob: "KMP_BLOCKTIME=0, or OMP_WAIT_POLICY=passive: threads sleep at barriers",
    },
    Runtime {
        name: "MPI",
        modules: &["libmpi", "libopen-pal", "libopen-rte", "libucp", "libuct", "libucs", "libpsm2"],
        functions: &["opal_progress", "MPIDI_", "MPID_", "mca_btl_", "ucp_worker_progress"],
        threads: &[],
        knob: "Open MPI: --mca mpi_yield_when_idle 1 (it lets others run first, but does not sleep); no more ranks than cores",
    },
    Runtime {
        name: "DPDK",
        modules: &["librte_"],
        functions: &["rte_"],
        threads: &["lcore-worker", "rte_mp_handle"],
        knob: "poll mode is its design: fewer cores, interrupt mode, or rte_power",
    },
    Runtime {
        name: "io_uring (SQPOLL)",
        modules: &[],
        functions: &[SQ_THREAD],
        threads: &["iou-sqp-"],
        knob: "a smaller sq_thread_idle, or no IORING_SETUP_SQPOLL",
    },
    Runtime {
        name: "PostgreSQL",
        modules: &["postgres"],
        functions: &["s_lock", "perform_spin_delay", "LWLock"],
        threads: &[],
        knob: "contended spin locks: fewer connections at work at once (a pooler), larger wal_buffers, or a newer version",
    },
    Runtime {
        name: "InnoDB",
        modules: &["mysqld", "mariadbd"],
        functions: &["ut_delay"],
        threads: &[],
        knob: "innodb_spin_wait_delay and innodb_sync_spin_loops",
    },
    Runtime {
        name: "the JVM",
        modules: &["libjvm"],
        functions: &[
            "SpinPause",
            "ObjectMonitor::",
            "JavaThread::",
            "ParallelTaskTerminator",
            "TaskTerminator",
        ],
        threads: &["GC Thread#", "G1 ", "C2 CompilerThre", "C1 CompilerThre", "VM Thread", "VM Periodic Tas"],
        knob: "Java code that waits in a loop (Thread.onSpinWait, BusySpinWaitStrategy): let it park (a blocking queue, \
               LockSupport.park, BlockingWaitStrategy); garbage collection: fewer threads (-XX:ParallelGCThreads)",
    },
    Runtime {
        name: "the .NET runtime",
        modules: &["libcoreclr", "libclrjit"],
        functions: &["SpinWait"],
        threads: &[".NET "],
        knob: "DOTNET_ThreadPool_UnfairSemaphoreSpinLimit=0 for idle pool threads; SpinWait in own code: let it sleep",
    },
    Runtime {
        name: "the Go runtime",
        modules: &[],
        functions: &[
            "runtime.procyield",
            "runtime.osyield",
            "runtime.findRunnable",
            "runtime.lock2",
            "runtime.mcall",
            "runtime.goexit",
            "runtime.gosched",
        ],
        threads: &[],
        knob: "a goroutine that polls (an atomic, select with default, runtime.Gosched): let it wait for a channel or sync.Cond; idle \
               spinning of the scheduler: a GOMAXPROCS that fits the work",
    },
    Runtime {
        name: "a glibc spin lock",
        modules: &[],
        functions: &["pthread_spin_lock", "__pthread_spin_lock"],
        threads: &[],
        knob: "a pthread_mutex instead: its waiters sleep; a spin lock is lost time whenever its holder is not on a CPU",
    },
    Runtime {
        name: "a Rust spin lock",
        modules: &[],
        functions: &["spin::", "spinning_top", "parking_lot_core::spinwait", "crossbeam_utils::backoff"],
        threads: &[],
        knob: "std::sync or parking_lot locks: their waiters sleep after a short while",
    },
];

/// What is known about a process: the place where it spins, and all names that were seen in it.
#[derive(Debug, Default)]
pub struct Hints<'a> {
    /// (function, file) of the places where it spins, the most used first.
    pub places: Vec<(&'a str, &'a str)>,
    /// Functions, or files and offsets, that were sampled anywhere in the process.
    pub frames: Vec<&'a str>,
    /// Names of its threads.
    pub threads: Vec<&'a str>,
}

/// The known software that a loop belongs to: by the place where it spins; else by what else runs in the process.
#[must_use]
pub fn runtime(hints: &Hints<'_>) -> Option<&'static Runtime> {
    let begins = |words: &[&str], text: &str| words.iter().any(|word| text.starts_with(word));
    let at_place =
        |runtime: &&Runtime| {
            hints.places.iter().take(2).any(|(function, module)| {
                begins(runtime.functions, function) || begins(runtime.modules, module)
            })
        };
    let in_process = |runtime: &&Runtime| {
        // A frame without a symbol begins with its file.
        hints.frames.iter().any(|frame| begins(runtime.functions, frame) || begins(runtime.modules, frame))
            || hints
                .threads
                .iter()
                .any(|name| runtime.threads.iter().any(|word| name.starts_with(word) || name.ends_with(word)))
    };
    KNOWN.iter().find(at_place).or_else(|| KNOWN.iter().find(in_process))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(places: &[(&str, &str)], frames: &[&str], threads: &[&str]) -> Option<&'static str> {
        let hints = Hints { places: places.to_vec(), frames: frames.to_vec(), threads: threads.to_vec() };
        runtime(&hints).map(|runtime| runtime.name)
    }

    #[test]
    fn the_place_says_more_than_what_else_is_there() {
        assert_eq!(
            named(&[("beam.smp+0x12 (build id 00)", "beam.smp")], &[], &[]),
            Some("the Erlang VM (BEAM)")
        );
        assert_eq!(named(&[("", "libgomp.so.1")], &["beam.smp+0x1"], &[]), Some("OpenMP (GNU libgomp)"));
        assert_eq!(named(&[("pthread_spin_lock", "libc.so.6")], &[], &[]), Some("a glibc spin lock"));
    }

    #[test]
    fn code_made_just_in_time_is_known_by_its_process() {
        assert_eq!(named(&[("[unknown]", "")], &["JavaThread::run()"], &[]), Some("the JVM"));
        assert_eq!(named(&[("", "")], &[], &["main", "G1 Service"]), Some("the JVM"));
        assert_eq!(named(&[("main.poll", "app")], &["runtime.goexit"], &[]), Some("the Go runtime"));
    }

    #[test]
    fn own_code_is_nobody_elses() {
        assert_eq!(named(&[("flag_poll", "app")], &["main"], &["app"]), None);
    }
}
