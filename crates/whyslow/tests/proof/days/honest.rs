//! Honest loads: real programs at work, alone on the host. whyslow must accuse no process, and must report the program that keeps the CPUs
//! full.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::cgroup::Group;
use whyslow_faults::honest::Compile;
use whyslow_faults::host::{self, Calm};
use whyslow_faults::look::Look;
use whyslow_faults::programs::{Programs, is_here};
use whyslow_faults::report_checks::{self, Sight, Verb};
use whyslow_faults::rounds::{self, Outcome, Trouble, Verdict};
use whyslow_faults::wrong::{Sort, Wrong};
use whyslow_faults::{Draw, Fence, thresholds};

use crate::days::judge::{context, findings, is_one};

/// Scripts of the shell, by name.
const LOADS: &[(&str, &str)] = &[
    ("pipe", "while :; do yes | head -c 300000000 | wc -l; done"),
    ("gzip", "while :; do head -c 60000000 /dev/urandom | gzip -c; done"),
    ("xz", "while :; do head -c 9000000 /dev/urandom | xz -1 -c; done"),
    ("tar", "while :; do tar cf - /usr/share/doc | gzip -1; done"),
    ("find", "while :; do find /usr -xdev -type f | wc -l; done"),
    ("grep", "while :; do grep -r needle /usr/share/doc; done"),
    ("sort", "while :; do seq 1 300000 | sort -R | tail -1; done"),
    ("sha256sum", "while :; do sha256sum /usr/bin/*; done"),
    ("awk", "nice -n 19 awk 'BEGIN { while (1) n++ }'"),
    ("perl", "perl -e 'my %h; while (1) { $h{int rand 1e5}++ }'"),
    ("write", "while :; do dd if=/dev/zero of=$$.out bs=1M count=32 conv=fsync; cat $$.out; done"),
    ("loop", "while sleep 0.01; do :; done"),
    ("cron", "while sleep 0.1; do date; ls /; cat /proc/loadavg; done"),
    // Two hundred jobs a second, without trouble.
    ("jobs", "while sleep 0.003; do unshare --ipc --uts true; done"),
    ("packages", PACKAGES),
    ("steps", "while :; do perl -e '$x += $_ for 1 .. 200000'; sleep 0.02; done"),
];
/// A package manager that installs the same package in a root of its own.
const PACKAGES: &str = "d=$$; mkdir -p $d/p/DEBIAN $d/p/opt $d/r/var/lib/dpkg/info $d/r/var/lib/dpkg/updates; \
    cp /usr/bin/s* $d/p/opt; \
    printf 'Package: honest\\nVersion: 1\\nArchitecture: all\\nMaintainer: x\\nDescription: x\\n' > $d/p/DEBIAN/control; \
    dpkg-deb -Zgzip -b $d/p $d/a.deb; touch $d/r/var/lib/dpkg/status; \
    while :; do dpkg --root=$d/r --force-all -i $d/a.deb; done";
/// Compilers at a time.
const JOBS: usize = 8;
/// Below this share of unused CPU time a host is full ...
const FULL: f64 = 0.04;
/// ... and above this one no program keeps it full.
const ROOM: f64 = 0.25;
/// The hypervisor may steal CPU time at any time.
const NOT_OURS: &str = "steal";

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load(&'static str);

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "honest-{}", self.0)
    }
}

fn all() -> Vec<Load> {
    LOADS.iter().map(|(name, _)| Load(name)).chain([Load("make")]).collect()
}

/// What the test's own clocks show.
#[derive(Debug)]
pub struct Worked {
    /// Possible names of the load.
    pub names: Vec<String>,
    pub sight: Sight,
    /// The share of CPU time that was unused.
    pub left: f64,
    pub said: String,
}

/// Judge a document about it.
pub fn judge(worked: &Worked, look: &Look) -> Verdict {
    let sound = look.is_sound(Verb::Exam).and_then(|()| {
        report_checks::could_tell(&look.document, &["full-cpus"])?;
        Ok(worked.sight.is_in(&look.document)?)
    });
    let right = match is_right(worked, look) {
        Err(wrong) if wrong.sort == Sort::False => Err(wrong),
        right => sound.and(right),
    };
    match right {
        Ok(()) => Verdict::Passed,
        Err(wrong) => {
            let (said, left, context) = (&worked.said, worked.left, context(look));
            let tell = |what| format!("{what}: {said}; {left:.2} of CPU time left over; {context}");
            Verdict::Wrong(wrong.told(tell))
        }
    }
}

