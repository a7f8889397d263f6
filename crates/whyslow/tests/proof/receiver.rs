//! A reader that is too slow for its sender, in a network namespace of the test's own: found with reader, sender and time; its healthy twin is
//! not accused. Message size, pace and the reader's slowness are drawn; the time lost is reported by the sender's own clock.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use whyslow_faults::ledger::{Fact, Word};
use whyslow_faults::look::Look;
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::spec::{Network, Work};
use whyslow_faults::{Draw, Fence, Victim, bars, clock};

mod judge;
mod stand_ins;

use judge::{End, Made, Reader};

fn kept_in() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("receiver")
}

/// The two ends, and what was drawn for them.
struct Pair {
    reader: Victim,
    sender: Victim,
    said: String,
}

fn pair(
    kind: Reader,
    fence: &Fence,
    draw: &mut Draw,
) -> Result<(Pair, [whyslow_faults::cgroup::Group; 2]), Trouble> {
    let (port, bytes) = (draw.between(1024, 30_000) as u16, draw.between(100, 1500));
    let every_us = draw.between(400, 900);
    let slow_us = if kind == Reader::Prompt { 0 } else { every_us * draw.between(6, 20) };
    let groups = [fence.group(&draw.word(6))?, fence.group(&draw.word(7))?];
    let work = Work::Pull { port, bytes, sleeps: kind == Reader::Sleeps };
    let mut spec = fence.spec(&groups[0], &draw.word(9), 1, work);
    spec.network = Network::Own;
    let reader = Victim::spawn(spec)?;
    let mut spec = fence.spec(&groups[1], &draw.word(8), 1, Work::Push { port, bytes, every_us });
    spec.network = Network::Of(reader.pid());
    let mut sender = Victim::spawn(spec)?;
    reader.ledger().word(Word::AcceptPause).store(slow_us, Ordering::Relaxed);
    reader.go();
    sender.go();
    sender.until_it_moves()?;
    let said = format!("{bytes} bytes every {every_us} us, {slow_us} us a read");
    Ok((Pair { reader, sender, said }, groups))
}

impl Pair {
    /// When it was, how long the sender was in its calls until then, and how long either was ready and did not run.
    fn so_far(&self) -> [u64; 3] {
        let late = self.reader.ran_and_waited().1 + self.sender.ran_and_waited().1;
        [clock::now(), self.sender.ledger().fact(0, Fact::Busy).load(Ordering::Acquire), late]
    }

    fn end(victim: &Victim) -> End {
        End { pid: victim.pid(), comm: victim.comm().to_owned() }
    }
}

fn look(label: &str) -> Result<Look, Trouble> {
    fs::create_dir_all(kept_in())?;
    let length = format!("{}s", bars::WINDOW_S);
    let kept = kept_in().join(format!("{label}.json"));
    let whyslow = whyslow_faults::program!();
    Look::now(&whyslow, &["exam", "--for", &length, "--json"], Duration::from_secs(bars::WINDOW_S), &kept)
}

fn make(kind: Reader, draw: &mut Draw, label: &str) -> Result<(Made, Look), Trouble> {
    let fence = Fence::enter()?;
    let (pair, groups) = pair(kind, &fence, draw)?;
    std::thread::sleep(bars::SETTLE);
    let cpu = [groups[0].cpu_used()?, groups[1].cpu_used()?];
    let before = pair.so_far();
    let look = look(label)?;
    let after = pair.so_far();
    let sights = vec![look.sight(&groups[0], cpu[0])?, look.sight(&groups[1], cpu[1])?];
    fence.check_time()?;
    let share = |at: usize| (after[at] - before[at]) as f64 / (after[0] - before[0]) as f64;
    let (reader, sender) = (Pair::end(&pair.reader), Pair::end(&pair.sender));
    Ok((Made { kind, reader, sender, share: share(1), late: share(2), sights, said: pair.said }, look))
}

fn cell(kind: Reader, draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    rounds::until_judged(&label, |attempt| {
        let (made, look) = make(kind, draw, &format!("{label}-{attempt}"))?;
        println!("{}", made.reported(&look));
        Ok(judge::judge(&made, &look))
    })
}

fn run(kind: Reader, label: &str) {
    rounds::run(&label, |_| true, &kept_in(), |draw| cell(kind, draw, label));
}

#[test]
fn root_a_reader_that_computes_too_long_is_found_behind_its_sender() {
    run(Reader::Computes, "a reader that computes");
}

#[test]
fn root_a_reader_that_sleeps_is_found_behind_its_sender() {
    run(Reader::Sleeps, "a reader that sleeps");
}

#[test]
fn root_a_prompt_reader_is_not_accused() {
    run(Reader::Prompt, "a prompt reader");
}
