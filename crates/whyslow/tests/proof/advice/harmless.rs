//! Programs that a command may use, and the arguments with which they only read. A program that is not in this list is refused: a list of
//! forbidden programs would never be complete.

use crate::advice::line::{Simple, commands, variables};

/// A program, its Debian package, and whether it only reads with these arguments.
struct Program {
    name: &'static str,
    package: &'static str,
    only_reads: fn(&[String]) -> bool,
}

const fn program(name: &'static str, package: &'static str, only_reads: fn(&[String]) -> bool) -> Program {
    Program { name, package, only_reads }
}

const PROGRAMS: [Program; 43] = [
    program("auditctl", "auditd", |args| args == ["-l"]),
    program("awk", "mawk", |args| {
        !args
            .iter()
            .filter(|arg| !arg.starts_with("-F"))
            .any(|arg| [">", "|", "system", "getline"].iter().any(|bad| arg.contains(bad)))
    }),
    program("bpftool", "bpftool", |args| args.get(1).is_some_and(|verb| verb == "show" || verb == "list")),
    program("cat", "coreutils", |_| true),
    program("cd", "bash", |_| true),
    program("dmesg", "util-linux", |args| args.is_empty()),
    program("done", "bash", |_| true),
    program("echo", "bash", |_| true),
    program("df", "coreutils", |_| true),
    program("exec", "bash", |_| false),
    program("find", "findutils", |args| {
        !has(
            args,
            &["-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls"],
        )
    }),
    program("fuser", "psmisc", |args| {
        !args.iter().any(|arg| arg == "--kill" || (is_short(arg) && arg.contains('k')))
    }),
    program("grep", "grep", |_| true),
    program("head", "coreutils", |_| true),
    program("ip", "iproute2", |args| {
        args.windows(2).next().is_some_and(|two| two == ["route", "get"] || two == ["rule", "show"])
    }),
    program("iostat", "sysstat", |_| true),
    program("ip6tables-legacy-save", "iptables", |args| args == ["-c"]),
    program("iptables-legacy-save", "iptables", |args| args == ["-c"]),
    program("ls", "coreutils", |_| true),
    program("lsblk", "util-linux", |_| true),
    program("mpstat", "sysstat", |_| true),
    program("nft", "nftables", |args| args.first().is_some_and(|verb| verb == "list")),
    // Without -s it keeps a history in a file of the calling user.
    program("nstat", "iproute2", |args| {
        args.first().is_some_and(|arg| arg.starts_with('-') && arg.contains('s'))
    }),
    program("nsenter", "util-linux", |args| args.len() == 3 && args[..2] == ["-n", "-t"]),
    // Its data goes to a pipe, and it writes nothing to the cache of build ids.
    program("perf", "linux-perf", |args| match args.first().map(String::as_str) {
        Some("record") => has(args, &["-N"]) && args.windows(2).any(|two| two == ["-o", "-"]),
        Some("report") => true,
        _ => false,
    }),
    program("pidstat", "sysstat", |args| !has(args, &["-e"])),
    program("printf", "bash", |_| true),
    program("ps", "procps", |_| true),
    program("tc", "iproute2", |args| {
        args.windows(2).any(|two| two == ["qdisc", "show"] || two == ["class", "show"])
    }),
    // With a trace option it writes a file.
    program("rtla", "rtla", |args| {
        !args.iter().any(|arg| arg.starts_with("-t") || arg.starts_with("--trace"))
    }),
    program("sh", "dash", |_| false),
    program("sleep", "coreutils", |_| true),
    program("sort", "coreutils", |args| {
        !args.iter().any(|arg| arg.starts_with("-o") || arg.starts_with("--output"))
    }),
    program("ss", "iproute2", |args| {
        !args.iter().any(|arg| arg == "--kill" || (is_short(arg) && arg.contains('K')))
    }),
    program("strace", "strace", |args| !has(args, &["-o"]) && !args.iter().any(|arg| arg.contains("inject"))),
    program("sysctl", "procps", |args| !args.iter().any(|arg| arg.starts_with('-') || arg.contains('='))),
    // With a mask before the pid it sets the mask.
    program("taskset", "util-linux", |args| args.len() == 2 && args[0] == "-cp"),
    program("tee", "coreutils", |_| false),
    program("timeout", "coreutils", |_| true),
    program("top", "procps", |args| has(args, &["-b"]) && has(args, &["-n"])),
    program("vmstat", "procps", |_| true),
    program("wc", "coreutils", |_| true),
    program("whyslow", "whyslow", |args| {
        args.first().is_some_and(|verb| ["chains", "cpu", "jobs", "net", "work"].contains(&verb.as_str()))
            && !has(args, &["-o", "--flame"])
    }),
];

/// Words in capitals that are no placeholders.
const NO_PLACEHOLDER: [&str; 1] = ["ALL"];
/// Folders of all files that a command may name.
const PLACES: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