fn is_right(worked: &Worked, look: &Look) -> Result<(), Wrong> {
    let of_kind = |kind: &'static str| findings(look).iter().filter(move |finding| finding["kind"] == kind);
    // Losses of other tasks on this host are another matter.
    let is_ours = |finding: &&Value| is_one(&finding["victim"], &worked.names);
    if let Some(blame) = of_kind("cause").filter(is_ours).find(|finding| finding["rule"] != NOT_OURS) {
        return Err(Wrong::accused(format!("no task lost time, and: {}", blame["title"])));
    }
    let busy: Vec<&Value> = of_kind("busy").filter(|finding| finding["rule"] == "full-cpus").collect();
    // Where the load costs another task time, the cause names the program that keeps the CPUs full.
    let costs = || {
        of_kind("cause")
            .any(|finding| finding["rule"] == "full-cpus" && is_one(&finding["culprit"], &worked.names))
    };
    match busy.as_slice() {
        [] if worked.left < FULL && !costs() => {
            Err("the CPUs are full, and the report calls no process busy".into())
        }
        [one, ..] if worked.left > ROOM => {
            Err(Wrong::accused(format!("there is room, and {} is busy", one["victim"])))
        }
        [_, ..] if !busy.iter().any(is_ours) => {
            Err(Wrong::accused(format!("busy is not {:?}", worked.names)))
        }
        _ => Ok(()),
    }
}

fn once(load: Load, draw: &mut Draw, label: &str) -> Result<Verdict, Trouble> {
    let fence = Fence::enter()?;
    let cpus = host::cpus().len() as u64;
    let (compile, programs, group, said);
    let mut pids = Vec::new();
    match LOADS.iter().find(|(name, _)| *name == load.0) {
        None => {
            compile = Compile::of(&fence, JOBS, [4, 6], draw)?;
            compile.until_one_is_done(Duration::from_secs(20))?;
            (group, said) = (compile.group().clone(), format!("{JOBS} compilers"));
        }
        Some((_, script)) => {
            let most = if load == Load("pipe") { cpus } else { cpus * 3 };
            let (many, own) = (draw.between(1, most), fence.group(&draw.word(7))?);
            programs = Programs::of_script(&own, fence.dir(), many, script)?;
            pids = programs.pids();
            (group, said) = (own, format!("{} x {script}", pids.len()));
        }
    }
    println!("{load}: {said}");
    std::thread::sleep(thresholds::SETTLE);
    judged(load, &fence, (&group, &pids), said, label)
}

fn judged(
    load: Load,
    fence: &Fence,
    (group, pids): (&Group, &[u32]),
    said: String,
    label: &str,
) -> Result<Verdict, Trouble> {
    let (cpu, calm) = (group.cpu_used()?, Calm::watch(Some(fence.top()))?);
    let look = crate::look("days", label, &["exam"])?;
    let cpus = host::cpus().len().max(1) as f64;
    let left = calm.left_over()? / cpus;
    let sight = look.sight(group, cpu)?;
    fence.check_time()?;
    // Each script is a session of its own: jobs with one name.
    let mut names = [group.path(), "sh -c", "perl -e", "awk BEGIN", "nice -n"].map(str::to_owned).to_vec();
    names.extend(pids.iter().map(u32::to_string));
    // The program itself, where its shell did nothing in the window.
    names.extend((needs(load.0) != "sh").then(|| needs(load.0).to_owned()));
    names.extend((load == Load("packages")).then(|| "dpkg-deb".to_owned()));
    let worked = Worked { names, sight, left, said };
    Ok(match calm.disturbed(Some(fence.top()), look.own_cpu())? {
        Some(why) => Verdict::Again(why),
        None => judge(&worked, &look),
    })
}

fn run(name: &'static str) {
    let load = Load(name);
    rounds::run(&load, &crate::kept_in("days"), |draw| {
        if !is_here(needs(name)) {
            return Ok(Outcome::NotRun(format!("this host has no {}", needs(name))));
        }
        rounds::until_judged(&load, |attempt| {
            let label = format!("{load}-{}-{attempt}", draw.seed());
            once(load, draw, &label)
        })
    });
}

/// The program that a load is named after, if it is one.
fn needs(name: &'static str) -> &'static str {
    match name {
        "pipe" | "write" | "loop" | "cron" | "steps" => "sh",
        "make" => "cc",
        "jobs" => "unshare",
        "packages" => "dpkg",
        name => name,
    }
}

macro_rules! loads {
    ($($test:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            run($name);
        })*

        #[test]
        fn no_load_is_left_out() {
            assert_eq!(all(), [$(Load($name)),*]);
            assert_eq!(all().len(), 17);
        }
    };
}

loads! {
    root_pipes_are_honest "pipe";
    root_gzip_is_honest "gzip";
    root_xz_is_honest "xz";
    root_tar_is_honest "tar";
    root_find_is_honest "find";
    root_grep_is_honest "grep";
    root_sort_is_honest "sort";
    root_sha256sum_is_honest "sha256sum";
    root_awk_is_honest "awk";
    root_perl_is_honest "perl";
    root_writes_are_honest "write";
    root_idle_loops_are_honest "loop";
    root_what_cron_does_is_honest "cron";
    root_jobs_are_honest "jobs";
    root_packages_are_honest "packages";
    root_steps_with_rests_are_honest "steps";
    root_make_is_honest "make";
}
