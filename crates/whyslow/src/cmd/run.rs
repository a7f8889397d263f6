//! `whyslow run -- CMD`: where the wall time of a command went, and what made it wait.

use std::ffi::{CStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use whyslow_model::Recording;
use whyslow_model::table::BETWEEN_ARGUMENTS;
use whyslow_model::timeline::Command;
use whyslow_probe::{Follow, Observer, priority, redact};

use crate::cli::{Following, OutputArgs, SaveArgs};
use crate::launch::{End, OUR_FAILURE, Signals, Started, User, UserOptions, whose};
use crate::out::note;
use crate::outcome::Outcome;
use crate::watch::{Look, budget, is_root};
use crate::{target, watchdog};

/// The window of a command has no bound of its own: a hundred years, which overflows no counter.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Arguments of `whyslow run`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Output:  The command keeps its stdin, stdout and stderr. The report goes to
         stderr. With --json the report goes to stdout when the command has
         ended: a newline, then one line that begins with {\"schema\".
Signals: Ctrl-C reaches the command. whyslow passes SIGINT, SIGQUIT,
         SIGTERM and SIGHUP on to the command. After a second SIGINT or
         SIGTERM whyslow reports at once and ends; the command goes on.
User:    Under sudo, doas or pkexec the command runs as the user that
         called them.
End:     The window ends with the command. whyslow does not wait for
         processes that the command leaves running.

Examples:
  sudo whyslow run -- git clone https://example.org/x.git
  sudo whyslow run --slow 100ms --flame build.svg -- make -j4
  sudo whyslow run --json -- ./backup.sh | tail -n 1 | jq .wall")]
pub struct Args {
    #[command(flatten)]
    following: Following,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    save: SaveArgs,
    /// Run the command as this user, a name or uid (default: the user that called sudo, doas or pkexec)
    #[arg(long, value_name = "USER", conflicts_with = "as_root")]
    user: Option<String>,
    /// Run the command as root, also under sudo, doas or pkexec
    #[arg(long)]
    as_root: bool,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Runs the command, follows it, reports, and returns its exit status. If whyslow itself fails, the status is 125, as in env(1).
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    Outcome::Passed(look(args, out).unwrap_or_else(|error| {
        note(&format!("{error:#}"));
        OUR_FAILURE
    }))
}

fn look(args: &Args, out: &mut dyn Write) -> Result<u8> {
    watchdog::begin(OUR_FAILURE);
    args.save.must_be_writable()?;
    target::numbers_are_ours()?;
    let user = whose(UserOptions { user: args.user.as_deref(), as_root: args.as_root })?;
    say_what_surprises(user.as_ref(), args);
    let budget = budget(true)?;
    let mut signals = Signals::hold();
    let started = Started::start(&args.command, user.as_ref(), &signals).inspect_err(|_| signals.let_in())?;
    let stop = signals.catch();
    let follow = Follow { pids: vec![started.pid()], ..args.following.follow(shown(args).join(" ")) };
    let look = Look { follow: Some(follow), ends_with: Some(started.pidfd()), ..Look::at_the_host(FOR_EVER) };
    let mut starter = Starter { command: started, from: None };

    priority::raise();
    watchdog::begin_beside(OUR_FAILURE, starter.command.pid());
    let mut recording = whyslow_probe::record(&look.plan(budget), stop, &mut starter);

    signals.release();
    let pid = starter.command.pid();
    let Some(from) = starter.from else {
        note(&format!(
            "a signal ended whyslow before the command began: {} was not started",
            words(args).join(" ")
        ));
        return Ok(ended_by_signal());
    };
    let end = starter.command.end(!recording.meta.interrupted);
    watchdog::forget_command();
    let status = match &end {
        End::NotRun(status, error) => {
            note(&format!("{error:#}"));
            return Ok(*status);
        }
        End::Exited(status, _) => u8::try_from(*status).unwrap_or(OUR_FAILURE),
        End::Killed(signal, _) => 128u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
        End::Running => ended_by_signal(),
    };
    let command = Command {
        argv: shown(args),
        pid,
        from_ns: nanoseconds(from),
        to_ns: ended_at(&recording, pid).unwrap_or(recording.meta.window_ns),
        ..ending(&end)
    };
    recording.meta.watched.get_or_insert_default().command = Some(command);
    Ok(report(args, &recording, status, out))
}

/// The status that shells give a process that a signal ended: 128 + n.
fn ended_by_signal() -> u8 {
    128 + Signals::ended_by().and_then(|signal| u8::try_from(signal).ok()).unwrap_or(0)
}

/// The end of the command, as the recording stores it.
fn ending(end: &End) -> Command {
    let (status, signal, used) = match end {
        End::Exited(status, used) => (Some(*status), None, used),
        End::Killed(signal, used) => (None, Some(*signal), used),
        End::NotRun(..) | End::Running => return Command::default(),
    };
    Command { status, signal, user_ns: used.user_ns, system_ns: used.system_ns, ..Command::default() }
}

/// The words of the command line as the recording stores them: without secrets.
fn shown(args: &Args) -> Vec<String> {
    let area = args.command.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&0);
    let line = redact::command_line(&area, false);
    if line.contains(redact::HIDDEN) {
        line.split(BETWEEN_ARGUMENTS).map(str::to_owned).collect()
    } else {
        words(args)
    }
}

fn words(args: &Args) -> Vec<String> {
    args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Prints and saves the report. A failure of whyslow replaces a status of 0 only: a failure of the command is more important.
fn report(args: &Args, recording: &Recording, status: u8, out: &mut dyn Write) -> u8 {
    let reported = args.output.tell_beside(recording, out);
    let kept = args.save.keep(recording);
    let mut failed = false;
    for error in [reported, kept].into_iter().filter_map(Result::err) {
        note(&format!("{error:#}"));
        failed = true;
    }
    if failed && status == 0 { OUR_FAILURE } else { status }
}

/// When the last thread of process `pid` ended, as the tracer saw it; whyslow itself learns it a little later.
fn ended_at(recording: &Recording, pid: u32) -> Option<u64> {
    let spans = recording.tables.spans.as_deref().unwrap_or_default();
    spans.iter().filter(|span| span.tgid == pid && span.ended).map(|span| span.to_ns).max()
}

fn say_what_surprises(user: Option<&User>, args: &Args) {
    if !is_root() {
        note(
            "not root: whyslow can report only the total times of the command; use `sudo whyslow run`, \
             which runs the command as you",
        );
    }
    // A user that types `sudo whyslow` knows the user that the command runs as. In a root shell that sudo opened, sudo's variables are
    // still set, and the user may not expect them: whyslow says it.
    let parent = fs::read_to_string(format!("/proc/{}/comm", std::os::unix::process::parent_id()));
    let called = parent.is_ok_and(|comm| ["sudo", "doas", "pkexec"].contains(&comm.trim()));
    if let Some(user) = user.filter(|_| args.user.is_none() && !called) {
        note(&format!(
            "the command runs as {}, the user that became root; --as-root runs it as root",
            user.shown()
        ));
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Starts the command when all probes are attached. Prints no progress: the command uses stderr meanwhile.
struct Starter {
    command: Started,
    /// When the command began; `None`: it did not begin.
    from: Option<Duration>,
}

impl Observer for Starter {
    fn begun(&mut self, at: Instant) {
        priority::as_it_was();
        if Signals::begin(self.command.pidfd()) {
            self.from = Some(at.elapsed());
            self.command.go();
        }
    }

    fn ended(&mut self) {
        priority::raise();
        priority::for_a_while();
    }

    fn step(&mut self, doing: &'static CStr) {
        watchdog::step(doing);
    }
}