fn has(args: &[String], any: &[&str]) -> bool {
    args.iter().any(|arg| any.contains(&arg.as_str()))
}

fn is_short(arg: &str) -> bool {
    arg.starts_with('-') && !arg.starts_with("--")
}

fn program_of(simple: &Simple) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| simple.words.first().is_some_and(|word| word == program.name))
}

/// Whether a text begins like a command.
pub fn is_command(text: &str) -> bool {
    let first = text.split_whitespace().next();
    PROGRAMS.iter().any(|program| first == Some(program.name))
}

/// The packages that a line needs.
pub fn packages(line: &str) -> Vec<&'static str> {
    let all = commands(line).unwrap_or_default();
    all.iter().filter_map(program_of).map(|program| program.package).collect()
}

/// The programs exist, the files are files of the kernel, and no gap is left for the reader to fill.
pub fn can_be_pasted(line: &str) -> Result<(), String> {
    let is_known = |name: &str| variables(line).contains(&name);
    for simple in commands(line)? {
        program_of(&simple).ok_or_else(|| format!("which program is {:?}: {line}", simple.words))?;
        for word in simple.words.iter().chain(&simple.writes) {
            let is_gap = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            if (is_gap && !NO_PLACEHOLDER.contains(&word.as_str())) || word.contains("{}") {
                return Err(format!("{word} is a gap to be filled: {line}"));
            }
            if word.starts_with('/') && !PLACES.iter().any(|place| word.starts_with(place)) {
                return Err(format!("{word} is no file of the kernel: {line}"));
            }
            let variable = word.strip_prefix('$').filter(|name| !name.starts_with('('));
            let name = variable.map(|name| name.split('/').next().unwrap_or(""));
            if name.is_some_and(|name| !name.is_empty() && !is_known(name) && !is_field(&simple)) {
                return Err(format!("no command sets {word}: {line}"));
            }
        }
    }
    Ok(())
}

/// `$3` of awk.
fn is_field(simple: &Simple) -> bool {
    simple.words.first().is_some_and(|word| word == "awk")
}

/// Whether the line only reads.
pub fn only_reads(line: &str) -> Result<(), String> {
    for simple in commands(line)? {
        if !simple.writes.is_empty() {
            return Err(format!("it writes {:?}: {line}", simple.writes));
        }
        let reads = program_of(&simple).is_some_and(|program| (program.only_reads)(&simple.words[1..]));
        if !reads {
            return Err(format!("{:?} may change something: {line}", simple.words));
        }
    }
    Ok(())
}

#[test]
fn read_only_commands_pass_and_others_are_refused() {
    for line in [
        "cat /proc/stat; lsblk -o NAME,MAJ:MIN",
        "taskset -cp 7",
        "find /proc/7 2>/dev/null | wc -l",
        "ss -tin",
        "timeout 5 strace -f -p 7 2>&1 | sort -rn",
        "sysctl net.ipv4.tcp_mem",
        "nstat -asz TcpExtPruneCalled",
    ] {
        assert_eq!(only_reads(line), Ok(()));
    }
    for line in [
        "cat /proc/stat > /tmp/x",
        "echo 1 > /proc/sys/x",
        "kill 7",
        "taskset -cp 0 7",
        "ss -K dst 10.0.0.7",
        "sh -c 'cat x'",
        "sysctl -w a=1",
        "sysctl a=1",
        "find /sys -delete",
        "dmesg -c",
        "fuser -k /dev/x",
        "nstat -z",
        "echo x | tee /sys/x",
        "cat $(rm x)",
        "timeout 5 rm x",
        "nsenter -t 7 -m rm x",
        "nsenter -n -t 7 tc qdisc del dev eth0 root",
        "perf record -a",
        "cat a; reboot",
        "sort -o x y",
        "top",
        "awk '{ print > \"x\" }'",
        "for f in a; do rm $f; done",
        "for f in a; do cat $f; done > /tmp/x",
        "whyslow record -o x",
        "fuser -km /dev/x",
        "find /proc -fprint0 x",
        "awk '{ print | \"sh\" }'",
        "rtla hwnoise -t x",
    ] {
        assert!(only_reads(line).is_err(), "{line}");
    }
}

#[test]
fn gaps_and_strange_words_are_refused() {
    for line in [
        "cat /proc/7/io",
        "for f in /sys/a/*; do echo 1 > $f/b; done",
        "mpstat -P ALL 1 5",
        "ps -eo pid | awk '$2 == \"D\"'",
    ] {
        assert_eq!(can_be_pasted(line), Ok(()));
    }
    for line in [
        "taskset -acp 0 PID",
        "cat /proc/{}/io",
        "cat $FILE",
        "numastat -p 7",
        "cat /home/x",
        "echo 1 > /etc/x",
    ] {
        assert!(can_be_pasted(line).is_err(), "{line}");
    }
}
